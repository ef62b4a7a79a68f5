"""The changes of some tables in a part of the log, which brings a consistent read to the place of a comparison.

Only what happened within the seconds between the two is read here. A DDL of a table in that part is told by its name,
since the rows on both sides of it cannot be brought together.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pymysql.connections import Connection

from tidegate.errors import BadLog, VerifyError
from tidegate.sources.mysql.dump import NO_WAIT, dump
from tidegate.sources.mysql.log import control_events as control
from tidegate.sources.mysql.log import framing as k
from tidegate.sources.mysql.log.framing import CHECKSUM_BYTES, HEADER_BYTES, frame, header_of
from tidegate.sources.mysql.log.rows import Rows, TableMaps, decode_rows
from tidegate.sources.mysql.log.table_map import TableMap
from tidegate.sources.mysql.place import Place
from tidegate.tools.verify_database.moment import Moment, shown

Name = tuple[str, str]
_BATCH_BYTES = 8 << 20
_HARMLESS = frozenset(("begin", "commit", "rollback", "savepoint", "xa", "release"))
_SIZED = (k.GTID, k.TAGGED_GTID, k.MARIADB_GTID, k.ANONYMOUS_GTID)


class TableChanges(NamedTuple):
    """Changes of one table in the order of the log; `seen` are those that the consistent read has already."""

    name: Name
    kind: npt.NDArray[np.int8]  # numbers in `log.rows.KINDS`
    before: pa.ListArray
    after: pa.ListArray
    seen: npt.NDArray[np.bool_]


class _Held(NamedTuple):
    event: bytes
    seen: bool


class Window:
    """Reads the log between two places. `altered` are the tables that a statement in it names."""

    def __init__(self, columns: Mapping[Name, tuple[str, ...]], moment: Moment) -> None:
        self._columns, self._moment = columns, moment
        self._checksum_bytes = CHECKSUM_BYTES
        self._maps = TableMaps()
        self._held: list[_Held] = []
        self._held_bytes = 0
        self._seen = True
        self.altered: set[Name] = set()

    def read(self, connection: Connection, first: Place, last: Place) -> Iterator[TableChanges]:
        """The changes of all transactions from `first` on that begin before `last`."""
        if first.order >= last.order:
            return
        at = first
        server_id = secrets.randbelow(1 << 31) + (1 << 31)
        for event in dump(connection, first.file, first.position, server_id, NO_WAIT):
            header = header_of(event)
            if header.kind == k.ROTATE:
                yield from self._flush()
                at = Place(*control.read_rotate(_without_checksum(event)))
                self._maps = TableMaps()
                continue
            if header.kind == k.FORMAT:
                yield from self._flush()
                self._checksum_bytes = control.read_format(event[HEADER_BYTES:]).checksum_bytes
            if header.next_position:  # what the server makes up at the start has no place in the file
                # Events in between may not be sent, and a place has only 32 bits here.
                begins = at.position + (header.next_position - header.size - at.position) % (1 << 32)
                if at._replace(position=begins).order >= last.order:
                    at = last
                    break
                yield from self._take(event, header.kind, at._replace(position=begins))
                at = at._replace(position=begins + header.size)
        yield from self._flush()
        if at.order < last.order:
            raise VerifyError(
                f"the log of the server ends at {shown(at)}, before {shown(last)}; is it the server of this sink?"
            )

    def _take(self, event: bytes, kind: int, at: Place) -> Iterator[TableChanges]:
        body = event[HEADER_BYTES : len(event) - self._checksum_bytes]
        if kind in _SIZED:
            self._seen = self._moment.has_seen(_gtid(kind, body, event), at)
        elif kind == k.QUERY:
            self._note(control.read_query(body))
        elif kind == k.PAYLOAD:
            for log, events in control.read_payload(body):
                for start, end in zip(events.start.tolist(), events.end.tolist(), strict=True):
                    yield from self._keep(log[start:end] + bytes(self._checksum_bytes))
        elif kind in k.REFUSED:
            raise BadLog(f"the log holds {k.REFUSED[kind]}")
        elif kind == k.TABLE_MAP or kind in k.ROWS:
            yield from self._keep(event)

    def _keep(self, event: bytes) -> Iterator[TableChanges]:
        if header_of(event).kind not in (k.TABLE_MAP, *k.ROWS):
            return
        self._held.append(_Held(event, self._seen))
        self._held_bytes += len(event)
        if self._held_bytes > _BATCH_BYTES:
            yield from self._flush()

    def _note(self, query: control.Query) -> None:
        """Which of the tables a statement may change. The name alone counts, so it may be one too many."""
        text = query.text.lower()
        if text.split(None, 1)[:1] in [[word] for word in _HARMLESS]:
            return
        is_of_database = bool(re.match(r"\s*(create|alter|drop)\s+(database|schema)\b", text))
        for schema, table in self._columns:
            if (is_of_database and schema.lower() in text) or table.lower() in text:
                self.altered.add((schema, table))

    def _flush(self) -> Iterator[TableChanges]:
        held, self._held, self._held_bytes = self._held, [], 0
        if not held:
            return
        log = b"".join(each.event for each in held)
        events, _ = frame(log, self._checksum_bytes)
        seen = np.array([each.seen for each in held])
        for rows in decode_rows(log, events, self._maps, self._places):
            yield from _by_table(rows, seen)

    def _places(self, table: TableMap) -> tuple[int, ...] | None:
        """Where the columns to compare stand in the rows; None if the table does not matter, or has other columns."""
        name = (table.schema, table.table)
        if name not in self._columns:
            return None
        known = {column.name: i for i, column in enumerate(table.columns)}
        if not known.keys() >= set(self._columns[name]):
            self.altered.add(name)
            return None
        return tuple(known[column] for column in self._columns[name])


def _gtid(kind: int, body: bytes, event: bytes) -> str:
    if kind == k.MARIADB_GTID:
        return control.read_mariadb_gtid(body, header_of(event).server_id).text
    readers: dict[int, Callable[[bytes], control.Gtid]] = {k.TAGGED_GTID: control.read_tagged_gtid}
    return readers.get(kind, control.read_gtid)(body).text


def _without_checksum(event: bytes) -> bytes:
    """The body of a ROTATE: one that the server makes up may have a checksum although the log has none."""
    return (event[:-CHECKSUM_BYTES] if k.has_checksum(event) else event)[HEADER_BYTES:]


def _by_table(rows: Rows, seen: npt.NDArray[np.bool_]) -> Iterator[TableChanges]:
    for number in np.unique(rows.table).tolist():
        table, at = rows.tables[number], np.flatnonzero(rows.table == number)
        where = pa.array(at)
        yield TableChanges(
            (table.schema, table.table),
            rows.kind[at],
            rows.before.take(where),
            rows.after.take(where),
            seen[rows.event[at]],
        )
