"""Finds transactions in the events of a log, by columns: no Python step for each event.

`Assembler.feed` turns arrivals into steps, in the order of the log:

    Run        events between two of the others: transactions that begin and end, their row events and TABLE_MAPs
    Statement  a statement other than BEGIN and COMMIT; it may be a transaction of its own, such as a DDL
    Prepared   XA PREPARE ends the events of a transaction that is not committed
    RolledBack the transaction has no effect, except on engines without transactions
    Moved      the log goes on in another file, or the server waits at its end
    Reached    the next transaction begins at or behind `stop`, a place that the caller asked for

A transaction begins with the event that names it (GTID). It ends with XID, COMMIT, XA PREPARE, or with its statement if
it has only one. Whatever stands where it cannot be is refused: a log that is not understood must not be followed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tidegate.errors import BadLog
from tidegate.sources.mysql.log import framing as k
from tidegate.sources.mysql.log.control_events import (
    Query,
    read_format,
    read_heartbeat,
    read_heartbeat_2,
    read_query,
    read_rotate,
    read_tagged_gtid,
)
from tidegate.sources.mysql.log.framing import HEADER_BYTES
from tidegate.sources.mysql.log.images import Bytes, Numbers, unsigned
from tidegate.sources.mysql.log.origins import ANONYMOUS, Origins
from tidegate.sources.mysql.log.stream import Arrivals, unpacked

_IGNORABLE = 0x80  # a flag of events that a reader need not know
_GTIDS = (k.GTID, k.ANONYMOUS_GTID, k.TAGGED_GTID, k.MARIADB_GTID)
_PLAIN_ROWS = tuple(k.ROWS)
# Row events in a form that is not read: refused if their table is followed.
UNREAD_ROWS = (k.PARTIAL_UPDATE, 20, 21, 22, 166, 167, 168, 169, 170, 171)
# Within runs: nothing is to be done about them. 5, 13, 14 are variables of statements, 36, 37 of group replication.
_PASSED = (k.ROWS_QUERY, k.ANNOTATE, 5, 13, 14, 28, 36, 37)
# Outside of transactions: the log about itself.
_ABOUT_LOG = (k.PREVIOUS_GTIDS, k.GTID_LIST, k.CHECKPOINT, k.STOP)
_BEGIN, _COMMIT, _OTHER = 1, 2, 3

_IN_RUNS = np.zeros(256, np.bool_)
_IN_RUNS[[*_GTIDS, *_PLAIN_ROWS, *UNREAD_ROWS, *_PASSED, *_ABOUT_LOG, k.TABLE_MAP, k.XID, k.QUERY]] = True
_IS_GTID, _IS_ROWS = np.zeros(256, np.bool_), np.zeros(256, np.bool_)
_IS_GTID[list(_GTIDS)] = True
_IS_ROWS[[*_PLAIN_ROWS, *UNREAD_ROWS]] = True


class Position(NamedTuple):
    """A place in the log: the number of its file, and the byte in it. `Position(7, 4)` is the start of `bin.000007`."""

    file: int
    at: int


def file_number(file: str) -> int:
    """7 for `bin.000007`."""
    digits = file.rpartition(".")[2]
    if not digits.isdigit():
        raise BadLog(f"the log file {file!r} has no number at its end")
    return int(digits)


class Begun(NamedTuple):
    """Transactions that begin in a run: commit times, names as a number behind an origin, where they begin."""

    time_ms: Numbers
    origin: Numbers
    number: Numbers
    place: Numbers

    def __len__(self) -> int:
        return len(self.time_ms)


class RowEvents(NamedTuple):
    """Row events of a run. `transaction` counts those of the run; `ordinal` is the event's number in its own.

    `table` is the id that the TABLE_MAP of this part of the log gives its table.
    """

    start: Numbers
    end: Numbers
    kind: Numbers
    table: Numbers
    transaction: Numbers
    ordinal: Numbers


class Run(NamedTuple):
    """`goes_on`: transaction 0 began before. `ended` are the places behind the first transactions; one may be open."""

    log: Bytes
    goes_on: bool
    begun: Begun
    ended: Numbers
    rows: RowEvents
    map_start: Numbers
    map_end: Numbers

    @property
    def is_open(self) -> bool:
        """Whether the last transaction goes on behind the run."""
        return len(self.begun) + self.goes_on > len(self.ended)


class Statement(NamedTuple):
    query: Query
    ends: bool  # the transaction
    position: Position


class Prepared(NamedTuple):
    position: Position


class RolledBack(NamedTuple):
    position: Position


class Moved(NamedTuple):
    """`waits`: the server has sent all there is."""

    file: str
    position: Position
    waits: bool


class Reached(NamedTuple):
    pass


Step = Run | Statement | Prepared | RolledBack | Moved | Reached


@dataclass
class Assembler:
    """`file` is where the log is read; `at` the place behind the last event. `stop` may be set between two steps."""

    file: str
    at: int
    origins: Origins = field(default_factory=Origins)
    stop: Position | None = None
    is_open: bool = False
    _ordinal: int = 0  # events of the open transaction so far
    _alone: bool = False  # a statement is all there is of the open transaction
    _checksum_bytes: int = k.CHECKSUM_BYTES

    def __post_init__(self) -> None:
        self._number = file_number(self.file)

    @property
    def position(self) -> Position:
        return Position(self._number, self.at)

    def feed(self, arrivals: Arrivals) -> Iterator[Step]:
        """`arrivals` with their checksums: whether there are any is said by the log, for each of its files."""
        first = 0
        for i in [*np.flatnonzero(arrivals.kind == k.FORMAT).tolist(), len(arrivals.start)]:
            part = arrivals.part(first, i)
            for piece in unpacked(part._replace(end=part.end - self._checksum_bytes)):
                yield from self._steps(piece)
            if i < len(arrivals.start):
                self._checksum_bytes = read_format(bytes(arrivals.body(i))).checksum_bytes
            first = i + 1

    def _steps(self, arrivals: Arrivals) -> Iterator[Step]:
        first, count = 0, len(arrivals.start)
        queries = _classified(arrivals)
        special = np.flatnonzero(~_IN_RUNS[arrivals.kind] | (queries == _OTHER)).tolist()
        for i in [*special, count]:
            yield from self._runs(arrivals.part(first, i), queries[first:i])
            if i < count:
                step = self._special(arrivals.part(i, i + 1))
                if step is not None:
                    yield step
            first = i + 1

    # -- runs --------------------------------------------------------------------------------------------------------

    def _runs(self, part: Arrivals, queries: Numbers) -> Iterator[Step]:
        """One run, or several around the places where the caller wants to stop."""
        while len(part.start):
            places, before = self._places(part), self.stop
            cut = self._first_behind_stop(part, places)
            if cut > 0:
                yield self._run(part.part(0, cut), queries[:cut], places[:cut])
            if cut < len(part.start) and self.stop == before:  # a run that ends there has moved it already
                yield Reached()
                assert self.stop is None or before is None or self.stop > before, "the caller moves the stop"
            part, queries = part.part(cut, len(part.start)), queries[cut:]

    def _places(self, part: Arrivals) -> Numbers:
        """The place behind each event. The log has 32 bits of it, so it is counted on from the last one."""
        low = np.concatenate([[self.at & 0xFFFFFFFF], part.next])
        step = np.diff(low)
        # Events that the server makes up have no place of their own.
        step[part.next == 0] = 0
        if (part.next == 0).any():
            real = np.flatnonzero(part.next != 0)
            step[real] = np.diff(np.concatenate([[self.at & 0xFFFFFFFF], part.next[real]]))
        return self.at + np.cumsum(np.where(step < 0, step + (1 << 32), step))

    def _first_behind_stop(self, part: Arrivals, places: Numbers) -> int:
        if self.stop is None or self._number < self.stop.file:
            return len(part.start)
        gtids = np.flatnonzero(_IS_GTID[part.kind])
        behind = gtids[(places - part.size)[gtids] >= (self.stop.at if self._number == self.stop.file else 0)]
        return int(behind[0]) if len(behind) else len(part.start)

    def _run(self, part: Arrivals, queries: Numbers, places: Numbers) -> Run:
        is_gtid = _IS_GTID[part.kind]
        is_end = (part.kind == k.XID) | (queries == _COMMIT)
        gtids, ends = np.flatnonzero(is_gtid), np.flatnonzero(is_end)
        self._refuse_disorder(gtids, ends)
        goes_on = self.is_open
        transaction = np.cumsum(is_gtid) - (0 if goes_on else 1)
        firsts = np.concatenate([[-1 - self._ordinal], gtids]) if goes_on else gtids
        rows = self._rows(part, transaction, firsts, ends)
        begun = self._begun(part, gtids, (places - part.size)[gtids])
        maps = np.flatnonzero(part.kind == k.TABLE_MAP)
        self._remember(part, queries, gtids, firsts, len(ends))
        self.at = int(places[-1])
        body = part.start[maps] + HEADER_BYTES
        return Run(part.log, goes_on, begun, places[ends], rows, body, part.end[maps])

    def _refuse_disorder(self, gtids: Numbers, ends: Numbers) -> None:
        """Beginnings and ends must take turns."""
        marks = np.concatenate([gtids, ends])
        is_end = np.repeat([False, True], [len(gtids), len(ends)])[np.argsort(marks)]
        turns = np.concatenate([[not self.is_open], is_end])
        if (turns[1:] == turns[:-1]).any():
            raise BadLog(
                f"a transaction of the log file {self.file} begins before the last one has ended, or ends before it "
                f"begins, behind position {self.at}: the log is broken, or written without GTIDs"
            )

    def _rows(self, part: Arrivals, transaction: Numbers, firsts: Numbers, ends: Numbers) -> RowEvents:
        at = np.flatnonzero(_IS_ROWS[part.kind])
        of = transaction[at]
        if len(at) and (int(of[0]) < 0 or self._is_between(at, firsts, ends)):
            raise BadLog(f"the log file {self.file} has row changes outside of transactions, behind position {self.at}")
        table = unsigned(part.log, part.start[at] + HEADER_BYTES, 6).astype(np.int64)
        ordinal = at - firsts[of] - 1 if len(at) else at
        return RowEvents(part.start[at], part.end[at], part.kind[at], table, of, ordinal)

    def _is_between(self, at: Numbers, firsts: Numbers, ends: Numbers) -> bool:
        """Whether an event stands behind the end of a transaction and before the next one."""
        begun, ended = np.searchsorted(firsts, at), np.searchsorted(ends, at)
        return bool((begun == ended).any())

    def _remember(self, part: Arrivals, queries: Numbers, gtids: Numbers, firsts: Numbers, ended: int) -> None:
        """What is open behind the run. MySQL's transactions of several events have a BEGIN; MariaDB's have a flag."""
        self.is_open = len(firsts) > ended
        self._ordinal = len(part.start) - 1 - int(firsts[-1]) if self.is_open else 0
        last = int(gtids[-1]) if len(gtids) else -1
        if last >= 0:
            flags = part.log[part.start[last] + HEADER_BYTES + 12] if part.kind[last] == k.MARIADB_GTID else 1
            self._alone = bool(flags & 1)
        if (queries[last + 1 :] == _BEGIN).any():
            self._alone = False

    # -- names of transactions ---------------------------------------------------------------------------------------

    def _begun(self, part: Arrivals, gtids: Numbers, place: Numbers) -> Begun:
        kinds, start, log = part.kind[gtids], part.start[gtids], part.log
        time_ms, origin, number = (np.zeros(len(gtids), np.int64) for _ in range(3))
        body = start + HEADER_BYTES
        maria = np.flatnonzero(kinds == k.MARIADB_GTID)
        if len(maria):
            time_ms[maria] = unsigned(log, start[maria], 4).astype(np.int64) * 1000
            number[maria] = unsigned(log, body[maria], 8).astype(np.int64)
            server, domain = unsigned(log, start[maria] + 5, 4), unsigned(log, body[maria] + 8, 4)
            origin[maria] = self.origins.of_mariadb(domain.astype(np.int64), server.astype(np.int64))
        mine = np.flatnonzero((kinds == k.GTID) | (kinds == k.ANONYMOUS_GTID))
        if len(mine):
            time_ms[mine] = _commit_us(log, body[mine]) // 1000
            number[mine] = unsigned(log, body[mine] + 17, 8).astype(np.int64)
            origin[mine] = self.origins.of_mysql(log, body[mine] + 1)
        nameless = kinds == k.ANONYMOUS_GTID
        if nameless.any():
            origin[nameless] = self.origins.number_of(ANONYMOUS)
        for i in np.flatnonzero(kinds == k.TAGGED_GTID).tolist():
            found = read_tagged_gtid(bytes(part.body(int(gtids[i]))))
            name, _, count = found.text.rpartition(":")
            time_ms[i], number[i], origin[i] = found.commit_us // 1000, int(count), self.origins.number_of(f"{name}:")
        return Begun(time_ms, origin, number, place)

    # -- all other events --------------------------------------------------------------------------------------------

    def _special(self, event: Arrivals) -> Step | None:
        kind, body = int(event.kind[0]), bytes(event.body(0))
        flags = int(unsigned(event.log, event.start + 17, 2)[0])
        if kind in (k.HEARTBEAT, k.HEARTBEAT_2):
            return self._heartbeat(kind, body, int(event.next[0]))
        if kind == k.ROTATE:
            return self._rotate(event)
        if int(event.next[0]):
            self.at = int(self._places(event)[0])
        if kind == k.QUERY:
            return self._statement(read_query(body))
        if kind == k.XA_PREPARE:
            return self._xa_prepare(body)
        if kind in k.REFUSED:
            raise BadLog(f"the log holds {k.REFUSED[kind]}")
        if not flags & _IGNORABLE:
            raise BadLog(f"the log file {self.file} has an event of the unknown kind {kind} before position {self.at}")
        self._ordinal += self.is_open
        return None

    def _heartbeat(self, kind: int, body: bytes, low: int) -> Step:
        if kind == k.HEARTBEAT_2:
            file, at = read_heartbeat_2(body)
        else:
            file, at = read_heartbeat(body), self.at + (low - self.at) % (1 << 32)
        return Moved(file, Position(file_number(file), at), waits=not self.is_open)

    def _rotate(self, event: Arrivals) -> Step:
        """The server says this at the end of a file, and also makes it up at the start. It may have a checksum."""
        rotate = read_rotate(_without_checksum(event))
        self.file, self._number, self.at = rotate.file, file_number(rotate.file), rotate.position
        if self.is_open:
            raise BadLog(f"the log file before {rotate.file} ends within a transaction: the log is broken")
        return Moved(self.file, self.position, waits=False)

    def _statement(self, query: Query) -> Step:
        if not self.is_open:
            raise BadLog(f"the log has a statement outside of transactions before {self.file}:{self.at}; enable GTIDs")
        self._ordinal += 1
        if query.text.strip().upper() == "ROLLBACK":
            self.is_open = False
            return RolledBack(self.position)
        if _begins(query.text):
            self._alone = False
        self.is_open = not self._alone
        return Statement(query, self._alone, self.position)

    def _xa_prepare(self, body: bytes) -> Step:
        if not self.is_open:
            raise BadLog(f"XA PREPARE stands outside of transactions before {self.file}:{self.at}: the log is broken")
        self.is_open = False
        if body[:1] == b"\1":  # XA COMMIT ... ONE PHASE: it is committed
            nothing = np.zeros(0, np.int64)
            rows = RowEvents(*[nothing] * 6)
            ended = np.array([self.at])
            return Run(np.zeros(8, np.uint8), True, Begun(*[nothing] * 4), ended, rows, nothing, nothing)
        return Prepared(self.position)


def _begins(text: str) -> bool:
    """Whether more follows in its transaction. MySQL writes CREATE ... SELECT as a statement that begins one."""
    head = [word.upper() for word in text.split(None, 2)[:2]]
    return head in (["XA", "START"], ["XA", "BEGIN"]) or text.rstrip().upper().endswith("START TRANSACTION")


def _classified(arrivals: Arrivals) -> Numbers:
    """0 for events that are no statements; BEGIN and COMMIT are told by their last bytes, without reading the event."""
    found = np.zeros(len(arrivals.kind), np.int64)
    at = np.flatnonzero(arrivals.kind == k.QUERY)
    if not len(at):
        return found
    log, body, end = arrivals.log, arrivals.start[at] + HEADER_BYTES, arrivals.end[at]
    database, variables = log[body + 8].astype(np.int64), unsigned(log, body + 11, 2).astype(np.int64)
    size = end - (body + 13 + variables + database + 1)
    last = unsigned(log, end - 8, 8)
    found[at] = _OTHER
    found[at[(size == 5) & (last >> np.uint64(24) == _number(b"BEGIN"))]] = _BEGIN
    found[at[(size == 6) & (last >> np.uint64(16) == _number(b"COMMIT"))]] = _COMMIT
    return found


def _number(text: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(text, "little"))


_ORIGINAL_FOLLOWS = 1 << 55


def _commit_us(log: Bytes, body: Numbers) -> Numbers:
    """When a transaction was committed first: a replica's own time stands before the original one."""
    own = unsigned(log, body + 42, 7).astype(np.int64)
    follows = own & _ORIGINAL_FOLLOWS != 0
    if not follows.any():
        return own
    return np.where(follows, unsigned(log, np.where(follows, body + 49, body + 42), 7).astype(np.int64), own)


def _without_checksum(event: Arrivals) -> bytes:
    """The body of an event that may have a checksum although the log has none, or the other way round."""
    whole = event.log[int(event.start[0]) : int(event.start[0] + event.size[0])].tobytes()
    return whole[HEADER_BYTES:-4] if k.has_checksum(whole) else whole[HEADER_BYTES:]
