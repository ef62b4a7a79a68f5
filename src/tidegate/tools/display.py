"""What `tidegate run` shows while it runs: a live block on a terminal, else a line every few seconds.

Log lines appear above the block. Rates are those of the last seconds. Names and reasons of others are escaped, and cut
so that nothing is wider than the terminal.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from tidegate.clock import Clock
from tidegate.events import physical_time
from tidegate.observe.status import DdlLine, Status
from tidegate.tools.block import block
from tidegate.tools.rates import Rates, Window
from tidegate.wording import escaped, human_bytes, human_seconds

_BLOCK_EVERY_S, _LINE_EVERY_S = 0.5, 5.0
_REASON = 300  # letters of a reason on a line


class Display:
    """Shows the status: `Display(sys.stdout, SystemClock())`. `write_above` is for log lines while it is live."""

    def __init__(self, out: TextIO, clock: Clock, width: int | None = None) -> None:
        self._out, self._clock = out, clock
        self._console = Console(file=out, width=width, highlight=False)
        self.is_live = self._console.is_terminal and not self._console.is_dumb_terminal
        self._every = _BLOCK_EVERY_S if self.is_live else _LINE_EVERY_S
        self._at = self._started = clock.steady()
        self._window = Window()
        self._live: Live | None = None
        # The library decides how far to move up before it writes; another line in between would leave debris.
        self._lock = threading.RLock()

    @property
    def is_due(self) -> bool:
        """Whether `show` would write: a caller need not ask for the status more often."""
        return self._clock.steady() - self._at >= self._every

    def show(self, status: Status) -> None:
        if self.is_due:
            self._at = self._clock.steady()
            self._write(status, self._at)

    def say(self, sentence: str) -> None:
        """A sentence of the command itself: above the block, or as a line."""
        if self._live is not None:
            self.write_above(sentence)
        else:
            self._out.write(sentence + "\n")
            self._out.flush()

    def close(self, status: Status) -> None:
        """Leave the last state on the screen."""
        if self._live is not None:
            self._write(status, self._clock.steady())
        self.leave()

    def leave(self) -> None:
        """Give the terminal back as it is."""
        with self._lock:
            if self._live is not None:
                self._live.stop()
                self._live = None

    def write_above(self, line: str) -> None:
        """A line of the log, from any thread. It may be wider than the terminal, which then wraps it by itself."""
        with self._lock:
            self._console.print(Text(line), soft_wrap=True)

    def _write(self, status: Status, now: float) -> None:
        rates, elapsed = self._window.rates(now, status), now - self._started
        if not self.is_live:
            self._out.write(escaped(" ".join(_words(status, rates, elapsed))) + "\n")
            self._out.flush()
            return
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
            self._live.start()
        with self._lock:
            self._live.update(block(status, rates, elapsed, self._console.width), refresh=True)


def _words(status: Status, rates: Rates, elapsed: float) -> Iterator[str]:
    """The line for logs and files: what is usual first, then what is not."""
    yield f"{status.state} {elapsed:.0f}s rows/s={rates.rows:.0f} accepted={_bytes(rates.accepted)}/s"
    yield f"landed={_bytes(rates.landed)}/s spool={_bytes(status.spool_bytes)}/{_bytes(status.spool_max_bytes)}"
    checkpoint = f"{physical_time(status.checkpoint_ts):%Y-%m-%dT%H:%M:%SZ}" if status.checkpoint_ts else "none"
    yield f"files={status.files} checkpoint={checkpoint} lag={status.lag_s:.1f}s"
    if status.source_left_bytes is not None:
        left = f", {human_seconds(rates.left_s)} left" if rates.left_s is not None else ""
        yield f"source={_bytes(status.source_left_bytes)} to read{left}"
    if status.source_lag_s is not None:
        yield f"source-lag={status.source_lag_s:.1f}s"
    if status.snapshot is not None:
        yield f"snapshot={status.snapshot.share:.0%}"
    if status.wake_held:
        yield "; the upstream waits until the spool is at its low mark"
    yield from _troubles(status)


def _troubles(status: Status) -> Iterator[str]:
    again = f", next try in {human_seconds(status.retry_in_s)}" if status.retry_in_s is not None else ""
    if status.waiting:
        yield f"; waits for {status.waiting[:_REASON]}{again}"
    if status.source_waits:
        yield f"; source waits: {status.source_waits[:_REASON]}"
    if status.retrying:
        table, reason = min(status.retrying.items())
        yield f"; retrying {status.retrying_tables} tables{again}, {table}: {reason[:_REASON]}"
    if status.ddls:
        key, first = next(iter(status.ddls.items()))
        yield f"; {len(status.ddls)} DDLs, {key} {ddl_wait(first)}"
    if status.set_aside_rows:
        yield f"; set aside {status.set_aside_rows} rows"
    yield from (f"; {sentence}" for sentence in (status.shortage, status.only_repeats, status.error) if sentence)


def ddl_wait(ddl: DdlLine) -> str:
    return f"waits for {ddl.waits_for} ({human_seconds(ddl.waits_s)})"


def _bytes(size: float) -> str:
    """Without a space, so that a line can be split into words."""
    return human_bytes(size).replace(" ", "")
