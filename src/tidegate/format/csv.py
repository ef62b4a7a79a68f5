r"""CSV as TiCDC writes it: encode Arrow batches of change events to bytes, and decode is the exact inverse.

    "I","orders","shop",7,"a ""quoted"" word",\N\r\n

A line is op, table, schema, [commit-ts], [is-update] and the values in column order. Text is quoted and its quotes are
doubled; numbers and NULL stand bare. A delete shows the old row, everything else the new one; with `output_old_value`
an update is two lines, the old row as `D` and the new one as `I`, in one entry.

How encoding works (`pieces.py`): a line is a fixed number of pieces. The first says op, table and schema, then values
and what stands between them alternate.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import BadEvents, BadSetting
from tidegate.events import DELETE, INSERT, UPDATE
from tidegate.format.pieces import Numbers, Pieces, Pool, bytes_of, codes, gather, holds, texts, value_starts, with_text
from tidegate.format.tables import Column, Layout

_HEADER = ("ticdc-meta$operation", "ticdc-meta$table", "ticdc-meta$schema")
_BINARY_ENCODINGS = ("base64", "hex")


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
        if not self.quote and "\\" in self.delimiter:
            raise BadSetting(f"csv delimiter {self.delimiter!r} holds the escape character; set a quote or another one")
        if self.binary_encoding not in _BINARY_ENCODINGS:
            raise BadSetting(f"binary-encoding-method is {self.binary_encoding!r}; known: base64, hex")


class Line(NamedTuple):
    """One decoded line; `values` holds the text (or raw bytes) of each stored column, None for NULL."""

    op: str
    table: str
    schema: str
    commit_ts: int | None
    is_update: bool | None
    values: tuple[bytes | None, ...]


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


def encode(rows: pa.RecordBatch, order: Numbers, layout: Layout, options: CsvOptions) -> pa.Array:
    """The lines of row `order[0]`, of row `order[1]`, and so on: a binary array with one entry per number of `order`.

    `rows` are inserts, updates and deletes of one layout, of any tables.
    """
    if not layout.stored:
        raise BadEvents("a layout without stored columns has nothing to write; leave its table out")
    if not len(order):
        return pa.array([], pa.binary())
    lines = _lines(rows, np.asarray(order, np.int64), options)
    lead = 3 if options.include_commit_ts else 1
    pieces = np.empty((len(lines.row), lead + 2 * len(layout.stored)), np.int32)
    values, between = pieces[:, lead::2], pieces[:, lead + 1 :: 2]
    pool = Pool()
    _place_values(values, rows, lines, pool)
    _transform(values, layout, options, pool)
    quoted = _place_nulls(values, options, pool) & np.array([_is_quoted(column, options) for column in layout.stored])
    _place_between(between, quoted, options, pool)
    _place_lead(pieces[:, :lead], rows, lines, quoted[:, 0], options, pool)
    return gather(pieces, lines.first, pool)


class _Mark(NamedTuple):
    """How one line of an event looks: its op, its is-update, and which of the event's rows it shows."""

    op: str
    is_update: str
    side: str


_INSERTED, _UPDATED, _DELETED = _Mark("I", "false", "after"), _Mark("U", "true", "after"), _Mark("D", "false", "before")
_OLD, _NEW = _Mark("D", "true", "before"), _Mark("I", "true", "after")
_MARKS = (_INSERTED, _UPDATED, _DELETED, _OLD, _NEW)
_KIND_MARKS = {INSERT: (_INSERTED,), UPDATE: (_UPDATED,), DELETE: (_DELETED,)}
_KIND_MARKS_WITH_OLD = _KIND_MARKS | {UPDATE: (_OLD, _NEW)}


class _Lines(NamedTuple):
    """The lines to write: the row each one is about, its mark's number, and where the lines of every entry begin."""

    row: Numbers
    mark: Numbers
    first: Numbers


