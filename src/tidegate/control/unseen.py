"""Which table names come for the first time on a sink that was empty when this run began.

Before the first file of a version the land task lists the schema files of the table's name, because one with the same
columns may exist under another version. Under a name that nothing was ever written for there is none. A million new
tables then cost a million requests less.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from tidegate.control.columns import Ints

Name = tuple[str, str]  # schema and table


class Unseen:
    """Keeps eight bytes for each name that has come. Two names may have the same: then the second is listed."""

    def __init__(self) -> None:
        self._was_empty = False
        self._seen: Ints = np.zeros(0, np.int64)

    def begin_empty(self) -> None:
        """The sink has nothing but what this run writes. Without this call no name counts as new."""
        self._was_empty = True

    def note(self, names: Iterable[Name]) -> None:
        """Schema files may exist under these names from now on."""
        if self._was_empty:
            self._add(np.array([hash(name) for name in names], np.int64))

    def first(self, names: Sequence[Name]) -> NDArray[np.bool_]:
        """Which of these names come for the first time; they are noted.

        A name that is given twice is none of them: two versions of it may be about to land at the same time.
        """
        if not self._was_empty:
            return np.zeros(len(names), np.bool_)
        keys = np.array([hash(name) for name in names], np.int64)
        _, at, counts = np.unique(keys, return_inverse=True, return_counts=True)
        found: NDArray[np.bool_] = ~np.isin(keys, self._seen) & (counts[at] == 1)
        self._add(keys)
        return found

    def _add(self, keys: Ints) -> None:
        fresh = np.setdiff1d(keys, self._seen)
        self._seen = np.insert(self._seen, np.searchsorted(self._seen, fresh), fresh)
