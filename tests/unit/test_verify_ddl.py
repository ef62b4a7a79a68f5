"""Verify and DDLs: which schema files stand, under which version rows stand, on which side of a DDL.

Sinks are written by a small model of a perfect one, which knows nothing of `verify`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidegate.config.settings import Settings
from tidegate.errors import TidegateError, VerifyError
from tidegate.events import DDL, UPDATE
from tidegate.format.ddl import events as ddl
from tidegate.format.ddl.events import ACTIONS, DdlEvent
from tidegate.format.ddl.files import schema_files
from tidegate.format.ddl.filter import event_names
from tidegate.format.ddl.scope import (
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
from tidegate.format.encode import protocol
from tidegate.format.encode.csv import CsvOptions
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
from tidegate.format.rules.rules import DDL_EVENTS, EventFilter, EventFilters, Route, Routes, Rules, TableFilter
from tidegate.format.tables import Column, Layout, schema_checksum, schema_file_text
from tidegate.reader.replay import survey
from tidegate.sources import open_source
from tidegate.sources.parquet import write_events
from tidegate.testing import (
    FakeClock,
    MemoryStore,
    change,
    events_batch,
    feed,
    layout_row,
    open_changefeed,
    resolved_row,
    tiny_settings,
)
from tidegate.tools.verify import Report, verify

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
            texts = {"int": b"%d" % ts, "varchar": b'"%d"' % (ts * 7)}
            values = [texts[column.type] if at < 2 else None for at, column in enumerate(layout.columns)]
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
        key = DataKey(*names, version, date=DATE)
        if self.settings.table_id_as_path:
            key = key._replace(schema=str(table_id), table="", table_id=table_id)
        elif table_id != event["logical_table_id"]:
            key = key._replace(table_id=table_id, is_partition=True)
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
    return (
        history.rows(wide(T), 30, 31).ddl(40, alter("drop column", T, "alter table t drop column note")).rows(T, 40, 41)
    )


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
    history.ddl(30, create_database(110, "shop", "create database shop")).ddl(
        31, create_table(new, "create table t (i int)")
    )
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
        {"csv": CsvOptions(output_field_header=True)},
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


# What a DDL must have left behind.


@dataclass
class Case:
    """A source and its perfect sink, to be damaged."""

    source: str
    sink: PerfectSink

    def verify(self) -> Report:
        return verify(self.source, self.sink.settings, self.sink.store)

    def error(self) -> str:
        with pytest.raises(VerifyError) as caught:
            self.verify()
        return str(caught.value)

    def rewrite(self, part: str, **fields: Any) -> str:
        """Change fields of the schema file whose path contains `part`."""
        path = self.sink.path(part)
        content = json.loads(self.sink.store.objects[path]) | fields
        self.sink.put(path, json.dumps(content, indent=4))
        return path

    def move(self, part: str, other: str) -> None:
        """The last line of one data file goes to the end of another, or to its beginning if it comes later."""
        objects, source, target = self.sink.store.objects, self.sink.path(part), self.sink.path(other)
        *lines, last = objects[source].splitlines(keepends=True)
        objects[source] = b"".join(lines)
        objects[target] = last + objects[target] if target > source else objects[target] + last


def case(folder: Path, history: History, checkpoint_ts: int | None = None, **given: Any) -> Case:
    return Case(history.write(folder), PerfectSink(settings(**given)).take(history, checkpoint_ts))


@pytest.mark.parametrize("history", HISTORIES, ids=lambda each: each.__name__)
def test_no_object_of_a_perfect_sink_can_be_spared(tmp_path: Path, history: Callable[[], History]) -> None:
    found = case(tmp_path, history())
    for path, data in list(found.sink.store.objects.items()):
        del found.sink.store.objects[path]
        assert found.error()
        found.sink.store.objects[path] = data
    found.verify()


@pytest.mark.parametrize("history", HISTORIES, ids=lambda each: each.__name__)
def test_no_field_of_any_schema_file_may_be_another(tmp_path: Path, history: Callable[[], History]) -> None:
    found = case(tmp_path, history())
    for path in [path for path in found.sink.store.objects if "/schema_" in path]:
        whole = found.sink.store.objects[path]
        for name in json.loads(whole):
            found.rewrite(path, **{name: "other"})
            assert f"schema file {path}" in found.error()
        found.sink.store.objects[path] = whole
    found.verify()


@pytest.mark.parametrize(
    ("history", "part", "name", "ts"),
    [
        (columns_and_indexes, "shop/t/meta/schema_20_", "shop.t", 20),
        (columns_and_indexes, "shop/t/meta/schema_30_", "shop.t", 30),
        (swap, "shop/tmp/meta/schema_10_", "shop.tmp", 10),
        (swap, "shop/b/meta/schema_20_", "shop.b", 20),
        (chain, "archive/b/meta/schema_30_", "archive.b", 30),
        (truncated, "shop/t/meta/schema_10_", "shop.t", 10),
        (dropped, "shop/t/meta/schema_10_", "shop.t", 10),
        (databases_and_views, "shop/meta/schema_14_", "shop", 14),
        (databases_and_views, "shop/seen/meta/schema_18_", "shop.seen", 18),
        (exchanged, "shop/p/meta/schema_10_", "shop.p", 10),
    ],
)
def test_a_missing_schema_file_is_named_with_its_ddl(
    tmp_path: Path, history: Callable[[], History], part: str, name: str, ts: int
) -> None:
    found = case(tmp_path, history(), ts)
    path = found.sink.path(part)
    del found.sink.store.objects[path]
    missing = f"{name}: schema file {path} of the DDL at commit-ts {ts} is missing, although the checkpoint is {ts}"
    assert found.error() == missing


def test_another_text_in_the_schema_file_of_a_ddl_is_shown(tmp_path: Path) -> None:
    found = case(tmp_path, columns_and_indexes())
    path = found.rewrite("t/meta/schema_30_", Query="ALTER TABLE t ADD INDEX (id)")
    head = f"shop.t: schema file {path} of the DDL at commit-ts 30"
    assert found.error() == (
        f"{head} says Query 'ALTER TABLE t ADD INDEX (id)' where 'alter table t add index (v)' should be"
    )
    found.rewrite("t/meta/schema_30_", Query="alter table t add index (v)", Type=5)
    assert found.error() == f"{head} says Type 5 where 7 should be"
    found.rewrite("t/meta/schema_30_", Type=7, TableVersion=20)
    assert found.error() == f"{head} says TableVersion 20 where 30 should be"
    found.sink.put(path, "[]")
    assert found.error() == f"{head} is no JSON object: it says b'[]'"
    found.sink.put(path, schema_file_text("shop", "t", 30, WIDE, "alter table t add index (v)", 7) + "\n")
    assert found.error() == f"{head} has all that should be there, but is spelled otherwise"


def test_a_schema_file_that_rows_wrote_does_not_stand_for_that_of_a_ddl(tmp_path: Path) -> None:
    found = case(tmp_path, columns_and_indexes())
    found.sink.put(found.sink.path("t/meta/schema_20_"), schema_file_text("shop", "t", 20, WIDE))
    assert "of the DDL at commit-ts 20 says Query '' where 'alter table t add column" in found.error()


def test_a_schema_file_that_rows_wrote_has_no_query(tmp_path: Path) -> None:
    found = case(tmp_path, known_before())
    path = found.rewrite("t/meta/schema_3_", Query="CREATE TABLE t (id INT)")
    assert found.error() == f"shop.t: schema file {path} says Query 'CREATE TABLE t (id INT)' where '' should be"


def test_the_schema_file_of_a_ddl_under_another_checksum_is_named(tmp_path: Path) -> None:
    found = case(tmp_path, columns_and_indexes())
    right = found.sink.path("t/meta/schema_20_")
    wrong = "shop/t/meta/schema_20_0000000001.json"
    found.sink.store.objects[wrong] = found.sink.store.objects.pop(right)
    assert found.error() == f"shop.t: schema file {wrong} has a wrong checksum; by the source it should be {right}"


@pytest.mark.parametrize(
    ("names", "version", "layout", "name"),
    [
        (("shop", "t"), 25, WIDE, "shop.t"),
        (("shop", "other"), 20, WIDE, "shop.other"),
        (("shop", ""), 20, None, "shop"),
        (("shop", "t"), 50, NARROW, "shop.t"),
    ],
)
def test_a_schema_file_without_a_reason_is_named(
    tmp_path: Path, names: tuple[str, str], version: int, layout: Layout | None, name: str
) -> None:
    found = case(tmp_path, columns_and_indexes())
    path = schema_path(*names, version, schema_checksum(*names, layout), found.sink.settings.paths)
    found.sink.put(path, schema_file_text(*names, version, layout))
    said = f"{name}: the source has no version {version}, but {path} is there: no DDL wrote it, and no row"
    assert found.error() == said


def test_an_older_file_of_the_same_columns_in_another_order_is_not_used(tmp_path: Path) -> None:
    turned = replace(T, layout=TURNED)
    history = History().rows(T, 3, 5).rows(turned, 7, 8)
    source, sink = history.write(tmp_path), PerfectSink(settings())
    sink.put(schema_path("shop", "t", 7, schema_checksum("shop", "t", TURNED), sink.settings.paths), "")
    found = Case(source, sink.take(history))
    sink.put(sink.path("schema_7_"), schema_file_text("shop", "t", 7, TURNED))
    assert found.verify().rows == 2
    del sink.store.objects[sink.path("schema_7_")]
    assert found.error() == f"shop.t: version 7 has no schema file, which {sink.path('t/7/2026-01-31/CDC0')} needs"


@pytest.mark.parametrize("history", HISTORIES, ids=lambda each: each.__name__)
def test_ddls_may_come_behind_the_rows_of_their_step(tmp_path: Path, history: Callable[[], History]) -> None:
    found = case(tmp_path / "sink", history())
    rows, ddls = ([e for e in history().events if (e["kind"] == DDL) == late] for late in (False, True))
    found.source = History([*rows, *ddls]).write(tmp_path / "late", len(rows))
    found.verify()
    for path in [path for path in found.sink.store.objects if "/schema_" in path]:
        whole = found.sink.store.objects.pop(path)
        if b'"Query": ""' not in whole:
            assert re.search(f"schema file {path} of the DDL at commit-ts .* is missing", found.error())
        found.sink.store.objects[path] = whole.replace(b'"Query": "', b'"Query": "x')
        assert f"schema file {path}" in found.error()
        found.sink.store.objects[path] = whole


# Beyond the checkpoint.


def first_events(history: History, count: int) -> History:
    return History(history.events[:count])


@pytest.mark.parametrize("history", HISTORIES, ids=lambda each: each.__name__)
def test_a_sink_may_end_anywhere_behind_its_checkpoint(tmp_path: Path, history: Callable[[], History]) -> None:
    past = history()
    source = past.write(tmp_path)
    for count in range(1, len(past.events) + 1):
        sink = PerfectSink(settings()).take(first_events(past, count), checkpoint_ts=past.events[0]["commit_ts"] - 1)
        verify(source, sink.settings, sink.store)


def test_a_schema_file_beyond_the_checkpoint_must_be_right_if_it_is_there(tmp_path: Path) -> None:
    past = columns_and_indexes()
    found = Case(past.write(tmp_path), PerfectSink(settings()).take(first_events(past, 8), checkpoint_ts=22))
    found.verify()
    found.rewrite("t/meta/schema_30_", Type=8)
    assert "of the DDL at commit-ts 30 says Type 8 where 7 should be" in found.error()
    del found.sink.store.objects[found.sink.path("t/meta/schema_30_")]
    found.verify()


def test_rows_beyond_the_checkpoint_need_the_schema_file_of_their_ddl(tmp_path: Path) -> None:
    past = columns_and_indexes()
    found = Case(past.write(tmp_path), PerfectSink(settings()).take(past, checkpoint_ts=12))
    del found.sink.store.objects[found.sink.path("t/meta/schema_20_")]
    assert found.error().startswith("shop.t: version 20 has no schema file, which shop/t/20/")


# Rows and versions.


def test_rows_behind_an_index_stand_under_its_version_although_the_columns_are_the_same(tmp_path: Path) -> None:
    found = case(tmp_path, columns_and_indexes())
    later = found.sink.path("t/30/2026-01-31/CDC0")
    for path in (later, found.sink.path("t/30/2026-01-31/meta")):
        found.sink.store.objects[path.replace("t/30/", "t/25/")] = found.sink.store.objects.pop(path)
    assert found.error().startswith("shop.t: row 6 (commit-ts 31) is before its version, at row 1 of shop/t/25/")


def test_a_row_in_the_directory_before_its_ddl_is_named(tmp_path: Path) -> None:
    found = case(tmp_path, columns_and_indexes())
    found.move("t/40/2026-01-31/CDC00000000000000000001", "t/20/2026-01-31/CDC00000000000000000001")
    found.sink.store.objects.pop(found.sink.path("t/40/2026-01-31/CDC0"))
    found.sink.store.objects.pop(found.sink.path("t/40/2026-01-31/meta"))
    assert found.error().startswith("shop.t: a row too many, `")

    found = case(tmp_path / "other", truncated())
    path = found.sink.path("t/10/2026-01-31/CDC0")
    found.move("t/20/2026-01-31/CDC0", "t/10/2026-01-31/CDC0")
    found.sink.store.objects[found.sink.path("t/20/2026-01-31/CDC0")] = b"x\r\n"
    error = found.error()
    assert error.startswith(f"shop.t: row 6 (commit-ts 21) is before its version, at row 3 of {path} (byte ")
    assert error.endswith("under version 10; it comes after the DDL at commit-ts 20 and should be under version 20")


def test_a_row_behind_a_ddl_that_it_is_older_than_is_named(tmp_path: Path) -> None:
    found = case(tmp_path, truncated())
    path = found.sink.path("t/20/2026-01-31/CDC0")
    found.move("t/10/2026-01-31/CDC0", "t/20/2026-01-31/CDC0")
    assert found.error() == (
        f"shop.t: row 5 (commit-ts 12) is behind its version, at byte 0 of {path}, under version 20; "
        "it is older than the DDL at commit-ts 20 and should be under version 10"
    )


def test_rows_of_a_swapped_name_in_the_wrong_table_are_found(tmp_path: Path) -> None:
    found = case(tmp_path, swap())
    one, other = found.sink.path("shop/a/10/2026-01-31/CDC0"), found.sink.path("shop/b/10/2026-01-31/CDC0")
    objects = found.sink.store.objects
    objects[one], objects[other] = objects[other], objects[one]
    assert found.error().startswith("shop.a: row 3 is altered: row 1 of shop/a/10/")


def test_a_source_that_puts_a_row_behind_a_ddl_of_later_is_refused(tmp_path: Path) -> None:
    history = History().rows(T, 3, 5).ddl(10, alter("add index", T, "alter table t add index (v)")).rows(T, 10, 9, 11)
    assert case(tmp_path, history).error() == (
        "shop.t: row 2 (commit-ts 9) is older than the DDL at commit-ts 10, but its version puts it behind that, "
        "in directory 10"
    )


def test_a_source_that_leaves_rows_before_an_earlier_ddl_is_refused(tmp_path: Path) -> None:
    history = History().rows(T, 3, 5).ddl(10, alter("add index", T, "alter table t add index (v)")).rows(T, 3, 10, 12)
    assert case(tmp_path, history).error() == (
        "shop.t: row 3 (commit-ts 12) comes after the DDL at commit-ts 10, but its version puts it before that, "
        "in directory 3"
    )


def test_a_table_may_go_on_after_a_drop_that_was_left_out(tmp_path: Path) -> None:
    """Without a schema file of the new table its rows go on in the directory of the old one."""
    new = replace(T, id=201)
    create = create_table(new, "create table t (id int)")
    assert create is not None
    history = History().rows(T, 3, 5, 6).ddl(20, replace(create, not_sync=True)).rows(new, 20, 21)
    assert case(tmp_path, history).verify().rows == 3


@pytest.mark.parametrize("batch_rows", [1, 2, 1000])
@pytest.mark.parametrize("ends", ["truncate", "rename", "drop database"])
def test_a_moved_insert_comes_before_the_rows_behind_a_ddl(tmp_path: Path, batch_rows: int, ends: str) -> None:
    """A split update waits for its transaction's end; a DDL of its table is one."""
    new = replace(T, id=150)
    event = {
        "truncate": truncate_table(T, new, "truncate t"),
        "rename": rename_table(T, named(T, "u")),
        "drop database": drop_database(100, "shop", "drop database shop"),
    }[ends]
    before = History().rows(T, 3, 5, 6)
    before.events[1] |= {"kind": UPDATE, "before": [b"6", b"x"], "after": [b"7", b"x"]}
    landed = History().rows(T, 3, 5, 6, 6)
    landed.events[1] |= {"kind": "delete", "before": [b"6", b"x"], "after": None}
    landed.events[2] |= {"after": [b"7", b"x"]}
    for history in (before, landed):
        history.ddl(10, event).ddl(12, create_table(new, "create table t (id int)")).rows(new, 12, 13)
    sink = PerfectSink(settings()).take(landed)
    assert verify(before.write(tmp_path, batch_rows), sink.settings, sink.store).rows == 4


