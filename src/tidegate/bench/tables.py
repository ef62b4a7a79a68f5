"""`tables`: very many tables, each with a few rows, in two sweeps over all of them.

In the first sweep every table gets its first two rows, in the second two more. The first ends the changefeed, the
second is read by another that is started over the same sink, so every table lands exactly twice (schema file, data
file and index; then data file and index) and a restart that knows all tables is part of the time. What landed is
compared with a replay, byte by byte, outside the time.

The disk decides much here, so a bare loop comes first, and once more at the end because machines differ from one
minute to the next: one process without Spark makes the same directories and files of as many bytes for as many tables
(at most `bare-tables`), by makedirs, open and write and nothing else, in two sweeps too.

    tables_per_s       tables over the time of both sweeps, starts and ends included
    ratio_to_bare      that against both runs of the bare loop
    put_per_table      requests of land tasks, of both sweeps
    wake_p99_ms        from a micro-batch's start to its wake
    durable_p99_s      of all files, from accepted to durable; without a rate all is accepted long before it can land
    restart_s          from the start of the second changefeed to its first wake

With `--put-latency 30ms` every request takes that much longer, as on an object store, and as many tables land at once
as there. Then `predicted_first_s` and `predicted_second_s` are tables x requests x latency over the tables that land at
once (two tasks with 128 each), `landing_first_s` and `landing_second_s` the time from accepted to the last durable.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np

from tidegate.bench.harness.ages import after_each_round
from tidegate.bench.harness.disk import mounted_image
from tidegate.bench.harness.feed import Ended, Feed, say, session
from tidegate.bench.harness.figures import MIB, Figures, percentile
from tidegate.bench.harness.memory import MemorySampler
from tidegate.bench.harness.parameters import count, duration, one_of
from tidegate.bench.slow_store import SlowStores
from tidegate.config.settings import duration_s
from tidegate.errors import TidegateError
from tidegate.executor.land import LANES_PER_WORKER
from tidegate.format.tables import schema_file_text
from tidegate.sources.workload.sysbench import LAYOUT, SCHEMA_NAME
from tidegate.spark.handle import Handle
from tidegate.storage.store import StoreOpener, open_store

_SWEEP_ROWS = 2
_ROW_BYTES = 222
_TABLE_BYTES, _SPARE_BYTES = 16 << 10, 2 << 30  # of an image: blocks of 1 KiB, and inodes of 256 bytes
_TABLE_INODES = 12
_WARM_TABLES = 2_000  # two rounds at the same time, so that both land tasks have imported all they need
_MEMORY_EVERY_S = 5.0  # a look at all processes takes a tenth of a second


@dataclass(frozen=True)
class Parameters:
    tables: int = count(100_000, "tables that land; each gets two rows in each of two sweeps")
    bare_tables: int = count(100_000, "tables of the bare loop, at most")
    flush_interval: str = duration("5s", "flush-interval of the changefeed")
    image: str = one_of("false", "land on a file system made for this run, which needs root", ("true", "false"))
    put_latency: str = duration("", "each request to the store takes this much longer")

    @property
    def latency_s(self) -> float:
        return duration_s(self.put_latency) if self.put_latency else 0.0

    @property
    def stores(self) -> StoreOpener:
        return SlowStores(self.latency_s) if self.put_latency else open_store

    def workload(self, sweeps: int) -> str:
        rows = _SWEEP_ROWS
        query = {"tables": self.tables, "rows": rows, "txn-rows": rows, "batch": "1B", "seed": 1}
        return f"workload://sysbench?{urlencode(query | {'events': sweeps * rows * self.tables})}"


@dataclass
class Ages:
    """How old the oldest change of every file was when it was durable, and when the first wake came."""

    started: float = field(default_factory=time.monotonic)
    first_wake_s: float = 0.0
    handle: Handle | None = None
    _found: list[Any] = field(default_factory=list)

    def look(self, handle: Handle) -> None:
        if self.handle is None:
            self.handle = handle
            after_each_round(handle, lambda _, __, durable: self._found.append(durable.ages_s.astype(np.float32)))
        if not self.first_wake_s and handle.changefeed.totals.wakes_s:
            self.first_wake_s = time.monotonic() - self.started

    def enough(self) -> bool:
        return True

    @property
    def ages_s(self) -> Any:
        return np.concatenate([np.zeros(0, np.float32), *self._found])

    @property
    def requests(self) -> float:
        assert self.handle is not None
        return self.handle.metrics.value("store_requests_total", op="land")


def run(data_dir: Path, wanted: Parameters) -> Figures:
    few = min(wanted.bare_tables, wanted.tables)
    bare_s = [_bare(data_dir, wanted, few)]
    with _place(data_dir.resolve() / "tables", wanted, wanted.tables) as place, session():
        say(f"bare loop: {few / bare_s[0]:.0f} tables/s; warming up")
        _feed(data_dir, place / "warm-up", replace(wanted, tables=_WARM_TABLES), 1).go_on()
        ram_tier = _feed(data_dir, place / "tables", wanted, 1).ram_tier
        with MemorySampler(ram_tiers=ram_tier, every_s=_MEMORY_EVERY_S) as memory:
            sweeps = [_sweep(data_dir, place, wanted, number) for number in (1, 2)]
        say("checking what landed")
        started = time.monotonic()
        check(_feed(data_dir, place / "tables", wanted, 2), wanted.tables)
        say(f"checked in {time.monotonic() - started:.0f} s")
    bare_s.append(_bare(data_dir, wanted, few))
    say(f"bare loop again: {few / bare_s[1]:.0f} tables/s")
    found = figures(wanted, sweeps, memory.peak_bytes, 2 * few / sum(bare_s))
    return found | _predicted(wanted, sweeps) if wanted.put_latency else found


Sweep = tuple[Ended, Ages]


def figures(wanted: Parameters, sweeps: list[Sweep], peak_bytes: int, bare: float) -> Figures:
    seconds = sum(ended.seconds for ended, _ in sweeps)
    wakes_s = [waited for ended, _ in sweeps for waited in ended.wakes_s]
    ages_s = [age for _, ages in sweeps for age in ages.ages_s.tolist()]
    return {
        "tables": wanted.tables,
        "seconds": seconds,
        "tables_per_s": wanted.tables / seconds,
        "peak_rss_mib": peak_bytes / MIB,
        "all_landed": 1,
        "put_per_table": sum(ages.requests for _, ages in sweeps) / wanted.tables,
        "wake_p99_ms": 1000 * percentile(wakes_s, 99),
        "durable_p50_s": percentile(ages_s, 50),
        "durable_p99_s": percentile(ages_s, 99),
        "first_sweep_s": sweeps[0][0].seconds,
        "second_sweep_s": sweeps[1][0].seconds,
        "restart_s": sweeps[1][1].first_wake_s,
        "cores_used": sum(ended.cpu_seconds for ended, _ in sweeps) / seconds,
        "bare_tables_per_s": bare,
        "ratio_to_bare": wanted.tables / seconds / bare,
    }


def _predicted(wanted: Parameters, sweeps: list[Sweep]) -> Figures:
    """What the waits for a slow store should take in each sweep, and what landing took."""
    found: Figures = {}
    for name, (_, ages) in zip(("first", "second"), sweeps, strict=True):
        at_once = 2 * LANES_PER_WORKER * 16
        found[f"predicted_{name}_s"] = sweep_s(wanted.tables, ages.requests / wanted.tables, wanted.latency_s, at_once)
        found[f"landing_{name}_s"] = float(ages.ages_s.max())
    return found


def sweep_s(tables: int, requests: float, latency_s: float, at_once: int) -> float:
    """`sweep_s(1_000_000, 4, 0.03, 256)` is 469 s: a table's requests one after the other, `at_once` tables abreast."""
    return tables * requests * latency_s / at_once


