"""The order of keys in the two objects of a canal-json line that name types: `sqlType` and `mysqlType`.

TiCDC writes the members of `mysqlType` in the random order of a Go map, and JSON does not know an order. So where bytes
differ, both sides are compared once more with the members of these two objects sorted. Nothing else is forgiven, and
every text keeps its length, so that places in a file stay the same.
"""

from __future__ import annotations

import re

_TEXT = rb'"(?:[^"\\]|\\.)*"'
_MEMBER = re.compile(rb"%s:(?:%s|-?[0-9]+)" % (_TEXT, _TEXT), re.DOTALL)
# Quotes inside of texts are escaped, and the value of a column is a text. So this is the field of the line itself.
_TYPES = re.compile(rb'("(?:sqlType|mysqlType)":\{)(%s(?:,%s)+)(\})' % (_MEMBER.pattern, _MEMBER.pattern), re.DOTALL)


def in_one_order(lines: bytes) -> bytes:
    """`{"b":4,"a":12}` becomes `{"a":12,"b":4}`, where it is the `sqlType` or `mysqlType` of a line."""
    return _TYPES.sub(_sorted, lines)


def _sorted(found: re.Match[bytes]) -> bytes:
    return found[1] + b",".join(sorted(_MEMBER.findall(found[2]))) + found[3]
