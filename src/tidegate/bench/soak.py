"""`soak`: minutes of changes of tables that come and go, and whether memory stays where it is.

A paced workload, with a DDL every second that creates, drops, truncates or drops and creates tables, runs for
`minutes`; the tables have `layouts` different lists of columns. Memory (PSS of the process tree plus the RAM tier) is
looked at every two seconds; its slope is that of a straight line through what was seen after the first third. What
landed is compared with a replay, DDL included.

    rss_slope_mib_per_min    about 0 if nothing is kept of what is over; the JVM's heap may go on growing to its bound,
                             so its part and the rest (Python's processes and the RAM tier) have figures of their own
    stalls                   times that something waited and nothing landed for more than three flush intervals
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import numpy as np

from tidegate.bench.harness.feed import Feed, say, session
from tidegate.bench.harness.figures import MIB, Figures, percentile
from tidegate.bench.harness.memory import MemorySampler
from tidegate.bench.harness.parameters import byte_rate, count, duration, number
from tidegate.config.settings import duration_s
from tidegate.errors import TidegateError
from tidegate.spark.handle import Handle

_KINDS = "create-table|drop-table|truncate|drop-create"
_WARM_SHARE = 1 / 3
_MEMORY_EVERY_S = 2.0


@dataclass(frozen=True)
class Parameters:
    minutes: float = number(10.0, "minutes of changes")
    tables: int = count(500, "tables at the start")
    layouts: int = count(1, "different lists of columns that they have")
    rate: str = byte_rate("2MiB", "bytes per second of all tables together")
    ddl: str = duration("1s", "how often a DDL creates, drops or truncates a table")
    flush_interval: str = duration("2s", "flush-interval of the changefeed")

    def workload(self) -> str:
        query = {"tables": self.tables, "rows": 1_000, "batch": "2KiB", "prepare": "false", "rate": self.rate}
        query |= {"layouts": self.layouts}
        return f"workload://sysbench?{urlencode(query | {'ddl': f'every:{self.ddl},kinds={_KINDS}'})}"


@dataclass
class Landings:
    """Counts the times that something waits and nothing lands for longer than `patience_s`."""

    patience_s: float
    stalls: int = 0
    longest_s: float = 0.0
    _landed: int = -1
    _since: float = 0.0
    _stalled: bool = False

    def look(self, handle: Handle) -> None:
        changefeed = handle.changefeed
        self.note(time.monotonic(), changefeed.totals.rows_landed, not changefeed.ledger.idle)

    def note(self, now: float, landed: int, waits: bool) -> None:
        if landed != self._landed or not waits:
            self._landed, self._since, self._stalled = landed, now, False
            return
        self.longest_s = max(self.longest_s, now - self._since)
        if now - self._since > self.patience_s and not self._stalled:
            self.stalls += 1
            self._stalled = True

    def enough(self) -> bool:
        return True


def run(data_dir: Path, wanted: Parameters) -> Figures:
    home = data_dir.resolve()
    feed = Feed(wanted.workload(), home / "soak", home / "spool", {"flush-interval": wanted.flush_interval})
    landings = Landings(3 * duration_s(wanted.flush_interval))
    with session():
        say(f"{wanted.minutes:g} minutes of changes of {wanted.tables} tables with {wanted.layouts} layouts")
        with MemorySampler(ram_tiers=feed.ram_tier, every_s=_MEMORY_EVERY_S) as memory:
            ended = feed.run(60 * wanted.minutes, landings)
        say(f"{ended.landed_rows} rows, {len(ended.drains_s)} DDLs; checking what landed")
        if feed.check().bytes != ended.landed_bytes:
            raise TidegateError(
                f"{ended.landed_bytes} bytes were counted as landed but another number of bytes is on the sink"
            )
        feed.remove()
    slope, of_jvm = slope_per_min(memory.seen) / MIB, slope_per_min(memory.seen_jvm) / MIB
    return {
        "layouts": wanted.layouts,
        "rss_slope_mib_per_min": slope,
        "jvm_slope_mib_per_min": of_jvm,
        "python_slope_mib_per_min": slope - of_jvm,
        "stalls": landings.stalls,
        "longest_pause_s": landings.longest_s,
        "peak_rss_mib": memory.peak_bytes / MIB,
        "ddls": len(ended.drains_s),
        "landed_mib_s": ended.landed_mib_s,
        "wake_p99_ms": 1000 * percentile(ended.wakes_s, 99),
    }


def slope_per_min(seen: Sequence[tuple[float, int]], warm_share: float = _WARM_SHARE) -> float:
    """Bytes a minute of the straight line through what was seen at these seconds, without the first third of time."""
    at, size = np.array(seen, np.float64).reshape(-1, 2).T
    if not len(at):
        return 0.0
    late = at >= at[0] + warm_share * (at[-1] - at[0])
    return 60 * float(np.polyfit(at[late], size[late], 1)[0]) if late.sum() > 1 else 0.0
