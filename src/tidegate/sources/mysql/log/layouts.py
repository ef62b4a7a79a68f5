"""The column layout that a TABLE_MAP gives. It lacks defaults, unique keys, zerofill, widths and what is generated."""

from __future__ import annotations

from dataclasses import replace

from tidegate.format.tables import Column, Layout
from tidegate.sources.mysql.log import table_map as t
from tidegate.sources.mysql.log.charsets import char_bytes
from tidegate.sources.mysql.log.table_map import LogColumn, TableMap

_BLOBS = {1: "tinytext", 2: "text", 3: "mediumtext", 4: "longtext"}
_NAMES = t.INTEGERS | {
    t.FLOAT: "float", t.DOUBLE: "double", t.DECIMAL: "decimal", t.BIT: "bit", t.YEAR: "year", t.DATE: "date",
    t.TIMESTAMP: "timestamp", t.DATETIME: "datetime", t.TIME: "time", t.STRING: "char", t.VARCHAR: "varchar",
    t.ENUM: "enum", t.SET: "set", t.JSON: "json", t.VECTOR: "vector",
}  # fmt: skip


def layout_of(table: TableMap) -> Layout:
    """`Layout((Column("id", "int", nullable=False, pk=True), ...))`; a column that is not read is refused by name."""
    table.refuse_unread()
    return Layout(tuple(_column(column) for column in table.columns))


def _column(column: LogColumn) -> Column:
    kind, _, length_bytes, size, scale, unsigned, charset = column.stored
    name = _BLOBS[length_bytes] if kind == t.BLOB else _NAMES[kind]
    # TiDB's BIT and YEAR are unsigned, and its schema files say so.
    known = Column(
        column.name, name, nullable=column.nullable, pk=column.pk, unsigned=unsigned or kind in (t.BIT, t.YEAR)
    )
    if kind in t.TEXTS:
        known = replace(known, binary=charset == "binary")
    if kind in (t.STRING, t.VARCHAR):
        return replace(known, flen=size // char_bytes(charset))
    if kind in (t.TIMESTAMP, t.DATETIME, t.TIME):
        return replace(known, decimals=size)
    if kind == t.DECIMAL:
        return replace(known, flen=size, decimals=scale)
    if kind == t.BIT:
        return replace(known, flen=size)
    return replace(known, flen=column.dimensions, elems=column.elems)
