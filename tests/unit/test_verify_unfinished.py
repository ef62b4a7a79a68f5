"""A run that is killed in the middle of a landing leaves a sink that `verify` knows, names, and does not call wrong."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tidegate.cli import main
from tidegate.config.settings import Settings
from tidegate.driver.changefeed import Changefeed
from tidegate.errors import StoreUnavailable, TidegateError, VerifyError
from tidegate.format.layout import METADATA, PathOptions, metadata_text, parse_data_path, parse_metadata
from tidegate.sources import open_source
from tidegate.storage.files import FileStore
from tidegate.testing import FakeClock, MemoryStore, feed, open_changefeed
from tidegate.tools.verify import Report, verify

SOURCE = "workload://sysbench?tables=2&rows=20&events=120&txn-rows=4&batch=2200&ddl=every:2s,kinds=add-column"
SETTINGS = Settings("file:///sink", "file", "tiny", "/spool")
SENTENCE = "the last run ended in the middle of a landing; the next start completes it"
Objects = dict[str, bytes]


def batches() -> list[list[dict[str, Any]]]:
    """The rows of the source, step by step."""
    source = open_source(SOURCE)
    offset, found = source.initial(), []
    while (end := source.latest(offset, 9_000, frozenset())) != offset:
        found.append(
            [row for split in source.splits(offset, end, 1) for b in source.read(split) for row in b.to_pylist()]
        )
        offset = end
    return found


BATCHES = batches()


def live(changefeed: Changefeed) -> None:
    """Read on from the journal's position, landing and recording after each batch."""
    clock = changefeed.clock
    assert isinstance(clock, FakeClock)
    position = changefeed.ledger.progress.position
    for n in range(0 if position is None else int(position) + 1, len(BATCHES)):
        feed(changefeed, n, BATCHES[n], str(n))
        clock.advance(5.0)
        while changefeed.landing.land_next():
            pass
        changefeed.scribe.write_progress()
    changefeed.scribe.write_progress()


def life(objects: Objects, spool: Path, script: list[str], after: str) -> MemoryStore:
    """One run over `objects`; after the script every write fails or none does. It lands one file after the other."""
    store = MemoryStore(script, after, objects, concurrency=1)
    with suppress(StoreUnavailable):
        changefeed = open_changefeed(store, spool, FakeClock())
        try:
            live(changefeed)
        finally:
            changefeed.life.fail(TidegateError("killed"))
            changefeed.close()
    return store


def killed_after(spool: Path, writes: int) -> Objects:
    objects: Objects = {}
    life(objects, spool, ["ok"] * writes, "unavailable")
    return objects


def verified(objects: Objects) -> Report:
    return verify(SOURCE, SETTINGS, MemoryStore(objects=objects))


def fault(objects: Objects) -> str:
    with pytest.raises(VerifyError) as caught:
        verified(objects)
    return str(caught.value)


