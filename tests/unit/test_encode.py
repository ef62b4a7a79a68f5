"""`tidegate encode`: a document in, the exact bytes of data file and schema file out, and where they stand."""

from __future__ import annotations

import argparse
import json
import re
import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.config.settings import Settings, load_settings
from tidegate.errors import BadEvents, BadSetting
from tidegate.tools.encode.command import data_bytes, paths, read_document, schema_text

NOW_MS = 1663572946034
MOMENT = datetime(2023, 5, 9, 23, 59)
LF = {"terminator": "\n"}
STAMPED = {"csv.include-commit-ts": "true"}
OLD = {"csv.output-old-value": "true"}
CANAL = {"protocol": "canal-json", "terminator": "\n"}
TS = 435661838416609281

Row = dict[str, Any]


def insert(*after: Any, ts: int = 1) -> Row:
    return {"kind": "insert", "commit_ts": ts, "after": list(after)}


def delete(*before: Any, ts: int = 1) -> Row:
    return {"kind": "delete", "commit_ts": ts, "before": list(before)}


def update(before: list[Any], after: list[Any], ts: int = 1) -> Row:
    return {"kind": "update", "commit_ts": ts, "before": before, "after": after}


def settings(options: dict[str, str], config: dict[str, Any] | None = None) -> Settings:
    return load_settings("noop://", config, options)


def document(columns: list[Any], *rows: Row, **fields: Any) -> str:
    return json.dumps({"schema": "test", "table": "t", "columns": columns, "rows": rows} | fields)


def encoded(text: str, options: dict[str, str], config: dict[str, Any] | None = None) -> str:
    return data_bytes(read_document(text), settings(options, config), NOW_MS).decode()


# CSV rows -----------------------------------------------------------------------------------------------------------

BANG = LF | STAMPED | {"csv.delimiter": "!", "csv.quote": ""}


@pytest.mark.parametrize(
    ("options", "table", "columns", "row", "line"),
    [
        (
            LF | STAMPED, "table1", ["a int", "b varchar(20)"], insert(123, "hello,world", ts=TS),
            '"I","table1","test",435661838416609281,123,"hello,world"\n',
        ),
        (
            BANG, "table2", ["a char(9)", "b char(9)"], update(["x", "y"], ["a!b!c", "def"], TS),
            "U!table2!test!435661838416609281!a\\!b\\!c!def\n",
        ),
        (
            BANG | OLD, "table2", ["a char(9)", "b char(9)"], insert("a!b!c", "def", ts=TS),
            "I!table2!test!435661838416609281!false!a\\!b\\!c!def\n",
        ),
        (
            LF | STAMPED, "table3", ["a char(9)", "b char(9)", "c datetime"],
            update(["", "", None], ["a,b,c", "def", "2022-08-31 17:07:00"], TS),
            '"U","table3","test",435661838416609281,"a,b,c","def","2022-08-31 17:07:00"\n',
        ),
        (
            LF | {"csv.delimiter": "[*]", "csv.quote": "'"}, "table5", ["a char(9)", "b char(9)", "c int", "d double"],
            insert("a[*]b[*]c", "def", None, 12345.678),
            "'I'[*]'table5'[*]'test'[*]'a[*]b[*]c'[*]'def'[*]\\N[*]12345.678\n",
        ),
        (
            LF | {"csv.delimiter": "[*]", "csv.quote": ""}, "table4", ["a char(9)", "b char(9)"],
            delete("a[*]b[*]c", "def\r\n"),
            "D[*]table4[*]test[*]a\\[\\*\\]b\\[\\*\\]c[*]def\\r\\n\n",
        ),
        (
            LF | STAMPED | {"csv.quote": ""}, "table6", ["a char(9)", "b char(9)"],
            update(["", ""], ["a\\b\\c", "def\n"], TS),
            "U,table6,test,435661838416609281,a\\\\b\\\\c,def\\n\n",
        ),
        (
            LF | {"csv.quote": "'"}, "table7", ["a char(9)", "b char(9)", "c char(9)"], insert("\\", "\\\r", "\\\\"),
            "'I','table7','test','\\','\\\r','\\\\'\n",
        ),
        (
            LF | STAMPED | {"csv.delimiter": "\t"}, "table8", ["a char(9)", "b double", "c char(9)"],
            delete("a\tb", 123.456, "你好，世界", ts=TS),
            '"D"\t"table8"\t"test"\t435661838416609281\t"a\tb"\t123.456\t"你好，世界"\n',
        ),
        (
            LF | STAMPED | OLD, "update_pk", ["id int primary key", "pad varchar(100)"],
            update([1, "example1"], [1, "example2"], 450253245485940746),
            '"D","update_pk","test",450253245485940746,true,1,"example1"\n'
            '"I","update_pk","test",450253245485940746,true,1,"example2"\n',
        ),
        (
            BANG | OLD, "table2", ["a char(9)", "b char(9)"], update(["a!b!c", "abc"], ["a!b!c", "def"], TS),
            "D!table2!test!435661838416609281!true!a\\!b\\!c!abc\nI!table2!test!435661838416609281!true!a\\!b\\!c!def\n",
        ),
        ({}, "t", ["a int", "b int", "c char(9)"], insert(1, None, 'x"y'), '"I","t","test",1,\\N,"x""y"\r\n'),
        (LF, "t", ["a char(9)", "b char(9)"], insert('"a,b,c', ""), '"I","t","test","""a,b,c",""\n'),
        (
            LF | {"csv.delimiter": "***", "csv.quote": ""}, "t", ["a char(9)", "b char(9)"],
            insert("abc***def", "abc\\def"),
            "I***t***test***abc\\*\\*\\*def***abc\\\\def\n",
        ),
        (
            LF | {"csv.delimiter": "?", "csv.quote": ""}, "t", ["a char(20)"], insert("abc\\def?ghi\\r\\n"),
            "I?t?test?abc\\\\def\\?ghi\\\\r\\\\n\n",
        ),
    ],
)  # fmt: skip
def test_a_row_is_this_line(options: dict[str, str], table: str, columns: list[str], row: Row, line: str) -> None:
    assert encoded(document(columns, row, table=table), options) == line


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            {"csv.delimiter": " ", "terminator": ""} | STAMPED,
            "ticdc-meta$operation ticdc-meta$table ticdc-meta$schema ticdc-meta$commit-ts col1 col2",
        ),
        ({"terminator": ""}, "ticdc-meta$operation,ticdc-meta$table,ticdc-meta$schema,col1,col2"),
        (LF, "ticdc-meta$operation,ticdc-meta$table,ticdc-meta$schema,col1,col2\n"),
        (
            LF | STAMPED | OLD,
            "ticdc-meta$operation,ticdc-meta$table,ticdc-meta$schema,ticdc-meta$commit-ts,ticdc-meta$is-update,col1,col2\n",
        ),
    ],
)
def test_a_header_names_the_columns_once(options: dict[str, str], line: str) -> None:
    text = document(["col1 int", "col2 int"], insert(1, 2), insert(3, 4))
    rows = encoded(text, options)
    assert encoded(text, options | {"csv.output-field-header": "true"}) == line + rows


