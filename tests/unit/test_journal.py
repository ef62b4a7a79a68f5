"""The journal: intent before landing, one writer, and every row exactly once after a crash at any step."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.clock import SystemClock
from tidegate.control.records import TABLES
from tidegate.driver.changefeed import Changefeed
from tidegate.driver.entries import FILES, Head, date_of, object_of
from tidegate.driver.journal import FencedOff, Journal, Snapshot
from tidegate.driver.recovery import open_journal
from tidegate.errors import StoreRefused, StoreUnavailable, TidegateError
from tidegate.format.encode.csv import CsvOptions
from tidegate.format.layout import PathOptions, metadata_text, parse_metadata
from tidegate.format.layout_texts import NO_LAYOUTS
from tidegate.format.tables import Column, Layout
from tidegate.storage.store import Store
from tidegate.testing import (
    SHAPE,
    START_TS,
    FakeClock,
    MemoryStore,
    TinySource,
    change,
    feed,
    landed_lines,
    layout_row,
    open_changefeed,
    resolved_row,
)

JOURNAL = "_tidegate/journal"
WIDE = Layout((*SHAPE.columns, Column("w", "int")))
SOURCE = TinySource(tables=2, batches=3, rows=2)
HEAD = Head(0, None, NO_LAYOUTS)
Objects = dict[str, bytes]


def entry(number: int) -> str:
    return f"{JOURNAL}/{number:020d}.entry"


def entries(objects: Objects) -> list[int]:
    return sorted(int(path[len(JOURNAL) + 1 : -6]) for path in objects if path.endswith(".entry"))


def open_plain(store: Store) -> Journal:
    return open_journal(store, PathOptions())[0]


def snapshot_of(journal: Journal, position: str) -> None:
    journal.snapshot(lambda: Snapshot(TABLES.empty_table(), [], Head(0, position, NO_LAYOUTS, *journal.noted())))


# -- a changefeed that is killed ---------------------------------------------------------------------------------------


def live(changefeed: Changefeed, source: TinySource = SOURCE) -> None:
    """Read on from the journal's position to the end of the source, landing and recording after each batch."""
    clock = changefeed.clock
    assert isinstance(clock, FakeClock)
    position = changefeed.ledger.progress.position
    for batch, n in enumerate(range(0 if position is None else int(position) + 1, source.batches)):
        feed(changefeed, batch, source.batch(n), str(n))
        clock.advance(5.0)
        while changefeed.landing.land_next():
            pass
        changefeed.scribe.write_progress()
    changefeed.scribe.write_progress()


def die(changefeed: Changefeed) -> None:
    """End it without another word to the store."""
    changefeed.life.fail(TidegateError("killed"))
    changefeed.close()


def life(objects: Objects, spool: Path, script: list[str], after: str, source: TinySource = SOURCE) -> int:
    """One run over `objects`, ended by the first fault; returns the writes it asked for."""
    store = MemoryStore(script, after, objects)
    with suppress(StoreUnavailable):
        changefeed = open_changefeed(store, spool, FakeClock())
        try:
            live(changefeed, source)
        finally:
            die(changefeed)
    return store.writes


def check(objects: Objects, source: TinySource = SOURCE) -> None:
    """Every row once, in order, nothing but what belongs there, and the checkpoint at the end."""
    store = MemoryStore(objects=objects)
    found = {table: [line.values for line in lines] for table, lines in landed_lines(store).items()}
    assert found == source.lines()
    assert parse_metadata(objects["metadata"].decode()) == source.resolved_ts(source.batches - 1)


def test_a_run_without_faults_lands_every_row_once(tmp_path: Path) -> None:
    objects: Objects = {}
    life(objects, tmp_path, [], "ok")
    check(objects)


WRITES = 25  # of a run without faults; the first test below watches it


def test_the_crash_points_below_are_all_there_are(tmp_path: Path) -> None:
    assert life({}, tmp_path, [], "ok") == WRITES


