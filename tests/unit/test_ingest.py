"""Encoding a micro-batch into the spool: order, chunks, and what comes back when the input is wrong."""

from __future__ import annotations

import tempfile
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.errors import BadEvents
from tidegate.events import EVENTS, LAYOUT, RESOLVED
from tidegate.executor.floor import Floor
from tidegate.executor.ingest import check_schema, ingest
from tidegate.executor.jobs import IngestJob, IngestOptions
from tidegate.executor.layouts import read_layouts
from tidegate.executor.rows import ERROR, ITEMS, ROWS, STALE, TIMES, UNKNOWN_LAYOUT
from tidegate.executor.segments import FileRoom
from tidegate.format.encode.csv import CsvOptions
from tidegate.format.layout_texts import NO_LAYOUTS, LayoutTexts
from tidegate.format.tables import Column, Layout
from tidegate.testing import SHAPE, START_TS, change, events_batch, layout_row, resolved_row

WIDE = Layout((*SHAPE.columns, Column("w", "int")))
Row = dict[str, Any]
Item = dict[str, Any]


def job(folder: str | Path, **changes: Any) -> IngestJob:
    known = LayoutTexts.of_dict({layout.fingerprint: layout.to_json() for layout in (SHAPE, WIDE)})
    options = IngestOptions(CsvOptions(), 1 << 20, 64 << 20)
    chosen = {field.name: changes.pop(field.name) for field in fields(options) if field.name in changes}
    made = IngestJob(replace(options, **chosen), known, FileRoom(None, 0, str(folder)), 1 << 30)
    return replace(made, **changes)


def run(task: IngestJob, *batches: list[Row], name: str = "0-0-0") -> list[Item]:
    items = pa.Table.from_batches(ingest(map(events_batch, batches), task, name), ITEMS)
    return [item for item in items.to_pylist() if item["kind"] != TIMES]


def naive(row: Row) -> bytes:
    """One row the slow way, as the format says."""
    op = {"insert": "I", "update": "U", "delete": "D"}[row["kind"]]
    number, *texts = row["after"] or row["before"]
    fields = [f'"{op}"', f'"{row["table_name"]}"', f'"{row["schema_name"]}"', number.decode()]
    fields.append('"' + texts[0].decode().replace('"', '""') + '"' if texts[0] is not None else "\\N")
    fields.extend(text.decode() for text in texts[1:])
    return (",".join(fields) + "\r\n").encode()


def text_of(item: Item) -> bytes:
    return Path(item["segment"]).read_bytes()[item["offset"] : item["offset"] + item["length"]]


def by_table(items: list[Item]) -> dict[int, list[Item]]:
    """The row items of each table in the order in which a file is assembled."""
    found: dict[int, list[Item]] = {}
    for item in sorted((i for i in items if i["kind"] == ROWS), key=lambda i: (i["first_ts"], i["first_seq"])):
        found.setdefault(item["table_id"], []).append(item)
    return found


def assembled(items: list[Item]) -> dict[int, bytes]:
    return {table: b"".join(map(text_of, chunks)) for table, chunks in by_table(items).items()}


def expected(rows: list[Row]) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    for row in sorted(rows, key=lambda r: (r["commit_ts"], r["seq"])):
        found[row["table_id"]] = found.get(row["table_id"], b"") + naive(row)
    return found


@st.composite
def micro_batches(draw: st.DrawFn) -> list[list[Row]]:
    """Arrow batches of a task: transactions over a few tables; rows of one batch in any order; versions change."""
    tables, seq, ts = draw(st.integers(1, 4)), 0, START_TS
    layouts: dict[int, Layout] = {}
    versions: dict[int, int] = {}
    batches: list[list[Row]] = []
    for _ in range(draw(st.integers(1, 3))):
        rows: list[Row] = []
        for _ in range(draw(st.integers(0, 8))):
            ts += 1
            for table in draw(st.lists(st.integers(1, tables), min_size=1, max_size=3, unique=True)):
                if draw(st.integers(0, 5)) == 0:
                    versions[table], layouts[table] = ts, draw(st.sampled_from([SHAPE, WIDE]))
                layout = layouts.get(table, SHAPE)
                for _ in range(draw(st.integers(1, 4))):
                    seq += 1
                    text = draw(st.sampled_from([b"a", b'say "x"', None, b"y" * 60]))
                    values = [str(seq).encode(), text, b"5"][: len(layout.columns)]
                    kind = draw(st.sampled_from(["insert", "update", "delete"]))
                    known = {"table_version": versions.get(table, START_TS), "layout": layout.fingerprint}
                    rows.append(change(table, ts, seq, *values, kind=kind, **known))
        batches.append(draw(st.permutations(rows)))
    return batches


