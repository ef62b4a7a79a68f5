"""How far the changefeed of a sink has come, by its journal, and the wait until it has passed a place of the log."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidegate.driver.inspection import inspect
from tidegate.errors import VerifyError
from tidegate.sources.mysql.catalogue import TableEntry
from tidegate.sources.mysql.history import History
from tidegate.sources.mysql.place import Place
from tidegate.storage.store import Store
from tidegate.tools.verify_database.moment import Durable, durable_of, shown

Progress = Callable[[str], None]
Waiting = Callable[[int, int], Sequence[TableEntry]]  # the tables above an id that need a snapshot, at most so many


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


def await_durable(store: Store, place: Place, patience: Patience, progress: Progress) -> Durable:
    """The first place at or behind `place` up to which all is durable.

    Of a changefeed that does not run it is where that has stopped, before `place`.
    """
    began = moved = said = time.monotonic()
    last: Durable | None = None
    while True:
        found, now = durable_now(store), time.monotonic()
        if found.position.order >= place.order and not found.waits_for:
            found = _with_snapshot(store, found)
            if not found.waits_for:
                return found
        if found != last:
            last, moved = found, now
        if now - moved >= patience.still_s:
            return _stopped(_with_snapshot(store, found))
        if now - began >= patience.timeout_s:
            raise VerifyError(_too_slow(found, place, now - began))
        if now - said >= patience.say_s:
            said = now
            progress(
                f"waiting until the changefeed has passed {shown(place)}; it is at {shown(found.position)}{_but(found)}"
            )
        time.sleep(patience.look_s)


def _with_snapshot(store: Store, found: Durable) -> Durable:
    """Whether tables still wait for their snapshot, by the catalogue beside the journal."""
    history = History.load(store, found.position)
    if history is None or not is_snapshot_left(found.snap, history.catalogue.waiting):
        return found
    return replace(found, waits_for="its snapshot is not finished")


def is_snapshot_left(snap: Mapping[str, Any], waiting: Waiting) -> bool:
    """`snap` is as offsets have it: `{"done": 41, "begun": {"42": [463...]}}`; a table without a border is done."""
    done, begun = int(snap.get("done", 0)), snap.get("begun", {})
    return any(len(begun.get(str(table.table_id), ())) != 1 for table in waiting(done, len(begun) + 1))


def _but(found: Durable) -> str:
    return f", and {found.waits_for}" if found.waits_for else ""


def _stopped(found: Durable) -> Durable:
    if found.waits_for:
        raise VerifyError(
            f"the changefeed stands still at {shown(found.position)}, and {found.waits_for}; start it, and verify later"
        )
    return found


def _too_slow(found: Durable, place: Place, waited_s: float) -> str:
    at = f"{shown(found.position)}{_but(found)}"
    late = f"the changefeed has not passed {shown(place)} within {waited_s:.0f} s"
    return f"{late}: it is at {at}; wait longer with --timeout"
