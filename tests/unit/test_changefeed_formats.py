"""A changefeed and the layout's finer rules: version directories, routes, filters, selected columns, split updates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tidegate.driver.changefeed import Changefeed
from tidegate.errors import BadSetting
from tidegate.format.encode.csv import CsvOptions
from tidegate.format.layout import PathOptions, parse_data_path
from tidegate.format.rules.rules import ColumnSelector, ColumnSelectors, Route, Routes, Rules, TableFilter
from tidegate.format.tables import Layout, schema_checksum, schema_file_text
from tidegate.testing import (
    SHAPE,
    START_TS,
    FakeClock,
    MemoryStore,
    change,
    feed,
    landed_lines,
    layout_row,
    resolved_row,
)

Open = Callable[..., Changefeed]


def land_due(changefeed: Changefeed) -> None:
    assert isinstance(changefeed.clock, FakeClock)
    changefeed.clock.advance(5.0)
    while changefeed.landing.land_next():
        pass


def insert(changefeed: Changefeed, seq: int, version: int = START_TS, **columns: Any) -> None:
    """One row of shop.t1 in a batch of its own, landed."""
    row = change(columns.pop("table_id", 1), START_TS + seq, seq, **{"table_version": version, **columns})
    feed(changefeed, seq, [layout_row(), row, resolved_row(START_TS + seq)], str(seq))
    land_due(changefeed)


def files(store: MemoryStore, table: str = "t1") -> list[tuple[int, int]]:
    """(version directory, number) of every data file of shop.t1."""
    parsed = [parse_data_path(path, PathOptions()) for path in store.objects]
    return sorted((key.version, number) for key, number in filter(None, parsed) if key.table == table)


def schema_file(version: int, layout: Layout = SHAPE) -> tuple[str, bytes]:
    path = f"shop/t1/meta/schema_{version}_{schema_checksum('shop', 't1', layout):010d}.json"
    return path, schema_file_text("shop", "t1", version, layout).encode()


def test_a_version_with_the_same_columns_goes_on_in_the_older_directory(opened: Open, store: MemoryStore) -> None:
    changefeed = opened()
    insert(changefeed, 1)
    insert(changefeed, 2, START_TS + 2)
    insert(changefeed, 3, START_TS + 2)
    assert files(store) == [(START_TS, 1), (START_TS, 2), (START_TS, 3)]
    assert [path for path in store.objects if "/meta/schema_" in path] == [schema_file(START_TS)[0]]
    assert [line.values[0] for line in landed_lines(store)["shop.t1"]] == [b"1", b"2", b"3"]
    changefeed.scribe.write_progress()
    assert changefeed.ledger.idle


def test_after_a_restart_it_still_goes_on_there(opened: Open, store: MemoryStore) -> None:
    first = opened()
    insert(first, 1)
    insert(first, 2, START_TS + 2)
    second = opened()
    insert(second, 3, START_TS + 2)
    second.scribe.write_progress()
    insert(opened(), 4, START_TS + 4)
    assert files(store) == [(START_TS, n) for n in (1, 2, 3, 4)]
    assert [line.values[0] for line in landed_lines(store)["shop.t1"]] == [b"1", b"2", b"3", b"4"]


def test_a_schema_file_of_the_version_itself_gives_it_a_directory_of_its_own(opened: Open, store: MemoryStore) -> None:
    changefeed = opened()
    insert(changefeed, 1)
    path, text = schema_file(START_TS + 2)  # as a DDL that changes no column writes it
    store.objects[path] = text
    insert(changefeed, 2, START_TS + 2)
    assert files(store) == [(START_TS, 1), (START_TS + 2, 1)]


@pytest.mark.parametrize("crash", ["before data", "before index", "after index"])
def test_a_crash_while_it_moves_loses_and_doubles_nothing(opened: Open, store: MemoryStore, crash: str) -> None:
    first = opened()
    insert(first, 1)
    where = {"before data": f"/{START_TS}/", "before index": "CDC.index", "after index": "journal"}[crash]
    row = change(1, START_TS + 2, 2, table_version=START_TS + 2)
    feed(first, 2, [layout_row(), row, resolved_row(START_TS + 2)], "2")
    if crash != "after index":
        store.begin("unavailable", where)
        assert isinstance(first.clock, FakeClock)
        first.clock.advance(5.0)
        first.landing.land_next()
        first.landing.land_next()
        store.end("unavailable", where)
    else:
        land_due(first)
    second = opened()
    feed(second, 2, [layout_row(), row, resolved_row(START_TS + 2)], "2")
    land_due(second)
    insert(second, 3, START_TS + 2)
    assert files(store) == [(START_TS, n) for n in (1, 2, 3)]
    assert [line.values[0] for line in landed_lines(store)["shop.t1"]] == [b"1", b"2", b"3"]


def test_rows_behind_a_newer_schema_file_of_another_writer_are_dropped_and_acknowledged(
    opened: Open, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    opened()
    path, text = schema_file(START_TS + 50)
    store.objects[path] = text
    changefeed = opened()  # a sink that this run found empty has no other writer, and is not looked at
    insert(changefeed, 1)
    assert files(store) == []
    assert changefeed.ledger.idle
    assert "shop.t1: rows are dropped" in caplog.text
    changefeed.scribe.write_progress()
    assert changefeed.status().checkpoint_ts == START_TS + 1
    assert changefeed.status().rows_landed == 0
    insert(changefeed, 60, START_TS + 60)
    assert files(store) == [(START_TS + 50, 1)], "and newer rows go on where that writer was"


def test_what_this_changefeed_wrote_for_a_namesake_drops_and_mixes_nothing(opened: Open, store: MemoryStore) -> None:
    changefeed = opened()
    insert(changefeed, 1, START_TS + 50, table_id=2, table_name="t1")
    insert(changefeed, 2, START_TS)  # an older table of the same name, still under way
    insert(changefeed, 60, START_TS + 60, table_id=3, table_name="t1")
    assert files(store) == [(START_TS, 1), (START_TS + 50, 1), (START_TS + 60, 1)]


def test_partitions_fall_back_each_in_its_own_directory(opened: Open, store: MemoryStore) -> None:
    changefeed = opened()
    for seq, version in ((1, START_TS), (3, START_TS + 3)):
        insert(changefeed, seq, version, table_id=11, logical_table_id=1, table_name="t1")
        insert(changefeed, seq + 1, version, table_id=12, logical_table_id=1, table_name="t1")
    folders = {path.rpartition("/CDC0")[0].rpartition("/")[0] for path in store.objects if "/CDC0" in path}
    assert folders == {f"shop/t1/{START_TS}/11", f"shop/t1/{START_TS}/12"}


def test_routes_move_paths_rows_and_schema_files(opened: Open, store: MemoryStore) -> None:
    rules = Rules(routes=Routes((Route(("shop.*",), "archive", "{schema}_{table}"),)))
    changefeed = opened(rules=rules)
    insert(changefeed, 1)
    changefeed = opened(rules=rules)
    insert(changefeed, 2)
    assert not [path for path in store.objects if path.startswith("shop/")]
    assert [(line.schema, line.table) for line in landed_lines(store)["archive.shop_t1"]] == [
        ("archive", "shop_t1")
    ] * 2
    (text,) = (data for path, data in store.objects.items() if "/meta/schema_" in path)
    assert b'"Table": "shop_t1",\n    "Schema": "archive"' in text


def test_two_tables_routed_to_one_name_are_refused_by_name(opened: Open) -> None:
    changefeed = opened(rules=Rules(routes=Routes((Route(("shop.*",), "archive", "all"),))))
    insert(changefeed, 1)
    with pytest.raises(BadSetting, match=r"shop.t1 and shop.t2 are both routed to archive.all"):
        insert(changefeed, 2, table_id=2)


def test_filtered_rows_are_not_landed_and_do_not_hold_the_checkpoint_back(opened: Open, store: MemoryStore) -> None:
    changefeed = opened(rules=Rules(filter=TableFilter(("*.*", "!shop.t2"))))
    insert(changefeed, 1)
    insert(changefeed, 2, table_id=2)
    changefeed.scribe.write_progress()
    assert landed_lines(store).keys() == {"shop.t1"}
    assert changefeed.status().checkpoint_ts == START_TS + 2
    assert changefeed.metrics.value("filtered_rows_total") == 1


def test_a_selector_shows_in_header_and_rows_and_the_journal_counts_the_header(
    opened: Open, store: MemoryStore
) -> None:
    selectors = ColumnSelectors((ColumnSelector(("shop.t1",), ("id",)),))
    settings = {"rules": Rules(selectors=selectors), "csv": CsvOptions(output_field_header=True)}
    insert(opened(**settings), 1)
    insert(opened(**settings), 2)  # adopts the first file, whose size the journal planned
    data = [store.objects[path] for path in sorted(store.objects) if "/CDC0" in path]
    head = b"ticdc-meta$operation,ticdc-meta$table,ticdc-meta$schema,id\r\n"
    assert data == [head + b'"I","t1","shop",%d\r\n' % n for n in (1, 2)]


def test_a_key_changing_update_is_split_unless_raw_changes_are_asked_for(opened: Open, store: MemoryStore) -> None:
    changefeed = opened()
    update = change(1, START_TS + 1, 1, kind="update", before=[b"1", b"x"], after=[b"2", b"x"])
    feed(changefeed, 0, [layout_row(), update, change(1, START_TS + 1, 2), resolved_row(START_TS + 1)], "0")
    land_due(changefeed)
    assert [(line.op, line.values[0]) for line in landed_lines(store)["shop.t1"]] == [
        ("D", b"1"),
        ("I", b"2"),
        ("I", b"2"),
    ]
    raw = opened(output_raw_change_event=True)
    feed(raw, 1, [update | {"commit_ts": START_TS + 2, "seq": 3}, resolved_row(START_TS + 2)], "1")
    land_due(raw)
    assert [line.op for line in landed_lines(store)["shop.t1"]] == ["D", "I", "I", "U"]


@pytest.mark.parametrize("landed_first", [True, False])
def test_a_replay_neither_loses_nor_doubles_the_inserts_that_moved(
    opened: Open, store: MemoryStore, landed_first: bool
) -> None:
    update = change(1, START_TS + 1, 1, kind="update", before=[b"1", b"x"], after=[b"7", b"x"])
    batch = [layout_row(), update, change(1, START_TS + 1, 2), resolved_row(START_TS + 1)]
    first = opened()
    feed(first, 0, batch, "0")
    if landed_first:
        land_due(first)
    second = opened()
    feed(second, 0, batch, "0")
    land_due(second)
    assert [(line.op, line.values[0]) for line in landed_lines(store)["shop.t1"]] == [
        ("D", b"1"),
        ("I", b"2"),
        ("I", b"7"),
    ]
