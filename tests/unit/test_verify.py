"""`verify` passes a right sink and names table and position of whatever is wrong in another."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tidegate.config.settings import Settings, load_settings
from tidegate.errors import BadEvents, BadSetting, VerifyError
from tidegate.events import EVENTS, INSERT, LAYOUT, RESOLVED
from tidegate.format.encode import csv
from tidegate.format.layout import METADATA, DataKey, data_path, index_path, index_text, metadata_text, schema_path
from tidegate.format.tables import Column, Layout, schema_checksum, schema_file_text
from tidegate.reader.replay import TableKey, read_piece, survey
from tidegate.sources import Offset, open_source
from tidegate.sources.parquet import write_events
from tidegate.storage.files import FileStore
from tidegate.storage.store import NoopStore, Store
from tidegate.tools.verify import Report, verify

# Three tables in steps of 20 rows, five transactions each: 60 rows a table, all different; files of 17 rows.
FINITE = "workload://sysbench?tables=3&rows=40&events=180&txn-rows=4&batch=4500"
ENDLESS = "workload://sysbench?tables=3&rows=40&txn-rows=4&batch=4500&mix=1:2:1"
WHOLE = {"at": 3}
DATE = "2026-01-31"
HEADER: dict[str, Any] = {"csv.output_field_header": True}
FILE_ROWS = 17

Rows = list[bytes]


@dataclass
class Table:
    """The rows of one version of a table as a changefeed would write them."""

    key: DataKey
    layout: Layout
    rows: Rows = field(default_factory=list)


@dataclass
class Sink:
    """A right sink; tests then change the rows of single files, or put and delete objects."""

    root: Path
    source: str
    settings: Settings
    tables: list[Table]
    checkpoint_ts: int
    files: dict[str, Rows] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.store = FileStore(self.root)
        self.store.prepare()
        self.options = self.settings.paths
        self.put(METADATA, metadata_text(self.checkpoint_ts))
        for table in self.tables:
            self.put(self.schema_path(table), schema_file_text(*_names(table), table.key.version, table.layout))
            parts = [table.rows[i : i + FILE_ROWS] for i in range(0, len(table.rows), FILE_ROWS)]
            for number, part in enumerate(parts, start=1):
                self.write(table, number, part)
            self.put(index_path(table.key, self.options), index_text(table.key, len(parts), self.options))

    def schema_path(self, table: Table) -> str:
        checksum = schema_checksum(*_names(table), table.layout)
        return schema_path(*_names(table), table.key.version, checksum, self.options, table.key.table_id)

    def write(self, table: Table, number: int, rows: Rows) -> None:
        path = data_path(table.key, number, self.options)
        self.files[path] = rows
        self.put(path, csv.header(table.layout, self.settings.csv) + b"".join(rows))

    def put(self, path: str, data: bytes | str) -> None:
        self.store.put(path, data.encode() if isinstance(data, str) else data)

    def path(self, number: int, table: int = 1) -> str:
        return data_path(self.tables[table].key, number, self.options)

    def change(self, number: int, change: Callable[[Rows], Rows], table: int = 1) -> None:
        """Change the rows of a data file of `sbtest2`, or of another table."""
        self.write(self.tables[table], number, change(list(self.files[self.path(number, table)])))

    def verify(self, store: Store | None = None) -> Report:
        return verify(self.source, self.settings, store or self.store)

    def error(self) -> str:
        with pytest.raises(VerifyError) as caught:
            self.verify()
        return str(caught.value)


def _names(table: Table) -> tuple[str, str]:
    return table.key.schema, table.key.table


def handed_out(uri: str, end: Offset | None) -> Iterator[pa.RecordBatch]:
    """The events up to an offset; without one, up to the end."""
    source = open_source(uri)
    start = source.initial()
    for split in source.splits(start, end or source.latest(start, 1 << 40, frozenset()), 1):
        yield from source.read(split)


@cache
def landed(uri: str, end: str, options: csv.CsvOptions, date: str) -> tuple[list[Table], int]:
    """Every table's rows up to an offset (in JSON), encoded one by one, and the last resolved mark."""
    tables: dict[DataKey, Table] = {}
    layouts: dict[int, Layout] = {}
    resolved = 0
    for batch in handed_out(uri, json.loads(end)):
        for i, event in enumerate(batch.to_pylist()):
            if event["kind"] == LAYOUT:
                layouts[event["layout"]] = Layout.from_json(event["ddl"])
            elif event["kind"] == RESOLVED:
                resolved = event["commit_ts"]
            else:
                key = _key(event, date)
                table = tables.setdefault(key, Table(key, layouts[event["layout"]]))
                table.rows += csv.encode(batch.slice(i, 1), np.array([0]), table.layout, options).to_pylist()
    return list(tables.values()), resolved


