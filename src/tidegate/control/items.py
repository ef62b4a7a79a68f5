"""Accepted items as columns: an item is a slice of a segment, with consecutive changes of one dispatcher and version.

Its row number here is its slot. A slot is free, or in exactly one queue, or in exactly one round. Slots are used again,
so the columns are as long as the most items at one time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tidegate.control.checkpoint import NOTHING_PENDING
from tidegate.control.columns import Columns, Ints, Numbers

END = -1  # the slot behind the last item of a queue


class Items(Columns):
    """A row for each item. A free slot has the greatest `first_ts`, so the first pending one is a plain minimum."""

    _dtypes = {  # noqa: RUF012
        "dispatcher": np.int32, "version": np.int64, "layout": np.int64, "first_ts": np.int64, "first_seq": np.int64,
        "last_ts": np.int64, "last_seq": np.int64, "rows": np.int64, "segment": np.int32, "offset": np.int64,
        "length": np.int64, "checksum": np.int64, "accepted_at": np.float64, "batch": np.int64, "next": np.int64,
        "reading": np.bool_,
    }  # fmt: skip
    dispatcher: Ints
    version: Ints
    layout: Ints
    first_ts: Ints
    first_seq: Ints
    last_ts: Ints
    last_seq: Ints
    rows: Ints
    segment: Ints
    offset: Ints
    length: Ints
    checksum: Ints
    accepted_at: NDArray[np.float64]
    batch: Ints
    next: Ints  # the slot of the next item in its queue
    reading: NDArray[np.bool_]  # a land task reads its bytes, so they must not move

    def __init__(self) -> None:
        super().__init__()
        self._free: list[Numbers] = []

    def allocate(self, count: int) -> Numbers:
        """Slots for so many items, those that were free first."""
        taken: list[Numbers] = []
        while self._free and count:
            slots = self._free.pop()
            if len(slots) > count:
                self._free.append(slots[count:])
                slots = slots[:count]
            taken.append(slots)
            count -= len(slots)
        if count:
            taken.append(self.extend(count))
        return np.concatenate(taken) if taken else np.zeros(0, np.int64)

    def free(self, slots: Numbers) -> None:
        """These items are durable; their slots may be given again."""
        self.first_ts[slots] = NOTHING_PENDING
        if len(slots):
            self._free.append(slots.copy())

    def live(self) -> Numbers:
        """The slots of all items that are not durable yet."""
        return np.flatnonzero(self.first_ts[: self.size] != NOTHING_PENDING)

    def first_pending_ts(self) -> int:
        """The smallest commit-ts that is not durable."""
        return int(self.first_ts[: self.size].min(initial=NOTHING_PENDING))
