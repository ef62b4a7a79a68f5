"""The flush planner: which files to land now, and why.

It asks its parts in this order:
1. `retries`: rounds that hung or failed and are due again. They come first, because they are the oldest.
2. `due`: who waits before a DDL, who is old enough, who has a file's worth, and under pressure who frees the spool.
   In conflict it keeps, in this order: the bound of the spool, the age, the file size, the number of requests.
3. `ready`: which of these can land now.
4. `budget`: which of these can be paid, if requests are limited. DDLs, closing and a spool above its high mark do not
   ask.
5. `pace`: how many of these make one round.
6. `cut` and `lanes`: their queues become files, and the files get numbers.

Where each decision is explained: see these modules. Only what concerns several of them is decided here.
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

_PORTION = 4  # rounds' worth of candidates looked at together
_LARGEST_ROUND = 1.5  # times the bytes it should have, at most: one queue alone may have far more


class Candidates(NamedTuple):
    """Dispatchers that are due, and why."""

    dispatcher: Numbers
    reason: str
    budgeted: bool = True  # whether the budget may let them wait


@dataclass
class Planner:
    """Plans one round at a time, and hears what became of it."""

    limits: Limits
    queues: Queues
    markers: Markers
    closing: bool = False  # the changefeed ends: everything is due
    planned_bytes: int = 0  # in rounds under way; a round that waits for its retry will free nothing soon
    numbering: Numbering = field(default_factory=Numbering)
    _others_first: bool = False  # the last round was a suspect
    _last_turn: str = ""  # the reason of the last round that was due by age or by size

    def __post_init__(self) -> None:
        self.ready = Ready(self.limits, self.queues, self.markers)
        self.due = self.ready.due
        self.retries = Retries(self.numbering)
        self.budget = Budget(self.limits, self.queues.dispatchers)
        self.pace = Pace(self.limits)

    def plan(self, now: float, date: int, spool: Spool, free_tasks: int = 1) -> Round | None:
        """The next round, or None when nothing can land now. `free_tasks` of the land tasks are idle, this one counted.

        Suspects, rounds that hung before, alternate with all others. So they get their turn however much is due, and
        never take two land tasks in a row from the tables that work.
        """
        self.pace.free_tasks = free_tasks
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
        """A round that failed, or else a new one."""
        again = self.retries.take_failed(now, self.limits.round_tables, self.pace.most_bytes)
        if again is not None:
            return again
        self.due.come_of_age(np.inf if self.closing else now)
        self.budget.refill(now)
        for candidates, reason, budgeted in self._candidates(spool):
            for portion in self._portions(candidates):
                self.due.visited += len(portion)
                ready = self.ready.among(portion)
                if budgeted:
                    ready = self.budget.affordable(ready, now)
                if len(ready):
                    self._note_turn(reason)
                    return self._round(ready, reason, date)
        return None

    def _candidates(self, spool: Spool) -> Iterator[Candidates]:
        """Who is due, the most urgent first. A DDL comes before all, for everything behind it waits.

        Above the high mark the spool comes before age and does not ask the budget: its bound is a promise about the
        machine, and all tables wait while the upstream does. `pressed` counts what is under way, so age has its turn
        as soon as enough is.
        """
        yield Candidates(self.due.draining, "ddl", budgeted=False)
        if self.closing:
            yield Candidates(self.due.aged, "close", budgeted=False)
            yield Candidates(self.due.full, "close", budgeted=False)
            return
        if spool.above_high_mark:
            yield Candidates(self.ready.pressed(spool, self.planned_bytes), "pressure", budgeted=False)
        yield from self._by_turns()
        if spool.under_pressure() and not spool.above_high_mark:
            yield Candidates(self.ready.pressed(spool, self.planned_bytes), "pressure")

    def _by_turns(self) -> Iterator[Candidates]:
        """Those due by age and those due by size take turns, a round each.

        Age begins, because its bound is the promise. But a hundred thousand small tables may be twenty rounds, and a
        full file that waited behind them all would fill the spool. With a budget full files begin: they take the most
        bytes for a request.
        """
        aged, full = Candidates(self.due.aged, self.limits.age_reason), Candidates(self.due.full, "size")
        first, second = (aged, full) if self.limits.put_budget is None else (full, aged)
        yield from (second, first) if self._last_turn == first.reason else (first, second)

    def _note_turn(self, reason: str) -> None:
        if reason in (self.limits.age_reason, "size"):
            self._last_turn = reason

    def _portions(self, candidates: Numbers) -> Iterator[Numbers]:
        """The candidates, some rounds' worth at a time: a million may be due, and one round takes some thousands.

        A budget must see all of them at once, because it picks the oldest and largest among all.
        """
        most = _PORTION * self.limits.round_tables if self.limits.put_budget is None else max(1, len(candidates))
        return (candidates[at : at + most] for at in range(0, len(candidates), most))

    def _round(self, ready: Numbers, reason: str, date: int) -> Round:
        """A round of files from the queues of the first of these dispatchers.

        A size flush takes only full files. Every other reason takes all that may land.
        """
        taken, reason = self.pace.capped(ready, self.queues.dispatchers.queued_bytes[ready], reason)
        self.due.visited += len(taken)
        cut_queues = cut_full if reason == "size" else cut_all
        cut = cut_queues(self.queues, self.markers, taken, self.limits.file_size_bytes)
        cut = cut.within(self.queues.items, _LARGEST_ROUND * self.pace.most_bytes)
        self.queues.remove_front(cut.slots, cut.dispatcher)
        self.due.forget(taken)
        round_ = number_files(self.queues, cut, reason, date, self.numbering)
        oversized = round_.bytes > self.limits.spool_max_bytes
        return replace(round_, reason=np.where(oversized, "oversized", reason))

    # -- answers -------------------------------------------------------------------------------------------------

    def answered(self, round_: Round, landed: NDArray[np.bool_]) -> None:
        """The round is no longer under way, and its files that landed prove that their schema files exist."""
        self.planned_bytes -= int(round_.bytes.sum())
        self.retries.answered(round_)
        settled = round_.settles() & landed
        self.queues.lanes.settle(round_.lane[settled], round_.version[settled])

    def landed(self, round_: Round, landed: NDArray[np.bool_], over: NDArray[np.bool_]) -> None:
        """These files landed. The lanes of those that are `over` are free, so what their queues have may be due."""
        items, lanes = self.queues.items, self.queues.lanes
        for i in np.flatnonzero(landed & lanes.owing(round_.lane)).tolist():
            last = round_.slots[round_.bounds[i + 1] - 1]
            lanes.landed(
                int(round_.lane[i]), int(round_.number[i]), (int(items.last_ts[last]), int(items.last_seq[last]))
            )
        lanes.release(round_.lane[over])
        self.due.landed(np.unique(round_.dispatcher[over]))
