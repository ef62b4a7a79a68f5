"""The maintainer's barrier: collect, write, schedule, pass, done; whatever comes twice or late changes nothing."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.control.barrier import Action, Finished, Key, Maintainer, Pass, Schedule, Write
from tidegate.format.ddl.events import DB, DROP_TABLE, NORMAL, AddedTable, DdlEvent, Scope, UpdatedSchema

TRIGGER = 0
ALTER = DdlEvent(5, "ALTER TABLE `t` ADD COLUMN `c` INT", 1)
ENDS = DdlEvent(DROP_TABLE, "DROP TABLE `t`", 1, dropped=Scope(NORMAL, (7,)))
BEGINS = replace(ENDS, dropped=None, added=(AddedTable(1, 8),))
MOVES = replace(ENDS, dropped=None, updated_schemas=(UpdatedSchema(7, 1, 2),))


def key(ts: int) -> Key:
    return Key(ts, 0)


def announced(*events: tuple[int, DdlEvent, set[int]]) -> Maintainer:
    maintainer = Maintainer(TRIGGER)
    for ts, event, expected in events:
        maintainer.announce(key(ts), event, frozenset(expected))
    return maintainer


def write(maintainer: Maintainer, ts: int, *dispatchers: int) -> Write:
    found = maintainer.report(key(ts), dispatchers)
    assert [type(action) for action in found] == [Write]
    assert isinstance(found[0], Write)
    return found[0]


def test_nobody_writes_before_all_that_take_part_have_reported() -> None:
    maintainer = announced((10, ALTER, {1, 2, 3}))
    assert maintainer.report(key(10), [1, 3]) == []
    assert maintainer.report(key(10), [2]) == [Write(key(10), 2)]


@pytest.mark.parametrize(
    ("order", "writer"),
    [([0, 1, 2], 0), ([1, 2, 0], 0), ([2, 0, 1], 0)],
)
def test_the_table_trigger_writes_wherever_it_reports(order: list[int], writer: int) -> None:
    maintainer = announced((10, ALTER, {0, 1, 2}))
    found: list[Action] = [action for number in order for action in maintainer.report(key(10), [number])]
    assert found == [Write(key(10), writer)]


@pytest.mark.parametrize("order", [[1, 2, 3], [3, 2, 1], [2, 3, 1]])
def test_without_the_trigger_the_one_that_completes_the_coverage_writes(order: list[int]) -> None:
    assert write(announced((10, ALTER, {1, 2, 3})), 10, *order).dispatcher == order[-1]


def test_after_the_writer_the_others_pass_and_then_the_event_is_over() -> None:
    maintainer = announced((10, ALTER, {1, 2, 3}))
    writer = write(maintainer, 10, 1, 2, 3)
    assert maintainer.written(*writer) == [Pass(key(10), frozenset({1, 2}))]
    assert maintainer.passed(key(10), frozenset({1})) == []
    assert maintainer.passed(key(10), frozenset({2})) == [Finished(key(10))]
    assert maintainer.finished == 1
    assert not maintainer.barriers


def test_who_is_alone_passes_nobody() -> None:
    maintainer = announced((10, ALTER, {0}))
    assert maintainer.written(*write(maintainer, 10, 0)) == [Finished(key(10))]


@pytest.mark.parametrize("event", [ENDS, BEGINS, MOVES, replace(ENDS, dropped=Scope(DB, schema_id=1))])
def test_dispatchers_change_after_the_write_and_before_the_others_pass(event: DdlEvent) -> None:
    maintainer = announced((10, event, {0, 7}))
    assert maintainer.written(*write(maintainer, 10, 0, 7)) == [
        Schedule(key(10), event),
        Pass(key(10), frozenset({7})),
    ]


def test_what_changes_no_dispatcher_is_not_scheduled() -> None:
    nothing = replace(ENDS, dropped=Scope(NORMAL, ()))
    maintainer = announced((10, nothing, {1, 2}))
    assert maintainer.written(*write(maintainer, 10, 1, 2)) == [Pass(key(10), frozenset({1}))]


def test_no_event_waits_for_another() -> None:
    """Events that touch each other do not meet here at the same time, and the order of the others is nobody's."""
    maintainer = announced((20, BEGINS, {2}), (10, ENDS, {1}))
    assert maintainer.written(*write(maintainer, 20, 2)) == [Schedule(key(20), BEGINS), Finished(key(20))]
    assert maintainer.written(*write(maintainer, 10, 1)) == [Schedule(key(10), ENDS), Finished(key(10))]


def test_events_of_one_commit_ts_are_told_apart_by_their_place() -> None:
    maintainer = Maintainer(TRIGGER)
    for seq in (1, 2):
        maintainer.announce(Key(10, seq), ENDS, frozenset({seq}))
    for seq in (2, 1):
        assert maintainer.report(Key(10, seq), [seq]) == [Write(Key(10, seq), seq)]
        assert maintainer.written(Key(10, seq), seq) == [Schedule(Key(10, seq), ENDS), Finished(Key(10, seq))]


# -- strangers, repeats, late messages -------------------------------------------------------------------------------


