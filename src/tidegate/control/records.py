"""What the journal records of the ledger, as Arrow: a row per dispatcher in a snapshot, columns per planned file.

`export` and `restore` undo each other. Journal and recovery only store and read tables; which columns the ledger needs
to go on is known here alone. Everything is set by whole columns, so that a start with a million tables stays short.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidegate.control.columns import Ints, Numbers
from tidegate.control.places import checksums
from tidegate.control.queues import Queues
from tidegate.control.rounds import Round
from tidegate.format.checksums import joined
from tidegate.format.tables import CHECK, LOOK

# One dispatcher: its names, the state of its lane, and how far it is durable.
TABLES = pa.schema(
    [
        ("table_id", pa.int64()),
        ("span", pa.int32()),
        ("logical_table_id", pa.int64()),
        ("schema_name", pa.string()),
        ("table_name", pa.string()),
        ("version", pa.int64()),
        ("directory", pa.int64()),
        ("date", pa.int64()),
        ("number", pa.int64()),
        ("schema_version", pa.int64()),
        ("last_ts", pa.int64()),
        ("last_seq", pa.int64()),
        ("own_directory", pa.bool_()),
        ("layout", pa.int64()),
    ]
)
_TEXTS = ("schema_name", "table_name")
# What stands for the columns that an older format does not have.
SINCE_FORMAT_2 = {"own_directory": pa.scalar(False), "layout": pa.scalar(0, pa.int64())}


class Exported(NamedTuple):
    """A row of `TABLES` per dispatcher, the lanes whose state was given up, and the targets that somebody left."""

    tables: pa.Table
    dropped: pa.Table  # their `key`, and whether they have an `own` directory
    left: pa.Table  # `target` and `last_ts`, see `places.py`


@dataclass(frozen=True)
class Saved:
    """What the journal of an earlier run says."""

    tables: Sequence[pa.Table]  # rows of a snapshot, then files that landed after it, in order
    dropped: Ints  # keys of the lanes whose state was given up, sorted
    orphans: pa.Table  # files that an old writer may still create
    checkpoint_ts: int
    position: str | None
    next_plan: int
    foreign: bool  # another writer's files are on the sink
    surpassed: bool  # another writer has gone on where this journal ends
    dropped_own: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # of `dropped`, with an own directory
    left: pa.Table | None = None  # targets that somebody left; None if an older release did not record them


class FloorColumns(NamedTuple):
    """How far dispatchers are durable past the checkpoint, sorted by `owner`, which is table id * spans + span."""

    owner: Ints
    ts: Ints
    seq: Ints
    checkpoint_ts: int


class FileColumns(NamedTuple):
    """What the journal records of a round's files besides names and sizes.

    Where a file is not `sure`, another file may already exist under its number. A restart then must not take that one
    for ours, also if the size is the same.
    """

    table_id: Ints
    span: Ints
    logical_table_id: Ints
    first_ts: Ints
    first_seq: Ints
    last_ts: Ints
    last_seq: Ints
    checksum: Ints  # of its rows, without the header
    own_directory: NDArray[np.bool_]
    layout: Ints
    sure: NDArray[np.bool_]


def export(queues: Queues) -> Exported:
    """The state of all dispatchers. Those that came back and were not looked at yet count as given up.

    One that looks under a new name has changes that are durable, maybe above the checkpoint. Its row has no name and no
    files, only these: a start without them would land the replay twice.
    """
    known, ds = queues.known(), queues.dispatchers
    looked = queues.lanes.look[ds.lane[known]]
    durable = looked & (ds.durable_ts[known] > 0)
    rows = pa.concat_tables([_rows(queues, known[~looked]), _rows_without_files(queues, known[durable])])
    return Exported(rows, _dropped(queues, known[looked & ~durable]), queues.places.left.table())


def _rows(queues: Queues, numbers: Numbers) -> pa.Table:
    ds, lanes = queues.dispatchers, queues.lanes
    lane = ds.lane[numbers]
    columns = [
        ds.table_id[numbers], ds.span[numbers], ds.logical_id[numbers],
        queues.names.schemas.take(numbers), queues.names.tables.take(numbers),
        lanes.version[lane], lanes.directory[lane], lanes.date[lane], lanes.number[lane], lanes.schema_version[lane],
        ds.durable_ts[numbers], ds.durable_seq[numbers], lanes.own[lane], ds.layout[numbers],
    ]  # fmt: skip
    return pa.Table.from_arrays(
        [pa.array(column, kind) for column, kind in zip(columns, TABLES.types, strict=True)], schema=TABLES
    )


def _rows_without_files(queues: Queues, numbers: Numbers) -> pa.Table:
    """Rows that say only up to where these are durable."""
    rows = _rows(queues, numbers)
    kept = ("table_id", "span", "logical_table_id", "last_ts", "last_seq")
    empty = {"schema_name": "", "table_name": "", "own_directory": False}
    nothing = {field.name: pa.scalar(empty.get(field.name, 0), field.type) for field in TABLES}
    columns = [rows[name] if name in kept else pa.repeat(nothing[name], len(rows)) for name in TABLES.names]
    return pa.table(columns, schema=TABLES)


def _dropped(queues: Queues, looked: Numbers) -> pa.Table:
    """The lanes whose state was given up, or is not known again yet."""
    has_own = queues.lanes.own[queues.dispatchers.lane[looked]]
    own = np.concatenate([queues.dropped_own, queues.lane_keys(looked[has_own])])
    every = np.union1d(queues.dropped, queues.lane_keys(looked))
    return pa.table({"key": every, "own": np.isin(every, own)})


def restore(queues: Queues, saved: Saved) -> None:
    """Bring dispatchers and lanes to where the journal saw them last."""
    lanes = queues.lanes
    queues.dropped, queues.dropped_own = saved.dropped, saved.dropped_own
    if saved.left is not None or len(saved.dropped):
        queues.places.left.read(saved.left)
    if saved.tables:
        _restore_rows(queues, pa.concat_tables([_as_rows(table) for table in saved.tables]))
    lanes.foreign = saved.foreign
    lanes.newest_date = int(lanes.date[: lanes.size].max(initial=0))
    _restore_owed(queues, saved.orphans)
    if saved.surpassed:  # then each lane looks first which files the other writer left
        lanes.schema_version[:] = 0


def _as_rows(table: pa.Table) -> pa.Table:
    """Rows of a snapshot as they are; for files that landed, what a snapshot taken after them would say.

    A file with `last_ts` 0 did not land: it only says that its lane goes on behind this number.
    """
    if "schema_version" not in table.column_names:
        settled = pc.if_else(pc.greater(table["last_ts"], 0), table["version"], 0)
        table = table.append_column("schema_version", settled)
    return with_columns(table, SINCE_FORMAT_2).select(TABLES.names)


def with_columns(table: pa.Table, values: Mapping[str, pa.Scalar]) -> pa.Table:
    """The table with these columns, filled with these values where it does not have them."""
    for name in values.keys() - set(table.column_names):
        table = table.append_column(name, pa.repeat(values[name], table.num_rows))
    return table


def _restore_rows(queues: Queues, tables: pa.Table) -> None:
    """Set whole columns. Of a dispatcher that has several rows the last one counts."""
    ds, lanes = queues.dispatchers, queues.lanes
    ints = {name: tables[name].to_numpy().astype(np.int64, copy=False) for name in TABLES.names if name not in _TEXTS}
    numbers = queues.number(ints["table_id"], ints["span"], ints["logical_table_id"])
    schemas, names = (tables[name].combine_chunks() for name in _TEXTS)
    targets = queues.names.rename_many(numbers, schemas, names, ints["logical_table_id"])
    lane = ds.lane[numbers]
    lanes.version[lane], lanes.directory[lane] = ints["version"], ints["directory"]
    lanes.date[lane], lanes.number[lane] = ints["date"], ints["number"]
    lanes.schema_version[lane], lanes.own[lane] = ints["schema_version"], ints["own_directory"] > 0
    ds.version[numbers], ds.layout[numbers] = ints["version"], ints["layout"]
    durable = ints["last_ts"] > 0
    owners, ts, seq = numbers[durable], ints["last_ts"][durable], ints["last_seq"][durable]
    lanes.look[lane[durable]] = False
    ds.durable_ts[owners] = ds.accepted_ts[owners] = ts
    ds.durable_seq[owners] = ds.accepted_seq[owners] = seq
    here = targets == ds.target[numbers]
    lanes.new_here[lane] = queues.places.whole(numbers)
    lanes.new_here[lane[here & durable]] = False
    was_plain = durable & ~here & (ints["table_id"] == ints["logical_table_id"]) & (ints["own_directory"] == 0)
    _restore_places(queues, tables.filter(pa.array(was_plain)))


def _restore_places(queues: Queues, gone: pa.Table) -> None:
    """Who has the plain path of each target; where somebody was who is elsewhere now, the next one looks."""
    places, names = queues.places, queues.names
    targets = names.targets_of(*(gone[name].combine_chunks() for name in _TEXTS))
    places.left.add(checksums(targets), gone["last_ts"].to_numpy())
    nobodys = places.restore(queues.known())
    places.left.add(checksums(names.targets(nobodys)), places.landed_ts(nobodys))


def _restore_owed(queues: Queues, orphans: pa.Table) -> None:
    """An old writer may still create these files."""
    if not orphans.num_rows:
        return
    ids = (orphans[name].to_numpy().astype(np.int64) for name in ("table_id", "span"))
    owners = queues.find(*ids)  # -1 for a partition of a shared lane of which nothing was restored
    for owner, file in zip(owners.tolist(), orphans.to_pylist(), strict=True):
        if owner >= 0:
            end = (file["last_ts"], file["last_seq"])
            queues.lanes.owe(int(queues.dispatchers.lane[owner]), file["number"], end)


def floor(queues: Queues, spans: int, checkpoint_ts: int) -> FloorColumns | None:
    """What must be dropped when the source sends it again: it is durable, but the position may be before it.

    Everything up to the checkpoint is, of every dispatcher. Only the few that are further are listed one by one.
    """
    ds = queues.dispatchers
    durable = np.flatnonzero(ds.durable_ts[: ds.size] > checkpoint_ts)
    if not len(durable) and not checkpoint_ts:
        return None
    owner = ds.table_id[durable] * spans + ds.span[durable]
    by_owner = np.argsort(owner)
    durable = durable[by_owner]
    return FloorColumns(owner[by_owner], ds.durable_ts[durable], ds.durable_seq[durable], checkpoint_ts)


def file_columns(queues: Queues, round_: Round) -> FileColumns:
    """What the journal records of the round's files before they land."""
    ds, items, owners = queues.dispatchers, queues.items, round_.dispatcher
    slots, starts = round_.slots, round_.bounds[:-1]
    first, last = slots[starts], slots[round_.bounds[1:] - 1]
    # Their numbers may be taken already: by another writer, or by us before the table's state was given up.
    unsure = (round_.schema == LOOK) | ((round_.schema == CHECK) & queues.lanes.foreign)
    sure = ~np.isin(round_.lane, round_.lane[unsure])
    return FileColumns(
        ds.table_id[owners], ds.span[owners], ds.logical_id[owners],
        items.first_ts[first], items.first_seq[first], items.last_ts[last], items.last_seq[last],
        joined(items.checksum[slots], items.length[slots], starts),
        queues.lanes.own[round_.lane], items.layout[first], sure,
    )  # fmt: skip
