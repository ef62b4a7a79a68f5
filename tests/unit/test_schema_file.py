"""The schema file's exact text and checksum, column renderings, and layouts as JSON."""

from __future__ import annotations

import json
import zlib
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import BadEvents
from tidegate.format.sql.declared import declared_column
from tidegate.format.tables import TYPES, Column, Layout, listed_file, listing, schema_checksum, schema_file_text

PEOPLE = Layout(
    (
        Column("Id", "int", nullable=False, pk=True, default=10),
        Column("LastName", "varchar", 128, nullable=False, default="Default LastName"),
        Column("FirstName", "varchar", 64, default="Default FirstName"),
        Column("Birthday", "datetime", default=12345678),
    )
)
TWO = Layout((Column("col1", "int", id=1), Column("col2", "varchar", 5, id=2)))


def rendered(column: Column) -> dict[str, object]:
    columns = json.loads(schema_file_text("s", "t", 1, Layout((column,))))["TableColumns"]
    assert columns[0].pop("ColumnName") == column.name
    return dict(columns[0])


@pytest.mark.parametrize(
    ("column", "type_name", "precision", "scale"),
    [
        (Column("c", "time", decimals=5), "TIME", None, "5"),
        (Column("c", "float", 12), "FLOAT", "12", None),
        (Column("c", "float", 5), "FLOAT", "5", None),
        (Column("c", "float", 7, 3), "FLOAT", "7", "3"),
        (Column("c", "double", 12, 3), "DOUBLE", "12", "3"),
        (Column("c", "double", 7, 3), "DOUBLE", "7", "3"),
        (Column("c", "tinyint", 5), "TINYINT", "5", None),
        (Column("c", "smallint", 5), "SMALLINT", "5", None),
        (Column("c", "bigint", 20), "BIGINT", "20", None),
        (Column("c", "bit", 5), "BIT", "5", None),
        (Column("c", "varchar", 128), "VARCHAR", "128", None),
        (Column("c", "char", 32), "CHAR", "32", None),
        (Column("c", "var_string", 64), "VAR_STRING", "64", None),
        (Column("c", "text", 100), "TEXT", "100", None),
        (Column("c", "tinytext", 120, binary=True), "TINYBLOB", "120", None),
        (Column("c", "mediumtext", 100, binary=True), "MEDIUMBLOB", "100", None),
        (Column("c", "longtext", 5, binary=True), "LONGBLOB", "5", None),
        (Column("c", "datetime", 8, 2), "DATETIME", None, "2"),
        (Column("c", "datetime", 8, 0), "DATETIME", None, None),
        (Column("c", "date", 8, 2), "DATE", None, None),
        (Column("c", "year", 4, 0), "YEAR", "4", None),
        (Column("c", "decimal", 12, 0), "DECIMAL", "12", "0"),
        (Column("c", "decimal"), "DECIMAL", "10", "0"),
        (Column("c", "char", 3, binary=True), "BINARY", "3", None),
        (Column("c", "varchar", 3, binary=True), "VARBINARY", "3", None),
        (Column("c", "var_string", 3, binary=True), "VAR_STRING", "3", None),
        (Column("c", "int", unsigned=True), "INT UNSIGNED", "10", None),
        (Column("c", "bigint", unsigned=True), "BIGINT UNSIGNED", "20", None),
        (Column("c", "int", 5, zerofill=True), "INT UNSIGNED", "5", None),
        (Column("c", "bit", 1, unsigned=True), "BIT UNSIGNED", "1", None),
        (Column("c", "json"), "JSON", None, None),
        (Column("c", "unspecified"), "UNSPECIFIED", None, None),
    ],
)
def test_a_column_shows_type_precision_and_scale(
    column: Column, type_name: str, precision: str | None, scale: str | None
) -> None:
    wanted = {"ColumnType": type_name, "ColumnPrecision": precision, "ColumnScale": scale}
    assert rendered(column) == {key: text for key, text in wanted.items() if text is not None}


