"""A thread that looks for the borders of chunks, in the planner's process: one look into an index at a time.

If the table is gone, or is not what the catalogue says, the rest of it becomes one chunk: the task that reads it says
what is wrong (`stage`), and the log explains it, or the changefeed ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from pymysql.connections import Connection
from pymysql.err import MySQLError

from tidegate.errors import TidegateError
from tidegate.sources.mysql.address import Address
from tidegate.sources.mysql.connect import ask, close, connect
from tidegate.sources.mysql.snapshot.borders import chunk_rows, next_border
from tidegate.sources.mysql.snapshot.queue import Queue, Reading
from tidegate.sources.mysql.snapshot.select import SESSION, Border

_PAUSE_S = 1.0
_LOOK_S = 0.5
_SIZES = (
    "SELECT CAST(table_rows AS CHAR), CAST(avg_row_length AS CHAR) FROM information_schema.tables "
    "WHERE table_schema = %s AND table_name = %s"
)


@dataclass
class Looker:
    """`ended` says that nobody needs borders any more. `first` is done once, before all else."""

    address: Address
    password: str
    queue: Queue
    lock: threading.Condition
    ended: Callable[[], bool]
    first: Callable[[], None]
    away: str = ""
    _connection: Connection | None = field(default=None, init=False)

    def start(self) -> None:
        threading.Thread(target=self._run, name="borders", daemon=True).start()

    def _run(self) -> None:
        todo: Callable[[], None] = self.first
        while not self.ended():
            try:
                todo()
                todo = self._look_once
                self.away = ""
            except TidegateError as exc:
                self.away = str(exc)
                self._close()
                with self.lock:
                    self.lock.wait(_PAUSE_S)
        self._close()

    def _look_once(self) -> None:
        with self.lock:
            reading = self.queue.next_look()
            if reading is None:
                self.lock.wait(_LOOK_S)
                return
        high = self._border(reading)
        with self.lock:
            self.queue.found(reading, high)
            self.lock.notify_all()

    def _border(self, reading: Reading) -> Border | None:
        connection, table = self._connected(), reading.table
        if not reading.rows:
            rows, row_bytes = self._sizes(connection, table.database, table.name)
            reading.rows, reading.all_rows = chunk_rows(row_bytes), rows
        try:
            return next_border(
                connection, table.database, table.name, table.layout, reading.key, reading.low, reading.rows
            )
        except MySQLError:
            return None

    def _sizes(self, connection: Connection, database: str, table: str) -> tuple[int, int]:
        """About how many rows the table has, and the bytes of one."""
        found = ask(connection, self.address, _SIZES, database, table)
        rows, row_bytes = (int(number or 0) for number in found[0]) if found else (0, 0)
        return rows, row_bytes

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = connect(self.address, self.password, read_timeout=600)
            for statement in SESSION:
                ask(self._connection, self.address, statement)
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            close(self._connection)
            self._connection = None
