"""`encode`: the encoders alone, on one core, against Python's `csv` module and `orjson` on the same rows.

Two tables: sysbench's four columns, and one of twenty columns with every kind of type. Ours starts from the Arrow batch
that a source hands over. The others get the same rows as Python objects made ready outside of the time taken, so only
the writing of text is compared; what making those objects takes is given apart (`objects_mib_s`). Both sides must write
the same bytes, but for the places where the formats of the libraries differ on purpose.
"""

from __future__ import annotations

import csv as csv_module
import io
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.bench.harness.feed import say
from tidegate.bench.harness.figures import Figures, mib_s
from tidegate.bench.harness.parameters import count
from tidegate.errors import TidegateError, UsageError
from tidegate.events import EVENTS, INSERT, ROW_KINDS
from tidegate.format.encode import protocol
from tidegate.format.encode.canal_json import CanalOptions
from tidegate.format.encode.csv import CsvOptions
from tidegate.format.sql.declared import declared_layout
from tidegate.format.sql.given import given_value
from tidegate.format.tables import Column, Layout
from tidegate.sources import open_source
from tidegate.sources.workload.sysbench import LAYOUT as SYSBENCH

NOW_MS = 1_767_225_600_000

MIXED = declared_layout(
    [
        "id bigint unsigned primary key", "tiny tinyint", "small smallint unsigned", "medium mediumint", "normal int",
        "bits bit(16)", "ratio double", "score float", "price decimal(12,2)", "name varchar(40)", "code char(8)",
        "note text", "raw varbinary(24)", "day date", "moment datetime(3)", "stamp timestamp", "span time",
        "colour enum('red','green','blue')", "flags set('a','b','c')", "doc json",
    ]
)  # fmt: skip


@dataclass(frozen=True)
class Parameters:
    rows: int = count(100_000, "rows of each of the two tables")
    batch: int = count(10_000, "rows that are encoded together")
    repeats: int = count(7, "runs of each side; the best one counts")


@dataclass(frozen=True)
class Input:
    layout: Layout
    batches: list[pa.RecordBatch]


def run(data_dir: Path, wanted: Parameters) -> Figures:
    say(f"making {wanted.rows} rows of each table")
    plain, mixed = sysbench_rows(wanted), mixed_rows(wanted)
    csv, json = CsvOptions(), CanalOptions()
    figures: Figures = {}
    say("csv: sysbench rows")
    figures |= compare("csv", "csv", plain, csv, _csv_lines, wanted.repeats)
    say("csv: rows of all types")
    figures |= compare("mixed_types_csv", "mixed_types_csv", mixed, csv, _csv_lines, wanted.repeats)
    say("canal-json: sysbench rows")
    figures |= compare("canal_json", "json", plain, json, _json_lines, wanted.repeats)
    say("canal-json: rows of all types")
    figures |= compare("mixed_types_canal_json", "mixed_types_json", mixed, json, _json_lines, wanted.repeats)
    return figures


def compare(
    name: str,
    ratio: str,
    rows: Input,
    options: protocol.Encoding,
    library: Callable[[list[bytes], Input], tuple[list[Any], Callable[[list[Any]], bytes]]],
    repeats: int,
) -> Figures:
    """Speed of ours and of the library over the same rows, after a check that both write the same."""
    texts = [_encoded(batch, rows.layout, options) for batch in rows.batches]
    size = sum(map(len, texts))
    started = time.process_time()
    objects, write = library(texts, rows)
    objects_s = time.process_time() - started
    if write(objects) != b"".join(texts):
        raise TidegateError(f"{name}: the library writes other bytes than the encoder, so their speeds mean nothing")
    ours_s = best(lambda: [_encoded_size(batch, rows.layout, options) for batch in rows.batches], repeats)
    theirs_s = best(lambda: write(objects), repeats)
    other = "stdlib" if isinstance(options, CsvOptions) else "orjson"
    return {
        f"{name}_mib_s_core": mib_s(size, ours_s),
        f"{name}_{other}_mib_s": mib_s(size, theirs_s),
        f"{ratio}_ratio_to_{other}": theirs_s / ours_s,
        f"{name}_objects_mib_s": mib_s(size, objects_s),
    }


def best(act: Callable[[], object], repeats: int) -> float:
    """The least processor time of several runs: what others do on the machine counts as little as it can."""
    times = []
    for _ in range(repeats):
        started = time.process_time()
        act()
        times.append(time.process_time() - started)
    return min(times)


def _encoded(batch: pa.RecordBatch, layout: Layout, options: protocol.Encoding) -> bytes:
    lines = protocol.encode(batch, np.arange(batch.num_rows), layout, options, None, NOW_MS)
    return b"".join(lines.to_pylist())


