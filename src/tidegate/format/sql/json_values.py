"""Prints JSON as TiDB does: `{"a": [true, null, 1.0, "x"], "b": 1}`; and reads JSON without losing digits.

Keys are sorted by their bytes. A whole number beyond 64 bits is a double, as in TiDB. A double keeps its point, or has
an exponent below 1e-15 and from 1e15 on: `1.0`, `1e20`, `1.5e-16`.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from math import isfinite
from typing import Any, NoReturn

_ESCAPED = re.compile("[\u2028\u2029\udc80-\udcff]")
_LEAST, _MOST = -(1 << 63), (1 << 64) - 1
_MOST_LEVELS = 100  # as in TiDB


def read_json(text: str) -> Any:
    """The value; numbers with a point or an exponent are Decimals. Raises ValueError if the text is wrong."""
    try:
        return json.loads(text, parse_float=Decimal, parse_constant=_refuse_constant)
    except ArithmeticError as exc:
        raise ValueError("a number's exponent is too long") from exc
    except RecursionError as exc:
        raise ValueError("it is nested too deeply") from exc


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"JSON has no number {word}")


def json_text(value: object, levels: int = _MOST_LEVELS) -> str:
    """The text that TiDB shows for a JSON value of at most `levels` levels."""
    if levels < 0:
        raise ValueError(f"it is nested more than {_MOST_LEVELS} levels deep")
    match value:
        case dict():
            members = sorted((key.encode("utf-8", "surrogateescape"), key) for key in value)
            shown = [f"{_string(key)}: {json_text(value[key], levels - 1)}" for _, key in members]
            return "{" + ", ".join(shown) + "}"
        case list():
            return "[" + ", ".join(json_text(item, levels - 1) for item in value) + "]"
        case str():
            return _string(value)
        case bool() | None:
            return json.dumps(value)
        case int() if _LEAST <= value <= _MOST:
            return str(value)
        case int() | float() | Decimal():
            return _double(value)
    raise ValueError(f"JSON has no value {value!r}")


def _string(text: str) -> str:
    return _ESCAPED.sub(_escape, json.dumps(text, ensure_ascii=False))


def _escape(match: re.Match[str]) -> str:
    """A byte that is not UTF-8 is a lone surrogate in a Python text; it is shown as the replacement character."""
    return f"\\u{ord(match[0]):04x}" if match[0] in "\u2028\u2029" else "\\ufffd"


def _double(number: int | float | Decimal) -> str:
    value = float(Decimal(number))
    if not isfinite(value):
        raise ValueError("a number is beyond the largest double")
    if value and not 1e-15 <= abs(value) < 1e15:
        mantissa, _, exponent = format(Decimal(repr(value)).normalize(), "e").partition("e")
        return f"{mantissa}e{int(exponent)}"
    text = plain_float(value)
    return text if "." in text else text + ".0"


def plain_float(value: float) -> str:
    """`1000000` for `1e6`: shortest digits, and zeros instead of an exponent."""
    return format(Decimal(repr(value)), "f").removesuffix(".0")
