"""The benchmarks without Spark: what they measure with, how figures come about, and that their checks can fail."""

from __future__ import annotations

import argparse
import json
import os
import pickle
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow.parquet as pq
import pytest

from tidegate.bench import (
    BENCHMARKS,
    encode,
    hot_table,
    idle,
    neighbours,
    slow_store,
    soak,
    tables,
    throughput,
    wake,
)
from tidegate.bench.command import add_benchmarks
from tidegate.bench.harness import plot
from tidegate.bench.harness.ages import Ages
from tidegate.bench.harness.bare import make_bare
from tidegate.bench.harness.counting import (
    GET,
    HEAD,
    LIST,
    OWN,
    PUT_DATA,
    PUT_INDEX,
    PUT_SCHEMA,
    CountingStores,
    kind_of,
)
from tidegate.bench.harness.feed import Ended, Feed, journal_sizes
from tidegate.bench.harness.figures import MIB, mib_s, percentile
from tidegate.bench.harness.memory import (
    CpuMeter,
    MemorySampler,
    bytes_by_command,
    process_tree,
    ram_tier_bytes,
    tree_bytes,
)
from tidegate.bench.harness.parameters import given_parameters
from tidegate.cli import main
from tidegate.control.rounds import Round
from tidegate.errors import BadSetting, TidegateError, UsageError
from tidegate.events import INSERT, LAYOUT, RESOLVED, UPDATE
from tidegate.executor.segments import FileSlices
from tidegate.format.encode.csv import CsvOptions
from tidegate.observe.metrics import Metrics
from tidegate.sources import open_source
from tidegate.spark.handle import Handle
from tidegate.storage.store import Store

FEW = throughput.Parameters(tables=2, events=4_000, rows=1_000)


