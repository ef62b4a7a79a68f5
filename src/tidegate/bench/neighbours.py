"""`neighbours`: 1,000 ordinary tables at a modest rate beside one bad neighbour; do they have to wait for it?

The neighbour (`neighbour=` of the workload) comes on top of the rate. Three runs in one JVM, each compared with a
replay afterwards, the neighbour's rows included:

    control   no neighbour
    giant     every `giant_every` a transaction of `giant_rows` at once, many times as large as a micro-batch may be
    slow      `slow_rows` every `slow_every` with `slow_columns` DOUBLEs, whose text takes long to make

    others_lag_over_interval_{control,giant,slow}   of the files of the ordinary tables, the 99th percentile of the time
                                     from accepted (of the oldest change in it) to durable, over flush-interval
    wake_p99_ms_{control,giant,slow}   the 99th percentile of the time from the start of a micro-batch to its wake: all
                                     tables share micro-batches, so this is when ordinary changes are accepted
    others_wake_p99_ratio_{giant,slow}   that against the control
    neighbour_mib_{giant,slow}       what landed of the neighbour
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tidegate.bench.harness.ages import Ages, Names
from tidegate.bench.harness.feed import Feed, say, session
from tidegate.bench.harness.figures import MIB, Figures, percentile
from tidegate.bench.harness.parameters import byte_rate, byte_size, count, duration, number
from tidegate.bench.throughput import count_lines
from tidegate.config.settings import duration_s
from tidegate.control.rounds import Round
from tidegate.errors import BadSetting, TidegateError
from tidegate.sources.source import byte_count
from tidegate.sources.workload.neighbour import COLUMN_BYTES, read_habits
from tidegate.sources.workload.sysbench import SCHEMA_NAME
from tidegate.sources.workload.workload import parse_workload
from tidegate.spark.query import limit_bytes

_WARM_BATCHES = 3


@dataclass(frozen=True)
class Parameters:
    tables: int = count(1_000, "ordinary tables")
    rate: str = byte_rate("4MiB", "bytes per second of the ordinary tables together")
    warm_seconds: float = number(3.0, "seconds of changes for the warm-up")
    seconds: float = number(12.0, "seconds that each run reads, or longer until a whole transaction has landed")
    giant_rows: int = count(600_000, "rows of a transaction of the giant neighbour")
    giant_every: str = duration("4s", "how often the giant neighbour commits")
    slow_rows: int = count(1_000, "rows of a transaction of the slow neighbour")
    slow_every: str = duration("100ms", "how often the slow neighbour commits")
    slow_columns: int = count(100, "DOUBLE columns of the slow neighbour, whose text takes long to make")
    flush_interval: str = duration("5s", "flush-interval of the changefeed")
    file_size: str = byte_size("4MiB", "file-size of the changefeed")
    spool_size: str = byte_size("128MiB", "spool.max-bytes of the changefeed; a micro-batch may be a fifth of it")

    def workload(self, **more: str | int) -> str:
        query = {"tables": self.tables, "rows": 1_000, "batch": "4KiB", "prepare": "false", "seed": 1}
        return f"workload://sysbench?{urlencode({**query, 'rate': self.rate, **more})}"

    def events(self, seconds: float) -> int:
        """What the ordinary tables bring in so many seconds."""
        return max(1, int(byte_count(self.rate) * seconds) // parse_workload("").row_bytes)

    @property
    def giant(self) -> str:
        return f"txn-rows:{self.giant_rows},every:{self.giant_every}"

    @property
    def slow(self) -> str:
        return f"txn-rows:{self.slow_rows},every:{self.slow_every},columns:{self.slow_columns}"

    @property
    def name(self) -> str:
        """The neighbour's table: it is one more than the ordinary ones."""
        return f"sbtest{self.tables + 1}"


@dataclass(kw_only=True)
class Watch(Ages):
    """Has seen enough when all ordinary tables have landed, and so many bytes of the neighbour."""

    wanted: Parameters
    enough_bytes: int
    neighbour_bytes: int = 0

    def enough(self) -> bool:
        return self.ordinary >= self.wanted.tables and self.neighbour_bytes >= self.enough_bytes

    def note(self, round_: Round, landed: Any, ages_s: Any, names: Names) -> None:
        super().note(round_, landed, ages_s, names)
        for owner, size in zip(round_.dispatcher[landed].tolist(), round_.bytes[landed].tolist(), strict=True):
            self.neighbour_bytes += size if names[owner] == self.wanted.name else 0

    @property
    def ordinary(self) -> int:
        """Ordinary tables that have landed."""
        return len(self.by_table.keys() - {self.wanted.name})

    @property
    def lags_s(self) -> list[float]:
        return self.without(self.wanted.name)


