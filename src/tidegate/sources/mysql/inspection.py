"""Reads from a server the facts that `refusals.py` judges.

Grants are not read but tried: the server is asked where its log ends, and to send a little of it. Of tables only those
come back that may be refused, so a million tables that are fine cost one pass over their names.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import groupby
from typing import Any

from pymysql.connections import Connection
from pymysql.cursors import SSCursor
from pymysql.err import MySQLError

from tidegate.errors import BadLog, SourceUnavailable
from tidegate.sources.mysql.dump import NO_WAIT, dump
from tidegate.sources.mysql.facts import Facts, ForeignKey, LogFile, Server, TableFacts, TypedColumn
from tidegate.sources.mysql.refusals import READ_TYPES

Follows = Callable[[str, str], bool]  # whether the table of this database and name is followed
Connect = Callable[[], Connection]
Row = tuple[Any, ...]

_SYSTEM = "('mysql', 'information_schema', 'performance_schema', 'sys')"
_VARIABLES = (
    "log_bin", "binlog_format", "binlog_row_image", "binlog_row_metadata", "binlog_row_value_options",
    "log_bin_compress", "encrypt_binlog", "binlog_alter_two_phase", "gtid_mode", "enforce_gtid_consistency",
    "log_slave_updates", "log_replica_updates", "binlog_error_action", "sync_binlog", "binlog_expire_logs_seconds",
    "expire_logs_days", "binlog_expire_logs_auto_purge", "innodb_native_foreign_keys", "server_id", "server_uuid",
)  # fmt: skip
_DENIED = frozenset((1044, 1045, 1142, 1227, 1370, 1401))  # the last one: XA RECOVER of MySQL
_PLAIN = ", ".join(f"'{each}'" for each in sorted(READ_TYPES))

_NAMES = f"""
SELECT table_schema, table_name FROM information_schema.tables
WHERE table_schema NOT IN {_SYSTEM} AND table_type IN ('BASE TABLE', 'SYSTEM VERSIONED')"""
_ENGINES = f"""
SELECT table_schema, table_name, COALESCE(engine, 'none'), table_type FROM information_schema.tables
WHERE table_schema NOT IN {_SYSTEM} AND table_type IN ('BASE TABLE', 'SYSTEM VERSIONED')
  AND (engine IS NULL OR engine <> 'InnoDB' OR table_type = 'SYSTEM VERSIONED')"""
_COLUMNS = f"""
SELECT c.table_schema, c.table_name, c.column_name, c.data_type, c.column_type, c.privileges
FROM information_schema.columns c JOIN information_schema.tables t USING (table_schema, table_name)
WHERE c.table_schema NOT IN {_SYSTEM} AND t.table_type IN ('BASE TABLE', 'SYSTEM VERSIONED')
  AND (c.data_type NOT IN ({_PLAIN}) OR (c.column_type LIKE '%/*%' AND c.data_type NOT IN ('enum', 'set'))
       OR NOT FIND_IN_SET('select', c.privileges))
ORDER BY c.table_schema, c.table_name, c.ordinal_position"""
_KEYS = f"""
SELECT r.constraint_schema, r.table_name, r.constraint_name, r.delete_rule, r.update_rule,
       k.column_name, k.referenced_table_schema, k.referenced_table_name, k.referenced_column_name
FROM information_schema.referential_constraints r JOIN information_schema.key_column_usage k
  ON k.constraint_schema = r.constraint_schema AND k.constraint_name = r.constraint_name
     AND k.table_name = r.table_name
WHERE r.constraint_schema NOT IN {_SYSTEM}
  AND (r.delete_rule NOT IN ('NO ACTION', 'RESTRICT') OR r.update_rule NOT IN ('NO ACTION', 'RESTRICT'))
