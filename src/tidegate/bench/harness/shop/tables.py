"""The tables of the shop. All keep the columns `v` and `name`, whatever DDLs do to the others.

`shop` and databases whose names begin with it are followed, but no table whose name begins with `attic_`: tables are
renamed from there, and to there. The database `attic` is not followed at all.
"""

from __future__ import annotations

from tidegate.bench.harness.databases import Database, asked

FOLLOWED, LEFT_OUT = "shop", "attic"
ATTIC = "attic_"
RULES = f"{FOLLOWED}*.*,!{FOLLOWED}.{ATTIC}*"
_STATEMENT_ROWS = 500

TABLES = {
    "orders": (
        "id bigint unsigned AUTO_INCREMENT PRIMARY KEY, v int NOT NULL, name varchar(60), price decimal(12,2), "
        "at datetime(3), note text"
    ),
    "codes": "code varchar(30) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci PRIMARY KEY, v int NOT NULL, name text",
    "pairs": "a int, b varchar(12), v int NOT NULL, name varchar(60) CHARACTER SET latin1, PRIMARY KEY (a, b)",
    "loose": "id int, v int NOT NULL, name varchar(60)",
    "parts": "id int, region int, v int NOT NULL, name varchar(60), PRIMARY KEY (id, region)",
    "mixed": (
        "id int PRIMARY KEY, v int NOT NULL, name varchar(60), f float, d double, raw varbinary(20), fixed binary(6), "
        "day date, t time(2), stamp timestamp(3) NULL, y year, kind enum('red','green'), tags set('a','b','c'), "
        "flags bit(9), j json, twice bigint AS (id * 2) VIRTUAL, thrice bigint AS (id * 3) STORED"
    ),
    "stock": "id int PRIMARY KEY, v int NOT NULL, name varchar(60), c char(120) NOT NULL, pad varchar(250) NOT NULL",
}


def make_shop(database: Database, rows: int) -> None:
    """The tables, of which `stock` has so many rows and the others a few."""
    with database.connect() as connection:
        asked(connection, f"CREATE DATABASE {FOLLOWED}", f"CREATE DATABASE {LEFT_OUT}", f"USE {FOLLOWED}")
        for table, columns in TABLES.items():
            more = " PARTITION BY HASH (region) PARTITIONS 4" if table == "parts" else ""
            asked(connection, f"CREATE TABLE {table} ({columns}){more}")
        for first in range(0, rows, _STATEMENT_ROWS):
            ids = range(first, min(first + _STATEMENT_ROWS, rows))
            asked(connection, f"INSERT INTO stock VALUES {','.join(map(_stock_row, ids))}")
        few = range(1, 200)
        asked(connection, f"INSERT INTO orders (v, name) VALUES {','.join(f'({i}, {i})' for i in few)}")
        asked(connection, f"INSERT INTO loose VALUES {','.join(f'({i // 2}, 0, NULL)' for i in few)}")
        codes = ",".join(f"('Code{i}', {i}, 'ü{i}')" for i in few)
        asked(connection, f"INSERT INTO codes VALUES {codes}")


def _stock_row(i: int) -> str:
    digits = f"{i * 2_654_435_761 % 10**11:011d}-"
    return f"({i},0,'item {i}','{digits * 9}','{digits * 18}')"
