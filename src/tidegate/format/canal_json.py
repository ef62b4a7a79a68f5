"""canal-json as TiCDC writes it into files: one JSON object per row change; decode is the exact inverse."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tidegate.format.pieces import Numbers
from tidegate.format.tables import Layout


@dataclass(frozen=True)
class CanalOptions:
    """`content_compatible` implies `only_updated_columns`; `row_key` needs `tidb_extension`."""

    terminator: str = "\r\n"
    tidb_extension: bool = False
    only_updated_columns: bool = False
    content_compatible: bool = False
    delete_only_handle_key: bool = False


def encode(
    rows: pa.RecordBatch,
    order: Numbers,
    layout: Layout,
    options: CanalOptions,
    selected: tuple[int, ...] | None = None,
    now_ms: int = 0,
) -> pa.Array:
    raise NotImplementedError
