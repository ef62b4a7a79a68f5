r"""CSV as TiCDC writes it: encode Arrow batches of change events to bytes, and decode is the exact inverse.

    "I","orders","shop",7,"a ""quoted"" word",\N\r\n

A line is op, table, schema, [commit-ts], [is-update] and the values in column order. Text is quoted and its quotes are
doubled; numbers and NULL stand bare. A delete shows the old row, everything else the new one; with `output_old_value`
an update is two lines, the old row as `D` and the new one as `I`, in one entry.

How encoding works: a line is a fixed number of *pieces*. The first says op, table and schema, then values and what
stands between them alternate. All pieces that occur are put into one *pool*; a matrix of piece numbers, a row per line,
is worked out in NumPy; one Arrow `take` over the pool then writes the text of the whole batch. The order of rows, NULL
and the choice between old and new row are only numbers in that matrix, so they cost nothing extra, and there is no
Python step per row or value.
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
from tidegate.format.tables import Column, Layout

Numbers = npt.NDArray[np.int64]
Pieces = npt.NDArray[np.int32]

_HEADER = ("ticdc-meta$operation", "ticdc-meta$table", "ticdc-meta$schema")
_BINARY_ENCODINGS = ("base64", "hex")
_SCAN_BYTES = 1 << 18  # a scan's temporary stays in the cache
_MOST_BYTES = 2**31 - 1


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


def header(layout: Layout, options: CsvOptions) -> bytes:
    """The first line of every data file if `output_field_header` asks for one; names are never quoted."""
    if not options.output_field_header:
        return b""
    names = [*_HEADER]
    if options.include_commit_ts:
        names.append("ticdc-meta$commit-ts")
    if options.output_old_value:
        names.append("ticdc-meta$is-update")
    names += [column.name for column in layout.stored]
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
    pool = _Pool()
    _place_values(values, rows, lines, pool)
    _transform(values, layout, options, pool)
    quoted = _place_nulls(values, options, pool) & np.array([_is_quoted(column, options) for column in layout.stored])
    _place_between(between, quoted, options, pool)
    _place_lead(pieces[:, :lead], rows, lines, quoted[:, 0], options, pool)
    return _gather(pieces, lines.first, pool)


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


class _Pool:
    """All pieces that occur in a batch, numbered in the order they were added."""

    def __init__(self) -> None:
        self.parts: list[pa.Array] = []
        self.size = 0

    def add(self, pieces: pa.Array) -> int:
        """The number of the first of them."""
        start = self.size
        self.parts.append(pieces)
        self.size += len(pieces)
        return start

    def array(self) -> pa.Array:
        return self.parts[0] if len(self.parts) == 1 else pa.concat_arrays(self.parts)


def _lines(rows: pa.RecordBatch, order: Numbers, options: CsvOptions) -> _Lines:
    codes, kinds = _codes(rows, "kind")
    known = _KIND_MARKS_WITH_OLD if options.output_old_value else _KIND_MARKS
    if unknown := set(kinds.to_pylist()) - known.keys():
        raise BadEvents(f"an event of kind {min(unknown)!r} is no row and has no line in a data file")
    marks = [[_MARKS.index(mark) for mark in known[kind]] for kind in kinds.to_pylist()]
    code = codes[order]
    if all(len(of_kind) == 1 for of_kind in marks):
        return _Lines(order, np.array(marks, np.int64)[:, 0][code], np.arange(len(order) + 1))
    count = np.array([len(of_kind) for of_kind in marks])[code]
    first = np.concatenate([[0], np.cumsum(count)])
    place = np.arange(first[-1]) - np.repeat(first[:-1], count)
    by_place = np.array([(of_kind[0], of_kind[-1]) for of_kind in marks], np.int64)
    return _Lines(np.repeat(order, count), by_place[np.repeat(code, count), place], first)


def _codes(rows: pa.RecordBatch, name: str) -> tuple[npt.NDArray[np.int32], pa.Array]:
    """A number for every row's value in a text column, and the different values that the numbers stand for."""
    column = rows.column(name)
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py()
        raise BadEvents(f"the event at {_at(rows, row)} has no {name}; every row change needs one")
    encoded = column.dictionary_encode()
    return encoded.indices.to_numpy(), encoded.dictionary


def _at(rows: pa.RecordBatch, row: int) -> str:
    schema, table, ts = (rows.column(name)[row].as_py() for name in ("schema_name", "table_name", "commit_ts"))
    return f"{schema}.{table}, commit-ts {ts}"


