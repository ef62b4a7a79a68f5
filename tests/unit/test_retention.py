"""Retention: what expires when, that nothing else is touched, what it costs, and a crash at every write."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.config.cron import next_after, six_fields
from tidegate.config.settings import Settings
from tidegate.driver.retention import RECORDS, WALKED, Retention
from tidegate.errors import BrokenInvariant, StoreRefused, StoreUnavailable
from tidegate.events import tso
from tidegate.format.retention import dated_directory, first_kept_date
from tidegate.spark.wiring import expiry
from tidegate.storage.files import FileStore
from tidegate.storage.store import Store
from tidegate.testing import FakeClock, MemoryStore

Expired = Callable[[int, int], None]
NOW = datetime(2021, 1, 10, 12, tzinfo=UTC)
OLD, NEW = "schema1/table1/5/2021-01-01", "schema1/table1/5/2021-01-02"
BY_DAY = {20210101: OLD, 20210102: NEW}
KEPT = {
    "metadata": b'{"checkpoint-ts":1}',
    "schema1/meta/schema_5_0020210101.json": b"{}",
    "schema1/table1/meta/schema_5_0020210101.json": b"{}",
    f"{NEW}/CDC000001.csv": b"new",
    f"{NEW}/meta/CDC.index": b"CDC000001.csv\n",
    "_tidegate/journal/00000000000000000001.entry": b"e",
}
EXPIRED = {
    f"{OLD}/CDC000001.csv": b"old",
    f"{OLD}/CDC000002.csv": b"old",
    f"{OLD}/CDC000002.csv.tmp.5e0f": b"half",
    f"{OLD}/meta/CDC.index": b"CDC000002.csv\n",
}


def moment_ts(
    year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0, *, zone: tzinfo = UTC
) -> int:
    return tso(int(datetime(year, month, day, hour, minute, second, tzinfo=zone).timestamp() * 1000))


CHECKPOINT = moment_ts(2021, 1, 3)


def retention(store: Store, days: int = 1, expired: Expired | None = None, **settings: Any) -> Retention:
    chosen = Settings("file:///sink", "file", "tiny", "/spool", file_expiration_days=days, **settings)
    return Retention(store, expiry(chosen), FakeClock(NOW), expired, zone=UTC)


def recorded(store: Store, days: int = 1, **settings: Any) -> Retention:
    """A sink with files of two days, both on record."""
    for path, data in (EXPIRED | KEPT).items():
        store.put(path, data)
    kept = retention(store, days, **settings)
    kept.begin_empty()
    kept.note(BY_DAY.items())
    kept.flush(7)
    return kept


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    made: Store = MemoryStore() if request.param == "memory" else FileStore(tmp_path / "sink")
    made.prepare()
    return made


def objects(store: Store) -> set[str]:
    return {path for path, _ in store.list("")}


# -- what has expired ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "directory"),
    [
        (f"{OLD}/CDC000001.csv", (20210101, OLD)),
        (f"{OLD}/meta/CDC.index", (20210101, OLD)),
        (f"{OLD}/CDC000001.csv.tmp.3f2a", (20210101, OLD)),
        ("s/t/5/55/2021-01-01/CDC_77_000001.json", (20210101, "s/t/5/55/2021-01-01")),
        ("s/t/400200133/12/2021-01-01/20210101/CDC000001.csv", (20210101, "s/t/400200133/12/2021-01-01")),
        ("12345/5/2021-01-01/CDC000001.csv", (20210101, "12345/5/2021-01-01")),
        ("2020-01-01/t_2020-01-02/5/2021-01-01/CDC000001.csv", (20210101, "2020-01-01/t_2020-01-02/5/2021-01-01")),
        ("s/t_2020-01-01/5/CDC000001.csv", None),
        ("s/t/5/2021-01/CDC000001.csv", None),
        ("schema1/table1/meta/schema_5_20210101.json", None),
        ("2020-01-01/2020-01-01/meta/schema_5_0020210101.json", None),
        ("s/t/5/2021-01-01/notes.txt", None),
        ("metadata", None),
        ("_tidegate/2020-01-01/CDC000001.csv", None),
    ],
)
def test_only_files_of_changes_have_a_date_and_it_is_a_level_of_their_path(
    path: str, directory: tuple[int, str] | None
) -> None:
    assert dated_directory(path) == directory


@pytest.mark.parametrize(
    ("checkpoint", "days", "kept"),
    [
        ((2021, 1, 3), 1, 20210102),
        ((2021, 1, 2, 23, 59, 59), 1, 20210101),
        ((2021, 1, 3, 23, 59, 59), 1, 20210102),
        ((2021, 1, 3), 3, 20201231),
    ],
)
def test_files_before_the_day_of_the_checkpoint_less_the_days_have_expired(
    checkpoint: tuple[int, ...], days: int, kept: int
) -> None:
    assert first_kept_date(moment_ts(*checkpoint), days, NOW, UTC) == kept


def test_the_day_is_that_of_the_local_zone() -> None:
    east, west = timezone(timedelta(hours=9)), timezone(timedelta(hours=-5))
    assert first_kept_date(CHECKPOINT, 1, NOW, east) == 20210102
    assert first_kept_date(CHECKPOINT, 1, NOW, west) == 20210101
    assert first_kept_date(CHECKPOINT - (1 << 18), 1, NOW, UTC) == 20210101


def test_a_day_has_24_hours_also_where_the_clock_was_changed() -> None:
    berlin = ZoneInfo("Europe/Berlin")  # on 2021-03-28 the clock went from 2:00 to 3:00
    now = datetime(2021, 4, 1, tzinfo=UTC)
    assert first_kept_date(moment_ts(2021, 3, 29, 0, 30, zone=berlin), 1, now, berlin) == 20210327


def test_a_checkpoint_ahead_of_the_clock_expires_nothing_before_its_time() -> None:
    assert first_kept_date(moment_ts(2031, 1, 1), 1, NOW, UTC) == 20210109


@given(st.integers(0, 2**62), st.integers(0, 10**7))
def test_whatever_the_checkpoint_files_of_yesterday_and_today_are_kept(ts: int, days: int) -> None:
    assert first_kept_date(ts, days, NOW, UTC) <= 20210109
    assert ts > 0 or first_kept_date(ts, days, NOW, UTC) == 0


# -- cleaning --------------------------------------------------------------------------------------------------------


def test_expired_data_and_index_files_go_and_nothing_else(store: Store) -> None:
    kept = recorded(store)
    before = objects(store)
    assert kept.clean(CHECKPOINT) == len(EXPIRED)
    assert before - objects(store) == {*EXPIRED, f"{RECORDS}/20210101/00000000000000000007-000000"}
    assert {path: store.get(path) for path in KEPT} == KEPT


def test_on_the_border_nothing_has_expired_yet(store: Store) -> None:
    kept = recorded(store)
    before = objects(store)
    assert kept.clean(CHECKPOINT - 1) == 0
    assert objects(store) == before


@pytest.mark.parametrize("settings", [{"days": 0}, {"date_separator": "month"}, {"date_separator": "none"}])
def test_nothing_is_recorded_or_deleted_unless_dates_are_days_and_files_expire(settings: dict[str, Any]) -> None:
    store = MemoryStore(objects=dict(EXPIRED | KEPT))
    kept = retention(store, **settings)
    kept.begin_empty()
    kept.note(BY_DAY.items())
    kept.flush(7)
    assert not kept.due(NOW + timedelta(days=2))
    assert kept.clean(CHECKPOINT, walk=True) == 0
    assert (store.objects, store.writes) == (EXPIRED | KEPT, 0)


def test_without_a_checkpoint_nothing_is_deleted() -> None:
    store = MemoryStore()
    kept = recorded(store)
    calls = len(store.calls)
    assert kept.clean(0, walk=True) == 0
    assert len(store.calls) == calls


def test_files_that_somebody_else_put_there_stay(store: Store) -> None:
    kept = recorded(store)
    store.put(f"{OLD}/notes.txt", b"mine")
    store.put("schema1/table1/5/2021-01-010/CDC000001.csv", b"a name that only begins like the directory")
    assert kept.clean(CHECKPOINT) == len(EXPIRED)
    assert store.get(f"{OLD}/notes.txt") == b"mine"
    assert store.get("schema1/table1/5/2021-01-010/CDC000001.csv") is not None


def test_the_index_goes_before_the_data_it_names() -> None:
    store = MemoryStore()
    recorded(store).clean(CHECKPOINT)
    deleted = [path for op, path in store.calls if op == "delete"]
    assert deleted[0] == f"{OLD}/meta/CDC.index"
    assert deleted[-1].startswith(RECORDS)


def test_cleaning_asks_only_for_records_and_expired_directories() -> None:
    store = MemoryStore()
    kept = recorded(store)
    before = len(store.calls)
    kept.clean(CHECKPOINT)
    asked = [call for call in store.calls[before:] if call[0] != "delete"]
    assert asked == [("list", RECORDS), ("get", f"{RECORDS}/20210101/00000000000000000007-000000"), ("list", OLD)]
    before = len(store.calls)
    kept.clean(CHECKPOINT)
    assert store.calls[before:] == [("list", RECORDS)]


def test_files_and_requests_are_counted() -> None:
    store, counted = MemoryStore(), list[tuple[int, int]]()
    recorded(store)
    retention(store, expired=lambda files, requests: counted.append((files, requests))).clean(CHECKPOINT)
    assert counted == [(len(EXPIRED), len(EXPIRED) + 3)]


def test_many_directories_are_all_emptied() -> None:
    store = MemoryStore()
    directories = [f"s/t{n}/5/2021-01-01" for n in range(300)]
    for directory in directories:
        store.put(f"{directory}/CDC000001.csv", b"x")
    kept = retention(store)
    kept.note((20210101, directory) for directory in directories)
    kept.flush(1)
    assert kept.clean(CHECKPOINT) == 300
    assert store.objects == {}


def test_empty_directories_go_up_to_the_version_and_no_further(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "sink")
    store.prepare()
    for directory in ("s/t/5/2021-01-01", "s/t/6/55/2021-01-01", "s/u/5/2021-01-01"):
        store.put(f"{directory}/CDC000001.csv", b"x")
        store.put(f"{directory}/meta/CDC.index", b"CDC000001.csv\n")
    store.put("s/t/meta/schema_5_0000000001.json", b"{}")
    store.put("s/u/5/2021-01-02/CDC000001.csv", b"x")
    kept = retention(store)
    kept.note((20210101, d) for d in ("s/t/5/2021-01-01", "s/t/6/55/2021-01-01", "s/u/5/2021-01-01"))
    kept.flush(1)
    kept.clean(CHECKPOINT)
    left = {Path(folder).relative_to(tmp_path / "sink").as_posix() for folder, _, _ in os.walk(tmp_path / "sink")}
    assert left == {
        ".",
        "s",
        "s/t",
        "s/t/meta",
        "s/u",
        "s/u/5",
        "s/u/5/2021-01-02",
        "_tidegate",
        "_tidegate/tmp",
        RECORDS,
    }


def test_with_ids_for_names_the_id_directory_stays(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "sink")
    store.prepare()
    store.put("77/5/2021-01-01/CDC000001.csv", b"x")
    kept = retention(store, table_id_as_path=True)
    kept.note([(20210101, "77/5/2021-01-01")])
    kept.flush(1)
    kept.clean(CHECKPOINT)
    assert (tmp_path / "sink/77").is_dir()
    assert not (tmp_path / "sink/77/5").exists()


def test_what_may_not_be_deleted_does_not_keep_the_rest() -> None:
    store = MemoryStore()
    kept = recorded(store)
    store.put("s/u/5/2021-01-01/CDC000001.csv", b"x")
    kept.note([(20210101, "s/u/5/2021-01-01")])
    kept.flush(8)
    store.begin("refuse", f"{OLD}/CDC000001")
    with pytest.raises(StoreRefused, match="CDC000001"):
        kept.clean(CHECKPOINT)
    assert set(store.objects) & {*EXPIRED, "s/u/5/2021-01-01/CDC000001.csv"} == {f"{OLD}/CDC000001.csv"}
    store.end("refuse", f"{OLD}/CDC000001")
    assert kept.clean(CHECKPOINT) == 1


def test_data_stays_while_its_index_may_not_be_deleted() -> None:
    store = MemoryStore()
    kept = recorded(store)
    store.begin("refuse", f"{OLD}/meta/")
    with pytest.raises(StoreRefused):
        kept.clean(CHECKPOINT)
    assert EXPIRED.keys() <= store.objects.keys()


@pytest.mark.parametrize(
    "text", [b"not json", json.dumps(["schema1/table1"]).encode(), json.dumps([NEW]).encode(), b'["_tidegate/journal"]']
)
def test_a_record_that_names_anything_else_than_a_directory_of_its_date_deletes_nothing(text: bytes) -> None:
    store = MemoryStore(objects=dict(EXPIRED | KEPT))
    store.put(f"{RECORDS}/20210101/00000000000000000001-000000", text)
    with pytest.raises(StoreRefused, match="delete"):
        retention(store).clean(CHECKPOINT)
    assert (EXPIRED | KEPT).items() <= store.objects.items()


# -- records ---------------------------------------------------------------------------------------------------------


def test_our_own_objects_have_no_date_that_ticdc_would_read() -> None:
    store = MemoryStore()
    recorded(store)
    assert not [path for path in store.objects if path.startswith("_tidegate") and "-01-" in path]


def test_a_directory_is_on_record_once_however_often_it_is_noted() -> None:
    store = MemoryStore()
    kept = retention(store)
    for _ in range(3):
        kept.note([(20210101, OLD)])
    kept.flush(7)
    kept.flush(8)
    assert list(store.objects.values()) == [json.dumps([OLD]).encode()]


def test_a_directory_of_another_date_is_refused_as_a_bug() -> None:
    with pytest.raises(BrokenInvariant, match="20210102"):
        retention(MemoryStore()).note([(20210102, OLD)])


def test_a_repeated_flush_keeps_what_both_noted() -> None:
    store = MemoryStore()
    for directory in ("s/a/5/2021-01-01", "s/b/5/2021-01-01", "s/a/5/2021-01-01"):
        kept = retention(store)
        kept.note([(20210101, directory)])
        kept.flush(7)
    [text] = store.objects.values()
    assert json.loads(text) == ["s/a/5/2021-01-01", "s/b/5/2021-01-01"]


@pytest.mark.parametrize("word", ["refuse", "unavailable", "lost"])
@pytest.mark.parametrize("failing", [0, 1])
def test_what_a_failed_flush_could_not_write_goes_out_with_the_next(word: str, failing: int) -> None:
    store = MemoryStore(script=["ok"] * failing + [word])
    kept = retention(store)
    kept.note(BY_DAY.items())
    with pytest.raises((StoreRefused, StoreUnavailable)):
        kept.flush(7)
    kept.note([(20210101, "s/a/5/2021-01-01")])
    kept.flush(7)
    found = [directory for text in store.objects.values() for directory in json.loads(text)]
    assert sorted(found) == sorted([OLD, NEW, "s/a/5/2021-01-01"])


# -- a crash at every write --------------------------------------------------------------------------------------------


def killed_at(write: int, word: str, objects: dict[str, bytes]) -> MemoryStore:
    """A process that ends at its n-th write, which is done or not."""
    return MemoryStore(["ok"] * write + [word], after="unavailable", objects=objects)


@pytest.mark.parametrize("word", ["unavailable", "lost"])
@pytest.mark.parametrize("walk", [False, True])
def test_after_a_crash_at_any_write_the_next_cleaning_ends_what_was_begun(word: str, walk: bool) -> None:
    whole = MemoryStore()
    recorded(whole)
    if walk:  # nothing is on record
        for path in [path for path in whole.objects if path.startswith(RECORDS)]:
            del whole.objects[path]
    start = dict(whole.objects)
    before = whole.writes
    retention(whole).clean(CHECKPOINT, walk)
    expected = whole.objects
    assert EXPIRED.keys().isdisjoint(expected)
    for write in range(whole.writes - before):
        objects = dict(start)
        with pytest.raises(StoreUnavailable):
            retention(killed_at(write, word, objects)).clean(CHECKPOINT, walk)
        assert KEPT.items() <= objects.items()
        retention(MemoryStore(objects=objects)).clean(CHECKPOINT, walk)
        assert objects == expected


def test_a_cleaning_that_is_stopped_goes_on_next_time() -> None:
    store = MemoryStore()
    kept = recorded(store)
    kept.stop()
    assert kept.clean(CHECKPOINT, walk=True) == 0
    assert EXPIRED.keys() <= store.objects.keys()
    assert retention(store).clean(CHECKPOINT) == len(EXPIRED)


# -- a prefix that TiCDC wrote -----------------------------------------------------------------------------------------


def test_a_prefix_without_records_is_walked_once_and_what_is_kept_is_on_record_then(store: Store) -> None:
    for path, data in (EXPIRED | KEPT).items():
        store.put(path, data)
    assert retention(store).clean(CHECKPOINT) == 0
    assert retention(store).clean(CHECKPOINT, walk=True) == len(EXPIRED)
    assert objects(store) == {*KEPT, WALKED, f"{RECORDS}/20210102/walk-000000"}
    assert retention(store).clean(moment_ts(2021, 1, 4), walk=True) == 2
    assert f"{NEW}/CDC000001.csv" not in objects(store)


def test_a_walked_prefix_is_never_walked_again() -> None:
    store = MemoryStore(objects=dict(EXPIRED | KEPT))
    retention(store).clean(CHECKPOINT, walk=True)
    before = len(store.calls)
    retention(store).clean(CHECKPOINT, walk=True)
    assert store.calls[before:] == [("size", WALKED), ("list", RECORDS)]


def test_a_prefix_that_began_empty_is_never_walked() -> None:
    store = MemoryStore()
    recorded(store).clean(CHECKPOINT, walk=True)
    assert ("list", "") not in store.calls


def test_a_run_without_expiry_takes_the_mark_back_so_that_a_later_one_walks() -> None:
    store = MemoryStore()
    recorded(store)
    off = retention(store, days=0)
    off.flush(9)
    off.flush(10)
    assert WALKED not in store.objects
    assert store.calls.count(("size", WALKED)) == 1


def test_what_a_walk_may_not_delete_is_on_record_for_the_next_time() -> None:
    store = MemoryStore(objects=dict(EXPIRED | KEPT))
    store.begin("refuse", "CDC000002.csv.tmp")
    with pytest.raises(StoreRefused):
        retention(store).clean(CHECKPOINT, walk=True)
    store.end("refuse", "CDC000002.csv.tmp")
    assert retention(store).clean(CHECKPOINT) == 1
    assert EXPIRED.keys().isdisjoint(store.objects)


# -- when --------------------------------------------------------------------------------------------------------------


def test_it_is_due_once_for_each_moment_of_the_cron() -> None:
    kept = retention(MemoryStore())
    asked = [(NOW + timedelta(minutes=10 * n), kept.due(NOW + timedelta(minutes=10 * n))) for n in range(400)]
    assert [moment for moment, is_due in asked if is_due] == [
        datetime(2021, 1, day, 2, tzinfo=UTC) for day in (11, 12, 13)
    ]


def test_a_cleaning_that_runs_is_not_started_again() -> None:
    store = MemoryStore()
    kept = recorded(store, file_cleanup_cron="* * * * * *")
    assert not kept.due(NOW)
    store.begin("hang", OLD)
    thread = threading.Thread(target=kept.clean, args=(CHECKPOINT,))
    thread.start()
    while ("list", OLD) not in store.calls:
        pass
    assert not kept.due(NOW + timedelta(seconds=5))
    assert kept.clean(CHECKPOINT) == 0
    store.end("hang", OLD)
    thread.join()
    assert kept.due(NOW + timedelta(seconds=10))


@pytest.mark.parametrize(
    ("spec", "after", "moment"),
    [
        ("0 0 2 * * *", datetime(2026, 1, 31, 2), datetime(2026, 2, 1, 2)),
        ("0 0 2 * * *", datetime(2026, 1, 31, 1, 59, 59, 999999), datetime(2026, 1, 31, 2)),
        ("5/15 * * * * *", datetime(2026, 1, 1, 0, 0, 50), datetime(2026, 1, 1, 0, 1, 5)),
        ("0 0 0 29 feb *", datetime(2096, 3, 1), datetime(2104, 2, 29)),
        ("0 0 0 30 2 *", datetime(2026, 1, 1), None),
        ("0 0 0 13 * fri", datetime(2026, 2, 1), datetime(2026, 2, 6)),
        ("0 0 0 */10 * sun", datetime(2026, 2, 1), datetime(2026, 2, 8)),
        ("0 0 0 ? * mon", datetime(2026, 2, 1), datetime(2026, 2, 2)),
        ("@monthly", datetime(2026, 12, 15), datetime(2027, 1, 1)),
    ],
)
def test_the_next_moment_of_a_cron_text(spec: str, after: datetime, moment: datetime | None) -> None:
    assert next_after(spec, after) == moment


def cron_field(low: int, high: int, words: tuple[str, ...] = ()) -> st.SearchStrategy[tuple[str, set[int]]]:
    """A field as text, and the numbers it stands for."""
    number = st.integers(low, high)
    steps = st.integers(1, high)

    def named(value: int) -> str:
        return words[value - low] if words else str(value)

    def ranged(first: int, second: int, step: int) -> tuple[str, set[int]]:
        low_end, high_end = sorted((first, second))
        return f"{named(low_end)}-{named(high_end)}/{step}", set(range(low_end, high_end + 1, step))

    single = number.map(lambda value: (named(value), {value}))
    onwards = st.tuples(number, steps).map(
        lambda pair: (f"{pair[0]}/{pair[1]}", set(range(pair[0], high + 1, pair[1])))
    )
    every = steps.map(lambda step: (f"*/{step}", set(range(low, high + 1, step))))
    part = st.one_of(single, st.builds(ranged, number, number, steps), onwards, every)
    listed = st.lists(part, min_size=1, max_size=3).map(
        lambda parts: (",".join(text for text, _ in parts), set().union(*(values for _, values in parts)))
    )
    return st.one_of(st.just(("*", set(range(low, high + 1)))), listed)


MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
FIELDS = st.tuples(
    cron_field(0, 59),
    cron_field(0, 59),
    cron_field(0, 23),
    cron_field(1, 31),
    cron_field(1, 12, MONTHS),
    cron_field(0, 6, DAYS),
)


def naive_moments(fields: tuple[tuple[str, set[int]], ...], day: datetime) -> Iterator[datetime]:
    """All moments of one day, by looking at each of its seconds' three numbers."""
    (_, seconds), (_, minutes), (_, hours), (dom, days), (_, months), (dow, weekdays) = fields
    free = [any(part in ("*", "*/1") for part in text.split(",")) for text in (dom, dow)]
    choose: Callable[[list[bool]], bool] = all if any(free) else any
    if day.month in months and choose([day.day in days, (day.weekday() + 1) % 7 in weekdays]):
        for second in range(86_400):
            if second // 3600 in hours and second // 60 % 60 in minutes and second % 60 in seconds:
                yield day + timedelta(seconds=second)


@given(FIELDS, st.datetimes(datetime(2024, 1, 1), datetime(2030, 1, 1)))
def test_the_next_moment_is_the_one_that_a_search_finds(
    fields: tuple[tuple[str, set[int]], ...], after: datetime
) -> None:
    spec = " ".join(text for text, _ in fields)
    assert six_fields(spec) == spec
    found = next_after(spec, after)
    midnight = after.replace(hour=0, minute=0, second=0, microsecond=0)
    moments = (
        moment for n in range(40) for moment in naive_moments(fields, midnight + timedelta(days=n)) if moment > after
    )
    first = next(moments, None)
    if first is not None:
        assert found == first
    else:
        assert found is None or found >= midnight + timedelta(days=40)


# -- a real server -----------------------------------------------------------------------------------------------------


def test_expired_files_go_from_an_object_store_too(request: pytest.FixtureRequest) -> None:
    store: Store = request.getfixturevalue("s3_server").store()
    kept = recorded(store)
    assert kept.clean(CHECKPOINT, walk=True) == len(EXPIRED)
    assert objects(store) == {*KEPT, WALKED, f"{RECORDS}/20210102/00000000000000000007-000000"}
