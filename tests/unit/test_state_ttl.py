"""State that a TTL drops: a table that comes back goes on behind its files, whatever happens in between."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.control.columns import Keys
from tidegate.driver.changefeed import Changefeed
from tidegate.errors import TidegateError
from tidegate.format.layout import PathOptions
from tidegate.testing import (
    START_TS,
    FakeClock,
    MemoryStore,
    change,
    feed,
    landed_lines,
    layout_row,
    open_changefeed,
    resolved_row,
)

TTL_S = 100.0


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def opened(store: MemoryStore, place: Path, clock: FakeClock, **settings: Any) -> Changefeed:
    return open_changefeed(store, place / "spool", clock, state_ttl_s=TTL_S, **settings)


def land(changefeed: Changefeed, batch: int, tables: Iterable[int], clock: FakeClock) -> None:
    """One change for each table, landed, confirmed and checkpointed."""
    ts = START_TS + batch
    rows = [change(table, ts, batch * 100 + table) for table in tables]
    feed(changefeed, batch, [layout_row(), *rows, resolved_row(ts)], f"end-{batch}")
    settle(changefeed, clock)


def settle(changefeed: Changefeed, clock: FakeClock) -> None:
    clock.advance(6.0)
    for _ in range(20):
        if not changefeed.landing.land_next():
            clock.advance(1.5)
    changefeed.scribe.write_progress()


def known(changefeed: Changefeed) -> list[str]:
    queues = changefeed.ledger.queues
    return sorted(queues.name(n) for n in queues.known().tolist() if queues.names.tables[n])


def numbers(store: MemoryStore, table: str) -> list[str]:
    return sorted(path.rpartition("/")[2] for path in store.objects if f"/{table}/" in path and path.endswith(".csv"))


def test_the_state_of_an_idle_table_is_dropped_and_that_of_an_active_one_stays(
    tmp_path: Path, clock: FakeClock
) -> None:
    changefeed = opened(MemoryStore(), tmp_path, clock)
    land(changefeed, 1, (1, 2), clock)
    for batch in range(2, 12):
        land(changefeed, batch, (2,), clock)
    changefeed.scribe.write_progress()
    assert known(changefeed) == ["shop.t2"]
    assert len(changefeed.ledger.queues.dropped) == 1


def test_a_table_that_comes_back_goes_on_behind_its_files(tmp_path: Path, clock: FakeClock) -> None:
    store = MemoryStore()
    changefeed = opened(store, tmp_path, clock)
    land(changefeed, 1, (1, 2), clock)
    land(changefeed, 2, (1,), clock)
    clock.advance(3 * TTL_S)
    land(changefeed, 3, (2,), clock)
    assert known(changefeed) == ["shop.t2"]
    before = dict(store.objects)
    land(changefeed, 4, (1, 3), clock)
    assert [name[-5:] for name in numbers(store, "t1")] == ["1.csv", "2.csv", "3.csv"]
    assert len(landed_lines(store)["shop.t1"]) == 3
    data = {path: body for path, body in before.items() if path.endswith(".csv")}
    assert {path: store.objects[path] for path in data} == data
    assert not changefeed.ledger.queues.lanes.look.any()
    land(changefeed, 5, (1,), clock)
    assert len(numbers(store, "t1")) == 4


def test_on_another_day_it_begins_a_directory_of_its_own(tmp_path: Path, clock: FakeClock) -> None:
    store = MemoryStore()
    changefeed = opened(store, tmp_path, clock)
    land(changefeed, 1, (1,), clock)
    clock.advance(86_400)
    land(changefeed, 2, (2,), clock)
    land(changefeed, 3, (1,), clock)
    assert [name[-5:] for name in numbers(store, "t1")] == ["1.csv", "1.csv"]
    assert len(landed_lines(store)["shop.t1"]) == 2


def test_no_table_lands_under_an_older_date_than_any_did_before(tmp_path: Path, clock: FakeClock) -> None:
    store = MemoryStore()
    changefeed = opened(store, tmp_path, clock)
    land(changefeed, 1, (1,), clock)
    clock.advance(3 * TTL_S)
    land(changefeed, 2, (2,), clock)
    clock._wall = clock._wall.replace(day=clock._wall.day - 1)  # an administrator sets it back
    land(changefeed, 3, (1, 3), clock)
    dates = {path.split("/")[3] for path in store.objects if path.endswith(".csv")}
    assert dates == {"2026-01-31"}


def test_what_was_dropped_is_known_as_such_after_a_restart(tmp_path: Path, clock: FakeClock) -> None:
    store = MemoryStore()
    changefeed = opened(store, tmp_path, clock)
    land(changefeed, 1, (1, 2), clock)
    clock.advance(3 * TTL_S)
    land(changefeed, 2, (2,), clock)
    assert known(changefeed) == ["shop.t2"]
    changefeed.scribe.compact()
    changefeed.close()
    again = opened(MemoryStore(objects=store.objects), tmp_path, clock)
    assert known(again) == ["shop.t2"]
    assert len(again.ledger.queues.dropped) == 1
    land(again, 3, (1,), clock)
    assert [name[-5:] for name in numbers(store, "t1")] == ["1.csv", "2.csv"]
    again.close()


@pytest.mark.parametrize("word", ["unavailable", "lost", "refuse"])
@pytest.mark.parametrize("kill_at", range(12))
def test_a_kill_while_it_comes_back_loses_and_doubles_nothing(
    tmp_path: Path, clock: FakeClock, kill_at: int, word: str
) -> None:
    """All rows have the same size, so an old file could be taken for a new one."""
    objects: dict[str, bytes] = {}
    changefeed = opened(MemoryStore(objects=objects), tmp_path, clock)
    land(changefeed, 1, (1, 2), clock)
    clock.advance(3 * TTL_S)
    land(changefeed, 2, (2,), clock)
    changefeed.scribe.compact()
    changefeed.close()
    store = MemoryStore(objects=objects)
    killed = opened(store, tmp_path, clock)
    store.script = ["ok"] * (store.writes + kill_at) + [word]
    store.after = "unavailable"
    for batch in (3, 4):
        try:
            land(killed, batch, (1,), clock)
        except TidegateError:
            break
    killed.spool.close()
    again = opened(MemoryStore(objects=objects), tmp_path, clock)
    for batch in (3, 4):  # the source replays; what is durable is dropped
        land(again, batch, (1,), clock)
    lines = [line.values[0] for line in landed_lines(MemoryStore(objects=objects))["shop.t1"]]
    assert lines == [b"101", b"301", b"401"]
    again.close()


@given(st.lists(st.tuples(st.booleans(), st.sets(st.integers(0, 20), min_size=1)), max_size=30))
def test_keys_that_are_removed_and_come_back_never_share_a_number(steps: list[tuple[bool, set[int]]]) -> None:
    keys, model = Keys(), dict[int, int]()
    for add, ids in steps:
        chosen = np.array(sorted(ids if add else ids & set(model)), np.int64)
        zero = np.zeros(len(chosen), np.int64)
        if add:
            given, _ = keys.numbers(chosen, zero)
            for key, number in zip(chosen.tolist(), given.tolist(), strict=True):
                assert model.setdefault(key, number) == number
        else:
            keys.remove(chosen, zero)
            for key in chosen.tolist():
                del model[key]
        assert len(set(model.values())) == len(model) == len(keys)
        assert max(model.values(), default=0) <= 20, "numbers are given again"
        everything = np.arange(21)
        assert keys.find(everything, np.zeros(21, np.int64)).tolist() == [model.get(n, -1) for n in range(21)]


def test_tables_that_come_and_go_leave_eight_bytes_each(tmp_path: Path, clock: FakeClock) -> None:
    changefeed = opened(MemoryStore(), tmp_path, clock)
    queues = changefeed.ledger.queues
    for batch in range(1, 13):
        land(changefeed, batch, range(batch * 10, batch * 10 + 10), clock)
        clock.advance(2 * TTL_S)
    changefeed.scribe.write_progress()
    assert len(queues.known()) <= 20, "those of the last rounds, and the table trigger"
    assert queues.dispatchers.size <= 40, "numbers are given again"
    assert queues.dropped.nbytes == 8 * len(queues.dropped) >= 8 * 100


# -- partitions that share a lane --------------------------------------------------------------------------------------


def land_parts(changefeed: Changefeed, batch: int, partitions: Iterable[int], clock: FakeClock) -> None:
    """One change for each of these partitions of table 10, whose files have one index."""
    ts = START_TS + batch
    rows = [change(part, ts, batch * 100 + part, table_name="t10", logical_table_id=10) for part in partitions]
    feed(changefeed, batch, [layout_row(), *rows, resolved_row(ts)], f"end-{batch}")
    settle(changefeed, clock)


def opened_shared(store: MemoryStore, place: Path, clock: FakeClock) -> Changefeed:
    return opened(store, place, clock, partition_separator=False)


def ids(store: MemoryStore) -> list[int]:
    lines = landed_lines(store, PathOptions(partition_separator=False))["shop.t10"]
    return [int(line.values[0] or b"") for line in lines]


def test_a_shared_lane_stays_until_its_last_partition_is_idle(tmp_path: Path, clock: FakeClock) -> None:
    store = MemoryStore()
    changefeed = opened_shared(store, tmp_path, clock)
    queues = changefeed.ledger.queues
    land_parts(changefeed, 1, (11, 12), clock)
    clock.advance(3 * TTL_S)
    land_parts(changefeed, 2, (12,), clock)
    assert len(known(changefeed)) == 1
    assert not len(queues.dropped), "the lane is in use"
    land_parts(changefeed, 3, (11,), clock)
    assert ids(store) == [111, 112, 212, 311]
    clock.advance(3 * TTL_S)
    changefeed.scribe.write_progress()
    clock.advance(3 * TTL_S)
    changefeed.scribe.write_progress()
    assert known(changefeed) == []
    assert len(queues.dropped) == 1


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("partition", [11, 13])
def test_a_shared_lane_that_was_given_up_is_looked_at_whichever_partition_comes(
    tmp_path: Path, clock: FakeClock, partition: int, restarts: bool
) -> None:
    """Also one that nobody has seen: its rows go to the same files."""
    store = MemoryStore()
    changefeed = opened_shared(store, tmp_path, clock)
    land_parts(changefeed, 1, (11, 12), clock)
    for _ in range(2):
        clock.advance(3 * TTL_S)
        changefeed.scribe.write_progress()
    assert known(changefeed) == []
    if restarts:
        changefeed.scribe.compact()
        changefeed.close()
        changefeed = opened_shared(store, tmp_path, clock)
    land_parts(changefeed, 2, (partition, 12), clock)
    assert sorted(ids(store)) == sorted([111, 112, 200 + partition, 212])
    assert not changefeed.ledger.queues.lanes.look.any()
    land_parts(changefeed, 3, (11,), clock)
    assert ids(store)[-1] == 311
