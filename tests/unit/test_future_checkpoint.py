"""A checkpoint that is too great makes every change a repeat: it is refused, and dropping all that is read is said."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tidegate.clock import Clock
from tidegate.driver.changefeed import Changefeed
from tidegate.driver.jobs import Jobs
from tidegate.errors import BadEvents, StoreRefused, TidegateError
from tidegate.events import DDL, LAST_TS, TABLE_IDS, tso
from tidegate.format.ddl.events import ALTERS, DdlEvent
from tidegate.format.ddl.scope import Table, alter_table, create_table
from tidegate.format.layout import METADATA, metadata_text, parse_metadata
from tidegate.observe.metrics import Metrics
from tidegate.sources import Source, open_source
from tidegate.sources.parquet import write_events
from tidegate.spark.wiring import changefeed_options
from tidegate.storage.files import FileStore
from tidegate.testing import (
    SHAPE,
    START_TS,
    FakeClock,
    MemoryStore,
    TinySource,
    change,
    events_batch,
    feed,
    in_process_landers,
    landed_lines,
    layout_row,
    open_changefeed,
    resolved_row,
    tiny_settings,
)
from tidegate.tools.check import OK, PROBLEM, Line, preflight

Open = Callable[..., Changefeed]
Row = dict[str, Any]


def at(seconds: float) -> int:
    """The commit-ts of so many seconds after what the test's clock says."""
    return tso(round((FakeClock().wall() + timedelta(seconds=seconds)).timestamp() * 1000))


def objects(checkpoint_ts: int) -> dict[str, bytes]:
    return {METADATA: metadata_text(checkpoint_ts).encode()}


def land(changefeed: Changefeed) -> None:
    assert isinstance(changefeed.clock, FakeClock)
    changefeed.clock.advance(5.0)
    while changefeed.landing.land_next():
        pass
    changefeed.scribe.write_progress()


def prefix_line(store: MemoryStore, tmp_path: Path, clock: Clock) -> Line:
    return next(line for line in preflight(tiny_settings(tmp_path), store, clock) if line.name == "prefix")


@pytest.mark.parametrize("checkpoint_ts", [at(601), at(10 * 365 * 86_400), LAST_TS, 1 << 80])
def test_a_checkpoint_ahead_of_the_clock_is_refused_by_run_and_check(tmp_path: Path, checkpoint_ts: int) -> None:
    store = MemoryStore(objects=objects(checkpoint_ts))
    with pytest.raises(StoreRefused, match=rf"`metadata` says checkpoint-ts {checkpoint_ts}.*set the clock, or put"):
        open_changefeed(store, tmp_path / "spool")
    assert store.writes == 0, "a refused sink stays as it is"
    line = prefix_line(store, tmp_path, FakeClock())
    assert line.verdict == PROBLEM
    assert str(checkpoint_ts) in line.sentence
    assert "checkpoint-ts" in line.remedy


def test_a_checkpoint_within_ten_minutes_is_taken(tmp_path: Path) -> None:
    store = MemoryStore(objects=objects(at(599)))
    assert prefix_line(store, tmp_path, FakeClock()).verdict == OK
    open_changefeed(store, tmp_path / "spool").close()


def test_a_checkpoint_that_somebody_set_on_our_sink_is_refused(opened: Open, store: MemoryStore) -> None:
    changefeed = opened()
    feed(changefeed, 0, TinySource().batch(0), "0")
    land(changefeed)
    store.objects[METADATA] = metadata_text(at(3600)).encode()
    with pytest.raises(StoreRefused, match="ahead of this machine's clock"):
        opened()


def test_a_source_whose_time_is_ahead_of_the_clock_goes_on_after_its_own_checkpoint(
    opened: Open, store: MemoryStore, tmp_path: Path
) -> None:
    changefeed = opened()
    ts = at(86_400)
    feed(changefeed, 0, [layout_row(), change(1, ts, 1), resolved_row(ts)], "0")
    land(changefeed)
    assert parse_metadata(store.objects[METADATA].decode()) == ts
    assert prefix_line(store, tmp_path, FakeClock()).verdict == OK
    again = opened()
    feed(again, 0, [change(1, ts, 1), change(1, ts + 1, 2), resolved_row(ts + 1)], "1")
    land(again)
    assert [line.values[0] for line in landed_lines(store)["shop.t1"]] == [b"1", b"2"]


def with_newest(store: MemoryStore, spool: Path, newest_ts: Callable[[], int | None]) -> Changefeed:
    options = changefeed_options(tiny_settings(spool), lambda *_: store)
    metrics, jobs = Metrics("tiny"), Jobs(*in_process_landers())
    return Changefeed(options, store, FakeClock(), metrics, jobs, newest_ts=newest_ts)


