"""The crash harness without Spark: its points match and kill, its schedule holds, and its counters can fail."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from itertools import islice
from pathlib import Path

import pytest

from tidegate.bench import recovery
from tidegate.bench.harness.crash import DeadlyDirectory, DeadlyStores, Run, claim, command
from tidegate.bench.harness.object_server import restore, s3_server, save
from tidegate.bench.harness.points import AFTER, BEFORE, DRIVER, POINTS, RANDOM, WORKER, schedule
from tidegate.bench.harness.record import Life, Record
from tidegate.bench.harness.sightings import Expected, Sightings, Tally, tally
from tidegate.bench.harness.victim import Victim
from tidegate.clock import SystemClock
from tidegate.config.settings import Settings, load_settings
from tidegate.errors import BadSetting, TidegateError
from tidegate.executor.segments import FileSlices
from tidegate.format.encode.csv import CsvOptions
from tidegate.sources import open_source
from tidegate.storage.files import FileStore
from tidegate.storage.store import Store, open_store
from tidegate.testing import feed, open_changefeed

DATA = "sbtest/sbtest1/463/2026-01-31/CDC00000000000000000002.csv"
INDEX = "sbtest/sbtest1/463/2026-01-31/meta/CDC.index"
ENTRY = "_tidegate/journal/00000000000000000007.entry"
SNAPSHOT = "_tidegate/journal/00000000000000000007.snapshot"
SCHEMA = "sbtest/sbtest1/meta/schema_463_3549303976.json"

# -- points ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "operation", "path", "moment", "where"),
    [
        ("data-before-index", "create", DATA, AFTER, WORKER),
        ("index-before-confirm", "put", INDEX, AFTER, WORKER),
        ("index-before-confirm", "swap", INDEX, AFTER, WORKER),
        ("adoption", "swap", INDEX, AFTER, DRIVER),
        ("takeover", "create_bytes", ENTRY, AFTER, DRIVER),
        ("intent-before-data", "create_bytes", ENTRY, AFTER, DRIVER),
        ("before-confirming", "create_bytes", ENTRY, BEFORE, DRIVER),
        ("before-snapshot", "put", SNAPSHOT, BEFORE, DRIVER),
        ("after-snapshot", "put", SNAPSHOT, AFTER, DRIVER),
        ("amid-deletes", "delete", ENTRY, AFTER, DRIVER),
        ("before-schema-file", "create_bytes", SCHEMA, BEFORE, WORKER),
        ("after-schema-file", "create_bytes", SCHEMA, AFTER, WORKER),
        ("accepted-not-landed", "create", DATA, BEFORE, WORKER),
        ("land-worker", "create", DATA, AFTER, WORKER),
        ("before-copy", "copy", DATA, BEFORE, WORKER),
        ("after-copy", "copy", DATA, AFTER, WORKER),
    ],
)
def test_a_point_is_one_operation_on_one_kind_of_path_at_one_moment(
    name: str, operation: str, path: str, moment: str, where: str
) -> None:
    point = POINTS[name]
    assert point.matches(operation, path, moment, where)
    assert not point.matches(operation, path, BEFORE if moment == AFTER else AFTER, where)
    assert not point.matches(operation, path, moment, DRIVER if where == WORKER else WORKER)
    assert not point.matches("get", path, moment, where)
    others = [other for other in (DATA, INDEX, ENTRY, SNAPSHOT, SCHEMA, "metadata") if other != path]
    assert not any(point.matches(operation, other, moment, where) for other in others)


def dies(act: Callable[[], object]) -> bool:
    """Whether a process that does this is killed."""
    process = multiprocessing.get_context("fork").Process(target=act)
    process.start()
    process.join(60)
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode != 0


def deadly(tmp_path: Path, point: str, number: int = 1, driver: int | None = None) -> Store:
    """A store that kills; without a driver's pid the process that uses it is the driver."""
    stores = DeadlyStores(str(tmp_path), driver or os.getpid(), POINTS[point], number)
    sent: DeadlyStores = pickle.loads(pickle.dumps(stores))
    return sent(f"file://{tmp_path}/sink")


