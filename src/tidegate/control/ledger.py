"""The ledger: what was accepted, what is planned, what is durable, and what follows from it.

The driver reports facts (a batch is in the spool, a round has answered) and gets decisions (land this round, delete
these segments, write these schema files). The ledger never acts itself: it knows no clock, no thread and no store, so a
test can drive it through any order of events. A change walks through it in three calls: `accept` queues its item,
`plan` puts the item into a file, `receive` makes it durable. Invariants:
1. Every accepted item becomes durable exactly once. A duplicate, or an item without bytes, counts at once.
2. Items of one dispatcher never overlap and never go back in (commit_ts, seq).
3. Neither the checkpoint nor the position passes anything that is not durable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidegate.control.accounts import Accounts
from tidegate.control.admission import Batch, admit, admit_ddls, read_batch, refuse_divided
from tidegate.control.barrier import Write
from tidegate.control.blocking import Blocking, Ddl
from tidegate.control.columns import Ints
from tidegate.control.compaction import Compaction, Copy, Move
from tidegate.control.idle import IdleTables
from tidegate.control.limits import Limits
from tidegate.control.markers import Block
from tidegate.control.names import Target
from tidegate.control.planner import Planner
from tidegate.control.queues import Queues
from tidegate.control.reading import Reading
from tidegate.control.records import Exported, FloorColumns, Saved, export, floor, restore
from tidegate.control.rounds import Round
from tidegate.control.versions import NOWHERE, Found, redirect, rename
from tidegate.control.whole_transactions import note_last, refuse_cut


@dataclass(frozen=True)
class Accepted:
    """What a batch brought."""

    rows: int
    bytes: int
    items: int
    duplicates: int  # rows that were accepted before
    dropped_segments: list[str]  # no item refers to these: they can be deleted


@dataclass(frozen=True)
class Durable:
    """What a round's answer changed."""

    segments: list[str]  # no item refers to these any more: they can be deleted
    ages_s: NDArray[np.float64]  # of every item that landed, from accepted to durable
    rows: int
    bytes: int
    withdrawn: list[int]  # plan numbers that will never land
    dropped: list[str]  # tables whose files were dropped, because their changes were delivered before


