"""What of a DDL a changefeed's rules leave: its filter decides about tables, its event filters about single DDLs.

A table that the filter leaves out has no dispatcher, so a DDL about it alone is nothing to us; of a DDL of several
tables those pieces are cut away. What an event filter leaves out is not written, but its dispatchers change all the
same.
"""

from __future__ import annotations

from dataclasses import replace

from tidegate.format import ddl
from tidegate.format.ddl import DdlEvent, TableAfter
from tidegate.format.ddl_scope import RenameIntoFilter, apply_event_filter
from tidegate.format.matching import go_regex
from tidegate.format.rules import EventFilter, Rules

# The names that `ignore-event` knows DDLs by, where they are not those of the actions.
_EVENTS = {
    ddl.CREATE_DATABASE: ("create schema", "create database"), ddl.DROP_DATABASE: ("drop schema", "drop database"),
    ddl.DATABASE_CHARSET: ("modify schema charset and collate",), ddl.RENAME_TABLES: ("rename table",),
    ddl.CREATE_TABLES: ("create table",), ddl.ADD_PARTITION: ("add table partition",),
    ddl.DROP_PARTITION: ("drop table partition",), ddl.TRUNCATE_PARTITION: ("truncate table partition",),
    ddl.EXCHANGE_PARTITION: ("exchange table partition",), ddl.REORGANIZE_PARTITION: ("reorganize table partition",),
    ddl.PARTITION_BY: ("alter table partitioning",), ddl.REMOVE_PARTITIONING: ("remove table partitioning",),
    ddl.ALTERS["add index"]: ("create index",), ddl.ALTERS["set default"]: ("set default value",),
    ddl.ALTERS["table comment"]: ("modify table comment",), ddl.ALTERS["add columns"]: ("add column",),
    ddl.ALTERS["table charset"]: ("modify table charset and collate",), ddl.ALTERS["drop columns"]: ("drop column",),
    ddl.ALTERS["index visibility"]: ("alter index visibility",), ddl.ALTERS["ttl"]: ("alter ttl info",),
    ddl.ALTERS["remove ttl"]: ("alter ttl remove",), ddl.ALTERS["full-text index"]: ("add fulltext index",),
    ddl.ALTERS["hybrid index"]: ("create hybrid index",), ddl.ALTERS["multi-schema change"]: ("multi schema change",),
}  # fmt: skip


def kept_ddl(event: DdlEvent, rules: Rules) -> DdlEvent | None:
    """The event as it is to be carried out; None if the filter leaves nothing of it."""
    kept = tuple(table for table in event.tables if _is_kept(table, rules))
    if event.tables and not kept:
        return None
    whole = replace(event, tables=kept) if len(kept) < len(event.tables) else event
    if not rules.event_filters.filters:
        return whole

    def ignored(schema: str, table: str, query: str) -> bool:
        found = rules.event_filters.matching(schema, table)
        return any(_ignores(one, event.type, query) for one in found)

    return apply_event_filter(whole, ignored)


def _is_kept(table: TableAfter, rules: Rules) -> bool:
    if not table.table:
        return rules.filter.matches_schema(table.schema)
    now = rules.filter.matches(table.schema, table.table)
    if not table.old_table:
        return now
    before = rules.filter.matches(table.old_schema, table.old_table)
    if now and not before:
        raise RenameIntoFilter(
            f"{table.old_schema}.{table.old_table}, which the filter leaves out, is renamed to "
            f"{table.schema}.{table.table}, which it keeps: what the table holds was never read; filter both or none"
        )
    return before


def _ignores(filter_: EventFilter, action: int, query: str) -> bool:
    names = {"all", "all ddl", *_EVENTS.get(action, (ddl.ACTION_NAMES.get(action, ""),))}
    if action in ddl.ALTERS.values():
        names.add("alter table")
    by_name = bool(names & set(filter_.ignore_event))
    return by_name or any(go_regex(text, case_sensitive=False).search(query) for text in filter_.ignore_sql)