# Rules.


def without(rules: Sequence[str]) -> Rules:
    return Rules(filter=TableFilter(("*.*", *rules)))


def ignoring(*events: str, matcher: str = "shop.t", sql: tuple[str, ...] = ()) -> Rules:
    return Rules(event_filters=EventFilters((EventFilter((matcher,), events, sql),)))


def two_tables(lands: bool) -> History:
    """All that happens to `shop.t` lands or does not; what happens to `shop.a` does."""
    history = History().ddl(10, create_table(T, "create table t (id int)"), lands).rows(T, 10, 11, lands=lands)
    history.ddl(12, create_table(A, "create table a (id int)")).rows(A, 12, 13)
    history.ddl(20, alter("add index", T, "alter table t add index (v)"), lands).rows(T, 20, 21, lands=lands)
    return history.ddl(22, drop_table(T), lands).rows(A, 12, 23)


def test_a_filtered_table_leaves_nothing(tmp_path: Path) -> None:
    assert case(tmp_path, two_tables(lands=False), rules=without(["!shop.t"])).verify().rows == 2


def test_a_schema_file_of_a_filtered_table_is_named(tmp_path: Path) -> None:
    history = two_tables(lands=False)
    found = case(tmp_path, history, rules=without(["!shop.t"]))
    found.sink.execute(20, DdlEvent.from_json(history.events[4]["ddl"]))
    path = found.sink.path("shop/t/meta")
    assert found.error() == f"shop.t: the source has no version 20, but {path} is there: no DDL wrote it, and no row"


