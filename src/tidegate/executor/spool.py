"""The contract of the spool: how segments are appended to, read and deleted, whatever keeps them.

A *segment* holds encoded bytes that one attempt of one task appended. Its name is unique in the changefeed, such as
`/spool/feed/7-1-42-0.seg`; the last level is `<batch>-<partition>-<attempt>-<number>.seg`. A *slice* is a part of a
segment. A *tier* says what keeps a segment: memory or disk.

    driver   Segments        which room tasks get, deleting, whether there is room left
    task     Room            travels with an ingest job; makes the writer
             SegmentWriter   appends
             SegmentReader   travels with a land job; reads slices

Promises of every kind of spool:
* When `SegmentWriter.close` has returned, every task can read the segments, and nobody appends to them any more.
* Attempts never share a segment, so one that was lost cannot harm one that counts.
* A segment that is gone or too short raises SpoolLost: a new start replays what it held. What somebody must change
  (rights, a wrong directory) raises SpoolError.

Driver and tasks exchange only names and values that can be pickled. So a spool of objects in a store fits as well: its
names are URLs, and its Room and SegmentReader carry the access to the store.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import closing
from typing import NamedTuple, Protocol

from tidegate.errors import SpoolError
from tidegate.storage.store import Slices

MEMORY_TIER, DISK_TIER = 0, 1

Slice = tuple[str, int, int]  # segment, offset, length


class Appended(NamedTuple):
    """Where the bytes of one `append` begin."""

    segment: str
    tier: int
    offset: int


class SegmentWriter(Protocol):
    """Appends to segments of its own. Both methods may raise SpoolError."""

    def append(self, data: memoryview) -> Appended:
        """All of `data` goes into one segment."""

    def close(self) -> None:
        """Ends the last segment. What was appended counts only after this has returned."""


class SegmentReader(Protocol):
    def slices(self, pieces: Sequence[Slice]) -> Slices:
        """The bytes of these slices, one after the other. Nothing is opened yet."""


class Room(SegmentReader, Protocol):
    """Where one task may append, and how much where. A task that copies slices together also reads through it."""

    def writer(self, name: str) -> SegmentWriter:
        """`name` begins the names of its segments: `<batch>-<partition>-<attempt>`."""

    def layouts_path(self, name: str) -> str:
        """The file for the new layouts of this task. It goes with the segments of its batch that no item names."""


class Segments(Protocol):
    """The segments of one changefeed as its driver sees them. Opening one takes a lock and deletes what a run left."""

    @property
    def max_bytes(self) -> int:
        """How much it can hold at most."""

    def is_full(self, sentence: str) -> SpoolError:
        """The error if this task had no space left, and landing will not make any: whether a retry may help."""

    @property
    def remedy(self) -> str:
        """What makes it larger: `raise spool.max-bytes`."""

    @property
    def reader(self) -> SegmentReader: ...

    def room(self, tasks: int, tier_bytes: Sequence[int]) -> Room:
        """For each of so many tasks, when the tiers hold so many bytes."""

    def delete(self, segments: Iterable[str]) -> list[str]:
        """Returns those that were gone already."""

    def delete_batch(self, batch: str) -> list[str]:
        """Delete all segments of a batch; returns those that were gone already."""

    def delete_unnamed(self, batch: str, named: Collection[str]) -> list[str]:
        """Delete the segments of a batch that no item names: a lost attempt left them. It may happen later."""

    def shortage(self) -> str | None:
        """What there is too little of, and the remedy, before appending would fail; None if more may come."""

    def close(self) -> None:
        """Delete everything and unlock. Repeats are harmless."""


def gather(pieces: Sequence[Slice], room: Room, name: str) -> list[Appended]:
    """Copy slices of many segments together into few; returns where each begins now."""
    with closing(room.writer(name)) as writer, closing(room.slices(pieces).open()) as stream:
        found = []
        for _, _, length in pieces:
            data = memoryview(bytearray(length))
            stream.fill(data)
            found.append(writer.append(data))
        return found
