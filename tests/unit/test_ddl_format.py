"""DDL events: what each DDL carries, its JSON, its text, and the schema files it writes.

The sequences of jobs are those that TiCDC's own tests pin; ids are compared as sets.
"""

from __future__ import annotations

import json
import pickle
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import BadEvents
from tidegate.format.ddl import events as ddl
from tidegate.format.ddl.events import (
    ACTION_NAMES,
    ACTIONS,
    ALL,
    ALTERS,
    DB,
    NORMAL,
    AddedTable,
    DdlEvent,
    Scope,
    TableAfter,
    UpdatedSchema,
    has_schedule_changes,
    is_replicated,
    is_splitable,
    should_block,
)
from tidegate.format.ddl.files import SchemaFile, schema_files
from tidegate.format.ddl.queries import (
    drop_table_query,
    drop_view_query,
    exchange_query,
    named_query,
    rename_query,
    split_queries,
    statement,
)
from tidegate.format.ddl.scope import (
    RenameIntoFilter,
    Table,
    alter_database_charset,
    alter_table,
    apply_event_filter,
    change_partitions,
    create_database,
    create_table,
    create_tables,
    create_view,
    drop_database,
    drop_table,
    drop_view,
    exchange_partition,
    recover_table,
    rename_table,
    rename_tables,
    truncate_table,
)
from tidegate.format.layout import PathOptions, is_schema_path, parse_schema_path
from tidegate.format.tables import Column, Layout

ID = Column("a", "int", nullable=False, pk=True)
KEYED = Layout((ID,))
WIDER = Layout((ID, Column("b", "int")))
UNIQUE = Layout((ID, Column("b", "int")), unique_keys=(("b",),))
LAYOUTS = {layout.fingerprint: layout for layout in (KEYED, WIDER, UNIQUE)}
T1 = Table(100, "test", "t1", 200, KEYED)
PARTITIONED = Table(100, "test", "t1", 300, KEYED, (301, 302, 303))
VIEW = Table(100, "test", "v", 400, WIDER)


def carried(event: DdlEvent | None) -> dict[str, Any]:
    """What a DDL carries, without what is empty; ids as sets."""
    assert event is not None
    found = {
        "type": event.type,
        "blocked": _scope(event.blocked),
        "dropped": _scope(event.dropped),
        "added": {(added.schema_id, added.table_id) for added in event.added},
        "updated": {(moved.table_id, moved.old_schema_id, moved.new_schema_id) for moved in event.updated_schemas},
    }
    return {name: value for name, value in found.items() if value}


def _scope(scope: Scope | None) -> Any:
    if scope is None or scope.kind == NORMAL:
        return set(scope.table_ids) if scope else None
    return (scope.kind, scope.schema_id)


def built(event: DdlEvent | None) -> DdlEvent:
    assert event is not None
    return event


def same(schema: str, table: str) -> tuple[str, str]:
    return schema, table


def routed(schema: str, table: str) -> tuple[str, str]:
    return f"to_{schema}", f"new_{table}" if table else ""


def written(event: DdlEvent | None, paths: PathOptions | None = None, target: Any = same, ids: bool = False) -> Any:
    return schema_files(built(event), 1000, LAYOUTS, paths or PathOptions(), target, ids)


def shown(file: SchemaFile) -> tuple[str, str, int, str]:
    """Directory, table, type and query of a schema file."""
    content = json.loads(file.text)
    assert is_schema_path(file.path)
    assert content["TableVersion"] == 1000
    folder = file.path.partition("/meta/")[0]
    assert folder in (content["Schema"], f"{content['Schema']}/{content['Table']}") or folder.isdigit()
    return folder, content["Table"], content["Type"], content["Query"]


# Action codes


def test_there_are_41_replicated_types_and_each_has_one_name_and_one_number() -> None:
    codes = [*range(1, 16), *range(17, 27), 32, 33, 37, 38, 41, 42, 47, 60, 61, 64, 65, 67, 71, 72, 230, 231]
    assert len(ACTIONS) == len(ACTION_NAMES) == 41
    assert sorted(ACTION_NAMES) == codes
    assert all(is_replicated(code) for code in codes)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("create database", 1),
        ("drop database", 2),
        ("create table", 3),
        ("drop table", 4),
        ("add column", 5),
        ("add foreign key", 9),
        ("truncate table", 11),
        ("rename table", 14),
        ("add partition", 19),
        ("drop partition", 20),
        ("truncate partition", 23),
        ("exchange partition", 42),
        ("rename tables", 47),
        ("create tables", 60),
        ("partition by", 71),
        ("remove partitioning", 72),
        ("full-text index", 230),
        ("hybrid index", 231),
    ],
)
def test_the_pinned_action_codes_have_their_names(name: str, code: int) -> None:
    assert ACTIONS[name] == code
    assert ACTION_NAMES[code] == name


@pytest.mark.parametrize("code", [0, 16, 27, 34, 36, 63, 66, 999])
def test_sequences_placement_shard_bits_and_recover_schema_are_not_replicated(code: int) -> None:
    assert not is_replicated(code)


# Blocking and scheduling


@pytest.mark.parametrize(
    ("blocked", "complete", "expected"),
    [
        (None, True, False),
        (None, False, False),
        (Scope(NORMAL, (0,)), True, False),
        (Scope(NORMAL, (1,)), True, False),
        (Scope(NORMAL, (1,)), False, True),
        (Scope(NORMAL, (1, 2)), True, True),
        (Scope(NORMAL, (1, 2)), False, True),
        (Scope(NORMAL, (0, 1)), True, True),
        (Scope(DB, schema_id=1), True, True),
        (Scope(DB, schema_id=1), False, True),
        (Scope(ALL), True, True),
        (Scope(ALL), False, True),
    ],
)
def test_a_barrier_is_needed_by_scope_and_by_what_the_dispatcher_owns(
    blocked: Scope | None, complete: bool, expected: bool
) -> None:
    assert should_block(DdlEvent(5, "", 1, blocked), complete) is expected
    assert should_block(DdlEvent(5, "", 1, blocked, not_sync=True), complete) is expected