@dataclass(frozen=True)
class Seen:
    """Of one run: how long files of ordinary tables took, and the wakes; and what landed of the neighbour."""

    lags_s: list[float]
    wakes_s: tuple[float, ...]
    neighbour_bytes: int = 0


def run(data_dir: Path, wanted: Parameters) -> Figures:
    home = data_dir.resolve()
    check_giant(wanted, limit_bytes(_feed(home, wanted, "giant", "").settings.spool_max_bytes))
    with session():
        say("warming up")
        warm = _feed(home, wanted, "warm-up", wanted.workload(events=wanted.events(wanted.warm_seconds)))
        warm.run()
        warm.remove()
        runs = {
            "control": _measured(home, wanted, "control"),
            "giant": _measured(home, wanted, "giant", wanted.giant),
            "slow": _measured(home, wanted, "slow", wanted.slow),
        }
    return figures(wanted, runs)


def figures(wanted: Parameters, runs: Mapping[str, Seen]) -> Figures:
    interval_s = duration_s(wanted.flush_interval)
    wake_ms = {name: 1000 * percentile(seen.wakes_s, 99) for name, seen in runs.items()}
    found: Figures = {}
    for name, seen in runs.items():
        found[f"others_lag_over_interval_{name}"] = percentile(seen.lags_s, 99) / interval_s
        found[f"wake_p99_ms_{name}"] = wake_ms[name]
        if name != "control":
            found[f"others_wake_p99_ratio_{name}"] = wake_ms[name] / wake_ms["control"]
            found[f"neighbour_mib_{name}"] = seen.neighbour_bytes / MIB
    return found


def check_giant(wanted: Parameters, limit: int) -> None:
    rows, row_bytes = _transaction(wanted.giant)
    size = rows * row_bytes
    if size <= limit:
        raise BadSetting(
            f"a transaction of {wanted.giant_rows} rows has {size / MIB:.1f} MiB and fits a micro-batch of "
            f"{limit / MIB:.1f} MiB: give giant-rows more, or spool-size less"
        )


def _measured(home: Path, wanted: Parameters, name: str, neighbour: str = "") -> Seen:
    say(f"{name}: {wanted.seconds:g} s of {wanted.tables} tables at {wanted.rate}/s{', ' * bool(neighbour)}{neighbour}")
    rows, size = _transaction(neighbour)
    feed = _feed(home, wanted, name, wanted.workload(**({"neighbour": neighbour} if neighbour else {})))
    watch = Watch(wanted=wanted, enough_bytes=rows * size)
    ended = feed.run(wanted.seconds, watch)
    assert isinstance(feed.sink, Path)
    lines, landed = count_lines(feed.sink / SCHEMA_NAME / wanted.name)
    check_landed(watch, lines, rows)
    say(f"{name}: {len(watch.lags_s)} files of ordinary tables, {landed / MIB:.0f} MiB of the neighbour; checking them")
    report = feed.check()
    if report.bytes != ended.landed_bytes:
        raise TidegateError(f"{ended.landed_bytes} bytes were counted as landed but {report.bytes} are on the sink")
    feed.remove()
    return Seen(watch.lags_s, ended.wakes_s[_WARM_BATCHES:] or ended.wakes_s, landed)


def _transaction(neighbour: str) -> tuple[int, int]:
    """The rows of a neighbour's transaction, and the bytes of one; nothing without a neighbour."""
    if not neighbour:
        return 0, 0
    habits = read_habits(neighbour)
    return habits.txn_rows, parse_workload("").row_bytes + COLUMN_BYTES * habits.columns


def check_landed(watch: Watch, lines: int, rows: int) -> None:
    """A run means something only if all ordinary tables landed, and a whole transaction of the neighbour."""
    tables = watch.wanted.tables
    if watch.ordinary < tables:
        raise TidegateError(f"only {watch.ordinary} of {tables} tables landed: give it more seconds")
    if lines < rows:
        raise TidegateError(
            f"{lines} rows of the neighbour landed, not one transaction of {rows}: give it more seconds"
        )


def _feed(home: Path, wanted: Parameters, name: str, source: str) -> Feed:
    options = {"file-size": wanted.file_size, "flush-interval": wanted.flush_interval}
    options["spool.max-bytes"] = wanted.spool_size
    return Feed(source, home / f"neighbours-{name}", home / "spool", options)