@given(batches=micro_batches(), chunk_bytes=st.sampled_from([1, 40, 100, 10_000]), file_size=st.sampled_from([60, 400]))
@settings(max_examples=4 * settings().max_examples)
def test_order_is_kept_per_table_for_any_interleaving(
    batches: list[list[Row]], chunk_bytes: int, file_size: int
) -> None:
    rows = [row for batch in batches for row in batch]
    with tempfile.TemporaryDirectory() as folder:
        items = run(job(folder, chunk_bytes=chunk_bytes, file_size_bytes=file_size), *batches)
        assert assembled(items) == expected(rows)
        for table, chunks in by_table(items).items():
            _check_chunks(chunks, [row for row in rows if row["table_id"] == table], chunk_bytes, file_size)


def _check_chunks(chunks: list[Item], rows: list[Row], chunk_bytes: int, file_size: int) -> None:
    """Chunks of one table do not overlap, hold one version, and end where a transaction ends."""
    for before, after in pairwise(chunks):
        assert (before["last_ts"], before["last_seq"]) < (after["first_ts"], after["first_seq"])
    for chunk in chunks:
        low, high = (chunk["first_ts"], chunk["first_seq"]), (chunk["last_ts"], chunk["last_seq"])
        held = [row for row in rows if low <= (row["commit_ts"], row["seq"]) <= high]
        assert len(held) == chunk["rows"]
        assert {(row["table_version"], row["layout"]) for row in held} == {(chunk["version"], chunk["layout"])}
        inside = [row for row in held if row["commit_ts"] != chunk["last_ts"]]
        assert (
            sum(len(naive(row)) for row in inside) < chunk_bytes or not inside or chunk["first_ts"] == chunk["last_ts"]
        )
    for before, after in pairwise(chunks):
        if before["last_ts"] == after["first_ts"] and before["version"] == after["version"]:
            whole = [row for row in rows if row["commit_ts"] == before["last_ts"] and row["layout"] == before["layout"]]
            assert sum(len(naive(row)) for row in whole) > file_size


def test_rows_in_order_are_not_copied_around(tmp_path: Path) -> None:
    rows = [change(t, START_TS + n, 10 * t + n) for t in (1, 2) for n in range(3)]
    items = run(job(tmp_path), rows)
    assert [(item["table_id"], item["offset"]) for item in items] == [(1, 0), (2, items[0]["length"])]
    assert Path(items[0]["segment"]).read_bytes() == b"".join(map(naive, rows))


def test_all_rows_of_an_arrow_batch_are_one_write_into_one_closed_segment(tmp_path: Path) -> None:
    rows = [change(1 + n % 3, START_TS + n, n) for n in range(30)]
    items = run(job(tmp_path, chunk_bytes=50), rows, name="5-2-77")
    assert {Path(item["segment"]).name for item in items} == {"5-2-77-0.seg"}
    assert sum(item["length"] for item in items) == Path(items[0]["segment"]).stat().st_size
    assert len(items) > 3


def test_a_transaction_is_cut_only_if_it_exceeds_the_file_size(tmp_path: Path) -> None:
    rows = [change(1, START_TS + 1, n) for n in range(100)]
    size = sum(map(len, map(naive, rows)))
    assert len(run(job(tmp_path / "", chunk_bytes=100, file_size_bytes=size), rows)) == 1
    cut = run(job(tmp_path, chunk_bytes=100, file_size_bytes=size - 1), rows, name="0-0-1")
    assert len(cut) > 10
    assert assembled(cut) == expected(rows)


def test_an_update_counts_as_one_row_and_a_partition_keeps_its_logical_table(tmp_path: Path) -> None:
    row = change(55, START_TS + 1, 1, b"1", b"x", kind="update", logical_table_id=50)
    (item,) = run(job(tmp_path), [row])
    assert (item["rows"], item["table_id"], item["logical_table_id"], item["span"]) == (1, 55, 50, 0)
    assert (item["schema_name"], item["table_name"]) == ("shop", "t55")


def test_a_table_without_a_logical_id_is_its_own(tmp_path: Path) -> None:
    (item,) = run(job(tmp_path), [change(55, START_TS + 1, 1, logical_table_id=None)])
    assert item["logical_table_id"] == 55


