"""Reads one chunk of a table in a consistent read, and stages it on the store until it is emitted.

    _tidegate/source/chunks/12-463...-3-9f3a2c.json         the note of the chunk: it is there when the chunk is done
    _tidegate/source/chunks/12-463...-3-9f3a2c.5e77.0.arrow a part of its rows, some MiB: lists of texts, as in `after`

Promises:
1. All objects are create-only. The note is written last and names its parts, so the rows of a chunk are those of one
   read, even if several tasks read it: the first note counts.
2. `Note.after` is a place in the log whose transactions the read all sees. It sees none behind `Note.seen`. For a table
   without a key MariaDB tells the place exactly, so the two are equal.
3. The rows have the columns that were ordered. The read holds the table's metadata lock while it looks at the columns
   and until its end, so no DDL comes between. A table that has other columns, or is gone, is refused: the note then
   says why, and a DDL must be in the log before `Note.until`, which is where the log was when the lock was there. If
   a DDL came between the start of the read and the lock, or holds the lock, no note is written, and the chunk is read
   again.
4. Memory is bounded by a part, whatever rows there are.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.ipc as ipc
from pymysql.connections import Connection
from pymysql.err import MySQLError

from tidegate.errors import SourceUnavailable
from tidegate.format.tables import Column, Layout
from tidegate.sources.mysql.address import Address
from tidegate.sources.mysql.connect import ask, log_end
from tidegate.sources.mysql.information_schema import read_definition
from tidegate.sources.mysql.snapshot.answers import Reader
from tidegate.sources.mysql.snapshot.borders import ReadKey, ordered_by
from tidegate.sources.mysql.snapshot.protocol import Answer
from tidegate.sources.mysql.snapshot.select import SESSION, Border, between, quoted, select_rows
from tidegate.sources.mysql.snapshot.visible import LogPlace, begin_read, shown_place
from tidegate.storage.store import Store

FOLDER = "_tidegate/source/chunks"
PART_BYTES = 16 << 20
_LOCK_WAIT_S = 10
_SCHEMA = pa.schema([pa.field("after", pa.list_(pa.binary()))])
_GONE = {1049: "its database is gone", 1146: "it is gone", 1054: "a column is gone", 1176: "a key is gone"}
_TRY_AGAIN = (1412, 1205)  # another definition than at the start of the read; a lock that somebody holds


@dataclass(frozen=True)
class Order:
    """A chunk that is to be read: the rows of a table above `low` and not above `high`."""

    name: str
    schema: str
    table: str
    layout: Layout
    key: ReadKey | None
    low: Border | None = None
    high: Border | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"layout": self.layout.to_json()}

    @staticmethod
    def from_json(found: dict[str, Any]) -> Order:
        key = found["key"] and ReadKey(found["key"]["index"], tuple(found["key"]["columns"]))
        borders = {name: _border(found[name]) for name in ("low", "high")}
        return Order(**found | borders | {"layout": Layout.from_json(found["layout"]), "key": key})


@dataclass(frozen=True)
class PartNote:
    """A part of a chunk, up to the key `high`; None if it is the table's last. Without rows it has no path."""

    path: str
    rows: int
    value_bytes: int
    high: Border | None


@dataclass(frozen=True)
class Note:
    """What is known of a chunk that was read: one part at least, or in `refused` why it could not be.

    `whole` says that it is a table without a key, all of it: its parts are emitted together.
    """

    after: LogPlace
    seen: LogPlace
    until: LogPlace
    parts: tuple[PartNote, ...] = ()
    whole: bool = False
    refused: str = ""

    @property
    def emitted(self) -> tuple[PartNote, ...]:
        """What is emitted at a time."""
        if not self.whole:
            return self.parts
        rows, size = (sum(getattr(part, name) for part in self.parts) for name in ("rows", "value_bytes"))
        return (PartNote(self.parts[0].path, rows, size, None),)

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @staticmethod
    def from_json(text: str | bytes) -> Note:
        found = json.loads(text)
        places = {name: (str(found[name][0]), int(found[name][1])) for name in ("after", "seen", "until")}
        parts = tuple(PartNote(**part | {"high": _border(part["high"])}) for part in found["parts"])
        return Note(**found | places | {"parts": parts})


def _border(found: list[str] | None) -> Border | None:
    return None if found is None else tuple(found)


def note_path(name: str) -> str:
    return f"{FOLDER}/{name}.json"


