"""The shipped test kit keeps its own promises."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tidegate.errors import BadSetting, StoreRefused, StoreUnavailable
from tidegate.events import EVENTS
from tidegate.storage.store import Store
from tidegate.testing import (
    START_TS,
    FakeClock,
    FaultyFileStore,
    MemoryStore,
    TinySource,
    change,
    events_batch,
    feed,
    landed_lines,
    layout_row,
    open_changefeed,
    resolved_row,
)


def test_a_fake_clock_stands_still_until_it_is_advanced() -> None:
    clock = FakeClock(datetime(2026, 1, 31, 23, 59, 59, tzinfo=UTC))
    before = clock.steady()
    assert clock.steady() == before
    clock.advance(2.5)
    assert clock.steady() == before + 2.5
    assert clock.wall() == datetime(2026, 2, 1, 0, 0, 1, 500_000, tzinfo=UTC)
    with pytest.raises(BadSetting):
        clock.advance(-1)


# -- MemoryStore -----------------------------------------------------------------------------------------------------


def test_each_write_does_what_the_script_says_and_reads_take_no_word() -> None:
    store = MemoryStore(script=["ok", "refuse", "unavailable", "lost"])
    store.put("a", b"1")
    assert store.get("a") == b"1"
    with pytest.raises(StoreRefused, match="b: refused"):
        store.put("b", b"1")
    with pytest.raises(StoreUnavailable, match="c: unavailable"):
        store.create_bytes("c", b"1")
    with pytest.raises(StoreUnavailable, match="d: the answer was lost"):
        store.put("d", b"1")
    store.put("e", b"1")
    assert sorted(store.objects) == ["a", "d", "e"]
    assert [path for _, path in store.calls] == ["a", "a", "b", "c", "d", "e"]


def test_a_killed_process_writes_nothing_more() -> None:
    store = MemoryStore(script=["ok"], after="unavailable")
    store.put("a", b"1")
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            store.put("b", b"1")
    assert MemoryStore(objects=store.objects).get("a") == b"1", "the next process finds what stands"


def test_a_fault_stands_for_its_paths_until_it_ends() -> None:
    store = MemoryStore()
    store.begin("refuse", "shop/")
    store.put("other", b"1")
    for _ in range(2):
        with pytest.raises(StoreRefused):
            store.size("shop/x")
    store.end("refuse", "shop/")
    assert store.size("shop/x") is None


@pytest.mark.parametrize("fault", ["hang", "late"])
def test_a_hanging_call_is_done_afterwards_and_a_late_one_before(fault: str) -> None:
    store = MemoryStore()
    store.begin(fault, "a")
    calling = threading.Thread(target=lambda: store.put("a", b"1"))
    calling.start()
    time.sleep(0.05)
    assert calling.is_alive()
    assert ("a" in store.objects) == (fault == "late")
    store.end(fault, "a")
    calling.join(60.0)
    assert store.objects == {"a": b"1"}


def test_an_unknown_word_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(BadSetting, match="'explode'; known: ok, refuse, unavailable, lost"):
        MemoryStore(script=["explode"])
    with pytest.raises(BadSetting, match=r"known: .*hang"):
        MemoryStore().begin("explode")
    with pytest.raises(BadSetting, match=r"known: .*slow"):
        FaultyFileStore("x").begin("explode")


# -- FaultyFileStore -------------------------------------------------------------------------------------------------


@pytest.fixture
def faults(tmp_path: Path) -> FaultyFileStore:
    return FaultyFileStore(str(tmp_path / "control"))


@pytest.fixture
def files(faults: FaultyFileStore, tmp_path: Path) -> Store:
    opened = faults(f"file://{tmp_path}/sink")
    opened.prepare()
    return opened


def test_faults_are_steered_from_outside(faults: FaultyFileStore, files: Store) -> None:
    faults.begin("refuse", "shop/t1/")
    faults.begin("unavailable", "shop/t2/")
    faults.begin("lost", "shop/t3/")
    with pytest.raises(StoreRefused):
        files.put("shop/t1/x", b"")
    with pytest.raises(StoreUnavailable):
        files.put("shop/t2/x", b"")
    with pytest.raises(StoreUnavailable):
        files.put("shop/t3/x", b"")
    files.put("shop/t4/x", b"")
    assert sorted(path for path, _ in files.list("shop")) == ["shop/t3/x", "shop/t4/x"]
    faults.end("refuse", "shop/t1/")
    files.put("shop/t1/x", b"")


def test_without_a_part_a_fault_stands_for_every_path(faults: FaultyFileStore, files: Store) -> None:
    faults.begin("unavailable")
    with pytest.raises(StoreUnavailable):
        files.get("anything")
    faults.end("unavailable")
    assert files.get("anything") is None


def test_a_slow_store_takes_its_time(tmp_path: Path) -> None:
    waited: list[float] = []
    faults = FaultyFileStore(str(tmp_path / "faults"), sleep=waited.append)
    files = faults(f"file://{tmp_path}/sink")
    files.prepare()
    faults.begin("slow", "a", seconds=0.1)
    files.put("a", b"1")
    assert waited == [0.1]
    assert files.get("b") is None
    assert waited == [0.1]
    assert files.get("a") == b"1"
    assert waited == [0.1, 0.1]


def test_a_slow_store_waits_by_the_real_clock_unless_told() -> None:
    assert FaultyFileStore("control").sleep is time.sleep


def test_all_calls_are_noted_in_order(faults: FaultyFileStore, files: Store) -> None:
    files.put("a b/ü", b"1")
    files.get("c")
    assert faults.calls() == [("put", "a b/ü"), ("get", "c")]


@pytest.mark.parametrize("fault", ["hang", "late"])
def test_another_process_hangs_until_it_is_released(faults: FaultyFileStore, tmp_path: Path, fault: str) -> None:
    uri = f"file://{tmp_path}/sink"
    faults(uri).prepare()
    faults.begin(fault, "shop/")
    program = "import pickle, sys; pickle.loads(sys.stdin.buffer.read())(sys.argv[1]).put('shop/x', b'1')"
    worker = subprocess.Popen(
        [sys.executable, "-c", program, uri], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=False
    )
    assert worker.stdin is not None
    worker.stdin.write(pickle.dumps(faults))
    worker.stdin.close()
    until = time.monotonic() + 60.0
    while faults.calls() != [("put", "shop/x")] and time.monotonic() < until:
        time.sleep(0.02)
    time.sleep(0.1)
    assert worker.poll() is None
    assert (tmp_path / "sink" / "shop" / "x").exists() == (fault == "late")
    faults.end(fault, "shop/")
    assert worker.wait(60.0) == 0
    assert (tmp_path / "sink" / "shop" / "x").read_bytes() == b"1"


# -- changes and feeds -----------------------------------------------------------------------------------------------


def test_the_builders_make_rows_of_the_events_schema() -> None:
    rows = [layout_row(), change(7, START_TS, 1, b"1", None), resolved_row(START_TS)]
    batch = events_batch([*rows, change(7, START_TS, 2, kind="update"), change(7, START_TS, 3, kind="delete")])
    batch.validate(full=True)
    assert batch.schema == EVENTS
    assert batch["kind"].to_pylist() == ["layout", "insert", "resolved", "update", "delete"]
    assert batch["after"].to_pylist() == [None, [b"1", None], None, [b"2", b"v2"], None]
    assert batch["before"].to_pylist() == [None, None, None, [b"2", b"v2"], [b"3", b"v3"]]


def test_a_tiny_source_says_what_must_stand_on_the_sink(tmp_path: Path) -> None:
    source, store, clock = TinySource(tables=3, batches=2, rows=2), MemoryStore(), FakeClock()
    changefeed = open_changefeed(store, tmp_path, clock, flush_interval_s=1.0)
    for n in range(source.batches):
        feed(changefeed, n, source.batch(n), str(n))
    assert landed_lines(store) == {}
    clock.advance(1.0)
    while changefeed.landing.land_next():
        pass
    changefeed.close()
    found = {table: [line.values for line in lines] for table, lines in landed_lines(store).items()}
    assert found == source.lines()
    assert sum(map(len, found.values())) == 12


def test_an_index_that_names_a_missing_file_is_an_error(tmp_path: Path) -> None:
    path = "shop/t1/437/2026-01-31/meta/CDC.index"
    store = MemoryStore(objects={path: b"CDC00000000000000000001.csv\n"})
    with pytest.raises(StoreRefused, match="says 1 but file 1 is not there"):
        landed_lines(store)
