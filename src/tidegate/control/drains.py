"""Who drains: the dispatchers that DDLs wait for, and which DDLs to look at when something has landed.

A DDL whose turn has come looks once at all dispatchers that it touches. Those that hold something below its commit-ts
are awaited: only when something of them lands is the DDL looked at again. A wide DDL may wait for a million
dispatchers, so it has no entry for each: it is looked at whenever anything lands. `looks` counts how often, so that a
test can prove it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tidegate.control.barrier import Key
from tidegate.control.columns import Numbers
from tidegate.control.markers import Block, Markers


@dataclass
class Drains:
    """The DDLs that have looked and still wait for dispatchers."""

    markers: Markers
    looks: int = 0  # at a DDL, so far
    _awaited: dict[int, set[Key]] = field(default_factory=dict)  # by dispatcher, those that are not wide
    _wide: set[Key] = field(default_factory=set)
    _landed: list[Numbers] = field(default_factory=list)  # since the last look, while anybody waits

    def look(self, block: Block) -> tuple[Numbers, Numbers]:
        """The dispatchers that have drained since the last look, and those that have not."""
        self.looks += 1
        first = block.left is None
        looked_at = self.markers.notice(block) if block.left is None else block.left
        undrained = self.markers.undrained(looked_at, block.ts)
        drained, left = looked_at[~undrained], looked_at[undrained]
        block.left = left
        if block.wide is not None:
            (self._wide.add if len(left) else self._wide.discard)(block.key)
        elif first:
            for number in left.tolist():
                self._awaited.setdefault(number, set()).add(block.key)
        else:
            self._forget(drained, block.key)
        return drained, left

    def note_landed(self, dispatcher: Numbers) -> None:
        if not self.empty:
            self._landed.append(dispatcher)

    def take_landed(self) -> set[Key]:
        """The DDLs that wait for a dispatcher of which something has landed since the last time."""
        if not self._landed:
            return set()
        landed, self._landed = np.unique(np.concatenate(self._landed)), []
        awaited = np.fromiter(self._awaited, np.int64, len(self._awaited))
        found = set(self._wide)
        for number in awaited[np.isin(awaited, landed)].tolist():
            found |= self._awaited[number]
        return found

    @property
    def empty(self) -> bool:
        return not self._awaited and not self._wide

    def _forget(self, drained: Numbers, key: Key) -> None:
        for number in drained.tolist():
            waiting = self._awaited[number]
            waiting.discard(key)
            if not waiting:
                del self._awaited[number]
