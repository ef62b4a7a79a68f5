"""Requests of a landing: a schema file, data and index; later data and index. Only a condition that fails reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.control.tags import Tags
from tidegate.control.unseen import Unseen
from tidegate.driver.changefeed import Changefeed
from tidegate.errors import StoreUnavailable, TidegateError
from tidegate.format.ddl.events import NORMAL, DdlEvent, Scope, TableAfter
from tidegate.storage.access import REMOTE
from tidegate.storage.files import FileStore
from tidegate.storage.store import Store
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

SCHEMA, DATA, INDEX = "schema", "data", "index"
FIRST, LATER = ["create schema", "create data", "swap index"], ["create data", "swap index"]


@dataclass
class Counted:
    """Any store, with a list of the requests for objects of tables: "swap index", "list schema".

    `lose` names requests whose answers get lost, each once.
    """

    store: Any
    asked: list[str] = field(default_factory=list)
    lose: list[str] = field(default_factory=list)

    @property
    def concurrency(self) -> int | None:
        found: int | None = self.store.concurrency
        return found

    def __getattr__(self, name: str) -> Any:
        ask = getattr(self.store, name)
        if name not in ("create", "create_bytes", "swap", "put", "get", "get_tagged", "list", "size"):
            return ask

        def noted(path: str, *more: Any) -> Any:
            request = f"{name.partition('_')[0]} {_kind(path)}"
            if path.startswith("shop/"):
                self.asked.append(request)
            done = ask(path, *more)
            if request in self.lose and path.startswith("shop/"):
                self.lose.remove(request)
                raise StoreUnavailable(f"{path}: the answer was lost")
            return done

        return noted

    def taken(self) -> list[str]:
        asked, self.asked = self.asked, []
        return asked


def _kind(path: str) -> str:
    if path.endswith(".index"):
        return INDEX
    return DATA if path.endswith(".csv") else SCHEMA


class Scene:
    """Changefeeds that follow each other on one store; a position is the number of changes read."""

    def __init__(self, store: Store, tmp_path: Path) -> None:
        self.store, self.tmp_path = Counted(store), tmp_path
        self.made: list[Changefeed] = []
        self.changes, self.batches = 0, 0
        self.start()

    def start(self, **settings: Any) -> None:
        """A start after a kill, or the first one."""
        spool, clock = self.tmp_path / f"spool{len(self.made)}", FakeClock()
        self.made.append(open_changefeed(self.store, spool, clock, stall_s=20.0, **settings))  # type: ignore[arg-type]
        self.clock, self.changefeed = clock, self.made[-1]
        self.store.taken()

    def land(self, *rows: dict[str, Any], tables: int = 1, seconds: float = 5.0) -> list[str]:
        """One change in each table, or these rows, and the requests that they took."""
        self.changes += 1
        ts = START_TS + 10 * self.changes
        rows = rows or tuple(change(table, ts, self.changes) for table in range(1, tables + 1))
        feed(self.changefeed, self.batches, [layout_row(), *rows, resolved_row(ts)], str(self.changes))
        self.batches += 1
        return self.again(seconds)

    def again(self, seconds: float = 5.0) -> list[str]:
        self.clock.advance(seconds)
        while self.changefeed.landing.land_next():
            pass
        return self.store.taken()

    def close(self) -> None:
        for changefeed in self.made:
            changefeed.life.fail(TidegateError("the test is over"))
            changefeed.close()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(MemoryStore(), tmp_path)
    yield made
    made.close()


@pytest.fixture(params=[*REMOTE, "memory", "file"])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    if request.param == "memory":
        store: Store = MemoryStore()
    elif request.param == "file":
        store = FileStore(tmp_path / "sink")
        store.prepare()
    else:
        store = request.getfixturevalue(f"{request.param}_server").store()
    made = Scene(store, tmp_path)
    yield made
    made.close()


def lines_of(scene: Scene) -> int:
    return len(landed_lines(scene.store.store)["shop.t1"])


def test_a_first_landing_takes_three_requests_and_every_later_one_two(anywhere: Scene) -> None:
    assert anywhere.land() == FIRST
    for _ in range(3):
        assert anywhere.land() == LATER
    assert lines_of(anywhere) == 4


def test_the_requests_that_are_counted_are_those_that_were_made(scene: Scene) -> None:
    asked = [*scene.land(tables=3), *scene.land(tables=3)]
    assert scene.changefeed.metrics.value("store_requests_total", op="land") == len(asked) == 3 * 5


def test_after_a_start_an_index_is_read_once_unless_its_tag_follows_from_its_content(anywhere: Scene) -> None:
    anywhere.land()
    anywhere.changefeed.scribe.write_progress()
    anywhere.start()
    follows = anywhere.store.store.tag_of(b"x") is not None
    assert anywhere.land() == (LATER if follows else ["create data", "get index", "swap index"])
    assert anywhere.land() == LATER
    assert lines_of(anywhere) == 3


def test_an_index_that_somebody_else_replaced_is_read_and_never_set_back(anywhere: Scene) -> None:
    for _ in range(3):
        anywhere.land()
    store = anywhere.store.store
    path = next(path for path, _ in store.list("shop") if path.endswith(".index"))
    store.put(path, b"CDC%020d.csv\n" % 2)  # an old writer, before the conditions were kept
    assert anywhere.land() == ["create data", "swap index", "get index", "swap index"]
    assert lines_of(anywhere) == 4
    store.put(path, ahead := b"CDC%020d.csv\n" % 9)
    assert anywhere.land() == ["create data", "swap index", "get index"]
    assert store.get(path) == ahead, "another writer is further: its index stays"


def test_an_index_put_whose_answer_got_lost_leaves_the_tag_unknown_and_is_read_once(anywhere: Scene) -> None:
    anywhere.land()
    anywhere.store.lose = ["swap index"]
    assert anywhere.land() == LATER
    assert anywhere.changefeed.status().retrying, "nobody knows whether the index was put"
    follows = anywhere.store.store.tag_of(b"x") is not None  # then a condition is tried first, and fails
    assert anywhere.again(120.0) == ["create data", *(["swap index"] if follows else []), "get index"]
    assert anywhere.land() == LATER
    assert lines_of(anywhere) == 3


def test_a_data_put_whose_answer_got_lost_takes_the_tag_with_it(scene: Scene) -> None:
    scene.land()
    scene.store.lose = ["create data"]
    assert scene.land() == ["create data"]
    assert scene.again(120.0) == ["create data", "get index", "swap index"]
    assert scene.land() == LATER


def test_a_new_day_begins_a_new_index_without_reading(scene: Scene) -> None:
    scene.land()
    assert scene.land(seconds=86_400.0) == ["create data", "swap index"]
    assert scene.land() == LATER


def test_a_lane_with_several_files_and_rounds_reads_no_index(tmp_path: Path) -> None:
    scene = Scene(MemoryStore(), tmp_path)
    scene.start(file_size_bytes=30)
    scene.land()
    rows = [change(1, START_TS + 100 + n, 100 + n) for n in range(3)]
    asked = scene.land(*rows)
    assert asked.count("create data") == 3
    assert set(asked) == {"create data", "swap index"}
    scene.close()


# -- lists of schema files ---------------------------------------------------------------------------------------------


def test_on_a_sink_that_has_something_new_tables_are_looked_for(scene: Scene) -> None:
    scene.land()
    scene.changefeed.scribe.write_progress()
    scene.start()
    assert scene.land(change(2, START_TS + 50, 50)) == ["list schema", *FIRST]


def test_a_new_version_of_a_table_is_looked_for(scene: Scene) -> None:
    scene.land()
    newer = change(1, START_TS + 50, 50, table_version=START_TS + 40)
    assert scene.land(newer)[0] == "list schema"


def test_a_table_that_gets_the_name_of_another_is_looked_for(scene: Scene) -> None:
    scene.land()
    renamed = change(1, START_TS + 50, 50, table_version=START_TS + 40, table_name="old")
    assert scene.land(renamed) == FIRST, "nothing was ever written under this name"
    namesake = change(2, START_TS + 60, 60, table_version=START_TS + 55, table_name="t1")
    assert scene.land(namesake)[0] == "list schema"


def test_two_tables_of_one_name_in_one_round_are_both_looked_for(scene: Scene) -> None:
    rows = [change(table, START_TS + 5, table, table_name="same") for table in (1, 2)]
    assert scene.land(*rows).count("list schema") == 2


def test_a_table_that_a_ddl_has_written_for_is_looked_for(scene: Scene) -> None:
    created = TableAfter("shop", "t2", 2, SHAPE.fingerprint)
    event = DdlEvent(3, "CREATE TABLE `t2` (`id` INT PRIMARY KEY)", 1, Scope(NORMAL, table_ids=(2,)), tables=(created,))
    ddl = {"kind": "ddl", "commit_ts": START_TS + 2, "seq": 1, "table_id": 0, "ddl": event.to_json()}
    scene.land(change(1, START_TS + 1, 1), ddl)
    assert scene.land(change(2, START_TS + 15, 15, table_version=START_TS + 9))[0] == "list schema"


def test_a_crash_after_the_schema_file_finds_it_again(scene: Scene) -> None:
    scene.store.lose = ["create schema"]
    assert scene.land() == ["create schema"]
    assert scene.again(120.0) == FIRST
    assert lines_of(scene) == 1


@given(st.lists(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz")), max_size=6), max_size=6))
def test_a_name_is_new_at_most_once_and_never_beside_its_like(rounds: list[list[tuple[str, str]]]) -> None:
    unseen, seen = Unseen(), set[tuple[str, str]]()
    assert not unseen.first([("a", "x")]).any(), "the sink may have anything until it was seen empty"
    unseen.was_empty = True
    for names in rounds:
        first = unseen.first(names)
        assert first.tolist() == [name not in seen and names.count(name) == 1 for name in names]
        seen.update(names)


# -- tags --------------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True), st.booleans()), max_size=20),
    st.integers(2, 12),
)
def test_a_tag_is_the_last_one_told_or_unknown(landings: list[tuple[list[int], bool]], most: int) -> None:
    tags, told = Tags(most), dict[int, str]()
    for at, (lanes, lands) in enumerate(landings):
        said = [f"{at}-{lane}" if lands else "" for lane in lanes]
        tags.renew(np.array(lanes, np.int64), pa.array(said, pa.string()))
        told.update(zip(lanes, said, strict=True))
    found = tags.take(np.arange(10)).to_pylist()
    assert all(tag in ("", told.get(lane, "")) for lane, tag in enumerate(found))
    if landings:
        last, lands = landings[-1]
        assert [found[lane] for lane in last] == [told[lane] for lane in last], "the newest are kept"


def test_of_very_many_tags_the_oldest_are_given_up() -> None:
    tags = Tags(most=100)
    for first in range(0, 1_000, 10):
        lanes = np.arange(first, first + 10)
        tags.renew(lanes, pa.array([str(lane) for lane in lanes.tolist()]))
    known = [tag for tag in tags.take(np.arange(1_000)).to_pylist() if tag]
    assert 50 <= len(known) <= 110
    assert known == [str(lane) for lane in range(1_000 - len(known), 1_000)]
