"""The types of columns that tables with layouts of their own have: all types of MySQL, and how their values look.

A value is made of a 64-bit number, for a whole array of them at once, and has the text form of docs/events.md. A row
with columns of all types has values that need quotes, escapes, or are empty.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.format.tables import Column
from tidegate.sources.workload.sysbench import Hashes, decimal

_EPOCH_DAY, _DAYS = 10_957, 20_000  # 2000-01-01 and the 54 years after it
_WORDS = pa.array(
    [
        *("", "plain", "a word", 'a "quoted" word', "one, two", "back\\slash", "two\nlines", "it's", "tab\there"),
        *("größe", "日本語", "\U0001f30a", "0", "null", "\\N", "a longer text with several words in it"),
    ],
    pa.binary(),
)
_PLAIN = pa.array(["tide", "gate", "wave", "sand"], pa.binary())
_TWO = pa.array([f"{number:02d}" for number in range(100)], pa.binary())
_ELEMS = ("red", "green", "blue")


@dataclass(frozen=True)
class Kind:
    """`definition` is the column without its name, `sql` its type in a CREATE TABLE."""

    definition: Column
    sql: str
    texts: Callable[[Hashes], pa.Array]


def _signed(bits: int) -> Callable[[Hashes], pa.Array]:
    return lambda number: decimal(number.view(np.int64) >> np.int64(64 - bits))


def _unsigned(bits: int) -> Callable[[Hashes], pa.Array]:
    return lambda number: decimal(number >> np.uint64(64 - bits))


def _below(limit: int, first: int = 0) -> Callable[[Hashes], pa.Array]:
    return lambda number: decimal(number % np.uint64(limit) + np.uint64(first))


def _joined(*parts: pa.Array | bytes) -> pa.Array:
    return pc.binary_join_element_wise(*parts, b"")


def _digits(number: Hashes) -> pa.Array:
    """Two digits of each number below 100."""
    return _TWO.take(pa.array(number.astype(np.int64)))


def _part(number: Hashes, shift: int, limit: int) -> Hashes:
    return (number >> np.uint64(shift)) % np.uint64(limit)


def _sign(number: Hashes) -> pa.Array:
    return pa.array([b"", b"-"]).take(pa.array((number >> np.uint64(63)).astype(np.int64)))


def _decimals(pairs: int) -> Callable[[Hashes], pa.Array]:
    """With two digits for each of `pairs` after the point."""

    def texts(number: Hashes) -> pa.Array:
        after = (_digits(_part(number, 7 * pair, 100)) for pair in range(pairs))
        return _joined(_sign(number), decimal(_part(number, 30, 100_000_000)), b".", *after)

    return texts


def _doubles(number: Hashes) -> pa.Array:
    values = (number >> np.uint64(11)).astype(np.float64) * 2.0**-33 - 2.0**19
    return pa.array(values).cast(pa.string()).cast(pa.binary())


def _floats(number: Hashes) -> pa.Array:
    """Multiples of 1/64 that a 32-bit float has exactly."""
    values = _part(number, 0, 2_000_001).astype(np.float64) / 64 - 15625
    return pa.array(values).cast(pa.string()).cast(pa.binary())


def _words(number: Hashes) -> pa.Array:
    return _WORDS.take(pa.array(_part(number, 0, len(_WORDS)).astype(np.int64)))


def _numbered(number: Hashes) -> pa.Array:
    return _joined(_words(number), b" ", decimal(_part(number, 20, 1_000_000)))


def _bytes(number: Hashes) -> pa.Array:
    """Eight bytes, any of them."""
    offsets = np.arange(len(number) + 1, dtype=np.int32) * 8
    data = np.ascontiguousarray(number)
    return pa.Array.from_buffers(pa.binary(), len(number), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _dates(number: Hashes) -> pa.Array:
    days = (_part(number, 0, _DAYS) + np.uint64(_EPOCH_DAY)).astype(np.int32)
    return pa.array(days, pa.date32()).cast(pa.string()).cast(pa.binary())


def _moments(unit: str, parts: int) -> Callable[[Hashes], pa.Array]:
    """`2026-01-31 23:59:59.500` with as many digits of a second as the unit has."""

    def texts(number: Hashes) -> pa.Array:
        seconds = np.uint64(_EPOCH_DAY * 86_400) + _part(number, 0, _DAYS * 86_400)
        ticks = seconds * np.uint64(parts) + (number >> np.uint64(44)) % np.uint64(parts)
        return pa.array(ticks.astype(np.int64), pa.timestamp(unit)).cast(pa.string()).cast(pa.binary())

    return texts


def _times(number: Hashes) -> pa.Array:
    parts = (_digits(_part(number, shift, limit)) for shift, limit in ((0, 100), (8, 60), (16, 60)))
    hours, minutes, seconds = parts
    return _joined(_sign(number), hours, b":", minutes, b":", seconds)


def _fine_times(number: Hashes) -> pa.Array:
    return _joined(_times(number), b".", _digits(_part(number, 24, 100)), _digits(_part(number, 32, 100)))


def _json(number: Hashes) -> pa.Array:
    words = _PLAIN.take(pa.array(_part(number, 40, len(_PLAIN)).astype(np.int64)))
    return _joined(b'{"n": ', decimal(_part(number, 0, 1000)), b', "s": ["', words, b'", null, true]}')


def _vectors(number: Hashes) -> pa.Array:
    return _joined(b"[", decimal(_part(number, 0, 100)), b",0.5,-", decimal(_part(number, 20, 100)), b"]")


_INTEGERS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_TEXTS = ("tinytext", "text", "mediumtext", "longtext")

KINDS: tuple[Kind, ...] = (
    *(Kind(Column("", name), name.upper(), _signed(bits)) for name, bits in _INTEGERS.items()),
    *(
        Kind(Column("", name, unsigned=True), f"{name.upper()} UNSIGNED", _unsigned(bits))
        for name, bits in _INTEGERS.items()
    ),
    Kind(Column("", "year"), "YEAR", _below(255, 1901)),
    Kind(Column("", "bit"), "BIT(1)", _below(2)),
    Kind(Column("", "bit", flen=64), "BIT(64)", _unsigned(64)),
    Kind(Column("", "float"), "FLOAT", _floats),
    Kind(Column("", "double"), "DOUBLE", _doubles),
    Kind(Column("", "decimal", flen=12, decimals=2), "DECIMAL(12,2)", _decimals(1)),
    Kind(Column("", "decimal", flen=20, decimals=6), "DECIMAL(20,6)", _decimals(3)),
    Kind(Column("", "char", flen=40), "CHAR(40)", _words),
    Kind(Column("", "varchar", flen=64), "VARCHAR(64)", _numbered),
    *(Kind(Column("", name), name.upper(), _numbered) for name in _TEXTS),
    Kind(Column("", "char", flen=8, binary=True), "BINARY(8)", _bytes),
    Kind(Column("", "varchar", flen=32, binary=True), "VARBINARY(32)", _bytes),
    *(Kind(Column("", name, binary=True), name.upper().replace("TEXT", "BLOB"), _bytes) for name in _TEXTS),
    Kind(Column("", "date"), "DATE", _dates),
    Kind(Column("", "datetime"), "DATETIME", _moments("s", 1)),
    Kind(Column("", "datetime", decimals=3), "DATETIME(3)", _moments("ms", 1000)),
    Kind(Column("", "datetime", decimals=6), "DATETIME(6)", _moments("us", 1_000_000)),
    Kind(Column("", "timestamp"), "TIMESTAMP", _moments("s", 1)),
    Kind(Column("", "timestamp", decimals=6), "TIMESTAMP(6)", _moments("us", 1_000_000)),
    Kind(Column("", "time"), "TIME", _times),
    Kind(Column("", "time", decimals=4), "TIME(4)", _fine_times),
    Kind(Column("", "enum", elems=_ELEMS), "ENUM('red','green','blue')", _below(3, 1)),
    Kind(Column("", "set", elems=_ELEMS), "SET('red','green','blue')", _below(8)),
    Kind(Column("", "json"), "JSON", _json),
    Kind(Column("", "vector"), "VECTOR(3)", _vectors),
)
