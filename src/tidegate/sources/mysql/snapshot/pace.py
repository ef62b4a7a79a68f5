"""How far a snapshot is, and how long it will take, as the status shows it. Numbers of rows are estimates."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidegate.sources.mysql.snapshot.queue import Queue
from tidegate.sources.source import SnapshotState


@dataclass
class Pace:
    """`rows` were emitted since the snapshot began, `rows_here` of them by this process, since `begun_s`."""

    rows: int = 0
    rows_here: int = 0
    begun_s: float | None = None
    _sizes: dict[int, int] = field(default_factory=dict)  # about how many rows the tables have that were looked at

    def emitted(self, rows: int, now_s: float) -> None:
        self.begun_s = now_s if self.begun_s is None else self.begun_s
        self.rows += rows
        self.rows_here += rows

    def state(self, queue: Queue, tables_left: int, now_s: float) -> SnapshotState:
        """`tables_left` counts those that are read now, too."""
        readings = list(queue.tables.values())
        self._sizes |= {reading.table.table_id: reading.all_rows for reading in readings if reading.rows}
        mean = sum(self._sizes.values()) / max(1, len(self._sizes))
        left = sum(max(0, reading.all_rows - reading.placed_rows) for reading in readings)
        left += round(max(0, tables_left - len(readings)) * mean)
        elapsed_s = now_s - self.begun_s if self.begun_s is not None else 0.0
        left_s = left * elapsed_s / self.rows_here if self.rows_here and elapsed_s > 1 else None
        share = self.rows / (self.rows + left) if self.rows + left else 0.0
        name = f"{readings[0].table.database}.{readings[0].table.name}" if readings else ""
        return SnapshotState(tables_left, self.rows, share, left_s, name)
