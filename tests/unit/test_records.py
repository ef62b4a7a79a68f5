"""What the journal stores of the ledger brings the ledger back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.control.ledger import Ledger
from tidegate.control.limits import Limits
from tidegate.control.records import TABLES, Saved
from tidegate.driver.entries import FILES

POSITIVE = st.integers(1, 1 << 40)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "table_id": st.integers(1, 1 << 40),
            "span": st.integers(0, 3),
            "logical_table_id": POSITIVE,
            "schema_name": st.sampled_from(["shop", "größe"]),
            "table_name": st.text(min_size=1, max_size=5),
            **dict.fromkeys(
                ("version", "directory", "date", "number", "schema_version", "last_ts", "last_seq", "layout"), POSITIVE
            ),
            "own_directory": st.booleans(),
        }
    ),
    max_size=8,
    unique_by=(lambda row: (row["table_id"], row["span"]), lambda row: row["table_name"]),
)
KEYS = st.lists(st.integers(1 << 60, 1 << 61), unique=True).map(sorted)


def saved(tables: list[pa.Table], **other: object) -> Saved:
    values = {
        "dropped": np.zeros(0, np.int64),
        "orphans": FILES.empty_table(),
        "checkpoint_ts": 0,
        "position": None,
        "next_plan": 0,
        "foreign": False,
        "surpassed": False,
    }
    return Saved(tables, **{**values, **other})


def restored(tables: list[pa.Table], **other: object) -> Ledger:
    ledger = Ledger(Limits())
    ledger.restore(saved(tables, **other), 0.0)
    return ledger


def table(rows: list[dict[str, object]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=TABLES)


def row(**values: object) -> dict[str, object]:
    first = {"table_id": 7, "span": 0, "logical_table_id": 7, "schema_name": "shop", "table_name": "orders"}
    lane = {"version": 3, "directory": 3, "date": 20260131, "number": 5, "schema_version": 3}
    return {**first, **lane, "last_ts": 40, "last_seq": 2, "own_directory": False, "layout": 9, **values}


@settings(deadline=None)
@given(ROWS, KEYS)
def test_what_is_restored_is_exported_again_as_it_was(rows: list[dict[str, object]], keys: list[int]) -> None:
    tables = table(rows)
    exported = restored([tables], dropped=np.array(keys, np.int64)).export()
    assert exported.tables.to_pylist() == rows
    assert exported.dropped["key"].to_pylist() == keys


def test_of_a_table_that_comes_several_times_the_last_row_counts() -> None:
    ledger = restored([table([row()]), table([row(number=6, last_ts=50, table_name="sales")])])
    (found,) = ledger.export().tables.to_pylist()
    assert (found["number"], found["last_ts"], found["table_name"]) == (6, 50, "sales")


@pytest.mark.parametrize(("last_ts", "schema_version", "durable"), [(50, 3, 50), (0, 0, 40)])
def test_a_file_says_what_a_snapshot_would_say_after_it(last_ts: int, schema_version: int, durable: int) -> None:
    """A row with commit-ts 0 stands for a number that is free again, of which nothing is durable."""
    file = {**row(number=6, last_ts=last_ts), "plan": 1, "bytes": 9, "dispatcher": ""}
    del file["schema_version"]
    files = pa.Table.from_pylist([file], schema=FILES)
    (found,) = restored([table([row()]), files]).export().tables.to_pylist()
    assert (found["number"], found["schema_version"], found["last_ts"]) == (6, schema_version, durable)


def test_where_another_writer_was_every_schema_file_is_checked_again() -> None:
    (found,) = restored([table([row()])], surpassed=True).export().tables.to_pylist()
    assert found["schema_version"] == 0


def test_plans_and_progress_go_on_where_they_were() -> None:
    ledger = restored([], checkpoint_ts=30, position="here", next_plan=12)
    assert (ledger.progress.checkpoint_ts, ledger.progress.resolved_ts, ledger.progress.position) == (30, 30, "here")
    assert ledger.planner.numbering.plans(2).tolist() == [12, 13]


def test_the_floor_names_the_tables_that_are_durable_past_the_checkpoint_in_order_of_their_owners() -> None:
    rows = [row(table_id=9, last_ts=41), row(table_id=8, last_ts=40), row(table_id=2, last_ts=99, last_seq=5)]
    found = restored([table(rows)], checkpoint_ts=40).floor()
    assert found is not None
    assert (found.owner.tolist(), found.ts.tolist(), found.seq.tolist()) == ([2, 9], [99, 41], [5, 2])
    assert found.checkpoint_ts == 40
    assert restored([]).floor() is None
