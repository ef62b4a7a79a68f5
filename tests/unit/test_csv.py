"""CSV: exact lines, encode against a plain model, decode as its inverse, and events that break their contract."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import BadEvents, BadSetting
from tidegate.events import EVENTS
from tidegate.format.decode.csv import Line, decode
from tidegate.format.encode.csv import CsvOptions, encode, header
from tidegate.format.tables import Column, Layout

Values = list[bytes | None]
TS = 435661838416609281
DEFAULT = CsvOptions()
LF = CsvOptions(terminator="\n")
LF_TS = CsvOptions(terminator="\n", include_commit_ts=True)


def event(kind: str, after: Values | None, before: Values | None = None, **more: Any) -> dict[str, Any]:
    known = {"schema_name": "test", "table_name": "t", "commit_ts": TS, "seq": 0}
    return {"kind": kind, "after": after, "before": before} | known | more


def insert(*values: bytes | None, **more: Any) -> dict[str, Any]:
    return event("insert", list(values), **more)


def update(before: Values, after: Values, **more: Any) -> dict[str, Any]:
    return event("update", after, before, **more)


def delete(*values: bytes | None, **more: Any) -> dict[str, Any]:
    return event("delete", None, list(values), **more)


def batch(events: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(events, EVENTS)


ELEMS = {"enum": ("a,", "b", '"c"', "d\\\n", ""), "set": ("x", "y", 'z"', "\\")}


def layout(*types: str) -> Layout:
    columns = [
        Column(f"c{i}", kind.removeprefix("binary "), binary=kind.startswith("binary "), elems=ELEMS.get(kind, ()))
        for i, kind in enumerate(types)
    ]
    return Layout(tuple(columns))


def encoded(
    events: list[dict[str, Any]],
    columns: Layout,
    options: CsvOptions = DEFAULT,
    selected: tuple[int, ...] | None = None,
) -> list[bytes]:
    found = encode(batch(events), np.arange(len(events)), columns, options, selected)
    found.validate(full=True)
    return list(found.to_pylist())


TEXT, TEXTS = layout("varchar"), layout("varchar", "varchar")


# Exact lines --------------------------------------------------------------------------------------------------------


def test_defaults_are_quoted_crlf_lines_with_a_bare_null() -> None:
    line = encoded([insert(b"1", None, b'x"y')], layout("int", "varchar", "varchar"))
    assert line == [b'"I","t","test",1,\\N,"x""y"\r\n']


@pytest.mark.parametrize(
    ("text", "quoted"),
    [(b"a,b,c", b'"a,b,c"'), (b'"a,b,c', b'"""a,b,c"'), (b"", b'""'), (b"\\N", b'"\\N"'), (b'""', b'""""""')],
)
def test_quotes_inside_a_text_are_doubled_and_nothing_else_is_touched(text: bytes, quoted: bytes) -> None:
    assert encoded([insert(text)], TEXT) == [b'"I","t","test",' + quoted + b"\r\n"]


@pytest.mark.parametrize(
    ("delimiter", "text", "escaped"),
    [
        (",", b"abc\\def", b"abc\\\\def"),
        (",", b"abc\rdef", b"abc\\rdef"),
        (",", b"abc\ndef", b"abc\\ndef"),
        (",", b"abc,def", b"abc\\,def"),
        ("***", b"abc***def", b"abc\\*\\*\\*def"),
        ("***", b"abc****d**", b"abc\\*\\*\\**d**"),
        ("?", b"abc\\def?ghi\\r\\n", b"abc\\\\def\\?ghi\\\\r\\\\n"),
        ("n", b"n\n", b"\\n\\n"),
        ("\\", b"a\\b", b"a\\\\b"),
        ("\\,", b"a\\\\,b,\\", b"a\\\\\\\\\\,b,\\\\"),
        ("a\\", b"aa\\\\a\\", b"a\\a\\\\\\\\\\a\\\\"),
        ("é", "xéy".encode(), b"x\\\xc3\\\xa9y"),
    ],
)
def test_without_a_quote_a_text_is_escaped_by_backslashes(delimiter: str, text: bytes, escaped: bytes) -> None:
    options = CsvOptions(quote="", delimiter=delimiter)
    lead = delimiter.encode().join([b"I", b"x", b"y", b""])
    assert encoded([insert(text, table_name="x", schema_name="y")], TEXT, options) == [lead + escaped + b"\r\n"]


@pytest.mark.parametrize(
    ("one", "columns", "options", "line"),
    [
        pytest.param(
            insert(b"123", b"hello,world", table_name="table1"),
            layout("int", "varchar"),
            LF_TS,
            b'"I","table1","test",435661838416609281,123,"hello,world"\n',
            id="typical",
        ),
        pytest.param(
            update([b"", b""], [b"a!b!c", b"def"], table_name="table2"),
            TEXTS,
            replace(LF_TS, delimiter="!", quote=""),
            b"U!table2!test!435661838416609281!a\\!b\\!c!def\n",
            id="one-byte delimiter without quote",
        ),
        pytest.param(
            insert(b"a!b!c", b"def", table_name="table2"),
            TEXTS,
            replace(LF_TS, delimiter="!", quote="", output_old_value=True),
            b"I!table2!test!435661838416609281!false!a\\!b\\!c!def\n",
            id="an insert is no update",
        ),
        pytest.param(
            event("update", [b"a,b,c", b"def", b"2022-08-31 17:07:00"], table_name="table3"),
            layout("varchar", "varchar", "datetime"),
            LF_TS,
            b'"U","table3","test",435661838416609281,"a,b,c","def","2022-08-31 17:07:00"\n',
            id="an update without old row",
        ),
        pytest.param(
            delete(b"a[*]b[*]c", b"def", table_name="table4"),
            TEXTS,
            CsvOptions(delimiter="[*]", quote=""),
            b"D[*]table4[*]test[*]a\\[\\*\\]b\\[\\*\\]c[*]def\r\n",
            id="three-byte delimiter without quote",
        ),
        pytest.param(
            insert(b"a[*]b[*]c", b"def", None, b"12345.678", table_name="table5"),
            layout("varchar", "varchar", "varchar", "double"),
            replace(LF, delimiter="[*]", quote="'"),
            b"'I'[*]'table5'[*]'test'[*]'a[*]b[*]c'[*]'def'[*]\\N[*]12345.678\n",
            id="three-byte delimiter with single quotes",
        ),
        pytest.param(
            event("update", [b"a\\b\\c", b"def\n"], table_name="table6"),
            TEXTS,
            replace(LF_TS, quote=""),
            b"U,table6,test,435661838416609281,a\\\\b\\\\c,def\\n\n",
            id="backslash and newline without quote",
        ),
        pytest.param(
            insert(b"\\", b"\\\r", b"\\\\", table_name="table7"),
            layout("varchar", "varchar", "varchar"),
            replace(LF, quote="'"),
            b"'I','table7','test','\\','\\\r','\\\\'\n",
            id="backslash and return between quotes",
        ),
        pytest.param(
            delete(b"a\tb", b"123.456", "你好，世界".encode(), table_name="table8"),
            layout("varchar", "double", "varchar"),
            replace(LF_TS, delimiter="\t"),
            '"D"\t"table8"\t"test"\t435661838416609281\t"a\tb"\t123.456\t"你好，世界"\n'.encode(),
            id="tab and other scripts",
        ),
        pytest.param(
            update([b"1", b"example1"], [b"1", b"example2"], table_name="update_pk", commit_ts=450253245485940746),
            layout("int", "varchar"),
            replace(LF_TS, output_old_value=True),
            b'"D","update_pk","test",450253245485940746,true,1,"example1"\n'
            b'"I","update_pk","test",450253245485940746,true,1,"example2"\n',
            id="an update with its old row is two lines",
        ),
        pytest.param(
            update([b"a!b!c", b"abc"], [b"a!b!c", b"def"], table_name="table2"),
            TEXTS,
            replace(LF_TS, delimiter="!", quote="", output_old_value=True),
            b"D!table2!test!435661838416609281!true!a\\!b\\!c!abc\nI!table2!test!435661838416609281!true!a\\!b\\!c!def\n",
            id="the same without quote",
        ),
    ],
)
def test_a_line_has_this_exact_text(one: dict[str, Any], columns: Layout, options: CsvOptions, line: bytes) -> None:
    assert encoded([one], columns, options) == [line]


def test_an_update_and_a_delete_with_old_rows_and_no_commit_ts() -> None:
    events = [update([b"1", b"old"], [b"1", b"new"]), delete(b"2", b"gone")]
    assert encoded(events, layout("int", "varchar"), replace(LF, output_old_value=True)) == [
        b'"D","t","test",true,1,"old"\n"I","t","test",true,1,"new"\n',
        b'"D","t","test",false,2,"gone"\n',
    ]


@pytest.mark.parametrize(
    ("kind", "text", "shown"),
    [
        *[(kind, b"1", b"1") for kind in ("tinyint", "smallint", "mediumint", "int", "bigint")],
        ("bigint", b"18446744073709551615", b"18446744073709551615"),
        ("float", b"3.14", b"3.14"),
        ("double", b"1.234567e+06", b"1.234567e+06"),
        ("double", b"1234567.0", b"1.234567e+06"),
        ("float", b"16777216", b"1.6777216e+07"),
        ("double", b"16777216.50", b"1.67772165e+07"),
        ("double", b"-0", b"-0"),
        ("bit", b"683", b"683"),
        ("year", b"1970", b"1970"),
        ("decimal", b"129012.1230000", b'"129012.1230000"'),
        *[(kind, b"hello world", b'"hello world"') for kind in ("mediumtext", "longtext", "varchar", "var_string")],
        *[
            (f"binary {kind}", b"hello world", b'"aGVsbG8gd29ybGQ="')
            for kind in ("tinytext", "mediumtext", "text", "longtext", "varchar", "var_string", "char")
        ],
        ("enum", b"1", b'"a,"'),
        ("enum", b"3", b'"""c"""'),
        ("set", b"0", b'""'),
        ("set", b"7", b'"x,y,z"""'),
        ("date", b"2000-01-01", b'"2000-01-01"'),
        ("datetime", b"0000-00-00 00:00:00", b'"0000-00-00 00:00:00"'),
        ("timestamp", b"1973-12-30 15:30:00", b'"1973-12-30 15:30:00"'),
        ("time", b"-838:59:59.000", b'"-838:59:59.000"'),
        ("time", b"05:06:07", b'"05:06:07"'),
        ("datetime", b"2015-12-20 23:58:58", b'"2015-12-20 23:58:58"'),
        (
            "json",
            b'{"a": [true, null, 1.0, "x"], "b": 1}',
            b'"{""a"": [true, null, 1.0, ""x""], ""b"": 1}"',
        ),
        ("vector", b"[1,0.5,10000000000]", b'"[1,0.5,10000000000]"'),
    ],
)
def test_numbers_stand_bare_and_every_other_type_is_quoted(kind: str, text: bytes, shown: bytes) -> None:
    assert encoded([insert(text), insert(None)], layout(kind)) == [
        b'"I","t","test",' + shown + b"\r\n",
        b'"I","t","test",\\N\r\n',
    ]


