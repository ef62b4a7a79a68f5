"""The flush planner: when, why and which files. Times are seconds, sizes bytes; a file is 1,000 bytes here."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.control.ledger import Accepted, Durable, Ledger
from tidegate.control.limits import Limits
from tidegate.control.retries import pause_s
from tidegate.control.rounds import Round
from tidegate.errors import BrokenInvariant
from tidegate.executor.rows import ITEMS
from tidegate.format.tables import CHECK, SETTLED, WRITE

SMALL = Limits(file_size_bytes=1_000, flush_interval_s=5.0, spool_max_bytes=1 << 30, dispatcher_share=1.0)
DAY = 20260131


@dataclass(frozen=True)
class Chunk:
    """One item to accept; with `ts` None it is a transaction of its own."""

    table: int
    length: int = 100
    ts: int | None = None
    version: int = 1
    logical: int | None = None
    segment: str | None = None


@dataclass
class Feed:
    """A ledger, and a source that numbers what it hands out and puts each batch into a segment of its own."""

    ledger: Ledger
    batch: int = 0
    seq: int = 0
    ts: int = 0
    segment_ends: dict[str, int] = field(default_factory=dict)

    def accept(self, *chunks: Chunk, now: float = 0.0) -> Accepted:
        self.batch += 1
        items = pa.Table.from_pylist([self._item(chunk) for chunk in chunks], schema=ITEMS)
        return self.ledger.accept(self.batch, items, now, f"end-{self.batch}")

    def _item(self, chunk: Chunk) -> dict[str, object]:
        self.seq += 1
        self.ts = chunk.ts if chunk.ts is not None else self.ts + 1
        segment = chunk.segment or f"{self.batch}-0"
        offset = self.segment_ends.get(segment, 0)
        self.segment_ends[segment] = offset + chunk.length
        return {
            "kind": "rows", "table_id": chunk.table, "span": 0, "logical_table_id": chunk.logical or chunk.table,
            "schema_name": "shop", "table_name": f"t{chunk.logical or chunk.table}", "version": chunk.version,
            "layout": 7, "first_ts": self.ts, "first_seq": self.seq, "last_ts": self.ts, "last_seq": self.seq,
            "rows": 1, "tier": 1, "segment": segment, "offset": offset, "length": chunk.length, "checksum": 0,
        }  # fmt: skip

    def plan(self, now: float, date: int = DAY) -> Round | None:
        return self.ledger.plan(now, date)

    def must_plan(self, now: float, date: int = DAY) -> Round:
        round_ = self.plan(now, date)
        assert round_ is not None
        return round_

    def plan_all(self, now: float) -> list[Round]:
        rounds = []
        while (round_ := self.plan(now)) is not None:
            rounds.append(round_)
        return rounds

    def land(self, round_: Round, now: float = 0.0, files: int | None = None) -> Durable:
        """The first `files` of the round land, all of them by default."""
        landed = np.arange(len(round_)) < (len(round_) if files is None else files)
        return self.ledger.receive(round_, landed, now, seconds=0.1)

    def tables(self, round_: Round) -> list[int]:
        return [int(self.ledger.queues.dispatchers.table_id[n]) for n in round_.dispatcher]

    def sequence(self, round_: Round) -> list[list[int]]:
        """Sequence numbers of the items of each file."""
        seq = self.ledger.queues.items.first_seq
        return [seq[round_.slots[a:b]].tolist() for a, b in pairwise(round_.bounds.tolist())]


def feed(limits: Limits = SMALL, **changes: object) -> Feed:
    return Feed(Ledger(replace(limits, **changes)))  # type: ignore[arg-type]


# -- size --------------------------------------------------------------------------------------------------------------


def test_a_queue_of_a_files_worth_is_due_at_once() -> None:
    f = feed()
    f.accept(*[Chunk(1, 250)] * 4)
    round_ = f.must_plan(0.0)
    assert (round_.bytes.tolist(), round_.reason.tolist()) == ([1_000], ["size"])


def test_a_queue_of_less_waits() -> None:
    f = feed()
    f.accept(*[Chunk(1, 250)] * 3)
    assert f.plan(0.0) is None


def test_a_size_flush_leaves_the_incomplete_file_to_grow() -> None:
    f = feed()
    f.accept(*[Chunk(1, 250)] * 6)
    round_ = f.must_plan(0.0)
    assert round_.bytes.tolist() == [1_000]
    f.land(round_)
    assert f.plan(0.0) is None
    f.accept(*[Chunk(1, 250)] * 2)
    assert f.sequence(f.must_plan(0.0)) == [[5, 6, 7, 8]]


def test_a_file_ends_at_the_chunk_nearest_to_file_size() -> None:
    f = feed()
    f.accept(Chunk(1, 900), Chunk(1, 300), Chunk(1, 600), Chunk(1, 300))
    assert f.must_plan(0.0).bytes.tolist() == [900, 900]
    g = feed()
    g.accept(Chunk(1, 600), Chunk(1, 500))
    assert g.must_plan(0.0).bytes.tolist() == [1_100]


def test_a_transaction_stays_in_one_file() -> None:
    f = feed()
    f.accept(Chunk(1, 700), *[Chunk(1, 200, ts=9)] * 4, Chunk(1, 100))
    assert f.sequence(f.must_plan(5.0)) == [[1], [2, 3, 4, 5, 6]]


def test_a_transaction_larger_than_a_file_is_cut_inside() -> None:
    f = feed()
    f.accept(*[Chunk(1, 300, ts=9)] * 10)
    sizes = f.must_plan(5.0).bytes.tolist()
    assert sum(sizes) == 3_000
    assert all(abs(size - 1_000) <= 300 for size in sizes[:-1])


TRANSACTIONS = st.lists(st.lists(st.integers(1, 700), min_size=1, max_size=4), min_size=1, max_size=25)


@settings(deadline=None)
@given(TRANSACTIONS)
def test_files_are_as_close_to_file_size_as_chunks_and_transactions_allow(transactions: list[list[int]]) -> None:
    f = feed()
    f.accept(*(Chunk(1, size, ts=ts) for ts, sizes in enumerate(transactions, 1) for size in sizes))
    largest = max(map(sum, transactions))
    rounds = [f.must_plan(0.0)] if sum(map(sum, transactions)) >= 1_000 else []
    for round_ in rounds:
        assert set(round_.reason.tolist()) == {"size"}
        assert all(abs(size - 1_000) <= largest for size in round_.bytes.tolist())
    left = f.ledger.queues.dispatchers.queued_bytes[0]
    assert left < 1_000, "what is left does not fill a file"
    for round_ in rounds:
        f.land(round_)
    rounds += f.plan_all(5.0)
    files = [file for round_ in rounds for file in f.sequence(round_)]
    assert [seq for file in files for seq in file] == list(range(1, f.seq + 1)), "order, nothing lost, nothing twice"
    assert_no_transaction_is_split_but_large_ones(files, transactions)


def assert_no_transaction_is_split_but_large_ones(files: list[list[int]], transactions: list[list[int]]) -> None:
    seq = 0
    for sizes in transactions:
        members = set(range(seq + 1, seq + len(sizes) + 1))
        seq += len(sizes)
        holders = [file for file in files if members & set(file)]
        assert len(holders) == 1 or sum(sizes) > 1_000


# -- age ---------------------------------------------------------------------------------------------------------------


def test_the_age_bound_starts_early_enough_to_be_durable_in_time() -> None:
    assert SMALL.age_bound_s == 4.5
    assert Limits(flush_interval_s=60.0).age_bound_s == 59.5
    assert Limits(max_flush_delay_s=0.2).age_bound_s == pytest.approx(0.18)


def test_a_change_is_due_by_its_age_since_it_was_accepted() -> None:
    f = feed()
    f.accept(Chunk(1), now=10.0)
    assert f.plan(14.4) is None
    assert f.must_plan(14.5).reason.tolist() == ["interval"]


def test_a_flush_in_between_does_not_renew_the_age_of_what_it_left() -> None:
    f = feed()
    f.accept(*[Chunk(1, 400)] * 3, now=0.0)
    first = f.must_plan(3.0)
    assert f.sequence(first) == [[1, 2]]
    f.land(first, now=3.0)
    assert f.plan(4.4) is None
    left = f.must_plan(4.5)
    assert (f.sequence(left), left.reason.tolist()) == ([[3]], ["interval"])


def test_what_a_flush_left_is_only_as_old_as_itself() -> None:
    f = feed()
    f.accept(*[Chunk(1, 500)] * 2, now=0.0)
    f.accept(Chunk(1, 400), now=3.0)
    first = f.must_plan(3.0)
    assert f.sequence(first) == [[1, 2]]
    f.land(first, now=3.0)
    assert f.plan(4.5) is None
    assert f.plan(7.4) is None
    assert f.sequence(f.must_plan(7.5)) == [[3]]


def test_the_commit_ts_of_a_change_has_no_say_in_its_age() -> None:
    f = feed()
    f.accept(Chunk(1, ts=1), now=0.0)
    f.accept(Chunk(2, ts=1 << 60), now=1.0)
    assert f.tables(f.must_plan(4.5)) == [1]
    assert f.tables(f.must_plan(5.5)) == [2]


def test_what_arrives_during_a_landing_is_due_by_its_own_age() -> None:
    f = feed()
    f.accept(Chunk(1), now=0.0)
    first = f.must_plan(4.5)
    f.accept(Chunk(1), now=5.0)
    assert f.plan(9.6) is None, "its lane is busy"
    f.land(first, now=9.7)
    assert f.sequence(f.must_plan(9.7)) == [[2]]


def test_max_flush_delay_is_a_shorter_bound_of_its_own_name() -> None:
    f = feed(max_flush_delay_s=0.2)
    f.accept(Chunk(1))
    assert f.plan(0.17) is None
    assert f.must_plan(0.18).reason.tolist() == ["delay"]


def test_a_max_flush_delay_longer_than_the_interval_changes_nothing() -> None:
    f = feed(max_flush_delay_s=60.0)
    f.accept(Chunk(1))
    assert f.must_plan(4.5).reason.tolist() == ["interval"]


def test_ten_thousand_one_row_tables_are_planned_long_before_the_interval() -> None:
    f = feed(max_flush_delay_s=0.2)
    f.accept(*(Chunk(table) for table in range(1, 10_001)), now=0.0)
    rounds = f.plan_all(0.2)
    assert sorted(table for round_ in rounds for table in f.tables(round_)) == list(range(1, 10_001))
    assert {reason for round_ in rounds for reason in round_.reason.tolist()} == {"delay"}


def test_the_oldest_are_planned_first() -> None:
    f = feed(round_tables=1)
    for table in (3, 1, 2):
        f.accept(Chunk(table), now=float(table))
    assert [f.tables(round_) for round_ in f.plan_all(10.0)] == [[1], [2], [3]]


def test_the_planner_visits_active_dispatchers_only() -> None:
    f = feed(flush_interval_s=1.0)
    f.accept(*(Chunk(table) for table in range(1, 100_001)))
    for round_ in f.plan_all(1.0):
        f.land(round_, now=1.0)
    assert f.ledger.idle
    before = f.ledger.planner.due.visited
    f.accept(*(Chunk(table) for table in range(1, 11)), now=2.0)
    for tenth in range(20, 40):
        for round_ in f.plan_all(tenth / 10):
            f.land(round_, now=tenth / 10)
    assert f.ledger.idle
    assert f.ledger.planner.due.visited - before <= 4 * 10


@pytest.mark.parametrize("closing", [False, True])
def test_a_round_looks_at_some_of_those_that_are_due_not_at_all(closing: bool) -> None:
    f = feed(round_tables=10)
    f.accept(*(Chunk(table) for table in range(2_000)))
    f.ledger.planner.closing = closing
    f.land(f.must_plan(5.0))  # with it all of them came of age
    for _ in range(10):
        before = f.ledger.planner.due.visited
        round_ = f.must_plan(5.0)
        assert len(round_) == 10
        assert f.ledger.planner.due.visited - before <= 5 * 10
        f.land(round_)


def test_those_whose_lanes_are_busy_do_not_hide_the_others_that_are_due() -> None:
    f = feed(round_tables=10)
    f.accept(*(Chunk(table) for table in range(100)))
    first = [f.must_plan(5.0) for _ in range(5)]
    f.accept(*(Chunk(table) for table in range(50)), now=5.0)
    rounds = f.plan_all(20.0)
    assert sorted(table for round_ in rounds for table in f.tables(round_)) == list(range(50, 100))
    for round_ in first:
        f.land(round_, now=20.0)
    assert sorted(table for round_ in f.plan_all(20.0) for table in f.tables(round_)) == list(range(50))


# -- caps --------------------------------------------------------------------------------------------------------------


def test_a_round_takes_at_most_so_many_tables() -> None:
    f = feed(round_tables=10)
    f.accept(*(Chunk(table) for table in range(25)))
    rounds = f.plan_all(5.0)
    assert [len(round_) for round_ in rounds] == [10, 10, 5]
    assert [set(round_.reason.tolist()) for round_ in rounds] == [{"fanout"}, {"fanout"}, {"interval"}]
    assert sorted(table for round_ in rounds for table in f.tables(round_)) == list(range(25))


def test_a_round_takes_at_most_so_many_bytes() -> None:
    f = feed(round_bytes=2_000)
    f.accept(*(Chunk(table, 900) for table in range(5)))
    rounds = f.plan_all(5.0)
    assert [len(round_) for round_ in rounds] == [2, 2, 1]
    assert [set(round_.reason.tolist()) for round_ in rounds] == [{"bytes_cap"}, {"bytes_cap"}, {"interval"}]


def test_one_queue_larger_than_a_round_lands_in_several_and_in_order() -> None:
    f = feed(round_bytes=2_000)
    f.accept(*[Chunk(1, 500)] * 20)
    landed: list[int] = []
    while (round_ := f.plan(0.0)) is not None:
        assert int(round_.bytes.sum()) <= 3_000
        landed += [seq for file in f.sequence(round_) for seq in file]
        f.land(round_, now=0.0)
    assert landed == list(range(1, 21))


def test_a_slow_store_gets_smaller_rounds() -> None:
    f = feed(file_size_bytes=64 << 20, dispatcher_share=1.0)
    f.accept(*(Chunk(table, 8 << 20) for table in range(100)))
    before = int(f.must_plan(5.0).bytes.sum())
    f.ledger.planner.pace.bytes_per_s = 64.0 * (1 << 20)
    assert int(f.must_plan(5.0).bytes.sum()) < before


def test_a_landing_that_took_no_time_is_measured_without_dividing_by_zero() -> None:
    f = feed(file_size_bytes=64 << 20)
    f.accept(Chunk(1, 64 << 20))
    round_ = f.must_plan(0.0)
    f.ledger.receive(round_, np.ones(1, bool), now=0.0, seconds=0.0)
    assert f.ledger.idle


# -- pressure ----------------------------------------------------------------------------------------------------------


def test_pressure_takes_the_largest_first_and_stops_at_enough() -> None:
    f = feed(file_size_bytes=100_000, spool_max_bytes=100_000)
    f.accept(*(Chunk(table, 10_000 * table) for table in (1, 3, 2)))  # low mark 60,000, planned down to 54,000
    round_ = f.must_plan(0.0)
    assert (f.tables(round_), round_.reason.tolist()) == ([3], ["pressure"])
    assert f.plan(0.0) is None, "what is under way is enough"


def test_below_the_low_mark_nothing_is_pressed() -> None:
    f = feed(file_size_bytes=100_000, spool_max_bytes=100_000)
    f.accept(Chunk(1, 59_000))
    assert f.plan(0.0) is None


def test_a_large_table_that_hangs_does_not_keep_pressure_from_the_others() -> None:
    f = feed(file_size_bytes=100_000, spool_max_bytes=100_000)
    f.accept(Chunk(1, 20_000))
    f.must_plan(5.0)  # never answered
    f.accept(Chunk(1, 60_000), Chunk(2, 10_000), Chunk(3, 5_000), now=5.0)
    assert f.tables(f.must_plan(5.0)) == [2, 3]


def test_bytes_that_wait_to_be_tried_again_do_not_count_as_relief() -> None:
    f = feed(file_size_bytes=100_000, spool_max_bytes=100_000)
    f.accept(Chunk(1, 30_000))
    f.land(f.must_plan(4.5), now=4.5, files=0)
    f.accept(Chunk(2, 40_000), now=5.0)
    assert f.tables(f.must_plan(5.0)) == [2]


def test_nearly_empty_segments_are_freed_under_pressure() -> None:
    f = feed(file_size_bytes=100_000, spool_max_bytes=100_000)
    f.accept(Chunk(1, 39_900, segment="a"), Chunk(2, 100, segment="a"))
    f.accept(Chunk(1, 19_900, segment="b"), Chunk(3, 100, segment="b"))
    f.land(f.must_plan(0.0))  # table 1 is the largest; its segments stay, held by a scrap each
    assert f.ledger.spool.tier_bytes == [0, 60_000]
    round_ = f.must_plan(0.0)
    assert (f.tables(round_), round_.reason.tolist()) == ([2], ["pressure"]), "the emptiest segment, and no more"
    assert f.land(round_).segments == ["a"]


def test_a_starved_disk_lands_everything_at_once() -> None:
    f = feed()
    f.accept(Chunk(1), Chunk(2))
    f.ledger.spool.starved = True
    assert sorted(f.tables(f.must_plan(0.0))) == [1, 2]


def test_an_entry_larger_than_the_spool_is_landed_at_once() -> None:
    f = feed(file_size_bytes=1 << 20, spool_max_bytes=100_000)
    f.accept(Chunk(1, 100_001))
    round_ = f.must_plan(0.0)
    assert round_.reason.tolist() == ["oversized"]


# -- close -------------------------------------------------------------------------------------------------------------


def test_close_takes_everything_of_any_age_and_size() -> None:
    f = feed()
    f.accept(*(Chunk(table, length) for table, length in ((1, 5), (2, 999), (3, 2_300))))
    f.ledger.planner.closing = True
    rounds = f.plan_all(0.0)
    assert sorted(set(f.tables(rounds[0]))) == [1, 2, 3]
    assert set(rounds[0].reason.tolist()) == {"close"}
    assert f.ledger.queues.queued == 0


def test_a_lane_that_fails_during_close_does_not_keep_out_the_others() -> None:
    f = feed(round_tables=1)
    f.accept(Chunk(1), Chunk(2))
    f.ledger.planner.closing = True
    f.land(f.must_plan(0.0), files=0)
    assert f.tables(f.must_plan(0.0)) == [2]
    assert f.plan(0.9) is None
    assert f.tables(f.must_plan(1.0)) == [1]


def test_close_does_not_wait_out_a_long_pause() -> None:
    f = feed()
    f.accept(Chunk(1))
    now = 4.5
    for _ in range(6):
        f.land(f.must_plan(now), now=now, files=0)
        now += 60.0
    f.land(f.must_plan(now), now=now, files=0)
    f.ledger.planner.closing = True
    assert f.plan(now) is None
    assert f.must_plan(now + 1.0).attempt == 7


# -- lanes -------------------------------------------------------------------------------------------------------------


def test_a_lane_never_has_two_landings_under_way() -> None:
    f = feed()
    f.accept(*[Chunk(1, 1_000)] * 2)
    first = f.must_plan(0.0)
    f.accept(*[Chunk(1, 1_000)] * 2)
    assert f.plan(5.0) is None
    f.land(first)
    second = f.must_plan(5.0)
    assert (first.number.tolist(), second.number.tolist()) == ([1, 2], [3, 4])


def test_a_new_version_lands_after_the_old_one_with_numbers_from_one() -> None:
    f = feed()
    f.accept(Chunk(1, 600, version=1), Chunk(1, 600, version=2))
    old = f.must_plan(0.0)
    assert (old.version.tolist(), old.number.tolist(), f.sequence(old)) == ([1], [1], [[1]])
    assert f.plan(5.0) is None
    f.land(old)
    new = f.must_plan(5.0)
    assert (new.version.tolist(), new.number.tolist(), f.sequence(new)) == ([2], [1], [[2]])


def test_the_schema_file_is_put_with_the_first_file_of_a_version_only() -> None:
    f = feed()
    f.accept(*[Chunk(1, 1_000)] * 2)
    first = f.must_plan(0.0)
    assert first.schema.tolist() == [WRITE, SETTLED], "under a new name no other directory is looked for"
    f.land(first)
    f.accept(Chunk(1, 1_000), Chunk(1, 1_000, version=2))
    second = f.must_plan(0.0)
    assert second.schema.tolist() == [SETTLED]
    f.land(second)
    assert f.must_plan(0.0).schema.tolist() == [CHECK]


def test_a_new_date_starts_its_numbers_at_one() -> None:
    f = feed()
    for date, number in ((DAY, 1), (DAY, 2), (DAY + 1, 1)):
        f.accept(Chunk(1, 1_000))
        round_ = f.must_plan(0.0, date)
        assert (round_.date.tolist(), round_.number.tolist()) == ([date], [number])
        f.land(round_)


def test_a_clock_that_goes_back_does_not_take_the_date_with_it() -> None:
    f = feed()
    for date, number in ((DAY, 1), (DAY - 1, 2), (0, 3)):
        f.accept(Chunk(1, 1_000))
        round_ = f.must_plan(0.0, date)
        assert (round_.date.tolist(), round_.number.tolist()) == ([DAY], [number])
        f.land(round_)


def test_partitions_that_share_a_lane_never_share_a_number() -> None:
    f = Feed(Ledger(SMALL, shared_lanes=True))
    f.accept(*(Chunk(table, 1_000, logical=10) for table in (11, 12, 11, 12)))
    first = f.must_plan(0.0)
    assert set(f.tables(first)) == {11}
    assert f.plan(5.0) is None, "the lane is busy"
    f.land(first)
    second = f.must_plan(0.0)
    assert set(f.tables(second)) == {12}
    assert first.number.tolist() + second.number.tolist() == [1, 2, 3, 4]


def test_in_a_shared_lane_an_older_version_of_any_partition_lands_first() -> None:
    f = Feed(Ledger(SMALL, shared_lanes=True))
    f.accept(Chunk(11, 10, logical=10, version=1), Chunk(12, 1_000, logical=10, version=2))
    assert f.plan(0.0) is None, "partition 12 is large enough but waits for the old version of partition 11"
    old = f.must_plan(4.5)
    assert (f.tables(old), old.version.tolist(), old.number.tolist()) == ([11], [1], [1])
    f.land(old)
    new = f.must_plan(4.5)
    assert (f.tables(new), new.version.tolist(), new.number.tolist()) == ([12], [2], [1])


def test_a_partition_that_waits_for_its_turn_in_a_shared_lane_is_not_stuck() -> None:
    f = Feed(Ledger(SMALL, shared_lanes=True))
    f.accept(*(Chunk(table, 1_000, logical=10) for table in (11, 12)))
    ready, both = f.ledger.planner.ready, np.arange(2)
    assert ready.stuck(both).tolist() == [], "one after the other they land"
    f.must_plan(0.0)
    assert ready.stuck(both).tolist() == [0, 1], "the lane is busy, and the first holds nothing more"


def test_a_lane_that_would_go_back_to_an_older_version_stops() -> None:
    f = Feed(Ledger(SMALL, shared_lanes=True))
    f.accept(Chunk(12, 1_000, logical=10, version=2))
    f.land(f.must_plan(0.0))
    f.accept(Chunk(11, 1_000, logical=10, version=1))
    with pytest.raises(BrokenInvariant, match=r"shop.t10: version 1 would land after a newer one"):
        f.plan(0.0)


# -- retries -----------------------------------------------------------------------------------------------------------


def test_what_failed_comes_again_together_with_the_same_numbers_and_files() -> None:
    f = feed()
    f.accept(Chunk(1, 1_000), Chunk(1, 1_000), Chunk(2, 1_000), Chunk(3, 1_000))
    first = f.must_plan(0.0)
    files = dict(zip(first.plan.tolist(), f.sequence(first), strict=True))
    f.ledger.receive(first, np.array([True, False, False, True]), now=0.0, seconds=0.1)
    f.accept(Chunk(1, 1_000), Chunk(4, 1_000))
    assert f.tables(f.must_plan(0.5)) == [4], "the others go on, and nothing overtakes in lane 1"
    again = f.must_plan(1.0)
    assert f.tables(again) == [1, 2]
    assert again.number.tolist() == [2, 1]
    assert again.reason.tolist() == ["error", "error"]
    assert again.plan.tolist() == first.plan[1:3].tolist()
    assert [files[plan] for plan in again.plan.tolist()] == f.sequence(again)


def test_rounds_that_failed_as_often_come_again_as_one_up_to_what_a_round_may_take() -> None:
    f = feed(round_tables=4, round_bytes=1 << 20)
    for table in (1, 3, 5, 7, 9):
        f.accept(Chunk(table, 1_000), Chunk(table + 1, 1_000))
        f.ledger.receive(f.must_plan(0.0), np.zeros(2, np.bool_), now=0.0, seconds=0.1)
    f.accept(Chunk(11, 1_000), now=0.5)
    rounds = f.plan_all(1.0)
    assert sorted(len(round_) for round_ in rounds) == [1, 2, 4, 4]
    assert sorted(table for round_ in rounds for table in f.tables(round_)) == list(range(1, 12))
    failed = next(round_ for round_ in rounds if len(round_) == 2)
    f.ledger.receive(failed, np.zeros(2, np.bool_), now=1.0, seconds=0.1)
    for round_ in rounds:
        if round_ is not failed:
            f.land(round_, now=1.0)
    f.accept(Chunk(12, 1_000), now=2.0)
    f.ledger.receive(f.must_plan(2.0), np.zeros(1, np.bool_), now=2.0, seconds=0.1)
    assert sorted(len(round_) for round_ in f.plan_all(4.0)) == [1, 2], "one failed more often, and paused longer"


def test_what_hung_comes_again_apart_from_the_others() -> None:
    f = feed()
    f.accept(*(Chunk(table, 1_000) for table in (1, 1, 2, 3, 4, 5)))
    first = f.must_plan(0.0)
    hung = np.array([False, True, True, False, False, False])  # the second file of table 1, and table 2
    landed = np.array([False, False, False, True, False, False])
    f.ledger.receive(first, landed, now=0.0, seconds=0.1, hung=hung)
    again = f.plan_all(1.0)
    assert [(f.tables(round_), round_.suspect) for round_ in again] == [([1, 1, 2], True), ([4, 5], False)]
    assert all(round_.attempt == 1 for round_ in again)


def test_those_that_were_not_tried_because_others_hung_do_not_wait_longer_and_longer() -> None:
    f = feed()
    f.accept(*(Chunk(table, 1_000) for table in range(1, 6)))
    round_, now = f.must_plan(0.0), 0.0
    for hanging in range(1, 5):  # each time another one turns out to hang
        hung = np.array(f.tables(round_)) == hanging
        f.ledger.receive(round_, np.zeros(len(round_), np.bool_), now, 0.1, hung=hung)
        now += 1.0
        round_ = next(again for again in f.plan_all(now) if 5 in f.tables(again))
    assert (f.tables(round_), round_.attempt) == ([5], 1)


def test_what_hangs_never_keeps_out_what_is_due() -> None:
    f = feed()
    for table in (1, 2, 3):
        f.accept(Chunk(table, 1_000))
        f.ledger.receive(f.must_plan(0.0), np.zeros(1, np.bool_), 0.0, 0.1, hung=np.ones(1, np.bool_))
    now = 100.0
    f.accept(*(Chunk(table, 1_000) for table in range(11, 15)), now=now)
    suspect = f.must_plan(now)
    assert suspect.suspect
    assert f.tables(f.must_plan(now)) == [11, 12, 13, 14]
    assert f.plan(now) is None, "no second one that hung while the first is under way"
    f.ledger.receive(suspect, np.zeros(1, np.bool_), now, 2.0, hung=np.ones(1, np.bool_))
    second = f.must_plan(now)
    assert second.suspect
    assert f.tables(second) != f.tables(suspect)
    f.ledger.receive(second, np.ones(1, np.bool_), now, 2.0)
    f.accept(Chunk(20, 1_000), now=now)
    assert f.tables(f.must_plan(now)) == [20], "not two in a row while anything else is due"
    assert f.must_plan(now).suspect


def test_a_lane_that_hung_and_then_failed_is_no_suspect_any_more() -> None:
    f = feed()
    f.accept(Chunk(1, 1_000), Chunk(2, 1_000))
    nothing = np.zeros(2, np.bool_)
    f.ledger.receive(f.must_plan(0.0), nothing, now=0.0, seconds=0.1, hung=np.ones(2, np.bool_))
    f.ledger.receive(f.must_plan(1.0), nothing, now=1.0, seconds=0.1)
    again = f.must_plan(3.0)
    assert (f.tables(again), again.suspect, again.attempt) == ([1, 2], False, 2)


def test_a_retry_keeps_its_date_and_its_schema_file() -> None:
    f = feed()
    f.accept(Chunk(1, 1_000))
    f.land(f.must_plan(0.0, DAY), files=0)
    again = f.must_plan(1.0, DAY + 1)
    assert (again.date.tolist(), again.schema.tolist()) == ([DAY], [WRITE])


def test_pauses_between_retries_double_up_to_a_minute_and_are_up_to_a_quarter_shorter() -> None:
    f = feed()
    f.accept(Chunk(1, 1_000))
    now = 0.0
    for longest in (1, 2, 4, 8, 16, 32, 60, 60, 60):
        f.land(f.must_plan(now), now=now, files=0)
        assert f.plan(now + 0.75 * longest - 0.001) is None
        now += longest
    assert f.must_plan(now).attempt == 9


@given(attempt=st.integers(0, 2_000), first=st.integers(0, 1 << 60))
def test_those_that_failed_together_do_not_come_back_at_once(attempt: int, first: int) -> None:
    pauses = [pause_s(attempt, salt % 1_000_000) for salt in range(first, first + 16)]
    longest = min(2**attempt, 60) if attempt < 10 else 60
    assert all(0.75 * longest <= pause <= longest for pause in pauses)
    apart = [b - a for a, b in pairwise(sorted(pauses))]
    assert min(apart) > longest / 4 / 64, "no two of sixteen in the same moment"


def test_a_landing_may_fail_for_days() -> None:
    f = feed()
    f.accept(Chunk(1, 1_000))
    now = 0.0
    for attempt in range(1_500):
        round_ = f.must_plan(now)
        assert round_.attempt == attempt
        f.land(round_, now=now, files=0)
        now += 60.0
    f.land(f.must_plan(now))
    assert f.ledger.idle


def test_after_a_retry_landed_the_lane_goes_on() -> None:
    f = feed()
    f.accept(Chunk(1, 1_000))
    f.land(f.must_plan(0.0), files=0)
    f.accept(Chunk(1, 1_000))
    f.land(f.must_plan(1.0), now=1.0)
    assert f.must_plan(1.0).number.tolist() == [2]


# -- a lane that an old writer may still write to ----------------------------------------------------------------------


def owe(f: Feed, table: int, number: int, end: int) -> None:
    """An old writer may still create this file of the table, which ends with this change."""
    queues = f.ledger.queues
    (dispatcher,) = queues.find(np.array([table]), np.array([0]))
    queues.lanes.owe(int(queues.dispatchers.lane[dispatcher]), number, (end, end))


def test_an_owed_lane_keeps_its_date_until_it_has_landed() -> None:
    f = feed()
    f.accept(Chunk(1, 1_000), Chunk(2, 1_000))
    f.land(f.must_plan(0.0, DAY))
    owe(f, 1, 2, 3)
    f.accept(Chunk(1, 1_000), Chunk(2, 1_000))
    owed = f.must_plan(0.0, DAY + 1)
    assert (owed.date.tolist(), owed.number.tolist()) == ([DAY, DAY + 1], [2, 1])
    f.land(owed, files=0)
    f.accept(Chunk(1, 1_000), now=1.0)
    again = f.must_plan(1.0, DAY + 1)
    assert again.date.tolist() == [DAY, DAY + 1], "what failed keeps it too"
    f.land(again, now=1.0)
    after = f.must_plan(1.0, DAY + 1)
    assert (f.tables(after), after.date.tolist(), after.number.tolist()) == ([1], [DAY + 1], [1])


def test_a_new_version_of_an_owed_lane_has_a_directory_of_its_own_under_the_old_date() -> None:
    f = feed()
    f.accept(Chunk(1, 1_000))
    f.land(f.must_plan(0.0, DAY))
    owe(f, 1, 2, 2)
    f.accept(Chunk(1, 1_000, version=2))
    round_ = f.must_plan(0.0, DAY + 1)
    assert (round_.date.tolist(), round_.version.tolist(), round_.number.tolist()) == ([DAY], [2], [1])


@pytest.mark.parametrize(
    ("ends", "dates"),
    [
        ({2: 2, 3: 3}, [0, 0, 1]),  # the same files: the old writer could go on behind each of them
        ({2: 2, 3: 3, 4: 9}, [0, 0, 0]),
        ({2: 9, 3: 10}, [0, 1, 1]),  # another cut: it stops at file 2
        ({2: 2, 3: 9, 4: 10}, [0, 0, 1]),
    ],
)
def test_a_lane_is_owed_as_long_as_the_old_writer_could_go_on(ends: dict[int, int], dates: list[int]) -> None:
    f = feed()
    f.accept(Chunk(1, 1_000))
    f.land(f.must_plan(0.0, DAY))
    for number, end in ends.items():
        owe(f, 1, number, end)
    found = []
    for _ in dates:
        f.accept(Chunk(1, 1_000))
        round_ = f.must_plan(0.0, DAY + 1)
        found += (round_.date - DAY).tolist()
        f.land(round_)
    assert found == dates
