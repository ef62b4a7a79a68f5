"""Verify and DDLs: which schema files stand, under which version rows stand, on which side of a DDL.

Sinks are written by a small model of a perfect one, which knows nothing of `verify`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidegate.errors import VerifyError
from tidegate.events import DDL, UPDATE
from tidegate.format import ddl, protocol
from tidegate.format.ddl import ACTIONS, DdlEvent
from tidegate.format.ddl_files import schema_files
from tidegate.format.ddl_scope import (
    Table,
    alter_database_charset,
    alter_table,
    change_partitions,
    create_database,
    create_table,
    create_tables,
    create_view,
    drop_database,
    drop_table,
    drop_view,
    exchange_partition,
    rename_table,
    rename_tables,
    truncate_table,
)
from tidegate.format.layout import (
    METADATA,
    DataKey,
    data_path,
    index_path,
    index_text,
    metadata_text,
    parse_schema_path,
    schema_path,
)
from tidegate.format.rules import DDL_EVENTS, EventFilter, EventFilters, Route, Routes, Rules, TableFilter
from tidegate.format.tables import Column, Layout, schema_checksum, schema_file_text
from tidegate.settings import Settings
from tidegate.sources.parquet import write_events
from tidegate.testing import MemoryStore, change, events_batch, layout_row
from tidegate.verify import Report, verify
from tidegate.verify.ddl_rules import event_names

NARROW = Layout((Column("id", "int", pk=True, nullable=False), Column("v", "varchar", flen=20)))
WIDE = Layout((*NARROW.columns, Column("note", "varchar", flen=20)))
TURNED = Layout((NARROW.columns[1], NARROW.columns[0]))
LAYOUTS = {layout.fingerprint: layout for layout in (NARROW, WIDE, TURNED)}
DATE = "2026-01-31"
FILE_ROWS = 2

T = Table(100, "shop", "t", 200, NARROW)
A, B = Table(100, "shop", "a", 301, NARROW), Table(100, "shop", "b", 302, WIDE)
PARTED = Table(100, "shop", "p", 400, NARROW, (401, 402))


@dataclass
class History:
    """Rows and DDLs of a source in order; `seq` counts them."""

    events: list[dict[str, Any]] = field(default_factory=list)
    left_out: set[int] = field(default_factory=set)  # seqs of what a rule keeps from the sink

    def rows(self, table: Table, version: int, *times: int, partition: int = 0, lands: bool = True) -> History:
        layout = table.layout or NARROW
        for ts in times:
            values = [b"%d" % ts, b'"%d"' % (ts * 7), None][: len(layout.columns)]
            row = change(partition or table.id, ts, len(self.events), *values, schema_name=table.schema)
            row |= {"table_name": table.name, "logical_table_id": table.id, "table_version": version}
            self._add(row | {"layout": layout.fingerprint}, lands)
        return self

    def ddl(self, ts: int, event: DdlEvent | None, lands: bool = True) -> History:
        assert event is not None
        self._add({"kind": DDL, "commit_ts": ts, "seq": len(self.events), "ddl": event.to_json()}, lands)
        return self

    def _add(self, event: dict[str, Any], lands: bool) -> None:
        if not lands:
            self.left_out.add(event["seq"])
        self.events.append(event)

    def write(self, folder: Path, batch_rows: int = 1000) -> str:
        groups = [self.events[i : i + batch_rows] for i in range(0, len(self.events), batch_rows)]
        layouts = [layout_row(layout) for layout in LAYOUTS.values()]
        write_events(folder, [events_batch(layouts), *map(events_batch, groups)], 1000)
        return f"parquet:{folder}"


@dataclass
class PerfectSink:
    """Does at once what a changefeed does in the end: a DDL writes its files, a row goes where TiCDC's rule says."""

    settings: Settings
    store: MemoryStore = field(default_factory=MemoryStore)
    lines: dict[DataKey, list[bytes]] = field(default_factory=dict)

    def take(self, history: History, checkpoint_ts: int | None = None) -> PerfectSink:
        for event in (event for event in history.events if event["seq"] not in history.left_out):
            if event["kind"] == DDL:
                self.execute(event["commit_ts"], DdlEvent.from_json(event["ddl"]))
            else:
                self.append(event)
        self.flush()
        last = max(event["commit_ts"] for event in history.events)
        self.put(METADATA, metadata_text(last if checkpoint_ts is None else checkpoint_ts))
        return self

    def put(self, path: str, text: str) -> None:
        self.store.objects[path] = text.encode()

    def target(self, schema: str, table: str) -> tuple[str, str]:
        return self.settings.rules.routes.target(schema, table)

    def execute(self, ts: int, event: DdlEvent) -> None:
        paths, with_ids = self.settings.paths, self.settings.output_column_id
        for path, text in schema_files(event, ts, LAYOUTS, paths, self.target, with_ids):
            self.put(path, text)

    def append(self, event: dict[str, Any]) -> None:
        names, layout = self.target(event["schema_name"], event["table_name"]), LAYOUTS[event["layout"]]
        routed = events_batch([event | dict(zip(("schema_name", "table_name"), names, strict=True))])
        text = protocol.encode(routed, np.array([0]), layout, self.settings.encoding, None, 1_767_225_600_000)
        table_id, version = event["table_id"], self.directory(names, event, layout)
        key = DataKey(*names, version, table_id, table_id != event["logical_table_id"], DATE)
        if self.settings.table_id_as_path:
            key = replace(key, schema=str(table_id), table="")
        lines = self.lines.setdefault(key, [protocol.header(layout, self.settings.encoding)])
        lines += text.to_pylist()

    def directory(self, names: tuple[str, str], event: dict[str, Any], layout: Layout) -> int:
        paths, with_ids, version = self.settings.paths, self.settings.output_column_id, int(event["table_version"])
        checksum = schema_checksum(*names, layout, with_ids)
        right = schema_path(*names, version, checksum, paths, event["table_id"])
        folder = right.rpartition("/")[0]
        parsed = [parse_schema_path(path, paths) for path in self.store.objects if path.startswith(f"{folder}/")]
        standing = [key.version for key in parsed if key and key.checksum == checksum and key.version <= version]
        if not standing:
            self.put(right, schema_file_text(*names, version, layout, output_column_id=with_ids))
        return max(standing, default=version)

    def flush(self) -> None:
        paths = self.settings.paths
        for key, (header, *lines) in self.lines.items():
            parts = [lines[i : i + FILE_ROWS] for i in range(0, len(lines), FILE_ROWS)]
            for number, part in enumerate(parts, start=1):
                self.store.objects[data_path(key, number, paths)] = header + b"".join(part)
            self.put(index_path(key, paths), index_text(key, len(parts), paths))

    def path(self, part: str) -> str:
        """The one object whose path contains `part`."""
        [path] = [path for path in self.store.objects if part in path]
        return path


