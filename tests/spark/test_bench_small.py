"""Every benchmark with tiny parameters: it runs, checks itself, gives its figures, and leaves only prepared input."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tidegate.bench import BENCHMARKS, hot_table, neighbours, tables, throughput, wake
from tidegate.bench.harness.feed import Feed
from tidegate.errors import VerifyError

TINY = {
    "throughput": throughput.Parameters(tables=2, events=20000, rows=5000, pairs=1, file_size="1MiB"),
    "wake": wake.Parameters(
        tables=2, batch="32KiB", file_size="512KiB", flush_interval="400ms", tuned_file_size="16KiB",
        tuned_flush_interval="200ms", warm_seconds=0.1, flush_seconds=1, enqueue_seconds=1,
        tuned_seconds=1, noop_seconds=0.5, spool_size="20MiB",
    ),
    "hot-table": hot_table.Parameters(txn_rows=500, transactions=8, warm_transactions=2, file_size="512KiB"),
    "neighbours": neighbours.Parameters(
        tables=3, rate="64KiB", warm_seconds=0.2, seconds=0.2, giant_rows=5000,
        giant_every="200ms", slow_rows=50, slow_columns=20, flush_interval="200ms",
        file_size="128KiB", spool_size="5MiB",
    ),
    "tables": tables.Parameters(tables=200, bare_tables=50, layouts=40),
}  # fmt: skip
FIGURES = {
    "throughput": (
        "landed_mib_s", "native_mib_s", "ratio_to_native", "mib_s_per_core", "file_size_p50_ratio",
        "file_size_p10_ratio", "peak_rss_mib",
    ),
    "wake": (
        "flush_mib_s", "enqueue_mib_s", "tuned_flush_mib_s", "noop_mib_s", "ratio", "size_flush_share", "wake_p99_ms",
    ),
    "hot-table": (
        "landed_mib_s", "landed_mib_s_per_table", "landed_mib_s_global", "cores_used_per_table", "cores_used_global",
    ),
    "neighbours": (
        "others_lag_over_interval_control", "others_lag_over_interval_giant", "others_lag_over_interval_slow",
        "others_wake_p99_ratio_giant", "others_wake_p99_ratio_slow", "neighbour_mib_giant", "neighbour_mib_slow",
    ),
    "tables": (
        "tables", "seconds", "tables_per_s", "peak_rss_mib", "all_landed", "put_per_table", "wake_p99_ms",
        "durable_p99_s", "ratio_to_bare", "ratio_to_shared", "snapshot_mib",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TINY)
def test_a_benchmark_gives_its_figures_and_leaves_only_its_input(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    figures = BENCHMARKS[name].run(tmp_path, TINY[name])
    for key in FIGURES[name]:
        assert float(figures[key]) > 0 or key == "size_flush_share", key
    assert "warming up" in capsys.readouterr().out
    left = {path.name.partition("-")[0] for path in tmp_path.iterdir()}
    assert left == ({"events", "spool"} if name == "throughput" else {"spool"})


def test_tables_land_on_a_server_with_a_latency_and_their_requests_are_counted_by_kind(
    spark: SparkSession, tmp_path: Path
) -> None:
    figures = tables.run(tmp_path, tables.Parameters(tables=60, store="s3", put_latency="5ms"))
    kinds = ("put_schema", "put_data", "put_index", "list", "get", "head")
    assert {kind: figures[f"{kind}_per_table"] for kind in kinds} == {
        "put_schema": 1, "put_data": 2, "put_index": 2, "list": 1, "get": 1, "head": 0
    }  # fmt: skip
    assert float(figures["landing_over_arithmetic"]) > 0
    assert "ratio_to_bare" not in figures
    assert [path.name for path in tmp_path.iterdir()] == ["spool"]


def test_a_benchmark_fails_when_its_output_is_altered(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed("workload://sysbench?tables=1&rows=100&events=1000", tmp_path / "out", tmp_path / "spool", {})
    assert feed.run().landed_rows == 1000
    assert feed.check().rows == 1000
    data = next((tmp_path / "out").rglob("*.csv"))
    data.write_bytes(data.read_bytes().replace(b"0", b"1", 1))
    with pytest.raises(VerifyError):
        feed.check()
