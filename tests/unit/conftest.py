"""A changefeed on a store in memory, for the tests that open one again and again; and what a run displays."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tidegate.driver.changefeed import Changefeed
from tidegate.errors import TidegateError
from tidegate.observe.status import Status
from tidegate.testing import FakeClock, MemoryStore, open_changefeed
from tidegate.tools.display import Display


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


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def shown() -> Callable[..., str]:
    """What `tidegate run` writes for a status, or for several that are ten seconds apart, without control codes."""

    def show(*statuses: Status, is_terminal: bool = True, width: int = 80) -> str:
        out = Terminal() if is_terminal else io.StringIO()
        display = Display(out, clock := FakeClock(), width)
        for status in statuses:
            clock.advance(10.0)
            display.show(status)
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue())

    return show
