"""The Parquet source replays prepared events whole and in order, from any position, and refuses other files."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidegate.errors import BadEvents, BadSetting
from tidegate.events import EVENTS, LAYOUT, RESOLVED
from tidegate.format.tables import Column, Layout
from tidegate.sources import Offset, Source, open_source
from tidegate.sources.parquet import write_events
from tidegate.testing import SHAPE, START_TS, change, events_batch, layout_row

NONE: frozenset[int] = frozenset()
ENOUGH = 1 << 40
URI = "workload://sysbench?tables=3&rows=500&txn-rows=5&batch=20KiB&mix=1:8:1&events=6000"


def prepared() -> list[pa.RecordBatch]:
    """The workload's events cut into batches of 100 rows; the layout first, resolved marks in between."""
    source = open_source(URI)
    batches = []
    offset = source.initial()
    while (end := source.latest(offset, 200_000, NONE)) != offset:
        for split in source.splits(offset, end, 1):
            for batch in source.read(split):
                batches += [batch.slice(n, 100) for n in range(0, batch.num_rows, 100)]
        offset = end
    return batches


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    write_events(tmp_path, prepared(), rows_per_file=1500)
    return tmp_path


def read(source: Source, start: Offset, end: Offset, parallelism: int = 2) -> list[dict[str, object]]:
    splits = json.loads(json.dumps(source.splits(start, end, parallelism)))
    return [row for split in splits for batch in source.read(split) for row in batch.to_pylist()]


def changes(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return [row for row in rows if row["kind"] not in (LAYOUT, RESOLVED)]


def backlog(source: Source, offset: Offset) -> int:
    left = source.backlog_bytes(offset)
    assert left is not None
    return left


def walk(source: Source, start: Offset, limit_bytes: int) -> list[Offset]:
    offsets = [start]
    while (end := source.latest(offsets[-1], limit_bytes, NONE)) != offsets[-1]:
        offsets.append(end)
    return offsets


@pytest.mark.parametrize(("limit_bytes", "parallelism"), [(1, 1), (60_000, 3), (400_000, 2), (ENOUGH, 7)])
def test_any_cut_gives_the_prepared_rows_in_order(directory: Path, limit_bytes: int, parallelism: int) -> None:
    source = open_source(f"parquet:{directory}")
    offsets = walk(source, source.initial(), limit_bytes)
    rows = [row for start, end in pairwise(offsets) for row in changes(read(source, start, end, parallelism))]
    assert rows == changes([row for batch in prepared() for row in batch.to_pylist()])


def test_the_end_resolves_the_greatest_commit_ts_and_only_the_end(directory: Path) -> None:
    source = open_source(f"parquet:{directory}")
    whole = read(source, source.initial(), source.latest(source.initial(), ENOUGH, NONE))
    greatest = max(row["commit_ts"] for batch in prepared() for row in batch.to_pylist())
    assert (whole[-1]["kind"], whole[-1]["commit_ts"]) == (RESOLVED, greatest)
    first = read(source, source.initial(), {"at": 1})
    assert not [row for row in first if row["kind"] == RESOLVED]


def test_a_start_in_the_middle_brings_the_layouts_first_and_the_rest_of_the_rows(directory: Path) -> None:
    source = open_source(f"parquet:{directory}")
    end = source.latest(source.initial(), ENOUGH, NONE)
    for split in source.splits({"at": 20}, end, 3):
        first = next(iter(source.read(split)))
        assert set(first.column("kind").to_pylist()) == {LAYOUT}
    rows = changes(read(source, {"at": 20}, end))
    whole = changes(read(source, source.initial(), end))
    assert rows == whole[len(whole) - len(rows) :]


def test_a_split_begins_with_the_layouts_that_its_rows_use_and_no_others(tmp_path: Path) -> None:
    shapes = [Layout((*SHAPE.columns, Column(f"c{n}", "int"))) for n in range(3)]
    marks = [layout_row(shape) for shape in shapes]
    rows = [[change(n, START_TS + n, n, b"1", b"v", b"2", layout=shape.fingerprint)] for n, shape in enumerate(shapes)]
    write_events(tmp_path, map(events_batch, [marks, *rows]), 1)
    source = open_source(f"parquet:{tmp_path}")
    for n, shape in enumerate(shapes):
        (split,) = source.splits({"at": n + 1}, {"at": n + 2}, 1)
        first = next(iter(source.read(split)))
        assert first.column("ddl").to_pylist() == [shape.to_json()]


def test_the_backlog_counts_down_to_zero_and_is_near_the_encoded_size(directory: Path) -> None:
    source = open_source(f"parquet:{directory}")
    left = [backlog(source, offset) for offset in walk(source, source.initial(), 100_000)]
    assert left == sorted(left, reverse=True)
    assert left[0] == pytest.approx(6000 * 220, rel=0.1)
    assert left[-1] == 0


def test_splits_are_balanced_and_small(directory: Path) -> None:
    source = open_source(f"parquet:{directory}")
    splits = source.splits(source.initial(), source.latest(source.initial(), ENOUGH, NONE), 4)
    rows = [sum(batch.num_rows for batch in source.read(split)) for split in splits]
    assert rows == pytest.approx([1500] * 4, rel=0.15)


def test_a_row_group_larger_than_a_batch_is_handed_out_in_parts(tmp_path: Path) -> None:
    workload = open_source("workload://sysbench?tables=1&rows=200000&prepare=false")
    end = workload.latest(workload.initial(), 16 << 20, NONE)
    batches = [b for split in workload.splits(workload.initial(), end, 1) for b in workload.read(split)]
    whole = pa.Table.from_batches(batches).combine_chunks()
    write_events(tmp_path, whole.to_batches(), rows_per_file=10**9)
    source = open_source(f"parquet:{tmp_path}")
    [split] = source.splits(source.initial(), {"at": 1}, 2)
    parts = list(source.read(split))
    assert max(part.num_rows for part in parts) * 225 < 9 << 20
    assert sum(part.num_rows for part in parts) == whole.num_rows + 2


def test_files_written_without_statistics_or_by_spark_are_read_too(tmp_path: Path) -> None:
    element = pa.list_(pa.field("element", pa.binary()))
    schema = pa.schema([pa.field(f.name, element if pa.types.is_list(f.type) else f.type) for f in EVENTS])
    table = pa.Table.from_batches(prepared()).cast(schema)
    pq.write_table(table, tmp_path / "part-0.parquet", write_statistics=False, row_group_size=2000, store_schema=False)
    source = open_source(f"parquet:{tmp_path}")
    rows = read(source, source.initial(), source.latest(source.initial(), ENOUGH, NONE))
    assert changes(rows) == changes(table.to_pylist())
    assert rows[-1]["commit_ts"] == max(table.column("commit_ts").to_pylist())


def test_a_missing_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match=r"nowhere.*directory"):
        open_source(f"parquet:{tmp_path / 'nowhere'}")
    with pytest.raises(BadSetting, match="names no directory"):
        open_source("parquet:")


