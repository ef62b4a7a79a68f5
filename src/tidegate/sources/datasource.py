"""Our sources as a Spark streaming source, format `tidegate`.

`read=rows` returns the events themselves. `read=splits` returns one small row per split; the ingest task opens the
source and reads the split itself, so that the rows do not pass through the JVM. Such a row contains all a task needs:
`{"uri": ..., "ordering": ..., "private": ..., "split": ...}`. `private` is the path of a file with what nobody may see.
Spark asks for offsets in a separate process, which reads the `demand` file at every request: how much may come, which
tables not, and what is durable. When Spark calls `commit`, the events are accepted but not durable.

All tables share a micro-batch and are accepted when it ends. So a micro-batch that took long is followed by a smaller
one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from tidegate.errors import BadSetting
from tidegate.events import EVENTS, EVENTS_DDL
from tidegate.sources import Offset, Source, open_source
from tidegate.sources.mysql.private import read_private
from tidegate.sources.source import Demand, Told, fitting

FORMAT = "tidegate"
SPLIT_COLUMN = "tidegate_split"
LIMIT_BYTES = 256 << 20

_DEFAULTS = {
    "uri": "",
    "position": "",
    "limitBytes": str(LIMIT_BYTES),
    "ordering": "per-table",
    "wakeMode": "enqueue",
    "parallelism": "2",
    "demand": "",
    "private": "",
    "read": "rows",
}
_WAIT_SECONDS = 0.05
_SHORT_SECONDS, _LONG_SECONDS = 1.5, 3.0
_LEAST_SHARE = 1 / 16

# EVENTS as Spark expects it: all columns are nullable, and the element of a list has Spark's name.
_VALUES = pa.list_(pa.field("element", pa.binary()))
_SPARK_EVENTS = pa.schema([pa.field(f.name, _VALUES if pa.types.is_list(f.type) else f.type) for f in EVENTS])
_SPARK_SPLITS = pa.schema([pa.field(SPLIT_COLUMN, pa.string())])


def load_stream(spark: SparkSession, uri: str, position: str | None, **options: str | int) -> DataFrame:
    """A streaming DataFrame of all events after `position`, a JSON offset; None means from the beginning."""
    spark.dataSource.register(TidegateSource)
    given = {"parallelism": spark.sparkContext.defaultParallelism, "position": position or "", **options, "uri": uri}
    _checked({name: str(value) for name, value in given.items()})
    return spark.readStream.format(FORMAT).options(**given).load()


@dataclass
class Pace:
    """Which share of its limit a micro-batch may use. It depends on how long the last micro-batch took.

    If the rows of one table are slow to encode, the other tables wait at most a few seconds for them.
    """

    share: float = 1.0
    _began_at: float | None = None

    def begin(self, now: float) -> None:
        self._began_at = now

    def end(self, now: float) -> None:
        """The last micro-batch has ended. A request that found no new events did not begin a micro-batch."""
        took = _SHORT_SECONDS if self._began_at is None else now - self._began_at
        if took > _LONG_SECONDS:
            self.share = max(self.share / 2, _LEAST_SHARE)
        elif took < _SHORT_SECONDS:
            self.share = min(self.share * 2, 1.0)
        self._began_at = None


class TidegateSource(DataSource):  # type: ignore[misc]  # pyspark is not followed by mypy
    """Options: uri, position, limitBytes, ordering, wakeMode, parallelism, demand, private, read."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return EVENTS_DDL if _checked(self.options)["read"] == "rows" else f"{SPLIT_COLUMN} string"

    def streamReader(self, schema: Any) -> TidegateStreamReader:  # noqa: N802, Spark's name
        return TidegateStreamReader(_checked(self.options))


class TidegateStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Adapts a `Source` to Spark. With the trigger AvailableNow an endless source ends after one micro-batch."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options
        self._limit_bytes = int(options["limitBytes"])
        self._until_end = False
        self._target: Offset | None = None
        # In `flush` mode a micro-batch ends only when its files are durable, so its duration says nothing here.
        self._pace = Pace() if options["wakeMode"] == "enqueue" else None
        self._source = _open(options)

    def initialOffset(self) -> Offset:  # noqa: N802
        return _position(self._options) or self._source.initial()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxBytes(self._limit_bytes)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._until_end = True

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        if self._target is not None:
            return self._target
        end = self._latest(start, limit)
        if self._until_end and not self._source.finite:
            self._target = end
        # Spark takes an unchanged offset as the end. But events that are held or not due yet will still come.
        while self._until_end and end == start and self._source.backlog_bytes(start):
            time.sleep(_WAIT_SECONDS)
            end = self._latest(start, limit)
        return end

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        splits = self._source.splits(start, end, int(self._options["parallelism"]))
        return [InputPartition(json.dumps(split)) for split in splits]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if self._options["read"] == "splits":
            row = {
                "uri": self._options["uri"],
                "ordering": self._options["ordering"],
                "private": self._options["private"],
                "split": json.loads(partition.value),
            }
            yield pa.RecordBatch.from_arrays([pa.array([json.dumps(row)])], schema=_SPARK_SPLITS)
            return
        for batch in self._source.read(json.loads(partition.value)):
            yield pa.RecordBatch.from_arrays(
                [column.cast(field.type) for column, field in zip(batch.columns, _SPARK_EVENTS, strict=True)],
                schema=_SPARK_EVENTS,
            )

    def commit(self, end: Offset) -> None:
        """Spark calls it when a batch is accepted, which is before it is durable."""
        if isinstance(self._source, Told):
            self._source.committed(end)

    def _latest(self, start: Offset, limit: ReadLimit) -> Offset:
        limit_bytes = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._limit_bytes
        demand = _demand(self._options["demand"], limit_bytes)
        if isinstance(self._source, Told) and demand.durable is not None:
            self._source.durable(json.loads(demand.durable))
        if self._pace is None:
            return fitting(self._source, start, demand)
        self._pace.end(time.monotonic())
        share = int(demand.limit_bytes * self._pace.share)
        end = fitting(self._source, start, replace(demand, limit_bytes=share))
        if end != start:
            self._pace.begin(time.monotonic())
        return end


def _checked(given: Mapping[str, str]) -> dict[str, str]:
    """All options, with defaults for those not given. Spark gives their names in lower case."""
    names = {name.lower(): name for name in _DEFAULTS}
    options = dict(_DEFAULTS)
    for name, value in given.items():
        if name.lower() not in names:
            raise BadSetting(f"unknown option {name!r} of format {FORMAT!r}; known: {', '.join(_DEFAULTS)}")
        options[names[name.lower()]] = value
    if options["read"] not in ("rows", "splits"):
        raise BadSetting(f"option read={options['read']!r} is unknown; known: rows, splits")
    for name in ("limitBytes", "parallelism"):
        if not options[name].isdigit() or int(options[name]) < 1:
            raise BadSetting(f"option {name}={options[name]!r} is not a whole number above 0")
    _position(options)
    _open(options)
    return options


def _open(options: Mapping[str, str]) -> Source:
    private = read_private(options["private"]) if options["private"] else None
    return open_source(options["uri"], ordering=options["ordering"], wake_mode=options["wakeMode"], private=private)


def _position(options: Mapping[str, str]) -> Offset | None:
    if not options["position"]:
        return None
    try:
        offset = json.loads(options["position"])
    except ValueError as exc:
        raise BadSetting(f"option position={options['position']!r} is not JSON: {exc}") from exc
    if not isinstance(offset, dict):
        raise BadSetting(f"option position={options['position']!r} is not a JSON object")
    return offset


def _demand(path: str, limit_bytes: int) -> Demand:
    """What the file says, but at most this limit; without a file only the limit. The driver replaces it by rename."""
    try:
        found = Demand.from_json(Path(path).read_text()) if path else Demand(limit_bytes)
    except FileNotFoundError:
        found = Demand(limit_bytes)
    return replace(found, limit_bytes=min(found.limit_bytes, limit_bytes))
