"""The tags of index files: what the store said when a lane put its index last.

A lane that lands again puts its index on the condition that it still has this tag, without reading it first. So a tag
is worth a request, and never more than that: one that is missing costs a read, one that is wrong a failed put and a
read. Tags are therefore given up whenever it is simpler: after a landing that failed, in a new directory, with the
state of a table that is idle, and when very many lanes are active. A restart begins without any.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.control.columns import Numbers, Texts

_MOST = 1 << 20  # tags that are kept, of 20 to 40 bytes each


class Tags:
    """The tag by the number of a lane, "" where none is known.

    Two halves take turns: tags go to the young half, and when it is full, it becomes the old one, and what that had is
    given up. So the lanes that landed last keep theirs, without a time for each.
    """

    def __init__(self, most: int = _MOST) -> None:
        self._half = max(1, most // 2)
        self._young, self._old = Texts(), Texts()
        self._noted = 0  # in the young half; a lane may count twice
        self._any = False  # stores whose tags follow from the content never have one

    def take(self, lane: Numbers) -> pa.Array:
        """The tags of these lanes."""
        if not self._any:
            return pa.array([""]).take(pa.array(np.zeros(len(lane), np.int64)))
        young, old = self._young.take(lane), self._old.take(lane)
        return pc.if_else(pc.equal(young, ""), old, young)

    def renew(self, lane: Numbers, tags: pa.Array | None) -> None:
        """A landing of these lanes has answered with these tags; where it has none, the tag is unknown from now on."""
        self.forget(lane)
        told = pc.not_equal(tags, "").to_numpy(zero_copy_only=False) if tags is not None else np.zeros(0, np.bool_)
        if not told.any():
            return
        if self._noted >= self._half:
            self._old, self._young, self._noted = self._young, Texts(), 0
        self._young.put(lane[told], pc.filter(tags, pa.array(told)))
        self._noted += int(told.sum())
        self._any = True

    def forget(self, lane: Numbers) -> None:
        """The tags of these lanes are unknown from now on."""
        if self._any and len(lane):
            nothing = pa.array([""]).take(pa.array(np.zeros(len(lane), np.int64)))
            self._young.put(lane, nothing)
            self._old.put(lane, nothing)
