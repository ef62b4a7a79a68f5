"""The promises that the first design documents name tests for, each under its own words."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from tidegate.driver.changefeed import Changefeed
from tidegate.errors import BadEvents, TidegateError
from tidegate.executor.ingest import ingest
from tidegate.executor.rows import ITEMS
from tidegate.testing import (
    START_TS,
    FakeClock,
    MemoryStore,
    change,
    events_batch,
    feed,
    landed_lines,
    layout_row,
    open_changefeed,
    resolved_row,
)

Row = dict[str, object]


def tasks_in_any_order(changefeed: Changefeed, batch: int, parts: list[list[Row]], seed: int) -> pa.Table:
    """Each part is a task; encoders take random times, so their items come back in any order."""
    pauses = random.Random(seed)
    job = changefeed.intake.ingest_job(tasks=len(parts), allowance_bytes=1 << 30)
    done: list[pa.RecordBatch] = []

    def encode(number: int, pause: float) -> None:
        for rows in parts[number]:
            time.sleep(pause)
            done.extend(ingest([events_batch([layout_row(), rows])], job, f"{batch}-{number}-{id(rows)}"))

    with ThreadPoolExecutor(len(parts)) as pool:
        futures = [pool.submit(encode, n, pauses.random() / 200) for n in range(len(parts))]
    for future in futures:
        future.result()
    changefeed.intake.ingest_ended()
    pauses.shuffle(done)
    return pa.Table.from_batches(done, ITEMS)


def land_all(changefeed: Changefeed) -> None:
    changefeed.ledger.planner.closing = True
    while changefeed.landing.land_next():
        pass
    assert changefeed.ledger.idle


@pytest.mark.parametrize("seed", range(5))
def test_the_same_table_stays_in_order_under_random_encode_delays(tmp_path: Path, seed: int) -> None:
    store = MemoryStore()
    changefeed = open_changefeed(store, tmp_path)
    rows = [change(1, START_TS + 1 + n, n) for n in range(40)]
    parts = [rows[n : n + 10] for n in range(0, 40, 10)]
    items = tasks_in_any_order(changefeed, 0, parts, seed)
    changefeed.intake.learn(items)
    changefeed.intake.accept(0, items, None)
    land_all(changefeed)
    assert [line.values[0] for line in landed_lines(store)["shop.t1"]] == [str(n).encode() for n in range(40)]
    changefeed.close()


def test_different_tables_interleave(tmp_path: Path) -> None:
    """A table whose landing hangs does not hold up another, though it came first."""
    store, clock = MemoryStore(), FakeClock()
    changefeed = open_changefeed(store, tmp_path, clock, flush_interval_s=0.1, stall_s=0.2)
    store.begin("hang", "shop/t1/")
    rows = [change(1, START_TS + 1, 1), change(2, START_TS + 2, 2)]
    feed(changefeed, 0, [layout_row(), *rows, resolved_row(START_TS + 5)])
    clock.advance(1.0)
    changefeed.landing.land_next()
    assert list(landed_lines(store)) == ["shop.t2"]
    assert changefeed.ledger.checkpoint() == START_TS
    store.end("hang", "shop/t1/")
    clock.advance(10.0)
    land_all(changefeed)
    assert sorted(landed_lines(store)) == ["shop.t1", "shop.t2"]
    assert changefeed.ledger.checkpoint() == START_TS + 5
    changefeed.close()


@pytest.mark.parametrize("ordering", ["per-table", "global"])
def test_an_encode_error_hangs_nobody(tmp_path: Path, ordering: str) -> None:
    changefeed = open_changefeed(MemoryStore(), tmp_path, encoder_ordering=ordering, wake_mode="flush")
    feed(changefeed, 0, [layout_row(), change(1, START_TS + 1, 1)])
    ended: list[BaseException] = []

    def wait() -> None:
        try:
            changefeed.intake.await_wake(0, 0.0)
        except TidegateError as exc:
            ended.append(exc)

    waiter = threading.Thread(target=wait)
    waiter.start()
    with pytest.raises(BadEvents, match="values") as error:
        feed(changefeed, 1, [change(1, START_TS + 2, 2, b"one value too", b"many", b"!")])
    changefeed.life.fail(error.value)
    waiter.join(10)
    assert not waiter.is_alive()
    assert ended[0].__cause__ is error.value
    changefeed.close()
