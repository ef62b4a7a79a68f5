"""Tells the source what may come next: how much fits, and which tables to hold back."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field

from tidegate.control.ledger import Ledger
from tidegate.driver.life import Life
from tidegate.errors import SpoolLost
from tidegate.sources.source import Demand


@dataclass
class DemandFile:
    path: str  # the file that the source reads
    life: Life
    ledger: Ledger
    _written: Demand | None = None
    _writing: threading.Lock = field(default_factory=threading.Lock)

    def write(self) -> None:
        """Write it if it has changed since the last time."""
        with self._writing:
            with self.life.lock:
                reading = self.ledger.reading
                held = frozenset(reading.held_tables)
                durable = self.ledger.progress.position
                demand = Demand(reading.limit_bytes, reading.room_bytes, held, durable)
            if demand != self._written:
                self._replace(demand.to_json())
                self._written = demand

    def _replace(self, text: str) -> None:
        temp = f"{self.path}.new"
        try:
            with open(temp, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(temp, self.path)
        except OSError as exc:
            raise SpoolLost(f"cannot write {self.path} in the spool: {exc.strerror}") from exc
