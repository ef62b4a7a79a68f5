"""What is durable already when a changefeed starts again, so that ingest drops it from the replay."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Floor:
    """How far each dispatcher is durable: its rows at or below (ts, seq) are dropped.

    Sorted by `owner`, which is the table id, or where tables are split `table id * spans + span`.
    """

    owner: Ints
    ts: Ints
    seq: Ints
    checkpoint_ts: int = 0  # whatever is at or below it is durable, of any dispatcher

    @property
    def last_ts(self) -> int:
        """Above it nothing is dropped."""
        return max(self.checkpoint_ts, int(self.ts.max(initial=0)))

    def passes(self, owner: Ints, ts: Ints, seq: Ints) -> NDArray[np.bool_]:
        """Which of these rows are not durable yet."""
        if not len(self.owner):
            return np.asarray(ts > self.checkpoint_ts)
        at = np.minimum(np.searchsorted(self.owner, owner), len(self.owner) - 1)
        known = self.owner[at] == owner
        above = (ts > self.ts[at]) | ((ts == self.ts[at]) & (seq > self.seq[at]))
        passing: NDArray[np.bool_] = (~known | above) & (ts > self.checkpoint_ts)
        return passing
