"""What both readers of MySQL's JSON share: values that stand in a tree become the texts that TiDB prints.

The values of all documents are kept by level, each with the number of the value above that it is a member of. `joined`
gives each value its place among the pieces of the whole text, without a step for each document.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.format.encode.floats import plain_float_texts
from tidegate.format.pieces import Pool, gather, texts
from tidegate.sources.mysql.log.images import Bytes, Numbers

WORDS = texts("", ", ", "{", "[", "}", "]", "null", "true", "false")  # the first pieces of every pool
NOTHING, COMMA, OPEN, CLOSE, NULL = 0, 1, 2, 4, 6  # of an array the brackets are one further
_OWN_PIECES = 4  # comma, key, text or opening bracket; behind the members the closing bracket
_WHOLE = pa.decimal256(76, 0)  # holds every decimal of MySQL without a point
_SEPARATORS = {"\u2028".encode(): b"\\u2028", "\u2029".encode(): b"\\u2029"}


class Level(NamedTuple):
    """The values of one level of all documents: of which value above each is a member, and its pieces."""

    parent: Numbers
    comma: Numbers
    key: Numbers
    text: Numbers
    close: Numbers


def joined(levels: list[Level], pool: Pool) -> pa.Array:
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


def added(pool: Pool, shown: pa.Array) -> Numbers:
    """The numbers of these pieces in the pool."""
    return pool.add(shown) + np.arange(len(shown))


def printed(numbers: npt.NDArray[np.generic]) -> pa.Array:
    return pa.array(numbers).cast(pa.string()).cast(pa.binary())


def double_texts(numbers: npt.NDArray[np.float64]) -> pa.Array:
    """`1.0`, `0.5`; with an exponent below 1e-15 and from 1e15 on: `1e20`, `1.5e-16`."""
    shown = printed(numbers)
    size = np.abs(numbers)
    far = pa.array((size >= 1e15) | (size > 0) & (size < 1e-15))
    plain = plain_float_texts(shown, 64)
    whole = pc.invert(pc.match_substring(plain, "."))
    plain = pc.if_else(whole, pc.binary_join_element_wise(plain, b".0", b""), plain)
    return pc.if_else(far, pc.replace_substring(shown, "e+", "e"), plain) if pc.any(far).as_py() else plain


def number_texts(shown: pa.Array, has_point: bool) -> pa.Array:
    """What TiDB makes of a number's text: an integer if it has no point and fits into 64 bits, else a double."""
    doubles = double_texts(shown.cast(pa.float64()).to_numpy())
    if has_point:
        return doubles
    exact = shown.cast(_WHOLE)
    fits = pc.and_(pc.greater_equal(exact, pa.scalar(-(1 << 63), _WHOLE)), pc.less(exact, pa.scalar(1 << 64, _WHOLE)))
    return pc.if_else(fits, shown.cast(pa.binary()), doubles)


def slices(log: Bytes, place: Numbers, size: Numbers) -> pa.Array:
    """The bytes at any places of the log, in any order."""
    if not len(place):
        return pa.array([], pa.binary())
    if int((place + size).max()) > len(log):
        raise IndexError
    ends = np.concatenate([[0], np.cumsum(size)])
    at = np.arange(ends[-1]) + np.repeat(place - ends[:-1], size)
    held = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(log[at])]
    return pa.Array.from_buffers(pa.binary(), len(place), held)


def sorted_members(parent: Numbers, keys: pa.Array, ordinal: Numbers) -> Numbers:
    table = pa.table({"parent": parent, "key": keys, "ordinal": ordinal})
    by = [("parent", "ascending"), ("key", "ascending"), ("ordinal", "ascending")]
    found: Numbers = pc.sort_indices(table, sort_keys=by).to_numpy().astype(np.int64)
    return found


def without_separators(shown: pa.Array) -> pa.Array:
    """TiDB escapes the two separators of Unicode that JavaScript takes for ends of lines."""
    for special, escape in _SEPARATORS.items():
        shown = pc.replace_substring(shown, special, escape)
    return shown
