"""Shards under one name, merged by a user's DataFrame or by a route: every row lands, and a consumer drops none."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, lit, when

import tidegate
from tidegate.events import EVENTS_DDL, ROW_KINDS
from tidegate.format.encode.csv import CsvOptions
from tidegate.format.layout import PathOptions
from tidegate.reader.replay import survey
from tidegate.sources.parquet import write_events
from tidegate.storage.files import FileStore
from tidegate.testing import START_TS, Consumer, change, events_batch, layout_row, resolved_row

SHARDS, ROWS = (1, 2, 3), 60
CONFIG: dict[str, Any] = {"sink": {"csv": {"include-commit-ts": True}}}
ROUTE = {"dispatchers": [{"matcher": ["shop.orders_*"], "target-schema": "shop", "target-table": "orders"}]}


def shard_events(folder: Path) -> None:
    """Two files of changes in `orders_1`, `orders_2` and `orders_3`; all shards have equal rows at equal times."""
    values = {ts: (str(ts).encode(), b"same") for ts in range(1, ROWS + 1)}
    for part in (range(1, 31), range(31, ROWS + 1)):
        rows = [
            change(shard, START_TS + ts, ts, *values[ts], table_name=f"orders_{shard}")
            for ts in part
            for shard in SHARDS
        ]
        marked = [layout_row(), *rows, resolved_row(START_TS + part[-1])]
        write_events(folder / str(part[0]), [events_batch(marked)], 10**6)


def merged(events: DataFrame) -> DataFrame:
    """What a user does who has shards: one name for all."""
    name = when(col("kind").isin(*ROW_KINDS), lit("orders")).otherwise(col("table_name"))
    return events.withColumn("table_name", name)


def _events(events: DataFrame, position: Any) -> DataFrame:
    return events


def landed(spark: SparkSession, place: Path, merge: bool, config: dict[str, Any]) -> FileStore:
    """Both files, each by a run of its own: the second goes on where the first one ended."""
    for part in ("1", "31"):
        rows = spark.readStream.schema(EVENTS_DDL).parquet(f"{place}/events/{part}")
        events = merged(rows) if merge else rows
        handle = tidegate.write_stream(
            partial(_events, events), f"file://{place}/out", config=config, spool_dir=str(place / "spool"), finite=True
        )
        assert handle.await_termination(240)
        assert handle.restarts == 0
    assert handle.status().checkpoint_ts == START_TS + ROWS
    return FileStore(place / "out")


@pytest.mark.parametrize("merge", ["by a DataFrame", "by a route"])
def test_merged_shards_with_equal_rows_all_land(spark: SparkSession, tmp_path: Path, merge: str) -> None:
    shard_events(tmp_path / "events")
    routed = {"sink": {**CONFIG["sink"], **ROUTE}} if merge == "by a route" else CONFIG
    store = landed(spark, tmp_path, merge == "by a DataFrame", routed)
    consumer = Consumer(csv=CsvOptions(include_commit_ts=True))
    consumer.round(store)
    assert consumer.dropped == []
    assert {(line.schema, line.table) for line in consumer.taken} == {("shop", "orders")}
    found = sorted(int(line.values[0] or 0) for line in consumer.taken)
    assert found == sorted([*range(1, ROWS + 1)] * len(SHARDS))
    seen = survey(store, PathOptions())
    assert seen.faults == []
    assert len(seen.tables) == len(SHARDS), "one on the plain path, the others in directories of their own"