ORDER BY r.constraint_schema, r.table_name, r.constraint_name, k.ordinal_position"""


def inspect_server(connect: Connect, follows: Follows) -> Facts:
    """Everything that can be known before a start. Opens two connections, and closes them."""
    try:
        with closing(connect()) as connection:
            server = _server(connection, connect)
            followed = sum(follows(schema, table) for schema, table in _streamed(connection, _NAMES))
            return Facts(server, followed, tuple(_odd_tables(connection, follows)))
    except (MySQLError, OSError) as exc:
        raise SourceUnavailable(f"the server does not answer: {exc}") from exc


def version_of(text: str) -> tuple[int, ...]:
    """`version_of("10.11.19-MariaDB-log")` is (10, 11, 19)."""
    plain = text.removeprefix("5.5.5-").split("-")[0]
    return tuple(int(part) for part in plain.split(".") if part.isdigit())


def _rows(connection: Connection, statement: str) -> list[Row]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


def _streamed(connection: Connection, statement: str) -> Iterator[Row]:
    """The rows one by one: nothing here holds as many of them as a server may have."""
    with connection.cursor(SSCursor) as cursor:
        cursor.execute(statement)
        yield from cursor


def plain_server(connection: Connection) -> Server:
    """The server without its log and its grants: enough to judge tables that a DDL brings."""
    ((version, user),) = _rows(connection, "SELECT VERSION(), CURRENT_USER()")
    names = ", ".join(f"'{name}'" for name in _VARIABLES)
    variables: dict[str, str] = dict(_rows(connection, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})"))
    return Server(version_of(version), "mariadb" in version.lower(), _account(user), variables)


def _server(connection: Connection, connect: Connect) -> Server:
    server = plain_server(connection)
    status, log_error = _attempt(connection, _status_statement(server))
    end = status[0] if status else ("", 0, "", "")
    files, _ = _attempt(connection, "SHOW BINARY LOGS") if server.variables.get("log_bin") == "ON" else ([], "")
    return replace(
        server,
        do_db=end[2],
        ignore_db=end[3],
        is_replica=_is_replica(connection, server.is_mariadb),
        log_error=log_error,
        dump_error="" if log_error or not status else _dump_error(connect, end[0], end[1]),
        files=tuple(LogFile(row[0], int(row[1])) for row in files),
        prepared_xa=_prepared(connection),
    )


def _account(user: str) -> str:
    """`repl@%` as statements write it: `'repl'@'%'`."""
    name, _, host = user.rpartition("@")
    return "@".join("'" + part.replace("'", "''") + "'" for part in (name, host))


def _status_statement(server: Server) -> str:
    return "SHOW BINARY LOG STATUS" if not server.is_mariadb and server.version >= (8, 2) else "SHOW MASTER STATUS"


def _attempt(connection: Connection, statement: str) -> tuple[list[Row], str]:
    """The answer, or the server's reason why this user gets none."""
    try:
        return _rows(connection, statement), ""
    except MySQLError as exc:
        if exc.args[:1] and exc.args[0] in _DENIED:
            return [], str(exc.args[-1])
        raise


def _dump_error(connect: Connect, file: str, position: int) -> str:
    """Ask for the end of the log, as a changefeed does; the server's reason if it refuses."""
    server_id = secrets.randbelow(1 << 31) + (1 << 31)  # of nobody else: the server cuts off the older of two readers
    with closing(connect()) as connection:
        try:
            next(dump(connection, file, position, server_id, NO_WAIT), None)
        except BadLog as exc:
            return str(exc).removeprefix("the server sends no log: ")
    return ""


def _is_replica(connection: Connection, is_mariadb: bool) -> bool:
    if is_mariadb:
        return any(int(count) for _, count in _rows(connection, "SHOW GLOBAL STATUS LIKE 'Slaves_running'"))
    return bool(_attempt(connection, "SHOW REPLICA STATUS")[0])


def _prepared(connection: Connection) -> tuple[str, ...] | None:
    rows, error = _attempt(connection, "XA RECOVER")
    return None if error else tuple(_xid(*row) for row in rows)


def _xid(form: int, global_size: int, branch_size: int, data: bytes | str) -> str:
    """`X'31',X'',1`: the parts in hexadecimal, since an id may hold any byte."""
    raw = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
    parts = raw[:global_size], raw[global_size : global_size + branch_size]
    return ",".join([*(f"X'{part.hex()}'" for part in parts), str(form)])


# Tables ---------------------------------------------------------------------------------------------------------------


def _odd_tables(connection: Connection, follows: Follows) -> Iterator[TableFacts]:
    """The followed tables that may be refused, each with only what may be a reason."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for schema, table, engine, kind in _rows(connection, _ENGINES):
        found.setdefault((schema, table), {}).update(engine=engine, is_versioned=kind == "SYSTEM VERSIONED")
    for key, columns in groupby(_rows(connection, _COLUMNS), key=lambda row: row[:2]):
        found.setdefault(key, {}).update(_columns(list(columns)))
    for key, rows in groupby(_rows(connection, _KEYS), key=lambda row: row[:2]):
        keys = tuple(_foreign_key(list(each)) for _, each in groupby(rows, key=lambda row: row[2]))
        found.setdefault(key, {}).update(foreign_keys=keys)
    for key, facts in sorted(found.items()):
        if follows(*key):
            yield TableFacts(*key, **facts)


def _columns(rows: list[Row]) -> dict[str, Any]:
    readable = all("select" in privileges.split(",") for *_, privileges in rows)
    return {"columns": tuple(TypedColumn(*row[2:5]) for row in rows), "is_readable": readable}


def _foreign_key(rows: list[Row]) -> ForeignKey:
    _, _, name, on_delete, on_update, _, *parent, _ = rows[0]
    columns, others = (tuple(row[at] for row in rows) for at in (5, 8))
    return ForeignKey(name, columns, (parent[0], parent[1]), others, on_delete, on_update)
