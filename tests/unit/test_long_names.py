"""A name that the store does not take sets its table aside: the others land, and it goes on when it is routed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tidegate.driver.changefeed import Changefeed
from tidegate.errors import TidegateError
from tidegate.format.rules.rules import Route, Routes, Rules, TableFilter
from tidegate.storage.files import FileStore
from tidegate.testing import START_TS, FakeClock, change, feed, landed_lines, layout_row, open_changefeed, resolved_row

LONG = "x" * 300
ROWS = [layout_row(), change(1, START_TS + 1, 1), change(2, START_TS + 1, 2, table_name=LONG)]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., Changefeed]]:
    made: list[Changefeed] = []

    def make(**settings: Any) -> Changefeed:
        for changefeed in made:
            changefeed.life.fail(TidegateError("killed"))
            changefeed.close()
        store = FileStore(tmp_path / "sink")
        store.prepare()
        made.append(open_changefeed(store, tmp_path / "spool", FakeClock(), **settings))
        return made[-1]

    yield make
    made[-1].life.fail(TidegateError("the test is over"))
    made[-1].close()


def landed(changefeed: Changefeed) -> list[str]:
    """The tables that have landed when all is tried once."""
    feed(changefeed, 0, [*ROWS, resolved_row(START_TS + 1)], "0")
    changefeed.ledger.planner.closing = True
    while changefeed.landing.land_next():
        pass
    changefeed.scribe.write_progress()
    return sorted(landed_lines(changefeed.store))


def test_a_name_of_300_characters_holds_only_its_own_table(opened: Callable[..., Changefeed]) -> None:
    changefeed = opened()
    assert landed(changefeed) == ["shop.t1"]
    [(table, reason)] = changefeed.status().retrying.items()
    assert table == f"shop.{LONG}"
    assert "File name too long" in reason
    assert "route it to another name" in reason
    assert changefeed.status().checkpoint_ts < START_TS + 1


@pytest.mark.parametrize(
    ("rules", "tables"),
    [
        (Rules(TableFilter(("*.*", "!*.x*"))), ["shop.t1"]),
        (Rules(routes=Routes((Route(("*.x*",), "shop", "short"),))), ["shop.short", "shop.t1"]),
    ],
)
def test_the_next_start_goes_on_if_the_table_is_filtered_or_routed(
    opened: Callable[..., Changefeed], rules: Rules, tables: list[str]
) -> None:
    landed(opened())
    changefeed = opened(rules=rules)
    assert landed(changefeed) == tables
    assert changefeed.status().retrying == {}
    assert changefeed.status().checkpoint_ts == START_TS + 1


def test_a_file_system_has_no_object_under_a_name_that_it_does_not_take(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    store.prepare()
    path = f"shop/{LONG}/1/CDC1.csv"
    assert (store.get(path), store.size(path), store.modified(path), store.get_range(path, 0, 1)) == (None,) * 4
    assert list(store.list(f"shop/{LONG}")) == []
    store.delete(path)
