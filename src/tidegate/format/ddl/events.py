"""A DDL as events carry it: which dispatchers it affects, and the tables after it.

The `ddl` column of a row of kind `ddl` holds `DdlEvent.to_json()`; the row's `commit_ts` is the DDL's finished-ts.

    DdlEvent(DROP_TABLE, "DROP TABLE `shop`.`t`", schema_id=100, blocked=Scope(NORMAL, (0, 201)),
             dropped=Scope(NORMAL, (201,)), tables=(TableAfter("shop", "t", 201, layout=7),))

Ids of dispatchers are physical table ids; 0 is the table trigger, which takes part in every DDL that creates or ends a
table. `tables` is in the order in which the schema files are written (`files.py`). `scope.py` decides what each DDL
carries, `queries.py` its text.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, TypeVar

from tidegate.errors import BadEvents
from tidegate.events import TABLE_IDS
from tidegate.format.tables import Layout

TRIGGER = 0  # the table id of the table trigger

CREATE_DATABASE, DROP_DATABASE, DATABASE_CHARSET = 1, 2, 26
CREATE_TABLE, DROP_TABLE, TRUNCATE_TABLE, RENAME_TABLE, RECOVER_TABLE = 3, 4, 11, 14, 25
RENAME_TABLES, CREATE_TABLES = 47, 60
ADD_PARTITION, DROP_PARTITION, TRUNCATE_PARTITION, REORGANIZE_PARTITION = 19, 20, 23, 64
EXCHANGE_PARTITION, PARTITION_BY, REMOVE_PARTITIONING = 42, 71, 72
CREATE_VIEW, DROP_VIEW = 21, 24

# DDLs that change one table and keep its name and ids.
ALTERS = {
    "add column": 5, "drop column": 6, "add index": 7, "drop index": 8, "add foreign key": 9, "drop foreign key": 10,
    "modify column": 12, "rebase auto id": 13, "set default": 15, "table comment": 17, "rename index": 18,
    "table charset": 22, "add primary key": 32, "drop primary key": 33, "add columns": 37, "drop columns": 38,
    "index visibility": 41, "multi-schema change": 61, "ttl": 65, "remove ttl": 67, "full-text index": 230,
    "hybrid index": 231,
}  # fmt: skip
# The complete allow-list: a DDL of any other type never reaches the sink.
ACTIONS = ALTERS | {
    "create database": CREATE_DATABASE, "drop database": DROP_DATABASE, "database charset": DATABASE_CHARSET,
    "create table": CREATE_TABLE, "drop table": DROP_TABLE, "truncate table": TRUNCATE_TABLE,
    "rename table": RENAME_TABLE, "recover table": RECOVER_TABLE, "rename tables": RENAME_TABLES,
    "create tables": CREATE_TABLES, "add partition": ADD_PARTITION, "drop partition": DROP_PARTITION,
    "truncate partition": TRUNCATE_PARTITION, "reorganize partition": REORGANIZE_PARTITION,
    "exchange partition": EXCHANGE_PARTITION, "partition by": PARTITION_BY,
    "remove partitioning": REMOVE_PARTITIONING, "create view": CREATE_VIEW, "drop view": DROP_VIEW,
}  # fmt: skip
ACTION_NAMES = {code: name for name, code in ACTIONS.items()}

NORMAL, DB, ALL = "normal", "db", "all"


@dataclass(frozen=True)
class Scope:
    """Which tables a DDL affects: the listed physical ids (`normal`), those of one database (`db`), or all tables."""

    kind: str
    table_ids: tuple[int, ...] = ()
    schema_id: int = 0

    def __post_init__(self) -> None:
        if self.kind not in (NORMAL, DB, ALL):
            raise BadEvents(f"a DDL's scope has the unknown kind {self.kind!r}; known: {NORMAL}, {DB}, {ALL}")
        if (self.table_ids and self.kind != NORMAL) or (self.schema_id and self.kind != DB):
            raise BadEvents(f"a DDL's scope of kind {self.kind!r} has fields of another kind: {self}")

    def covers(self, table_id: int, schema_id: int) -> bool:
        """Whether the scope contains this physical table, which is now in this database."""
        if self.kind == NORMAL:
            return table_id in self.table_ids
        return self.kind == ALL or schema_id == self.schema_id


@dataclass(frozen=True)
class AddedTable:
    """A physical table whose dispatcher begins at the DDL's commit-ts."""

    schema_id: int
    table_id: int
    splitable: bool = False


@dataclass(frozen=True)
class UpdatedSchema:
    """A physical table that moves to another database."""

    table_id: int
    old_schema_id: int
    new_schema_id: int


@dataclass(frozen=True)
class TableAfter:
    """A table (or view, or with table "" a database) after the DDL. A dropped table is shown as it was before.

    `table_id` is the logical id, `layout` the fingerprint of the columns, `partitions` the physical ids if there are
    partitions. `old_schema` and `old_table` are the names before a rename. `query` is this table's part of a DDL over
    several tables.
    """

    schema: str
    table: str = ""
    table_id: int = 0
    layout: int | None = None
    old_schema: str = ""
    old_table: str = ""
    query: str = ""
    partitions: tuple[int, ...] = ()


