"""Which changes are landed, which of their columns, and under which names: TiCDC's rules for tables.

    [filter] rules                   which tables; never those of the system schemas
    [[filter.event-filters]]         which kinds of change of a table are left out
    [filter] ignore-txn-start-ts     which transactions are left out
    [[sink.column-selectors]]        which columns of a table are shown
    [[sink.dispatchers]] target-*    under which names a table is landed

Rules are plain values: made once from option text, sent to executors, asked about names and column layouts. They match
the names of the source; paths and rows use the names that `Routes.target` gives. `Rules()` keeps and changes all as is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property

from tidegate.errors import BadSetting
from tidegate.events import ROW_KINDS
from tidegate.format.rules.matching import ColumnPatterns, GoRegex, TablePatterns
from tidegate.format.tables import Layout
from tidegate.wording import hint

Name = tuple[str, str]  # schema and table
Positions = tuple[int, ...]

SYSTEM_SCHEMAS = frozenset(
    (
        *("mysql", "sys", "information_schema", "performance_schema", "metrics_schema", "inspection_schema"),
        *("workload_schema", "dm_heartbeat", "lightning_task_info", "tidb_cdc"),
    )
)


def is_system_schema(schema: str) -> bool:
    """True for `mysql`, `INFORMATION_SCHEMA` and so on. No rule can include them."""
    return schema.lower() in SYSTEM_SCHEMAS


@dataclass(frozen=True)
class TableFilter:
    """`TableFilter(("shop.*", "!shop.log")).matches("shop", "orders")` is True; an empty list means `*.*`."""

    rules: tuple[str, ...] = ("*.*",)
    case_sensitive: bool = False

    def __post_init__(self) -> None:
        _ = self._patterns

    def matches(self, schema: str, table: str) -> bool:
        return not is_system_schema(schema) and self._patterns.matches(schema, table)

    def matches_schema(self, schema: str) -> bool:
        """Whether DDLs of the schema itself (CREATE DATABASE) are kept."""
        return not is_system_schema(schema) and self._patterns.matches_schema(schema)

    @property
    def takes_all(self) -> bool:
        """Whether every table matches, except those of the system schemas."""
        return set(self.rules) <= {"*.*"}

    @property
    def takes_nothing(self) -> bool:
        """Whether no table can match: all rules take out."""
        return self._patterns.takes_nothing

    @cached_property
    def _patterns(self) -> TablePatterns:
        return TablePatterns(self.rules or ("*.*",), self.case_sensitive)


_EVERY_KIND = frozenset(ROW_KINDS)
_KINDS_OF_EVENT = {kind: frozenset((kind,)) for kind in ROW_KINDS} | dict.fromkeys(("all dml", "all"), _EVERY_KIND)
_DDL_EVENTS = """
    all ddl, alter table, create schema, create database, drop schema, drop database, modify schema charset and collate,
    create table, drop table, truncate table, rename table, recover table, modify table comment,
    modify table charset and collate, create view, drop view, mview refresh out of place cutover,
    add table partition, drop table partition, truncate table partition, exchange table partition,
    reorganize table partition, alter table partitioning, remove table partitioning,
    add column, drop column, modify column, set default value, rebase auto id, add primary key, drop primary key,
    create index, drop index, rename index, alter index visibility, add fulltext index, create hybrid index,
    alter ttl info, alter ttl remove, multi schema change, add foreign key, drop foreign key
    """
DDL_EVENTS = frozenset(event.strip() for event in _DDL_EVENTS.split(","))


@dataclass(frozen=True)
class EventFilter:
    """What is left out of the tables that match: row changes and DDLs by the name of their kind, DDLs also by text."""

    matcher: tuple[str, ...]
    ignore_event: tuple[str, ...] = ()
    ignore_sql: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        TablePatterns(self.matcher)
        known = _KINDS_OF_EVENT.keys() | DDL_EVENTS
        for event in self.ignore_event:
            if event not in known:
                raise BadSetting(f"cannot ignore the event {event!r}; {hint(event.lower(), known, 'docs/options.md')}")
        for text in self.ignore_sql:
            GoRegex(text, case_sensitive=False)


@dataclass(frozen=True)
class EventFilters:
    filters: tuple[EventFilter, ...] = ()
    case_sensitive: bool = False

    def ignored_kinds(self, schema: str, table: str) -> frozenset[str]:
        """`frozenset({"delete"})` for a table whose deletes are left out; every filter that matches counts."""
        found = self.matching(schema, table)
        return frozenset().union(*(_KINDS_OF_EVENT.get(event, ()) for f in found for event in f.ignore_event))

    def matching(self, schema: str, table: str) -> list[EventFilter]:
        """The filters that apply to this table."""
        return [f for f, m in zip(self.filters, self._matchers, strict=True) if m.matches(schema, table)]

    @cached_property
    def _matchers(self) -> tuple[TablePatterns, ...]:
        return tuple(TablePatterns(f.matcher, self.case_sensitive) for f in self.filters)


@dataclass(frozen=True)
class ColumnSelector:
    matcher: tuple[str, ...]
    columns: tuple[str, ...]

    def __post_init__(self) -> None:
        TablePatterns(self.matcher)
        ColumnPatterns(self.columns)


@dataclass(frozen=True)
class ColumnSelectors:
    """The first selector that matches a table chooses its columns. A table without a match keeps all columns."""

    selectors: tuple[ColumnSelector, ...] = ()
    case_sensitive: bool = False

    def selected(self, schema: str, table: str, layout: Layout) -> Positions | None:
        """Positions among `layout.stored` of the columns to show, None for all.

        The columns of the primary key, or of another unique key, must all be kept: without a key a reader could not
        find the row that a later change is about.
        """
        columns = next((columns for matcher, columns in self._matchers if matcher.matches(schema, table)), None)
        if columns is None:
            return None
        kept = {column.name for column in layout.columns if columns.matches(column.name)}
        _check_keys(f"{schema}.{table}", kept, layout)
        positions = tuple(i for i, column in enumerate(layout.stored) if column.name in kept)
        if not positions:
            raise BadSetting(f"column-selectors leave no column of {schema}.{table}: keep one, or filter the table out")
        return None if len(positions) == len(layout.stored) else positions

    def concern(self, schema: str, table: str) -> bool:
        """Whether any selector matches this table."""
        return any(matcher.matches(schema, table) for matcher, _ in self._matchers)

    @cached_property
    def _matchers(self) -> tuple[tuple[TablePatterns, ColumnPatterns], ...]:
        return tuple((TablePatterns(s.matcher, self.case_sensitive), ColumnPatterns(s.columns)) for s in self.selectors)


def _check_keys(table: str, kept: set[str], layout: Layout) -> None:
    primary = {column.name for column in layout.columns if column.pk}
    if primary <= kept or any(set(key) <= kept for key in layout.unique_keys):
        return
    raise BadSetting(
        f"column-selectors leave out {min(primary - kept)!r} of the primary key of {table} and no other unique key "
        "stays whole: keep the columns of one key"
    )


_PLACEHOLDER = re.compile(r"\{(schema|table)\}")


@dataclass(frozen=True)
class Route:
    """`Route(("shop.*",), "archive", "{schema}_{table}")` lands `shop.orders` as `archive.shop_orders`.

    An empty target keeps the source's name.
    """

    matcher: tuple[str, ...]
    target_schema: str = ""
    target_table: str = ""

    def __post_init__(self) -> None:
        TablePatterns(self.matcher)
        for key, text in (("target-schema", self.target_schema), ("target-table", self.target_table)):
            literal = _PLACEHOLDER.sub("", text)
            if set(literal) & set("{}"):
                raise BadSetting(f"has the {key} {text!r}; only {{schema}} and {{table}} may be in braces")
            if "/" in literal or text in (".", ".."):
                raise BadSetting(f"has the {key} {text!r}, which would lead to another directory")

    def target(self, schema: str, table: str) -> Name:
        names = {"schema": schema, "table": table}
        target_schema, target_table = (
            _PLACEHOLDER.sub(lambda found: names[found[1]], text) for text in (self.target_schema, self.target_table)
        )
        return target_schema or schema, (target_table or table) if table else ""


@dataclass(frozen=True)
class Routes:
    """The first route that matches a table gives its target names. A table without a match keeps its own names."""

    routes: tuple[Route, ...] = ()
    case_sensitive: bool = False

    def target(self, schema: str, table: str) -> Name:
        """`("archive", "orders")`. Table "" means the schema itself; all routes that match it must agree."""
        if not schema or not self.routes:
            return schema, table
        if not table:
            return self._schema_target(schema), ""
        found = (r for r, m in zip(self.routes, self._matchers, strict=True) if m.matches(schema, table))
        route = next(found, None)
        return route.target(schema, table) if route else (schema, table)

    def _schema_target(self, schema: str) -> str:
        found = (r for r, m in zip(self.routes, self._matchers, strict=True) if m.matches_schema(schema))
        targets = list(dict.fromkeys(route.target(schema, "")[0] for route in found))
        if len(targets) > 1:
            raise BadSetting(f"schema {schema!r} is routed to {' and to '.join(map(repr, targets))}: choose one")
        return targets[0] if targets else schema

    @cached_property
    def _matchers(self) -> tuple[TablePatterns, ...]:
        return tuple(TablePatterns(route.matcher, self.case_sensitive) for route in self.routes)


@dataclass(frozen=True)
class Rules:
    """All rules of one changefeed. The properties let a caller skip what no rule asks for."""

    filter: TableFilter = field(default_factory=TableFilter)
    event_filters: EventFilters = field(default_factory=EventFilters)
    ignored_start_ts: frozenset[int] = frozenset()
    selectors: ColumnSelectors = field(default_factory=ColumnSelectors)
    routes: Routes = field(default_factory=Routes)

    @property
    def filters_nothing(self) -> bool:
        """Whether no row is left out, except those of SYSTEM_SCHEMAS, which `filter.matches` always refuses."""
        return self.filter.takes_all and not self.event_filters.filters and not self.ignored_start_ts

    @property
    def selects_everything(self) -> bool:
        return not self.selectors.selectors

    @property
    def routes_nothing(self) -> bool:
        return not self.routes.routes
