"""Errors of tasks and of the source's process on a real Spark session, and rows that cannot be written."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from tidegate.config.settings import Settings
from tidegate.errors import BadEvents, BadSetting, TidegateError
from tidegate.events import EVENTS_DDL
from tidegate.sources.parquet import write_events
from tidegate.spark.handle import Handle, start, start_source
from tidegate.spark.query import Position
from tidegate.storage.files import FileStore
from tidegate.testing import (
    START_TS,
    FaultyFileStore,
    change,
    events_batch,
    landed_lines,
    layout_row,
    resolved_row,
    until,
)
from tidegate.tools.verify import verify

SECRET = b"4711;drop"
SENTENCE = f"shop.t1, commit-ts {START_TS + 50}, column 'id': the value is not a whole number"
Place = Callable[..., Settings]


@pytest.fixture
def events_dir(tmp_path: Path) -> str:
    """99 transactions over two tables. Of `shop.t1` an insert and an update of its key cannot be written."""
    rows = [change(table, START_TS + ts, ts) for ts in range(1, 100) for table in (1, 2)]
    rows[98]["after"] = [SECRET, b"v"]
    rows[120] |= {"kind": "update", "before": [b"61", b"v"], "after": [SECRET, b"v"]}
    events = events_batch([layout_row(), *rows, resolved_row(START_TS + 99)])
    write_events(tmp_path / "events", [events], 10**6)
    return str(tmp_path / "events")


class Opened:
    """A user's DataFrame that begins anew at every start; counts how often it was opened."""

    def __init__(self, make: Callable[[], DataFrame]) -> None:
        self.times, self._make = 0, make

    def __call__(self, position: Position | None) -> DataFrame:
        self.times += 1
        return self._make()


def read(spark: SparkSession, events_dir: str) -> Opened:
    return Opened(lambda: spark.readStream.schema(EVENTS_DDL).parquet(events_dir))


def set_aside(place: Path) -> list[str]:
    return sorted(path.name for path in place.glob("_tidegate/bad-rows/1/*"))


# -- stop ------------------------------------------------------------------------------------------------------------


def test_a_bad_row_ends_the_changefeed_at_the_first_try_with_one_sentence(
    spark: SparkSession, place: Place, tmp_path: Path, events_dir: str
) -> None:
    events = read(spark, events_dir)
    handle = start(events, place(), finite=True)
    with pytest.raises(BadEvents) as error:
        handle.await_termination(240)
    assert str(error.value).startswith(f"{SENTENCE}; correct it in the source")
    assert str(error.value).endswith("on-bad-row = set-aside")
    assert SECRET.decode() not in str(error.value)
    assert (events.times, handle.restarts) == (1, 0)
    assert set_aside(tmp_path / "out") == []


