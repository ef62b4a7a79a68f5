"""Reads the answer to a SELECT from the connection by columns: where each value of each row stands in a buffer.

A row is a packet: four bytes of header, then the values, each behind its length. Where a row begins depends on all rows
before it, so a plain reader takes a step for each row. Here every row has a first column that is always the same byte,
`MARK`, which no text in UTF-8 holds. All places where a mark may be are found at once, and the lengths in the headers
must lead from each to the next; places that are not on this way are parts of values, such as bytes of a BLOB.

A buffer holds some MiB. It is used again for the next rows, so whoever wants to keep values copies them. A row larger
than the buffer gets a buffer of its own size, and a row of several packets (16 MiB and more) is joined first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from pymysql.connections import Connection
from pymysql.constants.COMMAND import COM_QUERY
from pymysql.err import raise_mysql_exception

from tidegate.errors import SourceUnavailable
from tidegate.sources.mysql.log.control_events import packed_number
from tidegate.sources.mysql.log.images import Bytes, Numbers, Values, unsigned

MARK = "x'f5'"  # the first thing to select
BUFFER_BYTES = 4 << 20
_MARK_BYTE, _MARK_SIZE = 0xF5, 1
_HEADER_BYTES = 4
_FIRST_VALUE = _HEADER_BYTES + 2  # behind the mark and its length
_FULL_PACKET = 0xFFFFFF
_END, _ERROR, _NULL = 0xFE, 0xFF, 0xFB
_WIDTHS = {0xFC: 2, 0xFD: 3, 0xFE: 8}  # bytes of a length behind its mark
_END_BYTES = 9  # the packet that ends an answer, with its header
_MOMENT_S = 0.005
_SPARE_BYTES = 16  # behind the last row, so that lengths can be read by whole words


class Described(NamedTuple):
    """A column of an answer: its kind as in `log.table_map`, and the number of its collation."""

    name: str
    kind: int
    collation: int


class Part(NamedTuple):
    """Some rows of an answer: the buffer, where the values of each column stand in it, and the number of rows."""

    buffer: Bytes
    columns: list[Values]
    rows: int


class Socket(Protocol):
    def recv_into(self, buffer: memoryview, /) -> int: ...

    def gettimeout(self) -> float | None: ...

    def settimeout(self, value: float | None, /) -> None: ...


class Answer:
    """The answer to one SELECT whose first column is `MARK`; `columns` and the parts are without it.

    All parts must be read before the connection can be used again. What the server refuses is a MySQLError.
    """

    def __init__(self, connection: Connection, statement: str, buffer_bytes: int = BUFFER_BYTES) -> None:
        self._incoming = _Incoming(connection._sock, buffer_bytes)
        try:
            connection._execute_command(COM_QUERY, statement)
            self.columns = self._described()[1:]
        except OSError as exc:
            raise _lost(exc) from exc

    def parts(self) -> Iterator[Part]:
        incoming, count = self._incoming, len(self.columns)
        try:
            while True:
                starts, end = _rows(incoming.buffer, incoming.start, incoming.end)
                if len(starts):
                    yield Part(incoming.buffer, _values(incoming.buffer, starts, count), len(starts))
                    incoming.start = end
                elif incoming.packet_bytes() == _FULL_PACKET:
                    joined = incoming.joined()
                    yield Part(joined, _values(joined, np.zeros(1, np.int64), count), 1)
                elif incoming.has_packet():
                    _check_end(incoming.take())
                    return
                else:
                    incoming.fill()
        except OSError as exc:
            raise _lost(exc) from exc

    def _described(self) -> list[Described]:
        count, _ = packed_number(self._packet(), 0)
        found = [_description(self._packet()) for _ in range(count)]
        self._packet()
        return found

    def _packet(self) -> bytes:
        while not self._incoming.has_packet():
            self._incoming.fill()
        packet = self._incoming.take()
        if packet[:1] == bytes([_ERROR]):
            raise_mysql_exception(packet)
        return packet


def _lost(exc: Exception) -> SourceUnavailable:
    return SourceUnavailable(f"the rows of a table cannot be read: {exc}")


def _check_end(packet: bytes) -> None:
    if packet[:1] == bytes([_ERROR]):
        raise_mysql_exception(packet)
    if packet[:1] != bytes([_END]) or len(packet) >= _END_BYTES:
        raise SourceUnavailable("the server sent a packet that is no row of the table; the rows are read again")


def _description(packet: bytes) -> Described:
    at, texts = 0, []
    for _ in range(6):  # catalog, schema, table, original table, name, original name
        size, at = packed_number(packet, at)
        texts.append(packet[at : at + size])
        at += size
    return Described(texts[4].decode("utf-8", "replace"), packet[at + 7], packet[at + 1] | packet[at + 2] << 8)


class _Incoming:
    """The bytes that came and were not used yet: `buffer[start:end]`, which begin with a packet."""

    def __init__(self, socket: Socket, buffer_bytes: int) -> None:
        self._socket, self._usual_bytes = socket, buffer_bytes
        self.buffer: Bytes = np.zeros(buffer_bytes + _SPARE_BYTES, np.uint8)
        self.start = self.end = 0

    def packet_bytes(self) -> int | None:
        """The size of the first packet, without its header; None if the header is not there yet."""
        if self.end - self.start < _HEADER_BYTES:
            return None
        low, middle, high = self.buffer[self.start : self.start + 3].tolist()
        return int(low | middle << 8 | high << 16)

    def has_packet(self) -> bool:
        size = self.packet_bytes()
        return size is not None and self.end - self.start >= _HEADER_BYTES + size

    def take(self) -> bytes:
        """The first packet, which must be complete."""
        begin = self.start + _HEADER_BYTES
        self.start = begin + (self.packet_bytes() or 0)
        return self.buffer[begin : self.start].tobytes()

    def fill(self) -> None:
        """Read until the buffer is full, the answer may be at its end, or nothing came for a moment."""
        self._make_room()
        usual_s, room = self._socket.gettimeout(), self.buffer[:-_SPARE_BYTES].data
        before = self.end
        try:
            while self.end < len(room) and not (self.end > before and self._may_be_end()):
                count = self._socket.recv_into(room[self.end :])
                if not count:
                    raise OSError("the server closed the connection")
                self.end += count
                self._socket.settimeout(_MOMENT_S)
        except TimeoutError:
            if self.end == before:
                raise
        finally:
            self._socket.settimeout(usual_s)

    def _may_be_end(self) -> bool:
        """Whether the last bytes look like the packet that ends an answer."""
        tail = self.buffer[self.end - _END_BYTES : self.end] if self.end - self.start >= _END_BYTES else self.buffer[:0]
        return len(tail) > 0 and tail[:3].tolist() == [5, 0, 0] and int(tail[_HEADER_BYTES]) == _END

    def _make_room(self) -> None:
        held = self.buffer[self.start : self.end].copy()
        needed = max(self._usual_bytes, _HEADER_BYTES + (self.packet_bytes() or 0), len(held) + self._usual_bytes // 4)
        if needed + _SPARE_BYTES != len(self.buffer):
            self.buffer = np.zeros(needed + _SPARE_BYTES, np.uint8)
        self.buffer[: len(held)] = held
        self.start, self.end = 0, len(held)

    def joined(self) -> Bytes:
        """The first row, which has several packets, as if it were one packet; its header means nothing."""
        parts, size = [b"\0" * _HEADER_BYTES], _FULL_PACKET
        while size == _FULL_PACKET:
            while not self.has_packet():
                self.fill()
            size = self.packet_bytes() or 0
            parts.append(self.take())
        return np.frombuffer(b"".join([*parts, bytes(_SPARE_BYTES)]), np.uint8)


# Rows in a buffer -----------------------------------------------------------------------------------------------------


def _rows(buffer: Bytes, start: int, end: int) -> tuple[Numbers, int]:
    """Where the whole rows begin, and where the first thing begins that is none."""
    marks = start + _FIRST_VALUE - 1 + np.flatnonzero(buffer[start + _FIRST_VALUE - 1 : end] == _MARK_BYTE)
    marks = marks[buffer[marks - 1] == _MARK_SIZE]
    begins = marks - (_FIRST_VALUE - 1)
    if not len(begins) or begins[0] != start:
        return begins[:0], start
    size = _sizes(buffer, begins)
    nexts = begins + _HEADER_BYTES + size
    whole = (nexts <= end) & (size < _FULL_PACKET)
    if not (nexts[:-1] == begins[1:]).all() or not whole[:-1].all():
        way = _way(begins, nexts, whole)
        begins, nexts, whole = begins[way], nexts[way], whole[way]
    count = len(begins) - (not whole[-1])
    return begins[:count], int(nexts[count - 1]) if count else start


def _sizes(buffer: Bytes, begins: Numbers) -> Numbers:
    low, middle, high = (buffer[begins + i].astype(np.int64) for i in range(3))
    return low | middle << 8 | high << 16


def _way(begins: Numbers, nexts: Numbers, whole: npt.NDArray[np.bool_]) -> Numbers:
    """The places that the lengths lead to from the first one on, in order. Each round doubles the steps that are known.

    The way ends at a row that is not complete, or where the next row has not begun.
    """
    count = len(begins)
    leads_to = np.searchsorted(begins, nexts)
    leads_to[~whole | (np.append(begins, -1)[leads_to] != nexts)] = count
    leads_to = np.append(leads_to, count)
    known, found = np.zeros(1, np.int64), 0
    while len(known) > found:
        found = len(known)
        further = leads_to[known]
        known = np.concatenate([known, further[further < count]])
        leads_to = leads_to[leads_to]
    return known


def _values(buffer: Bytes, starts: Numbers, count: int) -> list[Values]:
    """The values of each column in the rows that start here."""
    place, found = starts + _FIRST_VALUE, []
    for _ in range(count):
        first = buffer[place]
        size, text, null = first.astype(np.int64), place + 1, None
        if int(first.max()) >= _NULL:
            size, text, null = _long_values(buffer, place, first)
        found.append(Values(text, size, null))
        place = text + size
    return found


def _long_values(buffer: Bytes, place: Numbers, first: Bytes) -> tuple[Numbers, Numbers, npt.NDArray[np.bool_] | None]:
    """Lengths of more than one byte, and NULLs."""
    size, text = first.astype(np.int64), place + 1
    for mark, width in _WIDTHS.items():
        at = np.flatnonzero(first == mark)
        if len(at):
            size[at] = unsigned(buffer, place[at] + 1, width).astype(np.int64)
            text[at] += width
    null = first == _NULL
    size[null] = 0
    return size, text, null if null.any() else None
