"""What the log has of a table before the place where the relay begins: asked from the server, after a restart only.

A part of a chunk that is on record is emitted again as it was. For that all row events of its table are needed since
the chunk was read, and some of them may be before the offset from which on the log is read now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import randint

import numpy as np
import pyarrow as pa
from pymysql.connections import Connection

from tidegate.errors import SourceUnavailable
from tidegate.sources.mysql.dump import NO_WAIT, dump
from tidegate.sources.mysql.log import framing as k
from tidegate.sources.mysql.log.control_events import read_format, read_payload, read_rotate
from tidegate.sources.mysql.log.framing import Events, frame
from tidegate.sources.mysql.log.images import Numbers
from tidegate.sources.mysql.log.rows import Rows, TableMaps, decode_rows
from tidegate.sources.mysql.log.table_map import TableMap
from tidegate.sources.mysql.snapshot.emit import touched_keys
from tidegate.sources.mysql.snapshot.visible import LogPlace, is_before

_READER_IDS = (1 << 31, (1 << 32) - 1)  # by chance: a server cuts off the older of two readers with one id
_AT_ONCE_BYTES = 4 << 20


def early_keys(
    connection: Connection, schema: str, table: str, key: Sequence[str], after: LogPlace, until: LogPlace
) -> pa.Array:
    """The keys of all rows of the table that the log touched between two places."""

    def columns(found: TableMap) -> tuple[int, ...]:
        names = [column.name for column in found.columns]
        return tuple(names.index(name) for name in key)

    return touched_keys(rows for rows, _ in early_rows(connection, schema, table, columns, after, until))


def early_rows(
    connection: Connection,
    schema: str,
    table: str,
    columns: Callable[[TableMap], tuple[int, ...]],
    after: LogPlace,
    until: LogPlace,
) -> Iterator[tuple[Rows, Numbers]]:
    """The changes of the table between two places, and for each the number of its row event among the table's."""

    def wanted(found: TableMap) -> tuple[int, ...] | None:
        return columns(found) if (found.schema, found.table) == (schema, table) else None

    maps, count = TableMaps(), 0
    for log, events in _buffers(connection, after, until):
        if log is None:
            maps = TableMaps()
            continue
        for rows in decode_rows(log, events, maps, wanted):
            numbers, of = np.unique(rows.event, return_inverse=True)
            if len(numbers):
                yield rows, count + of
            count += len(numbers)


def _buffers(connection: Connection, after: LogPlace, until: LogPlace) -> Iterator[tuple[bytes | None, Events]]:
    """The row events and their tables in buffers; None where a new log file begins."""
    held: list[bytes] = []
    at, checksum_bytes = after, k.CHECKSUM_BYTES

    def taken() -> tuple[bytes, Events]:
        log = b"".join(held)
        held.clear()
        return log, frame(log, checksum_bytes)[0]

    for event in dump(connection, *after, randint(*_READER_IDS), NO_WAIT):
        header = k.header_of(event)
        if header.kind == k.FORMAT:
            checksum_bytes = read_format(event[k.HEADER_BYTES :]).checksum_bytes
        if not header.next_position:  # what the server says at the beginning is not in the log
            continue
        at = (at[0], header.next_position)
        if header.kind == k.PAYLOAD:
            yield taken()
            yield from read_payload(event[k.HEADER_BYTES : len(event) - checksum_bytes])
        elif header.kind == k.ROTATE:
            yield taken()
            yield None, Events(*frame(b"")[0])
            rotate = read_rotate(event[k.HEADER_BYTES : len(event) - checksum_bytes])
            at = (rotate.file, rotate.position)
        elif header.kind == k.TABLE_MAP or header.kind in k.ROWS:
            held.append(event)
            if sum(map(len, held)) > _AT_ONCE_BYTES:
                yield taken()
        if not is_before(at, until):
            yield taken()
            return
    raise SourceUnavailable(
        f"the server ended its log at {at[0]}:{at[1]}, before {until[0]}:{until[1]}; it is read again"
    )
