"""Paths and small texts on storage: exact forms, exact inverses, and what is not ours."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import BadEvents, BadSetting, BrokenInvariant, StoreRefused
from tidegate.format.layout import (
    METADATA,
    RESERVED_PREFIX,
    DataKey,
    PathOptions,
    SchemaKey,
    data_dir,
    data_path,
    date_text,
    dispatcher_text,
    index_path,
    index_text,
    is_schema_path,
    metadata_text,
    parse_data_path,
    parse_index_path,
    parse_index_text,
    parse_metadata,
    parse_schema_path,
    schema_path,
)

D = "104857612345678901234"
DEFAULT = PathOptions()
JSON6 = PathOptions(index_digits=6, extension=".json", across_nodes=True)


@pytest.mark.parametrize(
    ("separator", "date"),
    [("year", "2022"), ("month", "2022-12"), ("month", "2023-01"), ("day", "2022-12-31"), ("day", "2023-01-01")],
)
def test_the_date_is_a_directory_above_the_file(separator: str, date: str) -> None:
    options = replace(JSON6, date_separator=separator)
    key = DataKey("test", "table1", 5, date=date, dispatcher=D)
    assert data_path(key, 1, options) == f"test/table1/5/{date}/CDC_{D}_000001.json"
    assert index_path(key, options) == f"test/table1/5/{date}/meta/CDC_{D}.index"
    assert index_text(key, 1, options) == f"CDC_{D}_000001.json\n"


def test_a_default_feed_has_plain_numbered_files_of_twenty_digits() -> None:
    key = DataKey("test", "t1", 450253245302439944, 77, date="2026-08-18")
    assert data_dir(key, DEFAULT) == "test/t1/450253245302439944/2026-08-18"
    assert data_path(key, 1, DEFAULT) == "test/t1/450253245302439944/2026-08-18/CDC00000000000000000001.csv"
    assert index_path(key, DEFAULT) == "test/t1/450253245302439944/2026-08-18/meta/CDC.index"
    assert index_text(key, 1, DEFAULT) == "CDC00000000000000000001.csv\n"


def test_table_ids_stand_for_names_and_partitions_when_asked_for() -> None:
    options = PathOptions(date_separator="none", table_id_as_path=True)
    key = DataKey("s", "t", 123456, 12345, is_partition=True, dispatcher=D)
    assert data_path(key, 10, options) == "12345/123456/CDC00000000000000000010.csv"
    across = replace(options, across_nodes=True)
    assert data_path(key, 10, across) == f"12345/123456/CDC_{D}_00000000000000000010.csv"
    assert index_path(key, across) == f"12345/123456/meta/CDC_{D}.index"
    assert index_path(key._replace(version=5), options) == "12345/5/meta/CDC.index"


def test_a_partition_has_a_directory_of_its_own_unless_the_separator_is_off() -> None:
    key = DataKey("schema1", "table1", 123456, 55, True, "2023-05-09", D)
    across = PathOptions(across_nodes=True)
    assert data_path(key, 10, across) == f"schema1/table1/123456/55/2023-05-09/CDC_{D}_00000000000000000010.csv"
    assert index_path(key, DEFAULT) == "schema1/table1/123456/55/2023-05-09/meta/CDC.index"
    assert data_dir(key, PathOptions(partition_separator=False)) == "schema1/table1/123456/2023-05-09"


def test_a_number_longer_than_its_width_is_not_cut() -> None:
    options = PathOptions(date_separator="none", index_digits=6)
    path = data_path(DataKey("s", "t", 1), 1234567, options)
    assert path == "s/t/1/CDC1234567.csv"
    assert parse_data_path(path, options) == (DataKey("s", "t", 1), 1234567)


def test_a_dispatcher_is_its_low_half_followed_by_its_high_half() -> None:
    assert dispatcher_text(1048576, 12345678901234) == D
    assert dispatcher_text(0, 0) == "00"
    assert dispatcher_text(2**64 - 1, 1) == "184467440737095516151"


def test_schema_files_of_databases_tables_and_ids() -> None:
    assert schema_path("schema1", "", 100, 3233644819, DEFAULT) == "schema1/meta/schema_100_3233644819.json"
    assert schema_path("test", "table1", 100, 604403549, DEFAULT) == "test/table1/meta/schema_100_0604403549.json"
    by_id = PathOptions(table_id_as_path=True)
    assert schema_path("test", "table1", 100, 7, by_id, 12345) == "12345/meta/schema_100_0000000007.json"
    with pytest.raises(BrokenInvariant):
        schema_path("test", "", 100, 7, by_id)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("schema2/meta/schema_123_0123456789.json", True),
        ("schema1/table1/meta/schema_123_0123456789.json", True),
        ("meta/meta/schema_123_0123456789.json", True),
        ("meta/schema_012345678_.json", False),
        ("meta/schema_abc_0123456789.json", False),
        ("meta/schema_123_0123456789.txt", False),
        ("meta/schema_123_0123456789.json ", False),
        ("meta/schema1/schema_123_0123456789.json", False),
        ("s/t/meta/schema_1_0123456789.json.tmp.6f9619ff", False),
        ("s/meta/schema_1_2.json", False),
        ("schema_1_0123456789.json", False),
        (f"{RESERVED_PREFIX}/meta/schema_1_0123456789.json", False),
    ],
)
def test_a_walker_knows_a_schema_file_by_its_whole_path(path: str, expected: bool) -> None:
    assert is_schema_path(path) is expected


def test_a_schema_path_says_names_version_and_checksum() -> None:
    assert parse_schema_path("test_schema/meta/schema_1_2.json") == SchemaKey("test_schema", "", 1, 2)
    table = parse_schema_path("test_schema/test_table/meta/schema_11_22.json")
    assert table == SchemaKey("test_schema", "test_table", 11, 22)
    by_id = PathOptions(table_id_as_path=True)
    assert parse_schema_path("12345/meta/schema_1_2.json", by_id) == SchemaKey("12345", "", 1, 2, 12345)
    assert parse_schema_path("shop/meta/schema_1_2.json", by_id) is None


@pytest.mark.parametrize(
    ("name", "extension", "expected"),
    [
        ("CDC000011.json", ".json", ("", 11)),
        (f"CDC_{D}_00000000000000000010.csv\n", ".csv", (D, 10)),
        ("CDC_a_b_000001.csv\n", ".csv", ("a_b", 1)),
        ("CDC_D_000001.csv\n", ".csv", ("D", 1)),
        ("CDC000002.csv\n", ".csv", ("", 2)),
        ("CDC1234567.csv\n", ".csv", ("", 1234567)),
    ],
)
def test_an_index_file_names_the_last_data_file(name: str, extension: str, expected: tuple[str, int]) -> None:
    assert parse_index_text(name, extension) == expected


@pytest.mark.parametrize(
    "text",
    ["CDC12345.csv", "CDC__000001.csv", "XYZ000001.csv", "CDC000001.json", "CDC00000x.csv", "CDC000001.csv\n\n", ""],
)
def test_an_index_file_that_names_no_data_file_is_refused(text: str) -> None:
    with pytest.raises(StoreRefused, match="index file"):
        parse_index_text(text, ".csv")


def test_index_paths_parse_by_the_options_in_use() -> None:
    none = PathOptions(date_separator="none", table_id_as_path=True)
    named = DataKey("test", "table1", 5, date="2023-05-09", dispatcher=D)
    assert parse_index_path(f"test/table1/5/2023-05-09/meta/CDC_{D}.index", DEFAULT) == named
    assert parse_index_path("12345/5/meta/CDC.index", none) == DataKey("12345", "", 5, 12345)
    partition = DataKey("test", "table1", 5, 55, True, "2023-05-09")
    assert parse_index_path("test/table1/5/55/2023-05-09/meta/CDC.index", DEFAULT) == partition


@pytest.mark.parametrize(
    ("path", "separator"),
    [
        ("test/binary_columns_dummy/2026-06-23/meta/CDC.index", "day"),
        ("schema1/table1/123456/2023-05-09/meta/CDC.index", "month"),
        ("schema1/table1/123456/2023-05-09/meta/CDC", "day"),
        ("schema1/table1/123456/2023-05-09/CDC.index", "day"),
        ("schema1/table1/0123/2023-05-09/meta/CDC.index", "day"),
        ("schema1/table1/1/2/3/2023-05-09/meta/CDC.index", "day"),
        ("2023-05-09/meta/CDC.index", "day"),
        ("CDC.index", "none"),
        (f"{RESERVED_PREFIX}/table1/1/2023-05-09/meta/CDC.index", "day"),
    ],
)
def test_a_path_of_another_shape_is_no_index_file(path: str, separator: str) -> None:
    assert parse_index_path(path, PathOptions(date_separator=separator)) is None


@pytest.mark.parametrize(
    "name", ["CDC000001.csv", "CDC00000000000000000001.csv.tmp.6f9619ff", "CDC000000000000000000001.csv", "metadata"]
)
def test_only_a_name_that_would_be_built_is_a_data_file(name: str) -> None:
    assert parse_data_path(f"s/t/1/2023-05-09/{name}", DEFAULT) is None


@pytest.mark.parametrize(
    ("schema", "table", "folder"),
    [
        ("..", "t", "_tidegate%%2E%2E/t"),
        ("s", ".", "s/_tidegate%%2E"),
        ("s", "a/b", "s/_tidegate%a%2Fb"),
        ("a/../b", "t", "_tidegate%a%2F..%2Fb/t"),
        ("s", "a\0", "s/_tidegate%a%00"),
        (RESERVED_PREFIX, "t", "_tidegate%_tidegate/t"),
        ("metadata", "metadata", "_tidegate%metadata/metadata"),
        ("s", "_tidegate%a%2Fb", "s/_tidegate%_tidegate%25a%252Fb"),
        ("100%", "a%2Fb", "100%/a%2Fb"),
        ("meta", "meta", "meta/meta"),
        ("...", " a b ", ".../ a b "),
        ("数据", "订单", "数据/订单"),
    ],
)
def test_a_name_that_cannot_be_a_level_of_a_path_is_encoded_and_any_other_stands_as_it_is(
    schema: str, table: str, folder: str
) -> None:
    key = DataKey(schema, table, 1, date="2023-05-09")
    assert data_dir(key, DEFAULT) == f"{folder}/1/2023-05-09"
    assert parse_data_path(data_path(key, 3, DEFAULT), DEFAULT) == (key, 3)
    assert parse_index_path(index_path(key, DEFAULT), DEFAULT) == key
    path = schema_path(schema, table, 1, 1, DEFAULT)
    assert path == f"{folder}/meta/schema_1_0000000001.json"
    assert parse_schema_path(path) == (schema, table, 1, 1, 0)


@given(st.text(min_size=1, max_size=60), st.text(min_size=1, max_size=60))
def test_two_names_never_share_a_directory_and_none_leaves_the_sink(one: str, other: str) -> None:
    folders = [data_dir(DataKey(name, "t", 1, date="2023-05-09"), DEFAULT) for name in (one, other)]
    assert (one == other) == (folders[0] == folders[1])
    for folder in folders:
        levels = folder.split("/")
        assert len(levels) == 4
        assert not {"", ".", ".."} & set(levels)
        assert "\0" not in folder
        assert levels[0] not in ("metadata", RESERVED_PREFIX)


@pytest.mark.parametrize(("schema", "table"), [("", "t"), ("s", "x" * 700), ("数" * 234, "t"), ("s", "/" * 240)])
def test_a_name_that_no_store_could_hold_is_refused(schema: str, table: str) -> None:
    with pytest.raises(BadEvents, match="cannot be a path"):
        data_dir(DataKey(schema, table, 1, date="2023-05-09"), DEFAULT)
    with pytest.raises(BadEvents, match="route it to another name"):
        schema_path(schema, table, 1, 1, DEFAULT)


@pytest.mark.parametrize(
    "level", ["_tidegate%", "_tidegate%a", "_tidegate%%2f", "_tidegate", "metadata", "", ".", ".."]
)
def test_a_directory_that_no_name_leads_to_is_not_read_as_one(level: str) -> None:
    assert parse_data_path(f"{level}/t/1/2023-05-09/CDC00000000000000000001.csv", DEFAULT) is None
    assert parse_schema_path(f"{level}/t/meta/schema_1_0000000001.json") is None


def test_a_key_that_does_not_fit_the_options_is_a_bug_and_says_so() -> None:
    with pytest.raises(BrokenInvariant, match="day date"):
        data_dir(DataKey("s", "t", 1, date="2023"), DEFAULT)
    with pytest.raises(BrokenInvariant, match="dispatcher"):
        data_path(DataKey("s", "t", 1, date="2023-05-09"), 1, PathOptions(across_nodes=True))


def test_path_options_out_of_range_are_refused() -> None:
    with pytest.raises(BadSetting, match="'Day'; known: none, year, month, day"):
        PathOptions(date_separator="Day")
    with pytest.raises(BadSetting, match="from 6 to 20"):
        PathOptions(index_digits=5)


def test_dates_follow_the_separator() -> None:
    moment = datetime(2026, 1, 31, 23, 59)
    texts = [date_text(moment, separator) for separator in ("none", "year", "month", "day")]
    assert texts == ["", "2026", "2026-01", "2026-01-31"]
    with pytest.raises(BadSetting, match="hour"):
        date_text(moment, "hour")


def test_metadata_is_one_compact_object() -> None:
    assert METADATA == "metadata"
    assert metadata_text(450253245512155140) == '{"checkpoint-ts":450253245512155140}'


@pytest.mark.parametrize("text", ["", "{}", "[]", "7", '{"checkpoint-ts":"7"}', '{"checkpoint-ts":-1}', "{"])
def test_a_broken_metadata_is_refused(text: str) -> None:
    with pytest.raises(StoreRefused, match="metadata"):
        parse_metadata(text)


# Laws ---------------------------------------------------------------------------------------------------------------

# Each character takes up to twelve bytes where a name is not fit for a path, and a level has at most 255.
names = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=18).filter(
    lambda name: name not in (".", "..", RESERVED_PREFIX)
)
ids = st.integers(0, 2**63 - 1)
dates = st.datetimes(min_value=datetime(1000, 1, 1))
options_in_use = st.builds(
    PathOptions,
    date_separator=st.sampled_from(["none", "year", "month", "day"]),
    index_digits=st.integers(6, 20),
    extension=st.sampled_from([".csv", ".json"]),
    partition_separator=st.booleans(),
    table_id_as_path=st.booleans(),
    across_nodes=st.booleans(),
)


@st.composite
def placed(draw: st.DrawFn) -> tuple[DataKey, PathOptions]:
    options = draw(options_in_use)
    date = date_text(draw(dates), options.date_separator)
    dispatcher = draw(st.from_regex(r"[0-9a-z_]{1,40}", fullmatch=True))
    key = DataKey(draw(names), draw(names), draw(ids), draw(ids), draw(st.booleans()), date, dispatcher)
    return key, options


def said_by_path(key: DataKey, options: PathOptions) -> DataKey:
    """The key less what its path does not say."""
    dispatcher = key.dispatcher if options.across_nodes else ""
    if options.table_id_as_path:
        return DataKey(str(key.table_id), "", key.version, key.table_id, False, key.date, dispatcher)
    shown = key.is_partition and options.partition_separator
    return key._replace(table_id=key.table_id if shown else 0, is_partition=shown, dispatcher=dispatcher)


@given(placed(), ids)
def test_parsing_a_data_path_undoes_building_it(where: tuple[DataKey, PathOptions], number: int) -> None:
    key, options = where
    path = data_path(key, number, options)
    parsed = parse_data_path(path, options)
    assert parsed == (said_by_path(key, options), number)
    assert data_path(*parsed, options) == path


@given(placed(), ids)
def test_parsing_an_index_path_and_text_undoes_building_them(where: tuple[DataKey, PathOptions], number: int) -> None:
    key, options = where
    path = index_path(key, options)
    parsed = parse_index_path(path, options)
    assert parsed == said_by_path(key, options)
    assert index_path(parsed, options) == path
    assert parse_index_text(index_text(key, number, options), options.extension) == (parsed.dispatcher, number)


@given(names, st.just("") | names, ids, st.integers(0, 2**32 - 1))
def test_parsing_a_schema_path_undoes_building_it(schema: str, table: str, version: int, checksum: int) -> None:
    path = schema_path(schema, table, version, checksum, DEFAULT)
    assert is_schema_path(path)
    assert parse_schema_path(path) == SchemaKey(schema, table, version, checksum)


@given(ids, st.integers(0, 2**32 - 1), ids)
def test_parsing_a_schema_path_by_id_undoes_building_it(version: int, checksum: int, table_id: int) -> None:
    options = PathOptions(table_id_as_path=True)
    path = schema_path("s", "t", version, checksum, options, table_id)
    assert parse_schema_path(path, options) == SchemaKey(str(table_id), "", version, checksum, table_id)


@given(ids)
def test_parsing_metadata_undoes_writing_it(ts: int) -> None:
    assert parse_metadata(metadata_text(ts)) == ts


@given(st.text(st.sampled_from("s/t.0123456789-_CDCmetaindexcsv"), max_size=60), options_in_use)
def test_any_path_parses_or_is_none(path: str, options: PathOptions) -> None:
    found = parse_data_path(path, options)
    parse_index_path(path, options)
    parse_schema_path(path, options)
    if found and options.across_nodes == bool(found[0].dispatcher):
        assert data_path(*found, options) == path
