"""The chunks between their order and the place in the log where they are emitted. Pure: facts in, decisions out.

A chunk is *planned* when its borders are known, *handed out* to a task, *staged* when its note is there, and leaves the
queue when all its parts have a place in the log. The chunks of a table are placed in the order of their borders, those
of different tables as they come. At most `most_ahead` chunks are in the queue, so neither the staged rows nor the part
of the log that they need grow with the table.

All of it is forgotten with its process: what has a place in the log is on record there (`windows`), and everything else
is read again from the last border. What belongs to an older version of a table is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tidegate.errors import BadLog
from tidegate.sources.mysql.catalogue import TableEntry
from tidegate.sources.mysql.snapshot.borders import ReadKey, chunk_rows, key_of
from tidegate.sources.mysql.snapshot.progress import Progress
from tidegate.sources.mysql.snapshot.select import Border
from tidegate.sources.mysql.snapshot.stage import Note, Order
from tidegate.sources.mysql.snapshot.visible import LogPlace, is_before

MOST_AHEAD = 16
PLANNED, HANDED, OWN, STAGED = range(4)


class ChunkName(NamedTuple):
    """`12-463267587686400000-a1b2c3-7` is a chunk of table 12 at this version, the seventh that this process plans."""

    table_id: int
    version: int
    run: str
    number: int

    def __str__(self) -> str:
        return f"{self.table_id}-{self.version}-{self.run}-{self.number}"

    @staticmethod
    def of(text: str) -> ChunkName:
        table_id, version, run, number = text.split("-")
        return ChunkName(int(table_id), int(version), run, int(number))


class PartName(NamedTuple):
    """`12-463267587686400000-a1b2c3-7.0` is the first part of a chunk: what gets a place in the log."""

    chunk: ChunkName
    part: int

    def __str__(self) -> str:
        return f"{self.chunk}.{self.part}"

    @staticmethod
    def of(text: str) -> PartName:
        chunk, _, part = text.rpartition(".")
        return PartName(ChunkName.of(chunk), int(part))


@dataclass
class Chunk:
    """`reads` is the number of the micro-batch that reads it, `pin` a place in the log before that."""

    order: Order
    state: int = PLANNED
    reads: int = 0
    pin: LogPlace = ("", 0)
    note: Note | None = None
    placed: int = 0  # parts that have a place


@dataclass
class Reading:
    """A table that is read. `low` is the border at which its next chunk begins; `ends` if no further one follows.

    A table without a key is one chunk.
    """

    table: TableEntry
    key: ReadKey | None
    low: Border | None
    rows: int = 0  # of a chunk; 0 until somebody has asked
    all_rows: int = 0  # of the table, about
    placed_rows: int = 0
    ends: bool = False
    chunks: list[Chunk] = field(default_factory=list)


@dataclass
class Queue:
    run: str
    most_ahead: int = MOST_AHEAD
    tables: dict[int, Reading] = field(default_factory=dict)
    _number: int = 0

    def __len__(self) -> int:
        return sum(len(reading.chunks) for reading in self.tables.values())

    def follow(self, progress: Progress, tables: Sequence[TableEntry]) -> None:
        """What is to be read now, by the progress at the end of the log that is known."""
        wanted = {table.table_id: table for table in tables}
        for table_id, reading in list(self.tables.items()):
            now = wanted.get(table_id)
            if now is None or now.version != reading.table.version:
                del self.tables[table_id]
        for table in tables:
            if table.table_id not in self.tables:
                key = key_of(table.definition)
                self.tables[table.table_id] = Reading(table, key, progress.border(table) if key is not None else None)

    # -- borders -----------------------------------------------------------------------------------------------------

    def next_look(self) -> Reading | None:
        """The table of which the next border is wanted."""
        if len(self) >= self.most_ahead:
            return None
        return next((reading for reading in self.tables.values() if not reading.ends and reading.key is not None), None)

    def next_whole(self) -> Reading | None:
        """The next table without a key. There is one of them at a time."""
        whole = [reading for reading in self.tables.values() if reading.key is None]
        return whole[0] if whole and not whole[0].ends else None

    def found(self, looked: Reading, high: Border | None) -> None:
        """The border behind `low` of a table; None if the chunk is the last one."""
        if not self.holds(looked):
            return
        self._number += 1
        table = looked.table
        name = ChunkName(table.table_id, table.version, self.run, self._number)
        order = Order(str(name), table.database, table.name, table.layout, looked.key, looked.low, high)
        looked.chunks.append(Chunk(order))
        looked.low, looked.ends = high, high is None

    def holds(self, reading: Reading) -> bool:
        """Whether the table is still to be read as it was."""
        return self.tables.get(reading.table.table_id) is reading

    # -- reading -----------------------------------------------------------------------------------------------------

    def hand_out(self, limit: int, reads: int, pin: LogPlace) -> list[Order]:
        """Chunks for the tasks of the micro-batch with this number to read; the log is at `pin` or behind it."""
        due = [chunk for chunk in self._chunks() if chunk.state == PLANNED][:limit]
        for chunk in due:
            chunk.state, chunk.reads, chunk.pin = HANDED, reads, pin
        return [chunk.order for chunk in due]

    def begin_whole(self, reading: Reading, pin: LogPlace) -> Order:
        """The thread that asks reads this table by itself."""
        self.found(reading, None)
        chunk = reading.chunks[0]
        chunk.state, chunk.pin = OWN, pin
        return chunk.order

    def end_whole(self, reading: Reading, note: Note | None) -> None:
        """Without a note it is read again."""
        if note is None:
            reading.chunks.clear()
            reading.ends = False
        else:
            reading.chunks[0].note, reading.chunks[0].state = note, STAGED

    def wholes(self) -> list[tuple[Reading, Note]]:
        """The tables without a key that were read and have no place yet."""
        found = ((reading, chunk.note) for reading in self.tables.values() for chunk in reading.chunks)
        return [(reading, note) for reading, note in found if note is not None and note.whole]

    def handed(self, after: int, until: int) -> list[Order]:
        """What the tasks of micro-batches with these numbers read."""
        return [chunk.order for chunk in self._chunks() if chunk.state == HANDED and after < chunk.reads <= until]

    @property
    def has_planned(self) -> bool:
        return any(chunk.state == PLANNED for chunk in self._chunks())

    def read(self, reads: int, note: Callable[[str], Note | None]) -> None:
        """The tasks of micro-batches up to this number are done, and later ones will not come.

        A chunk without a note could not be read, and is read again.
        """
        for chunk in self._chunks():
            if chunk.state == HANDED:
                chunk.note = note(chunk.order.name) if chunk.reads <= reads else None
                chunk.state = PLANNED if chunk.note is None else STAGED
        for reading in self.tables.values():
            self._measure(reading)

    def _measure(self, reading: Reading) -> None:
        """The next chunks of a table have as many rows as fit by what was read of it."""
        parts = [part for chunk in reading.chunks if chunk.note is not None for part in chunk.note.parts]
        if rows := sum(part.rows for part in parts):
            reading.rows = chunk_rows(sum(part.value_bytes for part in parts) // rows)

    # -- placing -----------------------------------------------------------------------------------------------------

    def ready(self, reached: LogPlace, without: Collection[int] = ()) -> list[PartName]:
        """The parts that may have a place behind what is known of the log, which is up to `reached`.

        Tables in `without` get none.
        """
        found: list[PartName] = []
        for reading in self.tables.values():
            if reading.table.table_id in without:
                continue
            for chunk in reading.chunks:
                if chunk.note is None or is_before(reached, chunk.note.until):
                    break
                if chunk.note.refused:
                    raise BadLog(
                        f"{reading.table.database}.{reading.table.name} cannot be read, because {chunk.note.refused}, "
                        "and the log has no DDL that says so; was it changed with sql_log_bin = 0? Start anew on an "
                        "empty prefix"
                    )
                name = ChunkName.of(chunk.order.name)
                found += [PartName(name, i) for i in range(chunk.placed, len(chunk.note.emitted))]
        return found

    def note(self, part: PartName) -> Note:
        """The note of the chunk of a part that is ready."""
        chunks = self.tables[part.chunk.table_id].chunks
        found = next(chunk.note for chunk in chunks if chunk.order.name == str(part.chunk))
        assert found is not None, "only what is staged has parts"
        return found

    def placed(self, part: PartName) -> None:
        """The part has a place. Parts of a chunk come in order."""
        reading = self.tables[part.chunk.table_id]
        chunk = reading.chunks[0]
        assert chunk.note is not None, "only what is staged has parts"
        assert (chunk.order.name, chunk.placed) == (str(part.chunk), part.part), "parts are placed in order"
        chunk.placed += 1
        reading.placed_rows += chunk.note.emitted[part.part].rows
        if chunk.placed == len(chunk.note.emitted):
            reading.chunks.pop(0)

    def lacks(self, reached: LogPlace) -> bool:
        """Whether a chunk needs more of the log to get its place."""
        return any(chunk.note is not None and is_before(reached, chunk.note.until) for chunk in self._chunks())

    def pinned(self) -> list[LogPlace]:
        """From where on the log is needed by chunks that have no place yet."""
        pins = (chunk.note.after if chunk.note is not None else chunk.pin for chunk in self._chunks())
        return [pin for pin in pins if pin[0]]

    def _chunks(self) -> Iterable[Chunk]:
        return (chunk for reading in self.tables.values() for chunk in reading.chunks)
