"""`tables`: very many tables, each with a few rows, in two sweeps over all of them.

In the first sweep every table gets its first two rows, in the second two more. The first ends the changefeed, the
second is read by another that is started over the same sink, so every table lands exactly twice (schema file, data
file and index; then data file and index) and a restart that knows all tables is part of the time. What landed is
compared with a replay, byte by byte, outside the time.

The disk decides much here, so a bare loop comes first, and once more at the end because machines differ from one
minute to the next: one process without Spark makes the same directories and files of as many bytes for as many tables
(at most `bare-tables`, and for two minutes), by makedirs, open and write and nothing else, in two sweeps too. Each part
has a file system of its own where that can be made (`disk`); it needs root.

    tables_per_s       tables over the time of both sweeps, starts and ends included
    ratio_to_bare      that against both runs of the bare loop
    put_per_table      requests of land tasks, of both sweeps
    wake_p99_ms        from a micro-batch's start to its wake
    durable_p99_s      of all files, from accepted to durable; without a rate all is accepted long before it can land
    restart_s          from the start of the second changefeed to its first wake
    snapshot_mib       the journal's snapshot at the end; `journal_mib` are all its objects

With `--layouts 1000` the tables have so many different lists of columns. Then the same tables with one shared layout
are measured before (not with `--shared false`), and `ratio_to_shared` is the time of both sweeps against theirs.

With `--put-latency 30ms` every request takes that much longer, as on an object store, and as many tables land at once
as there. Then `predicted_first_s` and `predicted_second_s` are tables x requests x latency over the tables that land at
once (two tasks with 128 each, or 32 on a server), `landing_first_s` and `landing_second_s` the time from accepted to
the last durable, and `landing_over_arithmetic` is what both took against what was predicted.

With `--store s3` the tables land on moto's server, a process of the benchmark; there is no bare loop then. There and
with a latency, `put_data_per_table`, `put_index_per_table`, `put_schema_per_table`, `list_per_table`, `get_per_table`
and `head_per_table` are the requests of both sweeps by what they are for, and `own_requests` those for the journal and
`metadata`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np

from tidegate.bench.harness.ages import after_each_round
from tidegate.bench.harness.bare import make_bare
from tidegate.bench.harness.counting import KINDS, OWN, CountingStores
from tidegate.bench.harness.disk import AUTO, DIRECTORY, IMAGE, Disk, disk_at
from tidegate.bench.harness.feed import Ended, Feed, journal_sizes, say, session
from tidegate.bench.harness.figures import MIB, Figures, percentile
from tidegate.bench.harness.memory import MemorySampler
from tidegate.bench.harness.object_server import FILE, S3, s3_server
from tidegate.bench.harness.parameters import count, duration, one_of
from tidegate.bench.slow_store import SlowStores
from tidegate.config.settings import duration_s
from tidegate.errors import BadSetting, TidegateError
from tidegate.executor.land import LANES_PER_WORKER
from tidegate.spark.handle import Handle
from tidegate.storage.store import StoreOpener, open_store

_SWEEP_ROWS = 2
_ROW_BYTES = 222
_TABLE_BYTES, _SPARE_BYTES = 16 << 10, 2 << 30  # of an image: blocks of 1 KiB, and inodes of 256 bytes
_TABLE_INODES, _SPARE_INODES = 12, 10_000
_WARM_TABLES = 200
_MEMORY_EVERY_S = 5.0  # a look at all processes takes a tenth of a second


@dataclass(frozen=True)
class Parameters:
    tables: int = count(100_000, "tables that land; each gets two rows in each of two sweeps")
    layouts: int = count(1, "different lists of columns that the tables have")
    shared: str = one_of("true", "with --layouts: also measure tables that share one", ("true", "false"))
    bare_tables: int = count(100_000, "tables of the bare loop, at most")
    flush_interval: str = duration("5s", "flush-interval of the changefeed")
    store: str = one_of(FILE, "where the tables land: directories, or moto's S3 server", (FILE, S3))
    image: str = one_of(
        AUTO, "land on file systems made for this run; `auto`: if they can be made", (AUTO, IMAGE, DIRECTORY)
    )
    put_latency: str = duration("", "each request to the store takes this much longer")

    @property
    def latency_s(self) -> float:
        return duration_s(self.put_latency) if self.put_latency else 0.0

    @property
    def workers(self) -> int:
        """Of `worker-count`: moto's server is one process, and answers of more requests at once would be late."""
        return 4 if self.store == S3 else 16

    @property
    def counts_requests(self) -> bool:
        """Not on a plain directory: there a request is so short that counting it would be part of the time."""
        return self.store == S3 or bool(self.put_latency)

    @property
    def is_compared(self) -> bool:
        return self.layouts > 1 and self.shared == "true"

    def stores(self, notes: Path) -> StoreOpener:
        opener = SlowStores(self.latency_s) if self.put_latency else open_store
        return CountingStores(str(notes), opener) if self.counts_requests else opener

    def workload(self, sweeps: int) -> str:
        rows = _SWEEP_ROWS
        query = {"tables": self.tables, "rows": rows, "txn-rows": rows, "batch": "1B", "seed": 1}
        query |= {"events": sweeps * rows * self.tables, "layouts": self.layouts}
        return f"workload://sysbench?{urlencode(query)}"


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


