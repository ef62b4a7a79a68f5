"""How a workload's tables are cut into steps, and where a cursor stands in them.

Every table is one path; its step is a fixed number of events, whole transactions, at most one batch of encoded bytes.
`prepare` and run are cut apart, so the last step of `prepare` may be short. Tables are numbered 0, 1, ... here.

Steps are handed out in rounds: step 0 of all tables in order, then step 1 of all. A cursor is how far that went: tables
below `table` have handed out `at` + 1 steps, the others `at`, and the lagging ones what `lag` says. All commit-ts of
step s lie in a window of their own, before those of step s + 1 of any table: what every table has passed is resolved.
Where there are DDLs, those of boundary s stand at the start of the window of step s, in front of all its rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np

from tidegate.errors import BadSetting
from tidegate.events import tso
from tidegate.sources.source import Offset
from tidegate.sources.workload.sysbench import FIRST_TABLE_ID, Ints

ENDLESS = 1 << 60
_START_MS = 2  # a transaction starts that long before it commits


@dataclass(frozen=True)
class Cursor:
    """`{"at": 7, "table": 250000, "held": {"103": 5}}` as an offset; `table` and `held` only where not empty."""

    at: int = 0
    table: int = 0
    lag: dict[int, int] = field(default_factory=dict)

    def offset(self) -> Offset:
        offset: Offset = {"at": self.at}
        if self.table:
            offset["table"] = self.table
        if self.lag:
            offset["held"] = {str(table + FIRST_TABLE_ID): step for table, step in sorted(self.lag.items())}
        return offset

    @staticmethod
    def of(offset: Offset, tables: int) -> Cursor:
        """Undoes `offset`; refuses what no workload of so many tables has handed out."""
        try:
            lag = {int(table) - FIRST_TABLE_ID: int(step) for table, step in offset.get("held", {}).items()}
            cursor = Cursor(int(offset["at"]), int(offset.get("table", 0)), lag)
        except (KeyError, TypeError, ValueError, AttributeError) as exc:
            raise BadSetting(f'position {offset!r} is not one of a workload, such as {{"at": 7}}') from exc
        if cursor.at < 0 or not 0 <= cursor.table < tables or any(not 0 <= table < tables for table in lag):
            raise BadSetting(
                f"position {offset!r} does not fit a workload of {tables} tables; was it another source's?"
            )
        return cursor

    def natural(self, tables: Ints) -> Ints:
        """Steps handed out by these tables, as if none lagged."""
        return self.at + (tables < self.table)

    def steps(self, first: int, last: int) -> Ints:
        """Steps handed out by tables `first` up to `last`."""
        steps = self.natural(np.arange(first, last, dtype=np.int64))
        for table, step in self.lag.items():
            if first <= table < last:
                steps[table - first] = step
        return steps

    def within(self, first: int, last: int) -> Cursor:
        """The same for these tables, without the lag of others."""
        return Cursor(self.at, self.table, {t: step for t, step in self.lag.items() if first <= t < last})

    @property
    def front(self) -> int:
        """The steps that any table has handed out, as if none lagged."""
        return self.at + (self.table > 0)

    def passed(self) -> int:
        """The steps that every table has handed out."""
        return min(self.at, *self.lag.values()) if self.lag else self.at


@dataclass(frozen=True)
class Steps:
    """The cut of all tables. `step_rows` and `events` have one entry a table, `prepared` is the same for all."""

    step_rows: Ints
    events: Ints
    prepared: int
    txn_rows: int
    epoch_ms: int
    step_ms: int
    room: int = 0  # timestamps that each window leaves free in front of its first row

    @cached_property
    def tables(self) -> int:
        return len(self.step_rows)

    @cached_property
    def prepare_steps(self) -> Ints:
        steps: Ints = -(-self.prepared // self.step_rows)
        return steps

    @cached_property
    def last(self) -> int:
        """After so many steps every table is at its end; of no meaning for an endless workload."""
        prepare = -(-np.minimum(self.events, self.prepared) // self.step_rows)
        run = -(-np.maximum(self.events - self.prepared, 0) // self.step_rows)
        return int((prepare + run).max())

    def positions(self, cursor: Cursor, first: int, last: int) -> Ints:
        """Where the cursor stands in each of tables `first` up to `last`: the position of its next event."""
        return self.handed(cursor.steps(first, last), slice(first, last))

    def handed(self, steps: Ints, tables: slice | Ints) -> Ints:
        """How many events the first `steps` steps of these tables hold."""
        size = self.step_rows[tables]
        prepare = np.minimum(steps * size, self.prepared)
        run = np.maximum(steps - self.prepare_steps[tables], 0) * size
        handed: Ints = np.minimum(prepare + run, self.events[tables])
        return handed

    def commit_ts(self, table: Ints, position: Ints) -> Ints:
        """Grows with a table's transactions; within the window of the position's step."""
        run = position >= self.prepared
        step, inside = np.divmod(position - self.prepared * run, self.step_rows[table])
        step += self.prepare_steps[table] * run
        inside_ts: Ints = inside // self.txn_rows * self._gap + table % self._gap
        window_ts: Ints = tso(self.epoch_ms) + self.room + step * self._window
        return window_ts + inside_ts

    def resolved(self, step: int) -> int:
        """Everything at or below this commit-ts stands in the steps before `step`."""
        return tso(self.epoch_ms) + step * self._window - 1

    def transaction_start(self, position: int) -> int:
        """The first position of the transaction that `position` belongs to."""
        base = self.prepared if position >= self.prepared else 0
        return base + (position - base) // self.txn_rows * self.txn_rows

    @cached_property
    def _window(self) -> int:
        return tso(self.step_ms)

    @cached_property
    def _gap(self) -> int:
        return (self._window - self.room) // int(self.step_rows.max() // self.txn_rows)


def start_ts(commit_ts: Ints) -> Ints:
    return commit_ts - tso(_START_MS)


def cut_tables(ends: Ints, pieces: int) -> list[tuple[int, int]]:
    """Contiguous tables of about equal rows; `ends` counts the rows up to and with each table."""
    goals = ends[-1] * np.arange(1, pieces) / pieces
    after = np.searchsorted(ends, goals, side="left")
    starts = np.concatenate([np.zeros(1, np.int64), ends])
    nearest = after + (ends[after] - goals < goals - starts[after])
    bounds = np.unique(np.concatenate([[0], nearest, [len(ends)]])).tolist()
    return [(first, last) for first, last in pairwise(bounds) if starts[last] > starts[first]] or [(0, len(ends))]


def cut_rows(steps: Steps, low: Ints, ends: Ints, pieces: int) -> list[tuple[tuple[int, int], tuple[int, int | None]]]:
    """Contiguous rows of about equal number, cut at transactions.

    Each piece is its tables (first, last) and the positions it starts at in the first and ends at in the last of them
    (None: the table's end). `low` is each table's first position, `ends` counts the rows up to and with each table.
    """
    cuts = {(0, int(low[0]))}
    for goal in range(1, pieces):
        row = int(ends[-1]) * goal // pieces
        table = min(int(np.searchsorted(ends, row, side="right")), len(ends) - 1)
        start = int(ends[table - 1]) if table else 0
        cuts.add((table, max(int(low[table]), steps.transaction_start(int(low[table]) + row - start))))
    bounds: list[tuple[int, int | None]] = [
        (table + 1, position) if position > low[table] else (table, None) for table, position in sorted(cuts)[1:]
    ]
    bounds.append((len(ends), None))
    return [((table, last), (at, high)) for (table, at), (last, high) in zip(sorted(cuts), bounds, strict=True)]
