r"""Reads CSV back: the exact inverse of `format.encode.csv`. What cannot be read with certainty is refused.

    "I","orders","shop",7,"a ""quoted"" word",\N\r\n     Line("I", "orders", "shop", None, None, (b"7", b'a "quoted"...

Two promises. A file is accepted only if encoding its rows gives the same bytes again. And a line is refused if two
different rows could be written like it: options under which the end of a line is not certain are refused at once, and
a null text that could also be a value is refused where it occurs.

The time is linear in the size of the file. All repeats and choices in the pattern of a line are possessive or atomic,
so the regular expression never backtracks on a broken line.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import BadEvents, BadSetting
from tidegate.format.bad_values import BadValue
from tidegate.format.encode.csv import ENCODINGS, CsvOptions, escaped, header
from tidegate.format.encode.elements import enum_numbers, set_numbers
from tidegate.format.encode.floats import FLOAT_BITS, float_texts
from tidegate.format.tables import Column, Layout

Fields = Sequence[bytes | None]

_MOST_TS = 2**63 - 1
_NUMBER_BYTES = b"0123456789+-.eEINafn"  # of `-1.5e+06`, `NaN` and `+Inf`


class Line(NamedTuple):
    """One decoded line. `values` holds the text (or raw bytes) of each column as in an event, None for NULL."""

    op: str
    table: str
    schema: str
    commit_ts: int | None
    is_update: bool | None
    values: tuple[bytes | None, ...]


def decode(data: bytes, layout: Layout, options: CsvOptions, selected: tuple[int, ...] | None = None) -> list[Line]:
    """The lines of a data file. A quoted null text is a text; only the unquoted one is NULL."""
    _check_readable(options)
    columns = layout.shown(selected)
    if not columns:
        raise BadEvents("a layout without stored columns, or with none selected, has no lines to read")
    start = header(layout, options, selected)
    if not data.startswith(start):
        raise BadEvents(f"the file does not begin with the header {start!r}")
    found = _split(data, len(start), columns, options)
    if not found:
        return []
    parts = list(zip(*found, strict=True))
    leads = _leads(parts[: -len(columns)], options)
    _check_pairs(leads)
    values = [_column(part, i, columns, options) for i, part in enumerate(parts[-len(columns) :])]
    return [lead._replace(values=row) for lead, row in zip(leads, zip(*values, strict=True), strict=True)]


def _check_readable(options: CsvOptions) -> None:
    delimiter, end = options.delimiter, options.terminator
    if not end:
        raise BadSetting("CSV without a terminator cannot be read back: no line has an end")
    if {delimiter.encode()[0], end.encode()[0]} & set(_NUMBER_BYTES):
        raise BadSetting(
            f"the delimiter {delimiter!r} or terminator {end!r} begins like a number, so fields cannot be told apart"
        )
    if options.quote and end.startswith(options.quote):
        raise BadSetting(f"the terminator {end!r} begins with the quote; no line has a certain end")
    if options.quote:
        return
    if end[0] not in "\r\n":
        raise BadSetting(f"without a quote the terminator {end!r} may be part of a text; no line has a certain end")
    if set(delimiter) & set("\\nr"):
        raise BadSetting(f"without a quote the delimiter {delimiter!r} looks like an escape; it cannot be read back")
    if any(delimiter.encode().startswith(delimiter.encode()[i:]) for i in range(1, len(delimiter.encode()))):
        raise BadSetting(f"without a quote the delimiter {delimiter!r}, which overlaps itself, cannot be read back")


# Lines --------------------------------------------------------------------------------------------------------------


def _split(data: bytes, position: int, columns: Sequence[Column], options: CsvOptions) -> list[Fields]:
    pattern = _line_pattern(columns, options)
    found: list[Fields] = []
    while position < len(data):
        match = pattern.match(data, position)
        if match is None:
            raise BadEvents(f"line {len(found) + 1}, at byte {position}, is not a line of {len(columns)} columns")
        found.append(match.groups())
        position = match.end()
    return found


def _line_pattern(columns: Sequence[Column], options: CsvOptions) -> re.Pattern[bytes]:
    delimiter, null = re.escape(options.delimiter.encode()), re.escape(options.null.encode())
    fields = [_text_pattern(options)] * 3
    if options.include_commit_ts:
        fields.append(rb"(0|[1-9][0-9]{0,18}+)")
    if options.output_old_value:
        fields.append(rb"(true|false)")
    for i, column in enumerate(columns):
        fields.append(rb"(?>%b(?=%b)|%b)" % (null, re.escape(_after(i, columns, options)), _pattern(column, options)))
    return re.compile(delimiter.join(fields) + re.escape(options.terminator.encode()), re.DOTALL)


def _after(i: int, columns: Sequence[Column], options: CsvOptions) -> bytes:
    """The separator after the value of this column."""
    return (options.delimiter if i + 1 < len(columns) else options.terminator).encode()


def _pattern(column: Column, options: CsvOptions) -> bytes:
    if column.is_text:
        return _text_pattern(options)
    return rb"([%b]++)" % re.escape(_NUMBER_BYTES) if column.type in FLOAT_BITS else rb"(-?+[0-9]++)"


def _text_pattern(options: CsvOptions) -> bytes:
    if options.quote:
        q = re.escape(options.quote.encode())
        return rb"%b((?:[^%b]++|%b%b)*+)%b" % (q, q, q, q, q)
    delimiter = options.delimiter.encode()
    first = re.escape(delimiter[:1])
    return rb"((?:[^\\\r\n%b]++|\\.|(?!%b)%b)*+)" % (first, re.escape(delimiter), first)


# The fields before the values ----------------------------------------------------------------------------------------


def _leads(parts: Sequence[Fields], options: CsvOptions) -> list[Line]:
    ops, tables, schemas = (_names(part, options) for part in parts[:3])
    rest = list(parts[3:])
    stamps = [int(field or b"") for field in rest.pop(0)] if options.include_commit_ts else [None] * len(ops)
    flags = [field == b"true" for field in rest.pop(0)] if options.output_old_value else [None] * len(ops)
    leads = [Line(*lead, ()) for lead in zip(ops, tables, schemas, stamps, flags, strict=True)]
    known = "ID" if options.output_old_value else "IUD"
    for number, lead in enumerate(leads, 1):
        if len(lead.op) != 1 or lead.op not in known:
            raise BadEvents(f"line {number} has the op {lead.op!r}, which these options do not write")
        if lead.commit_ts is not None and lead.commit_ts > _MOST_TS:
            raise BadEvents(f"line {number} has the commit-ts {lead.commit_ts}; the largest is {_MOST_TS}")
    return leads


def _names(fields: Fields, options: CsvOptions) -> list[str]:
    try:
        return list(_texts(fields, options).cast(pa.string()).to_pylist())
    except BadValue as exc:
        raise BadEvents(f"line {exc.position + 1}, in the names: {exc}") from exc
    except pa.ArrowInvalid as exc:
        raise BadEvents(f"an op, table or schema is not UTF-8 text: {exc}") from exc


def _check_pairs(leads: Sequence[Line]) -> None:
    """An update with its old row is two lines, `D` and then `I`, with the same table and commit-ts."""
    expected: Line | None = None
    for number, lead in enumerate(leads, 1):
        if expected is not None and lead != expected:
            raise BadEvents(f"line {number} is not the new row that belongs to the old one before it")
        if lead.is_update and expected is None and lead.op != "D":
            raise BadEvents(f"line {number} is the new row of an update, and its old row is not before it")
        opens = lead.is_update and lead.op == "D"
        expected = lead._replace(op="I") if opens else None
    if expected is not None:
        raise BadEvents("the last line is the old row of an update whose new row is missing")


# Values -------------------------------------------------------------------------------------------------------------


def _column(fields: Fields, i: int, columns: Sequence[Column], options: CsvOptions) -> Fields:
    column = columns[i]
    if None in fields and _may_be_a_value(options.null.encode(), column, _after(i, columns, options), options):
        line = fields.index(None) + 1
        raise BadEvents(f"line {line}: {options.null!r} in column {column.name!r} may be NULL or a value")
    try:
        return _values(fields, column, options)
    except BadValue as exc:
        raise BadEvents(f"line {exc.position + 1}, column {column.name!r}: {exc}") from exc


def _may_be_a_value(null: bytes, column: Column, after: bytes, options: CsvOptions) -> bool:
    """Whether the null text, or its beginning, could also be a value of the column."""
    if column.is_text and options.quote:
        return null.startswith(options.quote.encode())
    match = re.compile(_pattern(column, options) + re.escape(after), re.DOTALL).match(null + after)
    if match is None:
        return False
    try:
        _values([match[1]], column, options)
    except BadEvents:
        return False
    return True


def _values(fields: Fields, column: Column, options: CsvOptions) -> Fields:
    """The values as an event carries them. A field that encoding would write differently is refused."""
    if column.type in FLOAT_BITS:
        shown = pa.array(fields, pa.binary())
        _check_same(shown, float_texts(shown, FLOAT_BITS[column.type]), "is not the shortest form of its number")
        return fields
    if not column.is_text:
        return fields
    texts = _texts(fields, options)
    if column.is_bytes:
        return _raw(texts, column, options)
    found: Fields = (_NUMBERS[column.type](texts, column.elems) if column.type in _NUMBERS else texts).to_pylist()
    return found


def _texts(fields: Fields, options: CsvOptions) -> pa.Array:
    """The content of strings. A string that encoding would escape differently is refused."""
    texts = pa.array([None if field is None else _plain(field, options) for field in fields], pa.binary())
    if not options.quote:
        _check_same(pa.array(fields, pa.binary()), escaped(texts, options), "is not escaped as it should be")
    return texts


_NUMBERS: dict[str, Callable[[pa.Array, Sequence[str]], pa.Array]] = {"enum": enum_numbers, "set": set_numbers}
_RAW: dict[str, Callable[[bytes], bytes]] = {
    "base64": lambda text: base64.b64decode(text, validate=True),
    "hex": binascii.unhexlify,
}


def _raw(texts: pa.Array, column: Column, options: CsvOptions) -> Fields:
    raw: list[bytes | None] = []
    for text in texts.to_pylist():
        try:
            raw.append(None if text is None else _RAW[options.binary_encoding](text))
        except ValueError as exc:
            raise BadValue(f"{column.name!r} is not {options.binary_encoding} text: {exc}", len(raw)) from exc
    again = ENCODINGS[options.binary_encoding](pa.array(raw, pa.binary()))
    _check_same(texts, again, f"is not {options.binary_encoding} text as encoding writes it")
    return raw


def _check_same(found: pa.Array, wanted: pa.Array, complaint: str) -> None:
    if (position := pc.index(pc.equal(found, wanted), False).as_py()) >= 0:
        raise BadValue(f"{found[position].as_py()!r} {complaint}", position)


_UNESCAPES = {b"n": b"\n", b"r": b"\r"}


def _plain(text: bytes, options: CsvOptions) -> bytes:
    if options.quote:
        quote = options.quote.encode()
        return text.replace(quote * 2, quote)
    if b"\\" not in text:
        return text
    return re.sub(rb"\\(.)", lambda match: _UNESCAPES.get(match[1], match[1]), text, flags=re.DOTALL)