@dataclass
class Ledger:
    """Asks its parts in order; what each decides, and why, is in their modules."""

    limits: Limits
    shared_lanes: bool = False
    spans: int = 1  # dispatchers per table
    by_name: bool = True  # paths have names and no ids
    target: Target | None = None  # None if tables land under their own names

    def __post_init__(self) -> None:
        by_name = self.by_name and self.spans == 1  # files of spans have their dispatchers in their names
        self.accounts = Accounts(self.limits, Queues(self.shared_lanes, by_name, self.target))
        self.queues, self.spool, self.progress = self.accounts.queues, self.accounts.spool, self.accounts.progress
        self.blocking = Blocking(self.queues, self.spans)
        self.planner = Planner(self.limits, self.queues, self.blocking.markers)
        self._idle_tables = IdleTables(self.queues, self.blocking.markers, self.limits.state_ttl_s)
        self._compaction = Compaction(self.queues, self.spool, self.planner.ready)
        self.reading = Reading(self.accounts, self.blocking.markers, self.planner, self._compaction)

    @property
    def idle(self) -> bool:
        """Whether all that was accepted is durable."""
        return self.queues.queued == 0 and self.accounts.in_flight == 0 and not self.blocking.blocks

    @property
    def only_frozen(self) -> bool:
        """Whether all that is left waits for DDLs, and these for changes that have not come.

        A changefeed that closes is at rest then: more would only come if it went on reading.
        """
        waiting = bool(self.blocking.blocks) and not self.blocking.writing
        return waiting and self.accounts.in_flight == 0 and self.planner.ready.nothing_can_land()

    # -- accepted ------------------------------------------------------------------------------------------------

    def accept(
        self,
        batch: int,
        items: pa.Table,
        now: float,
        end: str | None,
        resolved_ts: int = 0,
        ddls: Sequence[Ddl] = (),
    ) -> Accepted:
        """Take in the row items and DDLs of one batch. `end` is where the source goes on after it.

        Its resolved mark counts only when all of it is here. Raises BadEvents, and takes in no row, when the source
        breaks a rule. DDLs get their markers before the items are queued, so that no item passes a marker unseen.
        """
        sent = read_batch(items, self.queues)
        fresh = admit(sent, self.queues.dispatchers, self.progress.resolved_ts)
        refuse_cut(fresh, self.queues, self.spans)
        kept = fresh.keep(fresh.length > 0)
        self.queues.note_databases(kept.dispatcher[kept.starts], kept.databases())
        new = admit_ddls(ddls, self.blocking, self.queues, self.progress)
        self.queues.unseen.note((table.schema, table.table) for ddl in new for table in ddl.event.tables)
        blocks = self.blocking.arrive(new, batch, now)
        refuse_divided(kept, self.blocking.markers)
        rename(kept, self.queues)
        stored = self.accounts.store(batch, kept, now)
        note_last(kept, self.queues.dispatchers)
        self.planner.due.activated(stored.filled, now)
        self._touch(kept, blocks, now)
        self.progress.accepted(batch, len(kept) + len(blocks), end, resolved_ts)
        self.accounts.count_empty(len(fresh) - len(kept))
        repeated = sent.total_rows - fresh.total_rows
        return Accepted(kept.total_rows, int(kept.length.sum()), len(kept), repeated, stored.unused)

    def _touch(self, batch: Batch, blocks: Sequence[Block], now: float) -> None:
        """These dispatchers got items or a DDL's marker: they are in use, and may be due."""
        owners, due = batch.dispatcher[batch.starts], self.planner.due
        due.grown(owners)
        for numbers in (owners, *(block.members for block in blocks)):
            self._idle_tables.use(numbers, now)
        if self.blocking.blocks:
            touched = [self.blocking.markers.notice(block) for block in blocks]
            due.drain(np.unique(np.concatenate([owners, *touched])))

    # -- durable -------------------------------------------------------------------------------------------------

    def plan(self, now: float, date: int, free_tasks: int = 1) -> Round | None:
        """The next round to land, or None when nothing is due. So many land tasks are free to take one."""
        round_ = self.planner.plan(now, date, self.spool, free_tasks)
        if round_ is not None:
            self.accounts.planned(round_)
        return round_

    def receive(
        self,
        round_: Round,
        landed: NDArray[np.bool_],
        now: float,
        seconds: float,
        elsewhere: Mapping[int, Found] = NOWHERE,
        hung: NDArray[np.bool_] | None = None,
        tags: pa.Array | None = None,
        requests: int = 0,
    ) -> Durable:
        """A round has answered. Files that landed are durable; a file that failed is retried under the same number.

        Lanes that hung are retried apart from the others. `elsewhere` has the lanes whose schema file exists under
        another version: their files are planned again there, or dropped. `seconds` is how long the round took, and
        `requests` how many it asked; `tags` has the tags of the index files that it put.
        """
        self.accounts.answered(round_, landed)
        self.planner.answered(round_, landed)
        self.planner.budget.settle(round_, requests)
        self.queues.lanes.tags.renew(round_.lane, tags)
        moved, dropped = redirect(self.planner, round_, elsewhere, now)
        failed = ~landed & ~dropped & ~moved
        self.blocking.landed(round_.dispatcher)
        self.planner.landed(round_, landed, over=~np.isin(round_.lane, np.unique(round_.lane[failed | moved])))
        done, given_up = (self.accounts.release(round_.items_of(files), now) for files in (landed, dropped))
        if failed.any():
            self.planner.retries.failed(round_, failed, np.zeros_like(failed) if hung is None else hung, now)
        self.planner.pace.measure(int(round_.bytes[landed].sum()), int(landed.sum()), seconds)
        hung_lanes = 0 if hung is None else len(np.unique(round_.lane[hung]))
        self.planner.pace.adapt(len(np.unique(round_.lane[landed])), hung_lanes)
        return Durable(
            done.segments + given_up.segments,
            done.ages_s,
            done.rows,
            done.bytes,
            withdrawn=round_.plan[moved | dropped].tolist(),
            dropped=[self.queues.name(owner) for owner in np.unique(round_.dispatcher[dropped]).tolist()],
        )

    def remains(self) -> Move | None:
        """What to copy together now, so that segments of the spool can be deleted; None if that is not needed."""
        return self._compaction.remains()

    def moved(self, move: Move, copies: Sequence[Copy]) -> list[str]:
        """The items of a move were copied; returns the segments that can be deleted now."""
        return self._compaction.moved(move, copies)

    def expire(self, now: float) -> int:
        """Give up the state of tables that are idle; returns how many."""
        return self._idle_tables.expire(now, self.progress.checkpoint_ts)

    def layouts_in_use(self) -> Ints:
        """Fingerprints of the layouts that items and DDLs need which are not durable or over yet."""
        items = self.queues.items
        tables = (table for block in self.blocking.blocks.values() for table in block.event.tables)
        of_ddls = [table.layout for table in tables if table.layout is not None]
        return np.union1d(items.layout[items.live()], np.array(of_ddls, np.int64))

    # -- DDL -------------------------------------------------------------------------------------------------------

    def schema_writes(self, now: float) -> list[Write]:
        """The DDLs whose schema files can be written now; each is named once."""
        return self.blocking.advance(self.progress.resolved_ts, now) if self.blocking.blocks else []

    def schema_written(self, write: Write) -> list[Block]:
        """The schema files of this DDL are written. Returns the DDLs that are over; what was behind them goes on."""
        over = self.blocking.written(write)
        for block in over:
            self.planner.due.released(self.blocking.markers.touched(block))
            self.progress.durable(np.array([block.batch]))
        return over

    def source_ended(self) -> None:
        """The source has no more, so all that was accepted is resolved, without a mark that says so."""
        ds = self.queues.dispatchers
        accepted_ts = int(ds.accepted_ts[: ds.size].max(initial=0))
        last_ddl_ts = max((key.ts for key in self.blocking.blocks), default=0)
        self.progress.resolved_ts = max(self.progress.resolved_ts, accepted_ts, last_ddl_ts)

    def checkpoint(self) -> int:
        """Move the checkpoint as far as items and DDLs that are not over allow; returns it."""
        return self.progress.advance(min(self.queues.items.first_pending_ts(), self.blocking.markers.unfinished_ts))

    # -- record ----------------------------------------------------------------------------------------------------

    def export(self) -> Exported:
        """The state of all dispatchers, for a snapshot of the journal."""
        return export(self.queues)

    def restore(self, saved: Saved, now: float) -> None:
        """Go on where the journal of an earlier run ended. All its tables count as used now.

        DDLs at or below its checkpoint were over before, so one that comes again is a repeat.
        """
        restore(self.queues, saved)
        self.progress.checkpoint_ts = self.progress.resolved_ts = saved.checkpoint_ts
        self.progress.position = saved.position
        self.blocking.forgotten_ts = saved.checkpoint_ts
        self.planner.numbering.continue_plans(saved.next_plan)
        self._idle_tables.use(self.queues.known(), now)

    def number_files_anew(self) -> None:
        """File names are made in another way from now on, so every lane counts from 1 again."""
        self.queues.lanes.number[:] = 0

    def floor(self) -> FloorColumns | None:
        """What must be dropped when the source sends it again after a restart."""
        return floor(self.queues, self.spans, self.progress.checkpoint_ts)
