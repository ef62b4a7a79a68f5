"""canal-json: exact lines, type names, encode against a plain model, decode as its inverse, and broken events."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import BadEvents
from tidegate.events import EVENTS
from tidegate.format.decode.canal_json import ABSENT, Change, Value, decode
from tidegate.format.encode.canal_json import CanalOptions, encode
from tidegate.format.encode.protocol import encode as encode_by_protocol
from tidegate.format.encode.sql_types import full_mysql_type, large_sql_type, mysql_type, sql_type
from tidegate.format.tables import Column, Layout

Row = list[bytes | None]
NOW = 1663572946034
TS = 449995281465737220
DEFAULT = CanalOptions()
EXTENDED = CanalOptions(tidb_extension=True)
UPDATED = CanalOptions(only_updated_columns=True)


def event(kind: str, after: Row | None, before: Row | None = None, **more: Any) -> dict[str, Any]:
    known = {"schema_name": "test", "table_name": "t", "commit_ts": 1, "seq": 0}
    return {"kind": kind, "after": after, "before": before} | known | more


def insert(*values: bytes | None, **more: Any) -> dict[str, Any]:
    return event("insert", list(values), **more)


def update(before: Row, after: Row, **more: Any) -> dict[str, Any]:
    return event("update", after, before, **more)


def delete(*values: bytes | None, **more: Any) -> dict[str, Any]:
    return event("delete", None, list(values), **more)


def batch(events: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(events, EVENTS)


def declared(name: str, text: str, **more: Any) -> Column:
    """The column that `name text` declares: `declared("a", "int(10) unsigned")`."""
    match = re.fullmatch(r"([a-z]+)(?:\((.*)\))?( unsigned)?( zerofill)?", text)
    assert match is not None
    word, inside, unsigned, zerofill = match.groups()
    word = {"bool": "tinyint", "numeric": "decimal"}.get(word, word)
    binary = word in ("binary", "varbinary") or word.endswith("blob")
    kind = {"binary": "char", "varbinary": "varchar"}.get(word, word.replace("blob", "text"))
    sizes: dict[str, Any] = {"flen": 1} if text == "bool" else {}
    if kind in ("enum", "set"):
        sizes = {"elems": tuple(inside.replace("'", "").split(","))}
    elif inside and kind in ("time", "datetime", "timestamp"):
        sizes = {"decimals": int(inside)}
    elif inside:
        sizes = dict(zip(("flen", "decimals"), map(int, inside.split(",")), strict=False))
    unsigned = unsigned or zerofill or word in ("bit", "year")  # as TiDB's own flags are
    return Column(name, kind, binary=binary, unsigned=bool(unsigned), zerofill=bool(zerofill), **sizes, **more)


def layout(*types: str, **more: Any) -> Layout:
    return Layout(tuple(declared(f"c{i}", text) for i, text in enumerate(types)), **more)


def encoded(events: list[dict[str, Any]], columns: Layout, options: CanalOptions = DEFAULT, **more: Any) -> list[bytes]:
    lines = encode(batch(events), np.arange(len(events)), columns, options, now_ms=NOW, **more)
    lines.validate(full=True)
    found: list[bytes] = lines.to_pylist()
    return found


def parsed(one: dict[str, Any], columns: Layout, options: CanalOptions = DEFAULT, **more: Any) -> dict[str, Any]:
    (line,) = encoded([one], columns, options, **more)
    found: dict[str, Any] = json.loads(line)
    return found


A = Layout((declared("a", "tinyint", pk=True),))
AB = Layout((declared("a", "tinyint", pk=True), declared("b", "tinyint")))


# Exact lines --------------------------------------------------------------------------------------------------------

HEAD = b'{"id":0,"database":"test","table":"t","pkNames":["a"],"isDdl":false,"type":'
STAMPS = b'"es":0,"ts":1663572946034,"sql":"",'
TYPES_OF_A = b'"sqlType":{"a":-6},"mysqlType":{"a":"tinyint"},'


@pytest.mark.parametrize(
    ("one", "options", "line"),
    [
        (insert(b"1"), DEFAULT, HEAD + b'"INSERT",' + STAMPS + TYPES_OF_A + b'"old":null,"data":[{"a":"1"}]}\r\n'),
        (delete(b"1"), DEFAULT, HEAD + b'"DELETE",' + STAMPS + TYPES_OF_A + b'"old":null,"data":[{"a":"1"}]}\r\n'),
        (
            update([b"1"], [b"2"]),
            DEFAULT,
            HEAD + b'"UPDATE",' + STAMPS + TYPES_OF_A + b'"old":[{"a":"1"}],"data":[{"a":"2"}]}\r\n',
        ),
        (
            update([b"1"], [b"1"]),
            UPDATED,
            HEAD + b'"UPDATE",' + STAMPS + TYPES_OF_A + b'"old":[{}],"data":[{"a":"1"}]}\r\n',
        ),
        (
            insert(b"1", commit_ts=TS),
            replace(EXTENDED, terminator="\n"),
            HEAD
            + b'"INSERT","es":1716595769751,"ts":1663572946034,"sql":"",'
            + TYPES_OF_A
            + b'"old":null,"data":[{"a":"1"}],"_tidb":{"commitTs":449995281465737220}}\n',
        ),
    ],
)
def test_a_line_of_one_column_has_this_exact_text(one: dict[str, Any], options: CanalOptions, line: bytes) -> None:
    assert encoded([one], A, options) == [line]


def test_null_is_bare_and_the_extension_shows_the_commit_ts() -> None:
    line = parsed(insert(b"1", None), AB, EXTENDED)
    assert line["data"] == [{"a": "1", "b": None}]
    assert line["old"] is None
    assert line["_tidb"] == {"commitTs": 1}
    assert "_tidb" not in parsed(insert(b"1", None), AB)


def test_all_objects_name_their_columns_in_table_order_and_so_do_the_primary_keys() -> None:
    columns = Layout((declared("a", "tinyint", pk=True), declared("c", "int"), declared("b", "tinyint", pk=True)))
    (line,) = encoded([insert(b"1", b"2", b"3")], columns)
    assert b'"pkNames":["a","b"],' in line
    assert b'"sqlType":{"a":-6,"c":4,"b":-6},"mysqlType":{"a":"tinyint","c":"int","b":"tinyint"},' in line
    assert line.endswith(b'"data":[{"a":"1","c":"2","b":"3"}]}\r\n')


def test_a_table_without_primary_key_has_an_empty_list() -> None:
    assert parsed(insert(b"1"), layout("int"))["pkNames"] == []


@pytest.mark.parametrize("options", [UPDATED, CanalOptions(content_compatible=True)])
def test_only_updated_columns_stand_in_old(options: CanalOptions) -> None:
    line = parsed(update([b"1", b"3"], [b"1", b"2"]), AB, options)
    assert line["old"] == [{"b": "3"}]
    assert line["data"] == [{"a": "1", "b": "2"}]


def test_old_has_its_commas_whichever_columns_were_updated() -> None:
    columns = layout("varchar", "varchar", "varchar")
    rows = [update([b"x" if bit & old else None if bit & null else b"" for bit in (1, 2, 4)], [b"", b"", b""])
            for old in range(8) for null in range(8)]  # fmt: skip
    for one, line in zip(rows, encoded(rows, columns, UPDATED), strict=True):
        shown = {f"c{i}": text and text.decode() for i, text in enumerate(one["before"]) if text != b""}
        assert list(json.loads(line)["old"][0].items()) == list(shown.items())


def test_a_value_that_becomes_null_or_stops_being_it_is_updated() -> None:
    line = parsed(update([None, b"", None], [b"", None, None]), layout("varchar", "varchar", "varchar"), UPDATED)
    assert line["old"] == [{"c0": None, "c1": ""}]


def test_two_floats_that_print_alike_are_no_update() -> None:
    assert parsed(update([b"1e6"], [b"1000000.0"]), layout("double"), UPDATED)["old"] == [{}]


def test_names_of_the_target_stand_in_the_line() -> None:
    (line,) = encoded([insert(b"1", schema_name="target_db", table_name="target_table")], A)
    assert b'"database":"target_db","table":"target_table"' in line


def test_names_and_keys_are_escaped_like_values() -> None:
    columns = Layout((declared('<"a">', "tinyint", pk=True), declared("b\udcff", "enum('x','y')")))
    (line,) = encoded([insert(b"1", b"2", schema_name='a"b', table_name="\u2028<")], columns)
    assert b'"database":"a\\"b","table":"\\u2028\\u003c","pkNames":["\\u003c\\"a\\"\\u003e"]' in line
    assert line.endswith(b'"data":[{"\\u003c\\"a\\"\\u003e":"1","b\\ufffd":"2"}]}\r\n')


def test_both_protocols_stand_behind_one_door() -> None:
    lines = encode_by_protocol(batch([insert(b"1")]), np.arange(1), A, DEFAULT, now_ms=NOW).to_pylist()
    assert lines == encoded([insert(b"1")], A)


DOCUMENTED = """
{"id":0,"database":"shop","table":"items","pkNames":["id"],"isDdl":false,"type":"UPDATE","es":1716595769751,
"ts":1663572946034,"sql":"","sqlType":{"id":4,"name":12,"price":8,"photo":2004},
"mysqlType":{"id":"int(10) unsigned","name":"varchar(20)","price":"double","photo":"blob"},
"old":[{"name":"tea \\u003chot\\u003e","price":"1000000"}],
"data":[{"id":"7","name":"tea \\"cold\\"","price":null,"photo":"\x89P\\n"}],
"_tidb":{"commitTs":449995281465737220}}
"""


def test_the_example_of_the_format_page_is_written_like_that() -> None:
    columns = Layout((declared("id", "int unsigned", pk=True), declared("name", "varchar(20)"),
                      declared("price", "double"), declared("photo", "blob")))  # fmt: skip
    one = update(
        [b"7", b"tea <hot>", b"1e6", b"\x89P\n"], [b"7", b'tea "cold"', None, b"\x89P\n"],
        schema_name="shop", table_name="items", commit_ts=TS,
    )  # fmt: skip
    (line,) = encoded([one], columns, replace(EXTENDED, content_compatible=True))
    assert line == DOCUMENTED.replace("\n", "").encode() + b"\r\n"


# Values -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "text", "shown"),
    [
        ("float", b"153.123", "153.123"),
        ("double", b"1e+06", "1000000"),
        ("double", b"1e21", "1000000000000000000000"),
        ("double", b"1e-07", "0.0000001"),
        ("bit(10)", b"81", "81"),
        ("enum('a','b')", b"1", "1"),
        ("enum('a','b')", b"0", "0"),
        ("set('a','b')", b"3", "3"),
        ("bool", b"1", "1"),
        ("json", b'{"key1": "value1"}', '{"key1": "value1"}'),
        ("varbinary(8)", b"\x89PNG\r\n\x1a\n", "\x89PNG\r\n\x1a\n"),
        ("blob", b"", ""),
        ("varchar(9)", b"\xff\xe2\x82", "\ufffd\ufffd\ufffd"),
    ],
)
def test_every_value_is_a_string(kind: str, text: bytes, shown: str) -> None:
    assert parsed(insert(text), layout(kind))["data"] == [{"c0": shown}]


def test_a_text_is_escaped_by_the_rules_of_easyjson() -> None:
    text = '<a> & "q" \\ \t\r\n \x01 \b \f \x7f \u2028 é'
    (line,) = encoded([insert(text.encode())], layout("text"))
    shown = r"\u003ca\u003e \u0026 \"q\" \\ \t\r\n \u0001 \u0008 \u000c " + "\x7f" + r" \u2028 é"
    assert line.endswith(f'"data":[{{"c0":"{shown}"}}]}}\r\n'.encode())


def test_a_binary_value_is_shown_as_the_code_points_of_its_bytes() -> None:
    (line,) = encoded([insert(b"\x89PNG\r\n\x1a\n")], layout("varbinary(8)"))
    assert b'"c0":"\xc2\x89PNG\\r\\n\\u001a\\n"' in line


def test_a_line_separator_cut_by_a_value_boundary_is_two_bad_ends() -> None:
    (line,) = encoded([insert(b"\xe2\x80", b"\xa8")], layout("text", "text"))
    assert line.endswith(b'"data":[{"c0":"\\ufffd\\ufffd","c1":"\\ufffd"}]}\r\n')


def test_a_replacement_character_that_the_value_holds_is_left_alone() -> None:
    (line,) = encoded([insert("\ufffd".encode())], layout("text"))
    assert b'"c0":"\xef\xbf\xbd"' in line


def test_a_null_shows_nothing_of_the_bytes_that_its_buffer_still_holds() -> None:
    bits, ends, held = (pa.py_buffer(part) for part in (b"\x02", np.array([0, 3, 5], np.int32), b'a"bde'))
    values = pa.Array.from_buffers(pa.binary(), 2, [bits, ends, held])
    rows = batch([insert(b"", b"")])
    rows = rows.set_column(rows.schema.get_field_index("after"), "after", pa.ListArray.from_arrays([0, 2], values))
    (line,) = encode(rows, np.arange(1), layout("text", "text"), DEFAULT).to_pylist()
    assert line.endswith(b'"data":[{"c0":null,"c1":"de"}]}\r\n')


# Types --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value", "number"),
    [
        ("int", b"2147483647", 4),
        ("smallint", b"32767", 5),
        ("mediumint", b"8388607", 4),
        ("int unsigned", b"2147483647", 4),
        ("int unsigned", b"2147483648", -5),
        ("tinyint unsigned", b"0", -6),
        ("tinyint unsigned", b"127", -6),
        ("tinyint unsigned", b"128", 5),
        ("tinyint unsigned", None, -6),
        ("smallint unsigned", b"32768", 4),
        ("smallint unsigned", None, 5),
        ("mediumint unsigned", b"8388607", 4),
        ("mediumint unsigned", b"8388608", 4),
        ("bigint unsigned", b"9223372036854775807", -5),
        ("bigint unsigned", b"9223372036854775808", 3),
        ("bigint unsigned", b"18446744073709551615", 3),
        ("bigint unsigned", b"0", -5),
        ("bigint zerofill", b"9223372036854775808", 3),
    ],
)
def test_the_sql_type_of_an_unsigned_integer_depends_on_its_value(text: str, value: bytes | None, number: int) -> None:
    assert parsed(insert(value), layout(text))["sqlType"] == {"c0": number}
    assert parsed(delete(value), layout(text))["sqlType"] == {"c0": number}


def test_of_an_update_the_new_row_decides_the_sql_type() -> None:
    columns = layout("int unsigned", "varchar(9)", "tinyint unsigned")
    small: Row = [b"1", b"x", b"1"]
    large: Row = [b"4294967295", b"x", b"255"]
    rows = [update(small, large), update(large, small), update(large, [b"4294967295", b"x", None])]
    types = [list(json.loads(line)["sqlType"].values()) for line in encoded(rows, columns)]
    assert types == [[-5, 12, 5], [4, 12, -6], [-5, 12, -6]]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("bit(3)", -7),
        ("tinyint", -6),
        ("mediumint", 4),
        ("bigint", -5),
        ("float", 7),
        ("double", 8),
        ("decimal(5,2)", 3),
        ("time(3)", 92),
        ("datetime(3)", 93),
        ("timestamp(3)", 93),
        ("date", 91),
        ("year", 12),
        ("char(123)", 1),
        ("varchar(123)", 12),
        ("tinytext", 2005),
        ("text", 2005),
        ("longtext", 2005),
        ("binary", 2004),
        ("varbinary(23)", 2004),
        ("blob", 2004),
        ("tinyblob", 2004),
        ("enum('a','b','c')", 4),
        ("set('a','b','c')", -7),
        ("json", 12),
        ("vector", 12),
        ("geometry", 12),
    ],
)
def test_every_other_type_has_one_sql_type(text: str, number: int) -> None:
    assert sql_type(declared("a", text)) == number
    assert large_sql_type(declared("a", text)) is None


@pytest.mark.parametrize(
    ("text", "name", "full"),
    [
        ("int", "int", "int(11)"),
        ("tinyint", "tinyint", "tinyint(4)"),
        ("smallint", "smallint", "smallint(6)"),
        ("mediumint", "mediumint", "mediumint(9)"),
        ("bigint", "bigint", "bigint(20)"),
        ("tinyint unsigned", "tinyint unsigned", "tinyint(3) unsigned"),
        ("int unsigned", "int unsigned", "int(10) unsigned"),
        ("smallint unsigned", "smallint unsigned", "smallint(5) unsigned"),
        ("mediumint unsigned", "mediumint unsigned", "mediumint(8) unsigned"),
        ("bigint unsigned", "bigint unsigned", "bigint(20) unsigned"),
        ("int(10)", "int", "int(10)"),
        ("tinyint(3)", "tinyint", "tinyint(3)"),
        ("smallint(5)", "smallint", "smallint(5)"),
        ("mediumint(8)", "mediumint", "mediumint(8)"),
        ("bigint(19)", "bigint", "bigint(19)"),
        ("tinyint(3) unsigned", "tinyint unsigned", "tinyint(3) unsigned"),
        ("mediumint(8) unsigned", "mediumint unsigned", "mediumint(8) unsigned"),
        ("bigint(19) unsigned", "bigint unsigned", "bigint(19) unsigned"),
        ("int zerofill", "int unsigned zerofill", "int(10) unsigned zerofill"),
        ("mediumint zerofill", "mediumint unsigned zerofill", "mediumint(8) unsigned zerofill"),
        ("bigint zerofill", "bigint unsigned zerofill", "bigint(20) unsigned zerofill"),
        ("bit", "bit", "bit(1)"),
        ("bit(3)", "bit", "bit(3)"),
        ("bool", "tinyint", "tinyint(1)"),
        ("float", "float", "float"),
        ("double", "double", "double"),
        ("float(10)", "float", "float"),
        ("float(10,3)", "float", "float(10,3)"),
        ("double(20,3)", "double", "double(20,3)"),
        ("float unsigned", "float unsigned", "float unsigned"),
        ("float zerofill", "float unsigned zerofill", "float unsigned zerofill"),
        ("decimal", "decimal", "decimal(10,0)"),
        ("numeric", "decimal", "decimal(10,0)"),
        ("decimal(5)", "decimal", "decimal(5,0)"),
        ("decimal(5,2)", "decimal", "decimal(5,2)"),
        ("decimal zerofill", "decimal unsigned zerofill", "decimal(10,0) unsigned zerofill"),
        ("date", "date", "date"),
        ("time", "time", "time"),
        ("time(6)", "time", "time(6)"),
        ("datetime", "datetime", "datetime"),
        ("datetime(3)", "datetime", "datetime(3)"),
        ("timestamp", "timestamp", "timestamp"),
        ("timestamp(3)", "timestamp", "timestamp(3)"),
        ("year", "year", "year(4)"),
        ("year(4)", "year", "year(4)"),
        ("char", "char", "char(1)"),
        ("varchar(123)", "varchar", "varchar(123)"),
        ("tinytext", "tinytext", "tinytext"),
        ("text", "text", "text"),
        ("mediumtext", "mediumtext", "mediumtext"),
        ("longtext", "longtext", "longtext"),
        ("binary", "binary", "binary(1)"),
        ("varbinary(23)", "varbinary", "varbinary(23)"),
        ("tinyblob", "tinyblob", "tinyblob"),
        ("blob", "blob", "blob"),
        ("mediumblob", "mediumblob", "mediumblob"),
        ("longblob", "longblob", "longblob"),
        ("enum('a','b','c')", "enum", "enum('a','b','c')"),
        ("set('a','b','c')", "set", "set('a','b','c')"),
        ("json", "json", "json"),
        ("vector", "vector", "vector"),
        ("vector(5)", "vector", "vector(5)"),
    ],
)
def test_the_mysql_type_is_plain_or_with_its_length(text: str, name: str, full: str) -> None:
    assert mysql_type(declared("a", text)) == name
    assert full_mysql_type(declared("a", text)) == full
    columns = layout(text)
    assert parsed(insert(None), columns)["mysqlType"] == {"c0": name}
    assert parsed(insert(None), columns, CanalOptions(content_compatible=True))["mysqlType"] == {"c0": full}


def test_a_quote_in_an_element_is_doubled() -> None:
    assert full_mysql_type(Column("a", "enum", elems=("it's", "a\nb"))) == "enum('it''s','a\\nb')"


# Selection, handle keys, order --------------------------------------------------------------------------------------


def test_what_is_not_selected_stands_nowhere_but_in_the_primary_key() -> None:
    columns = Layout((declared("a", "int", pk=True), declared("b", "int"), declared("v", "int", virtual=True),
                      declared("c", "text")))  # fmt: skip
    line = parsed(update([b"1", b"2", b"x"], [b"1", b"2", b"y"]), columns, selected=(1, 2))
    assert line["pkNames"] == ["a"]
    assert line["sqlType"] == {"b": 4, "c": 2005}
    assert line["mysqlType"] == {"b": "int", "c": "text"}
    assert (line["old"], line["data"]) == ([{"b": "2", "c": "x"}], [{"b": "2", "c": "y"}])


def test_a_delete_may_show_its_handle_key_alone() -> None:
    options = CanalOptions(delete_only_handle_key=True)
    columns = Layout(
        (declared("a", "int"), declared("b", "int", nullable=False), declared("c", "text")), unique_keys=(("b",),)
    )
    line = parsed(delete(b"1", b"2", b"x"), columns, options)
    assert (line["sqlType"], line["mysqlType"], line["data"]) == ({"b": 4}, {"b": "int"}, [{"b": "2"}])
    assert parsed(insert(b"1", b"2", b"x"), columns, options)["data"] == [{"a": "1", "b": "2", "c": "x"}]
    (change,) = decode(encoded([delete(b"1", b"2", b"x")], columns, options)[0], columns, options)
    assert change.before == (ABSENT, b"2", ABSENT)


@pytest.mark.parametrize(("columns", "selected"), [(layout("int"), None), (AB, (1,))])
def test_a_delete_without_any_handle_key_column_is_refused(columns: Layout, selected: tuple[int, ...] | None) -> None:
    rows = [delete(*[b"1"] * len(columns.stored))]
    with pytest.raises(BadEvents, match="handle key"):
        encoded(rows, columns, CanalOptions(delete_only_handle_key=True), selected=selected)
    assert len(encoded(rows, columns, selected=selected)) == 1


def test_a_line_without_columns_is_refused() -> None:
    with pytest.raises(BadEvents, match="without columns"):
        encoded([insert()], layout())
    with pytest.raises(BadEvents, match="without columns"):
        encoded([insert(b"1")], A, selected=())


def test_entries_come_in_the_order_asked_for_and_a_slice_is_a_batch() -> None:
    events = [insert(b"%d" % i) if i % 2 else update([b"0"], [b"%d" % i]) if i % 3 else delete(b"%d" % i)
              for i in range(9)]  # fmt: skip
    lines = encoded(events, A)
    order = np.array([8, 0, 3, 3, 1])
    assert encode(batch(events), order, A, DEFAULT, now_ms=NOW).to_pylist() == [lines[i] for i in order]
    sliced = encode(batch(events).slice(3, 4), np.arange(4), A, DEFAULT, now_ms=NOW)
    assert sliced.to_pylist() == lines[3:7]
    assert len(encode(batch(events), np.array([], np.int64), A, DEFAULT)) == 0


def test_every_row_may_have_a_table_of_its_own() -> None:
    events = [insert(b"1", table_name=f"t{i}", schema_name=f"s{i % 7}") for i in range(500)]
    lines = [json.loads(line) for line in encoded(events, A)]
    assert [(line["database"], line["table"]) for line in lines] == [(f"s{i % 7}", f"t{i}") for i in range(500)]


# Events that break their contract -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (insert(b"1"), "test.t, commit-ts 1: the insert has 1 values in `after` but its layout has 2"),
        (event("update", [b"1", b"2"]), "the update has no values in `before`"),
        (event("delete", [b"1", b"2"]), "the delete has no values in `before`"),
        (event("resolved", None), "'resolved'"),
        (insert(b"1", b"2", table_name=None), "has no table_name"),
        (insert(b"1", b"2", commit_ts=None), "has no commit_ts"),
    ],
)
def test_a_row_that_does_not_fit_is_named(bad: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadEvents, match=sentence):
        encoded([insert(b"1", b"2"), bad], AB)


@pytest.mark.parametrize(("kind", "text"), [("double", b"x"), ("int unsigned", b"-1"), ("bigint unsigned", b"1" * 21)])
def test_a_number_that_is_none_is_named_by_its_column(kind: str, text: bytes) -> None:
    with pytest.raises(BadEvents, match="'c0'"):
        encoded([insert(text)], layout(kind))


# Decoding -----------------------------------------------------------------------------------------------------------

GOOD = encoded([insert(b"1", None, commit_ts=TS)], AB, EXTENDED)[0]


def test_a_line_reads_back() -> None:
    assert decode(GOOD, AB, EXTENDED) == [Change("insert", "test", "t", TS, TS >> 18, NOW, None, (b"1", None))]
    assert decode(b"", layout("double"), EXTENDED) == []


def test_without_the_extension_nobody_knows_the_commit_ts() -> None:
    (change,) = decode(encoded([delete(b"1", commit_ts=TS)], A)[0], A, DEFAULT)
    assert change == Change("delete", "test", "t", None, TS >> 18, NOW, (b"1",), None)


def test_lines_of_different_moments_may_stand_in_one_file() -> None:
    lines = [encode(batch([insert(b"1")]), np.arange(1), A, DEFAULT, now_ms=now)[0].as_py() for now in (5, 5, 7)]
    assert [change.ts for change in decode(b"".join(lines), A, DEFAULT)] == [5, 5, 7]


def test_a_byte_that_is_no_utf8_reads_back_as_one_that_is_none_and_stays_an_update() -> None:
    data = encoded([update([b"a\x80"], [b"a\x81"]), update([b"\\ufffd"], ["\ufffd".encode()])], layout("text"), UPDATED)
    first, second = decode(b"".join(data), layout("text"), UPDATED)
    assert (first.before, first.after) == ((b"a\xfe",), (b"a\xff",))
    assert (second.before, second.after) == ((b"\\ufffd",), ("\ufffd".encode(),))


@pytest.mark.parametrize(
    ("written", "broken"),
    [
        (b"\r\n", b""),
        (b"\r\n", b"\n"),
        (b'"id":0', b'"id":1'),
        (b'"id":0', b'"id": 0'),
        (b'"id":0,"database":"test"', b'"database":"test","id":0'),
        (b'"id":0', b'"id":0,"id":0'),
        (b'"sql":""', b'"sql":"","more":1'),
        (b'"INSERT"', b'"insert"'),
        (b'"INSERT"', b'"UPSERT"'),
        (b'"INSERT"', b"7"),
        (b'"database":"test"', b'"database":"\\u0074est"'),
        (b'"database":"test"', b'"database":"\\ud800"'),
        (b'"database":"test"', b'"database":"\xff"'),
        (b'"a":"1"', b'"a":1'),
        (b'"a":"1"', b'"a":"x"'),
        (b'"a":"1"', b'"a":["1"]'),
        (b'"a":"1"', b'"z":"1"'),
        (b'"a":"1","b":null', b'"a":"1"'),
        (b'"a":"1","b":null', b'"b":null,"a":"1"'),
        (b'"b":null', b'"b":null,"c":null'),
        (b'"data":[{', b'"data":[{},{'),
        (b'"old":null', b'"old":[]'),
        (b'"a":-6', b'"a":4'),
        (b'"a":"tinyint"', b'"a":"int"'),
        (b'"commitTs":449995281465737220', b'"commitTs":1'),
        (b'"commitTs":449995281465737220', b'"commitTs":449995281465737220.0'),
        (b'"commitTs":449995281465737220', b'"commitTs":' + b"9" * 30),
        (b'"es":1716595769751', b'"es":' + b"9" * 5000),
        (b'"es":1716595769751', b'"es":true'),
        (b'"_tidb":{"commitTs":449995281465737220}', b'"_tidb":3'),
        (b',"_tidb":{"commitTs":449995281465737220}', b""),
        (b'"pkNames":["a"]', b'"pkNames":[]'),
        (b'"pkNames":["a"]', b'"pkNames":' + b"[" * 100_000),
    ],
)
def test_what_is_no_line_of_the_layout_is_refused(written: bytes, broken: bytes) -> None:
    assert GOOD.count(written) == 1
    with pytest.raises(BadEvents):
        decode(GOOD.replace(written, broken), AB, EXTENDED)


def test_a_refusal_says_which_line() -> None:
    with pytest.raises(BadEvents, match=f"line 2, at byte {len(GOOD)},"):
        decode(GOOD + GOOD.replace(b'"id":0', b'"id":1'), AB, EXTENDED)


# Laws ---------------------------------------------------------------------------------------------------------------

WHOLE = {
    "tinyint": (-128, 127),
    "tinyint unsigned": (0, 255),
    "smallint unsigned": (0, 65535),
    "mediumint unsigned": (0, 2**24 - 1),
    "int": (-(2**31), 2**31 - 1),
    "int unsigned": (0, 2**32 - 1),
    "bigint unsigned": (0, 2**64 - 1),
    "bit(64)": (0, 2**64 - 1),
    "year": (0, 2155),
    "enum('a','<b>')": (0, 2),
    "set('a','b')": (0, 3),
}
TEXTS = ("varchar(9)", "longtext", "json", "decimal(9,2)", "datetime(3)", "vector", "geometry")
BINARIES = ("binary(3)", "varbinary(9)", "mediumblob")
TYPES = (*WHOLE, "float", "double", *TEXTS, *BINARIES)
SPECIALS = '"\\<>&\t\r\n\b\f\x00\x1f\x7f\x80é\u2028\u2029\u2027\ufffd你\U0001f600 ab/u'
texts = st.text(st.sampled_from(SPECIALS), max_size=8).map(str.encode) | st.binary(max_size=8) | st.just(b"plain")
names = st.text(st.sampled_from('ab"\\<é\u2028'), min_size=1, max_size=4)


def values_of(text: str) -> st.SearchStrategy[bytes]:
    if text in WHOLE:
        low, high = WHOLE[text]
        near = [n for n in (127, 128, 32767, 32768, 2**31 - 1, 2**31, 2**63 - 1, 2**63) if n <= high]
        return (st.integers(low, high) | st.sampled_from([low, high, *near])).map(lambda number: b"%d" % number)
    if text in ("float", "double"):
        width: Literal[32, 64] = 32 if text == "float" else 64
        floats = st.floats(allow_nan=False, allow_infinity=False, width=width)
        return (floats | st.sampled_from([0.0, -0.0, 1e6, 1e-7])).map(lambda number: repr(number).encode())
    return texts


@st.composite
def changes(draw: st.DrawFn) -> tuple[list[dict[str, Any]], Layout, tuple[int, ...] | None]:
    kinds = draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=5))
    columns = [declared(f"c{i}" + draw(names), text, pk=i == 0, virtual=i > 0 and draw(st.booleans()))
               for i, text in enumerate(kinds)]  # fmt: skip
    found = Layout(tuple(columns))
    stored = [values_of(text) for text, column in zip(kinds, columns, strict=True) if not column.virtual]
    rows = st.tuples(*(st.none() | values for values in stored)).map(list)
    selected = (
        draw(st.none() | st.sets(st.sampled_from(range(1, len(stored))), max_size=3)) if len(stored) > 1 else None
    )
    tables = draw(st.lists(st.tuples(names, names), min_size=1, max_size=3))

    def one(kind: str) -> dict[str, Any]:
        schema, table = draw(st.sampled_from(tables))
        before = draw(rows)
        after = [draw(st.sampled_from([old, new])) for old, new in zip(before, draw(rows), strict=True)]
        more = {"schema_name": schema, "table_name": table, "commit_ts": draw(st.integers(0, 2**63 - 1))}
        return event(kind, None if kind == "delete" else after, None if kind == "insert" else before, **more)

    listed = draw(st.lists(st.sampled_from(["insert", "update", "delete"]), max_size=6))
    return [one(kind) for kind in listed], found, None if selected is None else (0, *sorted(selected))


canal_options = st.builds(
    CanalOptions,
    terminator=st.sampled_from(["\r\n", "\n", "", "}", '"']),
    tidb_extension=st.booleans(),
    only_updated_columns=st.booleans(),
    content_compatible=st.booleans(),
    delete_only_handle_key=st.booleans(),
)


def in_json(text: bytes) -> bytes:
    """A JSON string, character by character."""
    short = {"\t": "\\t", "\r": "\\r", "\n": "\\n", "\\": "\\\\", '"': '\\"', "\u2028": "\\u2028", "\u2029": "\\u2029"}
    out = ""
    for char in text.decode("utf-8", "surrogateescape"):
        if "\udc80" <= char <= "\udcff":
            out += "\\ufffd"
        elif char < " " or char in "<>&":
            out += short.get(char, f"\\u{ord(char):04x}")
        else:
            out += short.get(char, char)
    return f'"{out}"'.encode()


def printed(text: bytes | None, column: Column) -> bytes | None:
    """What a value says, as UTF-8."""
    if text is None or column.type not in ("float", "double"):
        return text.decode("latin-1").encode() if text is not None and column.is_bytes else text
    number = str(np.float32(text.decode()) if column.type == "float" else float(text))
    return format(Decimal(number), "f").removesuffix(".0").encode()


def plain_object(members: list[tuple[Column, bytes]]) -> bytes:
    keys = [in_json(column.name.encode()) for column, _ in members]
    return b"{" + b",".join(key + b":" + text for key, (_, text) in zip(keys, members, strict=True)) + b"}"


def plain_line(one: dict[str, Any], columns: Layout, options: CanalOptions, selected: tuple[int, ...] | None) -> bytes:
    """One line, written the slow and obvious way."""
    kind = one["kind"]
    places = list(range(len(columns.stored)) if selected is None else selected)
    if kind == "delete" and options.delete_only_handle_key:
        places = [i for i in places if columns.stored[i].pk]
    shown = [columns.stored[i] for i in places]
    sides = {
        side: one[side] and [printed(one[side][i], columns.stored[i]) for i in places] for side in ("before", "after")
    }
    data = sides["before" if kind == "delete" else "after"]
    name = full_mysql_type if options.content_compatible else mysql_type
    old = b"null"
    if kind == "update":
        pairs = list(zip(shown, sides["before"], data, strict=True))
        if options.only_updated_columns or options.content_compatible:
            pairs = [pair for pair in pairs if pair[1] != pair[2]]
        old = b"[" + plain_object([(column, plain_text(text)) for column, text, _ in pairs]) + b"]"
    keys = b",".join(in_json(column.name.encode()) for column in columns.columns if column.pk)
    fields = [
        b'"id":0',
        b'"database":' + in_json(one["schema_name"].encode()),
        b'"table":' + in_json(one["table_name"].encode()),
        b'"pkNames":[' + keys + b"]",
        b'"isDdl":false',
        b'"type":' + in_json(kind.upper().encode()),
        b'"es":%d' % (one["commit_ts"] >> 18),
        b'"ts":%d' % NOW,
        b'"sql":""',
        b'"sqlType":' + plain_object([(c, b"%d" % plain_type(c, text)) for c, text in zip(shown, data, strict=True)]),
        b'"mysqlType":' + plain_object([(column, in_json(name(column).encode())) for column in shown]),
        b'"old":' + old,
        b'"data":[' + plain_object([(c, plain_text(text)) for c, text in zip(shown, data, strict=True)]) + b"]",
    ]
    if options.tidb_extension:
        fields.append(b'"_tidb":{"commitTs":%d}' % one["commit_ts"])
    return b"{" + b",".join(fields) + b"}" + options.terminator.encode()


def plain_text(text: bytes | None) -> bytes:
    return b"null" if text is None else in_json(text)


def plain_type(column: Column, text: bytes | None) -> int:
    large = large_sql_type(column)
    return large.sql_type if large and text is not None and int(text) > large.most else sql_type(column)


@given(changes(), canal_options, st.randoms(use_true_random=False))
def test_encoding_equals_the_plain_model_in_any_order(
    found: tuple[list[dict[str, Any]], Layout, tuple[int, ...] | None], options: CanalOptions, random: Any
) -> None:
    events, columns, selected = found
    order = [random.randrange(len(events)) for _ in events]
    entries = encode(batch(events), np.array(order, np.int64), columns, options, selected, NOW)
    entries.validate(full=True)
    assert entries.to_pylist() == [plain_line(events[i], columns, options, selected) for i in order]


def canonical(text: bytes | None, column: Column) -> bytes | None:
    """A value as decoding gives it back."""
    if text is None or column.is_bytes:
        return text
    if column.type in ("float", "double"):
        return in_go(np.float32(text.decode()) if column.type == "float" else np.float64(text.decode()))
    return re.sub("[\udc80-\udcff]", "\udcff", text.decode("utf-8", "surrogateescape")).encode(
        "utf-8", "surrogateescape"
    )


def in_go(number: Any) -> bytes:
    """`1e+06`, `0.0001`: Go's `%v`, with an exponent below 1e-4 and from 1e6 on."""
    sign, digits, exponent = Decimal(str(number)).normalize().as_tuple()
    assert isinstance(exponent, int)
    point = len(digits) + exponent - 1 if number else 0
    text = "".join(map(str, digits))
    if -4 <= point < 6:
        return format(Decimal(str(number)).normalize(), "f").encode()
    fraction = "." + text[1:] if len(text) > 1 else ""
    return f"{'-' * sign}{text[0]}{fraction}e{'+' if point >= 0 else '-'}{abs(point):02d}".encode()


