"""A consistent read, and a place in the log whose transactions it all sees.

A server writes a transaction to its log first, and commits it in the engine afterwards. With semi-synchronous
replication that may be seconds later. So the end of the log says nothing about what a read sees: a transaction before
it may not be visible yet, and would be in neither the read nor the changes behind that place. `begin_read` notes the
end of the log, waits until all that is before it is committed, and only then begins the read:

    MariaDB  a consistent snapshot knows the place in the log that it shows (`binlog_snapshot_position`)
    MySQL    a transaction owns its GTID from before it is written to the log until it is committed (`gtid_owned`)

What the read sees besides is up to chance: transactions behind that place, but none behind `log_end` after the read
has begun.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from pymysql.connections import Connection

from tidegate.errors import SourceUnavailable
from tidegate.sources.mysql.address import Address
from tidegate.sources.mysql.connect import ask, log_end
from tidegate.sources.mysql.log.transactions import file_number

LogPlace = tuple[str, int]  # a log file and a position in it

_BEGIN = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"
_WAIT_S = 20.0
_PAUSE_S = 0.01


def begin_read(connection: Connection, address: Address, is_mariadb: bool, wait_s: float = _WAIT_S) -> LogPlace:
    """Begins a transaction that sees everything up to the place that is returned: `("bin.000007", 1204)`."""
    place = log_end(connection, address, is_mariadb)
    begin = _begin_on_mariadb(connection, address, place) if is_mariadb else _begin_on_mysql(connection, address)
    until = time.monotonic() + wait_s
    while not begin():
        if time.monotonic() > until:
            raise SourceUnavailable(
                f"{address.endpoint}: transactions that are in the log before {place[0]}:{place[1]} are not committed "
                f"after {wait_s:.0f} s, so no rows can be read; does the server wait for a replica?"
            )
        time.sleep(_PAUSE_S)
    return place


def is_before(place: LogPlace, other: LogPlace) -> bool:
    """Files are ordered by the number at the end of their names."""
    return (file_number(place[0]), place[1]) < (file_number(other[0]), other[1])


def shown_place(connection: Connection, address: Address) -> LogPlace:
    """The place in the log that the consistent snapshot shows exactly. Only MariaDB tells it."""
    found = {
        str(name).lower(): value for name, value in ask(connection, address, "SHOW STATUS LIKE 'binlog_snapshot_%'")
    }
    return str(found["binlog_snapshot_file"]), int(found["binlog_snapshot_position"])


def _begin_on_mariadb(connection: Connection, address: Address, place: LogPlace) -> Callable[[], bool]:
    def begin() -> bool:
        ask(connection, address, _BEGIN)
        return not is_before(shown_place(connection, address), place)

    return begin


def _begin_on_mysql(connection: Connection, address: Address) -> Callable[[], bool]:
    ((owned,),) = ask(connection, address, "SELECT @@GLOBAL.gtid_owned")
    names = re.sub(r"#\d+", "", owned)  # `UUID:416#13`: thread 13 owns it

    def begin() -> bool:
        ((all_committed,),) = ask(connection, address, "SELECT GTID_SUBSET(%s, @@GLOBAL.gtid_executed)", names)
        if all_committed:
            ask(connection, address, _BEGIN)
        return bool(all_committed)

    return begin
