"""The flush planner: which files to land now, and why.

A dispatcher is due when its queue holds a file's worth (`size`), when its oldest change has waited long enough since
it was accepted (`interval`, or `delay` where max-flush-delay is the shorter bound), when the spool is under pressure
(the largest first), or when the changefeed closes. A request budget, if there is one, is spent on the largest and
oldest first; only DDLs and closing go past it. The planner visits the dispatchers that became active or due, never
all of them. Invariants:
1. A file holds whole items of one dispatcher and version, in order, as close to `file_size_bytes` as the items allow;
   items of one transaction stay in one file unless together they exceed it.
2. A lane has at most one landing under way; neither its date nor its version ever goes back; a new date or version
   starts its numbers at 1. Where dispatchers share a lane, an older version of any of them lands before a newer one.
3. What failed is planned again with the same files under the same numbers, after a pause that grows. What hung is
   planned apart from the rest, one such round at a time and never two in a row while anything else is due, so that it
   holds up nothing else. Only what found its schema file under another version, or files of
   another writer, gets other numbers, before any of its files exists.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidegate.control.budget import Budget
from tidegate.control.columns import Numbers
from tidegate.control.cut import cut_all, cut_full
from tidegate.control.limits import Limits, Pace
from tidegate.control.markers import Markers
from tidegate.control.queues import Queues
from tidegate.control.ready import Ready
from tidegate.control.retries import Retries
from tidegate.control.rounds import Numbering, Round, number_files
from tidegate.control.spool import Spool

_PORTION = 4
_UNBUDGETED = ("ddl", "close")


class Candidates(NamedTuple):
    dispatcher: Numbers
    reason: str


@dataclass
class Planner:
    limits: Limits
    queues: Queues
    markers: Markers
    closing: bool = False
    planned_bytes: int = 0  # in rounds under way; what waits to be tried again relieves the spool of nothing
    numbering: Numbering = field(default_factory=Numbering)
    _others_first: bool = False  # the last round was one of suspects

    def __post_init__(self) -> None:
        self.ready = Ready(self.limits, self.queues, self.markers)
        self.due = self.ready.due
        self.retries = Retries(self.numbering)
        self.budget = Budget(self.limits, self.queues.dispatchers)
        self.pace = Pace(self.limits)

    def plan(self, now: float, date: int, spool: Spool) -> Round | None:
        """The next round, or None when nothing is due. Order: what failed, age, size, pressure."""
        if self.closing:
            self.retries.shorten_pauses(now)
        if self._others_first:
            found = self._other(now, date, spool) or self.retries.take_suspect(now)
        else:
            found = self.retries.take_suspect(now) or self._other(now, date, spool)
        self._others_first = found is not None and found.suspect
        if found is not None:
            self.planned_bytes += int(found.bytes.sum())
            self.budget.spend(found)
        return found

    def _other(self, now: float, date: int, spool: Spool) -> Round | None:
        again = self.retries.take_failed(now, self.limits.round_tables, self.pace.most_bytes)
        if again is not None:
            return again
        self.due.come_of_age(np.inf if self.closing else now)
        self.budget.refill(now)
        for candidates, reason in self._candidates(spool):
            for portion in self._portions(candidates):
                self.due.visited += len(portion)
                ready = self.ready.among(portion)
                if reason not in _UNBUDGETED:
                    ready = self.budget.affordable(ready, now)
                if len(ready):
                    return self._round(ready, reason, date)
        return None

    def _candidates(self, spool: Spool) -> Iterator[Candidates]:
        yield Candidates(self.due.draining, "ddl")
        if self.closing:
            yield Candidates(self.due.aged, "close")
            yield Candidates(self.due.full, "close")
            return
        aged, full = Candidates(self.due.aged, self.limits.age_reason), Candidates(self.due.full, "size")
        # A whole file for a request is the best use of a budget, and of what is short the age bound has to give.
        yield from (aged, full) if self.limits.put_budget is None else (full, aged)
        if spool.under_pressure():
            yield Candidates(self.ready.pressed(spool, self.planned_bytes), "pressure")

    def _portions(self, candidates: Numbers) -> Iterator[Numbers]:
        """A million may be due, of which a round takes some thousands: no more are looked at. A budget compares all."""
        most = _PORTION * self.limits.round_tables if self.limits.put_budget is None else max(1, len(candidates))
        return (candidates[at : at + most] for at in range(0, len(candidates), most))

    def _round(self, ready: Numbers, reason: str, date: int) -> Round:
        """Cut the queues of these dispatchers into files, up to what one round may take."""
        taken, reason = self.pace.capped(ready, self.queues.dispatchers.queued_bytes[ready], reason)
        self.due.visited += len(taken)
        cut_queues = cut_full if reason == "size" else cut_all
        cut = cut_queues(self.queues, self.markers, taken, self.limits.file_size_bytes)
        cut = cut.within(self.queues.items, 1.5 * self.pace.most_bytes)
        self.queues.remove_front(cut.slots, cut.dispatcher)
        self.due.forget(taken)
        round_ = number_files(self.queues, cut, reason, date, self.numbering)
        oversized = round_.bytes > self.limits.spool_max_bytes
        return replace(round_, reason=np.where(oversized, "oversized", reason))

    # -- answers -------------------------------------------------------------------------------------------------

    def answered(self, round_: Round) -> None:
        """The round is under way no more."""
        self.planned_bytes -= int(round_.bytes.sum())
        self.retries.answered(round_)

    def landed(self, round_: Round, landed: NDArray[np.bool_], over: NDArray[np.bool_]) -> None:
        """These files landed; the lanes of those that are `over` are free, and what their queues hold may be due."""
        items, lanes = self.queues.items, self.queues.lanes
        settled = round_.settles() & landed
        lanes.settle(round_.lane[settled], round_.version[settled])
        for i in np.flatnonzero(landed & lanes.owing(round_.lane)).tolist():
            last = round_.slots[round_.bounds[i + 1] - 1]
            lanes.landed(
                int(round_.lane[i]), int(round_.number[i]), (int(items.last_ts[last]), int(items.last_seq[last]))
            )
        lanes.release(round_.lane[over])
        self.due.landed(np.unique(round_.dispatcher[over]))