def change_of(one: dict[str, Any], columns: Layout, options: CanalOptions, selected: tuple[int, ...] | None) -> Change:
    """What an event says, without any text form."""
    places = list(range(len(columns.stored)) if selected is None else selected)

    def row(side: str) -> tuple[Value, ...] | None:
        return one[side] and tuple(canonical(one[side][i], columns.stored[i]) for i in places)

    before, after = row("before"), row("after")
    if one["kind"] == "delete" and options.delete_only_handle_key and before is not None:
        before = tuple(text if columns.stored[i].pk else ABSENT for i, text in zip(places, before, strict=True))
    ts = one["commit_ts"]
    stamps = (ts if options.tidb_extension else None, ts >> 18, NOW)
    return Change(one["kind"], one["schema_name"], one["table_name"], *stamps, before, after)


def with_one_bad_byte(change: Change) -> Change:
    """Bad bytes that differ read back as different ones, but which ones nobody can tell."""
    return change._replace(before=change.before and tuple(
        text.replace(b"\xfe", b"\xff") if isinstance(text, bytes) else text for text in change.before))  # fmt: skip


@given(changes(), canal_options)
def test_decoding_undoes_encoding(
    found: tuple[list[dict[str, Any]], Layout, tuple[int, ...] | None], options: CanalOptions
) -> None:
    events, columns, selected = found
    data = b"".join(encoded(events, columns, options, selected=selected))
    expected = [with_one_bad_byte(change_of(one, columns, options, selected)) for one in events]
    assert [with_one_bad_byte(change) for change in decode(data, columns, options, selected)] == expected


