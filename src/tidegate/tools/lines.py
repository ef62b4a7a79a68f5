"""One line of `tidegate check`: what was looked at, what came of it, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidegate.driver.entries import DamagedJournal, NewerFormat
from tidegate.driver.inspection import UnreadableMetadata
from tidegate.driver.startup import REACH
from tidegate.errors import StoreUnavailable, TidegateError

OK, WARNING, PROBLEM = "ok", "warning", "problem"


@dataclass(frozen=True)
class Line:
    """One thing that was looked at; `remedy` says what to do unless it is ok."""

    name: str
    verdict: str
    sentence: str
    remedy: str = ""


def attempt(name: str, remedy: str, step: Callable[[], Line]) -> Line:
    """What the step says; an error becomes a line."""
    try:
        return step()
    except StoreUnavailable as exc:
        return Line(name, PROBLEM, f"the sink does not answer: {exc}", REACH)
    except (NewerFormat, DamagedJournal, UnreadableMetadata) as exc:
        return Line(name, PROBLEM, str(exc).removesuffix(f"; {exc.remedy}"), exc.remedy)
    except TidegateError as exc:
        return Line(name, PROBLEM, str(exc), remedy)
    except Exception as exc:  # of a library under the store: still a line, not a traceback
        return Line(name, PROBLEM, f"{type(exc).__name__}: {exc}", remedy)
