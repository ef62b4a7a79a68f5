"""`tidegate check --source mysql://...`: what it prints about a real server, and that it shows no password."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pymysql.connections import Connection

from tidegate.bench.harness.databases import Database, asked
from tidegate.cli import main
from tidegate.clock import now_ms
from tidegate.driver.entries import FILES, Head, entry_path, object_bytes
from tidegate.events import tso
from tidegate.storage.store import open_store

SHOP = "checked"
SECRET = "s3cret/word"


@pytest.fixture
def root(database: Database) -> Iterator[Connection]:
    with database.connect() as connection:
        asked(connection, f"DROP DATABASE IF EXISTS {SHOP}", f"CREATE DATABASE {SHOP}", f"USE {SHOP}")
        asked(connection, "CREATE TABLE orders (id int PRIMARY KEY)", "DROP USER IF EXISTS checker")
        asked(connection, f"CREATE USER checker IDENTIFIED BY '{SECRET}'")
        asked(connection, "GRANT REPLICATION SLAVE, REPLICATION CLIENT, SELECT ON *.* TO checker")
        yield connection
        asked(connection, "DROP USER checker", f"DROP DATABASE {SHOP}")


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MYSQL_PWD", SECRET)


def uri(database: Database, user: str = "checker") -> str:
    return f"mysql://{user}@127.0.0.1:{database.port}/?tables={SHOP}.*"


def check(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = main(["check", *words])
    said = capsys.readouterr()
    assert SECRET not in said.out + said.err
    return code, said.out


def test_a_server_as_it_should_be_has_a_line_for_each_thing(
    database: Database, root: Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = check(capsys, "--source", uri(database))
    assert code == 0
    assert f"at checker@127.0.0.1:{database.port} answers; 1 table of it would be followed" in said
    for name in ("grants", "tables", "retention"):
        assert f"  ok       {name:<12} " in said


def test_a_fault_has_the_statement_that_mends_it(
    database: Database, root: Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    asked(root, "ALTER TABLE orders ENGINE = MyISAM")
    code, said = check(capsys, "--source", uri(database))
    assert code == 1
    assert "  problem  tables       checked.orders has the engine MyISAM" in said
    assert "-> ALTER TABLE `checked`.`orders` ENGINE = InnoDB; or leave checked.orders out" in said


def test_many_tables_with_one_fault_are_counted(
    database: Database, root: Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    asked(root, *(f"CREATE TABLE t{i} (id int) ENGINE = MEMORY" for i in range(25)))
    _, said = check(capsys, "--source", uri(database))
    assert said.count("has the engine MEMORY") == 10
    assert "and 15 more like these" in said
    assert "11 problems" in said


def test_a_password_that_is_wrong_or_in_a_file_or_in_the_uri(
    database: Database,
    root: Connection,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MYSQL_PWD", "another")
    code, said = check(capsys, "--source", uri(database))
    assert code == 1
    assert "check user and password" in said
    file = tmp_path / "password"
    file.write_text(SECRET + "\n")
    assert check(capsys, "--source", uri(database), "--password-file", str(file))[0] == 0
    assert check(capsys, "--source", uri(database, "checker:" + SECRET.replace("/", "%2F")))[0] == 0


def test_a_changefeed_whose_log_file_is_purged_is_told_so(
    mysql: Database, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MYSQL_PWD", "")
    store = open_store(f"file://{tmp_path}/out")
    store.prepare()
    head = Head(tso(now_ms()), '{"file": "bin.999999", "pos": 4}')
    store.put(entry_path(1), object_bytes(pa.Table.from_pylist([], FILES), head.json()))
    code, said = check(capsys, f"file://{tmp_path}/out", "--source", f"mysql://root@127.0.0.1:{mysql.port}/?tables=*.*")
    assert code == 1
    assert "  problem  retention    the changefeed goes on in the log file bin.999999, which is purged" in said


def test_check_needs_something_to_look_at(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check"]) == 2
    assert "check needs a sink, a source with --source, or both" in capsys.readouterr().err
