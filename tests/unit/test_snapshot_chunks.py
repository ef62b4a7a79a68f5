"""Chunks of live tables: read in parallel while clients write, and merged with the log they give the table.

Servers are real ones. The log is written before the engine commits, and semi-synchronous replication makes that long.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pytest
from pymysql.connections import Connection
from pymysql.err import IntegrityError, OperationalError

from tidegate.bench.harness.databases import Database, asked
from tidegate.errors import SourceUnavailable
from tidegate.format.tables import Column, Layout
from tidegate.sources.mysql.address import Address, parse_address
from tidegate.sources.mysql.connect import log_end
from tidegate.sources.mysql.log.framing import CHECKSUM_BYTES, XID, Events, frame
from tidegate.sources.mysql.log.images import unsigned
from tidegate.sources.mysql.log.rows import Rows, TableMaps, decode_rows
from tidegate.sources.mysql.log.table_map import TableMap
from tidegate.sources.mysql.snapshot.borders import ReadKey, next_border
from tidegate.sources.mysql.snapshot.emit import touched_keys, untouched
from tidegate.sources.mysql.snapshot.select import SESSION, Border
from tidegate.sources.mysql.snapshot.stage import Note, Order, read_note, read_part, stage
from tidegate.sources.mysql.snapshot.visible import begin_read
from tidegate.testing import MemoryStore

Row = tuple[bytes | None, ...]


@dataclass(frozen=True)
class Case:
    """A table, its key, and how clients change it."""

    name: str
    declared: str
    layout: Layout
    key: ReadKey
    row: Callable[[random.Random], str]
    change: Callable[[random.Random], str]


LETTERS = "abXYm"


def word(chance: random.Random) -> str:
    return "".join(chance.choice(LETTERS) for _ in range(5))


def change_word(chance: random.Random) -> str:
    word_, other = word(chance), word(chance)
    return chance.choice([
        f"INSERT IGNORE INTO words VALUES ('{word_}', {chance.randrange(999)})",
        f"UPDATE words SET v = v + 1 WHERE k BETWEEN '{word_[:2]}' AND '{word_[:2]}zz' LIMIT 3",
        f"UPDATE IGNORE words SET k = '{other}', v = v + 100 WHERE k > '{word_[:3]}' ORDER BY k LIMIT 1",
        f"UPDATE IGNORE words SET k = '{word_.swapcase()}' WHERE k = '{word_}'",
        f"UPDATE IGNORE words SET k = UPPER(k) WHERE k > '{word_}' ORDER BY k LIMIT 2",
        f"DELETE FROM words WHERE k > '{word_}' ORDER BY k LIMIT 2",
        f"REPLACE INTO words VALUES ('{word_.upper()}', {chance.randrange(999)})",
    ])  # fmt: skip


def change_pair(chance: random.Random) -> str:
    a, b = chance.randrange(40), word(chance)[:3]
    return chance.choice([
        f"INSERT IGNORE INTO pairs VALUES ({a}, '{b}', {chance.random()!r}, 'new')",
        f"UPDATE IGNORE pairs SET a = a + 1, w = 'moved' WHERE a = {a} AND b > '{b}' ORDER BY b LIMIT 2",
        f"UPDATE IGNORE pairs SET b = UPPER(b) WHERE a = {a} LIMIT 2",
        f"UPDATE pairs SET f = f + 1 WHERE a = {a} LIMIT 4",
        f"DELETE FROM pairs WHERE a = {a} ORDER BY b LIMIT 1",
    ])  # fmt: skip


WORDS = Case(
    "words",
    "k varchar(40) PRIMARY KEY, v int NOT NULL",
    Layout((Column("k", "varchar", 40, nullable=False, pk=True), Column("v", "int", nullable=False))),
    ReadKey("PRIMARY", ("k",)),
    lambda chance: f"('{word(chance)}', 0)",
    change_word,
)
PAIRS = Case(
    "pairs",
    "a int NOT NULL, b char(6) NOT NULL, f float NOT NULL, w text, UNIQUE KEY u (a, b, f)",
    Layout((Column("a", "int", nullable=False), Column("b", "char", 6, nullable=False),
            Column("f", "float", nullable=False), Column("w", "text")), (("a", "b", "f"),)),
    ReadKey("u", ("a", "b", "f")),
    lambda chance: f"({chance.randrange(40)}, '{word(chance)[:3]}', {chance.random()!r}, 'old')",
    change_pair,
)  # fmt: skip


def address_of(database: Database) -> Address:
    return parse_address(f"mysql://root@127.0.0.1:{database.port}/?tables=*.*&ssl=off")


def use_shop(connection: Connection) -> Connection:
    asked(connection, "CREATE DATABASE IF NOT EXISTS chunks CHARACTER SET utf8mb4", "USE chunks")
    return connection


def filled(database: Database, case: Case, rows: int) -> None:
    chance = random.Random(case.name)
    with use_shop(database.connect()) as connection:
        asked(connection, f"DROP TABLE IF EXISTS {case.name}", f"CREATE TABLE {case.name} ({case.declared})")
        for _ in range(0, rows, 500):
            values = ",".join(case.row(chance) for _ in range(500))
            asked(connection, f"INSERT IGNORE INTO {case.name} VALUES {values}")


@contextmanager
def writers(database: Database, case: Case, count: int = 3) -> Iterator[None]:
    """Clients that change the table until the end of the block."""
    ends = threading.Event()

    def write(seed: int) -> None:
        chance = random.Random(f"{case.name}{seed}")
        with use_shop(database.connect()) as connection:
            while not ends.is_set():
                try:
                    connection.begin()
                    for _ in range(chance.randrange(1, 4)):
                        asked(connection, case.change(chance))
                    connection.commit()
                except (OperationalError, IntegrityError):  # a deadlock with another writer
                    connection.rollback()

    with ThreadPoolExecutor(count) as pool:
        done = [pool.submit(write, seed) for seed in range(count)]
        try:
            yield
        finally:
            ends.set()
        for each in done:
            each.result()


def borders_of(database: Database, case: Case, rows: int) -> list[Border | None]:
    found: list[Border | None] = [None]
    with database.connect() as connection:
        asked(connection, *SESSION)
        while found[-1] is not None or len(found) == 1:
            found.append(next_border(connection, "chunks", case.name, case.layout, case.key, found[-1], rows))
    return found


def staged(database: Database, case: Case, store: MemoryStore, order: Order) -> Note:
    with database.connect() as connection:
        stage(connection, address_of(database), database.name == "mariadb", store, order)
    note = read_note(store, order.name)
    assert note is not None
    return note


def read_chunks(database: Database, case: Case, store: MemoryStore, rows: int) -> list[Note]:
    borders = borders_of(database, case, rows)
    orders = [
        Order(f"1-0-{i}", "chunks", case.name, case.layout, case.key, low, high)
        for i, (low, high) in enumerate(itertools.pairwise(borders))
    ]
    with ThreadPoolExecutor(3) as pool:
        return list(pool.map(lambda order: staged(database, case, store, order), orders))


class Log:
    """A log file with the place behind each of its events."""

    def __init__(self, log: bytes) -> None:
        self.log = log
        self.events, _ = frame(log, CHECKSUM_BYTES)
        self.place = unsigned(np.frombuffer(log, np.uint8), self.events.start + 13, 4).astype(np.int64)
        self.maps = TableMaps()
        list(decode_rows(log, self.events, self.maps, lambda table: None))

    def ends(self) -> list[int]:
        """Where transactions end."""
        return [int(place) for place in self.place[self.events.kind == XID]]

    def changes(self, case: Case, after: int, until: int, columns: tuple[str, ...]) -> list[Rows]:
        chosen: Events = self.events.chosen((self.place > after) & (self.place <= until))

        def places(table: TableMap) -> tuple[int, ...] | None:
            names = [column.name for column in table.columns]
            return tuple(names.index(name) for name in columns) if table.table == case.name else None

        return list(decode_rows(self.log, chosen, self.maps, places))


def applied(state: dict[Row, Row], rows: list[Rows], positions: tuple[int, ...]) -> None:
    """As a reader does it: an insert or an update puts the row, and a row that has another key now is not there."""
    for each in rows:
        for before, after in zip(each.before.to_pylist(), each.after.to_pylist(), strict=True):
            if before is not None:
                state.pop(tuple(before[i] for i in positions), None)
            if after is not None:
                state[tuple(after[i] for i in positions)] = tuple(after)


@pytest.mark.parametrize("case", [WORDS, PAIRS], ids=lambda case: case.name)
def test_chunks_that_are_read_while_clients_write_give_the_table_together_with_the_log(
    database: Database, case: Case
) -> None:
    store, file = MemoryStore(), database.begin_log()
    filled(database, case, 3_000)
    with database.connect() as connection:
        begin = log_end(connection, address_of(database), database.name == "mariadb")
    with writers(database, case):
        time.sleep(0.2)
        notes = read_chunks(database, case, store, 250)
        time.sleep(0.2)
    assert len(notes) > 5
    assert begin[0] == file
    log = Log(database.read_log(file))
    positions, columns = case.key.positions(case.layout), tuple(column.name for column in case.layout.columns)
    state: dict[Row, Row] = {}
    reached, chance, emitted, left_out = begin[1], random.Random(5), 0, 0
    for note in notes:
        later = [end for end in log.ends() if end >= max(note.until[1], reached)]
        at = chance.choice(later[:20]) if later else max(note.until[1], reached)
        applied(state, log.changes(case, reached, at, columns), positions)
        touched = touched_keys(log.changes(case, note.after[1], at, case.key.columns))
        parts = [lists for part in note.parts for lists in read_part(store, part.path)]
        for lists, numbers in untouched(parts, positions, touched):
            assert len(lists) == len(numbers)
            emitted += len(lists)
            state |= {tuple(row[i] for i in positions): tuple(row) for row in lists.to_pylist()}
        left_out += sum(map(len, parts))
        reached = at
    applied(state, log.changes(case, reached, 1 << 62, columns), positions)
    assert 0 < emitted < left_out
    assert state == rows_now(database, case)


def rows_now(database: Database, case: Case) -> dict[Row, Row]:
    store = MemoryStore()
    note = staged(database, case, store, Order("all", "chunks", case.name, case.layout, case.key))
    positions = case.key.positions(case.layout)
    lists = [row for part in note.parts for each in read_part(store, part.path) for row in each.to_pylist()]
    return {tuple(row[i] for i in positions): tuple(row) for row in lists}


# The log is written before the engine commits -------------------------------------------------------------------------

SEMI_SYNC = {
    "mariadb": ("rpl_semi_sync_master", "rpl_semi_sync_master_wait_no_slave"),
    "mysql": ("rpl_semi_sync_source", "rpl_semi_sync_source_wait_no_replica"),
}


@contextmanager
def engine_waits(database: Database) -> Iterator[Callable[[], None]]:
    """Transactions are in the log, but are not committed until the function is called: no replica has them."""
    name, without = SEMI_SYNC[database.name]
    with database.connect() as connection:
        if database.name == "mysql" and not asked(connection, f"SHOW VARIABLES LIKE '{name}_enabled'"):
            asked(connection, "INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'")
        asked(connection, f"SET GLOBAL {name}_timeout = 3600000", f"SET GLOBAL {name}_wait_point = 'AFTER_SYNC'")
        asked(connection, f"SET GLOBAL {without} = ON", f"SET GLOBAL {name}_enabled = ON")

        def end() -> None:
            with database.connect() as other:
                asked(other, f"SET GLOBAL {name}_enabled = OFF")

        try:
            yield end
        finally:
            end()


def until_true(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.01)


def test_a_transaction_that_is_in_the_log_but_not_committed_is_not_lost(database: Database) -> None:
    case, store, is_mariadb = WORDS, MemoryStore(), database.name == "mariadb"
    filled(database, case, 500)
    address = address_of(database)
    order = Order("1-0-0", "chunks", case.name, case.layout, case.key)
    with database.connect() as connection, ThreadPoolExecutor(2) as pool:
        asked(connection, "USE chunks")
        with engine_waits(database) as commit:
            before = log_end(connection, address, is_mariadb)
            insert = pool.submit(insert_late, database)
            until_true(lambda: log_end(connection, address, is_mariadb) != before)
            behind = log_end(connection, address, is_mariadb)
            # This is the trap: the log says that the row is there, and a read does not see it.
            assert asked(connection, "SELECT COUNT(*) FROM words WHERE k = 'late'") == [(0,)]
            with pytest.raises(SourceUnavailable, match="not committed"):
                begin_read(connection, address, is_mariadb, wait_s=0.2)
            reading = pool.submit(staged, database, case, store, order)
            time.sleep(0.3)
            assert not insert.done()
            assert not reading.done()
            commit()
        insert.result()
        note = reading.result()
    assert note.after >= behind
    rows = [row for part in note.parts for lists in read_part(store, part.path) for row in lists.to_pylist()]
    assert [b"late", b"1"] in rows


def insert_late(database: Database) -> None:
    with database.connect() as connection:
        asked(connection, "INSERT INTO chunks.words VALUES ('late', 1)")


# Staging --------------------------------------------------------------------------------------------------------------


def test_a_chunk_is_read_once_and_its_first_note_counts(database: Database) -> None:
    filled(database, WORDS, 500)
    store = MemoryStore()
    order = Order("1-0-0", "chunks", "words", WORDS.layout, WORDS.key)
    first = staged(database, WORDS, store, order)
    with database.connect() as connection:
        asked(connection, "INSERT INTO chunks.words VALUES ('zzzzz', 1)")
    assert staged(database, WORDS, store, order) == first
    assert Note.from_json(first.to_json()) == first
    assert Order.from_json(order.to_json()) == order


def test_a_table_that_has_other_columns_or_is_gone_is_refused(database: Database) -> None:
    filled(database, WORDS, 500)
    store = MemoryStore()
    other = Layout((*WORDS.layout.columns, Column("more", "int")))
    assert "columns" in staged(database, WORDS, store, Order("1-0-0", "chunks", "words", other, WORDS.key)).refused
    gone = staged(database, WORDS, store, Order("1-0-1", "chunks", "nothing", WORDS.layout, WORDS.key))
    assert "gone" in gone.refused
    assert gone.parts == ()


def test_a_large_chunk_is_staged_in_parts(database: Database) -> None:
    filled(database, WORDS, 2_000)
    store = MemoryStore()
    with use_shop(database.connect()) as connection:
        asked(connection, "DROP TABLE IF EXISTS wide", "CREATE TABLE wide (id int PRIMARY KEY, v longblob)")
        for i in range(3):
            asked(connection, f"INSERT INTO wide VALUES ({i}, REPEAT(x'01f5', {9 << 20}))")
        asked(connection, "INSERT INTO wide VALUES (3, NULL), (4, ''), (5, x'01f501f5')")
    layout = Layout((Column("id", "int", nullable=False, pk=True), Column("v", "longtext", binary=True)))
    case = Case("wide", "", layout, ReadKey("PRIMARY", ("id",)), word, word)
    note = staged(database, case, store, Order("2-0-0", "chunks", "wide", layout, case.key))
    rows = [row for part in note.parts for lists in read_part(store, part.path) for row in lists.to_pylist()]
    assert [row[0] for row in rows] == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert [row[1] for row in rows] == [*[b"\x01\xf5" * (9 << 20)] * 3, None, b"", b"\x01\xf5\x01\xf5"]
    assert len(note.parts) == 4
    assert sum(part.rows for part in note.parts) == 6
