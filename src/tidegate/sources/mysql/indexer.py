"""From steps of the log to the relay and its index: what is followed is kept, commit-ts are given, DDLs applied.

No network and no thread: the pump feeds it. A transaction that breaks off, because the connection is lost, is forgotten
as if it had never come. What the log holds and cannot be followed is refused by name, before anything behind it counts:

    XA PREPARE with changes of a followed table      the log has them before they are committed, or not
    a transaction that is rolled back with such      an engine without transactions has kept the changes
    row events in a form that is not read            compressed, partial JSON
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tidegate.errors import BadLog, BrokenInvariant
from tidegate.sources.mysql.catalogue import Catalogue, DdlRow
from tidegate.sources.mysql.chain import Chain, Extra
from tidegate.sources.mysql.log import framing as k
from tidegate.sources.mysql.log import transactions as t
from tidegate.sources.mysql.log.control_events import Query
from tidegate.sources.mysql.log.images import Numbers, unsigned
from tidegate.sources.mysql.log.transactions import Assembler, Position, Run
from tidegate.sources.mysql.place import Place
from tidegate.sources.mysql.relay import Relay
from tidegate.sources.mysql.schema import LogSchema
from tidegate.sources.mysql.tables import NOT_FOLLOWED, Tables
from tidegate.sources.mysql.windows import Settler, Virtual

_WITHIN = ("SAVEPOINT", "RELEASE", "ROLLBACK", "XA", "BEGIN", "COMMIT", "#")
_UNREAD = np.array(t.UNREAD_ROWS)


@dataclass
class _Open:
    """The transaction that has not ended."""

    ts: int
    origin: int
    number: int
    ddl: list[DdlRow] = field(default_factory=list)


def _no_chunks(name: str, catalogue: Catalogue) -> Extra:
    raise BrokenInvariant(f"chunk {name} is on record, but there is no snapshot")


@dataclass
class Indexer:
    chain: Chain
    relay: Relay
    settler: Settler
    tables: Tables
    schema: LogSchema
    assembler: Assembler
    describe: Callable[[str, Catalogue], Extra] = _no_chunks  # what a chunk of this name is, here in the log
    _open: _Open | None = None
    _ended_with: Catalogue | None = None  # the catalogue behind the last transaction

    def __post_init__(self) -> None:
        self._ended_with = self.schema.catalogue
        self._arrive(self.assembler.position)

    def take(self, step: t.Step, clock_ms: int | None) -> None:
        match step:
            case Run():
                self._run(step, clock_ms)
            case t.Statement(query, ends, position):
                self._statement(query, ends, position)
            case t.Prepared(position):
                self._refuse_rows("holds changes of an XA transaction that is only prepared; use plain transactions")
                self._end(position)
            case t.RolledBack(position):
                self._refuse_rows("has changes in a transaction that was rolled back; use an engine with transactions")
                self._end(position)
            case t.Moved(waits=False):
                self.tables.forget()
                self.relay.begin_segment()
        if self._open is None:
            self._ended_with = self.schema.catalogue
            self._arrive(self.assembler.position)

    def tick(self, clock_ms: int) -> None:
        """Nothing happens on the server: time goes on all the same."""
        if self._open is None and self.settler.is_live:
            made = self.settler.tick(self.assembler.position, clock_ms)
            self._add_virtual([made] if made is not None else [])

    def chunk(self, name: str) -> bool:
        """Puts a chunk of a snapshot at the end of what is known; False if that is not possible at this moment."""
        if self._open is not None or not self.settler.is_live:
            return False
        self._add_virtual([self.settler.chunk(self.assembler.position, name)])
        return True

    def break_off(self) -> None:
        """The connection is lost: what has not ended is read again."""
        self._open = None
        self.chain.forget_open()
        self.settler.go_back(self.chain.last("ts"))
        self.tables.forget()
        self.relay.begin_segment()
        if self._ended_with is not None:
            self.schema.go_back(self._ended_with, Position(self.chain.last("file"), self.chain.last("at")))

    # -- runs --------------------------------------------------------------------------------------------------------

    def _run(self, run: Run, clock_ms: int | None) -> None:
        rows_before = self.chain.rows.end
        of = self._keep_rows(run)
        ts, origin, number = self._named(run, clock_ms)
        ended = len(run.ended)
        if ended:
            rows_end = rows_before + np.searchsorted(of, np.arange(ended), side="right")
            if run.goes_on:
                self._add_ddl()
            file = self.assembler.position.file
            self.chain.add_items(ts[:ended], file, run.ended, origin[:ended], number[:ended], rows_end)
        if not run.is_open:
            self._open = None
        elif len(run.begun):
            self._open = _Open(int(ts[-1]), int(origin[-1]), int(number[-1]))

    def _named(self, run: Run, clock_ms: int | None) -> tuple[Numbers, Numbers, Numbers]:
        """Commit-ts, origin and number of the run's transactions, the one that was open included."""
        begun = run.begun
        ts = self.settler.settle(begun.time_ms, lambda i: self._gtid(run, i), clock_ms)
        if not run.goes_on:
            return ts, begun.origin, begun.number
        if self._open is None:
            raise BrokenInvariant("a transaction goes on that was never begun")
        opened = (self._open.ts, self._open.origin, self._open.number)
        first, second, third = (
            np.concatenate([[value], column])
            for value, column in zip(opened, (ts, begun.origin, begun.number), strict=True)
        )
        return first, second, third

    def _gtid(self, run: Run, i: int) -> str:
        """A name for each transaction; anonymous ones are named by their place, which is as good on one server."""
        name = self.assembler.origins.name(int(run.begun.origin[i]), int(run.begun.number[i]))
        return name or f"{self.assembler.file}#{int(run.begun.place[i])}"

    def _keep_rows(self, run: Run) -> Numbers:
        """Writes the row events of followed tables to the relay; returns the transaction of each in the run."""
        rows = run.rows
        self._learn_tables(run)  # also without rows: those of the last TABLE_MAP may come with the next run
        if not len(rows.start):
            return rows.transaction
        table = self._table_numbers(run)
        wanted = table != NOT_FOLLOWED
        if not wanted.all():
            rows, table = t.RowEvents(*(column[wanted] for column in rows)), table[wanted]
        if not len(rows.start):
            return rows.transaction
        self._refuse_unread(rows.kind, table)
        segment, places = self.relay.append(run.log, rows.start, rows.end)
        numbers, of = np.unique(table, return_inverse=True)
        ids = np.array([self.tables.by_number[number].table_id for number in numbers.tolist()], np.int64)[of]
        self.chain.add_rows(segment, places, rows.end - rows.start, rows.kind, table, rows.ordinal, ids)
        return rows.transaction

    def _learn_tables(self, run: Run) -> None:
        """Learns the TABLE_MAPs that are not known yet."""
        log = run.log
        ids, first = np.unique(unsigned(log, run.map_start, 6), return_index=True)
        for table_id, at in zip(ids.tolist(), first.tolist(), strict=True):
            start, end = int(run.map_start[at]), int(run.map_end[at])
            self.tables.number(table_id, lambda a=start, b=end: log[a:b].tobytes(), self.schema.catalogue)  # type: ignore[misc]

    def _table_numbers(self, run: Run) -> Numbers:
        """For each row event the number of its table."""
        used, of = np.unique(run.rows.table, return_inverse=True)
        numbers = [self.tables.known(table_id) for table_id in used.tolist()]
        if None in numbers:
            raise BadLog("row changes come without the TABLE_MAP of their table: the log is broken")
        return np.array(numbers, np.int64)[of]

    # -- statements --------------------------------------------------------------------------------------------------

    def _statement(self, query: Query, ends: bool, position: Position) -> None:
        if self._open is None:
            raise BrokenInvariant("a statement stands outside of transactions")
        head = query.text.lstrip()[:12].upper()
        if head.startswith("ROLLBACK"):
            self._refuse_rows("has changes that were rolled back to a savepoint; use an engine with transactions")
        if not head.startswith(_WITHIN):
            self._apply(query, ends)
        if ends:
            self._end(position)

    def _apply(self, query: Query, ends: bool) -> None:
        """A DDL has commit-ts of its own, before that of rows which follow in its transaction (CREATE ... SELECT)."""
        assert self._open is not None
        place = Place(self.assembler.file, self.assembler.at)
        found = self.schema.statement(query, self._open.ts, place)
        if found:
            self.tables.forget()
        self._open.ddl += found
        more = max(0, len(found) - ends)
        self.settler.more(more)
        self._open.ts += more

    def _end(self, position: Position) -> None:
        """The open transaction ends without another event."""
        if self._open is None:
            raise BrokenInvariant("a transaction ends that was never begun")
        self._add_ddl()
        one = (np.array([value]) for value in (self._open.ts, position.at, self._open.origin, self._open.number))
        ts, at, origin, number = one
        self.chain.add_items(ts, position.file, at, origin, number, np.array([self.chain.rows.end]))
        self._open = None

    def _add_ddl(self) -> None:
        if self._open is not None and self._open.ddl:
            size = sum(len(row.event.to_json()) for row in self._open.ddl)
            self.chain.add_extra(self.chain.items.end, Extra(ddl=tuple(self._open.ddl), size_bytes=size))

    # -- refusals ----------------------------------------------------------------------------------------------------

    def _refuse_rows(self, what: str) -> None:
        """Refuse the open transaction if it has row events of a followed table."""
        first = self.chain.last("rows_end")
        if self.chain.rows.end > first:
            table = self.tables.by_number[self.chain.rows.one("table", first)]
            raise BadLog(f"{table.name} {what}; the transaction ends before {self._place}")

    def _refuse_unread(self, kind: Numbers, table: Numbers) -> None:
        bad = np.flatnonzero(np.isin(kind, _UNREAD))
        if len(bad):
            name = self.tables.by_number[int(table[bad[0]])].name
            raise BadLog(f"{name}: the log holds {k.REFUSED[int(kind[bad[0]])]}; before {self._place}")

    @property
    def _place(self) -> str:
        return f"{self.assembler.file}:{self.assembler.at}"

    # -- ticks and chunks --------------------------------------------------------------------------------------------

    def _arrive(self, position: Position) -> None:
        self._add_virtual(self.settler.arrive(position))
        self.assembler.stop = self.settler.stop

    def _add_virtual(self, found: list[Virtual]) -> None:
        for each in found:
            self.chain.add_virtual(each.place, self.describe(each.chunk, self.schema.catalogue) if each.chunk else None)
