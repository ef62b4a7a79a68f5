"""The rows of a workload's tables as batches of events, with the layouts that have to be defined before them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from tidegate.sources.source import BATCH_BYTES, layout_rows
from tidegate.sources.workload.ddl_events import added_columns, shape_fingerprints, state_columns
from tidegate.sources.workload.ddl_history import States
from tidegate.sources.workload.layouts import Layouts
from tidegate.sources.workload.lives import FIRST_LIFE, Lives
from tidegate.sources.workload.params import Workload
from tidegate.sources.workload.steps import Steps, start_ts
from tidegate.sources.workload.sysbench import LAYOUT, Changes, History, Ints, Texts, change_rows, first_state


@dataclass(frozen=True)
class Batches:
    """`layouts` is None if all tables have sysbench's; `version` is that of tables that no DDL has changed."""

    work: Workload
    steps: Steps
    history: History
    texts: Texts
    layouts: Layouts | None
    version: int

    def read(self, tables: Ints, low: Ints, high: Ints, states: States | None = None) -> Iterator[pa.RecordBatch]:
        """Batches of a bounded size. A batch ends at a transaction unless the transaction is larger than a batch."""
        ends = np.cumsum(high - low)
        starts = ends - (high - low)
        row, total = 0, int(ends[-1]) if len(ends) else 0
        while row < total:
            until = self._batch_end(row, low, starts, ends)
            chosen = slice(np.searchsorted(ends, row, side="right"), np.searchsorted(starts, until, side="left"))
            counts = np.minimum(ends[chosen], until) - np.maximum(starts[chosen], row)
            first = low[chosen] + np.maximum(row - starts[chosen], 0)
            part = None if states is None else states.part(chosen)
            prints, described = self._described(tables[chosen], part)
            yield from described
            yield self._rows(tables[chosen], first, counts, part, prints)
            row = until

    def _batch_end(self, row: int, low: Ints, starts: Ints, ends: Ints) -> int:
        until = row + max(1, BATCH_BYTES // self.work.row_bytes)
        if until >= ends[-1]:
            return int(ends[-1])
        table = int(np.searchsorted(ends, until, side="right"))
        to_position = int(low[table]) - int(starts[table])
        aligned = max(int(starts[table]), self.steps.transaction_start(until + to_position) - to_position)
        return aligned if aligned > row else until

    def shared_layout(self) -> Iterator[pa.RecordBatch]:
        """The layout of all tables, at the start of a split; layouts of their own come with the rows that use them."""
        if self.layouts is None:
            yield layout_rows({LAYOUT.fingerprint: LAYOUT.to_json()}, self.version)

    def _described(self, tables: Ints, states: States | None) -> tuple[Ints, list[pa.RecordBatch]]:
        """The fingerprint of each table's layout, and the layouts that have to be defined before its rows."""
        shape = np.zeros_like(tables) if states is None else states.shape
        if self.layouts is None:
            return shape_fingerprints(shape), []
        prints, rows = self.layouts.described(tables, shape, self.version)
        return prints, [rows]

    def _rows(self, tables: Ints, first: Ints, counts: Ints, states: States | None, layout: Ints) -> pa.RecordBatch:
        """`counts` changes of each table from position `first` on; `layout` is the fingerprint of each table's."""
        run = np.repeat(np.arange(len(tables)), counts)
        position = np.arange(len(run)) + (first - (np.cumsum(counts) - counts))[run]
        table = tables[run]
        changes = self.history.changes(position) if states is None else self._in_life(position, tables, run, states)
        added = None if states is None else added_columns(states, run)
        images = (self.layouts or self.texts).images(table, changes, added)
        commit_ts = self.steps.commit_ts(table, position)
        shards = self.work.shards
        if states is None:
            state = first_state(tables, run, self.version, layout, shards)
        else:
            state = state_columns(states, run, layout, shards)
        return change_rows(changes, position, (start_ts(commit_ts), commit_ts), images, state)

    def _in_life(self, position: Ints, tables: Ints, run: Ints, states: States) -> Changes:
        """The changes of tables that DDLs may have emptied: their lives begin at the rows handed out until then."""
        base = np.where(states.emptied > 0, self.steps.handed(states.emptied, tables), FIRST_LIFE)
        return self._lives.changes(position, base[run])

    @cached_property
    def _lives(self) -> Lives:
        return Lives(self.history)