Sweep = tuple[Ended, Ages]


@dataclass(frozen=True)
class Measured:
    """Both sweeps over the tables of one sink, which were found right."""

    wanted: Parameters
    sweeps: list[Sweep]
    peak_bytes: int
    journal_sizes: tuple[int, int]  # of the snapshot, and of all
    requests: Counter[str]

    @property
    def seconds(self) -> float:
        return sum(ended.seconds for ended, _ in self.sweeps)


def run(data_dir: Path, wanted: Parameters) -> Figures:
    if wanted.layouts > wanted.tables:
        raise BadSetting(f"--layouts {wanted.layouts}: there cannot be more layouts than tables")
    home = data_dir.resolve()
    with session():
        measured, bare = (_on_server if wanted.store == S3 else _on_disk)(home, wanted)
    found = figures(measured[-1], bare)
    if wanted.is_compared:
        found |= {"shared_seconds": measured[0].seconds, "ratio_to_shared": measured[-1].seconds / measured[0].seconds}
    if wanted.put_latency:
        found |= predicted(measured[-1])
    return found | (by_kind(measured[-1]) if wanted.counts_requests else {})


def _shapes(wanted: Parameters) -> dict[str, Parameters]:
    """What is measured, by the name of its place; what was asked for comes last."""
    shared = {"shared": replace(wanted, layouts=1)} if wanted.is_compared else {}
    return shared | {"tables": wanted}


def _on_disk(home: Path, wanted: Parameters) -> tuple[list[Measured], float | None]:
    """On places of a disk, with the bare loop before and after."""
    few, measured = min(wanted.bare_tables, wanted.tables), list[Measured]()
    with disk_at(home / "tables", wanted.image) as disk:
        bare = [_bare(disk, "bare-1", few)]
        say(f"bare loop: {bare[0]:.0f} tables/s; warming up")
        for name, shape in _shapes(wanted).items():
            with _room(disk, name, wanted.tables) as place:
                if not measured:
                    _feed(home, place / "warm-up", Parameters(tables=_WARM_TABLES), 1).go_on()
                measured.append(_measured(home, place / "tables", shape))
        bare.append(_bare(disk, "bare-2", few))
    say(f"bare loop again: {bare[1]:.0f} tables/s")
    return measured, 2 / sum(1 / speed for speed in bare)


def _on_server(home: Path, wanted: Parameters) -> tuple[list[Measured], float | None]:
    with s3_server() as server:
        say("warming up")
        _feed(home, server.uri("warm-up"), Parameters(tables=_WARM_TABLES), 1).go_on()
        return [_measured(home, server.uri(name), shape) for name, shape in _shapes(wanted).items()], None


def _measured(home: Path, sink: Path | str, wanted: Parameters) -> Measured:
    notes = home / "requests"
    shutil.rmtree(notes, ignore_errors=True)
    notes.mkdir(parents=True)
    say(f"{wanted.tables} tables with {wanted.layouts} layouts")
    ram_tier = _feed(home, sink, wanted, 1).ram_tier
    with MemorySampler(ram_tiers=ram_tier, every_s=_MEMORY_EVERY_S) as memory:
        sweeps = [_sweep(home, sink, wanted, number) for number in (1, 2)]
    requests = CountingStores(str(notes)).counts()
    shutil.rmtree(notes)
    say("checking what landed")
    started = time.monotonic()
    feed = _feed(home, sink, wanted, 2)
    check(feed, wanted.tables)
    say(f"checked in {time.monotonic() - started:.0f} s")
    return Measured(wanted, sweeps, memory.peak_bytes, journal_sizes(feed), requests)


