"""Idle tables: the state of a table without changes is given up after a while.

A source may have millions of tables over time of which most never change again, and their columns would only grow. What
the driver forgets, the sink still has: when such a table comes back, its first landing looks which files exist and goes
on behind them (`look`). That costs some requests, so state is given up only after an hour (`state-ttl`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tidegate.control.columns import Numbers
from tidegate.control.markers import Markers
from tidegate.control.queues import Queues


@dataclass
class IdleTables:
    """A wheel of dispatchers. Each is visited `ttl_s` after it came, and again and again until it is idle.

    A dispatcher that gets a change keeps its turn on the wheel: to move it would cost something for every change.
    """

    queues: Queues
    markers: Markers
    ttl_s: float
    _wheel: deque[tuple[float, Numbers]] = field(default_factory=deque)  # when to visit whom

    def use(self, dispatcher: Numbers, now: float) -> None:
        """These dispatchers got a change or a DDL now."""
        ds = self.queues.dispatchers
        ds.used_at[dispatcher] = now
        fresh = dispatcher[~ds.on_wheel[dispatcher]]
        if len(fresh):
            ds.on_wheel[fresh] = True
            self._wheel.append((now + self.ttl_s, fresh))

    def expire(self, now: float, checkpoint_ts: int) -> int:
        """Give up the state of those that are idle; returns how many."""
        ds, gone = self.queues.dispatchers, 0
        concerned = [block.members for block in self.markers.blocks.values()]
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
        """Which of these have nothing in a queue or under way, and nothing durable above the checkpoint.

        What is durable above the checkpoint would be sent again after a restart, and only the state here tells that it
        must be dropped.
        """
        ds, lanes = self.queues.dispatchers, self.queues.lanes
        lane = ds.lane[dispatcher]
        idle: NDArray[np.bool_] = (ds.head[dispatcher] < 0) & (ds.in_flight[dispatcher] == 0)
        idle &= ~lanes.busy[lane] & ~lanes.owed[lane] & ~lanes.look[lane]
        idle &= (ds.used_at[dispatcher] + self.ttl_s <= now) & (ds.durable_ts[dispatcher] <= checkpoint_ts)
        return idle
