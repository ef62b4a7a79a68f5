"""The schema files of DDLs that wait to be written: which go out now, and when one that failed is retried.

A land task writes them like data files, those of all DDLs that are due in one job. A DDL that fails waits out its pause
alone. DDLs of other tables do not wait for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tidegate.control.barrier import Write
from tidegate.control.retries import WaitingLine, pause_s

_CLOSING_PAUSE_S = 0.5  # shorter than that of rounds: all changes behind the DDL wait for it
_MOST_AT_ONCE = 1_000  # DDLs in one job, so that the first of very many are over soon


def _line() -> WaitingLine[Write]:
    return WaitingLine(_CLOSING_PAUSE_S)


@dataclass
class SchemaWrites:
    """The writes that wait, each until its moment."""

    _waiting: WaitingLine[Write] = field(default_factory=_line)
    _tries: dict[Write, int] = field(default_factory=dict)

    def add(self, writes: Iterable[Write], now: float) -> None:
        for write in writes:
            self._waiting.add(write, now)

    def shorten_pauses(self, now: float) -> None:
        """The changefeed closes: no DDL waits for long."""
        self._waiting.shorten_pauses(now)

    def take_due(self, now: float) -> list[Write]:
        """Those to be written now, in commit-ts order, as many as one job takes."""
        due = sorted(self._waiting.take_due(now))
        self.add(due[_MOST_AT_ONCE:], now)
        return due[:_MOST_AT_ONCE]

    def failed(self, write: Write, now: float) -> None:
        tries = self._tries[write] = self._tries.get(write, 0) + 1
        self._waiting.add(write, now + pause_s(tries - 1, write.key.ts))

    def done(self, write: Write) -> None:
        self._tries.pop(write, None)
