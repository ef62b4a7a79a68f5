"""A start: what the journal of an earlier run says, and the ledger brought back to it.

The newest snapshot is read and the entries after it are applied, then the next entry is created, which fences the
writer before off. Files that were planned and never confirmed are looked for: those that exist with the bytes planned
are adopted and indexed again, up to the first missing one of each lane. Starting needs a request for each file that was
in flight, and none for a table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.control.columns import Ints
from tidegate.control.ledger import Ledger
from tidegate.control.records import Saved
from tidegate.driver.adoption import adopt
from tidegate.driver.entries import (
    ENTRY,
    FILES,
    FOLDER,
    SNAPSHOT,
    UNREADABLE,
    DamagedJournal,
    Head,
    entry_path,
    head_of,
    in_this_format,
    number_of,
    object_of,
    planned_files,
    table_of,
    table_of_files,
)
from tidegate.driver.journal import Journal, still_orphans
from tidegate.driver.layout_record import LayoutRecord
from tidegate.errors import StoreUnavailable
from tidegate.format.layout import PathOptions
from tidegate.format.layout_texts import LayoutTexts
from tidegate.storage.store import Store

_LOOKS = 3  # before an entry counts as missing
_ANY_SHAPE: Mapping[str, str] = {}


@dataclass
class Recovered:
    """What the journal of an earlier run says."""

    checkpoint_ts: int = 0
    position: str | None = None
    layouts: dict[int, str] = field(default_factory=dict)  # of formats before 3, which had them in the heads
    spans: int = 0
    shape: dict[str, str] = field(default_factory=dict)
    foreign: bool = False
    surpassed: bool = False  # another writer has brought the checkpoint further than the journal knows
    tables: list[pa.Table] = field(default_factory=list)  # a snapshot, then files in order, all durable
    pending: pa.Table = field(default_factory=FILES.empty_table)  # files that were planned and never confirmed
    orphans: pa.Table = field(default_factory=FILES.empty_table)
    dropped: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # tables whose state was given up
    dropped_own: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # of these, with a directory of their own
    left: pa.Table | None = None  # targets whose tables have left; None if an older release did not record them
    next_plan: int = 0
    adopted: int = 0


def open_journal(
    store: Store,
    options: PathOptions,
    shape: Mapping[str, str] = _ANY_SHAPE,
    foreign: bool = False,
    written_ts: int = 0,
) -> tuple[Journal, Recovered]:
    """Read what is there, adopt what landed unconfirmed, and take over by creating the next entry.

    `shape` are the options that shape paths and bytes, which one prefix has for good. `foreign` says that somebody
    else's files are there, `written_ts` is the checkpoint in `metadata`. We never write one that the journal does not
    know, so a greater one says that another writer was here after us.
    """
    journal, found = read_journal(store, options)
    found.shape = dict(shape)
    found.surpassed |= written_ts > found.checkpoint_ts
    found.checkpoint_ts = max(found.checkpoint_ts, written_ts)
    found.foreign |= foreign or found.surpassed
    head = Head(found.checkpoint_ts, found.position, takeover=True, spans=found.spans, shape=found.shape)
    # The writer before is fenced off from here on.
    journal.record(replace(head, foreign=found.foreign, surpassed=found.surpassed))
    if found.surpassed:
        _forget_plans(found)
    planned = planned_files(pa.concat_tables([found.orphans, found.pending]))
    found.next_plan = max([found.next_plan, *(file.plan + 1 for file in planned)])
    landed, found.orphans = adopt(store, options, [file for file in planned if file.is_sure])
    found.adopted = sum(file.last_ts > 0 for file in landed)
    if planned:
        found.tables.append(table_of_files(landed))
    journal.orphans = found.orphans
    return journal, found


def _forget_plans(found: Recovered) -> None:
    """Another writer has used the numbers since: a file under one of them may be its own, of whatever size."""
    found.next_plan = max([found.next_plan, *(plan + 1 for plan in found.pending["plan"].to_pylist())])
    found.pending = found.orphans = FILES.empty_table()


def read_journal(store: Store, options: PathOptions) -> tuple[Journal, Recovered]:
    """What the journal says, and the journal itself to go on with; nothing is written. Both are empty without one."""
    snapshot, entries = _listed(store)
    journal, found = Journal(store, options), Recovered()
    if snapshot:
        journal.number = journal.snapshot_number = number_of(snapshot)
        tables, record = _read(store, snapshot)
        with _damage(snapshot):
            journal.takeovers.update(_read_snapshot(tables, found))
        if record is not None:
            journal.layouts = LayoutRecord.of_table(record)
    for path in entries:
        journal.number = number_of(path)
        files, layouts = _read(store, path)
        with _damage(path):
            if _read_entry(files, found, options):
                journal.takeovers.add(journal.number)
        if layouts is not None:
            texts = LayoutTexts.of_table(layouts)
            journal.layouts = journal.layouts.noted(texts.fingerprint, journal.number)
    return journal, found


def _listed(store: Store) -> tuple[str, list[str]]:
    """The newest snapshot, "" if there is none, and the entries after it.

    Entries are written one after the other, so none may be missing between two. A changefeed that still runs may
    replace entries by a snapshot while they are listed; but then the snapshot is there, and the next look finds it.
    """
    for _ in range(_LOOKS):
        names = sorted(path for path, _ in store.list(FOLDER))
        snapshot = max((path for path in names if path.endswith(SNAPSHOT)), default="")
        first = number_of(snapshot) + 1 if snapshot else 1
        entries = [path for path in names if path.endswith(ENTRY) and number_of(path) >= first]
        missing = [number for number, path in enumerate(entries, first) if number_of(path) != number]
        if not missing:
            return snapshot, entries
    raise DamagedJournal(
        f"{entry_path(missing[0])} is missing, although {entries[-1]} exists: somebody has deleted from the journal, "
        f"and nobody knows any more what was written; {DamagedJournal.remedy}"
    )


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
            dropped_own=found.dropped_own,
            left=found.left,
        ),
        now,
    )


def _read_snapshot(tables: pa.Table, found: Recovered) -> list[int]:
    """Apply a snapshot; returns the entries with which writers took over, which stay whatever it replaces."""
    body = head_of(tables.schema)
    _apply_head(body, found)
    found.tables.append(tables.replace_schema_metadata(None))
    _pend(found, in_this_format(table_of(bytes.fromhex(body["pending"]))))
    found.orphans = in_this_format(table_of(bytes.fromhex(body["orphans"])))
    dropped = table_of(bytes.fromhex(body["dropped"]))
    found.dropped = dropped["key"].to_numpy().copy()
    if "left" in body:
        found.dropped_own = found.dropped[dropped["own"].to_numpy()]
        found.left = table_of(bytes.fromhex(body["left"]))
    takeovers: list[int] = body["takeovers"]
    return takeovers


def _read_entry(table: pa.Table, found: Recovered, options: PathOptions) -> bool:
    """Apply one entry; returns whether a writer took over with it."""
    head = head_of(table.schema)
    table = in_this_format(table.replace_schema_metadata(None))
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


def _read(store: Store, path: str) -> tuple[pa.Table, pa.Table | None]:
    data = store.get(path)
    if data is None:
        raise StoreUnavailable(f"{path} went away while it was read: another changefeed is writing to this sink")
    return object_of(path, data)


@contextmanager
def _damage(path: str) -> Iterator[None]:
    """What is wrong inside an object of the journal is damage, too."""
    try:
        yield
    except UNREADABLE as exc:
        raise DamagedJournal(f"{path} is damaged: {type(exc).__name__}: {exc}; {DamagedJournal.remedy}") from exc


def _apply_head(head: dict[str, Any], found: Recovered) -> None:
    found.checkpoint_ts = max(found.checkpoint_ts, head["checkpoint-ts"])
    found.position = head["position"] if head["position"] is not None else found.position
    found.spans, found.shape, found.foreign = head["spans"], head["shape"], head["foreign"]
    found.layouts.update({int(key): text for key, text in head.get("layouts", {}).items()})
