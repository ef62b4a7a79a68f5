"""`slow-store`: 1,000 tables on a store that answers every request late, and one table of them that gets no answer.

The store is a directory whose every request takes `put-latency` longer, as an object store's would; landings run as
many at once as they do there. Three runs in one JVM, each compared with a replay afterwards:

    fast      a finite workload on the plain directory
    slow      the same workload on the slow store
    hanging   a paced workload on the slow store, where the data of one table gets no answer until just before the end

    landed_mib_s, ratio_to_fast_store    bytes per second until everything is on the slow store, and against the fast
    peak_rss_mib               PSS of the process tree plus the RAM tier, the most of `slow` and `hanging`
    rss_over_cap               that against `cap_mib`: what the idle pipeline takes (measured after the warm-up), what
                               the JVM's heap may still grow by, the RAM tier of the spool, 128 MiB in flight for each
                               land task, and one micro-batch
    others_lag_over_interval   of the files of all tables but the hanging one, the 99th percentile of the time from
                               accepted (of the oldest change in it) to durable, over flush-interval
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlencode

from pyspark.sql import SparkSession

from tidegate.bench.harness.ages import Ages
from tidegate.bench.harness.feed import Ended, Feed, say, session
from tidegate.bench.harness.figures import MIB, Figures, percentile
from tidegate.bench.harness.memory import MemorySampler, tree_bytes
from tidegate.bench.harness.parameters import byte_rate, byte_size, count, duration, number
from tidegate.config.settings import duration_s
from tidegate.errors import TidegateError
from tidegate.executor.directory import MEMORY_TIER_BYTES
from tidegate.sources.source import byte_count
from tidegate.spark.handle import Handle
from tidegate.spark.query import limit_bytes
from tidegate.storage.access import NO_ACCESS, Access
from tidegate.storage.store import Store, StoreOpener, open_store

_ROW_BYTES = 220
_IN_FLIGHT_BYTES = 128 * MIB  # of one land task
_HANGING = "sbtest7"
_POLL_S = 0.05


@dataclass(frozen=True)
class Parameters:
    put_latency: str = duration("100ms", "each request to the slow store takes this much longer")
    tables: int = count(1_000, "tables of the workload")
    size: str = byte_size("512MiB", "bytes that the runs `fast` and `slow` land")
    seconds: float = number(25.0, "seconds that the run `hanging` reads")
    rate: str = byte_rate("8MiB", "bytes per second of the run `hanging`")
    flush_interval: str = duration("5s", "flush-interval of the changefeed")
    file_size: str = byte_size("16MiB", "file-size of the changefeed")
    spool_size: str = byte_size("512MiB", "spool.max-bytes of the changefeed")

    def workload(self, **more: Any) -> str:
        query = {"tables": self.tables, "rows": 1_000, "batch": "4KiB", "prepare": "false", "seed": 1, **more}
        return f"workload://sysbench?{urlencode(query)}"

    @property
    def events(self) -> int:
        return byte_count(self.size) // _ROW_BYTES


@dataclass(frozen=True)
class SlowStores:
    """Opens stores that take `latency_s` more for every request; a value that goes to the workers.

    Data files of `hanging` tables wait as long as the file `while_exists` exists.
    """

    latency_s: float
    hanging: str = ""
    while_exists: str = ""
    sleep: Callable[[float], object] = time.sleep

    def __call__(self, sink_uri: str, access: Access = NO_ACCESS) -> Store:
        return cast(Store, _SlowStore(open_store(sink_uri, access), self))


class _SlowStore:
    """Asks a plain store, later. What that one asks of itself takes no time: it is one request."""

    concurrency = None  # as of an object store: as many landings at once as there are workers for

    def __init__(self, plain: Store, stores: SlowStores) -> None:
        self._plain, self._stores = plain, stores

    def tag_of(self, data: bytes) -> str | None:
        return None

    def __getattr__(self, name: str) -> Any:
        ask, stores = getattr(self._plain, name), self._stores

        def later(*arguments: Any) -> Any:
            stores.sleep(stores.latency_s)
            while name == "create" and stores.hanging and f"/{stores.hanging}/" in arguments[0] and _hangs(stores):
                stores.sleep(_POLL_S)
            return ask(*arguments)

        return later


def _hangs(stores: SlowStores) -> bool:
    return os.path.exists(stores.while_exists)


@dataclass(kw_only=True)
class HangingAges(Ages):
    """Ends the hang `until_s` after the first wake: removes the file `hang`."""

    hang: Path
    until_s: float
    _first: float = 0.0

    def look(self, handle: Handle) -> None:
        super().look(handle)
        if not self._first and handle.changefeed.totals.wakes_s:
            self._first = time.monotonic()
        if self._first and time.monotonic() - self._first >= self.until_s:
            self.hang.unlink(missing_ok=True)

    def enough(self) -> bool:
        return not self.hang.exists()


def run(data_dir: Path, wanted: Parameters) -> Figures:
    home = data_dir.resolve()
    slow_store = SlowStores(duration_s(wanted.put_latency))
    with session() as spark:
        say("warming up")
        warm = _feed(home, wanted, "warm-up", wanted.workload(events=max(1, wanted.events // 4)))
        warm.run()
        warm.remove()
        cap = cap_bytes(spark, _feed(home, wanted, "slow", ""), tree_bytes(os.getpid()))
        finite = wanted.workload(events=wanted.events)
        fast = _measured(_feed(home, wanted, "fast", finite), wanted)
        feed = _feed(home, wanted, "slow", finite, slow_store)
        with MemorySampler(ram_tiers=feed.ram_tier) as memory:
            slow = _measured(feed, wanted)
        ages, hanging = _hanging(home, wanted)
    return figures(wanted, fast, slow, max(memory.peak_bytes, hanging.peak_bytes), cap, ages)


def figures(wanted: Parameters, fast: Ended, slow: Ended, peak_bytes: int, cap: int, ages: Ages) -> Figures:
    interval_s, others = duration_s(wanted.flush_interval), ages.without(_HANGING)
    return {
        "peak_rss_mib": peak_bytes / MIB,
        "cap_mib": cap / MIB,
        "rss_over_cap": peak_bytes / cap,
        "landed_mib_s": slow.landed_mib_s,
        "fast_mib_s": fast.landed_mib_s,
        "ratio_to_fast_store": slow.landed_mib_s / fast.landed_mib_s,
        "others_lag_over_interval": percentile(others, 99) / interval_s,
        "others_max_lag_over_interval": max(others, default=0.0) / interval_s,
        "hanging_lag_over_interval": max(ages.by_table.get(_HANGING, [0.0])) / interval_s,
    }


def cap_bytes(spark: SparkSession, feed: Feed, idle_bytes: int) -> int:
    """What the pipeline may take at most, by its own bounds."""
    jvm: Any = spark.sparkContext._jvm
    runtime = jvm.java.lang.Runtime.getRuntime()
    heap = int(runtime.maxMemory()) - int(runtime.totalMemory())
    settings, slots = feed.settings, int(spark.sparkContext.defaultParallelism)
    ram_tier = min(settings.spool_max_bytes, MEMORY_TIER_BYTES)
    return idle_bytes + heap + ram_tier + slots * _IN_FLIGHT_BYTES + limit_bytes(settings.spool_max_bytes)


def _measured(feed: Feed, wanted: Parameters) -> Ended:
    assert isinstance(feed.sink, Path)
    name = feed.sink.name
    say(f"{name}: {wanted.events} changes of {wanted.tables} tables")
    ended = feed.run()
    say(f"{name}: {ended.landed_mib_s:.1f} MiB/s ({ended.seconds:.1f} s); checking what landed")
    _check(feed, ended)
    return ended


def _hanging(home: Path, wanted: Parameters) -> tuple[Ages, MemorySampler]:
    hang = home / "slow-store-hang"
    hang.touch()
    say(f"hanging: {wanted.seconds:g} s at {wanted.rate}/s, without an answer for the data of {_HANGING}")
    stores = SlowStores(duration_s(wanted.put_latency), _HANGING, str(hang))
    feed = _feed(home, wanted, "hanging", wanted.workload(rate=wanted.rate), stores)
    ages = HangingAges(hang=hang, until_s=0.9 * wanted.seconds)
    try:
        with MemorySampler(ram_tiers=feed.ram_tier) as memory:
            ended = feed.run(wanted.seconds, ages)
    finally:
        hang.unlink(missing_ok=True)
    check_hang(ages, wanted)
    say(f"hanging: {len(ages.without(_HANGING))} files of other tables; checking what landed")
    _check(feed, ended)
    return ages, memory


def check_hang(ages: Ages, wanted: Parameters) -> None:
    """The part means something only if the one table hung and all others landed."""
    longest = max(ages.by_table.get(_HANGING, [0.0]))
    if longest < 0.5 * wanted.seconds:
        raise TidegateError(
            f"{_HANGING} hung for {longest:.1f} s only: it was to hang for most of {wanted.seconds:g} s"
        )
    if len(ages.by_table) < wanted.tables:
        raise TidegateError(f"only {len(ages.by_table)} of {wanted.tables} tables landed: give it more seconds")


def _check(feed: Feed, ended: Ended) -> None:
    report = feed.check()
    if report.bytes != ended.landed_bytes:
        raise TidegateError(f"{ended.landed_bytes} bytes were counted as landed but {report.bytes} are on the sink")
    feed.remove()


def _feed(home: Path, wanted: Parameters, name: str, source: str, stores: StoreOpener = open_store) -> Feed:
    options = {"file-size": wanted.file_size, "flush-interval": wanted.flush_interval}
    options["spool.max-bytes"] = wanted.spool_size
    return Feed(source, home / f"slow-store-{name}", home / "spool", options, stores)
