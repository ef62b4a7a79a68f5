"""Where the chunks of a table end: borders of its key, found by the server alone.

A table is read by its primary key, else by a unique key without NULLs; of which all columns are stored, because rows of
the log are compared by the key's values. A chunk has all rows above one border and not above the next, so whatever rows
come and go, each row is in one chunk. Only one border is known at a time: the next one follows from it by one look into
the index, so this needs no memory and can go on from any border.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pymysql.connections import Connection

from tidegate.format.tables import Column, Layout
from tidegate.sources.mysql.definition import PRIMARY, UNIQUE, Definition, Key
from tidegate.sources.mysql.snapshot.answers import Reader
from tidegate.sources.mysql.snapshot.protocol import Answer
from tidegate.sources.mysql.snapshot.select import Border, between, quoted, select_rows

CHUNK_BYTES = 8 << 20
_LEAST_ROWS, _MOST_ROWS = 64, 200_000
_LEAST_ROW_BYTES, _USUAL_ROW_BYTES = 64, 256


@dataclass(frozen=True)
class ReadKey:
    """A key to read by: its name on the server, and its columns."""

    index: str
    columns: tuple[str, ...]

    def of(self, layout: Layout) -> tuple[Column, ...]:
        by_name = {column.name: column for column in layout.stored}
        return tuple(by_name[name] for name in self.columns)

    def positions(self, layout: Layout) -> tuple[int, ...]:
        """Where the values of the key are in a list of all values."""
        names = [column.name for column in layout.stored]
        return tuple(names.index(name) for name in self.columns)


def key_of(definition: Definition) -> ReadKey | None:
    """The key by which a table is read; None if it has none that fits."""
    layout = definition.layout
    usable = {column.name for column in layout.stored if not column.nullable}
    keys = [key for key in definition.keys if _is_usable(key, usable)]
    primary = [key for key in keys if key.kind == PRIMARY]
    unique = sorted((key for key in keys if key.kind == UNIQUE), key=lambda key: (len(key.columns), key.name))
    return next((ReadKey(key.name, key.columns) for key in [*primary, *unique]), None)


def has_key(layout: Layout) -> bool:
    """Whether `key_of` finds a key in a table with this layout."""
    usable = {column.name for column in layout.stored if not column.nullable}
    primary = tuple(column.name for column in layout.columns if column.pk)
    return any(key and usable.issuperset(key) for key in (primary, *layout.unique_keys))


def _is_usable(key: Key, usable: set[str]) -> bool:
    return bool(key.columns) and not key.expressions and usable.issuperset(key.columns)


def chunk_rows(row_bytes: int) -> int:
    """How many rows a chunk should have if a row has about so many bytes; 0 if nobody knows.

    What a server says of a table that was filled lately may be much too small.
    """
    return min(_MOST_ROWS, max(_LEAST_ROWS, CHUNK_BYTES // max(_LEAST_ROW_BYTES, row_bytes or _USUAL_ROW_BYTES)))


def next_border(
    connection: Connection, schema: str, table: str, layout: Layout, key: ReadKey, low: Border | None, rows: int
) -> Border | None:
    """The key of the row that is `rows` rows above `low`; None if there are fewer: the chunk is the last one."""
    columns = key.of(layout)
    statement = select_rows(schema, table, columns, between(columns, low, None), key.index)
    statement += f" ORDER BY {ordered_by(columns)} LIMIT {rows - 1},1"
    answer = Answer(connection, statement)
    reader, found = Reader(answer, columns), []
    for part in answer.parts():
        found.append(reader.last(part, range(len(columns))))
    return found[0] if found else None


def ordered_by(columns: Sequence[Column]) -> str:
    return ",".join(quoted(column.name) for column in columns)
