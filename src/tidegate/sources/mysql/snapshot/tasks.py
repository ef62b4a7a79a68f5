"""What tasks do for a snapshot: read a chunk and stage it, or emit a part of one.

Both are splits of a micro-batch. The first has no rows. The second has the rows of the part that the log did not touch
since they were read, as inserts with one commit-ts; their seq is the number of the row in the part.

A table without a key is emitted all at once. Its rows are all inserts, and behind them come its changes in the log
since they were read, with the same commit-ts: equal rows cannot be told apart, so none of them can be left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc
from pymysql.connections import Connection

from tidegate.errors import SourceUnavailable
from tidegate.events import EVENTS, INSERT
from tidegate.format.tables import Layout
from tidegate.sources.mysql.address import Address
from tidegate.sources.mysql.connect import connected, server_facts
from tidegate.sources.mysql.decode import key_rows, read_rows, within
from tidegate.sources.mysql.log.rows import KINDS
from tidegate.sources.mysql.log.table_map import TableMap
from tidegate.sources.mysql.parts import read_part as read_log_part
from tidegate.sources.mysql.snapshot.early import early_keys, early_rows
from tidegate.sources.mysql.snapshot.emit import touched_keys, untouched
from tidegate.sources.mysql.snapshot.stage import Order, read_part, stage
from tidegate.sources.mysql.snapshot.visible import LogPlace
from tidegate.sources.source import layout_rows
from tidegate.storage.store import Store

_READ_TIMEOUT_S = 300  # a server may look for rows for long before the first one comes


@dataclass(frozen=True)
class Emission:
    """A part of a chunk at its place in the log, or a table without a key: then `key` is empty.

    `changes` is the file with the table's row events since the chunk was read, `early` one with what was before the
    start of the relay: keys, or changes of so many row events; "" if there are none.
    """

    name: str
    paths: tuple[str, ...]
    schema: str
    table: str
    table_id: int
    schema_id: int
    version: int
    layout: int
    layout_text: str
    key: tuple[str, ...]
    positions: tuple[int, ...]
    ts: int
    changes: str = ""
    early: str = ""
    early_events: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(found: dict[str, Any]) -> Emission:
        return Emission(**found | {name: tuple(found[name]) for name in ("paths", "key", "positions")})


def read_chunk(address: Address, password: str, store: Store, order: dict[str, Any]) -> None:
    with connected(address, password, read_timeout=_READ_TIMEOUT_S) as connection:
        stage(connection, address, server_facts(connection, address).is_mariadb, store, Order.from_json(order))


def emit_part(store: Store, found: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    emission = Emission.from_json(found)
    yield layout_rows({emission.layout: emission.layout_text}, 0)
    rows = (lists for path in emission.paths for lists in read_part(store, path))
    touched = _touched(emission) if emission.key else pa.array([], pa.binary())
    for lists, numbers in untouched(rows, emission.positions, touched):
        yield _inserts(emission, lists, numbers)
    if not emission.key:
        yield from _changes(emission)


def _touched(emission: Emission) -> pa.Array:
    keys = [pa.array([], pa.binary())]
    if emission.early:
        keys += [batch.column(0) for batch in read_batches(emission.early)]
    if emission.changes:
        keys.append(touched_keys(key_rows(read_log_part(emission.changes), emission.key)))
    return pa.concat_arrays(keys)


def _changes(emission: Emission) -> Iterator[pa.RecordBatch]:
    """The changes of a table without a key since it was read, as if they were one transaction with its rows."""
    if emission.early:
        yield from (_restamped(emission, batch) for batch in read_batches(emission.early))
    if emission.changes:
        part = read_log_part(emission.changes)
        ordinal = 1 + emission.early_events + np.arange(len(part))
        yield from read_rows(replace(part, ts=np.full(len(part), emission.ts), ordinal=ordinal))


# Changes before the relay begins: what kind, the number of the row event, the row in it, and the values.
CHANGES = pa.schema(
    [
        pa.field("kind", pa.string()),
        pa.field("event", pa.int64()),
        pa.field("row", pa.int64()),
        EVENTS.field("after"),
        EVENTS.field("before"),
    ]
)


def _restamped(emission: Emission, changes: pa.RecordBatch) -> pa.RecordBatch:
    event, row = (changes.column(name).to_numpy() for name in ("event", "row"))
    made = _inserts(emission, changes.column("after"), (1 + event) << 32 | row)
    made = made.set_column(0, EVENTS.field("kind"), changes.column("kind"))
    return made.set_column(EVENTS.names.index("before"), EVENTS.field("before"), changes.column("before"))


def _inserts(emission: Emission, after: pa.ListArray, numbers: np.ndarray[Any, np.dtype[np.int64]]) -> pa.RecordBatch:
    count = len(after)

    def same(value: object, kind: pa.DataType) -> pa.Array:
        return pa.repeat(pa.scalar(value, kind), count)

    texts = (same(text, pa.string()) for text in (INSERT, emission.schema, emission.table))
    known = (emission.table_id, emission.table_id, emission.schema_id, emission.version, emission.ts - 1, emission.ts)
    columns = [*texts, *(same(number, pa.int64()) for number in known), pa.array(numbers)]
    columns += [same(emission.layout, pa.int64()), after, pa.nulls(count, EVENTS.field("before").type)]
    return pa.RecordBatch.from_arrays([*columns, pa.nulls(count, pa.string())], schema=EVENTS)


def early_emission(connection: Connection, emission: Emission, path: str, after: LogPlace, until: LogPlace) -> Emission:
    """The emission with what the log has of its table between two places, in a file."""
    names = (emission.schema, emission.table)
    if emission.key:
        keys = early_keys(connection, *names, emission.key, after, until)
        batch = pa.RecordBatch.from_arrays([keys], ["key"])
        write_batches(path, batch.schema, [batch])
        return replace(emission, early=path)
    stored = [column.name for column in Layout.from_json(emission.layout_text).stored]

    def columns(found: TableMap) -> tuple[int, ...]:
        names = [column.name for column in found.columns]
        return tuple(names.index(name) for name in stored)

    events = 0
    batches = []
    for rows, event in early_rows(connection, *names, columns, after, until):
        kinds = pa.array(KINDS).take(pa.array(rows.kind))
        batches.append(pa.RecordBatch.from_arrays(
            [kinds, pa.array(event), pa.array(within(rows.event)), rows.after, rows.before], schema=CHANGES
        ))  # fmt: skip
        events = int(event[-1]) + 1
    write_batches(path, CHANGES, batches)
    return replace(emission, early=path, early_events=events)


# Files beside the relay -----------------------------------------------------------------------------------------------


def write_batches(path: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    try:
        with pa.OSFile(path, "wb") as file, ipc.new_file(file, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
    except OSError as exc:
        raise SourceUnavailable(f"cannot write {path} for the tasks: {exc.strerror}") from exc


def read_batches(path: str) -> list[pa.RecordBatch]:
    try:
        with pa.memory_map(path) as file:
            reader = ipc.open_file(file)
            return [reader.get_batch(i) for i in range(reader.num_record_batches)]
    except OSError as exc:
        raise SourceUnavailable(f"{path} is gone, with what a task must know; the changefeed starts again") from exc
