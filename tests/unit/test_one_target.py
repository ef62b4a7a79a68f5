"""Several table ids under one name: every row of each lands once, and TiCDC's consumer drops none of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidegate.driver.changefeed import Changefeed
from tidegate.driver.entries import FOLDER, object_bytes, table_of
from tidegate.errors import BadEvents, StoreUnavailable, TidegateError
from tidegate.executor.ingest import ingest
from tidegate.executor.rows import ITEMS
from tidegate.format.encode.csv import CsvOptions
from tidegate.format.layout import PathOptions, parse_data_path
from tidegate.format.rules.rules import Route, Routes, Rules
from tidegate.format.tables import Column, Layout
from tidegate.reader.replay import survey
from tidegate.storage.files import FileStore
from tidegate.storage.store import Store
from tidegate.testing import (
    SHAPE,
    START_TS,
    Consumer,
    FakeClock,
    MemoryStore,
    change,
    events_batch,
    feed,
    layout_row,
    open_changefeed,
    resolved_row,
)

CSV = CsvOptions(include_commit_ts=True)
TTL_S = 100.0
V1, V2 = START_TS, START_TS + 1
Objects = dict[str, bytes]


def opened(store: Store, place: Path, clock: FakeClock | None = None, **settings: Any) -> Changefeed:
    return open_changefeed(store, place / "spool", clock or FakeClock(), csv=CSV, state_ttl_s=TTL_S, **settings)


def row(table_id: int, ts: int, version: int = V1, **columns: Any) -> dict[str, Any]:
    """A row of shop.orders whose text tells its table and commit-ts: `1@7`."""
    given = {"table_name": "orders", "table_version": version, **columns}
    return change(table_id, START_TS + ts, ts, str(ts).encode(), f"{table_id}@{ts}".encode(), **given)


def send(changefeed: Changefeed, batch: int, *rows: dict[str, Any], resolved: int = 0) -> None:
    feed(changefeed, batch, [layout_row(), *rows, resolved_row(START_TS + resolved)], f"end-{batch}")


def land(changefeed: Changefeed, rounds: int = 20) -> None:
    clock = changefeed.clock
    assert isinstance(clock, FakeClock)
    clock.advance(6.0)
    for _ in range(rounds):
        if not changefeed.landing.land_next():
            clock.advance(1.5)


def forget(changefeed: Changefeed) -> None:
    """All tables are idle for long, and their state is given up."""
    clock = changefeed.clock
    assert isinstance(clock, FakeClock)
    changefeed.scribe.write_progress()
    clock.advance(3 * TTL_S)
    changefeed.scribe.write_progress()
    assert not [number for number in changefeed.ledger.queues.known() if changefeed.ledger.queues.names.tables[number]]


def die(changefeed: Changefeed) -> None:
    changefeed.life.fail(TidegateError("killed"))
    changefeed.close()


def consumed(store: Store, paths: PathOptions | None = None) -> list[str]:
    """The rows that a consumer applies that begins now; it drops none, and nothing on the sink is wrong."""
    consumer = Consumer(paths or PathOptions(), CSV)
    consumer.round(store)
    assert consumer.dropped == []
    assert survey(store, consumer.paths).faults == []
    return [(line.values[1] or b"").decode() for line in consumer.taken]


def of_table(rows: Iterable[str], table_id: int) -> list[str]:
    return [row for row in rows if row.startswith(f"{table_id}@")]


def folders(store: Store) -> list[str]:
    """The directories of data files below the table's own: `v1/2` for table 2 in its own directory of version V1."""
    parsed = (parse_data_path(path, PathOptions()) for path, _ in store.list(""))
    keys = {found[0] for found in parsed if found is not None}
    return sorted(f"v{key.version - V1 + 1}" + (f"/{key.table_id}" if key.is_partition else "") for key in keys)


