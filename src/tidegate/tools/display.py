"""What `tidegate run` prints: a live block on a terminal, else a line every few seconds."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TextIO

from tidegate.clock import Clock
from tidegate.config.settings import Settings, show_size
from tidegate.observe.status import DdlLine, SnapshotLine, Status

_TERMINAL_EVERY_S, _LINE_EVERY_S = 0.5, 5.0
_BAR = 30
_SHOWN = 3  # DDLs, and tables that are retried
MIB = 1 << 20


class Display:
    """Prints the status. Rates are measured since the last time it was printed."""

    def __init__(self, out: TextIO, settings: Settings, clock: Clock) -> None:
        self._out, self._settings, self._clock = out, settings, clock
        self._live = out.isatty()
        self._every = _TERMINAL_EVERY_S if self._live else _LINE_EVERY_S
        self._at = self._started = self._clock.steady()
        self._before: Status | None = None
        self._lines = 0

    def show(self, status: Status) -> None:
        now = self._clock.steady()
        if now - self._at < self._every:
            return
        rates = _rates(status, self._before, now - self._at)
        show = _block if self._live else _line
        self._write(show(status, rates, now - self._started))
        self._at, self._before = now, status

    def close(self, status: Status) -> None:
        """Leave the last state on the screen."""
        if self._live and self._before is not None:
            self._write(_block(status, _rates(status, status, 1.0), self._clock.steady() - self._started))

    def _write(self, lines: list[str]) -> None:
        if self._live and self._lines:
            self._out.write(f"\x1b[{self._lines}F\x1b[J")
        self._out.write("\n".join(lines) + "\n")
        self._out.flush()
        self._lines = len(lines)


@dataclass(frozen=True)
class _Rates:
    rows: float
    accepted: float
    landed: float


def _rates(status: Status, before: Status | None, seconds: float) -> _Rates:
    old = (before.rows_accepted, before.bytes_accepted, before.bytes_landed) if before is not None else (0, 0, 0)
    new = (status.rows_accepted, status.bytes_accepted, status.bytes_landed)
    rows, accepted, landed = ((b - a) / seconds for a, b in zip(old, new, strict=True))
    return _Rates(rows, accepted / MIB, landed / MIB)


def _block(status: Status, rates: _Rates, elapsed: float) -> list[str]:
    share = status.spool_bytes / status.spool_max_bytes
    filled = min(_BAR, round(share * _BAR))
    bar = list("#" * filled + "." * (_BAR - filled))
    for mark in (status.spool_low_mark, status.spool_high_mark):
        bar[min(_BAR - 1, int(mark / status.spool_max_bytes * _BAR))] = "|"
    waits = "  upstream waits (above the high mark)" if status.wake_held else ""
    lines = [
        f"  {status.state:<9} {elapsed:6.0f} s    rows/s {rates.rows:12,.0f}    active tables {status.active_tables:,}",
        f"  accepted  {rates.accepted:8.1f} MiB/s   {status.bytes_accepted / MIB:12,.1f} MiB in all",
        f"  landed    {rates.landed:8.1f} MiB/s   {status.bytes_landed / MIB:12,.1f} MiB in {status.files:,} files",
        f"  spool     [{''.join(bar)}] {show_size(status.spool_bytes)} of {show_size(status.spool_max_bytes)}{waits}",
        f"  checkpoint {status.checkpoint_ts}  lag {status.lag_s:.1f} s",
        f"  requests  {status.requests_per_s:8.1f} /s       ${status.requests_usd_per_day:,.2f} a day at $5 a million",
    ]
    if status.put_budget_late_s:
        lines.append(
            f"  put-budget is spent: the oldest change is {status.put_budget_late_s:.0f} s past flush-interval"
        )
    if status.source_lag_s is not None:
        lines.append(
            f"  source    {status.source_lag_s:8.1f} s behind, {show_size(status.source_lag_bytes or 0)} of the log"
        )
    if status.snapshot is not None:
        lines.append(_snapshot(status.snapshot))
    if status.source_waits:
        lines.append(f"  source waits: {status.source_waits}")
    if status.waiting:
        lines.append(f"  waits for {status.waiting}")
    if status.shortage:
        lines.append(f"  {status.shortage}")
    if status.only_repeats:
        lines.append(f"  {status.only_repeats}")
    for key, ddl in islice(status.ddls.items(), _SHOWN):
        query = " ".join(ddl.query.split())  # on one line
        lines.append(f"  ddl {key} {_wait(ddl)}: {query:.80}")
    if len(status.ddls) > _SHOWN:
        lines.append(f"  ddl and {len(status.ddls) - _SHOWN:,} DDLs more")
    for table, bad in islice(status.set_aside.items(), _SHOWN):
        lines.append(f"  set aside {bad.rows:,} rows of {table}, in {bad.where}: {bad.reason}")
    if len(status.set_aside) > _SHOWN:
        lines.append(f"  set aside {status.set_aside_rows:,} rows in all")
    shown = list(status.retrying.items())[:_SHOWN]
    lines += [f"  retrying {table}: {error}" for table, error in shown]
    if status.retrying_tables > len(shown):
        lines.append(f"  retrying {status.retrying_tables - len(shown):,} tables more")
    return lines


def _snapshot(line: SnapshotLine) -> str:
    filled = min(_BAR, round(line.share * _BAR))
    left = f", about {show_seconds(line.left_s)} left" if line.left_s is not None else ""
    tables = f"{line.tables_left:,} tables left" if line.tables_left != 1 else "1 table left"
    return f"  snapshot  [{'#' * filled}{'.' * (_BAR - filled)}] {line.share:4.0%}  {line.rows:,} rows, {tables}{left}"


def show_seconds(seconds: float) -> str:
    """`42 s`, `3 min`, `2.5 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _wait(ddl: DdlLine) -> str:
    return f"waits for {ddl.waits_for} ({ddl.waits_s:.0f} s)"


def _line(status: Status, rates: _Rates, elapsed: float) -> list[str]:
    failing = f" retrying={min(status.retrying)} ({status.retrying_tables} in all)" if status.retrying else ""
    failing += f" set-aside={status.set_aside_rows} rows" if status.set_aside_rows else ""
    failing += f" waits for {status.waiting}" if status.waiting else ""
    failing += f" source-lag={status.source_lag_s:.1f}s" if status.source_lag_s is not None else ""
    failing += f" snapshot={status.snapshot.share:.0%}" if status.snapshot is not None else ""
    failing += f" source waits: {status.source_waits}" if status.source_waits else ""
    failing += f" {status.shortage}" if status.shortage else ""
    failing += f" {status.only_repeats}" if status.only_repeats else ""
    if status.ddls:
        key, first = next(iter(status.ddls.items()))
        failing += f" {len(status.ddls)} DDLs, {key} {_wait(first)}"
    return [
        f"{elapsed:.0f}s {status.state} rows/s={rates.rows:.0f} accepted={rates.accepted:.1f}MiB/s "
        f"landed={rates.landed:.1f}MiB/s spool={status.spool_bytes / MIB:.0f}/{status.spool_max_bytes / MIB:.0f}MiB "
        f"files={status.files} checkpoint={status.checkpoint_ts} lag={status.lag_s:.1f}s{failing}"
    ]
