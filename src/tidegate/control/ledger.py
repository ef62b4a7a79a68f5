"""The ledger: the driver's one account of accepted items, planned files and durable changes.

Facts go in (a batch was accepted, a round answered), actions come out (plan a round, delete segments, hold a table).
Invariants:
1. Every accepted item becomes durable exactly once; what encodes to nothing or is a duplicate counts at once.
2. Items of one dispatcher never overlap and never decrease in (commit_ts, seq).
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
from tidegate.control.barrier import Key, Write
from tidegate.control.blocking import Blocking, Ddl
from tidegate.control.columns import Numbers
from tidegate.control.compaction import Compaction, Copy, Move
from tidegate.control.idle import IdleTables
from tidegate.control.limits import Limits
from tidegate.control.markers import Block
from tidegate.control.planner import Planner
from tidegate.control.records import Exported, FloorColumns, Saved, export, floor, restore
from tidegate.control.rounds import Round
from tidegate.control.versions import NOWHERE, Found, redirect, rename


@dataclass(frozen=True)
class Accepted:
    rows: int
    bytes: int
    items: int
    duplicates: int
    dropped_segments: list[str]


@dataclass(frozen=True)
class Durable:
    """What a round's answer changed."""

    segments: list[str]  # nothing refers to these any more
    ages_s: NDArray[np.float64]  # accepted-to-durable time of every item that landed
    rows: int
    bytes: int
    withdrawn: list[int]  # plan numbers that will never land
    dropped: list[str]  # tables whose files were left out: delivered before


