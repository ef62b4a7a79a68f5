"""`tidegate encode`: a table definition and row changes in JSON, the exact bytes of a data file out.

    {"schema": "shop", "table": "orders",
     "columns": ["id int primary key", "note varchar(20)"],
     "rows": [{"kind": "insert", "commit_ts": 7, "after": {"id": 1, "note": "new"}},
              {"kind": "update", "commit_ts": 9, "before": {"id": 1, "note": "new"}, "after": {"id": 1, "note": null}}]}

It goes the way of every change: filter, column selectors, routes, the split of key-changing updates, the encoder.
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

from tidegate.errors import BadEvents
from tidegate.events import DELETE, EVENTS, INSERT, ROW_KINDS, UPDATE
from tidegate.format import protocol
from tidegate.format.changes import Rows, Splitter, TableRules
from tidegate.format.declared import declared_layout
from tidegate.format.given import given_value
from tidegate.format.layout import DataKey, data_path, date_text, index_path, schema_path
from tidegate.format.tables import Column, Layout, schema_checksum, schema_file_text
from tidegate.settings import Settings

_SIDES = {INSERT: ("after",), UPDATE: ("before", "after"), DELETE: ("before",)}
_DOCUMENT = ("schema", "table", "table_id", "partition_of", "version", "columns", "rows", "query", "type")
_ROW = ("kind", "commit_ts", "start_ts", "before", "after")


@dataclass(frozen=True)
class Document:
    """One table and changes of it; `partition_of` is the logical table's id if this is a partition."""

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
    try:
        found = json.loads(text, parse_float=Decimal)
    except ValueError as exc:
        raise BadEvents(f"the input is no JSON: {exc}") from exc
    if not isinstance(found, dict):
        raise BadEvents('the input must be one JSON object with "schema", "table", "columns" and "rows"')
    _refuse_unknown(found, _DOCUMENT, "the input")
    layout = declared_layout([_column(entry) for entry in _needed(found, "columns", list)])
    rows = [_change(row, at, layout) for at, row in enumerate(found.get("rows", []), start=1)]
    rest = {key: found[key] for key in ("table_id", "partition_of", "version", "query", "type") if key in found}
    return Document(_needed(found, "schema", str), _needed(found, "table", str), layout, rows, **rest)


def _refuse_unknown(found: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    if unknown := found.keys() - set(known):
        raise BadEvents(f"{where} has the unknown field {min(unknown)!r}; known: {', '.join(known)}")


def _needed(found: Mapping[str, Any], name: str, kind: type) -> Any:
    if not isinstance(found.get(name), kind):
        raise BadEvents(f"the input needs a field {name!r} that is a {'list' if kind is list else 'text'}")
    return found[name]


def _column(entry: Any) -> str | Column:
    if isinstance(entry, str):
        return entry
    return Layout.from_json(json.dumps({"columns": [entry]}, default=float)).columns[0]


def _change(row: Any, number: int, layout: Layout) -> dict[str, Any]:
    where = f"row {number}"
    if not isinstance(row, dict) or row.get("kind") not in ROW_KINDS:
        raise BadEvents(f"{where} must be an object whose kind is one of {', '.join(ROW_KINDS)}")
    _refuse_unknown(row, _ROW, where)
    sides = {side: _values(row.get(side), layout, f"{where}, `{side}`") for side in _SIDES[row["kind"]]}
    ts = row.get("commit_ts", 1)
    if type(ts) is not int or not 0 <= ts < 1 << 63:
        raise BadEvents(f"{where} has the commit_ts {ts!r}; it must be a whole number of 63 bits")
    return {"kind": row["kind"], "commit_ts": ts, "start_ts": row.get("start_ts", ts), "seq": number, **sides}


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
        raise BadEvents(f"{where} has a value for {min(unknown)!r}, which is no column")
    return [given_value(column, given[column.name]) for column in layout.stored]


def data_bytes(document: Document, settings: Settings, now_ms: int) -> bytes:
    """What stands in the data file of these changes, header included."""
    rules, layout, encoding = TableRules(settings.rules), document.layout, settings.encoding
    events = rules.kept(_events(document))
    splitter = Splitter(not settings.output_raw_change_event)
    selected = rules.selected(document.schema, document.table, layout)
    parts = [splitter.take(0, layout, events), *(rows for _, rows in splitter.rest())]
    both = _joined([part for part in parts if part.events.num_rows])
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


def schema_text(document: Document, settings: Settings) -> str:
    """The schema file of this table."""
    names = TableRules(settings.rules).target(document.schema, document.table)
    return schema_file_text(
        *names, document.version, document.layout, document.query, document.type, settings.output_column_id
    )


def paths(document: Document, settings: Settings, moment: datetime) -> Iterator[tuple[str, str]]:
    """Where schema file, first data file and index of this table stand, if they are written at this moment."""
    schema, table = TableRules(settings.rules).target(document.schema, document.table)
    options, table_id = settings.paths, document.table_id
    checksum = schema_checksum(schema, table, document.layout, settings.output_column_id)
    yield "schema", schema_path(schema, table, document.version, checksum, options, table_id)
    date = date_text(moment, settings.date_separator)
    key = DataKey(schema, table, document.version, table_id, document.partition_of not in (None, table_id), date)
    yield "data", data_path(key, 1, options)
    yield "index", index_path(key, options)
