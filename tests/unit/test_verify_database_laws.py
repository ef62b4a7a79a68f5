"""The parts of `verify` of a database, against simple models: states, windows, pieces of files, histories, GTIDs."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import VerifyError
from tidegate.format.ddl import events as ddl
from tidegate.format.encode import canal_json, csv
from tidegate.format.encode.canal_json import CanalOptions
from tidegate.format.encode.csv import CsvOptions
from tidegate.format.layout import DataKey, PathOptions, data_path
from tidegate.format.tables import Column, Layout, schema_file_text
from tidegate.reader.replay import Lane
from tidegate.sources.mysql.place import Place
from tidegate.testing import MemoryStore, change, events_batch
from tidegate.tools.verify_database.compare import Era, Sides, Verdict, compare
from tidegate.tools.verify_database.durable import is_snapshot_left
from tidegate.tools.verify_database.landed import Files
from tidegate.tools.verify_database.lineage import Name, SchemaFile, lineage, read_schema_file
from tidegate.tools.verify_database.moment import GtidSet, Moment, durable_of
from tidegate.tools.verify_database.rows import PUT, REMOVED, Changes, Shape, Spill, changes, joined
from tidegate.tools.verify_database.values import mean_the_same

# States ---------------------------------------------------------------------------------------------------------------

Pair = tuple[int, int]
KEYED, KEYLESS = Shape(("id", "v"), ("int", "int"), (0,)), Shape(("id", "v"), ("int", "int"), ())
ERAS = [Era(1, (True, True))]


def batch(entries: list[tuple[int, Pair]], shape: Shape) -> Changes:
    columns = [pa.array([b"%d" % row[i] for _, row in entries], pa.binary()) for i in range(2)]
    return changes(np.array([op for op, _ in entries], np.int8), columns, shape.key)


@st.composite
def logs(draw: st.DrawFn) -> list[tuple[str, Pair | None, Pair | None]]:
    """Changes of a table with a key, each possible where it stands."""
    state: dict[int, int] = {}
    found: list[tuple[str, Pair | None, Pair | None]] = []
    for _ in range(draw(st.integers(0, 30))):
        key, value, target = draw(st.integers(0, 5)), draw(st.integers(0, 3)), draw(st.integers(0, 5))
        if key not in state:
            found.append(("insert", None, (key, value)))
        elif draw(st.booleans()):
            found.append(("delete", (key, state[key]), None))
            del state[key]
            continue
        else:
            target = target if target not in state else key
            found.append(("update", (key, state.pop(key)), (target, value)))
            key = target
        state[key] = value
    return found


def entries(log: list[tuple[str, Pair | None, Pair | None]]) -> list[tuple[int, Pair]]:
    found: list[tuple[int, Pair]] = []
    for _, before, after in log:
        found += [(REMOVED, before)] if before else []
        found += [(PUT, after)] if after else []
    return found


def rows_after(log: list[tuple[str, Pair | None, Pair | None]]) -> list[Pair]:
    left: Counter[Pair] = Counter()
    for op, row in entries(log):
        left[row] += op
    return sorted(left.elements())


@given(logs(), st.data(), st.sampled_from([KEYED, KEYLESS]))
def test_a_read_at_any_moment_is_brought_to_any_other_by_the_log_in_between(
    log: list[tuple[str, Pair | None, Pair | None]], data: st.DataObject, shape: Shape
) -> None:
    at, to = data.draw(st.integers(0, len(log))), data.draw(st.integers(0, len(log)))
    read = batch([(PUT, row) for row in rows_after(log[:at])], shape)
    window = batch(entries(log[min(at, to) : max(at, to)]), shape)
    sink = batch(entries(log[:to]), shape)
    verdict = Verdict()
    compare(Sides(sink, read, window), shape, ERAS, to >= at, verdict)
    assert verdict.is_right
    assert verdict.rows == len(rows_after(log[:to]))


@given(logs(), logs(), st.sampled_from([KEYED, KEYLESS]))
def test_rows_that_differ_are_counted_as_a_model_counts_them(
    sink: list[tuple[str, Pair | None, Pair | None]],
    truth: list[tuple[str, Pair | None, Pair | None]],
    shape: Shape,
) -> None:
    verdict = Verdict()
    read = batch([(PUT, row) for row in rows_after(truth)], shape)
    compare(Sides(batch(entries(sink), shape), read, batch([], shape)), shape, ERAS, True, verdict)
    landed, there = rows_after(sink), rows_after(truth)
    if shape is KEYLESS:
        expected = ((Counter(there) - Counter(landed)).total(), (Counter(landed) - Counter(there)).total(), 0)
    else:
        one, two = dict(landed), dict(there)
        different = sum(one[key] != two[key] for key in one.keys() & two.keys())
        expected = (len(two.keys() - one.keys()), len(one.keys() - two.keys()), different)
    assert (verdict.missing, verdict.extra, verdict.different) == expected


TEXTS = st.lists(st.tuples(st.one_of(st.none(), st.binary(max_size=4)), st.one_of(st.none(), st.binary(max_size=4))))


@given(TEXTS)
def test_joined_keys_are_equal_only_for_equal_rows(rows: list[tuple[bytes | None, bytes | None]]) -> None:
    columns = [pa.array([row[i] for row in rows], pa.binary()) for i in range(2)]
    keys = joined(columns).to_pylist()
    assert len(set(keys)) == len(set(rows))


@given(TEXTS, st.integers(1, 5))
def test_a_spill_gives_back_every_row_with_equal_keys_in_one_bucket_and_in_order(
    rows: list[tuple[bytes | None, bytes | None]], buckets: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        check_spill(Path(directory), rows, buckets)


def check_spill(directory: Path, rows: list[tuple[bytes | None, bytes | None]], buckets: int) -> None:
    columns = [pa.array([row[i] for row in rows], pa.binary()) for i in range(2)]
    whole = changes(np.ones(len(rows), np.int8), columns, (0,), ts=np.arange(len(rows)))
    spill = Spill(directory, 2, buckets)
    for start in range(0, len(rows), 3):
        spill.add(whole.take(np.arange(start, min(start + 3, len(rows)))))
    found: list[int] = []
    homes: dict[bytes, int] = {}
    for number, bucket in enumerate(spill.buckets()):
        assert list(bucket.ts) == sorted(bucket.ts)
        for key, ts in zip(bucket.key.to_pylist(), bucket.ts.tolist(), strict=True):
            assert homes.setdefault(key, number) == number
            found.append(ts)
    assert sorted(found) == list(range(len(rows)))


# Files ----------------------------------------------------------------------------------------------------------------

TEXT_LAYOUT = Layout((Column("id", "int", pk=True, nullable=False), Column("v", "varchar", flen=64)))
PATHS = PathOptions()
KEY = DataKey("shop", "t", 7, date="2026-01-31")


@given(
    st.lists(st.one_of(st.none(), st.text("a\"\\,\r\nN'é", max_size=12)), max_size=12),
    st.integers(1, 40),
    st.sampled_from(
        [
            CsvOptions(include_commit_ts=True),
            CsvOptions(include_commit_ts=True, output_old_value=True, output_field_header=True),
            CsvOptions(include_commit_ts=True, quote="", delimiter="|"),
            CanalOptions(tidb_extension=True),
        ]
    ),
)
def test_a_file_is_read_in_pieces_of_any_size(
    texts: list[str | None], piece_bytes: int, encoding: CsvOptions | CanalOptions
) -> None:
    values = [None if text is None else text.encode() for text in texts]
    rows = [change(1, i + 1, i, b"%d" % i, value, layout=TEXT_LAYOUT.fingerprint) for i, value in enumerate(values)]
    updates = [
        {**row, "kind": "update", "before": row["after"], "commit_ts": row["commit_ts"] + len(rows)}
        for row in rows[::2]
    ]
    events = events_batch([*rows, *updates])
    order = np.arange(events.num_rows)
    if isinstance(encoding, CsvOptions):
        data = csv.header(TEXT_LAYOUT, encoding) + b"".join(
            csv.encode(events, order, TEXT_LAYOUT, encoding).to_pylist()
        )
    else:
        data = b"".join(canal_json.encode(events, order, TEXT_LAYOUT, encoding, None, 10**12).to_pylist())
    store = MemoryStore()
    store.put(data_path(KEY, 1, PATHS), data)
    files = Files(store, PATHS, encoding, TEXT_LAYOUT, piece_bytes=piece_bytes)
    shape = Shape(("id", "v"), ("int", "varchar"), (0,))
    found = list(files.changes(Lane(KEY, (len(data),)), 1, 10**6, shape)) if rows else []
    state: dict[bytes, bytes | None] = {}
    for part in found:
        for op, key, value in zip(part.op.tolist(), *(column.to_pylist() for column in part.columns), strict=True):
            if op == PUT:
                state[key] = value
            else:
                del state[key]
    assert state == {b"%d" % i: value for i, value in enumerate(values)}
    early = list(files.changes(Lane(KEY, (len(data),)), 1, 1, shape)) if rows else []
    assert sum(len(part.op) for part in early) == min(1, len(rows))


def test_a_broken_file_is_named() -> None:
    store = MemoryStore()
    store.put(data_path(KEY, 1, PATHS), b'"X","t","shop",1,1,"a"\r\n')
    files = Files(store, PATHS, CsvOptions(include_commit_ts=True), TEXT_LAYOUT)
    with pytest.raises(VerifyError, match=r"^shop/t/7/2026-01-31/CDC0+1\.csv: line 1 has the op 'X'"):
        list(files.changes(Lane(KEY, (24,)), 1, 10, Shape(("id", "v"), ("int", "varchar"), (0,))))


# Histories ------------------------------------------------------------------------------------------------------------


def file(version: int, action: int = 0, old: Name | None = None, new: Name | None = None) -> SchemaFile:
    query = f"RENAME TABLE `{old[0]}`.`{old[1]}` TO `{new[0]}`.`{new[1]}`" if old and new else ""
    return SchemaFile(version, action, query, ())


A, B, TMP = ("s", "a"), ("s", "b"), ("s", "tmp")


def rename(version: int, old: Name, new: Name) -> SchemaFile:
    return file(version, ddl.RENAME_TABLE, old, new)


def parts(name: Name, ts: int, files: dict[Name, list[SchemaFile]]) -> list[tuple[Name, list[int], int]]:
    found = lineage(name, ts, lambda each: files.get(each, []))
    return [(part.name, [each.version for each in part.files], part.until_ts) for part in found]


def test_a_table_begins_at_its_last_create_or_truncate() -> None:
    files = {A: [file(1), file(3, ddl.CREATE_TABLE), file(5, 5), file(7, ddl.TRUNCATE_TABLE), file(9, 5)]}
    assert parts(A, 10, files) == [(A, [7, 9], 10)]
    assert parts(A, 6, files) == [(A, [3, 5], 6)]
    assert parts(A, 2, files) == [(A, [1], 2)]
    assert parts(A, 0, files) == []


def test_a_dropped_table_is_not_there_until_it_is_made_again() -> None:
    files = {A: [file(1, ddl.CREATE_TABLE), file(5, ddl.DROP_TABLE), file(8, ddl.CREATE_TABLE)]}
    assert parts(A, 6, files) == []
    assert parts(A, 8, files) == [(A, [8], 8)]


def test_a_renamed_table_goes_on_from_its_old_name() -> None:
    files = {A: [file(1, ddl.CREATE_TABLE), file(9, ddl.CREATE_TABLE)], B: [rename(5, A, B), file(7, 5)]}
    assert parts(B, 10, files) == [(A, [1], 4), (B, [5, 7], 10)]
    assert parts(A, 10, files) == [(A, [9], 10)]


def test_tables_that_swap_their_names_in_one_statement_keep_apart() -> None:
    files = {
        A: [file(1, ddl.CREATE_TABLE), rename(5, B, A)],
        B: [file(2, ddl.CREATE_TABLE), rename(5, TMP, B)],
        TMP: [rename(5, A, TMP)],
    }
    assert [name for name, *_ in parts(A, 9, files)] == [B, A]
    assert [name for name, *_ in parts(B, 9, files)] == [A, TMP, B]


def test_a_schema_file_is_read_back() -> None:
    columns = (
        Column("id", "bigint", unsigned=True, nullable=False, pk=True),
        Column("b", "text", binary=True),
        Column("e", "enum", elems=("a", "b,'")),
        Column("d", "decimal", flen=12, decimals=3),
        Column("t", "timestamp", decimals=6),
    )
    text = schema_file_text("s", "t", 42, Layout(columns), "ALTER TABLE `t`", 5)
    found = read_schema_file(text.encode(), "path")
    assert (found.version, found.action, found.query) == (42, 5, "ALTER TABLE `t`")
    assert schema_file_text("s", "t", 42, Layout(found.columns), "ALTER TABLE `t`", 5) == text
    with pytest.raises(VerifyError, match="path is no schema file"):
        read_schema_file(b"{}", "path")


# Moments --------------------------------------------------------------------------------------------------------------

UUID = "3E11FA47-71CA-11E1-9E33-C80AA9429562"


def test_a_set_of_gtids_knows_its_members() -> None:
    found = GtidSet.of(f"{UUID}:1-5:7:blue:2-3,\n4e11fa47-71ca-11e1-9e33-c80aa9429562:9")
    assert all(f"{UUID.lower()}:{number}" in found for number in (1, 5, 7))
    assert not any(f"{UUID.lower()}:{number}" in found for number in (0, 6, 8))
    assert f"{UUID.lower()}:blue:3" in found
    assert f"{UUID.lower()}:blue:1" not in found
    assert "4e11fa47-71ca-11e1-9e33-c80aa9429562:9" in found
    assert f"{UUID}:1" not in GtidSet.of("")


def test_a_moment_has_seen_what_begins_before_its_place() -> None:
    moment = Moment(Place("bin.000002", 10), Place("bin.000002", 10))
    assert moment.has_seen("0-1-1", Place("bin.000001", 99))
    assert not moment.has_seen("0-1-2", Place("bin.000002", 10))


def test_a_position_of_the_journal_says_whether_the_sink_can_be_compared_there() -> None:
    offset: dict[str, Any] = {"file": "bin.000001", "pos": 4, "ts": 7, "gtid": "", "bytes": 0, "record": 0}
    assert durable_of(offset).waits_for == ""
    assert durable_of(offset | {"event": 3}).waits_for == "it stands within a transaction"
    assert durable_of(offset | {"behind": {"3": [1, 4, 5, 0]}}).waits_for == "some tables are held back"
    with pytest.raises(VerifyError, match="is not of a changefeed that follows a database"):
        durable_of(json.loads('{"step": 3}'))


def test_a_snapshot_is_left_while_a_table_waits_for_it() -> None:
    def waiting(after: int, limit: int) -> list[Any]:
        return [SimpleNamespace(table_id=table) for table in (3, 5, 8) if table > after][:limit]

    assert is_snapshot_left({}, waiting)
    assert is_snapshot_left({"done": 3, "begun": {"5": [7]}}, waiting)
    assert is_snapshot_left({"done": 5, "begun": {"8": [7, ["4"]]}}, waiting)
    assert not is_snapshot_left({"done": 5, "begun": {"8": [7]}}, waiting)
    assert not is_snapshot_left({"done": 8}, waiting)


# Values ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "two", "kind", "same"),
    [
        (b'{"a": 1, "b": [1.50]}', b'{"b": [1.5], "a": 1.0}', "json", True),
        (b'{"a": 1}', b'{"a": 2}', "json", False),
        (b"9007199254740993", b"9007199254740992", "json", False),
        (b"[1,0.1]", b"0000803fcdcccc3d", "vector", True),
        (b"[1,0.2]", b"0000803fcdcccc3d", "vector", False),
        (b"x", b"x", "varchar", True),
        (None, b"null", "json", False),
        (b"{", b"[]", "json", False),
    ],
)
def test_values_mean_the_same(one: bytes | None, two: bytes | None, kind: str, same: bool) -> None:
    assert mean_the_same(one, two, kind) is same
