"""The progress of a snapshot: whatever is lost, every row of a table is emitted once, in order, at its last version."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.errors import BadLog, BadSetting
from tidegate.format.tables import Column
from tidegate.sources.mysql.catalogue import TableEntry
from tidegate.sources.mysql.definition import PRIMARY, Definition, Key, ServerColumn
from tidegate.sources.mysql.snapshot.progress import Progress
from tidegate.sources.mysql.snapshot.queue import PartName, Queue
from tidegate.sources.mysql.snapshot.select import Border
from tidegate.sources.mysql.snapshot.stage import Note, PartNote

DEFINITION = Definition(
    (ServerColumn(Column("id", "int", nullable=False)),), (Key("PRIMARY", PRIMARY, ("id",)),)
)  # fmt: skip
ROWS = 12  # of each table: keys 1 to 12
Item = tuple[str, Border | None]  # a part that has a place in the log, and its border


def table(table_id: int, version: int = 1) -> TableEntry:
    return TableEntry("shop", f"t{table_id}", table_id, 1, version, DEFINITION, needs_snapshot=True)


class Snapshot:
    """A process with its queue, which may be killed; the tables on the server; and what is on record.

    Rows are numbers, so a chunk is a range of them. The place in the log is a plain number, too.
    """

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.tables = {i: table(i) for i in (1, 2, 3, 5)}
        self.next_id = 6
        self.log_end = self.reached = 0
        self.recorded: list[Item] = []  # in windows, in the order of the log
        self.accepted = (0, Progress())  # items of `recorded`, and the offset there
        self.notes: dict[str, Note] = {}
        self.lows: dict[str, int] = {}  # where each chunk begins
        self.runs = self.reads = 0
        self.begin()

    def begin(self) -> None:
        """A process starts: it takes what is on record behind its offset, and knows nothing else."""
        self.runs += 1
        self.queue = Queue(f"r{self.runs}", most_ahead=5)
        self.fresh: list[Item] = []  # have a place, but are on no record
        items, self.tip = self.accepted
        for item in self.recorded[items:]:
            self.tip = self.moved(self.tip, item)
        self.queue.follow(self.tip, self.tip.next_tables(self.waiting))

    def waiting(self, after: int, limit: int) -> Sequence[TableEntry]:
        return [each for each in sorted(self.tables.values(), key=lambda t: t.table_id) if each.table_id > after][
            :limit
        ]

    def moved(self, progress: Progress, item: Item) -> Progress:
        name = PartName.of(item[0]).chunk
        known = self.tables.get(name.table_id)
        moved = progress.emitted(name.table_id, name.version, item[1]) if known is not None else progress
        return Progress.from_json(moved.settled(self.waiting).to_json())

    def go_on(self) -> None:
        """Some steps of the way from a border to the record of a part."""
        steps = [self.find_a_border] * self.chance.randint(1, 4)
        steps += [self.read_chunks, self.read_the_log, self.place_parts, self.put_on_record]
        for step in steps[: self.chance.randint(1, len(steps))]:
            step()

    def find_a_border(self) -> None:
        rows = self.chance.randint(1, 5)
        reading = self.queue.next_look()
        if reading is not None:
            low = int(reading.low[0]) if reading.low else 0
            self.queue.found(reading, (str(low + rows),) if low + rows <= ROWS else None)

    def read_chunks(self) -> None:
        """Some tasks do not manage."""
        self.reads += 1
        for order in self.queue.hand_out(self.chance.randint(1, 4), self.reads, ("bin.1", self.reached)):
            if self.chance.random() < 0.2:
                continue
            parts = self.chance.randint(1, 3)
            after, self.log_end = self.log_end, self.log_end + 1
            low, high = int(order.low[0]) if order.low else 0, int(order.high[0]) if order.high else None
            inner = [low + i for i in range(1, parts) if low + i < (high or ROWS)]
            borders = [*((str(border),) for border in inner), order.high]
            notes = tuple(PartNote(order.name, 1, 1, border) for border in borders)
            self.notes[order.name] = Note(("bin.1", after), ("bin.1", after), ("bin.1", self.log_end), notes)
            self.lows[order.name] = low
        self.queue.read(self.reads - (self.chance.random() < 0.1), self.notes.get)

    def read_the_log(self) -> None:
        self.reached = self.log_end

    def place_parts(self) -> None:
        for part in self.queue.ready(("bin.1", self.reached))[: self.chance.randint(1, 5)]:
            assert part.chunk.version == self.tables[part.chunk.table_id].version, "what is old has no place any more"
            border = self.notes[str(part.chunk)].parts[part.part].high
            self.queue.placed(part)
            self.fresh.append((str(part), border))
            self.tip = self.moved(self.tip, self.fresh[-1])
        self.queue.follow(self.tip, self.tip.next_tables(self.waiting))

    def put_on_record(self) -> None:
        self.recorded += self.fresh
        self.fresh = []

    def accept(self) -> None:
        """Micro-batches were accepted and are durable up to some item on record."""
        items, progress = self.accepted
        more = self.chance.randint(0, len(self.recorded) - items)
        for item in self.recorded[items : items + more]:
            progress = self.moved(progress, item)
        self.accepted = (items + more, progress)

    def change_a_table(self) -> None:
        """The log shows a DDL; what is behind it in the log is at hand."""
        if self.tables:
            table_id = self.chance.choice(sorted(self.tables))
            self.tables[table_id] = replace(self.tables[table_id], version=self.tables[table_id].version + 1)
            self.the_log_moves()

    def drop_a_table(self) -> None:
        if len(self.tables) > 1:
            del self.tables[self.chance.choice(sorted(self.tables))]
            self.the_log_moves()

    def a_table_comes(self) -> None:
        self.tables[self.next_id] = table(self.next_id)
        self.next_id += 1
        self.the_log_moves()

    def the_log_moves(self) -> None:
        """A DDL stands behind all parts so far, which are on record with it."""
        self.put_on_record()
        self.log_end = self.reached = self.log_end + 1
        self.tip = self.tip.settled(self.waiting)
        self.queue.follow(self.tip, self.tip.next_tables(self.waiting))

    def parts_of_a_version_follow_each_other(self) -> None:
        last: dict[tuple[int, int], int | None] = {}
        for text, border in [*self.recorded, *self.fresh]:
            name = PartName.of(text).chunk
            key = (name.table_id, name.version)
            before = last.get(key, 0)
            assert before is not None, f"{text} comes after the last part of its table"
            assert border is None or int(border[0]) > before
            last[key] = int(border[0]) if border is not None else None
            assert self.low_of(text) == before, f"{text} does not begin at {before}, which was reached"

    def low_of(self, text: str) -> int:
        """Where a part begins: where the one before it in its chunk ends, or the chunk begins."""
        part = PartName.of(text)
        if not part.part:
            return self.lows[str(part.chunk)]
        high = self.notes[str(part.chunk)].parts[part.part - 1].high
        assert high is not None
        return int(high[0])

    def finish(self) -> None:
        """Nothing goes wrong any more."""
        for _ in range(1_000):
            if self.tip.is_over(self.waiting):
                return
            self.go_on()


@settings(max_examples=100)
@given(seed=st.integers(0, 1 << 32))
def test_every_table_is_emitted_once_and_in_order_whatever_is_lost(seed: int) -> None:
    chance = random.Random(seed)
    snapshot = Snapshot(chance)
    others = [snapshot.begin, snapshot.accept, snapshot.change_a_table, snapshot.drop_a_table, snapshot.a_table_comes]
    for _ in range(chance.randint(5, 60)):
        snapshot.go_on()
        if chance.random() < 0.4:
            chance.choices(others, [4, 4, 2, 1, 1])[0]()
        snapshot.parts_of_a_version_follow_each_other()
    snapshot.begin()
    snapshot.finish()
    snapshot.parts_of_a_version_follow_each_other()
    assert snapshot.tip.is_over(snapshot.waiting)
    assert not snapshot.tip.begun


def test_an_offset_keeps_the_progress_and_refuses_what_it_does_not_know() -> None:
    progress = Progress(41, {}).emitted(42, 7, ("7", "_utf8mb4 x'6162'")).emitted(43, 8, None)
    assert Progress.from_json(progress.to_json()) == progress
    assert progress.to_json() == {"done": 41, "begun": {"42": [7, ["7", "_utf8mb4 x'6162'"]], "43": [8]}}
    assert Progress().to_json() == {}
    with pytest.raises(BadSetting, match="nothing known"):
        Progress.from_json({"done": None})


def test_a_border_counts_only_for_its_version() -> None:
    progress = Progress().emitted(1, 7, ("5",))
    assert progress.border(table(1, 7)) == ("5",)
    assert progress.border(table(1, 8)) is None
    assert not progress.is_done(table(1, 7))


def test_a_table_that_is_done_before_its_turn_stays_done_after_a_ddl() -> None:
    tables = [table(1), table(2, 9)]
    progress = Progress().emitted(2, 8, None).settled(lambda after, limit: tables)
    assert progress.next_tables(lambda after, limit: tables) == [tables[0]]


def test_a_chunk_that_was_refused_stops_when_the_log_does_not_explain_it() -> None:
    queue = Queue("r")
    queue.follow(Progress(), [table(1)])
    reading = queue.next_look()
    assert reading is not None
    queue.found(reading, None)
    queue.hand_out(1, 1, ("bin.1", 4))
    queue.read(1, lambda name: Note(("bin.1", 4), ("bin.1", 4), ("bin.1", 9), refused="it is gone"))
    assert queue.ready(("bin.1", 8)) == []
    with pytest.raises(BadLog, match=r"shop\.t1 cannot be read, because it is gone"):
        queue.ready(("bin.1", 9))
