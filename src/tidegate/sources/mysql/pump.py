"""The pump: one thread that reads the log of the server, from a place on, into the relay and its index.

Promises:
* Each session has a server id of its own, by chance: a server cuts off the older of two readers with one id, and says
  nothing. What was reached is known by position, so a session that ends early is only begun again.
* The server says at least every second that it lives. If it is silent, the connection counts as lost.
* A server that is away is asked again, with pauses, for as long as the changefeed runs; the status says so. Only what
  cannot pass ends it: another server, a log that was purged, rights, a log that cannot be followed.
* Above its caps the pump does not read. But it does while no whole transaction is at hand, or nobody would go on.
* It ends when its changefeed has: with its process, or when the relay's directory is gone.
"""

from __future__ import annotations

import os
import random
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from pymysql.connections import Connection
from pymysql.err import MySQLError

from tidegate.errors import BadLog, SourceUnavailable, TidegateError
from tidegate.sources.mysql.address import Address
from tidegate.sources.mysql.connect import ServerFacts, ask, clock_us, close, connect, failure, server_facts
from tidegate.sources.mysql.dump import MOST_POSITION, request_dump
from tidegate.sources.mysql.indexer import Indexer
from tidegate.sources.mysql.log.framing import ServerSays
from tidegate.sources.mysql.log.stream import Arrived, end_of
from tidegate.sources.mysql.log.transactions import Assembler, Moved, Position, Reached, Step, file_number

HEARTBEAT_S = 1.0
SILENT_S = 30.0  # without a heartbeat the connection counts as lost
_LOOK_S = 0.5
_PAUSES_S = (0.2, 1.0, 2.0, 5.0, 10.0)
_INDEX_BYTES = 128 << 20
_POSITION_GONE = 1236
_SAME_ID = "same server"


class ServerClock:
    """The server's clock: asked now and then, carried on by the steady clock of this machine."""

    def __init__(self, steady: Callable[[], float] = time.monotonic) -> None:
        self._steady = steady
        self._asked: tuple[int, float] | None = None

    def said(self, now_us: int) -> None:
        self._asked = (now_us, self._steady())

    def ms(self) -> int | None:
        """None before the first answer."""
        if self._asked is None:
            return None
        at_us, then = self._asked
        return at_us // 1000 + int((self._steady() - then) * 1000)


