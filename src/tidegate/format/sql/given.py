"""Turns values as users write them in JSON into the text form that change events have.

int, year             a whole number, or its text; true is 1
bit                   the same, or `0b101`
float, double         a number, or its text
decimal               a number or its text; printed with the column's scale
char, text            a text
binary, blob          a text (its UTF-8 bytes), {"hex": "00ff"} or {"base64": "AP8="}
date and time         a text; fractions are filled up to the column's digits, hours to two
enum                  an element's name, or its number
set                   names joined by commas, a list of names, or the bit mask
json                  a text that is JSON already, or any other JSON value; printed as TiDB prints it (`json_values`)
vector                a list of numbers, or its text

Equal values get the same text, in whatever form they are given. A value that the column cannot hold is refused.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from decimal import Context, Decimal

import numpy as np

from tidegate.errors import BadEvents
from tidegate.format.sql.json_values import json_text, read_json
from tidegate.format.tables import Column

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_DAY = r"[0-9]{4}-(?:0[0-9]|1[0-2])-(?:[0-2][0-9]|3[01])"
_DATE = re.compile(_DAY)
_DATETIME = re.compile(rf"({_DAY} (?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9])(?:\.([0-9]{{1,6}}))?")
_TIME = re.compile(r"(-?)([0-9]{1,3})(:[0-5][0-9]:[0-5][0-9])(?:\.([0-9]{1,6}))?")
_MOST_HOURS = 838
_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_TOO_LARGE = {"float": 2**128 - 2**103, "double": 2**1024 - 2**970}  # numbers from here on round to infinity
_LARGEST = {"float": "3.4028235e38", "double": "1.7976931348623157e308"}
_EXACT = Context(prec=400)


def given_value(column: Column, value: object) -> bytes | None:
    """`given_value(Column("p", "decimal", flen=5, decimals=2), 0.5)` is b"0.50"; None means NULL."""
    if value is None:
        if not column.nullable:
            raise _refused(value, column, "a value: the column is NOT NULL")
        return None
    if column.is_bytes:
        return _bytes(value, column)
    return _READERS.get(column.type, _text)(value, column).encode("utf-8", "surrogateescape")


def _refused(value: object, column: Column, wanted: str) -> BadEvents:
    shown = "NULL" if value is None else str(value) if isinstance(value, Decimal) else repr(value)
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    return BadEvents(f"column {column.name!r} ({column.type}) cannot be {shown}: it must be {wanted}")


def _bytes(value: object, column: Column) -> bytes:
    try:
        match value:
            case str():
                return value.encode("utf-8", "surrogateescape")
            case {"hex": str(text), **rest} if not rest:
                return bytes.fromhex(text)
            case {"base64": str(text), **rest} if not rest:
                return base64.b64decode(text, validate=True)
    except ValueError as exc:
        raise _refused(value, column, f"good hex or base64 ({exc})") from exc
    raise _refused(value, column, 'a text, {"hex": ...} or {"base64": ...}')


def _text(value: object, column: Column) -> str:
    if isinstance(value, str):
        return value
    raise _refused(value, column, "a text")


# Numbers ------------------------------------------------------------------------------------------------------------


def _number(value: object, column: Column) -> Decimal:
    if isinstance(value, bool | int | float | Decimal):
        found = Decimal(repr(value) if isinstance(value, float) else value)
    elif isinstance(value, str) and _NUMBER.fullmatch(value):
        found = Decimal(value)
    else:
        raise _refused(value, column, "a number")
    if not found.is_finite():
        raise _refused(value, column, "a finite number")
    if found < 0 and (column.unsigned or column.zerofill):
        raise _refused(value, column, "0 or more: the column is unsigned")
    return found


def _whole(value: object, column: Column, least: int, most: int) -> int:
    found = _number(value, column)
    if not least <= found <= most or found != found.to_integral_value():
        raise _refused(value, column, f"a whole number from {least} to {most}")
    return int(found)


def _integer(value: object, column: Column) -> str:
    bits = _BITS[column.type]
    if column.unsigned or column.zerofill:
        return str(_whole(value, column, 0, (1 << bits) - 1))
    return str(_whole(value, column, -(1 << bits - 1), (1 << bits - 1) - 1))


def _year(value: object, column: Column) -> str:
    found = _whole(value, column, 0, 2155)
    if 0 < found < 1901:
        raise _refused(value, column, "0, or a year from 1901 to 2155")
    return str(found)


def _bit(value: object, column: Column) -> str:
    if isinstance(value, str) and re.fullmatch("0b[01]+", value):
        value = int(value, 2)
    return str(_whole(value, column, 0, (1 << (column.flen or 1)) - 1))


def _float(value: object, column: Column) -> str:
    found = _number(value, column)
    if found.copy_abs() >= _TOO_LARGE[column.type]:
        raise _refused(value, column, f"at most {_LARGEST[column.type]} in size")
    return str(found.normalize(_EXACT))


def _decimal(value: object, column: Column) -> str:
    scale = column.decimals or 0
    places = (10 if column.flen is None else column.flen) - scale
    found = _number(value, column)
    fits = found.copy_abs() < 10**places
    exact = found.quantize(Decimal(1).scaleb(-scale), context=_EXACT) if fits else found
    if not fits or exact != found:
        raise _refused(value, column, f"a number with at most {places} digits before the point and {scale} after it")
    return format(exact if exact else exact.copy_abs(), "f")


def _vector(value: object, column: Column) -> str:
    try:
        items = read_json(value) if isinstance(value, str) else value
    except ValueError as exc:
        raise _refused(value, column, f"a list of numbers ({exc})") from exc
    if not isinstance(items, list):
        raise _refused(value, column, "a list of numbers, or its text")
    if column.flen is not None and len(items) != column.flen:
        raise _refused(value, column, f"a list of {column.flen} numbers")
    return "[" + ",".join(_vector_item(item, column) for item in items) + "]"


def _vector_item(item: object, column: Column) -> str:
    found = float(_number(item, column))
    if abs(found) >= _TOO_LARGE["float"]:
        raise _refused(item, column, f"numbers of at most {_LARGEST['float']} in size")
    return np.format_float_positional(np.float32(found), unique=True, trim="-")


# Dates and times ----------------------------------------------------------------------------------------------------


def _date(value: object, column: Column) -> str:
    if isinstance(value, str) and _DATE.fullmatch(value):
        return value
    raise _refused(value, column, "a date such as 2026-01-31")


def _datetime(value: object, column: Column) -> str:
    match = _DATETIME.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise _refused(value, column, "a moment such as 2026-01-31 23:59:59")
    return match[1] + _fraction(value, match[2] or "", column)


def _time(value: object, column: Column) -> str:
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    if match is None or int(match[2]) > _MOST_HOURS:
        raise _refused(value, column, f"a time such as -12:34:56, of at most {_MOST_HOURS} hours")
    text = f"{int(match[2]):02d}{match[3]}{_fraction(value, match[4] or '', column)}"
    return match[1] + text if text.strip("0:.") else text


def _fraction(value: object, digits: str, column: Column) -> str:
    wanted = column.decimals or 0
    if len(digits.rstrip("0")) > wanted:
        raise _refused(value, column, f"a text with at most {wanted} digits of a second")
    return "." + digits.ljust(wanted, "0")[:wanted] if wanted else ""


# Elements and JSON --------------------------------------------------------------------------------------------------


def _enum(value: object, column: Column) -> str:
    if isinstance(value, str) and value in column.elems:
        return str(column.elems.index(value) + 1)
    if isinstance(value, str) and value:
        raise _refused(value, column, f"one of {', '.join(column.elems)}, or a number")
    return str(_whole(value or 0, column, 0, len(column.elems)))


def _set(value: object, column: Column) -> str:
    names = [name for name in value.split(",") if name] if isinstance(value, str) else value
    if not isinstance(names, list):
        return str(_whole(names, column, 0, (1 << len(column.elems)) - 1))
    if unknown := [name for name in names if name not in column.elems]:
        raise _refused(unknown[0], column, f"some of {', '.join(column.elems)}, or a number")
    return str(sum({1 << column.elems.index(name) for name in names}))


def _json(value: object, column: Column) -> str:
    try:
        return json_text(read_json(value) if isinstance(value, str) else value)
    except ValueError as exc:
        raise _refused(value, column, f'JSON, where a string needs its own quotes: "\\"x\\"" ({exc})') from exc


_READERS: dict[str, Callable[[object, Column], str]] = {
    **dict.fromkeys(_BITS, _integer),
    **dict.fromkeys(_LARGEST, _float),
    **dict.fromkeys(("datetime", "timestamp"), _datetime),
    "year": _year,
    "bit": _bit,
    "decimal": _decimal,
    "date": _date,
    "time": _time,
    "enum": _enum,
    "set": _set,
    "json": _json,
    "vector": _vector,
}
