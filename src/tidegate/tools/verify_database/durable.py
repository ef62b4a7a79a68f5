"""How far the changefeed of a sink has come, by its journal, and the wait until it has passed a place of the log."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass

from tidegate.driver.inspection import inspect
from tidegate.errors import VerifyError
from tidegate.storage.store import Store
from tidegate.tools.verify_database.moment import Durable, Position, durable_of

Progress = Callable[[str], None]


def durable_now(store: Store) -> Durable:
    """What the newest entry of the journal says."""
    head = inspect(store).head
    if head is None:
        raise VerifyError("the sink has no journal, so nothing says how far a changefeed has come")
    if head.get("position") is None:
        raise VerifyError("the changefeed of this sink has not landed anything yet; start it, and verify later")
    try:
        return durable_of(json.loads(head["position"]))
    except ValueError as exc:
        raise VerifyError(f"the journal of this sink has a position that is no JSON: {exc}") from exc


@dataclass(frozen=True)
class Patience:
    """`timeout_s` is how long a changefeed may take; one that shows nothing new for `still_s` is taken for stopped."""

    timeout_s: float = 600.0
    still_s: float = 20.0
    look_s: float = 0.5
    say_s: float = 5.0


def await_durable(store: Store, place: Position, patience: Patience, progress: Progress) -> Durable:
    """The first place at or behind `place` up to which all is durable.

    Of a changefeed that does not run it is where that has stopped, before `place`.
    """
    began = moved = said = time.monotonic()
    last: Durable | None = None
    while True:
        found, now = durable_now(store), time.monotonic()
        if found.position.order >= place.order and not found.waits_for:
            return found
        if found != last:
            last, moved = found, now
        if now - moved >= patience.still_s:
            return _stopped(found)
        if now - began >= patience.timeout_s:
            raise VerifyError(_too_slow(found, place, now - began))
        if now - said >= patience.say_s:
            said = now
            progress(f"waiting until the changefeed has passed {place}; it is at {found.position}{_but(found)}")
        time.sleep(patience.look_s)


def _but(found: Durable) -> str:
    return f", and {found.waits_for}" if found.waits_for else ""


def _stopped(found: Durable) -> Durable:
    if found.waits_for:
        raise VerifyError(
            f"the changefeed does not go on at {found.position}, and {found.waits_for}; start it, and verify later"
        )
    return found


def _too_slow(found: Durable, place: Position, waited_s: float) -> str:
    return (
        f"the changefeed has not passed {place} within {waited_s:.0f} s: it is at {found.position}{_but(found)}; "
        "wait longer with --timeout"
    )
