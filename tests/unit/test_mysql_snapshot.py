"""A source that takes a snapshot while clients write, is killed and begins again: a reader has exactly the tables.

No Spark: micro-batches are asked for, read and accepted here, the splits of one by several threads.
"""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pymysql.connections import Connection
from pymysql.err import IntegrityError, OperationalError

from tidegate.bench.harness.database_log import Values, rows_of
from tidegate.bench.harness.databases import Database, asked
from tidegate.events import DDL, DELETE, INSERT, LAYOUT, RESOLVED, UPDATE
from tidegate.format.tables import Layout
from tidegate.sources.mysql.private import Private
from tidegate.sources.mysql.source import MysqlSource
from tidegate.sources.source import Offset

LIMIT_BYTES = 200_000
Row = tuple[bytes | None, ...]
Place = tuple[int, int]


@dataclass
class Reader:
    """What a consumer of the events has: it applies inserts as upserts, by the key of the table."""

    floor: dict[int, Place] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)  # of tables, as their last change has it
    states: dict[int, dict[Row, Row]] = field(default_factory=dict)
    bags: dict[str, Counter[Row]] = field(default_factory=dict)  # tables without a key
    layouts: dict[int, Layout] = field(default_factory=dict)
    seen: dict[tuple[int, Place], object] = field(default_factory=dict)
    resolved: int = 0
    ddls: list[str] = field(default_factory=list)

    @property
    def tables(self) -> dict[str, dict[Row, Row]]:
        """By name. If two had the same name, it is the later one."""
        return {self.names[table]: self.states[table] for table in sorted(self.states)}

    def apply(self, rows: list[dict[str, Any]]) -> None:
        layouts = [row for row in rows if row["kind"] == LAYOUT]
        self.layouts |= {row["layout"]: Layout.from_json(row["ddl"]) for row in layouts}
        changes = [row for row in rows if row["kind"] in (INSERT, UPDATE, DELETE)]
        for row in sorted(changes, key=lambda row: (row["commit_ts"], row["seq"])):
            self._change(row)
        self.ddls += [str(row["ddl"]) for row in rows if row["kind"] == DDL]
        self.resolved = max([self.resolved, *(row["commit_ts"] for row in rows if row["kind"] == RESOLVED)])

    def _change(self, row: dict[str, Any]) -> None:
        table, place = row["table_id"], (row["commit_ts"], row["seq"])
        shown = (row["kind"], row["before"], row["after"], row["table_version"])
        assert self.seen.setdefault((table, place), shown) == shown, "a replay gives another row"
        if place <= self.floor.get(table, (0, -1)):
            return
        assert place[0] > self.resolved, "a row comes at or below what was resolved"
        self.floor[table] = place
        layout = self.layouts[row["layout"]]
        key = [[column.name for column in layout.stored].index(name) for name in layout.handle_key]
        before, after, name = row["before"], row["after"], row["table_name"]
        if not key:
            self._put_into_bag(self.bags.setdefault(name, Counter()), before, after)
            return
        self.names[table], state = name, self.states.setdefault(table, {})
        if before is not None:
            state.pop(tuple(before[i] for i in key), None)
        if after is not None:
            state[tuple(after[i] for i in key)] = tuple(after)

    def _put_into_bag(self, bag: Counter[Row], before: Values | None, after: Values | None) -> None:
        """A delete takes one of the equal rows away, if there is one."""
        if before is not None and bag[tuple(before)]:
            bag[tuple(before)] -= 1
        if after is not None:
            bag[tuple(after)] += 1


