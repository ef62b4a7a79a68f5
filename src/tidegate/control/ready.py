"""Who may land now: the lane is free, and no DDL's marker is before the first item.

Being due and being ready are two questions. A table whose last landing hangs may be due by size, age and pressure at
the same time, and still nothing of it can go out. It must neither be planned nor be counted on to free the spool.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidegate.control.checkpoint import NOTHING_PENDING
from tidegate.control.columns import Numbers
from tidegate.control.due import Due
from tidegate.control.limits import Limits
from tidegate.control.markers import Markers
from tidegate.control.queues import Queues
from tidegate.control.spool import Spool

_MOSTLY_WASTED = 0.5  # below this share of live bytes the segments are mostly waste


@dataclass
class Ready:
    """Picks those that can land out of those that are due."""

    limits: Limits
    queues: Queues
    markers: Markers

    def __post_init__(self) -> None:
        self.due = Due(self.limits, self.queues, self.markers)

    def among(self, candidates: Numbers) -> Numbers:
        """The candidates that may land now, in their order. Of one lane only the first: a lane has one landing."""
        free = self._free(candidates)
        _, first = np.unique(self.queues.dispatchers.lane[free], return_index=True)
        return free[np.sort(first)]

    def stuck(self, dispatcher: Numbers) -> Numbers:
        """Which of these cannot land now: their lanes wait for a retry, or a DDL's marker is before their items."""
        return np.setdiff1d(dispatcher, self._free(dispatcher))

    def nothing_can_land(self) -> bool:
        """Whether all that is queued is behind markers or belongs to lanes that are busy."""
        return not len(self.among(self.due.active()))

    def _free(self, candidates: Numbers) -> Numbers:
        """Candidates that have an item before any marker, and whose lane is free."""
        ds = self.queues.dispatchers
        free = candidates[(ds.head[candidates] >= 0) & ~self.queues.lanes.busy[ds.lane[candidates]]]
        free = free[self.markers.before_frozen(free)]
        if not self.queues.shared_lanes:
            return free
        return self._oldest_version(free[~self.queues.waiting_to_take_over(free)])

    def _oldest_version(self, candidates: Numbers) -> Numbers:
        """Where dispatchers share a lane, those with the oldest version waiting there.

        The path of a lane has the version in it, and a version that comes back would start its numbers at 1 again. So
        an older version of any partition lands before a newer one of another.
        """
        ds, version = self.queues.dispatchers, self.queues.items.version
        active = np.union1d(self.due.active(), candidates)
        lanes, lane_at = np.unique(ds.lane[active], return_inverse=True)
        oldest = np.full(len(lanes), NOTHING_PENDING)
        np.minimum.at(oldest, lane_at, version[ds.head[active]])
        wanted = oldest[np.searchsorted(lanes, ds.lane[candidates])]
        kept: Numbers = candidates[version[ds.head[candidates]] == wanted]
        return kept

    def pressed(self, spool: Spool, planned_bytes: int) -> Numbers:
        """Dispatchers to land early, so that the spool comes down to its low mark.

        A segment is deleted when its last item is durable. Where most segments are nearly empty, landing the few items
        that pin them frees the most. Otherwise the largest queues go first: they free much with few files. Bytes in
        rounds under way count as freed already.
        """
        ds, items = self.queues.dispatchers, self.queues.items
        wanted = spool.excess() - planned_bytes
        if wanted <= 0:
            return np.zeros(0, np.int64)
        if spool.pinned_share() < _MOSTLY_WASTED:
            live = items.live()
            pinning = live[np.isin(items.segment[live], spool.emptiest(wanted))]
            owners = self.among(np.unique(items.dispatcher[pinning]).astype(np.int64))
            if len(owners):  # nobody is ready when all items that pin segments are under way or failing
                return owners
        active = self.due.active()
        # Only what can land counts: a table that hangs frees nothing, however large it is.
        largest = self.among(active[np.argsort(-ds.queued_bytes[active], kind="stable")])
        enough = int(np.searchsorted(np.cumsum(ds.queued_bytes[largest]), wanted)) + 1
        return largest[:enough]
