"""Definitions of tables from the rows of `information_schema`. Pure: rows in, definitions out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from tidegate.errors import BadEvents
from tidegate.format.sql.words import Dialect, Token, Words
from tidegate.format.tables import Column
from tidegate.sources.mysql.catalogue import Server
from tidegate.sources.mysql.ddl.columns import shown_column
from tidegate.sources.mysql.ddl.defaults import Reading, server_default, take_default
from tidegate.sources.mysql.definition import INDEX, PRIMARY, UNIQUE, Definition, ForeignKey, Key, ServerColumn

_NUMBERS = frozenset(("tinyint", "smallint", "mediumint", "int", "bigint", "float", "double", "decimal", "year"))


class TableRow(NamedTuple):
    name: str
    kind: str
    engine: str | None
    collation: str | None
    options: str | None


class ColumnRow(NamedTuple):
    table: str
    name: str
    type: str
    charset: str | None
    nullable: str
    default: str | None
    extra: str | None


class KeyRow(NamedTuple):
    """A part of a key; `column` is None for an expression."""

    table: str
    name: str
    non_unique: int
    column: str | None


class ReferenceRow(NamedTuple):
    """A column of a foreign key."""

    table: str
    name: str
    column: str
    database: str
    parent: str
    on_delete: str
    on_update: str


@dataclass(frozen=True)
class Rows:
    """What `information_schema` says about one table."""

    table: TableRow
    columns: Sequence[ColumnRow] = ()
    keys: Sequence[KeyRow] = ()
    references: Sequence[ReferenceRow] = ()


def shown_definition(rows: Rows, server: Server) -> Definition:
    """The definition of a table. What cannot be read is said in it: a followed table is then refused by that."""
    table = rows.table
    if table.kind == "SEQUENCE":
        return Definition(sequence=True)
    references = tuple(_foreign_keys(rows.references))
    try:
        columns = tuple(_column(row, at, server) for at, row in enumerate(rows.columns, start=1))
    except BadEvents as exc:
        return Definition(unread=str(exc))
    return Definition(
        columns=columns,
        keys=tuple(_keys(rows.keys, references)),
        foreign_keys=references,
        charset=(table.collation or server.charset).partition("_")[0],
        engine=table.engine or server.engine,
        partitioned="partitioned" in (table.options or ""),
        versioned=table.kind == "SYSTEM VERSIONED",
        last_id=len(columns),
    )


def _column(row: ColumnRow, number: int, server: Server) -> ServerColumn:
    extra = (row.extra or "").upper()
    shown = shown_column(row.name, row.type, row.charset, server)
    default = _default(shown.column, row.default, "DEFAULT_GENERATED" in extra, server)
    column = replace(
        shown.column,
        nullable=row.nullable == "YES",
        default=default,
        virtual="VIRTUAL" in extra,
        id=number,
    )
    generated = "GENERATED" in extra.replace("DEFAULT_GENERATED", "")
    return replace(shown, column=column, generated=generated, invisible="INVISIBLE" in extra)


def _default(column: Column, shown: str | None, generated: bool, server: Server) -> str | None:
    """MariaDB shows SQL; MySQL shows the value itself, unless it is an expression, a bit or bytes."""
    if shown is None:
        return None
    is_sql = server.mariadb or generated or column.type == "bit" or column.is_bytes
    if not is_sql:
        token = Token("word" if column.type in _NUMBERS else "text", shown)
        return server_default(column, [token], Reading())
    text = shown.replace("\\'", "'") if generated and not server.mariadb else shown
    words = Words(text, Dialect(mariadb=server.mariadb, version=server.version))
    if not words:
        return shown
    tokens = take_default(words)
    # An expression need not be in parentheses here.
    return server_default(column, tokens, Reading()) if not words else None


def _keys(rows: Iterable[KeyRow], references: Sequence[ForeignKey]) -> Iterable[Key]:
    for name, parts in groupby(rows, attrgetter("name")):
        found = list(parts)
        columns = tuple(part.column for part in found if part.column is not None)
        kind = PRIMARY if name == "PRIMARY" else INDEX if found[0].non_unique else UNIQUE
        # Nobody shows whether the server made a key for a foreign key; such a key is called like it, or its column.
        served = any(key.columns == columns and name in (key.name, columns[0]) for key in references)
        yield Key(name, kind, columns, len(columns) < len(found), kind == INDEX and served)


def _foreign_keys(rows: Iterable[ReferenceRow]) -> Iterable[ForeignKey]:
    for name, parts in groupby(rows, attrgetter("name")):
        found = list(parts)
        columns = tuple(part.column for part in found)
        actions = (rule.replace("NO ACTION", "RESTRICT") for rule in (found[0].on_delete, found[0].on_update))
        yield ForeignKey(name, columns, found[0].database, found[0].parent, *actions)