def settings(**given: Any) -> Settings:
    return Settings(**{"sink_uri": "file:///sink", "scheme": "file", "changefeed_id": "tiny", "spool_dir": ""} | given)


def named(table: Table, name: str, schema: str = "shop", schema_id: int = 100) -> Table:
    return replace(table, name=name, schema=schema, schema_id=schema_id)


def wide(table: Table) -> Table:
    return replace(table, layout=WIDE)


def alter(name: str, table: Table, query: str) -> DdlEvent | None:
    return alter_table(ACTIONS[name], table, query)


# Histories. Versions are the commit-ts of DDLs, so a row's version says which DDL it follows.


def columns_and_indexes() -> History:
    """A column makes new columns, an index does not; both begin a directory."""
    history = History().ddl(10, create_table(T, "create table t (id int)")).rows(T, 10, 11, 12, 13)
    history.ddl(20, alter("add column", wide(T), "alter table t add column note varchar(20)"))
    history.rows(wide(T), 20, 21, 22).ddl(30, alter("add index", wide(T), "alter table t add index (v)"))
    return history.rows(wide(T), 30, 31).ddl(40, alter("drop column", T, "alter table t drop column note")).rows(T, 40, 41)


def known_before() -> History:
    """The table is older than the changefeed: its first rows write its schema file, and no DDL does."""
    history = History().rows(T, 3, 5, 6).rows(T, 7, 8)  # what happened at 7 did not come with a DDL
    return history.ddl(10, alter("add index", T, "alter table t add index (v)")).rows(T, 10, 11)


def swap() -> History:
    """`a` and `b` change names twice; the lower id always comes first in a batch."""
    history = History().rows(A, 3, 5, 7).rows(B, 4, 6, 8)
    x, y = named(A, "tmp"), named(B, "a")
    history.ddl(10, rename_tables([(A, x), (B, y), (x, named(A, "b"))]))
    history.rows(y, 10, 11, 13).rows(named(A, "b"), 10, 12, 14)
    history.ddl(20, rename_tables([(y, named(B, "tmp")), (named(A, "b"), A), (named(B, "tmp"), B)]))
    return history.rows(A, 20, 21).rows(B, 20, 22, 23)


