"""How far a sequence of row groups is read while tables are held back: a pure computation.

One place in the sequence is for all tables. A table that is held stays behind at a place of its own, and its rows are
skipped. After its release it catches up: the row groups are read once more for it alone. Promises:
* The rows of a table are handed out in order, each once. All places are where a micro-batch may end (`row_groups`), so
  a transaction in which a key changes is never cut.
* At most MOST_BEHIND tables are behind, because every offset names them. If more would have to be, all wait until
  some have caught up. With at most MOST_HELD held tables some always can.
* Tables that catch up get half of the limit, the others the rest. If nothing fits, one unit is handed out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tidegate.errors import BadSetting
from tidegate.events import MOST_HELD
from tidegate.sources.row_groups import Ints, RowGroups, Tables
from tidegate.sources.source import Offset

MOST_BEHIND = MOST_HELD
_MOST_GROUPS = 256  # looked at in one step: without rows to hand out, nothing else would end it
_CACHED = 2 * _MOST_GROUPS  # row groups whose tables are remembered


class Behind(NamedTuple):
    """Where a table is: its rows from this row group on are not handed out, and none has a smaller commit-ts."""

    at: int
    ts: int


@dataclass(frozen=True)
class Cursor:
    """`{"at": 7, "behind": {"103": [5, 463267587686400000]}}` as an offset; `behind` is left out if empty."""

    at: int = 0
    behind: dict[int, Behind] = field(default_factory=dict)

    def offset(self) -> Offset:
        offset: Offset = {"at": self.at}
        if self.behind:
            offset["behind"] = {str(table): [*place] for table, place in sorted(self.behind.items())}
        return offset

    @staticmethod
    def of(offset: Offset, groups: int) -> Cursor:
        """The inverse of `offset`. Refuses one that does not fit so many row groups."""
        try:
            behind = {int(table): Behind(int(at), int(ts)) for table, (at, ts) in offset.get("behind", {}).items()}
            cursor = Cursor(int(offset["at"]), behind)
        except (KeyError, TypeError, ValueError, AttributeError) as exc:
            raise BadSetting(f'position {offset!r} is not one of parquet files, such as {{"at": 7}}') from exc
        if not 0 <= cursor.at <= groups or any(not 0 <= place.at < cursor.at for place in behind.values()):
            raise BadSetting(f"position {offset!r} does not fit {groups} row groups; were the files changed?")
        return cursor


class Part(NamedTuple):
    """Row groups `first` to `last` - 1, of which only these tables are read."""

    first: int
    last: int
    tables: list[int]


@dataclass
class HeldGroups:
    """`size_bytes` has an estimate for each row group, `tables` says which tables are in one."""

    groups: RowGroups
    size_bytes: Ints
    tables: Callable[[int], Tables]
    _seen: dict[int, Tables] = field(default_factory=dict)

    def advance(self, start: Cursor, limit_bytes: int, held: frozenset[int]) -> Cursor:
        """The cursor after one micro-batch without the held tables; `start` if only they have rows."""
        released = start.behind.keys() - held
        share = limit_bytes // 2 if start.at < len(self.size_bytes) else limit_bytes
        caught_up = self._catch_up(start, share, released) if released else start
        used = self.size_between(start, caught_up)
        return self._go_on(caught_up, limit_bytes - used, held, must=not used)

    def size_between(self, start: Cursor, end: Cursor) -> int:
        """An estimate of the bytes between two cursors."""
        main = sum(self._others_bytes(group, end.behind) for group in range(start.at, end.at))
        parts = parts_between(start, end)
        return main + sum(self._bytes(group, part.tables) for part in parts for group in range(part.first, part.last))

    # -- the tables that were held -----------------------------------------------------------------------------------

    def _catch_up(self, start: Cursor, budget: int, released: Collection[int]) -> Cursor:
        """Moves the released tables on, the one that is most behind first; at most to where all others are."""
        places = {table: start.behind[table].at for table in released}
        first = wanted = min(places.values())
        used = 0
        for group in range(first, min(start.at, first + _MOST_GROUPS)):
            more = self._bytes(group, [table for table, at in places.items() if at <= group])
            if used and used + more > budget:
                break
            used, wanted = used + more, group + 1
        end = self.groups.end(first, wanted)
        moved = {table: self._moved(table, start.behind[table], end) for table, at in places.items() if at < end}
        kept = start.behind | moved
        return replace(start, behind={table: place for table, place in kept.items() if place.at < start.at})

    def _moved(self, table: int, place: Behind, end: int) -> Behind:
        """Its next row is not before its last one that was handed out."""
        found = [ts for group in range(place.at, end) for ts in self._last_ts(group, table)]
        return Behind(end, max([place.ts, *found]))

    # -- all others --------------------------------------------------------------------------------------------------

    def _go_on(self, start: Cursor, budget: int, held: frozenset[int], must: bool) -> Cursor:
        """Moves the place of all other tables on. With `must` by one unit at least."""
        outside, behind = held | start.behind.keys(), dict(start.behind)
        used, wanted = 0, start.at
        for group in range(start.at, min(len(self.size_bytes), start.at + _MOST_GROUPS)):
            more = self._others_bytes(group, outside)
            self._leave_behind(behind, group, held)
            if len(behind) > MOST_BEHIND or (used + more > budget and (used or not must)):
                break
            used, wanted = used + more, group + 1
        return start if wanted == start.at else self._moved_on(start, wanted, budget, held, must)

    def _moved_on(self, start: Cursor, wanted: int, budget: int, held: frozenset[int], must: bool) -> Cursor:
        """All others at the last place up to `wanted` where a micro-batch may end, or at a later one."""
        end, behind = self.groups.end(start.at, wanted), dict(start.behind)
        for group in range(start.at, end):
            self._leave_behind(behind, group, held)
        moved = Cursor(end, behind)
        fits = len(behind) <= MOST_BEHIND and (must or self.size_between(start, moved) <= budget)
        return moved if fits else start

    def _leave_behind(self, behind: dict[int, Behind], group: int, held: frozenset[int]) -> None:
        """The held tables of this row group stay here, if they are not behind already."""
        found = self._tables(group)
        for at in np.flatnonzero(np.isin(found.table_id, list(held))).tolist():
            behind.setdefault(int(found.table_id[at]), Behind(group, int(found.first_ts[at])))

    # -- row groups --------------------------------------------------------------------------------------------------

    def _tables(self, group: int) -> Tables:
        if group not in self._seen:
            while len(self._seen) >= _CACHED:
                del self._seen[next(iter(self._seen))]
            self._seen[group] = self.tables(group)
        return self._seen[group]

    def _bytes(self, group: int, tables: Collection[int]) -> int:
        """Of these tables, by their share of the rows."""
        found = self._tables(group)
        rows = int(found.rows[np.isin(found.table_id, list(tables))].sum())
        return -(-int(self.size_bytes[group]) * rows // max(int(found.rows.sum()), 1))

    def _others_bytes(self, group: int, tables: Collection[int]) -> int:
        return int(self.size_bytes[group]) - (self._bytes(group, tables) if tables else 0)

    def _last_ts(self, group: int, table: int) -> Iterator[int]:
        found = self._tables(group)
        yield from found.last_ts[found.table_id == table].tolist()


def parts_between(start: Cursor, end: Cursor) -> list[Part]:
    """What tables that were behind catch up with. A row group is in one part, for all tables that need it."""
    ranges = {
        table: (place.at, end.behind[table].at if table in end.behind else start.at)
        for table, place in start.behind.items()
    }
    bounds = sorted({at for both in ranges.values() for at in both})
    parts = [
        Part(first, last, sorted(table for table, (low, high) in ranges.items() if low <= first and last <= high))
        for first, last in pairwise(bounds)
    ]
    return [part for part in parts if part.tables]