@contextmanager
def child(code: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process that runs `code`, says so, and waits to be ended."""
    text = f"{code}\nprint('ready', flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", text], stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.kill()


def test_memory_of_a_child_process_is_counted() -> None:
    before = tree_bytes(os.getpid())
    with child("data = b'x' * (96 << 20)") as process:
        assert process.pid in [each.pid for each in process_tree(os.getpid())]
        assert tree_bytes(os.getpid()) - before > 90 * MIB


def test_memory_of_a_grandchild_is_counted() -> None:
    code = "import subprocess, sys\ninner = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=-1)"
    with child(code) as process:
        assert len(process_tree(process.pid)) == 2


def test_a_process_that_is_gone_counts_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert tree_bytes(process.pid) == 0


def test_the_ram_tier_is_counted(tmp_path: Path) -> None:
    (tmp_path / "tidegate-feed").mkdir()
    (tmp_path / "tidegate-feed" / "0-0-0.seg").write_bytes(b"x" * 1000)
    (tmp_path / "another").mkdir()
    (tmp_path / "another" / "file").write_bytes(b"x" * 1000)
    assert ram_tier_bytes(f"{tmp_path}/tidegate-*") == 1000


def test_only_the_ram_tier_of_the_feed_itself_is_looked_at(tmp_path: Path) -> None:
    feed = Feed("workload://sysbench", tmp_path / "out", tmp_path / "spool")
    assert feed.ram_tier == f"/dev/shm/tidegate-{feed.settings.changefeed_id}-*"


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until, "waited for 30 s"
        time.sleep(0.01)


def test_the_sampler_keeps_the_peak_after_the_memory_is_gone(tmp_path: Path) -> None:
    segment = tmp_path / "tidegate-feed" / "large.seg"
    segment.parent.mkdir()
    with MemorySampler(ram_tiers=f"{tmp_path}/tidegate-*", every_s=0.01) as memory:
        with segment.open("wb") as file:
            file.truncate(1 << 40)  # a hole: only its size counts
        wait_for(lambda: memory.peak_bytes > 1 << 40)
        segment.unlink()
        seen = memory.samples
        wait_for(lambda: memory.samples > seen + 1)
    assert memory.peak_bytes > 1 << 40


def test_the_memory_of_a_jvm_is_also_seen_by_itself(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.symlink_to(shutil.which("sleep") or "")
    with subprocess.Popen([java, "60"]) as process, MemorySampler(every_s=0.01) as memory:
        wait_for(lambda: bool(memory.seen_jvm) and memory.seen_jvm[-1][1] > 0)
        process.terminate()
    assert bytes_by_command(os.getpid()).get("java", 0) == 0
    assert [at for at, _ in memory.seen] == [at for at, _ in memory.seen_jvm]
    assert all(size > part for (_, size), (_, part) in zip(memory.seen, memory.seen_jvm, strict=True))


def test_processor_time_of_a_child_that_has_ended_is_counted() -> None:
    meter = CpuMeter()
    code = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert meter.seconds() > 0.2


def test_speed_is_in_mib_a_second() -> None:
    assert mib_s(100 * MIB, 2.0) == 50.0
    assert mib_s(100 * MIB, 0.0) == 0.0


def test_a_percentile_of_nothing_is_nothing() -> None:
    assert percentile([], 99) == 0.0
    assert percentile([1.0, 2.0, 3.0], 50) == 2.0


# -- parameters --------------------------------------------------------------------------------------------------------


def given(name: str, *words: str) -> Any:
    """The parameters of a benchmark after these words of the command line."""
    parser = argparse.ArgumentParser()
    add_benchmarks(parser)
    return given_parameters(BENCHMARKS[name].parameters, parser.parse_args([name, *words]))


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What argparse says about `tidegate bench` with these words."""
    with pytest.raises(SystemExit) as ended:
        main(["bench", *words])
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_parameters_take_what_is_given_and_keep_the_rest() -> None:
    found = given("wake", "--tables", "4", "--file-size=1MiB", "--noop-seconds", "0.5")
    assert found == replace(wake.Parameters(), tables=4, file_size="1MiB", noop_seconds=0.5)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_without_words_every_parameter_has_its_default(name: str) -> None:
    assert given(name) == BENCHMARKS[name].parameters()


@pytest.mark.parametrize("name", BENCHMARKS)
def test_the_help_of_a_benchmark_lists_its_parameters_with_meaning_and_default(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bench", name, "--help"])
    assert ended.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    parameters = fields(BENCHMARKS[name].parameters)
    assert parameters
    for each in parameters:
        assert f"--{each.name.replace('_', '-')} " in shown
        assert f" (default: {each.default or 'none'})" in " ".join(each.metadata["help"].split())
    assert "--json FILE" in shown


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_refuses_an_unknown_parameter_before_it_starts(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(capsys, name, "--data-dir", str(tmp_path), "--tabels", "4")
    assert f"tidegate bench {name}: error: unrecognized arguments: --tabels 4" in said
    assert "unrecognized arguments: --jso" in refused(capsys, name, "--jso", "x"), "no option is guessed"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "says"), [("many", "not a whole number"), ("0", "greater than 0"), ("-3", "greater than 0")]
)
def test_a_parameter_that_is_no_count_is_refused(text: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, "throughput", "--tables", text)
    assert "argument --tables: " in said
    assert says in said


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["wake", "--flush-seconds", "soon"], "argument --flush-seconds: 'soon' is not a number"),
        (["wake", "--flush-seconds", "0"], "argument --flush-seconds: 0 must be greater than 0"),
        (["ddl", "--single", "often"], "argument --single: must be a duration such as 5s"),
        (["ddl", "--rate", "fast"], "argument --rate: 'fast' is not a size such as 500000, 64KiB or 2.2MiB"),
        (["throughput", "--protocol", "avro"], "argument --protocol: invalid choice: 'avro'"),
        (["no-such-thing"], "argument NAME: invalid choice: 'no-such-thing'"),
        ([], "the following arguments are required: NAME"),
    ],
)
def test_a_parameter_that_cannot_be_read_is_named(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert says in refused(capsys, *words)


def test_a_rate_may_say_that_it_is_per_second() -> None:
    assert given("slow-store", "--rate", "2MiB/s") == slow_store.Parameters(rate="2MiB")


def test_figures_are_printed_and_written_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--rows", "100", "--batch", "50", "--repeats", "1", "--json", str(tmp_path / "encode.json")]
    assert main(["bench", "encode", *words]) == 0
    written = json.loads((tmp_path / "encode.json").read_text())
    assert written["name"] == "encode"
    shown = capsys.readouterr().out
    assert all(f"  {key} " in shown for key in written["figures"])


# -- throughput --------------------------------------------------------------------------------------------------------


def test_the_prepared_input_holds_every_event_and_the_layout_once(tmp_path: Path) -> None:
    kinds = pq.read_table(throughput.prepare(tmp_path, FEW), columns=["kind"])["kind"].to_pylist()
    assert kinds.count(LAYOUT) == 1
    assert kinds[0] == LAYOUT
    assert (kinds.count(INSERT), kinds.count(UPDATE)) == (2_000, 2_000)
    assert kinds[-1] == RESOLVED


def test_the_prepared_input_can_be_replayed(tmp_path: Path) -> None:
    source = open_source(f"parquet:{throughput.prepare(tmp_path, FEW)}")
    end = source.latest(source.initial(), 1 << 40, frozenset())
    batches = [batch for split in source.splits(source.initial(), end, 1) for batch in source.read(split)]
    assert sum(batch.num_rows for batch in batches) >= FEW.events


def test_the_input_is_prepared_once(tmp_path: Path) -> None:
    ready = throughput.prepare(tmp_path, FEW)
    (ready / "mark").touch()
    assert throughput.prepare(tmp_path, FEW) == ready
    assert (ready / "mark").exists()
    assert throughput.prepare(tmp_path, replace(FEW, events=3_000)) != ready


def test_what_an_interrupted_preparation_left_is_not_taken_for_the_input(tmp_path: Path) -> None:
    whole = throughput.prepare(tmp_path, FEW)
    left = whole.rename(whole.with_name(f"{whole.name}.{os.getpid()}.new"))
    (left / "events-000099.parquet").write_bytes(b"half")
    assert throughput.prepare(tmp_path, FEW) == whole
    assert not (whole / "events-000099.parquet").exists()
    assert not left.exists()


def test_the_encode_benchmark_gives_its_figures_and_checks_its_own_output(tmp_path: Path) -> None:
    figures = encode.run(tmp_path, encode.Parameters(rows=300, batch=100, repeats=1))
    wanted = {"csv_mib_s_core", "canal_json_mib_s_core", "mixed_types_csv_mib_s_core"}
    assert wanted | {"csv_ratio_to_stdlib", "json_ratio_to_orjson"} <= figures.keys()
    assert all(isinstance(figure, float) and figure > 0 for figure in figures.values())


def test_the_encode_benchmark_refuses_a_library_that_writes_other_bytes() -> None:
    rows = encode.sysbench_rows(encode.Parameters(rows=10))
    with pytest.raises(TidegateError, match="writes other bytes"):
        encode.compare("csv", "csv", rows, CsvOptions(), lambda texts, _: ([], lambda _: b"other"), 1)


def a_pair(seconds: float, native_seconds: float, sizes: tuple[int, ...] = ()) -> throughput.Pair:
    ended = Ended(seconds, 2.0, landed_rows=10, landed_bytes=100 * MIB, size_flushed=sizes)
    return throughput.Pair(ended, throughput.Written(native_seconds, 3.0, 10, 90 * MIB))


def test_the_ratio_is_that_of_the_medians() -> None:
    pairs = [a_pair(1.0, 2.0), a_pair(2.0, 4.0), a_pair(10.0, 2.0)]
    found = throughput.figures(pairs, 0, MIB)
    assert (found["landed_mib_s"], found["native_mib_s"], found["ratio_to_native"]) == (50.0, 50.0, 1.0)


def test_both_speeds_are_of_the_bytes_that_tidegate_wrote() -> None:
    found = throughput.figures([a_pair(1.0, 1.0)], 3 * MIB, MIB)
    assert found["landed_mib_s"] == found["native_mib_s"] == 100.0
    assert (found["landed_mib"], found["native_output_mib"], found["peak_rss_mib"]) == (100.0, 90.0, 3.0)


def test_file_sizes_are_against_the_file_size_over_all_runs() -> None:
    found = throughput.figures([a_pair(1.0, 1.0, (90, 100)), a_pair(1.0, 1.0, (110,))], 0, file_size_bytes=100)
    assert found["file_size_p50_ratio"] == 1.0
    assert found["file_size_p10_ratio"] == pytest.approx(0.92)


def test_lines_and_bytes_of_csv_files_are_counted_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "schema_name=s").mkdir()
    (tmp_path / "schema_name=s" / "part-0.csv").write_bytes(b"a\r\nb\r\n")
    (tmp_path / "part-1.csv").write_bytes(b"c\r\n")
    (tmp_path / "_SUCCESS").write_bytes(b"\n")
    assert throughput.count_lines(tmp_path) == (3, 9)


