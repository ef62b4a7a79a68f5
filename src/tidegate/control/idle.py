"""Idle tables: the state of a table that got no change for long is given up; storage has it when it comes back."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tidegate.control.blocking import Blocking
from tidegate.control.columns import Numbers
from tidegate.control.queues import Queues


@dataclass
class IdleTables:
    queues: Queues
    blocking: Blocking
    ttl_s: float
    _wheel: deque[tuple[float, Numbers]] = field(default_factory=deque)  # when to look whether state is still needed

    def use(self, dispatcher: Numbers, now: float) -> None:
        """These are needed now, and will be looked at when they may no longer be."""
        ds = self.queues.dispatchers
        ds.used_at[dispatcher] = now
        fresh = dispatcher[~ds.on_wheel[dispatcher]]
        if len(fresh):
            ds.on_wheel[fresh] = True
            self._wheel.append((now + self.ttl_s, fresh))

    def expire(self, now: float, checkpoint_ts: int) -> int:
        """Give up the state of tables that got no change for so long; returns how many. Visits only those due."""
        ds, gone = self.queues.dispatchers, 0
        if self.queues.shared_lanes:  # several tables would lose one lane
            return 0
        concerned = [block.members for block in self.blocking.blocks.values()]
        while self._wheel and self._wheel[0][0] <= now:
            _, numbers = self._wheel.popleft()
            numbers = numbers[ds.on_wheel[numbers] & (ds.table_id[numbers] > 0)]
            idle = self._idle(numbers, now, checkpoint_ts)
            idle &= ~np.isin(numbers, np.concatenate(concerned)) if concerned else True
            self.queues.drop(numbers[idle])
            gone += int(idle.sum())
            if (~idle).any():
                self._wheel.append((now + self.ttl_s, numbers[~idle]))
        return gone

    def _idle(self, dispatcher: Numbers, now: float, checkpoint_ts: int) -> NDArray[np.bool_]:
        """Which of these hold nothing, are under way nowhere, and are durable below the checkpoint."""
        ds, lanes = self.queues.dispatchers, self.queues.lanes
        lane = ds.lane[dispatcher]
        idle: NDArray[np.bool_] = (ds.head[dispatcher] < 0) & (ds.in_flight[dispatcher] == 0)
        idle &= ~lanes.busy[lane] & ~lanes.owed[lane] & ~lanes.look[lane]
        idle &= (ds.used_at[dispatcher] + self.ttl_s <= now) & (ds.durable_ts[dispatcher] <= checkpoint_ts)
        return idle