def _lines(rows: pa.RecordBatch, order: Numbers, options: CsvOptions) -> _Lines:
    kind, kinds = codes(rows, "kind")
    known = _KIND_MARKS_WITH_OLD if options.output_old_value else _KIND_MARKS
    if unknown := set(kinds.to_pylist()) - known.keys():
        raise BadEvents(f"an event of kind {min(unknown)!r} is no row and has no line in a data file")
    marks = [[_MARKS.index(mark) for mark in known[kind]] for kind in kinds.to_pylist()]
    code = kind[order]
    if all(len(of_kind) == 1 for of_kind in marks):
        return _Lines(order, np.array(marks, np.int64)[:, 0][code], np.arange(len(order) + 1))
    count = np.array([len(of_kind) for of_kind in marks])[code]
    first = np.concatenate([[0], np.cumsum(count)])
    place = np.arange(first[-1]) - np.repeat(first[:-1], count)
    by_place = np.array([(of_kind[0], of_kind[-1]) for of_kind in marks], np.int64)
    return _Lines(np.repeat(order, count), by_place[np.repeat(code, count), place], first)


def _place_values(values: Pieces, rows: pa.RecordBatch, lines: _Lines, pool: Pool) -> None:
    """Number the values of every line, from the new rows or the old ones, after a check that all of them are there."""
    wanted = values.shape[1]
    start = np.empty(len(lines.row), np.int64)
    for side in ("after", "before"):
        chosen = np.array([mark.side == side for mark in _MARKS])[lines.mark]
        if chosen.any():
            start[chosen] = value_starts(rows, side, lines.row[chosen], wanted, pool)
    np.add(start[:, None], np.arange(wanted), out=values, casting="unsafe")


def _is_quoted(column: Column, options: CsvOptions) -> bool:
    return bool(options.quote) and column.is_text


def _transform(values: Pieces, layout: Layout, options: CsvOptions, pool: Pool) -> None:
    """Replace the columns whose values cannot stand as they are: raw bytes, and text with something to escape."""
    special = any(holds(part, _special_bytes(options)) for part in pool.parts)
    turned = [i for i, column in enumerate(layout.stored) if column.is_bytes or (special and column.is_text)]
    if not turned:
        return
    pieces = pool.array()
    for i in turned:
        column = pieces.take(pa.array(np.ascontiguousarray(values[:, i])))
        if layout.stored[i].is_bytes:
            column = _ENCODINGS[options.binary_encoding](column)
        start = pool.add(_escaped(column, options))
        values[:, i] = np.arange(start, pool.size)


def _place_nulls(values: Pieces, options: CsvOptions, pool: Pool) -> npt.NDArray[np.bool_]:
    """Put the null text where a value is NULL; which values are not NULL, as one row for all lines if none is."""
    if not any(part.null_count for part in pool.parts):
        return np.ones((1, values.shape[1]), np.bool_)
    valid = np.concatenate([part.is_valid().to_numpy(zero_copy_only=False) for part in pool.parts])
    shown: npt.NDArray[np.bool_] = valid[values]
    np.copyto(values, np.int32(pool.add(texts(options.null))), where=~shown)
    return shown


def _place_between(between: Pieces, quoted: npt.NDArray[np.bool_], options: CsvOptions, pool: Pool) -> None:
    """What stands between two values depends on which of them is quoted; the last one ends the line."""
    d, q, end = options.delimiter, options.quote, options.terminator
    left, right = quoted[:, :-1].astype(np.int32), quoted[:, 1:]
    between[:, :-1] = pool.add(texts(d, d + q, q + d, q + d + q)) + 2 * left + right
    between[:, -1] = pool.add(texts(end, q + end)) + quoted[:, -1]


