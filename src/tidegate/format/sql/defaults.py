"""The value that TiDB stores for a column's DEFAULT: nearly always a text, which the schema file shows.

c int default 2.8                      3
c datetime(3) default now(3)           CURRENT_TIMESTAMP
c bit(9) default b'100000001'          the bytes 01 01
c int default x'41'                    65; for a text column A
"""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Decimal

from tidegate.errors import BadEvents
from tidegate.format.sql.given import given_value
from tidegate.format.sql.json_values import plain_float
from tidegate.format.sql.words import Token, Words
from tidegate.format.tables import Column

_NOW = ("current_timestamp", "now", "localtime", "localtimestamp")
_TODAY = ("current_date", "curdate")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint")
_HOLD_BYTES = ("bit", "char", "varchar", "var_string", "enum", "set")
_ZERO_TIMES = {"date": "0000-00-00", "time": "00:00:00"} | dict.fromkeys(
    ("datetime", "timestamp"), "0000-00-00 00:00:00"
)


def stored_default(column: Column, words: Words) -> str | None:
    """Reads the default that is next in the definition; None for NULL."""
    token = words.take()
    match token.kind:
        case "literal":
            return _of_literal(column, token)
        case "text":
            return _of_text(column, token.value)
        case "word":
            return _of_word(column, token, words)
    raise words.refuse('has an expression for its default: give the column as an object with "default"')


def _of_word(column: Column, token: Token, words: Words) -> str | None:
    word = token.value.lower()
    if word in _NOW or word in _TODAY:
        words.group()  # the digits equal those of the column, so they are not stored
        return "CURRENT_TIMESTAMP" if word in _NOW else "CURRENT_DATE"
    if word == "null":
        return None
    number = {"true": "1", "false": "0"}.get(word, word).removeprefix("+")
    if not _NUMBER.fullmatch(number):
        raise words.refuse(f"has the unknown default {token.value!r}; a text needs quotes")
    return _of_number(column, number)


def _of_literal(column: Column, token: Token) -> str:
    number = int.from_bytes(token.raw, "big")
    if column.type not in _HOLD_BYTES:
        return _of_text(column, str(number))
    if column.type == "bit":
        _checked(column, number)
    return _padded(column, token.text)


def _of_number(column: Column, number: str) -> str:
    match column.type:
        case "bit":
            value = int(_checked(column, number))
            return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big").decode("utf-8", "surrogateescape")
        case "enum" | "set":
            return _names(column, int(_checked(column, Decimal(number))))
        case "date" | "time" | "datetime" | "timestamp" if not Decimal(number):
            return _of_text(column, _ZERO_TIMES[column.type])
    return _of_text(column, number)


def _checked(column: Column, value: object) -> str:
    """The value's text, if the column can hold it."""
    return (given_value(column, value) or b"").decode()


def _names(column: Column, number: int) -> str:
    """The name of the enum element with this number, or the names of the set elements of this mask."""
    if not number:
        raise BadEvents(f"column {column.name!r} ({column.type}) cannot have the default 0: name an element")
    if column.type == "enum":
        return column.elems[number - 1]
    return ",".join(name for bit, name in enumerate(column.elems) if number >> bit & 1)


def _of_text(column: Column, text: str) -> str:
    if column.type in _INTEGERS and _NUMBER.fullmatch(text):
        return _checked(column, Decimal(text).to_integral_value(ROUND_HALF_UP))
    if column.type in ("float", "double") and _NUMBER.fullmatch(text):
        return plain_float(float(_checked(column, text)))
    if column.type in _ZERO_TIMES:
        whole_day = column.type not in ("date", "time") and len(text) == len("2026-01-31")
        return _checked(column, text + " 00:00:00" * whole_day)
    return _padded(column, text)


def _padded(column: Column, text: str) -> str:
    """BINARY(n) is filled up with zero bytes."""
    if column.type != "char" or not column.binary:
        return text
    missing = (column.flen or 1) - len(text.encode("utf-8", "surrogateescape"))
    return text + "\0" * missing