def _key(event: dict[str, Any], date: str) -> DataKey:
    table_id, is_partition = event["table_id"], event["table_id"] != event["logical_table_id"]
    return DataKey(event["schema_name"], event["table_name"], event["table_version"], table_id, is_partition, date)


def build(root: Path, uri: str = FINITE, end: Offset | None = None, **options: Any) -> Sink:
    """A right sink of all events up to an offset, with the checkpoint at their resolved mark."""
    settings = load_settings(f"file://{root}", None, options)
    date = DATE if settings.date_separator == "day" else ""
    tables, resolved = landed(uri, json.dumps(end), settings.csv, date)
    return Sink(root, uri, settings, list(tables), resolved)


@pytest.fixture
def sink(tmp_path: Path) -> Sink:
    return build(tmp_path)


def altered(row: bytes, at: int = -8) -> bytes:
    return bytes(byte ^ (i == at % len(row)) for i, byte in enumerate(row))


# What passes.


def test_a_right_sink_passes_and_is_counted(sink: Sink) -> None:
    report = sink.verify()
    assert (report.tables, report.files, report.rows) == (3, 12, 180)
    assert report.bytes == sum(len(row) for rows in sink.files.values() for row in rows)
    assert (report.checkpoint_ts, report.rows_beyond_checkpoint) == (sink.checkpoint_ts, 0)


def test_an_endless_workload_is_replayed_only_as_far_as_the_sink_reaches(tmp_path: Path) -> None:
    report = build(tmp_path, ENDLESS, {"at": 4}).verify()
    assert (report.rows, report.rows_beyond_checkpoint) == (3 * 80, 0)


def test_rows_beyond_the_checkpoint_may_stand_there_if_they_match(tmp_path: Path) -> None:
    sink = build(tmp_path, ENDLESS, {"at": 3, "table": 2})
    report = sink.verify()
    assert (report.rows, report.rows_beyond_checkpoint) == (3 * 60 + 2 * 20, 2 * 20)
    sink.change(4, lambda rows: [*rows[:-1], altered(rows[-1])], table=0)
    assert "sbtest.sbtest1: row 68 is altered" in sink.error()


def test_a_table_that_was_held_back_ends_earlier_than_the_others(tmp_path: Path) -> None:
    report = build(tmp_path, ENDLESS, {"at": 5, "held": {"102": 2}}).verify()
    assert (report.rows, report.rows_beyond_checkpoint) == (100 + 40 + 100, 2 * 60)


def test_a_rate_does_not_slow_the_replay_down(tmp_path: Path) -> None:
    assert build(tmp_path, f"{FINITE}&rate=1", WHOLE).verify().rows == 180


def test_a_sink_without_any_change_yet_passes_at_the_first_resolved_mark(tmp_path: Path) -> None:
    sink = build(tmp_path)
    empty = Sink(tmp_path / "empty", FINITE, sink.settings, [], 5)
    assert empty.verify().rows == 0


@pytest.mark.parametrize(
    "options",
    [
        {"date_separator": "none"},
        {"use_table_id_as_path": True},
        {"csv.output_field_header": True},
        {"csv.include_commit_ts": True, "csv.output_old_value": True},
        {"csv.quote": "", "csv.delimiter": "|+|", "terminator": "\n"},
        {"file_index_digit": 6},
    ],
    ids=str,
)
def test_every_option_of_paths_and_rows_is_followed(tmp_path: Path, options: dict[str, object]) -> None:
    sink = build(tmp_path, ENDLESS, {"at": 4}, **options)
    assert sink.verify().rows == 240
    sink.change(2, lambda rows: [*rows[:3], altered(rows[3]), *rows[4:]])
    assert "sbtest.sbtest2: row 21 is altered: row 4 of" in sink.error()