def test_binary_values_can_be_hex() -> None:
    line = encoded([insert(b"hello world", None, b"")], layout(*["binary text"] * 3), CsvOptions(binary_encoding="hex"))
    assert line == [b'"I","t","test","68656c6c6f20776f726c64",\\N,""\r\n']


def test_base64_text_is_not_escaped_by_accident_when_the_quote_is_one_of_its_letters() -> None:
    line = encoded([insert(b"hello world")], layout("binary text"), CsvOptions(quote="G"))
    assert line == [b"GIG,GtG,GtestG,GaGGVsbGG8gd29ybGGQ=G\r\n"]


def test_an_op_is_a_text_like_any_other() -> None:
    assert encoded([insert(b"1")], layout("int"), CsvOptions(quote="I")) == [b"IIII,ItI,ItestI,1\r\n"]
    assert encoded([insert(b"1")], layout("int"), CsvOptions(quote="", delimiter="I")) == [b"\\IItItestI1\r\n"]


def test_numbers_flags_and_null_are_never_quoted_or_escaped() -> None:
    options = CsvOptions(quote="", delimiter="1", null="1\\", terminator="", output_old_value=True)
    assert encoded([insert(b"11", None)], layout("int", "varchar"), options) == [b"I1t1test1false11111\\"]


def test_a_quote_in_a_name_is_doubled() -> None:
    assert encoded([insert(b"1", schema_name='a"b', table_name='"')], layout("int")) == [b'"I","""","a""b",1\r\n']


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            CsvOptions(delimiter=" ", terminator="", include_commit_ts=True, output_field_header=True),
            b"ticdc-meta$operation ticdc-meta$table ticdc-meta$schema ticdc-meta$commit-ts col1 col2",
        ),
        (
            CsvOptions(terminator="", output_field_header=True),
            b"ticdc-meta$operation,ticdc-meta$table,ticdc-meta$schema,col1,col2",
        ),
        (
            CsvOptions(terminator="\n", output_field_header=True),
            b"ticdc-meta$operation,ticdc-meta$table,ticdc-meta$schema,col1,col2\n",
        ),
        (
            CsvOptions(output_old_value=True, output_field_header=True),
            b"ticdc-meta$operation,ticdc-meta$table,ticdc-meta$schema,ticdc-meta$is-update,col1,col2\r\n",
        ),
        (DEFAULT, b""),
    ],
)
def test_the_header_names_what_a_line_holds(options: CsvOptions, line: bytes) -> None:
    columns = (Column("col1", "int"), Column("hidden", "int", virtual=True), Column("col2", "int"))
    assert header(Layout(columns), options) == line