def test_a_snapshot_while_a_renamed_table_looks_keeps_how_far_it_is_durable(tmp_path: Path) -> None:
    """Its old name's rows are above the checkpoint, so a replay brings them again."""
    store = MemoryStore()
    changefeed = opened(store, tmp_path)
    send(changefeed, 1, row(9, 1, V1, table_name="left"), resolved=1)
    land(changefeed)
    send(changefeed, 2, row(9, 2, V2, table_name="other"), resolved=2)
    land(changefeed)
    for part in ("shop/stuck/", "shop/left/"):
        store.begin("refuse", part)

    def replayed(changefeed: Changefeed) -> None:
        send(changefeed, 3, row(1, 20), row(5, 15, table_name="stuck"), resolved=21)
        land(changefeed)
        send(changefeed, 4, row(1, 40, V2 + 30, table_name="left"), resolved=40)
        land(changefeed)

    replayed(changefeed)
    changefeed.scribe.write_progress()
    changefeed.scribe.compact()
    die(changefeed)
    changefeed = opened(after := MemoryStore(objects=store.objects), tmp_path)
    replayed(changefeed)
    assert changefeed.ledger.idle
    changefeed.close()
    assert sorted(consumed(after)) == ["1@20", "1@40", "5@15", "9@1", "9@2"]


def test_without_directories_a_newer_table_waits_for_the_older_one_of_its_micro_batch(tmp_path: Path) -> None:
    changefeed = opened(store := MemoryStore(), tmp_path, partition_separator=False)
    send(changefeed, 1, row(1, 5), row(2, 6, V2), resolved=6)
    land(changefeed)
    assert changefeed.ledger.idle
    changefeed.close()
    assert consumed(store, PathOptions(partition_separator=False)) == ["1@5", "2@6"]


# -- shards ------------------------------------------------------------------------------------------------------------


def test_two_ids_with_equal_bytes_have_a_file_each(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "sink")
    changefeed = opened(store, tmp_path)
    same: dict[str, Any] = {"table_name": "orders", "after": [b"1", b"same"]}
    send(changefeed, 1, change(1, START_TS + 1, 1, **same), change(2, START_TS + 1, 2, **same), resolved=1)
    land(changefeed)
    assert consumed(store) == ["same", "same"]
    assert folders(store) == ["v1", "v1/2"]
    assert changefeed.ledger.idle
    changefeed.close()


def test_two_ids_with_other_bytes_both_go_on(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "sink")
    changefeed = opened(store, tmp_path)
    for batch in (1, 2, 3):
        send(changefeed, batch, *(row(table, 10 * batch + table) for table in (2, 1)), resolved=10 * batch + 5)
        land(changefeed)
    rows = consumed(store)
    assert [of_table(rows, table) for table in (1, 2)] == [[f"{t}@{t + 10 * n}" for n in (1, 2, 3)] for t in (1, 2)]
    assert len(folders(store)) == 2
    assert len([path for path, _ in store.list("shop/orders/meta")]) == 1, "one schema file is for both"
    changefeed.close()


def test_an_id_whose_changes_are_older_than_what_landed_is_not_dropped_by_a_consumer(tmp_path: Path) -> None:
    store = MemoryStore()
    changefeed, consumer = opened(store, tmp_path), Consumer()
    send(changefeed, 1, row(1, 50))
    land(changefeed)
    consumer.round(store)
    send(changefeed, 2, row(2, 20, V2), row(1, 60))
    land(changefeed)
    consumer.round(store)
    assert consumer.dropped == []
    assert len(consumer.taken) == 3
    assert sorted(consumed(store)) == ["1@50", "1@60", "2@20"]


def test_routes_merge_many_tables_under_one_name(tmp_path: Path) -> None:
    store = MemoryStore()
    rules = Rules(routes=Routes((Route(("shop.*",), "all", "orders"),)))
    tables = range(1, 301)
    for life in (1, 2):
        changefeed = opened(store, tmp_path, rules=rules)
        rows = [row(table, 1000 * life + table, V1 + table % 3, table_name=f"orders_{table}") for table in tables]
        send(changefeed, life, *rows, resolved=2000 * life)
        land(changefeed)
        assert changefeed.ledger.idle
        die(changefeed)
    assert sorted(consumed(store)) == sorted(f"{t}@{1000 * life + t}" for t in tables for life in (1, 2))


