"""What is in the log of both servers besides the values: transactions, statements, tables, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

import pytest
from pymysql.connections import Connection

from tidegate.bench.harness.database_log import changes_in
from tidegate.bench.harness.databases import Database, asked
from tidegate.errors import BadLog, SourceUnavailable
from tidegate.format.sql.declared import declared_layout
from tidegate.sources.mysql.dump import NO_WAIT, WITH_ANNOTATIONS, dump
from tidegate.sources.mysql.log import control_events as read
from tidegate.sources.mysql.log.framing import (
    ANNOTATE,
    CHECKSUM_BYTES,
    FORMAT,
    GTID,
    HEADER_BYTES,
    HEARTBEAT,
    HEARTBEAT_2,
    MARIADB_GTID,
    PAYLOAD,
    QUERY,
    ROTATE,
    TABLE_MAP,
    TAGGED_GTID,
    XA_PREPARE,
    XID,
    Events,
    ServerSays,
    frame,
    header_of,
    refuse_unread,
)
from tidegate.sources.mysql.log.layouts import layout_of
from tidegate.sources.mysql.log.rows import TableMaps, decode_rows
from tidegate.sources.mysql.log.table_map import TableMap


@pytest.fixture
def client(database: Database) -> Iterator[Connection]:
    """A session of the database in turn, in an empty schema."""
    with fresh_session(database) as connection:
        yield connection


@contextmanager
def fresh_session(database: Database) -> Iterator[Connection]:
    with database.connect() as connection:
        asked(connection, "DROP DATABASE IF EXISTS logged", "CREATE DATABASE logged", "USE logged")
        yield connection


def bodies(log: bytes, *kinds: int) -> list[bytes]:
    events, end = frame(log, CHECKSUM_BYTES)
    assert end == len(log)
    found = zip(events.start.tolist(), events.end.tolist(), events.kind.tolist(), strict=True)
    return [log[start + HEADER_BYTES : end] for start, end, kind in found if kind in kinds]


def statements(log: bytes) -> list[read.Query]:
    return [read.read_query(body) for body in bodies(log, QUERY)]


def tables(log: bytes) -> list[TableMap]:
    maps = TableMaps()
    return [maps.learn(body) for body in bodies(log, TABLE_MAP)]


def gtids(log: bytes) -> list[read.Gtid]:
    events, _ = frame(log, CHECKSUM_BYTES)
    found = []
    for start, end, kind in zip(events.start.tolist(), events.end.tolist(), events.kind.tolist(), strict=True):
        body = log[start + HEADER_BYTES : end]
        if kind == MARIADB_GTID:
            found.append(read.read_mariadb_gtid(body, header_of(log, start).server_id))
        elif kind in (GTID, TAGGED_GTID):
            found.append((read.read_gtid if kind == GTID else read.read_tagged_gtid)(body))
    return found


# Statements and transactions ------------------------------------------------------------------------------------------


def test_a_statement_has_its_database_modes_and_text(database: Database, client: Connection) -> None:
    file = database.begin_log()
    asked(client, "SET sql_mode = 'ANSI_QUOTES'", 'CREATE TABLE "quoted ü" ("id" int)')
    asked(client, "SET sql_mode = ''", "CREATE TABLE plain (id int)")
    quoted, plain = statements(database.read_log(file))
    assert quoted == read.Query("logged", 'CREATE TABLE "quoted ü" ("id" int)', quoted.sql_mode, "utf8mb4")
    assert (quoted.ansi_quotes, plain.ansi_quotes) == (True, False)


def test_a_statement_is_read_in_the_character_set_of_its_client(database: Database, client: Connection) -> None:
    file = database.begin_log()
    with database.connect(charset="latin1", database="logged") as latin, latin.cursor() as cursor:
        cursor.execute("CREATE TABLE latin (id int COMMENT 'größe')")
    (statement,) = statements(database.read_log(file))
    assert statement.charset == "latin1"
    assert "'größe'" in statement.text


def test_session_variables_before_those_that_matter_are_passed_over(database: Database, client: Connection) -> None:
    file = database.begin_log()
    asked(client, "SET time_zone = '+03:00', auto_increment_increment = 7, lc_time_names = 'de_DE'")
    asked(client, "SET TIMESTAMP = 1767225600.123456", "SET sql_mode = 'ANSI_QUOTES'")
    asked(client, "CREATE DEFINER = root@localhost VIEW shown AS SELECT now(6) AS n")
    (statement,) = statements(database.read_log(file))
    assert (statement.ansi_quotes, statement.charset) == (True, "utf8mb4")
    assert "VIEW" in statement.text


def test_a_transaction_has_the_name_that_the_server_gives_it(database: Database, client: Connection) -> None:
    asked(client, "CREATE TABLE t (id int PRIMARY KEY)")
    file = database.begin_log()
    asked(client, "INSERT INTO t VALUES (1)", "CREATE TABLE u (id int)")
    question = "SELECT @@gtid_binlog_pos" if database.name == "mariadb" else "SELECT @@gtid_executed"
    last = str(asked(client, question)[0][0])
    insert, create = gtids(database.read_log(file))
    if database.name == "mariadb":
        assert create.text == last
        assert (insert.standalone, create.standalone) == (False, True)
    else:
        source, number = create.text.rsplit(":", 1)
        assert last.startswith(source)
        assert last.endswith(f"-{number}")
        now_us = int(asked(client, "SELECT CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS UNSIGNED)")[0][0])
        assert now_us - 60_000_000 < insert.commit_us <= create.commit_us <= now_us
    assert len(bodies(database.read_log(file), XID)) == 1


def test_a_tag_is_part_of_the_name(mysql: Database) -> None:
    with fresh_session(mysql) as client:
        asked(client, "CREATE TABLE t (id int PRIMARY KEY)")
        file = mysql.begin_log()
        asked(client, "SET gtid_next = 'AUTOMATIC:tidal'", "INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (2)")
        asked(client, "SET gtid_next = 'b027d4f6-e2ef-11f1-aebc-02fc00000001:far:123456789012'")
        asked(client, "INSERT INTO t VALUES (3)", "SET gtid_next = 'AUTOMATIC'")
        uuid = asked(client, "SELECT @@server_uuid")[0][0]
        first, second, far = gtids(mysql.read_log(file))
    assert far.text == "b027d4f6-e2ef-11f1-aebc-02fc00000001:far:123456789012"
    assert [first.text.rsplit(":", 1)[0], second.text.rsplit(":", 1)[0]] == [f"{uuid}:tidal"] * 2
    assert int(second.text.rsplit(":", 1)[1]) == int(first.text.rsplit(":", 1)[1]) + 1
    assert 0 < first.commit_us <= second.commit_us <= far.commit_us


def test_a_prepared_xa_transaction_is_recognised(database: Database, client: Connection) -> None:
    asked(client, "CREATE TABLE t (id int PRIMARY KEY)")
    file = database.begin_log()
    asked(client, "XA START 'x'", "INSERT INTO t VALUES (1)", "XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'")
    log = database.read_log(file)
    assert len(bodies(log, XA_PREPARE)) == 1
    if database.name == "mariadb":
        assert [(each.prepared_xa, each.completed_xa) for each in gtids(log)] == [(True, False), (False, True)]


def test_the_statement_behind_rows_is_sent_if_asked_for(mariadb: Database) -> None:
    with fresh_session(mariadb) as client:
        asked(client, "CREATE TABLE t (id int PRIMARY KEY)")
        file = mariadb.begin_log()
        asked(client, "INSERT INTO t VALUES (1)")
        events = list(dump(client, file, 4, 1003, NO_WAIT | WITH_ANNOTATIONS))
    found = [event[HEADER_BYTES:-CHECKSUM_BYTES] for event in events if header_of(event).kind == ANNOTATE]
    assert found == [b"INSERT INTO t VALUES (1)"]


def test_a_server_that_waits_says_where(database: Database) -> None:
    file = database.begin_log()
    with database.connect() as client:
        asked(client, "SET @master_heartbeat_period = 100000000, @source_heartbeat_period = 100000000")
        for event in dump(client, file, 4, 1004):
            kind, body = header_of(event).kind, event[HEADER_BYTES:-CHECKSUM_BYTES]
            if kind in (HEARTBEAT, HEARTBEAT_2):
                break
    assert (read.read_heartbeat(body) if kind == HEARTBEAT else read.read_heartbeat_2(body).file) == file


def test_a_log_begins_with_its_file_and_its_format(database: Database) -> None:
    file = database.begin_log()
    with database.connect() as client:
        version = str(asked(client, "SELECT version()")[0][0])
        rotate, form = islice(dump(client, file, 4, 1005, NO_WAIT), 2)
    assert header_of(rotate).kind == ROTATE
    assert read.read_rotate(rotate[HEADER_BYTES:-CHECKSUM_BYTES]) == read.Rotate(file, 4)
    assert header_of(form).kind == FORMAT
    found = read.read_format(form[HEADER_BYTES:])
    assert (found.server_version, found.checksum_bytes) == (version, CHECKSUM_BYTES)
    assert found.is_mariadb == (database.name == "mariadb")


def test_a_position_that_is_gone_is_an_error_of_the_server(database: Database) -> None:
    with (
        database.connect() as client,
        pytest.raises(ServerSays, match=r"the server sends no log: .*\(error 1236\)") as exc,
    ):
        list(dump(client, "bin.999999", 4, 1006, NO_WAIT))
    assert exc.value.code == 1236


def test_a_connection_that_is_lost_is_worth_a_retry(database: Database) -> None:
    client = database.connect()
    client.close()
    with pytest.raises(SourceUnavailable, match="the connection to the server was lost while its log was read"):
        next(dump(client, "bin.000001", 4, 1007))
    assert SourceUnavailable.retry


# Large and compressed transactions ------------------------------------------------------------------------------------


def test_an_event_of_more_than_16_mib_is_joined_from_its_packets(database: Database, client: Connection) -> None:
    asked(client, "CREATE TABLE t (id int PRIMARY KEY, b longblob)")
    size = 17 << 20
    file = database.begin_log()
    asked(client, f"INSERT INTO t VALUES (1, REPEAT('x', {size}))")
    ((_, (_, _, row)),) = changes_in(database.read_log(file))
    assert row == [b"1", b"x" * size]


def test_a_compressed_transaction_has_the_same_rows(mysql: Database) -> None:
    found = []
    with fresh_session(mysql) as client:
        asked(client, "CREATE TABLE t (id int PRIMARY KEY, v varchar(1000), n int)")
        for compression in ("ON", "OFF"):
            asked(client, f"SET binlog_transaction_compression = {compression}")
            file = mysql.begin_log()
            client.begin()
            for start in range(0, 8_000, 2_000):
                values = ",".join(f"({i},REPEAT('{i}-',160),{i % 3})" for i in range(start, start + 2_000))
                asked(client, f"INSERT INTO t VALUES {values}")
            asked(client, "UPDATE t SET n = n + 1 WHERE id < 10", "DELETE FROM t")
            client.commit()
            found.append(mysql.read_log(file))
    (payload,) = bodies(found[0], PAYLOAD)
    parts = list(read.read_payload(payload))
    assert len(parts) > 2
    assert max(len(log) for log, _ in parts) < 5 << 20  # 12 MiB are in it
    assert len(payload) < 2 << 20
    assert changes_of_parts(parts) == [change for _, change in changes_in(found[1])]


def changes_of_parts(parts: list[tuple[bytes, Events]]) -> list[tuple[str, object, object]]:
    maps, found = TableMaps(), []
    for log, events in parts:
        for rows in decode_rows(log, events, maps):
            kinds = [("insert", "update", "delete")[kind] for kind in rows.kind]
            found += list(zip(kinds, rows.before.to_pylist(), rows.after.to_pylist(), strict=True))
    return found


# Tables ---------------------------------------------------------------------------------------------------------------

DECLARED = [
    "id bigint unsigned", "tiny tinyint", "flag tinyint(1) unsigned", "small smallint unsigned", "medium mediumint",
    "normal int not null", "y year", "big bigint", "price decimal(12,2)", "whole decimal(20)", "ratio double",
    "score float", "bits bit(12)", "day date", "moment datetime(3)", "stamp timestamp(6) null", "span time",
    "code char(8)", "raw binary(5)", "name varchar(40)", "bytes varbinary(400)", "t1 tinytext", "t2 text",
    "t3 mediumtext", "t4 longtext", "b1 tinyblob", "b2 blob", "b3 mediumblob", "b4 longblob",
    "colour enum('red','grün')", "flags set('a','ß')",
]  # fmt: skip


def test_the_layout_of_a_table_is_the_declared_one(database: Database, client: Connection) -> None:
    declared = [*DECLARED, *(["doc json", "v vector(4)"] if database.name == "mysql" else [])]
    asked(client, f"CREATE TABLE t ({', '.join(declared)}, PRIMARY KEY (id, normal)) CHARACTER SET utf8mb4")
    file = database.begin_log()
    asked(client, "INSERT INTO t (id, normal) VALUES (1, 2)")
    (table,) = tables(database.read_log(file))
    wanted = declared_layout([*declared, "primary key (id, normal)"])
    found = layout_of(table)
    for column, other in zip(found.columns, wanted.columns, strict=True):
        shown = [(c.name, c.type_name, c.unsigned, c.nullable, c.pk, c.elems, c.decimals or 0) for c in (column, other)]
        assert shown[0] == shown[1]
        if column.type in ("char", "varchar", "decimal", "bit", "vector"):
            assert column.length == other.length
            assert column.flen == other.flen or column.type == "decimal"


def test_each_column_has_its_character_set(database: Database, client: Connection) -> None:
    columns = ["a varchar(10) character set latin1", "b varchar(10) character set utf8mb4", "c text character set ucs2",
               "d char(3) character set latin1", "e enum('ü') character set latin1", "f set('é') character set utf8mb4",
               "g varbinary(3)", "h varchar(10) character set latin1 collate latin1_bin"]  # fmt: skip
    asked(client, f"CREATE TABLE few (id int, {columns[0]}, n int, {columns[1]})")
    asked(client, f"CREATE TABLE many (id int, {', '.join(columns)})")
    file = database.begin_log()
    asked(client, "INSERT INTO few (id) VALUES (1)", "INSERT INTO many (id) VALUES (1)")
    few, many = tables(database.read_log(file))
    assert [column.stored.charset for column in few.columns] == ["", "latin1", "", "utf8mb4"]
    wanted = ["", "latin1", "utf8mb4", "ucs2", "latin1", "", "", "binary", "latin1"]
    assert [column.stored.charset for column in many.columns] == wanted
    assert [column.elems for column in many.columns[5:7]] == [("ü",), ("é",)]


def test_a_key_of_parts_of_columns_is_known(database: Database, client: Connection) -> None:
    asked(client, "CREATE TABLE t (a varchar(100), n int, b varchar(50), PRIMARY KEY (b(7), n)) CHARACTER SET latin1")
    file = database.begin_log()
    asked(client, "INSERT INTO t VALUES ('a', 1, 'b')")
    (table,) = tables(database.read_log(file))
    assert [(column.pk, column.key_bytes) for column in table.columns] == [(False, 0), (True, 0), (True, 7)]


def test_an_invisible_column_has_values_and_is_marked(mysql: Database) -> None:
    with fresh_session(mysql) as client:
        asked(client, "CREATE TABLE t (id int PRIMARY KEY, hidden int DEFAULT 7 INVISIBLE, shown int)")
        file = mysql.begin_log()
        asked(client, "INSERT INTO t VALUES (1, 2)")
        log = mysql.read_log(file)
    (table,) = tables(log)
    assert [column.visible for column in table.columns] == [True, False, True]
    assert [change for _, change in changes_in(log)] == [("insert", None, [b"1", b"7", b"2"])]


def test_virtual_columns_can_be_left_out(database: Database, client: Connection) -> None:
    asked(
        client, "CREATE TABLE t (id int PRIMARY KEY, twice int AS (id * 2) VIRTUAL, kept int AS (id * 3) STORED, n int)"
    )
    file = database.begin_log()
    asked(client, "INSERT INTO t (id, n) VALUES (1, 5), (2, NULL)")
    log = database.read_log(file)
    events, _ = frame(log, CHECKSUM_BYTES)
    (all_of_it,) = decode_rows(log, events, TableMaps())
    (stored,) = decode_rows(log, events, TableMaps(), lambda table: (0, 2, 3))
    assert all_of_it.after.to_pylist() == [[b"1", b"2", b"3", b"5"], [b"2", b"4", b"6", None]]
    assert stored.after.to_pylist() == [[b"1", b"3", b"5"], [b"2", b"6", None]]


def test_tables_of_one_shape_are_decoded_together(database: Database, client: Connection) -> None:
    for name in ("a", "b", "c"):
        asked(client, f"CREATE TABLE {name} (id int PRIMARY KEY, {name}_name varchar(10))")
    asked(client, "CREATE TABLE other (id int PRIMARY KEY, n bigint)")
    file = database.begin_log()
    client.begin()
    for i, name in enumerate(("a", "b", "c", "a", "other", "b")):
        asked(client, f"INSERT INTO {name} VALUES ({i}, {i})")
    asked(client, "UPDATE a JOIN b SET a.a_name = 'x', b.b_name = 'y' WHERE a.id = 0 AND b.id = 1")
    client.commit()
    log = database.read_log(file)
    events, _ = frame(log, CHECKSUM_BYTES)
    assert len(list(decode_rows(log, events, TableMaps()))) == 2
    found = changes_in(log)
    assert [name for name, _ in found[:6]] == ["a", "b", "c", "a", "other", "b"]
    assert sorted(name for name, _ in found[6:]) == ["a", "b"]
    assert [change[2][0] for _, change in found[:6] if change[2]] == [b"%d" % i for i in range(6)]


def test_a_table_of_very_many_columns_is_decoded(database: Database, client: Connection) -> None:
    columns = ", ".join(f"c{i} tinyint" for i in range(300))
    asked(client, f"CREATE TABLE t (id int PRIMARY KEY, {columns})")
    file = database.begin_log()
    asked(client, "INSERT INTO t (id, c0, c250, c299) VALUES (1, 10, 20, 30), (2, 40, NULL, 50)", "UPDATE t SET c1 = 9")
    found = [change for _, change in changes_in(database.read_log(file))]
    row: list[bytes | None] = [None] * 301
    row[0], row[1], row[251], row[300] = b"1", b"10", b"20", b"30"
    assert found[0] == ("insert", None, row)
    assert found[2] == ("update", row, [*row[:2], b"9", *row[3:]])


def test_rows_of_a_partitioned_table_are_decoded(database: Database, client: Connection) -> None:
    asked(client, "CREATE TABLE t (id int PRIMARY KEY, n int) PARTITION BY HASH (id) PARTITIONS 3")
    file = database.begin_log()
    asked(client, "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)", "UPDATE t SET id = id + 10 ORDER BY id DESC")
    found = changes_in(database.read_log(file))
    assert {change[2][0] for _, change in found[:3] if change[2]} == {b"1", b"2", b"3"}
    assert {change[2][0] for _, change in found[3:] if change[2]} == {b"11", b"12", b"13"}
    assert len(found) == 6


def test_a_timestamp_is_in_utc_whatever_the_zone_of_the_session(database: Database, client: Connection) -> None:
    asked(client, "CREATE TABLE t (id int PRIMARY KEY, v timestamp NULL, n int)")
    file = database.begin_log()
    asked(client, "SET time_zone = '+00:00'")
    asked(client, "INSERT INTO t VALUES (1, '2025-10-26 00:30:00', 0), (2, '2025-10-26 01:30:00', 0)")
    asked(client, "SET time_zone = 'SYSTEM'")
    local = asked(client, "SELECT CAST(v AS CHAR) FROM t ORDER BY id")
    assert local == [("2025-10-26 02:30:00",)] * 2  # both sides of the change of the clock
    asked(client, "UPDATE t SET n = 1 ORDER BY id")
    changes = [change for _, change in changes_in(database.read_log(file))]
    assert [after[1] for _, _, after in changes if after] == [b"2025-10-26 00:30:00", b"2025-10-26 01:30:00"] * 2


# What is refused ------------------------------------------------------------------------------------------------------


@contextmanager
def setting(database: Database, name: str, value: str, usual: str) -> Iterator[None]:
    with database.connect() as client:
        asked(client, f"SET GLOBAL {name} = {value}")
        try:
            yield
        finally:
            asked(client, f"SET GLOBAL {name} = {usual}")


@pytest.mark.parametrize("image", ["MINIMAL", "NOBLOB"])
@pytest.mark.parametrize("statement", ["INSERT INTO t (id) VALUES (2)", "UPDATE t SET n = 5", "DELETE FROM t"])
def test_rows_without_all_columns_are_refused_naming_the_table(
    database: Database, client: Connection, image: str, statement: str
) -> None:
    asked(client, "CREATE TABLE t (id int PRIMARY KEY, b text, n int)", "INSERT INTO t VALUES (1, 'x', 1)")
    file = database.begin_log()
    asked(client, f"SET binlog_row_image = {image}", statement)
    with pytest.raises(BadLog, match=r"^logged\.t: a row change holds only some columns; SET GLOBAL binlog_row_image"):
        changes_in(database.read_log(file))


def test_a_log_without_names_is_refused_with_the_remedy(database: Database, client: Connection) -> None:
    asked(client, "CREATE TABLE t (id int PRIMARY KEY)")
    with setting(database, "binlog_row_metadata", "MINIMAL", "FULL"), database.connect(database="logged") as other:
        file = database.begin_log()
        asked(other, "INSERT INTO t VALUES (1)")
    with pytest.raises(BadLog, match=r"no column names of logged\.t; SET GLOBAL binlog_row_metadata = FULL"):
        changes_in(database.read_log(file))


def test_a_geometry_is_refused_naming_the_column(database: Database, client: Connection) -> None:
    asked(client, "CREATE TABLE t (id int PRIMARY KEY, place point)")
    file = database.begin_log()
    asked(client, "INSERT INTO t VALUES (1, ST_GeomFromText('POINT(1 2)'))")
    log = database.read_log(file)
    (table,) = tables(log)
    assert [column.geometry for column in table.columns] == [None, 1]
    with pytest.raises(BadLog, match=r"^logged\.t, column 'place' is geometry, which has no place in TiCDC's format"):
        changes_in(log)
    with pytest.raises(BadLog, match="place"):
        layout_of(table)


def test_a_table_that_is_not_followed_may_hold_anything(database: Database, client: Connection) -> None:
    asked(client, "CREATE TABLE kept (id int PRIMARY KEY)", "CREATE TABLE other (id int PRIMARY KEY, p point, n int)")
    file = database.begin_log()
    asked(client, "INSERT INTO other VALUES (1, ST_GeomFromText('POINT(1 2)'), 1)", "INSERT INTO kept VALUES (1)")
    asked(client, "SET binlog_row_image = MINIMAL", "UPDATE other SET n = 2", "SET binlog_row_image = FULL")
    log = database.read_log(file)
    events, _ = frame(log, CHECKSUM_BYTES)
    (rows,) = decode_rows(log, events, TableMaps(), lambda table: (0,) if table.table == "kept" else None)
    assert rows.after.to_pylist() == [[b"1"]]
    assert [rows.tables[table].table for table in rows.table] == ["kept"]


def test_partial_json_is_refused_by_name(mysql: Database) -> None:
    with fresh_session(mysql) as client:
        asked(client, "CREATE TABLE t (id int PRIMARY KEY, j json)")
        asked(client, """INSERT INTO t VALUES (1, '{"a": 1, "b": "a long text that stays as it is"}')""")
        file = mysql.begin_log()
        asked(client, "SET binlog_row_value_options = PARTIAL_JSON", "UPDATE t SET j = JSON_SET(j, '$.a', 2)")
        events, _ = frame(mysql.read_log(file), CHECKSUM_BYTES)
    with pytest.raises(BadLog, match="a partial update of JSON; SET GLOBAL binlog_row_value_options = ''"):
        refuse_unread(events)


def test_compressed_events_of_mariadb_are_refused_by_name(mariadb: Database) -> None:
    with fresh_session(mariadb) as client, setting(mariadb, "log_bin_compress", "ON", "OFF"):
        asked(client, "CREATE TABLE t (id int PRIMARY KEY, v text)")
        file = mariadb.begin_log()
        asked(client, "INSERT INTO t VALUES (1, REPEAT('x', 1000))")
        events, _ = frame(mariadb.read_log(file), CHECKSUM_BYTES)
    with pytest.raises(BadLog, match="compressed row changes; SET GLOBAL log_bin_compress = OFF"):
        refuse_unread(events)


def test_a_compressed_column_of_mariadb_is_refused_by_name(mariadb: Database) -> None:
    with fresh_session(mariadb) as client:
        asked(client, "CREATE TABLE t (id int PRIMARY KEY, v text COMPRESSED)")
        file = mariadb.begin_log()
        asked(client, "INSERT INTO t VALUES (1, 'x')")
    with pytest.raises(BadLog, match=r"^logged\.t, column 'v' is a compressed blob; ALTER it"):
        changes_in(mariadb.read_log(file))


def test_times_in_the_old_format_are_refused_by_name(mariadb: Database) -> None:
    with fresh_session(mariadb) as client, setting(mariadb, "mysql56_temporal_format", "OFF", "ON"):
        asked(client, "CREATE TABLE t (id int PRIMARY KEY, v datetime)")
        file = mariadb.begin_log()
        asked(client, "INSERT INTO t VALUES (1, '2026-01-31')")
    with pytest.raises(BadLog, match=r"^logged\.t, column 'v' is datetime in the format of MySQL 5\.5; ALTER TABLE"):
        changes_in(mariadb.read_log(file))
