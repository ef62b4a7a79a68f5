"""Finds the events in the bytes of a binary log.

The network sends packets of at most 16 MiB - 1; a full one is continued in the next. `Packets` joins them to payloads,
and `event_of` takes the event out of a payload. Events that stand back to back, as in a log file, are found by `frame`.

An event is a header of 19 bytes (time, kind, server id, size, position of the next event, flags), a body, and four
bytes of CRC-32 if the log has checksums.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tidegate.errors import BadLog

MAGIC = b"\xfebin"  # a log file begins with it
HEADER_BYTES = 19
CHECKSUM_BYTES = 4

(
    QUERY, STOP, ROTATE, FORMAT, XID, TABLE_MAP, INCIDENT, HEARTBEAT, ROWS_QUERY, GTID, ANONYMOUS_GTID, PREVIOUS_GTIDS,
    XA_PREPARE, PARTIAL_UPDATE, PAYLOAD, HEARTBEAT_2, TAGGED_GTID, ANNOTATE, CHECKPOINT, MARIADB_GTID, GTID_LIST,
) = (2, 3, 4, 15, 16, 19, 26, 27, 29, 33, 34, 35, 38, 39, 40, 41, 42, 160, 161, 162, 163)  # fmt: skip
WRITE_1, UPDATE_1, DELETE_1, WRITE_2, UPDATE_2, DELETE_2 = 23, 24, 25, 30, 31, 32
ROWS = frozenset((WRITE_1, UPDATE_1, DELETE_1, WRITE_2, UPDATE_2, DELETE_2))

# Kinds that carry changes in a form that is not read, and what to do about each.
REFUSED = {
    INCIDENT: "an incident: the server itself says that events are missing",
    PARTIAL_UPDATE: "a partial update of JSON; SET GLOBAL binlog_row_value_options = ''",
    164: "an encrypted log; SET GLOBAL encrypt_binlog = OFF and restart the server",
    165: "a compressed query; SET GLOBAL log_bin_compress = OFF",
    **dict.fromkeys((166, 167, 168, 169, 170, 171), "compressed row changes; SET GLOBAL log_bin_compress = OFF"),
    **dict.fromkeys((20, 21, 22), "row changes in the format of MySQL 5.1.5"),
}

_SIZE = struct.Struct("<I")
_FULL_PACKET = 0xFFFFFF
_OK, _END, _ERROR = 0x00, 0xFE, 0xFF


class Packets:
    """Joins the bytes that arrive from a connection to payloads. It keeps only what is not complete yet."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._parts = bytearray()  # of a payload of several packets

    def feed(self, arrived: bytes | memoryview) -> list[bytes]:
        """The payloads that are complete now, in order."""
        held = self._held
        held += arrived
        found, at = [], 0
        while len(held) - at >= 4:
            size = held[at] | held[at + 1] << 8 | held[at + 2] << 16
            if len(held) - at - 4 < size:
                break
            body = bytes(memoryview(held)[at + 4 : at + 4 + size])
            at += 4 + size
            if size == _FULL_PACKET or self._parts:
                self._parts += body
                if size == _FULL_PACKET:
                    continue
                body, self._parts = bytes(self._parts), bytearray()
            found.append(body)
        del held[:at]
        return found


class ServerSays(BadLog):
    """The server ended the log with an error; `code` is its number, 1236 if the position is gone."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"the server sends no log: {text} (error {code})")
        self.code = code


def event_of(payload: bytes) -> bytes | None:
    """The event in a payload of the log; None if the server has no more to send."""
    if payload[:1] == bytes([_OK]):
        return payload[1:]
    if payload[:1] == bytes([_ERROR]) and len(payload) >= 3:
        text = payload[3:].decode("utf-8", "replace")
        raise ServerSays(payload[1] | payload[2] << 8, text[6:] if text.startswith("#") else text)
    if payload[:1] == bytes([_END]) and len(payload) < 9:
        return None
    raise BadLog("the server sent a packet that is no event of the log")


class Events(NamedTuple):
    """Events in a buffer, by columns: where the header starts, where the body ends (without checksum), the kind."""

    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    kind: npt.NDArray[np.uint8]

    def chosen(self, which: npt.NDArray[np.bool_] | npt.NDArray[np.int64]) -> Events:
        return Events(self.start[which], self.end[which], self.kind[which])


class Header(NamedTuple):
    """The header of one event; `next_position` is the place of the next one in the log file, 0 if it is not there."""

    time_s: int
    kind: int
    server_id: int
    size: int
    next_position: int
    flags: int


_HEADER = struct.Struct("<IBIIIH")


def header_of(log: bytes | memoryview, start: int = 0) -> Header:
    return Header._make(_HEADER.unpack_from(log, start))


def frame(log: bytes | memoryview, checksum_bytes: int = 0, start: int = 0) -> tuple[Events, int]:
    """The whole events from `start` on, and where the first one that is not complete begins.

    `checksum_bytes` is what follows each body: `CHECKSUM_BYTES`, or 0 if the log has none.
    """
    starts, at, size = [], start, len(log)
    unpack, least = _SIZE.unpack_from, HEADER_BYTES + checksum_bytes
    while at + HEADER_BYTES <= size:
        length = unpack(log, at + 9)[0]
        if length < least:
            raise BadLog(f"an event of {length} bytes cannot be: the log is broken")
        if at + length > size:
            break
        starts.append(at)
        at += length
    begin = np.array(starts, np.int64)
    kinds = np.frombuffer(log, np.uint8)[begin + 4]
    return Events(begin, np.append(begin[1:], at)[: len(begin)] - checksum_bytes, kinds), at


def check_sums(log: bytes | memoryview, events: Events) -> None:
    """Compare the CRC-32 behind each event with its bytes."""
    view = memoryview(log)
    for start, end in zip(events.start.tolist(), events.end.tolist(), strict=True):
        if zlib.crc32(view[start:end]) != _SIZE.unpack_from(log, end)[0]:
            place = header_of(log, start).next_position
            raise BadLog(f"the checksum of the event that ends at position {place} is wrong: the log is broken")


def has_checksum(event: bytes) -> bool:
    """Whether the last four bytes are the CRC-32 of those before."""
    return len(event) > CHECKSUM_BYTES and zlib.crc32(event[:-4]) == _SIZE.unpack_from(event, len(event) - 4)[0]


def refuse_unread(events: Events) -> None:
    """Refuse the kinds of events whose changes would be lost, by name."""
    for kind in np.unique(events.kind).tolist():
        if kind in REFUSED:
            raise BadLog(f"the log holds {REFUSED[kind]}")


def whole_events(pieces: Iterator[bytes], checksum_bytes: int = 0) -> Iterator[tuple[bytes, Events]]:
    """The events in bytes that come in pieces, as buffers of whole events. Holds a piece and an event at most."""
    rest = b""
    for piece in pieces:
        log = rest + piece if rest else piece
        events, end = frame(log, checksum_bytes)
        if len(events.start):
            yield log, events
        rest = log[end:]
    if rest:
        raise BadLog("the log ends within an event")
