"""Which rows a table has, from the changes that made it; all of one bucket at once, without a step for each row.

A state is a list of rows of a batch of changes: for a table with a key the last change of each key, if it put a row.
For one without a key equal rows are counted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.tools.verify_database.rows import PUT, Changes, Ints

_NOBODY = -1


class Keys(NamedTuple):
    """The keys of several batches as numbers: so many different ones, and for each batch the number of each row."""

    different: int
    of: list[Ints]


def numbered(*batches: Changes) -> Keys:
    """Equal keys get equal numbers, in whichever batch they are."""
    chunks = pa.chunked_array([batch.key for batch in batches], pa.binary())
    found = chunks.combine_chunks().dictionary_encode() if len(chunks) else None
    if found is None:
        return Keys(0, [np.zeros(0, np.int64) for _ in batches])
    numbers = found.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    ends = np.cumsum([len(batch.op) for batch in batches])
    return Keys(len(found.dictionary), np.split(numbers, ends[:-1]))


def last_of(keys: Ints, count: int) -> Ints:
    """For each key the last row that has it, -1 if none has."""
    last = np.full(count, _NOBODY, np.int64)
    last[keys] = np.arange(len(keys))
    return last


def first_of(keys: Ints, count: int) -> Ints:
    first = np.full(count, _NOBODY, np.int64)
    first[keys[::-1]] = np.arange(len(keys))[::-1]
    return first


def present(op: npt.NDArray[np.int8], at: Ints) -> Ints:
    """The rows `at` where they put something; -1 where they remove, or where there is none."""
    put = op[at] == PUT if len(op) else np.zeros(len(at), np.bool_)
    return np.where((at >= 0) & put, at, _NOBODY)


def counted(keys: Ints, op: npt.NDArray[np.int8], count: int) -> Ints:
    """How many rows of each key there are."""
    found: Ints = np.bincount(keys, op, minlength=count).astype(np.int64) if len(keys) else np.zeros(count, np.int64)
    return found


def settled_rows(batch: Changes, has_key: bool) -> Changes:
    """The rows that are there after all these changes, each as one that is put."""
    keys = numbered(batch)
    last = last_of(keys.of[0], keys.different)
    if has_key:
        at = present(batch.op, last)
        return batch.take(at[at >= 0])
    times = counted(keys.of[0], batch.op, keys.different)
    found = batch.take(np.repeat(last, np.maximum(times, 0)))
    return found._replace(op=np.full(len(found.op), PUT, np.int8))