@pytest.mark.parametrize("step", range(WRITES))
@pytest.mark.parametrize("word", ["unavailable", "lost"])
def test_after_a_kill_at_any_step_a_restart_lands_every_row_once(tmp_path: Path, step: int, word: str) -> None:
    objects: Objects = {}
    life(objects, tmp_path, ["ok"] * step + [word], "unavailable")
    life(objects, tmp_path, [], "ok")
    check(objects)


@pytest.mark.parametrize("step", range(WRITES))
@pytest.mark.parametrize("word", ["lost", "refuse"])
def test_after_one_fault_at_any_write_every_row_is_there_once(tmp_path: Path, step: int, word: str) -> None:
    objects: Objects = {}
    with suppress(StoreRefused):  # a journal that is refused ends the run
        life(objects, tmp_path, ["ok"] * step + [word], "ok")
    life(objects, tmp_path, [], "ok")
    check(objects)


@given(crashes=st.lists(st.tuples(st.integers(0, WRITES), st.sampled_from(["unavailable", "lost"])), max_size=4))
def test_after_any_row_of_kills_every_row_is_there_once(
    tmp_path_factory: pytest.TempPathFactory, crashes: list[tuple[int, str]]
) -> None:
    objects: Objects = {}
    spool = tmp_path_factory.mktemp("spool")
    for step, word in crashes:
        life(objects, spool, ["ok"] * step + [word], "unavailable")
    life(objects, spool, [], "ok")
    check(objects)


def aged(tmp_path: Path) -> Objects:
    """A sink with a long journal and files that landed unconfirmed."""
    store = MemoryStore()
    changefeed = open_changefeed(store, tmp_path)
    for _ in range(200):
        changefeed.scribe.journal.record(HEAD)
    land_and_die(changefeed)
    return store.objects


def land_and_die(changefeed: Changefeed, batch: list[dict[str, Any]] | None = None) -> None:
    """Land a batch and be killed before anything is confirmed."""
    assert isinstance(changefeed.clock, FakeClock)
    feed(changefeed, 0, batch or SOURCE.batch(0), "0")
    changefeed.clock.advance(5.0)
    while changefeed.landing.land_next():
        pass
    die(changefeed)


def test_a_kill_during_compaction_loses_nothing(tmp_path: Path) -> None:
    start = aged(tmp_path)
    writes = life(dict(start), tmp_path, [], "ok")
    deletes = 201
    assert writes > deletes, "the start compacts"
    for step, word in product((0, 1, 2, 3, 4, 5, 50, deletes - 1, deletes, deletes + 3), ("unavailable", "lost")):
        objects = dict(start)
        life(objects, tmp_path, ["ok"] * step + [word], "unavailable")
        life(objects, tmp_path, [], "ok")
        check(objects)
        assert len(entries(objects)) < 20, "what the crash left over went with the next compaction"


def asked(store: MemoryStore, path: str) -> None:
    """Wait until the store was asked for `path`."""
    until = time.monotonic() + 60.0
    while all(path not in called for _, called in store.calls):
        assert time.monotonic() < until, f"nobody asked for {path}"
        time.sleep(0.005)


def quietly(act: Callable[[], object]) -> threading.Thread:
    """A thread that ends with its changefeed."""

    def run() -> None:
        with suppress(TidegateError):
            act()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_a_round_planned_while_the_journal_is_compacted_leaves_no_gap_in_the_numbers(tmp_path: Path) -> None:
    store, clock = MemoryStore(), FakeClock()
    changefeed = open_changefeed(store, tmp_path, clock)
    feed(changefeed, 0, SOURCE.batch(0), "0")
    clock.advance(5.0)
    store.begin("hang", entry(2))
    threads = [quietly(partial(changefeed.scribe.journal.record, HEAD))]
    asked(store, entry(2))
    threads.append(quietly(changefeed.scribe.compact))
    time.sleep(0.05)
    threads.append(quietly(changefeed.landing.land_next))  # plans, and waits behind the snapshot to state its intent
    time.sleep(0.05)
    store.begin("unavailable", entry(3))
    store.end("hang", entry(2))
    for thread in threads:
        thread.join()
    die(changefeed)
    life(store.objects, tmp_path, [], "ok")
    check(store.objects)