@pytest.mark.parametrize(
    ("dropped", "added", "expected"),
    [
        (None, (), False),
        (Scope(NORMAL), (), False),
        (Scope(NORMAL, (1,)), (), True),
        (Scope(DB, schema_id=1), (), True),
        (Scope(ALL), (), True),
        (None, (AddedTable(1, 2),), True),
    ],
)
def test_empty_lists_of_dropped_and_added_tables_change_no_schedule(
    dropped: Scope | None, added: tuple[AddedTable, ...], expected: bool
) -> None:
    assert has_schedule_changes(DdlEvent(4, "", 1, dropped=dropped, added=added)) is expected


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        (KEYED, True),
        (UNIQUE, False),
        (Layout((Column("b", "int"),)), False),
        (Layout((Column("b", "int", nullable=False),), unique_keys=(("b",),)), False),
    ],
)
def test_a_table_is_splitable_with_a_primary_key_and_no_other_unique_index(layout: Layout, expected: bool) -> None:
    assert is_splitable(layout) is expected
    event = built(create_table(Table(1, "s", "t", 2, layout), "create table t"))
    assert event.added == (AddedTable(1, 2, expected),)


def test_a_scope_covers_its_tables_its_database_or_everything() -> None:
    assert Scope(NORMAL, (5,)).covers(5, 1)
    assert not Scope(NORMAL, (5,)).covers(6, 1)
    assert Scope(DB, schema_id=1).covers(6, 1)
    assert not Scope(DB, schema_id=1).covers(6, 2)
    assert not Scope(DB, schema_id=1).covers(ddl.TRIGGER, 0), "a dropped database does not end the table trigger"
    assert Scope(ALL).covers(6, 2)


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "table"},
        {"kind": DB, "table_ids": (1,)},
        {"kind": NORMAL, "schema_id": 1},
        {"kind": ALL, "schema_id": 1},
    ],
)
def test_a_scope_of_an_unknown_kind_or_with_fields_of_another_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(BadEvents, match="scope"):
        Scope(**fields)


# Every row of what a DDL carries


LIKED = Table(100, "test", "src", 210, KEYED, (211, 212))
ROWS = {
    "create schema": (create_database(100, "test", "q"), {"type": 1, "blocked": {0}}),
    "drop schema": (drop_database(100, "test", "q"), {"type": 2, "blocked": (DB, 100), "dropped": (DB, 100)}),
    "schema charset": (alter_database_charset(100, "test", "q"), {"type": 26, "blocked": (DB, 100)}),
    "create table": (create_table(T1, "q"), {"type": 3, "blocked": {0}, "added": {(100, 200)}}),
    "create partitioned table": (
        create_table(PARTITIONED, "q"),
        {"type": 3, "blocked": {0}, "added": {(100, 301), (100, 302), (100, 303)}},
    ),
    "create table like": (
        create_table(T1, "q", LIKED),
        {"type": 3, "blocked": {0, 211, 212}, "added": {(100, 200)}},
    ),
    "create table like a filtered one": (
        create_table(T1, "q", replace(LIKED, kept=False)),
        {"type": 3, "blocked": {0}, "added": {(100, 200)}},
    ),
    "recover table": (recover_table(T1, "q"), {"type": 25, "blocked": {0}, "added": {(100, 200)}}),
    "create tables": (
        create_tables([(T1, "create table t1 (a int)"), (PARTITIONED, "create table t2 (a int)")]),
        {"type": 60, "blocked": {0}, "added": {(100, 200), (100, 301), (100, 302), (100, 303)}},
    ),
    "drop table": (drop_table(T1), {"type": 4, "blocked": {0, 200}, "dropped": {200}}),
    "drop partitioned table": (
        drop_table(PARTITIONED),
        {"type": 4, "blocked": {0, 301, 302, 303}, "dropped": {301, 302, 303}},
    ),
    "truncate table": (
        truncate_table(T1, replace(T1, id=202), "q"),
        {"type": 11, "blocked": {0, 200}, "dropped": {200}, "added": {(100, 202)}},
    ),
    "rename table": (rename_table(T1, replace(T1, name="t2")), {"type": 14, "blocked": {0, 200}}),
    "rename table to another schema": (
        rename_table(T1, replace(T1, schema_id=105, schema="test2")),
        {"type": 14, "blocked": {0, 200}, "updated": {(200, 100, 105)}},
    ),
    "rename table into a filtered name": (
        rename_table(T1, replace(T1, schema_id=105, schema="test2", kept=False)),
        {"type": 14, "blocked": {0, 200}, "dropped": {200}},
    ),
    "add partition": (
        change_partitions(19, PARTITIONED, replace(PARTITIONED, partitions=(301, 302, 303, 304)), "q"),
        {"type": 19, "blocked": {0, 301, 302, 303}, "added": {(100, 304)}},
    ),
    "drop partition": (
        change_partitions(20, PARTITIONED, replace(PARTITIONED, partitions=(302, 303)), "q"),
        {"type": 20, "blocked": {0, 301, 302, 303}, "dropped": {301}},
    ),
    "truncate partition": (
        change_partitions(23, PARTITIONED, replace(PARTITIONED, partitions=(302, 303, 304)), "q"),
        {"type": 23, "blocked": {0, 301, 302, 303}, "dropped": {301}, "added": {(100, 304)}},
    ),
    "reorganize partition": (
        change_partitions(64, PARTITIONED, replace(PARTITIONED, partitions=(303, 304, 305)), "q"),
        {"type": 64, "blocked": {0, 301, 302, 303}, "dropped": {301, 302}, "added": {(100, 304), (100, 305)}},
    ),
    "exchange partition": (
        exchange_partition(PARTITIONED, replace(PARTITIONED, partitions=(301, 302, 200)), replace(T1, name="n"), "q"),
        {"type": 42, "blocked": {0, 200, 303}},
    ),
    "partition by": (
        change_partitions(71, T1, replace(T1, id=220, partitions=(221, 222)), "q"),
        {"type": 71, "blocked": {0, 200}, "dropped": {200}, "added": {(100, 221), (100, 222)}},
    ),
    "remove partitioning": (
        change_partitions(72, PARTITIONED, replace(PARTITIONED, id=310, partitions=()), "q"),
        {"type": 72, "blocked": {0, 301, 302, 303}, "dropped": {301, 302, 303}, "added": {(100, 310)}},
    ),
    "create view": (create_view(VIEW, "q"), {"type": 21, "blocked": (ALL, 0)}),
    "drop view": (drop_view(VIEW), {"type": 24, "blocked": {0}}),
}


@pytest.mark.parametrize("row", ROWS)
def test_a_ddl_carries_what_the_table_of_ddls_says(row: str) -> None:
    event, expected = ROWS[row]
    assert carried(event) == expected


@pytest.mark.parametrize("row", ROWS)
def test_every_kind_of_ddl_survives_json_and_pickle(row: str) -> None:
    event = built(ROWS[row][0])
    assert DdlEvent.from_json(event.to_json()) == event
    assert pickle.loads(pickle.dumps(event)) == event


