"""The catalogue: which tables a server has at one position of its log, under which ids, with which columns.

A catalogue is a value. A DDL gives a new one (`Catalogue.changed`), and the old one stays as it was, so that whoever
still works below the DDL keeps it. Both share what they have in common: a change costs a few steps, however many tables
there are.

Known are all tables of those databases of which the filter may keep a table. A table that it does not keep may get a
name that it keeps: online schema change tools do so. `TableEntry.followed` says whether the filter keeps the table.
Table ids and schema ids are given in sequence and never again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tidegate.events import DDL
from tidegate.format.ddl.events import DdlEvent
from tidegate.format.rules.rules import TableFilter
from tidegate.format.tables import Layout
from tidegate.sources.mysql.definition import Definition

FIRST_ID = 1  # 0 is the table trigger


@dataclass(frozen=True)
class Server:
    """What of a server decides how DDL text is read. `version` is 101115 for MariaDB 10.11.15, 90700 for MySQL 9.7.0.

    `lower_case` is its `lower_case_table_names`. `charset` and `engine` are its defaults, `utf8` is what the word
    means.
    """

    mariadb: bool = False
    version: int = 90700
    lower_case: int = 0
    charset: str = "utf8mb4"
    engine: str = "InnoDB"
    utf8: str = "utf8mb3"


@dataclass(frozen=True)
class DatabaseEntry:
    name: str
    schema_id: int
    charset: str


@dataclass(frozen=True)
class TableEntry:
    """A table at one moment. `version` is the commit-ts of the last DDL that changed it."""

    database: str
    name: str
    table_id: int
    schema_id: int
    version: int
    definition: Definition
    followed: bool = True
    needs_snapshot: bool = False  # it holds rows that the log does not show from here on

    @property
    def layout(self) -> Layout:
        return self.definition.layout

    @property
    def names(self) -> tuple[str, str]:
        return self.database, self.name


@dataclass(frozen=True)
class Change:
    """What a statement changes: names with what they mean afterwards, None for what is gone, and the ids it used up."""

    tables: Mapping[tuple[str, str], TableEntry | None] = field(default_factory=dict)
    databases: Mapping[str, DatabaseEntry | None] = field(default_factory=dict)
    next_table_id: int = 0
    next_schema_id: int = 0


@dataclass(frozen=True)
class DdlRow:
    """A row of kind `ddl`. `layouts` are those that it names: their `layout` rows come with it."""

    commit_ts: int
    schema: str
    table: str
    table_id: int
    schema_id: int
    layout: Layout | None
    event: DdlEvent
    layouts: tuple[Layout, ...] = ()

    def row(self, seq: int) -> dict[str, Any]:
        """A row for `pa.RecordBatch.from_pylist(rows, schema=EVENTS)`."""
        return {
            "kind": DDL,
            "schema_name": self.schema,
            "table_name": self.table,
            "table_id": self.table_id,
            "logical_table_id": self.table_id,
            "schema_id": self.schema_id,
            "table_version": self.commit_ts,
            "start_ts": self.commit_ts - 1,
            "commit_ts": self.commit_ts,
            "seq": seq,
            "layout": None if self.layout is None else self.layout.fingerprint,
            "ddl": self.event.to_json(),
        }


@dataclass(frozen=True)
class Catalogue:
    """The tables by name. `next_table_id` and `next_schema_id` are the ids that nobody has had yet."""

    server: Server = field(default_factory=Server)
    filter: TableFilter = field(default_factory=TableFilter)
    databases: Mapping[str, DatabaseEntry] = field(default_factory=dict)
    tables: Mapping[tuple[str, str], TableEntry] = field(default_factory=dict)
    next_table_id: int = FIRST_ID
    next_schema_id: int = FIRST_ID

    def followed(self, database: str, table: str) -> TableEntry | None:
        """The followed table of this name, as TABLE_MAP spells it; None if no table of this name is followed."""
        entry = self.find(database, table)
        return entry if entry is not None and entry.followed else None

    def find(self, database: str, table: str) -> TableEntry | None:
        """The table of this name, followed or not; None if there is none, or nothing is known of its database."""
        return self.tables.get(self.key(database, table))

    def knows(self, database: str) -> bool:
        """Whether all tables of this database are known, those that nobody follows included."""
        return self.filter.matches_schema(database)

    def key(self, database: str, table: str) -> tuple[str, str]:
        return (database.lower(), table.lower()) if self.server.lower_case else (database, table)

    def entries(self) -> Iterator[TableEntry]:
        return iter(self.tables.values())

    def waiting(self, after: int, limit: int) -> list[TableEntry]:
        """The followed tables with `needs_snapshot` whose ids are above `after`, by id, `limit` at most."""
        found = (each for each in self.entries() if each.followed and each.needs_snapshot and each.table_id > after)
        return sorted(found, key=lambda entry: entry.table_id)[:limit]

    def followed_ids(self, database: str) -> list[int]:
        """The ids of the followed tables of a database."""
        return [each.table_id for each in self.entries() if each.database == database and each.followed]

    def changed(self, change: Change) -> Catalogue:
        """The catalogue after a statement."""
        tables = {**self.tables, **change.tables}
        databases = {**self.databases, **change.databases}
        return replace(
            self,
            tables={name: entry for name, entry in tables.items() if entry is not None},
            databases={name: entry for name, entry in databases.items() if entry is not None},
            next_table_id=max(self.next_table_id, change.next_table_id),
            next_schema_id=max(self.next_schema_id, change.next_schema_id),
        )


@dataclass(frozen=True)
class Applied:
    """What a statement of the log does. `rows` have commit-ts from the statement's on, each one more than the last.

    `touched` are the ids of followed tables that end, begin or change. A statement that concerns no followed table and
    no kept database has no rows; `change` may say something about tables that nobody follows all the same.
    """

    catalogue: Catalogue
    change: Change = field(default_factory=Change)
    rows: tuple[DdlRow, ...] = ()
    touched: frozenset[int] = frozenset()

    def last_ts(self, commit_ts: int) -> int:
        """The last commit-ts that the statement takes, if it has this one."""
        return self.rows[-1].commit_ts if self.rows else commit_ts

    @property
    def ignored(self) -> bool:
        """Whether the statement changes nothing that is known: nothing needs to be put on record."""
        return self.change == Change() and not self.rows
