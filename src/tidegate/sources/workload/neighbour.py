"""`neighbour=txn-rows:1000000,every:10s`: one additional table that puts load on the others.

It commits one transaction per period, all rows at once and in addition to the rate; `columns` makes its rows slow to
encode. Its position is one number: the rows handed out so far. In a micro-batch it gets at most its share: whole
transactions if they fit, else a part of one. All rows of a transaction have one commit-ts. The resolved mark reaches
it only after its last row is handed out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import pyarrow as pa

from tidegate.events import tso
from tidegate.format.tables import Column, Layout
from tidegate.sources.source import BATCH_BYTES, layout_rows
from tidegate.sources.workload.ddl_mix import read_every
from tidegate.sources.workload.steps import start_ts
from tidegate.sources.workload.sysbench import FIRST_TABLE_ID, LAYOUT, History, Ints, Texts, change_rows, first_state

_MAX_TXN_ROWS = 100_000_000
_MAX_COLUMNS = 4_000  # TiDB's limit is 4,096
COLUMN_BYTES = 15  # of a DOUBLE such as 2.8287699e+08


@dataclass(frozen=True)
class Habits:
    """A transaction of `txn_rows` every `every_ms`; `columns` DOUBLE columns after those of sysbench."""

    txn_rows: int
    every_ms: int
    columns: int = 0


def read_habits(text: str) -> Habits:
    """`read_habits("txn-rows:1000000,every:10s")` is `Habits(1000000, 10000)`."""
    pairs = [piece.partition(":")[::2] for piece in text.split(",")]
    given = dict(pairs)
    if len(given) != len(pairs) or not {"txn-rows", "every"} <= given.keys() <= {"txn-rows", "every", "columns"}:
        raise ValueError("a neighbour such as txn-rows:1000000,every:10s or txn-rows:100,every:50ms,columns:200")
    txn_rows = _count(given["txn-rows"], 1, _MAX_TXN_ROWS)
    return Habits(
        txn_rows, read_every(given["every"], "a neighbour"), _count(given.get("columns", "0"), 0, _MAX_COLUMNS)
    )


def _count(text: str, low: int, high: int) -> int:
    if not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
        raise ValueError(f"a neighbour: {text!r} must be a whole number from {low} to {high}")
    return int(text)


@dataclass(frozen=True)
class Neighbour:
    """The rows of table `number` (counted from 0). A position is a number of rows."""

    habits: Habits
    number: int
    history: History
    texts: Texts
    epoch_ms: int
    version: int
    plain_row_bytes: int

    @property
    def table_id(self) -> int:
        return FIRST_TABLE_ID + self.number

    @property
    def row_bytes(self) -> int:
        return self.plain_row_bytes + COLUMN_BYTES * self.habits.columns

    @cached_property
    def layout(self) -> Layout:
        more = (Column(f"d{number}", "double", nullable=False) for number in range(1, self.habits.columns + 1))
        return Layout((*LAYOUT.columns, *more))

    def due(self, begun: int, seconds: float) -> int:
        """The position up to which rows exist, `seconds` after reading began at position `begun`."""
        whole = -(-begun // self.habits.txn_rows) + int(seconds * 1000) // self.habits.every_ms
        return whole * self.habits.txn_rows

    def taken(self, start: int, due: int, share_bytes: int) -> int:
        """The position after one micro-batch."""
        end = max(start, min(due, start + max(1, share_bytes // self.row_bytes)))
        whole = end // self.habits.txn_rows * self.habits.txn_rows
        return whole if whole > start else end

    def resolved(self, position: int) -> int:
        """All rows from this position on have a greater commit-ts than this."""
        return self._first_ts + position // self.habits.txn_rows * tso(self.habits.every_ms) - 1

    def cut(self, low: int, high: int, pieces: int) -> list[tuple[int, int]]:
        bounds = sorted({low + (high - low) * piece // pieces for piece in range(pieces + 1)})
        return list(pairwise(bounds))

    def read(self, low: int, high: int) -> Iterator[pa.RecordBatch]:
        yield layout_rows({self.layout.fingerprint: self.layout.to_json()}, self.version)
        most = max(1, BATCH_BYTES // self.row_bytes)
        for first in range(low, high, most):
            yield self._rows(np.arange(first, min(first + most, high)))

    def _rows(self, position: Ints) -> pa.RecordBatch:
        table, columns = np.full(len(position), self.number, np.int64), self.habits.columns
        changes = self.history.changes(position)
        images = self.texts.images(table, changes, np.full(len(position), columns) if columns else None)
        commit_ts = self._first_ts + position // self.habits.txn_rows * tso(self.habits.every_ms)
        layout = np.array([self.layout.fingerprint], np.int64)
        state = first_state(table[:1], np.zeros_like(position), self.version, layout)
        return change_rows(changes, position, (start_ts(commit_ts), commit_ts), images, state)

    @property
    def _first_ts(self) -> int:
        """The commit-ts of the first transaction."""
        return tso(self.epoch_ms + self.habits.every_ms)