def test_without_rows_there_is_no_data_not_even_a_header() -> None:
    assert encoded(document(["a int"]), {"csv.output-field-header": "true"}) == ""


# The column's type, the value in JSON, what stands in CSV.
CSV_VALUES = [
    ("tinyint", "1", "1"), ("smallint", "1", "1"), ("mediumint", "1", "1"), ("int", "1", "1"), ("bigint", "1", "1"),
    ("tinyint unsigned", "1", "1"), ("smallint unsigned", "1", "1"), ("bigint unsigned", "1", "1"),
    ("bigint unsigned", "18446744073709551615", "18446744073709551615"), ("bit(24)", "683", "683"),
    ("year", "1970", "1970"),
    ("float", "3.14", "3.14"), ("double", "3.14", "3.14"), ("double", "0.0", "0"), ("double", "1.0", "1"),
    ("double", "100000.0", "100000"), ("double", "999999.0", "999999"), ("double", "1234567.0", "1.234567e+06"),
    ("double", "123456789", "1.23456789e+08"), ("double", "1e-05", "1e-05"), ("double", "1e+21", "1e+21"),
    ("double", "-2.5", "-2.5"), ("double", "1e100", "1e+100"), ("float", "123.456", "123.456"),
    ("float", "16777216", "1.6777216e+07"), ("float", "1000000.0", "1e+06"),
    ("decimal(20,7)", '"129012.1230000"', '"129012.1230000"'), ("decimal(5,2)", "0.5", '"0.50"'),
    ("mediumtext", '"hello world"', '"hello world"'), ("longtext", '"hello world"', '"hello world"'),
    ("varchar(20)", '"hello world"', '"hello world"'), ("var_string(20)", '"hello world"', '"hello world"'),
    *((declared, '"hello world"', '"aGVsbG8gd29ybGQ="')
      for declared in ("tinyblob", "mediumblob", "blob", "longblob", "varbinary(20)", "binary(11)",
                       "var_string(20) charset binary")),
    ("enum('a,','b')", "1", '"a,"'), ("enum('a,','b')", '"b"', '"b"'), ("set('a','b')", "0", '""'),
    ("set('a','b')", '"a,b"', '"a,b"'),
    ("date", '"2000-01-01"', '"2000-01-01"'), ("datetime", '"2015-12-20 23:58:58"', '"2015-12-20 23:58:58"'),
    ("timestamp", '"1973-12-30 15:30:00"', '"1973-12-30 15:30:00"'),
    ("datetime", '"0000-00-00 00:00:00"', '"0000-00-00 00:00:00"'),
    ("time(3)", '"-838:59:59.000"', '"-838:59:59.000"'), ("time", '"5:06:07"', '"05:06:07"'),
    ("json", '{"b": 1, "a": [true, null, 1.0, "x"]}', '"{""a"": [true, null, 1.0, ""x""], ""b"": 1}"'),
    ("json", '"[1,2]"', '"[1, 2]"'), ("vector", '"[1,2,3,4,5]"', '"[1,2,3,4,5]"'),
    ("vector", "[1.0, 0.5, 10000000000.0]", '"[1,0.5,10000000000]"'), ("varchar(20)", "null", "\\N"),
]  # fmt: skip


@pytest.mark.parametrize(("declared", "written", "shown"), CSV_VALUES)
def test_a_value_in_csv(declared: str, written: str, shown: str) -> None:
    text = document([f"c {declared}"], insert("VALUE")).replace('"VALUE"', written)
    assert encoded(text, LF) == f'"I","t","test",{shown}\n'


