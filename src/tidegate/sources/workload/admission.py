"""How far a workload's cursor moves in one micro-batch: a pure computation, counted in rows.

* A round is one step of every table, except held and lagging tables. A micro-batch may end in the middle of a round.
* A held table stays at its step, so it lags. When it is released it catches up: rounds get half of the budget, lagging
  tables share the rest equally, the one that lags most first.
* An offset names the lagging tables. If more than MOST_HELD would lag, rounds wait until some have caught up.
* If nothing else fits, one step of one table may exceed the budget, so that a limit never stops a workload. Rows that
  are not due yet are never handed out.
* No table passes `stop` until all tables have reached it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tidegate.events import MOST_HELD
from tidegate.sources.workload.steps import ENDLESS, Cursor, Steps
from tidegate.sources.workload.sysbench import Ints


@dataclass(frozen=True)
class Admission:
    """`budget`: rows to hand out; `due`: rows that exist by now; `one_step`: at most one step per table."""

    steps: Steps
    finite: bool
    one_step: bool
    budget: int
    due: int
    stop: int = ENDLESS

    def admit(self, start: Cursor, held: set[int]) -> Cursor:
        """The cursor after one micro-batch without the held tables; `start` if there are no rows."""
        released = sorted(start.lag.keys() - held, key=lambda table: (start.lag[table], table))
        outside = np.array(sorted(held | start.lag.keys()), np.int64)
        moved, gained = start, 0
        if len(outside) <= MOST_HELD or not released:
            moved, gained = self._advance(start, self.budget // 2 if released else self.budget, outside)
        stay = {table: start.at + (table < start.table) for table in held}
        end = replace(moved, lag=stay | start.lag)
        return self._without_level(replace(end, lag=end.lag | self._caught_up(end, released, gained)))

    def _advance(self, cursor: Cursor, budget: int, outside: Ints) -> tuple[Cursor, int]:
        """Moves by whole rounds within the budget, then by the tables of the next round that fit; also the rows."""
        tables = self.steps.tables
        natural = cursor.natural(np.arange(tables, dtype=np.int64))
        base = self.steps.handed(natural, slice(None))

        def gains(rounds: int) -> Ints:
            until = natural + rounds if self.stop == ENDLESS else np.minimum(natural + rounds, self.stop)
            gained = self.steps.handed(until, slice(None)) - base
            gained[outside] = 0
            return gained

        if not gains(1).any():
            return cursor, 0
        most = self._most_rounds(cursor)
        rounds = _greatest(lambda count: int(gains(count).sum()) <= budget, most)
        whole, fits, part = int(gains(rounds).sum()), 0, 0
        if rounds < most:
            in_order = np.cumsum(np.roll(gains(rounds + 1) - gains(rounds), -cursor.table))
            fits, part = _fitting(in_order, budget - whole, 0 if whole else self.due)
        if not whole + part:
            return cursor, 0
        moved = min((cursor.at + rounds) * tables + cursor.table + fits, self.stop * tables)
        at, table = divmod(moved, tables)
        return self._at_end(replace(cursor, at=at, table=table), outside), whole + part

    def _most_rounds(self, cursor: Cursor) -> int:
        if self.one_step:
            return 1
        return min(self.stop, self.steps.last if self.finite else ENDLESS) - cursor.at

    def _at_end(self, cursor: Cursor, outside: Ints) -> Cursor:
        """If only tables in `outside` have rows left, the one cursor that means the end."""
        if not self.finite or self.stop < self.steps.last:
            return cursor
        all_tables = np.arange(self.steps.tables, dtype=np.int64)
        left = self.steps.events - self.steps.handed(cursor.natural(all_tables), slice(None))
        left[outside] = 0
        return cursor if left.any() else replace(cursor, at=self.steps.last, table=0)

    def _caught_up(self, end: Cursor, released: list[int], gained: int) -> dict[int, int]:
        caught = {}
        for done, table in enumerate(released):
            size, step = int(self.steps.step_rows[table]), end.lag[table]
            left = max(self.budget - gained, 0)
            count = left // (len(released) - done) // size
            if not count and (size <= left or (not gained and size <= self.due)):
                count = 1
            if self.one_step:
                count = min(count, 1)
            caught[table] = min(end.at + (table < end.table), step + count)
            gained += (caught[table] - step) * size
        return caught

    def _without_level(self, cursor: Cursor) -> Cursor:
        """Removes tables from `lag` that have caught up."""
        tables = np.array(sorted(cursor.lag), np.int64)
        handed = self.steps.handed(np.array([cursor.lag[table] for table in tables], np.int64), tables)
        behind = tables[handed < self.steps.handed(cursor.natural(tables), tables)].tolist()
        return replace(cursor, lag={table: cursor.lag[table] for table in behind})


def _greatest(fits: Callable[[int], bool], most: int) -> int:
    """The greatest count up to `most` that fits. 0 always fits, and if a count fits, all smaller counts fit too."""
    low, high = 0, 1
    while high <= most and fits(high):
        low, high = high, high * 2
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _fitting(in_order: Ints, budget: int, due: int) -> tuple[int, int]:
    """How many tables fit the budget, and their rows. The first table with rows always fits if its rows are due."""
    fits = int(np.searchsorted(in_order, budget, side="right"))
    if not fits or not in_order[fits - 1]:
        first = int(np.searchsorted(in_order, 0, side="right"))
        fits = first + 1 if first < len(in_order) and in_order[first] <= due else fits
    return fits, int(in_order[fits - 1]) if fits else 0
