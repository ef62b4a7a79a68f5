"""A changefeed without Spark that follows the log of a real database, step by step, as far as it is asked to.

It is plain on purpose: one transaction after the other, nothing kept between steps but the catalogue and the position.
So tests have a sink to look at that the source for real changefeeds had no part in.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tidegate.bench.harness.databases import Database
from tidegate.errors import TidegateError
from tidegate.events import tso
from tidegate.format.rules.rules import TableFilter
from tidegate.sources.mysql.catalogue import Catalogue, TableEntry
from tidegate.sources.mysql.ddl.agree import agree
from tidegate.sources.mysql.ddl.apply import apply
from tidegate.sources.mysql.dump import NO_WAIT, dump
from tidegate.sources.mysql.information_schema import read_server
from tidegate.sources.mysql.log import control_events as control
from tidegate.sources.mysql.log import framing as k
from tidegate.sources.mysql.log.rows import KINDS, TableMaps, decode_rows
from tidegate.storage.store import Store
from tidegate.testing import FakeClock, feed, layout_row, open_changefeed, resolved_row

_READER_ID = 1003
_GTIDS = (k.GTID, k.TAGGED_GTID, k.MARIADB_GTID)
Row = dict[str, Any]


class Follower:
    """Lands the tables of one database, which must not exist yet: all that it holds comes through the log.

    `settings` are fields of `Settings`.
    """

    def __init__(self, database: Database, schema: str, store: Store, spool: Path, **settings: Any) -> None:
        self._database, self._batch, self._ts = database, 0, 0
        with database.connect() as connection:
            self.catalogue = Catalogue(read_server(connection), TableFilter((f"{schema}.*",)))
        self.file, self.at = database.begin_log(), 4
        self._clock = FakeClock()
        self.changefeed = open_changefeed(store, spool, self._clock, **settings)

    def step(self) -> None:
        """Read the log to its end and land it."""
        rows = list(self._rows())
        position = {"file": self.file, "pos": self.at, "ts": self._ts, "event": 0, "behind": {}, "snap": {}}
        feed(self.changefeed, self._batch, [*rows, resolved_row(self._ts)], json.dumps(position))
        self._batch += 1
        self._clock.advance(60.0)
        while self.changefeed.landing.land_next():
            pass
        self.changefeed.scribe.write_progress()
        if not self.changefeed.ledger.idle:
            raise TidegateError("something is left to land")

    def close(self) -> None:
        self.changefeed.close()

    # The log.

    def _rows(self) -> Iterator[Row]:
        """Change events from the position on, which moves to the end of the log."""
        held: list[bytes] = []
        maps, time_ms = TableMaps(), 0
        with self._database.connect() as connection:
            for event in dump(connection, self.file, self.at, _READER_ID, NO_WAIT):
                header, body = k.header_of(event), event[k.HEADER_BYTES : -k.CHECKSUM_BYTES]
                if header.kind == k.ROTATE:
                    self.file, self.at = control.read_rotate(body if k.has_checksum(event) else event[k.HEADER_BYTES :])
                    maps = TableMaps()
                    continue
                if not header.next_position:
                    continue
                self.at = header.next_position
                if header.kind in _GTIDS:
                    time_ms, held = _time_ms(header, body), []
                elif header.kind in (k.TABLE_MAP, *k.ROWS):
                    held.append(event)
                elif header.kind == k.XID:
                    yield from self._transaction(held, maps, time_ms)
                elif header.kind == k.QUERY:
                    query = control.read_query(body)
                    if query.text == "COMMIT":
                        yield from self._transaction(held, maps, time_ms)
                    elif query.text != "BEGIN":
                        yield from self._ddl(query, time_ms)

    def _next_ts(self, time_ms: int) -> int:
        self._ts = max(tso(time_ms), self._ts + 1)
        return self._ts

    def _ddl(self, query: control.Query, time_ms: int) -> Iterator[Row]:
        ts = self._next_ts(time_ms)
        applied = apply(self.catalogue, query, ts)
        self.catalogue, self._ts = applied.catalogue, applied.last_ts(ts)
        for seq, row in enumerate(applied.rows):
            yield from map(layout_row, row.layouts)
            yield row.row(seq)

    def _transaction(self, held: Sequence[bytes], maps: TableMaps, time_ms: int) -> Iterator[Row]:
        ts = self._next_ts(time_ms)
        log = b"".join(held)
        events, _ = k.frame(log, k.CHECKSUM_BYTES)
        found: list[tuple[int, int, Row]] = []
        places = {}

        def followed(table: Any) -> tuple[int, ...] | None:
            entry = self.catalogue.followed(table.schema, table.table)
            places[table.name] = entry
            return agree(table, entry) if entry is not None else None

        for rows in decode_rows(log, events, maps, followed):
            columns = (rows.event.tolist(), rows.table.tolist(), rows.kind.tolist())
            values = zip(*columns, rows.before.to_pylist(), rows.after.to_pylist(), strict=True)
            for i, (event, table, kind, before, after) in enumerate(values):
                entry = places[rows.tables[table].name]
                assert entry is not None
                row = _row(entry, KINDS[kind], ts, event << 32 | i, before, after)
                found.append((event, i, row))
        for layout in {each.layout for each in places.values() if each is not None}:
            yield layout_row(layout)
        yield from (row for *_, row in sorted(found, key=lambda each: each[:2]))


def _time_ms(header: k.Header, body: bytes) -> int:
    if header.kind == k.MARIADB_GTID:
        return header.time_s * 1000
    read = control.read_tagged_gtid if header.kind == k.TAGGED_GTID else control.read_gtid
    return read(body).commit_us // 1000


def _row(entry: TableEntry, kind: str, ts: int, seq: int, before: Any, after: Any) -> Row:
    names = {"kind": kind, "schema_name": entry.database, "table_name": entry.name}
    ids = {"table_id": entry.table_id, "logical_table_id": entry.table_id, "schema_id": entry.schema_id}
    times = {"table_version": entry.version, "start_ts": ts - 1, "commit_ts": ts, "seq": seq}
    return names | ids | times | {"layout": entry.layout.fingerprint, "before": before, "after": after}
