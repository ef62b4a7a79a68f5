"""The commit-ts of every transaction, settled once and for ever. Pure: values in, values out.

A transaction gets the time of its commit, or one more than the last commit-ts if that is greater:
`c = max(f, last + 1)`. That is a function of the log alone, except for three things. A commit time that is ahead of
the server's clock counts as `last + 1`, and the clock is another one at the next look. A *tick* moves `last` to the
server's clock while nothing happens. A *chunk* of a snapshot takes a commit-ts between two transactions.

So all of that is put on record before anything that depends on it is handed out: a *window* is a part of the log, with
what is not plain in it. Windows follow each other without gaps:

    {"start": [7, 4, 463...], "end": [7, 1204, 463...], "exceptions": {"0-1-42": 463...}, "ticks": [[7, 900, 463...]],
     "chunks": [["12-0-3", 7, 1204, 463...]]}

Whoever reads the log again takes what is not plain from the windows above its start, and asks no clock there. Behind
the last window the rule above decides, and becomes the next window. Invariants:
1. commit-ts rise strictly along the log, ticks and chunks included.
2. A transaction that was handed out has the same commit-ts in every process that reads it again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tidegate.errors import BadSetting, BrokenInvariant
from tidegate.events import tso
from tidegate.sources.mysql.log.images import Numbers
from tidegate.sources.mysql.log.transactions import Position

AHEAD_MS = 1_000  # a commit time may be this much ahead of the server's clock, as far as we know it
_NO_TIME = 0  # less than any commit-ts


class Place(NamedTuple):
    """A place in the log, and the last commit-ts up to there: ticks and chunks have no bytes of their own."""

    file: int
    at: int
    ts: int

    @property
    def position(self) -> Position:
        return Position(self.file, self.at)


class Virtual(NamedTuple):
    """A tick, or a chunk with its name; it comes behind all transactions up to its place."""

    place: Place
    chunk: str = ""


@dataclass(frozen=True)
class Window:
    start: Place
    end: Place
    exceptions: dict[str, int] = field(default_factory=dict)  # by name of the transaction, what it got
    virtual: tuple[Virtual, ...] = ()

    def to_json(self) -> str:
        ticks = [[*each.place] for each in self.virtual if not each.chunk]
        chunks = [[each.chunk, *each.place] for each in self.virtual if each.chunk]
        shown: dict[str, Any] = {"start": [*self.start], "end": [*self.end], "exceptions": self.exceptions}
        return json.dumps(shown | {"ticks": ticks, "chunks": chunks}, separators=(",", ":"))

    @staticmethod
    def from_json(text: str | bytes) -> Window:
        try:
            found = json.loads(text)
            virtual = [Virtual(_place(each)) for each in found["ticks"]]
            virtual += [Virtual(_place(each[1:]), str(each[0])) for each in found["chunks"]]
            exceptions = {str(name): int(ts) for name, ts in found["exceptions"].items()}
            ordered = tuple(sorted(virtual, key=lambda each: each.place.ts))
            return Window(_place(found["start"]), _place(found["end"]), exceptions, ordered)
        except (ValueError, TypeError, KeyError, AttributeError, IndexError) as exc:
            raise BadSetting(
                f"a record of the source is broken: {exc!r}; bring it back, or use an empty prefix"
            ) from exc


def _place(numbers: Sequence[Any]) -> Place:
    file, at, ts = map(int, numbers)
    return Place(file, at, ts)


class Settler:
    """Gives commit-ts along the log from `start` on: as the windows say, and behind them by the rule.

    The caller tells it every place where it stops (`stop`, `arrive`), so that ticks and chunks come where they were.
    """

    def __init__(self, start: Place, windows: Iterable[Window]) -> None:
        self.last = start.ts
        above = [window for window in windows if window.end > start]
        self._check(start, above)
        self.recorded_to = above[-1].end if above else start
        self._until: Position | None = above[-1].end.position if above else None
        self._exceptions = {name: ts for window in above for name, ts in window.exceptions.items()}
        virtual = [each for window in above for each in window.virtual if each.place.ts > start.ts]
        self._virtual = sorted(virtual, key=lambda each: each.place.ts)
        self.fresh_exceptions: dict[str, int] = {}
        self.fresh_virtual: list[Virtual] = []

    @property
    def stop(self) -> Position | None:
        """The next place at which the caller must stop before a transaction, and call `arrive`."""
        if self._virtual:
            return self._virtual[0].place.position
        return self._until

    @property
    def is_live(self) -> bool:
        """Whether all windows are behind, so that the rule decides."""
        return self._until is None

    def arrive(self, position: Position) -> list[Virtual]:
        """The ticks and chunks on record up to this place, which must lie between two transactions."""
        due = []
        while self._virtual and self._virtual[0].place.position <= position:
            due.append(self._virtual.pop(0))
            self._move(due[-1].place.ts)
        if not self._virtual and self._until is not None and self._until <= position:
            self._until = None
        return due

    def settle(self, time_ms: Numbers, name: Callable[[int], str], clock_ms: int | None) -> Numbers:
        """The commit-ts of the next transactions; `name(i)` is the GTID of the i-th of these times.

        `clock_ms` is the server's clock; None if nobody knows it, and then no time counts as ahead of it.
        """
        times = tso(1) * time_ms
        odd = self._odd(time_ms, name, clock_ms)
        times[odd] = _NO_TIME
        count = np.arange(len(times))
        found = count + np.maximum.accumulate(np.maximum(times - count, self.last + 1))
        self._note(odd, found, name)
        if len(found):
            self._move(int(found[-1]))
        return found

    def go_back(self, ts: int) -> None:
        """The transactions behind this commit-ts come once more."""
        self.last = ts
        self.fresh_exceptions = {name: given for name, given in self.fresh_exceptions.items() if given <= ts}

    def more(self, count: int) -> None:
        """The last transaction takes so many commit-ts more: a DDL has one before those of its rows."""
        self.last += count

    def tick(self, position: Position, clock_ms: int) -> Virtual | None:
        """Moves on to the server's clock; None if it is not ahead. Only while all windows are behind."""
        return self._fresh(position, tso(clock_ms), "") if tso(clock_ms) > self.last else None

    def chunk(self, position: Position, name: str) -> Virtual:
        return self._fresh(position, self.last + 1, name)

    def window(self, end: Place) -> Window:
        """All that was settled since the last window, up to here, where a transaction has ended."""
        made = {name: ts for name, ts in self.fresh_exceptions.items() if ts <= end.ts}
        self.fresh_exceptions = {name: ts for name, ts in self.fresh_exceptions.items() if ts > end.ts}
        virtual, self.fresh_virtual = tuple(self.fresh_virtual), []
        start, self.recorded_to = self.recorded_to, end
        return Window(start, end, made, virtual)

    def _fresh(self, position: Position, ts: int, chunk: str) -> Virtual:
        if not self.is_live:
            raise BrokenInvariant(f"a tick or a chunk at {position} would change what is on record up to {self._until}")
        made = Virtual(Place(*position, ts), chunk)
        self._move(ts)
        self.fresh_virtual.append(made)
        return made

    def _odd(self, time_ms: Numbers, name: Callable[[int], str], clock_ms: int | None) -> Numbers:
        """Which transactions get `last + 1` whatever their time says."""
        if self.is_live:
            ahead = time_ms > clock_ms + AHEAD_MS if clock_ms is not None else np.zeros(len(time_ms), np.bool_)
            return np.flatnonzero(ahead)
        if not self._exceptions:
            return np.zeros(0, np.int64)
        return np.array([i for i in range(len(time_ms)) if name(i) in self._exceptions], np.int64)

    def _note(self, odd: Numbers, found: Numbers, name: Callable[[int], str]) -> None:
        for i in odd.tolist():
            gtid, ts = name(i), int(found[i])
            if self.is_live:
                self.fresh_exceptions[gtid] = ts
            elif self._exceptions[gtid] != ts:
                raise BrokenInvariant(f"transaction {gtid} has commit-ts {self._exceptions[gtid]} on record, not {ts}")

    def _move(self, ts: int) -> None:
        if ts <= self.last:
            raise BrokenInvariant(f"commit-ts {ts} follows {self.last}: the records of the source do not fit its log")
        self.last = ts

    def _check(self, start: Place, windows: Sequence[Window]) -> None:
        """Windows must follow each other from the start on, or what lies between would be settled anew."""
        reached = start
        for window in windows:
            if window.start > reached:
                raise BadSetting(
                    f"the source's records begin at {window.start}, but reading goes on at {reached}: one is missing; "
                    "bring it back, or start anew on an empty prefix"
                )
            reached = max(reached, window.end)
