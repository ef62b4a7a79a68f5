"""One changefeed on the driver: the parts and how they are wired.

A change passes `intake` (accepted), `landing` (durable) and `scribe` (on record). A DDL passes `intake`, waits in the
ledger until its tables have drained, and is written by `ddls`. A start is in `startup`. What can be seen of all this is
in `observer`. Row data passes nowhere here.

Threads: the query's callback brings batches; land threads take rounds and run them as Spark jobs; the scribe writes
journal entries and `metadata`, and watches in a second thread whether they stay; the observer keeps the gauges up to
date. The ledger is only touched with the lock of `Life`, and nobody waits for the store with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from tidegate.clock import Clock
from tidegate.control.top import TableLine
from tidegate.driver.ddl import DdlWriter
from tidegate.driver.demand import DemandFile
from tidegate.driver.intake import Intake
from tidegate.driver.jobs import Jobs
from tidegate.driver.landing import Landing
from tidegate.driver.layouts import Layouts
from tidegate.driver.life import Life
from tidegate.driver.moves import Moves
from tidegate.driver.observer import Observer
from tidegate.driver.options import Options
from tidegate.driver.plans import PlanBook
from tidegate.driver.refusals import Refusals
from tidegate.driver.retention import Retention
from tidegate.driver.room import RoomLeft
from tidegate.driver.scribe import Scribe
from tidegate.driver.startup import Probe, floor_of, no_probe, nobody_knows, restored_ledger, take_over
from tidegate.driver.view import no_state
from tidegate.executor.directory import SpoolDirectory
from tidegate.format.layout_texts import LayoutTexts
from tidegate.format.rules.changes import TableRules
from tidegate.observe.metrics import Metrics
from tidegate.observe.status import Status, Totals
from tidegate.sources.source import SourceState
from tidegate.storage.store import Store


@dataclass
class Changefeed:
    options: Options
    store: Store
    clock: Clock
    metrics: Metrics
    jobs: Jobs
    slots: int = 2  # tasks that may run at once
    probe: Probe = no_probe  # checks whether the sink can be used, before it is taken over
    totals: Totals = field(default_factory=Totals)
    newest_ts: Callable[[], int | None] = nobody_knows  # how far the source goes
    source_state: Callable[[], SourceState | None] = no_state  # how far behind its upstream it is

    def __post_init__(self) -> None:
        o = self.options.spool
        self.spool = SpoolDirectory.open(o.directory, o.changefeed_id, o.kind, o.max_bytes)
        try:
            self._wire()
        except BaseException:
            self.spool.close()
            raise

    def _wire(self) -> None:
        """Take the sink over, bring the ledger back, and connect the parts around it."""
        o = self.options
        started = take_over(self.store, o.sink, self.probe, self.clock.wall(), self.newest_ts)
        found = started.found
        limits = replace(o.limits, spool_max_bytes=self.spool.max_bytes)
        self.life = Life()
        rules = TableRules(o.rules)
        target = None if o.rules.routes_nothing else rules.target
        self.ledger = restored_ledger(o.sink, limits, found, self.clock.steady(), target)
        # With routes two tables of other names may have one target.
        self.ledger.queues.unseen.was_empty = started.was_empty and o.rules.routes_nothing
        self.observer = Observer(self.life, self.clock, self.ledger, self.metrics, self.totals, self.source_state)
        layouts = Layouts(str(self.spool.disk), started.journal, limits.state_ttl_s)
        layouts.learn(LayoutTexts.of_dict(found.layouts), self.clock.steady())
        self.book = PlanBook(
            self.ledger, layouts, self.spool.reader, o.land, rules, o.changefeed_id,
            found.foreign,
        )  # fmt: skip
        self.retention = Retention(self.store, o.expiry, self.clock, self.observer.expired)
        self.scribe = Scribe(
            self.life, self.clock, self.ledger, started.journal, self.store, self.book, self.retention, self.observer,
            o.sink.shape, started.written_checkpoint,
        )  # fmt: skip
        self.scribe.begin(started)
        demand = DemandFile(o.spool.demand_file, self.life, self.ledger)
        room_left = RoomLeft(self.life, self.ledger, self.spool, self.observer)
        self.intake = Intake(
            o.ingest, self.life, self.clock, self.ledger, self.book, self.spool, demand, room_left, self.observer,
            Refusals(self.ledger, self.book, o.splittable_check), o.wakes_when_durable, floor_of(self.ledger),
        )  # fmt: skip
        self.ddls = DdlWriter(self.life, self.clock, self.ledger, self.book, self.observer, self.jobs)
        moves = Moves(self.life, self.clock, self.ledger, self.spool, self.observer, self.jobs)
        self.landing = Landing(
            self.life, self.clock, self.ledger, self.book, self.spool, self.intake, self.ddls, moves, self.scribe,
            demand, self.observer, self.jobs, self.slots, o.sink.paths.date_separator,
        )  # fmt: skip
        runs = [("scribe", self.scribe.run), ("sink", self.scribe.watch)]
        runs += [("gauges", partial(self.observer.watch, self._look))]
        runs += [(f"land-{i}", self.landing.run) for i in range(self.slots)]
        self._threads = [
            *(threading.Thread(target=self._ends_with, args=(run,), daemon=True, name=name) for name, run in runs),
        ]

    def start(self) -> None:
        self.scribe.journal.patience = self.scribe.wait_out
        self.intake.demand.write()
        for thread in self._threads:
            thread.start()

    def _look(self) -> None:
        """What becomes of the disk, and what a DDL waits for, is noticed also while nothing comes and nothing lands."""
        self.intake.room_left.watch()
        self.intake.demand.write()

    def _ends_with(self, run: Callable[[], None]) -> None:
        """An error of a thread ends the changefeed."""
        try:
            run()
        except BaseException as exc:
            self.life.fail(exc)

    def source_ended(self) -> None:
        """The source has no more: its end counts as resolved."""
        with self.life.lock:
            self.ledger.source_ended()

    def confirm_sink(self) -> None:
        """At the end: what landed counts only if the sink was not emptied meanwhile."""
        if self.life.error is None:
            self._ends_with(self.scribe.look)

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
        return self.observer.view.status()

    def tables(self, by: str = "lag", k: int = 10) -> list[TableLine]:
        """The first k tables by lag, by small files, or by bytes landed in this run."""
        return self.observer.view.tables(by, k)
