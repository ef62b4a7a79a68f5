"""Rows that cannot be written: how they are found, and the objects in which they are set aside.

    _tidegate/bad-rows/<table id>/<commit-ts>-<seq>.json

There is one object for each row. Its name is the key of the row, so a replay finds it under the same name and doubles
nothing. It is one JSON object on one line. `after` and `before` hold the values in column order: a text, null for
NULL, and {"base64": "..."} for bytes that are not UTF-8. `columns` are those of the layout, as a `layout` row has them.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tidegate.format.bad_values import BadRows
from tidegate.format.encode import protocol
from tidegate.format.encode.protocol import Encoding
from tidegate.format.layout import RESERVED_PREFIX
from tidegate.format.pieces import Flags, Numbers
from tidegate.format.rules.changes import Selected, split_updates
from tidegate.format.tables import Layout

FOLDER = f"{RESERVED_PREFIX}/bad-rows"
_NAME = re.compile(rf"{FOLDER}/([0-9]+)/([0-9]+)-(-?[0-9]+)\.json")
_FIELDS = (
    "kind", "schema_name", "table_name", "table_id", "logical_table_id", "schema_id", "table_version", "start_ts",
    "commit_ts", "seq", "layout",
)  # fmt: skip


class RowKey(NamedTuple):
    """What tells a row change from all others, in every replay."""

    table_id: int
    commit_ts: int
    seq: int


def folder_of(table_id: int) -> str:
    return f"{FOLDER}/{table_id}"


def bad_row_path(key: RowKey) -> str:
    """`_tidegate/bad-rows/7/00463267587686400001-00000000000000000012.json`; names sort as the rows do."""
    return f"{folder_of(key.table_id)}/{key.commit_ts:020d}-{key.seq:020d}.json"


def parse_bad_row_path(path: str) -> RowKey | None:
    found = _NAME.fullmatch(path)
    return RowKey(*map(int, found.groups())) if found is not None else None


def bad_row_text(row: Mapping[str, Any], layout: Layout, reason: str) -> bytes:
    """The object of one row of the events schema."""
    shown = {"reason": reason} | {name: row[name] for name in _FIELDS}
    shown |= {side: _values(row[side]) for side in ("after", "before")}
    shown["columns"] = json.loads(layout.to_json())["columns"]
    return json.dumps(shown).encode() + b"\n"


def is_same_row(one: bytes, other: bytes) -> bool:
    """Whether two objects have the same row. Another release may word its reason in another way."""
    try:
        rows = [json.loads(text) for text in (one, other)]
        return {**rows[0], "reason": ""} == {**rows[1], "reason": ""}
    except (ValueError, TypeError):
        return False


def _values(values: Sequence[bytes | None] | None) -> list[Any] | None:
    return None if values is None else [None if value is None else _value(value) for value in values]


def _value(value: bytes) -> Any:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def bad_updates(
    events: pa.RecordBatch, changed: Flags, layout: Layout, options: Encoding, selected: Selected
) -> dict[str, Flags]:
    """By reason, which of the updates that change a key cannot be written as a delete and an insert."""
    at = np.flatnonzero(changed)
    halves, _ = split_updates(events.take(pa.array(at)), np.ones(len(at), np.bool_))
    found: dict[str, Flags] = {}
    known = np.zeros(events.num_rows, np.bool_)
    for reason, rows in _bad_rows(halves, layout, options, selected):
        bad = np.isin(np.arange(events.num_rows), at[rows % len(at)]) & ~known
        found[reason] = found.get(reason, False) | bad  # both halves may have the same fault
        known |= bad
    return found


def unwritable(
    events: pa.RecordBatch, layout: Layout, options: Encoding, selected: Selected, changed: Flags | None
) -> Flags:
    """Which rows cannot be written; `changed` marks updates that are split, None for none."""
    bad = np.zeros(events.num_rows, np.bool_)
    if changed is not None:
        bad = np.logical_or.reduce([bad, *bad_updates(events, changed, layout, options, selected).values()])
    whole = np.flatnonzero(~bad if changed is None else ~bad & ~changed)
    for _, rows in _bad_rows(events.take(pa.array(whole)), layout, options, selected):
        bad[whole[rows]] = True
    return bad


def _bad_rows(
    rows: pa.RecordBatch, layout: Layout, options: Encoding, selected: Selected
) -> Iterator[tuple[str, Numbers]]:
    """The rows that cannot be written, by reason. Each reason costs an encoding of the rows that are left."""
    order = np.arange(rows.num_rows)
    while len(order):
        try:
            protocol.encode(rows, order, layout, options, selected)
            return
        except BadRows as bad:
            yield bad.reason, np.asarray(bad.rows, np.int64)
            order = order[~np.isin(order, bad.rows)]