def test_a_side_that_lost_a_row_is_refused() -> None:
    throughput.check_rows("Tidegate", 10, 10)
    with pytest.raises(TidegateError, match="Spark's writer wrote 9 lines of 10 events"):
        throughput.check_rows("Spark's writer", 9, 10)


def test_two_sides_that_wrote_different_bytes_are_refused() -> None:
    native = throughput.Written(1.0, 1.0, lines=5, bytes=200)
    throughput.check_same(250, native, "csv")  # ten quotes a line: three names and two texts
    with pytest.raises(TidegateError, match="did not write the same"):
        throughput.check_same(251, native, "csv")


# -- wake --------------------------------------------------------------------------------------------------------------


def moments(*seen: tuple[float, int, int, int], by_wake: bool = False) -> wake.Watch:
    watch = wake.Watch(by_wake)
    for moment in seen:
        watch.note(wake.Seen(*moment))
    return watch


def test_a_rate_leaves_out_what_landed_before_its_first_moment() -> None:
    watch = moments((10.0, 1, 500 * MIB, 0), (11.0, 2, 600 * MIB, 0), (12.0, 3, 700 * MIB, 0), (15.0, 4, 700 * MIB, 0))
    first, last = watch.window()
    assert (first.at, last.at) == (10.0, 12.0)
    assert wake.rate(first, last) == 100.0


