"""Encoding rows and appending them to the spool.

Promises: rows that are durable already are dropped. Each call appends once, and its items are slices of that
(`chunks`). A table whose name cannot be a path is refused, and so is more than the task's allowance. Rows that cannot
be written are refused or set aside (`aside`); they are looked for only after the encoder has refused its rows.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.clock import now_ms
from tidegate.errors import BadEvents
from tidegate.executor.aside import Aside, Unwritable
from tidegate.executor.chunks import Encoded, items_of
from tidegate.executor.floor import Ints
from tidegate.executor.jobs import IngestJob
from tidegate.executor.layouts import TaskLayouts
from tidegate.executor.spool import SegmentWriter
from tidegate.format.bad_rows import bad_updates
from tidegate.format.bad_values import BadRows
from tidegate.format.encode import protocol
from tidegate.format.encode.spans import spans_of
from tidegate.format.layout_columns import RowLayouts, distinct_layouts
from tidegate.format.pieces import Flags
from tidegate.format.rules.changes import Rows, TableRules, split_updates

_REMEDY = "; correct it in the source, or let such rows be set aside: on-bad-row = set-aside"
_SURE_NAME_BYTES = 64  # shorter names can always be a level of a path, however they are encoded


@dataclass
class Appender:
    job: IngestJob
    writer: SegmentWriter
    tables: TableRules
    layouts: TaskLayouts
    aside: Aside | None = None  # where rows go that cannot be written
    items: list[pa.RecordBatch] = field(default_factory=list)
    appended_bytes: int = 0
    stale: int = 0  # rows that were dropped
    stale_ts: int = 0  # the greatest commit-ts of them
    spool_s: float = 0.0  # spent writing to the spool

    def append(self, rows: Rows) -> None:
        rows, layouts, owner, seq, span = self._above_floor(rows)
        if not rows.events.num_rows:
            return
        text, order = self._encoded(rows, layouts, rows.order(span))
        if not len(order):
            return
        ends = np.frombuffer(text.buffers()[1], np.int32)[text.offset : text.offset + len(text) + 1].astype(np.int64)
        data = memoryview(text.buffers()[2] or b"")[int(ends[0]) : int(ends[-1])]
        self._refuse_too_much(len(data))
        encoded = Encoded(rows.events, owner, seq, rows.moved, order, ends - ends[0])
        started = time.monotonic()
        placed = self.writer.append(data)
        self.spool_s += time.monotonic() - started
        items = items_of(encoded, data, placed, self.job)
        self._refuse_names(items.column("schema_name"), items.column("table_name"))
        self.items.append(items)

    def _encoded(self, rows: Rows, layouts: RowLayouts, order: Ints) -> tuple[pa.Array, Ints]:
        """The text of these rows in order, and the order without the rows that were set aside."""
        layout, encoding = self.layouts.layout, self.job.options.encoding
        chosen, targets = self.tables.selections(rows.events, layouts, layout), self.tables.routed(rows.events)
        found: list[Unwritable] = []
        refuse = partial(self._refuse_rows, rows.events, found)
        text, order = protocol.encode_good(targets, order, chosen, layout, encoding, refuse, now_ms())
        self._set_aside(found)
        return text, order

    def _refuse_rows(self, events: pa.RecordBatch, found: list[Unwritable], bad: BadRows, fingerprint: int) -> None:
        if self.aside is None:
            raise BadEvents(f"{bad}{_REMEDY}") from bad
        found.append(Unwritable(events.take(pa.array(bad.rows)), self.layouts.layout(fingerprint), bad.reason))

    def _set_aside(self, found: list[Unwritable]) -> None:
        if self.aside is not None:
            self.aside.put([bad for bad in found if bad.events.num_rows])

    def refuse_updates(self, events: pa.RecordBatch, layouts: RowLayouts, changed: Flags) -> Flags:
        """Set aside the updates of keys that cannot be written; returns which rows of the events they are."""
        at, layout = np.flatnonzero(changed), self.layouts.layout
        updates, mine = events.take(pa.array(at)), layouts.take(at)
        chosen = self.tables.selections(updates, mine, layout)
        left_out, found = np.zeros(events.num_rows, np.bool_), []
        for bad in bad_updates(updates, chosen, layout, self.job.options.encoding):
            left_out[at[bad.rows]] = True
            fresh = self._fresh(updates.take(pa.array(bad.rows)), mine.take(bad.rows))
            found.append(Unwritable(fresh, layout(bad.layout), bad.reason))
        self._set_aside(found)
        return left_out

    def _fresh(self, updates: pa.RecordBatch, layouts: RowLayouts) -> pa.RecordBatch:
        """The updates that no earlier run has dealt with: those whose deletes are not durable yet."""
        if self.job.floor is None:
            return updates
        deletes, _ = split_updates(updates, np.ones(updates.num_rows, np.bool_))
        owner, ts, seq, _ = self._place(Rows(deletes.slice(0, updates.num_rows)), layouts)
        return updates.filter(pa.array(self.job.floor.passes(owner, ts, seq)))

    def _above_floor(self, rows: Rows) -> tuple[Rows, RowLayouts, Ints, Ints, Ints | None]:
        """The rows that are not durable yet, with the layout, dispatcher, seq and span of each."""
        layouts = self._layouts_of(rows.events)
        owner, ts, seq, span = self._place(rows, layouts)
        if self.job.floor is not None:
            keep = self.job.floor.passes(owner, ts, seq)
            if not keep.all():
                self.stale += len(keep) - int(keep.sum())
                self.stale_ts = max(self.stale_ts, int(ts[~keep].max()))
                rows, owner, seq = rows.take(keep), owner[keep], seq[keep]
                layouts, span = layouts.take(keep), None if span is None else span[keep]
        return rows, layouts, owner, seq, span

    def _layouts_of(self, events: pa.RecordBatch) -> RowLayouts:
        """All of them are known: rows whose layout is not never come here."""
        columns, _ = self.layouts.columns(distinct_layouts(events))
        assert columns is not None
        return columns.of_rows(events)

    def _place(self, rows: Rows, layouts: RowLayouts) -> tuple[Ints, Ints, Ints, Ints | None]:
        """The dispatcher, commit-ts, seq and span of each row."""
        (table_id, ts, seq), spans = rows.place(), self.job.spans
        span = spans_of(rows.events, layouts, spans) if spans > 1 else None
        return table_id if span is None else table_id * spans + span, ts, seq, span

    def _refuse_too_much(self, more_bytes: int) -> None:
        self.appended_bytes += more_bytes
        if self.appended_bytes > self.job.allowance_bytes:
            raise BadEvents(
                f"one task of a micro-batch holds more than {self.job.allowance_bytes} encoded bytes; lower the "
                "source's limit per micro-batch (maxOffsetsPerTrigger, maxBytesPerTrigger, or smaller row groups), or "
                f"{self.job.remedy}"
            )

    def _refuse_names(self, schemas: pa.Array, tables: pa.Array) -> None:
        """A name that cannot be a path must not be accepted: it could never land, and the journal would have it."""
        sizes = [pc.binary_length(names) for names in (schemas, tables)]
        sure = [pc.and_(pc.greater(size, 0), pc.less_equal(size, _SURE_NAME_BYTES)) for size in sizes]
        for at in np.flatnonzero(~pc.and_(*sure).to_numpy(zero_copy_only=False)).tolist():
            self.tables.target(schemas[at].as_py(), tables[at].as_py())
