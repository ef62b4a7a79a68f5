from __future__ import annotations

import fnmatch
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import BadSetting
from tidegate.format.rules.matching import ColumnPatterns, TablePatterns
from tidegate.format.rules.rules import (
    ColumnSelector,
    ColumnSelectors,
    EventFilter,
    EventFilters,
    Route,
    Routes,
    Rules,
    TableFilter,
)
from tidegate.format.tables import Column, Layout


def layout(*names: str, pk: tuple[str, ...] = (), unique: tuple[tuple[str, ...], ...] = ()) -> Layout:
    return Layout(tuple(Column(name, "int", pk=name in pk) for name in names), unique)


# Table patterns


@pytest.mark.parametrize(
    ("rule", "taken", "left"),
    [
        ("shop.orders", ["shop.orders", "SHOP.Orders"], ["shop.order", "shop.orders2", "shop2.orders"]),
        ("shop.*", ["shop.a", "shop.a_b"], ["shop2.a"]),
        ("s?op.t", ["shop.t", "stop.t"], ["sop.t", "shoop.t"]),
        ("s.log_[0-9]", ["s.log_7"], ["s.log_a", "s.log_", "s.log_12"]),
        ("s.log_[!0-9]", ["s.log_a"], ["s.log_7"]),
        ("s.[^a]", ["s.a", "s.^"], ["s.b"]),
        (r"s.a\.b", ["s.a.b"], ["s.axb"]),
        (r"s.a\*", ["s.a*"], ["s.ab"]),
        ("`a.b`.`c``d`", ["a.b|c`d"], ["a|b"]),
        ('"x y"."t""1"', ['x y|t"1'], ["x y|t"]),
        ("s./^t[0-9]+$/", ["s.t1", "s.T22"], ["s.t", "s.xt1", "s.t1x"]),
        (r"s./t\d/", ["s.at1b"], ["s.t٣", "s.t"]),
        (r"/a\/b/.*", ["a/b|t"], ["ab|t"]),
        (r"s./^[[:alpha:]\d]+$/", ["s.ab1"], ["s.a_", "s.é"]),
        (r"s./\A\pL+\z/", ["s.ab", "s.é", "s.订"], ["s.a1", "s.", "s.ab\n"]),
        (r"s./^\p{Greek}$/", ["s.λ", "s.Λ"], ["s.l"]),
        ("s./^a(?-i)b/", ["s.ab", "s.Abc"], ["s.b"]),
        ("s./^(?P<x>a|b)$|^(?<y>c)$/", ["s.a", "s.c"], ["s.ac"]),
        (r"s./^\Qa.b\E$/", ["s.a.b"], ["s.axb"]),
        (r"s./^[\x{4e00}-\x{9fff}]$/", ["s.订"], ["s.a"]),
        ("s./^a.b$/", ["s.axb"], ["s.a\nb"]),
        ("s./(?s)^a.b$/", ["s.a\nb"], ["s.ab"]),
        ("s./(?m)^b$/", ["s.a\nb\nc"], ["s.ab"]),
        ("s.a?b", ["s.a\nb", "s.a订b"], ["s.ab"]),
        ("s.[[]", ["s.["], ["s.a"]),
        ("s.[!^a]b", ["s.bb"], ["s.ab", "s.^b"]),
        (r"s.[\]\-]", ["s.]", "s.-"], ["s.^"]),
        ("订单.*", ["订单.t"], ["订.t"]),
        ("  s.t\t", ["s.t"], ["s.u"]),
    ],
)
def test_a_table_pattern_takes_what_tidb_s_takes(rule: str, taken: list[str], left: list[str]) -> None:
    patterns = TablePatterns((rule,))
    split = [tuple(name.split("|" if "|" in name else ".", 1)) for name in (*taken, *left)]
    assert [patterns.matches(*name) for name in split] == [True] * len(taken) + [False] * len(left)


