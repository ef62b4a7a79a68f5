r"""canal-json as TiCDC writes it: one JSON object per row change. `format.decode.canal_json` is the exact inverse.

    {"id":0,"database":"shop","table":"t","pkNames":["a"],"isDdl":false,"type":"UPDATE","es":0,"ts":1663572946034,
    "sql":"","sqlType":{"a":-6},"mysqlType":{"a":"tinyint"},"old":[{"a":"1"}],"data":[{"a":"2"}]}\r\n

(in one line). Every value is a JSON string or null. A delete shows the old row in `data`. Only an update has an `old`:
the full old row or, with `only_updated_columns`, the columns that differ. All objects list columns in table order.

How encoding works (see `format/pieces.py`): all lines of one kind are written together, column by column (`JsonLine`).
The text between two values is one piece. It depends on whether the value before it has a quote to close, and whether
the value after it is absent, NULL or a string. So a column costs two pieces. Values are slices of the events' own
buffer; only values with a byte that JSON must escape are written again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import BadEvents
from tidegate.events import DELETE, INSERT, ROW_KINDS, UPDATE
from tidegate.format.bad_values import BadValue
from tidegate.format.encode.elements import unsigned_numbers
from tidegate.format.encode.floats import FLOAT_BITS, plain_float_texts
from tidegate.format.encode.sql_types import Large, full_mysql_type, large_sql_type, mysql_type, sql_type
from tidegate.format.encode.whole_numbers import NUMBERED, check_columns
from tidegate.format.pieces import (
    ABSENT,
    NULL,
    TEXT,
    Flags,
    JsonLine,
    Numbers,
    Pool,
    States,
    codes,
    escaped_bytes,
    escaped_text,
    gather_blocks,
    needs_escape,
    refused,
    value_starts,
)
from tidegate.format.tables import Column, Layout

LOGICAL_BITS = 18  # of a commit-ts; the rest is `es`


@dataclass(frozen=True)
class CanalOptions:
    """`content_compatible` implies `only_updated_columns`, and shows every `mysqlType` with its length."""

    terminator: str = "\r\n"
    tidb_extension: bool = False
    only_updated_columns: bool = False
    content_compatible: bool = False
    delete_only_handle_key: bool = False

    @property
    def shows_only_updated(self) -> bool:
        return self.only_updated_columns or self.content_compatible


def encode(
    rows: pa.RecordBatch,
    order: Numbers,
    layout: Layout,
    options: CanalOptions,
    selected: tuple[int, ...] | None = None,
    now_ms: int = 0,
) -> pa.Array:
    """The line of row `order[0]`, of row `order[1]`, and so on: a binary array with one entry per number of `order`.

    `rows` are inserts, updates and deletes of one layout, of any tables; `now_ms` is every line's `ts`.
    """
    if not layout.shown(selected):
        raise BadEvents("a line without columns cannot be written: the layout stores none, or the selector left none")
    if not len(order):
        return pa.array([], pa.binary())
    row = np.asarray(order, np.int64)
    kind = kinds_of(rows)[row]
    job = _Job(rows, row, layout, options, selected, now_ms, names_of(rows, row), stamps_of(rows, row), Pool())
    job.pool.add(pa.array([b""], pa.binary()))  # EMPTY
    after = _side(job, "after", kind != ROW_KINDS.index(DELETE))
    before = _side(job, "before", kind != ROW_KINDS.index(INSERT))
    blocks = []
    for code in np.flatnonzero(np.bincount(kind)).tolist():
        lines = kind == code
        new, old = _of(after, lines), _of(before, lines)
        blocks.append((lines, _line(job, ROW_KINDS[code], lines, new, old)))
    return gather_blocks(blocks, job.pool)


class _Job(NamedTuple):
    """What all lines of one call share, how the lines begin, and the pieces found so far."""

    rows: pa.RecordBatch
    row: Numbers  # of each line
    layout: Layout
    options: CanalOptions
    selected: tuple[int, ...] | None
    now_ms: int
    names: Names
    stamps: Numbers
    pool: Pool


class _Values(NamedTuple):
    """The values of one column on one side, `after` or `before`, of some lines."""

    source: pa.Array  # their texts before escaping
    place: Numbers  # index into `source` of each line's value
    piece: Numbers  # number of the piece, escaped, of each line's value
    state: States  # NULL or TEXT for each line, or one state for all lines


class _Side(NamedTuple):
    lines: Flags  # which lines have this side
    columns: list[_Values]


def kinds_of(rows: pa.RecordBatch) -> Numbers:
    kind, kinds = codes(rows, "kind")
    if unknown := set(kinds.to_pylist()) - set(ROW_KINDS):
        raise BadEvents(f"an event of kind {min(unknown)!r} is not a row change and has no line in a data file")
    numbers: Numbers = np.array([ROW_KINDS.index(word) for word in kinds.to_pylist()], np.int64)[kind]
    return numbers


# Values -------------------------------------------------------------------------------------------------------------


def _side(job: _Job, side: str, lines: Flags) -> _Side:
    if not lines.any():
        return _Side(lines, [])
    row, stored = job.row[lines], job.layout.stored
    start = value_starts(job.rows, side, row, len(stored), job.pool)
    source = job.pool.last
    first = job.pool.size - len(source)
    positions = range(len(stored)) if job.selected is None else job.selected
    numbered = {position: stored[position] for position in positions if stored[position].type in NUMBERED}
    check_columns(job.rows, row, source, start - first, numbered)
    special = needs_escape(source)
    valid = source.is_valid().to_numpy(zero_copy_only=False) if source.null_count else None
    columns = []
    for position in positions:
        place = start + (position - first)
        state = TEXT if valid is None else _one_for_all(valid[place].astype(np.int64) + NULL)
        raw = _Values(source, place, start + position, state)
        try:
            columns.append(_written(raw, stored[position], special, job.pool))
        except BadValue as exc:
            raise refused(job.rows, row, stored[position].name, exc) from exc
    return _Side(lines, columns)


def _one_for_all(states: Numbers) -> States:
    return int(states[0]) if (states == states[0]).all() else states


def _written(raw: _Values, column: Column, special: Flags | None, pool: Pool) -> _Values:
    """The values as a line shows them: floats in their shortest form, and escaped where JSON needs it."""
    if bits := FLOAT_BITS.get(column.type):
        texts = plain_float_texts(_texts(raw), bits)
        return _Values(texts, np.arange(len(texts)), pool.add(texts) + np.arange(len(texts)), raw.state)
    if special is None or not (hit := special[raw.place]).any():
        return raw
    texts = raw.source.take(pa.array(raw.place[hit]))
    start = pool.add(escaped_bytes(texts) if column.is_bytes else escaped_text(texts))
    raw.piece[hit] = np.arange(start, pool.size)
    return raw


def _texts(values: _Values) -> pa.Array:
    return values.source.take(pa.array(values.place))


def _of(side: _Side, lines: Flags) -> list[_Values]:
    """The values of these lines. Either all of the lines have this side or none of them has it."""
    if lines.all() or not side.columns:
        return side.columns
    chosen = lines[side.lines]
    if not chosen.any():
        return []
    return [
        _Values(source, place[chosen], piece[chosen], state if isinstance(state, int) else state[chosen])
        for source, place, piece, state in side.columns
    ]


# Lines --------------------------------------------------------------------------------------------------------------


def _line(job: _Job, kind: str, lines: Flags, new: list[_Values], old: list[_Values]) -> list[Numbers | int]:
    """The places of the lines of one kind. `new` or `old` is empty if this kind has no such side."""
    places = _shown_places(job, kind)
    columns = [job.layout.shown(job.selected)[i] for i in places]
    keys = [key + b":" for key in _strings(column.name for column in columns)]
    data = [(old if kind == DELETE else new)[i] for i in places]
    line = JsonLine()
    line.put(_heads(job, kind) + job.names.number[lines])
    line.put(decimals(job.stamps[lines] >> LOGICAL_BITS, job.pool))
    line.say(b',"ts":%d,"sql":"","sqlType":{' % job.now_ms)
    _say_sql_types(line, keys, columns, data, job.row[lines], job.rows)
    line.say(b'},"mysqlType":{' + _mysql_types(keys, columns, job.options) + b'},"old":')
    _say_old(line, keys, new, old, job.options) if kind == UPDATE else line.say(b"null")
    line.open(b',"data":[{')
    for key, values in zip(keys, data, strict=True):
        line.member(key, values.piece, values.state)
    _say_end(line, job.stamps[lines], job)
    return line.numbers(job.pool)


def _heads(job: _Job, kind: str) -> int:
    """The number of the first of the pieces with which lines of this kind begin; they end before the `es` value."""
    primary = b",".join(_strings(column.name for column in job.layout.columns if column.pk))
    rest = b',"pkNames":[%b],"isDdl":false,"type":"%b","es":' % (primary, kind.upper().encode())
    return job.pool.add(pc.binary_join_element_wise(job.names.texts, rest, b""))


def _shown_places(job: _Job, kind: str) -> list[int]:
    """The shown columns that a line of this kind contains."""
    shown = job.layout.shown(job.selected)
    if kind != DELETE or not job.options.delete_only_handle_key:
        return list(range(len(shown)))
    if places := [i for i, column in enumerate(shown) if column.name in job.layout.handle_key]:
        return places
    raise BadEvents(
        "a delete of a table without a handle key, or whose selector left no column of it, has no columns to show; "
        "give the table a primary key, select its columns, or turn delete-only-output-handle-key-columns off"
    )


def _strings(texts: Iterable[str]) -> list[bytes]:
    """The texts as JSON strings. In a Python text a byte that is not UTF-8 is a lone surrogate."""
    values = pa.array([text.encode("utf-8", "surrogateescape") for text in texts], pa.binary())
    return [b'"%b"' % text for text in escaped_text(values).to_pylist()]


class Names(NamedTuple):
    """How lines begin, `{"id":0,"database":"shop","table":"t"`: the distinct beginnings, and each line's number."""

    texts: pa.Array
    number: Numbers


