"""`tidegate verify --source mysql://...`: is what the sink holds what the database holds?

Promises: it passes only if every followed table has exactly the rows that the database had at one moment, by value. A
table is read in one consistent read without a lock, and compared at a place of the log up to which the changefeed has
landed everything; what happened in between is taken from the log. At the first table that differs it raises
`VerifyError`, whose sentence names the table and counts the rows. What a DDL changed without events (a column with
a default, another type, a partition that was dropped) is counted apart, and so are tables that cannot be compared.

How: `tables` and `read` ask the database, with SQL of their own. `durable` waits for the changefeed, by its journal.
`window` has the changes in between. `lineage`, `sink` and `landed` find and read the rows on the sink. Rows of both
sides are spilled to disk by a hash of their key (`rows`), and compared one bucket at a time (`compare`), so memory does
not grow with a table.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pymysql.connections import Connection

from tidegate.config.settings import Settings
from tidegate.driver.inspection import refuse_newer_journal
from tidegate.errors import VerifyError
from tidegate.format.rules.changes import TableRules
from tidegate.format.tables import Column, Layout
from tidegate.sources.mysql.address import Address
from tidegate.sources.mysql.connect import connect, server_facts
from tidegate.sources.mysql.inspection import Follows
from tidegate.storage.store import Store
from tidegate.tools.check_database import followed_by
from tidegate.tools.verify_database.compare import Sides, Verdict, compare
from tidegate.tools.verify_database.durable import Patience, Progress, await_durable, durable_now
from tidegate.tools.verify_database.landed import NotComparable
from tidegate.tools.verify_database.moment import Durable, Moment, shown
from tidegate.tools.verify_database.read import BYTES, ConsistentRead, TableChanged
from tidegate.tools.verify_database.rows import BUCKET_BYTES, Shape, Spill, bucket_count
from tidegate.tools.verify_database.sink import Sink
from tidegate.tools.verify_database.strays import EndedNames, refuse_strays
from tidegate.tools.verify_database.tables import DatabaseTable, describe, followed_tables, groups
from tidegate.tools.verify_database.window import Window
from tidegate.tools.verify_database.window_rows import window_rows

__all__ = ["DatabaseReport", "Patience", "Task", "task_of", "verify_database"]

_GROUP_BYTES, _GROUP_TABLES = 1 << 30, 500
_TRIES = 3  # of a table that changed while it was read, or that differs while the changefeed runs
_PATIENT = Patience()
_ANSWER_S = 3600  # a large table is read in one answer
Connect = Callable[..., Connection]
Named = tuple[str, str, int]


@dataclass
class DatabaseReport:
    """What was found right. `not_compared` are sentences, each about one table."""

    tables: int = 0
    rows: int = 0
    rows_changed_by_ddl: int = 0
    checkpoint_ts: int = 0
    position: str = ""
    seconds: float = 0.0
    not_compared: list[str] = field(default_factory=list)


def _silent(text: str) -> None:
    pass


@dataclass(frozen=True)
class Task:
    """What to compare, and how patiently."""

    connect: Connect
    is_mariadb: bool
    follows: Follows
    settings: Settings
    store: Store
    patience: Patience = _PATIENT
    show_values: bool = False
    progress: Progress = _silent


def task_of(address: Address, password: str, settings: Settings, store: Store) -> Task:
    """Asks the server which one it is."""

    def connected(**options: Any) -> Connection:
        return connect(address, password, read_timeout=_ANSWER_S, **options)

    with closing(connected()) as connection:
        facts = server_facts(connection, address)
    return Task(connected, facts.is_mariadb, followed_by(address, settings), settings, store)


def verify_database(task: Task) -> DatabaseReport:
    """Raises VerifyError at the first table that differs."""
    started, report = time.monotonic(), DatabaseReport()
    _refuse_settings(task.settings)
    refuse_newer_journal(task.store)
    with closing(task.connect()) as connection:
        names = followed_tables(connection, task.follows)
        if not names:
            raise VerifyError("the database has no table to follow that this user may see")
        ended = EndedNames()
        for group in groups(names, _GROUP_BYTES, _GROUP_TABLES):
            _Group(task, connection, report, ended).run(group)
            task.progress(f"{report.tables:,} of {len(names):,} tables compared, {report.rows:,} rows")
        known = {name[:2] for name in (*names, *followed_tables(connection, task.follows))}
        refuse_strays(Sink(task.settings, task.store, report.checkpoint_ts), known, ended, task.follows)
    report.seconds = time.monotonic() - started
    return report


def _refuse_settings(settings: Settings) -> None:
    if settings.table_id_as_path:
        raise VerifyError("with use-table-id-as-path a database cannot tell which files are of which table")
    if settings.rules.ignored_start_ts:
        raise VerifyError(
            "ignore-txn-start-ts leaves transactions out, so the sink differs from the database by itself"
        )


class _Again(Exception):
    """The table must be read once more: a DDL or something else came in between."""


class _Group:
    """Tables that are read in one consistent read."""

    def __init__(self, task: Task, connection: Connection, report: DatabaseReport, ended: EndedNames) -> None:
        self._task, self._connection, self._report, self._ended = task, connection, report, ended
        self._rules = TableRules(task.settings.rules)

    def run(self, names: Sequence[Named]) -> None:
        left = list(names)
        for again in range(_TRIES - 1, -1, -1):
            directory = Path(tempfile.mkdtemp(prefix="tidegate-verify-"))
            try:
                left = self._compare(left, directory, may_retry=again > 0)
            finally:
                shutil.rmtree(directory, ignore_errors=True)
            if not left:
                return
        name = f"{left[0][0]}.{left[0][1]}"
        self._report.not_compared.append(f"{name}: DDLs change it again and again; verify when they are over")

    def _compare(self, names: Sequence[Named], directory: Path, may_retry: bool) -> list[Named]:
        """Returns the tables that must be read again."""
        task = self._task
        before = durable_now(task.store)
        reads, moment = self._read(names, directory)
        durable = await_durable(task.store, moment.log_end, task.patience, task.progress)
        forward = durable.position.order >= moment.log_end.order
        windows = self._windows(reads, moment, before, durable, forward)
        sink = Sink(task.settings, task.store, durable.ts)
        self._report.checkpoint_ts, self._report.position = durable.ts, shown(durable.position)
        done = set()
        for read in reads:
            try:
                if read.key in windows.altered:
                    raise _Again
                self._compare_table(read, sink, forward, may_retry and forward)
            except _Again:
                continue
            except NotComparable as exc:
                self._report.not_compared.append(f"{read.table.name}: {exc}")
            done.add(read.key)
        return [name for name in names if name[:2] not in done and self._exists(name)]

    def _exists(self, name: Named) -> bool:
        return bool(describe(self._connection, [name]))

    # The database.

    def _read(self, names: Sequence[Named], directory: Path) -> tuple[list[_Read], Moment]:
        sizes = {name[:2]: name[2] for name in names}
        with closing(self._task.connect(**BYTES)) as connection:
            consistent = ConsistentRead(connection, self._task.is_mariadb)
            tables = [self._shown(table) for table in describe(self._connection, names)]
            reads = []
            for number, table in enumerate(tables):
                try:
                    read = _Read(table, directory / str(number), sizes[table.schema, table.table])
                    for rows in consistent.rows(table):
                        read.rows.add(rows)
                    read.rows.close()
                except TableChanged:
                    continue
                # The transaction has the table open now, so no DDL can change it any more.
                if [self._shown(each) for each in describe(self._connection, [(*read.key, 0)])] == [table]:
                    reads.append(read)
            moment = consistent.moment
            consistent.end()
        return reads, moment

    def _shown(self, table: DatabaseTable) -> DatabaseTable:
        """With the columns that a column selector keeps."""
        columns = tuple(Column(each.name, "int", pk=each.name in table.key) for each in table.columns)
        chosen = self._rules.selected(table.schema, table.table, Layout(columns))
        return table if chosen is None else replace(table, columns=tuple(table.columns[i] for i in chosen))

    def _windows(
        self, reads: Sequence[_Read], moment: Moment, before: Durable, durable: Durable, forward: bool
    ) -> Window:
        """The changes between the read and the comparison, added to each table."""
        by_name = {read.key: read for read in reads}
        window = Window({read.key: read.shape.names for read in reads}, moment)
        first, last = (
            (moment.place or before.position, durable.position) if forward else (durable.position, moment.log_end)
        )
        with closing(self._task.connect()) as connection:
            for found in window.read(connection, first, last):
                read = by_name[found.name]
                rows = window_rows(found, read.shape, seen=not forward)
                read.window.add(rows)
        return window

    # Both sides.

    def _compare_table(self, read: _Read, sink: Sink, forward: bool, may_retry: bool) -> None:
        table, shape = read.table, read.shape
        if self._rules.rules.event_filters.matching(table.schema, table.table):
            raise NotComparable("an event filter leaves changes of it out")
        parts = sink.history(table)
        self._ended.note(sink.schema_files(sink.target_of(*read.key)))
        _check_columns(table, parts[-1].files[-1].columns if parts else None, may_retry)
        landed = sink.spill(table, parts, shape, read.directory, read.buckets)
        verdict, eras = Verdict(), sink.eras(parts, shape)
        for sides in zip(landed.buckets(), read.rows.buckets(), read.window.buckets(), strict=True):
            compare(Sides(*sides), shape, eras, forward, verdict)
        if not verdict.is_right and may_retry:
            raise _Again
        if not verdict.is_right:
            raise VerifyError(_sentence(table, shape, verdict, sink.ts, self._task.show_values))
        self._report.tables += 1
        self._report.rows += verdict.rows
        self._report.rows_changed_by_ddl += verdict.by_ddl


class _Read:
    """A table on its way: the spills of what SQL read and of the changes since."""

    def __init__(self, table: DatabaseTable, directory: Path, size_bytes: int) -> None:
        names = tuple(column.name for column in table.columns)
        if not set(table.key) <= set(names):
            raise TableChanged(table.name)
        self.table, self.directory, self.key = table, directory, (table.schema, table.table)
        self.shape = Shape(
            names, tuple(column.type for column in table.columns), tuple(names.index(name) for name in table.key)
        )
        self.buckets = bucket_count(4 * size_bytes + BUCKET_BYTES // 2)  # the sink may hold many changes of a row
        self.rows = Spill(directory / "read", len(names), self.buckets)
        self.window = Spill(directory / "window", len(names), self.buckets)


def _check_columns(table: DatabaseTable, landed: Sequence[Column] | None, may_retry: bool) -> None:
    """The last schema file must have the columns of the database."""
    if landed is None:
        return
    known = {column.name for column in landed} - table.virtual
    wanted = {column.name for column in table.columns}
    if not wanted <= known:
        if may_retry:
            raise _Again
        raise VerifyError(
            f"{table.name}: its last schema file lacks the column {min(wanted - known)!r} of the database"
        )


def _sentence(table: DatabaseTable, shape: Shape, verdict: Verdict, ts: int, show_values: bool) -> str:
    counts = {"missing": verdict.missing, "too many": verdict.extra, "different": verdict.different}
    said = ", ".join(f"{count:,} rows are {word}" for word, count in counts.items() if count)
    first = verdict.named[0]
    place = f", last written at commit-ts {first.ts}," if first.ts else ""
    if show_values:
        names = [shape.names[i] for i in shape.key or range(len(shape.names))]
        shown = ", ".join(f"{name} = {_text(value)}" for name, value in zip(names, first.key, strict=True))
        row = f"the row with {shown}{place}"
    else:
        row = f"one{place}"
    hint = "" if show_values else "; --show-values shows which"
    return f"{table.name} differs at commit-ts {ts}: {said} on the sink; {row} {first.what}{hint}"


def _text(value: bytes | None) -> str:
    return "NULL" if value is None else repr(value.decode(errors="backslashreplace"))
