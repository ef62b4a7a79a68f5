"""Connections to a database, and what is asked about the server itself.

Errors of the library become ours here: they name the endpoint and the remedy. What may pass (a server that does not
answer, too many connections) is SourceUnavailable, what somebody must change (password, rights, certificate) is
BadSetting. No message contains the password.
"""

from __future__ import annotations

import ssl
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pymysql
from pymysql.connections import Connection
from pymysql.constants import ER
from pymysql.err import MySQLError

from tidegate.errors import BadSetting, SourceUnavailable, TidegateError
from tidegate.sources.mysql.address import OFF, PREFERRED, VERIFY, Address, Tls

TIMEOUT_S = 30  # for one answer; a dump has its own
_REFUSED = {
    ER.ACCESS_DENIED_ERROR: "check user and password (MYSQL_PWD or --password-file)",
    ER.DBACCESS_DENIED_ERROR: "grant the user what docs/mysql.md lists",
    ER.SPECIFIC_ACCESS_DENIED_ERROR: "grant the user what docs/mysql.md lists",
    ER.HOST_NOT_PRIVILEGED: "the server lets nobody in from this host: create the user for it",
    ER.HOST_IS_BLOCKED: "the server has blocked this host: FLUSH HOSTS there",
    1698: "check user and password (MYSQL_PWD or --password-file)",
    1251: "the user's authentication is not supported: use caching_sha2_password or mysql_native_password",
    4151: "check user and password (MYSQL_PWD or --password-file)",
}


@dataclass(frozen=True)
class ServerFacts:
    """Which server answers. `identity` is another one after a failover: `uuid 3e11...` or `server 1 domain 0`."""

    version: str
    identity: str

    @property
    def is_mariadb(self) -> bool:
        return "MariaDB" in self.version


@contextmanager
def connected(address: Address, password: str, **options: Any) -> Iterator[Connection]:
    """A session in UTC that commits every statement; closed at the end of the block."""
    connection = connect(address, password, **options)
    try:
        yield connection
    finally:
        close(connection)


def connect(address: Address, password: str, **options: Any) -> Connection:
    usual: dict[str, Any] = {
        "host": address.host, "port": address.port, "user": address.user, "charset": "utf8mb4", "autocommit": True,
        "password": password.encode(), "connect_timeout": 10, "read_timeout": TIMEOUT_S, "write_timeout": TIMEOUT_S,
        "init_command": "SET time_zone = '+00:00'", "program_name": "tidegate",
    }  # fmt: skip
    try:
        return pymysql.connect(**usual | _tls_options(address.tls) | options)
    except ssl.SSLCertVerificationError as exc:
        raise BadSetting(f"{address.endpoint}: its certificate does not fit: {exc.verify_message}; see ssl-ca") from exc
    except (MySQLError, OSError) as exc:
        raise failure(address, exc) from exc
    except RuntimeError as exc:  # a part of PyMySQL that is not installed
        raise BadSetting(f"cannot log in to {address.endpoint}: {exc}; or use ssl=required") from exc


def close(connection: Connection) -> None:
    """At once, without a word to the server: it may be away, or in the middle of its log."""
    connection._force_close()


def failure(address: Address, error: Exception) -> TidegateError:
    """Our error for one of the library, or of the network."""
    code = error.args[0] if isinstance(error, MySQLError) and error.args else 0
    said = error.args[1] if isinstance(error, MySQLError) and len(error.args) > 1 else str(error)
    if code in _REFUSED:
        return BadSetting(f"{address.endpoint} refuses: {said} (error {code}); {_REFUSED[code]}")
    if "SSL" in str(said) and "support" in str(said):
        return BadSetting(f"{address.endpoint} offers no TLS; enable it there, or use ssl=off")
    return SourceUnavailable(f"{address.endpoint} does not answer: {said}; is it running, and can it be reached?")


def ask(connection: Connection, address: Address, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """All rows of the answer."""
    try:
        with connection.cursor() as cursor:
            cursor.execute(statement, values or None)
            return list(cursor.fetchall())
    except (MySQLError, OSError, struct.error) as exc:
        raise failure(address, exc) from exc


def server_facts(connection: Connection, address: Address) -> ServerFacts:
    ((version,),) = ask(connection, address, "SELECT VERSION()")
    if "MariaDB" in version:
        ((number, domain),) = ask(connection, address, "SELECT @@server_id, @@gtid_domain_id")
        return ServerFacts(version, f"server {number} domain {domain}")
    ((uuid,),) = ask(connection, address, "SELECT @@server_uuid")
    return ServerFacts(version, f"uuid {uuid}")


def clock_us(connection: Connection, address: Address) -> int:
    """What time it is on the server, in microseconds since 1970."""
    ((seconds,),) = ask(connection, address, "SELECT UNIX_TIMESTAMP(SYSDATE(6))")
    return int(seconds * 1_000_000)


def log_end(connection: Connection, address: Address, is_mariadb: bool) -> tuple[str, int]:
    """The log file that the server writes, and where the next transaction goes."""
    rows = ask(connection, address, "SHOW MASTER STATUS" if is_mariadb else "SHOW BINARY LOG STATUS")
    if not rows:
        raise BadSetting(f"{address.endpoint} writes no log; start it with --log-bin")
    return rows[0][0], int(rows[0][1])


def _tls_options(tls: Tls) -> dict[str, Any]:
    if tls.mode == OFF:
        return {"ssl_disabled": True}
    if tls.mode == PREFERRED:
        return {}
    context = ssl.create_default_context(cafile=tls.ca)
    verify = tls.mode == VERIFY
    context.check_hostname = verify
    context.verify_mode = ssl.CERT_REQUIRED if verify or tls.ca else ssl.CERT_NONE
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # certificates that servers make for themselves are not strict
    if tls.cert is not None:
        context.load_cert_chain(tls.cert, tls.key)
    return {"ssl": context}
