"""canal-json lines of rows of many layouts, encoded together (see `mixed`): the same bytes as `canal_json` for each.

A line is: how it begins, the members of `sqlType`, a piece with all of `mysqlType`, the members of `old` if it is an
update, the members of `data`, the end. A member of `old` and `data` is three pieces: what separates it from the member
before, its key, its value.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.events import DELETE, INSERT, ROW_KINDS, UPDATE
from tidegate.format.encode.canal_json import LOGICAL_BITS, CanalOptions, decimals, kinds_of, names_of, stamps_of
from tidegate.format.encode.elements import unsigned_numbers
from tidegate.format.encode.floats import plain_float_texts
from tidegate.format.encode.mixed import Cells, cells_of, check_whole, put_floats, put_texts, taken
from tidegate.format.encode.sql_types import full_mysql_type, large_sql_type, mysql_type, sql_type
from tidegate.format.encode.whole_numbers import NUMBERED
from tidegate.format.layout_columns import LayoutColumns, RowLayouts
from tidegate.format.pieces import (
    ABSENT,
    EMPTY,
    NULL,
    TEXT,
    Flags,
    Numbers,
    Pieces,
    Pool,
    escaped_bytes,
    escaped_text,
    gather_flat,
    needs_escape,
    value_starts,
)

_HEAD = 4  # pieces before the members of `sqlType`
_CLOSING = (b"", b"", b'"')  # by the state of the last member
_SEPARATORS = (b"", b",", b'",')


def encode(
    rows: pa.RecordBatch, order: Numbers, layouts: RowLayouts, options: CanalOptions, now_ms: int = 0
) -> pa.Array:
    """The line of row `order[0]`, of row `order[1]`, and so on. Raises BadEvents if any row is wrong."""
    row, pool = np.asarray(order, np.int64), Pool()
    pool.add(pa.array([b""], pa.binary()))  # EMPTY
    kind = kinds_of(rows)[row]
    known, entry = layouts.layouts, layouts.entry[row]
    if options.delete_only_handle_key:
        entry = entry + len(known.fingerprint) * (kind == ROW_KINDS.index(DELETE))
        known = known.with_handles()
    cells, width = cells_of(entry, known), known.width[entry]
    job = _Job(rows, row, kind, entry, width, cells, options, pool)
    new = _side(job, "after", kind != ROW_KINDS.index(DELETE))
    old = _side(job, "before", kind != ROW_KINDS.index(INSERT))
    is_delete = (kind == ROW_KINDS.index(DELETE))[cells.line]
    data = _Side(*(np.where(is_delete, *both) for both in zip(old, new, strict=True)))
    return _joined(job, old, new, data, now_ms)


class _Job(NamedTuple):
    """What all steps share: the row, kind, entry and number of values of each line, and the pieces found so far."""

    rows: pa.RecordBatch
    row: Numbers
    kind: Numbers
    entry: Numbers
    width: Numbers
    cells: Cells
    options: CanalOptions
    pool: Pool


class _Side(NamedTuple):
    """The values of all cells on one side, `after` or `before`. Lines without that side have any numbers."""

    text: Numbers  # the piece before escaping
    piece: Numbers
    state: Numbers


# Values -------------------------------------------------------------------------------------------------------------


def _side(job: _Job, side: str, lines: Flags) -> _Side:
    cells, pool = job.cells, job.pool
    text, state = np.zeros(len(cells.line), np.int64), np.full(len(cells.line), NULL)
    here = np.flatnonzero(lines[cells.line])
    if not len(here):
        return _Side(text, text, state)
    mine = cells._replace(line=cells.line[here], place=cells.place[here], column=cells.column[here])
    start = np.zeros(len(lines), np.int64)
    start[lines] = value_starts(job.rows, side, job.row[lines], job.width[lines], pool)
    source = pool.last
    base = pool.size - len(source)
    found = start[mine.line] + cells.position[here] - base
    check_whole(source, found[mine.of_type(*NUMBERED)])
    if source.null_count:
        state[here] += source.is_valid().to_numpy(zero_copy_only=False)[found]
    else:
        state[here] = TEXT
    text[here], piece = _written(found, base, mine, source, pool)
    escaped = text.copy()
    escaped[here] = piece
    return _Side(text, escaped, state)


def _written(found: Numbers, base: int, cells: Cells, source: pa.Array, pool: Pool) -> tuple[Numbers, Numbers]:
    """The piece numbers of these values before and after escaping; floats are in their shortest form in both."""
    text = found + base
    shown = found.copy()
    put_floats(shown, cells, source, pool, plain_float_texts)
    floats = cells.of_type("float", "double")
    text[floats] = shown[floats]
    piece = text.copy()
    special = needs_escape(source)
    if special is not None:
        hit = special[found] & ~cells.flags(lambda column: column.type in ("float", "double"))
        is_bytes = cells.flags(lambda column: column.is_bytes)
        for at, escape in ((hit & is_bytes, escaped_bytes), (hit & ~is_bytes, escaped_text)):
            numbers = np.flatnonzero(at)
            put_texts(shown, numbers, escape, source, pool)
            piece[numbers] = shown[numbers]
    return text, piece


def _updated(job: _Job, old: _Side, new: _Side, values: pa.Array) -> Numbers:
    """The states of the old values; ABSENT where old and new text are equal."""
    if not job.options.shows_only_updated:
        return old.state
    update = np.flatnonzero((job.kind == ROW_KINDS.index(UPDATE))[job.cells.line])
    before, after = taken(values, old.text[update]), taken(values, new.text[update])
    same = pc.equal(before, after)
    if same.null_count:
        same = pc.or_(same.fill_null(False), pc.and_(before.is_null(), after.is_null()))
    state = old.state.copy()
    state[update[same.to_numpy(zero_copy_only=False)]] = ABSENT
    return state


# Lines --------------------------------------------------------------------------------------------------------------


def _joined(job: _Job, old: _Side, new: _Side, data: _Side, now_ms: int) -> pa.Array:
    cells, options, pool = job.cells, job.options, job.pool
    values = pool.array()
    texts = _Texts.of(cells.layouts, options, pool)
    count, is_update = np.diff(cells.first), job.kind == ROW_KINDS.index(UPDATE)
    old_size = np.where(is_update, 2 + 3 * count, 1)
    tail = 3 if options.tidb_extension else 1
    size = _HEAD + count + 1 + old_size + 3 * count + tail
    begin = np.append(0, np.cumsum(size))
    pieces = np.full(begin[-1], EMPTY, np.int32)
    stamps = stamps_of(job.rows, job.row)
    at = begin[:-1]
    for place, numbers in enumerate(_heads(job, texts, stamps, now_ms)):
        pieces[at + place] = numbers
    pieces[at[cells.line] + _HEAD + cells.place] = _sql_types(job, texts, data, values)
    at = at + _HEAD + count
    pieces[at] = texts.mysql_types + job.entry
    at = at + 1
    pieces[at] = np.where(is_update, texts.opening + 1, texts.opening)
    if is_update.any():
        kept = np.flatnonzero(is_update[cells.line])
        last = _place_members(pieces, at + 1, cells, kept, texts, old.piece, _updated(job, old, new, values))
        pieces[(at + old_size - 1)[is_update]] = texts.closing + last[is_update]
    at = at + old_size
    every = np.arange(len(cells.line))
    last = _place_members(pieces, at, cells, every, texts, data.piece, data.state)
    at = at + 3 * count
    pieces[at] = texts.end + last
    if options.tidb_extension:
        pieces[at + 1] = decimals(stamps, pool)
        pieces[at + 2] = texts.end + 3
    return gather_flat(pieces, begin, pool)


class _Texts(NamedTuple):
    """The numbers of pieces that are the same in many lines: the first of a group by kind, entry, column or state."""

    begins: int  # pkNames and type, by entry and kind
    sql_types: int  # by column
    large_sql_types: int  # by column
    mysql_types: int  # by entry
    keys: int  # by column with a value, then by column with null
    separators: int  # by the state of the member before
    opening: int  # of what follows `mysqlType`, without and with an `old`
    closing: int  # of `old`, by the state of its last member
    end: int  # of the line, by the state of the last member, and what follows the commit-ts

    @staticmethod
    def of(layouts: LayoutColumns, options: CanalOptions, pool: Pool) -> _Texts:
        key = _join(b'"', escaped_text(layouts.name), b'":')
        end = b"}" + options.terminator.encode()
        closed = b'}],"_tidb":{"commitTs":' if options.tidb_extension else b"}]" + end
        usual, large = _sql_type_members(layouts, key)
        return _Texts(
            pool.add(_begins(layouts)),
            pool.add(usual),
            pool.add(large),
            pool.add(_mysql_types(layouts, key, options)),
            pool.add(pa.concat_arrays([_join(key, b'"'), _join(key, b"null")])),
            pool.add(pa.array(_SEPARATORS)),
            pool.add(pa.array([b'null,"data":[{', b"[{"])),
            pool.add(pa.array([closing + b'}],"data":[{' for closing in _CLOSING])),
            pool.add(pa.array([*(closing + closed for closing in _CLOSING), b"}" + end])),
        )


def _join(*texts: pa.Array | bytes) -> pa.Array:
    return pc.binary_join_element_wise(*texts, b"")


def _lists(first: Numbers, texts: pa.Array) -> pa.Array:
    """The texts of each list, with commas between them."""
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(first, pa.int32()), texts), b",")


def _begins(layouts: LayoutColumns) -> pa.Array:
    """What follows the names, up to the `es` value: for all entries, one kind after the other."""
    names = _join(b'"', escaped_text(layouts.primary.flatten()), b'"')
    primary = _lists(np.append(0, np.cumsum(pc.list_value_length(layouts.primary).to_numpy())), names)
    kinds = [b'],"isDdl":false,"type":"%b","es":' % kind.upper().encode() for kind in ROW_KINDS]
    return pa.concat_arrays([_join(b',"pkNames":[', primary, kind) for kind in kinds])


def _sql_type_members(layouts: LayoutColumns, key: pa.Array) -> tuple[pa.Array, pa.Array]:
    """By column `"id":4` and its separator, with the usual number and with that of a large value."""
    shown = np.flatnonzero(layouts.shown)
    begins = np.zeros(len(layouts.shown), np.bool_)
    bounds = np.searchsorted(shown, layouts.first)
    begins[shown[bounds[:-1][np.diff(bounds) > 0]]] = True
    comma = pa.array([b",", b""]).take(pa.array(begins.astype(np.int64)))
    usual = [sql_type(column) for column in layouts.definitions]
    large = [other.sql_type if (other := large_sql_type(column)) else -1 for column in layouts.definitions]
    definition = pa.array(layouts.definition)
    one, two = (pa.array([b"%d" % number for number in numbers]).take(definition) for numbers in (usual, large))
    return _join(comma, key, one), _join(comma, key, two)


def _mysql_types(layouts: LayoutColumns, key: pa.Array, options: CanalOptions) -> pa.Array:
    name = full_mysql_type if options.content_compatible else mysql_type
    names = [name(column).encode("utf-8", "surrogateescape") for column in layouts.definitions]
    types = _join(b'"', escaped_text(pa.array(names, pa.binary())), b'"').take(pa.array(layouts.definition))
    shown = np.flatnonzero(layouts.shown)
    members = _join(key, types).take(pa.array(shown))
    return _join(b'},"mysqlType":{', _lists(np.searchsorted(shown, layouts.first), members), b'},"old":')


def _heads(job: _Job, texts: _Texts, stamps: Numbers, now_ms: int) -> tuple[Numbers | int, ...]:
    """The pieces up to the members of `sqlType`."""
    pool, names = job.pool, names_of(job.rows, job.row)
    return (
        pool.add(names.texts) + names.number,
        texts.begins + job.kind * len(job.cells.layouts.fingerprint) + job.entry,
        decimals(stamps >> LOGICAL_BITS, pool),
        pool.add(pa.array([b',"ts":%d,"sql":"","sqlType":{' % now_ms])),
    )


def _sql_types(job: _Job, texts: _Texts, data: _Side, values: pa.Array) -> Numbers:
    cells = job.cells
    number = texts.sql_types + cells.column
    at = cells.having(lambda column: large_sql_type(column) is not None)
    if len(at):
        most = [large.most if (large := large_sql_type(column)) else 0 for column in cells.layouts.definitions]
        found, _ = unsigned_numbers(taken(values, data.text[at]))
        is_large = found > np.array(most, np.uint64)[cells.definition[at]]
        number[at[is_large]] = texts.large_sql_types + cells.column[at[is_large]]
    return number


def _place_members(
    pieces: Pieces, start: Numbers, cells: Cells, kept: Numbers, texts: _Texts, piece: Numbers, state: Numbers
) -> Numbers:
    """Put the members of an object of each line to where it begins. Returns by line the state of its last member.

    `kept` are the cells of the lines that have this object.
    """
    line, place, column, state = cells.line[kept], cells.place[kept], cells.column[kept], state[kept]
    at, there = np.arange(len(kept)), state != ABSENT
    begin = np.maximum.accumulate(np.where(place == 0, at, 0))
    latest = np.maximum.accumulate(np.where(there, at, -1))  # the last member so far that is there
    before = np.append(-1, latest[:-1])
    last = np.where(before >= begin, state[before], ABSENT)
    slot = start[line] + 3 * place
    keys = texts.keys + column + len(cells.layouts.name) * (state == NULL)
    pieces[slot] = np.where(there, texts.separators + last, EMPTY)
    pieces[slot + 1] = np.where(there, keys, EMPTY)
    pieces[slot + 2] = np.where(state == TEXT, piece[kept], EMPTY)
    ends = np.flatnonzero(np.append(line[1:] != line[:-1], True))
    found = np.full(len(start), ABSENT)
    found[line[ends]] = np.where(latest[ends] >= begin[ends], state[latest[ends]], ABSENT)
    return found
