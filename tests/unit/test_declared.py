"""Columns and keys as SQL declares them, read with TiDB's rules."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import BadEvents
from tidegate.format.encode.sql_types import full_mysql_type, mysql_type, sql_type
from tidegate.format.sql.declared import declared_column, declared_layout
from tidegate.format.tables import Column, Layout, schema_file_text

# The type as declared, as canal-json names it, and as its content-compatible lines do.
MYSQL_TYPES = """
    int = int = int(11)                                     tinyint = tinyint = tinyint(4)
    smallint = smallint = smallint(6)                       bigint = bigint = bigint(20)
    mediumint = mediumint = mediumint(9)                    int unsigned = int unsigned = int(10) unsigned
    smallint unsigned = smallint unsigned = smallint(5) unsigned
    mediumint unsigned = mediumint unsigned = mediumint(8) unsigned
    bigint unsigned = bigint unsigned = bigint(20) unsigned
    int(10) = int = int(10)                                 tinyint(3) = tinyint = tinyint(3)
    smallint(5) = smallint = smallint(5)                    mediumint(8) = mediumint = mediumint(8)
    bigint(19) = bigint = bigint(19)
    tinyint(3) unsigned = tinyint unsigned = tinyint(3) unsigned
    mediumint(8) unsigned = mediumint unsigned = mediumint(8) unsigned
    bigint(19) unsigned = bigint unsigned = bigint(19) unsigned
    int zerofill = int unsigned zerofill = int(10) unsigned zerofill
    mediumint zerofill = mediumint unsigned zerofill = mediumint(8) unsigned zerofill
    bigint zerofill = bigint unsigned zerofill = bigint(20) unsigned zerofill
    bit = bit = bit(1)                                      bit(3) = bit = bit(3)
    bool = tinyint = tinyint(1)                             boolean = tinyint = tinyint(1)
    float = float = float                                   double = double = double
    float(10) = float = float                               float(25) = double = double
    double(20,3) = double = double(20,3)                    float(10,3) = float = float(10,3)
    double precision = double = double                      real = double = double
    float unsigned = float unsigned = float unsigned
    float zerofill = float unsigned zerofill = float unsigned zerofill
    decimal = decimal = decimal(10,0)                       numeric = decimal = decimal(10,0)
    dec(7, 2) = decimal = decimal(7,2)                      decimal(5) = decimal = decimal(5,0)
    decimal zerofill = decimal unsigned zerofill = decimal(10,0) unsigned zerofill
    date = date = date                                      time = time = time
    time(3) = time = time(3)                                datetime = datetime = datetime
    datetime(3) = datetime = datetime(3)                    timestamp = timestamp = timestamp
    year = year = year(4)                                   year(4) = year = year(4)
    char = char = char(1)                                   varchar(123) = varchar = varchar(123)
    character varying(9) = varchar = varchar(9)             national char(9) = char = char(9)
    nchar(9) = char = char(9)                               nvarchar(9) = varchar = varchar(9)
    nchar varying(9) = varchar = varchar(9)                 national character varying(9) = varchar = varchar(9)
    text = text = text                                      mediumtext = mediumtext = mediumtext
    longtext = longtext = longtext                          tinytext = tinytext = tinytext
    long = mediumtext = mediumtext                          long varchar = mediumtext = mediumtext
    long varbinary = mediumblob = mediumblob                serial = bigint unsigned = bigint(20) unsigned
    binary = binary = binary(1)                             varbinary(23) = varbinary = varbinary(23)
    blob = blob = blob                                      tinyblob = tinyblob = tinyblob
    mediumblob = mediumblob = mediumblob                    longblob = longblob = longblob
    char(3) charset binary = binary = binary(3)             char(3) collate binary = binary = binary(3)
    char(3) byte = binary = binary(3)                       char(3) binary = char = char(3)
    text character set binary = blob = blob                 varchar(3) ascii = varchar = varchar(3)
    varchar(3) unicode = varchar = varchar(3)               text(63) = tinytext = tinytext
    text(64) = text = text                                  text(16384) = mediumtext = mediumtext
    text(4194304) = longtext = longtext                     blob(255) = tinyblob = tinyblob
    blob(256) = blob = blob                                 text(255) charset latin1 = tinytext = tinytext
    enum('a','b','c') = enum = enum('a','b','c')            set('a','b','c') = set = set('a','b','c')
    json = json = json                                      vector = vector = vector
    vector(3) = vector = vector(3)                          vector<float>(3) = vector = vector(3)
