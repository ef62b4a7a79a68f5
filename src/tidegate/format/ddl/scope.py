"""Builds the event of each DDL: the dispatchers that it blocks, ends, begins or moves, and the tables after it.

A source gives the tables of the catalogue before and after (`Table`), and says which the filter keeps. A builder
returns the event, or None if the filter leaves out all of it. A source builds a DDL of a database only if the filter
keeps the database.

    create_table(Table(100, "shop", "orders", 200, layout), "create table orders (...)")
    rename_table(Table(100, "shop", "t", 200, layout), Table(105, "archive", "t", 200, layout))

A DDL that begins or ends a dispatcher also blocks the table trigger; an alter blocks only its table. Event filters are
applied later, by `apply_event_filter`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from tidegate.errors import BadEvents
from tidegate.format.ddl import events as ddl
from tidegate.format.ddl import queries as ddl_queries
from tidegate.format.ddl.events import AddedTable, DdlEvent, Scope, TableAfter, UpdatedSchema, is_splitable
from tidegate.format.tables import Layout

_PARTITION_TYPES = frozenset(
    (
        *(ddl.ADD_PARTITION, ddl.DROP_PARTITION, ddl.TRUNCATE_PARTITION, ddl.REORGANIZE_PARTITION),
        *(ddl.PARTITION_BY, ddl.REMOVE_PARTITIONING),
    )
)
_ALTER_TYPES = frozenset(ddl.ALTERS.values())


class RenameIntoFilter(BadEvents):
    """A table that the filter left out gets a name that it keeps. The rows that the table has were never read."""


@dataclass(frozen=True)
class Table:
    """A table or view of the catalogue at one moment; `id` is logical, `kept` is the answer of the filter."""

    schema_id: int
    schema: str
    name: str
    id: int
    layout: Layout | None = None
    partitions: tuple[int, ...] = ()
    kept: bool = True

    @property
    def names(self) -> tuple[str, str]:
        return self.schema, self.name

    @property
    def physical(self) -> tuple[int, ...]:
        """The ids of its dispatchers: the partitions if there are any, else the table itself."""
        return self.partitions or (self.id,)

    @property
    def splitable(self) -> bool:
        return self.layout is not None and is_splitable(self.layout)


def create_database(schema_id: int, schema: str, query: str) -> DdlEvent:
    return _database(ddl.CREATE_DATABASE, schema_id, schema, query, blocked=_normal(ddl.TRIGGER))


def drop_database(schema_id: int, schema: str, query: str) -> DdlEvent:
    whole = Scope(ddl.DB, schema_id=schema_id)
    return _database(ddl.DROP_DATABASE, schema_id, schema, query, blocked=whole, dropped=whole)


def alter_database_charset(schema_id: int, schema: str, query: str) -> DdlEvent:
    return _database(ddl.DATABASE_CHARSET, schema_id, schema, query, blocked=Scope(ddl.DB, schema_id=schema_id))


def create_table(table: Table, query: str, like: Table | None = None) -> DdlEvent | None:
    """`like` is the table whose definition is copied. It is blocked too, so that its earlier DDLs are written first."""
    copied = like.physical if like is not None and like.kept else ()
    return _begin(ddl.CREATE_TABLE, table, query, copied)


def recover_table(table: Table, query: str) -> DdlEvent | None:
    return _begin(ddl.RECOVER_TABLE, table, query)


def create_tables(pieces: Sequence[tuple[Table, str]]) -> DdlEvent | None:
    """Each table with its own statement. Tables that the filter leaves out are removed."""
    kept = [(table, _piece(query)) for table, query in pieces if table.kept]
    if not kept:
        return None
    return DdlEvent(
        ddl.CREATE_TABLES,
        "".join(query for _, query in kept),
        kept[0][0].schema_id,
        blocked=_normal(ddl.TRIGGER),
        added=tuple(added for table, _ in kept for added in _added(table, table.physical)),
        tables=tuple(_after(table, query) for table, query in kept),
    )


def drop_table(table: Table) -> DdlEvent | None:
    if not table.kept:
        return None
    return DdlEvent(
        ddl.DROP_TABLE,
        ddl_queries.drop_table_query(table.names),
        table.schema_id,
        blocked=_normal(*table.physical, ddl.TRIGGER),
        dropped=_normal(*table.physical),
        tables=(replace(_after(table), partitions=()),),
    )


def truncate_table(before: Table, after: Table, query: str) -> DdlEvent | None:
    """The table gets a new id, or new partitions."""
    return _replace(ddl.TRUNCATE_TABLE, before, after, query)


def change_partitions(action: int, before: Table, after: Table, query: str) -> DdlEvent | None:
    """Add, drop, truncate or reorganize partitions, PARTITION BY and REMOVE PARTITIONING."""
    _check(action, _PARTITION_TYPES, "change_partitions")
    return _replace(action, before, after, query)


def exchange_partition(before: Table, after: Table, normal: Table, query: str) -> DdlEvent | None:
    """`before` and `after` are the partitioned table. `normal` is the other one before; it gets the partition's id."""
    partition_id = _exchanged(before, after, normal)
    if not after.kept and not normal.kept:
        return None
    query = ddl_queries.exchange_query(ddl_queries.statement(query), after.names, normal.names)
    tables = (_after(after), _after(replace(normal, id=partition_id)))
    event = DdlEvent(ddl.EXCHANGE_PARTITION, query, normal.schema_id, tables=tables)
    if after.kept and normal.kept:
        return _swap(event, after, normal, partition_id)
    if after.kept:
        return _swap_one(event, after, partition_id, normal.id)
    return _swap_one(event, normal, normal.id, partition_id)