def test_virtual_columns_have_no_value_in_any_line() -> None:
    columns = Layout((Column("a", "int"), Column("v", "int", virtual=True), Column("b", "int")))
    assert encoded([insert(b"1", b"2")], columns) == [b'"I","t","test",1,2\r\n']


def test_the_documented_example_has_these_bytes() -> None:
    orders = Layout(
        (
            Column("id", "int", pk=True),
            Column("note", "varchar"),
            Column("price", "double"),
            Column("state", "enum", elems=("new", "paid")),
            Column("tags", "set", elems=("a", "b", "c")),
            Column("photo", "text", binary=True),
        )
    )
    first: Values = [b"7", b'a "b"', b"1500000.50", b"1", b"5", b"\0\1"]
    second: Values = [b"7", None, b"0.5", b"2", b"0", b"\0\1"]
    where = {"schema_name": "shop", "table_name": "orders"}
    events = [insert(*first, **where), update(first, second, **where), delete(*second, **where)]
    assert encoded(events, orders) == [
        b'"I","orders","shop",7,"a ""b""",1.5000005e+06,"new","a,c","AAE="\r\n',
        b'"U","orders","shop",7,\\N,0.5,"paid","","AAE="\r\n',
        b'"D","orders","shop",7,\\N,0.5,"paid","","AAE="\r\n',
    ]
    assert encoded(events, orders, CsvOptions(quote="", delimiter="|", binary_encoding="hex")) == [
        b'I|orders|shop|7|a "b"|1.5000005e+06|new|a,c|0001\r\n',
        b"U|orders|shop|7|\\N|0.5|paid||0001\r\n",
        b"D|orders|shop|7|\\N|0.5|paid||0001\r\n",
    ]


# Selected columns ---------------------------------------------------------------------------------------------------

SECRET = Layout(
    (Column("id", "int"), Column("v", "int", virtual=True), Column("visible", "varchar"), Column("s", "text"))
)


