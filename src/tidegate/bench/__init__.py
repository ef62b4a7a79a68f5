"""Benchmarks: each measures, checks its own output, and gives figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tidegate.bench import (
    ddl,
    encode,
    hot_table,
    idle,
    neighbours,
    recovery,
    slow_store,
    soak,
    tables,
    throughput,
    wake,
)
from tidegate.bench.harness.figures import Figures


@dataclass(frozen=True)
class Benchmark:
    help: str
    run: Callable[[Path, Mapping[str, str]], Figures]


BENCHMARKS: dict[str, Benchmark] = {
    "throughput": Benchmark("prepared events through Tidegate and through Spark's own writer", throughput.run),
    "encode": Benchmark("the encoders alone, against Python's csv module and orjson", encode.run),
    "wake": Benchmark("the seeds' workload, woken at the flush and at the enqueue", wake.run),
    "ddl": Benchmark("1,000 tables under load with and without DDL", ddl.run),
    "hot-table": Benchmark("one table with transactions of 20,000 deletes, in both orderings", hot_table.run),
    "recovery": Benchmark(
        "a changefeed killed at named points and at random moments, and what a reader sees", recovery.run
    ),
    "slow-store": Benchmark("1,000 tables on a store that answers late, and one that hangs", slow_store.run),
    "neighbours": Benchmark(
        "1,000 tables beside one with a giant transaction, and one whose rows are slow to encode", neighbours.run
    ),
    "idle": Benchmark("the same active tables beside ever more idle ones", idle.run),
    "soak": Benchmark("minutes of tables that come and go: does memory stay", soak.run),
    "tables": Benchmark("very many tables with a few rows each, in two sweeps", tables.run),
}


def run_bench(name: str, data_dir: Path, parameters: Mapping[str, str]) -> Figures:
    """The figures of one benchmark; raises when its own checks fail, and then there are none."""
    return BENCHMARKS[name].run(data_dir, parameters)
