"""The laws of `sources/source.py`, on every source of ours: held tables, limits, replays, resolved marks.

A law is checked against a plain reading of the whole source at once. A new source joins by a line in `SOURCES`.
"""

from __future__ import annotations

import json
import pickle
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidegate.errors import BadSetting
from tidegate.events import MOST_HELD, RESOLVED, ROW_KINDS
from tidegate.format.tables import Column, Layout
from tidegate.sources import Offset, Source, open_source
from tidegate.sources.held_groups import Cursor
from tidegate.sources.parquet import ParquetSource, write_events
from tidegate.sources.source import Demand, fitting
from tidegate.testing import START_TS, change, events_batch, layout_row, resolved_row

Row = dict[str, Any]
NONE: frozenset[int] = frozenset()
ENOUGH = 1 << 50
KEYED = Layout((Column("id", "int", pk=True, nullable=False), Column("v", "varchar", flen=64)))
KEYS = [(b"1", b"2"), (b"2", b"1"), (b"3", b"3"), (b"4", b"4")]


@contextmanager
def workload(draw: Callable[..., Any]) -> Iterator[str]:
    extra = draw(st.sampled_from(["", "&ddl=every:2s", "&txn-rows=3", "&skew=1&prepare=false"]))
    yield f"workload://sysbench?tables={draw(st.integers(1, 5))}&rows=60&batch=2KiB&events=400{extra}"


@contextmanager
def parquet(draw: Callable[..., Any]) -> Iterator[str]:
    """Transactions over some tables, in row groups that end anywhere, with resolved marks in between."""
    tables = draw(st.integers(1, 5))
    rows: list[Row] = [layout_row(KEYED)]
    seq = 0
    for ts in range(1, draw(st.integers(2, 14))):
        for table in draw(st.lists(st.integers(1, tables), min_size=1, max_size=4)):
            for _ in range(draw(st.integers(1, 4))):
                seq += 1
                old, new = draw(st.sampled_from(KEYS))
                value = b"s%d" % seq
                rows.append(change(table, START_TS + ts, seq, kind="update", before=[old, value], after=[new, value]))
        if draw(st.integers(0, 3)) == 0:
            rows.append(resolved_row(START_TS + ts))
    cuts = [0, *sorted(draw(st.sets(st.integers(1, len(rows) - 1), max_size=12))), len(rows)]
    groups = [events_batch(rows[a:b]) for a, b in pairwise(cuts)]
    with tempfile.TemporaryDirectory() as folder:
        write_events(folder, groups, draw(st.integers(1, 20)))
        yield f"parquet:{folder}"


SOURCES = {"workload": workload, "parquet": parquet}
kinds = pytest.mark.parametrize("kind", SOURCES)


def read(source: Source, start: Offset, end: Offset, parallelism: int = 2) -> list[Row]:
    """What tasks read: offsets and splits travel as JSON, and any process may open the source."""
    splits = json.loads(json.dumps(source.splits(start, end, parallelism)))
    return [row for split in splits for batch in source.read(split) for row in batch.to_pylist()]


