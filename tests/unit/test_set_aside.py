"""A table that cannot be written is set aside: the others land, the spool keeps its size, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tidegate.control.compaction import Move
from tidegate.driver.changefeed import Changefeed
from tidegate.errors import SpoolLost, TidegateError
from tidegate.events import DDL
from tidegate.executor.spool import Appended, Room, Slice, gather
from tidegate.format.ddl.events import ALTERS
from tidegate.format.ddl.scope import Table, alter_table
from tidegate.format.tables import Column, Layout
from tidegate.sources.source import Demand
from tidegate.testing import (
    SHAPE,
    START_TS,
    FakeClock,
    MemoryStore,
    TinySource,
    change,
    feed,
    landed_lines,
    layout_row,
    open_changefeed,
    resolved_row,
)

Open = Callable[..., Changefeed]
MIB = 1 << 20
SOURCE = TinySource(tables=2, batches=4, rows=2)


@pytest.fixture
def opened(store: MemoryStore, tmp_path: Path) -> Iterator[Open]:
    """Opens changefeeds on the store whose spool is on disk alone; the one before is killed first."""
    made: list[Changefeed] = []

    def end() -> None:
        if made:
            made[-1].life.fail(TidegateError("killed"))
            made[-1].close()

    def make(**settings: Any) -> Changefeed:
        end()
        made.append(open_changefeed(store, tmp_path / "spool", FakeClock(), stall_s=0.05, **settings))
        made[-1].spool.memory_limit = 0
        return made[-1]

    yield make
    end()


def land_due(changefeed: Changefeed, seconds: float = 5.0) -> None:
    assert isinstance(changefeed.clock, FakeClock)
    changefeed.clock.advance(seconds)
    while changefeed.landing.land_next():
        pass


def on_disk(changefeed: Changefeed) -> int:
    return sum(path.stat().st_size for path in changefeed.spool.disk.glob("*.seg"))


def numbers(store: MemoryStore, table: int) -> list[int]:
    return [int(line.values[0] or b"") for line in landed_lines(store).get(f"shop.t{table}", [])]


def load(n: int, tables: int, size: int, small: int) -> list[dict[str, Any]]:
    """Batch n: a little of table 1, and so much of each other table."""
    first = change(1, START_TS + n, 0, b"%d" % n, b"x" * small)
    others = (change(t, START_TS + n, t, b"%d" % n, b"x" * size) for t in range(2, tables + 1))
    return [layout_row(), first, *others, resolved_row(START_TS + n)]


@pytest.mark.parametrize(("fault", "seconds"), [("refuse", 600), ("unavailable", 150), ("lost", 150)])
def test_ten_minutes_of_one_unwritable_table_under_load_cost_the_others_nothing(
    opened: Open, store: MemoryStore, fault: str, seconds: int
) -> None:
    changefeed = opened(spool_max_bytes=8 * MIB, file_size_bytes=256 << 10)
    store.begin(fault, "/t1/")
    most, last = 0, seconds // 5
    for n in range(1, last + 1):
        feed(changefeed, n, load(n, tables=4, size=130_000, small=2_000), str(n))
        most = max(most, on_disk(changefeed))
        land_due(changefeed)
        assert changefeed.ledger.spool.may_wake(), "the upstream never waits"
    status = changefeed.status()
    assert list(status.retrying) == ["shop.t1"]
    assert numbers(store, 2) == list(range(1, last + 1)), "nothing of the others waits"
    assert last * 390_000 > 8 * MIB >= most, "more came along with the table that cannot land than the spool holds"
    assert on_disk(changefeed) + 256 * changefeed.ledger.spool.items == status.spool_bytes
    assert changefeed.ledger.queues.items.size < 1_000
    assert changefeed.metrics.value("spool_moved_bytes_total") > 0
    changefeed.scribe.write_progress()
    assert status.checkpoint_ts == START_TS, "the checkpoint passes nothing of the table"
    store.end(fault, "/t1/")
    land_due(changefeed, 60.0)
    land_due(changefeed)
    assert numbers(store, 1) == list(range(1, last + 1)), "each once, in order"
    assert changefeed.ledger.idle
    assert on_disk(changefeed) == 0
    assert changefeed.status().checkpoint_ts == START_TS + last


def test_a_table_that_hangs_pins_no_space_of_the_others_either(opened: Open, store: MemoryStore) -> None:
    changefeed = opened(spool_max_bytes=2 * MIB, file_size_bytes=256 << 10)
    store.begin("hang", "/t1/")
    for n in range(1, 31):
        feed(changefeed, n, load(n, tables=5, size=50_000, small=1_000), str(n))
        land_due(changefeed)
        assert changefeed.ledger.spool.may_wake()
        assert on_disk(changefeed) <= 2 * MIB
    assert "no answer" in changefeed.status().retrying["shop.t1"]
    store.end("hang", "/t1/")
    land_due(changefeed, 60.0)
    land_due(changefeed)
    assert numbers(store, 1) == list(range(1, 31))


def test_a_table_that_alone_fills_its_share_is_held_and_the_others_go_on(opened: Open, store: MemoryStore) -> None:
    changefeed = opened(spool_max_bytes=2 * MIB, file_size_bytes=64 << 10, dispatcher_share=1 / 8)
    store.begin("refuse", "/t1/")
    demand = Path(changefeed.options.spool.demand_file)
    n = 0
    while not demand.exists() or Demand.from_json(demand.read_text()).held != {1}:  # sources stop handing it out here
        n += 1
        feed(changefeed, n, load(n, tables=5, size=40_000, small=20_000), str(n))
        land_due(changefeed)
    assert 10 < n < 20
    for m in range(n + 1, n + 60):
        feed(changefeed, m, load(m, tables=5, size=40_000, small=1)[2:], str(m))
        land_due(changefeed)
        assert changefeed.ledger.spool.may_wake()
        assert on_disk(changefeed) <= 2 * MIB
    assert numbers(store, 2) == list(range(1, n + 60))
    store.end("refuse", "/t1/")
    land_due(changefeed, 60.0)
    land_due(changefeed)
    assert Demand.from_json(demand.read_text()).held == set()
    assert numbers(store, 1) == list(range(1, n + 1))


def test_after_a_kill_and_a_restart_a_table_that_was_set_aside_lands_each_change_once(
    opened: Open, store: MemoryStore
) -> None:
    changefeed = opened(spool_max_bytes=2 * MIB, file_size_bytes=64 << 10)
    store.begin("refuse", "/t1/")
    for n in range(1, 21):
        feed(changefeed, n, load(n, tables=5, size=50_000, small=1_000), str(n))
        land_due(changefeed)
    changefeed.scribe.write_progress()
    again = opened(spool_max_bytes=2 * MIB, file_size_bytes=64 << 10)
    assert again.ledger.progress.position is None, "all is read again, and what landed is dropped"
    store.end("refuse", "/t1/")
    for n in range(1, 25):
        feed(again, n, load(n, tables=5, size=50_000, small=1_000), str(n))
    land_due(again)
    land_due(again)
    assert [numbers(store, table) for table in (1, 5)] == [list(range(1, 25))] * 2


def test_a_table_that_waits_for_its_ddl_pins_no_space_of_the_others(opened: Open, store: MemoryStore) -> None:
    changefeed = opened(spool_max_bytes=2 * MIB, file_size_bytes=256 << 10, dispatcher_share=1.0)
    wide = Layout((*SHAPE.columns, Column("w", "int")))
    event = alter_table(ALTERS["add column"], Table(1, "shop", "t1", 1, wide), "ALTER TABLE `t1` ADD COLUMN `w` INT")
    assert event is not None
    ddl = {"kind": DDL, "commit_ts": START_TS + 1, "seq": 0, "table_id": 1, "ddl": event.to_json()}
    store.begin("refuse", f"schema_{START_TS + 1}_")
    feed(changefeed, 0, [layout_row(), layout_row(wide), ddl], "0")
    for n in range(2, 32):
        _, first, *rest = load(n, tables=5, size=50_000, small=1_000)
        first |= {"table_version": START_TS + 1, "layout": wide.fingerprint, "after": [*first["after"], b"1"]}
        feed(changefeed, n, [first, *rest], str(n))
        land_due(changefeed)
        assert changefeed.ledger.spool.may_wake()
        assert on_disk(changefeed) <= 2 * MIB
    assert "refused" in changefeed.status().ddls[f"{START_TS + 1}/0"].waits_for
    assert numbers(store, 2) == list(range(2, 32))
    store.end("refuse", f"schema_{START_TS + 1}_")
    land_due(changefeed, 60.0)
    land_due(changefeed)
    of_table = {path: data for path, data in store.objects.items() if path.startswith("shop/t1/")}
    lines = landed_lines(MemoryStore(objects=of_table), layout=wide)
    assert [int(line.values[0] or b"") for line in lines["shop.t1"]] == list(range(2, 32))


# -- copying together --------------------------------------------------------------------------------------------------


def crowded(changefeed: Changefeed, store: MemoryStore) -> int:
    """A spool under pressure whose segments hold little but one table that cannot land; returns the batches."""
    store.begin("refuse", "/t1/")
    gathering, changefeed.jobs.run_gather = changefeed.jobs.run_gather, refuse_to_gather
    n = 0
    while not changefeed.ledger.spool.under_pressure():
        n += 1
        feed(changefeed, n, load(n, tables=3, size=50_000, small=1_000), str(n))
        land_due(changefeed)
    changefeed.jobs.run_gather = gathering
    assert isinstance(changefeed.clock, FakeClock)
    changefeed.clock.advance(10.0)
    return n


def refuse_to_gather(slices: list[Slice], room: Room, name: str) -> list[Appended]:
    raise OSError("no space left on device\nat ...")


def test_a_failed_copy_leaves_all_as_it_was_and_is_tried_again_later(opened: Open, store: MemoryStore) -> None:
    changefeed = opened(spool_max_bytes=MIB, file_size_bytes=64 << 10)
    n = crowded(changefeed, store)
    calls: list[str] = []

    def half(slices: list[Slice], room: Room, name: str) -> list[Appended]:
        calls.append(name)
        gather(slices[: len(slices) // 2], room, name)
        return refuse_to_gather(slices, room, name)

    changefeed.jobs.run_gather = half
    before = on_disk(changefeed)
    for _ in range(5):
        land_due(changefeed, 1.0)
    assert len(calls) == 1, "not at once again"
    assert on_disk(changefeed) == before, "what was half copied is deleted"
    land_due(changefeed, 10.0)
    assert len(calls) == 2
    changefeed.jobs.run_gather = gather
    land_due(changefeed, 10.0)
    assert not changefeed.ledger.spool.under_pressure()
    assert on_disk(changefeed) < before
    store.end("refuse", "/t1/")
    land_due(changefeed, 60.0)
    land_due(changefeed)
    assert numbers(store, 1) == list(range(1, n + 1))


def test_a_table_that_recovers_while_it_is_copied_is_read_where_it_was(opened: Open, store: MemoryStore) -> None:
    changefeed = opened(spool_max_bytes=MIB, file_size_bytes=64 << 10)
    n = crowded(changefeed, store)

    def meanwhile(slices: list[Slice], room: Room, name: str) -> list[Appended]:
        copied = gather(slices, room, name)
        store.end("refuse", "/t1/")
        land_due(changefeed, 60.0)  # the retry, and all behind it
        land_due(changefeed)
        return copied

    changefeed.jobs.run_gather = meanwhile
    assert changefeed.landing.land_next()
    assert numbers(store, 1) == list(range(1, n + 1))
    assert changefeed.ledger.idle
    assert on_disk(changefeed) == 0
    assert changefeed.status().spool_bytes == 0


def test_a_landing_under_way_while_it_is_copied_reads_what_it_was_told(opened: Open, store: MemoryStore) -> None:
    changefeed = opened(spool_max_bytes=MIB, file_size_bytes=64 << 10)
    n = crowded(changefeed, store)
    moves: list[Move] = []
    land = changefeed.jobs.run_files

    def run(plans: Any, job: Any) -> Any:
        with changefeed.life.lock:
            move = changefeed.ledger.remains()  # another thread looks for something to copy
        if move is not None:
            moves.append(move)
            changefeed.landing.moves.carry_out(move)
        return land(plans, job)

    store.end("refuse", "/t1/")
    changefeed.jobs.run_files = run
    land_due(changefeed, 60.0)
    land_due(changefeed)
    assert numbers(store, 1) == list(range(1, n + 1))
    assert changefeed.ledger.idle
    assert on_disk(changefeed) == 0


def test_without_pressure_nothing_is_copied(opened: Open, store: MemoryStore) -> None:
    changefeed = opened(spool_max_bytes=64 * MIB, file_size_bytes=64 << 10)
    store.begin("refuse", "/t1/")
    for n in range(1, 20):
        feed(changefeed, n, load(n, tables=3, size=50_000, small=1_000), str(n))
        land_due(changefeed)
    assert changefeed.metrics.value("spool_moved_bytes_total") == 0


# -- a spool that is gone ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["gone", "truncated", "directory"])
def test_a_lost_spool_segment_asks_for_a_new_start_that_replays_it(
    opened: Open, store: MemoryStore, damage: str
) -> None:
    changefeed = opened()
    feed(changefeed, 0, SOURCE.batch(0), "0")
    land_due(changefeed)
    changefeed.scribe.write_progress()
    feed(changefeed, 1, SOURCE.batch(1), "1")
    for path in list(changefeed.spool.disk.glob("*.seg")):
        if damage == "truncated":
            path.write_bytes(path.read_bytes()[:5])
        else:
            path.unlink()
    if damage == "directory":
        for path in changefeed.spool.disk.iterdir():
            path.unlink()
        changefeed.spool.disk.rmdir()
    with pytest.raises(SpoolLost) as caught:
        land_due(changefeed)
    assert caught.value.retry, "the pipeline starts again by itself"
    again = opened()
    for n in range(int(again.ledger.progress.position or -1) + 1, SOURCE.batches):
        feed(again, n, SOURCE.batch(n), str(n))
        land_due(again)
    again.scribe.write_progress()
    assert {t: [line.values for line in lines] for t, lines in landed_lines(store).items()} == SOURCE.lines()


def test_a_spool_directory_that_is_gone_is_told_by_ingest_as_lost(opened: Open) -> None:
    changefeed = opened()
    for path in changefeed.spool.disk.iterdir():
        path.unlink()
    changefeed.spool.disk.rmdir()
    with pytest.raises(SpoolLost, match="cannot write to the spool"):
        feed(changefeed, 0, SOURCE.batch(0), "0")


def test_a_segment_that_is_gone_when_it_is_to_be_copied_does_not_end_the_changefeed_by_itself(
    opened: Open, store: MemoryStore
) -> None:
    changefeed = opened(spool_max_bytes=MIB, file_size_bytes=64 << 10)
    crowded(changefeed, store)
    for path in changefeed.spool.disk.glob("*.seg"):
        path.unlink()
    assert changefeed.landing.land_next()
    assert changefeed.life.error is None
    assert list(changefeed.status().retrying) == ["shop.t1"]
