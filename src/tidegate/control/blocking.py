"""The walk of a DDL through the dispatchers: it arrives, drains, is written, and is over.

A reader applies a DDL of commit-ts T after all changes before T and before all after it. So its schema files are
written only when everything before T is durable, and nothing after T lands before they are. A dispatcher has *drained*
when nothing of it below T is queued or under way, and the resolved mark has reached T - 1: then no row below T can
still come. A DDL of one dispatcher is then written; dispatchers of a larger one meet in the maintainer's barrier first
(`barrier.py`). Nobody is asked again and again whether it has drained: thousands of DDLs may be here, and only those
are looked at of which something has landed, or whose turn has come. Invariants:
1. DDLs that touch each other go one at a time, in commit-ts order; others do not wait for each other (`order.py`).
2. Nothing of a DDL is written before all dispatchers that it touches have drained.
3. Nothing passes the marker of a DDL before the DDL is over.
4. A table belongs to the database that its first change named, until a DDL moves it. Later changes say nothing about
   it: they may be behind a DDL that is not over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tidegate.control.barrier import Action, Finished, Key, Maintainer, Pass, Schedule, Write
from tidegate.control.columns import Numbers
from tidegate.control.drains import Drains
from tidegate.control.markers import WRITING, Block, Markers
from tidegate.control.members import Members, wide_scope
from tidegate.control.order import Name, Order, claims_of
from tidegate.control.queues import Queues
from tidegate.format.ddl.events import TRIGGER, DdlEvent, is_replicated

_REMEMBERED = 100_000  # DDLs that are over: some megabytes
_NOBODY: Numbers = np.zeros(0, np.int64)


class Ddl(NamedTuple):
    """A DDL as it came: which one, the table whose dispatcher received it, and the event.

    `targets` are the names of its tables on the sink, where routes change them.
    """

    key: Key
    receiver: int
    event: DdlEvent
    targets: tuple[Name, ...] = ()


@dataclass
class Blocking:
    """All DDLs that are not over."""

    queues: Queues
    spans: int = 1
    skipped: int = 0  # DDLs that came and are not for the sink
    forgotten_ts: int = 0  # DDLs at or below it are not remembered: one that comes is taken for a repeat
    _done: set[Key] = field(default_factory=set)  # over; a source may send them again
    _order: Order = field(default_factory=Order)
    _turn: set[Key] = field(default_factory=set)  # those that wait for no other any more, since the last look
    _moving: dict[int, tuple[Key, int]] = field(default_factory=dict)  # by dispatcher, its last move that is not over
    _writing: int = 0

    def __post_init__(self) -> None:
        self.markers = Markers(self.queues)
        self.blocks = self.markers.blocks
        self._members = Members(self.queues, self.spans)
        self.drains = Drains(self.markers)

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

    def arrive(self, ddls: Sequence[Ddl], batch: int, now: float) -> list[Block]:
        """DDLs have come and freeze their dispatchers from now on; without those not for the sink or that came before.

        They are in order.
        """
        new = [ddl for ddl in ddls if not self.knows(ddl.key)]
        skipped = [ddl.key for ddl in new if not is_replicated(ddl.event.type)]
        self.skipped += len(skipped)
        self._done.update(skipped)
        kept = [ddl for ddl in new if is_replicated(ddl.event.type)]
        members = self._members.of([(ddl.event, ddl.receiver) for ddl in kept])
        writers = self._members.first_numbers([ddl.receiver for ddl in kept])
        return [self._block(*each, batch, now) for each in zip(kept, members, writers, strict=True)]

    def _block(self, ddl: Ddl, members: Numbers, writer: int, batch: int, now: float) -> Block:
        key, _, event, targets = ddl
        blocking = len(members) > 0 and self._members.must_meet(event)
        block = Block(key, event, batch, writer, members, wide_scope(event), blocking, now, targets)
        self.markers.add(block)
        if blocking:
            self.maintainer.announce(key, event, frozenset(members.tolist()))
        return block

    @property
    def writing(self) -> bool:
        """Whether schema files are being written."""
        return self._writing > 0

    @property
    def waits_for_nothing(self) -> bool:
        """Whether nothing is kept about DDLs that are not over."""
        return not self.blocks and self._order.empty and self.drains.empty and not self._moving and not self._turn

    # -- draining ----------------------------------------------------------------------------------------------------

    def advance(self, resolved_ts: int, now: float) -> list[Write]:
        """The DDLs that can be written, now that more has landed, come or finished. In commit-ts order."""
        for block in self.markers.take_up_to(resolved_ts + 1):
            self._enter(block)
        turn, self._turn = self._turn | self.drains.take_landed(), set()
        return [write for key in sorted(turn) for write in self._drain(self.blocks[key], now)]

    def landed(self, dispatcher: Numbers) -> None:
        """Something of these dispatchers is durable, so they may have drained."""
        self.drains.note_landed(dispatcher)

    def _enter(self, block: Block) -> None:
        """No earlier DDL can come any more, so it is known which ones this one waits for."""
        own = block.members[block.members != self.trigger_number]
        schema_id = self.queues.dispatchers.schema_id
        homes = {self._moving[n][1] if n in self._moving else int(schema_id[n]) for n in own.tolist()}
        block.waits_for = self._order.enter(block.key, claims_of(block.event, own.tolist(), homes, block.targets))
        for table in block.event.updated_schemas:
            moving = self._members.numbers((table.table_id,)).tolist()
            self._moving.update(dict.fromkeys(moving, (block.key, table.new_schema_id)))
        if not block.waits_for:
            self._turn.add(block.key)

    def _drain(self, block: Block, now: float) -> list[Write]:
        """Look which dispatchers have drained since the last time; those that have are not looked at again."""
        if block.left is None:
            block.encoded = now
        drained, left = self.drains.look(block)
        if block.blocking:
            writes = self._report(block, drained, left)
        else:  # of one dispatcher: nobody else is to be asked, so the receiver writes
            writes = [Write(block.key, block.receiver)] if not len(left) else []
        if writes:
            block.stage, block.drained = WRITING, now
            self._writing += 1
        return writes

    def _report(self, block: Block, drained: Numbers, left: Numbers) -> list[Write]:
        """Dispatchers that have drained report to the maintainer; for a wide DDL the trigger does, when all have."""
        reporting = drained
        if block.wide is not None:
            reporting = block.members if not len(left) else drained[:0]
        actions = self.maintainer.report(block.key, reporting.tolist())
        return [action for action in actions if isinstance(action, Write)]

    # -- over --------------------------------------------------------------------------------------------------------

    def written(self, write: Write) -> list[Block]:
        """The schema files of this DDL are written. Returns the DDLs that are over by it. A repeat changes nothing."""
        block = self.blocks.get(write.key)
        if block is None or block.stage != WRITING:
            return []
        if not block.blocking:
            self._schedule(block.key, block.event)
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
                self._schedule(action.key, action.event)
            elif isinstance(action, Finished):
                over.append(self._over(self.blocks[action.key]))
        return over

    def _over(self, block: Block) -> Block:
        """Take the markers away, and let those go on that waited for it."""
        self.markers.remove(block)
        self._done.add(block.key)
        self._turn.update(self._order.leave(block.key))
        self._writing -= 1
        return block

    def _schedule(self, key: Key, event: DdlEvent) -> None:
        """Tables move to their new databases. A new table has its dispatchers already, a dropped one gets no more."""
        for table in event.updated_schemas:
            numbers = self._members.numbers((table.table_id,))
            self.queues.dispatchers.schema_id[numbers] = table.new_schema_id
            for number in numbers.tolist():
                if self._moving.get(number, (None,))[0] == key:
                    del self._moving[number]
