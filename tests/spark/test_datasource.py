"""The sources through a real streaming query: rows, splits, AvailableNow, resume and held tables."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from tidegate.errors import BadSetting
from tidegate.events import EVENTS, EVENTS_DDL, LAYOUT, RESOLVED
from tidegate.sources import open_source
from tidegate.sources.datasource import SPLIT_COLUMN, Pace, load_stream
from tidegate.sources.parquet import write_events
from tidegate.sources.source import Demand
from tidegate.testing import until

URI = "workload://sysbench?tables=3&rows=200&txn-rows=5&batch=8KiB&events=3000"
Row = dict[str, Any]
Rows = dict[int, list[Row]]


def test_after_a_micro_batch_that_took_long_the_next_are_smaller_until_they_are_short() -> None:
    pace = Pace()
    for took, share in ((2.0, 1.0), (9.0, 0.5), (5.0, 0.25), (2.0, 0.25), (1.0, 0.5), (0.1, 1.0), (0.1, 1.0)):
        pace.begin(100.0)
        pace.end(100.0 + took)
        assert pace.share == share
    pace.end(900.0)
    assert pace.share == 1.0


def by_table(rows: list[Row]) -> Rows:
    tables: Rows = defaultdict(list)
    for row in rows:
        if row["kind"] not in (LAYOUT, RESOLVED):
            tables[row["table_id"]].append(row)
    return dict(tables)


def expected(uri: str = URI, position: dict[str, object] | None = None) -> Rows:
    source = open_source(uri)
    start = position or source.initial()
    splits = source.splits(start, source.latest(start, 1 << 40, frozenset()), 1)
    return by_table([row for split in splits for batch in source.read(split) for row in batch.to_pylist()])


def run(stream: DataFrame, checkpoint: Path) -> tuple[list[pa.Table], list[str]]:
    """Runs to the end of what is available: the Arrow table of each micro-batch, and its end offsets."""
    batches: list[pa.Table] = []
    query = (
        stream.writeStream.foreachBatch(lambda frame, _: batches.append(frame.toArrow()))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(120), "the query does not end"
    finally:
        query.stop()
    return batches, [progress.sources[0].endOffset for progress in query.recentProgress]


def rows_of(batches: list[pa.Table]) -> list[Row]:
    return [row for batch in batches for row in batch.select(EVENTS.names).to_pylist()]


def test_rows_have_the_events_schema_and_come_whole_in_several_batches(spark: SparkSession, tmp_path: Path) -> None:
    stream = load_stream(spark, URI, None, limitBytes=200_000)
    assert stream.schema == spark.createDataFrame([], EVENTS_DDL).schema
    batches, _ = run(stream, tmp_path)
    assert len(batches) > 2
    assert max(batch.num_rows for batch in batches) * 218 < 220_000
    assert by_table(rows_of(batches)) == expected()
    for batch in batches:
        assert rows_of([batch])[0]["kind"] == LAYOUT
        assert batch.column("kind").to_pylist().count(RESOLVED) == 1


@pytest.mark.parametrize("ordering", ["per-table", "global"])
def test_a_split_is_one_row_and_one_task_and_can_be_read_in_place(
    spark: SparkSession, tmp_path: Path, ordering: str
) -> None:
    stream = load_stream(spark, URI, None, limitBytes=300_000, ordering=ordering, read="splits", parallelism=2)
    assert stream.columns == [SPLIT_COLUMN]
    tasks: list[int] = []
    splits: list[str] = []

    def take(frame: DataFrame, _: int) -> None:
        tasks.append(frame.rdd.getNumPartitions())
        splits.extend(row[0] for row in frame.collect())

    query = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    assert query.start().awaitTermination(120)
    assert set(tasks) == {2}
    rows: list[Row] = []
    for text in splits:
        told = json.loads(text)
        source = open_source(told["uri"], ordering=told["ordering"])
        rows += [row for batch in source.read(told["split"]) for row in batch.to_pylist()]
    assert by_table(rows) == expected()


def test_a_position_replays_exactly_what_follows_it(spark: SparkSession, tmp_path: Path) -> None:
    batches, offsets = run(load_stream(spark, URI, None, limitBytes=150_000), tmp_path / "first")
    for index, offset in enumerate(offsets[:-1:2]):
        again, _ = run(load_stream(spark, URI, offset, limitBytes=250_000), tmp_path / f"again{index}")
        rest = rows_of(batches[2 * index + 1 :])
        assert by_table(rows_of(again)) == by_table(rest) == expected(position=json.loads(offset))


def in_parquet(folder: Path) -> str:
    """The same changes in Parquet files."""
    source = open_source(URI)
    [split] = source.splits(source.initial(), source.latest(source.initial(), 1 << 40, frozenset()), 1)
    write_events(folder, (b.slice(n, 150) for b in source.read(split) for n in range(0, b.num_rows, 150)), 1000)
    return f"parquet:{folder}"


def test_parquet_is_replayed_through_spark(spark: SparkSession, tmp_path: Path) -> None:
    batches, _ = run(load_stream(spark, in_parquet(tmp_path / "in"), None, limitBytes=100_000), tmp_path / "checkpoint")
    assert len(batches) > 3
    assert by_table(rows_of(batches)) == expected()


@pytest.mark.parametrize("kind", ["workload", "parquet"])
def test_held_tables_wait_and_catch_up_after_release(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    uri = URI if kind == "workload" else in_parquet(tmp_path / "in")
    demand = tmp_path / "demand.json"
    demand.write_text(Demand(200_000, None, frozenset([102])).to_json())
    rows: list[Row] = []
    stream = load_stream(spark, uri, None, demand=str(demand))
    query = (
        stream.writeStream.foreachBatch(lambda frame, _: rows.extend(rows_of([frame.toArrow()])))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    want = expected()
    try:
        until(lambda: all(len(by_table(rows).get(table, ())) == len(want[table]) for table in (101, 103)))
        assert query.isActive, "the end was taken for reached while a table is held"
        assert 102 not in by_table(rows)
        demand.unlink()
        assert query.awaitTermination(240)
    finally:
        query.stop()
    assert by_table(rows) == want


def test_a_unit_that_does_not_fit_waits_until_it_does(spark: SparkSession, tmp_path: Path) -> None:
    """A row group of 150 rows is some 30 KB, and the query does not end while it waits."""
    demand = tmp_path / "demand.json"
    demand.write_text(Demand(500, 500).to_json())
    rows: list[Row] = []
    query = (
        load_stream(spark, in_parquet(tmp_path / "in"), None, demand=str(demand))
        .writeStream.foreachBatch(lambda frame, _: rows.extend(rows_of([frame.toArrow()])))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        until(lambda: "Getting offsets" in query.status["message"])
        assert query.isActive
        demand.write_text(Demand(500).to_json())  # nothing else will make room
        assert query.awaitTermination(240)
    finally:
        query.stop()
    assert by_table(rows) == expected()


def test_a_query_that_waits_for_a_held_table_can_be_stopped(spark: SparkSession, tmp_path: Path) -> None:
    demand = tmp_path / "demand.json"
    demand.write_text(Demand(1 << 20, None, frozenset([101, 102, 103])).to_json())
    query = (
        load_stream(spark, URI, None, demand=str(demand))
        .writeStream.foreachBatch(lambda frame, _: frame.count())
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    until(lambda: "Getting offsets" in query.status["message"])
    stopping = threading.Thread(target=query.stop, daemon=True)
    stopping.start()
    stopping.join(60)
    assert not stopping.is_alive(), "the query goes on waiting"
    assert not query.isActive


def test_an_endless_workload_ends_after_one_batch_when_only_what_is_available_is_asked_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    batches, _ = run(load_stream(spark, "workload://sysbench?tables=2&rows=100", None, limitBytes=100_000), tmp_path)
    assert len(batches) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"limitbites": "5"}, "unknown option 'limitbites'"),
        ({"limitBytes": "lots"}, "limitBytes='lots'"),
        ({"read": "columns"}, "read='columns' is unknown"),
        ({"ordering": "legacy"}, "encoder-ordering='legacy'"),
        ({"position": "{"}, "is not JSON"),
    ],
)
def test_bad_options_are_refused_before_the_query_starts(
    spark: SparkSession, options: dict[str, str], words: str
) -> None:
    position = options.pop("position", None)
    with pytest.raises(BadSetting) as refused:
        load_stream(spark, URI, position, **options)
    assert words in str(refused.value)