def test_an_error_of_ours_in_the_users_own_code_on_an_executor_ends_at_the_first_try(
    spark: SparkSession, place: Place, events_dir: str
) -> None:
    def refuse(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            try:
                int("x")
            except ValueError as exc:
                raise BadEvents("the file of today is not complete;\nwait for it") from exc
        yield from ()

    events = Opened(lambda: spark.readStream.schema(EVENTS_DDL).parquet(events_dir).mapInArrow(refuse, EVENTS_DDL))
    handle = start(events, place(), finite=True)
    with pytest.raises(BadEvents, match=r"^the file of today is not complete; wait for it$"):
        handle.await_termination(240)
    assert (events.times, handle.restarts) == (1, 0)


@pytest.mark.parametrize("where", ["init", "latestOffset", "partitions"])
def test_an_error_of_ours_in_the_process_of_a_source_ends_at_the_first_try(
    spark: SparkSession, place: Place, where: str
) -> None:
    class Reader(DataSourceStreamReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._fail("init")

        def initialOffset(self) -> dict[str, int]:  # noqa: N802
            return {"at": 0}

        def latestOffset(self, start: Any, limit: Any) -> dict[str, int]:  # noqa: N802
            self._fail("latestOffset")
            return {"at": 1}

        def partitions(self, start: Any, end: Any) -> list[InputPartition]:
            self._fail("partitions")
            return []

        def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
            yield from ()

        def _fail(self, here: str) -> None:
            if here == where:
                raise BadSetting("the position is gone; name another")

    class Source(DataSource):  # type: ignore[misc]
        @classmethod
        def name(cls) -> str:
            return "failing"

        def schema(self) -> str:
            return EVENTS_DDL

        def streamReader(self, schema: Any) -> Reader:  # noqa: N802
            return Reader()

    spark.dataSource.register(Source)
    events = Opened(lambda: spark.readStream.format("failing").load())
    with pytest.raises(BadSetting, match=r"^the position is gone; name another$"):
        start(events, place()).await_termination(240)
    assert events.times == 1


def test_a_damaged_file_that_only_a_task_meets_ends_at_the_first_try(
    spark: SparkSession, place: Place, events_dir: str
) -> None:
    file = Path(events_dir) / "events-000000.parquet"
    data = bytearray(file.read_bytes())
    data[4:400] = bytes(396)  # the footer at the end is whole
    file.write_bytes(data)
    with pytest.raises(BadEvents, match=r"events-000000\.parquet' cannot be read as a Parquet file"):
        start_source(f"parquet:{events_dir}", place()).await_termination(240)


def test_an_error_that_is_not_ours_is_tried_again_and_told_by_its_last_cause(
    spark: SparkSession, place: Place, events_dir: str, caplog: pytest.LogCaptureFixture
) -> None:
    def divide(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            assert 1 // (batch.num_rows - batch.num_rows)
        yield from ()

    events = Opened(lambda: spark.readStream.schema(EVENTS_DDL).parquet(events_dir).mapInArrow(divide, EVENTS_DDL))
    with caplog.at_level(logging.WARNING, "tidegate"):
        handle = start(events, place(), finite=True)
        until(lambda: events.times > 1 and handle.restarts > 1)
        handle.stop()
        with pytest.raises(TidegateError, match=r"^the query failed: ZeroDivisionError: "):
            handle.await_termination(240)
    told = [record.message for record in caplog.records if "started again" in record.message]
    assert told[0].startswith("the query failed and is started again (try 1): ZeroDivisionError: ")


# -- set aside -------------------------------------------------------------------------------------------------------


def checked(handle: Handle, out: Path) -> None:
    """Two bad rows are set aside, each once; everything else has landed once."""
    assert set_aside(out) == [f"{START_TS + ts:020d}-{ts:020d}.json" for ts in (50, 61)]
    lines = landed_lines(FileStore(out))
    assert [int(line.values[0] or b"") for line in lines["shop.t1"]] == [n for n in range(1, 100) if n not in (50, 61)]
    assert len(lines["shop.t2"]) == 99
    assert handle.status().checkpoint_ts == START_TS + 99
    assert handle.restarts == 0


def test_bad_rows_are_set_aside_once_and_the_rest_lands_also_after_a_kill(
    spark: SparkSession, place: Place, tmp_path: Path, events_dir: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = place(on_bad_row="set-aside", flush_interval="10m")
    events = read(spark, events_dir)
    killed = start(events, settings)
    until(lambda: killed.status().rows_accepted == 196)
    killed.leave()  # as a kill between accepted and landed: the spool is lost
    killed.await_termination(240)
    assert len(set_aside(tmp_path / "out")) == 2
    assert landed_lines(FileStore(tmp_path / "out")) == {}
    handle = start(events, settings, finite=True)
    assert handle.await_termination(240)
    checked(handle, tmp_path / "out")
    assert {name: line.rows for name, line in handle.status().set_aside.items()} == {"shop.t1": 2}
    row = json.loads((tmp_path / "out/_tidegate/bad-rows/1" / set_aside(tmp_path / "out")[1]).read_text())
    assert (row["kind"], row["before"], row["after"]) == ("update", ["61", "v"], [SECRET.decode(), "v"])
    assert SECRET.decode() not in caplog.text


@pytest.mark.parametrize("fault", ["lost", "unavailable"])
def test_an_outage_while_a_row_is_set_aside_is_waited_for_without_a_restart(
    spark: SparkSession, place: Place, tmp_path: Path, events_dir: str, fault: str
) -> None:
    faults = FaultyFileStore(str(tmp_path / "faults"))
    faults.begin(fault, "bad-rows")
    settings = place(on_bad_row="set-aside")
    handle = start_source(f"parquet:{events_dir}", settings, store_opener=faults)
    until(lambda: handle.status().waiting is not None)
    assert handle.status().rows_accepted == 0
    faults.end(fault, "bad-rows")
    assert handle.await_termination(240)
    checked(handle, tmp_path / "out")
    report = verify(f"parquet:{events_dir}", settings, FileStore(tmp_path / "out"))
    assert (report.rows, report.set_aside) == (196, 2)