def plain(tmp_path: Path) -> FileStore:
    store = FileStore(tmp_path / "sink")
    store.prepare()
    return store


def test_a_driver_dies_right_after_the_call_that_was_chosen(tmp_path: Path) -> None:
    store, entries = plain(tmp_path), [f"_tidegate/journal/{n}.entry" for n in range(5)]

    def act() -> None:
        killing = deadly(tmp_path, "intent-before-data", 3)
        for entry in entries:
            killing.create_bytes(entry, b"x")

    assert dies(act)
    assert [path for path, _ in store.list("_tidegate/journal")] == entries[:3]
    assert (tmp_path / "fired").read_text() == "after create_bytes _tidegate/journal/2.entry"


def test_a_driver_that_dies_before_a_call_has_not_made_it(tmp_path: Path) -> None:
    store = plain(tmp_path)
    assert dies(lambda: deadly(tmp_path, "before-snapshot").put(SNAPSHOT, b"x"))
    assert store.get(SNAPSHOT) is None


def test_a_worker_takes_its_driver_along_and_neither_does_anything_more(tmp_path: Path) -> None:
    store = plain(tmp_path)
    with subprocess.Popen(["sleep", "60"]) as driver:

        def act() -> None:
            killing = deadly(tmp_path, "data-before-index", driver=driver.pid)
            killing.create(DATA, b"x", FileSlices(()), lambda _: None)
            killing.put(INDEX, b"x")

        assert dies(act)
        assert driver.wait(10) == -signal.SIGKILL
    assert (store.get(DATA), store.get(INDEX)) == (b"x", None)


def test_a_worker_that_is_the_victim_dies_alone_and_only_once(tmp_path: Path) -> None:
    plain(tmp_path)

    def act() -> None:
        deadly(tmp_path, "land-worker", driver=os.getppid()).create(DATA, b"x", FileSlices(()), lambda _: None)

    assert [dies(act), dies(act)] == [True, False]


def test_calls_of_all_processes_count_together(tmp_path: Path) -> None:
    plain(tmp_path)

    def act() -> None:
        deadly(tmp_path, "land-worker", 3, driver=os.getppid()).create(DATA, b"x", FileSlices(()), lambda _: None)

    assert [dies(act) for _ in range(3)] == [False, False, True]


def test_a_deadly_spool_directory_goes_to_a_worker_and_kills_it_at_its_first_file(tmp_path: Path) -> None:
    place = pickle.dumps(DeadlyDirectory("/spool", str(tmp_path)))

    def act() -> None:
        assert f"{pickle.loads(place)}/0.seg" == "/spool/0.seg"
        time.sleep(10)

    assert dies(act)
    assert not claim(str(tmp_path), "again")


def test_a_run_goes_to_its_process_whole() -> None:
    run = Run("workload://sysbench", "file:///sink", "/spool", "/control", {"file-size": "1MiB"}, "takeover", 3)
    assert Run(**json.loads(command(run)[-1])) == run


# -- schedule ----------------------------------------------------------------------------------------------------------


def test_fifty_kills_meet_every_point_several_times() -> None:
    names = recovery.Parameters().chosen
    met = Counter(islice(schedule(names, random.Random(1)), 44))  # the death of a worker makes two kills
    assert set(met) == {*(name for name, point in POINTS.items() if not point.is_remote), RANDOM}
    assert min(met.values()) >= 2
    assert met[RANDOM] >= 4


def test_what_a_crash_leaves_to_adopt_is_there_for_the_kill_in_the_adoption() -> None:
    names = list(islice(schedule(recovery.Parameters().chosen, random.Random(2)), 50))
    assert "adoption" in names
    assert all(names[i - 1] == "data-before-index" for i, name in enumerate(names) if name == "adoption")