def names_of(rows: pa.RecordBatch, row: Numbers) -> Names:
    table, tables = codes(rows, "table_name")
    schema, schemas = codes(rows, "schema_name")
    name = pa.array((schema.astype(np.int64) * len(tables) + table)[row]).dictionary_encode()
    schema, table = np.divmod(name.dictionary.to_numpy(), len(tables))
    texts = pc.binary_join_element_wise(
        b'{"id":0,"database":"',
        escaped_text(schemas.cast(pa.binary())).take(pa.array(schema)),
        b'","table":"',
        escaped_text(tables.cast(pa.binary())).take(pa.array(table)),
        b'"',
        b"",
    )
    return Names(texts, name.indices.to_numpy())


def stamps_of(rows: pa.RecordBatch, row: Numbers) -> Numbers:
    column = rows.column("commit_ts")
    if column.null_count:
        raise BadEvents("an event has no commit_ts; every row change needs one")
    stamps: Numbers = column.to_numpy()[row]
    return stamps


def decimals(numbers: Numbers, pool: Pool) -> Numbers:
    start = pool.add(pa.array(numbers).cast(pa.string()).cast(pa.binary()))
    return np.arange(start, pool.size)


def _say_sql_types(
    line: JsonLine, keys: list[bytes], columns: list[Column], data: list[_Values], row: Numbers, rows: pa.RecordBatch
) -> None:
    for i, (key, column, values) in enumerate(zip(keys, columns, data, strict=True)):
        line.say((b"," if i else b"") + key)
        usual, large = b"%d" % sql_type(column), large_sql_type(column)
        if large is None:
            line.say(usual)
            continue
        try:
            is_large = _is_large(values, large)
        except BadValue as exc:
            raise refused(rows, row, column.name, exc) from exc
        if is_large.any():
            line.choose([usual, b"%d" % large.sql_type], is_large.astype(np.int64))
        else:
            line.say(usual)


