"""Which files of a sink hold the rows of a table at a moment, told by the schema files: pure.

A name may have had several tables, and a table several names. The schema files of DDLs tell: CREATE and TRUNCATE begin
with nothing, RENAME goes on from what the old name had, DROP ends. So the rows of a table at commit-ts T are in version
directories of one or more names, each within bounds (`Part`). The versions in them also say which columns a DDL has
changed since a row was written, for such changes have no events.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tidegate.errors import VerifyError
from tidegate.format.ddl import events as ddl
from tidegate.format.tables import Column, Layout

_BEGINS = frozenset((ddl.CREATE_TABLE, ddl.TRUNCATE_TABLE, ddl.RECOVER_TABLE))
_LOSES = frozenset((ddl.DROP_PARTITION, ddl.TRUNCATE_PARTITION, ddl.EXCHANGE_PARTITION))
_TEXTS = ("tinytext", "text", "mediumtext", "longtext")
_BYTES = {"binary": "char", "varbinary": "varchar"} | {text[:-4] + "blob": text for text in _TEXTS}
_NAME = r"`((?:[^`]|``)+)`"
_RENAME = re.compile(rf"RENAME TABLE {_NAME}\.{_NAME} TO {_NAME}\.{_NAME};?", re.DOTALL)

Name = tuple[str, str]


class SchemaFile(NamedTuple):
    """What one schema file says."""

    version: int
    action: int
    query: str
    columns: tuple[Column, ...]

    @property
    def renamed_from(self) -> Name | None:
        found = _RENAME.fullmatch(self.query) if self.action == ddl.RENAME_TABLE else None
        return (_plain(found[1]), _plain(found[2])) if found else None


@dataclass(frozen=True)
class Part:
    """Data files of one name: those in directories of these schema files, with changes up to `until_ts`."""

    name: Name
    files: tuple[SchemaFile, ...]
    until_ts: int


def _plain(name: str) -> str:
    return name.replace("``", "`")


def read_schema_file(text: bytes, path: str) -> SchemaFile:
    """The inverse of `format.tables.schema_file_text`, as far as a reader needs it."""
    try:
        said = json.loads(text)
        columns = tuple(_column(each) for each in said["TableColumns"] or ())
        return SchemaFile(int(said["TableVersion"]), int(said["Type"]), str(said["Query"]), columns)
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise VerifyError(f"{path} is no schema file: {exc!r}") from exc


def _column(said: dict[str, Any]) -> Column:
    name, _, sign = said["ColumnType"].lower().partition(" ")
    precision, scale = said.get("ColumnPrecision"), said.get("ColumnScale")
    return Column(
        said["ColumnName"],
        _BYTES.get(name, name),
        flen=int(precision) if precision else None,
        decimals=int(scale) if scale else None,
        unsigned=sign == "unsigned",
        nullable=said.get("ColumnNullable") != "false",
        pk=said.get("ColumnIsPk") == "true",
        binary=name in _BYTES,
        elems=tuple(said.get("ColumnElems") or ()),
    )


SchemaFilesOf = Callable[[Name], Sequence[SchemaFile]]


def lineage(name: Name, ts: int, files_of: SchemaFilesOf) -> list[Part]:
    """The parts that make up the table of this name at `ts`, oldest first; nothing if there is no such table.

    `files_of` gives the schema files of a name.
    """
    return _lineage(name, ts, files_of, frozenset())


def _lineage(name: Name, ts: int, files_of: SchemaFilesOf, seen: frozenset[tuple[Name, int]]) -> list[Part]:
    known = sorted((file for file in files_of(name) if file.version <= ts), key=lambda file: file.version)
    first = _beginning(known)
    if first is None or not known[first:] or (name, ts) in seen:
        return []
    part, version = Part(name, tuple(known[first:]), ts), known[first].version
    before, seen = known[first].renamed_from, seen | {(name, ts)}
    if before is None:
        return [part]
    # A statement with several steps may use a name that was free before it: that one has its file at the same version.
    older = _lineage(before, version - 1, files_of, seen) or _lineage(before, version, files_of, seen)
    return [*older, part]


def _beginning(files: Sequence[SchemaFile]) -> int | None:
    """Where the last table of a name begins among its schema files; None if it has ended.

    A version that rows alone have described has no DDL, so without one that begins the table it is the first file.
    """
    for i in range(len(files) - 1, -1, -1):
        if files[i].action == ddl.DROP_TABLE:
            return i + 1 if i + 1 < len(files) else None
        if files[i].action in _BEGINS or files[i].action == ddl.RENAME_TABLE:
            return i
    return 0


class Unsaid(NamedTuple):
    """What a schema file does not say of its columns: which ones are virtual or filled with zeros, and unique keys."""

    virtual: frozenset[str] = frozenset()
    zerofill: frozenset[str] = frozenset()
    unique_keys: tuple[tuple[str, ...], ...] = ()


def layout(file: SchemaFile, unsaid: Unsaid) -> Layout:
    """The columns as data files of this version have them."""
    columns = tuple(
        replace(column, virtual=column.name in unsaid.virtual, zerofill=column.name in unsaid.zerofill)
        for column in file.columns
    )
    names = {column.name for column in columns}
    return Layout(columns, tuple(key for key in unsaid.unique_keys if names.issuperset(key)))


def unchanged(older: SchemaFile, newer: SchemaFile) -> dict[str, bool]:
    """For each column of `newer` whether `older` has the same, so that no DDL has changed its values in between."""
    before = {column.name: _meaning(column) for column in older.columns}
    return {column.name: before.get(column.name) == _meaning(column) for column in newer.columns}


def _meaning(column: Column) -> tuple[object, ...]:
    return (column.type, column.flen, column.decimals, column.unsigned, column.binary, column.elems)


def may_lose_rows(files: Sequence[SchemaFile], version: int) -> bool:
    """Whether a DDL after this version removes rows without an event."""
    return any(file.action in _LOSES and file.version > version for file in files)


def may_gain_rows(files: Sequence[SchemaFile]) -> bool:
    return any(file.action == ddl.EXCHANGE_PARTITION for file in files)
