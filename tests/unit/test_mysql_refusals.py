"""What of a server cannot be followed: each case is made for real, named, and mended by its statements."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from pymysql.connections import Connection

from tidegate.bench.harness.database_log import changes_in
from tidegate.bench.harness.databases import Database, asked, missing, running_database
from tidegate.errors import BadEvents, BadLog
from tidegate.format.rules.rules import TableFilter
from tidegate.sources import open_source
from tidegate.sources.mysql.ddl.apply import apply
from tidegate.sources.mysql.facts import ForeignKey, LogFile, Server, TableFacts, TypedColumn
from tidegate.sources.mysql.information_schema import read_catalogue
from tidegate.sources.mysql.inspection import inspect_server, plain_server, version_of
from tidegate.sources.mysql.log.control_events import Query
from tidegate.sources.mysql.refusals import (
    Finding,
    findings,
    refuse_entry,
    refuse_problems,
    retention_findings,
    server_findings,
    table_findings,
)

SHOP = "guarded"


@pytest.fixture
def root(database: Database) -> Iterator[Connection]:
    """A session of the database in turn, in an empty schema with one table that can be followed."""
    with database.connect() as connection:
        asked(connection, f"DROP DATABASE IF EXISTS {SHOP}", f"CREATE DATABASE {SHOP}", f"USE {SHOP}")
        asked(connection, "CREATE TABLE fine (id int PRIMARY KEY, v varchar(10))")
        yield connection
        asked(connection, f"DROP DATABASE {SHOP}")


def follows(schema: str, table: str) -> bool:
    return schema == SHOP


def found(database: Database, **options: str) -> list[Finding]:
    return findings(inspect_server(lambda: database.connect(**options), follows))


def problems(database: Database, **options: str) -> list[Finding]:
    return [finding for finding in found(database, **options) if finding.is_problem]


def only_problem(database: Database, **options: str) -> Finding:
    (finding,) = problems(database, **options)
    return finding


def assert_mended(database: Database, root: Connection, finding: Finding, **options: str) -> None:
    assert finding.mends
    asked(root, *finding.mends)
    assert problems(database, **options) == []


def test_a_server_as_it_should_be_has_no_problem(database: Database, root: Connection) -> None:
    assert problems(database) == []
    refuse_problems(found(database))


# Variables ------------------------------------------------------------------------------------------------------------


@contextmanager
def kept(database: Database, *variables: str) -> Iterator[Connection]:
    """These variables have their values of before at the end."""
    with database.connect() as connection:
        values = [asked(connection, f"SELECT @@GLOBAL.{variable}")[0][0] for variable in variables]
        try:
            yield connection
        finally:
            for variable, value in zip(variables, values, strict=True):
                shown = f"'{value}'" if isinstance(value, str) else value
                asked(connection, f"SET GLOBAL {variable} = {shown}")
            if database.name == "mysql":
                asked(connection, "RESET PERSIST")


VARIABLES = [
    ("binlog_format", "STATEMENT", "binlog_format is STATEMENT: the log holds statements instead of rows"),
    ("binlog_format", "MIXED", "binlog_format is MIXED: the log holds statements instead of rows"),
    ("binlog_row_image", "MINIMAL", "binlog_row_image is MINIMAL: rows in the log lack columns"),
    ("binlog_row_metadata", "MINIMAL", "binlog_row_metadata is MINIMAL: the log has no names, signs"),
]
OWN = {
    "mysql": [("binlog_row_value_options", "PARTIAL_JSON", "is PARTIAL_JSON: the log holds only parts of JSON values")],
    "mariadb": [
        ("log_bin_compress", "ON", "log_bin_compress is ON: compressed events of the log are not read"),
        ("binlog_alter_two_phase", "ON", "is ON: an ALTER TABLE stands in the log in two parts"),
    ],
}


def test_a_variable_is_named_and_its_statement_mends_it(database: Database, root: Connection) -> None:
    for variable, value, sentence in [*VARIABLES, *OWN[database.name]]:
        with kept(database, variable):
            asked(root, f"SET GLOBAL {variable} = {value}")
            finding = only_problem(database)
            assert sentence in finding.sentence
            assert_mended(database, root, finding)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_mysql_without_gtids_is_named_and_led_to_them_step_by_step(mysql: Database, steps: int) -> None:
    down = ["ON_PERMISSIVE", "OFF_PERMISSIVE", "OFF"][:steps]
    with mysql.connect() as root:
        asked(root, *(f"SET GLOBAL gtid_mode = {mode}" for mode in down))
        asked(root, f"SET GLOBAL enforce_gtid_consistency = {'OFF' if steps == 3 else 'ON'}")
        try:
            finding = next(each for each in problems(mysql) if each.what == "gtid_mode")
            assert finding.sentence == f"gtid_mode is {down[-1]}: transactions in the log have no names"
        finally:
            asked(root, *finding.mends)
            asked(root, "RESET PERSIST")
        assert asked(root, "SELECT @@gtid_mode, @@enforce_gtid_consistency") == [("ON", "ON")]


def test_what_a_statement_cannot_mend_names_the_configuration() -> None:
    server = Server((10, 11), True, "'r'@'%'", {"log_bin": "OFF", "encrypt_binlog": "ON"}, do_db="a", ignore_db="b")
    found = {each.what: each for each in server_findings(server)}
    assert str(found["log_bin"]) == (
        "log_bin is OFF: the server writes no log; put log_bin = ON into the configuration of the server and restart it"
    )
    assert str(found["encrypt_binlog"]).endswith(
        "encrypt_binlog = OFF into the configuration of the server and restart it"
    )
    for variable, value in (("binlog_do_db", "a"), ("binlog_ignore_db", "b")):
        assert found[variable].sentence.startswith(f"{variable} is {value}: the log lacks changes of some databases")
        assert found[variable].remedy == f"take {variable} out of the configuration of the server and restart it"


def test_a_server_without_a_log_is_named(tmp_path: Path) -> None:
    if reason := missing("mariadb"):
        pytest.skip(reason)
    with running_database("mariadb", tmp_path, "--skip-log-bin") as database:
        with database.connect() as root:
            asked(root, f"CREATE DATABASE {SHOP}", f"CREATE TABLE {SHOP}.t (id int)")
        assert only_problem(database).sentence == "log_bin is OFF: the server writes no log"


def test_a_server_that_leaves_databases_out_of_its_log_is_named(tmp_path: Path) -> None:
    if reason := missing("mariadb"):
        pytest.skip(reason)
    with running_database("mariadb", tmp_path, "--binlog-do-db=a", "--binlog-ignore-db=b") as database:
        with database.connect() as root:
            asked(root, f"CREATE DATABASE {SHOP}", f"CREATE TABLE {SHOP}.t (id int)")
        assert [each.what for each in problems(database)] == ["binlog_do_db", "binlog_ignore_db"]


def test_a_replica_that_does_not_log_what_it_replicates_is_named() -> None:
    for is_mariadb, variable in ((True, "log_slave_updates"), (False, "log_replica_updates")):
        variables = {variable: "OFF", "gtid_mode": "ON"}
        server = Server((10, 11), is_mariadb, "'r'@'%'", variables)
        assert server_findings(server) == []
        replica = Server((10, 11), is_mariadb, "'r'@'%'", variables, is_replica=True)
        (finding,) = server_findings(replica)
        assert finding.sentence == (
            f"{variable} is OFF, and the server is a replica: what it replicates is not in its own log"
        )


def test_what_may_go_wrong_later_is_a_warning(database: Database, root: Connection) -> None:
    with kept(database, "sync_binlog"):
        asked(root, "SET GLOBAL sync_binlog = 0")
        (finding,) = (each for each in found(database) if not each.is_problem)
        assert finding.sentence.startswith("sync_binlog is 0: after a crash of its machine the server may lack")
        asked(root, *finding.mends)
        assert found(database) == []


# Tables ---------------------------------------------------------------------------------------------------------------

TABLES = {
    "mysql": [
        ("id int PRIMARY KEY", "ENGINE = MyISAM", "guarded.odd has the engine MyISAM, without the transactions"),
        ("id int PRIMARY KEY", "ENGINE = MEMORY", "guarded.odd has the engine MEMORY, without the transactions"),
        ("id int PRIMARY KEY, p point", "", "guarded.odd, column 'p' is point, which has no place in TiCDC's format"),
    ],
    "mariadb": [
        ("id int PRIMARY KEY", "ENGINE = Aria", "guarded.odd has the engine Aria, without the transactions"),
        ("id int PRIMARY KEY", "WITH SYSTEM VERSIONING", "guarded.odd has system versioning: the log mixes"),
        ("id int PRIMARY KEY, u uuid", "", "guarded.odd, column 'u' is uuid, which has no place in TiCDC's format"),
        ("id int PRIMARY KEY, i inet6", "", "guarded.odd, column 'i' is inet6, which has no place"),
        ("id int PRIMARY KEY, c varchar(9) COMPRESSED", "", "guarded.odd, column 'c' is a compressed varchar"),
    ],
}


def test_a_table_is_named_and_its_statement_mends_it(database: Database, root: Connection) -> None:
    for columns, options, sentence in TABLES[database.name]:
        asked(root, f"CREATE TABLE odd ({columns}) {options}", "INSERT INTO odd (id) VALUES (1)")
        finding = only_problem(database)
        assert finding.sentence.startswith(sentence)
        assert_mended(database, root, finding)
        assert asked(root, "SELECT id FROM odd") == [(1,)]
        asked(root, "DROP TABLE odd")


def test_a_time_in_the_old_format_is_named_and_renewed(mariadb: Database) -> None:
    with mariadb.connect() as root, kept(mariadb, "mysql56_temporal_format"):
        asked(root, f"DROP DATABASE IF EXISTS {SHOP}", f"CREATE DATABASE {SHOP}", f"USE {SHOP}")
        asked(root, "SET GLOBAL mysql56_temporal_format = OFF", "CREATE TABLE odd (id int PRIMARY KEY, v datetime(3))")
        asked(root, "SET GLOBAL mysql56_temporal_format = ON")
        finding = only_problem(mariadb)
        assert finding.sentence == "guarded.odd, column 'v' is datetime in the format of MySQL 5.5"
        assert_mended(mariadb, root, finding)


CASCADES = ["ON DELETE CASCADE", "ON UPDATE CASCADE", "ON DELETE SET NULL", "ON DELETE CASCADE ON UPDATE SET NULL"]


def test_a_foreign_key_that_changes_rows_by_itself_is_named_where_the_log_lacks_them(mariadb: Database) -> None:
    with mariadb.connect() as root:
        asked(root, f"DROP DATABASE IF EXISTS {SHOP}", f"CREATE DATABASE {SHOP}", f"USE {SHOP}")
        asked(root, "CREATE TABLE parent (a int, b int, PRIMARY KEY (a, b))")
        for rule in CASCADES:
            key = "FOREIGN KEY (x, y) REFERENCES parent (a, b)"
            asked(root, f"CREATE TABLE child (id int PRIMARY KEY, x int, y int, CONSTRAINT `to par` {key} {rule})")
            finding = only_problem(mariadb)
            assert finding.sentence == (
                f"guarded.child has the foreign key to par {rule}: what it changes is not in the log"
            )
            assert_mended(mariadb, root, finding)
            assert "CONSTRAINT `to par` FOREIGN KEY (`x`, `y`)" in str(asked(root, "SHOW CREATE TABLE child"))
            asked(root, "DROP TABLE child")


def test_the_log_of_mysql_holds_what_a_foreign_key_changes_and_that_of_mariadb_does_not(
    database: Database, root: Connection
) -> None:
    asked(root, "CREATE TABLE parent (id int PRIMARY KEY)", "INSERT INTO parent VALUES (1)")
    asked(root, "CREATE TABLE child (id int PRIMARY KEY, FOREIGN KEY (id) REFERENCES parent (id) ON DELETE CASCADE)")
    asked(root, "INSERT INTO child VALUES (1)")
    file = database.begin_log()
    asked(root, "DELETE FROM parent")
    logged = [table for table, _ in changes_in(database.read_log(file))]
    assert ("child" in logged) is inspect_server(database.connect, follows).server.logs_cascades
    asked(root, "DROP TABLE child, parent")


def test_a_mysql_that_logs_cascades_is_not_refused_for_them(mysql: Database) -> None:
    with mysql.connect() as root:
        asked(root, f"DROP DATABASE IF EXISTS {SHOP}", f"CREATE DATABASE {SHOP}", f"USE {SHOP}")
        asked(root, "CREATE TABLE parent (id int PRIMARY KEY)")
        asked(
            root, "CREATE TABLE child (id int PRIMARY KEY, FOREIGN KEY (id) REFERENCES parent (id) ON DELETE CASCADE)"
        )
        assert problems(mysql) == []
        asked(root, "DROP TABLE child, parent")


@pytest.mark.parametrize(
    ("version", "native", "refused"), [((9, 5, 0), None, True), ((9, 6, 0), "OFF", False), ((9, 7, 4), "ON", True)]
)
def test_cascades_count_by_the_release_and_its_way_of_foreign_keys(
    version: tuple[int, ...], native: str | None, refused: bool
) -> None:
    variables = {"gtid_mode": "ON"} | ({"innodb_native_foreign_keys": native} if native else {})
    server = Server(version, False, "'r'@'%'", variables)
    key = ForeignKey("k", ("x",), ("shop", "p"), ("id",), "CASCADE", "NO ACTION")
    table = TableFacts("shop", "c", foreign_keys=(key,))
    assert bool(list(table_findings(server, [table]))) is refused


def test_a_key_that_only_forbids_is_no_cascade() -> None:
    server = Server((10, 11), True, "'r'@'%'", {})
    key = ForeignKey("k", ("x",), ("shop", "p"), ("id",), "RESTRICT", "NO ACTION")
    assert list(table_findings(server, [TableFacts("shop", "c", foreign_keys=(key,))])) == []


def test_vectors_are_read_from_mysql_alone() -> None:
    table = TableFacts("shop", "c", columns=(TypedColumn("v", "vector", "vector(3)"),))
    for is_mariadb in (True, False):
        server = Server((11, 8), is_mariadb, "'r'@'%'", {})
        assert bool(list(table_findings(server, [table]))) is is_mariadb


def test_tables_that_are_not_followed_do_not_count(database: Database, root: Connection) -> None:
    asked(root, "CREATE TABLE elsewhere (id int PRIMARY KEY) ENGINE = MyISAM")
    facts = inspect_server(database.connect, lambda schema, table: (schema, table) == (SHOP, "fine"))
    assert facts.followed == 1
    assert [each for each in findings(facts) if each.is_problem] == []


def test_several_problems_are_one_refusal_that_names_the_first(database: Database, root: Connection) -> None:
    asked(root, "CREATE TABLE a (id int PRIMARY KEY) ENGINE = MyISAM", "CREATE TABLE b (id int) ENGINE = MEMORY")
    with pytest.raises(BadLog, match=r"^guarded\.a has the engine MyISAM.*; ALTER TABLE `guarded`\.`a` ENGINE"):
        refuse_problems(found(database))
    with pytest.raises(BadLog, match=r"\(and 1 more: tidegate check lists them\)$"):
        refuse_problems(found(database))


# DDLs -----------------------------------------------------------------------------------------------------------------

BROUGHT = {
    "mysql": [("CREATE TABLE odd (id int PRIMARY KEY) ENGINE = MyISAM", "guarded.odd has the engine MyISAM")],
    "mariadb": [
        ("CREATE TABLE odd (id int PRIMARY KEY) ENGINE = Aria", "guarded.odd has the engine Aria"),
        ("CREATE TABLE odd (id int PRIMARY KEY) WITH SYSTEM VERSIONING", "guarded.odd has system versioning"),
        (
            "CREATE TABLE odd (id int, CONSTRAINT k FOREIGN KEY (id) REFERENCES fine (id) ON DELETE CASCADE)",
            "guarded.odd has the foreign key k ON DELETE CASCADE",
        ),
        ("ALTER TABLE fine ADD SYSTEM VERSIONING", "guarded.fine has system versioning"),
    ],
}


def test_a_ddl_that_brings_what_cannot_be_followed_is_refused(database: Database, root: Connection) -> None:
    catalogue = read_catalogue(database.connect, TableFilter((f"{SHOP}.*",)), 1, False).catalogue
    refuse = partial(refuse_entry, plain_server(root))
    for statement, sentence in BROUGHT[database.name]:
        asked(root, statement)
        with pytest.raises(BadEvents, match=re.escape(sentence)):
            apply(catalogue, Query(SHOP, statement, 0, "utf8mb4"), 5, refuse)
        apply(catalogue, Query(SHOP, "CREATE TABLE good (id int PRIMARY KEY)", 0, "utf8mb4"), 6, refuse)
        asked(root, "DROP TABLE IF EXISTS odd")


def test_the_source_refuses_before_it_starts(database: Database, root: Connection) -> None:
    uri = f"mysql://root@127.0.0.1:{database.port}/?tables={SHOP}.*"
    open_source(uri).check()
    asked(root, "CREATE TABLE odd (id int) ENGINE = MEMORY")
    with pytest.raises(BadLog, match=r"^guarded\.odd has the engine MEMORY.*; ALTER TABLE"):
        open_source(uri).check()


# Grants and transactions ----------------------------------------------------------------------------------------------


@contextmanager
def reader(root: Connection, *grants: str) -> Iterator[dict[str, str]]:
    """A user with these grants only; the options to connect as it."""
    asked(root, "DROP USER IF EXISTS 'rea_der'@'%'", "CREATE USER 'rea_der'@'%' IDENTIFIED BY 'secret'")
    asked(root, *(f"GRANT {grant} TO 'rea_der'@'%'" for grant in grants))
    yield {"user": "rea_der", "password": "secret"}
    asked(root, "DROP USER 'rea_der'@'%'")


GRANTS = ["REPLICATION SLAVE ON *.*", "REPLICATION CLIENT ON *.*", f"SELECT ON {SHOP}.*"]


def test_a_user_with_all_grants_has_no_problem(database: Database, root: Connection) -> None:
    with reader(root, *GRANTS) as options:
        assert problems(database, **options) == []


def test_a_missing_grant_is_named_and_granted_by_its_statement(database: Database, root: Connection) -> None:
    for lacking in GRANTS:
        with reader(root, *(grant for grant in GRANTS if grant != lacking)) as options:
            finding = only_problem(database, **options)
            assert finding.what == ("tables" if lacking.startswith("SELECT") else "grants")
            assert "'rea_der'@'%'" in finding.sentence
            assert "secret" not in str(finding)
            assert_mended(database, root, finding, **options)


def test_a_table_that_may_be_seen_and_not_read_is_named(database: Database, root: Connection) -> None:
    asked(root, "CREATE TABLE closed (id int PRIMARY KEY, v int)")
    grants = [*GRANTS[:2], f"SELECT ON {SHOP}.fine", f"INSERT ON {SHOP}.closed"]
    with reader(root, *grants) as options:
        finding = only_problem(database, **options)
        assert finding.sentence == "'rea_der'@'%' may not read guarded.closed"
        assert_mended(database, root, finding, **options)


def test_a_grant_does_not_reach_databases_with_similar_names() -> None:
    server = Server((10, 11), True, "'r'@'%'", {})
    (finding,) = table_findings(server, [TableFacts("my_shop", "t", is_readable=False)])
    assert finding.mends == (r"GRANT SELECT ON `my\_shop`.* TO 'r'@'%'",)


def test_a_prepared_xa_transaction_is_named_and_ended_by_its_statement(database: Database, root: Connection) -> None:
    with database.connect() as other:
        asked(other, f"USE {SHOP}", r"XA START X'610062','branch',7", "INSERT INTO fine VALUES (1, 'x')")
        asked(other, r"XA END X'610062','branch',7", r"XA PREPARE X'610062','branch',7")
    finding = only_problem(database)
    assert finding.sentence.startswith("the XA transaction X'610062',X'6272616e6368',7 is prepared")
    assert_mended(database, root, finding)
    assert asked(root, "SELECT id FROM fine") == [(1,)]


def test_a_mysql_user_that_may_not_see_xa_transactions_is_warned(mysql: Database) -> None:
    with mysql.connect() as root:
        asked(root, f"DROP DATABASE IF EXISTS {SHOP}", f"CREATE DATABASE {SHOP}", f"CREATE TABLE {SHOP}.t (id int)")
        with reader(root, *GRANTS) as options:
            (finding,) = (each for each in found(mysql, **options) if each.what == "xa")
            assert not finding.is_problem
            asked(root, *finding.mends)
            assert not [each for each in found(mysql, **options) if each.what == "xa"]


# Retention ------------------------------------------------------------------------------------------------------------


def test_the_log_must_be_kept_for_longer_than_the_changefeed_is_behind(database: Database, root: Connection) -> None:
    with kept(database, "binlog_expire_logs_seconds"):
        asked(root, "SET GLOBAL binlog_expire_logs_seconds = 172800")
        server = inspect_server(database.connect, follows).server
        assert list(retention_findings(server, 3600.0, None)) == []
        (finding,) = retention_findings(server, 100_000.0, server.files[-1].name)
        assert finding.sentence == "the log is kept for 48.0 hours, and the changefeed is 27.8 hours behind"
        asked(root, *finding.mends)
        assert list(retention_findings(inspect_server(database.connect, follows).server, 100_000.0, None)) == []


def test_a_log_that_is_kept_for_less_than_a_day_is_a_warning() -> None:
    server = Server((9, 7), False, "'r'@'%'", {"binlog_expire_logs_seconds": "3600"})
    (finding,) = retention_findings(server, None, None)
    assert not finding.is_problem
    assert str(finding) == (
        "the log is kept for 1.0 hours: a changefeed that stands still for longer cannot go on; "
        "SET PERSIST binlog_expire_logs_seconds = 604800"
    )


def test_a_log_that_is_never_purged_has_no_finding() -> None:
    for variables in ({"binlog_expire_logs_seconds": "0", "expire_logs_days": "0.000000"}, {"expire_logs_days": "0"}):
        assert list(retention_findings(Server((10, 11), True, "'r'@'%'", variables), 10.0**9, None)) == []
    off = {"binlog_expire_logs_auto_purge": "OFF", "binlog_expire_logs_seconds": "60"}
    assert list(retention_findings(Server((9, 7), False, "'r'@'%'", off), 10.0**9, None)) == []


def test_a_purged_position_is_a_problem() -> None:
    server = Server((9, 7), False, "'r'@'%'", {}, files=(LogFile("bin.000007", 100),))
    (finding,) = retention_findings(server, 5.0, "bin.000003")
    assert finding.is_problem
    assert finding.sentence == (
        "the changefeed goes on in the log file bin.000003, which is purged: the log begins at bin.000007"
    )


@pytest.mark.parametrize(
    ("text", "version"),
    [("10.11.19-MariaDB-0+deb12u1-log", (10, 11, 19)), ("5.5.5-10.4.2-MariaDB", (10, 4, 2)), ("9.7.4-2", (9, 7, 4))],
)
def test_versions_are_read(text: str, version: tuple[int, ...]) -> None:
    assert version_of(text) == version
