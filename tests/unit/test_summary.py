"""The end of a run: what was left out is counted, rules that matched nothing are named, the next command is whole."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tidegate.arguments import make_parser
from tidegate.cli import _repeated
from tidegate.driver.changefeed import Changefeed
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
from tidegate.format.rules.unused import unused
from tidegate.testing import TinySource, feed
from tidegate.tools.summary import Summary, summary

SOURCE = TinySource(tables=3, batches=1, rows=2)


def ended(changefeed: Changefeed) -> Summary:
    feed(changefeed, 0, SOURCE.batch(0), "0")
    return summary(changefeed.status(), changefeed, 1.0)


def test_rows_that_the_filter_leaves_out_are_counted(opened: Callable[..., Changefeed]) -> None:
    report = ended(opened(rules=Rules(TableFilter(("shop.*", "!shop.t2")))))
    assert report.figures["filtered_rows"] == 2
    assert "2 rows left out by the filter" in report.text("tidegate", "")
    assert report.figures["notes"] == []


@pytest.mark.parametrize(
    ("rules", "note"),
    [
        (Rules(TableFilter(("shpo.*",))), "filter.rules 'shpo.*'"),
        (Rules(TableFilter(("shop.*", "!shop.t9"))), "filter.rules '!shop.t9'"),
        (
            Rules(selectors=ColumnSelectors((ColumnSelector(("shop.x",), ("id",)),))),
            "column-selectors entry 1 (shop.x)",
        ),
        (Rules(routes=Routes((Route(("shop.t1",), "a"), Route(("b.*",), "c")))), "dispatchers entry 2 (b.*)"),
    ],
)
def test_a_rule_that_matched_no_table_is_named(opened: Callable[..., Changefeed], rules: Rules, note: str) -> None:
    report = ended(opened(rules=rules))
    assert report.figures["notes"] == [f"no table that was read matches {note}"]
    assert f"note        no table that was read matches {note}" in report.text("tidegate", "")


def test_a_rule_is_used_if_it_matches_a_table_that_is_left_out() -> None:
    rules = Rules(
        TableFilter(("shop.*", "!shop.log")), EventFilters((EventFilter(("shop.log",), ("delete",)),)), frozenset()
    )
    assert unused(rules, [("shop", "orders"), ("shop", "log")]) == []
    assert len(unused(rules, [("shop", "orders")])) == 2


def test_nothing_is_said_about_rules_if_nothing_was_read(opened: Callable[..., Changefeed]) -> None:
    changefeed = opened(rules=Rules(TableFilter(("shpo.*",))))
    assert summary(changefeed.status(), changefeed, 1.0).figures["notes"] == []


def test_the_next_commands_repeat_all_that_the_run_was_given(opened: Callable[..., Changefeed]) -> None:
    given = ["run", "feed me.toml", "--source", "workload://sysbench?tables=3", "--sink", "file:///data/a b?x=1"]
    given += ["--spool-dir", "/data/spool", "--option", "terminator=\n", "--option", "file-size=1MiB"]
    given += ["--changefeed-id", "orders"]
    verbs: dict[str, Any] = dict.fromkeys(("run", "check", "verify", "encode", "bench"), lambda arguments: 0)
    arguments = make_parser(verbs, given).parse_args(given)
    command = next(
        line for line in ended(opened()).text("tidegate", _repeated(arguments)).splitlines() if " run " in line
    )
    command = command.strip().removesuffix("(continues after this run)")
    said = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {command}"], capture_output=True, text=True, check=True
    ).stdout
    assert sorted(said.split("\0")[1:-1]) == sorted(given)
