"""What there is to know about a changefeed at one moment, and what it adds up over its life."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

NAMED = 20
MOST_FILTERED = 1000
USD_PER_REQUEST = 5e-6
_RATE_OVER_S = 60.0


@dataclass
class Rate:
    """Requests per second over the last minute."""

    _seen: deque[tuple[float, int]] = field(default_factory=deque)

    def add(self, now: float, count: int) -> None:
        self._seen.append((now, count))
        while now - self._seen[0][0] > _RATE_OVER_S:
            self._seen.popleft()

    def per_s(self, now: float) -> float:
        recent = [(at, count) for at, count in self._seen if now - at <= _RATE_OVER_S]
        return sum(count for _, count in recent) / max(1.0, now - recent[0][0]) if recent else 0.0


@dataclass(frozen=True)
class DdlLine:
    """A DDL that is not over."""

    query: str
    marker: str  # whose changes from its commit-ts on wait for it: `shop.orders`, `database shop`, `all tables`
    waits_for: str
    waits_s: float  # for so long it has been waiting for this
    age_s: float  # for so long it has been here


@dataclass(frozen=True)
class BadRowsLine:
    """Rows of one table that cannot be written and are set aside; a row that a restart brings again counts again."""

    rows: int
    reason: str  # of the last ones
    where: str  # the directory of their objects on the sink; each partition has one of its own


@dataclass(frozen=True)
class SnapshotLine:
    """`share` is from 0 to 1; `left_s` is about how many seconds are left, None as long as nobody can say it."""

    share: float
    tables_left: int
    rows: int
    left_s: float | None
    table: str


@dataclass(frozen=True)
class Status:
    """A changefeed at one moment, for the display, the report and `handle.status()`."""

    state: str
    rows_accepted: int
    bytes_accepted: int
    rows_filtered: int
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
    lag_s: float  # since the oldest change was accepted that the checkpoint on the sink does not cover
    active_tables: int
    queued_items: int
    in_flight_items: int
    duplicates: int
    retrying: dict[str, str]  # tables that fail to land, at most `NAMED` of them, and why
    retrying_tables: int
    set_aside: dict[str, BadRowsLine]  # tables with rows that were set aside, at most `NAMED` of them
    set_aside_rows: int
    waiting: str | None  # what the whole changefeed waits for
    retry_in_s: float | None  # until the next try of what failed or is waited for; None if nothing is
    source_left_bytes: int | None  # what a source that ends still has, estimated; None if it does not end
    source_begun_bytes: int | None  # what it had when this run began
    shortage: str | None  # what there is too little of, such as space under the spool, and the remedy
    requests_per_s: float
    requests_usd_per_day: float  # at the price of a put on S3
    put_budget_late_s: float  # how far the oldest change is past flush-interval because the budget is spent
    ddls: dict[str, DdlLine]  # those that are not over, in order, by `<commit-ts>/<seq>`
    only_repeats: str | None  # the sentence, if every change that was read was below the checkpoint of the start
    source_lag_s: float | None  # how far reading is behind the database; None if the source is no database
    source_lag_bytes: int | None  # the same in bytes of its log
    snapshot: SnapshotLine | None  # how far the snapshot of a database is, while it is under way
    source_waits: str  # what keeps the source from reading, such as a server that is away; "" for nothing
    error: str | None


def _recent() -> deque[Any]:
    """The last ones: a changefeed runs for months."""
    return deque(maxlen=100_000)


@dataclass
class Totals:
    rows_accepted: int = 0
    bytes_accepted: int = 0
    rows_landed: int = 0
    bytes_landed: int = 0
    duplicates: int = 0
    newest_ts: int = 0  # the greatest commit-ts that was read
    left_out: int = 0  # rows that were durable before, and DDLs
    rows_filtered: int = 0  # rows that the filter left out
    filtered_tables: set[tuple[str, str]] = field(default_factory=set)  # about `MOST_FILTERED` of their tables at most
    reasons: Counter[str] = field(default_factory=Counter)
    size_flushed: deque[int] = field(default_factory=_recent)
    file_sizes: deque[int] = field(default_factory=_recent)
    wakes_s: deque[float] = field(default_factory=_recent)
    drains_s: deque[float] = field(default_factory=_recent)
