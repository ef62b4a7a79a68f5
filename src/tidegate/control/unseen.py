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
        self.was_empty = False  # the sink has nothing but what this run writes; otherwise no name counts as new
        self._seen: Ints = np.zeros(0, np.int64)

    def note(self, names: Iterable[Name]) -> None:
        """Schema files may exist under these names from now on."""
        if self.was_empty:
            keys = _keys(names)
            self._add(keys[~self._known(keys)])

    def first(self, names: Sequence[Name]) -> NDArray[np.bool_]:
        """Which of these names come for the first time; they are noted.

        A name that is given twice is none of them: two versions of it may be about to land at the same time.
        """
        if not self.was_empty:
            return np.zeros(len(names), np.bool_)
        keys = _keys(names)
        _, at, counts = np.unique(keys, return_inverse=True, return_counts=True)
        fresh = ~self._known(keys)
        self._add(keys[fresh])
        found: NDArray[np.bool_] = fresh & (counts[at] == 1)
        return found

    def _known(self, keys: Ints) -> NDArray[np.bool_]:
        at = np.searchsorted(self._seen, keys)
        known = np.zeros(len(keys), np.bool_)
        inside = at < len(self._seen)
        known[inside] = self._seen[at[inside]] == keys[inside]
        return known

    def _add(self, fresh: Ints) -> None:
        fresh = np.unique(fresh)
        self._seen = np.insert(self._seen, np.searchsorted(self._seen, fresh), fresh)


def _keys(names: Iterable[Name]) -> Ints:
    return np.array([hash(name) for name in names], np.int64)
