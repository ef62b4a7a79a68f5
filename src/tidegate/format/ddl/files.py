"""The schema files that a DDL writes, in order, under target names.

    create, alter, truncate, recover    one file with the columns after the DDL
    drop table, drop view               one file with the columns before the DDL; for a view only their names
    rename                              one file under the new name
    rename tables, create tables        one file for each table, of type 14 or 3
    exchange partition                  the partitioned table with query and type, then the other table without them
    a database                          one file without columns; no file if table ids replace names

A DDL with `not_sync` writes no file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from tidegate.errors import BadEvents
from tidegate.format.ddl import events as ddl
from tidegate.format.ddl import queries as ddl_queries
from tidegate.format.ddl.events import DdlEvent, TableAfter
from tidegate.format.layout import PathOptions, schema_path
from tidegate.format.tables import Column, Layout, schema_checksum, schema_file_text

Target = Callable[[str, str], tuple[str, str]]

_PIECE_TYPES = {ddl.RENAME_TABLES: ddl.RENAME_TABLE, ddl.CREATE_TABLES: ddl.CREATE_TABLE}
_VIEWS = (ddl.CREATE_VIEW, ddl.DROP_VIEW)
_NEEDS_NO_COLUMNS = (*_VIEWS, ddl.DROP_TABLE)  # a source may not know the columns of a dropped table


class SchemaFile(NamedTuple):
    path: str
    text: str


def schema_files(
    event: DdlEvent,
    commit_ts: int,
    layouts: Mapping[int, Layout],
    paths: PathOptions,
    target: Target,
    output_column_id: bool,
) -> list[SchemaFile]:
    """`shop/orders/meta/schema_437_0752767265.json` and its text for an alter of `shop`.`orders` at 437.

    `target` gives the routed names of a table; for a database it is called with table "".
    """
    if event.not_sync:
        return []
    _check_exchange(event)
    files = []
    for at, table in enumerate(event.tables):
        if paths.table_id_as_path and not table.table:
            continue
        (schema, name), layout = target(table.schema, table.table), _layout(event, table, layouts)
        action, query = _action(event, at, target)
        checksum = schema_checksum(schema, name, layout, output_column_id)
        path = schema_path(schema, name, commit_ts, checksum, paths, table.table_id)
        text = schema_file_text(schema, name, commit_ts, layout, query, action, output_column_id)
        files.append(SchemaFile(path, text))
    return files


def _check_exchange(event: DdlEvent) -> None:
    if event.type == ddl.EXCHANGE_PARTITION and (len(event.tables) != 2 or event.tables[1].layout is None):
        raise BadEvents(f"the exchange {event.query!r:.120} does not say what the exchanged table looks like")


def _layout(event: DdlEvent, table: TableAfter, layouts: Mapping[int, Layout]) -> Layout | None:
    if table.layout is None:
        if table.table and event.type not in _NEEDS_NO_COLUMNS:
            raise BadEvents(f"a DDL of type {event.type} has no layout for `{table.schema}`.`{table.table}`")
        return None
    if table.layout not in layouts:
        raise BadEvents(
            f"a DDL gives `{table.schema}`.`{table.table}` the layout {table.layout}, which no layout row defines"
        )
    layout = layouts[table.layout]
    return _view_layout(layout) if event.type in _VIEWS else layout


def _view_layout(layout: Layout) -> Layout:
    return Layout(tuple(Column(column.name, "unspecified", id=column.id) for column in layout.columns))


def _action(event: DdlEvent, at: int, target: Target) -> tuple[int, str]:
    """The type and query of the file of table number `at`."""
    table = event.tables[at]
    if event.type in _PIECE_TYPES:
        return _PIECE_TYPES[event.type], _target_query(event, table, table.query, target)
    if event.type == ddl.EXCHANGE_PARTITION and at:
        return 0, ""
    return event.type, _target_query(event, table, event.query, target)


def _target_query(event: DdlEvent, table: TableAfter, query: str, target: Target) -> str:
    """The query with target names; exactly the text of the event if no name is routed."""
    names = _names(event, table)
    targets = [target(*name) for name in names]
    if targets == names:
        return query
    match event.type:
        case ddl.DROP_TABLE:
            return ddl_queries.drop_table_query(*targets)
        case ddl.DROP_VIEW:
            return ddl_queries.drop_view_query(*targets)
        case ddl.RENAME_TABLE | ddl.RENAME_TABLES:
            return ddl_queries.rename_query(*targets) + (";" if event.type == ddl.RENAME_TABLES else "")
        case ddl.EXCHANGE_PARTITION:
            return ddl_queries.exchange_query(query, *targets)
        case _:
            return ddl_queries.named_query(query, *targets)


def _names(event: DdlEvent, table: TableAfter) -> list[tuple[str, str]]:
    """The source names that the query mentions, in the order of the query."""
    if event.type in (ddl.RENAME_TABLE, ddl.RENAME_TABLES):
        return [(table.old_schema, table.old_table), (table.schema, table.table)]
    mentioned = event.tables if event.type == ddl.EXCHANGE_PARTITION else (table,)
    return [(one.schema, one.table) for one in mentioned]
