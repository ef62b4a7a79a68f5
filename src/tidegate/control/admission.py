"""Admission: which items of a micro-batch are taken in, and what a source must not send.

A source may send again what was accepted before, as after a restart; that is dropped without a word. But it must hand
out each table in order and keep its promises about resolved marks. What breaks them is refused with the table's name,
for it would make files that no reader can apply, and nobody could repair them later. All rules look at one `Batch`: the
items as columns, sorted once into the order in which they will be queued.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidegate.control.barrier import Key
from tidegate.control.blocking import Blocking, Ddl
from tidegate.control.checkpoint import Progress
from tidegate.control.columns import Ints, Numbers, after_or_equal, group_starts
from tidegate.control.dispatchers import Dispatchers
from tidegate.control.markers import Markers, stands_between
from tidegate.control.members import named_tables, wide_scope
from tidegate.control.queues import Queues
from tidegate.errors import BadEvents

# Of an item, as ingest returns it and as it is queued.
COLUMNS = ("version", "layout", "first_ts", "first_seq", "last_ts", "last_seq", "rows", "offset", "length", "checksum")


@dataclass(frozen=True)
class Batch:
    """Row items as columns, by dispatcher and then by their first change."""

    items: pa.Table  # as they came
    at: Numbers  # for each item its row in `items`
    dispatcher: Numbers
    version: Ints
    layout: Ints
    first_ts: Ints
    first_seq: Ints
    last_ts: Ints
    last_seq: Ints
    rows: Ints
    offset: Ints
    length: Ints
    checksum: Ints

    def __len__(self) -> int:
        return len(self.at)

    @cached_property
    def starts(self) -> Ints:
        """Where the items of each dispatcher begin."""
        return group_starts(self.dispatcher)

    @property
    def total_rows(self) -> int:
        return int(self.rows.sum())

    def keep(self, which: NDArray[np.bool_]) -> Batch:
        if which.all():  # nearly always
            return self
        names = ("at", "dispatcher", *COLUMNS)
        return replace(self, **{name: getattr(self, name)[which] for name in names})

    def ints(self, name: str) -> Ints:
        """Another column of these items."""
        return _ints(self.items, name)[self.at]

    def databases(self) -> Ints:
        """By dispatcher, the id of the database that its first item names; 0 if it names none."""
        ids: Ints = self.items["schema_id"].fill_null(0).to_numpy()[self.at[self.starts]]
        return ids

    def table(self, i: int) -> str:
        """`shop.orders`, for messages."""
        at = int(self.at[i])
        return f"{self.items['schema_name'][at]}.{self.items['table_name'][at]}"


def read_batch(items: pa.Table, queues: Queues) -> Batch:
    """The items in order. Dispatchers that come for the first time get their numbers here."""
    dispatcher = queues.number(_ints(items, "table_id"), _ints(items, "span"), _ints(items, "logical_table_id"))
    columns = {name: _ints(items, name) for name in COLUMNS}
    at = np.lexsort((columns["first_seq"], columns["first_ts"], dispatcher))
    return Batch(items, at, dispatcher[at], **{name: column[at] for name, column in columns.items()})


def admit(batch: Batch, dispatchers: Dispatchers, resolved_ts: int) -> Batch:
    """The batch without what was accepted before. Raises BadEvents when a source breaks the order of a table."""
    fresh = batch.keep(~_stale(batch, dispatchers))
    _refuse_disorder(fresh, dispatchers)
    _refuse_older_versions(fresh, dispatchers)
    _refuse_resolved(fresh, resolved_ts)
    return fresh


def _stale(batch: Batch, ds: Dispatchers) -> NDArray[np.bool_]:
    """Which items end at or before the last change that was accepted of their dispatcher."""
    owner = batch.dispatcher
    return after_or_equal(ds.accepted_ts[owner], ds.accepted_seq[owner], batch.last_ts, batch.last_seq)


def _refuse_disorder(batch: Batch, ds: Dispatchers) -> None:
    """An item must begin after the item before it, and after all that was accepted of its dispatcher.

    An item that was accepted in part is refused too: it cannot be cut, so its first changes would land twice.
    """
    owners = batch.dispatcher[batch.starts]
    before_ts, before_seq = np.roll(batch.last_ts, 1), np.roll(batch.last_seq, 1)
    before_ts[batch.starts], before_seq[batch.starts] = ds.accepted_ts[owners], ds.accepted_seq[owners]
    bad = np.flatnonzero(after_or_equal(before_ts, before_seq, batch.first_ts, batch.first_seq))
    if len(bad):
        i = int(bad[0])
        raise BadEvents(
            f"table {batch.table(i)}: changes from commit-ts {batch.first_ts[i]}, seq {batch.first_seq[i]} overlap or "
            f"precede commit-ts {before_ts[i]}, seq {before_seq[i]} that was accepted before; the source must hand out "
            "each table in (commit_ts, seq) order"
        )


def _refuse_older_versions(batch: Batch, ds: Dispatchers) -> None:
    """A version must not come back: its directory has files, and its numbers would start at 1 again."""
    before = np.roll(batch.version, 1)
    before[batch.starts] = ds.version[batch.dispatcher[batch.starts]]
    bad = np.flatnonzero(batch.version < before)
    if len(bad):
        i = int(bad[0])
        raise BadEvents(
            f"table {batch.table(i)}: version {batch.version[i]} at commit-ts {batch.first_ts[i]} follows version "
            f"{before[i]}; a source must never go back to an older table_version"
        )


def _refuse_resolved(batch: Batch, resolved_ts: int) -> None:
    """A change must not come after its resolved mark: the checkpoint may have passed it, and readers rely on that."""
    late = np.flatnonzero(batch.first_ts <= resolved_ts)
    if len(late):
        i = int(late[0])
        raise BadEvents(
            f"table {batch.table(i)}: a change of commit-ts {batch.first_ts[i]} follows the resolved mark "
            f"{resolved_ts}; a source sends a resolved row when nothing at or below it follows"
        )


def refuse_divided(batch: Batch, markers: Markers) -> None:
    """An item must not have changes on both sides of a DDL's marker: it could neither land nor wait."""
    found = markers.divided(batch.dispatcher, batch.first_ts, batch.last_ts)
    if found is not None:
        i, ts = found
        raise BadEvents(
            f"table {batch.table(i)}: changes from commit-ts {batch.first_ts[i]} to {batch.last_ts[i]} are in one "
            f"chunk although a DDL of commit-ts {ts} comes between them; a batch must be encoded again, cut at its DDLs"
        )


