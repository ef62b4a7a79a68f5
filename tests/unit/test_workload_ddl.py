"""Laws of DDLs in a workload: where they stand, what they say, and that rows agree with them however they are cut."""

from __future__ import annotations

import json
import pickle
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import BadSetting
from tidegate.events import DDL, DELETE, INSERT, LAYOUT, RESOLVED, ROW_KINDS, UPDATE, tso
from tidegate.format.ddl import events as ddl
from tidegate.format.ddl.events import DdlEvent
from tidegate.format.ddl.files import schema_files
from tidegate.format.layout import PathOptions
from tidegate.format.tables import Layout
from tidegate.sources import Offset, Source, open_source
from tidegate.sources.workload.ddl_history import ddl_history
from tidegate.sources.workload.ddl_mix import DEFAULT_KINDS, KINDS, Schedule
from tidegate.sources.workload.workload import WorkloadSource, parse_workload

NONE: frozenset[int] = frozenset()
ENOUGH = 1 << 40
EPOCH_MS = 1767225600000
SMALL = "workload://sysbench?tables=3&rows=40&batch=2KiB&txn-rows=3&events=900"
WIDE = (ddl.DATABASE_CHARSET, ddl.CREATE_VIEW)
Row = dict[str, Any]


@dataclass
class Naive:
    """The catalogue as somebody sees it who applies one DDL after the other: id to path, name, version and layout."""

    tables: dict[int, tuple[int, str, int, int]]
    paths: dict[int, int] = field(default_factory=dict)  # also of ids that have ended
    names: dict[str, int] = field(default_factory=dict)  # of paths, also of dropped tables

    @staticmethod
    def of(tables: int, layout: int) -> Naive:
        version = tso(EPOCH_MS - 1000)
        catalogue = {101 + path: (path, f"sbtest{path + 1}", version, layout) for path in range(tables)}
        return Naive(
            catalogue,
            {table_id: table_id - 101 for table_id in catalogue},
            {f"sbtest{path + 1}": path for path in range(tables)},
        )

    def apply(self, row: Row) -> None:
        event = DdlEvent.from_json(row["ddl"])
        [after] = event.tables
        ended = event.dropped.table_ids if event.dropped is not None else ()
        for table_id in ended:
            assert table_id in self.tables, "only what is there can end"
            del self.tables[table_id]
        begins = [added.table_id for added in event.added]
        if begins:
            assert begins == [after.table_id]
            assert after.table_id not in self.paths, "a new table has a new id"
        if event.type == ddl.RENAME_TABLE:
            assert self.tables[after.table_id][1] == after.old_table
            self.names[after.table] = self.paths[after.table_id]
        if event.type in (*ddl.ALTERS.values(), ddl.RENAME_TABLE):
            assert after.table_id in self.tables, "only what is there can change"
        if begins or event.type in (*ddl.ALTERS.values(), ddl.RENAME_TABLE):
            assert after.layout is not None
            path = self.names.get(after.table, -1)
            self.paths[after.table_id] = path
            self.tables[after.table_id] = (path, after.table, row["commit_ts"], after.layout)


@dataclass
class Batch:
    """What one micro-batch held."""

    rows: list[Row]
    ddls: list[Row]
    layouts: dict[int, Layout]
    resolved: int


def read(source: Source, start: Offset, end: Offset, parallelism: int = 2) -> Batch:
    splits = json.loads(json.dumps(source.splits(start, end, parallelism)))
    rows, layouts = [], {}
    for split in splits:
        known: set[int] = set()
        for row in (row for batch in source.read(split) for row in batch.to_pylist()):
            if row["kind"] == LAYOUT:
                layouts[row["layout"]] = Layout.from_json(row["ddl"])
                known.add(row["layout"])
            elif row["layout"] is not None:
                assert row["layout"] in known, "a layout is defined in the split that uses it, before"
            rows.append(row)
    by_kind: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_kind["row" if row["kind"] in ROW_KINDS else row["kind"]].append(row)
    [mark] = by_kind[RESOLVED]
    return Batch(by_kind["row"], by_kind[DDL], layouts, mark["commit_ts"])


