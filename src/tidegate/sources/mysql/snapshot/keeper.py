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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from tidegate.sources.mysql.address import Address
from tidegate.sources.mysql.catalogue import Catalogue, TableEntry
from tidegate.sources.mysql.chain import Chain
from tidegate.sources.mysql.connect import connected
from tidegate.sources.mysql.indexer import Indexer
from tidegate.sources.mysql.log.images import Numbers
from tidegate.sources.mysql.log.transactions import file_number
from tidegate.sources.mysql.snapshot.borders import key_of
from tidegate.sources.mysql.snapshot.early import early_keys
from tidegate.sources.mysql.snapshot.looker import Looker
from tidegate.sources.mysql.snapshot.notes import Notes
from tidegate.sources.mysql.snapshot.progress import Progress
from tidegate.sources.mysql.snapshot.queue import PartName, Queue
from tidegate.sources.mysql.snapshot.stage import read_note
from tidegate.sources.mysql.snapshot.tasks import Emission, write_keys
from tidegate.sources.mysql.snapshot.visible import LogPlace, is_before
from tidegate.sources.source import Split

READS_AT_ONCE = 8  # chunks that one micro-batch reads
_KNOWN = 512  # tables that wait and are known by name, so that the catalogue is not searched for each

Snap = Mapping[str, Any]


@dataclass
class Keeper:
    """`recorded` are the parts that are on record behind the start, in order; `begin` is where the relay begins."""

    address: Address
    password: str
    notes: Notes
    indexer: Indexer
    lock: threading.Condition
    snap: Snap
    begin: LogPlace
    recorded: Sequence[str] = ()
    queue: Queue = field(default_factory=lambda: Queue(secrets.token_hex(3)))
    tip: Progress = field(default_factory=Progress)  # at the end of the log that is known
    emitted_rows: int = 0
    _waiting_known: tuple[Catalogue, int, list[TableEntry]] | None = None

    def __post_init__(self) -> None:
        self.tip = Progress.from_json(self.snap)
        for name in self.recorded:
            self.tip = self.notes.after(self.tip, PartName.of(name))

    def start(self, ended: Callable[[], bool]) -> None:
        """Begins to look for borders, until the function says that nobody needs them."""
        kept = {str(PartName.of(name).chunk) for name in self.recorded}
        first = partial(self.notes.sweep, kept)
        Looker(self.address, self.password, self.queue, self.lock, ended, first).start()

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
        progress = Progress.from_json(snap)
        for name in parts:
            progress = self.notes.after(progress, PartName.of(name))
        settled = progress.settled(self.waiting)
        over = {"over": True} if settled.is_over(self.waiting) else {}
        return {**settled.to_json(), "reads": reads, **over}

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
        pin = (self.indexer.assembler.file, self.indexer.assembler.at)
        return reads + bool(self.queue.hand_out(READS_AT_ONCE, reads + 1, pin))

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
        self._follow()
        placed_bytes = 0
        for part in self.queue.ready(reached, frozenset(held)):
            self.notes.know(part, self.queue.note(part))
            if clock_ms is not None and not placed_bytes:
                self.indexer.tick(clock_ms)
            if placed_bytes >= limit_bytes or not self.indexer.chunk(str(part)):
                break
            placed_bytes += self.notes.part(part).value_bytes
            self.emitted_rows += self.notes.part(part).rows
            self.queue.placed(part)
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
        table, part = self.notes.tables.get(name), PartName.of(name)
        key = None if table is None else key_of(table.definition)
        if table is None or key is None or not self.notes.part(part).path:
            return None
        after, layout = self.notes.of(part).after, table.layout
        rows = self._touched(item, table.table_id, after)
        return Emission(
            self.notes.part(part).path, table.database, table.name, table.table_id, table.schema_id, table.version,
            layout.fingerprint, layout.to_json(), key.columns, key.positions(layout), self.chain.of(item, "ts"),
            write(rows) if len(rows) else "", self._early_path(name) if is_before(after, self.begin) else "",
        )  # fmt: skip

    def _touched(self, item: int, table_id: int, after: LogPlace) -> Numbers:
        """The row events of a table behind a place of the log and before an item."""
        chain = self.chain
        first = chain.of(chain.item_behind(file_number(after[0]), after[1]) - 1, "rows_end")
        last = chain.of(item, "rows_end")
        return first + np.flatnonzero(chain.rows.part("table_id", first, last) == table_id)

    def _early_path(self, name: str) -> str:
        return str(self.indexer.relay.folder / f"{name}.keys.arrow")

    def ask_early(self, emissions: Iterable[Emission]) -> None:
        """Keys that were touched before the relay begins: the server is asked. Without the lock."""
        for each in emissions:
            if each.early:
                name = each.early.rpartition("/")[2].removesuffix(".keys.arrow")
                after = self.notes.of(PartName.of(name)).after
                with connected(self.address, self.password) as connection:
                    keys = early_keys(connection, each.schema, each.table, each.key, after, self.begin)
                write_keys(each.early, keys)

    # -- letting go ----------------------------------------------------------------------------------------------------

    def first_needed(self, item: int) -> int:
        """The first item whose rows are needed, if all before `item` were accepted."""
        later = [extra.chunk for number, extra in self.chain.extras.items() if number >= item and extra.chunk]
        pins = [*self.queue.pinned(), *(self.notes.of(PartName.of(name)).after for name in later)]
        return min([item, *(self.chain.item_behind(file_number(file), at) for file, at in pins)])