def test_moments_without_a_landing_do_not_begin_the_window() -> None:
    first, last = moments((1.0, 1, 0, 0), (2.0, 1, MIB, 0), (3.0, 1, 2 * MIB, 0)).window()
    assert (first.at, last.at) == (2.0, 3.0)


def test_in_flush_mode_whole_batches_lie_between_the_wakes() -> None:
    watch = moments((4.0, 0, 11 * MIB, 0), (5.0, 1, 22 * MIB, 0), (9.0, 1, 33 * MIB, 0), (10.0, 2, 44 * MIB, 0))
    first, last = replace(watch, by_wake=True).window()
    assert wake.rate(first, last) == pytest.approx(22 / 5)


def test_a_phase_with_one_landing_tells_no_rate() -> None:
    watch = moments((1.0, 1, MIB, 0), (2.0, 2, MIB, 0))
    assert not watch.enough()
    with pytest.raises(TidegateError, match="give it more seconds"):
        watch.window()


def test_a_phase_goes_on_until_it_tells_a_rate() -> None:
    watch = moments((1.0, 1, MIB, 0))
    assert not watch.enough()
    watch.note(wake.Seen(2.0, 1, 2 * MIB, 0))
    assert watch.enough()


def test_the_share_of_size_flushes_is_of_the_bytes_in_the_window() -> None:
    first, last = moments((1.0, 1, 10, 10), (2.0, 2, 50, 40)).window()
    assert wake.size_flush_share(first, last) == 0.75


def test_the_seeds_workload_is_expected_at_4_4_mib_a_second() -> None:
    assert wake.Parameters().expected_mib_s == pytest.approx(4.4, rel=1e-6)


def test_figures_of_wake_compare_enqueue_with_flush() -> None:
    flush, enqueue, other = (
        wake.Phase(name, speed, 0.5, [10.0]) for name, speed in (("f", 4.4), ("e", 88.0), ("o", 9.0))
    )
    found = wake.figures(wake.Parameters(), flush, enqueue, other, other)
    assert (found["ratio"], found["flush_to_expected"]) == pytest.approx((20, 1), rel=1e-6)
    assert (found["size_flush_share"], found["wake_p99_ms"]) == (0.5, 10.0)


def test_bytes_that_were_counted_but_are_not_on_the_sink_are_refused() -> None:
    wake.check_landed(MIB, MIB)
    with pytest.raises(TidegateError, match=r"2.0 MiB were counted as landed but 1.0 MiB are on the sink"):
        wake.check_landed(2 * MIB, MIB)


