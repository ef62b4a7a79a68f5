"""Files that are too large for one put are created once only, on every object store: nobody replaces what exists."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import boto3
import pytest

from tidegate.clock import SystemClock
from tidegate.config.settings import load_settings
from tidegate.errors import StoreConflict, StoreUnavailable
from tidegate.executor.chunks import chunk_bytes
from tidegate.executor.crew import BYTES_IN_FLIGHT, one_put_bytes
from tidegate.executor.segments import FileSlices
from tidegate.spark.wiring import changefeed_options
from tidegate.storage.objects import ObjectStore, open_object_store
from tidegate.storage.store import open_store
from tidegate.testing import tiny_settings
from tidegate.tools.check import OK, WARNING, preflight

PATH = "shop/orders/437/2026-01-31/CDC00000000000000000001.csv"
MIB = 1 << 20
ONE_PUT = 100  # bytes: what is larger goes the way of large files


@pytest.fixture(params=["s3", "gs", "azblob"])
def server(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(f"{request.param}_server")


def opened(server: Any, prefix: str, **keys: str) -> ObjectStore:
    settings = load_settings(server.uri(prefix, **keys))
    open_object_store.cache_clear()  # as another process
    return open_object_store(settings.sink_uri, replace(settings.access, one_put_bytes=ONE_PUT))


def file_of(tmp_path: Path, data: bytes, name: str = "0-0-0-0.seg") -> FileSlices:
    (tmp_path / name).write_bytes(data)
    return FileSlices(((str(tmp_path / name), 0, len(data)),))


def ignore(_: int) -> None:
    pass


def paths(store: ObjectStore) -> list[str]:
    return [path for path, _ in store.list("")]


def prefix_of(tmp_path: Path) -> str:
    return f"large-{tmp_path.name}"


def test_a_large_file_is_created_once_and_compared_by_content(server: Any, tmp_path: Path) -> None:
    store, data = opened(server, prefix_of(tmp_path)), os.urandom(MIB) * 18  # three parts
    whole = file_of(tmp_path, data)
    store.create(PATH, b"head,", whole, ignore)
    assert store.get(PATH) == b"head," + data
    store.create(PATH, b"head,", whole, ignore)
    with pytest.raises(StoreConflict, match="exists with other content"):
        store.create(PATH, b"HEAD,", whole, ignore)
    assert paths(store) == [PATH], "nothing is left under a temporary name"


@dataclass
class Pause:
    """Stops a writer at the n-th time that it announces all its bytes: at the start, and before the copy."""

    size: int
    times: int
    reached: threading.Event = field(default_factory=threading.Event)
    going: threading.Event = field(default_factory=threading.Event)

    def beat(self, size: int) -> None:
        if size == self.size:
            self.times -= 1
            if self.times == 0:
                self.reached.set()
                assert self.going.wait(60.0)


def run(act: Callable[[], None]) -> tuple[threading.Thread, list[BaseException]]:
    failed: list[BaseException] = []

    def guarded() -> None:
        try:
            act()
        except BaseException as exc:
            failed.append(exc)

    thread = threading.Thread(target=guarded, daemon=True)
    thread.start()
    return thread, failed


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("times", [1, 2], ids=["before it looks", "before the copy"])
def test_a_writer_that_was_paused_replaces_nothing(server: Any, tmp_path: Path, times: int, same: bool) -> None:
    old, new = (opened(server, prefix_of(tmp_path)) for _ in range(2))
    late, early = b"a" * 500, b"a" * 500 if same else b"b" * 400
    pause = Pause(len(late), times)
    thread, failed = run(lambda: old.create(PATH, b"", file_of(tmp_path, late), pause.beat))
    assert pause.reached.wait(60.0)
    new.create(PATH, b"", file_of(tmp_path, early, "1-0-0-0.seg"), ignore)
    pause.going.set()
    thread.join(60.0)
    assert [type(exc) for exc in failed] == ([] if same else [StoreConflict])
    assert new.get(PATH) == early
    assert paths(new) == [PATH]


def test_a_start_sweeps_what_a_paused_writer_has_uploaded_and_that_one_says_so(server: Any, tmp_path: Path) -> None:
    old, new = (opened(server, prefix_of(tmp_path)) for _ in range(2))
    pause = Pause(500, 2)
    thread, failed = run(lambda: old.create(PATH, b"", file_of(tmp_path, b"a" * 500), pause.beat))
    assert pause.reached.wait(60.0)
    assert [path.startswith("_tidegate/tmp/") for path in paths(new)] == [True]
    new.create("other", b"", file_of(tmp_path, b"b" * 500, "1-0-0-0.seg"), ignore)
    assert len(paths(new)) == 2, "a running writer leaves it alone"
    new.prepare()
    assert paths(new) == ["other"]
    pause.going.set()
    thread.join(60.0)
    assert [type(exc) for exc in failed] == [StoreUnavailable]
    assert "another writer has started" in str(failed[0])
    assert paths(new) == ["other"]


def test_a_large_file_that_is_cancelled_leaves_nothing(server: Any, tmp_path: Path) -> None:
    store, data = opened(server, prefix_of(tmp_path)), bytes(17 * MIB)

    class GivenUp(Exception):
        pass

    for count in (1, 2, 3, 5):
        beats: list[int] = []

        def cancel(size: int, most: int = count, beats: list[int] = beats) -> None:
            beats.append(size)
            if len(beats) == most:
                raise GivenUp

        with pytest.raises((GivenUp, StoreUnavailable)):
            store.create(PATH, b"", file_of(tmp_path, data), cancel)
        assert paths(store) == []


@pytest.mark.parametrize("lost", [True, False])
def test_a_copy_whose_answer_was_lost_is_found_by_the_next_try(server: Any, tmp_path: Path, lost: bool) -> None:
    """The answer is lost with the process: the file is there, its temporary object is still there, too."""
    store, data = opened(server, prefix_of(tmp_path)), b"a" * 500
    store.put("_tidegate/tmp/left", data)
    if lost:
        store.put(PATH, data)
    store.create(PATH, b"", file_of(tmp_path, data), ignore)
    assert store.get(PATH) == data
    store.prepare()
    assert paths(store) == [PATH]


# -- where copies cannot be had ----------------------------------------------------------------------------------------


def test_a_storage_class_is_kept_by_large_files_instead(s3_server: Any, tmp_path: Path) -> None:
    """A copy of the client's would have the bucket's own class."""
    store = opened(s3_server, prefix_of(tmp_path), storage_class="STANDARD_IA")
    store.create(PATH, b"", file_of(tmp_path, b"a" * 500), ignore)
    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "region_name": "us-east-1"}
    client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{s3_server.port}", **keys)
    found = client.head_object(Bucket="lake", Key=f"{prefix_of(tmp_path)}/{PATH}")
    assert found["StorageClass"] == "STANDARD_IA"
    assert not store.copies_if_absent("_tidegate/check/x")


def test_a_server_that_ignores_the_condition_of_copies_is_noticed(tmp_path: Path) -> None:
    credentials = tmp_path / "credentials.json"
    fields = {"type": "service_account", "disable_oauth": True, "gcs_base_url": ""}
    credentials.write_text(json.dumps(fields | dict.fromkeys(("client_email", "private_key", "private_key_id"), "")))
    command = [sys.executable, str(Path(__file__).parents[1] / "servers" / "gcs_server.py"), "lake", "careless"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            endpoint = f"http://127.0.0.1:{int(process.stdout.readline())}"
            settings = load_settings(f"gs://lake/p?endpoint={endpoint}&credentials-file={credentials}")
            store = open_object_store(settings.sink_uri, replace(settings.access, one_put_bytes=ONE_PUT))
            assert not store.copies_if_absent("_tidegate/check/x")
            store.create(PATH, b"", file_of(tmp_path, b"a" * 500), ignore)
            with pytest.raises(StoreConflict):
                store.create(PATH, b"", file_of(tmp_path, b"b" * 500), ignore)
            assert paths(store) == [PATH]
        finally:
            process.kill()


def test_encryption_by_the_server_goes_with_a_copy(s3_server: Any, tmp_path: Path) -> None:
    store = opened(s3_server, prefix_of(tmp_path), sse="AES256")
    store.create(PATH, b"", file_of(tmp_path, b"a" * 500), ignore)
    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "region_name": "us-east-1"}
    client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{s3_server.port}", **keys)
    found = client.head_object(Bucket="lake", Key=f"{prefix_of(tmp_path)}/{PATH}")
    assert found["ServerSideEncryption"] == "AES256"
    assert store.copies_if_absent("_tidegate/check/x")


# -- the size of one put, and the preflight ----------------------------------------------------------------------------


@pytest.mark.parametrize("file_size", [1024, MIB, 64 * MIB, 126 * MIB])
def test_a_file_that_is_flushed_by_size_is_one_put(tmp_path: Path, file_size: int) -> None:
    limit = one_put_bytes(file_size)
    assert limit == file_size + chunk_bytes(file_size)
    options = changefeed_options(tiny_settings(tmp_path, file_size_bytes=file_size), open_store)
    assert options.land.access.one_put_bytes == limit


@pytest.mark.parametrize("file_size", [128 * MIB, 512 * MIB])
def test_one_put_takes_no_more_memory_than_may_be_in_flight(file_size: int) -> None:
    assert one_put_bytes(file_size) == BYTES_IN_FLIGHT


def test_check_tries_the_copy_and_leaves_nothing(server: Any, tmp_path: Path) -> None:
    prefix = prefix_of(tmp_path)
    settings = replace(load_settings(server.uri(prefix)), spool_dir=str(tmp_path))
    store = opened(server, prefix)
    lines = {line.name: line for line in preflight(settings, store, SystemClock())}
    assert lines["large files"].verdict == OK
    assert "files over 65 MiB are created once only, too" in lines["large files"].sentence
    assert paths(store) == []


def test_check_warns_where_copies_cannot_be_had(s3_server: Any, tmp_path: Path) -> None:
    prefix = prefix_of(tmp_path)
    settings = replace(load_settings(s3_server.uri(prefix)), spool_dir=str(tmp_path))
    store = opened(s3_server, prefix, storage_class="STANDARD_IA")
    line = next(line for line in preflight(settings, store, SystemClock()) if line.name == "large files")
    assert (line.verdict, "only the journal keeps two writers apart" in line.sentence) == (WARNING, True)
    assert "file-size" in line.remedy