@pytest.mark.parametrize("action", ALTERS.values())
def test_an_alter_blocks_the_table_or_all_its_partitions_without_the_trigger(action: int) -> None:
    assert carried(alter_table(action, T1, "q")) == {"type": action, "blocked": {200}}
    assert carried(alter_table(action, PARTITIONED, "q")) == {"type": action, "blocked": {301, 302, 303}}


def test_an_alter_is_local_only_on_a_whole_table_without_partitions() -> None:
    assert not should_block(built(alter_table(5, T1, "q")), complete=True)
    assert should_block(built(alter_table(5, T1, "q")), complete=False)
    assert should_block(built(alter_table(5, PARTITIONED, "q")), complete=True)


def test_a_builder_refuses_the_type_of_another_ddl() -> None:
    with pytest.raises(BadEvents, match="type 11"):
        alter_table(ddl.TRUNCATE_TABLE, T1, "q")
    with pytest.raises(BadEvents, match="type 42"):
        change_partitions(ddl.EXCHANGE_PARTITION, PARTITIONED, PARTITIONED, "q")


def test_what_the_filter_leaves_out_is_not_built() -> None:
    out, parts = replace(T1, kept=False), replace(PARTITIONED, kept=False)
    exchanged = replace(parts, partitions=(301, 302, 200))
    assert create_table(out, "q") is recover_table(out, "q") is drop_table(out) is alter_table(5, out, "q") is None
    assert truncate_table(out, replace(out, id=1), "q") is change_partitions(20, parts, parts, "q") is None
    assert (
        create_tables([(out, "create table t1 (a int)")])
        is rename_table(out, out)
        is rename_tables([(out, out)])
        is None
    )
    assert create_view(out, "q") is drop_view(out) is exchange_partition(parts, exchanged, out, "q") is None


# The pinned sequences of jobs


def test_sequence_filter_rules_builds_only_what_is_kept() -> None:
    t1, t2 = Table(100, "filter", "t1", 200, KEYED), Table(100, "filter", "t2", 201, KEYED, kept=False)
    assert carried(create_database(100, "filter", "q")) == {"type": 1, "blocked": {0}}
    assert carried(create_table(t1, "q")) == {"type": 3, "blocked": {0}, "added": {(100, 200)}}
    assert create_table(t2, "q") is create_table(Table(101, "haha", "t2", 202, KEYED, kept=False), "q") is None


def test_sequence_create_drop_truncate_table() -> None:
    t2 = Table(100, "test", "t2", 201, KEYED)
    assert carried(create_table(T1, "q")) == {"type": 3, "blocked": {0}, "added": {(100, 200)}}
    assert carried(create_table(t2, "q")) == {"type": 3, "blocked": {0}, "added": {(100, 201)}}
    dropped = built(drop_table(t2))
    assert carried(dropped) == {"type": 4, "blocked": {0, 201}, "dropped": {201}}
    assert dropped.query == "DROP TABLE `test`.`t2`"
    truncated = built(truncate_table(T1, replace(T1, id=202), "q"))
    assert carried(truncated) == {"type": 11, "blocked": {0, 200}, "dropped": {200}, "added": {(100, 202)}}
    assert truncated.added == (AddedTable(100, 202, True),)


def test_sequence_partition_table() -> None:
    was = Table(100, "test", "t1", 200, KEYED, (201, 202, 203))
    truncated = replace(was, id=300, partitions=(204, 205, 206))
    more = replace(truncated, partitions=(204, 205, 206, 207))
    fewer = replace(truncated, partitions=(205, 206, 207))
    other = replace(truncated, partitions=(206, 207, 208))
    events = [
        truncate_table(was, truncated, "q"),
        change_partitions(19, truncated, more, "q"),
        change_partitions(20, more, fewer, "q"),
        change_partitions(23, fewer, other, "q"),
    ]
    new = {(100, 204), (100, 205), (100, 206)}
    assert [carried(event) for event in events] == [
        {"type": 11, "blocked": {0, 201, 202, 203}, "dropped": {201, 202, 203}, "added": new},
        {"type": 19, "blocked": {0, 204, 205, 206}, "added": {(100, 207)}},
        {"type": 20, "blocked": {0, 204, 205, 206, 207}, "dropped": {204}},
        {"type": 23, "blocked": {0, 205, 206, 207}, "dropped": {205}, "added": {(100, 208)}},
    ]
    reached = {203: [0], 204: [0, 1, 2], 205: [0, 1, 2, 3], 207: [1, 2, 3], 208: [3], 0: [0, 1, 2, 3]}
    for table_id, expected in reached.items():
        assert [at for at, event in enumerate(events) if built(event).reaches(table_id, 100)] == expected


EXCHANGED = Table(100, "test", "t1", 200, KEYED, (201, 202, 203))
AFTER_EXCHANGE = replace(EXCHANGED, partitions=(201, 202, 300))
NORMAL_TABLE = Table(105, "test2", "t2", 300, KEYED)


def test_sequence_exchange_table_partition() -> None:
    event = built(exchange_partition(EXCHANGED, AFTER_EXCHANGE, NORMAL_TABLE, "q"))
    moved = {(300, 105, 100), (203, 100, 105)}
    assert carried(event) == {"type": 42, "blocked": {203, 300, 0}, "updated": moved}
    assert [event.reaches(table_id, 100) for table_id in (201, 202, 203, 300, 0)] == [False, False, True, True, True]
    assert [(table.table_id, table.partitions) for table in event.tables] == [(200, (201, 202, 300)), (203, ())]


def test_an_exchange_with_one_side_filtered_ends_the_kept_part_and_begins_with_what_came() -> None:
    out = replace(NORMAL_TABLE, kept=False)
    only_partitioned = built(exchange_partition(EXCHANGED, AFTER_EXCHANGE, out, "q"))
    assert carried(only_partitioned) == {"type": 42, "blocked": {203, 0}, "dropped": {203}, "added": {(100, 300)}}
    before, after = replace(EXCHANGED, kept=False), replace(AFTER_EXCHANGE, kept=False)
    only_normal = built(exchange_partition(before, after, replace(NORMAL_TABLE, layout=UNIQUE), "q"))
    assert carried(only_normal) == {"type": 42, "blocked": {300, 0}, "dropped": {300}, "added": {(105, 203)}}
    assert not only_normal.added[0].splitable, "it is the normal table that goes on, with its keys"


