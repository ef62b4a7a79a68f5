"""DDLs of the table trigger that do not touch each other share a land job, and a kill at any write breaks nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tidegate.driver.changefeed import Changefeed
from tidegate.errors import StoreUnavailable, TidegateError
from tidegate.events import DDL
from tidegate.executor.jobs import LandOptions
from tidegate.executor.rows import SchemaPlan
from tidegate.format.ddl.events import DdlEvent
from tidegate.format.ddl.scope import (
    Table,
    create_database,
    create_table,
    drop_database,
    drop_table,
    rename_table,
    truncate_table,
)
from tidegate.format.layout import parse_metadata
from tidegate.format.rules.rules import Route, Routes, Rules
from tidegate.testing import (
    SHAPE,
    START_TS,
    FakeClock,
    MemoryStore,
    change,
    feed,
    landed_lines,
    layout_row,
    open_changefeed,
    resolved_row,
)

Open = Callable[..., Changefeed]
Objects = dict[str, bytes]
Row = dict[str, Any]
SHOP = 100


def table(number: int, **changes: Any) -> Table:
    return replace(Table(SHOP, "shop", f"t{number}", number, SHAPE), **changes)


def ddl(ts: int, event: DdlEvent | None) -> Row:
    assert event is not None
    return {"kind": DDL, "commit_ts": START_TS + ts, "seq": 0, "table_id": 0, "ddl": event.to_json()}


def made(ts: int, number: int, **changes: Any) -> Row:
    return ddl(ts, create_table(table(number, **changes), f"CREATE TABLE `t{number}` (`id` INT PRIMARY KEY)"))


def row(ts: int, number: int, version: int = 0, **columns: Any) -> Row:
    return change(number, START_TS + ts, ts, table_version=START_TS + version, schema_id=SHOP, **columns)


def jobs_of(changefeed: Changefeed) -> list[int]:
    """How many DDLs each land job has, from now on."""
    sizes: list[int] = []
    run = changefeed.jobs.run_schemas

    def counted(plans: list[SchemaPlan], options: LandOptions) -> pa.Table:
        sizes.append(len(plans))
        return run(plans, options)

    changefeed.jobs.run_schemas = counted
    return sizes


def land(changefeed: Changefeed, seconds: float = 0.0) -> None:
    assert isinstance(changefeed.clock, FakeClock)
    changefeed.clock.advance(seconds)
    while changefeed.landing.land_next():
        pass


def schema_files(objects: Objects) -> set[tuple[str, int]]:
    """Directory and commit-ts of the schema files of DDLs."""
    found = set()
    for path in objects:
        folder, is_schema_file, name = path.rpartition("/meta/schema_")
        if is_schema_file and int(name.split("_")[0]) > START_TS:
            found.add((folder, int(name.split("_")[0]) - START_TS))
    return found


def test_creations_drops_truncates_and_renames_of_different_tables_share_a_job(
    opened: Open, store: MemoryStore
) -> None:
    changefeed = opened()
    sizes = jobs_of(changefeed)
    rows = [row(1, 1), row(2, 2), row(3, 3)]
    ddls = [
        made(11, 7),
        ddl(12, drop_table(table(1))),
        ddl(13, truncate_table(table(2), table(9, name="t2"), "TRUNCATE TABLE `t2`")),
        ddl(14, rename_table(table(3), table(3, name="u"))),
        ddl(15, create_database(200, "other", "CREATE DATABASE `other`")),
    ]
    feed(changefeed, 0, [layout_row(), *rows, *ddls, resolved_row(START_TS + 20)], "0")
    land(changefeed)
    assert sizes == [2, 3], "those that have nothing to land first, then the others"
    files = {("shop/t7", 11), ("shop/t1", 12), ("shop/t2", 13), ("shop/u", 14), ("other", 15)}
    assert schema_files(store.objects) == files
    assert changefeed.status().checkpoint_ts == START_TS + 20


def test_thousands_of_creations_are_a_few_jobs(opened: Open, store: MemoryStore) -> None:
    changefeed = opened()
    sizes = jobs_of(changefeed)
    feed(changefeed, 0, [layout_row(), *(made(n, n) for n in range(1, 2_501)), resolved_row(START_TS + 9_999)], "0")
    land(changefeed)
    assert sizes == [1_000, 1_000, 500]
    assert len(schema_files(store.objects)) == 2_500


def test_ddls_of_one_name_need_a_job_each_whatever_others_do(opened: Open, store: MemoryStore) -> None:
    changefeed = opened()
    sizes = jobs_of(changefeed)
    chain = [made(5, 7), ddl(6, drop_table(table(7))), made(7, 8, name="t7"), ddl(8, drop_table(table(8, name="t7")))]
    feed(changefeed, 0, [layout_row(), *chain, made(20, 21), made(22, 23), resolved_row(START_TS + 99)], "0")
    land(changefeed)
    assert sizes == [3, 1, 1, 1]


def test_tables_that_routes_bring_to_one_name_need_a_job_each(opened: Open, store: MemoryStore) -> None:
    changefeed = opened(rules=Rules(routes=Routes((Route(("shop.t*",), "lake", "all"),))))
    sizes = jobs_of(changefeed)
    feed(changefeed, 0, [layout_row(), made(5, 7), made(6, 8), made(7, 9, name="u"), resolved_row(START_TS + 9)], "0")
    land(changefeed)
    assert sizes == [2, 1]


def test_one_that_cannot_be_written_holds_the_checkpoint_and_no_other_ddl(opened: Open, store: MemoryStore) -> None:
    changefeed = opened()
    store.begin("refuse", "/t7/")
    feed(changefeed, 0, [layout_row(), made(5, 7), made(6, 8), row(8, 8, 6), resolved_row(START_TS + 9)], "0")
    land(changefeed, 5.0)
    assert schema_files(store.objects) == {("shop/t8", 6)}
    assert landed_lines(store).keys() == {"shop.t8"}
    assert changefeed.status().checkpoint_ts == START_TS + 4
    store.end("refuse", "/t7/")
    land(changefeed, 60.0)
    assert changefeed.status().checkpoint_ts == START_TS + 9


# -- a kill at every write ---------------------------------------------------------------------------------------------

BATCHES: list[list[Row]] = [
    [layout_row(), row(1, 1), row(2, 2), row(3, 3), resolved_row(START_TS + 4)],
    [
        layout_row(),
        row(5, 1),
        made(11, 7),
        ddl(12, drop_table(table(1))),
        ddl(13, truncate_table(table(2), table(9, name="t2"), "TRUNCATE TABLE `t2`")),
        ddl(14, rename_table(table(3), table(3, name="u"))),
        made(15, 8, name="t1"),
        row(16, 7, 11),
        row(17, 9, 13, table_name="t2"),
        row(18, 3, 14, table_name="u"),
        row(19, 8, 15, table_name="t1"),
        resolved_row(START_TS + 20),
    ],
    [
        layout_row(),
        row(21, 8, 15, table_name="t1"),
        ddl(22, drop_database(SHOP, "shop", "DROP DATABASE `shop`")),
        ddl(23, create_database(300, "shop", "CREATE DATABASE `shop`")),
        made(24, 30, schema_id=300, name="t1"),
        row(25, 30, 24, table_name="t1") | {"schema_id": 300},
        resolved_row(START_TS + 30),
    ],
]
FILES = {
    ("shop/t7", 11), ("shop/t1", 12), ("shop/t2", 13), ("shop/u", 14), ("shop/t1", 15), ("shop", 22), ("shop", 23),
    ("shop/t1", 24),
}  # fmt: skip
LINES = {"shop.t1": [1, 5, 19, 21, 25], "shop.t2": [2, 17], "shop.t3": [3], "shop.t7": [16], "shop.u": [18]}


def live(changefeed: Changefeed, store: MemoryStore) -> None:
    position = changefeed.ledger.progress.position
    for batch, n in enumerate(range(0 if position is None else int(position) + 1, len(BATCHES))):
        feed(changefeed, batch, BATCHES[n], str(n))
        for _ in range(4):
            land(changefeed, 5.0)
            changefeed.scribe.write_progress()
            check_what_a_reader_sees(store.objects)
    changefeed.scribe.write_progress()


def life(objects: Objects, spool: Path, script: list[str], after: str) -> int:
    """One run over `objects`, ended by the first fault that a journal meets; returns the writes it asked for."""
    store = MemoryStore(script, after, objects)
    with suppress(StoreUnavailable):
        changefeed = open_changefeed(store, spool, FakeClock())
        try:
            live(changefeed, store)
        finally:
            changefeed.life.fail(TidegateError("killed"))
            changefeed.close()
    check_what_a_reader_sees(objects)
    return store.writes


def commit_ts(objects: Objects) -> dict[str, list[int]]:
    """The commit-ts of all rows that the index shows: rows of this test have it as their key."""
    found = landed_lines(MemoryStore(objects=objects))
    return {name: sorted(int(line.values[0] or 0) for line in lines) for name, lines in found.items()}


def check_what_a_reader_sees(objects: Objects) -> None:
    """Up to the checkpoint all is there; no row is there twice, and none behind a DDL of its table without its file."""
    if "metadata" not in objects:
        return
    checkpoint = parse_metadata(objects["metadata"].decode()) - START_TS
    files, lines = schema_files(objects), commit_ts(objects)
    assert {(name, ts) for name, ts in FILES if ts <= checkpoint} <= files
    for name, expected in LINES.items():
        seen = lines.get(name, [])
        assert [ts for ts in expected if ts <= checkpoint] == [ts for ts in seen if ts <= checkpoint]
        folder = name.replace(".", "/")
        behind = [ts for at, ts in FILES if at == folder and any(ts < one for one in seen)]
        assert all((folder, ts) in files for ts in behind)


def check_the_end(objects: Objects) -> None:
    assert commit_ts(objects) == LINES
    assert schema_files(objects) == FILES
    assert parse_metadata(objects["metadata"].decode()) == START_TS + 30


def test_a_run_without_faults_applies_all_in_order(tmp_path: Path) -> None:
    objects: Objects = {}
    life(objects, tmp_path, [], "ok")
    check_the_end(objects)


WRITES = 44  # of a run without faults; the first test below watches it


def test_the_kills_below_are_at_all_writes_there_are(tmp_path: Path) -> None:
    assert life({}, tmp_path, [], "ok") == WRITES


@pytest.mark.parametrize("step", range(WRITES))
@pytest.mark.parametrize("word", ["unavailable", "lost"])
def test_after_a_kill_at_any_write_a_restart_brings_all_to_the_same_end(tmp_path: Path, step: int, word: str) -> None:
    objects: Objects = {}
    life(objects, tmp_path, ["ok"] * step + [word], "unavailable")
    life(objects, tmp_path, [], "ok")
    check_the_end(objects)


@pytest.mark.parametrize("step", range(WRITES))
def test_after_one_lost_answer_at_any_write_all_comes_to_the_same_end(tmp_path: Path, step: int) -> None:
    objects: Objects = {}
    life(objects, tmp_path, ["ok"] * step + ["lost"], "ok")
    life(objects, tmp_path, [], "ok")
    check_the_end(objects)


def test_a_ddl_that_cannot_be_written_keeps_nobody_from_reading_what_a_later_one_lacks(tmp_path: Path) -> None:
    store = MemoryStore()
    store.begin("refuse", "shop/t1/")
    changefeed = open_changefeed(store, tmp_path / "spool", FakeClock(), spool_max_bytes=5000)
    feed(changefeed, 1, [layout_row(), made(1, 1), resolved_row(START_TS + 10)], "e1")
    behind = [
        change(3, START_TS + 31 + i, 31 + i, b"1", b"x" * 50, table_version=START_TS + 30, schema_id=SHOP)
        for i in range(60)
    ]
    feed(changefeed, 2, [layout_row(), made(30, 3), *behind, resolved_row(START_TS + 20)], "e2")
    for _ in range(20):
        changefeed.landing.land_next()
    reading = changefeed.ledger.reading
    assert not changefeed.ledger.spool.may_wake()
    assert reading.lacking is not None
    assert reading.lacking.ts == START_TS + 30
    assert reading.may_exceed_marks
    changefeed.life.fail(TidegateError("the test is over"))
    changefeed.close()