def test_what_lands_while_the_journal_is_about_to_be_compacted_is_not_forgotten(tmp_path: Path) -> None:
    store, clock = MemoryStore(), FakeClock()
    changefeed = open_changefeed(store, tmp_path, clock)
    for _ in range(254):
        changefeed.scribe.journal.record(HEAD)
    feed(changefeed, 0, SOURCE.batch(0), "0")
    clock.advance(5.0)
    store.begin("hang", "CDC.index")
    landing = quietly(changefeed.landing.land_next)
    asked(store, "CDC.index")
    feed(changefeed, 1, [resolved_row(SOURCE.resolved_ts(0) - 1)], None)
    store.begin("hang", entry(257))
    recording = quietly(changefeed.scribe.write_progress)
    asked(store, entry(257))
    store.end("hang", "CDC.index")
    landing.join()
    store.end("hang", entry(257))
    recording.join()
    assert changefeed.scribe.journal.snapshot_number == 257
    die(changefeed)
    life(store.objects, tmp_path, [], "ok")
    check(store.objects)


@pytest.mark.parametrize("seed", range(3))
def test_a_kill_while_landing_recording_and_compacting_at_once_loses_nothing(tmp_path: Path, seed: int) -> None:
    source = TinySource(tables=3, batches=60, rows=1)
    objects: Objects = {}
    chance = random.Random(seed)
    for _ in range(2):
        store = MemoryStore(objects=objects)
        changefeed = open_changefeed(store, tmp_path, SystemClock(), flush_interval_s=0.002)
        changefeed.start()
        ended = threading.Event()
        compacting = quietly(partial(compact_until, changefeed, ended))
        until, position = time.monotonic() + chance.uniform(0.1, 0.3), changefeed.ledger.progress.position
        for batch, n in enumerate(range(0 if position is None else int(position) + 1, source.batches)):
            feed(changefeed, batch, source.batch(n), str(n))
            time.sleep(0.003)
            if time.monotonic() > until:
                break
        store.after = "refuse"  # killed
        ended.set()
        compacting.join()
        die(changefeed)
    life(objects, tmp_path, [], "ok", source)
    check(objects, source)


def compact_until(changefeed: Changefeed, ended: threading.Event) -> None:
    while not ended.is_set():
        changefeed.scribe.write_progress()
        changefeed.scribe.compact()


# -- adoption --------------------------------------------------------------------------------------------------------


def test_intent_stands_before_anything_lands(tmp_path: Path) -> None:
    store = MemoryStore()
    land_and_die(open_changefeed(store, tmp_path))
    asked = [path for op, path in store.calls if op.startswith("create")]
    assert asked.index(entry(2)) < asked.index(next(path for path in asked if path.startswith("shop/")))


def test_what_landed_unconfirmed_is_adopted_and_its_index_put_again(tmp_path: Path) -> None:
    store = MemoryStore()
    land_and_die(open_changefeed(store, tmp_path))
    for path in [path for path in store.objects if path.endswith("CDC.index")]:
        del store.objects[path]
    _, found = open_journal(store, PathOptions())
    assert found.adopted == 2
    assert {table: len(lines) for table, lines in landed_lines(store).items()} == {"shop.t1": 2, "shop.t2": 2}


def test_after_a_clean_end_a_start_asks_for_no_file(tmp_path: Path) -> None:
    objects: Objects = {}
    life(objects, tmp_path, [], "ok")
    store = MemoryStore(objects=objects)
    assert open_journal(store, PathOptions())[1].adopted == 0
    assert not any(path.startswith("shop/") for _, path in store.calls)


