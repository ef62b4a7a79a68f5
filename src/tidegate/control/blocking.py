"""The walk of a DDL through the dispatchers: it arrives, drains, is written, and is over.

A reader applies a DDL of commit-ts T after all changes before T and before all after it. So its schema files are
written only when everything before T is durable, and nothing after T lands before they are. A dispatcher has *drained*
when nothing of it below T is queued or under way, and the resolved mark has reached T - 1: then no row below T can
still come. A DDL of one dispatcher is then written; dispatchers of a larger one meet in the maintainer's barrier first
(`barrier.py`). Invariants:
1. A dispatcher deals with one DDL at a time, in commit-ts order. DDLs that share no dispatcher do not wait for each
   other.
2. Nothing of a DDL is written before all dispatchers that it touches have drained.
3. Nothing passes the marker of a DDL before the DDL is over.
4. A table belongs to the database that its first change named, until a DDL moves it. Later changes say nothing about
   it: they may be behind a DDL that is not over.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tidegate.control.barrier import Action, Finished, Key, Maintainer, Pass, Schedule, Write
from tidegate.control.columns import Numbers
from tidegate.control.markers import DRAINING, WAITING, WRITING, Block, Markers
from tidegate.control.members import Members, wide_scope
from tidegate.control.queues import Queues
from tidegate.control.trigger import Trigger
from tidegate.format.ddl.events import TRIGGER, DdlEvent, has_schedule_changes, is_replicated

_REMEMBERED = 100_000  # DDLs that are over: some megabytes
_NOBODY: Numbers = np.zeros(0, np.int64)


class Ddl(NamedTuple):
    """A DDL as it came: which one, the table whose dispatcher received it, and the event."""

    key: Key
    receiver: int
    event: DdlEvent


@dataclass
class Blocking:
    """All DDLs that are not over."""

    queues: Queues
    spans: int = 1
    trigger: Trigger = field(default_factory=Trigger)
    skipped: int = 0  # DDLs that came and are not for the sink
    forgotten_ts: int = 0  # DDLs at or below it are not remembered: one that comes is taken for a repeat
    _done: set[Key] = field(default_factory=set)  # over; a source may send them again

    def __post_init__(self) -> None:
        self.markers = Markers(self.queues)
        self.blocks = self.markers.blocks
        self._members = Members(self.queues, self.spans)

    @cached_property
    def trigger_number(self) -> int:
        return int(self._members.numbers((TRIGGER,))[0])

    @cached_property
    def maintainer(self) -> Maintainer:
        return Maintainer(self.trigger_number)

    # -- arriving --------------------------------------------------------------------------------------------------

    def knows(self, key: Key) -> bool:
        """Whether this DDL has come before."""
        return key.ts <= self.forgotten_ts or key in self.blocks or key in self._done

    def forget(self, checkpoint_ts: int) -> None:
        """Forget DDLs at or below the checkpoint, once there are very many.

        They are remembered so long because one that comes late must not be taken for a repeat: it would be lost.
        """
        if len(self._done) > _REMEMBERED:
            self.forgotten_ts = max(self.forgotten_ts, checkpoint_ts)
            self._done = {key for key in self._done if key.ts > checkpoint_ts}

    def touched(self, ddl: Ddl) -> Numbers:
        """The dispatchers that a DDL will touch, as far as they are known now."""
        return self._members.known(ddl.event, ddl.receiver) if is_replicated(ddl.event.type) else _NOBODY

    def arrive(self, ddl: Ddl, batch: int, now: float) -> Block | None:
        """A DDL has come and freezes its dispatchers from now on; None if it is not for the sink or came before."""
        key, receiver, event = ddl
        if self.knows(key):
            return None
        if not is_replicated(event.type):
            self.skipped += 1
            self._done.add(key)
            return None
        wide = wide_scope(event)
        members = self._members.of(event, receiver)
        blocking = len(members) > 0 and self._members.must_meet(event)
        block = Block(key, event, batch, int(self._members.numbers((receiver,))[0]), members, wide, blocking, now)
        self.markers.add(block)
        if block.blocking:
            self.maintainer.announce(key, event, frozenset(members.tolist()))
        return block

    @property
    def writing(self) -> bool:
        """Whether schema files are being written."""
        return any(block.stage == WRITING for block in self.blocks.values())

    # -- draining ----------------------------------------------------------------------------------------------------

    def advance(self, resolved_ts: int, now: float) -> list[Write]:
        """The DDLs that can be written, now that more has landed, come or finished. In commit-ts order."""
        writes: list[Write] = []
        for block in self.markers.up_to(resolved_ts + 1):
            if block.stage != WRITING and self.markers.is_first(block):
                writes += self._drain(block, now)
        return writes

    def _drain(self, block: Block, now: float) -> list[Write]:
        """Look which dispatchers have drained since the last time; those that have are not looked at again."""
        if block.wide is not None and self._waits_for_trigger(block):
            return []
        if block.left is None:
            block.left, block.encoded = self.markers.notice(block), now
        undrained = self.markers.undrained(block.left, block.ts)
        drained, block.left = block.left[~undrained], block.left[undrained]
        writes = self._report(block, drained) if block.blocking else self._alone(block)
        if writes:
            block.stage, block.drained = WRITING, now
        return writes

    def _waits_for_trigger(self, block: Block) -> bool:
        """A wide DDL drains only when the maintainer owes the table trigger no answer (see `trigger.py`)."""
        if self.trigger.pending_acks:
            self.trigger.wait(block.key)
            block.stage = WAITING
            return True
        self.trigger.go_on(block.key)
        block.stage = DRAINING
        return False

    def _alone(self, block: Block) -> list[Write]:
        """A DDL of one dispatcher: nobody else is to be asked, so the receiver writes it as soon as it has drained."""
        if block.left is not None and len(block.left):
            return []
        if self._asks(block):
            self.trigger.submit()
        return [Write(block.key, block.receiver)]

    def _report(self, block: Block, drained: Numbers) -> list[Write]:
        """Dispatchers that have drained report to the maintainer; for a wide DDL the trigger does, when all have."""
        reporting = drained[np.isin(drained, block.members)]
        if block.wide is not None:
            reporting = block.members if block.left is not None and not len(block.left) else reporting[:0]
        actions = self.maintainer.report(block.key, reporting.tolist())
        writes = [action for action in actions if isinstance(action, Write)]
        if writes and self._asks(block):
            self.trigger.submit()
        return writes

    def _asks(self, block: Block) -> bool:
        """Whether the table trigger waits for the maintainer's answer about this DDL before the next wide one."""
        if self.trigger_number not in block.members:
            return False
        return block.blocking or has_schedule_changes(block.event)

    # -- over --------------------------------------------------------------------------------------------------------

    def written(self, write: Write) -> list[Block]:
        """The schema files of this DDL are written. Returns the DDLs that are over by it. A repeat changes nothing."""
        block = self.blocks.get(write.key)
        if block is None or block.stage != WRITING:
            return []
        if not block.blocking:
            self._schedule(block.event)
            return [self._over(block)]
        return self._carry_out(self.maintainer.written(write.key, write.dispatcher))

    def _carry_out(self, actions: list[Action]) -> list[Block]:
        """Do what the maintainer wants, at once: dispatchers and maintainer are on one driver."""
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
        """Take the markers away, and give the trigger its answer."""
        self.markers.remove(block)
        self._done.add(block.key)
        if self._asks(block):
            self.trigger.acknowledge()
        return block

    def _schedule(self, event: DdlEvent) -> None:
        """Tables move to their new databases. A new table has its dispatchers already, a dropped one gets no more."""
        for table in event.updated_schemas:
            self.queues.dispatchers.schema_id[self._members.numbers((table.table_id,))] = table.new_schema_id
