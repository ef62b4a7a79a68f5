"""Whole numbers go into a line as they came: CSV writes them without quotes. So their form is checked before.

A text with a delimiter or a line break in an integer column would otherwise become another field or another row for
whoever reads the file. Texts of other types cannot do that: they are quoted, escaped, or written anew from their
numbers. Only the form is checked, not the range of the type, because a number that is too large breaks no line.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.format.bad_values import BadValue, mismatches
from tidegate.format.pieces import Numbers, bytes_of, refused
from tidegate.format.tables import Column

WHOLE = frozenset(("tinyint", "smallint", "mediumint", "int", "bigint", "bit", "year"))
NUMBERED = WHOLE | {"enum", "set"}  # canal-json writes these as numbers, too


def check_columns(
    rows: pa.RecordBatch, row: Numbers, values: pa.Array, start: Numbers, columns: Mapping[int, Column]
) -> None:
    """Refuse lines that have another text than a whole number in one of these columns.

    Line i shows row `row[i]`, and its value of the column at position p is `values[start[i] + p]`. All columns are
    checked together by their bytes: each is a digit, or the minus at the beginning of a longer text.
    """
    if not columns:
        return
    at = np.empty((len(start), len(columns)), np.int32)
    for i, position in enumerate(columns):
        at[:, i] = start + position
    taken = pc.take(values, pa.array(at.reshape(-1)), boundscheck=False)
    if not are_whole(taken):
        _refuse(rows, row, taken, columns)


def are_whole(texts: pa.Array) -> bool:
    """Whether all these texts, but for NULL, are whole numbers."""
    ends, held = bytes_of(texts)
    others = int(np.count_nonzero(held - np.uint8(ord("0")) > 9))
    if others:
        first = ends[:-1][np.diff(ends) > 1]
        others -= int(np.count_nonzero(held[first] == ord("-")))
    return not others and int(np.count_nonzero(ends[1:] == ends[:-1])) <= texts.null_count


def _refuse(rows: pa.RecordBatch, row: Numbers, taken: pa.Array, columns: Mapping[int, Column]) -> None:
    """The values of a line are next to each other in `taken`. This is slow, and only called if one is wrong."""
    for i, column in enumerate(columns.values()):
        if wrong := mismatches(taken.take(pa.array(np.arange(i, len(taken), len(columns)))), "-?[0-9]+"):
            raise refused(rows, row, column.name, BadValue("the value is not a whole number", *wrong))
