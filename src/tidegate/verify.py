"""`tidegate verify`: replay the source and compare, byte for byte, with what stands on the sink.

Promises: it passes only if, up to the checkpoint, every change stands in its table's data files exactly once and in
order, changes beyond the checkpoint continue them without a gap, every index and schema file is right and nothing else
lies around. At the first difference it raises `VerifyError`, whose sentence names the table and the position.

How: changes come from the source batch by batch and are encoded as the changefeed encodes them; each table has a place
in its files, and the bytes of a whole run of rows are compared at once. Single rows are looked at only to explain a
difference. Memory holds one batch and one place for each table.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.engine.store import Store
from tidegate.errors import BadEvents, BadSetting, StoreRefused, VerifyError
from tidegate.events import LAYOUT, RESOLVED, ROW_KINDS
from tidegate.format import protocol
from tidegate.format.canal_json import CanalOptions
from tidegate.format.changes import Rows, Selected, Splitter, TableRules, latest_of, numbers
from tidegate.format.csv import CsvOptions
from tidegate.format.layout import METADATA, parse_metadata, parse_schema_path, schema_path
from tidegate.format.protocol import Encoding
from tidegate.format.tables import Layout, schema_checksum, schema_file_text
from tidegate.reader.replay import Lane, Standing, TableFiles, TableKey, VersionKey, survey
from tidegate.settings import Settings
from tidegate.sources import Source, open_source
from tidegate.sources.workload import WorkloadSource, parse_workload

Ints = npt.NDArray[np.int64]
Progress = Callable[[str], None]

_STEP_BYTES = (1 << 20, 64 << 20)  # handed out at a time once as much as the sink holds has been replayed: first, most
_PATIENCE_BYTES = 64 << 20  # an endless source that brings nothing of what is left for so long does not know it
_SEARCH_BYTES = 16 << 20  # looked at to explain a difference
_MARGIN_BYTES = 1 << 20
_PROGRESS_S = 2.0
_HEAD = ("schema_name", "table_name", "table_id", "table_version", "logical_table_id")
# The moment of writing stands in every line of canal-json: it is compared by its shape alone. Quotes inside of values
# are escaped and all other numbers have other neighbours, so nothing but the field itself looks like this.
_STAMP_MS = 10**12
_STAMPED = re.compile(rb'("es":[0-9]+,"ts":)[0-9]{13}(,"sql":"","sqlType":\{)')


def _without_stamps(piece: bytes) -> bytes:
    return _STAMPED.sub(rb"\g<1>%d\g<2>" % _STAMP_MS, piece)


_CLEAN: dict[type, Callable[[bytes], bytes]] = {CsvOptions: lambda piece: piece, CanalOptions: _without_stamps}


@dataclass(frozen=True)
class Report:
    """What was found right: tables with data, their files, rows and bytes."""

    tables: int
    files: int
    rows: int
    bytes: int
    checkpoint_ts: int
    rows_beyond_checkpoint: int
    seconds: float


def _silent(text: str) -> None:
    pass


def verify(source_uri: str, settings: Settings, store: Store, progress: Progress = _silent) -> Report:
    """Raises VerifyError at the first difference between the source and the sink."""
    started = time.monotonic()
    source = _open(source_uri)
    checkpoint_ts = _checkpoint(store)  # before the survey: what it promises stands by then
    progress("listing the sink")
    standing = survey(store, settings.paths)
    if standing.faults:
        raise VerifyError(standing.faults[0].text)
    check = _Check(standing, settings, store, checkpoint_ts, progress)
    check.run(source)
    return Report(
        tables=len(standing.tables),
        files=standing.files,
        rows=check.rows,
        bytes=standing.bytes,
        checkpoint_ts=checkpoint_ts,
        rows_beyond_checkpoint=check.rows_beyond,
        seconds=time.monotonic() - started,
    )


def _open(uri: str) -> Source:
    """The source; a workload with a rate runs as fast as it can be read, since its rows do not depend on the clock."""
    source = open_source(uri)
    if isinstance(source, WorkloadSource):
        return WorkloadSource(parse_workload(urlsplit(uri).query), clock=count(0, 10**9).__next__)
    return source


def _checkpoint(store: Store) -> int:
    text = store.get(METADATA)
    if text is None:
        raise VerifyError(f"the sink has no `{METADATA}` file, so no checkpoint says what should stand there")
    try:
        return parse_metadata(text.decode(errors="replace"))
    except StoreRefused as exc:
        raise VerifyError(str(exc)) from exc


@dataclass(eq=False)
class _Table:
    """How far one table is compared: `rows` of it, `rows_before` of them in front of the current file."""

    name: str
    files: TableFiles
    version: int = -1
    directory: int = -1  # the version that stands in the path of its rows
    rows: int = 0
    rows_before: int = 0
    header: bytes = b""  # of its current files


@dataclass(frozen=True)
class _Run:
    """Consecutive rows of one table and version as they should stand: row i is `data[ends[i]:ends[i + 1]]`."""

    table: _Table
    version: int
    ts: Ints
    data: pa.Buffer
    ends: Ints
    header: bytes

    def rows(self, first: int, last: int) -> bytes:
        """Rows `first` up to `last`, as one text."""
        text: bytes = self.data.slice(int(self.ends[first]), int(self.ends[last] - self.ends[first])).to_pybytes()
        return text


@dataclass(frozen=True)
class _Kind:
    """Rows that are encoded together: of one layout, with the same columns written."""

    layout: Layout
    selected: Selected


class _Due(NamedTuple):
    """A run before it is encoded: the numbers of its rows among those of its kind, in order; `place` sorts runs."""

    place: tuple[int, int, int]
    table: _Table
    version: int
    kind: _Kind
    rows: Ints


class _Difference(Exception):
    """Row `row` of a run is not what stands at the table's place, which is where the row should begin."""

    def __init__(self, run: _Run, row: int) -> None:
        super().__init__()
        self.run, self.row = run, row


