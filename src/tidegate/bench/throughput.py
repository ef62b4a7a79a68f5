"""`throughput`: the same prepared events through Tidegate and through Spark's own writer.

The input is made once: Parquet files of the events schema, 10 sysbench tables, inserts and then updates. Both sides
write the same lines from it, in turns, in one warm JVM, each into an empty directory. Tidegate's time runs from the
start of the changefeed until everything is on the sink and the checkpoint is written; it keeps order, writes index
files and the checkpoint, and nothing is taken off for that. MiB/s are of Tidegate's bytes for both, the ratio is that
of the medians. Processor seconds tell the two apart also on a machine that others use.
"""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from tidegate.bench.harness.feed import Ended, Feed, say, session
from tidegate.bench.harness.figures import MIB, Figures, mib_s, percentile
from tidegate.bench.harness.memory import CpuMeter, MemorySampler, cores
from tidegate.bench.harness.parameters import byte_size, count, duration, one_of
from tidegate.config.settings import size_bytes
from tidegate.errors import TidegateError
from tidegate.events import DELETE, INSERT, LAYOUT, ROW_KINDS, UPDATE
from tidegate.sources import Source, open_source
from tidegate.sources.parquet import write_events
from tidegate.sources.workload.sysbench import LAYOUT as TABLE

_FILES = 16  # Parquet files of the input: a multiple of the tasks that read at once
_ROUND_BYTES = 64 << 20  # what the workload hands out between two resolved marks
_LINE_FEED = b"\n"
_SQL_TYPES = {"int": 4, "char": 1}  # of the workload's columns


@dataclass(frozen=True)
class Parameters:
    """The flush interval is longer than ten tables need to fill a file on a slow machine: size must cut the files."""

    tables: int = count(10, "tables of the input")
    events: int = count(7_200_000, "changes in all, about 222 bytes of CSV each")
    rows: int = count(360_000, "inserts of each table; the rest are updates")
    pairs: int = count(3, "runs of each side, in turns")
    file_size: str = byte_size("64MiB", "file-size of the changefeed")
    flush_interval: str = duration("30s", "flush-interval of the changefeed")
    protocol: str = one_of("csv", "what both sides write", ("csv", "canal-json"))

    def workload(self) -> str:
        query = {"tables": self.tables, "events": self.events, "rows": self.rows, "seed": 1}
        return f"workload://sysbench?{urlencode(query)}"


@dataclass(frozen=True)
class Written:
    """One run of Spark's writer."""

    seconds: float
    cpu_seconds: float
    lines: int
    bytes: int


@dataclass(frozen=True)
class Pair:
    """One run of each side over the same input."""

    tidegate: Ended
    native: Written

    @property
    def native_mib_s(self) -> float:
        return mib_s(self.tidegate.landed_bytes, self.native.seconds)


def run(data_dir: Path, wanted: Parameters) -> Figures:
    events = prepare(data_dir, wanted)
    with session() as spark:
        say("warming up: the whole input through both sides, and a look at the memory of Tidegate's")
        feed = _tidegate(data_dir, wanted, events)
        with MemorySampler(ram_tiers=feed.ram_tier) as memory:  # not while it counts: looking costs a twentieth
            feed.run()
        write_native(spark, events, _native_dir(data_dir), wanted.protocol)
        pairs = [_measured(spark, data_dir, wanted, events, number) for number in range(wanted.pairs)]
        say("checking the last output against a replay of the input")
        check_rows("Tidegate", feed.check().rows, wanted.events)
    for side in (_tidegate_dir(data_dir), _native_dir(data_dir)):
        shutil.rmtree(side)
    return figures(pairs, memory.peak_bytes, size_bytes(wanted.file_size))


