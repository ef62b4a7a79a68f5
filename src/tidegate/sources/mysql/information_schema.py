"""Reads the catalogue from a server at the first start. Later ones come from the log alone.

Nothing is locked. The position of the log is asked before and after, and the log between them is searched for DDLs: if
there is one of a database that is known, what was read may be from before or after it, and all is read again. So the
catalogue is the one of the first position. Rows are streamed, and tables are put together in pages, so that a million
tables need no more memory than the catalogue itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from pymysql.connections import Connection
from pymysql.cursors import SSCursor
from pymysql.err import MySQLError

from tidegate.errors import SourceUnavailable
from tidegate.sources.mysql.catalogue import Server
from tidegate.sources.mysql.shown import ColumnRow, KeyRow, ReferenceRow, Rows, TableRow

PAGE_TABLES = 500

T = TypeVar("T", ColumnRow, KeyRow, ReferenceRow)

_TABLES = "SELECT table_name, table_type, engine, table_collation, create_options FROM information_schema.tables"
_COLUMNS = (
    "SELECT table_name, column_name, column_type, character_set_name, is_nullable, column_default, extra "
    "FROM information_schema.columns"
)
_KEYS = "SELECT table_name, index_name, non_unique, column_name FROM information_schema.statistics"
_REFERENCES = (
    "SELECT k.table_name, k.constraint_name, k.column_name, k.referenced_table_schema, k.referenced_table_name, "
    "r.delete_rule, r.update_rule FROM information_schema.key_column_usage k JOIN "
    "information_schema.referential_constraints r ON r.constraint_schema = k.constraint_schema "
    "AND r.constraint_name = k.constraint_name AND r.table_name = k.table_name"
)
_SERVER = "SELECT @@version, @@lower_case_table_names, @@character_set_server, @@default_storage_engine"


def read_server(connection: Connection) -> Server:
    """What of the server decides how DDL text is read."""
    version, lower_case, charset, engine = _asked(connection, _SERVER)[0]
    mariadb = "MariaDB" in version
    utf8 = "utf8mb3"
    if mariadb:
        old_mode = _asked(connection, "SELECT @@global.old_mode")[0][0]
        utf8 = "utf8mb3" if "UTF8_IS_UTF8MB3" in old_mode else "utf8mb4"
    return Server(mariadb, version_number(version), int(lower_case), charset, engine, utf8)


def version_number(text: str) -> int:
    """101119 for `10.11.19-MariaDB-log`."""
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", text)
    major, minor, patch = (int(part) for part in found.groups()) if found else (0, 0, 0)
    return major * 10000 + minor * 100 + patch


def read_databases(connection: Connection) -> list[tuple[str, str]]:
    """Databases with their character sets, by name."""
    query = "SELECT schema_name, default_character_set_name FROM information_schema.schemata"
    return sorted((name, charset) for name, charset in _asked(connection, query))


def read_tables(connect: Callable[[], Connection], database: str, mariadb: bool) -> Iterator[Rows]:
    """What `information_schema` says about each table of the database, views left out."""
    pages = _streamed_pages if mariadb else _asked_pages
    for rows in pages(connect, database):
        if rows.table.kind in ("BASE TABLE", "SYSTEM VERSIONED", "SEQUENCE"):
            yield rows


def _asked_pages(connect: Callable[[], Connection], database: str) -> Iterator[Rows]:
    """MySQL finds a range of names by an index: pages of tables, each by a few queries."""
    after = ""
    with connect() as connection:
        while True:
            where = " WHERE table_schema = %s AND table_name > %s"
            page = _asked(connection, f"{_TABLES}{where} ORDER BY table_name LIMIT {PAGE_TABLES}", database, after)
            if not page:
                return
            tables = [TableRow(*_texts(row)) for row in page]
            yield from _page(connection, database, tables)
            after = tables[-1].name


def _page(connection: Connection, database: str, tables: Sequence[TableRow]) -> Iterator[Rows]:
    between = (database, tables[0].name, tables[-1].name)

    def asked(query: str, prefix: str, order: str, kind: type[T]) -> dict[str, list[T]]:
        where = f" WHERE {prefix}table_schema = %s AND {prefix}table_name BETWEEN %s AND %s ORDER BY {order}"
        found: dict[str, list[T]] = {}
        for row in _asked(connection, query + where, *between):
            made = kind(*_texts(row))
            found.setdefault(made.table, []).append(made)
        return found

    columns = asked(_COLUMNS, "", "table_name, ordinal_position", ColumnRow)
    keys = asked(_KEYS, "", "table_name, index_name, seq_in_index", KeyRow)
    references = asked(_REFERENCES, "k.", "k.table_name, k.constraint_name, k.ordinal_position", ReferenceRow)
    for table in tables:
        name = table.name
        yield Rows(table, columns.get(name, ()), keys.get(name, ()), references.get(name, ()))


def _streamed_pages(connect: Callable[[], Connection], database: str) -> Iterator[Rows]:
    """MariaDB opens every table for each query, in the same order: one stream of each kind, side by side."""
    where = " WHERE table_schema = %s"
    with connect() as connection:
        found: dict[str, list[ReferenceRow]] = {}
        order = " WHERE k.table_schema = %s ORDER BY k.table_name, k.constraint_name, k.ordinal_position"
        for row in _asked(connection, _REFERENCES + order, database):
            reference = ReferenceRow(*_texts(row))
            found.setdefault(reference.table, []).append(reference)
    with connect() as one, connect() as two, connect() as three:
        columns = _Stream(two, _COLUMNS + where, database, ColumnRow)
        keys = _Stream(three, _KEYS + where, database, KeyRow)
        for row in _streamed(one, _TABLES + where, database):
            table = TableRow(*_texts(row))
            yield Rows(table, columns.take(table.name), keys.take(table.name), found.get(table.name, ()))


class _Stream:
    """The rows of a query, of one table at a time."""

    def __init__(self, connection: Connection, query: str, database: str, kind: type[T]) -> None:
        self._rows: Iterator[Any] = (kind(*_texts(row)) for row in _streamed(connection, query, database))
        self._next: Any = next(self._rows, None)

    def take(self, table: str) -> list[Any]:
        found = []
        while self._next is not None and self._next.table == table:
            found.append(self._next)
            self._next = next(self._rows, None)
        return found


def _streamed(connection: Connection, query: str, *values: str) -> Iterator[tuple[Any, ...]]:
    try:
        with connection.cursor(SSCursor) as cursor:
            cursor.execute(query, values)
            while rows := cursor.fetchmany(10_000):
                yield from rows
    except (OSError, MySQLError) as exc:
        raise SourceUnavailable(f"the server did not say which tables it has: {exc}") from exc


def _asked(connection: Connection, query: str, *values: str) -> list[tuple[Any, ...]]:
    try:
        with connection.cursor() as cursor:
            cursor.execute(query, values or None)
            return list(cursor.fetchall())
    except (OSError, MySQLError) as exc:
        raise SourceUnavailable(f"the server did not answer {query.split(' FROM ')[-1][:60]!r}: {exc}") from exc


def _texts(row: Sequence[Any]) -> list[Any]:
    """MySQL gives some texts of `information_schema` as bytes."""
    return [value.decode() if isinstance(value, bytes) else value for value in row]


class Start(NamedTuple):
    """Where a changefeed begins."""

    file: str
    position: int