def _is_large(values: _Values, large: Large) -> Flags:
    numbers, _ = unsigned_numbers(_texts(values))
    found: Flags = numbers > np.uint64(large.most)
    return found


def _mysql_types(keys: list[bytes], columns: list[Column], options: CanalOptions) -> bytes:
    name = full_mysql_type if options.content_compatible else mysql_type
    types = _strings(name(column) for column in columns)
    return b",".join(key + text for key, text in zip(keys, types, strict=True))


def _say_old(line: JsonLine, keys: list[bytes], new: list[_Values], old: list[_Values], options: CanalOptions) -> None:
    line.open(b"[{")
    for key, after, before in zip(keys, new, old, strict=True):
        line.member(key, before.piece, _if_updated(before, after) if options.shows_only_updated else before.state)
    line.say(b"}]")


def _if_updated(before: _Values, after: _Values) -> States:
    """The states of the old values; ABSENT where old and new text are equal."""
    old, new = _texts(before), _texts(after)
    same = pc.equal(old, new)
    if same.null_count:
        same = pc.or_(same.fill_null(False), pc.and_(old.is_null(), new.is_null()))
    return _one_for_all(np.where(same.to_numpy(zero_copy_only=False), ABSENT, before.state))


def _say_end(line: JsonLine, stamps: Numbers, job: _Job) -> None:
    end = b"}" + job.options.terminator.encode()
    if not job.options.tidb_extension:
        line.close(b"}]" + end)
        return
    line.close(b'}],"_tidb":{"commitTs":')
    line.put(decimals(stamps, job.pool))
    line.choose([b"}" + end], 0)
