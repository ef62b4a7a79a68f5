"""How a benchmark runs a changefeed: one session for all its runs, a directory for its output, timing from outside."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from pyspark.sql import SparkSession

from tidegate.bench.harness.figures import mib_s
from tidegate.bench.harness.memory import RAM_TIERS, CpuMeter
from tidegate.config.settings import Settings, load_settings
from tidegate.errors import TidegateError
from tidegate.format.layout import RESERVED_PREFIX
from tidegate.spark.handle import Handle, start, start_source
from tidegate.spark.query import OpenSource
from tidegate.spark.session import local_session
from tidegate.storage.store import StoreOpener, open_store
from tidegate.tools.verify import Report, verify

_POLL_S = 0.02
_PATIENCE_S = 300.0  # a round of thousands of tables on a server process takes minutes on a busy machine


class Watch(Protocol):
    """Looks at a changefeed every 20 ms while it reads; reading goes on until the watch has seen enough."""

    def look(self, handle: Handle) -> None: ...

    def enough(self) -> bool: ...


def say(text: str) -> None:
    """A line of progress, at once."""
    print(text, flush=True)


@contextlib.contextmanager
def session() -> Iterator[SparkSession]:
    """The active session, or one of our own that ends with the benchmark."""
    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    say("starting Spark")
    spark = local_session()
    try:
        yield spark
    finally:
        spark.stop()


@dataclass(frozen=True)
class Ended:
    """A changefeed that has landed all it accepted, in so much time of the clock and of the processors."""

    seconds: float
    cpu_seconds: float
    landed_rows: int
    landed_bytes: int
    size_flushed: tuple[int, ...] = ()
    wakes_s: tuple[float, ...] = ()
    drains_s: tuple[float, ...] = ()

    @property
    def landed_mib_s(self) -> float:
        return mib_s(self.landed_bytes, self.seconds)


@dataclass
class Until:
    """Lets a changefeed stop in order once it has accepted so many rows: a source that follows does not end itself."""

    rows: int

    def look(self, handle: Handle) -> None:
        if handle.changefeed.totals.rows_accepted >= self.rows:
            handle.stop()

    def enough(self) -> bool:
        return True


@dataclass(frozen=True)
class Feed:
    """A changefeed from a source URI to a directory of the benchmark's own, or to the URI of a server's sink.

    A source may also be a DataFrame that ends (`OpenSource`). No sink is `noop://`. `aside` are processes below this
    one that are not the changefeed's, such as a database: their processor time does not count.
    """

    source: str | OpenSource
    sink: Path | str | None
    spool: Path
    options: Mapping[str, str] = field(default_factory=dict)
    store_opener: StoreOpener = open_store
    aside: tuple[int, ...] = ()

    @property
    def settings(self) -> Settings:
        uri = f"file://{quote(str(self.sink))}" if isinstance(self.sink, Path) else self.sink or "noop://"
        return load_settings(uri, None, {"spool.dir": str(self.spool), **self.options})

    @property
    def ram_tier(self) -> str:
        """Where the RAM tier of its spool is; what a killed changefeed left beside it is not ours."""
        return RAM_TIERS.replace("*", f"{self.settings.changefeed_id}-*")

    def run(self, seconds: float | None = None, watch: Watch | None = None) -> Ended:
        """From start to the last file and checkpoint; `seconds` after the first wake reading ends.

        The sink is emptied before.
        """
        self.clear()
        return self.go_on(seconds, watch)

    def go_on(self, seconds: float | None = None, watch: Watch | None = None) -> Ended:
        """Like `run`, on a sink that may have files already."""
        cpu, started = CpuMeter(self.aside), time.monotonic()
        handle = self._start()
        try:
            _attend(handle, seconds, watch)
            seconds, cpu_seconds = time.monotonic() - started, cpu.seconds()
        finally:
            handle.leave()
        _check_whole(handle)
        t = handle.changefeed.totals
        lists = (tuple(t.size_flushed), tuple(t.wakes_s), tuple(t.drains_s))
        return Ended(seconds, cpu_seconds, t.rows_landed, t.bytes_landed, *lists)

    def _start(self) -> Handle:
        if isinstance(self.source, str):
            return start_source(self.source, self.settings, store_opener=self.store_opener)
        return start(self.source, self.settings, finite=True, store_opener=self.store_opener)

    @contextlib.contextmanager
    def running(self) -> Iterator[Handle]:
        """The changefeed beside the block, on an empty sink; at its end it stops in order and must have landed all."""
        self.clear()
        handle = self._start()
        try:
            yield handle
            handle.stop()
            _attend(handle, None, None)
        finally:
            handle.leave()
        _check_whole(handle)

    def clear(self) -> None:
        """Remove the output, and let what other runs wrote reach the disk before the next is measured."""
        self.remove()
        os.sync()

    def remove(self) -> None:
        if isinstance(self.sink, Path):
            shutil.rmtree(self.sink, ignore_errors=True)

    def check(self) -> Report:
        """Compare the sink with a replay of the source; VerifyError names what is wrong."""
        settings = self.settings
        if not isinstance(self.source, str):
            raise TidegateError("a DataFrame cannot be replayed by its name, so what it landed is compared otherwise")
        return verify(
            self.source,
            settings,
            open_store(settings.sink_uri, settings.access),
            progress=lambda text: say(f"  {text}"),
        )


def journal_sizes(feed: Feed) -> tuple[int, int]:
    """Bytes of the newest snapshot in its journal, and of all objects of the journal."""
    store = open_store(feed.settings.sink_uri, feed.settings.access)
    found = list(store.list(f"{RESERVED_PREFIX}/journal"))
    snapshots = [size for path, size in found if path.endswith(".snapshot")]
    return snapshots[-1] if snapshots else 0, sum(size for _, size in found)


def _attend(handle: Handle, seconds: float | None, watch: Watch | None) -> None:
    """Wait until the changefeed has ended. One that makes no progress is given up: a benchmark must not hang."""
    moved, seen, until = time.monotonic(), (0, 0), None
    while not handle.await_termination(_POLL_S):
        totals, now = handle.changefeed.totals, time.monotonic()
        if (totals.rows_accepted, totals.rows_landed) != seen:
            moved, seen = now, (totals.rows_accepted, totals.rows_landed)
        if now - moved > _PATIENCE_S:
            raise TidegateError(f"nothing was accepted or landed for {_PATIENCE_S:g} s: {handle.status()}")
        if until is None and totals.wakes_s and seconds is not None:
            until = now + seconds
        if until is not None and now >= until and (watch is None or watch.enough() or now >= until + _PATIENCE_S):
            handle.stop()
        elif watch is not None:
            watch.look(handle)


def _check_whole(handle: Handle) -> None:
    """A run counts only if it went through in one go and landed all that it accepted."""
    status = handle.status()
    if handle.restarts:
        raise TidegateError(
            f"the query was started again {handle.restarts} times, so its figures mean nothing: run again"
        )
    if not status.rows_accepted or status.rows_landed != status.rows_accepted:
        raise TidegateError(
            f"of {status.rows_accepted} rows accepted {status.rows_landed} landed: a changefeed that ends must land all"
        )