def figures(pairs: list[Pair], peak_bytes: int, file_size_bytes: int) -> Figures:
    landed = statistics.median(pair.tidegate.landed_mib_s for pair in pairs)
    native = statistics.median(pair.native_mib_s for pair in pairs)
    ratios = size_ratios(pairs, file_size_bytes)
    return {
        "landed_mib_s": landed,
        "native_mib_s": native,
        "ratio_to_native": landed / native,
        "mib_s_per_core": landed / cores(),
        "file_size_p50_ratio": percentile(ratios, 50),
        "file_size_p10_ratio": percentile(ratios, 10),
        "peak_rss_mib": peak_bytes / MIB,
        "cpu_s": statistics.median(pair.tidegate.cpu_seconds for pair in pairs),
        "native_cpu_s": statistics.median(pair.native.cpu_seconds for pair in pairs),
        "landed_mib": pairs[-1].tidegate.landed_bytes / MIB,
        "native_output_mib": pairs[-1].native.bytes / MIB,
        "size_flushed_files": len(ratios),
    }


def size_ratios(pairs: list[Pair], file_size_bytes: int) -> list[float]:
    """Size of every size-flushed file of all runs against `file-size`."""
    return [size / file_size_bytes for pair in pairs for size in pair.tidegate.size_flushed]


def _measured(spark: SparkSession, data_dir: Path, wanted: Parameters, events: Path, number: int) -> Pair:
    """One run of each side, and the checks that cost little: both wrote every event, and the same."""
    say(f"pair {number + 1} of {wanted.pairs}: Tidegate, then Spark's writer")
    ours = _tidegate(data_dir, wanted, events).run()
    theirs = write_native(spark, events, _native_dir(data_dir), wanted.protocol)
    pair = Pair(ours, theirs)
    say(
        f"  Tidegate {ours.landed_mib_s:.0f} MiB/s ({ours.seconds:.1f} s, processors {ours.cpu_seconds:.1f} s), "
        f"Spark's writer {pair.native_mib_s:.0f} MiB/s ({theirs.seconds:.1f} s, processors {theirs.cpu_seconds:.1f} s)"
    )
    check_rows("Tidegate", ours.landed_rows, wanted.events)
    check_rows("Spark's writer", theirs.lines, wanted.events)
    check_same(ours.landed_bytes, theirs, wanted.protocol)
    return pair


def check_rows(side: str, found: int, wanted: int) -> None:
    if found != wanted:
        raise TidegateError(f"{side} wrote {found} lines of {wanted} events, so its speed means nothing")


def check_same(landed_bytes: int, native: Written, protocol: str) -> None:
    """Both sides write the same bytes, but for the quotes of names and texts, which Spark's CSV writer leaves out."""
    quotes = 2 * (3 + sum(column.is_text for column in TABLE.columns)) if protocol == "csv" else 0
    if landed_bytes != native.bytes + quotes * native.lines:
        raise TidegateError(
            f"Tidegate wrote {landed_bytes} bytes but Spark's writer {native.bytes} and {quotes} quotes for each of "
            f"{native.lines} lines: the two did not write the same"
        )


def _tidegate_dir(data_dir: Path) -> Path:
    return data_dir.resolve() / "throughput-tidegate"


def _native_dir(data_dir: Path) -> Path:
    return data_dir.resolve() / "throughput-native"


def _tidegate(data_dir: Path, wanted: Parameters, events: Path) -> Feed:
    options = {"file-size": wanted.file_size, "flush-interval": wanted.flush_interval, "protocol": wanted.protocol}
    return Feed(f"parquet:{events}", _tidegate_dir(data_dir), data_dir.resolve() / "spool", options)


# -- Spark's writer ----------------------------------------------------------------------------------------------------


def write_native(spark: SparkSession, events: Path, target: Path, protocol: str) -> Written:
    """What Spark's writer takes for the same lines; the target is emptied before."""
    shutil.rmtree(target, ignore_errors=True)
    os.sync()
    cpu, started = CpuMeter(), time.monotonic()
    rows = spark.read.parquet(str(events)).where(f.col("kind").isin(*ROW_KINDS))
    lines = native_lines(rows) if protocol == "csv" else native_objects(rows)
    writer = lines.write.partitionBy("schema_name", "table_name").mode("overwrite").option("lineSep", "\r\n")
    if protocol == "csv":
        writer.option("nullValue", "\\N").csv(str(target))
    else:
        writer.text(str(target))
    seconds, cpu_seconds = time.monotonic() - started, cpu.seconds()
    return Written(seconds, cpu_seconds, *count_lines(target))


