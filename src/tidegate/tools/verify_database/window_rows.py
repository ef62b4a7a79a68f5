"""Changes of the log as rows that are put or removed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidegate.tools.verify_database.rows import PUT, REMOVED, Changes, Ints, Shape, changes
from tidegate.tools.verify_database.values import in_one_form
from tidegate.tools.verify_database.window import TableChanges

_INSERT, _DELETE = 0, 2


def window_rows(found: TableChanges, shape: Shape, seen: bool) -> Changes:
    """Those that the consistent read has seen, or those that it has not. An update removes a row and puts one."""
    at = np.flatnonzero(found.seen == seen)
    kind = found.kind[at]
    removed, put = at[kind != _INSERT], at[kind != _DELETE]
    rows = np.concatenate([removed, put])
    side = np.concatenate([np.zeros(len(removed), np.int64), np.ones(len(put), np.int64)])
    order = np.lexsort((side, rows))
    lists = pa.concat_arrays([found.before.take(pa.array(removed)), found.after.take(pa.array(put))])
    op = np.where(side == 0, REMOVED, PUT).astype(np.int8)[order]
    return changes(op, _columns(lists, order, shape), shape.key)


def _columns(lists: pa.ListArray, order: Ints, shape: Shape) -> list[pa.Array]:
    """Each list has a value for every column."""
    width, values = len(shape.names), lists.flatten()
    return [
        in_one_form(values.take(pa.array(order * width + i)), kind, bool(shape.key))
        for i, kind in enumerate(shape.kinds)
    ]
