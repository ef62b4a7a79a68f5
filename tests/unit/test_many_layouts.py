"""Rows of many layouts, worked on together, come out as if each layout were alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import BadEvents
from tidegate.format.encode import protocol
from tidegate.format.encode.canal_json import CanalOptions
from tidegate.format.encode.csv import CsvOptions
from tidegate.format.encode.spans import spans_of
from tidegate.format.layout_columns import LayoutColumns, RowLayouts, alike
from tidegate.format.layout_texts import LayoutTexts, defined
from tidegate.format.rules.changes import TableRules, key_changes
from tidegate.format.rules.rules import ColumnSelector, ColumnSelectors, Rules
from tidegate.format.tables import Column, Layout
from tidegate.testing import SHAPE, START_TS, change, events_batch, layout_row

Row = dict[str, Any]
TEXTS = st.sampled_from(
    [b"", b"plain", b'a "quoted" word', b"line\r\nbreak", b"a,b\\c", "größe\u2028".encode(), b"<&>\x01", b"\xff\xfe"]
)
DIGITS = st.integers(0, 120).map(lambda n: b"%d" % n)
VALUES: dict[str, st.SearchStrategy[bytes]] = {
    "tinyint": DIGITS,
    "int": st.integers(0, 2**32 - 1).map(lambda n: b"%d" % n),
    "bigint": st.sampled_from([b"0", b"7", b"9223372036854775808", b"18446744073709551615"]),
    "bit": DIGITS,
    "year": st.just(b"2026"),
    "double": st.sampled_from([b"1e6", b"0.25", b"-3.140", b"1e-7", b"12345678901.5", b"nan"]),
    "float": st.sampled_from([b"1.5", b"1e10", b"0.1", b"-0"]),
    "decimal": st.sampled_from([b"0.50", b"-12.00"]),
    "varchar": TEXTS,
    "text": TEXTS,
    "json": st.sampled_from([b'{"a": [1.0, null]}', b"[]"]),
    "datetime": st.just(b"2026-01-31 23:59:59.500"),
    "enum": st.sampled_from([b"1", b"2"]),
    "set": st.sampled_from([b"0", b"1", b"2", b"3"]),
}
NAMES = st.sampled_from(
    ["id", "Ünïcode", 'quo"te', "a,b", "tab\there", b"\xff\x80".decode("utf-8", "surrogateescape"), "v"]
)
OPTIONS = st.one_of(
    st.builds(
        CsvOptions,
        quote=st.sampled_from(['"', ""]),
        delimiter=st.sampled_from([",", "||"]),
        include_commit_ts=st.booleans(),
        output_old_value=st.booleans(),
        binary_encoding=st.sampled_from(["base64", "hex"]),
    ),
    st.builds(
        CanalOptions, tidb_extension=st.booleans(), only_updated_columns=st.booleans(), content_compatible=st.booleans()
    ),
)


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    names = draw(st.lists(NAMES, min_size=1, max_size=5, unique=True))
    columns = []
    for at, name in enumerate(names):
        kind = draw(st.sampled_from(sorted(VALUES)))
        elems = ("a", 'b"ee', "c,d")[: draw(st.integers(2, 3))] if kind in ("enum", "set") else ()
        flags = {flag: draw(st.booleans()) for flag in ("unsigned", "zerofill")} if kind.endswith("int") else {}
        binary = kind in ("varchar", "text") and draw(st.booleans())
        pk, virtual = draw(st.booleans()), at > 0 and draw(st.sampled_from([False, False, True]))
        columns.append(Column(name, kind, elems=elems, binary=binary, pk=pk, virtual=virtual, **flags))
    keys = draw(st.lists(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True).map(tuple), max_size=2))
    return Layout(tuple(columns), tuple(keys))


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[Layout], pa.RecordBatch]:
    known = draw(st.lists(layouts(), min_size=1, max_size=4, unique_by=lambda layout: layout.fingerprint))
    rows = []
    for seq in range(draw(st.integers(1, 8))):
        table = draw(st.integers(0, len(known) - 1))
        kind = draw(st.sampled_from(["insert", "update", "delete"]))
        old, new = ([draw(st.none() | VALUES[column.type]) for column in known[table].stored] for _ in range(2))
        row = change(table + 1, START_TS + seq, seq, *new, kind=kind, layout=known[table].fingerprint)
        rows.append(row | ({"before": draw(st.sampled_from([old, new]))} if kind == "update" else {}))
    return known, events_batch(rows)


def one_by_one(
    rows: pa.RecordBatch, known: list[Layout], options: protocol.Encoding, chosen: RowLayouts
) -> list[bytes]:
    by_key = {layout.fingerprint: layout for layout in known}
    lines: list[bytes] = []
    for at, key in enumerate(rows.column("layout").to_pylist()):
        positions = chosen.layouts.positions(int(chosen.entry[at]))
        lines += protocol.encode(rows, np.array([at]), by_key[key], options, positions, 7).to_pylist()
    return lines


@given(batches(), OPTIONS)
def test_rows_that_are_encoded_together_have_the_bytes_of_each_alone(
    batch: tuple[list[Layout], pa.RecordBatch], options: protocol.Encoding
) -> None:
    known, rows = batch
    layouts = LayoutColumns.of(known).of_rows(rows)
    order = np.arange(rows.num_rows)[::-1].copy()
    together = protocol.encode_together(rows, order, layouts, options, 7)
    assert together.to_pylist() == one_by_one(rows, known, options, layouts)[::-1]


@given(batches(), st.integers(1, 4))
def test_keys_and_spans_are_those_of_each_layout_alone(batch: tuple[list[Layout], pa.RecordBatch], spans: int) -> None:
    known, rows = batch
    layouts = LayoutColumns.of(known).of_rows(rows)
    changed = key_changes(rows, layouts)
    found = np.zeros(rows.num_rows, bool) if changed is None else changed
    by_key = {layout.fingerprint: layout for layout in known}
    for at, key in enumerate(rows.column("layout").to_pylist()):
        one = rows.slice(at, 1)
        alone = key_changes(one, alike(by_key[key], one))
        assert found[at] == (alone is not None)
        assert spans_of(rows, layouts, spans)[at] == spans_of(one, alike(by_key[key], one), spans)[0]


def test_the_columns_of_a_layout_are_what_the_layout_says() -> None:
    keyless = Layout(
        (Column("a", "int"), Column("b", "int", nullable=False), Column("c", "enum", elems=("x", "y"), virtual=True)),
        (("a",), ("b",)),
    )
    found = LayoutColumns.of([SHAPE, keyless])
    for layout in (SHAPE, keyless):
        at = found.fingerprint.tolist().index(layout.fingerprint)
        mine = slice(found.first[at], found.first[at + 1])
        assert found.name[mine].to_pylist() == [column.name.encode() for column in layout.stored]
        assert [found.definitions[n].type for n in found.definition[mine]] == [c.type for c in layout.stored]
        keys = found.key_position[found.key_first[at] : found.key_first[at + 1]]
        assert tuple(keys.tolist()) == layout.key_positions
        assert [n for n, is_handle in zip(layout.stored, found.handle[mine], strict=True) if is_handle] == [
            column for column in layout.stored if column.name in layout.handle_key
        ]


def handle_only(kind: str) -> RowLayouts:
    unique = Layout((Column("v", "varchar"), Column("k", "int", nullable=False)), (("k",),))
    rows = events_batch(
        [change(1, START_TS, 1, kind=kind), change(2, START_TS, 2, b"x", b"5", kind=kind, layout=unique.fingerprint)]
    )
    layouts = LayoutColumns.of([SHAPE, unique]).of_rows(rows)
    options = CanalOptions(delete_only_handle_key=True)
    together = protocol.encode_together(rows, np.arange(2), layouts, options, 7)
    assert together.to_pylist() == one_by_one(rows, [SHAPE, unique], options, layouts)
    return layouts


@pytest.mark.parametrize("kind", ["insert", "delete"])
def test_a_delete_shows_only_the_handle_key_of_its_own_layout(kind: str) -> None:
    handle_only(kind)


def test_columns_are_selected_by_table_where_tables_share_a_layout() -> None:
    selectors = ColumnSelectors((ColumnSelector(("shop.t1",), ("id",)),))
    wide = Layout((*SHAPE.columns, Column("w", "int")))
    rows = events_batch(
        [
            change(1, START_TS, 1),
            change(2, START_TS, 2),
            change(1, START_TS, 3, b"3", b"v", b"9", layout=wide.fingerprint),
        ]
    )
    by_key = {layout.fingerprint: layout for layout in (SHAPE, wide)}
    layouts = LayoutColumns.of(by_key.values()).of_rows(rows)
    chosen = TableRules(Rules(selectors=selectors)).selections(rows, layouts, by_key.__getitem__)
    lines = protocol.encode_mixed(rows, np.arange(3), chosen, by_key.__getitem__, CsvOptions()).to_pylist()
    assert lines == [b'"I","t1","shop",1\r\n', b'"I","t2","shop",2,"v2"\r\n', b'"I","t1","shop",3\r\n']


@pytest.mark.parametrize("many", [1, 5000])
def test_a_layout_with_many_rows_is_encoded_alone_and_all_come_out_in_order(many: int) -> None:
    wide = Layout((*SHAPE.columns, Column("w", "int")))
    last = Layout((*SHAPE.columns, Column("x", "int")))
    by_key = {layout.fingerprint: layout for layout in (SHAPE, wide, last)}
    rows = [change(1, START_TS + n, n) for n in range(many)]
    rows.insert(many // 2, change(2, START_TS, 7, b"7", b"v", b"9", layout=wide.fingerprint))
    rows.append(change(3, START_TS, 8, b"8", b"v", b"9", layout=last.fingerprint))
    batch = events_batch(rows)
    layouts = LayoutColumns.of(by_key.values()).of_rows(batch)
    lines = protocol.encode_mixed(batch, np.arange(len(rows)), layouts, by_key.__getitem__, CsvOptions()).to_pylist()
    assert [line.split(b",")[3].strip() for line in lines] == [row["after"][0] for row in rows]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ([b"1", b"x", b"no"], "column 'w': the value is not a whole number"),
        ([b"1", b"x"], "the insert has 2 values in `after` but its layout has 3"),
    ],
)
@pytest.mark.parametrize("options", [CsvOptions(), CanalOptions()])
def test_a_wrong_row_among_many_layouts_is_named_as_if_it_were_alone(
    values: list[bytes], sentence: str, options: protocol.Encoding
) -> None:
    wide = Layout((*SHAPE.columns, Column("w", "int")))
    by_key = {layout.fingerprint: layout for layout in (SHAPE, wide)}
    rows = events_batch([change(1, START_TS, 1), change(2, START_TS, 2, *values, layout=wide.fingerprint)])
    layouts = LayoutColumns.of(by_key.values()).of_rows(rows)
    with pytest.raises(BadEvents, match=f"shop.t2, commit-ts {START_TS}.*{sentence}"):
        protocol.encode_mixed(rows, np.arange(2), layouts, by_key.__getitem__, options)


def test_a_layout_row_in_another_spelling_is_kept_in_ours() -> None:
    spaced = layout_row()["ddl"].replace(",", ", ")
    found = defined(events_batch([layout_row() | {"ddl": spaced}, layout_row()]))
    assert found.text.to_pylist() == [SHAPE.to_json()]
    with pytest.raises(BadEvents, match="says fingerprint 5 but its columns have"):
        defined(events_batch([layout_row() | {"layout": 5}]))


def test_one_layout_that_arrow_cannot_read_does_not_keep_the_others_from_it() -> None:
    odd = Layout((Column(b"\xff".decode("utf-8", "surrogateescape"), "int"),))
    known = LayoutTexts.of_dict({layout.fingerprint: layout.to_json() for layout in (SHAPE, odd)})
    found = LayoutColumns.parse(known.fingerprint, known.text)
    assert sorted(found.name.to_pylist()) == [b"id", b"v", b"\xff"]
