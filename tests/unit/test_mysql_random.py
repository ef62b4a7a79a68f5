"""Random tables and rows, written by a client into both servers: log and snapshot tell what was written.

Each example is a table of some random types with many rows, so few examples look at many values.
"""

from __future__ import annotations

import os
import string
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidegate.bench.harness.database_log import Change, Values, changes_in, layouts_in, rows_of
from tidegate.bench.harness.databases import Database, asked
from tidegate.format.sql.json_values import json_text

Pair = tuple[str, bytes]  # the SQL of a value, and its text in an event


@dataclass(frozen=True)
class Kind:
    declared: str
    pairs: st.SearchStrategy[Pair]


def number(value: object) -> Pair:
    return str(value), str(value).encode()


def quoted(value: str) -> Pair:
    return f"'{value}'", value.encode()


def raw(value: bytes) -> Pair:
    return f"x'{value.hex()}'", value


def integers() -> st.SearchStrategy[Kind]:
    def kind(name: str, bits: int, unsigned: bool) -> Kind:
        low, high = (0, (1 << bits) - 1) if unsigned else (-(1 << bits - 1), (1 << bits - 1) - 1)
        return Kind(f"{name}{' unsigned' * unsigned}", st.integers(low, high).map(number))

    widths = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
    return st.builds(
        lambda name, unsigned: kind(name, widths[name], unsigned), st.sampled_from([*widths]), st.booleans()
    )


def decimals() -> st.SearchStrategy[Kind]:
    def kind(precision: int, scale: int) -> Kind:
        scale = min(scale, precision)

        def pair(digits: int) -> Pair:
            shown = f"{abs(digits):0{scale + 1}d}"
            text = shown[: len(shown) - scale] + ("." + shown[len(shown) - scale :] if scale else "")
            return number(("-" if digits < 0 else "") + text)

        most = 10**precision - 1
        return Kind(f"decimal({precision},{scale})", st.integers(-most, most).map(pair))

    return st.builds(kind, st.integers(1, 65), st.integers(0, 30))


def floats(width: int) -> Kind:
    def pair(value: float) -> Pair:
        shown = pa.array([value], pa.float32() if width == 32 else pa.float64()).cast(pa.string())[0].as_py()
        return repr(float(value)), shown.encode()

    numbers = st.floats(width=32 if width == 32 else 64, allow_nan=False, allow_infinity=False)
    return Kind("float" if width == 32 else "double", numbers.map(lambda value: value or 0.0).map(pair))