def test_an_unknown_point_is_refused() -> None:
    assert recovery.Parameters(points="takeover,random").chosen == ["takeover", "random"]
    with pytest.raises(BadSetting, match="unknown point 'nowhere'; known: data-before-index"):
        _ = recovery.Parameters(points="nowhere").chosen


def test_a_process_that_ends_by_itself_is_a_failure_with_its_last_words(tmp_path: Path) -> None:
    run = Run("nonsense://", f"file://{tmp_path}/sink", f"{tmp_path}/spool", f"{tmp_path}/control", {"no": "such"})
    with pytest.raises(TidegateError, match="ended by itself with code 1"), Victim(run) as process:
        process.wait(lambda: process.landed > 0, 60.0, "land anything")


# -- a run in parts ----------------------------------------------------------------------------------------------------


def test_a_record_is_the_same_after_it_was_saved(tmp_path: Path) -> None:
    record = Record("workload://x", 10, [Life("takeover", kills=1, first_landing_s=2.5), Life("")], Tally(lost=1))
    record.save(tmp_path)
    assert Record.load(tmp_path) == record
    assert (record.figures()["kills"], record.figures()["lost"], record.is_right) == (1, 1, False)


def test_an_interrupted_run_gets_all_its_kills_and_one_that_ended_gets_more(tmp_path: Path) -> None:
    Record("workload://x", 10, [Life("takeover", kills=4)]).save(tmp_path)
    assert Record.resumed(tmp_path, "workload://x", 10).target == 10
    Record("workload://x", 4, [Life("takeover", kills=4)]).save(tmp_path)
    assert Record.resumed(tmp_path, "workload://x", 10).target == 14
    assert Record.resumed(tmp_path / "none", "workload://x", 10) == Record("workload://x", 10)
    with pytest.raises(BadSetting, match="another workload"):
        Record.resumed(tmp_path, "workload://y", 10)


def test_what_an_interrupted_run_left_is_not_overwritten(tmp_path: Path) -> None:
    wanted = recovery.Parameters()
    Record(wanted.workload(), 50, [Life("takeover", kills=4)]).save(_made(tmp_path / "recovery-file"))
    with pytest.raises(BadSetting, match="has an earlier run with 4 kills: go on with --resume"):
        recovery.run(tmp_path, wanted)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


CREATE = """
import json, sys
from tidegate.bench.harness.crash import DeadlyStores, Run
from tidegate.bench.harness.points import POINTS
from tidegate.executor.segments import FileSlices
run, driver, data = Run(**json.loads(sys.argv[1])), int(sys.argv[2]), sys.argv[3]
stores = DeadlyStores(run.control, driver, POINTS[run.point], 1, run.one_put_bytes)
slices = FileSlices(((run.spool, 0, 50),))
stores(run.settings.sink_uri, run.settings.access).create(data, b"x", slices, lambda _: None)
"""


def on(sink_uri: str) -> Store:
    settings = load_settings(sink_uri)
    return open_store(settings.sink_uri, settings.access)


def test_a_worker_dies_at_the_copy_of_a_large_file_and_what_its_server_held_comes_back(tmp_path: Path) -> None:
    (tmp_path / "segment").write_bytes(b"y" * 50)
    with s3_server() as server, subprocess.Popen(["sleep", "60"]) as driver:
        place = (server.uri("sink"), f"{tmp_path}/segment", str(tmp_path))
        words = json.dumps(asdict(Run("workload://x", *place, point="after-copy", one_put_bytes=10)))
        died = subprocess.run([sys.executable, "-c", CREATE, words, str(driver.pid), DATA], check=False, timeout=60)
        assert (died.returncode, driver.wait(10)) == (-signal.SIGKILL, -signal.SIGKILL)
        store = on(server.uri("sink"))
        assert store.get(DATA) == b"x" + b"y" * 50
        assert len(list(store.list("_tidegate/tmp"))) == 1, "it died before it removed what it had uploaded"
        save(store, tmp_path / "saved")
    with s3_server() as server:
        restore(on(server.uri("sink")), tmp_path / "saved")
        assert on(server.uri("sink")).get(DATA) == b"x" + b"y" * 50


