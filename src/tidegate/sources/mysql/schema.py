"""The catalogue as the log goes on: statements are applied to it in order, or taken from the record.

What the history has on record for a statement counts, whatever this release would make of its text. What it does not
have is kept here until it is put on record, before anything behind it is handed out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tidegate.errors import BrokenInvariant
from tidegate.sources.mysql.catalogue import Applied, Catalogue, DdlRow, TableEntry
from tidegate.sources.mysql.ddl.apply import apply
from tidegate.sources.mysql.history import History
from tidegate.sources.mysql.log.control_events import Query
from tidegate.sources.mysql.log.transactions import Position
from tidegate.sources.mysql.place import Place

Fresh = list[tuple[Place, Applied]]


def refuse_nothing(entry: TableEntry) -> None:
    pass


@dataclass
class LogSchema:
    """`refuse` raises for a table that a statement makes and that cannot be followed."""

    history: History
    refuse: Callable[[TableEntry], None] = refuse_nothing
    catalogue: Catalogue = field(init=False)
    _fresh: Fresh = field(default_factory=list)

    def __post_init__(self) -> None:
        self.catalogue = self.history.catalogue

    def statement(self, query: Query, commit_ts: int, place: Place) -> tuple[DdlRow, ...]:
        """Applies a statement; its rows have commit-ts from this one on, each one more than the last."""
        applied = self.history.recorded(place, self.catalogue)
        if applied is None:
            applied = apply(self.catalogue, query, commit_ts, self.refuse)
            if not applied.ignored:
                self._fresh.append((place, applied))
        elif applied.rows and applied.rows[0].commit_ts != commit_ts:
            known = applied.rows[0].commit_ts
            raise BrokenInvariant(f"the DDL at {place} has commit-ts {known} on record, and would get {commit_ts} now")
        self.catalogue = applied.catalogue
        return applied.rows

    def go_back(self, catalogue: Catalogue, end: Position) -> None:
        """The statements behind `end`, where this was the catalogue, come once more."""
        self.catalogue = catalogue
        self._fresh = [each for each in self._fresh if each[0].order <= end]

    def take_fresh(self, end: Position) -> Fresh:
        """The statements up to here that are not on record; `history.record` must follow."""
        taken = [each for each in self._fresh if each[0].order <= end]
        self._fresh = self._fresh[len(taken) :]
        return taken