def test_a_column_selector_hides_values_in_every_line_and_in_the_header() -> None:
    events = [
        update([b"1", b"visible-before", b"secret-before"], [b"1", b"visible-after", b"secret-after"]),
        delete(b"2", b"delete-visible", b"delete-secret"),
    ]
    assert encoded(events, SECRET, replace(LF, output_old_value=True), (0, 1)) == [
        b'"D","t","test",true,1,"visible-before"\n"I","t","test",true,1,"visible-after"\n',
        b'"D","t","test",false,2,"delete-visible"\n',
    ]
    assert header(SECRET, replace(LF, output_field_header=True), (0, 2)).endswith(b"$schema,id,s\n")


def test_a_line_of_selected_columns_reads_back() -> None:
    data = b'"I","t","test",433305438660591626,1,"visible-value"\n'
    assert decode(data, SECRET, LF_TS, (0, 1))[0].values == (b"1", b"visible-value")
    with pytest.raises(BadEvents, match="not a line of 3 columns"):
        decode(data, SECRET, LF_TS)


def test_a_bad_value_in_a_hidden_column_does_no_harm() -> None:
    assert encoded([insert(b"7", b"0")], layout("int", "enum"), DEFAULT, (0,)) == [b'"I","t","test",7\r\n']


def test_a_selector_that_leaves_no_column_is_refused() -> None:
    with pytest.raises(BadEvents, match="none selected"):
        encoded([insert(b"1")], layout("int"), DEFAULT, ())
    with pytest.raises(BadEvents, match="none selected"):
        decode(b'"I","t","s"\r\n', layout("int"), DEFAULT, ())


# Order, slices, many tables -----------------------------------------------------------------------------------------


def test_entries_come_in_the_order_asked_for() -> None:
    rows = batch([insert(b"%d" % i, table_name=f"t{i % 2}") for i in range(5)])
    lines = encode(rows, np.array([4, 0, 2, 0]), layout("int"), DEFAULT).to_pylist()
    assert lines == [b'"I","t0","test",%d\r\n' % i for i in (4, 0, 2, 0)]


def test_no_rows_are_no_entries() -> None:
    assert len(encode(batch([]), np.array([], np.int64), TEXT, DEFAULT)) == 0
    assert len(encode(batch([insert(b"x")]), np.array([], np.int64), TEXT, DEFAULT)) == 0


def test_a_slice_of_a_batch_is_encoded_like_a_batch_of_its_own() -> None:
    events = [insert(b"%d" % i, None if i % 3 else b'"') if i % 2 else delete(b"%d" % i, b"x") for i in range(9)]
    columns = layout("int", "varchar")
    sliced = encode(batch(events).slice(3, 4), np.arange(4), columns, DEFAULT).to_pylist()
    assert sliced == encoded(events, columns)[3:7]


def test_kinds_may_be_mixed_and_each_takes_its_own_side() -> None:
    events = [insert(b"1"), delete(b"2"), update([b"3"], [b"4"]), delete(b"5"), insert(b"6")]
    lines = encoded(events, layout("int"))
    assert [line.replace(b',"t","test"', b"") for line in lines] == [
        b'"I",1\r\n',
        b'"D",2\r\n',
        b'"U",4\r\n',
        b'"D",5\r\n',
        b'"I",6\r\n',
    ]


def test_every_row_may_have_a_table_of_its_own() -> None:
    events = [insert(b"1", table_name=f"t{i}", schema_name=f"s{i % 7}") for i in range(1000)]
    assert encoded(events, layout("int")) == [b'"I","t%d","s%d",1\r\n' % (i, i % 7) for i in range(1000)]


def test_a_column_without_anything_special_is_shown_as_it_is_among_columns_that_have_some() -> None:
    columns = layout("json", "varchar", "date", "text", "int")
    events = [insert(b'{"a": 1}', b"x", b"2000-01-01", b'"' if i == 4999 else b"y", b"1") for i in range(5000)]
    lines = encoded(events, columns)
    assert set(lines[:-1]) == {b'"I","t","test","{""a"": 1}","x","2000-01-01","y",1\r\n'}
    assert lines[-1] == b'"I","t","test","{""a"": 1}","x","2000-01-01","""",1\r\n'
    twice = encode(batch(events[-2:]), np.array([1, 0, 1]), columns, DEFAULT).to_pylist()
    assert twice == [lines[-1], lines[-2], lines[-1]]


# Events that break their contract -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (insert(b"1"), f"test.t, commit-ts {TS}: the insert has 1 values in `after` but its layout has 2"),
        (
            insert(b"1", b"2", b"3"),
            f"test.t, commit-ts {TS}: the insert has 3 values in `after` but its layout has 2",
        ),
        (event("insert", None), f"test.t, commit-ts {TS}: the insert has no values in `after` but its layout has 2"),
        (event("update", None, [b"1", b"2"]), "the update has no values in `after`"),
        (event("delete", [b"1", b"2"]), "the delete has no values in `before`"),
        (delete(b"1"), "the delete has 1 values in `before`"),
    ],
)
def test_a_row_that_does_not_fit_its_layout_is_named(bad: dict[str, Any], sentence: str) -> None:
    good = [insert(b"1", b"2", table_name="good"), delete(b"1", b"2", table_name="good")]
    with pytest.raises(BadEvents, match=sentence):
        encoded([*good, bad], layout("int", "int"))


