"""`ddl=every:100ms,kinds=add-index|rename;every:10s,kinds=alter-database`: which DDLs a workload mixes in, and when.

A schedule has one DDL per period, measured in commit-ts. A hash chooses its kind from `kinds`; a kind that is listed
twice is chosen twice as often. Several schedules run at the same time.
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
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}


@dataclass(frozen=True)
class Schedule:
    """One DDL every `every_ms` milliseconds, of one of these kinds."""

    every_ms: int
    kinds: tuple[str, ...] = DEFAULT_KINDS


def read_schedules(text: str) -> tuple[Schedule, ...]:
    """`read_schedules("every:5s,kinds=rename|truncate")` is `(Schedule(5000, ("rename", "truncate")),)`."""
    pieces = text.split(";")
    if len(pieces) > MAX_SCHEDULES:
        raise ValueError(f"at most {MAX_SCHEDULES} schedules joined by ';'")
    return tuple(_read_schedule(piece) for piece in pieces)


def _read_schedule(text: str) -> Schedule:
    every, comma, rest = text.partition(",")
    if not every.startswith("every:") or (comma and not rest.startswith("kinds=")):
        raise ValueError(f"a schedule such as every:5s,kinds=add-column|truncate (at {text!r})")
    every_ms = read_every(every.removeprefix("every:"), "a schedule")
    if not comma:
        return Schedule(every_ms)
    kinds = tuple(rest.removeprefix("kinds=").split("|"))
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise ValueError(f"a mix of known kinds: {unknown[0]!r} is none of {', '.join(KINDS)}")
    return Schedule(every_ms, kinds)


def read_every(text: str, what: str) -> int:
    """`read_every("5s", "a schedule")` is 5000. The error message begins with `what`."""
    found = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?)(ms|s|m|h)", text, re.ASCII)
    every_ms = round(float(found[1]) * _UNITS_MS[found[2]]) if found else 0
    if not 1 <= every_ms <= MAX_EVERY_MS:
        raise ValueError(f"{what}: {text!r} must be a time from 1ms to 366 days, such as 100ms, 5s, 2m or 1h")
    return every_ms
