"""The live block of `tidegate run`: one row for each thing, no wider than the terminal, at 80 columns too."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from rich.table import Table
from rich.text import Text

from tidegate.events import physical_time
from tidegate.observe.status import SnapshotLine, Status
from tidegate.tools.rates import Rates
from tidegate.wording import escaped, human_bytes, human_seconds

_BAR = 24
_SHOWN = 3  # DDLs, reasons, and tables with rows that were set aside
_LABEL = 10
_COLOURS = {"running": "green", "starting": "cyan", "closing": "yellow", "failed": "red", "stopped": "cyan"}

Row = tuple[str, str, str]  # label, content, style


def block(status: Status, rates: Rates, elapsed: float, width: int) -> Table:
    """A row takes one line; that of a trouble two at most."""
    table = Table.grid(padding=(0, 1), expand=False)
    table.add_column(width=_LABEL, no_wrap=True)
    table.add_column(overflow="fold")
    for label, content, style in _figures(status, rates, elapsed):
        text = Text(content, style=style, no_wrap=True, overflow="ellipsis")
        table.add_row(Text(label, style=_COLOURS.get(label, "bold")), text)
    for label, content, style in _troubles(status):
        most = 2 * max(20, width - _LABEL - 2)
        table.add_row(Text(label, style=f"bold {style}"), Text(_cut(escaped(content), most), style=style))
    return table


def _figures(status: Status, rates: Rates, elapsed: float) -> Iterator[Row]:
    checkpoint = f"{physical_time(status.checkpoint_ts):%Y-%m-%d %H:%M:%S} UTC" if status.checkpoint_ts else "none yet"
    yield status.state, f"{human_seconds(elapsed)}   checkpoint {checkpoint}   lag {human_seconds(status.lag_s)}", ""
    if status.source_left_bytes is not None and status.source_begun_bytes:
        yield "progress", _progress(status.source_left_bytes, status.source_begun_bytes, rates.left_s), ""
    if status.source_lag_s is not None:
        behind = human_bytes(status.source_lag_bytes or 0)
        yield "source", f"{human_seconds(status.source_lag_s)} behind, {behind} of the log", ""
    if status.snapshot is not None:
        yield "snapshot", _snapshot(status.snapshot), ""
    total = human_bytes(status.bytes_accepted)
    yield "accepted", f"{human_bytes(rates.accepted):>9}/s  {rates.rows:>11,.0f} rows/s  {total} in all", ""
    landed = f"{human_bytes(status.bytes_landed)} in {status.files:,} files"
    yield "landed", f"{human_bytes(rates.landed):>9}/s  {landed}", ""
    waits = "  the upstream waits" if status.wake_held else ""
    size = f"{human_bytes(status.spool_bytes)} of {human_bytes(status.spool_max_bytes)}"
    yield "spool", f"[{_spool_bar(status)}] {size}{waits}", "yellow" if status.wake_held else ""
    yield "tables", _tables(status), ""
    cost = f"${status.requests_usd_per_day:,.2f} a day at $5 a million"
    yield "requests", f"{status.requests_per_s:.1f}/s  ({cost})", ""


def _progress(left: int, begun: int, left_s: float | None) -> str:
    share = min(1.0, max(0.0, 1 - left / begun))
    time_left = f"  {human_seconds(left_s)} left" if left_s is not None and left else ""
    return f"[{_bar(share)}] {100 * share:.0f} %  {human_bytes(left)} to read{time_left}"


def _snapshot(line: SnapshotLine) -> str:
    left = f"  about {human_seconds(line.left_s)} left" if line.left_s is not None else ""
    tables = f"{line.tables_left:,} tables left" if line.tables_left != 1 else "1 table left"
    return f"[{_bar(line.share)}] {line.share:.0%}  {line.rows:,} rows, {tables}{left}"


def _tables(status: Status) -> str:
    parts = [f"{status.active_tables:,} active"]
    parts += [f"{status.retrying_tables:,} retrying"] if status.retrying_tables else []
    parts += [f"{len(status.ddls):,} DDLs wait"] if status.ddls else []
    parts += [f"{status.rows_filtered:,} rows filtered"] if status.rows_filtered else []
    return ", ".join(parts)


def _bar(share: float) -> str:
    filled = min(_BAR, round(share * _BAR))
    return "#" * filled + "." * (_BAR - filled)


def _spool_bar(status: Status) -> str:
    bar = list(_bar(status.spool_bytes / status.spool_max_bytes))
    for mark in (status.spool_low_mark, status.spool_high_mark):
        bar[min(_BAR - 1, int(mark / status.spool_max_bytes * _BAR))] = "|"
    return "".join(bar)


def _troubles(status: Status) -> Iterator[Row]:
    again = f"next try in {human_seconds(status.retry_in_s)}" if status.retry_in_s is not None else "tried again soon"
    if status.waiting:
        what, _, reason = status.waiting.partition(": ")  # the next try in front, because a long reason is cut
        yield "waits", f"for {what}, {again}: {reason}", "yellow"
    if status.source_waits:
        yield "source", f"waits: {status.source_waits}", "yellow"
    yield from _retrying(status, again)
    for key, ddl in islice(status.ddls.items(), _SHOWN):
        query = " ".join(ddl.query.split())  # on one line
        yield "ddl", f"{key} waits for {ddl.waits_for} ({human_seconds(ddl.waits_s)}): {query}", ""
    if len(status.ddls) > _SHOWN:
        yield "ddl", f"and {len(status.ddls) - _SHOWN:,} DDLs more", ""
    for table, bad in islice(status.set_aside.items(), _SHOWN):
        yield "set aside", f"{bad.rows:,} rows of {table}, in {bad.where}: {bad.reason}", "yellow"
    if len(status.set_aside) > _SHOWN:
        yield "set aside", f"{status.set_aside_rows:,} rows in all", "yellow"
    if status.put_budget_late_s:
        late = human_seconds(status.put_budget_late_s)
        yield "budget", f"put-budget is spent: the oldest change is {late} past flush-interval", "yellow"
    yield from (("note", text, "yellow") for text in (status.shortage, status.only_repeats) if text)
    if status.error:
        yield "error", status.error, "red"


def _retrying(status: Status, again: str) -> Iterator[Row]:
    """One table for each reason: in an outage all have the same one, but for the path in front of it."""
    examples: dict[str, tuple[str, str]] = {}
    for table, reason in status.retrying.items():
        examples.setdefault(reason.partition(": ")[2] or reason, (table, reason))
    for table, reason in islice(examples.values(), _SHOWN):
        yield "retrying", f"{table}: {reason}", "yellow"
    if status.retrying_tables > 1:
        yield "retrying", f"{status.retrying_tables:,} tables in all; {again}", "yellow"
    elif status.retrying_tables:
        yield "retrying", again, "yellow"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."