def test_the_end_of_a_regular_expression_is_the_very_end_of_the_name() -> None:
    assert not TablePatterns(("s./^t$/",)).matches("s", "t\n")


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ("shop", "there must be a '.' between schema and table"),
        ("a.b.c", "'.c' is left over behind schema and table"),
        ("a-b.c", "'-b.c' does not fit; quote the name"),
        ("a.", "a pattern is missing"),
        ("/a.b", "a regular expression must end with '/'"),
        ("`a.b", "a quoted name must not be empty and must end with its quote"),
        ("``.b", "a quoted name must not be empty"),
        (r"a.\d", "does not fit"),
        ("a.b\\", "does not fit"),
        ("a.[!]", "does not fit"),
        ("a.[b", "does not fit"),
        ("a.[z-a]", "'[z-a]' has a set of characters that cannot be read"),
        ("a.[\\é]", "has a set of characters that cannot be read"),
        ("a./(/", "'(' is no regular expression of Go's kind: missing ): ("),
        ("a./(?=b)/", "is no regular expression of Go's kind: invalid perl operator: (?="),
        ("a./(?<!b)c/", "is no regular expression of Go's kind: invalid perl operator: (?<!"),
        ("a./(?>b)/", "is no regular expression of Go's kind: invalid perl operator: (?>"),
        (r"a./(b)\1/", r"is no regular expression of Go's kind: invalid escape sequence: \1"),
        (r"a./b\Z/", r"is no regular expression of Go's kind: invalid escape sequence: \Z"),
        ("a./b{1001}/", "is no regular expression of Go's kind: invalid repetition size: {1001}"),
        ("a./\udc80/", "is no regular expression of Go's kind: it is no valid UTF-8"),
        ("/a\\/.b", "a regular expression must end with '/'"),
        ("@rules.txt", "rules are not imported from files"),
    ],
)
def test_a_bad_table_pattern_is_refused_with_the_reason(rule: str, reason: str) -> None:
    with pytest.raises(BadSetting) as caught:
        TablePatterns((rule,))
    assert str(caught.value).startswith(f"has the bad rule {rule!r}: ")
    assert reason in str(caught.value)


def test_a_rule_that_makes_others_try_every_way_to_match_ends() -> None:
    names = ["a" * length + "b" for length in (10, 1_000, 100_000)]
    for rule in ("s./^(a+)+$/", "s./^(a|aa)+$/", "s./(a*)*c/", "s." + "a*" * 30 + "c"):
        patterns = TablePatterns((rule,))
        assert [patterns.matches("s", name) for name in names] == [False, False, False], rule


def test_a_rule_with_many_backslashes_and_no_end_is_refused_at_once() -> None:
    with pytest.raises(BadSetting, match="a regular expression must end with '/'"):
        TablePatterns(("/" + "\\" * 10_001,))


def test_names_are_compared_without_case_unless_told() -> None:
    for rule in ("Shop.*", "`Shop`.*", "/^Shop$/.*", "S[h]op.*"):
        assert TablePatterns((rule,)).matches("SHOP", "t")
        assert not TablePatterns((rule,), case_sensitive=True).matches("SHOP", "t")
        assert TablePatterns((rule,), case_sensitive=True).matches("Shop", "t")


def test_the_last_rule_that_matches_decides() -> None:
    patterns = TablePatterns(("*.*", "!shop.*", "shop.orders", "# a remark", ""))
    assert patterns.matches("a", "b")
    assert not patterns.matches("shop", "log")
    assert patterns.matches("shop", "orders")
    assert not TablePatterns(("!a.b",)).matches("c", "d")
    assert not TablePatterns(()).matches("c", "d")


def test_a_schema_matches_while_some_table_of_it_may() -> None:
    patterns = TablePatterns(("a.*", "!a.t", "b.*", "!b.*", "c.t"))
    assert [patterns.matches_schema(schema) for schema in "abcd"] == [True, False, True, False]


_names = st.text('ab.*?[]!`"/\\ _', min_size=1, max_size=4)


@given(_names, _names)
def test_a_quoted_name_matches_itself_alone(name: str, other: str) -> None:
    quoted = TablePatterns((f"`{name.replace('`', '``')}`.*",), case_sensitive=True)
    assert quoted.matches(name, "t")
    assert quoted.matches(other, "t") == (name == other)


@given(_names, _names)
def test_an_escaped_name_matches_itself_alone(name: str, other: str) -> None:
    escaped = "".join(c if c.isalnum() or c == "_" else "\\" + c for c in name)
    column = ColumnPatterns((escaped.replace("\\ ", r"[ ]"),))
    assert column.matches(name)
    assert column.matches(other) == (name == other)


@given(st.text("ab*?", min_size=1, max_size=6), st.text("ab", min_size=1, max_size=6))
def test_wildcards_mean_what_they_mean_in_a_shell(pattern: str, name: str) -> None:
    assert TablePatterns((f"s.{pattern}",)).matches("s", name) == fnmatch.fnmatchcase(name, pattern)


@given(st.lists(st.sampled_from(["*.*", "!*.*", "a.*", "!a.*", "a.b", "!a.b", "/b/.*", "!*.[!b]"])))
def test_a_list_of_rules_is_the_fold_of_its_rules(rules: list[str]) -> None:
    for name in (("a", "a"), ("a", "b"), ("b", "a"), ("b", "b")):
        taken = False
        for rule in rules:
            taken = not rule.startswith("!") if TablePatterns((rule.lstrip("!"),)).matches(*name) else taken
        assert TablePatterns(tuple(rules)).matches(*name) == taken


