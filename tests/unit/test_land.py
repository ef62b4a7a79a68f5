"""Landing a round: what is put in which order, and what comes back when the store fails, hangs or answers late."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tidegate.executor.jobs import LandJob, LandOptions
from tidegate.executor.land import land_files, land_schemas
from tidegate.executor.rows import (
    CONFLICT,
    ELSEWHERE,
    HUNG,
    LANDED,
    LOST,
    PLANS,
    RECEIPTS,
    REFUSED,
    UNFINISHED,
    FilePlan,
    SchemaPlan,
    file_plans,
    unanswered,
)
from tidegate.executor.rows import Receipt as ReceiptRow
from tidegate.executor.segments import FileSegments
from tidegate.format.ddl.files import SchemaFile
from tidegate.format.encode.csv import CsvOptions
from tidegate.format.layout import PathOptions
from tidegate.format.tables import CHECK, NEW, SETTLED, WRITE, Layout, schema_checksum, schema_file_text
from tidegate.storage.access import NO_ACCESS
from tidegate.storage.files import FileStore
from tidegate.storage.store import Beat, Slices, Store, content_tag
from tidegate.testing import SHAPE, MemoryStore, landed_lines, until

VERSION, DATE = 437, "2026-01-31"
LINE = b'"I","t1","shop",1,"x"\r\n'
Plan = dict[str, Any]
Receipt = dict[str, Any]


def folder(table: int) -> str:
    return f"shop/t{table}/{VERSION}/{DATE}"


def data_file(table: int, number: int) -> str:
    return f"{folder(table)}/CDC{number:020d}.csv"


def index_file(table: int) -> str:
    return f"{folder(table)}/meta/CDC.index"


def plan(file: int, table: int = 1, number: int = 1, schema: int = SETTLED, **changes: Any) -> Plan:
    version = (VERSION, VERSION, SHAPE.fingerprint, None)
    values = (file, table, "shop", f"t{table}", table, False, "", *version, DATE, number, schema)
    cut = (len(LINE), "", [0], [0], [len(LINE)])
    return dict(zip(PLANS.names, (*values, *cut), strict=True)) | changes


@pytest.fixture
def job(tmp_path: Path) -> LandJob:
    (tmp_path / "0-0-0-0.seg").write_bytes(LINE * 10)
    segments, layouts = {0: str(tmp_path / "0-0-0-0.seg")}, {SHAPE.fingerprint: SHAPE.to_json()}
    options = LandOptions(PathOptions(), CsvOptions(), "memory://", NO_ACCESS, lambda *_: MemoryStore(), stall_s=1.0)
    return LandJob(options, segments, layouts, FileSegments())


def having(job: LandJob, **options: Any) -> LandJob:
    return replace(job, options=replace(job.options, **options))


def run(job: LandJob, store: Store, *plans: Plan) -> list[Receipt]:
    rows = pa.Table.from_pylist(list(plans), schema=PLANS)
    receipts = land_files(rows, having(job, open_store=lambda *_: store))
    return sorted(receipts.to_pylist(), key=lambda receipt: receipt["file"])


def outcomes(receipts: list[Receipt]) -> list[str]:
    return [receipt["outcome"] for receipt in receipts]


def written(store: MemoryStore) -> list[str]:
    """Paths of the writing calls, in order, schema files by one word."""
    paths = [path for op, path in store.calls if op in ("create", "create_bytes", "put", "swap")]
    return ["schema" if "/meta/schema_" in path else path for path in paths]


def test_schema_comes_before_data_before_index(job: LandJob) -> None:
    store = MemoryStore()
    assert outcomes(run(job, store, plan(0, schema=CHECK))) == [LANDED]
    assert written(store) == ["schema", data_file(1, 1), index_file(1)]
    assert store.objects[data_file(1, 1)] == LINE
    assert store.objects[index_file(1)] == b"CDC00000000000000000001.csv\n"


def test_a_schema_file_that_stands_is_not_put_again(job: LandJob) -> None:
    store = MemoryStore()
    run(job, store, plan(0, schema=CHECK))
    receipts = run(job, store, plan(1, number=2, schema=CHECK))
    assert written(store).count("schema") == 1
    assert receipts[0]["schema_check_s"] > 0
    assert receipts[0]["schema_write_s"] == 0


def test_the_index_is_put_once_per_lane_and_last(job: LandJob) -> None:
    store = MemoryStore(concurrency=1)
    plans = [plan(n, table=1 + n // 3, number=1 + n % 3) for n in range(6)]
    assert outcomes(run(job, store, *plans)) == [LANDED] * 6
    for table in (1, 2):
        mine = [path for path in written(store) if f"/t{table}/" in path]
        assert mine == [data_file(table, 1), data_file(table, 2), data_file(table, 3), index_file(table)]
    assert store.objects[index_file(2)] == b"CDC00000000000000000003.csv\n"


def test_a_receipt_tells_path_bytes_timings_and_requests(job: LandJob) -> None:
    receipts = run(job, MemoryStore(), plan(0, schema=CHECK), plan(1, number=2))
    assert [receipt["path"] for receipt in receipts] == [data_file(1, 1), data_file(1, 2)]
    assert [receipt["bytes"] for receipt in receipts] == [len(LINE)] * 2
    assert [receipt["requests"] for receipt in receipts] == [3, 2], "check, schema, data; data, index"
    assert all(receipt["data_s"] > 0 for receipt in receipts)
    assert [receipt["index_s"] > 0 for receipt in receipts] == [False, True]
    assert [receipt["error"] for receipt in receipts] == [None, None]


def test_slices_of_several_segments_make_one_file(job: LandJob, tmp_path: Path) -> None:
    (tmp_path / "1.seg").write_bytes(b"abc")
    job = replace(job, segments={4: str(tmp_path / "1.seg"), **job.segments})
    store = MemoryStore()
    run(job, store, plan(0, segments=[4, 0], offsets=[1, 0], lengths=[2, len(LINE)], bytes=2 + len(LINE)))
    assert store.objects[data_file(1, 1)] == b"bc" + LINE


def test_a_header_stands_before_the_rows_of_every_file(job: LandJob) -> None:
    options = CsvOptions(output_field_header=True)
    store = MemoryStore()
    run(having(job, encoding=options), store, plan(0), plan(1, number=2))
    assert len(landed_lines(store, csv=options)["shop.t1"]) == 2


# -- a schema file with the same columns under another version ---------------------------------------------------------

CHECKSUM = schema_checksum("shop", "t1", SHAPE)


def schema_file(version: int) -> str:
    return f"shop/t1/meta/schema_{version}_{CHECKSUM:010d}.json"


def standing(*versions: int, layout: Layout = SHAPE) -> MemoryStore:
    return MemoryStore(objects={schema_file(v): schema_file_text("shop", "t1", v, layout).encode() for v in versions})


def test_an_older_version_with_the_same_columns_is_told_with_its_last_file(job: LandJob) -> None:
    store = standing(VERSION - 9, VERSION - 2)
    store.objects[f"shop/t1/{VERSION - 2}/{DATE}/meta/CDC.index"] = b"CDC00000000000000000005.csv\n"
    (receipt,) = run(job, store, plan(0, schema=CHECK))
    assert (receipt["outcome"], receipt["found_version"], receipt["found_number"]) == (ELSEWHERE, VERSION - 2, 5)
    assert written(store) == [], "nothing is put before the driver has decided"


def test_a_newer_version_with_the_same_columns_is_told_before_an_older_one(job: LandJob) -> None:
    (receipt,) = run(job, standing(VERSION - 2, VERSION + 3), plan(0, schema=CHECK))
    assert (receipt["outcome"], receipt["found_version"], receipt["found_number"]) == (ELSEWHERE, VERSION + 3, 0)


def test_the_exact_version_counts_whatever_else_stands_there(job: LandJob) -> None:
    store = standing(VERSION - 2, VERSION, VERSION + 3)
    assert outcomes(run(job, store, plan(0, schema=CHECK))) == [LANDED]
    assert written(store) == [data_file(1, 1), index_file(1)]


def test_temporary_files_and_other_checksums_do_not_match(job: LandJob) -> None:
    other = {f"{schema_file(VERSION - 1)}.tmp.6f9619ff": b"", f"shop/t1/meta/schema_{VERSION - 1}_0000000007.json": b""}
    store = MemoryStore(objects=dict(other))
    assert outcomes(run(job, store, plan(0, schema=CHECK))) == [LANDED]
    assert schema_file(VERSION) in store.objects


def test_the_same_columns_in_another_order_do_not_match_although_their_checksum_does(job: LandJob) -> None:
    turned = Layout(SHAPE.columns[::-1])
    assert schema_checksum("shop", "t1", turned) == CHECKSUM
    store = standing(VERSION - 2, layout=turned)
    assert outcomes(run(job, store, plan(0, schema=CHECK))) == [LANDED]
    assert schema_file(VERSION) in store.objects


def test_a_schema_file_that_must_be_written_is_written_whatever_stands_there(job: LandJob) -> None:
    store = standing(VERSION - 2, VERSION + 3)
    assert outcomes(run(job, store, plan(0, schema=WRITE))) == [LANDED]
    assert schema_file(VERSION) in store.objects


def test_files_go_to_the_directory_that_the_plan_names(job: LandJob) -> None:
    store = MemoryStore()
    run(job, store, plan(0, number=6, directory=VERSION - 2))
    assert f"shop/t1/{VERSION - 2}/{DATE}/CDC00000000000000000006.csv" in store.objects


def test_ids_of_columns_stand_in_the_schema_file_when_they_are_asked_for(job: LandJob) -> None:
    layout = Layout(tuple(replace(column, id=at) for at, column in enumerate(SHAPE.columns, start=1)))
    job = replace(having(job, output_column_id=True), layouts={layout.fingerprint: layout.to_json()})
    store = MemoryStore()
    run(job, store, plan(0, schema=CHECK, layout=layout.fingerprint))
    (text,) = (data for path, data in store.objects.items() if "/meta/schema_" in path)
    assert b'"ColumnId": "1",\n            "ColumnName": "id"' in text


# -- failures --------------------------------------------------------------------------------------------------------


def test_a_crash_between_data_and_index_shows_the_reader_nothing(job: LandJob) -> None:
    store = MemoryStore(script=["ok"], after="unavailable")
    assert outcomes(run(job, store, plan(0))) == [UNFINISHED]
    assert data_file(1, 1) in store.objects
    assert landed_lines(store) == {}


def test_a_failure_in_the_middle_of_a_lane_lands_the_prefix(job: LandJob) -> None:
    store = MemoryStore()
    store.begin("unavailable", data_file(1, 3))
    receipts = run(job, store, *(plan(n, number=n + 1) for n in range(4)))
    assert outcomes(receipts) == [LANDED, LANDED, UNFINISHED, UNFINISHED]
    assert "unavailable on command" in receipts[2]["error"]
    assert store.objects[index_file(1)] == b"CDC00000000000000000002.csv\n"
    assert data_file(1, 4) not in store.objects


def test_a_failing_lane_does_not_stop_the_others(job: LandJob) -> None:
    store = MemoryStore()
    store.begin("unavailable", "/t2/")
    assert outcomes(run(job, store, *(plan(n, table=n) for n in range(1, 4)))) == [LANDED, UNFINISHED, LANDED]


def test_a_failed_schema_file_keeps_data_and_index_away(job: LandJob) -> None:
    store = MemoryStore()
    store.begin("unavailable", "/meta/schema_")
    assert outcomes(run(job, store, plan(0, schema=CHECK))) == [UNFINISHED]
    assert store.objects == {}


def test_a_failed_index_lands_none_of_its_files(job: LandJob) -> None:
    store = MemoryStore()
    store.begin("unavailable", "CDC.index")
    receipts = run(job, store, plan(0), plan(1, number=2))
    assert outcomes(receipts) == [UNFINISHED, UNFINISHED]
    assert landed_lines(store) == {}


@pytest.mark.parametrize("lost_at", range(3))
def test_a_lost_answer_is_unfinished_and_landing_again_finds_its_own_work(job: LandJob, lost_at: int) -> None:
    store = MemoryStore(script=["ok"] * lost_at + ["lost"])
    first = run(job, store, plan(0, schema=CHECK))
    assert outcomes(first) == [UNFINISHED]
    assert "lost" in first[0]["error"]
    assert outcomes(run(job, store, plan(0, schema=CHECK))) == [LANDED]
    assert len(landed_lines(store)["shop.t1"]) == 1


def test_what_the_store_refuses_is_told_from_what_may_pass(job: LandJob) -> None:
    store = MemoryStore()
    store.begin("refuse", "/t1/")
    store.begin("unavailable", "/t2/")
    assert outcomes(run(job, store, plan(1, table=1), plan(2, table=2))) == [REFUSED, UNFINISHED]


def test_an_object_of_another_size_is_a_conflict_and_never_indexed(job: LandJob) -> None:
    store = MemoryStore(objects={data_file(1, 1): b"someone else's"})
    receipts = run(job, store, plan(0))
    assert outcomes(receipts) == [CONFLICT]
    assert "exists with 14 bytes" in receipts[0]["error"]
    assert landed_lines(store) == {}


@pytest.mark.parametrize("wrong", [{"table_name": ""}, {"layout": 5}])
def test_a_plan_that_cannot_be_carried_out_answers_at_once(job: LandJob, wrong: Plan) -> None:
    receipts = run(having(job, stall_s=30.0), MemoryStore(), plan(0, schema=CHECK) | wrong, plan(1, table=2))
    assert outcomes(receipts) == [REFUSED, LANDED], "one that is waited for would be hung"
    assert receipts[0]["error"]


def test_an_object_of_the_same_size_with_other_content_is_a_conflict(job: LandJob) -> None:
    store = MemoryStore(objects={data_file(1, 1): LINE[::-1]})
    assert outcomes(run(job, store, plan(0))) == [CONFLICT]
    assert landed_lines(store) == {}


def test_a_segment_that_is_gone_answers_at_once_as_lost(job: LandJob, tmp_path: Path) -> None:
    store = MemoryStore()
    (tmp_path / "0-0-0-0.seg").unlink()
    receipts = run(job, store, plan(0), plan(1, number=2))
    assert outcomes(receipts) == [LOST, UNFINISHED]
    assert "cannot read the spool segment" in receipts[0]["error"]
    assert store.objects == {}


# -- a store that hangs ------------------------------------------------------------------------------------------------


def test_a_hanging_file_is_given_up_and_the_others_land(job: LandJob) -> None:
    store = MemoryStore()
    store.begin("hang", data_file(2, 1))
    receipts = run(job, store, *(plan(n, table=n) for n in range(1, 8)))
    assert data_file(2, 1) not in store.objects, "the receipts come while it still hangs"
    store.end("hang", data_file(2, 1))
    assert outcomes(receipts) == [LANDED, HUNG, *[LANDED] * 5]
    assert receipts[1]["error"] == "no answer from the store within 1 s"
    assert sum(op == "create" for op, _ in store.calls) == 7, "each is tried once"


def test_a_hanging_file_leaves_its_worker_to_the_others(job: LandJob) -> None:
    store = MemoryStore(concurrency=2)
    store.begin("hang", "/t1/")
    receipts = run(job, store, *(plan(n, table=n) for n in range(1, 9)))
    store.end("hang", "/t1/")
    assert outcomes(receipts) == [HUNG, *[LANDED] * 7]


def test_when_as_many_hang_as_there_are_workers_the_rest_is_not_tried(job: LandJob) -> None:
    store = MemoryStore(concurrency=2)
    store.begin("hang", ".csv")
    receipts = run(job, store, *(plan(n, table=n) for n in range(1, 9)))
    asked = sum(op == "create" for op, _ in store.calls)
    store.end("hang", ".csv")
    assert asked == 2, "nobody hangs in turn"
    assert outcomes(receipts) == [HUNG, HUNG, *[UNFINISHED] * 6]
    assert {receipt["error"] for receipt in receipts[2:]} == {"not tried: the store does not answer"}
    time.sleep(0.1)
    assert sum(op == "create" for op, _ in store.calls) == 2, "nobody hangs in turn"


def test_where_the_store_sets_no_bound_a_task_runs_eight_lanes_for_each_worker(job: LandJob) -> None:
    store = MemoryStore()
    store.begin("hang", ".csv")
    receipts = run(having(job, worker_count=1), store, *(plan(n, table=n) for n in range(1, 12)))
    store.end("hang", ".csv")
    assert outcomes(receipts) == [*[HUNG] * 8, *[UNFINISHED] * 3]


@pytest.mark.parametrize("fault", ["hang", "late"])
def test_an_abandoned_thread_starts_nothing_afterwards(job: LandJob, fault: str) -> None:
    store = MemoryStore()
    store.begin(fault, data_file(1, 1))
    assert outcomes(run(job, store, plan(0), plan(1, number=2))) == [HUNG, HUNG]
    store.end(fault, data_file(1, 1))
    time.sleep(0.2)
    assert written(store) == [data_file(1, 1)], "neither the next file nor the index is asked for"
    assert landed_lines(store) == {}
    assert (data_file(1, 1) in store.objects) == (fault == "late")


def test_a_hanging_index_is_hung_although_its_data_stands(job: LandJob) -> None:
    store = MemoryStore()
    store.begin("hang", "CDC.index")
    receipts = run(job, store, plan(0), plan(1, number=2))
    store.end("hang", "CDC.index")
    assert outcomes(receipts) == [HUNG, HUNG]


def test_after_giving_up_the_same_files_land_under_the_same_numbers(job: LandJob) -> None:
    store = MemoryStore()
    store.begin("late", data_file(1, 1))
    run(job, store, plan(0))
    store.end("late", data_file(1, 1))
    assert outcomes(run(job, store, plan(0))) == [LANDED]
    assert len(landed_lines(store)["shop.t1"]) == 1


def test_a_slow_file_that_shows_progress_is_not_given_up(job: LandJob) -> None:
    class Slow(MemoryStore):
        def create(self, path: str, head: bytes, slices: Any, beat: Any) -> None:
            for _ in range(6):  # together longer than the time in which something must happen
                time.sleep(0.25)
                beat(1)
            super().create(path, head, slices, beat)

    assert outcomes(run(having(job, stall_s=1.0), Slow(), plan(0))) == [LANDED]


def test_bytes_in_flight_are_bounded(job: LandJob) -> None:
    store = MemoryStore()
    store.begin("hang", ".csv")
    plans = [plan(n, table=n, bytes=60 << 20) for n in range(1, 7)]
    found: list[list[Receipt]] = []
    landing = threading.Thread(target=lambda: found.append(run(having(job, stall_s=60.0), store, *plans)))
    landing.start()
    until(lambda: sum(op == "create" for op, _ in store.calls) >= 2)
    time.sleep(0.1)
    under_way = [path for op, path in store.calls if op == "create"]
    store.end("hang", ".csv")
    landing.join()
    assert len(under_way) == 2, "128 MiB hold two of 60 MiB"
    assert outcomes(found[0]) == [LANDED] * 6


@pytest.mark.parametrize(("share", "most"), [(1.0, 16), (0.25, 4), (0.01, 1)])
def test_a_store_that_has_too_much_to_do_gets_fewer_lanes_at_once(job: LandJob, share: float, most: int) -> None:
    lock, running, seen = threading.Lock(), set[int](), list[int]()

    class Busy(MemoryStore):
        def create(self, path: str, head: bytes, slices: Slices, beat: Beat) -> None:
            with lock:
                running.add(threading.get_ident())
                seen.append(len(running))
            time.sleep(0.01)
            super().create(path, head, slices, beat)
            with lock:
                running.remove(threading.get_ident())

    run(replace(having(job, worker_count=2), lane_share=share), Busy(), *(plan(n, table=n) for n in range(1, 60)))
    assert max(seen) <= most
    assert len(seen) == 59


def test_a_file_larger_than_the_bound_lands_alone(job: LandJob) -> None:
    store = MemoryStore()
    plans = [plan(1, table=1, bytes=500 << 20), plan(2, table=2, bytes=500 << 20)]
    assert outcomes(run(job, store, *plans)) == [LANDED] * 2


# -- the index ---------------------------------------------------------------------------------------------------------


def index_text(number: int) -> bytes:
    return f"CDC{number:020d}.csv\n".encode()


def standing_files(count: int) -> MemoryStore:
    """A directory with so many files, and the index that names the last."""
    objects = {data_file(1, number): LINE for number in range(1, count + 1)}
    return MemoryStore(objects=objects | {index_file(1): index_text(count)})


def index_calls(store: MemoryStore) -> list[str]:
    return [op for op, path in store.calls if path == index_file(1)]


def test_a_directory_gets_its_index_with_one_request_and_later_ones_are_compared_first(job: LandJob) -> None:
    store = MemoryStore()
    run(job, store, plan(0), plan(1, number=2))
    assert index_calls(store) == ["swap"]
    run(job, store, plan(2, number=3))
    assert index_calls(store) == ["swap", "get", "swap"]
    assert store.objects[index_file(1)] == index_text(3)


def test_a_lane_that_knows_the_tag_of_its_index_does_not_read_it(job: LandJob) -> None:
    store = MemoryStore()
    (first,) = run(job, store, plan(0))
    assert first["tag"]
    (second,) = run(job, store, plan(1, number=2, tag=first["tag"]))
    assert index_calls(store) == ["swap", "swap"]
    assert (second["requests"], second["tag"] != first["tag"]) == (2, True)
    (stale,) = run(job, store, plan(2, number=3, tag=first["tag"]))
    assert index_calls(store) == ["swap", "swap", "swap", "get", "swap"], "only a condition that fails reads"
    assert (stale["outcome"], stale["requests"]) == (LANDED, 4)
    assert store.objects[index_file(1)] == index_text(3)


def test_a_stale_tag_sets_no_index_back(job: LandJob) -> None:
    store = standing_files(1)
    tag = content_tag(index_text(1))
    store.objects[index_file(1)] = index_text(5)  # of another writer
    (receipt,) = run(job, store, plan(0, number=2, tag=tag))
    assert receipt["outcome"] == CONFLICT
    assert store.objects[index_file(1)] == index_text(5)


def test_an_index_that_says_it_already_is_not_put_again(job: LandJob) -> None:
    store = standing_files(2)
    assert outcomes(run(job, store, plan(0, number=2))) == [LANDED]
    assert index_calls(store) == ["get"]


@pytest.mark.parametrize("number", [1, 2])
def test_an_index_ahead_of_ours_is_a_conflict_and_stays(job: LandJob, number: int) -> None:
    store = standing_files(5)
    (receipt,) = run(job, store, plan(0, number=number))
    assert receipt["outcome"] == CONFLICT
    assert "names file 5 already: another writer uses this sink" in receipt["error"]
    assert store.objects[index_file(1)] == index_text(5)


@pytest.mark.parametrize("found", [None, b"", b"CDC", b"\xff\xfe", b"CDC00000000000000000001.json\n", index_text(1)])
def test_an_index_that_is_missing_garbage_or_behind_heals(job: LandJob, found: bytes | None) -> None:
    store = standing_files(2)
    del store.objects[index_file(1)]
    if found is not None:
        store.objects[index_file(1)] = found
    assert outcomes(run(job, store, plan(0, number=3))) == [LANDED]
    assert len(landed_lines(store)["shop.t1"]) == 3


def test_the_first_file_of_a_directory_heals_an_index_that_nobody_can_read(job: LandJob) -> None:
    store = MemoryStore(objects={index_file(1): b"garbage"})
    assert outcomes(run(job, store, plan(0))) == [LANDED]
    assert store.objects[index_file(1)] == index_text(1)


@pytest.mark.parametrize("fault", ["hang", "late"])
@pytest.mark.parametrize("first", [1, 2])
def test_an_index_put_that_ends_late_never_sets_it_back(job: LandJob, fault: str, first: int) -> None:
    store = standing_files(first - 1) if first > 1 else MemoryStore()
    store.begin(fault, "CDC.index")
    assert outcomes(run(job, store, plan(0, number=first))) == [HUNG]
    healthy = MemoryStore(objects=store.objects)  # the same store, by a way that does not hang
    assert outcomes(run(job, healthy, plan(0, number=first), plan(1, number=first + 1))) == [LANDED, LANDED]
    store.end(fault, "CDC.index")
    time.sleep(0.1)
    assert store.objects[index_file(1)] == index_text(first + 1)
    assert len(landed_lines(store)["shop.t1"]) == first + 1


def test_an_index_that_somebody_changes_in_between_is_read_again(job: LandJob) -> None:
    class Meddled(MemoryStore):
        left = 2

        def swap(self, path: str, data: bytes, tag: str) -> str | None:
            if self.left and path == index_file(1):
                self.left -= 1
                self.objects[path] = b"CDC%020d.csv\n" % (3 - self.left)
            return super().swap(path, data, tag)

    store = Meddled(objects=dict(standing_files(4).objects))
    assert outcomes(run(job, store, plan(0, number=5))) == [LANDED]
    assert store.objects[index_file(1)] == index_text(5)
    store = Meddled(objects=dict(standing_files(4).objects))
    store.left = 99
    (receipt,) = run(job, store, plan(0, number=5))
    assert receipt["outcome"] == UNFINISHED
    assert "was changed by somebody else each time" in receipt["error"]


# -- files of another writer -------------------------------------------------------------------------------------------


def foreign_files(index: int | None, *numbers: int) -> MemoryStore:
    """Our version's schema file, these data files and an index, as another writer left them."""
    store = standing(VERSION)
    store.objects |= {data_file(1, number): b"theirs" for number in numbers}
    if index is not None:
        store.objects[index_file(1)] = index_text(index)
    return store


