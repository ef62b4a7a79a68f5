"""`wake`: what it brings to wake the upstream when its bytes are in the spool, not when they are on storage.

The seeds' workload, 10 tables with batches of 2.2 MiB each, runs four times in one JVM:

    flush     the old behaviour: every table waits for its file, so it moves at batch / flush-interval
    enqueue   the two-stage ack, all else the same
    tuned     `flush` again with small files and a short interval: how far tuning alone gets
    noop      `enqueue` into a sink that stores nothing: what the landing costs

Rates are of landed bytes, from the first landing to the last one before reading ends, so neither start nor close
counts. What landed is compared with a replay of the workload after each phase.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

from tidegate.bench.harness.feed import Feed, say, session
from tidegate.bench.harness.figures import MIB, Figures, mib_s, percentile
from tidegate.bench.harness.parameters import byte_size, count, duration, number
from tidegate.config.settings import duration_s
from tidegate.errors import TidegateError
from tidegate.sources.source import byte_count
from tidegate.spark.handle import Handle

_WITHIN = 0.2  # `flush` must be as near as this to what its rule says


@dataclass(frozen=True)
class Parameters:
    tables: int = count(10, "tables of the workload")
    rows: int = count(1_000_000, "rows of each table")
    batch: str = byte_size("2.2MiB", "bytes of one table that wait for one wake")
    file_size: str = byte_size("64MiB", "file-size of `flush`, `enqueue` and `noop`")
    flush_interval: str = duration("5s", "flush-interval of `flush`, `enqueue` and `noop`")
    tuned_file_size: str = byte_size("2MiB", "file-size of `tuned`")
    tuned_flush_interval: str = duration("500ms", "flush-interval of `tuned`")
    spool_size: str = byte_size("10GiB", "spool.max-bytes of the changefeed")
    warm_seconds: float = number(4.0, "seconds of reading for the warm-up, from the first wake on")
    flush_seconds: float = number(26.0, "seconds of reading in `flush`, from the first wake on")
    enqueue_seconds: float = number(22.0, "seconds of reading in `enqueue`, from the first wake on")
    tuned_seconds: float = number(10.0, "seconds of reading in `tuned`, from the first wake on")
    noop_seconds: float = number(12.0, "seconds of reading in `noop`, from the first wake on")

    def workload(self) -> str:
        query = {"tables": self.tables, "rows": self.rows, "batch": self.batch, "seed": 1}
        return f"workload://sysbench?{urlencode(query)}"

    @property
    def expected_mib_s(self) -> float:
        """What `flush` can do: one batch of every table in each interval."""
        return mib_s(self.tables * byte_count(self.batch), duration_s(self.flush_interval))


@dataclass(frozen=True)
class Seen:
    """The totals of a changefeed at one moment."""

    at: float
    wakes: int
    landed_bytes: int
    size_flushed_bytes: int


@dataclass
class Watch:
    """Notes a moment whenever a wake or a landing has happened. The first and the last landing bound the window; where
    a wake waits for its batch's files the wakes do, so that whole batches lie between them."""

    by_wake: bool = False
    moments: list[Seen] = field(default_factory=list)
    _seen: tuple[int, int] = (0, 0)

    def look(self, handle: Handle) -> None:
        totals = handle.changefeed.totals
        seen = len(totals.wakes_s), len(totals.file_sizes)
        if seen != self._seen:
            self._seen = seen
            self.note(Seen(time.monotonic(), seen[0], sum(totals.file_sizes), sum(totals.size_flushed)))

    def note(self, seen: Seen) -> None:
        self.moments.append(seen)

    def enough(self) -> bool:
        return len(self._grown()) > 1

    def window(self) -> tuple[Seen, Seen]:
        grown = self._grown()
        if len(grown) < 2:
            raise TidegateError(
                "too little landed in this phase to tell a rate; give it more seconds, such as --flush-seconds 60"
            )
        return grown[0], grown[-1]

    def _grown(self) -> list[Seen]:
        """The moments that count: each has more wakes, or more landed bytes, than the one before."""
        counts = [seen.wakes if self.by_wake else seen.landed_bytes for seen in self.moments]
        return [seen for seen, now, before in zip(self.moments, counts, [0, *counts], strict=False) if now > before]