# The table filter


@pytest.mark.parametrize(
    "schema",
    [
        *("mysql", "SYS", "INFORMATION_SCHEMA", "performance_schema", "METRICS_SCHEMA", "INSPECTION_SCHEMA"),
        *("tidb_cdc", "lightning_task_info", "workload_schema", "dm_heartbeat"),
    ],
)
def test_system_schemas_are_never_replicated(schema: str) -> None:
    for rules in ((), ("*.*",), (f"{schema}.*",)):
        assert not TableFilter(rules).matches(schema, "t")
        assert not TableFilter(rules).matches_schema(schema)


def test_no_rule_takes_every_table() -> None:
    for rules in ((), ("*.*",)):
        assert TableFilter(rules).matches("test", "t")
        assert TableFilter(rules).takes_all
    assert not TableFilter(("test.*",)).takes_all
    assert TableFilter(("test.*",)).matches_schema("test")
    assert not TableFilter(("test.*",)).matches("test1", "t")


# Column selectors

SELECTORS = ColumnSelectors(
    (
        ColumnSelector(("test.*",), ("a", "b")),
        ColumnSelector(("test1.*",), ("*", "!a")),
        ColumnSelector(("test2.*",), ("co*", "!col2")),
        ColumnSelector(("test3.*",), ("co?1",)),
    )
)
INTEGRATION = ColumnSelectors(
    (
        ColumnSelector(("test.t1",), ("a", "b")),
        ColumnSelector(("test.*",), ("*", "!b")),
        ColumnSelector(("test1.t1",), ("column*", "!column1")),
    )
)


@pytest.mark.parametrize(
    ("selectors", "schema", "table", "columns", "kept"),
    [
        (SELECTORS, "test", "t1", "a b c", "a b"),
        (SELECTORS, "test1", "aaa", "a b c", "b c"),
        (SELECTORS, "test2", "t2", "a col1 col2", "col1"),
        (SELECTORS, "test3", "t3", "a col1 coa1 col11", "col1 coa1"),
        (SELECTORS, "test4", "t4", "a col2 col1", "a col2 col1"),
        (SELECTORS, "TEST", "T1", "A B C", "A B"),
        (INTEGRATION, "test", "t1", "a b c", "a b"),
        (INTEGRATION, "test", "t2", "a b c", "a c"),
        (INTEGRATION, "test", "t3", "a b c", "a c"),
        (INTEGRATION, "test1", "t1", "column0 column1 column2", "column0 column2"),
    ],
)
def test_the_first_selector_that_matches_chooses_the_columns(
    selectors: ColumnSelectors, schema: str, table: str, columns: str, kept: str
) -> None:
    shape = layout(*columns.split())
    chosen = selectors.selected(schema, table, shape)
    assert [column.name for column in shape.shown(chosen)] == kept.split()


def test_a_selection_of_every_column_is_none() -> None:
    assert ColumnSelectors((ColumnSelector(("*.*",), ("*",)),)).selected("s", "t", layout("a", "b")) is None
    assert ColumnSelectors().selected("s", "t", layout("a", "b")) is None


def test_positions_count_stored_columns_only() -> None:
    shape = Layout((Column("a", "int"), Column("v", "int", virtual=True), Column("b", "int")))
    assert ColumnSelectors((ColumnSelector(("*.*",), ("v", "b")),)).selected("s", "t", shape) == (1,)


def test_a_selection_must_keep_the_primary_key_or_another_unique_key() -> None:
    without_a = ColumnSelectors((ColumnSelector(("*.*",), ("*", "!a")),))
    with pytest.raises(BadSetting, match=r"leave out 'a' of the primary key of s\.t and no other unique key stays"):
        without_a.selected("s", "t", layout("a", "b", "c", pk=("a", "b"), unique=(("a", "c"),)))
    assert without_a.selected("s", "t", layout("a", "b", "c", pk=("a",), unique=(("c",),))) == (1, 2)
    assert without_a.selected("s", "t", layout("a", "b", pk=("b",))) == (1,)
    assert without_a.selected("s", "t", layout("a", "b", unique=(("a",),))) == (1,)


def test_a_selection_must_keep_a_column() -> None:
    with pytest.raises(BadSetting, match=r"leave no column of s\.t"):
        ColumnSelectors((ColumnSelector(("*.*",), ("z",)),)).selected("s", "t", layout("a", "b"))


