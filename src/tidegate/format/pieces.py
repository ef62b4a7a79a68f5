"""Shared by the text encoders: a batch is written as numbered *pieces* of text, joined by one Arrow `take`.

All pieces of a batch (values, and the separators between them) go into one pool. NumPy computes a matrix of piece
numbers with one row per line. `gather` then writes the text of the whole batch at once. Order, NULL and the choice
between old and new row are only numbers in that matrix, so there is no Python step per row or value.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import BadEvents
from tidegate.format.bad_values import BadRows, BadValue

Numbers = npt.NDArray[np.int64]
Pieces = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]
States = Numbers | int

ABSENT, NULL, TEXT = range(3)  # the states of a member of a JSON object: not written, null, or a string
EMPTY = 0  # the number of the empty piece; such a pool begins with it

_SCAN_BYTES = 1 << 18  # small enough that the temporary array of a scan stays in the processor's cache
_MOST_BYTES = 2**31 - 1


class Pool:
    """All pieces that occur in a batch, numbered in the order they were added."""

    def __init__(self) -> None:
        self.parts: list[pa.Array] = []
        self.size = 0

    def add(self, pieces: pa.Array) -> int:
        """Add pieces; returns the number of the first one."""
        start = self.size
        self.parts.append(pieces)
        self.size += len(pieces)
        return start

    @property
    def last(self) -> pa.Array:
        """The pieces that were added last."""
        return self.parts[-1]

    def array(self) -> pa.Array:
        return self.parts[0] if len(self.parts) == 1 else pa.concat_arrays(self.parts)


def codes(rows: pa.RecordBatch, name: str) -> tuple[npt.NDArray[np.int32], pa.Array]:
    """A number for each row's value in a text column, and the distinct values by number."""
    column = rows.column(name)
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py()
        raise BadEvents(f"the event at {at(rows, row)} has no {name}; every row change needs one")
    encoded = column.dictionary_encode()
    return encoded.indices.to_numpy(), encoded.dictionary


def at(rows: pa.RecordBatch, row: int) -> str:
    schema, table, ts = (rows.column(name)[row].as_py() for name in ("schema_name", "table_name", "commit_ts"))
    return f"{schema}.{table}, commit-ts {ts}"


def refused(rows: pa.RecordBatch, row: Numbers, column: str, wrong: BadValue) -> BadRows:
    """The rows with these wrong values; `row` has the number of the row of each position."""
    numbers, reason = row[list(wrong.positions)], f"column {column!r}: {wrong}"
    return BadRows(f"{at(rows, numbers[0])}, {reason}", reason, np.unique(numbers).tolist())


def value_starts(rows: pa.RecordBatch, side: str, row: Numbers, wanted: Numbers | int, pool: Pool) -> Numbers:
    """The piece number of the first of the `wanted` values of each of these rows; `side` is `after` or `before`."""
    lists = rows.column(side)
    offsets = lists.offsets.to_numpy().astype(np.int64)  # the offsets of a slice count from the start of its parent
    _check_counts(rows, side, row, np.diff(offsets)[row], wanted)
    part = lists.values.slice(offsets[0], offsets[-1] - offsets[0])
    first: Numbers = offsets[row] + (pool.add(part.cast(pa.binary())) - offsets[0])
    return first


def _check_counts(rows: pa.RecordBatch, side: str, row: Numbers, found: Numbers, wanted: Numbers | int) -> None:
    lists = rows.column(side)
    absent = lists.is_null().to_numpy(zero_copy_only=False)[row] if lists.null_count else np.False_
    bad = (found != wanted) | absent
    if not bad.any():
        return
    first = int(np.argmax(bad))
    count = "no" if np.broadcast_to(absent, bad.shape)[first] else str(found[first])
    kind = rows.column("kind")[row[first]].as_py()
    raise BadRows(
        f"{at(rows, row[first])}: the {kind} has {count} values in `{side}` but its layout has {wanted}; "
        "the source must send the layout that fits its rows",
        f"`{side}` does not have the {wanted} values of its layout",
        row[bad].tolist(),
    )


def gather(pieces: Pieces, first: Numbers, pool: Pool) -> pa.Array:
    """The lines with these pieces, a row of the matrix for each; entry i has the lines `first[i]` to `first[i + 1]`."""
    return gather_flat(pieces.reshape(-1), first * pieces.shape[1], pool)


def gather_flat(pieces: Pieces, first: Numbers, pool: Pool) -> pa.Array:
    """Texts with these pieces, one after the other; entry i has the pieces `first[i]` to `first[i + 1]`."""
    try:
        text = pc.take(pool.array(), pa.array(pieces))
    except pa.ArrowInvalid as exc:
        raise BadEvents(f"the lines of one batch exceed 2 GiB; hand over smaller batches: {exc}") from exc
    _, offsets, data = text.buffers()
    starts = np.frombuffer(offsets, np.int32)[first]
    return pa.Array.from_buffers(pa.binary(), len(first) - 1, [None, pa.py_buffer(starts), data])


