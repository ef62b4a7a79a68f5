"""Values by name and floats as Go prints them: exact texts, against slow models, and what no column can have."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.errors import BadEvents
from tidegate.format.bad_values import BadValue
from tidegate.format.encode.elements import enum_names, enum_numbers, set_names, set_numbers
from tidegate.format.encode.floats import float_texts, plain_float_texts

Float = np.float32 | np.float64
WIDTHS: dict[int, type[np.float32] | type[np.float64]] = {32: np.float32, 64: np.float64}


def binary(*values: bytes | None) -> pa.Array:
    return pa.array(values, pa.binary())


def names(found: pa.Array) -> list[bytes | None]:
    return list(found.cast(pa.binary()).to_pylist())


# Exact texts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bits", "text", "shown", "plain"),
    [
        (64, b"0.0", b"0", b"0"),
        (64, b"-0.0", b"-0", b"-0"),
        (64, b"-1e-400", b"-0", b"-0"),
        (64, b"1.0", b"1", b"1"),
        (64, b"3.140", b"3.14", b"3.14"),
        (64, b"100000.0", b"100000", b"100000"),
        (64, b"1e5", b"100000", b"100000"),
        (64, b"1200e2", b"120000", b"120000"),
        (64, b"999999", b"999999", b"999999"),
        (64, b"999999.9999999999", b"999999.9999999999", b"999999.9999999999"),
        (64, b"999999.99999999999999", b"1e+06", b"1000000"),
        (64, b"1000000", b"1e+06", b"1000000"),
        (64, b"1234567", b"1.234567e+06", b"1234567"),
        (64, b"-1234500.5", b"-1.2345005e+06", b"-1234500.5"),
        (64, b"123456789", b"1.23456789e+08", b"123456789"),
        (64, b"9999999999", b"9.999999999e+09", b"9999999999"),
        (64, b"12345678901.5", b"1.23456789015e+10", b"12345678901.5"),
        (64, b"1e21", b"1e+21", b"1000000000000000000000"),
        (64, b"1e22", b"1e+22", b"10000000000000000000000"),
        (64, b"1e23", b"1e+23", b"100000000000000000000000"),
        (64, b"1e100", b"1e+100", b"1" + b"0" * 100),
        (64, b"1.7976931348623157e308", b"1.7976931348623157e+308", b"17976931348623157" + b"0" * 292),
        (64, b"-2.5", b"-2.5", b"-2.5"),
        (64, b"+.5", b"0.5", b"0.5"),
        (64, b"-.5", b"-0.5", b"-0.5"),
        (64, b"0.0001", b"0.0001", b"0.0001"),
        (64, b"0.00001", b"1e-05", b"0.00001"),
        (64, b"0.90E-5", b"9e-06", b"0.000009"),
        (64, b"-0.0000125", b"-1.25e-05", b"-0.0000125"),
        (64, b"0.0000015", b"1.5e-06", b"0.0000015"),
        (64, b"1.5e-7", b"1.5e-07", b"0.00000015"),
        (64, b"-1e-10", b"-1e-10", b"-0.0000000001"),
        (64, b"5e-324", b"5e-324", b"0." + b"0" * 323 + b"5"),
        (64, b"0.1000000000000000055511151231257827", b"0.1", b"0.1"),
        (32, b"3.14", b"3.14", b"3.14"),
        (32, b"123.456", b"123.456", b"123.456"),
        (32, b"1000000", b"1e+06", b"1000000"),
        (32, b"16777216", b"1.6777216e+07", b"16777216"),
        (32, b"9124404224", b"9.124404e+09", b"9124404000"),
        (32, b"0.1000000000000000055511151231257827", b"0.1", b"0.1"),
        (32, b"1e-45", b"1e-45", b"0." + b"0" * 44 + b"1"),
        (32, b"3.4028235e38", b"3.4028235e+38", b"34028235" + b"0" * 31),
        # Just above the middle of two 32-bit numbers, and exactly the middle as a 64-bit one.
        (32, b"1.0000000596046447753906251", b"1.0000001", b"1.0000001"),
        (64, b"nan", b"NaN", b"NaN"),
        (64, b"inf", b"+Inf", b"+Inf"),
        (32, b"-Infinity", b"-Inf", b"-Inf"),
    ],
)
def test_a_float_has_this_exact_text(bits: int, text: bytes, shown: bytes, plain: bytes) -> None:
    assert float_texts(binary(text), bits).to_pylist() == [shown]
    assert plain_float_texts(binary(text), bits).to_pylist() == [plain]


def test_texts_that_are_right_already_are_not_written_again() -> None:
    values = binary(b"1", None, b"-0.25", b"999999", b"0.0001", b"0")
    assert float_texts(values, 64) is values
    assert plain_float_texts(values, 64) is values


def test_null_stays_null_among_numbers_of_every_kind() -> None:
    values = binary(None, b"1e6", b"1", None, b"1e-9", b"nan", None)
    assert float_texts(values, 64).to_pylist() == [None, b"1e+06", b"1", None, b"1e-09", b"NaN", None]
    assert plain_float_texts(values.slice(1, 4), 32).to_pylist() == [b"1000000", b"1", None, b"0.000000001"]
    assert float_texts(binary(None), 64).to_pylist() == [None]
    assert float_texts(binary(), 64).to_pylist() == []


@pytest.mark.parametrize("text", [b"", b"x", b"1e", b"1 ", b"0x10", b"nan(1)", b"1_0", b"--1", b"\xff", b"."])
@pytest.mark.parametrize("bits", WIDTHS)
def test_a_text_that_is_no_number_is_refused_with_its_place(text: bytes, bits: int) -> None:
    for spelled in (float_texts, plain_float_texts):
        with pytest.raises(BadValue, match=f"is not a {bits}-bit float") as caught:
            spelled(binary(b"1", None, text), bits)
        assert caught.value.position == 2
        assert isinstance(caught.value, BadEvents)


@pytest.mark.parametrize(("bits", "text"), [(64, b"1e400"), (64, b"-" + b"9" * 400), (32, b"3.5e38"), (32, b"1e39")])
def test_a_number_beyond_its_width_is_refused(bits: int, text: bytes) -> None:
    with pytest.raises(BadValue, match="beyond the largest"):
        float_texts(binary(b"inf", text), bits)


# Floats against a slow model ----------------------------------------------------------------------------------------


def nearest(text: str, bits: int) -> Float:
    """The number next to the exact value of the text, found without rounding twice."""
    guess = WIDTHS[bits](float(text))
    if bits == 64:
        return guess
    exact = Fraction(text)
    around: list[Float] = [np.nextafter(guess, np.float32(-np.inf)), guess, np.nextafter(guess, np.float32(np.inf))]
    finite = [number for number in around if np.isfinite(number)]
    even = {number: int(number.view(np.uint32)) & 1 for number in finite}
    return min(finite, key=lambda number: (abs(Fraction(float(number)) - exact), even[number]))


def model(number: Float) -> bytes:
    mantissa, exponent = np.format_float_scientific(number, unique=True, trim="-").split("e")
    if -4 <= int(exponent) < 6:
        return plain_model(number)
    return f"{mantissa}e{int(exponent):+03d}".encode()


def plain_model(number: Float) -> bytes:
    return np.format_float_positional(number, unique=True, trim="-").encode()


def spellings(number: Float) -> list[bytes]:
    exact = repr(float(number)).encode()
    return [exact, model(number), plain_model(number), np.format_float_positional(number, trim="k").encode()]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False)))
def test_64_bit_texts_equal_the_model_however_they_were_spelled(floats: list[float]) -> None:
    numbers = [np.float64(number) for number in floats for _ in range(4)]
    texts = binary(*(text for number in floats for text in spellings(np.float64(number))))
    assert float_texts(texts, 64).to_pylist() == [model(number) for number in numbers]
    assert plain_float_texts(texts, 64).to_pylist() == [plain_model(number) for number in numbers]


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False)))
def test_32_bit_texts_equal_the_model_however_they_were_spelled(floats: list[float]) -> None:
    numbers = [np.float32(number) for number in floats for _ in range(4)]
    texts = binary(*(text for number in floats for text in spellings(np.float32(number))))
    assert float_texts(texts, 32).to_pylist() == [model(number) for number in numbers]
    assert plain_float_texts(texts, 32).to_pylist() == [plain_model(number) for number in numbers]


decimals = st.from_regex(r"[+-]?([0-9]{1,12}(\.[0-9]{0,12})?|\.[0-9]{1,12})([eE][+-]?[0-9]{1,2})?", fullmatch=True)


@pytest.mark.parametrize("bits", WIDTHS)
@given(texts=st.lists(decimals.filter(str.isascii), min_size=1))
@example(texts=["1e6", "3.82e+07", "1.e+05", "150e2", "5.", "00.5", "1.50", "1.5e00", "+.5"])
@example(texts=["16777217", "16777219", "8388609.5", "1.00000005960464477540"])
def test_any_decimal_text_is_read_to_the_nearest_number(texts: list[str], bits: int) -> None:
    texts = [text for text in texts if abs(float(text)) < 3e38]
    numbers = [nearest(text, bits) for text in texts]
    # The model loses the sign of what is too small for its width.
    kept = [i for i, (text, number) in enumerate(zip(texts, numbers, strict=True)) if number or not float(text)]
    values = binary(*(texts[i].encode() for i in kept))
    assert float_texts(values, bits).to_pylist() == [model(numbers[i]) for i in kept]
    assert plain_float_texts(values, bits).to_pylist() == [plain_model(numbers[i]) for i in kept]


@pytest.mark.parametrize("bits", WIDTHS)
def test_the_neighbours_of_every_power_of_ten_are_told_apart(bits: int) -> None:
    width = WIDTHS[bits]
    least, most = (-45, 38) if bits == 32 else (-323, 308)
    powers = [width(f"1e{exponent}") for exponent in range(least, most + 1)]
    numbers = [near for power in powers for near in (power, np.nextafter(power, width(0)), -power)]
    numbers += [np.nextafter(power, width("inf")) for power in powers[:-1]]
    values = binary(*(repr(float(number)).encode() for number in numbers))
    assert float_texts(values, bits).to_pylist() == [model(number) for number in numbers]
    assert plain_float_texts(values, bits).to_pylist() == [plain_model(number) for number in numbers]


@given(st.lists(st.floats()), st.sampled_from([32, 64]))
def test_what_is_printed_prints_the_same_again(floats: list[float], bits: int) -> None:
    with np.errstate(over="ignore"):
        rounded = [WIDTHS[bits](number) for number in floats]
    shown = float_texts(binary(*(repr(float(number)).encode() for number in rounded)), bits)
    assert float_texts(shown, bits).to_pylist() == shown.to_pylist()
    assert float_texts(plain_float_texts(shown, bits), bits).to_pylist() == shown.to_pylist()


# Enum and set -------------------------------------------------------------------------------------------------------


def test_enum_numbers_count_from_one() -> None:
    assert names(enum_names(binary(b"1", None, b"2", b"1"), ("a,", "b"))) == [b"a,", None, b"b", b"a,"]
    assert enum_numbers(binary(b"a,", None, b"b"), ("a,", "b")).to_pylist() == [b"1", None, b"2"]


def test_set_masks_are_spelled_in_the_order_of_the_elements() -> None:
    assert names(set_names(binary(b"0", b"1", None, b"6", b"7"), "abc")) == [b"", b"a", None, b"b,c", b"a,b,c"]
    assert set_numbers(binary(b"", None, b"a,c"), "abc").to_pylist() == [b"0", None, b"5"]


def test_a_set_has_up_to_64_elements() -> None:
    elems = [f"e{i}" for i in range(64)]
    top = b"%d" % (1 << 63)
    assert names(set_names(binary(top, b"1"), elems)) == [b"e63", b"e0"]
    assert names(set_names(binary(b"%d" % (2**64 - 1)), elems)) == [",".join(elems).encode()]
    assert set_numbers(binary(b"e63"), elems).to_pylist() == [top]


def test_a_name_of_other_scripts_or_bad_bytes_comes_back_as_it_is() -> None:
    elems = ("é", b"\xff".decode("utf-8", "surrogateescape"))
    assert names(enum_names(binary(b"1", b"2"), elems)) == ["é".encode(), b"\xff"]
    assert enum_numbers(binary(b"\xff"), elems).to_pylist() == [b"2"]


@pytest.mark.parametrize(
    "text", [b"0", b"4", b"18446744073709551615", b"18446744073709551616", b"a", b"-1", b"0x1", b""]
)
def test_a_number_of_no_element_is_refused_with_its_place(text: bytes) -> None:
    with pytest.raises(BadValue) as caught:
        enum_names(binary(None, b"3", text), "abc")
    assert caught.value.position == 2


@pytest.mark.parametrize("text", [b"8", b"18446744073709551616", b"9" * 5000, b"a", b"-1", b"+1", b"1.0", b""])
def test_a_mask_of_no_elements_is_refused_with_its_place(text: bytes) -> None:
    with pytest.raises(BadValue) as caught:
        set_names(binary(b"7", None, text), "abc")
    assert caught.value.position == 2


def test_a_column_without_elements_has_only_null_and_the_empty_set() -> None:
    assert names(enum_names(binary(None), ())) == [None]
    assert names(set_names(binary(None, b"0"), ())) == [None, b""]
    for refused, text in ((enum_names, b"1"), (set_names, b"1"), (enum_numbers, b"a"), (set_numbers, b"a")):
        with pytest.raises(BadValue):
            refused(binary(text), ())


@pytest.mark.parametrize("text", [b"d", b"b,a", b"a,a", b"a,", b",", b"A"])
def test_a_text_that_no_set_shows_is_refused(text: bytes) -> None:
    with pytest.raises(BadValue) as caught:
        set_numbers(binary(b"a", None, text), "abc")
    assert caught.value.position == 2


@pytest.mark.parametrize("elems", [("a", ""), ("a,b", "c")])
def test_a_set_whose_names_are_ambiguous_cannot_be_read_back(elems: tuple[str, ...]) -> None:
    with pytest.raises(BadEvents, match="cannot be read back"):
        set_numbers(binary(b"a"), elems)


@given(st.lists(st.none() | st.integers(0, 2**20 - 1)))
def test_names_undo_numbers(masks: list[int | None]) -> None:
    elems = [f"e{i}" for i in range(20)]
    values = binary(*(None if mask is None else b"%d" % mask for mask in masks))
    assert set_numbers(set_names(values, elems).cast(pa.binary()), elems).to_pylist() == values.to_pylist()
    places = binary(*(None if mask is None else b"%d" % (mask % 20 + 1) for mask in masks))
    assert enum_numbers(enum_names(places, elems).cast(pa.binary()), elems).to_pylist() == places.to_pylist()
