"""Reads the catalogue from a server at the first start. Later ones come from the log alone.

Nothing is locked. The position of the log is asked before and after, and the log between them is searched for DDLs: if
there is one of a database that is known, what was read may be from before or after it, and all is read again. So the
catalogue is the one of the first position. Rows are streamed, and tables are put together in pages, so that a million
tables need no more memory than the catalogue itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from random import randint
from typing import Any, NamedTuple, TypeVar

from pymysql.connections import Connection
from pymysql.cursors import SSCursor
from pymysql.err import MySQLError

from tidegate.errors import BadEvents, BadSetting, SourceUnavailable
from tidegate.format.rules.rules import TableFilter
from tidegate.sources.mysql.catalogue import FIRST_ID, Catalogue, DatabaseEntry, Server, version_number
from tidegate.sources.mysql.ddl.apply import apply
from tidegate.sources.mysql.definition import Definition
from tidegate.sources.mysql.dump import NO_WAIT, dump
from tidegate.sources.mysql.entries import Base, Entries, TableEntry
from tidegate.sources.mysql.log.control_events import read_format, read_query, read_rotate
from tidegate.sources.mysql.log.framing import CHECKSUM_BYTES, FORMAT, HEADER_BYTES, QUERY, ROTATE, header_of
from tidegate.sources.mysql.place import Place
from tidegate.sources.mysql.shown import ColumnRow, KeyRow, ReferenceRow, Rows, TableRow, shown_definition

PAGE_TABLES = 500

T = TypeVar("T", ColumnRow, KeyRow)

_TABLES = "SELECT table_name, table_type, engine, table_collation, create_options FROM information_schema.tables"
_COLUMNS = (
    "SELECT table_name, column_name, column_type, character_set_name, is_nullable, column_default, extra "
    "FROM information_schema.columns"
)
_KEYS = "SELECT table_name, index_name, non_unique, column_name FROM information_schema.statistics"
_RULES = (
    "SELECT table_name, constraint_name, delete_rule, update_rule FROM information_schema.referential_constraints "
    "WHERE constraint_schema = %s"
)
_PARENTS = (
    "SELECT table_name, constraint_name, column_name, referenced_table_schema, referenced_table_name "
    "FROM information_schema.key_column_usage WHERE table_schema = %s AND referenced_table_name IS NOT NULL "
    "ORDER BY table_name, constraint_name, ordinal_position"
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


def read_databases(connection: Connection) -> list[tuple[str, str]]:
    """Databases with their character sets, by name."""
    query = "SELECT schema_name, default_character_set_name FROM information_schema.schemata"
    return sorted((name, charset) for name, charset in _asked(connection, query))


def read_tables(connections: Sequence[Connection], database: str, mariadb: bool) -> Iterator[Rows]:
    """What `information_schema` says about each table of the database, views left out. Needs three connections."""
    references = _references(connections[0], database)
    pages = _streamed_pages(connections, database) if mariadb else _asked_pages(connections[0], database)
    for rows in pages:
        if rows.table.kind in ("BASE TABLE", "SYSTEM VERSIONED", "SEQUENCE"):
            yield replace(rows, references=references.get(rows.table.name, ()))


def _references(connection: Connection, database: str) -> dict[str, list[ReferenceRow]]:
    """The foreign keys of a database by table. Most databases have few."""
    rules = {(table, name): actions for table, name, *actions in map(_texts, _asked(connection, _RULES, database))}
    found: dict[str, list[ReferenceRow]] = {}
    if not rules:
        return found
    for table, name, *parent in map(_texts, _asked(connection, _PARENTS, database)):
        found.setdefault(table, []).append(ReferenceRow(table, name, *parent, *rules.get((table, name), ("", ""))))
    return found


def _asked_pages(connection: Connection, database: str) -> Iterator[Rows]:
    """MySQL finds a range of names by an index: pages of tables, each by a few queries."""
    after = ""
    where = " WHERE table_schema = %s AND table_name > %s"
    while page := _asked(connection, f"{_TABLES}{where} ORDER BY table_name LIMIT {PAGE_TABLES}", database, after):
        tables = [TableRow(*_texts(row)) for row in page]
        yield from _page(connection, database, tables)
        after = tables[-1].name


def _page(connection: Connection, database: str, tables: Sequence[TableRow]) -> Iterator[Rows]:
    def asked(query: str, order: str, kind: type[T]) -> dict[str, list[T]]:
        where = f" WHERE table_schema = %s AND table_name BETWEEN %s AND %s ORDER BY table_name, {order}"
        found: dict[str, list[T]] = {}
        for row in _asked(connection, query + where, database, tables[0].name, tables[-1].name):
            made = kind(*_texts(row))
            found.setdefault(made.table, []).append(made)
        return found

    columns = asked(_COLUMNS, "ordinal_position", ColumnRow)
    keys = asked(_KEYS, "index_name, seq_in_index", KeyRow)
    for table in tables:
        yield Rows(table, columns.get(table.name, ()), keys.get(table.name, ()))


def _streamed_pages(connections: Sequence[Connection], database: str) -> Iterator[Rows]:
    """MariaDB opens every table for each query, in the same order: one stream of each kind, side by side."""
    one, two, three = connections
    where = " WHERE table_schema = %s"
    columns = _Stream(two, _COLUMNS + where, database, ColumnRow)
    keys = _Stream(three, _KEYS + where, database, KeyRow)
    for row in _streamed(one, _TABLES + where, database):
        table = TableRow(*_texts(row))
        yield Rows(table, columns.take(table.name), keys.take(table.name))
    if columns.left or keys.left:
        raise _Moved(f"the tables of {database} changed while they were read")


class _Moved(SourceUnavailable):
    """A DDL came while tables were read."""


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

    @property
    def left(self) -> bool:
        """Whether rows are left that belong to no table of the other stream."""
        return self._next is not None


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


def read_definition(connection: Connection, database: str, table: str) -> Definition | None:
    """How the table is defined in this moment; None if there is none. Names are compared by the server."""
    where = " WHERE table_schema = %s AND table_name = %s"
    tables = [TableRow(*_texts(row)) for row in _asked(connection, _TABLES + where, database, table)]
    if not tables:
        return None
    columns = _asked(connection, f"{_COLUMNS}{where} ORDER BY ordinal_position", database, table)
    keys = _asked(connection, f"{_KEYS}{where} ORDER BY index_name, seq_in_index", database, table)
    rows = Rows(tables[0], [ColumnRow(*_texts(row)) for row in columns], [KeyRow(*_texts(row)) for row in keys])
    return shown_definition(rows, read_server(connection))


# The catalogue at a position ------------------------------------------------------------------------------------------

_TRIES = 20
_READER_IDS = (1 << 31, (1 << 32) - 1)  # a random id: two readers with one id cut each other off


class Start(NamedTuple):
    """The catalogue at this position of the log."""

    catalogue: Catalogue
    place: Place


def read_catalogue(connect: Callable[[], Connection], tables: TableFilter, version: int, snapshot: bool) -> Start:
    """The catalogue of a server, and the position of its log at which it is true.

    `version` becomes the version of all tables. With `snapshot` the followed ones need one.
    """
    for _ in range(_TRIES):
        with connect() as one, connect() as two, connect() as three:
            begin = log_end(one)
            try:
                catalogue = _read((one, two, three), tables, version, snapshot)
            except _Moved:
                continue
            end = log_end(one)
        if not _ddl_between(connect, catalogue, begin, end):
            return Start(catalogue, begin)
    raise SourceUnavailable(
        f"{_TRIES} times a DDL came while the tables of the server were read: wait until its DDLs pause"
    )


def log_end(connection: Connection) -> Place:
    """The end of the log: `Place("bin.000003", 1234)`."""
    mariadb = "MariaDB" in _asked(connection, "SELECT @@version")[0][0]
    rows = _asked(connection, "SHOW MASTER STATUS" if mariadb else "SHOW BINARY LOG STATUS")
    if not rows:
        raise BadSetting("the server writes no binary log: start it with log_bin")
    return Place(str(rows[0][0]), int(rows[0][1]))


def _read(connections: Sequence[Connection], tables: TableFilter, version: int, snapshot: bool) -> Catalogue:
    server = read_server(connections[0])
    known = [(name, charset) for name, charset in read_databases(connections[0]) if tables.matches_schema(name)]
    databases = {
        name: DatabaseEntry(name, number, charset) for number, (name, charset) in enumerate(known, start=FIRST_ID)
    }
    numbers = count(FIRST_ID)

    def entries() -> Iterator[TableEntry]:
        for database in databases.values():
            for rows in read_tables(connections, database.name, server.mariadb):
                definition = shown_definition(rows, server)
                followed = tables.matches(database.name, rows.table.name) and not definition.sequence
                names = (database.name, rows.table.name)
                needs = followed and snapshot
                yield TableEntry(
                    *names, next(numbers), database.schema_id, version, definition, followed, needs_snapshot=needs
                )

    base = Base.of(entries())
    return Catalogue(server, tables, databases, Entries(base), next(numbers), FIRST_ID + len(databases))


def _ddl_between(connect: Callable[[], Connection], catalogue: Catalogue, begin: Place, end: Place) -> bool:
    """Whether a statement between these positions changes something that is known."""
    at, checksum = begin, CHECKSUM_BYTES
    if at == end:
        return False
    with connect() as connection:
        for event in dump(connection, *begin, randint(*_READER_IDS), NO_WAIT):
            header = header_of(event)
            if header.kind == FORMAT:
                checksum = read_format(event[HEADER_BYTES:]).checksum_bytes
            if not header.next_position:  # what the server says at the beginning of a file is not in the log
                continue
            body = event[HEADER_BYTES : len(event) - checksum]
            if header.kind == QUERY and _is_ddl(catalogue, body):
                return True
            at = Place(*read_rotate(body)) if header.kind == ROTATE else Place(at.file, header.next_position)
            if at.order >= end.order:
                return False
    return True  # the server has cut the reader off


def _is_ddl(catalogue: Catalogue, body: bytes) -> bool:
    try:
        return not apply(catalogue, read_query(body), 0).ignored
    except BadEvents:  # it was applied to something else than what it came after, or will be refused later
        return True