def divides(ddls: Sequence[Ddl], items: pa.Table) -> bool:
    """Whether one of these DDLs stands between changes of one item of its micro-batch, which it touches.

    Then the batch is encoded again, cut at the DDLs. A wide DDL is taken to touch every table: which ones it does is
    known for sure only when it drains, and one run too many does no harm.
    """
    if not ddls:  # by far the most batches
        return False
    table_id, first_ts, last_ts = (_ints(items, name) for name in ("table_id", "first_ts", "last_ts"))
    wide = [ddl.key for ddl in ddls if wide_scope(ddl.event) is not None]
    if stands_between(sorted(wide), first_ts, last_ts).any():
        return True
    named: dict[int, list[int]] = {}
    for ddl in sorted(ddls, key=lambda ddl: ddl.key):
        for number in named_tables(ddl.event, ddl.receiver):
            named.setdefault(number, []).append(ddl.key.ts)
    between = stands_between(sorted(ddl.key for ddl in ddls), first_ts, last_ts)
    concerned = np.flatnonzero(between & np.isin(table_id, list(named)))
    columns = (column[concerned].tolist() for column in (table_id, first_ts, last_ts))
    return any(
        bisect_right(named[number], last) > bisect_right(named[number], first)
        for number, first, last in zip(*columns, strict=True)
    )


def admit_ddls(ddls: Sequence[Ddl], blocking: Blocking, queues: Queues, progress: Progress) -> list[Ddl]:
    """The DDLs that are new, in order. One at or below the checkpoint of the last run was over before the restart."""
    if not ddls:
        return []
    blocking.forget(progress.checkpoint_ts)
    due = {ddl.key: ddl for ddl in sorted(ddls, key=lambda ddl: ddl.key) if not blocking.knows(ddl.key)}
    for ddl in ddls:
        _refuse_late_ddl(ddl, due, progress.resolved_ts)
        _refuse_second_ddl(ddl, due, blocking)
    for ddl in due.values():
        _refuse_landed(ddl, blocking.touched(ddl), queues)
    return list(due.values())


def _refuse_landed(ddl: Ddl, touched: Numbers, queues: Queues) -> None:
    """Changes behind the DDL must not have gone into files: readers apply them before it, and nobody takes them back.

    Only what this run planned counts. What an earlier run landed may be behind a DDL that was over in that run, and
    the source sends it again.
    """
    ds, items = queues.dispatchers, queues.items
    accepted = touched[ds.accepted_ts[touched] >= ddl.key.ts]
    if not len(accepted):  # nearly always
        return
    planned = accepted[ds.planned_ts[accepted] >= ddl.key.ts]
    if len(planned):
        number, ts = int(planned[0]), int(ds.planned_ts[planned[0]])
        raise _late(ddl, f"changes of {queues.name(number)} up to commit-ts {ts} have landed")
    slots, _ = queues.walk(accepted)
    both = slots[(items.first_ts[slots] < ddl.key.ts) & (items.last_ts[slots] >= ddl.key.ts)]
    if len(both):
        number, ts = int(items.dispatcher[both[0]]), int(items.last_ts[both[0]])
        raise _late(ddl, f"changes of {queues.name(number)} up to commit-ts {ts} were encoded in one chunk with it")


def _late(ddl: Ddl, reason: str) -> BadEvents:
    return BadEvents(
        f"the DDL `{ddl.event.query:.120}` of commit-ts {ddl.key.ts} comes too late: {reason}; a source hands out a "
        "DDL in the same or an earlier micro-batch than the first change behind it"
    )


def _refuse_late_ddl(ddl: Ddl, due: Mapping[Key, Ddl], resolved_ts: int) -> None:
    """A DDL must not come after its resolved mark: the checkpoint may have passed it, and readers rely on that."""
    if ddl.key in due and ddl.key.ts <= resolved_ts:
        raise BadEvents(
            f"the DDL `{ddl.event.query:.120}` of commit-ts {ddl.key.ts} follows the resolved mark {resolved_ts}; a "
            "source sends a resolved row when nothing at or below it follows"
        )


def _refuse_second_ddl(ddl: Ddl, due: Mapping[Key, Ddl], blocking: Blocking) -> None:
    """No two DDLs may have one commit-ts and seq: the second would be taken for a repeat and be lost."""
    other = due[ddl.key] if ddl.key in due else blocking.blocks.get(ddl.key)
    if other is not None and other.event != ddl.event:
        raise BadEvents(
            f"two DDLs have commit-ts {ddl.key.ts} and seq {ddl.key.seq}: `{other.event.query:.120}` and "
            f"`{ddl.event.query:.120}`; a source gives each its own seq"
        )


def _ints(items: pa.Table, name: str) -> Ints:
    array: Ints = items[name].to_numpy().astype(np.int64, copy=False)
    return array
