"""Stage two of the ack: what was accepted becomes files on the sink, and is durable from its receipt on.

Each land thread asks for work and does it: schema files of DDLs first, because what is behind a DDL waits for nothing
else; then the planner's next round; then moving remains of the spool.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidegate.clock import Clock
from tidegate.control.ledger import Ledger
from tidegate.control.rounds import Round
from tidegate.control.versions import Found
from tidegate.driver.ddl import DdlWriter
from tidegate.driver.demand import DemandFile
from tidegate.driver.intake import Intake, warn_gone
from tidegate.driver.jobs import Jobs
from tidegate.driver.life import Life, Work
from tidegate.driver.log import log
from tidegate.driver.moves import Moves
from tidegate.driver.observer import Observer
from tidegate.driver.plans import PlanBook
from tidegate.driver.scribe import Scribe
from tidegate.errors import BrokenInvariant, SpoolLost, StoreUnavailable
from tidegate.executor.rows import CONFLICT, ELSEWHERE, HUNG, LANDED, LOST
from tidegate.executor.spool import Segments


@dataclass
class Landing:
    life: Life
    clock: Clock
    ledger: Ledger
    book: PlanBook
    spool: Segments
    intake: Intake
    ddls: DdlWriter
    moves: Moves
    scribe: Scribe
    demand: DemandFile
    observer: Observer
    jobs: Jobs
    slots: int  # tasks that may run at once
    date_separator: str
    _running: int = 0  # land jobs

    def run(self) -> None:
        """A land thread."""
        while self.life.goes_on:
            with self.life.lock:
                work = self.life.wait_until(self._next_work)
            if work is not None:
                work()

    def land_next(self) -> bool:
        """Land the next round here and now; False when none is due or the land tasks have all the slots they may."""
        with self.life.lock:
            work = self._next_work()
        if work is not None:
            work()
        return work is not None

    def land_all(self, give_up: threading.Event) -> bool:
        """Land everything accepted (reason `close`); False when `give_up` or an error came first."""
        with self.life.lock:
            self.ledger.planner.closing = True
            self.life.notify()
            self.life.wait_until(lambda: self._at_rest() or give_up.is_set())
            return self.ledger.idle

    def _at_rest(self) -> bool:
        """Nothing more can land: all has, or what is left waits behind a DDL that misses changes still to come."""
        if self.ledger.idle:
            return True
        self.ddls.collect(self.clock.steady())
        return self.ledger.only_frozen

    def _next_work(self) -> Work | None:
        now = self.clock.steady()
        if (schema_files := self.ddls.next_work(now)) is not None:
            return schema_files
        if (round_ := self._next_round(now)) is not None:
            return partial(self._land, round_)
        return self.moves.next_work(now)

    # -- rounds --------------------------------------------------------------------------------------------------

    def _next_round(self, now: float) -> Round | None:
        """The planner's next round, unless land tasks have the slots they may have: half, while ingest needs some."""
        most = max(1, self.slots // 2) if self.intake.ingesting else self.slots
        free = most - self._running
        round_ = self.ledger.plan(now, self._date(), free) if free > 0 else None
        if round_ is not None:
            self._running += 1
            if round_.fresh:
                self.scribe.planned(round_)
        return round_

    def _date(self) -> int:
        """Today as a number: 20260131, or 20260100 and 20260000 for coarser dates, or 0 without dates."""
        if self.date_separator == "none":
            return 0
        today = self.clock.wall()
        month = today.month if self.date_separator != "year" else 0
        day = today.day if self.date_separator == "day" else 0
        return today.year * 10_000 + month * 100 + day

    def _land(self, round_: Round) -> None:
        try:
            started = self.clock.steady()
            with self.life.lock:
                plans, job = self.book.plans(round_)
            if round_.fresh:
                self.scribe.intend(round_)
                self.observer.recorded(self.clock.steady() - started)
            else:
                self.observer.retried()
            with self.observer.land_job(len(round_.slots)):
                receipts = self.jobs.land_files(plans, job)
            self._receive(round_, receipts, self.clock.steady() - started)
        finally:
            with self.life.lock:
                self._running -= 1
                self.life.notify()

    def _receive(self, round_: Round, receipts: pa.Table, seconds: float) -> None:
        """A round has answered: the ledger and the journal learn what landed, the rest is retried."""
        receipts = receipts.sort_by("file")
        landed = _is(receipts, LANDED)
        if len(landed) != len(round_):
            raise BrokenInvariant(f"round {round_.id} has {len(round_)} files but {len(landed)} receipts")
        with self.life.lock:
            elsewhere = _elsewhere(round_, receipts)
            self.observer.failed(round_, receipts, ~landed & ~np.isin(round_.lane, list(elsewhere)))
            now = self.clock.steady()
            tags, requests = receipts["tag"].combine_chunks(), pc.sum(receipts["requests"]).as_py()
            hung = _is(receipts, HUNG)
            durable = self.ledger.receive(round_, landed, now, seconds, elsewhere, hung, tags, requests)
            self.scribe.landed(round_.plan[landed].tolist(), durable)
            self.observer.landed(round_, landed, durable)
            self.life.notify()
        for name in durable.dropped:
            log.warning("%s: rows are dropped, because a newer schema file with the same columns exists", name)
        warn_gone(self.spool.delete(durable.segments))
        self.demand.write()
        self.observer.count_round(round_, receipts, landed, durable, seconds)
        self._start_again_if_needed(round_, receipts)

    def _start_again_if_needed(self, round_: Round, receipts: pa.Table) -> None:
        """A spool that is gone is replayed; a file that an old writer made after all is adopted: a start does both."""
        if (lost := pc.index(receipts["outcome"], LOST).as_py()) >= 0:
            raise SpoolLost(receipts["error"][lost].as_py())
        for i in np.flatnonzero(_is(receipts, CONFLICT)).tolist():
            if self.scribe.journal.has_orphan(*self.ledger.queues.key(int(round_.dispatcher[i]))):
                raise StoreUnavailable(f"a process of an earlier run still wrote: {receipts['error'][i]}")


def _is(receipts: pa.Table, outcome: str) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = pc.equal(receipts["outcome"], outcome).to_numpy(zero_copy_only=False)
    return found


def _elsewhere(round_: Round, receipts: pa.Table) -> dict[int, Found]:
    """By lane, the other version whose schema file has the same columns, and its last data file."""
    found = _is(receipts, ELSEWHERE)
    versions, numbers = receipts["found_version"].to_pylist(), receipts["found_number"].to_pylist()
    return {int(round_.lane[i]): Found(versions[i], numbers[i]) for i in np.flatnonzero(found).tolist()}
