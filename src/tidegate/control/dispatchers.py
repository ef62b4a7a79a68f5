"""Dispatchers as columns: a dispatcher is one ordered stream of changes, (table id, span).

A row takes about 170 bytes and no Python object, so that a million idle tables fit into the driver.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tidegate.control.columns import Columns, Ints


class Dispatchers(Columns):
    """A row for each dispatcher. `head` and `tail` are slots of its queue, END when it is empty."""

    _dtypes = {  # noqa: RUF012
        "table_id": np.int64, "span": np.int32, "logical_id": np.int64, "lane": np.int32, "version": np.int64,
        "accepted_ts": np.int64, "accepted_seq": np.int64, "durable_ts": np.int64, "durable_seq": np.int64,
        "head": np.int64, "tail": np.int64, "queued_bytes": np.int64, "oldest_at": np.float64, "spool_bytes": np.int64,
        "schema_id": np.int64, "in_flight": np.int32, "frozen_ts": np.int64, "landed_files": np.int32,
        "landed_bytes": np.int64, "planned_ts": np.int64, "used_at": np.float64, "on_wheel": np.bool_,
        "last_part": np.int8, "layout": np.int64, "target": np.int64, "placed": np.bool_,
    }  # fmt: skip
    table_id: Ints
    span: Ints
    logical_id: Ints
    lane: Ints
    version: Ints  # of the last item that was accepted
    accepted_ts: Ints  # -1 as long as nothing was
    accepted_seq: Ints
    durable_ts: Ints
    durable_seq: Ints
    head: Ints
    tail: Ints
    queued_bytes: Ints
    oldest_at: NDArray[np.float64]  # when the first item of its queue was accepted
    spool_bytes: Ints  # of all its items that are not durable
    schema_id: Ints  # its database, 0 while unknown
    in_flight: Ints  # items planned and not yet durable
    frozen_ts: Ints  # the first of its own drain markers: nothing from there on is planned
    landed_files: Ints  # in this run
    landed_bytes: Ints
    planned_ts: Ints  # of the last change that was put into a file in this run, 0 while none was
    used_at: NDArray[np.float64]  # when it last got a change or a DDL
    on_wheel: NDArray[np.bool_]  # `idle.py` will visit it
    layout: Ints  # of the last item that was accepted, 0 if an older release accepted it
    target: Ints  # a number for the name under which it lands, see `places.py`; 0 while it has no name
    placed: NDArray[np.bool_]  # it is decided which path of that name it has
    last_part: NDArray[np.int8]  # what was accepted last in this run, see `whole_transactions.py`
