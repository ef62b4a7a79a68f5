"""Values as people write them in JSON, and the text form that events carry."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import BadEvents
from tidegate.events import EVENTS
from tidegate.format.decode import csv as csv_decode
from tidegate.format.encode import csv
from tidegate.format.encode.csv import CsvOptions
from tidegate.format.sql.declared import declared_column, declared_layout
from tidegate.format.sql.given import given_value
from tidegate.format.sql.json_values import json_text, read_json
from tidegate.format.tables import Layout

SMALL = "9007199254740993"


def value(declared: str, text: str) -> bytes | None:
    """The event's form of a value that stands so in a JSON document."""
    return given_value(declared_column(f"c {declared}"), read_json(text))


# The column's type, the value in JSON, the text in the event.
VALUES = [
    ("tinyint", "1", "1"), ("tinyint", "true", "1"), ("tinyint", "-128", "-128"), ("tinyint", '"127"', "127"),
    ("tinyint unsigned", "255", "255"), ("tinyint zerofill", "7", "7"), ("smallint", "-32768", "-32768"),
    ("mediumint", "8388607", "8388607"), ("mediumint unsigned", "16777215", "16777215"), ("int", '"+07"', "7"),
    ("int", "1e3", "1000"), ("int", "5.0", "5"), ("bigint", SMALL, SMALL), ("bigint", "-0", "0"),
    ("bigint", "-9223372036854775808", "-9223372036854775808"),
    ("bigint unsigned", "18446744073709551615", "18446744073709551615"),
    ("year", "1970", "1970"), ("year", '"2155"', "2155"), ("year", "0", "0"), ("bit", "1", "1"), ("bit", "false", "0"),
    ("bit(10)", '"0b0001010001"', "81"), ("bit(24)", "683", "683"), ("bit(64)", "18446744073709551615", str(2**64 - 1)),
    ("float", "3.14", "3.14"), ("double", "1.50", "1.5"), ("double", "1e21", "1E+21"), ("double", '"0.0"', "0"),
    ("float", "3.4028235e38", "3.4028235E+38"), ("double", "1.7976931348623157e308", "1.7976931348623157E+308"),
    ("double", "-2.5", "-2.5"), ("double", "1000000.0", "1E+6"), ("float unsigned", "0", "0"),
    ("decimal(20,7)", '"129012.1230000"', "129012.1230000"), ("decimal(5,2)", "0.5", "0.50"),
    ("decimal(5,2)", "-1", "-1.00"), ("decimal(5,2)", "999.99", "999.99"), ("decimal(5,2)", '"-0"', "0.00"),
    ("decimal", "1e9", "1000000000"), ("decimal(5,2)", "1.50000", "1.50"), ("decimal(2,2)", "0.99", "0.99"),
    ("decimal(65,30)", '"' + "9" * 35 + "." + "1" * 30 + '"', "9" * 35 + "." + "1" * 30),
    ("varchar(20)", '"你好"', "你好"), ("varchar(20)", '""', ""), ("char(1)", '"\\u0000"', "\0"),
    ("text", '"null"', "null"),
    ("blob", '"hello"', "hello"), ("binary(3)", '{"hex": "00 41"}', "\0A"),
    ("varbinary(3)", '{"base64": "QUI="}', "AB"),
    ("date", '"2000-01-01"', "2000-01-01"), ("date", '"0000-00-00"', "0000-00-00"),
    ("datetime", '"2015-12-20 23:58:58"', "2015-12-20 23:58:58"),
    ("datetime", '"2015-12-20 23:58:58.000"', "2015-12-20 23:58:58"),
    ("datetime(3)", '"2015-12-20 23:58:58.1"', "2015-12-20 23:58:58.100"),
    ("timestamp(2)", '"0000-00-00 00:00:00"', "0000-00-00 00:00:00.00"), ("time", '"5:06:07"', "05:06:07"),
    ("time(3)", '"-838:59:59"', "-838:59:59.000"), ("time", '"-00:00:00"', "00:00:00"),
    ("enum('a,','b')", '"a,"', "1"), ("enum('a','b')", "2", "2"), ("enum('a','b')", "0", "0"),
    ("enum('a','b')", '""', "0"), ("enum('','b')", '""', "1"), ("set('a','b','c')", '"a,c"', "5"),
    ("set('a','b','c')", '["c", "a", "c"]', "5"), ("set('a','b','c')", "6", "6"), ("set('a','b')", '""', "0"),
    ("set('a','b')", "[]", "0"), ("set('a','b')", "0", "0"),
    ("json", '{"b": 1, "a": [true, null, 1.0, "x"]}', '{"a": [true, null, 1.0, "x"], "b": 1}'),
    ("json", '"{\\"key1\\":\\"value1\\"}"', '{"key1": "value1"}'), ("json", '"\\"x\\""', '"x"'), ("json", "7", "7"),
    ("json", "false", "false"), ("json", '"null"', "null"), ("json", "[]", "[]"), ("json", "{}", "{}"),
    ("vector", "[1.0, 0.5, 1e10]", "[1,0.5,10000000000]"), ("vector(5)", '"[1, 2,3,4,5]"', "[1,2,3,4,5]"),
    ("vector", "[]", "[]"), ("vector", "[3.4028235e38]", "[340282350000000000000000000000000000000]"),
    ("vector", "[0.1, 16777217, -1e-7, 3.14159265358979]", "[0.1,16777216,-0.0000001,3.1415927]"),
]  # fmt: skip


