"""Setting rows aside that cannot be written, in the ingest task that met them.

Promises: a row is durable under `_tidegate/bad-rows/` before the items of its task leave, so the checkpoint does not
pass it before. An object is created once and never replaced: a replay finds it and adds nothing, and neither does a
retry after a lost answer. No task waits for the store: what it does not take now ends the task, and the driver runs the
micro-batch again after a pause. Row values go into these objects and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import BadEvents, StoreConflict, StoreRefused, StoreUnavailable
from tidegate.executor.crew import Lane, Watch, run_lanes
from tidegate.executor.jobs import LandOptions
from tidegate.executor.land import LANES_PER_WORKER, note_failure
from tidegate.executor.rows import CONFLICT, ITEMS, LANDED, REFUSED, SET_ASIDE, Receipt
from tidegate.format.bad_rows import RowKey, bad_row_path, bad_row_text, is_same_row
from tidegate.format.rules.changes import numbers
from tidegate.format.tables import Layout
from tidegate.storage.store import Store

# Each row is a put. More of them in one task are no single bad rows: a whole table does not fit its layout.
MOST_ROWS = 1_000
_ERRORS = {CONFLICT: StoreConflict, REFUSED: StoreRefused}


class Unwritable(NamedTuple):
    """Rows of one layout that cannot be written, all for one reason."""

    events: pa.RecordBatch
    layout: Layout
    reason: str


class _BadRow(NamedTuple):
    file: int  # its place among the rows that are put together
    key: RowKey
    text: Callable[[], bytes]


@dataclass
class Aside:
    """The rows that one task sets aside."""

    options: LandOptions
    rows: int = 0
    _tables: dict[int, dict[str, Any]] = field(default_factory=dict)  # an item for each table

    def put(self, found: Sequence[Unwritable]) -> None:
        """Make these rows durable, each in an object of its own."""
        if not (rows := [row for bad in found for row in _keyed(bad)]):
            return
        self._refuse_too_many(len(rows), found[-1])
        plans = [_BadRow(file, *row) for file, row in enumerate(rows)]
        size, stall_s = sum(bad.events.nbytes for bad in found) // len(rows), self.options.stall_s
        lanes = [Lane([plan], [Receipt(plan.file)], Watch(stall_s), size) for plan in plans]
        store = self.options.open_store(self.options.sink_uri, self.options.access)
        work = partial(_put, store=store)
        _raise_failure(run_lanes(lanes, work, store.concurrency, LANES_PER_WORKER * self.options.worker_count))
        for bad in found:
            self._note(bad.events, bad.reason)

    def items(self) -> list[pa.RecordBatch]:
        rows = list(self._tables.values())
        return [pa.RecordBatch.from_pylist(rows, schema=ITEMS)] if rows else []

    def _refuse_too_many(self, more: int, last: Unwritable) -> None:
        self.rows += more
        if self.rows > MOST_ROWS:
            name = ".".join(str(last.events.column(column)[0]) for column in ("schema_name", "table_name"))
            raise BadEvents(
                f"more than {MOST_ROWS} rows of one task of a micro-batch cannot be written, the last ones of {name}: "
                f"{last.reason}; so many are not set aside: correct the source, or leave the table out with "
                "filter.rules"
            )

    def _note(self, events: pa.RecordBatch, reason: str) -> None:
        ids, first, counts = np.unique(numbers(events, "table_id"), return_index=True, return_counts=True)
        names = events.select(["schema_name", "table_name"]).take(pa.array(first)).to_pylist()
        last_ts = pc.max(events.column("commit_ts")).as_py()
        for table_id, count, name in zip(ids.tolist(), counts.tolist(), names, strict=True):
            before = self._tables.get(table_id, {"rows": 0, "first_ts": 0})
            more = {"rows": before["rows"] + count, "first_ts": max(before["first_ts"], last_ts)}
            self._tables[table_id] = {"kind": SET_ASIDE, "table_id": table_id, "text": reason, **name, **more}


def _keyed(bad: Unwritable) -> Iterator[tuple[RowKey, Callable[[], bytes]]]:
    """The key of each row, and what makes its text."""
    places = (numbers(bad.events, name).tolist() for name in RowKey._fields)
    for at, key in enumerate(zip(*places, strict=True)):
        yield RowKey(*key), partial(_text, bad, at)


def _text(bad: Unwritable, at: int) -> bytes:
    return bad_row_text(bad.events.slice(at, 1).to_pylist()[0], bad.layout, bad.reason)


def _put(lane: Lane[_BadRow], store: Store) -> None:
    (plan,), (receipt,) = lane.plans, lane.receipts
    path = bad_row_path(plan.key)
    try:
        text = plan.text()
        lane.watch.beat(len(text))
        if not store.create_bytes(path, text):
            lane.watch.beat(len(text))
            _check_found(path, store.get(path), text)
        if not lane.watch.given_up:
            receipt.outcome = LANDED
    except Exception as exc:
        note_failure(receipt, exc)


def _check_found(path: str, found: bytes | None, text: bytes) -> None:
    """An object of this name is the same row, which came before: from a replay, or the answer to its put was lost."""
    if found is None:
        raise StoreUnavailable(f"{path} was there and is gone again")
    if not is_same_row(found, text):
        raise StoreConflict(
            f"{path} holds another row with the same table, commit-ts and seq; each change has a seq of its own: "
            "correct the source, or move the object away"
        )


def _raise_failure(receipts: pa.Table) -> None:
    failed = receipts.filter(pc.not_equal(receipts["outcome"], LANDED))
    for outcome in (CONFLICT, REFUSED, *failed["outcome"].to_pylist()[:1]):
        at = pc.index(failed["outcome"], outcome).as_py()
        if at >= 0:
            raise _ERRORS.get(outcome, StoreUnavailable)(f"a row cannot be set aside: {failed['error'][at]}")
