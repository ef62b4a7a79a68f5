"""`mysql://...`: the changes of a MySQL or MariaDB server, from its log.

The source is opened in many processes. Only the one in which Spark asks for offsets follows the log (`follower`), from
the first request on; tasks read what it left on the local disk; the driver asks for sizes, which offsets alone tell.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pymysql.connections import Connection

from tidegate.errors import BadSetting
from tidegate.events import tso
from tidegate.sources.mysql.address import NEVER, ONLY, Address, parse_address
from tidegate.sources.mysql.connect import clock_us, connect, connected, server_facts
from tidegate.sources.mysql.cursor import Cursor
from tidegate.sources.mysql.decode import read_rows
from tidegate.sources.mysql.follower import Follower, follow
from tidegate.sources.mysql.history import History
from tidegate.sources.mysql.information_schema import read_catalogue
from tidegate.sources.mysql.inspection import inspect_server, plain_server
from tidegate.sources.mysql.parts import read_part
from tidegate.sources.mysql.place import Place
from tidegate.sources.mysql.private import Private, password_of, read_private
from tidegate.sources.mysql.pump import another_server, check_continuity
from tidegate.sources.mysql.records import Records, Start
from tidegate.sources.mysql.refusals import findings, refuse_entry, refuse_problems
from tidegate.sources.mysql.schema import LogSchema
from tidegate.sources.mysql.snapshot.tasks import emit_part, read_chunk
from tidegate.sources.mysql.state import read_state
from tidegate.sources.source import Offset, SourceState, Split, resolved_row
from tidegate.storage.store import Store

_INSPECT_S = 600  # information_schema of a million tables takes its time


class MysqlSource:
    _follower: Follower | None = None

    def __init__(self, uri: str, private: Private | None = None) -> None:
        address = parse_address(uri)
        self._uri = address.uri
        self.address: Address = address
        self._private = private or Private(password_of(address.password, None, {}))
        self._path = self._private.path
        self.finite = address.snapshot == ONLY

    def __getstate__(self) -> dict[str, Any]:
        """Nothing that is private, and no thread: other processes read the file that the driver wrote."""
        return {"uri": self._uri, "path": self._path}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["uri"], read_private(state["path"]) if state["path"] else None)  # type: ignore[misc]

    def check(self) -> None:
        """Refuses a server, or tables of it, whose changes are not all in its log, by name."""
        ask = partial(connect, self.address, self._private.password, read_timeout=_INSPECT_S)
        refuse_problems(findings(inspect_server(ask, self.address.filter.matches)))

    def initial(self) -> Offset:
        """Where it is in the log is found out once, by the first request, and is on record from then on."""
        return Cursor().offset()

    def latest(self, start: Offset, limit_bytes: int, held: frozenset[int]) -> Offset:
        cursor = Cursor.of(start)
        if self.finite and _is_over(start):
            return start
        end = self._following(cursor).latest(self._placed(cursor), limit_bytes, held)
        return start if end == self._placed(cursor) and not cursor.is_first else end.offset()

    def size_bytes(self, start: Offset, end: Offset) -> int:
        return Cursor.of(end).size_bytes - Cursor.of(start).size_bytes

    def splits(self, start: Offset, end: Offset, parallelism: int) -> list[Split]:
        before, after = Cursor.of(start), Cursor.of(end)
        if before == after:
            return []
        follower = self._following(before)
        return follower.splits(self._placed(before), self._placed(after), max(1, parallelism))

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        if "part" in split:
            yield from read_rows(read_part(split["part"]))
        if "read" in split:
            read_chunk(self.address, self._private.password, self._private.store(), split["read"])
        if "emit" in split:
            yield from emit_part(self._private.store(), split["emit"])
        if split.get("resolved"):
            yield resolved_row(split["resolved"])

    def committed(self, end: Offset) -> None:
        """Everything up to here is accepted."""
        if self._follower is not None:
            self._follower.committed(self._placed(Cursor.of(end)))

    def durable(self, end: Offset) -> None:
        """Everything up to here is durable, so records below are not needed any more."""
        if self._follower is not None:
            self._follower.durable(Cursor.of(end))

    def state(self) -> SourceState | None:
        """What the process that follows the log wrote last."""
        return read_state(self._private.relay_dir) if self._private.relay_dir else None

    def backlog_bytes(self, offset: Offset) -> int | None:
        """The log never ends. If only a snapshot is wanted, something is left until it is over."""
        return None if not self.finite else int(not _is_over(offset))

    def newest_ts(self) -> int | None:
        return None

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Ends the pump; its process may go on."""
        if self._follower is not None:
            self._follower.close()
            self._follower = None

    # -- the planner's process -----------------------------------------------------------------------------------------

    def _placed(self, cursor: Cursor) -> Cursor:
        """The cursor in the log; the first one is where this source began."""
        return self._follower.first if cursor.is_first and self._follower is not None else cursor

    def _following(self, start: Cursor) -> Follower:
        if self._follower is None:
            self._follower = self._begin(start)
        return self._follower

    def _begin(self, start: Cursor) -> Follower:
        """Where it goes on, or begins, and which tables there are at that place."""
        private, address, store = self._private, self.address, self._private.store()
        records = Records(store)
        with connected(address, private.password) as connection:
            server = server_facts(connection, address)
            begun = records.start()
            history = None
            if begun is None:
                begun, history = self._first_start(records, server.identity, clock_us(connection, address))
            if begun.server != server.identity:
                raise another_server(address, begun.server, server.identity)
            cursor = Cursor(begun.file, begun.at, ts=begun.ts) if start.is_first else start
            refuse = partial(refuse_entry, plain_server(connection))
            check_continuity(connection, address, server.is_mariadb, cursor.file, cursor.at, cursor.gtid)
        if history is None or history.place != Place(cursor.file, cursor.at):
            history = self._history(store, cursor)
        folder = Path(private.relay_dir or tempfile.mkdtemp(prefix="tidegate-relay-"))
        return follow(address, private.password, server, records, LogSchema(history, refuse), cursor, folder)

    def _first_start(self, records: Records, identity: str, now_us: int) -> tuple[Start, History]:
        """The catalogue first: whoever finds the start on record finds a catalogue for it, too."""
        ts = tso(now_us // 1000)
        found = read_catalogue(self._connect, self.address.filter, ts, self.address.snapshot != NEVER)
        place = Place(*self.address.begin) if self.address.begin is not None else found.place
        if self._private.keeps_nothing:
            history = History(records.store, place, found.catalogue, 0, "")
        else:
            history = History.begin(records.store, found.catalogue, place)
        return records.begin(Start(identity, history.place.file, history.place.position, ts)), history

    def _history(self, store: Store, cursor: Cursor) -> History:
        first = cursor.first_place
        base = cursor.file.rpartition(".")[0]
        found = History.load(store, Place(f"{base}.{first.file:06d}", first.at))
        if found is None:
            raise BadSetting(
                f"no catalogue of {self.address.endpoint} is on record beside the journal, although changes of it were "
                "landed; bring the objects back, or start anew on an empty prefix"
            )
        return found

    @property
    def _connect(self) -> Callable[[], Connection]:
        return partial(connect, self.address, self._private.password)


def _is_over(offset: Offset) -> bool:
    """Whether the snapshot has ended at this offset."""
    return bool(offset.get("snap", {}).get("over"))