# -- hot-table ---------------------------------------------------------------------------------------------------------


def test_the_share_of_the_cores_is_processor_time_over_time_and_cores() -> None:
    ended = Ended(seconds=10.0, cpu_seconds=10.0 * len(os.sched_getaffinity(0)), landed_rows=1, landed_bytes=1)
    assert hot_table.cores_used(ended) == 1.0


def test_the_default_of_hot_table_is_the_per_table_ordering() -> None:
    per_table, globally = Ended(1.0, 1.0, 1, 10 * MIB), Ended(1.0, 1.0, 1, 20 * MIB)
    found = hot_table.figures(per_table, globally)
    assert found["landed_mib_s"] == found["landed_mib_s_per_table"] == 10.0
    assert found["landed_mib_s_global"] == 20.0


def test_a_hot_table_that_lost_a_delete_is_refused() -> None:
    hot_table.check_deletes(20_000, 20_000)
    with pytest.raises(TidegateError, match="19999 rows are on the sink after 20000 deletes"):
        hot_table.check_deletes(19_999, 20_000)


# -- slow-store --------------------------------------------------------------------------------------------------------


def slow(tmp_path: Path, latency_s: float, hanging: str = "", sleep: Callable[[float], object] = time.sleep) -> Store:
    stores = slow_store.SlowStores(latency_s, hanging, str(tmp_path / "hang"), sleep)
    store = stores(f"file://{tmp_path}/sink")
    store.prepare()
    return store


def test_a_slow_store_takes_its_time_once_for_every_request(tmp_path: Path) -> None:
    waits: list[float] = []
    store = slow(tmp_path, 0.05, sleep=waits.append)
    waits.clear()
    store.put("a", b"1")
    found = store.get_tagged("a")
    assert found is not None
    assert store.swap("a", b"2", found[1])
    assert waits == [0.05] * 3, "what the plain store asks of itself is part of the one request"
    assert ("a", 1) in store.list("")
    assert waits == [0.05] * 4


def test_a_slow_store_that_goes_to_a_worker_waits_by_the_real_clock() -> None:
    assert pickle.loads(pickle.dumps(slow_store.SlowStores(0.05))).sleep is time.sleep


def test_a_slow_store_lands_as_many_files_at_once_as_an_object_store(tmp_path: Path) -> None:
    assert slow(tmp_path, 0.0).concurrency is None


def test_only_data_of_the_hanging_table_hangs_and_only_until_the_end(tmp_path: Path) -> None:
    store, hang = slow(tmp_path, 0.0, "sbtest7"), tmp_path / "hang"
    hang.touch()
    path = "sbtest/sbtest7/1/CDC1.csv"
    thread = threading.Thread(target=store.create, args=(path, b"x", FileSlices(()), lambda _: None))
    thread.start()
    store.create("sbtest/sbtest70/1/CDC1.csv", b"x", FileSlices(()), lambda _: None)
    store.put("sbtest/sbtest7/1/meta/CDC.index", b"x")
    assert store.size(path) is None
    hang.unlink()
    thread.join(30)
    assert store.size(path) == 1


def a_round(dispatchers: list[int], items: list[int]) -> Round:
    files = np.arange(len(dispatchers))
    bounds, many = np.append(0, np.cumsum(items)), np.array(dispatchers)
    columns = (files, np.arange(bounds[-1]), bounds, many, many, files, files, files, files, files)
    return Round(1, *columns, np.full(len(files), "size"), np.zeros(len(files), np.int8))


def test_the_age_of_a_file_is_that_of_its_oldest_change_and_files_that_failed_have_none() -> None:
    found = Ages()
    names, landed = ["sbtest1", "sbtest7", "sbtest3"], np.array([True, True, False])
    found.note(a_round([0, 1, 2], [2, 1, 3]), landed, np.array([1.0, 4.0, 9.0]), names)
    assert found.by_table == {"sbtest1": [4.0], "sbtest7": [9.0]}
    assert found.without("sbtest7") == [4.0]


