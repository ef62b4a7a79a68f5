"""Rows that cannot be written: they end the changefeed, or are set aside, each once, and the rest lands."""

from __future__ import annotations

import json
import logging
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.driver.changefeed import Changefeed
from tidegate.errors import BadEvents, StoreConflict, StoreRefused, TidegateError, VerifyError
from tidegate.executor.aside import MOST_ROWS, Aside, Unwritable
from tidegate.executor.ingest import ingest
from tidegate.executor.jobs import IngestJob, IngestOptions, LandOptions
from tidegate.executor.rows import ITEMS, ROWS, SET_ASIDE, TIMES
from tidegate.executor.segments import FileRoom
from tidegate.format.bad_rows import RowKey, bad_row_path, parse_bad_row_path
from tidegate.format.encode.canal_json import CanalOptions
from tidegate.format.encode.csv import CsvOptions
from tidegate.format.encode.protocol import Encoding
from tidegate.format.layout import METADATA, PathOptions, parse_metadata
from tidegate.format.layout_texts import LayoutTexts
from tidegate.format.tables import Column, Layout
from tidegate.sources.parquet import write_events
from tidegate.storage.access import NO_ACCESS
from tidegate.testing import (
    SHAPE,
    START_TS,
    FakeClock,
    MemoryStore,
    change,
    events_batch,
    feed,
    landed_lines,
    layout_row,
    resolved_row,
    tiny_settings,
    until,
)
from tidegate.tools.verify import verify

Row = dict[str, Any]
Open = Callable[..., Changefeed]
SECRET = b"4711;drop"


def bad(ts: int, seq: int, value: bytes = SECRET, table: int = 1) -> Row:
    """An insert with a text in the column of a number."""
    return change(table, START_TS + ts, seq, value, b"v")


def good(ts: int, seq: int, table: int = 1, kind: str = "insert") -> Row:
    return change(table, START_TS + ts, seq, kind=kind)


def update(ts: int, seq: int, before: bytes, after: bytes, table: int = 1) -> Row:
    return change(table, START_TS + ts, seq, kind="update", before=[before, b"v"], after=[after, b"v"])


def set_aside(store: MemoryStore) -> dict[RowKey, Row]:
    keys = {path: parse_bad_row_path(path) for path in sorted(store.objects)}
    return {key: json.loads(store.objects[path]) for path, key in keys.items() if key is not None}


def key(row: Row) -> RowKey:
    return RowKey(row["table_id"], row["commit_ts"], row["seq"])


def values(store: MemoryStore, table: str = "shop.t1") -> list[bytes | None]:
    return [line.values[0] for line in landed_lines(store).get(table, [])]


def land_all(changefeed: Changefeed) -> None:
    assert isinstance(changefeed.clock, FakeClock)
    changefeed.clock.advance(5.0)
    while changefeed.landing.land_next():
        pass
    changefeed.scribe.write_progress()


def land_batches(changefeed: Changefeed, batches: list[list[Row]]) -> None:
    for n, batch in enumerate(batches):
        feed(changefeed, n, batch, str(n))
    land_all(changefeed)


# -- one object for each row -----------------------------------------------------------------------------------------


@given(st.builds(RowKey, st.integers(0, 2**50 - 1), st.integers(0, 2**63 - 2), st.integers(-(2**63), 2**63 - 1)))
def test_the_name_of_an_object_is_the_key_of_its_row(row: RowKey) -> None:
    assert parse_bad_row_path(bad_row_path(row)) == row


def test_an_object_holds_all_that_is_needed_to_repair_the_row(opened: Open, store: MemoryStore) -> None:
    row = bad(1, 12) | {"after": [SECRET, b"\xff\x00"], "schema_id": 5}
    feed(opened(on_bad_row="set-aside"), 0, [layout_row(), row, bad(2, 13) | {"after": [b"1", None, b"3"]}])
    first, second = set_aside(store).values()
    assert store.objects[bad_row_path(key(row))].endswith(b"}\n")
    assert first == {
        "reason": "column 'id': the value is not a whole number",
        "kind": "insert",
        "schema_name": "shop",
        "table_name": "t1",
        "table_id": 1,
        "logical_table_id": 1,
        "schema_id": 5,
        "table_version": START_TS,
        "start_ts": START_TS,
        "commit_ts": START_TS + 1,
        "seq": 12,
        "layout": SHAPE.fingerprint,
        "after": ["4711;drop", {"base64": "/wA="}],
        "before": None,
        "columns": json.loads(SHAPE.to_json())["columns"],
    }
    assert second["after"] == ["1", None, "3"]
    assert second["reason"] == "`after` does not have the 2 values of its layout"


