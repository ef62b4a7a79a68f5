"""What of a MySQL or MariaDB server cannot be followed, judged from facts alone: no connection is used here.

A finding is a sentence that names the object, and the statements that mend it. What the log does not hold is a problem,
and a changefeed that met it would miss changes without a word: so it is refused at the start, and again when a DDL
brings it. What only may go wrong later is a warning.

`inspection.py` reads the facts from a server. Who follows the log asks `refuse_entry` about each table that a DDL has
made or changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidegate.errors import BadLog
from tidegate.sources.mysql.catalogue import TableEntry
from tidegate.sources.mysql.facts import DAY_S, Facts, ForeignKey, Server, TableFacts, TypedColumn

# Names of types as information_schema has them in DATA_TYPE, whose values are read from the log.
READ_TYPES = frozenset((
    "tinyint", "smallint", "mediumint", "int", "bigint", "bit", "year", "float", "double", "decimal", "date",
    "datetime", "timestamp", "time", "char", "varchar", "binary", "varbinary", "tinytext", "text", "mediumtext",
    "longtext", "tinyblob", "blob", "mediumblob", "longblob", "enum", "set", "json",
))  # fmt: skip
_ENGINE = "innodb"


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong. `mends` are the statements that mend it, in order; `otherwise` is said in words."""

    what: str
    sentence: str
    mends: tuple[str, ...] = ()
    otherwise: str = ""
    is_problem: bool = True

    @property
    def remedy(self) -> str:
        """`SET GLOBAL binlog_format = ROW; sessions that are open keep their own until they connect again`."""
        return "; ".join((*self.mends, *([self.otherwise] if self.otherwise else [])))

    def __str__(self) -> str:
        return f"{self.sentence}; {self.remedy}" if self.remedy else self.sentence


def quoted(*names: str) -> str:
    """`quoted("shop", "a`b")` is `` `shop`.`a``b` ``."""
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)


def refuse_problems(findings: Iterable[Finding]) -> None:
    """Raise the first problem; how many others there are is said."""
    problems = [finding for finding in findings if finding.is_problem]
    if problems:
        more = f" (and {len(problems) - 1} more: tidegate check lists them)" if len(problems) > 1 else ""
        raise BadLog(f"{problems[0]}{more}")


# The server -----------------------------------------------------------------------------------------------------------


class _Rule(NamedTuple):
    """A variable that must have this value; a server that does not know the variable behaves as if it had."""

    variable: str
    right: str
    why: str
    by_statement: bool = True
    sessions_keep: bool = False


_RULES = (
    _Rule("log_bin", "ON", "the server writes no log", by_statement=False),
    _Rule("binlog_format", "ROW", "the log holds statements instead of rows", sessions_keep=True),
    _Rule("binlog_row_image", "FULL", "rows in the log lack columns", sessions_keep=True),
    _Rule("binlog_row_metadata", "FULL", "the log has no names, signs and character sets of columns"),
    _Rule("binlog_row_value_options", "", "the log holds only parts of JSON values", sessions_keep=True),
    _Rule("log_bin_compress", "OFF", "compressed events of the log are not read"),
    _Rule("encrypt_binlog", "OFF", "an encrypted log is not read", by_statement=False),
    _Rule("binlog_alter_two_phase", "OFF", "an ALTER TABLE stands in the log in two parts", sessions_keep=True),
)
_KEEP = "sessions that are open keep their own value until they connect again"
_MODES = ("OFF", "OFF_PERMISSIVE", "ON_PERMISSIVE", "ON")


def server_findings(server: Server) -> list[Finding]:
    """What is wrong with variables, grants and transactions, in the order of what depends on what."""
    found = [finding for rule in _RULES if (finding := _by_rule(server, rule)) is not None]
    found += [*_gtid_mode(server), *_filters(server), *_replica(server)]
    if server.variables.get("log_bin") != "OFF":
        found += _grants(server)
    return [*found, *_prepared(server), *_durability(server)]


def _set(server: Server, variable: str, value: str) -> str:
    """MySQL keeps a persisted value over a restart; MariaDB's lasts until then."""
    shown = value or "''"
    return f"SET {'GLOBAL' if server.is_mariadb else 'PERSIST'} {variable} = {shown}"


def _by_rule(server: Server, rule: _Rule) -> Finding | None:
    value = server.variables.get(rule.variable, rule.right)
    if value.upper() == rule.right:
        return None
    sentence = f"{rule.variable} is {value}: {rule.why}"
    if not rule.by_statement:
        return Finding(rule.variable, sentence, otherwise=_configure(f"{rule.variable} = {rule.right}"))
    notes = [_KEEP] if rule.sessions_keep else []
    if server.is_mariadb:
        notes.append(f"put {rule.variable} = {rule.right} into its configuration, too: a restart forgets the statement")
    return Finding(rule.variable, sentence, (_set(server, rule.variable, rule.right),), "; ".join(notes))


