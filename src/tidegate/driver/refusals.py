"""What a batch must not bring, besides what the ledger refuses: tables that share a target, splits that end.

Both end the changefeed: a route, a filter or an option must be changed first. The caller of `refuse_unsplittable` holds
the changefeed's lock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tidegate.control.ledger import Ddl, Ledger
from tidegate.errors import BadEvents, BadSetting
from tidegate.format.ddl.events import is_splitable
from tidegate.format.rules.changes import TableRules
from tidegate.format.tables import Layout


@dataclass
class SharedTargets:
    """A target belongs to the table that came first: a reader could not separate two tables with the same name."""

    rules: TableRules
    _tables: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)  # by target

    def refuse(self, rows: pa.Table) -> None:
        if self.rules.rules.routes_nothing:
            return
        for name in set(zip(rows["schema_name"].to_pylist(), rows["table_name"].to_pylist(), strict=True)):
            target = self.rules.target(*name)
            other = self._tables.setdefault(target, name)
            if other != name:
                one, two, both = (".".join(each) for each in (other, name, target))
                raise BadSetting(f"{one} and {two} are both routed to {both}; give each a target of its own")


def refuse_unsplittable(ddls: list[Ddl], ledger: Ledger, layouts: Mapping[int, str]) -> None:
    """A DDL must not leave a table that is split without the key by which it is split."""
    if ledger.spans == 1:
        return
    for table, query in ((table, ddl.event.query) for ddl in ddls for table in ddl.event.tables):
        fits = table.layout is None or is_splitable(Layout.from_json(layouts[table.layout]))
        if not fits and _is_split(ledger, table.table_id):
            raise BadEvents(
                f"`{query}` leaves {table.schema}.{table.table} without a primary key or with another unique key, "
                "so it cannot stay split (enable-splittable-check): turn the check off, or filter the table out"
            )


def _is_split(ledger: Ledger, table_id: int) -> bool:
    """Whether another span than the first has ever got a row."""
    spans = np.arange(1, ledger.spans)
    parts = ledger.queues.find(np.full(len(spans), table_id), spans)
    return bool((ledger.queues.dispatchers.accepted_ts[parts[parts >= 0]] >= 0).any())
