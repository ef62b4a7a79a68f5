"""Sources of ours through a spool far smaller than they are, with DDLs that freeze what follows: nothing overflows."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tidegate.clock import SystemClock
from tidegate.driver.changefeed import Changefeed
from tidegate.errors import SpoolTooSmall
from tidegate.executor.ingest import ingest
from tidegate.executor.rows import ITEMS
from tidegate.sources import Offset, Source, open_source
from tidegate.sources.parquet import ParquetSource, write_events
from tidegate.sources.source import Demand, fitting
from tidegate.testing import MemoryStore, open_changefeed, tiny_settings
from tidegate.tools.verify import verify

WORKLOAD = "workload://sysbench?tables=6&rows=300&txn-rows=5&batch=4KiB&events=9000&ddl=every:10s,kinds=add-column"
BYTES = 9_000 * 220
OPTIONS = {"file_size_bytes": 20_000, "flush_interval_s": 0.2}


def micro_batches(source: Source, limit_bytes: int) -> Iterator[pa.RecordBatch]:
    at = source.initial()
    while (end := source.latest(at, limit_bytes, frozenset())) != at:
        batches = [batch for split in source.splits(at, end, 1) for batch in source.read(split)]
        yield pa.concat_batches(batches)
        at = end


def in_parquet(folder: Path, resolved_marks: bool) -> str:
    """The same changes in Parquet files, a row group for about 20 KB. Without marks only the end is resolved."""
    groups = micro_batches(open_source(WORKLOAD), 20_000)
    if not resolved_marks:
        groups = (group.filter(pc.not_equal(group["kind"], "resolved")) for group in groups)
    write_events(folder, groups, 2_000)
    return f"parquet:{folder}"


class WithoutHolding(ParquetSource):
    """A source that cannot read tables separately, as a DataFrame of others."""

    def latest(self, start: Offset, limit_bytes: int, held: frozenset[int]) -> Offset:
        return super().latest(start, limit_bytes, frozenset())


def run(changefeed: Changefeed, source: Source) -> int:
    """What the query does, until the end of the source; returns the most bytes that the spool occupied."""
    at, most, batch = source.initial(), 0, 0
    while source.backlog_bytes(at):
        demand = Demand.from_json(Path(changefeed.options.spool.demand_file).read_text())
        end = fitting(source, at, demand)
        if end == at:
            time.sleep(0.01)
            continue
        items = _ingested(changefeed, source, batch, at, end)
        changefeed.intake.accept(batch, items, json.dumps(end), source.size_bytes(at, end))
        most = max(most, changefeed.ledger.spool.occupied_bytes)
        changefeed.intake.await_wake(batch, 0.0)
        at, batch = end, batch + 1
    return most


def _ingested(changefeed: Changefeed, source: Source, batch: int, at: Offset, end: Offset) -> pa.Table:
    """Once more if a DDL stands inside a chunk."""
    for _ in range(2):
        job = changefeed.intake.ingest_job(2, 1 << 30)
        splits = source.splits(at, end, 2)
        parts = [item for n, split in enumerate(splits) for item in ingest(source.read(split), job, f"{batch}-{n}-0")]
        items = pa.Table.from_batches(parts, ITEMS)
        if not changefeed.intake.learn(items):
            break
        changefeed.intake.discard(batch)
    changefeed.intake.ingest_ended()
    return items


@pytest.mark.parametrize("kind", ["workload", "parquet", "parquet without marks"])
def test_a_tenth_of_a_source_is_enough_spool_although_ddls_freeze_what_follows(tmp_path: Path, kind: str) -> None:
    uri = WORKLOAD if kind == "workload" else in_parquet(tmp_path / "in", resolved_marks=kind == "parquet")
    store, size = MemoryStore(), BYTES // 10
    changefeed = open_changefeed(store, tmp_path / "spool", SystemClock(), spool_max_bytes=size, **OPTIONS)
    changefeed.start()
    try:
        most = run(changefeed, open_source(uri))
        with changefeed.life.lock:
            changefeed.ledger.planner.closing = True
            changefeed.life.wait_until(lambda: changefeed.ledger.idle)
            changefeed.life.raise_error()
    finally:
        changefeed.close()
    assert most <= size + 25_000, "its size, and one row group"
    settings = tiny_settings(tmp_path / "spool", spool_max_bytes=size, **OPTIONS)
    assert verify(uri, settings, store).rows == 9_000


def test_a_source_that_cannot_hold_tables_back_ends_with_the_ddl_that_it_lacks_changes_for(tmp_path: Path) -> None:
    """The resolved mark comes only at the end, and until then all that follows a DDL waits in the spool."""
    source = WithoutHolding(in_parquet(tmp_path / "in", resolved_marks=False))
    size = BYTES // 10
    changefeed = open_changefeed(MemoryStore(), tmp_path / "spool", SystemClock(), spool_max_bytes=size, **OPTIONS)
    changefeed.start()
    with pytest.raises(
        SpoolTooSmall, match=r"wait for the DDL of commit-ts \d+ .*ADD COLUMN.*spool\.max-bytes=\d+ or more"
    ):
        run(changefeed, source)
    assert changefeed.ledger.spool.occupied_bytes <= size + 25_000, "its size, and one row group"
    changefeed.close()
