"""A process that was paused while it landed, and goes on when another has taken over: each change is there once.

The old writer runs in a thread on a way to the store of its own, on which it can be stopped before any call; the new
one is driven by hand. Both use the same objects.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tidegate.config.settings import load_settings
from tidegate.driver.changefeed import Changefeed
from tidegate.driver.journal import FencedOff
from tidegate.errors import StoreUnavailable, TidegateError
from tidegate.storage.objects import ObjectStore, open_object_store
from tidegate.storage.store import Beat, Slices, Store
from tidegate.testing import (
    START_TS,
    FakeClock,
    MemoryStore,
    change,
    feed,
    in_process_landers,
    landed_lines,
    layout_row,
    open_changefeed,
    resolved_row,
)

DAY_S = 86_400.0
CHANGES = [change(1, START_TS + n, n) for n in range(1, 21)]
ONE_ROW = 30  # a file size that gives every change a file of its own


@dataclass
class PausedStore(MemoryStore):
    """Stops whoever makes a call of this kind on such a path, until `go_on`."""

    stop_at: tuple[str, str] = ("", "")
    reached: threading.Event = field(default_factory=threading.Event)
    going: threading.Event = field(default_factory=threading.Event)

    def create(self, path: str, head: bytes, slices: Slices, beat: Beat) -> None:
        self._pause("create", path)
        super().create(path, head, slices, beat)

    def create_bytes(self, path: str, data: bytes) -> bool:
        self._pause("create_bytes", path)
        return super().create_bytes(path, data)

    def swap(self, path: str, data: bytes, tag: str) -> str | None:
        self._pause("swap", path)
        return super().swap(path, data, tag)

    def get(self, path: str) -> bytes | None:
        self._pause("get", path)
        return super().get(path)

    def _pause(self, op: str, path: str) -> None:
        if op == self.stop_at[0] and self.stop_at[1] in path and not self.going.is_set():
            self.reached.set()
            assert self.going.wait(20.0)

    def go_on(self) -> None:
        self.going.set()


@dataclass
class Writer:
    """A changefeed by hand; a position is the number of changes read."""

    changefeed: Changefeed
    batch: int = 0
    at: int = 0

    def __post_init__(self) -> None:
        self.at = int(self.changefeed.ledger.progress.position or 0)

    def read(self, upto: int) -> None:
        rows = [layout_row(), *CHANGES[self.at : upto], resolved_row(START_TS + upto)]
        feed(self.changefeed, self.batch, rows, str(upto))
        self.batch, self.at = self.batch + 1, upto

    def land(self, seconds: float = 5.0) -> None:
        self.clock.advance(seconds)
        while self.changefeed.landing.land_next():
            pass

    def step(self, upto: int) -> None:
        self.read(upto)
        self.land()
        self.changefeed.scribe.write_progress()

    @property
    def clock(self) -> FakeClock:
        assert isinstance(self.changefeed.clock, FakeClock)
        return self.changefeed.clock


class Scene:
    """An old writer, a new one, and the objects between them."""

    def __init__(self, tmp_path: Path) -> None:
        self.objects: dict[str, bytes] = {}
        self.tmp_path = tmp_path
        self.made: list[Changefeed] = []
        self.old_store = PausedStore(objects=self.objects)
        self.landing = threading.Thread(target=lambda: None)
        self.landing.start()
        self.wall_s = 0.0
        self.old = 0  # which of those made is the old writer

    def open(self, store: MemoryStore | None = None, **settings: Any) -> Writer:
        clock = FakeClock()
        clock.advance(self.wall_s)
        spool = self.tmp_path / f"spool{len(self.made)}"  # each process has its own
        self.made.append(open_changefeed(store or MemoryStore(objects=self.objects), spool, clock, **settings))
        return Writer(self.made[-1])

    def pause_old(
        self, moment: tuple[str, str], done: int, upto: int, *, restarted: bool = False, **settings: Any
    ) -> None:
        """The old writer has landed so many changes, and is stopped while it lands the next.

        It knows the tag of the last index, unless it was started again since.
        """
        old = self.open(self.old_store, **settings)
        if done:
            old.step(done)
        if restarted:
            old, self.old = self.open(self.old_store, **settings), 1
        self.old_store.stop_at = moment

        old.changefeed.jobs.run_files, old.changefeed.jobs.run_schemas = in_process_landers(stall_s=60.0)
        old.read(upto)

        def land() -> None:
            with suppress(FencedOff):  # if there is another round, its journal entry cannot be written any more
                old.land()

        self.landing = threading.Thread(target=land, daemon=True)
        self.landing.start()
        assert self.old_store.reached.wait(10.0), "it never came there"

    def old_goes_on(self) -> None:
        """To its end: what it has landed it can tell nobody, for it is fenced off."""
        self.old_store.go_on()
        self.landing.join(10.0)
        assert not self.landing.is_alive()
        scribe = self.made[self.old].scribe
        with pytest.raises(FencedOff):
            scribe.journal.record(scribe.head())

    def go_to_the_end(self, new: Writer | None, upto: int, **settings: Any) -> None:
        """Read on, and start again when it is told to."""
        for _ in range(4):
            new = new or self.open(**settings)
            try:
                if new.at < upto:
                    new.step(upto)
                new.land(120.0)
                assert new.changefeed.status().retrying == {}
                return
            except StoreUnavailable:
                new = None
        raise AssertionError("it starts again and again")

    def numbers(self) -> list[int]:
        """The changes that a reader sees, in order."""
        return [int(line.values[0] or b"") for line in landed_lines(MemoryStore(objects=self.objects))["shop.t1"]]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.old_store.go_on()
    made.landing.join(10.0)
    for changefeed in made.made:
        changefeed.life.fail(TidegateError("the test is over"))
        changefeed.close()


class Pause(NamedTuple):
    """Where the old writer is stopped, how much it had landed, and whether it was started again before."""

    done: int
    moment: tuple[str, str]
    restarted: bool = False

    def stop(self, scene: Scene, upto: int) -> None:
        scene.pause_old(self.moment, self.done, upto, restarted=self.restarted)


DATA, READ, INDEX = ("create", ".csv"), ("get", "CDC.index"), ("swap", "CDC.index")
FIRST = [Pause(0, moment) for moment in (("create_bytes", "schema_"), DATA, INDEX)]  # no index is read
LATER = [Pause(2, moment) for moment in (DATA, INDEX)]  # the tag of the last index is the condition
AGAIN = [Pause(2, moment, restarted=True) for moment in (DATA, READ, INDEX)]
PAUSES = FIRST + LATER + AGAIN


@pytest.mark.parametrize("upto", [4, 7], ids=["same cut", "other cut"])
@pytest.mark.parametrize("pause", PAUSES, ids=str)
def test_an_old_writer_that_goes_on_before_the_new_one_lands_does_no_harm(
    scene: Scene, pause: Pause, upto: int
) -> None:
    pause.stop(scene, 4)
    new = scene.open()
    scene.old_goes_on()
    scene.go_to_the_end(new, upto)
    scene.go_to_the_end(None, 12)
    assert scene.numbers() == list(range(1, 13))


@pytest.mark.parametrize("upto", [4, 7], ids=["same cut", "other cut"])
@pytest.mark.parametrize("pause", PAUSES, ids=str)
def test_an_old_writer_that_goes_on_after_the_new_one_landed_does_no_harm(
    scene: Scene, pause: Pause, upto: int
) -> None:
    pause.stop(scene, 4)
    new = scene.open()
    new.step(upto)
    scene.old_goes_on()
    assert scene.numbers() == list(range(1, upto + 1))
    scene.go_to_the_end(new, 10)
    scene.go_to_the_end(None, 12)
    assert scene.numbers() == list(range(1, 13))


@pytest.mark.parametrize("pause", PAUSES, ids=str)
def test_an_old_writer_that_outlives_several_new_ones_does_no_harm(scene: Scene, pause: Pause) -> None:
    pause.stop(scene, 4)
    for _ in range(3):
        scene.open()  # each dies before it lands anything
    new = scene.open()
    new.read(6)
    scene.old_goes_on()
    scene.go_to_the_end(new, 6)
    assert scene.numbers() == list(range(1, 7))


@pytest.mark.parametrize("waits", ["before", "after"])
@pytest.mark.parametrize("upto", [4, 7], ids=["same cut", "other cut"])
@pytest.mark.parametrize("pause", PAUSES, ids=str)
def test_past_midnight_an_old_writer_does_no_harm_either(scene: Scene, pause: Pause, upto: int, waits: str) -> None:
    pause.stop(scene, 4)
    scene.wall_s = DAY_S
    new = scene.open()
    if waits == "after":
        new.step(upto)
    scene.old_goes_on()
    scene.go_to_the_end(new, upto)
    scene.go_to_the_end(None, 12)
    assert scene.numbers() == list(range(1, 13))
    dates = {path.split("/")[3] for path in scene.objects if path.endswith(".csv")}
    assert dates == {"2026-01-31", "2026-02-01"}, "what the old one owed went to its day, the rest to the next"


@pytest.mark.parametrize("landed", [2, 3, 4])
def test_an_old_writer_with_several_files_goes_on_where_the_new_one_landed_some_of_them(
    scene: Scene, landed: int
) -> None:
    scene.pause_old(("create", ".csv"), 1, 5, file_size_bytes=ONE_ROW)  # files 2, 3, 4 and 5 are under way
    new = scene.open()
    for upto in range(2, landed + 1):
        new.step(upto)  # the same files as the old one planned
    scene.old_goes_on()
    scene.go_to_the_end(new, 9)  # another cut than the old one's
    scene.go_to_the_end(None, 12)
    assert scene.numbers() == list(range(1, 13))


@pytest.mark.parametrize("goes_on", ["early", "late"])
def test_past_midnight_a_lane_keeps_its_day_while_the_old_writer_may_write_there(scene: Scene, goes_on: str) -> None:
    scene.pause_old(("create", ".csv"), 1, 4, file_size_bytes=ONE_ROW)  # files 2, 3 and 4 are under way
    scene.wall_s = DAY_S
    new = scene.open()
    new.step(2)  # the same as file 2
    if goes_on == "early":
        scene.old_goes_on()
    scene.go_to_the_end(new, 8)
    if goes_on == "late":
        scene.old_goes_on()
    scene.go_to_the_end(None, 10)
    assert scene.numbers() == list(range(1, 11))
    assert any("/2026-02-01/" in path for path in scene.objects), "and leaves it when that is over"


def test_an_old_writer_stopped_between_two_files_of_a_lane_leaves_the_first_to_be_adopted(scene: Scene) -> None:
    scene.pause_old(("create", f"{3:020d}.csv"), 1, 5, file_size_bytes=ONE_ROW)
    new = scene.open()
    assert scene.numbers() == [1, 2]
    new.read(9)
    scene.old_goes_on()
    scene.go_to_the_end(new, 9)
    assert scene.numbers() == list(range(1, 10))


def test_a_paused_compaction_of_an_old_writer_deletes_nothing_of_the_new_one(scene: Scene) -> None:
    old = scene.open(scene.old_store)
    for upto in range(1, 5):
        old.step(upto)
    entries = [path for path in scene.objects if path.endswith(".entry")]
    stopping = threading.Event()

    def stop_once(op: str, path: str) -> None:
        if op == "list" and "journal" in path:
            stopping.set()
            assert scene.old_store.going.wait(20.0)

    listing = scene.old_store.list

    def slow_list(prefix: str) -> Iterator[tuple[str, int]]:
        found = list(listing(prefix))
        stop_once("list", prefix)
        return iter(found)

    scene.old_store.list = slow_list  # type: ignore[method-assign]
    scene.landing = threading.Thread(target=old.changefeed.scribe.compact, daemon=True)
    scene.landing.start()
    assert stopping.wait(10.0)
    assert len(entries) > 4
    new = scene.open()
    new.step(8)
    scene.old_goes_on()
    scene.go_to_the_end(None, 12)
    assert scene.numbers() == list(range(1, 13))


def test_a_second_writer_fences_off_the_first_at_its_next_step(scene: Scene) -> None:
    first = scene.open()
    first.step(2)
    second = scene.open()
    first.read(4)
    with pytest.raises(FencedOff, match="run only one changefeed per sink"):
        first.land()
    second.step(6)
    assert scene.numbers() == list(range(1, 7))


def test_metadata_past_ours_fences_us_off_and_stays(scene: Scene) -> None:
    writer = scene.open()
    writer.step(2)
    scene.objects["metadata"] = further = b'{"checkpoint-ts":%d}' % (START_TS + 100)
    writer.read(4)
    writer.land()
    with pytest.raises(FencedOff, match=f"checkpoint-ts {START_TS + 100}, which is past ours"):
        writer.changefeed.scribe.write_progress()
    assert scene.objects["metadata"] == further


def test_metadata_that_changes_under_a_paused_writer_is_not_set_back(scene: Scene) -> None:
    writer = scene.open(scene.old_store)
    writer.step(2)
    writer.read(4)
    writer.land()
    scene.old_store.stop_at = ("swap", "metadata")
    scene.landing = threading.Thread(target=writer.changefeed.scribe.write_progress, daemon=True)
    scene.landing.start()
    assert scene.old_store.reached.wait(10.0)
    new = scene.open()
    new.step(9)
    further = scene.objects["metadata"]
    scene.old_goes_on()
    assert scene.objects["metadata"] == further


@pytest.mark.parametrize("back_s", [60.0, DAY_S, 400 * DAY_S])
def test_a_clock_that_goes_back_sets_no_date_back(scene: Scene, back_s: float) -> None:
    scene.wall_s = 401 * DAY_S
    scene.open().step(2)
    scene.wall_s -= back_s
    writer = scene.open()
    writer.step(4)
    scene.wall_s += back_s + DAY_S
    scene.go_to_the_end(None, 6)
    assert scene.numbers() == list(range(1, 7))


# -- files of several parts on an object store -----------------------------------------------------------------------

START, COPY = "start", "copy"  # where a writer is paused: before it looks for the file, or before the copy


@dataclass
class PausedObjects:
    """An object store that pauses inside `create` of a data file, or before it replaces an object, until `go_on`."""

    store: ObjectStore
    stop_at: tuple[str, str] = ("", "")
    reached: threading.Event = field(default_factory=threading.Event)
    going: threading.Event = field(default_factory=threading.Event)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def create(self, path: str, head: bytes, slices: Slices, beat: Beat) -> None:
        moment, part = self.stop_at
        size, left = len(head) + slices.size, {START: 1, COPY: 2}.get(moment, 0)

        def paused(announced: int) -> None:
            nonlocal left
            beat(announced)
            left -= announced == size
            if left == 0 and part in path and moment and not self.going.is_set():
                self.reached.set()
                assert self.going.wait(60.0)

        self.store.create(path, head, slices, paused)

    def swap(self, path: str, data: bytes, tag: str) -> str | None:
        if self.stop_at[0] == "swap" and self.stop_at[1] in path and not self.going.is_set():
            self.reached.set()
            assert self.going.wait(60.0)
        return self.store.swap(path, data, tag)

    def go_on(self) -> None:
        self.going.set()


class RemoteScene(Scene):
    """The same on an object store, where every file is too large for one put."""

    def __init__(self, tmp_path: Path, server: Any) -> None:
        super().__init__(tmp_path)
        settings = load_settings(server.uri(f"old-{tmp_path.name}"))
        self.access = replace(settings.access, one_put_bytes=10)
        self.sink_uri = settings.sink_uri
        self.old_objects = PausedObjects(self.store())
        self.old_store: PausedStore = self.old_objects  # type: ignore[assignment]

    def store(self) -> ObjectStore:
        open_object_store.cache_clear()  # each process has its own
        return open_object_store(self.sink_uri, self.access)

    def open(self, store: Store | None = None, **settings: Any) -> Writer:
        clock = FakeClock()
        spool = self.tmp_path / f"spool{len(self.made)}"
        self.made.append(open_changefeed(store or self.store(), spool, clock, stall_s=20.0, **settings))
        return Writer(self.made[-1])

    def numbers(self) -> list[int]:
        return [int(line.values[0] or b"") for line in landed_lines(self.store())["shop.t1"]]

    def left_over(self) -> list[str]:
        return [path for path, _ in self.store().list("_tidegate/tmp")]


@pytest.fixture(params=["s3", "gs", "azblob"])
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RemoteScene]:
    made = RemoteScene(tmp_path, request.getfixturevalue(f"{request.param}_server"))
    yield made
    made.old_objects.go_on()
    made.landing.join(60.0)
    for changefeed in made.made:
        changefeed.life.fail(TidegateError("the test is over"))
        changefeed.close()


@pytest.mark.parametrize("upto", [4, 7], ids=["same cut", "other cut"])
@pytest.mark.parametrize("moment", [START, COPY])
def test_an_old_writer_of_large_files_that_goes_on_before_the_new_one_lands_does_no_harm(
    remote: RemoteScene, moment: str, upto: int
) -> None:
    remote.pause_old((moment, ".csv"), 2, 4)
    new = remote.open()
    remote.old_goes_on()
    remote.go_to_the_end(new, upto)
    remote.go_to_the_end(None, 12)
    assert remote.numbers() == list(range(1, 13))
    assert remote.left_over() == []


@pytest.mark.parametrize("upto", [4, 7], ids=["same cut", "other cut"])
@pytest.mark.parametrize("moment", [START, COPY])
def test_an_old_writer_of_large_files_that_goes_on_after_the_new_one_landed_does_no_harm(
    remote: RemoteScene, moment: str, upto: int
) -> None:
    remote.pause_old((moment, ".csv"), 0, 4)
    new = remote.open()
    new.step(upto)
    remote.old_goes_on()
    assert remote.numbers() == list(range(1, upto + 1))
    remote.go_to_the_end(new, 10)
    remote.go_to_the_end(None, 12)
    assert remote.numbers() == list(range(1, 13))
    assert remote.left_over() == []


@pytest.mark.parametrize("landed", [2, 4])
def test_an_old_writer_with_several_large_files_goes_on_where_the_new_one_landed_some_of_them(
    remote: RemoteScene, landed: int
) -> None:
    remote.pause_old((COPY, ".csv"), 1, 5, file_size_bytes=ONE_ROW)  # files 2, 3, 4 and 5 are under way
    new = remote.open()
    for upto in range(2, landed + 1):
        new.step(upto)  # the same files as the old one planned
    remote.old_goes_on()
    remote.go_to_the_end(new, 9)  # another cut than the old one's
    remote.go_to_the_end(None, 12)
    assert remote.numbers() == list(range(1, 13))


@pytest.mark.parametrize("restarted", [False, True], ids=["by its tag", "after a read"])
@pytest.mark.parametrize("upto", [4, 7], ids=["same cut", "other cut"])
def test_an_old_writer_that_is_about_to_put_an_index_on_an_object_store_sets_nothing_back(
    remote: RemoteScene, upto: int, restarted: bool
) -> None:
    remote.pause_old(INDEX, 2, 4, restarted=restarted)
    new = remote.open()
    new.step(upto)
    remote.old_goes_on()
    assert remote.numbers() == list(range(1, upto + 1))
    remote.go_to_the_end(new, 10)
    remote.go_to_the_end(None, 12)
    assert remote.numbers() == list(range(1, 13))
