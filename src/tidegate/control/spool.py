"""Byte accounting of the spool: what is occupied, the marks, and whether a wake may go out.

Occupied is what is really there: the bytes of every segment that is not deleted, plus a fixed charge for each item. An
item that is durable frees nothing as long as its segment has others, so counting items alone would let the disk run
full. Invariants:
1. A segment is freed exactly when its last item is released; it is never freed twice.
2. Above the high mark no wake goes out until the spool is at or below the low mark. With one mark, the upstream would
   be woken and stopped with every file.
3. Releasing more than is there is an error. A count that is quietly set to zero would hide an item released twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tidegate.control.columns import Columns, Ints, Numbers
from tidegate.errors import BrokenInvariant

ITEM_BYTES = 256  # charged for each item, so that the marks also limit the driver's memory
HIGH_MARK, LOW_MARK = 0.8, 0.6
TIERS = ("memory", "disk")


class _Segments(Columns):
    """A row for each segment: items that refer to it, its size, the bytes of those items, its tier."""

    _dtypes = {"refs": np.int64, "bytes": np.int64, "live": np.int64, "tier": np.int8}  # noqa: RUF012
    refs: Ints
    bytes: Ints
    live: Ints
    tier: Ints


@dataclass
class Spool:
    """`Spool(max_bytes=10 << 30)` has its marks at 8 GiB and 6 GiB."""

    max_bytes: int
    tier_bytes: list[int] = field(default_factory=lambda: [0, 0])
    items: int = 0
    starved: bool = False  # the disk under the spool is nearly full: that counts as above the high mark
    _over: bool = False  # it was above the high mark, and not at the low mark since
    _paths: dict[int, str] = field(default_factory=dict)
    _numbers: dict[str, int] = field(default_factory=dict)
    _free: list[int] = field(default_factory=list)
    _segments: _Segments = field(default_factory=_Segments)

    @property
    def high_mark(self) -> int:
        return int(self.max_bytes * HIGH_MARK)

    @property
    def low_mark(self) -> int:
        return int(self.max_bytes * LOW_MARK)

    @property
    def occupied_bytes(self) -> int:
        return sum(self.tier_bytes) + ITEM_BYTES * self.items

    @property
    def room_bytes(self) -> int:
        """What fits besides; below 0 after a unit that was larger."""
        return self.max_bytes - self.occupied_bytes

    @property
    def segment_count(self) -> int:
        return len(self._paths)

    def path(self, number: int) -> str:
        return self._paths[number]

    def open_segments(self, paths: list[str], sizes: list[int], tiers: list[int]) -> Numbers:
        """Count new segments as occupied. Returns their numbers; those of freed segments are used again."""
        numbers = np.empty(len(paths), np.int64)
        for i, (path, size, tier) in enumerate(zip(paths, sizes, tiers, strict=True)):
            if path in self._numbers:
                raise BrokenInvariant(f"segment {path} was accepted twice")
            number = self._free.pop() if self._free else int(self._segments.extend(1)[0])
            self._paths[number], self._numbers[path], numbers[i] = path, number, number
            self._segments.bytes[number], self._segments.tier[number] = size, tier
            self.tier_bytes[tier] += size
        return numbers

    def add_items(self, segments: Numbers, lengths: Ints) -> None:
        np.add.at(self._segments.refs, segments, 1)
        np.add.at(self._segments.live, segments, lengths)
        self.items += len(segments)

    def release_items(self, segments: Numbers, lengths: Ints) -> list[str]:
        """These items are durable. Returns the paths of segments that no item refers to any more, to be deleted."""
        if len(segments) > self.items:
            raise BrokenInvariant(f"released {len(segments)} items of {self.items} in the spool")
        np.subtract.at(self._segments.refs, segments, 1)
        np.subtract.at(self._segments.live, segments, lengths)
        self.items -= len(segments)
        touched = np.unique(segments)
        refs, live = self._segments.refs[touched], self._segments.live[touched]
        if (refs < 0).any() or (live < 0).any():
            raise BrokenInvariant("a segment was released more often than it was referred to")
        if (live[refs == 0] > 0).any():
            raise BrokenInvariant("a segment's items were released with fewer bytes than they were added with")
        return [self._free_segment(int(number)) for number in touched[refs == 0]]

    def pin(self, segments: Numbers) -> None:
        """Keep these segments and their numbers until `unpin`: somebody copies from them."""
        np.add.at(self._segments.refs, segments, 1)

    def unpin(self, segments: Numbers) -> list[str]:
        """Returns the paths of those that no item refers to any more."""
        np.subtract.at(self._segments.refs, segments, 1)
        return [self._free_segment(int(number)) for number in segments if self._segments.refs[number] == 0]

    def _free_segment(self, number: int) -> str:
        path = self._paths.pop(number)
        del self._numbers[path]
        self.tier_bytes[int(self._segments.tier[number])] -= int(self._segments.bytes[number])
        self._segments.bytes[number] = 0
        self._free.append(number)
        return path

    @property
    def above_high_mark(self) -> bool:
        """Whether the upstream must wait. A disk that is nearly full counts as such."""
        return self.occupied_bytes > self.high_mark or self.starved

    def may_wake(self) -> bool:
        """Whether the upstream may be woken now."""
        if self.above_high_mark:
            self._over = True
        elif self.occupied_bytes <= self.low_mark:
            self._over = False
        return not self._over

    def under_pressure(self) -> bool:
        """Whether to land more than is due. From the low mark on, so that the high mark is seldom reached."""
        return self.occupied_bytes >= self.low_mark or self.starved

    def excess(self) -> int:
        """Bytes to free so that the spool comes a little below its low mark; all of them while the disk is starved."""
        return self.occupied_bytes if self.starved else self.occupied_bytes - int(self.low_mark * 0.9)

    def pinned_share(self) -> float:
        """Share of the segments' bytes that belongs to items: 1.0 when nothing is wasted."""
        occupied = sum(self.tier_bytes)
        return float(self._segments.live[: self._segments.size].sum()) / occupied if occupied else 1.0

    def wasted(self, segments: Numbers) -> int:
        """Bytes of these segments that belong to no item."""
        return int((self._segments.bytes[segments] - self._segments.live[segments]).sum())

    def emptiest(self, wanted_bytes: int, below: float = 1.0, most_bytes: float = np.inf) -> Numbers:
        """The segments with the most waste, as many as would free `wanted_bytes`.

        Only those of which items need at most this share, and at most `most_bytes`.
        """
        numbers = np.array(list(self._paths), np.int64)
        live = self._segments.live[numbers]
        share = live / np.maximum(self._segments.bytes[numbers], 1)
        small = (share <= below) & (live <= most_bytes)
        numbers, share = numbers[small], share[small]
        ranked = numbers[np.argsort(share, kind="stable")]
        enough = int(np.searchsorted(np.cumsum(self._segments.bytes[ranked]), wanted_bytes)) + 1
        return ranked[:enough]
