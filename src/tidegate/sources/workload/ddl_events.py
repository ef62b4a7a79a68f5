"""Turns the records of a workload's DDLs into rows of kind `ddl`, with names, ids, columns and text as in TiDB.

The row's `table_id` is the dispatcher that receives the DDL (for a truncate the id that ends). It is 0 for a DDL that
only the table trigger receives, or that affects a whole database. The names in the row are those before the DDL, the
layout is the one after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.events import DDL, EVENTS
from tidegate.format.ddl import events as ddl
from tidegate.format.ddl import scope as ddl_scope
from tidegate.format.ddl.events import TRIGGER, DdlEvent
from tidegate.format.ddl.queries import full_name, quoted
from tidegate.format.ddl.scope import Table
from tidegate.format.tables import Column, Layout
from tidegate.sources.workload.ddl_history import DdlHistory, States
from tidegate.sources.workload.ddl_play import ADDED_COLUMNS, Op, Plan, Record
from tidegate.sources.workload.layouts import Layouts, columns_sql
from tidegate.sources.workload.shapes import last_sql_type, shape_layout
from tidegate.sources.workload.sysbench import (
    FIRST_TABLE_ID,
    SCHEMA_ID,
    SCHEMA_NAME,
    Ints,
    name_numbers,
    table_names,
)

_SIDE = Layout((Column("id", "int", nullable=False, pk=True), Column("note", "varchar", flen=64)))
_VIEW = Layout((Column("id", "int", nullable=False), Column("k", "int", nullable=False)))
_SIDE_COLUMNS = "`id` INT NOT NULL,`note` VARCHAR(64),PRIMARY KEY(`id`)"
_RENAMED = "_renamed"


def used_layouts(states: States) -> dict[int, str]:
    """The layouts of these states by fingerprint, for `layout_rows`."""
    return _texts(shape_layout(shape) for shape in np.unique(states.shape).tolist())


def _texts(layouts: Iterable[Layout]) -> dict[int, str]:
    return {layout.fingerprint: layout.to_json() for layout in layouts}


def shape_fingerprints(shape: Ints) -> Ints:
    """Of sysbench's columns with the added ones of these shapes."""
    shapes, at = np.unique(shape, return_inverse=True)
    prints: Ints = np.array([shape_layout(one).fingerprint for one in shapes.tolist()], np.int64)[at]
    return prints


def state_columns(states: States, run: Ints, layout: Ints, shards: int) -> dict[str, pa.Array]:
    """The event columns that say which table a row belongs to. `run` is the index of each row's state."""
    table_id = pa.array(states.id[run])
    names = table_names(name_numbers(states.table, shards))
    suffix = pa.array(["", _RENAMED]).take(pa.array(states.renamed))
    return {
        "table_name": pc.binary_join_element_wise(names, suffix, "").take(pa.array(run)),
        "table_id": table_id,
        "logical_table_id": table_id,
        "table_version": pa.array(states.version[run]),
        "layout": pa.array(layout[run]),
    }


def added_columns(states: States, run: Ints) -> Ints | None:
    """How many added columns each row has; None if no row has any."""
    return ADDED_COLUMNS[states.shape][run] if states.shape.any() else None


@dataclass(frozen=True)
class _Said:
    """A DDL event, and what else its row contains."""

    event: DdlEvent | None
    table_id: int
    names: tuple[str, str]
    layout: Layout | None = None
    schema_id: int = SCHEMA_ID


