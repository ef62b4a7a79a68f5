"""The parameters of `workload://sysbench?...`: their defaults, and how their text is read and checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from math import gcd

from tidegate.errors import BadSetting
from tidegate.sources.source import byte_count, read_query
from tidegate.sources.workload.ddl_mix import Schedule, read_schedules
from tidegate.sources.workload.layouts import MIXED_ROW_BYTES
from tidegate.sources.workload.neighbour import Habits, read_habits
from tidegate.sources.workload.shards import Shards
from tidegate.sources.workload.sysbench import DELETED, SCHEMA_NAME, UPDATED


@dataclass(frozen=True)
class Workload:
    """The parameters, with their defaults. `rate` 0 means as fast as possible, `events` None means forever."""

    tables: int = 10
    rows: int = 1_000_000
    seed: int = 1
    txn_rows: int = 10
    mix: tuple[int, int, int] = (0, 100, 0)
    skew: float = 0.0
    rate: int = 0
    events: int | None = None
    batch: int = byte_count("2.2MiB")
    prepare: bool = True
    epoch: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    ddl: tuple[Schedule, ...] = ()
    neighbour: Habits | None = None
    shards: int = 1
    sharded: int | None = None
    layouts: int = 1

    @property
    def of_shards(self) -> Shards:
        """All names have shards, unless `sharded` says how many."""
        names = self.sharded if self.sharded is not None else self.tables // self.shards
        return Shards(self.shards, names)

    @property
    def row_bytes(self) -> int:
        """About one encoded line: `"U","sbtest1","sbtest",` then id, k, c and pad; mixed layouts have others."""
        if self.layouts > 1:
            return MIXED_ROW_BYTES
        return (
            len(f'"U","sbtest{self.tables}","{SCHEMA_NAME}",{self.rows * self.shards},{self.rows},"",""\r\n') + 119 + 59
        )


def parse_workload(query: str) -> Workload:
    """`parse_workload("tables=1&mix=0:0:100")`; refuses unknown names, values out of range and bad combinations."""
    values = read_query(query, _READERS, "workload://sysbench", "docs/workload.md")
    workload = Workload(**{name.replace("-", "_"): value for name, value in values.items()})
    if workload.rows < 2 and workload.mix[UPDATED] and workload.mix[DELETED]:
        raise BadSetting("workload://sysbench: a mix of updates and deletes needs rows=2 or more")
    if workload.neighbour is not None and (not workload.rate or workload.events is not None or workload.ddl):
        raise BadSetting("workload://sysbench: neighbour needs a rate, and goes neither with events nor with ddl")
    of_shards = workload.of_shards
    if of_shards.tables > workload.tables or (
        of_shards.tables == workload.tables and (workload.ddl or workload.neighbour)
    ):
        raise BadSetting(
            "workload://sysbench: shards goes neither with ddl nor with neighbour unless `sharded` leaves other tables"
        )
    if workload.rows * workload.shards >= 2**31:
        raise BadSetting("workload://sysbench: rows times shards is below 2^31")
    if workload.layouts > workload.tables:
        raise BadSetting("workload://sysbench: there cannot be more layouts than tables")
    return workload


def _whole(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return int(text)

    return read


def _read_mix(text: str) -> tuple[int, int, int]:
    parts = [int(part) if part.isascii() and part.isdigit() else -1 for part in text.split(":")]
    if len(parts) != 3 or min(parts) < 0 or not any(parts) or sum(parts) // gcd(*parts) > 10_000:
        raise ValueError("inserts:updates:deletes such as 5:90:5 (whole numbers, not all zero)")
    return parts[0], parts[1], parts[2]


def _read_skew(text: str) -> float:
    try:
        skew = float(text)
    except ValueError:
        skew = -1.0
    if not 0 <= skew <= 10:
        raise ValueError("a number from 0 (all tables alike) to 10")
    return skew


def _read_bytes(text: str) -> int:
    count = byte_count(text)
    if count < 1:
        raise ValueError("at least one byte")
    return count


def _read_flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("true or false")
    return text == "true"


def _read_epoch(text: str) -> datetime:
    try:
        epoch = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("a time such as 2026-01-01 or 2026-01-01T12:00:00") from None
    return epoch if epoch.tzinfo else epoch.replace(tzinfo=UTC)


_READERS: dict[str, Callable[[str], object]] = {
    "tables": _whole(1, 10_000_000),
    "rows": _whole(1, 2**31 - 1),
    "seed": _whole(0, 2**32),
    "txn-rows": _whole(1, 10_000_000),
    "mix": _read_mix,
    "skew": _read_skew,
    "rate": lambda text: _read_bytes(text.removesuffix("/s")),
    "events": _whole(1, 10**15),
    "batch": _read_bytes,
    "prepare": _read_flag,
    "epoch": _read_epoch,
    "ddl": read_schedules,
    "neighbour": read_habits,
    "shards": _whole(1, 1000),
    "sharded": _whole(0, 10_000_000),
    "layouts": _whole(1, 10_000_000),
}