@pytest.mark.parametrize("partitions", [(201, 202, 203), (201, 300), (201, 202, 999), (201, 202, 203, 300)])
def test_an_exchange_whose_ids_do_not_fit_is_refused(partitions: tuple[int, ...]) -> None:
    with pytest.raises(BadEvents, match=r"`test2`\.`t2` \(300\)"):
        exchange_partition(EXCHANGED, replace(EXCHANGED, partitions=partitions), NORMAL_TABLE, "q")


def test_sequence_rename_partition_table() -> None:
    renamed = replace(PARTITIONED, schema_id=105, schema="test2", name="t2")
    moved = {(301, 100, 105), (302, 100, 105), (303, 100, 105)}
    ids = {301, 302, 303}
    assert carried(rename_table(PARTITIONED, renamed)) == {"type": 14, "blocked": {0, *ids}, "updated": moved}
    gone = rename_table(PARTITIONED, replace(renamed, kept=False))
    assert carried(gone) == {"type": 14, "blocked": {0, *ids}, "dropped": ids}
    with pytest.raises(RenameIntoFilter, match=r"`test`\.`t1`.*`test2`\.`t2`"):
        rename_table(replace(PARTITIONED, kept=False), renamed)


T2 = Table(100, "test", "t2", 201, KEYED)


def test_sequence_rename_tables() -> None:
    t101, t102 = replace(T1, name="t101"), replace(T2, schema_id=105, schema="test2", name="t102")
    query = "RENAME TABLE `test`.`t1` TO `test`.`t101`;RENAME TABLE `test`.`t2` TO `test2`.`t102`;"
    event = built(rename_tables([(T1, t101), (T2, t102)]))
    assert carried(event) == {"type": 47, "blocked": {0, 200, 201}, "updated": {(201, 100, 105)}}
    assert event.query == query
    event = built(rename_tables([(T1, t101), (T2, replace(t102, kept=False))]))
    assert carried(event) == {"type": 47, "blocked": {0, 200, 201}, "dropped": {201}}
    assert event.query == query, "the rename into the filtered name is still written"


def test_sequence_rename_tables_to_swap_names() -> None:
    event = built(rename_tables([(T1, replace(T1, name="t2")), (T2, replace(T2, name="t1"))]))
    assert carried(event) == {"type": 47, "blocked": {0, 200, 201}}
    assert [(table.table_id, table.old_table, table.table) for table in event.tables] == [
        (200, "t1", "t2"),
        (201, "t2", "t1"),
    ]


def test_a_rename_in_a_circle_blocks_each_table_once_and_keeps_every_step() -> None:
    tmp = replace(T1, name="tmp", kept=False)
    steps = [(T1, tmp), (T2, replace(T2, name="t1")), (tmp, replace(T1, name="t2"))]
    event = built(rename_tables(steps))
    assert carried(event) == {"type": 47, "blocked": {0, 200, 201}}
    assert event.blocked == Scope(NORMAL, (0, 200, 201))
    assert [table.table for table in event.tables] == ["tmp", "t1", "t2"]


def test_a_chain_of_renames_moves_a_table_from_its_first_schema_to_its_last() -> None:
    there = replace(T1, schema_id=105, schema="test2")
    onward = replace(T1, schema_id=106, schema="test3")
    assert carried(rename_tables([(T1, there), (there, onward)]))["updated"] == {(200, 100, 106)}
    assert carried(rename_tables([(T1, there), (there, T1)])) == {"type": 47, "blocked": {0, 200}}


def test_of_rename_tables_the_pieces_of_filtered_tables_are_cut_out() -> None:
    out = replace(T2, kept=False)
    event = built(rename_tables([(out, replace(out, name="t9")), (T1, replace(T1, name="t8"))]))
    assert carried(event) == {"type": 47, "blocked": {0, 200}}
    assert event.query == "RENAME TABLE `test`.`t1` TO `test`.`t8`;"
    with pytest.raises(RenameIntoFilter, match=r"`test`\.`t2`.*`test`\.`t9`"):
        rename_tables([(T1, T1), (out, replace(T2, name="t9"))])


def test_sequence_create_tables() -> None:
    tables = [Table(100, "test", f"t{n}", 300 + n, KEYED) for n in (1, 2, 3)]
    pieces = [(table, f"create table {table.name} (a int primary key)") for table in tables]
    event = built(create_tables(pieces))
    assert carried(event) == {"type": 60, "blocked": {0}, "added": {(100, 301), (100, 302), (100, 303)}}
    only_t1 = [(table if table.name == "t1" else replace(table, kept=False), query) for table, query in pieces]
    event = built(create_tables(only_t1))
    assert carried(event) == {"type": 60, "blocked": {0}, "added": {(100, 301)}}
    assert event.query == "CREATE TABLE `t1` (`a` INT PRIMARY KEY);"


def test_sequence_create_tables_prints_the_statements_again() -> None:
    t4 = "CREATE TABLE t4 (COL1 VARBINARY(10) NOT NULL, PRIMARY KEY(COL1));"
    t5 = "CREATE TABLE t5 (COL2 ENUM('ABC','IRG','KT;J'), COL3 TINYINT(50) NOT NULL, PRIMARY KEY(COL3));"
    event = built(create_tables([(replace(T1, name="t4", id=304), t4), (replace(T1, name="t5", id=305), t5)]))
    assert carried(event) == {"type": 60, "blocked": {0}, "added": {(100, 304), (100, 305)}}
    assert event.query == (
        "CREATE TABLE `t4` (`COL1` VARBINARY(10) NOT NULL,PRIMARY KEY(`COL1`));"
        "CREATE TABLE `t5` (`COL2` ENUM('ABC','IRG','KT;J'),`COL3` TINYINT(50) NOT NULL,PRIMARY KEY(`COL3`));"
    )


def test_a_piece_of_create_tables_is_one_statement() -> None:
    with pytest.raises(BadEvents, match="one statement"):
        create_tables([(T1, "create table a (x int); create table b (x int)")])


def test_sequence_alter_and_remove_partitioning() -> None:
    plain = Table(100, "test", "t1", 300, KEYED)
    first = replace(plain, id=301, partitions=(501, 502, 503))
    second = replace(plain, id=302, partitions=(504, 505, 506))
    last = replace(plain, id=303)
    steps = [(71, plain, first), (71, first, second), (72, second, last)]
    new = {(100, 501), (100, 502), (100, 503)}, {(100, 504), (100, 505), (100, 506)}
    assert [carried(change_partitions(action, before, after, "q")) for action, before, after in steps] == [
        {"type": 71, "blocked": {0, 300}, "dropped": {300}, "added": new[0]},
        {"type": 71, "blocked": {0, 501, 502, 503}, "dropped": {501, 502, 503}, "added": new[1]},
        {"type": 72, "blocked": {0, 504, 505, 506}, "dropped": {504, 505, 506}, "added": {(100, 303)}},
    ]


