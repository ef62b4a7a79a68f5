"""The schema files of DDLs that are to be written: which now, and when again what failed.

A DDL's schema files are written by a land task like data files, together with those of other DDLs that are due. What
failed and may pass is tried again after a pause; DDLs of other tables go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tidegate.control.barrier import Write
from tidegate.control.retries import WaitingLine, pause_s

_CLOSING_PAUSE_S = 0.5
_MOST_AT_ONCE = 100


def _line() -> WaitingLine[Write]:
    return WaitingLine(_CLOSING_PAUSE_S)


@dataclass
class SchemaWrites:
    """The writes that wait: each with the moment from which on it may be tried."""

    _waiting: WaitingLine[Write] = field(default_factory=_line)
    _tries: dict[Write, int] = field(default_factory=dict)

    def add(self, writes: Iterable[Write], now: float) -> None:
        for write in writes:
            self._waiting.add(write, now)

    def shorten_pauses(self, now: float) -> None:
        """Closing waits out no long pause."""
        self._waiting.shorten_pauses(now)

    def take_due(self, now: float) -> list[Write]:
        """Those to be tried now, in commit-ts order, as many as one job takes."""
        due = sorted(self._waiting.take_due(now))
        self.add(due[_MOST_AT_ONCE:], now)
        return due[:_MOST_AT_ONCE]

    def failed(self, write: Write, now: float) -> None:
        tries = self._tries[write] = self._tries.get(write, 0) + 1
        self._waiting.add(write, now + pause_s(tries - 1, write.key.ts))

    def done(self, write: Write) -> None:
        self._tries.pop(write, None)
