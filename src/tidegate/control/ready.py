"""Who may land now: the lane is free, and no DDL's marker stands before what waits."""

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


@dataclass
class Ready:
    limits: Limits
    queues: Queues
    markers: Markers

    def __post_init__(self) -> None:
        self.due = Due(self.limits, self.queues, self.markers)

    def among(self, candidates: Numbers) -> Numbers:
        """Of the candidates that may land only the first in each lane."""
        free = self._free(candidates)
        _, first = np.unique(self.queues.dispatchers.lane[free], return_index=True)
        return free[np.sort(first)]

    def stuck(self, dispatcher: Numbers) -> Numbers:
        """Those of these that cannot land now: their lanes wait for a retry, or a DDL stands before what they hold."""
        return np.setdiff1d(dispatcher, self._free(dispatcher))

    def nothing_can_land(self) -> bool:
        """Whether all that is queued stands behind markers, or in lanes that are busy."""
        return not len(self.among(self.due.active()))

    def _free(self, candidates: Numbers) -> Numbers:
        """Candidates that hold something that may land, and whose lane is free."""
        ds = self.queues.dispatchers
        free = candidates[(ds.head[candidates] >= 0) & ~self.queues.lanes.busy[ds.lane[candidates]]]
        free = free[self.markers.before_frozen(free)]
        return self._oldest_version(free) if self.queues.shared_lanes else free

    def _oldest_version(self, candidates: Numbers) -> Numbers:
        """Candidates that no other dispatcher of their lane holds an older version against."""
        ds, version = self.queues.dispatchers, self.queues.items.version
        active = np.union1d(self.due.active(), candidates)
        lanes, lane_at = np.unique(ds.lane[active], return_inverse=True)
        oldest = np.full(len(lanes), NOTHING_PENDING)
        np.minimum.at(oldest, lane_at, version[ds.head[active]])
        wanted = oldest[np.searchsorted(lanes, ds.lane[candidates])]
        kept: Numbers = candidates[version[ds.head[candidates]] == wanted]
        return kept

    def pressed(self, spool: Spool, planned_bytes: int) -> Numbers:
        """Dispatchers to land early: the largest, or those that pin nearly empty segments."""
        ds, items = self.queues.dispatchers, self.queues.items
        wanted = spool.excess() - planned_bytes
        if wanted <= 0:
            return np.zeros(0, np.int64)
        if spool.pinned_share() < 0.5:
            live = items.live()
            pinning = live[np.isin(items.segment[live], spool.emptiest(wanted))]
            owners = self.among(np.unique(items.dispatcher[pinning]).astype(np.int64))
            if len(owners):  # none when all that pins is under way or failing
                return owners
        active = self.due.active()
        # Only what can land counts: a hanging table, however large, relieves the spool of nothing.
        largest = self.among(active[np.argsort(-ds.queued_bytes[active], kind="stable")])
        enough = int(np.searchsorted(np.cumsum(ds.queued_bytes[largest]), wanted)) + 1
        return largest[:enough]
