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

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidegate.control.blocking import Blocking
from tidegate.control.checkpoint import NOTHING_PENDING
from tidegate.control.columns import Ints, Numbers, group_starts
from tidegate.control.dispatcher import Queues
from tidegate.control.retry import pause_s
from tidegate.control.spool import Spool
from tidegate.errors import BrokenInvariant
from tidegate.format.tables import CHECK, LOOK, SETTLED

MIB = 1 << 20
REASONS = (
    "size", "interval", "delay", "ddl", "bytes_cap", "fanout", "pressure", "oversized", "close", "error",
)  # fmt: skip
_AGE_LEAD = (
    0.1  # start an age flush this share of the bound early, at most half a second, so that it is durable by the bound
)
_CLOSING_PAUSE_S = 1.0
_TABLE_REQUESTS = 3  # of a landing with one file: data, index read and put
_SCHEMA_REQUESTS = 2
_LONG_ROUND = _PORTION = 4
_SAVED_S = 2.0  # for so long unspent requests are kept
_UNBUDGETED = ("ddl", "close")


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


@dataclass(frozen=True)
class Round:
    """Files to land together. `slots` lists the items of all files, file i has `slots[bounds[i]:bounds[i + 1]]`.

    Files of one lane are consecutive, in order, and share version and date.
    """

    id: int
    plan: Ints  # a number for each file that stays the same when it is tried again
    slots: Numbers
    bounds: Ints
    dispatcher: Numbers
    lane: Numbers
    number: Ints
    version: Ints
    directory: Ints  # the version in the path
    date: Ints
    bytes: Ints
    reason: NDArray[np.str_]
    schema: NDArray[np.int8]  # what is to be done about the schema file first
    attempt: int = 0
    fresh: bool = True  # its files have never been put on record
    suspect: bool = False  # its lanes hung before

    def __len__(self) -> int:
        return len(self.lane)

    def files(self, keep: NDArray[np.bool_], round_id: int) -> Round:
        """The same round with only the files kept, under another id and as one more attempt."""
        counts = np.diff(self.bounds)
        slots = self.slots[np.repeat(keep, counts)]
        bounds = np.concatenate(([0], np.cumsum(counts[keep])))
        reason = np.full(int(keep.sum()), "error")
        return Round(
            round_id, self.plan[keep], slots, bounds, self.dispatcher[keep], self.lane[keep], self.number[keep],
            self.version[keep], self.directory[keep], self.date[keep], self.bytes[keep], reason, self.schema[keep],
            self.attempt + 1, fresh=False,
        )  # fmt: skip


def joined(rounds: list[Round], round_id: int) -> Round:
    """Rounds of different lanes as one."""
    names = (
        "plan", "slots", "dispatcher", "lane", "number", "version", "directory", "date", "bytes", "reason", "schema",
    )  # fmt: skip
    columns: dict[str, Any] = {name: np.concatenate([getattr(round_, name) for round_ in rounds]) for name in names}
    counts = np.concatenate([np.diff(round_.bounds) for round_ in rounds])
    return replace(rounds[0], id=round_id, bounds=np.append(0, np.cumsum(counts)), **columns)


class Place(NamedTuple):
    """Where a lane's files go: a version's directory, behind its last file, after so much work on the schema file."""

    directory: int
    last_number: int
    schema: int