@pytest.mark.parametrize("declared", ["longblob", "var_string(20) charset binary", "binary(11)"])
def test_bytes_may_be_hex(declared: str) -> None:
    text = document([f"c {declared}"], insert("hello world"))
    assert encoded(text, LF | {"csv.binary-encoding-method": "hex"}) == '"I","t","test","68656c6c6f20776f726c64"\n'


def test_an_enum_of_number_0_has_no_name_in_csv_and_its_number_in_canal_json() -> None:
    text = document(["c enum('a','b')"], insert(0))
    with pytest.raises(BadEvents, match="'c'"):
        encoded(text, LF)
    assert '"data":[{"c":"0"}]' in encoded(text, CANAL)


def test_a_virtual_column_has_no_value_and_one_given_is_left_out() -> None:
    columns = ["a int", "v int as (a + 1)", "s int as (a + 2) stored"]
    assert encoded(document(columns, insert(1, 3)), LF) == '"I","t","test",1,3\n'
    named = {"kind": "insert", "after": {"s": 3, "v": 2, "a": 1}}
    assert encoded(document(columns, named), LF) == '"I","t","test",1,3\n'


def test_rows_go_out_by_commit_ts_and_in_their_order() -> None:
    rows = [insert(3, ts=9), insert(1, ts=7), insert(4, ts=9), insert(2, ts=8)]
    assert [line[-1] for line in encoded(document(["a int"], *rows), LF).splitlines()] == ["1", "2", "3", "4"]


# Key-changing updates -----------------------------------------------------------------------------------------------

CLUSTERED_PK = [450253245302439944, 450253245302439946, 450253245302439947, 450253245302439948,
                450253245485940746, 450253245485940749, 450253245485940752, 450253245485940753]  # fmt: skip
CLUSTERED_UK = [450253245446619144, 450253245446619146, 450253245446619147, 450253245446619148,
                450253245499047940, 450253245499047943, 450253245499047946, 450253245512155140]  # fmt: skip
NONCLUSTERED_PK = [450250823741472787, 450250823741472790, 450250823741472791, 450250823741472792,
                   450250823807270922, 450250823807270925, 450250823807270927, 450250823807270928]  # fmt: skip
NONCLUSTERED_UK = [450250823780794385, 450250823780794387, 450250823780794389, 450250823780794390,
                   450250823807270931, 450250823820115970, 450250823820115973, 450250823820115977]  # fmt: skip

# Transactions stand between semicolons. `+1 1` inserts id 1 with the pad example1, `-` deletes; `1 1>2 1` updates.
# The second column of update_uk is the unique key.
INPUTS = {
    "clustered pk": "+1 1, +2 2; +10 10, +20 20; +100 100; +1000 1000; 1 1>1 2, 2 2>2 1; "
    "-10 10, -20 20, +30 10, +40 20; -100 100, +200 100; 1000 1000>1000 1001",
    "nonclustered pk": "+1 1, +2 2; +10 10, +20 20; +100 100; +1000 1000; 1 1>2 1, 2 2>1 2; "
    "10 10>30 10, 20 20>40 20; 100 100>200 100; 1000 1000>1000 1001",
    "uk": "+1 1 1, +2 2 2; +10 10 10, +20 20 20; +100 100 100; +1000 1000 1000; 1 1 1>1 2 1, 2 2 2>2 1 2; "
    "10 10 10>10 30 10, 20 20 20>20 40 20; 100 100 100>100 200 100; 1000 1000 1000>1000 1000 1001",
}
# What comes out of the last four transactions; a small letter says that is-update is true.
MOVES = "D10 10 D20 20 I30 10 I40 20; D100 100 I200 100"
SPLIT_PK = f"D1 1 D2 2 I2 1 I1 2; {MOVES}"
SPLIT_UK = "D1 1 1 D2 2 2 I1 2 1 I2 1 2; D10 10 10 D20 20 20 I10 30 10 I20 40 20; D100 100 100 I100 200 100"
PK, UK = (
    ["id int primary key", "pad varchar(100)"],
    ["id int primary key", "uk int not null unique", "pad varchar(100)"],
)
SPLITS = [
    # keys, commit-ts, output-old-value, output-raw-change-event, what comes out
    *(("clustered pk", CLUSTERED_PK, False, raw, f"U1 2 U2 1; {MOVES}; U1000 1001") for raw in (False, True)),
    *(
        ("clustered pk", CLUSTERED_PK, True, raw, f"d1 1 i1 2 d2 2 i2 1; {MOVES}; d1000 1000 i1000 1001")
        for raw in (False, True)
    ),
    ("nonclustered pk", NONCLUSTERED_PK, False, False, f"{SPLIT_PK}; U1000 1001"),
    ("nonclustered pk", NONCLUSTERED_PK, True, False, f"{SPLIT_PK}; d1000 1000 i1000 1001"),
    ("nonclustered pk", NONCLUSTERED_PK, False, True, "U2 1 U1 2; U30 10 U40 20; U200 100; U1000 1001"),
    (
        "nonclustered pk", NONCLUSTERED_PK, True, True,
        "d1 1 i2 1 d2 2 i1 2; d10 10 i30 10 d20 20 i40 20; d100 100 i200 100; d1000 1000 i1000 1001",
    ),
    *(
        ("uk", stamps, old, raw, expected)
        for stamps in (CLUSTERED_UK, NONCLUSTERED_UK)
        for old, raw, expected in (
            (False, False, f"{SPLIT_UK}; U1000 1000 1001"),
            (True, False, f"{SPLIT_UK}; d1000 1000 1000 i1000 1000 1001"),
            (False, True, "U1 2 1 U2 1 2; U10 30 10 U20 40 20; U100 200 100; U1000 1000 1001"),
            (
                True, True,
                "d1 1 1 i1 2 1 d2 2 2 i2 1 2; d10 10 10 i10 30 10 d20 20 20 i20 40 20; d100 100 100 i100 200 100; "
                "d1000 1000 1000 i1000 1000 1001",
            ),
        )
    ),
]  # fmt: skip


