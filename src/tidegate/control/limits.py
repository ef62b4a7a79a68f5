"""What a changefeed may take: the sizes, ages and rates its planner keeps to, and how much goes into one round.

A round is one job, and nothing of it is durable before its answer is here. A large round costs fewer jobs, a small one
makes its first file durable sooner. `Pace` therefore aims at a time, not at a size: it measures how fast files land and
puts so much into a round that it takes about `round_seconds`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidegate.control.columns import Ints, Numbers

MIB = 1 << 20
_AGE_LEAD = 0.1
_LONG_ROUND = 4
_STRETCHED = 1.5  # times its length, at most: a short rest would cost a job of its own, while other tasks are idle
_LEAST_FILES = 64  # also a slow store gets this many at once: it may be slow for each request, not for all together
_TELLING_BYTES, _TELLING_FILES = 16 * MIB, 50  # a smaller round says more about its job than about the store
_NEWEST_WEIGHT = 0.3
_TELLING_HUNG, _LEAST_SHARE = 8, 1 / 32  # lanes; of the lanes of a task


@dataclass(frozen=True)
class Limits:
    file_size_bytes: int = 64 * MIB
    flush_interval_s: float = 5.0
    max_flush_delay_s: float | None = None
    round_bytes: int = 512 * MIB
    round_tables: int = 20_000
    round_seconds: float = 1.0
    spool_max_bytes: int = 10 << 30
    state_ttl_s: float = 3600.0  # a table without a change for so long is idle
    put_budget: int | None = None  # requests per second over all tables
    dispatcher_share: float = 1 / 8  # of the spool that one dispatcher may fill before its source is told to wait

    @property
    def age_bound_s(self) -> float:
        """How old the oldest change of a queue may become before its flush starts.

        The user's bound is about when a change is durable, and landing takes time. The flush therefore starts a tenth
        of the bound early, at most half a second.
        """
        delay = self.max_flush_delay_s
        bound = self.flush_interval_s if delay is None else min(delay, self.flush_interval_s)
        return bound - min(bound * _AGE_LEAD, 0.5)

    @property
    def age_reason(self) -> str:
        delay = self.max_flush_delay_s
        return "delay" if delay is not None and delay < self.flush_interval_s else "interval"


@dataclass
class Pace:
    """The measured speed of landing, and what follows from it for the next round."""

    limits: Limits
    bytes_per_s: float = 128.0 * MIB
    files_per_s: float = 1_000.0
    free_tasks: int = 1  # land tasks that could begin a round now
    lane_share: float = 1.0  # of the lanes that a land task may run at once

    def measure(self, landed_bytes: int, files: int, seconds: float) -> None:
        """Learn from a round that landed so much. One slow round changes the speed by a third, not to its own."""
        seconds = max(seconds, 1e-3)
        if landed_bytes > _TELLING_BYTES:
            self.bytes_per_s += _NEWEST_WEIGHT * (landed_bytes / seconds - self.bytes_per_s)
        if files >= _TELLING_FILES:
            self.files_per_s += _NEWEST_WEIGHT * (files / seconds - self.files_per_s)

    def adapt(self, landed: int, hung: int) -> None:
        """So many lanes of a round landed and hung. If most hung, the store had more to do at once than it can.

        All requests of an overloaded store are late, and lanes that are given up only add to its work. So half as many
        lanes are tried, and a little more after each round in which none hung. One table that hangs changes nothing.
        """
        if hung >= max(_TELLING_HUNG, landed):
            self.lane_share = max(_LEAST_SHARE, self.lane_share / 2)
        elif landed and not hung:
            self.lane_share = min(1.0, self.lane_share * 1.5)

    @property
    def most_bytes(self) -> int:
        """Bytes for one round: at least one file, whatever the speed."""
        paced = int(self.bytes_per_s * self.limits.round_seconds)
        return min(self.limits.round_bytes, max(paced, self.limits.file_size_bytes))

    def capped(self, ready: Numbers, queued_bytes: Ints, reason: str) -> tuple[Numbers, str]:
        """The first of these dispatchers, as many as one round takes, at least one; and the reason to report.

        A round that a fixed limit cut short is reported as `fanout` or `bytes_cap`. The user then sees that the limit
        decides how old changes become, not the flush interval.
        """
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
        """Files for one round.

        When more is due than several rounds take, most of it waits anyway. Rounds are longer then: with fewer jobs all
        of it is done sooner. What is due is divided evenly among the tasks that are free, so that they end together and
        no short rest is left over for one of them.
        """
        paced = self.files_per_s * self.limits.round_seconds
        long = paced * (_LONG_ROUND if due > _LONG_ROUND * paced else 1)
        share = -(-due // max(1, self.free_tasks))
        wanted = max(share, paced / 2) if paced < due and share <= _STRETCHED * long else long
        return min(self.limits.round_tables, max(_LEAST_FILES, int(wanted)))
