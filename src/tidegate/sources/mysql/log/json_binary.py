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
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.format.bad_values import BadValue
from tidegate.format.encode.floats import plain_float_texts
from tidegate.format.pieces import Pool, bytes_of, gather, texts
from tidegate.sources.mysql.log.digits import Texts, datetime_texts, decimal_texts, put_day, time_texts, whole_texts
from tidegate.sources.mysql.log.images import Bytes, Flags, Numbers, unsigned

_OBJECT, _ARRAY = (0x00, 0x01), (0x02, 0x03)  # each with places of two bytes, and of four
_LITERAL, _INT16, _UINT16, _INT32, _UINT32, _INT64, _UINT64, _DOUBLE, _STRING, _OPAQUE = (*range(0x04, 0x0D), 0x0F)
_INTEGERS = {_INT16: (2, True), _UINT16: (2, False), _INT32: (4, True), _UINT32: (4, False)}
_INTEGERS |= {_INT64: (8, True), _UINT64: (8, False)}
_WIDE = (0x01, 0x03)
_TIMESTAMP, _DATE, _TIME, _DATETIME, _DECIMAL = 7, 10, 11, 12, 246  # opaque values that are printed in their own way
_WHOLE = pa.decimal256(76, 0)  # holds every decimal of MySQL without a point
_MOST_LEVELS = 102  # a document of MySQL has at most 100
_WORDS = texts("", ", ", "{", "[", "}", "]", "null", "true", "false")
_NOTHING, _COMMA, _NULL = 0, 1, 6
_OWN_PIECES = 4  # comma, key, text or opening bracket; behind the members the closing bracket


class Level(NamedTuple):
    """The values of one level of all documents: of which value above each is a member, and its pieces."""

    parent: Numbers
    comma: Numbers
    key: Numbers
    text: Numbers
    close: Numbers


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
    pool.add(_WORDS)
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
    return _joined(levels, pool)


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
    order = _order(parent, keys, ordinal) if is_object.any() else slice(None)
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
    return _slices(log, np.where(is_object, place, 0), np.where(is_object, size, 0))


def _slices(log: Bytes, place: Numbers, size: Numbers) -> pa.Array:
    """The bytes at any places of the log, in any order."""
    if not len(place):
        return pa.array([], pa.binary())
    if int((place + size).max()) > len(log):
        raise IndexError
    ends = np.concatenate([[0], np.cumsum(size)])
    at = np.arange(ends[-1]) + np.repeat(place - ends[:-1], size)
    held = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(log[at])]
    return pa.Array.from_buffers(pa.binary(), len(place), held)


def _order(parent: Numbers, keys: pa.Array, ordinal: Numbers) -> Numbers:
    table = pa.table({"parent": parent, "key": keys, "ordinal": ordinal})
    by = [("parent", "ascending"), ("key", "ascending"), ("ordinal", "ascending")]
    found: Numbers = pc.sort_indices(table, sort_keys=by).to_numpy().astype(np.int64)
    return found


def _quoted_keys(keys: pa.Array, is_object: Flags) -> pa.Array:
    """`"a": ` for a member of an object. The members of a container are beside each other before and after sorting."""
    if not is_object.any():
        return keys
    shown = pc.binary_join_element_wise(_quoted(keys), b": ", b"")
    return shown if is_object.all() else pc.if_else(pa.array(is_object), shown, pa.scalar(b"", pa.binary()))


# The pieces -----------------------------------------------------------------------------------------------------------


def _level(log: Bytes, nodes: _Nodes, empty: Flags | None, pool: Pool) -> Level:
    count = len(nodes.kind)
    text = np.full(count, _NULL)
    close = np.zeros(count, np.int64)
    known = np.zeros(count, np.bool_) if empty is None else empty.copy()
    containers = np.flatnonzero(_is_container(nodes.kind))
    is_array = (~_is_object(nodes.kind[containers])).astype(np.int64)
    text[containers], close[containers] = 2 + is_array, 4 + is_array
    known[containers] = True
    for kind in np.unique(nodes.kind[~known]).tolist():
        at = np.flatnonzero((nodes.kind == kind) & ~known)
        text[at] = _scalars(log, kind, nodes.place[at], pool)
    comma = np.zeros(count, np.int64) if nodes.ordinal is None else (nodes.ordinal > 0).astype(np.int64) * _COMMA
    key = np.zeros(count, np.int64) if nodes.keys is None else pool.add(nodes.keys) + np.arange(count)
    return Level(nodes.parent, comma, key, text, close)


