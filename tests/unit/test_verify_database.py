"""`verify` of a database: a sink that was landed from the log of a server has its rows, and what differs is named."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tidegate.bench.harness.databases import Database, asked
from tidegate.cli import main
from tidegate.errors import VerifyError
from tidegate.events import tso
from tidegate.format.encode.canal_json import CanalOptions
from tidegate.format.encode.csv import CsvOptions
from tidegate.format.rules.rules import ColumnSelector, ColumnSelectors, Route, Routes, Rules, TableFilter
from tidegate.sources.mysql.catalogue import Catalogue, TableEntry
from tidegate.sources.mysql.ddl.agree import agree
from tidegate.sources.mysql.ddl.apply import apply
from tidegate.sources.mysql.dump import NO_WAIT, dump
from tidegate.sources.mysql.information_schema import read_server
from tidegate.sources.mysql.log import control_events as control
from tidegate.sources.mysql.log import framing as k
from tidegate.sources.mysql.log.rows import KINDS, TableMaps, decode_rows
from tidegate.storage.files import FileStore
from tidegate.storage.store import Store
from tidegate.testing import FakeClock, feed, layout_row, open_changefeed, resolved_row, tiny_settings
from tidegate.tools.verify_database import DatabaseReport, Patience, Task, verify_database

SHOP = "verified"
READER_ID = 1003
GTIDS = (k.GTID, k.TAGGED_GTID, k.MARIADB_GTID)
Row = dict[str, Any]
AT_ONCE = Patience(timeout_s=60.0, still_s=0.0)  # a changefeed that is behind is taken for stopped
WITH_TS: dict[str, Any] = {"csv": CsvOptions(include_commit_ts=True)}
WITH_OLD: dict[str, Any] = {"csv": CsvOptions(include_commit_ts=True, output_old_value=True)}
CANAL: dict[str, Any] = {"protocol": "canal-json", "canal": CanalOptions(tidb_extension=True)}


class Follower:
    """A changefeed without Spark that follows the log step by step, as far as it is asked to.

    It is plain on purpose: the source of real changefeeds has no part in it. The database must not exist yet, so all
    that it holds comes through the log. `settings` are fields of `Settings`.
    """

    def __init__(self, database: Database, schema: str, store: Store, spool: Path, **settings: Any) -> None:
        self._database, self._batch, self._ts = database, 0, 0
        with database.connect() as connection:
            self.catalogue = Catalogue(read_server(connection), TableFilter((f"{schema}.*",)))
        self.file, self.at = database.begin_log(), 4
        self._clock = FakeClock()
        self.changefeed = open_changefeed(store, spool, self._clock, **settings)

    def step(self) -> None:
        """Read the log to its end and land it."""
        rows = list(self._rows())
        position = {"file": self.file, "pos": self.at, "ts": self._ts, "event": 0, "behind": {}, "snap": {}}
        feed(self.changefeed, self._batch, [*rows, resolved_row(self._ts)], json.dumps(position))
        self._batch += 1
        self._clock.advance(60.0)
        while self.changefeed.landing.land_next():
            pass
        self.changefeed.scribe.write_progress()
        if not self.changefeed.ledger.idle:
            raise AssertionError("something is left to land")

    def close(self) -> None:
        self.changefeed.close()

    # The log.

    def _rows(self) -> Iterator[Row]:
        """Change events from the position on, which moves to the end of the log."""
        held: list[bytes] = []
        maps, time_ms = TableMaps(), 0
        with self._database.connect() as connection:
            for event in dump(connection, self.file, self.at, READER_ID, NO_WAIT):
                header, body = k.header_of(event), event[k.HEADER_BYTES : -k.CHECKSUM_BYTES]
                if header.kind == k.ROTATE:
                    self.file, self.at = control.read_rotate(body if k.has_checksum(event) else event[k.HEADER_BYTES :])
                    maps = TableMaps()
                    continue
                if not header.next_position:
                    continue
                self.at = header.next_position
                if header.kind in GTIDS:
                    time_ms, held = time_of(header, body), []
                elif header.kind in (k.TABLE_MAP, *k.ROWS):
                    held.append(event)
                elif header.kind == k.XID:
                    yield from self._transaction(held, maps, time_ms)
                elif header.kind == k.QUERY:
                    query = control.read_query(body)
                    if query.text == "COMMIT":
                        yield from self._transaction(held, maps, time_ms)
                    elif query.text != "BEGIN":
                        yield from self._ddl(query, time_ms)

    def _next_ts(self, time_ms: int) -> int:
        self._ts = max(tso(time_ms), self._ts + 1)
        return self._ts

    def _ddl(self, query: control.Query, time_ms: int) -> Iterator[Row]:
        ts = self._next_ts(time_ms)
        applied = apply(self.catalogue, query, ts)
        self.catalogue, self._ts = applied.catalogue, applied.last_ts(ts)
        for seq, row in enumerate(applied.rows):
            yield from map(layout_row, row.layouts)
            yield row.row(seq)

    def _transaction(self, held: Sequence[bytes], maps: TableMaps, time_ms: int) -> Iterator[Row]:
        ts = self._next_ts(time_ms)
        log = b"".join(held)
        events, _ = k.frame(log, k.CHECKSUM_BYTES)
        found: list[tuple[int, int, Row]] = []
        places = {}

        def followed(table: Any) -> tuple[int, ...] | None:
            entry = self.catalogue.followed(table.schema, table.table)
            places[table.name] = entry
            return agree(table, entry) if entry is not None else None

        for rows in decode_rows(log, events, maps, followed):
            columns = (rows.event.tolist(), rows.table.tolist(), rows.kind.tolist())
            values = zip(*columns, rows.before.to_pylist(), rows.after.to_pylist(), strict=True)
            for i, (event, table, kind, before, after) in enumerate(values):
                entry = places[rows.tables[table].name]
                assert entry is not None
                row = row_of(entry, KINDS[kind], ts, event << 32 | i, before, after)
                found.append((event, i, row))
        for layout in {each.layout for each in places.values() if each is not None}:
            yield layout_row(layout)
        yield from (row for *_, row in sorted(found, key=lambda each: each[:2]))


def time_of(header: k.Header, body: bytes) -> int:
    if header.kind == k.MARIADB_GTID:
        return header.time_s * 1000
    read = control.read_tagged_gtid if header.kind == k.TAGGED_GTID else control.read_gtid
    return read(body).commit_us // 1000


def row_of(entry: TableEntry, kind: str, ts: int, seq: int, before: Any, after: Any) -> Row:
    names = {"kind": kind, "schema_name": entry.database, "table_name": entry.name}
    ids = {"table_id": entry.table_id, "logical_table_id": entry.table_id, "schema_id": entry.schema_id}
    times = {"table_version": entry.version, "start_ts": ts - 1, "commit_ts": ts, "seq": seq}
    return names | ids | times | {"layout": entry.layout.fingerprint, "before": before, "after": after}


class Pair:
    """A database and the sink that a changefeed lands from it."""

    def __init__(self, database: Database, root: Path, **settings: Any) -> None:
        self.database, self.root, self.settings = database, root, settings or WITH_TS
        self.client = database.connect()
        asked(self.client, f"DROP DATABASE IF EXISTS {SHOP}")
        self.store = FileStore(root / "out")
        self.store.prepare()
        self.follower = Follower(database, SHOP, self.store, root / "spool", **self.settings)
        self.run(f"CREATE DATABASE {SHOP}", f"USE {SHOP}")

    def run(self, *statements: str) -> Pair:
        asked(self.client, *statements)
        return self

    def step(self) -> Pair:
        self.follower.step()
        return self

    def task(self, patience: Patience = AT_ONCE, **more: Any) -> Task:
        settings = tiny_settings(self.root / "spool", **self.settings)
        is_mariadb = self.database.name == "mariadb"
        return Task(
            self.database.connect, is_mariadb, lambda schema, _: schema == SHOP, settings, self.store, patience, **more
        )

    def verify(self, patience: Patience = AT_ONCE, **more: Any) -> DatabaseReport:
        return verify_database(self.task(patience, **more))

    def error(self, **more: Any) -> str:
        with pytest.raises(VerifyError) as caught:
            self.verify(**more)
        return str(caught.value)

    def unlogged(self, *statements: str) -> Pair:
        """What the log does not hold."""
        asked(self.client, "SET sql_log_bin = 0", *statements, "SET sql_log_bin = 1")
        return self

    def close(self) -> None:
        self.follower.close()
        self.client.close()


Open = Callable[..., Pair]


@pytest.fixture
def pair(database: Database, tmp_path: Path) -> Iterator[Open]:
    """Opens pairs of the database in turn; settings are fields of `Settings`."""
    opened: list[Pair] = []

    def open_(**settings: Any) -> Pair:
        opened.append(Pair(database, tmp_path / str(len(opened)), **settings))
        return opened[-1]

    yield open_
    for each in opened:
        each.close()


# Values ---------------------------------------------------------------------------------------------------------------

COLUMNS = (
    "id bigint unsigned PRIMARY KEY, t tinyint, z int(6) unsigned zerofill, f float, d double, "
    "dz decimal(12,3) zerofill, c char(5), v varchar(40), l varchar(20) CHARACTER SET latin1, x text, b binary(4), "
    "vb varbinary(9), bl blob, "
    "day date, dt datetime(3), ts timestamp(6) NULL, tm time(2), y year, bt bit(40), e enum('a','it''s','c'), "
    "s set('p','q','r'), twice int AS (t * 2) VIRTUAL, kept int AS (t * 3) STORED"
)
NAMES = "id,t,z,f,d,dz,c,v,l,x,b,vb,bl,day,dt,ts,tm,y,bt,e,s"
ROWS = [
    "1,-5,42,0.1,0.1,1.5,'ab','x','é','text',x'6100',x'00ff',x'',"
    "'2026-01-31','2026-01-31 23:59:59.999','2026-01-31 01:02:03.000004','-838:59:59.00',2026,b'101',2,5",
    "18446744073709551615,127,999999,-3.4e38,1.7976931348623157e308,123456789.999,'','comma,\"quote\"','','a\\r\\nb\\\\',"
    "x'00000000',x'0d0a22',x'5c','1000-01-01','0001-01-01 00:00:00','1970-01-01 00:00:01','00:00:00.5',0,b'0',1,0",
    "3,0,0,1e-45,5e-324,-0.001,'\\\\N','\\\\N','ÿ','日本語😀',x'ffffffff',x'',x'00',"
    "'9999-12-31','9999-12-31 23:59:59.999','2038-01-19 03:14:07.999999','838:59:59',2155,b'1',3,7",
    "4" + ",NULL" * 20,
]


def fill(pair: Pair) -> None:
    pair.run("SET sql_mode = ''", f"CREATE TABLE every ({COLUMNS})")
    pair.run(*(f"INSERT INTO every ({NAMES}) VALUES ({row})" for row in ROWS))
    pair.run("INSERT INTO every (id, day, dt, ts) VALUES (5, 0, 0, 0)")


@pytest.mark.parametrize("settings", [WITH_TS, WITH_OLD, CANAL], ids=["csv", "csv with old rows", "canal-json"])
def test_values_of_every_type_are_the_same_by_sql_and_on_the_sink(pair: Open, settings: dict[str, Any]) -> None:
    opened = pair(**settings)
    fill(opened)
    report = opened.step().verify()
    assert (report.tables, report.rows, report.rows_changed_by_ddl, report.not_compared) == (1, 5, 0, [])
    for column, value in (("f", "0.2"), ("x", "'text '"), ("b", "'b'"), ("bt", "4"), ("e", "'a'"), ("y", "2025")):
        opened.unlogged(f"UPDATE every SET {column} = {value} WHERE id = 1")
        assert f"has another value in column {column!r}" in opened.error()
        opened.run(
            f"UPDATE every SET {column} = {value} WHERE id = 1", "UPDATE every SET t = t + 1 WHERE id = 1"
        ).step()
        opened.verify()


def test_json_and_vectors_are_compared_by_what_they_mean(mysql: Database, tmp_path: Path) -> None:
    for settings in (WITH_TS, CANAL):
        opened = Pair(mysql, tmp_path / settings.get("protocol", "csv"), **settings)
        opened.run("CREATE TABLE j (id int PRIMARY KEY, j json, v vector(2))", "CREATE TABLE n (j json)")
        opened.run(
            """INSERT INTO j VALUES (1, '{"bb": 1.0, "a": [true, null, "x"], "n": 1e20}', TO_VECTOR('[1,0.1]'))"""
        )
        opened.run("INSERT INTO j VALUES (2, '12345678901234567890', NULL), (3, NULL, NULL), (4, '0.1', NULL)")
        opened.run("""INSERT INTO n VALUES ('{"bb": 1, "a": 2}'), ('{"a": 2, "bb": 1}'), (NULL)""")
        assert opened.step().verify().rows == 7
        opened.unlogged("""UPDATE j SET j = '{"bb": 1.5, "a": [true, null, "x"], "n": 1e20}' WHERE id = 1""")
        assert "in column 'j'" in opened.error()
        opened.close()


# Rows -----------------------------------------------------------------------------------------------------------------


def test_updates_deletes_and_keys_that_change_are_followed(pair: Open) -> None:
    opened = pair()
    opened.run("CREATE TABLE t (a int, b varchar(9) COLLATE utf8mb4_general_ci, v int, PRIMARY KEY (a, b))")
    opened.run("INSERT INTO t VALUES (1,'x',1),(1,'y',2),(2,'x',3),(3,'z',4)", "UPDATE t SET b = 'X' WHERE a = 2")
    opened.run("DELETE FROM t WHERE a = 3", "UPDATE t SET a = a + 10, v = v + 1", "INSERT INTO t VALUES (3,'z',5)")
    assert opened.step().verify().rows == 4


def test_a_row_that_is_missing_too_many_or_different_is_named(pair: Open) -> None:
    opened = pair()
    opened.run(
        "CREATE TABLE t (id int PRIMARY KEY, v varchar(20))", "INSERT INTO t VALUES (1,'one'),(2,'two'),(3,'three')"
    )
    opened.step().verify()
    opened.unlogged("INSERT INTO t VALUES (4711,'secret')")
    assert "1 rows are missing on the sink; one is in the database and not on the sink; --show-values" in opened.error()
    assert "4711" not in opened.error()
    assert "the row with id = '4711' is in the database" in opened.error(show_values=True)
    opened.unlogged("DELETE FROM t WHERE id = 4711", "DELETE FROM t WHERE id = 2")
    assert "1 rows are too many on the sink; one, last written at commit-ts 4" in opened.error()
    opened.unlogged("INSERT INTO t VALUES (2,'TWO')")
    said = opened.error(show_values=True)
    assert "1 rows are different on the sink; the row with id = '2', last written at commit-ts" in said
    assert said.endswith("has another value in column 'v'")
    assert "TWO" not in said


def test_equal_rows_of_a_table_without_a_key_are_counted(pair: Open) -> None:
    for settings in (WITH_OLD, CANAL):
        opened = pair(**settings)
        opened.run("CREATE TABLE n (a int, b varchar(9))", "INSERT INTO n VALUES (1,'x'),(1,'x'),(2,NULL),(2,'')")
        opened.run(
            "UPDATE n SET b = 'y' WHERE a = 1 LIMIT 1", "DELETE FROM n WHERE b = ''", "INSERT INTO n VALUES (1,'y')"
        )
        assert opened.step().verify().rows == 4
        opened.unlogged("INSERT INTO n VALUES (1,'y')")
        assert "1 rows are missing" in opened.error()
        opened.unlogged("DELETE FROM n WHERE a = 1")
        assert "3 rows are too many" in opened.error()


def test_a_table_whose_updates_say_too_little_is_not_compared_and_that_is_said(pair: Open) -> None:
    opened = pair()
    opened.run(
        "CREATE TABLE n (a int)",
        "INSERT INTO n VALUES (1)",
        "UPDATE n SET a = 2",
        "CREATE TABLE t (id int PRIMARY KEY)",
    )
    report = opened.step().verify()
    assert report.tables == 1
    assert report.not_compared == [
        f"{SHOP}.n: it has no key, and its updates have no old rows; set csv.output-old-value = true"
    ]


def test_a_unique_key_without_nulls_takes_the_place_of_a_primary_key(pair: Open) -> None:
    opened = pair()
    opened.run(
        "CREATE TABLE u (a int NOT NULL, b int, UNIQUE KEY (a), UNIQUE KEY (b))", "INSERT INTO u VALUES (1,1),(2,NULL)"
    )
    opened.run("UPDATE u SET b = 7 WHERE a = 2", "UPDATE u SET a = 5 WHERE a = 1")
    assert opened.step().verify().rows == 2


def test_many_buckets_give_the_same_answer_as_one(pair: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = pair()
    values = ",".join(f"({i},'{i * 7919}')" for i in range(3000))
    opened.run("CREATE TABLE t (id int PRIMARY KEY, v varchar(20))", f"INSERT INTO t VALUES {values}")
    opened.run("UPDATE t SET v = 'new' WHERE id % 3 = 0", "DELETE FROM t WHERE id % 5 = 0").step()
    monkeypatch.setattr("tidegate.tools.verify_database.bucket_count", lambda size: 7)
    assert opened.verify().rows == 2400
    opened.unlogged("UPDATE t SET v = 'other' WHERE id IN (1, 2, 3)", "DELETE FROM t WHERE id = 4")
    assert "1 rows are too many, 3 rows are different" in opened.error()


# The place of the comparison ------------------------------------------------------------------------------------------


def test_a_changefeed_that_has_stopped_is_compared_where_it_stopped(pair: Open) -> None:
    for settings in (WITH_OLD, CANAL):
        opened = pair(**settings)
        opened.run("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1,1),(2,2),(3,3),(4,4)")
        opened.run("CREATE TABLE n (a int)", "INSERT INTO n VALUES (1),(1)").step()
        opened.run(
            "UPDATE t SET v = 9 WHERE id < 4", "UPDATE t SET id = 7 WHERE id = 1", "INSERT INTO t VALUES (1,5),(8,8)"
        )
        opened.run(
            "DELETE FROM t WHERE id = 3",
            "INSERT INTO t VALUES (3,3)",
            "UPDATE n SET a = 2 LIMIT 1",
            "DELETE FROM n LIMIT 1",
        )
        assert opened.verify().rows == 6
        opened.unlogged("DELETE FROM t WHERE id = 4")
        assert "1 rows are too many" in opened.error()


def test_it_waits_until_the_changefeed_has_passed_the_read(pair: Open) -> None:
    opened = pair()
    opened.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)").step().run("INSERT INTO t VALUES (2)")
    said: list[str] = []

    def lands_later(text: str) -> None:
        said.append(text)
        if len(said) == 1:
            opened.step()

    report = opened.verify(Patience(60.0, 60.0, look_s=0.01, say_s=0.0), progress=lands_later)
    assert report.rows == 2
    assert said[0].startswith("waiting until the changefeed has passed bin.")


def test_a_changefeed_that_does_not_come_there_in_time_is_said_with_both_places(pair: Open) -> None:
    opened = pair()
    opened.run("CREATE TABLE t (id int PRIMARY KEY)").step().run("INSERT INTO t VALUES (2)")
    with pytest.raises(
        VerifyError, match=r"has not passed bin\.\d+:\d+ within 0 s: it is at bin\.\d+:\d+; .* --timeout"
    ):
        opened.verify(Patience(timeout_s=0.0, still_s=60.0))


def test_while_clients_write_and_the_changefeed_lands_every_comparison_passes(pair: Open) -> None:
    opened = pair(**WITH_OLD)
    opened.run("CREATE TABLE t (id int PRIMARY KEY, v int)", "CREATE TABLE n (a int)")
    opened.run("INSERT INTO t VALUES (1,1),(2,2),(3,3),(4,4)").step()
    over = threading.Event()
    failed: list[BaseException] = []

    def writes(number: int) -> None:
        with opened.database.connect(database=SHOP) as client:
            for i in range(10_000):
                if over.wait(0.005):
                    return
                asked(
                    client, f"REPLACE INTO t VALUES ({i % 97}, {number})", f"DELETE FROM t WHERE id = {(i * 31) % 97}"
                )
                asked(
                    client,
                    f"UPDATE IGNORE t SET id = {200 + i % 50} WHERE id = {i % 53}",
                    f"INSERT INTO n VALUES ({i % 7})",
                )
                asked(client, f"DELETE FROM n WHERE a = {i % 5} LIMIT 1", "UPDATE n SET a = 3 WHERE a = 2 LIMIT 1")

    def lands() -> None:
        while not over.is_set():
            opened.step()

    def run(act: Callable[..., None], *values: int) -> None:
        try:
            act(*values)
        except BaseException as exc:
            failed.append(exc)

    threads = [threading.Thread(target=run, args=args) for args in ((writes, 1), (writes, 2), (lands,))]
    for thread in threads:
        thread.start()
    try:
        for _ in range(3):
            report = opened.verify(Patience(60.0, 60.0, look_s=0.05))
            assert report.tables == 2
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert failed == []


# DDL ------------------------------------------------------------------------------------------------------------------


def test_a_truncate_a_drop_and_a_table_made_again_begin_with_nothing(pair: Open) -> None:
    opened = pair()
    opened.run("CREATE TABLE t (id int PRIMARY KEY, v int)", "CREATE TABLE gone (id int PRIMARY KEY)")
    opened.run(
        "INSERT INTO t VALUES (1,1),(2,2)",
        "INSERT INTO gone VALUES (1)",
        "TRUNCATE TABLE t",
        "INSERT INTO t VALUES (3,3)",
    )
    opened.run(
        "DROP TABLE gone", "CREATE TABLE again (id int PRIMARY KEY, a int)", "INSERT INTO again VALUES (1,1),(2,2)"
    )
    opened.step().run("DROP TABLE again", "CREATE TABLE again (b varchar(9), id int PRIMARY KEY)")
    opened.run("INSERT INTO again VALUES ('x', 2)")
    report = opened.step().verify()
    assert (report.tables, report.rows) == (2, 2)


def test_a_table_keeps_its_rows_under_a_new_name(pair: Open) -> None:
    opened = pair()
    opened.run("CREATE TABLE a (id int PRIMARY KEY, v int)", "CREATE TABLE b (id int PRIMARY KEY, v int)")
    opened.run("INSERT INTO a VALUES (1,1),(2,2)", "INSERT INTO b VALUES (5,5)", "RENAME TABLE a TO c").step()
    opened.run(
        "UPDATE c SET v = 7 WHERE id = 1", "RENAME TABLE b TO tmp, c TO b, tmp TO c", "INSERT INTO b VALUES (3,3)"
    )
    opened.run(
        "DELETE FROM c",
        "INSERT INTO c VALUES (6,6)",
        "ALTER TABLE c RENAME TO a",
        "CREATE TABLE c (id int PRIMARY KEY)",
    )
    report = opened.step().verify()
    assert (report.tables, report.rows) == (3, 4)
    opened.unlogged("DELETE FROM b WHERE id = 2")
    assert opened.error().startswith(f"{SHOP}.b differs")


def test_what_a_ddl_changes_without_events_is_counted_apart(pair: Open) -> None:
    opened = pair()
    opened.run(
        "CREATE TABLE t (id int PRIMARY KEY, v int, w varchar(9))",
        "INSERT INTO t VALUES (1,1,'07'),(2,2,'8'),(3,3,'9')",
    )
    opened.run("ALTER TABLE t ADD COLUMN d int NOT NULL DEFAULT 5", "INSERT INTO t VALUES (4,4,'1',6)")
    assert opened.step().verify().rows_changed_by_ddl == 3
    opened.run("ALTER TABLE t MODIFY w int", "UPDATE t SET v = 20 WHERE id = 2")
    report = opened.step().verify()
    assert (report.rows, report.rows_changed_by_ddl) == (4, 2)  # rows 1 and 3; row 2 was written since
    opened.unlogged("UPDATE t SET v = 99 WHERE id = 3")
    assert "1 rows are different" in opened.error()


def test_a_column_that_is_gone_or_elsewhere_is_no_difference(pair: Open) -> None:
    opened = pair()
    opened.run("CREATE TABLE t (id int PRIMARY KEY, a int, b int)", "INSERT INTO t VALUES (1,2,3)")
    opened.run("ALTER TABLE t DROP COLUMN a", "INSERT INTO t VALUES (2,3)", "ALTER TABLE t MODIFY b int FIRST")
    report = opened.step().verify()
    assert (report.rows, report.rows_changed_by_ddl) == (2, 0)


def test_rows_that_a_dropped_partition_took_away_are_counted_apart(pair: Open) -> None:
    opened = pair()
    ranges = "PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20))"
    opened.run(f"CREATE TABLE t (id int PRIMARY KEY, v int) {ranges}", "INSERT INTO t VALUES (1,1),(2,2),(11,1)")
    opened.run("ALTER TABLE t DROP PARTITION p0", "INSERT INTO t VALUES (12,2)")
    report = opened.step().verify()
    assert (report.rows, report.rows_changed_by_ddl) == (2, 2)
    opened.unlogged("DELETE FROM t WHERE id = 12")
    assert "1 rows are too many" in opened.error()


def test_a_key_that_was_changed_identifies_rows_from_then_on(pair: Open) -> None:
    opened = pair()
    opened.run(
        "CREATE TABLE t (a int NOT NULL, b int NOT NULL, v int, PRIMARY KEY (a))",
        "INSERT INTO t VALUES (1,1,1),(2,1,2)",
    )
    opened.run("UPDATE t SET b = 5 WHERE a = 1", "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (a, b)")
    opened.run("INSERT INTO t VALUES (1,1,3)", "UPDATE t SET v = 4 WHERE b = 5")
    report = opened.step().verify()
    assert (report.rows, report.rows_changed_by_ddl) == (3, 0)


def test_a_table_on_the_sink_that_the_database_does_not_have_is_named(pair: Open) -> None:
    opened = pair()
    opened.run(
        "CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE lost (id int PRIMARY KEY)", "INSERT INTO lost VALUES (1)"
    )
    opened.step().verify()
    opened.unlogged("DROP TABLE lost")
    assert f"{SHOP}.lost is on the sink at commit-ts" in opened.error()


# Options --------------------------------------------------------------------------------------------------------------


def test_rows_without_a_commit_ts_are_compared_where_the_journal_tells_their_place(pair: Open) -> None:
    opened = pair(csv=CsvOptions())
    opened.run("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1,1),(2,2)").step()
    opened.run("UPDATE t SET v = 3").step().run("DELETE FROM t WHERE id = 1")
    assert opened.verify().rows == 2
    opened.step()
    assert opened.verify().rows == 1


def test_a_sink_with_chosen_columns_and_other_names_is_compared_by_these(pair: Open) -> None:
    rules = Rules(
        selectors=ColumnSelectors((ColumnSelector(("*.t",), ("id", "v")),)),
        routes=Routes((Route(("*.t",), "lake", "{schema}_{table}"),)),
    )
    opened = pair(rules=rules, **WITH_TS)
    opened.run("CREATE TABLE t (secret int, id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1,1,1),(2,2,2)")
    opened.step().unlogged("UPDATE t SET secret = 9")
    assert opened.verify().rows == 2
    opened.unlogged("UPDATE t SET v = 9 WHERE id = 2")
    assert "in column 'v'" in opened.error()


def test_the_command_line_says_what_was_compared_and_shows_no_password(
    mysql: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    opened = Pair(mysql, tmp_path, **WITH_TS)
    opened.run("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1),(2)").step()
    opened.run("DROP USER IF EXISTS looker", "CREATE USER looker IDENTIFIED BY 'pass-word'")
    opened.run("GRANT REPLICATION SLAVE, REPLICATION CLIENT, SELECT ON *.* TO looker")
    source = f"mysql://looker:pass-word@127.0.0.1:{mysql.port}/?tables={SHOP}.*"
    opened.step()
    words = ["verify", "--source", source, "--sink", f"file://{tmp_path}/out?include-commit-ts=true", "--timeout", "1m"]
    words = [word.replace("?include-commit-ts=true", "") for word in words] + ["--option", "csv.include-commit-ts=true"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "verified: 1 tables have the rows of the database at bin." in said
    opened.unlogged("DELETE FROM t WHERE id = 1")
    assert main([*words, "--show-values"]) == 1
    said = capsys.readouterr().err
    assert "the row with id = '1'" in said
    assert "pass-word" not in said
    opened.run("DROP USER looker")
    opened.close()
