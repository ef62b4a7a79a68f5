"""A DDL stands between the changes before and behind it: one that comes too late is refused, one in the middle cuts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tidegate.control.admission import read_batch, refuse_divided
from tidegate.control.barrier import Key
from tidegate.control.blocking import Ddl
from tidegate.control.ledger import Ledger
from tidegate.control.limits import Limits
from tidegate.driver.changefeed import Changefeed
from tidegate.errors import BadEvents
from tidegate.events import DDL
from tidegate.executor.rows import ITEMS
from tidegate.format.ddl.events import ALTERS, DdlEvent
from tidegate.format.ddl.scope import (
    Table,
    alter_database_charset,
    alter_table,
    create_table,
    create_view,
    drop_table,
    rename_table,
)
from tidegate.testing import SHAPE, START_TS, FakeClock, MemoryStore, change, feed, layout_row, resolved_row

Open = Callable[..., Changefeed]
Row = dict[str, Any]
SHOP, CREW = 100, 200
T1 = Table(SHOP, "shop", "t1", 1, SHAPE)


def ddl_row(ts: int, event: DdlEvent | None, table_id: int = 0) -> Row:
    assert event is not None
    return {"kind": DDL, "commit_ts": START_TS + ts, "seq": 0, "table_id": table_id, "ddl": event.to_json()}


def add_index(ts: int, number: int = 1) -> Row:
    table = Table(SHOP, "shop", f"t{number}", number, SHAPE)
    return ddl_row(ts, alter_table(ALTERS["add index"], table, f"ALTER TABLE `t{number}` ADD INDEX (`v`)"), number)


def database(ts: int, schema_id: int = SHOP) -> Row:
    return ddl_row(ts, alter_database_charset(schema_id, "shop", "ALTER DATABASE `shop` CHARSET utf8mb4"))


def view(ts: int) -> Row:
    return ddl_row(ts, create_view(Table(SHOP, "shop", "v", 50, SHAPE), "CREATE VIEW `v` AS SELECT 1"))


def insert(ts: int, number: int = 1, version: int = 0, schema_id: int = SHOP) -> Row:
    return change(number, START_TS + ts, ts, table_version=START_TS + version, schema_id=schema_id)


def resolved(ts: int) -> Row:
    return resolved_row(START_TS + ts)


def land(changefeed: Changefeed, seconds: float = 5.0) -> None:
    assert isinstance(changefeed.clock, FakeClock)
    changefeed.clock.advance(seconds)
    while changefeed.landing.land_next():
        pass


def written(store: MemoryStore) -> list[str]:
    """What was put for tables, in order: `t1 schema 5`, `t1 data 0 #1`."""
    found = []
    for op, path in store.calls:
        if op in ("create", "create_bytes", "put") and not path.startswith("_tidegate") and path != "metadata":
            *folder, name = path.split("/")
            if name.startswith("schema_"):
                found.append(f"{'.'.join(folder[1:-1]) or folder[0]} schema {int(name.split('_')[1]) - START_TS}")
            elif name.startswith("CDC0"):
                found.append(f"{folder[1]} data {int(folder[2]) - START_TS} #{int(name[3:-4])}")
    return found


# -- too late --------------------------------------------------------------------------------------------------------

LATE: dict[str, Row] = {
    "an alter": add_index(5),
    "a rename": ddl_row(5, rename_table(T1, Table(SHOP, "shop", "new", 1, SHAPE))),
    "a drop": ddl_row(5, drop_table(T1)),
    "a table like it": ddl_row(5, create_table(Table(SHOP, "shop", "t9", 9, SHAPE), "CREATE TABLE `t9` LIKE `t1`", T1)),
    "its database": database(5),
    "a view": view(5),
    "the same commit-ts": add_index(8),
}


@pytest.mark.parametrize("late", LATE.values(), ids=LATE)
def test_a_ddl_at_or_below_what_has_landed_of_its_table_is_refused_with_both_names(opened: Open, late: Row) -> None:
    changefeed = opened()
    feed(changefeed, 0, [layout_row(), insert(1), insert(8), resolved(2)], "0")
    land(changefeed)
    with pytest.raises(BadEvents, match=rf"too late: changes of shop.t1 up to commit-ts {START_TS + 8} have landed"):
        feed(changefeed, 1, [late], "1")


def test_what_is_on_its_way_to_the_sink_cannot_be_taken_back_either(opened: Open, store: MemoryStore) -> None:
    changefeed = opened()
    store.begin("unavailable", "/t1/")
    feed(changefeed, 0, [layout_row(), insert(8), resolved(2)], "0")
    land(changefeed)
    with pytest.raises(BadEvents, match=r"ADD INDEX .* comes too late: changes of shop.t1"):
        feed(changefeed, 1, [add_index(5)], "1")


def test_what_only_waits_in_the_spool_goes_behind_a_ddl_that_comes_later(opened: Open, store: MemoryStore) -> None:
    changefeed = opened()
    feed(changefeed, 0, [layout_row(), insert(8), resolved(2)], "0")
    feed(changefeed, 1, [database(5), resolved(9)], "1")
    land(changefeed)
    assert written(store) == ["shop schema 5", "t1 schema 0", "t1 data 0 #1"]


def test_a_chunk_of_an_earlier_batch_around_the_ddl_is_refused_too(opened: Open) -> None:
    changefeed = opened()
    feed(changefeed, 0, [layout_row(), insert(1), insert(8), resolved(0)], "0")
    with pytest.raises(
        BadEvents, match=rf"changes of shop.t1 up to commit-ts {START_TS + 8} were encoded in one chunk"
    ):
        feed(changefeed, 1, [database(5)], "1")


def test_a_ddl_of_other_tables_is_not_late(opened: Open, store: MemoryStore) -> None:
    changefeed = opened()
    feed(changefeed, 0, [layout_row(), insert(1), insert(8), resolved(2)], "0")
    land(changefeed)
    feed(changefeed, 1, [add_index(5, 2), database(6, CREW), resolved(9)], "1")
    land(changefeed)
    assert changefeed.ledger.idle


def test_a_ddl_that_the_checkpoint_has_passed_is_refused_and_not_lost(opened: Open) -> None:
    changefeed = opened()
    feed(changefeed, 0, [layout_row(), insert(8), resolved(9)], "0")
    land(changefeed)
    assert changefeed.ledger.checkpoint() == START_TS + 9
    with pytest.raises(BadEvents, match=r"follows the resolved mark"):
        feed(changefeed, 1, [add_index(5)], "1")


# -- repeats ---------------------------------------------------------------------------------------------------------


def test_a_repeat_of_a_ddl_that_is_over_is_fine(opened: Open, store: MemoryStore) -> None:
    changefeed = opened()
    feed(changefeed, 0, [layout_row(), insert(1), add_index(5), insert(8, version=5), resolved(9)], "0")
    land(changefeed)
    land(changefeed)
    feed(changefeed, 1, [add_index(5), insert(10, version=5), resolved(10)], "1")
    land(changefeed)
    assert changefeed.ledger.checkpoint() == START_TS + 10
    assert written(store).count("t1 schema 5") == 1


@pytest.mark.parametrize("mark", [9, 2], ids=["below the checkpoint", "above the checkpoint"])
def test_after_a_restart_a_ddl_that_was_over_comes_again_behind_what_has_landed(
    opened: Open, store: MemoryStore, mark: int
) -> None:
    rows = [layout_row(), insert(1), database(5), insert(8), resolved(9)]
    changefeed = opened()
    if mark == 2:  # another table keeps the checkpoint back
        store.begin("unavailable", "/t3/")
        rows.insert(1, insert(3, 3, schema_id=CREW))
    feed(changefeed, 0, rows, "0")
    land(changefeed)
    land(changefeed)
    changefeed.scribe.write_progress()
    assert changefeed.ledger.checkpoint() == START_TS + mark
    if mark == 2:
        store.end("unavailable", "/t3/")
    again = opened()
    feed(again, 0, rows, "0")
    land(again)
    land(again)
    assert again.ledger.checkpoint() == START_TS + 9
    assert [line for line in written(store) if line.startswith("t1 data")] == ["t1 data 0 #1", "t1 data 0 #2"]


# -- in the middle ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("middle", [database(5), view(5), add_index(5)], ids=["database", "all", "same version"])
def test_a_ddl_in_the_middle_of_a_micro_batch_cuts_it(opened: Open, store: MemoryStore, middle: Row) -> None:
    changefeed = opened()
    rows = [insert(ts, number) for ts in (1, 4, 5, 9) for number in (1, 2)]
    feed(changefeed, 0, [layout_row(), *rows, middle, resolved(9)], "0")
    land(changefeed)
    land(changefeed)
    assert changefeed.ledger.idle
    found = [line for line in written(store) if "t1" in line or "schema 5" in line]
    assert found == ["t1 schema 0", "t1 data 0 #1", found[2], "t1 data 0 #2"]
    assert found[2].endswith("schema 5")
    assert changefeed.totals.rows_landed == len(rows)


def test_only_a_batch_with_a_chunk_around_a_ddl_runs_again(opened: Open) -> None:
    changefeed = opened()
    job = changefeed.intake.ingest_job(1, 1 << 20)
    assert job.cuts == ()
    t1, t2 = (
        {
            "kind": "rows",
            "table_id": n,
            "table_name": f"t{n}",
            "schema_name": "shop",
            "span": 0,
            "version": 1,
            "layout": 7,
        }
        for n in (1, 2)
    )
    items = pa.Table.from_pylist(
        [
            {**t1, "first_ts": START_TS + 1, "last_ts": START_TS + 4},
            {**t1, "first_ts": START_TS + 5, "last_ts": START_TS + 9},
            {**t2, "first_ts": START_TS + 1, "last_ts": START_TS + 9},
            {"kind": DDL, "table_id": 1, "first_ts": START_TS + 5, "first_seq": 0, "text": add_index(5)["ddl"]},
        ],
        schema=ITEMS,
    )
    assert changefeed.intake.learn(items) is False, "the index is of t1, and only t2 has a chunk around it"
    wide = {"kind": DDL, "table_id": 0, "first_ts": START_TS + 6, "first_seq": 0, "text": database(6)["ddl"]}
    assert changefeed.intake.learn(pa.concat_tables([items, pa.Table.from_pylist([wide], schema=ITEMS)])) is True
    assert changefeed.intake.ingest_job(1, 1 << 20).cuts == (START_TS + 5, START_TS + 6)
    changefeed.intake.ingest_ended()
    assert changefeed.intake.ingest_job(1, 1 << 20).cuts == (), "they are those of one batch"


def test_a_chunk_around_a_marker_never_gets_into_a_queue() -> None:
    ledger = Ledger(Limits())
    event = DdlEvent.from_json(database(5)["ddl"])
    ledger.blocking.arrive([Ddl(Key(START_TS + 5, 0), 0, event)], 0, 0.0)
    row = {
        "kind": "rows", "table_id": 1, "span": 0, "logical_table_id": 1, "schema_id": SHOP, "schema_name": "shop",
        "table_name": "t1", "version": 1, "layout": 7, "first_ts": START_TS + 1, "first_seq": 1,
        "last_ts": START_TS + 9, "last_seq": 2, "rows": 2, "tier": 1, "segment": "s", "offset": 0, "length": 10,
        "checksum": 0,
    }  # fmt: skip
    batch = read_batch(pa.Table.from_pylist([row], schema=ITEMS), ledger.queues)
    ledger.queues.note_databases(batch.dispatcher, batch.databases())
    with pytest.raises(BadEvents, match=r"table shop.t1: changes from .* are in one chunk although a DDL"):
        refuse_divided(batch, ledger.blocking.markers)