def test_an_empty_directory_is_refused(tmp_path: Path) -> None:
    source = open_source(f"parquet:{tmp_path}")
    with pytest.raises(BadSetting, match=r"has no \.parquet files; name one"):
        source.check()
    with pytest.raises(BadSetting, match=r"has no \.parquet files"):
        source.latest(source.initial(), ENOUGH, NONE)


def test_files_without_a_row_are_refused(tmp_path: Path) -> None:
    write_events(tmp_path, [pa.RecordBatch.from_pylist([], schema=EVENTS)], rows_per_file=1)
    pq.write_table(pa.Table.from_pylist([], schema=EVENTS), tmp_path / "z.parquet")
    with pytest.raises(BadSetting, match="hold no rows; put events there"):
        open_source(f"parquet:{tmp_path}").check()


def test_a_file_whose_rows_are_damaged_is_refused_by_name_when_they_are_read(directory: Path) -> None:
    file = directory / "events-000000.parquet"
    data = bytearray(file.read_bytes())
    data[4:400] = bytes(396)  # the footer at the end is whole
    file.write_bytes(data)
    source = open_source(f"parquet:{directory}")
    source.check()
    with pytest.raises(BadEvents, match=r"events-000000\.parquet' cannot be read as a Parquet file; replace"):
        read(source, {"at": 0}, {"at": 1})


def test_a_file_of_another_schema_is_refused_by_file_and_column(directory: Path) -> None:
    table = pa.Table.from_batches(prepared())
    pq.write_table(table.drop_columns(["seq"]), directory / "z-no-seq.parquet")
    with pytest.raises(BadEvents, match=r"z-no-seq\.parquet' has no column 'seq'; add it"):
        open_source(f"parquet:{directory}").check()
    (directory / "z-no-seq.parquet").unlink()
    position = EVENTS.get_field_index("commit_ts")
    pq.write_table(table.set_column(position, "commit_ts", table["commit_ts"].cast("string")), directory / "z.parquet")
    with pytest.raises(BadEvents, match=r"z\.parquet': column 'commit_ts' is string, not int64; cast it"):
        open_source(f"parquet:{directory}").check()


def test_a_file_that_is_not_parquet_is_refused(directory: Path) -> None:
    (directory / "a.parquet").write_text("hello")
    with pytest.raises(BadEvents, match=r"a\.parquet' cannot be read as a Parquet file; replace"):
        open_source(f"parquet:{directory}").check()


def test_a_position_beyond_the_files_is_refused(directory: Path) -> None:
    with pytest.raises(BadSetting, match="position"):
        open_source(f"parquet:{directory}").latest({"at": 10**6}, ENOUGH, NONE)
