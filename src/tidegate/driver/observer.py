"""Takes the facts of a changefeed. Only the observer touches metrics and adds up totals; the status is in `view`.

The other parts tell it facts: a batch was accepted, a wake is held back, files landed, a DDL is over. Facts that the
status shows together with the ledger are told with the lock held, so that one look never sees half of a change. What is
only counted is told without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from math import nan
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
from tidegate.driver.life import Life
from tidegate.driver.log import log
from tidegate.driver.view import View, no_state
from tidegate.observe.metrics import Metrics
from tidegate.observe.status import MOST_FILTERED, NAMED, Totals
from tidegate.sources.source import SourceState
from tidegate.wording import human_seconds

_MEASURE_EVERY_S = 0.5
_DURATIONS = {
    "data_write_duration_seconds": "data_s",
    "index_write_duration_seconds": "index_s",
    "schema_check_duration_seconds": "schema_check_s",
    "schema_write_duration_seconds": "schema_write_s",
}


_INGEST = ("read_duration_seconds", "encode_duration_seconds", "spool_write_duration_seconds")


class LeftOut(NamedTuple):
    """What of a batch is not written: rows that were durable before, what the filter or TiCDC drops, bad rows."""

    repeated_rows: int
    filtered_rows: int
    filtered_ddls: int
    skipped_ddls: int
    set_aside_rows: int


class Read(NamedTuple):
    """What a batch brought, written or not."""

    newest_ts: int
    left_out: int  # rows that were durable before, and DDLs
    filtered_tables: frozenset[tuple[str, str]] = frozenset()  # some tables with rows that the filter left out


@dataclass
class Observer:
    life: Life
    clock: Clock
    ledger: Ledger
    metrics: Metrics
    totals: Totals
    source_state: Callable[[], SourceState | None] = no_state

    def __post_init__(self) -> None:
        begun_ts = self.ledger.progress.checkpoint_ts
        self.view = View(self.life, self.clock, self.ledger, self.totals, self.source_state, begun_ts=begun_ts)

    # -- accepted ------------------------------------------------------------------------------------------------

    def accepted(self, accepted: Accepted, left_out: LeftOut, read: Read, resolved_ts: int, now: float) -> None:
        """A batch is in the ledger. The caller holds the lock."""
        self.view.arrived(max(read.newest_ts, resolved_ts), now)
        self.totals.newest_ts = max(self.totals.newest_ts, read.newest_ts)
        self.totals.left_out += read.left_out
        self.totals.rows_filtered += left_out.filtered_rows
        if len(self.totals.filtered_tables) < MOST_FILTERED:
            self.totals.filtered_tables |= read.filtered_tables
        self.totals.rows_accepted += accepted.rows
        self.totals.bytes_accepted += accepted.bytes
        self.totals.duplicates += accepted.duplicates + left_out.repeated_rows

    def set_aside(self, items: pa.Table) -> None:
        """These rows of a batch, counted by table, cannot be written and are set aside. The caller holds the lock."""
        known = len(self.view.set_aside)
        for item in items.to_pylist():
            name = f"{item['schema_name']}.{item['table_name']}"
            self.view.note_set_aside(item["table_id"], name, item["rows"], item["text"])
        fresh = list(islice(self.view.set_aside.items(), known, None))
        for name, line in fresh[:NAMED]:
            log.warning("%s: rows cannot be written and are set aside in %s: %s", name, line.where, line.reason)
        if len(fresh) > NAMED:
            log.warning("rows of %d tables more are set aside", len(fresh) - NAMED)

    def count_batch(self, accepted: Accepted, left_out: LeftOut, full_segments: int) -> None:
        metrics = self.metrics
        metrics.observe("batch_rows", accepted.rows)
        metrics.observe("batch_bytes", accepted.bytes)
        metrics.inc("duplicates_dropped_total", accepted.duplicates + left_out.repeated_rows)
        metrics.inc("filtered_rows_total", left_out.filtered_rows)
        metrics.inc("set_aside_rows_total", left_out.set_aside_rows)
        metrics.inc("ddl_total", left_out.filtered_ddls, outcome="filtered")
        metrics.inc("ddl_total", left_out.skipped_ddls, outcome="skipped")
        metrics.inc("rotate_total", full_segments)
        if left_out.set_aside_rows:
            self.asked("bad-rows", left_out.set_aside_rows)
        self.measure()

    def wake_held(self, cause: str) -> None:
        """The upstream waits. The caller holds the lock."""
        self.metrics.inc("wake_suppressed_total")
        self.metrics.set("pending_post_enqueue", 1)
        log.info("the wake is held back: %s", cause)

    def count_times(self, times: NDArray[np.float64]) -> None:
        """How long each task of a batch took to read, to encode and to spool."""
        for name, seconds in zip(_INGEST, times.T, strict=True):
            self.metrics.observe_many(name, seconds)

    def woken(self, seconds: float, waited_s: float, held_s: float | None) -> None:
        """The micro-batch returns so many seconds after it began, and `waited_s` after it was accepted.

        `held_s` of them its wake was held back; None if it was not.
        """
        self.metrics.observe("wake_wait_duration_seconds", waited_s)
        if held_s is not None:
            log.info("the upstream is woken after %s", human_seconds(held_s))
        self.metrics.inc("wake_calls_total")
        self.metrics.set("pending_post_enqueue", 0)
        self.metrics.observe("batch_duration_seconds", seconds)
        self.totals.wakes_s.append(seconds)

    def short_of_space(self, shortage: str | None) -> None:
        """What there is too little of, or None. It is logged when that changes. The caller holds the lock."""
        before, self.view.shortage = self.view.shortage, shortage
        if shortage is not None and before is None:
            log.warning("%s", shortage)
        elif shortage is None and before is not None:
            log.info("there is enough space under the spool again")

    def backlog(self, left_bytes: int | None) -> None:
        """So much does a source that ends have that it has not handed out; None for one that does not end."""
        if self.view.begun_bytes is None:
            self.view.begun_bytes = left_bytes
        self.view.left_bytes = left_bytes
        self.metrics.set("source_backlog_bytes", nan if left_bytes is None else left_bytes)

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
        metrics.observe("round_duration_seconds", seconds)
        took = sum(receipts[column].to_numpy() for column in _DURATIONS.values())
        for reason, count in Counter(round_.reason[landed].tolist()).items():
            sizes = round_.bytes[landed & (round_.reason == reason)]
            metrics.inc("flush_total", count, reason=reason)
            metrics.observe_many("flush_bytes", sizes.astype(float), reason=reason)
            metrics.observe_many("flush_duration_seconds", took[landed & (round_.reason == reason)], reason=reason)
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
        if self.view.failures:
            self._land_again(round_.dispatcher[~failed].tolist())
        if not failed.any():
            return
        errors, fresh = receipts["error"].to_pylist(), dict[int, str]()
        for i in np.flatnonzero(failed).tolist():
            owner = int(round_.dispatcher[i])
            if errors[i] and owner not in self.view.failures:
                fresh[owner] = errors[i]
            self.view.failures[owner] = errors[i] or self.view.failures.get(owner, "waits for an earlier file")
        for owner, error in islice(fresh.items(), NAMED):
            log.warning("landing %s failed, will retry: %s", self.ledger.queues.name(owner), error)
        if len(fresh) > NAMED:
            log.warning("landing %d tables more failed, will retry", len(fresh) - NAMED)

    def _land_again(self, owners: list[int]) -> None:
        back = [owner for owner in owners if self.view.failures.pop(owner, None) is not None]
        for owner in back[:NAMED]:
            log.info("%s lands again", self.ledger.queues.name(owner))
        if len(back) > NAMED:
            log.info("%d tables more land again", len(back) - NAMED)

    def recorded(self, seconds: float) -> None:
        """A round is in the journal, so long after it was planned."""
        self.metrics.observe("journal_wait_duration_seconds", seconds)

    @contextmanager
    def land_job(self, items: int) -> Iterator[None]:
        """While a land job works on so many items."""
        self._land_job(1, items)
        try:
            yield
        finally:
            self._land_job(-1, -items)

    def _land_job(self, jobs: int, items: int) -> None:
        with self.life.lock:
            self.view.land_jobs, self.view.in_jobs = self.view.land_jobs + jobs, self.view.in_jobs + items
            running = self.view.land_jobs
        self.metrics.set("land_tasks_running", running, executor="driver")  # a job is one task

    def moved(self, moved_bytes: int) -> None:
        """So much of the spool was copied together."""
        self.metrics.inc("spool_moved_bytes_total", moved_bytes)

    # -- the store -----------------------------------------------------------------------------------------------

    def asked(self, op: str, requests: int) -> None:
        """So many requests went to the store for this purpose."""
        self.metrics.inc("store_requests_total", requests, op=op)
        with self.life.lock:
            self.view.rate.add(self.clock.steady(), requests)

    def retried(self) -> None:
        self.metrics.inc("store_retries_total")

    def expired(self, files: int, requests: int) -> None:
        """Retention deleted so many files."""
        self.metrics.inc("expired_files_total", files)
        self.metrics.inc("store_requests_total", requests, op="retention")

    def waits_for(self, cause: str | None, until: float | None = None) -> None:
        """What the whole changefeed waits for, and when it is tried again; None if for nothing."""
        self.view.waiting, self.view.waiting_until = cause, until

    def checkpoint_written(self, checkpoint_ts: int) -> None:
        """Readers of the sink see this checkpoint."""
        self.view.written_ts = checkpoint_ts

    # -- DDL -----------------------------------------------------------------------------------------------------

    def ddl_failed(self, key: Key, error: str) -> bool:
        """A schema file could not be written; True if that is the DDL's first failure. The caller holds the lock."""
        is_first = key not in self.view.ddl_failures
        self.view.ddl_failures[key] = error
        return is_first

    def ddl_over(self, block: Block, outcome: str, now: float) -> None:
        """The outcome is `written`, or `passed` for a DDL without schema files."""
        metrics = self.metrics
        with self.life.lock:
            self.view.ddl_failures.pop(block.key, None)
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

    def watch(self, look: Callable[[], None]) -> None:
        """A thread of its own, because gauges must go on while others wait for the store: they show the outage.

        `look` is called as often: it looks at the space under the spool.
        """
        while self.life.goes_on:
            look()
            self.measure()
            self.life.pause(_MEASURE_EVERY_S)

    def measure(self) -> None:
        for name, value in self.view.gauges().items():
            self.metrics.set(name, value)
