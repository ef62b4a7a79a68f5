"""The driver's part in DDLs: what comes in items becomes events, what the ledger wants written becomes land jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.config.settings import Settings
from tidegate.control.barrier import Key, Write
from tidegate.control.blocking import Ddl
from tidegate.driver.plans import PlanBook
from tidegate.errors import BadEvents
from tidegate.events import DDL
from tidegate.format.ddl.events import DdlEvent
from tidegate.format.ddl.files import schema_files
from tidegate.format.ddl.filter import DdlRules


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
