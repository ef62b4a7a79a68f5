"""Preflight: whether a changefeed can start on this sink with these options, said before it does.

Promises: a changefeed that runs on the sink is not disturbed; all that is written is under `_tidegate/check/` and
is removed again; requests are bounded, whatever the prefix holds; an error of the store becomes a line; no line shows
a secret.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from tidegate.clock import Clock
from tidegate.config.settings import Settings, shape, show_size
from tidegate.driver.entries import NewerFormat
from tidegate.driver.inspection import EMPTY, OURS, SET_BACK, STRANGER, Inspection, ahead_of_clock, inspect, sample
from tidegate.driver.startup import NOT_KEPT, REACH, USE_ANOTHER
from tidegate.errors import StoreUnavailable, TidegateError
from tidegate.events import shown_time
from tidegate.executor.crew import BYTES_IN_FLIGHT, one_put_bytes
from tidegate.executor.directory import RESERVE_BYTES, is_in_use, memory_tier_bytes, no_ram
from tidegate.format.layout import (
    METADATA,
    RESERVED_PREFIX,
)
from tidegate.storage.store import Store, WithDirectories, WithLargeFiles
from tidegate.wording import redacted

OK, WARNING, PROBLEM = "ok", "warning", "problem"
_SKEW_WARNING_S, _SKEW_PROBLEM_S = 5.0, 60.0
_RECENT_S = 30.0  # a changefeed at work writes every few seconds

_FOLDER = f"{RESERVED_PREFIX}/check"


@dataclass(frozen=True)
class Line:
    """One thing that was looked at; `remedy` says what to do unless it is ok."""

    name: str
    verdict: str
    sentence: str
    remedy: str = ""


def preflight(
    settings: Settings, store: Store, clock: Clock, check_source: Callable[[], None] | None = None
) -> Iterator[Line]:
    """Everything that can be known before a start, in the order of what depends on what."""
    if check_source is not None:
        yield _attempt("source", "correct it, or name another source", lambda: _source(check_source))
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
    answers = _attempt("sink", "allow to list the objects of the prefix", lambda: _look(settings, store, seen))
    yield answers
    if answers.verdict == PROBLEM and answers.remedy == REACH:
        return
    yield from _Probe(settings, store, clock, seen, may_prepare=not in_use).lines()
    if answers.verdict == OK:
        yield _attempt("prefix", "make sure that its objects may be read", lambda: _prefix(seen.sink, clock))
        yield from _option_lines(settings, seen.sink)
        yield _attempt("writers", "make sure that its objects may be read", lambda: _writers(store, seen, in_use))


def _attempt(name: str, remedy: str, step: Callable[[], Line]) -> Line:
    """What the step says; an error becomes a line."""
    try:
        return step()
    except StoreUnavailable as exc:
        return Line(name, PROBLEM, f"the sink does not answer: {exc}", REACH)
    except NewerFormat as exc:
        return Line(name, PROBLEM, str(exc).removesuffix(f"; {exc.remedy}"), exc.remedy)
    except TidegateError as exc:
        return Line(name, PROBLEM, str(exc), remedy)
    except Exception as exc:  # of a library under the store: still a line, not a traceback
        return Line(name, PROBLEM, f"{type(exc).__name__}: {exc}", remedy)


def _look(settings: Settings, store: Store, seen: _Seen) -> Line:
    seen.sink = inspect(store)
    if seen.sink.owner == OURS:
        seen.sink = replace(seen.sink, sample=tuple(sample(store)))
    return Line("sink", OK, f"{redacted(settings.sink_uri)} answers and can be listed")


class _Probe:
    """Writes, reads and removes one small object, and says what came of it."""

    def __init__(self, settings: Settings, store: Store, clock: Clock, seen: _Seen, may_prepare: bool) -> None:
        self._store, self._clock, self._seen = store, clock, seen
        self._path = f"{_FOLDER}/{uuid.uuid4().hex}"
        self._one_put_bytes = one_put_bytes(settings.file_size_bytes)
        self._may_prepare = may_prepare and settings.scheme == "file"

    def lines(self) -> Iterator[Line]:
        try:
            written = _attempt("put", "allow to write objects under the prefix", self._put)
            yield written
            if written.verdict == OK:
                yield _attempt("get", "allow to read objects under the prefix", self._get)
                yield _attempt("create-only", USE_ANOTHER, self._create_again)
                yield _attempt("swap", USE_ANOTHER, self._swap)
                yield from self._large_files()
                yield _attempt("clock", "see that its objects may be read", self._skew)
        finally:
            removed = _attempt("delete", "allow to delete objects under the prefix", self._delete)
        if written.verdict == OK:
            yield removed

    def _put(self) -> Line:
        started = self._clock.wall().timestamp()
        self._create()
        self._seen.now = self._store.modified(self._path)
        self._between = started, self._clock.wall().timestamp()
        self._store.put(self._path, b"put")
        return Line("put", OK, "objects can be written")

    def _create(self) -> None:
        try:
            self._store.create_bytes(self._path, b"created")
        except StoreUnavailable:
            if not self._may_prepare:
                raise
            self._store.prepare()  # of a sink that no changefeed has used yet
            self._store.create_bytes(self._path, b"created")

    def _get(self) -> Line:
        found = self._store.get(self._path)
        if found != b"put":
            return Line("get", PROBLEM, f"an object just written reads as {found!r}", "use a store without stale reads")
        return Line("get", OK, "objects can be read, and show what was written last")

    def _create_again(self) -> Line:
        if self._store.create_bytes(self._path, b"again"):
            return Line("create-only", PROBLEM, f"a second create of one object succeeded, {NOT_KEPT}", USE_ANOTHER)
        return Line("create-only", OK, "an object is created once only, so a second changefeed is fenced off")

    def _swap(self) -> Line:
        before = self._store.get_tagged(self._path)
        stale = before[1] if before is not None else "none"
        self._store.put(self._path, b"newer")
        if self._store.swap(self._path, b"stale", stale) is not None:
            return Line(
                "swap",
                PROBLEM,
                f"a conditional put replaced an object that had changed since it was read, {NOT_KEPT}",
                USE_ANOTHER,
            )
        newer = self._store.get_tagged(self._path)
        if newer is None or self._store.swap(self._path, b"newest", newer[1]) is None:
            return Line(
                "swap",
                PROBLEM,
                "a conditional put did not replace an object that had not changed since it was read",
                USE_ANOTHER,
            )
        return Line("swap", OK, "a conditional put replaces an object only if it has not changed since it was read")

    def _large_files(self) -> Iterator[Line]:
        if isinstance(self._store, WithLargeFiles):
            store = self._store
            yield _attempt("large files", "see that objects may be copied", lambda: self._copy(store))

    def _copy(self, store: WithLargeFiles) -> Line:
        """A file that is too large for one put is created by a copy under a condition."""
        size = _about(self._one_put_bytes)
        if store.copies_if_absent(f"{self._path}-copy"):
            sentence = f"files over {size} are created once only, too: uploaded aside, then copied if absent"
            return Line("large files", OK, sentence)
        sentence = f"files over {size} are uploaded without a condition: only the journal keeps two writers apart"
        remedy = f"keep file-size under {_about(BYTES_IN_FLIGHT)} and transactions small, or see docs/storage.md"
        return Line("large files", WARNING, sentence, remedy)

    def _skew(self) -> Line:
        first, last = self._between
        if self._seen.now is None:
            return Line(
                "clock", WARNING, "the store does not say when an object was written", "see that clocks are right"
            )
        skew = max(first - self._seen.now, self._seen.now - last, 0.0)
        if skew <= _SKEW_WARNING_S:
            return Line("clock", OK, "this machine's clock agrees with the store's")
        verdict = PROBLEM if skew > _SKEW_PROBLEM_S else WARNING
        way = "behind" if self._seen.now > last else "ahead of"
        return Line(
            "clock",
            verdict,
            f"this machine's clock is {skew:.0f} s {way} the store's: files land under wrong dates around midnight",
            "set the clock by NTP",
        )

    def _delete(self) -> Line:
        self._store.delete(self._path)
        if isinstance(self._store, WithDirectories):
            self._store.remove_empty(_FOLDER)
        if self._store.get(self._path) is not None:
            return Line("delete", PROBLEM, f"{self._path} is still there after it was deleted", "turn off object locks")
        return Line("delete", OK, "objects can be deleted")


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
    return _ours(sink.journal_ts, written_ts) if sink.head is not None else _ticdc(written_ts)


def _ticdc(written_ts: int) -> Line:
    if written_ts:
        return Line(
            "prefix", OK, f"written by TiCDC; a start takes it over from checkpoint-ts {shown_time(written_ts)}"
        )
    sentence = "holds files of TiCDC but no checkpoint; a start takes it over and reads the source from its beginning"
    return Line("prefix", WARNING, sentence, "give an empty prefix if that is not what you want")


def _ours(journal_ts: int, written_ts: int) -> Line:
    if written_ts > journal_ts:
        sentence = (
            f"another writer was here after Tidegate; a start takes over from checkpoint-ts {shown_time(written_ts)}"
        )
        return Line("prefix", WARNING, sentence, "make sure that the other writer is stopped")
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
    size, free_shown = show_size(settings.spool_max_bytes), _about(free)
    if free <= RESERVE_BYTES:
        sentence = f"{free_shown} free under {settings.spool_dir}: at {_about(RESERVE_BYTES)} the source is held back"
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
        sentence = f"the spool has {_about(limit)} of RAM, half of what is free, not spool.max-bytes {show_size(size)}"
        return Line("space", WARNING, sentence, f"set spool.max-bytes to {limit >> 20 or 1}MiB, or use spool.type=disk")
    return Line("space", OK, f"{_about(limit)} of RAM for the spool")


def _about(size: int) -> str:
    """`_about(1610612736)` is "1.5 GiB"."""
    power = next(power for power in (3, 2, 1, 0) if size >= 1024**power or not power)
    return f"{size / 1024**power:.3g} {('B', 'KiB', 'MiB', 'GiB')[power]}"
