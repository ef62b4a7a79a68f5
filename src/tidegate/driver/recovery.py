"""A start: what the journal of an earlier run says, and the ledger brought back to it.

The newest snapshot is read and the entries after it are applied, then the next entry is created, which fences the
writer before off. Files that were planned and never confirmed are looked for: those that exist with the size planned
are adopted and indexed again, up to the first missing one of each lane. Starting needs a request for each file that was
in flight, and none for a table.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.control.columns import Ints
from tidegate.control.ledger import Ledger
from tidegate.control.records import Saved
from tidegate.driver.journal import (
    ENTRY,
    FILES,
    FOLDER,
    SNAPSHOT,
    Head,
    Journal,
    data_key,
    lane_path,
    naming,
    number_of,
    still_orphans,
    table_of,
)
from tidegate.errors import StoreConflict, StoreRefused, StoreUnavailable
from tidegate.executor.floor import Floor
from tidegate.executor.index import put_index
from tidegate.format import layout as paths
from tidegate.storage.store import Store

_ADOPT_AT_ONCE = 64


_ANY_SHAPE: Mapping[str, str] = {}


@dataclass
class Recovered:
    """What the journal of an earlier run says."""

    checkpoint_ts: int = 0
    position: str | None = None
    layouts: dict[int, str] = field(default_factory=dict)
    spans: int = 0
    shape: dict[str, str] = field(default_factory=dict)
    foreign: bool = False
    surpassed: bool = False  # another writer has brought the checkpoint further than the journal knows
    tables: list[pa.Table] = field(default_factory=list)  # a snapshot, then files in order, all durable
    pending: pa.Table = field(default_factory=FILES.empty_table)  # files that were planned and never confirmed
    orphans: pa.Table = field(default_factory=FILES.empty_table)
    dropped: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # tables whose state was given up
    next_plan: int = 0
    adopted: int = 0


def open_journal(
    store: Store,
    options: paths.PathOptions,
    shape: Mapping[str, str] = _ANY_SHAPE,
    foreign: bool = False,
    written_ts: int = 0,
) -> tuple[Journal, Recovered]:
    """Read what is there, adopt what landed unconfirmed, and take over by creating the next entry.

    `shape` are the options that shape paths and bytes, which one prefix has for good. `foreign` says that somebody
    else's files stand there, `written_ts` is the checkpoint in `metadata`. We never write one that the journal does not
    know, so a greater one says that another writer was here after us.
    """
    journal, found = _read_all(store, options)
    found.shape = dict(shape)
    found.surpassed |= written_ts > found.checkpoint_ts
    found.checkpoint_ts = max(found.checkpoint_ts, written_ts)
    found.foreign |= foreign or found.surpassed
    head = Head(found.checkpoint_ts, found.position, {}, takeover=True, spans=found.spans, shape=found.shape)
    # Whoever wrote before is fenced off from here on.
    journal.record(replace(head, foreign=found.foreign, surpassed=found.surpassed))
    if found.surpassed:
        _forget_plans(found)
    _adopt(store, options, found, pa.concat_tables([found.orphans, found.pending]))
    journal.orphans = found.orphans
    return journal, found


def _forget_plans(found: Recovered) -> None:
    """Another writer has used the numbers since: what stands under them may be its own, of whatever size."""
    found.next_plan = max([found.next_plan, *(plan + 1 for plan in found.pending["plan"].to_pylist())])
    found.pending = found.orphans = FILES.empty_table()


def _read_all(store: Store, options: paths.PathOptions) -> tuple[Journal, Recovered]:
    names = sorted(path for path, _ in store.list(FOLDER))
    entries = [path for path in names if path.endswith(ENTRY)]
    snapshots = [path for path in names if path.endswith(SNAPSHOT)]
    journal, found = Journal(store, options), Recovered()
    if snapshots:
        journal.number = journal.snapshot_number = number_of(snapshots[-1])
        journal.takeovers.update(_read_snapshot(store, snapshots[-1], found))
    for path in entries:
        if number_of(path) > journal.number:
            journal.number = number_of(path)
            if _read_entry(store, path, found, options):
                journal.takeovers.add(journal.number)
    return journal, found


def floor_of(ledger: Ledger) -> Floor | None:
    """What is durable already although the position may lie before it."""
    columns = ledger.floor()
    return Floor(*columns) if columns is not None else None


def restore(ledger: Ledger, found: Recovered, now: float) -> None:
    """Bring dispatchers and lanes back to where the journal saw them."""
    ledger.restore(
        Saved(
            tables=found.tables,
            dropped=found.dropped,
            orphans=found.orphans,
            checkpoint_ts=found.checkpoint_ts,
            position=found.position,
            next_plan=found.next_plan,
            foreign=found.foreign,
            surpassed=found.surpassed,
        ),
        now,
    )


def _adopt(store: Store, options: paths.PathOptions, found: Recovered, planned: pa.Table) -> None:
    """Files that were planned and never confirmed: adopt those that exist, up to the first missing one of a lane."""
    lanes: dict[str, list[dict[str, Any]]] = {}
    for file in planned.to_pylist():
        lanes.setdefault(lane_path(file, options), []).append(file)
        found.next_plan = max(found.next_plan, file["plan"] + 1)
    with ThreadPoolExecutor(_ADOPT_AT_ONCE, "adopt") as pool:
        answers = list(pool.map(lambda files: _adopt_lane(store, options, files), lanes.values()))
    adopted = [file for answer in answers for file in answer.adopted]
    orphans = [file for answer in answers if not answer.blocked for file in answer.missing]
    next_files = [min(answer.missing, key=lambda file: int(file["number"])) for answer in answers if answer.missing]
    before = [{**file, "number": file["number"] - 1, "last_ts": 0, "last_seq": 0} for file in next_files]
    found.adopted, found.orphans = len(adopted), pa.Table.from_pylist(orphans, schema=FILES)
    if planned.num_rows:
        found.tables.append(pa.Table.from_pylist([*adopted, *before], schema=FILES))


@dataclass(frozen=True)
class _Lane:
    """What became of a lane's planned files; if `blocked`, something else stands where the first missing one goes."""

    adopted: list[dict[str, Any]]
    missing: list[dict[str, Any]]
    blocked: bool


