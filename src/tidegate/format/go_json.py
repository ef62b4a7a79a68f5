"""JSON as Go's `json.MarshalIndent` prints it, which is how TiCDC writes schema files.

The text is the same byte for byte: `<`, `>` and `&` are escaped, and floats have Go's form.
"""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal

from tidegate.errors import BadEvents

_GO_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
_GO_ESCAPED = re.compile(r'["\\\x00-\x1f<>&\u2028\u2029\ud800-\udfff]')


def go_json(value: object, indent: str = "\n") -> str:
    """The text of `json.MarshalIndent(value, "", "    ")`; a str may hold bad UTF-8 bytes as lone surrogates."""
    deeper = indent + "    "
    match value:
        case dict() if value:
            return (
                "{" + ",".join(f"{deeper}{go_string(k)}: {go_json(v, deeper)}" for k, v in value.items()) + indent + "}"
            )
        case list() | tuple() if value:
            return "[" + ",".join(deeper + go_json(item, deeper) for item in value) + indent + "]"
        case str():
            return go_string(value)
        case float():
            return _go_float(value)
        case int() if not isinstance(value, bool):
            return str(value)
        case _:
            return json.dumps(value)


def go_string(text: str) -> str:
    return '"' + _GO_ESCAPED.sub(_go_escape, text) + '"'


def _go_escape(match: re.Match[str]) -> str:
    char = match[0]
    if "\ud800" <= char <= "\udfff":
        return "\\ufffd"
    return _GO_ESCAPES.get(char) or f"\\u{ord(char):04x}"


def _go_float(value: float) -> str:
    """`100000` and `1e+21`: shortest digits, an exponent only outside 1e-6 .. 1e21."""
    if not math.isfinite(value):
        raise BadEvents(f"a column default cannot be {value}")
    if value and not 1e-6 <= abs(value) < 1e21:
        mantissa, exponent = repr(value).split("e")
        return f"{mantissa}e{int(exponent):+d}"
    return format(Decimal(repr(value)), "f").removesuffix(".0")