@pytest.mark.parametrize(
    ("index", "numbers", "last"),
    [(None, (), 0), (2, (1, 2), 2), (2, (1, 2, 3, 4), 4), (None, (1,), 1), (2, (), 2), (1, (1, 3), 1)],
)
def test_in_a_directory_of_another_writer_the_last_file_is_told(
    job: LandJob, index: int | None, numbers: tuple[int, ...], last: int
) -> None:
    store = foreign_files(index, *numbers)
    before = dict(store.objects)
    (receipt,) = run(replace(job, foreign=True), store, plan(0, schema=CHECK, number=7))
    assert (receipt["outcome"], receipt["found_version"], receipt["found_number"]) == (ELSEWHERE, VERSION, last)
    assert store.objects == before
    (receipt,) = run(replace(job, foreign=True), store, plan(0, schema=CHECK, number=last + 1))
    assert receipt["outcome"] == ELSEWHERE, "the number must be on record before a file has it"
    (receipt,) = run(replace(job, foreign=True), store, plan(0, number=last + 1))
    assert receipt["outcome"] == LANDED
    assert store.objects[index_file(1)] == index_text(last + 1)
    assert all(store.objects[path] == before[path] for path in before if path != index_file(1)), "nothing is replaced"


def test_a_table_new_to_a_prefix_of_another_writer_gets_its_schema_file_before_its_number(job: LandJob) -> None:
    store = MemoryStore()
    (receipt,) = run(replace(job, foreign=True), store, plan(0, schema=CHECK))
    assert (receipt["outcome"], receipt["found_version"], receipt["found_number"]) == (ELSEWHERE, VERSION, 0)
    assert list(store.objects) == [schema_file(VERSION)]