@dataclass
class Planner:
    limits: Limits
    queues: Queues
    blocking: Blocking
    closing: bool = False
    newest_date: int = 0  # no table lands under an older one, whatever the clock says
    bytes_per_s: float = 128.0 * MIB  # measured speed of landing, so that a round takes about `round_seconds`
    files_per_s: float = 1_000.0
    planned_bytes: int = 0  # in rounds under way; what waits to be tried again relieves the spool of nothing
    budget_late_s: float = 0.0  # how far the oldest change is past its age bound because the budget is spent
    visited: int = 0  # dispatchers looked at so far: follows the active ones, not the known ones
    foreign: bool = False  # another writer's files stand on the sink: each new directory is looked at first
    # By lane and number: where files end, (commit_ts, seq), that an old writer may still create.
    _owed: dict[int, dict[int, set[tuple[int, int]]]] = field(default_factory=dict)
    _ages: list[tuple[float, int, Numbers]] = field(default_factory=list)
    _age_due: Numbers = field(default_factory=lambda: np.zeros(0, np.int64))
    _size_due: Numbers = field(default_factory=lambda: np.zeros(0, np.int64))
    _ddl_due: Numbers = field(default_factory=lambda: np.zeros(0, np.int64))
    _retries: list[tuple[float, int, Round]] = field(default_factory=list)
    _suspects: list[tuple[float, int, Round]] = field(default_factory=list)
    _suspect_out: int = 0  # the round of suspects that is under way
    _others_first: bool = False  # the last round was one of suspects
    _requests: float = 0.0  # that the budget has left; below 0 after what it cannot refuse
    _refilled: float | None = None
    _pushed: int = 0
    _rounds: int = 0
    _plans: int = 0

    def continue_plans(self, number: int) -> None:
        """Plan numbers below this are taken: an earlier run's plans may still be told apart by them."""
        self._plans = max(self._plans, number)

    def owe(self, lane: int, number: int, end: tuple[int, int]) -> None:
        """An old writer may still create this file: until that is over the lane keeps its date."""
        self._owed.setdefault(lane, {}).setdefault(number, set()).add(end)
        self.queues.lanes.owed[lane] = True

    def settle_owed(self, round_: Round, landed: NDArray[np.bool_]) -> None:
        """An old writer goes on behind files that are the same as its own, and stops at the first that is another."""
        items = self.queues.items
        for i in np.flatnonzero(landed & np.isin(round_.lane, list(self._owed))).tolist():
            theirs, last = self._owed.get(int(round_.lane[i]), {}), round_.slots[round_.bounds[i + 1] - 1]
            same = (int(items.last_ts[last]), int(items.last_seq[last])) in theirs.get(int(round_.number[i]), ())
            if not same or max(theirs) <= round_.number[i]:
                self._owed.pop(int(round_.lane[i]), None)

    def activated(self, dispatcher: Numbers, accepted: float) -> None:
        """These queues were empty and hold something since `accepted`."""
        self._push(dispatcher, accepted + self.limits.age_bound_s)

    def grown(self, dispatcher: Numbers) -> None:
        """These queues hold more than before."""
        full = dispatcher[self.queues.dispatchers.bytes[dispatcher] >= self.limits.file_size_bytes]
        if len(full):
            self._size_due = np.union1d(self._size_due, full)

    def drain(self, dispatcher: Numbers) -> None:
        """What these hold before a DDL's marker lands at once."""
        if len(before := dispatcher[self._before_marker(dispatcher)]):
            self._ddl_due = np.union1d(self._ddl_due, before)

    def _before_marker(self, dispatcher: Numbers) -> NDArray[np.bool_]:
        """Which of these hold something that a marker stands behind."""
        frozen = self.blocking.frozen_from(dispatcher)
        return np.asarray((frozen != NOTHING_PENDING) & self._open(dispatcher, frozen))

    def _open(self, dispatcher: Numbers, frozen: Ints) -> NDArray[np.bool_]:
        """Which of these hold something that may land."""
        head = self.queues.dispatchers.head[dispatcher]
        found = head >= 0
        found[found] = self.queues.items.first_ts[head[found]] < frozen[found]
        return found

    def released(self, dispatcher: Numbers) -> None:
        """A DDL is over: what stood behind its marker may stand before the next; by size or age it is due as before."""
        self.drain(dispatcher[self.queues.dispatchers.head[dispatcher] >= 0])

    def stuck(self, dispatcher: Numbers) -> Numbers:
        """Those of these that cannot land now: their lanes wait for a retry, or a DDL stands before what they hold."""
        return np.setdiff1d(dispatcher, self._free(dispatcher))

    def nothing_open(self) -> bool:
        """Whether all that is queued stands behind markers, or in lanes that are busy."""
        return not len(self._ready(self._all_active()))

    def landed(self, lanes: Numbers, dispatcher: Numbers, landed_bytes: int) -> None:
        """All files of these lanes landed, so the lanes are free and what stands in their queues may be due."""
        self.queues.lanes.busy[lanes] = self.queues.lanes.owed[lanes] = False
        if self._owed:
            self.queues.lanes.owed[np.intersect1d(lanes, list(self._owed))] = True
        self.planned_bytes -= landed_bytes
        self._renew(dispatcher[self.queues.dispatchers.head[dispatcher] >= 0])

    def _renew(self, left: Numbers) -> None:
        """These hold something again that may be due."""
        self.grown(left)
        for due in np.unique(self.queues.dispatchers.oldest[left]):
            self.activated(left[self.queues.dispatchers.oldest[left] == due], float(due))

    def failed(self, round_: Round, keep: NDArray[np.bool_], hung: NDArray[np.bool_], now: float) -> None:
        """The kept files did not land and are planned again after a pause: lanes that hung apart from the others."""
        self.planned_bytes -= int(round_.bytes[keep].sum())
        apart = keep & np.isin(round_.lane, np.unique(round_.lane[keep & hung]))
        if apart.any():
            again, due = self._again(round_, apart, now)
            heapq.heappush(self._suspects, (due, again.id, replace(again, suspect=True)))
        if (keep & ~apart).any():
            # Without those that hung, with which most of these were not even tried, they have a fresh chance.
            first = replace(round_, attempt=0) if apart.any() else round_
            again, due = self._again(first, keep & ~apart, now)
            heapq.heappush(self._retries, (due, again.id, again))

    def _again(self, round_: Round, files: NDArray[np.bool_], now: float) -> tuple[Round, float]:
        self._rounds += 1
        return round_.files(files, self._rounds), now + pause_s(round_.attempt, self._rounds)

    def answered(self, round_: Round) -> None:
        if round_.id == self._suspect_out:
            self._suspect_out = 0

    def renumber(self, round_: Round, places: Mapping[int, Place], now: float) -> None:
        """Nothing of these lanes' files exists yet: plan them again at once, each behind what stands at its place."""
        if not places:
            return
        keep, lanes = np.isin(round_.lane, list(places)), self.queues.lanes
        lane = round_.lane[keep]
        starts = group_starts(lane)
        counts = np.diff(np.append(starts, len(lane)))
        heads = lane[starts]
        directory, last, schema = np.array([places[n] for n in heads.tolist()], np.int64).T
        lanes.directory[heads], lanes.number[heads], lanes.look[heads] = directory, last + counts, False
        settled = schema == SETTLED
        lanes.schema_version[heads[settled]] = round_.version[keep][starts[settled]]
        self.planned_bytes -= int(round_.bytes[keep].sum())
        self._rounds += 1
        self._plans += len(lane)
        within = np.arange(len(lane)) - np.repeat(starts, counts)
        again = replace(
            round_.files(keep, self._rounds),
            plan=np.arange(self._plans - len(lane), self._plans),
            number=np.repeat(last, counts) + 1 + within,
            directory=np.repeat(directory, counts),
            schema=np.where(within == 0, np.repeat(schema, counts), SETTLED).astype(np.int8),
            reason=round_.reason[keep],
            fresh=True,
        )
        heapq.heappush(self._retries, (now, self._rounds, again))

    @property
    def retrying(self) -> list[Round]:
        return [round_ for _, _, round_ in (*self._retries, *self._suspects)]

    def plan(self, now: float, date: int, spool: Spool) -> Round | None:
        """The next round, or None when nothing is due. Order: what failed, age, size, pressure."""
        if self.closing:
            self._shorten_pauses(now)
        if self._others_first:
            found = self._other(now, date, spool) or self._suspect(now)
        else:
            found = self._suspect(now) or self._other(now, date, spool)
        self._others_first = found is not None and found.suspect
        return found

    def _suspect(self, now: float) -> Round | None:
        """What hung, if nothing else that hung is under way."""
        if self._suspect_out or not self._suspects or self._suspects[0][0] > now:
            return None
        again = self._taken(heapq.heappop(self._suspects)[2])
        self._suspect_out = again.id
        return again

    def _retry(self, now: float) -> Round:
        """What failed and is due. Rounds that paused as long go together: each is a job, and there may be very many."""
        first = heapq.heappop(self._retries)[2]
        rounds, files, size = [first], len(first), int(first.bytes.sum())
        while self._retries and self._retries[0][0] <= now:
            other = self._retries[0][2]
            files, size = files + len(other), size + int(other.bytes.sum())
            alike = other.fresh == first.fresh and pause_s(other.attempt, 0) == pause_s(first.attempt, 0)
            if not alike or files > self.limits.round_tables or size > self._most_bytes():
                break
            rounds.append(heapq.heappop(self._retries)[2])
        if len(rounds) == 1:
            return self._taken(first)
        self._rounds += 1
        return self._taken(joined(rounds, self._rounds))

    def _taken(self, again: Round) -> Round:
        self.planned_bytes += int(again.bytes.sum())
        self._spend(again)
        return again

    def _other(self, now: float, date: int, spool: Spool) -> Round | None:
        if self._retries and self._retries[0][0] <= now:
            return self._retry(now)
        self._collect_due(np.inf if self.closing else now)
        self._refill(now)
        for candidates, reason, whole in self._due(spool):
            for portion in self._portions(candidates):
                self.visited += len(portion)
                ready = self._ready(portion)
                if reason not in _UNBUDGETED:
                    ready = self._affordable(ready, now)
                if len(ready):
                    round_ = self._round(ready, reason, date, whole)
                    self._spend(round_)
                    return round_
        return None

    def _portions(self, candidates: Numbers) -> list[Numbers]:
        """A million may be due, of which a round takes some thousands: no more are looked at. A budget compares all."""
        most = _PORTION * self.limits.round_tables if self.limits.put_budget is None else max(1, len(candidates))
        return [candidates[at : at + most] for at in range(0, len(candidates), most)]

    # -- request budget --------------------------------------------------------------------------------------------

    def _refill(self, now: float) -> None:
        budget = self.limits.put_budget
        if budget is not None:
            since = now - self._refilled if self._refilled is not None else _SAVED_S
            self._requests, self._refilled = min(self._requests + since * budget, _SAVED_S * budget), now

    def _spend(self, round_: Round) -> None:
        lanes = len(np.unique(round_.lane))
        asked = len(round_) + (_TABLE_REQUESTS - 1) * lanes + _SCHEMA_REQUESTS * int((round_.schema != SETTLED).sum())
        self._requests -= asked if self.limits.put_budget is not None else 0

    def _affordable(self, ready: Numbers, now: float) -> Numbers:
        """Of these, what the budget pays for now: the largest and oldest. It is saved up, so that rounds are whole."""
        budget = self.limits.put_budget
        if budget is None or not len(ready):
            return ready
        ds, limits = self.queues.dispatchers, self.limits
        late = float((now - ds.oldest[ready]).max()) - limits.flush_interval_s
        wanted = _TABLE_REQUESTS * len(ready)
        if self._requests < min(wanted, budget * limits.round_seconds, _SAVED_S * budget):
            self.budget_late_s = max(0.0, late)
            return ready[:0]
        most = max(1, int(self._requests // _TABLE_REQUESTS))
        if most >= len(ready):
            self.budget_late_s = 0.0
            return ready
        self.budget_late_s = max(0.0, late)
        score = (now - ds.oldest[ready]) / limits.age_bound_s + ds.bytes[ready] / limits.file_size_bytes
        best: Numbers = ready[np.argsort(-score, kind="stable")[:most]]
        return best

    def next_due(self, now: float) -> float:
        """Seconds until something may become due by age or retry."""
        ages = self._ages[0][0] if self._ages else now + 60.0
        retries = min((waiting[0][0] for waiting in (self._retries, self._suspects) if waiting), default=now + 60.0)
        return max(0.0, min(ages, retries) - now)

    def _shorten_pauses(self, now: float) -> None:
        """Closing waits out no long pause; the first one stays, so that a failing lane does not keep out the others."""
        latest = now + _CLOSING_PAUSE_S
        for waiting in (self._retries, self._suspects):
            waiting[:] = [(min(due, latest), number, round_) for due, number, round_ in waiting]
            heapq.heapify(waiting)

    def _due(self, spool: Spool) -> list[tuple[Numbers, str, bool]]:
        draining = (self._ddl_due, "ddl", True)
        if self.closing:
            return [draining, (self._age_due, "close", True), (self._size_due, "close", True)]
        pressed = self._pressed(spool) if spool.under_pressure() else np.zeros(0, np.int64)
        aged, full = (self._age_due, self.limits.age_reason, True), (self._size_due, "size", False)
        # A whole file for a request is the best use of a budget, and of what is short the age bound has to give.
        ordered = [aged, full] if self.limits.put_budget is None else [full, aged]
        return [draining, *ordered, (pressed, "pressure", True)]

    def _all_active(self) -> Numbers:
        """Dispatchers with a queue: each has an entry by age, or is due already."""
        known = np.unique(np.concatenate([self._age_due, self._size_due, *(numbers for _, _, numbers in self._ages)]))
        self.visited += len(known)
        active: Numbers = known[self.queues.dispatchers.head[known] >= 0]
        return active

    def _push(self, dispatcher: Numbers, due: float) -> None:
        if len(dispatcher):
            self._pushed += 1
            heapq.heappush(self._ages, (due, self._pushed, dispatcher))

    def _collect_due(self, now: float) -> None:
        """Move what has come of age from the heap to `_age_due`; a queue flushed since then has an entry of its own."""
        ds, bound = self.queues.dispatchers, self.limits.age_bound_s
        while self._ages and self._ages[0][0] <= now:
            _, _, numbers = heapq.heappop(self._ages)
            self.visited += len(numbers)
            due = numbers[(ds.head[numbers] >= 0) & (ds.oldest[numbers] + bound <= now + 1e-6)]
            self._age_due = np.concatenate([self._age_due, due])

    def _ready(self, candidates: Numbers) -> Numbers:
        """Of the candidates that may land only the first in each lane."""
        free = self._free(candidates)
        _, first = np.unique(self.queues.dispatchers.lane[free], return_index=True)
        return free[np.sort(first)]

    def _free(self, candidates: Numbers) -> Numbers:
        """Candidates that hold something that may land, and whose lane is free."""
        ds = self.queues.dispatchers
        free = candidates[(ds.head[candidates] >= 0) & ~self.queues.lanes.busy[ds.lane[candidates]]]
        free = free[self._open(free, self.blocking.frozen_from(free))]
        return self._oldest_version(free) if self.queues.shared_lanes else free

    def _oldest_version(self, candidates: Numbers) -> Numbers:
        """Candidates that no other dispatcher of their lane holds an older version against."""
        ds, version = self.queues.dispatchers, self.queues.items.version
        active = np.union1d(self._all_active(), candidates)
        lanes, lane_at = np.unique(ds.lane[active], return_inverse=True)
        oldest = np.full(len(lanes), NOTHING_PENDING)
        np.minimum.at(oldest, lane_at, version[ds.head[active]])
        wanted = oldest[np.searchsorted(lanes, ds.lane[candidates])]
        kept: Numbers = candidates[version[ds.head[candidates]] == wanted]
        return kept

    def _pressed(self, spool: Spool) -> Numbers:
        """Dispatchers to land early: the largest, or those that pin nearly empty segments."""
        ds, items = self.queues.dispatchers, self.queues.items
        wanted = spool.excess() - self.planned_bytes
        if wanted <= 0:
            return np.zeros(0, np.int64)
        if spool.pinned_share() < 0.5:
            live = np.flatnonzero(items.first_ts[: items.size] != NOTHING_PENDING)
            pinning = live[np.isin(items.segment[live], spool.emptiest(wanted))]
            owners = self._ready(np.unique(items.dispatcher[pinning]).astype(np.int64))
            if len(owners):  # none when all that pins is under way or failing
                return owners
        active = self._all_active()
        # Only what can land counts: a hanging table, however large, relieves the spool of nothing.
        largest = self._ready(active[np.argsort(-ds.bytes[active], kind="stable")])
        enough = int(np.searchsorted(np.cumsum(ds.bytes[largest]), wanted)) + 1
        return largest[:enough]

    def _round(self, ready: Numbers, reason: str, date: int, whole: bool) -> Round:
        """Cut the queues of these dispatchers into files, up to what one round may take."""
        taken, reason = self._capped(ready, reason)
        slots, owner_at = self.queues.walk(taken)
        self.visited += len(taken)
        keep = self._first_version(slots, owner_at)
        keep &= self.queues.items.first_ts[slots] < self.blocking.frozen_from(taken)[owner_at]
        ended = np.isin(owner_at[keep], owner_at[~keep])  # a newer version follows: these files will not grow
        slots, owner_at = slots[keep], owner_at[keep]
        file_of, complete = self._cut(slots, owner_at)
        if not whole:  # a size flush leaves the last, incomplete file of each queue to grow
            keep = complete | ended
            slots, owner_at, file_of = slots[keep], owner_at[keep], file_of[keep]
        keep = self._within_bytes(slots, file_of)
        slots, owner_at, file_of = slots[keep], owner_at[keep], file_of[keep]
        self.queues.remove_front(taken, slots, owner_at)
        self._forget(taken)
        return self._number(taken, slots, owner_at, file_of, reason, date)

    def _capped(self, ready: Numbers, reason: str) -> tuple[Numbers, str]:
        """As many dispatchers as the caps and the measured speed allow, at least one."""
        limits, most_bytes = self.limits, self._most_bytes()
        paced = self.files_per_s * limits.round_seconds
        # With so many due, all wait for rounds to come anyway: fewer and longer ones cost less between them.
        paced *= _LONG_ROUND if len(ready) > _LONG_ROUND * paced else 1
        most_files = min(limits.round_tables, max(64, int(paced)))
        within = np.cumsum(self.queues.dispatchers.bytes[ready]) <= most_bytes
        count = max(1, min(int(within.sum()), most_files))
        if count < len(ready) and reason in ("interval", "delay", "close"):
            if count == limits.round_tables:
                reason = "fanout"
            elif most_bytes == limits.round_bytes and count < most_files:
                reason = "bytes_cap"
        return ready[:count], reason

    def _most_bytes(self) -> int:
        paced = int(self.bytes_per_s * self.limits.round_seconds)
        return min(self.limits.round_bytes, max(paced, self.limits.file_size_bytes))

    def _within_bytes(self, slots: Numbers, file_of: Ints) -> NDArray[np.bool_]:
        """Items of the files that one round may take: one queue alone can hold more than that."""
        starts = group_starts(file_of)
        sizes = np.add.reduceat(self.queues.items.length[slots], starts)
        fits = (np.cumsum(sizes) <= 1.5 * self._most_bytes()) | (np.arange(len(sizes)) == 0)
        return np.repeat(fits, np.diff(np.append(starts, len(slots))))

    def _first_version(self, slots: Numbers, owner_at: Ints) -> NDArray[np.bool_]:
        """One landing has one version: keep the items before a queue's first change of version."""
        starts = group_starts(owner_at)
        version = self.queues.items.version[slots]
        head = np.repeat(version[starts], np.diff(np.append(starts, len(slots))))
        changed = np.cumsum(version != head)
        since_head = changed - np.repeat(changed[starts], np.diff(np.append(starts, len(slots))))
        return np.asarray(since_head == 0)

    def _cut(self, slots: Numbers, owner_at: Ints) -> tuple[Ints, NDArray[np.bool_]]:
        """File number (within this round) of each item, and whether its file is as large as `file-size` asks."""
        starts = group_starts(owner_at)
        ends = np.append(starts[1:], len(slots))
        length = self.queues.items.length[slots]
        totals = np.add.reduceat(length, starts)
        file_of = np.zeros(len(slots), np.int64)
        complete = np.zeros(len(slots), np.bool_)
        breaks = np.zeros(len(slots), np.int64)
        breaks[starts[1:]] = 1
        for at in np.flatnonzero(totals >= self.limits.file_size_bytes):
            first, last = int(starts[at]), int(ends[at])
            cuts = self._cut_queue(slots[first:last], length[first:last])
            breaks[first + cuts[cuts < last - first]] = 1
            complete[first : first + int(cuts[-1])] = True
        file_of = np.cumsum(breaks)
        return file_of, complete

    def _cut_queue(self, slots: Numbers, length: Ints) -> Ints:
        """Ends of the complete files of one queue, each the allowed end nearest to `file-size`."""
        size, items = self.limits.file_size_bytes, self.queues.items
        ends = np.cumsum(length)
        # A cut is allowed where the next item begins another transaction.
        free = np.append(items.first_ts[slots[1:]] != items.last_ts[slots[:-1]], True)
        free_ends = np.flatnonzero(free)
        cuts: list[int] = []
        base = 0
        while len(ends) and int(ends[-1]) - base >= size:
            start = cuts[-1] if cuts else 0
            at = self._nearest(ends[free_ends] - base, size)
            cut = int(free_ends[at]) + 1
            if (
                cut <= start or int(ends[cut - 1]) - base > 2 * size
            ):  # one transaction larger than a file: cut inside it
                cut = int(np.searchsorted(ends, base + size)) + 1
            cuts.append(min(cut, len(ends)))
            base = int(ends[cuts[-1] - 1])
        return np.array(cuts or [0], np.int64)

    @staticmethod
    def _nearest(sizes: Ints, wanted: int) -> int:
        at = min(int(np.searchsorted(sizes, wanted)), len(sizes) - 1)
        if at and wanted - int(sizes[at - 1]) <= int(sizes[at]) - wanted and sizes[at - 1] > 0:
            return at - 1
        return at

    def _forget(self, taken: Numbers) -> None:
        self._age_due = self._age_due[~np.isin(self._age_due, taken)]
        self._size_due = self._size_due[~np.isin(self._size_due, taken)]
        if len(self._ddl_due):
            self._ddl_due = self._ddl_due[~np.isin(self._ddl_due, taken)]
            self.drain(taken)  # more than one round may take stands before the marker

    def _number(self, taken: Numbers, slots: Numbers, owner_at: Ints, file_of: Ints, reason: str, date: int) -> Round:
        """Give the files their lane, date and numbers, and mark the lanes busy."""
        items, lanes = self.queues.items, self.queues.lanes
        starts = group_starts(file_of)
        owners = taken[owner_at[starts]]
        lane = self.queues.dispatchers.lane[owners].astype(np.int64)
        version = items.version[slots[starts]]
        lane_starts = group_starts(lane)
        heads = lane[lane_starts]
        if (back := version[lane_starts] < lanes.version[heads]).any():
            name = self.queues.name(int(owners[lane_starts][back][0]))
            raise BrokenInvariant(f"{name}: version {version[lane_starts][back][0]} would land after a newer one")
        self.newest_date = max(self.newest_date, date, int(lanes.date[heads].max(initial=0)))
        dates = np.where(lanes.owed[heads], lanes.date[heads], self.newest_date)
        fresh = (dates != lanes.date[heads]) | (version[lane_starts] != lanes.version[heads])
        lanes.number[heads[fresh]] = 0
        if self.foreign:
            lanes.schema_version[heads[fresh]] = 0
        new = version[lane_starts] != lanes.version[heads]
        lanes.directory[heads[new]] = version[lane_starts][new]
        lanes.date[heads], lanes.version[heads] = dates, version[lane_starts]
        counts = np.diff(np.append(lane_starts, len(lane)))
        within = np.arange(len(lane)) - np.repeat(lane_starts, counts)
        number = lanes.number[lane] + 1 + within
        lanes.number[heads] += counts
        lanes.busy[heads] = True
        first = within == 0
        schema = np.where((lanes.schema_version[lane] != version) & first, CHECK, SETTLED).astype(np.int8)
        schema[lanes.look[lane] & first] = LOOK
        sizes = np.add.reduceat(items.length[slots], starts)
        self.planned_bytes += int(sizes.sum())
        self.queues.begin_versions(owners[lane_starts], version[lane_starts])
        self._rounds += 1
        plan = np.arange(self._plans, self._plans + len(lane))
        self._plans += len(lane)
        return Round(
            id=self._rounds, plan=plan, slots=slots, bounds=np.append(starts, len(slots)), dispatcher=owners, lane=lane,
            number=number, version=version, directory=lanes.directory[lane], date=lanes.date[lane], bytes=sizes,
            reason=np.where(sizes > self.limits.spool_max_bytes, "oversized", reason), schema=schema,
        )  # fmt: skip
