"""Stage one of the ack: a micro-batch is encoded into the spool, taken into the ledger, and its upstream is woken.

The query's callback calls `ingest_job`, `learn`, `accept` and `await_wake`, in this order. The batch counts as
*accepted* from `accept` on. `await_wake` is the only place where the upstream waits.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.clock import Clock
from tidegate.config.settings import Settings
from tidegate.control.ledger import Ledger
from tidegate.driver.ddl import read_ddls, refuse_unknown_layouts
from tidegate.driver.held import HeldTables
from tidegate.driver.life import Life
from tidegate.driver.observer import LeftOut, Observer
from tidegate.driver.plans import PlanBook
from tidegate.driver.spool import delete_segments, places
from tidegate.errors import BadEvents, SpoolError, SpoolLost
from tidegate.events import LAYOUT, RESOLVED
from tidegate.executor.ingest import Floor, IngestJob
from tidegate.executor.rows import ERROR, FILTERED, ROWS, STALE, UNKNOWN_LAYOUT
from tidegate.executor.segments import SpoolDirectory

_RAISED = {"SpoolError": SpoolError, "SpoolLost": SpoolLost}


@dataclass
class Intake:
    settings: Settings
    life: Life
    clock: Clock
    ledger: Ledger
    book: PlanBook
    spool: SpoolDirectory
    held: HeldTables
    observer: Observer
    disk_reserve_bytes: int
    floor: Floor | None  # what is durable already and may come again after a restart
    ingesting: bool = False

    # -- encode --------------------------------------------------------------------------------------------------

    def ingest_job(self, tasks: int, allowance_bytes: int) -> IngestJob:
        s = self.settings
        with self.life.lock:
            self.ingesting = True
            where = places(self.spool, self.ledger, s.spool_type, tasks)
            layouts = dict(self.book.layouts)
            cuts = tuple(sorted(key.ts for key in self.ledger.blocking.blocks))
        return IngestJob(
            layouts=layouts,
            encoding=s.encoding,
            chunk_bytes=chunk_bytes(s.file_size_bytes),
            file_size_bytes=s.file_size_bytes,
            allowance_bytes=allowance_bytes,
            places=where,
            floor=self.floor,
            ordering=s.ordering,
            rules=s.rules,
            split_updates=not s.output_raw_change_event or s.across_nodes,
            spans=self.ledger.spans,
            cuts=cuts,
        )

    def ingest_ended(self) -> None:
        with self.life.lock:
            self.ingesting = False

    def learn(self, items: pa.Table) -> bool:
        """Take in the layouts of a batch; True if rows met a layout that was unknown, so the batch must run again."""
        kinds = items["kind"]
        errors = items.filter(pc.equal(kinds, ERROR))
        if errors.num_rows:
            name, _, sentence = errors["text"][0].as_py().partition(": ")
            raise _RAISED.get(name, BadEvents)(sentence)
        layouts = items.filter(pc.equal(kinds, LAYOUT))
        with self.life.lock:
            self.book.layouts.update(zip(layouts["layout"].to_pylist(), layouts["text"].to_pylist(), strict=True))
            unknown = items.filter(pc.equal(kinds, UNKNOWN_LAYOUT))["layout"].to_pylist()
            never = [key for key in unknown if key not in self.book.layouts]
        if never:
            raise BadEvents(
                f"rows use layout {never[0]} but no layout row defines it; "
                "a source sends a layout row in the same or an earlier micro-batch than its first use"
            )
        return bool(unknown)

    def discard(self, batch: int) -> None:
        """Delete all segments of a batch that is not accepted."""
        delete_segments([str(path) for path in self.spool.of_batch(str(batch))])

    # -- accept --------------------------------------------------------------------------------------------------

    def accept(self, batch: int, items: pa.Table, end: str | None) -> None:
        """The batch's bytes are in the spool: take its items into the ledger."""
        rows = items.filter(pc.equal(items["kind"], ROWS))
        resolved_ts = pc.max(items.filter(pc.equal(items["kind"], RESOLVED))["first_ts"]).as_py() or 0
        self.book.refuse_shared_targets(rows)
        ddls, filtered_ddls = read_ddls(items, self.settings.rules)
        now = self.clock.steady()
        with self.life.lock:
            self.life.raise_error()
            refuse_unknown_layouts(ddls, self.book.layouts)
            self.book.refuse_unsplittable(ddls)
            skipped = self.ledger.blocking.skipped
            accepted = self.ledger.accept(batch, rows, now, end, resolved_ts, ddls)
            skipped = self.ledger.blocking.skipped - skipped
            left_out = LeftOut(_rows_of(items, STALE), _rows_of(items, FILTERED), filtered_ddls, skipped)
            self.observer.accepted(accepted, left_out, resolved_ts, now)
            if self.floor is not None and resolved_ts >= self.floor.last_ts:
                self.floor = None  # the replay has passed everything that was durable before
            self.life.notify()
        named = set(pc.unique(rows["segment"]).to_pylist())
        delete_segments([*accepted.dropped_segments, *self._unnamed(batch, named)])
        self.held.write()
        self.observer.count_batch(accepted, left_out, sum(not path.endswith("-0.seg") for path in named))

    def _unnamed(self, batch: int, named: set[str]) -> list[str]:
        """Segments that a lost task attempt left behind: no item names them."""
        return [str(path) for path in self.spool.of_batch(str(batch)) if str(path) not in named]

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
        self._notice_disk()
        if self.life.stopping or self.ledger.misses_changes:
            # What a DDL still misses must be able to arrive, whatever waits behind it.
            return True
        if self.settings.wake_mode == "flush":
            return self.ledger.progress.is_durable(batch)
        return self.ledger.spool.may_wake()

    def _notice_disk(self) -> None:
        """Free space counts only while the spool holds something: landing an empty one would free nothing."""
        if self.settings.spool_type == "disk":
            spool = self.ledger.spool
            spool.starved = spool.items > 0 and self.spool.free_bytes() < self.disk_reserve_bytes


def _rows_of(items: pa.Table, kind: str) -> int:
    return pc.sum(items.filter(pc.equal(items["kind"], kind))["rows"]).as_py() or 0


def chunk_bytes(file_size_bytes: int) -> int:
    """A 64th of a file, so that whole chunks come within 1 % of `file-size`; not so small that items outweigh rows."""
    return max(file_size_bytes // 64, min(file_size_bytes // 2, 16 << 10))
