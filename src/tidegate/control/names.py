"""The names under which dispatchers land, and the tables that partitions belong to.

A name comes with a version: a table that is renamed has items of the old name in its queue, and these must land under
the old name. So a new name waits until the first file of its version is planned. Few tables are renamed at a time; only
their coming names are kept one by one, all others are two columns of text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidegate.control.columns import Ints, Numbers, Texts, group_starts
from tidegate.control.dispatchers import Dispatchers
from tidegate.control.places import Places, hashes

Target = Callable[[str, str], tuple[str, str]]  # the names under which a table lands


@dataclass
class Names:
    """Schema and table name by the number of a dispatcher; "" for one that has no name yet."""

    dispatchers: Dispatchers
    places: Places
    target: Target | None = None  # None if tables land under their own names
    schemas: Texts = field(default_factory=Texts)
    tables: Texts = field(default_factory=Texts)
    # By dispatcher and version, the (schema, table, logical id) that begins with it.
    _coming: dict[int, dict[int, tuple[str, str, int]]] = field(default_factory=dict)

    def pairs(self, numbers: Numbers) -> list[tuple[str, str]]:
        """(schema, table) of these."""
        both = (texts.take(numbers).to_pylist() for texts in (self.schemas, self.tables))
        return list(zip(*both, strict=True))

    def targets(self, numbers: Numbers) -> pa.Array:
        """The target of each, `shop\\0orders`; "" for one that has no name."""
        return self.targets_of(self.schemas.take(numbers), self.tables.take(numbers))

    def targets_of(self, schemas: pa.Array, tables: pa.Array) -> pa.Array:
        """The targets of tables with these names."""
        if self.target is not None:
            names = zip(schemas.to_pylist(), tables.to_pylist(), strict=True)
            routed = [self.target(*name) if name[1] else name for name in names]
            schemas, tables = (pa.array([name[i] for name in routed], pa.string()) for i in (0, 1))
        joined = pc.binary_join_element_wise(schemas, tables, "\0")
        return pc.if_else(pc.equal(tables, ""), "", joined)

    def namesakes(self, numbers: Numbers) -> dict[int, Numbers]:
        """For each of these, the other dispatchers of its name: partitions, or a table that had the name before.

        It compares with the names of all tables, once for however many are asked. So ask rarely, and for many.
        """
        asked = self.pairs(numbers)
        alike = np.flatnonzero(
            self.schemas.among(schema for schema, _ in asked) & self.tables.among(table for _, table in asked)
        )
        by_name: dict[tuple[str, str], list[int]] = {}
        for number, name in zip(alike.tolist(), self.pairs(alike), strict=True):
            by_name.setdefault(name, []).append(number)
        of_name = {name: np.array(found, np.int64) for name, found in by_name.items()}
        pairs = zip(numbers.tolist(), (of_name.get(name, alike[:0]) for name in asked), strict=True)
        return {number: found[found != number] for number, found in pairs}

    def rename(self, number: int, schema_name: str, table_name: str, logical_id: int) -> None:
        """The name under which this dispatcher's files land from now on, and the table that it is part of."""
        at = np.array([number])
        was_whole, before = self.places.whole(at)[0], self.targets(at)
        self.tables[number] = table_name
        self.schemas[number] = schema_name
        self.dispatchers.logical_id[number] = logical_id
        if self.places.whole(at)[0] != was_whole or self.targets(at) != before:
            self.places.leave(at, before)
            self.dispatchers.target[at] = hashes(self.targets(at))

    def rename_many(self, numbers: Numbers, schema_names: pa.Array, table_names: pa.Array, logical_id: Ints) -> Ints:
        """The first names of many; returns their targets. Of a number that is given twice the last name counts."""
        self.schemas.put(numbers, schema_names)
        self.tables.put(numbers, table_names)
        self.dispatchers.logical_id[numbers] = logical_id
        targets = hashes(self.targets_of(schema_names, table_names))
        self.dispatchers.target[numbers] = targets
        return targets

    def rename_from(
        self, version: Ints, numbers: Numbers, schema_names: pa.Array, table_names: pa.Array, logical_id: Ints
    ) -> None:
        """These names begin with these versions; the numbers are sorted.

        A dispatcher without a name gets its first one at once: nothing of it is queued under another.
        """
        known = [pc.equal(texts.take(numbers), "") for texts in (self.schemas, self.tables)]
        nameless = pc.and_(*known).to_numpy(zero_copy_only=False)
        first = np.zeros(len(numbers), np.bool_)
        first[group_starts(numbers)] = True
        first &= nameless
        at = pa.array(np.flatnonzero(first))
        self.rename_many(numbers[first], schema_names.take(at), table_names.take(at), logical_id[first])
        self.places.come(numbers[first], version[first])
        rest = np.flatnonzero(~first)
        if not len(rest):
            return
        texts = (column.take(pa.array(rest)).to_pylist() for column in (schema_names, table_names))
        names = zip(*texts, logical_id[rest].tolist(), strict=True)
        owners = self.dispatchers.logical_id[numbers[rest]].tolist()
        rows = zip(
            version[rest].tolist(), numbers[rest].tolist(), names, self.pairs(numbers[rest]), owners, strict=True
        )
        for begins, number, name, now, owner in rows:
            if number in self._coming or name != (*now, owner):
                self._coming.setdefault(number, {})[begins] = name

    def forget(self, numbers: Numbers) -> None:
        """These are nameless again."""
        for texts in (self.schemas, self.tables):
            texts.put(numbers, pa.array([""]).take(pa.array(np.zeros(len(numbers), np.int64))))

    def leaving(self, dispatcher: Numbers, version: Ints) -> NDArray[np.bool_]:
        """Which of these have another name than now in these versions."""
        found = np.zeros(len(dispatcher), np.bool_)
        for at in np.flatnonzero(np.isin(dispatcher, list(self._coming))).tolist() if self._coming else ():
            found[at] = min(self._coming[int(dispatcher[at])]) <= version[at]
        return found

    def begin_versions(self, dispatcher: Numbers, version: Ints) -> None:
        """The next files of these dispatchers have these versions, so their names count from now on."""
        if not self._coming:
            return
        for number, at in zip(dispatcher.tolist(), version.tolist(), strict=True):
            names = self._coming.get(number, {})
            for begun in sorted(older for older in names if older <= at):
                self.rename(number, *names.pop(begun))
            if not names:
                self._coming.pop(number, None)
