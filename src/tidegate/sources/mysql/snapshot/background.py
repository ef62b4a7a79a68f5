"""Threads of the planner's process that ask the server and the store for a snapshot, so that nobody waits for that.

`Borders` looks for the borders of chunks, one look into an index at a time. If the table is gone, or is not what the
catalogue says, the rest of it becomes one chunk: the task that reads it says what is wrong (`stage`), and the log
explains it, or the changefeed ends. `Wholes` reads tables without a key, which tasks cannot share. `Chores` deletes
what is over.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from pymysql.connections import Connection
from pymysql.err import MySQLError

from tidegate.errors import TidegateError
from tidegate.sources.mysql.address import Address
from tidegate.sources.mysql.connect import ask, close, connect
from tidegate.sources.mysql.snapshot.borders import chunk_rows, next_border
from tidegate.sources.mysql.snapshot.queue import Queue, Reading
from tidegate.sources.mysql.snapshot.select import SESSION, Border
from tidegate.sources.mysql.snapshot.stage import read_note, stage
from tidegate.sources.mysql.snapshot.visible import LogPlace
from tidegate.storage.store import Store

_PAUSE_S = 1.0
_LOOK_S = 0.5
_READ_TIMEOUT_S = 600  # a server may look for rows for long before the first one comes
_SIZES = (
    "SELECT CAST(table_rows AS CHAR), CAST(avg_row_length AS CHAR) FROM information_schema.tables "
    "WHERE table_schema = %s AND table_name = %s"
)


class Work(Protocol):
    def step(self, connected: Callable[[], Connection]) -> bool:
        """Does one thing; False if there is nothing to do."""
        ...


@dataclass
class Background:
    """A thread that repeats one kind of work until nobody needs it. What fails is tried again."""

    name: str
    address: Address
    password: str
    lock: threading.Condition
    ended: Callable[[], bool]
    work: Work
    away: str = ""  # why it does not go on at this moment
    _connection: Connection | None = field(default=None, init=False)

    def start(self) -> None:
        threading.Thread(target=self._run, name=self.name, daemon=True).start()

    def _run(self) -> None:
        while not self.ended():
            try:
                if not self.work.step(self._connected):
                    self._wait(_LOOK_S)
                self.away = ""
            except TidegateError as exc:
                self.away = str(exc)
                self._close()
                self._wait(_PAUSE_S)
        self._close()

    def _wait(self, seconds: float) -> None:
        with self.lock:
            self.lock.wait(seconds)

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = connect(self.address, self.password, read_timeout=_READ_TIMEOUT_S)
            for statement in SESSION:
                ask(self._connection, self.address, statement)
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            close(self._connection)
            self._connection = None


@dataclass
class Borders:
    address: Address
    queue: Queue
    lock: threading.Condition

    def step(self, connected: Callable[[], Connection]) -> bool:
        with self.lock:
            reading = self.queue.next_look()
        if reading is None:
            return False
        high = self._border(connected(), reading)
        with self.lock:
            self.queue.found(reading, high)
            self.lock.notify_all()
        return True

    def _border(self, connection: Connection, reading: Reading) -> Border | None:
        table, key = reading.table, reading.key
        assert key is not None, "without a key there are no borders"
        if not reading.rows:
            reading.all_rows, row_bytes = self._sizes(connection, table.database, table.name)
            reading.rows = chunk_rows(row_bytes)
        try:
            return next_border(connection, table.database, table.name, table.layout, key, reading.low, reading.rows)
        except MySQLError:
            return None

    def _sizes(self, connection: Connection, database: str, table: str) -> tuple[int, int]:
        """About how many rows the table has, and the bytes of one."""
        found = ask(connection, self.address, _SIZES, database, table)
        rows, row_bytes = (int(number or 0) for number in found[0]) if found else (0, 0)
        return rows, row_bytes


@dataclass
class Wholes:
    """`place` says where in the log the pump is."""

    address: Address
    is_mariadb: bool
    store: Store
    queue: Queue
    lock: threading.Condition
    place: Callable[[], LogPlace]

    def step(self, connected: Callable[[], Connection]) -> bool:
        with self.lock:
            reading = self.queue.next_whole()
            order = self.queue.begin_whole(reading, self.place()) if reading is not None else None
        if reading is None or order is None:
            return False
        note = None
        try:
            stage(connected(), self.address, self.is_mariadb, self.store, order)
            note = read_note(self.store, order.name)
        finally:
            with self.lock:
                if self.queue.holds(reading):
                    self.queue.end_whole(reading, note)
                self.lock.notify_all()
        return note is not None


@dataclass
class Chores:
    """What is to be done with the store, in order. One that fails is tried again."""

    todo: deque[Callable[[], None]] = field(default_factory=deque)

    def step(self, connected: Callable[[], Connection]) -> bool:
        if not self.todo:
            return False
        self.todo[0]()
        self.todo.popleft()
        return True
