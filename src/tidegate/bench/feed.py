"""How a benchmark runs a changefeed: one session for all its runs, a directory for its output, timing from outside."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from pyspark.sql import SparkSession

from tidegate.bench.figures import mib_s
from tidegate.bench.memory import CpuMeter
from tidegate.engine.pipeline import Handle, start_source
from tidegate.engine.session import local_session
from tidegate.engine.store import open_store
from tidegate.errors import TidegateError
from tidegate.settings import Settings, load_settings
from tidegate.verify import Report, verify

_POLL_S = 0.02

Watch = Callable[[Handle], None]


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
    """A changefeed that has landed all it accepted, and the time of the clock and of the processors it took."""

    handle: Handle
    seconds: float
    cpu_seconds: float

    @property
    def landed_bytes(self) -> int:
        return self.handle.changefeed.totals.bytes_landed

    @property
    def landed_mib_s(self) -> float:
        return mib_s(self.landed_bytes, self.seconds)


@dataclass(frozen=True)
class Feed:
    """A changefeed from a source URI to a directory of the benchmark's own (None: to `noop://`)."""

    source: str
    sink: Path | None
    spool: Path
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def settings(self) -> Settings:
        uri = f"file://{quote(str(self.sink))}" if self.sink is not None else "noop://"
        return load_settings(uri, None, {"spool.dir": str(self.spool), **self.options})

    def run(self, seconds: float | None = None, watch: Watch | None = None) -> Ended:
        """From start to the last file and checkpoint; `seconds` ends the reading. The sink is emptied before."""
        self.clear()
        cpu, started = CpuMeter(), time.monotonic()
        handle = start_source(self.source, self.settings)
        try:
            while not handle.await_termination(_POLL_S):
                if watch is not None:
                    watch(handle)
                if seconds is not None and time.monotonic() - started >= seconds:
                    handle.stop()
                    handle.await_termination()
            ended = Ended(handle, time.monotonic() - started, cpu.seconds())
        finally:
            handle.stop()
        _check_whole(handle)
        return ended

    def clear(self) -> None:
        """Remove the output, and let what other runs wrote reach the disk before the next is measured."""
        self.remove()
        os.sync()

    def remove(self) -> None:
        if self.sink is not None:
            shutil.rmtree(self.sink, ignore_errors=True)

    def check(self) -> Report:
        """Compare what stands on the sink with a replay of the source; VerifyError names what is wrong."""
        settings = self.settings
        return verify(self.source, settings, open_store(settings.sink_uri), progress=lambda text: say(f"  {text}"))


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
