"""Copies together what cannot land and pins nearly empty segments, so that those can be deleted.

It happens only while the spool is under pressure: a table that fails would otherwise hold space of all others.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from tidegate.clock import Clock
from tidegate.control.compaction import Copy, Move
from tidegate.control.ledger import Ledger
from tidegate.driver.causes import sentence_of
from tidegate.driver.intake import warn_gone
from tidegate.driver.jobs import Jobs
from tidegate.driver.life import Life, Work
from tidegate.driver.log import log
from tidegate.driver.observer import Observer
from tidegate.executor.spool import Appended, Segments

_EVERY_S, _PAUSE_S = 0.5, 10.0


@dataclass
class Moves:
    life: Life
    clock: Clock
    ledger: Ledger
    spool: Segments
    observer: Observer
    jobs: Jobs
    _count: int = 0
    _next: float = 0.0

    def next_work(self, now: float) -> Work | None:
        """A move, if one is worth it. The caller holds the lock."""
        if now < self._next:
            return None
        self._next = now + _EVERY_S
        move = self.ledger.remains()
        return partial(self.carry_out, move) if move is not None else None

    def carry_out(self, move: Move) -> None:
        with self.life.lock:
            self._count += 1
            at = zip(move.segments.tolist(), move.offsets.tolist(), move.lengths.tolist(), strict=True)
            slices = [(self.ledger.spool.path(segment), offset, length) for segment, offset, length in at]
            room, name = self.spool.room(1, self.ledger.spool.tier_bytes), f"move{self._count}-0-0"
        copied: list[Appended] = []
        try:
            copied = self.jobs.run_gather(slices, room, name)
        except Exception as exc:
            log.warning("cannot copy the remains of the spool together, will retry: %s", sentence_of(exc))
            self._next = self.clock.steady() + _PAUSE_S
            warn_gone(self.spool.delete_batch(name.split("-")[0]))
        with self.life.lock:
            freed = self.ledger.moved(move, [Copy(*each) for each in copied])
            self.life.notify()
        warn_gone(self.spool.delete(freed))
        self.observer.moved(sum(length for _, _, length in slices) if copied else 0)
