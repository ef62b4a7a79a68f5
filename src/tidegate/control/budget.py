"""The request budget: how many requests a second all tables together may make, and who gets them when they are few."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidegate.control.columns import Numbers
from tidegate.control.dispatchers import Dispatchers
from tidegate.control.limits import Limits
from tidegate.control.rounds import Round
from tidegate.format.tables import SETTLED

_TABLE_REQUESTS = 3  # of a landing with one file: data, index read and put
_SCHEMA_REQUESTS = 2
_SAVED_S = 2.0  # for so long unspent requests are kept


@dataclass
class Budget:
    limits: Limits
    dispatchers: Dispatchers
    late_s: float = 0.0  # how far the oldest change is past its age bound because the budget is spent
    requests: float = 0.0  # that are left; below 0 after what the budget cannot refuse
    _refilled: float | None = None

    def refill(self, now: float) -> None:
        budget = self.limits.put_budget
        if budget is not None:
            since = now - self._refilled if self._refilled is not None else _SAVED_S
            self.requests, self._refilled = min(self.requests + since * budget, _SAVED_S * budget), now

    def spend(self, round_: Round) -> None:
        lanes = len(np.unique(round_.lane))
        asked = len(round_) + (_TABLE_REQUESTS - 1) * lanes + _SCHEMA_REQUESTS * int((round_.schema != SETTLED).sum())
        self.requests -= asked if self.limits.put_budget is not None else 0

    def affordable(self, ready: Numbers, now: float) -> Numbers:
        """Of these, what the budget pays for now: the largest and oldest. It is saved up, so that rounds are whole."""
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
