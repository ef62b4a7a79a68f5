"""Tells the source which tables are over their share of the spool, so that it does not hand them out for now."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import dataclass, field

from tidegate.control.ledger import Ledger
from tidegate.driver.life import Life


@dataclass
class HeldTables:
    path: str  # the file that the source reads
    life: Life
    ledger: Ledger
    _written: set[int] = field(default_factory=set)
    _writing: threading.Lock = field(default_factory=threading.Lock)

    def write(self) -> None:
        """Write the list if it has changed since the last time."""
        with self._writing:
            with self.life.lock:
                held = set(self.ledger.held_tables)
            if held != self._written:
                temp = f"{self.path}.new"
                with open(temp, "w", encoding="utf-8") as file:
                    file.write(json.dumps(sorted(held)))
                os.replace(temp, self.path)
                self._written = held
