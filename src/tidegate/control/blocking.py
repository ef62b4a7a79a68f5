"""The dispatchers' side of a DDL: drain markers, freezing, the table trigger, and the order among DDLs.

A DDL of commit-ts T puts a drain marker, by commit-ts, into the queue of every dispatcher it touches. What stands
before the marker lands at once, nothing behind it is planned. The dispatcher has *drained* when nothing of it below T
waits or is under way and the resolved mark has reached T - 1, so that rows still on their way count. A DDL of one
dispatcher is then written; others meet in the maintainer's barrier (`barrier.py`). Invariants:
1. A dispatcher deals with one DDL at a time, in commit-ts order; DDLs that share none do not wait for each other.
2. A marker over a database or over all is compared with the dispatchers that hold something, never stored for each.
3. Nothing of a DDL is written before all dispatchers it touches have drained, and nothing passes its marker before it
   is over.
4. A table belongs to the database that its first change named, until a DDL moves it; what later changes say counts for
   nothing, for they may stand behind a DDL that is not over.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidegate.control.barrier import Action, Finished, Key, Maintainer, Pass, Schedule, Write
from tidegate.control.checkpoint import NOTHING_PENDING
from tidegate.control.columns import Ints, Numbers
from tidegate.control.items import END
from tidegate.control.queues import Queues
from tidegate.errors import BrokenInvariant
from tidegate.format.ddl.events import (
    ALL,
    NORMAL,
    TRIGGER,
    DdlEvent,
    Scope,
    has_schedule_changes,
    is_replicated,
    should_block,
)

_NO_PARTITIONS: Mapping[int, int] = {}

HELD, DRAINING, WRITING = "held", "draining", "writing"


class Ddl(NamedTuple):
    """A DDL as it came: the event, and the table whose dispatcher received it."""

    key: Key
    receiver: int
    event: DdlEvent


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
    waits_for: set[Key] = field(default_factory=set)  # what stood directly before it when it was last looked at
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
    """The table trigger: a DB or All event waits here while the maintainer still has to answer about an earlier one."""

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

    def release(self, key: Key) -> None:
        if self.held == key:
            self.held = None


@dataclass
class Blocking:
    """All DDLs that are not over."""

    queues: Queues
    spans: int = 1
    blocks: dict[Key, Block] = field(default_factory=dict)
    trigger: Trigger = field(default_factory=Trigger)
    skipped: int = 0
    _order: list[Key] = field(default_factory=list)  # of all blocks
    _markers: dict[int, list[Key]] = field(default_factory=dict)  # by dispatcher, in order
    _wide: list[Key] = field(default_factory=list)  # of the blocks over a database or over all, in order
    _done: set[Key] = field(default_factory=set)  # over, and maybe above the checkpoint

    @cached_property
    def trigger_number(self) -> int:
        return int(self._number((TRIGGER,))[0])

    @cached_property
    def maintainer(self) -> Maintainer:
        return Maintainer(self.trigger_number)

    # -- markers ---------------------------------------------------------------------------------------------------

    def knows(self, key: Key) -> bool:
        """Whether this DDL has come before."""
        return key in self.blocks or key in self._done

    def forget(self, checkpoint_ts: int) -> None:
        """DDLs at or below the checkpoint are over for good, so they need not be remembered."""
        self._done = {key for key in self._done if key.ts > checkpoint_ts}

    def arrive(self, ddl: Ddl, batch: int, now: float) -> Block | None:
        """A DDL has come; None if it is not for the sink or has come before."""
        key, receiver, event = ddl
        if self.knows(key):
            return None
        if not is_replicated(event.type):
            self.skipped += 1
            self._done.add(key)
            return None
        wide = event.blocked if event.blocked is not None and event.blocked.kind != NORMAL else None
        members = self._members(event, receiver)
        blocking = len(members) > 0 and self._blocks(event)
        block = Block(key, event, batch, int(self._number((receiver,))[0]), members, wide, blocking, now)
        self._mark(block)
        if block.blocking:
            self.maintainer.announce(key, event, frozenset(members.tolist()))
        return block

    def _mark(self, block: Block) -> None:
        """Put the block's markers where they belong by commit-ts."""
        self.blocks[block.key] = block
        insort(self._order, block.key)
        if block.wide is not None:
            insort(self._wide, block.key)
        for number in block.members.tolist():
            insort(self._markers.setdefault(number, []), block.key)
        frozen = self.queues.dispatchers.frozen_ts
        frozen[block.members] = np.minimum(frozen[block.members], block.ts)

    def _unmark(self, block: Block) -> None:
        del self.blocks[block.key]
        self._order.remove(block.key)
        if block.wide is not None:
            self._wide.remove(block.key)
        for number in block.members.tolist():
            markers = self._markers[number]
            markers.remove(block.key)
            self.queues.dispatchers.frozen_ts[number] = markers[0].ts if markers else NOTHING_PENDING
            if not markers:
                del self._markers[number]

    def _members(self, event: DdlEvent, receiver: int) -> Numbers:
        """Dispatchers with a marker: those blocked, begun or ended by name; without a scope the one that has to write.

        A database or all has the table trigger for its own; the rest of it is compared.
        """
        scopes = [scope for scope in (event.blocked, event.dropped) if scope is not None and scope.kind == NORMAL]
        ids = dict.fromkeys(i for scope in scopes for i in scope.table_ids)
        ids |= dict.fromkeys(table.table_id for table in event.added)
        if event.blocked is None and event.tables and not event.not_sync:
            ids[receiver] = None
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
        complete = self.spans == 1 or event.blocked == Scope(NORMAL, (TRIGGER,))  # the trigger is never split
        return should_block(event, complete)

    def _before(self, block: Block) -> set[Key]:
        """The DDLs that this one comes directly behind at one of its dispatchers."""
        found = set(self._covered(block)) if block.wide is not None else set()
        found.update(key for key in self._wide if key < block.key and self._covers(self.blocks[key], block))
        for number in block.members.tolist():
            markers = self._markers[number]
            if at := bisect_left(markers, block.key):
                found.add(markers[at - 1])
        return found

    def _covered(self, wide: Block) -> Iterator[Key]:
        earlier = self._order[: bisect_left(self._order, wide.key)]
        return (key for key in earlier if self._covers(wide, self.blocks[key]))

    def _covers(self, wide: Block, block: Block) -> bool:
        """Whether a dispatcher of `block` is among those that `wide` is compared with."""
        if self._is_over_all(wide) or self._is_over_all(block):
            return True
        schema_id = wide.wide.schema_id if wide.wide is not None else 0
        # Of a table that has sent nothing yet only the event itself knows the database.
        if block.event.schema_id == schema_id:
            return True
        return bool((self.queues.dispatchers.schema_id[block.members] == schema_id).any())

    @staticmethod
    def _is_over_all(block: Block) -> bool:
        return block.wide is not None and block.wide.kind == ALL

    def _compared(self, block: Block, dispatcher: Numbers) -> NDArray[np.bool_]:
        """Which of these dispatchers a marker over a database or over all concerns."""
        if self._is_over_all(block):
            return np.ones(len(dispatcher), np.bool_)
        schema_id = block.wide.schema_id if block.wide is not None else -1
        return np.asarray(self.queues.dispatchers.schema_id[dispatcher] == schema_id)

    def frozen_from(self, dispatcher: Numbers) -> Ints:
        """The commit-ts from which on these dispatchers may not land now."""
        frozen: Ints = self.queues.dispatchers.frozen_ts[dispatcher]
        for key in self._wide:
            compared = self._compared(self.blocks[key], dispatcher)
            frozen = np.where(compared, np.minimum(frozen, key.ts), frozen)
        return frozen

    def before_frozen(self, dispatcher: Numbers) -> NDArray[np.bool_]:
        """Which of these hold something that may land."""
        return self._holds_before(dispatcher, self.frozen_from(dispatcher))

    def before_marker(self, dispatcher: Numbers) -> NDArray[np.bool_]:
        """Which of these hold something that a marker stands behind."""
        frozen = self.frozen_from(dispatcher)
        return np.asarray((frozen != NOTHING_PENDING) & self._holds_before(dispatcher, frozen))

    def _holds_before(self, dispatcher: Numbers, ts: Ints | int) -> NDArray[np.bool_]:
        """Which of these have something in their queues below this commit-ts."""
        head = self.queues.dispatchers.head[dispatcher]
        found: NDArray[np.bool_] = head != END
        found[found] = self.queues.items.first_ts[head[found]] < np.broadcast_to(ts, len(head))[found]
        return found

    def touched(self, block: Block) -> Numbers:
        """The dispatchers that hold something and must drain for this DDL; looks at what is held, not at all known."""
        if block.wide is None:
            return block.members
        items = self.queues.items
        held = items.dispatcher[: items.size][items.first_ts[: items.size] != NOTHING_PENDING]
        active = np.unique(held).astype(np.int64)
        return np.union1d(active[self._compared(block, active)], block.members)

    def notice(self, block: Block) -> Numbers:
        """Those that are touched now; the most at once are the ones that the DDL has affected."""
        touched = self.touched(block)
        block.affected = max(block.affected, len(touched))
        return touched

    def divided(self, dispatcher: Numbers, first_ts: Ints, last_ts: Ints) -> tuple[int, int] | None:
        """The position of an item that stands on both sides of a marker, which is an error, and the marker's T."""
        all_ts = np.array([key.ts for key in self._order], np.int64)
        between = np.searchsorted(all_ts, last_ts, "right") > np.searchsorted(all_ts, first_ts, "right")
        for at in np.flatnonzero(between).tolist():
            for ts in self._marker_ts(dispatcher[at : at + 1]):
                if first_ts[at] < ts <= last_ts[at]:
                    return at, ts
        return None

    def _marker_ts(self, one: Numbers) -> Iterator[int]:
        """The commit-ts of all markers of one dispatcher."""
        yield from (key.ts for key in self._markers.get(int(one[0]), ()))
        yield from (key.ts for key in self._wide if self._compared(self.blocks[key], one)[0])

    def has_drained(self, key: Key, checkpoint_ts: int) -> bool:
        """Whether all that this DDL touches have acknowledged its marker; a DDL that never came is an error."""
        block = self.blocks.get(key)
        if block is not None:
            return block.stage == WRITING
        if not self.knows(key) and key.ts > checkpoint_ts:
            raise BrokenInvariant(f"no DDL of commit-ts {key.ts}, seq {key.seq} has come, so it cannot drain")
        return True

    @property
    def writing(self) -> bool:
        """Whether schema files are being written."""
        return any(block.stage == WRITING for block in self.blocks.values())

    @property
    def unfinished_ts(self) -> int:
        """The commit-ts of the first DDL that is not over."""
        return self._order[0].ts if self._order else NOTHING_PENDING

    # -- draining ----------------------------------------------------------------------------------------------------

    def advance(self, resolved_ts: int, now: float) -> list[Write]:
        """What must be written now that more has landed, arrived or finished."""
        writes: list[Write] = []
        for key in self._order:
            if resolved_ts < key.ts - 1:
                break
            block = self.blocks[key]
            if block.stage != WRITING and self._is_first(block):
                writes += self._drain(block, now)
        return writes

    def _is_first(self, block: Block) -> bool:
        """Whether no earlier DDL stands before this one at any of its dispatchers."""
        if block.left is None and not any(key in self.blocks for key in block.waits_for):
            block.waits_for = self._before(block)
        return not any(key in self.blocks for key in block.waits_for)

    def _drain(self, block: Block, now: float) -> list[Write]:
        if block.wide is not None and self._hold(block):
            return []
        if block.left is None:
            block.left, block.encoded = self.notice(block), now
        undrained = self._undrained(block.left, block.ts)
        drained, block.left = block.left[~undrained], block.left[undrained]
        writes = self._report(block, drained) if block.blocking else self._alone(block)
        if writes:
            block.stage, block.drained = WRITING, now
        return writes

    def _hold(self, block: Block) -> bool:
        """A DB or All event drains only when the maintainer owes the table trigger no answer."""
        if self.trigger.pending_acks:
            self.trigger.hold(block.key)
            block.stage = HELD
            return True
        self.trigger.release(block.key)
        block.stage = DRAINING
        return False

    def _undrained(self, dispatcher: Numbers, ts: int) -> NDArray[np.bool_]:
        undrained: NDArray[np.bool_] = self._holds_before(dispatcher, ts)
        undrained |= self.queues.dispatchers.flying[dispatcher] > 0
        return undrained

    def _alone(self, block: Block) -> list[Write]:
        """A DDL of one dispatcher, which writes it itself; the maintainer hears of it afterwards."""
        if block.left is not None and len(block.left):
            return []
        if self._asks(block):
            self.trigger.submit()
        return [Write(block.key, block.receiver)]

    def _report(self, block: Block, drained: Numbers) -> list[Write]:
        """Who has drained reports; over a database or over all the trigger speaks for all that were compared."""
        reporting = drained[np.isin(drained, block.members)]
        if block.wide is not None:
            reporting = block.members if block.left is not None and not len(block.left) else reporting[:0]
        actions = self.maintainer.report(block.key, reporting.tolist())
        writes = [action for action in actions if isinstance(action, Write)]
        if writes and self._asks(block):
            self.trigger.submit()
        return writes

    def _asks(self, block: Block) -> bool:
        """Whether the table trigger needs the maintainer's answer about this DDL before one over a database or all."""
        if self.trigger_number not in block.members:
            return False
        return block.blocking or has_schedule_changes(block.event)

    # -- over --------------------------------------------------------------------------------------------------------

    def written(self, write: Write) -> list[Block]:
        """The schema files of this DDL stand; returns the DDLs that are over with it. A repeat changes nothing."""
        block = self.blocks.get(write.key)
        if block is None or block.stage != WRITING:
            return []
        if not block.blocking:
            self._schedule(block.event)
            return [self._over(block)]
        return self._carry_out(self.maintainer.written(write.key, write.dispatcher))

    def _carry_out(self, actions: list[Action]) -> list[Block]:
        over = []
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
        self._unmark(block)
        self._done.add(block.key)
        if self._asks(block):
            self.trigger.acknowledge()
        return block

    def _schedule(self, event: DdlEvent) -> None:
        """Tables move to their databases; what begins has its dispatchers already, what ends simply gets no more."""
        for table in event.updated_schemas:
            self.queues.dispatchers.schema_id[self._number((table.table_id,))] = table.new_schema_id