@contextlib.contextmanager
def _place(place: Path, wanted: Parameters, tables: int) -> Iterator[Path]:
    """A new directory where tables land, with a file system of its own if so wanted; gone afterwards."""
    if wanted.image == "true":
        with mounted_image(place, tables * _TABLE_BYTES + _SPARE_BYTES, tables * _TABLE_INODES):
            yield place
        return
    place.mkdir(parents=True)
    try:
        yield place
    finally:
        shutil.rmtree(place)


def _feed(data_dir: Path, sink: Path, wanted: Parameters, sweeps: int) -> Feed:
    options = {"flush-interval": wanted.flush_interval}
    return Feed(wanted.workload(sweeps), sink, data_dir.resolve() / "spool", options, wanted.stores)


def _sweep(data_dir: Path, place: Path, wanted: Parameters, number: int) -> Sweep:
    os.sync()
    feed, ages = _feed(data_dir, place / "tables", wanted, number), Ages()
    ended = feed.go_on(watch=ages)
    say(f"sweep {number}: {wanted.tables / ended.seconds:.0f} tables/s ({ended.seconds:.1f} s)")
    return ended, ages


def check(feed: Feed, tables: int) -> None:
    """Every table has two data files, an index that names the second, and the rows of a replay."""
    report = feed.check()
    if (report.tables, report.files, report.rows) != (tables, 2 * tables, 2 * _SWEEP_ROWS * tables):
        raise TidegateError(f"{tables} tables were to land in two files each, but the sink has {report}")


def _bare(data_dir: Path, wanted: Parameters, tables: int) -> float:
    """Seconds of one process that only makes directories and writes files, both sweeps together.

    What it made is gone afterwards: it takes memory.
    """
    os.sync()
    with _place(data_dir.resolve() / "bare", wanted, tables) as place:
        started = time.monotonic()
        make_bare(place, tables)
        return time.monotonic() - started


def make_bare(root: Path, tables: int) -> None:
    """The same directories and files that a changefeed makes, with as many bytes."""
    version, rows = 10**18, b"x" * (_SWEEP_ROWS * _ROW_BYTES)
    schema = schema_file_text(SCHEMA_NAME, f"sbtest{tables}", version, LAYOUT).encode()
    folders = [f"{root}/{SCHEMA_NAME}/sbtest{n}" for n in range(1, tables + 1)]
    for folder in folders:
        day = f"{folder}/{version}/2026-01-31"
        os.makedirs(f"{folder}/meta")
        os.makedirs(f"{day}/meta")
        _write(f"{folder}/meta/schema_{version}_0123456789.json", schema)
        _write(f"{day}/CDC{1:020d}.csv", rows)
        _write(f"{day}/meta/CDC.index", b"CDC%020d.csv\n" % 1)
    for folder in folders:
        day = f"{folder}/{version}/2026-01-31"
        _write(f"{day}/CDC{2:020d}.csv", rows)
        _write(f"{day}/meta/CDC.index", b"CDC%020d.csv\n" % 2)


def _write(path: str, data: bytes) -> None:
    with open(path, "wb", buffering=0) as file:
        file.write(data)