def test_data_of_a_filtered_table_is_named(tmp_path: Path) -> None:
    found = case(tmp_path, two_tables(lands=True), rules=without(["!shop.t"]))
    path = found.sink.path("shop/t/10/2026-01-31/CDC0")
    assert found.error() == f"shop.t: the source has no such table, but {path} exists"


def test_a_database_of_which_nothing_is_kept_has_no_file(tmp_path: Path) -> None:
    history = History().ddl(10, create_database(100, "shop", "create database shop"), lands=False)
    history.ddl(11, create_database(101, "other", "create database other")).ddl(
        12, create_table(T, "create table t"), False
    )
    found = case(tmp_path, history, rules=without(["!shop.*"]))
    found.verify()
    found.sink.execute(10, DdlEvent.from_json(history.events[0]["ddl"]))
    assert found.error().startswith("shop: the source has no version 10, but shop/meta/schema_10_")


def test_a_rename_is_judged_by_the_name_before(tmp_path: Path) -> None:
    gone, tmp = replace(named(T, "log"), kept=False), named(A, "log2")
    history = History().rows(T, 3, 5).ddl(10, rename_table(T, gone))
    history.rows(gone, 10, 11, lands=False)
    history.ddl(20, rename_tables([(A, tmp), (tmp, named(A, "c"))])).rows(named(A, "c"), 20, 21)
    assert case(tmp_path, history, rules=without(["!shop.log*"])).verify().rows == 2


