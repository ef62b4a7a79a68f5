"""The walk over source and sink side by side: every run of rows against the bytes at its table's place."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.config.settings import Settings
from tidegate.errors import BadSetting, VerifyError
from tidegate.events import DDL, LAYOUT, RESOLVED, ROW_KINDS
from tidegate.format.bad_rows import RowKey
from tidegate.format.ddl.events import DdlEvent
from tidegate.format.encode.canal_json import CanalOptions
from tidegate.format.encode.csv import CsvOptions
from tidegate.format.encode.spans import dispatcher_id
from tidegate.format.layout import METADATA
from tidegate.format.rules.changes import TableRules
from tidegate.format.tables import Layout
from tidegate.reader.replay import Lane, Surveyed, TableFiles, TableKey
from tidegate.sources import Source
from tidegate.storage.store import Store
from tidegate.tools.verify.explain import (
    Difference,
    explain,
    explain_early_end,
    explain_late_end,
    explain_more,
    shown,
    within,
)
from tidegate.tools.verify.key_order import in_one_order
from tidegate.tools.verify.runs import STAMP_MS, Head, Run, Runs, Table
from tidegate.tools.verify.schemas import SchemaFiles

Progress = Callable[[str], None]

# Once as many bytes as the sink has were replayed, the source hands out so much at a time: at first, and at most.
_STEP_BYTES = (1 << 20, 64 << 20)
_PATIENCE_BYTES = 64 << 20  # an endless source that brings nothing of what is left for so long will never bring it
_PROGRESS_S = 2.0
# Every line of canal-json has the moment of writing, which nobody can know: only its shape is compared. Quotes inside
# of values are escaped and all other numbers have other neighbours, so nothing but the field itself looks like this.
_STAMPED = re.compile(rb'("es":[0-9]+,"ts":)[0-9]{13}(,"sql":"","sqlType":\{)')


def _without_stamps(piece: bytes) -> bytes:
    return _STAMPED.sub(rb"\g<1>%d\g<2>" % STAMP_MS, piece)


def _as_it_is(piece: bytes) -> bytes:
    return piece


_CLEAN: dict[type, Callable[[bytes], bytes]] = {CsvOptions: _as_it_is, CanalOptions: _without_stamps}
# How both sides are compared once more where their bytes differ: canal-json's types may have any order.
_ORDER: dict[type, Callable[[bytes], bytes]] = {CsvOptions: _as_it_is, CanalOptions: in_one_order}


class Check:
    """One comparison of a source with a sink; counts the rows that it found right."""

    def __init__(
        self,
        standing: Surveyed,
        settings: Settings,
        store: Store,
        checkpoint_ts: int,
        progress: Progress,
        aside: frozenset[RowKey] = frozenset(),
    ) -> None:
        self.rows = self.rows_beyond = 0
        self._settings, self._store, self._checkpoint_ts, self._progress = settings, store, checkpoint_ts, progress
        self._rules = TableRules(settings.rules)
        self._layouts: dict[int, Layout] = {}
        self._tables = {
            key: Table(key, str(key), self._files(lanes), number)
            for number, (key, lanes) in enumerate(standing.tables.items())
        }
        self._schemas = SchemaFiles(standing, settings, store, self._rules, checkpoint_ts)
        self._runs = Runs(settings, self._rules, self._layouts, self._meet, aside)
        self._left = len(self._tables)  # tables with files not yet compared
        self._bytes, self._total_bytes, self._resolved_ts = 0, standing.bytes, 0
        self._in_order = _ORDER[type(settings.encoding)]
        self._said = time.monotonic()

    def _files(self, lanes: Sequence[Lane]) -> TableFiles:
        return TableFiles(lanes, self._store, self._settings.paths, _CLEAN[type(self._settings.encoding)])

    def run(self, source: Source) -> None:
        runs = self._expected(source)
        for run in runs:
            try:
                self._compare(run)
            except Difference as difference:
                ordered = Difference(self._ordered(difference.run), difference.row)
                rest = (self._ordered(later) for later in runs)
                raise VerifyError(explain(ordered, rest, self._total_bytes, self._settings.encoding)) from None
            except VerifyError:
                for _ in within(runs):
                    pass
                raise
            self._say()
        self._check_rest()

    @property
    def set_aside(self) -> int:
        """Rows of the source that are not in data files, because they cannot be written and were set aside."""
        return self._runs.set_aside

    # What the source says.

    @property
    def _done(self) -> bool:
        return not self._left and not self._schemas.left and self._resolved_ts >= self._checkpoint_ts

    def _expected(self, source: Source) -> Iterator[Run]:
        """Runs of all tables until nothing is left to compare, or the source has nothing more to say about it."""
        offset, idle_bytes, (step, most) = source.initial(), 0, _STEP_BYTES
        limit = max(self._total_bytes, step)
        while not self._done and idle_bytes <= max(self._total_bytes, _PATIENCE_BYTES):
            seen = (self._bytes, len(self._schemas.left))
            end = source.latest(offset, limit, frozenset())
            if end == offset:  # a rate counts from the first question on
                end = source.latest(offset, limit, frozenset())
            if end == offset:
                return
            for split in source.splits(offset, end, 1):
                for batch in source.read(split):
                    yield from self._of_batch(batch)
            self._schemas.end_step()
            idle = seen == (self._bytes, len(self._schemas.left)) and self._resolved_ts >= self._checkpoint_ts
            idle_bytes = idle_bytes + limit if idle else 0
            offset, limit, step = end, step, min(2 * step, most)
            yield from self._runs.rest()

    def _of_batch(self, batch: pa.RecordBatch) -> Iterator[Run]:
        is_row = pc.is_in(batch.column("kind"), value_set=pa.array(ROW_KINDS))
        marks = batch.filter(pc.invert(is_row)) if is_row.false_count else batch.slice(0, 0)
        self._learn_layouts(marks)
        ddls = self._learn_ddls(marks)
        yield from self._runs.of(batch.filter(is_row) if is_row.false_count else batch, ddls)
        resolved = _marks(marks, RESOLVED).column("commit_ts").to_pylist()
        self._resolved_ts = max(self._resolved_ts, *resolved) if resolved else self._resolved_ts

    def _learn_layouts(self, marks: pa.RecordBatch) -> None:
        for mark in _marks(marks, LAYOUT).select(["layout", "ddl"]).to_pylist():
            if mark["layout"] not in self._layouts:
                self._layouts[mark["layout"]] = Layout.from_json(mark["ddl"] or "")

    def _learn_ddls(self, marks: pa.RecordBatch) -> list[tuple[int, DdlEvent]]:
        """The DDLs by commit-ts; their schema files are checked before any row of the batch is."""
        rows = _marks(marks, DDL).select(["commit_ts", "seq", "ddl"]).to_pylist()
        rows.sort(key=lambda row: (row["commit_ts"], row["seq"]))
        ddls = [(row["commit_ts"], DdlEvent.from_json(row["ddl"] or "")) for row in rows]
        for ts, event in ddls:
            self._schemas.learn(ts, event, self._layouts)
        return ddls

    def _meet(self, rows: Head) -> Table | None:
        """The table of a run, as soon as its version and schema file are known; None if all its files are compared."""
        names = self._rules.target(rows.schema, rows.table)
        key = self._key(names, rows)
        table = self._tables.get(key) or Table(key, str(key), self._files(()))
        if table.met != (rows.table_id, rows.version):
            table.met, table.name = (rows.table_id, rows.version), str(TableKey(*names, *key[2:]))
            table.directory, table.described = self._schemas.settle(key[:2], names, rows)
        own = self._own(key, rows.table_id)
        if not table.files.ended or (own is not None and not own.files.ended):
            return table
        self._check_covered(table, rows.ts)
        return None

    def _key(self, names: tuple[str, str], rows: Head) -> TableKey:
        paths, changefeed = self._settings.paths, self._settings.changefeed_id
        dispatcher = dispatcher_id(changefeed, rows.table_id, rows.span) if paths.across_nodes else ""
        if paths.table_id_as_path:
            return TableKey(str(rows.table_id), "", 0, dispatcher)
        if rows.is_partition and not paths.partition_separator:
            raise BadSetting(
                f"{'.'.join(names)} has partitions that share one directory (enable-partition-separator = false); "
                "verify cannot tell their rows apart"
            )
        return TableKey(*names, rows.table_id if rows.is_partition else 0, dispatcher)

    # What the sink says.

    def _own(self, key: TableKey, table_id: int) -> Table | None:
        """The files of this table id in a directory of its own, beside those on the plain path of its name."""
        return self._tables.get(key._replace(partition=table_id)) if not key.partition else None

    def _in_its_place(self, run: Run) -> Run:
        """The run with the files that have its rows. A table that has a directory of its own never leaves it again.

        Only the rows themselves tell when it went there: several tables of one name may have one version.
        """
        own = self._own(run.table.key, run.table_id)
        if own is None or (own.met is None and self._begins_here(run)):
            return run
        own.met = (run.table_id, run.directory)
        return replace(run, table=own)

    def _begins_here(self, run: Run) -> bool:
        files, row = run.table.files, run.rows(0, 1)
        if files.ended or files.version != run.directory:
            return False
        return self._in_order(files.ahead(len(row), len(run.header))) == self._in_order(row)

    def _compare(self, run: Run) -> None:
        """Moves the table over all rows of the run that are in its files."""
        run = self._in_its_place(run)
        table, files = run.table, run.table.files
        if files.ended:
            return self._check_covered(table, int(run.ts[0]))
        self._check_sides(run)
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
        self.rows_beyond += row - int(np.searchsorted(run.ts[:row], self._checkpoint_ts, side="right"))
        self._left -= files.ended
        if row < rows:
            self._check_covered(table, int(run.ts[row]))
        return None

    def _check_sides(self, run: Run) -> None:
        """A reader meets a table's rows by version: those before a DDL must come before it, those behind it after."""
        folder, table, first, last = run.table.key[:2], run.table, int(run.ts[0]), int(run.ts[-1])
        begun, next_ = self._schemas.last_ddl(folder, run.directory), self._schemas.next_ddl(folder, run.directory)
        if begun is not None and first < begun:
            raise VerifyError(
                f"{table.name}: row {table.rows + 1} (commit-ts {first}) is older than the DDL at commit-ts {begun}, "
                f"but its version puts it behind that, in directory {run.directory}"
            )
        if next_ is not None and last > next_:
            row = int(np.searchsorted(run.ts, next_, side="right"))
            raise VerifyError(
                f"{table.name}: row {table.rows + row + 1} (commit-ts {run.ts[row]}) comes after the DDL at commit-ts "
                f"{next_}, but its version puts it before that, in directory {run.directory}"
            )

    def _check_version(self, run: Run, row: int) -> None:
        table, files, encoding = run.table, run.table.files, self._settings.encoding
        if files.version == run.directory:
            return

        def is_ddl(version: int) -> bool:
            return self._schemas.is_ddl(table.key[:2], version)

        explain_end = explain_early_end if files.version > run.directory else explain_late_end
        raise VerifyError(explain_end(self._ordered(run), row, is_ddl, encoding))

    def _enter_file(self, run: Run) -> None:
        """A new file must have a schema file, and begin with the header if there is one."""
        table, files = run.table, run.table.files
        if not run.described:
            raise VerifyError(f"{table.name}: version {run.directory} has no schema file, which {files.path} needs")
        if run.header and files.look(min(len(run.header), files.left)) != run.header:
            raise VerifyError(f"{table.name}: {files.path} does not begin with the header {shown(run.header)}")
        if files.left == len(run.header):
            raise VerifyError(f"{table.name}: {files.path} holds no row after its header")
        table.header = run.header
        files.move(len(run.header))

    def _compare_piece(self, run: Run, start: int, length: int) -> None:
        files = run.table.files
        found, wanted = pa.py_buffer(files.look(length)), run.data.slice(start, length)
        if found.equals(wanted):
            return
        found, wanted = (pa.py_buffer(self._in_order(side.to_pybytes())) for side in (found, wanted))
        if found.equals(wanted):
            return
        at = start + int(np.argmax(np.frombuffer(found, np.uint8) != np.frombuffer(wanted, np.uint8)))
        row = int(np.searchsorted(run.ends, at, side="right")) - 1
        files.move(int(run.ends[row]) - start)  # rows begin and end within a file, so this one began in it
        raise Difference(run, row)

    def _ordered(self, run: Run) -> Run:
        """The run and the files of its table as they are told apart, to explain a difference."""
        run.table.files.clean_also(self._in_order)
        return replace(run, data=pa.py_buffer(self._in_order(run.data.to_pybytes())))

    def _check_covered(self, table: Table, ts: int) -> None:
        if ts <= self._checkpoint_ts:
            raise VerifyError(
                f"{table.name}: row {table.rows + 1} (commit-ts {ts}) is missing: the data files end after "
                f"{table.rows} rows, although the checkpoint is {self._checkpoint_ts}"
            )

    def _check_rest(self) -> None:
        """The source has no more to say: nothing may be left on the sink, and no checkpoint beyond the source's end."""
        for table in self._tables.values():
            if not table.files.ended and table.met is None:
                raise VerifyError(f"{table.name}: the source has no such table, but {table.files.path} exists")
            if not table.files.ended:
                raise VerifyError(explain_more(table, self._settings.encoding))
        self._schemas.check_rest()
        if self._resolved_ts < self._checkpoint_ts:
            raise VerifyError(
                f"`{METADATA}` says checkpoint {self._checkpoint_ts}, but the source ends at {self._resolved_ts}"
            )

    def _say(self) -> None:
        now = time.monotonic()
        if now - self._said >= _PROGRESS_S:
            self._said = now
            done, total = self._bytes / 1e6, self._total_bytes / 1e6
            self._progress(f"{done:,.0f} of {total:,.0f} MB compared, {self.rows:,} rows")


def _marks(marks: pa.RecordBatch, kind: str) -> pa.RecordBatch:
    return marks.filter(pc.equal(marks.column("kind"), kind))
