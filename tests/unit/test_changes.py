"""Rows before they are encoded: filters, routes and selections by name, and the split of key-changing updates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import BadEvents
from tidegate.format.layout_columns import RowLayouts, alike
from tidegate.format.rules.changes import Rows, Splitter, TableRules, key_changes, latest_of, split_updates
from tidegate.format.rules.rules import (
    ColumnSelector,
    ColumnSelectors,
    EventFilter,
    EventFilters,
    Route,
    Routes,
    Rules,
    TableFilter,
)
from tidegate.format.tables import Column, Layout
from tidegate.testing import START_TS, change, events_batch

KEYED = Layout(
    (Column("id", "int", pk=True, nullable=False), Column("uk", "int"), Column("v", "varchar")), unique_keys=(("uk",),)
)
Row = dict[str, Any]


def update(table_id: int, ts: int, seq: int, before: list[bytes | None], after: list[bytes | None]) -> Row:
    return change(table_id, ts, seq, kind="update", before=before, after=after, layout=KEYED.fingerprint)


def shown(rows: Rows) -> list[tuple[int, int, str, bytes]]:
    """(table, ts, op, id) of the rows in the order in which they are encoded."""
    events = rows.events.to_pylist()
    return [
        (row["table_id"], row["commit_ts"], row["kind"][0], (row["before" if row["kind"] == "delete" else "after"])[0])
        for row in (events[i] for i in rows.order().tolist())
    ]


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        ([b"1", b"1", b"x"], [b"2", b"1", b"x"], True),
        ([b"1", b"1", b"x"], [b"1", b"2", b"x"], True),
        ([b"1", None, b"x"], [b"1", b"2", b"x"], True),
        ([b"1", b"2", b"x"], [b"1", None, b"x"], True),
        ([b"1", None, b"x"], [b"1", None, None], False),
        ([b"1", b"1", b"x"], [b"1", b"1", b"y"], False),
    ],
)
def test_an_update_changes_a_key_when_a_value_of_the_primary_or_a_unique_key_differs(
    before: list[bytes | None], after: list[bytes | None], changes: bool
) -> None:
    batch = events_batch([change(7, START_TS, 1, b"5", b"5", b"z"), update(7, START_TS, 2, before, after)])
    found = key_changes(batch, alike(KEYED, batch))
    assert (found is not None) == changes
    if found is not None:
        assert found.tolist() == [False, True]


def test_an_update_without_its_old_row_is_left_for_the_encoder_to_judge() -> None:
    broken = update(7, START_TS, 1, [b"1", b"1", b"x"], [b"2", b"1", b"x"])
    for rows in ([broken | {"before": None}], [broken | {"before": [b"1"]}], []):
        batch = events_batch(rows)
        assert key_changes(batch, alike(KEYED, batch)) is None


def test_a_table_without_keys_has_no_updates_to_split() -> None:
    free = Layout((Column("a", "int"), Column("b", "int"), Column("v", "varchar")))
    batch = events_batch([update(7, START_TS, 1, [b"1", b"1", b"x"], [b"2", b"2", b"y"])])
    assert key_changes(batch, alike(free, batch)) is None


def test_deletes_keep_their_place_and_inserts_go_to_the_end_of_their_transaction() -> None:
    batch = events_batch(
        [
            update(7, START_TS, 1, [b"1", b"1", b"a"], [b"2", b"1", b"a"]),
            update(7, START_TS, 2, [b"5", b"5", b"a"], [b"5", b"5", b"b"]),
            update(7, START_TS, 3, [b"2", b"2", b"a"], [b"1", b"2", b"a"]),
            change(7, START_TS + 1, 4, b"9", b"9", b"z"),
        ]
    )
    changed = key_changes(batch, alike(KEYED, batch))
    assert changed is not None
    rows = Rows(*split_updates(batch, changed))
    ids = [(kind, value) for _, _, kind, value in shown(rows)]
    assert ids == [("d", b"1"), ("u", b"5"), ("d", b"2"), ("i", b"2"), ("i", b"1"), ("i", b"9")]
    _, _, seq = rows.place()
    assert seq[rows.order()].tolist() == [1, 2, 3, 3, 3, 4]


def naive(rows: list[Row]) -> list[tuple[int, int, str, bytes]]:
    """What must come out, the slow way: transaction by transaction."""
    out = []
    for key in sorted({(row["table_id"], row["commit_ts"]) for row in rows}):
        late = []
        mine = [row for row in rows if (row["table_id"], row["commit_ts"]) == key]
        for row in sorted(mine, key=lambda r: r["seq"]):
            if row["kind"] == "update" and row["before"][:2] != row["after"][:2]:
                out.append((*key, "d", row["before"][0]))
                late.append((*key, "i", row["after"][0]))
            else:
                out.append((*key, row["kind"][0], row["after"][0]))
        out += late
    return out


@st.composite
def streams(draw: st.DrawFn) -> list[list[Row]]:
    """Batches of updates over two tables, cut anywhere; within a table in order."""
    seq, ts, rows = 0, START_TS, []
    value: st.SearchStrategy[bytes | None] = st.sampled_from([b"1", b"2", b"3"])
    for _ in range(draw(st.integers(1, 5))):
        ts += 1
        for table in draw(st.sampled_from([[1], [2], [1, 2]])):
            for _ in range(draw(st.integers(1, 4))):
                seq += 1
                before, after = ([draw(value), draw(value), b"x"] for _ in range(2))
                rows.append(update(table, ts, seq, before, after))
    cuts = sorted(draw(st.sets(st.integers(1, len(rows)), max_size=4)))
    return [rows[a:b] for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]


def taken(splitter: Splitter, batches: list[list[Row]]) -> list[Rows]:
    parts = [splitter.take(events, alike(KEYED, events)) for events in map(events_batch, batches)]
    rest = splitter.rest()
    return [*parts, rest] if rest is not None else parts


@given(streams())
def test_wherever_batches_are_cut_the_rows_come_out_as_if_they_were_not(batches: list[list[Row]]) -> None:
    splitter, found, places = Splitter(), [], []
    parts = taken(splitter, batches)
    for part in parts:
        order = part.order()
        table_id, ts, seq = (each[order].tolist() for each in part.place())
        places += list(zip(table_id, ts, seq, strict=True))
        found += shown(part)
    for table in (1, 2):
        assert [row for row in found if row[0] == table] == [
            row for row in naive([row for batch in batches for row in batch]) if row[0] == table
        ]
        mine = [place for place in places if place[0] == table]
        assert mine == sorted(mine)  # so chunks never overlap
    assert splitter.held is None


@given(streams())
def test_rows_of_one_place_are_never_handed_out_in_two_parts(batches: list[list[Row]]) -> None:
    splitter = Splitter()
    parts = taken(splitter, batches)
    seen: set[tuple[int, int, int]] = set()
    for part in parts:
        places = set(zip(*(each.tolist() for each in part.place()), strict=True))
        assert not seen & places
        seen |= places


def test_what_waits_comes_out_once_its_table_goes_on() -> None:
    splitter = Splitter()
    taken_now = splitter.take(*keyed([update(7, START_TS, 1, [b"1", b"1", b"x"], [b"2", b"1", b"x"])]))
    assert not taken_now.events.num_rows
    assert splitter.held is not None
    later = latest_of(np.array([7]), np.array([START_TS + 1]))
    rows = splitter.take(*keyed([]), later)
    assert [kind for _, _, kind, _ in shown(rows)] == ["d", "i"]
    assert splitter.held is None


def keyed(rows: list[Row]) -> tuple[pa.RecordBatch, RowLayouts]:
    batch = events_batch(rows)
    return batch, alike(KEYED, batch)


def test_a_splitter_that_is_off_passes_everything_on() -> None:
    batch = events_batch([update(7, START_TS, 1, [b"1", b"1", b"x"], [b"2", b"1", b"x"])])
    assert Splitter(enabled=False).take(batch, alike(KEYED, batch)).events.equals(batch)


def test_the_filter_drops_tables_kinds_and_transactions() -> None:
    rules = TableRules(
        Rules(
            filter=TableFilter(("shop.*", "!shop.t8")),
            event_filters=EventFilters((EventFilter(("shop.t7",), ("delete",)),)),
            ignored_start_ts=frozenset({START_TS + 4}),
        )
    )
    rows = [
        change(7, START_TS, 1),
        change(7, START_TS + 1, 2, kind="delete"),
        change(8, START_TS + 2, 3),
        change(9, START_TS + 3, 4, kind="delete"),
        change(9, START_TS + 5, 5),
        change(9, START_TS + 6, 6, schema_name="mysql"),
    ]
    assert rules.kept(events_batch(rows)).column("seq").to_pylist() == [1, 4]


def test_rows_are_grouped_by_the_columns_that_are_written_of_them() -> None:
    selectors = ColumnSelectors((ColumnSelector(("shop.t7",), ("id", "v")), ColumnSelector(("shop.t8",), ("*", "!v"))))
    rules = TableRules(Rules(selectors=selectors))
    rows = events_batch([change(t, START_TS, seq, b"1", b"2", b"x") for seq, t in enumerate((7, 8, 9, 7))])
    chosen = rules.selections(rows, alike(KEYED, rows), lambda _: KEYED)
    assert [chosen.layouts.positions(entry) for entry in chosen.entry.tolist()] == [(0, 2), (0, 1), None, (0, 2)]


def test_routes_rename_rows_and_leave_the_rest_of_them_alone() -> None:
    rules = TableRules(Rules(routes=Routes((Route(("shop.t7",), "archive", "{schema}_{table}"),))))
    rows = rules.routed(events_batch([change(7, START_TS, 1), change(8, START_TS, 2)]))
    assert rows.column("schema_name").to_pylist() == ["archive", "shop"]
    assert rows.column("table_name").to_pylist() == ["shop_t7", "t8"]
    assert rows.column("seq").to_pylist() == [1, 2]


def test_a_route_to_a_name_that_cannot_be_a_path_is_refused() -> None:
    rules = TableRules(Rules(routes=Routes((Route(("shop.*",), "a" * 800),))))
    with pytest.raises(BadEvents, match="route it to another name"):
        rules.routed(events_batch([change(7, START_TS, 1)]))
