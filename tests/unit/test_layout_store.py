"""Layouts on the driver: definitions in files, what is given up comes back from the journal, and nothing is lost."""

from __future__ import annotations

import contextlib
import pickle
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.driver.changefeed import Changefeed
from tidegate.driver.entries import entry_path
from tidegate.driver.layout_record import SMALL
from tidegate.driver.layouts import Layouts
from tidegate.errors import BadEvents, SpoolLost, StoreUnavailable
from tidegate.executor.layouts import LayoutFiles
from tidegate.format.layout_texts import NO_LAYOUTS, LayoutTexts
from tidegate.format.tables import Column, Layout
from tidegate.testing import (
    SHAPE,
    START_TS,
    FakeClock,
    MemoryStore,
    change,
    feed,
    layout_row,
    open_changefeed,
    resolved_row,
)

TTL_S = 100.0
WIDE = Layout((*SHAPE.columns, Column("w", "int")))


def texts(*numbers: int) -> LayoutTexts:
    return LayoutTexts.of_dict({number: f'{{"columns":[{{"name":"c{number}","type":"int"}}]}}' for number in numbers})


def keys(*numbers: int) -> Any:
    return np.array(sorted(numbers), np.int64)


@dataclass
class OnRecord:
    """A journal that has these layouts."""

    known: LayoutTexts = NO_LAYOUTS

    def find_layouts(self, wanted: Any) -> LayoutTexts:
        return self.known.find(wanted)

    def has_layouts(self, wanted: Any) -> Any:
        return np.isin(wanted, self.known.fingerprint)


@given(
    st.lists(
        st.tuples(st.sampled_from(["learn", "use", "expire"]), st.sets(st.integers(0, 40), max_size=12)), max_size=25
    )
)
@settings(deadline=None)
def test_what_is_used_stays_and_what_was_given_up_comes_back(steps: list[tuple[str, set[int]]]) -> None:
    """Whatever comes in which order: every layout that was learned can be found, here or on record."""
    with tempfile.TemporaryDirectory() as place:
        record = OnRecord()
        layouts = Layouts(place, record, TTL_S)
        learned: set[int] = set()
        used_at: dict[int, float] = {}
        now = 0.0
        for word, numbers in steps:
            now += 30.0
            if word == "learn":
                layouts.learn(texts(*numbers), now)
                used_at |= {number: now for number in numbers if number not in used_at}
                learned |= numbers
            elif word == "use":
                wanted = keys(*(numbers & learned))
                layouts.learn(record.find_layouts(layouts.missing(wanted)), now)
                layouts.use(wanted, now)
                used_at |= dict.fromkeys(wanted.tolist(), now)
            else:
                fresh = layouts.fresh()
                record.known = LayoutTexts.all_of([record.known, fresh])
                layouts.recorded(fresh.fingerprint)
                layouts.expire(now, lambda: keys())
                gone = set(layouts.missing(keys(*used_at)).tolist())
                assert all(used_at.pop(number) + TTL_S <= now for number in gone)
            found = LayoutTexts.all_of(
                [layouts.find(keys(*learned)), record.find_layouts(layouts.missing(keys(*learned)))]
            )
            assert found.table().equals(texts(*learned).table())
            read = pickle.loads(pickle.dumps(layouts.for_job())).find(keys(*used_at))
            assert read.fingerprint.tolist() == sorted(used_at)
        assert len(list(Path(place).iterdir())) <= 12, "files are merged, and deleted when nobody needs them"


def test_a_layout_is_given_up_after_the_ttl_unless_an_item_needs_it(tmp_path: Path) -> None:
    layouts = Layouts(str(tmp_path), OnRecord(), TTL_S)
    layouts.learn(texts(1, 2, 3, 4), 0.0)
    layouts.recorded(keys(1, 2, 3))
    layouts.use(keys(2), 90.0)
    assert layouts.expire(101.0, lambda: keys(3)) == 1
    assert layouts.missing(keys(1, 2, 3, 4)).tolist() == [1], "2 was used, 3 is in use, 4 is not on record"


def test_files_stay_few_and_a_layout_takes_some_bytes_of_memory(tmp_path: Path) -> None:
    layouts = Layouts(str(tmp_path), OnRecord(), TTL_S)
    for n in range(300):
        layouts.learn(texts(*range(10 * n, 10 * n + 10)), 0.0)
    paths = layouts.for_job().paths
    assert len(paths) <= 12
    assert sorted(map(str, tmp_path.iterdir())) == sorted(paths)
    assert layouts.nbytes == 17 * 3000
    assert len(pickle.dumps(layouts.for_job())) < 2_000, "a job carries names"


def test_a_file_of_layouts_that_is_gone_is_a_lost_spool(tmp_path: Path) -> None:
    with pytest.raises(SpoolLost, match="cannot read the layouts"):
        LayoutFiles((str(tmp_path / "gone"),)).find(keys(1))


# -- a changefeed --------------------------------------------------------------------------------------------------


def opened(store: MemoryStore, place: Path, clock: FakeClock, **options: Any) -> Changefeed:
    return open_changefeed(store, place / "spool", clock, state_ttl_s=TTL_S, **options)


def land(changefeed: Changefeed, batch: int, *rows: dict[str, Any]) -> None:
    feed(changefeed, batch, [*rows, resolved_row(START_TS + batch)], f"end-{batch}")
    settle(changefeed)