def rename_table(before: Table, after: Table) -> DdlEvent | None:
    """Also for ALTER TABLE ... RENAME. If the filter leaves out the new name, the table ends."""
    query = ddl_queries.rename_query(before.names, after.names)
    return _rename(ddl.RENAME_TABLE, query, [(before, after)], (_after(after, before=before),))


def rename_tables(pairs: Sequence[tuple[Table, Table]]) -> DdlEvent | None:
    """The steps of the statement as (before, after), in order.

    A table may be in several steps, such as `a TO tmp` and `tmp TO b`. Its first and its last name decide whether it is
    kept, ends or moves.
    """
    ends = list(_ends(pairs).values())
    followed = {first.id for first, last in ends if first.kept or last.kept}
    steps = [(before, after) for before, after in pairs if before.id in followed]
    tables = tuple(_step(before, after) for before, after in steps)
    return _rename(ddl.RENAME_TABLES, "".join(table.query for table in tables), ends, tables)


def create_view(view: Table, query: str) -> DdlEvent | None:
    """A view may read any table, so it blocks all tables."""
    query = ddl_queries.named_query(ddl_queries.statement(query), view.names)
    return _view(ddl.CREATE_VIEW, view, query, Scope(ddl.ALL))


def drop_view(view: Table) -> DdlEvent | None:
    return _view(ddl.DROP_VIEW, view, ddl_queries.drop_view_query(view.names), _normal(ddl.TRIGGER))


def alter_table(action: int, table: Table, query: str) -> DdlEvent | None:
    """Columns, indexes, foreign keys, comment, charset, TTL. `table` is the table after the DDL, with the same ids."""
    _check(action, _ALTER_TYPES, "alter_table")
    if not table.kept:
        return None
    query = ddl_queries.statement(query)
    return DdlEvent(action, query, table.schema_id, _normal(*table.physical), tables=(_after(table),))


def apply_event_filter(event: DdlEvent, ignored: Callable[[str, str, str], bool]) -> DdlEvent:
    """The event without what `ignored(schema, table, query)` leaves out. Dispatchers still begin, end and move.

    `ignored` gets the old name of a rename and the partitioned table of an exchange. From a DDL of several tables the
    ignored parts are removed; any other ignored DDL becomes `not_sync`.
    """
    if event.type in (ddl.RENAME_TABLES, ddl.CREATE_TABLES):
        left = tuple(table for table in event.tables if not ignored(*_decisive(table), table.query))
        return replace(event, tables=left, query="".join(table.query for table in left))
    is_ignored = bool(event.tables) and ignored(*_decisive(event.tables[0]), event.query)
    return replace(event, not_sync=event.not_sync or is_ignored)


def _normal(*table_ids: int) -> Scope:
    return Scope(ddl.NORMAL, tuple(dict.fromkeys(table_ids)))


def _some(table_ids: Iterable[int]) -> Scope | None:
    ids = tuple(table_ids)
    return _normal(*ids) if ids else None


def _added(table: Table, table_ids: Iterable[int]) -> tuple[AddedTable, ...]:
    return tuple(AddedTable(table.schema_id, table_id, table.splitable) for table_id in table_ids)


def _after(table: Table, query: str = "", before: Table | None = None) -> TableAfter:
    layout = None if table.layout is None else table.layout.fingerprint
    old_schema, old_table = before.names if before else ("", "")
    return TableAfter(table.schema, table.name, table.id, layout, old_schema, old_table, query, table.partitions)


def _piece(query: str) -> str:
    pieces = ddl_queries.split_queries(query)
    if len(pieces) != 1:
        raise BadEvents(f"a piece of CREATE TABLES must be one statement, not {query!r:.120}")
    return pieces[0]


