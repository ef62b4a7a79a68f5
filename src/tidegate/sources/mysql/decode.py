"""A part of the relay as batches of EVENTS, in a task. No Python step for each row.

Events are decoded some MiB at a time, those of all tables of one shape together. For each table the rows come in the
order of the log: where a table changes its columns, a new piece begins. `seq` is the number of the event in its
transaction and the row in the event, `event << 32 | row`: all events count, whoever follows them, so a row has the same
`seq` whatever is left out.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from tidegate.errors import SourceUnavailable
from tidegate.events import EVENTS
from tidegate.sources.mysql.log.framing import Events
from tidegate.sources.mysql.log.images import Numbers
from tidegate.sources.mysql.log.rows import KINDS, Rows, TableMaps, decode_rows
from tidegate.sources.mysql.log.table_map import TableMap
from tidegate.sources.mysql.parts import Part
from tidegate.sources.mysql.tables import Followed, learn
from tidegate.sources.source import BATCH_BYTES, layout_rows

_KINDS = pa.array(KINDS)
_BEFORE = 8  # bytes before an event that numbers may be read with (`images.unsigned`)


def read_rows(part: Part) -> Iterator[pa.RecordBatch]:
    """The layouts that the rows use, what comes as it is, and the rows."""
    if layouts := {table.fingerprint: table.layout for table in part.tables.values()}:
        yield layout_rows(layouts, 0)
    if part.control.num_rows:
        yield part.control
    maps = TableMaps()
    for first, last in _pieces(part):
        used = np.unique(part.table[first:last]).tolist()
        yield from _decoded(part, first, last, maps, learn(maps, (part.tables[number] for number in used)))


def _pieces(part: Part) -> Iterator[tuple[int, int]]:
    """Consecutive row events of one segment, in which no table changes its columns."""
    first, count = 0, len(part)
    ends = np.cumsum(part.size)
    breaks = np.append(np.flatnonzero(np.diff(part.segment)) + 1, count)
    while first < count:
        before = int(ends[first] - part.size[first])
        fitting = int(np.searchsorted(ends, before + BATCH_BYTES, side="right"))
        last = min(max(first + 1, fitting), int(breaks[np.searchsorted(breaks, first, side="right")]))
        last = _without_change(part, first, last)
        yield first, last
        first = last


def _without_change(part: Part, first: int, last: int) -> int:
    """Where a table of this piece has other columns than before in it, or the end of the piece."""
    numbers, at = np.unique(part.table[first:last], return_index=True)
    if len(numbers) == 1:
        return last
    layouts: dict[int, int] = {}
    seen: set[bytes] = set()
    for number, place in sorted(zip(numbers.tolist(), at.tolist(), strict=True), key=lambda each: each[1]):
        table = part.tables[number]
        if layouts.setdefault(table.table_id, table.fingerprint) != table.fingerprint or table.log_id in seen:
            return first + int(place)
        seen.add(table.log_id)
    return last


def _decoded(
    part: Part, first: int, last: int, maps: TableMaps, by_id: dict[int, Followed]
) -> Iterator[pa.RecordBatch]:
    for rows in _rows(part, first, last, maps, _columns(by_id)):
        if len(rows.event):
            yield _batch(rows, part, first, by_id)


def _rows(
    part: Part, first: int, last: int, maps: TableMaps, columns: Callable[[TableMap], tuple[int, ...]]
) -> Iterator[Rows]:
    start = part.start[first:last]
    end = start + part.size[first:last]
    kind = part.kind[first:last].astype(np.uint8)
    low = max(0, int(start[0]) - _BEFORE)
    log = memoryview(_mapped(part.segments[int(part.segment[first])], int(end[-1])))[low : int(end[-1])]
    return decode_rows(log, Events(start - low, end - low, kind), maps, columns)


def key_rows(part: Part, key: Sequence[str]) -> Iterator[Rows]:
    """The values of these columns alone, in rows of one table."""

    def columns(table: TableMap) -> tuple[int, ...]:
        names = [column.name for column in table.columns]
        return tuple(names.index(name) for name in key)

    maps = TableMaps()
    for first, last in _pieces(part):
        learn(maps, (part.tables[number] for number in np.unique(part.table[first:last]).tolist()))
        yield from _rows(part, first, last, maps, columns)


def _columns(by_id: dict[int, Followed]) -> Callable[[TableMap], tuple[int, ...]]:
    def stored(table: TableMap) -> tuple[int, ...]:
        return by_id[table.table_id].stored

    return stored


def _mapped(path: str, least: int) -> mmap.mmap:
    try:
        file = os.open(path, os.O_RDONLY)
        try:
            log = mmap.mmap(file, 0, access=mmap.ACCESS_READ)
        finally:
            os.close(file)
    except (OSError, ValueError) as exc:
        raise SourceUnavailable(f"{path} is gone, a part of the relay; the changefeed starts again") from exc
    if len(log) < least:
        log.close()
        raise SourceUnavailable(f"{path}, a part of the relay, is shorter than it was; the changefeed starts again")
    return log


def _batch(rows: Rows, part: Part, first: int, by_id: dict[int, Followed]) -> pa.RecordBatch:
    event = first + rows.event
    tables = [by_id.get(table.table_id) for table in rows.tables]  # rows has also those of other shapes
    of = pa.array(rows.table)
    ts, ts_before = pa.array(part.ts[event]), pa.array(part.ts[event] - 1)
    seq = part.ordinal[event] << 32 | within(rows.event)

    def each(name: str, kind: pa.DataType) -> pa.Array:
        return pa.array([None if table is None else getattr(table, name) for table in tables], kind).take(of)

    table_id = each("table_id", pa.int64())
    columns = [
        _KINDS.take(pa.array(rows.kind)), each("schema", pa.string()), each("table", pa.string()), table_id, table_id,
        each("schema_id", pa.int64()), each("version", pa.int64()), ts_before, ts, pa.array(seq),
        each("fingerprint", pa.int64()), rows.after, rows.before, pa.nulls(len(event), pa.string()),
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays(columns, schema=EVENTS)


def within(event: Numbers) -> Numbers:
    """The number of each row in its event."""
    begin = np.flatnonzero(np.diff(event, prepend=-1))
    return np.arange(len(event)) - np.repeat(begin, np.diff(np.append(begin, len(event))))