def test_once_a_directory_is_settled_nobody_looks_again(job: LandJob) -> None:
    store = foreign_files(2, 1, 2)
    assert outcomes(run(replace(job, foreign=True), store, plan(0, number=3))) == [LANDED]
    assert [op for op, _ in store.calls] == ["create", "get", "swap"]


def test_past_the_index_of_an_older_version_a_foreign_file_counts_too(job: LandJob) -> None:
    store = standing(VERSION - 2)
    old = f"shop/t1/{VERSION - 2}/{DATE}"
    store.objects[f"{old}/meta/CDC.index"] = index_text(5)
    store.objects[f"{old}/CDC{6:020d}.csv"] = b"theirs"
    for foreign, last in ((False, 5), (True, 6)):
        (receipt,) = run(replace(job, foreign=foreign), store, plan(0, schema=CHECK))
        assert (receipt["outcome"], receipt["found_version"], receipt["found_number"]) == (ELSEWHERE, VERSION - 2, last)


# -- one thread or several ---------------------------------------------------------------------------------------------


class Company(MemoryStore):
    """Puts a data file only when another is being put, in another thread."""

    def __post_init__(self) -> None:
        self.together = threading.Barrier(2)

    def create(self, path: str, head: bytes, slices: Any, beat: Any) -> None:
        self.together.wait(timeout=10.0)
        super().create(path, head, slices, beat)


