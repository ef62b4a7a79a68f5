r"""Reads canal-json lines back into changes: the exact inverse of `format.encode.canal_json`.

The changes that were read are encoded again, and data that differ from these bytes are refused. So key order, types,
escapes, spaces and numbers need few checks here. One thing is lost in a line: the value of a byte that is not UTF-8. It
is written as the escape `\ufffd` and reads back as the byte 0xFF, which is not UTF-8 either. The character U+FFFD
itself is written unescaped, so the two are never mixed up.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from enum import Enum
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from tidegate.errors import BadEvents
from tidegate.events import DELETE, EVENTS, ROW_KINDS, UPDATE, tso
from tidegate.format.encode.canal_json import CanalOptions, encode
from tidegate.format.encode.floats import FLOAT_BITS, float_texts
from tidegate.format.tables import Column, Layout


class Absent(Enum):
    """A value that the line does not contain. It is not NULL: the row had some value, or NULL."""

    ABSENT = "absent"


ABSENT = Absent.ABSENT
Value = bytes | None | Absent
Values = tuple[Value, ...]
Kind = TypeVar("Kind")

_WHOLE = frozenset(("tinyint", "smallint", "mediumint", "int", "bigint", "year", "bit", "enum", "set"))
_DECIMAL = re.compile(r"-?[0-9]+", re.ASCII)
_ESCAPE = re.compile(r"\\(?:ufffd|.)", re.DOTALL)
_BAD_BYTE, _BAD_BYTE_MARK = r"\ufffd", r"\udcff"
_BAD_NAME_BYTE = re.compile("[\ud800-\udfff]")


class Change(NamedTuple):
    """One line. `before` and `after` hold a value for each shown column, as in the events, None for NULL.

    A delete that shows only the handle key has ABSENT for all other columns. `commit_ts` is None without the extension.
    """

    kind: str
    schema: str
    table: str
    commit_ts: int | None
    es: int
    ts: int
    before: Values | None = None
    after: Values | None = None


def decode(data: bytes, layout: Layout, options: CanalOptions, selected: tuple[int, ...] | None = None) -> list[Change]:
    """The changes of a data file whose lines were written with this layout, these options and this selection."""
    try:
        changes = _canonical(_changes(_marked(data.decode()), layout, options, selected), layout, selected)
        written = _written(changes, layout, options, selected)
    except (ValueError, TypeError, LookupError, RecursionError, OverflowError, pa.lib.ArrowException) as exc:
        raise BadEvents(f"the data are not canal-json lines of {len(layout.shown(selected))} columns: {exc}") from exc
    _check_same(data, written)
    return changes


# Reading ------------------------------------------------------------------------------------------------------------


def _marked(text: str) -> str:
    """The text with a lone surrogate for every byte that was not UTF-8. JSON text contains no other lone surrogates."""
    if _BAD_BYTE not in text:
        return text
    return _ESCAPE.sub(lambda match: _BAD_BYTE_MARK if match[0] == _BAD_BYTE else match[0], text)


def _changes(text: str, layout: Layout, options: CanalOptions, selected: tuple[int, ...] | None) -> list[Change]:
    # A tuple of pairs keeps order and duplicates of keys, and differs from a JSON list.
    scanner = json.JSONDecoder(object_pairs_hook=tuple)
    columns = layout.shown(selected)
    changes: list[Change] = []
    position = 0
    while position < len(text):
        line, position = scanner.raw_decode(text, position)
        if not text.startswith(options.terminator, position):
            raise ValueError(f"line {len(changes) + 1} does not end with the terminator")
        position += len(options.terminator)
        changes.append(_change(dict(line), columns, layout, options))
    return changes


def _change(line: dict[str, Any], columns: Sequence[Column], layout: Layout, options: CanalOptions) -> Change:
    kind = _is(str, line["type"]).lower()
    if kind not in ROW_KINDS:
        raise ValueError(f"the type is {line['type']!r}; known: INSERT, UPDATE, DELETE")
    change = Change(
        kind,
        _is(str, line["database"]),
        _is(str, line["table"]),
        _is(int, dict(line["_tidb"])["commitTs"]) if options.tidb_extension else None,
        _is(int, line["es"]),
        _is(int, line["ts"]),
    )
    (members,) = line["data"]
    if kind == DELETE:
        return change._replace(before=_deleted(members, columns, layout, options))
    data = _row(members, columns)
    old = _old(line["old"], columns, data, options) if kind == UPDATE else None
    return change._replace(before=old, after=data)


def _row(members: Any, columns: Sequence[Column]) -> tuple[bytes | None, ...]:
    return tuple(_value(text, column) for (_, text), column in zip(members, columns, strict=True))


def _deleted(members: Any, columns: Sequence[Column], layout: Layout, options: CanalOptions) -> Values:
    here = [not options.delete_only_handle_key or column.name in layout.handle_key for column in columns]
    values = iter(_row(members, [column for column, is_here in zip(columns, here, strict=True) if is_here]))
    return tuple([next(values) if is_here else ABSENT for is_here in here])


def _old(shown: Any, columns: Sequence[Column], data: Values, options: CanalOptions) -> Values:
    """The old row. Columns that `old` does not contain are as in `data`."""
    (members,) = shown
    if not options.shows_only_updated:
        return _row(members, columns)
    updated = dict(members)
    keys = [_BAD_NAME_BYTE.sub("\udcff", column.name) for column in columns]
    return tuple(
        _unlike(value, _value(updated[key], column)) if key in updated else value
        for key, column, value in zip(keys, columns, data, strict=True)
    )


def _unlike(new: Value, old: bytes | None) -> bytes | None:
    """The old value. It must differ from the new one; if both look equal, only bytes that are not UTF-8 differed."""
    return old.replace(b"\xff", b"\xfe") if old is not None and old == new else old


def _is(kind: type[Kind], value: Any) -> Kind:
    if type(value) is not kind:
        raise TypeError(f"{value!r} must be a {kind.__name__}")
    return value


def _value(text: Any, column: Column) -> bytes | None:
    if text is None:
        return None
    if column.type in _WHOLE and not _DECIMAL.fullmatch(text):
        raise ValueError(f"column {column.name!r} of type {column.type} cannot hold {text!r}")
    shown = _is(str, text)
    return shown.encode("latin-1") if column.is_bytes else shown.encode("utf-8", "surrogateescape")


def _canonical(changes: list[Change], layout: Layout, selected: tuple[int, ...] | None) -> list[Change]:
    """The same changes with floats as events carry them: `1e+06` where the line has `1000000`."""
    for i, column in enumerate(layout.shown(selected)):
        if bits := FLOAT_BITS.get(column.type):
            before = _with_floats([change.before for change in changes], i, bits)
            after = _with_floats([change.after for change in changes], i, bits)
            changes = [
                change._replace(before=old, after=new) for change, old, new in zip(changes, before, after, strict=True)
            ]
    return changes


def _with_floats(rows: list[Values | None], i: int, bits: int) -> list[Values | None]:
    plain = [row[i] if row else None for row in rows]
    known = [None if isinstance(value, Absent) else value for value in plain]
    texts = float_texts(pa.array(known, pa.binary()), bits).to_pylist()
    return [
        row if row is None or row[i] is ABSENT else (*row[:i], text, *row[i + 1 :])
        for row, text in zip(rows, texts, strict=True)
    ]


# Checking -----------------------------------------------------------------------------------------------------------


def _written(
    changes: list[Change], layout: Layout, options: CanalOptions, selected: tuple[int, ...] | None
) -> list[bytes]:
    """The lines as encoding writes these changes."""
    lines: list[bytes] = []
    for ts, run in groupby(changes, key=lambda change: change.ts):
        events = [_event(change, layout, selected) for change in run]
        rows = pa.RecordBatch.from_pylist(events, EVENTS)
        lines += encode(rows, np.arange(len(events)), layout, options, selected, ts).to_pylist()
    return lines


def _event(change: Change, layout: Layout, selected: tuple[int, ...] | None) -> dict[str, Any]:
    commit_ts = tso(change.es) if change.commit_ts is None else change.commit_ts
    names = {"kind": change.kind, "schema_name": change.schema, "table_name": change.table}
    sides = {side: _stored(getattr(change, side), layout, selected) for side in ("before", "after")}
    return names | {"commit_ts": commit_ts, "seq": 0} | sides


def _stored(row: Values | None, layout: Layout, selected: tuple[int, ...] | None) -> list[bytes | None] | None:
    """A value for every stored column; NULL for columns that no line shows, since they change no byte."""
    if row is None:
        return None
    stored: list[bytes | None] = [None] * len(layout.stored)
    for position, value in zip(range(len(row)) if selected is None else selected, row, strict=True):
        stored[position] = None if isinstance(value, Absent) else value
    return stored


def _check_same(data: bytes, lines: list[bytes]) -> None:
    position = 0
    for number, line in enumerate(lines, 1):
        if not data.startswith(line, position):
            raise BadEvents(f"line {number}, at byte {position}, differs from how its content is encoded")
        position += len(line)
    if position != len(data):
        raise BadEvents(f"after line {len(lines)}, at byte {position}, there is something that is not a line")
