"""Jobs on executors: ingest of a micro-batch, and single tasks for landing and for moving parts of the spool."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import pyarrow as pa
from pyspark import TaskContext, cloudpickle
from pyspark.sql import DataFrame, SparkSession

from tidegate.executor.ingest import ingest, read_splits
from tidegate.executor.jobs import IngestJob
from tidegate.executor.rows import ITEMS, spark_ddl
from tidegate.sources.datasource import SPLIT_COLUMN

T = TypeVar("T")


def run_ingest(events: DataFrame, job: IngestJob, batch: int, shards: int) -> pa.Table:
    if events.columns != [SPLIT_COLUMN]:
        events = _in_order(events, job.options.ordering, shards)
    splits = events.columns == [SPLIT_COLUMN]

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        name = f"{batch}-{context.partitionId()}-{context.taskAttemptId()}"
        return ingest(read_splits(batches) if splits else batches, job, name)

    return events.mapInArrow(task, spark_ddl(ITEMS)).toArrow()


def _in_order(events: DataFrame, ordering: str, shards: int) -> DataFrame:
    """A DataFrame of unknown order: by table (or over the sequence), each partition sorted."""
    if ordering == "global":
        events = events.repartitionByRange(shards, "commit_ts")  # a transaction stays whole
    else:
        events = events.repartition(shards, "table_id")
    return events.sortWithinPartitions("table_id", "commit_ts", "seq")


def on_executor(spark: SparkSession, act: Callable[..., T]) -> Callable[..., T]:
    """`act` as a job of one task, with arguments that travel as bytes of their own and not as part of a closure."""
    sc = spark.sparkContext

    def run(*arguments: Any) -> T:
        def task(parts: Iterator[bytes]) -> Iterator[T]:
            for part in parts:
                yield act(*cloudpickle.loads(part))

        found: T = sc.parallelize([cloudpickle.dumps(arguments)], 1).mapPartitions(task).collect()[0]
        return found

    return run
