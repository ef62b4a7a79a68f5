"""The ledger: the driver's one account of accepted items, planned files and durable changes.

Facts go in (a batch was accepted, a round answered), actions come out (plan a round, delete segments, hold a table).
Invariants:
1. Every accepted item becomes durable exactly once; what encodes to nothing or is a duplicate counts at once.
2. Items of one dispatcher never overlap and never decrease in (commit_ts, seq).
3. Neither the checkpoint nor the position passes anything that is not durable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidegate.control.barrier import Key, Write
from tidegate.control.blocking import WRITING, Block, Blocking
from tidegate.control.checkpoint import NOTHING_PENDING, Progress
from tidegate.control.columns import Ints, Numbers, after_or_equal, group_lasts, group_starts
from tidegate.control.dispatcher import Queues
from tidegate.control.limits import Limits
from tidegate.control.planner import Planner
from tidegate.control.rounds import Round
from tidegate.control.spool import Spool
from tidegate.control.versions import NOWHERE, Found, redirected, renumbered
from tidegate.errors import BadEvents, BrokenInvariant
from tidegate.format.ddl.events import DdlEvent
from tidegate.format.tables import SETTLED

_MOVE_BYTES = 256 << 20
_NEARLY_EMPTY = 0.5  # a segment of which at most this share is still held
_WORTH_MOVING = 1 / 64  # of the spool, freed by one move


class Ddl(NamedTuple):
    """A DDL as it came: the event, and the table whose dispatcher received it."""

    key: Key
    receiver: int
    event: DdlEvent


TOP = ("lag", "small-files", "bytes")


class TableLine(NamedTuple):
    """One table (or span) in a list of the first ones: how long its oldest change waits, and what it has landed."""

    table: str
    lag_s: float
    waiting_bytes: int
    files: int
    landed_bytes: int
    mean_file_bytes: int


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
    withdrawn: list[int] = field(default_factory=list)  # plan numbers that will never land
    dropped: list[str] = field(default_factory=list)  # tables whose files were left out: delivered before


@dataclass(frozen=True)
class Move:
    """Items that cannot land now and pin segments that are nearly empty otherwise: to be copied together."""

    slots: Numbers
    segments: Numbers  # by item, with its place there: a slot may hold another item before the move is over
    offsets: Ints
    lengths: Ints


@dataclass
class Ledger:
    limits: Limits
    shared_lanes: bool = False
    spans: int = 1  # dispatchers of a table
    queues: Queues = field(init=False)
    blocking: Blocking = field(init=False)
    spool: Spool = field(init=False)
    planner: Planner = field(init=False)
    progress: Progress = field(default_factory=Progress)
    in_flight: int = 0  # items planned and not yet durable
    accepted_items: int = 0
    durable_items: int = 0
    _held: set[int] = field(default_factory=set)  # dispatchers over their share of the spool
    _under_way: set[int] = field(default_factory=set)  # rounds planned and not yet answered
    _moving: bool = False
    _wheel: deque[tuple[float, Numbers]] = field(default_factory=deque)  # when to look whether state is still needed

    def __post_init__(self) -> None:
        self.queues = Queues(self.shared_lanes)
        self.spool = Spool(self.limits.spool_max_bytes)
        self.blocking = Blocking(self.queues, self.spans)
        self.planner = Planner(self.limits, self.queues, self.blocking)

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing is under way: all that was accepted is durable."""
        return self.queues.queued == 0 and self.in_flight == 0 and not self.blocking.blocks

    @property
    def only_frozen(self) -> bool:
        """All that is left waits for DDLs, and these for changes that have not come yet."""
        waiting = bool(self.blocking.blocks) and not self.blocking.writing
        return waiting and self.in_flight == 0 and self.planner.ready.none()

    @property
    def misses_changes(self) -> bool:
        """The first DDL lacks changes that have not come, and nothing but what is failing could free the spool."""
        if self.progress.resolved_ts >= self.blocking.unfinished_ts - 1 or not self.blocking.blocks:
            return False
        return self.in_flight == self.planner.retries.waiting_items and self.planner.ready.none()

    @property
    def held_tables(self) -> set[int]:
        """Ids of the tables that a source should not hand out now: one of their spans is over its share."""
        return set(self.queues.dispatchers.table_id[list(self._held)].tolist()) if self._held else set()

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
        dispatcher = self.queues.number(
            _ints(items, "table_id"), _ints(items, "span"), _ints(items, "logical_table_id")
        )
        first, last = (
            (_ints(items, "first_ts"), _ints(items, "first_seq")),
            (_ints(items, "last_ts"), _ints(items, "last_seq")),
        )
        order = np.lexsort((first[1], first[0], dispatcher))
        stale = self._stale(dispatcher, last)
        order = order[~stale[order]]
        self._refuse_disorder(items, dispatcher, first, last, order)
        self._refuse_older_versions(items, dispatcher, order)
        self._refuse_resolved(items, order)
        empty = _ints(items, "length")[order] == 0
        order = order[~empty]
        self._place(items, dispatcher, order)
        blocks = self._block(batch, ddls, now)
        self._refuse_cut_chunks(items, dispatcher, first[0], last[0], order)
        self._rename(items, dispatcher, order)
        segments, dropped = self._open_segments(items, order)
        slots = self._store(batch, items, now, dispatcher, order, segments)
        grouped = dispatcher[order]
        self._mark_accepted(slots, grouped)
        owners = grouped[group_starts(grouped)]
        self.use(owners, now)
        self.planner.due.activated(self.queues.append(slots, grouped), now)
        self.planner.due.grown(owners)
        if self.blocking.blocks:
            for block in blocks:
                self.use(block.members, now)
            touched = [self.blocking.notice(block) for block in blocks]
            self.planner.due.drain(np.unique(np.concatenate([owners, *touched])))
        self.progress.accepted(batch, len(slots) + len(blocks), end, resolved_ts)
        self.accepted_items += len(slots) + int(empty.sum())
        self.durable_items += int(empty.sum())
        length, rows = self.queues.items.length[slots], self.queues.items.rows[slots]
        return Accepted(int(rows.sum()), int(length.sum()), len(slots), int(stale.sum()), dropped)

    def _block(self, batch: int, ddls: Sequence[Ddl], now: float) -> list[Block]:
        """Markers for these DDLs; one at or below the checkpoint was over before a restart, a repeat is none."""
        if not ddls:
            return []
        self.blocking.forget(self.progress.checkpoint_ts)
        due = {ddl.key: ddl for ddl in sorted(ddls, key=lambda ddl: ddl.key) if self._is_due(ddl)}
        self._refuse_unclear_ddls(ddls, due)
        blocks = [self.blocking.arrive(ddl.key, ddl.receiver, ddl.event, batch, now) for ddl in due.values()]
        return [block for block in blocks if block is not None]

    def _is_due(self, ddl: Ddl) -> bool:
        return ddl.key.ts > self.progress.checkpoint_ts and not self.blocking.knows(ddl.key)

    def _refuse_unclear_ddls(self, ddls: Sequence[Ddl], due: Mapping[Key, Ddl]) -> None:
        """A DDL must come before its resolved mark, and its commit-ts and seq must be its own."""
        for ddl in ddls:
            if ddl.key in due and ddl.key.ts <= self.progress.resolved_ts:
                raise BadEvents(
                    f"the DDL `{ddl.event.query:.120}` of commit-ts {ddl.key.ts} follows the resolved mark "
                    f"{self.progress.resolved_ts}; a source sends a resolved row when nothing at or below it follows"
                )
            other = due[ddl.key] if ddl.key in due else self.blocking.blocks.get(ddl.key)
            if other is not None and other.event != ddl.event:
                raise BadEvents(
                    f"two DDLs have commit-ts {ddl.key.ts} and seq {ddl.key.seq}: `{other.event.query:.120}` and "
                    f"`{ddl.event.query:.120}`; a source gives each its own seq"
                )

    def _place(self, items: pa.Table, dispatcher: Numbers, order: Numbers) -> None:
        """The database of a table that comes for the first time; only DDLs move it to another."""
        first = order[group_starts(dispatcher[order])]
        schema_id, ds = items["schema_id"].fill_null(0).to_numpy(), self.queues.dispatchers
        unknown = first[ds.schema_id[dispatcher[first]] == 0]
        ds.schema_id[dispatcher[unknown]] = schema_id[unknown]

    def _stale(self, dispatcher: Numbers, last: tuple[Ints, Ints]) -> NDArray[np.bool_]:
        ds = self.queues.dispatchers
        return after_or_equal(ds.accepted_ts[dispatcher], ds.accepted_seq[dispatcher], *last)

    def _refuse_disorder(
        self, items: pa.Table, dispatcher: Numbers, first: tuple[Ints, Ints], last: tuple[Ints, Ints], order: Numbers
    ) -> None:
        """Each item must begin after the one before it of its dispatcher, and after all accepted before."""
        ds, owner = self.queues.dispatchers, dispatcher[order]
        begins = group_starts(owner)
        before_ts, before_seq = np.roll(last[0][order], 1), np.roll(last[1][order], 1)
        before_ts[begins], before_seq[begins] = ds.accepted_ts[owner[begins]], ds.accepted_seq[owner[begins]]
        bad = np.flatnonzero(after_or_equal(before_ts, before_seq, first[0][order], first[1][order]))
        if len(bad):
            at = int(order[bad[0]])
            raise BadEvents(
                f"table {items['schema_name'][at]}.{items['table_name'][at]}: changes from commit-ts {first[0][at]}, "
                f"seq {first[1][at]} overlap or precede commit-ts {before_ts[bad[0]]}, seq {before_seq[bad[0]]} that "
                "was accepted before; the source must hand out each table in (commit_ts, seq) order"
            )

    def _refuse_older_versions(self, items: pa.Table, dispatcher: Numbers, order: Numbers) -> None:
        """A version that comes back would start the numbers of its directory at 1 again."""
        owner, version = dispatcher[order], _ints(items, "version")[order]
        begins = group_starts(owner)
        before = np.roll(version, 1)
        before[begins] = self.queues.dispatchers.version[owner[begins]]
        bad = np.flatnonzero(version < before)
        if len(bad):
            at = int(order[bad[0]])
            raise BadEvents(
                f"table {items['schema_name'][at]}.{items['table_name'][at]}: version {version[bad[0]]} at commit-ts "
                f"{items['first_ts'][at]} follows version {before[bad[0]]}; a source must never go back to an older "
                "table_version"
            )

    def _refuse_resolved(self, items: pa.Table, order: Numbers) -> None:
        """The checkpoint may have passed whatever lies at or below a resolved mark of an earlier batch."""
        ts, resolved_ts = _ints(items, "first_ts"), self.progress.resolved_ts
        late = order[ts[order] <= resolved_ts]
        if len(late):
            at = int(late[0])
            raise BadEvents(
                f"table {items['schema_name'][at]}.{items['table_name'][at]}: a change of commit-ts {ts[at]} follows "
                f"the resolved mark {resolved_ts}; a source sends a resolved row when nothing at or below it follows"
            )

    def _refuse_cut_chunks(
        self, items: pa.Table, dispatcher: Numbers, first_ts: Ints, last_ts: Ints, order: Numbers
    ) -> None:
        """A chunk that stands on both sides of a marker could neither land nor wait."""
        found = self.blocking.cut_chunk(dispatcher[order], first_ts[order], last_ts[order])
        if found is not None:
            at, ts = int(order[found[0]]), found[1]
            raise BadEvents(
                f"table {items['schema_name'][at]}.{items['table_name'][at]}: changes from commit-ts {first_ts[at]} to "
                f"{last_ts[at]} stand in one chunk although a DDL of commit-ts {ts} comes between them; a source must "
                "end a micro-batch at a DDL that leaves the table's version as it is"
            )

    def _rename(self, items: pa.Table, dispatcher: Numbers, order: Numbers) -> None:
        version = _ints(items, "version")
        ds = self.queues.dispatchers
        changed = order[version[order] != ds.version[dispatcher[order]]]
        if not len(changed):
            return
        schemas, tables = (
            items[name].combine_chunks().take(pa.array(changed)) for name in ("schema_name", "table_name")
        )
        logical_id = _ints(items, "logical_table_id")[changed]
        self.queues.rename_from(version[changed], dispatcher[changed], schemas, tables, logical_id)
        ds.version[dispatcher[changed]] = version[changed]

    def _open_segments(self, items: pa.Table, order: Numbers) -> tuple[Numbers, list[str]]:
        """Number the segments of the kept items; returns a number per item and the segments that no item refers to."""
        names = items["segment"].combine_chunks().dictionary_encode()
        if isinstance(names, pa.ChunkedArray):
            names = names.combine_chunks()
        codes = names.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        paths = names.dictionary.to_pylist()
        end = np.zeros(len(paths), np.int64)
        np.maximum.at(end, codes, _ints(items, "offset") + _ints(items, "length"))
        tier = np.zeros(len(paths), np.int64)
        tier[codes] = _ints(items, "tier")
        used = np.flatnonzero(np.bincount(codes[order], minlength=len(paths)))
        numbers = np.full(len(paths), -1, np.int64)
        numbers[used] = self.spool.open_segments([paths[i] for i in used], end[used].tolist(), tier[used].tolist())
        dropped = [path for i, path in enumerate(paths) if numbers[i] < 0]
        return numbers[codes], dropped

    def _store(
        self, batch: int, items: pa.Table, now: float, dispatcher: Numbers, order: Numbers, segments: Numbers
    ) -> Numbers:
        table, slots = self.queues.items, self.queues.items.allocate(len(order))
        for name in ("version", "layout", "first_ts", "first_seq", "last_ts", "last_seq", "rows", "offset", "length"):
            getattr(table, name)[slots] = _ints(items, name)[order]
        table.dispatcher[slots], table.segment[slots] = dispatcher[order], segments[order]
        table.accepted[slots], table.batch[slots] = now, batch
        self.spool.add_items(segments[order], table.length[slots])
        return slots

    def _mark_accepted(self, slots: Numbers, dispatcher: Numbers) -> None:
        items, ds = self.queues.items, self.queues.dispatchers
        starts = group_starts(dispatcher)
        ends = group_lasts(starts, len(slots))
        owners = dispatcher[ends]
        ds.accepted_ts[owners], ds.accepted_seq[owners] = items.last_ts[slots[ends]], items.last_seq[slots[ends]]
        np.add.at(ds.unacked, dispatcher, items.length[slots])
        self._hold(owners)

    def _hold(self, dispatcher: Numbers) -> None:
        """A dispatcher over its share of the spool is held until it is down to half of it."""
        ds, share = self.queues.dispatchers, self.limits.spool_max_bytes * self.limits.dispatcher_share
        unacked = ds.unacked[dispatcher]
        self._held.update(dispatcher[unacked > share].tolist())
        if self._held:
            self._held.difference_update(dispatcher[unacked <= share / 2].tolist())

    # -- durable -------------------------------------------------------------------------------------------------

    def plan(self, now: float, date: int) -> Round | None:
        round_ = self.planner.plan(now, date, self.spool)
        if round_ is not None:
            self._under_way.add(round_.id)
            self.queues.items.reading[round_.slots] = True
            if round_.attempt == 0:
                self.in_flight += len(round_.slots)
                np.add.at(self.queues.dispatchers.flying, self.queues.items.dispatcher[round_.slots], 1)
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
        if len(landed) != len(round_):
            raise BrokenInvariant(f"round {round_.id} has {len(round_)} files but {len(landed)} receipts")
        if round_.id not in self._under_way:
            raise BrokenInvariant(f"round {round_.id} was answered twice")
        if (landed[1:] & ~landed[:-1] & (round_.lane[1:] == round_.lane[:-1])).any():
            raise BrokenInvariant(f"round {round_.id}: a file landed before an earlier one of its lane")
        self._under_way.remove(round_.id)
        self.planner.answered(round_)
        self.queues.items.reading[round_.slots] = False
        lanes = self.queues.lanes
        put = (round_.schema != SETTLED) & landed
        lanes.schema_version[round_.lane[put]] = round_.version[put]
        owners = round_.dispatcher[landed]
        np.add.at(self.queues.dispatchers.files, owners, 1)
        np.add.at(self.queues.dispatchers.landed, owners, round_.bytes[landed])
        moved, dropped = self._redirect(round_, elsewhere, now)
        failed = ~landed & ~dropped & ~moved
        over = ~np.isin(round_.lane, np.unique(round_.lane[failed | moved]))
        self.planner.landed(round_, landed, over)
        durable = self._durable(round_.items_of(landed), now)
        self._durable(round_.items_of(dropped), now, durable)
        if failed.any():
            self.planner.retries.failed(round_, failed, np.zeros(len(round_), np.bool_) if hung is None else hung, now)
        durable.withdrawn.extend(round_.plan[moved | dropped].tolist())
        durable.dropped.extend(self.queues.name(owner) for owner in np.unique(round_.dispatcher[dropped]).tolist())
        self.planner.pace.measure(int(round_.bytes[landed].sum()), int(landed.sum()), seconds)
        return durable

    def _redirect(
        self, round_: Round, elsewhere: Mapping[int, Found], now: float
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """The files that are planned again in another directory, and those that are dropped."""
        found = redirected(self.queues, round_, elsewhere)
        if found.destinations:
            again = renumbered(self.queues, round_, found.destinations, self.planner.numbering)
            self.planner.retries.add(again, now)
        return np.isin(round_.lane, list(found.destinations)), np.isin(round_.lane, found.dropped)

    def _durable(self, slots: Numbers, now: float, before: Durable | None = None) -> Durable:
        """These items are durable; with `before`, they only free what they held and count for nothing else."""
        items, ds = self.queues.items, self.queues.dispatchers
        ages = now - items.accepted[slots]
        owners = items.dispatcher[slots].astype(np.int64)
        lengths = items.length[slots]
        np.subtract.at(ds.unacked, owners, lengths)
        np.subtract.at(ds.flying, owners, 1)
        # Slots come in order, so the last assignment of an owner is its furthest change.
        ds.durable_ts[owners], ds.durable_seq[owners] = items.last_ts[slots], items.last_seq[slots]
        freed = self.spool.release_items(items.segment[slots].astype(np.int64), lengths)
        rows, batches = int(items.rows[slots].sum()), items.batch[slots].copy()
        items.free(slots)
        self.progress.durable(batches)
        self._hold(np.unique(owners))
        self.in_flight -= len(slots)
        self.durable_items += len(slots)
        if before is not None:
            before.segments.extend(freed)
            return before
        return Durable(freed, ages, rows, int(lengths.sum()))

    def remains(self) -> Move | None:
        """What to copy together under pressure: a little that cannot land and pins much of the spool."""
        spool, items = self.spool, self.queues.items
        if self._moving or not spool.under_pressure():
            return None
        live = items.live()
        most = min(_MOVE_BYTES, spool.max_bytes // 16)
        live = live[np.isin(items.segment[live], spool.emptiest(spool.excess(), _NEARLY_EMPTY, most))]
        owners = items.dispatcher[live].astype(np.int64)
        fixed = items.reading[live] | ~np.isin(owners, self.planner.ready.stuck(np.unique(owners)))
        live = live[~np.isin(items.segment[live], np.unique(items.segment[live[fixed]]))]
        # Whole segments only, for one of which something is left is not freed; those that hold least come first.
        held = np.bincount(items.segment[live], items.length[live])
        live = live[np.lexsort((items.segment[live], held[items.segment[live]]))]
        left = np.cumsum(items.length[live]) > most
        live = live[~np.isin(items.segment[live], items.segment[live[left]])]
        segments = items.segment[live].astype(np.int64)
        if spool.wasted(np.unique(segments)) < spool.max_bytes * _WORTH_MOVING:
            return None
        self._moving = True
        spool.pin(np.unique(segments))
        return Move(live, segments, items.offset[live], items.length[live])

    def moved(self, move: Move, places: Sequence[tuple[str, int, int]]) -> list[str]:
        """The items of a move stand at these (path, tier, offset) too; returns what can be deleted now.

        What was planned, or has landed, since the move began stays where it is read. Without places nothing moved.
        """
        self._moving = False
        items, spool = self.queues.items, self.spool
        freed: list[str] = []
        if places:
            here = (items.first_ts[move.slots] != NOTHING_PENDING) & (items.segment[move.slots] == move.segments)
            here &= ~items.reading[move.slots]
            slots, lengths = move.slots[here], items.length[move.slots[here]]
            ends: dict[str, tuple[int, int]] = {}
            for (path, tier, offset), length in zip(places, move.lengths.tolist(), strict=True):
                ends[path] = (max(offset + length, ends.get(path, (0, 0))[0]), tier)
            chosen = [place for place, kept in zip(places, here.tolist(), strict=True) if kept]
            used = sorted({path for path, _, _ in chosen})
            numbers = spool.open_segments(used, [ends[p][0] for p in used], [ends[p][1] for p in used])
            target = numbers[[used.index(path) for path, _, _ in chosen]] if chosen else numbers
            spool.add_items(target, lengths)
            freed += spool.release_items(move.segments[here], lengths)
            items.segment[slots], items.offset[slots] = target, [offset for _, _, offset in chosen]
            freed += [path for path in ends if path not in used]
        return freed + spool.unpin(np.unique(move.segments))

    def use(self, dispatcher: Numbers, now: float) -> None:
        """These are needed now, and will be looked at when they may no longer be."""
        ds = self.queues.dispatchers
        ds.used[dispatcher] = now
        fresh = dispatcher[~ds.wheeled[dispatcher]]
        if len(fresh):
            ds.wheeled[fresh] = True
            self._wheel.append((now + self.limits.state_ttl_s, fresh))

    def expire(self, now: float) -> int:
        """Give up the state of tables that got no change for so long; returns how many. Visits only those due."""
        ds, lanes, gone = self.queues.dispatchers, self.queues.lanes, 0
        if self.shared_lanes:  # several tables would lose one lane
            return 0
        concerned = [block.members for block in self.blocking.blocks.values()]
        while self._wheel and self._wheel[0][0] <= now:
            _, numbers = self._wheel.popleft()
            numbers = numbers[ds.wheeled[numbers] & (ds.table_id[numbers] > 0)]
            lane = ds.lane[numbers]
            idle = (ds.head[numbers] < 0) & (ds.flying[numbers] == 0) & ~lanes.busy[lane] & ~lanes.owed[lane]
            idle &= (ds.used[numbers] + self.limits.state_ttl_s <= now) & ~lanes.look[lane]
            idle &= ds.durable_ts[numbers] <= self.progress.checkpoint_ts
            idle &= ~np.isin(numbers, np.concatenate(concerned)) if concerned else True
            self.queues.drop(numbers[idle])
            gone += int(idle.sum())
            if (~idle).any():
                self._wheel.append((now + self.limits.state_ttl_s, numbers[~idle]))
        return gone

    def top(self, by: str, k: int, now: float) -> list[TableLine]:
        """The k tables with the most of what is asked for: one of `TOP`. Costs a look at the columns, so ask rarely."""
        ds, items = self.queues.dispatchers, self.queues.items
        live = items.live()
        waiting, at = np.unique(items.dispatcher[live], return_inverse=True)
        oldest = np.full(len(waiting), now)
        np.minimum.at(oldest, at, items.accepted[live])
        if by == "lag":
            numbers, score = waiting.astype(np.int64), now - oldest
        else:
            numbers = np.flatnonzero(ds.files[: ds.size])
            score = ds.landed[numbers].astype(float)
            score = -score / ds.files[numbers] if by == "small-files" else score
        best = numbers[np.argsort(-score, kind="stable")[:k]]
        ages = dict(zip(waiting.tolist(), (now - oldest).tolist(), strict=True)) if len(best) else {}
        return [
            TableLine(
                self.queues.name(n), ages.get(n, 0.0), int(ds.unacked[n]), int(ds.files[n]), int(ds.landed[n]),
                int(ds.landed[n] / max(1, ds.files[n])),
            )
            for n in best.tolist()
        ]  # fmt: skip

    # -- DDL -------------------------------------------------------------------------------------------------------

    def schema_writes(self, now: float) -> list[Write]:
        """The DDLs whose schema files are to be written now; each is told once."""
        return self.blocking.advance(self.progress.resolved_ts, now) if self.blocking.blocks else []

    def has_drained(self, key: Key) -> bool:
        """Whether all that this DDL touches have acknowledged its marker; a DDL that never came is an error."""
        block = self.blocking.blocks.get(key)
        if block is not None:
            return block.stage == WRITING
        if not self.blocking.knows(key) and key.ts > self.progress.checkpoint_ts:
            raise BrokenInvariant(f"no DDL of commit-ts {key.ts}, seq {key.seq} has come, so it cannot drain")
        return True

    def schema_written(self, write: Write) -> list[Block]:
        """A DDL's schema files stand: it is over, and what stood behind its markers goes on."""
        over = self.blocking.written(write)
        for block in over:
            self.planner.due.released(self.blocking.touched(block))
            self.progress.durable(np.array([block.batch]))
        return over

    def source_ended(self) -> None:
        """Nothing follows what was accepted, so all of it is resolved."""
        ds = self.queues.dispatchers
        accepted_ts = int(ds.accepted_ts[: ds.size].max(initial=0))
        last_ddl_ts = max((key.ts for key in self.blocking.blocks), default=0)
        self.progress.resolved_ts = max(self.progress.resolved_ts, accepted_ts, last_ddl_ts)

    def checkpoint(self) -> int:
        return self.progress.advance(min(self.queues.items.first_pending_ts(), self.blocking.unfinished_ts))


def _ints(items: pa.Table, name: str) -> Ints:
    array: Ints = items[name].to_numpy().astype(np.int64, copy=False)
    return array
