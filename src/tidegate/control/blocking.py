"""The dispatchers' side of a DDL: drain markers, freezing, the table trigger, and the order among DDLs.

A DDL of commit-ts T puts a drain marker, by commit-ts, into the queue of every dispatcher it touches. What stands
before the marker lands at once, nothing behind it is planned. The dispatcher has *drained* when nothing of it below T
waits or is under way and the resolved mark has reached T - 1, so that rows still on their way count. A DDL of one
dispatcher is then written; others meet in the maintainer's barrier (`barrier.py`). Invariants:
1. A dispatcher deals with one DDL at a time, in commit-ts order; DDLs that share none do not wait for each other.
2. A marker over a database or over all is compared with the dispatchers that hold something, never stored for each.
3. Nothing of a DDL is written before all dispatchers it touches have drained, and nothing passes its marker before it
   is over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tidegate.control.barrier import Finished, Key, Maintainer, Pass, Schedule, Write
from tidegate.control.checkpoint import NOTHING_PENDING
from tidegate.control.columns import Ints, Numbers
from tidegate.control.dispatcher import END, Queues
from tidegate.errors import BrokenInvariant
from tidegate.format.ddl import ALL, NORMAL, TRIGGER, DdlEvent, Scope, has_schedule_changes, is_replicated, should_block

_NO_PARTITIONS: Mapping[int, int] = {}

HELD, DRAINING, DRAINED, WRITING = "held", "draining", "drained", "writing"


@dataclass
class Block:
    """One DDL on its way through the dispatchers."""

    key: Key
    event: DdlEvent
    batch: int
    receiver: int  # the dispatcher that it came to
    members: Numbers  # dispatchers with a marker of their own
    wide: Scope | None  # a marker compared with all others
    blocking: bool
    arrived: float
    waits_for: set[Key] = field(default_factory=set)
    stage: str = DRAINING
    left: Numbers | None = None  # those that have not drained; None while rows below T may still come
    encoded: float = 0.0  # when all rows below T were in the spool
    drained: float = 0.0
    affected: int = 0

    @property
    def ts(self) -> int:
        return self.key.ts


@dataclass
class Trigger:
    """The table trigger: a DB or All event waits here while dispatchers are still to begin or end."""

    pending_acks: int = 0
    held: Key | None = None

    def submit(self) -> None:
        self.pending_acks += 1

    def acknowledge(self) -> None:
        if self.pending_acks == 0:
            raise BrokenInvariant("the table trigger was acknowledged more often than it asked")
        self.pending_acks -= 1

    def hold(self, key: Key) -> None:
        if self.held not in (None, key):
            raise BrokenInvariant(f"the table trigger holds the event of {self.held} already, so not that of {key}")
        self.held = key


@dataclass
class Blocking:
    """All DDLs that are not over."""

    queues: Queues
    spans: int = 1
    check_splittable: bool = False
    blocks: dict[Key, Block] = field(default_factory=dict)
    trigger: Trigger = field(default_factory=Trigger)
    skipped: int = 0
    ended: list[Block] = field(default_factory=list)  # over since they were last taken

    @cached_property
    def trigger_number(self) -> int:
        return int(self._number((TRIGGER,))[0])

    @cached_property
    def maintainer(self) -> Maintainer:
        return Maintainer(self.trigger_number)

    # -- markers ---------------------------------------------------------------------------------------------------

    def arrive(self, key: Key, receiver: int, event: DdlEvent, batch: int, now: float) -> Block | None:
        """A DDL has come to the dispatcher of table `receiver`; None if it is not for the sink."""
        if not is_replicated(event.type):
            self.skipped += 1
            return None
        wide = event.blocked if event.blocked is not None and event.blocked.kind != NORMAL else None
        members = self._members(event, receiver)
        block = Block(key, event, batch, int(self._number((receiver,))[0]), members, wide, self._blocks(event), now)
        block.waits_for = {other.key for other in self.blocks.values() if other.key < key and self._meet(other, block)}
        for other in self.blocks.values():
            if key < other.key and self._meet(other, block):
                other.waits_for.add(key)
        self.blocks[key] = block
        self._freeze(members, block.ts)
        if self.trigger_number in members and not block.blocking and has_schedule_changes(event):
            self.trigger.submit()
        return block

    def _members(self, event: DdlEvent, receiver: int) -> Numbers:
        """Dispatchers with a marker: those blocked, begun or ended by name; the receiver alone if none is."""
        scopes = [scope for scope in (event.blocked, event.dropped) if scope is not None and scope.kind == NORMAL]
        ids = dict.fromkeys(i for scope in scopes for i in scope.table_ids)
        ids |= dict.fromkeys(table.table_id for table in event.added)
        if event.blocked is None and not ids:
            ids = {receiver: None} if event.tables and not event.not_sync else {}
        if event.blocked is not None and event.blocked.kind != NORMAL:
            ids[TRIGGER] = None
        numbers = self._number(ids, {part: table.table_id for table in event.tables for part in table.partitions})
        for table in event.added:
            self.queues.dispatchers.schema_id[self._number((table.table_id,))] = table.schema_id
        return numbers

    def _number(self, table_ids: Iterable[int], logical: Mapping[int, int] = _NO_PARTITIONS) -> Numbers:
        """All dispatchers of these tables; `logical` are the tables that partitions belong to."""
        ids = [(i, span) for i in table_ids for span in range(self.spans if i != TRIGGER else 1)]
        columns = zip(*((i, span, logical.get(i, i)) for i, span in ids), strict=True) if ids else ((), (), ())
        table_id, span, owner = (np.array(column, np.int64) for column in columns)
        return self.queues.number(table_id, span, owner)

    def _blocks(self, event: DdlEvent) -> bool:
        complete = self.spans == 1 or event.blocked == Scope(NORMAL, (TRIGGER,))
        return should_block(event, complete)

    def _meet(self, one: Block, other: Block) -> bool:
        """Whether some dispatcher takes part in both."""
        if len(np.intersect1d(one.members, other.members, assume_unique=True)):
            return True
        return any(a.wide is not None and self._covers(a.wide, b) for a, b in ((one, other), (other, one)))

    def _covers(self, scope: Scope, block: Block) -> bool:
        if scope.kind == ALL or (block.wide is not None and block.wide.kind == ALL):
            return True
        if block.wide is not None and block.wide.schema_id == scope.schema_id:
            return True
        return bool((self.queues.dispatchers.schema_id[block.members] == scope.schema_id).any())

    def _freeze(self, members: Numbers, ts: int) -> None:
        frozen = self.queues.dispatchers.frozen_ts
        frozen[members] = np.minimum(frozen[members], ts)

    def frozen_from(self, dispatcher: Numbers) -> Ints:
        """The commit-ts from which on these dispatchers may not land now."""
        ds = self.queues.dispatchers
        frozen: Ints = ds.frozen_ts[dispatcher]
        for block in self.blocks.values():
            if block.wide is not None:
                covered = block.wide.kind == ALL or ds.schema_id[dispatcher] == block.wide.schema_id
                frozen = np.where(covered, np.minimum(frozen, block.ts), frozen)
        return frozen

    def _takes_part(self, block: Block, dispatcher: Numbers) -> NDArray[np.bool_]:
        named: NDArray[np.bool_] = np.isin(dispatcher, block.members)
        if block.wide is None:
            return named
        covered = block.wide.kind == ALL or self.queues.dispatchers.schema_id[dispatcher] == block.wide.schema_id
        return np.asarray(named | covered)

    def touched(self, block: Block) -> Numbers:
        """The dispatchers that hold something and must drain for this DDL."""
        if block.wide is None:
            return block.members
        ds = self.queues.dispatchers
        active = np.flatnonzero((ds.head[: ds.size] != END) | (ds.flying[: ds.size] > 0))
        covered = active if block.wide.kind == ALL else active[ds.schema_id[active] == block.wide.schema_id]
        return np.union1d(covered, block.members)

    def cut_chunk(self, dispatcher: Numbers, first_ts: Ints, last_ts: Ints) -> tuple[int, int] | None:
        """The position of a chunk that stands on both sides of a marker, which is an error, and the marker's T."""
        for block in self.blocks.values():
            cut = (first_ts < block.ts) & (last_ts >= block.ts)
            if cut.any() and (cut := cut & self._takes_part(block, dispatcher)).any():
                return int(np.flatnonzero(cut)[0]), block.ts
        return None

    @property
    def writing(self) -> bool:
        """Whether schema files are being written."""
        return any(block.stage == WRITING for block in self.blocks.values())

    @property
    def unfinished_ts(self) -> int:
        """The commit-ts of the first DDL that is not over."""
        return min((key.ts for key in self.blocks), default=NOTHING_PENDING)

    # -- draining ----------------------------------------------------------------------------------------------------

    def advance(self, resolved_ts: int, now: float) -> list[Write]:
        """What must be written now that more has landed, arrived or finished."""
        writes: list[Write] = []
        for key in sorted(self.blocks):
            block = self.blocks[key]
            if block.stage in (DRAINING, HELD) and not block.waits_for and resolved_ts >= block.ts - 1:
                writes += self._drain(block, now)
        return writes

    def _drain(self, block: Block, now: float) -> list[Write]:
        if block.left is None:
            block.left, block.encoded = self.touched(block), now
            block.affected = len(block.left)
        block.left = block.left[self._undrained(block.left, block.ts)]
        if len(block.left):
            return []
        if block.wide is not None and self.trigger.pending_acks:
            self.trigger.hold(block.key)
            block.stage = HELD
            return []
        if self.trigger.held == block.key:
            self.trigger.held = None
        block.stage, block.drained = DRAINED, now
        return self._meet_in_barrier(block) if block.blocking else self._alone(block)

    def _undrained(self, dispatcher: Numbers, ts: int) -> NDArray[np.bool_]:
        ds, items = self.queues.dispatchers, self.queues.items
        head = ds.head[dispatcher]
        before = np.zeros(len(dispatcher), np.bool_)
        waiting = head != END
        before[waiting] = items.first_ts[head[waiting]] < ts
        undrained: NDArray[np.bool_] = before | (ds.flying[dispatcher] > 0)
        return undrained

    def _alone(self, block: Block) -> list[Write]:
        """A DDL of one dispatcher, which writes it itself; the maintainer hears of it afterwards."""
        block.stage = WRITING
        return [Write(block.key, block.receiver)]

    def _meet_in_barrier(self, block: Block) -> list[Write]:
        """All have drained, so all report at once; the order is that of their numbers, the trigger first."""
        expected = frozenset(block.members.tolist())
        self.maintainer.announce(block.key, block.event, expected)
        if self.trigger_number in expected:
            self.trigger.submit()
        actions = [action for number in sorted(expected) for action in self.maintainer.report(block.key, number)]
        block.stage = WRITING
        return [action for action in actions if isinstance(action, Write)]

    # -- over --------------------------------------------------------------------------------------------------------

    def written(self, write: Write) -> list[Block]:
        """The schema files of this DDL stand; returns the DDLs that are over with it. A repeat changes nothing."""
        block = self.blocks.get(write.key)
        if block is None or block.stage != WRITING:
            return []
        if not block.blocking:
            return [self._over(block)]
        over = []
        actions = self.maintainer.written(write.key, write.dispatcher)
        while actions:
            action = actions.pop(0)
            if isinstance(action, Pass):
                actions += self.maintainer.passed(action.key, action.dispatchers)
            elif isinstance(action, Schedule):
                self._schedule(action.event)
            elif isinstance(action, Finished):
                over.append(self._over(self.blocks[action.key]))
        return over

    def _over(self, block: Block) -> Block:
        if not block.blocking:
            self._schedule(block.event)
        del self.blocks[block.key]
        if self._acknowledges(block):
            self.trigger.acknowledge()
        for other in self.blocks.values():
            other.waits_for.discard(block.key)
        self.queues.dispatchers.frozen_ts[block.members] = NOTHING_PENDING
        for other in self.blocks.values():
            self._freeze(other.members, other.ts)
        self.ended.append(block)
        return block

    def _acknowledges(self, block: Block) -> bool:
        """Whether the trigger asked the maintainer about this DDL."""
        if self.trigger_number not in block.members:
            return False
        return block.blocking or has_schedule_changes(block.event)

    def _schedule(self, event: DdlEvent) -> None:
        """Tables move to their databases; what begins has its dispatchers already, what ends simply gets no more."""
        for table in event.updated_schemas:
            self.queues.dispatchers.schema_id[self._number((table.table_id,))] = table.new_schema_id