def test_control_rows_come_back_as_items(tmp_path: Path) -> None:
    ddl = {"kind": "ddl", "commit_ts": START_TS + 5, "seq": 9, "table_id": 1, "ddl": "{}"}
    rows = [layout_row(), ddl, resolved_row(START_TS + 7)]
    controls = [("ddl", START_TS + 5), (RESOLVED, START_TS + 7)]
    assert [(item["kind"], item["first_ts"]) for item in run(job(tmp_path), rows)] == controls, "the layout is known"
    assert list(tmp_path.iterdir()) == [], "nothing to write, so no segment"
    *items, defined = run(job(tmp_path, layouts=NO_LAYOUTS), rows)
    assert [(item["kind"], item["first_ts"]) for item in items] == controls
    assert defined["kind"] == LAYOUT
    assert read_layouts(defined["segment"]).text.to_pylist() == [SHAPE.to_json()]


def test_a_layout_row_serves_the_rows_of_its_own_task(tmp_path: Path) -> None:
    items = run(job(tmp_path, layouts=NO_LAYOUTS), [layout_row(), change(1, START_TS + 1, 1)])
    assert [item["kind"] for item in items] == [ROWS, LAYOUT]


def test_an_unknown_layout_comes_back_as_an_item_that_names_it(tmp_path: Path) -> None:
    items = run(job(tmp_path, layouts=NO_LAYOUTS), [change(1, START_TS + 1, 1), layout_row()])
    assert [item["kind"] for item in items if item["kind"] != LAYOUT] == [ROWS]
    items = run(job(tmp_path, layouts=NO_LAYOUTS), [change(1, START_TS + 1, 1)], name="0-0-1")
    assert [(item["kind"], item["layout"], item["segment"]) for item in items] == [
        (UNKNOWN_LAYOUT, SHAPE.fingerprint, None)
    ]


def test_a_task_that_meets_an_unknown_layout_writes_nothing_for_its_batch_runs_again(tmp_path: Path) -> None:
    rows = (
        [layout_row(), change(1, START_TS + 1, 1)],
        [change(2, START_TS + 1, 1, layout=7)],
        [change(1, START_TS + 2, 2)],
    )
    items = run(job(tmp_path, layouts=NO_LAYOUTS), *rows)
    assert [item["kind"] for item in items] == [ROWS, LAYOUT, UNKNOWN_LAYOUT], "only what came before"


def test_a_chunk_has_rows_of_one_layout(tmp_path: Path) -> None:
    wide = change(1, START_TS + 2, 2, b"2", b"w", b"7", layout=WIDE.fingerprint)
    items = run(job(tmp_path), [change(1, START_TS + 1, 1), wide, change(1, START_TS + 3, 3)])
    assert [(item["layout"], item["rows"]) for item in items] == [
        (SHAPE.fingerprint, 1),
        (WIDE.fingerprint, 1),
        (SHAPE.fingerprint, 1),
    ]
    assert b"".join(map(text_of, items)) == (
        b'"I","t1","shop",1,"v1"\r\n"I","t1","shop",2,"w",7\r\n"I","t1","shop",3,"v3"\r\n'
    )


# -- wrong input -----------------------------------------------------------------------------------------------------


def good(seq: int = 1) -> Row:
    return change(1, START_TS + seq, seq)


@pytest.mark.parametrize(
    ("row", "culprit", "remedy"),
    [
        (good(7) | {"table_name": None}, "NULL in table_name (commit-ts 463267587686400007, seq 7)", "fill it in"),
        (good(7) | {"schema_name": None}, "NULL in schema_name", "filter such rows out"),
        (good(7) | {"table_id": None}, "NULL in table_id", "filter such rows out"),
        (
            good(7) | {"after": [b"1"]},
            "shop.t1, commit-ts 463267587686400007: the insert has 1 values",
            "layout that fits",
        ),
        (good(7) | {"after": None}, "shop.t1, commit-ts 463267587686400007: the insert has no val", "layout that fits"),
        (good(7) | {"kind": "upsert"}, "unknown kind of event 'upsert'", "known: insert, update, delete, ddl"),
        (good(7) | {"table_id": 8, "table_name": ""}, "`shop`.`` cannot be a path", "filter it"),
        (good(7) | {"table_id": 8, "table_name": "x" * 700}, "xxx` cannot be a path", "rename it"),
        (good(7) | {"table_id": 8, "schema_name": "数" * 234}, "`.`t1` cannot be a path", "route it"),
        (layout_row() | {"layout": 5}, "says fingerprint 5", "Layout.fingerprint"),
        (layout_row() | {"ddl": "no json"}, "a layout must be JSON like", '"columns"'),
        (layout_row() | {"ddl": None}, "a layout must be JSON like", '"columns"'),
    ],
)
def test_wrong_input_is_one_error_item_that_names_culprit_and_remedy(
    tmp_path: Path, row: Row, culprit: str, remedy: str
) -> None:
    items = run(job(tmp_path), [good(1), good(2)], [good(3), row], [good(9)])
    assert [item["kind"] for item in items] == [ERROR]
    assert items[0]["text"].startswith("BadEvents: ")
    assert culprit in items[0]["text"]
    assert remedy in items[0]["text"]
    assert items[0]["segment"] is None, "no segment is referenced, so nothing of the batch can be accepted"


