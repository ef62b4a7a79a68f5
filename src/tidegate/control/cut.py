"""Cutting queues into files.

A file holds whole items of one dispatcher and version, in order, as close to `file-size` as the items allow; items of
one transaction stay in one file unless together they exceed it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidegate.control.columns import Ints, Numbers, group_sizes, group_starts
from tidegate.control.items import Items
from tidegate.control.markers import Markers
from tidegate.control.queues import Queues


@dataclass(frozen=True)
class Cut:
    """Items in the order of their queues, those of one dispatcher together."""

    slots: Numbers
    dispatcher: Numbers
    file_of: Ints  # equal for the items of one file

    def keep(self, which: NDArray[np.bool_]) -> Cut:
        return Cut(self.slots[which], self.dispatcher[which], self.file_of[which])

    def within(self, items: Items, most_bytes: float) -> Cut:
        """Only the first files that together have no more bytes, but at least one: a queue alone can hold more."""
        starts = group_starts(self.file_of)
        sizes = np.add.reduceat(items.length[self.slots], starts)
        fits = (np.cumsum(sizes) <= most_bytes) | (np.arange(len(sizes)) == 0)
        return self.keep(np.repeat(fits, group_sizes(starts, len(self.slots))))


def cut_all(queues: Queues, markers: Markers, dispatcher: Numbers, file_size_bytes: int) -> Cut:
    """All that the queues of these dispatchers may land."""
    return _cut(queues, markers, dispatcher, file_size_bytes)[0]


def cut_full(queues: Queues, markers: Markers, dispatcher: Numbers, file_size_bytes: int) -> Cut:
    """Only files that will not grow any more; the last, incomplete one of each queue is left."""
    cut, final = _cut(queues, markers, dispatcher, file_size_bytes)
    return cut.keep(final)


def _cut(queues: Queues, markers: Markers, dispatcher: Numbers, file_size_bytes: int) -> tuple[Cut, NDArray[np.bool_]]:
    """Cut what may land into files, and say of each item whether its file will grow no more."""
    items = queues.items
    slots, owner_at = queues.walk(dispatcher)
    keep = _first_version(items.version[slots], owner_at)
    keep &= items.first_ts[slots] < markers.frozen_from(dispatcher)[owner_at]
    ended = np.isin(owner_at[keep], owner_at[~keep])  # a newer version follows: these files will not grow
    slots, owner_at = slots[keep], owner_at[keep]
    file_of, complete = _files(items, slots, owner_at, file_size_bytes)
    return Cut(slots, dispatcher[owner_at], file_of), complete | ended


def _first_version(version: Ints, owner_at: Ints) -> NDArray[np.bool_]:
    """One landing has one version: keep the items before a queue's first change of version."""
    starts = group_starts(owner_at)
    counts = group_sizes(starts, len(version))
    changed = np.cumsum(version != np.repeat(version[starts], counts))
    return np.asarray(changed == np.repeat(changed[starts], counts))


def _files(items: Items, slots: Numbers, owner_at: Ints, file_size_bytes: int) -> tuple[Ints, NDArray[np.bool_]]:
    """File number (within this round) of each item, and whether its file is as large as `file-size` asks."""
    starts = group_starts(owner_at)
    ends = np.append(starts[1:], len(slots))
    length = items.length[slots]
    totals = np.add.reduceat(length, starts)
    complete = np.zeros(len(slots), np.bool_)
    breaks = np.zeros(len(slots), np.int64)
    breaks[starts[1:]] = 1
    for at in np.flatnonzero(totals >= file_size_bytes):
        first, last = int(starts[at]), int(ends[at])
        cuts = _cut_queue(items, slots[first:last], file_size_bytes)
        breaks[first + cuts[cuts < last - first]] = 1
        complete[first : first + int(cuts[-1])] = True
    return np.cumsum(breaks), complete


def _cut_queue(items: Items, slots: Numbers, file_size_bytes: int) -> Ints:
    """Ends of the complete files of one queue, each the allowed end nearest to `file-size`."""
    ends = np.cumsum(items.length[slots])
    # A cut is allowed where the next item begins another transaction.
    free_ends = np.flatnonzero(np.append(items.first_ts[slots[1:]] != items.last_ts[slots[:-1]], True))
    cuts: list[int] = []
    base = 0
    while len(ends) and int(ends[-1]) - base >= file_size_bytes:
        start = cuts[-1] if cuts else 0
        cut = int(free_ends[_nearest(ends[free_ends] - base, file_size_bytes)]) + 1
        # One transaction larger than a file: cut inside it.
        if cut <= start or int(ends[cut - 1]) - base > 2 * file_size_bytes:
            cut = int(np.searchsorted(ends, base + file_size_bytes)) + 1
        cuts.append(min(cut, len(ends)))
        base = int(ends[cuts[-1] - 1])
    return np.array(cuts or [0], np.int64)


def _nearest(sizes: Ints, wanted: int) -> int:
    at = min(int(np.searchsorted(sizes, wanted)), len(sizes) - 1)
    if at and wanted - int(sizes[at - 1]) <= int(sizes[at]) - wanted and sizes[at - 1] > 0:
        return at - 1
    return at
