"""The plans of a round's files for land tasks, and the rows that the journal records about them.

Everything here follows from the options, the layouts and the ledger. The caller holds the changefeed's lock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidegate.control.barrier import Key, Write
from tidegate.control.ledger import Ledger
from tidegate.control.rounds import Round
from tidegate.driver.entries import Headers, date_of, file_rows
from tidegate.driver.layouts import Layouts
from tidegate.executor.jobs import LandJob, LandOptions
from tidegate.executor.rows import PLANS, SchemaPlan
from tidegate.executor.spool import SegmentReader
from tidegate.format.checksums import checksum
from tidegate.format.ddl.events import DdlEvent
from tidegate.format.ddl.files import schema_files
from tidegate.format.encode import protocol
from tidegate.format.encode.spans import dispatcher_id
from tidegate.format.rules.changes import TableRules
from tidegate.format.tables import SETTLED, Selected

_KEPT_HEADERS = 4096


@dataclass
class PlanBook:
    ledger: Ledger
    layouts: Layouts
    reader: SegmentReader
    options: LandOptions
    rules: TableRules
    changefeed_id: str  # for the names of files where tables are split
    foreign: bool = False  # files of another writer exist on this sink
    _headers: dict[tuple[int, Selected], tuple[int, int]] = field(default_factory=dict)  # bytes and checksum

    def files(self, round_: Round) -> pa.Table:
        """One row for each file, as the journal records it."""
        queues = self.ledger.queues
        owners = round_.dispatcher.tolist()
        names = queues.names.pairs(round_.dispatcher)
        targets = self._targets(names)
        heads = np.zeros((len(round_), 2), np.int64)
        if protocol.has_header(self.options.encoding):
            layouts = queues.items.layout[round_.slots[round_.bounds[:-1]]].tolist()
            heads += [self._header(owner, key) for owner, key in zip(owners, layouts, strict=True)]
        dispatchers = [self._dispatcher(owner) for owner in owners]
        return file_rows(round_, self.ledger, names, targets, dispatchers, Headers(*heads.T))

    def _targets(self, names: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """The names that these tables land under. Without routes they are their own: nothing is kept for each table."""
        if self.rules.rules.routes_nothing:
            return names
        return [self.rules.target(*name) for name in names]

    def _dispatcher(self, owner: int) -> str:
        """The id of this dispatcher in names of files; "" where tables are not split."""
        if not self.options.paths.across_nodes:
            return ""
        return dispatcher_id(self.changefeed_id, *self.ledger.queues.key(owner))

    def _header(self, owner: int, fingerprint: int) -> tuple[int, int]:
        """Bytes and checksum of the header of this dispatcher's files."""
        key = (fingerprint, self._selected(owner, fingerprint))
        if key not in self._headers:
            if len(self._headers) >= _KEPT_HEADERS:
                self._headers.clear()
            head = protocol.header(self.layouts.layout(fingerprint), self.options.encoding, key[1])
            self._headers[key] = len(head), checksum(head)
        return self._headers[key]

    def _selected(self, owner: int, fingerprint: int) -> Selected:
        """The columns of this dispatcher's rows that are written."""
        if self.rules.rules.selects_everything:
            return None
        queues = self.ledger.queues
        return self.rules.selected(
            queues.names.schemas[owner], queues.names.tables[owner], self.layouts.layout(fingerprint)
        )

    def plans(self, round_: Round) -> tuple[pa.Table, LandJob]:
        """One row for each file, and what all of them share. By columns: a round may have 20,000 files."""
        queues = self.ledger.queues
        items, ds, slots = queues.items, queues.dispatchers, round_.slots
        segments = {int(n): self.ledger.spool.path(int(n)) for n in np.unique(items.segment[slots])}
        owners, layouts = round_.dispatcher.tolist(), items.layout[slots[round_.bounds[:-1]]]
        targets = self._targets(queues.names.pairs(round_.dispatcher))
        own_directory = queues.lanes.own[round_.lane] | (ds.table_id[owners] != ds.logical_id[owners])
        separator = self.options.paths.date_separator
        dates = {number: date_of(number, separator) for number in np.unique(round_.date).tolist()}
        columns = [
            np.arange(len(round_)), round_.lane, [schema for schema, _ in targets], [table for _, table in targets],
            ds.table_id[owners], own_directory, [self._dispatcher(owner) for owner in owners],
            round_.version, round_.directory, layouts,
            [self._selected(owner, layout) for owner, layout in zip(owners, layouts.tolist(), strict=True)],
            [dates[number] for number in round_.date.tolist()], round_.number, round_.schema, round_.bytes,
            queues.lanes.tags.take(round_.lane),
            *(_lists(column[slots], round_.bounds) for column in (items.segment, items.offset, items.length)),
        ]  # fmt: skip
        rows = [pa.array(column, kind) for column, kind in zip(columns, PLANS.types, strict=True)]
        has_header = protocol.has_header(self.options.encoding)
        needed = self.layouts.find(np.unique(layouts if has_header else layouts[round_.schema != SETTLED]))
        texts = dict(zip(needed.fingerprint.tolist(), needed.text.to_pylist(), strict=True))
        share = self.ledger.planner.pace.lane_share
        job = LandJob(self.options, segments, texts, self.reader, self.foreign, share)
        return pa.Table.from_arrays(rows, schema=PLANS), job

    def schema_plans(self, writes: Sequence[Write], events: Mapping[Key, DdlEvent]) -> list[SchemaPlan]:
        """What a land task is told: the schema files of each DDL, in order. A DDL may have none."""
        options, plans = self.options, []
        for at, write in enumerate(writes):
            event = events[write.key]
            layouts = {
                table.layout: self.layouts.layout(table.layout) for table in event.tables if table.layout is not None
            }
            target, with_ids = self.rules.ddl_target, options.output_column_id
            plans.append(SchemaPlan(at, schema_files(event, write.key.ts, layouts, options.paths, target, with_ids)))
        return plans


def _lists(values: NDArray[np.integer], bounds: NDArray[np.int64]) -> pa.Array:
    """The values of each file as one list."""
    return pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), pa.array(values))
