"""What we make of DDL statements is what the servers make of them: the columns that `information_schema` shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pymysql
import pytest
from pymysql.connections import Connection

from tidegate.bench.harness.database_log import statements_in
from tidegate.bench.harness.databases import Database, asked
from tidegate.bench.harness.ddl_scenarios import scenarios
from tidegate.errors import BadDdl, BadLog
from tidegate.format.rules.rules import TableFilter
from tidegate.sources.mysql.catalogue import Catalogue, TableEntry
from tidegate.sources.mysql.ddl.agree import agree
from tidegate.sources.mysql.ddl.apply import apply
from tidegate.sources.mysql.definition import Definition
from tidegate.sources.mysql.information_schema import read_catalogue
from tidegate.sources.mysql.log.table_map import TableMap


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

    def follow(self, statements: Sequence[object]) -> None:
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
        for number in range(len(scenarios())):
            asked(connection, f"DROP DATABASE IF EXISTS s{number}")
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