@dataclass(frozen=True)
class DdlEvent:
    """One DDL. `not_sync`: an event filter leaves it out, so no file is written, but dispatchers still change."""

    type: int
    query: str
    schema_id: int
    blocked: Scope | None = None
    dropped: Scope | None = None
    added: tuple[AddedTable, ...] = ()
    updated_schemas: tuple[UpdatedSchema, ...] = ()
    not_sync: bool = False
    tables: tuple[TableAfter, ...] = ()

    def reaches(self, table_id: int, schema_id: int) -> bool:
        """Whether this table's dispatcher receives the DDL: the DDL blocks it, or it begins with the DDL."""
        if any(table.table_id == table_id for table in self.added):
            return True
        if self.blocked is None:
            return False
        # DDLs over a database or over all tables belong to the trigger.
        owned = table_id == TRIGGER and self.blocked.kind != NORMAL
        return owned or self.blocked.covers(table_id, schema_id)

    def to_json(self) -> str:
        """`{"type":1,"query":"CREATE DATABASE `shop`","schema_id":100}`; `from_json` undoes it exactly."""
        return json.dumps(_shown(self), separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> DdlEvent:
        try:
            shape = json.loads(text)
        except (ValueError, TypeError, RecursionError) as exc:
            raise BadEvents(f"the ddl column of a DDL row must be JSON, not {text!r:.80}: {exc}") from exc
        return _read(DdlEvent, shape, "ddl")


def is_replicated(action: int) -> bool:
    """Whether a DDL of this action code reaches the sink: `is_replicated(16)` (shard row id bits) is False."""
    return action in ACTION_NAMES


def should_block(event: DdlEvent, complete: bool) -> bool:
    """Whether dispatchers must wait for each other in a barrier. `complete`: one dispatcher owns the whole table."""
    if event.blocked is None:
        return False
    return event.blocked.kind != NORMAL or not complete or len(event.blocked.table_ids) > 1


def has_schedule_changes(event: DdlEvent) -> bool:
    """Whether dispatchers begin or end with the DDL."""
    ends = event.dropped is not None and (event.dropped.kind != NORMAL or bool(event.dropped.table_ids))
    return ends or bool(event.added)


def is_splitable(layout: Layout) -> bool:
    """Whether a table may be split into spans: it has a primary key and no other unique index."""
    return any(column.pk for column in layout.columns) and not layout.unique_keys


_T = TypeVar("_T")
_Reader = Callable[[Any, str], Any]


def _shown(value: Any) -> Any:
    """Objects become dicts of the fields that differ from the default, tuples become lists."""
    if is_dataclass(value):
        given = ((field, getattr(value, field.name)) for field in fields(value))
        return {field.name: _shown(item) for field, item in given if item != field.default}
    return [_shown(item) for item in value] if isinstance(value, tuple) else value


def _read(kind: type[_T], shape: Any, where: str) -> _T:
    readers = _READERS[kind]
    if not isinstance(shape, dict):
        raise BadEvents(f"{where} must be a JSON object with {', '.join(readers)}, not {shape!r:.80}")
    if unknown := shape.keys() - readers.keys():
        raise BadEvents(f"{where} has the unknown field {min(unknown)!r}; known: {', '.join(readers)}")
    required = [field.name for field in fields(kind) if field.default is MISSING]  # type: ignore[arg-type]
    if missing := [name for name in required if name not in shape]:
        raise BadEvents(f"{where} has no field {missing[0]!r}")
    return kind(**{name: readers[name](value, f"{where}.{name}") for name, value in shape.items()})


def _plain(kind: type) -> _Reader:
    def read(value: Any, where: str) -> Any:
        if type(value) is not kind:  # not isinstance, because true must not count as a number
            raise BadEvents(f"{where} must be {kind.__name__}, not {value!r:.80}")
        return value

    return read


def _table_id(value: Any, where: str) -> Any:
    if not 0 <= _INT(value, where) < TABLE_IDS:
        raise BadEvents(f"{where} must be the id of a table, in 0..2^50 - 1, not {value}")
    return value


def _object(kind: type) -> _Reader:
    return lambda value, where: _read(kind, value, where)


def _or_null(reader: _Reader) -> _Reader:
    return lambda value, where: None if value is None else reader(value, where)


def _tuple(item: _Reader) -> _Reader:
    def read(value: Any, where: str) -> Any:
        if not isinstance(value, list):
            raise BadEvents(f"{where} must be a list, not {value!r:.80}")
        return tuple(item(entry, f"{where}[{at}]") for at, entry in enumerate(value))

    return read


_INT, _STR, _BOOL = _plain(int), _plain(str), _plain(bool)
_READERS: dict[type, dict[str, _Reader]] = {
    Scope: {"kind": _STR, "table_ids": _tuple(_table_id), "schema_id": _INT},
    AddedTable: {"schema_id": _INT, "table_id": _table_id, "splitable": _BOOL},
    UpdatedSchema: {"table_id": _table_id, "old_schema_id": _INT, "new_schema_id": _INT},
    TableAfter: dict.fromkeys(("schema", "table", "old_schema", "old_table", "query"), _STR)
    | {"table_id": _table_id, "layout": _or_null(_INT), "partitions": _tuple(_table_id)},
    DdlEvent: {
        "type": _INT,
        "query": _STR,
        "schema_id": _INT,
        "blocked": _or_null(_object(Scope)),
        "dropped": _or_null(_object(Scope)),
        "added": _tuple(_object(AddedTable)),
        "updated_schemas": _tuple(_object(UpdatedSchema)),
        "not_sync": _BOOL,
        "tables": _tuple(_object(TableAfter)),
    },
}
