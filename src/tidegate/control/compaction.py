"""Compaction of the spool: items that cannot land are copied together, so that the segments they pin can be deleted.

A segment has items of many tables and is deleted when its last item is durable. One table that fails for hours would
pin all segments of these hours, each for a few bytes, and the spool would be full of waste. So, under pressure, the
items of such tables are copied into new segments. The copy runs in the background and changes nothing:
only when it is done do the items refer to their copies, except those that were planned or landed in the meantime.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidegate.control.checkpoint import NOTHING_PENDING
from tidegate.control.columns import Ints, Numbers
from tidegate.control.queues import Queues
from tidegate.control.ready import Ready
from tidegate.control.spool import Spool

_MOVE_BYTES = 256 << 20  # copied by one move at most, so that it is soon over
_NEARLY_EMPTY = 0.5  # share of a segment's bytes that items still need, at most
_WORTH_MOVING = 1 / 64  # share of the spool that a move must free, or it is not worth its reads and writes


@dataclass(frozen=True)
class Move:
    """Items to copy together.

    Segment and offset are noted for each, because a slot may be given to another item before the move is over.
    """

    slots: Numbers
    segments: Numbers
    offsets: Ints
    lengths: Ints


class Copy(NamedTuple):
    """Where the copy of an item is."""

    path: str
    tier: int
    offset: int


@dataclass
class Compaction:
    """Finds what to move, one move at a time, and takes the copies into use."""

    queues: Queues
    spool: Spool
    ready: Ready
    _moving: bool = False

    @property
    def can_move(self) -> bool:
        """Whether a move is under way or possible, so that the spool may become smaller without a landing."""
        return self._moving or self._worth_moving() is not None

    def remains(self) -> Move | None:
        """What to copy now: a few items that cannot land and pin much of the spool. None without pressure."""
        items = self.queues.items
        if self._moving or (slots := self._worth_moving()) is None:
            return None
        segments = items.segment[slots].astype(np.int64)
        self._moving = True
        self.spool.pin(np.unique(segments))
        return Move(slots, segments, items.offset[slots], items.length[slots])

    def _worth_moving(self) -> Numbers | None:
        spool = self.spool
        if not spool.under_pressure():
            return None
        most = min(_MOVE_BYTES, spool.max_bytes // 16)
        slots = self._whole_segments(self._pinning(most), most)
        wasted = spool.wasted(np.unique(self.queues.items.segment[slots].astype(np.int64)))
        return slots if wasted >= spool.max_bytes * _WORTH_MOVING else None

    def _pinning(self, most_bytes: int) -> Numbers:
        """Items in nearly empty segments from which nothing can land now.

        A segment with an item that can land, or that a task reads, is left out: it may be free without a copy.
        """
        spool, items = self.spool, self.queues.items
        live = items.live()
        live = live[np.isin(items.segment[live], spool.emptiest(spool.excess(), _NEARLY_EMPTY, most_bytes))]
        owners = items.dispatcher[live].astype(np.int64)
        fixed = items.reading[live] | ~np.isin(owners, self.ready.stuck(np.unique(owners)))
        pinning: Numbers = live[~np.isin(items.segment[live], np.unique(items.segment[live[fixed]]))]
        return pinning

    def _whole_segments(self, slots: Numbers, most_bytes: int) -> Numbers:
        """Of these the items of whole segments, the emptiest first, up to so many bytes.

        A segment of which one item is left is not freed, and its copy would be for nothing.
        """
        items = self.queues.items
        needed = np.bincount(items.segment[slots], items.length[slots])
        slots = slots[np.lexsort((items.segment[slots], needed[items.segment[slots]]))]
        left = np.cumsum(items.length[slots]) > most_bytes
        kept: Numbers = slots[~np.isin(items.segment[slots], items.segment[slots[left]])]
        return kept

    def moved(self, move: Move, copies: Sequence[Copy]) -> list[str]:
        """The items of a move were copied; returns the segments that can be deleted now. No copies: it failed."""
        self._moving = False
        freed = self._adopt(move, copies) if copies else []
        return freed + self.spool.unpin(np.unique(move.segments))

    def _adopt(self, move: Move, copies: Sequence[Copy]) -> list[str]:
        """Items that are still where they were refer to their copies from now on."""
        items, spool = self.queues.items, self.spool
        here = self._still_here(move)
        slots, lengths = move.slots[here], items.length[move.slots[here]]
        ends: dict[str, tuple[int, int]] = {}
        for (path, tier, offset), length in zip(copies, move.lengths.tolist(), strict=True):
            ends[path] = (max(offset + length, ends.get(path, (0, 0))[0]), tier)
        chosen = [copy for copy, kept in zip(copies, here.tolist(), strict=True) if kept]
        used = sorted({copy.path for copy in chosen})
        numbers = spool.open_segments(used, [ends[p][0] for p in used], [ends[p][1] for p in used])
        target = numbers[[used.index(copy.path) for copy in chosen]] if chosen else numbers
        spool.add_items(target, lengths)
        freed = spool.release_items(move.segments[here], lengths)
        items.segment[slots], items.offset[slots] = target, [copy.offset for copy in chosen]
        return freed + [path for path in ends if path not in used]

    def _still_here(self, move: Move) -> NDArray[np.bool_]:
        """Which items are still where they were when the move began, and are read by no land task.

        A task that reads keeps its path: the old segment must stay until it is done.
        """
        items = self.queues.items
        here = (items.first_ts[move.slots] != NOTHING_PENDING) & (items.segment[move.slots] == move.segments)
        here &= ~items.reading[move.slots]
        return np.asarray(here)