def _place_values(values: Pieces, rows: pa.RecordBatch, lines: _Lines, pool: _Pool) -> None:
    """Number the values of every line, from the new rows or the old ones, after a check that all of them are there."""
    wanted = values.shape[1]
    start = np.empty(len(lines.row), np.int64)
    for side in ("after", "before"):
        chosen = np.array([mark.side == side for mark in _MARKS])[lines.mark]
        if not chosen.any():
            continue
        lists = rows.column(side)
        offsets = lists.offsets.to_numpy().astype(np.int64)  # of a slice these still count from its parent's start
        row = lines.row[chosen]
        _check_counts(rows, side, row, np.diff(offsets)[row], wanted)
        part = lists.values.slice(offsets[0], offsets[-1] - offsets[0])
        start[chosen] = offsets[row] + (pool.add(part.cast(pa.binary())) - offsets[0])
    np.add(start[:, None], np.arange(wanted), out=values, casting="unsafe")


def _check_counts(rows: pa.RecordBatch, side: str, row: Numbers, found: Numbers, wanted: int) -> None:
    lists = rows.column(side)
    absent = lists.is_null().to_numpy(zero_copy_only=False)[row] if lists.null_count else np.False_
    bad = (found != wanted) | absent
    if not bad.any():
        return
    first = int(np.argmax(bad))
    count = "no" if np.broadcast_to(absent, bad.shape)[first] else str(found[first])
    kind = rows.column("kind")[row[first]].as_py()
    raise BadEvents(
        f"{_at(rows, row[first])}: the {kind} has {count} values in `{side}` and its layout wants {wanted}; "
        "the source must send the layout that fits its rows"
    )


def _is_quoted(column: Column, options: CsvOptions) -> bool:
    return bool(options.quote) and column.is_text


def _transform(values: Pieces, layout: Layout, options: CsvOptions, pool: _Pool) -> None:
    """Replace the columns whose values cannot stand as they are: raw bytes, and text with something to escape."""
    special = any(_holds(part, _special_bytes(options)) for part in pool.parts)
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


def _place_nulls(values: Pieces, options: CsvOptions, pool: _Pool) -> npt.NDArray[np.bool_]:
    """Put the null text where a value is NULL; which values are not NULL, as one row for all lines if none is."""
    if not any(part.null_count for part in pool.parts):
        return np.ones((1, values.shape[1]), np.bool_)
    valid = np.concatenate([part.is_valid().to_numpy(zero_copy_only=False) for part in pool.parts])
    shown: npt.NDArray[np.bool_] = valid[values]
    np.copyto(values, np.int32(pool.add(_texts(options.null))), where=~shown)
    return shown


def _place_between(between: Pieces, quoted: npt.NDArray[np.bool_], options: CsvOptions, pool: _Pool) -> None:
    """What stands between two values depends on which of them is quoted; the last one ends the line."""
    d, q, end = options.delimiter, options.quote, options.terminator
    left, right = quoted[:, :-1].astype(np.int32), quoted[:, 1:]
    between[:, :-1] = pool.add(_texts(d, d + q, q + d, q + d + q)) + 2 * left + right
    between[:, -1] = pool.add(_texts(end, q + end)) + quoted[:, -1]


