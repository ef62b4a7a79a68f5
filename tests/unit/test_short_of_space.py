"""Fewer than 512 MiB free under the spool: files become small, and log, status and display say so."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from tidegate.driver.changefeed import Changefeed
from tidegate.testing import TinySource, feed

Open = Callable[..., Changefeed]
SOURCE = TinySource()


def look(changefeed: Changefeed) -> str | None:
    changefeed.intake.room_left.watch()
    return changefeed.status().shortage


def test_a_disk_that_is_nearly_full_is_named_with_the_remedy_until_it_is_not(
    opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    changefeed = opened()
    caplog.set_level(logging.INFO, "tidegate")
    assert look(changefeed) is None
    changefeed.spool.reserve_bytes = 1 << 60
    for _ in range(3):
        said = look(changefeed)
    assert said is not None
    assert f"MiB are free under {changefeed.spool.disk}" in said
    assert "files land early and small" in said
    assert "free some space, or give another directory with spool.dir" in said
    changefeed.spool.reserve_bytes = 0
    assert look(changefeed) is None
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"], "once per change"


def test_the_planner_counts_it_only_while_the_spool_holds_something(opened: Open) -> None:
    changefeed = opened()
    changefeed.spool.reserve_bytes = 1 << 60
    look(changefeed)
    assert not changefeed.ledger.spool.starved
    feed(changefeed, 0, SOURCE.batch(0), "0")
    look(changefeed)
    assert changefeed.ledger.spool.starved


def test_a_running_changefeed_says_it_by_itself(opened: Open) -> None:
    changefeed = opened()
    changefeed.spool.reserve_bytes = 1 << 60
    changefeed.start()
    with changefeed.life.lock:
        changefeed.life.wait_until(lambda: changefeed.observer.view.shortage)
    assert changefeed.status().shortage is not None


@pytest.mark.parametrize("is_terminal", [True, False])
def test_the_display_shows_it(opened: Open, shown: Callable[..., str], is_terminal: bool) -> None:
    changefeed = opened()
    changefeed.spool.reserve_bytes = 1 << 60
    look(changefeed)
    assert "MiB are free under" in shown(changefeed.status(), is_terminal=is_terminal)
