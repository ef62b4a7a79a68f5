"""What failed and is retried: how long it pauses, and the line in which it waits.

One rule for rounds and for schema files of DDLs. What failed is retried as it was, after a pause that doubles up to
a minute: a store that is down gets fewer and fewer requests, and a table that one user must repair costs nearly
nothing. A round that hung is retried alone, one at a time, because the job around a hanging file ends late for every
file in it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tidegate.control.rounds import Numbering, Round, joined

_FIRST_S, _MOST_S = 1.0, 60.0
_GOLDEN = 0.6180339887498949
_CLOSING_PAUSE_S = 1.0  # not shorter, so that a lane that fails does not keep the others out of the jobs

T = TypeVar("T")


def pause_s(attempt: int, salt: int) -> float:
    """One second, doubled with each attempt up to a minute, and up to a quarter less.

    How much less follows from `salt`: what failed together then does not come back together. Multiples of the golden
    ratio spread any run of numbers evenly, so no clock and no chance is needed.
    """
    longest: float = min(_FIRST_S * 2 ** min(attempt, 10), _MOST_S)
    return longest * (1 - (salt * _GOLDEN % 1) / 4)


@dataclass
class WaitingLine(Generic[T]):
    """What waits until its moment comes, the earliest first; of one moment in order of arrival."""

    closing_pause_s: float = _CLOSING_PAUSE_S
    _heap: list[tuple[float, int, T]] = field(default_factory=list)
    _added: int = 0

    def __iter__(self) -> Iterator[T]:
        return (what for _, _, what in self._heap)

    def add(self, what: T, due: float) -> None:
        self._added += 1
        heapq.heappush(self._heap, (due, self._added, what))

    @property
    def next_due(self) -> float | None:
        """The first moment that comes; None if nothing waits."""
        return self._heap[0][0] if self._heap else None

    def first_due(self, now: float) -> T | None:
        """The first whose moment has come; it stays in the line."""
        return self._heap[0][2] if self._heap and self._heap[0][0] <= now else None

    def take(self) -> T:
        """Take the first out."""
        return heapq.heappop(self._heap)[2]

    def take_due(self, now: float) -> list[T]:
        """Take out all whose moment has come."""
        found: list[T] = []
        while self.first_due(now) is not None:
            found.append(self.take())
        return found

    def shorten_pauses(self, now: float) -> None:
        """The changefeed closes: nothing waits longer than `closing_pause_s` from now. The user waits for the end."""
        latest = now + self.closing_pause_s
        self._heap = [(min(due, latest), number, what) for due, number, what in self._heap]
        heapq.heapify(self._heap)


@dataclass
class Retries:
    """Rounds that did not land. Those that hung, the suspects, wait in a line of their own."""

    numbering: Numbering
    _failed: WaitingLine[Round] = field(default_factory=WaitingLine)
    _suspects: WaitingLine[Round] = field(default_factory=WaitingLine)
    _suspect_out: int = 0  # id of the suspect round that is under way

    @property
    def waiting_items(self) -> int:
        """Items of rounds that wait for their retry."""
        return sum(len(round_.slots) for line in (self._failed, self._suspects) for round_ in line)

    @property
    def next_due(self) -> float | None:
        """When the next of them is retried; None if there is none."""
        return min((due for line in (self._failed, self._suspects) if (due := line.next_due) is not None), default=None)

    def failed(self, round_: Round, files: NDArray[np.bool_], hung: NDArray[np.bool_], now: float) -> None:
        """These files of the round did not land. Lanes that hung are retried apart from the others."""
        apart = files & np.isin(round_.lane, np.unique(round_.lane[files & hung]))
        if apart.any():
            again, due = self._again(round_, apart, now)
            self._suspects.add(replace(again, suspect=True), due)
        if (files & ~apart).any():
            # Most of these were not even tried, because the job waited for those that hung. So they begin anew.
            first = replace(round_, attempt=0) if apart.any() else round_
            self._failed.add(*self._again(first, files & ~apart, now))

    def _again(self, round_: Round, files: NDArray[np.bool_], now: float) -> tuple[Round, float]:
        round_id = self.numbering.round_id()
        return round_.again(files, round_id), now + pause_s(round_.attempt, round_id)

    def add(self, round_: Round, due: float) -> None:
        """A round that only needs other numbers: it may go out as soon as it is due."""
        self._failed.add(round_, due)

    def answered(self, round_: Round) -> None:
        """The next suspect may go out once the last one has answered."""
        if round_.id == self._suspect_out:
            self._suspect_out = 0

    def take_suspect(self, now: float) -> Round | None:
        """The next round that hung, unless another one is under way. Two would hold two land tasks at a time."""
        if self._suspect_out or self._suspects.first_due(now) is None:
            return None
        again = self._suspects.take()
        self._suspect_out = again.id
        return again

    def take_failed(self, now: float, most_files: int, most_bytes: int) -> Round | None:
        """What failed and is due, as one round of at most so many files and bytes.

        Rounds that paused equally long are joined. After an outage thousands may be due, and each would be a job.
        """
        first = self._failed.first_due(now)
        if first is None:
            return None
        rounds, files, size = [self._failed.take()], len(first), int(first.bytes.sum())
        while (other := self._failed.first_due(now)) is not None:
            files, size = files + len(other), size + int(other.bytes.sum())
            alike = other.fresh == first.fresh and pause_s(other.attempt, 0) == pause_s(first.attempt, 0)
            if not alike or files > most_files or size > most_bytes:
                break
            rounds.append(self._failed.take())
        return first if len(rounds) == 1 else joined(rounds, self.numbering.round_id())

    def shorten_pauses(self, now: float) -> None:
        """The changefeed closes: no round waits for long."""
        self._failed.shorten_pauses(now)
        self._suspects.shorten_pauses(now)
