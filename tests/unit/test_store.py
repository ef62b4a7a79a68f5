"""The door for bytes: one contract for every store, and what is special about files."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tidegate.errors import BadSetting, SpoolLost, StoreConflict, StoreRefused, StoreUnavailable
from tidegate.executor.segments import FileSlices
from tidegate.executor.spool import Slice
from tidegate.format.layout import HALF_WRITTEN
from tidegate.storage.access import REMOTE
from tidegate.storage.files import FileStore
from tidegate.storage.store import NoopStore, Store, content_tag, open_store
from tidegate.testing import FaultyFileStore, MemoryStore, until

PATH = "shop/orders/437/2026-01-31/CDC00000000000000000001.csv"


def ignore(_: int) -> None:
    pass


def segment(tmp_path: Path, data: bytes, name: str = "0-0-0-0.seg") -> str:
    path = tmp_path / name
    path.write_bytes(data)
    return str(path)


def slices(*pieces: Slice) -> FileSlices:
    return FileSlices(pieces)


class Named(FileStore):
    """As in a file system where every file has a name from the start."""

    nameless = False


@pytest.fixture(params=[FileStore, Named])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> FileStore:
    store: FileStore = request.param(tmp_path / "sink")
    store.prepare()
    return store


def remote_store(request: pytest.FixtureRequest, name: str) -> Store:
    store: Store = request.getfixturevalue(f"{name}_server").store()
    return store


@pytest.fixture(params=["file", "named", "memory", "faulty", "s3", "gs", "azblob"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    makers: dict[str, Callable[[], Store]] = {
        "file": lambda: FileStore(tmp_path / "sink"),
        "named": lambda: Named(tmp_path / "sink"),
        "memory": MemoryStore,
        "faulty": lambda: FaultyFileStore(str(tmp_path / "control"))(f"file://{tmp_path}/sink"),
        **{name: partial(remote_store, request, name) for name in REMOTE},
    }
    made = makers[request.param]()
    made.prepare()
    return made


# -- every store -----------------------------------------------------------------------------------------------------


def test_a_created_object_is_its_head_and_its_slices_in_order(store: Store, tmp_path: Path) -> None:
    one, two = segment(tmp_path, b"0123456789", "a.seg"), segment(tmp_path, b"abcdefghij", "b.seg")
    store.create(PATH, b"head,", slices((two, 2, 3), (one, 0, 2), (one, 8, 2), (two, 0, 1)), ignore)
    assert store.get(PATH) == b"head,cde0189a"
    assert store.size(PATH) == 13


def test_creating_again_with_the_same_bytes_is_taken_as_the_lost_answer(store: Store, tmp_path: Path) -> None:
    place = segment(tmp_path, b"first")
    store.create(PATH, b"h", slices((place, 0, 5)), ignore)
    store.create(PATH, b"hf", slices((place, 1, 2), (place, 3, 2)), ignore)
    assert store.get(PATH) == b"hfirst"


def test_creating_again_with_other_bytes_is_a_conflict_and_changes_nothing(store: Store, tmp_path: Path) -> None:
    store.create(PATH, b"", slices((segment(tmp_path, b"first"), 0, 5)), ignore)
    with pytest.raises(StoreConflict, match=r"CDC.*exists with other content than the 5 bytes"):
        store.create(PATH, b"", slices((segment(tmp_path, b"other"), 0, 5)), ignore)
    with pytest.raises(StoreConflict, match=r"CDC.*exists with 5 bytes where 6 were"):
        store.create(PATH, b"", slices((segment(tmp_path, b"second"), 0, 6)), ignore)
    assert store.get(PATH) == b"first"


def test_an_empty_object_can_be_created_and_read(store: Store) -> None:
    store.create(PATH, b"", slices(), ignore)
    store.create(PATH, b"", slices(), ignore)
    assert (store.get(PATH), store.size(PATH), store.get_range(PATH, 0, 4)) == (b"", 0, b"")


def test_a_small_object_is_created_once(store: Store) -> None:
    assert store.create_bytes("a/b", b"1")
    assert not store.create_bytes("a/b", b"2")
    assert store.get("a/b") == b"1"


def test_of_many_that_create_the_same_object_one_succeeds(store: Store, request: pytest.FixtureRequest) -> None:
    if "[s3]" in request.node.name:
        pytest.skip("moto looks and writes in two steps; S3 itself does it in one")
    won: list[int] = []
    threads = [
        threading.Thread(target=lambda n=n: won.extend([n] if store.create_bytes("a", b"%d" % n) else []))
        for n in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert store.get("a") == b"%d" % won[0]


def test_a_put_replaces_what_is_there(store: Store) -> None:
    store.put("x/meta/CDC.index", b"1")
    store.put("x/meta/CDC.index", b"22")
    assert store.get("x/meta/CDC.index") == b"22"


def test_what_is_not_there_is_nothing(store: Store) -> None:
    assert store.get("no/such") is None
    assert store.size("no/such") is None
    assert list(store.list("no")) == []
    store.delete("no/such")


def test_a_swap_replaces_only_what_was_read(store: Store) -> None:
    store.put("x/meta", b"1")
    found = store.get_tagged("x/meta")
    assert found is not None
    data, tag = found
    assert data == b"1"
    assert store.swap("x/meta", b"2", tag) is not None
    assert store.swap("x/meta", b"3", tag) is None, "it is another one by now"
    assert store.get("x/meta") == b"2"
    fresh = store.get_tagged("x/meta")
    assert fresh is not None
    assert store.swap("x/meta", b"4", fresh[1]) is not None
    store.delete("x/meta")
    assert store.swap("x/meta", b"5", fresh[1]) is None, "it is gone"
    assert store.get("x/meta") is None


def test_a_swap_without_a_tag_makes_what_is_not_there(store: Store) -> None:
    assert store.get_tagged("x/meta") is None
    assert store.swap("x/meta", b"1", "") is not None
    assert store.swap("x/meta", b"2", "") is None
    assert store.get("x/meta") == b"1"


def test_a_range_is_cut_at_the_end(store: Store) -> None:
    store.put("a", b"0123456789")
    assert store.get_range("a", 2, 3) == b"234"
    assert store.get_range("a", 8, 30) == b"89"
    assert store.get_range("a", 10, 4) == store.get_range("a", 50, 4) == store.get_range("a", 3, 0) == b""
    assert store.get_range("b", 0, 4) is None


def test_the_time_of_writing_is_the_store_s(store: Store) -> None:
    store.put("a", b"1")
    written = store.modified("a")
    assert written is not None
    assert abs(written - time.time()) < 60
    assert store.modified("b") is None


ODD_NAMES = [
    *("a b", " lead", "trail ", "100%", "%20", "a%2Fb", "a#b", "q?x=1&y=2", "a+b", "a=b", 'a"b', "it's", "a,b;c"),
    *(
        "*:<>|",
        "{y}",
        "[z]",
        "a^b`c",
        "~x",
        "..x",
        "x..",
        "$",
        "@",
        "!",
        "été",
        "日本",
        "\U0001f600",
        "e\u0301",
        "a\u00a0b",
    ),
]


def test_odd_names_come_back_as_they_are(store: Store) -> None:
    for number, name in enumerate(ODD_NAMES):
        assert store.create_bytes(f"odd/{name}/{name}.csv", b"%d" % number)
    assert sorted(path for path, _ in store.list("odd")) == sorted(f"odd/{name}/{name}.csv" for name in ODD_NAMES)
    for number, name in enumerate(ODD_NAMES):
        assert store.get(f"odd/{name}/{name}.csv") == b"%d" % number
        assert [path for path, _ in store.list(f"odd/{name}")] == [f"odd/{name}/{name}.csv"]


def test_a_listing_names_everything_below_with_its_size(store: Store) -> None:
    for path in ("a/1", "a/b/2", "ab/3", "a/bc", "c"):
        store.put(path, path.encode())
    assert sorted(store.list("a")) == [("a/1", 3), ("a/b/2", 5), ("a/bc", 4)]
    assert list(store.list("a/b")) == [("a/b/2", 5)], "names end at a slash"
    assert list(store.list("c")) == [], "an object is not below itself"
    assert sorted(store.list("")) == [("a/1", 3), ("a/b/2", 5), ("a/bc", 4), ("ab/3", 4), ("c", 1)]


def test_a_directory_is_listed_whole_and_in_order(store: Store) -> None:
    names = [f"many/{number:04d}" for number in range(130)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: store.put(name, b""), reversed(names)))
    assert [path for path, _ in store.list("many")] == names


def test_a_deleted_object_is_gone(store: Store) -> None:
    store.put("a", b"1")
    store.delete("a")
    assert store.get("a") is None


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/x", "a/.."])
def test_names_never_leave_the_sink(store: Store, path: str) -> None:
    if isinstance(store, MemoryStore):
        pytest.skip("a dict has no outside")
    for act in (
        lambda: store.put(path, b"x"),
        lambda: store.create(path, b"x", slices(), ignore),
        lambda: store.create_bytes(path, b"x"),
        lambda: store.swap(path, b"x", ""),
        lambda: store.get(path),
        lambda: store.get_range(path, 0, 1),
        lambda: store.size(path),
        lambda: store.delete(path),
        lambda: list(store.list(path)),
    ):
        with pytest.raises(StoreRefused, match="leads out of the sink"):
            act()


def test_each_piece_announces_itself_and_a_cancelled_create_leaves_nothing(store: Store, tmp_path: Path) -> None:
    def cancel(size: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.create(PATH, b"", slices((segment(tmp_path, b"data"), 0, 4)), cancel)
    assert list(store.list("")) == []


def test_a_lost_segment_is_named_and_nothing_is_created(store: Store, tmp_path: Path) -> None:
    with pytest.raises(SpoolLost, match=r"gone\.seg"):
        store.create(PATH, b"", slices((str(tmp_path / "gone.seg"), 0, 4)), ignore)
    with pytest.raises(SpoolLost, match="ends 6 bytes too early"):
        store.create(PATH, b"", slices((segment(tmp_path, b"data"), 0, 10)), ignore)
    assert list(store.list("")) == []


# -- files -----------------------------------------------------------------------------------------------------------


def test_nobody_sees_half_a_file(files: FileStore, tmp_path: Path) -> None:
    data = os.urandom(20 << 20)
    seen: list[list[str]] = []
    beats: list[int] = []

    def beat(size: int) -> None:
        beats.append(size)
        seen.append([path for path, _ in files.list("")])

    files.create(PATH, b"", slices((segment(tmp_path, data), 0, len(data))), beat)
    assert all(path.startswith("_tidegate/tmp/") for paths in seen for path in paths)
    assert any(seen) != files.nameless
    assert sum(beats) == len(data)
    assert len(beats) >= 3, "a large file shows progress on the way"
    assert files.get(PATH) == data
    assert list(files.list("_tidegate")) == []


def test_a_put_is_seen_whole_or_not_at_all(files: FileStore) -> None:
    texts = {b"1" * 50_000, b"2" * 80_000}
    files.put("index", b"1" * 50_000)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            for text in texts:
                files.put("index", text)

    writer = threading.Thread(target=write)
    writer.start()
    seen = {files.get("index") for _ in range(300)}
    stop.set()
    writer.join()
    assert seen <= texts


def test_prepare_removes_what_a_killed_process_left_half_written(files: FileStore, tmp_path: Path) -> None:
    (tmp_path / "sink" / "_tidegate" / "tmp" / "deadbeef").write_text("half")
    (tmp_path / "sink" / "_tidegate" / "journal").mkdir()
    (tmp_path / "sink" / "_tidegate" / "journal" / "1.entry").write_text("keep")
    FileStore(tmp_path / "sink").prepare()
    assert [path for path, _ in files.list("")] == ["_tidegate/journal/1.entry"]


def test_a_temporary_file_cleaned_up_by_another_process_may_pass_and_does_not_hang(
    files: FileStore, tmp_path: Path
) -> None:
    def clean_up_at_the_end(size: int) -> None:
        if size == 0:
            FileStore(tmp_path / "sink").prepare()

    def create() -> None:
        files.create(PATH, b"", slices((segment(tmp_path, b"data"), 0, 4)), clean_up_at_the_end)

    if files.nameless:
        create()
        assert files.get(PATH) == b"data", "nobody can clean up what has no name"
        return
    with pytest.raises(StoreUnavailable):
        create()
    assert files.get(PATH) is None


def test_what_a_killed_process_left_of_an_index_goes_with_the_next_one(files: FileStore, tmp_path: Path) -> None:
    files.create_bytes("x/CDC.index", b"1")
    (tmp_path / "sink" / "x" / f"CDC.index{HALF_WRITTEN}").write_bytes(b"a longer half")
    assert files.swap("x/CDC.index", b"2", content_tag(b"1")) is not None
    assert list(files.list("")) == [("x/CDC.index", 1)]
    assert files.get("x/CDC.index") == b"2"


def test_a_swap_waits_for_one_that_is_paused_and_then_sees_what_that_one_wrote(
    files: FileStore, tmp_path: Path
) -> None:
    files.create_bytes("x/CDC.index", b"1")
    with open(tmp_path / "sink" / "x" / "CDC.index", "rb+") as paused, ThreadPoolExecutor() as threads:
        fcntl.flock(paused, fcntl.LOCK_EX)
        waits = re.compile(rf"-> FLOCK .*:{os.fstat(paused.fileno()).st_ino} ")
        late = threads.submit(files.swap, "x/CDC.index", b"2", content_tag(b"1"))
        until(lambda: waits.search(Path("/proc/locks").read_text()) is not None, 10)
        assert not late.done()
        files.put("x/CDC.index", b"1")  # another file, with the same bytes
        fcntl.flock(paused, fcntl.LOCK_UN)
        assert not late.result(10)
    assert files.get("x/CDC.index") == b"1"


@pytest.mark.parametrize("path", ["a" * 300, "file/below", "folder"])
def test_a_name_that_cannot_be_written_is_refused_and_named(files: FileStore, path: str) -> None:
    files.put("file", b"")
    files.put("folder/x", b"")
    with pytest.raises(StoreRefused, match=path[:20]):
        files.put(path, b"x")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
def test_missing_rights_are_refused_and_an_unreadable_folder_does_not_look_empty(
    files: FileStore, tmp_path: Path
) -> None:
    files.put("shop/x", b"")
    (tmp_path / "sink" / "shop").chmod(0o000)
    with pytest.raises(StoreRefused, match="Permission denied"):
        files.put("shop/y", b"")
    with pytest.raises(StoreRefused, match="Permission denied"):
        list(files.list("shop"))
    (tmp_path / "sink" / "shop").chmod(0o700)


def test_a_sink_that_went_away_may_come_back(files: FileStore, tmp_path: Path) -> None:
    writes: list[Callable[[], object]] = [
        lambda: files.put("a", b"1"),
        lambda: files.put("shop/a", b"1"),
        lambda: files.create_bytes("shop/a", b"1"),
        lambda: files.create(PATH, b"1", slices(), ignore),
    ]
    (tmp_path / "sink").rename(tmp_path / "elsewhere")
    for write in writes:
        with pytest.raises(StoreUnavailable):
            write()
    assert not (tmp_path / "sink").exists()
    (tmp_path / "sink").mkdir()  # a place where nothing is mounted any more
    for write in writes:
        with pytest.raises(StoreUnavailable):
            write()
    (tmp_path / "sink").rmdir()
    (tmp_path / "elsewhere").rename(tmp_path / "sink")
    files.put("a", b"1")
    assert files.get("a") == b"1"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root may mount a small tmpfs")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_may_pass_and_leaves_nothing_half_written(small_disk: Path, tmp_path: Path) -> None:
    store = FileStore(small_disk)
    store.prepare()
    with pytest.raises(StoreUnavailable, match="No space left"):
        store.create(PATH, b"", slices((segment(tmp_path, b"x" * 1_000_000), 0, 1_000_000)), ignore)
    assert list(store.list("")) == []


def test_a_spool_on_another_file_system_is_copied_the_same(files: FileStore) -> None:
    ram = Path("/dev/shm")
    if not ram.is_dir():
        pytest.skip("no RAM-backed directory here")
    path = ram / f"tidegate-test-{os.getpid()}.seg"
    data = os.urandom(9 << 20)
    try:
        path.write_bytes(data)
        files.create(PATH, b"h", slices((str(path), 5, len(data) - 5)), ignore)
    finally:
        path.unlink()
    assert files.get(PATH) == b"h" + data[5:]


def test_the_store_is_opened_by_its_uri(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/a%20b")
    store.prepare()
    assert (tmp_path / "a b").is_dir()
    assert isinstance(open_store("noop://"), NoopStore)
    with pytest.raises(BadSetting, match="file:///absolute/path"):
        open_store("gopher://x")


def test_the_noop_store_stores_nothing() -> None:
    store = NoopStore()
    store.prepare()
    store.put("a", b"1")
    store.create(PATH, b"", slices(("nowhere", 0, 4)), ignore)
    assert store.create_bytes("b", b"1")
    store.delete("a")
    assert (store.get("a"), store.size("a"), list(store.list(""))) == (None, None, [])
