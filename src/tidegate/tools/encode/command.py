"""`tidegate encode`: reads a table definition and row changes as JSON, writes the exact bytes of a data file.

    {"schema": "shop", "table": "orders",
     "columns": ["id int primary key", "note varchar(20)"],
     "rows": [{"kind": "insert", "commit_ts": 7, "after": {"id": 1, "note": "new"}},
              {"kind": "update", "commit_ts": 9, "before": {"id": 1, "note": "new"}, "after": {"id": 1, "note": null}}]}

It does the same steps as a changefeed: filter, column selectors, routes, split of updates that change a key, encoder.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.config.settings import Settings
from tidegate.errors import BadEvents
from tidegate.events import DELETE, EVENTS, INSERT, ROW_KINDS, UPDATE
from tidegate.format.encode import protocol
from tidegate.format.layout import DataKey, data_path, date_text, index_path, schema_path
from tidegate.format.layout_columns import alike
from tidegate.format.rules.changes import Rows, Splitter, TableRules
from tidegate.format.sql.declared import declared_layout
from tidegate.format.sql.given import given_value
from tidegate.format.sql.json_values import read_json
from tidegate.format.tables import Column, Layout, schema_checksum, schema_file_text

_SIDES = {INSERT: ("after",), UPDATE: ("before", "after"), DELETE: ("before",)}
_NEEDED = {"schema": str, "table": str, "columns": list}
_OPTIONAL = {"table_id": int, "partition_of": int, "version": int, "query": str, "type": int}
_DOCUMENT = {**_NEEDED, "rows": list, **_OPTIONAL}
_ROW = ("kind", "commit_ts", "start_ts", "before", "after")
_MOST = (1 << 63) - 1
_KINDS = {str: "a text", list: "a list", int: f"a whole number from 0 to {_MOST}"}


@dataclass(frozen=True)
class Document:
    """One table and its changes. `partition_of` is the id of the logical table if this is a partition.

    A database has table "", no columns and no rows.
    """

    schema: str
    table: str
    layout: Layout
    rows: list[dict[str, Any]]
    table_id: int = 1
    partition_of: int | None = None
    version: int = 1
    query: str = ""
    type: int = 0


def read_document(text: str) -> Document:
    found = _read_object(text)
    _refuse_unknown(found, tuple(_DOCUMENT), "the input")
    for name in [*_NEEDED, *(name for name in _DOCUMENT if name in found)]:
        if not _is(found.get(name), _DOCUMENT[name]):
            raise BadEvents(f"the input needs a field {name!r} that is {_KINDS[_DOCUMENT[name]]}")
    layout = declared_layout([_column(entry, at) for at, entry in enumerate(found["columns"], start=1)])
    rows = [_change(row, at, layout) for at, row in enumerate(found.get("rows", []), start=1)]
    rest = {name: found[name] for name in _OPTIONAL if name in found}
    if not found["table"] and (layout.columns or rows):
        raise BadEvents('the table "" means a database, which has no columns and no rows: name the table')
    return Document(_name(found, "schema"), _name(found, "table"), layout, rows, **rest)


def _read_object(text: str) -> dict[str, Any]:
    try:
        found = read_json(text)
        json.dumps(found, ensure_ascii=False, default=str).encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as exc:
        raise BadEvents(
            f"the input has half of a surrogate pair, {exc.object[exc.start]!r}, which is not a character"
        ) from exc
    except ValueError as exc:
        raise BadEvents(f"the input is not JSON: {exc}") from exc
    if not isinstance(found, dict):
        raise BadEvents('the input must be one JSON object with "schema", "table", "columns" and "rows"')
    return found


def _refuse_unknown(found: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    if unknown := found.keys() - set(known):
        raise BadEvents(f"{where} has the unknown field {min(unknown)!r}; known: {', '.join(known)}")


def _is(value: object, kind: type) -> bool:
    if kind is int:
        return type(value) is int and 0 <= value <= _MOST
    return isinstance(value, kind)


def _name(found: Mapping[str, Any], field: str) -> str:
    name = str(found[field])
    if (not name and field == "schema") or any("\udc80" <= char <= "\udcff" for char in name):
        raise BadEvents(f"the field {field!r} must be a name in UTF-8, not {name!r}")
    return name


def _column(entry: Any, number: int) -> str | Column:
    if isinstance(entry, str):
        return entry
    try:
        return Layout.from_json(json.dumps({"columns": [entry]}, default=_number)).columns[0]
    except BadEvents as exc:
        raise BadEvents(f"column {number} must be a SQL definition or an object: {exc}") from exc


def _number(value: Decimal) -> float:
    return float(value)


def _change(row: Any, number: int, layout: Layout) -> dict[str, Any]:
    where = f"row {number}"
    if not isinstance(row, dict) or row.get("kind") not in ROW_KINDS:
        raise BadEvents(f"{where} must be an object whose kind is one of {', '.join(ROW_KINDS)}")
    _refuse_unknown(row, _ROW, where)
    kind = row["kind"]
    if surplus := [side for side in ("before", "after") if side not in _SIDES[kind] and row.get(side) is not None]:
        raise BadEvents(f"{where}, of kind {kind}, has no `{surplus[0]}`: leave it out")
    sides = {side: _values(row.get(side), layout, f"{where}, `{side}`") for side in _SIDES[kind]}
    commit_ts = _ts(row, "commit_ts", 1, where)
    return {
        "kind": kind,
        "commit_ts": commit_ts,
        "start_ts": _ts(row, "start_ts", commit_ts, where),
        "seq": number,
    } | sides


def _ts(row: Mapping[str, Any], name: str, otherwise: int, where: str) -> int:
    ts = row.get(name, otherwise)
    if not _is(ts, int):
        raise BadEvents(f"{where} has the {name} {ts!r}; it must be {_KINDS[int]}")
    return int(ts)


def _values(given: Any, layout: Layout, where: str) -> list[bytes | None]:
    """The values of one row, given by column name or as a list in column order."""
    names = [column.name for column in layout.stored]
    if isinstance(given, list) and len(given) == len(names):
        given = dict(zip(names, given, strict=True))
    if not isinstance(given, dict):
        raise BadEvents(f"{where} must be an object by column name, or a list of {len(names)} values")
    if missing := [name for name in names if name not in given]:
        raise BadEvents(f"{where} has no value for column {missing[0]!r}; NULL is written null")
    if unknown := given.keys() - {column.name for column in layout.columns}:
        raise BadEvents(f"{where} has a value for {min(unknown)!r}, which is not a column; known: {', '.join(names)}")
    return [_value(column, given[column.name], where) for column in layout.stored]


def _value(column: Column, value: object, where: str) -> bytes | None:
    try:
        return given_value(column, value)
    except BadEvents as exc:
        raise BadEvents(f"{where}: {exc}") from exc


def data_bytes(document: Document, settings: Settings, now_ms: int) -> bytes:
    """The content of the data file of these changes, with its header."""
    rules, layout, encoding = TableRules(settings.rules), document.layout, settings.encoding
    events = rules.kept(_events(document))
    splitter = Splitter(not settings.output_raw_change_event)
    selected = rules.selected(document.schema, document.table, layout)
    parts = [splitter.take(events, alike(layout, events)), splitter.rest()]
    both = _joined([part for part in parts if part is not None and part.events.num_rows])
    if both is None:
        return b""
    encoded = protocol.encode(rules.routed(both.events), both.order(), layout, encoding, selected, now_ms)
    return protocol.header(layout, encoding, selected) + b"".join(encoded.to_pylist())


def _joined(parts: list[Rows]) -> Rows | None:
    if not parts:
        return None
    moved = [np.zeros(p.events.num_rows, bool) if p.moved is None else p.moved for p in parts]
    return Rows(pa.concat_batches([part.events for part in parts]), np.concatenate(moved))


def _events(document: Document) -> pa.RecordBatch:
    table = {"schema_name": document.schema, "table_name": document.table, "table_id": document.table_id}
    table |= {"table_version": document.version, "layout": document.layout.fingerprint}
    return pa.RecordBatch.from_pylist([table | row for row in document.rows], schema=EVENTS)


def _target(document: Document, settings: Settings) -> tuple[str, str]:
    """The names on storage."""
    return TableRules(settings.rules).ddl_target(document.schema, document.table)


def schema_text(document: Document, settings: Settings) -> str:
    """The schema file of this table or database."""
    return schema_file_text(
        *_target(document, settings),
        document.version,
        document.layout,
        document.query,
        document.type,
        settings.output_column_id,
    )


def paths(document: Document, settings: Settings, moment: datetime) -> Iterator[tuple[str, str]]:
    """The paths of the schema file, first data file and index of this table, if they are written at this moment."""
    schema, table = _target(document, settings)
    options, table_id = settings.paths, document.table_id
    checksum = schema_checksum(schema, table, document.layout, settings.output_column_id)
    yield "schema", schema_path(schema, table, document.version, checksum, options, _schema_file_id(document))
    if not table:
        return
    date = date_text(moment, settings.date_separator)
    key = DataKey(schema, table, document.version, table_id, document.partition_of not in (None, table_id), date)
    yield "data", data_path(key, 1, options)
    yield "index", index_path(key, options)


def _schema_file_id(document: Document) -> int:
    """A DDL writes the schema file under the logical id; without a DDL it is written with a partition's rows."""
    if document.type == 0 or document.partition_of is None:
        return document.table_id
    return document.partition_of
