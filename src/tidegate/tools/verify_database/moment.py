"""Places in the log of a server, and what of it a consistent read has seen.

MariaDB says at which place of its log a consistent read began. MySQL says which transactions were executed, by their
names: the place in its log would not do, because the log is written before the engine commits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate.errors import VerifyError
from tidegate.sources.mysql.place import Place

_INTERVAL = re.compile(r"([0-9]+)(?:-([0-9]+))?")


def shown(place: Place) -> str:
    """`bin.000007:1204`"""
    return f"{place.file}:{place.position}"


@dataclass(frozen=True)
class GtidSet:
    """`GtidSet.of("3e11...:1-5:7")`, as `gtid_executed` has it; tags of MySQL 9 stand between the intervals."""

    intervals: Mapping[str, tuple[tuple[int, int], ...]]

    @staticmethod
    def of(text: str) -> GtidSet:
        found: dict[str, list[tuple[int, int]]] = {}
        for part in text.replace("\n", "").split(","):
            origin, *words = part.strip().split(":")
            name = origin.lower()
            for word in words:
                interval = _INTERVAL.fullmatch(word.strip())
                if interval is None:
                    name = f"{origin.lower()}:{word.strip()}"
                else:
                    found.setdefault(name, []).append((int(interval[1]), int(interval[2] or interval[1])))
        return GtidSet({name: tuple(each) for name, each in found.items()})

    def __contains__(self, gtid: str) -> bool:
        name, _, number = gtid.rpartition(":")
        return any(low <= int(number) <= high for low, high in self.intervals.get(name.lower(), ()))


@dataclass(frozen=True)
class Moment:
    """What a consistent read has seen: all transactions that begin before `place`, or those named in `executed`.

    `log_end` is where the log ended after the read had begun: nothing behind it was seen.
    """

    log_end: Place
    place: Place | None = None
    executed: GtidSet | None = None

    def has_seen(self, gtid: str, begins: Place) -> bool:
        if self.executed is not None:
            return gtid in self.executed
        assert self.place is not None, "a moment has one of the two"
        return begins.order < self.place.order


@dataclass(frozen=True)
class Durable:
    """How far a changefeed has come: all transactions before `position` are on the sink, up to commit-ts `ts`.

    `waits_for` says why the sink cannot be compared at this place; "" if it can.
    """

    position: Place
    ts: int
    waits_for: str = ""
    snap: Mapping[str, Any] = field(default_factory=dict)  # how far its snapshot is


def durable_of(offset: Mapping[str, Any]) -> Durable:
    """From the offset of the source that the journal has."""
    try:
        position = Place(str(offset["file"]), int(offset["pos"]))
        return Durable(position, int(offset["ts"]), _waits_for(offset), dict(offset.get("snap") or {}))
    except (KeyError, TypeError, ValueError) as exc:
        raise VerifyError(f"the journal of this sink is not of a changefeed that follows a database: {exc!r}") from exc


def _waits_for(offset: Mapping[str, Any]) -> str:
    if offset.get("behind"):
        return "some tables are held back"
    return "it stands within a transaction" if offset.get("event") else ""
