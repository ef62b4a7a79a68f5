"""A model test of the ledger: generated batches, clocks, landings and faults against plain Python lists.

The model knows what a source handed out, in order, and what has landed. Whatever happens in between, these hold after
every step: one landing a lane, files of a table in order and numbered without gap or repeat, accounting to the byte,
never more than the size of the spool, wakes by hysteresis, checkpoint and position exactly where they may be. At the
end the changefeed closes, the store recovers, and everything accepted is durable exactly once, in bounded steps.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tidegate.control.checkpoint import NOTHING_PENDING
from tidegate.control.columns import Numbers
from tidegate.control.compaction import Copy, Move
from tidegate.control.ledger import Ledger
from tidegate.control.limits import Limits
from tidegate.control.rounds import Round
from tidegate.control.spool import ITEM_BYTES
from tidegate.errors import BadEvents
from tidegate.executor.rows import ITEMS

LIMITS = Limits(flush_interval_s=5.0, round_tables=3, spool_max_bytes=20_000)
SHARE = LIMITS.spool_max_bytes * LIMITS.dispatcher_share
LOGICAL = {1: 1, 2: 2, 3: 3, 4: 4, 51: 50, 52: 50}  # four tables and the two partitions of a fifth
NAMES = {1: "t1", 2: "t2", 3: "t3", 4: "t3", 50: "t3"}  # three of them have one name
TABLES = tuple(LOGICAL)
SIZES = st.integers(1, 900) | st.just(400) | st.integers(1, 2_500) | st.sampled_from([9_000, 25_000])
Key = tuple[int, int]  # (table, seq): names one item
File = tuple[int, int, int, int, bool, tuple[Key, ...]]  # lane, number, version, date, own directory, keys
NONE = frozenset[int]()


@dataclass(frozen=True)
class Item:
    key: Key
    ts: int
    length: int
    version: int
    batch: int
    segment: str
    accepted: float


@dataclass
class Batch:
    end: str
    left: int


@dataclass
class Model:
    """What should be so, in lists."""

    queued: dict[int, list[Item]] = field(default_factory=lambda: {table: [] for table in TABLES})
    planned: dict[Key, Item] = field(default_factory=dict)
    landed: dict[int, list[Item]] = field(default_factory=lambda: {table: [] for table in TABLES})
    accepted: dict[int, list[Item]] = field(default_factory=lambda: {table: [] for table in TABLES})
    batches: dict[int, Batch] = field(default_factory=dict)
    segment_bytes: dict[str, int] = field(default_factory=dict)
    freed: list[str] = field(default_factory=list)
    places: dict[Key, tuple[str, int]] = field(default_factory=dict)  # segment and offset of each item
    disk: dict[str, dict[int, Key]] = field(default_factory=dict)  # by segment and offset: whose bytes stand there
    moving: dict[Key, tuple[str, int]] = field(default_factory=dict)  # what is being copied, and from where
    resolved: int = 0
    checkpoint: int = 0
    over: bool = False
    held_tables: set[int] = field(default_factory=set)

    def pending(self) -> list[Item]:
        return [*self.planned.values(), *(item for queue in self.queued.values() for item in queue)]

    def unacked(self, table: int) -> int:
        return sum(item.length for item in self.pending() if item.key[0] == table)

    def pinned(self) -> set[str]:
        """Segments that an item stands in, or that are being copied from."""
        return {self.places[item.key][0] for item in self.pending()} | {segment for segment, _ in self.moving.values()}

    def occupied(self) -> int:
        return sum(self.segment_bytes[segment] for segment in self.pinned()) + ITEM_BYTES * len(self.pending())

    def gather(self, segment: str) -> dict[Key, tuple[str, int]]:
        """Copies of all that is moving, one after the other, in one new segment."""
        lengths = {item.key: item.length for items in self.accepted.values() for item in items}
        copies, offset = dict[Key, tuple[str, int]](), 0
        for key in self.moving:
            copies[key] = (segment, offset)
            offset += lengths[key]
        self.segment_bytes[segment] = offset
        self.disk[segment] = {at: key for key, (_, at) in copies.items()}
        return copies

    def delete(self, segments: list[str]) -> None:
        self.freed += segments
        for segment in segments:
            del self.disk[segment]

    def hold(self, tables: Iterable[int]) -> None:
        for table in tables:
            if self.unacked(table) > SHARE:
                self.held_tables.add(table)
            elif self.unacked(table) <= SHARE / 2:
                self.held_tables.discard(table)


class LedgerMachine(RuleBasedStateMachine):
    @initialize(
        shared=st.booleans(), delay=st.sampled_from([None, 0.2, 3.0]), file_size=st.sampled_from([500, 1_000, 5_000])
    )
    def start(self, shared: bool, delay: float | None, file_size: int) -> None:
        self.limits = replace(
            LIMITS, max_flush_delay_s=delay, file_size_bytes=file_size, round_bytes=max(4_000, file_size)
        )
        self.ledger, self.model, self.shared = Ledger(self.limits, shared_lanes=shared), Model(), shared
        self.now, self.date = 0.0, 20260131
        self.ts = self.seq = self.batch = 0
        self.versions = dict.fromkeys(LOGICAL.values(), 1)
        # Where partitions have no directories, tables cannot share a name.
        self.names = NAMES if not shared else {table: f"t{table}" for table in NAMES}
        self.paths: dict[tuple[str, int, int, int, int], int] = {}  # by path, whose it is
        self.marks: dict[tuple[str, int], int] = {}  # of a reader that reads the files as they are planned
        self.ledger.reading.expansion = 1.0  # this source knows how many bytes its changes will occupy
        self.waiting: list[Item] = []  # a transaction that did not fit
        self.largest = LIMITS.spool_max_bytes  # or one transaction that came into an empty spool
        self.under_way: dict[int, Round] = {}
        self.hung: set[int] = set()  # lanes that must be planned again apart from the others
        self.move: Move | None = None
        self.moves = 0
        self.files: dict[int, File] = {}  # by plan
        self.numbers: dict[tuple[int, int, int, bool], int] = {}  # by lane, version, date and place: the last one given
        self.lane_at: dict[int, tuple[int, int]] = {}  # by lane: the furthest version and date

    # -- what may happen -----------------------------------------------------------------------------------------

    @precondition(lambda self: not self.ledger.planner.closing and self.ledger.spool.may_wake())
    @rule(data=st.data())
    def accept(self, data: st.DataObject) -> None:
        """A batch of transactions, each over one or two tables and a few chunks; some chunks come a second time."""
        self.batch += 1
        fresh = self._fitting(data, data.draw(st.sampled_from([0, 1, 3, 8])))
        sent = [item for items in self.model.accepted.values() for item in items]
        again = data.draw(st.lists(st.sampled_from(sent), max_size=2)) if sent else []
        resolved = self.ts - bool(self.waiting) if data.draw(st.booleans()) else 0
        duplicates = sum(_rows(item.key[1]) for item in again)
        self._accept(data.draw(st.permutations([*fresh, *again])), fresh, duplicates, resolved)

    def _fitting(self, data: st.DataObject, transactions: int) -> list[Item]:
        """So many transactions as a source may hand out; the next one waits if it does not fit."""
        reading, fresh, used = self.ledger.reading, list[Item](), 0
        limit, room = reading.limit_bytes, reading.room_bytes
        for _ in range(transactions):
            unit = self.waiting or self._transaction(data)
            size = sum(item.length + ITEM_BYTES for item in unit)
            if used + size > limit and (used or (room is not None and size > room)):
                self.waiting = unit
                break
            if used + size > limit and room is None:
                self.largest = max(self.largest, size)
            fresh += [self._in_this_batch(item) for item in unit]
            self.waiting, used = [], used + size
        return fresh

    def _in_this_batch(self, item: Item) -> Item:
        task = item.segment.partition("-")[2]
        return replace(item, batch=self.batch, accepted=self.now, segment=f"{self.batch}-{task}")

    def _transaction(self, data: st.DataObject) -> list[Item]:
        self.ts += 1
        if data.draw(st.integers(0, 9)) == 7:
            self.versions[data.draw(st.sampled_from([1, 3, 4, 50]))] += 1
        chunks = data.draw(st.lists(st.tuples(st.sampled_from(TABLES), SIZES), min_size=1, max_size=4))
        return [self._item(table, length, data.draw(st.integers(0, 1))) for table, length in chunks]

    def _item(self, table: int, length: int, task: int) -> Item:
        self.seq += 1
        version = self.versions[LOGICAL[table]]
        return Item((table, self.seq), self.ts, length, version, self.batch, f"{self.batch}-{task}", self.now)

    def _accept(self, sent: list[Item], fresh: list[Item], duplicates: int, resolved: int) -> None:
        model, ends = self.model, Counter[str]()
        rows = [_row(item, self.batch, ends, self.names) for item in sent]
        end = f"end-{self.batch}"
        accepted = self.ledger.accept(self.batch, pa.Table.from_pylist(rows, schema=ITEMS), self.now, end, resolved)
        assert (accepted.items, accepted.duplicates) == (len(fresh), duplicates)
        assert accepted.bytes == sum(item.length for item in fresh)
        used = {item.segment for item in fresh}
        assert sorted(accepted.dropped_segments) == sorted(ends.keys() - used)
        model.segment_bytes.update({segment: ends[segment] for segment in used})
        for item, row in zip(sent, rows, strict=True):
            if item.batch == self.batch:
                model.places[item.key] = place = (str(row["segment"]), int(str(row["offset"])))
                model.disk.setdefault(place[0], {})[place[1]] = item.key
        for item in fresh:
            model.queued[item.key[0]].append(item)
            model.accepted[item.key[0]].append(item)
        model.batches[self.batch] = Batch(end, len(fresh))
        model.resolved = max(model.resolved, resolved)
        model.hold({item.key[0] for item in fresh})

    @rule(seconds=st.floats(0, 4), days=st.sampled_from([0, 0, 0, 1, -1]))
    def time_passes(self, seconds: float, days: int) -> None:
        self.now += seconds
        self.date += days

    @rule()
    def plan(self) -> None:
        round_ = self.ledger.plan(self.now, self.date)
        if round_ is None:
            self._check_that_nothing_is_due()
        else:
            self._take(round_)

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def some_files_land(self, data: st.DataObject) -> None:
        """Rounds answer in any order; of each lane's files the first few have landed, or none, or all."""
        round_ = self.under_way[data.draw(st.sampled_from(sorted(self.under_way)))]
        most = {lane: data.draw(st.integers(0, count)) for lane, count in Counter(round_.lane.tolist()).items()}
        self._answer(round_, most, {lane for lane in most if data.draw(st.booleans())})

    @precondition(lambda self: self.under_way)
    @rule()
    def a_round_lands(self) -> None:
        round_ = self.under_way[min(self.under_way)]
        self._answer(round_, Counter(round_.lane.tolist()))

    @precondition(lambda self: not self.ledger.planner.closing and self.ledger.spool.may_wake())
    @precondition(lambda self: self.model.resolved < self.ts and not self.waiting)
    @rule(table=st.sampled_from(TABLES), length=SIZES)
    def a_transaction_goes_on_in_the_next_batch(self, table: int, length: int) -> None:
        """It may, unless one of its parts has the insert of a split update."""
        accepted, room = self.model.accepted[table], self.ledger.reading.room_bytes
        if not accepted or accepted[-1].ts != self.ts or (room is not None and length + ITEM_BYTES > room):
            return
        if room is None:
            self.largest = max(self.largest, length + ITEM_BYTES)
        self.batch += 1
        item = self._item(table, length, 0)
        before = [part.key[1] for part in accepted if part.ts == self.ts and part.batch == accepted[-1].batch]
        if _has_moved_insert(before[-1]) or _has_moved_insert(item.key[1]):
            rows = pa.Table.from_pylist([_row(item, self.batch, Counter(), self.names)], schema=ITEMS)
            with pytest.raises(BadEvents, match="came in two micro-batches"):
                self.ledger.accept(self.batch, rows, self.now, f"end-{self.batch}", 0)
        else:
            self._accept([item], [item], 0, 0)

    @precondition(lambda self: not self.ledger.planner.closing and not self.waiting)
    @rule(times=st.integers(1, 8), small=st.integers(1, 300), hangs=st.booleans())
    def one_table_cannot_be_written(self, times: int, small: int, hangs: bool) -> None:
        """Batch after batch brings a little of it along with what lands, so it pins segment after segment."""
        for _ in range(times):
            if not self.ledger.spool.may_wake():
                return
            self.batch += 1
            self.ts += 1
            fresh = [self._item(1, small, 0), self._item(2, 800, 0)]
            self._accept(fresh, fresh, 0, 0)
            self.now += self.limits.age_bound_s
            while (round_ := self.ledger.plan(self.now, self.date)) is not None:
                self._take(round_)
                lane = int(self.ledger.queues.dispatchers.lane[self.ledger.queues.find(*np.array([[1], [0]]))[0]])
                most = {other: count * (other != lane) for other, count in Counter(round_.lane.tolist()).items()}
                self._answer(round_, most, {lane} if hangs else NONE)

    @precondition(lambda self: self.move is None)
    @rule()
    def begin_a_move(self) -> None:
        """Only under pressure, and only whole segments of what cannot land now and nobody reads."""
        self.move = move = self.ledger.remains()
        if move is None:
            return
        model, queues = self.model, self.ledger.queues
        assert self.ledger.spool.under_pressure()
        assert self.ledger.remains() is None, "one at a time"
        model.moving = {key: model.places[key] for key in self._keys(move.slots)}
        assert not model.moving.keys() & self._read_now()
        pinned = {segment for segment, _ in model.moving.values()}
        assert {item.key for item in model.pending() if model.places[item.key][0] in pinned} == model.moving.keys()
        assert not self.ledger.planner.ready.among(np.unique(queues.items.dispatcher[move.slots]).astype(np.int64)).size

    @precondition(lambda self: self.move is not None)
    @rule(done=st.sampled_from([True, True, False]))
    def end_a_move(self, done: bool) -> None:
        """What is read by now, or has landed, stays where it is; without places nothing has moved."""
        assert self.move is not None
        model, moving, copies = self.model, self.model.moving, dict[Key, tuple[str, int]]()
        for key, place in moving.items():
            assert model.disk[place[0]][place[1]] == key, "its bytes stood there all the time"
        if done:
            self.moves += 1
            copies = model.gather(f"move-{self.moves}")
        freed = self.ledger.moved(self.move, [Copy(segment, 1, offset) for segment, offset in copies.values()])
        stays = self._read_now()
        pending = {item.key for item in model.pending()}
        model.places |= {key: place for key, place in copies.items() if key in pending - stays}
        self.move, model.moving = None, {}
        model.delete(freed)

    def _keys(self, slots: Numbers) -> list[Key]:
        queues = self.ledger.queues
        tables = queues.dispatchers.table_id[queues.items.dispatcher[slots]].tolist()
        return list(zip(tables, queues.items.first_seq[slots].tolist(), strict=True))

    def _read_now(self) -> set[Key]:
        return {key for round_ in self.under_way.values() for key in self._keys(round_.slots)}

    @rule(chance=st.integers(0, 29))
    def close(self, chance: int) -> None:
        self.ledger.planner.closing |= chance == 17

    # -- what must hold ------------------------------------------------------------------------------------------

    def _take(self, round_: Round) -> None:
        """A new round takes the fronts of queues; a retry is what failed, alone and unchanged."""
        busy = {lane for other in self.under_way.values() for lane in other.lane.tolist()}
        assert not busy & set(round_.lane.tolist()), "one landing a lane"
        assert len(set(round_.dispatcher.tolist())) <= self.limits.round_tables
        if round_.reason[0] in ("interval", "delay", "fanout", "bytes_cap") and not self.ledger.planner.closing:
            self._check_age(round_)
        for i in range(len(round_)):
            file = self._file(round_, i)
            if round_.attempt:
                assert self.files[int(round_.plan[i])] == file
            else:
                self._check_front(file)
                self._check_number(file)
                self._check_path(file)
                self.files[int(round_.plan[i])] = file
        if apart := set(round_.lane.tolist()) & self.hung:
            assert set(round_.lane.tolist()) == apart, "what hung comes apart from the others"
            assert not any(other.suspect for other in self.under_way.values()), "and one such round at a time"
            self.hung -= apart
        self.under_way[round_.id] = round_

    def _check_age(self, round_: Round) -> None:
        for table in self.ledger.queues.dispatchers.table_id[round_.dispatcher].tolist():
            oldest = self.model.queued[table][0].accepted
            assert self.now - oldest >= self.limits.age_bound_s - 1e-6, "nothing lands early by age"

    def _file(self, round_: Round, i: int) -> File:
        queues, slots = self.ledger.queues, round_.slots[round_.bounds[i] : round_.bounds[i + 1]]
        tables = queues.dispatchers.table_id[queues.items.dispatcher[slots]].tolist()
        keys = tuple(zip(tables, queues.items.first_seq[slots].tolist(), strict=True))
        assert set(tables) == {int(queues.dispatchers.table_id[round_.dispatcher[i]])}
        assert int(round_.bytes[i]) == int(queues.items.length[slots].sum())
        lane, own = int(round_.lane[i]), bool(self.ledger.queues.lanes.own[round_.lane[i]])
        return lane, int(round_.number[i]), int(round_.version[i]), int(round_.date[i]), own, keys

    def _check_front(self, file: File) -> None:
        _, _, version, _, _, keys = file
        queue = self.model.queued[keys[0][0]]
        front, self.model.queued[keys[0][0]] = queue[: len(keys)], queue[len(keys) :]
        assert tuple(item.key for item in front) == keys, "the front of the queue, in order"
        assert {item.version for item in front} == {version}
        for item in front:
            self.model.planned[item.key] = item
        rest = self.model.queued[keys[0][0]]
        if rest and rest[0].ts == front[-1].ts and rest[0].batch == front[-1].batch:
            whole = [item for item in self.model.accepted[keys[0][0]] if item.ts == front[-1].ts]
            assert sum(item.length for item in whole) > self.limits.file_size_bytes, "only a large transaction is cut"

    def _check_number(self, file: File) -> None:
        lane, number, version, date, own, _ = file
        assert number == self.numbers.get((lane, version, date, own), 0) + 1, "no gap and no repeat"
        self.numbers[lane, version, date, own] = number
        furthest = self.lane_at.get(lane, (0, 0))
        assert version >= furthest[0]
        assert date >= furthest[1]
        self.lane_at[lane] = (version, date)

    def _check_path(self, file: File) -> None:
        """No path is given twice, and a reader that keeps a mark for each partition of a name drops nothing."""
        lane, number, version, date, is_own, keys = file
        table, name = keys[0][0], self.names[LOGICAL[keys[0][0]]]
        own = table if is_own or (table != LOGICAL[table] and not self.shared) else 0
        assert self.paths.setdefault((name, version, own, date, number), lane) == lane
        if not self.shared:  # there TiCDC's own partitions go back and forth, too
            first_ts, last_ts = (self.model.planned[key].ts for key in (keys[0], keys[-1]))
            assert first_ts >= self.marks.get((name, own), 0)
            self.marks[name, own] = last_ts

    def _answer(self, round_: Round, most: dict[int, int], hung: frozenset[int] | set[int] = NONE) -> None:
        model, seen, landed = self.model, Counter[int](), []
        for lane in round_.lane.tolist():
            seen[lane] += 1
            landed.append(seen[lane] <= most[lane])
        keys = [key for i, done in enumerate(landed) if done for key in self._file(round_, i)[5]]
        is_hung = np.isin(round_.lane, list(hung)) & ~np.array(landed)
        durable = self.ledger.receive(round_, np.array(landed), self.now, 0.1, hung=is_hung)
        self.hung |= set(round_.lane[is_hung].tolist())
        del self.under_way[round_.id]
        items = [model.planned.pop(key) for key in keys]
        for item in items:
            model.landed[item.key[0]].append(item)
            model.batches[item.batch].left -= 1
        assert sorted(durable.ages_s.tolist()) == sorted(self.now - item.accepted for item in items)
        rows = sum(_rows(item.key[1]) for item in items)
        assert (durable.rows, durable.bytes) == (rows, sum(item.length for item in items))
        model.delete(durable.segments)
        model.hold({item.key[0] for item in items})

    def _check_that_nothing_is_due(self) -> None:
        """No plan means: every queue that is due waits for its own lane."""
        ds, lanes, spool = self.ledger.queues.dispatchers, self.ledger.queues.lanes, self.ledger.spool
        known = ds.table_id[: ds.size].tolist()
        free = [q for t, q in self.model.queued.items() if q and not lanes.busy[ds.lane[known.index(t)]]]
        assert all(self.now - queue[0].accepted < self.limits.age_bound_s + 1e-6 for queue in free)
        assert not (free and self.ledger.planner.closing)
        if not self.shared:  # there a queue may also wait for an older version
            assert all(sum(item.length for item in queue) < self.limits.file_size_bytes for queue in free)
        under_way = sum(int(round_.bytes.sum()) for round_ in self.under_way.values())
        assert not free or not spool.under_pressure() or spool.excess() <= under_way

    @invariant()
    def accounting_is_exact(self) -> None:
        model, spool = self.model, self.ledger.spool
        pending = model.pending()
        assert spool.occupied_bytes == model.occupied()
        assert spool.items == len(pending)
        assert self.ledger.accounts.in_flight == len(model.planned)
        assert self.ledger.queues.queued == len(pending) - len(model.planned)
        assert self.ledger.accounts.durable_items == sum(map(len, model.landed.values()))
        assert self.ledger.reading.held_tables == model.held_tables
        gone = model.segment_bytes.keys() - model.pinned()
        assert sorted(model.freed) == sorted(gone), "freed exactly when nothing refers to it, once"

    @invariant()
    def the_spool_keeps_its_size(self) -> None:
        """Not even by one transaction, except one that is larger than the whole spool and came when it was empty."""
        assert self.ledger.spool.occupied_bytes <= self.largest

    @invariant()
    def every_item_is_found_at_its_place(self) -> None:
        model, items, spool = self.model, self.ledger.queues.items, self.ledger.spool
        live = np.flatnonzero(items.first_ts[: items.size] != NOTHING_PENDING)
        at = zip(items.segment[live].tolist(), items.offset[live].tolist(), strict=True)
        found = dict(zip(self._keys(live), ((spool.path(segment), offset) for segment, offset in at), strict=True))
        assert found == {item.key: model.places[item.key] for item in model.pending()}
        assert all(model.disk[segment][offset] == key for key, (segment, offset) in found.items())

    @invariant()
    def wakes_are_held_by_hysteresis(self) -> None:
        model, held = self.model, self.model.occupied()
        model.over = held > 0.8 * LIMITS.spool_max_bytes or (model.over and held > 0.6 * LIMITS.spool_max_bytes)
        assert self.ledger.spool.may_wake() == (not model.over)

    @invariant()
    def files_of_a_table_land_in_order(self) -> None:
        for table, landed in self.model.landed.items():
            assert landed == self.model.accepted[table][: len(landed)]

    @invariant()
    def the_checkpoint_is_never_early_and_never_goes_back(self) -> None:
        model = self.model
        first = min((item.ts for item in model.pending()), default=1 << 62)
        model.checkpoint = max(model.checkpoint, min(model.resolved, first - 1))
        assert self.ledger.checkpoint() == model.checkpoint
        assert model.checkpoint < first

    @invariant()
    def the_position_stands_after_wholly_durable_batches(self) -> None:
        position = None
        for batch in self.model.batches.values():
            if batch.left:
                break
            position = batch.end
        assert self.ledger.progress.position == position

    def teardown(self) -> None:
        """Close; the store answers from now on: all is durable after at most one round for each file and lane."""
        if not hasattr(self, "ledger"):
            return
        self.ledger.planner.closing = True
        if self.move is not None:
            self.end_a_move(done=True)
        for round_ in list(self.under_way.values()):
            self._answer(round_, Counter(round_.lane.tolist()))
        for _ in range(2 * sum(map(len, self.model.accepted.values())) + len(TABLES) + 60):
            if self.ledger.idle:
                break
            self.now += 1.0
            if (planned := self.ledger.plan(self.now, self.date)) is not None:
                self._take(planned)
                self._answer(planned, Counter(planned.lane.tolist()))
        assert self.ledger.idle, "no deadlock"
        assert self.model.landed == self.model.accepted, "everything, once, in order"
        self._check_the_end()

    def _check_the_end(self) -> None:
        self.accounting_is_exact()
        self.the_checkpoint_is_never_early_and_never_goes_back()
        self.the_position_stands_after_wholly_durable_batches()
        assert self.ledger.spool.occupied_bytes == 0
        assert self.ledger.planner.planned_bytes == 0
        assert self.ledger.checkpoint() == self.model.resolved
        by_lane = defaultdict[tuple[int, ...], list[int]](list)
        for lane, number, version, date, own, _ in self.files.values():
            by_lane[lane, version, date, own].append(number)
        for numbers in by_lane.values():
            assert all(b - a == 1 for a, b in pairwise([0, *sorted(numbers)])), "every number once"


