"""Compaction of the spool: what cannot land and pins nearly empty segments is copied together."""

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

_MOVE_BYTES = 256 << 20
_NEARLY_EMPTY = 0.5  # a segment of which at most this share is still held
_WORTH_MOVING = 1 / 64  # of the spool, freed by one move


@dataclass(frozen=True)
class Move:
    """Items that cannot land now and pin segments that are nearly empty otherwise: to be copied together."""

    slots: Numbers
    segments: Numbers  # by item, with its place there: a slot may hold another item before the move is over
    offsets: Ints
    lengths: Ints


class Copy(NamedTuple):
    """Where an item of a move stands too."""

    path: str
    tier: int
    offset: int


@dataclass
class Compaction:
    queues: Queues
    spool: Spool
    ready: Ready
    _moving: bool = False

    def remains(self) -> Move | None:
        """What to copy together under pressure: a little that cannot land and pins much of the spool."""
        spool, items = self.spool, self.queues.items
        if self._moving or not spool.under_pressure():
            return None
        most = min(_MOVE_BYTES, spool.max_bytes // 16)
        slots = self._whole_segments(self._pinning(most), most)
        segments = items.segment[slots].astype(np.int64)
        if spool.wasted(np.unique(segments)) < spool.max_bytes * _WORTH_MOVING:
            return None
        self._moving = True
        spool.pin(np.unique(segments))
        return Move(slots, segments, items.offset[slots], items.length[slots])

    def _pinning(self, most_bytes: int) -> Numbers:
        """Items in nearly empty segments of which nothing can land now."""
        spool, items = self.spool, self.queues.items
        live = items.live()
        live = live[np.isin(items.segment[live], spool.emptiest(spool.excess(), _NEARLY_EMPTY, most_bytes))]
        owners = items.dispatcher[live].astype(np.int64)
        fixed = items.reading[live] | ~np.isin(owners, self.ready.stuck(np.unique(owners)))
        pinning: Numbers = live[~np.isin(items.segment[live], np.unique(items.segment[live[fixed]]))]
        return pinning

    def _whole_segments(self, slots: Numbers, most_bytes: int) -> Numbers:
        """Whole segments only, for one of which something is left is not freed; those that hold least come first."""
        items = self.queues.items
        held = np.bincount(items.segment[slots], items.length[slots])
        slots = slots[np.lexsort((items.segment[slots], held[items.segment[slots]]))]
        left = np.cumsum(items.length[slots]) > most_bytes
        kept: Numbers = slots[~np.isin(items.segment[slots], items.segment[slots[left]])]
        return kept

    def moved(self, move: Move, copies: Sequence[Copy]) -> list[str]:
        """The items of a move stand at these copies too; returns what can be deleted now.

        What was planned, or has landed, since the move began stays where it is read. Without copies nothing moved.
        """
        self._moving = False
        freed = self._adopt(move, copies) if copies else []
        return freed + self.spool.unpin(np.unique(move.segments))

    def _adopt(self, move: Move, copies: Sequence[Copy]) -> list[str]:
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
        """Which items of the move still stand where they stood when it began, and are read by nobody."""
        items = self.queues.items
        here = (items.first_ts[move.slots] != NOTHING_PENDING) & (items.segment[move.slots] == move.segments)
        here &= ~items.reading[move.slots]
        return np.asarray(here)
