"""How fast the log of a live database is read and decoded, against the pure Python reader `mysql-replication`.

Four logs are written by a client: many rows an event, one row an event, updates, and a table with 13 columns of mixed
types. Each side reads each log from the server and turns all rows into values; ours are the texts of change events,
theirs Python objects. Processor seconds of this process count, so the server's own work does not. Both sides must find
the same values.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import numpy as np
from pymysql.connections import Connection

from tidegate.bench.encode import best
from tidegate.bench.harness.database_log import Values, changes_in
from tidegate.bench.harness.databases import Database, asked
from tidegate.bench.harness.feed import say
from tidegate.bench.harness.figures import Figures
from tidegate.bench.mysql.parameters import Parameters, Place
from tidegate.bench.mysql.tables import STATEMENT_ROWS, SYSBENCH, insert_rows, sysbench_row
from tidegate.errors import TidegateError, UsageError
from tidegate.sources.mysql.log.framing import CHECKSUM_BYTES, frame
from tidegate.sources.mysql.log.rows import TableMaps, decode_rows

_READER_ID = 1002
_COLOURS = ("red", "green", "blue")
_MIXED = (
    "id bigint unsigned PRIMARY KEY, tiny tinyint, small smallint unsigned, ratio double, score float, "
    "price decimal(12,2), name varchar(40), note text, raw varbinary(24), day date, moment datetime(3), "
    "stamp timestamp NULL, colour enum('red','green','blue')"
)


def run(place: Place, wanted: Parameters) -> Figures:
    with place.database.connect() as connection:
        asked(connection, "CREATE DATABASE bench", "USE bench", "SET time_zone = '+00:00'")
        return _decode_figures(place.database, connection, wanted)


def _decode_figures(database: Database, connection: Connection, wanted: Parameters) -> Figures:
    figures: Figures = {}
    ratios = []
    for name, write in CASES.items():
        say(f"writing a log: {name.replace('_', ' ')}")
        rows, file = write(database, connection, wanted.rows)
        _check_same(database, file)
        ours_s = best(lambda file=file: _decoded_rows(database, file), wanted.repeats)  # type: ignore[misc]
        theirs_s = best(lambda file=file: sum(1 for _ in _library_rows(database, file)), wanted.repeats)  # type: ignore[misc]
        figures |= {f"{name}_rows_s": rows / ours_s, f"{name}_pure_python_rows_s": rows / theirs_s}
        ratios.append(theirs_s / ours_s)
        figures[f"{name}_decode_ratio"] = ratios[-1]
    return figures | {"decode_ratio_to_pure_python": min(ratios)}


# Logs -----------------------------------------------------------------------------------------------------------------


def _mixed_row(i: int) -> str:
    day = f"2026-01-{i % 28 + 1:02d}"
    if i % 10 == 9:
        return f"({i}{',NULL' * 12})"
    return (
        f"({i},{i % 200 - 100},{i % 60_000},{i / 7!r},{i % 100 / 8!r},{i}.{i % 100:02d},'name {i}','a note of {i}',"
        f"x'{i:016x}','{day}','{day} 03:04:05.{i % 1000:03d}','2026-02-{i % 28 + 1:02d} 01:02:03',{i % 3 + 1})"
    )


def _new_table(connection: Connection, database: Database, table: str, columns: str) -> str:
    asked(connection, f"CREATE TABLE {table} ({columns})")
    return database.begin_log()


def _write_many(database: Database, connection: Connection, rows: int) -> tuple[int, str]:
    file = _new_table(connection, database, "many", SYSBENCH)
    insert_rows(connection, "many", sysbench_row, rows, STATEMENT_ROWS)
    return rows, file


def _write_single(database: Database, connection: Connection, rows: int) -> tuple[int, str]:
    rows = max(1, rows // 4)
    file = _new_table(connection, database, "single", SYSBENCH)
    connection.begin()
    insert_rows(connection, "single", sysbench_row, rows, 1)
    connection.commit()
    return rows, file


def _write_updates(database: Database, connection: Connection, rows: int) -> tuple[int, str]:
    _new_table(connection, database, "updates", SYSBENCH)
    insert_rows(connection, "updates", sysbench_row, rows, STATEMENT_ROWS)
    file = database.begin_log()
    asked(connection, "UPDATE updates SET k = k + 1")
    return rows, file


def _write_mixed(database: Database, connection: Connection, rows: int) -> tuple[int, str]:
    file = _new_table(connection, database, "mixed", _MIXED)
    insert_rows(connection, "mixed", _mixed_row, rows, STATEMENT_ROWS)
    return rows, file


CASES: dict[str, Callable[[Database, Connection, int], tuple[int, str]]] = {
    "many_rows_an_event": _write_many,
    "one_row_an_event": _write_single,
    "updates": _write_updates,
    "mixed_columns": _write_mixed,
}


# Both sides -----------------------------------------------------------------------------------------------------------


def _decoded_rows(database: Database, file: str) -> int:
    log = database.read_log(file)
    events, _ = frame(log, CHECKSUM_BYTES)
    return sum(len(rows.event) for rows in decode_rows(log, events, TableMaps()))


def _library_rows(database: Database, file: str) -> Iterator[dict[str, Any]]:
    try:
        from pymysqlreplication import BinLogStreamReader
        from pymysqlreplication.event import RotateEvent
        from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent
    except ImportError as exc:
        raise UsageError("this benchmark compares with mysql-replication: pip install mysql-replication") from exc
    settings = {"host": "127.0.0.1", "port": database.port, "user": "root", "ssl_disabled": True}
    kinds = [WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent]
    reader = BinLogStreamReader(
        settings, _READER_ID, log_file=file, log_pos=4, resume_stream=True, only_events=[*kinds, RotateEvent],
        enable_logging=False,
    )  # fmt: skip
    try:
        for event in reader:
            if isinstance(event, RotateEvent):
                if event.next_binlog != file:
                    return
                continue
            yield from event.rows
    finally:
        reader.close()


def _check_same(database: Database, file: str) -> None:
    """Every value of every row, from both readers."""
    ours = [change for _, change in changes_in(database.read_log(file))]
    theirs = list(_library_rows(database, file))
    if len(ours) != len(theirs):
        raise TidegateError(f"{file}: {len(ours)} rows in the log, but mysql-replication finds {len(theirs)}")
    for (_, before, after), row in zip(ours, theirs, strict=True):
        values = [row["values"]] if "values" in row else [row["before_values"], row["after_values"]]
        sides = [side for side in (before, after) if side is not None]
        if not all(_same(side, list(other.values())) for side, other in zip(sides, values, strict=True)):
            raise TidegateError(f"{file}: a row differs from what mysql-replication finds")


def _same(ours: Values, theirs: list[Any]) -> bool:
    return all(same_value(one, other) for one, other in zip(ours, theirs, strict=True))


def same_value(text: bytes | None, value: Any) -> bool:
    """Whether the text of an event means the Python object."""
    match value:
        case None:
            return text is None
        case float():
            return text is not None and (float(text) == value or bool(np.float32(text) == np.float32(value)))
        case datetime.datetime():
            return text is not None and datetime.datetime.fromisoformat(text.decode()) == value
        case bytes():
            return text == value
        case str() if value in _COLOURS:
            return text == b"%d" % (_COLOURS.index(value) + 1)
        case int() | Decimal() | datetime.date() | str():
            return text == str(value).encode()
    return False
