"""The catalogue: which tables a server has at one position of its log, under which ids, with which columns.

A catalogue is a value. A DDL gives a new one (`Catalogue.changed`), and the old one stays as it was, so that whoever
still works below the DDL keeps it. Both share what they have in common: a change costs a few steps, however many tables
there are.

Known are all tables of those databases of which the filter may keep a table. A table that it does not keep may get a
name that it keeps: online schema change tools do so. `TableEntry.followed` says whether the filter keeps the table.
Table ids and schema ids are given in sequence and never again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tidegate.events import DDL
from tidegate.format.ddl.events import DdlEvent
from tidegate.format.rules.rules import TableFilter
from tidegate.format.tables import Layout
from tidegate.sources.mysql.entries import Entries, Key, TableEntry

__all__ = ["Applied", "Catalogue", "Change", "DatabaseEntry", "DdlRow", "Entries", "Server", "TableEntry"]

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


def version_number(text: str) -> int:
    """101119 for `10.11.19-MariaDB-log`."""
    found = re.match(r"(?:5\.5\.5-)?(\d+)\.(\d+)\.(\d+)", text)  # MariaDB may hide behind an old number
    major, minor, patch = (int(part) for part in found.groups()) if found else (0, 0, 0)
    return major * 10000 + minor * 100 + patch


@dataclass(frozen=True)
class DatabaseEntry:
    name: str
    schema_id: int
    charset: str


@dataclass(frozen=True)
class Change:
    """What a statement changes: names with what they mean afterwards, None for what is gone, and the ids it used up.

    `filter` is set where another filter takes effect, which is no statement but has its place in the log, too.
    """

    tables: Mapping[Key, TableEntry | None] = field(default_factory=dict)
    databases: Mapping[str, DatabaseEntry | None] = field(default_factory=dict)
    next_table_id: int = 0
    next_schema_id: int = 0
    filter: TableFilter | None = None


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
    tables: Entries = field(default_factory=Entries)
    next_table_id: int = FIRST_ID
    next_schema_id: int = FIRST_ID

    def followed(self, database: str, table: str) -> TableEntry | None:
        """The followed table of this name, as TABLE_MAP spells it; None if no table of this name is followed."""
        entry = self.find(database, table)
        return entry if entry is not None and entry.followed else None

    def find(self, database: str, table: str) -> TableEntry | None:
        """The table of this name, followed or not; None if there is none, or nothing is known of its database."""
        key = self.key(database, table)
        where = self.databases.get(key[0])
        entry = self.tables.get(key) if where is not None else None
        # A database that is dropped takes its tables with it. If it is made again it has another id.
        return entry if entry is not None and where is not None and entry.schema_id == where.schema_id else None

    def knows(self, database: str) -> bool:
        """Whether all tables of this database are known, those that nobody follows included."""
        return self.filter.matches_schema(database)

    def key(self, database: str, table: str) -> Key:
        return (database.lower(), table.lower()) if self.server.lower_case else (database, table)

    def entries(self) -> Iterator[TableEntry]:
        """All tables, those first that have changed since the base was made."""
        ids = self._schema_ids
        yield from self.tables.fresh(ids)
        for at in self.tables.kept_rows(ids).tolist():
            yield self.tables.base.entry(at)

    def waiting(self, after: int, limit: int) -> list[TableEntry]:
        """The followed tables with `needs_snapshot` whose ids are above `after`, by id, `limit` at most."""
        base, rows = self.tables.base, self.tables.kept_rows(self._schema_ids)
        ids = base.numbers("table_id")[rows]
        rows = rows[(base.flags("followed") & base.flags("needs_snapshot"))[rows] & (ids > after)]
        rows = rows[np.argsort(base.numbers("table_id")[rows], kind="stable")[:limit]]
        fresh = [each for each in self.tables.fresh(self._schema_ids) if each.followed and each.needs_snapshot]
        found = [*(base.entry(at) for at in rows.tolist()), *(each for each in fresh if each.table_id > after)]
        return sorted(found, key=lambda entry: entry.table_id)[:limit]

    def count_waiting(self, after: int) -> int:
        """How many tables `waiting` would name without a limit."""
        base, rows = self.tables.base, self.tables.kept_rows(self._schema_ids)
        wanted = (base.flags("followed") & base.flags("needs_snapshot"))[rows] & (
            base.numbers("table_id")[rows] > after
        )
        fresh = (each for each in self.tables.fresh(self._schema_ids) if each.followed and each.needs_snapshot)
        return int(wanted.sum()) + sum(each.table_id > after for each in fresh)

    def followed_ids(self, database: str) -> list[int]:
        """The ids of the followed tables of a database."""
        where = self.databases.get(self.key(database, "")[0])
        ids = set() if where is None else {where.schema_id}
        base, rows = self.tables.base, self.tables.kept_rows(ids)
        rows = rows[base.flags("followed")[rows]]
        fresh = (each.table_id for each in self.tables.fresh(ids) if each.followed)
        return [*base.numbers("table_id")[rows].tolist(), *fresh]

    @property
    def _schema_ids(self) -> set[int]:
        return {each.schema_id for each in self.databases.values()}

    def changed(self, change: Change) -> Catalogue:
        """The catalogue after a statement."""
        databases = {**self.databases, **change.databases}
        return replace(
            self,
            filter=change.filter or self.filter,
            tables=self.tables.changed(change.tables),
            databases={name: entry for name, entry in databases.items() if entry is not None},
            next_table_id=max(self.next_table_id, change.next_table_id),
            next_schema_id=max(self.next_schema_id, change.next_schema_id),
        )

    def on_server(self, version: str) -> Catalogue:
        """The same catalogue on a server of this version, which the log says at the beginning of each file."""
        server = replace(self.server, mariadb="MariaDB" in version, version=version_number(version))
        return self if server == self.server else replace(self, server=server)

    def folded(self) -> Catalogue:
        """The same catalogue, all of it in columns."""
        return replace(self, tables=self.tables.folded(self._schema_ids))


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
