"""The DDL history on storage: what is there wins, at every crash and with two writers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.errors import SourceFenced, StoreRefused, StoreUnavailable
from tidegate.format.rules.rules import TableFilter
from tidegate.sources.mysql.catalogue import Applied, Catalogue, Change, DatabaseEntry
from tidegate.sources.mysql.ddl.apply import apply
from tidegate.sources.mysql.definition import Definition
from tidegate.sources.mysql.entries import Base, Entries, TableEntry
from tidegate.sources.mysql.history import FULLS, GROUPS, History, full_path, group_path
from tidegate.sources.mysql.log.control_events import Query
from tidegate.sources.mysql.place import Place
from tidegate.sources.mysql.record_form import Full, full_bytes, read_full
from tidegate.testing import LOST, OK, UNAVAILABLE, MemoryStore

START = Place("bin.000001", 100)
STATEMENTS = [
    "create table a (id int primary key, v varchar(20) default 'x')",
    "create table b like a",
    "alter table a add c enum('x','y') default 'y', add unique u (v)",
    "create database other",
    "rename table b to other.b",
    "truncate a",
    "drop database other",
    "create table kept (id int, foreign key (id) references a (id) on delete cascade)",
    "drop table a",
]


def first_catalogue() -> Catalogue:
    known = {"shop": DatabaseEntry("shop", 1, "utf8mb4")}
    return Catalogue(filter=TableFilter(("shop.*", "other.*"))).changed(Change(databases=known, next_schema_id=2))


def statements(count: int = len(STATEMENTS)) -> list[tuple[Place, Applied]]:
    """The statements with their places in the log, applied one after the other."""
    catalogue, found = first_catalogue(), []
    for number, text in enumerate(STATEMENTS[:count], start=1):
        applied = apply(catalogue, Query("shop", text, 0, "utf8mb4"), 1000 * number)
        catalogue = applied.catalogue
        found.append((Place("bin.000001", 100 + 10 * number), applied))
    return found


def contents(catalogue: Catalogue) -> tuple[object, ...]:
    tables = {entry.names: entry for entry in catalogue.entries()}
    return tables, dict(catalogue.databases), catalogue.next_table_id, catalogue.next_schema_id, catalogue.filter


def begun(store: MemoryStore) -> History:
    return History.begin(store, first_catalogue(), START)


def loaded(store: MemoryStore, place: Place = START) -> History:
    history = History.load(store, place)
    assert history is not None
    return history


def test_nothing_is_on_record_before_the_first_start() -> None:
    assert History.load(MemoryStore(), START) is None


def test_the_first_catalogue_on_record_wins() -> None:
    store = MemoryStore()
    begun(store)
    other = History.begin(store, replace(first_catalogue(), next_table_id=50), Place("bin.000009", 4))
    assert (other.catalogue.next_table_id, other.place) == (1, START)


@pytest.mark.parametrize("count", range(len(STATEMENTS) + 1))
def test_a_restart_has_the_catalogue_of_its_place_and_knows_what_was_handed_out(count: int) -> None:
    store, done = MemoryStore(), statements()
    history = begun(store)
    history.record(done[:3])
    history.record(done[3:4])
    history.record(done[4:])
    place = done[count - 1][0] if count else START
    again = loaded(store, place)
    expected = done[count - 1][1].catalogue if count else first_catalogue()
    assert contents(again.catalogue) == contents(expected)
    catalogue = again.catalogue
    for at, applied in done[count:]:
        found = again.recorded(at, catalogue)
        assert found is not None
        assert (found.rows, found.touched, found.change) == (applied.rows, applied.touched, applied.change)
        catalogue = found.catalogue
    assert contents(catalogue) == contents(done[-1][1].catalogue)
    again.record(done[count:])
    assert len(list(store.list(GROUPS))) == 3


def test_the_statements_of_one_hand_out_are_one_object() -> None:
    store, done = MemoryStore(), statements()
    history = begun(store)
    writes = store.writes
    history.record([*done, (Place("bin.000001", 900), Applied(done[-1][1].catalogue))])
    assert store.writes == writes + 1
    history.record(done)
    assert store.writes == writes + 1


def test_a_lost_answer_is_no_other_writer() -> None:
    done = statements()
    store = MemoryStore()
    begun(store)
    store = MemoryStore(script=[LOST, OK, UNAVAILABLE, LOST], objects=store.objects)
    history = loaded(store)
    for part in (done[:2], done[2:4]):
        while True:
            try:
                history.record(part)
                break
            except StoreUnavailable:
                continue
    assert contents(loaded(MemoryStore(objects=store.objects), done[3][0]).catalogue) == contents(done[3][1].catalogue)


def test_an_old_process_that_read_the_same_log_changes_nothing() -> None:
    store, done = MemoryStore(), statements()
    begun(store)
    old, new = loaded(store), loaded(store)
    old.record(done[:1])
    new.record(done[:4])
    old.record(done[1:])
    assert len(list(store.list(GROUPS))) == 3
    assert contents(loaded(store, done[-1][0]).catalogue) == contents(done[-1][1].catalogue)


def test_a_process_with_another_opinion_stops() -> None:
    store, done = MemoryStore(), statements()
    begun(store)
    old, new = loaded(store), loaded(store)
    new.record(done[:2])
    place, applied = done[0]
    other = replace(applied, rows=tuple(replace(row, commit_ts=7) for row in applied.rows))
    before = dict(store.objects)
    with pytest.raises(SourceFenced, match=r"000000000001\.json\.gz says something else"):
        old.record([(place, other)])
    with pytest.raises(SourceFenced):
        old.record(done[1:3])
    assert store.objects == before


def test_compaction_keeps_what_a_restart_may_ask_for() -> None:
    store, done = MemoryStore(), statements()
    history = begun(store)
    for each in done:
        history.record([each])
    assert not history.wants_compaction()
    history.compact(done[4][0])
    assert [path for path, _ in store.list(FULLS)] == [full_path(5)]
    assert [path for path, _ in store.list(GROUPS)] == [group_path(number) for number in range(6, 10)]
    for place, applied in done[4:]:
        assert contents(loaded(store, place).catalogue) == contents(applied.catalogue)
    with pytest.raises(StoreRefused, match="no catalogue is on record at or below"):
        History.load(store, done[3][0])
    history.compact(done[4][0])
    history.compact(done[-1][0])
    assert [path for path, _ in store.list(GROUPS)] == []
    assert contents(loaded(store, done[-1][0]).catalogue) == contents(done[-1][1].catalogue)


def test_what_an_old_process_writes_behind_a_compaction_does_not_count() -> None:
    store, done = MemoryStore(), statements()
    history = begun(store)
    old = loaded(store)
    for each in done[:6]:
        history.record([each])
    history.compact(done[5][0])
    old.record(done[:1])
    assert contents(loaded(store, done[5][0]).catalogue) == contents(done[5][1].catalogue)
    history.record(done[6:])
    old.number = 6  # however many it has written since, the next number that exists is not of its chain
    with pytest.raises(SourceFenced):
        old.record(done[1:2])
    assert contents(loaded(store, done[-1][0]).catalogue) == contents(done[-1][1].catalogue)


@pytest.mark.parametrize("fault", [LOST, UNAVAILABLE])
@pytest.mark.parametrize("at", range(9))
def test_a_crash_anywhere_in_a_compaction_loses_nothing(fault: str, at: int) -> None:
    store, done = MemoryStore(), statements()
    history = begun(store)
    for each in done[:6]:
        history.record([each])
    dying = MemoryStore(script=[OK] * at + [fault], after=UNAVAILABLE, objects=store.objects)
    history.store = dying
    with suppress(StoreUnavailable):
        history.compact(done[3][0])
    again = loaded(MemoryStore(objects=store.objects), done[4][0])
    assert contents(again.catalogue) == contents(done[4][1].catalogue)
    again.record(done[6:])
    again.compact(done[7][0])
    last = loaded(MemoryStore(objects=store.objects), done[-1][0])
    assert contents(last.catalogue) == contents(done[-1][1].catalogue)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.sampled_from(["record", "restart", "compact"]), st.integers(1, 4)), max_size=14
    ),
    st.lists(st.sampled_from([OK, OK, OK, LOST, UNAVAILABLE]), max_size=30),
)
def test_two_processes_that_read_one_log_never_contradict_each_other(
    actions: list[tuple[int, str, int]], script: list[str]
) -> None:
    """Whatever they record, lose, repeat, compact and restart, the record is what the log says."""
    store, done = MemoryStore(), statements()
    begun(store)
    store = MemoryStore(script=script, objects=store.objects)
    processes = [loaded(store), loaded(store)]
    positions = [0, 0]
    durable = 0
    for who, action, count in actions:
        try:
            if action == "record":
                processes[who].record(done[positions[who] : positions[who] + count])
                positions[who] = min(len(done), positions[who] + count)
            elif action == "compact":
                durable = max(durable, min(positions[who], count))
                if durable:
                    processes[who].compact(done[durable - 1][0])
            else:
                place = done[durable - 1][0] if durable else START
                processes[who] = loaded(store, place)
                positions[who] = durable
        except (StoreUnavailable, SourceFenced):
            continue
    final = loaded(MemoryStore(objects=store.objects), done[-1][0])
    reached = max((i for i, (place, _) in enumerate(done) if place.order <= last_place(final)), default=-1)
    expected = done[reached][1].catalogue if reached >= 0 else first_catalogue()
    assert contents(final.catalogue) == contents(expected)


def last_place(history: History) -> tuple[int, int]:
    """The place of the last statement that is on record."""
    groups = [each.place.order for _, _, group in history._since for each in group.statements]
    return max([*groups, history._full.place.order if history._full else (0, 0)])


# Many tables ----------------------------------------------------------------------------------------------------------


def many(count: int) -> Iterator[TableEntry]:
    first = apply(first_catalogue(), Query("shop", STATEMENTS[0], 0, "utf8mb4"), 1).catalogue.find("shop", "a")
    assert first is not None
    for number in range(count):
        name = f"t{number * 7919 % count:07d}"
        definition = first.definition if number % 3 else Definition(engine=f"engine {number}")
        yield TableEntry("shop", name, number + 1, 1, 5, definition, needs_snapshot=number % 2 == 0)


def test_a_large_catalogue_is_the_same_after_a_round_trip() -> None:
    catalogue = replace(first_catalogue(), tables=Entries(Base.of(many(5000))), next_table_id=5001)
    full = read_full(full_bytes(Full(catalogue, START, 3, "abc")))
    assert (full.place, full.number, full.digest) == (START, 3, "abc")
    assert contents(full.catalogue) == contents(catalogue)
    entry = full.catalogue.find("shop", "t0000042")
    assert entry is not None
    assert entry == catalogue.find("shop", "t0000042")
    assert full.catalogue.find("shop", "t9999999") is None
    assert [each.table_id for each in full.catalogue.waiting(10, 3)] == [11, 13, 15]
    assert full.catalogue.count_waiting(0) == 2500
    assert len(full.catalogue.followed_ids("shop")) == 5000


def test_changes_above_a_large_catalogue_are_folded_in() -> None:
    catalogue = replace(first_catalogue(), tables=Entries(Base.of(many(1000))), next_table_id=1001)
    for text in ("drop table t0000001", "create table new (id int)", "truncate t0000002", "create database other"):
        catalogue = apply(catalogue, Query("shop", text, 0, "utf8mb4"), 9).catalogue
    folded = catalogue.folded()
    assert contents(folded) == contents(catalogue)
    assert folded.tables.layers == ()
    assert len(folded.tables.base) == 1000
    gone = apply(folded, Query("", "drop database shop", 0, "utf8mb4"), 10).catalogue
    assert list(gone.entries()) == []
    assert len(gone.folded().tables.base) == 0
