"""The request budget: how many requests a second all tables together may make, and who gets them when they are few.

With many small tables the price of a sink is the number of requests, not of bytes. A budget makes the price a choice:
files become larger and changes older. Nothing that is already late for another reason is refused: DDLs, closing and
retries are always paid, and what they overspend is missing later.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidegate.control.columns import Numbers
from tidegate.control.dispatchers import Dispatchers
from tidegate.control.limits import Limits
from tidegate.control.rounds import Round
from tidegate.format.tables import NEW, SETTLED

_TABLE_REQUESTS = 2  # for a table with one file: put the data, put the index
_SAVED_S = 2.0  # unspent requests are kept this long, so that a burst after an idle hour stays small


@dataclass
class Budget:
    """What is left to spend. Without a budget (`put_budget` is None) everything is affordable."""

    limits: Limits
    dispatchers: Dispatchers
    late_s: float = 0.0  # how far the oldest change is past the flush interval because the budget is spent
    requests: float = 0.0  # requests left; below 0 after rounds that the budget may not refuse
    _refilled: float | None = None

    def refill(self, now: float) -> None:
        """Time has passed, so there are requests again."""
        budget = self.limits.put_budget
        if budget is not None:
            since = now - self._refilled if self._refilled is not None else _SAVED_S
            self.requests, self._refilled = min(self.requests + since * budget, _SAVED_S * budget), now

    def spend(self, round_: Round) -> None:
        """The round goes out, and what it will ask at least is paid."""
        if self.limits.put_budget is not None:
            self.requests -= _least_requests(round_)

    def settle(self, round_: Round, asked: int) -> None:
        """The round has answered: what it asked beyond the least is paid too, such as an index that had to be read."""
        if self.limits.put_budget is not None:
            self.requests -= max(0, asked - _least_requests(round_))

    def affordable(self, ready: Numbers, now: float) -> Numbers:
        """Of these dispatchers, those that the budget pays for now: the oldest and largest.

        While less than a round's worth is left it pays for nobody and saves up. Otherwise every few requests would be
        spent on a job of their own.
        """
        budget = self.limits.put_budget
        if budget is None or not len(ready):
            return ready
        ds, limits = self.dispatchers, self.limits
        late = float((now - ds.oldest_at[ready]).max()) - limits.flush_interval_s
        wanted = _TABLE_REQUESTS * len(ready)
        if self.requests < min(wanted, budget * limits.round_seconds, _SAVED_S * budget):
            self.late_s = max(0.0, late)
            return ready[:0]
        most = max(1, int(self.requests // _TABLE_REQUESTS))
        if most >= len(ready):
            self.late_s = 0.0
            return ready
        self.late_s = max(0.0, late)
        score = (now - ds.oldest_at[ready]) / limits.age_bound_s + ds.queued_bytes[ready] / limits.file_size_bytes
        best: Numbers = ready[np.argsort(-score, kind="stable")[:most]]
        return best


def _least_requests(round_: Round) -> int:
    """A put for each file, each index and each schema file; a list before schema files that may exist."""
    puts = int((round_.schema != SETTLED).sum())
    lists = puts - int((round_.schema == NEW).sum())
    return len(round_) + len(np.unique(round_.lane)) + puts + lists