def test_a_partitioned_table_and_another_one_under_its_name_do_not_meet(tmp_path: Path) -> None:
    store = MemoryStore()
    changefeed = opened(store, tmp_path)
    for ts in (10, 20):
        parts = [row(part, ts + part, logical_table_id=50) for part in (51, 52)]
        send(changefeed, ts, *parts, row(1, ts), row(2, ts))
        land(changefeed)
    assert folders(store) == ["v1", "v1/2", "v1/51", "v1/52"]
    assert len(consumed(store)) == 8


@pytest.mark.parametrize("separator", ["none", "year", "month", "day"])
def test_it_does_not_matter_how_dates_are_written(tmp_path: Path, separator: str) -> None:
    store = MemoryStore()
    clock = FakeClock()
    for batch in (1, 2):
        changefeed = opened(store, tmp_path, clock, date_separator=separator)
        send(changefeed, batch, row(1, batch), row(2, batch), resolved=batch)
        land(changefeed)
        die(changefeed)
        clock.advance(86_400)
    assert len(consumed(store, PathOptions(date_separator=separator))) == 4


def test_where_ids_are_paths_each_table_has_its_plain_path(tmp_path: Path) -> None:
    store = MemoryStore()
    changefeed = opened(store, tmp_path, table_id_as_path=True)
    send(changefeed, 1, row(1, 1), row(2, 1), resolved=1)
    land(changefeed)
    assert len(consumed(store, PathOptions(table_id_as_path=True))) == 2
    assert not changefeed.ledger.queues.lanes.own.any()


def test_spans_are_told_apart_by_their_file_names(tmp_path: Path) -> None:
    store, paths = MemoryStore(), PathOptions(across_nodes=True)
    for life in (1, 2):
        changefeed = opened(store, tmp_path, across_nodes=True, split_spans=2)
        send(
            changefeed,
            life,
            *(row(table, 100 * life + n) for n in range(9) for table in (1, 2)),
            resolved=100 * life + 9,
        )
        land(changefeed)
        die(changefeed)
    assert len(consumed(store, paths)) == 36
    changefeed = opened(store, tmp_path)  # no longer split
    send(changefeed, 3, row(2, 301), row(1, 300), resolved=301)
    land(changefeed)
    assert changefeed.ledger.idle
    plain = {path.rpartition("/")[0] for path in store.objects if "/CDC0" in path}
    assert len(plain) == 2, "they do not meet"


# -- tables that follow each other -------------------------------------------------------------------------------------


def test_a_table_that_was_made_again_takes_the_plain_path_when_the_old_one_is_at_rest(tmp_path: Path) -> None:
    store = MemoryStore()
    changefeed = opened(store, tmp_path)
    send(changefeed, 1, row(1, 1), resolved=1)
    land(changefeed)
    send(changefeed, 2, row(2, 2, V2), resolved=2)
    land(changefeed)
    assert folders(store) == ["v1", "v2"]
    assert consumed(store) == ["1@1", "2@2"]


def test_while_rows_of_the_old_table_wait_the_new_one_has_a_directory_of_its_own(tmp_path: Path) -> None:
    store = MemoryStore()
    changefeed = opened(store, tmp_path)
    send(changefeed, 1, row(1, 1), row(2, 5, V2), row(1, 3), resolved=5)
    land(changefeed)
    send(changefeed, 2, row(2, 6, V2), resolved=6)
    land(changefeed)
    assert folders(store) == ["v1", "v2/2"], "and it stays there"
    assert consumed(store) == ["1@1", "1@3", "2@5", "2@6"]