# -- which rows ------------------------------------------------------------------------------------------------------

# By table, from 1 on: two of them have the same.
LAYOUTS = [SHAPE, *(Layout((SHAPE.columns[0], Column(name, "varchar"))) for name in ("w", "x", "y")), SHAPE]


def job(folder: str, store: MemoryStore, encoding: Encoding, stops: bool = False) -> IngestJob:
    aside = LandOptions(PathOptions(), encoding, "memory://", NO_ACCESS, lambda *_: store)
    options = IngestOptions(encoding, 100, 400, aside=None if stops else aside)
    known = LayoutTexts.of_dict({layout.fingerprint: layout.to_json() for layout in LAYOUTS})
    return IngestJob(options, known, FileRoom(None, 0, folder), 1 << 30)


def texts(task: IngestJob, batches: list[list[Row]]) -> tuple[dict[int, bytes], list[Row]]:
    """The text of each table in the order of its items, and the other items."""
    items = pa.Table.from_batches(ingest(map(events_batch, batches), task, "0-0-0"), ITEMS).to_pylist()
    found: dict[int, bytes] = {}
    for item in sorted((i for i in items if i["kind"] == ROWS), key=lambda i: (i["first_ts"], i["first_seq"])):
        text = Path(item["segment"]).read_bytes()[item["offset"] : item["offset"] + item["length"]]
        found[item["table_id"]] = found.get(item["table_id"], b"") + text
    return found, [item for item in items if item["kind"] not in (ROWS, TIMES)]


NUMBERS = st.sampled_from([b"1", b"2", b"-3", b"x", b"1,2", b""])
IMAGES = st.one_of(st.tuples(NUMBERS, st.just(b"v")).map(list), st.sampled_from([[b"1"], [b"1", b"2", b"3"], None]))


@st.composite
def micro_batches(draw: st.DrawFn) -> list[list[Row]]:
    """Changes of many layouts, with right and wrong values, in any cut: transactions go on from batch to batch."""
    rows, ts = [], 1
    for seq in range(1, draw(st.integers(1, 12))):
        ts += draw(st.integers(0, 1))
        kind, sides = draw(st.sampled_from(["insert", "update", "delete"])), {}
        sides["after"] = draw(IMAGES) if kind != "delete" else None
        sides["before"] = draw(IMAGES) if kind != "insert" else None
        table = draw(st.integers(1, len(LAYOUTS)))
        layout = LAYOUTS[table - 1].fingerprint
        rows.append(change(table, START_TS + ts, seq, kind=kind, layout=layout) | sides)
    cuts = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=2)))
    return [rows[low:high] for low, high in zip([0, *cuts], [*cuts, len(rows)], strict=True)]


def is_whole(image: list[bytes] | None) -> bool:
    return image is not None and len(image) == 2


def is_writable(row: Row, encoding: Encoding) -> bool:
    """The slow way: which images are shown, and whether each has two values and a number in front."""
    sides = {"insert": ["after"], "delete": ["before"], "update": ["after"]}[row["kind"]]
    if row["kind"] == "update":
        splits = is_whole(row["after"]) and is_whole(row["before"]) and row["after"][0] != row["before"][0]
        sides = ["after", "before"] if splits or isinstance(encoding, CanalOptions) else sides
    return all(is_whole(row[side]) and row[side][0] in (b"1", b"2", b"-3") for side in sides)


