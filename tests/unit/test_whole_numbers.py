"""A text in the column of a number cannot forge a row or a field: it is refused, and nobody sees its value."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.format.bad_values import BadRows
from tidegate.format.encode import protocol
from tidegate.format.encode.canal_json import CanalOptions
from tidegate.format.encode.csv import CsvOptions
from tidegate.format.tables import Column, Layout
from tidegate.testing import START_TS, change, events_batch

WHOLE = ("tinyint", "smallint", "mediumint", "int", "bigint", "bit", "year")
ENCODINGS = [CsvOptions(), CsvOptions(quote=""), CsvOptions(output_old_value=True), CanalOptions()]
FORGED = [
    b'1\r\n"D","t1","shop",7',
    b'1","v":"forged',
    b"1,2",
    b"abc",
    b"",
    b"-",
    b"--1",
    b"1-",
    b"+1",
    b" 1",
    b"1.0",
    b"0x10",
    b"1e5",
    "١".encode(),
    b"\xff",
]
Row = dict[str, Any]


def table(kind: str) -> Layout:
    return Layout((Column("id", "int", nullable=False, pk=True), Column("n", kind), Column("v", "varchar")))


def encoded(rows: list[Row], layout: Layout, encoding: protocol.Encoding) -> list[bytes]:
    found: list[bytes] = protocol.encode(events_batch(rows), np.arange(len(rows)), layout, encoding).to_pylist()
    return found


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("kind", WHOLE)
@pytest.mark.parametrize("text", FORGED)
def test_a_text_in_a_numbers_column_is_refused_with_table_column_and_commit_ts(
    text: bytes, kind: str, encoding: protocol.Encoding
) -> None:
    layout = table(kind)
    good = [change(2, START_TS, n, b"%d" % n, number, b"x") for n, number in enumerate([b"5", None, b"0"])]
    bad = change(1, START_TS + 9, 9, b"9", text, b"x")
    with pytest.raises(BadRows) as caught:
        encoded([*good, bad], layout, encoding)
    sentence = str(caught.value)
    assert sentence == f"shop.t1, commit-ts {START_TS + 9}, column 'n': the value is not a whole number"
    assert caught.value.rows == [3]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_all_rows_that_are_wrong_in_one_way_are_named_together(encoding: protocol.Encoding) -> None:
    rows = [change(1, START_TS + n, n, b"%d" % n, b"x" if n % 3 else b"7", b"v") for n in range(10)]
    with pytest.raises(BadRows) as caught:
        encoded(rows, table("int"), encoding)
    assert caught.value.rows == [n for n in range(10) if n % 3]


def test_an_old_row_that_is_not_written_is_not_checked() -> None:
    update = change(1, START_TS, 1, b"1", b"2", b"x", kind="update", before=[b"1", b"no number", b"x"])
    assert encoded([update], table("int"), CsvOptions()) == [b'"U","t1","shop",1,2,"x"\r\n']
    for encoding in (CsvOptions(output_old_value=True), CanalOptions()):
        with pytest.raises(BadRows, match="column 'n'"):
            encoded([update], table("int"), encoding)


def test_a_column_that_is_left_out_is_not_checked() -> None:
    row = events_batch([change(1, START_TS, 1, b"1", b"no number", b"x")])
    lines = protocol.encode(row, np.arange(1), table("int"), CsvOptions(), (0, 2))
    assert lines.to_pylist() == [b'"I","t1","shop",1,"x"\r\n']


@pytest.mark.parametrize(("kind", "text"), [("enum", b"a"), ("set", b"1,2")])
def test_canal_json_writes_enum_and_set_as_numbers_and_refuses_other_texts(kind: str, text: bytes) -> None:
    layout = Layout((Column("n", kind, elems=("a", "b")),))
    with pytest.raises(BadRows, match=f"shop.t1, commit-ts {START_TS}, column 'n': the value is not a whole number"):
        encoded([change(1, START_TS, 1, text)], layout, CanalOptions())


@pytest.mark.parametrize(("kind", "text"), [("float", b"forged"), ("double", b"1e999"), ("bigint", b"9" * 25)])
def test_canal_json_names_the_place_of_a_number_that_it_cannot_write(kind: str, text: bytes) -> None:
    layout = Layout((Column("id", "int"), Column("n", kind, unsigned=True)))
    rows = [change(2, START_TS, 1, b"1", b"1"), change(1, START_TS + 1, 2, b"1", text)]
    with pytest.raises(BadRows, match=f"shop.t1, commit-ts {START_TS + 1}, column 'n': the value is ") as caught:
        encoded(rows, layout, CanalOptions())
    assert caught.value.rows == [1]
    assert text.decode() not in str(caught.value)


TEXTS = st.none() | st.integers(-(2**70), 2**70).map(lambda n: b"%d" % n) | st.binary(max_size=6)


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=8))
@example([(b"-1", b"1-")])
@example([(b"--", b"1"), (b"5", b"5")])
@example([(b"-", b"-5"), (b"", None)])
def test_the_check_by_bytes_agrees_with_a_plain_one(values: list[tuple[bytes | None, bytes | None]]) -> None:
    layout = Layout((Column("v", "varchar"), Column("a", "bigint"), Column("b", "int")))
    rows = [change(1, START_TS + n, n, b"x", *pair) for n, pair in enumerate(values)]
    fits = all(text is None or re.fullmatch(rb"-?[0-9]+", text) for pair in values for text in pair)
    try:
        encoded(rows, layout, CsvOptions())
    except BadRows:
        assert not fits
    else:
        assert fits