def test_an_id_that_lost_the_plain_path_goes_on_in_a_directory_of_its_own(tmp_path: Path) -> None:
    store = MemoryStore()
    changefeed, consumer = opened(store, tmp_path), Consumer()
    for batch, one in enumerate([row(1, 1), row(2, 2, V2), row(1, 3), row(2, 4, V2), row(1, 5)], start=1):
        send(changefeed, batch, one)
        land(changefeed)
        consumer.round(store)
    assert folders(store) == ["v1", "v1/1", "v2"]
    assert [of_table(consumed(store), table) for table in (1, 2)] == [["1@1", "1@3", "1@5"], ["2@2", "2@4"]]
    assert (len(consumer.taken), consumer.dropped) == (5, [])
    again = opened(store, tmp_path / "2")
    send(again, 1, row(1, 6), row(2, 7, V2))
    land(again)
    assert folders(store) == ["v1", "v1/1", "v2"]
    assert of_table(consumed(store), 1) == ["1@1", "1@3", "1@5", "1@6"]


def test_a_rename_onto_a_name_whose_rows_wait_mixes_nothing(tmp_path: Path) -> None:
    store = MemoryStore()
    changefeed = opened(store, tmp_path)
    send(changefeed, 1, row(2, 1, table_name="carts"), row(1, 1), resolved=1)
    land(changefeed)
    store.begin("unavailable", "shop/orders/")
    send(changefeed, 2, row(1, 2), row(2, 3, V2), resolved=3)
    land(changefeed)
    store.end("unavailable", "shop/orders/")
    changefeed.clock.advance(120.0)  # type: ignore[attr-defined]
    land(changefeed)
    assert sorted(consumed(store)) == ["1@1", "1@2", "2@1", "2@3"]
    assert changefeed.ledger.idle


def test_tables_that_swap_their_names_swap_their_plain_paths(tmp_path: Path) -> None:
    store = MemoryStore()
    for life, names in enumerate((("orders", "carts"), ("carts", "orders"), ("orders", "carts"))):
        changefeed = opened(store, tmp_path)
        for batch in (1, 2):
            ts, version = 10 * life + batch, V1 + life
            send(changefeed, batch, *(row(t, ts, version, table_name=names[t - 1]) for t in (1, 2)), resolved=ts)
            land(changefeed)
        assert changefeed.ledger.idle
        changefeed.scribe.write_progress()
        die(changefeed)
    assert len(consumed(store)) == 12
    assert not [path for path in store.objects if parse_data_path(path, PathOptions()) and "/1/" in path]


def test_a_swap_within_one_run_and_one_batch_needs_no_other_directory(tmp_path: Path) -> None:
    store = MemoryStore()
    changefeed = opened(store, tmp_path)
    send(changefeed, 1, row(1, 1), row(2, 1, table_name="carts"), resolved=1)
    land(changefeed)
    send(changefeed, 2, row(1, 2, V2, table_name="carts"), row(2, 3, V2), resolved=3)
    land(changefeed)
    assert not changefeed.ledger.queues.lanes.own.any()
    assert sorted(consumed(store)) == ["1@1", "1@2", "2@1", "2@3"]


def test_who_comes_to_a_name_that_was_left_follows_only_older_changes(tmp_path: Path) -> None:
    store = MemoryStore()
    changefeed = opened(store, tmp_path)
    send(changefeed, 1, row(1, 50))
    land(changefeed)
    send(changefeed, 2, row(1, 60, V2, table_name="carts"), row(2, 10, V2))
    land(changefeed)
    assert sorted(consumed(store)) == ["1@50", "1@60", "2@10"]
    assert f"shop/orders/{V2}/2/" in " ".join(store.objects)
    die(changefeed)
    again = opened(store, tmp_path)
    send(again, 1, row(3, 20, V2 + 1))
    land(again)
    assert sorted(consumed(store)) == ["1@50", "1@60", "2@10", "3@20"], "also after a restart"