def test_a_planned_file_that_never_landed_is_written_again_under_its_number(tmp_path: Path) -> None:
    store = MemoryStore()
    land_and_die(open_changefeed(store, tmp_path))
    for path in [path for path in store.objects if "/t2/" in path and not path.endswith(".json")]:
        del store.objects[path]
    life(store.objects, tmp_path, [], "ok")
    check(store.objects)


def test_a_file_of_another_size_than_planned_holds_up_its_table_alone_and_is_named(tmp_path: Path) -> None:
    store = MemoryStore()
    land_and_die(open_changefeed(store, tmp_path))
    path = next(path for path in store.objects if "/t1/" in path and path.endswith(".csv"))
    del store.objects[path.replace("CDC00000000000000000001.csv", "meta/CDC.index")]
    store.objects[path] += b"x"
    alien = store.objects[path]
    for _ in range(2):
        changefeed = open_changefeed(store, tmp_path)
        live(changefeed)
        assert "exists with" in changefeed.status().retrying["shop.t1"]
        die(changefeed)
        assert store.objects[path] == alien
        assert [line.values for line in landed_lines(store)["shop.t2"]] == SOURCE.lines()["shop.t2"]
        assert parse_metadata(store.objects["metadata"].decode()) < SOURCE.resolved_ts(0)
    del store.objects[path]  # somebody puts it right
    life(store.objects, tmp_path, [], "ok")
    check(store.objects)


def test_files_with_a_header_are_adopted_too(tmp_path: Path) -> None:
    store, options = MemoryStore(), CsvOptions(output_field_header=True)
    land_and_die(open_changefeed(store, tmp_path, csv=options))
    assert open_journal(store, PathOptions())[1].adopted == 2


def test_where_partitions_share_a_lane_no_number_is_left_out(tmp_path: Path) -> None:
    def rows(first: int) -> list[dict[str, Any]]:
        names: dict[str, Any] = {"table_name": "t", "logical_table_id": 9}
        return [layout_row(), *(change(t, SOURCE.resolved_ts(0) + first, first + t, **names) for t in (1, 2))]

    objects: Objects = {}
    dying = MemoryStore(["ok"] * 4, "unavailable", objects)  # takes over, states its intent, and dies
    land_and_die(open_changefeed(dying, tmp_path, partition_separator=False), rows(0))
    assert entry(2) in objects
    land_and_die(open_changefeed(MemoryStore(objects=objects), tmp_path, partition_separator=False), rows(10))
    lines = landed_lines(MemoryStore(objects=objects), PathOptions(partition_separator=False))
    assert len(lines["shop.t"]) == 2


def test_where_partitions_share_a_lane_a_file_is_not_taken_for_that_of_another_partition(tmp_path: Path) -> None:
    def row(partition: int) -> list[dict[str, Any]]:
        names: dict[str, Any] = {"table_name": "t", "logical_table_id": 9}
        return [layout_row(), change(partition, START_TS + 1, partition, **names)]

    objects: Objects = {}
    dying = MemoryStore(["ok"] * 4, "unavailable", objects)
    land_and_die(open_changefeed(dying, tmp_path, partition_separator=False), [*row(1), *row(2)])
    land_and_die(open_changefeed(MemoryStore(objects=objects), tmp_path, partition_separator=False), row(2))
    again = open_changefeed(MemoryStore(objects=objects), tmp_path, partition_separator=False)
    land_and_die(again, [*row(1), *row(2)])
    lines = landed_lines(MemoryStore(objects=objects), PathOptions(partition_separator=False))["shop.t"]
    assert sorted(line.values[0] or b"" for line in lines) == [b"1", b"2"]


