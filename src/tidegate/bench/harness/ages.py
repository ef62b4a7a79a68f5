"""How long changes wait for their file: looked up whenever a round of files has become durable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from tidegate.control.ledger import Durable
from tidegate.control.rounds import Round
from tidegate.spark.handle import Handle


class Names(Protocol):
    """The name of a dispatcher's table, by its number."""

    def __getitem__(self, number: int, /) -> str: ...


def after_each_round(handle: Handle, note: Callable[[Round, Any, Durable], None]) -> None:
    """Call `note` with each round, which of its files landed, and what that changed."""
    ledger = handle.changefeed.ledger
    receive = ledger.receive

    def spy(round_: Round, landed: Any, *rest: Any, **more: Any) -> Durable:
        durable = receive(round_, landed, *rest, **more)
        note(round_, landed, durable)
        return durable

    ledger.receive = spy  # type: ignore[method-assign]


@dataclass
class Ages:
    """How old (since accepted) the oldest change of every file was when it was durable, by table."""

    by_table: dict[str, list[float]] = field(default_factory=dict)
    _spied: bool = False

    def look(self, handle: Handle) -> None:
        if not self._spied:
            self._spied = True
            names = handle.changefeed.ledger.queues.names.tables
            after_each_round(handle, lambda round_, landed, durable: self.note(round_, landed, durable.ages_s, names))

    def enough(self) -> bool:
        return True

    def note(self, round_: Round, landed: Any, ages_s: Any, names: Names) -> None:
        items = np.diff(round_.bounds)[landed]
        if len(items):
            first = np.append(0, np.cumsum(items))[:-1]
            oldest = np.maximum.reduceat(ages_s[: int(items.sum())], first)
            for owner, age in zip(round_.dispatcher[landed].tolist(), oldest.tolist(), strict=True):
                self.by_table.setdefault(names[owner], []).append(age)

    def without(self, table: str) -> list[float]:
        """Those of all other tables."""
        return [age for name, ages in self.by_table.items() if name != table for age in ages]