def native_lines(rows: DataFrame) -> DataFrame:
    """Operation, table, schema and values, as in Tidegate's lines; the partition columns are not part of a line."""
    marks = {INSERT: "I", UPDATE: "U", DELETE: "D"}
    operation = f.lit(None)
    for kind, mark in marks.items():
        operation = f.when(f.col("kind") == kind, mark).otherwise(operation)
    values = f.when(f.col("kind") == DELETE, f.col("before")).otherwise(f.col("after"))
    columns = [values[i].cast("string").alias(column.name) for i, column in enumerate(TABLE.columns)]
    named = [f.col("table_name").alias("table"), f.col("schema_name").alias("schema")]
    return rows.select(operation.alias("op"), *named, *columns, "schema_name", "table_name")


def native_objects(rows: DataFrame) -> DataFrame:
    """One canal-json object a row, made of Spark's structs."""
    columns = TABLE.columns

    def values(side: str) -> Column:
        return f.array(f.struct(*(f.col(side)[i].cast("string").alias(c.name) for i, c in enumerate(columns))))

    is_update, is_delete = f.col("kind") == UPDATE, f.col("kind") == DELETE
    fields = {
        "id": f.lit(0),
        "database": f.col("schema_name"),
        "table": f.col("table_name"),
        "pkNames": f.array(*(f.lit(c.name) for c in columns if c.pk)),
        "isDdl": f.lit(False),
        "type": f.upper("kind"),
        "es": f.shiftright("commit_ts", 18),
        "ts": f.lit(10**12),
        "sql": f.lit(""),
        "sqlType": f.struct(*(f.lit(_SQL_TYPES[c.type]).alias(c.name) for c in columns)),
        "mysqlType": f.struct(*(f.lit(c.type).alias(c.name) for c in columns)),
        "old": f.when(is_update, values("before")),
        "data": f.when(is_delete, values("before")).otherwise(values("after")),
    }
    text = f.to_json(f.struct(*(value.alias(name) for name, value in fields.items())), {"ignoreNullFields": "false"})
    return rows.select(text.alias("value"), "schema_name", "table_name")


def count_lines(directory: Path) -> tuple[int, int]:
    """(lines, bytes) of all data files below a directory; the workload's values hold no line feed."""
    lines = size = 0
    for path in (*directory.rglob("*.csv"), *directory.rglob("*.txt")):
        with path.open("rb", buffering=0) as file:
            while block := file.read(8 << 20):
                lines += block.count(_LINE_FEED)
                size += len(block)
    return lines, size


# -- the input ---------------------------------------------------------------------------------------------------------


def prepare(data_dir: Path, wanted: Parameters) -> Path:
    """The directory of the input; made once, whole or not at all, and named by what it holds."""
    name = f"events-{wanted.tables}-tables-{wanted.rows}-rows-{wanted.events}-events"
    ready = data_dir.resolve() / name
    if ready.is_dir():
        return ready
    say(f"preparing {wanted.events} events of {wanted.tables} tables in {ready} (once)")
    making = ready.with_name(f"{name}.{os.getpid()}.new")
    shutil.rmtree(making, ignore_errors=True)
    write_events(making, row_groups(open_source(wanted.workload())), max(1, wanted.events // _FILES))
    os.replace(making, ready)
    return ready


def row_groups(source: Source) -> Iterator[pa.RecordBatch]:
    """The source's batches from its start to its end, the layout only once."""
    offset, known = source.initial(), False
    while (end := source.latest(offset, _ROUND_BYTES, frozenset())) != offset:
        for split in source.splits(offset, end, 1):
            for batch in source.read(split):
                is_layout = batch.column("kind")[0].as_py() == LAYOUT
                if not (is_layout and known):
                    yield batch
                known = known or is_layout
        offset = end
