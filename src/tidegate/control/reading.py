"""What the source may hand out next, so that the spool keeps its bound.

The upstream is woken below the marks (`spool.py`), and is then told how many bytes fit and which tables to hold back.
One exception: a DDL waits for changes that have not come, and all that is left in the spool waits for DDLs. The changes
must come in although the spool is above its marks, or nobody would ever go on. They may use the spool up to its size,
and the tables with frozen items are held back then: a source hands a table out in order, so the DDL lacks
nothing of them. If that is not enough, nothing can help but a larger spool. Invariants:
1. A wake goes out only while the spool is below its marks, or in this exception while it is below its size.
2. What is told to the source fits. So the spool never occupies more than its size, except by one unit: the first one
   after an empty spool or in the exception, if the source cannot hand out less.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidegate.control.accounts import Accounts
from tidegate.control.columns import Numbers
from tidegate.control.compaction import Compaction
from tidegate.control.markers import Block, Markers
from tidegate.control.planner import Planner
from tidegate.control.spool import HIGH_MARK
from tidegate.events import MOST_HELD

_BATCH_BYTES = 256 << 20  # decision 0004
_FIRST_GUESS = 16.0  # an estimate is in CSV bytes; rows of one INT are 6.4 times as long in canal-json
_EASING = 0.75  # how fast a greater expansion is forgotten
_TELLING_SHARE = 1 / 64  # of the limit: a smaller batch says nothing about the next large one


def read_limit_bytes(spool_max_bytes: int) -> int:
    """What a micro-batch reads at most: it must fit between the high mark and the spool's size."""
    return max(1, min(_BATCH_BYTES, spool_max_bytes // 5))


@dataclass
class Reading:
    accounts: Accounts
    markers: Markers
    planner: Planner
    compaction: Compaction
    expansion: float | None = None  # bytes in the spool for each byte of the source's estimate, as measured

    @property
    def lacking(self) -> Block | None:
        """The first DDL that waits for changes that have not come. One before it may fail to be written meanwhile."""
        return self.markers.first_above(self.accounts.progress.resolved_ts + 1)

    @property
    def misses_changes(self) -> bool:
        """Whether the first DDL waits for changes that have not come, while nothing that could land is left.

        Then the source must be woken even if the spool is above its marks. Everything in it waits for the DDL, and the
        DDL for the source: nobody would ever go on.
        """
        if self.lacking is None:
            return False
        waiting = self.planner.retries.waiting_items
        return self.accounts.in_flight == waiting and self.planner.ready.nothing_can_land()

    @property
    def may_exceed_marks(self) -> bool:
        """Whether the source may be woken above the marks, for what the first DDL lacks."""
        return self.accounts.spool.room_bytes > 0 and self.misses_changes

    @property
    def too_small_for(self) -> Block | None:
        """The DDL for whose missing changes the spool has no room, if nothing that is under way can make some."""
        lacking = self.lacking
        if lacking is None or lacking.ts > self.markers.unfinished_ts:  # the DDLs before it may make room when they end
            return None
        if self.accounts.spool.room_bytes > 0 or self.accounts.in_flight or not self.misses_changes:
            return None
        return None if self.compaction.can_move else lacking

    @property
    def needed_bytes(self) -> int:
        """The least size of the spool in which all that it has now would be below the high mark."""
        return int(self.accounts.spool.occupied_bytes / HIGH_MARK) + 1

    # -- what the source is told -------------------------------------------------------------------------------------

    @property
    def held_tables(self) -> set[int]:
        """Ids of the tables that the source should not hand out now, the largest first if there are too many.

        Those over their share of the spool. While the spool is above its marks and the first DDL lacks changes, also
        those with frozen items.
        """
        held = self.accounts.held
        if not self.accounts.spool.may_wake() and self.lacking is not None:
            held = np.union1d(held, self._frozen())
        ds = self.accounts.queues.dispatchers
        largest = held[np.argsort(-ds.spool_bytes[held], kind="stable")]
        return set(list(dict.fromkeys(ds.table_id[largest].tolist()))[:MOST_HELD])

    def _frozen(self) -> Numbers:
        active = self.planner.due.active()
        return active[~self.markers.before_frozen(active)]

    @property
    def limit_bytes(self) -> int:
        """How many bytes the next micro-batch should have, in the source's estimate."""
        spool = self.accounts.spool
        return self._estimated(min(read_limit_bytes(spool.max_bytes), max(spool.room_bytes, 0)))

    @property
    def room_bytes(self) -> int | None:
        """What one unit of the source may have at most; None if waiting would not make more room for it."""
        spool = self.accounts.spool
        return None if not spool.items or self.misses_changes else self._estimated(max(spool.room_bytes, 0))

    def _estimated(self, size: int) -> int:
        return int(size / (self.expansion or _FIRST_GUESS))

    def measured(self, estimated_bytes: int, spool_bytes: int) -> None:
        """A micro-batch that the source estimated at so many bytes occupies so many. Above one, so that it is safe."""
        told = self._estimated(read_limit_bytes(self.accounts.spool.max_bytes))
        if estimated_bytes > told * _TELLING_SHARE:
            self.expansion = max(1.0, spool_bytes / estimated_bytes, _EASING * (self.expansion or 0.0))
