"""The changefeed's own log on the sink: what is about to land, what has landed, where a restart reads on.

Entries are numbered objects under `_tidegate/journal/`, made with create-only puts. An entry written *before* a round
names its files (lane, number, range, size and checksum); a later one confirms them by plan number, or withdraws what
will never land under that number, and carries checkpoint, position and new layouts. Who cannot create the next number
has been fenced off by another writer and stops. From time to time a snapshot of the ledger's tables replaces the
entries before it, so that starting needs no request per table. Only the entry with which a writer took over stays for
good: it is the number that the writer before it would create next, however late that one wakes up.

On restart an unconfirmed file that exists with the bytes planned is adopted and its index put again; from the first one
of a lane that does not exist the replay writes anew. Such a missing file is kept as an orphan until its lane has landed
its number, or something else before it: a process of the old writer that was paused may still create it, and then it is
adopted all the same.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

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
    planned_files,
    snapshot_path,
    table_bytes,
)
from tidegate.errors import LandingError, StoreUnavailable, TidegateError
from tidegate.format.layout import PathOptions
from tidegate.storage.store import Store

_COMPACT_AFTER = 256

log = logging.getLogger("tidegate")

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
    _known_layouts: set[int] = field(default_factory=set)
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

    def fresh_layouts(self, layouts: Mapping[int, str]) -> dict[str, str]:
        """Those that are not on record yet; `layouts` only ever grows, so in most rounds nothing is looked at."""
        if len(layouts) == len(self._known_layouts):
            return {}
        return {str(key): text for key, text in layouts.items() if key not in self._known_layouts}

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
            self._write_snapshot(take(), before)
            self._delete_older()
        _give_back_memory()

    def _write_snapshot(self, seen: Snapshot, before: Callable[[int], None]) -> None:
        self._settle(seen.head)
        pending = pa.concat_tables([FILES.empty_table(), *self.open_rounds, *seen.planned])
        body = {**seen.head.json(), "pending": table_bytes(pending).hex()}
        body["orphans"], body["dropped"] = table_bytes(self.orphans).hex(), table_bytes(seen.dropped).hex()
        body["left"] = table_bytes(seen.left).hex()
        body["takeovers"] = sorted(self.takeovers)
        data = object_bytes(seen.tables, body)
        self._persist(lambda: before(self.number))
        self._persist(lambda: self.store.put(snapshot_path(self.number), data))
        self.snapshot_number = self.number
        self._known_layouts.update(int(key) for key in seen.head.layouts)

    def _delete_older(self) -> None:
        """What the snapshot replaces, and what a crash left of earlier ones; what cannot be deleted now can wait."""
        try:
            for path in [path for path, _ in self.store.list(FOLDER)]:
                number, is_entry = number_of(path), path.endswith(ENTRY)
                if (number <= self.number and number not in self.takeovers) if is_entry else number < self.number:
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

    def _create(self, path: str, data: bytes) -> None:
        # An entry that exists and says what we say, our own name included, is ours: only its answer was lost.
        if not self.store.create_bytes(path, data) and self.store.get(path) != data:
            raise FencedOff(
                f"journal entry {self.number + 1} was written by another process: this sink has another writer now, "
                "so this one stops; run only one changefeed per sink"
            )

    def _write(self, files: pa.Table, head: Head) -> None:
        fresh = {key: text for key, text in head.layouts.items() if int(key) not in self._known_layouts}
        data = object_bytes(files, {**replace(head, layouts=fresh).json(), "writer": self.writer})
        self._persist(lambda: self._create(entry_path(self.number + 1), data))
        self.number += 1
        if head.takeover:
            self.takeovers.add(self.number)
            self.takeover = entry_path(self.number)
        self._known_layouts.update(int(key) for key in fresh)
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