@pytest.mark.parametrize(("declared", "written", "text"), VALUES)
def test_a_value_has_one_text(declared: str, written: str, text: str) -> None:
    assert value(declared, written) == text.encode()


@pytest.mark.parametrize("declared", [declared for declared, _, _ in VALUES])
def test_null_is_none_but_not_in_a_column_that_is_not_null(declared: str) -> None:
    assert value(declared, "null") is None
    with pytest.raises(BadEvents, match=r"'c' .* cannot be NULL: .* NOT NULL"):
        value(f"{declared} not null", "null")


@pytest.mark.parametrize(
    ("declared", "written", "wanted"),
    [
        ("tinyint", "300", "a whole number from -128 to 127"),
        ("tinyint unsigned", "256", "from 0 to 255"),
        ("tinyint unsigned", "-1", "0 or more: the column is unsigned"),
        ("int zerofill", "-1", "unsigned"),
        ("mediumint", "8388608", "to 8388607"),
        ("int", "2147483648", "to 2147483647"),
        ("bigint", "9223372036854775808", "to 9223372036854775807"),
        ("bigint unsigned", "18446744073709551616", "to 18446744073709551615"),
        ("bigint", "1e999999", "a whole number"),
        ("int", "1.5", "a whole number"),
        ("int", '"x"', "a number"),
        ("int", '""', "a number"),
        ("int", '" 1"', "a number"),
        ("int", '"1_000"', "a number"),
        ("int", "[1]", "a number"),
        ("year", "1900", "a year from 1901 to 2155"),
        ("year", "2156", "to 2155"),
        ("bit(3)", "8", "from 0 to 7"),
        ("bit", "2", "from 0 to 1"),
        ("bit", '"0b2"', "a number"),
        ("float", "1e39", "at most 3.4028235e38"),
        ("double", "1e309", "at most 1.7976931348623157e308"),
        ("double unsigned", "-0.5", "unsigned"),
        ("decimal(5,2)", "1000", "3 digits before the point and 2 after it"),
        ("decimal(5,2)", "0.005", "3 digits before the point and 2 after it"),
        ("decimal", "0.5", "10 digits before the point and 0 after it"),
        ("decimal(5,2)", "1e99999", "3 digits"),
        ("varchar(9)", "1", "a text"),
        ("text", "true", "a text"),
        ("blob", "[0]", "hex"),
        ("blob", '{"hex": "0"}', "good hex"),
        ("blob", '{"base64": "*"}', "good hex or base64"),
        ("blob", '{"hex": "00", "base64": ""}', "hex"),
        ("date", '"2026-13-01"', "a date such as"),
        ("date", "20260131", "a date such as"),
        ("datetime", '"2026-01-31"', "a moment such as"),
        ("datetime", '"2026-01-31 24:00:00"', "a moment such as"),
        ("datetime", '"2026-01-31 23:00:00.5"', "at most 0 digits"),
        ("datetime(3)", '"2026-01-31 23:00:00.0001"', "at most 3 digits"),
        ("time", '"839:00:00"', "838 hours"),
        ("time", '"1:60:00"', "a time such as"),
        ("enum('a','b')", '"c"', "one of a, b, or a number"),
        ("enum('a','b')", "3", "from 0 to 2"),
        ("enum('a','b')", '"2"', "one of a, b"),
        ("set('a','b')", '"a,c"', "some of a, b"),
        ("set('a','b')", "4", "from 0 to 3"),
        ("set('a','b')", "[1]", "some of a, b"),
        ("json", '"x"', "JSON"),
        ("json", '"NaN"', "JSON has no number NaN"),
        ("json", "[1e999]", "beyond the largest double"),
        ("json", "[" * 102 + "]" * 102, "100 levels"),
        ("vector", '"1,2"', "a list of numbers"),
        ("vector", "1", "a list of numbers"),
        ("vector", '["x"]', "a number"),
        ("vector", "[1e39]", "at most 3.4028235e38"),
        ("vector(2)", "[1]", "a list of 2 numbers"),
    ],
)
def test_what_the_column_cannot_hold_is_refused(declared: str, written: str, wanted: str) -> None:
    with pytest.raises(BadEvents, match=f"column 'c' .*{wanted}") as refusal:
        value(declared, written)
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_what_is_no_number_is_refused(number: float) -> None:
    with pytest.raises(BadEvents, match="finite"):
        given_value(declared_column("c double"), number)


