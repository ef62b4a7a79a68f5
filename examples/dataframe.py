"""A DataFrame of your own, landed in TiCDC's layout.

    python examples/dataframe.py [DIR]

Makes some changes of a table as JSON lines, reads them as a stream, turns them into change events with Spark's own
functions, and lands them in DIR/out (default: ./example). What it prints at the end is the tree of files.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

os.environ["PYSPARK_PYTHON"] = sys.executable  # Spark's workers must run the same Python

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import tidegate
from tidegate.events import EVENTS

# The columns of the table on the sink. Every row names its layout by the fingerprint.
ORDERS = tidegate.Layout(
    (
        tidegate.Column("id", "int", pk=True, nullable=False),
        tidegate.Column("item", "varchar", flen=40),
        tidegate.Column("cents", "int"),
    )
)
CREATED_TS = 1_767_225_600_000 << 18  # the version of the table: a TSO, milliseconds since 1970 and 18 bits behind them


def make_changes(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    inserts = [
        {"n": n, "op": "insert", "ms": 1_767_225_600_000 + n, "id": n, "item": f"pen {n}", "cents": 120 + n}
        for n in range(1, 1001)
    ]
    deletes = [{**inserts[n], "n": 1001 + n, "op": "delete", "ms": 1_767_225_601_001 + n} for n in range(10)]
    (folder / "changes.json").write_text("".join(json.dumps(line) + "\n" for line in inserts + deletes))


def with_layout(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Each task sends the layout before its rows; repeats are harmless."""
    row = {"kind": "layout", "commit_ts": 0, "seq": 0, "layout": ORDERS.fingerprint, "ddl": ORDERS.to_json()}
    yield pa.RecordBatch.from_pylist([row], schema=EVENTS)
    yield from (batch.cast(EVENTS) for batch in batches)  # all batches of a task have one schema


def change_events(changes: DataFrame) -> DataFrame:
    """The columns of `tidegate.EVENTS_DDL`, in its order; values are texts in the order of the layout's columns."""
    values = "array(binary(string(id)), binary(item), binary(string(cents)))"
    return changes.selectExpr(
        "op AS kind",
        "'shop' AS schema_name",
        "'orders' AS table_name",
        "1L AS table_id",
        "1L AS logical_table_id",
        "1L AS schema_id",
        f"{CREATED_TS}L AS table_version",
        "shiftleft(ms, 18) - 1 AS start_ts",
        "shiftleft(ms, 18) AS commit_ts",
        "n AS seq",
        f"{ORDERS.fingerprint}L AS layout",
        f"if(op = 'delete', NULL, {values}) AS after",
        f"if(op = 'insert', NULL, {values}) AS before",
        "CAST(NULL AS string) AS ddl",
    ).mapInArrow(with_layout, tidegate.EVENTS_DDL)


def main(folder: str = "example") -> None:
    place = Path(folder).absolute()
    make_changes(place / "changes")
    spark = SparkSession.builder.master("local[2,4]").config("spark.scheduler.mode", "FAIR").getOrCreate()

    def open_source(position: tidegate.Position | None) -> DataFrame:
        # A source that can seek starts at position.offset. Files cannot, so all is read again after a restart, and
        # Tidegate drops what is durable already.
        schema = "n bigint, op string, ms bigint, id int, item string, cents int"
        return change_events(spark.readStream.schema(schema).json(str(place / "changes")))

    handle = tidegate.write_stream(
        open_source, f"file://{place}/out", finite=True, flush_interval="2s", spool_dir=str(place / "spool")
    )
    handle.await_termination()
    print(f"{handle.status().rows_landed} rows landed")
    for path in sorted((place / "out").rglob("*")):
        if path.is_file() and "_tidegate" not in path.parts:
            print(path.relative_to(place))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