def test_a_crash_between_journal_and_metadata_is_healed_at_the_next_start(tmp_path: Path) -> None:
    objects: Objects = {}
    life(objects, tmp_path, [], "ok")
    del objects["metadata"]
    open_changefeed(MemoryStore(objects=objects), tmp_path).close()
    check(objects)


# -- one writer --------------------------------------------------------------------------------------------------------


def test_a_second_writer_stops_the_first(tmp_path: Path) -> None:
    store = MemoryStore()
    first = open_plain(store)
    second = open_plain(store)
    with pytest.raises(FencedOff, match="another writer now"):
        first.record(HEAD)
    second.record(HEAD)


def test_the_first_is_stopped_however_late_it_wakes_up(tmp_path: Path) -> None:
    store = MemoryStore()
    first = open_plain(store)
    first.record(HEAD)
    second = open_plain(store)
    for _ in range(3):
        second.record(HEAD)
        snapshot_of(second, "x")
    with pytest.raises(FencedOff):
        first.intend(FILES.empty_table(), HEAD)
    third = open_plain(store)
    snapshot_of(third, "y")
    for late in (first, second):
        with pytest.raises(FencedOff):
            late.record(HEAD)


def test_of_two_that_start_at_once_one_is_fenced_off() -> None:
    class Together(MemoryStore):
        """Both read before either writes."""

        both = threading.Barrier(2)

        def create_bytes(self, path: str, data: bytes) -> bool:
            self.both.wait(60.0)
            return super().create_bytes(path, data)

    store, outcome = Together(), []

    def start() -> None:
        try:
            open_plain(store)
            outcome.append("started")
        except FencedOff:
            outcome.append("fenced off")

    threads = [threading.Thread(target=start) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcome) == ["fenced off", "started"]


def test_a_changefeed_that_is_fenced_off_stops_before_it_lands_anything(tmp_path: Path) -> None:
    store, clock = MemoryStore(), FakeClock()
    first = open_changefeed(store, tmp_path / "one", clock)
    feed(first, 0, SOURCE.batch(0), "0")
    second = open_changefeed(store, tmp_path / "two")
    clock.advance(5.0)
    with pytest.raises(FencedOff):
        first.landing.land_next()
    assert not any(path.startswith("shop/") for path in store.objects)
    die(first)
    second.close()


# -- a journal that cannot be written for a while ----------------------------------------------------------------------


def soon(condition: Callable[[], object], seconds: float = 60.0) -> bool:
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.005)
    return bool(condition())


@pytest.mark.parametrize("fault", ["unavailable", "lost", "late"])
def test_a_running_changefeed_waits_for_its_journal_says_so_and_goes_on(tmp_path: Path, fault: str) -> None:
    store = MemoryStore()
    changefeed = open_changefeed(store, tmp_path, SystemClock(), flush_interval_s=0.05)
    changefeed.start()
    feed(changefeed, 0, SOURCE.batch(0), "0")
    assert soon(lambda: len(landed_lines(store)) == 2)
    store.begin(fault, JOURNAL)
    feed(changefeed, 1, SOURCE.batch(1), "1")
    if fault != "late":
        assert soon(lambda: "the journal: " in str(changefeed.status().waiting))
    time.sleep(0.3)
    assert changefeed.status().state == "running"
    assert {t: len(lines) for t, lines in landed_lines(store).items()} == {"shop.t1": 2, "shop.t2": 2}, "intent first"
    store.end(fault, JOURNAL)
    feed(changefeed, 2, SOURCE.batch(2), "2")
    assert changefeed.landing.land_all(threading.Event())
    assert (changefeed.status().waiting, changefeed.life.error) == (None, None)
    changefeed.close()
    check(store.objects)