def test_the_tool_says_how_far_it_is(sink: Sink) -> None:
    said: list[str] = []
    verify(sink.source, sink.settings, sink.store, said.append)
    assert said[0] == "listing the sink"


# Rows that differ: table, row in the table, row and byte in the file.


def test_a_dropped_row_is_named(sink: Sink) -> None:
    at = len(b"".join(sink.files[sink.path(2)][:4]))
    sink.change(2, lambda rows: rows[:4] + rows[5:])
    error = sink.error()
    assert error.startswith("sbtest.sbtest2: 1 row is dropped from row 22 on (`")
    assert error.endswith(f"before row 5 of {sink.path(2)} (byte {at})")


def test_several_dropped_rows_are_counted(sink: Sink) -> None:
    sink.change(2, lambda rows: rows[3:])
    assert "sbtest.sbtest2: 3 rows are dropped from row 18 on" in sink.error()


def test_the_last_row_of_a_file_dropped_shows_at_the_start_of_the_next(sink: Sink) -> None:
    sink.change(1, lambda rows: rows[:-1])
    assert re.search(rf"1 row is dropped from row 17 on .* before row 1 of {sink.path(2)} \(byte 0\)", sink.error())


def test_a_row_dropped_between_two_batches_of_the_source_is_still_called_dropped(tmp_path: Path) -> None:
    sink = parquet_sink(tmp_path, [[plain(i)] for i in range(1, 9)])
    sink.change(1, lambda rows: rows[:3] + rows[5:], table=0)
    assert "shop.orders: 2 rows are dropped from row 4 on" in sink.error()


def test_a_doubled_row_is_named(sink: Sink) -> None:
    sink.change(2, lambda rows: [*rows[:5], rows[4], *rows[5:]])
    error = sink.error()
    assert error.startswith(f"sbtest.sbtest2: row 22 is doubled: it is again at row 6 of {sink.path(2)} (byte ")
    assert error.endswith("where row 23 should be")


def test_a_doubled_chunk_is_named_by_its_first_row(sink: Sink) -> None:
    sink.change(2, lambda rows: [*rows[:8], *rows[3:8], *rows[8:]])
    assert "sbtest.sbtest2: row 21 is doubled: it is again at row 9 of" in sink.error()


def test_a_file_landed_twice_is_doubled(sink: Sink) -> None:
    key = sink.tables[1].key
    sink.write(sink.tables[1], 5, sink.files[sink.path(4)])
    sink.put(index_path(key, sink.options), index_text(key, 5, sink.options))
    error = sink.error()
    assert f"a row is doubled: the one at byte 0 of {sink.path(4)} is again at row 1 of {sink.path(5)}" in error
    assert "no row after row 60" in error


def test_the_last_row_doubled_at_the_end_of_the_source_is_found(sink: Sink) -> None:
    sink.change(4, lambda rows: [*rows, rows[-1]])
    assert f"is again at row 10 of {sink.path(4)}" in sink.error()


def test_the_last_row_doubled_before_an_endless_source_goes_on_is_found(tmp_path: Path) -> None:
    sink = build(tmp_path, ENDLESS, {"at": 4})
    sink.change(5, lambda rows: [*rows, rows[-1]])
    assert f"row 80 is doubled: it is again at row 13 of {sink.path(5)}" in sink.error()


@pytest.mark.parametrize(("first", "second"), [(4, 5), (2, 9)])
def test_swapped_rows_are_named(sink: Sink, first: int, second: int) -> None:
    def swap(rows: Rows) -> Rows:
        rows[first], rows[second] = rows[second], rows[first]
        return rows

    sink.change(2, swap)
    error = f"sbtest.sbtest2: rows {18 + first} and {18 + second} are swapped, at row {first + 1} of {sink.path(2)}"
    assert sink.error().startswith(error)


