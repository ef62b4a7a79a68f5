"""What a changefeed answers beside its metrics: `/status`, and `/tables?by=lag&k=10`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from tidegate.driver.changefeed import Changefeed
from tidegate.errors import BadSetting, StillStarting

_QUESTIONS: dict[str, tuple[str, ...]] = {"/status": (), "/tables": ("by", "k")}
_MOST = 1000  # tables in one answer

STARTING = "the changefeed is starting; ask again in some seconds"


def answer(path: str, query: Mapping[str, str], changefeed: Callable[[], Changefeed | None]) -> Any:
    """A value for JSON; None if nothing is there. A wrong parameter is refused, also while the changefeed starts."""
    if path not in _QUESTIONS:
        return None
    _refuse_unknown(path, query)
    most = _most(query.get("k", "10"))
    found = changefeed()
    if found is None:
        raise StillStarting(STARTING)
    if path == "/status":
        return asdict(found.status())
    return [line._asdict() for line in found.tables(query.get("by", "lag"), most)]


def _refuse_unknown(path: str, query: Mapping[str, str]) -> None:
    for name in sorted(query.keys() - set(_QUESTIONS[path])):
        takes = " and ".join(_QUESTIONS[path]) or "no parameters"
        raise BadSetting(f"{path} does not know {name!r}; it takes {takes}")


def _most(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= _MOST):
        raise BadSetting(f"k={text!r} must be a whole number from 1 to {_MOST}")
    return int(text)
