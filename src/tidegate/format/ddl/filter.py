"""Which DDLs, and which parts of them, the rules of a changefeed keep: the allow-list, the filter, and event filters.

For a rename the filter looks at the old name (in several steps, the first one), for an exchange at both tables, for a
database at whether any of its tables may be kept. A table that the filter leaves out has no dispatcher, so a DDL of
only this table is ignored. From a DDL of several tables, the parts of such tables are removed, and their dispatchers
neither begin, end, move nor wait. A table that is renamed to a name that the filter leaves out ends with the DDL. A DDL
that an event filter leaves out writes no file, but its dispatchers still change.

What `kept` returns is what a builder of `scope.py` returns if the source says there which tables the filter keeps.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from tidegate.format.ddl import events as ddl
from tidegate.format.ddl.events import ACTION_NAMES, ALTERS, AddedTable, DdlEvent, Scope, TableAfter, is_replicated
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
        left = _for_kept(event, tables, self._filter)
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


def _for_kept(event: DdlEvent, kept: tuple[TableAfter, ...], tables: TableFilter) -> DdlEvent:
    """The event with these of its tables, and with what it does to their dispatchers only."""
    if event.type == ddl.EXCHANGE_PARTITION:
        return _one_side(event, tables)
    left_out = {i for table in set(event.tables).difference(kept) for i in _physical(table)}
    left = _without(event, left_out) if left_out else event
    if len(kept) < len(event.tables):
        query = "".join(table.query for table in kept) if all(table.query for table in kept) else event.query
        left = replace(left, tables=kept, query=query)
    return _ended(left, tables) if event.type in (ddl.RENAME_TABLE, ddl.RENAME_TABLES) else left


def _without(event: DdlEvent, ids: set[int]) -> DdlEvent:
    """The event without the dispatchers of these tables."""
    added = tuple(table for table in event.added if table.table_id not in ids)
    return replace(
        event,
        schema_id=added[0].schema_id if added else event.schema_id,
        blocked=_less(event.blocked, ids),
        dropped=_some(_less(event.dropped, ids)),
        added=added,
        updated_schemas=tuple(moved for moved in event.updated_schemas if moved.table_id not in ids),
    )


def _ended(event: DdlEvent, tables: TableFilter) -> DdlEvent:
    """The rename with those tables ended whose last name the filter leaves out: no row of them is read any more."""
    last = {table.table_id: table for table in event.tables}.values()
    gone = [i for table in last if not _matches(tables, table.schema, table.table) for i in _physical(table)]
    if not gone or (event.dropped is not None and event.dropped.kind != ddl.NORMAL):
        return event
    before = event.dropped.table_ids if event.dropped is not None else ()
    moved = tuple(each for each in event.updated_schemas if each.table_id not in gone)
    return replace(event, dropped=Scope(ddl.NORMAL, tuple(dict.fromkeys((*before, *gone)))), updated_schemas=moved)


def _one_side(event: DdlEvent, tables: TableFilter) -> DdlEvent:
    """An exchange of which the filter keeps one table: the id that this one had ends, the id that it got begins."""
    sides = [_matches(tables, table.schema, table.table) for table in event.tables]
    if event.tables and not event.tables[0].partitions:  # its source has no ids of partitions, so no id moves
        left_out = {table.table_id for table, kept in zip(event.tables, sides, strict=True) if not kept}
        return _without(event, left_out)
    ids = event.blocked.table_ids if event.blocked is not None else ()
    partition_id = event.tables[-1].table_id if event.tables else 0  # the exchanged table has it now
    others = [i for i in ids if i not in (ddl.TRIGGER, partition_id)]
    if all(sides) or event.dropped is not None or len(sides) != 2 or len(others) != 1:
        return event
    moves = {moved.table_id: moved.new_schema_id for moved in event.updated_schemas}
    old, new = (partition_id, others[0]) if sides[0] else (others[0], partition_id)
    return replace(
        event,
        blocked=Scope(ddl.NORMAL, (old, ddl.TRIGGER)),
        dropped=Scope(ddl.NORMAL, (old,)),
        added=(AddedTable(moves.get(new, event.schema_id), new),),
        updated_schemas=(),
    )


def _physical(table: TableAfter) -> tuple[int, ...]:
    return table.partitions or (table.table_id,)


def _less(scope: Scope | None, ids: set[int]) -> Scope | None:
    if scope is None or scope.kind != ddl.NORMAL:
        return scope
    return replace(scope, table_ids=tuple(i for i in scope.table_ids if i not in ids))


def _some(scope: Scope | None) -> Scope | None:
    return None if scope is not None and scope.kind == ddl.NORMAL and not scope.table_ids else scope


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