def test_sequence_trivial_ddls_reach_the_table_alone_but_for_views() -> None:
    table = Table(100, "test", "t1", 300, KEYED)
    names = ["add primary key", "index visibility", "drop primary key", "table charset", "ttl", "remove ttl"]
    names += ["multi-schema change", "add column", "drop column", "add foreign key", "full-text index", "hybrid index"]
    alters = [built(alter_table(ACTIONS[name], table, "q")) for name in names]
    views = [built(create_view(VIEW, "q")), built(drop_view(VIEW))]
    assert [event.type for event in alters[-3:]] == [9, 230, 231]
    assert all(event.reaches(300, 100) and not event.reaches(0, 0) for event in alters)
    assert [(event.reaches(300, 100), event.reaches(0, 0)) for event in views] == [(True, True), (False, True)]


def test_a_database_wide_ddl_reaches_its_tables_and_the_trigger() -> None:
    event = drop_database(10, "test", "q")
    assert (event.reaches(0, 0), event.reaches(7, 10), event.reaches(7, 11)) == (True, True, False)
    assert not DdlEvent(5, "", 1).reaches(0, 0), "a DDL that blocks nothing reaches nobody by itself"


# Event filters


def test_an_ignored_ddl_is_not_synced_but_still_changes_dispatchers() -> None:
    event = built(truncate_table(T1, replace(T1, id=202), "truncate t1"))
    ignored = apply_event_filter(
        event, lambda schema, table, query: (schema, table, query) == ("test", "t1", "truncate t1")
    )
    assert ignored == replace(event, not_sync=True)
    assert has_schedule_changes(ignored)
    assert written(ignored) == []
    assert apply_event_filter(event, lambda *_: False) == event


def test_a_rename_is_ignored_by_its_old_name_and_an_exchange_by_its_partitioned_table() -> None:
    def on_t1(schema: str, table: str, query: str) -> bool:
        return (schema, table) == ("test", "t1")

    renamed = built(rename_table(T1, replace(T1, name="t2")))
    back = built(rename_table(T2, replace(T2, name="t1")))
    exchanged = built(exchange_partition(EXCHANGED, AFTER_EXCHANGE, NORMAL_TABLE, "q"))
    assert [apply_event_filter(event, on_t1).not_sync for event in (renamed, back, exchanged)] == [True, False, True]
    normal = replace(NORMAL_TABLE, schema="test", name="t1")
    swapped = exchange_partition(replace(EXCHANGED, name="pt"), replace(AFTER_EXCHANGE, name="pt"), normal, "q")
    assert not apply_event_filter(built(swapped), on_t1).not_sync


def test_of_a_ddl_of_several_tables_the_ignored_pieces_are_cut_out() -> None:
    event = built(create_tables([(T1, "create table t1 (a int)"), (T2, "create table t2 (a int)")]))
    left = apply_event_filter(event, lambda schema, table, query: table == "t1")
    assert not left.not_sync
    assert (left.query, [table.table for table in left.tables]) == ("CREATE TABLE `t2` (`a` INT);", ["t2"])
    assert left.added == event.added
    assert written(apply_event_filter(event, lambda *_: True)) == []


# Texts


def test_rebuilt_texts_double_the_backquotes_of_names() -> None:
    source, other = ("source`db", "source`t"), ("target`db", "target`t")
    assert rename_query(source, other) == "RENAME TABLE `source``db`.`source``t` TO `target``db`.`target``t`"
    assert drop_table_query(("schema`x", "table`x")) == "DROP TABLE `schema``x`.`table``x`"
    assert drop_view_query(("schema`x", "view`x")) == "DROP VIEW `schema``x`.`view``x`"


def test_the_pieces_of_rename_tables_are_rebuilt_with_full_names() -> None:
    old = [Table(1, "source`db", f"source`t{n}", n, KEYED) for n in (1, 2)]
    new = [replace(table, schema="target`db", name=f"target`t{table.id}") for table in old]
    assert built(rename_tables(list(zip(old, new, strict=True)))).query == (
        "RENAME TABLE `source``db`.`source``t1` TO `target``db`.`target``t1`;"
        "RENAME TABLE `source``db`.`source``t2` TO `target``db`.`target``t2`;"
    )


@pytest.mark.parametrize(
    ("old", "new", "query"),
    [
        (("t", "t3"), ("test", "t1"), "RENAME TABLE `t`.`t3` TO `test`.`t1`"),
        (("test", "t1"), ("test", "t2"), "RENAME TABLE `test`.`t1` TO `test`.`t2`"),
    ],
)
def test_a_rename_has_both_full_names_however_it_was_written(
    old: tuple[str, str], new: tuple[str, str], query: str
) -> None:
    before = Table(1, old[0], old[1], 5, KEYED)
    assert built(rename_table(before, replace(before, schema=new[0], name=new[1]))).query == query


@pytest.mark.parametrize(
    ("original", "tail"),
    [
        (
            "ALTER TABLE `no`.`no` EXCHANGE PARTITION `p``0` WITH TABLE `n2`.`n2` WITHOUT VALIDATION",
            " WITHOUT VALIDATION",
        ),
        ("alter table pt exchange partition `p``0` with table t with validation;", ""),
        ("alter table db . pt exchange partition `p``0` with table t", ""),
    ],
)
def test_an_exchange_is_rebuilt_with_full_names(original: str, tail: str) -> None:
    expected = "ALTER TABLE `part``db`.`pt``x` EXCHANGE PARTITION `p``0` WITH TABLE `normal``db`.`normal``t`"
    assert exchange_query(original, ("part`db", "pt`x"), ("normal`db", "normal`t")) == expected + tail