def _rows(seq: int) -> int:
    """How many rows an item has: one or a few."""
    return seq % 3 + 1


def _has_moved_insert(seq: int) -> bool:
    """Whether an item has the insert of a split update."""
    return seq % 4 == 0


def _row(item: Item, batch: int, ends: Counter[str], names: dict[int, str]) -> dict[str, object]:
    """The item as ingest reports it, appended to its segment; one sent again comes in a segment of this batch."""
    segment = item.segment if item.batch == batch else f"{batch}-again"
    offset, ends[segment] = ends[segment], ends[segment] + item.length
    (table, seq), logical = item.key, LOGICAL[item.key[0]]
    return {
        "kind": "rows", "table_id": table, "span": 0, "logical_table_id": logical, "schema_name": "shop",
        "table_name": names[logical], "version": item.version, "layout": 7, "first_ts": item.ts, "first_seq": seq,
        "last_ts": item.ts, "last_seq": seq, "rows": _rows(seq), "tier": 1, "segment": segment, "offset": offset,
        "length": item.length, "checksum": 0, "moved": 3 * _has_moved_insert(seq),
    }  # fmt: skip


TestLedgerModel = LedgerMachine.TestCase
TestLedgerModel.settings = settings(
    deadline=None,
    print_blob=True,
    max_examples=3 * settings().max_examples,
    stateful_step_count=50,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
