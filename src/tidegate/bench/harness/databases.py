"""Real databases for tests and benchmarks: MariaDB and MySQL as processes of this one, on loopback, with fresh data.

    mariadb  Debian's `mariadb-server-core`   installed by scripts/ensure-mariadb.sh
    mysql    unpacked below the environment   fetched by scripts/ensure-mysql.sh

Each has a row log with full metadata and a user `root` without a password. Nothing is synchronised to the disk, because
the data live no longer than the process. `missing(name)` says why a server cannot be started here.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql
from pymysql.connections import Connection

from tidegate.errors import TidegateError
from tidegate.sources.mysql.dump import NO_WAIT, dump
from tidegate.sources.mysql.log.framing import ROTATE, header_of

NAMES = ("mariadb", "mysql")
_START_S = 180.0
_READER_ID = 1001
_CLOCK_CHANGES = "CET-1CEST,M3.5.0,M10.5.0/3"  # a session that sets time_zone to SYSTEM gets this zone
_SHARE = Path("/usr/share/mysql")  # MariaDB's messages and the SQL that fills a new data directory
_SYSTEM_TABLES = ("mysql_system_tables.sql", "mysql_performance_tables.sql", "mysql_system_tables_data.sql")
_UNPACKED = Path(sys.prefix, "mysql")
_BOTH = (
    *("--user=root", "--bind-address=127.0.0.1", "--server-id=1", "--log-bin=bin"),
    *("--binlog-format=ROW", "--binlog-row-image=FULL", "--binlog-row-metadata=FULL", "--sync-binlog=0"),
    *("--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=OFF", "--innodb-buffer-pool-size=64M"),
    *("--performance-schema=OFF", "--max-allowed-packet=256M", "--character-set-server=utf8mb4"),
    *("--secure-file-priv=", "--default-time-zone=+00:00"),
)
_OWN = {
    "mariadb": ("--gtid-strict-mode=ON", "--innodb-log-file-size=32M"),
    "mysql": (
        *("--gtid-mode=ON", "--enforce-gtid-consistency=ON", "--mysqlx=OFF", "--innodb-redo-log-capacity=64M"),
        "--log-error-verbosity=1",
    ),
}


@dataclass(frozen=True)
class Database:
    """A running server; `name` is `mariadb` or `mysql`, `pid` is its process."""

    name: str
    port: int
    pid: int
    data: Path

    def connect(self, **options: Any) -> Connection:
        """A session in UTC that commits every statement; `options` are those of PyMySQL."""
        usual = {"host": "127.0.0.1", "port": self.port, "user": "root", "charset": "utf8mb4", "autocommit": True}
        usual |= {"ssl_disabled": True}  # on loopback, and a handshake would count as reading
        return pymysql.connect(**usual | options)

    def begin_log(self) -> str:
        """Begin a new log file; returns its name."""
        with self.connect() as connection:
            name: str = asked(connection, "FLUSH BINARY LOGS", "SHOW BINARY LOGS")[-1][0]
        return name

    def read_log(self, file: str) -> bytes:
        """The events of this log file back to back, each with its checksum, as far as the file is written."""
        with self.connect() as connection:
            return b"".join(_events_of_file(dump(connection, file, 4, _READER_ID, NO_WAIT)))


def asked(connection: Connection, *statements: str) -> list[tuple[Any, ...]]:
    """The answer to the last statement."""
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        return list(cursor.fetchall())


def missing(name: str) -> str:
    """Why the server cannot be started here; empty if it can."""
    if name == "mariadb":
        found = _mariadbd() is not None and (_SHARE / _SYSTEM_TABLES[0]).exists()
        return "" if found else "MariaDB is not installed: make servers"
    return "" if (_UNPACKED / ".ready").exists() else "MySQL is not unpacked: make servers"


@contextmanager
def running_database(name: str, home: Path, *options: str) -> Iterator[Database]:
    """The server with fresh data below `home`, until the end of the block. It then ends at once, without a shutdown."""
    if reason := missing(name):
        raise TidegateError(reason)
    home.mkdir(parents=True, exist_ok=True)
    log, data = home / "server.log", home / "data"
    port = _free_port()
    with log.open("ab") as said:
        _fill(name, data, said.fileno())
        command = [*_program(name), *_BOTH, *_OWN[name], *_places(data), f"--port={port}", *options]
        command += [f"--socket={home / 's'}", f"--pid-file={home / 'pid'}"]
        zone = os.environ | {"TZ": _CLOCK_CHANGES}
        with subprocess.Popen(command, stdout=said, stderr=said, cwd=home, env=zone) as process:
            try:
                _await(process, port, log)
                yield Database(name, port, process.pid, data)
            finally:
                process.kill()


def _events_of_file(events: Iterator[bytes]) -> Iterator[bytes]:
    for event in events:
        header = header_of(event)
        if not header.next_position:  # what the server says at the start is not in the file
            continue
        if header.kind == ROTATE:
            return
        yield event


def _mariadbd() -> str | None:
    return shutil.which("mariadbd") or shutil.which("mariadbd", path="/usr/sbin:/usr/local/sbin")


def _program(name: str) -> list[str]:
    if name == "mariadb":
        return [str(_mariadbd()), "--no-defaults", f"--lc-messages-dir={_SHARE}"]
    root = _UNPACKED / "root"
    loader = next(root.glob("usr/lib/*/ld-linux-*.so.*"))  # the server needs newer libraries than the machine's
    options = ["--no-defaults", f"--basedir={root}/usr", f"--lc-messages-dir={root}/usr/share/mysql"]
    return [str(loader), "--library-path", str(loader.parent), f"{root}/usr/sbin/mysqld", *options]


def _places(data: Path) -> list[str]:
    """With a directory of its own for temporary files: a server that starts removes those of all others in there."""
    return [f"--datadir={data}", f"--tmpdir={data.parent}"]


def _fill(name: str, data: Path, log: int) -> None:
    """Make the data directory of a new server."""
    shutil.rmtree(data, ignore_errors=True)
    if name == "mysql":
        command, script = [*_program(name), "--initialize-insecure", "--user=root", *_places(data)], b""
    else:
        data.mkdir()
        command = [*_program(name), "--bootstrap", "--user=root", *_places(data), "--innodb-log-file-size=32M"]
        parts = [b"create database mysql;\nuse mysql;\n", *((_SHARE / part).read_bytes() for part in _SYSTEM_TABLES)]
        script = b"\n".join(parts)
    subprocess.run(command, input=script, stdout=log, stderr=log, check=True, timeout=_START_S)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _await(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + _START_S
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        time.sleep(0.05)
    raise TidegateError(f"{process.args!r} does not listen: {log.read_text(errors='replace')[-2000:]}")
