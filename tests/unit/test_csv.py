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
from tidegate.format.csv import CsvOptions, encode, header
from tidegate.format.csv_decode import Line, decode
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


def layout(*types: str) -> Layout:
    columns = [
        Column(f"c{i}", kind.removeprefix("binary "), binary=kind.startswith("binary ")) for i, kind in enumerate(types)
    ]
    return Layout(tuple(columns))


def encoded(events: list[dict[str, Any]], columns: Layout, options: CsvOptions = DEFAULT) -> list[bytes]:
    found: list[bytes] = encode(batch(events), np.arange(len(events)), columns, options).to_pylist()
    return found


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
        ("bit", b"683", b"683"),
        ("year", b"1970", b"1970"),
        ("decimal", b"129012.1230000", b'"129012.1230000"'),
        *[(kind, b"hello world", b'"hello world"') for kind in ("mediumtext", "longtext", "varchar", "var_string")],
        *[
            (f"binary {kind}", b"hello world", b'"aGVsbG8gd29ybGQ="')
            for kind in ("tinytext", "mediumtext", "text", "longtext", "varchar", "var_string", "char")
        ],
        ("enum", b"a,", b'"a,"'),
        ("set", b"", b'""'),
        ("date", b"2000-01-01", b'"2000-01-01"'),
        ("datetime", b"0000-00-00 00:00:00", b'"0000-00-00 00:00:00"'),
        ("timestamp", b"1973-12-30 15:30:00", b'"1973-12-30 15:30:00"'),
        ("time", b"-838:59:59.000", b'"-838:59:59.000"'),
        ("json", b'{"a": [true, null]}', b'"{""a"": [true, null]}"'),
        ("vector", b"[1,0.5]", b'"[1,0.5]"'),
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


# Events that break their contract -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (insert(b"1"), f"test.t, commit-ts {TS}: the insert has 1 values in `after` and its layout wants 2"),
        (
            insert(b"1", b"2", b"3"),
            f"test.t, commit-ts {TS}: the insert has 3 values in `after` and its layout wants 2",
        ),
        (event("insert", None), f"test.t, commit-ts {TS}: the insert has no values in `after` and its layout wants 2"),
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


def test_an_event_that_is_no_row_is_refused() -> None:
    with pytest.raises(BadEvents, match="'resolved'"):
        encoded([insert(b"1"), event("resolved", None)], layout("int"))


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
        {"delimiter": "\\", "quote": ""},
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
    with pytest.raises(BadEvents, match="line 3, at byte 17, is no line of 1 columns"):
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


def test_bad_base64_is_refused_and_lines_without_end_cannot_be_read() -> None:
    with pytest.raises(BadEvents, match="'c0' is no base64 text"):
        decode(b'"I","t","s","a"\r\n', layout("binary text"), DEFAULT)
    with pytest.raises(BadSetting, match="terminator"):
        decode(b"", TEXT, CsvOptions(terminator=""))


# Laws ---------------------------------------------------------------------------------------------------------------

NUMERIC = ("int", "bigint", "bit", "year", "double")
TYPES = (*NUMERIC, "char", "varchar", "json", "decimal", "binary text", "binary char")
numbers = st.integers(-(10**19), 10**19).map(lambda number: b"%d" % number)
texts = st.binary(max_size=12) | st.text(st.sampled_from("\"',|[*]\\\r\nNnr~ é"), max_size=12).map(str.encode)
names = st.text(st.sampled_from("ab\"',|*\\\r\n é"), min_size=1, max_size=6)
csv_options = st.builds(
    CsvOptions,
    delimiter=st.sampled_from([",", "|", "\t", "[*]", "||"]),
    quote=st.sampled_from(['"', "'", ""]),
    null=st.sampled_from(["\\N", "~"]),
    terminator=st.sampled_from(["\r\n", "\n"]),
    include_commit_ts=st.booleans(),
    binary_encoding=st.sampled_from(["base64", "hex"]),
    output_old_value=st.booleans(),
    output_field_header=st.booleans(),
)


@st.composite
def changes(draw: st.DrawFn) -> tuple[list[dict[str, Any]], Layout]:
    columns = layout(*draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=5)))
    values = st.tuples(*(st.none() | (texts if column.is_text else numbers) for column in columns.columns)).map(list)
    tables = draw(st.lists(st.tuples(names, names), min_size=1, max_size=3))

    def one(kind: str) -> dict[str, Any]:
        schema, table = draw(st.sampled_from(tables))
        after = draw(values) if kind != "delete" else None
        before = draw(values) if kind != "insert" else None
        return event(kind, after, before, schema_name=schema, table_name=table, commit_ts=draw(st.integers(0, 2**62)))

    kinds = draw(st.lists(st.sampled_from(["insert", "update", "delete"]), max_size=6))
    return [one(kind) for kind in kinds], columns


def lines_of(one: dict[str, Any], options: CsvOptions) -> list[Line]:
    """What an event says, line by line, without any text form."""
    kind, after, before = one["kind"], one["after"], one["before"]
    shown = {"insert": [("I", after)], "update": [("U", after)], "delete": [("D", before)]}[kind]
    if kind == "update" and options.output_old_value:
        shown = [("D", before), ("I", after)]
    ts = one["commit_ts"] if options.include_commit_ts else None
    is_update = kind == "update" if options.output_old_value else None
    return [Line(op, one["table_name"], one["schema_name"], ts, is_update, tuple(values)) for op, values in shown]


def plain_text(line: Line, columns: Layout, options: CsvOptions) -> bytes:
    """The same line written the slow and obvious way, a byte at a time where it matters."""
    fields = [in_text(name.encode(), options) for name in (line.op, line.table, line.schema)]
    if line.commit_ts is not None:
        fields.append(b"%d" % line.commit_ts)
    if line.is_update is not None:
        fields.append(b"true" if line.is_update else b"false")
    for value, column in zip(line.values, columns.stored, strict=True):
        if value is None:
            fields.append(options.null.encode())
        elif not column.is_text:
            fields.append(value)
        elif column.is_bytes:
            text = base64.b64encode(value) if options.binary_encoding == "base64" else value.hex().encode()
            fields.append(in_text(text, options))
        else:
            fields.append(in_text(value, options))
    return options.delimiter.encode().join(fields) + options.terminator.encode()


def in_text(text: bytes, options: CsvOptions) -> bytes:
    quote, delimiter = options.quote.encode(), options.delimiter.encode()
    if quote:
        return quote + text.replace(quote, quote * 2) + quote
    out, i = b"", 0
    while i < len(text):
        width = len(delimiter) if text.startswith(delimiter, i) else 1
        for byte in (text[j : j + 1] for j in range(i, i + width)):
            special = {b"\r": b"\\r", b"\n": b"\\n", b"\\": b"\\\\"}
            out += special.get(byte, b"\\" + byte if width > 1 or byte == delimiter else byte)
        i += width
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


@given(changes(), csv_options)
def test_decoding_undoes_encoding(found: tuple[list[dict[str, Any]], Layout], options: CsvOptions) -> None:
    events, columns = found
    # Without quotes only the escape tells a text from NULL, so the null text must hold one.
    options = options if options.quote else replace(options, null="\\N")
    data = header(columns, options) + b"".join(encoded(events, columns, options))
    assert decode(data, columns, options) == [line for one in events for line in lines_of(one, options)]