@dataclass
class Feed:
    """A changefeed without Spark. `kill` forgets the process; the next one begins at an offset that was accepted."""

    database: Database
    home: Path
    query: str
    reader: Reader = field(default_factory=Reader)
    chance: random.Random = field(default_factory=lambda: random.Random(7))
    offsets: list[Offset] = field(default_factory=list)
    resolved: list[int] = field(default_factory=list)
    source: MysqlSource | None = None
    runs: int = 0
    durable: int = 0  # number of the offset at which the last process began

    def begin(self) -> MysqlSource:
        if self.source is None:
            self.runs += 1
            relay = self.home / f"relay{self.runs}"
            private = Private("", (self.home / "sink").as_uri(), relay_dir=str(relay))
            private.store().prepare()
            uri = f"mysql://root@127.0.0.1:{self.database.port}/?ssl=off&{self.query}"
            self.source = MysqlSource(uri, private)
            self.offsets = self.offsets or [self.source.initial()]
        return self.source

    def kill(self) -> None:
        """All since some offset is asked for again. What was durable once stays so."""
        if self.source is not None:
            self.source.close()
            self.source = None
        self.durable = self.chance.randrange(self.durable, len(self.offsets))
        del self.offsets[self.durable + 1 :]

    def step(self) -> bool:
        """One micro-batch; False if there is nothing new."""
        source, start = self.begin(), self.offsets[-1]
        end = json.loads(json.dumps(source.latest(start, LIMIT_BYTES, frozenset())))
        if end == start:
            return False
        splits = json.loads(json.dumps(source.splits(start, end, 2)))
        with ThreadPoolExecutor(3) as pool:
            found = list(pool.map(lambda split: [b.to_pylist() for b in source.read(split)], splits))
        self.reader.apply([row for batches in found for batch in batches for row in batch])
        self.offsets.append(end)
        source.committed(end)
        return True

    @property
    def is_over(self) -> bool:
        return bool(self.offsets and self.offsets[-1].get("snap", {}).get("over"))

    def run_until(self, done: Callable[[], bool], kills: float = 0.0) -> None:
        while not done():
            self.step()
            if self.chance.random() < kills:
                self.kill()

    def catch_up(self) -> None:
        """Until the reader has everything that is in the tables now."""
        with self.database.connect() as connection:
            number = asked(connection, "SELECT COUNT(*) FROM snap.marker")[0][0]
            asked(connection, f"INSERT INTO snap.marker VALUES ({number})")
        self.run_until(lambda: (b"%d" % number,) in self.reader.tables.get("marker", {}))


@contextmanager
def feeding(database: Database, home: Path, query: str = "tables=snap.*") -> Iterator[Feed]:
    feed = Feed(database, home, query)
    try:
        yield feed
    finally:
        if feed.source is not None:
            feed.source.close()


def fresh(connection: Connection) -> Connection:
    asked(connection, "DROP DATABASE IF EXISTS snap", "CREATE DATABASE snap CHARACTER SET utf8mb4", "USE snap")
    asked(connection, "CREATE TABLE marker (id int PRIMARY KEY)")
    return connection


def table_now(database: Database, feed: Feed, table: str) -> dict[Row, Row] | Counter[Row]:
    """The table as SQL shows it now, with the reader's layout of it."""
    with database.connect() as connection:
        columns = [row[0] for row in asked(connection, f"SHOW COLUMNS FROM snap.{table}")]
    layout = next(each for each in feed.reader.layouts.values() if [column.name for column in each.columns] == columns)
    key = [[column.name for column in layout.stored].index(name) for name in layout.handle_key]
    rows: list[Values] = rows_of(database, "snap", table, layout)
    if not key:
        return Counter(map(tuple, rows))
    return {tuple(row[i] for i in key): tuple(row) for row in rows}


@contextmanager
def writing(database: Database, change: Callable[[random.Random], str], count: int = 2) -> Iterator[None]:
    """Clients that change tables until the end of the block."""
    ends = threading.Event()

    def write(seed: int) -> None:
        chance = random.Random(seed)
        with database.connect(database="snap") as connection:
            while not ends.wait(0.002):
                try:
                    connection.begin()
                    for _ in range(chance.randrange(1, 4)):
                        asked(connection, change(chance))
                    connection.commit()
                except (OperationalError, IntegrityError):
                    connection.rollback()

    with ThreadPoolExecutor(count) as pool:
        done = [pool.submit(write, seed) for seed in range(count)]
        try:
            yield
        finally:
            ends.set()
        for each in done:
            each.result()


