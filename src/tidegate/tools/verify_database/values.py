"""When two texts of a value mean the same: numbers with a fraction, JSON and vectors have several texts.

Floats are brought into one text when they are read, because they may be part of a key. JSON and vectors are looked at
only where their texts differ; of tables without a key they are brought into one text, too, since there the whole row is
the key.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa

from tidegate.format.encode.floats import FLOAT_BITS, float_texts

_STATED: dict[str, Callable[[bytes], object]] = {}


def in_one_form(values: pa.Array, kind: str, has_key: bool) -> pa.Array:
    """The texts of a column of this type (`double`, `json`), so that equal values have equal texts."""
    if kind in FLOAT_BITS:
        return float_texts(values.cast(pa.binary()), FLOAT_BITS[kind])
    if has_key or kind not in _STATED:
        return values
    meaning = _STATED[kind]
    texts = [None if text is None else repr(meaning(text)).encode() for text in values.to_pylist()]
    return pa.array(texts, pa.binary())


def mean_the_same(first: bytes | None, second: bytes | None, kind: str) -> bool:
    if first is None or second is None or kind not in _STATED:
        return first == second
    try:
        return _STATED[kind](first) == _STATED[kind](second)
    except ValueError:
        return False


def _json(text: bytes) -> object:
    return _sorted(json.loads(text, parse_int=Decimal, parse_float=_number))


def _number(text: str) -> Decimal:
    """A number with a fraction as a double has it: servers print one in different lengths."""
    return Decimal(repr(float(text)))


def _sorted(value: object) -> object:
    """The same value with the members of objects in one order, and with one text for each number."""
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_sorted(each) for each in value]
    return value.normalize() if isinstance(value, Decimal) else value


def _vector(text: bytes) -> object:
    """`[1,0.5]`, or the bytes of the numbers in hexadecimal."""
    if text.startswith(b"["):
        return [struct.unpack("<f", struct.pack("<f", float(each)))[0] for each in text[1:-1].split(b",") if each]
    raw = bytes.fromhex(text.decode())
    return list(struct.unpack(f"<{len(raw) // 4}f", raw))


_STATED |= {"json": _json, "vector": _vector}
