"""What the statements of a log do to the catalogue, and the rows that tell it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest

from tidegate.errors import BadDdl, BadLog
from tidegate.events import EVENTS
from tidegate.format.ddl.events import ACTION_NAMES, DdlEvent
from tidegate.format.ddl.filter import DdlRules
from tidegate.format.rules.rules import Rules, TableFilter
from tidegate.sources.mysql.catalogue import Applied, Catalogue, Change, DatabaseEntry, Server, TableEntry
from tidegate.sources.mysql.ddl.agree import agree
from tidegate.sources.mysql.ddl.apply import apply
from tidegate.sources.mysql.log.control_events import Query
from tidegate.sources.mysql.log.table_map import LONG, VARCHAR, LogColumn, Stored, TableMap
from tidegate.sources.mysql.refilter import refiltered


@dataclass
class Log:
    """A catalogue that follows statements; each has a commit-ts 100 above the last."""

    catalogue: Catalogue
    ts: int = 1000

    def run(self, text: str, database: str = "shop", **more: Any) -> Applied:
        self.ts += 100
        applied = apply(self.catalogue, Query(database, text, more.pop("sql_mode", 0), "utf8mb4", **more), self.ts)
        self.catalogue = applied.catalogue
        return applied

    def entry(self, name: str, database: str = "shop") -> TableEntry:
        found = self.catalogue.find(database, name)
        assert found is not None
        return found


def log_of(*rules: str, server: Server | None = None, databases: tuple[str, ...] = ("shop", "b")) -> Log:
    catalogue = Catalogue(server or Server(), TableFilter(rules or ("*.*",)))
    known = {name: DatabaseEntry(name, at, "utf8mb4") for at, name in enumerate(databases, start=1)}
    return Log(catalogue.changed(Change(databases=known, next_schema_id=len(known) + 1)))


def shown(applied: Applied) -> list[tuple[str, list[str]]]:
    """Each row as its action and the tables after it."""
    return [
        (ACTION_NAMES[row.event.type], [f"{each.schema}.{each.table}" for each in row.event.tables])
        for row in applied.rows
    ]


def test_a_new_table_has_a_row_with_its_layout_and_an_id_of_its_own() -> None:
    log = log_of()
    applied = log.run("create table t (id int primary key, v varchar(20))")
    (row,) = applied.rows
    assert shown(applied) == [("create table", ["shop.t"])]
    assert (row.commit_ts, row.event.added[0].table_id, row.table_id) == (1100, 1, 0)
    assert row.layouts == (log.entry("t").layout,)
    assert log.entry("t").version == 1100
    batch = pa.RecordBatch.from_pylist([row.row(seq=7)], schema=EVENTS)
    assert DdlEvent.from_json(batch.column("ddl")[0].as_py()) == row.event
    assert log.run("create table u (id int)").rows[0].event.added[0].table_id == 2


def test_a_truncate_gives_the_table_a_new_id() -> None:
    log = log_of()
    log.run("create table t (id int)")
    applied = log.run("truncate t")
    assert shown(applied) == [("truncate table", ["shop.t"])]
    assert applied.rows[0].event.dropped is not None
    assert applied.rows[0].event.dropped.table_ids == (1,)
    assert (log.entry("t").table_id, log.entry("t").version) == (2, log.ts)
    assert applied.touched == {1, 2}


def test_each_table_of_a_drop_has_a_row_and_a_commit_ts() -> None:
    log = log_of()
    log.run("create table t (id int)")
    log.run("create table u (id int)", database="b")
    applied = log.run("drop table if exists t, nope, b.u")
    assert shown(applied) == [("drop table", ["shop.t"]), ("drop table", ["b.u"])]
    assert [row.commit_ts for row in applied.rows] == [log.ts, log.ts + 1]
    assert applied.last_ts(log.ts) == log.ts + 1
    assert log.catalogue.find("shop", "t") is None


def test_a_table_that_replaces_another_has_a_later_version_than_its_drop() -> None:
    log = log_of(server=Server(mariadb=True, version=101119))
    log.run("create table t (id int)")
    applied = log.run("create or replace table t (id int)")
    assert shown(applied) == [("drop table", ["shop.t"]), ("create table", ["shop.t"])]
    assert log.entry("t").version == log.ts + 1
    assert log.entry("t").table_id == 2


@pytest.mark.parametrize(
    ("alter", "action"),
    [
        ("ADD c int", "add column"),
        ("ADD c int, ADD d int", "multi-schema change"),
        ("DROP COLUMN v", "drop column"),
        ("ADD KEY (v)", "add index"),
        ("ADD UNIQUE (v)", "add index"),
        ("DROP KEY u", "drop index"),
        ("ADD FULLTEXT (v)", "full-text index"),
        ("MODIFY v text", "modify column"),
        ("CHANGE v w text", "modify column"),
        ("RENAME COLUMN v TO w", "modify column"),
        ("ALTER v SET DEFAULT 'x'", "set default"),
        ("COMMENT 'x'", "table comment"),
        ("AUTO_INCREMENT = 5", "rebase auto id"),
        ("CHARSET latin1", "table charset"),
        ("CONVERT TO CHARACTER SET latin1", "table charset"),
        ("RENAME INDEX u TO w", "rename index"),
        ("ALTER INDEX u INVISIBLE", "index visibility"),
        ("DROP PRIMARY KEY", "drop primary key"),
        ("ADD FOREIGN KEY (v) REFERENCES x (v)", "add foreign key"),
        ("DROP FOREIGN KEY f", "drop foreign key"),
        ("PARTITION BY HASH (id)", "partition by"),
        ("REMOVE PARTITIONING", "remove partitioning"),
        ("ADD PARTITION PARTITIONS 2", "add partition"),
        ("DROP PARTITION p0, p1", "drop partition"),
        ("TRUNCATE PARTITION ALL", "truncate partition"),
        ("COALESCE PARTITION 1", "reorganize partition"),
        ("RENAME TO w", "rename table"),
    ],
)
def test_an_alter_has_the_type_of_what_it_does(alter: str, action: str) -> None:
    log = log_of()
    log.run("create table t (id int primary key, v varchar(20), unique u (v))")
    applied = log.run(f"ALTER TABLE t {alter}")
    assert [name for name, _ in shown(applied)] == [action]
    assert applied.rows[0].table_id == 1
    name = "w" if "RENAME TO" in alter else "t"
    assert (log.entry(name).version, log.entry(name).table_id) == (log.ts, 1)


@pytest.mark.parametrize("alter", ["ENGINE=InnoDB", "FORCE", "ROW_FORMAT=DYNAMIC", "ORDER BY id", "ADD CHECK (id > 0)"])
def test_an_alter_that_nobody_sees_downstream_has_no_row(alter: str) -> None:
    log = log_of()
    log.run("create table t (id int)")
    assert log.run(f"ALTER TABLE t {alter}").rows == ()
    assert log.entry("t").version == 1100


def test_a_rename_beside_other_changes_is_a_row_of_its_own() -> None:
    log = log_of()
    log.run("create table t (id int)")
    applied = log.run("alter table t add c int, rename to b.u")
    assert shown(applied) == [("add column", ["shop.t"]), ("rename table", ["b.u"])]
    assert applied.rows[1].event.updated_schemas[0].new_schema_id == 2
    assert [column.name for column in log.entry("u", "b").layout.columns] == ["id", "c"]


def test_tables_that_change_names_are_one_row_with_their_steps() -> None:
    log = log_of()
    log.run("create table t (id int)")
    log.run("create table u (x int)")
    applied = log.run("rename table t to tmp, u to t, tmp to u")
    assert shown(applied) == [("rename tables", ["shop.tmp", "shop.t", "shop.u"])]
    assert (log.entry("t").table_id, log.entry("u").table_id) == (2, 1)
    assert log.entry("u").version == log.ts


def test_an_online_schema_change_ends_the_table_and_begins_one_that_needs_a_snapshot() -> None:
    log = log_of("shop.orders")
    log.run("create table orders (id int primary key)")
    log.run("create table _orders_gho like orders")
    assert log.run("alter table _orders_gho add c varchar(9)").rows == ()
    applied = log.run("rename table orders to _orders_del, _orders_gho to orders")
    assert shown(applied) == [("rename table", ["shop._orders_del"]), ("create table", ["shop.orders"])]
    assert applied.rows[0].event.dropped is not None
    assert applied.rows[0].event.dropped.table_ids == (1,)
    assert applied.rows[1].event.query == (
        "CREATE TABLE `shop`.`orders` (`id` INT(11) NOT NULL,`c` VARCHAR(9),PRIMARY KEY(`id`))"
    )
    entry = log.entry("orders")
    assert (entry.needs_snapshot, entry.table_id, entry.version) == (True, 3, log.ts + 1)
    assert not log.entry("_orders_del").followed
    assert [each.name for each in log.catalogue.waiting(0, 10)] == ["orders"]
    assert log.catalogue.count_waiting(0) == 1


def test_a_table_of_an_unknown_database_cannot_get_a_followed_name() -> None:
    log = log_of("shop.*", databases=("shop",))
    with pytest.raises(BadDdl, match=r"nothing is known of the database 'b'"):
        log.run("rename table b.x to shop.x")
    log.run("create table shop.v (id int)", database="b")
    assert log.run("create table b.z (id int)").ignored
    assert shown(log.run("rename table shop.v to b.v")) == [("rename table", ["b.v"])]
    assert log.catalogue.find("b", "v") is None


def test_a_dropped_database_takes_its_tables_and_a_new_one_has_another_id() -> None:
    log = log_of()
    log.run("create table t (id int)")
    applied = log.run("drop database shop")
    assert shown(applied) == [("drop database", ["shop."])]
    assert applied.touched == {1}
    assert log.catalogue.find("shop", "t") is None
    assert shown(log.run("create schema shop character set latin1")) == [("create database", ["shop."])]
    assert log.catalogue.find("shop", "t") is None
    assert list(log.catalogue.entries()) == []
    log.run("create table t (v text(255))")
    assert (log.entry("t").schema_id, log.entry("t").layout.columns[0].type) == (3, "tinytext")


def test_a_database_without_a_character_set_has_that_of_the_session() -> None:
    log = log_of()
    log.run("create database n", server_charset="latin1")
    assert log.catalogue.databases["n"].charset == "latin1"
    assert shown(log.run("alter database charset utf8mb3", database="n")) == [("database charset", ["n."])]
    assert log.catalogue.databases["n"].charset == "utf8mb3"
    assert log.run("alter database n upgrade data directory name").ignored


def test_a_partition_that_is_exchanged_names_both_tables() -> None:
    log = log_of()
    log.run("create table p (id int) partition by hash (id)")
    log.run("create table n (id int)")
    applied = log.run("alter table p exchange partition p0 with table n")
    assert shown(applied) == [("exchange partition", ["shop.p", "shop.n"])]
    assert applied.touched == {1, 2}
    event = applied.rows[0].event
    kept = DdlRules(Rules(filter=TableFilter(("shop.p",)))).kept(event)
    assert kept is not None
    assert kept.dropped is None
    assert kept.blocked is not None
    assert kept.blocked.table_ids == (1, 0)


def test_a_partition_of_a_table_that_nobody_follows_needs_a_snapshot() -> None:
    log = log_of("shop.p")
    log.run("create table p (id int) partition by hash (id)")
    log.run("create table n (id int)")
    applied = log.run("alter table p exchange partition p0 with table n")
    assert shown(applied) == [("truncate table", ["shop.p"])]
    assert log.entry("p").needs_snapshot


@pytest.mark.parametrize("how", ["DISCARD TABLESPACE", "IMPORT TABLESPACE"])
def test_rows_that_come_or_go_by_files_give_the_table_a_new_id(how: str) -> None:
    log = log_of()
    log.run("create table t (id int)")
    assert shown(log.run(f"alter table t {how}")) == [("truncate table", ["shop.t"])]
    assert log.entry("t").needs_snapshot == how.startswith("IMPORT")


@pytest.mark.parametrize(
    "text",
    [
        "BEGIN",
        "COMMIT",
        "XA START 'x'",
        "SAVEPOINT a",
        "create temporary table t (id int)",
        "DROP TEMPORARY TABLE IF EXISTS `t` /* generated by server */",
        "CREATE ALGORITHM=UNDEFINED DEFINER=`root`@`localhost` SQL SECURITY DEFINER VIEW `v` AS select 1",
        "create or replace view t as select 1",
        "create definer=`a`@`b` trigger x before insert on t for each row set new.id = 1",
        "create aggregate function f returns int soname 'x'",
        "alter event e disable",
        "drop procedure if exists p",
        "create user x@y identified by 'secret'",
        "rename user a to b",
        "GRANT SELECT ON *.* TO 'root'@'localhost'",
        "set password for a = 'x'",
        "analyze table t",
        "alter table nope add c int",
        "rename table some_view to other_view",
        "truncate table mysql.slow_log",
        "create table mysql.x (id int)",
        "insert into other values (1)",
        "update b.u set x = 1",
        "create tablespace ts add datafile 'x'",
        "create spatial reference system 1 name 'x'",
        "drop role r",
        "/* comment */ flush tables",
        "",
    ],
)
def test_a_statement_about_something_else_is_ignored(text: str) -> None:
    log = log_of()
    log.run("create table t (id int)")
    assert log.run(text).ignored


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("insert into t values (1)", "binlog_format"),
        ("update u, shop.t set x = 1", "binlog_format"),
        ("/* x */ delete from `t`", "binlog_format"),
        ("replace into shop . t values (1)", "binlog_format"),
        ("create table u (g geometry)", "geometry"),
        ("alter table t add u uuid", "uuid"),
        ("create table u (x frobnicate)", "frobnicate"),
        ("create table u as select 1", "SELECT"),
        ("create table u (x int frob)", "frob"),
        ("alter table t drop column nope", "nope"),
        ("alter table t drop key nope", "nope"),
        ("alter table t modify nope int", "nope"),
        ("create table t (id int)", "exists already"),
        ("create table u like nope", "nope"),
        ("create table u (v varchar(3) charset klingon)", "klingon"),
        ("create frob x", "CREATE"),
        ("frobnicate table t", "known"),
        ("create table u (x int", "too early"),
        ("create table u (x varchar(3) default 'a)", "never closed"),
    ],
)
def test_a_statement_that_cannot_be_followed_is_named(text: str, reason: str) -> None:
    log = log_of()
    log.run("create table t (id int)")
    before = log.catalogue
    with pytest.raises(BadDdl, match=reason) as caught:
        log.run(text)
    assert text[:20] in str(caught.value)
    assert log.catalogue is before


def test_what_cannot_be_read_matters_only_if_the_table_is_followed() -> None:
    log = log_of("shop.kept")
    assert log.run("create table odd (g geometry, x frobnicate)").rows == ()
    log.run("alter table odd add y int")
    log.run("create index i on odd (y)")
    with pytest.raises(BadDdl, match="frobnicate"):
        log.run("rename table odd to kept")


def test_a_definition_can_be_refused_by_another_rule() -> None:
    log = log_of()

    def refuse(entry: TableEntry) -> None:
        if entry.definition.engine == "MyISAM":
            raise BadDdl(f"{entry.name} has no transactions")

    query = Query("shop", "create table t (id int) engine MyISAM", 0, "utf8mb4")
    with pytest.raises(BadDdl, match="has no transactions"):
        apply(log.catalogue, query, 1, refuse)


def test_names_are_as_the_server_stores_them() -> None:
    log = log_of(server=Server(lower_case=1))
    log.run("CREATE TABLE Shop.ORDERS (Id int)")
    assert log.entry("orders").names == ("shop", "orders")
    assert log.catalogue.followed("shop", "orders") is not None
    log.run("ALTER TABLE Orders RENAME TO Other")
    assert log.entry("other").layout.columns[0].name == "Id"


def test_names_in_other_quotes_are_in_backquotes_downstream() -> None:
    log = log_of()
    applied = log.run('CREATE TABLE "t" ("a""b" varchar(9) DEFAULT \'"x"\')', sql_mode=4)
    assert applied.rows[0].event.query == 'CREATE TABLE `t` (`a"b` VARCHAR(9) DEFAULT _UTF8MB4\'"x"\')'
    assert log.entry("t").layout.columns[0].default == '"x"'


def test_what_surrounds_a_statement_is_not_part_of_it() -> None:
    log = log_of(server=Server(mariadb=True, version=101119))
    applied = log.run("SET STATEMENT max_statement_time=1, sort_buffer_size=2 FOR create table t (id int(3) unsigned);")
    assert applied.rows[0].event.query == "CREATE TABLE `t` (`id` INT(3) UNSIGNED)"
    log = log_of()
    applied = log.run("CREATE TABLE `t` (\n  `id` int NOT NULL\n) START TRANSACTION")
    assert applied.rows[0].event.query == "CREATE TABLE `t` (`id` INT NOT NULL)"


def test_sequences_are_known_but_not_followed() -> None:
    log = log_of(server=Server(mariadb=True, version=101119))
    assert log.run("create sequence s").rows == ()
    assert log.entry("s").definition.sequence
    assert log.catalogue.followed("shop", "s") is None
    log.run("alter table s rename to s2")
    assert log.run("drop sequence s2").rows == ()
    assert log.catalogue.find("shop", "s2") is None


def test_thousands_of_new_tables_are_few_layers() -> None:
    log = log_of()
    kept = log.catalogue
    for number in range(2000):
        log.run(f"create table t{number} (id int)")
    assert kept.find("shop", "t5") is None
    assert len(log.catalogue.tables.layers) < 12
    assert log.catalogue.next_table_id == 2001
    folded = log.catalogue.folded()
    assert folded.find("shop", "t1999") == log.entry("t1999")
    assert sum(1 for _ in folded.entries()) == 2000


def test_columns_keep_their_ids() -> None:
    log = log_of()
    log.run("create table t (a int, b int)")
    log.run("alter table t add c int first, drop b")
    log.run("alter table t change a d bigint after c, add e int")
    assert [(column.name, column.id) for column in log.entry("t").layout.columns] == [("c", 3), ("d", 1), ("e", 4)]


# TABLE_MAP ------------------------------------------------------------------------------------------------------------


def table_map(*columns: LogColumn) -> TableMap:
    return TableMap(77, "shop", "t", columns)


ID = LogColumn("id", Stored(LONG, 4), nullable=False, pk=True)
NAME = LogColumn("v", Stored(VARCHAR, 0, 1, 80, charset="utf8mb4"), nullable=True)


def test_the_catalogue_says_where_the_values_of_a_row_are() -> None:
    log = log_of(server=Server(mariadb=True, version=101119))
    log.run("create table t (id int primary key, g int as (id) virtual, v varchar(20), unique (v))")
    hidden = LogColumn("DB_ROW_HASH_1", Stored(LONG, 4), nullable=True)
    virtual = LogColumn("g", Stored(LONG, 4), nullable=True)
    assert agree(table_map(ID, virtual, NAME, hidden), log.entry("t")) == (0, 2)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (replace(NAME, name="w"), "columns"),
        (replace(NAME, nullable=False), "nullability of 'v'"),
        (replace(NAME, stored=Stored(VARCHAR, 0, 1, 84, charset="utf8mb4")), "length of 'v'"),
        (replace(NAME, stored=Stored(VARCHAR, 0, 1, 20, charset="latin1")), "character set of 'v'"),
        (replace(NAME, stored=Stored(LONG, 4)), "type of 'v'"),
        (replace(NAME, pk=True), "primary key"),
    ],
)
def test_a_contradiction_between_log_and_catalogue_is_named(changed: LogColumn, reason: str) -> None:
    log = log_of()
    log.run("create table t (id int primary key, v varchar(20))")
    assert agree(table_map(ID, NAME), log.entry("t")) == (0, 1)
    with pytest.raises(BadLog, match=f"shop.t with the {reason}"):
        agree(table_map(ID, changed), log.entry("t"))


# Another filter -------------------------------------------------------------------------------------------------------


def test_a_wider_filter_begins_tables_that_need_a_snapshot() -> None:
    log = log_of("shop.a*", databases=("shop",))
    log.run("create table a1 (id int)")
    log.run("create table c1 (id int)")
    wide = log_of("shop.c*", "b.*")
    wide.run("create table a1 (id int)")
    wide.run("create table c1 (id int)")
    wide.run("create table x (id int)", database="b")
    applied = refiltered(log.catalogue, wide.catalogue, 5000)
    assert shown(applied) == [
        ("create database", ["b."]),
        *[("create table", [name]) for name in ("shop.c1", "b.x")],
    ]
    after = applied.catalogue
    assert after.filter == wide.catalogue.filter
    assert after.followed("shop", "a1") is None
    assert sorted(each.name for each in after.waiting(0, 9)) == ["c1", "x"]