def test_an_update_without_its_old_row_matters_only_when_old_rows_are_shown() -> None:
    one = event("update", [b"1"])
    assert encoded([one], layout("int")) == [b'"U","t","test",1\r\n']
    with pytest.raises(BadEvents, match="the update has no values in `before`"):
        encoded([one], layout("int"), CsvOptions(output_old_value=True))


def test_two_wrong_counts_that_add_up_are_still_found() -> None:
    with pytest.raises(BadEvents, match="has 1 values"):
        encoded([insert(b"1"), insert(b"1", b"2", b"3")], layout("int", "int"))


@pytest.mark.parametrize("name", ["schema_name", "table_name"])
def test_a_missing_name_is_named(name: str) -> None:
    with pytest.raises(BadEvents, match=f"commit-ts {TS} has no {name}"):
        encoded([insert(b"1"), insert(b"1", **{name: None})], layout("int"))


def test_a_commit_ts_must_be_there_to_be_shown() -> None:
    assert encoded([insert(b"1", commit_ts=None)], layout("int")) == [b'"I","t","test",1\r\n']
    with pytest.raises(BadEvents, match="without commit-ts"):
        encoded([insert(b"1", commit_ts=None)], layout("int"), LF_TS)


def test_an_event_that_is_no_row_is_refused() -> None:
    with pytest.raises(BadEvents, match="'resolved'"):
        encoded([insert(b"1"), event("resolved", None)], layout("int"))


@pytest.mark.parametrize(
    ("kind", "value", "sentence"),
    [
        ("enum", b"0", "the value is not the number of an element; they are 1 to 5"),
        ("enum", b"6", "the value is not the number of an element"),
        ("enum", b"b", "the value is not an unsigned 64-bit number"),
        ("set", b"16", "the mask has a bit beyond the 4 elements"),
        ("set", b"-1", "the value is not an unsigned 64-bit number"),
        ("double", b"1e400", "the value is beyond the largest 64-bit float"),
        ("float", b"x", "the value is not a 32-bit float"),
    ],
)
def test_a_value_that_its_column_cannot_have_is_named(kind: str, value: bytes, sentence: str) -> None:
    good = [insert(b"1", table_name="good"), insert(None, table_name="good")]
    with pytest.raises(BadEvents, match=f"test.t, commit-ts {TS}, column 'c0': {sentence}"):
        encoded([*good, insert(value)], layout(kind))


def test_a_layout_without_columns_is_refused() -> None:
    with pytest.raises(BadEvents, match="without stored columns"):
        encoded([insert()], layout())


@pytest.mark.parametrize(
    "options",
    [
        {"quote": "***"},
        {"quote": "\n"},
        {"delimiter": "\r", "quote": "'"},
        {"delimiter": "'", "quote": "'"},
        {"delimiter": "FE", "quote": "E"},
        {"delimiter": ""},
        {"delimiter": "||||"},
        {"binary_encoding": "invalid"},
    ],
)
def test_options_that_make_no_readable_file_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(BadSetting):
        CsvOptions(**options)  # type: ignore[arg-type]


# Decoding -----------------------------------------------------------------------------------------------------------

EMPLOYEES = layout("int", "varchar", "varchar", "date", "varchar")


def test_a_file_of_five_lines_reads_back() -> None:
    data = (
        b'"I","employee","hr",433305438660591626,101,"Smith","Bob","2014-06-04","New York"\n'
        b'"U","employee","hr",433305438660591627,101,"Smith","Bob","2015-10-08","Los Angeles"\n'
        b'"D","employee","hr",433305438660591629,101,"Smith","Bob","2017-03-13","Dallas"\n'
        b'"I","employee","hr",433305438660591630,102,"Alex","Alice","2017-03-14","Shanghai"\n'
        b'"U","employee","hr",433305438660591630,102,"Alex","Alice","2018-06-15",\\N\n'
    )
    lines = decode(data, EMPLOYEES, LF_TS)
    assert [line.op for line in lines] == ["I", "U", "D", "I", "U"]
    values = (b"101", b"Smith", b"Bob", b"2014-06-04", b"New York")
    assert lines[0] == Line("I", "employee", "hr", 433305438660591626, None, values)
    assert lines[4].values[-1] is None


@pytest.mark.parametrize(
    "data",
    [
        b'"D","employee","hr"\n',
        b'"D","employee","hr","hello world"\n',
        b'"I","t","s",7,1,"a","b","c"\n',
        b'"I","t","s",7,1,"a","b","c","d","e"\n',
        b'"I","t","s",7,1,"a","b","c","d"',
        b'"I","t","s",7,1,"a","b","c","d\n',
        b'"I","t","s",7,1,"a"x,"b","c","d"\n',
        b'"X","t","s",7,1,"a","b","c","d"\n',
        b'"I","t","s",7,1,"a","b","c","d"\n\n',
        b"\x00\xff",
    ],
)
def test_what_is_no_line_of_the_layout_is_refused(data: bytes) -> None:
    with pytest.raises(BadEvents):
        decode(data, EMPLOYEES, LF_TS)


def test_a_refusal_says_which_line() -> None:
    with pytest.raises(BadEvents, match="line 3, at byte 17, is not a line of 1 columns"):
        decode(b"I,t,s,1\nI,t,s,22\nbroken\n", layout("int"), replace(LF, quote=""))


