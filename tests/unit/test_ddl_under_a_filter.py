"""A filter on the path that runs: what it leaves out of a DDL neither begins, ends, moves nor waits.

A source may build DDLs as if all tables were kept, because it does not know the filter. What the rules then leave must
be what the builders make when they are told which tables are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.driver.changefeed import Changefeed
from tidegate.events import DDL
from tidegate.format.ddl import scope as ddl_scope
from tidegate.format.ddl.events import NORMAL, AddedTable, DdlEvent, Scope
from tidegate.format.ddl.filter import DdlRules
from tidegate.format.ddl.scope import RenameIntoFilter, Table
from tidegate.format.rules.rules import Rules, TableFilter
from tidegate.testing import (
    SHAPE,
    START_TS,
    FakeClock,
    MemoryStore,
    change,
    feed,
    landed_lines,
    layout_row,
    resolved_row,
)

Open = Callable[..., Changefeed]
RULES = Rules(filter=TableFilter(("*.k*",)))  # keeps what begins with k


def table(name: str, number: int, schema_id: int = 10, partitions: tuple[int, ...] = ()) -> Table:
    return Table(schema_id, f"s{schema_id}", name, number, partitions=partitions)


def told(table: Table) -> Table:
    """The table as a source gives it that knows the filter."""
    return replace(table, kept=RULES.filter.matches(*table.names))


def kept(event: DdlEvent | None) -> DdlEvent | None:
    return DdlRules(RULES).kept(event) if event is not None else None


# -- the law ---------------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["k1", "k2", "x1", "x2"])
TABLES = st.builds(
    lambda name, number, schema_id, parts: table(name, number, schema_id, tuple(number * 10 + n for n in range(parts))),
    NAMES,
    st.integers(1, 9),
    st.sampled_from([10, 20]),
    st.sampled_from([0, 0, 2]),
)
SEVERAL = st.lists(TABLES, min_size=1, max_size=4, unique_by=lambda table: table.id)


@given(SEVERAL)
def test_create_tables_adds_only_what_the_filter_keeps(tables: list[Table]) -> None:
    def build(how: Callable[[Table], Table]) -> DdlEvent | None:
        return ddl_scope.create_tables([(how(each), f"CREATE TABLE `{each.name}` (`a` INT)") for each in tables])

    assert kept(build(lambda each: each)) == build(told)


@given(TABLES, NAMES, st.sampled_from([10, 20]))
def test_a_rename_out_of_the_filter_ends_the_table(before: Table, name: str, schema_id: int) -> None:
    after = replace(before, name=name, schema_id=schema_id, schema=f"s{schema_id}")
    if told(after).kept and not told(before).kept:
        with pytest.raises(RenameIntoFilter):
            kept(ddl_scope.rename_table(before, after))
    else:
        assert kept(ddl_scope.rename_table(before, after)) == ddl_scope.rename_table(told(before), told(after))


@given(SEVERAL, st.lists(st.tuples(NAMES, st.sampled_from([10, 20])), min_size=4, max_size=4))
def test_rename_tables_judges_each_of_them(tables: list[Table], names: list[tuple[str, int]]) -> None:
    pairs = [
        (each, replace(each, name=name, schema_id=schema_id, schema=f"s{schema_id}"))
        for each, (name, schema_id) in zip(tables, names, strict=False)
    ]
    pairs = [(a, b) for a, b in pairs if told(a).kept or not told(b).kept]
    if not pairs:
        return
    found = kept(ddl_scope.rename_tables(pairs))
    wanted = ddl_scope.rename_tables([(told(a), told(b)) for a, b in pairs])
    if found is not None and wanted is not None:  # an event does not say the database of each of its tables
        wanted = replace(wanted, schema_id=found.schema_id)
    assert found == wanted


@given(NAMES, NAMES, st.sampled_from([10, 20]))
def test_an_exchange_with_a_table_that_the_filter_leaves_out_replaces_the_id(
    name: str, other: str, schema: int
) -> None:
    before, normal = table(name, 50, 10, (51, 52)), table(other, 7, schema)
    after = replace(before, partitions=(51, 7))
    query = "ALTER TABLE `p` EXCHANGE PARTITION `q` WITH TABLE `n`"
    found = kept(ddl_scope.exchange_partition(before, after, normal, query))
    assert found == ddl_scope.exchange_partition(told(before), told(after), told(normal), query)


@given(SEVERAL)
def test_what_is_kept_stays_as_it_is_when_the_source_knows_the_filter_too(tables: list[Table]) -> None:
    event = ddl_scope.create_tables([(told(each), f"CREATE TABLE `{each.name}` (`a` INT)") for each in tables])
    assert kept(event) == event
    for each in tables:
        renamed = ddl_scope.rename_table(told(each), told(replace(each, name="x9")))
        assert kept(renamed) == renamed


# -- the path that runs ----------------------------------------------------------------------------------------------


def row(ts: int, number: int, name: str, version: int = 0) -> dict[str, Any]:
    return change(
        number, START_TS + ts, ts, table_name=name, schema_name="s10", schema_id=10, table_version=START_TS + version
    )


def ddl_row(ts: int, event: DdlEvent | None, table_id: int = 0) -> dict[str, Any]:
    assert event is not None
    return {"kind": DDL, "commit_ts": START_TS + ts, "seq": 0, "table_id": table_id, "ddl": event.to_json()}


def land(changefeed: Changefeed) -> None:
    assert isinstance(changefeed.clock, FakeClock)
    changefeed.clock.advance(5.0)
    while changefeed.landing.land_next():
        pass


def test_a_table_that_leaves_the_filter_lands_up_to_its_rename_and_ends(opened: Open, store: MemoryStore) -> None:
    changefeed = opened(rules=RULES)
    before = replace(table("k1", 1), layout=SHAPE)
    rename = ddl_scope.rename_table(before, replace(before, name="x1", schema_id=20, schema="s20"))
    feed(changefeed, 0, [layout_row(), row(1, 1, "k1"), ddl_row(5, rename), resolved_row(START_TS + 2)], "0")
    (block,) = changefeed.ledger.blocking.blocks.values()
    assert block.event.dropped == Scope(NORMAL, (1,))
    assert block.event.updated_schemas == ()
    feed(changefeed, 1, [row(6, 1, "x1", 5), resolved_row(START_TS + 9)], "1")
    land(changefeed)
    assert changefeed.ledger.idle
    assert {name: len(lines) for name, lines in landed_lines(store).items()} == {"s10.k1": 1}
    assert [path for path in store.objects if path.startswith(f"s20/x1/meta/schema_{START_TS + 5}_")]


def test_a_partial_create_makes_dispatchers_and_files_of_what_is_kept_only(opened: Open, store: MemoryStore) -> None:
    changefeed = opened(rules=RULES)
    tables = [replace(table(name, number), layout=SHAPE) for number, name in enumerate(("x1", "k1", "x2"), 1)]
    create = ddl_scope.create_tables([(each, f"CREATE TABLE `{each.name}` (`id` INT)") for each in tables])
    feed(changefeed, 0, [layout_row(), ddl_row(5, create), resolved_row(START_TS + 2)], "0")
    (block,) = changefeed.ledger.blocking.blocks.values()
    assert block.event.added == (AddedTable(10, 2, splitable=True),)
    dispatchers = changefeed.ledger.queues.dispatchers
    assert sorted(dispatchers.table_id[: dispatchers.size].tolist()) == [0, 2]
    feed(changefeed, 1, [row(6, 2, "k1", 5), row(7, 3, "x2", 5), resolved_row(START_TS + 9)], "1")
    land(changefeed)
    land(changefeed)
    assert {name: len(lines) for name, lines in landed_lines(store).items()} == {"s10.k1": 1}
    assert not [path for path in store.objects if path.startswith(("s10/x1/", "s10/x2/"))]
