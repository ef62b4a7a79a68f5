"""What a batch must not bring, besides what the ledger refuses: other columns under one name, splits that end.

All of it ends the changefeed: a route, a filter, an option or the source must be changed first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidegate.control.blocking import Ddl
from tidegate.control.columns import Numbers
from tidegate.control.ledger import Ledger
from tidegate.control.versions import shared_versions
from tidegate.driver.ddl import layouts_of
from tidegate.driver.plans import PlanBook
from tidegate.errors import BadEvents
from tidegate.format.ddl.events import is_splitable


@dataclass
class Refusals:
    ledger: Ledger
    book: PlanBook
    splittable_check: bool

    def rows(self, rows: pa.Table) -> None:
        """Tables that land under one name have the same columns in one version: a reader knows one schema file for it.

        The caller holds the changefeed's lock.
        """
        with_ids = self.book.options.output_column_id
        for shared in shared_versions(rows, self.ledger.queues):
            one, two = (self.book.layouts.layout(key).listed(with_ids) for key in shared.layouts)
            if one != two:
                raise BadEvents(
                    f"tables {shared.table_ids[0]} and {shared.table_ids[1]} both land under {shared.target} with "
                    f"version {shared.version}, but have different columns; give them the same columns, different "
                    "table_versions, or a target each"
                )

    def compared_layouts(self, rows: pa.Table) -> Numbers:
        """Fingerprints of the layouts that `rows` looks at. The caller holds the changefeed's lock."""
        found = [shared.layouts for shared in shared_versions(rows, self.ledger.queues)]
        return np.array(found, np.int64).ravel()

    def ddls(self, ddls: Sequence[Ddl]) -> None:
        """The caller holds the changefeed's lock."""
        self._unknown_layouts(ddls)
        if self.splittable_check and self.ledger.spans > 1:
            self._unsplittable(ddls)

    def _unknown_layouts(self, ddls: Sequence[Ddl]) -> None:
        for ddl in ddls:
            unknown = set(self.book.layouts.missing(layouts_of([ddl])).tolist())
            missing = [table for table in ddl.event.tables if table.layout in unknown]
            if missing:
                raise BadEvents(
                    f"the DDL of commit-ts {ddl.key.ts} gives {missing[0].schema}.{missing[0].table} the layout "
                    f"{missing[0].layout}, which no layout row defines; a source sends it in the same or an earlier "
                    "batch"
                )

    def _unsplittable(self, ddls: Sequence[Ddl]) -> None:
        """A DDL must not leave a table that is split without the key by which it is split."""
        for table, query in ((table, ddl.event.query) for ddl in ddls for table in ddl.event.tables):
            fits = table.layout is None or is_splitable(self.book.layouts.layout(table.layout))
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