# JSON ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("1", "1"), ("-0", "0"), ("1.0", "1.0"), ("1e2", "100.0"), ("0.0", "0.0"), ("-0.0", "-0.0"), ("0.10", "0.1"),
        ("1e20", "1e20"), ("1e15", "1e15"), ("1.5e15", "1.5e15"), ("-2e300", "-2e300"),
        ("999999999999999.9", "999999999999999.9"), ("1e-15", "0.000000000000001"), ("1.5e-16", "1.5e-16"),
        ("5e-324", "5e-324"), ("0.1234567890123456789", "0.12345678901234568"),
        ("18446744073709551615", "18446744073709551615"), ("18446744073709551616", "1.8446744073709552e19"),
        ("-9223372036854775808", "-9223372036854775808"), ("-9223372036854775809", "-9.223372036854776e18"),
        ('"<a> & \\"q\\" \\\\ /"', '"<a> & \\"q\\" \\\\ /"'),
        ('"\\b\\f\\n\\r\\t\\u0001\\u001f"', '"\\b\\f\\n\\r\\t\\u0001\\u001f"'),
        ('"\\u2028\\u2029\\u007f é 🙂"', '"\\u2028\\u2029\x7f é 🙂"'),
        ('{"é": 1, "z": 2, "Z": 3, "": {}}', '{"": {}, "Z": 3, "z": 2, "é": 1}'),
        ('{"a": {"b": [], "a": [1, [2]]}}', '{"a": {"a": [1, [2]], "b": []}}'),
        ('{"a": 1, "a": 2}', '{"a": 2}'), ("[true, false, null]", "[true, false, null]"),
    ],
)  # fmt: skip
def test_json_is_printed_as_tidb_prints_it(written: str, text: str) -> None:
    assert json_text(read_json(written)) == text


def test_a_byte_that_is_no_utf8_is_shown_as_the_replacement_sign_in_json() -> None:
    assert json_text(b"a\xff".decode("utf-8", "surrogateescape")) == '"a\\ufffd"'


@pytest.mark.parametrize("text", ["", "nul", "NaN", "-Infinity", "1e99999999999999999999", "[" * 100_000, "1 2"])
def test_what_is_no_json_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_json(text)


NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@given(DOCUMENTS)
def test_json_keeps_its_meaning(document: object) -> None:
    text = json_text(document)
    assert json.loads(text) == document
    assert json_text(read_json(text)) == text


# Through CSV and back -----------------------------------------------------------------------------------------------


def decimals(places: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10 ** (places + scale) - 1
    return st.integers(-most, most).map(lambda number: Decimal(number).scaleb(-scale))


SOME = [
    ("tinyint", st.integers(-128, 127)),
    ("bigint unsigned", st.integers(0, 2**64 - 1)),
    ("bit(20)", st.integers(0, 2**20 - 1)),
    ("year", st.integers(1901, 2155) | st.just(0)),
    ("decimal(20,5)", decimals(15, 5)),
    ("varchar(20)", TEXTS),
    ("blob", st.binary().map(lambda raw: {"hex": raw.hex()})),
    ("datetime(6)", st.datetimes().map(lambda moment: moment.isoformat(" ", "microseconds"))),
    ("date", st.dates().map(str)),
    ("enum('a','b,','')", st.sampled_from(["a", "b,", "", 1, 2, 3])),
    ("set('a','b','c')", st.lists(st.sampled_from("abc")) | st.integers(0, 7)),
    ("json", DOCUMENTS.filter(lambda document: document is not None and not isinstance(document, str))),
    ("vector(2)", st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=2, max_size=2)),
]
LAYOUT = declared_layout([f"c{at} {declared}" for at, (declared, _) in enumerate(SOME)])
ROWS = st.tuples(*(st.none() | values for _, values in SOME))


def through_csv(layout: Layout, values: list[bytes | None], options: CsvOptions) -> list[bytes | None]:
    row = {"kind": "insert", "schema_name": "s", "table_name": "t", "commit_ts": 1, "seq": 1, "after": values}
    encoded = csv.encode(pa.RecordBatch.from_pylist([row], schema=EVENTS), np.array([0]), layout, options)
    return list(csv_decode.decode(encoded[0].as_py(), layout, options)[0].values)


@given(ROWS, st.sampled_from(["base64", "hex"]))
def test_any_value_survives_csv(row: tuple[object, ...], binary_encoding: str) -> None:
    values = [given_value(column, given) for column, given in zip(LAYOUT.columns, row, strict=True)]
    assert through_csv(LAYOUT, values, CsvOptions(binary_encoding=binary_encoding)) == values


@given(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from([str, repr, "{:.30e}".format]))
def test_a_double_keeps_its_number_however_it_is_written(number: float, written: Callable[[float], str]) -> None:
    text = given_value(declared_column("c double"), Decimal(written(number)))
    assert text is not None
    assert float(text) == number
