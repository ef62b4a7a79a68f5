"""The columns that DDLs add to a workload's tables, after those that a table begins with.

A *shape* is a number whose digits, from 1, are the types of the added columns (`ddl_play`).
"""

from __future__ import annotations

from functools import cache

from tidegate.format.tables import Column, Layout
from tidegate.sources.workload.ddl_play import COLUMN_TYPES
from tidegate.sources.workload.sysbench import LAYOUT

# Values of added columns are numbers below 10^9, because they have the same text in all of these types.
_ADDED = (("int", None, "INT"), ("bigint", None, "BIGINT"), ("varchar", 64, "VARCHAR(64)"))


def shape_columns(shape: int) -> list[Column]:
    """`x1`, `x2`, ..."""
    return [
        Column(f"x{number}", _ADDED[place][0], flen=_ADDED[place][1]) for number, place in enumerate(_types(shape), 1)
    ]


def last_sql_type(shape: int) -> str:
    """The type of the last added column in a DDL: `VARCHAR(64)`."""
    return _ADDED[_types(shape)[-1]][2]


@cache
def shape_layout(shape: int) -> Layout:
    """The columns of sysbench, then the added ones."""
    return Layout((*LAYOUT.columns, *shape_columns(shape)))


def _types(shape: int) -> list[int]:
    return [*_types(shape // (COLUMN_TYPES + 1)), shape % (COLUMN_TYPES + 1) - 1] if shape else []