def test_a_table_that_is_renamed_away_and_back_stays_in_order_for_a_reader(tmp_path: Path) -> None:
    store = MemoryStore()
    changefeed = opened(store, tmp_path)
    send(changefeed, 1, row(1, 1), row(2, 2, V2))  # the second has a directory of its own
    land(changefeed)
    send(changefeed, 2, row(2, 3, V2 + 1, table_name="carts"))
    land(changefeed)
    send(changefeed, 3, row(2, 4, V2 + 2))  # it takes the plain path over, and must not go to the one of V2
    land(changefeed)
    assert folders(store) == ["v1", "v2/2", "v3", "v4"]
    assert of_table(consumed(store), 2) == ["2@2", "2@3", "2@4"]


@pytest.mark.parametrize("compacts", [False, True])
def test_a_table_whose_rows_only_waited_has_no_place_after_a_restart(tmp_path: Path, compacts: bool) -> None:
    store, clock = MemoryStore(), FakeClock()
    changefeed = opened(store, tmp_path, clock)
    send(changefeed, 1, row(1, 1, V2), resolved=1)
    land(changefeed)
    forget(changefeed)
    waiting = [row(2, 5, V1), row(3, 6, V1)]
    send(changefeed, 2, *waiting)
    if compacts:
        changefeed.scribe.compact()
    die(changefeed)
    again = opened(store, tmp_path, clock)
    send(again, 2, *waiting)
    land(again)
    assert sorted(consumed(store)) == ["1@1", "2@5", "3@6"]


# -- state that was given up -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("version", [V1, V2])
def test_after_the_first_id_was_forgotten_the_second_goes_on_behind_its_files(
    tmp_path: Path, version: int, restart: bool
) -> None:
    store, clock = MemoryStore(), FakeClock()
    changefeed = opened(store, tmp_path, clock)
    same: dict[str, Any] = {"table_name": "orders", "after": [b"1", b"same"], "commit_ts": START_TS + 1}
    send(changefeed, 1, change(1, START_TS + 1, 1, **same), resolved=1)
    land(changefeed)
    forget(changefeed)
    if restart:
        changefeed.scribe.compact()
        die(changefeed)
        changefeed = opened(store, tmp_path, clock)
    send(changefeed, 2, row(2, 2, version), resolved=2)
    land(changefeed)
    assert consumed(store) == ["same", "2@2"]
    send(changefeed, 3, row(1, 3), resolved=3)
    land(changefeed)
    assert sorted(consumed(store)) == ["1@3", "2@2", "same"], "and the first must not write where the second does"
    assert changefeed.ledger.idle


def test_ids_that_come_back_by_turns_after_all_were_forgotten_land_every_row(tmp_path: Path) -> None:
    store, clock = MemoryStore(), FakeClock()
    changefeed = opened(store, tmp_path, clock)
    turns = [(1, V1), (2, V2), (1, V1), (3, V1), (2, V2), (1, V1), (3, V1)]
    for batch, (table, version) in enumerate(turns, start=1):
        send(changefeed, batch, row(table, batch, version), resolved=batch)
        land(changefeed)
        forget(changefeed)
        rows = consumed(store)
        for each in (1, 2, 3):
            assert of_table(rows, each) == [f"{t}@{n}" for n, (t, _) in enumerate(turns[:batch], 1) if t == each]


def test_a_journal_of_the_release_before_says_of_no_name_who_was_there_so_all_look(tmp_path: Path) -> None:
    store, clock = MemoryStore(), FakeClock()
    changefeed = opened(store, tmp_path, clock)
    send(changefeed, 1, row(1, 1), resolved=1)
    land(changefeed)
    forget(changefeed)
    changefeed.scribe.compact()
    die(changefeed)
    as_format_2(store.objects)
    changefeed = opened(store, tmp_path, clock)
    send(changefeed, 2, change(2, START_TS + 2, 2, b"1", b"1@1", table_name="orders"), resolved=2)
    land(changefeed)
    assert consumed(store) == ["1@1", "1@1"]


