"""Preflight: whether a changefeed can start on this sink with these options, said before it does.

Promises: a changefeed that runs on the sink is not disturbed; all that is written is under `_tidegate/check/` and
is removed again; requests are bounded, whatever the prefix holds; an error of the store becomes a line; no line shows
a secret.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from tidegate.clock import Clock
from tidegate.config.settings import Settings, shape, show_size
from tidegate.driver.inspection import (
    EMPTY,
    OURS,
    SET_BACK,
    STRANGER,
    Inspection,
    ahead_of_clock,
    inspect,
    sample,
)
from tidegate.driver.recovery import read_journal
from tidegate.driver.startup import REACH
from tidegate.errors import StoreUnavailable
from tidegate.events import shown_time
from tidegate.executor.directory import RESERVE_BYTES, is_in_use, memory_tier_bytes, no_ram
from tidegate.format.layout import METADATA
from tidegate.storage.store import Store
from tidegate.tools.lines import OK, PROBLEM, WARNING, Line, attempt
from tidegate.tools.store_probe import StoreProbe
from tidegate.wording import human_bytes, redacted

__all__ = ["OK", "PROBLEM", "WARNING", "Line", "preflight"]

_RECENT_S = 30.0  # a changefeed at work writes every few seconds
_LOOKS = 3  # at a journal that changes while it is read


def preflight(
    settings: Settings, store: Store, clock: Clock, check_source: Callable[[], None] | None = None
) -> Iterator[Line]:
    """Everything that can be known before a start, in the order of what depends on what."""
    if check_source is not None:
        yield attempt("source", "correct it, or name another source", lambda: _source(check_source))
    for line in _lines(settings, store, clock):
        yield replace(line, sentence=settings.access.hide(line.sentence))


def _source(check: Callable[[], None]) -> Line:
    check()
    return Line("source", OK, "it can be opened, and its files are of the events schema if it has any")


def _lines(settings: Settings, store: Store, clock: Clock) -> Iterator[Line]:
    if settings.scheme == "noop":
        yield Line("sink", OK, "noop:// stores nothing, so there is nothing to look at")
    else:
        yield from _sink_lines(settings, store, clock)
    yield from _spool_lines(settings)


# -- the sink --------------------------------------------------------------------------------------------------------


@dataclass
class _Seen:
    """What was learned about the sink on the way."""

    sink: Inspection = field(default_factory=lambda: Inspection(EMPTY))
    now: float | None = None  # by the store's clock


def _sink_lines(settings: Settings, store: Store, clock: Clock) -> Iterator[Line]:
    seen = _Seen()
    in_use = is_in_use(settings.spool_dir, settings.changefeed_id)
    answers = attempt("sink", "allow to list the objects of the prefix", lambda: _look(settings, store, seen))
    yield answers
    if answers.verdict == PROBLEM and answers.remedy == REACH:
        return
    probe = StoreProbe(settings, store, clock, may_prepare=not in_use)
    yield from probe.lines()
    seen.now = probe.now
    if answers.verdict == OK:
        yield attempt("prefix", "make sure that its objects may be read", lambda: _prefix(seen.sink, clock))
        if seen.sink.owner == OURS:
            yield attempt("journal", "make sure that its objects may be read", lambda: _journal(settings, store))
        yield from _option_lines(settings, seen.sink)
        yield attempt("writers", "make sure that its objects may be read", lambda: _writers(store, seen, in_use))


def _look(settings: Settings, store: Store, seen: _Seen) -> Line:
    seen.sink = inspect(store)
    if seen.sink.owner == OURS:
        seen.sink = replace(seen.sink, sample=tuple(sample(store)))
    return Line("sink", OK, f"{redacted(settings.sink_uri)} answers and can be listed")


def _prefix(sink: Inspection, clock: Clock) -> Line:
    if sink.owner == EMPTY:
        return Line("prefix", OK, "the prefix is empty")
    if sink.owner == STRANGER:
        sentence = f"holds {sink.stranger} and nothing of TiCDC's layout, so a start would be refused"
        return Line("prefix", PROBLEM, sentence, "give an empty prefix")
    written_ts = sink.written_ts
    if sentence := ahead_of_clock(sink, clock.wall()):
        return Line("prefix", PROBLEM, sentence, SET_BACK)
    if sink.stranger:
        sentence = f"holds {sink.stranger}, which is not of TiCDC's layout; it is left alone"
        return Line("prefix", WARNING, sentence, "move it away if readers of the prefix stumble over it")
    return _ours(sink.journal_ts, written_ts, sink.is_metadata_broken) if sink.head is not None else _ticdc(written_ts)


def _journal(settings: Settings, store: Store) -> Line:
    """All of it, as a start reads it: a snapshot and 256 entries at most."""
    for looks in count(1):
        try:
            journal, found = read_journal(store, settings.paths)
            break
        except StoreUnavailable:  # a changefeed at work has replaced entries meanwhile
            if looks == _LOOKS:
                raise
    tables = sum(table.num_rows for table in found.tables)
    sentence = f"it can be read: {journal.number - journal.snapshot_number} entries after a snapshot"
    return Line("journal", OK, f"{sentence}, {tables:,} tables and files on record")


def _ticdc(written_ts: int) -> Line:
    if written_ts:
        return Line(
            "prefix", OK, f"written by TiCDC; a start takes it over from checkpoint-ts {shown_time(written_ts)}"
        )
    sentence = "holds files of TiCDC but no checkpoint; a start takes it over and reads the source from its beginning"
    return Line("prefix", WARNING, sentence, "give an empty prefix if that is not what you want")


def _ours(journal_ts: int, written_ts: int, is_metadata_broken: bool) -> Line:
    if written_ts > journal_ts:
        sentence = (
            f"another writer was here after Tidegate; a start takes over from checkpoint-ts {shown_time(written_ts)}"
        )
        return Line("prefix", WARNING, sentence, "make sure that the other writer is stopped")
    if is_metadata_broken:
        sentence = (
            f"`{METADATA}` cannot be read, so readers see no checkpoint; the journal knows {shown_time(journal_ts)}"
        )
        return Line("prefix", WARNING, sentence, "start the changefeed: it writes the file anew")
    return Line("prefix", OK, f"written by Tidegate up to checkpoint-ts {shown_time(journal_ts)}")


def _writers(store: Store, seen: _Seen, in_use: bool) -> Line:
    if in_use:
        sentence = "a changefeed of this id runs on this machine; another start is refused as long as it does"
        return Line("writers", WARNING, sentence, "stop it first, if you want to start one here")
    path = seen.sink.journal_path or METADATA
    has_either = seen.sink.head is not None or seen.sink.metadata is not None
    written = store.modified(path) if has_either else None
    age = seen.now - written if seen.now is not None and written is not None else _RECENT_S
    if age >= _RECENT_S:
        return Line("writers", OK, "no other writer is at work here")
    if seen.sink.head is not None:
        sentence = (
            f"the journal was written {max(age, 0):.0f} s ago: a changefeed seems to run elsewhere; a start ends it"
        )
        return Line("writers", WARNING, sentence, "stop the other one first")
    sentence = (
        f"`metadata` was written {max(age, 0):.0f} s ago: TiCDC seems to be at work here, and nothing fences it off"
    )
    return Line("writers", PROBLEM, sentence, f"stop it, wait {_RECENT_S:.0f} s and check again")


# -- layout options ----------------------------------------------------------------------------------------------------


def _option_lines(settings: Settings, sink: Inspection) -> Iterator[Line]:
    changed = sink.changes(shape(settings), settings.paths)
    for key, now, before in changed:
        some = "" if sink.is_whole else ", as far as its first files show"
        sentence = f"{key} is {now}, but the prefix is written with {before}{some}"
        verdict = PROBLEM if sink.is_whole else WARNING
        yield Line("options", verdict, sentence, f"set {key} to {before}, or give another prefix")
    if not changed:
        yield Line("options", OK, "the options suit what is on the prefix")


# -- the spool -------------------------------------------------------------------------------------------------------


def _spool_lines(settings: Settings) -> Iterator[Line]:
    place = Path(settings.spool_dir)
    while not place.exists() and place != place.parent:
        place = place.parent
    another = "give another directory with --spool-dir"
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        yield Line("spool", PROBLEM, f"{settings.spool_dir} cannot be written: {place} is closed to this user", another)
        return
    try:
        if str(place) == os.path.normpath(settings.spool_dir):
            with tempfile.TemporaryFile(dir=place, prefix=".tidegate-check-") as file:
                file.write(b"x")
        free = shutil.disk_usage(place).free
    except OSError as exc:
        yield Line("spool", PROBLEM, f"{settings.spool_dir} cannot be written: {exc.strerror}", another)
        return
    yield Line("spool", OK, f"{settings.spool_dir} can be written")
    yield _ram(settings) if settings.spool_type == "memory" else _space(settings, free)


def _space(settings: Settings, free: int) -> Line:
    size, free_shown = show_size(settings.spool_max_bytes), human_bytes(free)
    if free <= RESERVE_BYTES:
        sentence = (
            f"{free_shown} free under {settings.spool_dir}: at {human_bytes(RESERVE_BYTES)} the source is held back"
        )
        return Line("space", PROBLEM, sentence, "free some space, or give another directory with --spool-dir")
    if free < settings.spool_max_bytes + RESERVE_BYTES:
        sentence = f"{free_shown} free under {settings.spool_dir}, less than spool.max-bytes {size} and a reserve"
        remedy = f"set spool.max-bytes to {(free - RESERVE_BYTES) >> 20 or 1}MiB at most, or give another directory"
        return Line("space", WARNING, sentence, remedy)
    return Line("space", OK, f"{free_shown} free under {settings.spool_dir}, enough for spool.max-bytes {size}")


def _ram(settings: Settings) -> Line:
    size, limit = settings.spool_max_bytes, memory_tier_bytes("memory", settings.spool_max_bytes)
    if not limit:
        sentence, _, remedy = no_ram().rpartition("; ")
        return Line("space", PROBLEM, sentence, remedy)
    if limit < size:
        sentence = (
            f"the spool has {human_bytes(limit)} of RAM, half of what is free, not spool.max-bytes {show_size(size)}"
        )
        return Line("space", WARNING, sentence, f"set spool.max-bytes to {limit >> 20 or 1}MiB, or use spool.type=disk")
    return Line("space", OK, f"{human_bytes(limit)} of RAM for the spool")