def moments() -> st.SearchStrategy[Kind]:
    def fraction(fsp: int, micros: int) -> str:
        return f".{micros:06d}"[: 1 + fsp] if fsp else ""

    days = st.dates(min_value=date(1000, 1, 1)).map(str)
    clocks = st.builds("{:02d}:{:02d}:{:02d}".format, st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
    micros = st.integers(0, 999_999)

    def kind(name: str, fsp: int) -> Kind:
        if name == "datetime":
            texts = st.builds(lambda d, c, m: f"{d} {c}{fraction(fsp, m)}", days, clocks, micros)
        elif name == "timestamp":
            seconds = st.integers(1, 2**31 - 1).map(lambda s: str(np.datetime64(s, "s")).replace("T", " "))
            texts = st.builds(lambda s, m: s + fraction(fsp, m), seconds, micros)
        else:
            signs, hours, parts = st.sampled_from(["", "-"]), st.integers(1, 837), st.integers(0, 59)
            shown = st.builds("{}{:02d}:{:02d}:{:02d}".format, signs, hours, parts, parts)
            texts = st.builds(lambda t, m: t + fraction(fsp, m), shown, micros)
        return Kind(f"{name}({fsp})", texts.map(quoted))

    names = st.sampled_from(["datetime", "timestamp", "time"])
    return st.one_of(st.just(Kind("date", days.map(quoted))), st.builds(kind, names, st.integers(0, 6)))


ALPHABETS = {
    "utf8mb4": "aé日😀'\"\\\0\n\u2028 ~",
    "latin1": "aéÿ€'\"\\\0\n~\x81",
    "gbk": "a中文\\'~\0",
    "sjis": "a日本ﾊ'~\0",
    "utf16": "aé日😀'\0",
    "cp1251": "aЖя'\0",
}


def texts() -> st.SearchStrategy[Kind]:
    def kind(name: str, charset: str) -> Kind:
        alphabet = ALPHABETS[charset]
        words = st.text(alphabet, max_size=40).map(lambda word: word.rstrip(" ") + "." if name == "char(41)" else word)
        pairs = words.map(lambda word: (f"_utf8mb4 x'{word.encode().hex()}'", word.encode()))
        return Kind(f"{name} character set {charset}", pairs)

    names = st.sampled_from(["char(41)", "varchar(41)", "varchar(999)", "text", "longtext"])
    return st.builds(kind, names, st.sampled_from(sorted(ALPHABETS)))


def bytes_kinds() -> st.SearchStrategy[Kind]:
    padded = Kind("binary(20)", st.binary(max_size=20).map(lambda b: (f"x'{b.hex()}'", b.ljust(20, b"\0"))))
    plain = [Kind(name, st.binary(max_size=30).map(raw)) for name in ("varbinary(30)", "tinyblob", "mediumblob")]
    return st.sampled_from([padded, *plain])


def elements() -> st.SearchStrategy[Kind]:
    def enum(count: int) -> Kind:
        names = ",".join(f"'e{i}'" for i in range(count))
        return Kind(f"enum({names})", st.integers(1, count).map(number))

    def some(count: int) -> Kind:
        names = ",".join(f"'e{i}'" for i in range(count))
        return Kind(f"set({names})", st.integers(0, (1 << count) - 1).map(number))

    bits = st.integers(1, 64).map(lambda n: Kind(f"bit({n})", st.integers(0, (1 << n) - 1).map(number)))
    years = st.just(Kind("year", st.integers(1901, 2155).map(number)))
    return st.one_of(st.integers(1, 300).map(enum), st.integers(1, 64).map(some), bits, years)


def documents() -> Kind:
    scalars: st.SearchStrategy[object] = (
        st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(string.printable + "é😀", max_size=9)
    )
    scalars |= st.floats(allow_nan=False, allow_infinity=False).map(lambda value: value or 0.0)
    keys = st.text(string.ascii_letters + 'é"', max_size=5)
    trees = st.recursive(
        scalars, lambda t: st.lists(t, max_size=4) | st.dictionaries(keys, t, max_size=4), max_leaves=12
    )
    return Kind(
        "json",
        trees.map(json_text).map(lambda text: (f"CAST(_utf8mb4 x'{text.encode().hex()}' AS JSON)", text.encode())),
    )


KINDS = st.one_of(
    integers(), decimals(), st.sampled_from([floats(32), floats(64)]), moments(), texts(), bytes_kinds(), elements()
)  # fmt: skip


@st.composite
def examples(draw: st.DrawFn, kinds: st.SearchStrategy[Kind], most_columns: int) -> tuple[list[str], list[list[Pair]]]:
    """Column types, and rows of values; some are NULL."""
    chosen = draw(st.lists(kinds, min_size=1, max_size=most_columns))
    pools = [draw(st.lists(kind.pairs, min_size=8, max_size=12)) for kind in chosen]
    picks = np.random.default_rng(draw(st.integers(0, 2**32))).integers(0, 16, (80, len(chosen)))
    null: Pair = ("NULL", b"")
    return [kind.declared for kind in chosen], [
        [pool[pick] if pick < len(pool) else null for pool, pick in zip(pools, row, strict=True)] for row in picks
    ]


def check(database: Database, declared: list[str], rows: list[list[Pair]]) -> None:
    """Half of the rows by one statement, half one by one; then updates and deletes."""
    with database.connect() as client:
        asked(client, "SET sql_mode = '', time_zone = '+00:00'", "CREATE DATABASE IF NOT EXISTS random", "USE random")
        columns = ",".join(f"c{i} {kind} NULL" for i, kind in enumerate(declared))
        asked(client, "DROP TABLE IF EXISTS t", f"CREATE TABLE t (id int PRIMARY KEY, {columns}, n int)")
        file = database.begin_log()
        client.begin()
        lines = [f"({i},{','.join(sql for sql, _ in row)},0)" for i, row in enumerate(rows)]
        for part in [lines[:60], *([line] for line in lines[60:])]:
            asked(client, f"INSERT INTO t VALUES {','.join(part)}")
        asked(client, "UPDATE t SET n = 1 WHERE id % 2 ORDER BY id", "DELETE FROM t WHERE id % 3 = 0 ORDER BY id")
        client.commit()
    log = database.read_log(file)
    assert [change for _, change in changes_in(log)] == changes_of(rows)
    assert rows_of(database, "random", "t", layouts_in(log)["t"], "id") == rows_left(rows)


def rows_left(rows: list[list[Pair]]) -> list[Values]:
    """What the table holds in the end."""
    kinds: dict[bytes, Values] = {}
    for kind, before, after in changes_of(rows):
        shown = before if after is None else after
        assert shown is not None
        assert shown[0] is not None
        kinds[shown[0]] = shown if kind != "delete" else []
    return [row for row in kinds.values() if row]


def changes_of(rows: list[list[Pair]]) -> list[Change]:
    texts: list[Values] = [[None if sql == "NULL" else text for sql, text in row] for row in rows]
    shown: Callable[[int, bytes], Values] = lambda i, n: [b"%d" % i, *texts[i], n]  # noqa: E731
    changes: list[Change] = [("insert", None, shown(i, b"0")) for i in range(len(rows))]
    changes += [("update", shown(i, b"0"), shown(i, b"1")) for i in range(len(rows)) if i % 2]
    return changes + [("delete", shown(i, b"1" if i % 2 else b"0"), None) for i in range(len(rows)) if i % 3 == 0]


# A long search has more examples, as everywhere (tests/conftest.py).
EXAMPLES = 150 if os.environ.get("HYPOTHESIS_PROFILE") == "long" else 12
FEW = settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@FEW
@given(example=examples(KINDS, 14))
def test_random_rows_come_out_of_the_log_as_they_were_written(
    database: Database, example: tuple[list[str], list[list[Pair]]]
) -> None:
    check(database, *example)


@FEW
@given(example=examples(st.just(documents()), 2))
def test_random_documents_come_out_as_tidb_prints_them(
    mysql: Database, example: tuple[list[str], list[list[Pair]]]
) -> None:
    check(mysql, *example)