def test_a_checkpoint_beyond_what_the_source_has_is_refused(tmp_path: Path) -> None:
    store = MemoryStore(objects=objects(START_TS + 50))
    with pytest.raises(StoreRefused, match=f"is {START_TS + 50} .*but the source ends at {START_TS + 49} "):
        with_newest(store, tmp_path / "spool", lambda: START_TS + 49)
    assert store.writes == 0
    with_newest(store, tmp_path / "spool", lambda: START_TS + 50).close()
    with_newest(store, tmp_path / "spool", lambda: None).close()
    with pytest.raises(StoreRefused, match="but the source ends at"):
        with_newest(store, tmp_path / "spool", lambda: START_TS + 49)  # our journal has it by now


def test_the_newest_commit_ts_is_not_looked_for_when_the_sink_has_no_checkpoint(tmp_path: Path) -> None:
    def fail() -> int:
        raise AssertionError("asked")

    with_newest(MemoryStore(), tmp_path / "spool", fail).close()


@pytest.mark.parametrize("more", ["", "&ddl=every:1s", "&skew=1", "&mix=20:70:10"])
def test_sources_say_the_greatest_commit_ts_that_they_have(tmp_path: Path, more: str) -> None:
    source = open_source(f"workload://sysbench?tables=3&rows=50&txn-rows=5&batch=2KiB&events=600{more}")
    batches = list(events(source))
    newest = max(row["commit_ts"] for batch in batches for row in batch.to_pylist())
    assert source.newest_ts() is not None
    assert newest <= (source.newest_ts() or 0) < newest + tso(1000)
    write_events(tmp_path, batches, 100)
    assert open_source(f"parquet:{tmp_path}").newest_ts() == newest
    assert open_source("workload://sysbench").newest_ts() is None


def events(source: Source) -> Any:
    start = source.initial()
    while (end := source.latest(start, 1 << 30, frozenset())) != start:
        for split in source.splits(start, end, 1):
            yield from source.read(split)
        start = end


# -- a run that drops all that it reads ------------------------------------------------------------------------------


def test_a_run_that_drops_every_change_says_so_until_one_passes(opened: Open, store: MemoryStore) -> None:
    store.objects |= objects(START_TS + 50)
    changefeed = opened()
    assert changefeed.status().only_repeats is None, "nothing was read"
    feed(changefeed, 0, [layout_row(), change(1, START_TS + 10, 1), resolved_row(START_TS + 20)], "0")
    sentence = changefeed.status().only_repeats
    assert sentence is not None
    assert f"checkpoint-ts {START_TS + 50} (2026-01-01" in sentence
    assert f"up to commit-ts {START_TS + 20} " in sentence
    feed(changefeed, 1, [change(1, START_TS + 51, 2)], "1")
    assert changefeed.status().only_repeats is None
    land(changefeed)
    assert [line.values[0] for line in landed_lines(store)["shop.t1"]] == [b"2"]


def test_ddls_below_the_checkpoint_are_repeats_too(opened: Open, store: MemoryStore) -> None:
    store.objects |= objects(START_TS + 50)
    changefeed = opened()
    feed(changefeed, 0, [layout_row(), ddl_row(comment()), resolved_row(START_TS + 20)], "0")
    assert changefeed.status().only_repeats is not None


def test_filtered_changes_show_how_far_the_source_is(opened: Open, store: MemoryStore) -> None:
    store.objects |= objects(START_TS + 50)
    changefeed = opened()
    other = change(2, START_TS + 50, 2, schema_name="mysql")  # a system schema, which is never written
    feed(changefeed, 0, [layout_row(), change(1, START_TS + 10, 1), other], "0")
    assert changefeed.status().only_repeats is None


@pytest.mark.parametrize("end", ["0", None])
def test_a_source_that_an_earlier_run_has_landed_to_its_end_has_nothing_new(opened: Open, end: str | None) -> None:
    source = TinySource(batches=1)
    changefeed = opened()
    feed(changefeed, 0, source.batch(0), end)
    land(changefeed)
    again = opened()
    feed(again, 0, source.batch(0), end)
    assert again.totals.left_out == 4
    assert again.status().only_repeats is None


def test_a_source_without_resolved_rows_that_is_read_again_has_nothing_new(opened: Open) -> None:
    rows = [layout_row(), *TinySource().changes(0)]
    changefeed = opened()
    feed(changefeed, 0, rows)
    changefeed.source_ended()
    land(changefeed)
    again = opened()
    feed(again, 0, rows)
    again.source_ended()
    assert again.totals.left_out == 4
    assert again.status().only_repeats is None


