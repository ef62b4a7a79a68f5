"""A changefeed at one moment: what the status, the list of tables and the gauges say.

Everything is read with the lock held, so that one look never sees half of a change. The observer keeps the facts that
are not in the ledger; nobody else writes them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from tidegate.clock import Clock
from tidegate.control.barrier import Key
from tidegate.control.ledger import Ledger
from tidegate.control.markers import DRAINING, WRITING, Block
from tidegate.control.spool import TIERS
from tidegate.control.top import TOP, TableLine, top_tables
from tidegate.driver.life import Life
from tidegate.errors import BadSetting
from tidegate.events import physical_ms, shown_time
from tidegate.format.bad_rows import folder_of
from tidegate.format.ddl.events import ALL
from tidegate.observe.status import NAMED, USD_PER_REQUEST, BadRowsLine, DdlLine, Rate, SnapshotLine, Status, Totals
from tidegate.sources.source import SourceState

_MARKED = 3  # tables that are named
_MOST_ARRIVALS = 10_000
_STAGES = {DRAINING: "the barrier", WRITING: "its schema files"}  # nothing left to land


def no_state() -> SourceState | None:
    """The source has no upstream of its own, or says nothing about it."""
    return None


def _snapshot_line(source: SourceState | None) -> SnapshotLine | None:
    if source is None or source.snapshot is None:
        return None
    found = source.snapshot
    return SnapshotLine(found.share, found.tables_left, found.rows, found.left_s, found.table)


@dataclass
class View:
    life: Life
    clock: Clock
    ledger: Ledger
    totals: Totals
    source_state: Callable[[], SourceState | None] = no_state
    failures: dict[int, str] = field(default_factory=dict)  # by dispatcher, why its files do not land
    ddl_failures: dict[Key, str] = field(default_factory=dict)
    begun_ts: int = 0  # the checkpoint at the start
    waiting: str | None = None  # what the whole changefeed waits for
    waiting_until: float | None = None  # when that is tried again
    written_ts: int = 0  # the checkpoint that readers of the sink see
    left_bytes: int | None = None  # what the source still has, if it ends
    begun_bytes: int | None = None  # what it had at the start
    land_jobs: int = 0  # that run now
    in_jobs: int = 0  # items that they work on
    set_aside: dict[str, BadRowsLine] = field(default_factory=dict)  # by table, its rows that cannot be written
    shortage: str | None = None  # what there is too little of, and the remedy
    rate: Rate = field(default_factory=Rate)  # of requests
    _arrivals: deque[tuple[float, int]] = field(default_factory=deque)  # of batches: when, and the greatest commit-ts

    def arrived(self, newest_ts: int, now: float) -> None:
        """A batch was accepted. The caller holds the lock."""
        self._forget_reached()
        self._arrivals.append((now, newest_ts))
        if len(self._arrivals) > _MOST_ARRIVALS:
            del self._arrivals[1]  # the oldest says how far behind the checkpoint is

    def note_set_aside(self, table_id: int, name: str, rows: int, reason: str) -> None:
        """So many rows more of a table are set aside. The caller holds the lock."""
        before = self.set_aside.get(name)
        total = rows + (before.rows if before is not None else 0)
        self.set_aside[name] = BadRowsLine(total, reason, folder_of(table_id))

    def gauges(self) -> dict[str, float]:
        with self.life.lock:
            gauges = self._counts()
            checkpoint, resolved = self.ledger.checkpoint(), self.ledger.progress.resolved_ts
        wall_ms = self.clock.wall().timestamp() * 1000
        for name, ts in (("checkpoint", checkpoint), ("resolved", resolved)):
            gauges[f"{name}_ts"] = physical_ms(ts)
            if ts:
                gauges[f"{name}_lag_seconds"] = max(0.0, (wall_ms - physical_ms(ts)) / 1000)
        if (source := self.source_state()) is not None:
            gauges |= {"source_lag_seconds": source.lag_s, "source_lag_bytes": source.lag_bytes}
            snapshot = source.snapshot
            gauges["source_snapshot_tables"] = snapshot.tables_left if snapshot is not None else 0
            gauges["source_snapshot_share"] = snapshot.share if snapshot is not None else 1.0
        return gauges

    def _counts(self) -> dict[str, float]:
        ledger = self.ledger
        return {
            **{f"spool_{tier}_bytes": ledger.spool.tier_bytes[i] for i, tier in enumerate(TIERS)},
            "spool_segment_count": ledger.spool.segment_count,
            "spool_items": ledger.spool.items,
            "active_tables": self._active_tables(),
            "writer_input_len": ledger.queues.queued,
            "in_flight_len": self.in_jobs,
            "to_be_flushed_len": ledger.accounts.in_flight - self.in_jobs,
            "ddl_unfinished": len(ledger.blocking.blocks),
        }

    def _active_tables(self) -> int:
        """Dispatchers with anything accepted that is not durable: in the queue, or under way."""
        dispatchers = self.ledger.queues.dispatchers
        return int(np.count_nonzero(dispatchers.spool_bytes[: dispatchers.size]))

    def status(self) -> Status:
        source = self.source_state()  # reads a file, so not with the lock
        with self.life.lock:
            ledger, totals, now = self.ledger, self.totals, self.clock.steady()
            spool, progress, blocks = ledger.spool, ledger.progress, ledger.blocking.blocks
            rate = self.rate.per_s(now)
            return Status(
                state=self._state(),
                rows_accepted=totals.rows_accepted,
                bytes_accepted=totals.bytes_accepted,
                rows_filtered=totals.rows_filtered,
                rows_landed=totals.rows_landed,
                bytes_landed=totals.bytes_landed,
                files=sum(totals.reasons.values()),
                reasons=dict(totals.reasons),
                spool_bytes=spool.occupied_bytes,
                spool_high_mark=spool.high_mark,
                spool_low_mark=spool.low_mark,
                spool_max_bytes=spool.max_bytes,
                wake_held=not spool.may_wake(),
                checkpoint_ts=ledger.checkpoint(),
                resolved_ts=progress.resolved_ts,
                lag_s=self._lag_s(now),
                active_tables=self._active_tables(),
                queued_items=ledger.queues.queued,
                in_flight_items=ledger.accounts.in_flight,
                duplicates=totals.duplicates,
                retrying={ledger.queues.name(owner): error for owner, error in islice(self.failures.items(), NAMED)},
                retrying_tables=len(self.failures),
                set_aside=dict(islice(self.set_aside.items(), NAMED)),
                set_aside_rows=sum(line.rows for line in self.set_aside.values()),
                waiting=self.waiting,
                retry_in_s=self._retry_in_s(now),
                source_left_bytes=self.left_bytes,
                source_begun_bytes=self.begun_bytes,
                shortage=self.shortage,
                requests_per_s=rate,
                requests_usd_per_day=rate * 86_400 * USD_PER_REQUEST,
                put_budget_late_s=ledger.planner.budget.late_s,
                ddls={_name(key): self._ddl_line(block, now) for key, block in sorted(blocks.items())},
                only_repeats=self._only_repeats(),
                source_lag_s=source.lag_s if source is not None else None,
                source_lag_bytes=source.lag_bytes if source is not None else None,
                snapshot=_snapshot_line(source),
                source_waits=source.waits if source is not None else "",
                error=str(self.life.error) if self.life.error is not None else None,
            )

    def tables(self, by: str, k: int) -> list[TableLine]:
        """The first k tables by lag, by small files, or by bytes landed in this run."""
        if by not in TOP:
            raise BadSetting(f"tables are listed by one of {', '.join(TOP)}, not by {by!r}")
        with self.life.lock:
            return top_tables(self.ledger.queues, by, k, self.clock.steady())

    def _only_repeats(self) -> str | None:
        """Whether all that was read is below the checkpoint of the start, as a sentence.

        After a start of our own the first batch goes past it, because something of that batch was not durable. A
        source that ends there has nothing new. But a source that stays below it has a checkpoint that is not its own.
        """
        totals = self.totals
        if not totals.left_out or totals.newest_ts >= self.begun_ts:
            return None
        return (
            f"nothing is written: all changes that were read, up to commit-ts {shown_time(totals.newest_ts)}, are "
            f"below the checkpoint-ts {shown_time(self.begun_ts)} at which this run began, and count as written "
            "already; let it run until the source has passed it, or, if the checkpoint is wrong, give another prefix"
        )

    def _ddl_line(self, block: Block, now: float) -> DdlLine:
        """What it waits for changes when all rows before it have come, and again when they have landed."""
        since = block.arrived if block.left is None else block.encoded
        since = block.drained if block.stage == WRITING else since
        waits_for = self._ddl_waits_for(block)
        return DdlLine(block.event.query, _marker(block), waits_for, now - since, now - block.arrived)

    def _ddl_waits_for(self, block: Block) -> str:
        if block.key in self.ddl_failures:
            return self.ddl_failures[block.key]
        if block.waits_for:
            return f"the DDL {_name(min(block.waits_for))}"
        if block.left is None:
            return "changes before it"
        return f"{len(block.left)} tables to land" if len(block.left) else _STAGES[block.stage]

    def _state(self) -> str:
        if self.life.error is not None:
            return "failed"
        if self.life.closed:
            return "stopped"
        return "closing" if self.life.stopping else "running"

    def _retry_in_s(self, now: float) -> float | None:
        moments = (self.waiting_until if self.waiting else None, self.ledger.planner.retries.next_due)
        due = min((moment for moment in moments if moment is not None), default=None)
        return max(0.0, due - now) if due is not None else None

    def _lag_s(self, now: float) -> float:
        """Seconds since the oldest batch with a change that the checkpoint on the sink does not cover was accepted.

        It goes on growing while the store is away, whether more is accepted meanwhile or not.
        """
        self._forget_reached()
        return now - self._arrivals[0][0] if self._arrivals else 0.0

    def _forget_reached(self) -> None:
        while self._arrivals and self._arrivals[0][1] <= self.written_ts:
            self._arrivals.popleft()


def _name(key: Key) -> str:
    return f"{key.ts}/{key.seq}"


def _marker(block: Block) -> str:
    """Whose changes from the DDL's commit-ts on wait for it, by the names of before it."""
    tables = block.event.tables
    if block.wide is not None:
        schema = tables[0].schema if tables else f"of id {block.wide.schema_id}"
        return "all tables" if block.wide.kind == ALL else f"database {schema}"
    names = [f"{table.old_schema or table.schema}.{table.old_table or table.table}" for table in tables if table.table]
    more = f" and {len(names) - _MARKED} more" if len(names) > _MARKED else ""
    return ", ".join(names[:_MARKED]) + more
