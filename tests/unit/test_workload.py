"""Laws of the workload source: the rows are a function of the URI, however they are cut, held, split or resumed."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from itertools import count, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import BadSetting
from tidegate.events import DELETE, EVENTS, INSERT, LAYOUT, RESOLVED, UPDATE, tso
from tidegate.format.tables import Layout
from tidegate.sources import Offset, Source, open_source
from tidegate.sources.workload.workload import WorkloadSource, parse_workload

NONE: frozenset[int] = frozenset()
ENOUGH = 1 << 40
SMALL = "workload://sysbench?tables=3&rows=40&batch=2KiB&txn-rows=3&events=400"
Rows = dict[int, list[dict[str, Any]]]


def read(source: Source, start: Offset, end: Offset, parallelism: int = 2) -> list[pa.RecordBatch]:
    splits = json.loads(json.dumps(source.splits(start, end, parallelism)))
    return [batch for split in splits for batch in source.read(split)]


def by_table(batches: Iterable[pa.RecordBatch]) -> Rows:
    tables: Rows = defaultdict(list)
    for batch in batches:
        for row in batch.to_pylist():
            if row["kind"] in (INSERT, UPDATE, DELETE):
                tables[row["table_id"]].append(row)
    return dict(tables)


def in_sequence(rows: Rows) -> Rows:
    return {table: sorted(events, key=lambda row: row["seq"]) for table, events in rows.items()}


def resolved(batches: Iterable[pa.RecordBatch]) -> list[int]:
    return [row["commit_ts"] for batch in batches for row in batch.to_pylist() if row["kind"] == RESOLVED]


def everything(uri: str, **options: Any) -> Rows:
    source = open_source(uri, **options)
    return by_table(read(source, source.initial(), source.latest(source.initial(), ENOUGH, NONE), 1))


def backlog(source: Source, offset: Offset) -> int:
    left = source.backlog_bytes(offset)
    assert left is not None
    return left


def walk(source: Source, limit_bytes: int, held: frozenset[int] = NONE) -> list[Offset]:
    offsets = [source.initial()]
    while (end := source.latest(offsets[-1], limit_bytes, held)) != offsets[-1]:
        offsets.append(end)
    return offsets


uris = st.builds(
    "workload://sysbench?tables={}&rows={}&txn-rows={}&batch={}&mix={}&skew={}&events={}&prepare={}".format,
    st.integers(1, 6),
    st.integers(2, 60),
    st.sampled_from([1, 3, 10, 100]),
    st.sampled_from(["1", "500", "2KiB", "8KiB"]),
    st.sampled_from(["0:100:0", "1:0:0", "0:0:1", "2:5:1", "1:5:3"]),
    st.sampled_from(["0", "1", "2.5"]),
    st.integers(1, 500),
    st.sampled_from(["true", "false"]),
)


@given(
    uri=uris,
    ordering=st.sampled_from(["per-table", "global"]),
    wake=st.sampled_from(["enqueue", "flush"]),
    data=st.data(),
)
def test_any_cut_into_batches_and_splits_gives_the_same_rows_and_never_resolves_one_that_follows(
    uri: str, ordering: str, wake: str, data: st.DataObject
) -> None:
    source = open_source(uri, ordering=ordering, wake_mode=wake)
    tables = parse_workload(uri.partition("?")[2]).tables
    got: Rows = defaultdict(list)
    offset, mark = source.initial(), 0
    for _ in range(1000):
        busy = data.draw(st.booleans())
        held = frozenset(data.draw(st.sets(st.integers(101, 100 + tables))) if busy else ())
        end = source.latest(offset, data.draw(st.integers(0, 20_000)), held)
        if end == offset:
            assert held or source.backlog_bytes(offset) == 0
            if not held:
                break
            continue
        batches = read(source, offset, end, data.draw(st.integers(1, 5)))
        fresh = by_table(batches)
        assert not held & fresh.keys(), "a held table was handed out"
        assert all(row["commit_ts"] > mark for rows in fresh.values() for row in rows), (
            "a row came after its resolved mark"
        )
        [mark] = resolved(batches)
        for table, rows in fresh.items():
            got[table] += rows
        offset = end
    else:
        pytest.fail("the workload does not end")
    assert dict(got) == everything(uri)
    assert all(row["commit_ts"] <= mark for rows in got.values() for row in rows), "the end counts as resolved"


@given(uri=uris)
def test_a_table_is_in_order_and_its_transactions_commit_one_after_the_other(uri: str) -> None:
    txn_rows = parse_workload(uri.partition("?")[2]).txn_rows
    for rows in everything(uri).values():
        assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
        stamps = [row["commit_ts"] for row in rows]
        assert stamps == sorted(stamps)
        assert max(stamps.count(ts) for ts in set(stamps)) <= txn_rows
        assert all(row["start_ts"] < row["commit_ts"] for row in rows)


@given(uri=uris.filter(lambda uri: "0:0:1" not in uri and "1:5:3" not in uri and "prepare=true" in uri))
def test_before_is_what_the_row_was_and_deletes_find_their_row(uri: str) -> None:
    for rows in everything(uri).values():
        table: dict[bytes, list[bytes]] = {}
        for row in rows:
            before, after = row["before"], row["after"]
            if row["kind"] == INSERT:
                assert before is None
                assert after[0] not in table
            else:
                assert table.pop(before[0]) == before
            if row["kind"] == DELETE:
                assert after is None
            else:
                table[after[0]] = after


def test_the_same_seed_gives_the_same_rows_and_another_gives_others() -> None:
    assert everything(SMALL) == everything(SMALL)
    ours, others = everything(SMALL), everything(SMALL + "&seed=2")
    assert ours.keys() == others.keys() == {101, 102, 103}
    assert [row["after"][2] for row in ours[101]] != [row["after"][2] for row in others[101]]


def test_rows_look_like_sysbench() -> None:
    row = everything(SMALL)[102][0]
    ids, k, c, pad = row["after"]
    assert (row["kind"], row["schema_name"], row["table_name"], row["table_id"]) == (INSERT, "sbtest", "sbtest2", 102)
    assert (ids, 1 <= int(k) <= 40) == (b"1", True)
    assert [len(group) for group in c.split(b"-")] == [11] * 10
    assert [len(group) for group in pad.split(b"-")] == [11] * 5
    assert c.replace(b"-", b"").isdigit()


def test_updates_change_only_c() -> None:
    row = everything(SMALL)[101][-1]
    assert row["kind"] == UPDATE
    assert row["after"][2] != row["before"][2]
    assert (row["after"][:2], row["after"][3]) == (row["before"][:2], row["before"][3])


def test_every_split_starts_with_the_layout_of_its_rows_and_fits_the_schema() -> None:
    source = open_source(SMALL)
    for split in source.splits(source.initial(), source.latest(source.initial(), ENOUGH, NONE), 3):
        first, *others = source.read(split)
        [mark] = first.to_pylist()
        assert mark["kind"] == LAYOUT
        assert Layout.from_json(mark["ddl"]).fingerprint == mark["layout"]
        assert {batch.schema for batch in others} == {EVENTS}
        assert all(row["layout"] == mark["layout"] for rows in by_table(others).values() for row in rows)


def test_the_mix_is_kept() -> None:
    rows = everything("workload://sysbench?tables=1&rows=50&mix=20:70:10&prepare=false&events=1000")[101]
    kinds = [row["kind"] for row in rows]
    assert [kinds.count(kind) for kind in (INSERT, UPDATE, DELETE)] == [200, 700, 100]


def test_deletes_alone_go_on_when_all_rows_are_gone() -> None:
    rows = everything("workload://sysbench?tables=1&rows=30&mix=0:0:100&txn-rows=20&prepare=false&events=100")[101]
    assert [int(row["before"][0]) for row in rows] == [n % 30 + 1 for n in range(100)]
    assert len({row["before"][2] for row in rows}) > 90


def test_skew_gives_the_first_tables_the_larger_share() -> None:
    rows = everything("workload://sysbench?tables=4&rows=1000&skew=1&events=2500&txn-rows=1")
    assert [len(rows[table]) for table in (101, 102, 103, 104)] == [1200, 600, 400, 300]


def test_a_path_hands_out_at_most_one_batch_in_flush_mode_and_as_many_as_fit_in_enqueue_mode() -> None:
    uri = "workload://sysbench?tables=10"
    flush, enqueue = open_source(uri, wake_mode="flush"), open_source(uri)
    assert flush.latest(flush.initial(), ENOUGH, NONE) == {"at": 1}
    assert enqueue.latest(enqueue.initial(), 250 << 20, NONE)["at"] == 250 // 22
    rows = sum(batch.num_rows for batch in read(flush, {"at": 0}, {"at": 1}))
    assert 0.95 < rows * 225 / (10 * 2.2 * 1024 * 1024) <= 1.0


def test_a_limit_below_one_batch_still_moves() -> None:
    source = open_source("workload://sysbench?tables=10")
    assert source.latest({"at": 0}, 1, NONE) == {"at": 0, "table": 1}


def test_a_round_larger_than_the_limit_is_cut_between_tables_and_the_offset_stays_small() -> None:
    source = open_source("workload://sysbench?tables=200000&rows=3&mix=1:0:0&events=600000")
    offsets = walk(source, 32 << 20)
    assert len(offsets) > 4
    assert max(len(json.dumps(offset)) for offset in offsets) < 50
    rows = [sum(b.num_rows for b in read(source, a, b, 2)) - 3 for a, b in pairwise(offsets)]
    assert sum(rows) == 600_000
    assert offsets[-1] == {"at": 1}


def test_held_tables_stay_behind_are_named_and_catch_up_after_release() -> None:
    source = open_source("workload://sysbench?tables=4&rows=1000&batch=20KiB&txn-rows=1")
    start = source.latest(source.initial(), 1 << 20, NONE)
    assert "held" not in start
    behind = source.latest(start, 1 << 20, frozenset([102]))
    assert behind["held"] == {"102": start["at"] + (start.get("table", 0) > 1)}
    batches = read(source, start, behind)
    assert by_table(batches).keys() == {101, 103, 104}
    assert resolved(batches) < [row["commit_ts"] for row in by_table(batches)[101]][-1:]
    offset = behind
    for _ in range(20):
        offset = source.latest(offset, 1 << 20, NONE)
    assert "held" not in offset
    rows = by_table(read(source, start, offset))
    assert [row["seq"] for row in rows[102]] == list(range(rows[102][0]["seq"], rows[102][-1]["seq"] + 1))


def test_when_every_table_is_held_nothing_moves() -> None:
    source = open_source("workload://sysbench?tables=2")
    offset = source.latest(source.initial(), 1 << 20, NONE)
    assert source.latest(offset, ENOUGH, frozenset([101, 102, 999])) is offset


def test_a_per_table_split_never_cuts_a_table_and_a_global_one_shares_the_hot_table() -> None:
    uri = "workload://sysbench?tables=1&rows=1000&mix=0:0:100&txn-rows=20&prepare=false"
    for ordering, pieces in (("per-table", 1), ("global", 4)):
        source = open_source(uri, ordering=ordering)
        splits = source.splits({"at": 0}, {"at": 40}, 4)
        assert len(splits) == pieces
        rows = [in_sequence(by_table(source.read(split)))[101] for split in splits]
        assert sum(len(part) for part in rows) == 40_000
        assert max(len(part) for part in rows) <= 40_000 // pieces + 20
        assert all(part[0]["seq"] % 20 == 1 for part in rows), "a transaction was cut"


def test_splits_carry_about_equal_rows() -> None:
    source = open_source("workload://sysbench?tables=1000&rows=100")
    parts = [sum(b.num_rows for b in source.read(s)) for s in source.splits({"at": 0}, {"at": 1}, 4)]
    assert parts == pytest.approx([25_000] * 4, abs=102)


def test_a_rate_hands_out_what_time_has_produced_and_no_more() -> None:
    now = [50.0]
    workload = parse_workload("tables=4&rows=10000&batch=10KiB&rate=100KiB/s&txn-rows=1")
    source = WorkloadSource(workload, clock=lambda: now[0])
    offset = source.initial()
    assert source.latest(offset, ENOUGH, NONE) is offset
    now[0] += 1.0
    offset = source.latest(offset, ENOUGH, NONE)
    rows = sum(len(part) for part in by_table(read(source, source.initial(), offset)).values())
    assert 88 * 1024 <= rows * workload.row_bytes <= 100 * 1024
    assert source.latest(offset, ENOUGH, NONE) is offset
    now[0] += 0.5
    assert source.latest(offset, ENOUGH, NONE) != offset


@given(
    ordering=st.sampled_from(["per-table", "global"]), limits=st.lists(st.integers(0, 40_000), min_size=8, max_size=8)
)
def test_a_neighbour_gives_the_same_rows_in_any_cut_and_is_not_resolved_before_its_transaction_is_whole(
    ordering: str, limits: list[int]
) -> None:
    workload = parse_workload("tables=2&rows=40&batch=2KiB&rate=1MiB&neighbour=txn-rows:90,every:1s,columns:3")
    source = WorkloadSource(workload, ordering=ordering, clock=count(0, 10**9).__next__)
    offset, mark = source.latest(source.initial(), 1, NONE), 0
    got: list[dict[str, Any]] = []
    for limit in limits:
        end = source.latest(offset, limit, NONE)
        batches = read(source, offset, end)
        rows = by_table(batches)
        assert all(row["commit_ts"] > mark for table in rows.values() for row in table)
        [mark] = resolved(batches)
        got, offset = got + rows.get(103, []), end
    assert [row["seq"] for row in got] == list(range(1, len(got) + 1))
    times = [tso(1767225600000 + 1000 * (number // 90 + 1)) for number in range(len(got))]
    assert [row["commit_ts"] for row in got] == times
    alone = source.latest({"at": 0}, 10 * len(got) * 1000, frozenset((101, 102)))
    assert by_table(read(source, {"at": 0}, alone, 1))[103][: len(got)] == got


def test_a_neighbour_takes_half_of_a_micro_batch_beside_the_rate_and_can_be_held() -> None:
    now = [0.0]
    workload = parse_workload("tables=2&rows=1000&batch=2KiB&rate=10KiB&neighbour=txn-rows:1000,every:5s")
    source = WorkloadSource(workload, clock=lambda: now[0])
    offset = source.initial()
    assert source.latest(offset, 100_000, NONE) is offset
    now[0] = 4.9
    offset = source.latest(offset, 100_000, NONE)
    assert offset["neighbour"] == 0
    now[0] = 5.0
    assert source.latest(offset, 100_000, frozenset((103,)))["neighbour"] == 0
    end = source.latest(offset, 100_000, NONE)
    assert end["neighbour"] == 50_000 // workload.row_bytes
    assert {key: end[key] for key in end if key != "neighbour"} != {key: offset[key] for key in offset}
    assert source.latest(end, 1 << 30, NONE)["neighbour"] == 1000


def test_shards_are_tables_of_one_name_with_ids_and_keys_of_their_own() -> None:
    rows = everything("workload://sysbench?tables=5&shards=3&sharded=1&rows=20&events=400&mix=2:1:1")
    names = {table: {row["table_name"] for row in events} for table, events in rows.items()}
    assert names == {101: {"sbtest1"}, 102: {"sbtest1"}, 103: {"sbtest1"}, 104: {"sbtest2"}, 105: {"sbtest3"}}
    keys = [{(row["after"] or row["before"])[0] for row in rows[table]} for table in (101, 102, 103)]
    assert all(not one & other for i, one in enumerate(keys) for other in keys[:i])


def test_without_saying_how_many_all_names_have_shards() -> None:
    rows = everything("workload://sysbench?tables=5&shards=2&rows=20&events=400")
    names = [rows[table][0]["table_name"] for table in sorted(rows)]
    assert names == ["sbtest1", "sbtest1", "sbtest2", "sbtest2", "sbtest3"]


def test_ddls_change_no_shard() -> None:
    uri = "workload://sysbench?tables=5&shards=2&sharded=1&rows=20&batch=1KiB&events=2000&ddl=every:200ms"
    rows = everything(uri)
    first = {table: {(row["table_name"], row["table_version"]) for row in rows[table]} for table in (101, 102)}
    assert first[101] == first[102]
    assert len(first[101]) == 1
    assert len(rows) > 5, "the other tables get new ids"


def test_commit_ts_starts_at_the_epoch() -> None:
    assert everything(SMALL)[101][0]["commit_ts"] == tso(1767225600000)
    assert everything(SMALL + "&epoch=2026-01-02")[101][0]["commit_ts"] == tso(1767225600000 + 86_400_000)


def test_the_backlog_counts_down_and_an_endless_workload_has_none() -> None:
    source = open_source(SMALL)
    left = [backlog(source, offset) for offset in walk(source, 4096)]
    assert left == sorted(left, reverse=True)
    assert left[0] == 400 * parse_workload("tables=3&rows=40").row_bytes
    assert left[-1] == 0
    assert open_source("workload://sysbench").backlog_bytes({"at": 5}) is None


def test_batches_are_bounded_and_end_at_transactions() -> None:
    source = open_source("workload://sysbench?tables=2&rows=300000&txn-rows=7&prepare=false")
    end = source.latest(source.initial(), 40 << 20, NONE)
    for batch in read(source, source.initial(), end):
        if batch.num_rows > 1:
            assert batch.num_rows <= (8 << 20) // 222
            seq, table = batch.column("seq").to_numpy(), batch.column("table_id").to_numpy()
            starts = np.flatnonzero(np.diff(table, prepend=0))
            assert all(number % 7 == 1 for number in seq[starts])


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("workload://sysbench?table=10", "unknown parameter 'table'; did you mean 'tables'?"),
        ("workload://sysbench?tables=0", "tables='0' is not a whole number from 1"),
        ("workload://sysbench?rows=ten", "rows='ten'"),
        ("workload://sysbench?mix=1:2", "mix='1:2' is not inserts:updates:deletes"),
        ("workload://sysbench?mix=0:0:0", "mix='0:0:0'"),
        ("workload://sysbench?rate=fast", "rate='fast' is not a size"),
        ("workload://sysbench?skew=-1", "skew='-1'"),
        ("workload://sysbench?epoch=soon", "epoch='soon' is not a time"),
        ("workload://sysbench?prepare=no", "prepare='no' is not true or false"),
        ("workload://sysbench?rows=5&rows=6", "'rows' is given twice"),
        ("workload://sysbench?rows=1&mix=0:1:1", "needs rows=2"),
        ("workload://sysbench?rate=1&neighbour=every:1s", "neighbour='every:1s' is not a neighbour such as txn-rows:"),
        ("workload://sysbench?rate=1&neighbour=txn-rows:0,every:1s", "'0' must be a whole number from 1"),
        ("workload://sysbench?rate=1&neighbour=txn-rows:1,every:1s,columns:9999", "'9999' must be a whole number"),
        ("workload://sysbench?rate=1&neighbour=txn-rows:1,every:soon", "a neighbour: 'soon' must be a time"),
        ("workload://sysbench?neighbour=txn-rows:1,every:1s", "neighbour needs a rate"),
        ("workload://sysbench?rate=1&events=5&neighbour=txn-rows:1,every:1s", "neither with events nor with ddl"),
        ("workload://sysbench?tables=2&shards=2&sharded=2", "unless `sharded` leaves other tables"),
        ("workload://sysbench?tables=2&shards=2&ddl=every:1s", "shards goes neither with ddl nor with neighbour"),
        ("workload://tpcc", "there is one workload only; write workload://sysbench"),
        ("kafka://host/topic", "unknown kind 'kafka'; known: mysql://user@host"),
        ("nothing", "unknown kind ''"),
    ],
)
def test_a_bad_uri_is_refused_by_name(uri: str, words: str) -> None:
    with pytest.raises(BadSetting) as refused:
        open_source(uri)
    assert words in str(refused.value)


def test_unknown_orderings_and_wake_modes_are_refused() -> None:
    with pytest.raises(BadSetting, match="encoder-ordering='legacy' is unknown; known: per-table, global"):
        open_source("workload://sysbench", ordering="legacy")
    with pytest.raises(BadSetting, match="dml-wake-mode='never'"):
        open_source("workload://sysbench", wake_mode="never")


@pytest.mark.parametrize("offset", [{}, {"at": -1}, {"at": 1, "table": 10}, {"at": "x"}, {"at": 1, "held": {"7": 1}}])
def test_a_position_of_another_source_is_refused(offset: Offset) -> None:
    with pytest.raises(BadSetting, match="position"):
        open_source("workload://sysbench").latest(offset, ENOUGH, NONE)