def values(text: str) -> list[Any]:
    *numbers, pad = text.split()
    return [*map(int, numbers), f"example{pad}"]


def change(text: str, ts: int) -> Row:
    if text[0] in "+-":
        return (insert if text[0] == "+" else delete)(*values(text[1:]), ts=ts)
    before, after = text.split(">")
    return update(values(before), values(after), ts)


def golden_line(word: str, table: str, ts: int, old: bool) -> str:
    flag = [str(word[0].islower()).lower()] if old else []
    *numbers, pad = word[1:].split()
    fields = [f'"{word[0].upper()}"', f'"{table}"', '"test"', str(ts), *flag, *numbers, f'"example{pad}"']
    return ",".join(fields) + "\n"


def lines_of(transaction: str) -> list[str]:
    """`D1 1 I2 1` in its lines."""
    marked = "".join(("\0" if char.isalpha() else "") + char for char in transaction)
    return [line.strip() for line in marked.split("\0") if line.strip()]


@pytest.mark.parametrize(("keys", "stamps", "old", "raw", "expected"), SPLITS)
def test_updates_of_keys_come_out_as_ticdc_writes_them(
    keys: str, stamps: list[int], old: bool, raw: bool, expected: str
) -> None:
    table, columns = ("update_uk", UK) if keys == "uk" else ("update_pk", PK)
    transactions = [part.strip().split(", ") for part in INPUTS[keys].split(";")]
    rows = [change(text, ts) for texts, ts in zip(transactions, stamps, strict=True) for text in texts]
    inserted = [" ".join("I" + text[1:] for text in texts) for texts in transactions[:4]]
    lines = [
        golden_line(word, table, ts, old)
        for part, ts in zip([*inserted, *expected.split("; ")], stamps, strict=True)
        for word in lines_of(part)
    ]
    options = LF | STAMPED | {"csv.output-old-value": str(old).lower(), "output-raw-change-event": str(raw).lower()}
    assert encoded(document(columns, *rows, table=table), options) == "".join(lines)


def test_updates_of_primary_and_unique_keys_are_counted() -> None:
    columns = ["id int primary key", "uk varchar(50) unique", "other varchar(100)"]
    rows = [insert(number, f"u{number}", "x", ts=1) for number in (1, 2, 3, 4)]
    rows += [
        update([1, "u1", "x"], [100, "u1", "x"], 2),
        update([2, "u2", "x"], [2, None, "x"], 3),
        update([3, "u3", "x"], [3, "u3", "y"], 4),
        update([4, "u4", "x"], [400, "u400", "x"], 5),
    ]
    ops = [line[1] for line in encoded(document(columns, *rows), LF).splitlines()]
    assert {op: ops.count(op) for op in "UID"} == {"U": 1, "I": 7, "D": 3}


# Selectors, filters, routes -----------------------------------------------------------------------------------------


def selecting(*selectors: tuple[str, list[str]]) -> dict[str, Any]:
    return {"sink": {"column-selectors": [{"matcher": [table], "columns": names} for table, names in selectors]}}


UNIT = selecting(("test.*", ["a", "b"]), ("test1.*", ["*", "!a"]), ("test2.*", ["co*", "!col2"]), ("test3.*", ["co?1"]))
FILES = selecting(("test.t1", ["a", "b"]), ("test.*", ["*", "!b"]), ("test1.t1", ["column*", "!column1"]))


@pytest.mark.parametrize(
    ("config", "schema", "table", "columns", "kept"),
    [
        (UNIT, "test", "t1", "a b c", "a b"), (UNIT, "test1", "aaa", "a b c", "b c"),
        (UNIT, "test2", "t", "col1 col2 c", "col1"), (UNIT, "test3", "t", "col1 col2 col11", "col1"),
        (UNIT, "test4", "t4", "a col2 col1", "a col2 col1"),
        (FILES, "test", "t1", "a b c", "a b"), (FILES, "test", "t2", "a b c", "a c"),
        (FILES, "test", "t3", "a b c", "a c"),
        (FILES, "test1", "t1", "column0 column1 column2", "column0 column2"),
    ],
)  # fmt: skip
def test_a_selector_leaves_columns_out(
    config: dict[str, Any], schema: str, table: str, columns: str, kept: str
) -> None:
    names = columns.split()
    row = {"kind": "insert", "after": {name: name for name in names}}
    text = document([f"{name} varchar(9)" for name in names], row, schema=schema, table=table)
    options = LF | {"csv.output-field-header": "true", "csv.quote": ""}
    header, line = encoded(text, options, config).splitlines()
    assert header.split(",")[3:] == line.split(",")[3:] == kept.split()
    assert list(json.loads(encoded(text, CANAL, config))["data"][0]) == kept.split()


