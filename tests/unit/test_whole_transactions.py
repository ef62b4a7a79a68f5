"""An update of a key is written exactly once, wherever micro-batches are cut before and after a kill."""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidegate.driver.changefeed import Changefeed
from tidegate.errors import BadEvents, TidegateError
from tidegate.executor.ingest import ingest
from tidegate.executor.rows import ITEMS
from tidegate.format.encode.csv import CsvOptions
from tidegate.format.layout_columns import alike
from tidegate.format.rules.changes import key_changes
from tidegate.format.tables import Column, Layout
from tidegate.sources import Offset, open_source
from tidegate.sources.parquet import ParquetSource, write_events
from tidegate.testing import (
    START_TS,
    FakeClock,
    MemoryStore,
    change,
    events_batch,
    feed,
    landed_lines,
    layout_row,
    open_changefeed,
    resolved_row,
)

KEYED = Layout((Column("id", "int", pk=True, nullable=False), Column("v", "varchar", flen=64)))
Row = dict[str, Any]
NONE: frozenset[int] = frozenset()
Line = tuple[str, bytes | None, bytes | None]


def update(table: int, ts: int, seq: int, old: bytes, new: bytes) -> Row:
    """Every row has a value of its own, so that nothing that comes twice looks like another row."""
    value = b"s%d" % seq
    return change(table, START_TS + ts, seq, kind="update", before=[old, value], after=[new, value])


def expected(rows: list[Row]) -> dict[str, list[Line]]:
    """The slow way: transaction by transaction; deletes in place, inserts at the end."""
    found: dict[str, list[Line]] = defaultdict(list)
    for table, ts in sorted({(row["table_id"], row["commit_ts"]) for row in rows}):
        late: list[Line] = []
        for row in (row for row in rows if (row["table_id"], row["commit_ts"]) == (table, ts)):
            if row["before"] is not None and row["before"][0] != row["after"][0]:
                found[f"shop.t{table}"].append(("D", *row["before"]))
                late.append(("I", *row["after"]))
            else:
                found[f"shop.t{table}"].append(("U", *row["after"]))
        found[f"shop.t{table}"] += late
    return dict(found)


def on_the_sink(store: MemoryStore) -> dict[str, list[Line]]:
    return {
        table: [(line.op, line.values[0], line.values[1]) for line in lines]
        for table, lines in landed_lines(store, layout=KEYED).items()
    }


@st.composite
def histories(draw: st.DrawFn) -> list[list[Row]]:
    """Row groups of transactions over two tables, cut anywhere."""
    rows, seq = [], 0
    for ts in range(1, draw(st.integers(2, 6))):
        for table in draw(st.sampled_from([[1], [2], [1, 2], [2, 1]])):
            for _ in range(draw(st.integers(1, 5))):
                seq += 1
                keys = draw(st.sampled_from([(b"1", b"2"), (b"2", b"1"), (b"3", b"3"), (b"4", b"4")]))
                rows.append(update(table, ts, seq, *keys))
    cuts = sorted(draw(st.sets(st.integers(1, len(rows)), max_size=10)))
    return [part for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True) if (part := rows[a:b])]


def ingest_one(
    changefeed: Changefeed, source: ParquetSource, batch: int, start: Offset, end: Offset, tasks: int
) -> None:
    job = changefeed.intake.ingest_job(tasks, 1 << 30)
    items = [
        item
        for number, split in enumerate(source.splits(start, end, tasks))
        for item in ingest(source.read(split), job, f"{batch}-{number}-0")
    ]
    changefeed.intake.ingest_ended()
    table = pa.Table.from_batches(items, ITEMS)
    changefeed.intake.learn(table)
    changefeed.intake.accept(batch, table, json.dumps(end))