def test_where_lanes_wait_for_a_near_store_another_thread_comes(job: LandJob) -> None:
    store = Company(concurrency=4)
    receipts = run(having(job, stall_s=20.0), store, *(plan(n, table=n) for n in range(1, 9)))
    assert outcomes(receipts) == [LANDED] * 8


def test_where_lanes_do_not_wait_one_thread_lands_all(job: LandJob) -> None:
    threads = set()

    class Noting(MemoryStore):
        def create(self, path: str, head: bytes, slices: Any, beat: Any) -> None:
            threads.add(threading.get_ident())
            super().create(path, head, slices, beat)

    run(job, Noting(concurrency=4), *(plan(n, table=n) for n in range(1, 50)))
    assert len(threads) == 1


# -- an index whose tag is its content ---------------------------------------------------------------------------------


def test_on_files_an_index_is_not_read_before_it_is_replaced(job: LandJob, tmp_path: Path) -> None:
    store = FileStore(tmp_path / "sink")
    store.prepare()
    requests = [run(job, store, plan(0, number=number))[0]["requests"] for number in (1, 2, 3)]
    assert requests == [2, 2, 2], "data and index"
    assert store.get(index_file(1)) == b"CDC00000000000000000003.csv\n"


@pytest.mark.parametrize("existing", ["", "shop/t1/meta", f"shop/t1/{VERSION}"])
def test_on_files_a_new_table_gets_its_directories_at_once(job: LandJob, tmp_path: Path, existing: str) -> None:
    made = list[str]()

    class Noting(FileStore):
        def make_folders(self, paths: Sequence[str]) -> None:
            made.extend(paths)
            super().make_folders(paths)

    store = Noting(tmp_path / "sink")
    store.prepare()
    (tmp_path / "sink" / existing).mkdir(parents=True, exist_ok=True)
    receipt = run(job, store, plan(0, schema=NEW))[0]
    assert (receipt["outcome"], receipt["requests"]) == (LANDED, 3)
    assert made == ["shop/t1", "shop/t1/meta", f"shop/t1/{VERSION}", folder(1), f"{folder(1)}/meta"]
    assert store.get(data_file(1, 1)) == LINE


