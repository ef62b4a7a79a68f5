"""The changefeed's own log on the sink: what is about to land, what has landed, where a restart reads on.

Entries are numbered objects under `_tidegate/journal/`, made with create-only puts. An entry written *before* a round
names its files (lane, number, range, size and checksum); a later one confirms them by plan number, or withdraws what
will never land under that number, and carries checkpoint, position and new layouts. Who cannot create the next number
has been fenced off by another writer and stops. From time to time a snapshot of the ledger's tables replaces the
entries before it, so that starting needs no request per table. Two kinds of entries stay for good: the one with which a
writer took over, for it is the number that the writer before it would create next, however late that one wakes up; and
those that have layouts.

On restart an unconfirmed file that exists with the bytes planned is adopted and its index put again; from the first one
of a lane that does not exist the replay writes anew. Such a missing file is kept as an orphan until its lane has landed
its number, or something else before it: a process of the old writer that was paused may still create it, and then it is
adopted all the same.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.control.places import Left
from tidegate.driver.entries import (
    ENTRY,
    FILES,
    FOLDER,
    Head,
    entry_path,
    number_of,
    object_bytes,
    object_of,
    planned_files,
    snapshot_path,
    table_bytes,
)
from tidegate.driver.layout_record import LayoutRecord
from tidegate.driver.log import log
from tidegate.errors import LandingError, StoreUnavailable, TidegateError
from tidegate.format.layout import PathOptions
from tidegate.format.layout_texts import NO_LAYOUTS, LayoutTexts
from tidegate.format.pieces import Flags, Numbers
from tidegate.storage.store import Store

_COMPACT_AFTER = 256
_LOOKS = 3

Patience = Callable[[int, StoreUnavailable], None]  # called after each failed try; raises when waiting is over


class FencedOff(TidegateError):
    """Another writer has taken over this sink."""


def _nobody() -> pa.Table:
    return pa.table({"key": np.zeros(0, np.int64), "own": np.zeros(0, np.bool_)})


@dataclass(frozen=True)
class Snapshot:
    """The ledger at one moment; `planned` are the files of rounds that may not be on record yet."""

    tables: pa.Table
    planned: list[pa.Table]
    head: Head
    dropped: pa.Table = field(default_factory=_nobody)  # their state was given up
    left: pa.Table = field(default_factory=Left().table)  # targets whose tables have left


def _impatient(tries: int, error: StoreUnavailable) -> None:
    raise error


@dataclass
class Journal:
    store: Store
    options: PathOptions
    number: int = 0
    patience: Patience = _impatient
    writer: str = field(default_factory=lambda: uuid.uuid4().hex)  # tells our own entry from another writer's
    open_rounds: list[pa.Table] = field(default_factory=list)
    orphans: pa.Table = field(default_factory=FILES.empty_table)  # missing files that an old writer may still create
    snapshot_number: int = 0
    takeovers: set[int] = field(default_factory=set)
    takeover: str = ""  # the entry with which this writer took over
    layouts: LayoutRecord = field(default_factory=LayoutRecord)
    _last_head: Head = field(default_factory=lambda: Head(0, None))
    _confirmed: list[int] = field(default_factory=list)
    _withdrawn: list[int] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)  # held while the store is asked
    _noting: threading.Lock = field(default_factory=threading.Lock)  # held for an instant

    def intend(self, files: pa.Table, head: Head) -> None:
        """Put on record what a round is about to land, before it does."""
        with self._lock:
            self.open_rounds.append(files)
            self._write(files, head)

    def confirm(self, plans: Iterable[int]) -> None:
        """Remember what has landed; it goes out with the next head. Never waits for the store."""
        with self._noting:
            self._confirmed.extend(plans)

    def withdraw(self, plans: Iterable[int]) -> None:
        """Remember what will never land under its plan number; it goes out with the next head."""
        with self._noting:
            self._withdrawn.extend(plans)

    def noted(self) -> tuple[list[int], list[int]]:
        """What has landed, and what was withdrawn, and is in no entry yet."""
        with self._noting:
            return list(self._confirmed), list(self._withdrawn)

    def has_layouts(self, wanted: Numbers) -> Flags:
        """Which of these layouts are on record."""
        return self.layouts.has(wanted)

    def find_layouts(self, wanted: Numbers) -> LayoutTexts:
        """Those of the wanted layouts, which are sorted, that are on record. A request for each entry that has some."""
        for _ in range(_LOOKS):  # a compaction may put entries together meanwhile
            parts = [self._layouts_in(number) for number in np.unique(self.layouts.find(wanted)).tolist()]
            found = LayoutTexts.all_of([part.find(wanted) for part in parts])
            if len(found) == int(self.has_layouts(wanted).sum()):
                break
        return found

    def _layouts_in(self, number: int) -> LayoutTexts:
        data = self.store.get(path := entry_path(number))
        table = object_of(path, data)[1] if data is not None else None
        return LayoutTexts.of_table(table) if table is not None else NO_LAYOUTS

    def record(self, head: Head) -> None:
        """Put on record how far the changefeed is."""
        with self._lock:
            self._write(FILES.empty_table(), head)

    def has_orphan(self, table_id: int, span: int) -> bool:
        of_table = self.orphans.filter(pc.equal(self.orphans["table_id"], table_id))
        return span in of_table["span"].to_pylist()

    def wants_snapshot(self) -> bool:
        return self.number - self.snapshot_number >= _COMPACT_AFTER

    def snapshot(self, take: Callable[[], Snapshot], before: Callable[[int], None] = lambda number: None) -> None:
        """Replace all entries so far by one object, then delete them.

        `take` and `before` are called while no entry can be written, so that what the entries say is in the
        snapshot's tables, or where `before` puts it.
        """
        with self._lock:
            self._gather_layouts()
            self._write_snapshot(take(), before)
            self._delete_older()
        _give_back_memory()

    def _gather_layouts(self) -> None:
        """Put the layouts of small entries into one new entry, so that few entries must stay."""
        small = self.layouts.small()
        if len(small) < 2:
            return
        wanted = self.layouts.fingerprint[np.isin(self.layouts.entry, small)]
        try:
            gathered = self.find_layouts(wanted)
        except LandingError:  # the next snapshot is soon enough
            return
        if len(gathered) == len(wanted):  # else the store keeps nothing, or somebody deletes from the journal
            self._put_entry(FILES.empty_table(), {**self._last_head.json(), "writer": self.writer}, gathered)

    def _write_snapshot(self, seen: Snapshot, before: Callable[[int], None]) -> None:
        self._settle(seen.head)
        pending = pa.concat_tables([FILES.empty_table(), *self.open_rounds, *seen.planned])
        body = {**seen.head.json(), "pending": table_bytes(pending).hex()}
        body["orphans"], body["dropped"] = table_bytes(self.orphans).hex(), table_bytes(seen.dropped).hex()
        body["left"] = table_bytes(seen.left).hex()
        body["takeovers"] = sorted(self.takeovers)
        data = object_bytes(seen.tables, body, self.layouts.table())
        self._persist(lambda: before(self.number))
        self._persist(lambda: self.store.put(snapshot_path(self.number), data))
        self.snapshot_number = self.number

    def _delete_older(self) -> None:
        """What the snapshot replaces, and what a crash left of earlier ones; what cannot be deleted now can wait."""
        kept = self.takeovers | self.layouts.entries()
        try:
            for path in [path for path, _ in self.store.list(FOLDER)]:
                number, is_entry = number_of(path), path.endswith(ENTRY)
                if (number <= self.number and number not in kept) if is_entry else number < self.number:
                    self.store.delete(path)
        except LandingError as exc:
            log.warning("old journal entries are deleted later: %s", exc)

    def _settle(self, head: Head) -> None:
        """Forget the files that are confirmed or withdrawn from the open rounds, and the orphans before them."""
        if settled := head.confirmed + head.withdrawn:
            if self.orphans.num_rows:
                confirmed = np.array(head.confirmed, np.int64)
                landed = [table.filter(np.isin(table["plan"].to_numpy(), confirmed)) for table in self.open_rounds]
                self.orphans = still_orphans(self.orphans, landed, self.options)
            done = np.array(settled)
            kept = [table.filter(~np.isin(table["plan"].to_numpy(), done)) for table in self.open_rounds]
            self.open_rounds = [table for table in kept if table.num_rows]

    def _persist(self, act: Callable[[], None]) -> None:
        """Try until it is done; between the tries `patience` decides how long to wait."""
        tries = 0
        while True:
            try:
                return act()
            except StoreUnavailable as exc:
                self.patience(tries, exc)
                tries += 1

    def _put_entry(self, files: pa.Table, body: dict[str, Any], layouts: LayoutTexts) -> None:
        """Create the next entry."""
        data = object_bytes(files, body, layouts.table() if len(layouts) else None)
        self._persist(lambda: self._create(entry_path(self.number + 1), data))
        self.number += 1
        if len(layouts):
            self.layouts = self.layouts.noted(layouts.fingerprint, self.number)

    def _create(self, path: str, data: bytes) -> None:
        # An entry that exists and says what we say, our own name included, is ours: only its answer was lost.
        if not self.store.create_bytes(path, data) and self.store.get(path) != data:
            raise FencedOff(
                f"journal entry {self.number + 1} was written by another process: this sink has another writer now, "
                "so this one stops; run only one changefeed per sink"
            )

    def _write(self, files: pa.Table, head: Head) -> None:
        fresh = head.layouts.take(~self.has_layouts(head.layouts.fingerprint))
        self._last_head = replace(head, layouts=NO_LAYOUTS, confirmed=[], withdrawn=[], takeover=False, surpassed=False)
        self._put_entry(files, {**head.json(), "writer": self.writer}, fresh)
        if head.takeover:
            self.takeovers.add(self.number)
            self.takeover = entry_path(self.number)
        self._settle(head)
        with self._noting:
            told = {*head.confirmed, *head.withdrawn}
            self._confirmed = [plan for plan in self._confirmed if plan not in told]
            self._withdrawn = [plan for plan in self._withdrawn if plan not in told]


def still_orphans(orphans: pa.Table, landed: list[pa.Table], options: PathOptions) -> pa.Table:
    """The missing files that the old writer may still create after these have landed.

    It goes on behind files of ours that are the same as its own, and stops at the first that is another. A table that
    lands in another directory is past all of them.
    """
    if not orphans.num_rows:
        return orphans
    theirs = [(file.lane(options), file) for file in planned_files(orphans)]
    ends = {(lane, file.number, file.last_ts, file.last_seq) for lane, file in theirs}
    last: dict[str, int] = {}
    stopped: set[str] = set()
    directories: dict[tuple[int, int], set[str]] = {}
    for file in (file for table in landed for file in planned_files(table)):
        lane = file.lane(options)
        last[lane] = max(last.get(lane, 0), file.number)
        directories.setdefault((file.table_id, file.span), set()).add(lane)
        if (lane, file.number, file.last_ts, file.last_seq) not in ends:
            stopped.add(lane)
    kept = [
        lane not in stopped
        and file.number > last.get(lane, 0)
        and directories.get((file.table_id, file.span), {lane}) == {lane}
        for lane, file in theirs
    ]
    return orphans.filter(pa.array(kept, pa.bool_()))


def _give_back_memory() -> None:
    """A snapshot of a million tables takes 200 MiB for a moment, and the allocators would keep them."""
    pa.default_memory_pool().release_unused()
    with contextlib.suppress(OSError, AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)
