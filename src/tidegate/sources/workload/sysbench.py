"""The rows of sysbench's tables: a pure function of (seed, table, position), without state.

Position p of a table is its p-th change. First comes `prepare`: positions below `prepared` insert ids 1, 2, ... Then
comes the run: kinds repeat in one short cycle with the proportions of the mix. Every kind has its own ids, so that
`before` and `after` agree with earlier changes:

* inserts take new ids, rows + 1 onwards;
* updates (`oltp_update_non_index`: only `c` changes) repeat over a fixed set of ids; pass r changes version r to r + 1
  of each id, once per pass in scrambled order;
* deletes take ids in the order of their creation and never an id that is updated. If there are more deletes than
  inserts, the prepared ids run out; then they are deleted again, with values of another version.

With both updates and deletes the lower half of the prepared ids is updated, the rest deleted. What changes after a
table was truncated or dropped is in `lives`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import gcd

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.events import DELETE, EVENTS, INSERT, UPDATE
from tidegate.format.tables import Column, Layout

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int8]
Hashes = npt.NDArray[np.uint64]

SCHEMA_NAME = "sbtest"
SCHEMA_ID = 100
FIRST_TABLE_ID = 101
LAYOUT = Layout(
    (
        Column("id", "int", nullable=False, pk=True),
        Column("k", "int", nullable=False),
        Column("c", "char", flen=120, nullable=False),
        Column("pad", "char", flen=60, nullable=False),
    )
)

INSERTED, UPDATED, DELETED = range(3)
_KINDS = pa.array([INSERT, UPDATE, DELETE])
_NOTHING = pa.scalar(b"", pa.binary())
COLUMN, ADDED_BELOW = np.uint64(0xD6E8FEB86659FD93), np.uint64(10**9)  # an odd factor, so that added columns differ

# A pad is five groups of eleven digits joined by '-'; a c is two such texts joined by '-'.
_PIECE, _PIECES = 59, 1 << 15
_C_LENGTH, _PAD_LENGTH = 2 * _PIECE + 1, _PIECE


@dataclass(frozen=True)
class Changes:
    """Kind, id and version of each change. It is the version after the change; for a delete, the version before."""

    kind: Codes
    id: Ints
    version: Ints


@dataclass(frozen=True)
class History:
    """The changes of a table, which are the same for all tables. `mix`: inserts, updates and deletes in the run."""

    rows: int
    prepared: int
    mix: tuple[int, int, int]

    def changes(self, position: Ints) -> Changes:
        return self.placed(*self.ordinals(position))

    def ordinals(self, position: Ints) -> tuple[Codes, Ints]:
        """The kind of each change, and how many of its kind come before it in the run; below 0 for `prepare`."""
        turn, place = np.divmod(position - self.prepared, len(self.cycle[0]))
        kinds, before, counts = self.cycle
        kind, ordinal = kinds[place], turn * counts[place] + before[place]
        prepare = position < self.prepared
        return np.where(prepare, np.int8(INSERTED), kind), np.where(prepare, position - self.rows, ordinal)

    @cached_property
    def updatable(self) -> int:
        """Ids from 1 to this one are updated and never deleted."""
        if not self.mix[UPDATED]:
            return 0
        return max(1, self.rows // 2) if self.mix[DELETED] else self.rows

    @cached_property
    def cycle(self) -> tuple[Codes, Ints, Ints]:
        """For each place of the cycle: its kind, how many of that kind come before it, how many the cycle has."""
        part = gcd(*self.mix)
        counts = [count // part for count in self.mix]
        # Kinds are spaced evenly, inserts first at equal places, so that the n-th delete follows the n-th insert.
        spaced = sorted(((n + 0.5) / count, kind) for kind, count in enumerate(counts) for n in range(count))
        kinds = [kind for _, kind in spaced]
        seen: Counter[int] = Counter()
        before = []
        for kind in kinds:
            before.append(seen[kind])
            seen[kind] += 1
        return np.array(kinds, np.int8), np.array(before, np.int64), np.array([counts[k] for k in kinds], np.int64)

    def placed(self, kind: Codes, ordinal: Ints) -> Changes:
        ids, version = np.empty_like(ordinal), np.zeros_like(ordinal)
        for code in np.flatnonzero(np.bincount(kind, minlength=3)):
            chosen = kind == code
            if code == INSERTED:
                ids[chosen] = self.rows + 1 + ordinal[chosen]
            elif code == UPDATED:
                ids[chosen], version[chosen] = self._updated(ordinal[chosen])
            else:
                ids[chosen], version[chosen] = self._deleted(ordinal[chosen])
        return Changes(kind, ids, version)

    def _updated(self, ordinal: Ints) -> tuple[Ints, Ints]:
        turn, place = np.divmod(ordinal, self.updatable)
        return (place * self.stride + turn) % self.updatable + 1, turn + 1

    def _deleted(self, ordinal: Ints) -> tuple[Ints, Ints]:
        if self.mix[DELETED] <= self.mix[INSERTED]:
            return self.updatable + 1 + ordinal, np.zeros_like(ordinal)
        turn, place = np.divmod(ordinal, self.rows - self.updatable)
        return self.updatable + 1 + place, turn

    @cached_property
    def stride(self) -> int:
        """Coprime to the number of updatable ids, so that steps of this size visit each id once per pass."""
        stride = max(1, int(self.updatable * 0.618))
        while gcd(stride, self.updatable) != 1:
            stride += 1
        return stride


@dataclass(frozen=True)
class Texts:
    """The values of rows: k and pad depend on (seed, table, id), c on the version too."""

    rows: int
    seed: int
    shards: int = 1

    def images(self, table: Ints, changes: Changes, added: Ints | None = None) -> tuple[pa.ListArray, pa.ListArray]:
        """The `after` and `before` columns: null where a delete has no after and an insert no before.

        `added` is the number of added columns of each row; None if no row has any.
        """
        key = scramble(scramble(table.view(np.uint64) + np.uint64(self.seed)) + changes.id.view(np.uint64))
        fixed = self._fixed(primary_keys(table, changes.id, self.shards), key)
        return (
            self._lists(fixed, key, changes.version, changes.kind != DELETED, added),
            self._lists(fixed, key, changes.version - (changes.kind == UPDATED), changes.kind != INSERTED, added),
        )

    def _fixed(self, ids: Ints, key: Hashes) -> tuple[pa.Array, pa.Array, pa.Array]:
        k = (key >> np.uint64(32)) % np.uint64(self.rows) + np.uint64(1)
        return decimal(ids), decimal(k), _pieces(self.seed, "pad").take(_piece_numbers(key, 0))

    def _lists(
        self,
        fixed: tuple[pa.Array, ...],
        key: Hashes,
        version: Ints,
        present: npt.NDArray[np.bool_],
        added: Ints | None,
    ) -> pa.Array:
        whole = bool(present.all())
        if not whole:
            if not present.any():
                return pa.nulls(len(present), pa.list_(pa.binary()))
            chosen = pa.array(np.flatnonzero(present))
            fixed, key, version = tuple(column.take(chosen) for column in fixed), key[present], version[present]
        key = scramble(key + version.view(np.uint64))
        values = self._values(fixed, key)
        offsets = np.zeros(len(present) + 1, np.int32)
        np.cumsum(present, out=offsets[1:])
        offsets *= 4
        if added is not None:
            values = _with_added(values, key, added[present])
            offsets[1:] += np.cumsum(added * present).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), values, mask=None if whole else pa.array(~present))

    def _values(self, fixed: tuple[pa.Array, ...], key: Hashes) -> pa.Array:
        """Four values per row in one array. The bytes are the joined rows; only the offsets of values are computed."""
        ids, k, pad = fixed
        head = _pieces(self.seed, "head").take(_piece_numbers(key, 0))
        tail = _pieces(self.seed, "pad").take(_piece_numbers(key, 32))
        joined = pc.binary_join_element_wise(ids, k, head, tail, pad, _NOTHING)
        ends = np.empty((len(ids), 4), np.int32)
        ends[:, 3] = _offsets(joined)[1:]
        ends[:, 2] = ends[:, 3] - _PAD_LENGTH
        ends[:, 1] = ends[:, 2] - _C_LENGTH
        ends[:, 0] = ends[:, 1] - np.diff(_offsets(k))
        offsets = np.concatenate([np.zeros(1, np.int32), ends.ravel()])
        return pa.Array.from_buffers(pa.binary(), 4 * len(ids), [None, pa.py_buffer(offsets), joined.buffers()[2]])


def _with_added(values: pa.Array, key: Hashes, added: Ints) -> pa.Array:
    """The values, four per row, followed by `added` more for each row: numbers that depend on the row's key."""
    rows, before = len(added), np.cumsum(added) - added
    row = np.repeat(np.arange(rows), added)
    place = np.arange(len(row)) - before[row]
    more = decimal(scramble(key[row] + (place.view(np.uint64) + np.uint64(1)) * COLUMN) % ADDED_BELOW)
    old, new = _offsets(values), _offsets(more)
    of_row = [
        pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(np.ascontiguousarray(ends)), part.buffers()[2]])
        for part, ends in ((values, old[::4]), (more, new[np.append(before, len(row))]))
    ]
    joined = pc.binary_join_element_wise(*of_row, _NOTHING)
    lengths = np.empty(len(values) + len(more), np.int32)
    lengths[np.arange(len(values)) + np.repeat(before, 4)] = np.diff(old)
    lengths[np.arange(len(row)) + 4 * (row + 1)] = np.diff(new)
    offsets = np.concatenate([np.zeros(1, np.int32), np.cumsum(lengths, dtype=np.int32)])
    return pa.Array.from_buffers(pa.binary(), len(lengths), [None, pa.py_buffer(offsets), joined.buffers()[2]])


