"""A changefeed and DDL: schema files after all older rows and before all newer ones, other tables untouched."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tidegate.driver.changefeed import Changefeed
from tidegate.errors import BadEvents, SpoolTooSmall, StoreRefused
from tidegate.events import DDL
from tidegate.format.ddl.events import ALTERS, DdlEvent
from tidegate.format.ddl.files import schema_files
from tidegate.format.ddl.scope import (
    Table,
    alter_database_charset,
    alter_table,
    create_database,
    create_table,
    create_view,
    drop_table,
    rename_table,
    truncate_table,
)
from tidegate.format.rules.rules import EventFilter, EventFilters, Rules, TableFilter
from tidegate.format.tables import Column, Layout
from tidegate.sources.source import Demand
from tidegate.spark.handle import may_pass
from tidegate.testing import (
    SHAPE,
    START_TS,
    FakeClock,
    MemoryStore,
    change,
    feed,
    layout_row,
    resolved_row,
)

Open = Callable[..., Changefeed]
Row = dict[str, Any]
WIDE = Layout((*SHAPE.columns, Column("w", "int")))
SHOP = 100


def table(number: int, **changes: Any) -> Table:
    return replace(Table(SHOP, "shop", f"t{number}", number, SHAPE), **changes)


def ddl_row(ts: int, event: DdlEvent | None, table_id: int = 0, seq: int = 0) -> Row:
    assert event is not None
    return {"kind": DDL, "commit_ts": START_TS + ts, "seq": seq, "table_id": table_id, "ddl": event.to_json()}


def add_column(ts: int, number: int = 1) -> Row:
    event = alter_table(ALTERS["add column"], table(number, layout=WIDE), f"ALTER TABLE `t{number}` ADD COLUMN `w` INT")
    return ddl_row(ts, event, number)


def insert(ts: int, number: int = 1, version: int = 0, **columns: Any) -> Row:
    return change(number, START_TS + ts, ts, table_version=START_TS + version, schema_id=SHOP, **columns)


def wide(ts: int, number: int = 1, version: int = 0) -> Row:
    return insert(ts, number, version, layout=WIDE.fingerprint, after=[b"%d" % ts, b"v", b"1"])


LAYOUTS = [layout_row(), layout_row(WIDE)]


def land(changefeed: Changefeed, seconds: float = 0.0) -> None:
    assert isinstance(changefeed.clock, FakeClock)
    changefeed.clock.advance(seconds)
    while changefeed.landing.land_next():
        pass


def resolved(ts: int) -> Row:
    return resolved_row(START_TS + ts)


def written(store: MemoryStore) -> list[str]:
    """What was put for tables, in order: `t1 schema 5`, `t1 data 0 #1`."""
    found = []
    for op, path in store.calls:
        if op in ("create", "create_bytes", "put") and not path.startswith("_tidegate") and path != "metadata":
            *folder, name = path.split("/")
            if name.startswith("schema_"):
                found.append(f"{'.'.join(folder[:-1])} schema {int(name.split('_')[1]) - START_TS}")
            elif name.startswith("CDC0"):
                found.append(f"{'.'.join(folder[:2])} data {int(folder[2]) - START_TS} #{int(name[3:-4])}")
    return found


def test_rows_before_a_ddl_land_at_once_then_its_schema_file_then_the_rest(opened: Open, store: MemoryStore) -> None:
    changefeed = opened()
    feed(changefeed, 0, [*LAYOUTS, insert(1), add_column(5), wide(6, version=5), resolved(9)], "0")
    land(changefeed)
    assert written(store) == ["shop.t1 schema 0", "shop.t1 data 0 #1", "shop.t1 schema 5"]
    assert changefeed.totals.reasons == {"ddl": 1}
    land(changefeed, 5.0)
    assert written(store)[3:] == ["shop.t1 data 5 #1"]
    assert changefeed.ledger.idle


def test_a_ddl_waits_for_rows_below_it_that_have_not_come(opened: Open, store: MemoryStore) -> None:
    changefeed = opened()
    feed(changefeed, 0, [*LAYOUTS, insert(1), add_column(5), resolved(2)], "0")
    land(changefeed, 5.0)
    assert written(store) == ["shop.t1 schema 0", "shop.t1 data 0 #1"]
    feed(changefeed, 1, [insert(3), resolved(4)], "1")
    land(changefeed)
    assert written(store)[2:] == ["shop.t1 data 0 #2", "shop.t1 schema 5"]


def test_the_checkpoint_never_passes_a_ddl_that_is_not_over(opened: Open, store: MemoryStore) -> None:
    changefeed = opened()
    store.begin("unavailable", f"schema_{START_TS + 5}_")
    feed(changefeed, 0, [*LAYOUTS, insert(1), add_column(5), insert(8, 2), resolved(9)], "0")
    land(changefeed, 5.0)
    changefeed.scribe.write_progress()
    assert changefeed.status().checkpoint_ts == START_TS + 4
    assert changefeed.ledger.progress.position is None
    assert "unavailable" in changefeed.status().ddls[f"{START_TS + 5}/0"].waits_for
    store.end("unavailable", f"schema_{START_TS + 5}_")
    land(changefeed, 5.0)
    assert changefeed.status().checkpoint_ts == START_TS + 9
    assert changefeed.ledger.progress.position == "0"


def test_other_tables_land_while_one_drains_onto_a_store_that_hangs(opened: Open, store: MemoryStore) -> None:
    changefeed = opened()
    store.begin("unavailable", "/t1/")
    feed(changefeed, 0, [*LAYOUTS, insert(1), insert(2, 2), add_column(5), wide(6, version=5), resolved(9)], "0")
    land(changefeed, 5.0)
    assert [line for line in written(store) if "t2" in line] == ["shop.t2 schema 0", "shop.t2 data 0 #1"]
    feed(changefeed, 1, [insert(12, 2), resolved(12)], "1")
    land(changefeed, 5.0)
    assert "shop.t2 data 0 #2" in written(store)
    assert not [line for line in written(store) if line == "shop.t1 schema 5"]


def test_a_database_ddl_drains_all_its_tables_and_freezes_them_and_no_others(opened: Open, store: MemoryStore) -> None:
    changefeed = opened()
    event = alter_database_charset(SHOP, "shop", "ALTER DATABASE `shop` CHARACTER SET utf8mb4")
    rows = [insert(1), insert(2, 2), insert(3, 3, schema_name="other") | {"schema_id": 7}]
    store.begin("unavailable", "/t2/")
    feed(changefeed, 0, [*LAYOUTS, *rows, ddl_row(5, event), resolved(5)], "0")
    feed(changefeed, 1, [insert(6), insert(7, 3, schema_name="other") | {"schema_id": 7}, resolved(9)], "1")
    land(changefeed, 5.0)
    assert "shop schema 5" not in written(store)
    assert [line for line in written(store) if "t1" in line] == ["shop.t1 schema 0", "shop.t1 data 0 #1"]
    assert [line for line in written(store) if "t3" in line] == ["other.t3 schema 0", "other.t3 data 0 #1"]
    store.end("unavailable", "/t2/")
    land(changefeed, 5.0)
    assert written(store).index("shop schema 5") > written(store).index("shop.t2 data 0 #1")
    assert written(store).index("shop.t1 data 0 #2") > written(store).index("shop schema 5")


def test_a_view_concerns_every_table(opened: Open, store: MemoryStore) -> None:
    changefeed = opened()
    view = Table(SHOP, "shop", "v", 50, SHAPE)
    event = create_view(view, "CREATE VIEW `v` AS SELECT 1")
    feed(changefeed, 0, [*LAYOUTS, insert(1), insert(2, 2), ddl_row(5, event), resolved(9)], "0")
    land(changefeed)
    assert written(store)[-1] == "shop.v schema 5"
    assert {"shop.t1 data 0 #1", "shop.t2 data 0 #1"} <= set(written(store)[:-1])


def test_tables_come_and_go_and_change_their_names(opened: Open, store: MemoryStore) -> None:
    changefeed = opened()
    rows = [
        ddl_row(1, create_database(SHOP, "shop", "CREATE DATABASE `shop`")),
        ddl_row(2, create_table(table(1), "CREATE TABLE `t1` (`id` INT PRIMARY KEY)")),
        insert(3, version=2),
        ddl_row(4, rename_table(table(1), table(1, name="u"))),
        insert(5, version=4, table_name="u"),
        ddl_row(6, truncate_table(table(1, name="u"), table(9, name="u"), "TRUNCATE TABLE `u`")),
        insert(7, 9, version=6, table_name="u"),
        ddl_row(8, drop_table(table(9, name="u"))),
        resolved(9),
    ]
    feed(changefeed, 0, [*LAYOUTS, *rows], "0")
    land(changefeed)
    assert written(store) == [
        "shop schema 1", "shop.t1 schema 2", "shop.t1 data 2 #1", "shop.u schema 4", "shop.u data 4 #1",
        "shop.u schema 6", "shop.u data 6 #1", "shop.u schema 8",
    ]  # fmt: skip
    assert changefeed.status().checkpoint_ts == START_TS + 9


@pytest.mark.parametrize("point", ["before the schema file", "after the schema file"])
def test_a_crash_around_a_ddl_repeats_nothing_and_loses_nothing(opened: Open, store: MemoryStore, point: str) -> None:
    rows = [*LAYOUTS, insert(1), add_column(5), wide(6, version=5), resolved(9)]
    first = opened()
    if point == "before the schema file":
        store.begin("unavailable", f"schema_{START_TS + 5}_")
    feed(first, 0, rows, "0")
    land(first)
    if point == "before the schema file":
        store.end("unavailable", f"schema_{START_TS + 5}_")
    second = opened()
    feed(second, 0, rows, "0")
    land(second, 5.0)
    assert second.ledger.idle
    assert [line for line in written(store) if "data" in line] == ["shop.t1 data 0 #1", "shop.t1 data 5 #1"]
    texts = [data for path, data in store.objects.items() if f"schema_{START_TS + 5}_" in path]
    assert len(texts) == 1
    assert b"ADD COLUMN" in texts[0]


def test_a_filtered_ddl_is_nothing_and_an_ignored_one_only_drains(opened: Open, store: MemoryStore) -> None:
    ignore = EventFilters((EventFilter(("shop.t2",), ("add column",)),))
    changefeed = opened(rules=Rules(filter=TableFilter(("*.*", "!shop.t3")), event_filters=ignore))
    rows = [insert(1), insert(2, 2), add_column(5, 1), add_column(6, 2), add_column(7, 3), resolved(9)]
    feed(changefeed, 0, [*LAYOUTS, *rows], "0")
    land(changefeed)
    assert [line for line in written(store) if "schema" in line and not line.endswith(" 0")] == ["shop.t1 schema 5"]
    assert changefeed.totals.reasons == {"ddl": 2}
    for outcome in ("written", "passed", "filtered"):
        assert changefeed.metrics.value("ddl_total", outcome=outcome) == 1


def test_a_type_outside_the_list_is_skipped_and_counted(opened: Open, store: MemoryStore) -> None:
    changefeed = opened()
    sequence = DdlEvent(type=34, query="CREATE SEQUENCE `s`", schema_id=SHOP)
    feed(changefeed, 0, [*LAYOUTS, insert(1), ddl_row(5, sequence), resolved(9)], "0")
    assert changefeed.metrics.value("ddl_total", outcome="skipped") == 1
    land(changefeed, 5.0)
    assert changefeed.status().checkpoint_ts == START_TS + 9


def test_a_schema_file_with_other_columns_holds_up_its_ddl_alone_and_is_named(opened: Open, store: MemoryStore) -> None:
    changefeed = opened()
    feed(changefeed, 0, [*LAYOUTS, insert(1), insert(2, 2), resolved(2)], "0")
    land(changefeed, 5.0)
    event, target = DdlEvent.from_json(add_column(5)["ddl"]), changefeed.book.rules.ddl_target
    ((path, text),) = schema_files(
        event, START_TS + 5, {WIDE.fingerprint: WIDE}, changefeed.options.sink.paths, target, False
    )
    store.objects[path] = text.replace('"w"', '"other"').encode()
    feed(changefeed, 1, [add_column(5), wide(7, version=5), insert(8, 2), resolved(9)], "1")
    land(changefeed, 5.0)
    (reason,) = (ddl.waits_for for ddl in changefeed.status().ddls.values())
    assert f"schema_{START_TS + 5}_" in reason
    assert "lists other columns" in reason
    assert changefeed.life.error is None
    assert written(store)[-1] == "shop.t2 data 0 #2", "other tables go on, and nothing passes the DDL"
    assert changefeed.status().checkpoint_ts == START_TS + 4
    del store.objects[path]  # somebody puts it right
    land(changefeed, 60.0)
    land(changefeed, 5.0)
    assert changefeed.status().ddls == {}
    assert changefeed.status().checkpoint_ts == START_TS + 9


@pytest.mark.parametrize("fault", ["refuse", "unavailable", "lost"])
def test_a_ddl_whose_schema_file_fails_is_tried_again_and_named_meanwhile(
    opened: Open, store: MemoryStore, fault: str
) -> None:
    changefeed = opened()
    feed(changefeed, 0, [*LAYOUTS, insert(1), add_column(5), insert(6, 2), resolved(9)], "0")
    store.begin(fault, f"schema_{START_TS + 5}_")
    land(changefeed, 5.0)
    assert "on command" in next(iter(changefeed.status().ddls.values())).waits_for
    assert written(store)[-1] == "shop.t2 data 0 #1" or fault == "lost"
    store.end(fault, f"schema_{START_TS + 5}_")
    land(changefeed, 60.0)
    assert changefeed.status().ddls == {}
    assert changefeed.status().checkpoint_ts == START_TS + 9


def test_rows_of_a_later_batch_are_cut_at_a_ddl_that_is_not_over(opened: Open, store: MemoryStore) -> None:
    changefeed = opened()
    view = Table(SHOP, "shop", "v", 50, SHAPE)
    feed(changefeed, 0, [*LAYOUTS, ddl_row(5, create_view(view, "CREATE VIEW `v` AS SELECT 1")), resolved(0)], "0")
    feed(changefeed, 1, [insert(1), insert(9), resolved(9)], "1")
    land(changefeed, 5.0)
    assert written(store) == ["shop.t1 schema 0", "shop.t1 data 0 #1", "shop.v schema 5", "shop.t1 data 0 #2"]


def test_a_layout_that_no_row_defines_is_refused_by_name(opened: Open) -> None:
    changefeed = opened()
    with pytest.raises(BadEvents, match=r"the DDL of commit-ts \d+ gives shop.t1 the layout"):
        feed(changefeed, 0, [layout_row(), add_column(5), resolved(9)], "0")


def test_a_stop_leaves_what_stands_behind_an_unfinished_ddl_for_later(opened: Open, store: MemoryStore) -> None:
    changefeed = opened()
    feed(changefeed, 0, [*LAYOUTS, insert(1), add_column(5), wide(6, version=5), resolved(2)], "0")
    changefeed.start()
    assert changefeed.landing.land_all(threading.Event()) is False
    assert written(store) == ["shop.t1 schema 0", "shop.t1 data 0 #1"]
    assert changefeed.life.error is None


def test_a_schema_file_is_tried_only_when_all_before_the_marker_is_durable(opened: Open, store: MemoryStore) -> None:
    changefeed = opened()
    store.begin("unavailable", f"schema_{START_TS + 5}_")
    feed(changefeed, 0, [*LAYOUTS, insert(1), add_column(5), resolved(9)], "0")
    land(changefeed)
    tried = [path for op, path in store.calls if op == "create_bytes" and f"schema_{START_TS + 5}_" in path]
    assert tried
    assert store.calls.index(("create_bytes", tried[0])) > max(
        at for at, (op, path) in enumerate(store.calls) if op == "create" and "/t1/" in path
    )
    assert "shop.t1 data 0 #1" in written(store)
    assert not [path for path in store.objects if f"schema_{START_TS + 5}_" in path]


@pytest.mark.parametrize("end", ["fails", "is closed"])
def test_a_ddl_that_has_not_drained_at_the_end_is_not_written(opened: Open, store: MemoryStore, end: str) -> None:
    changefeed = opened()
    store.begin("unavailable", "/t1/")
    feed(changefeed, 0, [*LAYOUTS, insert(1), add_column(5), resolved(9)], "0")
    changefeed.start()
    if end == "fails":
        changefeed.life.fail(StoreRefused("the disk is gone"))
    else:
        changefeed.close()
    assert changefeed.landing.land_all(threading.Event()) is False
    assert changefeed.status().error == ("the disk is gone" if end == "fails" else None)
    assert not [line for line in written(store) if "schema 5" in line]


@pytest.mark.parametrize("mode", ["enqueue", "flush"])
def test_what_a_ddl_misses_can_arrive_although_the_wake_would_be_held(opened: Open, mode: str) -> None:
    changefeed = opened(wake_mode=mode, spool_max_bytes=4_000, file_size_bytes=1_024)
    feed(changefeed, 0, [*LAYOUTS, insert(1), add_column(5), *frozen(3), resolved(2)], "0")
    land(changefeed)
    assert not changefeed.ledger.spool.may_wake()
    changefeed.intake.await_wake(0, 0.0)
    demand = Demand.from_json(Path(changefeed.options.spool.demand_file).read_text())
    assert demand.held == {1}, "nothing more of what waits for the DDL"
    feed(changefeed, 1, [insert(9, 2), resolved(12)], "1")
    land(changefeed, 5.0)
    assert changefeed.ledger.idle


def frozen(rows: int) -> list[Row]:
    return [wide(6 + n, version=5) | {"after": [b"%d" % n, b"x" * 900, b"1"]} for n in range(rows)]


@pytest.mark.parametrize("mode", ["enqueue", "flush"])
def test_a_spool_too_small_for_what_a_ddl_misses_ends_the_changefeed_with_the_ddl_and_the_size(
    opened: Open, mode: str
) -> None:
    changefeed = opened(wake_mode=mode, spool_max_bytes=4_000, file_size_bytes=1_024)
    feed(changefeed, 0, [*LAYOUTS, insert(1), add_column(5), *frozen(3), resolved(2)], "0")
    land(changefeed)
    changefeed.intake.await_wake(0, 0.0)
    feed(changefeed, 1, [*frozen(4)[3:], insert(9, 2), resolved(3)], "1")  # a source that cannot hold table 1 back
    land(changefeed, 5.0)
    with pytest.raises(SpoolTooSmall) as ended:
        changefeed.intake.await_wake(1, 0.0)
    occupied = changefeed.ledger.spool.occupied_bytes
    assert occupied > 4_000
    assert f"the DDL of commit-ts {START_TS + 5} " in str(ended.value)
    assert "'ALTER TABLE `t1` ADD COLUMN `w` INT'" in str(ended.value)
    assert f"spool.max-bytes={int(occupied / 0.8) + 1} or more" in str(ended.value)
    assert not may_pass(ended.value), "a new start would end in the same way"
