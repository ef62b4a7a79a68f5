"""Checks the catalogue against TABLE_MAP, the log's own word on how the rows that follow are stored.

DDL text proposes, TABLE_MAP checks. A statement that was misunderstood is found here before any row of its table is
handed out under wrong columns.
"""

from __future__ import annotations

import re
from dataclasses import replace

from tidegate.errors import BadLog
from tidegate.format.tables import Column
from tidegate.sources.mysql.catalogue import TableEntry
from tidegate.sources.mysql.definition import PRIMARY, UNIQUE, Definition, ServerColumn
from tidegate.sources.mysql.log.layouts import layout_of
from tidegate.sources.mysql.log.table_map import TableMap

_HIDDEN = re.compile(r"DB_ROW_HASH_\d+")  # MariaDB: a column behind a unique key over long texts
_WITH_LENGTH = ("char", "varchar", "decimal", "bit", "vector")
_WITH_CHARSET = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")


def agree(table_map: TableMap, entry: TableEntry) -> tuple[int, ...]:
    """Where the values of the layout's stored columns are in a row of the log: `(0, 1, 3)` if column 2 is virtual.

    BadLog, with the column, if the log and the catalogue contradict each other.
    """
    logged = list(table_map.columns)
    while len(logged) > len(entry.definition.columns) and _HIDDEN.fullmatch(logged[-1].name):
        logged.pop()
    shown = layout_of(replace(table_map, columns=tuple(logged))).columns
    known = entry.definition.columns
    _check(table_map, "columns", [column.name for column in shown], [each.name for each in known])
    for column, each, raw in zip(shown, known, logged, strict=True):
        _check_column(table_map, column, each, raw.stored.charset)
    _check_key(table_map, {column.name for column in shown if column.pk}, entry.definition)
    return tuple(at for at, each in enumerate(known) if not each.column.virtual)


def _check(table_map: TableMap, what: str, logged: object, known: object) -> None:
    if logged != known:
        raise BadLog(
            f"the log shows {table_map.name} with the {what} {logged}, the catalogue has {known}: a DDL of it was not "
            "understood; begin with a new sink, and report the DDLs of this table"
        )


def _check_column(table_map: TableMap, logged: Column, each: ServerColumn, charset: str) -> None:
    column, name = each.column, repr(each.name)
    _check(table_map, f"type of {name}", logged.type_name, column.type_name)
    _check(table_map, f"sign of {name}", logged.unsigned, column.unsigned or column.zerofill)
    _check(table_map, f"nullability of {name}", logged.nullable, column.nullable)
    _check(table_map, f"digits of {name}", logged.decimals or 0, _digits(column))
    if not _same_elements(logged.elems, column.elems):
        _check(table_map, f"elements of {name}", logged.elems, column.elems)
    if column.type in _WITH_LENGTH and (column.type != "vector" or logged.flen):
        _check(table_map, f"length of {name}", logged.flen, column.flen)
    if column.type in _WITH_CHARSET:
        _check(table_map, f"character set of {name}", charset, each.charset)


def _same_elements(logged: tuple[str, ...], known: tuple[str, ...]) -> bool:
    """Letters that the column's character set does not have are question marks in the log."""
    pairs = zip(logged, known, strict=False)
    return len(logged) == len(known) and all(
        len(one) == len(other) and all(a in (b, "?") for a, b in zip(one, other, strict=True)) for one, other in pairs
    )


def _digits(column: Column) -> int:
    return 0 if column.type in ("float", "double") else column.decimals or 0


def _check_key(table_map: TableMap, logged: set[str], definition: Definition) -> None:
    """Without a primary key the log names a unique key of which no column is nullable, if there is one."""
    nullable = {each.name for each in definition.columns if each.column.nullable}
    primary = [set(key.columns) for key in definition.keys if key.kind == PRIMARY]
    unique = [set(key.columns) for key in definition.keys if key.kind == UNIQUE and not nullable & set(key.columns)]
    if logged not in (primary or unique or [set()]) and logged:
        _check(table_map, "primary key", sorted(logged), sorted(primary[0]) if primary else "none of these columns")
    if primary and not logged:
        _check(table_map, "primary key", [], sorted(primary[0]))
