"""How catalogues and statements are written to storage. `read_*` undoes `*_bytes` exactly.

A full catalogue is a head as JSON and two Arrow files, behind their lengths. A group of statements is JSON in gzip, the
same bytes for the same statements, so that a second writer can be told from a lost answer.
"""

from __future__ import annotations

import gzip
import json
import struct
from dataclasses import asdict
from typing import Any, NamedTuple

import pyarrow as pa

from tidegate.errors import StoreRefused
from tidegate.format.ddl.events import DdlEvent
from tidegate.format.rules.rules import TableFilter
from tidegate.format.tables import Layout
from tidegate.sources.mysql.catalogue import Catalogue, Change, DatabaseEntry, DdlRow, Server
from tidegate.sources.mysql.definition import Definition
from tidegate.sources.mysql.entries import Base, Entries, TableEntry
from tidegate.sources.mysql.place import Place

FORMAT = 1
_LENGTHS = struct.Struct("<QQQ")


class Statement(NamedTuple):
    """What a statement that ends at this place of the log did."""

    place: Place
    change: Change
    rows: tuple[DdlRow, ...]
    touched: frozenset[int]


class Full(NamedTuple):
    """A catalogue on record. `number` and `digest` are of the last group of statements that is in it."""

    catalogue: Catalogue
    place: Place
    number: int
    digest: str


class Group(NamedTuple):
    """Statements on record. `previous` is the digest of the group before, so groups form a chain."""

    previous: str
    statements: tuple[Statement, ...]


def full_bytes(full: Full) -> bytes:
    catalogue = full.catalogue.folded()
    columns, definitions = catalogue.tables.base.to_parts()
    head = {
        "format": FORMAT,
        "place": list(full.place),
        "number": full.number,
        "digest": full.digest,
        "server": asdict(catalogue.server),
        "filter": _filter_shape(catalogue.filter),
        "databases": [asdict(each) for each in catalogue.databases.values()],
        "next_table_id": catalogue.next_table_id,
        "next_schema_id": catalogue.next_schema_id,
    }
    raw = json.dumps(head).encode()
    return b"".join([_LENGTHS.pack(len(raw), columns.size, definitions.size), raw, columns, definitions])


def full_head(data: bytes) -> dict[str, Any]:
    """What a full catalogue says of itself."""
    (size, _, _) = _LENGTHS.unpack_from(data)
    return _checked(json.loads(data[_LENGTHS.size : _LENGTHS.size + size]))


def read_full(data: bytes) -> Full:
    head, (size, columns, definitions) = full_head(data), _LENGTHS.unpack_from(data)
    at = _LENGTHS.size + size
    raw = pa.py_buffer(data)
    base = Base.of_parts(raw.slice(at, columns), raw.slice(at + columns, definitions))
    server = Server(**head["server"])
    catalogue = Catalogue(server, _read_filter(head["filter"]), tables=Entries(base))
    databases = [DatabaseEntry(**each) for each in head["databases"]]
    change = Change(
        databases={catalogue.key(each.name, "")[0]: each for each in databases},
        next_table_id=head["next_table_id"],
        next_schema_id=head["next_schema_id"],
    )
    return Full(catalogue.changed(change), Place(*head["place"]), head["number"], head["digest"])


def group_bytes(group: Group) -> bytes:
    layouts: dict[int, str] = {}
    statements = [_statement_shape(each, layouts) for each in group.statements]
    shape = {"format": FORMAT, "previous": group.previous, "statements": statements, "layouts": list(layouts.values())}
    return gzip.compress(json.dumps(shape, separators=(",", ":")).encode(), compresslevel=6, mtime=0)


def read_group(data: bytes) -> Group:
    shape = _checked(json.loads(gzip.decompress(data)))
    layouts = [Layout.from_json(text) for text in shape["layouts"]]
    by_print = {layout.fingerprint: layout for layout in layouts}
    return Group(shape["previous"], tuple(_read_statement(each, by_print) for each in shape["statements"]))


def _checked(shape: dict[str, Any]) -> dict[str, Any]:
    if shape["format"] > FORMAT:
        raise StoreRefused(
            f"the catalogue on the sink has the format {shape['format']}, this release knows {FORMAT}: use the release "
            "that wrote it, or a later one"
        )
    return shape


def _statement_shape(statement: Statement, layouts: dict[int, str]) -> dict[str, Any]:
    change = statement.change
    return {
        "place": list(statement.place),
        "tables": [[*key, None if entry is None else _entry_shape(entry)] for key, entry in change.tables.items()],
        "databases": [[key, None if entry is None else asdict(entry)] for key, entry in change.databases.items()],
        "next": [change.next_table_id, change.next_schema_id],
        "filter": None if change.filter is None else _filter_shape(change.filter),
        "rows": [_row_shape(row, layouts) for row in statement.rows],
        "touched": sorted(statement.touched),
    }


def _read_statement(shape: dict[str, Any], layouts: dict[int, Layout]) -> Statement:
    tables = {(a, b): None if entry is None else _read_entry(entry) for a, b, entry in shape["tables"]}
    databases = {key: None if entry is None else DatabaseEntry(**entry) for key, entry in shape["databases"]}
    found = None if shape["filter"] is None else _read_filter(shape["filter"])
    next_table_id, next_schema_id = shape["next"]
    change = Change(tables, databases, next_table_id, next_schema_id, found)
    rows = tuple(_read_row(row, layouts) for row in shape["rows"])
    return Statement(Place(*shape["place"]), change, rows, frozenset(shape["touched"]))


def _entry_shape(entry: TableEntry) -> list[Any]:
    numbers = (entry.table_id, entry.schema_id, entry.version, entry.followed, entry.needs_snapshot)
    return [*entry.names, *numbers, entry.definition.to_json()]


def _read_entry(shape: list[Any]) -> TableEntry:
    database, name, table_id, schema_id, version, followed, needs_snapshot, definition = shape
    read = Definition.from_json(definition)
    return TableEntry(database, name, table_id, schema_id, version, read, followed, needs_snapshot)


def _row_shape(row: DdlRow, layouts: dict[int, str]) -> list[Any]:
    for each in row.layouts:
        layouts.setdefault(each.fingerprint, each.to_json())
    layout = None if row.layout is None else row.layout.fingerprint
    names = (row.schema, row.table, row.table_id, row.schema_id)
    return [row.commit_ts, *names, layout, row.event.to_json(), [each.fingerprint for each in row.layouts]]


def _read_row(shape: list[Any], layouts: dict[int, Layout]) -> DdlRow:
    commit_ts, schema, table, table_id, schema_id, layout, event, named = shape
    known = None if layout is None else layouts[layout]
    more = tuple(layouts[each] for each in named)
    return DdlRow(commit_ts, schema, table, table_id, schema_id, known, DdlEvent.from_json(event), more)


def _filter_shape(tables: TableFilter) -> dict[str, Any]:
    return {"rules": list(tables.rules), "case_sensitive": tables.case_sensitive}


def _read_filter(shape: dict[str, Any]) -> TableFilter:
    return TableFilter(tuple(shape["rules"]), shape["case_sensitive"])
