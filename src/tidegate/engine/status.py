"""What there is to know about a changefeed at one moment, and what it adds up over its life."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

NAMED = 20


@dataclass(frozen=True)
class Status:
    """A changefeed at one moment, for the display, the report and `handle.status()`."""

    state: str
    rows_accepted: int
    bytes_accepted: int
    rows_landed: int
    bytes_landed: int
    files: int
    reasons: dict[str, int]
    spool_bytes: int
    spool_high_mark: int
    spool_low_mark: int
    spool_max_bytes: int
    wake_held: bool
    checkpoint_ts: int
    resolved_ts: int
    lag_s: float
    active_tables: int
    queued_items: int
    in_flight_items: int
    duplicates: int
    retrying: dict[str, str]  # tables that fail to land, at most `NAMED` of them, and why
    retrying_tables: int
    waiting: str | None  # what the whole changefeed waits for
    ddls: dict[str, str]  # those that are not over, and what each waits for
    error: str | None


@dataclass
class Totals:
    rows_accepted: int = 0
    bytes_accepted: int = 0
    rows_landed: int = 0
    bytes_landed: int = 0
    duplicates: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    size_flushed: list[int] = field(default_factory=list)
    file_sizes: list[int] = field(default_factory=list)
    wakes_s: list[float] = field(default_factory=list)
    drains_s: list[float] = field(default_factory=list)
