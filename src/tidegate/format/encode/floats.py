"""Floats as Go prints them; events carry them in any form. Enum and set values are in `elements.py`.

    float_texts        1e6 -> 1e+06      0.00001 -> 1e-05    3.140 -> 3.14     what Go's `%v` prints, so CSV
    plain_float_texts  1e6 -> 1000000    1e-7 -> 0.0000001   3.140 -> 3.14     never an exponent, so canal-json

All functions work on whole Arrow arrays and keep NULL. Float digits are the shortest that read back as the same 32- or
64-bit number. A text that is already in this form is recognised and kept. The others are printed by Arrow, which also
prints the shortest digits, and cut into pieces around the decimal point (`_Printed`). No step works value by value.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import BadEvents
from tidegate.format.bad_values import BadValue, mismatches
from tidegate.format.pieces import Numbers, Pool, bytes_of, gather, texts

Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

_TYPES = {32: pa.float32(), 64: pa.float64()}
_SURE_DIGITS = {32: 6, 64: 15}  # decimal digits that always survive conversion to binary and back
_EXPONENTS = range(-324, 309)  # of 64-bit numbers
_POWERS = texts(*(f"e{exponent:+03d}" for exponent in _EXPONENTS))
_LEADS = texts("", *("0." + "0" * count for count in range(-_EXPONENTS.start)))
_TAILS = texts(".", *("0" * count for count in range(_EXPONENTS.stop)))
_FLOAT_FORM = r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf(?:inity)?|nan)"
_FLOAT_TEXT = re.compile(_FLOAT_FORM.encode(), re.IGNORECASE)
_INFINITE = re.compile(rb"[+-]?inf(?:inity)?", re.IGNORECASE)

FLOAT_BITS = {"float": 32, "double": 64}


def float_texts(values: pa.Array, bits: int) -> pa.Array:
    """`1e+06` for `1000000.0`: shortest digits, an exponent below 1e-4 and from 1e6 on."""
    shown, numbers = _shortest(values, bits)
    return _named(_with_exponent(shown, np.abs(numbers), bits), numbers)


def plain_float_texts(values: pa.Array, bits: int) -> pa.Array:
    """`1000000` for `1e6`: shortest digits, and zeros instead of an exponent."""
    shown, numbers = _shortest(values, bits)
    return _named(_without_exponent(shown, np.abs(numbers), bits), numbers)


def _shortest(values: pa.Array, bits: int) -> tuple[pa.Array, Floats]:
    """The values as Arrow prints them, and their numbers. Returns the same array if no text has to change."""
    numbers, valid = _parsed(values, bits)
    at = np.flatnonzero(valid & ~_is_shortest(values, numbers, bits))
    if not len(at):
        return values, numbers
    fresh = numbers[at] if bits == 64 else numbers[at].astype(np.float32)
    return _put(values, at, pa.array(fresh).cast(pa.string()).cast(pa.binary())), numbers


def _parsed(values: pa.Array, bits: int) -> tuple[Floats, Flags]:
    """The numbers (0 for NULL), and which are not NULL. A 32-bit number is rounded once, directly from its text."""
    try:
        found = values.cast(_TYPES[bits])
    except pa.ArrowInvalid as exc:
        raise _bad_float(values, bits) from exc
    valid = valid_flags(values)
    numbers: Floats = pc.fill_null(found, 0).to_numpy(zero_copy_only=False).astype(np.float64)
    if not np.isfinite(numbers).all():
        _check_unbounded(values, numbers, bits)
    return numbers, valid


def valid_flags(values: pa.Array) -> Flags:
    if not values.null_count:
        return np.ones(len(values), np.bool_)
    valid: Flags = values.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _bad_float(values: pa.Array, bits: int) -> BadEvents:
    return BadValue(f"the value is not a {bits}-bit float", *mismatches(values, f"(?i){_FLOAT_FORM}"))


def _check_unbounded(values: pa.Array, numbers: Floats, bits: int) -> None:
    at = np.flatnonzero(~np.isfinite(numbers)).tolist()
    texts = values.take(pa.array(at, pa.int64())).to_pylist()
    if wrong := [i for i, text in zip(at, texts, strict=True) if not _FLOAT_TEXT.fullmatch(text)]:
        raise BadValue(f"the value is not a {bits}-bit float", *wrong)
    found = zip(at, texts, strict=True)
    if beyond := [i for i, text in found if np.isinf(numbers[i]) and not _INFINITE.fullmatch(text)]:
        raise BadValue(f"the value is beyond the largest {bits}-bit float", *beyond)


def short(text: bytes) -> str:
    return repr(text if len(text) <= 40 else text[:37] + b"...")[1:]


def _least(bound: float, bits: int) -> float:
    """The bound as a number of that width, so that comparing numbers agrees with comparing the printed texts."""
    return bound if bits == 64 else float(np.float32(bound))


_TENS = 10.0 ** np.arange(1, 10)


def _is_shortest(values: pa.Array, numbers: Floats, bits: int) -> Flags:
    """Which texts are already what Arrow would print, without exponent. False may mean "not sure".

    A text with more digits than `_SURE_DIGITS` is not checked. The number says where the decimal point must be, so
    only a few bytes of each text need a check: only digits fit in front of the point.
    """
    ends, held = bytes_of(values)
    if not len(held):
        return np.zeros(len(values), np.bool_)
    size, sign = np.abs(numbers), np.signbit(numbers)
    length, last = np.diff(ends), len(held) - 1
    whole = sign + _places(size)
    digits = length - sign
    broken = (held[np.minimum(ends[:-1] + whole, last)] == ord(".")) & (held[ends[1:] - 1] != ord("0"))
    broken &= (length > whole + 1) & (digits - 1 - (size < 1) <= _SURE_DIGITS[bits])
    broken &= (size >= 1) | (held[np.minimum(ends[:-1] + sign, last)] == ord("0"))
    unbroken = (length == whole) & (digits <= _SURE_DIGITS[bits])
    in_range = ((size >= _least(1e-6, bits)) & (size < 1e10)) | (size == 0)
    shortest: Flags = in_range & np.where(numbers == np.trunc(numbers), unbroken, broken)
    shortest[_owners(ends, (held | 0x20) == ord("e"))] = False  # `1200e2` is as long as `120000`
    return shortest


def _owners(ends: Numbers, hit: Flags) -> Numbers:
    """The values to which the marked bytes belong."""
    owners: Numbers = np.searchsorted(ends, np.flatnonzero(hit), side="right") - 1
    return owners


def _places(size: Floats) -> npt.NDArray[np.int8]:
    """The number of digits before the decimal point, for numbers below 1e10."""
    places = np.ones(len(size), np.int8)
    for ten in _TENS:
        places += size >= ten
    return places


def _put(values: pa.Array, at: Numbers, texts: pa.Array) -> pa.Array:
    if len(at) == len(values):
        return texts
    order = np.arange(len(values))
    order[at] = np.arange(len(values), len(values) + len(at))
    return pa.concat_arrays([values, texts]).take(pa.array(order))


def _named(texts: pa.Array, numbers: Floats) -> pa.Array:
    """Go has its own names for numbers that are not finite."""
    if np.isfinite(numbers).all():
        return texts
    at = np.flatnonzero(~np.isfinite(numbers))
    name = np.where(np.isnan(numbers[at]), 0, np.where(numbers[at] > 0, 1, 2))
    return _put(texts, at, pa.array([b"NaN", b"+Inf", b"-Inf"]).take(pa.array(name)))


# Arrow prints an exponent below 1e-6 and from 1e10 on: `1e-7`, `0.000001`, `1000000000`, `1.5e+10`, `1e+100`.


def _with_exponent(shown: pa.Array, size: Floats, bits: int) -> pa.Array:
    """`1.2345e+06` for `1234500`, `1e-05` for `0.00001`, `1e-07` for `1e-7`; the other texts stay."""
    large = (size >= 1e6) & (size < 1e10)
    small = (size >= _least(1e-6, bits)) & (size < _least(1e-4, bits))
    tiny = (size > 0) & (size < _least(1e-6, bits))
    for chosen, moved in ((large, _moved_large), (small, _moved_small), (tiny, _moved_tiny)):
        if len(at := np.flatnonzero(chosen)):
            shown = _put(shown, at, moved(_printed(shown.take(pa.array(at)), size[at]), bits))
    return shown


def _without_exponent(shown: pa.Array, size: Floats, bits: int) -> pa.Array:
    """`12345678901.5` for `1.23456789015e+10`, `0.0000001` for `1e-7`; the other texts stay."""
    finite = np.isfinite(size)
    at = np.flatnonzero(((size >= 1e10) & finite) | ((size > 0) & (size < _least(1e-6, bits))))
    return _put(shown, at, _spread(_printed(shown.take(pa.array(at)), size[at]))) if len(at) else shown


class _Printed(NamedTuple):
    """Texts that Arrow printed: their bytes; where each starts, has its first digit and ends; the absolute numbers."""

    held: npt.NDArray[np.uint8]
    start: Numbers
    first: Numbers
    end: Numbers
    size: Floats

    def cut(self, pool: Pool, *cuts: Numbers) -> Numbers:
        """Add every text to the pool, cut at these places; returns the number of each text's first piece."""
        offsets = np.empty((len(self.start), len(cuts) + 1), np.int32)
        for i, cut in enumerate((self.start, *cuts)):
            offsets[:, i] = cut
        buffers = [None, pa.py_buffer(np.append(offsets, np.int32(self.end[-1]))), pa.py_buffer(self.held)]
        first = pool.add(pa.Array.from_buffers(pa.binary(), offsets.size, buffers))
        return first + np.arange(0, offsets.size, offsets.shape[1])