def gather_blocks(blocks: list[tuple[Flags, list[Numbers | int]]], pool: Pool) -> pa.Array:
    """All lines in order. Each block says which lines it holds, and gives the piece numbers for each place in them.

    A line with fewer pieces than the longest one is filled up with empty pieces.
    """
    width = max(len(places) for _, places in blocks)
    matrices = [
        _matrix(int(np.count_nonzero(lines)), [*places, *[EMPTY] * (width - len(places))]) for lines, places in blocks
    ]
    pieces = matrices[0]
    if len(blocks) > 1:
        pieces = np.empty((len(blocks[0][0]), width), np.int32)
        for (lines, _), matrix in zip(blocks, matrices, strict=True):
            pieces[np.flatnonzero(lines)] = matrix
    return gather(pieces, np.arange(len(pieces) + 1), pool)


def _matrix(count: int, places: list[Numbers | int]) -> Pieces:
    pieces = np.empty((count, len(places)), np.int32)
    for i, numbers in enumerate(places):
        pieces[:, i] = numbers
    return pieces


def texts(*texts: str) -> pa.Array:
    return pa.array([text.encode() for text in texts], pa.binary())


def bytes_of(values: pa.Array) -> tuple[Numbers, npt.NDArray[np.uint8]]:
    """Where each value starts and ends, counted from the first byte of the first value, and the bytes of all values."""
    _, offsets, data = values.buffers()
    ends = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    held = np.frombuffer(data if data is not None else b"", np.uint8)[ends[0] : ends[-1]]
    return ends - ends[0], held


def holds(values: pa.Array, special: bytes) -> bool:
    """Whether any of these bytes occurs in the values."""
    _, held = bytes_of(values)
    blocks = (held[i : i + _SCAN_BYTES] for i in range(0, len(held), _SCAN_BYTES))
    return any((block == byte).any() for block in blocks for byte in special)


def count(values: pa.Array, special: bytes) -> int:
    """How often these bytes occur in the values."""
    _, offsets, data = values.buffers()
    ends = np.frombuffer(offsets, np.int32)
    held = np.frombuffer(data or b"", np.uint8)[ends[values.offset] : ends[values.offset + len(values)]]
    blocks = (held[i : i + _SCAN_BYTES] for i in range(0, len(held), _SCAN_BYTES))
    return int(sum(np.count_nonzero(block == byte) for block in blocks for byte in special))


def with_text(values: pa.Array, ends: Numbers, text: bytes | npt.NDArray[np.uint8]) -> pa.Array:
    if ends[-1] > _MOST_BYTES:
        raise BadEvents("the binary values of one batch exceed 2 GiB as text; hand over smaller batches")
    valid = values.is_valid().buffers()[1] if values.null_count else None
    return pa.Array.from_buffers(
        pa.binary(), len(values), [valid, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(text)]
    )


# Text inside JSON strings, as TiCDC's JSON writer escapes it: short forms for five bytes, `\u00xx` for the others.

_ESCAPES = {b"\\": b"\\\\"}  # must come first, because the other escapes add backslashes
_ESCAPES |= {bytes([byte]): b"\\u%04x" % byte for byte in (*range(0x20), *b"<>&")}
_ESCAPES |= {b"\t": b"\\t", b"\r": b"\\r", b"\n": b"\\n", b'"': b'\\"'}
_VISIBLE = [special for special in _ESCAPES if special >= b" "]
_MORE_BYTES = bytes(len(_ESCAPES.get(bytes([byte]), b".")) - 1 for byte in range(256))
_TO_ESCAPE = bytes(bytes([byte]) in _ESCAPES or byte >= 0x80 for byte in range(256))
_LINE_SEPARATORS = {"\u2028".encode(): b"\\u2028", "\u2029".encode(): b"\\u2029"}


def needs_escape(values: pa.Array) -> Flags | None:
    """Which values hold a byte that JSON must escape; None if no value does, which is a much faster check."""
    ends, held = bytes_of(values)
    if all(_is_plain(held[i : i + _SCAN_BYTES]) for i in range(0, len(held), _SCAN_BYTES)):
        return None
    return _per_value(np.bitwise_or, held.tobytes().translate(_TO_ESCAPE), ends, np.uint8).astype(np.bool_)


def _per_value(reduce: np.ufunc, numbers: bytes, ends: Numbers, kind: type[np.integer[Any]]) -> npt.NDArray[Any]:
    """`reduce` over the numbers of each value's bytes, one result per value; 0 for an empty value."""
    found = np.zeros(len(ends) - 1, kind)
    filled = ends[:-1] < ends[1:]
    if filled.any():
        found[filled] = reduce.reduceat(np.frombuffer(numbers, np.uint8), ends[:-1][filled], dtype=kind)
    return found


