"""`workload://sysbench?tables=10&rows=1000000&seed=1`: changes of sysbench's tables, endless or `events` of them.

Every table hands out steps (see `steps`) of at most `batch` encoded bytes, or of one transaction if that is more. In a
micro-batch a table hands out one step (`flush`), or as many as the limit allows (`enqueue`). Held tables stay behind
and are named in the offset; after their release they catch up. In `flush` mode they stay behind by the same distance,
because no table may hand out two steps. Rows depend only on the URI, not on how micro-batches and splits are cut.

With `ddl=every:5s` there are DDLs on boundaries between steps (`ddl_play`). They are handed out in the order of
commit-ts, in the micro-batch in which the first table passes their boundary. A table that lags passes it later. A DDL
over all tables that does not change their versions ends the micro-batch at its boundary, and no table passes it until
all have reached it. The resolved mark of a micro-batch never passes a DDL that is not handed out.

A `neighbour` is one additional table with its own position, which gets at most half of a micro-batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.errors import BadSetting
from tidegate.events import tso
from tidegate.sources.source import Offset, Split, layout_rows, resolved_row
from tidegate.sources.workload.admission import Admission
from tidegate.sources.workload.batches import Batches
from tidegate.sources.workload.ddl_events import DdlEvents, used_layouts
from tidegate.sources.workload.ddl_history import DdlHistory, States, ddl_history
from tidegate.sources.workload.ddl_play import Plan, room
from tidegate.sources.workload.layouts import Layouts
from tidegate.sources.workload.neighbour import Neighbour
from tidegate.sources.workload.params import Workload, parse_workload
from tidegate.sources.workload.steps import ENDLESS, Cursor, Steps, cut_rows, cut_tables, start_ts
from tidegate.sources.workload.sysbench import FIRST_TABLE_ID, History, Ints, Texts

__all__ = ["Workload", "WorkloadSource", "parse_workload"]

_STEP_MS = 1000  # the commit-ts window of a step if no rate is given
_DDL_MS = 1000  # time from the creation of the tables to the epoch
_NEIGHBOUR = "neighbour"  # key of its position in an offset and of its rows in a split


class WorkloadSource:
    """Has no state except the time when `latest` was first called: a `rate` counts from there."""

    def __init__(
        self,
        workload: Workload,
        *,
        ordering: str = "per-table",
        wake_mode: str = "enqueue",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.finite = workload.events is not None
        self._workload = workload
        self._ordering = ordering
        self._wake_mode = wake_mode
        self._clock = clock
        self._rate_from: tuple[float, int] | None = None
        self._neighbour_from: tuple[float, int] | None = None
        self._history = History(workload.rows, workload.rows if workload.prepare else 0, workload.mix)
        self._texts = Texts(workload.rows, workload.seed, workload.shards)
        mixed = workload.layouts > 1
        self._layouts = Layouts(workload.layouts, workload.seed, workload.shards) if mixed else None

    def initial(self) -> Offset:
        return Cursor().offset()

    def latest(self, start: Offset, limit_bytes: int, held: frozenset[int]) -> Offset:
        if self._neighbour is None:
            return self._latest(start, limit_bytes, held)
        before = _handed_beside(start)
        after = before if self._neighbour.table_id in held else self._neighbour_end(before, limit_bytes)
        rest = limit_bytes - (after - before) * self._neighbour.row_bytes
        end = self._latest(start, rest, held) | {_NEIGHBOUR: after}
        return start if after == before and self._cursor(end) == self._cursor(start) else end

    def _latest(self, start: Offset, limit_bytes: int, held: frozenset[int]) -> Offset:
        cursor = self._cursor(start)
        due = self._due_rows(cursor)
        admission = Admission(
            self._steps,
            finite=self.finite,
            one_step=self._wake_mode == "flush",
            budget=min(limit_bytes // self._workload.row_bytes, due),
            due=due,
        )
        end = self._admit(admission, cursor, held)
        return start if end == cursor else end.offset()

    def splits(self, start: Offset, end: Offset, parallelism: int) -> list[Split]:
        if start == end:
            return []
        before, after = self._cursor(start), self._cursor(end)
        splits = self._cut(before, after, max(1, parallelism))
        for split in splits:
            split["start"], split["end"] = (at.within(*split["tables"]).offset() for at in (before, after))
        splits[-1]["resolved"] = self._steps.resolved(after.passed())
        if self._workload.ddl:
            splits[-1]["ddl"] = [before.front, after.front]
            if after.passed() < after.front:  # the DDLs before the next row are handed out too
                splits[-1]["resolved"] += self._steps.room
        return self._with_neighbour(splits, start, end, parallelism)

    def _with_neighbour(self, splits: list[Split], start: Offset, end: Offset, parallelism: int) -> list[Split]:
        """The neighbour's splits come first, because they may take longest. Its other rows are not resolved yet."""
        if self._neighbour is None:
            return splits
        low, high = _handed_beside(start), _handed_beside(end)
        splits[-1]["resolved"] = min(splits[-1]["resolved"], self._neighbour.resolved(high))
        pieces = max(1, parallelism) if self._ordering == "global" else 1
        return [{_NEIGHBOUR: [*piece]} for piece in self._neighbour.cut(low, high, pieces)] + splits

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        if _NEIGHBOUR in split and self._neighbour is not None:
            yield from self._neighbour.read(*split[_NEIGHBOUR])
            return
        first, last = split["tables"]
        low, high = (self._steps.positions(self._cursor(split[at]), first, last) for at in ("start", "end"))
        trim_low, trim_high = split.get("rows", (None, None))
        low[0] = low[0] if trim_low is None else trim_low
        high[-1] = high[-1] if trim_high is None else trim_high
        active = np.flatnonzero(high > low)
        if self._workload.ddl:
            yield from self._read_with_ddl(split, active + first, low[active], high[active])
        else:
            yield from self._batches.shared_layout()
            yield from self._batches.read(active + first, low[active], high[active])
        if "resolved" in split:
            yield resolved_row(split["resolved"])

    def backlog_bytes(self, offset: Offset) -> int | None:
        if not self.finite:
            return None
        return (int(self._steps.events.sum()) - self._handed_rows(self._cursor(offset))) * self._workload.row_bytes

    def newest_ts(self) -> int | None:
        return self._steps.resolved(self._steps.last) + self._steps.room if self.finite else None

    @cached_property
    def _steps(self) -> Steps:
        work = self._workload
        weight = np.arange(1, work.tables + 1, dtype=np.float64) ** -work.skew
        step_txns = max(1, min(work.batch // work.row_bytes, work.rows) // work.txn_rows)
        step_rows = np.maximum(1, np.round(step_txns * weight)).astype(np.int64) * work.txn_rows
        step_ms = int(step_rows.sum()) * work.row_bytes * 1000 // work.rate if work.rate else _STEP_MS
        step_ms = max(1, step_ms, (step_txns >> 17) + bool(work.ddl))  # a window has room for all its transactions
        return Steps(
            step_rows=step_rows,
            events=_shares(work.events, weight),
            prepared=self._history.prepared,
            txn_rows=work.txn_rows,
            epoch_ms=int(work.epoch.timestamp() * 1000),
            step_ms=step_ms,
            room=room(work.ddl, step_ms),
        )

    @cached_property
    def _batches(self) -> Batches:
        return Batches(self._workload, self._steps, self._history, self._texts, self._layouts, self._version)

    @cached_property
    def _neighbour(self) -> Neighbour | None:
        work, habits = self._workload, self._workload.neighbour
        if habits is None:
            return None
        epoch_ms = self._steps.epoch_ms
        return Neighbour(habits, work.tables, self._history, self._texts, epoch_ms, self._version, work.row_bytes)

    def _neighbour_end(self, start: int, limit_bytes: int) -> int:
        """The neighbour gets at most half of a micro-batch, and in `flush` mode at most one batch."""
        assert self._neighbour is not None
        now = self._clock()
        if self._neighbour_from is None:
            self._neighbour_from = now, start
        since, begun = self._neighbour_from
        share = min(limit_bytes // 2, self._workload.batch) if self._wake_mode == "flush" else limit_bytes // 2
        return self._neighbour.taken(start, self._neighbour.due(begun, now - since), share)

    @cached_property
    def _plan(self) -> Plan:
        work, steps = self._workload, self._steps
        last = steps.last if self.finite else None
        return Plan(work.ddl, work.tables, work.seed, tso(steps.epoch_ms), steps.step_ms, last, work.shards)

    @property
    def _ddls(self) -> DdlHistory:
        return ddl_history(self._plan)  # not an attribute, because a source is sent to other processes

    @cached_property
    def _version(self) -> int:
        return tso(self._steps.epoch_ms - _DDL_MS)

    def _cursor(self, offset: Offset) -> Cursor:
        return Cursor.of(offset, self._workload.tables)

    def _handed_rows(self, cursor: Cursor) -> int:
        return int(self._steps.positions(cursor, 0, self._steps.tables).sum())

    def _due_rows(self, cursor: Cursor) -> int:
        """Rows that the rate has produced by now and that were not handed out yet."""
        if not self._workload.rate:
            return ENDLESS
        now, handed = self._clock(), self._handed_rows(cursor)
        if self._rate_from is None:
            self._rate_from = now, handed
        since, base = self._rate_from
        return max(0, int((now - since) * self._workload.rate / self._workload.row_bytes) - (handed - base))

    def _admit(self, admission: Admission, cursor: Cursor, held: frozenset[int]) -> Cursor:
        if not self._workload.ddl:
            paths = range(FIRST_TABLE_ID, FIRST_TABLE_ID + self._steps.tables)
            return admission.admit(cursor, {table_id - FIRST_TABLE_ID for table_id in held if table_id in paths})
        tables = self._ddls.tables_of(held, cursor.front)
        end = admission.admit(cursor, tables)
        stop = self._stop(cursor, end.front)
        return end if stop is None else replace(admission, stop=stop).admit(cursor, tables)

    def _stop(self, cursor: Cursor, front: int) -> int | None:
        """The first boundary before `front` that has a DDL over all tables and that not all tables have reached."""
        stop = self._ddls.first_wide(cursor.front, front)
        while stop is not None and self._all_at(cursor, stop):
            stop = self._ddls.first_wide(stop + 1, front)
        return stop

    def _all_at(self, cursor: Cursor, step: int) -> bool:
        """Whether all tables have handed out all steps before `step`."""
        until = np.full(self._steps.tables, step)
        positions = self._steps.positions(cursor, 0, self._steps.tables)
        return bool((self._steps.handed(until, slice(None)) == positions).all())

    def _cut(self, before: Cursor, after: Cursor, pieces: int) -> list[Split]:
        low, high = (self._steps.positions(at, 0, self._steps.tables) for at in (before, after))
        ends = np.cumsum(high - low)
        if self._ordering == "global":
            return [{"tables": [*pair], "rows": [*rows]} for pair, rows in cut_rows(self._steps, low, ends, pieces)]
        return [{"tables": [*pair]} for pair in cut_tables(ends, pieces)]

    def _read_with_ddl(self, split: Split, tables: Ints, low: Ints, high: Ints) -> Iterator[pa.RecordBatch]:
        """Rows, in separate batches per state of their table; then the DDLs, if this split has them."""
        numbers = self._ddls.numbers(*split.get("ddl", (0, 0)))
        layouts, ddls = DdlEvents(self._plan, self._ddls, self._layouts).rows(numbers, start_ts)
        table, low, high, states = self._cut_states(split, tables, low, high)
        if self._layouts is None:
            layouts = used_layouts(states) | layouts
        yield from [layout_rows(layouts, self._version)] if layouts else self._batches.shared_layout()
        yield from self._batches.read(table, low, high, states)
        if ddls.num_rows:
            yield ddls

    def _cut_states(self, split: Split, tables: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints, Ints, States]:
        start, end = self._cursor(split["start"]), self._cursor(split["end"])
        if not len(tables):
            return tables, low, high, self._ddls.states(tables, tables, self._version)
        which, state, step = self._ddls.cut(tables, start.passed(), end.front)
        begins = np.clip(self._steps.handed(step, tables[which]), low[which], high[which])
        ends = np.append(begins[1:], 0)
        closing = np.append(which[1:] != which[:-1], True)
        ends[closing] = high
        chosen = np.flatnonzero(ends > begins)
        table = tables[which[chosen]]
        return table, begins[chosen], ends[chosen], self._ddls.states(table, state[chosen], self._version)


def _handed_beside(offset: Offset) -> int:
    """The number of rows that the neighbour has handed out."""
    handed = offset.get(_NEIGHBOUR, 0)
    if not isinstance(handed, int) or handed < 0:
        raise BadSetting(f'position {offset!r} is not one of a workload with a neighbour, such as {{"at": 7}}')
    return handed


def _shares(events: int | None, weight: npt.NDArray[np.float64]) -> Ints:
    """The number of events of each table, by weight. The sum is `events`."""
    if events is None:
        return np.full(len(weight), ENDLESS, np.int64)
    bounds = np.rint(events * np.cumsum(weight) / weight.sum()).astype(np.int64)
    bounds[-1] = events
    shares: Ints = np.diff(bounds, prepend=0)
    return shares