def _place_lead(
    lead: Pieces,
    rows: pa.RecordBatch,
    lines: _Lines,
    opens: npt.NDArray[np.bool_],
    options: CsvOptions,
    pool: Pool,
) -> None:
    """Op, table, schema and what follows up to the first value, whose opening quote (`opens`) belongs to it."""
    tail = 2 * lines.mark + opens
    tails = _tails(options)
    if not options.include_commit_ts:
        lead[:, 0] = _place_names(rows, lines, tail, tails, options, pool)
        return
    lead[:, 0] = _place_names(rows, lines, 2 * lines.mark, [options.delimiter] * len(tails), options, pool)
    stamps = rows.column("commit_ts").cast(pa.string()).cast(pa.binary())
    lead[:, 1] = pool.add(stamps) + lines.row
    lead[:, 2] = pool.add(texts(*tails)) + tail


def _tails(options: CsvOptions) -> list[str]:
    """For every mark, what follows before a bare value and before a quoted one."""
    d, q = options.delimiter, options.quote
    flags = [d + mark.is_update if options.output_old_value else "" for mark in _MARKS]
    return [flag + d + opening for flag in flags for opening in ("", q)]


def _place_names(
    rows: pa.RecordBatch, lines: _Lines, tail: Numbers, tails: Sequence[str], options: CsvOptions, pool: Pool
) -> Numbers:
    """The piece of every line that says op, table, schema and the tail; each different one is made once."""
    table, tables = codes(rows, "table_name")
    schema, schemas = codes(rows, "schema_name")
    name = schema.astype(np.int64) * len(tables) + table
    encoded = pa.array(name[lines.row] * len(tails) + tail).dictionary_encode()
    name, tail = np.divmod(encoded.dictionary.to_numpy(), len(tails))
    d, q = options.delimiter, options.quote
    names = pc.binary_join_element_wise(
        texts(*(q + mark.op + q + d + q for mark in _MARKS)).take(pa.array(tail // 2)),
        _escaped(tables.cast(pa.binary()), options).take(pa.array(name % len(tables))),
        texts(q + d + q)[0],
        _escaped(schemas.cast(pa.binary()), options).take(pa.array(name // len(tables))),
        texts(*(q + text for text in tails)).take(pa.array(tail)),
        b"",
    )
    numbers: Numbers = pool.add(names) + encoded.indices.to_numpy()
    return numbers


def _special_bytes(options: CsvOptions) -> bytes:
    return (options.quote or "\\\r\n" + options.delimiter).encode()


def _escaped(values: pa.Array, options: CsvOptions) -> pa.Array:
    """The text as it stands between quotes, or bare with backslashes where there is no quote."""
    if not holds(values, _special_bytes(options)):
        return values
    if options.quote:
        return pc.replace_substring(values, options.quote, options.quote * 2)
    delimiter = options.delimiter.encode()
    values = pc.replace_substring(values, "\\", "\\\\")  # first: what follows adds backslashes of its own
    values = pc.replace_substring(values, delimiter, b"".join(b"\\%c" % byte for byte in delimiter))
    return pc.replace_substring(pc.replace_substring(values, "\r", "\\r"), "\n", "\\n")


def _hex(values: pa.Array) -> pa.Array:
    ends, held = bytes_of(values)
    return with_text(values, ends * 2, binascii.hexlify(held.data))


def _base64(values: pa.Array) -> pa.Array:
    """Every value starts on a multiple of three bytes, so one call encodes them all; the padding is set afterwards."""
    ends, held = bytes_of(values)
    sizes = np.diff(ends)
    groups = np.concatenate([[0], np.cumsum((sizes + 2) // 3)])
    padded = np.zeros(groups[-1] * 3, np.uint8)
    padded[np.arange(len(held)) + np.repeat(groups[:-1] * 3 - ends[:-1], sizes)] = held
    text = np.frombuffer(binascii.b2a_base64(padded.data, newline=False), np.uint8).copy()
    last = groups[1:] * 4 - 1
    text[last[sizes % 3 != 0]] = ord("=")
    text[last[sizes % 3 == 1] - 1] = ord("=")
    return with_text(values, groups * 4, text)


_ENCODINGS: dict[str, Callable[[pa.Array], pa.Array]] = {"base64": _base64, "hex": _hex}
_DECODINGS: dict[str, Callable[[bytes], bytes]] = {
    "base64": lambda text: base64.b64decode(text, validate=True),
    "hex": binascii.unhexlify,
}


def decode(data: bytes, layout: Layout, options: CsvOptions) -> list[Line]:
    """The lines of a data file. A quoted null text is a text, and only the bare one is NULL."""
    if not options.terminator:
        raise BadSetting("CSV without a terminator cannot be read back: no line has an end")
    start = header(layout, options)
    if not data.startswith(start):
        raise BadEvents(f"the file does not begin with the header {start!r}")
    pattern = _line_pattern(layout, options)
    position = len(start)
    lines: list[Line] = []
    while position < len(data):
        match = pattern.match(data, position)
        if match is None:
            raise BadEvents(f"line {len(lines) + 1}, at byte {position}, is no line of {len(layout.stored)} columns")
        lines.append(_line(match.groups(), layout, options))
        position = match.end()
    return lines


def _line_pattern(layout: Layout, options: CsvOptions) -> re.Pattern[bytes]:
    d, end = re.escape(options.delimiter.encode()), re.escape(options.terminator.encode())
    text, bare = _field_patterns(options, d, end)
    null = re.escape(options.null.encode())
    lead = [text, text, text]
    if options.include_commit_ts:
        lead.append(rb"([0-9]+)")
    if options.output_old_value:
        lead.append(rb"(true|false)")
    values = [rb"(?:%b(?=%b|%b)|%b)" % (null, d, end, text if column.is_text else bare) for column in layout.stored]
    return re.compile(d.join([*lead, *values]) + end, re.DOTALL)


def _field_patterns(options: CsvOptions, d: bytes, end: bytes) -> tuple[bytes, bytes]:
    """A text and a number. Possessive repeats: a broken line fails at once and never runs on into the next."""
    if options.quote:
        q = re.escape(options.quote.encode())
        return rb"%b((?:[^%b]++|%b%b)*+)%b" % (q, q, q, q, q), rb"((?:(?!%b|%b|%b)[^\r\n])++)" % (d, end, q)
    return rb"((?:\\.|(?!%b|%b)[^\\\r\n])*+)" % (d, end), rb"((?:(?!%b|%b)[^\r\n])++)" % (d, end)


def _line(fields: Sequence[bytes | None], layout: Layout, options: CsvOptions) -> Line:
    op, table, schema = (_unescaped(field or b"", options).decode("utf-8", "surrogateescape") for field in fields[:3])
    rest = list(fields[3:])
    commit_ts = int(rest.pop(0) or b"") if options.include_commit_ts else None
    is_update = rest.pop(0) == b"true" if options.output_old_value else None
    if op not in ("I", "U", "D"):
        raise BadEvents(f"a line of {schema}.{table} has the op {op!r}; known: I, U, D")
    values = tuple(_value(text, column, options) for text, column in zip(rest, layout.stored, strict=True))
    return Line(op, table, schema, commit_ts, is_update, values)


def _value(text: bytes | None, column: Column, options: CsvOptions) -> bytes | None:
    if text is None or not column.is_text:
        return text
    plain = _unescaped(text, options)
    if not column.is_bytes:
        return plain
    try:
        return _DECODINGS[options.binary_encoding](plain)
    except ValueError as exc:
        raise BadEvents(f"column {column.name!r} is no {options.binary_encoding} text: {exc}") from exc


_UNESCAPES = {b"n": b"\n", b"r": b"\r"}


def _unescaped(text: bytes, options: CsvOptions) -> bytes:
    if options.quote:
        quote = options.quote.encode()
        return text.replace(quote * 2, quote)
    return re.sub(rb"\\(.)", lambda match: _UNESCAPES.get(match[1], match[1]), text, flags=re.DOTALL)