def _is_plain(block: npt.NDArray[np.uint8]) -> bool:
    if block.min() < 0x20 or block.max() >= 0x80:
        return False
    text = block.tobytes()
    return not any(special in text for special in _VISIBLE)


def escaped_text(values: pa.Array) -> pa.Array:
    """UTF-8 text as it is written in a JSON string; a byte that is not valid UTF-8 becomes `\\ufffd`."""
    written = _escaped_ascii(values)
    _, held = bytes_of(written)
    if not len(held) or held.max() < 0x80:
        return written
    text = held.tobytes()
    for separator, shown in _LINE_SEPARATORS.items():
        if separator in text:
            written = pc.replace_substring(written, separator, shown)
    try:
        written.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_without_bad_bytes(value) for value in written.to_pylist()], pa.binary())
    return written


def escaped_bytes(values: pa.Array) -> pa.Array:
    """Raw bytes as they are written in a JSON string: each byte becomes the code point of the same value."""
    ends, held = bytes_of(values)
    high = _per_value(np.add, (held >= 0x80).tobytes(), ends, np.int64)
    text = held.tobytes().decode("latin-1").encode()
    return _escaped_ascii(with_text(values, _wider(ends, high), text))


def _escaped_ascii(values: pa.Array) -> pa.Array:
    ends, held = bytes_of(values)
    plain = text = held.tobytes()
    for byte, shown in _ESCAPES.items():
        text = text.replace(byte, shown)
    if text is plain:
        return values
    more = _per_value(np.add, plain.translate(_MORE_BYTES), ends, np.int64)
    return with_text(values, _wider(ends, more), text)


def _wider(ends: Numbers, more: Numbers) -> Numbers:
    """The ends of the values after each value has grown by `more` bytes."""
    moved = ends.copy()
    moved[1:] += np.cumsum(more)
    return moved


def _without_bad_bytes(text: bytes | None) -> bytes | None:
    if text is None:
        return None
    shown = text.decode("utf-8", "surrogateescape")
    return "".join("\\ufffd" if "\ud800" <= char <= "\udfff" else char for char in shown).encode()


class JsonLine:
    """Builds all lines of one kind from left to right. Each place holds one piece for all lines, or one per line."""

    def __init__(self) -> None:
        self.texts: list[bytes] = []
        self.places: list[tuple[Numbers | int, bool]] = []  # numbers of pieces; True if they count in `texts`
        self.text = b""  # text that will be written in front of the next piece
        self.last: States = ABSENT  # state of the last member; after TEXT its closing quote is still missing
        self.opened = False  # whether another object was opened since the last member

    def say(self, text: bytes) -> None:
        self.text += text

    def open(self, text: bytes) -> None:
        """Add the text that ends the previous object, if there is one, and begins the next."""
        self.say(text)
        self.opened = True

    def put(self, numbers: Numbers) -> None:
        if self.text:
            self.choose([b""], 0)
        self.places.append((numbers, False))

    def choose(self, texts: list[bytes], which: Numbers | int) -> None:
        self.places.append((which + len(self.texts), True))
        self.texts += [self.text + text for text in texts]
        self.text = b""

    def member(self, key: bytes, pieces: Numbers, state: States) -> None:
        """Add `"id":"7"` without its last quote, `"id":null`, or nothing, with the separators in front of it."""
        if isinstance(state, int) and state == ABSENT:
            return
        said, self.text = self.text, b""
        comma = b"" if self.opened else b","
        self.opened = False
        if isinstance(state, int) and isinstance(self.last, int):
            self.say(_before_value(said, comma, key, self.last, state))
        else:
            texts = [_before_value(said, comma, key, last, now) for last in range(3) for now in range(3)]
            self.choose(texts, 3 * self.last + state)
        if isinstance(state, int):
            if state == TEXT:
                self.put(pieces)
            self.last = state
        else:
            self.put(np.where(state == TEXT, pieces, EMPTY))
            self.last = np.where(state == ABSENT, self.last, state)

    def close(self, text: bytes) -> None:
        self.choose([_closing(last) + text for last in range(3)], self.last)

    def numbers(self, pool: Pool) -> list[Numbers | int]:
        start = pool.add(pa.array(self.texts, pa.binary()))
        return [number + start if is_text else number for number, is_text in self.places]


def _closing(last: int) -> bytes:
    return b'"' if last == TEXT else b""


def _before_value(said: bytes, comma: bytes, key: bytes, last: int, now: int) -> bytes:
    """The text between two values: `","id":"` after a string."""
    if now == ABSENT:
        return said
    comma = comma if last != ABSENT else b""
    return _closing(last) + said + comma + key + (b"null" if now == NULL else b'"')
