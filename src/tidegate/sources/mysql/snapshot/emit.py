"""The rows of a chunk that are emitted: those whose key the log did not touch since the read. Pure.

A chunk was read somewhere between two places of the log, `after` and `until`, and is emitted at a place E at or behind
`until`. All changes of the table are emitted from the log, also those before E. A row that no change touched in (after,
E] is at E what it was when it was read. A row that was touched is left out, because its last change says what it is:
if it was read before the change, the row before the change has the key that was read; if behind it, the row after it.

So keys are compared by their bytes and only for equality. A server may think that `a` and `A` are one key; then a
change from one to the other touches both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.sources.mysql.log.rows import Rows


def keys_in(lists: pa.ListArray, positions: Sequence[int]) -> pa.Array:
    """One value for the key of each row: the bytes of its values, each behind its length if there are several."""
    values = lists.flatten()
    width = len(values) // max(1, len(lists))
    columns = [values.take(pa.array(np.arange(len(lists)) * width + at)) for at in positions]
    if len(columns) == 1:
        return columns[0]
    parts: list[pa.Array | bytes] = []
    for column in columns:
        parts += [pc.binary_length(column).cast(pa.string()).cast(pa.binary()), b":", column]
    return pc.binary_join_element_wise(*parts, b"")


def touched_keys(rows: Iterable[Rows]) -> pa.Array:
    """All keys in rows before and after changes. The rows hold only the columns of the key, in its order."""
    found = [pa.array([], pa.binary())]
    for each in rows:
        for side in (each.before, each.after):
            some = side.drop_null()
            if len(some):
                found.append(keys_in(some, range(len(some[0]))))
    return pc.unique(pa.concat_arrays(found))


def untouched(
    parts: Iterable[pa.ListArray], positions: Sequence[int], touched: pa.Array
) -> Iterator[tuple[pa.ListArray, np.ndarray[tuple[int], np.dtype[np.int64]]]]:
    """The rows that are emitted, and the number of each in the chunk: its seq, the same in every replay."""
    first = 0
    for lists in parts:
        numbers = np.arange(first, first + len(lists))
        first += len(lists)
        if len(touched):
            keep = pc.invert(pc.is_in(keys_in(lists, positions), touched))
            lists, numbers = lists.filter(keep), numbers[keep.to_numpy(zero_copy_only=False)]
        if len(lists):
            yield lists, numbers
