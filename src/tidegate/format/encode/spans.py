"""Split tables: which span of its table a row belongs to, and the ids of the dispatchers that own the spans.

A table with a primary key and no other unique index may be split into spans by a hash of the key. The hash depends only
on the text of the key, so a row stays in its span after a restart. The ids of dispatchers depend only on changefeed,
table id and span, so a restart continues the same index files.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.events import DELETE
from tidegate.format.layout import dispatcher_text
from tidegate.format.layout_columns import RowLayouts
from tidegate.format.pieces import Numbers, bytes_of

Hashes = npt.NDArray[np.uint64]
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


def dispatcher_id(changefeed: str, table_id: int, span: int) -> str:
    """The id that names of files contain. It is the same in every run of the changefeed."""
    digest = hashlib.blake2b(f"{changefeed}/{table_id}/{span}".encode(), digest_size=16).digest()
    return dispatcher_text(int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little"))


def spans_of(rows: pa.RecordBatch, layouts: RowLayouts, count: int) -> Numbers:
    """The span of each row, from 0 to `count` - 1. A table that cannot be split has only span 0."""
    hashes = np.zeros(rows.num_rows, np.uint64)
    split = np.flatnonzero(layouts.layouts.splitable[layouts.entry]) if count > 1 else hashes[:0].astype(np.int64)
    is_delete = pc.equal(rows.column("kind"), DELETE).to_numpy(zero_copy_only=False)
    for which, position in layouts.keys(split):
        at = split[which]
        hashes[at] = _mixed(hashes[at] + hashed(_key_texts(rows, is_delete[at], at, position)))
    spans: Numbers = (hashes % np.uint64(count)).astype(np.int64)
    return spans


def _key_texts(rows: pa.RecordBatch, is_delete: npt.NDArray[np.bool_], at: Numbers, position: Numbers) -> pa.Array:
    """The values of key columns, from the old row for a delete, else from the new one; "" for malformed rows."""
    sides = []
    for side in ("after", "before"):
        lists = rows.column(side)
        offsets = lists.offsets.to_numpy().astype(np.int64)
        there = np.diff(offsets)[at] > position
        places = np.where(there, offsets[at] + position, 0)
        sides.append(lists.values.take(pa.array(places, mask=~there)))
    return pc.if_else(pa.array(is_delete), sides[1], sides[0]).cast(pa.binary())


def hashed(texts: pa.Array) -> Hashes:
    """A hash of each text. Each byte is multiplied by a power of one number, so that the order of bytes counts."""
    ends, held = bytes_of(texts)
    lengths = np.diff(ends)
    found = lengths.astype(np.uint64)
    if len(held):
        place = np.arange(len(held)) - np.repeat(ends[:-1], lengths)
        powers = np.cumprod(np.full(int(lengths.max()), _FACTOR), dtype=np.uint64)
        filled = lengths > 0
        sums = np.add.reduceat((held.astype(np.uint64) + np.uint64(1)) * powers[place], ends[:-1][filled])
        found[filled] += sums
    return _mixed(found)


def _mixed(hashes: Hashes) -> Hashes:
    """Mix the bits, so that every bit of the hash changes the lowest bits."""
    mixed: Hashes = hashes ^ (hashes >> np.uint64(32))
    mixed = mixed * _FACTOR
    return mixed ^ (mixed >> np.uint64(29))