def test_reports_of_strangers_and_about_unknown_events_are_nothing() -> None:
    maintainer = announced((10, ALTER, {1, 2}))
    assert maintainer.report(key(10), [9]) == maintainer.report(key(11), [1]) == []
    assert maintainer.written(key(11), 1) == maintainer.passed(key(11), frozenset({1})) == []


def test_only_the_writer_can_have_written_and_only_once_it_was_told() -> None:
    maintainer = announced((10, ALTER, {1, 2}))
    assert maintainer.written(key(10), 2) == []
    write(maintainer, 10, 1, 2)
    assert maintainer.written(key(10), 1) == []
    assert maintainer.passed(key(10), frozenset({1, 2})) == [], "nobody passes before the files stand"
    assert maintainer.written(key(10), 2) == [Pass(key(10), frozenset({1}))]


def test_an_event_announced_again_is_the_same_event() -> None:
    maintainer = announced((10, ENDS, {1, 2}), (10, ENDS, {1, 2, 3}))
    assert write(maintainer, 10, 1, 2).dispatcher == 2


Fact = tuple[str, int, int]  # what, ts, dispatcher


@dataclass
class Play:
    """Three events, brought to their end by every action that is carried out."""

    maintainer: Maintainer = field(
        default_factory=lambda: announced((10, ENDS, {0, 1, 2}), (20, ALTER, {3, 4}), (30, BEGINS, {0, 5}))
    )
    told: list[Action] = field(default_factory=list)

    def tell(self, fact: Fact) -> None:
        what, ts, number = fact
        calls: dict[str, Any] = {
            "report": lambda: self.maintainer.report(key(ts), [number]),
            "written": lambda: self.maintainer.written(key(ts), number),
            "passed": lambda: self.maintainer.passed(key(ts), frozenset({number})),
        }
        self.told += calls[what]()

    def end(self) -> None:
        """What a changefeed does by itself, until nothing more comes of it."""
        for ts, numbers in ((10, (0, 1, 2)), (20, (3, 4)), (30, (0, 5))):
            self.told += self.maintainer.report(key(ts), numbers)
        for action in self.told:  # grows on the way
            if isinstance(action, Write):
                self.told += self.maintainer.written(*action)
            elif isinstance(action, Pass):
                self.told += self.maintainer.passed(*action)


FACTS = st.tuples(st.sampled_from(["report", "written", "passed"]), st.sampled_from([10, 20, 30]), st.integers(0, 5))


@given(facts=st.lists(FACTS, max_size=60), after=st.lists(FACTS, max_size=20))
def test_any_mixture_of_repeated_late_and_reordered_messages_comes_to_the_same_end(
    facts: list[Fact], after: list[Fact]
) -> None:
    play = Play()
    for fact in facts:
        play.tell(fact)
    play.end()
    for fact in after:
        play.tell(fact)
    written = {action.key.ts: action.dispatcher for action in play.told if isinstance(action, Write)}
    assert len([action for action in play.told if isinstance(action, Write)]) == len(written) == 3, "each once"
    assert (written[10], written[30]) == (0, 0)
    assert written[20] in (3, 4)
    assert sorted(action.key.ts for action in play.told if isinstance(action, Schedule)) == [10, 30]
    assert sorted(action.key.ts for action in play.told if isinstance(action, Finished)) == [10, 20, 30]
    assert not play.maintainer.barriers


# -- dispatchers that end ----------------------------------------------------------------------------------------------


def test_a_dispatcher_that_ends_is_waited_for_no_longer() -> None:
    maintainer = announced((10, ALTER, {1, 2, 3}))
    maintainer.report(key(10), [1, 3])
    assert maintainer.gone(2) == [Write(key(10), 3)]


def test_who_has_reported_and_ended_does_not_write() -> None:
    maintainer = announced((10, ALTER, {1, 2, 3}))
    maintainer.report(key(10), [1, 3])
    assert maintainer.gone(3) == []
    assert maintainer.gone(2) == [Write(key(10), 1)]


def test_a_writer_that_ends_still_ends_what_it_writes() -> None:
    maintainer = announced((10, ALTER, {1, 2}))
    writer = write(maintainer, 10, 1, 2)
    assert maintainer.gone(2) == []
    assert maintainer.written(*writer) == [Pass(key(10), frozenset({1}))]


def test_one_that_ends_while_others_pass_is_done() -> None:
    maintainer = announced((10, ALTER, {1, 2, 3}))
    maintainer.written(*write(maintainer, 10, 1, 2, 3))
    maintainer.passed(key(10), frozenset({1}))
    assert maintainer.gone(2) == [Finished(key(10))]


def test_one_that_ends_between_write_and_pass_is_not_passed() -> None:
    maintainer = announced((10, ALTER, {1, 2, 3}))
    writer = write(maintainer, 10, 1, 2, 3)
    assert maintainer.gone(1) == []
    assert maintainer.written(*writer) == [Pass(key(10), frozenset({2}))]


def test_an_event_that_nobody_is_left_for_is_over() -> None:
    maintainer = announced((10, ENDS, {1}), (20, BEGINS, {2}))
    assert maintainer.gone(1) == [Finished(key(10))]
    assert maintainer.gone(1) == []
    assert list(maintainer.barriers) == [key(20)]
