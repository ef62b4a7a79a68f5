"""Places: which dispatcher has the plain path of a target, and which ones have a directory of their own.

A target is the name under which a table lands. Several table ids may have one: shards that a route merges, a table that
was dropped and made again, a rename. TiCDC's consumer keeps one mark for each (schema, table, partition), over all
versions and dates, and drops what is older than the mark. So the plain path of a target may only have changes in
commit-ts order, version by version. Rules:
1. The plain path has one *holder*. Another dispatcher takes it over when the holder is at rest, its version is older,
   and all that ever landed there is older than the newcomer's first change: after a truncate, a drop and create, a
   rename. The path then belongs to the newcomer for good.
2. Any other dispatcher gets a directory of its own, named by its table id, as a partition has it. Its changes have a
   mark of their own there, so nothing of them is dropped.
3. It is decided once for a dispatcher and a target, when the first file there is planned. Who lost the plain path goes
   on in a directory of its own. A reader comes to the plain path first, so the changes of a dispatcher stay in order.
4. Where a holder's state was given up, or where it went to another name, the target is in `Left`. Who comes there
   looks first which files exist, and takes the plain path only if no schema file is newer than its own version.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidegate.control.columns import Ints, Numbers, group_lasts, group_starts
from tidegate.control.dispatchers import Dispatchers
from tidegate.control.lanes import Lanes

_NOBODY = -1
_EVERY_TARGET = 0  # stands for all targets: an older release did not record them


def hashes(targets: pa.Array) -> Ints:
    """A number for each target, the same within one process; 0 for none."""
    return np.fromiter(map(hash, targets.to_pylist()), np.int64, len(targets))


def checksums(targets: pa.Array) -> Ints:
    """A number for each target, the same in every process. Two targets may have one: then one look is for nothing."""
    found = np.fromiter(map(zlib.crc32, targets.cast(pa.binary()).to_pylist()), np.int64, len(targets))
    return np.maximum(found, 1)


class Holders:
    """By target its holder, and the last commit-ts that earlier holders landed. Sorted by target."""

    def __init__(self) -> None:
        self._targets: Ints = np.zeros(0, np.int64)
        self._numbers: NDArray[np.int32] = np.zeros(0, np.int32)
        self._landed_ts: Ints = np.zeros(0, np.int64)

    def _find(self, targets: Ints) -> tuple[Ints, NDArray[np.bool_]]:
        if not len(self._targets):
            return np.zeros(len(targets), np.int64), np.zeros(len(targets), np.bool_)
        at = np.minimum(np.searchsorted(self._targets, targets), len(self._targets) - 1)
        return at, self._targets[at] == targets

    def of(self, targets: Ints) -> Numbers:
        """The holders of these targets, -1 where there is none."""
        at, known = self._find(targets)
        found = np.full(len(targets), _NOBODY, np.int64)
        found[known] = self._numbers[at[known]]
        return found

    def landed_ts(self, targets: Ints) -> Ints:
        """The last commit-ts that was landed before the holder came; -1 where nothing was."""
        at, known = self._find(targets)
        found = np.full(len(targets), -1, np.int64)
        found[known] = self._landed_ts[at[known]]
        return found

    def put(self, targets: Ints, numbers: Numbers, landed_ts: Ints) -> None:
        """These hold these targets from now on; a target is named once."""
        at, known = self._find(targets)
        self._numbers[at[known]], self._landed_ts[at[known]] = numbers[known], landed_ts[known]
        new = np.flatnonzero(~known)
        if not len(new):  # the arrays are long
            return
        new = new[np.argsort(targets[new])]
        at = np.searchsorted(self._targets, targets[new])
        self._numbers = np.insert(self._numbers, at, numbers[new].astype(np.int32))
        self._landed_ts = np.insert(self._landed_ts, at, landed_ts[new])
        self._targets = np.insert(self._targets, at, targets[new])

    def remove(self, targets: Ints, numbers: Numbers) -> None:
        """These hold these targets no longer, if they did."""
        at, known = self._find(targets)
        at = at[known & (self.of(targets) == numbers)]
        if not len(at):
            return
        self._targets, self._numbers = np.delete(self._targets, at), np.delete(self._numbers, at)
        self._landed_ts = np.delete(self._landed_ts, at)


class Left:
    """Targets on whose plain path files may exist that nobody here knows; by checksum, with their last commit-ts.

    It is 0 where the state was given up: that is done only below the checkpoint, and whoever comes is above it.
    """

    def __init__(self) -> None:
        self.targets: Ints = np.zeros(0, np.int64)
        self.last_ts: Ints = np.zeros(0, np.int64)

    def __len__(self) -> int:
        return len(self.targets)

    def add(self, targets: Ints, last_ts: Ints) -> None:
        both = np.concatenate([self.targets, targets]), np.concatenate([self.last_ts, last_ts])
        order = np.lexsort(both[::-1])
        ends = group_lasts(group_starts(both[0][order]), len(order))
        self.targets, self.last_ts = both[0][order][ends], both[1][order][ends]

    def find(self, targets: Ints) -> Ints:
        """The last commit-ts on the plain paths of these targets, -1 where nobody was."""
        if not len(self):
            return np.full(len(targets), -1, np.int64)
        nowhere = 0 if self.targets[0] == _EVERY_TARGET else -1
        at = np.minimum(np.searchsorted(self.targets, targets), len(self) - 1)
        return np.where(self.targets[at] == targets, self.last_ts[at], nowhere)

    def table(self) -> pa.Table:
        return pa.table({"target": self.targets.astype(np.uint32), "last_ts": self.last_ts})

    def read(self, table: pa.Table | None) -> None:
        """What `table` said in an earlier run; None if that run did not record it."""
        if table is None:
            self.add(np.array([_EVERY_TARGET]), np.zeros(1, np.int64))
        else:
            self.add(*(table[name].to_numpy().astype(np.int64) for name in ("target", "last_ts")))


@dataclass
class Places:
    """Decides where dispatchers land. `lanes.own` says of each lane whether it has a directory of its own."""

    dispatchers: Dispatchers
    lanes: Lanes
    by_name: bool = True  # paths have names and no ids, so that two tables can meet in one
    shared_lanes: bool = False  # no path has a directory for a partition, so none can have one of its own
    holders: Holders = field(default_factory=Holders)
    left: Left = field(default_factory=Left)

    def whole(self, numbers: Numbers) -> NDArray[np.bool_]:
        """Which of these land on the plain path unless it is another's. Partitions have directories of their own."""
        ds = self.dispatchers
        return np.asarray(self.by_name & (self.shared_lanes | (ds.table_id[numbers] == ds.logical_id[numbers])))

    # -- names -----------------------------------------------------------------------------------------------------

    def come(self, numbers: Numbers, version: Ints) -> None:
        """These have a name now. The oldest one of a target that nobody holds is its holder."""
        ds = self.dispatchers
        numbers = numbers[np.lexsort((ds.table_id[numbers], version))]
        numbers = numbers[~ds.placed[numbers] & self.whole(numbers) & (ds.target[numbers] != 0)]
        targets, first = np.unique(ds.target[numbers], return_index=True)
        free = self.holders.of(targets) == _NOBODY
        self.holders.put(targets[free], numbers[first[free]], np.full(int(free.sum()), -1, np.int64))

    def leave(self, numbers: Numbers, targets: pa.Array) -> None:
        """These go from these targets to others, or to another kind of path: it is decided anew where they land."""
        ds = self.dispatchers
        was_there = self._holding(numbers) & ds.placed[numbers]
        self.holders.remove(ds.target[numbers], numbers)
        self.left.add(checksums(targets.filter(pa.array(was_there))), np.maximum(ds.durable_ts[numbers[was_there]], 0))
        ds.placed[numbers] = False
        self.lanes.own[ds.lane[numbers]] = False

    def hand_on(self, numbers: Numbers) -> None:
        """The state of these is given up: another partition that shares the lane of a holder holds its target then."""
        ds = self.dispatchers
        held = numbers[self._holding(numbers)]
        sharing = np.isin(ds.lane[: ds.size], ds.lane[held]) & (ds.table_id[: ds.size] >= 0)
        others = np.setdiff1d(np.flatnonzero(sharing), numbers)
        holder = self.holders.of(ds.target[others])
        others = others[np.isin(holder, held) & (ds.lane[holder] == ds.lane[others])]
        targets, first = np.unique(ds.target[others], return_index=True)
        before_ts = np.maximum(self.holders.landed_ts(targets), ds.durable_ts[self.holders.of(targets)])
        self.holders.put(targets, others[first], before_ts)

    def give_up(self, numbers: Numbers, targets: pa.Array) -> None:
        """The state of these is given up."""
        holding = self._holding(numbers)
        self.left.add(checksums(targets.filter(pa.array(holding))), np.zeros(int(holding.sum()), np.int64))
        self.holders.remove(self.dispatchers.target[numbers], numbers)

    def _holding(self, numbers: Numbers) -> NDArray[np.bool_]:
        return np.asarray(self.holders.of(self.dispatchers.target[numbers]) == numbers)

    # -- placing ---------------------------------------------------------------------------------------------------

    def unplaced(self, numbers: Numbers) -> Numbers:
        """Positions of those whose first file at their target is planned now."""
        return np.flatnonzero(~self.dispatchers.placed[numbers])

    def place(
        self, numbers: Numbers, version: Ints, first_ts: Ints, targets: pa.Array, at_rest: NDArray[np.bool_]
    ) -> Numbers:
        """Where these land. `at_rest` says of the holders of their targets whether nothing of them is under way.

        Returns those that can land nowhere: the plain path is another's, and there are no other directories.
        """
        ds, lanes = self.dispatchers, self.lanes
        holder = self.holders.of(ds.target[numbers])
        ds.placed[numbers] = True
        lanes.new_here[ds.lane[numbers]] = self.whole(numbers)
        theirs = self.whole(numbers) & (holder != _NOBODY) & (ds.lane[holder] != ds.lane[numbers])
        landed_ts = np.maximum(self.holders.landed_ts(ds.target[numbers]), ds.durable_ts[holder])
        newer = at_rest & (lanes.version[ds.lane[holder]] < version) & (landed_ts < first_ts)
        takers = np.flatnonzero(theirs & newer)
        takers = takers[np.unique(ds.target[numbers[takers]], return_index=True)[1]]  # of one target only the first
        self._take_over(numbers[takers], holder[takers], landed_ts[takers])
        theirs[takers] = False
        others: Numbers = numbers[theirs]
        if self.shared_lanes:
            ds.placed[others] = False
        else:
            self._begin_own(others)
        self._look_where_left(numbers, first_ts, targets)
        return others if self.shared_lanes else others[:0]

    def _take_over(self, numbers: Numbers, holder: Numbers, landed_ts: Ints) -> None:
        ds = self.dispatchers
        self.holders.put(ds.target[numbers], numbers, landed_ts)
        if self.shared_lanes:
            ds.placed[np.flatnonzero(np.isin(ds.lane[: ds.size], ds.lane[holder]))] = False
        else:
            self._begin_own(holder)

    def _begin_own(self, numbers: Numbers) -> None:
        """These go on in directories of their own, which have no files yet."""
        lane = self.dispatchers.lane[numbers]
        self.lanes.own[lane], self.lanes.number[lane] = True, 0
        self.lanes.tags.forget(lane)

    def _look_where_left(self, numbers: Numbers, first_ts: Ints, targets: pa.Array) -> None:
        """Holders of a target that somebody left look first, or give it up if their changes are older than those."""
        at = np.flatnonzero(self._holding(numbers)) if len(self.left) else numbers[:0]
        if not len(at):
            return
        last_ts = self.left.find(checksums(targets.take(pa.array(at))))
        older = (last_ts >= first_ts[at]) & (not self.shared_lanes)
        self.give_up_plain(numbers[at[older]])
        look = numbers[at[(last_ts >= 0) & ~older]]
        self.lanes.look[self.dispatchers.lane[look]] = True

    def give_up_plain(self, numbers: Numbers) -> None:
        """These cannot land on the plain path after all: somebody was there whom they must not follow."""
        self.holders.remove(self.dispatchers.target[numbers], numbers)
        self._begin_own(numbers)

    # -- record ----------------------------------------------------------------------------------------------------

    def restore(self, numbers: Numbers) -> Numbers:
        """Find the holders among these, which is all that an earlier run knew.

        Returns one dispatcher of each target whose plain path has files and no holder.

        Of several on one plain path the newest version holds it: it took it over. Of one version it is the one that
        came last, because it went on behind the files of one that was forgotten. If its changes are older than those of
        another, a release without these rules wrote them, and nobody holds it.
        """
        ds, lanes = self.dispatchers, self.lanes
        ds.placed[numbers] = lanes.version[ds.lane[numbers]] > 0  # otherwise none of its files was ever planned
        numbers = numbers[self.whole(numbers) & ds.placed[numbers] & (ds.span[numbers] == 0)]
        plain = numbers[~lanes.own[ds.lane[numbers]]]
        durable_ts = ds.durable_ts[plain]
        came_ts = np.where(durable_ts > 0, durable_ts, np.iinfo(np.int64).max)  # without any, it was about to land
        plain = plain[np.lexsort((came_ts, lanes.version[ds.lane[plain]], ds.target[plain]))]
        last = plain[group_lasts(group_starts(ds.target[plain]), len(plain))]
        landed_ts = self._newest_ts(plain, ds.target[last])
        holds = (ds.durable_ts[last] <= 0) | (ds.durable_ts[last] >= landed_ts) | self.shared_lanes
        if len(numbers) > len(last):  # else no two have one target
            landed_ts = self._newest_ts(numbers, ds.target[last])
        self.holders.put(ds.target[last[holds]], last[holds], landed_ts[holds])
        others = plain[~np.isin(ds.lane[plain], ds.lane[last[holds]])] if len(plain) > len(last[holds]) else plain[:0]
        if self.shared_lanes:
            ds.placed[others] = False
        else:
            self._begin_own(others)
        return last[~holds]

    def landed_ts(self, numbers: Numbers) -> Ints:
        """The last commit-ts of all at the targets of these."""
        ds = self.dispatchers
        known: Numbers = np.flatnonzero(np.isin(ds.target[: ds.size], ds.target[numbers]))
        return self._newest_ts(known, ds.target[numbers]) if len(numbers) else numbers

    def _newest_ts(self, numbers: Numbers, targets: Ints) -> Ints:
        """By target the last commit-ts of any of these."""
        ds = self.dispatchers
        if len(numbers) == len(targets) and (ds.target[numbers] == targets).all():  # nearly always
            return ds.durable_ts[numbers]
        order = np.argsort(ds.target[numbers], kind="stable")
        numbers = numbers[order]
        starts = group_starts(ds.target[numbers])
        if not len(starts):
            return np.zeros(0, np.int64)
        newest = np.maximum.reduceat(ds.durable_ts[numbers], starts)
        found: Ints = newest[np.searchsorted(ds.target[numbers[starts]], targets)]
        return found