def by_table(rows: list[Row]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        if row["kind"] in ROW_KINDS:
            found[row["table_id"]].append(row)
    return {table: sorted(own, key=lambda row: (row["commit_ts"], row["seq"])) for table, own in found.items()}


def whole(uri: str) -> dict[int, list[Row]]:
    source = open_source(uri)
    rows, at = [], source.initial()
    while (end := source.latest(at, ENOUGH, NONE)) != at:
        rows += read(source, at, end)
        at = end
    return by_table(rows)


class Reader:
    """Reads a source micro-batch by micro-batch and checks each against the law."""

    def __init__(self, uri: str) -> None:
        self.uri, self.wanted = uri, whole(uri)
        self.source = open_source(uri)
        self.at = self.source.initial()
        self.handed: dict[int, int] = defaultdict(int)
        self.resolved = 0
        self.past = [(self.at, dict(self.handed), 0)]

    def step(self, limit_bytes: int, held: frozenset[int], parallelism: int) -> bool:
        """One micro-batch; False if there was nothing to hand out."""
        end = self.source.latest(self.at, limit_bytes, held)
        if end == self.at:
            return False
        size = self.source.size_bytes(self.at, end)
        if size > limit_bytes:
            assert self.source.latest(self.at, 0, held) == end, "more than the limit only if it cannot be less"
        rows = read(self.source, self.at, end, parallelism)
        self._take(rows, held)
        assert len(json.dumps(end)) < 100 + 60 * MOST_HELD, "an offset is small"
        self.at = end
        self.past.append((end, dict(self.handed), self.resolved))
        return True

    def _take(self, rows: list[Row], held: frozenset[int]) -> None:
        for table, own in by_table(rows).items():
            assert table not in held, "a held table was handed out"
            done = self.handed[table]
            assert own == self.wanted[table][done : done + len(own)], "in order, nothing lost, nothing twice"
            assert own[0]["commit_ts"] > self.resolved, "a row came at or below a resolved mark"
            self._refuse_cut(table, done + len(own))
            self.handed[table] = done + len(own)
        self.resolved = max([self.resolved, *(row["commit_ts"] for row in rows if row["kind"] == RESOLVED)])

    def _refuse_cut(self, table: int, at: int) -> None:
        """A transaction in which a key changes is in one micro-batch (decision 0023)."""
        rows = self.wanted[table]
        if 0 < at < len(rows) and rows[at - 1]["commit_ts"] == rows[at]["commit_ts"]:
            same = [row for row in rows if row["commit_ts"] == rows[at]["commit_ts"] and row["kind"] == "update"]
            assert all(row["before"][0] == row["after"][0] for row in same), "it was cut"

    def restart(self, back: int) -> None:
        """Another process goes on from an earlier offset."""
        self.past = self.past[: max(1, len(self.past) - back)]
        self.at, handed, self.resolved = self.past[-1]
        self.at = json.loads(json.dumps(self.at))
        self.handed = defaultdict(int, handed)
        self.source = open_source(self.uri)

    @property
    def left(self) -> set[int]:
        return {table for table, rows in self.wanted.items() if self.handed[table] < len(rows)}


@kinds
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_whatever_is_held_cut_or_replayed_every_table_comes_whole_and_in_order(kind: str, data: st.DataObject) -> None:
    with SOURCES[kind](data.draw) as uri:
        reader = Reader(uri)
        tables = sorted(reader.wanted)
        for _ in range(data.draw(st.integers(1, 25))):
            held = frozenset(data.draw(st.sets(st.sampled_from(tables))))
            reader.step(data.draw(st.integers(0, 6_000)), held, data.draw(st.integers(1, 3)))
            if data.draw(st.integers(0, 5)) == 5:
                reader.restart(data.draw(st.integers(0, 3)))
        while reader.step(data.draw(st.integers(0, 6_000)), NONE, data.draw(st.integers(1, 3))):
            pass
        assert reader.left == set()
        assert reader.source.backlog_bytes(reader.at) == 0
        newest = reader.source.newest_ts()
        assert newest is not None
        assert max(row["commit_ts"] for rows in reader.wanted.values() for row in rows) <= reader.resolved <= newest


@kinds
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_held_tables_stop_nobody_else_and_the_resolved_mark_goes_up_to_them(kind: str, data: st.DataObject) -> None:
    """So a DDL behind which the held tables are frozen gets all that it lacks."""
    with SOURCES[kind](data.draw) as uri:
        reader = Reader(uri)
        for _ in range(data.draw(st.integers(0, 4))):
            reader.step(data.draw(st.integers(0, 3_000)), NONE, 1)
        # An id that a DDL gives to a table later is not held: only what was handed out can be over its share.
        known = sorted(reader.handed if "ddl=" in uri else reader.wanted)
        held = frozenset(data.draw(st.sets(st.sampled_from(known), min_size=1))) if known else NONE
        while reader.step(data.draw(st.integers(0, 6_000)), held, 2):
            pass
        if "ddl=" in uri:  # there a DDL over all tables may stand between
            return
        assert reader.left <= held, "only held tables wait"
        if reader.left:
            assert (reader.source.backlog_bytes(reader.at) or 0) > 0
            if kind == "parquet":
                nexts = [reader.wanted[table][reader.handed[table]]["commit_ts"] for table in reader.left]
                assert reader.resolved == min(nexts) - 1


@kinds
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_micro_batch_that_does_not_fit_waits_and_comes_when_it_does(kind: str, data: st.DataObject) -> None:
    with SOURCES[kind](data.draw) as uri:
        source = open_source(uri)
        at = source.initial()
        while True:
            room = data.draw(st.integers(0, 3_000))
            end = fitting(source, at, Demand(min(room, 1_000), room))
            assert source.size_bytes(at, end) <= room
            if end == at and (end := fitting(source, at, Demand(1_000, None))) == at:
                break
            assert source.size_bytes(at, end) > 0 or kind == "parquet", "a row group may have layouts alone"
            at = end
        assert source.backlog_bytes(at) == 0


@kinds
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_sizes_add_up(kind: str, data: st.DataObject) -> None:
    with SOURCES[kind](data.draw) as uri:
        source = open_source(uri)
        offsets = [source.initial()]
        tables = sorted(whole(uri))
        for _ in range(4):
            held = frozenset(data.draw(st.sets(st.sampled_from(tables))))
            offsets.append(source.latest(offsets[-1], 3_000, held))
        while (end := source.latest(offsets[-1], 3_000, NONE)) != offsets[-1]:
            offsets.append(end)
        parts = [source.size_bytes(a, b) for a, b in pairwise(offsets)]
        total = source.backlog_bytes(offsets[0])
        assert total is not None
        assert total <= sum(parts) <= total + 20 * len(parts) * len(tables), "shares of row groups are rounded up"


@kinds
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_source_can_be_sent_to_other_processes_at_any_time(kind: str, data: st.DataObject) -> None:
    with SOURCES[kind](data.draw) as uri:
        source = open_source(uri)
        held = frozenset(sorted(whole(uri))[:1])
        end = source.latest(source.initial(), 2_000, held)
        assert read(pickle.loads(pickle.dumps(source)), source.initial(), end) == read(source, source.initial(), end)


# -- very many tables in Parquet files ---------------------------------------------------------------------------------


def many_tables(folder: str, tables: int, groups: int) -> Source:
    def group(n: int) -> list[Row]:
        return [change(t, START_TS + n, n * tables + t, b"%d" % t, b"x") for t in range(1, tables + 1)]

    write_events(folder, (events_batch([layout_row(), *group(n)]) for n in range(1, groups + 1)), 10**6)
    return ParquetSource(f"parquet:{folder}")


@pytest.mark.parametrize("kind", ["parquet", "enqueue", "flush"])
def test_offsets_name_a_bounded_number_of_tables_whichever_were_held_before(tmp_path: Path, kind: str) -> None:
    tables, uri = 4 * MOST_HELD, f"workload://sysbench?tables={4 * MOST_HELD}&rows=20&batch=440&events=20000"
    source = many_tables(str(tmp_path), tables, groups=40) if kind == "parquet" else open_source(uri, wake_mode=kind)
    first = 1 if kind == "parquet" else 101
    at = source.initial()
    for step in range(40):
        held = frozenset(first + (step * 50 + n) % tables for n in range(MOST_HELD))
        end = source.latest(at, 60_000, held)
        assert end != at, "some can always be handed out"
        assert len({**end.get("behind", {}), **end.get("held", {})}) <= MOST_HELD
        at = end
        if not source.backlog_bytes(at):
            break


def test_reading_stops_before_an_offset_would_name_more_tables(tmp_path: Path) -> None:
    source = many_tables(str(tmp_path), tables=3 * MOST_HELD, groups=6)
    first, second = frozenset(range(1, MOST_HELD + 1)), frozenset(range(MOST_HELD + 1, 2 * MOST_HELD + 1))
    at = source.latest(source.initial(), 20_000, first)
    assert (at["at"], len(at["behind"])) == (3, MOST_HELD)
    seen = [at]
    while "behind" not in seen[-1] or not second >= {int(table) for table in seen[-1]["behind"]}:
        seen.append(source.latest(seen[-1], 1, second))
        assert seen[-1] != seen[-2], "tables that were released catch up, and then reading goes on"
        assert len(seen[-1].get("behind", {})) <= MOST_HELD
    assert [offset["at"] for offset in seen[:4]] == [3] * 4, (
        "as long as the first ones are behind, no others can be left there"
    )


@settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow])
@given(groups=st.integers(1, 300), held_groups=st.integers(1, 300))
def test_a_long_stretch_of_one_held_table_is_passed_in_few_steps(groups: int, held_groups: int) -> None:
    """Nothing is handed out from it, so the limit alone would not end a step."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [change(1 + (n > held_groups), START_TS + n, n, b"1", b"x") for n in range(1, groups + held_groups)]
        write_events(folder, [events_batch([layout_row(), row]) for row in rows], 10**6)
        source, steps = ParquetSource(f"parquet:{folder}"), 0
        at = source.initial()
        while (end := source.latest(at, 100_000, frozenset([1]))) != at:
            at, steps = end, steps + 1
        assert steps <= 2 + held_groups // 200 + groups // 200
        assert at["at"] == len(rows)
        assert at["behind"] == {"1": [0, START_TS + 1]}


@pytest.mark.parametrize(
    "offset", [{}, {"at": -1}, {"at": 7}, {"at": "x"}, {"at": 1, "behind": {"7": [1, 5]}}, {"at": 1, "behind": [7]}]
)
def test_an_offset_that_does_not_fit_is_refused(offset: Offset) -> None:
    with pytest.raises(BadSetting, match="position"):
        Cursor.of(offset, 6)
