"""The driver's part in DDLs: what comes in items becomes events, what the ledger wants written becomes land jobs.

A DDL's schema files are written by a land task like data files, together with those of other DDLs that are due. What
fails is retried after a pause; DDLs of other tables go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.clock import Clock
from tidegate.control.barrier import Key, Write
from tidegate.control.blocking import Ddl
from tidegate.control.columns import Numbers
from tidegate.control.ledger import Ledger
from tidegate.control.markers import Block
from tidegate.control.order import Name
from tidegate.control.schema_writes import SchemaWrites
from tidegate.driver.jobs import Jobs
from tidegate.driver.life import Life, Work
from tidegate.driver.log import log
from tidegate.driver.observer import Observer
from tidegate.driver.plans import PlanBook
from tidegate.events import DDL
from tidegate.executor.rows import LANDED, SchemaPlan
from tidegate.format.ddl.events import DdlEvent
from tidegate.format.ddl.filter import DdlRules
from tidegate.format.rules.rules import Rules
from tidegate.wording import human_seconds

_OVER = {
    "written": "DDL %d/%d is over after %s, its schema files are written: %s",
    "passed": "DDL %d/%d is over after %s, it has no schema file: %s",
}
_QUERY = 200  # letters of a query in the log


def read_ddls(items: pa.Table, rules: Rules) -> tuple[list[Ddl], int]:
    """The DDLs among the items that the filter leaves, and how many it does not."""
    rows = items.filter(pc.equal(items["kind"], DDL)).select(["first_ts", "first_seq", "table_id", "text"])
    if not rows.num_rows:  # by far the most batches
        return [], 0
    found: list[Ddl] = []
    ddl_rules = DdlRules(rules)
    for row in rows.to_pylist():
        event = ddl_rules.kept(DdlEvent.from_json(row["text"] or ""))
        if event is not None:
            key = Key(row["first_ts"], row["first_seq"])
            found.append(Ddl(key, row["table_id"] or 0, event, _targets(event, rules)))
    return found, rows.num_rows - len(found)


def _targets(event: DdlEvent, rules: Rules) -> tuple[Name, ...]:
    """The names of the DDL's tables on the sink, before and after it, where routes may change them."""
    if rules.routes_nothing or event.not_sync:
        return ()
    names = [(table.schema, table.table) for table in event.tables]
    names += [(table.old_schema, table.old_table) for table in event.tables if table.old_table]
    return tuple(rules.routes.target(*name) for name in names)


def _short(event: DdlEvent) -> str:
    """The query on one line, as it fits into a log."""
    query = " ".join(event.query.split())
    return query if len(query) <= _QUERY else f"{query[:_QUERY]}..."


def layouts_of(ddls: Sequence[Ddl]) -> Numbers:
    """Fingerprints of the layouts that these DDLs give to tables, sorted."""
    found = [table.layout for ddl in ddls for table in ddl.event.tables if table.layout is not None]
    return np.unique(np.array(found, np.int64))


@dataclass
class DdlWriter:
    life: Life
    clock: Clock
    ledger: Ledger
    book: PlanBook
    observer: Observer
    jobs: Jobs
    _writes: SchemaWrites = field(default_factory=SchemaWrites)

    def collect(self, now: float) -> None:
        """Take the DDLs that have drained since the last look. The caller holds the lock."""
        if fresh := self.ledger.schema_writes(now):
            self._writes.add(fresh, now)
            self.life.notify()

    def next_work(self, now: float) -> Work | None:
        """Writing the schema files that are due, if any are. The caller holds the lock."""
        self.collect(now)
        if self.ledger.planner.closing:
            self._writes.shorten_pauses(now)
        writes = self._writes.take_due(now)
        return partial(self._write, writes) if writes else None

    def _write(self, writes: list[Write]) -> None:
        """The schema files of these DDLs, in one land job; a DDL that has none is over at once."""
        with self.life.lock:
            events = {write.key: self.ledger.blocking.blocks[write.key].event for write in writes}
            plans = self.book.schema_plans(writes, events)
        with_files = [plan for plan in plans if plan.files]
        receipts = self._land(with_files) if with_files else []
        answers = {receipt["file"]: receipt for receipt in receipts}
        written = []
        for plan, write in zip(plans, writes, strict=True):
            answer = answers.get(plan.file)
            if answer is None or answer["outcome"] == LANDED:
                written.append((write, "written" if plan.files else "passed"))
            else:
                self._failed(write, events[write.key], answer["error"] or "no answer")
        self._written(written)
        self.observer.count_schema_files(
            [receipt["schema_write_s"] for receipt in receipts], sum(receipt["requests"] for receipt in receipts)
        )

    def _land(self, plans: list[SchemaPlan]) -> list[dict[str, Any]]:
        with self.observer.land_job(items=0):
            receipts: list[dict[str, Any]] = self.jobs.land_schemas(plans, self.book.options).to_pylist()
        return receipts

    def _written(self, written: list[tuple[Write, str]]) -> None:
        """All at once, because every notice wakes the other land threads."""
        over: list[tuple[Block, str]] = []
        with self.life.lock:
            for write, outcome in written:
                self._writes.done(write)
                over += [(block, outcome) for block in self.ledger.schema_written(write)]
            now = self.clock.steady()
            self.life.notify()
        for block, outcome in over:
            log.info(
                _OVER[outcome], block.key.ts, block.key.seq, human_seconds(now - block.arrived), _short(block.event)
            )
            self.observer.ddl_over(block, outcome, now)

    def _failed(self, write: Write, event: DdlEvent, error: str) -> None:
        with self.life.lock:
            if self.observer.ddl_failed(write.key, error):
                log.warning("cannot write the schema file of `%s`, will retry: %s", event.query, error)
            self._writes.failed(write, self.clock.steady())
        self.observer.retried()
