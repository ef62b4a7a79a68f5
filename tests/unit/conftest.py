"""A changefeed on a store in memory, for the tests that open one again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tidegate.driver.changefeed import Changefeed
from tidegate.errors import TidegateError
from tidegate.testing import FakeClock, MemoryStore, open_changefeed


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def opened(store: MemoryStore, tmp_path: Path) -> Iterator[Callable[..., Changefeed]]:
    """Opens changefeeds on the store, each as after a kill of the one before; all are closed in the end."""
    made: list[Changefeed] = []

    def make(**settings: Any) -> Changefeed:
        if made:
            made[-1].life.fail(TidegateError("killed"))
            made[-1].close()
        made.append(open_changefeed(store, tmp_path / "spool", FakeClock(), **settings))
        return made[-1]

    yield make
    for changefeed in made:
        changefeed.life.fail(TidegateError("the test is over"))
        changefeed.close()
