"""A client of the shop that changes tables: DDLs of all kinds, one after the other.

It leaves out what changes rows without an event of the log (DROP and TRUNCATE PARTITION), which `verify` cannot judge.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from pymysql.err import MySQLError

from tidegate.bench.harness.clients import Load, Work
from tidegate.bench.harness.databases import asked
from tidegate.bench.harness.shop.rows import HARMLESS, shopper
from tidegate.bench.harness.shop.tables import ATTIC, FOLLOWED, LEFT_OUT

_PERMANENT = ("orders", "codes", "pairs", "loose", "parts", "mixed", "stock")
_KINDS = ("int", "int NOT NULL DEFAULT 7", "varchar(20) DEFAULT 'so \"far\"'", "decimal(8,3)", "datetime(2)", "blob")
_PLACES = ("", "", " FIRST", " AFTER v")
_OWN = "id int AUTO_INCREMENT PRIMARY KEY, v int NOT NULL, name varchar(40), w bigint DEFAULT 5"


class Builder:
    """What it has made and not removed: names of tables, and columns that it has added to them."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.made: list[str] = []
        self.added: dict[str, list[str]] = {}
        self.partitions, self._last = 4, 0

    def new_name(self, prefix: str = "t") -> str:
        self._last += 1
        return f"{prefix}{self._last}"

    def any_table(self) -> str:
        return self.chance.choice((*_PERMANENT, *self.made))

    def own_table(self) -> str | None:
        return self.chance.choice(self.made) if self.made else None


Statements = list[str]


def _create(b: Builder) -> Statements:
    name = b.new_name()
    b.made.append(name)
    kind = b.chance.randrange(4)
    if kind == 0:
        return [f"CREATE TABLE {name} LIKE orders", f"INSERT INTO {name} (v, name) VALUES (1, 'like'), (2, NULL)"]
    if kind == 1:
        return [f"CREATE TABLE {name} (PRIMARY KEY (id)) AS SELECT id, v, name FROM orders ORDER BY id DESC LIMIT 40"]
    charset = b.chance.choice(("utf8mb4", "latin1"))
    rows = ",".join(f"({i}, 'é{i}')" for i in range(1, b.chance.randrange(2, 60)))
    return [f"CREATE TABLE {name} ({_OWN}) DEFAULT CHARSET = {charset}", f"INSERT INTO {name} (v, name) VALUES {rows}"]


def _drop(b: Builder) -> Statements:
    if (name := b.own_table()) is None:
        return []
    b.made.remove(name)
    b.added.pop(name, None)
    return [f"DROP TABLE {name}"]


def _add_column(b: Builder) -> Statements:
    table, column = b.any_table(), b.new_name("c")
    b.added.setdefault(table, []).append(column)
    return [f"ALTER TABLE {table} ADD COLUMN {column} {b.chance.choice(_KINDS)}{b.chance.choice(_PLACES)}"]


def _column(b: Builder) -> tuple[str, str] | None:
    tables = [table for table, columns in b.added.items() if columns]
    if not tables:
        return None
    table = b.chance.choice(tables)
    return table, b.chance.choice(b.added[table])


def _drop_column(b: Builder) -> Statements:
    if (found := _column(b)) is None:
        return []
    b.added[found[0]].remove(found[1])
    return [f"ALTER TABLE {found[0]} DROP COLUMN {found[1]}"]


def _rename_column(b: Builder) -> Statements:
    if (found := _column(b)) is None:
        return []
    new = b.new_name("c")
    b.added[found[0]].remove(found[1])
    b.added[found[0]].append(new)
    return [f"ALTER TABLE {found[0]} RENAME COLUMN {found[1]} TO {new}"]


def _modify(b: Builder) -> Statements:
    kind = b.chance.choice(("int NOT NULL", "bigint NOT NULL", "bigint NOT NULL DEFAULT 0 COMMENT 'counted'"))
    return [f"ALTER TABLE {b.any_table()} MODIFY COLUMN v {kind}"]


def _index(b: Builder) -> Statements:
    table, name = b.any_table(), b.new_name("i")
    return [f"CREATE INDEX {name} ON {table} (v)", f"ALTER TABLE {table} DROP INDEX {name}, COMMENT = '{name}'"]


def _truncate(b: Builder) -> Statements:
    name = b.chance.choice((b.own_table() or "codes", "codes", "pairs"))
    return [f"TRUNCATE TABLE {name}"]


def _rename(b: Builder) -> Statements:
    if (name := b.own_table()) is None:
        return []
    new = b.new_name()
    _renamed(b, name, new)
    return [b.chance.choice((f"RENAME TABLE {name} TO {new}", f"ALTER TABLE {name} RENAME TO {new}"))]


def _renamed(b: Builder, name: str, new: str) -> None:
    b.made.remove(name)
    b.made.append(new)
    if name in b.added:
        b.added[new] = b.added.pop(name)