def chain() -> History:
    """A name wanders: b becomes c, a becomes b; then a new table takes the name a, in another database too."""
    history = History().rows(A, 3, 5).rows(B, 4, 6)
    b, c, new = named(A, "b"), named(B, "c"), replace(A, id=303)
    history.ddl(10, rename_tables([(B, c), (A, b)])).rows(b, 10, 11).rows(c, 10, 12)
    history.ddl(20, create_table(new, "create table a (id int)")).rows(new, 20, 21).rows(b, 10, 22)
    moved = named(b, "b", "archive", 105)
    return history.ddl(30, rename_table(b, moved)).rows(moved, 30, 31).rows(new, 20, 32)


def truncated() -> History:
    new, newest = replace(T, id=150), replace(T, id=202)  # a smaller id may come later
    history = History().rows(T, 3, 5, 6, 7).ddl(10, truncate_table(T, new, "truncate t")).rows(new, 10, 11, 12)
    return history.ddl(20, truncate_table(new, newest, "truncate t")).rows(newest, 20, 21)


def dropped() -> History:
    new = replace(T, id=201)
    history = History().rows(T, 3, 5, 6).ddl(10, drop_table(T)).rows(A, 4, 12)
    return history.ddl(20, create_table(new, "create table t (id int)")).rows(new, 20, 21, 22)


def databases_and_views() -> History:
    view = Table(100, "shop", "seen", 500, WIDE)
    history = History().ddl(10, create_database(100, "shop", "create database shop"))
    history.ddl(12, create_tables([(T, "create table t (id int)"), (A, "create table a (id int)")])).rows(T, 12, 13)
    history.ddl(14, alter_database_charset(100, "shop", "alter database shop charset utf8mb4")).rows(T, 12, 15)
    history.ddl(16, create_view(view, "create view seen as select 1")).rows(A, 12, 17).ddl(18, drop_view(view))
    history.ddl(20, drop_database(100, "shop", "drop database shop"))
    new = replace(T, schema_id=110, id=210)
    history.ddl(30, create_database(110, "shop", "create database shop")).ddl(31, create_table(new, "create table t (i int)"))
    return history.rows(new, 31, 33)


def partitions() -> History:
    more, less = replace(PARTED, partitions=(401, 402, 403)), replace(PARTED, partitions=(405, 402, 403))
    history = History().rows(PARTED, 3, 5, 7, partition=401).rows(PARTED, 3, 6, partition=402)
    history.ddl(10, change_partitions(ACTIONS["add partition"], PARTED, more, "alter table p add partition (...)"))
    history.rows(more, 10, 11, partition=401).rows(more, 10, 12, partition=403)
    history.ddl(20, change_partitions(ddl.TRUNCATE_PARTITION, more, less, "alter table p truncate partition p0"))
    return history.rows(less, 20, 21, partition=405).rows(less, 20, 22, partition=402)


def exchanged() -> History:
    after = replace(PARTED, partitions=(200, 402))
    history = History().rows(PARTED, 3, 5, partition=401).rows(T, 4, 6, 7)
    history.ddl(10, exchange_partition(PARTED, after, T, "alter table p exchange partition p0 with table t"))
    history.rows(after, 10, 11, partition=200).rows(after, 10, 12, partition=402)
    return history.rows(replace(T, id=401), 10, 13)


HISTORIES: list[Callable[[], History]] = [
    columns_and_indexes,
    known_before,
    swap,
    chain,
    truncated,
    dropped,
    databases_and_views,
    partitions,
    exchanged,
]
ROUTED = Rules(routes=Routes((Route(("*.*",), "to_{schema}", "new_{table}"),)))


@pytest.mark.parametrize("history", HISTORIES, ids=lambda each: each.__name__)
@pytest.mark.parametrize("batch_rows", [1, 3, 1000])
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"table_id_as_path": True},
        {"protocol": "canal-json"},
        {"output_column_id": True, "rules": ROUTED},
        {"csv": protocol.CsvOptions(output_field_header=True)},
    ],
    ids=["names", "ids", "canal-json", "routed", "headers"],
)
def test_a_perfect_sink_passes(
    tmp_path: Path, history: Callable[[], History], batch_rows: int, given: dict[str, Any]
) -> None:
    past, chosen = history(), settings(**given)
    sink = PerfectSink(chosen).take(past)
    report = verify(past.write(tmp_path, batch_rows), chosen, sink.store)
    assert report.rows == sum(event["kind"] != DDL for event in past.events)