def test_a_server_ends_when_its_benchmark_is_killed() -> None:
    code = (
        "from tidegate.bench.harness.object_server import s3_server\n"
        "with s3_server() as server: print(server.port, flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True) as bench:
        assert bench.stdout is not None
        port = int(bench.stdout.readline())
        bench.kill()
    until = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            break
        assert time.monotonic() < until, "the server goes on"
        time.sleep(0.05)


# -- counters ----------------------------------------------------------------------------------------------------------


def expected(*streams: int) -> dict[str, Expected]:
    """A table whose line i has commit-ts 10 * i and belongs to the id given; a new id has a new version."""
    lines = Expected()
    for i, stream in enumerate(streams):
        lines.add(b"%d" % i, stream, stream, 10 * i)
    return {"shop.orders": lines}


@pytest.mark.parametrize(
    ("seen", "checkpoint_ts", "found"),
    [
        ([0, 1, 2, 3], 30, Tally()),
        ([0, 1], 10, Tally()),  # the rest is still to come
        ([], 0, Tally(lost=1)),
        ([0, 1], 20, Tally(lost=1)),  # the checkpoint covers it
        ([0, 2, 3], 0, Tally(lost=1)),  # a later one is there
        ([0, 1, 2, 3, 2, 3], 30, Tally(doubled=2)),
        ([0, 1, 1, 1], 10, Tally(doubled=2)),
        ([0, 2, 1, 3], 30, Tally(reordered=1)),
        ([2, 3, 0, 1], 30, Tally(reordered=2)),
        ([0, 1, -1, 2, 3], 30, Tally(altered=1)),
        ([0, -1, 2, 3], 30, Tally(lost=1, altered=1)),
    ],
)
def test_every_kind_of_fault_is_counted(seen: list[int], checkpoint_ts: int, found: Tally) -> None:
    assert tally(expected(7, 7, 7, 7), {"shop.orders": [seen]}, checkpoint_ts) == found


def test_a_line_is_lost_if_a_later_one_of_its_table_stands_under_another_name() -> None:
    lines = expected(7, 7) | {"shop.renamed": Expected()}
    lines["shop.renamed"].add(b"later", 7, 7, 1000)
    assert tally(lines, {"shop.orders": [[0]], "shop.renamed": [[0]]}, 0) == Tally(lost=1)
    assert tally(lines, {"shop.orders": [[0, 1]], "shop.renamed": [[0]]}, 0) == Tally()


def test_a_line_is_lost_if_one_of_a_later_id_of_its_name_is_there_and_reordered_behind_it() -> None:
    lines = expected(7, 7, 8, 8)
    assert tally(lines, {"shop.orders": [[0, 2]]}, 0) == Tally(lost=1)
    assert tally(lines, {"shop.orders": [[0, 2, 1, 3]]}, 0) == Tally(reordered=1)


def test_shards_have_an_order_of_their_own_and_none_between_them() -> None:
    lines = Expected()
    for i, stream in enumerate((7, 8, 7, 8)):
        lines.add(b"%d" % i, stream, 5, 10 * i)
    found = {"shop.orders": lines}
    assert tally(found, {"shop.orders": [[0, 2], [1, 3]]}, 30) == Tally()
    assert tally(found, {"shop.orders": [[1, 3]]}, 0) == Tally(lost=1), "the checkpoint covers line 0"
    assert tally(found, {"shop.orders": [[0], [3]]}, 0) == Tally(lost=1), "only that of the same shard"
    assert tally(found, {"shop.orders": [[2, 0], [1, 3]]}, 30) == Tally(reordered=1)
    assert tally(found, {"shop.orders": [[0, 2, 1, 3]]}, 30) == Tally(), "one directory after the other"
    assert tally(found, {"shop.orders": [[0, 2], [1, 3, 2]]}, 30) == Tally(doubled=1), "in both directories"


def test_a_table_that_the_source_does_not_have_is_altered_lines() -> None:
    assert tally(expected(), {"shop.other": [[-1, -1]]}, 0) == Tally(altered=2)


def test_a_source_with_the_same_line_twice_is_refused() -> None:
    lines = Expected()
    lines.add(b"x", 1, 1, 1)
    with pytest.raises(TidegateError, match="twice"):
        lines.add(b"x", 1, 1, 2)


def test_the_worst_of_two_looks_and_how_it_is_told() -> None:
    worst = Tally(lost=2).worst(Tally(lost=1, doubled=3))
    assert (worst, str(worst), str(Tally())) == (Tally(lost=2, doubled=3), "2 lost, 3 doubled", "right")


WORKLOAD = (
    "workload://sysbench?tables=3&rows=40&events=360&txn-rows=4&batch=4500&mix=1:2:1&ddl=every:2s,kinds=add-column"
)


@pytest.fixture
def sink(tmp_path: Path) -> Path:
    """A sink that a changefeed has written in this process, DDLs included."""
    root = tmp_path / "sink"
    store = FileStore(root)
    changefeed = open_changefeed(store, tmp_path / "spool", SystemClock(), csv=CsvOptions(include_commit_ts=True))
    source = open_source(WORKLOAD)
    start = source.initial()
    end = source.latest(start, 1 << 30, frozenset())
    batches = [batch for split in source.splits(start, end, 1) for batch in source.read(split)]
    feed(changefeed, 0, [row for batch in batches for row in batch.to_pylist()])
    changefeed.start()
    assert changefeed.landing.land_all(threading.Event())
    changefeed.close()
    return root


def look(root: Path) -> Tally:
    settings = Settings("file:///sink", "file", "tiny", "/spool", csv=CsvOptions(include_commit_ts=True))
    sightings = Sightings(WORKLOAD, settings, FileStore(root))
    found = sightings.look()
    assert sightings.visible_rows > 300
    assert sightings.look() == found, "files that stand are not read again"
    return found


def change(root: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    file = sorted(root.rglob("CDC*.csv"))[0]
    file.write_bytes(b"".join(change(file.read_bytes().splitlines(keepends=True))))


def test_a_right_sink_is_right(sink: Path) -> None:
    assert not look(sink)
    assert len(list(sink.rglob("schema_*.json"))) > 3


@pytest.mark.parametrize(
    ("edit", "found"),
    [
        (lambda lines: lines[:3] + lines[4:], Tally(lost=1)),
        (lambda lines: lines[:3] + lines[2:], Tally(doubled=1)),
        (lambda lines: [lines[1], lines[0], *lines[2:]], Tally(reordered=1)),
        (lambda lines: [lines[0].replace(b"sbtest", b"sbtext", 1), *lines[1:]], Tally(lost=1, altered=1)),
        (lambda lines: [*lines[:-1], lines[-1][:-5]], Tally(lost=1, altered=1)),
    ],
)
def test_a_fault_in_a_data_file_is_seen(sink: Path, edit: Callable[[list[bytes]], list[bytes]], found: Tally) -> None:
    change(sink, edit)
    assert look(sink) == found


def test_data_without_its_schema_file_is_seen(sink: Path) -> None:
    sorted(sink.rglob("schema_*.json"))[-1].unlink()
    assert look(sink) == Tally(schema_after_data=1)


def test_an_index_that_promises_too_much_is_seen(sink: Path) -> None:
    index = sorted(sink.rglob("*.index"))[0]
    index.write_bytes(index.read_bytes().replace(b"1.csv", b"2.csv"))
    assert look(sink) == Tally(broken_indexes=1)


def test_data_beyond_the_index_is_not_seen(sink: Path) -> None:
    file = sorted(sink.rglob("CDC*1.csv"))[0]
    file.with_name(file.name.replace("1.csv", "2.csv")).write_bytes(file.read_bytes())
    assert not look(sink)
