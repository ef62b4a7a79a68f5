"""The names under which dispatchers land, a name with each version, and the tables that partitions are part of."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.control.columns import Ints, Numbers, Texts, group_starts
from tidegate.control.dispatchers import Dispatchers


@dataclass
class Names:
    dispatchers: Dispatchers
    schemas: Texts = field(default_factory=Texts)
    tables: Texts = field(default_factory=Texts)
    _coming: dict[int, dict[int, tuple[str, str, int]]] = field(default_factory=dict)

    def pairs(self, numbers: Numbers) -> list[tuple[str, str]]:
        """(schema, table) of these."""
        both = (texts.take(numbers).to_pylist() for texts in (self.schemas, self.tables))
        return list(zip(*both, strict=True))

    def namesakes(self, numbers: Numbers) -> dict[int, Numbers]:
        """For each of these, the others of its name: partitions, or the same name given again.

        Looks at all names, once for however many are asked, so ask rarely and for many.
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
        """The name under which this dispatcher's files land from now on, and the table that it is a part of."""
        self.tables[number] = table_name
        self.schemas[number] = schema_name
        self.dispatchers.logical_id[number] = logical_id

    def rename_many(self, numbers: Numbers, schema_names: pa.Array, table_names: pa.Array, logical_id: Ints) -> None:
        """`rename` for many at once; of a number that stands there twice the last name counts."""
        self.schemas.put(numbers, schema_names)
        self.tables.put(numbers, table_names)
        self.dispatchers.logical_id[numbers] = logical_id

    def rename_from(
        self, version: Ints, numbers: Numbers, schema_names: pa.Array, table_names: pa.Array, logical_id: Ints
    ) -> None:
        """A name stands with its version: what is queued under an older version still lands under the older name.

        The numbers are sorted. A dispatcher that has no name yet gets its first one at once.
        """
        known = [pc.equal(texts.take(numbers), "") for texts in (self.schemas, self.tables)]
        nameless = pc.and_(*known).to_numpy(zero_copy_only=False)
        first = np.zeros(len(numbers), np.bool_)
        first[group_starts(numbers)] = True
        first &= nameless
        at = pa.array(np.flatnonzero(first))
        self.rename_many(numbers[first], schema_names.take(at), table_names.take(at), logical_id[first])
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

    def begin_versions(self, dispatcher: Numbers, version: Ints) -> None:
        """The next files of these dispatchers have these versions, so they land under the names that came with them."""
        if not self._coming:
            return
        for number, at in zip(dispatcher.tolist(), version.tolist(), strict=True):
            names = self._coming.get(number, {})
            for begun in sorted(older for older in names if older <= at):
                self.rename(number, *names.pop(begun))
            if not names:
                self._coming.pop(number, None)
