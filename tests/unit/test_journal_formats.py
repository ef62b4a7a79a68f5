"""The journal has a format number: a prefix of the release before goes on, a newer one is refused with a sentence."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.driver.changefeed import Changefeed
from tidegate.driver.entries import FOLDER, FORMAT, NewerFormat, head_of, object_bytes, table_of
from tidegate.format.checksums import checksum, joined
from tidegate.format.tables import Column, Layout
from tidegate.storage.files import FileStore
from tidegate.testing import (
    SHAPE,
    START_TS,
    FakeClock,
    MemoryStore,
    change,
    feed,
    landed_lines,
    layout_row,
    open_changefeed,
    resolved_row,
    tiny_settings,
)
from tidegate.tools.check import preflight
from tidegate.tools.verify import verify

# Written by release 0.2.0: tables 1 and 3 had lost their state to the TTL, tables 2 and 4 were landed and on record.
# Of batch 4 the file of table 2 has its index but no confirmation, that of table 4 no index, and that of table 5 was
# never put.
OLD_PREFIX = Path(__file__).parents[1] / "fixtures" / "journal-0.2.0"
# Written by format 2. The snapshot has one layout in its head, an entry after it another, of table 3; table 1 had lost
# its state to the TTL.
FORMAT_2 = Path(__file__).parents[1] / "fixtures" / "journal-format-2"
WIDE = Layout((*SHAPE.columns, Column("w", "int")))
PLACE = f"{START_TS}/2026-01-31"
DATA = b'"I","t%d","shop",%d,"v%d"\r\n'


@pytest.fixture
def old(tmp_path: Path) -> FileStore:
    """A copy of the old prefix."""
    shutil.copytree(OLD_PREFIX, tmp_path / "sink")
    return FileStore(tmp_path / "sink")


def fed(changefeed: Changefeed, batch: int, tables: tuple[int, ...]) -> None:
    ts = START_TS + batch
    rows = [change(table, ts, batch * 100 + table) for table in tables]
    feed(changefeed, batch, [layout_row(), *rows, resolved_row(ts)], f"end-{batch}")
    clock = changefeed.clock
    assert isinstance(clock, FakeClock)
    clock.advance(6.0)
    for _ in range(20):
        if not changefeed.landing.land_next():
            clock.advance(1.5)
    changefeed.scribe.write_progress()


def test_a_prefix_of_the_release_before_goes_on_without_loss_or_doubling(old: FileStore, tmp_path: Path) -> None:
    changefeed = open_changefeed(old, tmp_path / "spool")
    assert changefeed.status().checkpoint_ts == START_TS + 3
    fed(changefeed, 4, (2, 4, 5))  # the source replays from the position on record
    fed(changefeed, 5, (1, 2, 3, 4, 5))
    lines = {name: [line.values[0] for line in found] for name, found in landed_lines(old).items()}
    assert lines == {
        "shop.t1": [b"101", b"501"],
        "shop.t2": [b"102", b"202", b"302", b"402", b"502"],
        "shop.t3": [b"103", b"503"],
        "shop.t4": [b"304", b"404", b"504"],
        "shop.t5": [b"405", b"505"],
    }
    changefeed.close()


def test_the_old_prefix_has_no_number_and_each_object_of_ours_has_one(old: FileStore, tmp_path: Path) -> None:
    before = {path: head_of(table_of(old.get(path) or b"").schema) for path, _ in old.list(FOLDER)}
    assert before
    assert not [path for path, head in before.items() if "format" in head]
    changefeed = open_changefeed(old, tmp_path / "spool")
    fed(changefeed, 4, (2, 4, 5))
    changefeed.close()
    after = {path: head_of(table_of(old.get(path) or b"").schema) for path, _ in old.list(FOLDER)}
    assert {head["format"] for path, head in after.items() if path not in before} == {FORMAT}


def test_layouts_that_format_2_had_in_its_heads_go_on_record_in_columns(tmp_path: Path) -> None:
    shutil.copytree(FORMAT_2, tmp_path / "sink")
    store = FileStore(tmp_path / "sink")
    for n in range(2):  # the second start finds them in our format
        changefeed = open_changefeed(store, tmp_path / "spool")
        ts = START_TS + 4 + n
        rows = [change(1, ts, 401 + n), change(3, ts, 403 + n, b"%d" % n, b"w", b"9", layout=WIDE.fingerprint)]
        feed(changefeed, 4 + n, [*rows, resolved_row(ts)], f"end-{4 + n}")  # no layout rows
        changefeed.clock.advance(6.0)  # type: ignore[attr-defined]
        for _ in range(20):
            if not changefeed.landing.land_next():
                changefeed.clock.advance(1.5)  # type: ignore[attr-defined]
        changefeed.scribe.write_progress()
        assert changefeed.scribe.journal.layouts.fingerprint.tolist() == sorted([SHAPE.fingerprint, WIDE.fingerprint])
        changefeed.close()
    data = {table: store.get(f"shop/t{table}/{PLACE}/CDC{3:020d}.csv") for table in (1, 3)}
    assert data == {1: b'"I","t1","shop",402,"v402"\r\n', 3: b'"I","t3","shop",1,"w",9\r\n'}


def newer(objects: dict[str, bytes]) -> MemoryStore:
    """The sink as a later release would leave it."""
    last = max(path for path in objects if path.startswith(FOLDER))
    table = table_of(objects[last])
    body = {**json.loads(table.schema.metadata[b"tidegate"]), "format": FORMAT + 1}
    return MemoryStore(objects=objects | {last: object_bytes(table, body)})


def test_a_newer_journal_is_refused_by_run_check_and_verify_and_nothing_is_written(tmp_path: Path) -> None:
    changefeed = open_changefeed(store := MemoryStore(), tmp_path / "spool")
    fed(changefeed, 1, (1,))
    changefeed.close()
    later = newer(store.objects)
    sentence = (
        rf"the journal of this sink has format {FORMAT + 1}, but this release of Tidegate knows only up to {FORMAT}; "
        "use the release that wrote it or a later one"
    )
    before = dict(later.objects)
    with pytest.raises(NewerFormat, match=sentence):
        open_changefeed(later, tmp_path / "spool")
    with pytest.raises(NewerFormat, match=sentence):
        verify("workload://sysbench?tables=1", tiny_settings(tmp_path), later)
    assert later.objects == before
    said = {line.name: line for line in preflight(tiny_settings(tmp_path / "spool"), later, FakeClock())}
    assert said["sink"].sentence in sentence
    assert said["sink"].remedy == NewerFormat.remedy


PARTS = st.lists(st.lists(st.binary(max_size=40), min_size=1, max_size=5), min_size=1, max_size=6)


@given(PARTS)
def test_the_checksum_of_a_file_follows_from_those_of_its_parts(files: list[list[bytes]]) -> None:
    parts = [part for file in files for part in file]
    starts = np.cumsum([0, *map(len, files)])[:-1]
    checksums, lengths = (np.array([function(part) for part in parts], np.int64) for function in (checksum, len))
    assert joined(checksums, lengths, starts).tolist() == [checksum(b"".join(file)) for file in files]


def test_the_journal_says_of_each_file_whose_it_is_from_where_to_where_and_its_checksum(tmp_path: Path) -> None:
    store = MemoryStore()
    changefeed = open_changefeed(store, tmp_path / "spool")
    rows = [change(1, START_TS + 1, 1), change(2, START_TS + 1, 2), change(1, START_TS + 2, 3)]
    feed(changefeed, 1, [layout_row(), *rows, resolved_row(START_TS + 2)], "end-1")
    changefeed.clock.advance(6.0)  # type: ignore[attr-defined]
    changefeed.landing.land_next()
    tables = [table_of(data) for path, data in store.objects.items() if path.endswith(".entry")]
    found = pa.concat_tables(table.replace_schema_metadata(None) for table in tables if table.num_rows).to_pylist()
    data = {n: store.objects[f"shop/t{n}/{PLACE}/CDC{1:020d}.csv"] for n in (1, 2)}
    said = ("table_id", "first_ts", "first_seq", "last_ts", "last_seq", "bytes", "checksum")
    assert [tuple(row[name] for name in said) for row in found] == [
        (1, START_TS + 1, 1, START_TS + 2, 3, len(data[1]), checksum(data[1])),
        (2, START_TS + 1, 2, START_TS + 1, 2, len(data[2]), checksum(data[2])),
    ]


def test_a_planned_file_of_the_same_size_and_other_bytes_is_not_adopted(tmp_path: Path) -> None:
    store = MemoryStore()
    changefeed = open_changefeed(store, tmp_path / "spool")
    path = f"shop/t1/{PLACE}/CDC{1:020d}.csv"
    store.begin("unavailable", path)
    feed(changefeed, 1, [layout_row(), change(1, START_TS + 1, 101), resolved_row(START_TS + 1)], "end-1")
    changefeed.clock.advance(6.0)  # type: ignore[attr-defined]
    changefeed.landing.land_next()
    changefeed.spool.close()
    other = MemoryStore(objects=store.objects | {path: DATA % (1, 999, 999)})
    assert len(DATA % (1, 999, 999)) == len(DATA % (1, 101, 101))
    again = open_changefeed(other, tmp_path / "spool")
    assert again.scribe.journal.orphans.num_rows == 0, "what is there is nobody's orphan"
    assert again.ledger.queues.dispatchers.durable_ts.max() <= 0
    again.close()