def _swap(b: Builder) -> Statements:
    if len(b.made) < 2:
        return []
    one, other = b.chance.sample(b.made, 2)
    columns = b.added.pop(one, []), b.added.pop(other, [])
    b.added[other], b.added[one] = columns
    return [f"RENAME TABLE {one} TO swapping, {other} TO {one}, swapping TO {other}"]


def _move_in(b: Builder) -> Statements:
    """A table with rows gets a name that is followed."""
    name = b.new_name()
    b.made.append(name)
    rows = ",".join(f"({i}, 'from the attic')" for i in range(b.chance.randrange(1, 300)))
    return [
        f"CREATE TABLE {ATTIC}{name} ({_OWN})",
        f"INSERT INTO {ATTIC}{name} (v, name) VALUES {rows}",
        f"RENAME TABLE {ATTIC}{name} TO {name}",
        f"UPDATE {name} SET v = v + 1 WHERE id % 3 = 0",
    ]


def _move_out(b: Builder) -> Statements:
    if (name := b.own_table()) is None:
        return []
    b.made.remove(name)
    b.added.pop(name, None)
    return [f"RENAME TABLE {name} TO {ATTIC}{name}", f"DELETE FROM {ATTIC}{name}"]


def _change_online(b: Builder) -> Statements:
    """As the tools do that change a table's columns aside: a copy is filled under another name and takes its place."""
    new, old = b.new_name("new"), b.new_name("old")
    b.added.pop("codes", None)
    return [
        f"CREATE TABLE {ATTIC}{new} LIKE codes",
        f"ALTER TABLE {ATTIC}{new} MODIFY name varchar({b.chance.randrange(200, 300)}), COMMENT = '{new}'",
        f"INSERT IGNORE INTO {ATTIC}{new} SELECT * FROM codes",
        f"RENAME TABLE codes TO {ATTIC}{old}, {ATTIC}{new} TO codes",
        f"DROP TABLE {ATTIC}{old}",
    ]


def _rekey(b: Builder) -> Statements:
    if (name := b.own_table()) is None:
        return []
    return [
        f"ALTER TABLE {name} MODIFY id int NOT NULL, DROP PRIMARY KEY, ADD PRIMARY KEY (id, v)",
        f"UPDATE {name} SET v = v + 1",
    ]


def _partitions(b: Builder) -> Statements:
    if b.partitions > 4:
        b.partitions -= 1
        return ["ALTER TABLE parts COALESCE PARTITION 1"]
    b.partitions += 1
    return ["ALTER TABLE parts ADD PARTITION PARTITIONS 1"]


def _whole_database(b: Builder) -> Statements:
    name = b.new_name(f"{FOLLOWED}_")
    return [
        f"CREATE DATABASE {name}",
        f"CREATE TABLE {name}.a ({_OWN})",
        f"INSERT INTO {name}.a (v, name) VALUES (1, 'one'), (2, 'two')",
        *([f"DROP DATABASE {name}"] if b.chance.random() < 0.6 else [f"ALTER DATABASE {name} CHARACTER SET latin1"]),
    ]


def _nothing_followed(b: Builder) -> Statements:
    """What a changefeed must pass over."""
    name = b.new_name("x")
    return [
        f"CREATE TEMPORARY TABLE {name} (id int)", f"INSERT INTO {name} VALUES (1)", f"DROP TEMPORARY TABLE {name}",
        f"CREATE VIEW {name} AS SELECT id, v FROM orders", f"DROP VIEW {name}",
        f"CREATE TABLE {LEFT_OUT}.{name} (id int)", f"DROP TABLE {LEFT_OUT}.{name}",
        "ANALYZE TABLE orders", "FLUSH BINARY LOGS",
    ]  # fmt: skip


def _rebuild(b: Builder) -> Statements:
    return [b.chance.choice(("ALTER TABLE {} ENGINE = InnoDB", "ALTER TABLE {} FORCE")).format(b.any_table())]


DDLS: tuple[Callable[[Builder], Statements], ...] = (
    _create, _create, _drop, _add_column, _add_column, _drop_column, _rename_column, _modify, _index, _truncate,
    _rename, _swap, _move_in, _move_out, _change_online, _rekey, _partitions, _whole_database, _nothing_followed,
    _rebuild,
)  # fmt: skip


def builder(work: Work) -> dict[str, Any]:
    """DDLs until it is told to stop, one kind every `every_s`; all kinds come before any comes again."""
    b, done, refused = Builder(work.chance), 0, 0
    with work.connect() as connection:
        asked(connection, "SET time_zone = '+00:00'", "SET lock_wait_timeout = 10", f"USE {FOLLOWED}")
        while work.goes_on():
            for kind in work.chance.sample(DDLS, len(DDLS)):
                for statement in kind(b):
                    try:
                        asked(connection, statement)
                        done += 1
                    except MySQLError as exc:
                        if exc.args[0] not in HARMLESS:
                            raise
                        refused += 1
                time.sleep(float(work.values["every_s"]))
                if not work.goes_on():
                    break
    return {"ddls": done, "refused": refused}


LOADS: dict[str, Load] = {"shopper": shopper, "builder": builder}
