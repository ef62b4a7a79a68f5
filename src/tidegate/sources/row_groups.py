"""Where a sequence of row groups may be cut without cutting a transaction.

An update of a key is split into a delete and an insert at the end of its transaction (decision 0007). So the place
of the insert depends on how much of the transaction is read together. A replay may end its micro-batches elsewhere; if
it cut such a transaction elsewhere, the insert would come twice or not at all. Therefore a micro-batch and a split end
only where no transaction of a table continues. The exception is a sequence without such a place that is larger than a
micro-batch may be: then only transactions in which a key changes stay whole.

Most places are known from the statistics of the files. Only row groups whose commit-ts overlap are read, two columns of
them, and each once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Places = tuple[Ints, Ints]  # table id and commit-ts of some rows


class Crossing(NamedTuple):
    """Transactions that have rows in row group `first` and go on in row group `last`."""

    table_id: Ints
    ts: Ints
    first: Ints
    last: Ints

    def take(self, which: NDArray[np.bool_]) -> Crossing:
        return Crossing(*(column[which] for column in self))


class Tables(NamedTuple):
    """The tables that have rows in a row group, by id: the first and the last commit-ts, and how many rows."""

    table_id: Ints
    first_ts: Ints
    last_ts: Ints
    rows: Ints


_NONE = Crossing(*(np.zeros(0, np.int64) for _ in range(4)))


@dataclass
class RowGroups:
    """`low_ts` and `high_ts` have the least and the greatest commit-ts of each row group.

    `rows` gives the places of all row changes of a row group, `key_updates` of those that change a key.
    """

    low_ts: Ints
    high_ts: Ints
    rows: Callable[[int], Places]
    key_updates: Callable[[int], Places]
    _crossing: dict[int, Crossing] = field(default_factory=dict)

    def end(self, start: int, wanted: int) -> int:
        """The last place from `start` to `wanted` where a micro-batch may end; a later one if there is none."""
        found = self.ends(start, wanted)
        if len(found):
            return int(found[-1])
        whole = self._next(start, wanted)
        crossing = self._changing(self._between(start, whole), range(start, whole))
        return _nearest(_uncrossed(crossing, start, whole), wanted)

    def ends(self, start: int, last: int) -> Ints:
        """All places after `start`, up to `last`, where no transaction goes on."""
        bounds = self._stretches
        until = int(bounds[np.searchsorted(bounds, last)])
        found = _uncrossed(self._between(start, until), start, until)
        return found[found <= last]

    def _next(self, start: int, after: int) -> int:
        """The first place after this one where no transaction goes on."""
        until = int(self._stretches[np.searchsorted(self._stretches, after, side="right")])
        found = _uncrossed(self._between(start, until), start, until)
        return int(found[found > after][0])

    @cached_property
    def _stretches(self) -> Ints:
        """The places where all commit-ts before are smaller than all that follow, with the first and the last place."""
        before, after = np.maximum.accumulate(self.high_ts), np.minimum.accumulate(self.low_ts[::-1])[::-1]
        apart = np.flatnonzero(before[:-1] < after[1:]) + 1
        return np.concatenate([[0], apart, [len(before)]])

    def _between(self, start: int, until: int) -> Crossing:
        """The transactions that cross a place between these two."""
        bounds = self._stretches
        first, last = np.searchsorted(bounds, start, side="right") - 1, np.searchsorted(bounds, until)
        parts = [_NONE, *(self._stretch(int(bounds[i]), int(bounds[i + 1])) for i in range(first, last))]
        return Crossing(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def _stretch(self, first: int, last: int) -> Crossing:
        if first not in self._crossing:
            groups = range(first, last) if last - first > 1 else ()
            self._crossing[first] = _crossing_in(groups, self.rows)
        return self._crossing[first]

    def _changing(self, crossing: Crossing, groups: Iterable[int]) -> Crossing:
        """Those in which a key changes."""
        changing: set[tuple[int, int]] = set()
        for group in groups:
            changing.update(zip(*(column.tolist() for column in self.key_updates(group)), strict=True))
        places = zip(crossing.table_id.tolist(), crossing.ts.tolist(), strict=True)
        return crossing.take(np.array([place in changing for place in places], np.bool_))


def _crossing_in(groups: Iterable[int], rows: Callable[[int], Places]) -> Crossing:
    """A table's rows come in the order of commit-ts, so only the last transaction in a row group can go on."""
    found = [(*tables, np.full(len(tables.rows), group)) for group in groups for tables in [tables_in(*rows(group))]]
    if not found:
        return _NONE
    table_id, first_ts, last_ts, _, group = (np.concatenate(columns) for columns in zip(*found, strict=True))
    order = np.lexsort((group, table_id))
    table_id, first_ts, last_ts, group = (column[order] for column in (table_id, first_ts, last_ts, group))
    goes_on = np.flatnonzero((table_id[1:] == table_id[:-1]) & (last_ts[:-1] == first_ts[1:]))
    return Crossing(table_id[goes_on], last_ts[goes_on], group[goes_on], group[goes_on + 1])


def tables_in(table_id: Ints, ts: Ints) -> Tables:
    """Sums up the rows of a row group by table."""
    tables, at, rows = np.unique(table_id, return_inverse=True, return_counts=True)
    first, last = np.full(len(tables), np.iinfo(np.int64).max), np.full(len(tables), np.iinfo(np.int64).min)
    np.minimum.at(first, at, ts)
    np.maximum.at(last, at, ts)
    return Tables(tables, first, last, rows.astype(np.int64))


def _uncrossed(crossing: Crossing, start: int, until: int) -> Ints:
    """The places after `start`, up to `until`, that none of these transactions crosses."""
    depth = np.zeros(until - start + 2, np.int64)
    np.add.at(depth, np.clip(crossing.first + 1 - start, 0, len(depth) - 1), 1)
    np.add.at(depth, np.clip(crossing.last + 1 - start, 0, len(depth) - 1), -1)
    places: Ints = np.flatnonzero(np.cumsum(depth)[: until - start + 1] == 0) + start
    return places[places > start]


def _nearest(places: Ints, wanted: int) -> int:
    before = places[places <= wanted]
    return int(before[-1] if len(before) else places[0])
