"""The request budget, and lists of first tables. A landing of one file takes two requests, four with its schema."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.config.settings import load_settings
from tidegate.control.ledger import Ledger
from tidegate.control.limits import Limits
from tidegate.control.rounds import Round
from tidegate.control.top import top_tables
from tidegate.errors import BadSetting
from tidegate.executor.rows import ITEMS
from tidegate.observe.status import Rate

DAY = 20260131


def ledger(put_budget: int | None) -> Ledger:
    return Ledger(Limits(file_size_bytes=1_000, flush_interval_s=5.0, put_budget=put_budget))


def accept(to: Ledger, batch: int, sizes: dict[int, int], now: float) -> None:
    """One item for each table, of so many bytes."""
    rows = [
        {
            "kind": "rows", "table_id": table, "span": 0, "logical_table_id": table, "schema_name": "shop",
            "table_name": f"t{table}", "version": 1, "layout": 7, "first_ts": batch, "first_seq": table,
            "last_ts": batch, "last_seq": table, "rows": 1, "tier": 1, "segment": f"{batch}-{table}", "offset": 0,
            "length": size, "checksum": 0,
        }
        for table, size in sizes.items()
    ]  # fmt: skip
    to.accept(batch, pa.Table.from_pylist(rows, schema=ITEMS), now, None)


def tables(to: Ledger, round_: Round) -> list[int]:
    found: list[int] = to.queues.dispatchers.table_id[round_.dispatcher].tolist()
    return found


def land(to: Ledger, round_: Round, now: float) -> None:
    to.receive(round_, np.ones(len(round_), np.bool_), now, 0.1)


def requests(round_: Round) -> int:
    return len(round_) + len(np.unique(round_.lane)) + 2 * int((round_.schema != 0).sum())


def test_without_a_budget_all_that_is_due_lands_at_once() -> None:
    feed = ledger(None)
    accept(feed, 1, dict.fromkeys(range(1, 101), 10), now=0.0)
    round_ = feed.plan(5.0, DAY)
    assert round_ is not None
    assert len(round_) == 100
    assert feed.planner.budget.late_s == 0.0


def test_the_largest_of_the_oldest_get_the_requests_and_the_rest_waits_its_turn() -> None:
    feed = ledger(30)
    accept(feed, 1, {table: table for table in range(1, 101)}, now=0.0)
    first = feed.plan(5.0, DAY)
    assert first is not None
    assert sorted(tables(feed, first)) == list(range(71, 101)), "two seconds of the budget, two requests each"
    land(feed, first, 5.0)
    assert feed.plan(5.1, DAY) is None
    assert feed.planner.budget.late_s > 0.0, "it says that the age bound does not hold"
    later = [feed.plan(5.1 + n, DAY) for n in range(1, 40)]
    landed = [table for round_ in later if round_ is not None for table in tables(feed, round_)]
    assert sorted(landed) == list(range(1, 71)), "all have their turn"


def test_a_whole_file_goes_before_small_ones_that_are_older() -> None:
    feed = ledger(3)
    accept(feed, 1, dict.fromkeys(range(1, 50), 10), now=0.0)
    accept(feed, 2, {99: 1_000}, now=4.9)
    round_ = feed.plan(5.0, DAY)
    assert round_ is not None
    assert tables(feed, round_) == [99]


def test_closing_goes_past_the_budget() -> None:
    feed = ledger(1)
    accept(feed, 1, dict.fromkeys(range(1, 51), 10), now=0.0)
    feed.planner.closing = True
    round_ = feed.plan(0.1, DAY)
    assert round_ is not None
    assert len(round_) == 50


def test_a_retry_is_paid_for_too() -> None:
    feed = ledger(30)
    accept(feed, 1, dict.fromkeys(range(1, 11), 10), now=0.0)
    round_ = feed.plan(5.0, DAY)
    assert round_ is not None
    feed.receive(round_, np.zeros(len(round_), np.bool_), 5.0, 0.1)
    before = feed.planner.budget.requests
    again = feed.plan(6.5, DAY)
    assert again is not None
    assert feed.planner.budget.requests < before + 30 * 1.5


def test_requests_beyond_the_least_are_paid_when_the_round_has_answered() -> None:
    feed = ledger(30)
    accept(feed, 1, dict.fromkeys(range(1, 11), 10), now=0.0)
    round_ = feed.plan(5.0, DAY)
    assert round_ is not None
    before = feed.planner.budget.requests
    landed = np.ones(len(round_), np.bool_)
    feed.receive(round_, landed, 5.0, 0.1, requests=requests(round_) + 7)
    assert feed.planner.budget.requests == before - 7, "seven index files had to be read"


@given(
    budget=st.integers(3, 200),
    count=st.integers(1, 300),
    every=st.floats(0.05, 2.0),
    seconds=st.integers(5, 40),
)
def test_over_any_time_no_more_is_asked_than_the_budget_and_what_was_saved(
    budget: int, count: int, every: float, seconds: int
) -> None:
    feed = ledger(budget)
    asked, now, batch = 0, 0.0, 0
    largest = 0
    while now < seconds:
        batch += 1
        accept(feed, batch, dict.fromkeys(range(1, count + 1), 10), now)
        while (round_ := feed.plan(now, DAY)) is not None:
            asked, largest = asked + requests(round_), max(largest, requests(round_))
            land(feed, round_, now)
        now += every
    # A round is planned for two requests a table; schema files come on top and are paid back later.
    assert asked <= budget * (now + 2.0) + largest


def test_a_budget_is_a_positive_number_or_off() -> None:
    assert load_settings("noop://").put_budget is None
    assert load_settings("noop://?put-budget=500").put_budget == 500
    assert load_settings("noop://?put-budget=off").put_budget is None
    with pytest.raises(BadSetting, match="put-budget"):
        load_settings("noop://?put-budget=0")


def test_the_rate_of_requests_is_that_of_the_last_minute() -> None:
    rate = Rate()
    assert rate.per_s(0.0) == 0.0
    for second in range(120):
        rate.add(float(second), 10)
    assert rate.per_s(119.0) == pytest.approx(10.0, rel=0.05)
    assert rate.per_s(178.5) == pytest.approx(10 / 60, rel=0.1)
    assert rate.per_s(500.0) == 0.0


def test_first_tables_are_listed_by_lag_small_files_and_bytes() -> None:
    feed = ledger(None)
    accept(feed, 1, {1: 500, 2: 10, 3: 900}, now=0.0)
    round_ = feed.plan(5.0, DAY)
    assert round_ is not None
    land(feed, round_, 5.0)
    accept(feed, 2, {2: 10}, now=6.0)
    accept(feed, 3, {3: 10, 1: 10}, now=8.0)
    top = partial(top_tables, feed.queues)
    assert [(line.table, line.lag_s) for line in top("lag", 2, 9.0)] == [
        ("shop.t2", 3.0),
        ("shop.t1", 1.0),
    ]
    assert [line.table for line in top("small-files", 2, 9.0)] == ["shop.t2", "shop.t1"]
    assert [(line.table, line.landed_bytes) for line in top("bytes", 1, 9.0)] == [("shop.t3", 900)]
    assert [line.waiting_bytes for line in top("bytes", 3, 9.0)] == [10, 10, 10]
    assert top("lag", 0, 9.0) == []