def whole(uri: str) -> Batch:
    ddl_history.cache_clear()  # nothing that another reading has played
    source = open_source(uri)
    offset, batches = source.initial(), []
    while (end := source.latest(offset, ENOUGH, NONE)) != offset:
        batches.append(read(source, offset, end, 1))
        offset = end
    layouts = {key: layout for batch in batches for key, layout in batch.layouts.items()}
    rows, ddls = ([row for batch in batches for row in getattr(batch, name)] for name in ("rows", "ddls"))
    return Batch(rows, ddls, layouts, batches[-1].resolved)


def ordered(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["commit_ts"], row["table_id"], row["seq"]))


def is_wide(row: Row) -> bool:
    return DdlEvent.from_json(row["ddl"]).type in WIDE


kinds = st.lists(st.sampled_from(KINDS), min_size=1, max_size=6).map("|".join)
schedules = st.one_of(
    st.builds("every:{}ms".format, st.sampled_from([300, 1000, 1700])),
    st.builds("every:{}ms,kinds={}".format, st.sampled_from([90, 250, 1000, 2500, 7000]), kinds),
    st.builds("every:1s,kinds={};every:3s,kinds={}".format, kinds, kinds),
    st.builds("every:{}ms,count={},kinds={}".format, st.sampled_from([400, 3000]), st.sampled_from([2, 9]), kinds),
)
uris = st.builds(
    "workload://sysbench?tables={}&rows={}&txn-rows={}&batch={}&mix={}&skew={}&events={}&prepare={}&seed={}&ddl={}".format,
    st.integers(1, 6),
    st.integers(2, 60),
    st.sampled_from([1, 3, 10]),
    st.sampled_from(["500", "2KiB", "8KiB"]),
    st.sampled_from(["0:100:0", "2:5:1", "1:5:3"]),
    st.sampled_from(["0", "1", "2.5"]),
    st.integers(1, 500),
    st.sampled_from(["true", "false"]),
    st.integers(0, 50),
    schedules,
)


@given(
    uri=uris,
    ordering=st.sampled_from(["per-table", "global"]),
    wake=st.sampled_from(["enqueue", "flush"]),
    data=st.data(),
)
def test_any_cut_gives_the_same_rows_and_ddls_and_keeps_the_laws_of_marks_held_paths_and_wide_ddls(
    uri: str, ordering: str, wake: str, data: st.DataObject
) -> None:
    expected = whole(uri)
    ddl_history.cache_clear()
    source = open_source(uri, ordering=ordering, wake_mode=wake)
    workload = parse_workload(uri.partition("?")[2])
    naive = Naive.of(workload.tables, 0)
    rows: list[Row] = []
    ddls: list[Row] = []
    offset, mark, lagged = source.initial(), 0, False
    for _ in range(1000):
        busy = data.draw(st.booleans())
        held = frozenset(data.draw(st.sets(st.sampled_from(sorted(naive.tables)))) if busy else ())
        end = source.latest(offset, data.draw(st.integers(0, 20_000)), held)
        if end == offset:
            assert held or source.backlog_bytes(offset) == 0
            if not held:
                break
            continue
        batch = read(source, offset, end, data.draw(st.integers(1, 5)))
        lagged = lagged or bool(held) or "held" in end
        held_paths = {naive.paths[table_id] for table_id in held}
        for row in batch.ddls:
            naive.apply(row)
        assert not held_paths & {naive.paths[row["table_id"]] for row in batch.rows}, "a held path was handed out"
        assert all(row["commit_ts"] > mark for row in (*batch.rows, *batch.ddls)), "something followed its mark"
        assert all(a["commit_ts"] < b["commit_ts"] for a, b in pairwise([*ddls[-1:], *batch.ddls]))
        stamps = [row["commit_ts"] for row in batch.rows]
        for row in filter(is_wide, batch.ddls):
            assert min(stamps) > row["commit_ts"], "rows on both sides of a DDL of all tables"
            assert all(other["commit_ts"] < row["commit_ts"] for other in rows)
        if not lagged and batch.ddls:
            first = batch.ddls[0]["commit_ts"]
            assert all(row["commit_ts"] < first for row in rows), "a row above a DDL came before it"
        if not lagged and ddls:
            assert min(stamps) > ddls[-1]["commit_ts"], "a row below a DDL came after it"
        rows += batch.rows
        ddls += batch.ddls
        mark, offset = batch.resolved, end
    else:
        pytest.fail("the workload does not end")
    assert ddls == expected.ddls
    assert ordered(rows) == ordered(expected.rows)
    assert all(row["commit_ts"] <= mark for row in (*rows, *ddls)), "the end counts as resolved"
    per_table: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for row in rows if ordering == "per-table" else ():
        per_table[row["table_id"]].append((row["commit_ts"], row["seq"]))
    assert all(stamps == sorted(stamps) for stamps in per_table.values())