def test_a_selector_acts_on_old_rows_and_deletes_too() -> None:
    columns = ["id int primary key", "visible varchar(20)", "secret varchar(20)"]
    rows = [
        update([1, "visible-before", "secret-before"], [1, "visible-after", "secret-after"]),
        delete(2, "delete-visible", "delete-secret"),
    ]
    config = selecting(("test.*", ["id", "visible"]))
    assert encoded(document(columns, *rows, table="table1"), LF | OLD, config) == (
        '"D","table1","test",true,1,"visible-before"\n'
        '"I","table1","test",true,1,"visible-after"\n'
        '"D","table1","test",false,2,"delete-visible"\n'
    )


ROUTE = {
    "sink": {
        "dispatchers": [
            {"matcher": ["source_db.*"], "target-schema": "target_db", "target-table": "target_table"},
        ]
    }
}


def test_a_route_renames_the_table_everywhere() -> None:
    found = read_document(document(["a int"], insert(1), schema="source_db", table="source_table"))
    csv, canal = settings(LF, ROUTE), settings(CANAL, ROUTE)
    assert data_bytes(found, csv, NOW_MS) == b'"I","target_table","target_db",1\n'
    assert b'"database":"target_db","table":"target_table",' in data_bytes(found, canal, NOW_MS)
    assert json.loads(schema_text(found, csv))["Table"] == "target_table"
    assert all(path.startswith("target_db/target_table/") for _, path in paths(found, csv, MOMENT))


def test_a_filter_takes_rows_away() -> None:
    text = document(["a int"], insert(1), delete(1))
    assert encoded(text, LF, {"filter": {"rules": ["other.*"]}}) == ""
    ignored = {"filter": {"event-filters": [{"matcher": ["test.*"], "ignore-event": ["delete"]}]}}
    assert encoded(text, LF, ignored) == '"I","t","test",1\n'


# canal-json ---------------------------------------------------------------------------------------------------------

TINY = ["a tinyint primary key", "b tinyint"]


@pytest.mark.parametrize(
    ("columns", "options", "row", "differs"),
    [
        (
            TINY, {"enable-tidb-extension": "true"}, insert(1, None),
            {"data": [{"a": "1", "b": None}], "_tidb": {"commitTs": 1}},
        ),
        (
            ["a tinyint", "c int", "b tinyint", "PRIMARY KEY (a, b)"], {}, insert(1, 2, 3),
            {
                "pkNames": ["a", "b"], "sqlType": {"a": -6, "c": 4, "b": -6}, "data": [{"a": "1", "c": "2", "b": "3"}],
                "mysqlType": {"a": "tinyint", "c": "int", "b": "tinyint"},
            },
        ),
        (TINY, {}, insert(1, 3), {"data": [{"a": "1", "b": "3"}]}),
        (
            TINY, {"only-output-updated-columns": "true"}, update([1, 3], [1, 2]),
            {"type": "UPDATE", "old": [{"b": "3"}], "data": [{"a": "1", "b": "2"}]},
        ),
        (
            TINY, {"content-compatible": "true"}, update([1, 3], [1, 2]),
            {
                "type": "UPDATE", "old": [{"b": "3"}], "data": [{"a": "1", "b": "2"}],
                "mysqlType": {"a": "tinyint(4)", "b": "tinyint(4)"},
            },
        ),
        (
            TINY, {"delete-only-output-handle-key-columns": "true"}, delete(1, 3),
            {"type": "DELETE", "sqlType": {"a": -6}, "mysqlType": {"a": "tinyint"}, "data": [{"a": "1"}]},
        ),
    ],
)  # fmt: skip
def test_a_canal_json_message(columns: list[str], options: dict[str, str], row: Row, differs: dict[str, Any]) -> None:
    usual = {
        "id": 0, "database": "test", "table": "t", "pkNames": ["a"], "isDdl": False, "type": "INSERT", "es": 0,
        "ts": NOW_MS, "sql": "", "sqlType": {"a": -6, "b": -6}, "mysqlType": {"a": "tinyint", "b": "tinyint"},
        "old": None,
    }  # fmt: skip
    assert json.loads(encoded(document(columns, row), CANAL | options)) == usual | differs


BYTES = (
    '{"id":0,"database":"test","table":"t","pkNames":["a"],"isDdl":false,"type":"%s","es":%d,"ts":1663572946034,"sql":"",'
    '"sqlType":{"a":-6},"mysqlType":{"a":"tinyint"},"old":%s,"data":[{"a":"%d"}]%s}\r\n'
)


@pytest.mark.parametrize(
    ("row", "options", "line"),
    [
        (insert(1), {}, BYTES % ("INSERT", 0, "null", 1, "")),
        (delete(1), {}, BYTES % ("DELETE", 0, "null", 1, "")),
        (update([1], [2]), {"output-raw-change-event": "true"}, BYTES % ("UPDATE", 0, '[{"a":"1"}]', 2, "")),
        (update([1], [1]), {"only-output-updated-columns": "true"}, BYTES % ("UPDATE", 0, "[{}]", 1, "")),
        (
            insert(1, ts=449995281465737220), {"enable-tidb-extension": "true"},
            BYTES % ("INSERT", 1716595769751, "null", 1, ',"_tidb":{"commitTs":449995281465737220}'),
        ),
        (update([1], [2]), {}, BYTES % ("DELETE", 0, "null", 1, "") + BYTES % ("INSERT", 0, "null", 2, "")),
    ],
)  # fmt: skip
def test_a_canal_json_line_is_these_bytes(row: Row, options: dict[str, str], line: str) -> None:
    assert encoded(document(["a tinyint primary key"], row), {"protocol": "canal-json"} | options) == line


