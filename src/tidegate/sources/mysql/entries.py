"""Tables by name, a million of them: columns of Arrow for most, and layers of changes above them.

`Base` is immutable: names sorted, ids, versions, and the number of each definition. Definitions are texts, compressed
in batches; a batch is unpacked when one of its definitions is asked for. A base is written to storage as it is.

`Entries` is a base with layers, each a dict. A change adds a layer. Layers of about equal size are merged, so there are
few of them, and a change costs a few steps on average, also the ten thousandth. The old value stays valid.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tidegate.format.pieces import Flags, Numbers
from tidegate.format.tables import Layout
from tidegate.sources.mysql.definition import Definition

Key = tuple[str, str]

_SEPARATOR = "\0"  # between database and table; no name has it
_BATCH = 256  # definitions that are unpacked together
_REMEMBERED = 1 << 16  # texts whose repeats are found while a base is built
_CODEC = pa.ipc.IpcWriteOptions(compression="zstd")
_TEXTS = pa.schema([pa.field("definition", pa.string())])
_COLUMNS = pa.schema(
    [
        pa.field("name", pa.string()),
        pa.field("table_id", pa.int64()),
        pa.field("schema_id", pa.int64()),
        pa.field("version", pa.int64()),
        pa.field("followed", pa.bool_()),
        pa.field("needs_snapshot", pa.bool_()),
        pa.field("definition", pa.int64()),
    ]
)


@dataclass(frozen=True)
class TableEntry:
    """A table at one moment. `version` is the commit-ts of the last DDL that changed it."""

    database: str
    name: str
    table_id: int
    schema_id: int
    version: int
    definition: Definition
    followed: bool = True
    needs_snapshot: bool = False  # it holds rows that the log does not show from here on

    @property
    def layout(self) -> Layout:
        return self.definition.layout

    @property
    def names(self) -> Key:
        return self.database, self.name


class Definitions:
    """Texts by number, in an Arrow file whose batches are compressed."""

    def __init__(self, data: pa.Buffer) -> None:
        self.data = data
        self._file = pa.ipc.open_file(pa.BufferReader(data))
        self._batch = lru_cache(maxsize=64)(self.batch)

    def batch(self, number: int) -> pa.Array:
        return self._file.get_batch(number).column(0)

    @property
    def batches(self) -> int:
        return int(self._file.num_record_batches)

    def text(self, number: int) -> str:
        found: str = self._batch(number // _BATCH)[number % _BATCH].as_py()
        return found


class _TextWriter:
    """Writes definitions, and gives each a number. Of texts that come again soon the first is used."""

    def __init__(self) -> None:
        self._sink = pa.BufferOutputStream()
        self._writer = pa.ipc.new_file(self._sink, _TEXTS, options=_CODEC)
        self._open: list[str] = []
        self._seen: dict[str, int] = {}
        self._count = 0

    def add(self, text: str) -> int:
        if (known := self._seen.get(text)) is not None:
            return known
        if len(self._seen) >= _REMEMBERED:
            self._seen.clear()
        self._seen[text] = self._count
        self._open.append(text)
        self._count += 1
        if len(self._open) == _BATCH:
            self._flush()
        return self._count - 1

    def _flush(self) -> None:
        self._writer.write_batch(pa.record_batch([pa.array(self._open, pa.string())], schema=_TEXTS))
        self._open = []

    def written(self) -> Definitions:
        if self._open:
            self._flush()
        self._writer.close()
        return Definitions(self._sink.getvalue())


@lru_cache(maxsize=1 << 12)
def _definition(text: str) -> Definition:
    return Definition.from_json(text)


@dataclass(frozen=True)
class Base:
    """Tables as columns, sorted by name."""

    columns: pa.Table
    definitions: Definitions

    @staticmethod
    def of(entries: Iterable[TableEntry]) -> Base:
        """A base of these tables, which may come in any order, one at a time."""
        return Base.merged(None, np.zeros(0, np.int64), entries)

    @staticmethod
    def merged(old: Base | None, kept: Numbers, entries: Iterable[TableEntry]) -> Base:
        """A base of some rows of an old one, and of more tables."""
        writer, parts = _TextWriter(), []
        if old is not None and len(kept):
            parts.append(old._copied(kept, writer))
        parts += list(_parts(entries, writer))
        table = pa.concat_tables([_COLUMNS.empty_table(), *parts]).sort_by("name").combine_chunks()
        return Base(table, writer.written())

    def _copied(self, kept: Numbers, writer: _TextWriter) -> pa.Table:
        table = self.columns.take(pa.array(kept))
        used, at = np.unique(table["definition"].to_numpy(), return_inverse=True)
        batch, rows = np.divmod(used, _BATCH)
        numbers: list[int] = []
        for number in np.unique(batch).tolist():
            wanted = self.definitions.batch(number).take(pa.array(rows[batch == number]))
            numbers += [writer.add(text) for text in wanted.to_pylist()]
        new = pa.array(np.array(numbers, np.int64)[at])
        return table.set_column(_COLUMNS.get_field_index("definition"), "definition", new)

    def __len__(self) -> int:
        return int(self.columns.num_rows)

    @cached_property
    def _names(self) -> pa.Array:
        chunks = self.columns["name"].chunks
        return chunks[0] if chunks else pa.array([], pa.string())

    def place(self, key: Key) -> int:
        """The row of this name; -1 without one."""
        wanted = _SEPARATOR.join(key)
        names = self._names
        at = bisect_left(range(len(names)), wanted.encode(), key=lambda i: names[i].as_buffer().to_pybytes())
        return at if at < len(names) and names[at].as_py() == wanted else -1

    def entry(self, at: int) -> TableEntry:
        row = self.columns.slice(at, 1).to_pylist()[0]
        database, _, name = row["name"].partition(_SEPARATOR)
        definition = _definition(self.definitions.text(row["definition"]))
        return TableEntry(
            database,
            name,
            row["table_id"],
            row["schema_id"],
            row["version"],
            definition,
            row["followed"],
            row["needs_snapshot"],
        )

    def numbers(self, name: str) -> Numbers:
        found: Numbers = self.columns[name].to_numpy()
        return found

    def flags(self, name: str) -> Flags:
        found: Flags = self.columns[name].to_numpy()
        return found

    def to_parts(self) -> tuple[pa.Buffer, pa.Buffer]:
        """Columns and definitions as two Arrow files; `of_parts` undoes it."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, _COLUMNS, options=_CODEC) as writer:
            writer.write_table(self.columns)
        return sink.getvalue(), self.definitions.data

    @staticmethod
    def of_parts(columns: pa.Buffer, definitions: pa.Buffer) -> Base:
        table = pa.ipc.open_file(pa.BufferReader(columns)).read_all().combine_chunks()
        return Base(table, Definitions(definitions))