def test_a_compaction_that_cannot_be_written_is_waited_for_too(tmp_path: Path) -> None:
    store = MemoryStore()
    changefeed = open_changefeed(store, tmp_path, SystemClock(), flush_interval_s=0.05)
    changefeed.start()
    store.begin("lost", ".snapshot")
    compacting = quietly(changefeed.scribe.compact)
    assert soon(lambda: "the journal: " in str(changefeed.status().waiting))
    store.end("lost", ".snapshot")
    compacting.join(60.0)
    for n in range(SOURCE.batches):
        feed(changefeed, n, SOURCE.batch(n), str(n))
    assert changefeed.landing.land_all(threading.Event())
    changefeed.close()
    check(store.objects)


def test_closing_does_not_wait_for_a_journal_that_cannot_be_written(tmp_path: Path) -> None:
    store, others = MemoryStore(), set(threading.enumerate())
    changefeed = open_changefeed(store, tmp_path, SystemClock(), flush_interval_s=0.05)
    changefeed.start()
    store.begin("unavailable", JOURNAL)
    feed(changefeed, 0, SOURCE.batch(0), "0")
    assert soon(lambda: changefeed.status().waiting)
    changefeed.close()
    assert set(threading.enumerate()) <= others, "a thread that went on waiting was left behind"
    store.end("unavailable", JOURNAL)
    life(store.objects, tmp_path, [], "ok")
    check(store.objects)


def test_by_hand_a_journal_has_no_patience() -> None:
    store = MemoryStore()
    journal = open_plain(store)
    store.begin("unavailable", JOURNAL)
    with pytest.raises(StoreUnavailable):
        journal.record(HEAD)


def test_patience_is_asked_after_each_try_and_a_lost_answer_is_recognised() -> None:
    store = MemoryStore()
    journal, asked_for = open_plain(store), list[int]()
    store.script = ["ok"] * store.writes + ["unavailable", "unavailable", "lost"]

    def patient(tries: int, error: StoreUnavailable) -> None:
        asked_for.append(tries)

    journal.patience = patient
    journal.record(HEAD)
    assert asked_for == [0, 1, 2]
    assert entries(store.objects) == [1, 2]
    journal.record(HEAD)
    assert entries(store.objects) == [1, 2, 3]


def test_an_entry_of_the_same_content_by_another_writer_is_not_taken_for_ours() -> None:
    store = MemoryStore()
    first, second = open_plain(store), open_plain(store)
    third = Journal(store, PathOptions(), number=2)
    second.record(HEAD)
    for late in (first, third):
        with pytest.raises(FencedOff):
            late.record(HEAD)


# -- compaction --------------------------------------------------------------------------------------------------------


def test_a_snapshot_replaces_the_entries_before_it_but_not_the_takeover() -> None:
    store = MemoryStore()
    journal = open_plain(store)
    for _ in range(5):
        journal.record(HEAD)
    snapshot_of(journal, "p")
    assert entries(store.objects) == [1]
    journal.record(Head(0, "q", NO_LAYOUTS))
    assert entries(store.objects) == [1, 7]
    assert open_journal(store, PathOptions())[1].position == "q"


@pytest.mark.parametrize("word", ["unavailable", "lost", "refuse"])
@pytest.mark.parametrize("step", range(8))
def test_what_a_crash_in_the_middle_of_a_compaction_leaves_goes_with_the_next(step: int, word: str) -> None:
    objects: Objects = {}
    store = MemoryStore(objects=objects)
    journal = open_plain(store)
    for _ in range(3):
        journal.record(HEAD)
    snapshot_of(journal, "a")
    for _ in range(3):
        journal.record(HEAD)
    store.script, store.after = ["ok"] * (store.writes + step) + [word], "unavailable"
    with suppress(TidegateError):
        snapshot_of(journal, "b")  # a snapshot, three entries and the snapshot before to delete
    again = open_plain(MemoryStore(objects=objects))
    snapshot_of(again, "c")
    assert entries(objects) == [1, 8], "the two with which a writer took over"
    assert sum(path.endswith(".snapshot") for path in objects) == 1
    assert len(objects) == 3
    assert open_journal(MemoryStore(objects=objects), PathOptions())[1].position == "c"