def _place_lead(
    lead: Pieces,
    rows: pa.RecordBatch,
    lines: _Lines,
    opens: npt.NDArray[np.bool_],
    options: CsvOptions,
    pool: _Pool,
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
    lead[:, 2] = pool.add(_texts(*tails)) + tail


def _tails(options: CsvOptions) -> list[str]:
    """For every mark, what follows before a bare value and before a quoted one."""
    d, q = options.delimiter, options.quote
    flags = [d + mark.is_update if options.output_old_value else "" for mark in _MARKS]
    return [flag + d + opening for flag in flags for opening in ("", q)]


def _place_names(
    rows: pa.RecordBatch, lines: _Lines, tail: Numbers, tails: Sequence[str], options: CsvOptions, pool: _Pool
) -> Numbers:
    """The piece of every line that says op, table, schema and the tail; each different one is made once."""
    table, tables = _codes(rows, "table_name")
    schema, schemas = _codes(rows, "schema_name")
    name = schema.astype(np.int64) * len(tables) + table
    encoded = pa.array(name[lines.row] * len(tails) + tail).dictionary_encode()
    name, tail = np.divmod(encoded.dictionary.to_numpy(), len(tails))
    d, q = options.delimiter, options.quote
    texts = pc.binary_join_element_wise(
        _texts(*(q + mark.op + q + d + q for mark in _MARKS)).take(pa.array(tail // 2)),
        _escaped(tables.cast(pa.binary()), options).take(pa.array(name % len(tables))),
        _texts(q + d + q)[0],
        _escaped(schemas.cast(pa.binary()), options).take(pa.array(name // len(tables))),
        _texts(*(q + text for text in tails)).take(pa.array(tail)),
        b"",
    )
    numbers: Numbers = pool.add(texts) + encoded.indices.to_numpy()
    return numbers


def _gather(pieces: Pieces, first: Numbers, pool: _Pool) -> pa.Array:
    text = pc.take(pool.array(), pa.array(pieces.reshape(-1)), boundscheck=False)
    _, offsets, data = text.buffers()
    starts = np.frombuffer(offsets, np.int32)[first * pieces.shape[1]]
    return pa.Array.from_buffers(pa.binary(), len(first) - 1, [None, pa.py_buffer(starts), data])


def _texts(*texts: str) -> pa.Array:
    return pa.array([text.encode() for text in texts], pa.binary())


def _special_bytes(options: CsvOptions) -> bytes:
    return (options.quote or "\\\r\n" + options.delimiter).encode()


def _bytes_of(values: pa.Array) -> tuple[Numbers, npt.NDArray[np.uint8]]:
    """Where each value starts and ends, counted from the first byte of the first one, and all their bytes."""
    _, offsets, data = values.buffers()
    ends = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    held = np.frombuffer(data if data is not None else b"", np.uint8)[ends[0] : ends[-1]]
    return ends - ends[0], held


def _holds(values: pa.Array, special: bytes) -> bool:
    """Whether one of these bytes stands anywhere in the values."""
    _, held = _bytes_of(values)
    blocks = (held[i : i + _SCAN_BYTES] for i in range(0, len(held), _SCAN_BYTES))
    return any((block == byte).any() for block in blocks for byte in special)


def _escaped(values: pa.Array, options: CsvOptions) -> pa.Array:
    """The text as it stands between quotes, or bare with backslashes where there is no quote."""
    if not _holds(values, _special_bytes(options)):
        return values
    if options.quote:
        return pc.replace_substring(values, options.quote, options.quote * 2)
    delimiter = options.delimiter.encode()
    values = pc.replace_substring(values, "\\", "\\\\")  # first: what follows adds backslashes of its own
    values = pc.replace_substring(values, delimiter, b"".join(b"\\%c" % byte for byte in delimiter))
    return pc.replace_substring(pc.replace_substring(values, "\r", "\\r"), "\n", "\\n")


def _hex(values: pa.Array) -> pa.Array:
    ends, held = _bytes_of(values)
    return _with_text(values, ends * 2, binascii.hexlify(held.data))


def _base64(values: pa.Array) -> pa.Array:
    """Every value starts on a multiple of three bytes, so one call encodes them all; the padding is set afterwards."""
    ends, held = _bytes_of(values)
    sizes = np.diff(ends)
    groups = np.concatenate([[0], np.cumsum((sizes + 2) // 3)])
    padded = np.zeros(groups[-1] * 3, np.uint8)
    padded[np.arange(len(held)) + np.repeat(groups[:-1] * 3 - ends[:-1], sizes)] = held
    text = np.frombuffer(binascii.b2a_base64(padded.data, newline=False), np.uint8).copy()
    last = groups[1:] * 4 - 1
    text[last[sizes % 3 != 0]] = ord("=")
    text[last[sizes % 3 == 1] - 1] = ord("=")
    return _with_text(values, groups * 4, text)


_ENCODINGS: dict[str, Callable[[pa.Array], pa.Array]] = {"base64": _base64, "hex": _hex}
_DECODINGS: dict[str, Callable[[bytes], bytes]] = {
    "base64": lambda text: base64.b64decode(text, validate=True),
    "hex": binascii.unhexlify,
}


def _with_text(values: pa.Array, ends: Numbers, text: bytes | npt.NDArray[np.uint8]) -> pa.Array:
    if ends[-1] > _MOST_BYTES:
        raise BadEvents("the binary values of one batch exceed 2 GiB as text; hand over smaller batches")
    valid = values.is_valid().buffers()[1] if values.null_count else None
    return pa.Array.from_buffers(
        pa.binary(), len(values), [valid, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(text)]
    )


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
