"""The points at which a changefeed is killed.

A point is a call on the store: the n-th one of its operations on a path that matches, before or after it is done. The
points in which a worker ingests are no calls on the store: there the opening of a spool file kills.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

BEFORE, AFTER = "before", "after"
DRIVER, WORKER = "driver", "worker"

_DATA, _INDEX, _SCHEMA = r"/CDC\w*\.csv$", r"/meta/CDC\w*\.index$", r"/meta/schema_\w+\.json$"
_ENTRY, _SNAPSHOT = r"^_tidegate/journal/\d+\.entry$", r"^_tidegate/journal/\d+\.snapshot$"
_PUTS = ("put", "swap", "create_bytes")
COPY = "copy"  # of a file that was uploaded aside because it is too large for one put


@dataclass(frozen=True)
class Point:
    """Where a process dies: `Point("takeover", ("create_bytes",), _ENTRY, AFTER, DRIVER)` with the first entry."""

    name: str
    operations: tuple[str, ...] = ()
    path: str = ""
    moment: str = AFTER
    where: str = ""  # calls of the driver, of workers, or (empty) of both count
    first: int = 1  # the call that kills is one of first ... last, by chance
    last: int = 1
    victim: str = DRIVER

    def matches(self, operation: str, path: str, moment: str, where: str) -> bool:
        same = operation in self.operations and moment == self.moment and self.where in ("", where)
        return same and re.search(self.path, path) is not None

    @property
    def is_remote(self) -> bool:
        """Whether it can come on an object store only."""
        return COPY in self.operations


POINTS = {
    point.name: point
    for point in (
        Point("data-before-index", ("create",), _DATA, AFTER, WORKER, 1, 8),
        Point("takeover", ("create_bytes",), _ENTRY, AFTER, DRIVER),
        Point("index-before-confirm", _PUTS, _INDEX, AFTER, WORKER, 1, 8),
        Point("adoption", _PUTS, _INDEX, AFTER, DRIVER),
        Point("intent-before-data", ("create_bytes",), _ENTRY, AFTER, DRIVER, 2, 6),
        Point("before-confirming", ("create_bytes",), _ENTRY, BEFORE, DRIVER, 2, 8),
        Point("before-snapshot", _PUTS, _SNAPSHOT, BEFORE, DRIVER, 1, 2),
        Point("after-snapshot", _PUTS, _SNAPSHOT, AFTER, DRIVER, 1, 2),
        Point("amid-deletes", ("delete",), _ENTRY, AFTER, DRIVER, 2, 14),
        Point("before-schema-file", ("create_bytes",), _SCHEMA, BEFORE, WORKER, 1, 3),
        Point("after-schema-file", ("create_bytes",), _SCHEMA, AFTER, WORKER, 1, 3),
        Point("accepted-not-landed", ("create",), _DATA, BEFORE, WORKER),
        Point("land-worker", ("create",), _DATA, AFTER, WORKER, 1, 8, victim=WORKER),
        Point("ingest-worker", victim=WORKER),
        Point("before-copy", (COPY,), _DATA, BEFORE, WORKER, 1, 4),
        Point("after-copy", (COPY,), _DATA, AFTER, WORKER, 1, 4),
    )
}
RANDOM = "random"  # no point: any moment
HOLDING, INGESTING = "accepted-not-landed", "ingest-worker"  # the two that are more than a call on the store


def schedule(names: list[str], chance: random.Random) -> Iterator[str]:
    """Points without end: all of them before any comes again, in another order each time."""
    while True:
        units = _units(names)
        chance.shuffle(units)
        yield from (name for unit in units for name in unit)


def _units(names: list[str]) -> list[tuple[str, ...]]:
    """The points, random moments twice; what a crash leaves to be adopted is there when the next point needs it."""
    pairs = [(name, then) for name, then in _FOLLOWS.items() if name in names and then in names]
    rest = [name for name in names if not any(name in pair for pair in pairs)]
    return [*pairs, *((name,) for name in rest), *(((RANDOM,),) if RANDOM in names else ())]


_FOLLOWS = {"data-before-index": "adoption", "index-before-confirm": "takeover"}