@pytest.mark.parametrize("fault", ["ok", "lost"])
def test_a_replay_after_a_crash_is_no_run_that_drops_everything(opened: Open, store: MemoryStore, fault: str) -> None:
    source = TinySource(batches=2)
    changefeed = opened()
    feed(changefeed, 0, source.batch(0), "0")
    land(changefeed)
    store.begin("refuse", "shop/t2/")
    feed(changefeed, 1, source.batch(1), "1")
    if fault == "lost":
        store.begin("lost", "shop/t1/")
    land(changefeed)
    for word, part in [("refuse", "shop/t2/"), *([("lost", "shop/t1/")] if fault == "lost" else [])]:
        store.end(word, part)
    again = opened()
    feed(again, 0, [row for row in source.batch(1) if row.get("table_id") == 1], None)
    assert again.totals.left_out == 2
    assert again.status().only_repeats is None, "the changes are above the checkpoint, and durable"


# -- numbers that are no place ---------------------------------------------------------------------------------------


def ddl_row(event: DdlEvent | None, **columns: Any) -> Row:
    assert event is not None
    return {"kind": DDL, "commit_ts": START_TS + 5, "seq": 0, "table_id": 1, "ddl": event.to_json()} | columns


def comment(table_id: int = 1) -> DdlEvent | None:
    table = Table(100, "shop", "t1", table_id, SHAPE)
    return alter_table(ALTERS["table comment"], table, "ALTER TABLE `t1` COMMENT ''")


@pytest.mark.parametrize("begun", [0, START_TS + 50])
@pytest.mark.parametrize(
    ("row", "name"),
    [
        (change(1, -1, 1), "table shop.t1 has commit_ts -1 "),
        (change(1, 1 - (1 << 63), 1), "table shop.t1 has commit_ts -9223372036854775807 "),
        (change(1, LAST_TS, 1), "table shop.t1 has commit_ts 9223372036854775807 "),
        (change(1, LAST_TS, 1, kind="delete"), "table shop.t1 has commit_ts 9223372036854775807 "),
        (change(-5, START_TS + 60, 1), "table shop.t-5 has table_id -5 "),
        (change(1, START_TS + 60, 1, table_version=0), "table shop.t1 has table_version 0 "),
        (change(TABLE_IDS, START_TS + 60, 1), f"table shop.t{TABLE_IDS} has table_id {TABLE_IDS} "),
        (change(1, START_TS + 60, 1, logical_table_id=-1), "table shop.t1 has logical_table_id -1 "),
        (resolved_row(-1), "a resolved row has commit_ts -1 "),
        (resolved_row(LAST_TS), "a resolved row has commit_ts 9223372036854775807 "),
        (ddl_row(comment(), commit_ts=LAST_TS), "a ddl row has commit_ts 9223372036854775807 "),
        (ddl_row(comment(), table_id=TABLE_IDS), f"a ddl row has table_id {TABLE_IDS} "),
        (ddl_row(comment(-7)), r"ddl.blocked.table_ids\[0\] must be the id of a table, in 0..2\^50 - 1, not -7"),
        (
            ddl_row(create_table(Table(100, "shop", "t", TABLE_IDS, SHAPE), "CREATE TABLE `t` (id INT)")),
            r"ddl.added\[0\].table_id must be the id of a table",
        ),
    ],
)
def test_a_number_that_is_no_place_is_refused_and_the_table_is_named(
    opened: Open, store: MemoryStore, begun: int, row: Row, name: str
) -> None:
    store.objects |= objects(begun) if begun else {}
    changefeed = opened()
    with pytest.raises(BadEvents, match=name):
        feed(changefeed, 0, [layout_row(), change(2, START_TS + 55, 0), row], "0")
    assert changefeed.ledger.idle


def test_the_greatest_numbers_that_are_a_place_are_taken(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "sink")
    store.prepare()
    changefeed = open_changefeed(store, tmp_path / "spool")
    rows = [change(TABLE_IDS - 1, LAST_TS - 1, 1), change(0, 1, 1), resolved_row(LAST_TS - 1)]
    feed(changefeed, 0, [layout_row() | {"commit_ts": -1}, *rows], "0")
    land(changefeed)
    assert changefeed.status().checkpoint_ts == LAST_TS - 1
    changefeed.life.fail(TidegateError("the test is over"))
    changefeed.close()


def test_bad_numbers_are_found_among_many_rows(opened: Open) -> None:
    rows = [change(1 + n % 7, START_TS + n, n) for n in range(1, 5000)]
    rows[4321] |= {"commit_ts": -3}
    assert events_batch(rows).num_rows == 4999
    with pytest.raises(BadEvents, match=r"table shop\.t\d has commit_ts -3 \(commit-ts -3, seq 4322\)"):
        feed(opened(), 0, [layout_row(), *rows], "0")