def test_on_files_a_sink_that_went_away_is_not_begun_anew_by_a_new_table(job: LandJob, tmp_path: Path) -> None:
    receipt = run(job, FileStore(tmp_path / "sink"), plan(0, schema=NEW))[0]
    assert receipt["outcome"] == UNFINISHED
    assert not (tmp_path / "sink").exists()


@pytest.mark.parametrize("says", ["CDC00000000000000000001.csv\n", "nothing", None])
def test_an_index_that_says_something_else_is_read_and_put_right(
    job: LandJob, tmp_path: Path, says: str | None
) -> None:
    store = FileStore(tmp_path / "sink")
    store.prepare()
    if says is not None:
        store.put(index_file(1), says.encode())
    receipt = run(job, store, plan(0, number=3))[0]
    assert (receipt["outcome"], receipt["requests"]) == (LANDED, 4), "data, a swap in vain, a look, a swap"
    assert store.get(index_file(1)) == b"CDC00000000000000000003.csv\n"


def test_an_index_that_is_further_stays_and_is_a_conflict(job: LandJob, tmp_path: Path) -> None:
    store = FileStore(tmp_path / "sink")
    store.prepare()
    store.put(index_file(1), b"CDC00000000000000000007.csv\n")
    assert outcomes(run(job, store, plan(0, number=3))) == [CONFLICT]
    assert store.get(index_file(1)) == b"CDC00000000000000000007.csv\n"