def test_a_text_that_is_no_exchange_stays() -> None:
    assert exchange_query("ALTER TABLE t ADD c INT", ("a", "b"), ("c", "d")) == "ALTER TABLE t ADD c INT"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" -- nothing\n;;", []),
        ("CREATE TABLE test (id INT)", ["CREATE TABLE `test` (`id` INT);"]),
        ("CREATE TABLE test (id INT);", ["CREATE TABLE `test` (`id` INT);"]),
        (
            "CREATE TABLE test (c VARCHAR(100) DEFAULT 'a;b;c');",
            ["CREATE TABLE `test` (`c` VARCHAR(100) DEFAULT _UTF8MB4'a;b;c');"],
        ),
        (
            "/* comment; not a statement */\nCREATE TABLE test1 (id INT); "
            "-- inline; comment\nCREATE TABLE test2 (id INT);\n",
            ["CREATE TABLE `test1` (`id` INT);", "CREATE TABLE `test2` (`id` INT);"],
        ),
        (
            "create table if not exists s.`t``1` "
            "(`a b` bigint unsigned not null auto_increment primary key, d decimal(8,2) default null)",
            [
                "CREATE TABLE IF NOT EXISTS `s`.`t``1` "
                "(`a b` BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,`d` DECIMAL(8,2) DEFAULT NULL);"
            ],
        ),
        ("create table a like b ; create table c (d bit)", ["create table a like b;", "create table c (d bit);"]),
    ],
)
def test_a_text_is_split_into_statements_that_end_with_a_semicolon(text: str, expected: list[str]) -> None:
    assert list(split_queries(text)) == expected


@pytest.mark.parametrize(
    "text", ["CREATE TABLE test (id INT;", "CREATE TABLE test id INT);", "CREATE TABLE `t (a INT)"]
)
def test_a_text_that_cannot_be_split_is_an_error(text: str) -> None:
    with pytest.raises(BadEvents, match="CREATE TABLE"):
        split_queries(text)


@pytest.mark.parametrize(
    "definition",
    [
        "a int comment 'x'",
        "a int, unique key (a)",
        "a int, b int, primary key (a, b)",
        "a timestamp default current_timestamp",
        "a int default -1",
        "a varchar(5) default 'it''s'",
        "a bit",
        "a int /*T![clustered_index] primary key */",
        "a int) engine=innodb partition by hash (a",
        "a",
        "",
    ],
)
def test_a_statement_whose_printed_form_is_not_certain_keeps_its_text(definition: str) -> None:
    text = f"create table t ({definition})"
    assert statement(f"/* c */ {text}; # end") == text


def test_a_single_statement_has_no_semicolon_and_one_that_cannot_be_read_stays() -> None:
    assert statement("create table t (a int);") == "CREATE TABLE `t` (`a` INT)"
    assert statement("alter table t comment 'it\\'s;'") == "alter table t comment 'it\\'s;'"
    assert statement("alter table t comment 'open") == "alter table t comment 'open"
    assert [statement(text) for text in ("create table", "a; b", "")] == ["create table", "a; b", ""]
    assert built(alter_table(5, T1, "alter table t1 add b int ; ")).query == "alter table t1 add b int"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("CREATE TABLE `t` (`t` INT)", "CREATE TABLE `s`.`n` (`t` INT)"),
        ("create table if not exists db.t like x", "create table if not exists `s`.`n` like x"),
        ("ALTER TABLE`t`ADD c INT", "ALTER TABLE`s`.`n`ADD c INT"),
        ("truncate t", "truncate `s`.`n`"),
        ("truncate table `a``b` . t", "truncate table `s`.`n`"),
        ("CREATE UNIQUE INDEX i ON t (a)", "CREATE UNIQUE INDEX i ON `s`.`n` (a)"),
        ("drop index `i` on t", "drop index `i` on `s`.`n`"),
        (
            "CREATE OR REPLACE ALGORITHM=MERGE DEFINER=`a`@`%` SQL SECURITY INVOKER VIEW v AS SELECT 1",
            "CREATE OR REPLACE ALGORITHM=MERGE DEFINER=`a`@`%` SQL SECURITY INVOKER VIEW `s`.`n` AS SELECT 1",
        ),
        ("ALTER DATABASE CHARACTER SET utf8", "ALTER DATABASE CHARACTER SET utf8"),
        ("flashback table t", "flashback table t"),
    ],
)
def test_the_first_name_of_a_statement_is_replaced_by_the_full_one(query: str, expected: str) -> None:
    assert named_query(query, ("s", "n")) == expected


def test_a_database_statement_gets_the_name_of_the_database() -> None:
    assert named_query("CREATE DATABASE IF NOT EXISTS a", ("b", "")) == "CREATE DATABASE IF NOT EXISTS `b`"
    assert named_query("alter schema a charset utf8", ("b", "")) == "alter schema `b` charset utf8"


def test_create_view_is_rebuilt_with_the_full_name() -> None:
    assert built(create_view(VIEW, "create view v as select 1;")).query == "create view `test`.`v` as select 1"


# Schema files


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (create_database(1, "test", "create database test"), [("test", "", 1, "create database test")]),
        (drop_database(1, "test", "drop database test"), [("test", "", 2, "drop database test")]),
        (alter_database_charset(1, "test", "alter database x"), [("test", "", 26, "alter database x")]),
        (create_table(T1, "create table t1 like x"), [("test/t1", "t1", 3, "create table t1 like x")]),
        (recover_table(T1, "recover table t1"), [("test/t1", "t1", 25, "recover table t1")]),
        (drop_table(T1), [("test/t1", "t1", 4, "DROP TABLE `test`.`t1`")]),
        (truncate_table(T1, replace(T1, id=9), "truncate t1"), [("test/t1", "t1", 11, "truncate t1")]),
        (
            rename_table(T1, replace(T1, schema="x", name="y")),
            [("x/y", "y", 14, "RENAME TABLE `test`.`t1` TO `x`.`y`")],
        ),
        (
            rename_tables([(T1, replace(T1, name="y")), (T2, replace(T2, name="z"))]),
            [
                ("test/y", "y", 14, "RENAME TABLE `test`.`t1` TO `test`.`y`;"),
                ("test/z", "z", 14, "RENAME TABLE `test`.`t2` TO `test`.`z`;"),
            ],
        ),
        (
            create_tables([(T1, "create table t1 (a int)"), (T2, "create table t2 (a int)")]),
            [
                ("test/t1", "t1", 3, "CREATE TABLE `t1` (`a` INT);"),
                ("test/t2", "t2", 3, "CREATE TABLE `t2` (`a` INT);"),
            ],
        ),
        (alter_table(7, PARTITIONED, "add index"), [("test/t1", "t1", 7, "add index")]),
        (create_view(VIEW, "create view v as x"), [("test/v", "v", 21, "create view `test`.`v` as x")]),
        (drop_view(VIEW), [("test/v", "v", 24, "DROP VIEW `test`.`v`")]),
    ],
)
def test_a_ddl_writes_its_schema_files(event: DdlEvent | None, expected: list[tuple[str, str, int, str]]) -> None:
    assert [shown(file) for file in written(event)] == expected


