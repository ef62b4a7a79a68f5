"""A sink that is emptied under a running changefeed, and a journal with a hole: noticed, named, never gone over."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tidegate.control.records import TABLES
from tidegate.driver.changefeed import Changefeed
from tidegate.driver.entries import Head
from tidegate.driver.journal import Journal, Snapshot
from tidegate.driver.recovery import open_journal, read_journal
from tidegate.errors import SinkEmptied, StoreRefused, TidegateError
from tidegate.format.layout import PathOptions
from tidegate.format.layout_texts import NO_LAYOUTS
from tidegate.storage.files import FileStore
from tidegate.storage.store import NoopStore, Store
from tidegate.testing import FakeClock, MemoryStore, TinySource, feed, open_changefeed, until

Open = Callable[..., Changefeed]
JOURNAL = "_tidegate/journal"
ONE = f"{JOURNAL}/{1:020d}.entry"


def land(changefeed: Changefeed, batch: int = 0) -> None:
    assert isinstance(changefeed.clock, FakeClock)
    feed(changefeed, batch, TinySource().batch(batch), str(batch))
    changefeed.clock.advance(5.0)
    while changefeed.landing.land_next():
        pass
    changefeed.scribe.write_progress()


def die(changefeed: Changefeed) -> None:
    changefeed.life.fail(TidegateError("the test is over"))
    changefeed.close()


# -- emptied while it runs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("removed", ["", JOURNAL, ONE])
@pytest.mark.parametrize("busy", [False, True])
def test_a_sink_that_was_emptied_is_noticed_also_when_idle(
    opened: Open, store: MemoryStore, removed: str, busy: bool
) -> None:
    changefeed = opened()
    if busy:
        land(changefeed)
    changefeed.scribe.look()
    for path in [path for path in store.objects if path.startswith(removed)]:
        del store.objects[path]
    if busy:
        land(changefeed, 1)
    with pytest.raises(SinkEmptied, match=f"{ONE} is gone"):
        changefeed.scribe.look()
    assert not SinkEmptied.retry, "a new start would take the empty sink for a new one"


@pytest.mark.parametrize("fault", ["unavailable", "refuse"])
def test_an_outage_is_no_emptied_sink(opened: Open, store: MemoryStore, fault: str) -> None:
    changefeed = opened()
    store.begin(fault)
    changefeed.scribe.look()
    store.end(fault)
    changefeed.scribe.look()


def test_a_look_is_one_request_and_batches_and_rounds_make_none(opened: Open, store: MemoryStore) -> None:
    changefeed = opened()
    store.calls.clear()
    for batch in range(3):
        land(changefeed, batch)
    assert ("size", ONE) not in store.calls
    store.calls.clear()
    changefeed.scribe.look()
    assert store.calls == [("size", ONE)]


def test_compactions_and_a_newer_writer_leave_the_entry_of_a_takeover(opened: Open, store: MemoryStore) -> None:
    old = opened()
    land(old)
    old.scribe.compact()
    old.scribe.look()
    new = opened()
    land(new, 1)
    new.scribe.compact()
    old.scribe.look()
    new.scribe.look()


def test_a_store_that_keeps_nothing_is_not_looked_at(tmp_path: Path) -> None:
    changefeed = open_changefeed(NoopStore(), tmp_path / "spool")
    changefeed.scribe.look()
    changefeed.confirm_sink()
    assert changefeed.life.error is None
    die(changefeed)


def test_a_running_changefeed_on_files_ends_with_an_error_that_names_it(tmp_path: Path) -> None:
    sink = tmp_path / "sink"
    changefeed = open_changefeed(FileStore(sink), tmp_path / "spool")
    changefeed.scribe.look_every_s = 0.05
    changefeed.start()
    feed(changefeed, 0, TinySource().batch(0), "0")
    shutil.rmtree(sink)
    until(lambda: isinstance(changefeed.life.error, SinkEmptied))
    changefeed.close()
    assert changefeed.status().state == "failed"


def test_a_changefeed_that_retries_its_journal_ends_too(store: MemoryStore, tmp_path: Path) -> None:
    changefeed = open_changefeed(store, tmp_path / "spool", flush_interval_s=0.1)
    changefeed.scribe.look_every_s = 0.05
    store.begin("unavailable", f"{JOURNAL}/{2:020d}")
    changefeed.start()
    feed(changefeed, 0, TinySource().batch(0), "0")
    changefeed.clock.advance(60.0)  # type: ignore[attr-defined]
    until(lambda: changefeed.status().waiting is not None)
    del store.objects[ONE]
    until(lambda: isinstance(changefeed.life.error, SinkEmptied))
    changefeed.close()


def test_the_end_of_a_run_looks_once_more(opened: Open, store: MemoryStore) -> None:
    changefeed = opened()
    land(changefeed)
    store.objects.clear()
    changefeed.confirm_sink()
    assert isinstance(changefeed.life.error, SinkEmptied)
    changefeed.close()
    assert not store.objects, "nothing more is written"


# -- a hole in the journal ---------------------------------------------------------------------------------------------


def entry(number: int) -> str:
    return f"{JOURNAL}/{number:020d}.entry"


def journal_of(store: Store, entries: int) -> Journal:
    journal, _ = open_journal(store, PathOptions())
    for n in range(entries):
        journal.record(Head(0, str(n), NO_LAYOUTS))
    return journal


def snapshot_of(journal: Journal) -> None:
    journal.snapshot(lambda: Snapshot(TABLES.empty_table(), [], Head(0, "s", NO_LAYOUTS, *journal.noted())))


@pytest.mark.parametrize("gone", [1, 2, 4])
def test_an_entry_that_is_missing_before_others_is_refused_by_its_name(store: MemoryStore, gone: int) -> None:
    journal_of(store, 4)
    del store.objects[entry(gone)]
    writes = store.writes
    with pytest.raises(StoreRefused, match=rf"{entry(gone)} is missing, although {entry(5)} exists.*checkpoint in"):
        open_journal(store, PathOptions())
    assert store.writes == writes, "nothing is taken over"


def test_an_entry_that_is_missing_after_a_snapshot_is_refused(store: MemoryStore) -> None:
    journal = journal_of(store, 4)
    snapshot_of(journal)
    for n in range(3):
        journal.record(Head(0, str(n), NO_LAYOUTS))
    assert sorted(store.objects)[0] == entry(1), "the entry of the takeover stays"
    assert read_journal(store, PathOptions())[0].number == 8
    del store.objects[entry(7)]
    with pytest.raises(StoreRefused, match=f"{entry(7)} is missing"):
        open_journal(store, PathOptions())


def test_a_snapshot_that_somebody_deleted_is_a_hole(store: MemoryStore) -> None:
    journal = journal_of(store, 4)
    snapshot_of(journal)
    journal.record(Head(0, "x", NO_LAYOUTS))
    del store.objects[f"{JOURNAL}/{5:020d}.snapshot"]
    with pytest.raises(StoreRefused, match=f"{entry(2)} is missing"):
        open_journal(store, PathOptions())


@dataclass
class Compacting(MemoryStore):
    """While its journal is listed for the first time, the writer replaces all entries by a snapshot."""

    writer: Journal | None = None
    half: list[str] = field(default_factory=list)

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        seen = list(super().list(prefix))
        if self.writer is not None and prefix == JOURNAL:
            writer, self.writer = self.writer, None
            snapshot_of(writer)
            return (pair for pair in seen if pair[0] in self.half)
        return iter(seen)


@pytest.mark.parametrize("seen", [[1, 4], [3, 4], [2]])
def test_a_compaction_while_the_journal_is_listed_makes_no_hole(seen: list[int]) -> None:
    store = Compacting()
    store.writer = journal_of(store, 4)
    store.half = [entry(number) for number in seen]
    journal, found = open_journal(store, PathOptions())
    assert (journal.number, found.position) == (6, "s")
