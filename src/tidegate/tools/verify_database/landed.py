"""The rows of a table on the sink, up to a commit-ts, as changes: read from its data files, piece by piece.

Memory holds one piece of a file. Pieces end where a line ends, which is found without decoding: within a line of CSV an
end of line stands only between quotes, and canal-json escapes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tidegate.errors import BadEvents, VerifyError
from tidegate.events import DELETE, UPDATE
from tidegate.format.decode import canal_json, csv
from tidegate.format.encode.canal_json import CanalOptions
from tidegate.format.encode.csv import CsvOptions, header
from tidegate.format.layout import PathOptions, data_path
from tidegate.format.tables import Layout
from tidegate.reader.replay import Lane, read_piece
from tidegate.storage.store import Store
from tidegate.tools.verify_database.rows import PUT, REMOVED, Changes, Shape, changes
from tidegate.tools.verify_database.values import in_one_form

PIECE_BYTES = 4 << 20
Values = tuple[bytes | None, ...]


class NotComparable(Exception):
    """A table cannot be compared, although nothing is wrong; the text says why and what would help."""


class Decoded(NamedTuple):
    """One line as changes: `op` for each, their values, the commit-ts."""

    op: list[int]
    values: list[Values]
    ts: list[int]


@dataclass(frozen=True)
class Files:
    """How the data files of one version are read."""

    store: Store
    paths: PathOptions
    encoding: CsvOptions | CanalOptions
    layout: Layout
    selected: tuple[int, ...] | None = None
    era: int = 0
    piece_bytes: int = PIECE_BYTES

    def changes(self, lane: Lane, last: int, until_ts: int, shape: Shape) -> Iterator[Changes]:
        """The rows of the files 1 to `last` of a directory, up to this commit-ts."""
        for number in range(1, last + 1):
            path = data_path(lane.key, number, self.paths)
            for piece in self._pieces(path, lane.sizes[number - 1]):
                try:
                    decoded = self._decode(piece, bool(shape.key))
                except BadEvents as exc:
                    raise VerifyError(f"{path}: {exc}") from exc
                yield self._turned(decoded, until_ts, shape)

    # Pieces.

    def _pieces(self, path: str, size: int) -> Iterator[bytes]:
        start = self._header()
        at, rest = len(start), b""
        if size < len(start) or (start and read_piece(self.store, path, 0, len(start)) != start):
            raise VerifyError(f"{path} does not begin with its header")
        while at < size:
            length = min(self.piece_bytes, size - at)
            rest += read_piece(self.store, path, at, length)
            at += length
            cut = len(rest) if at == size else self._cut(rest)
            if cut:
                yield start + rest[:cut]
                rest = rest[cut:]

    def _header(self) -> bytes:
        return header(self.layout, self.encoding, self.selected) if isinstance(self.encoding, CsvOptions) else b""

    def _cut(self, text: bytes) -> int:
        """Where the last whole line ends; 0 if there is none. Both lines of an update stay together."""
        end = _last_line_end(text, self.encoding)
        if not end or not isinstance(self.encoding, CsvOptions) or not self.encoding.output_old_value:
            return end
        last = _last_line_end(text[: end - 1], self.encoding)
        before = _last_line_end(text[: last - 1], self.encoding) if last else 0
        # The last line is whole by itself, or the second of two, or the first of two, whose second is not here yet.
        return end if self._is_whole(text[last:end]) or self._is_whole(text[before:end]) else last

    def _is_whole(self, lines: bytes) -> bool:
        try:
            self._decode(self._header() + lines, has_key=True)
        except BadEvents:
            return False
        return True

    # Lines.

    def _decode(self, piece: bytes, has_key: bool) -> Decoded:
        if isinstance(self.encoding, CsvOptions):
            return _from_csv(csv.decode(piece, self.layout, self.encoding, self.selected), has_key)
        return _from_canal(
            canal_json.decode(piece, self.layout, self.encoding, self.selected), self.layout, self.selected
        )

    def _turned(self, decoded: Decoded, until_ts: int, shape: Shape) -> Changes:
        op, ts = np.array(decoded.op, np.int8), np.array(decoded.ts, np.int64)
        count = int(np.searchsorted(ts, until_ts, side="right"))  # a table's rows come by commit-ts
        shown = [column.name for column in self.layout.shown(self.selected)]
        by_name = dict(zip(shown, zip(*decoded.values[:count], strict=True), strict=True)) if count else {}
        columns = [
            in_one_form(pa.array(by_name.get(name, (None,) * count), pa.binary()), kind, bool(shape.key))
            for name, kind in zip(shape.names, shape.kinds, strict=True)
        ]
        return changes(op[:count], columns, shape.key, self.era, ts[:count])


def _last_line_end(text: bytes, encoding: CsvOptions | CanalOptions) -> int:
    terminator = encoding.terminator.encode()
    quote = encoding.quote.encode() if isinstance(encoding, CsvOptions) else b""
    if not quote:
        at = text.rfind(terminator)
        return at + len(terminator) if at >= 0 else 0
    # Quotes stand around a text or are doubled in it, so an even number of them is before the end of a line.
    inside = np.bitwise_and(np.cumsum(np.frombuffer(text, np.uint8) == quote[0]), 1)
    at = text.rfind(terminator)
    while at > 0 and inside[at - 1]:
        at = text.rfind(terminator, 0, at)
    return at + len(terminator) if at > 0 else 0


def _from_csv(lines: Sequence[csv.Line], has_key: bool) -> Decoded:
    if not has_key and any(line.op == "U" for line in lines):
        raise NotComparable("it has no key, and its updates have no old rows; set csv.output-old-value = true")
    ops = [REMOVED if line.op == "D" else PUT for line in lines]
    return Decoded(ops, [line.values for line in lines], [line.commit_ts or 0 for line in lines])


def _from_canal(found: Sequence[canal_json.Change], layout: Layout, selected: tuple[int, ...] | None) -> Decoded:
    decoded = Decoded([], [], [])
    for change in found:
        if change.kind in (UPDATE, DELETE):
            _add(decoded, REMOVED, _known(change.before), change)
        if change.kind != DELETE:
            _add(decoded, PUT, _known(change.after), change)
    return decoded


def _add(decoded: Decoded, op: int, values: Values, change: canal_json.Change) -> None:
    decoded.op.append(op)
    decoded.values.append(values)
    decoded.ts.append(change.commit_ts or 0)


def _known(values: canal_json.Values | None) -> Values:
    """A delete may show its key alone; the other values do not count then."""
    return tuple(None if isinstance(value, canal_json.Absent) else value for value in values or ())