def test_a_database_has_a_file_without_columns_and_none_in_id_mode() -> None:
    event = create_database(1, "schema1", "")
    (file,) = schema_files(event, 100, {}, PathOptions(), same, False)
    assert file.path == "schema1/meta/schema_100_3233644819.json"
    assert json.loads(file.text)["TableColumns"] is None
    assert written(event, PathOptions(table_id_as_path=True)) == []


def test_the_add_column_of_the_reference_has_its_exact_path() -> None:
    people = Layout(
        (
            Column("Id", "int", nullable=False, pk=True, default=10),
            Column("LastName", "varchar", 128, nullable=False, default="Default LastName"),
            Column("FirstName", "varchar", 64, default="Default FirstName"),
            Column("Birthday", "datetime", default=12345678),
        )
    )
    event = built(alter_table(5, Table(1, "schema1", "table1", 20, people), "alter table table1 add Birthday date"))
    (file,) = schema_files(event, 100, {people.fingerprint: people}, PathOptions(), same, False)
    assert file.path == "schema1/table1/meta/schema_100_3752767265.json"


def test_column_ids_are_shown_and_counted_in_the_checksum_only_when_asked_for() -> None:
    two = Layout((Column("col1", "int", id=1), Column("col2", "varchar", 5, id=2)))
    event = built(alter_table(5, Table(1, "test", "table1", 20, two), "q"))
    (file,) = schema_files(event, 100, {two.fingerprint: two}, PathOptions(), same, True)
    assert file.path == "test/table1/meta/schema_100_0604403549.json"
    assert '"ColumnId": "1"' in file.text


def test_id_mode_uses_the_logical_id() -> None:
    paths = PathOptions(table_id_as_path=True)
    renamed = rename_tables([(T1, replace(T1, name="y")), (PARTITIONED, replace(PARTITIONED, name="z"))])
    assert [shown(file)[:2] for file in written(renamed, paths)] == [("200", "y"), ("300", "z")]
    truncated = truncate_table(PARTITIONED, replace(PARTITIONED, id=310, partitions=(311,)), "q")
    assert [shown(file)[0] for file in written(truncated, paths)] == ["310"]
    assert [shown(file)[0] for file in written(drop_table(PARTITIONED), paths)] == ["300"]
    exchanged = exchange_partition(EXCHANGED, AFTER_EXCHANGE, NORMAL_TABLE, "q")
    assert [shown(file)[0] for file in written(exchanged, paths)] == ["200", "203"]


def test_a_dropped_table_shows_the_columns_it_had_if_they_are_known() -> None:
    (file,) = written(drop_table(replace(T1, layout=WIDER)))
    assert [column["ColumnName"] for column in json.loads(file.text)["TableColumns"]] == ["a", "b"]
    (file,) = written(drop_table(replace(T1, layout=None)))
    assert json.loads(file.text)["TableColumns"] is None


@pytest.mark.parametrize("event", [create_view(VIEW, "q"), drop_view(VIEW)])
def test_a_view_shows_only_the_names_of_its_columns(event: DdlEvent | None) -> None:
    (file,) = written(event)
    names = [{"ColumnName": name, "ColumnType": "UNSPECIFIED"} for name in ("a", "b")]
    assert json.loads(file.text)["TableColumns"] == names


def columns(file: SchemaFile) -> list[str]:
    return [column["ColumnName"] for column in json.loads(file.text)["TableColumns"]]


PARTITION_SIDE = Layout((ID, Column("partition_value", "int")))
EXCHANGE_SIDE = Layout((ID, Column("exchange_value", "int")))
SIDES = {layout.fingerprint: layout for layout in (PARTITION_SIDE, EXCHANGE_SIDE)}


def test_an_exchange_writes_the_partitioned_table_with_query_and_type_and_then_the_other_without() -> None:
    query = "alter table target_db.pt exchange partition p0 with table target_db.nt"
    tables = (
        TableAfter("target_db", "pt", 1, PARTITION_SIDE.fingerprint, partitions=(2, 3)),
        TableAfter("target_db", "nt", 4, EXCHANGE_SIDE.fingerprint),
    )
    files = schema_files(DdlEvent(42, query, 9, tables=tables), 1000, SIDES, PathOptions(), same, False)
    assert [shown(file) for file in files] == [("target_db/pt", "pt", 42, query), ("target_db/nt", "nt", 0, "")]
    assert [columns(file) for file in files] == [["a", "partition_value"], ["a", "exchange_value"]]


def test_an_exchange_without_the_second_table_is_an_error_unless_nothing_is_written() -> None:
    first = TableAfter("db", "pt", 1, PARTITION_SIDE.fingerprint)
    for tables in ((), (first,), (first, TableAfter("db", "nt", 4))):
        event = DdlEvent(42, "q", 9, tables=tables)
        with pytest.raises(BadEvents, match="exchange 'q'"):
            schema_files(event, 1000, SIDES, PathOptions(), same, False)
        assert schema_files(replace(event, not_sync=True), 1000, SIDES, PathOptions(), same, False) == []


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (create_database(1, "test", "create database test"), [("to_test", "", 1, "create database `to_test`")]),
        (
            create_table(T1, "create table t1 like x"),
            [("to_test/new_t1", "new_t1", 3, "create table `to_test`.`new_t1` like x")],
        ),
        (drop_table(T1), [("to_test/new_t1", "new_t1", 4, "DROP TABLE `to_test`.`new_t1`")]),
        (drop_view(VIEW), [("to_test/new_v", "new_v", 24, "DROP VIEW `to_test`.`new_v`")]),
        (
            rename_table(T1, replace(T1, name="y")),
            [("to_test/new_y", "new_y", 14, "RENAME TABLE `to_test`.`new_t1` TO `to_test`.`new_y`")],
        ),
        (
            rename_tables([(T1, replace(T1, name="y"))]),
            [("to_test/new_y", "new_y", 14, "RENAME TABLE `to_test`.`new_t1` TO `to_test`.`new_y`;")],
        ),
        (
            create_tables([(T1, "create table t1 (a int)")]),
            [("to_test/new_t1", "new_t1", 3, "CREATE TABLE `to_test`.`new_t1` (`a` INT);")],
        ),
        (
            exchange_partition(
                EXCHANGED, AFTER_EXCHANGE, NORMAL_TABLE, "alter table t1 exchange partition p with table test2.t2"
            ),
            [
                (
                    "to_test/new_t1",
                    "new_t1",
                    42,
                    "ALTER TABLE `to_test`.`new_t1` EXCHANGE PARTITION `p` WITH TABLE `to_test2`.`new_t2`",
                ),
                ("to_test2/new_t2", "new_t2", 0, ""),
            ],
        ),
    ],
)
def test_paths_names_and_queries_use_target_names(
    event: DdlEvent | None, expected: list[tuple[str, str, int, str]]
) -> None:
    assert [shown(file) for file in written(event, target=routed)] == expected


