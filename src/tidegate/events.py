"""The events DataFrame: what any source hands to Tidegate, one row per change event.

`after` and `before` hold every value as text, in column order; NULL is a null entry. An insert has `after`, a delete
has `before`, an update has both. A `layout` row has the JSON of a column layout in `ddl`, a `resolved` row has only its
`commit_ts`. A timestamp (TSO) is `milliseconds << 18 | logical`.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa

INSERT, UPDATE, DELETE = "insert", "update", "delete"
DDL, RESOLVED, LAYOUT = "ddl", "resolved", "layout"
TABLE_IDS = 1 << 50  # a table id is below this, so that it fits one 64-bit key together with a span
LAST_TS = (1 << 63) - 1  # stands for "never", so no change may have it
MOST_HELD = 64  # tables that a source is asked to hold back at one time, at most: its offsets name them
ROW_KINDS = (INSERT, UPDATE, DELETE)
KINDS = (*ROW_KINDS, DDL, RESOLVED, LAYOUT)

EVENTS = pa.schema(
    [
        pa.field("kind", pa.string(), nullable=False),
        pa.field("schema_name", pa.string()),
        pa.field("table_name", pa.string()),
        pa.field("table_id", pa.int64()),
        pa.field("logical_table_id", pa.int64()),
        pa.field("schema_id", pa.int64()),
        pa.field("table_version", pa.int64()),
        pa.field("start_ts", pa.int64()),
        pa.field("commit_ts", pa.int64(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("layout", pa.int64()),
        pa.field("after", pa.list_(pa.binary())),
        pa.field("before", pa.list_(pa.binary())),
        pa.field("ddl", pa.string()),
    ]
)

# The same schema in Spark's syntax, for DataFrames of other sources.
EVENTS_DDL = (
    "kind string, schema_name string, table_name string, table_id bigint, logical_table_id bigint, schema_id bigint, "
    "table_version bigint, start_ts bigint, commit_ts bigint, seq bigint, layout bigint, "
    "after array<binary>, before array<binary>, ddl string"
)

_LOGICAL_BITS = 18


def tso(milliseconds: int, logical: int = 0) -> int:
    """`tso(1767225600000)` is 463267587686400000, the timestamp of 2026-01-01 00:00:00 UTC."""
    return milliseconds << _LOGICAL_BITS | logical


def physical_ms(ts: int) -> int:
    """The wall-clock part of a timestamp: the inverse of `tso`, without the logical part."""
    return ts >> _LOGICAL_BITS


def shown_time(ts: int) -> str:
    """`463267587686400000 (2026-01-01 00:00:00 UTC)`; the number alone if it is no time that a calendar has."""
    try:
        return f"{ts} ({physical_time(ts):%Y-%m-%d %H:%M:%S} UTC)" if ts else "0"
    except (OverflowError, ValueError, OSError):
        return str(ts)


def physical_time(ts: int) -> datetime:
    return datetime.fromtimestamp(physical_ms(ts) / 1000, UTC)
