"""What a changefeed may take: the sizes, ages and rates that its planner keeps to, and how much one round takes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidegate.control.columns import Ints, Numbers

MIB = 1 << 20
_AGE_LEAD = 0.1  # an age flush starts this share of the bound early, at most half a second, to be durable by the bound
_LONG_ROUND = 4
_TELLING_BYTES, _TELLING_FILES = 16 * MIB, 50  # a round of so much is large enough to tell the speed


@dataclass(frozen=True)
class Limits:
    file_size_bytes: int = 64 * MIB
    flush_interval_s: float = 5.0
    max_flush_delay_s: float | None = None
    round_bytes: int = 512 * MIB
    round_tables: int = 20_000
    round_seconds: float = 1.0
    spool_max_bytes: int = 10 << 30
    state_ttl_s: float = 3600.0  # the state of a table that got no change for so long is given up
    put_budget: int | None = None  # requests per second over all tables
    dispatcher_share: float = 1 / 8

    @property
    def age_bound_s(self) -> float:
        delay = self.max_flush_delay_s
        bound = self.flush_interval_s if delay is None else min(delay, self.flush_interval_s)
        return bound - min(bound * _AGE_LEAD, 0.5)

    @property
    def age_reason(self) -> str:
        delay = self.max_flush_delay_s
        return "delay" if delay is not None and delay < self.flush_interval_s else "interval"


@dataclass
class Pace:
    limits: Limits
    bytes_per_s: float = 128.0 * MIB  # measured speed of landing, so that a round takes about `round_seconds`
    files_per_s: float = 1_000.0

    def measure(self, landed_bytes: int, files: int, seconds: float) -> None:
        """Learn the speed of landing from rounds large enough to tell."""
        seconds = max(seconds, 1e-3)
        if landed_bytes > _TELLING_BYTES:
            self.bytes_per_s += 0.3 * (landed_bytes / seconds - self.bytes_per_s)
        if files >= _TELLING_FILES:
            self.files_per_s += 0.3 * (files / seconds - self.files_per_s)

    @property
    def most_bytes(self) -> int:
        paced = int(self.bytes_per_s * self.limits.round_seconds)
        return min(self.limits.round_bytes, max(paced, self.limits.file_size_bytes))

    def capped(self, ready: Numbers, queued_bytes: Ints, reason: str) -> tuple[Numbers, str]:
        """As many dispatchers as the caps and the measured speed allow, at least one."""
        limits, most_bytes = self.limits, self.most_bytes
        most_files = self._most_files(len(ready))
        within = np.cumsum(queued_bytes) <= most_bytes
        count = max(1, min(int(within.sum()), most_files))
        if count < len(ready) and reason in ("interval", "delay", "close"):
            if count == limits.round_tables:
                reason = "fanout"
            elif most_bytes == limits.round_bytes and count < most_files:
                reason = "bytes_cap"
        return ready[:count], reason

    def _most_files(self, due: int) -> int:
        paced = self.files_per_s * self.limits.round_seconds
        # With so many due, all wait for rounds to come anyway: fewer and longer ones cost less between them.
        paced *= _LONG_ROUND if due > _LONG_ROUND * paced else 1
        return min(self.limits.round_tables, max(64, int(paced)))