@pytest.mark.parametrize(
    ("declared", "shown"),
    [
        ("bit", "BIT UNSIGNED 1"), ("bit(5)", "BIT UNSIGNED 5"), ("tinyint", "TINYINT 4"), ("smallint", "SMALLINT 6"),
        ("mediumint", "MEDIUMINT 9"), ("int", "INT 11"), ("bigint", "BIGINT 20"), ("tinyint(5)", "TINYINT 5"),
        ("tinyint unsigned", "TINYINT UNSIGNED 3"), ("smallint unsigned", "SMALLINT UNSIGNED 5"),
        ("mediumint unsigned", "MEDIUMINT UNSIGNED 8"), ("int unsigned", "INT UNSIGNED 10"),
        ("bigint unsigned", "BIGINT UNSIGNED 20"), ("int zerofill", "INT UNSIGNED 10"), ("bool", "TINYINT 1"),
        ("float", "FLOAT 12"), ("float(5)", "FLOAT 12"), ("float(7,3)", "FLOAT 7 . 3"), ("double", "DOUBLE 22"),
        ("double(12,3)", "DOUBLE 12 . 3"), ("double(7,0)", "DOUBLE 7"), ("decimal", "DECIMAL 10 . 0"),
        ("decimal(5)", "DECIMAL 5 . 0"), ("decimal(5,2)", "DECIMAL 5 . 2"), ("year", "YEAR UNSIGNED 4"),
        ("date", "DATE"), ("datetime", "DATETIME"), ("datetime(2)", "DATETIME . 2"), ("timestamp(0)", "TIMESTAMP"),
        ("time(5)", "TIME . 5"), ("char", "CHAR 1"), ("char(32)", "CHAR 32"), ("varchar(128)", "VARCHAR 128"),
        ("var_string(64)", "VAR_STRING 64"), ("binary(3)", "BINARY 3"), ("varbinary(3)", "VARBINARY 3"),
        ("char(3) charset binary", "BINARY 3"), ("tinytext", "TINYTEXT 255"), ("text", "TEXT 65535"),
        ("mediumtext", "MEDIUMTEXT 16777215"), ("longtext", "LONGTEXT 4294967295"), ("tinyblob", "TINYBLOB 255"),
        ("blob", "BLOB 65535"), ("mediumblob", "MEDIUMBLOB 16777215"), ("longblob", "LONGBLOB 4294967295"),
        ("text(100)", "TEXT 65535"), ("blob(100)", "TINYBLOB 255"), ("json", "JSON"), ("vector(3)", "VECTOR"),
        ("unspecified", "UNSPECIFIED"),
    ],
)  # fmt: skip
def test_a_declared_column_shows_the_lengths_that_tidb_gives_it(declared: str, shown: str) -> None:
    """`DECIMAL 5 . 2` stands for a precision of 5 and a scale of 2."""
    column = rendered(declared_column(f"c {declared}"))
    sizes, _, scale = shown.partition(" . ")
    precision = sizes.rpartition(" ")[2] if sizes[-1].isdigit() else ""
    wanted = {
        "ColumnType": sizes.removesuffix(precision).strip(),
        "ColumnPrecision": precision,
        "ColumnScale": scale,
    }
    assert column == {key: text for key, text in wanted.items() if text}


@pytest.mark.parametrize(
    ("declared", "fields"),
    [
        ("int default 10", {"ColumnDefault": "10"}),
        ("int not null primary key", {"ColumnNullable": "false", "ColumnIsPk": "true"}),
        ("int default null", {}),
        ("int default ''", {"ColumnDefault": ""}),
        ("int as (1)", {}),
    ],
)
def test_a_declared_column_shows_its_attributes(declared: str, fields: dict[str, str]) -> None:
    assert rendered(declared_column(f"c {declared}")) == {"ColumnType": "INT", "ColumnPrecision": "11"} | fields


def test_a_bit_default_is_raw_bytes_and_one_that_is_no_utf8_cannot_be_told() -> None:
    text = schema_file_text("s", "t", 1, Layout((declared_column("c bit(16) default b'111111111'"),)))
    assert '"ColumnDefault": "\\u0001\\ufffd"' in text


