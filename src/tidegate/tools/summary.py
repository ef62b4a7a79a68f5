"""The end of a run: its figures for the report, and the text that is printed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tidegate.config.settings import show_size
from tidegate.driver.changefeed import Changefeed
from tidegate.events import physical_time
from tidegate.format.rules.unused import unused
from tidegate.observe.status import MOST_FILTERED, Status
from tidegate.wording import escaped, human_bytes, human_seconds

MIB = 1 << 20
_MOST_TABLES = 20_000  # rules are held against the names of so many tables


@dataclass(frozen=True)
class Summary:
    figures: dict[str, Any]

    def text(self, program: str, words: str) -> str:
        """`words` are those of the command that matter to the next one: the ends, the config file and the options."""
        return "\n".join(["", *map(escaped, (*self._lines(), "", "next:", *_next(program, words)))])

    def _lines(self) -> Iterator[str]:
        f = self.figures
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(f["flush_reasons"].items())) or "none"
        sizes = ", ".join(f"{name} {value:.2f}" for name, value in f["file_size_ratio"].items()) or "no files"
        yield f"  rows        {f['rows']:,} landed in {human_seconds(f['seconds'])} ({f['rows_per_s']:,.0f} rows/s)"
        yield f"  bytes       {human_bytes(f['bytes'])} ({f['mib_per_s']:.1f} MiB/s)"
        yield f"  files       {f['files']:,}; size against file-size ({show_size(f['file_size_bytes'])}): {sizes}"
        yield f"  flushed by  {reasons}"
        yield f"  checkpoint  {shown_checkpoint(f['checkpoint_ts'])}"
        if f.get("filtered_rows"):
            yield f"  filtered    {f['filtered_rows']:,} rows left out by the filter"
        for table, bad in f.get("set_aside", {}).items():
            yield f"  set aside   {bad['rows']:,} rows of {table}, in {bad['where']}: {bad['reason']}"
        for note in f.get("notes", ()):
            yield f"  note        {note}"


def shown_checkpoint(ts: int) -> str:
    """`2026-01-01 00:00:03 UTC (463267587686400007)`."""
    return f"{physical_time(ts):%Y-%m-%d %H:%M:%S} UTC ({ts})" if ts else "none yet"


def _next(program: str, words: str) -> Iterator[str]:
    yield f"  {program} verify {words}"
    yield f"  {program} run {words}   (continues after this run)"
    if "***" in words:
        yield "  (with your own values in the place of ***)"


def summary(status: Status, changefeed: Changefeed, seconds: float) -> Summary:
    file_size = changefeed.options.limits.file_size_bytes
    sizes = np.array(changefeed.totals.file_sizes) / file_size
    quantiles = {f"p{q}": float(np.percentile(sizes, q)) for q in (10, 50, 90)} if len(sizes) else {}
    notes = [status.only_repeats] if status.only_repeats else []
    return Summary(
        {
            "rows": status.rows_landed,
            "bytes": status.bytes_landed,
            "seconds": seconds,
            "rows_per_s": status.rows_landed / seconds,
            "mib_per_s": status.bytes_landed / MIB / seconds,
            "files": status.files,
            "file_size_bytes": file_size,
            "file_size_ratio": quantiles,
            "flush_reasons": status.reasons,
            "checkpoint_ts": status.checkpoint_ts,
            "duplicates": status.duplicates,
            "filtered_rows": status.rows_filtered,
            "set_aside": {table: asdict(bad) for table, bad in status.set_aside.items()},
            "set_aside_rows": status.set_aside_rows,
            "only_repeats": status.only_repeats,
            "notes": [*notes, *_unused_rules(changefeed, seconds)],
            "error": status.error,
        }
    )


def _unused_rules(changefeed: Changefeed, seconds: float) -> list[str]:
    """A note about rules that matched no table, if all tables that were read are still known by name."""
    totals, queues = changefeed.totals, changefeed.ledger.queues
    count = queues.dispatchers.size
    is_whole = count <= _MOST_TABLES and len(totals.filtered_tables) < MOST_FILTERED
    if not is_whole or seconds > changefeed.options.limits.state_ttl_s:
        return []
    names = {name for name in queues.names.pairs(np.arange(count)) if name[1]} | totals.filtered_tables
    found = unused(changefeed.options.rules, names) if names else []
    return [f"no table that was read matches {' and '.join(found)}"] if found else []
