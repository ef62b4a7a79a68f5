"""Encoding rows and appending them to the spool.

Promises: rows that are durable already are dropped. Each call appends once, and its items are slices of that
(`chunks`). A table whose name cannot be a path is refused, and so is more than the task's allowance. Rows that cannot
be written are refused or set aside (`aside`); they are looked for only after the encoder has refused its rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.clock import now_ms
from tidegate.errors import BadEvents
from tidegate.executor.aside import Aside
from tidegate.executor.chunks import Encoded, items_of
from tidegate.executor.floor import Ints
from tidegate.executor.jobs import IngestJob
from tidegate.executor.spool import SegmentWriter
from tidegate.format.bad_rows import bad_updates
from tidegate.format.bad_values import BadRows
from tidegate.format.encode import protocol
from tidegate.format.encode.spans import spans_of
from tidegate.format.rules.changes import Flags, Rows, Selected, TableRules, split_updates
from tidegate.format.tables import Layout

_REMEDY = "; correct it in the source, or let such rows be set aside: on-bad-row = set-aside"
_SURE_NAME_BYTES = 64  # shorter names can always be a level of a path, however they are encoded


@dataclass(frozen=True)
class Kind:
    """What is encoded together: rows of one layout of which the same columns are written."""

    fingerprint: int
    layout: Layout = field(compare=False)
    selected: Selected


@dataclass
class Appender:
    job: IngestJob
    writer: SegmentWriter
    tables: TableRules
    aside: Aside | None = None  # where rows go that cannot be written
    items: list[pa.RecordBatch] = field(default_factory=list)
    appended_bytes: int = 0
    stale: int = 0  # rows that were dropped
    stale_ts: int = 0  # the greatest commit-ts of them

    def append(self, rows: Rows, kind: Kind) -> None:
        rows, owner, seq, span = self._above_floor(rows, kind)
        if not rows.events.num_rows:
            return
        text, order = self._encoded(rows, rows.order(span), kind)
        if not len(order):
            return
        ends = np.frombuffer(text.buffers()[1], np.int32)[text.offset : text.offset + len(text) + 1].astype(np.int64)
        data = memoryview(text.buffers()[2] or b"")[int(ends[0]) : int(ends[-1])]
        self._refuse_too_much(len(data))
        encoded = Encoded(rows.events, kind.fingerprint, owner, seq, rows.moved, order, ends - ends[0])
        items = items_of(encoded, data, self.writer.append(data), self.job)
        self._refuse_names(items.column("schema_name"), items.column("table_name"))
        self.items.append(items)

    def _encoded(self, rows: Rows, order: Ints, kind: Kind) -> tuple[pa.Array, Ints]:
        """The text of these rows in order, and the order without the rows that were set aside."""
        targets = self.tables.routed(rows.events)
        while True:  # once for each reason that there is
            try:
                options = self.job.options
                return protocol.encode(targets, order, kind.layout, options.encoding, kind.selected, now_ms()), order
            except BadRows as bad:
                if self.aside is None:
                    raise BadEvents(f"{bad}{_REMEDY}") from bad
                self.aside.put(rows.events.take(pa.array(bad.rows)), kind.layout, bad.reason)
                order = order[~np.isin(order, bad.rows)]

    def refuse_updates(self, kind: Kind, events: pa.RecordBatch, changed: Flags) -> Flags:
        """Set aside the updates of keys that cannot be written; returns which rows of the events they are."""
        left_out = np.zeros(events.num_rows, np.bool_)
        if self.aside is not None:
            found = bad_updates(events, changed, kind.layout, self.job.options.encoding, kind.selected)
            for reason, bad in found.items():
                left_out |= bad
                self.aside.put(self._fresh(events.filter(pa.array(bad)), kind), kind.layout, reason)
        return left_out

    def _fresh(self, updates: pa.RecordBatch, kind: Kind) -> pa.RecordBatch:
        """The updates that no earlier run has dealt with: those whose deletes are not durable yet."""
        if self.job.floor is None:
            return updates
        deletes, _ = split_updates(updates, np.ones(updates.num_rows, np.bool_))
        owner, ts, seq, _ = self._place(Rows(deletes.slice(0, updates.num_rows)), kind)
        return updates.filter(pa.array(self.job.floor.passes(owner, ts, seq)))

    def _above_floor(self, rows: Rows, kind: Kind) -> tuple[Rows, Ints, Ints, Ints | None]:
        """The rows that are not durable yet, with the dispatcher, seq and span of each."""
        owner, ts, seq, span = self._place(rows, kind)
        if self.job.floor is not None:
            keep = self.job.floor.passes(owner, ts, seq)
            if not keep.all():
                self.stale += len(keep) - int(keep.sum())
                self.stale_ts = max(self.stale_ts, int(ts[~keep].max()))
                rows, owner, seq = rows.take(keep), owner[keep], seq[keep]
                span = None if span is None else span[keep]
        return rows, owner, seq, span

    def _place(self, rows: Rows, kind: Kind) -> tuple[Ints, Ints, Ints, Ints | None]:
        """The dispatcher, commit-ts, seq and span of each row."""
        (table_id, ts, seq), spans = rows.place(), self.job.spans
        span = spans_of(rows.events, kind.layout, spans) if spans > 1 else None
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
