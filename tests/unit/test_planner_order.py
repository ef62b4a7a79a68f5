"""What the planner keeps in conflict: the bound of the spool, then age, then file size, then the number of requests."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidegate.control.ledger import Ledger
from tidegate.control.limits import Limits
from tidegate.control.rounds import Round
from tidegate.executor.rows import ITEMS

DAY = 20260131
OLD, FULL, LARGE = range(1, 101), 500, 900


def ledger(spool_max_bytes: int = 1 << 30, put_budget: int | None = None, round_tables: int = 20_000) -> Ledger:
    return Ledger(
        Limits(
            file_size_bytes=1_000,
            flush_interval_s=5.0,
            spool_max_bytes=spool_max_bytes,
            put_budget=put_budget,
            round_tables=round_tables,
            dispatcher_share=1.0,
        )
    )


def accept(to: Ledger, batch: int, sizes: dict[int, int], now: float) -> None:
    """One item for each table, of so many bytes, in a segment of its own."""
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


def plan(to: Ledger, now: float) -> Round:
    round_ = to.plan(now, DAY)
    assert round_ is not None
    return round_


def tables(to: Ledger, round_: Round) -> list[int]:
    ids: list[int] = to.queues.dispatchers.table_id[round_.dispatcher].tolist()
    return ids


def land(to: Ledger, round_: Round, now: float) -> None:
    to.receive(round_, np.ones(len(round_), np.bool_), now, 0.1)


def test_memory_before_age_above_the_high_mark_what_frees_the_spool_lands_before_what_is_old() -> None:
    feed = ledger(spool_max_bytes=100_000)
    accept(feed, 1, dict.fromkeys(OLD, 1), now=0.0)
    accept(feed, 2, dict.fromkeys(range(LARGE, LARGE + 90), 900), now=4.9)
    assert not feed.spool.may_wake()
    first = plan(feed, 5.0)
    assert set(first.reason.tolist()) == {"pressure"}
    assert set(tables(feed, first)) <= set(range(LARGE, LARGE + 90))
    assert set(plan(feed, 5.0).reason.tolist()) == {"interval"}, "enough is under way, so age has its turn"


def test_age_before_memory_below_the_high_mark_what_is_old_lands_first() -> None:
    feed = ledger(spool_max_bytes=120_000)
    accept(feed, 1, dict.fromkeys(OLD, 1), now=0.0)
    accept(feed, 2, dict.fromkeys(range(LARGE, LARGE + 50), 900), now=4.9)
    assert feed.spool.under_pressure()
    assert not feed.spool.above_high_mark
    assert set(plan(feed, 5.0).reason.tolist()) == {"interval"}


def test_memory_before_file_size_above_the_high_mark_files_may_be_smaller() -> None:
    feed = ledger(spool_max_bytes=100_000)
    accept(feed, 1, {FULL: 1_000, LARGE: 97_900}, now=0.0)
    accept(feed, 2, {LARGE: 10}, now=0.0)
    first = plan(feed, 0.1)
    assert tables(feed, first)[0] == LARGE
    assert set(first.reason.tolist()) == {"pressure"}
    assert first.bytes.tolist()[-1] < 1_000, "the rest of its queue is a small file"


def test_memory_before_requests_above_the_high_mark_the_budget_is_not_asked() -> None:
    feed = ledger(spool_max_bytes=100_000, put_budget=1)
    accept(feed, 1, dict.fromkeys(range(1, 91), 900), now=0.0)
    spent = plan(feed, 0.0)
    assert len(spent) > 2, "two seconds of the budget are two requests"
    land(feed, spent, 0.1)
    assert feed.planner.budget.requests < 0
    assert feed.spool.occupied_bytes <= feed.spool.low_mark
    assert feed.plan(0.2, DAY) is None, "at the low mark the budget counts again"


def test_age_before_file_size_what_is_old_lands_first_and_in_a_small_file() -> None:
    feed = ledger()
    accept(feed, 1, dict.fromkeys(OLD, 10), now=0.0)
    accept(feed, 2, {FULL: 1_000}, now=4.9)
    first = plan(feed, 5.0)
    assert tables(feed, first) == list(OLD)
    assert tables(feed, plan(feed, 5.0)) == [FULL]


def test_a_full_file_waits_for_one_round_of_old_tables_not_for_twenty() -> None:
    feed = ledger(round_tables=10)
    accept(feed, 1, dict.fromkeys(range(1, 201), 10), now=0.0)
    accept(feed, 2, {FULL: 1_000}, now=4.9)
    reasons = [plan(feed, 5.0).reason[0] for _ in range(21)]
    assert reasons.index("size") == 1
    assert reasons.count("fanout") + reasons.count("interval") == 20, "and age goes on after it"


def test_old_tables_wait_for_one_round_of_full_files_not_for_all() -> None:
    feed = ledger(put_budget=1_000, round_tables=10)
    for batch in range(1, 5):
        accept(feed, batch, dict.fromkeys(range(FULL + batch * 10, FULL + batch * 10 + 10), 1_000), now=4.9)
    accept(feed, 9, {1: 10}, now=0.0)
    reasons = [plan(feed, 5.0).reason[0] for _ in range(3)]
    assert reasons == ["size", "interval", "size"], "with a budget full files begin, and then they take turns, too"


def test_age_before_requests_without_a_budget_every_table_lands_at_its_age() -> None:
    feed = ledger()
    accept(feed, 1, dict.fromkeys(OLD, 1), now=0.0)
    assert tables(feed, plan(feed, 4.6)) == list(OLD), "a hundred files of one byte, three hundred requests"


def test_file_size_before_requests_a_queue_of_many_files_is_not_one_large_file() -> None:
    feed = ledger(put_budget=1_000)
    for batch in range(1, 11):
        accept(feed, batch, {FULL: 500}, now=0.0)
    assert plan(feed, 0.1).bytes.tolist() == [1_000] * 5
