"""What a task must know to decode its part of the relay: a small file that the planner writes beside the segments.

Three tables of Arrow follow each other in it: the row events (where each is, whose it is, its commit-ts and its place
in the transaction), the tables of these events and of no others, and rows of EVENTS that come as they are: DDLs and
their layouts. So a task never loads the catalogue, and a split is only the path of this file.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidegate.errors import SourceUnavailable
from tidegate.events import EVENTS
from tidegate.sources.mysql.log.images import Numbers
from tidegate.sources.mysql.tables import Followed

_ROWS = ("segment", "start", "size", "kind", "table", "ordinal", "ts")
_ROW_SCHEMA = pa.schema([(name, pa.int64()) for name in _ROWS])
_TABLES = pa.schema(
    [
        ("number", pa.int64()), ("body", pa.binary()), ("schema", pa.string()), ("table", pa.string()),
        ("table_id", pa.int64()), ("schema_id", pa.int64()), ("version", pa.int64()), ("layout", pa.int64()),
        ("text", pa.string()), ("stored", pa.list_(pa.int64())),
    ]
)  # fmt: skip


@dataclass(frozen=True)
class Part:
    """Row events by columns; `table` is a number in `tables`, `segment` one in `segments`."""

    segment: Numbers
    start: Numbers
    size: Numbers
    kind: Numbers
    table: Numbers
    ordinal: Numbers
    ts: Numbers
    segments: dict[int, str]
    tables: dict[int, Followed]
    control: pa.RecordBatch

    def __len__(self) -> int:
        return len(self.start)


def write_part(path: str, part: Part) -> None:
    """In one step, so that nobody reads half of it."""
    columns = [pa.array(getattr(part, name)) for name in _ROWS]
    named = {str(number).encode(): name.encode() for number, name in part.segments.items()}
    rows = pa.RecordBatch.from_arrays(columns, schema=_ROW_SCHEMA.with_metadata(named))
    temp = f"{path}.new"
    try:
        with open(temp, "wb") as file:
            for batch in (rows, _table_batch(part.tables), part.control):
                with pa.ipc.new_stream(file, batch.schema) as stream:
                    stream.write_batch(batch)
        os.replace(temp, path)
    except OSError as exc:
        raise SourceUnavailable(f"cannot write {path} for the tasks: {exc.strerror}") from exc


def read_part(path: str) -> Part:
    try:
        data = Path(path).read_bytes()
    except OSError as exc:
        raise SourceUnavailable(f"{path} is gone, with what a task must know; the changefeed starts again") from exc
    reader = pa.BufferReader(data)
    rows, tables, control = (pa.ipc.open_stream(reader).read_all() for _ in range(3))
    segments = {int(number): name.decode() for number, name in (rows.schema.metadata or {}).items()}
    columns: dict[str, Any] = {name: rows[name].to_numpy() for name in _ROWS}
    events = control.combine_chunks().to_batches()
    others = events[0] if events else pa.RecordBatch.from_pylist([], EVENTS)
    return Part(**columns, segments=segments, tables=_tables(tables), control=others)


def _table_batch(tables: dict[int, Followed]) -> pa.RecordBatch:
    each = list(tables.values())
    columns: Sequence[Sequence[object]] = [
        list(tables),
        [table.body for table in each],
        [table.schema for table in each],
        [table.table for table in each],
        [table.table_id for table in each],
        [table.schema_id for table in each],
        [table.version for table in each],
        [table.fingerprint for table in each],
        [table.layout for table in each],
        [table.stored for table in each],
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _TABLES, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_TABLES)


def _tables(found: pa.Table) -> dict[int, Followed]:
    fields: list[list[Any]] = [found[name].to_pylist() for name in _TABLES.names]
    number, *others, stored = fields
    rows = zip(*others, map(tuple, stored), strict=True)
    return {key: Followed(*values) for key, values in zip(number, rows, strict=True)}
