"""How canal-json names a column's type: `sqlType` is a number from Java's SQL types, `mysqlType` is MySQL's name.

    sql_type(Column("id", "int"))                                     4
    mysql_type(Column("id", "int", unsigned=True))                    int unsigned
    full_mysql_type(Column("id", "int", unsigned=True))               int(10) unsigned

Java has no unsigned integers, so the number of an unsigned column depends on the value. `large_sql_type` says above
which value a column gets another number.
"""

from __future__ import annotations

from typing import NamedTuple

from tidegate.format.tables import Column

_BIT, _TINYINT, _SMALLINT, _INTEGER, _BIGINT, _DECIMAL, _VARCHAR = -7, -6, 5, 4, -5, 3, 12
_CLOB, _BLOB = 2005, 2004
_TEXTS = ("tinytext", "text", "mediumtext", "longtext")
_SQL_TYPES = dict.fromkeys(_TEXTS, _CLOB) | {
    "bit": _BIT,
    "tinyint": _TINYINT,
    "smallint": _SMALLINT,
    "mediumint": _INTEGER,
    "int": _INTEGER,
    "bigint": _BIGINT,
    "float": 7,
    "double": 8,
    "decimal": _DECIMAL,
    "date": 91,
    "time": 92,
    "datetime": 93,
    "timestamp": 93,
    "char": 1,
    "enum": _INTEGER,
    "set": _BIT,
}
_IN_ELEMENTS = str.maketrans({"'": "''", "\0": "\\0", "\n": "\\n", "\r": "\\r"})


class Large(NamedTuple):
    """Values above `most` have this other `sql_type`."""

    most: int
    sql_type: int


_LARGE = {
    "tinyint": Large(2**7 - 1, _SMALLINT),
    "smallint": Large(2**15 - 1, _INTEGER),
    "int": Large(2**31 - 1, _BIGINT),
    "bigint": Large(2**63 - 1, _DECIMAL),
}


def sql_type(column: Column) -> int:
    return _BLOB if column.is_bytes else _SQL_TYPES.get(column.type, _VARCHAR)


def large_sql_type(column: Column) -> Large | None:
    """None if the number does not depend on the value, as for all signed columns and MEDIUMINT."""
    return _LARGE.get(column.type) if _is_unsigned(column) else None


def mysql_type(column: Column) -> str:
    return column.type_name + _flags(column)


def full_mysql_type(column: Column) -> str:
    """The type with its length, as lines show it with `content-compatible`."""
    return column.type_name + _length(column) + _flags(column)


def _is_unsigned(column: Column) -> bool:
    return (column.unsigned or column.zerofill) and column.type not in ("bit", "year")


def _flags(column: Column) -> str:
    if not _is_unsigned(column):
        return ""
    return " unsigned zerofill" if column.zerofill else " unsigned"


def _length(column: Column) -> str:
    length = column.length
    match column.type:
        case "decimal":
            return f"({length},{column.decimals or 0})"
        case "float" | "double":
            return f"({length},{column.decimals})" if column.decimals else ""
        case "datetime" | "timestamp" | "time":
            return f"({column.decimals})" if column.decimals else ""
        case "enum" | "set":
            return "(" + ",".join(f"'{element.translate(_IN_ELEMENTS)}'" for element in column.elems) + ")"
        case "vector":
            return f"({column.flen})" if column.flen is not None else ""
        case kind:
            return "" if length is None or kind in _TEXTS else f"({length})"