def test_only_the_kept_pieces_of_a_ddl_of_several_tables_are_written(tmp_path: Path) -> None:
    pieces = [(T, "create table t (id int)"), (A, "create table a (id int)")]
    rules = without(["!shop.t"])
    found = case(
        tmp_path, History().ddl(10, create_tables(pieces), lands=False).rows(A, 10, 11, lands=False), rules=rules
    )
    whole = create_tables(pieces[1:])
    assert whole is not None
    found.sink.execute(10, whole)
    found.sink.append(History().rows(A, 10, 11).events[0])
    found.sink.flush()
    assert found.verify().rows == 1


@pytest.mark.parametrize(
    ("rules", "actions"),
    [
        (ignoring("all ddl"), (10, 20, 22)),
        (ignoring("create table", "drop table"), (10, 22)),
        (ignoring("alter table"), (20,)),
        (ignoring("create index", matcher="*.*"), (20,)),
        (ignoring(sql=("^create", "(?i)INDEX")), (10, 20)),
        (ignoring("all ddl", matcher="shop.x"), ()),
    ],
)
def test_what_an_event_filter_ignores_writes_no_file(tmp_path: Path, rules: Rules, actions: tuple[int, ...]) -> None:
    history = two_tables(lands=True)
    history.left_out |= {event["seq"] for event in history.events if event["commit_ts"] in actions}
    found = case(tmp_path, history, rules=rules)
    assert found.verify().rows == 4
    for event in (event for event in history.events if event["seq"] in history.left_out):
        found.sink.execute(event["commit_ts"], DdlEvent.from_json(event["ddl"]))
        assert found.error()


