"""Tables of a database as change events by Spark's JDBC reader: what a user can write without a source of ours.

The drivers are fetched by scripts/ensure-jdbc.sh. A JDBC read is no stream, so one tick of a stream is joined with it:
all tables are one micro-batch.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import reduce
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from tidegate.bench.harness.databases import Database
from tidegate.events import EVENTS, EVENTS_DDL, INSERT, LAYOUT, tso
from tidegate.sources.workload.sysbench import LAYOUT as TABLE
from tidegate.spark.query import OpenSource, Position

_DRIVERS = Path(sys.prefix, "jdbc")
_TS = tso(1_767_225_600_000)
_FETCH_ROWS = str(-(1 << 31))  # Connector/J then gives rows as they come, instead of the whole answer first


def missing_driver() -> str:
    """Why JDBC cannot be tried here; empty if it can."""
    return "" if (_DRIVERS / ".ready").exists() else "the JDBC drivers are not fetched: make servers"


def jdbc_events(spark: SparkSession, database: Database, names: Sequence[str], rows: int, ticks: Path) -> OpenSource:
    """The rows of these tables, `id` from 0 to `rows`, and the layout that they share."""
    for jar in sorted(_DRIVERS.glob("*.jar")):
        spark.sql(f"ADD JAR '{jar}'")
    spark.conf.set("spark.sql.readSideCharPadding", "false")  # a CHAR without its spaces, as the log has it
    ticks.mkdir(parents=True, exist_ok=True)
    (ticks / "tick").write_text("tick\n", encoding="utf-8")

    def open_source(position: Position | None) -> DataFrame:
        tick = spark.readStream.text(str(ticks))
        tables = [_table(spark, database, name, rows, number) for number, name in enumerate(names, 1)]
        events = reduce(DataFrame.union, [_layouts(spark, len(names)), *tables])
        return f.broadcast(tick).crossJoin(events).select(*EVENTS.names)

    return open_source


def _layouts(spark: SparkSession, tables: int) -> DataFrame:
    """The layout once for each table, so that the task that gets a table's rows has it."""
    mark = {"kind": LAYOUT, "commit_ts": _TS, "seq": 0, "layout": TABLE.fingerprint, "ddl": TABLE.to_json()}
    marks = [mark | {"table_id": number} for number in range(1, tables + 1)]
    return spark.createDataFrame([tuple(each.get(name) for name in EVENTS.names) for each in marks], EVENTS_DDL)


def _table(spark: SparkSession, database: Database, name: str, rows: int, number: int) -> DataFrame:
    slots = spark.sparkContext.defaultParallelism
    read = spark.read.format("jdbc").options(
        url=f"jdbc:mysql://127.0.0.1:{database.port}/?sslMode=DISABLED&allowPublicKeyRetrieval=true",
        driver="com.mysql.cj.jdbc.Driver", dbtable=name, user="root", password="", fetchsize=_FETCH_ROWS,
        partitionColumn="id", lowerBound="0", upperBound=str(rows), numPartitions=str(slots),
    )  # fmt: skip
    schema, table = name.split(".")
    values = f.array(*(f.col(column.name).cast("string").cast("binary") for column in TABLE.columns))
    given: dict[str, Column] = {
        "kind": f.lit(INSERT), "schema_name": f.lit(schema), "table_name": f.lit(table), "table_id": f.lit(number),
        "schema_id": f.lit(1), "table_version": f.lit(_TS), "start_ts": f.lit(_TS), "commit_ts": f.lit(_TS + 1),
        "seq": f.col("id"), "layout": f.lit(TABLE.fingerprint), "after": values,
    }  # fmt: skip
    columns = [given.get(field.name, f.lit(None)).cast(_type_of(field.name)).alias(field.name) for field in EVENTS]
    return read.load().select(*columns)


def _type_of(column: str) -> str:
    """`bigint`, from EVENTS_DDL."""
    return dict(part.strip().split(" ", 1) for part in EVENTS_DDL.split(","))[column]