@dataclass
class Ledger:
    limits: Limits
    shared_lanes: bool = False
    spans: int = 1  # dispatchers of a table

    def __post_init__(self) -> None:
        self.accounts = Accounts(self.limits, self.shared_lanes)
        self.queues, self.spool, self.progress = self.accounts.queues, self.accounts.spool, self.accounts.progress
        self.blocking = Blocking(self.queues, self.spans)
        self.planner = Planner(self.limits, self.queues, self.blocking.markers)
        self._idle_tables = IdleTables(self.queues, self.blocking, self.limits.state_ttl_s)
        self._compaction = Compaction(self.queues, self.spool, self.planner.ready)

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing is under way: all that was accepted is durable."""
        return self.queues.queued == 0 and self.accounts.in_flight == 0 and not self.blocking.blocks

    @property
    def only_frozen(self) -> bool:
        """All that is left waits for DDLs, and these for changes that have not come yet."""
        waiting = bool(self.blocking.blocks) and not self.blocking.writing
        return waiting and self.accounts.in_flight == 0 and self.planner.ready.nothing_can_land()

    @property
    def misses_changes(self) -> bool:
        """The first DDL lacks changes that have not come, and nothing but what is failing could free the spool."""
        if self.progress.resolved_ts >= self.blocking.markers.unfinished_ts - 1 or not self.blocking.blocks:
            return False
        return self.accounts.in_flight == self.planner.retries.waiting_items and self.planner.ready.nothing_can_land()

    @property
    def held_tables(self) -> set[int]:
        """Ids of the tables that a source should not hand out now: one of their spans is over its share."""
        return self.accounts.held_tables

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
        """Take the row items and DDLs of one batch into the queues; its resolved mark counts from here on.

        Raises BadEvents, and takes in no row, when a source breaks the order of a table.
        """
        fresh = admit(read_batch(items, self.queues), self.queues.dispatchers, self.progress.resolved_ts)
        kept = fresh.keep(fresh.length > 0)
        self.queues.note_databases(kept.dispatcher[kept.starts], kept.databases())
        new = admit_ddls(ddls, self.blocking, self.progress)
        blocks = [block for ddl in new if (block := self.blocking.arrive(ddl, batch, now)) is not None]
        refuse_divided(kept, self.blocking.markers)
        rename(kept, self.queues)
        filled, unused = self.accounts.store(batch, kept, now)
        self._activate(filled, kept, blocks, now)
        self.progress.accepted(batch, len(kept) + len(blocks), end, resolved_ts)
        self.accounts.count_empty(len(fresh) - len(kept))
        return Accepted(int(kept.rows.sum()), int(kept.length.sum()), len(kept), items.num_rows - len(fresh), unused)

    def _activate(self, filled: Numbers, batch: Batch, blocks: Sequence[Block], now: float) -> None:
        """The planner looks at the dispatchers that got items, or a DDL's marker."""
        owners, due = batch.dispatcher[batch.starts], self.planner.due
        due.activated(filled, now)
        due.grown(owners)
        for numbers in (owners, *(block.members for block in blocks)):
            self._idle_tables.use(numbers, now)
        if self.blocking.blocks:
            touched = [self.blocking.markers.notice(block) for block in blocks]
            due.drain(np.unique(np.concatenate([owners, *touched])))

    # -- durable -------------------------------------------------------------------------------------------------

    def plan(self, now: float, date: int) -> Round | None:
        round_ = self.planner.plan(now, date, self.spool)
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
    ) -> Durable:
        """A round has answered: what landed is durable; what did not is planned again, what hung apart.

        `elsewhere` says by lane under which version a schema file with the same columns stands, and the number of the
        last data file there.
        """
        self.accounts.answered(round_, landed)
        self.planner.answered(round_)
        moved, dropped = redirect(self.planner, round_, elsewhere, now)
        failed = ~landed & ~dropped & ~moved
        self.planner.landed(round_, landed, over=~np.isin(round_.lane, np.unique(round_.lane[failed | moved])))
        done, given_up = (self.accounts.release(round_.items_of(files), now) for files in (landed, dropped))
        if failed.any():
            self.planner.retries.failed(round_, failed, np.zeros_like(failed) if hung is None else hung, now)
        self.planner.pace.measure(int(round_.bytes[landed].sum()), int(landed.sum()), seconds)
        return Durable(
            done.segments + given_up.segments,
            done.ages_s,
            done.rows,
            done.bytes,
            withdrawn=round_.plan[moved | dropped].tolist(),
            dropped=[self.queues.name(owner) for owner in np.unique(round_.dispatcher[dropped]).tolist()],
        )

    def remains(self) -> Move | None:
        """What to copy together under pressure: a little that cannot land and pins much of the spool."""
        return self._compaction.remains()

    def moved(self, move: Move, copies: Sequence[Copy]) -> list[str]:
        """The items of a move stand at these copies too; returns what can be deleted now."""
        return self._compaction.moved(move, copies)

    def expire(self, now: float) -> int:
        """Give up the state of tables that got no change for so long; returns how many."""
        return self._idle_tables.expire(now, self.progress.checkpoint_ts)

    # -- DDL -------------------------------------------------------------------------------------------------------

    def schema_writes(self, now: float) -> list[Write]:
        """The DDLs whose schema files are to be written now; each is told once."""
        return self.blocking.advance(self.progress.resolved_ts, now) if self.blocking.blocks else []

    def has_drained(self, key: Key) -> bool:
        """Whether all that this DDL touches have acknowledged its marker; a DDL that never came is an error."""
        return self.blocking.has_drained(key, self.progress.checkpoint_ts)

    def schema_written(self, write: Write) -> list[Block]:
        """A DDL's schema files stand: it is over, and what stood behind its markers goes on."""
        over = self.blocking.written(write)
        for block in over:
            self.planner.due.released(self.blocking.markers.touched(block))
            self.progress.durable(np.array([block.batch]))
        return over

    def source_ended(self) -> None:
        """Nothing follows what was accepted, so all of it is resolved."""
        ds = self.queues.dispatchers
        accepted_ts = int(ds.accepted_ts[: ds.size].max(initial=0))
        last_ddl_ts = max((key.ts for key in self.blocking.blocks), default=0)
        self.progress.resolved_ts = max(self.progress.resolved_ts, accepted_ts, last_ddl_ts)

    def checkpoint(self) -> int:
        return self.progress.advance(min(self.queues.items.first_pending_ts(), self.blocking.markers.unfinished_ts))

    # -- record ----------------------------------------------------------------------------------------------------

    def export(self) -> Exported:
        """The state of all dispatchers, for a snapshot of the journal."""
        return export(self.queues)

    def restore(self, saved: Saved, now: float) -> None:
        """Go on where the journal of an earlier run ended; all its tables count as used now."""
        restore(self.queues, saved)
        self.progress.checkpoint_ts = self.progress.resolved_ts = saved.checkpoint_ts
        self.progress.position = saved.position
        self.planner.numbering.continue_plans(saved.next_plan)
        self._idle_tables.use(self.queues.known(), now)

    def floor(self) -> FloorColumns | None:
        """What is durable already although the position may lie before it."""
        return floor(self.queues, self.spans, self.progress.checkpoint_ts)