def test_what_is_not_for_the_sink_writes_no_file(tmp_path: Path) -> None:
    create = create_table(T, "create table t (id int)")
    assert create is not None
    history = History().rows(T, 3, 5)
    history.ddl(10, replace(create, type=16), lands=False).ddl(12, replace(create, not_sync=True))
    found = case(tmp_path, history)
    found.verify()
    found.sink.execute(12, create)
    assert found.error().startswith("shop.t: the source has no version 12, but shop/t/meta/schema_12_")


def test_every_ddl_has_a_name_that_event_filters_know() -> None:
    named_events = {name: event_names(code) for name, code in ACTIONS.items()}
    assert all(names - {"all"} <= DDL_EVENTS for names in named_events.values())
    assert all(len(names - {"all", "all ddl", "alter table"}) >= 1 for names in named_events.values())


# A changefeed.


def micro_batches(history: History, at_ddls: bool) -> list[list[dict[str, Any]]]:
    """The events, cut behind every DDL or behind every event, with the resolved mark that may follow."""
    ends = [n for n, event in enumerate(history.events, start=1) if event["kind"] == DDL or not at_ddls]
    cuts = sorted({0, *ends, len(history.events)})
    batches = [history.events[low:high] for low, high in pairwise(cuts)]
    later = [min((event["commit_ts"] for event in history.events[high:]), default=1000) - 1 for high in cuts[1:]]
    return [[*batch, resolved_row(ts)] for batch, ts in zip(batches, later, strict=True)]


