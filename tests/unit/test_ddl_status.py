"""Each DDL that is not over has a line of its own in the status: its marker, what it waits for, and since when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from tidegate.driver.changefeed import Changefeed
from tidegate.events import DDL
from tidegate.format.ddl.events import ALTERS, DdlEvent
from tidegate.format.ddl.scope import Table, alter_database_charset, alter_table, create_view, rename_table
from tidegate.format.tables import Column, Layout
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
WIDE = Layout((*SHAPE.columns, Column("w", "int")))
SHOP = 100
T1 = Table(SHOP, "shop", "t1", 1, SHAPE)


def ddl_row(ts: int, event: DdlEvent | None, table_id: int = 0, seq: int = 0) -> dict[str, Any]:
    assert event is not None
    return {"kind": DDL, "commit_ts": START_TS + ts, "seq": seq, "table_id": table_id, "ddl": event.to_json()}


def comment(ts: int, seq: int = 0) -> dict[str, Any]:
    return ddl_row(ts, alter_table(ALTERS["table comment"], T1, "ALTER TABLE `t1` COMMENT ''"), 1, seq)


def insert(ts: int, number: int = 1) -> dict[str, Any]:
    return change(number, START_TS + ts, ts, schema_id=SHOP)


def resolved(ts: int) -> dict[str, Any]:
    return resolved_row(START_TS + ts)


def advance(changefeed: Changefeed, seconds: float) -> None:
    assert isinstance(changefeed.clock, FakeClock)
    changefeed.clock.advance(seconds)


def land(changefeed: Changefeed) -> None:
    while changefeed.landing.land_next():
        pass


def test_two_ddls_with_one_text_are_two_lines(opened: Open, store: MemoryStore) -> None:
    changefeed = opened()
    store.begin("refuse", f"schema_{START_TS + 5}_")
    feed(changefeed, 0, [layout_row(), insert(1), comment(9), comment(5), comment(5, seq=1), resolved(2)], "0")
    lines = changefeed.status().ddls
    assert list(lines) == [f"{START_TS + 5}/0", f"{START_TS + 5}/1", f"{START_TS + 9}/0"]
    assert {line.query for line in lines.values()} == {"ALTER TABLE `t1` COMMENT ''"}
    assert {line.waits_for for line in lines.values()} == {"changes before it"}
    feed(changefeed, 1, [resolved(20)], "1")
    land(changefeed)
    first, second, third = changefeed.status().ddls.values()
    assert "refused" in first.waits_for
    assert second.waits_for == f"the DDL {START_TS + 5}/0"
    assert third.waits_for == f"the DDL {START_TS + 5}/1"


def test_a_line_says_since_when_the_ddl_is_here_and_since_when_it_waits_for_this(
    opened: Open, store: MemoryStore
) -> None:
    changefeed = opened()
    feed(changefeed, 0, [layout_row(), insert(1), comment(5), resolved(2)], "0")
    advance(changefeed, 7.0)
    (line,) = changefeed.status().ddls.values()
    assert (line.waits_for, line.waits_s, line.age_s) == ("changes before it", 7.0, 7.0)
    store.begin("unavailable", "shop/t1/")
    feed(changefeed, 1, [resolved(6)], "1")
    changefeed.landing.land_next()
    advance(changefeed, 2.0)
    (line,) = changefeed.status().ddls.values()
    assert (line.waits_for, line.waits_s, line.age_s) == ("1 tables to land", 2.0, 9.0)
    store.end("unavailable", "shop/t1/")
    store.begin("refuse", f"schema_{START_TS + 5}_")
    advance(changefeed, 60.0)
    land(changefeed)
    advance(changefeed, 3.0)
    (line,) = changefeed.status().ddls.values()
    assert "refused" in line.waits_for
    assert (line.waits_s, line.age_s) == (3.0, 72.0)
    store.end("refuse", f"schema_{START_TS + 5}_")
    advance(changefeed, 60.0)
    land(changefeed)
    assert changefeed.status().ddls == {}


def test_the_marker_says_whose_changes_wait_behind_the_ddl(opened: Open) -> None:
    changefeed = opened()
    layout = Layout((Column("id", "int"),))
    rows = [
        comment(5),
        ddl_row(6, rename_table(T1, replace(T1, name="t9"))),
        ddl_row(7, alter_database_charset(SHOP, "shop", "ALTER DATABASE `shop` CHARACTER SET utf8mb4")),
        ddl_row(8, create_view(Table(SHOP, "shop", "v", 77, layout), "CREATE VIEW `v` AS SELECT 1")),
    ]
    feed(changefeed, 0, [layout_row(), layout_row(layout), insert(1), *rows, resolved(2)], "0")
    assert [line.marker for line in changefeed.status().ddls.values()] == [
        "shop.t1",
        "shop.t1",
        "database shop",
        "all tables",
    ]


def test_the_lines_are_part_of_the_status_as_json_and_of_the_display(opened: Open, shown: Callable[..., str]) -> None:
    changefeed = opened()
    feed(changefeed, 0, [layout_row(), insert(1), *(comment(ts) for ts in range(5, 10)), resolved(2)], "0")
    advance(changefeed, 7.0)
    status = changefeed.status()
    assert asdict(status)["ddls"][f"{START_TS + 5}/0"]["waits_for"] == "changes before it"
    live, plain = shown(status, width=120), shown(status, is_terminal=False)
    assert f"ddl        {START_TS + 5}/0 waits for changes before it (7.0 s): ALTER TABLE `t1` COMMENT ''" in live
    assert "ddl        and 2 DDLs more" in live
    assert f"5 DDLs, {START_TS + 5}/0 waits for changes before it (7.0 s)" in plain