@pytest.mark.parametrize("encoding", [CsvOptions(), CanalOptions()], ids=["csv", "canal-json"])
@given(batches=micro_batches())
def test_exactly_the_rows_that_cannot_be_written_are_set_aside_and_the_others_are_encoded(
    encoding: Encoding, batches: list[list[Row]]
) -> None:
    rows = [row for batch in batches for row in batch]
    fine = [[row for row in batch if is_writable(row, encoding)] for batch in batches]
    store = MemoryStore()
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
        found, items = texts(job(folder, store, encoding), batches)
        wanted, nothing = texts(job(other, MemoryStore(), encoding, stops=True), fine)
    wrong = [row for row in rows if not is_writable(row, encoding)]
    assert nothing == []
    assert set(set_aside(store)) == {key(row) for row in wrong}
    assert {row["kind"] for row in set_aside(store).values()} == {row["kind"] for row in wrong}, "an update stays whole"
    if isinstance(encoding, CsvOptions):  # a line of canal-json has the moment of writing
        assert found == wanted
    assert found.keys() == wanted.keys()
    assert {item["kind"] for item in items} <= {SET_ASIDE}
    counted = {item["table_id"]: item["rows"] for item in items}
    tables = range(1, len(LAYOUTS) + 1)
    assert counted == {n: count for n in tables if (count := sum(row["table_id"] == n for row in wrong))}


def test_of_an_update_of_a_key_no_half_lands_even_if_the_batch_ends_inside_its_transaction(
    opened: Open, store: MemoryStore, tmp_path: Path
) -> None:
    changefeed = opened(on_bad_row="set-aside")
    batches = [
        [layout_row(), good(1, 1), update(1, 2, b"1", SECRET), good(1, 3)],
        [good(1, 4), resolved_row(START_TS + 1)],
    ]
    task = changefeed.intake.ingest_job(tasks=1, allowance_bytes=1 << 30)
    items = pa.Table.from_batches(ingest(map(events_batch, batches), task, "0-0-0"), ITEMS)
    changefeed.intake.learn(items)
    changefeed.intake.ingest_ended()
    changefeed.intake.accept(0, items, "0")
    land_all(changefeed)
    assert values(store) == [b"1", b"3", b"4"]
    assert [row["kind"] for row in set_aside(store).values()] == ["update"]


def test_a_task_with_too_many_bad_rows_ends_the_changefeed_and_puts_none_of_them(
    opened: Open, store: MemoryStore
) -> None:
    rows = [bad(1, seq) for seq in range(MOST_ROWS + 1)]
    with pytest.raises(BadEvents, match=rf"more than {MOST_ROWS} rows .* shop\.t1: column 'id': .* filter\.rules"):
        feed(opened(on_bad_row="set-aside"), 0, [layout_row(), *rows])
    assert set_aside(store) == {}


def test_too_many_bad_rows_of_different_layouts_are_too_many(opened: Open, store: MemoryStore) -> None:
    rows = [bad(1, seq, table=n) | {"layout": LAYOUTS[n - 1].fingerprint} for n in (1, 2, 3) for seq in range(400)]
    layouts = [layout_row(layout) for layout in LAYOUTS[:3]]
    with pytest.raises(BadEvents, match=f"more than {MOST_ROWS} rows"):
        feed(opened(on_bad_row="set-aside"), 0, [*layouts, *rows])
    assert set_aside(store) == {}


@pytest.mark.parametrize(
    "row",
    [bad(1, 1) | wrong for wrong in ({"table_id": None}, {"table_name": None}, {"commit_ts": -1}, {"layout": 5})],
    ids=["no table id", "no name", "no commit-ts", "unknown layout"],
)  # fmt: skip
def test_a_row_whose_place_is_wrong_ends_the_changefeed_in_any_case(opened: Open, store: MemoryStore, row: Row) -> None:
    with pytest.raises(BadEvents):
        feed(opened(on_bad_row="set-aside"), 0, [layout_row(), row])
    assert set_aside(store) == {}


# -- stop ------------------------------------------------------------------------------------------------------------


def test_by_default_a_bad_row_ends_the_changefeed_with_a_sentence_that_does_not_show_it(
    opened: Open, store: MemoryStore
) -> None:
    with pytest.raises(BadEvents) as error:
        feed(opened(), 0, [layout_row(), good(1, 1), bad(2, 2)])
    assert str(error.value) == (
        f"shop.t1, commit-ts {START_TS + 2}, column 'id': the value is not a whole number; "
        "correct it in the source, or let such rows be set aside: on-bad-row = set-aside"
    )
    assert set_aside(store) == {}