def settle(changefeed: Changefeed) -> None:
    clock = changefeed.clock
    assert isinstance(clock, FakeClock)
    clock.advance(6.0)
    for _ in range(20):
        if not changefeed.landing.land_next():
            clock.advance(1.5)
    changefeed.scribe.write_progress()


def landed(store: MemoryStore, table: str) -> list[bytes]:
    """The lines of a table, in order."""
    files = [body for path, body in sorted(store.objects.items()) if f"/{table}/" in path and path.endswith(".csv")]
    return b"".join(files).splitlines(keepends=True)


def wide(table: int, batch: int) -> dict[str, Any]:
    return change(table, START_TS + batch, batch, b"%d" % batch, b"w", b"7", layout=WIDE.fingerprint)


def given_up(store: MemoryStore, place: Path, clock: FakeClock) -> Changefeed:
    """A changefeed whose table 2 was idle for so long that its layout is not here any more."""
    changefeed = opened(store, place, clock)
    land(changefeed, 1, layout_row(), layout_row(WIDE), change(1, START_TS + 1, 1), wide(2, 1))
    for batch in range(2, 30):
        land(changefeed, batch, change(1, START_TS + batch, batch))
    assert changefeed.book.layouts.missing(keys(SHAPE.fingerprint, WIDE.fingerprint)).tolist() == [WIDE.fingerprint]
    return changefeed


def test_a_layout_that_was_given_up_comes_back_from_the_journal(tmp_path: Path) -> None:
    store, clock = MemoryStore(), FakeClock()
    changefeed = given_up(store, tmp_path, clock)
    land(changefeed, 30, wide(2, 30))  # no layout row
    assert landed(store, "t2") == [b'"I","t2","shop",1,"w",7\r\n', b'"I","t2","shop",30,"w",7\r\n']
    changefeed.close()


@pytest.mark.parametrize("compacts", [False, True])
def test_after_a_restart_no_layout_is_read_before_a_row_needs_it(tmp_path: Path, compacts: bool) -> None:
    store, clock = MemoryStore(), FakeClock()
    changefeed = given_up(store, tmp_path, clock)
    if compacts:
        changefeed.scribe.compact()
    changefeed.close()
    again = opened(store, tmp_path, clock)
    assert len(again.book.layouts) == 0
    feed(again, 29, [layout_row()], None)
    assert not len(again.book.layouts.fresh()), "it is on record"
    land(again, 30, change(1, START_TS + 30, 30), wide(2, 30))
    assert len(again.book.layouts) == 2
    assert len(landed(store, "t1")) == 30
    again.close()


def test_a_layout_that_nobody_defined_is_refused_with_its_number(tmp_path: Path) -> None:
    changefeed = opened(MemoryStore(), tmp_path, FakeClock())
    with pytest.raises(BadEvents, match=f"rows use layout {WIDE.fingerprint} but no layout row defines it"):
        land(changefeed, 1, layout_row(), change(1, START_TS + 1, 1), wide(2, 1))
    changefeed.close()


@pytest.mark.parametrize("word", ["unavailable", "lost"])
@pytest.mark.parametrize("kill_at", range(6))
def test_a_kill_while_entries_with_layouts_are_put_together_loses_no_layout(
    tmp_path: Path, word: str, kill_at: int
) -> None:
    objects: dict[str, bytes] = {}
    clock = FakeClock()
    changefeed = opened(MemoryStore(objects=objects), tmp_path, clock)
    land(changefeed, 1, layout_row(), change(1, START_TS + 1, 1))
    land(changefeed, 2, layout_row(WIDE), wide(2, 2))
    changefeed.close()
    store = MemoryStore(objects=objects)
    killed = opened(store, tmp_path, clock)  # a start puts them together, too
    third = Layout((*WIDE.columns, Column("x", "int")))
    feed(killed, 3, [layout_row(third)], None)
    store.script, store.after = ["ok"] * (store.writes + kill_at) + [word], "unavailable"
    with contextlib.suppress(StoreUnavailable):
        killed.scribe.compact()
    killed.spool.close()
    again = opened(MemoryStore(objects=objects), tmp_path, clock)
    land(again, 3, change(1, START_TS + 3, 3), wide(2, 3))
    lines = [landed(MemoryStore(objects=objects), table) for table in ("t1", "t2")]
    assert lines == [
        [b'"I","t1","shop",1,"v1"\r\n', b'"I","t1","shop",3,"v3"\r\n'],
        [b'"I","t2","shop",2,"w",7\r\n', b'"I","t2","shop",3,"w",7\r\n'],
    ]
    again.close()


def test_a_large_entry_with_layouts_is_never_written_again(tmp_path: Path) -> None:
    store, clock = MemoryStore(), FakeClock()
    changefeed = opened(store, tmp_path, clock)
    many = [Layout((Column(f"c{n}", "int"),)) for n in range(SMALL)]
    feed(changefeed, 1, [layout_row(layout) for layout in many], None)
    changefeed.scribe.compact()
    journal = changefeed.scribe.journal
    (large,) = journal.layouts.entries()
    before = store.objects[entry_path(large)]
    for batch, layout in enumerate((SHAPE, WIDE), 2):
        feed(changefeed, batch, [layout_row(layout)], None)
        changefeed.scribe.compact()
    assert store.objects[entry_path(large)] == before
    assert len(journal.layouts.entries()) == 2
    found = journal.find_layouts(np.sort(np.array([many[5].fingerprint, WIDE.fingerprint])))
    assert sorted(found.text.to_pylist()) == sorted([many[5].to_json(), WIDE.to_json()])
    changefeed.close()
