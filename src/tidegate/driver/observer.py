"""What can be seen of a changefeed. Only the observer touches metrics, adds up totals and builds the status.

The other parts tell it facts: a batch was accepted, a wake is held back, files landed, a DDL is over. Facts that the
status shows together with the ledger are told with the lock held, so that one look never sees half of a change. What is
only counted is told without it.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidegate.clock import Clock
from tidegate.control.barrier import Key
from tidegate.control.ledger import Accepted, Durable, Ledger
from tidegate.control.markers import Block
from tidegate.control.rounds import Round
from tidegate.control.spool import TIERS
from tidegate.control.top import TOP, TableLine, top_tables
from tidegate.driver.life import Life
from tidegate.errors import BadSetting
from tidegate.events import physical_ms
from tidegate.observe.metrics import Metrics
from tidegate.observe.status import NAMED, USD_PER_REQUEST, Rate, Status, Totals

log = logging.getLogger("tidegate")

_MEASURE_EVERY_S = 0.5
_DURATIONS = {
    "data_write_duration_seconds": "data_s",
    "index_write_duration_seconds": "index_s",
    "schema_check_duration_seconds": "schema_check_s",
    "schema_write_duration_seconds": "schema_write_s",
}


class LeftOut(NamedTuple):
    """What of a batch is not written: rows that were durable before, rows and DDLs that the filter or TiCDC drops."""

    repeated_rows: int
    filtered_rows: int
    filtered_ddls: int
    skipped_ddls: int


@dataclass
class Observer:
    life: Life
    clock: Clock
    ledger: Ledger
    metrics: Metrics
    totals: Totals
    _failures: dict[int, str] = field(default_factory=dict)  # by dispatcher, why its files do not land
    _ddl_failures: dict[Key, str] = field(default_factory=dict)
    _waiting: str | None = None
    _rate: Rate = field(default_factory=Rate)
    _arrivals: deque[tuple[float, int]] = field(default_factory=deque)  # when each resolved mark was accepted

    # -- accepted ------------------------------------------------------------------------------------------------

    def accepted(self, accepted: Accepted, left_out: LeftOut, resolved_ts: int, now: float) -> None:
        """A batch is in the ledger. The caller holds the lock."""
        if resolved_ts:
            self._forget_reached()
            self._arrivals.append((now, resolved_ts))
        self.totals.rows_accepted += accepted.rows
        self.totals.bytes_accepted += accepted.bytes
        self.totals.duplicates += accepted.duplicates + left_out.repeated_rows

    def count_batch(self, accepted: Accepted, left_out: LeftOut, full_segments: int) -> None:
        metrics = self.metrics
        metrics.observe("batch_rows", accepted.rows)
        metrics.observe("batch_bytes", accepted.bytes)
        metrics.inc("duplicates_dropped_total", accepted.duplicates + left_out.repeated_rows)
        metrics.inc("filtered_rows_total", left_out.filtered_rows)
        metrics.inc("ddl_total", left_out.filtered_ddls, outcome="filtered")
        metrics.inc("ddl_total", left_out.skipped_ddls, outcome="skipped")
        metrics.inc("rotate_total", full_segments)
        self.measure()

    def wake_held(self) -> None:
        self.metrics.inc("wake_suppressed_total")
        self.metrics.set("pending_post_enqueue", 1)

    def woken(self, seconds: float) -> None:
        """The micro-batch returns, so many seconds after it began."""
        self.metrics.inc("wake_calls_total")
        self.metrics.set("pending_post_enqueue", 0)
        self.metrics.observe("batch_duration_seconds", seconds)
        self.totals.wakes_s.append(seconds)

    def backlog(self, left_bytes: int) -> None:
        """So much does the source have that it has not handed out."""
        self.metrics.set("source_backlog_bytes", left_bytes)

    # -- durable -------------------------------------------------------------------------------------------------

    def landed(self, round_: Round, landed: NDArray[np.bool_], durable: Durable) -> None:
        """These files of a round are durable. The caller holds the lock."""
        totals = self.totals
        totals.rows_landed += durable.rows
        totals.bytes_landed += durable.bytes
        totals.reasons.update(round_.reason[landed].tolist())
        totals.file_sizes.extend(round_.bytes[landed].tolist())
        totals.size_flushed.extend(round_.bytes[landed & (round_.reason == "size")].tolist())

    def count_round(
        self, round_: Round, receipts: pa.Table, landed: NDArray[np.bool_], durable: Durable, seconds: float
    ) -> None:
        metrics = self.metrics
        for reason, count in Counter(round_.reason[landed].tolist()).items():
            sizes = round_.bytes[landed & (round_.reason == reason)]
            metrics.inc("flush_total", count, reason=reason)
            metrics.observe_many("flush_bytes", sizes.astype(float), reason=reason)
            metrics.observe_many("flush_duration_seconds", np.full(count, seconds), reason=reason)
        if len(durable.ages_s):
            first = np.append(0, np.cumsum(np.diff(round_.bounds)[landed]))[:-1]
            metrics.observe_many("accepted_to_durable_seconds", np.maximum.reduceat(durable.ages_s, first))
        for name, column in _DURATIONS.items():
            values = receipts[column].to_numpy()
            metrics.observe_many(name, values[values > 0])
        self.asked("land", pc.sum(receipts["requests"]).as_py() or 0)
        self.measure()

    def failed(self, round_: Round, receipts: pa.Table, failed: NDArray[np.bool_]) -> None:
        """The status names a table from its first failure until it lands. The caller holds the lock."""
        if self._failures:
            for owner in round_.dispatcher[~failed].tolist():
                self._failures.pop(owner, None)
        if not failed.any():
            return
        errors, fresh = receipts["error"].to_pylist(), dict[int, str]()
        for i in np.flatnonzero(failed).tolist():
            owner = int(round_.dispatcher[i])
            if errors[i] and owner not in self._failures:
                fresh[owner] = errors[i]
            self._failures[owner] = errors[i] or self._failures.get(owner, "waits for an earlier file")
        for owner, error in islice(fresh.items(), NAMED):
            log.warning("landing %s failed, will retry: %s", self.ledger.queues.name(owner), error)
        if len(fresh) > NAMED:
            log.warning("landing %d tables more failed, will retry", len(fresh) - NAMED)

    def land_tasks(self, running: int) -> None:
        self.metrics.set("land_tasks_running", running, executor="driver")

    def moved(self, moved_bytes: int) -> None:
        """So much of the spool was copied together."""
        self.metrics.inc("spool_moved_bytes_total", moved_bytes)

    # -- the store -----------------------------------------------------------------------------------------------

    def asked(self, op: str, requests: int) -> None:
        """So many requests went to the store for this purpose."""
        self.metrics.inc("store_requests_total", requests, op=op)
        with self.life.lock:
            self._rate.add(self.clock.steady(), requests)

    def retried(self) -> None:
        self.metrics.inc("store_retries_total")

    def expired(self, files: int, requests: int) -> None:
        """Retention deleted so many files."""
        self.metrics.inc("expired_files_total", files)
        self.metrics.inc("store_requests_total", requests, op="retention")

    def waits_for(self, cause: str | None) -> None:
        """What the whole changefeed waits for; None if for nothing."""
        self._waiting = cause

    # -- DDL -----------------------------------------------------------------------------------------------------

    def ddl_failed(self, key: Key, error: str) -> bool:
        """A schema file could not be written; True if that is the DDL's first failure. The caller holds the lock."""
        is_first = key not in self._ddl_failures
        self._ddl_failures[key] = error
        return is_first

    def ddl_written(self, key: Key) -> None:
        """The caller holds the lock."""
        self._ddl_failures.pop(key, None)

    def ddl_over(self, block: Block, outcome: str, now: float) -> None:
        metrics = self.metrics
        metrics.inc("ddl_total", outcome=outcome)
        metrics.observe("ddl_drain_duration_seconds", block.drained - block.arrived)
        metrics.observe("ddl_drain_wait_encode_seconds", block.encoded - block.arrived)
        metrics.observe("ddl_drain_wait_remote_seconds", block.drained - block.encoded)
        metrics.observe("ddl_duration_seconds", now - block.arrived)
        metrics.observe("ddl_affected_dispatchers", block.affected)
        self.totals.drains_s.append(block.drained - block.arrived)

    def count_schema_files(self, seconds: list[float], requests: int) -> None:
        self.metrics.observe_many("schema_write_duration_seconds", np.array(seconds, float))
        self.asked("land", requests)

    # -- gauges and status ---------------------------------------------------------------------------------------

    def watch(self) -> None:
        """A thread of its own, because gauges must go on while others wait for the store: they show the outage."""
        while self.life.goes_on:
            self.measure()
            self.life.pause(_MEASURE_EVERY_S)

    def measure(self) -> None:
        with self.life.lock:
            gauges = self._gauges()
            checkpoint, resolved = self.ledger.checkpoint(), self.ledger.progress.resolved_ts
        wall_ms = self.clock.wall().timestamp() * 1000
        for name, ts in (("checkpoint", checkpoint), ("resolved", resolved)):
            gauges[f"{name}_ts"] = physical_ms(ts)
            if ts:
                gauges[f"{name}_lag_seconds"] = max(0.0, (wall_ms - physical_ms(ts)) / 1000)
        for name, value in gauges.items():
            self.metrics.set(name, value)

    def _gauges(self) -> dict[str, float]:
        ledger = self.ledger
        waiting = ledger.planner.retries.waiting_items
        return {
            **{f"spool_{tier}_bytes": ledger.spool.tier_bytes[i] for i, tier in enumerate(TIERS)},
            "spool_segment_count": ledger.spool.segment_count,
            "spool_items": ledger.spool.items,
            "active_tables": ledger.queues.active,
            "writer_input_len": ledger.queues.queued,
            "in_flight_len": ledger.accounts.in_flight - waiting,
            "to_be_flushed_len": waiting,
            "ddl_unfinished": len(ledger.blocking.blocks),
        }

    def status(self) -> Status:
        with self.life.lock:
            ledger, totals, now = self.ledger, self.totals, self.clock.steady()
            spool, progress = ledger.spool, ledger.progress
            rate = self._rate.per_s(now)
            return Status(
                state=self._state(),
                rows_accepted=totals.rows_accepted,
                bytes_accepted=totals.bytes_accepted,
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
                active_tables=ledger.queues.active,
                queued_items=ledger.queues.queued,
                in_flight_items=ledger.accounts.in_flight,
                duplicates=totals.duplicates,
                retrying={ledger.queues.name(owner): error for owner, error in islice(self._failures.items(), NAMED)},
                retrying_tables=len(self._failures),
                waiting=self._waiting,
                requests_per_s=rate,
                requests_usd_per_day=rate * 86_400 * USD_PER_REQUEST,
                put_budget_late_s=ledger.planner.budget.late_s,
                ddls={block.event.query: self._ddl_waits_for(block) for block in ledger.blocking.blocks.values()},
                error=str(self.life.error) if self.life.error is not None else None,
            )

    def tables(self, by: str, k: int) -> list[TableLine]:
        """The first k tables by lag, by small files, or by bytes landed in this run."""
        if by not in TOP:
            raise BadSetting(f"tables are listed by one of {', '.join(TOP)}, not by {by!r}")
        with self.life.lock:
            return top_tables(self.ledger.queues, by, k, self.clock.steady())

    def _ddl_waits_for(self, block: Block) -> str:
        if block.key in self._ddl_failures:
            return self._ddl_failures[block.key]
        if before := [key for key in block.waits_for if key in self.ledger.blocking.blocks]:
            return f"the DDL of commit-ts {min(before).ts}"
        if block.left is None:
            return "changes before it"
        return f"{len(block.left)} tables to land" if len(block.left) else block.stage

    def _state(self) -> str:
        if self.life.error is not None:
            return "failed"
        if self.life.closed:
            return "stopped"
        return "closing" if self.life.stopping else "running"

    def _lag_s(self, now: float) -> float:
        """Seconds since the oldest resolved mark that the checkpoint has not reached was accepted."""
        self._forget_reached()
        return now - self._arrivals[0][0] if self._arrivals else 0.0

    def _forget_reached(self) -> None:
        while self._arrivals and self._arrivals[0][1] <= self.ledger.progress.checkpoint_ts:
            self._arrivals.popleft()
