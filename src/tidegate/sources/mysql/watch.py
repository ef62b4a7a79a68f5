"""A thread beside the pump that asks the server for its clock and the end of its log, and writes the state.

It has a connection of its own, because the pump's is busy with the log. That the server does not answer here is no
fault: the pump notices by itself, and decides.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pymysql.connections import Connection

from tidegate.errors import TidegateError
from tidegate.events import physical_ms
from tidegate.sources.mysql.address import Address
from tidegate.sources.mysql.connect import ask, clock_us, close, connect, log_end
from tidegate.sources.mysql.log.transactions import Position, file_number
from tidegate.sources.mysql.pump import Pump
from tidegate.sources.mysql.state import write_state
from tidegate.sources.mysql.windows import Place

_EVERY_S = 1.0


@dataclass
class Watch:
    """`handed` says up to where changes were handed out, `more` what else the state has."""

    address: Address
    password: str
    pump: Pump
    folder: Path
    handed: Callable[[], Place]
    more: Callable[[], dict[str, Any]]
    _connection: Connection | None = None
    _end: tuple[str, int] | None = None
    _stop: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        threading.Thread(target=self._run, name="watch", daemon=True).start()

    def stop(self) -> None:
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(_EVERY_S) and not self.pump.ends and self.pump.error is None:
            try:
                self._ask()
            except TidegateError:
                self._forget()
            write_state(self.folder, self._values())
        self._forget()

    def _ask(self) -> None:
        if self._connection is None:
            self._connection = connect(self.address, self.password)
        self.pump.clock.said(clock_us(self._connection, self.address))
        self._end = log_end(self._connection, self.address, self.pump.server.is_mariadb)

    def _forget(self) -> None:
        if self._connection is not None:
            close(self._connection)
            self._connection = None

    def _values(self) -> dict[str, Any]:
        handed, clock_ms = self.handed(), self.pump.clock.ms()
        lag_bytes = self._lag_bytes(handed.position)
        behind = lag_bytes > 0 and clock_ms is not None
        lag_s = max(0.0, ((clock_ms or 0) - physical_ms(handed.ts)) / 1000) if behind else 0.0
        waits = self.pump.away or self.pump.full
        return {"lag_s": lag_s, "lag_bytes": lag_bytes, "waits": waits} | self.more()

    def _lag_bytes(self, reached: Position) -> int:
        """Up to the end of the server's log. Files between are counted by their sizes."""
        if self._end is None:
            return 0
        file, at = self._end
        number = file_number(file)
        if number == reached.file:
            return max(0, at - reached.at)
        return max(0, at + self._bytes_from(reached, number)) if number > reached.file else 0

    def _bytes_from(self, reached: Position, before: int) -> int:
        if self._connection is None:
            return 0
        try:
            rows = ask(self._connection, self.address, "SHOW BINARY LOGS")
        except TidegateError:
            return 0
        sizes = {file_number(row[0]): int(row[1]) for row in rows}
        between = sum(size for number, size in sizes.items() if reached.file <= number < before)
        return between - min(reached.at, sizes.get(reached.file, 0))
