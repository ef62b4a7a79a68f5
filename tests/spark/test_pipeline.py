"""The whole path on a real Spark session: source, ingest, spool, landing, checkpoint."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import tidegate
from tidegate.config.settings import load_settings
from tidegate.errors import BadEvents, TidegateError
from tidegate.events import EVENTS_DDL, tso
from tidegate.format.layout import parse_metadata
from tidegate.sources import open_source
from tidegate.sources.parquet import write_events
from tidegate.spark.handle import Handle, start_source
from tidegate.spark.query import Position
from tidegate.storage.files import FileStore
from tidegate.testing import FaultyFileStore, until
from tidegate.tools.verify import Report, verify

SMALL = "workload://sysbench?tables=4&rows=2000&txn-rows=7&batch=32KiB&events=20000"
FIRST_CHANGE_TS = tso(1767225600000)  # the workload's epoch
ENDLESS = "workload://sysbench?tables=4&rows=2000&txn-rows=7&batch=64KiB&rate=2MiB"


def checked(source: str, settings: Any) -> Report:
    return verify(source, settings, FileStore(Path(settings.sink_uri.removeprefix("file://"))))


def has_landed(handle: Handle, files: int) -> bool:
    """Whether the run has landed more than so many files."""
    return handle.status().files > files


def stopped(handle: Handle) -> None:
    handle.stop()
    assert handle.await_termination(240)


KINDS = "add-column|drop-column|modify-column|add-index|rename|truncate|drop-create|create-table|drop-table"
WITH_DDL = f"{SMALL}&ddl=every:1s,kinds={KINDS};every:8s,kinds=alter-database|create-view"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"protocol": "canal-json", "enable_tidb_extension": "true", "enable_table_across_nodes": "true"},
    ],
    ids=["csv", "canal-json-split"],
)
def test_ddl_and_rows_arrive_in_order(spark: SparkSession, place: Callable[..., Any], options: dict[str, str]) -> None:
    settings = place(**options)
    handle = start_source(WITH_DDL, settings)
    assert handle.await_termination(240)
    assert checked(WITH_DDL, settings).rows == 20_000
    assert handle.changefeed.metrics.value("ddl_total", outcome="written") > 10
    assert handle.status().ddls == {}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"spool_type": "memory"},
        {"dml_wake_mode": "flush", "flush_interval": "200ms"},
        {"encoder_ordering": "global"},
        {"max_flush_delay": "200ms", "date_separator": "none"},
    ],
    ids=lambda options: "-".join(options) or "defaults",
)
def test_every_change_arrives_once_and_in_order(
    spark: SparkSession, place: Callable[..., Any], options: dict[str, str]
) -> None:
    settings = place(**options)
    handle = start_source(SMALL, settings)
    assert handle.await_termination(240)
    report = checked(SMALL, settings)
    assert report.rows == 20_000
    assert report.rows_beyond_checkpoint == 0
    status = handle.status()
    assert (status.rows_accepted, status.rows_landed) == (20_000, 20_000)
    assert status.spool_bytes == 0


def test_the_spool_is_gone_after_a_run(spark: SparkSession, place: Callable[..., Any], tmp_path: Path) -> None:
    handle = start_source(SMALL, place())
    assert handle.await_termination(240)
    assert list((tmp_path / "spool").iterdir()) == []


def test_a_run_goes_on_where_the_last_one_ended(spark: SparkSession, place: Callable[..., Any]) -> None:
    settings = place()
    checkpoints = []
    for _ in range(3):
        handle = start_source(ENDLESS, settings)
        until(partial(has_landed, handle, 3))
        stopped(handle)
        assert handle.status().duplicates == 0
        checkpoints.append(checked(ENDLESS, settings).checkpoint_ts)
    assert checkpoints == sorted(set(checkpoints))


def test_what_was_accepted_and_not_landed_is_read_again_after_a_restart(
    spark: SparkSession, place: Callable[..., Any]
) -> None:
    settings = place(flush_interval="1m", file_size="16MiB")
    handle = start_source(ENDLESS, settings)
    until(lambda: handle.status().rows_accepted > 5000)
    handle.leave()  # as a kill between accepted and landed: the spool is lost
    handle.await_termination(240)
    assert handle.status().rows_landed == 0
    again = start_source(ENDLESS, settings)
    until(lambda: again.status().rows_accepted > 5000)
    stopped(again)
    assert checked(ENDLESS, settings).rows >= 5000


def test_early_wake_does_not_move_the_checkpoint(
    spark: SparkSession, place: Callable[..., Any], tmp_path: Path
) -> None:
    faults = tmp_path / "faults"
    (faults / "hang").mkdir(parents=True)
    (faults / "hang" / "sbtest").touch()
    handle = start_source(ENDLESS, place(), store_opener=FaultyFileStore(str(faults)))
    until(lambda: handle.status().rows_accepted > 10_000)
    assert handle.status().rows_landed == 0
    assert handle.status().checkpoint_ts < FIRST_CHANGE_TS < handle.status().resolved_ts
    (faults / "hang" / "sbtest").unlink()
    stopped(handle)


def test_one_hanging_table_does_not_stop_the_others(
    spark: SparkSession, place: Callable[..., Any], tmp_path: Path
) -> None:
    faults = tmp_path / "faults"
    (faults / "hang").mkdir(parents=True)
    (faults / "hang" / "sbtest2").touch()
    settings = place(flush_interval="5s")
    handle = start_source(ENDLESS, settings, store_opener=FaultyFileStore(str(faults)))
    until(lambda: "sbtest.sbtest2" in handle.status().retrying)
    landed = handle.status().rows_landed
    until(lambda: handle.status().rows_landed > landed + 10_000)
    ledger = handle.changefeed.ledger
    with handle.changefeed.life.lock:
        ds = ledger.queues.dispatchers
        healthy = [n for n in range(ds.size) if ledger.queues.names.tables[n] != "sbtest2" and ds.head[n] >= 0]
        oldest = max((handle.changefeed.clock.steady() - ds.oldest_at[n] for n in healthy), default=0.0)
    assert oldest < 2 * settings.flush_interval_s
    assert set(handle.status().retrying) == {"sbtest.sbtest2"}
    (faults / "hang" / "sbtest2").unlink()
    stopped(handle)
    assert handle.status().retrying == {}
    checked(ENDLESS, settings)


def test_a_store_that_hangs_stops_the_upstream_at_the_high_mark_and_not_before(
    spark: SparkSession, place: Callable[..., Any], tmp_path: Path
) -> None:
    faults = tmp_path / "faults"
    (faults / "hang").mkdir(parents=True)
    (faults / "hang" / "sbtest").touch()
    settings = place(spool_max_bytes="8MiB")
    uri = "workload://sysbench?tables=20&rows=100000&batch=64KiB"  # one table alone may hold an eighth
    handle = start_source(uri, settings, store_opener=FaultyFileStore(str(faults)))
    until(lambda: handle.status().wake_held)
    accepted, spool = handle.status().bytes_accepted, handle.status().spool_bytes
    assert handle.status().spool_high_mark < spool <= settings.spool_max_bytes
    time.sleep(2.0)
    assert handle.status().bytes_accepted == accepted
    (faults / "hang" / "sbtest").unlink()
    until(lambda: handle.status().bytes_accepted > accepted)
    stopped(handle)
    assert handle.changefeed.metrics.value("wake_suppressed_total") >= 1
    checked(uri, settings)


def test_a_store_that_fails_for_a_while_loses_nothing(
    spark: SparkSession, place: Callable[..., Any], tmp_path: Path
) -> None:
    faults = tmp_path / "faults"
    (faults / "unavailable").mkdir(parents=True)
    (faults / "unavailable" / "CDC").touch()
    settings = place()
    handle = start_source(SMALL, settings, store_opener=FaultyFileStore(str(faults)))
    until(lambda: len(handle.status().retrying) == 4)
    (faults / "unavailable" / "CDC").unlink()
    assert handle.await_termination(240)
    assert handle.status().reasons["error"] >= 4
    assert checked(SMALL, settings).rows == 20_000


def test_a_query_stopped_from_outside_is_started_again(spark: SparkSession, place: Callable[..., Any]) -> None:
    settings = place()
    handle = start_source(ENDLESS, settings)
    until(lambda: handle.status().files > 2)
    first = handle.changefeed
    query = handle._query._query
    assert query is not None
    query.stop()  # from outside, as an operator would in Spark's UI
    until(lambda: handle.changefeed is not first and handle.status().files > 2)
    assert handle.restarts == 1
    stopped(handle)
    checked(ENDLESS, settings)


def test_metrics_are_served_while_a_changefeed_runs(spark: SparkSession, place: Callable[..., Any]) -> None:
    handle = tidegate.spark.handle.start_source(ENDLESS, place(), metrics_addr="127.0.0.1:0")
    until(lambda: handle.status().files > 2)
    with urllib.request.urlopen(f"http://127.0.0.1:{handle.metrics_port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    stopped(handle)
    assert 'ticdc_sink_cloud_storage_flush_total{changefeed="' in text


# -- write_stream ----------------------------------------------------------------------------------------------------


@pytest.fixture
def events_dir(tmp_path: Path) -> str:
    source = open_source(SMALL)
    start = source.initial()
    splits = source.splits(start, source.latest(start, 1 << 40, frozenset()), 1)
    write_events(str(tmp_path / "events"), (batch for split in splits for batch in source.read(split)), 100_000)
    return str(tmp_path / "events")


def test_any_dataframe_of_the_events_schema_can_be_written(
    spark: SparkSession, tmp_path: Path, events_dir: str
) -> None:
    positions: list[Position | None] = []

    def from_the_start(position: Position | None) -> DataFrame:
        positions.append(position)
        return spark.readStream.schema(EVENTS_DDL).parquet(events_dir)

    sink = f"file://{tmp_path}/out"
    options: dict[str, Any] = {"spool_dir": str(tmp_path / "spool"), "file_size": "64KiB"}
    for _ in range(2):
        handle = tidegate.write_stream(from_the_start, sink, finite=True, **options)
        assert handle.await_termination(240)
        report = checked(SMALL, load_settings(sink, None, options))
        assert report.rows == 20_000
    assert positions[0] is None
    assert positions[1] is not None
    assert positions[1].checkpoint_ts == parse_metadata((tmp_path / "out" / "metadata").read_text())
    assert handle.status().rows_landed == 0  # the second run read everything again and dropped what was durable


@pytest.mark.parametrize("ordering", ["per-table", "global"])
def test_a_dataframe_in_any_order_is_put_in_order(
    spark: SparkSession, tmp_path: Path, events_dir: str, ordering: str
) -> None:
    shuffled = str(tmp_path / "shuffled")
    spark.read.schema(EVENTS_DDL).parquet(events_dir).orderBy("seq", "table_id", "commit_ts").repartition(
        5
    ).write.parquet(shuffled)
    sink = f"file://{tmp_path}/out"
    options: dict[str, Any] = {"spool_dir": str(tmp_path / "spool"), "encoder_ordering": ordering}
    handle = tidegate.write_stream(
        lambda position: spark.readStream.schema(EVENTS_DDL).parquet(shuffled), sink, finite=True, **options
    )
    assert handle.await_termination(240)
    assert checked(SMALL, load_settings(sink, None, options)).rows == 20_000


def test_a_dataframe_of_the_wrong_schema_is_refused_and_nothing_is_written(
    spark: SparkSession, tmp_path: Path, events_dir: str
) -> None:
    def wrong(position: Position | None) -> DataFrame:
        return spark.readStream.schema(EVENTS_DDL).parquet(events_dir).withColumnRenamed("seq", "sequence")

    with pytest.raises(BadEvents, match=r"no column 'seq' \(bigint\)"):
        tidegate.write_stream(wrong, f"file://{tmp_path}/out", spool_dir=str(tmp_path / "spool"))
    assert not (tmp_path / "out" / "metadata").exists()


def test_rows_that_break_the_contract_end_the_changefeed_with_one_sentence(
    spark: SparkSession, tmp_path: Path, events_dir: str
) -> None:
    from pyspark.sql import functions as f

    def nameless(position: Position | None) -> DataFrame:
        events = spark.readStream.schema(EVENTS_DDL).parquet(events_dir)
        return events.withColumn("table_name", f.when(f.col("seq") == 77, None).otherwise(f.col("table_name")))

    handle = tidegate.write_stream(nameless, f"file://{tmp_path}/out", spool_dir=str(tmp_path / "spool"), finite=True)
    with pytest.raises(BadEvents, match=r"NULL in table_name .*seq 77"):
        handle.await_termination(240)
    assert not (tmp_path / "out" / "metadata").exists()
    assert list((tmp_path / "out").glob("sbtest/*")) == []


def test_a_sink_with_other_content_is_refused(spark: SparkSession, place: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(TidegateError, match=r"not empty \(notes.txt\)"):
        start_source(SMALL, place())
    assert (tmp_path / "out" / "notes.txt").read_text() == "mine"


def test_one_changefeed_at_a_time_uses_a_spool(spark: SparkSession, place: Callable[..., Any]) -> None:
    handle = start_source(ENDLESS, place())
    with pytest.raises(TidegateError, match="in use by another process"):
        start_source(ENDLESS, place())
    stopped(handle)


def test_a_short_flush_delay_makes_10000_one_row_tables_durable_long_before_the_interval(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = open_source("workload://sysbench?tables=10000&rows=1&events=10000")
    start = source.initial()
    splits = source.splits(start, source.latest(start, 1 << 40, frozenset()), 1)
    write_events(str(tmp_path / "events"), (batch for split in splits for batch in source.read(split)), 100_000)
    handle = tidegate.write_stream(
        lambda position: spark.readStream.schema(EVENTS_DDL).parquet(str(tmp_path / "events")),
        f"file://{tmp_path}/out",
        spool_dir=str(tmp_path / "spool"),
        flush_interval="10m",
        max_flush_delay="200ms",
    )
    until(lambda: handle.status().rows_landed == 10_000)  # the stream goes on, so nothing is flushed by closing
    assert set(handle.status().reasons) == {"delay"}
    stopped(handle)
    assert len(list((tmp_path / "out").rglob("CDC.index"))) == 10_000