@given(uri=uris)
def test_rows_agree_with_a_catalogue_to_which_the_ddls_are_applied_one_after_the_other(uri: str) -> None:
    everything = whole(uri)
    workload = parse_workload(uri.partition("?")[2])
    base = next(key for key, layout in everything.layouts.items() if [c.name for c in layout.columns][-1] == "pad")
    naive = Naive.of(workload.tables, base)
    stamps = [row["commit_ts"] for row in everything.ddls]
    assert len(set(stamps)) == len(stamps)
    assert not set(stamps) & {row["commit_ts"] for row in everything.rows}
    for row in sorted((*everything.rows, *everything.ddls), key=lambda row: row["commit_ts"]):
        if row["kind"] == DDL:
            naive.apply(row)
            continue
        path, name, version, layout = naive.tables[row["table_id"]]
        assert (row["table_name"], row["table_version"], row["layout"]) == (name, version, layout)
        columns = everything.layouts[layout].columns
        assert {len(row[image]) for image in ("after", "before") if row[image] is not None} == {len(columns)}
        assert name.removesuffix("_renamed") == f"sbtest{path + 1}"
        assert row["logical_table_id"] == row["table_id"]


@given(uri=uris)
def test_apart_from_identity_and_added_columns_the_rows_are_those_of_the_workload_without_ddl(uri: str) -> None:
    """Of a table that was emptied, the first change of a row that is gone is an insert instead."""
    plain, workload = whole_without_ddl(uri), parse_workload(uri.partition("?")[2])
    with_ddl: dict[str, list[Row]] = defaultdict(list)
    for row in ordered(whole(uri).rows):
        with_ddl[row["table_name"].removesuffix("_renamed")].append(row)
    assert with_ddl.keys() == plain.keys()
    for name, rows in with_ddl.items():
        for row, (kind, seq, after, before) in zip(rows, plain[name], strict=True):
            if row["kind"] == kind or row["table_id"] < 101 + workload.tables:
                assert shown(row) == (kind, seq, after, before)
            else:
                assert (row["kind"], row["seq"], row["before"]) == (INSERT, seq, None)
                assert row["after"][0] == (after or before)[0]
                assert after is None or row["after"][:4] == after


def whole_without_ddl(uri: str) -> dict[str, list[tuple[Any, ...]]]:
    source = open_source(uri.partition("&ddl=")[0])
    rows: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for row in ordered(read(source, source.initial(), source.latest(source.initial(), ENOUGH, NONE), 1).rows):
        rows[row["table_name"]].append(shown(row))
    return dict(rows)


def shown(row: Row) -> tuple[Any, ...]:
    return row["kind"], row["seq"], *(row[image] and row[image][:4] for image in ("after", "before"))


