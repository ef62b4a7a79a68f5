"""What a reader that follows the index has seen, line by line, against what the source says it should see.

Where `verify` stops at the first difference, this counts: lines that are `lost`, `doubled`, `reordered` or `altered`,
directories whose data is visible without a schema file, and indexes that promise what is not there. It can be asked at
any moment of a changefeed's life, also between a crash and the restart, because a line that is still to come is only
lost if the checkpoint covers it or if a later one of its table is visible.

Lines are told apart by their text, so they must carry their commit-ts (`csv.include-commit-ts`). The lines to be are
encoded by the code that `verify` uses; the files are those that `reader.replay.survey` says are visible. A data file
is read again only when its size or its time has changed.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.config.settings import Settings
from tidegate.errors import TidegateError
from tidegate.events import DDL, LAYOUT, RESOLVED, ROW_KINDS
from tidegate.format.ddl.events import DdlEvent
from tidegate.format.layout import METADATA, RESERVED_PREFIX, data_path, metadata_text, parse_metadata
from tidegate.format.rules.changes import TableRules
from tidegate.format.tables import Layout
from tidegate.reader.replay import Lane, Surveyed, TableFiles, TableKey, VersionKey, survey
from tidegate.storage.store import Store
from tidegate.tools.verify import open_for_replay
from tidegate.tools.verify.runs import Head, Run, Runs, Table

_STEP_BYTES = 4 << 20  # replayed at a time
_PATIENCE_BYTES = 64 << 20  # a line that does not come within so much of the source is none of it

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Tally:
    """What is wrong with what a reader sees; all zero is right."""

    lost: int = 0
    doubled: int = 0
    reordered: int = 0
    altered: int = 0
    schema_after_data: int = 0
    broken_indexes: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(*map(operator.add, self._counts(), other._counts()))

    def worst(self, other: Tally) -> Tally:
        return Tally(*map(max, self._counts(), other._counts()))

    def __bool__(self) -> bool:
        return any(self._counts())

    def __str__(self) -> str:
        """`2 lost, 1 doubled`, or `right`."""
        told = ((getattr(self, each.name), each.name.replace("_", " ")) for each in fields(self))
        return ", ".join(f"{number} {what}" for number, what in told if number) or "right"

    def _counts(self) -> list[int]:
        return [getattr(self, each.name) for each in fields(self)]


@dataclass
class Expected:
    """The lines of one table name in the order in which a reader meets them; line i belongs to table id `stream[i]`.

    Two ids of one name in the same version are shards: each has its order, and there is none between them.
    """

    place: dict[int, int] = field(
        default_factory=dict
    )  # by the hash of the line, because the text of a million lines would not fit in memory
    stream: list[int] = field(default_factory=list)
    version: list[int] = field(default_factory=list)
    ts: list[int] = field(default_factory=list)

    def add(self, line: bytes, stream: int, version: int, ts: int) -> None:
        if hash(line) in self.place:
            raise TidegateError(f"the source has the line {line[:80]!r} twice, so a double could not be told from it")
        self.place[hash(line)] = len(self.ts)
        self.stream.append(stream)
        self.version.append(version)
        self.ts.append(ts)

    def places(self, lines: Iterable[bytes]) -> list[int]:
        """The place of each line; -1 for a line that the table does not have."""
        return [self.place.get(hash(line), -1) for line in lines]


Places = Sequence[
    Sequence[int]
]  # of one name: the places of the lines in each of its directories, in the order of files


def tally(expected: Mapping[str, Expected], seen: Mapping[str, Places], checkpoint_ts: int) -> Tally:
    """What is wrong with the places that a reader met, by table name, while the checkpoint was so much.

    A line is lost if it is not there although the checkpoint covers it, a later line of its table id is there, under
    whatever name, or one of a later version of its name. It is doubled as often as it is there too often, and reordered
    if it comes after one that it should come before.
    """
    last_ts = _last_seen(expected, seen)
    found = Tally(altered=sum(map(len, (places for name in seen.keys() - expected.keys() for places in seen[name]))))
    for name, lines in expected.items():
        met = [np.array(places, np.int64) for places in seen.get(name, ())]
        known = _known(met)
        times = np.bincount(known, minlength=len(lines.ts))
        found += Tally(
            lost=int((_must(lines, known, last_ts, checkpoint_ts) & (times == 0)).sum()),
            doubled=int(np.maximum(times - 1, 0).sum()),
            reordered=sum(_reordered(lines, places[places >= 0]) for places in met),
            altered=sum(int((places < 0).sum()) for places in met),
        )
    return found


def _known(met: list[Ints]) -> Ints:
    known: Ints = np.concatenate([np.zeros(0, np.int64), *met])
    return known[known >= 0]


def _must(lines: Expected, known: Ints, last_ts: Mapping[int, int], checkpoint_ts: int) -> npt.NDArray[np.bool_]:
    """The lines that must be there, when these are."""
    ts, stream, version = (np.array(column, np.int64) for column in (lines.ts, lines.stream, lines.version))
    must: npt.NDArray[np.bool_] = (ts <= checkpoint_ts) | (version < version[known].max(initial=0))
    for one in np.unique(stream).tolist():
        of_one = np.flatnonzero(stream == one)
        last = known[stream[known] == one].max(initial=-1)
        must[of_one] |= (ts[of_one] < last_ts.get(one, 0)) | (of_one < last)
    return must


def _reordered(lines: Expected, met: Ints) -> int:
    """Lines of one directory that come after a later one of their id, or after one of a later version."""
    _, first = np.unique(met, return_index=True)
    once = met[np.sort(first)]
    if not len(once):
        return 0
    stream, version = np.array(lines.stream, np.int64)[once], np.array(lines.version, np.int64)[once]
    late = version < np.maximum.accumulate(version)
    for one in np.unique(stream).tolist():
        of_one = np.flatnonzero(stream == one)
        late[of_one] |= once[of_one] < np.maximum.accumulate(once[of_one])
    return int(late.sum())


def _last_seen(expected: Mapping[str, Expected], seen: Mapping[str, Places]) -> dict[int, int]:
    """The commit-ts of the last visible line of every table id."""
    last: dict[int, int] = {}
    for name in seen.keys() & expected.keys():
        met = _known([np.array(places, np.int64) for places in seen[name]])
        streams, ts = np.array(expected[name].stream, np.int64)[met], np.array(expected[name].ts, np.int64)[met]
        for stream in np.unique(streams).tolist():
            last[stream] = max(last.get(stream, 0), int(ts[streams == stream].max()))
    return last


class Replay:
    """The lines that a source should bring, by table name, as far as anybody has asked."""

    def __init__(self, source_uri: str, settings: Settings, store: Store) -> None:
        self.lines: dict[str, Expected] = {}
        self.resolved_ts = 0
        self._source = open_for_replay(source_uri)
        self._offset = self._source.initial()
        self._layouts, self._numbers = dict[int, Layout](), dict[TableKey, int]()
        self._tables = dict[tuple[TableKey, int, int], Table]()
        self._no_files = TableFiles((), store, settings.paths)
        self._rules = TableRules(settings.rules)
        self._runs = Runs(settings, self._rules, self._layouts, self._meet)

    def extend(self) -> bool:
        """Replay a bit more; False at the source's end."""
        end = self._source.latest(self._offset, _STEP_BYTES, frozenset())
        if end == self._offset:  # a rate counts from the first question on
            end = self._source.latest(self._offset, _STEP_BYTES, frozenset())
        for split in self._source.splits(self._offset, end, 1):
            for batch in self._source.read(split):
                self._take(self._of_batch(batch))
        self._take(self._runs.rest())
        moved, self._offset = end != self._offset, end
        return moved

    def _of_batch(self, batch: pa.RecordBatch) -> Iterator[Run]:
        marks = batch.filter(pc.invert(pc.is_in(batch.column("kind"), value_set=pa.array(ROW_KINDS)))).to_pylist()
        for mark in marks:
            if mark["kind"] == LAYOUT:
                self._layouts.setdefault(mark["layout"], Layout.from_json(mark["ddl"] or ""))
        ddls = [(mark["commit_ts"], DdlEvent.from_json(mark["ddl"])) for mark in marks if mark["kind"] == DDL]
        rows = batch.filter(pc.is_in(batch.column("kind"), value_set=pa.array(ROW_KINDS)))
        yield from self._runs.of(rows, sorted(ddls, key=lambda ddl: ddl[0]))
        self.resolved_ts = max([self.resolved_ts, *(mark["commit_ts"] for mark in marks if mark["kind"] == RESOLVED)])

    def _meet(self, rows: Head) -> Table:
        """One for every id and version that a name has had; the number is the name's, so that runs come by version."""
        key = TableKey(*self._rules.target(rows.schema, rows.table))
        number = self._numbers.setdefault(key, len(self._numbers))
        made = Table(key, str(key), self._no_files, number, met=(rows.table_id, rows.version), directory=rows.version)
        return self._tables.setdefault((key, rows.table_id, rows.version), made)

    def _take(self, runs: Iterable[Run]) -> None:
        for run in runs:
            lines, data, ends = self.lines.setdefault(run.table.name, Expected()), bytes(run.data), run.ends.tolist()
            assert run.table.met is not None
            for low, high, ts in zip(ends[:-1], ends[1:], run.ts.tolist(), strict=True):
                lines.add(data[low:high], *run.table.met, ts)


