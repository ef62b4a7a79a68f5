"""Columns, column layouts, and the schema file that describes a table on storage.

The schema file is byte for byte what Go's `json.MarshalIndent` writes for TiCDC: fixed key order, four spaces, no
newline at the end, `<`, `>` and `&` escaped. Its checksum ignores version and query and sorts the columns by name, so
it changes exactly when a name or a column of the table changes.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import MISSING, dataclass, fields
from functools import cached_property, lru_cache
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

from tidegate.errors import BadEvents
from tidegate.format.go_json import go_json, go_string

Selected = tuple[int, ...] | None  # positions among the stored columns of those that are written; None for all

T = TypeVar("T")

SCHEMA_FILE_FORMAT = 1
_COLUMNS_INDENT = "\n    "
# What a land task does about a version's schema file before its first data file:
#   SETTLED  nothing: the schema file is known to exist
#   CHECK    list the schema files; write this one unless one with the same columns exists, maybe of another version
#   WRITE    list the schema files; write this one, even if one with the same columns exists under another version
#   NEW      write it without a look: nothing was ever written under this name
#   LOOK     the driver has dropped the state of this table: find out which files exist, and write no data file
SETTLED, CHECK, WRITE, LOOK, NEW = range(5)

_INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint")
_TEXTS = ("tinytext", "text", "mediumtext", "longtext")
_UNQUOTED = frozenset((*_INTEGERS, "bit", "year", "float", "double"))
_WITH_FSP = frozenset(("datetime", "timestamp", "time"))
_DEFAULT_FLEN = {
    "bit": 1,
    "tinyint": 4,
    "smallint": 6,
    "mediumint": 9,
    "int": 11,
    "bigint": 20,
    "float": 12,
    "double": 22,
    "decimal": 10,
    "year": 4,
    "char": 1,
    "varchar": 5,
    "var_string": 5,
    "tinytext": 255,
    "text": 65535,
    "mediumtext": 16777215,
    "longtext": 4294967295,
}
_BINARY_NAMES = {"char": "binary", "varchar": "varbinary"} | {text: text[:-4] + "blob" for text in _TEXTS}
_STRINGS = frozenset(("char", "varchar", "var_string", *_TEXTS))
_WITHOUT_FLEN = ("date", "enum", "set", "json", "vector", "null", "unspecified", "geometry")
TYPES = frozenset((*_DEFAULT_FLEN, *_WITH_FSP, *_WITHOUT_FLEN))


@dataclass(frozen=True)
class Column:
    """One column; `type` is the lower-case base name, so a BLOB is `Column("b", "text", binary=True)`.

    `virtual` means that the column is generated and no row has a value for it. An unset `flen` means TiDB's default
    length of the type.
    """

    name: str
    type: str
    flen: int | None = None
    decimals: int | None = None
    unsigned: bool = False
    zerofill: bool = False
    nullable: bool = True
    pk: bool = False
    binary: bool = False
    elems: tuple[str, ...] = ()
    default: object = None
    id: int | None = None
    virtual: bool = False

    def __post_init__(self) -> None:
        if self.type not in TYPES:
            raise BadEvents(
                f"column {self.name!r} has the unknown type {self.type!r}; known: {', '.join(sorted(TYPES))}"
            )

    @property
    def is_text(self) -> bool:
        """Whether a text format writes the value as a quoted string and not as a number."""
        return self.type not in _UNQUOTED

    @property
    def type_name(self) -> str:
        """The lower-case name that users know: `varbinary` for a binary `varchar`."""
        return _BINARY_NAMES.get(self.type, self.type) if self.binary else self.type

    @property
    def length(self) -> int | None:
        """The declared length, or TiDB's default length of the type; None for a type without a length."""
        default = _DEFAULT_FLEN.get(self.type)
        if default is None or self.flen is not None:
            return None if default is None else self.flen
        # Without a sign one digit less is needed. Only BIGINT keeps 20: its largest unsigned value has 20 digits.
        return default - ((self.unsigned or self.zerofill) and self.type in _INTEGERS[:-1])

    @property
    def is_bytes(self) -> bool:
        """Whether the value is raw bytes: BINARY, VARBINARY and the BLOBs."""
        return self.binary and self.type in _STRINGS