def _configure(line: str) -> str:
    return f"put {line} into the configuration of the server and restart it"


def _gtid_mode(server: Server) -> Iterator[Finding]:
    mode = server.variables.get("gtid_mode", "OFF").upper()
    if server.is_mariadb or mode == "ON":
        return
    steps = _MODES[_MODES.index(mode) + 1 :] if mode in _MODES else _MODES[1:]
    mends = [_set(server, "gtid_mode", step) for step in steps]
    if server.variables.get("enforce_gtid_consistency", "OFF").upper() != "ON":
        mends.insert(0, _set(server, "enforce_gtid_consistency", "ON"))
    yield Finding("gtid_mode", f"gtid_mode is {mode}: transactions in the log have no names", tuple(mends))


def _filters(server: Server) -> Iterator[Finding]:
    for variable, value in (("binlog_do_db", server.do_db), ("binlog_ignore_db", server.ignore_db)):
        if value:
            sentence = (
                f"{variable} is {value}: the log lacks changes of some databases, and every DDL of a session that has "
                "one of these as its default"
            )
            remedy = f"take {variable} out of the configuration of the server and restart it"
            yield Finding(variable, sentence, otherwise=remedy)


def _replica(server: Server) -> Iterator[Finding]:
    """What a replica gets from its source is in its own log only if it is told so."""
    variable = "log_slave_updates" if server.is_mariadb else "log_replica_updates"
    if server.is_replica and server.variables.get(variable, "ON") == "OFF":
        sentence = f"{variable} is OFF, and the server is a replica: what it replicates is not in its own log"
        yield Finding(variable, sentence, otherwise=_configure(f"{variable} = ON"))


def _grants(server: Server) -> Iterator[Finding]:
    asked = {"REPLICATION CLIENT": server.log_error, "REPLICATION SLAVE": server.dump_error}
    for grant, error in asked.items():
        if error:
            does = "show where its log ends" if grant == "REPLICATION CLIENT" else "send its log"
            sentence = f"the server does not {does} to {server.user}: {error}"
            mends = (f"GRANT {grant} ON *.* TO {server.user}",) if "denied" in error else ()
            yield Finding("grants", sentence, mends)


def _prepared(server: Server) -> Iterator[Finding]:
    if server.prepared_xa is None:
        sentence = f"{server.user} may not see whether XA transactions are prepared, whose rows would be missed"
        yield Finding("xa", sentence, (f"GRANT XA_RECOVER_ADMIN ON *.* TO {server.user}",), is_problem=False)
    for xid in server.prepared_xa or ():
        sentence = f"the XA transaction {xid} is prepared: its rows are in the log already, so a start would miss them"
        yield Finding("xa", sentence, (f"XA COMMIT {xid}",), f"or XA ROLLBACK {xid}")


def _durability(server: Server) -> Iterator[Finding]:
    if server.variables.get("binlog_error_action") == "IGNORE_ERROR":
        sentence = "binlog_error_action is IGNORE_ERROR: after an error the server goes on without a log"
        mend = _set(server, "binlog_error_action", "ABORT_SERVER")
        yield Finding("binlog_error_action", sentence, (mend,), is_problem=False)
    sync = server.variables.get("sync_binlog", "1")
    if sync != "1":
        sentence = f"sync_binlog is {sync}: after a crash of its machine the server may lack what was landed already"
        yield Finding("sync_binlog", sentence, (_set(server, "sync_binlog", "1"),), is_problem=False)


# Retention ------------------------------------------------------------------------------------------------------------


def retention_findings(server: Server, lag_s: float | None, file: str | None) -> Iterator[Finding]:
    """`lag_s` is how far a changefeed is behind, `file` the log file that it needs; None before its first start."""
    if file is not None and server.files and file not in {each.name for each in server.files}:
        sentence = (
            f"the changefeed goes on in the log file {file}, which is purged: the log begins at {server.files[0].name}"
        )
        yield Finding("retention", sentence, otherwise="give an empty prefix, so that a new snapshot is taken")
        return
    kept_s = server.retention_s
    if kept_s is None:
        return
    longer = _set(server, "binlog_expire_logs_seconds", str(7 * DAY_S))
    if "binlog_expire_logs_seconds" not in server.variables:
        longer = _set(server, "expire_logs_days", "7")
    if lag_s is not None and 2 * lag_s > kept_s:
        sentence = f"the log is kept for {_hours(kept_s)}, and the changefeed is {_hours(lag_s)} behind"
        yield Finding("retention", sentence, (longer,), is_problem=False)
    elif kept_s < DAY_S:
        sentence = f"the log is kept for {_hours(kept_s)}: a changefeed that stands still for longer cannot go on"
        yield Finding("retention", sentence, (longer,), is_problem=False)


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f} hours" if seconds >= 3600 else f"{seconds:.0f} s"


