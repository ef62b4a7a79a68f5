"""Values as people write them in JSON, turned into the text form that change events carry.

int, year, bit        a number, or its text; true is 1
float, double         a number, or its text
decimal               a number or its text; printed with the column's scale
char, text            a text
binary, blob          a text (its UTF-8 bytes), {"hex": "00ff"} or {"base64": "AP8="}
date and time         a text; fractions are filled up to the column's digits, hours to two
enum                  an element's name, or its number
set                   names joined by commas, a list of names, or the bit mask
json                  a text that is JSON already, or any other JSON value
vector                a text, or a list of numbers
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from math import isfinite

from tidegate.errors import BadEvents
from tidegate.format.tables import Column

_WHOLE = re.compile(r"-?[0-9]+")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_DATETIME = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,6}))?")
_TIME = re.compile(r"(-?)([0-9]{1,3})(:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,6}))?")


def given_value(column: Column, value: object) -> bytes | None:
    """`given_value(Column("p", "decimal", flen=5, decimals=2), 0.5)` is b"0.50"; None stands for NULL."""
    if value is None:
        return None
    if column.is_bytes:
        return _bytes(value, column)
    return _READERS.get(column.type, _text)(value, column).encode("utf-8", "surrogateescape")


def _refused(value: object, column: Column, wanted: str) -> BadEvents:
    return BadEvents(f"column {column.name!r} ({column.type}) cannot be {value!r}: it must be {wanted}")


def _bytes(value: object, column: Column) -> bytes:
    try:
        match value:
            case str():
                return value.encode("utf-8", "surrogateescape")
            case {"hex": str(text)}:
                return bytes.fromhex(text)
            case {"base64": str(text)}:
                return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error) as exc:
        raise _refused(value, column, f"good hex or base64 ({exc})") from exc
    raise _refused(value, column, 'a text, {"hex": ...} or {"base64": ...}')


def _text(value: object, column: Column) -> str:
    if isinstance(value, str):
        return value
    raise _refused(value, column, "a text")


def _number(value: object, column: Column) -> Decimal:
    if isinstance(value, bool | int | float | Decimal | str):
        try:
            found = Decimal(int(value) if isinstance(value, bool) else str(value))
        except InvalidOperation:
            found = Decimal("NaN")
        if found.is_finite():
            return found
    raise _refused(value, column, "a number")


def _integer(value: object, column: Column) -> str:
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        return str(int(value))
    found = _number(value, column)
    if found != found.to_integral_value():
        raise _refused(value, column, "a whole number")
    return str(int(found))


def _float(value: object, column: Column) -> str:
    return str(_number(value, column))


def _decimal(value: object, column: Column) -> str:
    digits = Decimal(1).scaleb(-(column.decimals or 0))
    return format(_number(value, column).quantize(digits, ROUND_HALF_UP), "f")


def _date(value: object, column: Column) -> str:
    if isinstance(value, str) and _DATE.fullmatch(value):
        return value
    raise _refused(value, column, "a date such as 2026-01-31")


def _datetime(value: object, column: Column) -> str:
    match = _DATETIME.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise _refused(value, column, "a moment such as 2026-01-31 23:59:59")
    return match[1] + _fraction(value, match[2], column)


def _time(value: object, column: Column) -> str:
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise _refused(value, column, "a time such as -12:34:56")
    return f"{match[1]}{int(match[2]):02d}{match[3]}{_fraction(value, match[4], column)}"


def _fraction(value: object, digits: str | None, column: Column) -> str:
    wanted = column.decimals or 0
    if len((digits or "").rstrip("0")) > wanted:
        raise _refused(value, column, f"a text with at most {wanted} digits of a second")
    return "." + (digits or "").ljust(wanted, "0")[:wanted] if wanted else ""


def _enum(value: object, column: Column) -> str:
    if isinstance(value, str):
        if value in column.elems:
            return str(column.elems.index(value) + 1)
        if value:
            raise _refused(value, column, f"one of {', '.join(column.elems)}, or a number")
        return "0"
    return _integer(value, column)


def _set(value: object, column: Column) -> str:
    names = value.split(",") if isinstance(value, str) and value else value or []
    if isinstance(names, list):
        if unknown := [name for name in names if name not in column.elems]:
            raise _refused(unknown[0], column, f"some of {', '.join(column.elems)}, or a number")
        return str(sum({1 << column.elems.index(name) for name in names}))
    return _integer(value, column)


def _json(value: object, column: Column) -> str:
    return value if isinstance(value, str) else json_text(value)


def json_text(value: object) -> str:
    """A JSON value as TiDB prints it: `{"a": [true, 1.0], "b": "x"}`, keys sorted by their bytes."""
    match value:
        case dict():
            members = sorted(value.items(), key=lambda member: member[0].encode("utf-8", "surrogateescape"))
            return "{" + ", ".join(f"{_json_string(key)}: {json_text(item)}" for key, item in members) + "}"
        case list():
            return "[" + ", ".join(map(json_text, value)) + "]"
        case str():
            return _json_string(value)
        case Decimal() | float():
            return _json_float(float(value))
        case _:
            return json.dumps(value)


def _json_string(text: str) -> str:
    shown = json.dumps(text, ensure_ascii=False)
    return shown.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _json_float(value: float) -> str:
    if not isfinite(value):
        raise BadEvents(f"JSON has no number {value}")
    if value and not 1e-15 <= abs(value) < 1e15:
        mantissa, _, exponent = repr(value).partition("e")
        if not exponent:  # 1e15 up to 1e16, which repr still writes out
            mantissa, _, exponent = format(Decimal(repr(value)).normalize(), "e").partition("e")
        return f"{mantissa.removesuffix('.0')}e{int(exponent)}"
    text = format(Decimal(repr(value)), "f")
    return text if "." in text else text + ".0"


def _vector(value: object, column: Column) -> str:
    if isinstance(value, list):
        return "[" + ",".join(format(_number(item, column).normalize(), "f") for item in value) + "]"
    return _text(value, column)


_READERS: dict[str, Callable[[object, Column], str]] = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint", "year", "bit"), _integer),
    **dict.fromkeys(("float", "double"), _float),
    **dict.fromkeys(("datetime", "timestamp"), _datetime),
    "decimal": _decimal,
    "date": _date,
    "time": _time,
    "enum": _enum,
    "set": _set,
    "json": _json,
    "vector": _vector,
}
