"""What a statement does while it is applied: tables that begin, change, move and end, and the rows that tell it.

Each row has a commit-ts of its own, one more than the row before it. The rows of one statement touch each other, such
as the drop and the creation of CREATE OR REPLACE TABLE, and versions of one table must differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from tidegate.errors import BadDdl
from tidegate.format.ddl import events as ddl
from tidegate.format.ddl import scope
from tidegate.format.ddl.events import TRIGGER, DdlEvent, Scope, TableAfter
from tidegate.format.ddl.queries import exchange_query, full_name, quoted
from tidegate.format.encode.sql_types import full_mysql_type
from tidegate.format.tables import Layout
from tidegate.sources.mysql.catalogue import (
    Applied,
    Catalogue,
    Change,
    DatabaseEntry,
    DdlRow,
    TableEntry,
)
from tidegate.sources.mysql.definition import PRIMARY, UNIQUE, Definition

Names = tuple[str, str]
Refuse = Callable[[TableEntry], None]


def nothing_refused(entry: TableEntry) -> None:
    pass


@dataclass
class Effects:
    """`refuse` is asked about each followed table that begins or changes; it raises if the table cannot be followed."""

    catalogue: Catalogue
    commit_ts: int
    refuse: Refuse
    rows: list[DdlRow] = field(default_factory=list)
    tables: dict[Names, TableEntry | None] = field(default_factory=dict)
    databases: dict[str, DatabaseEntry | None] = field(default_factory=dict)
    touched: set[int] = field(default_factory=set)
    used_tables: int = 0
    used_schemas: int = 0

    def applied(self) -> Applied:
        if not (self.rows or self.tables or self.databases):
            return Applied(self.catalogue)
        before = self.catalogue
        change = Change(
            self.tables,
            self.databases,
            before.next_table_id + self.used_tables,
            before.next_schema_id + self.used_schemas,
        )
        return Applied(before.changed(change), change, tuple(self.rows), frozenset(self.touched))

    @property
    def next_ts(self) -> int:
        """The commit-ts of the next row."""
        return self.commit_ts + len(self.rows)

    def find(self, names: Names) -> TableEntry | None:
        key = self.catalogue.key(*names)
        return self.tables[key] if key in self.tables else self.catalogue.find(*names)

    def database(self, name: str) -> DatabaseEntry | None:
        key = self.catalogue.key(name, "")[0]
        return self.databases[key] if key in self.databases else self.catalogue.databases.get(key)

    def follows(self, names: Names, definition: Definition) -> bool:
        return self.catalogue.filter.matches(*names) and not definition.sequence

    # Tables -----------------------------------------------------------------------------------------------------------

    def begin(self, names: Names, definition: Definition, query: str, like: TableEntry | None = None) -> TableEntry:
        """A table of this name begins, and all its rows come through the log."""
        entry = self._new_entry(names, definition)
        self._put(entry)
        if entry.followed:
            self._check(entry)
            event = scope.create_table(_table(entry), query, None if like is None else _table(like))
            self._emit(event, TRIGGER, entry, entry)
        return entry

    def begin_filled(self, names: Names, definition: Definition) -> TableEntry:
        """A table of this name begins with rows that the log does not show: it needs a snapshot."""
        entry = replace(self._new_entry(names, definition), needs_snapshot=True)
        entry = entry if entry.followed else replace(entry, needs_snapshot=False)
        self._put(entry)
        if entry.followed:
            self._check(entry)
            self._emit(scope.create_table(_table(entry), create_text(entry)), TRIGGER, entry, entry)
        return entry

    def end(self, entry: TableEntry) -> None:
        self.tables[self.catalogue.key(*entry.names)] = None
        if entry.followed:
            self._emit(scope.drop_table(_table(entry)), entry.table_id, entry, entry)

    def stop_following(self, entry: TableEntry) -> None:
        """The table stays as it is, but its rows are not read any more."""
        self._put(replace(entry, followed=False, needs_snapshot=False))
        self.touched.add(entry.table_id)

    def truncate(self, entry: TableEntry, query: str, filled: bool = False) -> None:
        """The table loses its rows and gets a new id. If it is `filled` it has others, which a snapshot reads."""
        after = replace(entry, table_id=self._take_id(), version=self.next_ts, needs_snapshot=filled and entry.followed)
        self._put(after)
        if entry.followed:
            event = scope.truncate_table(_table(entry), _table(after), query)
            self._emit(event, entry.table_id, entry, after)

    def change(self, entry: TableEntry, definition: Definition, action: int | None, query: str) -> TableEntry:
        """The table has another definition. `action` is None if that is nothing that anybody downstream sees."""
        seen = entry.followed and action is not None
        after = replace(entry, definition=definition, version=self.next_ts if seen else entry.version)
        self._put(after)
        if entry.followed and definition != entry.definition:
            self._check(after)
        if seen and action is not None:
            builder = scope.alter_table if action in ddl.ALTERS.values() else _repartition
            self._emit(builder(action, _table(after), query), entry.table_id, entry, after)
        return after

    def exchange(self, partitioned: TableEntry, other: TableEntry, query: str) -> None:
        """Rows of both change places. Where only one is followed, the rows that it gets were never read."""
        if not (partitioned.followed and other.followed):
            for entry in (partitioned, other):
                if entry.followed:
                    self.truncate(entry, f"TRUNCATE TABLE {full_name(entry.names)}", filled=True)
            return
        after = [replace(entry, version=self.next_ts) for entry in (partitioned, other)]
        for entry in after:
            self._put(entry)
        text = exchange_query(query, partitioned.names, other.names)
        blocked = Scope(ddl.NORMAL, (other.table_id, partitioned.table_id, TRIGGER))
        tables = tuple(TableAfter(*each.names, each.table_id, each.layout.fingerprint) for each in after)
        event = DdlEvent(ddl.EXCHANGE_PARTITION, text, other.schema_id, blocked, tables=tables)
        self.touched.add(other.table_id)
        self._emit(event, partitioned.table_id, partitioned, after[0], [other.layout])

    def rename(self, steps: Sequence[tuple[Names, Names]]) -> None:
        """RENAME TABLE, with its steps in order. A table whose last name is followed and whose first is not begins."""
        first: dict[int, TableEntry] = {}
        last: dict[int, TableEntry] = {}
        moves: list[tuple[TableEntry, TableEntry]] = []
        for old, new in steps:
            entry = self.find(old)
            if entry is None:
                self._rename_unknown(old, new)
                continue
            self.tables[self.catalogue.key(*old)] = None
            after = self._renamed(entry, new)
            first.setdefault(entry.table_id, entry)
            last[entry.table_id] = after
            moves.append((entry, after))
            if self.catalogue.knows(new[0]):
                self._put(after)
        self._emit_rename([(before, after) for before, after in moves if first[before.table_id].followed], last)
        for table_id, before in first.items():
            if not before.followed and last[table_id].followed:
                self.begin_filled(last[table_id].names, last[table_id].definition)

    def _emit_rename(self, moves: list[tuple[TableEntry, TableEntry]], last: dict[int, TableEntry]) -> None:
        if not moves:
            return
        version = self.next_ts
        for table_id in {before.table_id for before, _ in moves}:
            entry = replace(last[table_id], version=version)
            if self.catalogue.knows(entry.database):
                self._put(entry)
        pairs = [(_table(before), _table(after)) for before, after in moves]
        event = scope.rename_table(*pairs[0]) if len(pairs) == 1 else scope.rename_tables(pairs)
        self.touched |= {before.table_id for before, _ in moves}
        layouts = [after.layout for _, after in moves]
        self._emit(event, moves[0][0].table_id, moves[0][0], last[moves[0][0].table_id], layouts)

    def _renamed(self, entry: TableEntry, new: Names) -> TableEntry:
        database = self.database(new[0])
        schema_id = database.schema_id if database is not None else 0
        followed = self.follows(new, entry.definition)
        if followed and database is None:
            raise BadDdl(f"nothing is known of the database {new[0]!r}")
        prefix = f"{entry.name}_ibfk_"
        keys = tuple(
            replace(key, name=f"{new[1]}_ibfk_{key.name.removeprefix(prefix)}") if key.name.startswith(prefix) else key
            for key in entry.definition.foreign_keys
        )
        definition = replace(entry.definition, foreign_keys=keys)
        return replace(
            entry, database=new[0], name=new[1], schema_id=schema_id, definition=definition, followed=followed
        )

    def _rename_unknown(self, old: Names, new: Names) -> None:
        """A view, or a table of a database of which nothing is known."""
        if self.catalogue.knows(old[0]) or not self.catalogue.knows(new[0]):
            return
        if self.catalogue.filter.matches(*new):
            raise BadDdl(
                f"{'.'.join(old)} gets the name {'.'.join(new)}, which is followed, but nothing is known of the "
                f"database {old[0]!r}: let the filter keep a table of it, and begin with a new sink"
            )
        self._put(self._new_entry(new, Definition(unread=f"it came from the database {old[0]!r}")))

    # Databases --------------------------------------------------------------------------------------------------------

    def begin_database(self, name: str, charset: str, query: str) -> None:
        entry = DatabaseEntry(name, self.catalogue.next_schema_id + self.used_schemas, charset)
        self.used_schemas += 1
        self.databases[self.catalogue.key(name, "")[0]] = entry
        self._emit_database(scope.create_database(entry.schema_id, name, query), entry)

    def end_database(self, entry: DatabaseEntry, query: str) -> None:
        self.databases[self.catalogue.key(entry.name, "")[0]] = None
        self.touched |= set(self.catalogue.followed_ids(entry.name))
        self._emit_database(scope.drop_database(entry.schema_id, entry.name, query), entry)

    def change_database(self, entry: DatabaseEntry, charset: str, query: str) -> None:
        self.databases[self.catalogue.key(entry.name, "")[0]] = replace(entry, charset=charset)
        self._emit_database(scope.alter_database_charset(entry.schema_id, entry.name, query), entry)

    def _emit_database(self, event: DdlEvent, entry: DatabaseEntry) -> None:
        self.rows.append(DdlRow(self.next_ts, entry.name, "", TRIGGER, entry.schema_id, None, event))

    # Rows -------------------------------------------------------------------------------------------------------------

    def _emit(
        self,
        event: DdlEvent | None,
        table_id: int,
        before: TableEntry,
        after: TableEntry,
        more: Sequence[Layout] = (),
    ) -> None:
        """`table_id` is the dispatcher that gets the row: the one that ends, or the table trigger."""
        if event is None:
            return
        self.touched |= {before.table_id, after.table_id}
        layouts = {each.fingerprint: each for each in (after.layout, *more)}
        self.rows.append(
            DdlRow(self.next_ts, *before.names, table_id, after.schema_id, after.layout, event, tuple(layouts.values()))
        )

    def _new_entry(self, names: Names, definition: Definition) -> TableEntry:
        database = self.database(names[0])
        if database is None:
            raise BadDdl(f"nothing is known of the database {names[0]!r}")
        followed = self.follows(names, definition)
        return TableEntry(*names, self._take_id(), database.schema_id, self.next_ts, definition, followed)

    def _take_id(self) -> int:
        self.used_tables += 1
        return self.catalogue.next_table_id + self.used_tables - 1

    def _put(self, entry: TableEntry) -> None:
        self.tables[self.catalogue.key(*entry.names)] = entry

    def _check(self, entry: TableEntry) -> None:
        refuse_unread(entry)
        self.refuse(entry)


def refuse_unread(entry: TableEntry) -> None:
    """Refuse a followed table with columns that are not known, or whose values cannot be followed."""
    name = ".".join(entry.names)
    if entry.definition.unread:
        raise BadDdl(f"the columns of {name} are not known: {entry.definition.unread}")
    for column in entry.definition.columns:
        if column.unread:
            raise BadDdl(f"{name}, column {column.name!r} is {column.unread}; or leave the table out with the filter")


def _repartition(action: int, table: scope.Table, query: str) -> DdlEvent | None:
    """A partitioned table is one dispatcher, so no id begins or ends."""
    return scope.change_partitions(action, table, table, query)


def _table(entry: TableEntry) -> scope.Table:
    layout = None if entry.definition.unread else entry.layout
    return scope.Table(entry.schema_id, *entry.names, entry.table_id, layout, kept=entry.followed)


def create_text(entry: TableEntry) -> str:
    """A statement that makes a table with these columns and keys, for a table that began under another name."""
    columns = [
        f"{quoted(each.name)} {full_mysql_type(each.column)}{'' if each.column.nullable else ' NOT NULL'}"
        for each in entry.definition.columns
    ]
    kinds = {PRIMARY: "PRIMARY KEY", UNIQUE: "UNIQUE KEY"}
    for key in entry.definition.keys:
        if key.kind in kinds and not key.expressions:
            name = f" {quoted(key.name)}" if key.kind == UNIQUE else ""
            columns.append(f"{kinds[key.kind]}{name} ({','.join(quoted(column) for column in key.columns)})")
    return f"CREATE TABLE {full_name(entry.names)} ({','.join(columns)})"
