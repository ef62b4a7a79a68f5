"""What is known of a MySQL or MariaDB server and its tables before a start: values without a connection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

DAY_S = 86_400
_HARMLESS = frozenset(("", "NO ACTION", "RESTRICT"))
_LOGGED_CASCADES = (9, 6)  # since this release of MySQL the server carries out cascades itself, and logs them


class LogFile(NamedTuple):
    name: str
    bytes: int


@dataclass(frozen=True)
class Server:
    """What a server says of itself. `user` is quoted as statements need it: `'repl'@'%'`.

    `log_error` says why the server does not show where its log ends, `dump_error` why it does not send it.
    `prepared_xa` are the ids of prepared XA transactions as `XA COMMIT` wants them; None if this user may not ask.
    """

    version: tuple[int, ...]
    is_mariadb: bool
    user: str
    variables: Mapping[str, str]
    do_db: str = ""
    ignore_db: str = ""
    is_replica: bool = False
    log_error: str = ""
    dump_error: str = ""
    files: tuple[LogFile, ...] = ()
    prepared_xa: tuple[str, ...] | None = ()

    @property
    def name(self) -> str:
        return f"{'MariaDB' if self.is_mariadb else 'MySQL'} {'.'.join(map(str, self.version))}"

    @property
    def logs_cascades(self) -> bool:
        """Whether the rows that a foreign key changes are in the log."""
        native = self.variables.get("innodb_native_foreign_keys", "OFF")
        return not self.is_mariadb and self.version[:2] >= _LOGGED_CASCADES and native == "OFF"

    @property
    def retention_s(self) -> float | None:
        """For how long the server keeps its log at least; None for ever."""
        if self.variables.get("binlog_expire_logs_auto_purge") == "OFF":
            return None
        days = float(self.variables.get("expire_logs_days", "0"))
        seconds = float(self.variables.get("binlog_expire_logs_seconds", "0"))
        return seconds or days * DAY_S or None


@dataclass(frozen=True)
class ForeignKey:
    """A foreign key of a table, as `REFERENTIAL_CONSTRAINTS` has it: `on_delete` is `CASCADE`, `SET NULL`, ..."""

    name: str
    columns: tuple[str, ...]
    parent: tuple[str, str]
    parent_columns: tuple[str, ...]
    on_delete: str = "NO ACTION"
    on_update: str = "NO ACTION"

    @property
    def cascade(self) -> str:
        """`ON DELETE CASCADE ON UPDATE SET NULL`: what it changes in its table by itself; "" if nothing."""
        rules = {"DELETE": self.on_delete.upper(), "UPDATE": self.on_update.upper()}
        return " ".join(f"ON {event} {rule}" for event, rule in rules.items() if rule not in _HARMLESS)


class TypedColumn(NamedTuple):
    """`TypedColumn("v", "varchar", "varchar(10)")`: DATA_TYPE and COLUMN_TYPE of information_schema."""

    name: str
    data_type: str
    column_type: str


@dataclass(frozen=True)
class TableFacts:
    """What decides whether a table can be followed. Columns and keys that are fine may be left out."""

    schema: str
    table: str
    engine: str = "InnoDB"
    is_versioned: bool = False
    is_readable: bool = True
    columns: tuple[TypedColumn, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.schema}.{self.table}"


@dataclass(frozen=True)
class Facts:
    """All that is known before a start: the server, how many tables are followed, and those that may be refused."""

    server: Server
    followed: int = 0
    odd_tables: tuple[TableFacts, ...] = ()
