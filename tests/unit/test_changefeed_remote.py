"""A changefeed on object stores: landing, a kill in between, a restart, and what readers find."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tidegate.driver.changefeed import Changefeed
from tidegate.errors import TidegateError
from tidegate.format.layout import METADATA, parse_metadata
from tidegate.storage.access import REMOTE
from tidegate.storage.store import Store
from tidegate.testing import FakeClock, TinySource, feed, landed_lines, open_changefeed

SOURCE = TinySource(tables=3, batches=4, rows=2)


@pytest.fixture(params=REMOTE)
def store(request: pytest.FixtureRequest) -> Store:
    made: Store = request.getfixturevalue(f"{request.param}_server").store()
    return made


def land_due(changefeed: Changefeed) -> None:
    assert isinstance(changefeed.clock, FakeClock)
    changefeed.clock.advance(5.0)
    while changefeed.landing.land_next():
        pass
    changefeed.scribe.write_progress()


def killed(changefeed: Changefeed) -> None:
    changefeed.life.fail(TidegateError("killed"))
    changefeed.close()


def test_a_changefeed_lands_on_an_object_store_and_goes_on_after_a_kill(
    store: Store, opened: Callable[..., Changefeed]
) -> None:
    first = opened(stall_s=20.0)
    for n in (0, 1):
        feed(first, n, SOURCE.batch(n), str(n))
    land_due(first)
    feed(first, 2, SOURCE.batch(2), "2")  # accepted, and lost with the spool
    landed = parse_metadata((store.get(METADATA) or b"").decode())
    assert landed == SOURCE.resolved_ts(1)
    second = opened(stall_s=20.0)
    for n in range(SOURCE.batches):  # the source replays; what is durable is dropped
        feed(second, n, SOURCE.batch(n), str(n))
    land_due(second)
    assert {table: [line.values for line in lines] for table, lines in landed_lines(store).items()} == SOURCE.lines()
    assert parse_metadata((store.get(METADATA) or b"").decode()) == SOURCE.resolved_ts(SOURCE.batches - 1)


def test_a_second_writer_fences_the_first_off(store: Store, tmp_path: Path) -> None:
    first = open_changefeed(store, tmp_path / "one", FakeClock(), stall_s=20.0)
    second = open_changefeed(store, tmp_path / "two", FakeClock(), stall_s=20.0)
    try:
        feed(first, 0, SOURCE.batch(0), "0")
        with pytest.raises(TidegateError):
            land_due(first)
        feed(second, 0, SOURCE.batch(0), "0")
        land_due(second)
        assert all(len(lines) == SOURCE.rows for lines in landed_lines(store).values())
    finally:
        killed(first)
        killed(second)
