"""The catalogue as the log goes on: statements are applied to it in order."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.sources.mysql.catalogue import Catalogue, DdlRow
from tidegate.sources.mysql.ddl.apply import apply
from tidegate.sources.mysql.log.control_events import Query
from tidegate.sources.mysql.log.transactions import Position


@dataclass
class LogSchema:
    catalogue: Catalogue

    def statement(self, query: Query, commit_ts: int, position: Position) -> tuple[DdlRow, ...]:
        applied = apply(self.catalogue, query, commit_ts)
        self.catalogue = applied.catalogue
        return applied.rows

    def go_back(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue

    def put_on_record(self) -> None:
        """Nothing is kept yet."""