def test_the_path_of_a_file_says_its_version_and_names() -> None:
    (file,) = written(alter_table(5, T1, "q"))
    key = parse_schema_path(file.path)
    assert key is not None
    assert (key.schema, key.table, key.version) == ("test", "t1", 1000)


def test_a_table_without_columns_or_with_an_unknown_layout_is_refused() -> None:
    with pytest.raises(BadEvents, match=r"no layout for `test`\.`t1`"):
        written(alter_table(5, replace(T1, layout=None), "q"))
    unknown = built(alter_table(5, T1, "q"))
    with pytest.raises(BadEvents, match=rf"`test`\.`t1` the layout {KEYED.fingerprint}"):
        schema_files(unknown, 1000, {}, PathOptions(), same, False)


# JSON


IDS = st.integers(0, 2**50 - 1)
NUMBERS = st.integers(-(2**63), 2**63 - 1)
NAMES = st.text(st.characters() | st.sampled_from("`\udc80\n"), max_size=5)
SCOPES = (
    st.builds(Scope, st.just(NORMAL), st.lists(IDS, max_size=3).map(tuple))
    | st.builds(Scope, st.just(DB), schema_id=NUMBERS)
    | st.just(Scope(ALL))
)
AFTERS = st.builds(
    TableAfter,
    *(NAMES, NAMES, IDS, st.none() | NUMBERS, NAMES, NAMES, NAMES),
    partitions=st.lists(IDS, max_size=3).map(tuple),
)
EVENTS = st.builds(
    DdlEvent,
    *(NUMBERS, NAMES, NUMBERS, st.none() | SCOPES, st.none() | SCOPES),
    added=st.lists(st.builds(AddedTable, NUMBERS, IDS, st.booleans()), max_size=2).map(tuple),
    updated_schemas=st.lists(st.builds(UpdatedSchema, IDS, NUMBERS, NUMBERS), max_size=2).map(tuple),
    not_sync=st.booleans(),
    tables=st.lists(AFTERS, max_size=2).map(tuple),
)


@given(EVENTS)
def test_json_of_a_ddl_comes_back_exactly(event: DdlEvent) -> None:
    text = event.to_json()
    assert DdlEvent.from_json(text) == event
    assert DdlEvent.from_json(text).to_json() == text
    assert pickle.loads(pickle.dumps(event)) == event
    assert text.isascii()


def test_json_of_a_ddl_leaves_out_what_is_empty() -> None:
    assert json.loads(built(drop_table(PARTITIONED)).to_json()) == {
        "type": 4,
        "query": "DROP TABLE `test`.`t1`",
        "schema_id": 100,
        "blocked": {"kind": "normal", "table_ids": [301, 302, 303, 0]},
        "dropped": {"kind": "normal", "table_ids": [301, 302, 303]},
        "tables": [{"schema": "test", "table": "t1", "table_id": 300, "layout": KEYED.fingerprint}],
    }


def test_the_documented_example_is_what_a_truncate_of_a_table_carries() -> None:
    page = (Path(__file__).parents[2] / "docs" / "ddl.md").read_text()
    example = page.partition("```json\n")[2].partition("```")[0]
    orders = Table(100, "shop", "orders", 200, KEYED)
    assert DdlEvent.from_json(example) == truncate_table(orders, replace(orders, id=202), "TRUNCATE TABLE `orders`")


def test_the_documented_types_are_the_replicated_ones() -> None:
    page = (Path(__file__).parents[2] / "docs" / "ddl.md").read_text()
    listed = page.partition("## Types")[2].partition("##")[0]
    assert {name.strip(): int(code) for code, name in re.findall(r"(\d+) ([a-z -]+)", listed)} == ACTIONS


def test_null_in_json_is_the_same_as_nothing_where_nothing_is_allowed() -> None:
    text = '{"type":5,"query":"q","schema_id":1,"blocked":null,"dropped":null,"tables":[{"schema":"s","layout":null}]}'
    assert DdlEvent.from_json(text) == DdlEvent(5, "q", 1, tables=(TableAfter("s"),))


@pytest.mark.parametrize(
    ("changed", "culprit"),
    [
        ({"when": 1}, r"ddl has the unknown field 'when'"),
        ({"type": "5"}, r"ddl\.type must be int"),
        ({"type": True}, r"ddl\.type must be int"),
        ({"query": None}, r"ddl\.query must be str"),
        ({"not_sync": 1}, r"ddl\.not_sync must be bool"),
        ({"blocked": []}, r"ddl\.blocked must be a JSON object"),
        ({"blocked": {}}, r"ddl\.blocked has no field 'kind'"),
        ({"blocked": {"kind": "some"}}, r"unknown kind 'some'"),
        ({"blocked": {"kind": "normal", "table_ids": 1}}, r"ddl\.blocked\.table_ids must be a list"),
        ({"dropped": {"kind": "normal", "table_ids": [1.5]}}, r"ddl\.dropped\.table_ids\[0\] must be int"),
        ({"added": [{"schema_id": 1}]}, r"ddl\.added\[0\] has no field 'table_id'"),
        ({"updated_schemas": [{"id": 1}]}, r"ddl\.updated_schemas\[0\] has the unknown field 'id'"),
        ({"tables": [{"schema": "s"}, {"schema": "s", "layout": "x"}]}, r"ddl\.tables\[1\]\.layout must be int"),
    ],
)
def test_a_wrong_field_in_json_is_named(changed: dict[str, Any], culprit: str) -> None:
    shape = {"type": 5, "query": "q", "schema_id": 1} | changed
    with pytest.raises(BadEvents, match=culprit):
        DdlEvent.from_json(json.dumps(shape))


@pytest.mark.parametrize("missing", ["type", "query", "schema_id"])
def test_a_missing_field_in_json_is_named(missing: str) -> None:
    shape = {"type": 5, "query": "q", "schema_id": 1}
    del shape[missing]
    with pytest.raises(BadEvents, match=f"no field '{missing}'"):
        DdlEvent.from_json(json.dumps(shape))


@pytest.mark.parametrize("text", ["", "{", "[]", "1", "null", "[" * 100_000])
def test_a_text_that_is_no_json_object_is_refused(text: str) -> None:
    with pytest.raises(BadEvents, match="JSON"):
        DdlEvent.from_json(text)