def _parts(entries: Iterable[TableEntry], writer: _TextWriter) -> Iterator[pa.Table]:
    rows: list[tuple[object, ...]] = []
    texts: dict[int, tuple[Definition, int]] = {}  # by identity: tables of one page often share a definition
    for entry in entries:
        known = texts.get(id(entry.definition))
        if known is None:
            if len(texts) >= _BATCH:
                texts.clear()
            known = texts[id(entry.definition)] = (entry.definition, writer.add(entry.definition.to_json()))
        name = _SEPARATOR.join(entry.names)
        flags = (entry.followed, entry.needs_snapshot)
        rows.append((name, entry.table_id, entry.schema_id, entry.version, *flags, known[1]))
        if len(rows) == 1 << 14:
            yield _table(rows)
            rows = []
    if rows:
        yield _table(rows)


def _table(rows: list[tuple[object, ...]]) -> pa.Table:
    arrays = [pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), _COLUMNS, strict=True)]
    return pa.Table.from_arrays(arrays, schema=_COLUMNS)


EMPTY = Base.of(())


class _Slot(NamedTuple):
    """What a name means now; `at` is its row in the base, or -1."""

    entry: TableEntry | None
    at: int


@dataclass(frozen=True)
class Entries:
    base: Base = EMPTY
    layers: tuple[Mapping[Key, _Slot], ...] = field(default=())

    def get(self, key: Key) -> TableEntry | None:
        for layer in reversed(self.layers):
            if key in layer:
                return layer[key].entry
        at = self.base.place(key)
        return self.base.entry(at) if at >= 0 else None

    def changed(self, changes: Mapping[Key, TableEntry | None]) -> Entries:
        """With these names changed; None takes a name away."""
        if not changes:
            return self
        layers = [*self.layers, {key: _Slot(entry, self.base.place(key)) for key, entry in changes.items()}]
        while len(layers) > 1 and len(layers[-2]) <= 2 * len(layers[-1]):
            newest = layers.pop()
            layers[-1] = {**layers[-1], **newest}
        return Entries(self.base, tuple(layers))

    def overlaid(self) -> dict[Key, _Slot]:
        """All changed names with what they mean now."""
        merged: dict[Key, _Slot] = {}
        for layer in self.layers:
            merged |= layer
        return merged

    def kept_rows(self, schema_ids: Collection[int]) -> Numbers:
        """The rows of the base that still count, of the databases with these ids."""
        alive = np.isin(self.base.numbers("schema_id"), np.array([*schema_ids], np.int64))
        gone = np.array([slot.at for slot in self.overlaid().values() if slot.at >= 0], np.int64)
        alive[gone] = False
        return np.flatnonzero(alive)

    def fresh(self, schema_ids: Collection[int]) -> Iterator[TableEntry]:
        """The tables that are not as the base has them."""
        for slot in self.overlaid().values():
            if slot.entry is not None and slot.entry.schema_id in schema_ids:
                yield slot.entry

    def folded(self, schema_ids: Collection[int]) -> Entries:
        """The same tables in a base alone."""
        return Entries(Base.merged(self.base, self.kept_rows(schema_ids), self.fresh(schema_ids)))