# Tables ---------------------------------------------------------------------------------------------------------------


def table_findings(server: Server, tables: Iterable[TableFacts]) -> Iterator[Finding]:
    """What of these followed tables the log does not hold, or holds in a form without a place on the sink."""
    for table in tables:
        yield from _engine(table)
        yield from _columns(table, server.is_mariadb)
        if not server.logs_cascades:
            yield from _cascades(table)
        if not table.is_readable:
            mend = f"GRANT SELECT ON {_pattern(table.schema)}.* TO {server.user}"
            yield Finding("grants", f"{server.user} may not read {table.name}", (mend,))


def _pattern(schema: str) -> str:
    """The name of a database in a GRANT, where `_` and `%` would stand for others."""
    return quoted(re.sub(r"([_%\\])", r"\\\1", schema))


def _leave_out(table: TableFacts) -> str:
    return f"or leave {table.name} out"


def _engine(table: TableFacts) -> Iterator[Finding]:
    name = quoted(table.schema, table.table)
    if table.is_versioned:
        sentence = f"{table.name} has system versioning: the log mixes its history with its rows"
        yield Finding("versioning", sentence, (f"ALTER TABLE {name} DROP SYSTEM VERSIONING",), _leave_out(table))
    if table.engine.lower() != _ENGINE:
        sentence = f"{table.name} has the engine {table.engine}, without the transactions that a snapshot relies on"
        yield Finding("engine", sentence, (f"ALTER TABLE {name} ENGINE = InnoDB",), _leave_out(table))


def _columns(table: TableFacts, is_mariadb: bool) -> Iterator[Finding]:
    for column in table.columns:
        if reason := unread(column, is_mariadb):
            mends = (f"ALTER TABLE {quoted(table.schema, table.table)} {change}" for change in _changed(column))
            sentence = f"{table.name}, column {column.name!r} is {reason}"
            yield Finding("type", sentence, tuple(mends), _leave_out(table))


def unread(column: TypedColumn, is_mariadb: bool) -> str:
    """Why the values of a column are not read; "" if they are."""
    kind, text = column.data_type.lower(), column.column_type
    if kind not in READ_TYPES and (kind != "vector" or is_mariadb):  # vectors of MariaDB are stored in another way
        return f"{kind}, which has no place in TiCDC's format"
    if kind not in ("enum", "set") and "COMPRESSED*/" in text.upper():
        return f"a compressed {kind}"
    if kind in ("datetime", "timestamp", "time") and "/*" in text:
        return f"{kind} in the format of MySQL 5.5"
    return ""


def _changed(column: TypedColumn) -> Sequence[str]:
    """What is behind ALTER TABLE to make it readable."""
    if "COMPRESSED*/" in column.column_type.upper():
        plain = re.sub(r"\s*/\*M![0-9]* COMPRESSED\*/", "", column.column_type)
        return (f"MODIFY {quoted(column.name)} {plain}",)
    if "/*" in column.column_type:
        return ("FORCE",)
    return (f"DROP COLUMN {quoted(column.name)}",)


def _cascades(table: TableFacts) -> Iterator[Finding]:
    for key in table.foreign_keys:
        if key.cascade:
            name = quoted(table.schema, table.table)
            mends = [f"ALTER TABLE {name} DROP FOREIGN KEY {quoted(key.name)}"]
            if key.parent_columns:  # a DDL that came through the log does not tell them
                columns, others = (", ".join(map(quoted, each)) for each in (key.columns, key.parent_columns))
                again = f"FOREIGN KEY ({columns}) REFERENCES {quoted(*key.parent)} ({others})"
                mends.append(f"ALTER TABLE {name} ADD CONSTRAINT {quoted(key.name)} {again}")
            sentence = f"{table.name} has the foreign key {key.name} {key.cascade}: what it changes is not in the log"
            yield Finding("foreign key", sentence, tuple(mends), _leave_out(table))


def refuse_entry(server: Server, entry: TableEntry) -> None:
    """Refuse a followed table that a DDL has made or changed: BadLog, with what is wrong and its remedy."""
    definition = entry.definition
    keys = tuple(
        ForeignKey(key.name, key.columns, (key.database, key.table), (), key.on_delete, key.on_update)
        for key in definition.foreign_keys
    )
    table = TableFacts(*entry.names, definition.engine, definition.versioned, foreign_keys=keys)
    refuse_problems(table_findings(server, [table]))


# All of it ------------------------------------------------------------------------------------------------------------


def findings(facts: Facts) -> list[Finding]:
    """What is wrong with the server and the tables to follow."""
    found = [*server_findings(facts.server), *table_findings(facts.server, facts.odd_tables)]
    if not facts.followed:
        sentence = f"no table that {facts.server.user} may see is among those to follow"
        found.append(
            Finding("tables", sentence, (f"GRANT SELECT ON *.* TO {facts.server.user}",), "or name other tables")
        )
    return found
