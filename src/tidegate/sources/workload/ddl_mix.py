"""`ddl=every:100ms,kinds=add-index|rename;every:10s,kinds=alter-database`: which DDLs a workload mixes in, and when.

A schedule has one DDL per period, measured in commit-ts, or with `count=10000` so many at once, as a migration has. A
hash chooses the kind of each from `kinds`; a kind that is listed twice is chosen twice as often. Several schedules run
at the same time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

TABLE_KINDS = ("add-column", "drop-column", "modify-column", "add-index", "rename", "truncate", "drop-create")
SIDE_KINDS = ("create-table", "drop-table", "create-database", "drop-database", "create-view", "drop-view")
KINDS = (*TABLE_KINDS, *SIDE_KINDS, "alter-database")
# DDLs over all tables make every table wait, so they are used only if they are asked for.
DEFAULT_KINDS = (*TABLE_KINDS, "create-table", "drop-table")
# Kinds whose DDLs may affect tables without changing their versions (drop-view creates a view if there is none).
WIDE_KINDS = frozenset(("alter-database", "create-view", "drop-view"))

MAX_SCHEDULES = 16
MAX_EVERY_MS = 366 * 86_400_000
MAX_COUNT = 100_000
_MAX_PER_MS = 1_000  # a millisecond has 262,144 timestamps, and rows need some of them
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}


@dataclass(frozen=True)
class Schedule:
    """`count` DDLs every `every_ms` milliseconds, each of one of these kinds."""

    every_ms: int
    kinds: tuple[str, ...] = DEFAULT_KINDS
    count: int = 1


def read_schedules(text: str) -> tuple[Schedule, ...]:
    """`read_schedules("every:5s,kinds=rename|truncate")` is `(Schedule(5000, ("rename", "truncate")),)`."""
    pieces = text.split(";")
    if len(pieces) > MAX_SCHEDULES:
        raise ValueError(f"at most {MAX_SCHEDULES} schedules joined by ';'")
    return tuple(_read_schedule(piece) for piece in pieces)


def _read_schedule(text: str) -> Schedule:
    found = re.fullmatch(r"every:([^,]*)(?:,count=([^,]*))?(?:,kinds=([^,]*))?", text)
    if found is None:
        raise ValueError(f"a schedule such as every:5s,kinds=add-column|truncate (at {text!r})")
    every_ms = read_every(found[1], "a schedule")
    count = 1 if found[2] is None else _read_count(found[2], every_ms)
    if found[3] is None:
        return Schedule(every_ms, count=count)
    kinds = tuple(found[3].split("|"))
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise ValueError(f"a mix of known kinds: {unknown[0]!r} is none of {', '.join(KINDS)}")
    return Schedule(every_ms, kinds, count)


def _read_count(text: str, every_ms: int) -> int:
    count = int(text) if re.fullmatch(r"\d{1,6}", text, re.ASCII) else 0
    if not 1 <= count <= min(MAX_COUNT, _MAX_PER_MS * every_ms):
        raise ValueError(
            f"a schedule: count={text!r} must be a number from 1 to {MAX_COUNT}, and at most {_MAX_PER_MS} for each ms"
        )
    return count


def read_every(text: str, what: str) -> int:
    """`read_every("5s", "a schedule")` is 5000. The error message begins with `what`."""
    found = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?)(ms|s|m|h)", text, re.ASCII)
    every_ms = round(float(found[1]) * _UNITS_MS[found[2]]) if found else 0
    if not 1 <= every_ms <= MAX_EVERY_MS:
        raise ValueError(f"{what}: {text!r} must be a time from 1ms to 366 days, such as 100ms, 5s, 2m or 1h")
    return every_ms
