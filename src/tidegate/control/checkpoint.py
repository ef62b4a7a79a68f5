"""How far the changefeed is: the checkpoint for readers, the position for a restart.

The checkpoint says to readers: everything at or below this commit-ts is in the files. It is the resolved mark, or one
less than the first commit-ts that is not durable, whichever is smaller. The position says where a restart opens the
source. A source may only be opened between batches, and files of later batches may be durable before those of earlier
ones. So the position is the end of the last batch that is durable together with all batches before it. Invariants:
1. A resolved mark counts only when all items of its batch are in the ledger.
2. Neither checkpoint nor position ever goes back.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np

from tidegate.control.columns import Ints
from tidegate.errors import BrokenInvariant

NOTHING_PENDING = np.iinfo(np.int64).max  # the commit-ts of what never comes


@dataclass
class Progress:
    """Checkpoint and position, and the batches that hold them back."""

    checkpoint_ts: int = 0
    resolved_ts: int = 0
    position: str | None = None
    _pending: OrderedDict[int, int] = field(default_factory=OrderedDict)  # by batch, items and DDLs not durable
    _ends: dict[int, str | None] = field(default_factory=dict)  # by batch, where the source goes on after it

    def accepted(self, batch: int, items: int, end: str | None, resolved_ts: int) -> None:
        """All items of a batch are in the ledger, so its resolved mark counts from now on."""
        if batch in self._pending:
            raise BrokenInvariant(f"batch {batch} was accepted twice")
        self._pending[batch], self._ends[batch] = items, end
        self.resolved_ts = max(self.resolved_ts, resolved_ts)
        self._advance_position()

    def durable(self, batches: Ints) -> None:
        """Items became durable; `batches` has the batch of each."""
        numbers, counts = np.unique(batches, return_counts=True)
        for batch, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            left = self._pending.get(batch, 0) - count
            if left < 0:
                raise BrokenInvariant(f"an item of batch {batch} was acknowledged durable twice")
            self._pending[batch] = left
        self._advance_position()

    def is_durable(self, batch: int) -> bool:
        """Whether nothing of this batch is missing."""
        return self._pending.get(batch, 0) == 0

    def advance(self, first_pending_ts: int) -> int:
        """Move the checkpoint as far as the first commit-ts that is not durable allows; returns it."""
        self.checkpoint_ts = max(self.checkpoint_ts, min(self.resolved_ts, first_pending_ts - 1))
        return self.checkpoint_ts

    def _advance_position(self) -> None:
        """Pass all batches at the front that are durable. One without an end of its own passes without a position."""
        while self._pending and next(iter(self._pending.values())) == 0:
            batch, _ = self._pending.popitem(last=False)
            end = self._ends.pop(batch)
            self.position = end if end is not None else self.position