def test_a_quoted_null_text_is_a_text() -> None:
    assert decode(b'"I","t","s","\\N"\r\n"I","t","s",\\N\r\n', TEXT, DEFAULT)[0].values == (b"\\N",)
    assert decode(b'"I","t","s",\\N\r\n', TEXT, DEFAULT)[0].values == (None,)


def test_a_file_must_begin_with_its_header() -> None:
    options = CsvOptions(output_field_header=True)
    data = header(TEXT, options) + b'"I","t","s","x"\r\n'
    assert len(decode(data, TEXT, options)) == 1
    with pytest.raises(BadEvents, match="header"):
        decode(b'"I","t","s","x"\r\n', TEXT, options)


@pytest.mark.parametrize(
    ("kind", "field", "sentence"),
    [
        ("binary text", b'"a"', "'c0' is not base64 text"),
        ("binary text", b'"aGV="', "is not base64 text as encoding writes it"),
        ("double", b"3.140", "b'3.140' is not the shortest form"),
        ("double", b"1000000", "b'1000000' is not the shortest form"),
        ("double", b"1e+400", "beyond the largest"),
        ("double", b"e", "is not a 64-bit float"),
        ("int", b"1.5", "not a line of 1 columns"),
        ("int", b"", "not a line of 1 columns"),
        ("enum", b'"e"', "is not an element of the enum"),
        ("set", b'"y,x"', "is not a list of elements"),
        ("set", b'"x,x"', "is not a list of elements"),
        ("set", b'"x,"', "is not a list of elements"),
    ],
)
def test_a_value_that_encoding_never_writes_is_refused(kind: str, field: bytes, sentence: str) -> None:
    with pytest.raises(BadEvents, match=sentence):
        decode(b'"I","t","s",' + field + b"\r\n", layout(kind), DEFAULT)


@pytest.mark.parametrize("field", [b"\\a", b"\\", b"a\\\r\n", b"[*", b"\\[*]", b"\\[\\*", b"\xff\\N"])
def test_an_escape_that_encoding_never_writes_is_refused(field: bytes) -> None:
    options = CsvOptions(quote="", delimiter="[*]")
    data = b"I[*]t[*]s[*]" + field + b"\r\n"
    if field == b"[*":  # half a delimiter is a text
        assert decode(data, TEXT, options)[0].values == (b"[*",)
        return
    with pytest.raises(BadEvents):
        decode(data, TEXT, options)


@pytest.mark.parametrize(
    "lead",
    [
        b'"U","t","s",7,true',
        b'"X","t","s",7,false',
        b'"I","t","s",07,false',
        b'"I","t","s",9223372036854775808,false',
        b'"I","t\xff","s",7,false',
        b'"I","t","s",7,maybe',
        b'"I","t","s",7,true',
        b'"D","t","s",7,true',
    ],
)
def test_a_line_begins_as_encoding_writes_it_or_is_refused(lead: bytes) -> None:
    with pytest.raises(BadEvents):
        decode(lead + b",1\n", layout("int"), replace(LF_TS, output_old_value=True))


@pytest.mark.parametrize("lead", [b"\\I,t,s", b"I,\\t,s", b"I,t,\\s", b"ID,t,s", b",t,s", b"I,\xff,s"])
def test_names_are_escaped_as_encoding_does_it_or_refused(lead: bytes) -> None:
    with pytest.raises(BadEvents):
        decode(lead + b",1\r\n", layout("int"), CsvOptions(quote=""))


def test_an_old_row_and_its_new_row_belong_together() -> None:
    options = replace(LF_TS, output_old_value=True)
    old, new, other = b'"D","t","s",7,true,1\n', b'"I","t","s",7,true,2\n', b'"I","t","s",8,true,2\n'
    assert [line.op for line in decode(old + new, layout("int"), options)] == ["D", "I"]
    for data in (old + other, old + old, new + old):
        with pytest.raises(BadEvents):
            decode(data, layout("int"), options)


@pytest.mark.parametrize(
    ("columns", "options"),
    [
        (TEXT, CsvOptions(quote="", null="NULL")),
        (TEXT, CsvOptions(quote="", null="")),
        (TEXTS, CsvOptions(quote="", null="a,b")),
        (TEXT, CsvOptions(null='"x"')),
        (layout("int"), CsvOptions(null="5")),
        (layout("int", "int"), CsvOptions(null="5,5")),
        (layout("double"), CsvOptions(null="NaN")),
        (layout("set"), CsvOptions(quote="", null="x")),
    ],
)
def test_a_null_text_that_could_be_a_value_is_refused_where_it_occurs(columns: Layout, options: CsvOptions) -> None:
    data = encoded([insert(*[None for _ in columns.stored])], columns, options)[0]
    with pytest.raises(BadEvents):
        decode(data, columns, options)


@pytest.mark.parametrize(
    ("columns", "options"),
    [
        (TEXT, CsvOptions(null="")),
        (TEXT, CsvOptions(null="NULL")),
        (layout("int", "double"), CsvOptions(quote="", null="")),
        (layout("double"), CsvOptions(null="-")),
        (layout("enum"), CsvOptions(quote="", null="NULL")),
    ],
)
def test_a_null_text_that_is_no_value_of_its_column_reads_back(columns: Layout, options: CsvOptions) -> None:
    data = encoded([insert(*[None for _ in columns.stored])], columns, options)[0]
    assert set(decode(data, columns, options)[0].values) == {None}


