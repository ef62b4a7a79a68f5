"""Stage one of the ack: a micro-batch is encoded into the spool, taken into the ledger, and its upstream is woken.

The query's callback calls `ingest`, `accept` and `await_wake`, in this order. The batch counts as *accepted* from
`accept` on. The upstream waits in `await_wake`, and in `ingest` while the store does not take a bad row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidegate.clock import Clock
from tidegate.control.admission import divides
from tidegate.control.blocking import Ddl
from tidegate.control.columns import Numbers
from tidegate.control.ledger import Ledger
from tidegate.control.markers import Block
from tidegate.control.retries import pause_s
from tidegate.control.spool import ITEM_BYTES
from tidegate.driver.ddl import layouts_of, read_ddls
from tidegate.driver.demand import DemandFile
from tidegate.driver.life import Life
from tidegate.driver.log import log
from tidegate.driver.observer import LeftOut, Observer, Read
from tidegate.driver.plans import PlanBook
from tidegate.driver.refusals import Refusals
from tidegate.driver.room import RoomLeft
from tidegate.errors import (
    BadEvents,
    BrokenInvariant,
    SpoolFull,
    SpoolTooSmall,
    StoreUnavailable,
    TidegateError,
    error_named,
)
from tidegate.events import LAYOUT, RESOLVED, shown_time
from tidegate.executor.floor import Floor
from tidegate.executor.jobs import IngestJob, IngestOptions
from tidegate.executor.layouts import read_layouts
from tidegate.executor.rows import ERROR, FILTERED, ROWS, SET_ASIDE, STALE, TIMES, UNKNOWN_LAYOUT
from tidegate.executor.spool import Segments
from tidegate.format.layout_texts import NO_LAYOUTS
from tidegate.wording import human_bytes


@dataclass
class Intake:
    options: IngestOptions
    life: Life
    clock: Clock
    ledger: Ledger
    book: PlanBook
    spool: Segments
    demand: DemandFile
    room_left: RoomLeft
    observer: Observer
    refusals: Refusals
    wakes_when_durable: bool
    floor: Floor | None  # what is durable already and may come again after a restart
    ingesting: bool = False
    _ddls: list[Ddl] = field(default_factory=list)  # of the batch that was learned from last, for `accept`
    _filtered_ddls: int = 0
    _cuts: frozenset[int] = frozenset()  # commit-ts of the DDLs of the batch that is encoded now, if it must run again

    # -- encode --------------------------------------------------------------------------------------------------

    def ingest(self, batch: int, run: Callable[[], pa.Table]) -> pa.Table:
        """The items of a micro-batch. `run` encodes it with an `ingest_job`, again if it must know more.

        If the store does not take a row that is to be set aside, the batch waits here and runs again: nothing of it is
        accepted before that row is durable.
        """
        tries = 0
        while True:
            try:
                items = run()
                if self.learn(items):  # rows came before their layout, or around a DDL: once more
                    self.discard(batch)
                    items = run()
                    self.learn(items)
                return items
            except StoreUnavailable as exc:
                self.discard(batch)
                self._wait_out(tries, exc)
                tries += 1
            finally:
                self.ingest_ended()

    def _wait_out(self, tries: int, error: StoreUnavailable) -> None:
        if not tries:
            log.warning("%s; the micro-batch waits and is encoded again", error)
        self.observer.retried()
        until = self.clock.steady() + pause_s(tries, 0)
        with self.life.lock:
            self.observer.waits_for(f"the store: {error}", until)
            self.life.wait_until(lambda: self.life.stopping or self.clock.steady() >= until)
        self.observer.waits_for(None)
        if self.life.stopping or not self.life.goes_on:
            raise error

    def ingest_job(self, tasks: int, allowance_bytes: int) -> IngestJob:
        with self.life.lock:
            self.ingesting = True
            room = self.spool.room(tasks, self.ledger.spool.tier_bytes)
            layouts = self.book.layouts.for_job()
            cuts = tuple(sorted(self._cuts.union(key.ts for key in self.ledger.blocking.blocks)))
        spans, remedy = self.ledger.spans, self.spool.remedy
        return IngestJob(self.options, layouts, room, allowance_bytes, self.floor, spans, remedy, cuts)

    def ingest_ended(self) -> None:
        with self.life.lock:
            self.ingesting = False
            self._cuts = frozenset()

    def learn(self, items: pa.Table) -> bool:
        """Take in the layouts and DDLs of a batch; True if it must run again with what was learned.

        That is so if rows met a layout that was unknown, or if a DDL of the batch stands inside a chunk.
        """
        kinds = items["kind"]
        errors = items.filter(pc.equal(kinds, ERROR))
        if errors.num_rows:
            raise self._failed(*errors["text"][0].as_py().split(": ", 1))
        unknown = items.filter(pc.equal(kinds, UNKNOWN_LAYOUT))["layout"].to_numpy()
        rows = items.filter(pc.equal(kinds, ROWS))
        self._ddls, self._filtered_ddls = read_ddls(items, self.options.rules)
        used = rows["layout"].drop_null().to_numpy()
        with self.life.lock:
            compared = self.refusals.compared_layouts(rows)
        needed = np.unique(np.concatenate([used, unknown, layouts_of(self._ddls), compared]))
        self._learn_layouts(items.filter(pc.equal(kinds, LAYOUT))["segment"].to_pylist(), needed, unknown)
        self._cuts = frozenset(ddl.key.ts for ddl in self._ddls)
        return bool(len(unknown)) or divides(self._ddls, rows)

    def _learn_layouts(self, files: list[str], needed: Numbers, unknown: Numbers) -> None:
        """Take in the new layouts that tasks left in files, and bring those back that were given up and are used."""
        layouts, now = self.book.layouts, self.clock.steady()
        with self.life.lock:
            for path in files:
                layouts.learn(read_layouts(path), now)
            missing = layouts.missing(needed)
        self._bring_back(missing)
        with self.life.lock:
            missing = layouts.missing(needed)
            layouts.use(np.setdiff1d(needed, missing, assume_unique=True), now)
        never = np.intersect1d(unknown, missing)
        if len(never):
            raise BadEvents(
                f"rows use layout {never[0]} but no layout row defines it; "
                "a source sends a layout row in the same or an earlier micro-batch than its first use"
            )

    def _bring_back(self, missing: Numbers) -> Numbers:
        """Ask the journal for layouts that were given up; returns those that it has."""
        layouts = self.book.layouts
        back = layouts.record.find_layouts(missing) if len(missing) else NO_LAYOUTS
        with self.life.lock:
            layouts.learn(back, self.clock.steady())
        return back.fingerprint

    def _failed(self, name: str, sentence: str) -> TidegateError:
        """A task's error. If the spool has no space, a restart helps only if something in it could have landed."""
        if name == SpoolFull.__name__:
            with self.life.lock:
                if not self.ledger.spool.items or self.ledger.reading.misses_changes:
                    return self.spool.is_full(sentence)
        return (error_named(name) or TidegateError)(sentence)

    def discard(self, batch: int) -> None:
        """Delete all segments of a batch that is not accepted."""
        warn_gone(self.spool.delete_batch(str(batch)))

    # -- accept --------------------------------------------------------------------------------------------------

    def accept(self, batch: int, items: pa.Table, end: str | None, estimated_bytes: int = 0) -> None:
        """The batch's bytes are in the spool: take its items into the ledger.

        `estimated_bytes` is what the source thought they would be.
        """
        if pc.any(pc.equal(items["kind"], UNKNOWN_LAYOUT)).as_py():
            raise BrokenInvariant(f"batch {batch} has rows whose layout was unknown, so it is not whole")
        rows = items.filter(pc.equal(items["kind"], ROWS))
        resolved_ts = pc.max(items.filter(pc.equal(items["kind"], RESOLVED))["first_ts"]).as_py() or 0
        ddls, self._ddls = self._ddls, []
        repeated, filtered, newest_ts = _rows_of(items, STALE), _rows_of(items, FILTERED), _newest_ts(items)
        aside = items.filter(pc.equal(items["kind"], SET_ASIDE))
        now = self.clock.steady()
        with self._comparable(rows):
            self.life.raise_error()
            self.refusals.rows(rows)
            self.refusals.ddls(ddls)
            skipped = self.ledger.blocking.skipped
            accepted = self.ledger.accept(batch, rows, now, end, resolved_ts, ddls)
            skipped = self.ledger.blocking.skipped - skipped
            if not repeated + accepted.duplicates:
                self.ledger.reading.measured(estimated_bytes, accepted.bytes + ITEM_BYTES * accepted.items)
            left_out = LeftOut(repeated, filtered, self._filtered_ddls, skipped, _rows_of(items, SET_ASIDE))
            read = Read(newest_ts, repeated + len(ddls), _filtered_tables(items))
            self.observer.accepted(accepted, left_out, read, resolved_ts, now)
            self.observer.set_aside(aside)
            if self.floor is not None and resolved_ts >= self.floor.last_ts:
                self.floor = None  # the replay has passed everything that was durable before
            self.life.notify()
        named = set(pc.unique(rows["segment"]).to_pylist())
        warn_gone(self.spool.delete(accepted.dropped_segments))
        warn_gone(self.spool.delete_unnamed(str(batch), named))
        self.demand.write()
        self.observer.count_batch(accepted, left_out, sum(not path.endswith("-0.seg") for path in named))
        self.observer.count_times(_times(items))

    @contextmanager
    def _comparable(self, rows: pa.Table) -> Iterator[None]:
        """The lock, with all layouts here that these rows are compared with.

        Which these are may change at any time before: a landing may give a name to another table.
        """
        while True:
            with self.life.lock:
                missing = self.book.layouts.missing(np.unique(self.refusals.compared_layouts(rows)))
                if not len(missing):
                    yield
                    return
            if len(self._bring_back(missing)) < len(missing):
                raise BrokenInvariant(f"layout {missing[0]} is used and neither here nor on record")

    # -- wake ----------------------------------------------------------------------------------------------------

    def await_wake(self, batch: int, started: float) -> None:
        """Return when the upstream may be woken (once per batch): the spool is under its marks, or reading stops.

        The source then knows what may come. Raises SpoolTooSmall if waiting would be for ever.
        """
        held_s, accepted = None, self.clock.steady()
        with self.life.lock:
            if not self._may_return(batch):
                since = self.clock.steady()
                self.observer.wake_held(self._held_by(batch))
                self.life.wait_until(lambda: self._may_return(batch))
                held_s = self.clock.steady() - since
            self.life.raise_error()
        self.demand.write()
        now = self.clock.steady()
        self.observer.woken(now - started, now - accepted, held_s)

    def _held_by(self, batch: int) -> str:
        if self.wakes_when_durable:
            return f"micro-batch {batch} is not durable yet (dml-wake-mode = flush)"
        spool = self.ledger.spool
        sizes = [human_bytes(size) for size in (spool.occupied_bytes, spool.max_bytes, spool.low_mark)]
        return "the spool has {} of {}; the source goes on at {}".format(*sizes)

    def _may_return(self, batch: int) -> bool:
        self.room_left.look()
        room = self.ledger.progress.is_durable(batch) if self.wakes_when_durable else self.ledger.spool.may_wake()
        # What a DDL still misses must be able to arrive, whatever waits behind it. Asked last: it looks at all tables.
        if room or self.life.stopping or self.ledger.reading.may_exceed_marks:
            return True
        if (ddl := self.ledger.reading.too_small_for) is not None:
            raise SpoolTooSmall(self._too_small(ddl))
        return False

    def _too_small(self, ddl: Block) -> str:
        remedy = f"{self.spool.remedy} and start again"
        return (
            f"the spool is full of changes that wait for the DDL of commit-ts {shown_time(ddl.ts)}, "
            f"{ddl.event.query!r}, and changes before that DDL have not come; it needs spool.max-bytes="
            f"{self.ledger.reading.needed_bytes} or more, because it is not known how much is missing: {remedy}"
        )