def _printed(shown: pa.Array, size: Floats) -> _Printed:
    ends, held = bytes_of(shown)
    return _Printed(held, ends[:-1], ends[:-1] + (held[ends[:-1]] == ord("-")), ends[1:], size)


def _moved_large(printed: _Printed, bits: int) -> pa.Array:
    """Cuts `1234500.5` into 1, 234500, the point and 5; `1234500` into 1, 2345 and zeros that are not written."""
    _, _, first, end, size = printed
    point = first + _places(size)
    whole = point == end
    digits_end = point - _zeros_at_the_end(printed, whole)
    pool = Pool()
    piece = printed.cut(pool, first + 1, digits_end, np.where(whole, end, point + 1))
    dot = pool.add(texts("", ".")) + (~whole | (digits_end > first + 1))
    return _joined(pool, piece, dot, piece + 1, piece + 3, _add_powers(pool, point - first - 1))


def _zeros_at_the_end(printed: _Printed, whole: Flags) -> Numbers:
    """Trailing zeros of the text, not of the number: for the 32-bit number 16777219072 Arrow prints `16777220000`."""
    zeros = np.zeros(len(whole), np.int64)
    at = np.flatnonzero(whole)
    while len(at := at[printed.held[printed.end[at] - 1 - zeros[at]] == ord("0")]):
        zeros[at] += 1
    return zeros


