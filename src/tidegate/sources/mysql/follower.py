"""Follows the log of one server in the planner's process: answers how far to read, and makes the parts for tasks.

`begin` looks up where the source began, what is on record from there on and which tables there were, and starts the
pump. `latest` puts everything on record before it returns an offset (`windows`). That Spark asks for more behind an
offset says that all before it was accepted, so the relay lets go of it.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.errors import SourceUnavailable
from tidegate.events import EVENTS, LAYOUT
from tidegate.sources.mysql.address import NEVER, ONLY, Address
from tidegate.sources.mysql.chain import Chain
from tidegate.sources.mysql.connect import ServerFacts
from tidegate.sources.mysql.cursor import (
    Cursor,
    Names,
    Stand,
    advance,
    begun_items,
    chosen_rows,
    cursor_of,
    handed_bytes,
    resolved_ts,
    stand_of,
)
from tidegate.sources.mysql.ddl.agree import agree
from tidegate.sources.mysql.indexer import Indexer
from tidegate.sources.mysql.log.images import Numbers
from tidegate.sources.mysql.log.transactions import Assembler, file_number
from tidegate.sources.mysql.parts import Part, write_part
from tidegate.sources.mysql.place import Place as LogPlace
from tidegate.sources.mysql.pump import Pump
from tidegate.sources.mysql.records import Records
from tidegate.sources.mysql.relay import Relay
from tidegate.sources.mysql.schema import LogSchema
from tidegate.sources.mysql.snapshot.keeper import Keeper
from tidegate.sources.mysql.snapshot.notes import Notes
from tidegate.sources.mysql.tables import Tables
from tidegate.sources.mysql.watch import Watch
from tidegate.sources.mysql.windows import Place, Settler, Window
from tidegate.sources.source import Split

WAIT_S = 0.2  # for more of the log, before the answer is that there is nothing new
QUIET_S = 5.0  # after so long without changes, time alone is handed out
_LEAST_SPLIT_BYTES = 256 << 10  # less is not worth a task of its own


@dataclass
class Follower:
    address: Address
    records: Records
    schema: LogSchema
    pump: Pump
    first: Cursor  # where this process began
    snapshot: Keeper | None = None
    steady: Callable[[], float] = time.monotonic
    quiet_s: float = QUIET_S
    watch: Watch | None = None
    _handed: Place | None = None
    _handed_at: float = field(default_factory=time.monotonic)
    _part: int = 0
    _parts: list[tuple[int, str]] = field(default_factory=list)  # the commit-ts up to which a file is needed

    @property
    def chain(self) -> Chain:
        return self.pump.indexer.chain

    # -- how far -------------------------------------------------------------------------------------------------------

    def latest(self, start: Cursor, limit_bytes: int, held: frozenset[int]) -> Cursor:
        if self.snapshot is not None:
            self.snapshot.look(start.snap)
        with self.pump.lock:
            self._accepted(start)
            found = self._await(start, limit_bytes, held)
            reads = self.snapshot.hand_out(start.snap) if self.snapshot is not None else 0
            if found is None and reads == start.snap.get("reads", 0):
                return self._with_the_end_of_the_snapshot(start)
            before = stand_of(self.chain, start)
            stand, size = found or (before, 0)
            window = self._window()
            fresh = self.schema.take_fresh(self._end.position)
        self.schema.history.record(fresh)
        if window is not None:
            self.records.add(window)
        with self.pump.lock:
            self._handed_at = self.steady()
            end = cursor_of(self.chain, stand, start, self._names, size)
            self._handed = Place(file_number(end.file), end.at, end.ts)
            end = replace(end, record=self.records.number_of(end.first_place))
            if self.snapshot is None:
                return end
            parts = [self.chain.extras[item].chunk for item in self._extras(before, stand)]
            return replace(end, snap=self.snapshot.moved(start.snap, filter(None, parts), reads))

    def _with_the_end_of_the_snapshot(self, start: Cursor) -> Cursor:
        """Nothing is new but that the snapshot is over, which is worth an offset if nothing else is wanted."""
        if self.snapshot is None or self.address.snapshot != ONLY:
            return start
        snap = self.snapshot.moved(start.snap, (), int(start.snap.get("reads", 0)))
        return replace(start, snap=snap) if snap.get("over") and not start.snap.get("over") else start

    def _await(self, start: Cursor, limit_bytes: int, held: frozenset[int]) -> tuple[Stand, int] | None:
        """What to hand out; waits a little for it. None if there is nothing. The caller holds the lock."""
        until = self.steady() + WAIT_S
        while True:
            self._fail()
            before = stand_of(self.chain, start)
            self._tick_if_quiet(before)
            if self.snapshot is not None:
                self.snapshot.place(self.pump.reached, {*held, *before.behind}, limit_bytes, self._clock_at_end())
            after = advance(self.chain, before, limit_bytes, held)
            size = handed_bytes(self.chain, before, after)
            if after != before and (size or self._extras(before, after) or self._is_quiet):
                return after, size
            left = until - self.steady()
            if left <= 0 or (self.snapshot is not None and self.snapshot.has_reads):
                return None
            self.pump.lock.wait(left)

    @property
    def _is_quiet(self) -> bool:
        """Whether nothing was handed out for so long that the position alone is worth a micro-batch."""
        return self.steady() - self._handed_at >= self.quiet_s

    def _extras(self, before: Stand, after: Stand) -> list[int]:
        """The items between two stands that have more than row events, in order."""
        items = begun_items(self.chain, before, after)
        return sorted(item for item in self.chain.extras if item in items)

    def _clock_at_end(self) -> int | None:
        """The server's clock, if it has nothing more to send."""
        return self.pump.clock.ms() if self.pump.waits_since is not None else None

    def _tick_if_quiet(self, before: Stand) -> None:
        since, clock_ms = self.pump.waits_since, self.pump.clock.ms()
        at_end = before.spot.item == self.chain.items.end
        if at_end and since is not None and clock_ms is not None and self._is_quiet:
            self.pump.indexer.tick(clock_ms)

    def _fail(self) -> None:
        if self.pump.error is not None:
            raise self.pump.error

    @property
    def _end(self) -> Place:
        """Behind the last whole transaction."""
        return Place(*(self.chain.last(name) for name in ("file", "at", "ts")))

    def _window(self) -> Window | None:
        """All that is settled and not on record. The caller holds the lock."""
        settler = self.pump.indexer.settler
        return settler.window(self._end) if settler.is_live and self._end > settler.recorded_to else None

    @property
    def _names(self) -> Names:
        assembler = self.pump.indexer.assembler
        return Names(assembler.file.rpartition(".")[0] + ".", tuple(assembler.origins.texts))

    def reached(self) -> Place:
        """Up to where changes were handed out: what nobody follows, behind them, does not count."""
        with self.pump.lock:
            handed = self._handed or Place(self.chain.begin_file, self.chain.begin_at, self.chain.begin_ts)
            item = self.chain.item_after(handed.ts)
            if self.chain.of(item - 1, "rows_end") < self.chain.rows.end or any(i >= item for i in self.chain.extras):
                return handed
            return Place(*self.pump.indexer.assembler.position, max(handed.ts, self.chain.last("ts")))

    def state(self) -> dict[str, Any]:
        """What the status shows besides the lag."""
        with self.pump.lock:
            assembler, relay = self.pump.indexer.assembler, self.pump.indexer.relay
            shown: dict[str, Any] = {"position": f"{assembler.file}:{assembler.at}", "relay_bytes": relay.held_bytes}
            return shown | ({"snapshot": self.snapshot.state()} if self.snapshot is not None else {})

    def close(self) -> None:
        if self.watch is not None:
            self.watch.stop()
        self.pump.stop()
        with self.pump.lock:
            self.pump.indexer.relay.close()

    def durable(self, end: Cursor) -> None:
        """Nobody will read again what is before this cursor."""
        self.records.forget(end.record)
        if self.snapshot is not None:
            self.snapshot.durable(end.ts)
        if self.schema.history.wants_compaction():
            first = end.first_place
            self.schema.history.compact(LogPlace(self._names.file(first.file), first.at))

    # -- accepted ------------------------------------------------------------------------------------------------------

    def committed(self, end: Cursor) -> None:
        with self.pump.lock:
            self._accepted(end)

    def _accepted(self, cursor: Cursor) -> None:
        """Lets go of what is before this cursor, except for tables behind. The caller holds the lock."""
        chain, indexer = self.chain, self.pump.indexer
        stand = stand_of(chain, cursor)
        first = min([stand.spot.item, *chain.item_of(np.array([*stand.behind.values()], np.int64)).tolist()])
        if self.snapshot is not None:
            first = min(first, self.snapshot.first_needed(stand.spot.item))
        if first <= chain.items.first:
            return
        chain.release(first)
        segment = chain.rows.one("segment", chain.rows.first) if len(chain.rows) else indexer.relay.number
        indexer.relay.release(segment)
        for ts, path in [each for each in self._parts if each[0] <= cursor.ts]:
            Path(path).unlink(missing_ok=True)
            self._parts.remove((ts, path))
        self._forget_tables()
        self.pump.lock.notify_all()

    def _forget_tables(self) -> None:
        tables = self.pump.indexer.tables
        if len(tables.by_number) > 2 * len(tables) + 1000:
            tables.keep(np.unique(self.chain.rows["table"]).tolist())

    # -- parts for tasks -----------------------------------------------------------------------------------------------

    def splits(self, start: Cursor, end: Cursor, parallelism: int) -> list[Split]:
        with self.pump.lock:
            self._await_reached(end)
            before, after = stand_of(self.chain, start), stand_of(self.chain, end)
            rows = chosen_rows(self.chain, before, after)
            if self.snapshot is not None:
                rows = self.snapshot.without_wholes(rows, start.snap)
            control = self._control(before, after)
            parts = [self._part_of(chosen) for chosen in self._divided(rows, parallelism)]
            resolved = resolved_ts(self.chain, after)
            paths = [self._write(part, end.ts) for part in _with_control(parts, control)]
            of_snapshot = self._snapshot_splits(start, end, before, after)
        splits: list[Split] = [{"part": path} for path in paths]
        splits = [*splits, *of_snapshot()] or [{}]
        splits[-1]["resolved"] = resolved
        return splits

    def _snapshot_splits(self, start: Cursor, end: Cursor, before: Stand, after: Stand) -> Callable[[], list[Split]]:
        """What the snapshot adds. The caller holds the lock, but not when it calls what is returned."""
        keeper = self.snapshot
        if keeper is None:
            return list
        reads, emissions = keeper.splits(
            start.snap, end.snap, self._extras(before, after), lambda rows: self._write(self._part_of(rows), end.ts)
        )

        def finished() -> list[Split]:
            return [*({"emit": keeper.with_early(emission).to_json()} for emission in emissions), *reads]

        return finished

    def _await_reached(self, end: Cursor) -> None:
        """Another process may have handed this offset out: then the pump must get there first."""
        while self.chain.last("ts") < end.ts or (end.event and self.chain.last("ts") == end.ts):
            self._fail()
            if not self.pump.lock.wait(60.0):
                raise SourceUnavailable(f"the log of {self.address.endpoint} does not reach {end.file}:{end.at}")

    def _divided(self, rows: Numbers, parallelism: int) -> list[Numbers]:
        """About equal parts, cut where transactions end."""
        if not len(rows):
            return []
        sizes = np.cumsum(self.chain.rows["size"][rows - self.chain.rows.first])
        pieces = max(1, min(parallelism, int(sizes[-1]) // _LEAST_SPLIT_BYTES))
        goals = np.searchsorted(sizes, sizes[-1] * np.arange(1, pieces) / pieces)
        items = self.chain.item_of(rows)
        begins = np.flatnonzero(np.diff(items, prepend=-1))
        cuts = begins[np.minimum(np.searchsorted(begins, goals), len(begins) - 1)]
        bounds = sorted({0, len(rows), *cuts.tolist()})
        return [rows[a:b] for a, b in pairwise(bounds)]

    def _part_of(self, rows: Numbers) -> Part:
        chain, at = self.chain, rows - self.chain.rows.first
        columns = {name: chain.rows[name][at] for name in ("segment", "start", "size", "kind", "table", "ordinal")}
        ts = chain.items["ts"][chain.item_of(rows) - chain.items.first]
        relay, tables = self.pump.indexer.relay, self.pump.indexer.tables
        segments = {number: relay.path(number) for number in np.unique(columns["segment"]).tolist()}
        used = {number: tables.by_number[number] for number in np.unique(columns["table"]).tolist()}
        return Part(**columns, ts=ts, segments=segments, tables=used, control=_rows_of([]))

    def _control(self, before: Stand, after: Stand) -> pa.RecordBatch:
        """The DDLs between two stands, each behind the layouts that it names."""
        made = []
        for item in self._extras(before, after):
            for seq, ddl in enumerate(self.chain.extras[item].ddl):
                layouts = {layout.fingerprint: layout.to_json() for layout in ddl.layouts}
                made += [
                    {"kind": LAYOUT, "commit_ts": ddl.commit_ts, "seq": 0, "layout": key, "ddl": text}
                    for key, text in layouts.items()
                ]
                made.append(ddl.row(seq))
        return _rows_of(made)

    def _write(self, part: Part, until_ts: int) -> str:
        self._part += 1
        path = str(self.pump.indexer.relay.folder / f"part-{self._part:06d}.arrow")
        write_part(path, part)
        self._parts.append((until_ts, path))
        return path


def _rows_of(rows: list[dict[str, object]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=EVENTS)


def _with_control(parts: list[Part], control: pa.RecordBatch) -> list[Part]:
    """The first part also brings what comes as it is."""
    if not control.num_rows:
        return parts
    if not parts:
        none = np.zeros(0, np.int64)
        return [Part(none, none, none, none, none, none, none, {}, {}, control)]
    return [replace(parts[0], control=control), *parts[1:]]


def follow(
    address: Address,
    password: str,
    server: ServerFacts,
    records: Records,
    schema: LogSchema,
    start: Cursor,
    folder: Path,
) -> Follower:
    """Begins to read the log from the first place of this cursor on; the catalogue is the one there."""
    place = start.first_place
    base = start.file.rpartition(".")[0] + "."
    file = f"{base}{place.file:06d}"
    windows = records.load(start.record)
    settler = Settler(place, windows)
    relay = Relay(folder / uuid.uuid4().hex[:12])
    notes = Notes(records.store)
    indexer = Indexer(
        Chain(place.ts, place.file, place.at), relay, settler, Tables(agree), schema, Assembler(file, place.at),
        notes.describe,
    )  # fmt: skip
    pump = Pump(address, password, server, indexer, threading.Condition())
    follower = Follower(address, records, schema, pump, start)
    if address.snapshot != NEVER:
        virtual = (each for window in windows for each in window.virtual if each.place.ts > start.ts)
        recorded = sorted((each.place.ts, each.chunk) for each in virtual if each.chunk)
        begin = (file, place.at)
        follower.snapshot = Keeper(address, password, notes, indexer, pump.lock, start.snap, begin, recorded)
        follower.snapshot.start(pump)
    pump.start()
    follower.watch = Watch(address, password, pump, folder, follower.reached, follower.state)
    follower.watch.start()
    return follower