def read_note(store: Store, name: str) -> Note | None:
    """None if the chunk was not read yet."""
    found = store.get(note_path(name))
    return None if found is None else Note.from_json(found)


def stage(connection: Connection, address: Address, is_mariadb: bool, store: Store, order: Order) -> None:
    """Reads the chunk, unless it was read already."""
    if store.size(note_path(order.name)) is not None:
        return
    for statement in (*SESSION, f"SET SESSION lock_wait_timeout = {_LOCK_WAIT_S}"):
        ask(connection, address, statement)
    after = begin_read(connection, address, is_mariadb)
    if order.key is None and is_mariadb:
        after = shown_place(connection, address)
    seen = after if order.key is None and is_mariadb else log_end(connection, address, is_mariadb)
    refused, parts = "", []
    try:
        refused = _difference(connection, order)
        until = log_end(connection, address, is_mariadb)
        if not refused:
            parts = list(_staged(connection, store, order))
    except MySQLError as exc:
        code = exc.args[0] if exc.args else 0
        if code in _TRY_AGAIN:
            ask(connection, address, "ROLLBACK")
            return
        if code not in _GONE:
            raise SourceUnavailable(f"{order.schema}.{order.table} cannot be read: {exc}") from exc
        refused, until, parts = _GONE[code], log_end(connection, address, is_mariadb), []
    ask(connection, address, "COMMIT")
    note = Note(after, seen, until, tuple(parts), order.key is None, refused)
    store.create_bytes(note_path(order.name), note.to_json().encode())


def _difference(connection: Connection, order: Order) -> str:
    """Takes the metadata lock, and looks at the columns behind it."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT 1 FROM {quoted(order.schema)}.{quoted(order.table)} LIMIT 0")
    found = read_definition(connection, order.schema, order.table)
    if found is None or found.unread:
        return "it is gone"
    same = list(map(_shape, found.layout.columns)) == list(map(_shape, order.layout.columns))
    return "" if same else "its columns are not those that the log shows"


def _shape(column: Column) -> Column:
    """What decides about the values. Numbers of columns are given by DDLs, and a default is no part of a row."""
    return replace(column, id=None, default=None, pk=False)


def _staged(connection: Connection, store: Store, order: Order) -> Iterator[PartNote]:
    """Writes the rows in parts, in the order of the key."""
    attempt, number = secrets.token_hex(4), 0
    rows: list[pa.ListArray] = []
    last: Border | None = None

    def written(high: Border | None) -> PartNote:
        path = f"{FOLDER}/{order.name}.{attempt}.{number}.arrow"
        store.create_bytes(path, _written(_table(rows)))
        return PartNote(path, sum(map(len, rows)), sum(each.nbytes for each in rows), high)

    for lists, border in _read(connection, order):
        if sum(each.nbytes for each in rows) >= PART_BYTES:
            yield written(last)
            rows, number = [], number + 1
        rows.append(lists)
        last = border
    yield written(order.high) if rows else PartNote("", 0, 0, order.high)


def _read(connection: Connection, order: Order) -> Iterator[tuple[pa.ListArray, Border]]:
    """The rows in lists of some MiB, each with the key of its last row."""
    columns = order.layout.stored
    key, index = (order.key.of(order.layout), order.key.index) if order.key is not None else ((), "")
    positions = order.key.positions(order.layout) if order.key is not None else ()
    statement = select_rows(order.schema, order.table, columns, between(key, order.low, order.high), index)
    answer = Answer(connection, statement + (f" ORDER BY {ordered_by(key)}" if key else ""))
    reader = Reader(answer, columns)
    for part in answer.parts():
        yield reader.lists(part), reader.last(part, positions)


def _table(held: list[pa.ListArray]) -> pa.Table:
    return pa.Table.from_arrays([pa.chunked_array(held, _SCHEMA.field(0).type)], schema=_SCHEMA)


def _written(rows: pa.Table) -> bytes:
    out = pa.BufferOutputStream()
    with ipc.new_file(out, rows.schema, options=ipc.IpcWriteOptions(compression="lz4", use_threads=False)) as writer:
        writer.write_table(rows)
    return bytes(out.getvalue())


def read_part(store: Store, path: str) -> Iterator[pa.ListArray]:
    """The rows of a part, in the order of the chunk."""
    found = store.get(path)
    if found is None:
        raise SourceUnavailable(f"{path} is gone, which holds rows of a table that were not emitted yet: start again")
    reader = ipc.open_file(pa.py_buffer(found))
    for i in range(reader.num_record_batches):
        yield reader.get_batch(i).column(0)