def _adopt_lane(store: Store, options: paths.PathOptions, files: list[dict[str, Any]]) -> _Lane:
    """Adopt what stands of one lane. Where that is refused the replay comes to the same files, and the table is named.

    If it would write others, it meets the ones that stand, and a new start looks for them again.
    """
    try:
        return _look_for(store, options, files)
    except StoreRefused:
        return _Lane([], files, blocked=False)


def _look_for(store: Store, options: paths.PathOptions, files: list[dict[str, Any]]) -> _Lane:
    """The files of one lane; a number may have been planned by several writers, one after the other."""
    options, key = naming(files[0], options), data_key(files[0], options)
    adopted: list[dict[str, Any]] = []
    blocked = False
    for number in sorted({file["number"] for file in files}):
        size = store.size(paths.data_path(key, number, options))
        # All plans of a number begin at the same change, so one of the same size is the same file (where partitions
        # share a lane, they need not; then the last plan is it, for nobody else was alive). If none has the size,
        # something else is in the way: the lane runs into it when it lands, and its table is named then.
        alike = (file for file in files if file["number"] == number and file["bytes"] == size)
        match = max(alike, key=lambda file: int(file["plan"]), default=None)
        if match is None:
            blocked = size is not None
            break
        adopted.append(match)
    last = adopted[-1]["number"] if adopted else 0
    if adopted:
        with contextlib.suppress(StoreConflict):  # an index that is further shows it already
            put_index(store, key, last, options, None, beat=lambda size: None)
    return _Lane(adopted, [file for file in files if file["number"] > last], blocked)


def _read_snapshot(store: Store, path: str, found: Recovered) -> list[int]:
    """Apply a snapshot; returns the entries with which writers took over, which stay whatever it replaces."""
    tables = _read(store, path)
    body = json.loads(tables.schema.metadata[b"tidegate"])
    _apply_head(body, found)
    found.tables.append(tables.replace_schema_metadata(None))
    _pend(found, table_of(bytes.fromhex(body["pending"])))
    found.orphans = table_of(bytes.fromhex(body["orphans"]))
    found.dropped = table_of(bytes.fromhex(body["dropped"]))["key"].to_numpy().copy()
    takeovers: list[int] = body["takeovers"]
    return takeovers


def _read_entry(store: Store, path: str, found: Recovered, options: paths.PathOptions) -> bool:
    """Apply one entry; returns whether a writer took over with it."""
    table = _read(store, path)
    head = json.loads(table.schema.metadata[b"tidegate"])
    table = table.replace_schema_metadata(None)
    _apply_head(head, found)
    found.pending = _without(found.pending, head["withdrawn"])
    at = pc.index_in(pa.array(head["confirmed"], pa.int64()), found.pending["plan"].combine_chunks()).drop_null()
    if len(at):
        done = found.pending.take(at)  # in the order in which they landed
        found.tables.append(done)
        found.orphans = still_orphans(found.orphans, [done], options)
        found.pending = _without(found.pending, head["confirmed"])
    _pend(found, table)
    if head["surpassed"]:
        found.surpassed = True
        _forget_plans(found)
    return bool(head["takeover"])


def _pend(found: Recovered, files: pa.Table) -> None:
    """These are planned. A snapshot may be ahead of an entry, so a plan may come twice: the newer row counts."""
    if files.num_rows:
        newest = pa.concat_tables([files, found.pending]).combine_chunks()
        _, first = np.unique(newest["plan"].to_numpy(), return_index=True)
        found.pending = newest.take(pa.array(first))


def _without(files: pa.Table, plans: list[int]) -> pa.Table:
    return files.filter(~np.isin(files["plan"].to_numpy(), np.array(plans, np.int64))) if plans else files


def _read(store: Store, path: str) -> pa.Table:
    data = store.get(path)
    if data is None:
        raise StoreUnavailable(f"{path} went away while it was read: another changefeed is writing to this sink")
    return table_of(data)


def _apply_head(head: dict[str, Any], found: Recovered) -> None:
    found.checkpoint_ts = max(found.checkpoint_ts, head["checkpoint-ts"])
    found.position = head["position"] if head["position"] is not None else found.position
    found.spans, found.shape, found.foreign = head["spans"], head["shape"], head["foreign"]
    found.layouts.update({int(key): text for key, text in head["layouts"].items()})