def test_figures_of_slow_store_leave_out_the_hanging_table() -> None:
    ages = Ages({"sbtest1": [2.0, 6.0], "sbtest7": [50.0]})
    fast, slowly = Ended(1.0, 1.0, 1, 100 * MIB), Ended(4.0, 1.0, 1, 100 * MIB)
    found = slow_store.figures(slow_store.Parameters(flush_interval="5s"), fast, slowly, 3 * MIB, 2 * MIB, ages)
    assert (found["landed_mib_s"], found["ratio_to_fast_store"], found["rss_over_cap"]) == (25.0, 0.25, 1.5)
    assert (found["others_max_lag_over_interval"], found["hanging_lag_over_interval"]) == (1.2, 10.0)
    assert 1.0 < float(found["others_lag_over_interval"]) <= 1.2


def test_a_part_in_which_nothing_hung_or_a_table_never_landed_is_refused() -> None:
    wanted = slow_store.Parameters(tables=2, seconds=10.0)
    with pytest.raises(TidegateError, match=r"sbtest7 hung for 1.0 s only"):
        slow_store.check_hang(Ages({"sbtest7": [1.0], "sbtest1": [1.0]}), wanted)
    with pytest.raises(TidegateError, match="only 1 of 2 tables landed"):
        slow_store.check_hang(Ages({"sbtest7": [9.0]}), wanted)


# -- neighbours --------------------------------------------------------------------------------------------------------


def test_figures_of_neighbours_are_of_the_ordinary_tables_against_the_control() -> None:
    runs = {
        "control": neighbours.Seen([5.0], (0.5,)),
        "giant": neighbours.Seen([10.0], (1.0,), 3 * MIB),
        "slow": neighbours.Seen([7.5], (2.0,), MIB),
    }
    found = neighbours.figures(neighbours.Parameters(flush_interval="5s"), runs)
    assert [found[f"others_lag_over_interval_{name}"] for name in runs] == [1.0, 2.0, 1.5]
    assert (found["others_wake_p99_ratio_giant"], found["others_wake_p99_ratio_slow"]) == (2.0, 4.0)
    assert (found["neighbour_mib_giant"], found["wake_p99_ms_slow"]) == (3.0, 2000.0)


def test_a_run_without_a_whole_transaction_of_the_neighbour_or_without_all_tables_is_refused() -> None:
    watch = neighbours.Watch(wanted=neighbours.Parameters(tables=2), enough_bytes=150)
    watch.note(a_round([0, 1], [1, 1]), np.array([True, True]), np.array([1.0, 9.0]), ["sbtest1", "sbtest3"])
    assert watch.lags_s == [1.0]
    with pytest.raises(TidegateError, match="only 1 of 2 tables landed"):
        neighbours.check_landed(watch, 10, 10)
    watch.by_table["sbtest2"] = [1.0]
    neighbours.check_landed(watch, 10, 10)
    with pytest.raises(TidegateError, match="9 rows of the neighbour landed, not one transaction of 10"):
        neighbours.check_landed(watch, 9, 10)


def test_a_giant_that_fits_a_micro_batch_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match=r"fits a micro-batch of 25.6 MiB: give giant-rows more"):
        neighbours.run(tmp_path, neighbours.Parameters(giant_rows=1000))


# -- very many tables --------------------------------------------------------------------------------------------------


def test_the_bare_loop_makes_the_files_of_two_sweeps(tmp_path: Path) -> None:
    assert make_bare(tmp_path, 3, 100) == 3
    files = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file())
    assert len(files) == 3 * 4
    assert sum(path.is_dir() for path in tmp_path.rglob("*")) == 1 + 3 * 5
    indexes = [(tmp_path / path).read_text() for path in files if path.endswith(".index")]
    assert indexes == ["CDC00000000000000000002.csv\n"] * 3


def test_a_sweep_over_a_slow_store_takes_the_requests_of_its_tables_one_after_the_other() -> None:
    assert tables.sweep_s(1_000_000, 4, 0.03, 256) == pytest.approx(468.75)


