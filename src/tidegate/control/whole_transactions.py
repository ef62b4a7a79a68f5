"""A transaction in which an update of a key is split must come whole in one micro-batch.

The insert of a split update moves to the end of its transaction (decision 0007), so its place depends on how much of
the transaction came together. If a replay cut the transaction elsewhere, the floor would take the insert for another
row: it would land twice, or never. A transaction without such an update may be cut anywhere, because its rows keep
their places.

The check compares a micro-batch with the one before it in this run. The first one after a restart is not checked: there
the beginning of a transaction may have been dropped, because it was durable.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tidegate.control.admission import Batch
from tidegate.control.columns import Ints, Numbers, group_lasts
from tidegate.control.dispatchers import Dispatchers
from tidegate.control.queues import Queues
from tidegate.errors import BadEvents

# Bits of an item: a moved insert is in the transaction of its first row, or of its last row.
MOVED_FIRST, MOVED_LAST = 1, 2
# What a dispatcher remembers of the last transaction that was accepted in this run.
NOTHING, PLAIN, WITH_MOVED = range(3)


def refuse_cut(batch: Batch, queues: Queues, spans: int) -> None:
    """Raises BadEvents if the batch continues a transaction of the batch before, and one of the two parts is split."""
    ds, table, tables = queues.dispatchers, *_tables(batch, queues.dispatchers, spans)
    owners = _owners(tables, batch, queues, spans)
    known = (owners >= 0) & (ds.last_part[owners] != NOTHING)
    last_ts = np.where(known, ds.accepted_ts[owners], -1).max(axis=1)
    goes_on = batch.first_ts == last_ts[table]
    if not goes_on.any():
        return
    moved = _moved(batch)
    is_split = goes_on & (moved & MOVED_FIRST != 0) | (batch.last_ts == last_ts[table]) & (moved & MOVED_LAST != 0)
    was_split = known & (ds.last_part[owners] == WITH_MOVED) & (ds.accepted_ts[owners] == last_ts[:, None])
    bad = goes_on & (was_split.any(axis=1) | np.isin(np.arange(len(tables)), table[is_split]))[table]
    if bad.any():
        i = int(np.argmax(bad))
        raise BadEvents(
            f"table {batch.table(i)}: the transaction of commit-ts {batch.first_ts[i]} came in two micro-batches, and "
            "an update in it changes a key; a replay that cuts it elsewhere could write a row twice. Hand it out "
            "whole: raise the source's limit per micro-batch, or set output-raw-change-event"
        )


def note_last(batch: Batch, ds: Dispatchers) -> None:
    """Remember what the last transaction of each dispatcher is like."""
    ends = group_lasts(batch.starts, len(batch))
    has_moved = _moved(batch)[ends] & MOVED_LAST != 0
    ds.last_part[batch.dispatcher[ends]] = np.where(has_moved, WITH_MOVED, PLAIN)


def _moved(batch: Batch) -> Ints:
    bits: Ints = batch.items["moved"].fill_null(0).to_numpy()[batch.at]
    return bits


def _tables(batch: Batch, ds: Dispatchers, spans: int) -> tuple[Numbers, Ints]:
    """For each item the number of its table, and for each number the table's id or, if unsplit, its dispatcher."""
    if spans > 1:
        tables, table = np.unique(ds.table_id[batch.dispatcher], return_inverse=True)
        return table, tables
    is_first = np.zeros(len(batch), np.int64)
    is_first[batch.starts] = 1
    return np.cumsum(is_first) - 1, batch.dispatcher[batch.starts]


def _owners(tables: Ints, batch: Batch, queues: Queues, spans: int) -> NDArray[np.int64]:
    """The dispatchers of each table: a row for each table, a column for each span; -1 for one that does not exist.

    A moved insert may be in another span than the rest of its transaction, so a table is judged as a whole.
    """
    if spans == 1:
        return tables[:, None]
    ids, span = np.repeat(tables, spans), np.tile(np.arange(spans), len(tables))
    return queues.find(ids, span).reshape(len(tables), spans)
