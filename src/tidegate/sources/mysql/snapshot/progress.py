"""How far the snapshot is: a value in every offset, small however many tables there are. Pure.

    {"done": 41, "begun": {"42": [463..., ["7", "_utf8mb4 x'6162'"]], "43": [463...]}}

Tables are snapshotted in the order of their ids, some of them at the same time. `done` says that all tables up to this
id which need a snapshot have had it. `begun` has the others of which rows were emitted: the version at which that was,
and the last border; without a border the table is done before its turn.

A border belongs to a version. A DDL gives its table a new version, so nothing counts that was emitted before, and the
snapshot of a table that is not done starts again. What was emitted then is not taken back: readers apply inserts as
upserts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, TypeVar

from tidegate.errors import BadSetting
from tidegate.sources.mysql.snapshot.select import Border

MOST_BEGUN = 32  # tables at one time


class Waiting(Protocol):
    """A table that needs a snapshot."""

    @property
    def table_id(self) -> int: ...

    @property
    def version(self) -> int: ...


W = TypeVar("W", bound=Waiting)


class Begun(NamedTuple):
    """Of a table at this version all rows up to the border were emitted; None: all rows."""

    version: int
    border: Border | None


@dataclass(frozen=True)
class Progress:
    done: int = 0
    begun: Mapping[int, Begun] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        begun = {
            str(table): [version] if border is None else [version, [*border]]
            for table, (version, border) in sorted(self.begun.items())
        }
        return {"done": self.done, "begun": begun} if self.done or begun else {}

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> Progress:
        try:
            begun = {
                int(table): Begun(int(each[0]), tuple(map(str, each[1])) if len(each) > 1 else None)
                for table, each in found.get("begun", {}).items()
            }
            return Progress(int(found.get("done", 0)), begun)
        except (TypeError, ValueError, KeyError, IndexError, AttributeError) as exc:
            raise BadSetting(f"a position says {found!r} about the snapshot, which is nothing known") from exc

    def border(self, table: Waiting) -> Border | None:
        """Where the next chunk of the table begins; None at its start."""
        known = self.begun.get(table.table_id)
        return known.border if known is not None and known.version == table.version else None

    def is_done(self, table: Waiting) -> bool:
        """Once all rows of a table were emitted, its log says the rest, DDLs included."""
        return self.has(table.table_id)

    def has(self, table_id: int) -> bool:
        """Whether the table with this id is done."""
        known = self.begun.get(table_id)
        return table_id <= self.done or (known is not None and known.border is None)

    def emitted(self, table_id: int, version: int, high: Border | None) -> Progress:
        """After a part of a chunk up to this border; None if it was the table's last."""
        return replace(self, begun={**self.begun, table_id: Begun(version, high)})

    def settled(self, waiting: Callable[[int, int], Sequence[Waiting]]) -> Progress:
        """The same, as short as possible. `waiting(after, limit)` are the tables that need a snapshot, by id."""
        done, first = self.done, None
        for table in waiting(self.done, len(self.begun) + 1):
            if not self.is_done(table):
                first = table.table_id
                break
            done = table.table_id
        # Tables that are gone do not wait any more: what is known of them goes when their turn has come.
        least = first if first is not None else max([done, *self.begun]) + 1
        return Progress(done, {table: each for table, each in self.begun.items() if table >= least})

    def next_tables(self, waiting: Callable[[int, int], Sequence[W]]) -> list[W]:
        """The tables that may be read now, in their order."""
        return [table for table in waiting(self.done, MOST_BEGUN) if not self.is_done(table)]

    def is_over(self, waiting: Callable[[int, int], Sequence[Waiting]]) -> bool:
        return not self.next_tables(waiting)
