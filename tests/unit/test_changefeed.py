"""The driver's shell without Spark: wake, checkpoint, budget, failures, and what each metric says."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tidegate.clock import SystemClock
from tidegate.driver.changefeed import Changefeed
from tidegate.driver.journal import FencedOff
from tidegate.errors import (
    BadEvents,
    BadSetting,
    SpoolError,
    SpoolFull,
    SpoolTooSmall,
    StoreRefused,
    StoreUnavailable,
    TidegateError,
)
from tidegate.events import DDL
from tidegate.executor.chunks import chunk_bytes
from tidegate.executor.ingest import ingest
from tidegate.executor.rows import ITEMS
from tidegate.format.ddl.events import DdlEvent, Scope, TableAfter
from tidegate.format.layout import METADATA, parse_metadata
from tidegate.observe.metrics import METRICS, PREFIX
from tidegate.sources.source import Demand
from tidegate.testing import (
    START_TS,
    FakeClock,
    MemoryStore,
    TinySource,
    change,
    events_batch,
    feed,
    landed_lines,
    layout_row,
    open_changefeed,
    resolved_row,
)

SOURCE = TinySource(tables=2, batches=4, rows=2)
Open = Callable[..., Changefeed]


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def opened(store: MemoryStore, clock: FakeClock, tmp_path: Path) -> Iterator[Open]:
    """Opens changefeeds on the store; all are closed in the end."""
    made: list[Changefeed] = []

    def make(**settings: Any) -> Changefeed:
        made.append(open_changefeed(store, tmp_path / "spool", settings.pop("clock", clock), **settings))
        return made[-1]

    yield make
    for changefeed in made:
        changefeed.life.fail(TidegateError("the test is over"))
        changefeed.close()


def large(table: int, n: int, size: int) -> dict[str, Any]:
    return change(table, START_TS + n, n, b"%d" % n, b"x" * size)


def land_due(changefeed: Changefeed, seconds: float = 5.0) -> None:
    assert isinstance(changefeed.clock, FakeClock)
    changefeed.clock.advance(seconds)
    while changefeed.landing.land_next():
        pass


def in_thread(act: Callable[[], object]) -> tuple[threading.Thread, list[BaseException]]:
    caught: list[BaseException] = []

    def run() -> None:
        try:
            act()
        except BaseException as exc:
            caught.append(exc)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, caught


def soon(condition: Callable[[], object], seconds: float = 60.0) -> bool:
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.005)
    return bool(condition())


def metadata_ts(store: MemoryStore) -> int:
    return parse_metadata(store.objects[METADATA].decode()) if METADATA in store.objects else 0


def segments(changefeed: Changefeed) -> list[str]:
    places = [place for place in (changefeed.spool.disk, changefeed.spool.memory) if place is not None]
    return sorted(path.name for place in places for path in place.glob("*.seg"))


# -- two stages of the ack ---------------------------------------------------------------------------------------------


def test_an_early_wake_does_not_move_the_checkpoint(opened: Open, store: MemoryStore) -> None:
    changefeed = opened()
    feed(changefeed, 0, SOURCE.batch(0), "0")
    changefeed.intake.await_wake(0, 0.0)
    changefeed.scribe.write_progress()
    assert changefeed.status().checkpoint_ts == START_TS, "just under the first row that is not durable"
    assert changefeed.ledger.progress.position is None
    land_due(changefeed)
    changefeed.scribe.write_progress()
    assert metadata_ts(store) == SOURCE.resolved_ts(0)
    assert changefeed.ledger.progress.position == "0"


def test_an_idle_feed_moves_the_checkpoint_with_its_resolved_marks(opened: Open, store: MemoryStore) -> None:
    changefeed = opened()
    for n in range(3):
        feed(changefeed, n, [resolved_row(START_TS + n)], str(n))
        changefeed.scribe.write_progress()
        assert metadata_ts(store) == START_TS + n


def test_the_end_of_a_finite_source_counts_as_resolved(opened: Open) -> None:
    changefeed = opened()
    feed(changefeed, 0, [layout_row(), *SOURCE.changes(0)], "0")
    changefeed.source_ended()
    land_due(changefeed)
    assert changefeed.status().checkpoint_ts == SOURCE.resolved_ts(0)


def test_the_high_mark_holds_the_wake_and_it_goes_out_once_at_the_low_mark(opened: Open, clock: FakeClock) -> None:
    changefeed = opened(spool_max_bytes=100_000, file_size_bytes=1 << 20, dispatcher_share=1.0)
    feed(changefeed, 0, [layout_row(), *(large(n, n, 14_000) for n in range(1, 7))], "0")
    assert changefeed.status().wake_held, "84 KB of 100 are above the high mark"
    waiter, errors = in_thread(lambda: changefeed.intake.await_wake(0, 0.0))
    assert soon(lambda: changefeed.metrics.value("pending_post_enqueue") == 1)
    assert changefeed.metrics.value("wake_calls_total") == 0
    assert changefeed.landing.land_next(), "under pressure a round is due before its age"
    while changefeed.status().wake_held and changefeed.landing.land_next():
        pass
    waiter.join(60.0)
    assert not waiter.is_alive()
    assert errors == []
    assert changefeed.status().spool_bytes <= changefeed.status().spool_low_mark
    assert changefeed.metrics.value("wake_calls_total") == 1
    assert changefeed.metrics.value("wake_suppressed_total") == 1
    assert changefeed.metrics.value("pending_post_enqueue") == 0


def test_between_the_marks_a_held_wake_stays_held(opened: Open, store: MemoryStore) -> None:
    changefeed = opened(spool_max_bytes=100_000, dispatcher_share=1.0)
    store.begin("unavailable", "/t2/")
    for n in range(1, 4):  # a batch for each, so that each has a segment of its own
        feed(changefeed, n, [layout_row(), large(n, n, 31_000)], str(n))
    waiter, errors = in_thread(lambda: changefeed.intake.await_wake(3, 0.0))
    assert soon(lambda: changefeed.metrics.value("pending_post_enqueue") == 1)
    assert changefeed.landing.land_next()
    spool = changefeed.ledger.spool
    assert spool.low_mark < spool.occupied_bytes < spool.high_mark
    time.sleep(0.15)
    assert waiter.is_alive()
    store.end("unavailable", "/t2/")
    land_due(changefeed)
    waiter.join(60.0)
    assert not waiter.is_alive()
    assert errors == []


def test_a_spool_without_space_on_its_disk_holds_the_wake_until_it_is_empty(opened: Open) -> None:
    changefeed = opened()
    changefeed.spool.reserve_bytes = 1 << 60
    feed(changefeed, 0, SOURCE.batch(0), "0")
    waiter, errors = in_thread(lambda: changefeed.intake.await_wake(0, 0.0))
    assert soon(lambda: changefeed.metrics.value("pending_post_enqueue") == 1)
    land_due(changefeed)
    waiter.join(60.0)
    assert not waiter.is_alive()
    assert errors == []


def test_flush_mode_waits_until_the_batch_is_durable(opened: Open) -> None:
    changefeed = opened(wake_mode="flush")
    feed(changefeed, 0, SOURCE.batch(0), "0")
    waiter, errors = in_thread(lambda: changefeed.intake.await_wake(0, 0.0))
    time.sleep(0.15)
    assert waiter.is_alive()
    land_due(changefeed)
    waiter.join(60.0)
    assert not waiter.is_alive()
    assert errors == []
    changefeed.intake.await_wake(7, 0.0)  # a batch of nothing is durable at once


@pytest.mark.parametrize("wake_mode", ["flush", "enqueue"])
def test_stop_ends_every_waiter(opened: Open, wake_mode: str) -> None:
    changefeed = opened(wake_mode=wake_mode, spool_max_bytes=10_000, dispatcher_share=1.0)
    feed(changefeed, 0, [layout_row(), large(1, 1, 20_000)], "0")
    waiters = [in_thread(lambda: changefeed.intake.await_wake(0, 0.0)) for _ in range(3)]
    time.sleep(0.1)
    assert all(thread.is_alive() for thread, _ in waiters)
    changefeed.life.stop_reading()
    for thread, errors in waiters:
        thread.join(60.0)
        assert not thread.is_alive()
        assert errors == []
    assert changefeed.life.stopping


def test_the_first_error_ends_every_waiter_with_its_cause(opened: Open) -> None:
    changefeed = opened(wake_mode="flush")
    feed(changefeed, 0, SOURCE.batch(0), "0")
    waiters = [in_thread(lambda: changefeed.intake.await_wake(0, 0.0)) for _ in range(2)]
    closing = in_thread(lambda: changefeed.landing.land_all(threading.Event()))
    first, second = StoreRefused("no rights on shop/t1"), StoreUnavailable("later")
    changefeed.life.fail(first)
    changefeed.life.fail(second)
    for thread, errors in waiters:
        thread.join(60.0)
        assert [error.__cause__ for error in errors] == [first]
        assert "no rights on shop/t1" in str(errors[0])
    closing[0].join(60.0)
    assert not closing[0].is_alive()
    assert changefeed.life.error is first
    assert changefeed.status().state == "failed"
    with pytest.raises(TidegateError, match="no rights"):
        feed(changefeed, 1, SOURCE.batch(1), "1")


@pytest.mark.parametrize(
    ("cause", "kind", "retry", "exit_code"),
    [
        (StoreUnavailable("x"), StoreUnavailable, True, 1),
        (StoreRefused("x"), StoreRefused, False, 1),
        (BadSetting("x"), BadSetting, False, 2),
        (FencedOff("x"), TidegateError, False, 1),
        (OSError("x"), TidegateError, True, 1),
    ],
)
def test_a_waiters_error_is_of_the_same_type_as_its_cause(
    opened: Open, cause: Exception, kind: type[TidegateError], retry: bool, exit_code: int
) -> None:
    """The type says whether a new start may help, and with which code the command ends."""
    changefeed = opened()
    changefeed.life.fail(cause)
    with pytest.raises(TidegateError) as caught:
        changefeed.intake.accept(0, ITEMS.empty_table(), None)
    assert (type(caught.value), caught.value.retry, caught.value.exit_code) == (kind, retry, exit_code)


# -- metadata --------------------------------------------------------------------------------------------------------


def test_metadata_is_written_at_most_every_two_seconds_and_never_backwards(
    opened: Open, store: MemoryStore, clock: FakeClock
) -> None:
    changefeed = opened()
    changefeed.start()
    seen: list[int] = []

    def puts() -> int:
        return store.calls.count(("swap", METADATA))

    def has_put(times: int) -> bool:
        return puts() == times

    for n in range(6):
        feed(changefeed, n, [resolved_row(START_TS + 1 + (n if n != 3 else 0))], str(n))
        clock.advance(1.0)
        soon(partial(has_put, (n + 1) // 2), 0.3)
        seen.append(metadata_ts(store))
    assert puts() == 3, "six seconds"
    assert seen == sorted(seen)
    assert seen[-1] == START_TS + 6


def test_metadata_is_not_written_again_while_nothing_moves(opened: Open, store: MemoryStore) -> None:
    changefeed = opened()
    feed(changefeed, 0, [resolved_row(START_TS)], "0")
    for _ in range(3):
        changefeed.scribe.write_progress()
    assert store.calls.count(("swap", METADATA)) == 1


def test_what_lands_without_a_resolved_mark_is_recorded_but_moves_no_metadata(opened: Open, store: MemoryStore) -> None:
    changefeed = opened()
    feed(changefeed, 0, [layout_row(), *SOURCE.changes(0)], "0")
    land_due(changefeed)
    changefeed.scribe.write_progress()
    assert METADATA not in store.objects
    assert changefeed.scribe.journal.noted() == ([], [])


def test_a_failed_metadata_is_written_the_next_time(opened: Open, store: MemoryStore) -> None:
    changefeed = opened()
    feed(changefeed, 0, [resolved_row(START_TS)], "0")
    store.begin("unavailable", METADATA)
    changefeed.scribe.write_progress()
    assert METADATA not in store.objects
    store.end("unavailable", METADATA)
    changefeed.scribe.write_progress()
    assert metadata_ts(store) == START_TS


def test_the_journal_knows_a_checkpoint_before_a_reader_does(opened: Open, store: MemoryStore) -> None:
    changefeed = opened()
    feed(changefeed, 0, [resolved_row(START_TS)], "0")
    changefeed.scribe.write_progress()
    assert [op for op, path in store.calls if path == METADATA or path.endswith("2.entry")] == [
        *("get", "create_bytes", "get", "swap"),
    ]


# -- failing tables ----------------------------------------------------------------------------------------------------


def test_the_status_names_a_failing_table_from_its_first_failure_until_it_lands(
    opened: Open, store: MemoryStore
) -> None:
    changefeed = opened()
    store.begin("unavailable", "/t1/")
    feed(changefeed, 0, SOURCE.batch(0), "0")
    assert changefeed.status().retrying == {}
    land_due(changefeed)
    assert list(changefeed.status().retrying) == ["shop.t1"]
    assert "unavailable on command" in changefeed.status().retrying["shop.t1"]
    assert list(landed_lines(store)) == ["shop.t2"], "the other table landed"
    land_due(changefeed, 2.0)
    assert list(changefeed.status().retrying) == ["shop.t1"]
    store.end("unavailable", "/t1/")
    land_due(changefeed, 10.0)
    assert changefeed.status().retrying == {}
    assert len(landed_lines(store)["shop.t1"]) == 2
    assert changefeed.metrics.value("store_retries_total") == 2


def test_a_table_whose_first_files_landed_is_still_named_for_the_rest(opened: Open, store: MemoryStore) -> None:
    changefeed = opened(file_size_bytes=1_000)
    store.begin("unavailable", "CDC00000000000000000002.csv")
    feed(changefeed, 0, [layout_row(), *(large(1, n, 900) for n in range(1, 5))], "0")
    land_due(changefeed)
    assert len(landed_lines(store)["shop.t1"]) == 1
    assert list(changefeed.status().retrying) == ["shop.t1"]


def test_a_hanging_table_does_not_stop_the_others(store: MemoryStore, tmp_path: Path) -> None:
    changefeed = open_changefeed(store, tmp_path, SystemClock(), stall_s=0.2, flush_interval_s=0.2)
    store.begin("hang", "/t1/")
    changefeed.start()
    for n in range(SOURCE.batches):
        feed(changefeed, n, SOURCE.batch(n), str(n))
        time.sleep(0.1)
    assert soon(lambda: len(landed_lines(store).get("shop.t2", [])) == 8)
    assert "/t1/" not in str(list(landed_lines(store)))
    assert "no answer" in changefeed.status().retrying["shop.t1"]
    store.end("hang", "/t1/")
    assert changefeed.landing.land_all(threading.Event())
    changefeed.close()
    assert {t: [line.values for line in lines] for t, lines in landed_lines(store).items()} == SOURCE.lines()


def test_a_table_that_the_store_refuses_is_named_while_the_others_go_on_and_lands_when_it_may(
    opened: Open, store: MemoryStore
) -> None:
    changefeed = opened()
    store.begin("refuse", "/t1/")
    for n in range(3):
        feed(changefeed, n, SOURCE.batch(n), str(n))
        land_due(changefeed)
        changefeed.scribe.write_progress()
    assert [line.values for line in landed_lines(store)["shop.t2"]] == SOURCE.lines()["shop.t2"][:6]
    status = changefeed.status()
    assert list(status.retrying) == ["shop.t1"]
    assert "refused on command" in status.retrying["shop.t1"]
    assert (status.retrying_tables, status.state, status.error) == (1, "running", None)
    assert metadata_ts(store) == START_TS, "the checkpoint passes no row"
    store.end("refuse", "/t1/")
    land_due(changefeed, 60.0)
    changefeed.scribe.write_progress()
    assert changefeed.status().retrying == {}
    assert [line.values for line in landed_lines(store)["shop.t1"]] == SOURCE.lines()["shop.t1"][:6]
    assert metadata_ts(store) == SOURCE.resolved_ts(2)


def test_a_refused_table_is_tried_again_with_growing_pauses_up_to_a_minute(opened: Open, store: MemoryStore) -> None:
    changefeed = opened()
    store.begin("refuse", "/t1/")
    feed(changefeed, 0, SOURCE.batch(0), "0")
    land_due(changefeed)
    for longest in (1, 2, 4, 8, 16, 32, 60, 60, 60):
        before = changefeed.metrics.value("store_retries_total")
        land_due(changefeed, 0.75 * longest - 0.001)
        assert changefeed.metrics.value("store_retries_total") == before
        land_due(changefeed, 0.25 * longest + 0.001)
        assert changefeed.metrics.value("store_retries_total") == before + 1


def test_the_status_names_at_most_twenty_failing_tables_and_counts_all(opened: Open, store: MemoryStore) -> None:
    changefeed = opened()
    store.begin("refuse", "shop/")
    feed(changefeed, 0, TinySource(tables=30, batches=1, rows=1).batch(0), "0")
    land_due(changefeed)
    assert (len(changefeed.status().retrying), changefeed.status().retrying_tables) == (20, 30)


def test_a_failed_landing_is_tried_again_with_the_same_files(opened: Open, store: MemoryStore) -> None:
    changefeed = opened()
    store.begin("lost", "/t1/")
    feed(changefeed, 0, SOURCE.batch(0), "0")
    land_due(changefeed)
    store.end("lost", "/t1/")
    land_due(changefeed, 10.0)
    assert {t: len(lines) for t, lines in landed_lines(store).items()} == {"shop.t1": 2, "shop.t2": 2}
    assert changefeed.status().reasons == {"interval": 1, "error": 1}
    assert changefeed.ledger.idle


def test_a_land_job_that_raises_leaves_all_its_files_unfinished(opened: Open, store: MemoryStore) -> None:
    changefeed = opened()
    land, left = changefeed.jobs.run_files, [2]

    def broken(plans: Any, job: Any) -> pa.Table:
        done = land(plans, job)
        left[0] -= 1
        if left[0] >= 0:  # once after it has done all, its answer lost
            raise OSError("the job was cancelled\nat org.apache.spark...")
        return done

    changefeed.jobs.run_files = broken
    feed(changefeed, 0, SOURCE.batch(0), "0")
    land_due(changefeed)
    assert changefeed.status().retrying == dict.fromkeys(
        ("shop.t1", "shop.t2"), "the landing was lost: the job was cancelled"
    )
    land_due(changefeed, 1.0)
    land_due(changefeed, 2.0)
    assert changefeed.status().retrying == {}
    assert changefeed.ledger.idle
    assert {t: len(lines) for t, lines in landed_lines(store).items()} == {"shop.t1": 2, "shop.t2": 2}


# -- the spool and its budget ------------------------------------------------------------------------------------------


def demanded(changefeed: Changefeed) -> Demand:
    return Demand.from_json(Path(changefeed.options.spool.demand_file).read_text())


def test_a_table_over_its_share_is_held_back_until_it_is_down(opened: Open) -> None:
    changefeed = opened(spool_max_bytes=100_000, dispatcher_share=0.1)
    feed(changefeed, 0, [layout_row(), large(1, 1, 500), large(2, 2, 20_000)], "0")
    assert demanded(changefeed).held == {2}
    land_due(changefeed)
    assert demanded(changefeed).held == set()


def test_the_source_is_told_how_much_fits_before_it_is_first_asked_and_at_every_wake(opened: Open) -> None:
    changefeed = opened(spool_max_bytes=100_000)
    changefeed.start()
    assert demanded(changefeed).room_bytes is None, "an empty spool has all the room that there will ever be"
    changefeed.intake.accept(0, ITEMS.empty_table(), "0", estimated_bytes=10_000)  # nothing of it is written
    assert demanded(changefeed) == Demand(20_000, durable="0")
    feed(changefeed, 1, [layout_row(), large(1, 1, 39_000), large(2, 2, 39_000)], "1")
    changefeed.intake.await_wake(1, 0.0)
    occupied = changefeed.ledger.spool.occupied_bytes
    assert demanded(changefeed).room_bytes == 100_000 - occupied
    assert demanded(changefeed).limit_bytes == 20_000


def test_segments_are_deleted_when_nothing_refers_to_them(opened: Open) -> None:
    changefeed = opened()
    for n in range(2):
        feed(changefeed, n, SOURCE.batch(n), str(n))
    assert segments(changefeed) == ["0-0-0-0.seg", "1-0-0-0.seg"]
    land_due(changefeed)
    assert segments(changefeed) == []
    assert changefeed.status().spool_bytes == 0


def test_a_segment_stays_while_one_item_refers_to_it(opened: Open, store: MemoryStore) -> None:
    changefeed = opened()
    store.begin("unavailable", "/t1/")
    feed(changefeed, 0, SOURCE.batch(0), "0")
    land_due(changefeed)
    assert segments(changefeed) == ["0-0-0-0.seg"]
    store.end("unavailable", "/t1/")
    land_due(changefeed, 10.0)
    assert segments(changefeed) == []


def test_leftovers_of_a_lost_attempt_are_deleted_when_the_batch_is_accepted(opened: Open) -> None:
    changefeed = opened()
    job = changefeed.intake.ingest_job(tasks=1, allowance_bytes=1 << 20)
    list(ingest([events_batch(SOURCE.batch(0))], job, "0-0-7"))
    list(ingest([events_batch(SOURCE.batch(0))], job, "1-0-8"))
    feed(changefeed, 0, SOURCE.batch(0), "0")
    others = ["1-0-8-0.seg", "1-0-8-layouts.seg"]
    assert segments(changefeed) == ["0-0-0-0.seg", *others], "another batch's are left alone"
    changefeed.intake.discard(1)
    assert segments(changefeed) == ["0-0-0-0.seg"]


def test_a_batch_that_brings_only_duplicates_is_durable_at_once(opened: Open) -> None:
    changefeed = opened()
    feed(changefeed, 0, SOURCE.batch(0), "0")
    feed(changefeed, 1, SOURCE.batch(0), "1")
    assert segments(changefeed) == ["0-0-0-0.seg"]
    assert changefeed.status().duplicates == len(SOURCE.changes(0)), "rows are counted, not chunks"
    assert changefeed.metrics.value("duplicates_dropped_total") == len(SOURCE.changes(0))
    land_due(changefeed)
    assert changefeed.ledger.progress.position == "1"


@pytest.mark.parametrize("spool_type", ["disk", "memory"])
def test_both_spool_types_land_everything_and_leave_nothing(
    store: MemoryStore, tmp_path: Path, spool_type: str
) -> None:
    changefeed = open_changefeed(store, tmp_path, SystemClock(), spool_type=spool_type, flush_interval_s=0.05)
    changefeed.start()
    for n in range(SOURCE.batches):
        feed(changefeed, n, SOURCE.batch(n), str(n))
        changefeed.intake.await_wake(n, 0.0)
    if spool_type == "memory":
        assert list(changefeed.spool.disk.glob("*.seg")) == []
    assert changefeed.landing.land_all(threading.Event())
    changefeed.close()
    assert {t: [line.values for line in lines] for t, lines in landed_lines(store).items()} == SOURCE.lines()
    assert metadata_ts(store) == SOURCE.resolved_ts(SOURCE.batches - 1)
    assert list(tmp_path.iterdir()) == []
    assert changefeed.spool.memory is None or not changefeed.spool.memory.exists()


# -- start and close ---------------------------------------------------------------------------------------------------


def test_closing_lands_what_is_spooled_and_writes_the_checkpoint(opened: Open, store: MemoryStore) -> None:
    changefeed = opened()
    changefeed.start()
    feed(changefeed, 0, SOURCE.batch(0), "0")
    changefeed.life.stop_reading()
    assert changefeed.landing.land_all(threading.Event())
    changefeed.close()
    changefeed.close()
    assert changefeed.status().reasons == {"close": 2}
    assert metadata_ts(store) == SOURCE.resolved_ts(0)
    assert changefeed.status().state == "stopped"


def test_leaving_does_not_wait_for_a_store_that_hangs(store: MemoryStore, tmp_path: Path) -> None:
    changefeed = open_changefeed(store, tmp_path, SystemClock(), stall_s=0.1)
    store.begin("hang", "shop/")
    changefeed.start()
    feed(changefeed, 0, SOURCE.batch(0), "0")
    leave = threading.Event()
    closing, _ = in_thread(lambda: changefeed.landing.land_all(leave))
    time.sleep(0.2)
    assert closing.is_alive()
    leave.set()
    closing.join(60.0)
    assert not closing.is_alive()
    store.end("hang", "shop/")
    changefeed.close()


def test_an_error_item_becomes_the_error_it_names(opened: Open) -> None:
    changefeed = opened()
    with pytest.raises(BadEvents, match="NULL in table_name"):
        feed(changefeed, 0, [layout_row(), change(1, START_TS, 1, table_name=None)])
    text = pa.RecordBatch.from_pylist([{"kind": "error", "text": "SpoolError: no space"}], ITEMS)
    with pytest.raises(SpoolError, match=r"^no space$"):
        changefeed.intake.learn(pa.Table.from_batches([text]))
    assert changefeed.ledger.idle


@pytest.mark.parametrize(
    ("spool_type", "before", "raised"),
    [("disk", 0, SpoolFull), ("disk", 1, SpoolFull), ("memory", 0, SpoolTooSmall), ("memory", 1, SpoolFull)],
)
def test_no_space_left_ends_the_changefeed_only_if_nothing_can_make_room(
    opened: Open, spool_type: str, before: int, raised: type[SpoolError]
) -> None:
    """A disk may get space again, and what is in the spool may land; a new start begins with an empty spool."""
    changefeed = opened(spool_type=spool_type)
    for batch in range(before):
        feed(changefeed, batch, SOURCE.batch(batch), str(batch))
    text = pa.RecordBatch.from_pylist([{"kind": "error", "text": "SpoolFull: cannot write: No space left"}], ITEMS)
    with pytest.raises(SpoolError, match=r"^cannot write: No space left") as failed:
        changefeed.intake.learn(pa.Table.from_batches([text]))
    assert type(failed.value) is raised
    assert failed.value.retry == (raised is SpoolFull)
    if raised is SpoolTooSmall:
        assert "make /dev/shm (" in str(failed.value)
        assert "or use spool.type=disk" in str(failed.value)


def test_a_layout_learned_late_asks_for_the_batch_once_more(opened: Open) -> None:
    changefeed = opened()
    job = changefeed.intake.ingest_job(tasks=2, allowance_bytes=1 << 20)
    parts = [
        *ingest([events_batch([change(1, START_TS, 1)])], job, "0-0-0"),
        *ingest([events_batch([layout_row()])], job, "0-1-1"),
    ]
    assert changefeed.intake.learn(pa.Table.from_batches(parts))
    changefeed.intake.discard(0)
    feed(changefeed, 0, [change(1, START_TS, 1)], "0")
    assert changefeed.status().rows_accepted == 1


def test_a_layout_that_nobody_defines_is_refused_by_its_name(opened: Open) -> None:
    changefeed = opened()
    with pytest.raises(BadEvents, match=r"layout -?\d+ but no layout row defines it"):
        feed(changefeed, 0, [change(1, START_TS, 1)])


def test_a_table_out_of_order_is_refused_by_its_name(opened: Open) -> None:
    changefeed = opened()
    feed(changefeed, 0, [layout_row(), change(1, START_TS + 5, 5)])
    with pytest.raises(BadEvents, match=r"shop\.t1"):
        feed(changefeed, 1, [change(1, START_TS + 4, 4), change(1, START_TS + 6, 6)])


def test_landing_keeps_to_half_of_the_slots_while_ingest_runs(opened: Open) -> None:
    changefeed = opened(file_size_bytes=1_000)
    feed(changefeed, 0, [layout_row(), large(1, 1, 2_000)], "0")
    changefeed.landing.slots = 2
    running: list[int] = []
    land = changefeed.jobs.run_files

    def run(plans: Any, job: Any) -> pa.Table:
        changefeed.intake.ingest_job(tasks=1, allowance_bytes=1)
        running.append(1)
        assert not changefeed.landing.land_next(), "the one slot that landing may have is taken"
        changefeed.intake.ingest_ended()
        return land(plans, job)

    changefeed.jobs.run_files = run
    assert changefeed.landing.land_next()
    assert running == [1]


def test_chunks_are_a_small_part_of_a_file() -> None:
    assert chunk_bytes(64 << 20) == 1 << 20
    assert chunk_bytes(1 << 20) == 16 << 10
    assert chunk_bytes(1_000) == 500


# -- metrics ---------------------------------------------------------------------------------------------------------

# These are fed in test_metric_meanings.py.
NOT_FED_HERE = {
    *("source_lag_seconds", "source_lag_bytes", "source_snapshot_tables", "source_snapshot_share"),
    "source_backlog_bytes",
    "spool_moved_bytes_total",
    "expired_files_total",
    "set_aside_rows_total",
}


def moved(changefeed: Changefeed) -> set[str]:
    """Names of the metrics that have a series other than zero."""
    samples = [sample for family in changefeed.metrics.registry.collect() for sample in family.samples]
    shown = {sample.name.removeprefix(PREFIX) for sample in samples if sample.value}
    return {m.name for m in METRICS if (f"{m.name}_count" if m.kind == "histogram" else m.name) in shown}


def test_every_metric_moves(opened: Open, store: MemoryStore, clock: FakeClock) -> None:
    changefeed = opened(spool_type="memory", spool_max_bytes=1 << 20, file_size_bytes=1_000, dispatcher_share=1.0)
    land, seen = changefeed.jobs.run_files, set[str]()

    def run(plans: Any, job: Any) -> pa.Table:
        feed(changefeed, 100 + len(seen) + len(store.calls), [resolved_row(START_TS)])
        seen.update(moved(changefeed))
        return land(plans, job)

    changefeed.jobs.run_files = run
    store.begin("unavailable", "/t1/")
    feed(changefeed, 0, [layout_row(), *(large(t, t, 400_000) for t in (1, 2, 3)), resolved_row(START_TS + 9)], "0")
    waiter, _ = in_thread(lambda: changefeed.intake.await_wake(0, 0.0))
    assert soon(lambda: changefeed.metrics.value("pending_post_enqueue") == 1)
    seen |= moved(changefeed)
    land_due(changefeed)
    seen |= moved(changefeed)
    store.end("unavailable", "/t1/")
    land_due(changefeed, 10.0)
    waiter.join(60.0)
    feed(changefeed, 1, [large(1, 1, 10)], "1")
    changefeed.scribe.write_progress()
    seen |= moved(changefeed)
    on_disk = open_changefeed(MemoryStore(), Path(changefeed.options.spool.directory) / "other", clock)
    on_disk.spool.memory_limit = 0
    feed(on_disk, 9, [layout_row(), change(1, START_TS, 1, schema_name="mysql")])
    database = DdlEvent(26, "ALTER DATABASE `shop`", 1, Scope("db", schema_id=1), tables=(TableAfter("shop"),))
    ddl = {"kind": DDL, "commit_ts": START_TS, "seq": 1, "table_id": 0, "ddl": database.to_json()}
    older = change(1, START_TS - 3, 1, schema_id=1, table_version=START_TS - 9)  # for the next one files are listed
    rows = [layout_row(), older, change(1, START_TS - 2, 2, schema_id=1), ddl]
    feed(on_disk, 8, rows)
    seen |= moved(on_disk)
    feed(on_disk, 7, [resolved_row(START_TS)])
    clock.advance(1.0)
    while on_disk.landing.land_next():
        clock.advance(1.0)
    feed(on_disk, 0, SOURCE.batch(0), "0")
    seen |= moved(on_disk)
    rows = [layout_row(), large(1, 1, 40 << 20)]
    job = on_disk.intake.ingest_job(tasks=1, allowance_bytes=1 << 30)
    batches = [events_batch(rows), events_batch([large(2, 2, 40 << 20)])]
    on_disk.intake.accept(1, pa.Table.from_batches(ingest(batches, job, "1-0-0"), ITEMS).slice(1), "1")
    seen |= moved(on_disk)
    on_disk.close()
    assert {metric.name for metric in METRICS} - seen == NOT_FED_HERE


def test_gauges_fall_back_when_everything_is_durable(opened: Open) -> None:
    changefeed = opened()
    feed(changefeed, 0, SOURCE.batch(0), "0")
    assert changefeed.metrics.value("writer_input_len") == 2
    assert changefeed.metrics.value("active_tables") == 2
    land_due(changefeed)
    for name in ("writer_input_len", "in_flight_len", "to_be_flushed_len", "active_tables", "spool_items"):
        assert changefeed.metrics.value(name) == 0
    assert changefeed.metrics.value("land_tasks_running", executor="driver") == 0
    assert changefeed.metrics.value("accepted_to_durable_seconds") == 2, "one value for each file"


def test_a_failing_file_waits_and_is_not_in_flight(opened: Open, store: MemoryStore) -> None:
    changefeed = opened()
    store.begin("unavailable", "/t1/")
    feed(changefeed, 0, SOURCE.batch(0), "0")
    land_due(changefeed)
    assert changefeed.metrics.value("to_be_flushed_len") == 1
    assert changefeed.metrics.value("in_flight_len") == 0


@pytest.mark.parametrize("end", ["an error", "its close"])
def test_a_land_thread_that_waits_begins_nothing_after_the_end(opened: Open, store: MemoryStore, end: str) -> None:
    changefeed = opened()
    feed(changefeed, 0, SOURCE.batch(0), "0")
    changefeed.start()
    with changefeed.life.lock:  # everything becomes due in the moment of the end
        changefeed.clock.advance(60.0)  # type: ignore[attr-defined]
        if end == "an error":
            changefeed.life.error = TidegateError("the disk is gone")
        else:
            changefeed.life._closed.set()
        changefeed.life.notify()
    for thread in changefeed._threads:
        thread.join(60.0)
    assert not [path for path in store.objects if "/CDC" in path]
