"""A prefix changes hands: from TiCDC to Tidegate and back, to a changefeed with other options, to a second writer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tidegate.driver.changefeed import Changefeed
from tidegate.errors import BadSetting, StoreRefused, TidegateError
from tidegate.format.encode.canal_json import CanalOptions
from tidegate.format.encode.csv import CsvOptions
from tidegate.format.layout import (
    METADATA,
    DataKey,
    PathOptions,
    data_path,
    index_path,
    index_text,
    metadata_text,
    parse_index_text,
    parse_metadata,
    schema_path,
)
from tidegate.format.tables import schema_checksum, schema_file_text
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
)

Objects = dict[str, bytes]
PATHS = PathOptions()
DATE, NEXT_DATE, DAY_S = "2026-01-31", "2026-02-01", 86_400.0


@dataclass
class Ticdc:
    """A storage sink by rules 1.3 to 1.5 of the format: which number, which version directory, which checkpoint."""

    objects: Objects
    version: int = START_TS  # of its dispatchers: where they started, or their last DDL
    date: str = DATE
    _numbers: dict[str, tuple[int, str]] = field(default_factory=dict)  # by table: last number and its date

    def write(self, table: int, *changes: int, index: bool = True) -> str:
        """One file of these changes; without its index it has crashed in between."""
        directory = self._directory(f"t{table}")
        assert directory is not None
        key = DataKey("shop", f"t{table}", directory, table, False, self.date)
        number = self._next(key)
        lines = (b'"I","t%d","shop",%d,"v%d"\r\n' % (table, n, n) for n in changes)
        path = data_path(key, number, PATHS)
        assert path not in self.objects
        self.objects[path] = b"".join(lines)
        if index:
            self.objects[index_path(key, PATHS)] = index_text(key, number, PATHS).encode()
        return path

    def checkpoint(self, n: int) -> None:
        found = self.objects.get(METADATA)
        assert found is None or parse_metadata(found.decode()) <= START_TS + n
        self.objects[METADATA] = metadata_text(START_TS + n).encode()

    def _directory(self, table: str) -> int | None:
        """Rule 1.4: the version that stands there with these columns, or ours with a schema file."""
        checksum = schema_checksum("shop", table, SHAPE)
        folder = f"shop/{table}/meta/schema_"
        ending = f"_{checksum:010d}.json"
        versions = [int(p[len(folder) : -len(ending)]) for p in self.objects if p.startswith(folder) and ending in p]
        if self.version in versions:
            return self.version
        if any(version > self.version for version in versions):
            return None
        if versions:
            return max(versions)
        path = schema_path("shop", table, self.version, checksum, PATHS, 0)
        self.objects[path] = schema_file_text("shop", table, self.version, SHAPE).encode()
        return self.version

    def _next(self, key: DataKey) -> int:
        """Rule 1.3: behind the index, and behind data files that stand beyond it."""
        number, date = self._numbers.get(key.table, (-1, key.date))
        synced = number < 0
        if synced:
            number = self._indexed(key)
        elif date != key.date:
            number = 0
        while True:
            number += 1
            if data_path(key, number, PATHS) not in self.objects:
                self._numbers[key.table] = (number, key.date)
                return number
            if not synced:
                synced = True
                number = max(number, self._indexed(key))

    def _indexed(self, key: DataKey) -> int:
        found = self.objects.get(index_path(key, PATHS))
        return parse_index_text(found.decode(), PATHS.extension)[1] if found is not None else 0


class Prefix:
    """The objects, and the changefeeds that are opened on them, each as after the end of the one before."""

    def __init__(self, spool: Path) -> None:
        self.objects: Objects = {}
        self.spool = spool
        self.wall_s = 0.0
        self.open_now: Changefeed | None = None

    def open(self, **settings: Any) -> Changefeed:
        self.kill()
        clock = FakeClock()
        clock.advance(self.wall_s)
        self.open_now = open_changefeed(MemoryStore(objects=self.objects), self.spool, clock, **settings)
        return self.open_now

    def run_and_die(self, script: list[str], upto: int) -> None:
        """A run that ends with the first fault of its script."""
        self.kill()
        self.open_now = None
        with suppress(TidegateError):
            store = MemoryStore(script, "unavailable", self.objects)
            self.open_now = open_changefeed(store, self.spool, FakeClock())
            self.read_on(self.open_now, upto)

    def run(self, upto: int, tables: int = 2, **settings: Any) -> Changefeed:
        """Read on to this change, landing and recording all."""
        changefeed = self.open(**settings)
        self.read_on(changefeed, upto, tables)
        return changefeed

    def read_on(self, changefeed: Changefeed, upto: int, tables: int = 2) -> None:
        start = int(changefeed.ledger.progress.position or 0)
        rows = [change(t, START_TS + n, n) for n in range(start + 1, upto + 1) for t in range(1, tables + 1)]
        feed(changefeed, 0, [layout_row(), *rows, resolved_row(START_TS + upto)], str(upto))
        self.land(changefeed)
        changefeed.scribe.write_progress()

    def land(self, changefeed: Changefeed, seconds: float = 5.0) -> None:
        assert isinstance(changefeed.clock, FakeClock)
        changefeed.clock.advance(seconds)
        while changefeed.landing.land_next():
            pass

    def kill(self) -> None:
        if self.open_now is not None:
            self.open_now.life.fail(TidegateError("killed"))
            self.open_now.close()

    def numbers(self, table: int) -> list[int]:
        lines = landed_lines(MemoryStore(objects=self.objects)).get(f"shop.t{table}", [])
        return [int(line.values[0] or b"") for line in lines]

    def data(self) -> Objects:
        return {path: data for path, data in self.objects.items() if path.endswith(".csv")}

    @property
    def checkpoint(self) -> int:
        return parse_metadata(self.objects[METADATA].decode()) - START_TS


@pytest.fixture
def prefix(tmp_path: Path) -> Iterator[Prefix]:
    made = Prefix(tmp_path / "spool")
    yield made
    made.kill()


# -- from TiCDC, and back ----------------------------------------------------------------------------------------------


def test_what_ticdc_wrote_is_gone_on_with_behind_its_files_and_its_checkpoint(prefix: Prefix) -> None:
    ticdc = Ticdc(prefix.objects)
    ticdc.write(1, 1, 2)
    ticdc.write(2, 1, 2)
    ticdc.checkpoint(2)
    theirs = prefix.data()
    prefix.run(5)  # a source that begins at the beginning
    assert [prefix.numbers(table) for table in (1, 2)] == [[1, 2, 3, 4, 5]] * 2
    assert prefix.data() | theirs == prefix.data(), "nothing is overwritten"
    assert prefix.checkpoint == 5


def test_a_data_file_beyond_the_index_of_ticdc_is_never_overwritten_and_comes_with_the_next_index(
    prefix: Prefix,
) -> None:
    ticdc = Ticdc(prefix.objects)
    ticdc.write(1, 1, 2)
    beyond = [ticdc.write(1, 3, index=False), ticdc.write(1, 4, index=False)]
    only_data = ticdc.write(2, 1, 2, index=False)
    ticdc.checkpoint(2)
    theirs = prefix.data()
    prefix.run(5)
    assert prefix.data() | theirs == prefix.data()
    assert prefix.numbers(1) == [1, 2, 3, 4, 3, 4, 5], "delivered twice, as by TiCDC itself"
    assert prefix.numbers(2) == [1, 2, 3, 4, 5]
    assert {*beyond, only_data} <= theirs.keys()


def test_a_prefix_goes_from_ticdc_to_us_to_ticdc_and_to_us_again(prefix: Prefix) -> None:
    first = Ticdc(prefix.objects)
    first.write(1, 1, 2)
    first.write(2, 1, 2)
    first.write(1, 3, index=False)
    first.checkpoint(2)
    prefix.run(4)
    prefix.kill()
    again = Ticdc(prefix.objects, version=START_TS + 3)  # its dispatchers start at our checkpoint
    again.write(1, 5)
    again.write(2, 5)
    again.write(1, 6, index=False)
    again.checkpoint(5)
    theirs = prefix.data()
    changefeed = prefix.run(8)
    assert changefeed.status().retrying == {}
    assert prefix.data() | theirs == prefix.data()
    assert prefix.numbers(1) == [1, 2, 3, 3, 4, 5, 6, 6, 7, 8]
    assert prefix.numbers(2) == [1, 2, 3, 4, 5, 6, 7, 8]
    prefix.run(10)
    assert prefix.numbers(2) == list(range(1, 11))
    assert prefix.checkpoint == 10


def test_each_handover_may_happen_again_and_again(prefix: Prefix) -> None:
    at = 0
    for turn in range(4):
        ticdc = Ticdc(prefix.objects, version=START_TS + at)
        ticdc.write(1, at + 1)
        ticdc.write(2, at + 1)
        ticdc.checkpoint(at + 1)
        prefix.kill()
        prefix.run(at + 3)
        at += 3
        assert [prefix.numbers(table) for table in (1, 2)] == [list(range(1, at + 1))] * 2, f"turn {turn}"


def test_ticdc_goes_on_after_our_crash_and_we_after_its(prefix: Prefix) -> None:
    """What we landed without a record of it is delivered twice at most, and nothing is lost."""
    changefeed = prefix.run(2)
    feed(
        changefeed, 1, [*(change(t, START_TS + n, n) for n in (3, 4) for t in (1, 2)), resolved_row(START_TS + 4)], "4"
    )
    prefix.land(changefeed)
    prefix.kill()  # before it could confirm
    ticdc = Ticdc(prefix.objects, version=START_TS + 2)
    for table in (1, 2):
        ticdc.write(table, 3, 4, 5)
        ticdc.write(table, 6)
    ticdc.checkpoint(5)
    theirs = prefix.data()
    again = prefix.run(8)
    assert again.status().retrying == {}
    assert prefix.data() | theirs == prefix.data()
    for table in (1, 2):
        assert prefix.numbers(table) == [1, 2, 3, 4, 3, 4, 5, 6, 6, 7, 8]


def test_a_file_of_ticdc_under_a_number_that_we_had_planned_is_not_taken_for_ours(prefix: Prefix) -> None:
    changefeed = prefix.run(2)
    store = changefeed.store
    assert isinstance(store, MemoryStore)
    store.begin("unavailable", ".csv")
    rows = [*(change(t, START_TS + n, n) for n in (3, 4) for t in (1, 2)), resolved_row(START_TS + 4)]
    feed(changefeed, 1, rows, "4")
    prefix.land(changefeed)  # 3 and 4 are planned as file 2, which is never made
    prefix.kill()
    ticdc = Ticdc(prefix.objects, version=START_TS + 2)
    for table in (1, 2):
        ticdc.write(table, 2, 3)  # as long as ours would have been, and with other changes
    ticdc.checkpoint(3)
    again = prefix.run(6)
    assert again.status().retrying == {}
    for table in (1, 2):
        assert prefix.numbers(table) == [1, 2, 2, 3, 4, 5, 6]


def test_a_kill_at_any_write_of_a_handing_back_loses_nothing_and_overwrites_nothing(prefix: Prefix) -> None:
    prefix.run(2)
    prefix.kill()
    ticdc = Ticdc(prefix.objects, version=START_TS + 2)
    for table in (1, 2):
        ticdc.write(table, 3)
    ticdc.checkpoint(3)
    start, theirs = dict(prefix.objects), prefix.data()
    for word, step in product(("unavailable", "lost"), range(18)):
        prefix.objects = dict(start)
        prefix.run_and_die(["ok"] * step + [word], 6)
        changefeed = prefix.run(8)
        assert changefeed.status().retrying == {}
        for table in (1, 2):
            assert prefix.numbers(table) == list(range(1, 9)), (step, word)
        assert prefix.data() | theirs == prefix.data()


def test_on_another_day_the_files_of_ticdc_are_left_alone(prefix: Prefix) -> None:
    ticdc = Ticdc(prefix.objects)
    ticdc.write(1, 1, 2)
    ticdc.checkpoint(2)
    prefix.wall_s = DAY_S
    prefix.run(4, tables=1)
    assert prefix.numbers(1) == [1, 2, 3, 4]
    assert sum(NEXT_DATE in path for path in prefix.data()) == 1


def test_in_a_directory_of_a_day_that_ticdc_left_again_we_go_behind_its_files(prefix: Prefix) -> None:
    """We come back on a day on which TiCDC wrote too, into a directory that we never used."""
    prefix.run(2, tables=1)
    ticdc = Ticdc(prefix.objects, version=START_TS + 1, date=NEXT_DATE)
    ticdc.write(1, 3)
    ticdc.checkpoint(3)
    prefix.kill()
    prefix.wall_s = DAY_S
    changefeed = prefix.run(5, tables=1)
    assert changefeed.status().retrying == {}
    assert prefix.numbers(1) == [1, 2, 3, 4, 5]


def test_after_midnight_a_directory_that_ticdc_has_begun_already_is_gone_on_with(prefix: Prefix) -> None:
    """Its clock was ahead: files of tomorrow stand there when our tomorrow comes."""
    ticdc = Ticdc(prefix.objects)
    ticdc.write(1, 1)
    ticdc.date = NEXT_DATE
    theirs = ticdc.write(1, 2)
    ticdc.checkpoint(2)
    changefeed = prefix.run(3, tables=1)
    feed(changefeed, 1, [change(1, START_TS + 4, 4), resolved_row(START_TS + 4)], "4")
    prefix.land(changefeed, DAY_S)
    prefix.land(changefeed, 120.0)
    assert changefeed.status().retrying == {}
    assert sorted(prefix.numbers(1)) == [1, 2, 3, 4]
    assert theirs in prefix.data()


def test_metadata_alone_is_a_prefix_of_ticdc(prefix: Prefix) -> None:
    Ticdc(prefix.objects).checkpoint(3)
    prefix.run(5)
    assert prefix.numbers(1) == [4, 5], "what lies at or below the checkpoint was delivered"


def test_without_metadata_nothing_of_ticdc_counts_as_delivered(prefix: Prefix) -> None:
    Ticdc(prefix.objects).write(1, 1, 2)
    prefix.run(3, tables=1)
    assert prefix.numbers(1) == [1, 2, 1, 2, 3]


def test_a_kill_at_any_write_of_a_takeover_loses_nothing_and_overwrites_nothing(prefix: Prefix) -> None:
    ticdc = Ticdc(prefix.objects)
    ticdc.write(1, 1, 2)
    ticdc.write(1, 3, index=False)
    ticdc.write(2, 1, 2)
    ticdc.checkpoint(2)
    start, theirs = dict(prefix.objects), prefix.data()
    for word, step in product(("unavailable", "lost"), range(18)):
        prefix.objects = dict(start)
        prefix.run_and_die(["ok"] * step + [word], 4)
        prefix.run(6)
        assert prefix.numbers(1) == [1, 2, 3, 3, 4, 5, 6], (step, word)
        assert prefix.numbers(2) == [1, 2, 3, 4, 5, 6], (step, word)
        assert prefix.data() | theirs == prefix.data()


# -- an index that is not as it should be ------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [None, b"", b"what?", b"\xff\xfe\x00", b"CDC00000000000000000001.csv\n"])
def test_an_index_that_is_missing_garbage_or_stale_heals_with_the_next_file(prefix: Prefix, text: bytes | None) -> None:
    prefix.run(2, tables=1)
    prefix.run(4, tables=1)
    (path,) = (path for path in prefix.objects if path.endswith("CDC.index"))
    del prefix.objects[path]
    if text is not None:
        prefix.objects[path] = text
    prefix.run(6, tables=1)
    assert prefix.numbers(1) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("text", [b"", b"what?", b"CDC00000000000000000001.csv"])
def test_a_garbage_index_of_ticdc_heals_and_its_files_stay(prefix: Prefix, text: bytes) -> None:
    ticdc = Ticdc(prefix.objects)
    path = ticdc.write(1, 1)
    ticdc.write(1, 2)
    ticdc.checkpoint(2)
    prefix.objects[path.replace(path.rsplit("/", 1)[1], "meta/CDC.index")] = text
    prefix.run(4, tables=1)
    assert prefix.numbers(1) == [1, 2, 3, 4]


def test_an_index_ahead_of_ours_names_the_table_and_stays(prefix: Prefix) -> None:
    changefeed = prefix.run(2)
    (path,) = (path for path in prefix.objects if "/t1/" in path and path.endswith("CDC.index"))
    prefix.objects[path] = b"CDC00000000000000000009.csv\n"
    feed(changefeed, 1, [*(change(t, START_TS + 3, 3) for t in (1, 2)), resolved_row(START_TS + 3)], "3")
    prefix.land(changefeed)
    assert "names file 9 already" in changefeed.status().retrying["shop.t1"]
    assert list(changefeed.status().retrying) == ["shop.t1"]
    assert prefix.objects[path] == b"CDC00000000000000000009.csv\n"


# -- somebody else's objects -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alien", ["shop/orders.parquet", "shop/t1/data.csv", "_SUCCESS", "shop/t1/meta/readme.txt"])
def test_a_prefix_with_nothing_of_ticdc_is_refused_however_often_and_left_as_it_is(prefix: Prefix, alien: str) -> None:
    prefix.objects[alien] = b"x"
    for _ in range(2):
        with pytest.raises(StoreRefused, match=rf"not empty \({alien}\).*nothing of TiCDC's layout.*another prefix"):
            prefix.open()
    assert prefix.objects == {alien: b"x"}
    assert list(prefix.spool.iterdir()) == [], "the spool is given back"


def test_a_stray_object_among_those_of_ticdc_is_no_reason_to_refuse(prefix: Prefix) -> None:
    prefix.objects["a-readme.txt"] = b"x"
    ticdc = Ticdc(prefix.objects)
    ticdc.write(1, 1)
    ticdc.checkpoint(1)
    prefix.run(3)
    assert prefix.numbers(1) == [1, 2, 3]
    assert prefix.objects["a-readme.txt"] == b"x"


@pytest.mark.parametrize("text", [b"", b"what?", b'{"checkpoint-ts":"x"}'])
def test_metadata_that_nobody_can_read_is_refused_before_anything_is_written(prefix: Prefix, text: bytes) -> None:
    Ticdc(prefix.objects).write(1, 1)
    prefix.objects[METADATA] = text
    before = dict(prefix.objects)
    with pytest.raises(StoreRefused, match=METADATA):
        prefix.open()
    assert prefix.objects == before


# -- options that change between two runs ------------------------------------------------------------------------------

SHAPING = [
    ({}, {"date_separator": "none"}, "date-separator = none (was day)"),
    ({}, {"date_separator": "month"}, "date-separator = month (was day)"),
    ({}, {"index_digits": 6}, "file-index-digit = 6 (was 20)"),
    ({}, {"partition_separator": False}, "enable-partition-separator = false (was true)"),
    ({}, {"table_id_as_path": True}, "use-table-id-as-path = true (was false)"),
    ({}, {"output_column_id": True}, "output-column-id = true (was false)"),
    ({}, {"protocol": "canal-json"}, "protocol = canal-json (was csv)"),
    ({}, {"csv": CsvOptions(delimiter=";")}, "csv.delimiter = ';' (was ',')"),
    ({}, {"csv": CsvOptions(quote="'")}, "csv.quote = \"'\" (was '\"')"),
    ({}, {"csv": CsvOptions(null="NULL")}, "csv.null = 'NULL' (was '\\\\N')"),
    ({}, {"csv": CsvOptions(include_commit_ts=True)}, "csv.include-commit-ts = true (was false)"),
    ({}, {"csv": CsvOptions(output_field_header=True)}, "csv.output-field-header = true (was false)"),
    (
        {"protocol": "canal-json"},
        {"protocol": "canal-json", "canal": CanalOptions(tidb_extension=True)},
        "enable-tidb-extension = true (was false)",
    ),
]


@pytest.mark.parametrize(("before", "after", "named"), SHAPING, ids=[named for *_, named in SHAPING])
def test_an_option_that_shapes_paths_or_bytes_cannot_change_on_a_prefix(
    prefix: Prefix, before: dict[str, Any], after: dict[str, Any], named: str
) -> None:
    prefix.open(**before)
    prefix.kill()
    objects = dict(prefix.objects)
    for _ in range(2):
        with pytest.raises(BadSetting, match="written with other options") as caught:
            prefix.open(**after)
        assert named in str(caught.value)
        assert "set them back or give another prefix" in str(caught.value)
    assert prefix.objects == objects, "nothing is written, so the old options still work"
    prefix.open(**before)


@pytest.mark.parametrize(
    "after",
    [
        {"file_size_bytes": 1 << 20},
        {"flush_interval_s": 60.0},
        {"wake_mode": "flush"},
        {"encoder_ordering": "global"},
        {"spool_type": "memory"},
        {"spool_max_bytes": 1 << 20},
        {"worker_count": 3},
        {"max_flush_delay_s": 1.0},
    ],
    ids=lambda after: next(iter(after)),
)
def test_any_other_option_may_change_between_two_runs(prefix: Prefix, after: dict[str, Any]) -> None:
    prefix.run(2)
    changefeed = prefix.run(4, **after)
    prefix.land(changefeed, 60.0)
    prefix.run(6)
    assert [prefix.numbers(table) for table in (1, 2)] == [[1, 2, 3, 4, 5, 6]] * 2


def test_the_options_are_known_after_compaction_too(prefix: Prefix) -> None:
    changefeed = prefix.run(2)
    changefeed.scribe.compact()
    with pytest.raises(BadSetting, match="date-separator = year"):
        prefix.open(date_separator="year")