def warn_gone(segments: list[str]) -> None:
    """These were to be deleted and did not exist any more: somebody else deletes in the spool."""
    for segment in segments:
        log.warning("spool segment %s was already gone", segment)


def _newest_ts(items: pa.Table) -> int:
    """The greatest commit-ts of a change or a resolved mark, written or not."""
    items = items.filter(pc.not_equal(items["kind"], LAYOUT))
    return max(pc.max(items[name]).as_py() or 0 for name in ("first_ts", "last_ts"))


def _times(items: pa.Table) -> NDArray[np.float64]:
    """For each task of a batch, the seconds to read, to encode and to spool."""
    texts = items.filter(pc.equal(items["kind"], TIMES))["text"].to_pylist()
    return np.array([json.loads(text) for text in texts], np.float64).reshape(-1, 3)


def _filtered_tables(items: pa.Table) -> frozenset[tuple[str, str]]:
    """Some of the tables with rows that the filter left out, as the tasks name them."""
    texts = items.filter(pc.equal(items["kind"], FILTERED))["text"].to_pylist()
    return frozenset((schema, table) for text in texts for schema, table in json.loads(text or "[]"))


def _rows_of(items: pa.Table, kind: str) -> int:
    return pc.sum(items.filter(pc.equal(items["kind"], kind))["rows"]).as_py() or 0
