"""TABLE_MAP: the event before row changes that says how the columns of their table are stored.

With `binlog_row_metadata = FULL` it also has names, signs, character sets, elements and the primary key, so rows are
decoded without a look at any DDL. Defaults, unique keys, display widths and generated columns are not in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from tidegate.errors import BadLog
from tidegate.sources.mysql.log.charsets import charset_of, text_of
from tidegate.sources.mysql.log.control_events import packed_number

(
    TINY, SHORT, LONG, FLOAT, DOUBLE, LONGLONG, INT24, DATE, YEAR, NEWDATE, VARCHAR, BIT, TIMESTAMP, DATETIME, TIME,
    VECTOR, JSON, DECIMAL, ENUM, SET, BLOB, VAR_STRING, STRING, GEOMETRY,
) = (1, 2, 3, 4, 5, 8, 9, 10, 13, 14, 15, 16, 17, 18, 19, 242, 245, 246, 247, 248, 252, 253, 254, 255)  # fmt: skip
INTEGERS = {TINY: "tinyint", SHORT: "smallint", INT24: "mediumint", LONG: "int", LONGLONG: "bigint"}
TEXTS = frozenset((VARCHAR, VAR_STRING, STRING, BLOB))
_OLD = {7: "timestamp", 11: "time", 12: "datetime"}
_COMPRESSED = {140: "blob", 141: "varchar"}
_UNREAD = {
    GEOMETRY: "geometry, which has no place in TiCDC's format",
    **{kind: f"{name} in the format of MySQL 5.5; ALTER TABLE ... FORCE renews it" for kind, name in _OLD.items()},
    **{kind: f"a compressed {name}; ALTER it to one that is not compressed" for kind, name in _COMPRESSED.items()},
}
_SIGNED = frozenset((*INTEGERS, FLOAT, DOUBLE, DECIMAL, YEAR))
_WIDTHS = {TINY: 1, YEAR: 1, SHORT: 2, INT24: 3, DATE: 3, NEWDATE: 3, LONG: 4, FLOAT: 4, DOUBLE: 8, LONGLONG: 8}
_METADATA_BYTES = dict.fromkeys((FLOAT, DOUBLE, BLOB, GEOMETRY, JSON, VECTOR, TIMESTAMP, DATETIME, TIME, 140), 1)
_METADATA_BYTES |= dict.fromkeys((VARCHAR, VAR_STRING, BIT, DECIMAL, STRING, ENUM, SET, 141), 2)
_FRACTIONS = {TIMESTAMP: 4, DATETIME: 5, TIME: 3}  # bytes of the whole seconds
DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)  # how many bytes hold so many digits of a decimal

# Numbers of the optional metadata.
(
    _SIGNS, _DEFAULT_CHARSET, _CHARSETS, _NAMES, _SETS, _ENUMS, _GEOMETRIES, _KEY, _PREFIX_KEY,
    _ELEMENT_DEFAULT_CHARSET, _ELEMENT_CHARSETS, _VISIBLE, _DIMENSIONS,
) = range(1, 14)  # fmt: skip


class Stored(NamedTuple):
    """How a column is stored. `width` is the bytes of a value; 0 if `length_bytes` with its length stand before it.

    `size` is the most bytes of a text, the bits of a BIT, the digits of a decimal or of a second; `scale` is of a
    decimal. Tables whose columns are stored equally are decoded together.
    """

    kind: int
    width: int = 0
    length_bytes: int = 0
    size: int = 0
    scale: int = 0
    unsigned: bool = False
    charset: str = ""


Shape = tuple[Stored, ...]


@dataclass(frozen=True)
class LogColumn:
    """A column as TABLE_MAP describes it. `key_bytes` is set if only that much of it is in the primary key.

    `dimensions` is of a vector, `geometry` the number of a geometry's type.
    """

    name: str
    stored: Stored
    nullable: bool
    pk: bool = False
    elems: tuple[str, ...] = ()
    visible: bool = True
    dimensions: int | None = None
    geometry: int | None = None
    key_bytes: int = 0


@dataclass(frozen=True)
class TableMap:
    """A table in the log. `table_id` is valid until the end of the log file."""

    table_id: int
    schema: str
    table: str
    columns: tuple[LogColumn, ...]

    @cached_property
    def shape(self) -> Shape:
        return tuple(column.stored for column in self.columns)

    @property
    def name(self) -> str:
        return f"{self.schema}.{self.table}"

    def refuse_unread(self) -> None:
        """Refuse a table with a column whose values are not read, by name."""
        for column in self.columns:
            if reason := _UNREAD.get(column.stored.kind):
                raise BadLog(f"{self.name}, column {column.name!r} is {reason}")


def read_table_map(body: bytes) -> TableMap:
    """The body of the event, without header and checksum."""
    try:
        return _read(body)
    except (IndexError, ValueError) as exc:
        raise BadLog("a TABLE_MAP event of the log is broken") from exc


def _read(body: bytes) -> TableMap:
    table_id, at = int.from_bytes(body[:6], "little"), 8
    schema, at = body[at + 1 : at + 1 + body[at]].decode(), at + body[at] + 2
    table, at = body[at + 1 : at + 1 + body[at]].decode(), at + body[at] + 2
    count, at = packed_number(body, at)
    kinds, at = body[at : at + count], at + count
    size, at = packed_number(body, at)
    stored, at = _stored(kinds, body[at : at + size], f"{schema}.{table}"), at + size
    nulls, at = body[at : at + (count + 7) // 8], at + (count + 7) // 8
    more = dict(_fields(body, at))
    if count and _NAMES not in more:
        raise BadLog(f"the log has no column names of {schema}.{table}; SET GLOBAL binlog_row_metadata = FULL")
    nullable = [bool(nulls[i >> 3] >> (i & 7) & 1) for i in range(count)]
    return TableMap(table_id, schema, table, tuple(_columns(stored, nullable, more)))


def _fields(body: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    while at < len(body):
        field, (size, at) = body[at], packed_number(body, at + 1)
        yield field, _part(body, at, size)
        at += size


def _part(raw: bytes, at: int, size: int) -> bytes:
    if at + size > len(raw):
        raise ValueError
    return raw[at : at + size]


def _stored(kinds: bytes, metadata: bytes, table: str) -> list[Stored]:
    found, at = [], 0
    for kind in kinds:
        size = _METADATA_BYTES.get(kind, 0)
        if not size and kind not in _WIDTHS and kind not in _OLD:
            raise BadLog(f"{table} has a column of the unknown type {kind}")
        found.append(_stored_as(kind, _part(metadata, at, size)))
        _check(found[-1])
        at += size
    return found


def _check(column: Stored) -> None:
    """Refuse what no server writes, so that whoever reads the values need not."""
    kind, width, length_bytes, size, scale, _, _ = column
    most = 8 if kind in (BIT, ENUM, SET) else 32
    digits = 6 if kind in _FRACTIONS else 65 if kind == DECIMAL else size
    if not (width or length_bytes or kind in _OLD) or width > most or length_bytes > 4 or not scale <= size <= digits:
        raise ValueError


def _stored_as(kind: int, metadata: bytes) -> Stored:
    size = int.from_bytes(metadata, "little")
    if kind in _WIDTHS:
        return Stored(DATE if kind == NEWDATE else kind, _WIDTHS[kind])
    if kind in _FRACTIONS:
        return Stored(kind, _FRACTIONS[kind] + (size + 1) // 2, size=size)
    if kind == DECIMAL:
        return Stored(kind, _decimal_bytes(*metadata), size=metadata[0], scale=metadata[1])
    if kind == BIT:
        return Stored(kind, metadata[1] + (metadata[0] > 0), size=metadata[1] * 8 + metadata[0])
    if kind in (ENUM, SET):
        return Stored(kind, metadata[1])
    if kind == STRING:
        return _stored_string(*metadata)
    if kind in (VARCHAR, VAR_STRING):
        return Stored(VARCHAR, 0, 1 if size < 256 else 2, size)
    return Stored(kind, 0, size)


def _stored_string(first: int, second: int) -> Stored:
    """CHAR, and also ENUM and SET, which hide behind it. Two bits of a CHAR's length stand in the first byte."""
    if first in (ENUM, SET):
        return Stored(first, second)
    size = second | ((first & 0x30) ^ 0x30) << 4
    return Stored(STRING, 0, 1 if size < 256 else 2, size)


