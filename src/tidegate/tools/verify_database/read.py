"""A consistent read of some tables: their rows at one moment, without a lock, and which moment it was."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pymysql.connections import Connection
from pymysql.cursors import SSCursor
from pymysql.err import MySQLError

from tidegate.errors import SourceUnavailable
from tidegate.sources.mysql.place import Place
from tidegate.tools.verify_database.moment import GtidSet, Moment
from tidegate.tools.verify_database.rows import PUT, Changes, changes
from tidegate.tools.verify_database.tables import DatabaseTable
from tidegate.tools.verify_database.values import in_one_form

_ROWS = 5_000  # that are fetched together
_TRIES = 50
_CHANGED = frozenset((1412, 1054, 1146))  # a DDL came in between
_SESSION = (
    "SET SESSION time_zone = '+00:00', sql_mode = '', net_write_timeout = 600",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
)
BYTES = {"use_unicode": False, "conv": {}}  # options of a connection whose values are the bytes that the server sends


class TableChanged(Exception):
    """A DDL changed the table while it was read, so it must be read again."""


class ConsistentRead:
    """A transaction of its own; `connection` was opened with `BYTES`."""

    def __init__(self, connection: Connection, is_mariadb: bool) -> None:
        self._connection = connection
        for statement in _SESSION:
            self._ask(statement)
        self.moment = self._begin_mariadb() if is_mariadb else self._begin_mysql()

    def _ask(self, statement: str) -> list[tuple[bytes, ...]]:
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(statement)
                return list(cursor.fetchall())
        except (MySQLError, OSError) as exc:
            raise SourceUnavailable(f"the database does not answer: {exc}") from exc

    def _begin_mariadb(self) -> Moment:
        self._ask("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        said = {row[0]: row[1] for row in self._ask("SHOW STATUS LIKE 'binlog_snapshot_%'")}
        place = Place(said[b"Binlog_snapshot_file"].decode(), int(said[b"Binlog_snapshot_position"]))
        return Moment(place, place)

    def _begin_mysql(self) -> Moment:
        """A read that begins between two equal answers has seen exactly the transactions in them.

        On a busy server a transaction comes in between again and again. Then what was executed before counts: of what
        came since, some may have been seen and is put once more, which changes nothing on a table with a key.
        """
        executed = self._ask("SELECT @@gtid_executed")
        for _ in range(_TRIES):
            self._ask("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            ((file, at, *_),) = self._ask("SHOW BINARY LOG STATUS")
            now = self._ask("SELECT @@gtid_executed")
            if now == executed:
                break
            executed, before = now, executed
        else:
            executed = before
        return Moment(Place(file.decode(), int(at)), executed=GtidSet.of(executed[0][0].decode()))

    def rows(self, table: DatabaseTable) -> Iterator[Changes]:
        """All rows of the table, each as one that is put."""
        names = [column.name for column in table.columns]
        key = tuple(names.index(name) for name in table.key)
        try:
            with self._connection.cursor(SSCursor) as cursor:
                cursor.execute(table.select())
                while fetched := cursor.fetchmany(_ROWS):
                    yield _rows(fetched, table, key)
        except MySQLError as exc:
            if exc.args and exc.args[0] in _CHANGED:
                raise TableChanged(table.name) from exc
            raise SourceUnavailable(f"{table.name} cannot be read: {exc}") from exc
        except OSError as exc:
            raise SourceUnavailable(f"{table.name} cannot be read: {exc}") from exc

    def end(self) -> None:
        self._ask("ROLLBACK")


def _rows(fetched: tuple[tuple[bytes | None, ...], ...], table: DatabaseTable, key: tuple[int, ...]) -> Changes:
    columns = [
        in_one_form(pa.array(values, pa.binary()), column.type, bool(key))
        for values, column in zip(zip(*fetched, strict=True), table.columns, strict=True)
    ]
    return changes(np.full(len(fetched), PUT, np.int8), columns, key)