def test_one_altered_byte_is_shown_with_what_should_stand_there(sink: Sink) -> None:
    row = sink.files[sink.path(3)][7]
    sink.change(3, lambda rows: [*rows[:7], altered(row), *rows[8:]])
    error = sink.error()
    assert error.startswith(f"sbtest.sbtest2: row 42 is altered: row 8 of {sink.path(3)} (byte ")
    was, should = (text[-30:].decode().replace("\r\n", "\\r\\n") for text in (altered(row), row))
    assert f"{was}`, the source says" in error
    assert error.endswith(f"{should}`")


def test_rows_of_another_table_are_altered_rows(sink: Sink) -> None:
    sink.write(sink.tables[1], 1, sink.files[sink.path(1, table=0)])
    assert "sbtest.sbtest2: row 1 is altered" in sink.error()


def test_a_row_too_many_is_shown(sink: Sink) -> None:
    sink.change(4, lambda rows: [*rows, altered(rows[-1])])
    assert "sbtest.sbtest2: a row too many, `" in sink.error()


def test_rows_must_not_be_cut_by_the_end_of_a_file(sink: Sink) -> None:
    head, tail = sink.files[sink.path(2)][0][:50], sink.files[sink.path(2)][0][50:]
    sink.change(1, lambda rows: [*rows, head])
    sink.change(2, lambda rows: [tail, *rows[1:]])
    assert sink.error() == f"sbtest.sbtest2: row 18 is cut by the end of {sink.path(1)}"


def test_a_truncated_last_file_misses_what_the_checkpoint_promises(sink: Sink) -> None:
    sink.change(4, lambda rows: rows[:-2])
    error = sink.error()
    assert error.startswith("sbtest.sbtest2: row 59 (commit-ts ")
    assert f"the data files end after 58 rows, although the checkpoint is {sink.checkpoint_ts}" in error


def test_a_table_without_files_misses_its_first_row(sink: Sink) -> None:
    for path, _ in list(sink.store.list("sbtest/sbtest3")):
        sink.store.delete(path)
    assert sink.error().startswith("sbtest.sbtest3: row 1 (commit-ts ")


# Files that differ.


def test_a_missing_data_file_is_named(sink: Sink) -> None:
    sink.store.delete(sink.path(4))
    assert sink.error().startswith(f"sbtest.sbtest2: {sink.path(4)} is missing")


def test_a_gap_between_data_files_is_named(sink: Sink) -> None:
    sink.store.delete(sink.path(2))
    assert sink.error().startswith(f"sbtest.sbtest2: {sink.path(2)} is missing")


def test_a_stale_index_leaves_a_data_file_beyond_it(sink: Sink) -> None:
    key = sink.tables[1].key
    sink.put(index_path(key, sink.options), index_text(key, 3, sink.options))
    assert sink.error() == f"sbtest.sbtest2: {sink.path(4)} is beyond the index, which ends at data file 3"


def test_data_files_without_an_index_are_named(sink: Sink) -> None:
    sink.store.delete(index_path(sink.tables[1].key, sink.options))
    assert sink.error().startswith(f"sbtest.sbtest2: {sink.path(1)} has no index")


def test_an_index_without_data_files_is_named(sink: Sink) -> None:
    key = sink.tables[1].key._replace(date="2026-02-01")
    sink.put(index_path(key, sink.options), index_text(key, 1, sink.options))
    assert "has no data file in its directory" in sink.error()


@pytest.mark.parametrize("text", ["", "CDC4.csv\n", "CDC00000000000000000004.csv", "CDC000004.csv\n", "\xff"])
def test_an_index_of_another_text_is_named(sink: Sink, text: str) -> None:
    path = index_path(sink.tables[1].key, sink.options)
    sink.put(path, text)
    assert sink.error().startswith(f"sbtest.sbtest2: {path} says ")


def test_an_empty_data_file_is_named(sink: Sink) -> None:
    sink.change(2, lambda rows: [])
    assert sink.error().startswith(f"sbtest.sbtest2: {sink.path(2)} is empty")


def test_a_data_file_with_nothing_but_its_header_is_named(tmp_path: Path) -> None:
    sink = build(tmp_path, **HEADER)
    sink.change(2, lambda rows: [])
    assert sink.error() == f"sbtest.sbtest2: {sink.path(2)} holds no row after its header"


