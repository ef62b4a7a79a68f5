"""The dispatchers that a DDL names, which get a marker of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from tidegate.control.columns import Numbers
from tidegate.control.queues import Queues
from tidegate.format.ddl.events import NORMAL, TRIGGER, DdlEvent, Scope, should_block

_NO_PARTITIONS: Mapping[int, int] = {}


@dataclass
class Members:
    """Finds dispatchers by table id; those that are new, as of a table that is created, are numbered here."""

    queues: Queues
    spans: int

    def of(self, event: DdlEvent, receiver: int) -> Numbers:
        """The dispatchers that get a marker: of the tables that the DDL blocks, begins or ends by name.

        A DDL without a scope has the one that received it, for somebody must write. A DDL of a database or of all has
        the table trigger; the many others are compared, never listed.
        """
        scopes = [scope for scope in (event.blocked, event.dropped) if scope is not None and scope.kind == NORMAL]
        ids = dict.fromkeys(i for scope in scopes for i in scope.table_ids)
        ids |= dict.fromkeys(table.table_id for table in event.added)
        if event.blocked is None and event.tables and not event.not_sync:
            ids[receiver] = None
        if event.blocked is not None and event.blocked.kind != NORMAL:
            ids[TRIGGER] = None
        numbers = self.numbers(ids, {part: table.table_id for table in event.tables for part in table.partitions})
        for table in event.added:
            self.queues.dispatchers.schema_id[self.numbers((table.table_id,))] = table.schema_id
        return numbers

    def numbers(self, table_ids: Iterable[int], logical: Mapping[int, int] = _NO_PARTITIONS) -> Numbers:
        """All dispatchers of these tables, one per span; `logical` has the tables that partitions belong to."""
        ids = [(i, span) for i in table_ids for span in range(self.spans if i != TRIGGER else 1)]
        columns = zip(*((i, span, logical.get(i, i)) for i, span in ids), strict=True) if ids else ((), (), ())
        table_id, span, owner = (np.array(column, np.int64) for column in columns)
        return self.queues.number(table_id, span, owner)

    def must_meet(self, event: DdlEvent) -> bool:
        """Whether dispatchers meet in the barrier. A DDL of one dispatcher need not, if that one is the whole table."""
        complete = self.spans == 1 or event.blocked == Scope(NORMAL, (TRIGGER,))  # the trigger is never split
        return should_block(event, complete)
