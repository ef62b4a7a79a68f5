"""Reads a sink by its index files: which tables exist, which data files, in which order.

A reader sees the data files of a directory from 1 to the number that its index names, and no others. `survey` returns
what a reader sees and, as faults, everything that should not be there or is missing: a gap, a stale or missing index,
a data file beyond the index, a file that is not part of the layout, a temporary file. Data files beyond the index that
a start will adopt are no faults: the caller hands in what is planned, and such files count as if the index named them.
`TableFiles` goes through the files of one table by version, date and number. It reads in pieces, so that no table is in
memory as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, takewhile
from typing import NamedTuple

from tidegate.errors import StoreRefused, VerifyError
from tidegate.format.layout import (
    HALF_WRITTEN,
    METADATA,
    RESERVED_PREFIX,
    DataKey,
    PathOptions,
    data_path,
    index_path,
    index_text,
    is_schema_path,
    parse_data_path,
    parse_index_path,
    parse_index_text,
    parse_schema_path,
)
from tidegate.storage.store import Store


class TableKey(NamedTuple):
    """One ordered stream of changes, as paths identify it. If table ids replace names, `schema` is the id as text.

    A split table has one stream for each of its dispatchers.
    """

    schema: str
    table: str
    partition: int = 0
    dispatcher: str = ""

    def __str__(self) -> str:
        """`shop.orders`, or `shop.orders partition 55`, or `shop.orders dispatcher 104857612345`."""
        name = f"{self.schema}.{self.table}" if self.table else self.schema
        name = f"{name} partition {self.partition}" if self.partition else name
        return f"{name} dispatcher {self.dispatcher}" if self.dispatcher else name


class VersionKey(NamedTuple):
    """What a schema file describes; a database has table ""."""

    schema: str
    table: str
    version: int


@dataclass(frozen=True)
class Lane:
    """The data files of one directory that a reader sees: file n has `sizes[n - 1]` bytes."""

    key: DataKey
    sizes: tuple[int, ...]


class Fault(NamedTuple):
    """An object that should not exist, or should be different, and a sentence that says why."""

    path: str
    text: str


# The paths of data files that a start adopts if they exist with one of these sizes.
Planned = Mapping[str, Collection[int]]
_NOTHING_PLANNED: Planned = {}


@dataclass(frozen=True)
class Surveyed:
    """Everything that exists on a sink. The lanes of a table are in order; faults are sorted by path.

    `unfinished` are the data files beyond an index that a start adopts; they are also part of `tables`.
    """

    tables: dict[TableKey, list[Lane]]
    schema_files: dict[VersionKey, list[str]]
    faults: list[Fault]
    unfinished: list[str] = field(default_factory=list)

    @property
    def files(self) -> int:
        return sum(len(lane.sizes) for lanes in self.tables.values() for lane in lanes)

    @property
    def bytes(self) -> int:
        return sum(sum(lane.sizes) for lanes in self.tables.values() for lane in lanes)


def table_key(key: DataKey) -> TableKey:
    return TableKey(key.schema, key.table, key.table_id if key.is_partition else 0, key.dispatcher)


@dataclass
class _Found:
    """What listing all objects has found, by directory."""

    data: dict[DataKey, dict[int, int]] = field(default_factory=dict)
    indexes: set[DataKey] = field(default_factory=set)
    schema_files: dict[VersionKey, list[str]] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)


def survey(store: Store, options: PathOptions, planned: Planned = _NOTHING_PLANNED, folder: str = "") -> Surveyed:
    """Lists the sink, or one folder of it, once and reads every index file."""
    found = _Found()
    for path, size in store.list(folder):
        # Readers ignore these. What a killed process left is removed by the next start, or by the next index.
        if not path.startswith(f"{RESERVED_PREFIX}/") and not path.endswith(HALF_WRITTEN):
            _sort_in(path, size, options, found)
    tables: dict[TableKey, list[Lane]] = {}
    for key in sorted(found.data, key=lambda key: (key.version, key.date)):
        named, faults = _indexed(key, max(found.data[key]), store, options) if key in found.indexes else (0, [])
        if not faults:
            adopted = _adopted(key, found.data[key], named, options, planned) if planned else []
            found.unfinished.extend(adopted)
            named += len(adopted)
        found.faults.extend(faults or _file_faults(key, found.data[key], named, options))
        if lane := _lane(key, found.data[key], named):
            tables.setdefault(table_key(key), []).append(lane)
    for key in found.indexes - found.data.keys():
        path = index_path(key, options)
        found.faults.append(Fault(path, f"{table_key(key)}: {path} has no data file in its directory"))
    return Surveyed(tables, found.schema_files, sorted(found.faults), sorted(found.unfinished))


def _sort_in(path: str, size: int, options: PathOptions, found: _Found) -> None:
    if data := parse_data_path(path, options):
        key, number = data
        if number and bool(key.dispatcher) == options.across_nodes:
            found.data.setdefault(key, {})[number] = size
            return
    elif index := parse_index_path(path, options):
        if bool(index.dispatcher) == options.across_nodes:
            found.indexes.add(index)
            return
    elif path == METADATA:
        return
    elif is_schema_path(path) and (schema := parse_schema_path(path, options)):
        found.schema_files.setdefault(VersionKey(*schema[:3]), []).append(path)
        return
    found.faults.append(Fault(path, f"{path} is a stray file: no part of the layout has such a path"))


def _indexed(key: DataKey, last: int, store: Store, options: PathOptions) -> tuple[int, list[Fault]]:
    """The number of the data file that the index names, and the fault if its text is wrong."""
    path = index_path(key, options)
    text = store.get(path) or b""
    try:
        _, number = parse_index_text(text.decode(errors="replace"), options.extension)
    except StoreRefused:
        number = 0
    if number and text == index_text(key, number, options).encode():
        return number, []
    return 0, [Fault(path, f"{table_key(key)}: {path} says {text[:80]!r}, which does not name data file {last}")]


def _adopted(key: DataKey, sizes: dict[int, int], named: int, options: PathOptions, planned: Planned) -> list[str]:
    """The data files right behind the one that the index names, as long as they are planned with their size."""
    numbers = takewhile(
        lambda number: sizes.get(number) in planned.get(data_path(key, number, options), ()), count(named + 1)
    )
    return [data_path(key, number, options) for number in numbers]


def _file_faults(key: DataKey, sizes: dict[int, int], named: int, options: PathOptions) -> Iterator[Fault]:
    """`named` is the last data file according to the index, 0 if there is no index."""
    table = table_key(key)
    missing = next((number for number in range(1, max(*sizes, named) + 1) if number not in sizes), None)
    if missing is not None:
        path = data_path(key, missing, options)
        yield Fault(path, f"{table}: {path} is missing; its directory should have files up to {max(*sizes, named)}")
    for number, size in sizes.items():
        path = data_path(key, number, options)
        if not named:
            yield Fault(path, f"{table}: {path} has no index; {index_path(key, options)} should be there")
        elif number > named:
            yield Fault(path, f"{table}: {path} is beyond the index, which ends at data file {named}")
        elif not size:
            yield Fault(path, f"{table}: {path} is empty; a data file holds at least one row")


def _lane(key: DataKey, sizes: dict[int, int], named: int) -> Lane | None:
    """The files up to the one that the index names, or up to a gap before it."""
    numbers = takewhile(sizes.__contains__, range(1, named + 1))
    visible = tuple(sizes[number] for number in numbers)
    return Lane(key, visible) if visible else None


def read_piece(store: Store, path: str, offset: int, length: int) -> bytes:
    """Exactly `length` bytes of a file that does not change meanwhile."""
    piece = store.get_range(path, offset, length)
    if piece is None:
        raise VerifyError(f"{path} disappeared while it was read; verify a sink that no process writes to")
    if len(piece) != length:
        raise VerifyError(f"{path} changed while it was read; verify a sink that no process writes to")
    return piece


def _as_it_is(piece: bytes) -> bytes:
    return piece


class TableFiles:
    """A position in the data files of one table. It moves from file to file by itself and stops after the last.

    `clean` is applied to every piece that is read; it must keep the length.
    """

    __slots__ = ("_clean", "_lane", "_lanes", "_options", "_store", "number", "offset")

    def __init__(
        self, lanes: Sequence[Lane], store: Store, options: PathOptions, clean: Callable[[bytes], bytes] = _as_it_is
    ) -> None:
        self._lanes, self._store, self._options, self._clean = lanes, store, options, clean
        self._lane, self.number, self.offset = 0, 1, 0

    @property
    def ended(self) -> bool:
        return self._lane == len(self._lanes)

    @property
    def version(self) -> int:
        return self._lanes[self._lane].key.version

    @property
    def path(self) -> str:
        return data_path(self._lanes[self._lane].key, self.number, self._options)

    @property
    def left(self) -> int:
        """Bytes from here to the end of the file."""
        return self._lanes[self._lane].sizes[self.number - 1] - self.offset

    def look(self, length: int) -> bytes:
        """The next `length` bytes of this file, without moving."""
        return self._clean(read_piece(self._store, self.path, self.offset, length))

    def clean_also(self, clean: Callable[[bytes], bytes]) -> None:
        """Change what is looked at by one more function, which keeps lengths."""
        before = self._clean
        self._clean = lambda piece: clean(before(piece))

    def move(self, length: int) -> None:
        """Move forward in this file; at its end, continue at the start of the next file."""
        self.offset += length
        if not self.left:
            self.offset, self.number = 0, self.number + 1
            if self.number > len(self._lanes[self._lane].sizes):
                self._lane, self.number = self._lane + 1, 1

    def ahead(self, most: int, header_bytes: int) -> bytes:
        """Up to `most` bytes of rows from here on, also from the next files, without moving."""
        place, pieces = self._copy(), []
        while most > 0 and not place.ended:
            if not place.offset and 0 < header_bytes < place.left:
                place.move(header_bytes)
            length = min(most, place.left)
            pieces.append(place.look(length))
            place.move(length)
            most -= length
        return b"".join(pieces)

    def pieces(self, most: int) -> Iterator[tuple[int, str, int, bytes]]:
        """The next `most` bytes, file by file: version and path of the file, offset, and the bytes there."""
        place = self._copy()
        while most > 0 and not place.ended:
            length = min(most, place.left)
            yield place.version, place.path, place.offset, place.look(length)
            place.move(length)
            most -= length

    def behind(self, most: int) -> Iterator[tuple[str, int, bytes]]:
        """The last `most` bytes before here, the nearest file first: path of the file, offset, and the bytes there."""
        place, length = self._copy(), self.offset
        while most > 0:
            if length:
                place.offset = max(0, length - most)
                yield place.path, place.offset, place.look(length - place.offset)
                most -= length
            if not place._back():
                return
            place.offset = 0
            length = place.left

    def _copy(self) -> TableFiles:
        copy = TableFiles(self._lanes, self._store, self._options, self._clean)
        copy._lane, copy.number, copy.offset = self._lane, self.number, self.offset
        return copy

    def _back(self) -> bool:
        if self.number > 1:
            self.number -= 1
        elif self._lane:
            self._lane -= 1
            self.number = len(self._lanes[self._lane].sizes)
        else:
            return False
        return True