def _moved_small(printed: _Printed, bits: int) -> pa.Array:
    """Cuts `0.0000123` into zeros that are not written, 1 and 23."""
    _, _, first, end, size = printed
    zeros = np.where(size < _least(1e-5, bits), 5, 4)
    digit = first + 2 + zeros
    pool = Pool()
    piece = printed.cut(pool, first, digit, digit + 1)
    dot = pool.add(texts("", ".")) + (digit + 1 < end)
    return _joined(pool, piece, piece + 2, dot, piece + 3, _add_powers(pool, -zeros - 1))


def _moved_tiny(printed: _Printed, bits: int) -> pa.Array:
    """`1.5e-7` only needs a wider exponent: `1.5e-07`."""
    digits_end, exponent = _written(printed)
    pool = Pool()
    return _joined(pool, printed.cut(pool, digits_end), _add_powers(pool, exponent))


def _spread(printed: _Printed) -> pa.Array:
    """`1.23e+10` and `1.5e-7` without exponent: the decimal point moves by the exponent, and zeros fill the gap."""
    _, _, first, _, _ = printed
    digits_end, exponent = _written(printed)
    digits = np.minimum(first + 2, digits_end)
    pool = Pool()
    piece = printed.cut(pool, first, first + 1, digits, np.clip(digits + exponent, digits, digits_end), digits_end)
    small, missing = exponent < 0, exponent - (digits_end - digits)
    lead = pool.add(_LEADS) - exponent * small
    tail = pool.add(_TAILS) + np.where(small, 1, np.maximum(missing + 1, 0))
    return _joined(pool, piece, lead, piece + 1, piece + 3, tail, piece + 4)


def _written(printed: _Printed) -> tuple[Numbers, Numbers]:
    """Where the digits of a text with exponent end, and the exponent: 4 and -7 for `1.23e-7`."""
    held, _, _, end, size = printed
    width = np.where(held[end - 3] == ord("e"), 1, np.where(held[end - 4] == ord("e"), 2, 3))
    units, tens, hundreds = (held[end - place].astype(np.int64) - ord("0") for place in (1, 2, 3))
    exponent = units + 10 * tens * (width > 1) + 100 * hundreds * (width > 2)
    return end - width - 2, np.where(size < 1, -exponent, exponent)


def _add_powers(pool: Pool, exponent: Numbers) -> Numbers:
    return pool.add(_POWERS) + exponent - _EXPONENTS.start


def _joined(pool: Pool, *pieces: Numbers) -> pa.Array:
    placed = np.empty((len(pieces[0]), len(pieces)), np.int32)
    for i, piece in enumerate(pieces):
        placed[:, i] = piece
    return gather(placed, np.arange(len(placed) + 1), pool)
