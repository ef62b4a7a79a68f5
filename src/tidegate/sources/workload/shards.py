"""`shards=2`: tables of one name, as a sharded upstream has them, with table ids and primary keys of their own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Shards:
    """Of the first `names` names each has `each` tables, which follow each other; the other tables have one name each.

    `Shards(2, 1)`: tables 0 and 1 are `sbtest1`, table 2 is `sbtest2`.
    """

    each: int = 1
    names: int = 0

    @property
    def tables(self) -> int:
        """Tables from this one on are no shards."""
        return self.each * self.names if self.each > 1 else 0

    def name_numbers(self, table: Ints) -> Ints:
        """The numbers in the names of these tables, from 1."""
        return np.where(table < self.tables, table // self.each, table - self.tables + self._names) + 1

    def first(self, table: Ints) -> Ints:
        """The first table that has the same name."""
        return np.where(table < self.tables, table // self.each * self.each, table)

    def keys(self, table: Ints, ids: Ints) -> Ints:
        """The primary keys of rows with these ids. Shards of one name take turns, so that no two have the same."""
        if not self.tables:
            return ids
        return np.where(table < self.tables, (ids - 1) * self.each + table % self.each + 1, ids)

    @property
    def _names(self) -> int:
        return self.names if self.tables else 0


NO_SHARDS = Shards()