@pytest.mark.parametrize(
    ("declared", "value", "number"),
    [
        ("int", 2147483647, 4), ("smallint", 32767, 5), ("mediumint", 8388607, 4), ("int unsigned", 2147483648, -5),
        ("tinyint unsigned", 0, -6), ("tinyint unsigned", None, -6), ("tinyint unsigned", 128, 5),
        ("smallint unsigned", 32768, 4), ("smallint unsigned", None, 5), ("mediumint unsigned", 8388607, 4),
        ("mediumint unsigned", 8388608, 4), ("bigint unsigned", 9223372036854775807, -5),
        ("bigint unsigned", 9223372036854775808, 3), ("bigint unsigned", 0, -5),
    ],
)  # fmt: skip
def test_the_java_type_of_an_unsigned_column_depends_on_the_value(declared: str, value: Any, number: int) -> None:
    assert json.loads(encoded(document([f"a {declared}"], insert(value)), CANAL))["sqlType"] == {"a": number}


@pytest.mark.parametrize(
    ("declared", "value", "shown"),
    [
        ("float", 153.123, "153.123"), ("double", 1e6, "1000000"), ("double", 1e21, "1000000000000000000000"),
        ("double", 1e-7, "0.0000001"), ("bit(10)", "0b0001010001", "81"), ("enum('x')", "x", "1"),
        ("enum('x')", 0, "0"),
        ("set('x','y')", "x,y", "3"), ("bool", True, "1"), ("json", '{"key1": "value1"}', r"{\"key1\": \"value1\"}"),
        ("blob", {"hex": "00e9ff"}, "\\u0000éÿ"), ("year", 2026, "2026"), ("decimal(5,2)", "1.5", "1.50"),
        (
            "varchar(99)", '<a> & "q" \\ \t\r\n \x01 \b \f \u2028 é',
            r"\u003ca\u003e \u0026 \"q\" \\ \t\r\n \u0001 \u0008 \u000c \u2028 é",
        ),
    ],
)  # fmt: skip
def test_a_value_in_canal_json(declared: str, value: Any, shown: str) -> None:
    assert encoded(document([f"a {declared}"], insert(value)), CANAL).endswith(f'"data":[{{"a":"{shown}"}}]}}\n')


# Schema files and paths ---------------------------------------------------------------------------------------------

PEOPLE = [
    {"name": "Id", "type": "int", "nullable": False, "pk": True, "default": 10},
    {"name": "LastName", "type": "varchar", "flen": 128, "nullable": False, "default": "Default LastName"},
    "FirstName varchar(64) default 'Default FirstName'",
    {"name": "Birthday", "type": "datetime", "default": 12345678},
]
PEOPLE_TEXT = """{
    "Table": "table1",
    "Schema": "schema1",
    "Version": 1,
    "TableVersion": 100,
    "Query": "alter table schema1.table1 add Birthday date",
    "Type": 5,
    "TableColumns": [
        {
            "ColumnName": "Id",
            "ColumnType": "INT",
            "ColumnDefault": 10,
            "ColumnPrecision": "11",
            "ColumnNullable": "false",
            "ColumnIsPk": "true"
        },
        {
            "ColumnName": "LastName",
            "ColumnType": "VARCHAR",
            "ColumnDefault": "Default LastName",
            "ColumnPrecision": "128",
            "ColumnNullable": "false"
        },
        {
            "ColumnName": "FirstName",
            "ColumnType": "VARCHAR",
            "ColumnDefault": "Default FirstName",
            "ColumnPrecision": "64"
        },
        {
            "ColumnName": "Birthday",
            "ColumnType": "DATETIME",
            "ColumnDefault": 12345678
        }
    ],
    "TableColumnsTotal": 4
}"""
TWO_TEXT = """{
    "Table": "table1",
    "Schema": "test",
    "Version": 1,
    "TableVersion": 100,
    "Query": "alter table test.table1 add col2 varchar(64)",
    "Type": 5,
    "TableColumns": [
        {
            "ColumnId": "1",
            "ColumnName": "col1",
            "ColumnType": "INT",
            "ColumnPrecision": "11"
        },
        {
            "ColumnId": "2",
            "ColumnName": "col2",
            "ColumnType": "VARCHAR",
            "ColumnPrecision": "5"
        }
    ],
    "TableColumnsTotal": 2
}"""
DATABASE_TEXT = """{
    "Table": "",
    "Schema": "schema1",
    "Version": 1,
    "TableVersion": 100,
    "Query": "",
    "Type": 0,
    "TableColumns": null,
    "TableColumnsTotal": 0
}"""


@pytest.mark.parametrize(
    ("columns", "fields", "options", "text", "path"),
    [
        (
            PEOPLE,
            {
                "schema": "schema1",
                "table": "table1",
                "query": "alter table schema1.table1 add Birthday date",
                "type": 5,
            },
            {},
            PEOPLE_TEXT,
            "schema1/table1/meta/schema_100_3752767265.json",
        ),
        (
            ["col1 int", "col2 varchar(5)"],
            {"table": "table1", "query": "alter table test.table1 add col2 varchar(64)", "type": 5},
            {"output-column-id": "true"},
            TWO_TEXT,
            "test/table1/meta/schema_100_0604403549.json",
        ),
        ([], {"schema": "schema1", "table": ""}, {}, DATABASE_TEXT, "schema1/meta/schema_100_3233644819.json"),
    ],
)
def test_a_schema_file_has_this_text_and_stands_there(
    columns: list[Any], fields: dict[str, Any], options: dict[str, str], text: str, path: str
) -> None:
    found = read_document(document(columns, version=100, **fields))
    assert schema_text(found, settings(options)) == text
    assert next(paths(found, settings(options), MOMENT)) == ("schema", path)


