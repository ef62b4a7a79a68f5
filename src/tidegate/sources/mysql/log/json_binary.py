"""MySQL's binary JSON as TiDB prints it: `{"a": [1.0, null], "b": "2026-01-31"}`.

A document is a tree: a container has the places of its members, and for an object of its keys. The members of all
containers of one level are found together, level by level, so the number of steps follows the depth of the deepest
document and not the number of documents. Each value then gets its place among the pieces of the whole text.

Keys are sorted by their bytes, as in TiDB; MySQL sorts them by their length first. TiDB's JSON has no decimals: one is
printed as what its text means, a double or an integer. Dates and times are texts with six digits of a second, other
values of MySQL are `"base64:type15:..."`, as both databases print them.
"""

from __future__ import annotations

import base64
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.format.bad_values import BadValue
from tidegate.format.pieces import Pool, bytes_of
from tidegate.sources.mysql.log.digits import Texts, datetime_texts, decimal_texts, put_day, time_texts, whole_texts
from tidegate.sources.mysql.log.images import Bytes, Flags, Numbers, unsigned
from tidegate.sources.mysql.log.json_pieces import (
    CLOSE,
    COMMA,
    NULL,
    OPEN,
    WORDS,
    Level,
    added,
    double_texts,
    joined,
    number_texts,
    printed,
    slices,
    sorted_members,
    without_separators,
)

_OBJECT, _ARRAY = (0x00, 0x01), (0x02, 0x03)  # each with places of two bytes, and of four
_LITERAL, _INT16, _UINT16, _INT32, _UINT32, _INT64, _UINT64, _DOUBLE, _STRING, _OPAQUE = (*range(0x04, 0x0D), 0x0F)
_INTEGERS = {_INT16: (2, True), _UINT16: (2, False), _INT32: (4, True), _UINT32: (4, False)}
_INTEGERS |= {_INT64: (8, True), _UINT64: (8, False)}
_WIDE = (0x01, 0x03)
_TIMESTAMP, _DATE, _TIME, _DATETIME, _DECIMAL = 7, 10, 11, 12, 246  # opaque values that are printed in their own way
_MOST_LEVELS = 102  # a document of MySQL has at most 100


def json_texts(log: Bytes, place: Numbers, size: Numbers) -> pa.Array:
    """The documents that stand at these places of the log. One without any bytes is `null`."""
    try:
        return _printed_documents(log, place, size)
    except IndexError as exc:
        raise BadValue("the JSON is broken", _first_broken(log, place, size)) from exc


def _first_broken(log: Bytes, place: Numbers, size: Numbers) -> int:
    """Which document it is; only now is each one looked at alone."""
    for i in range(len(place)):
        try:
            _printed_documents(log, place[i : i + 1], size[i : i + 1])
        except IndexError:
            return i
    return 0


def _printed_documents(log: Bytes, place: Numbers, size: Numbers) -> pa.Array:
    """An IndexError means that a document is broken."""
    pool = Pool()
    pool.add(WORDS)
    empty = size == 0
    kind = np.where(empty, _LITERAL, log[np.where(empty, 0, place)]).astype(np.uint8)
    levels: list[Level] = []
    nodes, count = _Nodes(np.arange(len(place)), kind, place + 1, None, None), 0
    while len(nodes.kind):
        count += len(nodes.kind)
        # Each value has bytes of its own, so more values than bytes, or more levels, means a container in itself.
        if len(levels) == _MOST_LEVELS or count > len(log):
            raise IndexError
        levels.append(_level(log, nodes, empty if not levels else None, pool))
        nodes = _members(log, nodes)
    return joined(levels, pool)


class _Nodes(NamedTuple):
    parent: Numbers
    kind: Bytes
    place: Numbers  # of the value; of the entry in the container if the value is stored there
    ordinal: Numbers | None
    keys: pa.Array | None  # with their quotes and the colon; empty for a member of an array


# The tree -------------------------------------------------------------------------------------------------------------


def _is_object(kind: Bytes) -> Flags:
    return kind <= _OBJECT[1]


def _is_container(kind: Bytes) -> Flags:
    return kind <= _ARRAY[1]