class Sightings:
    """Looks at a sink as a reader does, as often as it is asked, and counts what is wrong."""

    def __init__(self, source_uri: str, settings: Settings, store: Store) -> None:
        self._replay, self._settings, self._store = Replay(source_uri, settings, store), settings, store
        self._files: dict[str, tuple[int, float | None, list[int]]] = {}
        self.visible_rows, self.sizes = 0, list[int]()  # rows, and the bytes of each file, at the last look

    def look(self) -> Tally:
        text = self._store.get(METADATA)
        checkpoint_ts = parse_metadata((text or metadata_text(0).encode()).decode())
        standing = survey(self._store, self._settings.paths)
        while self._replay.resolved_ts < checkpoint_ts and self._replay.extend():
            pass
        seen: dict[str, list[list[int]]] = {}
        for key in standing.tables:
            name = str(TableKey(key.schema, key.table))  # ids of one name may have directories of their own
            seen.setdefault(name, []).append(self._places(name, standing.tables[key]))
        self.visible_rows = sum(len(places) for lists in seen.values() for places in lists)
        self.sizes = [size for lanes in standing.tables.values() for lane in lanes for size in lane.sizes]
        return tally(self._replay.lines, seen, checkpoint_ts) + self._surroundings(standing)

    def _places(self, name: str, lanes: Sequence[Lane]) -> list[int]:
        """The places of all lines of a table, in the order of its files."""
        places: list[int] = []
        for lane in lanes:
            for number, size in enumerate(lane.sizes, start=1):
                places += self._of_file(name, data_path(lane.key, number, self._settings.paths), size)
        return places

    def _of_file(self, name: str, path: str, size: int) -> list[int]:
        modified = self._store.modified(path)
        size_before, modified_before, places = self._files.get(path, (0, None, []))
        if (size_before, modified_before) != (size, modified):
            places = self._read(name, self._store.get(path) or b"")
            self._files[path] = (size, modified, places)
        return places

    def _read(self, name: str, data: bytes) -> list[int]:
        end = self._settings.terminator.encode()
        *whole, rest = data.split(end)
        lines = [line + end for line in whole] + ([rest] if rest else [])
        left = _PATIENCE_BYTES
        while True:
            expected = self._replay.lines.get(name, Expected())
            places = expected.places(lines)
            if -1 not in places or left <= 0 or not self._replay.extend():
                return places
            left -= _STEP_BYTES

    def _surroundings(self, standing: Surveyed) -> Tally:
        """Visible directories without a schema file, and indexes that do not name the files that exist.

        After a crash there may be data files that no index names, and temporary files: a reader does not see those.
        """
        lanes = [lane for lanes in standing.tables.values() for lane in lanes]
        bare = {VersionKey(lane.key.schema, lane.key.table, lane.key.version) for lane in lanes}
        faults = (fault for fault in standing.faults if not fault.path.startswith(f"{RESERVED_PREFIX}/"))
        broken = [f for f in faults if f.path.endswith(".index") or self._store.size(f.path) is None]
        return Tally(schema_after_data=len(bare - standing.schema_files.keys()), broken_indexes=len(broken))
