"""The sequence of a workload's DDLs: a catalogue of tables that is changed boundary by boundary.

The records depend only on the `Plan`.

* A DDL of time t is placed on the first boundary between step windows that is not before t. Boundary s is before the
  rows of step s. The DDLs of a boundary get the first timestamps of its window, before the first row.
* A hash of (seed, number) chooses the table of a DDL. If that table already has a DDL on this boundary, the next free
  table is used.
* If a kind has nothing to work on, or has reached its limit, the opposite happens: instead of dropping a missing column
  one is added, instead of creating one table too many one is dropped.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum, auto
from typing import NamedTuple

import numpy as np

from tidegate.events import tso
from tidegate.sources.workload.ddl_mix import WIDE_KINDS, Schedule
from tidegate.sources.workload.sysbench import FIRST_TABLE_ID, Ints, scramble

MAX_ADDED = 4  # added columns of one table
MAX_SIDE = 16  # side tables that exist at the same time; the same for databases and for views
COLUMN_TYPES = 3  # a modified column cycles through this many types (listed in `ddl_events`)


class Op(IntEnum):
    """What a record does; DROP and CREATE are the two halves of drop-create."""

    ADD_COLUMN = auto()
    DROP_COLUMN = auto()
    MODIFY_COLUMN = auto()
    ADD_INDEX = auto()
    RENAME = auto()
    TRUNCATE = auto()
    DROP = auto()
    CREATE = auto()
    CREATE_TABLE = auto()
    DROP_TABLE = auto()
    CREATE_DATABASE = auto()
    DROP_DATABASE = auto()
    CREATE_VIEW = auto()
    DROP_VIEW = auto()
    ALTER_DATABASE = auto()


WIDE_OPS = (Op.CREATE_VIEW, Op.ALTER_DATABASE)


class Record(NamedTuple):
    """One DDL. `table` is the table that it changes, or -1; `id`, `renamed` and `shape` are the state after it.

    `before` is the record of the table's previous state. `about` depends on `op`: for a drop it is the record that
    created the object; for a view, the table it reads; for the database, how often it was altered. `emptied` is the
    last boundary at which the table was truncated or created again; 0 if it was not.
    """

    boundary: int
    ts: int
    op: int
    table: int = -1
    before: int = -1
    id: int = 0
    renamed: int = 0
    shape: int = 0
    about: int = -1
    emptied: int = 0


@dataclass(frozen=True)
class Plan:
    """Everything that the DDLs depend on. `last` is the step after the end of the workload, None if it never ends."""

    schedules: tuple[Schedule, ...]
    tables: int
    seed: int
    epoch_ts: int
    step_ms: int
    last: int | None
    shards: int = 1

    @property
    def altered(self) -> range:
        """The tables that DDLs change: not the shards, because whoever alters one of them alters all."""
        return range(self.shards if self.shards > 1 else 0, self.tables)

    @property
    def wide(self) -> bool:
        """Whether there may be DDLs over all tables."""
        return any(WIDE_KINDS.intersection(schedule.kinds) for schedule in self.schedules)

    @property
    def first_new_id(self) -> int:
        """A table, view or database that record n creates has the id `first_new_id` + n."""
        return FIRST_TABLE_ID + self.tables


def room(schedules: tuple[Schedule, ...], step_ms: int) -> int:
    """The most timestamps that the DDLs of one boundary need: two for each, because drop-create is two DDLs."""
    return sum(2 * (step_ms // schedule.every_ms + 1) for schedule in schedules)


def _added(shape: int) -> int:
    """The number of added columns. A shape is a number whose digits, from 1, are the types of the added columns."""
    return _added(shape // (COLUMN_TYPES + 1)) + 1 if shape else 0


ADDED_COLUMNS = np.array([_added(shape) for shape in range((COLUMN_TYPES + 1) ** MAX_ADDED)], np.int64)


class _State(NamedTuple):
    record: int
    id: int
    renamed: int
    shape: int
    emptied: int = 0


@dataclass
class Player:
    """The catalogue after the last computed boundary, and how each kind of DDL changes it."""

    plan: Plan
    done: int = 1  # the first boundary that is not computed yet; there is no boundary before step 0
    number: int = 0  # of the next DDL
    count: int = 0  # of the next record
    altered: int = 0
    states: dict[int, _State] = field(default_factory=dict)
    side: dict[str, deque[int]] = field(default_factory=lambda: defaultdict(deque))
    taken: set[int] = field(default_factory=set)
    boundary: int = 0
    next_ts: int = 0
    fresh: list[Record] = field(default_factory=list)

    def play(self, until: int) -> list[Record]:
        """Computes the records of the boundaries from `done` to `until` - 1."""
        if until <= self.done:
            return []
        boundaries, schedules = self._due(until)
        numbers = np.arange(self.number, self.number + len(boundaries)).view(np.uint64)
        hashes = scramble(scramble(numbers) + np.uint64(self.plan.seed)).tolist()
        self.fresh = []
        for boundary, schedule, chance in zip(boundaries.tolist(), schedules.tolist(), hashes, strict=True):
            if boundary != self.boundary:
                self._open(boundary)
            kinds = self.plan.schedules[schedule].kinds
            _PLAYS[kinds[(chance >> 44) % len(kinds)]](self, chance & 0xFFFFFFFFFFF)
        self.number, self.done = self.number + len(boundaries), until
        return self.fresh

    def _due(self, until: int) -> tuple[Ints, Ints]:
        """Boundary and schedule of each DDL, sorted by time."""
        step_ms, times = self.plan.step_ms, []
        for schedule in self.plan.schedules:
            first, last = ((at - 1) * step_ms // schedule.every_ms + 1 for at in (self.done, until))
            times.append(np.arange(first, last, dtype=np.int64) * schedule.every_ms)
        schedules = np.repeat(np.arange(len(times)), [len(part) for part in times])
        time_ms = np.concatenate(times)
        order = np.argsort(time_ms, kind="stable")
        return -(-time_ms[order] // step_ms), schedules[order]

    def _open(self, boundary: int) -> None:
        self.boundary = boundary
        self.next_ts = self.plan.epoch_ts + tso(boundary * self.plan.step_ms)
        self.taken.clear()

    def _take(self, chance: int) -> tuple[int, _State]:
        """A table without a DDL on this boundary, if there is one left."""
        tables = self.plan.altered
        if len(self.taken) == len(tables):
            self.taken.clear()
        place = chance % len(tables)
        while tables[place] in self.taken:
            place = (place + 1) % len(tables)
        table = tables[place]
        self.taken.add(table)
        return table, self._state(table)

    def _state(self, table: int) -> _State:
        return self.states.get(table) or _State(-1, table + FIRST_TABLE_ID, 0, 0)

    def _write(self, op: Op, *, table: int = -1, before: int = -1, about: int = -1, after: _State | None = None) -> int:
        state = after or _State(-1, 0, 0, 0)
        of_state = (state.id, state.renamed, state.shape, about, state.emptied)
        self.fresh.append(Record(self.boundary, self.next_ts, op, table, before, *of_state))
        self.next_ts += 1
        self.count += 1
        return self.count - 1

    def change(self, op: Op, table: int, before: _State, **changes: int) -> _State:
        after = before._replace(record=self.count, **changes)
        self._write(op, table=table, before=before.record, after=after)
        self.states[table] = after
        return after

    @property
    def new_id(self) -> int:
        return self.plan.first_new_id + self.count

    def alter(self, op: Op, chance: int) -> None:
        table, before = self._take(chance)
        if op is Op.ADD_COLUMN and before.shape >= _FULL:
            op = Op.DROP_COLUMN
        elif op in (Op.DROP_COLUMN, Op.MODIFY_COLUMN) and not before.shape:
            op = Op.ADD_COLUMN
        shape = _SHAPES[op](before.shape) if op in _SHAPES else before.shape
        self.change(op, table, before, shape=shape)

    def rename(self, chance: int) -> None:
        table, before = self._take(chance)
        self.change(Op.RENAME, table, before, renamed=1 - before.renamed)

    def truncate(self, chance: int) -> None:
        table, before = self._take(chance)
        self.change(Op.TRUNCATE, table, before, id=self.new_id, emptied=self.boundary)

    def drop_create(self, chance: int) -> None:
        table, before = self._take(chance)
        gone = self.change(Op.DROP, table, before)
        self.change(Op.CREATE, table, gone, id=self.new_id, shape=0, emptied=self.boundary)

    def create_side(self, create: Op, drop: Op) -> None:
        made = self.side[create.name]
        if len(made) == MAX_SIDE:
            self._write(drop, about=made.popleft())
        else:
            made.append(self._write(create, about=self.count))

    def drop_side(self, create: Op, drop: Op, chance: int) -> None:
        made = self.side[create.name]
        if made:
            self._write(drop, about=made.popleft())
        elif create is Op.CREATE_VIEW:
            self.create_view(chance)
        else:
            self.create_side(create, drop)

    def create_view(self, chance: int) -> None:
        made = self.side[Op.CREATE_VIEW.name]
        if len(made) == MAX_SIDE:
            self._write(Op.DROP_VIEW, about=made.popleft())
            return
        table = chance % self.plan.tables
        made.append(self._write(Op.CREATE_VIEW, before=self._state(table).record, about=table))

    def alter_database(self, _: int) -> None:
        self.altered += 1
        self._write(Op.ALTER_DATABASE, about=self.altered)


_DIGIT = COLUMN_TYPES + 1
_FULL = _DIGIT ** (MAX_ADDED - 1)  # a shape of at least this has the most columns allowed
_SHAPES: dict[Op, Callable[[int], int]] = {
    Op.ADD_COLUMN: lambda shape: shape * _DIGIT + 1,
    Op.DROP_COLUMN: lambda shape: shape // _DIGIT,
    Op.MODIFY_COLUMN: lambda shape: shape // _DIGIT * _DIGIT + shape % _DIGIT % COLUMN_TYPES + 1,
}


def _alter(op: Op) -> Callable[[Player, int], None]:
    return lambda player, chance: player.alter(op, chance)


def _create(create: Op, drop: Op) -> Callable[[Player, int], None]:
    return lambda player, _: player.create_side(create, drop)


def _drop(create: Op, drop: Op) -> Callable[[Player, int], None]:
    return lambda player, chance: player.drop_side(create, drop, chance)


_PLAYS: dict[str, Callable[[Player, int], None]] = {
    "add-column": _alter(Op.ADD_COLUMN),
    "drop-column": _alter(Op.DROP_COLUMN),
    "modify-column": _alter(Op.MODIFY_COLUMN),
    "add-index": _alter(Op.ADD_INDEX),
    "rename": Player.rename,
    "truncate": Player.truncate,
    "drop-create": Player.drop_create,
    "create-table": _create(Op.CREATE_TABLE, Op.DROP_TABLE),
    "drop-table": _drop(Op.CREATE_TABLE, Op.DROP_TABLE),
    "create-database": _create(Op.CREATE_DATABASE, Op.DROP_DATABASE),
    "drop-database": _drop(Op.CREATE_DATABASE, Op.DROP_DATABASE),
    "create-view": Player.create_view,
    "drop-view": _drop(Op.CREATE_VIEW, Op.DROP_VIEW),
    "alter-database": Player.alter_database,
}
