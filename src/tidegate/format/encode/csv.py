r"""CSV as TiCDC writes it: Arrow batches of change events become bytes. `format.decode.csv` is the exact inverse.

    "I","orders","shop",7,"a ""quoted"" word",\N\r\n

A line is op, table, schema, [commit-ts], [is-update] and the values in column order. Text is quoted and its quotes are
doubled; numbers and NULL are not quoted. Enum and set values are numbers in an event and names in a line. A delete
shows the old row, any other change the new one. With `output_old_value` an update is two lines in one entry: the old
row as `D` and the new one as `I`.

How encoding works (see `format/pieces.py`): a line is a fixed number of pieces. The first piece holds op, table and
schema. Then values and the separators between them alternate.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import BadEvents, BadSetting
from tidegate.events import DELETE, INSERT, UPDATE
from tidegate.format.bad_values import BadValue
from tidegate.format.encode.elements import enum_names, set_names
from tidegate.format.encode.floats import FLOAT_BITS, float_texts
from tidegate.format.encode.whole_numbers import WHOLE, check_columns
from tidegate.format.pieces import (
    Flags,
    Numbers,
    Pieces,
    Pool,
    bytes_of,
    codes,
    count,
    gather,
    refused,
    texts,
    value_starts,
    with_text,
)
from tidegate.format.tables import Column, Layout

_HEADER = ("ticdc-meta$operation", "ticdc-meta$table", "ticdc-meta$schema")
_RANKS = 4
_BLOCK_ROWS = 4096
_NAMES = {"enum": enum_names, "set": set_names}


@dataclass(frozen=True)
class CsvOptions:
    delimiter: str = ","
    quote: str = '"'
    null: str = "\\N"
    terminator: str = "\r\n"
    include_commit_ts: bool = False
    binary_encoding: str = "base64"
    output_old_value: bool = False
    output_field_header: bool = False

    def __post_init__(self) -> None:
        if not 1 <= len(self.delimiter.encode()) <= 3 or set(self.delimiter) & set("\r\n"):
            raise BadSetting(f"csv delimiter is {self.delimiter!r}; it must be 1 to 3 bytes without CR and LF")
        if len(self.quote.encode()) > 1 or self.quote in ("\r", "\n") or (self.quote and self.quote in self.delimiter):
            raise BadSetting(f"csv quote is {self.quote!r}; it must be one byte, not CR, LF or part of the delimiter")
        if self.binary_encoding not in ENCODINGS:
            raise BadSetting(f"binary-encoding-method is {self.binary_encoding!r}; known: base64, hex")


def header(layout: Layout, options: CsvOptions, selected: tuple[int, ...] | None = None) -> bytes:
    """The first line of every data file if `output_field_header` asks for one; names are never quoted."""
    if not options.output_field_header:
        return b""
    names = [*_HEADER]
    if options.include_commit_ts:
        names.append("ticdc-meta$commit-ts")
    if options.output_old_value:
        names.append("ticdc-meta$is-update")
    names += [column.name for column in layout.shown(selected)]
    return (options.delimiter.join(names) + options.terminator).encode("utf-8", "surrogateescape")


def encode(
    rows: pa.RecordBatch, order: Numbers, layout: Layout, options: CsvOptions, selected: tuple[int, ...] | None = None
) -> pa.Array:
    """The lines of row `order[0]`, of row `order[1]`, and so on: a binary array with one entry per number of `order`.

    `rows` are inserts, updates and deletes of one layout, of any tables. They carry the values of all stored columns;
    `selected` are the positions of those to write, None for all.
    """
    columns = layout.shown(selected)
    if not columns:
        raise BadEvents("a layout without stored columns, or with none selected, has nothing to write; leave it out")
    if not len(order):
        return pa.array([], pa.binary())
    lines = lines_of(rows, np.asarray(order, np.int64), options)
    pool = Pool()
    positions = range(len(columns)) if selected is None else selected
    start = _value_starts(rows, lines, layout, positions, pool)
    nulls = _nulls(start, positions, pool)
    turned = list(_turned_columns(start, positions, columns, rows, lines, options, pool))
    quoted = [_quoted(column, nulls.get(i), options) for i, column in enumerate(columns)]
    lead = 3 if options.include_commit_ts else 1
    pieces = _placed(start, positions, _between(quoted, options, pool), lead)
    values = pieces[:, lead::2]
    for i, numbers in turned:
        values[:, i] = numbers
    null_text = np.int32(pool.add(texts(options.null)))
    for i, null in nulls.items():
        np.copyto(values[:, i], null_text, where=null)
    place_lead(pieces[:, :lead], rows, lines, quoted[0], options, pool)
    return gather(pieces, lines.first, pool)


class _Mark(NamedTuple):
    """One kind of line: its op, its is-update, and which row of the event it shows."""

    op: str
    is_update: str
    side: str


_INSERTED, _UPDATED, _DELETED = _Mark("I", "false", "after"), _Mark("U", "true", "after"), _Mark("D", "false", "before")
_OLD, _NEW = _Mark("D", "true", "before"), _Mark("I", "true", "after")
MARKS = (_INSERTED, _UPDATED, _DELETED, _OLD, _NEW)
_KIND_MARKS = {INSERT: (_INSERTED,), UPDATE: (_UPDATED,), DELETE: (_DELETED,)}
_KIND_MARKS_WITH_OLD = _KIND_MARKS | {UPDATE: (_OLD, _NEW)}


class Lines(NamedTuple):
    """The lines to write: for each line its row and the number of its mark; and where the lines of each entry begin.

    `once` means that no value is written twice.
    """

    row: Numbers
    mark: Numbers
    first: Numbers
    once: bool


def lines_of(rows: pa.RecordBatch, order: Numbers, options: CsvOptions) -> Lines:
    kind, kinds = codes(rows, "kind")
    known = _KIND_MARKS_WITH_OLD if options.output_old_value else _KIND_MARKS
    if unknown := set(kinds.to_pylist()) - known.keys():
        raise BadEvents(f"an event of kind {min(unknown)!r} is not a row change and has no line in a data file")
    marks = [[MARKS.index(mark) for mark in known[kind]] for kind in kinds.to_pylist()]
    code = kind[order]
    once = bool(np.bincount(order).max() == 1)
    if all(len(of_kind) == 1 for of_kind in marks):
        return Lines(order, np.array(marks, np.int64)[:, 0][code], np.arange(len(order) + 1), once)
    sizes = np.array([len(of_kind) for of_kind in marks])[code]
    first = np.concatenate([[0], np.cumsum(sizes)])
    place = np.arange(first[-1]) - np.repeat(first[:-1], sizes)
    by_place = np.array([(of_kind[0], of_kind[-1]) for of_kind in marks], np.int64)
    return Lines(np.repeat(order, sizes), by_place[np.repeat(code, sizes), place], first, once)


def _value_starts(rows: pa.RecordBatch, lines: Lines, layout: Layout, positions: Sequence[int], pool: Pool) -> Numbers:
    """The piece number of each line's first value, from the new or the old row.

    Refuses rows that miss a value, or whose text in the column of a number would be read as something else.
    """
    whole = {position: layout.stored[position] for position in positions if layout.stored[position].type in WHOLE}
    start = np.empty(len(lines.row), np.int64)
    for side in ("after", "before"):
        chosen = np.array([mark.side == side for mark in MARKS])[lines.mark]
        if chosen.any():
            row = lines.row[chosen]
            start[chosen] = found = value_starts(rows, side, row, len(layout.stored), pool)
            check_columns(rows, row, pool.last, found - (pool.size - len(pool.last)), whole)
    return start


def _turned_columns(
    start: Numbers,
    positions: Sequence[int],
    columns: Sequence[Column],
    rows: pa.RecordBatch,
    lines: Lines,
    options: CsvOptions,
    pool: Pool,
) -> Iterator[tuple[int, Numbers]]:
    """The columns whose values cannot be written unchanged, and the piece numbers to use instead.

    The special bytes of the whole batch are counted once. Columns that are likely to hold special bytes are read
    first. When all special bytes are found, the other columns need not be read.
    """
    special = special_bytes(options)
    left = sum(count(part, special) for part in pool.parts)
    ranks = [_rank(column) for column in columns]
    if not left and 0 not in ranks:
        return
    raw = pool.array()
    for rank in range(_RANKS):
        chosen = [i for i, of_column in enumerate(ranks) if of_column == rank and (left or rank == 0)]
        for i, taken in zip(chosen, _taken(raw, start, [positions[i] for i in chosen]), strict=True):
            found = count(taken, special) if left else 0
            left -= found if lines.once else 0
            if found or rank == 0:
                try:
                    yield i, _turned(taken, columns[i], options, pool)
                except BadValue as exc:
                    raise refused(rows, lines.row, columns[i].name, exc) from exc


def _taken(raw: pa.Array, start: Numbers, positions: Sequence[int]) -> list[pa.Array]:
    """The values of these columns, read in blocks of rows, because the columns of a row are adjacent in memory."""
    blocks = [start[i : i + _BLOCK_ROWS] for i in range(0, len(start), _BLOCK_ROWS)] if positions else []
    taken = [[raw.take(pa.array(block + position)) for position in positions] for block in blocks]
    return [pa.concat_arrays(parts) for parts in zip(*taken, strict=True)]


def _rank(column: Column) -> int | None:
    """0 for types that always change, 1 to 3 for texts (most likely to need escapes first), None for all others."""
    if column.is_bytes or column.type in FLOAT_BITS or column.type in _NAMES:
        return 0
    if not column.is_text:
        return None
    return {"json": 1, "char": 2, "varchar": 2}.get(column.type, 3)


def _turned(taken: pa.Array, column: Column, options: CsvOptions, pool: Pool) -> Numbers:
    """The piece numbers of these values as they are written. NULL gets any number, since it is replaced later."""
    if column.type in _NAMES:
        named = _NAMES[column.type](taken, column.elems)
        numbers: Numbers = named.indices.fill_null(0).to_numpy() + pool.add(escaped(named.dictionary, options))
        return numbers
    if column.type in FLOAT_BITS:
        shown = float_texts(taken, FLOAT_BITS[column.type])
    else:
        shown = escaped(ENCODINGS[options.binary_encoding](taken) if column.is_bytes else taken, options)
    return pool.add(shown) + np.arange(len(shown))


def _nulls(start: Numbers, positions: Sequence[int], pool: Pool) -> dict[int, Flags]:
    """For each column with a NULL, the lines in which it is NULL."""
    if not any(part.null_count for part in pool.parts):
        return {}
    null = np.concatenate([part.is_null().to_numpy(zero_copy_only=False) for part in pool.parts])
    found = {i: null[start + position] for i, position in enumerate(positions)}
    return {i: lines for i, lines in found.items() if lines.any()}


def _quoted(column: Column, null: Flags | None, options: CsvOptions) -> Flags | bool:
    """Whether the values of a column are quoted: one answer for all lines, or one per line."""
    if not options.quote or not column.is_text:
        return False
    return True if null is None else ~null


def _between(quoted: Sequence[Flags | bool], options: CsvOptions, pool: Pool) -> list[Pieces]:
    """The separator after each value. It depends on whether this value and the next one are quoted."""
    d, q, end = options.delimiter, options.quote, options.terminator
    start, ends = pool.add(texts(d, d + q, q + d, q + d + q)), pool.add(texts(end, q + end))
    inner = [start + np.multiply(left, 2, dtype=np.int32) + right for left, right in pairwise(quoted)]
    return [*inner, np.add(ends, quoted[-1], dtype=np.int32)]


def _placed(start: Numbers, positions: Sequence[int], between: Sequence[Pieces], lead: int) -> Pieces:
    """The piece numbers of all lines: unchanged values, counted from the first value of their row, and separators."""
    width = lead + 2 * len(positions)
    counted, fixed = np.zeros(width, np.int32), np.zeros(width, np.int32)
    counted[lead::2] = 1
    fixed[lead::2] = positions
    fixed[lead + 1 :: 2] = [0 if number.ndim else number for number in between]
    pieces: Pieces = np.multiply.outer(start.astype(np.int32), counted)
    pieces += fixed
    for i, number in enumerate(between):
        if number.ndim:
            pieces[:, lead + 1 + 2 * i] = number
    return pieces


def place_lead(
    lead: Pieces,
    rows: pa.RecordBatch,
    lines: Lines,
    opens: Flags | bool,
    options: CsvOptions,
    pool: Pool,
) -> None:
    """Op, table, schema and the rest up to the first value, including its opening quote (`opens`)."""
    tail = 2 * lines.mark + opens
    tails = _tails(options)
    if not options.include_commit_ts:
        lead[:, 0] = _place_names(rows, lines, tail, tails, options, pool)
        return
    lead[:, 0] = _place_names(rows, lines, 2 * lines.mark, [options.delimiter] * len(tails), options, pool)
    if rows.column("commit_ts").null_count:
        raise BadEvents("an event without commit-ts cannot be written with `include-commit-ts`")
    stamps = rows.column("commit_ts").cast(pa.string()).cast(pa.binary())
    lead[:, 1] = pool.add(stamps) + lines.row
    lead[:, 2] = pool.add(texts(*tails)) + tail


def _tails(options: CsvOptions) -> list[str]:
    """For each mark, the text before an unquoted first value and before a quoted one."""
    d, q = options.delimiter, options.quote
    flags = [d + mark.is_update if options.output_old_value else "" for mark in MARKS]
    return [flag + d + opening for flag in flags for opening in ("", q)]


def _place_names(
    rows: pa.RecordBatch, lines: Lines, tail: Numbers, tails: Sequence[str], options: CsvOptions, pool: Pool
) -> Numbers:
    """The piece with op, table, schema and the tail, for each line. Equal pieces are made once."""
    table, tables = codes(rows, "table_name")
    schema, schemas = codes(rows, "schema_name")
    name = schema.astype(np.int64) * len(tables) + table
    encoded = pa.array(name[lines.row] * len(tails) + tail).dictionary_encode()
    name, tail = np.divmod(encoded.dictionary.to_numpy(), len(tails))
    ops = escaped(texts(*(mark.op for mark in MARKS)), options)
    q, between = texts(options.quote, options.quote + options.delimiter + options.quote)
    names = pc.binary_join_element_wise(
        q,
        ops.take(pa.array(tail // 2)),
        between,
        escaped(tables.cast(pa.binary()), options).take(pa.array(name % len(tables))),
        between,
        escaped(schemas.cast(pa.binary()), options).take(pa.array(name // len(tables))),
        texts(*(options.quote + text for text in tails)).take(pa.array(tail)),
        b"",
    )
    numbers: Numbers = pool.add(names) + encoded.indices.to_numpy()
    return numbers


def special_bytes(options: CsvOptions) -> bytes:
    return (options.quote or "\\\r\n" + options.delimiter).encode()


def escaped(values: pa.Array, options: CsvOptions) -> pa.Array:
    """The text as it is written between quotes, or with backslashes if there is no quote."""
    if not count(values, special_bytes(options)):
        return values
    if options.quote:
        return pc.replace_substring(values, options.quote, options.quote * 2)
    delimiter = options.delimiter.encode()
    marked = b"".join(b"\\%c" % byte for byte in delimiter)
    values = _replaced(values, b"\\", b"\\\\")  # must come first, because the next steps add backslashes
    values = _replaced(values, delimiter.replace(b"\\", b"\\\\"), marked)
    return _replaced(_replaced(values, b"\r", b"\\r"), b"\n", b"\\n")


def _replaced(values: pa.Array, text: bytes, other: bytes) -> pa.Array:
    return pc.replace_substring(values, text, other) if count(values, text[:1]) else values


def _hex(values: pa.Array) -> pa.Array:
    ends, held = bytes_of(values)
    return with_text(values, ends * 2, binascii.hexlify(held.data))


def _base64(values: pa.Array) -> pa.Array:
    """Each value is filled up to a multiple of three bytes, so one call encodes all. Then the padding is set."""
    over = pc.fill_null(pc.binary_length(values), 0).to_numpy() % 3
    filled = pc.binary_join_element_wise(values, _FILLINGS.take(pa.array(over)), b"")
    ends, held = bytes_of(filled)
    text = np.frombuffer(binascii.b2a_base64(held.data, newline=False), np.uint8).copy()
    ends = ends // 3 * 4
    text[ends[1:][over > 0] - 1] = ord("=")
    text[ends[1:][over == 1] - 2] = ord("=")
    return with_text(values, ends, text)


_FILLINGS = pa.array([b"", b"\0\0", b"\0"])
ENCODINGS: dict[str, Callable[[pa.Array], pa.Array]] = {"base64": _base64, "hex": _hex}
