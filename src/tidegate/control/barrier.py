"""The maintainer's barrier: the dispatchers of one DDL meet, one of them writes, the others pass.

    report   every dispatcher that takes part says that it has drained, in any order
    write    when all have, one is chosen to write: the table trigger if it takes part, else the last that reported
    written  the schema files exist: tables begin, end and move
    pass     the others go on; when all have, the event is over

Why a barrier: a schema file must not be written while one dispatcher still lands changes of before, and no dispatcher
may land changes of after while it is not written. Why one writer: every schema file is written once. `Maintainer` takes
facts and returns actions. Dispatchers and maintainer are on one driver, so nothing is lost on the way and nothing is
sent again. But every fact may come twice or late, and then changes nothing. Events that touch each other do not meet
here at the same time (`order.py`), so none waits for another. A dispatcher that has ended takes part in nothing any
more, and an event that has lost all its dispatchers is over without being written.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tidegate.format.ddl.events import DdlEvent, has_schedule_changes

COLLECTING, WRITING, PASSING = "collecting", "writing", "passing"


class Key(NamedTuple):
    """Which event: its commit-ts, and its number among the events of that commit-ts."""

    ts: int
    seq: int


class Write(NamedTuple):
    """This dispatcher writes the schema files of the event."""

    key: Key
    dispatcher: int


class Schedule(NamedTuple):
    """The tables that the event begins, ends and moves do so now."""

    key: Key
    event: DdlEvent


class Pass(NamedTuple):
    """These dispatchers go on without writing."""

    key: Key
    dispatchers: frozenset[int]


class Finished(NamedTuple):
    """The event is over."""

    key: Key


Action = Write | Schedule | Pass | Finished


@dataclass(frozen=True)
class Barrier:
    """One event: who must take part, who has reported, who writes, who is done."""

    key: Key
    event: DdlEvent
    expected: frozenset[int]
    reported: tuple[int, ...] = ()
    writer: int | None = None
    done: frozenset[int] = frozenset()
    stage: str = COLLECTING

    @property
    def covered(self) -> bool:
        return self.expected <= set(self.reported)

    @property
    def over(self) -> bool:
        return self.stage == PASSING and self.expected <= self.done


@dataclass
class Maintainer:
    """All events that are not over. `trigger` is the number of the table trigger's dispatcher."""

    trigger: int
    barriers: dict[Key, Barrier] = field(default_factory=dict)
    finished: int = 0

    def announce(self, key: Key, event: DdlEvent, expected: frozenset[int]) -> None:
        """An event is on its way; a repeat changes nothing."""
        if key not in self.barriers:
            self.barriers[key] = Barrier(key, event, expected)

    def report(self, key: Key, dispatchers: Iterable[int]) -> list[Action]:
        """These dispatchers, one after the other, have drained and wait."""
        barrier = self.barriers.get(key)
        if barrier is None or barrier.stage != COLLECTING:
            return []
        known = set(barrier.reported)
        news = [number for number in dict.fromkeys(dispatchers) if number in barrier.expected and number not in known]
        return self._collected(replace(barrier, reported=(*barrier.reported, *news))) if news else []

    def gone(self, dispatcher: int) -> list[Action]:
        """The dispatcher has ended. One that writes still finishes its write."""
        actions: list[Action] = []
        for _, barrier in sorted(self.barriers.items()):
            if dispatcher in barrier.expected and dispatcher != barrier.writer:
                left = replace(barrier, expected=barrier.expected - {dispatcher})
                actions += self._collected(left) if left.stage == COLLECTING else self._advanced(left)
        return actions

    def written(self, key: Key, dispatcher: int) -> list[Action]:
        """The writer has written the files, or found that there are none to write."""
        barrier = self.barriers.get(key)
        if barrier is None or barrier.stage != WRITING or dispatcher != barrier.writer:
            return []
        changes = has_schedule_changes(barrier.event) or barrier.event.updated_schemas
        schedule: list[Action] = [Schedule(key, barrier.event)] if changes else []
        return [*schedule, *self._pass(replace(barrier, stage=PASSING, done=frozenset({dispatcher})))]

    def passed(self, key: Key, dispatchers: frozenset[int]) -> list[Action]:
        """These dispatchers have gone on."""
        barrier = self.barriers.get(key)
        if barrier is None or barrier.stage != PASSING:
            return []
        return self._advanced(replace(barrier, done=barrier.done | (dispatchers & barrier.expected)))

    def _collected(self, barrier: Barrier) -> list[Action]:
        """Choose the writer if all have reported."""
        if not barrier.expected:
            return self._abandoned(barrier)
        if not barrier.covered:
            self.barriers[barrier.key] = barrier
            return []
        here = [number for number in barrier.reported if number in barrier.expected]
        writer = self.trigger if self.trigger in here else here[-1]
        self.barriers[barrier.key] = replace(barrier, writer=writer, stage=WRITING)
        return [Write(barrier.key, writer)]

    def _abandoned(self, barrier: Barrier) -> list[Action]:
        """Nobody is left to write the event."""
        del self.barriers[barrier.key]
        self.finished += 1
        return [Finished(barrier.key)]

    def _pass(self, barrier: Barrier) -> list[Action]:
        """The dispatchers that did not write go on too."""
        others = barrier.expected - barrier.done
        passing: list[Action] = [Pass(barrier.key, others)] if others else []
        return [*passing, *self._advanced(barrier)]

    def _advanced(self, barrier: Barrier) -> list[Action]:
        """Keep the barrier, or end it if all dispatchers are done."""
        if not barrier.over:
            self.barriers[barrier.key] = barrier
            return []
        del self.barriers[barrier.key]
        self.finished += 1
        return [Finished(barrier.key)]
