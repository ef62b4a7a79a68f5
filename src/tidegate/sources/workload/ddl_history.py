"""The DDLs of a workload, one record each, and the state of its tables between any two of them.

Records are computed forward (`ddl_play`) as far as they are needed, and kept in columns, a few bytes each. The event of
a DDL is built from its record when it is handed out (`ddl_events`). All sources of the same workload in one process
share the records (`ddl_history`). The state of a table is the number of the last record that changed it; -1 is the
table at the beginning of the workload.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import chain
from threading import Lock

import numpy as np

from tidegate.sources.workload.ddl_play import WIDE_OPS, Plan, Player, Record
from tidegate.sources.workload.sysbench import FIRST_TABLE_ID, Ints


@dataclass(frozen=True)
class States:
    """The states of some tables, one entry per state. A table may have several entries."""

    table: Ints
    id: Ints
    version: Ints
    renamed: Ints
    shape: Ints
    emptied: Ints  # the boundary at which the table was truncated or created again; 0 for none

    def part(self, chosen: slice) -> States:
        return States(*(getattr(self, field.name)[chosen] for field in fields(self)))


class DdlHistory:
    """All records up to a boundary, and the states of the tables there. Several threads may use it."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._player = Player(plan)
        self._columns = np.empty((len(Record._fields), 256), np.int64)
        self._count = 0
        self._heads = np.full(plan.tables, -1, np.int64)
        self._wide: list[int] = []
        self._lock = Lock()

    def numbers(self, first: int, last: int) -> range:
        """The records of the boundaries from `first` to `last` - 1."""
        with self._lock:
            self._play(last)
            low, high = np.searchsorted(self._column("boundary"), [first, last]).tolist()
            return range(low, high)

    def record(self, number: int) -> Record:
        return Record(*self._columns[:, number].tolist())

    def first_wide(self, first: int, last: int) -> int | None:
        """The first boundary from `first` to `last` - 1 that has a DDL over all tables; None if there is none."""
        if not self._plan.wide:
            return None
        with self._lock:
            self._play(last)
            at = bisect_left(self._wide, first)
            return self._wide[at] if at < len(self._wide) and self._wide[at] < last else None

    def tables_of(self, ids: frozenset[int], front: int) -> set[int]:
        """The tables that have or had these ids, considering only DDLs of boundaries before `front`."""
        first_new, made = self._plan.first_new_id, len(self.numbers(0, front))
        old = {table_id - FIRST_TABLE_ID for table_id in ids if FIRST_TABLE_ID <= table_id < first_new}
        new = (self.record(table_id - first_new) for table_id in ids if first_new <= table_id < first_new + made)
        return old | {record.table for record in new if record.table >= 0}

    def cut(self, tables: Ints, low: int, high: int) -> tuple[Ints, Ints, Ints]:
        """The states of these tables (sorted) from step `low` to step `high`, and the step at which each state begins.

        Three columns, sorted by table and then by time: index into `tables`, state (a record), step. The first state
        of a table has step `low`.
        """
        with self._lock:
            self._play(high)
            first, last = np.searchsorted(self._column("boundary"), [low + 1, high]).tolist()
            heads = self._heads_before(first, int(tables[0]), int(tables[-1]))[tables - tables[0]]
            changed, step = (self._column(name)[first:last].copy() for name in ("table", "boundary"))
        place = np.minimum(np.searchsorted(tables, changed), len(tables) - 1)
        chosen = np.flatnonzero(tables[place] == changed)
        chosen = chosen[np.argsort(place[chosen], kind="stable")]
        at = place[chosen] + 1
        return (
            np.insert(np.arange(len(tables)), at, place[chosen]),
            np.insert(heads, at, chosen + first),
            np.insert(np.full(len(tables), low), at, step[chosen]),
        )

    def _heads_before(self, number: int, first: int, last: int) -> Ints:
        """The states of tables `first` to `last` (inclusive) before record `number`. Later records are undone."""
        heads = self._heads[first : last + 1].copy()
        table = self._column("table")[number:]
        undone = np.flatnonzero((table >= first) & (table <= last))[::-1]  # reversed, so that the earliest record wins
        heads[table[undone] - first] = self._column("before")[number:][undone]
        return heads

    def states(self, table: Ints, state: Ints, version: int) -> States:
        """The content of these states. `version` is the version of a table that no DDL has changed yet."""
        if not self._count:
            zero = np.zeros_like(table)
            return States(table, table + FIRST_TABLE_ID, zero + version, zero, zero, zero)
        known = state >= 0

        def column(name: str, otherwise: int | Ints) -> Ints:
            values: Ints = np.where(known, self._column(name)[state], otherwise)
            return values

        ids, versions = column("id", table + FIRST_TABLE_ID), column("ts", version)
        return States(table, ids, versions, *(column(name, 0) for name in ("renamed", "shape", "emptied")))

    def _column(self, name: str) -> Ints:
        return self._columns[Record._fields.index(name), : self._count]

    def _play(self, until: int) -> None:
        """Computes the missing records of the boundaries before `until`."""
        fresh = self._player.play(until if self._plan.last is None else min(until, self._plan.last))
        if not fresh:
            return
        count = self._count + len(fresh)
        if count > self._columns.shape[1]:
            wider = np.empty((len(Record._fields), 2 * count), np.int64)
            wider[:, : self._count] = self._columns[:, : self._count]
            self._columns = wider
        flat = np.fromiter(chain.from_iterable(fresh), np.int64, len(fresh) * len(Record._fields))
        self._columns[:, self._count : count] = flat.reshape(len(fresh), -1).T
        first, self._count = self._count, count
        changed = self._column("table")[first:]
        self._heads[changed[changed >= 0]] = np.flatnonzero(changed >= 0) + first
        wide = np.isin(self._column("op")[first:], WIDE_OPS)
        self._wide += np.unique(self._column("boundary")[first:][wide]).tolist()


@lru_cache(maxsize=4)
def ddl_history(plan: Plan) -> DdlHistory:
    """The history of this plan, shared in this process: a task that opens the workload again recomputes nothing."""
    return DdlHistory(plan)
