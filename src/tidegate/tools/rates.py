"""How fast a run is: differences between its status now and some seconds ago."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from tidegate.observe.status import Status

_OVER_S = 10.0


class Rates(NamedTuple):
    """Per second, over the last seconds."""

    rows: float
    accepted: float  # bytes
    landed: float  # bytes
    left_s: float | None  # until a source that ends is read, if that can be said


@dataclass
class Window:
    """The status at some moments of the last seconds."""

    _seen: deque[tuple[float, Status]] = field(default_factory=deque)

    def rates(self, now: float, status: Status) -> Rates:
        if self._seen and status.rows_accepted < self._seen[-1][1].rows_accepted:
            self._seen.clear()  # the query was started again and counts from 0
        self._seen.append((now, status))
        while len(self._seen) > 2 and now - self._seen[1][0] >= _OVER_S:
            self._seen.popleft()
        since, before = self._seen[0]
        seconds = max(now - since, 1e-9)
        return Rates(
            (status.rows_accepted - before.rows_accepted) / seconds,
            (status.bytes_accepted - before.bytes_accepted) / seconds,
            (status.bytes_landed - before.bytes_landed) / seconds,
            _left_s(status, before, seconds),
        )


def _left_s(status: Status, before: Status, seconds: float) -> float | None:
    if status.source_left_bytes is None or before.source_left_bytes is None:
        return None
    read = before.source_left_bytes - status.source_left_bytes
    return status.source_left_bytes * seconds / read if read > 0 else None
