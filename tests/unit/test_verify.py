"""`verify` passes a right sink and names table and position of whatever is wrong in another."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tidegate.engine.store import FileStore, NoopStore
from tidegate.errors import BadSetting, VerifyError
from tidegate.events import EVENTS, INSERT, LAYOUT, RESOLVED, ROW_KINDS, tso
from tidegate.format import csv
from tidegate.format.layout import METADATA, DataKey, data_path, index_path, index_text, metadata_text, schema_path
from tidegate.format.tables import Column, Layout, schema_checksum, schema_file_text
from tidegate.reader.replay import Pieces, survey
from tidegate.settings import Settings, load_settings
from tidegate.sources import Source, open_source
from tidegate.sources.parquet import write_events
from tidegate.verify import path_options, verify

# 60 rows a table, in steps of 5 transactions of 4 rows; c and pad make every row different.
FINITE = "workload://sysbench?tables=3&rows=40&events=180&txn-rows=4&batch=4500"
ENDLESS = "workload://sysbench?tables=3&rows=40&txn-rows=4&batch=4500&mix=1:2:1"
DATE = "2026-01-31"
FILE_ROWS = 17

Rows = list[bytes]


class RangedStore(FileStore):
    """As an object store does it: reads a part of an object."""

    def get_range(self, path: str, offset: int, length: int) -> bytes | None:
        with open(self._path(path), "rb") as file:
            file.seek(offset)
            return file.read(length)


@dataclass
class Table:
    """The rows of one version of a table as a changefeed would write them."""

    key: DataKey
    columns: Layout
    rows: Rows = field(default_factory=list)
    ts: list[int] = field(default_factory=list)


@dataclass
class Sink:
    """A sink under construction: change `files` (rows of each data file), then write and verify it."""

    root: Path
    source: str
    settings: Settings
    tables: list[Table]
    checkpoint_ts: int
    store: FileStore = field(init=False)
    files: dict[str, Rows] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.store = FileStore(self.root)
        self.store.prepare()
        self.options = path_options(self.settings)
        self.put(METADATA, metadata_text(self.checkpoint_ts))
        for table in self.tables:
            self._put_table(table)

    def _put_table(self, table: Table) -> None:
        key, columns = table.key, table.columns
        checksum = schema_checksum(key.schema, key.table, columns)
        self.put(
            schema_path(key.schema, key.table, key.version, checksum, self.options, key.table_id),
            schema_file_text(key.schema, key.table, key.version, columns),
        )
        parts = [table.rows[i : i + FILE_ROWS] for i in range(0, len(table.rows), FILE_ROWS)]
        for number, part in enumerate(parts, start=1):
            self.write(data_path(key, number, self.options), part, csv.header(columns, self.settings.csv))
        if parts:
            self.put(index_path(key, self.options), index_text(key, len(parts), self.options))

    def write(self, path: str, rows: Rows, header: bytes = b"") -> None:
        self.files[path] = rows
        self.put(path, header + b"".join(rows))

    def put(self, path: str, data: bytes | str) -> None:
        self.store.put(path, data.encode() if isinstance(data, str) else data)

    def path(self, table: int, number: int) -> str:
        return data_path(self.tables[table].key, number, self.options)

    def change(self, table: int, number: int, change: Callable[[Rows], Rows]) -> None:
        path = self.path(table, number)
        self.write(path, change(list(self.files[path])))

    def verify(self):  # type: ignore[no-untyped-def]
        return verify(self.source, self.settings, self.store)

    def error(self) -> str:
        with pytest.raises(VerifyError) as caught:
            self.verify()
        return str(caught.value)


def events(source: Source, limit: int) -> Iterator[pa.RecordBatch]:
    """What the source hands out in one micro-batch."""
    start = source.initial()
    for split in source.splits(start, source.latest(start, limit, frozenset()), 1):
        yield from source.read(split)


def encoded(uri: str, settings: Settings, limit: int) -> tuple[list[Table], int]:
    """The tables of a source row by row, and its resolved mark."""
    tables: dict[tuple[int, int], Table] = {}
    layouts: dict[int, Layout] = {}
    resolved = 0
    for batch in events(open_source(uri), limit):
        for i, event in enumerate(batch.to_pylist()):
            if event["kind"] == LAYOUT:
                layouts[event["layout"]] = Layout.from_json(event["ddl"])
            elif event["kind"] == RESOLVED:
                resolved = max(resolved, event["commit_ts"])
            elif event["kind"] in ROW_KINDS:
                columns = layouts[event["layout"]]
                key = _key(event, settings)
                table = tables.setdefault((event["table_id"], key.version), Table(key, columns))
                line = csv.encode(batch.slice(i, 1), np.array([0]), columns, settings.csv)
                table.rows.append(line[0].as_py())
                table.ts.append(event["commit_ts"])
    return list(tables.values()), resolved


def _key(event: dict[str, object], settings: Settings) -> DataKey:
    schema, table, version, table_id = (
        event[name] for name in ("schema_name", "table_name", "table_version", "table_id")
    )
    date = DATE if settings.date_separator == "day" else ""
    return DataKey(schema, table, version, table_id, table_id != event["logical_table_id"], date)  # type: ignore[arg-type]


def build(root: Path, uri: str = FINITE, limit: int = 1 << 30, **options: object) -> Sink:
    """A right sink, with the checkpoint at the source's resolved mark."""
    settings = load_settings(f"file://{root}", None, options)
    tables, resolved = encoded(uri, settings, limit)
    return Sink(root, uri, settings, tables, resolved)


@pytest.fixture
def sink(tmp_path: Path) -> Sink:
    return build(tmp_path)


def altered(row: bytes, at: int = -8) -> bytes:
    changed = bytearray(row)
    changed[at] ^= 1
    return bytes(changed)


# What passes.


def test_a_right_sink_passes_and_is_counted(sink: Sink) -> None:
    report = sink.verify()
    assert (report.tables, report.files, report.rows) == (3, 12, 180)
    assert report.bytes == sum(len(row) for table in sink.tables for row in table.rows)
    assert (report.checkpoint_ts, report.rows_beyond_checkpoint) == (sink.checkpoint_ts, 0)


def test_an_endless_workload_is_replayed_only_as_far_as_needed(tmp_path: Path) -> None:
    report = build(tmp_path, ENDLESS, limit=60_000).verify()
    assert report.rows == sum(len(table.rows) for table in build(tmp_path / "again", ENDLESS, limit=60_000).tables)


def test_a_rate_does_not_slow_the_replay_down(tmp_path: Path) -> None:
    uri = f"{FINITE}&rate=1"
    sink = build(tmp_path)
    tables, resolved = _at_once(uri, sink.settings)
    assert Sink(tmp_path / "rate", uri, sink.settings, tables, resolved).verify().rows == 180


def _at_once(uri: str, settings: Settings) -> tuple[list[Table], int]:
    """The rows of a workload with a rate, by their offset, which does not wait for the clock."""
    source = open_source(uri)
    batches = [
        batch for split in source.splits(source.initial(), {"at": 3}, 1) for batch in source.read(split)
    ]  # three steps of 20 rows
    tables: dict[int, Table] = {}
    resolved = 0
    for batch in batches:
        for i, event in enumerate(batch.to_pylist()):
            if event["kind"] in ROW_KINDS:
                columns = _sysbench_layout()
                table = tables.setdefault(event["table_id"], Table(_key(event, settings), columns))
                table.rows.append(csv.encode(batch.slice(i, 1), np.array([0]), columns, settings.csv)[0].as_py())
            elif event["kind"] == RESOLVED:
                resolved = event["commit_ts"]
    return list(tables.values()), resolved
