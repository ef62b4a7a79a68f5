"""Dispatchers, columnar: one ordered stream of changes each, (table id, span)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tidegate.control.columns import Columns, Ints


class Dispatchers(Columns):
    _dtypes = {  # noqa: RUF012
        "table_id": np.int64, "span": np.int32, "logical_id": np.int64, "lane": np.int32, "version": np.int64,
        "accepted_ts": np.int64, "accepted_seq": np.int64, "durable_ts": np.int64, "durable_seq": np.int64,
        "head": np.int64, "tail": np.int64, "queued_bytes": np.int64, "oldest_at": np.float64, "spool_bytes": np.int64,
        "schema_id": np.int64, "in_flight": np.int32, "frozen_ts": np.int64, "landed_files": np.int32,
        "landed_bytes": np.int64, "used_at": np.float64, "on_wheel": np.bool_,
    }  # fmt: skip
    table_id: Ints
    span: Ints
    logical_id: Ints
    lane: Ints
    version: Ints
    accepted_ts: Ints
    accepted_seq: Ints
    durable_ts: Ints
    durable_seq: Ints
    head: Ints
    tail: Ints
    queued_bytes: Ints
    oldest_at: NDArray[np.float64]
    spool_bytes: Ints
    schema_id: Ints
    in_flight: Ints  # items planned and not yet durable
    frozen_ts: Ints  # nothing from here on may be planned: a DDL's marker stands there
    landed_files: Ints  # landed since the start of this run
    landed_bytes: Ints  # bytes of them
    used_at: NDArray[np.float64]  # when it last got a change
    on_wheel: NDArray[np.bool_]  # it will be looked at whether its state is still needed
