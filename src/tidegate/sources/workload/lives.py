"""Changes of tables that a truncate or a drop has emptied: only rows that are there are updated and deleted.

A table has one life after the other; each begins with no rows, at some position. Positions, transactions and ids are
those of `History`, whatever DDLs there are. But a row that was inserted in an earlier life is gone. The first change
that would update or delete it inserts it instead, with the values that the next change of it shows as `before`. This is
computed from positions alone, without state: for a row that is updated, the change before it is one pass earlier; for
one that is deleted, its insert has a known position.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tidegate.sources.workload.sysbench import DELETED, INSERTED, UPDATED, Changes, History, Ints

FIRST_LIFE = -1  # the base of a table that nothing has emptied: all its rows are there
_NEVER = -1  # the position of an insert that no change makes: `prepare=false` says that the row is there


@dataclass(frozen=True)
class Lives:
    history: History

    def changes(self, position: Ints, base: Ints) -> Changes:
        """The changes at these positions of tables whose life began at `base`; FIRST_LIFE for the first one."""
        kind, ordinal = self.history.ordinals(position)
        found = self.history.placed(kind, ordinal)
        later = base > FIRST_LIFE
        if not later.any():
            return found
        updated, deleted = (np.flatnonzero(later & (kind == code)) for code in (UPDATED, DELETED))
        updated = updated[self._changed_before(ordinal[updated], found.id[updated]) < base[updated]]
        deleted = deleted[~self._is_there(ordinal[deleted], found.id[deleted], base[deleted])]
        kind, version = kind.copy(), found.version.copy()
        kind[updated] = kind[deleted] = INSERTED
        version[deleted] += self._deletes_again  # the next delete of the row has this version
        return Changes(kind, found.id, version)

    def _changed_before(self, ordinal: Ints, ids: Ints) -> Ints:
        """The position of the change before this update of a row: its update one pass earlier, or its insert."""
        if not len(ordinal):
            return ordinal
        count = self.history.updatable
        turn, place = np.divmod(ordinal, count)
        earlier = (turn - 1) * count + (place + pow(self.history.stride, -1, count)) % count
        return np.where(turn > 0, self._position(UPDATED, np.maximum(earlier, 0)), self._inserted(ids))

    def _is_there(self, ordinal: Ints, ids: Ints, base: Ints) -> npt.NDArray[np.bool_]:
        """Whether the row of this delete was inserted in this life, and not deleted since."""
        is_there: npt.NDArray[np.bool_] = self._inserted(ids) >= base
        if self._deletes_again and len(ordinal):
            count = self.history.rows - self.history.updatable
            turn, place = np.divmod(ordinal, count)
            first = np.maximum(0, -((place - self._deletes_before(base)) // count))
            is_there ^= (turn - first) % 2 == 1  # inserts and deletes of it take turns
        return is_there

    @property
    def _deletes_again(self) -> bool:
        """With more deletes than inserts the prepared ids are deleted again and again."""
        return self.history.mix[DELETED] > self.history.mix[INSERTED]

    def _inserted(self, ids: Ints) -> Ints:
        """The position of the insert of these ids."""
        history = self.history
        prepared = ids - 1 if history.prepared else np.full_like(ids, _NEVER)
        if not history.mix[INSERTED]:
            return prepared
        return np.where(ids > history.rows, self._position(INSERTED, np.maximum(ids - history.rows - 1, 0)), prepared)

    def _position(self, kind: int, ordinal: Ints) -> Ints:
        """Where the change of this kind and number is, after `prepare`."""
        places = self._places[kind]
        turn, number = np.divmod(ordinal, len(places))
        position: Ints = self.history.prepared + turn * self._cycle_length + places[number]
        return position

    def _deletes_before(self, position: Ints) -> Ints:
        turn, place = np.divmod(np.maximum(position - self.history.prepared, 0), self._cycle_length)
        before: Ints = turn * len(self._places[DELETED]) + np.searchsorted(self._places[DELETED], place)
        return before

    @cached_property
    def _places(self) -> list[Ints]:
        """By kind, its places in the cycle."""
        kinds = self.history.cycle[0]
        return [np.flatnonzero(kinds == kind) for kind in (INSERTED, UPDATED, DELETED)]

    @cached_property
    def _cycle_length(self) -> int:
        return len(self.history.cycle[0])
