"""What crosses between driver and tasks: items (ingest to driver), plans (driver to landing), receipts (back).

The schemas say what crosses as Arrow; `FilePlan` and `Receipt` are one row of them for code that works row by row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa

from tidegate.format.ddl.files import SchemaFile
from tidegate.format.layout import DataKey

# Kinds of items besides resolved, ddl and layout. The segment of a layout item is a file with new layouts. A stale one
# counts rows that were durable before, a filtered one rows that the filter leaves out (its text: some of their tables,
# as JSON), one set aside rows of a table that cannot be written, with the last reason as text.
ROWS, STALE, FILTERED, UNKNOWN_LAYOUT, ERROR = "rows", "stale", "filtered", "unknown-layout", "error"
SET_ASIDE = "set-aside"
# Outcomes of a receipt:
#   unfinished   a retry may succeed                       refused    somebody must change something first
#   hung         the store gave no answer                  conflict   another object exists under the file's name
#   lost         its part of the spool is gone             landed     data and index are durable
#   elsewhere    nothing was written: a schema file with the same columns exists under another version, or files exist
#                in the directory that the driver does not know. The receipt says where the files go on.
LANDED, UNFINISHED, HUNG, REFUSED, CONFLICT = "landed", "unfinished", "hung", "refused", "conflict"
LOST, ELSEWHERE = "lost", "elsewhere"

ITEMS = pa.schema(
    [
        ("kind", pa.string()),
        ("table_id", pa.int64()),
        ("span", pa.int32()),
        ("logical_table_id", pa.int64()),
        ("schema_id", pa.int64()),
        ("schema_name", pa.string()),
        ("table_name", pa.string()),
        ("version", pa.int64()),
        ("layout", pa.int64()),
        ("first_ts", pa.int64()),
        ("first_seq", pa.int64()),
        ("last_ts", pa.int64()),
        ("last_seq", pa.int64()),
        ("rows", pa.int64()),
        ("tier", pa.int32()),
        ("segment", pa.string()),
        ("offset", pa.int64()),
        ("length", pa.int64()),
        ("checksum", pa.int64()),  # of its bytes
        ("moved", pa.int32()),  # whether the first and the last transaction have inserts of split updates
        ("text", pa.string()),  # a DDL's JSON, the sentence of an error, a reason
    ]
)


def with_all_columns(columns: dict[str, pa.Array], count: int) -> pa.RecordBatch:
    """So many items with these columns, and NULL in all others."""
    nothing = {field.name: pa.nulls(count, field.type) for field in ITEMS if field.name not in columns}
    return pa.RecordBatch.from_pydict(columns | nothing, schema=ITEMS)


PLANS = pa.schema(
    [
        ("file", pa.int64()),
        ("lane", pa.int64()),
        ("schema_name", pa.string()),
        ("table_name", pa.string()),
        ("table_id", pa.int64()),
        ("own_directory", pa.bool_()),
        ("dispatcher", pa.string()),
        ("version", pa.int64()),
        ("directory", pa.int64()),
        ("layout", pa.int64()),
        ("selected", pa.list_(pa.int32())),
        ("date", pa.string()),
        ("number", pa.int64()),
        ("schema", pa.int8()),
        ("bytes", pa.int64()),
        ("tag", pa.string()),
        ("segments", pa.list_(pa.int32())),
        ("offsets", pa.list_(pa.int64())),
        ("lengths", pa.list_(pa.int64())),
    ]
)

RECEIPTS = pa.schema(
    [
        ("file", pa.int64()),
        ("outcome", pa.string()),
        ("path", pa.string()),
        ("bytes", pa.int64()),
        ("data_s", pa.float64()),
        ("index_s", pa.float64()),
        ("schema_check_s", pa.float64()),
        ("schema_write_s", pa.float64()),
        ("requests", pa.int64()),
        ("tag", pa.string()),
        ("found_version", pa.int64()),
        ("found_number", pa.int64()),
        ("error", pa.string()),
    ]
)


class FilePlan(NamedTuple):
    """One data file to land: a row of PLANS, with the same fields. A named tuple: a round may have 20,000 of them."""

    file: int  # its place in the round
    lane: int
    schema_name: str
    table_name: str
    table_id: int
    own_directory: bool  # the table id is in its path: it is a partition, or the plain path is another table's
    dispatcher: str
    version: int
    directory: int  # the version whose directory it goes to
    layout: int
    selected: Sequence[int] | None  # columns that are written; None for all
    date: str
    number: int
    schema: int  # what to do about the schema file first: see `format/tables.py`
    bytes: int
    tag: str  # that the index of its lane should have now; "" if unknown
    segments: Sequence[int]  # of its slices, with the two below
    offsets: Sequence[int]
    lengths: Sequence[int]

    @property
    def key(self) -> DataKey:
        names = self.schema_name, self.table_name
        return DataKey(*names, self.directory, self.table_id, self.own_directory, self.date, self.dispatcher)


def file_plans(table: pa.Table) -> list[FilePlan]:
    """By columns: as fast as dicts would be."""
    return list(map(FilePlan._make, zip(*(_values(column) for column in table.columns), strict=True)))


def _values(column: pa.ChunkedArray) -> list[Any]:
    """As `to_pylist`, which takes ten times as long for lists."""
    if not pa.types.is_list(column.type) or column.null_count:
        return list(column.to_pylist())
    lists = column.combine_chunks()
    values, bounds = lists.values.to_pylist(), lists.offsets.to_pylist()
    return [values[first:last] for first, last in pairwise(bounds)]


class SchemaPlan(NamedTuple):
    """The schema files of one DDL, to be put in order; a DDL may have none."""

    file: int  # its place in the job
    files: Sequence[SchemaFile]


@dataclass(slots=True)
class Receipt:
    """What became of one plan: a row of RECEIPTS, with the same fields."""

    file: int
    outcome: str = UNFINISHED
    path: str = ""
    bytes: int = 0
    data_s: float = 0.0
    index_s: float = 0.0
    schema_check_s: float = 0.0
    schema_write_s: float = 0.0
    requests: int = 0
    tag: str = ""  # of the index after this file; "" if unknown, or if it follows from the content
    found_version: int = 0
    found_number: int = 0
    error: str | None = None


def receipt_table(receipts: Sequence[Receipt]) -> pa.Table:
    columns = [
        pa.array([getattr(receipt, name) for receipt in receipts], kind)
        for name, kind in zip(RECEIPTS.names, RECEIPTS.types, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=RECEIPTS)


def unanswered(files: Iterable[int], error: str) -> pa.Table:
    """Receipts of a job whose task was lost: nobody knows what became of its files."""
    return receipt_table([Receipt(file, error=error) for file in files])


_SPARK_TYPES = {
    pa.string(): "string",
    pa.int64(): "bigint",
    pa.int32(): "int",
    pa.float64(): "double",
    pa.bool_(): "boolean",
}


def spark_ddl(schema: pa.Schema) -> str:
    """The schema in Spark's words: `file bigint, outcome string, ...`."""
    return ", ".join(f"`{field.name}` {_SPARK_TYPES[field.type]}" for field in schema)