def test_a_wrong_header_is_named(tmp_path: Path) -> None:
    sink = build(tmp_path, **HEADER)
    sink.put(sink.path(2), b"".join(sink.files[sink.path(2)]))
    assert sink.error().startswith(f"sbtest.sbtest2: {sink.path(2)} does not begin with the header `ticdc-meta")


def test_a_missing_schema_file_is_named(sink: Sink) -> None:
    sink.store.delete(sink.schema_path(sink.tables[1]))
    assert sink.error().startswith(f"sbtest.sbtest2: version {sink.tables[1].key.version} has no schema file")


def test_a_schema_file_of_other_columns_is_named(sink: Sink) -> None:
    path = sink.schema_path(sink.tables[1])
    sink.put(path, schema_file_text("sbtest", "sbtest2", sink.tables[1].key.version, Layout((Column("id", "int"),))))
    assert sink.error() == f"sbtest.sbtest2: schema file {path} does not describe the source's columns"


def test_a_schema_file_with_another_checksum_is_named(sink: Sink) -> None:
    path = f"sbtest/sbtest2/meta/schema_{sink.tables[1].key.version}_0000000001.json"
    sink.put(path, b"{}")
    assert sink.error().startswith(f"sbtest.sbtest2: schema file {path} has a wrong checksum")


def test_a_schema_file_of_a_version_that_the_source_does_not_know_is_named(sink: Sink) -> None:
    sink.put("sbtest/sbtest2/meta/schema_7_0000000001.json", b"{}")
    assert sink.error().startswith("sbtest.sbtest2: the source has no version 7")


def test_the_schema_file_of_a_database_that_no_ddl_made_is_named(sink: Sink) -> None:
    path = schema_path("sbtest", "", 7, schema_checksum("sbtest", "", None), sink.options)
    sink.put(path, schema_file_text("sbtest", "", 7, None))
    assert sink.error() == f"sbtest: the source has no version 7, but {path} is there: no DDL wrote it, and no row"


@pytest.mark.parametrize(
    "path",
    [
        "notes.txt",
        "sbtest/sbtest2/CDC00000000000000000001.csv",
        "{dir}/CDC00000000000000000001.csv.tmp.4711",
        "{dir}/CDC00000000000000000000.csv",
        "{dir}/CDC_77_00000000000000000001.csv",
        "{dir}/CDC00000000000000000005.json",
        "{dir}/meta/CDC_77.index",
        "sbtest/sbtest2/meta/schema_7_1.json",
    ],
)
def test_a_stray_file_is_named(sink: Sink, path: str) -> None:
    path = path.format(dir=sink.path(1).rpartition("/")[0])
    sink.put(path, b"x")
    assert sink.error().startswith(f"{path} is a ")


def test_what_the_changefeed_keeps_for_itself_is_left_alone_also_what_a_killed_process_left(sink: Sink) -> None:
    sink.put("_tidegate/journal/00000000000000000001.entry", b"x")
    sink.put("_tidegate/tmp/0123456789abcdef", b"x")
    sink.put(f"{sink.path(1).rpartition('/')[0]}/meta/CDC.index.tmp.tidegate", b"x")
    sink.put("metadata.tmp.tidegate", b"x")
    assert sink.verify().rows == 180


@pytest.mark.parametrize("uri", [FINITE, ENDLESS])
def test_data_of_a_table_that_the_source_does_not_know_is_named(tmp_path: Path, uri: str) -> None:
    sink = build(tmp_path, uri, WHOLE)
    key = sink.tables[0].key._replace(table="sbtest4")
    stranger = Table(key, sink.tables[0].layout, sink.tables[0].rows)
    strange = Sink(sink.root, uri, sink.settings, [stranger], sink.checkpoint_ts)
    sink.store.delete(strange.schema_path(stranger))
    path = data_path(key, 1, sink.options)
    assert sink.error() == f"sbtest.sbtest4: the source has no such table, but {path} exists"


# The checkpoint.


def test_a_sink_without_metadata_has_no_checkpoint(sink: Sink) -> None:
    sink.store.delete(METADATA)
    assert "has no `metadata` file" in sink.error()
    with pytest.raises(VerifyError, match="has no `metadata` file"):
        sink.verify(NoopStore())