def filled(connection: Connection, rows: int) -> None:
    """Tables of several kinds: a plain key, a key without case, a composite one, an empty table."""
    asked(connection, "CREATE TABLE plain (id int PRIMARY KEY, v varchar(200), f float)")
    asked(connection, "CREATE TABLE words (k varchar(40) PRIMARY KEY, v int NOT NULL)")
    asked(connection, "CREATE TABLE pairs (a int, b char(6), v text, PRIMARY KEY (a, b))")
    asked(connection, "CREATE TABLE nothing (id int PRIMARY KEY)", "CREATE TABLE bag (a int, b varchar(20))")
    asked(connection, "CREATE TABLE empty_bag (a int)")
    chance = random.Random(1)
    for first in range(0, rows, 500):
        numbers = range(first, min(rows, first + 500))
        asked(connection, f"INSERT INTO plain VALUES {','.join(f'({i}, REPEAT({i}, 20), {i}.1)' for i in numbers)}")
        asked(connection, f"INSERT INTO bag VALUES {','.join(f'({i % 7}, {i % 3})' for i in numbers)}")
        words = ",".join(f"('{word(chance)}', {i})" for i in numbers)
        asked(connection, f"INSERT IGNORE INTO words VALUES {words}")
        pairs = ",".join(f"({i % 30}, '{word(chance)}', 'old')" for i in numbers)
        asked(connection, f"INSERT IGNORE INTO pairs VALUES {pairs}")


def word(chance: random.Random) -> str:
    return "".join(chance.choice("abXYm") for _ in range(5))