class DdlEvents:
    """Builds the rows of records. Has no state except the history that they come from."""

    def __init__(self, plan: Plan, history: DdlHistory, layouts: Layouts | None) -> None:
        self._plan, self._history, self._layouts = plan, history, layouts

    def rows(self, numbers: range, start_ts: Callable[[Ints], Ints]) -> tuple[dict[int, str], pa.RecordBatch]:
        """The layouts that these DDLs name, and a row for each in the order of commit-ts."""
        layouts: dict[int, str] = {}
        rows = []
        for number in numbers:
            record = self._history.record(number)
            said = self._said(number, record)
            if said.layout is not None:
                layouts |= _texts([said.layout])
            rows.append(_row(number, record.ts, said))
        batch = pa.RecordBatch.from_pylist(rows, schema=EVENTS)
        started = pa.array(start_ts(batch.column("commit_ts").to_numpy()))
        return layouts, batch.set_column(EVENTS.get_field_index("start_ts"), EVENTS.field("start_ts"), started)

    def _said(self, number: int, record: Record) -> _Said:
        if record.table >= 0:
            return self._of_table(number, record)
        made = self._plan.first_new_id + record.about  # id of the object that is dropped or created
        match record.op:
            case Op.CREATE_TABLE | Op.DROP_TABLE:
                return _side_table(record, Table(SCHEMA_ID, SCHEMA_NAME, f"side{record.about}", made, _SIDE))
            case Op.CREATE_DATABASE | Op.DROP_DATABASE:
                return _side_database(record, made, f"side{record.about}")
            case Op.CREATE_VIEW:
                return self._new_view(number, record)
            case Op.DROP_VIEW:
                view = _view(record.about, made)
                return _Said(ddl_scope.drop_view(view), TRIGGER, view.names, _VIEW)
            case _:
                return _database_altered(record)

    def _of_table(self, number: int, record: Record) -> _Said:
        before, after = self._table(record.table, record.before), self._table(record.table, number)
        indexed = "k" if self._layouts is None else "id"
        event = _changed(number, record, before, after, indexed)
        return _Said(event, TRIGGER if record.op == Op.CREATE else before.id, before.names, after.layout)

    def _new_view(self, number: int, record: Record) -> _Said:
        view, source = _view(number, self._plan.first_new_id + number), self._table(record.about, record.before)
        second = "`k`" if self._layouts is None else "`id` AS `k`"
        query = (
            "CREATE ALGORITHM = UNDEFINED DEFINER = `root`@`%` SQL SECURITY DEFINER "
            f"VIEW {full_name(view.names)} AS SELECT `id`,{second} FROM {full_name(source.names)}"
        )
        return _Said(ddl_scope.create_view(view, query), TRIGGER, view.names, _VIEW)

    def _table(self, table: int, state: int) -> Table:
        """The table in this state."""
        table_id, renamed, shape = table + FIRST_TABLE_ID, 0, 0
        if state >= 0:
            record = self._history.record(state)
            table_id, renamed, shape = record.id, record.renamed, record.shape
        number = 1 if table < self._plan.shards else table + 1
        name = f"sbtest{number}{_RENAMED if renamed else ''}"
        layout = shape_layout(shape) if self._layouts is None else self._layouts.layout(table, shape)
        return Table(SCHEMA_ID, SCHEMA_NAME, name, table_id, layout)


def _changed(number: int, record: Record, before: Table, after: Table, indexed: str) -> DdlEvent | None:
    name = full_name(after.names)
    match record.op:
        case Op.RENAME:
            return ddl_scope.rename_table(before, after)
        case Op.TRUNCATE:
            return ddl_scope.truncate_table(before, after, f"TRUNCATE TABLE {name}")
        case Op.DROP:
            return ddl_scope.drop_table(before)
        case Op.CREATE:
            columns = columns_sql(after.layout) if after.layout else ""
            return ddl_scope.create_table(after, f"CREATE TABLE {name} ({columns})")
        case Op.ADD_INDEX:
            return _altered("add index", after, f"ADD INDEX `i{number}`({quoted(indexed)})")
        case Op.DROP_COLUMN:
            return _altered("drop column", after, f"DROP COLUMN {quoted(_last_column(before))}")
        case _:
            verb = "add column" if record.op == Op.ADD_COLUMN else "modify column"
            sql_type = last_sql_type(record.shape)
            return _altered(verb, after, f"{verb.upper()} {quoted(_last_column(after))} {sql_type}")


def _altered(action: str, table: Table, what: str) -> DdlEvent | None:
    return ddl_scope.alter_table(ddl.ALTERS[action], table, f"ALTER TABLE {full_name(table.names)} {what}")


def _last_column(table: Table) -> str:
    return table.layout.columns[-1].name if table.layout else ""


def _view(number: int, view_id: int) -> Table:
    return Table(SCHEMA_ID, SCHEMA_NAME, f"view{number}", view_id, _VIEW)


def _side_table(record: Record, table: Table) -> _Said:
    if record.op == Op.DROP_TABLE:
        return _Said(ddl_scope.drop_table(table), table.id, table.names, _SIDE)
    query = f"CREATE TABLE {full_name(table.names)} ({_SIDE_COLUMNS})"
    return _Said(ddl_scope.create_table(table, query), TRIGGER, table.names, _SIDE)


def _side_database(record: Record, schema_id: int, name: str) -> _Said:
    if record.op == Op.CREATE_DATABASE:
        event = ddl_scope.create_database(schema_id, name, f"CREATE DATABASE {quoted(name)}")
    else:
        event = ddl_scope.drop_database(schema_id, name, f"DROP DATABASE {quoted(name)}")
    return _Said(event, TRIGGER, (name, ""), schema_id=schema_id)


def _database_altered(record: Record) -> _Said:
    charset = ("utf8mb4", "utf8")[record.about % 2]
    query = f"ALTER DATABASE {quoted(SCHEMA_NAME)} CHARACTER SET = {charset}"
    return _Said(ddl_scope.alter_database_charset(SCHEMA_ID, SCHEMA_NAME, query), TRIGGER, (SCHEMA_NAME, ""))


def _row(number: int, ts: int, said: _Said) -> dict[str, Any]:
    assert said.event is not None, "a workload has no filter that leaves a DDL out"
    schema, table = said.names
    return {
        "kind": DDL,
        "schema_name": schema,
        "table_name": table,
        "table_id": said.table_id,
        "logical_table_id": said.table_id,
        "schema_id": said.schema_id,
        "table_version": ts,
        "commit_ts": ts,
        "seq": number + 1,
        "layout": None if said.layout is None else said.layout.fingerprint,
        "ddl": said.event.to_json(),
    }
