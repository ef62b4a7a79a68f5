"""Who is due, and why: by age, by size, or before a DDL's marker.

Only dispatchers that hold something are listed here: what is looked at follows the active ones, never all known.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import numpy as np

from tidegate.control.columns import Numbers
from tidegate.control.limits import Limits
from tidegate.control.markers import Markers
from tidegate.control.queues import Queues


def _none() -> Numbers:
    return np.zeros(0, np.int64)


@dataclass
class Due:
    limits: Limits
    queues: Queues
    markers: Markers
    aged: Numbers = field(default_factory=_none)
    full: Numbers = field(default_factory=_none)
    draining: Numbers = field(default_factory=_none)
    visited: int = 0  # dispatchers looked at so far: follows the active ones, not the known ones
    _ages: list[tuple[float, int, Numbers]] = field(default_factory=list)
    _pushed: int = 0

    def activated(self, dispatcher: Numbers, accepted: float) -> None:
        """These queues were empty and hold something since `accepted`."""
        if len(dispatcher):
            self._pushed += 1
            heapq.heappush(self._ages, (accepted + self.limits.age_bound_s, self._pushed, dispatcher))

    def grown(self, dispatcher: Numbers) -> None:
        """These queues hold more than before."""
        full = dispatcher[self.queues.dispatchers.queued_bytes[dispatcher] >= self.limits.file_size_bytes]
        if len(full):
            self.full = np.union1d(self.full, full)

    def drain(self, dispatcher: Numbers) -> None:
        """What these hold before a DDL's marker lands at once."""
        if len(before := dispatcher[self.markers.before_marker(dispatcher)]):
            self.draining = np.union1d(self.draining, before)

    def released(self, dispatcher: Numbers) -> None:
        """A DDL is over: what stood behind its marker may stand before the next; by size or age it is due as before."""
        self.drain(dispatcher[self.queues.dispatchers.head[dispatcher] >= 0])

    def landed(self, dispatcher: Numbers) -> None:
        """The lanes of these are free, so what stands in their queues may be due."""
        ds = self.queues.dispatchers
        left = dispatcher[ds.head[dispatcher] >= 0]
        self.grown(left)
        for oldest in np.unique(ds.oldest_at[left]):
            self.activated(left[ds.oldest_at[left] == oldest], float(oldest))

    def come_of_age(self, now: float) -> None:
        """Move what has come of age from the heap to `aged`; a queue flushed since then has an entry of its own."""
        ds, bound = self.queues.dispatchers, self.limits.age_bound_s
        while self._ages and self._ages[0][0] <= now:
            _, _, numbers = heapq.heappop(self._ages)
            self.visited += len(numbers)
            due = numbers[(ds.head[numbers] >= 0) & (ds.oldest_at[numbers] + bound <= now + 1e-6)]
            self.aged = np.concatenate([self.aged, due])

    def forget(self, taken: Numbers) -> None:
        """These are planned. What more than one round may take stands before a marker stays due."""
        self.aged = self.aged[~np.isin(self.aged, taken)]
        self.full = self.full[~np.isin(self.full, taken)]
        if len(self.draining):
            self.draining = self.draining[~np.isin(self.draining, taken)]
            self.drain(taken)

    def active(self) -> Numbers:
        """Dispatchers with a queue: each has an entry by age, or is due already."""
        known = np.unique(np.concatenate([self.aged, self.full, *(numbers for _, _, numbers in self._ages)]))
        self.visited += len(known)
        active: Numbers = known[self.queues.dispatchers.head[known] >= 0]
        return active
