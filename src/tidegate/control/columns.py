"""Columns that grow, texts, and dense numbers for keys: how a million tables are kept without an object for each.

A Python object per table would take a kilobyte and a loop per micro-batch. Columns take some bytes per table, and one
NumPy call does the work for all. Invariants: a column never shrinks; a row is known by its number; the number of a key
never changes while the key is known.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidegate.errors import BrokenInvariant
from tidegate.events import TABLE_IDS

Ints = NDArray[np.int64]
Numbers = NDArray[np.int64]

_SPANS = 1 << 12  # a table has at most this many spans, so (table id, span) fits one 64-bit key


class Columns:
    """Arrays of equal length. A subclass lists its columns in `_dtypes` and annotates them."""

    _dtypes: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        self.size = 0
        for name, dtype in self._dtypes.items():
            setattr(self, name, np.zeros(64, dtype))

    def extend(self, count: int) -> Numbers:
        """Append `count` zero rows; returns their numbers."""
        first, self.size = self.size, self.size + count
        for name in self._dtypes:
            array = getattr(self, name)
            if self.size > len(array):
                grown = np.zeros(self.size + self.size // 4, array.dtype)  # pages of zeros take no memory until used
                grown[: len(array)] = array
                setattr(self, name, grown)
        return np.arange(first, self.size, dtype=np.int64)

    def reset(self, rows: Numbers) -> None:
        """Make these rows zero again."""
        for name in self._dtypes:
            getattr(self, name)[rows] = 0


class Texts:
    """A text for each number, "" where none was given.

    Arrow keeps a million texts in one array, but cannot change one of them. So new texts go to a dictionary first, and
    are merged into a new array when they have become many.
    """

    def __init__(self, few: int = 1024) -> None:
        self._few = few
        self._merged: pa.Array = pa.array([], pa.string())
        self._fresh: dict[int, str] = {}

    def __getitem__(self, number: int) -> str:
        text = self._fresh.get(number)
        if text is None:
            text = self._merged[number].as_py() if number < len(self._merged) else ""
        return text

    def __setitem__(self, number: int, text: str) -> None:
        self._fresh[number] = text
        if len(self._fresh) > self._most_fresh:
            self._merge()

    @property
    def _most_fresh(self) -> int:
        """With more fresh texts than this, a new array costs little for each of them."""
        return self._few + len(self._merged) // 16

    def take(self, numbers: Numbers) -> pa.Array:
        """The texts of these numbers."""
        if len(numbers) > self._most_fresh:
            self._merge()
        merged = self._merged.take(pa.array(numbers, mask=numbers >= len(self._merged)))
        if not self._fresh:
            return merged.fill_null("")
        pairs = zip(numbers.tolist(), merged.to_pylist(), strict=True)
        return pa.array([self._fresh.get(number, text) or "" for number, text in pairs], pa.string())

    def put(self, numbers: Numbers, texts: pa.Array) -> None:
        """Give many at once. Of a number that is given twice the last text counts."""
        if len(numbers) > self._most_fresh:
            self._merge()
            self._write(numbers, texts)
            return
        self._fresh.update(zip(numbers.tolist(), texts.to_pylist(), strict=True))
        if len(self._fresh) > self._most_fresh:
            self._merge()

    def among(self, texts: Iterable[str]) -> NDArray[np.bool_]:
        """For each number, whether it has one of these texts. It looks at all texts, so ask rarely."""
        self._merge()
        found = pc.is_in(self._merged, pa.array(list(texts), pa.string()))
        return np.asarray(found.to_numpy(zero_copy_only=False), np.bool_)

    def _merge(self) -> None:
        if self._fresh:
            numbers = np.fromiter(self._fresh, np.int64, len(self._fresh))
            self._write(numbers, pa.array(list(self._fresh.values()), pa.string()))
            self._fresh = {}

    def _write(self, numbers: Numbers, texts: pa.Array) -> None:
        merged = self._merged
        at = np.full(max(len(merged), int(numbers.max()) + 1), len(merged), np.int64)  # the position of ""
        at[: len(merged)] = np.arange(len(merged))
        at[numbers] = np.arange(len(merged) + 1, len(merged) + 1 + len(numbers))
        self._merged = pa.concat_arrays([merged, pa.array([""]), texts]).take(pa.array(at))


class Keys:
    """Dense numbers for (table id, span). All keys of a batch are looked up at once, by search in a sorted array."""

    def __init__(self) -> None:
        self._keys: Ints = np.zeros(0, np.int64)
        self._numbers: NDArray[np.int32] = np.zeros(0, np.int32)
        self._free: Numbers = np.zeros(0, np.int64)  # numbers of keys that were removed
        self._next = 0

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def nbytes(self) -> int:
        return int(self._keys.nbytes + self._numbers.nbytes)

    def find(self, table_id: Ints, span: Ints) -> Numbers:
        """The number of each key, -1 for a key that is not known."""
        wanted = pack(table_id, span)
        if not len(self._keys):
            return np.full(len(wanted), -1, np.int64)
        order = np.argsort(wanted)  # searches in order stay in the processor's cache: four times as fast
        at = np.empty(len(wanted), np.int64)
        at[order] = np.minimum(np.searchsorted(self._keys, wanted[order]), len(self._keys) - 1)
        return np.where(self._keys[at] == wanted, self._numbers[at], -1).astype(np.int64)

    def numbers(self, table_id: Ints, span: Ints) -> tuple[Numbers, Ints]:
        """The number of each key, new ones included, and the position where each new key comes first."""
        found = self.find(table_id, span)
        missing = np.flatnonzero(found < 0)
        if not len(missing):
            return found, missing
        fresh, first, inverse = np.unique(
            pack(table_id[missing], span[missing]), return_index=True, return_inverse=True
        )
        # New keys are numbered in order of arrival, so that the tables of a batch are neighbours in memory.
        order = np.argsort(first)
        given = np.empty(len(fresh), np.int64)
        given[order] = self._take(len(fresh))
        found[missing] = given[inverse]
        self._insert(fresh, given)
        return found, missing[first[order]]

    def remove(self, table_id: Ints, span: Ints) -> None:
        """Forget these keys. Their numbers are given to other keys later."""
        self._remove(np.searchsorted(self._keys, pack(table_id, span)))

    def remove_numbers(self, numbers: Numbers) -> None:
        """Forget the keys with these numbers. It looks at all keys."""
        self._remove(np.flatnonzero(np.isin(self._numbers, numbers)))

    def of_numbers(self, numbers: Numbers) -> Ints:
        """The keys with these numbers, packed and sorted. It looks at all keys."""
        return self._keys[np.isin(self._numbers, numbers)]

    def _remove(self, at: Numbers) -> None:
        self._free = np.concatenate([self._free, self._numbers[at]])
        self._keys, self._numbers = np.delete(self._keys, at), np.delete(self._numbers, at)

    def _take(self, count: int) -> Numbers:
        used, self._free = self._free[:count], self._free[count:]
        first, self._next = self._next, self._next + count - len(used)
        return np.concatenate([used, np.arange(first, self._next, dtype=np.int64)])

    def _insert(self, fresh: Ints, given: Numbers) -> None:
        at = np.searchsorted(self._keys, fresh)
        self._keys = np.insert(self._keys, at, fresh)
        self._numbers = np.insert(self._numbers, at, given.astype(np.int32))


def pack(table_id: Ints, span: Ints) -> Ints:
    """One 64-bit key for each (table id, span)."""
    if len(table_id) and (table_id.min() < 0 or table_id.max() >= TABLE_IDS or span.max() >= _SPANS or span.min() < 0):
        raise BrokenInvariant(f"a table id must be in 0..2^50 and a span under {_SPANS}")
    keys: Ints = table_id.astype(np.int64) * _SPANS + span
    return keys


def group_starts(sorted_values: Ints) -> Ints:
    """Positions where a run of equal values begins: `[7, 7, 9]` gives `[0, 2]`."""
    if not len(sorted_values):
        return np.zeros(0, np.int64)
    return np.flatnonzero(np.concatenate(([True], sorted_values[1:] != sorted_values[:-1])))


def group_lasts(starts: Ints, count: int) -> Ints:
    """Positions where the runs that begin at `starts` end: `[0, 2]` of 3 values gives `[1, 2]`, none gives none."""
    return np.append(starts[1:], count)[: len(starts)] - 1


def group_sizes(starts: Ints, count: int) -> Ints:
    """How long the runs are that begin at `starts`: `[0, 2]` of 3 values gives `[2, 1]`."""
    return np.diff(np.append(starts, count))


def group_positions(sizes: Ints) -> Ints:
    """The position of each value in its run: runs of `[2, 1]` values give `[0, 1, 0]`."""
    return np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def after_or_equal(ts: Ints, seq: Ints, mark_ts: Ints, mark_seq: Ints) -> NDArray[np.bool_]:
    """(ts, seq) >= (mark_ts, mark_seq), element by element."""
    reached: NDArray[np.bool_] = (ts > mark_ts) | ((ts == mark_ts) & (seq >= mark_seq))
    return reached