"""
TRIPLES = [
    tuple(text.split(" = ")) for line in MYSQL_TYPES.splitlines() for text in line.strip().split("   ") if text.strip()
]


@pytest.mark.parametrize(("declared", "name", "full"), TRIPLES)
def test_a_declared_type_has_the_name_that_canal_json_shows(declared: str, name: str, full: str) -> None:
    column = declared_column(f"c {declared.strip()}")
    assert (mysql_type(column), full_mysql_type(column)) == (name, full)


@pytest.mark.parametrize(
    ("declared", "number"),
    [
        ("bit(3)", -7), ("decimal(5,2)", 3), ("time(3)", 92), ("datetime(3)", 93), ("timestamp(3)", 93), ("date", 91),
        ("year", 12), ("char(123)", 1), ("varchar(123)", 12), ("text", 2005), ("longtext", 2005), ("binary", 2004),
        ("varbinary(23)", 2004), ("blob", 2004), ("tinyblob", 2004), ("enum('a','b','c')", 4), ("set('a','b','c')", -7),
        ("json", 12),
    ],
)  # fmt: skip
def test_a_declared_type_has_the_java_number_that_canal_json_shows(declared: str, number: int) -> None:
    assert sql_type(declared_column(f"c {declared}")) == number


@pytest.mark.parametrize(
    ("declared", "column"),
    [
        ("c INT", Column("c", "int")),
        ("`a``b c` int", Column("a`b c", "int")),
        ("c int not null", Column("c", "int", nullable=False)),
        ("c int null signed", Column("c", "int")),
        ("c int primary key", Column("c", "int", nullable=False, pk=True)),
        ("c int key", Column("c", "int", nullable=False, pk=True)),
        ("c bit(5)", Column("c", "bit", 5, unsigned=True)),
        ("c year", Column("c", "year", unsigned=True)),
        ("c int as (a + (b * 2)) stored", Column("c", "int")),
        ("c int as (concat(a, ')'))", Column("c", "int", virtual=True)),
        ("c int generated always as (a) virtual not null", Column("c", "int", virtual=True, nullable=False)),
        ("c int auto_increment comment 'it''s, (not) null'", Column("c", "int")),
        ("c varchar(9) character set utf8mb4 collate utf8mb4_bin", Column("c", "varchar", 9)),
        ("c int column_format fixed storage disk invisible", Column("c", "int")),
        ("c int references p (a) match full on delete set null on update cascade", Column("c", "int")),
        ("c int references `d`.`p` (`a`) on delete no action", Column("c", "int")),
        ("c int constraint positive check (c > 0) not enforced", Column("c", "int")),
        ("c int check (c in (1, 2)) enforced not null", Column("c", "int", nullable=False)),
        ("c timestamp(3) on update current_timestamp(3)", Column("c", "timestamp", decimals=3)),
        (
            "c bigint /*T![auto_rand] AUTO_RANDOM(5) */ primary key /*T![clustered_index] CLUSTERED */",
            Column("c", "bigint", nullable=False, pk=True),
        ),
        (
            "c int /* a note */ unsigned # more\n not null -- and more",
            Column("c", "int", unsigned=True, nullable=False),
        ),
        ("c enum('a ', \"b,\", 'it''s', x'c3a9')", Column("c", "enum", elems=("a", "b,", "it's", "é"))),
        (r"c set('\'', '\\', '\n', '\%')", Column("c", "set", elems=("'", "\\", "\n", "\\%"))),
    ],
)
def test_a_definition_says_all_of_a_column(declared: str, column: Column) -> None:
    assert declared_column(declared) == column


@pytest.mark.parametrize(
    ("declared", "default"),
    [
        ("int default 10", "10"), ("int default -1", "-1"), ("int default +1", "1"), ("int default '10'", "10"),
        ("int default 2.8", "3"), ("int default x'41'", "65"), ("int default 0x41", "65"), ("int default b'101'", "5"),
        ("bool default true", "1"), ("bool default false", "0"), ("int default null", None), ("int", None),
        ("double default 1e3", "1000"), ("float default 1.50", "1.5"), ("decimal(5,2) default 1.50", "1.50"),
        ("varchar(9) default ''", ""), ("varchar(9) default 'it''s'", "it's"), ('varchar(9) default "a"', "a"),
        ("varchar(9) default _utf8mb4'a'", "a"), ("varchar(9) default 7", "7"), ("varchar(9) default x'41'", "A"),
        ("varchar(9) default 'current_timestamp'", "current_timestamp"), ("binary(3) default 'a'", "a\0\0"),
        ("bit default b'1'", "\x01"), ("bit(9) default b'100000001'", "\x01\x01"), ("bit(9) default 3", "\x03"),
        ("bit(8) default b'11111111'", "\udcff"), ("bit default 0", "\x00"),
        ("timestamp default current_timestamp", "CURRENT_TIMESTAMP"), ("datetime default now()", "CURRENT_TIMESTAMP"),
        ("timestamp(3) default current_timestamp(3) on update current_timestamp(3)", "CURRENT_TIMESTAMP"),
        ("date default (x)", BadEvents), ("date default current_date", "CURRENT_DATE"),
        ("datetime(3) default '2026-01-31'", "2026-01-31 00:00:00.000"), ("date default '2026-01-31'", "2026-01-31"),
        ("datetime default 0", "0000-00-00 00:00:00"), ("time(2) default '1:02:03'", "01:02:03.00"),
        ("enum('a','b') default 'b'", "b"), ("enum('a','b') default 2", "b"), ("set('a','b') default 3", "a,b"),
        ("year default 2026", "2026"), ("year not null", "0000"), ("year", None),
        ("year primary key", "0000"), ("varchar(9) default x'c3a9'", "é"),
        ("year not null default 1999", "1999"),
    ],
)  # fmt: skip
def test_a_default_is_kept_as_tidb_keeps_it(declared: str, default: str | type[BadEvents] | None) -> None:
    if default is BadEvents:
        with pytest.raises(BadEvents, match="expression"):
            declared_column(f"c {declared}")
    else:
        assert declared_column(f"c {declared}").default == default


@pytest.mark.parametrize(
    ("definitions", "primary", "unique"),
    [
        (["a int", "b int"], [], []),
        (["a int", "b int", "PRIMARY KEY (b, a)"], ["a", "b"], []),
        (["a int", "B int", "primary key (`b`(10) DESC) /*T![clustered_index] NONCLUSTERED */"], ["B"], []),
        (["a int", "b int", "constraint pk primary key using btree (a) comment 'x'"], ["a"], []),
        (["a int unique", "b int unique key"], [], [("a",), ("b",)]),
        (["a int unique", "b int", "unique key uk (b, a) key_block_size = 8"], [], [("b", "a"), ("a",)]),
        (["a serial", "b int serial default value"], [], [("a",), ("b",)]),
        (["a int", "b int", "constraint unique index (b)"], [], [("b",)]),
        (["a int", "b int", "key (a(10))", "index i (b desc)", "fulltext key (a)", "spatial index (b)"], [], []),
        (["a int", "b int", "constraint f foreign key (a) references t (b)", "check (a > b)"], [], []),
        (["a int", "b int", "constraint positive check (a > 0)", "vector index v ((vec_l2_distance(a)))"], [], []),
        (["`key` int", "`primary` int", "unique (`key`)"], [], [("key",)]),
    ],
)
def test_keys_come_from_attributes_and_clauses(
    definitions: list[str], primary: list[str], unique: list[tuple[str, ...]]
) -> None:
    layout = declared_layout(definitions)
    assert [column.name for column in layout.columns if column.pk] == primary
    assert all(not column.nullable for column in layout.columns if column.pk)
    assert list(layout.unique_keys) == unique
    assert [column.id for column in layout.columns] == [1, 2]


def test_columns_may_be_given_ready_made_and_keep_their_ids() -> None:
    layout = declared_layout([Column("a", "int", id=7), "b int", "primary key (a)"])
    assert layout == Layout((Column("a", "int", id=7, pk=True, nullable=False), Column("b", "int", id=2)))


@pytest.mark.parametrize(
    ("definitions", "culprit"),
    [
        (["a"], "'a' ends too early"),
        (["a inte"], "'a' has the unknown type 'inte'"),
        (["a int strange"], "unknown word 'strange'"),
        (["a int,"], "unknown word ','"),
        (["a int not"], "'not' without 'null'"),
        (["a int generated"], "'generated'"),
        (["a int character int"], "'character' without 'set'"),
        (["a int serial"], "'serial'"),
        (["(a) int"], "must begin with a column name"),
        (["a varchar(3"], "ends too early"),
        (["a varchar('x')"], "'x' where a length"),
        (["a varchar(3) default 'x"], "never closed"),
        (["a varchar(3) unsigned"], "varchar cannot be"),
        (["a json zerofill"], "json cannot be"),
        (["a varchar(3) charset koi8"], "charset 'koi8'; known: binary"),
        (["a varchar(3) collate klingon_bin"], "charset 'klingon'"),
        (["a bit(65)"], "largest of bit is 64"),
        (["a bit(0)"], "1 to 64"),
        (["a datetime(7)"], "largest of datetime is 6"),
        (["a decimal(66)"], "largest of decimal is 65"),
        (["a decimal(5,6)"], "at most 5"),
        (["a char(256)"], "largest of char is 255"),
        (["a int(1,2)"], "int takes 1"),
        (["a date(3)"], "date takes 0"),
        (["a double(10)"], "need two"),
        (["a float(54)"], "up to 53"),
        (["a enum"], "elements"),
        (["a set(1)"], "elements"),
        (["a int default soon"], "default 'soon'"),
        (["a int default (uuid())"], "expression"),
        (["a tinyint default 300"], "'a' .tinyint. cannot be 300"),
        (["a bit(2) default b'100'"], "'a' .bit. cannot be 4"),
        (["a enum('x') default 2"], "'a' .enum. cannot be"),
        (["a enum('x') default 0"], "default 0"),
        (["a datetime default 'soon'"], "'a' .datetime. cannot be 'soon'"),
        (["a int", "A int"], "two columns are called 'A'"),
        (["a int", "primary key (b)"], "names 'b', which is not a column"),
        (["a int", "unique (c)"], "names 'c', which is not a column"),
        (["a int", "unique ((lower(a)))"], "over an expression"),
        (["a int", "unique key u"], "names no column"),
        (["a int", "unique (a) strange"], "unknown word 'strange'"),
        (["a int", "constraint c nonsense (a)"], "is not a key"),
        (["a int primary key", "b int", "primary key (b)"], "two primary keys"),
        (["a int", "primary key (a)", "primary key (a)"], "two primary keys"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(definitions: list[str], culprit: str) -> None:
    with pytest.raises(BadEvents, match=culprit):
        declared_layout(definitions)


ELEMENTS = st.lists(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5).map(lambda text: text.rstrip(" ")),
    min_size=1,
    max_size=4,
    unique=True,
)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
INTEGERS = st.sampled_from(["tinyint", "smallint", "mediumint", "int", "bigint"])


def quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


@st.composite
def columns(draw: st.DrawFn) -> tuple[str, Column]:
    """A definition and the column it declares."""
    name = draw(NAMES)
    shape = draw(
        st.one_of(
            st.builds(lambda kind, flen: (f"{kind}({flen})", Column(name, kind, flen)), INTEGERS, st.integers(1, 255)),
            st.builds(lambda kind: (f"{kind} UNSIGNED", Column(name, kind, unsigned=True)), INTEGERS),
            st.builds(lambda fsp: (f"datetime({fsp})", Column(name, "datetime", decimals=fsp)), st.integers(0, 6)),
            st.builds(lambda flen: (f"VarBinary({flen})", Column(name, "varchar", flen, binary=True)), st.integers(0)),
            st.builds(
                lambda kind, elems: (
                    f"{kind}({' , '.join(map(quoted, elems))})",
                    Column(name, kind, elems=tuple(elems)),
                ),
                st.sampled_from(["enum", "set"]),
                ELEMENTS,
            ),
        )
    )
    text, column = shape
    for attribute, changes in (
        ("not null", {"nullable": False}),
        ("comment " + quoted(draw(NAMES)), {}),
        ("default null", {}),
        ("as (a)", {"virtual": True}),
    ):
        if draw(st.booleans()):
            text, column = f"{text} {attribute}", replace(column, **changes)  # type: ignore[arg-type]
    escaped = name.replace("`", "``")
    return f"`{escaped}` {text}", column


@given(columns())
def test_a_column_written_as_sql_is_read_back(pair: tuple[str, Column]) -> None:
    definition, column = pair
    assert declared_column(definition) == column


@given(st.text())
def test_any_text_is_a_layout_or_refused(text: str) -> None:
    try:
        layout = declared_layout([text])
    except BadEvents:
        return
    assert schema_file_text("s", "t", 1, layout)


@given(st.lists(st.sampled_from(TRIPLES).map(lambda triple: triple[0]) | st.sampled_from(["default", "(", "'", "3"])))
def test_any_words_are_a_layout_or_refused(words: list[str]) -> None:
    try:
        declared_layout(["c " + " ".join(words)])
    except BadEvents:
        return
