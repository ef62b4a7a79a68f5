"""Split tables: spans by key, files of their own for each, the same after a restart, DDL through the barrier."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.driver.changefeed import Changefeed
from tidegate.errors import BadEvents
from tidegate.events import DDL
from tidegate.format.ddl.events import ALTERS
from tidegate.format.ddl.scope import Table, alter_table
from tidegate.format.encode import spans
from tidegate.format.encode.csv import CsvOptions
from tidegate.format.encode.spans import dispatcher_id
from tidegate.format.layout import PathOptions, data_path, parse_index_path, parse_index_text
from tidegate.format.layout_columns import alike
from tidegate.format.pieces import Numbers
from tidegate.format.tables import Column, Layout
from tidegate.testing import (
    SHAPE,
    START_TS,
    FakeClock,
    MemoryStore,
    change,
    events_batch,
    feed,
    layout_row,
    resolved_row,
)

Open = Callable[..., Changefeed]
PATHS = PathOptions(across_nodes=True)
UNIQUE = Layout(SHAPE.columns, unique_keys=(("v",),))


@pytest.fixture
def opened(opened: Open) -> Open:
    """Opens changefeeds whose tables are split."""
    split = {"across_nodes": True, "split_spans": 4, "csv": CsvOptions(include_commit_ts=True)}
    return lambda **settings: opened(**(split | settings))


def land(changefeed: Changefeed, seconds: float = 5.0) -> None:
    assert isinstance(changefeed.clock, FakeClock)
    changefeed.clock.advance(seconds)
    while changefeed.landing.land_next():
        pass


def rows(first: int, last: int, **columns: Any) -> list[dict[str, Any]]:
    return [change(1, START_TS + n, n, b"%d" % n, b"x", **columns) for n in range(first, last)]


def lines(store: MemoryStore, paths: PathOptions = PATHS) -> dict[str, list[bytes]]:
    """By dispatcher, the ids of the rows that a reader who follows its index sees."""
    found: dict[str, list[bytes]] = {}
    for path in sorted(store.objects):
        key = parse_index_path(path, paths)
        if key is None or bool(key.dispatcher) != paths.across_nodes:
            continue
        _, last = parse_index_text(store.objects[path].decode(), ".csv")
        for number in range(1, last + 1):
            data = store.objects[data_path(key, number, paths)]
            found.setdefault(key.dispatcher, []).extend(line.split(b",")[4] for line in data.splitlines())
    return found


def spans_of(rows: pa.RecordBatch, layout: Layout, count: int) -> Numbers:
    return spans.spans_of(rows, alike(layout, rows), count)


@given(st.lists(st.binary(max_size=12), min_size=1, max_size=50), st.integers(2, 9))
def test_a_span_depends_on_the_key_alone(keys: list[bytes], count: int) -> None:
    after = [change(1, START_TS, n, key, b"x") for n, key in enumerate(keys)]
    before = [change(1, START_TS, n, key, b"other", kind="delete") for n, key in enumerate(keys)]
    one = spans_of(events_batch(after), SHAPE, count)
    assert (one == spans_of(events_batch(before), SHAPE, count)).all()
    assert (one == spans_of(events_batch([*after, *after]).slice(len(keys)), SHAPE, count)).all()
    assert ((one >= 0) & (one < count)).all()


def test_spans_are_about_equal() -> None:
    batch = events_batch(rows(0, 8_000))
    counts = np.bincount(spans_of(batch, SHAPE, 4), minlength=4)
    assert counts.min() > 1_800


def test_a_table_that_cannot_be_split_is_one_span() -> None:
    assert not spans_of(events_batch(rows(0, 20)), UNIQUE, 4).any()
    assert not spans_of(events_batch(rows(0, 20)), Layout((Column("id", "int"), Column("v", "varchar"))), 4).any()


def test_ids_derive_from_changefeed_table_and_span() -> None:
    ids = {dispatcher_id(feed, table, span) for feed in ("a", "b") for table in (1, 2) for span in (0, 1)}
    assert len(ids) == 8
    assert dispatcher_id("a", 1, 0) == dispatcher_id("a", 1, 0)
    assert all(text.isdecimal() for text in ids)


def test_every_span_has_files_of_its_own_and_together_they_have_every_row_once(
    opened: Open, store: MemoryStore
) -> None:
    changefeed = opened()
    feed(changefeed, 0, [layout_row(), *rows(1, 41), resolved_row(START_TS + 40)], "0")
    land(changefeed)
    found = lines(store)
    assert set(found) == {dispatcher_id("tiny", 1, span) for span in range(4)}
    assert sorted(int(row) for span in found.values() for row in span) == list(range(1, 41))
    assert all(list(map(int, span)) == sorted(map(int, span)) for span in found.values())


def test_a_restart_goes_on_in_the_same_index_files(opened: Open, store: MemoryStore) -> None:
    first = opened()
    feed(first, 0, [layout_row(), *rows(1, 21), resolved_row(START_TS + 20)], "0")
    land(first)
    second = opened()
    feed(second, 0, [layout_row(), *rows(1, 41), resolved_row(START_TS + 40)], "1")
    land(second)
    assert sorted(int(row) for span in lines(store).values() for row in span) == list(range(1, 41))
    assert len(lines(store)) == 4
    assert second.totals.duplicates == 20


def test_an_update_that_changes_the_key_is_a_delete_in_one_span_and_an_insert_in_the_other(
    opened: Open, store: MemoryStore
) -> None:
    changefeed = opened(output_raw_change_event=True)
    update = change(1, START_TS + 1, 1, kind="update", before=[b"1", b"x"], after=[b"2", b"x"])
    feed(changefeed, 0, [layout_row(), update, resolved_row(START_TS + 1)], "0")
    land(changefeed)
    spans = spans_of(events_batch(rows(1, 3)), SHAPE, 4)
    assert spans[0] != spans[1], "the test needs keys of two spans"
    assert lines(store) == {dispatcher_id("tiny", 1, int(spans[n])): [b"%d" % (n + 1)] for n in (0, 1)}


def add_column(ts: int, layout: Layout, query: str = "ALTER TABLE `t1`") -> dict[str, Any]:
    event = alter_table(ALTERS["add index"], Table(5, "shop", "t1", 1, layout), query)
    assert event is not None
    return {"kind": DDL, "commit_ts": START_TS + ts, "seq": 0, "table_id": 1, "ddl": event.to_json()}


def test_a_ddl_waits_until_all_spans_have_drained(opened: Open, store: MemoryStore) -> None:
    changefeed = opened()
    late = dispatcher_id("tiny", 1, 2)
    store.begin("unavailable", f"CDC_{late}_")
    after = rows(60, 80, table_version=START_TS + 50)
    ddl = add_column(50, SHAPE)
    feed(changefeed, 0, [layout_row(), *rows(1, 41), ddl, *after, resolved_row(START_TS + 90)], "0")
    land(changefeed)
    assert not [path for path in store.objects if f"schema_{START_TS + 50}_" in path]
    assert all(int(row) <= 40 for span in lines(store).values() for row in span)
    store.end("unavailable", f"CDC_{late}_")
    land(changefeed)
    land(changefeed)
    assert [path for path in store.objects if f"schema_{START_TS + 50}_" in path]
    assert sorted(int(row) for span in lines(store).values() for row in span) == [*range(1, 41), *range(60, 80)]
    assert changefeed.ledger.blocking.maintainer.finished == 1


def test_a_ddl_that_makes_a_split_table_unsplittable_is_an_error_if_that_is_checked(opened: Open) -> None:
    changefeed = opened(splittable_check=True)
    feed(changefeed, 0, [layout_row(), *rows(1, 21), resolved_row(START_TS + 20)], "0")
    with pytest.raises(BadEvents, match=r"`ADD UNIQUE` leaves shop.t1 without a primary key or with another"):
        feed(changefeed, 1, [layout_row(UNIQUE), add_column(50, UNIQUE, "ADD UNIQUE")], "1")


def test_unchecked_the_table_goes_on_as_one_behind_the_drain(opened: Open, store: MemoryStore) -> None:
    changefeed = opened()
    after = rows(60, 80, table_version=START_TS + 50, layout=UNIQUE.fingerprint)
    layouts = [layout_row(), layout_row(UNIQUE)]
    feed(changefeed, 0, [*layouts, *rows(1, 21), add_column(50, UNIQUE), *after, resolved_row(START_TS + 90)], "0")
    land(changefeed)
    land(changefeed)
    first = lines(store)[dispatcher_id("tiny", 1, 0)]
    assert [int(row) for row in first if int(row) >= 60] == list(range(60, 80))


@pytest.mark.parametrize("clean", [True, False])
def test_the_number_of_spans_changes_only_when_nothing_is_ahead_of_the_checkpoint(
    opened: Open, store: MemoryStore, clean: bool
) -> None:
    first = opened()
    feed(first, 0, [layout_row(), *rows(1, 21), resolved_row(START_TS + (20 if clean else 5))], "0")
    land(first)
    first.scribe.write_progress()
    second = opened(split_spans=7)
    assert second.ledger.spans == (7 if clean else 4)
    feed(second, 0, [layout_row(), *rows(1, 41), resolved_row(START_TS + 40)], "1")
    land(second)
    assert sorted(int(row) for span in lines(store).values() for row in span) == list(range(1, 41))


def test_a_table_that_was_whole_and_is_split_now_counts_its_new_files_from_one(
    opened: Open, store: MemoryStore
) -> None:
    whole = opened(across_nodes=False)
    feed(whole, 0, [layout_row(), *rows(1, 21), resolved_row(START_TS + 20)], "0")
    land(whole)
    whole.scribe.write_progress()
    split = opened()
    feed(split, 1, [layout_row(), *rows(21, 41), resolved_row(START_TS + 40)], "1")
    land(split)
    assert sorted(int(row) for span in lines(store).values() for row in span) == list(range(21, 41))
    assert [int(row) for row in lines(store, PathOptions())[""]] == list(range(1, 21))
