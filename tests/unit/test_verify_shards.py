"""`verify` follows table ids that share a name, on the plain path and in directories of their own."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tidegate.driver.changefeed import Changefeed
from tidegate.errors import BadSetting, VerifyError
from tidegate.format.layout import PathOptions, parse_data_path
from tidegate.sources import open_source
from tidegate.sources.parquet import write_events
from tidegate.testing import (
    START_TS,
    FakeClock,
    MemoryStore,
    change,
    events_batch,
    feed,
    layout_row,
    open_changefeed,
    resolved_row,
    tiny_settings,
)
from tidegate.tools.verify import verify

SHARDS = "workload://sysbench?tables=4&shards=2&rows=40&events=240&txn-rows=4&batch=4500"


def events(uri: str) -> list[pa.RecordBatch]:
    source = open_source(uri)
    start = source.initial()
    end = source.latest(start, 1 << 40, frozenset())
    return [batch for split in source.splits(start, end, 1) for batch in source.read(split)]


def land(changefeed: Changefeed) -> None:
    assert isinstance(changefeed.clock, FakeClock)
    changefeed.clock.advance(6.0)
    while changefeed.landing.land_next():
        pass
    changefeed.scribe.write_progress()


def own_directories(store: MemoryStore) -> set[int]:
    found = (parse_data_path(path, PathOptions()) for path in store.objects)
    return {one[0].table_id for one in found if one is not None and one[0].is_partition}


@pytest.fixture
def shards(tmp_path: Path) -> MemoryStore:
    """The workload's shards, as a changefeed lands them."""
    store = MemoryStore()
    changefeed = open_changefeed(store, tmp_path)
    for number, batch in enumerate(events(SHARDS), start=1):
        feed(changefeed, number, batch.to_pylist(), str(number))
        land(changefeed)
    assert changefeed.ledger.idle
    changefeed.close()
    return store


def test_a_sink_of_shards_passes_and_one_that_misses_a_row_does_not(shards: MemoryStore, tmp_path: Path) -> None:
    assert len(own_directories(shards)) == 2
    assert verify(SHARDS, tiny_settings(tmp_path), shards).rows == 240
    path = next(
        path for path in shards.objects if (key := parse_data_path(path, PathOptions())) and key[0].is_partition
    )
    shards.objects[path] = shards.objects[path].partition(b"\r\n")[2]
    with pytest.raises(VerifyError, match=r"sbtest1 partition 102: 1 row is dropped from row 1 on"):
        verify(SHARDS, tiny_settings(tmp_path), shards)


def test_shards_of_the_workload_have_one_name_and_ids_of_their_own() -> None:
    rows = pa.Table.from_batches(events(SHARDS))
    rows = rows.filter(pc.is_in(rows["kind"], pa.array(["insert", "update", "delete"])))
    ids: dict[str, dict[int, set[bytes]]] = {}
    for row in rows.select(["table_name", "table_id", "after"]).to_pylist():
        ids.setdefault(row["table_name"], {}).setdefault(row["table_id"], set()).add(row["after"][0])
    assert {name: sorted(tables) for name, tables in ids.items()} == {"sbtest1": [101, 102], "sbtest2": [103, 104]}
    for one, two in (tuple(tables.values()) for tables in ids.values()):
        assert not one & two
    with pytest.raises(BadSetting, match="shards goes neither with ddl nor with neighbour"):
        open_source(f"{SHARDS}&ddl=every:1s,kinds=truncate")


def test_a_table_that_lost_the_plain_path_is_followed_into_its_own_directory(tmp_path: Path) -> None:
    turns = [(1, 0), (2, 1), (1, 0), (2, 1), (1, 0), (3, 1)]
    rows = [
        change(table, START_TS + ts, ts, table_name="orders", table_version=START_TS + version)
        for ts, (table, version) in enumerate(turns, start=1)
    ]
    batches = [[layout_row(), row, resolved_row(row["commit_ts"])] for row in rows]
    write_events(tmp_path / "events", [events_batch(batch) for batch in batches], 10**6)
    store = MemoryStore()
    changefeed = open_changefeed(store, tmp_path)
    for number, batch in enumerate(batches, start=1):
        feed(changefeed, number, batch, str(number))
        land(changefeed)
    changefeed.close()
    assert own_directories(store) == {1, 3}
    assert verify(f"parquet:{tmp_path}/events", tiny_settings(tmp_path), store).rows == len(rows)