@given(uri=uris)
def test_ddls_fall_on_the_first_boundary_not_before_their_time_and_in_front_of_its_rows(uri: str) -> None:
    everything = whole(uri)
    workload = parse_workload(uri.partition("?")[2])
    steps = max((row["commit_ts"] - tso(EPOCH_MS)) // tso(1000) for row in everything.rows) + 1
    times = sorted(
        number * schedule.every_ms
        for schedule in workload.ddl
        for number in range(1, steps * 1000 // schedule.every_ms + 1)
        if -(-number * schedule.every_ms // 1000) < steps
        for _ in range(schedule.count)
    )
    firsts = [row for row in everything.ddls if not is_recreation(row)]
    assert [(row["commit_ts"] - tso(EPOCH_MS)) // tso(1000) for row in firsts] == [-(-at // 1000) for at in times]
    for row in everything.ddls:
        window = (row["commit_ts"] - tso(EPOCH_MS)) // tso(1000)
        rows = [r["commit_ts"] for r in everything.rows if (r["commit_ts"] - tso(EPOCH_MS)) // tso(1000) == window]
        assert all(ts > row["commit_ts"] for ts in rows)


def is_recreation(row: Row) -> bool:
    """The second half of drop-create."""
    event = DdlEvent.from_json(row["ddl"])
    return event.type == ddl.CREATE_TABLE and event.tables[0].table.startswith("sbtest")


def test_the_ddls_of_one_boundary_are_over_different_tables_while_there_are_enough() -> None:
    everything = whole("workload://sysbench?tables=20&rows=40&batch=2KiB&events=2000&ddl=every:100ms,kinds=rename")
    per_boundary = defaultdict(list)
    for row in everything.ddls:
        per_boundary[row["commit_ts"] >> 18].append(row["table_id"])
    assert {len(ids) for ids in per_boundary.values()} == {10}
    assert all(len(set(ids)) == 10 for ids in per_boundary.values())


def test_another_seed_gives_other_ddls_and_the_same_seed_the_same() -> None:
    uri = SMALL + "&ddl=every:500ms"
    assert whole(uri).ddls == whole(uri).ddls
    assert whole(uri).ddls != whole(uri + "&seed=9").ddls


def one(kind: str, count: int = 1, tables: int = 1) -> list[Row]:
    uri = f"workload://sysbench?tables={tables}&rows=40&batch=1KiB&txn-rows=1&events=100&ddl=every:1s,kinds={kind}"
    return whole(uri).ddls[:count]


@pytest.mark.parametrize(
    ("kind", "queries"),
    [
        (
            "add-column",
            [f"ALTER TABLE `sbtest`.`sbtest1` ADD COLUMN `x{n}` INT" for n in (1, 2, 3, 4)]
            + ["ALTER TABLE `sbtest`.`sbtest1` DROP COLUMN `x4`"],
        ),
        (
            "drop-column",
            ["ALTER TABLE `sbtest`.`sbtest1` ADD COLUMN `x1` INT", "ALTER TABLE `sbtest`.`sbtest1` DROP COLUMN `x1`"],
        ),
        (
            "modify-column",
            ["ALTER TABLE `sbtest`.`sbtest1` ADD COLUMN `x1` INT"]
            + [f"ALTER TABLE `sbtest`.`sbtest1` MODIFY COLUMN `x1` {to}" for to in ("BIGINT", "VARCHAR(64)", "INT")],
        ),
        ("add-index", [f"ALTER TABLE `sbtest`.`sbtest1` ADD INDEX `i{n}`(`k`)" for n in (0, 1)]),
        (
            "rename",
            [
                "RENAME TABLE `sbtest`.`sbtest1` TO `sbtest`.`sbtest1_renamed`",
                "RENAME TABLE `sbtest`.`sbtest1_renamed` TO `sbtest`.`sbtest1`",
            ],
        ),
        ("truncate", ["TRUNCATE TABLE `sbtest`.`sbtest1`"] * 2),
        (
            "drop-create",
            [
                "DROP TABLE `sbtest`.`sbtest1`",
                "CREATE TABLE `sbtest`.`sbtest1` (`id` INT NOT NULL,`k` INT NOT NULL,`c` CHAR(120) NOT NULL,"
                "`pad` CHAR(60) NOT NULL,PRIMARY KEY(`id`))",
            ],
        ),
        (
            "create-table",
            ["CREATE TABLE `sbtest`.`side0` (`id` INT NOT NULL,`note` VARCHAR(64),PRIMARY KEY(`id`))"],
        ),
        (
            "drop-table",
            [
                "CREATE TABLE `sbtest`.`side0` (`id` INT NOT NULL,`note` VARCHAR(64),PRIMARY KEY(`id`))",
                "DROP TABLE `sbtest`.`side0`",
            ],
        ),
        ("drop-database", ["CREATE DATABASE `side0`", "DROP DATABASE `side0`", "CREATE DATABASE `side2`"]),
        ("create-database", ["CREATE DATABASE `side0`", "CREATE DATABASE `side1`"]),
        ("alter-database", [f"ALTER DATABASE `sbtest` CHARACTER SET = {to}" for to in ("utf8", "utf8mb4", "utf8")]),
        (
            "drop-view",
            [
                "CREATE ALGORITHM = UNDEFINED DEFINER = `root`@`%` SQL SECURITY DEFINER VIEW `sbtest`.`view0` "
                "AS SELECT `id`,`k` FROM `sbtest`.`sbtest1`",
                "DROP VIEW `sbtest`.`view0`",
            ],
        ),
    ],
)
def test_each_kind_says_what_tidb_would_print(kind: str, queries: list[str]) -> None:
    assert [DdlEvent.from_json(row["ddl"]).query for row in one(kind, len(queries))] == queries


def test_no_more_than_sixteen_side_objects_are_there_at_a_time() -> None:
    for kind, made, ended in (("create-table", 3, 4), ("create-view", 21, 24), ("create-database", 1, 2)):
        types = [DdlEvent.from_json(row["ddl"]).type for row in one(kind, 19)]
        assert types == [made] * 16 + [ended, made, ended]


def test_a_ddl_row_names_the_dispatcher_it_stands_before_and_the_trigger_otherwise() -> None:
    assert [(row["table_id"], row["table_name"]) for row in one("truncate", 3)] == [
        (101, "sbtest1"),
        (102, "sbtest1"),
        (103, "sbtest1"),
    ]
    assert [(row["table_id"], row["table_name"]) for row in one("rename", 2)] == [
        (101, "sbtest1"),
        (101, "sbtest1_renamed"),
    ]
    assert [row["table_id"] for row in one("drop-create", 4)] == [101, 0, 103, 0]
    assert [(row["table_id"], row["schema_id"]) for row in one("drop-table", 2)] == [(0, 100), (102, 100)]
    [made, dropped] = one("drop-database", 2)
    assert (made["schema_id"], made["schema_name"], made["table_id"]) == (102, "side0", 0)
    assert DdlEvent.from_json(dropped["ddl"]).blocked == ddl.Scope(ddl.DB, schema_id=102)
    [altered] = one("alter-database")
    assert DdlEvent.from_json(altered["ddl"]).blocked == ddl.Scope(ddl.DB, schema_id=100)
    [view] = one("create-view")
    assert DdlEvent.from_json(view["ddl"]).blocked == ddl.Scope(ddl.ALL)
    assert all(row["table_version"] == row["commit_ts"] > row["start_ts"] for row in one("truncate", 3))


def test_every_ddl_writes_its_schema_files_from_the_layouts_of_its_batch() -> None:
    everything = whole(SMALL + f"&ddl=every:50ms,kinds={'|'.join(KINDS)}")
    types = set()
    for row in everything.ddls:
        event = DdlEvent.from_json(row["ddl"])
        types.add(event.type)
        files = schema_files(event, row["commit_ts"], everything.layouts, PathOptions(), lambda *names: names, False)
        assert len(files) == 1
    assert types == {1, 2, 3, 4, 5, 6, 7, 11, 12, 14, 21, 24, 26}


def test_an_index_changes_the_version_and_a_view_or_the_charset_does_not() -> None:
    def versions(kind: str) -> int:
        uri = f"workload://sysbench?tables=1&rows=40&batch=1KiB&txn-rows=1&events=100&ddl=every:1s,kinds={kind}"
        everything = whole(uri)
        assert len(everything.ddls) > 10
        return len({row["table_version"] for row in everything.rows})

    assert versions("add-index") > 10
    assert versions("alter-database") == versions("create-view") == versions("create-table") == 1


def test_before_is_what_the_row_was_also_in_added_columns() -> None:
    uri = "workload://sysbench?tables=2&rows=30&batch=2KiB&txn-rows=3&mix=2:5:1&events=800"
    everything = whole(uri + "&ddl=every:1s,kinds=add-column|modify-column|rename")
    tables: dict[int, dict[bytes, list[bytes]]] = defaultdict(dict)
    for row in ordered(everything.rows):
        table, before, after = tables[row["table_id"]], row["before"], row["after"]
        if row["kind"] in (UPDATE, DELETE):
            was = table.pop(before[0])
            shared = min(len(was), len(before))
            assert was[:shared] == before[:shared]
            assert all(0 <= int(value) < 10**9 for value in before[4:])
        if row["kind"] in (INSERT, UPDATE):
            table[after[0]] = after
    assert max(len(row["after"] or ()) for row in everything.rows) == 8


def test_a_wide_ddl_ends_the_micro_batch_and_others_do_not() -> None:
    uri = "workload://sysbench?tables=4&rows=1000&batch=10KiB&txn-rows=1&ddl=every:2s,kinds="
    wide, narrow = open_source(uri + "alter-database"), open_source(uri + "add-index")
    assert wide.latest(wide.initial(), 1 << 20, NONE) == {"at": 2}
    assert wide.latest({"at": 2}, 1 << 20, NONE) == {"at": 4}
    assert narrow.latest(narrow.initial(), 1 << 20, NONE)["at"] > 20
    first, second = read(wide, {"at": 0}, {"at": 2}), read(wide, {"at": 2}, {"at": 4})
    assert not first.ddls
    assert [row["commit_ts"] for row in second.ddls] == [first.resolved + 1]
    assert len(read(narrow, {"at": 0}, {"at": 20, "table": 1}).ddls) == 10


def test_at_a_wide_ddl_all_wait_for_the_paths_that_lag() -> None:
    source = open_source("workload://sysbench?tables=4&rows=1000&batch=10KiB&txn-rows=1&ddl=every:6s,kinds=create-view")
    start = source.latest(source.initial(), 100_000, NONE)
    held = frozenset([102])
    offset = start
    while (end := source.latest(offset, 100_000, held)) != offset:
        offset = end
    assert (offset["at"], offset.get("table"), list(offset["held"])) == (6, None, ["102"])
    while "held" in offset:
        offset = source.latest(offset, 30_000, NONE)
        assert offset["at"] == 6
    assert source.latest(offset, 1 << 20, NONE) == {"at": 12}


def test_an_id_that_came_with_a_truncate_holds_its_path() -> None:
    uri = "workload://sysbench?tables=1&rows=1000&batch=10KiB&txn-rows=1&ddl=every:1s,kinds=truncate"
    source = open_source(uri)
    start = {"at": 5, "table": 0}
    now = {row["table_id"] for row in read(source, {"at": 0}, {"at": 5}).rows}
    assert len(now) == 5
    assert source.latest(start, 100_000, frozenset([max(now)])) is start
    assert source.latest(start, 100_000, frozenset([max(now) + 5, 7])) != start


def test_with_a_rate_ddls_come_as_often_as_the_clock_says() -> None:
    now = [0.0]
    workload = parse_workload("tables=4&rows=10000&batch=10KiB&rate=100KiB/s&txn-rows=1&ddl=every:500ms")
    source = WorkloadSource(workload, clock=lambda: now[0])
    source.latest(source.initial(), ENOUGH, NONE)
    now[0] = 20.0
    end = source.latest(source.initial(), ENOUGH, NONE)
    ddls = [row for row in read(source, source.initial(), end).ddls if not is_recreation(row)]
    assert len(ddls) == pytest.approx(40, abs=2)


def lines_run(act: Callable[[], object]) -> int:
    """How many lines of Python `act` runs: a measure of work that is the same on every machine, busy or not."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return note

    before = sys.gettrace()
    sys.settrace(note)
    try:
        act()
    finally:
        sys.settrace(before)
    return count


def test_many_ddls_a_second_over_a_thousand_tables_are_fast() -> None:
    def work(tables: int) -> tuple[int, int]:
        uri = f"workload://sysbench?tables={tables}&rows=1000&batch=2KiB&prepare=false"
        source = open_source(
            uri + "&ddl=every:10ms,kinds=add-index|add-column|truncate|rename;every:10s,kinds=alter-database"
        )
        batches: list[pa.RecordBatch] = []

        def act() -> None:
            source.latest({"at": 0}, 20_000 * tables, NONE)
            batches.extend(b for split in source.splits({"at": 0}, {"at": 8}, 2) for b in source.read(split))

        lines = lines_run(act)
        return lines, sum(batch["kind"].to_pylist().count(DDL) for batch in batches)

    (lines, ddls), (lines_of_more, ddls_of_more) = work(1_000), work(4_000)
    assert ddls == ddls_of_more == 700
    assert lines < 1_000 * ddls
    assert lines_of_more < 1.1 * lines, "a DDL takes no more work where there are more tables"


def test_a_far_position_is_reached_without_reading_what_is_before() -> None:
    uri = "workload://sysbench?tables=1000&rows=1000&batch=2KiB&ddl=every:100ms"

    def work(step: int) -> int:
        ddl_history.cache_clear()
        return lines_run(lambda: read(open_source(uri), {"at": step}, {"at": step + 1}))

    ddls_between = 10 * 2_000
    assert work(3_000) - work(1_000) < 100 * ddls_between, "one that is read takes many times as much"
    ddl_history.cache_clear()
    batch = read(open_source(uri), {"at": 10_000}, {"at": 10_001})
    assert 10 <= len(batch.ddls) <= 20
    ddl_history.cache_clear()
    source = open_source(uri)
    read(source, {"at": 10_500}, {"at": 10_501})  # what has been played further on changes nothing
    assert read(source, {"at": 10_000}, {"at": 10_001}) == batch


def test_a_source_with_ddls_can_be_sent_to_another_process() -> None:
    source = open_source(SMALL + "&ddl=every:1s")
    end = source.latest(source.initial(), 20_000, NONE)
    expected = read(source, source.initial(), end)
    copy = pickle.loads(pickle.dumps(source))
    ddl_history.cache_clear()
    assert read(copy, copy.initial(), end) == expected


def test_schedules_are_read_as_written() -> None:
    text = "ddl=every:100ms,kinds=add-index|add-column;every:10s,kinds=alter-database;every:1.5m"
    assert parse_workload(text).ddl == (
        Schedule(100, ("add-index", "add-column")),
        Schedule(10_000, ("alter-database",)),
        Schedule(90_000, DEFAULT_KINDS),
    )
    assert parse_workload("ddl=every:5s,count=10000,kinds=rename").ddl == (Schedule(5_000, ("rename",), 10_000),)
    assert parse_workload("ddl=every:5s,count=7").ddl == (Schedule(5_000, DEFAULT_KINDS, 7),)


def test_with_a_count_so_many_ddls_come_at_once_each_of_another_table() -> None:
    uri = (
        "workload://sysbench?tables=300&rows=40&batch=1KiB&txn-rows=1&events=2000&ddl=every:1s,count=300,kinds=truncate"
    )
    found = whole(uri).ddls
    assert len(found) == 300
    assert [row["commit_ts"] for row in found] == list(range(found[0]["commit_ts"], found[0]["commit_ts"] + 300))
    assert {row["table_id"] for row in found} == set(range(101, 401))


@pytest.mark.parametrize(("every", "count"), [("1ms", 1_000), ("100ms", 100_000)])
def test_a_window_has_room_for_very_many_ddls_and_its_rows(every: str, count: int) -> None:
    schedule = f"every:{every},count={count},kinds=add-index"
    workload = parse_workload(f"tables=2&rows=1000000&txn-rows=1&rate=100MiB&ddl={';'.join([schedule] * 16)}")
    steps = WorkloadSource(workload)._steps
    assert steps.room + (int(steps.step_rows.max()) << 1) <= tso(steps.step_ms)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "ddl='' is not a schedule such as every:5s,kinds=add-column|truncate (at '')"),
        ("often", "(at 'often')"),
        ("every:5s;", "(at '')"),
        ("every:5s,truncate", "(at 'every:5s,truncate')"),
        ("every:5", "'5' must be a time from 1ms to 366 days, such as 100ms, 5s, 2m or 1h"),
        ("every:0s", "'0s' must be a time"),
        ("every:400h;every:9000h", "'9000h' must be a time"),
        ("every:5s,count=0", "count='0' must be a number from 1 to 100000"),
        ("every:5s,count=many,kinds=rename", "count='many' must be a number"),
        ("every:2ms,count=2001", "at most 1000 for each ms"),
        ("every:5s,kinds=rename,count=3", "(at 'every:5s,kinds=rename,count=3')"),
        ("every:5s,kinds=", "'' is none of add-column, drop-column"),
        ("every:5s,kinds=rename|trunc", "'trunc' is none of add-column, drop-column, modify-column"),
        (";".join(["every:5s"] * 17), "is not at most 16 schedules joined by ';'"),
    ],
)
def test_a_bad_schedule_is_refused_by_name(text: str, words: str) -> None:
    with pytest.raises(BadSetting) as refused:
        open_source(f"workload://sysbench?ddl={text}")
    assert words in str(refused.value)
