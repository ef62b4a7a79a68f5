"""The events of a binary log besides rows and tables: where a log file ends, transactions, statements.

Each reader takes the body of one event (without header and checksum) and returns a value.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from tidegate.errors import BadLog
from tidegate.sources.mysql.log.charsets import charset_of, text_of
from tidegate.sources.mysql.log.framing import CHECKSUM_BYTES, Events, whole_events

ANSI_QUOTES = 4  # the bit of sql_mode with which "x" is a name and no text


class Format(NamedTuple):
    """What a log file says of itself at its beginning; `checksum_bytes` follow each of its events."""

    server_version: str
    checksum_bytes: int

    @property
    def is_mariadb(self) -> bool:
        return "MariaDB" in self.server_version


class Rotate(NamedTuple):
    """The log goes on in this file at this position."""

    file: str
    position: int


@dataclass(frozen=True)
class Gtid:
    """The beginning of a transaction. `text` is `0-1-42` on MariaDB, `UUID:42` or `UUID:tag:42` on MySQL.

    `commit_us` is when it was committed first, in microseconds; 0 on MariaDB, where the header has the seconds.
    `standalone` means that no event ends the transaction: it is one statement, such as a DDL.
    """

    text: str
    commit_us: int = 0
    standalone: bool = False
    prepared_xa: bool = False
    completed_xa: bool = False


@dataclass(frozen=True)
class Query:
    """A statement, with what decides how its text is read and what it does.

    `server_charset` is of a new database that names none. Without `explicit_timestamps` a TIMESTAMP column gets a
    default from nowhere. `time_zone` is set if the statement depends on it.
    """

    database: str
    text: str
    sql_mode: int
    charset: str
    server_charset: str = "utf8mb4"
    explicit_timestamps: bool = True
    time_zone: str = ""

    @property
    def ansi_quotes(self) -> bool:
        return bool(self.sql_mode & ANSI_QUOTES)


def packed_number(raw: bytes | memoryview, at: int) -> tuple[int, int]:
    """A number in its packed form, and where it ends: one byte up to 250, else 2, 3 or 8 bytes behind a mark."""
    first = raw[at]
    if first < 251:
        return first, at + 1
    if first == 251 or first == 255:
        raise BadLog("a packed number in the log is broken")
    width = {252: 2, 253: 3, 254: 8}[first]
    return int.from_bytes(raw[at + 1 : at + 1 + width], "little"), at + 1 + width


def read_format(body: bytes) -> Format:
    """The body with its checksum, which this event always has."""
    version = body[2:52].rstrip(b"\0").decode("ascii", "replace")
    if int.from_bytes(body[:2], "little") != 4 or body[56] != 19:
        raise BadLog(f"the log of the server {version} has a format that is not known")
    algorithm = body[-CHECKSUM_BYTES - 1]
    if algorithm not in (0, 1):
        raise BadLog(f"the log of the server {version} has an unknown kind of checksum")
    return Format(version, CHECKSUM_BYTES * algorithm)


def read_rotate(body: bytes) -> Rotate:
    return Rotate(body[8:].decode(), int.from_bytes(body[:8], "little"))


def read_heartbeat(body: bytes) -> str:
    """The log file in which the server waits for changes; the position is in the header."""
    return body.decode()


def read_heartbeat_2(body: bytes) -> Rotate:
    """The same, with a position beyond 4 GiB: fields of a number, a length and a value each, ended by a zero."""
    file, position, at = "", 0, 0
    while at < len(body) and body[at]:
        field, (size, at) = body[at], packed_number(body, at + 1)
        value, at = body[at : at + size], at + size
        if field == 1:
            file = value.decode()
        elif field == 2:
            position = packed_number(value, 0)[0]
    return Rotate(file, position)


def read_xid(body: bytes) -> int:
    return int.from_bytes(body[:8], "little")


# Transactions ---------------------------------------------------------------------------------------------------------

_STANDALONE, _GROUP_COMMIT, _PREPARED, _COMPLETED = 1, 2, 64, 128


def read_mariadb_gtid(body: bytes, server_id: int) -> Gtid:
    """MariaDB names a transaction by domain, server and number: `0-1-42`."""
    number, domain, flags = struct.unpack_from("<QIB", body)
    return Gtid(
        f"{domain}-{server_id}-{number}",
        standalone=bool(flags & _STANDALONE),
        prepared_xa=bool(flags & _PREPARED),
        completed_xa=bool(flags & _COMPLETED),
    )


_ORIGINAL_FOLLOWS = 1 << 55


def read_gtid(body: bytes) -> Gtid:
    """MySQL names a transaction by a UUID and a number."""
    source, number = uuid.UUID(bytes=body[1:17]), int.from_bytes(body[17:25], "little", signed=True)
    first = int.from_bytes(body[42:49], "little")
    commit_us = first
    if first & _ORIGINAL_FOLLOWS:
        commit_us = int.from_bytes(body[49:56], "little")
    return Gtid(f"{source}:{number}", commit_us)


def read_tagged_gtid(body: bytes) -> Gtid:
    """The same with a tag, since MySQL 9. Its fields are numbered; those that are not there have their default."""
    at = 0
    for _ in range(3):  # the version of the format, its size, and the last field that a reader must know
        _, at = _varying(body, at)
    source, tag, number, immediate, original = b"", "", 0, 0, None
    while at < len(body):
        field, at = _varying(body, at)
        if field == 1:
            each = []
            for _ in range(16):
                byte, at = _varying(body, at)
                each.append(byte)
            source = bytes(each)
        elif field == 3:
            size, at = _varying(body, at)
            tag, at = body[at : at + size].decode(), at + size
        else:
            value, at = _varying(body, at)
            if field == 2:
                number = value >> 1  # the lowest bit is the sign
            elif field == 6:
                immediate = value
            elif field == 7:
                original = value
    name = f"{uuid.UUID(bytes=source)}:{tag}:{number}" if tag else f"{uuid.UUID(bytes=source)}:{number}"
    return Gtid(name, immediate if original is None else original)


def _varying(raw: bytes, at: int) -> tuple[int, int]:
    """A number of 1 to 9 bytes: as many ones at the low end of the first byte as bytes follow it."""
    first = raw[at]
    width = 1
    while width < 9 and first & 1 << (width - 1):
        width += 1
    if width == 9:
        return int.from_bytes(raw[at + 1 : at + 9], "little"), at + 9
    return int.from_bytes(raw[at : at + width], "little") >> width, at + width


# Statements -----------------------------------------------------------------------------------------------------------

_FLAGS, _SQL_MODE, _CATALOG, _CHARSET, _TIME_ZONE, _CATALOG_NZ, _INVOKER, _DATABASES = 0, 1, 2, 4, 5, 6, 11, 12
_EXPLICIT_TIMESTAMPS, _MARIADB_XID = 16, 129
_MARIADB_EXPLICIT = 1 << 24  # among the flags, which MySQL leaves at zero
_MANY_DATABASES = 254
# The other variables have a fixed size.
_SIZES = {0: 4, 1: 8, 3: 4, 4: 6, 7: 2, 8: 2, 9: 8, 10: 4, 13: 3, 14: 8, 15: 8, 16: 1, 17: 8, 18: 2, 19: 1, 20: 1}
_SIZES |= {128: 3, 129: 8, 130: 2}


def read_query(body: bytes) -> Query:
    database_size = body[8]
    variables_size = int.from_bytes(body[11:13], "little")
    at = 13 + variables_size
    given = dict(_variables(body[13:at]))
    charset = server_charset = "utf8mb4"
    if found := given.get(_CHARSET):
        charset, server_charset = (charset_of(int.from_bytes(found[i : i + 2], "little")) for i in (0, 4))
    database = body[at : at + database_size].decode()
    return Query(
        database,
        text_of(body[at + database_size + 1 :], charset),
        int.from_bytes(given.get(_SQL_MODE, b""), "little"),
        charset,
        server_charset,
        _explicit_timestamps(given),
        given.get(_TIME_ZONE, b"\0")[1:].decode("ascii", "replace"),
    )


def _explicit_timestamps(given: dict[int, bytes]) -> bool:
    if _EXPLICIT_TIMESTAMPS in given:
        return given[_EXPLICIT_TIMESTAMPS] != b"\0"
    is_mariadb = _MARIADB_XID in given
    return not is_mariadb or bool(int.from_bytes(given.get(_FLAGS, b""), "little") & _MARIADB_EXPLICIT)


def _variables(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """The session's variables. They have no lengths, so what follows an unknown one cannot be read: it ends there."""
    at = 0
    while at < len(raw) and (size := _variable_bytes(raw, at)) is not None:
        yield raw[at], raw[at + 1 : at + 1 + size]
        at += 1 + size