@pytest.mark.parametrize("columns", [("a.b",), ("a b",), ("@f",), ("[",)])
def test_a_bad_column_pattern_is_refused(columns: tuple[str, ...]) -> None:
    with pytest.raises(BadSetting, match="has the bad rule"):
        ColumnSelector(("*.*",), columns)


# Routes

ROUTES = Routes(
    (
        Route(("shop.orders",), "archive", "o"),
        Route(("shop.*", "!shop.log"), "archive"),
        Route(("a.*",), "", "{schema}_{table}"),
        Route(("b.*",), "{schema}_bak", "{table}"),
    )
)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (("shop", "orders"), ("archive", "o")),
        (("shop", "users"), ("archive", "users")),
        (("shop", "log"), ("shop", "log")),
        (("a", "t"), ("a", "a_t")),
        (("B", "T"), ("B_bak", "T")),
        (("c", "t"), ("c", "t")),
        (("shop", ""), ("archive", "")),
        (("b", ""), ("b_bak", "")),
        (("", ""), ("", "")),
    ],
)
def test_the_first_route_that_matches_names_the_target(source: tuple[str, str], target: tuple[str, str]) -> None:
    assert ROUTES.target(*source) == target


def test_routes_of_one_schema_must_agree_on_the_schema_s_own_target() -> None:
    routes = Routes((Route(("s.a",), "x"), Route(("s.b",), "y")))
    with pytest.raises(BadSetting, match="schema 's' is routed to 'x' and to 'y'"):
        routes.target("s", "")
    assert routes.target("s", "b") == ("y", "b")


@pytest.mark.parametrize("text", ["{db}", "{", "}", "a{schema", "{{schema}}", "{Schema}"])
def test_a_target_has_no_other_placeholders(text: str) -> None:
    with pytest.raises(BadSetting, match=r"only \{schema\} and \{table\} may be in braces"):
        Route(("*.*",), target_table=text)


@pytest.mark.parametrize("text", ["a/b", "..", "."])
def test_a_target_does_not_lead_to_another_directory(text: str) -> None:
    with pytest.raises(BadSetting, match="would lead to another directory"):
        Route(("*.*",), target_schema=text)


# Event filters


def test_every_event_filter_that_matches_counts() -> None:
    filters = EventFilters(
        (
            EventFilter(("s.*",), ("delete", "drop table")),
            EventFilter(("s.t",), ("update",), ("^create index",)),
            EventFilter(("d.*",), ("all dml",)),
            EventFilter(("e.*",), ("all ddl",)),
        )
    )
    assert filters.ignored_kinds("s", "x") == {"delete"}
    assert filters.ignored_kinds("S", "T") == {"delete", "update"}
    assert filters.ignored_kinds("d", "x") == {"insert", "update", "delete"}
    assert filters.ignored_kinds("e", "x") == filters.ignored_kinds("f", "x") == frozenset()


def test_an_unknown_event_is_refused_with_the_nearest() -> None:
    with pytest.raises(BadSetting, match=r"cannot ignore the event 'drop tabel'; did you mean 'drop table'\?"):
        EventFilter(("*.*",), ("drop tabel",))


def test_a_bad_expression_for_ddl_text_is_refused() -> None:
    with pytest.raises(BadSetting, match="is no regular expression"):
        EventFilter(("*.*",), (), ("(",))


# All together


def test_the_default_rules_let_everything_through() -> None:
    rules = Rules()
    assert rules.filters_nothing
    assert rules.selects_everything
    assert rules.routes_nothing


@pytest.mark.parametrize(
    "rules",
    [
        Rules(filter=TableFilter(("!a.b",))),
        Rules(event_filters=EventFilters((EventFilter(("*.*",), ("insert",)),))),
        Rules(ignored_start_ts=frozenset((1,))),
    ],
)
def test_any_rule_that_leaves_rows_out_is_told(rules: Rules) -> None:
    assert not rules.filters_nothing
    assert rules.selects_everything
    assert rules.routes_nothing


def test_rules_travel_to_executors_also_after_use() -> None:
    rules = Rules(TableFilter(("/^shop$/.ord*",)), EventFilters(), frozenset((7,)), SELECTORS, ROUTES)
    assert rules.filter.matches("shop", "orders")
    assert rules.routes.target("a", "t") == ("a", "a_t")
    again = pickle.loads(pickle.dumps(rules))
    assert again == rules
    assert again.filter.matches("Shop", "Orders")
    assert again.routes.target("a", "t") == ("a", "a_t")
    assert again.selectors.selected("test", "t", layout("a", "b", "c")) == (0, 1)
    assert not again.selects_everything
    assert not again.routes_nothing
