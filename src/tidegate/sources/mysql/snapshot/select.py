"""The SQL that reads a table: what is asked for each column, and which rows are between two borders of a key.

A column is asked for in the form that loses nothing and is nearest to the text of change events (docs/events.md):

    int, decimal, date, time...  as it is; a TIMESTAMP follows the session's zone, which is UTC
    ... with ZEROFILL            CAST, because the zeros in front are no part of the value
    bit, enum, set, year         CAST(c AS UNSIGNED): numbers, where SQL would show bytes, names or `0000`
    float, double                CAST(c AS DOUBLE): all digits, where SQL would show six of a FLOAT
    char, text, binary, json     as it is; the session converts no character set, so the bytes are those of the log

Keys are compared by the server alone, because only it knows its collations. A border is kept as the SQL literals of its
values: `["7", "_utf8mb4 x'6162'"]`. The values of two borders are never compared here.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.format.tables import Column
from tidegate.sources.mysql.snapshot.protocol import MARK

Border = tuple[str, ...]

# A session that reads rows. Zero dates and days that do not exist may be borders.
SESSION = (
    "SET SESSION sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00', character_set_results = NULL, "
    "net_write_timeout = 600",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
)
_NUMBERS = frozenset(("bit", "enum", "set", "year"))
_INTEGERS = frozenset(("tinyint", "smallint", "mediumint", "int", "bigint"))
_FLOATS = frozenset(("float", "double"))
_MOMENTS = frozenset(("date", "datetime", "timestamp", "time"))
_MOST_ELEMENTS = 256  # of an ENUM that are written out


def quoted(name: str) -> str:
    """`quoted("a`b")` is the name as SQL has it."""
    return "`" + name.replace("`", "``") + "`"


def expression(column: Column) -> str:
    """What to select for the values of this column."""
    name = quoted(column.name)
    if column.type in _NUMBERS or (column.type in _INTEGERS and column.zerofill):
        return f"CAST({name} AS UNSIGNED)"
    if column.type in _FLOATS:
        return f"CAST({name} AS DOUBLE)"
    if column.type == "decimal" and column.zerofill:
        return f"CAST({name} AS DECIMAL({column.length},{column.decimals or 0}))"
    return name


def select_rows(schema: str, table: str, columns: Sequence[Column], where: str = "", index: str = "") -> str:
    """A statement for `protocol.Answer`; the server is told to use the index, because it may think that all is less."""
    wanted = ",".join([MARK, *map(expression, columns)])
    statement = f"SELECT {wanted} FROM {quoted(schema)}.{quoted(table)}"
    statement += f" FORCE INDEX ({quoted(index)})" if index else ""
    return statement + (f" WHERE {where}" if where else "")


# Borders --------------------------------------------------------------------------------------------------------------


def literal(column: Column, charset: str, text: bytes) -> str:
    """The SQL literal of a value in the form in which `expression` shows it; a text has the column's charset."""
    if column.type in _FLOATS:
        return text.decode() if b"e" in text else text.decode() + "e0"
    if column.type in _INTEGERS or column.type in _NUMBERS or column.type == "decimal":
        return text.decode()
    if column.type in _MOMENTS:
        return f"'{text.decode()}'"
    return f"x'{text.hex()}'" if charset == "binary" else f"_{charset} x'{text.hex()}'"


def between(key: Sequence[Column], low: Border | None, high: Border | None) -> str:
    """Which rows are above `low` and not above `high`; None is no border."""
    parts = [_above(key, low)] if low is not None else []
    parts += [_not_above(key, high)] if high is not None else []
    return " AND ".join(f"({part})" for part in parts)


def _above(key: Sequence[Column], border: Border) -> str:
    """`a > 1 OR (a = 1 AND b > 2)`; the server finds a range of the index for this, but not for `(a, b) > (1, 2)`."""
    name, value = quoted(key[0].name), border[0]
    more = _greater(key[0], value)
    if len(key) == 1:
        return more
    return f"{more} OR ({name} = {value} AND ({_above(key[1:], border[1:])}))"


def _not_above(key: Sequence[Column], border: Border) -> str:
    name, value = quoted(key[0].name), border[0]
    if len(key) == 1:
        return f"{_less(key[0], value)} OR {name} = {value}" if _is_listed(key[0]) else f"{name} <= {value}"
    return f"{_less(key[0], value)} OR ({name} = {value} AND ({_not_above(key[1:], border[1:])}))"


def _is_listed(column: Column) -> bool:
    return column.type == "enum" and len(column.elems) <= _MOST_ELEMENTS


def _greater(column: Column, value: str) -> str:
    """An ENUM is ordered by its numbers, but the server uses its index only for equality: so all numbers are listed."""
    name = quoted(column.name)
    if not _is_listed(column):
        return f"{name} > {value}"
    return _one_of(name, range(int(value) + 1, len(column.elems) + 1))


def _less(column: Column, value: str) -> str:
    name = quoted(column.name)
    return _one_of(name, range(int(value))) if _is_listed(column) else f"{name} < {value}"


def _one_of(name: str, numbers: range) -> str:
    return f"{name} IN ({','.join(map(str, numbers))})" if numbers else "FALSE"
