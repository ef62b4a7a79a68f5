"""The tables of the benchmark, with rows like those of sysbench, and whether a sink holds what the database holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
from pymysql.connections import Connection

from tidegate.bench.harness.databases import Database, asked
from tidegate.bench.harness.feed import Feed
from tidegate.bench.harness.landed_rows import landed_rows
from tidegate.errors import TidegateError

SCHEMA = "bench"
SYSBENCH = "id int PRIMARY KEY, k int NOT NULL, c char(120) NOT NULL, pad char(60) NOT NULL"
COLUMNS = ("id", "k", "c", "pad")
STATEMENT_ROWS = 1_000
_CONTENT_OF = "SELECT id, k, c, pad FROM {table} WHERE id >= {first} AND id < {last} ORDER BY id"
_READ_ROWS = 50_000


def insert_rows(connection: Connection, table: str, row: Callable[[int], str], rows: int, at_once: int) -> None:
    for start in range(0, rows, at_once):
        values = ",".join(row(i) for i in range(start, min(start + at_once, rows)))
        asked(connection, f"INSERT INTO {table} VALUES {values}")


def sysbench_row(i: int) -> str:
    digits = f"{i * 2_654_435_761 % 10**11:011d}-"
    return f"({i},{i * 7},'{digits * 9}','{digits * 4}')"


def table_names(tables: int) -> list[str]:
    """`["bench.sbtest1", ...]`"""
    return [f"{SCHEMA}.sbtest{number}" for number in range(1, tables + 1)]


def make_tables(database: Database, names: Sequence[str], columns: str = SYSBENCH) -> None:
    with database.connect() as connection:
        asked(connection, f"CREATE DATABASE IF NOT EXISTS {SCHEMA}")
        for name in names:
            asked(connection, f"CREATE TABLE {name} ({columns})")


def fill_tables(database: Database, names: Sequence[str], rows: int) -> None:
    """So many rows in each."""
    with database.connect() as connection:
        for name in names:
            insert_rows(connection, name, sysbench_row, rows, STATEMENT_ROWS)


def update_tables(database: Database, names: Sequence[str], rows: int) -> None:
    """Every row once, in statements of as many rows as it was inserted by."""
    with database.connect() as connection:
        for name in names:
            for start in range(0, rows, STATEMENT_ROWS):
                asked(connection, f"UPDATE {name} SET k = k + 1 WHERE id >= {start} AND id < {start + STATEMENT_ROWS}")


def check_content(database: Database, feed: Feed, names: Sequence[str]) -> int:
    """How many rows the tables have; raises if the sink does not have exactly these."""
    if not isinstance(feed.sink, Path):
        raise TidegateError("only a directory is compared with the database")
    total = 0
    for name in names:
        landed = landed_rows(feed.settings, name, COLUMNS, "id")
        total += _check_table(database, name, landed)
    return total


def _check_table(database: Database, name: str, landed: pa.Table) -> int:
    """Both sides in the order of the key, some ten thousand rows at a time."""
    with database.connect(conv={}) as connection:  # values as texts
        rows, most = asked(connection, f"SELECT COUNT(*), COALESCE(MAX(id), 0) FROM {name}")[0]
        if landed.num_rows != int(rows):
            raise TidegateError(f"{name} has {rows} rows, but a reader of the sink finds {landed.num_rows}")
        done = 0
        for first in range(0, int(most) + 1, _READ_ROWS):
            found = asked(connection, _CONTENT_OF.format(table=name, first=first, last=first + _READ_ROWS))
            wanted = pa.table([pa.array(column, pa.string()) for column in zip(*found, strict=True)], list(COLUMNS))
            if not landed.slice(done, len(found)).equals(wanted):
                raise TidegateError(f"{name}: a row from {first} on differs from the one on the sink")
            done += len(found)
    return done