def _members(log: Bytes, nodes: _Nodes) -> _Nodes:
    """The members of all containers among these values, those of an object in the order of their keys."""
    above = np.flatnonzero(_is_container(nodes.kind))
    kind, base = nodes.kind[above], nodes.place[above]
    wide = np.isin(kind, _WIDE)
    count = _sized(log, base, wide)
    if int(count.sum()) > len(log):
        raise IndexError
    parent = np.repeat(np.arange(len(above)), count)
    ordinal = np.arange(len(parent)) - np.repeat(np.cumsum(count) - count, count)
    wide_, base_, is_object = wide[parent], base[parent], _is_object(kind)[parent]
    offset_bytes = np.where(wide_, 4, 2)
    entries = base_ + 2 * offset_bytes
    value = entries + np.where(is_object, count[parent] * (offset_bytes + 2), 0) + ordinal * (1 + offset_bytes)
    keys = _keys(log, base_, entries + ordinal * (offset_bytes + 2), wide_, is_object)
    member = log[value]
    inside = (member >= _LITERAL) & (member <= _UINT16) | wide_ & ((member == _INT32) | (member == _UINT32))
    place = np.where(inside, value + 1, base_ + _sized(log, value + 1, wide_))
    order = sorted_members(parent, keys, ordinal) if is_object.any() else slice(None)
    keys = keys if isinstance(order, slice) else keys.take(pa.array(order))
    return _Nodes(above[parent], member[order], place[order], ordinal, _quoted_keys(keys, is_object))


def _sized(log: Bytes, place: Numbers, wide: Flags) -> Numbers:
    """Numbers of four bytes where it is wide, else of two."""
    small = unsigned(log, place, 2).astype(np.int64)
    return np.where(wide, unsigned(log, np.where(wide, place, 8), 4).astype(np.int64), small) if wide.any() else small


def _keys(log: Bytes, base: Numbers, entry: Numbers, wide: Flags, is_object: Flags) -> pa.Array:
    entry = np.where(is_object, entry, 8)
    place = base + _sized(log, entry, wide)
    size = unsigned(log, entry + np.where(wide, 4, 2), 2).astype(np.int64)
    return slices(log, np.where(is_object, place, 0), np.where(is_object, size, 0))


def _quoted_keys(keys: pa.Array, is_object: Flags) -> pa.Array:
    """`"a": ` for a member of an object. The members of a container are beside each other before and after sorting."""
    if not is_object.any():
        return keys
    shown = pc.binary_join_element_wise(_quoted(keys), b": ", b"")
    return shown if is_object.all() else pc.if_else(pa.array(is_object), shown, pa.scalar(b"", pa.binary()))


# The pieces -----------------------------------------------------------------------------------------------------------


def _level(log: Bytes, nodes: _Nodes, empty: Flags | None, pool: Pool) -> Level:
    count = len(nodes.kind)
    text = np.full(count, NULL)
    close = np.zeros(count, np.int64)
    known = np.zeros(count, np.bool_) if empty is None else empty.copy()
    containers = np.flatnonzero(_is_container(nodes.kind))
    is_array = (~_is_object(nodes.kind[containers])).astype(np.int64)
    text[containers], close[containers] = OPEN + is_array, CLOSE + is_array
    known[containers] = True
    for kind in np.unique(nodes.kind[~known]).tolist():
        at = np.flatnonzero((nodes.kind == kind) & ~known)
        text[at] = _scalars(log, kind, nodes.place[at], pool)
    comma = np.zeros(count, np.int64) if nodes.ordinal is None else (nodes.ordinal > 0).astype(np.int64) * COMMA
    key = np.zeros(count, np.int64) if nodes.keys is None else pool.add(nodes.keys) + np.arange(count)
    return Level(nodes.parent, comma, key, text, close)


# Scalars --------------------------------------------------------------------------------------------------------------


def _scalars(log: Bytes, kind: int, place: Numbers, pool: Pool) -> Numbers:
    """The piece numbers of the texts of values of one kind."""
    if kind == _LITERAL:
        return NULL + log[place].astype(np.int64) % 3
    if kind in _INTEGERS:
        width, signed = _INTEGERS[kind]
        found = unsigned(log, place, width)
        lift = 64 - 8 * width
        return added(pool, printed(found.view(np.int64) << lift >> lift if signed else found))
    if kind == _DOUBLE:
        return added(pool, double_texts(unsigned(log, place, 8).view(np.float64)))
    if kind == _STRING:
        size, place = _length(log, place)
        return added(pool, _quoted(slices(log, place, size)))
    if kind == _OPAQUE:
        return _opaque(log, place, pool)
    raise IndexError  # a kind that is not known


