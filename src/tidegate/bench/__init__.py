"""Benchmarks: each measures, checks its own output, and gives figures.

`BENCHMARKS["tables"].run(data_dir, tables.Parameters(tables=1_000))` gives the figures of one. It raises when its own
checks fail, and then there are no figures.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from tidegate.bench import (
    ddl,
    encode,
    hot_table,
    idle,
    mysql,
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
    """`parameters` is the dataclass that `run` takes; `about` says what is measured and what the figures mean."""

    help: str
    about: str
    parameters: type[Any]
    run: Callable[[Path, Any], Figures]


def _benchmark(of: ModuleType, help: str) -> Benchmark:
    return Benchmark(help, of.__doc__ or "", of.Parameters, of.run)


BENCHMARKS: dict[str, Benchmark] = {
    "throughput": _benchmark(throughput, "prepared events through Tidegate and through Spark's own writer"),
    "encode": _benchmark(encode, "the encoders alone, against Python's csv module and orjson"),
    "mysql": _benchmark(mysql, "the log of a live database, against a reader in pure Python"),
    "wake": _benchmark(wake, "the seeds' workload, woken at the flush and at the enqueue"),
    "ddl": _benchmark(ddl, "1,000 tables under load with and without DDL"),
    "hot-table": _benchmark(hot_table, "one table with transactions of 20,000 deletes, in both orderings"),
    "recovery": _benchmark(
        recovery, "a changefeed killed at named points and at random moments, and what a reader sees"
    ),
    "slow-store": _benchmark(slow_store, "1,000 tables on a store that answers late, and one that hangs"),
    "neighbours": _benchmark(
        neighbours, "1,000 tables beside one with a giant transaction, and one whose rows are slow to encode"
    ),
    "idle": _benchmark(idle, "the same active tables beside ever more idle ones"),
    "soak": _benchmark(soak, "minutes of tables that come and go: does memory stay"),
    "tables": _benchmark(tables, "very many tables with a few rows each, in two sweeps"),
}
