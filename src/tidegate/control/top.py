"""The tables to look at first: those that lag, those with small files, those that land most."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.control.queues import Queues

TOP = ("lag", "small-files", "bytes")


class TableLine(NamedTuple):
    """One table (or one span of it): how long its oldest change waits, and what it has landed in this run."""

    table: str
    lag_s: float
    waiting_bytes: int
    files: int
    landed_bytes: int
    mean_file_bytes: int


def top_tables(queues: Queues, by: str, k: int, now: float) -> list[TableLine]:
    """The first k tables by one of `TOP`. It looks at whole columns, so ask when a user does, not in a loop."""
    ds, items = queues.dispatchers, queues.items
    live = items.live()
    waiting, at = np.unique(items.dispatcher[live], return_inverse=True)
    oldest = np.full(len(waiting), now)
    np.minimum.at(oldest, at, items.accepted_at[live])
    if by == "lag":
        numbers, score = waiting.astype(np.int64), now - oldest
    else:
        numbers = np.flatnonzero(ds.landed_files[: ds.size])
        score = ds.landed_bytes[numbers].astype(float)
        score = -score / ds.landed_files[numbers] if by == "small-files" else score
    best = numbers[np.argsort(-score, kind="stable")[:k]]
    ages = dict(zip(waiting.tolist(), (now - oldest).tolist(), strict=True)) if len(best) else {}
    return [_line(queues, number, ages.get(number, 0.0)) for number in best.tolist()]


def _line(queues: Queues, number: int, lag_s: float) -> TableLine:
    ds = queues.dispatchers
    files, landed = int(ds.landed_files[number]), int(ds.landed_bytes[number])
    return TableLine(
        queues.name(number), lag_s, int(ds.spool_bytes[number]), files, landed, int(landed / max(1, files))
    )
