"""What we make of DDL statements is what the servers make of them: the columns that `information_schema` shows.

The statements are in `fixtures/mysql_ddl.txt`, in three parts: columns of a table, parts of an ALTER TABLE, and
scenarios, whose statements are separated by `;;`. Each runs in a database of its own, so that all run before the log
and `information_schema` are read. A statement that one of the servers does not accept is left out there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pymysql
import pytest
from pymysql.connections import Connection

from tidegate.bench.harness.database_log import statements_in
from tidegate.bench.harness.databases import Database, asked
from tidegate.errors import BadDdl, BadLog
from tidegate.format.rules.rules import TableFilter
from tidegate.sources.mysql.catalogue import Catalogue, TableEntry
from tidegate.sources.mysql.ddl.agree import agree
from tidegate.sources.mysql.ddl.apply import apply
from tidegate.sources.mysql.definition import Definition
from tidegate.sources.mysql.information_schema import read_catalogue
from tidegate.sources.mysql.log.control_events import Query
from tidegate.sources.mysql.log.table_map import TableMap

STATEMENTS = Path(__file__).parents[1] / "fixtures" / "mysql_ddl.txt"
T = "CREATE TABLE t (id int primary key, v varchar(20) default 'x', w int, KEY k (w), UNIQUE KEY u (v, w))"
LATIN = "CREATE TABLE t (o int, c int) CHARSET latin1"


def scenarios() -> list[list[str]]:
    parts = re.split(r"^\[.*\]$", STATEMENTS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    columns, alters, others = ([line for line in part.split("\n") if line] for part in parts[1:])
    return [
        *([f"CREATE TABLE t (`c` {column}, `other` int)"] for column in columns),
        *([T, f"ALTER TABLE t {alter}".replace("\\n", "\n")] for alter in alters),
        *([text.replace("\\n", "\n").replace("\\t", "\t") for text in other.split(" ;; ")] for other in others),
        *([T, f"ALTER TABLE t ADD `c` {column} FIRST"] for column in columns[::5]),
        *([LATIN, f"ALTER TABLE t MODIFY `c` {column}"] for column in columns[::3]),
    ]


def played(database: Database, name: str, statements: Sequence[str]) -> Iterator[str]:
    """Run the statements in a database of this name; those that the server accepts come back."""
    with database.connect(sql_mode="") as connection:
        asked(connection, f"CREATE DATABASE {name}", f"USE {name}")
        for statement in statements:
            try:
                asked(connection, statement)
            except pymysql.MySQLError:
                continue
            yield statement
        asked(connection, "SET sql_mode = ''")
        fill(connection, name)


def fill(connection: Connection, name: str) -> None:
    """One row in every table, so that the log says how it is stored."""
    for (table,) in asked(
        connection, f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{name}'"
    ):
        try:
            asked(connection, f"INSERT INTO `{table.replace('`', '``')}` () VALUES ()")
        except pymysql.MySQLError:  # a view, a sequence, a column without a default
            continue


def bare(definition: Definition) -> Definition:
    """Without what only history knows, and without order where the server has none."""
    return replace(
        definition,
        columns=tuple(replace(each, column=replace(each.column, id=None)) for each in definition.columns),
        keys=tuple(sorted((replace(key, generated=False) for key in definition.keys), key=lambda key: key.name)),
        foreign_keys=tuple(sorted(definition.foreign_keys, key=lambda key: key.name)),
        last_id=0,
    )


@dataclass
class Followed:
    """The catalogue as the log leads to it; databases with a statement that is refused are left out from there on."""

    catalogue: Catalogue
    refused: dict[str, str] = field(default_factory=dict)
    contradicted: dict[str, str] = field(default_factory=dict)

    def follow(self, statements: Sequence[Query | TableMap]) -> None:
        for number, statement in enumerate(statements):
            if isinstance(statement, TableMap):
                self._check(statement)
            elif statement.database not in self.refused:
                try:
                    self.catalogue = apply(self.catalogue, statement, 1000 * number).catalogue
                except BadDdl as exc:
                    self.refused[statement.database] = str(exc)

    def _check(self, table_map: TableMap) -> None:
        entry = self.catalogue.followed(table_map.schema, table_map.table)
        if table_map.schema in self.refused or entry is None or entry.definition.versioned:
            return
        try:
            agree(table_map, entry)
        except BadLog as exc:
            self.contradicted[table_map.schema] = str(exc)


def tables_of(catalogue: Catalogue) -> dict[tuple[str, str], TableEntry]:
    return {entry.names: entry for entry in catalogue.entries()}


# What has no place in the format, or does not say its columns.
REFUSED = ("geometry", "point", "uuid", "inet", "compressed")


@pytest.fixture(scope="module")
def oracle(database: Database) -> tuple[Followed, Catalogue, dict[str, list[str]]]:
    """All scenarios, run on a server: what the log leads to, what the server shows, and what was run."""
    tables = TableFilter(("s*.*",))
    with database.connect() as connection:
        for (name,) in asked(connection, "SHOW DATABASES LIKE 's%'"):
            if name[1:].isdecimal():
                asked(connection, f"DROP DATABASE {name}")
    file = database.begin_log()
    start = read_catalogue(database.connect, tables, 1, snapshot=False)
    run = {f"s{n}": list(played(database, f"s{n}", each)) for n, each in enumerate(scenarios())}
    followed = Followed(start.catalogue)
    followed.follow(statements_in(database.read_log(file)))
    return followed, read_catalogue(database.connect, tables, 1, snapshot=False).catalogue, run


def test_every_statement_leads_to_the_columns_that_the_server_shows(
    oracle: tuple[Followed, Catalogue, dict[str, list[str]]],
) -> None:
    followed, shown, run = oracle
    ours, theirs = tables_of(followed.catalogue), tables_of(shown)
    wrong = []
    for names in sorted(ours.keys() | theirs.keys()):
        if names[0] in followed.refused:
            continue
        if names not in ours or names not in theirs:
            wrong.append(f"{run[names[0]]}: {names} is {'not ours' if names not in ours else 'only ours'}")
        elif bare(ours[names].definition) != bare(theirs[names].definition):
            wrong.append(f"{run[names[0]]}\n  ours   {ours[names].definition}\n  server {theirs[names].definition}")
    assert not wrong, "\n".join(wrong)


def test_what_is_not_followed_is_refused_by_name(oracle: tuple[Followed, Catalogue, dict[str, list[str]]]) -> None:
    followed, _, run = oracle
    odd = {name: text for name, text in followed.refused.items() if not any(word in text for word in REFUSED)}
    assert not odd, odd
    assert len(run) > 300


def test_the_log_says_the_same_about_the_rows(oracle: tuple[Followed, Catalogue, dict[str, list[str]]]) -> None:
    followed, _, run = oracle
    assert not followed.contradicted, [(run[name], text) for name, text in followed.contradicted.items()]
