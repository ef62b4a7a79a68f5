"""Which DDLs, and which parts of them, the rules of a changefeed keep: the allow-list, the filter, and event filters.

For a rename the filter looks at the old name (in several steps, the first one), for an exchange at both tables, for a
database at whether any of its tables may be kept. A table that the filter leaves out has no dispatcher, so a DDL of
only this table is ignored. From a DDL of several tables, the parts of such tables are removed. A DDL that an event
filter leaves out writes no file, but its dispatchers still change.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from tidegate.format.ddl import events as ddl
from tidegate.format.ddl.events import ACTION_NAMES, ALTERS, DdlEvent, TableAfter, is_replicated
from tidegate.format.ddl.scope import RenameIntoFilter, apply_event_filter
from tidegate.format.rules.matching import GoRegex, TablePatterns
from tidegate.format.rules.rules import EventFilter, EventFilters, Rules, TableFilter

# The names that event filters use for actions, if they differ from those of `ACTIONS`.
_EVENT_NAMES = {
    "database charset": ("modify schema charset and collate",),
    "create database": ("create database", "create schema"),
    "drop database": ("drop database", "drop schema"),
    "create tables": ("create table",),
    "rename tables": ("rename table",),
    "add partition": ("add table partition",),
    "drop partition": ("drop table partition",),
    "truncate partition": ("truncate table partition",),
    "exchange partition": ("exchange table partition",),
    "reorganize partition": ("reorganize table partition",),
    "partition by": ("alter table partitioning",),
    "remove partitioning": ("remove table partitioning",),
    "table comment": ("modify table comment",),
    "table charset": ("modify table charset and collate",),
    "set default": ("set default value",),
    "add columns": ("add column",),
    "drop columns": ("drop column",),
    "add index": ("create index",),
    "index visibility": ("alter index visibility",),
    "full-text index": ("add fulltext index",),
    "hybrid index": ("create hybrid index",),
    "ttl": ("alter ttl info",),
    "remove ttl": ("alter ttl remove",),
    "multi-schema change": ("multi schema change",),
}
_ALTER_TABLE = frozenset(
    (
        *ALTERS.values(),
        *(ddl.RENAME_TABLE, ddl.RENAME_TABLES, ddl.EXCHANGE_PARTITION, ddl.PARTITION_BY, ddl.REMOVE_PARTITIONING),
        *(ddl.ADD_PARTITION, ddl.DROP_PARTITION, ddl.TRUNCATE_PARTITION, ddl.REORGANIZE_PARTITION),
    )
)


def event_names(action: int) -> frozenset[str]:
    """`{"all", "all ddl", "alter table", "create index"}` for an index: all names that an event filter may use."""
    name = ACTION_NAMES[action]
    alter = ("alter table",) if action in _ALTER_TABLE else ()
    return frozenset(("all", "all ddl", *alter, *_EVENT_NAMES.get(name, (name,))))


class _Ignoring(NamedTuple):
    """One event filter, with its patterns compiled."""

    tables: TablePatterns
    events: frozenset[str]
    texts: tuple[GoRegex, ...]

    def ignores(self, schema: str, table: str, query: str, names: frozenset[str]) -> bool:
        if not (self.tables.matches(schema, table) if table else self.tables.matches_schema(schema)):
            return False
        return bool(self.events & names) or any(text.matches(query) for text in self.texts)


class DdlRules:
    """The rules of a changefeed, as far as they apply to DDLs."""

    def __init__(self, rules: Rules) -> None:
        self._filter = rules.filter
        self._ignoring = [_ignoring(each, rules.event_filters) for each in rules.event_filters.filters]

    def kept(self, event: DdlEvent) -> DdlEvent | None:
        """The event with the parts that the filter keeps; None if it keeps no part."""
        tables = _kept(event, self._filter)
        if event.tables and not tables:
            return None
        left = replace(event, tables=tables)
        if not self._ignoring or not is_replicated(event.type):
            return left
        names = event_names(event.type)

        def ignored(schema: str, table: str, query: str) -> bool:
            return any(each.ignores(schema, table, query, names) for each in self._ignoring)

        return apply_event_filter(left, ignored)

    def written(self, event: DdlEvent) -> DdlEvent | None:
        """The event with the tables whose schema files are written; None if no file is written."""
        if not is_replicated(event.type):
            return None
        left = self.kept(event)
        return left if left is not None and left.tables and not left.not_sync else None


def _ignoring(of: EventFilter, filters: EventFilters) -> _Ignoring:
    texts = tuple(GoRegex(text, case_sensitive=False) for text in of.ignore_sql)
    return _Ignoring(TablePatterns(of.matcher, filters.case_sensitive), frozenset(of.ignore_event), texts)


def _kept(event: DdlEvent, tables: TableFilter) -> tuple[TableAfter, ...]:
    """The tables that the filter keeps. An error if a rename brings a table from a left out name to a kept one."""
    _refuse_unread(event, tables)
    if event.type == ddl.EXCHANGE_PARTITION:
        return event.tables if any(_matches(tables, *_before(table)) for table in event.tables) else ()
    if event.type == ddl.RENAME_TABLES:
        first = {table.table_id: table for table in reversed(event.tables)}
        return tuple(table for table in event.tables if _matches(tables, *_before(first[table.table_id])))
    return tuple(table for table in event.tables if _matches(tables, *_before(table)))


def _refuse_unread(event: DdlEvent, tables: TableFilter) -> None:
    first = {table.table_id: table for table in reversed(event.tables)}
    last = {table.table_id: table for table in event.tables}
    for table_id, after in last.items():
        before = first[table_id]
        if before.old_table and not _matches(tables, *_before(before)) and _matches(tables, after.schema, after.table):
            raise RenameIntoFilter(
                f"{'.'.join(_before(before))}, which the filter leaves out, is renamed to {after.schema}.{after.table}"
                ", which it keeps: the rows of the table were never read; let the filter keep both names or neither"
            )


def _before(table: TableAfter) -> tuple[str, str]:
    return (table.old_schema, table.old_table) if table.old_table else (table.schema, table.table)


def _matches(tables: TableFilter, schema: str, table: str) -> bool:
    return tables.matches(schema, table) if table else tables.matches_schema(schema)