def _decimal_bytes(digits: int, scale: int) -> int:
    whole = digits - scale
    return whole // 9 * 4 + DIGIT_BYTES[whole % 9] + scale // 9 * 4 + DIGIT_BYTES[scale % 9]


# Optional metadata ----------------------------------------------------------------------------------------------------


def _columns(stored: Sequence[Stored], nullable: Sequence[bool], more: dict[int, bytes]) -> Iterator[LogColumn]:
    signed = [i for i, each in enumerate(stored) if each.kind in _SIGNED]
    unsigned = {i for bit, i in enumerate(signed) if _SIGNS in more and _bit(more[_SIGNS], bit)}
    charsets = _charsets(stored, TEXTS, more.get(_DEFAULT_CHARSET), more.get(_CHARSETS))
    charsets |= _charsets(stored, (ENUM, SET), more.get(_ELEMENT_DEFAULT_CHARSET), more.get(_ELEMENT_CHARSETS))
    elements = _elements(stored, ENUM, more.get(_ENUMS, b"")) | _elements(stored, SET, more.get(_SETS, b""))
    dimensions = _by_column(stored, VECTOR, more.get(_DIMENSIONS, b""))
    geometries = _by_column(stored, GEOMETRY, more.get(_GEOMETRIES, b""))
    key = dict.fromkeys(_numbers(more.get(_KEY, b"")), 0)
    prefixed = list(_numbers(more.get(_PREFIX_KEY, b"")))
    key |= dict(zip(prefixed[::2], prefixed[1::2], strict=True))
    if any(each.kind in TEXTS and i not in charsets for i, each in enumerate(stored)):
        raise ValueError
    for i, name in zip(range(len(stored)), _texts(more.get(_NAMES, b""), "utf8mb3"), strict=True):
        charset = charsets.get(i, "")
        yield LogColumn(
            name,
            stored[i]._replace(unsigned=i in unsigned, charset=charset if stored[i].kind in TEXTS else ""),
            nullable[i],
            pk=i in key,
            elems=tuple(text_of(each, charset or "utf8mb4") for each in elements.get(i, ())),
            visible=_VISIBLE not in more or _bit(more[_VISIBLE], i),
            dimensions=dimensions.get(i),
            geometry=geometries.get(i),
            key_bytes=key.get(i, 0),
        )