def _variable_bytes(raw: bytes, at: int) -> int | None:
    code, value = raw[at], at + 1
    if code == _CATALOG:
        return raw[value] + 2
    if code in (_TIME_ZONE, _CATALOG_NZ):
        return raw[value] + 1
    if code == _INVOKER:
        user = raw[value] + 1
        return user + raw[value + user] + 1
    if code == _DATABASES:
        if raw[value] == _MANY_DATABASES:
            return 1
        end = value + 1
        for _ in range(raw[value]):
            end = raw.index(b"\0", end) + 1
        return end - value
    return _SIZES.get(code)


# Compressed transactions ----------------------------------------------------------------------------------------------

_END_MARK, _COMPRESSION = 0, 2
_ZSTD, _NONE = 0, 255
_PIECE_BYTES = 4 << 20


def read_payload(body: bytes | memoryview) -> Iterator[tuple[bytes, Events]]:
    """The events of a transaction that MySQL compressed, as buffers of about 4 MiB of whole events, without checksums.

    Unpacked bytes exist only a buffer at a time, however large the transaction is.
    """
    compression, at = _NONE, 0
    while (field := packed_number(body, at))[0] != _END_MARK:
        size, at = packed_number(body, field[1])
        if field[0] == _COMPRESSION:
            compression = packed_number(body, at)[0]
        at += size
    payload = memoryview(body)[at + 1 :]
    if compression not in (_ZSTD, _NONE):
        raise BadLog(f"the log holds a transaction with the unknown compression {compression}")
    return whole_events(_unpacked(payload) if compression == _ZSTD else iter([bytes(payload)]))


def _unpacked(payload: memoryview) -> Iterator[bytes]:
    try:
        with pa.input_stream(pa.py_buffer(payload), compression="zstd") as stream:
            while piece := stream.read(_PIECE_BYTES):
                yield piece
    except OSError as exc:
        raise BadLog(f"a compressed transaction of the log cannot be unpacked: {exc}") from exc