@pytest.mark.parametrize(
    "options",
    [
        CsvOptions(terminator=""),
        CsvOptions(terminator='"'),
        CsvOptions(terminator="0"),
        CsvOptions(delimiter="1"),
        CsvOptions(delimiter="-"),
        CsvOptions(quote="", terminator="|"),
        CsvOptions(quote="", delimiter="\\"),
        CsvOptions(quote="", delimiter="|n"),
        CsvOptions(quote="", delimiter="||"),
        CsvOptions(quote="", delimiter="|*|"),
    ],
)
def test_options_under_which_lines_have_no_certain_end_cannot_be_read(options: CsvOptions) -> None:
    with pytest.raises(BadSetting):
        decode(b"", TEXT, options)


@pytest.mark.parametrize("junk", [b'"', b'""', b"\\", b"\\a", b"a", b"[", b"[*", b"\\N", b"\\N[*]", b"1", b"-"])
@pytest.mark.parametrize("quote", ['"', ""])
def test_long_junk_is_refused_at_once(junk: bytes, quote: str) -> None:
    columns = layout(*["varchar", "int", "double"] * 20)
    with pytest.raises(BadEvents):
        decode(junk * 200_000, columns, CsvOptions(delimiter="[*]", quote=quote))


# Laws ---------------------------------------------------------------------------------------------------------------

SHOWN = {b"1e6": b"1e+06", b"3.140": b"3.14", b".00001": b"1e-05", b"1234567.5": b"1.2345675e+06", b"-7.0": b"-7"}
SHOWN |= {text: text for text in (b"0.5", b"-0", b"12", b"1e-07", b"1e+21", b"NaN", b"+Inf")}
NUMERIC = ("int", "bigint", "bit", "year")
STRINGS = ("char", "varchar", "json", "decimal", "binary text", "binary char", "date", "vector")
TYPES = (*NUMERIC, *STRINGS, "float", "double", "enum", "set")
numbers = st.integers(-(10**19), 10**19).map(lambda number: b"%d" % number)
texts = st.binary(max_size=12) | st.text(st.sampled_from("\"',|[*]\\\r\nNnr~ é"), max_size=12).map(str.encode)
names = st.text(st.sampled_from("ab\"',|*\\\r\n é"), min_size=1, max_size=6)
csv_options = st.builds(
    CsvOptions,
    delimiter=st.sampled_from([",", "|", "\t", "[*]", "é", "||", "\\", "\\*"]),
    quote=st.sampled_from(['"', "'", ""]),
    null=st.sampled_from(["\\N", "~", ""]),
    terminator=st.sampled_from(["\r\n", "\n", "|\n"]),
    include_commit_ts=st.booleans(),
    binary_encoding=st.sampled_from(["base64", "hex"]),
    output_old_value=st.booleans(),
    output_field_header=st.booleans(),
)


def readable(options: CsvOptions) -> CsvOptions:
    """Without quotes only escapes tell a delimiter, an end and NULL from text."""
    if options.quote:
        return options
    delimiter = "|" if options.delimiter in ("||", "\\", "\\*") else options.delimiter
    return replace(options, null="\\N", terminator=options.terminator.lstrip("|"), delimiter=delimiter)


def values_of(column: Column) -> st.SearchStrategy[bytes]:
    if column.type in ("float", "double"):
        return st.sampled_from(sorted(SHOWN))
    if column.type == "enum":
        return st.integers(1, len(column.elems)).map(lambda number: b"%d" % number)
    if column.type == "set":
        return st.integers(0, 2 ** len(column.elems) - 1).map(lambda mask: b"%d" % mask)
    return texts if column.is_text else numbers


@st.composite
def changes(draw: st.DrawFn) -> tuple[list[dict[str, Any]], Layout]:
    columns = layout(*draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=5)))
    values = st.tuples(*(st.none() | values_of(column) for column in columns.columns)).map(list)
    tables = draw(st.lists(st.tuples(names, names), min_size=1, max_size=3))

    def one(kind: str) -> dict[str, Any]:
        schema, table = draw(st.sampled_from(tables))
        after = draw(values) if kind != "delete" else None
        before = draw(values) if kind != "insert" else None
        return event(kind, after, before, schema_name=schema, table_name=table, commit_ts=draw(st.integers(0, 2**62)))

    kinds = draw(st.lists(st.sampled_from(["insert", "update", "delete"]), max_size=6))
    return [one(kind) for kind in kinds], columns


def lines_of(one: dict[str, Any], options: CsvOptions) -> list[Line]:
    """What an event says, line by line, without any text form but that of floats."""
    kind, after, before = one["kind"], one["after"], one["before"]
    shown = {"insert": [("I", after)], "update": [("U", after)], "delete": [("D", before)]}[kind]
    if kind == "update" and options.output_old_value:
        shown = [("D", before), ("I", after)]
    ts = one["commit_ts"] if options.include_commit_ts else None
    is_update = kind == "update" if options.output_old_value else None
    return [Line(op, one["table_name"], one["schema_name"], ts, is_update, tuple(values)) for op, values in shown]