def change(chance: random.Random) -> str:
    number, text = chance.randrange(6_000), word(chance)
    return chance.choice([
        f"UPDATE plain SET v = '{text}' WHERE id BETWEEN {number} AND {number + 3}",
        f"UPDATE IGNORE plain SET id = {chance.randrange(6_000)} WHERE id = {number}",
        f"DELETE FROM plain WHERE id = {number}",
        f"INSERT IGNORE INTO plain VALUES ({number}, '{text}', 0.5)",
        f"INSERT IGNORE INTO words VALUES ('{text}', {number})",
        f"UPDATE IGNORE words SET k = '{text.swapcase()}' WHERE k = '{text}'",
        f"UPDATE IGNORE words SET k = '{word(chance)}', v = 1 WHERE k > '{text}' ORDER BY k LIMIT 1",
        f"DELETE FROM words WHERE k > '{text}' ORDER BY k LIMIT 1",
        f"UPDATE IGNORE pairs SET b = UPPER(b), v = 'new' WHERE a = {number % 30} ORDER BY b LIMIT 2",
        f"UPDATE IGNORE pairs SET a = a + 1 WHERE a = {number % 30} ORDER BY b LIMIT 2",
        f"DELETE FROM pairs WHERE a = {number % 30} ORDER BY b DESC LIMIT 1",
        f"REPLACE INTO nothing VALUES ({number % 50})",
        f"INSERT INTO bag VALUES ({number % 7}, NULL), ({number % 7}, NULL)",
        f"DELETE FROM bag WHERE a = {number % 7} LIMIT 2",
        f"UPDATE bag SET b = '{text}' WHERE a = {number % 7} LIMIT 2",
        f"INSERT INTO empty_bag VALUES ({number % 5})",
    ])  # fmt: skip


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of some dozens of rows, so that a small table has many."""
    monkeypatch.setattr("tidegate.sources.mysql.snapshot.borders.CHUNK_BYTES", 20_000)
    monkeypatch.setattr("tidegate.sources.mysql.snapshot.keeper.READS_AT_ONCE", 4)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("kills", [0.0, 0.25])
def test_a_reader_has_exactly_the_tables_after_a_snapshot_while_clients_write(
    database: Database, tmp_path: Path, kills: float
) -> None:
    with fresh(database.connect()) as connection:
        filled(connection, 4_000)
    with feeding(database, tmp_path) as feed, writing(database, change):
        feed.run_until(lambda: feed.is_over, kills)
    with feeding(database, tmp_path) as again:
        again.offsets, again.reader, again.runs = feed.offsets, feed.reader, feed.runs
        again.catch_up()
        for table in ("plain", "words", "pairs", "nothing"):
            assert again.reader.tables[table] == table_now(database, again, table), table
        for table in ("bag", "empty_bag"):
            assert +again.reader.bags[table] == table_now(database, again, table), table
        assert kills == 0 or again.runs > 2
        assert "begun" not in again.offsets[-1]["snap"] or not again.offsets[-1]["snap"]["begun"]


@pytest.mark.usefixtures("small_chunks")
def test_a_ddl_starts_the_snapshot_of_its_table_again_and_a_new_table_needs_none(
    database: Database, tmp_path: Path
) -> None:
    with fresh(database.connect()) as connection, feeding(database, tmp_path) as feed:
        filled(connection, 6_000)
        feed.run_until(lambda: bool(feed.reader.tables.get("plain")))
        assert len(feed.reader.tables["plain"]) < 3_000
        asked(connection, "ALTER TABLE plain ADD COLUMN more int DEFAULT 7 AFTER id", "DROP TABLE pairs")
        asked(connection, "CREATE TABLE late (id int PRIMARY KEY)", "INSERT INTO late VALUES (1), (2)")
        asked(connection, "INSERT INTO plain VALUES (9000, 1, 'x', 2)", "RENAME TABLE words TO wordy")
        asked(connection, "INSERT INTO wordy VALUES ('~', 1)")
        feed.run_until(lambda: feed.is_over)
        feed.catch_up()
        for table in ("plain", "late", "wordy"):
            assert feed.reader.tables[table] == table_now(database, feed, table), table


@pytest.mark.usefixtures("small_chunks")
def test_only_a_snapshot_ends_when_all_tables_are_out(database: Database, tmp_path: Path) -> None:
    with fresh(database.connect()) as connection:
        filled(connection, 1_000)
    with feeding(database, tmp_path, "tables=snap.*&snapshot=only") as feed, writing(database, change, 1):
        source = feed.begin()
        assert source.finite
        assert source.backlog_bytes(source.initial()) == 1
        feed.run_until(lambda: source.backlog_bytes(feed.offsets[-1]) == 0)
        assert not feed.step()
        assert len(feed.reader.tables) >= 3


def test_only_a_snapshot_of_no_table_ends_at_once(database: Database, tmp_path: Path) -> None:
    with fresh(database.connect()), feeding(database, tmp_path, "tables=snap.none&snapshot=only") as feed:
        source = feed.begin()
        feed.run_until(lambda: source.backlog_bytes(feed.offsets[-1]) == 0)
        assert feed.reader.tables == {}


def test_without_a_snapshot_only_changes_come(database: Database, tmp_path: Path) -> None:
    with fresh(database.connect()) as connection:
        asked(connection, "INSERT INTO marker VALUES (-1)")
    with feeding(database, tmp_path, "tables=snap.*&snapshot=never") as feed:
        feed.step()
        with database.connect() as connection:
            asked(connection, "INSERT INTO snap.marker VALUES (1)")
        feed.run_until(lambda: "marker" in feed.reader.tables)
        assert feed.reader.tables["marker"] == {(b"1",): (b"1",)}


@pytest.mark.usefixtures("small_chunks")
def test_what_was_staged_is_deleted_when_it_is_durable_and_the_state_says_how_far_it_is(
    database: Database, tmp_path: Path
) -> None:
    with fresh(database.connect()) as connection:
        filled(connection, 2_000)
    chunks = tmp_path / "sink" / "_tidegate" / "source" / "chunks"
    states = []
    with feeding(database, tmp_path) as feed:
        while not feed.is_over:
            feed.step()
            source = feed.begin()
            source.durable(feed.offsets[-1])
            assert source._follower is not None
            states.append(source._follower.state()["snapshot"])
        source.durable(feed.offsets[-1])
        until_empty(chunks)
    assert states[-1] is None
    shares = [state["share"] for state in states if state is not None]
    assert shares[-1] > 0.3
    assert feed.offsets[-1]["snap"]["rows"] > 4_000


def until_empty(folder: Path) -> None:
    while list(folder.iterdir()):
        threading.Event().wait(0.02)