# -- schema files of DDLs ----------------------------------------------------------------------------------------------


def ddl_file(table: int, query: str = "ALTER ...") -> SchemaFile:
    text = schema_file_text("shop", f"t{table}", VERSION, SHAPE, query, 5)
    return SchemaFile(f"shop/t{table}/meta/schema_{VERSION}_{table:010d}.json", text)


def run_ddls(job: LandJob, store: Store, *plans: SchemaPlan) -> list[Receipt]:
    receipts = land_schemas(plans, having(job, open_store=lambda *_: store).options)
    return sorted(receipts.to_pylist(), key=lambda receipt: receipt["file"])


def test_the_schema_files_of_a_ddl_are_put_in_order_and_get_one_receipt(job: LandJob) -> None:
    store, files = MemoryStore(), [ddl_file(2), ddl_file(1)]
    (receipt,) = run_ddls(job, store, SchemaPlan(7, files))
    assert (receipt["file"], receipt["outcome"], receipt["requests"]) == (7, LANDED, 2)
    assert store.calls == [("create_bytes", file.path) for file in files]
    assert store.objects == {file.path: file.text.encode() for file in files}


def test_a_ddl_that_fails_holds_up_no_other(job: LandJob) -> None:
    store = MemoryStore()
    store.begin("unavailable", "/t1/")
    receipts = run_ddls(job, store, SchemaPlan(0, [ddl_file(1), ddl_file(2)]), SchemaPlan(1, [ddl_file(3)]))
    store.end("unavailable", "/t1/")
    assert outcomes(receipts) == [UNFINISHED, LANDED]
    assert list(store.objects) == [ddl_file(3).path]
    assert outcomes(run_ddls(job, store, SchemaPlan(0, [ddl_file(1), ddl_file(2)]))) == [LANDED]