def test_query_type_and_version_leave_the_checksum_as_it_is() -> None:
    found = read_document(document(PEOPLE, schema="schema1", table="table1", version=7))
    assert next(paths(found, settings({}), MOMENT)) == ("schema", "schema1/table1/meta/schema_7_3752767265.json")


JSON6 = {"protocol": "canal-json", "file-index-digit": "6"}
MONTHLY = JSON6 | {"date-separator": "month"}
BY_ID = {"use-table-id-as-path": "true", "date-separator": "none"}
TABLE1 = {"table": "table1", "version": 5}
PARTITION = TABLE1 | {"table_id": 55, "partition_of": 54}


@pytest.mark.parametrize(
    ("fields", "options", "moment", "folder", "name"),
    [
        (TABLE1, JSON6 | {"date-separator": "year"}, datetime(2022, 12, 31), "test/table1/5/2022", "CDC000001.json"),
        (TABLE1, MONTHLY, datetime(2022, 12, 31), "test/table1/5/2022-12", "CDC000001.json"),
        (TABLE1, MONTHLY, datetime(2023, 1, 1), "test/table1/5/2023-01", "CDC000001.json"),
        (TABLE1, JSON6, datetime(2022, 12, 31), "test/table1/5/2022-12-31", "CDC000001.json"),
        (TABLE1, JSON6, datetime(2023, 1, 1), "test/table1/5/2023-01-01", "CDC000001.json"),
        ({"table_id": 12345, "version": 5}, BY_ID, MOMENT, "12345/5", "CDC00000000000000000001.csv"),
        (PARTITION, {}, MOMENT, "test/table1/5/55/2023-05-09", "CDC00000000000000000001.csv"),
        (
            PARTITION, {"enable-partition-separator": "false"}, MOMENT,
            "test/table1/5/2023-05-09", "CDC00000000000000000001.csv",
        ),
        (PARTITION, BY_ID, MOMENT, "55/5", "CDC00000000000000000001.csv"),
        (
            {"table": "t1", "version": 450253245302439944}, {}, datetime(2026, 8, 18),
            "test/t1/450253245302439944/2026-08-18", "CDC00000000000000000001.csv",
        ),
    ],
)  # fmt: skip
def test_data_file_and_index_stand_there(
    fields: dict[str, Any], options: dict[str, str], moment: datetime, folder: str, name: str
) -> None:
    found = list(paths(read_document(document(["a int"], **fields)), settings(options), moment))[1:]
    assert found == [("data", f"{folder}/{name}"), ("index", f"{folder}/meta/CDC.index")]


def test_by_id_the_schema_file_of_a_ddl_is_the_whole_tables_and_that_of_rows_the_partitions() -> None:
    of_rows, of_ddl = (read_document(document(["a int"], **PARTITION, type=number)) for number in (0, 5))
    assert next(paths(of_rows, settings(BY_ID), MOMENT))[1].startswith("55/meta/schema_5_")
    assert next(paths(of_ddl, settings(BY_ID), MOMENT))[1].startswith("54/meta/schema_5_")


# Bad input ----------------------------------------------------------------------------------------------------------

