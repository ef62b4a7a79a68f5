"""Stage one of the ack: a micro-batch is encoded into the spool, taken into the ledger, and its upstream is woken.

The query's callback calls `ingest_job`, `learn`, `accept` and `await_wake`, in this order. The batch counts as
*accepted* from `accept` on. `await_wake` is the only place where the upstream waits.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.clock import Clock
from tidegate.control.admission import divides
from tidegate.control.columns import Numbers
from tidegate.control.ledger import Ledger
from tidegate.driver.ddl import layouts_of, read_ddls
from tidegate.driver.held import HeldTables
from tidegate.driver.life import Life
from tidegate.driver.observer import LeftOut, Observer, Read
from tidegate.driver.plans import PlanBook
from tidegate.driver.refusals import Refusals
from tidegate.driver.room import RoomLeft
from tidegate.errors import BadEvents, BrokenInvariant, SpoolError, SpoolLost
from tidegate.events import LAYOUT, RESOLVED
from tidegate.executor.floor import Floor
from tidegate.executor.jobs import IngestJob, IngestOptions
from tidegate.executor.layouts import read_layouts
from tidegate.executor.rows import ERROR, FILTERED, ROWS, STALE, UNKNOWN_LAYOUT
from tidegate.executor.spool import Segments
from tidegate.format.layout_texts import NO_LAYOUTS

log = logging.getLogger("tidegate")

_RAISED = {"SpoolError": SpoolError, "SpoolLost": SpoolLost}


@dataclass
class Intake:
    options: IngestOptions
    life: Life
    clock: Clock
    ledger: Ledger
    book: PlanBook
    spool: Segments
    held: HeldTables
    room_left: RoomLeft
    observer: Observer
    refusals: Refusals
    wakes_when_durable: bool
    floor: Floor | None  # what is durable already and may come again after a restart
    ingesting: bool = False
    _cuts: frozenset[int] = frozenset()  # commit-ts of the DDLs of the batch that is encoded now, if it must run again

    # -- encode --------------------------------------------------------------------------------------------------

    def ingest_job(self, tasks: int, allowance_bytes: int) -> IngestJob:
        with self.life.lock:
            self.ingesting = True
            room = self.spool.room(tasks, self.ledger.spool.tier_bytes)
            layouts = self.book.layouts.for_job()
            cuts = tuple(sorted(self._cuts.union(key.ts for key in self.ledger.blocking.blocks)))
        return IngestJob(self.options, layouts, room, allowance_bytes, self.floor, self.ledger.spans, cuts)

    def ingest_ended(self) -> None:
        with self.life.lock:
            self.ingesting = False
            self._cuts = frozenset()

    def learn(self, items: pa.Table) -> bool:
        """Take in the layouts of a batch; True if it must run again with what was learned.

        That is so if rows met a layout that was unknown, or if a DDL of the batch stands inside a chunk.
        """
        kinds = items["kind"]
        errors = items.filter(pc.equal(kinds, ERROR))
        if errors.num_rows:
            name, _, sentence = errors["text"][0].as_py().partition(": ")
            raise _RAISED.get(name, BadEvents)(sentence)
        unknown = items.filter(pc.equal(kinds, UNKNOWN_LAYOUT))["layout"].to_numpy()
        rows = items.filter(pc.equal(kinds, ROWS))
        ddls, _ = read_ddls(items, self.options.rules)
        used = rows["layout"].drop_null().to_numpy()
        files = items.filter(pc.equal(kinds, LAYOUT))["segment"].to_pylist()
        self._learn_layouts(files, used, unknown, layouts_of(ddls))
        self._cuts = frozenset(ddl.key.ts for ddl in ddls)
        return bool(len(unknown)) or divides(ddls, rows)

    def _learn_layouts(self, files: list[str], used: Numbers, unknown: Numbers, of_ddls: Numbers) -> None:
        """Take in the new layouts that tasks left in files, and bring those back that were given up and are used."""
        layouts, now = self.book.layouts, self.clock.steady()
        needed = np.unique(np.concatenate([used, unknown, of_ddls]))
        with self.life.lock:
            for path in files:
                layouts.learn(read_layouts(path), now)
            missing = layouts.missing(needed)
        back = layouts.record.find_layouts(missing) if len(missing) else NO_LAYOUTS
        with self.life.lock:
            layouts.learn(back, now)
            missing = layouts.missing(needed)
            layouts.use(np.setdiff1d(needed, missing, assume_unique=True), now)
        never = np.intersect1d(unknown, missing)
        if len(never):
            raise BadEvents(
                f"rows use layout {never[0]} but no layout row defines it; "
                "a source sends a layout row in the same or an earlier micro-batch than its first use"
            )

    def discard(self, batch: int) -> None:
        """Delete all segments of a batch that is not accepted."""
        warn_gone(self.spool.delete_batch(str(batch)))

    # -- accept --------------------------------------------------------------------------------------------------

    def accept(self, batch: int, items: pa.Table, end: str | None) -> None:
        """The batch's bytes are in the spool: take its items into the ledger."""
        if pc.any(pc.equal(items["kind"], UNKNOWN_LAYOUT)).as_py():
            raise BrokenInvariant(f"batch {batch} has rows whose layout was unknown, so it is not whole")
        rows = items.filter(pc.equal(items["kind"], ROWS))
        resolved_ts = pc.max(items.filter(pc.equal(items["kind"], RESOLVED))["first_ts"]).as_py() or 0
        self.refusals.shared_targets(rows)
        ddls, filtered_ddls = read_ddls(items, self.options.rules)
        repeated, filtered, newest_ts = _rows_of(items, STALE), _rows_of(items, FILTERED), _newest_ts(items)
        now = self.clock.steady()
        with self.life.lock:
            self.life.raise_error()
            self.refusals.ddls(ddls)
            skipped = self.ledger.blocking.skipped
            accepted = self.ledger.accept(batch, rows, now, end, resolved_ts, ddls)
            skipped = self.ledger.blocking.skipped - skipped
            left_out = LeftOut(repeated, filtered, filtered_ddls, skipped)
            read = Read(newest_ts, repeated + len(ddls))
            self.observer.accepted(accepted, left_out, read, resolved_ts, now)
            if self.floor is not None and resolved_ts >= self.floor.last_ts:
                self.floor = None  # the replay has passed everything that was durable before
            self.life.notify()
        named = set(pc.unique(rows["segment"]).to_pylist())
        warn_gone(self.spool.delete(accepted.dropped_segments))
        warn_gone(self.spool.delete_unnamed(str(batch), named))
        self.held.write()
        self.observer.count_batch(accepted, left_out, sum(not path.endswith("-0.seg") for path in named))

    # -- wake ----------------------------------------------------------------------------------------------------

    def await_wake(self, batch: int, started: float) -> None:
        """Return when the upstream may be woken (once per batch): the spool is under its marks, or reading stops."""
        with self.life.lock:
            if not self._may_return(batch):
                self.observer.wake_held()
                self.life.wait_until(lambda: self._may_return(batch))
            self.life.raise_error()
        self.observer.woken(self.clock.steady() - started)

    def _may_return(self, batch: int) -> bool:
        self.room_left.look()
        room = self.ledger.progress.is_durable(batch) if self.wakes_when_durable else self.ledger.spool.may_wake()
        # What a DDL still misses must be able to arrive, whatever waits behind it. Asked last: it looks at all tables.
        return room or self.life.stopping or self.ledger.misses_changes


def warn_gone(segments: list[str]) -> None:
    """These were to be deleted and did not exist any more: somebody else deletes in the spool."""
    for segment in segments:
        log.warning("spool segment %s was already gone", segment)


def _newest_ts(items: pa.Table) -> int:
    """The greatest commit-ts of a change or a resolved mark, written or not."""
    items = items.filter(pc.not_equal(items["kind"], LAYOUT))
    return max(pc.max(items[name]).as_py() or 0 for name in ("first_ts", "last_ts"))


def _rows_of(items: pa.Table, kind: str) -> int:
    return pc.sum(items.filter(pc.equal(items["kind"], kind))["rows"]).as_py() or 0