def landed(history: History, folder: Path, at_ddls: bool, **given: Any) -> Case:
    """What a changefeed makes of a history."""
    sink, clock = PerfectSink(settings(**given)), FakeClock()
    changefeed = open_changefeed(sink.store, folder / "spool", clock, **given)
    layouts = [layout_row(layout) for layout in LAYOUTS.values()]
    for number, events in enumerate(micro_batches(history, at_ddls)):
        feed(changefeed, number, [*layouts, *events], str(number))
        clock.advance(5.0)
        while changefeed.landing.land_next():
            pass
    changefeed.life.fail(TidegateError("the test is over"))
    changefeed.close()
    sink.put(METADATA, metadata_text(history.events[-1]["commit_ts"]))
    return Case(history.write(folder / "events"), sink)


SPLIT = {"across_nodes": True, "split_spans": 3, "csv": CsvOptions(include_commit_ts=True)}


@pytest.mark.parametrize("history", HISTORIES, ids=lambda each: each.__name__)
@pytest.mark.parametrize(
    "given",
    [{}, {"table_id_as_path": True}, {"rules": ROUTED}, SPLIT, SPLIT | {"table_id_as_path": True}],
    ids=["names", "ids", "routed", "split", "split-ids"],
)
@pytest.mark.parametrize("at_ddls", [True, False], ids=["coarse", "fine"])
def test_what_a_changefeed_makes_of_ddls_passes(
    tmp_path: Path, history: Callable[[], History], given: dict[str, Any], at_ddls: bool
) -> None:
    past = history()
    assert landed(past, tmp_path, at_ddls, **given).verify().rows == sum(row["kind"] != DDL for row in past.events)


