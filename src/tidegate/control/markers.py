"""Drain markers: where DDLs are in the queues, and what they freeze.

A DDL of commit-ts T has a drain marker at T in the queue of every dispatcher that it touches. Items before the marker
land at once, items behind it are frozen. A marker is no item: it is a commit-ts, compared with the commit-ts of items,
so it may come before or after them. A DDL of a database or of all, a *wide* one, has one marker for all. It is compared
with the dispatchers that have items, because a million markers would have to be put and taken away again.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tidegate.control.barrier import Key
from tidegate.control.checkpoint import NOTHING_PENDING
from tidegate.control.columns import Ints, Numbers
from tidegate.control.items import END
from tidegate.control.queues import Queues
from tidegate.format.ddl.events import ALL, DdlEvent, Scope

DRAINING, WRITING = "draining", "writing"


@dataclass
class Block:
    """One DDL that is not over: it drains (DRAINING), and is then written (WRITING)."""

    key: Key
    event: DdlEvent
    batch: int
    receiver: int  # the dispatcher that it came to
    members: Numbers  # dispatchers with a marker of their own
    wide: Scope | None  # the database, or all, that its one marker is compared with
    blocking: bool  # its dispatchers meet in the barrier
    arrived: float
    targets: tuple[tuple[str, str], ...] = ()  # the names of its tables on the sink, where routes change them
    waits_for: set[Key] = field(default_factory=set)  # the DDLs before it that touch it, see `order.py`
    stage: str = DRAINING
    left: Numbers | None = None  # dispatchers that have not drained; None while it is not its turn
    encoded: float = 0.0  # when all rows below T were in the spool
    drained: float = 0.0  # when all before its markers was durable
    affected: int = 0  # dispatchers that it touched, the most at one time

    @property
    def ts(self) -> int:
        return self.key.ts


@dataclass
class Markers:
    """The markers of all DDLs that are not over."""

    queues: Queues
    blocks: dict[Key, Block] = field(default_factory=dict)
    _order: list[Key] = field(default_factory=list)  # of all blocks
    _untaken: list[Key] = field(default_factory=list)  # of those that `take_up_to` has not returned yet
    _by_dispatcher: dict[int, list[Key]] = field(default_factory=dict)  # in order
    _wide: list[Key] = field(default_factory=list)  # of the blocks over a database or over all, in order

    def add(self, block: Block) -> None:
        """Put the markers of a DDL where its commit-ts belongs, before later ones that came earlier."""
        self.blocks[block.key] = block
        insort(self._order, block.key)
        if block.wide is not None:
            insort(self._wide, block.key)
        insort(self._untaken, block.key)
        for number in block.members.tolist():
            insort(self._by_dispatcher.setdefault(number, []), block.key)
        frozen = self.queues.dispatchers.frozen_ts
        frozen[block.members] = np.minimum(frozen[block.members], block.ts)

    def remove(self, block: Block) -> None:
        """The DDL is over: its dispatchers are frozen from the next marker on, or not at all."""
        del self.blocks[block.key]
        _remove(self._order, block.key)
        if block.wide is not None:
            _remove(self._wide, block.key)
        for number in block.members.tolist():
            markers = self._by_dispatcher[number]
            _remove(markers, block.key)
            self.queues.dispatchers.frozen_ts[number] = markers[0].ts if markers else NOTHING_PENDING
            if not markers:
                del self._by_dispatcher[number]

    def first_above(self, ts: int) -> Block | None:
        """The first DDL above this commit-ts that is not over."""
        at = bisect_left(self._order, Key(ts + 1, 0))
        return self.blocks[self._order[at]] if at < len(self._order) else None

    @property
    def unfinished_ts(self) -> int:
        """Its commit-ts."""
        return self._order[0].ts if self._order else NOTHING_PENDING

    def take_up_to(self, ts: int) -> list[Block]:
        """The DDLs at or below this commit-ts that were not taken before, in order."""
        taken = bisect_left(self._untaken, Key(ts + 1, 0))
        keys, self._untaken = self._untaken[:taken], self._untaken[taken:]
        return [self.blocks[key] for key in keys]

    @staticmethod
    def _is_over_all(block: Block) -> bool:
        return block.wide is not None and block.wide.kind == ALL

    def _compared(self, block: Block, dispatcher: Numbers) -> NDArray[np.bool_]:
        """Which of these dispatchers a wide DDL touches."""
        if self._is_over_all(block):
            return np.ones(len(dispatcher), np.bool_)
        schema_id = block.wide.schema_id if block.wide is not None else -1
        return np.asarray(self.queues.dispatchers.schema_id[dispatcher] == schema_id)

    def frozen_from(self, dispatcher: Numbers) -> Ints:
        """For each of these, the commit-ts from which on its items are frozen."""
        frozen: Ints = self.queues.dispatchers.frozen_ts[dispatcher]
        for key in self._wide:
            compared = self._compared(self.blocks[key], dispatcher)
            frozen = np.where(compared, np.minimum(frozen, key.ts), frozen)
        return frozen

    def before_frozen(self, dispatcher: Numbers) -> NDArray[np.bool_]:
        """Which of these have an item that is not frozen."""
        return self._holds_before(dispatcher, self.frozen_from(dispatcher))

    def before_marker(self, dispatcher: Numbers) -> NDArray[np.bool_]:
        """Which of these have an item before a marker, so that a DDL waits for it."""
        frozen = self.frozen_from(dispatcher)
        return np.asarray((frozen != NOTHING_PENDING) & self._holds_before(dispatcher, frozen))

    def _holds_before(self, dispatcher: Numbers, ts: Ints | int) -> NDArray[np.bool_]:
        """Which of these have an item in their queues below this commit-ts."""
        head = self.queues.dispatchers.head[dispatcher]
        found: NDArray[np.bool_] = head != END
        found[found] = self.queues.items.first_ts[head[found]] < np.broadcast_to(ts, len(head))[found]
        return found

    def touched(self, block: Block) -> Numbers:
        """The dispatchers that must drain for this DDL: its members, and those with items if it is wide."""
        if block.wide is None:
            return block.members
        items = self.queues.items
        active = np.unique(items.dispatcher[items.live()]).astype(np.int64)
        return np.union1d(active[self._compared(block, active)], block.members)

    def notice(self, block: Block) -> Numbers:
        """The dispatchers that it touches now; their number counts for the metric."""
        touched = self.touched(block)
        block.affected = max(block.affected, len(touched))
        return touched

    def divided(self, dispatcher: Numbers, first_ts: Ints, last_ts: Ints) -> tuple[int, int] | None:
        """The position of an item with changes on both sides of a marker, which is an error, and the marker's T."""
        with_marker = self.queues.dispatchers.frozen_ts[dispatcher] != NOTHING_PENDING
        between = stands_between(self._order, first_ts, last_ts) & with_marker
        between |= stands_between(self._wide, first_ts, last_ts)
        for at in np.flatnonzero(between).tolist():
            for ts in self._marker_ts(dispatcher[at : at + 1]):
                if first_ts[at] < ts <= last_ts[at]:
                    return at, ts
        return None

    def _marker_ts(self, one: Numbers) -> Iterator[int]:
        """The commit-ts of all markers of one dispatcher."""
        yield from (key.ts for key in self._by_dispatcher.get(int(one[0]), ()))
        yield from (key.ts for key in self._wide if self._compared(self.blocks[key], one)[0])

    def undrained(self, dispatcher: Numbers, ts: int) -> NDArray[np.bool_]:
        """Which of these have something below this commit-ts in a queue, or anything under way."""
        undrained: NDArray[np.bool_] = self._holds_before(dispatcher, ts)
        undrained |= self.queues.dispatchers.in_flight[dispatcher] > 0
        return undrained


def _remove(keys: list[Key], key: Key) -> None:
    """Found by halves: thousands of DDLs may be here at a time."""
    del keys[bisect_left(keys, key)]


def stands_between(keys: Sequence[Key], first_ts: Ints, last_ts: Ints) -> NDArray[np.bool_]:
    """For each item, whether one of these DDLs, which are in order, comes after its first and not after its last."""
    ts = np.array([key.ts for key in keys], np.int64)
    return np.asarray(np.searchsorted(ts, last_ts, "right") > np.searchsorted(ts, first_ts, "right"))
