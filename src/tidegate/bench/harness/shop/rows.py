"""A client of the shop that changes rows: inserts, updates, deletes, key changes, in transactions of all shapes."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from pymysql.connections import Connection
from pymysql.err import MySQLError

from tidegate.bench.harness.clients import Work
from tidegate.bench.harness.databases import asked
from tidegate.bench.harness.shop.tables import FOLLOWED

# Deadlock, lock wait, duplicate key; and what a DDL of another client brings: no such table or column, a changed one.
HARMLESS = frozenset((1213, 1205, 1062, 1146, 1054, 1364, 1412, 1050, 1060, 1091, 1061, 1051, 1020, 1406, 1317))
_SESSION = ("SET time_zone = '+00:00'", "SET innodb_lock_wait_timeout = 3", "SET lock_wait_timeout = 6")


def shopper(work: Work) -> dict[str, Any]:
    """Transactions until it is told to stop, at most `rate` a second."""
    done, failed, every_s = 0, 0, 1 / float(work.values["rate"])
    with work.connect() as connection:
        asked(connection, *_SESSION, f"USE {FOLLOWED}")
        connection.autocommit(False)
        while work.goes_on():
            started = time.monotonic()
            try:
                _transaction(connection, work.chance)
                done += 1
            except MySQLError as exc:
                if exc.args[0] not in HARMLESS:
                    raise
                connection.rollback()
                failed += 1
            time.sleep(max(0.0, every_s - (time.monotonic() - started)))
    return {"transactions": done, "refused": failed}


def _transaction(connection: Connection, chance: random.Random) -> None:
    shape = chance.random()
    if shape < 0.02:
        asked(connection, _many(chance))
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        asked(connection, chance.choice(CHANGES)(chance))
    if shape > 0.95:
        asked(connection, "SAVEPOINT s", chance.choice(CHANGES)(chance), "ROLLBACK TO SAVEPOINT s")
    if 0.02 < shape < 0.06:
        connection.rollback()
    else:
        connection.commit()


def _name(chance: random.Random) -> str:
    return chance.choice(("NULL", "''", "'ä \"quoted\" one'", "'a, b'", "'x\\ny'", f"'n{chance.randrange(1000)}'"))


def _text(chance: random.Random) -> str:
    return chance.choice(
        ("NULL", "''", "'€ 😀 \\\\ end'", "'line\\r\\nline'", f"REPEAT('long ', {chance.randrange(400)})")
    )


# Each gives one statement.


def _new_order(chance: random.Random) -> str:
    price, moment = chance.randrange(-(10**6), 10**8) / 100, f"2026-0{chance.randrange(1, 10)}-11 12:00:00.125"
    return (
        f"INSERT INTO orders (v, name, price, at, note) VALUES ({chance.randrange(9)}, {_name(chance)}, {price}, "
        f"'{moment}', {_text(chance)})"
    )


def _order(chance: random.Random) -> str:
    """Those that exist are about the last few thousand ids."""
    return f"id = (SELECT * FROM (SELECT GREATEST(MAX(id), 400) FROM orders) m) - {chance.randrange(400)}"


def _change_order(chance: random.Random) -> str:
    return f"UPDATE orders SET v = v + 1, note = {_text(chance)} WHERE {_order(chance)}"


def _move_order(chance: random.Random) -> str:
    return f"UPDATE orders SET id = id + {chance.choice((1, 3, 1000))} WHERE {_order(chance)}"


def _drop_order(chance: random.Random) -> str:
    return f"DELETE FROM orders WHERE {_order(chance)}"


def _code(chance: random.Random) -> str:
    return chance.choice(("code{}", "CODE{}", "Code{}")).format(chance.randrange(300))


def _set_code(chance: random.Random) -> str:
    put = chance.choice(("REPLACE INTO", "INSERT IGNORE INTO"))
    return f"{put} codes (code, v, name) VALUES ('{_code(chance)}', {chance.randrange(9)}, {_name(chance)})"


def _upsert_code(chance: random.Random) -> str:
    return (
        f"INSERT INTO codes (code, v, name) VALUES ('{_code(chance)}', 0, NULL) ON DUPLICATE KEY UPDATE v = v + 1, "
        f"code = '{_code(chance)}'"
    )


def _respell_code(chance: random.Random) -> str:
    """A key that changes by case only is the same key for the server."""
    return (
        f"UPDATE codes SET code = {chance.choice(('UPPER', 'LOWER'))}(code), v = v + 1 WHERE code = '{_code(chance)}'"
    )


def _drop_code(chance: random.Random) -> str:
    return f"DELETE FROM codes WHERE code = '{_code(chance)}'"


def _set_pair(chance: random.Random) -> str:
    a, b = chance.randrange(20), chance.choice("pqrstu")
    if chance.random() < 0.4:
        return f"REPLACE INTO pairs (a, b, v, name) VALUES ({a}, '{b}', 0, 'café {a}')"
    if chance.random() < 0.3:
        return f"DELETE FROM pairs WHERE a = {a} AND b = '{b}'"
    return f"UPDATE IGNORE pairs SET a = a + 1, b = '{chance.choice('pqrstu')}', v = v + 1 WHERE a = {a} AND b = '{b}'"


def _loose(chance: random.Random) -> str:
    id_ = chance.randrange(60)
    if chance.random() < 0.5:
        return f"INSERT INTO loose (id, v, name) VALUES ({id_}, 0, {_name(chance)}), ({id_}, 0, NULL)"
    if chance.random() < 0.5:
        return f"UPDATE loose SET v = v + 1 WHERE id = {id_} LIMIT 1"
    return f"DELETE FROM loose WHERE id = {id_} LIMIT 2"


def _part(chance: random.Random) -> str:
    id_, region = chance.randrange(400), chance.randrange(16)
    if chance.random() < 0.5:
        return f"REPLACE INTO parts (id, region, v, name) VALUES ({id_}, {region}, 1, {_name(chance)})"
    return f"UPDATE IGNORE parts SET region = {region}, v = v + 1 WHERE id = {id_}"


def _mixed(chance: random.Random) -> str:
    id_ = chance.randrange(300)
    if chance.random() < 0.3:
        return f"DELETE FROM mixed WHERE id = {id_}"
    values = (
        f"{id_}, {chance.randrange(9)}, {_name(chance)}, {chance.uniform(-1e6, 1e6)!r}, {chance.gauss(0, 1e9)!r}, "
        f"x'{chance.randbytes(chance.randrange(12)).hex()}', x'{chance.randbytes(chance.randrange(7)).hex()}', "
        f"'20{chance.randrange(10, 30)}-02-03', '-{chance.randrange(800)}:01:02.25', "
        f"'2026-03-29 0{chance.randrange(10)}:30:00.5', {chance.randrange(1970, 2100)}, {chance.randrange(1, 3)}, "
        f'{chance.randrange(8)}, {chance.randrange(512)}, \'{{"b": [1, {chance.random()!r}], "a": "x"}}\''
    )
    columns = "id, v, name, f, d, raw, fixed, day, t, stamp, y, kind, tags, flags, j"
    return f"REPLACE INTO mixed ({columns}) VALUES ({values})"


def _stock(chance: random.Random) -> str:
    id_ = chance.randrange(100_000)
    if chance.random() < 0.3:
        return f"DELETE FROM stock WHERE id = {id_}"
    if chance.random() < 0.3:
        return f"INSERT IGNORE INTO stock (id, v, name, c, pad) VALUES ({id_}, 1, {_name(chance)}, 'new', 'row')"
    if chance.random() < 0.3:
        return f"UPDATE IGNORE stock SET id = {chance.randrange(100_000)}, v = v + 1 WHERE id = {id_}"
    return f"UPDATE stock SET v = v + 1, name = {_name(chance)} WHERE id BETWEEN {id_} AND {id_ + 20}"


def _many(chance: random.Random) -> str:
    first = chance.randrange(100_000)
    return f"UPDATE stock SET v = v + 1 WHERE id BETWEEN {first} AND {first + 3000}"


CHANGES: tuple[Callable[[random.Random], str], ...] = (
    _new_order, _new_order, _new_order, _change_order, _move_order, _drop_order, _set_code, _upsert_code, _respell_code,
    _drop_code, _set_pair, _set_pair, _loose, _part, _mixed, _mixed, _stock, _stock,
)  # fmt: skip
