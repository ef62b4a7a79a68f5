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
from tidegate.format.layout_columns import LayoutOf, RowLayouts
from tidegate.format.pieces import Flags, Numbers
from tidegate.format.rules.changes import split_updates
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


class Refused(NamedTuple):
    """Rows of one layout that cannot be written, all for one reason."""

    layout: int
    reason: str
    rows: Numbers


def bad_updates(updates: pa.RecordBatch, layouts: RowLayouts, layout: LayoutOf, options: Encoding) -> Iterator[Refused]:
    """Those of these updates, which all change a key, that cannot be written as a delete and an insert; each once."""
    count = updates.num_rows
    halves, _ = split_updates(updates, np.ones(count, np.bool_))
    known = np.zeros(count, np.bool_)
    for found in bad_rows(halves, layouts.take(np.tile(np.arange(count), 2)), layout, options):
        rows = np.unique(found.rows % count)
        rows = rows[~known[rows]]
        known[rows] = True
        if len(rows):
            yield found._replace(rows=rows)


def unwritable(
    events: pa.RecordBatch, layouts: RowLayouts, layout: LayoutOf, options: Encoding, changed: Flags | None
) -> Flags:
    """Which rows cannot be written; `changed` marks updates that are split, None for none."""
    bad = np.zeros(events.num_rows, np.bool_)
    is_split = np.zeros_like(bad) if changed is None else changed
    for at, find in ((np.flatnonzero(is_split), bad_updates), (np.flatnonzero(~is_split), bad_rows)):
        for refused in find(events.take(pa.array(at)), layouts.take(at), layout, options):
            bad[at[refused.rows]] = True
    return bad


def bad_rows(rows: pa.RecordBatch, layouts: RowLayouts, layout: LayoutOf, options: Encoding) -> Iterator[Refused]:
    """The rows that cannot be written, by layout and reason."""
    found: list[Refused] = []

    def note(bad: BadRows, fingerprint: int) -> None:
        found.append(Refused(fingerprint, bad.reason, np.asarray(bad.rows, np.int64)))

    protocol.encode_good(rows, np.arange(rows.num_rows), layouts, layout, options, note)
    yield from found
