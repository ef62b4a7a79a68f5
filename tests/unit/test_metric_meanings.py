"""Metrics mean what their help says: each part of a change's way has a time of its own, and lengths add up."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tidegate.driver.changefeed import Changefeed
from tidegate.events import tso
from tidegate.executor.ingest import ingest
from tidegate.executor.rows import ITEMS, TIMES
from tidegate.observe.metrics import PREFIX
from tidegate.testing import (
    START_TS,
    MemoryStore,
    TinySource,
    change,
    events_batch,
    feed,
    layout_row,
    resolved_row,
)

SOURCE = TinySource(tables=2, batches=1, rows=2)
Open = Callable[..., Changefeed]


def value(changefeed: Changefeed, name: str, **labels: str) -> float:
    return changefeed.metrics.value(name, **labels)


def total(changefeed: Changefeed, name: str, **labels: str) -> float:
    """The sum of all that a histogram has seen."""
    found = changefeed.metrics.registry.get_sample_value(
        f"{PREFIX}{name}_sum", {"namespace": "default", "changefeed": "tiny", **labels}
    )
    return found or 0.0


def lengths(changefeed: Changefeed) -> tuple[float, ...]:
    changefeed.observer.measure()
    names = ("writer_input_len", "to_be_flushed_len", "in_flight_len", "active_tables")
    running = value(changefeed, "land_tasks_running", executor="driver")
    return (*(value(changefeed, name) for name in names), running)


def test_an_item_is_queued_then_planned_then_in_a_job_and_its_table_is_active_all_the_time(
    opened: Open, store: MemoryStore
) -> None:
    changefeed = opened()
    feed(changefeed, 0, SOURCE.batch(0), "0")
    land, intend = changefeed.jobs.run_files, changefeed.scribe.journal.intend
    seen: list[tuple[float, ...]] = [lengths(changefeed)]

    def intended(*given: Any) -> None:
        seen.append(lengths(changefeed))
        intend(*given)

    def run(plans: Any, job: Any) -> pa.Table:
        seen.append(lengths(changefeed))
        return land(plans, job)

    changefeed.scribe.journal.intend = intended  # type: ignore[assignment, method-assign]
    changefeed.jobs.run_files = run
    store.begin("unavailable", "/t1/")
    changefeed.ledger.planner.closing = True
    changefeed.landing.land_next()
    assert seen == [(2, 0, 0, 2, 0), (0, 2, 0, 2, 0), (0, 0, 2, 2, 1)]
    assert lengths(changefeed) == (0, 1, 0, 1, 0), "one waits for its retry"


def test_flush_time_is_that_of_each_file_and_a_round_has_its_own(opened: Open) -> None:
    changefeed = opened()
    land = changefeed.jobs.run_files

    def run(plans: Any, job: Any) -> pa.Table:
        receipts = land(plans, job)
        for column, seconds in {"data_s": [0.5, 4.0], "index_s": [0.25, 0.25], "schema_check_s": [0.0, 0.0]}.items():
            at = receipts.schema.get_field_index(column)
            receipts = receipts.set_column(at, receipts.schema.field(at), pa.array(seconds))
        at = receipts.schema.get_field_index("schema_write_s")
        changefeed.clock.advance(60.0)  # type: ignore[attr-defined]
        return receipts.set_column(at, receipts.schema.field(at), pa.array([0.0, 0.0]))

    changefeed.jobs.run_files = run
    feed(changefeed, 0, SOURCE.batch(0), "0")
    changefeed.ledger.planner.closing = True
    changefeed.landing.land_next()
    assert value(changefeed, "flush_duration_seconds", reason="close") == 2
    assert total(changefeed, "flush_duration_seconds", reason="close") == 5.0
    assert total(changefeed, "round_duration_seconds") == 60.0
    assert value(changefeed, "journal_wait_duration_seconds") == 1
    assert total(changefeed, "accepted_to_durable_seconds") == 120.0, "what a change waits is longer than its flush"


def test_reading_encoding_and_writing_to_the_spool_have_times_of_their_own(opened: Open) -> None:
    changefeed = opened()
    job = changefeed.intake.ingest_job(tasks=1, allowance_bytes=1 << 30)

    def slow_source() -> Iterator[pa.RecordBatch]:
        time.sleep(0.2)
        yield events_batch(SOURCE.batch(0))
        time.sleep(0.1)

    items = pa.Table.from_batches(ingest(slow_source(), job, "0-0-0"), ITEMS)
    [text] = [item["text"] for item in items.to_pylist() if item["kind"] == TIMES]
    read_s, encode_s, spool_s = json.loads(text)
    assert read_s >= 0.3
    assert encode_s > 0
    assert spool_s > 0
    changefeed.intake.accept(0, items, "0")
    for name, seconds in (("read", read_s), ("encode", encode_s), ("spool_write", spool_s)):
        assert total(changefeed, f"{name}_duration_seconds") == pytest.approx(seconds)


def test_the_wait_for_the_wake_does_not_count_what_came_before_it(opened: Open) -> None:
    changefeed = opened()
    changefeed.clock.advance(100.0)  # type: ignore[attr-defined]
    feed(changefeed, 0, SOURCE.batch(0), "0")
    changefeed.intake.await_wake(0, started=1_000.0)
    assert total(changefeed, "batch_duration_seconds") == 100.0
    assert (value(changefeed, "wake_wait_duration_seconds"), total(changefeed, "wake_wait_duration_seconds")) == (
        1,
        0.0,
    )


def test_a_source_that_does_not_end_has_no_number_of_bytes_left(opened: Open) -> None:
    changefeed = opened()
    changefeed.observer.backlog(5 << 20)
    assert value(changefeed, "source_backlog_bytes") == 5 << 20
    assert changefeed.status().source_left_bytes == 5 << 20
    changefeed.observer.backlog(None)
    assert math.isnan(value(changefeed, "source_backlog_bytes"))


def test_bytes_that_were_moved_and_rows_that_were_set_aside_are_counted(opened: Open, store: MemoryStore) -> None:
    changefeed = opened(spool_max_bytes=8 << 20, file_size_bytes=256 << 10, on_bad_row="set-aside")
    store.begin("refuse", "/t1/")
    for n in range(1, 40):
        rows = [change(t, START_TS + n, t, b"%d" % n, b"x" * (2_000 if t == 1 else 130_000)) for t in (1, 2, 3, 4)]
        wrong = change(5, START_TS + n, 5, b"no number", b"x")
        feed(changefeed, n, [layout_row(), *rows, wrong, resolved_row(START_TS + n)], str(n))
        changefeed.clock.advance(5.0)  # type: ignore[attr-defined]
        while changefeed.landing.land_next():
            pass
    assert value(changefeed, "spool_moved_bytes_total") > 0
    assert value(changefeed, "set_aside_rows_total") == 39


def test_files_that_expired_are_counted(opened: Open, store: MemoryStore, tmp_path: Path) -> None:
    changefeed = opened(file_expiration_days=1)
    feed(changefeed, 0, SOURCE.batch(0), "0")
    changefeed.ledger.planner.closing = True
    changefeed.landing.land_next()
    changefeed.scribe.compact()
    changefeed.clock.advance(timedelta(days=5).total_seconds())  # type: ignore[attr-defined]
    deleted = changefeed.retention.clean(tso(int(changefeed.clock.wall().timestamp() * 1000)), walk=True)
    assert deleted == value(changefeed, "expired_files_total") == 4
