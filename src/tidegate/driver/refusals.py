"""What a batch must not bring, besides what the ledger refuses: tables that share a target, splits that end.

All of it ends the changefeed: a route, a filter, an option or the source must be changed first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tidegate.control.blocking import Ddl
from tidegate.control.ledger import Ledger
from tidegate.driver.ddl import layouts_of
from tidegate.driver.plans import PlanBook
from tidegate.errors import BadEvents, BadSetting
from tidegate.format.ddl.events import is_splitable


@dataclass
class Refusals:
    ledger: Ledger
    book: PlanBook
    splittable_check: bool
    _targets: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)  # the first table by its target

    def shared_targets(self, rows: pa.Table) -> None:
        """A target belongs to the table that came first: a reader could not separate two tables with the same name."""
        if self.book.rules.rules.routes_nothing:
            return
        for name in set(zip(rows["schema_name"].to_pylist(), rows["table_name"].to_pylist(), strict=True)):
            target = self.book.rules.target(*name)
            other = self._targets.setdefault(target, name)
            if other != name:
                one, two, both = (".".join(each) for each in (other, name, target))
                raise BadSetting(f"{one} and {two} are both routed to {both}; give each a target of its own")

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
