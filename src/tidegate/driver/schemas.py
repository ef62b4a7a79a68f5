"""The driver's part in DDLs: what comes in items becomes events, what the ledger wants written becomes land jobs.

A DDL's schema files are written by a land task like data files, together with those of other DDLs that are due. What
failed and may pass is tried again after a pause; DDLs of other tables go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.config.settings import Settings
from tidegate.control.barrier import Key, Write
from tidegate.control.ledger import Ddl
from tidegate.control.retries import pause_s
from tidegate.driver.plans import PlanBook
from tidegate.errors import BadEvents
from tidegate.events import DDL
from tidegate.format.ddl.events import DdlEvent
from tidegate.format.ddl.files import schema_files
from tidegate.format.ddl.filter import DdlRules

_CLOSING_PAUSE_S = 0.5
_MOST_AT_ONCE = 100
_NEVER = float("inf")


def read_ddls(items: pa.Table, settings: Settings) -> tuple[list[Ddl], int]:
    """The DDLs among the items that the filter leaves, and how many it does not."""
    rows = items.filter(pc.equal(items["kind"], DDL)).select(["first_ts", "first_seq", "table_id", "text"])
    if not rows.num_rows:  # by far the most batches
        return [], 0
    found: list[Ddl] = []
    rules = DdlRules(settings.rules)
    for row in rows.to_pylist():
        event = rules.kept(DdlEvent.from_json(row["text"] or ""))
        if event is not None:
            found.append(Ddl(Key(row["first_ts"], row["first_seq"]), row["table_id"] or 0, event))
    return found, rows.num_rows - len(found)


def refuse_unknown_layouts(ddls: Iterable[Ddl], known: Mapping[int, str]) -> None:
    for ddl in ddls:
        missing = [table for table in ddl.event.tables if table.layout is not None and table.layout not in known]
        if missing:
            raise BadEvents(
                f"the DDL of commit-ts {ddl.key.ts} gives {missing[0].schema}.{missing[0].table} the layout "
                f"{missing[0].layout}, which no layout row defines; a source sends it in the same or an earlier batch"
            )


@dataclass
class SchemaWrites:
    """The writes that wait: each with the moment from which on it may be tried."""

    _waiting: dict[Write, float] = field(default_factory=dict)
    _tries: dict[Write, int] = field(default_factory=dict)

    def add(self, writes: Iterable[Write], now: float) -> None:
        self._waiting.update(dict.fromkeys(writes, now))

    def due(self, now: float, closing: bool) -> list[Write]:
        """Those to be tried now; they are taken out. Closing waits out no long pause."""
        most = now + _CLOSING_PAUSE_S if closing else _NEVER
        self._waiting = {write: min(at, most) for write, at in self._waiting.items()}
        found = sorted(write for write, at in self._waiting.items() if at <= now)[:_MOST_AT_ONCE]
        for write in found:
            del self._waiting[write]
        return found

    def failed(self, write: Write, now: float) -> None:
        tries = self._tries[write] = self._tries.get(write, 0) + 1
        self._waiting[write] = now + pause_s(tries - 1, write.key.ts)

    def done(self, write: Write) -> None:
        self._tries.pop(write, None)


def schema_plans(
    writes: list[Write], events: Mapping[Key, DdlEvent], settings: Settings, book: PlanBook
) -> list[dict[str, Any]]:
    """What a land task is told: the files of each DDL, in order; one without files has an empty list."""
    plans = []
    for at, write in enumerate(writes):
        event = events[write.key]
        layouts = {table.layout: book.layout(table.layout) for table in event.tables if table.layout is not None}
        files = schema_files(
            event, write.key.ts, layouts, settings.paths, book.rules.ddl_target, settings.output_column_id
        )
        plans.append({"file": at, "lane": at, "files": [tuple(file) for file in files]})
    return plans