def with_shown_floats(line: Line, columns: Layout) -> Line:
    pairs = zip(line.values, columns.stored, strict=True)
    values = (SHOWN[v] if v is not None and column.type in ("float", "double") else v for v, column in pairs)
    return line._replace(values=tuple(values))


def plain_text(line: Line, columns: Layout, options: CsvOptions) -> bytes:
    """The same line written the slow and obvious way, a byte at a time where it matters."""
    fields = [in_text(name.encode(), options) for name in (line.op, line.table, line.schema)]
    if line.commit_ts is not None:
        fields.append(b"%d" % line.commit_ts)
    if line.is_update is not None:
        fields.append(b"true" if line.is_update else b"false")
    fields += [plain_field(value, column, options) for value, column in zip(line.values, columns.stored, strict=True)]
    return options.delimiter.encode().join(fields) + options.terminator.encode()


def plain_field(value: bytes | None, column: Column, options: CsvOptions) -> bytes:
    if value is None:
        return options.null.encode()
    if not column.is_text:
        return SHOWN[value] if column.type in ("float", "double") else value
    if column.is_bytes:
        value = base64.b64encode(value) if options.binary_encoding == "base64" else value.hex().encode()
    elif column.type == "enum":
        value = column.elems[int(value) - 1].encode()
    elif column.type == "set":
        value = ",".join(name for i, name in enumerate(column.elems) if int(value) >> i & 1).encode()
    return in_text(value, options)


def in_text(text: bytes, options: CsvOptions) -> bytes:
    quote, delimiter = options.quote.encode(), options.delimiter.encode()
    if quote:
        return quote + text.replace(quote, quote * 2) + quote
    out, i = b"", 0
    while i < len(text):
        if text.startswith(delimiter, i):
            out += b"".join(b"\\%c" % byte for byte in delimiter)
            i += len(delimiter)
        else:
            out += {b"\r": b"\\r", b"\n": b"\\n", b"\\": b"\\\\"}.get(text[i : i + 1], text[i : i + 1])
            i += 1
    return out


@given(changes(), csv_options, st.randoms(use_true_random=False))
def test_encoding_equals_the_plain_model_in_any_order(
    found: tuple[list[dict[str, Any]], Layout], options: CsvOptions, random: Any
) -> None:
    events, columns = found
    order = [random.randrange(len(events)) for _ in events]
    entries = encode(batch(events), np.array(order, np.int64), columns, options)
    entries.validate(full=True)
    model = [b"".join(plain_text(line, columns, options) for line in lines_of(events[i], options)) for i in order]
    assert entries.to_pylist() == model


@given(changes(), csv_options.map(readable))
def test_decoding_undoes_encoding(found: tuple[list[dict[str, Any]], Layout], options: CsvOptions) -> None:
    events, columns = found
    data = header(columns, options) + b"".join(encoded(events, columns, options))
    lines = [with_shown_floats(line, columns) for one in events for line in lines_of(one, options)]
    assert decode(data, columns, options) == lines


def projected(values: Values | None, selected: tuple[int, ...]) -> Values | None:
    return None if values is None else [values[i] for i in selected]


@given(changes(), csv_options, st.data())
def test_selecting_columns_is_encoding_a_table_that_has_only_them(
    found: tuple[list[dict[str, Any]], Layout], options: CsvOptions, data: st.DataObject
) -> None:
    events, columns = found
    places = st.lists(st.integers(0, len(columns.stored) - 1), min_size=1, unique=True)
    selected = tuple(sorted(data.draw(places)))
    fewer = Layout(columns.shown(selected))
    less = [one | {side: projected(one[side], selected) for side in ("after", "before")} for one in events]
    assert encoded(events, columns, options, selected) == encoded(less, fewer, options)
    assert header(columns, options, selected) == header(fewer, options)


def events_of(lines: list[Line], options: CsvOptions) -> list[dict[str, Any]]:
    """The events that would be written as these lines."""
    kinds, events = {"I": "insert", "U": "update", "D": "delete"}, []
    old: Line | None = None
    for line in lines:
        more = {"schema_name": line.schema, "table_name": line.table, "commit_ts": line.commit_ts or 0}
        values = list(line.values)
        if old is not None:
            events.append(update(list(old.values), values, **more))
        elif not (line.is_update and line.op == "D"):
            events.append(event(kinds[line.op], values, values, **more))
        old = line if line.is_update and line.op == "D" else None
    return events


@given(changes(), csv_options.map(readable), st.data())
def test_whatever_is_accepted_encodes_to_the_same_bytes(
    found: tuple[list[dict[str, Any]], Layout], options: CsvOptions, data: st.DataObject
) -> None:
    events, columns = found
    start = header(columns, options)
    body = b"".join(encoded(events, columns, options))
    for _ in range(data.draw(st.integers(1, 3))):
        low, high = sorted(data.draw(st.tuples(*[st.integers(0, len(body))] * 2)))
        special = st.sampled_from([b"\\", b'"', b"'", b",", b"|", b"0", b"-", b"=", b"\r\n", b"\n", b"\\N", b"\xff"])
        other = data.draw(st.sampled_from([b"", body[low:high] * 2]) | texts | special)
        body = body[:low] + other + body[min(high, low + data.draw(st.integers(0, 3))) :]
    try:
        lines = decode(start + body, columns, options)
    except BadEvents:
        return
    assert b"".join(encoded(events_of(lines, options), columns, options)) == body