def event_of(change: Change, columns: Layout, selected: tuple[int, ...] | None) -> dict[str, Any]:
    """An event that is written as the change's line."""

    def stored(row: tuple[Value, ...] | None) -> Row | None:
        known = dict(zip(range(len(row)) if selected is None else selected, row, strict=True)) if row else {}
        values = [known.get(i) for i in range(len(columns.stored))]
        return [value if isinstance(value, bytes) else None for value in values] if row else None

    ts = change.es << 18 if change.commit_ts is None else change.commit_ts
    more = {"schema_name": change.schema, "table_name": change.table, "commit_ts": ts}
    return event(change.kind, stored(change.after), stored(change.before), **more)


@given(changes(), canal_options, st.data())
def test_damaged_data_are_refused_or_say_exactly_what_they_read_as(
    found: tuple[list[dict[str, Any]], Layout, tuple[int, ...] | None], options: CanalOptions, data: st.DataObject
) -> None:
    events, columns, selected = found
    damaged = bytearray(b"".join(encoded(events, columns, options, selected=selected)))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(damaged)))
        width = data.draw(st.integers(0, 2))
        piece = st.sampled_from(
            [b"", b'"', b"\\", b",", b"{", b"}", b"0", b"1", b" ", b"null", b"\\ufffd", b"\xff", b"\r\n"]
        )
        damaged[at : at + width] = data.draw(piece | st.binary(max_size=2))
    try:
        read = decode(bytes(damaged), columns, options, selected)
    except BadEvents:
        return
    again = b"".join(
        encode(batch([event_of(one, columns, selected)]), np.arange(1), columns, options, selected, one.ts)[0].as_py()
        for one in read
    )
    assert again == damaged
