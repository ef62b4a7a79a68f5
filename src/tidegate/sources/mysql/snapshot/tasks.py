"""What tasks do for a snapshot: read a chunk and stage it, or emit a part of one.

Both are splits of a micro-batch. The first has no rows. The second has the rows of the part that the log did not touch
since they were read, as inserts with one commit-ts; their seq is the number of the row in the part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc

from tidegate.errors import SourceUnavailable
from tidegate.events import EVENTS, INSERT
from tidegate.sources.mysql.address import Address
from tidegate.sources.mysql.connect import connected, server_facts
from tidegate.sources.mysql.decode import key_rows
from tidegate.sources.mysql.parts import read_part as read_log_part
from tidegate.sources.mysql.snapshot.emit import touched_keys, untouched
from tidegate.sources.mysql.snapshot.stage import Order, read_part, stage
from tidegate.sources.source import layout_rows
from tidegate.storage.store import Store

_READ_TIMEOUT_S = 300  # a server may look for rows for long before the first one comes


@dataclass(frozen=True)
class Emission:
    """A part of a chunk at its place in the log.

    `touched` is the file with the table's row events since the chunk was read, `early` one with keys of such events
    that were before the start of the relay; "" if there are none.
    """

    path: str
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
    touched: str = ""
    early: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(found: dict[str, Any]) -> Emission:
        return Emission(**found | {"key": tuple(found["key"]), "positions": tuple(found["positions"])})


def read_chunk(address: Address, password: str, store: Store, order: dict[str, Any]) -> None:
    with connected(address, password, read_timeout=_READ_TIMEOUT_S) as connection:
        stage(connection, address, server_facts(connection, address).is_mariadb, store, Order.from_json(order))


def emit_part(store: Store, found: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    emission = Emission.from_json(found)
    if not emission.path:
        return
    yield layout_rows({emission.layout: emission.layout_text}, 0)
    for lists, numbers in untouched(read_part(store, emission.path), emission.positions, _touched(emission)):
        yield _inserts(emission, lists, numbers)


def _touched(emission: Emission) -> pa.Array:
    keys = [pa.array([], pa.binary())]
    if emission.early:
        keys.append(read_keys(emission.early))
    if emission.touched:
        keys.append(touched_keys(key_rows(read_log_part(emission.touched), emission.key)))
    return pa.concat_arrays(keys)


def _inserts(emission: Emission, after: pa.ListArray, numbers: np.ndarray[Any, np.dtype[np.int64]]) -> pa.RecordBatch:
    count = len(after)

    def same(value: object, kind: pa.DataType) -> pa.Array:
        return pa.repeat(pa.scalar(value, kind), count)

    texts = (same(text, pa.string()) for text in (INSERT, emission.schema, emission.table))
    known = (emission.table_id, emission.table_id, emission.schema_id, emission.version, emission.ts - 1, emission.ts)
    columns = [*texts, *(same(number, pa.int64()) for number in known), pa.array(numbers)]
    columns += [same(emission.layout, pa.int64()), after, pa.nulls(count, EVENTS.field("before").type)]
    return pa.RecordBatch.from_arrays([*columns, pa.nulls(count, pa.string())], schema=EVENTS)


# Keys in a file -------------------------------------------------------------------------------------------------------


def write_keys(path: str, keys: pa.Array) -> None:
    batch = pa.RecordBatch.from_arrays([keys], ["key"])
    try:
        with pa.OSFile(path, "wb") as file, ipc.new_file(file, batch.schema) as writer:
            writer.write_batch(batch)
    except OSError as exc:
        raise SourceUnavailable(f"cannot write {path} for the tasks: {exc.strerror}") from exc


def read_keys(path: str) -> pa.Array:
    try:
        with pa.memory_map(path) as file:
            return ipc.open_file(file).get_batch(0).column(0)
    except OSError as exc:
        raise SourceUnavailable(f"{path} is gone, with what a task must know; the changefeed starts again") from exc
