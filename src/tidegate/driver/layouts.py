"""The layouts that the changefeed may need soon: definitions in files of the spool, what is known of them in columns.

A million tables may have a million layouts, a kilobyte each. So no definition stays in memory. Tasks read those that
their rows need (`executor/layouts.py`). A layout that no row has used for `state-ttl` is given up here. It stays in the
journal, in the entry that put it on record, and comes back from there when a row uses it again (decision 0029).

The caller holds the changefeed's lock.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tidegate.executor.layouts import LayoutFiles, read_layouts, write_layouts
from tidegate.format.layout_texts import NO_KEYS, NO_LAYOUTS, LayoutTexts
from tidegate.format.pieces import Flags, Numbers
from tidegate.format.tables import Layout

_FILE_LAYOUTS = 1 << 16  # files are merged up to this size, which takes some 50 MiB for a moment
_PARSED = 1024  # layouts that are kept as objects
_LOOKS = 8  # per time to live: how often to look for layouts that nobody uses


class Record(Protocol):
    """What the journal has of layouts."""

    def find_layouts(self, wanted: Numbers) -> LayoutTexts:
        """Those of these that are on record. Asks the store."""

    def has_layouts(self, wanted: Numbers) -> Flags:
        """Which of these are on record."""


@dataclass
class Layouts:
    directory: str  # of the spool
    record: Record
    ttl_s: float
    _key: Numbers = field(default_factory=lambda: NO_KEYS)  # fingerprints, sorted
    _used_at: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    _fresh: Flags = field(default_factory=lambda: np.zeros(0, np.bool_))  # not on record yet
    _files: list[tuple[str, int]] = field(default_factory=list)  # and how many layouts are in each
    _dead: list[str] = field(default_factory=list)  # a task may still read these
    _made: int = 0  # files so far
    _next_look: float = 0.0
    _parsed: dict[int, Layout] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._key)

    @property
    def nbytes(self) -> int:
        return int(self._key.nbytes + self._used_at.nbytes + self._fresh.nbytes)

    def for_job(self) -> LayoutFiles:
        """What the tasks of the next ingest job read. No other job runs now, so nobody reads files that are dead."""
        for path in self._dead:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        self._dead = []
        return LayoutFiles(tuple(path for path, _ in reversed(self._files)))

    # -- known ---------------------------------------------------------------------------------------------------

    def missing(self, wanted: Numbers) -> Numbers:
        return np.setdiff1d(wanted, self._key)

    def find(self, wanted: Numbers) -> LayoutTexts:
        """The definitions of these, as far as they are here."""
        return LayoutFiles(tuple(path for path, _ in self._files)).find(wanted)

    def layout(self, fingerprint: int) -> Layout:
        if fingerprint not in self._parsed:
            if len(self._parsed) >= _PARSED:
                self._parsed.clear()
            self._parsed[fingerprint] = self.find(np.array([fingerprint], np.int64)).layout(fingerprint)
        return self._parsed[fingerprint]

    def learn(self, texts: LayoutTexts, now: float) -> None:
        """Layout rows came, or the journal was asked. What is not on record yet goes there with the next entry."""
        new = ~np.isin(texts.fingerprint, self._key)
        if not new.any():
            return
        texts = texts.take(new)
        at = np.searchsorted(self._key, texts.fingerprint)
        self._key = np.insert(self._key, at, texts.fingerprint)
        self._used_at = np.insert(self._used_at, at, now)
        self._fresh = np.insert(self._fresh, at, ~self.record.has_layouts(texts.fingerprint))
        self._write(texts)
        self._merge_files()

    def use(self, wanted: Numbers, now: float) -> None:
        """Rows use these now; all of them are here."""
        self._used_at[np.searchsorted(self._key, wanted)] = now

    # -- on record -------------------------------------------------------------------------------------------------

    def fresh(self) -> LayoutTexts:
        """Those that are not on record yet."""
        return self.find(self._key[self._fresh]) if self._fresh.any() else NO_LAYOUTS

    def recorded(self, fingerprints: Numbers) -> None:
        """These are on record now."""
        self._fresh &= ~np.isin(self._key, fingerprints)

    # -- given up --------------------------------------------------------------------------------------------------

    def expire(self, now: float, in_use: Callable[[], Numbers]) -> int:
        """Give up those that are on record and that no row has used for long; returns how many."""
        if now < self._next_look:
            return 0
        self._next_look = now + self.ttl_s / _LOOKS
        idle = (self._used_at + self.ttl_s <= now) & ~self._fresh
        if not idle.any():
            return 0
        idle &= ~np.isin(self._key, in_use())
        self._key, self._used_at, self._fresh = self._key[~idle], self._used_at[~idle], self._fresh[~idle]
        self._shrink_files()
        return int(idle.sum())

    # -- files -----------------------------------------------------------------------------------------------------

    def _write(self, texts: LayoutTexts) -> None:
        path = f"{self.directory}/layouts-{self._made}.arrow"
        self._made += 1
        write_layouts(path, texts)
        self._files.append((path, len(texts)))

    def _merge_files(self) -> None:
        """A file is merged with one at least half its size: so they stay few, and each layout is seldom copied."""
        while len(self._files) > 1:
            (one, size), (two, last) = self._files[-2:]
            if size > 2 * last or size + last > _FILE_LAYOUTS:
                return
            del self._files[-2:]
            self._write(LayoutTexts.all_of([read_layouts(one), read_layouts(two)]))
            self._dead += [one, two]

    def _shrink_files(self) -> None:
        """Write files anew of which more than half is not needed any more."""
        files, self._files = self._files, []
        for path, size in files:
            texts = read_layouts(path)
            needed = np.isin(texts.fingerprint, self._key)
            if 2 * int(needed.sum()) >= size:
                self._files.append((path, size))
                continue
            self._dead.append(path)
            if needed.any():
                self._write(texts.take(needed))
