"""A model test of DDLs: a generated source, a ledger, and a store that answers late, badly or twice.

The model knows the whole history of the source, in commit-ts order, and which dispatchers each DDL touches. Whatever
the batches, the landings and the schema writes do in between, these hold: rows of a dispatcher land in order and none
passes an unfinished DDL; at a schema write all rows below T of all touched dispatchers are durable and none above is;
DDLs that touch each other are never under way together, and are written in commit-ts order, each once; one that has
drained and meets no earlier one is written at once, whatever others do; the checkpoint passes nothing unfinished; the
spool keeps its size, but for one row while a DDL lacks changes. And when the store works, all comes in and all ends in
bounded steps, unless the spool is too small for what a DDL lacks; then it says so, and goes on when it is made larger.
A DDL that comes behind rows that were planned is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tidegate.control.barrier import Key, Write
from tidegate.control.blocking import Ddl
from tidegate.control.checkpoint import NOTHING_PENDING
from tidegate.control.compaction import Copy
from tidegate.control.ledger import Ledger
from tidegate.control.limits import Limits
from tidegate.control.rounds import Round
from tidegate.control.spool import ITEM_BYTES
from tidegate.errors import BadEvents
from tidegate.executor.rows import ITEMS
from tidegate.format.ddl import events as ddl
from tidegate.format.ddl import scope as ddl_scope
from tidegate.format.ddl.events import ALL, ALTERS, NORMAL, TRIGGER, DdlEvent, Scope, TableAfter
from tidegate.format.ddl.scope import Table

LIMITS = Limits(
    file_size_bytes=300, flush_interval_s=5.0, round_tables=3, round_bytes=2_000, spool_max_bytes=1 << 20,
)  # fmt: skip
SPOOLS = (1 << 20, 12_000, 4_000, 1_500)
ROW_BYTES = 100 + ITEM_BYTES
SHOP, CREW = 10, 20
Dispatcher = tuple[int, int]  # table id, span


@dataclass(frozen=True)
class Row:
    ts: int
    seq: int
    owner: Dispatcher
    logical: int
    schema_id: int
    version: int


@dataclass(frozen=True)
class Change:
    """A DDL, and the tables that it touches at its commit-ts, by id and by name."""

    key: Key
    receiver: int
    event: DdlEvent
    touches: frozenset[int]

    def meets(self, other: Change) -> bool:
        """The table trigger is in both of nearly every pair, and is no reason to wait."""
        if any(change.event.blocked == Scope(ALL) for change in (self, other)):
            return True
        if (self.touches & other.touches) - {TRIGGER} or self.names & other.names:
            return True
        return bool(self.databases & other.schemas or self.schemas & other.databases)

    def may_wait_for(self, other: Change) -> bool:
        """A table that is copied and has not sent everything yet may be in any database."""
        pairs = ((self, other), (other, self))
        return self.meets(other) or any(one.copies and two.databases for one, two in pairs)

    @property
    def copies(self) -> bool:
        scope = self.event.blocked
        return self.event.type == ddl.CREATE_TABLE and scope is not None and len(scope.table_ids) > 1

    @property
    def names(self) -> set[tuple[str, str]]:
        found = {(table.schema, table.table) for table in self.event.tables}
        return found | {(table.old_schema, table.old_table) for table in self.event.tables if table.old_table}

    @property
    def schemas(self) -> set[str]:
        return {schema for schema, _ in self.names}

    @property
    def databases(self) -> set[str]:
        return {schema for schema, table in self.names if not table}


@dataclass
class Source:
    """Tables that change; everything that ever happened to them."""

    spans: int
    tables: dict[int, Table] = field(default_factory=dict)
    versions: Counter[int] = field(default_factory=Counter)
    rows: dict[Dispatcher, list[Row]] = field(default_factory=dict)
    ddls: list[Change] = field(default_factory=list)
    ts: int = 0
    seq: int = 0
    next_id: int = 200

    def __post_init__(self) -> None:
        for number, schema in ((1, SHOP), (2, SHOP), (3, CREW)):
            self.tables[number] = Table(schema, f"s{schema}", f"t{number}", number)
        self.tables[50] = Table(SHOP, "s10", "parted", 50, partitions=(51, 52))

    def write(self, table: Table, part: int, span: int) -> None:
        """A row, which may share its transaction with the one before."""
        owner = (table.physical[part % len(table.physical)], span % self.spans)
        self.seq += 1
        row = Row(self.ts, self.seq, owner, table.id, table.schema_id, self.versions[table.id])
        self.rows.setdefault(owner, []).append(row)

    def alter(self, receiver: int, event: DdlEvent | None) -> None:
        assert event is not None
        self.ts += 1
        self.seq += 1
        change = Change(Key(self.ts, self.seq), receiver, event, self._touches(receiver, event))
        self.ddls.append(change)
        self.ts += 1

    def _touches(self, receiver: int, event: DdlEvent) -> frozenset[int]:
        if not ddl.is_replicated(event.type):
            return frozenset()
        ids = {table.table_id for table in event.added}
        for scope in (event.blocked, event.dropped):
            if scope is not None and scope.kind == NORMAL:
                ids |= set(scope.table_ids)
            elif scope is not None:
                inside = [t for t in self.tables.values() if scope.kind == ALL or t.schema_id == scope.schema_id]
                ids |= {TRIGGER, *(number for table in inside for number in table.physical)}
        if event.blocked is None and event.tables and not event.not_sync:
            ids.add(receiver)
        return frozenset(ids)

    def begin(self, table: Table) -> None:
        self.tables[table.id] = table
        self.versions[table.id] = self.ts - 1

    def new_id(self) -> int:
        self.next_id += 1
        return self.next_id


# -- DDLs: each takes a source and one of its tables -----------------------------------------------------------------


def add_column(source: Source, table: Table) -> None:
    event = ddl_scope.alter_table(ALTERS["add column"], table, "ALTER TABLE `t` ADD COLUMN `c` INT")
    source.alter(table.physical[0], event)
    source.begin(table)


def ignored_alter(source: Source, table: Table) -> None:
    event = ddl_scope.alter_table(ALTERS["add column"], table, "ALTER TABLE `t` ADD COLUMN `c` INT")
    assert event is not None
    source.alter(table.physical[0], replace(event, not_sync=True))


def create(source: Source, table: Table) -> None:
    new = replace(table, id=source.new_id(), name=f"t{source.next_id}", partitions=())
    source.alter(TRIGGER, ddl_scope.create_table(new, "CREATE TABLE `t` (`a` INT)"))
    source.begin(new)


def create_like(source: Source, table: Table) -> None:
    """In the other database, with a definition that must be the one of before."""
    schema = SHOP + CREW - table.schema_id
    new = replace(table, id=source.new_id(), name=f"t{source.next_id}", partitions=(), schema_id=schema)
    new = replace(new, schema=f"s{schema}")
    source.alter(TRIGGER, ddl_scope.create_table(new, "CREATE TABLE `t` LIKE `u`", like=table))
    source.begin(new)


def drop_and_create(source: Source, table: Table) -> None:
    """Another table gets the name at once."""
    drop(source, table)
    new = replace(table, id=source.new_id(), partitions=())
    source.alter(TRIGGER, ddl_scope.create_table(new, "CREATE TABLE `t` (`a` INT)"))
    source.begin(new)


def drop(source: Source, table: Table) -> None:
    source.alter(TRIGGER, ddl_scope.drop_table(table))
    del source.tables[table.id]


def truncate(source: Source, table: Table) -> None:
    parts = tuple(source.new_id() for _ in table.partitions)
    after = replace(table, partitions=parts) if parts else replace(table, id=source.new_id())
    source.alter(TRIGGER, ddl_scope.truncate_table(table, after, "TRUNCATE TABLE `t`"))
    del source.tables[table.id]
    source.begin(after)


def rename(source: Source, table: Table) -> None:
    """To the other database."""
    schema = SHOP + CREW - table.schema_id
    after = replace(table, schema_id=schema, schema=f"s{schema}")
    source.alter(TRIGGER, ddl_scope.rename_table(table, after))
    source.begin(after)


def swap(source: Source, table: Table) -> None:
    other = source.tables[max(source.tables)]
    pairs = [(table, replace(table, name=other.name)), (other, replace(other, name=table.name))]
    source.alter(TRIGGER, ddl_scope.rename_tables(pairs if other.id != table.id else pairs[:1]))
    for _, after in pairs:
        source.begin(after)


def database(source: Source, table: Table) -> None:
    source.alter(TRIGGER, ddl_scope.alter_database_charset(table.schema_id, table.schema, "ALTER DATABASE"))


def drop_database(source: Source, table: Table) -> None:
    source.alter(TRIGGER, ddl_scope.drop_database(table.schema_id, table.schema, "DROP DATABASE"))
    for other in [other for other in source.tables.values() if other.schema_id == table.schema_id]:
        del source.tables[other.id]
    create(source, replace(table, schema_id=CREW, schema="s20"))  # so that there always is a table


def new_database(source: Source, table: Table) -> None:
    source.alter(TRIGGER, ddl_scope.create_database(99, "other", "CREATE DATABASE `other`"))


def drop_other(source: Source, table: Table) -> None:
    source.alter(TRIGGER, ddl_scope.drop_database(99, "other", "DROP DATABASE `other`"))


def view(source: Source, table: Table) -> None:
    source.alter(TRIGGER, ddl_scope.create_view(replace(table, id=999, partitions=()), "CREATE VIEW `v` AS SELECT 1"))


def without_scope(source: Source, table: Table) -> None:
    after = TableAfter(table.schema, table.name, table.id)
    source.alter(table.physical[0], DdlEvent(ALTERS["ttl"], "ALTER TABLE `t` TTL", table.schema_id, tables=(after,)))


def sequence(source: Source, table: Table) -> None:
    source.alter(TRIGGER, DdlEvent(34, "CREATE SEQUENCE `s`", table.schema_id))


Alter = Callable[[Source, Table], None]
DDLS: list[Alter] = [
    add_column, add_column, ignored_alter, create, create, create_like, drop_and_create, drop, truncate, truncate,
    rename, rename, swap, database, database, drop_database, new_database, drop_other, view, without_scope, sequence,
]  # fmt: skip


@dataclass
class Delivery:
    """What of the source has been handed out, within what a source owes."""

    source: Source
    handed: Counter[Dispatcher] = field(default_factory=Counter)
    ddls: dict[Key, Change] = field(default_factory=dict)
    resolved: int = 0

    def next_row(self, owner: Dispatcher) -> Row | None:
        """The next row of a dispatcher, if all DDLs below it that touch it have come, and other spans are as far."""
        rows = self.source.rows.get(owner, [])[self.handed[owner] :]
        if not rows or any(c.key.ts < rows[0].ts and owner[0] in c.touches for c in self.missing()):
            return None
        if any(row.owner[0] == owner[0] and row.seq < rows[0].seq for row in self.left()):
            return None
        self.handed[owner] += 1
        return rows[0]

    def missing(self) -> list[Change]:
        return [change for change in self.source.ddls if change.key not in self.ddls]

    def next_ddl(self, skip: int) -> Change | None:
        """The next DDL, or a later one: partitions of a source need not keep pace."""
        missing = self.missing()
        if not missing:
            return None
        change = missing[skip % len(missing)]
        self.ddls[change.key] = change
        return change

    def left(self) -> list[Row]:
        """The next row of each dispatcher."""
        return [rows[self.handed[o]] for o, rows in self.source.rows.items() if self.handed[o] < len(rows)]

    def resolvable(self) -> int:
        left = [row.ts for row in self.left()]
        return min([self.source.ts, *left, *(change.key.ts for change in self.missing())]) - 1


class DdlMachine(RuleBasedStateMachine):
    @initialize(spans=st.sampled_from([1, 1, 2]), shared=st.booleans(), size=st.sampled_from(SPOOLS),
                can_hold=st.booleans())  # fmt: skip
    def start(self, spans: int, shared: bool, size: int, can_hold: bool) -> None:
        self.source = Source(spans)
        self.delivery = Delivery(self.source)
        self.ledger = Ledger(replace(LIMITS, spool_max_bytes=size), shared_lanes=shared, spans=spans)
        self.ledger.reading.expansion = 1.0  # this source knows how many bytes its rows will occupy
        self.can_hold = can_hold  # whether it can leave tables out
        self.now, self.batch, self.checkpoint = 0.0, 0, 0
        self.accepted: dict[Dispatcher, list[Row]] = {}
        self.durable: dict[Dispatcher, int] = {}
        self.accepted_at: dict[int, float] = {}
        self.planned: set[tuple[Dispatcher, int]] = set()
        self.under_way: dict[int, Round] = {}
        self.writing: list[Write] = []
        self.written: dict[Key, Write] = {}
        self.over: set[Key] = set()
        self.moves = 0

    # -- the source ----------------------------------------------------------------------------------------------

    @rule(history=st.lists(st.tuples(*[st.integers(0, 5)] * 4, st.sampled_from(DDLS)), min_size=3, max_size=10))
    def the_source_goes_on(self, history: list[tuple[int, int, int, int, Alter]]) -> None:
        """Rows, some in one transaction, and now and then a DDL."""
        for pick, part, span, kind, alter in history:
            tables = list(self.source.tables.values())
            table = tables[pick % len(tables)]
            if kind == 5 and (len(tables) > 1 or alter is not drop):
                alter(self.source, table)
            else:
                self.source.ts += kind > 0 or self.source.ts == 0
                self.source.write(table, part, span)

    # -- delivery ------------------------------------------------------------------------------------------------

    @rule(shares=st.lists(st.integers(0, 3), min_size=5, max_size=5), skips=st.lists(st.integers(0, 2), max_size=4),
          lag=st.integers(0, 3), again=st.integers(0, 9))  # fmt: skip
    def a_batch_comes(self, shares: list[int], skips: list[int], lag: int, again: int) -> None:
        """DDLs, some of them early; of each dispatcher a few rows or all (3); a resolved mark that may lag.

        Now and then DDLs or rows come again.
        """
        if not self._may_read():
            return
        repeated = list(self.delivery.ddls.values())[-3:] if again in (3, 7) else []
        changes = [self.delivery.next_ddl(skip) for skip in skips]
        rows = self._fitting(lambda at: shares[at % len(shares)])
        resolved = self.delivery.resolvable() - lag if lag < 3 else 0
        self._accept(rows, [c for c in [*changes, *repeated] if c], resolved, again == 8)

    def _may_read(self) -> bool:
        """Whether a wake has gone out."""
        return self.ledger.spool.may_wake() or self.ledger.reading.may_exceed_marks

    def _fitting(self, share_of: Callable[[int], int]) -> list[Row]:
        """Of each dispatcher a few rows or all (3), but no more than fits, and nothing of held tables."""
        reading, rows = self.ledger.reading, list[Row]()
        held, most = reading.held_tables if self.can_hold else set[int](), reading.limit_bytes // ROW_BYTES
        if not most and (reading.room_bytes is None or reading.room_bytes >= ROW_BYTES):
            most = 1  # the least that it can hand out
        for at, owner in enumerate(sorted(self.source.rows)):
            share = share_of(at)
            for _ in range(share if share < 3 else 99):
                if owner[0] in held or len(rows) == most or (row := self.delivery.next_row(owner)) is None:
                    break
                rows.append(row)
        return rows

    def _all_comes(self) -> None:
        """Everything that is left, batch by batch, while the store works; the spool is made larger if it says so."""
        for _ in range(10 + 4 * sum(map(len, self.source.rows.values())) + 2 * len(self.source.ddls)):
            if self.batch and not self.delivery.left() and not self.delivery.missing():
                return
            if self._may_read():
                changes = self.delivery.missing()
                self.delivery.ddls.update({change.key: change for change in changes})
                rows = self._fitting(lambda at: 3)
                self._accept(rows, changes, self.delivery.resolvable(), again=False)
            if not self._may_read() or not rows:
                self._run()
                self._enlarge_if_too_small()
        raise AssertionError("reading stands still")

    def _enlarge_if_too_small(self) -> None:
        """As somebody does who reads the error. It comes only if nothing else can help."""
        reading, spool = self.ledger.reading, self.ledger.spool
        if (block := reading.too_small_for) is not None:
            assert self.ledger.only_frozen
            assert self.delivery.resolved < block.ts - 1
            assert block.key == min(key for key in self.delivery.ddls if key not in self.over)
            assert reading.needed_bytes > spool.occupied_bytes >= spool.max_bytes
            spool.max_bytes = reading.needed_bytes
            assert self._may_read()

    def _accept(self, rows: list[Row], changes: list[Change], resolved: int, again: bool) -> None:
        self.batch += 1
        self.delivery.resolved = max(self.delivery.resolved, resolved)
        before = [row for handed in self.accepted.values() for row in handed[-1:]] if again else []
        items = pa.Table.from_pylist(
            [
                *(_item(row, f"{self.batch}-again", at) for at, row in enumerate(before)),
                *(_item(row, f"{self.batch}", at) for at, row in enumerate(rows)),
            ],
            schema=ITEMS,
        )
        ddls = [Ddl(change.key, change.receiver, change.event) for change in changes]
        found = self.ledger.accept(self.batch, items, self.now, f"end-{self.batch}", max(resolved, 0), ddls)
        assert (found.items, found.duplicates) == (len(rows), 3 * len(before))
        for row in rows:
            self.accepted.setdefault(row.owner, []).append(row)
            self.accepted_at[row.seq] = self.now
        self.over.update(change.key for change in changes if not ddl.is_replicated(change.event.type))
        self.the_spool_keeps_its_size()

    @rule(pick=st.integers(0, 5), back=st.integers(0, 2))
    def a_ddl_comes_too_late(self, pick: int, back: int) -> None:
        """A DDL that was never handed out, at or below a row: refused if the row is in a file, and nothing changes.

        A table has rows at most up to the resolved mark, so those above it are of interest.
        """
        last = {owner: max(row.ts for row in rows) for owner, rows in self.accepted.items()}
        owners = sorted(owner for owner, ts in last.items() if ts - back > self.delivery.resolved)
        if not owners:
            return
        owner = owners[pick % len(owners)]
        ts = last[owner] - back
        scope = Scope(NORMAL, (owner[0],)) if pick % 2 else Scope(ALL)
        touched = {other for other in self.accepted if other[0] == owner[0] or scope.kind == ALL}
        by_seq = {row.seq: row for rows in self.accepted.values() for row in rows}
        if any(planned in touched and by_seq[seq].ts >= ts for planned, seq in self.planned):
            late = Ddl(Key(ts, 10**6), owner[0], DdlEvent(ALTERS["ttl"], "ALTER", 0, blocked=scope))
            with pytest.raises(BadEvents, match=r"comes too late: changes of .* have landed"):
                self.ledger.accept(10**6, ITEMS.empty_table(), self.now, None, 0, [late])

    # -- the store -----------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.0, 0.0, 0.1, 2.0, 6.0]))
    def all_that_is_due_is_planned(self, seconds: float) -> None:
        self.now += seconds
        self._schema_writes()
        while self._plan() is not None:
            pass
        if not self.ledger.shared_lanes:  # there a queue may also wait for an older version
            self._check_that_nothing_is_due()
        self._schema_writes()

    def _plan(self) -> Round | None:
        round_ = self.ledger.plan(self.now, 0)
        if round_ is not None:
            if round_.attempt == 0:
                for row in self._rows(round_, np.ones(len(round_), bool)):
                    self._check_planned(row)
            self.under_way[round_.id] = round_
        return round_

    def _check_planned(self, row: Row) -> None:
        unfinished = [c for key, c in self.delivery.ddls.items() if key not in self.over and key.ts <= row.ts]
        assert not [c for c in unfinished if row.owner[0] in c.touches], "nothing behind a marker is planned"
        assert (row.owner, row.seq) not in self.planned
        self.planned.add((row.owner, row.seq))

    def _check_that_nothing_is_due(self) -> None:
        """No plan means: what may land is younger than the age bound and stands before no marker."""
        for owner, rows in self.accepted.items():
            head = next((row for row in rows if (owner, row.seq) not in self.planned), None)
            if head is None or self._is_busy(owner):
                continue
            markers = [
                key.ts for key, c in self.delivery.ddls.items() if key not in self.over and owner[0] in c.touches
            ]
            if all(ts > head.ts for ts in markers):
                assert not markers, "what stands before a marker lands at once"
                assert self.now - self.accepted_at[head.seq] < LIMITS.age_bound_s + 1e-6, "by age, nothing is forgotten"

    def _is_busy(self, owner: Dispatcher) -> bool:
        queues = self.ledger.queues
        number = queues.find(np.array([owner[0]]), np.array([owner[1]]))
        return bool(queues.lanes.busy[queues.dispatchers.lane[number]][0])

    def _rows(self, round_: Round, which: Any) -> list[Row]:
        queues, slots = self.ledger.queues, round_.slots[np.repeat(which, np.diff(round_.bounds))]
        ds, numbers = queues.dispatchers, queues.items.dispatcher[slots]
        owners = zip(ds.table_id[numbers].tolist(), ds.span[numbers].tolist(), strict=True)
        by_seq = {row.seq: row for rows in self.accepted.values() for row in rows}
        found = [by_seq[seq] for seq in queues.items.first_seq[slots].tolist()]
        assert [row.owner for row in found] == list(owners)
        return found

    @precondition(lambda self: self.under_way)
    @rule(pick=st.integers(0, 5), most=st.integers(0, 3))
    def a_round_answers(self, pick: int, most: int) -> None:
        """In any order; of each lane the first few files have landed, or all (3)."""
        rounds = sorted(self.under_way)
        self._answer(self.under_way[rounds[pick % len(rounds)]], most)

    def _answer(self, round_: Round, most: int) -> None:
        seen, landed = Counter[int](), []
        for lane in round_.lane.tolist():
            seen[lane] += 1
            landed.append(seen[lane] <= most or most == 3)
        rows = self._rows(round_, np.array(landed))
        self.ledger.receive(round_, np.array(landed), self.now, 0.1)
        del self.under_way[round_.id]
        for row in rows:
            at = self.durable.get(row.owner, 0)
            assert self.source.rows[row.owner][at] == row, "rows of a dispatcher land in order"
            self.durable[row.owner] = at + 1

    def _schema_writes(self) -> list[Write]:
        writes = self.ledger.schema_writes(self.now)
        for write in writes:
            self._check_written(self.delivery.ddls[write.key], write)
            self.written[write.key] = write
        self.writing += writes
        self._check_that_nobody_waits_without_need()
        return writes

    def _check_that_nobody_waits_without_need(self) -> None:
        """All that can still come is above the resolved mark, so a DDL there knows all that is before it."""
        unfinished = [change for key, change in self.delivery.ddls.items() if key not in self.over]
        for change in unfinished:
            earlier = [other for other in unfinished if other.key < change.key and other.may_wait_for(change)]
            if change.key not in self.written and change.key.ts <= self.delivery.resolved + 1 and not earlier:
                assert not self._is_drained(change), "who has drained and meets no earlier DDL is written"

    def _is_drained(self, change: Change) -> bool:
        owners = [owner for owner in self.source.rows if owner[0] in change.touches]
        below = {owner: sum(row.ts < change.key.ts for row in self.source.rows[owner]) for owner in owners}
        return all(self.durable.get(owner, 0) == count for owner, count in below.items())

    def _check_written(self, change: Change, write: Write) -> None:
        assert write.key not in self.written, "told once"
        for owner, rows in self.source.rows.items():
            if owner[0] in change.touches:
                below = sum(row.ts < change.key.ts for row in rows)
                assert self.durable.get(owner, 0) == below, "all below T is durable, nothing above is"
                assert sum(planned == owner for planned, _ in self.planned) == below
        earlier = [c for c in self.source.ddls if c.key < change.key and c.key not in self.over]
        assert not [c for c in earlier if c.meets(change)], "DDLs that touch each other in commit-ts order"
        under_way = [self.delivery.ddls[key] for key in self.written if key not in self.over]
        assert not [c for c in under_way if c.meets(change)], "and never together"

    @precondition(lambda self: self.writing)
    @rule(pick=st.integers(0, 5), repeats=st.integers(1, 2))
    def a_schema_write_answers(self, pick: int, repeats: int) -> None:
        """One that fails stays and is tried again; the answer may come twice."""
        write = self.writing.pop(pick % len(self.writing))
        over = [block for _ in range(repeats) for block in self.ledger.schema_written(write)]
        assert [block.key for block in over] == [write.key], "over at once: nothing else holds it up"
        self.over.add(write.key)

    # -- what must hold ------------------------------------------------------------------------------------------

    @invariant()
    def the_checkpoint_passes_nothing_unfinished(self) -> None:
        unfinished = [key.ts for key in self.delivery.ddls if key not in self.over]
        pending = [rows[self.durable.get(o, 0)].ts for o, rows in self.source.rows.items() if self._is_pending(o)]
        found = self.ledger.checkpoint()
        self.checkpoint = max(
            self.checkpoint, min([self.delivery.resolved, *(ts - 1 for ts in [*unfinished, *pending])])
        )
        assert found == self.checkpoint

    def _is_pending(self, owner: Dispatcher) -> bool:
        return self.durable.get(owner, 0) < len(self.accepted.get(owner, ()))

    @invariant()
    def the_spool_keeps_its_size(self) -> None:
        """But for one row: while a DDL lacks changes, the next one comes although it does not fit."""
        spool = self.ledger.spool
        assert spool.occupied_bytes < max(spool.max_bytes, 1) + ROW_BYTES
        if self.ledger.reading.lacking is None and spool.occupied_bytes > spool.max_bytes:
            assert not self._may_read(), "from then on it only becomes smaller"

    @invariant()
    def what_flies_is_counted_once(self) -> None:
        ds = self.ledger.queues.dispatchers
        flying = len(self.planned) - sum(self.durable.values())
        assert int(ds.in_flight[: ds.size].sum()) == self.ledger.accounts.in_flight == flying

    @rule(chance=st.integers(0, 3))
    def the_store_works_for_a_while(self, chance: int) -> None:
        """Then nothing is left, or all that is left waits for changes that have not come."""
        if chance:
            return
        self._run()
        if not self.ledger.idle:
            assert self.ledger.only_frozen
            assert self.ledger.reading.misses_changes
            self._enlarge_if_too_small()
            assert self._may_read(), "what is missing may come"

    def _run(self) -> None:
        for round_ in list(self.under_way.values()):
            self._answer(round_, 3)
        idle_steps, most = 0, 20 + 6 * (sum(map(len, self.accepted.values())) + len(self.delivery.ddls))
        for _ in range(most):
            self.now += 0.5
            while self.writing:
                self.a_schema_write_answers(0, 1)
            planned = self._plan()
            if planned is not None:
                self._answer(planned, 3)
            moved = self._move()
            idle_steps = 0 if self._schema_writes() or planned is not None or moved else idle_steps + 1
            if idle_steps > 15:  # longer than any age bound or pause
                return
        assert self.ledger.idle, "bounded steps"

    def _move(self) -> bool:
        """Copy frozen rows together that keep nearly empty segments."""
        if (move := self.ledger.remains()) is None:
            return False
        self.moves += 1
        self.ledger.moved(move, [Copy(f"move-{self.moves}", 1, 100 * at) for at in range(len(move.slots))])
        return True

    def teardown(self) -> None:
        if not hasattr(self, "ledger"):
            return
        self.ledger.planner.closing = self.batch % 2 == 0
        self._all_comes()
        self.ledger.source_ended()
        self._run()
        assert self.ledger.idle, "no deadlock"
        assert self.durable == {owner: len(rows) for owner, rows in self.source.rows.items()}
        assert self.over == {change.key for change in self.source.ddls}
        self._check_the_end()

    def _check_the_end(self) -> None:
        ledger, blocking = self.ledger, self.ledger.blocking
        ds = ledger.queues.dispatchers
        assert ledger.spool.occupied_bytes == ledger.planner.planned_bytes == 0
        assert (ds.frozen_ts[: ds.size] == NOTHING_PENDING).all()
        assert not blocking.maintainer.barriers
        assert blocking.waits_for_nothing
        assert ledger.checkpoint() == ledger.progress.resolved_ts
        assert ledger.progress.position == f"end-{self.batch}"
        for table in self.source.tables.values():
            for row in [row for number in table.physical for row in self.accepted.get((number, 0), [])[:1]]:
                number = int(ledger.queues.find(np.array([row.owner[0]]), np.array([0]))[0])
                assert ds.schema_id[number] == table.schema_id, "a table is in the database that DDLs moved it to"


def _item(row: Row, segment: str, at: int) -> dict[str, object]:
    return {
        "kind": "rows", "table_id": row.owner[0], "span": row.owner[1], "logical_table_id": row.logical,
        "schema_id": row.schema_id, "schema_name": f"s{row.schema_id}", "table_name": f"t{row.logical}",
        "version": row.version, "layout": 7, "first_ts": row.ts, "first_seq": row.seq, "last_ts": row.ts,
        "last_seq": row.seq, "rows": 3, "tier": 1, "segment": segment, "offset": 100 * at, "length": 100,
        "checksum": 0,
    }  # fmt: skip


TestDdlModel = DdlMachine.TestCase
TestDdlModel.settings = settings(
    deadline=None,
    print_blob=True,
    max_examples=3 * settings().max_examples,
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
