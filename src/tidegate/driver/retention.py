"""Deletes files that have expired, from records of its own instead of a walk over the whole sink.

Every data directory is put on record once, in small objects under `_tidegate/dates/`, by its date:

    _tidegate/dates/20261116/00000000000000000512-000000    ["shop/orders/437/2026-11-16", ...]
    _tidegate/dates/walked                                  every directory on the sink is on record

Cleaning lists the records (those of the oldest dates come first, so it stops at the first date that is kept), empties
their directories, and deletes each record last: whatever ends it half-way, the next time goes on. In a directory the
index files go first, so a reader that follows them meets no gap. Only files of changes are deleted, never a schema
file, and under `_tidegate/` only records.

How a changefeed calls it:

    retention = Retention(store, expiry, clock, expired)
    retention.begin_empty()                          once, when the sink was empty at its start: nothing to walk over
    retention.note([(20261116, "shop/orders/437/2026-11-16")])      when a round is put on record in the journal, and
                                                     after a restart for the files of all entries that were read again;
                                                     naming a directory for its first file (number 1, or the first one
                                                     after a take-over) is enough, more often is harmless
    retention.flush(journal.number)                  in a compaction, before entries are deleted; raises what the store
                                                     raises, and then the compaction must not go on
    if retention.due(clock.wall()):                  asked every few seconds; True once for each moment of the cron
        retention.clean(checkpoint_ts, walk=True)    on a thread of its own; `checkpoint_ts` is what `metadata` says
    retention.stop()                                 at close: a cleaning that runs ends soon, and goes on next time

Nothing happens unless files expire (`date-separator` is day and `file-expiration-days` is above 0), except that the
first `flush` then takes back the mark `walked`, because directories are not on record from here on.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, tzinfo
from functools import partial
from itertools import islice
from typing import TypeVar

from tidegate.clock import Clock
from tidegate.errors import BrokenInvariant, StoreRefused
from tidegate.format.layout import RESERVED_PREFIX
from tidegate.format.retention import dated_directory, first_kept_date, is_change_file, is_index_file
from tidegate.storage.store import Store, WithDirectories

RECORDS = f"{RESERVED_PREFIX}/dates"
WALKED = f"{RECORDS}/walked"
_RECORD = re.compile(rf"{RECORDS}/([0-9]{{8}})/(?:[0-9]{{20}}|walk)-[0-9]{{6,}}")
_RECORD_DIRECTORIES = 50_000  # in one record: about 2.5 MB
_WORKERS = 16
_DIRECTORIES_AT_ONCE = 64  # whose files are known by name at one time

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Expiry:
    """When files expire, and when they are deleted."""

    days: int = 0  # files of changes are kept for so many; 0 keeps them for ever
    next_cleaning: Callable[[datetime], datetime | None] = lambda now: None  # the first moment of the cron after this
    table_depth: int = 2  # levels of a table's own directory, which stays


class Retention:
    """`zone` is where a day begins; None is the process' own time zone. Safe from any thread."""

    def __init__(
        self,
        store: Store,
        expiry: Expiry,
        clock: Clock,
        expired: Callable[[int, int], None] | None = None,  # hears how many files and requests a cleaning took
        zone: tzinfo | None = None,
    ) -> None:
        self._store, self._expiry, self._clock, self._expired, self._zone = store, expiry, clock, expired, zone
        self.active = expiry.days > 0
        self._noted: dict[int, set[str]] = {}
        self._noting = threading.Lock()  # held for an instant
        self._cleaning = threading.Lock()  # held by the cleaning that runs
        self._stopped = threading.Event()
        self._walked = False  # known to be walked, or known not to matter
        self._next: datetime | None = None

    # -- records -------------------------------------------------------------------------------------------------

    def begin_empty(self) -> None:
        """The sink holds no change yet: it never need be walked."""
        if self.active:
            self._store.put(WALKED, b"")

    def note(self, directories: Iterable[tuple[int, str]]) -> None:
        """These get files: (20261116, "shop/orders/437/2026-11-16"). Never waits for the store."""
        if not self.active:
            return
        with self._noting:
            for date, directory in directories:
                if not _belongs(directory, date):
                    raise BrokenInvariant(f"{directory} is no data directory of the date {date}")
                self._noted.setdefault(date, set()).add(directory)

    def flush(self, number: int) -> None:
        """Put on record what was noted; what cannot be written is kept for the next time."""
        if not self.active:
            self._take_back_walked()
            return
        with self._noting:
            noted, self._noted = self._noted, {}
        try:
            for date in sorted(noted):
                self._record(date, f"{number:020d}", noted[date])
                noted[date] = set()
        finally:
            self.note((date, directory) for date, left in noted.items() for directory in left)

    def _record(self, date: int, name: str, directories: set[str]) -> None:
        for part, chunk in enumerate(_chunks(sorted(directories), _RECORD_DIRECTORIES)):
            self._add_record(f"{RECORDS}/{date:08d}/{name}-{part:06d}", chunk)

    def _add_record(self, path: str, directories: list[str]) -> None:
        if self._store.create_bytes(path, json.dumps(directories).encode()):
            return
        there = set(self._read_record(path))  # written before, and its answer lost, or by a walk that did not end
        if not there.issuperset(directories):
            self._store.put(path, json.dumps(sorted(there.union(directories))).encode())

    def _read_record(self, path: str) -> list[str]:
        text = self._store.get(path)
        if text is None:  # another cleaning was faster
            return []
        try:
            found = json.loads(text)
        except ValueError as exc:
            raise StoreRefused(f"{path} is not a list of directories: delete it, and what it named stays") from exc
        date = int(path.split("/")[-2])
        wrong = next((directory for directory in found if not _belongs(directory, date)), None)
        if wrong is not None:
            raise StoreRefused(f"{path} names {wrong!r}, which has no files of that date: delete the record")
        return list(found)

    def _take_back_walked(self) -> None:
        if not self._walked and self._store.size(WALKED) is not None:
            self._store.delete(WALKED)
        self._walked = True

    # -- cleaning ------------------------------------------------------------------------------------------------

    def due(self, now: datetime) -> bool:
        """True once for each moment of the cron that has come, and never while a cleaning runs."""
        if not self.active:
            return False
        now = now.replace(tzinfo=None)  # by the clock on the wall, also on the day it is changed
        if self._next is None:
            self._next = self._expiry.next_cleaning(now)
        if self._next is None or now < self._next:
            return False
        self._next = self._expiry.next_cleaning(now)
        return not self._cleaning.locked()

    def stop(self) -> None:
        """A cleaning that runs ends after the deletes it has begun."""
        self._stopped.set()

    def clean(self, checkpoint_ts: int, walk: bool = False) -> int:
        """Delete what has expired at this checkpoint; returns how many files that were.

        With `walk`, a sink that has directories on it which no record names is walked over, once. A store that cannot
        delete raises its error: nothing is forgotten, and the next cleaning tries again.
        """
        kept = first_kept_date(checkpoint_ts, self._expiry.days, self._clock.wall(), self._zone) if self.active else 0
        if not kept or not self._cleaning.acquire(blocking=False):
            return 0
        try:
            with ThreadPoolExecutor(_WORKERS, thread_name_prefix="retention") as pool:
                run = _Cleaning(self._store, pool, self._stopped, self._expiry.table_depth)
                try:
                    if walk and not self._is_walked():
                        self._walk(kept, run)
                    self._clean_records(kept, run)
                finally:
                    self._count(run)
            if run.refused is not None:
                raise run.refused
            return run.deleted
        finally:
            self._cleaning.release()

    def _clean_records(self, kept: int, run: _Cleaning) -> None:
        for path in self._expired_records(kept):
            if self._stopped.is_set():
                return
            directories = run.attempt(self._read_record, path)
            if directories is not None and run.empty(directories):
                run.requests += 2
                self._store.delete(path)
                run.remove_empty(path.rpartition("/")[0])

    def _expired_records(self, kept: int) -> list[str]:
        found = []
        for path, _ in self._store.list(RECORDS):
            match = _RECORD.fullmatch(path)
            if match is not None and int(match[1]) >= kept:
                break  # the list is in name order: what follows is kept too
            if match is not None:
                found.append(path)
        return found

    def _is_walked(self) -> bool:
        self._walked = self._walked or self._store.size(WALKED) is not None
        return self._walked

    def _walk(self, kept: int, run: _Cleaning) -> None:
        """TiCDC's way: look at every object. What has not expired yet is put on record, so this happens once."""
        for number, chunk in enumerate(_chunks(self._directories(), _RECORD_DIRECTORIES)):
            emptied = run.empty(directory for date, directory in chunk if date < kept)
            if self._stopped.is_set():
                return
            for date in sorted({date for date, _ in chunk if date >= kept or not emptied}):
                directories = sorted(directory for its_date, directory in chunk if its_date == date)
                self._add_record(f"{RECORDS}/{date:08d}/walk-{number:06d}", directories)
        self._store.put(WALKED, b"")
        self._walked = True

    def _directories(self) -> Iterator[tuple[int, str]]:
        before = None
        for path, _ in self._store.list(""):
            found = dated_directory(path)
            if found is not None and found != before:
                yield found
                before = found

    def _count(self, run: _Cleaning) -> None:
        if self._expired is not None:
            self._expired(run.deleted, run.requests)