def figures(of: Measured, bare: float | None) -> Figures:
    """`bare` is the speed of the bare loop, None if there was none."""
    wanted, sweeps, seconds = of.wanted, of.sweeps, of.seconds
    wakes_s = [waited for ended, _ in sweeps for waited in ended.wakes_s]
    ages_s = [age for _, ages in sweeps for age in ages.ages_s.tolist()]
    found: Figures = {
        "tables": wanted.tables,
        "layouts": wanted.layouts,
        "seconds": seconds,
        "tables_per_s": wanted.tables / seconds,
        "peak_rss_mib": of.peak_bytes / MIB,
        "all_landed": 1,
        "put_per_table": sum(ages.requests for _, ages in sweeps) / wanted.tables,
        "wake_p99_ms": 1000 * percentile(wakes_s, 99),
        "durable_p50_s": percentile(ages_s, 50),
        "durable_p99_s": percentile(ages_s, 99),
        "first_sweep_s": sweeps[0][0].seconds,
        "second_sweep_s": sweeps[1][0].seconds,
        "restart_s": sweeps[1][1].first_wake_s,
        "cores_used": sum(ended.cpu_seconds for ended, _ in sweeps) / seconds,
        "snapshot_mib": of.journal_sizes[0] / MIB,
        "journal_mib": of.journal_sizes[1] / MIB,
    }
    if bare is not None:
        found |= {"bare_tables_per_s": bare, "ratio_to_bare": wanted.tables / seconds / bare}
    return found


def by_kind(of: Measured) -> Figures:
    kinds = (kind for kind in KINDS if kind != OWN)
    found: Figures = {f"{kind}_per_table": of.requests[kind] / of.wanted.tables for kind in kinds}
    return found | {"own_requests": of.requests[OWN]}


def predicted(of: Measured) -> Figures:
    """What the waits for a slow store should take in each sweep, and what landing took."""
    found: Figures = {}
    arithmetic = landing = 0.0
    for name, (_, ages) in zip(("first", "second"), of.sweeps, strict=True):
        at_once = 2 * LANES_PER_WORKER * of.wanted.workers
        wanted_s = sweep_s(of.wanted.tables, ages.requests / of.wanted.tables, of.wanted.latency_s, at_once)
        took_s = float(ages.ages_s.max())
        found |= {f"predicted_{name}_s": wanted_s, f"landing_{name}_s": took_s}
        arithmetic, landing = arithmetic + wanted_s, landing + took_s
    return found | {"landing_over_arithmetic": landing / arithmetic}


def sweep_s(tables: int, requests: float, latency_s: float, at_once: int) -> float:
    """`sweep_s(1_000_000, 4, 0.03, 256)` is 469 s: a table's requests one after the other, `at_once` tables abreast."""
    return tables * requests * latency_s / at_once


def _room(disk: Disk, name: str, tables: int) -> contextlib.AbstractContextManager[Path]:
    """A new directory on the disk, with room for so many tables."""
    return disk.place(
        name, tables * _TABLE_BYTES + _SPARE_BYTES, (tables + _WARM_TABLES) * _TABLE_INODES + _SPARE_INODES
    )


def _feed(home: Path, sink: Path | str, wanted: Parameters, sweeps: int) -> Feed:
    options = {"flush-interval": wanted.flush_interval, "worker-count": str(wanted.workers)}
    return Feed(wanted.workload(sweeps), sink, home / "spool", options, wanted.stores(home / "requests"))


def _sweep(home: Path, sink: Path | str, wanted: Parameters, number: int) -> Sweep:
    os.sync()
    feed, ages = _feed(home, sink, wanted, number), Ages()
    ended = feed.go_on(watch=ages)
    say(f"sweep {number}: {wanted.tables / ended.seconds:.0f} tables/s ({ended.seconds:.1f} s)")
    return ended, ages


def check(feed: Feed, tables: int) -> None:
    """Every table has two data files, an index that names the second, and the rows of a replay."""
    report = feed.check()
    if (report.tables, report.files, report.rows) != (tables, 2 * tables, 2 * _SWEEP_ROWS * tables):
        raise TidegateError(f"{tables} tables were to land in two files each, but the sink has {report}")


def _bare(disk: Disk, name: str, tables: int) -> float:
    """Tables a second of the bare loop."""
    os.sync()
    with _room(disk, name, tables) as place:
        started = time.monotonic()
        return make_bare(place, tables, _SWEEP_ROWS * _ROW_BYTES) / (time.monotonic() - started)
