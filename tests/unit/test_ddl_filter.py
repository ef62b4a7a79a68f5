"""What a changefeed's rules leave of a DDL: the filter cuts tables away, event filters leave DDLs unwritten."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidegate.format.ddl import events as ddl
from tidegate.format.ddl import scope as ddl_scope
from tidegate.format.ddl.events import ACTIONS, ALTERS, DdlEvent, TableAfter
from tidegate.format.ddl.filter import DdlRules
from tidegate.format.ddl.scope import RenameIntoFilter, Table
from tidegate.format.rules.rules import EventFilter, EventFilters, Rules, TableFilter

KEEPS_ALL = Rules()


def kept_ddl(event: DdlEvent, rules: Rules) -> DdlEvent | None:
    return DdlRules(rules).kept(event)


def keeping(*rules: str) -> Rules:
    return Rules(filter=TableFilter(rules))


def ignoring(*filters: EventFilter) -> Rules:
    return Rules(event_filters=EventFilters(filters))


def table(name: str, number: int = 1) -> Table:
    return Table(10, "shop", name, number)


def built(event: DdlEvent | None) -> DdlEvent:
    assert event is not None
    return event


def alter(name: str = "t", kind: str = "add column") -> DdlEvent:
    return built(ddl_scope.alter_table(ALTERS[kind], table(name), f"ALTER TABLE `{name}` ADD COLUMN `c` INT"))


def names(event: DdlEvent | None) -> list[str]:
    return [] if event is None else [after.table for after in event.tables]


def test_without_rules_a_ddl_stays_as_it_is() -> None:
    assert kept_ddl(alter(), KEEPS_ALL) == alter()


def test_a_ddl_of_tables_that_the_filter_leaves_out_is_nothing() -> None:
    rules = keeping("shop.*", "!shop.t")
    assert kept_ddl(alter("t"), rules) is None
    assert kept_ddl(alter("u"), rules) == alter("u")


def test_a_ddl_without_tables_is_not_the_filters_business() -> None:
    event = DdlEvent(ALTERS["ttl"], "ALTER TABLE", 10)
    assert kept_ddl(event, keeping("other.*")) == event


def test_a_database_is_kept_if_any_of_its_tables_may_be() -> None:
    event = ddl_scope.create_database(10, "shop", "CREATE DATABASE `shop`")
    assert kept_ddl(event, keeping("shop.t")) == event
    assert kept_ddl(event, keeping("other.*")) is None


def test_of_several_tables_only_the_pieces_of_kept_ones_are_left() -> None:
    event = built(ddl_scope.create_tables([(table(f"t{n}", n), f"CREATE TABLE `t{n}` (`a` INT)") for n in (1, 2)]))
    left = kept_ddl(event, keeping("*.*", "!shop.t1"))
    assert names(left) == ["t2"]
    assert built(left).blocked == event.blocked


def test_a_rename_is_judged_by_its_old_name() -> None:
    event = built(ddl_scope.rename_table(table("t"), table("u")))
    assert names(kept_ddl(event, keeping("*.*", "!shop.u"))) == ["u"], "what leaves the filter is still written"
    assert kept_ddl(event, keeping("other.*")) is None
    with pytest.raises(RenameIntoFilter, match=r"shop.t, which the filter leaves out, is renamed to shop.u"):
        kept_ddl(event, keeping("shop.u"))


def test_a_swap_over_a_name_that_the_filter_leaves_out_is_judged_by_first_and_last_names() -> None:
    a, b = table("a", 1), table("b", 2)
    steps = [(a, replace(a, name="tmp")), (b, replace(b, name="a")), (replace(a, name="tmp"), replace(a, name="b"))]
    event = built(ddl_scope.rename_tables(steps))
    assert names(kept_ddl(event, keeping("shop.a", "shop.b"))) == ["tmp", "a", "b"]


@pytest.mark.parametrize(("rules", "kept"), [(["shop.p"], 2), (["shop.n"], 2), (["other.*"], 0)])
def test_an_exchange_keeps_both_tables_if_the_filter_keeps_one(rules: list[str], kept: int) -> None:
    before = replace(table("p", 50), partitions=(51, 52))
    after = replace(before, partitions=(51, 7))
    event = built(ddl_scope.exchange_partition(before, after, table("n", 7), "ALTER TABLE `p` EXCHANGE PARTITION `q`"))
    assert len(names(kept_ddl(event, keeping(*rules)))) == kept


# -- event filters ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "word"),
    [
        (alter(), "add column"),
        (alter(), "alter table"),
        (alter(), "all ddl"),
        (alter(), "all"),
        (alter(kind="add columns"), "add column"),
        (alter(kind="add index"), "create index"),
        (built(ddl_scope.drop_table(table("t"))), "drop table"),
        (built(ddl_scope.truncate_table(table("t"), table("t", 2), "TRUNCATE TABLE `t`")), "truncate table"),
        (ddl_scope.create_database(10, "shop", "CREATE DATABASE `shop`"), "create schema"),
        (ddl_scope.create_database(10, "shop", "CREATE DATABASE `shop`"), "create database"),
        (built(ddl_scope.rename_table(table("t"), table("u"))), "rename table"),
    ],
)
def test_what_an_event_filter_ignores_is_not_written_but_changes_its_dispatchers(event: DdlEvent, word: str) -> None:
    left = built(kept_ddl(event, ignoring(EventFilter(("shop.*",), (word,)))))
    assert left == replace(event, not_sync=True)


@pytest.mark.parametrize(
    "filter_",
    [EventFilter(("shop.u",), ("all ddl",)), EventFilter(("shop.*",), ("drop column", "insert"))],
)
def test_event_filters_of_other_tables_or_events_change_nothing(filter_: EventFilter) -> None:
    assert kept_ddl(alter(), ignoring(filter_)) == alter()


def test_an_event_filter_may_know_a_ddl_by_its_text() -> None:
    rules = ignoring(EventFilter(("*.*",), (), ("^alter table",)))
    assert built(kept_ddl(alter(), rules)).not_sync
    assert not built(kept_ddl(built(ddl_scope.drop_table(table("t"))), rules)).not_sync


def test_of_several_tables_the_ignored_pieces_are_cut_out_of_the_query_too() -> None:
    event = built(ddl_scope.create_tables([(table(f"t{n}", n), f"CREATE TABLE `t{n}` (`a` INT)") for n in (1, 2)]))
    left = built(kept_ddl(event, ignoring(EventFilter(("shop.t1",), ("create table",)))))
    assert (names(left), left.not_sync, "t1" in left.query) == (["t2"], False, False)
    assert left.added == event.added, "dispatchers begin all the same"


@pytest.mark.parametrize("action", sorted(ACTIONS.values()))
def test_every_action_can_be_ignored_as_all_ddl(action: int) -> None:
    event = DdlEvent(action, "q", 10, tables=(TableAfter("shop", "t", 1),))
    left = built(kept_ddl(event, ignoring(EventFilter(("shop.*",), ("all ddl",)))))
    assert left.not_sync or (action in (ddl.CREATE_TABLES, ddl.RENAME_TABLES) and not left.tables)