def as_format_2(objects: Objects) -> None:
    """Take out of the journal what format 3 has brought."""
    for path in [path for path in objects if path.startswith(FOLDER)]:
        table = table_of(objects[path])
        body = json.loads(table.schema.metadata[b"tidegate"]) | {"format": 2}
        for name in [name for name in ("own_directory", "layout") if name in table.column_names]:
            table = table.drop_columns([name])
        body.pop("left", None)
        objects[path] = object_bytes(table, body)


def test_shards_that_a_release_before_mixed_on_one_path_are_told_apart_from_now_on(tmp_path: Path) -> None:
    store, clock = MemoryStore(), FakeClock()
    changefeed = opened(store, tmp_path, clock)
    send(changefeed, 1, row(1, 1), row(2, 2), resolved=2)
    land(changefeed)
    changefeed.scribe.compact()
    die(changefeed)
    as_format_2(store.objects)
    for path in [path for path in store.objects if "/2/" in path]:
        del store.objects[path]  # the older release took the first file for this one
    changefeed = opened(store, tmp_path, clock)
    send(changefeed, 3, row(1, 3), row(2, 4), resolved=4)
    land(changefeed)
    assert sorted(consumed(store)) == ["1@1", "1@3", "2@4"]
    assert changefeed.ledger.idle


# -- crashes -----------------------------------------------------------------------------------------------------------


def shards_live(objects: Objects, place: Path, script: list[str], after: str, versions: tuple[int, int]) -> int:
    """Three batches of two shards, each landed; ended by the first fault. Returns the writes it asked for."""
    store = MemoryStore(script, after, objects)
    with suppress(StoreUnavailable):
        changefeed = opened(store, place)
        try:
            position = changefeed.ledger.progress.position
            for batch in range(1 if position is None else int(position.removeprefix("end-")) + 1, 4):
                ids = (1, 2) if batch > 1 else (1,)
                send(changefeed, batch, *(row(t, batch, versions[t - 1]) for t in ids), resolved=batch)
                land(changefeed, 6)
                changefeed.scribe.write_progress()
        finally:
            die(changefeed)
    return store.writes


WRITES = 23


def test_the_crash_points_below_are_all_there_are(tmp_path: Path) -> None:
    assert max(shards_live({}, tmp_path, [], "ok", versions) for versions in ((V1, V1), (V1, V2))) == WRITES


@pytest.mark.parametrize("versions", [(V1, V1), (V1, V2)])
@pytest.mark.parametrize("word", ["unavailable", "lost"])
@pytest.mark.parametrize("step", range(WRITES))
def test_after_a_kill_at_any_step_both_shards_land_every_row_once(
    tmp_path: Path, step: int, word: str, versions: tuple[int, int]
) -> None:
    objects: Objects = {}
    shards_live(objects, tmp_path, ["ok"] * step + [word], "unavailable", versions)
    shards_live(objects, tmp_path, [], "ok", versions)
    rows = consumed(MemoryStore(objects=objects))
    assert [of_table(rows, table) for table in (1, 2)] == [["1@1", "1@2", "1@3"], ["2@2", "2@3"]]


# -- refusals ----------------------------------------------------------------------------------------------------------

OTHER = Layout((*SHAPE.columns, Column("more", "int")))


@pytest.mark.parametrize("when", ["one batch", "later", "after a restart"])
def test_other_columns_under_one_version_are_refused_by_both_ids(tmp_path: Path, when: str) -> None:
    store = MemoryStore()
    changefeed = opened(store, tmp_path)
    other = row(2, 2, layout=OTHER.fingerprint, after=[b"2", b"x", b"3"])
    rows = [layout_row(OTHER), row(1, 1)]
    if when != "one batch":
        send(changefeed, 1, *rows)
        land(changefeed)
        rows = [layout_row(OTHER)]
    if when == "after a restart":
        die(changefeed)
        changefeed = opened(store, tmp_path)
    with pytest.raises(
        BadEvents, match=rf"tables 1 and 2 both land under shop.orders with version {V1}, but have diff"
    ):
        send(changefeed, 2, *rows, other)