@pytest.mark.parametrize("column", ["kind", "commit_ts", "seq"])
def test_a_null_that_the_schema_of_a_dataframe_cannot_rule_out_is_refused(tmp_path: Path, column: str) -> None:
    loose = pa.schema([field.with_nullable(True) for field in EVENTS])
    batch = pa.RecordBatch.from_pylist([good(1), good(2) | {column: None}], schema=loose)
    (item,) = pa.Table.from_batches(ingest([batch], job(tmp_path), "0-0-0"), ITEMS).to_pylist()
    assert item["kind"] == ERROR
    assert f"NULL in {column}" in item["text"]


def test_a_full_spool_comes_back_as_an_error_item(tmp_path: Path) -> None:
    items = run(job(tmp_path / "gone"), [good()])
    assert [item["kind"] for item in items] == [ERROR]
    assert items[0]["text"].startswith("SpoolLost: ")


def test_more_than_the_allowance_fails_with_the_name_of_the_sources_limit(tmp_path: Path) -> None:
    size = len(naive(good(1)))
    assert run(job(tmp_path, allowance_bytes=2 * size), [good(1), good(2)])[0]["kind"] == ROWS
    items = run(job(tmp_path, allowance_bytes=2 * size), [good(1), good(2)], [good(3)], name="0-0-1")
    assert [item["kind"] for item in items] == [ERROR]
    assert f"more than {2 * size} encoded bytes" in items[0]["text"]
    assert "maxOffsetsPerTrigger" in items[0]["text"]


# -- the floor -------------------------------------------------------------------------------------------------------


@given(
    rows=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 6)), min_size=1, max_size=30),
    durable=st.lists(st.tuples(st.integers(0, 29), st.integers(-1, 1)), min_size=1, max_size=5),
)
@settings(max_examples=4 * settings().max_examples)
def test_the_floor_drops_exactly_what_is_durable(rows: list[tuple[int, int]], durable: list[tuple[int, int]]) -> None:
    changes = [change(table, START_TS + ts, seq) for seq, (table, ts) in enumerate(sorted(rows, key=lambda r: r[1]))]
    marks: dict[int, tuple[int, int]] = {}
    for at, shift in durable:  # at a row, or just before or behind one
        row = changes[at % len(changes)]
        marks[row["table_id"]] = (row["commit_ts"] - START_TS, row["seq"] + shift)
    kept = [c for c in changes if (c["commit_ts"] - START_TS, c["seq"]) > marks.get(c["table_id"], (-1, -1))]
    tables = sorted(marks)
    floor = Floor(
        np.array(tables),
        np.array([START_TS + marks[table][0] for table in tables]),
        np.array([marks[table][1] for table in tables]),
    )
    with tempfile.TemporaryDirectory() as folder:
        items = run(job(folder, floor=floor), changes)
        assert assembled(items) == expected(kept)
        stale = [item["rows"] for item in items if item["kind"] == STALE]
        assert sum(stale) == len(changes) - len(kept)


# -- the DataFrame of others -------------------------------------------------------------------------------------------

NAMES = EVENTS.names
TYPES = [
    *("string", "string", "string", "bigint", "bigint", "bigint", "bigint", "bigint", "bigint", "bigint", "bigint"),
    *("array<binary>", "array<binary>", "string"),
]


def test_an_events_dataframe_is_let_through_in_any_order_of_columns() -> None:
    check_schema(NAMES, TYPES)
    check_schema(NAMES[::-1], TYPES[::-1])


@pytest.mark.parametrize(
    ("names", "types", "sentence"),
    [
        (NAMES[:-1], TYPES[:-1], r"no column 'ddl' \(string\)"),
        (NAMES, [*TYPES[:-1], "binary"], r"'ddl' is binary but must be string; cast it"),
        ([*NAMES, "extra"], [*TYPES, "int"], "'extra' is not part of the events schema; drop it"),
    ],
)
def test_a_dataframe_of_another_schema_is_refused_with_the_remedy(
    names: list[str], types: list[str], sentence: str
) -> None:
    with pytest.raises(BadEvents, match=sentence):
        check_schema(names, types)
