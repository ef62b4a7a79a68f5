"""One changefeed on the driver: the parts and how they are wired.

A change passes `intake` (accepted), `landing` (durable) and `scribe` (on record). A DDL passes `intake`, waits in the
ledger until its tables have drained, and is written by `ddls`. A start is in `startup`. What can be seen of all this is
in `observer`. Row data passes nowhere here.

Threads: the query's callback brings batches; land threads take rounds and run them as Spark jobs; the scribe writes
journal entries and `metadata`; the observer keeps the gauges up to date. The ledger is only touched with the lock of
`Life`, and nobody waits for the store with it.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from tidegate.clock import Clock
from tidegate.config.settings import Settings, shape
from tidegate.control.flush import Limits
from tidegate.control.ledger import TableLine
from tidegate.driver.ddl import DdlWriter
from tidegate.driver.held import HeldTables
from tidegate.driver.intake import Intake
from tidegate.driver.jobs import Jobs
from tidegate.driver.landing import Landing
from tidegate.driver.life import Life
from tidegate.driver.observer import Observer
from tidegate.driver.plans import PlanBook
from tidegate.driver.recovery import floor_of
from tidegate.driver.retention import Expiry, Retention
from tidegate.driver.scribe import Scribe
from tidegate.driver.startup import Probe, Sink, no_probe, restored_ledger, take_over
from tidegate.executor.segments import HELD, SpoolDirectory
from tidegate.observe.metrics import Metrics
from tidegate.observe.status import Status, Totals
from tidegate.storage.store import Store, StoreOpener

log = logging.getLogger("tidegate")


@dataclass
class Changefeed:
    settings: Settings
    store: Store
    open_store: StoreOpener
    clock: Clock
    metrics: Metrics
    jobs: Jobs
    expiry: Expiry
    slots: int = 2
    limits: Limits | None = None
    disk_reserve_bytes: int = 512 << 20  # with less free space under the spool no wake goes out
    probe: Probe = no_probe  # tries whether the sink can be used, before it is taken over
    totals: Totals = field(default_factory=Totals)

    def __post_init__(self) -> None:
        s = self.settings
        self.spool = SpoolDirectory.open(s.spool_dir, s.changefeed_id, s.spool_type, s.spool_max_bytes)
        try:
            self._wire()
        except BaseException:
            self.spool.close()
            raise

    def _wire(self) -> None:
        s, now = self.settings, self.clock.steady()
        sink = Sink(s.sink_uri, s.paths, shape(s), s.spans)
        started = take_over(self.store, sink, self.probe)
        found = started.found
        self.life = Life()
        self.ledger = restored_ledger(sink, self.limits or self._limits(), found, now)
        self.book = PlanBook(s, self.ledger, dict(found.layouts), self.open_store, found.foreign)
        self.observer = Observer(self.life, self.clock, self.ledger, self.metrics, self.totals)
        self.retention = Retention(self.store, self.expiry, self.clock, self.observer.expired)
        self.scribe = Scribe(
            self.life, self.clock, self.ledger, started.journal, self.store, self.book, self.retention, self.observer,
            sink.shape, started.written_checkpoint,
        )  # fmt: skip
        if started.was_empty:
            self.retention.begin_empty()
        for files in (*found.tables, found.orphans):
            self.scribe.note_directories(files)
        found.tables.clear()
        self.scribe.compact()
        held = HeldTables(held_file(s), self.life, self.ledger)
        self.intake = Intake(
            s, self.life, self.clock, self.ledger, self.book, self.spool, held, self.observer, self.disk_reserve_bytes,
            floor_of(self.ledger),
        )  # fmt: skip
        self.ddls = DdlWriter(self.life, self.clock, self.ledger, self.book, self.observer, self.jobs.land)
        self.landing = Landing(
            self.life, self.clock, self.ledger, self.book, self.spool, self.intake, self.ddls, self.scribe, held,
            self.observer, self.jobs, self.slots, s.date_separator, s.spool_type,
        )  # fmt: skip
        runs = [("scribe", self.scribe.run), ("gauges", self.observer.watch)]
        runs += [(f"land-{i}", self.landing.run) for i in range(self.slots)]
        self._threads = [
            threading.Thread(target=self._ends_with, args=(run,), daemon=True, name=name) for name, run in runs
        ]

    def _limits(self) -> Limits:
        s = self.settings
        memory_only = s.spool_type == "memory"
        return Limits(
            file_size_bytes=s.file_size_bytes,
            flush_interval_s=s.flush_interval_s,
            max_flush_delay_s=s.max_flush_delay_s,
            spool_max_bytes=min(s.spool_max_bytes, self.spool.memory_limit) if memory_only else s.spool_max_bytes,
            dispatcher_share=s.dispatcher_share,
            put_budget=s.put_budget,
            state_ttl_s=s.state_ttl_s,
        )

    def start(self) -> None:
        self.scribe.journal.patience = self.scribe.wait_out
        for thread in self._threads:
            thread.start()

    def _ends_with(self, run: Callable[[], None]) -> None:
        """An error of any thread ends the changefeed."""
        try:
            run()
        except BaseException as exc:
            self.life.fail(exc)

    def source_ended(self) -> None:
        """The source has no more: its end counts as resolved."""
        with self.life.lock:
            self.ledger.source_ended()

    def close(self) -> None:
        """End the threads, write the last checkpoint, and remove the spool. Repeats are harmless."""
        if self.life.closed:
            return
        self.retention.stop()
        self.life.close()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout=5.0)
        # A thread that hangs in the store would be waited for without limit; the next start knows what it missed.
        if self.life.error is None and not any(thread.is_alive() for thread in self._threads):
            self.scribe.write_last()
        self.spool.close()

    def status(self) -> Status:
        return self.observer.status()

    def tables(self, by: str = "lag", k: int = 10) -> list[TableLine]:
        """The first k tables by lag, by small files, or by bytes landed in this run."""
        return self.observer.tables(by, k)


def held_file(settings: Settings) -> str:
    """The file that tells a source which tables not to hand out for now."""
    return os.path.join(settings.spool_dir, settings.changefeed_id, HELD)
