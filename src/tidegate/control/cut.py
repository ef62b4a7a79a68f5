"""Cutting queues into files.

A file has whole items of one dispatcher and one version, in order, and is as near to `file-size` as whole items allow.
The items of one transaction stay in one file unless together they are larger than a file: a reader that applies file
after file then sees whole transactions. Files are cut from the front of a queue only, so a file that is cut once is the
same whatever comes later.
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
    """Items that go into files, as columns, in the order of their queues; those of one dispatcher are together."""

    slots: Numbers
    dispatcher: Numbers
    file_of: Ints  # equal for the items of one file

    def keep(self, which: NDArray[np.bool_]) -> Cut:
        return Cut(self.slots[which], self.dispatcher[which], self.file_of[which])

    def within(self, items: Items, most_bytes: float) -> Cut:
        """The first files, as many as have no more bytes together, at least one. One queue may have more than that."""
        starts = group_starts(self.file_of)
        sizes = np.add.reduceat(items.length[self.slots], starts)
        fits = (np.cumsum(sizes) <= most_bytes) | (np.arange(len(sizes)) == 0)
        return self.keep(np.repeat(fits, group_sizes(starts, len(self.slots))))


def cut_all(queues: Queues, markers: Markers, dispatcher: Numbers, file_size_bytes: int) -> Cut:
    """All that may land of these queues, the last and smaller file of each included."""
    return _cut(queues, markers, dispatcher, file_size_bytes)[0]


def cut_full(queues: Queues, markers: Markers, dispatcher: Numbers, file_size_bytes: int) -> Cut:
    """Only files that cannot grow any more. A size flush uses this: the rest of a queue goes on growing."""
    cut, final = _cut(queues, markers, dispatcher, file_size_bytes)
    return cut.keep(final)


def _cut(queues: Queues, markers: Markers, dispatcher: Numbers, file_size_bytes: int) -> tuple[Cut, NDArray[np.bool_]]:
    """Cut what may land into files; and for each item, whether its file cannot grow any more."""
    items = queues.items
    slots, owner_at = queues.walk(dispatcher)
    keep = _first_version(items.version[slots], owner_at)
    keep &= items.first_ts[slots] < markers.frozen_from(dispatcher)[owner_at]
    # Behind these a newer version or a DDL's marker follows, so nothing more comes for their last file.
    ended = np.isin(owner_at[keep], owner_at[~keep])
    slots, owner_at = slots[keep], owner_at[keep]
    file_of, complete = _files(items, slots, owner_at, file_size_bytes)
    return Cut(slots, dispatcher[owner_at], file_of), complete | ended


def _first_version(version: Ints, owner_at: Ints) -> NDArray[np.bool_]:
    """Which items come before the first change of version in their queue: a lane lands one version at a time."""
    starts = group_starts(owner_at)
    counts = group_sizes(starts, len(version))
    changed = np.cumsum(version != np.repeat(version[starts], counts))
    return np.asarray(changed == np.repeat(changed[starts], counts))


def _files(items: Items, slots: Numbers, owner_at: Ints, file_size_bytes: int) -> tuple[Ints, NDArray[np.bool_]]:
    """The file of each item, counted through the round, and whether that file is as large as `file-size` asks.

    Only queues that have a whole file are walked one by one; all others are one file each.
    """
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
    """Where the complete files of one queue end: each at the allowed end that is nearest to `file-size`."""
    ends = np.cumsum(items.length[slots])
    # A file may end where the next item begins another transaction.
    free_ends = np.flatnonzero(np.append(items.first_ts[slots[1:]] != items.last_ts[slots[:-1]], True))
    cuts: list[int] = []
    base = 0
    while len(ends) and int(ends[-1]) - base >= file_size_bytes:
        start = cuts[-1] if cuts else 0
        cut = int(free_ends[_nearest(ends[free_ends] - base, file_size_bytes)]) + 1
        # The transaction is larger than a file. It is cut inside, or the file would grow without limit.
        if cut <= start or int(ends[cut - 1]) - base > 2 * file_size_bytes:
            cut = int(np.searchsorted(ends, base + file_size_bytes)) + 1
        cuts.append(min(cut, len(ends)))
        base = int(ends[cuts[-1] - 1])
    return np.array(cuts or [0], np.int64)


def _nearest(sizes: Ints, wanted: int) -> int:
    """The position of the size nearest to `wanted`; of two equally near the smaller one."""
    at = min(int(np.searchsorted(sizes, wanted)), len(sizes) - 1)
    if at and wanted - int(sizes[at - 1]) <= int(sizes[at]) - wanted and sizes[at - 1] > 0:
        return at - 1
    return at