def change_rows(
    changes: Changes,
    position: Ints,
    times: tuple[Ints, Ints],
    images: tuple[pa.ListArray, pa.ListArray],
    state: dict[str, pa.Array],
) -> pa.RecordBatch:
    """Events of these changes: start and commit time, after and before, and the state of their table."""
    rows = len(position)
    columns = {
        "kind": _KINDS.take(pa.array(changes.kind)),
        "schema_name": pa.repeat(pa.scalar(SCHEMA_NAME), rows),
        "schema_id": pa.repeat(pa.scalar(SCHEMA_ID, pa.int64()), rows),
        "start_ts": pa.array(times[0]),
        "commit_ts": pa.array(times[1]),
        "seq": pa.array(position + 1),
        "after": images[0],
        "before": images[1],
        "ddl": pa.nulls(rows, pa.string()),
    } | state
    return pa.RecordBatch.from_arrays([columns[name] for name in EVENTS.names], schema=EVENTS)


def first_state(tables: Ints, run: Ints, version: int, layout: Ints, shards: int = 1) -> dict[str, pa.Array]:
    """The event columns of tables that no DDL changes. `run` is the index of each row's table in `tables`."""
    table_id = pa.array(tables[run] + FIRST_TABLE_ID)
    return {
        "table_name": table_names(name_numbers(tables, shards)).take(pa.array(run)),
        "table_id": table_id,
        "logical_table_id": table_id,
        "table_version": pa.repeat(pa.scalar(version, pa.int64()), len(run)),
        "layout": pa.array(layout[run]),
    }