@pytest.mark.parametrize("text", [b"", b"{}", b"\xff", b'{"checkpoint-ts":-1}'])
def test_metadata_that_cannot_be_read_is_refused(sink: Sink, text: bytes) -> None:
    sink.put(METADATA, text)
    assert "`metadata` says" in sink.error()


def test_a_checkpoint_beyond_the_end_of_the_source_is_named(sink: Sink) -> None:
    sink.put(METADATA, metadata_text(sink.checkpoint_ts + 1))
    error = f"`metadata` says checkpoint {sink.checkpoint_ts + 1}, but the source ends at {sink.checkpoint_ts}"
    assert sink.error() == error


def test_a_checkpoint_ahead_of_what_has_landed_is_found(tmp_path: Path) -> None:
    sink = build(tmp_path, ENDLESS, {"at": 4})
    sink.put(METADATA, metadata_text(2 * sink.checkpoint_ts))
    assert sink.error().startswith("sbtest.sbtest1: row 81 (commit-ts ")


# Sources with more than one layout, version or partition.

NARROW = Layout((Column("id", "int", pk=True), Column("name", "varchar", flen=20)))
WIDE = Layout((*NARROW.columns, Column("note", "varchar", flen=20)))


def plain(
    ts: int, name: str = "orders", version: int = 5, layout: Layout = NARROW, ids: tuple[int, int] = (7, 7)
) -> dict[str, Any]:
    values = [b"%d" % ts, b'a "name"\r\n', None][: len(layout.columns)]
    names = {"schema_name": "shop", "table_name": name, "table_id": ids[0], "logical_table_id": ids[1]}
    return names | {
        "kind": INSERT,
        "table_version": version,
        "commit_ts": ts,
        "seq": ts,
        "layout": layout.fingerprint,
        "after": values,
    }


def parquet_sink(root: Path, groups: list[list[dict[str, Any]]], **options: Any) -> Sink:
    marks = [
        {"kind": LAYOUT, "commit_ts": 0, "seq": 0, "layout": layout.fingerprint, "ddl": layout.to_json()}
        for layout in (NARROW, WIDE)
    ]
    batches = [pa.RecordBatch.from_pylist(group, schema=EVENTS) for group in (marks, *groups)]
    write_events(root / "events", batches, 1000)
    return build(root / "sink", f"parquet:{root / 'events'}", **options)


def two_versions(root: Path, **options: Any) -> Sink:
    """Three rows of version 5, then three of version 9 with a column more, all in one batch."""
    old, new = [plain(i) for i in (1, 2, 3)], [plain(i, version=9, layout=WIDE) for i in (4, 5, 6)]
    other = [plain(2, "items", 3, WIDE, (8, 8)), plain(5, "items", 6, NARROW, (8, 8))]
    return parquet_sink(root, [old + new + other], **options)


def test_versions_of_a_table_follow_each_other(tmp_path: Path) -> None:
    report = two_versions(tmp_path).verify()
    assert (report.tables, report.files, report.rows) == (2, 4, 8)


def test_a_row_in_the_directory_of_another_version_is_found(tmp_path: Path) -> None:
    sink = two_versions(tmp_path)
    sink.change(1, lambda rows: rows[:-1], table=0)
    assert "shop.orders: row 3 of version 5 is dropped" in sink.error()
    sink.change(1, lambda rows: [*rows, sink.tables[0].rows[2], sink.tables[1].rows[0]], table=0)
    sink.change(1, lambda rows: rows[1:], table=1)
    here = f"at row 4 of {sink.path(1, table=0)} (byte "
    error = sink.error()
    assert error.startswith(f"shop.orders: row 4 (commit-ts 4) is before its version, {here}")
    assert error.endswith("under version 5; it should be under version 9")


def test_headers_follow_the_version(tmp_path: Path) -> None:
    sink = two_versions(tmp_path, **HEADER)
    assert sink.verify().rows == 8
    sink.change(1, lambda rows: rows[1:], table=1)
    assert "shop.orders: 1 row is dropped from row 4 on" in sink.error()


