"""Every column type of MySQL and MariaDB: the text from the log says what SQL itself says of the value.

A snapshot of the table gives the same bytes as the log.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pymysql.connections import Connection

from tidegate.bench.harness.database_log import Change, Values, changes_in, layouts_in, rows_of
from tidegate.bench.harness.databases import Database, asked
from tidegate.events import DELETE, INSERT, UPDATE
from tidegate.format.sql.json_values import json_text, read_json
from tidegate.sources.mysql.log.charsets import CHARSETS


class Type(NamedTuple):
    """A column type, how SQL shows its value exactly, and SQL texts of values."""

    declared: str
    shown: str
    values: Sequence[str]


def digits(declared: str, *values: object) -> Type:
    return Type(declared, "CAST(v AS CHAR)", [str(value) for value in values])


def quoted(declared: str, *values: str) -> Type:
    return Type(declared, "CAST(v AS CHAR)", [f"'{value}'" for value in values])


def raw(declared: str, *values: bytes) -> Type:
    return Type(declared, "HEX(v)", [f"x'{value.hex()}'" for value in values])


def text(declared: str, *values: str) -> Type:
    return Type(declared, "HEX(CONVERT(v USING utf8mb4))", [f"_utf8mb4 x'{value.encode().hex()}'" for value in values])


def integers() -> list[Type]:
    found = []
    for name, bits in (("tinyint", 8), ("smallint", 16), ("mediumint", 24), ("int", 32), ("bigint", 64)):
        half = 1 << bits - 1
        found.append(digits(name, -half, -half + 1, -1, 0, 1, half - 1))
        found.append(digits(f"{name} unsigned", 0, 1, half - 1, half, 2 * half - 1))
    return found


def decimals() -> list[Type]:
    found = []
    shapes = [(1, 0), (1, 1), (5, 2), (9, 0), (9, 9), (10, 0), (10, 9), (18, 9), (18, 18), (19, 1), (30, 30), (38, 10)]
    for precision, scale in [*shapes, (65, 0), (65, 30), *((p, p // 2) for p in range(2, 66, 3) if p < 60)]:
        nines = "9" * (precision - scale) + ("." + "9" * scale if scale else "")
        least = "0." + "0" * (scale - 1) + "1" if scale else "1"
        one = "-1" if precision > scale else "-0.1"
        found.append(digits(f"decimal({precision},{scale})", nines, "-" + nines, least, "-" + least, 0, one))
    return found


def moments() -> list[Type]:
    found = [quoted("date", "1000-01-01", "9999-12-31", "0000-00-00", "2024-02-29", "2026-00-00", "2026-01-00")]
    for fsp in range(7):
        part = "." + "123456"[:fsp] if fsp else ""
        most = "." + "9" * fsp if fsp else ""
        found.append(
            quoted(f"datetime({fsp})", f"1000-01-01 00:00:00{part}", f"9999-12-31 23:59:59{most}",
                   "0000-00-00 00:00:00", f"2024-02-29 12:34:56{part}", "2026-00-00 00:00:00")
        )  # fmt: skip
        found.append(
            quoted(f"timestamp({fsp})", f"1970-01-01 00:00:01{part}", f"2038-01-19 03:14:07{part}",
                   "0000-00-00 00:00:00", f"2025-10-26 00:30:00{part}", f"2025-10-26 01:30:00{part}",
                   f"2026-03-29 00:59:59{most}", f"2026-03-29 01:00:00{part}", "2024-02-29 23:59:59")
        )  # fmt: skip
        found.append(
            quoted(f"time({fsp})", "00:00:00", f"-00:00:00{most}", f"838:59:58{part}", f"-838:59:58{part}",
                   f"-00:00:01{part}", f"12:34:56{part}", f"-99:59:59{most}", f"100:00:00{part}", "-100:00:00")
        )  # fmt: skip
    return found


FLOATS = ("0", "-0e0", "1", "-1.5", "0.1", "3.4028234e38", "-3.4028234e38", "1.17549435e-38", "1e-45", "16777217",
          "123456.789", "1e10", "1e15", "1e-7", "7e-10")  # fmt: skip
DOUBLES = (*FLOATS, "1.7976931348623157e308", "-1.7976931348623157e308", "2.2250738585072014e-308", "5e-324",
           "0.30000000000000004", "1e16", "123456789012345680", "1e21", "1e22")  # fmt: skip
WORDS = ("", "a", "grün", "日本語", "😀 emoji", "a'b\"c\\d", "tab\tline\nnul\0end", "trailing  ")
BYTES = (b"", b"\0", b"a\0", b"\0\0a", bytes(range(20)), b"\xff\xfe", b"  ")
BITS = (1, 7, 8, 9, 33, 64)
ELEMENTS = ",".join(f"'e{i}'" for i in range(64))

TYPES = [
    *integers(),
    *decimals(),
    *moments(),
    Type("float", "CAST(v AS DOUBLE)", FLOATS),
    Type("double", "@", DOUBLES),
    Type("double unsigned", "@", DOUBLES[:2]),
    *(Type(f"bit({n})", "CAST(v AS UNSIGNED)", ["0", "1", f"{(1 << n) - 1}", f"{1 << n - 1}"]) for n in BITS),
    Type("year", "CAST(v AS UNSIGNED)", ["1901", "2155", "2026", "0"]),
    Type("enum('a','b','ü')", "CAST(v AS UNSIGNED)", ["'a'", "'ü'", "3", "''"]),
    Type(f"enum({','.join(repr(f'e{i}') for i in range(300))})", "CAST(v AS UNSIGNED)", ["1", "256", "300"]),
    Type("set('a','b','c')", "CAST(v AS UNSIGNED)", ["''", "'a'", "'a,c'", "7"]),
    Type(f"set({ELEMENTS})", "CAST(v AS UNSIGNED)", ["0", "1", "'e63'", "18446744073709551615"]),
    *(text(f"{name} character set utf8mb4", *WORDS) for name in ("varchar(20)", "varchar(300)", "char(20)", "char(255)",
                                                                "tinytext", "text", "mediumtext", "longtext")),
    text("text character set utf8mb4", "y" * 60_000, "é" * 30_000),
    text("mediumtext character set utf8mb4", "z" * 100_000),
    *(raw(name, *BYTES) for name in ("binary(20)", "binary(255)", "varbinary(20)", "varbinary(300)")),
    *(raw(name, *BYTES) for name in ("tinyblob", "blob", "mediumblob", "longblob")),
    text("char(5) character set utf8mb4 collate utf8mb4_bin", "a", "äöüßé"),
]  # fmt: skip


def expected(kind: Type, shown: object) -> bytes | None:
    """The text of an event for what SQL shows."""
    if shown is None:
        return None
    if kind.declared.startswith("vector"):
        numbers = struct.unpack(f"<{len(str(shown)) // 8}f", bytes.fromhex(str(shown)))
        each = (np.format_float_positional(np.float32(number), unique=True, trim="-") for number in numbers)
        return ("[" + ",".join(each) + "]").encode()
    if kind.shown.startswith("HEX"):
        return bytes.fromhex(str(shown))
    if kind.declared == "float":
        return bytes(pa.array([np.float32(float(str(shown)))]).cast(pa.string())[0].as_py(), "ascii")
    if kind.declared.startswith("double"):
        return bytes(pa.array([float(str(shown))]).cast(pa.string())[0].as_py(), "ascii")
    if kind.declared == "json":
        return json_text(read_json(str(shown))).encode()
    return str(shown).encode()


def session(database: Database) -> Connection:
    """With modes that let odd values in."""
    connection = database.connect()
    asked(connection, "CREATE DATABASE IF NOT EXISTS shop", "USE shop")
    asked(connection, "SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'")
    return connection


def written(connection: Connection, table: str, kinds: Sequence[Type]) -> list[Values]:
    """A table with a column of each type: insert the values of each and NULLs, change every row, delete every row.

    Then the same rows are inserted again, so that the table can be read. Returns their texts according to SQL.
    """
    columns = ",".join(f"v{i} {kind.declared} NULL" for i, kind in enumerate(kinds))
    asked(connection, f"CREATE TABLE {table} (id int PRIMARY KEY, {columns}, n int)")
    inserts = []
    for row in range(1 + max(len(kind.values) for kind in kinds)):
        given = [kind.values[row] if row < len(kind.values) else "NULL" for kind in kinds]
        inserts.append(f"INSERT INTO {table} VALUES ({row},{','.join(given)},0)")
    asked(connection, *inserts)
    questions = ",".join(kind.shown.replace("(v", f"(v{i}").replace("@", f"v{i}") for i, kind in enumerate(kinds))
    shown = asked(connection, f"SELECT {questions} FROM {table} ORDER BY id")
    asked(connection, f"UPDATE {table} SET n = 1 ORDER BY id", f"DELETE FROM {table} ORDER BY id", *inserts)
    return [[expected(kind, value) for kind, value in zip(kinds, row, strict=True)] for row in shown]


def expected_changes(shown: list[Values]) -> list[Change]:
    first: list[Values] = [[b"%d" % i, *row, b"0"] for i, row in enumerate(shown)]
    second: list[Values] = [[b"%d" % i, *row, b"1"] for i, row in enumerate(shown)]
    changes: list[Change] = [(INSERT, None, row) for row in first]
    changes += [(UPDATE, old, new) for old, new in zip(first, second, strict=True)]
    changes += [(DELETE, row, None) for row in second]
    return changes + [(INSERT, None, row) for row in first]


def check_types(database: Database, kinds: Sequence[Type], together: int = 30) -> None:
    """Write tables of `together` types each, and compare all changes in the log, and the rows, with what SQL shows."""
    file = database.begin_log()
    tables = {f"t{i}": kinds[i : i + together] for i in range(0, len(kinds), together)}
    with session(database) as connection:
        asked(connection, *(f"DROP TABLE IF EXISTS {name}" for name in tables))
        connection.begin()
        shown = {name: written(connection, name, members) for name, members in tables.items()}
        connection.commit()
    log = database.read_log(file)
    changes, layouts = changes_in(log), layouts_in(log)
    for name, members in tables.items():
        wanted, columns = expected_changes(shown[name]), ["id", *(kind.declared for kind in members), "n"]
        found = [change for table, change in changes if table == name]
        check_changes(found, wanted, columns)
        rows = rows_of(database, "shop", name, layouts[name], "id")
        check_changes([(INSERT, None, row) for row in rows], wanted[-len(rows) :], columns)


def check_changes(found: list[Change], wanted: list[Change], columns: list[str]) -> None:
    """The same as `found == wanted`, but a failure names the column."""
    assert len(found) == len(wanted)
    for change, other in zip(found, wanted, strict=True):
        if change != other:
            assert change[0] == other[0]
            for side, other_side in ((change[1], other[1]), (change[2], other[2])):
                if side is not None and other_side is not None:
                    for column, value, other_value in zip(columns, side, other_side, strict=True):
                        assert value == other_value, column
        assert change == other


def test_every_type_has_the_value_that_sql_shows(database: Database) -> None:
    check_types(database, TYPES)


JSONS = (
    "null", "true", "false", "0", "-1", "32767", "-32768", "32768", "65535", "-2147483648", "2147483648", "4294967295",
    "-9223372036854775808", "9223372036854775807", "18446744073709551615", "18446744073709551616", "1.0", "-0.0", "0.1",
    "1e20", "1.5e-16", "1e15", "999999999999999.9", "1e-15", "9.9e-16", "5e-324", "1.7976931348623157e308", '""', '"a"',
    '"grün 日本語 😀"', '"quote \\" backslash \\\\ slash / \\b\\f\\n\\r\\t\\u0001\\u001f\\u007f"',
    '"\\u2028 \\u2029 <>&"', "[]", "{}", "[[]]", '{"a": {}}', "[1, [2, [3, [4]]]]",
    '{"b": 1, "a": 2, "aa": 3, "B": 4, "": 5, "ä": 6}',
    '{"k": [true, false, null, 1, -1, 70000, 5000000000, 0.5, "text", {"deep": [{"x": 1}]}]}',
    '[{"a": 1}, {"b": [2]}, "x", {"a": "y"}]', '{"quote\\"d": 1, "line\\n": 2}',
    "[" * 90 + "1" + "]" * 90, '{"a":' * 60 + "[]" + "}" * 60,
)  # fmt: skip
OPAQUE = (
    "JSON_ARRAY(CAST(1.50 AS DECIMAL(10,2)), CAST(-0.001 AS DECIMAL(5,3)), CAST(0 AS DECIMAL(3,0)))",
    "JSON_ARRAY(CAST('12345678901234567890.123456789' AS DECIMAL(40,9)))",
    "JSON_ARRAY(CAST('99999999999999999999' AS DECIMAL(65,0)), CAST('-9223372036854775809' AS DECIMAL(20,0)))",
    "JSON_ARRAY(CAST('18446744073709551615' AS DECIMAL(65,0)), CAST('-9223372036854775808' AS DECIMAL(19,0)))",
    "CAST(CAST('2026-01-31' AS DATE) AS JSON)",
    "CAST(CAST('2026-01-31 23:59:59.123456' AS DATETIME(6)) AS JSON)",
    "CAST(CAST('0000-00-00' AS DATE) AS JSON)",
    "CAST(TIMESTAMP('2026-01-31 00:00:00') AS JSON)",
    "JSON_OBJECT('t', CAST('-838:59:58.5' AS TIME(1)), 'u', CAST('00:00:01' AS TIME))",
    "JSON_ARRAY(x'00ff10', b'101', CAST('abc' AS BINARY))",
    "JSON_ARRAY(CAST(2026 AS YEAR), CAST(1 AS UNSIGNED), 1.5e0)",
    "CAST(CAST('' AS BINARY) AS JSON)",
)  # fmt: skip


def json_literal(document: str) -> str:
    return f"CAST(_utf8mb4 x'{document.encode().hex()}' AS JSON)"


def test_binary_json_is_printed_as_tidb_prints_it(mysql: Database) -> None:
    large = "[" + ",".join(f'{{"id": {i}, "name": "n{i}", "tags": ["a", {i}.5]}}' for i in range(9_000)) + "]"
    wide = "{" + ",".join(f'"key{i}": {i * 7919}' for i in range(9_000)) + "}"
    long = '"' + "x" * 20_000 + '"'
    documents = [json_literal(document) for document in (*JSONS, large, wide, long)]
    check_types(mysql, [Type("json", "CAST(v AS CHAR)", [*documents, *OPAQUE])])


def test_a_vector_is_printed_as_tidb_prints_it(mysql: Database) -> None:
    values = ["STRING_TO_VECTOR('[1,0.5]')", "STRING_TO_VECTOR('[-0.1,1e20,1e-20]')", "STRING_TO_VECTOR('[0]')"]
    check_types(mysql, [Type("vector(3)", "HEX(v)", values)])


def test_json_of_mariadb_is_its_text(mariadb: Database) -> None:
    check_types(mariadb, [text("json", '{"b":1,  "a":2}', "[1.50]", '"ü😀"')])


# Character sets -------------------------------------------------------------------------------------------------------

TRAILS = {
    "big5": (range(0xA1, 0xFA), (*range(0x40, 0x7F), *range(0xA1, 0xFF))),
    "gbk": (range(0x81, 0xFF), (*range(0x40, 0x7F), *range(0x80, 0xFF))),
    "gb18030": (range(0x81, 0xFF), (*range(0x40, 0x7F), *range(0x80, 0xFF))),
    "sjis": ((*range(0x81, 0xA0), *range(0xE0, 0xFD)), (*range(0x40, 0x7F), *range(0x80, 0xFD))),
    "cp932": ((*range(0x81, 0xA0), *range(0xE0, 0xFD)), (*range(0x40, 0x7F), *range(0x80, 0xFD))),
    "euckr": (range(0x81, 0xFF), (*range(0x41, 0x5B), *range(0x61, 0x7B), *range(0x81, 0xFF))),
    "gb2312": (range(0xA1, 0xF8), range(0xA1, 0xFF)),
    "ujis": (range(0xA1, 0xFF), range(0xA1, 0xFF)),
    "eucjpms": (range(0xA1, 0xFF), range(0xA1, 0xFF)),
}
# Python names these characters of big5; the server has no name for them and shows a question mark.
NAMED_BY_PYTHON = {bytes.fromhex(code) for code in ("a15a", "a1c3", "a1c5", "a1fe", "a240", "a2cc", "a2ce")}
WIDE = {"ucs2": "utf-16-be", "utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be"}


def samples(charset: str) -> list[bytes]:
    """Texts that together have every character of the character set, or many of a Unicode one."""
    if charset in WIDE or charset.startswith("utf8"):
        blocks = ["".join(map(chr, range(start, start + 256))) for start in (0x20, 0x400, 0x3000, 0xAC00, 0xFE00)]
        texts = [*blocks, "a\0b", "", "end "]
        texts += ["😀𝄞🀄"] if charset not in ("ucs2", "utf8mb3") else []
        return [each.encode(WIDE.get(charset, "utf-8")) for each in texts]
    if charset not in TRAILS:
        last = 0x80 if charset in ("ascii", "swe7") else 0x100
        return [
            bytes(range(0x20, 0x80)),
            bytes(range(0x80, last)),
            b"nul\0",
            b"\x01\x1f\0",
            b"",
            bytes(range(0xC0, last)),
        ]
    leads, trails = TRAILS[charset]
    rows = [[bytes([lead, trail]) for trail in trails] for lead in leads]
    found = [b"".join(pair for pair in row if charset != "big5" or pair not in NAMED_BY_PYTHON) for row in rows]
    found = [
        b"".join(p for p in (row[i : i + 2] for i in range(0, len(row), 2)) if p not in NAMED_BY_PYTHON)
        if charset == "big5"
        else row
        for row in found
    ]
    if charset in ("ujis", "eucjpms"):
        found += [b"".join(bytes([0x8F, lead, trail]) for trail in trails) for lead in leads]
        found += [bytes([0x8E, 0xB1])]
    if charset in ("sjis", "cp932"):
        found += [bytes(range(0xA1, 0xE0))]
    if charset == "gb18030":
        found += [b"".join(bytes([0x81, 0x35, 0xF4, 0x30 + i]) for i in range(10)), bytes.fromhex("9439fc36")]
    return [*found, bytes(range(0x20, 0x7F)), b"nul\0end", b""]


def test_every_character_of_every_character_set_is_told_in_utf8(database: Database) -> None:
    with session(database) as connection:
        known = {str(row[0]) for row in asked(connection, "SHOW CHARACTER SET")} & CHARSETS - {"binary"}
    assert len(known) >= 38
    check_types(
        database,
        [
            Type(f"{kind} character set {charset}", "HEX(CONVERT(v USING utf8mb4))",
                 [f"_{charset} x'{each.hex()}'" for each in samples(charset)])
            for charset in sorted(known)
            for kind in ("varchar(600)", "text", "char(250)")
        ],
    )  # fmt: skip


def test_all_character_sets_of_a_server_are_known(database: Database) -> None:
    with session(database) as connection:
        names = {str(row[0]) for row in asked(connection, "SHOW CHARACTER SET")}
    assert {"utf8mb3" if name == "utf8" else name for name in names} <= CHARSETS