@dataclass(frozen=True)
class Phase:
    """One changefeed of the four, and what is to be known of it."""

    name: str
    mib_s: float
    size_flush_share: float
    wakes_ms: list[float]


def run(data_dir: Path, wanted: Parameters) -> Figures:
    tuned = {"file-size": wanted.tuned_file_size, "flush-interval": wanted.tuned_flush_interval}
    with session():
        _warm_up(data_dir, wanted)
        flush = _phase(data_dir, wanted, "flush", wanted.flush_seconds, {"dml-wake-mode": "flush"})
        enqueue = _phase(data_dir, wanted, "enqueue", wanted.enqueue_seconds, {})
        tuned_flush = _phase(data_dir, wanted, "tuned", wanted.tuned_seconds, {"dml-wake-mode": "flush", **tuned})
        noop = _phase(data_dir, wanted, "noop", wanted.noop_seconds, {})
    found = figures(wanted, flush, enqueue, tuned_flush, noop)
    if abs(float(found["flush_to_expected"]) - 1) > _WITHIN:
        say(f"note: flush is not within {_WITHIN:.0%} of tables x batch / interval, so the ratio means little")
    return found


def figures(wanted: Parameters, flush: Phase, enqueue: Phase, tuned: Phase, noop: Phase) -> Figures:
    return {
        "flush_mib_s": flush.mib_s,
        "enqueue_mib_s": enqueue.mib_s,
        "tuned_flush_mib_s": tuned.mib_s,
        "noop_mib_s": noop.mib_s,
        "ratio": enqueue.mib_s / flush.mib_s,
        "flush_to_expected": flush.mib_s / wanted.expected_mib_s,
        "size_flush_share": enqueue.size_flush_share,
        "wake_p50_ms": percentile(enqueue.wakes_ms, 50),
        "wake_p99_ms": percentile(enqueue.wakes_ms, 99),
    }


def rate(first: Seen, last: Seen) -> float:
    """MiB/s between two moments; what had landed at the first one does not count."""
    return mib_s(last.landed_bytes - first.landed_bytes, last.at - first.at)


def size_flush_share(first: Seen, last: Seen) -> float:
    """Of the bytes that landed between two moments, those in files that were flushed because they were full."""
    landed = last.landed_bytes - first.landed_bytes
    return (last.size_flushed_bytes - first.size_flushed_bytes) / landed if landed else 0.0


def _warm_up(data_dir: Path, wanted: Parameters) -> None:
    say(f"warming up for {wanted.warm_seconds:g} s")
    feed = _feed(data_dir, wanted, "warm-up", {"flush-interval": "1s"})
    feed.run(wanted.warm_seconds)
    feed.remove()


def _phase(data_dir: Path, wanted: Parameters, name: str, seconds: float, options: Mapping[str, str]) -> Phase:
    say(f"{name}: reading for {seconds:g} s")
    feed, watch = _feed(data_dir, wanted, name, options), Watch(by_wake=options.get("dml-wake-mode") == "flush")
    ended = feed.run(seconds, watch)
    first, last = watch.window()
    say(f"{name}: {rate(first, last):.1f} MiB/s over {last.at - first.at:.1f} s; checking what landed")
    if feed.sink is not None:
        check_landed(ended.landed_bytes, feed.check().bytes)
    feed.remove()
    wakes_ms = [1000 * waited for waited in ended.wakes_s]
    return Phase(name, rate(first, last), size_flush_share(first, last), wakes_ms)


def check_landed(counted: int, found: int) -> None:
    """The rate was counted from receipts, so it is only true if these bytes are on the sink."""
    if counted != found:
        raise TidegateError(f"{counted / MIB:.1f} MiB were counted as landed but {found / MIB:.1f} MiB are on the sink")


def _feed(data_dir: Path, wanted: Parameters, name: str, options: Mapping[str, str]) -> Feed:
    base = {"file-size": wanted.file_size, "flush-interval": wanted.flush_interval}
    base["spool.max-bytes"] = wanted.spool_size
    home = data_dir.resolve()
    sink = None if name == "noop" else home / f"wake-{name}"
    return Feed(wanted.workload(), sink, home / "spool", {**base, **options})
