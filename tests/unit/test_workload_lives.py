"""A workload with truncates and drops: whoever applies its changes updates and deletes only rows that are there."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.sources import Source, open_source
from tidegate.sources.workload.lives import FIRST_LIFE, Lives
from tidegate.sources.workload.sysbench import DELETED, INSERTED, UPDATED, History

DDL = "ddl=every:2s,kinds=truncate|drop-create|rename|truncate|add-column"
BASE = "workload://sysbench?tables=3&rows=37&txn-rows=3&batch=4KiB&events=4000"
WITHOUT_DDL = {  # digests of all rows
    "": "e030f9861e1ebc93",
    "&mix=20:70:10": "47d101d69a00a02c",
    "&mix=1:0:2&prepare=false": "0fa65d040715e8dc",
}


def events(source: Source, limit_bytes: int = 1 << 30) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    start = source.initial()
    while (end := source.latest(start, limit_bytes, frozenset())) != start:
        for split in source.splits(start, end, 2):
            for batch in source.read(split):
                rows += batch.to_pylist()
        start = end
    return rows


def apply(rows: list[dict[str, Any]], firsts: range, prepared: bool) -> int:
    """Apply all changes to tables by id; returns how many changes were made to tables that began empty.

    A table that `prepare=false` says to be full has every row that somebody asks for.
    """
    tables: dict[int, dict[bytes, list[bytes]]] = {}
    later = 0
    for row in rows:
        if row["kind"] not in ("insert", "update", "delete"):
            continue
        first = row["table_id"] in firsts
        table = tables.setdefault(row["table_id"], {})
        before, after = row["before"], row["after"]
        key, place = (after or before)[0], f"{row['kind']} of {row['table_id']} at seq {row['seq']}"
        if row["kind"] == "insert":
            assert key not in table, place
        elif not (first and not prepared and key not in table):
            assert key in table, place
            assert table[key][:4] == before[:4], place  # an added column has no value that was there before
        if row["kind"] == "delete":
            table.pop(key, None)
        else:
            table[key] = after
        later += not first
    return later


@pytest.mark.parametrize("prepare", ["true", "false"])
@pytest.mark.parametrize("mix", ["0:100:0", "20:70:10", "1:1:1", "5:0:3", "100:0:0", "3:10:2", "7:1:7"])
def test_only_rows_that_are_there_are_updated_and_deleted(mix: str, prepare: str) -> None:
    source = open_source(f"{BASE}&mix={mix}&prepare={prepare}&{DDL}")
    rows = events(source)
    assert len(rows) > 4000
    assert apply(rows, range(101, 104), prepare == "true") > 1000


@pytest.mark.parametrize("limit_bytes", [1 << 12, 1 << 15])
def test_cuts_into_micro_batches_change_nothing(limit_bytes: int) -> None:
    source = open_source(f"{BASE}&mix=20:70:10&{DDL}")
    kinds = ("insert", "update", "delete")
    one, other = (
        sorted((row["table_id"], row["seq"], row["kind"], str(row["after"]), str(row["before"])) for row in found)
        for found in (
            [row for row in events(source, limit) if row["kind"] in kinds] for limit in (1 << 30, limit_bytes)
        )
    )
    assert one == other


@pytest.mark.parametrize("more", WITHOUT_DDL)
def test_a_workload_without_ddl_is_what_it_was(more: str) -> None:
    digest = hashlib.blake2b(digest_size=8)
    for row in events(open_source(BASE + more)):
        digest.update(repr(sorted(row.items())).encode())
    assert digest.hexdigest() == WITHOUT_DDL[more]


def test_a_workload_whose_ddls_empty_no_table_keeps_its_changes() -> None:
    plain, renamed = (
        [
            (row["seq"], row["kind"], row["after"], row["before"])
            for row in events(open_source(BASE + more))
            if row["kind"] in ("insert", "update", "delete")
        ]
        for more in ("&mix=20:70:10", "&mix=20:70:10&ddl=every:2s,kinds=rename|add-index")
    )
    assert sorted(map(str, plain)) == sorted(map(str, renamed))


MIXES = st.tuples(*[st.integers(0, 6)] * 3).filter(any)


@given(MIXES, st.integers(1, 12), st.booleans(), st.lists(st.integers(1, 60), max_size=4))
def test_every_life_of_every_mix_is_one_that_a_table_can_have(
    mix: tuple[int, int, int], rows: int, prepare: bool, lengths: list[int]
) -> None:
    if mix[DELETED] and rows == 1 and mix[UPDATED]:
        rows = 2  # a row to update and one to delete
    history = History(rows, rows if prepare else 0, mix)
    starts = np.cumsum([0, *lengths])
    position = np.arange(int(starts[-1]) + 60)
    life = np.searchsorted(starts, position, side="right") - 1
    base = np.where(life > 0, starts[life], FIRST_LIFE)
    changes, plain = Lives(history).changes(position, base), history.changes(position)
    assert (changes.id == plain.id).all()
    for at in range(1, len(starts)):
        table: dict[int, int] = {}
        for i in np.flatnonzero(life == at).tolist():
            kind, row, version = int(changes.kind[i]), int(changes.id[i]), int(changes.version[i])
            if kind == INSERTED:
                assert row not in table
                table[row] = version
            elif kind == UPDATED:
                assert table[row] == version - 1
                table[row] = version
            else:
                assert table.pop(row) == version
    first = life == 0
    assert (changes.kind[first] == plain.kind[first]).all()
    assert (changes.version[first] == plain.version[first]).all()
