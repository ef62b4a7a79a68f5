"""The dispatchers that a DDL names, which get a marker of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidegate.control.columns import Numbers
from tidegate.control.queues import Queues
from tidegate.format.ddl.events import ALL, NORMAL, TRIGGER, AddedTable, DdlEvent, Scope, should_block


def named_tables(event: DdlEvent, receiver: int) -> dict[int, None]:
    """The ids of the tables that the DDL names: those that it blocks, ends or begins, or the one that received it."""
    scopes = [scope for scope in (event.blocked, event.dropped) if scope is not None and scope.kind == NORMAL]
    ids = dict.fromkeys(i for scope in scopes for i in scope.table_ids)
    ids |= dict.fromkeys(table.table_id for table in event.added)
    if event.blocked is None and event.tables and not event.not_sync:
        ids[receiver] = None
    return ids


def wide_scope(event: DdlEvent) -> Scope | None:
    """The database, or all, that the DDL blocks; None if it blocks tables by name."""
    return event.blocked if event.blocked is not None and event.blocked.kind != NORMAL else None


@dataclass
class Members:
    """Finds dispatchers by table id; those that are new, as of a table that is created, are numbered here."""

    queues: Queues
    spans: int

    def of(self, events: Sequence[tuple[DdlEvent, int]]) -> list[Numbers]:
        """For each DDL and its receiver the dispatchers that get a marker: those it blocks, begins or ends by name.

        A DDL without a scope has the one that received it, for somebody must write. A DDL of a database or of all has
        the table trigger; the many others are compared, never listed. All are numbered in one step: there may be
        thousands of DDLs, each with a table that is new.
        """
        named = [named_tables(event, receiver) for event, receiver in events]
        for ids, (event, _) in zip(named, events, strict=True):
            if wide_scope(event) is not None:
                ids[TRIGGER] = None
        owned = [{part: table.table_id for table in event.tables for part in table.partitions} for event, _ in events]
        pairs = [(i, parts.get(i, i)) for ids, parts in zip(named, owned, strict=True) for i in ids]
        flat = self._number(pairs)
        self._note_begun([table for event, _ in events for table in event.added])
        counts = [sum(self._spans_of(i) for i in ids) for ids in named]
        return np.split(flat, np.cumsum(counts)[:-1]) if counts else []

    def _note_begun(self, added: Sequence[AddedTable]) -> None:
        numbers = self.numbers(table.table_id for table in added)
        databases = np.array([table.schema_id for table in added], np.int64)
        self.queues.dispatchers.schema_id[numbers] = np.repeat(databases, self.spans)

    def known(self, event: DdlEvent, receiver: int) -> Numbers:
        """The dispatchers that the DDL touches, as far as they are known now; none is added."""
        wide = wide_scope(event)
        if wide is not None:
            known = self.queues.known()
            return known if wide.kind == ALL else known[self._in_database(known, wide.schema_id)]
        ids = np.array(list(named_tables(event, receiver)), np.int64)
        found = self.queues.find(np.repeat(ids, self.spans), np.tile(np.arange(self.spans), len(ids)))
        return found[found >= 0]

    def _in_database(self, dispatcher: Numbers, schema_id: int) -> NDArray[np.bool_]:
        return np.asarray(self.queues.dispatchers.schema_id[dispatcher] == schema_id)

    def numbers(self, table_ids: Iterable[int]) -> Numbers:
        """All dispatchers of these tables, one per span."""
        return self._number([(i, i) for i in table_ids])

    def _number(self, tables: Sequence[tuple[int, int]]) -> Numbers:
        """All dispatchers of these, given as physical and logical ids. A new one keeps the first logical id."""
        rows = [(i, span, logical) for i, logical in tables for span in range(self._spans_of(i))]
        table_id, span, logical_id = np.array(rows, np.int64).reshape(-1, 3).T
        return self.queues.number(table_id, span, logical_id)

    def _spans_of(self, table_id: int) -> int:
        return self.spans if table_id != TRIGGER else 1  # the trigger is never split

    def first_numbers(self, table_ids: Sequence[int]) -> list[int]:
        """Of each of these tables the dispatcher of its first span."""
        ids = np.array(table_ids, np.int64)
        return [int(number) for number in self.queues.number(ids, np.zeros_like(ids), ids)]

    def must_meet(self, event: DdlEvent) -> bool:
        """Whether dispatchers meet in the barrier. A DDL of one dispatcher need not, if that one is the whole table."""
        complete = self.spans == 1 or event.blocked == Scope(NORMAL, (TRIGGER,))
        return should_block(event, complete)