def test_the_entries_of_all_takeovers_stay_through_any_number_of_compactions_and_starts() -> None:
    store = MemoryStore()
    writers = []
    for _ in range(5):
        writers.append(open_plain(store))
        for _ in range(3):
            snapshot_of(writers[-1], "x")
        writers[-1].record(HEAD)
    for late in writers[:-1]:
        with pytest.raises(FencedOff):
            late.record(HEAD)
    writers[-1].record(HEAD)


def test_only_one_snapshot_is_kept() -> None:
    store = MemoryStore()
    journal = open_plain(store)
    for n in range(3):
        journal.record(HEAD)
        snapshot_of(journal, str(n))
    assert sum(path.endswith(".snapshot") for path in store.objects) == 1
    assert open_journal(store, PathOptions())[1].position == "2"


def test_a_long_run_is_compacted_by_itself(tmp_path: Path) -> None:
    store = MemoryStore()
    changefeed = open_changefeed(store, tmp_path)
    for _ in range(252):
        changefeed.scribe.journal.record(HEAD)
    live(changefeed)
    changefeed.close()
    assert len(entries(store.objects)) < 10
    check(store.objects)


def test_layouts_and_position_survive_a_restart(tmp_path: Path) -> None:
    store = MemoryStore()
    changefeed = open_changefeed(store, tmp_path)
    live(changefeed)
    changefeed.close()
    for n in range(2):
        again = open_changefeed(store, tmp_path)
        assert again.ledger.progress.position == str(SOURCE.batches - 1 + n)
        ts = SOURCE.resolved_ts(SOURCE.batches - 1) + 2 * n
        assert again.ledger.checkpoint() == ts
        feed(again, n, [change(1, ts + 1, 1000 + n), resolved_row(ts + 2)], str(SOURCE.batches + n))  # no layout row
        clock = again.clock
        assert isinstance(clock, FakeClock)
        clock.advance(5.0)
        assert again.landing.land_next()
        again.scribe.write_progress()
        again.close()
    assert [line.values[0] for line in landed_lines(store)["shop.t1"]][-2:] == [b"1000", b"1001"]


def layouts_on_record(objects: Objects) -> list[list[int]]:
    """The fingerprints in each entry that has some."""
    found = [object_of(path, objects[path])[1] for path in sorted(objects) if path.endswith(".entry")]
    return [table["fingerprint"].to_pylist() for table in found if table is not None]


def test_a_layout_goes_on_record_once_and_its_entry_stays(tmp_path: Path) -> None:
    objects: Objects = {}
    changefeed = open_changefeed(MemoryStore(objects=objects), tmp_path / "spool", FakeClock())
    live(changefeed)
    assert layouts_on_record(objects) == [[SHAPE.fingerprint]]
    changefeed.scribe.compact()
    assert layouts_on_record(objects) == [[SHAPE.fingerprint]]
    feed(changefeed, 10, [layout_row(WIDE)], "10")
    assert changefeed.scribe.head().layouts.fingerprint.tolist() == [WIDE.fingerprint]
    changefeed.scribe.compact()
    assert not len(changefeed.scribe.head().layouts)
    assert layouts_on_record(objects) == [sorted([SHAPE.fingerprint, WIDE.fingerprint])], "small entries are one"
    (snapshot,) = (data for path, data in objects.items() if path.endswith(".snapshot"))
    _, record = object_of("a snapshot", snapshot)
    assert record is not None
    assert record["entry"].to_pylist() == [changefeed.scribe.journal.number] * 2
    changefeed.close()