@dataclass
class _Check:
    standing: Standing
    settings: Settings
    store: Store
    checkpoint_ts: int
    progress: Progress
    rows: int = 0
    rows_beyond: int = 0
    _bytes: int = 0
    _resolved_ts: int = 0
    _layouts: dict[int, Layout] = field(default_factory=dict)
    _described: set[VersionKey] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._paths = self.settings.paths
        self._rules = TableRules(self.settings.rules)
        self._splitter = Splitter(not self.settings.output_raw_change_event)
        self._tables = {key: _Table(str(key), self._files(lanes)) for key, lanes in self.standing.tables.items()}
        self._versions: dict[tuple[str, str, int], list[int]] = {}
        for key, paths in self.standing.schema_files.items():
            for path in paths:
                parsed = parse_schema_path(path, self._paths)
                if parsed is not None:
                    self._versions.setdefault((key.schema, key.table, parsed.checksum), []).append(key.version)
        self._left = len(self._tables)  # tables with files not yet compared
        self._total_bytes = self.standing.bytes
        self._schema_files = dict(self.standing.schema_files)
        self._said = time.monotonic()

    def _files(self, lanes: Sequence[Lane]) -> TableFiles:
        return TableFiles(lanes, self.store, self._paths, _CLEAN[type(self.settings.encoding)])

    def run(self, source: Source) -> None:
        self._check_databases()
        runs = self._expected(source)
        for run in runs:
            try:
                self._compare(run)
            except _Difference as difference:
                search_bytes = min(self._total_bytes, _SEARCH_BYTES)
                raise VerifyError(_explain(difference, runs, search_bytes, self.settings.encoding)) from None
            self._say()
        self._check_rest()

    @property
    def _done(self) -> bool:
        return not self._left and not self._schema_files and self._resolved_ts >= self.checkpoint_ts

    def _expected(self, source: Source) -> Iterator[_Run]:
        """Runs of all tables until nothing is left to compare, or the source has nothing more to say about it."""
        offset, idle_bytes, (step, most) = source.initial(), 0, _STEP_BYTES
        limit = max(self._total_bytes, step)
        while not self._done and idle_bytes <= max(self._total_bytes, _PATIENCE_BYTES):
            seen = (self._bytes, len(self._schema_files))
            end = source.latest(offset, limit, frozenset())
            if end == offset:  # a rate counts from the first question on
                end = source.latest(offset, limit, frozenset())
            if end == offset:
                return
            for split in source.splits(offset, end, 1):
                for batch in source.read(split):
                    yield from self._runs(batch)
            idle = seen == (self._bytes, len(self._schema_files)) and self._resolved_ts >= self.checkpoint_ts
            idle_bytes = idle_bytes + limit if idle else 0
            offset, limit, step = end, step, min(2 * step, most)
            yield from self._in_order(cast(Iterable[tuple[_Kind, Rows]], self._splitter.rest()))

    def _runs(self, batch: pa.RecordBatch) -> Iterator[_Run]:
        is_row = pc.is_in(batch.column("kind"), value_set=pa.array(ROW_KINDS))
        marks = batch.filter(pc.invert(is_row)) if is_row.false_count else batch.slice(0, 0)
        self._learn_layouts(marks)
        rows = self._rules.kept(batch.filter(is_row) if is_row.false_count else batch)
        yield from self._in_order(self._ready(rows))
        resolved = marks.filter(pc.equal(marks.column("kind"), RESOLVED)).column("commit_ts").to_pylist()
        self._resolved_ts = max(self._resolved_ts, *resolved) if resolved else self._resolved_ts

    def _ready(self, rows: pa.RecordBatch) -> Iterator[tuple[_Kind, Rows]]:
        """The rows by kind, key-changing updates split; what their transaction's end must wait for is held back."""
        latest = latest_of(numbers(rows, "table_id"), numbers(rows, "commit_ts")) if rows.num_rows else None
        found = dict(self._by_kind(rows))
        for kind in dict.fromkeys([*cast(list[_Kind], self._splitter.held), *found]):
            yield kind, self._splitter.take(kind, kind.layout, found.get(kind, rows.slice(0, 0)), latest)

    def _by_kind(self, rows: pa.RecordBatch) -> Iterator[tuple[_Kind, pa.RecordBatch]]:
        layouts = np.unique(numbers(rows, "layout")).tolist()
        for fingerprint in layouts:
            if fingerprint not in self._layouts:
                raise BadEvents(f"rows of the source have the layout {fingerprint}, which no layout row defines")
            layout = self._layouts[fingerprint]
            same = rows if len(layouts) == 1 else rows.filter(pc.equal(rows.column("layout"), fingerprint))
            for selected, part in self._rules.selections(same, layout):
                yield _Kind(layout, selected), part

    def _in_order(self, ready: Iterable[tuple[_Kind, Rows]]) -> Iterator[_Run]:
        """The runs of these rows by table and time, encoded kind by kind."""
        due: list[_Due] = []
        texts = {}
        for kind, rows in ready:
            if mine := self._due(kind, rows):
                texts[kind] = self._encode(kind, rows, mine)
                due += mine
        for one in sorted(due, key=lambda one: one.place):
            ts, data, ends = texts[one.kind][one.place]
            yield _Run(one.table, one.version, ts, data, ends, self._header(one.kind))

    def _header(self, kind: _Kind) -> bytes:
        return protocol.header(kind.layout, self.settings.encoding, kind.selected)

    def _learn_layouts(self, marks: pa.RecordBatch) -> None:
        for mark in marks.filter(pc.equal(marks.column("kind"), LAYOUT)).select(["layout", "ddl"]).to_pylist():
            if mark["layout"] not in self._layouts:
                self._layouts[mark["layout"]] = Layout.from_json(mark["ddl"] or "")

    def _due(self, kind: _Kind, rows: Rows) -> list[_Due]:
        """The runs that must be compared, in order of table and time; a table without files left has none."""
        order, (table_id, ts, seq) = rows.order(), rows.place()
        changed = [np.diff(key[order]) != 0 for key in (table_id, numbers(rows.events, "table_version"))]
        bounds = np.concatenate([[0], np.flatnonzero(np.logical_or.reduce(changed)) + 1, [len(order)]])
        heads = rows.events.select(_HEAD).take(pa.array(order[bounds[:-1]])).to_pylist() if len(order) else []
        due = []
        for head, at in zip(heads, np.split(order, bounds[1:-1]), strict=True) if heads else ():
            table, version = self._meet(head, kind.layout)
            place = (int(table_id[at[0]]), int(ts[at[0]]), int(seq[at[0]]))
            if table.files.ended:
                self._check_covered(table, place[1])
            else:
                due.append(_Due(place, table, version, kind, at))
        return due

    def _encode(
        self, kind: _Kind, rows: Rows, due: list[_Due]
    ) -> dict[tuple[int, int, int], tuple[Ints, pa.Buffer, Ints]]:
        """By place the commit-ts of each run's rows, its text, and where the rows end in it."""
        order, events = np.concatenate([one.rows for one in due]), rows.events
        if 2 * len(order) < events.num_rows:  # most rows are of tables that have no files left
            events, order = events.take(pa.array(order)), np.arange(len(order))
        encoded = protocol.encode(
            self._rules.routed(events), order, kind.layout, self.settings.encoding, kind.selected, _STAMP_MS
        )
        _, offsets, data = encoded.buffers()
        ends = np.frombuffer(offsets, np.int32)[encoded.offset : encoded.offset + len(order) + 1].astype(np.int64)
        bounds = np.concatenate([[0], np.cumsum([len(one.rows) for one in due])])
        ts = numbers(events, "commit_ts")[order]
        return {
            one.place: (
                ts[low:high],
                data.slice(int(ends[low]), int(ends[high] - ends[low])),
                ends[low : high + 1] - ends[low],
            )
            for one, low, high in zip(due, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
        }

    def _meet(self, head: dict[str, Any], layout: Layout) -> tuple[_Table, int]:
        """The table of a run and the version it stands under, whose schema file is checked when it first comes."""
        source_schema, source_name, table_id, version = (head[column] for column in _HEAD[:4])
        schema, name = self._rules.target(source_schema, source_name)
        is_partition = head["logical_table_id"] not in (None, table_id)
        if self._paths.table_id_as_path:
            key = TableKey(str(table_id), "")
        elif is_partition and not self._paths.partition_separator:
            raise BadSetting(
                f"{schema}.{name} has partitions that share one directory (enable-partition-separator = false); "
                "verify cannot tell their rows apart"
            )
        else:
            key = TableKey(schema, name, table_id if is_partition else 0)
        table = self._tables.get(key) or _Table(str(key), self._files(()))
        if table.version != version:
            checksum = schema_checksum(schema, name, layout, self.settings.output_column_id)
            table.version, table.name = version, str(TableKey(schema, name, key.partition))
            table.directory = self._directory(VersionKey(key.schema, key.table, version), checksum)
            described = VersionKey(key.schema, key.table, table.directory)
            self._check_schema_file(described, schema, name, table_id, layout)
        return table, table.directory

    def _directory(self, key: VersionKey, checksum: int) -> int:
        """The version of a schema file with the same columns: this one, else the greatest before it."""
        standing = self._versions.get((key.schema, key.table, checksum), [])
        return max((version for version in standing if version <= key.version), default=key.version)

    def _check_schema_file(self, key: VersionKey, schema: str, table: str, table_id: int, layout: Layout) -> None:
        paths = self._schema_files.pop(key, None)
        if paths is None:
            return  # another partition came before, or there is none: `_enter_file` insists on it before any data
        with_ids = self.settings.output_column_id
        checksum = schema_checksum(schema, table, layout, with_ids)
        right = schema_path(schema, table, key.version, checksum, self._paths, table_id)
        wrong = next((path for path in paths if path != right), None)
        if wrong is not None:
            raise VerifyError(
                f"{schema}.{table}: schema file {wrong} has a wrong checksum; by the source it should be {right}"
            )
        text = schema_file_text(schema, table, key.version, layout, output_column_id=with_ids)
        if self.store.get(right) != text.encode():
            raise VerifyError(f"{schema}.{table}: schema file {right} does not describe the source's columns")
        self._described.add(key)

    def _compare(self, run: _Run) -> None:
        """Moves the table over all rows of the run that stand in its files."""
        table, files = run.table, run.table.files
        if files.ended:
            return self._check_covered(table, int(run.ts[0]))
        done, row, rows = 0, 0, len(run.ts)
        while row < rows and not files.ended:
            self._check_version(run, row)
            if not files.offset:
                self._enter_file(run)
            length = min(files.left, run.data.size - done)
            self._compare_piece(run, done, length)
            done += length
            row = int(np.searchsorted(run.ends, done, side="right")) - 1
            at_end = length == files.left
            if at_end and run.ends[row] != done:
                raise VerifyError(f"{table.name}: row {table.rows + row + 1} is cut by the end of {files.path}")
            files.move(length)
            if at_end:
                table.rows_before = table.rows + row
        self._bytes += done
        table.rows += row
        self.rows += row
        self.rows_beyond += row - int(np.searchsorted(run.ts[:row], self.checkpoint_ts, side="right"))
        self._left -= files.ended
        if row < rows:
            self._check_covered(table, int(run.ts[row]))
        return None

    def _check_version(self, run: _Run, row: int) -> None:
        table, files = run.table, run.table.files
        if files.version > run.version:
            raise VerifyError(
                f"{table.name}: row {table.rows + row + 1} of version {run.version} is dropped: {files.path} comes next"
            )
        if files.version < run.version:
            raise VerifyError(_explain_more(table, self.settings.encoding))

    def _enter_file(self, run: _Run) -> None:
        """A new file must have a schema file, and begin with the header if there is one."""
        table, files = run.table, run.table.files
        if files.version_key not in self._described:
            raise VerifyError(f"{table.name}: version {run.version} has no schema file, which {files.path} needs")
        if run.header and files.look(min(len(run.header), files.left)) != run.header:
            raise VerifyError(f"{table.name}: {files.path} does not begin with the header {_shown(run.header)}")
        if files.left == len(run.header):
            raise VerifyError(f"{table.name}: {files.path} holds no row after its header")
        table.header = run.header
        files.move(len(run.header))

    def _compare_piece(self, run: _Run, start: int, length: int) -> None:
        files = run.table.files
        found, wanted = pa.py_buffer(files.look(length)), run.data.slice(start, length)
        if found.equals(wanted):
            return
        at = start + int(np.argmax(np.frombuffer(found, np.uint8) != np.frombuffer(wanted, np.uint8)))
        row = int(np.searchsorted(run.ends, at, side="right")) - 1
        files.move(int(run.ends[row]) - start)  # rows begin and end within a file, so this one began in it
        raise _Difference(run, row)

    def _check_covered(self, table: _Table, ts: int) -> None:
        if ts <= self.checkpoint_ts:
            raise VerifyError(
                f"{table.name}: row {table.rows + 1} (commit-ts {ts}) is missing: the data files end after "
                f"{table.rows} rows, although the checkpoint is {self.checkpoint_ts}"
            )

    def _check_databases(self) -> None:
        """The schema file of a database says no more than its name; what the source has no rows for stays out of it."""
        for key in [key for key in self._schema_files if not key.table and not self._paths.table_id_as_path]:
            for path in self._schema_files.pop(key):
                parsed = parse_schema_path(path, self._paths)
                if parsed is None or parsed.checksum != schema_checksum(key.schema, "", None):
                    raise VerifyError(f"{key.schema}: schema file {path} has a wrong checksum")

    def _check_rest(self) -> None:
        """The source has no more to say: nothing may be left on the sink, and no checkpoint beyond the source's end."""
        for table in self._tables.values():
            if not table.files.ended and table.version < 0:
                raise VerifyError(f"{table.name}: the source has no such table, but {table.files.path} stands there")
            if not table.files.ended:
                raise VerifyError(_explain_more(table, self.settings.encoding))
        for key, paths in self._schema_files.items():
            raise VerifyError(
                f"{key.schema}.{key.table}: the source has no version {key.version}, but {paths[0]} is there"
            )
        if self._resolved_ts < self.checkpoint_ts:
            raise VerifyError(
                f"`{METADATA}` says checkpoint {self.checkpoint_ts}, but the source ends at {self._resolved_ts}"
            )

    def _say(self) -> None:
        now = time.monotonic()
        if now - self._said >= _PROGRESS_S:
            self._said = now
            self.progress(f"{self._bytes / 1e6:,.0f} of {self._total_bytes / 1e6:,.0f} MB compared, {self.rows:,} rows")


# How a difference is explained: what stands there is looked for among the rows before and after the one expected.


def _explain(difference: _Difference, runs: Iterator[_Run], search_bytes: int, options: Encoding) -> str:
    run, row, table = difference.run, difference.row, difference.run.table
    found = table.files.ahead(len(run.rows(row, len(run.ts))) + _MARGIN_BYTES, len(run.header))
    line, wanted = _line(found, options), run.rows(row, row + 1)
    number, here = table.rows + row + 1, _here(table, row)
    if other := _swapped(run, row, found, line):
        return f"{table.name}: rows {number} and {number + other} are swapped, at {here}"
    if (earlier := _repeated(run, row, found, line)) is not None:
        first = table.rows + earlier + 1
        return f"{table.name}: row {first} is doubled: it stands again at {here}, where row {number} should be"
    if dropped := _dropped(run, row, found, line, _within(runs, search_bytes)):
        return f"{table.name}: {_counted(dropped)} dropped from row {number} on ({_shown(wanted)}), before {here}"
    if twin := _passed(table.files, line, options):
        return f"{table.name}: a row is doubled: {twin} stands again at {here}, where row {number} should be"
    at = next((i for i, (a, b) in enumerate(zip(line, wanted, strict=False)) if a != b), min(len(line), len(wanted)))
    return (
        f"{table.name}: row {number} is altered: {here} says {_shown(line, at)}, the source says {_shown(wanted, at)}"
    )


def _explain_more(table: _Table, options: Encoding) -> str:
    """The files of a table (or of one version) go on where the source has no more rows."""
    line = _line(table.files.ahead(_MARGIN_BYTES, len(table.header)), options)
    twin = _passed(table.files, line, options)
    what = f"a row is doubled: {twin} stands again" if twin else f"a row too many, {_shown(line)}, stands"
    return f"{table.name}: {what} at {_here(table, 0)}, where the source has no row after row {table.rows}"


def _alike(run: _Run, first: int, last: int, found: bytes, line: bytes) -> Iterator[int]:
    """The rows from `first` up to `last` that are just what `found` begins with; `line` is its first line."""
    base, text = run.ends[first], run.rows(first, last)
    at = text.find(line)
    while at >= 0:
        row = int(np.searchsorted(run.ends, base + at))
        if run.ends[row] == base + at and found.startswith(run.rows(row, row + 1)):
            yield row
        at = text.find(line, at + 1)


def _swapped(run: _Run, row: int, found: bytes, line: bytes) -> int:
    """How far behind `row` the row stands that has changed places with it; 0 if none has."""
    for other in _alike(run, row + 1, len(run.ts), found, line):
        if found.startswith(run.rows(other, other + 1) + run.rows(row + 1, other) + run.rows(row, row + 1)):
            return other - row
    return 0


def _repeated(run: _Run, row: int, found: bytes, line: bytes) -> int | None:
    """The earlier row from which on the rows before `row` stand once more."""
    for earlier in _alike(run, 0, row, found, line):
        again = run.rows(earlier, row + 1)
        if found.startswith(again) or again.startswith(found):
            return earlier
    return None


def _dropped(run: _Run, row: int, found: bytes, line: bytes, runs: Iterator[_Run]) -> int:
    """After how many rows the source comes to the row that stands there; 0 if it does not soon."""
    for other in _alike(run, row + 1, len(run.ts), found, line):
        return other - row
    passed = len(run.ts) - row
    for later in runs:
        if later.table is run.table:
            for other in _alike(later, 0, len(later.ts), found, line):
                return passed + other
            passed += len(later.ts)
    return 0


def _within(runs: Iterator[_Run], most: int) -> Iterator[_Run]:
    """The next runs, `most` bytes of them; another difference ends them, since the first is the one to tell."""
    with suppress(VerifyError):
        for run in runs:
            yield run
            most -= run.data.size
            if most <= 0:
                return


def _passed(files: TableFiles, line: bytes, options: Encoding) -> str | None:
    """Where the same line stands among what was compared already."""
    end = options.terminator.encode()
    if not line or not line.endswith(end) or not end:
        return None
    for path, offset, data in files.behind(_SEARCH_BYTES):
        at = 0 if data.startswith(line) else data.rfind(end + line) + len(end)
        if data.startswith(line, at):
            return f"the one at byte {offset + at} of {path}"
    return None


def _line(found: bytes, options: Encoding) -> bytes:
    line, end, _ = found.partition(options.terminator.encode() or b"\n")
    return line + end


def _here(table: _Table, row: int) -> str:
    number = table.rows + row - table.rows_before + 1
    return f"row {number} of {table.files.path} (byte {table.files.offset})"


def _counted(rows: int) -> str:
    return "1 row is" if rows == 1 else f"{rows} rows are"


def _shown(line: bytes, at: int = 0) -> str:
    """A line for people: 60 bytes of it around byte `at`."""
    low = max(0, min(at - 20, len(line) - 60))
    text = line[low : low + 60].decode(errors="backslashreplace").encode("unicode_escape").decode()
    return f"`{'...' if low else ''}{text}{'...' if low + 60 < len(line) else ''}`"
