"""A damaged journal or `metadata`: `check` and a start say the same remedy, and each step of it leads to a whole sink.

These are the steps of the repair guide in docs/operations.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tidegate.clock import SystemClock
from tidegate.config.settings import Settings, load_settings
from tidegate.driver.changefeed import Changefeed
from tidegate.driver.entries import DamagedJournal, object_of
from tidegate.driver.inspection import UnreadableMetadata
from tidegate.errors import TidegateError
from tidegate.format.layout import parse_metadata
from tidegate.storage.files import FileStore
from tidegate.testing import FakeClock, MemoryStore, TinySource, feed, landed_lines, open_changefeed
from tidegate.tools.check import OK, PROBLEM, WARNING, Line, preflight

SOURCE = TinySource(tables=2, batches=4, rows=2)
JOURNAL = "_tidegate/journal/"


class Old(MemoryStore):
    """Nobody has written here for an hour."""

    def modified(self, path: str) -> float | None:
        return time.time() - (0.0 if "/check/" in path else 3600.0) if path in self.objects else None


def run(store: MemoryStore, spool: Path, batches: range) -> Changefeed:
    """A run that lands these batches and is killed."""
    changefeed = open_changefeed(store, spool, FakeClock())
    try:
        for n in batches:
            feed(changefeed, n, SOURCE.batch(n), str(n))
            changefeed.ledger.planner.closing = True
            while changefeed.landing.land_next():
                pass
            changefeed.scribe.write_progress()
    finally:
        changefeed.life.fail(TidegateError("killed"))
        changefeed.close()
    return changefeed


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    """A sink with two batches of four, a snapshot, and entries after it."""
    store = Old()
    run(store, tmp_path / "first", range(2))
    return store


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings("file:///sink", None, {"spool.dir": str(tmp_path / "spool")})


def checked(settings: Settings, store: MemoryStore) -> list[Line]:
    return [line for line in preflight(settings, store, SystemClock()) if line.verdict != OK]


def last(store: MemoryStore, kind: str) -> str:
    return max(path for path in store.objects if path.startswith(JOURNAL) and path.endswith(kind))


def middle(store: MemoryStore, kind: str) -> str:
    entries = sorted(path for path in store.objects if path.startswith(JOURNAL) and path.endswith(kind))
    return entries[-2]


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def zeros(data: bytes) -> bytes:
    return bytes(len(data))


def nothing(data: bytes) -> bytes:
    return b""


@pytest.mark.parametrize("damage", [cut, zeros, nothing])
@pytest.mark.parametrize(("which", "kind"), [(last, ".entry"), (middle, ".entry"), (last, ".snapshot")])
def test_a_damaged_object_of_the_journal_has_one_remedy_and_it_works(
    store: MemoryStore,
    settings: Settings,
    tmp_path: Path,
    which: Callable[[MemoryStore, str], str],
    kind: str,
    damage: Callable[[bytes], bytes],
) -> None:
    path = which(store, kind)
    store.objects[path] = damage(store.objects[path])
    [line] = checked(settings, store)
    assert (line.verdict, line.remedy) == (PROBLEM, DamagedJournal.remedy)
    assert path in line.sentence
    with pytest.raises(DamagedJournal) as refused:
        run(store, tmp_path / "second", range(2, 4))
    assert str(refused.value) == f"{line.sentence}; {line.remedy}"
    checkpoint = parse_metadata(store.objects["metadata"].decode())
    for each in [each for each in store.objects if each.startswith(JOURNAL)]:
        del store.objects[each]
    assert [line.verdict for line in checked(settings, store)] == []
    run(store, tmp_path / "third", range(4))
    assert parse_metadata(store.objects["metadata"].decode()) >= checkpoint
    for table, lines in landed_lines(store).items():
        assert {line.values for line in lines} == set(SOURCE.lines()[table]), "nothing is lost; some may repeat"


def test_an_entry_that_is_cut_anywhere_is_damaged(store: MemoryStore) -> None:
    for path in [path for path in store.objects if path.startswith(JOURNAL)]:
        data = store.objects[path]
        object_of(path, data)
        for size in range(len(data)):
            if size and _is_before_layouts(data, size):
                continue
            with pytest.raises(DamagedJournal):
                object_of(path, data[:size])


def _is_before_layouts(data: bytes, size: int) -> bool:
    """Where the first of two tables ends, the rest would be an object of its own."""
    return data[size - 8 : size] == b"\xff\xff\xff\xff\0\0\0\0"


def test_metadata_that_nobody_can_read_is_written_anew_from_our_journal(
    store: MemoryStore, settings: Settings, tmp_path: Path
) -> None:
    store.objects["metadata"] = b'{"checkpoint-'
    [line] = checked(settings, store)
    assert (line.verdict, line.remedy) == (WARNING, "start the changefeed: it writes the file anew")
    run(store, tmp_path / "second", range(2, 4))
    assert parse_metadata(store.objects["metadata"].decode()) == SOURCE.resolved_ts(3)
    assert checked(settings, store) == []


def test_metadata_of_ticdc_that_nobody_can_read_is_refused_with_the_remedy(settings: Settings, tmp_path: Path) -> None:
    objects = {"metadata": b"\xff{", "shop/t1/1/2026-01-31/CDC00000000000000000001.csv": b""}
    store = Old(objects=dict(objects))
    [line] = checked(settings, store)
    assert (line.verdict, line.remedy) == (PROBLEM, UnreadableMetadata.remedy)
    with pytest.raises(UnreadableMetadata) as refused:
        run(store, tmp_path / "second", range(2))
    assert str(refused.value) == f"{line.sentence}; {line.remedy}"
    assert store.objects == objects, "a refused sink stays as it is"
    store.objects["metadata"] = b'{"checkpoint-ts":%d}' % SOURCE.resolved_ts(0)
    assert checked(settings, store) == []
    run(store, tmp_path / "third", range(2))
    assert parse_metadata(store.objects["metadata"].decode()) == SOURCE.resolved_ts(1)


def test_a_check_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    for sink in ("there", "a/b/c"):
        settings = load_settings(f"file://{tmp_path}/{sink}", None, {"spool.dir": str(tmp_path / "spool")})
        assert {each.verdict for each in preflight(settings, FileStore(tmp_path / sink), SystemClock())} == {OK}
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == ["there"]