# -- what is told ----------------------------------------------------------------------------------------------------


def test_the_status_the_metric_and_the_log_name_the_table_and_never_a_value(
    opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    changefeed = opened(on_bad_row="set-aside")
    with caplog.at_level(logging.INFO, "tidegate"):
        feed(changefeed, 0, [layout_row(), bad(1, 1), bad(1, 2), good(1, 3), bad(1, 1, table=2)])
        feed(changefeed, 1, [bad(2, 4)])
    status = changefeed.status()
    assert {name: (line.rows, line.where) for name, line in status.set_aside.items()} == {
        "shop.t1": (3, "_tidegate/bad-rows/1"),
        "shop.t2": (1, "_tidegate/bad-rows/2"),
    }
    assert status.set_aside["shop.t1"].reason == "column 'id': the value is not a whole number"
    assert (status.set_aside_rows, status.rows_accepted) == (4, 1)
    assert changefeed.metrics.value("set_aside_rows_total") == 4
    assert [record.message.partition(":")[0] for record in caplog.records] == ["shop.t1", "shop.t2"], "once for a table"
    assert SECRET.decode() not in caplog.text + repr(status)


# -- faults ----------------------------------------------------------------------------------------------------------

BATCHES = [
    [layout_row(), good(1, 1), bad(1, 2), good(1, 3), good(2, 4)],
    [update(3, 5, b"4", SECRET), good(3, 6), good(4, 7), resolved_row(START_TS + 4)],
]
AGAIN = [[row for batch in BATCHES for row in batch]]  # cut elsewhere
LANDED = [b"1", b"3", b"4", b"6", b"7"]


def test_a_bad_row_holds_back_neither_its_neighbours_nor_the_checkpoint(opened: Open, store: MemoryStore) -> None:
    land_batches(opened(on_bad_row="set-aside"), BATCHES)
    assert values(store) == LANDED
    assert [row.seq for row in set_aside(store)] == [2, 5]
    assert parse_metadata(store.objects[METADATA].decode()) == START_TS + 4


@pytest.mark.parametrize("lands_first", [False, True], ids=["killed before landing", "killed after landing"])
def test_a_replay_that_is_cut_elsewhere_doubles_no_row(opened: Open, store: MemoryStore, lands_first: bool) -> None:
    killed = opened(on_bad_row="set-aside")
    feed(killed, 0, BATCHES[0], "0")
    if lands_first:
        killed.clock.advance(5.0)  # type: ignore[attr-defined]
        while killed.landing.land_next():
            pass
    before = {path: data for path, data in store.objects.items() if "bad-rows" in path}
    land_batches(opened(on_bad_row="set-aside"), AGAIN)
    assert values(store) == LANDED
    assert [row.seq for row in set_aside(store)] == [2, 5]
    assert before.items() <= store.objects.items()


def test_a_bad_row_below_the_checkpoint_is_not_set_aside_again(opened: Open, store: MemoryStore) -> None:
    """Whoever has repaired a row and removed its object must not find it there again."""
    land_batches(opened(on_bad_row="set-aside"), BATCHES)
    for path in [path for path in store.objects if "bad-rows" in path]:
        del store.objects[path]
    again = opened(on_bad_row="set-aside")
    land_batches(again, AGAIN)
    assert set_aside(store) == {}
    assert again.status().set_aside == {}


@pytest.mark.parametrize("fault", ["unavailable", "lost"])
def test_what_the_store_does_not_take_now_is_waited_for_and_then_set_aside_once(
    opened: Open, store: MemoryStore, fault: str
) -> None:
    changefeed = opened(on_bad_row="set-aside")
    store.begin(fault, "bad-rows")
    waiting = threading.Thread(target=feed, args=(changefeed, 0, [*BATCHES[0], resolved_row(START_TS + 2)], "0"))
    waiting.start()
    until(lambda: changefeed.status().waiting is not None)
    assert "a row cannot be set aside" in (changefeed.status().waiting or "")
    changefeed.scribe.write_progress()
    assert changefeed.status().rows_accepted == 0, "the checkpoint cannot pass a row that is not durable"
    store.end(fault, "bad-rows")
    changefeed.clock.advance(10.0)  # type: ignore[attr-defined]
    waiting.join(60.0)
    assert not waiting.is_alive()
    assert changefeed.status().waiting is None
    assert changefeed.metrics.value("store_retries_total") >= 1
    land_all(changefeed)
    assert values(store) == [b"1", b"3", b"4"]
    assert [row.seq for row in set_aside(store)] == [2]


def test_a_batch_that_waits_for_the_store_ends_when_the_changefeed_stops(opened: Open, store: MemoryStore) -> None:
    changefeed = opened(on_bad_row="set-aside")
    store.begin("unavailable", "bad-rows")
    ended: list[BaseException] = []

    def run() -> None:
        try:
            feed(changefeed, 0, BATCHES[0])
        except TidegateError as exc:
            ended.append(exc)

    waiting = threading.Thread(target=run)
    waiting.start()
    until(lambda: changefeed.status().waiting is not None)
    changefeed.life.stop_reading()
    waiting.join(60.0)
    assert [type(exc).__name__ for exc in ended] == ["StoreUnavailable"]


def test_a_store_that_refuses_the_object_ends_the_changefeed(opened: Open, store: MemoryStore) -> None:
    changefeed = opened(on_bad_row="set-aside")
    store.begin("refuse", "bad-rows")
    with pytest.raises(StoreRefused, match="a row cannot be set aside"):
        feed(changefeed, 0, BATCHES[0])


def test_a_row_that_cannot_even_be_shown_ends_the_changefeed_and_does_not_hang(opened: Open) -> None:
    """Spark and Arrow pass on names that are not UTF-8."""
    name = pa.array([b"t\xff"], pa.binary()).view(pa.string())
    events = events_batch([bad(1, 1)])
    events = events.set_column(events.schema.get_field_index("table_name"), "table_name", name)
    aside = opened(on_bad_row="set-aside").options.ingest.aside
    assert aside is not None
    with pytest.raises(StoreRefused, match="a row cannot be set aside: UnicodeDecodeError"):
        Aside(aside).put([Unwritable(events, SHAPE, "column 'id': the value is not a whole number")])


def test_two_rows_with_the_same_key_are_told_apart(opened: Open, store: MemoryStore) -> None:
    changefeed = opened(on_bad_row="set-aside")
    feed(changefeed, 0, [layout_row(), bad(1, 1)])
    with pytest.raises(StoreConflict, match="another row with the same table, commit-ts and seq") as error:
        feed(changefeed, 1, [bad(1, 1, b"other")])
    assert "other;" not in str(error.value)
    assert set_aside(store)[RowKey(1, START_TS + 1, 1)]["after"][0] == SECRET.decode()


# -- verify ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def verified(opened: Open, store: MemoryStore, tmp_path: Path) -> Callable[..., Any]:
    """Lands the batches; then compares the sink with these rows as the source."""
    land_batches(opened(on_bad_row="set-aside"), BATCHES)

    def compare(rows: list[Row]) -> Any:
        write_events(tmp_path / "events", [events_batch(rows)], 1000)
        return verify(f"parquet:{tmp_path / 'events'}", tiny_settings(tmp_path / "spool"), store)

    return compare


def test_verify_counts_rows_that_were_set_aside_and_does_not_miss_them(verified: Callable[..., Any]) -> None:
    report = verified(AGAIN[0])
    assert (report.rows, report.set_aside) == (len(LANDED), 2)


def test_verify_refuses_a_bad_row_that_is_not_set_aside(verified: Callable[..., Any], store: MemoryStore) -> None:
    del store.objects[bad_row_path(key(bad(1, 2)))]
    with pytest.raises(BadEvents, match=rf"shop\.t1, commit-ts {START_TS + 1}, column 'id'"):
        verified(AGAIN[0])


def test_verify_misses_a_row_that_was_set_aside_and_can_be_written_by_now(verified: Callable[..., Any]) -> None:
    repaired = [row if row["seq"] != 2 else good(1, 2) for row in AGAIN[0]]
    with pytest.raises(VerifyError, match=r"shop\.t1: 1 row is dropped from row 2 on"):
        verified(repaired)
