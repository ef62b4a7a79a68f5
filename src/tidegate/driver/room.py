"""Looks how much space is left under the spool, and says so when it is too little."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.control.ledger import Ledger
from tidegate.driver.life import Life
from tidegate.driver.observer import Observer
from tidegate.executor.spool import Segments


@dataclass
class RoomLeft:
    life: Life
    ledger: Ledger
    spool: Segments
    observer: Observer

    def look(self) -> None:
        """Note whether the disk is nearly full. The caller holds the lock.

        For the planner it counts only while the spool holds something: landing an empty one would free nothing.
        """
        shortage = self.spool.shortage()
        self.ledger.spool.starved = shortage is not None and self.ledger.spool.items > 0
        self.observer.short_of_space(shortage)

    def watch(self) -> None:
        """The same, from a thread that does not hold the lock: it is said, and taken back, while nothing comes."""
        with self.life.lock:
            self.look()