def test_only_tables_that_are_past_the_checkpoint_are_in_the_floor(tmp_path: Path) -> None:
    objects: Objects = {}
    changefeed = open_changefeed(MemoryStore(objects=objects), tmp_path / "spool", FakeClock())
    feed(changefeed, 0, [layout_row(), change(1, START_TS, 1), resolved_row(START_TS)], "0")
    feed(changefeed, 1, [change(1, START_TS + 1, 2), change(2, START_TS + 2, 3)], "1")
    changefeed.ledger.planner.closing = True
    while changefeed.landing.land_next():
        pass
    changefeed.scribe.write_progress()
    changefeed.close()
    again = open_changefeed(MemoryStore(objects=objects), tmp_path / "spool", FakeClock())
    assert again.intake.floor is not None
    assert (again.intake.floor.owner.tolist(), again.intake.floor.checkpoint_ts) == ([1, 2], START_TS)
    again.close()
    objects["metadata"] = metadata_text(START_TS + 1).encode()
    third = open_changefeed(MemoryStore(objects=objects), tmp_path / "spool", FakeClock())
    assert third.intake.floor is not None
    assert third.intake.floor.owner.tolist() == [2]
    third.close()


def test_a_plan_that_a_snapshot_was_ahead_of_is_confirmed_once() -> None:
    store = MemoryStore()
    journal = open_plain(store)
    files = pa.Table.from_pylist([planned(plan) for plan in (0, 1, 2)], schema=FILES)
    journal.snapshot(lambda: Snapshot(TABLES.empty_table(), [files.slice(0, 2)], HEAD))
    journal.intend(files, HEAD)
    journal.record(Head(0, None, NO_LAYOUTS, confirmed=[2, 0], withdrawn=[1]))
    _, found = open_journal(store, PathOptions())
    assert [table["plan"].to_pylist() for table in found.tables if "plan" in table.column_names] == [[2, 0]]
    assert (found.pending.num_rows, found.adopted) == (0, 0)


def test_a_plan_that_stands_twice_in_a_snapshot_is_looked_for_once() -> None:
    store = MemoryStore()
    files = pa.Table.from_pylist([planned(plan) for plan in (0, 1)], schema=FILES)
    open_plain(store).snapshot(lambda: Snapshot(TABLES.empty_table(), [files, files], HEAD))
    _, found = open_journal(store, PathOptions())
    assert found.orphans["plan"].to_pylist() == [0, 1]


def planned(plan: int) -> dict[str, Any]:
    names = {"schema_name": "s", "table_name": f"t{plan}", "target_schema": "s", "target_table": f"t{plan}"}
    ints = dict.fromkeys(("version", "directory", "date", "number", "bytes", "last_ts", "last_seq"), 1)
    ids = {"plan": plan, "table_id": plan + 1, "span": 0, "logical_table_id": plan + 1}
    return {**ids, **names, **ints, "dispatcher": ""}


def head_of(data: bytes) -> dict[str, Any]:
    head: dict[str, Any] = json.loads(pa.ipc.open_stream(data).schema.metadata[b"tidegate"])
    return head


def test_a_journal_that_vanishes_while_it_is_read_is_no_crash_but_a_sentence() -> None:
    class Vanishing(MemoryStore):
        def get(self, path: str) -> bytes | None:
            return None

    objects: Objects = {}
    open_plain(MemoryStore(objects=objects))
    with pytest.raises(StoreUnavailable, match="another changefeed is writing"):
        open_plain(Vanishing(objects=objects))


def test_an_entry_confirms_only_what_its_head_counts_as_durable() -> None:
    store = MemoryStore()
    journal = open_plain(store)
    head = Head(0, "before", NO_LAYOUTS, *journal.noted())
    journal.confirm([4])
    journal.record(head)
    assert journal.noted() == ([4], []), "it goes out with the next head"
    journal.record(Head(0, "after", NO_LAYOUTS, *journal.noted()))
    assert journal.noted() == ([], [])


def test_dates_are_cut_as_the_separator_says() -> None:
    assert [date_of(20260131, separator) for separator in ("none", "year", "month", "day")] == [
        *("", "2026", "2026-01", "2026-01-31"),
    ]
    assert pa.types.is_int64(FILES.field("date").type)