class _Cleaning:
    """One run: the deletes, many at a time, and what came of them."""

    def __init__(self, store: Store, pool: ThreadPoolExecutor, stopped: threading.Event, table_depth: int) -> None:
        self._store, self._pool, self._stopped, self._table_depth = store, pool, stopped, table_depth
        self.deleted = self.requests = 0
        self.refused: StoreRefused | None = None  # what may not be deleted must not keep the rest

    def empty(self, directories: Iterable[str]) -> bool:
        """Delete all files of changes in these data directories; False if some are left, for the next time."""
        gone = True
        for chunk in _chunks(directories, _DIRECTORIES_AT_ONCE):
            if self._stopped.is_set():
                return False
            gone = self._empty(chunk) and gone
        return gone

    def _empty(self, directories: list[str]) -> bool:
        listed = self._all(self._files, directories)
        files = [path for found in listed for path in found or ()]
        indexes = [path for path in files if is_index_file(path)]
        removed = self._all(self._delete, indexes)
        left = {_parent(_parent(path)) for path, gone in zip(indexes, removed, strict=True) if not gone}
        data = [path for path in files if not is_index_file(path) and _parent(path) not in left]
        answers = self._all(self._delete, data)
        self.deleted += removed.count(True) + answers.count(True)
        for folder in sorted({_parent(path) for path in files}, key=len, reverse=True):
            self.remove_empty(folder)
        for directory in directories:
            self._remove_empty_parents(directory)
        return None not in listed and not left and None not in answers

    def _files(self, directory: str) -> list[str]:
        return [path for path, _ in self._store.list(directory) if is_change_file(path)]

    def _delete(self, path: str) -> bool:
        self._store.delete(path)
        return True

    def _all(self, act: Callable[[str], R], paths: list[str]) -> list[R | None]:
        self.requests += len(paths)
        attempt = partial(self.attempt, act)
        return [found for chunk in _chunks(paths, 1024) for found in self._pool.map(attempt, chunk)]

    def attempt(self, act: Callable[[str], R], path: str) -> R | None:
        """What `act` says of the path, None where the store refused."""
        try:
            return act(path)
        except StoreRefused as exc:
            self.refused = exc
            return None

    def _remove_empty_parents(self, directory: str) -> None:
        """The directory, its `meta`, and the levels above it up to the version; the table's own directory stays."""
        self.remove_empty(f"{directory}/meta")
        levels = directory.split("/")
        for depth in range(len(levels), self._table_depth, -1):
            self.remove_empty("/".join(levels[:depth]))

    def remove_empty(self, directory: str) -> None:
        if isinstance(self._store, WithDirectories):
            self._store.remove_empty(directory)


def _belongs(directory: str, date: int) -> bool:
    return dated_directory(f"{directory}/CDC") == (date, directory)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    left = iter(items)
    while chunk := list(islice(left, size)):
        yield chunk