def land(changefeed: Changefeed, rounds: int) -> None:
    changefeed.clock.advance(10.0)  # type: ignore[attr-defined]
    while rounds and changefeed.landing.land_next():
        rounds -= 1


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(groups=histories(), data=st.data())
def test_a_replay_that_cuts_elsewhere_doubles_no_insert(groups: list[list[Row]], data: st.DataObject) -> None:
    """A parquet source is read with any limits and splits, tables held back, killed at any point, and read again."""
    held_sets = st.sampled_from([NONE, NONE, frozenset({1}), frozenset({2})])
    limits, tasks, rounds = st.integers(1, 600), st.integers(1, 3), st.integers(0, 3)
    store = MemoryStore()
    with tempfile.TemporaryDirectory() as folder:
        batches = [events_batch([layout_row(KEYED)]), *map(events_batch, groups)]
        write_events(f"{folder}/events", batches, data.draw(st.integers(1, 20)))
        for run in range(3):
            source = ParquetSource(f"parquet:{folder}/events")
            size = data.draw(st.integers(60, 400))
            feed_ = open_changefeed(store, Path(folder, "spool"), FakeClock(), stall_s=60.0, file_size_bytes=size)
            position = feed_.ledger.progress.position
            at = json.loads(position) if position is not None else source.initial()
            killed_after = data.draw(st.integers(0, 6)) if run < 2 else 1000
            batch = 0
            while batch < killed_after:
                held = data.draw(held_sets) if run < 2 else NONE
                if (end := source.latest(at, data.draw(limits), held)) == at:
                    break
                ingest_one(feed_, source, batch, at, end, data.draw(tasks))
                part = f"CDC{data.draw(st.integers(1, 9)):020d}"
                store.begin("unavailable", part)  # so that a transaction may land in part
                land(feed_, data.draw(rounds))
                store.end("unavailable", part)
                if data.draw(st.booleans()):
                    feed_.scribe.write_progress()
                at, batch = end, batch + 1
            if run == 2:
                feed_.ledger.planner.closing = True
                land(feed_, 1000)
            feed_.life.fail(TidegateError("killed"))
            feed_.close()
    assert on_the_sink(store) == expected([row for group in groups for row in group])


# -- the parquet source ------------------------------------------------------------------------------------------------


def prepared(folder: Path, *groups: list[Row]) -> ParquetSource:
    write_events(folder / "events", [events_batch([layout_row(KEYED), *groups[0]]), *map(events_batch, groups[1:])], 3)
    return ParquetSource(f"parquet:{folder}/events")


def ends(source: ParquetSource, limit_bytes: int = 1) -> list[int]:
    found, at = [], source.initial()
    while (end := source.latest(at, limit_bytes, frozenset())) != at:
        found.append(end["at"])
        at = end
    return found


def test_a_micro_batch_ends_where_no_transaction_goes_on(tmp_path: Path) -> None:
    keys = (b"1", b"2")
    groups = [update(1, 1, 1, *keys)], [update(1, 1, 2, *keys)], [update(1, 2, 3, *keys)], [update(1, 3, 4, *keys)]
    source = prepared(tmp_path, *groups)
    assert ends(source) == [2, 3, 4]
    assert [len(split["groups"]) for split in source.splits({"at": 0}, {"at": 4}, 4)] == [2, 1, 1]


def test_a_transaction_that_goes_on_behind_rows_of_other_tables_stays_whole(tmp_path: Path) -> None:
    keys = (b"1", b"2")
    groups = [update(1, 5, 1, *keys)], [update(2, 1, 1, *keys)], [update(1, 5, 2, *keys)], [update(2, 6, 3, *keys)]
    assert ends(prepared(tmp_path, *groups)) == [3, 4]


def test_a_large_transaction_without_key_updates_may_be_cut(tmp_path: Path) -> None:
    same, other = (b"1", b"1"), (b"1", b"2")
    groups = [update(1, 1, 1, *same)], [update(1, 1, 2, *same)], [update(1, 1, 3, *same), update(1, 2, 4, *other)]
    source = prepared(tmp_path, *groups, [update(1, 2, 5, *same)], [update(1, 3, 6, *same)])
    assert ends(source) == [1, 2, 4, 5]


def test_files_in_order_are_cut_by_their_statistics_alone(tmp_path: Path) -> None:
    groups = [[update(1, n, n, b"1", b"2"), update(2, n, n, b"1", b"2")] for n in range(1, 9)]
    write_events(tmp_path / "events", map(events_batch, groups), 3)
    source = ParquetSource(f"parquet:{tmp_path}/events")
    read = []
    source._files.places = lambda at: read.append(at)  # type: ignore[method-assign, assignment, return-value]
    assert ends(source) == list(range(1, 9))
    assert read == []


