"""The events of a log as they arrive from a connection: whole events by columns, in the buffer they arrived in.

`Arrived` keeps one buffer. Bytes are received into it, and what is whole in it is found by one short loop over the
packets; nothing is copied. Only an event of 16 MiB or more, which comes in several packets, is moved together.
`unpacked` replaces transactions that MySQL compressed by their events, some MiB at a time.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tidegate.errors import BadLog
from tidegate.sources.mysql.log.control_events import read_payload
from tidegate.sources.mysql.log.framing import HEADER_BYTES, PAYLOAD, event_of
from tidegate.sources.mysql.log.images import Bytes, Numbers, unsigned

USUAL_BYTES = 4 << 20
_SIZE = struct.Struct("<I")
_FULL_PACKET = 0xFFFFFF
_TOGETHER_BYTES = 8 << 20  # unpacked events that are handed on together


class Arrivals(NamedTuple):
    """Whole events in a buffer; `size` is as the log file has it, with a checksum.

    `next` are the low 32 bits of the place behind the event in its log file.
    """

    log: Bytes
    start: Numbers
    end: Numbers
    size: Numbers
    kind: Numbers
    next: Numbers

    def part(self, first: int, last: int) -> Arrivals:
        return Arrivals(self.log, *(column[first:last] for column in self[1:]))

    def body(self, i: int) -> memoryview:
        return self.log.data[int(self.start[i]) + HEADER_BYTES : int(self.end[i])]


class Arrived:
    """Bytes of a connection. What `take` returned is valid until `drop`."""

    def __init__(self) -> None:
        self._buffer = bytearray(USUAL_BYTES)
        self._have = 0
        self._done = 0

    def room(self) -> memoryview:
        """Where the next bytes go. Grows if an event does not fit."""
        if self._have == len(self._buffer):
            self._resize(2 * len(self._buffer))
        return memoryview(self._buffer)[self._have :]

    def added(self, count: int) -> None:
        self._have += count

    @property
    def is_full(self) -> bool:
        return self._have == len(self._buffer)

    def take(self) -> tuple[Arrivals, bytes | None]:
        """The whole events, and the packet behind them if the server sent another thing than an event."""
        buffer, have, at = self._buffer, self._have, 0
        starts: list[int] = []
        ends: list[int] = []
        read, start_next, end_next = _SIZE.unpack_from, starts.append, ends.append
        while have - at >= 4:
            size = read(buffer, at)[0] & _FULL_PACKET
            end = at + 4 + size
            if end > have:
                break
            start_next(at + 4)
            at = end
            if size == _FULL_PACKET:
                joined = self._join(at)
                if joined is None:
                    at = starts.pop() - 4
                    break
                end, at = joined
            end_next(end)
        self._done = at
        return self._framed(starts, ends)

    def drop(self) -> None:
        """The events that were taken are not needed any more."""
        rest = self._have - self._done
        view = memoryview(self._buffer)
        view[:rest] = view[self._done : self._have]
        self._have, self._done = rest, 0
        if len(self._buffer) > USUAL_BYTES and rest < USUAL_BYTES:
            self._resize(USUAL_BYTES)

    def _resize(self, size: int) -> None:
        fresh = bytearray(size)  # a buffer that arrays look into cannot change its size
        fresh[: self._have] = memoryview(self._buffer)[: self._have]
        self._buffer = fresh

    def _join(self, at: int) -> tuple[int, int] | None:
        """Moves the packets that continue an event behind its first part; the ends of the event and of the packets.

        None if some are missing. What was moved is taken together with the event, so nobody looks for packets there.
        """
        parts, size = [], _FULL_PACKET
        end = at
        while size == _FULL_PACKET:
            if self._have - end < 4:
                return None
            size = _SIZE.unpack_from(self._buffer, end)[0] & _FULL_PACKET
            if self._have - end - 4 < size:
                return None
            parts.append((end + 4, size))
            end += 4 + size
        to, view = at, memoryview(self._buffer)
        for start, length in parts:
            view[to : to + length] = view[start : start + length]
            to += length
        return to, end

    def _framed(self, starts: list[int], ends: list[int]) -> tuple[Arrivals, bytes | None]:
        log = np.frombuffer(self._buffer, np.uint8)
        start, end = np.array(starts, np.int64), np.array(ends, np.int64)
        said = np.flatnonzero(log[start] != 0)
        other = None
        if len(said):
            first = int(said[0])
            other = bytes(log[start[first] : end[first]])
            start, end = start[:first], end[:first]
        return framed(log, start + 1, end), other


def framed(log: Bytes, start: Numbers, end: Numbers) -> Arrivals:
    """Events at these places."""
    size = end - start
    if len(size) and (int(size.min()) < HEADER_BYTES or (unsigned(log, start + 9, 4).astype(np.int64) != size).any()):
        raise BadLog("an event says another size than it has: the log is broken")
    kind = log[start + 4].astype(np.int64)
    return Arrivals(log, start, end, size, kind, unsigned(log, start + 13, 4).astype(np.int64))


def end_of(packet: bytes) -> None:
    """What the server said instead of an event: raises its error; returns if it is only the end."""
    event_of(packet)


def unpacked(arrivals: Arrivals) -> Iterator[Arrivals]:
    """The same events, with those of compressed transactions in their place. Nothing is copied if there are none."""
    packed = np.flatnonzero(arrivals.kind == PAYLOAD)
    if not len(packed):
        yield arrivals
        return
    pieces, held, at = [], 0, 0
    for i in [*packed.tolist(), len(arrivals.start)]:
        if i > at:
            pieces.append(arrivals.part(at, i))
        if i < len(arrivals.start):
            for piece in _unpacked(arrivals, i):
                pieces.append(piece)
                held += len(piece.log)
                if held > _TOGETHER_BYTES:
                    yield _together(pieces)
                    pieces, held = [], 0
        at = i + 1
    if pieces:
        yield _together(pieces)


def _unpacked(arrivals: Arrivals, i: int) -> Iterator[Arrivals]:
    """The events inside, which have no checksums, at the place of the outer one."""
    for log, events in read_payload(arrivals.body(i)):
        start, size = events.start, events.end - events.start
        place = np.full(len(start), arrivals.next[i])
        yield Arrivals(np.frombuffer(log, np.uint8), start, events.end, size, events.kind.astype(np.int64), place)


def _together(pieces: list[Arrivals]) -> Arrivals:
    """One buffer for all. Eight bytes stand before it, so that numbers can be read from any place (`unsigned`)."""
    parts, shift = [np.zeros(8, np.uint8)], 8
    columns: list[tuple[Numbers, ...]] = []
    for piece in pieces:
        first, last = int(piece.start[0]), int(piece.end[-1])
        parts.append(piece.log[first:last])
        moved = shift - first
        columns.append((piece.start + moved, piece.end + moved, *piece[3:]))
        shift += last - first
    return Arrivals(np.concatenate(parts), *(np.concatenate(column) for column in zip(*columns, strict=True)))
