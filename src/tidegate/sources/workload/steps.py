"""How a workload's tables are divided into steps, and the cursor that counts them.

A step of a table is a fixed number of events: whole transactions, at most one batch of encoded bytes. No step contains
both `prepare` and the run, so the last step of `prepare` may be short. Here tables are numbered 0, 1, ...

Steps are handed out in rounds: step 0 of all tables in order, then step 1 of all tables. A cursor says how far that
went: tables below `table` have handed out `at` + 1 steps, the others `at` steps, and lagging tables as many as `lag`
says. All commit-ts of step s are in a window before those of step s + 1 of any table, so a step that every table has
handed out is resolved. DDLs of boundary s are at the start of the window of step s, before all its rows.
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
_START_MS = 2  # time between the start of a transaction and its commit


@dataclass(frozen=True)
class Cursor:
    """`{"at": 7, "table": 250000, "held": {"103": 5}}` as an offset. `table` and `held` are left out if empty."""

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
        """The inverse of `offset`. Refuses an offset that a workload with this number of tables cannot have."""
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
        """Steps that these tables have handed out if no table lags."""
        return self.at + (tables < self.table)

    def steps(self, first: int, last: int) -> Ints:
        """Steps that tables `first` to `last` - 1 have handed out."""
        steps = self.natural(np.arange(first, last, dtype=np.int64))
        for table, step in self.lag.items():
            if first <= table < last:
                steps[table - first] = step
        return steps

    def within(self, first: int, last: int) -> Cursor:
        """The same cursor, with only the lag of these tables."""
        return Cursor(self.at, self.table, {t: step for t, step in self.lag.items() if first <= t < last})

    @property
    def front(self) -> int:
        """The most steps that any table has handed out; lagging tables do not count."""
        return self.at + (self.table > 0)

    def passed(self) -> int:
        """The number of steps that every table has handed out."""
        return min(self.at, *self.lag.values()) if self.lag else self.at


@dataclass(frozen=True)
class Steps:
    """The steps of all tables. `step_rows` and `events` have one entry per table; `prepared` is the same for all."""

    step_rows: Ints
    events: Ints
    prepared: int
    txn_rows: int
    epoch_ms: int
    step_ms: int
    room: int = 0  # timestamps at the start of each window that are free for DDLs

    @cached_property
    def tables(self) -> int:
        return len(self.step_rows)

    @cached_property
    def prepare_steps(self) -> Ints:
        steps: Ints = -(-self.prepared // self.step_rows)
        return steps

    @cached_property
    def last(self) -> int:
        """The number of steps after which every table has ended. Not used for an endless workload."""
        prepare = -(-np.minimum(self.events, self.prepared) // self.step_rows)
        run = -(-np.maximum(self.events - self.prepared, 0) // self.step_rows)
        return int((prepare + run).max())

    def positions(self, cursor: Cursor, first: int, last: int) -> Ints:
        """The position of the next event in each of the tables `first` to `last` - 1."""
        return self.handed(cursor.steps(first, last), slice(first, last))

    def handed(self, steps: Ints, tables: slice | Ints) -> Ints:
        """The number of events in the first `steps` steps of these tables."""
        size = self.step_rows[tables]
        prepare = np.minimum(steps * size, self.prepared)
        run = np.maximum(steps - self.prepare_steps[tables], 0) * size
        handed: Ints = np.minimum(prepare + run, self.events[tables])
        return handed

    def commit_ts(self, table: Ints, position: Ints) -> Ints:
        """The commit-ts of each position. It grows with the transactions of a table, within the window of the step."""
        run = position >= self.prepared
        step, inside = np.divmod(position - self.prepared * run, self.step_rows[table])
        step += self.prepare_steps[table] * run
        inside_ts: Ints = inside // self.txn_rows * self._gap + table % self._gap
        window_ts: Ints = tso(self.epoch_ms) + self.room + step * self._window
        return window_ts + inside_ts

    def resolved(self, step: int) -> int:
        """All events at or below this commit-ts are in steps before `step`."""
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
    """Ranges of tables with about equal rows. `ends` is the running total of rows, each table included."""
    goals = ends[-1] * np.arange(1, pieces) / pieces
    after = np.searchsorted(ends, goals, side="left")
    starts = np.concatenate([np.zeros(1, np.int64), ends])
    nearest = after + (ends[after] - goals < goals - starts[after])
    bounds = np.unique(np.concatenate([[0], nearest, [len(ends)]])).tolist()
    return [(first, last) for first, last in pairwise(bounds) if starts[last] > starts[first]] or [(0, len(ends))]


def cut_rows(steps: Steps, low: Ints, ends: Ints, pieces: int) -> list[tuple[tuple[int, int], tuple[int, int | None]]]:
    """Ranges of about equally many rows that begin and end at transactions.

    Each range has its tables (first, last), the position where it starts in the first of them, and the position where
    it ends in the last one (None: the end of the table). `low` is the first position of each table, `ends` the running
    total of rows, each table included.
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
