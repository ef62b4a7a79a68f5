"""Growable NumPy columns and dense numbers for keys: how a million tables are kept without an object for each.

Invariants: a column never shrinks; rows are addressed by their number; a number given by `Keys` never changes while its
key is known.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tidegate.errors import BrokenInvariant

Ints = NDArray[np.int64]
Numbers = NDArray[np.int64]

_SPANS = 1 << 12  # a table has at most this many spans, so (table id, span) fits one 64-bit key


class Columns:
    """A table of equally long arrays; a subclass lists its columns in `_dtypes` and annotates them."""

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
                grown = np.zeros(max(self.size, 2 * len(array)), array.dtype)
                grown[: len(array)] = array
                setattr(self, name, grown)
        return np.arange(first, self.size, dtype=np.int64)

    def reset(self, rows: Numbers) -> None:
        """Make these rows zero again, for another use."""
        for name in self._dtypes:
            getattr(self, name)[rows] = 0

    @property
    def allocated_bytes(self) -> int:
        return sum(getattr(self, name).nbytes for name in self._dtypes)


class Keys:
    """Dense numbers for (table id, span), by one vectorised look-up in sorted keys."""

    def __init__(self) -> None:
        self._keys: Ints = np.zeros(0, np.int64)
        self._numbers: Numbers = np.zeros(0, np.int64)
        self._free: Numbers = np.zeros(0, np.int64)  # numbers of keys that were removed
        self._next = 0

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def nbytes(self) -> int:
        return int(self._keys.nbytes + self._numbers.nbytes)

    def find(self, table_id: Ints, span: Ints) -> Numbers:
        """The number of every key, -1 for one never seen."""
        wanted = pack(table_id, span)
        if not len(self._keys):
            return np.full(len(wanted), -1, np.int64)
        at = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
        return np.where(self._keys[at] == wanted, self._numbers[at], -1)

    def numbers(self, table_id: Ints, span: Ints) -> tuple[Numbers, Ints]:
        """Numbers of all keys, new ones numbered on from the last, and where each new one stands first."""
        found = self.find(table_id, span)
        missing = np.flatnonzero(found < 0)
        if not len(missing):
            return found, missing
        fresh, first, inverse = np.unique(
            pack(table_id[missing], span[missing]), return_index=True, return_inverse=True
        )
        # Number new keys in the order they arrive, so that a batch's tables stay neighbours in memory.
        order = np.argsort(first)
        given = np.empty(len(fresh), np.int64)
        given[order] = self._take(len(fresh))
        found[missing] = given[inverse]
        self._insert(fresh, given)
        return found, missing[first[order]]

    def remove(self, table_id: Ints, span: Ints) -> None:
        """Forget these keys; their numbers are given again."""
        at = np.searchsorted(self._keys, pack(table_id, span))
        self._free = np.concatenate([self._free, self._numbers[at]])
        self._keys, self._numbers = np.delete(self._keys, at), np.delete(self._numbers, at)

    def _take(self, count: int) -> Numbers:
        used, self._free = self._free[:count], self._free[count:]
        first, self._next = self._next, self._next + count - len(used)
        return np.concatenate([used, np.arange(first, self._next, dtype=np.int64)])

    def _insert(self, fresh: Ints, given: Numbers) -> None:
        at = np.searchsorted(self._keys, fresh)
        self._keys = np.insert(self._keys, at, fresh)
        self._numbers = np.insert(self._numbers, at, given)


def pack(table_id: Ints, span: Ints) -> Ints:
    """One 64-bit key for each (table id, span)."""
    if len(table_id) and (table_id.min() < 0 or table_id.max() >= 1 << 50 or span.max() >= _SPANS or span.min() < 0):
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


def after_or_equal(ts: Ints, seq: Ints, mark_ts: Ints, mark_seq: Ints) -> NDArray[np.bool_]:
    """(ts, seq) >= (mark_ts, mark_seq), element by element."""
    reached: NDArray[np.bool_] = (ts > mark_ts) | ((ts == mark_ts) & (seq >= mark_seq))
    return reached