def test_keys_nullability_and_elements_show_only_when_they_say_something() -> None:
    key = Column("id", "int", nullable=False, pk=True)
    assert rendered(key) == {
        "ColumnType": "INT",
        "ColumnPrecision": "11",
        "ColumnNullable": "false",
        "ColumnIsPk": "true",
    }
    assert rendered(Column("e", "enum", elems=("a", "b"))) == {"ColumnType": "ENUM", "ColumnElems": ["a", "b"]}


def test_an_empty_default_stays_and_a_missing_one_does_not_show() -> None:
    assert rendered(Column("c", "json", default="")) == {"ColumnType": "JSON", "ColumnDefault": ""}
    assert rendered(Column("c", "json", default=False)) == {"ColumnType": "JSON", "ColumnDefault": False}
    assert rendered(Column("c", "json", default=None)) == {"ColumnType": "JSON"}


PEOPLE_TEXT = """{
    "Table": "table1",
    "Schema": "schema1",
    "Version": 1,
    "TableVersion": 100,
    "Query": "alter table schema1.table1 add Birthday date",
    "Type": 5,
    "TableColumns": [
        {
            "ColumnName": "Id",
            "ColumnType": "INT",
            "ColumnDefault": 10,
            "ColumnPrecision": "11",
            "ColumnNullable": "false",
            "ColumnIsPk": "true"
        },
        {
            "ColumnName": "LastName",
            "ColumnType": "VARCHAR",
            "ColumnDefault": "Default LastName",
            "ColumnPrecision": "128",
            "ColumnNullable": "false"
        },
        {
            "ColumnName": "FirstName",
            "ColumnType": "VARCHAR",
            "ColumnDefault": "Default FirstName",
            "ColumnPrecision": "64"
        },
        {
            "ColumnName": "Birthday",
            "ColumnType": "DATETIME",
            "ColumnDefault": 12345678
        }
    ],
    "TableColumnsTotal": 4
}"""


def test_a_table_file_has_this_exact_text() -> None:
    query = "alter table schema1.table1 add Birthday date"
    assert schema_file_text("schema1", "table1", 100, PEOPLE, query, 5) == PEOPLE_TEXT


def test_a_database_file_has_null_columns_and_its_checksum_an_empty_array() -> None:
    text = schema_file_text("schema1", "", 100, None)
    assert text.endswith('"Type": 0,\n    "TableColumns": null,\n    "TableColumnsTotal": 0\n}')
    assert schema_file_text("schema1", "", 100, Layout(())) == text
    assert schema_checksum("schema1", "", None) == 3233644819


def test_the_checksum_ignores_version_query_and_action_because_it_never_sees_them() -> None:
    assert schema_checksum("schema1", "table1", PEOPLE) == 3752767265


def test_the_checksum_does_not_depend_on_the_order_of_columns() -> None:
    shuffled = {schema_checksum("schema1", "table1", Layout(order)) for order in permutations(PEOPLE.columns)}
    assert shuffled == {3752767265}


def test_column_ids_come_first_when_asked_for_and_change_the_checksum() -> None:
    text = schema_file_text("test", "table1", 100, TWO, output_column_id=True)
    assert '{\n            "ColumnId": "1",\n            "ColumnName": "col1",' in text
    assert schema_checksum("test", "table1", TWO, output_column_id=True) == 604403549
    assert "ColumnId" not in schema_file_text("test", "table1", 100, TWO)
    assert schema_checksum("test", "table1", TWO) != 604403549


def test_virtual_columns_are_listed_in_the_file_but_not_stored() -> None:
    layout = Layout((Column("a", "int"), Column("b", "int", virtual=True)))
    assert json.loads(schema_file_text("s", "t", 1, layout))["TableColumnsTotal"] == 2
    assert layout.stored == (layout.columns[0],)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a<b>&c", "a\\u003cb\\u003e\\u0026c"),
        ("\u2028\u2029", "\\u2028\\u2029"),
        ("\n\r\t\b\f", "\\n\\r\\t\\b\\f"),
        ("\x00\x1f\x7f", "\\u0000\\u001f\x7f"),
        ('"\\/', '\\"\\\\/'),
        (b"\xff\x80".decode("utf-8", "surrogateescape"), "\\ufffd\\ufffd"),
        ("你好 🙂", "你好 🙂"),
    ],
)
def test_text_is_escaped_as_go_does(text: str, written: str) -> None:
    assert f'"Query": "{written}",' in schema_file_text("s", "t", 1, None, text)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (1.0, "1"),
        (-2.5, "-2.5"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1e-6, "0.000001"),
        (1.5e-7, "1.5e-7"),
    ],
)
def test_a_floating_default_is_written_as_go_does(value: float, written: str) -> None:
    assert f'"ColumnDefault": {written}\n' in schema_file_text(
        "s", "t", 1, Layout((Column("c", "json", default=value),))
    )


