"""What the source is told: how much fits, which tables to hold back, and when nothing but a larger spool helps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidegate.control.barrier import Key
from tidegate.control.blocking import Ddl
from tidegate.control.ledger import Ledger
from tidegate.control.limits import Limits
from tidegate.control.reading import read_limit_bytes
from tidegate.control.spool import ITEM_BYTES
from tidegate.events import MOST_HELD
from tidegate.executor.rows import ITEMS
from tidegate.format.ddl.events import ALTERS
from tidegate.format.ddl.scope import Table, alter_table

LIMITS = Limits(file_size_bytes=1_000, flush_interval_s=5.0, spool_max_bytes=100_000)
MIB = 1 << 20


def opened(**changes: Any) -> Ledger:
    ledger = Ledger(replace(LIMITS, **changes))
    ledger.reading.expansion = 1.0
    return ledger


def come(ledger: Ledger, batch: int, rows: list[tuple[int, int, int]], alter: tuple[int, int] | None = None) -> None:
    """A batch of one-row items, (table, commit-ts, bytes), and maybe a DDL (table, commit-ts)."""
    items = [
        {
            "kind": "rows", "table_id": table, "span": 0, "logical_table_id": table, "schema_id": 1,
            "schema_name": "shop", "table_name": f"t{table}", "version": 1, "layout": 7, "first_ts": ts,
            "first_seq": ts, "last_ts": ts, "last_seq": ts, "rows": 1, "tier": 1, "segment": f"{batch}-{at}",
            "offset": 0, "length": size, "checksum": 0,
        }
        for at, (table, ts, size) in enumerate(rows)
    ]  # fmt: skip
    ddls = []
    if alter is not None:
        event = alter_table(ALTERS["add column"], Table(1, "shop", f"t{alter[0]}", alter[0]), "ALTER TABLE `t` ADD `c`")
        assert event is not None
        ddls.append(Ddl(Key(alter[1], 0), alter[0], event))
    ledger.accept(batch, pa.Table.from_pylist(items, schema=ITEMS), 0.0, f"{batch}", 0, ddls)


def land_all(ledger: Ledger) -> None:
    while (round_ := ledger.plan(200.0, 0)) is not None:
        ledger.receive(round_, np.ones(len(round_), bool), 200.0, 0.1)


@pytest.mark.parametrize(("max_bytes", "limit"), [(10 << 30, 256 * MIB), (100 * MIB, 20 * MIB), (1_000, 200), (1, 1)])
def test_a_micro_batch_is_a_fifth_of_the_spool_at_most(max_bytes: int, limit: int) -> None:
    assert read_limit_bytes(max_bytes) == limit


def test_what_is_told_fits_into_what_is_left() -> None:
    ledger = opened()
    assert (ledger.reading.limit_bytes, ledger.reading.room_bytes) == (20_000, None)
    come(ledger, 0, [(1, 1, 5_000), (2, 1, 90_000 - 2 * ITEM_BYTES)])
    assert (ledger.reading.limit_bytes, ledger.reading.room_bytes) == (5_000, 5_000)


def test_an_estimate_is_corrected_by_what_micro_batches_have_become() -> None:
    """Upwards at once, downwards step by step; before the first one it is taken for far too low."""
    ledger = Ledger(LIMITS)
    found = [ledger.reading.limit_bytes]
    for estimated, became in [(1_250, 5_000), (5_000, 50_000), (2_000, 2_000), (2_000, 2_000), (10, 1_000), (0, 0)]:
        ledger.reading.measured(estimated, became)
        found.append(ledger.reading.limit_bytes)
    assert found == [1_250, 5_000, 2_000, 2_666, 3_555, 3_555, 3_555]
    for _ in range(20):
        ledger.reading.measured(2_000, 200)  # most of it was filtered
    assert ledger.reading.limit_bytes == 20_000


def test_the_largest_tables_are_held_if_more_are_over_their_share_than_an_offset_may_name() -> None:
    ledger = opened(dispatcher_share=1 / 10_000)
    come(ledger, 0, [(table, 1, 100 + table) for table in range(1, 2 * MOST_HELD + 1)])
    assert ledger.reading.held_tables == set(range(MOST_HELD + 1, 2 * MOST_HELD + 1))


def test_tables_with_frozen_items_are_held_only_while_the_spool_is_above_its_marks_and_the_ddl_lacks_changes() -> None:
    ledger = opened(dispatcher_share=1.0)
    come(ledger, 0, [(1, 2, 30_000), (1, 9, 30_000), (2, 9, 100)], alter=(1, 5))
    assert ledger.reading.held_tables == set(), "below the marks all may come"
    come(ledger, 1, [(3, 9, 30_000)])
    assert ledger.reading.held_tables == set(), "what is before the marker can still land"
    land_all(ledger)
    come(ledger, 2, [(1, 10, 60_000)])
    assert ledger.reading.held_tables == {1}
    assert ledger.reading.may_exceed_marks
    ledger.progress.resolved_ts = 4
    assert ledger.reading.held_tables == set(), "the DDL lacks nothing, so landing makes room"
    assert not ledger.reading.may_exceed_marks


def test_a_spool_is_too_small_only_when_it_is_full_and_nothing_under_way_can_make_room() -> None:
    ledger = opened(dispatcher_share=1.0)
    come(ledger, 0, [(1, 9, 60_000), (2, 9, 50_000)], alter=(1, 5))
    assert ledger.reading.too_small_for is None, "table 2 can land"
    round_ = ledger.plan(100.0, 0)
    assert round_ is not None
    assert ledger.reading.too_small_for is None, "and does"
    ledger.receive(round_, np.zeros(len(round_), bool), 100.0, 0.1)
    assert ledger.reading.too_small_for is None, "or will, when the store works again"
    assert not ledger.reading.may_exceed_marks, "but there is no room meanwhile"
    land_all(ledger)
    assert ledger.reading.may_exceed_marks
    come(ledger, 1, [(1, 10, 60_000)])
    full = ledger.reading.too_small_for
    assert full is not None
    assert full.ts == 5
    assert ledger.reading.needed_bytes == int(ledger.spool.occupied_bytes / 0.8) + 1