@pytest.mark.parametrize("restart", [False, True])
def test_columns_are_compared_also_with_a_layout_that_only_the_journal_has(tmp_path: Path, restart: bool) -> None:
    store, clock = MemoryStore(), FakeClock()
    changefeed = opened(store, tmp_path, clock)
    send(changefeed, 1, row(1, 1))  # nothing is resolved, so the table itself is not given up
    land(changefeed)
    changefeed.scribe.write_progress()
    clock.advance(3 * TTL_S)
    changefeed.scribe.write_progress()
    if restart:
        die(changefeed)
        changefeed = opened(store, tmp_path, clock)
    assert len(changefeed.book.layouts) == 0
    other = row(2, 2, layout=OTHER.fingerprint, after=[b"2", b"x", b"3"])
    with pytest.raises(BadEvents, match=rf"tables 1 and 2 both land under shop.orders with version {V1}, but have"):
        feed(changefeed, 2, [layout_row(OTHER), other], "end-2")


def test_columns_are_compared_with_the_holder_that_a_landing_made_between_learning_and_accepting(
    tmp_path: Path,
) -> None:
    """Table 2 takes the name over while a batch of table 3 is encoded; its layout is only in the journal by then."""
    store, clock = MemoryStore(), FakeClock()
    changefeed = opened(store, tmp_path, clock)
    unused = [Layout((Column(f"c{n}", "int"),)) for n in range(4)]  # so that a file of layouts is not worth keeping
    send(changefeed, 1, *map(layout_row, unused), row(1, 1))
    land(changefeed)
    send(changefeed, 2, row(2, 2, V2))  # it waits, and has no place yet
    changefeed.scribe.write_progress()
    another = Layout((*SHAPE.columns, Column("third", "int")))
    given = row(3, 3, V2, layout=another.fingerprint, after=[b"3", b"x", b"4"])
    intake, events = changefeed.intake, events_batch([layout_row(another), given])

    def ingested() -> pa.Table:
        return pa.Table.from_batches(ingest([events], intake.ingest_job(1, 1 << 30), "3-0-0"), ITEMS)

    items = intake.ingest(3, ingested)
    land(changefeed)
    changefeed.book.layouts.ttl_s = 0.0
    clock.advance(TTL_S)
    changefeed.book.layouts.expire(clock.steady(), lambda: np.array([another.fingerprint]))
    assert changefeed.book.layouts.missing(np.array([SHAPE.fingerprint])).tolist() == [SHAPE.fingerprint]
    with pytest.raises(BadEvents, match=rf"tables 2 and 3 both land under shop.orders with version {V2}, but have"):
        intake.accept(3, items, "end-3")


def test_the_same_columns_with_other_keys_are_the_same_columns(tmp_path: Path) -> None:
    store = MemoryStore()
    changefeed = opened(store, tmp_path)
    keyed = Layout(SHAPE.columns, unique_keys=(("v",),))
    send(changefeed, 1, layout_row(keyed), row(1, 1), row(2, 2, layout=keyed.fingerprint), resolved=2)
    land(changefeed)
    assert consumed(store) == ["1@1", "2@2"]


def test_other_columns_than_a_forgotten_table_had_in_this_version_wait_with_a_sentence(tmp_path: Path) -> None:
    store = MemoryStore()
    changefeed = opened(store, tmp_path)
    send(changefeed, 1, row(1, 1), resolved=1)
    land(changefeed)
    forget(changefeed)
    send(changefeed, 2, layout_row(OTHER), row(2, 2, layout=OTHER.fingerprint, after=[b"2", b"x", b"3"]))
    land(changefeed)
    assert f"table 2 lands under shop.orders with version {V1}, but another table" in str(changefeed.status().retrying)
    assert consumed(store) == ["1@1"]