@dataclass
class Pump:
    """`lock` guards the index; whoever waits for more of the log waits on it. `error` ends the changefeed."""

    address: Address
    password: str
    server: ServerFacts
    indexer: Indexer
    lock: threading.Condition
    clock: ServerClock = field(default_factory=ServerClock)
    error: BaseException | None = None
    away: str = ""  # why the server is not read at this moment
    full: str = ""  # why the pump does not read although the server is there
    waits_since: float | None = None  # when the server began to have nothing more
    received_bytes: int = 0
    must_read: Callable[[], bool] = lambda: False  # whether nothing goes on before more of the log is there
    _stop: threading.Event = field(default_factory=threading.Event)
    _parent: int = field(default_factory=os.getppid)
    _safe: tuple[str, int] = ("", 0)  # behind the last whole transaction
    _skips: bool = False  # the session began before that
    _said_place: tuple[str, int] = ("", 0)  # where the server said that it is

    def start(self) -> None:
        self._safe = (self.indexer.assembler.file, self.indexer.assembler.at)
        threading.Thread(target=self._run, name="pump", daemon=True).start()

    def stop(self) -> None:
        self._stop.set()
        with self.lock:
            self.lock.notify_all()

    @property
    def ends(self) -> bool:
        """Whether somebody asked for it, or the changefeed is gone and this process is left over."""
        orphaned = os.getppid() != self._parent or self.indexer.relay.is_gone()
        return self._stop.is_set() or orphaned

    def _run(self) -> None:
        tries = 0
        while not self.ends:
            try:
                before = self.received_bytes
                self._session()
                raise SourceUnavailable(f"{self.address.endpoint} ended its log; it may be shutting down")
            except _Ended:
                return
            except SourceUnavailable as exc:
                tries = 0 if self.received_bytes > before else tries + 1
                self._break_off(str(exc))
                self._stop.wait(_PAUSES_S[min(tries, len(_PAUSES_S) - 1)])
            except BaseException as exc:
                with self.lock:
                    self.error = exc
                    self.lock.notify_all()
                return

    def _break_off(self, reason: str) -> None:
        with self.lock:
            self.away, self.waits_since = reason, None
            self.indexer.break_off()
            old = self.indexer.assembler
            self.indexer.assembler = Assembler(*self._safe, old.origins, old.stop)
            self.lock.notify_all()

    def _session(self) -> None:
        connection = connect(self.address, self.password)
        try:
            self._check(connection)
            file, at = self._begin()
            request_dump(connection, self.address, file, at, random.randrange(1 << 31, 1 << 32), HEARTBEAT_S)
            self._read(connection, Arrived())
        except ServerSays as exc:
            raise self._said(exc) from exc
        except (OSError, MySQLError, struct.error) as exc:
            raise failure(self.address, exc) from exc
        finally:
            close(connection)

    def _begin(self) -> tuple[str, int]:
        """From where on to ask for the log: for a place that cannot be asked for, from the start of its file."""
        file, at = self._safe
        self._skips = at > MOST_POSITION
        if self._skips:
            old = self.indexer.assembler
            self.indexer.assembler = Assembler(file, 4, old.origins, Position(file_number(file), at))
        return file, 4 if self._skips else at

    def _check(self, connection: Connection) -> None:
        """It must be the server that was followed before: another one has other positions."""
        found = server_facts(connection, self.address)
        if found.identity != self.server.identity:
            raise another_server(self.address, self.server.identity, found.identity)
        self.clock.said(clock_us(connection, self.address))

    def _read(self, connection: Connection, arrived: Arrived) -> None:
        sock = connection._sock
        sock.settimeout(SILENT_S)
        last = time.monotonic()
        while True:
            self._await_room()
            if not _readable(sock, _LOOK_S):
                if time.monotonic() - last > SILENT_S:
                    raise SourceUnavailable(f"{self.address.endpoint} has been silent for {SILENT_S:.0f} s")
                continue
            if not _receive(sock, arrived):
                return
            last = time.monotonic()
            if self._take(arrived):
                return

    def _take(self, arrived: Arrived) -> bool:
        """Puts what is whole into the index; True at the end of the log."""
        arrivals, other = arrived.take()
        self.received_bytes += int(arrivals.size.sum())
        with self.lock:
            indexer, clock_ms = self.indexer, self.clock.ms()
            for step in indexer.assembler.feed(arrivals):
                if not self._is_before(step):
                    indexer.take(step, clock_ms)
                    self._note(step)
                del step
            self.lock.notify_all()
        del arrivals
        arrived.drop()
        if other is not None:
            end_of(other)
        return other is not None

    def _is_before(self, step: Step) -> bool:
        """Whether the step is before the place from which on the log is wanted, and only came with its file."""
        if self._skips and (isinstance(step, Reached) or self.indexer.assembler.file != self._safe[0]):
            self._skips = False
            self.indexer.assembler.stop = self.indexer.settler.stop
        return self._skips

    def _note(self, step: Step) -> None:
        """Where a new session would begin, and whether the server has more."""
        assembler = self.indexer.assembler
        if not assembler.is_open:
            self._safe = (assembler.file, assembler.at)
        self.away = ""
        if isinstance(step, Moved):
            self._said_place = (step.file, step.position.at)
        if isinstance(step, Moved) and step.waits:
            self.waits_since = self.waits_since if self.waits_since is not None else time.monotonic()
        else:
            self.waits_since = None

    @property
    def reached(self) -> tuple[str, int]:
        """Up to where the log is known. The server tells a place behind the last transaction, where nothing is."""
        told, read = self._said_place, (self.indexer.assembler.file, self.indexer.assembler.at)
        order = [(file_number(file), at) for file, at in (told, read) if file]
        return told if len(order) == 2 and order[0] > order[1] and not self.indexer.assembler.is_open else read

    def _await_room(self) -> None:
        with self.lock:
            while reason := self._full():
                self.full = reason
                self._leave_if_ended()
                self.lock.wait(_LOOK_S)
            self.full = ""
        self._leave_if_ended()

    def _leave_if_ended(self) -> None:
        if self.ends:
            raise _Ended

    def _full(self) -> str:
        chain, relay = self.indexer.chain, self.indexer.relay
        if not len(chain.items) or self.must_read():
            return ""
        if relay.held_bytes > self.address.relay_bytes:
            return f"the relay holds {relay.held_bytes >> 20} MiB, of {self.address.relay_bytes >> 20} that it may have"
        return "the index of the relay is full" if chain.held_bytes > _INDEX_BYTES else ""

    def _said(self, error: ServerSays) -> TidegateError:
        """What the server said instead of the log."""
        file, at = self._safe
        if error.code != _POSITION_GONE or _SAME_ID in str(error):
            return SourceUnavailable(f"{self.address.endpoint}: {error}")
        return BadLog(
            f"{self.address.endpoint} has no log any more from {file}:{at} on, where this changefeed is: {error}; "
            "start anew on an empty prefix, which takes a new snapshot, and raise binlog_expire_logs_seconds there so "
            "that the log outlives the longest stop"
        )


class _Ended(Exception):
    """Nobody needs the pump any more."""


def another_server(address: Address, wanted: str, found: str) -> BadLog:
    return BadLog(
        f"{address.endpoint} is another server than the one that was followed ({found}, not {wanted}): its log has "
        "other positions; go back to that server, or start anew on an empty prefix, which takes a new snapshot"
    )


def _readable(sock: socket.socket, wait_s: float) -> bool:
    if isinstance(sock, ssl.SSLSocket) and sock.pending():
        return True
    return bool(select.select([sock], [], [], wait_s)[0])


def _receive(sock: socket.socket, arrived: Arrived) -> bool:
    """As much as there is, up to a full buffer: large blocks cost less. False if the connection is closed."""
    while True:
        count = sock.recv_into(arrived.room())
        if not count:
            return False
        arrived.added(count)
        if arrived.is_full or not _readable(sock, 0):
            return True


def check_continuity(connection: Connection, address: Address, is_mariadb: bool, file: str, at: int, gtid: str) -> None:
    """The log must still be the one in which this transaction stood before this place, and not one begun anew."""
    if not gtid:
        return
    if is_mariadb:
        ((found,),) = ask(connection, address, "SELECT BINLOG_GTID_POS(%s, %s)", file, at)
        same = found is None or gtid in found.split(",")
    else:
        name = gtid.rpartition(":")
        ((same,),) = ask(connection, address, "SELECT GTID_SUBSET(%s, @@global.gtid_executed)", ":".join(name[::2]))
    if not same:
        raise BadLog(
            f"{address.endpoint} does not know transaction {gtid} before {file_number(file)}:{at}: its log was begun "
            "anew, or it was restored; start anew on an empty prefix, which takes a new snapshot"
        )
