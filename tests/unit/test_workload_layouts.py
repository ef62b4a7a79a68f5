"""Tables with layouts of their own: different columns, values that fit them, and the same rows however they are cut."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidegate.clock import SystemClock
from tidegate.config.settings import load_settings
from tidegate.errors import BadSetting, VerifyError
from tidegate.events import DDL, LAYOUT, ROW_KINDS
from tidegate.format.ddl.events import DdlEvent
from tidegate.format.tables import TYPES, Layout
from tidegate.sources import open_source
from tidegate.sources.workload.ddl_play import ADDED_COLUMNS
from tidegate.sources.workload.kinds import KINDS
from tidegate.sources.workload.layouts import FEWEST, MOST, Layouts, fingerprint
from tidegate.sources.workload.shapes import shape_columns
from tidegate.storage.files import FileStore
from tidegate.testing import feed, open_changefeed
from tidegate.tools.verify import verify

NONE: frozenset[int] = frozenset()
WORKLOAD = "workload://sysbench?tables=20&rows=6&layouts=20&events=400&txn-rows=2&batch=500&mix=1:2:1"
WITH_DDL = f"{WORKLOAD}&ddl=every:300ms,kinds=add-column|modify-column|drop-create|truncate|create-view|add-index"


def batches(uri: str, limit_bytes: int = 20_000, parallelism: int = 1) -> Iterator[pa.RecordBatch]:
    source = open_source(uri)
    start = source.initial()
    while (end := source.latest(start, limit_bytes, NONE)) != start:
        for split in json.loads(json.dumps(source.splits(start, end, parallelism))):
            yield from source.read(split)
        start = end


def rows_of(uri: str, limit_bytes: int = 20_000, parallelism: int = 1) -> list[dict[str, Any]]:
    return [row for batch in batches(uri, limit_bytes, parallelism) for row in batch.to_pylist()]


def changes(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted((row for row in rows if row["kind"] in ROW_KINDS), key=lambda row: (row["table_id"], row["seq"]))


def test_layouts_are_all_different_and_have_3_to_30_columns_of_every_type() -> None:
    layouts, numbers = Layouts(50_000, 1), np.arange(50_000)
    texts = layouts.texts(numbers, np.zeros_like(numbers)).to_pylist()
    assert len(set(texts)) == 50_000
    widths = layouts.widths(numbers)
    assert (widths.min(), widths.max()) == (FEWEST, MOST)
    assert {kind.definition.type for kind in KINDS} == TYPES - {"null", "unspecified", "geometry", "var_string"}
    used = {(column.type_name, column.nullable) for text in texts[:500] for column in Layout.from_json(text).columns}
    assert used >= {(kind.definition.type_name, nullable) for kind in KINDS for nullable in (True, False)}


def test_the_text_of_a_layout_is_the_one_that_the_layout_itself_would_have() -> None:
    layouts, numbers = Layouts(300, 7), np.arange(300)
    shapes = numbers % len(ADDED_COLUMNS)
    for number, shape, text in zip(numbers, shapes, layouts.texts(numbers, shapes).to_pylist(), strict=True):
        layout = Layout.from_json(text)
        assert layout.to_json() == text
        assert layout.fingerprint == fingerprint(text.encode())
        assert layout.columns[0].pk
        assert layout.columns[1].name == f"of_{number}"
        assert list(layout.columns[layouts.widths(numbers)[number] :]) == shape_columns(int(shape))


def test_layouts_depend_on_the_seed() -> None:
    numbers = np.arange(100)
    first, other = (Layouts(100, seed).widths(numbers).tolist() for seed in (1, 2))
    assert first != other
    assert first == Layouts(100, 1).widths(numbers).tolist()


@pytest.mark.parametrize("uri", [WORKLOAD, WITH_DDL], ids=["plain", "ddl"])
def test_any_cut_gives_the_same_rows_and_every_layout_comes_before_its_rows(uri: str) -> None:
    whole = changes(rows_of(uri, 1 << 30))
    for limit_bytes, parallelism in ((3_000, 1), (20_000, 3)):
        rows = rows_of(uri, limit_bytes, parallelism)
        assert changes(rows) == whole
        known: dict[int, Layout] = {}
        for row in rows:
            if row["kind"] == LAYOUT:
                known[row["layout"]] = Layout.from_json(row["ddl"])
                assert known[row["layout"]].fingerprint == row["layout"]
            elif row["kind"] in ROW_KINDS:
                for side in (row["after"], row["before"]):
                    assert side is None or len(side) == len(known[row["layout"]].stored)
                    assert side is None or all(
                        column.nullable or value is not None
                        for column, value in zip(known[row["layout"]].stored, side, strict=True)
                    )
    assert any(value is None for row in whole for value in row["after"] or ())


def test_as_many_layouts_as_asked_for_and_shards_have_one() -> None:
    for layouts, shards in ((2, 1), (7, 1), (20, 1), (20, 3)):
        uri = f"workload://sysbench?tables=20&rows=2&events=40&layouts={layouts}&shards={shards}"
        by_table = {row["table_id"]: row["layout"] for row in rows_of(uri) if row["kind"] in ROW_KINDS}
        assert len(set(by_table.values())) == min(layouts, 20 - (shards - 1))
        assert len({by_table[101 + shard] for shard in range(shards)}) == 1


def test_before_is_what_the_row_was() -> None:
    state: dict[tuple[int, bytes], list[bytes]] = {}
    for row in changes(rows_of(WORKLOAD)):
        key = (row["table_id"], (row["after"] or row["before"])[0])
        if row["before"] is not None:
            assert state.pop(key) == row["before"]
        if row["after"] is not None:
            assert key not in state
            state[key] = row["after"]


def test_a_table_that_is_created_again_says_its_own_columns() -> None:
    rows = rows_of(WITH_DDL)
    known = {row["layout"]: Layout.from_json(row["ddl"]) for row in rows if row["kind"] == LAYOUT}
    events = [(row["layout"], DdlEvent.from_json(row["ddl"]).query) for row in rows if row["kind"] == DDL]
    created = [(layout, query) for layout, query in events if query.startswith("CREATE TABLE `sbtest`.`sbtest")]
    assert created
    for layout, query in created:
        assert all(f"`{column.name}` " in query for column in known[layout].columns)


@pytest.mark.parametrize("uri", [WORKLOAD, WITH_DDL], ids=["plain", "ddl"])
@pytest.mark.parametrize("protocol", ["csv", "canal-json"])
def test_what_lands_is_verified_and_a_change_of_it_is_found(tmp_path: Path, uri: str, protocol: str) -> None:
    settings = load_settings(f"file://{tmp_path}/sink", None, {"spool.dir": str(tmp_path), "protocol": protocol})
    store = FileStore(tmp_path / "sink")
    changefeed = open_changefeed(store, tmp_path / "spool", SystemClock(), protocol=protocol)
    for number, batch in enumerate(batches(uri, 1 << 30)):
        feed(changefeed, number, batch.to_pylist())
    changefeed.start()
    assert changefeed.landing.land_all(threading.Event())
    changefeed.close()
    report = verify(uri, settings, store)
    assert report.rows == 400
    data = max((tmp_path / "sink").rglob("CDC*1.*"), key=lambda path: path.stat().st_size)
    data.write_bytes(data.read_bytes()[::-1])
    with pytest.raises(VerifyError):
        verify(uri, settings, store)


def test_the_values_of_every_type_are_made_for_a_whole_array_at_once() -> None:
    number = np.random.default_rng(1).integers(0, 2**64, 1_000, np.uint64)
    for kind in KINDS:
        texts = kind.texts(number)
        assert (texts.type, len(texts), texts.null_count) == (pa.binary(), 1_000, 0), kind.sql


def test_more_layouts_than_tables_are_refused() -> None:
    with pytest.raises(BadSetting, match="more layouts than tables"):
        open_source("workload://sysbench?tables=2&layouts=3")
