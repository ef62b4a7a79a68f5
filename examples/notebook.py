# %% [markdown]
# # A changefeed in a notebook
#
# Run it cell by cell in an editor that knows `# %%`, or as a whole: `python examples/notebook.py`. A stream of numbers
# becomes changes of a table; they land while you look at them, and are read back with Spark.

# %%
import os
import sys
import tempfile
import time
from collections.abc import Iterator

os.environ["PYSPARK_PYTHON"] = sys.executable  # Spark's workers must run the same Python

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

import tidegate
from tidegate.events import EVENTS

spark = SparkSession.builder.master("local[2,4]").config("spark.scheduler.mode", "FAIR").getOrCreate()
place = os.environ.get("TIDEGATE_EXAMPLE", tempfile.mkdtemp(prefix="tidegate-"))

# %% [markdown]
# The table on the sink: two columns. A change needs a commit-ts, which grows, and a layout.

# %%
TICKS = tidegate.Layout((tidegate.Column("id", "bigint", pk=True, nullable=False), tidegate.Column("note", "varchar")))
START_TS = 1_767_225_600_000 << 18


def ticks(position: tidegate.Position | None) -> DataFrame:
    numbers = spark.readStream.format("rate").options(rowsPerSecond=500, numPartitions=1).load()
    return numbers.selectExpr(
        "'insert' AS kind",
        "'clock' AS schema_name",
        "'ticks' AS table_name",
        "1L AS table_id",
        "1L AS logical_table_id",
        "1L AS schema_id",
        f"{START_TS}L AS table_version",
        f"{START_TS}L + value AS start_ts",
        f"{START_TS}L + value + 1 AS commit_ts",
        "value AS seq",
        f"{TICKS.fingerprint}L AS layout",
        "array(binary(string(value)), binary(string(timestamp))) AS after",
        "CAST(NULL AS array<binary>) AS before",
        "CAST(NULL AS string) AS ddl",
    ).mapInArrow(with_marks, tidegate.EVENTS_DDL)


def with_marks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The layout before the rows; behind them a resolved mark, because the one partition of this source is in order."""
    layout = {"kind": "layout", "commit_ts": 0, "seq": 0, "layout": TICKS.fingerprint, "ddl": TICKS.to_json()}
    yield pa.RecordBatch.from_pylist([layout], schema=EVENTS)
    last_ts = 0
    for batch in batches:
        last_ts = max(last_ts, pc.max(batch.column("commit_ts")).as_py() or 0)
        yield batch.cast(EVENTS)  # all batches of a task have one schema
    if last_ts:
        mark = {"kind": "resolved", "commit_ts": last_ts, "seq": 0}
        yield pa.RecordBatch.from_pylist([mark], schema=EVENTS)


# %%
handle = tidegate.write_stream(ticks, f"file://{place}/out", flush_interval="1s", spool_dir=f"{place}/spool")

# %% [markdown]
# It runs beside you. Look at it whenever you like.

# %%
while not (handle.done or handle.status().checkpoint_ts):
    time.sleep(0.2)
status = handle.status()
print(status.state, f"{status.rows_landed} rows landed in {status.files} files, lag {status.lag_s:.1f} s")
print(handle.tables(by="lag", k=3))

# %% [markdown]
# An orderly stop lands what is spooled and writes the checkpoint.

# %%
handle.stop()
handle.await_termination()
print(f"{handle.status().rows_landed} rows are durable up to checkpoint-ts {handle.status().checkpoint_ts}")

# %%
landed = spark.read.csv(
    f"{place}/out/clock/ticks/*/*/CDC*.csv", schema="op string, t string, s string, id bigint, note string"
)
landed.orderBy("id").show(3, truncate=False)
spark.stop()
