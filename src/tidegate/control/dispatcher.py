"""Dispatchers, their queues of accepted items, and the lanes their files go to; all columnar.

A dispatcher is one ordered stream of changes, (table id, span). Its queue holds accepted items in (commit_ts, seq)
order as a linked list through the item columns, so that queues of very different lengths cost only what they hold.
A lane is one index path: file number, date and the in-flight flag belong to it. Invariants:
1. Items of a queue never overlap and never decrease.
2. A slot is either free, queued in exactly one queue, or planned in exactly one landing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidegate.control.checkpoint import NOTHING_PENDING
from tidegate.control.columns import Columns, Ints, Keys, Numbers, Texts, group_lasts, group_starts, pack
from tidegate.control.lanes import Lanes

END = -1  # no next item


class Items(Columns):
    """Accepted items. A free slot has the greatest `first_ts`, so the smallest pending ts is a plain minimum."""

    _dtypes = {  # noqa: RUF012
        "dispatcher": np.int32, "version": np.int64, "layout": np.int64, "first_ts": np.int64, "first_seq": np.int64,
        "last_ts": np.int64, "last_seq": np.int64, "rows": np.int64, "segment": np.int32, "offset": np.int64,
        "length": np.int64, "accepted": np.float64, "batch": np.int64, "next": np.int64, "reading": np.bool_,
    }  # fmt: skip
    dispatcher: Ints
    version: Ints
    layout: Ints
    first_ts: Ints
    first_seq: Ints
    last_ts: Ints
    last_seq: Ints
    rows: Ints
    segment: Ints
    offset: Ints
    length: Ints
    accepted: NDArray[np.float64]
    batch: Ints
    next: Ints
    reading: NDArray[np.bool_]  # a landing is under way that reads it where it stands

    def __init__(self) -> None:
        super().__init__()
        self._free: list[Numbers] = []

    def allocate(self, count: int) -> Numbers:
        taken: list[Numbers] = []
        while self._free and count:
            slots = self._free.pop()
            if len(slots) > count:
                self._free.append(slots[count:])
                slots = slots[:count]
            taken.append(slots)
            count -= len(slots)
        if count:
            taken.append(self.extend(count))
        return np.concatenate(taken) if taken else np.zeros(0, np.int64)

    def free(self, slots: Numbers) -> None:
        self.first_ts[slots] = NOTHING_PENDING
        if len(slots):
            self._free.append(slots.copy())

    def live(self) -> Numbers:
        """The slots of all items that are not durable yet."""
        return np.flatnonzero(self.first_ts[: self.size] != NOTHING_PENDING)

    def first_pending_ts(self) -> int:
        return int(self.first_ts[: self.size].min(initial=NOTHING_PENDING))


class Dispatchers(Columns):
    _dtypes = {  # noqa: RUF012
        "table_id": np.int64, "span": np.int32, "logical_id": np.int64, "lane": np.int32, "version": np.int64,
        "accepted_ts": np.int64, "accepted_seq": np.int64, "durable_ts": np.int64, "durable_seq": np.int64,
        "head": np.int64, "tail": np.int64, "bytes": np.int64, "oldest": np.float64, "unacked": np.int64,
        "schema_id": np.int64, "flying": np.int32, "frozen_ts": np.int64, "files": np.int32, "landed": np.int64,
        "used": np.float64, "wheeled": np.bool_,
    }  # fmt: skip
    table_id: Ints
    span: Ints
    logical_id: Ints
    lane: Ints
    version: Ints
    accepted_ts: Ints
    accepted_seq: Ints
    durable_ts: Ints
    durable_seq: Ints
    head: Ints
    tail: Ints
    bytes: Ints
    oldest: NDArray[np.float64]
    unacked: Ints
    schema_id: Ints
    flying: Ints  # items planned and not yet durable
    frozen_ts: Ints  # nothing from here on may be planned: a DDL's marker stands there
    files: Ints  # landed since the start of this run
    landed: Ints  # bytes of them
    used: NDArray[np.float64]  # when it last got a change
    wheeled: NDArray[np.bool_]  # it will be looked at whether its state is still needed


@dataclass
class Queues:
    """The items of all dispatchers, and the dispatchers themselves."""

    shared_lanes: bool = False  # partitions without separator share the lane of their logical table
    items: Items = field(default_factory=Items)
    dispatchers: Dispatchers = field(default_factory=Dispatchers)
    lanes: Lanes = field(default_factory=Lanes)
    schema_names: Texts = field(default_factory=Texts)
    table_names: Texts = field(default_factory=Texts)
    queued: int = 0
    active: int = 0
    dropped: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # sorted keys whose state was given up
    _keys: Keys = field(default_factory=Keys)
    _lane_keys: Keys = field(default_factory=Keys)  # of shared lanes; otherwise a dispatcher's number is its lane's
    _coming_names: dict[int, dict[int, tuple[str, str, int]]] = field(default_factory=dict)

    def name(self, number: int) -> str:
        return f"{self.schema_names[number]}.{self.table_names[number]}"

    def names(self, numbers: Numbers) -> list[tuple[str, str]]:
        """(schema, table) of these."""
        both = (texts.take(numbers).to_pylist() for texts in (self.schema_names, self.table_names))
        return list(zip(*both, strict=True))

    def namesakes(self, numbers: Numbers) -> dict[int, Numbers]:
        """For each of these, the others of its name: partitions, or the same name given again.

        Looks at all names, once for however many are asked, so ask rarely and for many.
        """
        asked = self.names(numbers)
        alike = np.flatnonzero(
            self.schema_names.among(schema for schema, _ in asked) & self.table_names.among(table for _, table in asked)
        )
        by_name: dict[tuple[str, str], list[int]] = {}
        for number, name in zip(alike.tolist(), self.names(alike), strict=True):
            by_name.setdefault(name, []).append(number)
        of_name = {name: np.array(found, np.int64) for name, found in by_name.items()}
        pairs = zip(numbers.tolist(), (of_name.get(name, alike[:0]) for name in asked), strict=True)
        return {number: found[found != number] for number, found in pairs}

    def find(self, table_id: Ints, span: Ints) -> Numbers:
        return self._keys.find(table_id, span)

    def number(self, table_id: Ints, span: Ints, logical_id: Ints) -> Numbers:
        """Dense numbers of these dispatchers; unknown ones are added, nameless until `rename`."""
        numbers, first_at = self._keys.numbers(table_id, span)
        if len(first_at):
            self._add(numbers[first_at], table_id[first_at], span[first_at], logical_id[first_at])
        return numbers

    def note_databases(self, dispatcher: Numbers, schema_id: Ints) -> None:
        """The database of a table that comes for the first time; only DDLs move it to another."""
        ds = self.dispatchers
        unknown = ds.schema_id[dispatcher] == 0
        ds.schema_id[dispatcher[unknown]] = schema_id[unknown]

    def known(self) -> Numbers:
        """Numbers of all dispatchers whose state is here."""
        return np.flatnonzero(self.dispatchers.table_id[: self.dispatchers.size] >= 0)

    def drop(self, numbers: Numbers) -> None:
        """Give up the state of these dispatchers, which hold nothing; storage has it when they come back."""
        ds = self.dispatchers
        ids, lane = (ds.table_id[numbers], ds.span[numbers].astype(np.int64)), ds.lane[numbers]
        self.dropped = np.union1d(self.dropped, pack(*ids))
        self._keys.remove(*ids)
        ds.reset(numbers)
        self.lanes.reset(lane)
        ds.table_id[numbers] = ds.head[numbers] = ds.tail[numbers] = END
        ds.accepted_ts[numbers] = ds.durable_ts[numbers] = -1
        ds.frozen_ts[numbers] = NOTHING_PENDING
        for texts in (self.schema_names, self.table_names):
            texts.put(numbers, pa.array([""]).take(pa.array(np.zeros(len(numbers), np.int64))))

    def _add(self, new: Numbers, table_id: Ints, span: Ints, logical_id: Ints) -> None:
        ds = self.dispatchers
        ds.extend(max(0, int(new.max()) + 1 - ds.size))
        ds.table_id[new], ds.span[new], ds.logical_id[new] = table_id, span, logical_id
        ds.head[new] = ds.tail[new] = END
        ds.accepted_ts[new] = ds.durable_ts[new] = -1
        ds.frozen_ts[new] = NOTHING_PENDING
        lanes = self._lane_keys.numbers(logical_id, span)[0] if self.shared_lanes else new
        self.lanes.extend(max(0, int(lanes.max()) + 1 - self.lanes.size))
        ds.lane[new] = lanes
        if len(self.dropped):
            keys = pack(table_id, span)
            at = np.minimum(np.searchsorted(self.dropped, keys), len(self.dropped) - 1)
            back = self.dropped[at] == keys
            self.lanes.look[lanes[back]] = True
            self.dropped = np.delete(self.dropped, at[back])

    def rename(self, number: int, schema_name: str, table_name: str, logical_id: int) -> None:
        """The name under which this dispatcher's files land from now on, and the table that it is a part of."""
        self.table_names[number] = table_name
        self.schema_names[number] = schema_name
        self.dispatchers.logical_id[number] = logical_id

    def rename_many(self, numbers: Numbers, schema_names: pa.Array, table_names: pa.Array, logical_id: Ints) -> None:
        """`rename` for many at once; of a number that stands there twice the last name counts."""
        self.schema_names.put(numbers, schema_names)
        self.table_names.put(numbers, table_names)
        self.dispatchers.logical_id[numbers] = logical_id

    def rename_from(
        self, version: Ints, numbers: Numbers, schema_names: pa.Array, table_names: pa.Array, logical_id: Ints
    ) -> None:
        """A name stands with its version: what is queued under an older version still lands under the older name.

        The numbers are sorted. A dispatcher that has no name yet gets its first one at once.
        """
        known = [pc.equal(texts.take(numbers), "") for texts in (self.schema_names, self.table_names)]
        nameless = pc.and_(*known).to_numpy(zero_copy_only=False)
        first = np.zeros(len(numbers), np.bool_)
        first[group_starts(numbers)] = True
        first &= nameless
        at = pa.array(np.flatnonzero(first))
        self.rename_many(numbers[first], schema_names.take(at), table_names.take(at), logical_id[first])
        rest = np.flatnonzero(~first)
        if not len(rest):
            return
        texts = (column.take(pa.array(rest)).to_pylist() for column in (schema_names, table_names))
        names = zip(*texts, logical_id[rest].tolist(), strict=True)
        owners = self.dispatchers.logical_id[numbers[rest]].tolist()
        rows = zip(
            version[rest].tolist(), numbers[rest].tolist(), names, self.names(numbers[rest]), owners, strict=True
        )
        for begins, number, name, now, owner in rows:
            if number in self._coming_names or name != (*now, owner):
                self._coming_names.setdefault(number, {})[begins] = name

    def begin_versions(self, dispatcher: Numbers, version: Ints) -> None:
        """The next files of these dispatchers have these versions, so they land under the names that came with them."""
        if not self._coming_names:
            return
        for number, at in zip(dispatcher.tolist(), version.tolist(), strict=True):
            names = self._coming_names.get(number, {})
            for begun in sorted(older for older in names if older <= at):
                self.rename(number, *names.pop(begun))
            if not names:
                self._coming_names.pop(number, None)

    def append(self, slots: Numbers, dispatcher: Numbers) -> Numbers:
        """Queue items that stand in dispatcher and sequence order; returns the dispatchers that were empty before."""
        items, ds = self.items, self.dispatchers
        starts = group_starts(dispatcher)
        ends = group_lasts(starts, len(slots))
        items.next[slots[:-1]] = slots[1:]
        items.next[slots[ends]] = END
        owners = dispatcher[starts]
        was_empty = ds.head[owners] == END
        ds.head[owners[was_empty]] = slots[starts[was_empty]]
        ds.oldest[owners[was_empty]] = items.accepted[slots[starts[was_empty]]]
        filled = ~was_empty
        items.next[ds.tail[owners[filled]]] = slots[starts[filled]]
        ds.tail[owners] = slots[ends]
        ds.bytes[owners] += np.add.reduceat(items.length[slots], starts) if len(slots) else 0
        self.queued += len(slots)
        self.active += int(was_empty.sum())
        emptied: Numbers = owners[was_empty]
        return emptied

    def walk(self, dispatcher: Numbers) -> tuple[Numbers, Ints]:
        """All queued items of these dispatchers: (slots, position in `dispatcher`), grouped and in order."""
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
        """Take the first items of some queues out; those of one dispatcher stand together."""
        items, ds = self.items, self.dispatchers
        starts = group_starts(dispatcher)
        ends = group_lasts(starts, len(slots))
        owners = dispatcher[starts]
        head = items.next[slots[ends]]
        ds.head[owners] = head
        ds.tail[owners[head == END]] = END
        ds.bytes[owners] -= np.add.reduceat(items.length[slots], starts)
        left = head != END
        ds.oldest[owners[left]] = items.accepted[head[left]]
        self.queued -= len(slots)
        self.active -= int((~left).sum())