def test_the_checksum_is_the_crc_of_the_shape_alone() -> None:
    lines = ['"Table": ""', '"Schema": "a\\u0026b"', '"Version": 0', '"TableColumns": []', '"TableColumnsTotal": 0']
    shape = "{\n    " + ",\n    ".join(lines) + "\n}"
    assert schema_checksum("a&b", "", None) == zlib.crc32(shape.encode())


# Layouts ------------------------------------------------------------------------------------------------------------

columns = st.builds(
    Column,
    name=st.text(min_size=1),
    type=st.sampled_from(sorted(TYPES)),
    flen=st.none() | st.integers(0, 255),
    decimals=st.none() | st.integers(0, 30),
    unsigned=st.booleans(),
    zerofill=st.booleans(),
    nullable=st.booleans(),
    pk=st.booleans(),
    binary=st.booleans(),
    elems=st.lists(st.text(), max_size=3).map(tuple),
    default=st.none() | st.text() | st.integers() | st.booleans(),
    id=st.none() | st.integers(0, 2**40),
    virtual=st.booleans(),
)
layouts = st.lists(columns, max_size=4).map(lambda found: Layout(tuple(found)))


@given(layouts)
def test_a_layout_survives_its_json_with_the_same_fingerprint(layout: Layout) -> None:
    again = Layout.from_json(layout.to_json())
    assert again == layout
    assert again.fingerprint == layout.fingerprint
    assert -(2**63) <= layout.fingerprint < 2**63


@given(layouts, st.booleans())
def test_a_schema_file_made_from_the_json_of_a_layout_is_the_same(layout: Layout, with_ids: bool) -> None:
    text = schema_file_text("s", "t", 7, layout, output_column_id=with_ids)
    made = listed_file("s", "t", 7, listing(layout.to_json(), with_ids))
    assert made == (schema_checksum("s", "t", layout, with_ids), text)


@given(layouts)
def test_every_schema_file_is_json_with_all_columns(layout: Layout) -> None:
    read = json.loads(schema_file_text("s", "t", 7, layout, "q", 3))
    assert [column["ColumnName"] for column in read["TableColumns"] or []] == [c.name for c in layout.columns]


def test_layout_json_is_compact_and_leaves_out_what_is_usual() -> None:
    layout = Layout((Column("id", "int", nullable=False, pk=True), Column("c", "char", 120)))
    wanted = '{"columns":[{"name":"id","type":"int","nullable":false,"pk":true},{"name":"c","type":"char","flen":120}]}'
    assert layout.to_json() == wanted


def test_the_fingerprint_is_the_same_in_every_process_and_differs_by_column_order() -> None:
    assert Layout((Column("id", "int"),)).fingerprint == 2840774606165557771
    assert TWO.fingerprint != Layout(TWO.columns[::-1]).fingerprint


@pytest.mark.parametrize(
    ("text", "culprit"),
    [
        ("{", "layout must be JSON"),
        ("[]", "layout must be JSON"),
        ("{}", "columns"),
        ('{"columns":[7]}', "layout must be JSON"),
        ('{"columns":[{"type":"int"}]}', "name"),
        ('{"columns":[{"name":"a","type":"blob"}]}', "'blob'"),
        ('{"columns":[{"name":"a","type":"int","size":3}]}', "'size'"),
        ('{"columns":[{"name":"a","type":"int","pk":"yes"}]}', "'pk'"),
        ('{"columns":[{"name":"a","type":"int","flen":true}]}', "'flen'"),
    ],
)
def test_a_bad_layout_text_is_refused_by_name(text: str, culprit: str) -> None:
    with pytest.raises(BadEvents, match=culprit):
        Layout.from_json(text)
