"""Dispatchers and their queues of accepted items, all as columns.

A queue has the items of one dispatcher in (commit_ts, seq) order, which never overlap. It is a linked list through the
item columns: a million empty queues cost nothing, and one long queue only what is in it. Lists of many queues are
walked together, one step at a time for all, so that NumPy does the work.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidegate.control.checkpoint import NOTHING_PENDING
from tidegate.control.columns import Ints, Keys, Numbers, group_lasts, group_starts, pack
from tidegate.control.dispatchers import Dispatchers
from tidegate.control.items import END, Items
from tidegate.control.lanes import Lanes
from tidegate.control.names import Names, Target
from tidegate.control.places import Places
from tidegate.control.unseen import Unseen
from tidegate.errors import BadEvents


@dataclass
class Queues:
    """The dispatchers, their items, lanes and names. A dispatcher is known by a dense number, its row."""

    shared_lanes: bool = False  # partitions without separator share the lane of their logical table
    by_name: bool = True  # paths have names and no ids
    target: Target | None = None  # None if tables land under their own names
    items: Items = field(default_factory=Items)
    dispatchers: Dispatchers = field(default_factory=Dispatchers)
    lanes: Lanes = field(default_factory=Lanes)
    names: Names = field(init=False)
    places: Places = field(init=False)
    queued: int = 0  # items in queues
    active: int = 0  # dispatchers with an item in their queue
    unseen: Unseen = field(default_factory=Unseen)  # names under which no schema file exists
    dropped: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # sorted keys of lanes that were given up
    dropped_own: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # of these, which have an own directory
    _keys: Keys = field(default_factory=Keys)
    _lane_keys: Keys = field(default_factory=Keys)  # only of shared lanes; else lane and dispatcher have one number

    def __post_init__(self) -> None:
        self.places = Places(self.dispatchers, self.lanes, self.by_name, self.shared_lanes)
        self.names = Names(self.dispatchers, self.places, self.target)

    def name(self, number: int) -> str:
        return f"{self.names.schemas[number]}.{self.names.tables[number]}"

    def key(self, number: int) -> tuple[int, int]:
        """Table id and span of this dispatcher."""
        return int(self.dispatchers.table_id[number]), int(self.dispatchers.span[number])

    def find(self, table_id: Ints, span: Ints) -> Numbers:
        return self._keys.find(table_id, span)

    def number(self, table_id: Ints, span: Ints, logical_id: Ints) -> Numbers:
        """The numbers of these dispatchers. Those that are new are added, without a name."""
        numbers, first_at = self._keys.numbers(table_id, span)
        if len(first_at):
            self._add(numbers[first_at], table_id[first_at], span[first_at], logical_id[first_at])
        return numbers

    def note_databases(self, dispatcher: Numbers, schema_id: Ints) -> None:
        """The database of a table is the one that its first change names. Later only a DDL moves it."""
        ds = self.dispatchers
        unknown = ds.schema_id[dispatcher] == 0
        ds.schema_id[dispatcher[unknown]] = schema_id[unknown]

    def known(self) -> Numbers:
        """The numbers of all dispatchers whose state is here."""
        return np.flatnonzero(self.dispatchers.table_id[: self.dispatchers.size] >= 0)

    def drop(self, numbers: Numbers) -> None:
        """Give up the state of these dispatchers, whose queues are empty; their numbers are given to others.

        A lane that partitions share is given up with the last of them.
        """
        ds = self.dispatchers
        ids, lane = (ds.table_id[numbers], ds.span[numbers].astype(np.int64)), ds.lane[numbers]
        if self.shared_lanes:
            self.places.hand_on(numbers)
        self.places.give_up(numbers, self.names.targets(numbers))
        self._keys.remove(*ids)
        ds.reset(numbers)
        ds.table_id[numbers] = ds.head[numbers] = ds.tail[numbers] = END
        ds.accepted_ts[numbers] = ds.durable_ts[numbers] = -1
        ds.frozen_ts[numbers] = NOTHING_PENDING
        self.names.forget(numbers)
        self._drop_lanes(lane, pack(*ids))

    def _drop_lanes(self, lane: Numbers, keys: Ints) -> None:
        """These lanes have lost a dispatcher, whose keys are these."""
        if self.shared_lanes:
            np.subtract.at(self.lanes.members, lane, 1)
            lane = np.unique(lane[self.lanes.members[lane] == 0])
            keys = self._lane_keys.of_numbers(lane)
            self._lane_keys.remove_numbers(lane)
        else:  # shared lanes have no directories of their own
            self.dropped_own = np.union1d(self.dropped_own, keys[self.lanes.own[lane]])
        self.dropped = np.union1d(self.dropped, keys)
        self.lanes.reset(lane)

    def lane_keys(self, numbers: Numbers) -> Ints:
        """The keys of the lanes of these dispatchers: of the logical table where partitions share one."""
        ds = self.dispatchers
        if self.shared_lanes:
            return self._lane_keys.of_numbers(ds.lane[numbers])
        return pack(ds.table_id[numbers], ds.span[numbers])

    def _add(self, new: Numbers, table_id: Ints, span: Ints, logical_id: Ints) -> None:
        """Rows for new dispatchers. A lane whose state was given up before must look which files exist."""
        ds = self.dispatchers
        ds.extend(max(0, int(new.max()) + 1 - ds.size))
        ds.table_id[new], ds.span[new], ds.logical_id[new] = table_id, span, logical_id
        ds.head[new] = ds.tail[new] = END
        ds.accepted_ts[new] = ds.durable_ts[new] = -1
        ds.frozen_ts[new] = NOTHING_PENDING
        lanes = self._lane_keys.numbers(logical_id, span)[0] if self.shared_lanes else new
        self.lanes.extend(max(0, int(lanes.max()) + 1 - self.lanes.size))
        ds.lane[new] = lanes
        if self.shared_lanes:
            np.add.at(self.lanes.members, lanes, 1)
        if len(self.dropped):
            keys = pack(logical_id if self.shared_lanes else table_id, span)
            at = np.minimum(np.searchsorted(self.dropped, keys), len(self.dropped) - 1)
            back = self.dropped[at] == keys
            self.lanes.look[lanes[back]] = True
            self.dropped = np.delete(self.dropped, at[back])
            own = back & np.isin(keys, self.dropped_own)
            self.lanes.own[lanes[own]] = ds.placed[new[own]] = True
            self.dropped_own = np.setdiff1d(self.dropped_own, keys[own])

    def place_new(self, dispatcher: Numbers, version: Ints, first_ts: Ints) -> None:
        """The next files of these have these versions and begin here: whose first ones they are get their paths."""
        if not len(new := self.places.unplaced(dispatcher)):
            return
        numbers = dispatcher[new]
        self.places.come(numbers, version[new])  # where the last holder has left
        holder = self.places.holders.of(self.dispatchers.target[numbers])
        at_rest = self._at_rest(holder) & ~np.isin(holder, dispatcher)
        targets = self.names.targets(numbers) if len(self.places.left) else pa.nulls(len(numbers), pa.string())
        refused = self.places.place(numbers, version[new], first_ts[new], targets, at_rest)
        if len(refused):
            one, two = int(refused[0]), int(self.places.holders.of(self.dispatchers.target[refused[:1]])[0])
            target = self.names.targets(refused[:1])[0].as_py().replace("\0", ".")
            raise BadEvents(
                f"tables {self.key(two)[0]} and {self.key(one)[0]} both land under {target}, and with "
                "enable-partition-separator = false there is no directory for the second; leave it true on a new "
                "prefix, or give each a target"
            )

    def waiting_to_take_over(self, dispatcher: Numbers) -> NDArray[np.bool_]:
        """Which of these wait until the holder of their path is at rest, and can take the path over then.

        Only where there is no directory for a second table of a name. All that came of the holder is older.
        """
        ds, items, head = self.dispatchers, self.items, self.dispatchers.head[dispatcher]
        holder = self.places.holders.of(ds.target[dispatcher])
        other = ~ds.placed[dispatcher] & (holder >= 0) & (ds.lane[holder] != ds.lane[dispatcher])
        older = (ds.version[holder] < items.version[head]) & (ds.accepted_ts[holder] < items.first_ts[head])
        waiting: NDArray[np.bool_] = self.places.whole(dispatcher) & other & older & ~self._at_rest(holder)
        return waiting

    def _at_rest(self, holder: Numbers) -> NDArray[np.bool_]:
        """Of which of these nothing is queued or under way under their present name."""
        ds, lanes, lane = self.dispatchers, self.lanes, self.dispatchers.lane[holder]
        rest: NDArray[np.bool_] = (ds.in_flight[holder] == 0) & ~lanes.busy[lane] & ~lanes.owed[lane]
        head = ds.head[holder]
        rest &= (head == END) | self.names.leaving(holder, self.items.version[head])
        if self.shared_lanes and len(holder):
            waiting = np.flatnonzero((ds.head[: ds.size] != END) & (ds.table_id[: ds.size] >= 0))
            rest &= ~np.isin(lane, ds.lane[waiting[~np.isin(waiting, holder)]])
        return rest

    def append(self, slots: Numbers, dispatcher: Numbers) -> Numbers:
        """Queue items, which come by dispatcher and in order. Returns the dispatchers whose queues were empty."""
        items, ds = self.items, self.dispatchers
        starts = group_starts(dispatcher)
        ends = group_lasts(starts, len(slots))
        items.next[slots[:-1]] = slots[1:]
        items.next[slots[ends]] = END
        owners = dispatcher[starts]
        was_empty = ds.head[owners] == END
        ds.head[owners[was_empty]] = slots[starts[was_empty]]
        ds.oldest_at[owners[was_empty]] = items.accepted_at[slots[starts[was_empty]]]
        filled = ~was_empty
        items.next[ds.tail[owners[filled]]] = slots[starts[filled]]
        ds.tail[owners] = slots[ends]
        ds.queued_bytes[owners] += np.add.reduceat(items.length[slots], starts) if len(slots) else 0
        self.queued += len(slots)
        self.active += int(was_empty.sum())
        emptied: Numbers = owners[was_empty]
        return emptied

    def walk(self, dispatcher: Numbers) -> tuple[Numbers, Ints]:
        """All queued items of these dispatchers, in order: their slots, and for each the position in `dispatcher`."""
        at = np.arange(len(dispatcher), dtype=np.int64)
        cursor = self.dispatchers.head[dispatcher]
        slots: list[Numbers] = []
        owners: list[Ints] = []
        while len(cursor):
            there = cursor != END
            cursor, at = cursor[there], at[there]
            slots.append(cursor)
            owners.append(at)
            cursor = self.items.next[cursor]
        if not slots:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        all_slots, all_owners = np.concatenate(slots), np.concatenate(owners)
        order = np.argsort(all_owners, kind="stable")
        return all_slots[order], all_owners[order]

    def remove_front(self, slots: Numbers, dispatcher: Numbers) -> None:
        """Take the first items of some queues out; those of one dispatcher are next to each other."""
        items, ds = self.items, self.dispatchers
        starts = group_starts(dispatcher)
        ends = group_lasts(starts, len(slots))
        owners = dispatcher[starts]
        head = items.next[slots[ends]]
        ds.head[owners] = head
        ds.tail[owners[head == END]] = END
        ds.queued_bytes[owners] -= np.add.reduceat(items.length[slots], starts)
        left = head != END
        ds.oldest_at[owners[left]] = items.accepted_at[head[left]]
        self.queued -= len(slots)
        self.active -= int((~left).sum())