def _length(log: Bytes, place: Numbers) -> tuple[Numbers, Numbers]:
    """A length of one to five bytes with seven bits each, lowest first, and where it ends."""
    size, more = np.zeros(len(place), np.int64), np.ones(len(place), np.bool_)
    for shift in range(0, 35, 7):
        byte = log[np.where(more, place, 0)].astype(np.int64)
        size += np.where(more, (byte & 0x7F) << shift, 0)
        place = place + more
        more = more & (byte >= 0x80)
        if not more.any():
            break
    return size, place


_ESCAPES = {b"\\": b"\\\\", b'"': b'\\"'}  # the backslash must come first, because the others add backslashes
_ESCAPES |= {bytes([byte]): b"\\u%04x" % byte for byte in range(0x20)}
_ESCAPES |= {b"\b": b"\\b", b"\f": b"\\f", b"\n": b"\\n", b"\r": b"\\r", b"\t": b"\\t"}


def _quoted(shown: pa.Array) -> pa.Array:
    _, held = bytes_of(shown)
    present = np.bincount(held, minlength=256) > 0
    for special, escape in _ESCAPES.items():
        if present[special[0]]:
            shown = pc.replace_substring(shown, special, escape)
    if present[0xE2] and present[0x80]:
        shown = without_separators(shown)
    return pc.binary_join_element_wise(b'"', shown, b'"', b"")


# Opaque values --------------------------------------------------------------------------------------------------------


def _opaque(log: Bytes, place: Numbers, pool: Pool) -> Numbers:
    """Values of SQL types: the type, a length, and the bytes as MySQL stores them."""
    kinds = log[place]
    sizes, places = _length(log, place + 1)
    text = np.empty(len(place), np.int64)
    for kind in np.unique(kinds).tolist():
        at = np.flatnonzero(kinds == kind)
        if kind == _DECIMAL:
            text[at] = added(pool, _decimals(log, places[at]))
        elif kind in (_DATE, _DATETIME, _TIMESTAMP, _TIME):
            text[at] = added(pool, pc.binary_join_element_wise(b'"', _moments(log, kind, places[at]), b'"', b""))
        else:
            raw = slices(log, places[at], sizes[at]).to_pylist()  # a step for each, but nobody has many of these
            shown = [b'"base64:type%d:%s"' % (kind, base64.b64encode(each)) for each in raw]
            text[at] = added(pool, pa.array(shown, pa.binary()))
    return text


def _plain(shown: Texts) -> pa.Array:
    return shown.pieces.take(pa.array(np.arange(0, len(shown.pieces), shown.step)))


def _decimals(log: Bytes, place: Numbers) -> pa.Array:
    """Each has its own number of digits and its own scale before its bytes."""
    declared = unsigned(log, place, 2).astype(np.int64)
    parts, order = [], []
    for each in np.unique(declared).tolist():
        at = np.flatnonzero(declared == each)
        if not each >> 8 <= each & 0xFF <= 65:
            raise IndexError
        shown = _plain(decimal_texts(log, place[at] + 2, each & 0xFF, each >> 8)).cast(pa.string())
        parts.append(number_texts(shown, has_point=each >> 8 > 0))
        order.append(at)
    return pa.concat_arrays(parts).take(pa.array(np.argsort(np.concatenate(order))))


def _moments(log: Bytes, kind: int, place: Numbers) -> pa.Array:
    packed = unsigned(log, place, 8).view(np.int64)
    if kind == _TIME:
        size = np.abs(packed)
        return _plain(time_texts(packed < 0, size >> 24, size & 0xFFFFFF, 6))
    if kind == _DATE:
        year, month = np.divmod(packed >> 46, 13)
        text = np.full((len(packed), 10), ord("-"), np.uint8)
        put_day(text, year, month, packed >> 41 & 31)
        return _plain(whole_texts(text))
    return _plain(datetime_texts(packed >> 24, packed & 0xFFFFFF, 6))
