"""Rows that cross between driver and executors: items (ingest to driver), plans (driver to land), receipts (back)."""

from __future__ import annotations

import pyarrow as pa

# Kinds of items besides layout, resolved and ddl. A stale one counts rows that were durable before, a filtered one rows
# that the filter leaves out.
ROWS, STALE, FILTERED, UNKNOWN_LAYOUT, ERROR = "rows", "stale", "filtered", "unknown-layout", "error"
# Outcomes of a receipt. `unfinished` may pass, `hung` got no answer, `refused` needs somebody to change something,
# `conflict` found another object under the file's name, `lost` found its part of the spool gone; `elsewhere` says that
# a schema file of the same columns stands under another version, or that files stand there that we know nothing of.
LANDED, UNFINISHED, HUNG, REFUSED, CONFLICT = "landed", "unfinished", "hung", "refused", "conflict"
LOST, ELSEWHERE = "lost", "elsewhere"

ITEMS = pa.schema(
    [
        ("kind", pa.string()),
        ("table_id", pa.int64()),
        ("span", pa.int32()),
        ("logical_table_id", pa.int64()),
        ("schema_id", pa.int64()),
        ("schema_name", pa.string()),
        ("table_name", pa.string()),
        ("version", pa.int64()),
        ("layout", pa.int64()),
        ("first_ts", pa.int64()),
        ("first_seq", pa.int64()),
        ("last_ts", pa.int64()),
        ("last_seq", pa.int64()),
        ("rows", pa.int64()),
        ("tier", pa.int32()),
        ("segment", pa.string()),
        ("offset", pa.int64()),
        ("length", pa.int64()),
        ("text", pa.string()),  # a layout's or DDL's JSON, or the sentence of an error
    ]
)

PLANS = pa.schema(
    [
        ("file", pa.int64()),
        ("lane", pa.int64()),
        ("schema_name", pa.string()),
        ("table_name", pa.string()),
        ("table_id", pa.int64()),
        ("logical_table_id", pa.int64()),
        ("dispatcher", pa.string()),
        ("version", pa.int64()),
        ("directory", pa.int64()),
        ("layout", pa.int64()),
        ("selected", pa.list_(pa.int32())),
        ("date", pa.string()),
        ("number", pa.int64()),
        ("schema", pa.int8()),
        ("bytes", pa.int64()),
        ("segments", pa.list_(pa.int32())),
        ("offsets", pa.list_(pa.int64())),
        ("lengths", pa.list_(pa.int64())),
    ]
)

RECEIPTS = pa.schema(
    [
        ("file", pa.int64()),
        ("outcome", pa.string()),
        ("path", pa.string()),
        ("bytes", pa.int64()),
        ("data_s", pa.float64()),
        ("index_s", pa.float64()),
        ("schema_check_s", pa.float64()),
        ("schema_write_s", pa.float64()),
        ("requests", pa.int64()),
        ("found_version", pa.int64()),
        ("found_number", pa.int64()),
        ("error", pa.string()),
    ]
)


_SPARK_TYPES = {
    pa.string(): "string",
    pa.int64(): "bigint",
    pa.int32(): "int",
    pa.float64(): "double",
    pa.bool_(): "boolean",
}


def spark_ddl(schema: pa.Schema) -> str:
    """The schema in Spark's words: `file bigint, outcome string, ...`."""
    return ", ".join(f"`{field.name}` {_SPARK_TYPES[field.type]}" for field in schema)
