"""What land tasks are told about a round's files, and what the journal records of them.

Everything here follows from the settings, the layouts and the ledger; whoever calls holds the changefeed's lock.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tidegate.config.settings import Settings
from tidegate.control.blocking import Ddl
from tidegate.control.columns import Ints
from tidegate.control.ledger import Ledger
from tidegate.control.rounds import Round
from tidegate.driver.journal import date_of, file_rows
from tidegate.errors import BadEvents, BadSetting
from tidegate.executor.land import LandJob
from tidegate.executor.rows import PLANS
from tidegate.format.ddl.events import is_splitable
from tidegate.format.encode import protocol
from tidegate.format.encode.spans import dispatcher_id
from tidegate.format.rules.changes import Selected, TableRules
from tidegate.format.tables import Layout
from tidegate.storage.store import StoreOpener


@dataclass
class PlanBook:
    settings: Settings
    ledger: Ledger
    layouts: dict[int, str]  # shared with the changefeed, which adds to it
    open_store: StoreOpener
    foreign: bool = False  # files of another writer stand on this sink
    _sources: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)  # who lands under each target name
    _header_bytes: dict[tuple[int, Selected], int] = field(default_factory=dict)
    _parsed: dict[int, Layout] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rules = TableRules(self.settings.rules)

    def files(self, round_: Round) -> pa.Table:
        queues = self.ledger.queues
        owners = round_.dispatcher.tolist()
        names = queues.names.pairs(round_.dispatcher)
        targets = self._targets(names)
        heads = np.zeros(len(round_), np.int64)
        if protocol.has_header(self.settings.encoding):
            layouts = queues.items.layout[round_.slots[round_.bounds[:-1]]].tolist()
            heads += [self._head_bytes(owner, key) for owner, key in zip(owners, layouts, strict=True)]
        return file_rows(round_, self.ledger, names, targets, [self._dispatcher(owner) for owner in owners], heads)

    def _targets(self, names: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """The names that these tables land under; without routes their own, and none is kept for each table."""
        if self.settings.rules.routes_nothing:
            return names
        return [self.rules.target(*name) for name in names]

    def _dispatcher(self, owner: int) -> str:
        """The id of this dispatcher in names of files; nothing where tables are not split."""
        if not self.settings.across_nodes:
            return ""
        ds = self.ledger.queues.dispatchers
        return dispatcher_id(self.settings.changefeed_id, int(ds.table_id[owner]), int(ds.span[owner]))

    def _head_bytes(self, owner: int, fingerprint: int) -> int:
        key = (fingerprint, self._selected(owner, fingerprint))
        if key not in self._header_bytes:
            head = protocol.header(self.layout(fingerprint), self.settings.encoding, key[1])
            self._header_bytes[key] = len(head)
        return self._header_bytes[key]

    def layout(self, fingerprint: int) -> Layout:
        if fingerprint not in self._parsed:
            self._parsed[fingerprint] = Layout.from_json(self.layouts[fingerprint])
        return self._parsed[fingerprint]

    def _selected(self, owner: int, fingerprint: int) -> Selected:
        """The columns of this dispatcher's rows that are written."""
        if self.settings.rules.selects_everything:
            return None
        queues = self.ledger.queues
        return self.rules.selected(queues.names.schemas[owner], queues.names.tables[owner], self.layout(fingerprint))

    def plans(self, round_: Round) -> tuple[pa.Table, LandJob]:
        """One row for each file, and what all of them share. By columns: a round may have 20,000 files."""
        queues = self.ledger.queues
        items, ds, slots = queues.items, queues.dispatchers, round_.slots
        segments = {int(n): self.ledger.spool.path(int(n)) for n in np.unique(items.segment[slots])}
        owners, layouts = round_.dispatcher.tolist(), items.layout[slots[round_.bounds[:-1]]]
        targets = self._targets(queues.names.pairs(round_.dispatcher))
        dates = {number: date_of(number, self.settings.date_separator) for number in np.unique(round_.date).tolist()}
        columns = [
            np.arange(len(round_)), round_.lane, [schema for schema, _ in targets], [table for _, table in targets],
            ds.table_id[owners], ds.logical_id[owners], [self._dispatcher(owner) for owner in owners],
            round_.version, round_.directory, layouts,
            [self._selected(owner, layout) for owner, layout in zip(owners, layouts.tolist(), strict=True)],
            [dates[number] for number in round_.date.tolist()], round_.number, round_.schema, round_.bytes,
            *(_lists(column[slots], round_.bounds) for column in (items.segment, items.offset, items.length)),
        ]  # fmt: skip
        rows = [pa.array(column, kind) for column, kind in zip(columns, PLANS.types, strict=True)]
        shared = {int(key): self.layouts[int(key)] for key in np.unique(layouts)}
        return pa.Table.from_arrays(rows, schema=PLANS), self.job(segments, shared)

    def job(self, segments: dict[int, str], layouts: dict[int, str]) -> LandJob:
        s = self.settings
        return LandJob(
            segments,
            layouts,
            self.settings.paths,
            s.encoding,
            s.sink_uri,
            s.access,
            self.open_store,
            s.worker_count,
            s.output_column_id,
            foreign=self.foreign,
        )

    def refuse_unsplittable(self, ddls: list[Ddl]) -> None:
        """A table that is split must stay so if the user wants it checked."""
        if self.ledger.spans == 1 or not self.settings.splittable_check:
            return
        for table, query in ((table, ddl.event.query) for ddl in ddls for table in ddl.event.tables):
            fits = table.layout is None or is_splitable(self.layout(table.layout))
            if not fits and self._is_split(table.table_id):
                raise BadEvents(
                    f"`{query}` leaves {table.schema}.{table.table} without a primary key or with another unique key, "
                    "so it cannot stay split (enable-splittable-check): turn the check off, or filter the table out"
                )

    def _is_split(self, table_id: int) -> bool:
        """Whether another span than the first has ever got a row."""
        spans = np.arange(1, self.ledger.spans)
        parts = self.ledger.queues.find(np.full(len(spans), table_id), spans)
        return bool((self.ledger.queues.dispatchers.accepted_ts[parts[parts >= 0]] >= 0).any())

    def refuse_shared_targets(self, rows: pa.Table) -> None:
        """Two tables under one name could not be told apart any more."""
        if self.settings.rules.routes_nothing:
            return
        for name in set(zip(rows["schema_name"].to_pylist(), rows["table_name"].to_pylist(), strict=True)):
            target = self.rules.target(*name)
            other = self._sources.setdefault(target, name)
            if other != name:
                one, two, both = (".".join(each) for each in (other, name, target))
                raise BadSetting(f"{one} and {two} are both routed to {both}; give each a target of its own")


def _lists(values: Ints, bounds: Ints) -> pa.Array:
    """The values of each file as one list."""
    return pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), pa.array(values))
