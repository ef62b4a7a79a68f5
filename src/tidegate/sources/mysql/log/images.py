"""Finds the values in row events: where each value of each row image stands, and which are NULL.

An image is a bitmap of the NULLs and then the values, without gaps. Where a value begins depends on all values before
it, so the images of one event are found one after the other. But all events advance together, image by image: a step
is a few NumPy operations, however many events there are. Most tables have events of some dozens of rows, so the number
of steps is small. Afterwards the places of the values are computed for all images together.

An update has two images for each row, the row before and the row after; all other events have one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.errors import BadLog
from tidegate.sources.mysql.log.framing import HEADER_BYTES, UPDATE_1, UPDATE_2, WRITE_2, Events
from tidegate.sources.mysql.log.table_map import Shape

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]

_SAFE = 8  # a place where eight bytes before and behind can be read in every log


class Images(NamedTuple):
    """Row images in the order of the log: the event of each, and where it starts."""

    event: Numbers
    start: Numbers


class Values(NamedTuple):
    """One column in all images: where the value stands, its bytes (None if all have the same), and which are NULL.

    The place of a NULL can be read, but what is there means nothing.
    """

    place: Numbers
    size: Numbers | None
    null: Flags | None


class Run(NamedTuple):
    """Columns of fixed width, and then at most one with a length before it.

    `freed[k]` says for each value of byte k of the bitmap how many bytes its NULLs take away from `width`.
    """

    width: int
    freed: tuple[tuple[int, npt.NDArray[np.int64]], ...]
    varying: int | None


def find_images(log: Bytes, events: Events, shape: Shape) -> Images:
    """All row images of these events, which must be of tables of this shape."""
    runs, places = _runs(shape), _first_places(log, events, len(shape))
    event, starts, live = [], [], np.arange(len(places))
    place, ends = places, events.end
    live = live[place < ends]
    place, ends = place[live], ends[live]
    while len(live):
        event.append(live)
        starts.append(place)
        place = _advanced(log, place, runs, shape)
        more = place < ends
        if not more.all():
            if (place > ends).any():
                raise BadLog("a row runs beyond its event: the log is broken")
            live, place, ends = live[more], place[more], ends[more]
    if not event:
        return Images(np.zeros(0, np.int64), np.zeros(0, np.int64))
    start = np.concatenate(starts)
    order = np.argsort(start, kind="stable") if len(starts) > 1 else np.arange(len(start))
    return Images(np.concatenate(event)[order], start[order])


def _first_places(log: Bytes, events: Events, count: int) -> Numbers:
    """Where the first image of each event starts; an image that leaves out columns is refused."""
    is_v2 = events.kind >= WRITE_2
    place = events.start + HEADER_BYTES + 8
    more = log[place].astype(np.int64) | log[place + 1].astype(np.int64) << 8
    place = place + np.where(is_v2, more, 0)  # the length counts its own two bytes
    place = place + (1 if count < 251 else 3)  # the number of columns
    width = (count + 7) // 8
    twice = (events.kind == UPDATE_1) | (events.kind == UPDATE_2)
    for k in range(width):
        full = 0xFF if k < width - 1 or count % 8 == 0 else (1 << count % 8) - 1
        missing = log[place + k] & full != full
        missing |= twice & (log[np.where(twice, place + width + k, place)] & full != full)
        if missing.any():
            raise PartialImage(int(np.flatnonzero(missing)[0]))
    return place + np.where(twice, 2 * width, width)


class PartialImage(BadLog):
    """Some columns are not in the image of event `event`."""

    def __init__(self, event: int) -> None:
        super().__init__("a row change holds only some columns; SET GLOBAL binlog_row_image = FULL")
        self.event = event


def _runs(shape: Shape) -> list[Run]:
    runs, first = [], 0
    for i, column in enumerate(shape):
        if not column.width:
            runs.append(_run(shape, first, i, i))
            first = i + 1
    if first < len(shape):
        runs.append(_run(shape, first, len(shape), None))
    return runs


def _run(shape: Shape, first: int, end: int, varying: int | None) -> Run:
    freed = []
    for k in sorted({i >> 3 for i in range(first, end)}):
        table = np.zeros(256, np.int64)
        for i in range(max(first, 8 * k), min(end, 8 * k + 8)):
            table[np.arange(256) >> (i & 7) & 1 == 1] += shape[i].width
        freed.append((k, table))
    return Run(sum(column.width for column in shape[first:end]), tuple(freed), varying)


def _advanced(log: Bytes, place: Numbers, runs: list[Run], shape: Shape) -> Numbers:
    """Where the images that start here end."""
    width = (len(shape) + 7) // 8
    bitmap = [log[place + k] for k in range(width)]
    has_null = [bool(byte.any()) for byte in bitmap]
    place = place + width
    for run in runs:
        place = place + run.width
        for k, table in run.freed:
            if has_null[k]:
                place = place - table[bitmap[k]]
        if run.varying is not None:
            k, bit = run.varying >> 3, run.varying & 7
            null = (bitmap[k] >> bit & 1).astype(np.bool_) if has_null[k] else None
            length_bytes = shape[run.varying].length_bytes
            size = _length(log, place if null is None else np.where(null, _SAFE, place), length_bytes)
            place = place + (size + length_bytes if null is None else np.where(null, 0, size + length_bytes))
    return place


def _length(log: Bytes, place: Numbers, length_bytes: int) -> Numbers:
    if length_bytes == 1:
        return log[place].astype(np.int64)
    return unsigned(log, place, length_bytes).astype(np.int64)


def find_values(log: Bytes, start: Numbers, shape: Shape) -> list[Values]:
    """The values of every column in the images that start at these places."""
    width = (len(shape) + 7) // 8
    bitmap = [log[start + k] for k in range(width)]
    has_null = [bool(byte.any()) for byte in bitmap]
    place, fixed, found = start + width, 0, []
    for i, column in enumerate(shape):
        null = (bitmap[i >> 3] >> (i & 7) & 1).astype(np.bool_) if has_null[i >> 3] else None
        null = null if null is not None and null.any() else None
        here = place + fixed if fixed else place
        readable = here if null is None else np.where(null, _SAFE, here)
        if column.width:
            found.append(Values(readable, None, null))
            if null is None:
                fixed += column.width
            else:
                place, fixed = here + np.where(null, 0, column.width), 0
            continue
        size = _length(log, readable, column.length_bytes)
        if null is not None:
            size[null] = 0
        text = here + column.length_bytes if null is None else here + np.where(null, 0, column.length_bytes)
        found.append(Values(text, size, null))
        place, fixed = text + size, 0
    return found


def unsigned(log: Bytes, place: Numbers, width: int) -> npt.NDArray[np.uint64]:
    """Numbers of 1 to 8 bytes, lowest byte first: one read of eight bytes that end where the number ends."""
    found = _eight(log, "<u8")[place + (width - 8)]
    return found >> np.uint64(64 - 8 * width)


def unsigned_be(log: Bytes, place: Numbers, width: int) -> npt.NDArray[np.uint64]:
    """The same, highest byte first."""
    found = _eight(log, ">u8")[place + (width - 8)].astype(np.uint64)
    return found & np.uint64((1 << 8 * width) - 1)


def _eight(log: Bytes, kind: str) -> npt.NDArray[np.uint64]:
    """Eight bytes from every place of the log on, as a number. The header of the first event is before any value."""
    return np.ndarray((len(log) - 7,), kind, log, strides=(1,))