def _encoded_size(batch: pa.RecordBatch, layout: Layout, options: protocol.Encoding) -> int:
    lines = protocol.encode(batch, np.arange(batch.num_rows), layout, options, None, NOW_MS)
    return int(lines.buffers()[2].size)


def _csv_lines(texts: list[bytes], rows: Input) -> tuple[list[Any], Callable[[list[Any]], bytes]]:
    """The fields of every line as numbers and texts, and a `csv` writer that quotes the texts."""
    turns: list[Callable[[str], Any]] = [str, str, str, *(_turn(column) for column in rows.layout.stored)]
    reader = csv_module.reader(io.StringIO(b"".join(texts).decode(), newline=""))
    lines = [[turn(field) for turn, field in zip(turns, line, strict=True)] for line in reader]

    def write(lines: list[Any]) -> bytes:
        out = io.StringIO(newline="")
        csv_module.writer(out, quoting=csv_module.QUOTE_NONNUMERIC).writerows(lines)
        return out.getvalue().encode()

    return lines, write


def _turn(column: Column) -> Callable[[str], Any]:
    if column.is_text:
        return str
    return float if column.type in ("float", "double") else int


def _json_lines(texts: list[bytes], rows: Input) -> tuple[list[Any], Callable[[list[Any]], bytes]]:
    """The objects of all lines, and what writes them with orjson."""
    try:
        import orjson
    except ImportError as exc:
        raise UsageError("this benchmark compares with orjson, which is not installed: pip install orjson") from exc
    lines = [orjson.loads(line) for text in texts for line in text.splitlines()]

    def write(lines: list[Any]) -> bytes:
        dumps = orjson.dumps
        return b"".join([dumps(line) + b"\r\n" for line in lines])

    return lines, write


# -- rows --------------------------------------------------------------------------------------------------------------


def sysbench_rows(wanted: Parameters) -> Input:
    """Inserts, then updates, as the workload makes them."""
    source = open_source(f"workload://sysbench?tables=1&rows={max(1, wanted.rows // 2)}&events={wanted.rows}&seed=1")
    found: list[pa.RecordBatch] = []
    offset = source.initial()
    while (end := source.latest(offset, 64 << 20, frozenset())) != offset:
        for split in source.splits(offset, end, 1):
            found += source.read(split)
        offset = end
    changes = [batch.filter(pc.is_in(batch.column("kind"), value_set=pa.array(ROW_KINDS))) for batch in found]
    table = pa.Table.from_batches(changes).combine_chunks()
    return Input(SYSBENCH, table.to_batches(max_chunksize=wanted.batch))


def mixed_rows(wanted: Parameters) -> Input:
    """Inserts into a table of all types; a thousand different rows again and again, so that making them is quick."""
    rng = np.random.default_rng(1)
    kept = [_mixed_row(n, rng) for n in range(min(1000, wanted.rows))]
    rows = pa.RecordBatch.from_pylist(kept, schema=EVENTS)
    rows = rows.take(pa.array(np.arange(wanted.rows) % len(kept)))
    return Input(MIXED, pa.Table.from_batches([rows]).combine_chunks().to_batches(max_chunksize=wanted.batch))


def _mixed_row(n: int, rng: np.random.Generator) -> dict[str, Any]:
    letters = "".join(map(chr, rng.integers(97, 123, 60)))
    values = [
        n + 1, n % 100 - 50, n % 60000, n * 7 - 3000, n * 1_000_003 % 2_000_000_000, n % 65536, n + 0.25,
        n % 1000 + 0.5, f"{n}.{n % 100:02d}", letters[:24], letters[24:32], f'a "quoted" word and {letters}',
        letters[32:48], f"2026-{n % 12 + 1:02d}-{n % 28 + 1:02d}",
        f"2026-01-{n % 28 + 1:02d} 12:34:56.{n % 1000:03d}",
        f"2026-02-{n % 28 + 1:02d} 01:02:03", f"{n % 24:02d}:59:59", n % 3 + 1, n % 8, {"n": n, "s": letters[:10]},
    ]  # fmt: skip
    after = [given_value(column, value) for column, value in zip(MIXED.stored, values, strict=True)]
    row = {"kind": INSERT, "schema_name": "bench", "table_name": "mixed", "table_id": 1, "logical_table_id": 1}
    row |= {"table_version": 1, "start_ts": 1, "commit_ts": (NOW_MS << 18) + n, "seq": n}
    return row | {"layout": MIXED.fingerprint, "after": after}
