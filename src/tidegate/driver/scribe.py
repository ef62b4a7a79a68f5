"""The scribe: all that the driver itself writes to the sink, which is the journal and `metadata`.

Promises: a round is on record before it lands; `metadata` never says more than the journal knows; a journal that cannot
be written is retried for as long as the changefeed runs; a sink that was emptied is noticed within seconds, and ends
it. Nothing here waits for the store with the lock held.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidegate.clock import Clock
from tidegate.control.ledger import Durable, Ledger
from tidegate.control.retries import pause_s
from tidegate.control.rounds import Round
from tidegate.driver.entries import Head, planned_files
from tidegate.driver.inspection import checkpoint_in
from tidegate.driver.journal import FencedOff, Journal, Snapshot
from tidegate.driver.life import Life
from tidegate.driver.log import log
from tidegate.driver.observer import Observer
from tidegate.driver.plans import PlanBook
from tidegate.driver.retention import Retention
from tidegate.driver.startup import Started
from tidegate.errors import LandingError, SinkEmptied, StoreUnavailable, TidegateError
from tidegate.format.layout import METADATA, data_dir, metadata_text
from tidegate.format.tables import SETTLED
from tidegate.storage.store import Store

METADATA_EVERY_S = 2.0
_LOOK_EVERY_S = 5.0


@dataclass
class Scribe:
    life: Life
    clock: Clock
    ledger: Ledger
    journal: Journal
    store: Store
    book: PlanBook
    retention: Retention
    observer: Observer
    shape: Mapping[str, str]
    written_checkpoint: int  # what `metadata` says
    look_every_s: float = _LOOK_EVERY_S
    _unrecorded: dict[int, Round] = field(default_factory=dict)  # planned, and maybe not in the journal yet
    _metadata_fails: bool = False
    _keeps_entries: bool = False  # noop:// does not

    def begin(self, started: Started) -> None:
        """Note the directories of what an earlier run landed, and begin the journal anew with a snapshot."""
        if started.was_empty:
            self.retention.begin_empty()
        self.observer.checkpoint_written(self.written_checkpoint)
        found = started.found
        for files in (*found.tables, found.orphans):
            self.note_directories(files)
        found.tables.clear()  # a million rows that nobody needs any more
        self.compact()
        self._keeps_entries = self.store.size(self.journal.takeover) is not None

    def run(self) -> None:
        """The scribe's thread: progress every two seconds, and retention when its cron says so."""
        while self._next_moment():
            if self.retention.due(self.clock.wall()):
                threading.Thread(target=self._clean, daemon=True, name="retention").start()
            self.write_progress()

    def _next_moment(self) -> bool:
        due = self.clock.steady() + METADATA_EVERY_S
        with self.life.lock:
            return bool(self.life.wait_until(lambda: self.clock.steady() >= due))

    def watch(self) -> None:
        """A thread of its own, because the other may wait for a journal that can never be written again."""
        while self.life.goes_on:
            self.life.pause(self.look_every_s)
            self.look()

    def look(self) -> None:
        """Whether the entry with which we took over is still there: it stays for good, so nobody of us deletes it.

        Without it the sink was emptied, or its journal was removed. Then the checkpoint would name changes that are not
        there, and nothing would fence off another writer. A store that gives no answer says nothing about that.
        """
        try:
            is_gone = self._keeps_entries and self.store.size(self.journal.takeover) is None
        except LandingError:
            return
        self.observer.asked("journal", 1)
        if is_gone:
            raise SinkEmptied(
                f"{self.journal.takeover} is gone: somebody has emptied this sink or removed its journal while a "
                "changefeed writes to it, so it stops; bring the objects back, or start again on an empty prefix, and "
                "the source is read from its beginning"
            )

    # -- rounds --------------------------------------------------------------------------------------------------

    def planned(self, round_: Round) -> None:
        """A snapshot must know this round until an entry does. The caller holds the lock."""
        self._unrecorded[round_.id] = round_

    def intend(self, round_: Round) -> None:
        """Put on record what a round is about to land; returns when the journal has it."""
        with self.life.lock:
            files, head = self.book.files(round_), self.head()
        # First, because a compaction that deletes this round's entry must find its directories noted.
        self.note_directories(files.filter(_first_in_directory(round_)))
        self.journal.intend(files, head)
        with self.life.lock:
            self.observer.waits_for(None)
            self.book.layouts.recorded(head.layouts.fingerprint)
            del self._unrecorded[round_.id]
        self.observer.asked("journal", 1)

    def landed(self, plans: list[int], durable: Durable) -> None:
        """Remember what goes out with the next entry. The caller holds the lock since before the ledger knew of it:
        a snapshot must not see the one without the other."""
        self.journal.confirm(plans)
        self.journal.withdraw(durable.withdrawn)

    def note_directories(self, files: pa.Table) -> None:
        """These directories get files, so retention must know them."""
        if self.retention.active and "plan" in files.column_names:  # a snapshot's tables were noted before
            options = self.journal.options
            self.retention.note((file.date, data_dir(file.key(options), options)) for file in planned_files(files))

    # -- progress ------------------------------------------------------------------------------------------------

    def write_progress(self) -> None:
        """Journal first, then `metadata`: a reader's checkpoint is never ahead of what a restart knows."""
        with self.life.lock:
            checkpoint = self.ledger.checkpoint()
            self._expire()
            head = self.head()
        if checkpoint <= self.written_checkpoint and not head.confirmed and not head.withdrawn:
            return
        self._record(head)
        if self.journal.wants_snapshot():
            self.compact()
        if checkpoint > self.written_checkpoint:
            self._write_metadata(checkpoint)

    def _record(self, head: Head) -> None:
        self.journal.record(head)
        self.observer.waits_for(None)
        self.observer.asked("journal", 1)
        with self.life.lock:
            self.book.layouts.recorded(head.layouts.fingerprint)

    def _expire(self) -> None:
        """Give up tables that are idle, and layouts that nothing uses. The caller holds the lock."""
        now = self.clock.steady()
        self.ledger.expire(now)
        if self._keeps_entries:  # else a layout could not come back
            self.book.layouts.expire(now, self.ledger.layouts_in_use)

    def head(self) -> Head:
        """What an entry says now, with the layouts that are not on record yet. The caller holds the lock."""
        progress = self.ledger.progress
        noted = self.journal.noted()
        head = Head(progress.checkpoint_ts, progress.position, self.book.layouts.fresh(), *noted, spans=self._spans)
        return replace(head, shape=dict(self.shape), foreign=self.book.foreign)

    @property
    def _spans(self) -> int:
        return self.ledger.spans if self.journal.options.across_nodes else 0

    def compact(self) -> None:
        """Replace the journal's entries by a snapshot of the ledger. Layouts go on record before."""
        with self.life.lock:
            head = self.head()
        if len(head.layouts):
            self._record(head)
        self.journal.snapshot(self._snapshot, self.retention.flush)

    def _snapshot(self) -> Snapshot:
        with self.life.lock:
            planned = [self.book.files(round_) for round_ in self._unrecorded.values()]
            tables, dropped, left = self.ledger.export()
            return Snapshot(tables, planned, self.head(), dropped, left)

    def wait_out(self, tries: int, error: StoreUnavailable) -> None:
        """The journal cannot be written: wait before the next try, unless the changefeed ends meanwhile."""
        if not tries:
            log.warning("cannot write the journal, will retry: %s", error)
        self.observer.retried()
        until = self.clock.steady() + pause_s(tries, self.journal.number)
        with self.life.lock:
            self.observer.waits_for(f"the journal: {error}", until)
            if not self.life.wait_until(lambda: self.clock.steady() >= until):
                raise error

    def _write_metadata(self, checkpoint: int) -> None:
        self.observer.asked("metadata", 2)
        try:
            found = self.store.get_tagged(METADATA)
            if found is not None and (other := checkpoint_in(found[0])) > checkpoint:
                raise FencedOff(
                    f"`{METADATA}` says checkpoint-ts {other}, which is past ours: this sink has another writer now, "
                    "so this one stops; run only one changefeed per sink"
                )
            tag = found[1] if found is not None else ""
            if self.store.swap(METADATA, metadata_text(checkpoint).encode(), tag) is not None:
                self.written_checkpoint, self._metadata_fails = checkpoint, False
                self.observer.checkpoint_written(checkpoint)
        except LandingError as exc:  # `metadata` only says less than is true, so the next time is soon enough
            self.observer.retried()
            if not self._metadata_fails:
                log.warning("cannot write the checkpoint, will retry: %s", exc)
            self._metadata_fails = True

    def write_last(self) -> None:
        """At the end of the changefeed, when no other thread writes any more."""
        try:
            self.write_progress()
        except StoreUnavailable as exc:
            log.warning("cannot write the last checkpoint, the next start reads a little more again: %s", exc)

    def _clean(self) -> None:
        """Delete what has expired; what fails is retried at the next moment of the cron."""
        try:
            deleted = self.retention.clean(self.written_checkpoint, walk=True)
            log.info("deleted %d files that had expired", deleted)
        except TidegateError as exc:
            log.warning("cannot delete all that has expired, the rest goes next time: %s", exc)


def _first_in_directory(round_: Round) -> NDArray[np.bool_]:
    """Which files may be the first in their directory."""
    found: NDArray[np.bool_] = (round_.number == 1) | (round_.schema != SETTLED) | (round_.attempt > 0)
    return found