@pytest.mark.parametrize("given", [{}, {"table_id_as_path": True}, SPLIT], ids=["names", "ids", "split"])
@pytest.mark.parametrize("limit_bytes", [9000, 1 << 30])
def test_a_workload_with_ddls_passes(tmp_path: Path, given: dict[str, Any], limit_bytes: int) -> None:
    kinds = "rename|truncate|drop-create|add-column|add-index|create-view|alter-database|create-database"
    uri = f"workload://sysbench?tables=4&rows=40&events=600&txn-rows=4&batch=4500&ddl=every:200ms,kinds={kinds}"
    source, store, clock = open_source(uri), MemoryStore(), FakeClock()
    changefeed = open_changefeed(store, tmp_path, clock, **given)
    start, end = source.initial(), source.latest(source.initial(), limit_bytes, frozenset())
    while start != end:
        batches = [batch for split in source.splits(start, end, 1) for batch in source.read(split)]
        feed(changefeed, int(end["at"]), [row for batch in batches for row in batch.to_pylist()], json.dumps(end))
        clock.advance(5.0)
        while changefeed.landing.land_next():
            pass
        start, end = end, source.latest(end, limit_bytes, frozenset())
    changefeed.scribe.write_progress()
    changefeed.life.fail(TidegateError("the test is over"))
    changefeed.close()
    report = verify(uri, tiny_settings(tmp_path, **given), store)
    assert (report.rows, report.rows_beyond_checkpoint) == (600, 0)
    ddl_files = [path for path, data in store.objects.items() if "/schema_" in path and b'"Query": ""' not in data]
    assert len(ddl_files) > 20
    del store.objects[ddl_files[7]]
    with pytest.raises(VerifyError, match=f"schema file {ddl_files[7]} of the DDL at commit-ts .* is missing"):
        verify(uri, tiny_settings(tmp_path, **given), store)


def test_the_dispatchers_of_a_split_table_are_streams_of_their_own(tmp_path: Path) -> None:
    history = History().rows(T, 3, *range(5, 45))
    found = landed(history, tmp_path, True, **SPLIT)
    report = found.verify()
    assert (report.tables, report.files, report.rows) == (1, 3, 40)
    one, other, _ = sorted(path for path in found.sink.store.objects if "/CDC_" in path and "meta" not in path)
    objects = found.sink.store.objects
    objects[one], objects[other] = objects[other], objects[one]
    dispatcher = one.rpartition("/")[2].split("_")[1]
    assert re.match(rf"shop.t dispatcher \d+: row 1 is altered: row 1 of shop/t/3/{DATE}/CDC_", found.error())
    assert dispatcher in {key.dispatcher for key in survey(found.sink.store, found.sink.settings.paths).tables}
