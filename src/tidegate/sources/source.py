"""The contract of every source, and functions that all sources use to read the text of their URI.

A source hands out the change events between two offsets. Offsets and splits are small JSON values. The same offsets
give the same rows at any time and in any process, so any process that opens the same URI can read a split.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable
from urllib.parse import parse_qsl

import pyarrow as pa

from tidegate.errors import BadSetting
from tidegate.events import EVENTS, LAYOUT, RESOLVED
from tidegate.wording import hint

Offset = dict[str, Any]
Split = dict[str, Any]

ORDERINGS = ("per-table", "global")
WAKE_MODES = ("enqueue", "flush")
BATCH_BYTES = 8 << 20  # approximate encoded bytes of one Arrow batch

_UNITS = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "kb": 10**3, "mb": 10**6, "gb": 10**9}


@dataclass(frozen=True)
class Demand:
    """What the driver wants next, for the process that asks a source for offsets: a small JSON file between the two.

    `limit_bytes` is how much a micro-batch should have. One unit may be larger, but not larger than `room_bytes`: then
    it waits until the spool has room for it. None: it does not wait, because there will not be more room. `durable` is
    the offset, as text, up to which everything is durable: nobody will ask for anything before it.
    """

    limit_bytes: int
    room_bytes: int | None = None
    held: frozenset[int] = frozenset()
    durable: str | None = None

    def to_json(self) -> str:
        shown = {"limit_bytes": self.limit_bytes, "room_bytes": self.room_bytes, "held": sorted(self.held)}
        return json.dumps(shown | {"durable": self.durable})

    @staticmethod
    def from_json(text: str) -> Demand:
        try:
            found = json.loads(text)
            held = frozenset(map(int, found["held"]))
            return Demand(int(found["limit_bytes"]), found["room_bytes"], held, found.get("durable"))
        except (ValueError, TypeError, KeyError) as exc:
            raise BadSetting(f"{text!r} is not what a source can be asked for: {exc!r}") from exc


class Source(Protocol):
    """Where changes come from. Byte counts are estimates of encoded (CSV) bytes."""

    finite: bool

    def check(self) -> None:
        """Refuse, before anything starts, what can be seen to be wrong without reading the events."""
        ...

    def initial(self) -> Offset:
        """The offset before the first event."""
        ...

    def latest(self, start: Offset, limit_bytes: int, held: frozenset[int]) -> Offset:
        """How far to read from `start`: up to the limit, but at least one unit. `start` itself if nothing is new.

        A unit is the least that the source can hand out. Tables whose ids are in `held`, MOST_HELD at most, are not
        handed out; once they are released they catch up, in order, nothing lost and nothing twice. Offsets name them,
        and nothing else grows with the number of tables. The resolved mark stays below their next change.
        """
        ...

    def size_bytes(self, start: Offset, end: Offset) -> int:
        """How many bytes these events have."""
        ...

    def splits(self, start: Offset, end: Offset, parallelism: int) -> list[Split]:
        """The events between two offsets in splits of about equal bytes. A table is in one split unless `global`."""
        ...

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Batches of EVENTS: the layouts first, then per table in (commit_ts, seq) order."""
        ...

    def backlog_bytes(self, offset: Offset) -> int | None:
        """Bytes that are left after `offset`, at most: 0 only at the end. None if the source never ends."""
        ...

    def newest_ts(self) -> int | None:
        """No change or resolved mark has a greater commit-ts than this; None if the source cannot say."""
        ...


@runtime_checkable
class Told(Protocol):
    """A source that must know what became of what it handed out: it keeps something until then."""

    def committed(self, end: Offset) -> None:
        """Everything up to here is accepted."""
        ...

    def durable(self, end: Offset) -> None:
        """Everything up to here is durable."""
        ...


@dataclass(frozen=True)
class SnapshotState:
    """How far the snapshot of a source is. `share` is from 0 to 1, `left_s` None as long as nobody can say it."""

    tables_left: int
    rows: int
    share: float
    left_s: float | None
    table: str  # that is read now


@dataclass(frozen=True)
class SourceState:
    """How far behind its upstream a source is, and what keeps it there: `waits` is a sentence, or empty."""

    lag_s: float
    lag_bytes: int
    waits: str = ""
    snapshot: SnapshotState | None = None  # while it is under way


@runtime_checkable
class Observed(Protocol):
    """A source with an upstream of its own."""

    def state(self) -> SourceState | None:
        """None if nobody knows it yet. Called by the driver, which is another process than the one that reads."""
        ...


def fitting(source: Source, start: Offset, demand: Demand) -> Offset:
    """How far to read now; `start` if the next unit does not fit, so that it waits for room."""
    end = source.latest(start, demand.limit_bytes, demand.held)
    if demand.room_bytes is None or source.size_bytes(start, end) <= demand.room_bytes:
        return end
    return start


def layout_rows(layouts: Mapping[int, str], ts: int) -> pa.RecordBatch:
    """One `layout` row for each fingerprint and its JSON."""
    marks = [{"kind": LAYOUT, "commit_ts": ts, "seq": 0, "layout": key, "ddl": text} for key, text in layouts.items()]
    return pa.RecordBatch.from_pylist(marks, schema=EVENTS)


def resolved_row(ts: int) -> pa.RecordBatch:
    """One `resolved` row: nothing at or below `ts` follows."""
    return pa.RecordBatch.from_pylist([{"kind": RESOLVED, "commit_ts": ts, "seq": 0}], schema=EVENTS)


def byte_count(text: str) -> int:
    """`byte_count("2.2MiB")` is 2306867; plain numbers are bytes."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)", text.strip())
    if found is None or found[2].lower() not in _UNITS:
        raise ValueError("a size such as 500000, 64KiB or 2.2MiB")
    return int(float(found[1]) * _UNITS[found[2].lower()])


def read_query(query: str, readers: Mapping[str, Callable[[str], Any]], what: str, page: str) -> dict[str, Any]:
    """The values of a URI's query. A reader raises a ValueError that says what it accepts: `a size such as 64KiB`."""
    values: dict[str, Any] = {}
    for name, text in parse_qsl(query, keep_blank_values=True):
        if name not in readers:
            raise BadSetting(f"{what}: unknown parameter {name!r}; {hint(name, readers, page)}")
        if name in values:
            raise BadSetting(f"{what}: parameter {name!r} is given twice; keep one")
        try:
            values[name] = readers[name](text)
        except ValueError as exc:
            raise BadSetting(f"{what}: {name}={text!r} is not {exc}") from exc
    return values
