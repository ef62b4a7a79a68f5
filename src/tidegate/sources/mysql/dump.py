"""Asks a server for its binary log, over a connection of PyMySQL."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from pymysql.connections import Connection
from pymysql.err import MySQLError

from tidegate.errors import SourceUnavailable
from tidegate.sources.mysql.address import Address
from tidegate.sources.mysql.connect import failure
from tidegate.sources.mysql.log.framing import Packets, event_of

NO_WAIT = 1  # end at the end of the log instead of waiting for more
WITH_ANNOTATIONS = 2  # MariaDB sends the statements behind row changes only if asked
_COM_BINLOG_DUMP = 0x12
_READ_BYTES = 1 << 20
MOST_POSITION = (1 << 32) - 1  # that a request has room for
# MariaDB sends GTIDs only to those that know them. Without a checksum named, the server refuses a log that has them.
_SESSION = "SET @master_binlog_checksum = 'CRC32', @source_binlog_checksum = 'CRC32', @mariadb_slave_capability = 4"
_HEARTBEAT = ", @master_heartbeat_period = {0}, @source_heartbeat_period = {0}, SESSION net_write_timeout = 600"


def dump(connection: Connection, file: str, position: int, server_id: int, flags: int = 0) -> Iterator[bytes]:
    """The events of the log from this position on, each with its checksum. The first ones say file and format.

    A server that gets the same server id from two clients cuts off the older one without an error, so whoever wants
    events up to a position must look whether it was reached.
    """
    packets = Packets()
    try:
        _request(connection, file, position, server_id, flags, _SESSION)
        socket = connection._sock
        while arrived := socket.recv(_READ_BYTES):
            for payload in packets.feed(arrived):
                event = event_of(payload)
                if event is None:
                    return
                yield event
    except (OSError, MySQLError) as exc:
        raise SourceUnavailable(f"the connection to the server was lost while its log was read: {exc}") from exc


def request_dump(
    connection: Connection, address: Address, file: str, position: int, server_id: int, heartbeat_s: float
) -> None:
    """Asks for the log from this position on, without an end. The server says at least so often that it lives."""
    try:
        _request(
            connection, file, position, server_id, 0, _SESSION + _HEARTBEAT.format(int(heartbeat_s * 1_000_000_000))
        )
    except (OSError, MySQLError) as exc:
        raise failure(address, exc) from exc


def _request(connection: Connection, file: str, position: int, server_id: int, flags: int, session: str) -> None:
    body = struct.pack("<BIHI", _COM_BINLOG_DUMP, position, flags, server_id) + file.encode()
    with connection.cursor() as cursor:
        cursor.execute(session)
    connection._sock.sendall(struct.pack("<I", len(body)) + body)