@dataclass(frozen=True)
class Layout:
    """The columns of a table in table order. Tables with equal columns share one layout, named by its fingerprint.

    `unique_keys` are the unique keys besides the primary one, each as column names, in the order of their index ids.
    """

    columns: tuple[Column, ...]
    unique_keys: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        names = {column.name for column in self.columns}
        if unknown := [name for key in self.unique_keys for name in key if name not in names]:
            raise BadEvents(f"a unique key names {unknown[0]!r}, which is not a column of its table")

    @cached_property
    def stored(self) -> tuple[Column, ...]:
        """The columns that have a value in every row: all except the virtual ones."""
        return tuple(column for column in self.columns if not column.virtual)

    def shown(self, selected: tuple[int, ...] | None) -> tuple[Column, ...]:
        """The stored columns at these positions, chosen by a column selector; None means all of them."""
        return self.stored if selected is None else tuple(self.stored[i] for i in selected)

    @cached_property
    def key_positions(self) -> tuple[int, ...]:
        """Positions among `stored` of all columns of the primary key or of any unique key."""
        unique = {name for key in self.unique_keys for name in key}
        return tuple(i for i, column in enumerate(self.stored) if column.pk or column.name in unique)

    @cached_property
    def handle_key(self) -> Sequence[str]:
        """The columns that identify a row: the primary key, else the not-null unique key with the fewest columns."""
        if primary := tuple(column.name for column in self.columns if column.pk):
            return primary
        nullable = {column.name for column in self.columns if column.nullable}
        return shortest_key(self.unique_keys, nullable)

    @cached_property
    def fingerprint(self) -> int:
        """A signed 64-bit number that is the same in every process for the same columns."""
        digest = hashlib.blake2b(self.to_json().encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big", signed=True)

    def to_json(self) -> str:
        """`{"columns":[{"name":"id","type":"int","pk":true}]}`; `from_json` undoes it exactly."""
        shape: dict[str, object] = {"columns": [_set_fields(column) for column in self.columns]}
        if self.unique_keys:
            shape["unique_keys"] = self.unique_keys
        return json.dumps(shape, separators=(",", ":"))

    def listed(self, output_column_id: bool) -> str:
        """The columns as a schema file lists them. Computed once, because a million tables may share this layout."""
        return self._kept("as they are", output_column_id, lambda columns: columns)

    def listed_by_name(self, output_column_id: bool) -> str:
        """The same, sorted by column name."""
        return self._kept("by name", output_column_id, _by_name)

    def _kept(self, name: str, output_column_id: bool, order: Callable[[Sequence[Column]], Sequence[Column]]) -> str:
        key = (name, output_column_id)
        if key not in self._texts:
            texts = [_column_text(column, output_column_id) for column in order(self.columns)]
            self._texts[key] = _listed(texts)
        return self._texts[key]

    @cached_property
    def _texts(self) -> dict[tuple[str, bool], str]:
        return {}

    @staticmethod
    def from_json(text: str) -> Layout:
        try:
            shape = json.loads(text)
            keys = tuple(_names(key) for key in shape.get("unique_keys", ()))
            return Layout(tuple(_column(entry) for entry in shape["columns"]), keys)
        except (ValueError, TypeError, KeyError, AttributeError) as exc:
            raise BadEvents(f'a layout must be JSON like {{"columns":[{{"name":"id","type":"int"}}]}}: {exc}') from exc


def shortest_key(keys: Iterable[Sequence[T]], nullable: Set[T]) -> Sequence[T]:
    """The key with the fewest columns of which none is nullable; () without one.

    Among equally short keys it is the first, which has the lowest index id.
    """
    return min((key for key in keys if not nullable & set(key)), key=len, default=())


class Listing(NamedTuple):
    """The columns of a layout as a schema file lists them, and by name for its checksum."""

    columns: str
    by_name: str
    total: int


@lru_cache(maxsize=256)
def listing(text: str, output_column_id: bool = False) -> Listing:
    """Of a layout in the form of `Layout.to_json`, without an object for the layout or for its columns.

    Where each table has a layout of its own, columns are still often equal. A million tables of one shape share one.
    """
    found = [_listed_column(entry, output_column_id) for entry in json.loads(text)["columns"]]
    by_name = sorted(found, key=itemgetter(0))
    return Listing(_listed(text for _, text in found), _listed(text for _, text in by_name), len(found))


def schema_file_text(
    schema: str,
    table: str,
    version: int,
    layout: Layout | None,
    query: str = "",
    action: int = 0,
    output_column_id: bool = False,
) -> str:
    """The text of `shop/orders/meta/schema_<version>_<checksum>.json`; a database has table "" and no layout."""
    columns = layout.listed(output_column_id) if layout and layout.columns else "null"
    return _file_text(schema, table, version, columns, len(layout.columns) if layout else 0, query, action)


def listed_file(schema: str, table: str, version: int, columns: Listing) -> tuple[int, str]:
    """The checksum and the text of the schema file of a table with these columns."""
    text = _file_text(schema, table, version, columns.columns if columns.total else "null", columns.total)
    return _checksum(schema, table, columns.by_name, columns.total), text


def _file_text(
    schema: str, table: str, version: int, columns: str, count: int, query: str = "", action: int = 0
) -> str:
    return f"""{{
    "Table": {go_string(table)},
    "Schema": {go_string(schema)},
    "Version": {SCHEMA_FILE_FORMAT},
    "TableVersion": {version},
    "Query": {go_string(query)},
    "Type": {action},
    "TableColumns": {columns},
    "TableColumnsTotal": {count}
}}"""


def columns_text(schema_file: str) -> str:
    """The part of a schema file's text that lists the columns, in table order."""
    return schema_file.partition('"TableColumns": ')[2]


def schema_checksum(schema: str, table: str, layout: Layout | None, output_column_id: bool = False) -> int:
    """3233644819 for the database `schema1`: the CRC-32 of names and columns. The order of columns does not count."""
    columns = layout.listed_by_name(output_column_id) if layout else "[]"
    return _checksum(schema, table, columns, len(layout.columns) if layout else 0)


def _checksum(schema: str, table: str, columns: str, count: int) -> int:
    # TiCDC computes the checksum with version 0, although the file itself says 1.
    shape = f"""{{
    "Table": {go_string(table)},
    "Schema": {go_string(schema)},
    "Version": 0,
    "TableColumns": {columns},
    "TableColumnsTotal": {count}
}}"""
    return zlib.crc32(shape.encode())


def _listed(texts: Iterable[str]) -> str:
    joined = ",".join(texts)
    return f"[{joined}{_COLUMNS_INDENT}]" if joined else "[]"


def _by_name(columns: Sequence[Column]) -> list[Column]:
    return sorted(columns, key=lambda column: _sort_key(column.name))


def _sort_key(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def _listed_column(entry: dict[str, Any], output_column_id: bool) -> tuple[bytes, str]:
    """The key by which a column is sorted, and its text in a schema file."""
    if entry.keys() & _OF_ANY_TYPE:
        return _fresh_listed(_fresh_column(entry), output_column_id)
    return _kept_listed(tuple(entry.items()), output_column_id)


@lru_cache(maxsize=1 << 14)
def _kept_listed(items: tuple[tuple[str, Any], ...], output_column_id: bool) -> tuple[bytes, str]:
    """Names differ more often than what is behind them."""
    (field, name), *definition = items
    if field != "name" or not isinstance(name, str):
        return _fresh_listed(_fresh_column(dict(items)), output_column_id)
    before, after = _around_name(tuple(definition), output_column_id)
    return _sort_key(name), before + go_string(name) + after


@lru_cache(maxsize=1 << 12)
def _around_name(definition: tuple[tuple[str, Any], ...], output_column_id: bool) -> tuple[str, str]:
    """The text of a column before and after its name."""
    text = _fresh_text(_fresh_column({"name": "", **dict(definition)}), output_column_id)
    before, _, after = text.partition('"ColumnName": ""')
    return before + '"ColumnName": ', after


def _fresh_listed(column: Column, output_column_id: bool) -> tuple[bytes, str]:
    return _sort_key(column.name), _fresh_text(column, output_column_id)


def _column_text(column: Column, output_column_id: bool) -> str:
    """One column as a schema file lists it. Where each table has a layout of its own, columns are still often equal."""
    if column.default is None or isinstance(column.default, str):
        return _kept_text(column, output_column_id)
    return _fresh_text(column, output_column_id)  # Python thinks 1, 1.0 and True equal, and a list has no hash


def _fresh_text(column: Column, output_column_id: bool) -> str:
    deeper = _COLUMNS_INDENT + "    "
    return deeper + go_json(_column_object(column, output_column_id), deeper)


_kept_text = lru_cache(maxsize=1 << 14)(_fresh_text)


def _column_object(column: Column, output_column_id: bool) -> dict[str, object]:
    shown: dict[str, object] = {
        "ColumnId": str(column.id) if output_column_id and column.id is not None else None,
        "ColumnName": column.name,
        "ColumnType": _type_name(column),
        "ColumnDefault": column.default,
        "ColumnPrecision": None if column.length is None else str(column.length),
        "ColumnScale": _scale(column),
        "ColumnNullable": None if column.nullable else "false",
        "ColumnIsPk": "true" if column.pk else None,
        "ColumnElems": list(column.elems) or None,
    }
    return {key: value for key, value in shown.items() if value is not None}


def _type_name(column: Column) -> str:
    return column.type_name.upper() + (" UNSIGNED" if column.unsigned or column.zerofill else "")


def _scale(column: Column) -> str | None:
    if column.type == "decimal":
        return str(column.decimals or 0)
    if column.type in _WITH_FSP or column.type in ("float", "double"):
        return str(column.decimals) if column.decimals else None
    return None


_FIELDS = {field.name: None if field.default is MISSING else field.default for field in fields(Column)}
_FIELD_TYPES: dict[str, tuple[type, ...]] = {"name": (str,), "type": (str,), "elems": (list,)}
_FIELD_TYPES |= dict.fromkeys(("flen", "decimals", "id"), (int, type(None)))
_OF_ANY_TYPE = frozenset(("elems", "default"))


def _set_fields(column: Column) -> dict[str, object]:
    values = {name: getattr(column, name) for name in _FIELDS}
    return {name: value for name, value in values.items() if name in ("name", "type") or value != _FIELDS[name]}


def _names(key: Any) -> tuple[str, ...]:
    if not key or not isinstance(key, list) or not all(isinstance(name, str) for name in key):
        raise ValueError(f"a unique key is a list of column names, not {key!r}")
    return tuple(key)


def _column(entry: Any) -> Column:
    values = dict(entry)
    if values.keys() & _OF_ANY_TYPE:
        return _fresh_column(values)
    return _kept_column(tuple(values.items()), tuple(map(type, values.values())))


@lru_cache(maxsize=1 << 14)
def _kept_column(items: tuple[tuple[str, Any], ...], types: tuple[type, ...]) -> Column:
    """Where each table has a layout of its own, columns are still often equal. Types count: Python thinks 1 is True."""
    return _fresh_column(dict(items))


def _fresh_column(values: dict[str, Any]) -> Column:
    if unknown := values.keys() - _FIELDS.keys():
        raise ValueError(f"unknown column field {min(unknown)!r}; known: {', '.join(_FIELDS)}")
    for name, value in values.items():
        if name != "default" and type(value) not in _FIELD_TYPES.get(name, (bool,)):
            raise ValueError(f"column field {name!r} cannot be {value!r}")
    return Column(**values | {"elems": tuple(values.get("elems", ()))})
