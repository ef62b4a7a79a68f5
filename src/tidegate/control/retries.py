"""What failed and is tried again: how long it pauses, and the line in which it waits."""

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
_CLOSING_PAUSE_S = 1.0

T = TypeVar("T")


def pause_s(attempt: int, salt: int) -> float:
    """From one second doubled up to a minute, less up to a quarter by `salt`, so that not all come back at once."""
    longest: float = min(_FIRST_S * 2 ** min(attempt, 10), _MOST_S)
    return longest * (1 - (salt * _GOLDEN % 1) / 4)


@dataclass
class WaitingLine(Generic[T]):
    """What waits until its moment comes, the earliest first."""

    closing_pause_s: float = _CLOSING_PAUSE_S
    _heap: list[tuple[float, int, T]] = field(default_factory=list)
    _added: int = 0

    def __iter__(self) -> Iterator[T]:
        return (what for _, _, what in self._heap)

    def add(self, what: T, due: float) -> None:
        self._added += 1
        heapq.heappush(self._heap, (due, self._added, what))

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
        """Closing waits out no long pause."""
        latest = now + self.closing_pause_s
        self._heap = [(min(due, latest), number, what) for due, number, what in self._heap]
        heapq.heapify(self._heap)


@dataclass
class Retries:
    """Rounds that did not land; what hung waits apart from the rest."""

    numbering: Numbering
    _failed: WaitingLine[Round] = field(default_factory=WaitingLine)
    _suspects: WaitingLine[Round] = field(default_factory=WaitingLine)
    _suspect_out: int = 0  # the round of suspects that is under way

    @property
    def waiting_items(self) -> int:
        """Items of rounds that wait to be tried again."""
        return sum(len(round_.slots) for line in (self._failed, self._suspects) for round_ in line)

    def failed(self, round_: Round, keep: NDArray[np.bool_], hung: NDArray[np.bool_], now: float) -> None:
        """The kept files did not land and are planned again after a pause: lanes that hung apart from the others."""
        apart = keep & np.isin(round_.lane, np.unique(round_.lane[keep & hung]))
        if apart.any():
            again, due = self._again(round_, apart, now)
            self._suspects.add(replace(again, suspect=True), due)
        if (keep & ~apart).any():
            # Without those that hung, with which most of these were not even tried, they have a fresh chance.
            first = replace(round_, attempt=0) if apart.any() else round_
            self._failed.add(*self._again(first, keep & ~apart, now))

    def _again(self, round_: Round, files: NDArray[np.bool_], now: float) -> tuple[Round, float]:
        round_id = self.numbering.round_id()
        return round_.again(files, round_id), now + pause_s(round_.attempt, round_id)

    def add(self, round_: Round, due: float) -> None:
        self._failed.add(round_, due)

    def answered(self, round_: Round) -> None:
        if round_.id == self._suspect_out:
            self._suspect_out = 0

    def take_suspect(self, now: float) -> Round | None:
        """What hung, if nothing else that hung is under way."""
        if self._suspect_out or self._suspects.first_due(now) is None:
            return None
        again = self._suspects.take()
        self._suspect_out = again.id
        return again

    def take_failed(self, now: float, most_files: int, most_bytes: int) -> Round | None:
        """What failed and is due. Rounds that paused as long go together: each is a job, and there may be very many."""
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
        """Closing waits out no long pause; the first one stays, so that a failing lane does not keep out the others."""
        self._failed.shorten_pauses(now)
        self._suspects.shorten_pauses(now)