def _bit(bits: bytes, i: int) -> bool:
    return bool(bits[i >> 3] & 0x80 >> (i & 7))


def _numbers(raw: bytes) -> Iterator[int]:
    at = 0
    while at < len(raw):
        number, at = packed_number(raw, at)
        yield number


def _by_column(stored: Sequence[Stored], kind: int, raw: bytes) -> dict[int, int]:
    """A number for each column of this kind."""
    places = (i for i, column in enumerate(stored) if column.kind == kind)
    return dict(zip(places, _numbers(raw), strict=False))  # a server may leave the numbers out


def _texts(raw: bytes, charset: str) -> Iterator[str]:
    at = 0
    while at < len(raw):
        size, at = packed_number(raw, at)
        yield text_of(_part(raw, at, size), charset)
        at += size


def _charsets(
    stored: Sequence[Stored], kinds: frozenset[int] | tuple[int, ...], default: bytes | None, each: bytes | None
) -> dict[int, str]:
    """By column of these kinds its character set: one for most columns and the others by number, or one for each."""
    places = [i for i, column in enumerate(stored) if column.kind in kinds]
    if each is not None:
        return {i: charset_of(collation) for i, collation in zip(places, _numbers(each), strict=True)}
    if default is None:
        return {}
    usual, *others = _numbers(default)
    given = dict(zip(others[::2], others[1::2], strict=True))
    return {i: charset_of(given.get(number, usual)) for number, i in enumerate(places)}


def _elements(stored: Sequence[Stored], kind: int, raw: bytes) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    at = 0
    for i, column in enumerate(stored):
        if column.kind == kind and at < len(raw):
            count, at = packed_number(raw, at)
            found[i] = []
            for _ in range(count):
                size, at = packed_number(raw, at)
                found[i].append(_part(raw, at, size))
                at += size
    return found