def _step(before: Table, after: Table) -> TableAfter:
    return _after(after, ddl_queries.rename_query(before.names, after.names) + ";", before)


def _decisive(table: TableAfter) -> tuple[str, str]:
    return (table.old_schema, table.old_table) if table.old_table else (table.schema, table.table)


def _check(action: int, known: frozenset[int], builder: str) -> None:
    if action not in known:
        raise BadEvents(f"{builder} does not build a DDL of type {action}; known: {', '.join(map(str, sorted(known)))}")


def _database(
    action: int, schema_id: int, schema: str, query: str, blocked: Scope, dropped: Scope | None = None
) -> DdlEvent:
    query = ddl_queries.statement(query)
    return DdlEvent(action, query, schema_id, blocked, dropped, tables=(TableAfter(schema),))


def _view(action: int, view: Table, query: str, blocked: Scope) -> DdlEvent | None:
    return DdlEvent(action, query, view.schema_id, blocked, tables=(_after(view),)) if view.kept else None


def _begin(action: int, table: Table, query: str, copied: tuple[int, ...] = ()) -> DdlEvent | None:
    if not table.kept:
        return None
    return DdlEvent(
        action,
        ddl_queries.statement(query),
        table.schema_id,
        blocked=_normal(ddl.TRIGGER, *copied),
        added=_added(table, table.physical),
        tables=(_after(table),),
    )


def _replace(action: int, before: Table, after: Table, query: str) -> DdlEvent | None:
    """Ids that exist only before the DDL end, ids that exist only after it begin. All ids before it are blocked."""
    if not before.kept:
        return None
    return DdlEvent(
        action,
        ddl_queries.statement(query),
        after.schema_id,
        blocked=_normal(*before.physical, ddl.TRIGGER),
        dropped=_some(table_id for table_id in before.physical if table_id not in after.physical),
        added=_added(after, (table_id for table_id in after.physical if table_id not in before.physical)),
        tables=(_after(after),),
    )


def _exchanged(before: Table, after: Table, normal: Table) -> int:
    """The id of the partition that leaves the partitioned table."""
    left = set(before.partitions) - set(after.partitions)
    if len(left) != 1 or set(after.partitions) - set(before.partitions) != {normal.id}:
        raise BadEvents(
            f"an exchange with `{normal.schema}`.`{normal.name}` ({normal.id}) cannot turn the partitions of "
            f"`{before.schema}`.`{before.name}` from {before.partitions} into {after.partitions}"
        )
    return left.pop()


def _swap(event: DdlEvent, partitioned: Table, normal: Table, partition_id: int) -> DdlEvent:
    to, back = partitioned.schema_id, normal.schema_id
    moved = (UpdatedSchema(normal.id, back, to), UpdatedSchema(partition_id, to, back)) if to != back else ()
    return replace(event, blocked=_normal(normal.id, partition_id, ddl.TRIGGER), updated_schemas=moved)


def _swap_one(event: DdlEvent, kept: Table, old_id: int, new_id: int) -> DdlEvent:
    """The filter keeps only one side: its old id ends and the id that it got begins."""
    blocked, dropped = _normal(old_id, ddl.TRIGGER), _normal(old_id)
    return replace(event, blocked=blocked, dropped=dropped, added=_added(kept, (new_id,)))


def _ends(pairs: Iterable[tuple[Table, Table]]) -> dict[int, tuple[Table, Table]]:
    """For each table, by logical id: the table before the first step and after the last step."""
    ends: dict[int, tuple[Table, Table]] = {}
    for before, after in pairs:
        ends[before.id] = (ends[before.id][0] if before.id in ends else before, after)
    return ends


def _rename(
    action: int, query: str, ends: Sequence[tuple[Table, Table]], tables: tuple[TableAfter, ...]
) -> DdlEvent | None:
    for before, after in ends:
        if after.kept and not before.kept:
            raise RenameIntoFilter(
                f"`{before.schema}`.`{before.name}`, which the filter leaves out, is renamed to "
                f"`{after.schema}`.`{after.name}`, which it keeps; let the filter keep both names or neither"
            )
    followed = [(before, after) for before, after in ends if before.kept]
    if not followed:
        return None
    moved = [(b, a) for b, a in followed if a.kept and a.schema_id != b.schema_id]
    return DdlEvent(
        action,
        query,
        followed[0][1].schema_id,
        blocked=_normal(ddl.TRIGGER, *(table_id for before, _ in followed for table_id in before.physical)),
        dropped=_some(table_id for before, after in followed if not after.kept for table_id in before.physical),
        updated_schemas=tuple(UpdatedSchema(t, b.schema_id, a.schema_id) for b, a in moved for t in b.physical),
        tables=tables,
    )
