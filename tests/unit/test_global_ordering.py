"""`encoder-ordering = global`: several tasks encode one sequence, and no table's order depends on which ends first.

The splits are the workload's own; each is read and encoded by a task, as Spark runs them, and the items are handed to
the ledger in the order in which the tasks ended.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tidegate.driver.changefeed import Changefeed
from tidegate.errors import BadEvents
from tidegate.events import ROW_KINDS
from tidegate.executor.ingest import ingest
from tidegate.executor.rows import ITEMS
from tidegate.sources import Offset, Split, open_source
from tidegate.sources.workload.sysbench import LAYOUT
from tidegate.testing import MemoryStore, landed_lines, open_changefeed

URI = "workload://sysbench?tables=3&rows=300&txn-rows=7&batch=16KiB&skew=1&events=3000"
TASKS = 4
Encoder = Callable[[int, Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]  # the batches of a split, maybe delayed


def opened(store: MemoryStore, folder: Path, ordering: str = "global") -> Changefeed:
    return open_changefeed(store, folder, encoder_ordering=ordering, file_size_bytes=4096)


def micro_batches(ordering: str = "global", limit_bytes: int = 200_000) -> Iterator[tuple[list[Split], Offset]]:
    source = open_source(URI, ordering=ordering)
    at = source.initial()
    while (end := source.latest(at, limit_bytes, frozenset())) != at:
        yield source.splits(at, end, TASKS), end
        at = end


def run_batch(
    changefeed: Changefeed, batch: int, splits: list[Split], end: Offset, encoder: Encoder, ordering: str = "global"
) -> None:
    """A task for each split; items are accepted in the order in which tasks end."""
    source = open_source(URI, ordering=ordering)
    job = changefeed.intake.ingest_job(len(splits), 1 << 30)
    ended: list[list[pa.RecordBatch]] = []

    def task(number: int) -> None:
        ended.append(list(ingest(encoder(number, source.read(splits[number])), job, f"{batch}-{number}-0")))

    with ThreadPoolExecutor(len(splits)) as pool:
        for future in [pool.submit(task, number) for number in range(len(splits))]:
            future.result()
    changefeed.intake.ingest_ended()
    items = pa.Table.from_batches([batch for items in ended for batch in items], ITEMS)
    changefeed.intake.learn(items)
    changefeed.intake.accept(batch, items, json.dumps(end))


def at_once(_: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


def land_all(changefeed: Changefeed) -> None:
    changefeed.ledger.planner.closing = True
    while changefeed.landing.land_next():
        pass
    assert changefeed.ledger.idle


def sequence(most_batches: int = 1000) -> dict[str, list[tuple[str, bytes | None]]]:
    """Op and id of every change, by table, in the source's own sequence."""
    source, found = open_source(URI), defaultdict(list)
    for number, (splits, _) in enumerate(micro_batches("per-table")):
        for batch in (batch for split in splits for batch in source.read(split) if number < most_batches):
            rows = batch.filter(pc.is_in(batch.column("kind"), value_set=pa.array(ROW_KINDS)))
            for row in rows.to_pylist():
                name = f"{row['schema_name']}.{row['table_name']}"
                found[name].append((row["kind"][0].upper(), (row["after"] or row["before"])[0]))
    return dict(found)


def on_the_sink(store: MemoryStore) -> dict[str, list[tuple[str, bytes | None]]]:
    landed = landed_lines(store, layout=LAYOUT)
    return {table: [(line.op, line.values[0]) for line in lines] for table, lines in landed.items()}


@pytest.mark.parametrize("seed", range(5))
def test_global_order_under_random_encode_delays(tmp_path: Path, seed: int) -> None:
    """One hot table is shared by several encoders; all tables land in the source's sequence."""
    pauses = random.Random(seed)
    store = MemoryStore()
    changefeed = opened(store, tmp_path)

    def delayed(_: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            time.sleep(pauses.random() / 100)
            yield batch

    for number, (splits, end) in enumerate(micro_batches()):
        assert any(before["tables"][1] > after["tables"][0] for before, after in pairwise(splits))
        run_batch(changefeed, number, splits, end, delayed)
    land_all(changefeed)
    assert on_the_sink(store) == sequence()
    changefeed.close()


@pytest.mark.parametrize("ordering", ["per-table", "global"])
def test_one_slow_encoder_beside_fast_tables(tmp_path: Path, ordering: str) -> None:
    """While one task encodes slowly, what was accepted before lands, and nothing of its micro-batch is accepted."""
    store, release = MemoryStore(), threading.Event()
    changefeed = opened(store, tmp_path, ordering)

    def slow_first(number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if number == 0:
            release.wait(60)
        yield from batches

    (first, end), *rest = micro_batches(ordering)
    run_batch(changefeed, 0, first, end, at_once, ordering)
    changefeed.clock.advance(10.0)  # type: ignore[attr-defined]
    slow = threading.Thread(target=partial(run_batch, changefeed, 1, *rest[0], slow_first, ordering))
    slow.start()
    while changefeed.landing.land_next():
        pass
    assert on_the_sink(store) == {table: rows for table, rows in sequence(1).items() if rows}
    assert slow.is_alive()
    release.set()
    slow.join(60)
    for number, (splits, end) in enumerate(rest[1:], 2):
        run_batch(changefeed, number, splits, end, at_once, ordering)
    land_all(changefeed)
    assert on_the_sink(store) == sequence()
    changefeed.close()


@pytest.mark.parametrize("broken", range(TASKS))
def test_an_encode_error_in_global_ordering(tmp_path: Path, broken: int) -> None:
    """Whichever task meets it: nothing of the micro-batch is accepted, what came before lands, a replay is whole."""
    store = MemoryStore()
    changefeed = opened(store, tmp_path / "first")

    def breaks(number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return map(_with_a_bad_id, batches) if number == broken else batches

    (first, end), (second, second_end), *_ = micro_batches()
    run_batch(changefeed, 0, first, end, at_once)
    with pytest.raises(BadEvents, match=r"sbtest\.sbtest\d, commit-ts \d+, column 'id': the value is not a whole"):
        run_batch(changefeed, 1, second, second_end, breaks)
    land_all(changefeed)
    assert on_the_sink(store) == sequence(1)
    changefeed.scribe.write_progress()
    assert changefeed.ledger.progress.position == json.dumps(end)
    changefeed.close()
    again = opened(store, tmp_path / "again")
    for number, (splits, end) in enumerate(micro_batches()):
        run_batch(again, number, splits, end, at_once)
    land_all(again)
    assert on_the_sink(store) == sequence()
    again.close()


def _with_a_bad_id(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The last row change has a text where its id should be; a batch without row changes stays."""
    rows = batch.to_pylist()
    for row in reversed(rows):
        if row["kind"] in ROW_KINDS:
            side = "before" if row["kind"] == "delete" else "after"
            row[side] = [b"1\r\nforged", *row[side][1:]]
            break
    return pa.RecordBatch.from_pylist(rows, schema=batch.schema)
