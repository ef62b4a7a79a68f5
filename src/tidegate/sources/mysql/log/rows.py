"""Row events become the `before` and `after` of change events, without a Python step for each row.

All row events whose tables have the same shape are decoded together, whatever tables they are: a thousand tables of one
shape cost as much as one. `decode_rows` does this for a buffer of whole events that also holds their TABLE_MAPs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.errors import BadLog
from tidegate.events import DELETE, INSERT, UPDATE
from tidegate.format.bad_values import BadValue
from tidegate.format.pieces import Pool
from tidegate.sources.mysql.log.digits import MOST_BYTES
from tidegate.sources.mysql.log.framing import (
    DELETE_1,
    DELETE_2,
    HEADER_BYTES,
    ROWS,
    TABLE_MAP,
    UPDATE_1,
    UPDATE_2,
    Events,
)
from tidegate.sources.mysql.log.images import (
    Bytes,
    Flags,
    Images,
    Numbers,
    PartialImage,
    Values,
    find_images,
    find_values,
    unsigned,
)
from tidegate.sources.mysql.log.table_map import Shape, TableMap, read_table_map
from tidegate.sources.mysql.log.texts import column_texts, is_in_place, texts_in_place

KINDS = (INSERT, UPDATE, DELETE)
_INSERT, _UPDATE, _DELETE = range(3)
_KIND_OF = np.zeros(256, np.int8)
_KIND_OF[[UPDATE_1, UPDATE_2]], _KIND_OF[[DELETE_1, DELETE_2]] = _UPDATE, _DELETE
_ROWS = tuple(ROWS)


@dataclass(frozen=True)
class Rows:
    """Row changes in the order of the log, of tables of one shape.

    `event` is the number of the row's event among those that were given, `table` the number of its table in `tables`,
    `kind` its number in `KINDS`. `before` and `after` are lists of texts, null where the kind has none.
    """

    event: Numbers
    table: Numbers
    kind: npt.NDArray[np.int8]
    before: pa.ListArray
    after: pa.ListArray
    tables: tuple[TableMap, ...]


class TableMaps:
    """The tables of a log file, each TABLE_MAP parsed once. Forget them when a new file begins."""

    def __init__(self) -> None:
        self._parsed: dict[bytes, TableMap] = {}
        self._by_id: dict[int, TableMap] = {}

    def learn(self, body: bytes) -> TableMap:
        found = self._parsed.get(body)
        if found is None:
            found = self._parsed[body] = read_table_map(body)
        self._by_id[found.table_id] = found
        return found

    def table(self, table_id: int) -> TableMap:
        if table_id not in self._by_id:
            raise BadLog("row changes come without the TABLE_MAP of their table; read from the start of a transaction")
        return self._by_id[table_id]


def all_columns(table: TableMap) -> tuple[int, ...]:
    return tuple(range(len(table.columns)))


def decode_rows(
    log: bytes | memoryview,
    events: Events,
    maps: TableMaps,
    columns: Callable[[TableMap], tuple[int, ...] | None] = all_columns,
) -> Iterator[Rows]:
    """All rows of these events, by shape of their tables. The TABLE_MAPs among the events are learned on the way.

    `columns` says which columns of a table have a place in the lists, because rows also hold virtual ones; None means
    that the table is not followed: its rows are not looked at, so nothing in them is refused.
    """
    if len(log) > MOST_BYTES:
        raise BadLog("more than 2 GiB of the log cannot be decoded together")
    held = np.frombuffer(log, np.uint8)
    numbers, of_event, tables = _tables_of(log, held, events, maps)
    groups: dict[tuple[Shape, tuple[int, ...]], list[int]] = {}
    for i, table in enumerate(tables):
        if (places := columns(table)) is not None:
            groups.setdefault((table.shape, places), []).append(i)
    for (shape, wanted), members in groups.items():
        chosen = slice(None) if len(members) == len(tables) else np.flatnonzero(np.isin(of_event, members))
        group = _Group(held, events.chosen(numbers[chosen]), of_event[chosen], tables, shape)
        yield group.decode(numbers[chosen], wanted)


def _tables_of(
    log: bytes | memoryview, held: Bytes, events: Events, maps: TableMaps
) -> tuple[Numbers, Numbers, tuple[TableMap, ...]]:
    """The numbers of the row events, for each the number of its table, and the tables."""
    _learn(log, events.chosen(events.kind == TABLE_MAP), maps)
    numbers = np.flatnonzero(np.isin(events.kind, _ROWS))
    if not len(numbers):
        return numbers, numbers, ()
    ids, of_event = np.unique(unsigned(held, events.start[numbers] + HEADER_BYTES, 6), return_inverse=True)
    return numbers, of_event, tuple(maps.table(table_id) for table_id in ids.tolist())


def _learn(log: bytes | memoryview, described: Events, maps: TableMaps) -> None:
    """A server gives a table a new id when its definition changes, so an id has one meaning in a log file."""
    seen: dict[int, TableMap] = {}
    for start, end in zip((described.start + HEADER_BYTES).tolist(), described.end.tolist(), strict=True):
        table = maps.learn(bytes(log[start:end]))
        if seen.setdefault(table.table_id, table) is not table:
            raise BadLog(f"two tables have the id of {table.name}; log files must be decoded one by one")


@dataclass(frozen=True)
class _Group:
    """Row events whose tables have one shape, and the table of each."""

    log: Bytes
    events: Events
    of_event: Numbers
    tables: tuple[TableMap, ...]
    shape: Shape

    def decode(self, numbers: Numbers, wanted: tuple[int, ...]) -> Rows:
        for table in np.unique(self.of_event).tolist():
            self.tables[table].refuse_unread()
        images, values = self._found()
        kinds = _KIND_OF[self.events.kind][images.event]
        first = _first_images(images, kinds)
        kind = kinds[first]
        pool = self._pool(images, values, wanted)
        before = pool.lists(np.where(kind > 0, first, -1))
        after = pool.lists(np.where(kind < _DELETE, first + (kind == _UPDATE), -1))
        event = images.event[first]
        return Rows(numbers[event], self.of_event[event], kind, before, after, self.tables)

    def _found(self) -> tuple[Images, list[Values]]:
        try:
            images = find_images(self.log, self.events, self.shape)
            return images, find_values(self.log, images.start, self.shape)
        except PartialImage as exc:
            raise BadLog(f"{self._table(exc.event).name}: {exc}") from exc
        except IndexError as exc:
            raise BadLog(f"{self._table(0).name}: a row runs beyond the log: the log is broken") from exc

    def _table(self, event: int) -> TableMap:
        return self.tables[int(self.of_event[event])]

    def _pool(self, images: Images, values: list[Values], wanted: tuple[int, ...]) -> ValuePool:
        pool = ValuePool()
        in_place = [i for i in wanted if is_in_place(self.shape[i])]
        if in_place and len(images.start):
            first = pool.add(texts_in_place(self.log, [values[i] for i in in_place]))
        for i in wanted:
            if i in in_place:
                pool.place(first + 2 * in_place.index(i), 2 * len(in_place), values[i].null)
                continue
            try:
                pieces, step = column_texts(self.log, self.shape[i], values[i])
            except BadValue as exc:
                table = self._table(int(images.event[exc.position]))
                raise BadLog(f"{table.name}, column {table.columns[i].name!r}: {exc}") from exc
            pool.place(pool.add(pieces), step, values[i].null)
        return pool


def _first_images(images: Images, kinds: npt.NDArray[np.int8]) -> Numbers:
    """The first image of each row: every image, but of an update every second one of its event."""
    if not (kinds == _UPDATE).any():
        return np.arange(len(kinds))
    begin = np.flatnonzero(np.diff(images.event, prepend=-1))
    within = np.arange(len(kinds)) - np.repeat(begin, np.diff(np.append(begin, len(kinds))))
    halves = np.bincount(images.event, kinds == _UPDATE)
    if (halves % 2).any():
        raise BadLog("an update has a row before without a row after: the log is broken")
    return np.flatnonzero((kinds != _UPDATE) | (within % 2 == 0))


class ValuePool:
    """The texts of all columns of some images; lists of them are made by one Arrow `take`."""

    def __init__(self) -> None:
        self._pool = Pool()
        self._columns: list[tuple[int, int, Flags | None]] = []

    def add(self, pieces: pa.Array) -> int:
        return self._pool.add(pieces)

    def place(self, first: int, step: int, null: Flags | None) -> None:
        """The next column: its text in image i is piece `first + step * i`."""
        self._columns.append((first, step, null))

    def lists(self, image: Numbers) -> pa.ListArray:
        """One list for each of these images; null for -1."""
        absent = image < 0
        chosen = image[~absent] if absent.any() else image
        width = len(self._columns)
        counts = np.where(absent, 0, width)
        ends = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
        values = self._values(chosen) if len(chosen) and width else pa.array([], pa.binary())
        return pa.ListArray.from_arrays(ends, values, mask=pa.array(absent) if absent.any() else None)

    def _values(self, image: Numbers) -> pa.Array:
        pieces = np.empty((len(image), len(self._columns)), np.int64)
        null = np.zeros(pieces.shape, np.bool_) if any(one[2] is not None for one in self._columns) else None
        for i, (first, step, is_null) in enumerate(self._columns):
            pieces[:, i] = first + step * image
            if null is not None and is_null is not None:
                null[:, i] = is_null[image]
        mask = null.reshape(-1) if null is not None else None
        try:
            return self._texts.take(pa.array(pieces.reshape(-1), mask=mask))
        except pa.ArrowInvalid as exc:
            raise BadLog(f"the values of one part of the log exceed 2 GiB as text: {exc}") from exc

    @cached_property
    def _texts(self) -> pa.Array:
        return self._pool.array()
