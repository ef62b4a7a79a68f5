"""`layouts=1000`: tables with different columns, so many different lists of them; table n has list n modulo `layouts`.

A layout is a number. Its columns are a function of (seed, number): `id`, then 2 to 29 more of any type (`kinds`), some
of which may be NULL. Column 1 has the layout's number in its name, so no two layouts are equal. Nothing is kept of a
layout, so a million of them take no memory, and whatever is asked is computed for many layouts or rows at once: the
only Python step for each layout is the hash of its text.

DDLs add columns at the end, as they do to sysbench's tables: a layout and the `shape` of the added columns (`ddl_play`)
give the columns of a table.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.events import EVENTS, LAYOUT
from tidegate.format.ddl.queries import quoted
from tidegate.format.tables import Column, Layout
from tidegate.sources.workload.ddl_play import ADDED_COLUMNS
from tidegate.sources.workload.kinds import KINDS
from tidegate.sources.workload.shapes import shape_columns
from tidegate.sources.workload.sysbench import (
    ADDED_BELOW,
    COLUMN,
    DELETED,
    INSERTED,
    UPDATED,
    Changes,
    Hashes,
    Ints,
    decimal,
    primary_keys,
    scramble,
)

FEWEST, MOST = 3, 30  # columns
MIXED_ROW_BYTES = 250  # of a line in CSV, on average
_ID = Column("id", "int", nullable=False, pk=True)
_ID_KIND, _ADDED_KIND = len(KINDS), len(KINDS) + 1
_LAYOUT_SALT, _TABLE_SALT = np.uint64(0xA0761D6478BD642F), np.uint64(0xE7037ED1A0B428DB)
_HEAD, _TAIL = '{"columns":[', "]}"

Codes = npt.NDArray[np.int8]


@dataclass(frozen=True)
class Cells:
    """The columns of several layouts or rows, one after the other; each belongs to `owner` and is at `place` there."""

    owner: Ints
    place: Ints
    kind: Codes
    nullable: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Layouts:
    count: int
    seed: int
    shards: int = 1

    def numbers(self, table: Ints) -> Ints:
        """The layout of each table. Shards are one table, so they have the layout of the first."""
        return np.where(table < self.shards, 0, table) % self.count

    def widths(self, layout: Ints) -> Ints:
        widths: Ints = (self._hash(layout, 0) % np.uint64(MOST - FEWEST + 1)).astype(np.int64) + FEWEST
        return widths

    def cells(self, layout: Ints, added: Ints | None = None) -> Cells:
        """The columns of these layouts, each with so many added ones."""
        own = self.widths(layout)
        counts = own if added is None else own + added
        owner = np.repeat(np.arange(len(layout)), counts)
        place = np.arange(len(owner)) - (np.cumsum(counts) - counts)[owner]
        chance = self._hash(layout[owner], place + 1)
        kind = (chance % np.uint64(len(KINDS))).astype(np.int8)
        kind[place == 0] = _ID_KIND
        kind[place >= own[owner]] = _ADDED_KIND
        nullable = (chance >> np.uint64(60) < 6) & (kind < _ID_KIND)
        return Cells(owner, place, kind, nullable)

    def _hash(self, layout: Ints, place: Ints | int) -> Hashes:
        of_layout = scramble(layout.view(np.uint64) * _LAYOUT_SALT + np.uint64(self.seed))
        return scramble(of_layout + np.asarray(place, np.int64).view(np.uint64) * COLUMN)

    def texts(self, layout: Ints, shape: Ints) -> pa.Array:
        """`Layout.to_json` of these layouts with the added columns of these shapes."""
        cells = self.cells(layout)
        names = pa.array([f"c{place}" for place in range(MOST)]).take(pa.array(cells.place))
        numbered = pc.binary_join_element_wise("of_", pa.array(layout).cast(pa.string()), "")
        names = pc.if_else(pa.array(cells.place == 1), numbered.take(pa.array(cells.owner)), names)
        names = pc.if_else(pa.array(cells.place == 0), _ID.name, names)
        texts = pc.binary_join_element_wise('{"name":"', names, _definitions().take(_definition_numbers(cells)), "")
        first = np.searchsorted(cells.owner, np.arange(len(layout) + 1)).astype(np.int32)
        joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(first), texts), ",")
        shapes, at = np.unique(shape, return_inverse=True)
        tails = pa.array([_added_text(one) + _TAIL for one in shapes.tolist()]).take(pa.array(at))
        return pc.binary_join_element_wise(_HEAD, joined, tails, "")

    def layout(self, table: int, shape: int) -> Layout:
        numbers = self.numbers(np.array([table], np.int64))
        return Layout.from_json(self.texts(numbers, np.array([shape], np.int64))[0].as_py())

    def described(self, table: Ints, shape: Ints, ts: int) -> tuple[Ints, pa.RecordBatch]:
        """The fingerprint of each of these tables, and the `layout` rows that define them."""
        shapes = len(ADDED_COLUMNS)
        both, at = np.unique(self.numbers(table) * shapes + shape, return_inverse=True)
        texts = self.texts(both // shapes, both % shapes)
        prints = np.array([fingerprint(text) for text in texts.cast(pa.binary()).to_pylist()], np.int64)
        return prints[at], _layout_rows(prints, texts, ts)

    def images(self, table: Ints, changes: Changes, added: Ints | None) -> tuple[pa.ListArray, pa.ListArray]:
        """The `after` and `before` columns of these changes, as those of `Texts`."""
        ids = primary_keys(table, changes.id, self.shards)
        key = scramble(scramble(table.view(np.uint64) * _TABLE_SALT + np.uint64(self.seed)) + ids.view(np.uint64))
        after, before = changes.kind != DELETED, changes.kind != INSERTED
        layout = self.numbers(table)
        return (
            self._lists(layout, ids, key, changes.version, after, added),
            self._lists(layout, ids, key, changes.version - (changes.kind == UPDATED), before, added),
        )

    def _lists(
        self,
        layout: Ints,
        ids: Ints,
        key: Hashes,
        version: Ints,
        present: npt.NDArray[np.bool_],
        added: Ints | None,
    ) -> pa.ListArray:
        if not present.any():
            return pa.nulls(len(present), pa.list_(pa.binary()))
        cells = self.cells(layout[present], None if added is None else added[present])
        number = scramble(scramble(key + version.view(np.uint64))[present][cells.owner] + cells.place.view(np.uint64))
        values = _values(cells, number, ids[present])
        offsets = np.zeros(len(present) + 1, np.int32)
        offsets[1:][present] = np.bincount(cells.owner, minlength=int(present.sum()))
        np.cumsum(offsets, out=offsets)
        mask = None if present.all() else pa.array(~present)
        return pa.ListArray.from_arrays(pa.array(offsets), values, mask=mask)


def fingerprint(text: bytes) -> int:
    """The same as `Layout.fingerprint`, of its text."""
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big", signed=True)


def _values(cells: Cells, number: Hashes, ids: Ints) -> pa.Array:
    """The text of each cell. Cells of one kind are made together, and then put back into their places."""
    order = np.argsort(cells.kind, kind="stable")
    bounds = np.searchsorted(cells.kind[order], np.arange(_ADDED_KIND + 2))
    made = []
    for kind, (low, high) in enumerate(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)):
        if low < high:
            of_kind = order[low:high]
            made.append(_of_kind(kind, number[of_kind], ids[cells.owner[of_kind]]))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    null = cells.nullable & (number >> np.uint64(61) == 0)
    return pa.concat_arrays(made).take(pa.array(place, mask=null))


def _of_kind(kind: int, number: Hashes, ids: Ints) -> pa.Array:
    if kind == _ID_KIND:
        return decimal(ids)
    return decimal(number % ADDED_BELOW) if kind == _ADDED_KIND else KINDS[kind].texts(number)


def _definition_numbers(cells: Cells) -> pa.Array:
    return pa.array(2 * cells.kind.astype(np.int64) + cells.nullable)


@cache
def _definitions() -> pa.Array:
    """By kind, not nullable and nullable, the JSON of a column behind its name; the last is that of `id`."""
    columns = [replace(kind.definition, nullable=nullable) for kind in KINDS for nullable in (False, True)]
    return pa.array([_json(column).removeprefix('{"name":"') for column in (*columns, replace(_ID, name=""))])


def _json(column: Column) -> str:
    return Layout((column,)).to_json().removeprefix(_HEAD).removesuffix(_TAIL)


@cache
def _added_text(shape: int) -> str:
    return "".join(f",{_json(column)}" for column in shape_columns(shape))


def _layout_rows(prints: Ints, texts: pa.Array, ts: int) -> pa.RecordBatch:
    """As `source.layout_rows`, by columns."""
    rows = len(prints)
    known = {"kind": pa.repeat(LAYOUT, rows), "commit_ts": pa.repeat(pa.scalar(ts, pa.int64()), rows)}
    known |= {"seq": pa.repeat(pa.scalar(0, pa.int64()), rows), "layout": pa.array(prints), "ddl": texts}
    return pa.RecordBatch.from_arrays(
        [known[field.name] if field.name in known else pa.nulls(rows, field.type) for field in EVENTS], schema=EVENTS
    )


def columns_sql(layout: Layout) -> str:
    """The columns of a CREATE TABLE: "`id` INT NOT NULL,...,PRIMARY KEY(`id`)"."""
    texts = [
        f"{quoted(column.name)} {_sql(column)}{'' if column.nullable else ' NOT NULL'}" for column in layout.columns
    ]
    return ",".join([*texts, "PRIMARY KEY(`id`)"])


def _sql(column: Column) -> str:
    definition = replace(column, name="", nullable=True, pk=False)
    length = f"({column.flen})" if column.flen else ""
    return next((kind.sql for kind in KINDS if kind.definition == definition), column.type.upper() + length)
