"""Keeps the snapshot going, in the planner's process: what is read next, what gets a place in the log, what is emitted.

For each micro-batch: chunks whose borders are known are handed to tasks, which read and stage them (`stage`). When the
log that is at hand has passed the end of a chunk's read, its parts get a place behind all that is known of the log, as
transactions of their own with a commit-ts each, and are on record there (`windows`) before they are handed out. The
micro-batch that hands them out emits them (`tasks`).

The row events of a table are kept in the relay from the time its chunks are read until they are emitted and accepted.
All of this is done under the lock of the pump, except for what waits for the store or the server.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np

from tidegate.format.tables import Layout
from tidegate.sources.mysql.address import Address
from tidegate.sources.mysql.catalogue import Catalogue, TableEntry
from tidegate.sources.mysql.chain import Chain
from tidegate.sources.mysql.connect import connected
from tidegate.sources.mysql.indexer import Indexer
from tidegate.sources.mysql.log.images import Numbers
from tidegate.sources.mysql.log.transactions import file_number
from tidegate.sources.mysql.pump import Pump
from tidegate.sources.mysql.snapshot.background import Background, Borders, Chores, Wholes, Work
from tidegate.sources.mysql.snapshot.borders import ReadKey, has_key, key_of
from tidegate.sources.mysql.snapshot.notes import Notes
from tidegate.sources.mysql.snapshot.pace import Pace
from tidegate.sources.mysql.snapshot.progress import Progress
from tidegate.sources.mysql.snapshot.queue import PartName, Queue
from tidegate.sources.mysql.snapshot.stage import read_note
from tidegate.sources.mysql.snapshot.tasks import Emission, early_emission
from tidegate.sources.mysql.snapshot.visible import LogPlace, is_before
from tidegate.sources.mysql.tables import Followed
from tidegate.sources.source import Split

READS_AT_ONCE = 8  # chunks that one micro-batch reads
_KNOWN = 512  # tables that wait and are known by name, so that the catalogue is not searched for each

Snap = Mapping[str, Any]


@dataclass
class Keeper:
    """`recorded` are the parts that are on record behind the start, with their commit-ts.

    `begin` is where the relay begins.
    """

    address: Address
    password: str
    notes: Notes
    indexer: Indexer
    lock: threading.Condition
    snap: Snap
    begin: LogPlace
    recorded: Sequence[tuple[int, str]] = ()
    queue: Queue = field(default_factory=lambda: Queue(secrets.token_hex(3)))
    tip: Progress = field(default_factory=Progress)  # at the end of the log that is known
    pace: Pace = field(default_factory=Pace)
    reached: LogPlace = ("", 0)  # up to where the log is known
    _parts: list[tuple[int, str]] = field(default_factory=list)  # commit-ts and names of those that are not durable
    _chores: Chores = field(default_factory=Chores)
    _whole_layouts: dict[int, bool] = field(default_factory=dict)  # by fingerprint, whether there is no key
    _waiting_known: tuple[Catalogue, int, list[TableEntry]] | None = None

    def __post_init__(self) -> None:
        self.tip = Progress.from_json(self.snap)
        self.pace.rows = int(self.snap.get("rows", 0))
        self._parts = list(self.recorded)
        for _, name in self.recorded:
            self.tip = self.notes.after(self.tip, PartName.of(name))

    def start(self, pump: Pump) -> None:
        """Begins to look for borders, and to read tables without a key, until the pump ends."""
        pump.must_read = lambda: self.lacks
        kept = {str(PartName.of(name).chunk) for _, name in self.recorded}
        self._chores.todo.append(partial(self.notes.sweep, kept, self.queue.run))
        store, is_mariadb = self.notes.store, pump.server.is_mariadb
        wholes = Wholes(self.address, is_mariadb, store, self.queue, self.lock, self._known_place)
        works: dict[str, Work] = {"borders": Borders(self.address, self.queue, self.lock), "wholes": wholes}
        for name, work in (works | {"chores": self._chores}).items():
            Background(name, self.address, self.password, self.lock, lambda: pump.ends, work).start()

    def durable(self, ts: int) -> None:
        """All parts up to this commit-ts are durable: nobody will ask for them again."""
        with self.lock:
            over = [name for placed, name in self._parts if placed <= ts]
            self._parts = [(placed, name) for placed, name in self._parts if placed > ts]
        self._chores.todo.extend(partial(self.notes.forget, name) for name in over)

    def state(self) -> dict[str, Any] | None:
        """What the status shows while the snapshot is under way."""
        if self.tip.is_over(self.waiting):
            return None
        left = self.catalogue.count_waiting(self.tip.done) - sum(
            each.border is None for each in self.tip.begun.values()
        )
        return asdict(self.pace.state(self.queue, left, time.monotonic()))

    def _known_place(self) -> LogPlace:
        return self.indexer.assembler.file, self.indexer.assembler.at

    @property
    def lacks(self) -> bool:
        """Whether more of the log is needed, however much of it there is."""
        return self.queue.lacks(self.reached) if self.reached[0] else False

    @property
    def chain(self) -> Chain:
        return self.indexer.chain

    @property
    def catalogue(self) -> Catalogue:
        return self.indexer.schema.catalogue

    # -- progress ------------------------------------------------------------------------------------------------------

    def waiting(self, after: int, limit: int) -> list[TableEntry]:
        """`Catalogue.waiting`, which searches all tables, asked seldom."""
        catalogue, known = self.catalogue, self._waiting_known
        if (
            known is None
            or known[0] is not catalogue
            or after < known[1]
            or not self._is_enough(known[2], after, limit)
        ):
            known = self._waiting_known = (catalogue, after, catalogue.waiting(after, _KNOWN + limit))
        return [table for table in known[2] if table.table_id > after][:limit]

    @staticmethod
    def _is_enough(known: list[TableEntry], after: int, limit: int) -> bool:
        return len(known) < _KNOWN or sum(table.table_id > after for table in known) >= limit

    def moved(self, snap: Snap, parts: Iterable[str], reads: int) -> dict[str, Any]:
        """What an offset says about the snapshot when these parts were handed out, and chunks to read."""
        progress, emitted = Progress.from_json(snap), [PartName.of(name) for name in parts]
        for part in emitted:
            progress = self.notes.after(progress, part)
        settled = progress.settled(self.waiting)
        rows = int(snap.get("rows", 0)) + sum(self.notes.part(part).rows for part in emitted)
        over = {"over": True} if self.indexer.settler.is_live and settled.is_over(self.waiting) else {}
        return {**settled.to_json(), "reads": reads, "rows": rows, **over}

    # -- reading -------------------------------------------------------------------------------------------------------

    def look(self, snap: Snap) -> None:
        """Finds out what the tasks of the last micro-batches have read. Without the lock: it asks the store."""
        reads = int(snap.get("reads", 0))
        with self.lock:
            names = [order.name for order in self.queue.handed(-1, reads)]
        notes = {name: read_note(self.notes.store, name) for name in names}
        with self.lock:
            self.queue.read(reads, notes.get)
            self.lock.notify_all()

    def hand_out(self, snap: Snap) -> int:
        """The number of chunks to read from now on, as an offset says it: greater than before if there are some."""
        reads = int(snap.get("reads", 0))
        if not self.indexer.settler.is_live:
            return reads
        return reads + bool(self.queue.hand_out(READS_AT_ONCE, reads + 1, self._known_place()))

    @property
    def has_reads(self) -> bool:
        return self.indexer.settler.is_live and self.queue.has_planned

    # -- placing -------------------------------------------------------------------------------------------------------

    def place(self, reached: LogPlace, held: Iterable[int], limit_bytes: int, clock_ms: int | None) -> None:
        """Gives parts a place, up to the limit. The tables in `held` get none: their changes would come behind it.

        `clock_ms` is the server's clock if all of its log is known: then the parts come at this time.
        """
        if not self.indexer.settler.is_live:
            return
        self.reached = reached
        self._follow()
        self._read_again_if_unclear()
        placed_bytes = 0
        for part in self.queue.ready(reached, frozenset(held)):
            self.notes.know(part, self.queue.note(part))
            if clock_ms is not None and not placed_bytes:
                self.indexer.tick(clock_ms)
            if placed_bytes >= limit_bytes or not self.indexer.chunk(str(part)):
                break
            placed_bytes += self.notes.part(part).value_bytes
            self.pace.emitted(self.notes.part(part).rows, time.monotonic())
            self.queue.placed(part)
            self._parts.append((self.chain.last("ts"), str(part)))
            self.tip = self.notes.after(self.tip, part).settled(self.waiting)
        self._follow()

    def _follow(self) -> None:
        self.queue.follow(self.tip, self.tip.next_tables(self.waiting))

    # -- emitting ------------------------------------------------------------------------------------------------------

    def splits(
        self, before: Snap, after: Snap, items: Iterable[int], write: Callable[[Numbers], str]
    ) -> tuple[list[Split], list[Emission]]:
        """What tasks read for the snapshot in a micro-batch, and what they emit. `write` makes a file of row events."""
        reads = self.queue.handed(int(before.get("reads", 0)), int(after.get("reads", 0)))
        emissions = (self._emission(item, write) for item in items if self.chain.extras[item].chunk)
        return [{"read": order.to_json()} for order in reads], [each for each in emissions if each is not None]

    def _emission(self, item: int, write: Callable[[Numbers], str]) -> Emission | None:
        name = self.chain.extras[item].chunk
        table, note = self.notes.tables.get(name), self.notes.of(PartName.of(name))
        paths = [each.path for each in note.parts] if note.whole else [self.notes.part(PartName.of(name)).path]
        if table is None or not (note.whole or paths[0]):
            return None
        rows, layout = self._rows_since(note.after, item, table.table_id), table.layout
        key = key_of(table.definition) or ReadKey("", ())
        return Emission(
            name, tuple(filter(None, paths)), table.database, table.name, table.table_id, table.schema_id,
            table.version, layout.fingerprint, layout.to_json(), key.columns, key.positions(layout),
            self.chain.of(item, "ts"), write(rows) if len(rows) else "",
        )  # fmt: skip

    def _rows_since(self, after: LogPlace, item: int, table_id: int) -> Numbers:
        """The row events of a table behind a place of the log, up to an item."""
        chain = self.chain
        first = chain.of(chain.item_behind(file_number(after[0]), after[1]) - 1, "rows_end")
        last = chain.of(item, "rows_end")
        return first + np.flatnonzero(chain.rows.part("table_id", first, last) == table_id)

    def with_early(self, emission: Emission) -> Emission:
        """What the log has of the table before the relay begins: the server is asked. Without the lock."""
        note = self.notes.of(PartName.of(emission.name))
        if not is_before(note.after, self.begin):
            return emission
        path = str(self.indexer.relay.folder / f"{emission.name}.early.arrow")
        with connected(self.address, self.password) as connection:
            return early_emission(connection, emission, path, note.after, self.begin)

    # -- tables without a key ------------------------------------------------------------------------------------------

    def without_wholes(self, rows: Numbers, snap: Snap) -> Numbers:
        """Leaves out the row events of tables without a key that are not emitted: they come with all their rows.

        What is before the read is in the rows that were read, and what is behind it comes with them (`tasks`).
        """
        progress, limits = Progress.from_json(snap), {}
        numbers = self.chain.rows["table"][rows - self.chain.rows.first]
        for number in np.unique(numbers).tolist():
            table = self.indexer.tables.by_number[number]
            if table.needs_snapshot and not progress.has(table.table_id) and self._is_whole(table):
                limits[number] = self._emitted_behind(table.table_id)
        for number, limit in limits.items():
            keep = (numbers != number) | (rows >= limit)
            rows, numbers = rows[keep], numbers[keep]
        return rows

    def _is_whole(self, table: Followed) -> bool:
        known = self._whole_layouts.get(table.fingerprint)
        if known is None:
            known = self._whole_layouts[table.fingerprint] = not has_key(Layout.from_json(table.layout))
        return known

    def _emitted_behind(self, table_id: int) -> int:
        """The number of the first row event behind the place where the table is emitted; a huge one if it has none."""
        placed = (item for item, extra in self.chain.extras.items() if extra.chunk and extra.table_id == table_id)
        return max((self.chain.of(item, "rows_end") for item in placed), default=1 << 62)

    def _read_again_if_unclear(self) -> None:
        """MySQL does not tell what a read sees exactly, so the table must not have changed just then."""
        for reading, note in self.queue.wholes():
            if note.refused or is_before(self.reached, note.until):
                continue
            first, last = (self.chain.item_behind(file_number(file), at) for file, at in (note.after, note.seen))
            between = (self.chain.of(item - 1, "rows_end") for item in (first, last))
            if (self.chain.rows.part("table_id", *between) == reading.table.table_id).any():
                self.queue.end_whole(reading, None)

    # -- letting go ----------------------------------------------------------------------------------------------------

    def first_needed(self, item: int) -> int:
        """The first item whose rows are needed, if all before `item` were accepted."""
        later = [extra.chunk for number, extra in self.chain.extras.items() if number >= item and extra.chunk]
        pins = [*self.queue.pinned(), *(self.notes.of(PartName.of(name)).after for name in later)]
        return min([item, *(self.chain.item_behind(file_number(file), at) for file, at in pins)])
