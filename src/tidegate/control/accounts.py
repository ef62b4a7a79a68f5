"""The accounts of items: what each costs from when it is accepted until it is durable.

An item occupies bytes of the spool and of its dispatcher's share, and keeps the position before its batch. All of it is
given back in one step, `release`, so that no two counts can differ. Invariants:
1. Every accepted item becomes durable exactly once. An item without bytes is durable at once.
2. Neither the checkpoint nor the position passes anything that is not durable.
3. A round is answered once. A second answer would release its items twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidegate.control.admission import COLUMNS, Batch
from tidegate.control.checkpoint import Progress
from tidegate.control.columns import Ints, Numbers, group_lasts
from tidegate.control.limits import Limits
from tidegate.control.queues import Queues
from tidegate.control.rounds import Round
from tidegate.control.spool import Spool
from tidegate.errors import BrokenInvariant


class Released(NamedTuple):
    """What became free with items that are durable."""

    segments: list[str]  # paths of those that no item refers to any more
    ages_s: NDArray[np.float64]  # by item, from accepted to durable
    rows: int
    bytes: int


class Stored(NamedTuple):
    """What changed when a batch was queued."""

    filled: Numbers  # dispatchers whose queues were empty before
    unused: list[str]  # paths of segments that no item refers to


@dataclass
class Accounts:
    """Queues, spool and progress, and what goes through them."""

    limits: Limits
    queues: Queues = field(default_factory=Queues)
    spool: Spool = field(init=False)
    progress: Progress = field(default_factory=Progress)
    accepted_items: int = 0
    durable_items: int = 0
    in_flight: int = 0  # items planned and not yet durable
    _under_way: set[int] = field(default_factory=set)  # rounds planned and not yet answered
    _held: set[int] = field(default_factory=set)  # dispatchers that are over their share of the spool

    def __post_init__(self) -> None:
        self.spool = Spool(self.limits.spool_max_bytes)

    def store(self, number: int, batch: Batch, now: float) -> Stored:
        """Queue the items of the batch of this number."""
        segment, unused = self._open_segments(batch)
        items, slots = self.queues.items, self.queues.items.allocate(len(batch))
        for name in COLUMNS:
            getattr(items, name)[slots] = getattr(batch, name)
        items.dispatcher[slots], items.segment[slots] = batch.dispatcher, segment
        items.accepted_at[slots], items.batch[slots] = now, number
        self.spool.add_items(segment, batch.length)
        self._mark_accepted(batch)
        self.accepted_items += len(slots)
        return Stored(self.queues.append(slots, batch.dispatcher), unused)

    def count_empty(self, items: int) -> None:
        """So many items encode to no bytes: they are durable at once."""
        self.accepted_items += items
        self.durable_items += items

    def _open_segments(self, batch: Batch) -> tuple[Numbers, list[str]]:
        """The number of each item's segment, and the segments that no item refers to.

        A segment's size is the end of its last item in the batch, of those too that were dropped: they are on disk.
        """
        names = batch.items["segment"].combine_chunks().dictionary_encode()
        if isinstance(names, pa.ChunkedArray):
            names = names.combine_chunks()
        codes = names.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        paths = names.dictionary.to_pylist()
        offset, length, tiers = (batch.items[name].to_numpy() for name in ("offset", "length", "tier"))
        end, tier = np.zeros(len(paths), np.int64), np.zeros(len(paths), np.int64)
        np.maximum.at(end, codes, offset + length)
        tier[codes] = tiers
        used = np.flatnonzero(np.bincount(codes[batch.at], minlength=len(paths)))
        numbers = np.full(len(paths), -1, np.int64)
        numbers[used] = self.spool.open_segments([paths[i] for i in used], end[used].tolist(), tier[used].tolist())
        return numbers[codes[batch.at]], [path for i, path in enumerate(paths) if numbers[i] < 0]

    def _mark_accepted(self, batch: Batch) -> None:
        ds, ends = self.queues.dispatchers, group_lasts(batch.starts, len(batch))
        owners = batch.dispatcher[ends]
        ds.accepted_ts[owners], ds.accepted_seq[owners] = batch.last_ts[ends], batch.last_seq[ends]
        np.add.at(ds.spool_bytes, batch.dispatcher, batch.length)
        self._hold(owners)

    def planned(self, round_: Round) -> None:
        """A land task reads these items from now on. Those of a retry are in flight already."""
        items, ds = self.queues.items, self.queues.dispatchers
        self._under_way.add(round_.id)
        items.reading[round_.slots] = True
        if round_.attempt == 0:
            self.in_flight += len(round_.slots)
            owners = items.dispatcher[round_.slots]
            np.add.at(ds.in_flight, owners, 1)
            ds.planned_ts[owners] = items.last_ts[round_.slots]  # in order, so the last of each counts

    def answered(self, round_: Round, landed: NDArray[np.bool_]) -> None:
        """Nobody reads the round's items any more, and the files that landed count for their dispatchers."""
        round_.check_answer(landed)
        if round_.id not in self._under_way:
            raise BrokenInvariant(f"round {round_.id} was answered twice")
        self._under_way.remove(round_.id)
        self.queues.items.reading[round_.slots] = False
        ds, owners = self.queues.dispatchers, round_.dispatcher[landed]
        np.add.at(ds.landed_files, owners, 1)
        np.add.at(ds.landed_bytes, owners, round_.bytes[landed])

    def release(self, slots: Numbers, now: float) -> Released:
        """These items are durable, by this landing or by an earlier one: give back all that they occupy."""
        items, ds = self.queues.items, self.queues.dispatchers
        owners, lengths = items.dispatcher[slots].astype(np.int64), items.length[slots]
        np.subtract.at(ds.spool_bytes, owners, lengths)
        np.subtract.at(ds.in_flight, owners, 1)
        # Items of one dispatcher come in order, so the last assignment is its furthest change.
        ds.durable_ts[owners], ds.durable_seq[owners] = items.last_ts[slots], items.last_seq[slots]
        released = Released(
            self.spool.release_items(items.segment[slots].astype(np.int64), lengths),
            now - items.accepted_at[slots],
            int(items.rows[slots].sum()),
            int(lengths.sum()),
        )
        batches: Ints = items.batch[slots].copy()
        items.free(slots)
        self.progress.durable(batches)
        self._hold(np.unique(owners))
        self.in_flight -= len(slots)
        self.durable_items += len(slots)
        return released

    def _hold(self, dispatcher: Numbers) -> None:
        """A dispatcher that is over its share of the spool is held until it is down to half of it.

        One table that fails, or that gets more than it can land, would otherwise fill the spool, and all tables would
        stand still with it. Half, not the whole share: else it would be held and let go with every file.
        """
        share = self.limits.spool_max_bytes * self.limits.dispatcher_share
        occupied = self.queues.dispatchers.spool_bytes[dispatcher]
        self._held.update(dispatcher[occupied > share].tolist())
        if self._held:
            self._held.difference_update(dispatcher[occupied <= share / 2].tolist())

    @property
    def held(self) -> Numbers:
        """The dispatchers that are over their share."""
        return np.array(sorted(self._held), np.int64)
