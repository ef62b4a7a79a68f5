"""MySQL's JSON as SQL shows it becomes what TiDB prints: the same texts that `json_binary` makes of the log.

The server's text has all that counts. A double always has a point or an exponent, and reads back as the same number.
What has neither is an integer or a decimal, and both are what their digits mean. Dates, times and other values of SQL
are texts of the same form. Only the order of keys, the form of numbers and two separators of Unicode differ.

The documents are read together. The quotes that are not escaped begin and end the strings in turn, so all brackets,
commas and colons outside of strings are known at once, and with them where each value begins and how deep it is.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.format.pieces import Pool, bytes_of
from tidegate.sources.mysql.log.images import Bytes, Flags, Numbers
from tidegate.sources.mysql.log.json_pieces import (
    CLOSE,
    COMMA,
    NULL,
    OPEN,
    WORDS,
    Level,
    added,
    joined,
    number_texts,
    slices,
    sorted_members,
    without_separators,
)

_QUOTE, _BACKSLASH, _SPACE, _COLON = b'"\\ :'
_OPENING, _CLOSING = b"[{", b"]}"
_STRUCTURE = np.zeros(256, np.bool_)
_STRUCTURE[list(b"[]{},:")] = True
_IS_LITERAL = np.zeros(256, np.int64)
_IS_LITERAL[list(b"ntf")] = NULL, NULL + 1, NULL + 2
_ESCAPES = {b"\\u%04x" % byte: bytes([byte]) for byte in range(0x20)}
_ESCAPES |= {b'\\"': b'"', b"\\b": b"\b", b"\\f": b"\f", b"\\n": b"\n", b"\\r": b"\r", b"\\t": b"\t"}
_STANDS_FOR_BACKSLASH = b"\xff"  # occurs in no text


class _Values(NamedTuple):
    """The values of some documents in the order of the text: where each begins and ends, and how deep it is.

    The end of a container means nothing. `key` is where the key's first quote is, -1 for a member of an array.
    """

    begin: Numbers
    end: Numbers
    depth: Numbers
    key: Numbers
    key_end: Numbers


def json_as_tidb(shown: pa.Array) -> pa.Array:
    """`{"b": 1.50, "aa": 2}` of the server is `{"aa": 2, "b": 1.5}`. `shown` has no NULL and no empty text."""
    offsets, text = bytes_of(shown)
    if not len(shown):
        return shown
    values = _found(text, offsets[:-1].astype(np.int64), offsets[1:].astype(np.int64))
    pool = Pool()
    pool.add(WORDS)
    levels: list[Level] = []
    above, place = np.zeros(0, np.int64), np.zeros(0, np.int64)
    for depth in range(int(values.depth.max()) + 1):
        at = np.flatnonzero(values.depth == depth)
        # The value above is the last container before this one in the text. Its members are sorted, so it has moved.
        parent = place[np.searchsorted(above, values.begin[at], "right") - 1] if depth else np.arange(len(at))
        order, level = _level(text, values, at, parent, pool)
        levels.append(level)
        containers = np.flatnonzero(_is_container(text, values.begin[at]))
        moved = np.empty(len(at), np.int64)
        moved[order] = np.arange(len(at))
        above, place = values.begin[at[containers]], moved[containers]
    return joined(levels, pool)


def _is_container(text: Bytes, begin: Numbers) -> Flags:
    return np.isin(text[begin], list(_OPENING))


# Where the values are -------------------------------------------------------------------------------------------------


def _found(text: Bytes, starts: Numbers, ends: Numbers) -> _Values:
    quotes = _quotes(text)
    structure = np.flatnonzero(_STRUCTURE[text])
    structure = structure[np.searchsorted(quotes, structure) % 2 == 0]
    kind = text[structure]
    opens, closes = np.isin(kind, list(_OPENING)), np.isin(kind, list(_CLOSING))
    depth = np.cumsum(opens.astype(np.int64) - closes)
    # A key is the only thing that a colon follows, so what it follows is no value.
    before_key = np.append(kind[1:], 0) == _COLON
    empty = opens & (text[np.minimum(structure + 1, len(text) - 1)] == kind + 2)  # `]` and `}` are 2 above `[` and `{`
    at = np.flatnonzero(~closes & ~before_key & ~empty)
    begin = structure[at] + 1
    begin += text[begin] == _SPACE
    is_member = kind[at] == _COLON
    key_end = np.where(is_member, structure[at], 0)
    key = np.where(is_member, quotes[np.maximum(np.searchsorted(quotes, key_end) - 2, 0)] if len(quotes) else -1, -1)
    none, begin = np.full(len(starts), -1), np.concatenate([starts, begin])
    order = np.argsort(begin, kind="stable")
    begin = begin[order]
    return _Values(
        begin,
        _ends(text, begin, np.concatenate([structure, ends]), quotes),
        np.concatenate([np.zeros(len(starts), np.int64), depth[at]])[order],
        np.concatenate([none, key])[order],
        np.concatenate([none, key_end])[order],
    )


def _quotes(text: Bytes) -> Numbers:
    """The quotes that begin and end strings: those behind an even number of backslashes."""
    quotes = np.flatnonzero(text == _QUOTE)
    slashes = np.flatnonzero(text == _BACKSLASH)
    if not len(slashes):
        return quotes
    first = np.flatnonzero(np.diff(slashes, prepend=-2) != 1)  # of each run of backslashes
    run = np.searchsorted(slashes, quotes - 1)
    behind = (run < len(slashes)) & (slashes[np.minimum(run, len(slashes) - 1)] == quotes - 1)
    run_start = slashes[first[np.searchsorted(first, np.minimum(run, len(slashes) - 1), "right") - 1]]
    is_escaped: Flags = behind & ((quotes - run_start) % 2 == 1)
    return quotes[~is_escaped]


def _ends(text: Bytes, begin: Numbers, stops: Numbers, quotes: Numbers) -> Numbers:
    """A string ends with its second quote; another value at the next bracket or comma, or with its document."""
    stops = np.sort(stops)
    end = stops[np.minimum(np.searchsorted(stops, begin, "right"), len(stops) - 1)]
    if len(quotes):
        closing = quotes[np.minimum(np.searchsorted(quotes, begin) + 1, len(quotes) - 1)] + 1
        end = np.where(text[begin] == _QUOTE, closing, end)
    return end


# What is printed ------------------------------------------------------------------------------------------------------


def _level(text: Bytes, values: _Values, at: Numbers, parent: Numbers, pool: Pool) -> tuple[Numbers, Level]:
    """The values of one level sorted as TiDB has them, and the order that does it."""
    key, key_end = values.key[at], values.key_end[at]
    ordinal = np.arange(len(at))
    is_member = key >= 0
    keys = None
    if is_member.any():
        keys = slices(text, np.where(is_member, key, 0), np.where(is_member, key_end - key, 0))
        bare = slices(text, np.where(is_member, key + 1, 0), np.where(is_member, key_end - key - 2, 0))
        order = sorted_members(parent, _unescaped(bare), ordinal)
        keys = _shown_keys(keys.take(pa.array(order)), is_member[order])
    else:
        order = np.argsort(parent, kind="stable")
    parent = parent[order]
    is_first = np.diff(parent, prepend=-1) != 0
    pieces, close = _pieces(text, values.begin[at[order]], values.end[at[order]], pool)
    key_pieces = np.zeros(len(at), np.int64) if keys is None else added(pool, keys)
    return order, Level(parent, np.where(is_first, 0, COMMA), key_pieces, pieces, close)


def _unescaped(keys: pa.Array) -> pa.Array:
    """The bytes by which keys are sorted."""
    if not pc.any(pc.match_substring(keys, b"\\")).as_py():
        return keys
    keys = pc.replace_substring(keys, b"\\\\", _STANDS_FOR_BACKSLASH)
    for escape, special in _ESCAPES.items():
        keys = pc.replace_substring(keys, escape, special)
    return pc.replace_substring(keys, _STANDS_FOR_BACKSLASH, b"\\")


def _shown_keys(keys: pa.Array, is_member: Flags) -> pa.Array:
    shown = pc.binary_join_element_wise(without_separators(keys), b": ", b"")
    return shown if is_member.all() else pc.if_else(pa.array(is_member), shown, pa.scalar(b"", pa.binary()))


def _pieces(text: Bytes, begin: Numbers, end: Numbers, pool: Pool) -> tuple[Numbers, Numbers]:
    first = text[begin]
    pieces = _IS_LITERAL[first]
    close = np.zeros(len(begin), np.int64)
    for is_array, bracket in ((1, b"["), (0, b"{")):
        here = first == bracket[0]
        pieces[here], close[here] = OPEN + is_array, CLOSE + is_array
    strings = np.flatnonzero(first == _QUOTE)
    if len(strings):
        shown = slices(text, begin[strings], (end - begin)[strings])
        pieces[strings] = added(pool, without_separators(shown))
    numbers = np.flatnonzero(pieces == 0)
    if len(numbers):
        shown = slices(text, begin[numbers], (end - begin)[numbers]).cast(pa.string())
        has_point = pc.match_substring_regex(shown, "[.e]").to_numpy(zero_copy_only=False)
        for part, pointed in ((numbers[has_point], True), (numbers[~has_point], False)):
            if len(part):
                digits = shown.filter(pa.array(has_point == pointed))
                pieces[part] = added(pool, number_texts(digits, has_point=pointed))
    return pieces, close