@pytest.fixture(scope="module")
def writes(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The paths that a run without faults writes, in order."""
    store = life({}, tmp_path_factory.mktemp("spool"), [], "ok")
    assert verified(store.objects).unfinished == ""
    return [path for op, path in store.calls if op in ("create", "create_bytes", "put", "swap", "delete")]


def is_data(path: str) -> bool:
    return parse_data_path(path, PathOptions()) is not None


def test_a_run_killed_between_a_data_file_and_its_index_is_named_and_no_fault(
    tmp_path: Path, writes: list[str]
) -> None:
    """Every place where it may happen: in a new directory, and behind files that an index names."""
    places = [n for n, path in enumerate(writes) if is_data(path) and METADATA in writes[:n]]
    assert len(places) > 4
    for place in places:
        objects = killed_after(tmp_path, place + 1)
        report = verified(objects)
        assert report.unfinished == f"{SENTENCE} (written, and not yet in an index: {writes[place]})"
        life(objects, tmp_path, [], "ok")
        assert verified(objects).unfinished == "", "the next start has completed it"


def test_wherever_a_run_is_killed_verify_finds_no_fault(tmp_path: Path, writes: list[str]) -> None:
    """Schema files without data are among these states: they are written before the rows that need them."""
    said = set()
    for step in range(writes.index(METADATA) + 1, len(writes) + 1):
        said.add(verified(killed_after(tmp_path, step)).unfinished[: len(SENTENCE)])
    assert said == {"", SENTENCE}
    schemas = [n for n, path in enumerate(writes) if "/meta/schema_" in path and n > writes.index(METADATA)]
    assert schemas, "a schema file was the last write of one of these runs"


def unfinished(tmp_path: Path, writes: list[str]) -> tuple[Objects, str]:
    """A sink after a kill between a data file and its index, and that file."""
    place = max(n for n, path in enumerate(writes) if is_data(path))
    return killed_after(tmp_path, place + 1), writes[place]


def test_a_data_file_of_an_unfinished_landing_whose_bytes_were_not_planned_is_a_fault(
    tmp_path: Path, writes: list[str]
) -> None:
    objects, path = unfinished(tmp_path, writes)
    objects[path] = objects[path].replace(b"-", b"+", 1)
    assert f"{path} is beyond the index" in fault(objects), "no start would adopt it"


@pytest.mark.parametrize("change", ["of another size", "of another number", "without a journal", "with another writer"])
def test_a_data_file_beyond_the_index_that_no_plan_names_is_a_fault(
    tmp_path: Path, writes: list[str], change: str
) -> None:
    objects, path = unfinished(tmp_path, writes)
    assert verified(objects).unfinished
    if change == "of another size":
        objects[path] += b"x"
    elif change == "of another number":
        number = int(path[-24:-4])
        path = f"{path[:-24]}{number + 1:020d}.csv"
        objects[path] = b"x"
    elif change == "without a journal":
        for entry in [entry for entry in objects if entry.startswith("_tidegate/journal/")]:
            del objects[entry]
    else:
        objects[METADATA] = metadata_text(parse_metadata(objects[METADATA].decode()) + (1 << 40)).encode()
    assert path in fault(objects)


def test_a_journal_that_cannot_be_read_explains_nothing(tmp_path: Path, writes: list[str]) -> None:
    objects, path = unfinished(tmp_path, writes)
    last = max(entry for entry in objects if entry.startswith("_tidegate/journal/"))
    objects[last] = b"garbage"
    assert path in fault(objects)


def test_a_file_that_a_paused_process_of_an_old_writer_creates_late_is_known_too(
    tmp_path: Path, writes: list[str]
) -> None:
    objects, path = unfinished(tmp_path, writes)
    data = objects.pop(path)
    store = MemoryStore(objects=objects)
    changefeed = open_changefeed(store, tmp_path, FakeClock())  # a start, which finds the file missing
    changefeed.life.fail(TidegateError("killed"))
    changefeed.close()
    assert verified(objects).unfinished == ""
    objects[path] = data
    assert path in verified(objects).unfinished


def test_the_command_prints_the_sentence_and_succeeds(
    tmp_path: Path, writes: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    objects, path = unfinished(tmp_path, writes)
    store = FileStore(tmp_path / "sink")
    store.prepare()
    for each, data in objects.items():
        store.put(each, data)
    words = ["verify", "--source", SOURCE, "--sink", f"file://{tmp_path}/sink"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert f"\nnote: {SENTENCE} (written, and not yet in an index: {path})\nverified: " in out
    assert "  unfinished " not in out


def test_several_unfinished_files_are_counted(tmp_path: Path) -> None:
    objects: Objects = {}
    store = MemoryStore(objects=objects)
    changefeed = open_changefeed(store, tmp_path, FakeClock())
    clock = changefeed.clock
    assert isinstance(clock, FakeClock)
    for n in (0, 1):
        feed(changefeed, n, BATCHES[n], str(n))
    changefeed.scribe.write_progress()
    store.begin("unavailable", ".index")
    clock.advance(5.0)
    changefeed.landing.land_next()
    changefeed.life.fail(TidegateError("killed"))
    changefeed.close()
    assert sum(map(is_data, objects)) == 2
    assert " and 1 more)" in verified(objects).unfinished