@pytest.mark.parametrize(
    ("operation", "path", "kind"),
    [
        ("create", "shop/orders/437/2026-01-31/CDC00000000000000000001.csv", PUT_DATA),
        ("create", "shop/orders/437/2026-01-31/CDC00000000000000000001.json", PUT_DATA),
        ("swap", "shop/orders/437/2026-01-31/meta/CDC.index", PUT_INDEX),
        ("create_bytes", "shop/orders/meta/schema_437_3233644819.json", PUT_SCHEMA),
        ("list", "shop/orders/meta", LIST),
        ("get_tagged", "shop/orders/437/2026-01-31/meta/CDC.index", GET),
        ("size", "shop/orders/437/2026-01-31/CDC00000000000000000001.csv", HEAD),
        ("create_bytes", "_tidegate/journal/00000000000000000001.entry", OWN),
        ("put", "metadata", OWN),
        ("list", "", OWN),
    ],
)
def test_a_request_is_counted_by_what_it_is_for(tmp_path: Path, operation: str, path: str, kind: str) -> None:
    assert kind_of(operation, path) == kind
    (tmp_path / "notes").mkdir()
    stores: CountingStores = pickle.loads(pickle.dumps(CountingStores(f"{tmp_path}/notes")))
    store = stores(f"file://{tmp_path}/sink")
    store.prepare()
    if path:
        store.put(path, b"x")
        store.get(path)
        assert stores.counts()[OWN if kind == OWN else GET] == (2 if kind == OWN else 1)
    list(store.list(path))
    assert stores.counts().total() == (3 if path else 1)


def test_requests_by_kind_and_landing_against_the_arithmetic_are_figures() -> None:
    wanted, metrics = tables.Parameters(tables=128, put_latency="1s"), Metrics("bench")
    metrics.inc("store_requests_total", 512, op="land")
    ages = tables.Ages(handle=cast(Handle, SimpleNamespace(metrics=metrics)))
    ages._found.append(np.array([1.0, 3.0]))
    ended = Ended(10.0, 5.0, 256, 1000, wakes_s=(0.1,))
    of = tables.Measured(wanted, [(ended, ages), (ended, ages)], MIB, (MIB, 3 * MIB), Counter(put_data=256, own=7))
    found = tables.by_kind(of) | tables.predicted(of) | tables.figures(of, None)
    assert (found["put_data_per_table"], found["own_requests"]) == (2, 7)
    assert (found["predicted_first_s"], found["landing_first_s"]) == (2.0, 3.0), "4 requests, 256 at once"
    assert found["landing_over_arithmetic"] == 1.5
    assert (found["snapshot_mib"], found["journal_mib"]) == (1, 3)
    assert "ratio_to_bare" not in found, "there was no bare loop"
    assert tables.figures(of, 12.8)["ratio_to_bare"] == pytest.approx(0.5)


def test_a_journal_can_know_as_many_layouts_as_tables(tmp_path: Path) -> None:
    feed = Feed("", tmp_path / "out", tmp_path / "spool")
    (tmp_path / "out").mkdir()
    idle.write_known(feed.settings, 50, 50)
    snapshot, journal = journal_sizes(feed)
    assert 0 < snapshot <= journal
    assert "layouts=50&seed=1" in idle.Parameters(active=50, layouts=100).workload()
    source = open_source("workload://sysbench?tables=50&layouts=50&seed=1&rows=2&events=100")
    start = source.initial()
    [split] = source.splits(start, source.latest(start, 1 << 30, frozenset()), 1)
    rows = [row for batch in source.read(split) for row in batch.select(["kind", "layout"]).to_pylist()]
    assert {row["layout"] for row in rows if row["kind"] == LAYOUT} == dict(idle.layout_texts(50)).keys()


def test_a_soak_has_as_many_layouts_as_asked_for() -> None:
    source = open_source(soak.Parameters(tables=6, layouts=5).workload().replace("rate=2MiB", "events=600"))
    start = source.initial()
    [split] = source.splits(start, source.latest(start, 1 << 30, frozenset()), 1)
    rows = [row for batch in source.read(split) for row in batch.select(["kind", "layout"]).to_pylist()]
    assert len({row["layout"] for row in rows if row["kind"] == UPDATE}) >= 5


def test_more_layouts_than_tables_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="--layouts 20"):
        tables.run(tmp_path, tables.Parameters(tables=10, layouts=20))