def primary_keys(table: Ints, ids: Ints, shards: int) -> Ints:
    """The primary keys of rows with these ids. Shards of one table take turns, so that no two have the same."""
    return ids if shards == 1 else np.where(table < shards, (ids - 1) * shards + table + 1, ids)


def name_numbers(table: Ints, shards: int) -> Ints:
    """The numbers in the names of these tables. The first `shards` tables have one name, that of the first."""
    return np.where(table < shards, 0, table) + 1


def table_names(number: Ints) -> pa.Array:
    """`sbtest1` for table number 1."""
    return pc.binary_join_element_wise("sbtest", pa.array(number).cast(pa.string()), "")


def scramble(key: Hashes) -> Hashes:
    """The finaliser of splitmix64: every bit of the key affects every bit of the result."""
    mixed: Hashes = key * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _piece_numbers(key: Hashes, shift: int) -> pa.Array:
    return pa.array(((key >> np.uint64(shift)) & np.uint64(_PIECES - 1)).astype(np.int32))


@lru_cache(maxsize=4)
def _pieces(seed: int, part: str) -> pa.Array:
    """All pieces of text. A `head` ends with the '-' that joins it to its tail."""
    digits = np.random.Generator(np.random.PCG64(seed)).integers(48, 58, (_PIECES, _PIECE + 1), np.uint8)
    digits[:, 11::12] = ord("-")
    width = _PIECE + (part == "head")
    offsets = np.arange(0, _PIECES * width + 1, width, dtype=np.int32)
    text = np.ascontiguousarray(digits[:, :width])
    return pa.Array.from_buffers(pa.binary(), _PIECES, [None, pa.py_buffer(offsets), pa.py_buffer(text)])


def decimal(numbers: Ints | Hashes) -> pa.Array:
    return pa.array(numbers).cast(pa.string()).cast(pa.binary())


def _offsets(texts: pa.Array) -> npt.NDArray[np.int32]:
    return np.frombuffer(texts.buffers()[1], np.int32)[: len(texts) + 1]
