"""Who is due, and why: by age, by size, or because a DDL waits for it.

A million tables may be known of which a thousand get changes. So nobody is ever looked for among all: a dispatcher
comes into these lists when its queue gets its first item, and is visited when its moment comes. `visited` counts how
often, so that a test can prove it.
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
    """The dispatchers that have something in their queues, by what makes them due."""

    limits: Limits
    queues: Queues
    markers: Markers
    aged: Numbers = field(default_factory=_none)
    full: Numbers = field(default_factory=_none)
    draining: Numbers = field(default_factory=_none)
    visited: int = 0  # dispatchers looked at so far
    _ages: list[tuple[float, int, Numbers]] = field(default_factory=list)  # heap: when, order of arrival, who
    _pushed: int = 0

    def activated(self, dispatcher: Numbers, accepted: float) -> None:
        """These queues were empty and have an item since `accepted`: they are due one age bound later.

        All that one batch activates is one entry of the heap. Entries are never searched or changed; what was flushed
        in the meantime is found out when the entry is due.
        """
        if len(dispatcher):
            self._pushed += 1
            heapq.heappush(self._ages, (accepted + self.limits.age_bound_s, self._pushed, dispatcher))

    def grown(self, dispatcher: Numbers) -> None:
        """These queues got more, maybe a file's worth."""
        full = dispatcher[self.queues.dispatchers.queued_bytes[dispatcher] >= self.limits.file_size_bytes]
        if len(full):
            self.full = np.union1d(self.full, full)

    def drain(self, dispatcher: Numbers) -> None:
        """A DDL waits for what these have before its marker. It lands at once, for everything behind waits too."""
        if len(before := dispatcher[self.markers.before_marker(dispatcher)]):
            self.draining = np.union1d(self.draining, before)

    def released(self, dispatcher: Numbers) -> None:
        """A DDL is over. What was behind its marker may be before the next one, which then waits for it."""
        self.drain(dispatcher[self.queues.dispatchers.head[dispatcher] >= 0])

    def landed(self, dispatcher: Numbers) -> None:
        """The lanes of these are free again, so what came into their queues meanwhile may be due."""
        ds = self.queues.dispatchers
        left = dispatcher[ds.head[dispatcher] >= 0]
        self.grown(left)
        for oldest in np.unique(ds.oldest_at[left]):
            self.activated(left[ds.oldest_at[left] == oldest], float(oldest))

    def come_of_age(self, now: float) -> None:
        """Move what has come of age to `aged`. A queue that was flushed since has a later entry, and is left out."""
        ds, bound = self.queues.dispatchers, self.limits.age_bound_s
        while self._ages and self._ages[0][0] <= now:
            _, _, numbers = heapq.heappop(self._ages)
            self.visited += len(numbers)
            due = numbers[(ds.head[numbers] >= 0) & (ds.oldest_at[numbers] + bound <= now + 1e-6)]
            self.aged = np.concatenate([self.aged, due])

    def forget(self, taken: Numbers) -> None:
        """These were planned. What is left of them before a marker, more than one round takes, stays due."""
        self.aged = self.aged[~np.isin(self.aged, taken)]
        self.full = self.full[~np.isin(self.full, taken)]
        if len(self.draining):
            self.draining = self.draining[~np.isin(self.draining, taken)]
            self.drain(taken)

    def active(self) -> Numbers:
        """All dispatchers with something in their queues: each has an entry by age, or is due already."""
        known = np.unique(np.concatenate([self.aged, self.full, *(numbers for _, _, numbers in self._ages)]))
        self.visited += len(known)
        active: Numbers = known[self.queues.dispatchers.head[known] >= 0]
        return active
