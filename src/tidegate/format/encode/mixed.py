"""Encoding rows of many layouts together: what CSV and canal-json have in common.

A batch with as many layouts as tables has few rows of each, so nothing may cost a step per layout. All values of all
lines are one flat array. Values of one definition need the same work, whatever table they are from, so each kind of
work is done once, for all its values. Then the pieces of all lines are put together by one Arrow `take`.

What these encoders refuse is only found here, not described: `protocol` then looks for the layout that is to blame, and
encodes it alone, which says which rows are wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import BadEvents
from tidegate.format.encode.elements import unsigned_numbers
from tidegate.format.encode.floats import FLOAT_BITS
from tidegate.format.encode.whole_numbers import are_whole
from tidegate.format.layout_columns import LayoutColumns
from tidegate.format.pieces import Flags, Numbers, Pool, gather_flat
from tidegate.format.tables import Column

Test = Callable[[Column], bool]


class Cells(NamedTuple):
    """The places for values of all lines, one after the other; line i has those from `first[i]` to `first[i + 1]`."""

    layouts: LayoutColumns
    first: Numbers
    line: Numbers
    place: Numbers  # its position in its line
    column: Numbers  # its number in the arrays of `layouts`
    position: Numbers  # of its value in the row

    @property
    def definition(self) -> npt.NDArray[np.int32]:
        return self.layouts.definition[self.column]

    def having(self, test: Test) -> Numbers:
        """The cells of columns like this."""
        return np.flatnonzero(self.flags(test))

    def of_type(self, *names: str) -> Numbers:
        return self.having(lambda column: column.type in names)

    def flags(self, test: Test) -> Flags:
        flags: Flags = np.array([test(column) for column in self.layouts.definitions], np.bool_)[self.definition]
        return flags


def cells_of(entry: Numbers, layouts: LayoutColumns) -> Cells:
    """The cells of lines with these entries. An entry of which nothing is written is refused."""
    shown = np.flatnonzero(layouts.shown)
    bounds = np.searchsorted(shown, layouts.first)
    counts = np.diff(bounds)[entry]
    if not counts.all():
        raise BadEvents("a line without columns cannot be written")
    first = np.append(0, np.cumsum(counts))
    line = np.repeat(np.arange(len(entry)), counts)
    place = np.arange(first[-1]) - first[line]
    column = shown[bounds[entry][line] + place]
    return Cells(layouts, first, line, place, column, column - layouts.first[entry][line])


def taken(raw: pa.Array, numbers: Numbers) -> pa.Array:
    return pc.take(raw, pa.array(numbers), boundscheck=False)


def check_whole(raw: pa.Array, numbers: Numbers) -> None:
    """Refuse values that are no whole numbers."""
    if not are_whole(taken(raw, numbers)):
        raise BadEvents("a value is not a whole number")


def put_floats(
    piece: Numbers, cells: Cells, raw: pa.Array, pool: Pool, written: Callable[[pa.Array, int], pa.Array]
) -> None:
    """Replace the piece numbers of floats by those of the texts that `written` makes of them."""
    for name, bits in FLOAT_BITS.items():
        put_texts(piece, cells.of_type(name), partial(_of_width, written, bits), raw, pool)


def _of_width(written: Callable[[pa.Array, int], pa.Array], bits: int, texts: pa.Array) -> pa.Array:
    return written(texts, bits)


def put_texts(piece: Numbers, at: Numbers, written: Callable[[pa.Array], pa.Array], raw: pa.Array, pool: Pool) -> None:
    """Replace the piece numbers of these cells by those of the texts that `written` makes of them."""
    if len(at):
        texts = written(taken(raw, piece[at]))
        piece[at] = pool.add(texts) + np.arange(len(texts))


class Elements(NamedTuple):
    """The elements of all enums or sets among the definitions, one after the other."""

    first: Numbers  # by definition
    size: Numbers  # by definition, how many
    texts: pa.Array

    @staticmethod
    def of(definitions: tuple[Column, ...], kind: str) -> Elements:
        elems = [column.elems if column.type == kind else () for column in definitions]
        count = np.array([len(each) for each in elems], np.int64)
        texts = [elem.encode("utf-8", "surrogateescape") for each in elems for elem in each]
        return Elements(np.cumsum(count) - count, count, pa.array(texts, pa.binary()))


def enum_places(values: pa.Array, definition: npt.NDArray[np.int32], elements: Elements) -> Numbers:
    """Where the elements with these numbers are among all elements; any place for NULL."""
    number, valid = unsigned_numbers(values)
    count = elements.size[definition].astype(np.uint64)
    if (valid & (number - np.uint64(1) >= count)).any():  # unsigned: 0 - 1 is the largest number
        raise BadEvents("a value is not the number of an element")
    place: Numbers = elements.first[definition] + np.where(valid, number, 1).astype(np.int64) - 1
    return place


def set_texts(values: pa.Array, definition: npt.NDArray[np.int32], elements: Elements) -> pa.Array:
    """`a,c` for 5."""
    mask, valid = unsigned_numbers(values)
    count = elements.size[definition]
    beyond = np.where(count < 64, mask >> np.minimum(count, 63).astype(np.uint64), 0)
    if (valid & (beyond != 0)).any():
        raise BadEvents("a mask has a bit beyond the elements")
    bits = (mask[:, None] >> np.arange(int(count.max(initial=0)), dtype=np.uint64) & np.uint64(1)).astype(np.bool_)
    value, bit = np.nonzero(bits)
    pool = Pool()
    pieces = np.empty((len(value), 2), np.int32)
    pieces[:, 1] = pool.add(elements.texts) + elements.first[definition[value]] + bit
    begins = np.append(True, value[1:] != value[:-1])[: len(value)]
    pieces[:, 0] = pool.add(pa.array([b",", b""])) + begins
    first = 2 * np.searchsorted(value, np.arange(len(mask) + 1))
    return gather_flat(pieces.reshape(-1), first, pool)
