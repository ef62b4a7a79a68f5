"""Dispatchers, columnar: one ordered stream of changes each, (table id, span)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tidegate.control.columns import Columns, Ints


class Dispatchers(Columns):
    _dtypes = {  # noqa: RUF012
        "table_id": np.int64, "span": np.int32, "logical_id": np.int64, "lane": np.int32, "version": np.int64,
        "accepted_ts": np.int64, "accepted_seq": np.int64, "durable_ts": np.int64, "durable_seq": np.int64,
        "head": np.int64, "tail": np.int64, "bytes": np.int64, "oldest": np.float64, "unacked": np.int64,
        "schema_id": np.int64, "flying": np.int32, "frozen_ts": np.int64, "files": np.int32, "landed": np.int64,
        "used": np.float64, "wheeled": np.bool_,
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
    bytes: Ints
    oldest: NDArray[np.float64]
    unacked: Ints
    schema_id: Ints
    flying: Ints  # items planned and not yet durable
    frozen_ts: Ints  # nothing from here on may be planned: a DDL's marker stands there
    files: Ints  # landed since the start of this run
    landed: Ints  # bytes of them
    used: NDArray[np.float64]  # when it last got a change
    wheeled: NDArray[np.bool_]  # it will be looked at whether its state is still needed