ONE = ["a int not null", "b varchar(9)"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "the input is not JSON: .*line 1"),
        ("", "the input is not JSON"),
        ('{"a": NaN}', "not JSON: JSON has no number NaN"),
        ('{"a": 1e99999999999999999999}', "not JSON: a number's exponent is too long"),
        ('{"a": ' + "[" * 100_000, "not JSON: it is nested too deeply"),
        ('{"schema": "\\ud800"}', "half of a surrogate pair"),
        ("[]", "must be one JSON object"),
        ("{}", "needs a field 'schema' that is a text"),
        ('{"schema": "s"}', "needs a field 'table' that is a text"),
        ('{"schema": "s", "table": "t"}', "needs a field 'columns' that is a list"),
        ('{"schema": "s", "table": "t", "columns": "a int"}', "'columns' that is a list"),
        (document(ONE, schema=1), "'schema' that is a text"),
        (document(ONE, schema=""), "'schema' must be a name"),
        (document(ONE, table="\udcff"), "'table' must be a name in UTF-8"),
        (document(ONE, table=""), "means a database"),
        (document(ONE, rows={}), "'rows' that is a list"),
        (document(ONE, version=-1), "'version' that is a whole number from 0"),
        (document(ONE, version=1 << 63), "'version' that is a whole number"),
        (document(ONE, table_id=True), "'table_id' that is a whole number"),
        (document(ONE, table_id="7"), "'table_id' that is a whole number"),
        (document(ONE, partition_of=1.5), "'partition_of' that is a whole number"),
        (document(ONE, query=None), "'query' that is a text"),
        (document(ONE, tabel="t"), "the input has the unknown field 'tabel'; known: schema, table, columns, rows"),
        (document(["a inte"]), "'a' has the unknown type 'inte'"),
        (document(["a int", "a text"]), "two columns are called 'a'"),
        (document([["a"]]), "column 1 must be a SQL definition or an object"),
        (document(["a int", {"name": "b", "type": "int", "size": 3}]), "column 2 .* unknown column field 'size'"),
        (document(["a int", {"name": "b"}]), "column 2 must be .* 'type'"),
        (document(ONE, [1]), "row 1 must be an object whose kind is one of insert, update, delete"),  # type: ignore[arg-type]
        (document(ONE, {"kind": "upsert"}), "row 1 must be an object whose kind"),
        (document(ONE, insert(1, ""), insert(2, "") | {"when": 1}), "row 2 has the unknown field 'when'; known: kind,"),
        (document(ONE, {"kind": "insert"}), "row 1, `after` must be an object by column name, or a list of 2 values"),
        (document(ONE, insert(1)), "row 1, `after` must be .* a list of 2 values"),
        (document(ONE, {"kind": "update", "after": [1, ""]}), "row 1, `before` must be"),
        (document(ONE, insert(1, "") | {"before": [1, ""]}), "row 1, of kind insert, has no `before`: leave it out"),
        (document(ONE, delete(1, "") | {"after": {}}), "row 1, of kind delete, has no `after`"),
        (document(ONE, {"kind": "insert", "after": {"a": 1}}), "no value for column 'b'; NULL is written null"),
        (
            document(ONE, {"kind": "insert", "after": {"a": 1, "b": "", "c": 1}}),
            "'c', which is not a column; known: a, b",
        ),
        (document(ONE, insert(1, ""), insert("x", "")), "row 2, `after`: column 'a' .int. cannot be 'x': .* a number"),
        (document(ONE, delete(None, "")), "row 1, `before`: column 'a' .int. cannot be NULL: .* NOT NULL"),
        (document(ONE, insert(2**31, "")), "row 1, `after`: column 'a' .* from -2147483648 to 2147483647"),
        (document(ONE, insert(1, "", ts=-1)), "row 1 has the commit_ts -1; it must be a whole number from 0"),
        (document(ONE, insert(1, "", ts=1 << 63)), "row 1 has the commit_ts 9223372036854775808"),
        (document(ONE, insert(1, "") | {"start_ts": "7"}), "row 1 has the start_ts '7'"),
    ],
)
def test_bad_input_is_refused_naming_the_culprit(text: str, sentence: str) -> None:
    with pytest.raises(BadEvents, match=sentence) as refusal:
        read_document(text)
    assert "\n" not in str(refusal.value)


def test_a_table_of_which_nothing_is_selected_is_refused() -> None:
    with pytest.raises(BadSetting, match=r"no column of test\.t: keep one"):
        encoded(document(["a int"], insert(1)), LF, selecting(("test.*", ["b"])))


TYPES = [
    *("tinyint", "bigint unsigned", "bit(7)", "year", "float", "double unsigned", "decimal(9,3)", "decimal", "json"),
    *("varchar(9)", "blob", "date", "datetime(3)", "time", "enum('a','')", "set('a','b')", "vector", "vector(2)"),
]
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["", "a", "1e400", "0b1", "[]"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["hex", "base64", "x"]), inner),
    max_leaves=5,
)


@given(st.sampled_from(TYPES), ANYTHING)
def test_any_value_is_written_by_both_protocols_or_refused(declared: str, value: Any) -> None:
    try:
        found = read_document(document([f"a {declared}"], insert(value)))
    except BadEvents:
        return
    assert json.loads(data_bytes(found, settings(CANAL), NOW_MS))["data"]
    if found.rows[0]["after"] != [b"0"] or "enum" not in declared:
        assert data_bytes(found, settings(LF), NOW_MS)


@given(st.dictionaries(st.sampled_from(["schema", "table", "columns", "rows", "version", "query", "type"]), ANYTHING))
def test_any_document_is_read_or_refused(fields: dict[str, Any]) -> None:
    try:
        found = read_document(json.dumps(json.loads(document(["a int"], insert(1))) | fields))
    except BadEvents:
        return
    assert schema_text(found, settings({}))


# The guide ----------------------------------------------------------------------------------------------------------

GUIDE = Path(__file__).parents[2] / "docs" / "encode.md"


def examples() -> list[tuple[str, str, str]]:
    """Input, command and output of every example in the guide."""
    found, rows = [], ""
    for kind, body in re.findall(r"^```(json|console)\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.M | re.S):
        if kind == "json":
            rows = body
        else:
            command, _, output = body.partition("\n")
            found.append((rows, command, output))
    return found


@pytest.mark.parametrize(("rows", "command", "output"), examples())
def test_the_guide_shows_what_comes_out(rows: str, command: str, output: str) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--option", action="append", default=[])
    parser.add_argument("--protocol", default="csv")
    parser.add_argument("--output", default="data")
    parser.add_argument("--now", type=int, default=0)
    flags = parser.parse_args(shlex.split(command.removesuffix(" < rows.json").removeprefix("$ tidegate encode")))
    chosen = settings(dict(option.split("=") for option in flags.option) | {"protocol": flags.protocol})
    table = read_document(rows)
    shown = {
        "data": lambda: data_bytes(table, chosen, flags.now).decode().replace("\r\n", "\n"),
        "schema": lambda: schema_text(table, chosen) + "\n",
        "paths": lambda: "".join(
            f"{what:<6} {path}\n" for what, path in paths(table, chosen, datetime.fromtimestamp(flags.now / 1000, UTC))
        ),
    }
    assert shown[flags.output]() == output


def test_the_guide_has_examples_of_every_output() -> None:
    assert len(examples()) == 4