def test_a_schema_file_that_lacks_the_query_gets_it_and_one_with_other_columns_stays(job: LandJob) -> None:
    file = ddl_file(1)
    store = MemoryStore(objects={file.path: ddl_file(1, query="").text.encode()})
    (receipt,) = run_ddls(job, store, SchemaPlan(0, [file]))
    assert (receipt["outcome"], store.objects[file.path]) == (LANDED, file.text.encode())
    store.objects[file.path] = other = file.text.replace('"v"', '"w"').encode()
    (receipt,) = run_ddls(job, store, SchemaPlan(0, [file]))
    assert receipt["outcome"] == CONFLICT
    assert "lists other columns" in receipt["error"]
    assert store.objects[file.path] == other


# -- what crosses the wire ---------------------------------------------------------------------------------------------


def test_plans_and_receipts_have_the_fields_of_their_tables() -> None:
    assert list(FilePlan._fields) == PLANS.names
    assert [field.name for field in fields(ReceiptRow)] == RECEIPTS.names


def test_a_plan_comes_back_from_its_table_as_it_was() -> None:
    rows = [plan(0), plan(1, table=2, selected=[0, 1], segments=[0, 4], offsets=[3, 0], lengths=[5, 6])]
    assert [found._asdict() for found in file_plans(pa.Table.from_pylist(rows, schema=PLANS))] == rows


def test_a_landing_that_was_lost_is_unfinished_for_every_file() -> None:
    receipts = unanswered([3, 5], "the landing was lost").to_pylist()
    assert [(receipt["file"], receipt["outcome"], receipt["error"]) for receipt in receipts] == [
        (3, UNFINISHED, "the landing was lost"),
        (5, UNFINISHED, "the landing was lost"),
    ]
