"""DDLs at the dispatchers: who meets whom, drain and freeze, the table trigger, and what a wide one costs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidegate.control.barrier import Key, Write
from tidegate.control.blocking import Blocking, Ddl
from tidegate.control.ledger import Ledger
from tidegate.control.limits import Limits
from tidegate.control.markers import DRAINING, WRITING, Block
from tidegate.control.queues import Queues
from tidegate.control.rounds import Round
from tidegate.errors import BadEvents
from tidegate.executor.rows import ITEMS
from tidegate.format.ddl import scope as ddl_scope
from tidegate.format.ddl.events import ALL, ALTERS, DB, NORMAL, DdlEvent, Scope, TableAfter, should_block
from tidegate.format.ddl.scope import Table

LIMITS = Limits(file_size_bytes=1_000, flush_interval_s=5.0, spool_max_bytes=1 << 30)
SHOP, CREW = 10, 20


def table(number: int, schema_id: int = SHOP, **changes: Any) -> Table:
    return replace(Table(schema_id, f"s{schema_id}", f"t{number}", number), **changes)


def scoped(blocked: Scope | None, **changes: Any) -> DdlEvent:
    after = (TableAfter("s10", "t", 1),)
    return replace(DdlEvent(ALTERS["ttl"], "ALTER TABLE `t` TTL", SHOP, blocked, tables=after), **changes)


def alter(number: int, schema_id: int = SHOP) -> DdlEvent:
    return must(ddl_scope.alter_table(ALTERS["add column"], table(number, schema_id), "ALTER TABLE `t` ADD `c` INT"))


def create(number: int) -> DdlEvent:
    return must(ddl_scope.create_table(table(number), "CREATE TABLE `t` (`a` INT)"))


def charset(schema_id: int = SHOP) -> DdlEvent:
    return ddl_scope.alter_database_charset(schema_id, f"s{schema_id}", "ALTER DATABASE")


def view() -> DdlEvent:
    return must(ddl_scope.create_view(table(999), "CREATE VIEW `v` AS SELECT 1"))


def must(event: DdlEvent | None) -> DdlEvent:
    assert event is not None
    return event


def normal(*ids: int) -> Scope:
    return Scope(NORMAL, ids)


@dataclass
class Feed:
    """A ledger whose store does what the test says."""

    spans: int = 1
    limits: Limits = LIMITS
    now: float = 0.0
    batches: int = 0
    ledger: Ledger = field(init=False)

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.limits, spans=self.spans)

    def come(self, *rows: dict[str, Any], ddls: Iterable[tuple[int, DdlEvent]] = (), resolved: int = 0) -> None:
        self.batches += 1
        laid = [{**row, "segment": f"{self.batches}", "offset": 100 * at} for at, row in enumerate(rows)]
        items = pa.Table.from_pylist(laid, schema=ITEMS)
        found = [Ddl(Key(ts, 0), 0, event) for ts, event in ddls]
        self.ledger.accept(self.batches, items, self.now, f"end-{self.batches}", resolved, found)

    def plan(self) -> Round | None:
        return self.ledger.plan(self.now, 0)

    def planned(self) -> list[int]:
        """The commit-ts that the next round lands; it stays under way."""
        round_ = self.plan()
        return self.ts_of(round_) if round_ is not None else []

    def ts_of(self, round_: Round) -> list[int]:
        return sorted(self.ledger.queues.items.first_ts[round_.slots].tolist())

    def land(self) -> list[tuple[str, list[int]]]:
        """Land all that is due; the reason and the commit-ts of each round."""
        found = []
        while (round_ := self.plan()) is not None:
            found.append((str(round_.reason[0]), self.ts_of(round_)))
            self.answer(round_)
        return found

    def answer(self, round_: Round, landed: bool = True) -> None:
        self.ledger.receive(round_, np.full(len(round_), landed), self.now, 0.1)

    def due(self) -> list[Write]:
        return self.ledger.schema_writes(self.now)

    def write(self, *writes: Write) -> list[int]:
        return [block.ts for write in writes for block in self.ledger.schema_written(write)]

    def block(self, ts: int) -> Block:
        return self.ledger.blocking.blocks[Key(ts, 0)]


def row(ts: int, number: int = 1, schema_id: int = SHOP, **changes: Any) -> dict[str, Any]:
    return {
        "kind": "rows", "table_id": number, "span": 0, "logical_table_id": number, "schema_id": schema_id,
        "schema_name": f"s{schema_id}", "table_name": f"t{number}", "version": 1, "layout": 7, "first_ts": ts,
        "first_seq": ts, "last_ts": ts, "last_seq": ts, "rows": 1, "tier": 1, "length": 100, "checksum": 0, **changes,
    }  # fmt: skip


# -- the behaviour matrix --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("blocked", "complete", "expected"),
    [
        (None, True, False),
        (None, False, False),
        (normal(0), True, False),
        (normal(1), True, False),
        (normal(1), False, True),
        (normal(1, 2), True, True),
        (normal(1, 2), False, True),
        (Scope(DB, schema_id=1), True, True),
        (Scope(DB, schema_id=1), False, True),
        (Scope(ALL), True, True),
        (Scope(ALL), False, True),
    ],
)
def test_who_must_meet_others(blocked: Scope | None, complete: bool, expected: bool) -> None:
    assert should_block(scoped(blocked), complete) is expected


@pytest.mark.parametrize(
    ("event", "spans", "blocking", "members", "writer"),
    [
        (scoped(None), 1, False, {(7, 0)}, 7),
        (scoped(None), 2, False, {(7, 0), (7, 1)}, 7),
        (scoped(None, not_sync=True), 1, False, set(), 7),
        (scoped(None, tables=()), 1, False, set(), 7),
        (scoped(normal()), 2, False, set(), 7),
        (scoped(normal(7)), 1, False, {(7, 0)}, 7),
        (scoped(normal(7), not_sync=True), 1, False, {(7, 0)}, 7),
        (scoped(normal(7)), 2, True, {(7, 0), (7, 1)}, 7),
        (scoped(normal(7), not_sync=True), 2, True, {(7, 0), (7, 1)}, 7),
        (scoped(normal(0)), 2, False, {(0, 0)}, 7),
        (scoped(normal(5, 7)), 1, True, {(5, 0), (7, 0)}, 7),
        (scoped(normal(5, 0)), 1, True, {(5, 0), (0, 0)}, 0),
        (scoped(normal(5, 0)), 2, True, {(5, 0), (5, 1), (0, 0)}, 0),
        (scoped(Scope(DB, schema_id=SHOP)), 1, True, {(0, 0)}, 0),
        (scoped(Scope(ALL)), 2, True, {(0, 0)}, 0),
    ],
)
def test_each_scope_has_its_markers_its_rule_and_its_writer(
    event: DdlEvent, spans: int, blocking: bool, members: set[tuple[int, int]], writer: int
) -> None:
    held = Blocking(Queues(), spans)
    (block,) = held.arrive([Ddl(Key(10, 0), 7, event)], 1, 0.0)
    ds = held.queues.dispatchers
    ids = zip(ds.table_id[block.members].tolist(), ds.span[block.members].tolist(), strict=True)
    assert (set(ids), block.blocking) == (members, blocking)
    assert held.advance(8, 0.0) == [], "the resolved mark must reach T - 1"
    writes = held.advance(9, 0.0)
    assert [int(ds.table_id[write.dispatcher]) for write in writes] == [writer]
    assert held.advance(9, 0.0) == [], "told once"
    assert held.written(writes[0]) == [block]
    assert held.written(writes[0]) == []
    assert not held.blocks


def test_the_last_span_to_drain_writes_when_the_trigger_takes_no_part() -> None:
    feed = Feed(spans=2)
    feed.come(row(1), row(2, span=1), ddls=[(5, alter(1))], resolved=9)
    feed.land()
    assert [write.dispatcher for write in feed.due()] == feed.block(5).members[-1:].tolist()


def test_the_span_that_lags_writes() -> None:
    feed = Feed(spans=2, limits=replace(LIMITS, round_tables=1))
    feed.come(row(1), row(2, span=1), ddls=[(5, alter(1))], resolved=9)
    lagging, other = feed.plan(), feed.plan()
    assert lagging is not None
    assert other is not None
    feed.answer(other)
    assert feed.due() == []
    feed.answer(lagging)
    assert [write.dispatcher for write in feed.due()] == [int(lagging.dispatcher[0])]


def test_types_outside_the_list_are_skipped_and_counted_once() -> None:
    feed = Feed()
    sequence = DdlEvent(34, "CREATE SEQUENCE `s`", SHOP)
    for _ in range(2):
        feed.come(ddls=[(5, sequence)], resolved=9)
    assert feed.ledger.blocking.skipped == 1
    assert feed.ledger.idle
    assert feed.ledger.checkpoint() == 9


def test_without_a_scope_and_without_a_file_nothing_drains() -> None:
    feed = Feed()
    feed.come(row(1, number=0, logical_table_id=0), ddls=[(5, scoped(None, not_sync=True))], resolved=9)
    assert feed.land() == [], "the row waits for its age"
    assert feed.write(*feed.due()) == [5]


# -- drain and freeze ------------------------------------------------------------------------------------------------


def test_what_stands_before_the_marker_lands_at_once_and_nothing_behind_it_is_planned() -> None:
    feed = Feed()
    feed.come(row(1), row(6, version=5), row(7, 2), ddls=[(5, alter(1))], resolved=9)
    assert feed.land() == [("ddl", [1])]
    feed.now = 100.0
    assert feed.land() == [("interval", [7])], "other tables never stop"
    assert feed.write(*feed.due()) == [5]
    assert feed.land() == [("interval", [6])], "what came of age behind the marker is not forgotten"
    assert feed.ledger.idle


def test_what_grew_large_behind_the_marker_lands_when_it_is_over() -> None:
    feed = Feed()
    feed.come(*(row(ts, version=5) for ts in range(6, 20)), ddls=[(5, alter(1))], resolved=30)
    assert feed.land() == []
    feed.write(*feed.due())
    assert [reason for reason, _ in feed.land()] == ["size"]


def test_a_drain_waits_for_what_is_under_way_and_for_what_failed() -> None:
    feed = Feed()
    feed.come(row(1), ddls=[(5, alter(1))], resolved=9)
    round_ = feed.plan()
    assert round_ is not None
    assert feed.due() == []
    feed.answer(round_, landed=False)
    assert feed.due() == []
    feed.now = 60.0
    assert feed.land() == [("error", [1])]
    assert feed.write(*feed.due()) == [5]


def test_more_than_one_round_may_take_stands_before_the_marker_and_lands_at_once() -> None:
    feed = Feed(limits=replace(LIMITS, file_size_bytes=200, round_bytes=200))
    feed.come(*(row(ts) for ts in range(1, 11)), ddls=[(11, alter(1))], resolved=20)
    rounds = feed.land()
    assert {reason for reason, _ in rounds} == {"ddl"}
    assert len(rounds) > 1
    assert [ts for _, landed in rounds for ts in landed] == list(range(1, 11))


def test_two_versions_before_a_wide_marker_land_one_after_the_other_at_once() -> None:
    feed = Feed()
    feed.come(row(1), row(3, version=2), ddls=[(5, view())], resolved=9)
    assert feed.land() == [("ddl", [1]), ("ddl", [3])]


def test_rows_that_lag_behind_the_ddl_are_waited_for_and_land_at_once() -> None:
    feed = Feed()
    feed.come(ddls=[(5, alter(1))], resolved=2)
    assert feed.due() == []
    feed.come(row(3), row(6, version=5), resolved=3)
    assert feed.land() == [("ddl", [3])]
    assert feed.due() == [], "a change of commit-ts 4 may still come"
    feed.come(resolved=4)
    assert feed.write(*feed.due()) == [5]


def test_a_marker_is_acknowledged_when_all_has_landed_and_stays_so() -> None:
    feed = Feed()
    feed.come(row(1), ddls=[(5, alter(1))], resolved=9)
    found = []
    for step in (feed.due, feed.land, feed.due, lambda: feed.write(Write(Key(5, 0), 0)), feed.ledger.checkpoint):
        step()
        block = feed.ledger.blocking.blocks.get(Key(5, 0))
        found.append(block.stage if block is not None else "over")
    assert found == [DRAINING, DRAINING, WRITING, "over", "over"]


def test_ddls_of_one_table_follow_each_other() -> None:
    feed = Feed()
    rows = [row(1), row(6, version=5), row(9, version=8), row(12, version=11)]
    feed.come(*rows, ddls=[(11, alter(1)), (5, alter(1)), (8, alter(1))], resolved=20)
    seen = []
    for _ in range(3):
        seen += [ts for _, landed in feed.land() for ts in landed]
        seen += feed.write(*feed.due())
    assert seen == [1, 5, 6, 8, 9, 11]


def test_a_smaller_ddl_that_comes_later_goes_first() -> None:
    feed = Feed()
    feed.come(ddls=[(8, alter(1))], resolved=4)
    feed.come(ddls=[(5, alter(1))], resolved=9)
    assert [write.key.ts for write in feed.due()] == [5]
    assert feed.due() == []
    assert feed.write(Write(Key(5, 0), 0)) == [5]
    assert [write.key.ts for write in feed.due()] == [8]


def test_ddls_that_share_no_dispatcher_do_not_wait_for_each_other() -> None:
    feed = Feed()
    feed.come(row(1), ddls=[(5, alter(1)), (6, alter(2))], resolved=9)
    assert [write.key.ts for write in feed.due()] == [6]


def test_a_name_that_is_dropped_and_made_again_keeps_its_order() -> None:
    feed = Feed()
    dropped = must(ddl_scope.drop_table(table(1)))
    again = must(ddl_scope.create_table(table(2, name="t1"), "CREATE TABLE `t1` (`a` INT)"))
    feed.come(row(1), row(9, 2), ddls=[(5, dropped), (8, again)], resolved=20)
    assert feed.due() == []
    feed.land()
    assert feed.write(*feed.due()) == [5]
    feed.now = 100.0
    assert feed.land() == [], "rows of the new table wait for its schema file"
    assert feed.write(*feed.due()) == [8]
    assert feed.land() == [("interval", [9])]


def test_a_table_without_rows_keeps_the_order_of_its_ddls_with_those_of_its_database() -> None:
    feed = Feed()
    feed.come(row(1, 2), ddls=[(5, charset()), (6, alter(1)), (7, alter(3, CREW))], resolved=9)
    assert [write.key.ts for write in feed.due()] == [7]
    feed.land()
    assert [write.key.ts for write in feed.due()] == [5]
    feed.write(Write(Key(5, 0), feed.ledger.blocking.trigger_number))
    assert [write.key.ts for write in feed.due()] == [6]


def test_a_database_ddl_waits_for_earlier_ddls_of_its_tables_and_holds_later_ones() -> None:
    feed = Feed()
    feed.come(row(1), row(2, 2), ddls=[(4, alter(1)), (5, charset()), (6, alter(2))], resolved=9)
    feed.land()
    order = []
    while writes := feed.due():
        order += feed.write(*writes)
    assert order == [4, 5, 6]


def test_rows_from_the_future_do_not_move_a_table_out_of_a_database_that_drains() -> None:
    feed = Feed()
    moved = must(ddl_scope.rename_table(table(1), table(1, CREW)))
    feed.come(row(1), ddls=[(5, charset(SHOP))], resolved=3)
    feed.come(row(7), row(13, 1, CREW, version=12), ddls=[(12, moved)], resolved=20)
    assert feed.planned() == [1], "7 stands behind the database's marker"
    assert feed.due() == [], "and the database waits for 1"


def test_a_table_that_was_moved_freezes_with_its_new_database() -> None:
    feed = Feed()
    moved = must(ddl_scope.rename_table(table(1), table(1, CREW)))
    feed.come(row(1), row(6, 1, CREW, version=5), row(9, 1, CREW, version=5), ddls=[(5, moved)], resolved=5)
    feed.come(row(8, 2, CREW), ddls=[(8, charset(CREW))], resolved=7)
    feed.land()
    assert feed.write(*feed.due()) == [5]
    assert feed.land() == [("ddl", [6])]
    assert feed.write(*feed.due()) == [8]
    feed.now = 100.0
    assert sorted(ts for _, landed in feed.land() for ts in landed) == [8, 9]


def test_a_wide_marker_also_stands_before_tables_that_begin_later() -> None:
    feed = Feed()
    feed.come(row(1), ddls=[(5, view())], resolved=5)
    feed.come(row(6, 77), resolved=6)
    feed.now = 100.0
    assert feed.land() == [("ddl", [1])]
    feed.write(*feed.due())
    assert feed.land() == [("interval", [6])]


def test_a_chunk_on_both_sides_of_any_marker_of_its_table_is_refused() -> None:
    feed = Feed()
    feed.come(ddls=[(5, alter(1)), (10, alter(1))], resolved=0)
    feed.come(row(6, 2, last_ts=12, last_seq=12))
    with pytest.raises(BadEvents, match="a DDL of commit-ts 10 comes between"):
        feed.come(row(6, last_ts=12, last_seq=12))


# -- repeats, late and unclear DDLs ----------------------------------------------------------------------------------


def test_a_ddl_that_comes_again_while_it_drains_or_when_it_is_over_is_nothing() -> None:
    feed = Feed()
    feed.come(row(1), ddls=[(5, alter(1)), (5, alter(1))], resolved=9)
    feed.come(ddls=[(5, alter(1))])
    feed.land()
    assert feed.write(*feed.due()) == [5]
    feed.come(ddls=[(5, alter(1))])
    assert feed.due() == []
    assert feed.ledger.idle
    assert feed.ledger.checkpoint() == 9
    assert feed.ledger.progress.position == "end-3"


def test_a_ddl_behind_its_resolved_mark_is_refused() -> None:
    feed = Feed()
    feed.come(row(3), resolved=9)
    with pytest.raises(BadEvents, match=r"ALTER TABLE .* of commit-ts 5 follows the resolved mark 9"):
        feed.come(ddls=[(5, alter(1))])
    assert not feed.ledger.blocking.blocks


def test_two_ddls_under_one_key_are_refused() -> None:
    with pytest.raises(BadEvents, match="two DDLs have commit-ts 5 and seq 0"):
        Feed().come(ddls=[(5, alter(1)), (5, alter(2))])
    feed = Feed()
    feed.come(ddls=[(5, alter(1))])
    with pytest.raises(BadEvents, match="two DDLs have commit-ts 5 and seq 0"):
        feed.come(ddls=[(5, alter(2))])


# -- who waits for whom ----------------------------------------------------------------------------------------------


def drop(number: int, **changes: Any) -> DdlEvent:
    return must(ddl_scope.drop_table(table(number, **changes)))


def truncate(number: int, new: int) -> DdlEvent:
    return must(ddl_scope.truncate_table(table(number), table(new, name=f"t{number}"), "TRUNCATE TABLE `t`"))


def renamed(number: int, name: str, schema_id: int = SHOP, before: str = "") -> DdlEvent:
    was = table(number, name=before or f"t{number}")
    return must(ddl_scope.rename_table(was, replace(was, schema_id=schema_id, schema=f"s{schema_id}", name=name)))


def made(number: int, name: str, schema_id: int = SHOP, like: int | None = None) -> DdlEvent:
    like_table = table(like) if like is not None else None
    return must(ddl_scope.create_table(table(number, schema_id, name=name), "CREATE TABLE `t` (`a` INT)", like_table))


def made_database(schema_id: int, name: str) -> DdlEvent:
    return ddl_scope.create_database(schema_id, name, f"CREATE DATABASE `{name}`")


def dropped_database(schema_id: int) -> DdlEvent:
    return ddl_scope.drop_database(schema_id, f"s{schema_id}", "DROP DATABASE")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (made(7, "a"), made(8, "b")),
        (made(7, "a"), drop(1)),
        (drop(1), drop(2)),
        (truncate(1, 7), truncate(2, 8)),
        (truncate(1, 7), alter(2)),
        (renamed(1, "a"), renamed(2, "b")),
        (renamed(1, "a", CREW), made(8, "a")),
        (made(7, "a"), made(8, "a", CREW)),
        (made_database(30, "s30"), made(7, "a")),
        (made_database(30, "s30"), dropped_database(SHOP)),
        (dropped_database(SHOP), dropped_database(CREW)),
        (charset(SHOP), made(7, "a", CREW)),
        (charset(SHOP), alter(3, CREW)),
        (made(7, "a", CREW), charset(SHOP)),
    ],
)
def test_ddls_that_do_not_touch_each_other_are_written_together(first: DdlEvent, second: DdlEvent) -> None:
    feed = Feed()
    feed.come(row(1), row(2, 2), row(3, 3, CREW), ddls=[(5, first), (6, second)], resolved=9)
    feed.land()
    assert [write.key.ts for write in feed.due()] == [5, 6]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (drop(1), made(7, "t1")),
        (drop(1), made(7, "T1")),
        (made(7, "a"), drop(7, name="a")),
        (made(7, "a"), truncate(7, 8)),
        (truncate(1, 7), truncate(7, 8)),
        (renamed(1, "a"), made(7, "t1")),
        (renamed(1, "a"), renamed(2, "t1")),
        (drop(1), renamed(2, "t1")),
        (renamed(1, "a"), alter(1)),
        (alter(1), made(7, "a", CREW, like=1)),
        (charset(SHOP), made(7, "a", CREW, like=1)),
        (charset(SHOP), made(7, "a", CREW, like=8)),
        (made(7, "a", CREW, like=8), charset(SHOP)),
        (made_database(30, "s30"), made(7, "a", 30)),
        (made_database(30, "s30"), made_database(31, "s30")),
        (dropped_database(SHOP), made_database(31, "s10")),
        (dropped_database(SHOP), made(7, "a")),
        (made(7, "a"), dropped_database(SHOP)),
        (renamed(1, "a", CREW), dropped_database(SHOP)),
        (renamed(1, "a", CREW), dropped_database(CREW)),
        (dropped_database(CREW), renamed(1, "a", CREW)),
        (made(7, "a"), view()),
        (view(), made(7, "a", CREW)),
        (view(), view()),
        (dropped_database(SHOP), view()),
    ],
)
def test_ddls_that_touch_each_other_keep_their_order(first: DdlEvent, second: DdlEvent) -> None:
    feed = Feed()
    feed.come(row(1), row(2, 2), ddls=[(5, first), (6, second)], resolved=9)
    feed.land()
    (write,) = feed.due()
    assert write.key.ts == 5
    assert feed.block(6).waits_for == {Key(5, 0)}
    assert feed.land() == []
    assert feed.due() == [], "not before the first is over, however long it takes"
    assert feed.write(write) == [5]
    assert [write.key.ts for write in feed.due()] == [6]


def test_a_table_that_becomes_a_partition_in_the_same_batch_begins_as_a_table() -> None:
    feed = Feed()
    parted = table(50, name="parted", partitions=(51, 52))
    exchanged = ddl_scope.exchange_partition(
        parted, replace(parted, partitions=(7, 52)), table(7, name="a"), "ALTER TABLE `parted` EXCHANGE PARTITION `p`"
    )
    feed.come(ddls=[(5, made(7, "a")), (6, must(exchanged))], resolved=9)
    queues = feed.ledger.queues
    numbers = queues.find(np.array([7, 51]), np.zeros(2, np.int64))
    assert queues.dispatchers.logical_id[numbers].tolist() == [7, 51]


def test_tables_that_share_a_name_on_the_sink_keep_their_order() -> None:
    feed = Feed()
    routed = [Ddl(Key(ts, 0), 0, made(ts, f"a{ts}"), (("lake", "a"),)) for ts in (5, 6)]
    feed.ledger.accept(1, ITEMS.empty_table(), 0.0, "end", 9, routed)
    assert [write.key.ts for write in feed.due()] == [5]


def test_a_table_is_in_the_database_that_an_unfinished_ddl_moves_it_to() -> None:
    """The copy names neither the database nor the table there, only its id."""
    feed = Feed()
    ddls = [(5, renamed(1, "a", CREW)), (6, made(7, "b", 30, like=1)), (7, charset(CREW))]
    feed.come(row(1), ddls=ddls, resolved=9)
    feed.land()
    order = []
    for _ in ddls:
        (write,) = feed.due()
        order += feed.write(write)
    assert order == [5, 6, 7]


def test_a_ddl_that_cannot_be_written_holds_up_only_those_that_touch_it() -> None:
    feed = Feed()
    feed.come(ddls=[(5, made(7, "a")), (6, drop(7, name="a")), (7, made(8, "b")), (8, drop(8, name="b"))], resolved=9)
    fails, goes = feed.due()
    assert (fails.key.ts, feed.write(goes)) == (5, [7])
    assert feed.write(*feed.due()) == [8]
    assert feed.due() == []
    assert feed.ledger.checkpoint() == 4
    assert feed.write(fails) == [5]
    assert feed.write(*feed.due()) == [6]
    assert feed.ledger.checkpoint() == 9


# -- the table trigger -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", [charset(), view(), dropped_database(SHOP)])
def test_a_wide_event_is_held_until_tables_that_begin_before_it_have_begun_and_drains_only_then(
    event: DdlEvent,
) -> None:
    feed = Feed()
    feed.come(row(2), ddls=[(1, create(7)), (5, event)], resolved=9)
    (begins,) = feed.due()
    feed.land()
    assert (feed.block(5).stage, feed.block(5).waits_for, feed.block(5).left) == (DRAINING, {Key(1, 0)}, None)
    feed.write(begins)
    assert [write.dispatcher for write in feed.due()] == [feed.ledger.blocking.trigger_number]
    assert feed.block(5).stage == WRITING


@pytest.mark.parametrize("wide", [charset(), view()])
def test_a_wide_event_does_not_wait_for_a_table_that_begins_after_it(wide: DdlEvent) -> None:
    feed = Feed()
    feed.come(row(1), ddls=[(5, wide), (6, create(7)), (7, create(8))], resolved=9)
    feed.land()
    order = []
    while writes := feed.due():
        order += feed.write(*writes)
    assert order == [5, 6, 7]


def test_a_drain_is_asked_for_once_and_a_write_drains_nothing_more() -> None:
    feed = Feed(spans=2)
    feed.come(row(1), row(12, version=10), ddls=[(10, alter(1))], resolved=20)
    assert feed.ledger.blocking.maintainer.barriers[Key(10, 0)].reported == ()
    assert feed.land() == [("ddl", [1])]
    (write,) = feed.due()
    assert feed.land() == []
    assert feed.write(write) == [10]


# -- checkpoint ------------------------------------------------------------------------------------------------------


def test_the_checkpoint_stands_below_the_first_ddl_that_is_not_over() -> None:
    feed = Feed()
    feed.come(ddls=[(100, alter(1)), (120, alter(2)), (140, alter(3))], resolved=200)
    writes = {write.key.ts: write for write in feed.due()}
    found = [feed.ledger.checkpoint()]
    for ts in (120, 100, 140):
        feed.write(writes[ts])
        found.append(feed.ledger.checkpoint())
    assert found == [99, 99, 139, 200]


def test_a_table_that_begins_caps_the_checkpoint_until_it_has_begun() -> None:
    feed = Feed()
    feed.come(ddls=[(100, create(1))], resolved=200)
    writes = feed.due()
    assert feed.ledger.checkpoint() == 99
    feed.write(*writes)
    assert feed.ledger.checkpoint() == 200


# -- nothing deadlocks -----------------------------------------------------------------------------------------------


def test_when_only_frozen_bytes_are_left_what_the_ddl_misses_may_come() -> None:
    feed = Feed(limits=replace(LIMITS, spool_max_bytes=2_000))
    feed.come(*(row(ts, version=5) for ts in range(6, 16)), ddls=[(5, alter(1))], resolved=2)
    assert not feed.ledger.spool.may_wake()
    feed.land()
    assert feed.ledger.only_frozen
    assert feed.ledger.reading.misses_changes
    feed.come(resolved=20)
    assert not feed.ledger.reading.misses_changes, "from here on landing frees the spool"


def test_a_failing_table_does_not_keep_out_what_the_ddl_misses() -> None:
    feed = Feed()
    feed.come(row(1, 2), row(6, version=5), ddls=[(5, alter(1))], resolved=0)
    feed.now = 10.0
    round_ = feed.plan()
    assert round_ is not None
    assert not feed.ledger.reading.misses_changes, "what is under way may free the spool"
    feed.answer(round_, landed=False)
    assert feed.ledger.reading.misses_changes
    assert not feed.ledger.only_frozen, "but at the end it is waited for"


def test_a_schema_file_that_cannot_be_written_holds_the_source() -> None:
    feed = Feed()
    feed.come(row(6, version=5), ddls=[(5, alter(1))], resolved=9)
    assert len(feed.due()) == 1
    assert not feed.ledger.reading.misses_changes
    assert not feed.ledger.only_frozen


# -- what it costs ---------------------------------------------------------------------------------------------------


def known(feed: Feed, count: int) -> None:
    """So many dispatchers that have sent something once and hold nothing."""
    ids = np.arange(1, count + 1)
    numbers = feed.ledger.queues.number(ids, np.zeros(count, np.int64), ids)
    feed.ledger.queues.dispatchers.schema_id[numbers] = SHOP


def test_a_ddl_over_a_million_tables_costs_by_the_thousand_that_hold_something() -> None:
    feed = Feed()
    known(feed, 1_000_000)
    active = range(500, 1_000_000, 1_000)
    feed.come(*(row(1, number) for number in active), ddls=[(5, view())], resolved=9)
    ledger = feed.ledger
    assert len(ledger.blocking.markers.touched(feed.block(5))) == len(active) + 1
    assert len(ledger.blocking.markers._by_dispatcher) == 1, "one marker, not one for each"
    assert sum(len(landed) for _, landed in feed.land()) == len(active)
    (write,) = feed.due()
    assert feed.block(5).affected == len(active) + 1
    assert feed.write(write) == [5]
    assert ledger.planner.due.visited <= 4 * len(active)
    assert ledger.idle


def test_thousands_of_ddls_at_once_cost_each_its_own() -> None:
    """Of single tables and of the trigger: each is looked at when its turn comes, and again when something lands."""
    feed = Feed()
    feed.come(ddls=[(2 * n, alter(n)) for n in range(1, 2_000)], resolved=3)
    feed.come(ddls=[(10_000 + n, create(5_000 + n)) for n in range(2_000)], resolved=20_000)
    drains = feed.ledger.blocking.drains
    writes = feed.due()
    assert [write.key.ts for write in writes] == [*range(2, 4_000, 2), *range(10_000, 12_000)]
    assert len(feed.write(*writes)) == len(writes) == drains.looks
    assert feed.due() == []
    assert feed.ledger.blocking.markers._by_dispatcher == {}
    assert feed.ledger.blocking.waits_for_nothing


def test_a_landing_makes_only_those_ddls_be_looked_at_that_wait_for_it() -> None:
    feed = Feed(limits=replace(LIMITS, round_tables=1))
    feed.come(*(row(n, n) for n in range(1, 101)), ddls=[(200 + n, alter(n)) for n in range(1, 101)], resolved=999)
    drains = feed.ledger.blocking.drains
    assert feed.due() == []
    assert drains.looks == 100
    while (round_ := feed.plan()) is not None:
        (ts,) = feed.ts_of(round_)
        feed.answer(round_)
        assert [write.key.ts for write in feed.due()] == [200 + ts]
    assert drains.looks == 200
