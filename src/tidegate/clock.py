"""The only reader of time outside tests: a steady clock for ages, a wall clock for dates and for canal-json's `ts`."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    def steady(self) -> float:
        """Seconds that only grow."""

    def wall(self) -> datetime:
        """Local wall-clock time, for the date level of paths."""


class SystemClock:
    def steady(self) -> float:
        return time.monotonic()

    def wall(self) -> datetime:
        return datetime.now().astimezone()


def now_ms() -> int:
    """Milliseconds since 1970, as canal-json writes the moment of encoding."""
    return time.time_ns() // 1_000_000