def test_each_sweep_of_the_workload_brings_every_table_two_rows() -> None:
    wanted = tables.Parameters(tables=5)
    for sweeps in (1, 2):
        source = open_source(wanted.workload(sweeps))
        end = source.latest(source.initial(), 1 << 20, frozenset())
        rows = [batch for split in source.splits(source.initial(), end, 1) for batch in source.read(split)]
        kinds = [kind for batch in rows for kind in batch.column("kind").to_pylist()]
        assert (kinds.count(INSERT), kinds.count(UPDATE)) == (10, 10 * (sweeps - 1))


def test_where_tables_land_is_an_image_or_not(capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, "tables", "--data-dir", "nowhere", "--image", "maybe")
    assert "argument --image: invalid choice: 'maybe' (choose from 'auto', 'true', 'false')" in said


def test_a_bare_loop_on_a_slow_disk_ends_with_fewer_tables(tmp_path: Path) -> None:
    assert make_bare(tmp_path, 1_000_000, 100, seconds=0.0) == 1
    assert [path.read_text() for path in tmp_path.rglob("*.index")] == ["CDC00000000000000000002.csv\n"]


def test_sizes_of_known_tables_grow_and_hold_the_active_ones() -> None:
    assert idle.Parameters().sizes == [10_000, 100_000, 1_000_000]
    for wrong in ("1000", "2000,1000", "10,20"):
        with pytest.raises(BadSetting, match="--known"):
            _ = idle.Parameters(active=100, known=wrong).sizes


def test_figures_of_idle_tables_compare_the_most_with_the_fewest() -> None:
    found = idle.figures([idle.Size(10_000, 300.0, 100 * MIB, 2.0), idle.Size(1_000_000, 330.0, 199 * MIB, 9.0)])
    assert found["batch_ms_ratio_1m_to_10k"] == pytest.approx(1.1)
    assert found["bytes_per_idle_table"] == pytest.approx(99 * MIB / 990_000)
    assert found["start_s_1m"] == 9.0


def test_a_journal_of_known_tables_is_what_a_start_reads(tmp_path: Path) -> None:
    settings = Feed("", tmp_path / "out", tmp_path / "spool").settings
    (tmp_path / "out").mkdir()
    idle.write_known(settings, 50)
    ledger = idle.known_tables(50, 1, 2)
    assert ledger.queues.dispatchers.size == 50
    assert ledger.queues.name(49) == "sbtest.sbtest50"
    assert [path.suffix for path in (tmp_path / "out" / "_tidegate" / "journal").iterdir()].count(".snapshot") == 1


def test_memory_that_grows_after_the_warm_up_has_a_slope() -> None:
    warm = [(float(second), second * 10 * MIB) for second in range(30)]
    flat = [(float(second), 300 * MIB) for second in range(30, 91)]
    assert soak.slope_per_min([*warm, *flat]) == pytest.approx(0, abs=1)
    growing = [(float(second), 300 * MIB + second * MIB // 6) for second in range(91)]
    assert soak.slope_per_min(growing) / MIB == pytest.approx(10, rel=0.01)
    assert soak.slope_per_min([]) == 0


def test_a_stall_counts_once_and_only_while_something_waits() -> None:
    landings = soak.Landings(patience_s=6)
    for now, landed, waits in ((0, 1, True), (5, 1, True), (7, 1, True), (9, 1, True), (10, 2, True), (17, 2, False)):
        landings.note(now, landed, waits)
    assert landings.stalls == 1
    landings.note(24, 2, True)
    landings.note(31, 2, True)
    assert landings.stalls == 2


def test_only_runs_of_tables_are_drawn_by_size(tmp_path: Path) -> None:
    for name, count in (("b", 100), ("a", 10)):
        body = {"name": "tables", "figures": dict.fromkeys(plot.PANELS, 1.0) | {"tables": count}}
        (tmp_path / f"{name}.json").write_text(json.dumps(body))
    runs = plot.read_runs([str(tmp_path / "b.json"), str(tmp_path / "a.json")])
    assert [run["tables"] for run in runs] == [10, 100]
    (tmp_path / "wake.json").write_text('{"name": "wake", "figures": {}}')
    with pytest.raises(UsageError, match="no figures of `tidegate bench tables`"):
        plot.read_runs([str(tmp_path / "wake.json")])