def test_without_directories_for_partitions_a_second_table_is_refused_by_both_ids(tmp_path: Path) -> None:
    store = MemoryStore()
    changefeed = opened(store, tmp_path, partition_separator=False)
    send(changefeed, 1, row(1, 1), row(2, 1), resolved=1)
    with pytest.raises(BadEvents, match=r"tables 1 and 2 both land under shop.orders, and with enable-partition-sep"):
        land(changefeed)


def test_without_directories_for_partitions_tables_may_follow_each_other(tmp_path: Path) -> None:
    store, paths = MemoryStore(), PathOptions(partition_separator=False)
    for batch, (logical, version) in enumerate([(50, V1), (50, V1), (60, V2), (60, V2)], start=1):
        changefeed = opened(store, tmp_path, partition_separator=False)
        parts = [row(logical + n, 10 * batch + n, version, logical_table_id=logical) for n in (1, 2)]
        send(changefeed, batch, *parts, resolved=10 * batch + 2)
        land(changefeed)
        changefeed.scribe.write_progress()
        die(changefeed)
    assert len(consumed(store, paths)) == 8


def test_without_directories_a_name_has_a_holder_as_long_as_one_partition_is_known(tmp_path: Path) -> None:
    store, clock, paths = MemoryStore(), FakeClock(), PathOptions(partition_separator=False)
    changefeed = opened(store, tmp_path, clock, partition_separator=False)
    send(changefeed, 1, *(row(50 + n, n, logical_table_id=50) for n in (1, 2)), resolved=2)
    land(changefeed)
    for batch in (2, 3, 4):  # partition 51, which came first, is idle
        changefeed.scribe.write_progress()
        clock.advance(TTL_S)
        send(changefeed, batch, row(52, 10 * batch, logical_table_id=50), resolved=10 * batch)
        land(changefeed)
    queues = changefeed.ledger.queues
    assert [queues.key(number)[0] for number in queues.known() if queues.names.tables[number]] == [52]
    send(changefeed, 5, row(60, 50), resolved=50)
    with pytest.raises(BadEvents, match=r"tables 52 and 60 both land under shop.orders, and with enable-partition-sep"):
        land(changefeed)
    assert len(consumed(store, paths)) == 5


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("version", [V1, V2])
def test_without_directories_the_next_table_goes_on_behind_the_files_of_a_forgotten_one(
    tmp_path: Path, version: int, restart: bool
) -> None:
    store, clock, paths = MemoryStore(), FakeClock(), PathOptions(partition_separator=False)
    changefeed = opened(store, tmp_path, clock, partition_separator=False)
    send(changefeed, 1, *(row(50 + n, n, logical_table_id=50) for n in (1, 2)), resolved=2)
    land(changefeed)
    forget(changefeed)
    if restart:
        changefeed.scribe.compact()
        die(changefeed)
        changefeed = opened(store, tmp_path, clock, partition_separator=False)
    send(changefeed, 2, row(60, 3, version), resolved=3)
    land(changefeed)
    assert consumed(store, paths) == ["51@1", "52@2", "60@3"]
    assert changefeed.ledger.idle


@pytest.mark.parametrize("restart", [False, True])
def test_without_directories_an_older_table_than_a_forgotten_one_is_refused(tmp_path: Path, restart: bool) -> None:
    """A reader that begins anew reads by version: it would drop the rows of the newer table as too old."""
    store, clock, paths = MemoryStore(), FakeClock(), PathOptions(partition_separator=False)
    changefeed = opened(store, tmp_path, clock, partition_separator=False)
    send(changefeed, 1, row(50, 1, V2), resolved=1)
    land(changefeed)
    forget(changefeed)
    if restart:
        changefeed.scribe.compact()
        die(changefeed)
        changefeed = opened(store, tmp_path, clock, partition_separator=False)
    send(changefeed, 2, row(60, 2, V1), resolved=2)
    with pytest.raises(BadEvents, match=f"table 60 lands under shop.orders with version {V1}, but another table has"):
        land(changefeed)
    assert consumed(store, paths) == ["50@1"]
