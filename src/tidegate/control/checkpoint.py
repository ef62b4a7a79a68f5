"""How far the changefeed is: what was accepted, what is durable, where a restart reads on.

The checkpoint is min(resolved mark, first commit-ts of anything not yet durable less one). Invariants:
1. A resolved mark counts only after all items of its batch are in the ledger.
2. Neither checkpoint nor position ever moves backwards.
3. The position is the end of the last batch that is wholly durable together with all batches before it.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np

from tidegate.control.columns import Ints
from tidegate.errors import BrokenInvariant

NOTHING_PENDING = np.iinfo(np.int64).max


@dataclass
class Progress:
    checkpoint_ts: int = 0
    resolved_ts: int = 0
    position: str | None = None
    _pending: OrderedDict[int, int] = field(default_factory=OrderedDict)
    _ends: dict[int, str | None] = field(default_factory=dict)

    def accepted(self, batch: int, items: int, end: str | None, resolved_ts: int) -> None:
        """A batch's items are all in the ledger, so its resolved mark counts from now on."""
        if batch in self._pending:
            raise BrokenInvariant(f"batch {batch} was accepted twice")
        self._pending[batch], self._ends[batch] = items, end
        self.resolved_ts = max(self.resolved_ts, resolved_ts)
        self._advance_position()

    def durable(self, batches: Ints) -> None:
        """One entry of `batches` for each item that became durable."""
        numbers, counts = np.unique(batches, return_counts=True)
        for batch, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            left = self._pending.get(batch, 0) - count
            if left < 0:
                raise BrokenInvariant(f"an item of batch {batch} was acknowledged durable twice")
            self._pending[batch] = left
        self._advance_position()

    def is_durable(self, batch: int) -> bool:
        return self._pending.get(batch, 0) == 0

    def advance(self, first_pending_ts: int) -> int:
        """Move the checkpoint as far as the smallest commit-ts that is not durable allows; returns it."""
        self.checkpoint_ts = max(self.checkpoint_ts, min(self.resolved_ts, first_pending_ts - 1))
        return self.checkpoint_ts

    def _advance_position(self) -> None:
        while self._pending and next(iter(self._pending.values())) == 0:
            batch, _ = self._pending.popitem(last=False)
            end = self._ends.pop(batch)
            self.position = end if end is not None else self.position