def _joined(levels: list[Level], pool: Pool) -> pa.Array:
    """Give each value its place among the pieces: sizes from the leaves up, starts from the documents down."""
    sizes = [np.full(len(level.parent), _OWN_PIECES) for level in levels]
    for above, level, size in zip(reversed(sizes[:-1]), reversed(levels[1:]), reversed(sizes[1:]), strict=True):
        above += np.bincount(level.parent, size, len(above)).astype(np.int64)
    first = np.concatenate([[0], np.cumsum(sizes[0])])
    pieces = np.empty((int(first[-1]), 1), np.int32)
    start = first[:-1]
    for i, (level, size) in enumerate(zip(levels, sizes, strict=True)):
        if i:
            before = np.cumsum(size) - size
            new = np.flatnonzero(np.diff(level.parent, prepend=-1))
            within = before - np.repeat(before[new], np.diff(np.append(new, len(size))))
            start = start[level.parent] + _OWN_PIECES - 1 + within
        pieces[start, 0], pieces[start + 1, 0], pieces[start + 2, 0] = level.comma, level.key, level.text
        pieces[start + size - 1, 0] = level.close
    return gather(pieces, first, pool)


# Scalars --------------------------------------------------------------------------------------------------------------


def _scalars(log: Bytes, kind: int, place: Numbers, pool: Pool) -> Numbers:
    """The piece numbers of the texts of values of one kind."""
    if kind == _LITERAL:
        return _NULL + log[place].astype(np.int64) % 3
    if kind in _INTEGERS:
        width, signed = _INTEGERS[kind]
        found = unsigned(log, place, width)
        lift = 64 - 8 * width
        return _added(pool, _printed(found.view(np.int64) << lift >> lift if signed else found))
    if kind == _DOUBLE:
        return _added(pool, double_texts(unsigned(log, place, 8).view(np.float64)))
    if kind == _STRING:
        size, place = _length(log, place)
        return _added(pool, _quoted(_slices(log, place, size)))
    if kind == _OPAQUE:
        return _opaque(log, place, pool)
    raise IndexError  # a kind that is not known


def _added(pool: Pool, shown: pa.Array) -> Numbers:
    return pool.add(shown) + np.arange(len(shown))


def _printed(numbers: npt.NDArray[np.generic]) -> pa.Array:
    return pa.array(numbers).cast(pa.string()).cast(pa.binary())


def double_texts(numbers: npt.NDArray[np.float64]) -> pa.Array:
    """`1.0`, `0.5`; with an exponent below 1e-15 and from 1e15 on: `1e20`, `1.5e-16`."""
    shown = _printed(numbers)
    size = np.abs(numbers)
    far = pa.array((size >= 1e15) | (size > 0) & (size < 1e-15))
    plain = plain_float_texts(shown, 64)
    whole = pc.invert(pc.match_substring(plain, "."))
    plain = pc.if_else(whole, pc.binary_join_element_wise(plain, b".0", b""), plain)
    return pc.if_else(far, pc.replace_substring(shown, "e+", "e"), plain) if pc.any(far).as_py() else plain


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
_SEPARATORS = {"\u2028".encode(): b"\\u2028", "\u2029".encode(): b"\\u2029"}


def _quoted(shown: pa.Array) -> pa.Array:
    _, held = bytes_of(shown)
    present = np.bincount(held, minlength=256) > 0
    for special, escape in _ESCAPES.items():
        if present[special[0]]:
            shown = pc.replace_substring(shown, special, escape)
    if present[0xE2] and present[0x80]:
        for special, escape in _SEPARATORS.items():
            shown = pc.replace_substring(shown, special, escape)
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
            text[at] = _added(pool, _decimals(log, places[at]))
        elif kind in (_DATE, _DATETIME, _TIMESTAMP, _TIME):
            text[at] = _added(pool, pc.binary_join_element_wise(b'"', _moments(log, kind, places[at]), b'"', b""))
        else:
            raw = _slices(log, places[at], sizes[at]).to_pylist()  # a step for each, but nobody has many of these
            shown = [b'"base64:type%d:%s"' % (kind, base64.b64encode(each)) for each in raw]
            text[at] = _added(pool, pa.array(shown, pa.binary()))
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
        parts.append(_as_number(shown, has_point=each >> 8 > 0))
        order.append(at)
    return pa.concat_arrays(parts).take(pa.array(np.argsort(np.concatenate(order))))


def _as_number(shown: pa.Array, has_point: bool) -> pa.Array:
    """What TiDB makes of a number's text: an integer if it has no point and fits into 64 bits, else a double."""
    doubles = double_texts(shown.cast(pa.float64()).to_numpy())
    if has_point:
        return doubles
    exact = shown.cast(_WHOLE)
    fits = pc.and_(pc.greater_equal(exact, pa.scalar(-(1 << 63), _WHOLE)), pc.less(exact, pa.scalar(1 << 64, _WHOLE)))
    return pc.if_else(fits, shown.cast(pa.binary()), doubles)


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