def test_partitions_are_streams_of_their_own(tmp_path: Path) -> None:
    rows = [plain(i, ids=(70 + i % 2, 7)) for i in range(1, 7)]
    sink = parquet_sink(tmp_path, [rows])
    report = sink.verify()
    assert (report.tables, report.rows) == (2, 6)
    sink.change(1, lambda rows: rows[1:], table=0)
    assert sink.error().startswith("shop.orders partition 71: 1 row is dropped from row 1 on")
    shared = replace(sink.settings, partition_separator=False)
    with pytest.raises(BadSetting, match="share one directory"):
        verify(sink.source, shared, Sink(tmp_path / "none", sink.source, shared, [], 1).store)


def test_rows_of_a_layout_that_nobody_defined_are_refused(tmp_path: Path) -> None:
    other = replace(NARROW, columns=NARROW.columns[:1])
    sink = parquet_sink(tmp_path, [[plain(1)]])
    row = pa.RecordBatch.from_pylist([plain(1, layout=other)], schema=EVENTS)
    write_events(tmp_path / "bad", [row], 10)
    with pytest.raises(BadEvents, match=f"layout {other.fingerprint}"):
        verify(f"parquet:{tmp_path / 'bad'}", sink.settings, sink.store)


# Reading pieces.


def test_a_file_that_shrinks_while_it_is_read_is_named(sink: Sink) -> None:
    size = sink.store.size(sink.path(1)) or 0
    with pytest.raises(VerifyError, match="changed while it was read"):
        read_piece(sink.store, sink.path(1), size - 5, 10)
    with pytest.raises(VerifyError, match="disappeared"):
        read_piece(sink.store, "sbtest/none", 0, 1)


def test_a_survey_shows_what_a_reader_sees(sink: Sink) -> None:
    key = sink.tables[1].key
    sink.put(index_path(key, sink.options), index_text(key, 3, sink.options))
    lanes = survey(sink.store, sink.options).tables[TableKey("sbtest", "sbtest2")]
    assert [(lane.key.version, lane.key.date, len(lane.sizes)) for lane in lanes] == [(key.version, DATE, 3)]


# Any single change of a data file's rows is found.


@st.composite
def mutations(draw: st.DrawFn) -> Callable[[Rows], Rows]:
    """A change of one file's rows: drop, double, swap, move, alter, insert or cut off."""
    kind = draw(st.sampled_from(["drop", "double", "swap", "move", "alter", "insert", "cut"]))
    a, b, byte = draw(st.integers(0, 8)), draw(st.integers(0, 8)), draw(st.integers(0, 200))

    def mutate(rows: Rows) -> Rows:
        last = len(rows) - 1
        i, j = min(a, last), min(b, last)
        match kind:
            case "drop":
                return rows[:i] + rows[i + 1 :]
            case "double":
                return [*rows[:j], rows[i], *rows[j:]]
            case "swap":
                rows[i], rows[j] = rows[j], rows[i]
                return rows
            case "move":
                row = rows.pop(i)
                return [*rows[:j], row, *rows[j:]]
            case "alter":
                return [*rows[:i], altered(rows[i], byte), *rows[i + 1 :]]
            case "insert":
                return [*rows[:i], altered(rows[j], byte), *rows[i:]]
        return [*rows[:i], rows[i][: byte % len(rows[i])]]

    return mutate


@pytest.fixture(scope="module")
def right_sink() -> Iterator[Sink]:
    with tempfile.TemporaryDirectory() as root:
        yield build(Path(root), ENDLESS, {"at": 4})


@hypothesis_settings(max_examples=4 * hypothesis_settings().max_examples)
@given(table=st.integers(0, 2), number=st.integers(1, 5), mutate=mutations())
def test_any_change_of_the_rows_of_a_file_is_found(
    right_sink: Sink, table: int, number: int, mutate: Callable[[Rows], Rows]
) -> None:
    path = right_sink.path(number, table)
    right = list(right_sink.files[path])
    right_sink.change(number, mutate, table)
    try:
        if right_sink.files[path] == right:
            assert right_sink.verify().rows == 240
        else:
            assert f"sbtest.sbtest{table + 1}: " in right_sink.error()
    finally:
        right_sink.write(right_sink.tables[table], number, right)
