"""The followed tables of a database as `information_schema` describes them, and the SQL that reads their rows.

The SQL is of its own: what the snapshot of a changefeed asks for is not used here, so a fault there is not repeated.
Values are asked for in the form of change events (docs/events.md): numbers of ENUM, SET, BIT and YEAR by a cast to
a number, FLOAT and DOUBLE with all their digits, and everything else as the session shows it, in UTC and UTF-8.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from pymysql.connections import Connection

from tidegate.format.tables import shortest_key
from tidegate.sources.mysql.inspection import Follows
from tidegate.sources.mysql.refusals import quoted

_SYSTEM = "('mysql', 'information_schema', 'performance_schema', 'sys')"
_BY_NUMBER = frozenset(("bit", "enum", "set", "year"))
_INTEGERS = frozenset(("tinyint", "smallint", "mediumint", "int", "bigint"))
_NAMES = f"""
SELECT table_schema, table_name, COALESCE(data_length, 0) FROM information_schema.tables
WHERE table_schema NOT IN {_SYSTEM} AND table_type = 'BASE TABLE' ORDER BY table_schema, table_name"""
_COLUMNS = """
SELECT table_name, column_name, data_type, column_type, is_nullable, extra FROM information_schema.columns
WHERE table_schema = %s AND table_name IN ({names}) ORDER BY table_name, ordinal_position"""
_KEYS = """
SELECT table_name, index_name, column_name FROM information_schema.statistics
WHERE table_schema = %s AND table_name IN ({names}) AND non_unique = 0 ORDER BY table_name, index_name, seq_in_index"""

Row = tuple[Any, ...]


@dataclass(frozen=True)
class DatabaseColumn:
    """`type` is the base name that both servers use: `varchar`; `declared` the whole: `varchar(10)`."""

    name: str
    type: str
    declared: str
    nullable: bool = True

    @property
    def expression(self) -> str:
        """What to select for it."""
        name = quoted(self.name)
        if self.type in _BY_NUMBER:
            return f"CAST({name} AS UNSIGNED)"
        if self.type in ("float", "double"):
            return f"{name} + 0e0"  # a FLOAT as it is would be shown with six digits
        if "zerofill" in self.declared and self.type in _INTEGERS:
            return f"CAST({name} AS UNSIGNED)"
        if "zerofill" in self.declared:
            return f"{name} + 0"
        return f"HEX({name})" if self.type == "vector" else name


@dataclass(frozen=True)
class DatabaseTable:
    """A table with the columns that have a value in every row; `key` are those that identify a row, maybe none.

    `virtual` are columns that are computed when they are read, and in no row of the sink.
    """

    schema: str
    table: str
    columns: tuple[DatabaseColumn, ...]
    key: tuple[str, ...] = ()
    unique_keys: tuple[tuple[str, ...], ...] = ()
    virtual: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        return f"{self.schema}.{self.table}"

    @property
    def zerofill(self) -> frozenset[str]:
        return frozenset(column.name for column in self.columns if "zerofill" in column.declared)

    def select(self) -> str:
        """All rows, in no order."""
        wanted = ", ".join(column.expression for column in self.columns)
        return f"SELECT {wanted} FROM {quoted(self.schema, self.table)}"


def followed_tables(connection: Connection, follows: Follows) -> list[tuple[str, str, int]]:
    """The names of the tables, and about how many bytes each has."""
    found = _rows(connection, _NAMES)
    return [(schema, table, int(size)) for schema, table, size in found if follows(schema, table)]


def groups(names: Sequence[tuple[str, str, int]], most_bytes: int, most: int) -> Iterator[list[tuple[str, str, int]]]:
    """Tables that are read together: as many as these bytes hold, at least one."""
    group: list[tuple[str, str, int]] = []
    for name in names:
        if group and (len(group) >= most or sum(size for *_, size in group) + name[2] > most_bytes):
            yield group
            group = []
        group.append(name)
    if group:
        yield group


def describe(connection: Connection, names: Iterable[tuple[str, str, int]]) -> list[DatabaseTable]:
    """What these tables are now; one that is gone meanwhile is left out."""
    found: list[DatabaseTable] = []
    for schema, group in groupby(names, key=lambda name: name[0]):
        sizes = {table: size for _, table, size in group}
        columns = _by_table(connection, _COLUMNS, schema, sizes)
        keys = _by_table(connection, _KEYS, schema, sizes)
        found += [_table(schema, table, columns[table], keys.get(table, [])) for table in columns]
    return found


def _table(schema: str, table: str, columns: list[Row], indexes: list[Row]) -> DatabaseTable:
    virtual = frozenset(row[0] for row in columns if "VIRTUAL" in row[4].upper())
    known = tuple(
        DatabaseColumn(name, kind.lower(), declared.lower(), nullable == "YES")
        for name, kind, declared, nullable, _ in columns
        if name not in virtual
    )
    keys = {index: tuple(column for _, column in each) for index, each in groupby(indexes, key=lambda row: row[0])}
    primary = keys.pop("PRIMARY", ())
    others = tuple(key for key in keys.values() if None not in key)  # a key over an expression has no column
    # Without a primary key the shortest unique one without NULLs identifies a row.
    key = primary or tuple(shortest_key(others, virtual | {each.name for each in known if each.nullable}))
    return DatabaseTable(schema, table, known, key, others, virtual)


def _by_table(connection: Connection, statement: str, schema: str, names: Iterable[str]) -> dict[str, list[Row]]:
    tables = list(names)
    rows = _rows(connection, statement.format(names=", ".join(["%s"] * len(tables))), schema, *tables)
    return {table: [row[1:] for row in group] for table, group in groupby(rows, key=lambda row: row[0])}


def _rows(connection: Connection, statement: str, *values: str) -> list[Row]:
    with connection.cursor() as cursor:
        cursor.execute(statement, values or None)
        return list(cursor.fetchall())