def test_the_workload_has_no_updates_of_keys() -> None:
    """So its transactions may be cut, as those of a neighbour are."""
    source = open_source("workload://sysbench?tables=2&rows=50&rate=1MiB&neighbour=txn-rows:9,every:50ms")
    end = source.latest(source.initial(), 1 << 20, frozenset())
    for split in source.splits(source.initial(), end, 2):
        for batch in source.read(split):
            for layout in (row["ddl"] for row in batch.to_pylist() if row["kind"] == "layout"):
                shape = Layout.from_json(layout)
            assert key_changes(batch, alike(shape, batch)) is None


# -- a DataFrame of others ---------------------------------------------------------------------------------------------


def opened(store: MemoryStore, folder: Path, **options: Any) -> Changefeed:
    return open_changefeed(store, folder, **options)


MOVES, STAYS = (b"1", b"2"), (b"3", b"3")


@pytest.mark.parametrize(("first", "second"), [(MOVES, MOVES), (MOVES, STAYS), (STAYS, MOVES)])
@pytest.mark.parametrize("across_nodes", [False, True])
def test_a_transaction_with_a_key_update_in_two_micro_batches_is_refused(
    tmp_path: Path, first: tuple[bytes, bytes], second: tuple[bytes, bytes], across_nodes: bool
) -> None:
    options = {"across_nodes": True, "csv": CsvOptions(include_commit_ts=True)} if across_nodes else {}
    changefeed = opened(MemoryStore(), tmp_path, **options)
    feed(changefeed, 0, [layout_row(KEYED), update(7, 1, 1, *MOVES), update(7, 5, 2, *first)])
    with pytest.raises(
        BadEvents, match=f"shop.t7: the transaction of commit-ts {START_TS + 5} came in two micro-batch"
    ):
        feed(changefeed, 1, [update(7, 5, 3, *second), update(7, 5, 4, *STAYS), update(7, 6, 5, *MOVES)])
    assert changefeed.status().rows_accepted == (2 if first is STAYS else 4) + (1 if first is STAYS else 0)
    changefeed.close()


def test_a_large_transaction_without_key_updates_may_come_in_many_micro_batches(tmp_path: Path) -> None:
    changefeed = opened(MemoryStore(), tmp_path)
    feed(changefeed, 0, [layout_row(KEYED), update(7, 1, 1, *MOVES), update(7, 5, 2, *STAYS)])
    feed(changefeed, 1, [update(7, 5, 3, *STAYS)])
    feed(changefeed, 2, [update(7, 5, 4, *STAYS), update(7, 6, 5, *MOVES)])
    changefeed.close()


def test_raw_change_events_may_be_cut_anywhere(tmp_path: Path) -> None:
    changefeed = opened(MemoryStore(), tmp_path, output_raw_change_event=True)
    feed(changefeed, 0, [layout_row(KEYED), update(7, 5, 1, *MOVES)])
    feed(changefeed, 1, [update(7, 5, 2, *MOVES)])
    changefeed.close()


def test_the_rest_of_a_transaction_that_landed_in_part_is_taken_after_a_restart(tmp_path: Path) -> None:
    """It was whole in its micro-batch both times; a file was cut inside it."""
    store, rows = MemoryStore(), [update(7, 5, n, b"%d" % n, b"%d" % (n + 50)) for n in range(1, 30)]
    whole = [layout_row(KEYED), *rows, resolved_row(START_TS + 5)]
    first = opened(store, tmp_path / "a", file_size_bytes=200)
    feed(first, 0, whole)
    store.begin("unavailable", "CDC00000000000000000003")
    land(first, 1)
    store.end("unavailable", "CDC00000000000000000003")
    first.close()
    assert 0 < len(on_the_sink(store)["shop.t7"]) < 58
    second = opened(store, tmp_path / "b", file_size_bytes=200)
    feed(second, 0, whole)
    feed(second, 1, [update(7, 6, 40, *MOVES)])
    second.ledger.planner.closing = True
    land(second, 1000)
    assert on_the_sink(store) == expected([*rows, update(7, 6, 40, *MOVES)])
    second.close()
