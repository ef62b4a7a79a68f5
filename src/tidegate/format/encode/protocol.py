"""One entry for both protocols: ingest, landing, verify and the command line call this module to encode rows."""

from __future__ import annotations

import pyarrow as pa

from tidegate.format.encode import canal_json, csv
from tidegate.format.encode.canal_json import CanalOptions
from tidegate.format.encode.csv import CsvOptions
from tidegate.format.pieces import Numbers
from tidegate.format.tables import Layout

Encoding = CsvOptions | CanalOptions
EXTENSIONS = {"csv": ".csv", "canal-json": ".json"}


def encode(
    rows: pa.RecordBatch,
    order: Numbers,
    layout: Layout,
    options: Encoding,
    selected: tuple[int, ...] | None = None,
    now_ms: int = 0,
) -> pa.Array:
    """The text of row `order[0]`, of row `order[1]`, and so on: a binary array with one entry per number of `order`.

    `now_ms` is the moment of writing, which canal-json puts into every line.
    """
    if isinstance(options, CsvOptions):
        return csv.encode(rows, order, layout, options, selected)
    return canal_json.encode(rows, order, layout, options, selected, now_ms)


def has_header(options: Encoding) -> bool:
    return isinstance(options, CsvOptions) and options.output_field_header


def header(layout: Layout, options: Encoding, selected: tuple[int, ...] | None = None) -> bytes:
    """The bytes at the beginning of every data file; none for canal-json."""
    return csv.header(layout, options, selected) if isinstance(options, CsvOptions) else b""
