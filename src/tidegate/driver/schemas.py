"""The driver's part in DDLs: what comes in items becomes events, what the ledger wants written becomes land jobs.

A DDL's schema files are written by a land task like data files, together with those of other DDLs that are due. What
failed and may pass is tried again after a pause; DDLs of other tables go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tidegate.control.barrier import Write
from tidegate.control.retry import pause_s

_CLOSING_PAUSE_S = 0.5
_MOST_AT_ONCE = 100
_NEVER = float("inf")


@dataclass
class SchemaWrites:
    """The writes that wait: each with the moment from which on it may be tried."""

    _waiting: dict[Write, float] = field(default_factory=dict)
    _tries: dict[Write, int] = field(default_factory=dict)

    def add(self, writes: Iterable[Write], now: float) -> None:
        self._waiting.update(dict.fromkeys(writes, now))

    def due(self, now: float, closing: bool) -> list[Write]:
        """Those to be tried now; they are taken out. Closing waits out no long pause."""
        most = now + _CLOSING_PAUSE_S if closing else _NEVER
        self._waiting = {write: min(at, most) for write, at in self._waiting.items()}
        found = sorted(write for write, at in self._waiting.items() if at <= now)[:_MOST_AT_ONCE]
        for write in found:
            del self._waiting[write]
        return found

    def failed(self, write: Write, now: float) -> None:
        tries = self._tries[write] = self._tries.get(write, 0) + 1
        self._waiting[write] = now + pause_s(tries - 1, write.key.ts)

    def done(self, write: Write) -> None:
        self._tries.pop(write, None)
