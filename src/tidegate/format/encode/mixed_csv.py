"""CSV lines of rows of many layouts, encoded together (see `mixed`): the same bytes as `csv` for each layout alone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidegate.format.encode.csv import ENCODINGS, MARKS, CsvOptions, Lines, escaped, lines_of, place_lead, special_bytes
from tidegate.format.encode.floats import float_texts
from tidegate.format.encode.mixed import (
    Cells,
    Elements,
    cells_of,
    check_whole,
    enum_places,
    put_floats,
    put_texts,
    set_texts,
    taken,
)
from tidegate.format.encode.whole_numbers import WHOLE
from tidegate.format.layout_columns import RowLayouts
from tidegate.format.pieces import Flags, Numbers, Pieces, Pool, bytes_of, gather_flat, texts, value_starts
from tidegate.format.tables import Column


def encode(rows: pa.RecordBatch, order: Numbers, layouts: RowLayouts, options: CsvOptions) -> pa.Array:
    """The lines of row `order[0]`, of row `order[1]`, and so on. Raises BadEvents if any row is wrong."""
    lines, pool = lines_of(rows, np.asarray(order, np.int64), options), Pool()
    cells = cells_of(layouts.entry[lines.row], layouts.layouts)
    piece = _starts(rows, lines, layouts, pool)[cells.line] + cells.position
    raw = pool.array()
    check_whole(raw, piece[cells.of_type(*WHOLE)])
    null = np.zeros(len(piece), np.bool_)
    if raw.null_count:
        null = raw.is_null().to_numpy(zero_copy_only=False)[piece]
    _put_turned(piece, cells, raw, options, pool)
    piece[null] = pool.add(texts(options.null))
    quoted = cells.flags(lambda column: column.is_text) & ~null & bool(options.quote)
    return _joined(rows, lines, cells, piece, quoted, options, pool)


def _starts(rows: pa.RecordBatch, lines: Lines, layouts: RowLayouts, pool: Pool) -> Numbers:
    """The piece number of each line's first value, from the new or the old row."""
    width, start = layouts.width, np.empty(len(lines.row), np.int64)
    for side in ("after", "before"):
        chosen = np.array([mark.side == side for mark in MARKS])[lines.mark]
        if chosen.any():
            row = lines.row[chosen]
            start[chosen] = value_starts(rows, side, row, width[row], pool)
    return start


def _put_turned(piece: Numbers, cells: Cells, raw: pa.Array, options: CsvOptions, pool: Pool) -> None:
    """Replace the piece numbers of values that cannot be written unchanged. NULL gets any number."""
    put_floats(piece, cells, raw, pool, float_texts)
    encoded = ENCODINGS[options.binary_encoding]
    special = _is_special(raw, special_bytes(options))
    if special is not None:
        plain_text = cells.flags(_is_plain_text)
        hit = np.zeros(len(piece), np.bool_)
        hit[plain_text] = special[piece[plain_text]]
        put_texts(piece, np.flatnonzero(hit), lambda values: escaped(values, options), raw, pool)
    put_texts(piece, cells.having(lambda c: c.is_bytes), lambda values: escaped(encoded(values), options), raw, pool)
    definitions, definition = cells.layouts.definitions, cells.definition
    at = cells.of_type("enum")
    if len(at):
        elements = Elements.of(definitions, "enum")
        places = enum_places(taken(raw, piece[at]), definition[at], elements)
        piece[at] = pool.add(escaped(elements.texts, options)) + places
    at = cells.of_type("set")
    if len(at):
        named = set_texts(taken(raw, piece[at]), definition[at], Elements.of(definitions, "set"))
        piece[at] = pool.add(escaped(named, options)) + np.arange(len(at))


def _is_plain_text(column: Column) -> bool:
    return column.is_text and not column.is_bytes and column.type not in ("enum", "set")


def _is_special(raw: pa.Array, special: bytes) -> Flags | None:
    """Which values hold one of these bytes; None if no value does."""
    ends, held = bytes_of(raw)
    hits = [np.flatnonzero(held == byte) for byte in special]
    if not any(map(len, hits)):
        return None
    flags = np.zeros(len(raw), np.bool_)
    flags[np.searchsorted(ends, np.concatenate(hits), side="right") - 1] = True
    return flags


def _joined(
    rows: pa.RecordBatch, lines: Lines, cells: Cells, piece: Numbers, quoted: Flags, options: CsvOptions, pool: Pool
) -> pa.Array:
    """All lines: what leads them, then values and the separators between them."""
    lead = 3 if options.include_commit_ts else 1
    count = len(lines.row)
    begin = lead * np.arange(count + 1) + 2 * cells.first
    pieces = np.empty(begin[-1], np.int32)
    leads = np.empty((count, lead), np.int32)
    place_lead(leads, rows, lines, quoted[cells.first[:-1]], options, pool)
    for i in range(lead):
        pieces[begin[:-1] + i] = leads[:, i]
    at = lead * (cells.line + 1) + 2 * np.arange(len(piece))
    pieces[at] = piece
    pieces[at + 1] = _separators(cells, quoted, options, pool)
    return gather_flat(pieces, begin[lines.first], pool)


def _separators(cells: Cells, quoted: Flags, options: CsvOptions, pool: Pool) -> Pieces:
    """The separator after each value. It depends on whether this value and the next one are quoted."""
    d, q, end = options.delimiter, options.quote, options.terminator
    inner, ends = pool.add(texts(d, d + q, q + d, q + d + q)), pool.add(texts(end, q + end))
    separator = inner + 2 * quoted.astype(np.int32)
    separator[:-1] += quoted[1:]
    last = cells.first[1:] - 1
    separator[last] = ends + quoted[last]
    return separator
