"""The ledger: accepted exactly once, durable exactly once, in order, and the checkpoint never early."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidegate.control.compaction import Copy
from tidegate.control.ledger import Accepted, Durable, Ledger
from tidegate.control.limits import Limits
from tidegate.control.rounds import Round
from tidegate.control.spool import ITEM_BYTES
from tidegate.errors import BadEvents, BrokenInvariant
from tidegate.executor.rows import ITEMS

LIMITS = Limits(file_size_bytes=1_000, flush_interval_s=5.0, spool_max_bytes=1 << 30)
ORDERS = {
    "kind": "rows", "table_id": 1, "span": 0, "logical_table_id": 1, "schema_name": "shop", "table_name": "orders",
    "version": 1, "layout": 7, "rows": 1, "tier": 1, "segment": "s", "offset": 0, "length": 100, "checksum": 0,
}  # fmt: skip
Item = dict[str, Any]


def item(first: tuple[int, int], last: tuple[int, int] | None = None, **changes: object) -> Item:
    """A chunk of shop.orders over (commit_ts, seq) from `first` to `last`."""
    last = last or first
    ends = {"first_ts": first[0], "first_seq": first[1], "last_ts": last[0], "last_seq": last[1]}
    return {**ORDERS, **ends, **changes}


def table(items: Sequence[Item]) -> pa.Table:
    return pa.Table.from_pylist(list(items), schema=ITEMS)


def accept(ledger: Ledger, batch: int, *items: Item, now: float = 0.0, resolved: int = 0) -> Accepted:
    offsets = accumulate((at["length"] for at in items), initial=0)
    laid = [{**at, "segment": f"{batch}", "offset": offset} for at, offset in zip(items, offsets, strict=False)]
    return ledger.accept(batch, table(laid), now, f"end-{batch}", resolved)


def land_all(ledger: Ledger, now: float = 100.0) -> list[Durable]:
    done = []
    while (round_ := ledger.plan(now, 0)) is not None:
        done.append(ledger.receive(round_, np.ones(len(round_), bool), now, 0.1))
    return done


def must_plan(ledger: Ledger, now: float) -> Round:
    round_ = ledger.plan(now, 0)
    assert round_ is not None
    return round_


def answer(ledger: Ledger, round_: Round, *landed: bool, now: float = 0.0) -> Durable:
    return ledger.receive(round_, np.array(landed), now, 0.1)


# -- accepted ----------------------------------------------------------------------------------------------------------


def test_what_is_accepted_is_counted_and_charged_to_the_spool() -> None:
    ledger = Ledger(LIMITS)
    items = [item((5, 1), rows=3), item((6, 1), rows=4, offset=100)]
    accepted = ledger.accept(1, table(items), 0.0, "end")
    assert accepted == Accepted(rows=7, bytes=200, items=2, duplicates=0, dropped_segments=[])
    assert ledger.spool.occupied_bytes == 200 + 2 * ITEM_BYTES
    assert not ledger.idle


def test_a_batch_without_rows_moves_checkpoint_and_position() -> None:
    ledger = Ledger(LIMITS)
    assert accept(ledger, 1, resolved=50) == Accepted(0, 0, 0, 0, [])
    assert (ledger.checkpoint(), ledger.progress.position) == (50, "end-1")
    assert ledger.idle


def test_items_may_come_in_any_order_within_a_batch() -> None:
    ledger = Ledger(LIMITS)
    accept(ledger, 1, item((7, 1)), item((5, 1)), item((6, 1)))
    round_ = must_plan(ledger, 5.0)
    assert ledger.queues.items.first_ts[round_.slots].tolist() == [5, 6, 7]


def test_duplicates_are_dropped_and_counted_and_their_segments_given_back() -> None:
    ledger = Ledger(LIMITS)
    accept(ledger, 1, item((5, 1), (6, 3)))
    accepted = accept(ledger, 2, item((5, 1), (5, 9)), item((6, 1), (6, 3)))
    assert accepted == Accepted(rows=0, bytes=0, items=0, duplicates=2, dropped_segments=["2"])
    assert ledger.spool.occupied_bytes == 100 + ITEM_BYTES
    land_all(ledger)
    assert (ledger.accounts.durable_items, ledger.progress.position) == (1, "end-2")


def test_a_segment_shared_by_a_duplicate_and_a_new_change_stays() -> None:
    ledger = Ledger(LIMITS)
    accept(ledger, 1, item((5, 1)))
    accepted = accept(ledger, 2, item((5, 1)), item((6, 1)))
    assert (accepted.items, accepted.duplicates, accepted.dropped_segments) == (1, 1, [])


def test_a_change_is_a_duplicate_also_after_it_is_durable() -> None:
    ledger = Ledger(LIMITS)
    accept(ledger, 1, item((5, 1)))
    land_all(ledger)
    assert accept(ledger, 2, item((5, 1))).duplicates == 1


@pytest.mark.parametrize(
    ("before", "late"),
    [
        (item((5, 1), (7, 1)), item((6, 1), (9, 1))),
        (item((5, 1), (7, 3)), item((7, 3), (7, 4))),
        (item((5, 1), (7, 3)), item((1, 1), (9, 9))),
    ],
)
@pytest.mark.parametrize("same_batch", [True, False])
def test_overlapping_chunks_are_refused_by_the_tables_name(before: Item, late: Item, same_batch: bool) -> None:
    ledger = Ledger(LIMITS)
    if not same_batch:
        accept(ledger, 1, before)
    with pytest.raises(BadEvents, match=r"table shop\.orders: changes from commit-ts \d+, seq \d+ overlap or precede"):
        accept(ledger, 2, *([before] if same_batch else []), late)


def test_a_refused_batch_changes_nothing() -> None:
    ledger = Ledger(LIMITS)
    accept(ledger, 1, item((5, 1), (7, 1)), resolved=4)
    accounts = ledger.accounts
    before = (ledger.spool.occupied_bytes, ledger.queues.queued, accounts.accepted_items, ledger.progress.resolved_ts)
    with pytest.raises(BadEvents):
        accept(ledger, 2, item((8, 1), table_id=2, logical_table_id=2), item((6, 1), (9, 1)), resolved=9)
    assert (
        ledger.spool.occupied_bytes,
        ledger.queues.queued,
        ledger.accounts.accepted_items,
        ledger.progress.resolved_ts,
    ) == before
    accept(ledger, 3, item((8, 1)))
    land_all(ledger)
    assert ledger.progress.position == "end-3"


def test_tables_and_spans_have_an_order_of_their_own() -> None:
    ledger = Ledger(LIMITS)
    accepted = accept(ledger, 1, item((5, 1)), item((5, 1), table_id=2), item((5, 1), span=1))
    assert accepted.items == 3


def test_a_version_that_goes_back_is_refused_by_the_tables_name() -> None:
    ledger = Ledger(LIMITS)
    accept(ledger, 1, item((5, 1), version=2))
    with pytest.raises(BadEvents, match=r"shop\.orders: version 1 at commit-ts 6 follows version 2"):
        accept(ledger, 2, item((6, 1), version=1))
    with pytest.raises(BadEvents, match=r"version 2 at commit-ts 7 follows version 3"):
        accept(ledger, 3, item((6, 1), version=3), item((7, 1), version=2))


def test_a_change_below_an_earlier_resolved_mark_is_refused_by_the_tables_name() -> None:
    ledger = Ledger(LIMITS)
    accept(ledger, 1, item((5, 1)), resolved=10)
    with pytest.raises(BadEvents, match=r"shop\.customers: a change of commit-ts 10 follows the resolved mark 10"):
        accept(ledger, 2, item((10, 1), table_id=2, table_name="customers"))


def test_a_change_that_encodes_to_nothing_is_durable_at_once() -> None:
    ledger = Ledger(LIMITS)
    accepted = accept(ledger, 1, item((5, 1), length=0), resolved=9)
    assert (accepted.items, accepted.dropped_segments) == (0, ["1"])
    assert (ledger.accounts.accepted_items, ledger.accounts.durable_items) == (1, 1)
    assert (ledger.checkpoint(), ledger.progress.position, ledger.idle) == (9, "end-1", True)


# -- names -------------------------------------------------------------------------------------------------------------


def test_what_is_queued_under_the_old_version_lands_under_the_old_name() -> None:
    ledger = Ledger(LIMITS)
    accept(ledger, 1, item((5, 1)), item((6, 1), version=2, table_name="sales"))
    accept(ledger, 2, item((7, 1), version=3, table_name="orders"))
    names = []
    for _ in range(3):
        round_ = must_plan(ledger, 5.0)
        names.append((int(round_.version[0]), ledger.queues.name(0)))
        answer(ledger, round_, True, now=5.0)
    assert names == [(1, "shop.orders"), (2, "shop.sales"), (3, "shop.orders")]


def test_a_retry_of_the_old_version_keeps_the_old_name() -> None:
    ledger = Ledger(LIMITS)
    accept(ledger, 1, item((5, 1)))
    answer(ledger, must_plan(ledger, 5.0), False, now=5.0)
    accept(ledger, 2, item((6, 1), version=2, table_name="sales"), now=5.0)
    again = must_plan(ledger, 20.0)
    assert (again.attempt, ledger.queues.name(0)) == (1, "shop.orders")
    answer(ledger, again, True, now=20.0)
    must_plan(ledger, 20.0)
    assert ledger.queues.name(0) == "shop.sales"


# -- durable -----------------------------------------------------------------------------------------------------------


def test_an_accepted_change_alone_does_not_move_the_checkpoint() -> None:
    ledger = Ledger(LIMITS)
    accept(ledger, 1, item((5, 1)), resolved=10)
    assert (ledger.checkpoint(), ledger.progress.position) == (4, None)
    round_ = must_plan(ledger, 5.0)
    assert ledger.checkpoint() == 4, "planned is not durable either"
    answer(ledger, round_, True)
    assert (ledger.checkpoint(), ledger.progress.position) == (10, "end-1")


def test_the_checkpoint_waits_for_the_slowest_table() -> None:
    ledger = Ledger(replace(LIMITS, round_tables=1))
    accept(ledger, 1, item((5, 1)), item((7, 1), table_id=2), resolved=10)
    rounds = [must_plan(ledger, 5.0), must_plan(ledger, 5.0)]
    answer(ledger, rounds[1], True)
    assert ledger.checkpoint() == 4
    answer(ledger, rounds[0], True)
    assert ledger.checkpoint() == 10


def test_a_landing_reports_its_rows_bytes_ages_and_freed_segments() -> None:
    ledger = Ledger(LIMITS)
    accept(ledger, 1, item((5, 1), rows=3), now=1.0)
    accept(ledger, 2, item((6, 1), rows=4), now=2.0)
    [durable] = land_all(ledger, now=10.0)
    assert (durable.rows, durable.bytes, durable.ages_s.tolist()) == (7, 200, [9.0, 8.0])
    assert sorted(durable.segments) == ["1", "2"]
    assert (ledger.spool.occupied_bytes, ledger.idle) == (0, True)


def test_every_accepted_item_is_acknowledged_durable_exactly_once() -> None:
    ledger = Ledger(LIMITS)
    accept(ledger, 1, *(item((ts, 1)) for ts in range(1, 30)))
    accept(ledger, 2, *(item((ts, 1)) for ts in range(20, 50)))
    assert ledger.accounts.accepted_items == 49
    land_all(ledger)
    assert (ledger.accounts.durable_items, ledger.accounts.in_flight, ledger.queues.queued) == (49, 0, 0)


def test_a_round_answered_twice_is_an_error_and_changes_nothing() -> None:
    ledger = Ledger(LIMITS)
    accept(ledger, 1, item((5, 1)))
    round_ = must_plan(ledger, 5.0)
    answer(ledger, round_, True)
    accept(ledger, 2, item((6, 1)))  # takes the slot that the first one has left
    with pytest.raises(BrokenInvariant, match="answered twice"):
        answer(ledger, round_, True)
    assert (ledger.queues.queued, ledger.accounts.durable_items) == (1, 1)


def test_a_round_with_too_few_receipts_is_an_error() -> None:
    ledger = Ledger(LIMITS)
    accept(ledger, 1, item((5, 1)), item((5, 1), table_id=2))
    with pytest.raises(BrokenInvariant, match="has 2 files but 1 receipts"):
        answer(ledger, must_plan(ledger, 5.0), True)


def test_a_file_that_lands_before_an_earlier_one_of_its_lane_is_an_error() -> None:
    ledger = Ledger(LIMITS)
    accept(ledger, 1, item((5, 1), length=1_000), item((6, 1), length=1_000))
    with pytest.raises(BrokenInvariant, match="before an earlier one"):
        answer(ledger, must_plan(ledger, 0.0), False, True)


def test_part_of_a_landing_is_durable_at_once_and_the_rest_later() -> None:
    ledger = Ledger(LIMITS)
    accept(ledger, 1, item((5, 1), length=1_000), item((6, 1), length=1_000), resolved=10)
    answer(ledger, must_plan(ledger, 0.0), True, False)
    assert (ledger.checkpoint(), ledger.accounts.durable_items, ledger.accounts.in_flight) == (5, 1, 1)
    land_all(ledger)
    assert (ledger.checkpoint(), ledger.idle) == (10, True)


def test_a_dispatcher_knows_how_far_it_is_durable() -> None:
    ledger = Ledger(LIMITS)
    accept(ledger, 1, item((5, 1), (6, 4)), item((7, 1), (8, 2)))
    land_all(ledger)
    ds = ledger.queues.dispatchers
    assert (ds.durable_ts[0], ds.durable_seq[0]) == (8, 2)


def test_the_end_of_the_source_resolves_what_was_accepted() -> None:
    ledger = Ledger(LIMITS)
    accept(ledger, 1, item((5, 1)), item((8, 1), table_id=2))
    ledger.source_ended()
    assert ledger.checkpoint() == 4
    land_all(ledger)
    assert ledger.checkpoint() == 8


# -- budget ------------------------------------------------------------------------------------------------------------


BUDGET = replace(LIMITS, file_size_bytes=100, round_bytes=100, spool_max_bytes=8_000_000)


def test_a_table_over_its_share_of_the_spool_is_held_and_released_at_half() -> None:
    ledger = Ledger(replace(LIMITS, file_size_bytes=250_000, round_bytes=250_000, spool_max_bytes=8_000_000))
    accept(ledger, 1, *(item((ts, 1), length=250_000) for ts in range(1, 5)))
    assert ledger.reading.held_tables == set(), "exactly an eighth"
    accept(ledger, 2, item((9, 1), length=250_000), item((1, 1), table_id=2))
    held = [set(ledger.reading.held_tables)]
    for _ in range(3):
        round_ = must_plan(ledger, 0.0)
        answer(ledger, round_, *[True] * len(round_))
        held.append(set(ledger.reading.held_tables))
    assert held == [{1}, {1}, {1}, set()], "1.25, 1.0, 0.75 and 0.5 MB of 1 MB"


def test_what_is_under_way_counts_to_the_share() -> None:
    ledger = Ledger(BUDGET)
    accept(ledger, 1, item((1, 1), length=600_000))
    must_plan(ledger, 0.0)
    accept(ledger, 2, item((2, 1), length=600_000))
    assert ledger.reading.held_tables == {1}


def test_a_table_is_held_as_long_as_one_of_its_spans_is_over() -> None:
    ledger = Ledger(BUDGET)
    accept(ledger, 1, item((1, 1), length=1_100_000), item((1, 1), length=10, span=1))
    assert ledger.reading.held_tables == {1}
    accept(ledger, 2, item((2, 1), length=10, span=1))
    assert ledger.reading.held_tables == {1}


def test_the_spool_above_its_high_mark_holds_the_wake_until_it_is_down_to_the_low_mark() -> None:
    ledger = Ledger(replace(LIMITS, file_size_bytes=244, round_bytes=244, spool_max_bytes=10_000, dispatcher_share=1.0))
    for batch in range(1, 17):
        accept(ledger, batch, item((batch, 1), length=244))
    assert (ledger.spool.occupied_bytes, ledger.spool.may_wake()) == (8_000, True)
    accept(ledger, 17, item((17, 1), length=244))
    woken = {ledger.spool.occupied_bytes: ledger.spool.may_wake()}
    while not ledger.idle:
        answer(ledger, must_plan(ledger, 0.0), True)
        woken[ledger.spool.occupied_bytes] = ledger.spool.may_wake()
    assert woken == {held: held <= 6_000 for held in range(0, 9_000, 500)}


# -- copying remains together ------------------------------------------------------------------------------------------


def pinned(*parts: tuple[int, int], max_bytes: int = 100_000) -> Ledger:
    """A ledger under pressure; batch n left so many bytes of table 1, which cannot land, in a segment of that size."""
    ledger = Ledger(replace(LIMITS, spool_max_bytes=max_bytes, dispatcher_share=1.0, file_size_bytes=1 << 20))
    for n, (left, size) in enumerate(parts, start=1):
        other = item((n, 2), table_id=2, logical_table_id=2, table_name="t2", length=size - left)
        accept(ledger, n, item((n, 1), length=left), other, now=float(n))
        while (round_ := ledger.plan(n + 10.0, 0)) is not None:
            ledger.receive(round_, ledger.queues.dispatchers.table_id[round_.dispatcher] == 2, n + 1e6, 0.1)
    return ledger


def test_the_segments_that_hold_least_are_moved_first_whatever_is_too_large_to_move() -> None:
    ledger = pinned((10_000, 60_000), *[(2_000, 5_000)] * 2)
    move = ledger.remains()
    assert move is not None
    assert move.lengths.tolist() == [2_000] * 2, "one move takes at most a sixteenth of the spool"
    freed = ledger.moved(move, [Copy("copy", 1, 2_000 * n) for n in range(2)])
    assert sorted(freed) == ["2", "3"]
    assert ledger.spool.occupied_bytes == 60_000 + 4_000 + 3 * ITEM_BYTES


def test_a_slot_that_holds_another_item_before_its_move_is_over_changes_no_account() -> None:
    ledger = pinned(*[(100, 16_000)] * 5)
    move = ledger.remains()
    assert move is not None
    count = len(move.slots)
    round_ = must_plan(ledger, 1e7)  # the first of them lands at last
    answer(ledger, round_, True, now=1e7)
    accept(ledger, 9, item((9, 1), length=7_777), now=1e7)
    assert ledger.queues.items.length[move.slots].max() == 7_777, "its slot is used again"
    freed = ledger.moved(move, [Copy("copy", 1, 100 * n) for n in range(count)])
    assert len(freed) == count
    kept = 5 - count
    assert ledger.spool.occupied_bytes == 16_000 * kept + 100 * count + 7_777 + ITEM_BYTES * 5
    land_all(ledger, now=2e7)
    assert ledger.idle
    assert ledger.spool.occupied_bytes == 0


def test_without_places_nothing_has_moved_and_the_next_move_may_begin() -> None:
    ledger = pinned(*[(100, 16_000)] * 5)
    held, first = ledger.spool.occupied_bytes, ledger.remains()
    assert first is not None
    assert ledger.remains() is None
    assert ledger.moved(first, []) == []
    assert ledger.spool.occupied_bytes == held
    again = ledger.remains()
    assert again is not None
    assert again.slots.tolist() == first.slots.tolist()


def test_what_landed_meanwhile_is_freed_when_the_move_is_over_and_its_copy_with_it() -> None:
    ledger = pinned(*[(100, 16_000)] * 5)
    move = ledger.remains()
    assert move is not None
    held_by_move = {ledger.spool.path(segment) for segment in move.segments.tolist()}
    freed = [segment for durable in land_all(ledger, now=1e7) for segment in durable.segments]
    assert not held_by_move & set(freed), "who copies from them finds them there"
    rest = ledger.moved(move, [Copy("copy", 1, 100 * n) for n in range(len(move.slots))])
    assert sorted(rest) == sorted({*held_by_move, "copy"})
    assert ledger.spool.occupied_bytes == 0
