"""Preflight: whether a changefeed can start on this sink with these options, said before it does.

Promises: a changefeed that runs on the sink is not disturbed; all that is written stands under `_tidegate/check/` and
is removed again; requests are bounded, whatever the prefix holds; an error of the store becomes a line; no line shows
a secret. `preflight` is the whole of it, for people; `cheap_checks` is what every start does.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from tidegate.clock import Clock
from tidegate.config.settings import Settings, redacted, shape, show_size
from tidegate.errors import BadSetting, StoreRefused, StoreUnavailable, TidegateError
from tidegate.events import physical_time
from tidegate.executor.directory import is_in_use, memory_tier_bytes
from tidegate.format.encode.protocol import EXTENSIONS
from tidegate.format.layout import (
    METADATA,
    RESERVED_PREFIX,
    is_schema_path,
    parse_data_path,
    parse_index_path,
    parse_metadata,
)
from tidegate.storage.store import Store, WithDirectories

OK, WARNING, PROBLEM = "ok", "warning", "problem"
RESERVE_BYTES = 512 << 20  # what a changefeed leaves free under its spool
SAMPLE = 1000  # objects that are looked at
_SKEW_WARNING_S, _SKEW_PROBLEM_S = 5.0, 60.0
_RECENT_S = 30.0  # a changefeed at work writes every few seconds
_HEAD_BYTES = 1 << 20

_JOURNAL = f"{RESERVED_PREFIX}/journal"
_FOLDER = f"{RESERVED_PREFIX}/check"
_DATA_NAME = re.compile(r"CDC(?:_.+_)?(?P<number>[0-9]{6,20})(?P<extension>\.[a-z0-9]+)", re.ASCII)
_INDEX_NAME = re.compile(r"CDC(?:_.+)?\.index")
_DATES = {"day": r"[0-9]{4}-[0-9]{2}-[0-9]{2}", "month": r"[0-9]{4}-[0-9]{2}", "year": r"[0-9]{4}"}
_NUMBER = re.compile(r"[0-9]{1,20}", re.ASCII)

_REACH = "check the sink's address, the network and the credentials, then try again"
_USE_ANOTHER = (
    "use a store that keeps these conditions (If-None-Match, If-Match), or turn them on where it has a switch"
)
_NOT_KEPT = "so two changefeeds on one sink could overwrite each other's files"


@dataclass(frozen=True)
class Line:
    """One thing that was looked at; `remedy` says what to do unless it is ok."""

    name: str
    verdict: str
    sentence: str
    remedy: str = ""


def preflight(settings: Settings, store: Store, clock: Clock) -> Iterator[Line]:
    """Everything that can be known before a start, in the order of what depends on what."""
    for line in _lines(settings, store, clock):
        yield replace(line, sentence=_hidden(line.sentence, settings))


def _lines(settings: Settings, store: Store, clock: Clock) -> Iterator[Line]:
    if settings.scheme == "noop":
        yield Line("sink", OK, "noop:// stores nothing, so there is nothing to look at")
    else:
        yield from _sink_lines(settings, store, clock)
    yield from _spool_lines(settings)


def cheap_checks(settings: Settings, store: Store) -> None:
    """What every start makes sure of, in four requests at most: call it after `store.prepare`, before the journal.

    Raises StoreUnavailable if the sink does not answer, StoreRefused if it may not be written or does not keep
    create-only puts, BadSetting if options differ from those that the prefix was written with.
    """
    if settings.scheme == "noop":
        return
    uri = redacted(settings.sink_uri)
    try:
        is_kept = _creates_only_once(store, f"{_FOLDER}/created")
        head = _last_head(store)
    except StoreUnavailable as exc:
        raise StoreUnavailable(_hidden(f"the sink {uri} does not answer: {exc}; {_REACH}", settings)) from exc
    except StoreRefused as exc:
        raise StoreRefused(_hidden(f"the sink {uri} cannot be used: {exc}", settings)) from exc
    if not is_kept:
        raise StoreRefused(f"the sink {uri} ignores create-only puts, {_NOT_KEPT}; {_USE_ANOTHER}")
    if changed := _changed(settings, head.get("shape", {}) if head else {}):
        said = "; ".join(f"{key} is {now} where the prefix has {before}" for key, now, before in changed)
        raise BadSetting(f"{said}: set the options back, or give another prefix")


def _creates_only_once(store: Store, path: str) -> bool:
    """The object stays, so that all starts but the first need one request."""
    return not (store.create_bytes(path, uuid.uuid4().bytes) and store.create_bytes(path, uuid.uuid4().bytes))


# -- the sink --------------------------------------------------------------------------------------------------------


@dataclass
class _Seen:
    """What was learned about the sink on the way."""

    sample: list[str] = field(default_factory=list)
    head: dict[str, Any] | None = None
    journal_path: str = ""
    metadata_ts: int | None = None
    now: float | None = None  # by the store's clock


def _sink_lines(settings: Settings, store: Store, clock: Clock) -> Iterator[Line]:
    seen = _Seen()
    in_use = is_in_use(settings.spool_dir, settings.changefeed_id)
    answers = _attempt("sink", "allow to list the objects of the prefix", lambda: _look(settings, store, seen))
    yield answers
    if answers.verdict == PROBLEM and answers.remedy == _REACH:
        return
    yield from _Probe(settings, store, clock, seen, may_prepare=not in_use).lines()
    if answers.verdict == OK:
        yield _attempt("prefix", "see that its objects may be read", lambda: _prefix(store, seen))
        yield from _option_lines(settings, seen)
        yield _attempt("writers", "see that its objects may be read", lambda: _writers(store, seen, in_use))


def _attempt(name: str, remedy: str, step: Callable[[], Line]) -> Line:
    """What the step says; an error becomes a line."""
    try:
        return step()
    except StoreUnavailable as exc:
        return Line(name, PROBLEM, f"the sink does not answer: {exc}", _REACH)
    except TidegateError as exc:
        return Line(name, PROBLEM, str(exc), remedy)
    except Exception as exc:  # of a library under the store: still a line, not a traceback
        return Line(name, PROBLEM, f"{type(exc).__name__}: {exc}", remedy)


def _look(settings: Settings, store: Store, seen: _Seen) -> Line:
    paths = (path for path, _ in islice(store.list(""), 4 * SAMPLE))
    seen.sample = list(islice((path for path in paths if not path.startswith(f"{RESERVED_PREFIX}/")), SAMPLE))
    seen.head, seen.journal_path = _last_entry(store)
    return Line("sink", OK, f"{redacted(settings.sink_uri)} answers and can be listed")


def _last_head(store: Store) -> dict[str, Any] | None:
    """What the newest journal object says besides its tables; None if there is no journal."""
    return _last_entry(store)[0]


def _last_entry(store: Store) -> tuple[dict[str, Any] | None, str]:
    for _ in range(3):  # the changefeed that writes it may replace the object that was just listed
        last = max((path for path, _ in store.list(_JOURNAL)), default="")
        if not last:
            return None, ""
        head = _head_of(store, last)
        if head is not None:
            return head, last
    return None, ""


def _head_of(store: Store, path: str) -> dict[str, Any] | None:
    """The head stands at the front, so a snapshot of a million tables is not fetched for it."""
    data = store.get_range(path, 0, _HEAD_BYTES)
    try:
        return _parsed_head(data) if data is not None else None
    except (pa.ArrowInvalid, OSError, ValueError):
        data = store.get(path)
    try:
        return _parsed_head(data) if data is not None else None
    except (pa.ArrowInvalid, OSError, ValueError, KeyError, TypeError) as exc:
        raise StoreRefused(f"{path} is no journal entry: {exc}") from exc


def _parsed_head(data: bytes) -> dict[str, Any]:
    return dict(json.loads(pa.ipc.open_stream(data).schema.metadata[b"tidegate"]))


class _Probe:
    """Writes, reads and removes one small object, and says what came of it."""

    def __init__(self, settings: Settings, store: Store, clock: Clock, seen: _Seen, may_prepare: bool) -> None:
        self._store, self._clock, self._seen = store, clock, seen
        self._path = f"{_FOLDER}/{uuid.uuid4().hex}"
        self._may_prepare = may_prepare and settings.scheme == "file"

    def lines(self) -> Iterator[Line]:
        try:
            written = _attempt("put", "allow to write objects under the prefix", self._put)
            yield written
            if written.verdict == OK:
                yield _attempt("get", "allow to read objects under the prefix", self._get)
                yield _attempt("create-only", _USE_ANOTHER, self._create_again)
                yield _attempt("swap", _USE_ANOTHER, self._swap)
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
            return Line("create-only", PROBLEM, f"a second create of one object succeeded, {_NOT_KEPT}", _USE_ANOTHER)
        return Line("create-only", OK, "an object is created once only, so a second changefeed is fenced off")

    def _swap(self) -> Line:
        before = self._store.get_tagged(self._path)
        stale = before[1] if before is not None else "none"
        self._store.put(self._path, b"newer")
        if self._store.swap(self._path, b"stale", stale):
            return Line(
                "swap", PROBLEM, f"an object was replaced by one who had seen an older one, {_NOT_KEPT}", _USE_ANOTHER
            )
        newer = self._store.get_tagged(self._path)
        if newer is None or not self._store.swap(self._path, b"newest", newer[1]):
            return Line("swap", PROBLEM, "an object cannot be replaced by one who has seen it", _USE_ANOTHER)
        return Line("swap", OK, "an object is replaced only by one who has seen it")

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


def _prefix(store: Store, seen: _Seen) -> Line:
    text = store.get(METADATA)
    seen.metadata_ts = parse_metadata(text.decode(errors="replace")) if text is not None else None
    stranger = next((path for path in seen.sample if not _is_ticdc(path)), None)
    has_files = any(_is_ticdc(path) for path in seen.sample) or text is not None
    if seen.head is None and not has_files:
        if stranger is None:
            return Line("prefix", OK, "the prefix is empty")
        sentence = f"holds {stranger} and nothing of TiCDC's layout, so a start would be refused"
        return Line("prefix", PROBLEM, sentence, "give an empty prefix")
    if stranger is not None:
        sentence = f"holds {stranger}, which is not of TiCDC's layout; it is left alone"
        return Line("prefix", WARNING, sentence, "move it away if readers of the prefix stumble over it")
    return _owner(seen)


def _owner(seen: _Seen) -> Line:
    written_ts = seen.metadata_ts or 0
    if seen.head is None and not written_ts:
        sentence = (
            "holds files of TiCDC but no checkpoint; a start takes it over and reads the source from its beginning"
        )
        return Line("prefix", WARNING, sentence, "give an empty prefix if that is not what you want")
    if seen.head is None:
        return Line("prefix", OK, f"written by TiCDC; a start takes it over from checkpoint-ts {_shown(written_ts)}")
    journal_ts = seen.head.get("checkpoint-ts", 0)
    if written_ts > journal_ts:
        sentence = f"another writer was here after Tidegate; a start takes over from checkpoint-ts {_shown(written_ts)}"
        return Line("prefix", WARNING, sentence, "see that the other writer is stopped")
    return Line("prefix", OK, f"written by Tidegate up to checkpoint-ts {_shown(journal_ts)}")


def _shown(ts: int) -> str:
    return f"{ts} ({physical_time(ts):%Y-%m-%d %H:%M:%S} UTC)" if ts else "0"


def _writers(store: Store, seen: _Seen, in_use: bool) -> Line:
    if in_use:
        sentence = "a changefeed of this id runs on this machine; another start is refused as long as it does"
        return Line("writers", WARNING, sentence, "stop it first, if you want to start one here")
    path = seen.journal_path or METADATA
    written = store.modified(path) if seen.head is not None or seen.metadata_ts is not None else None
    age = seen.now - written if seen.now is not None and written is not None else _RECENT_S
    if age >= _RECENT_S:
        return Line("writers", OK, "no other writer is at work here")
    if seen.head is not None:
        sentence = (
            f"the journal was written {max(age, 0):.0f} s ago: a changefeed seems to run elsewhere; a start ends it"
        )
        return Line("writers", WARNING, sentence, "stop the other one first")
    sentence = (
        f"`metadata` was written {max(age, 0):.0f} s ago: TiCDC seems to be at work here, and nothing fences it off"
    )
    return Line("writers", PROBLEM, sentence, f"stop it, wait {_RECENT_S:.0f} s and check again")


# -- layout options ----------------------------------------------------------------------------------------------------


def _option_lines(settings: Settings, seen: _Seen) -> Iterator[Line]:
    if seen.head is not None:
        changed = _changed(settings, seen.head.get("shape", {}))
    else:
        changed = _differing(settings, seen.sample)
    for key, now, before in changed:
        sentence = f"{key} is {now}, but the prefix is written with {before}"
        yield Line("options", PROBLEM, sentence, f"set {key} to {before}, or give another prefix")
    if not changed:
        yield Line("options", OK, "the options suit what stands on the prefix")


def _changed(settings: Settings, before: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """(option, value now, value before) of those that shape the prefix; one that a side does not know passes."""
    now = shape(settings)
    return [(key, now[key], value) for key, value in before.items() if now.get(key, value) != value]


def _differing(settings: Settings, sample: list[str]) -> list[tuple[str, str, str]]:
    """The same, from the names of files alone; where some files suit the options, older ones may be otherwise."""
    now, options = shape(settings), settings.paths
    found: dict[str, set[str]] = {}
    for path in sample:
        suits = parse_data_path(path, options) or parse_index_path(path, options)
        for key, value in _shape_of(path):
            found.setdefault(key, set()).add(now[key] if suits else value)
    return [(key, now[key], " and ".join(sorted(values))) for key, values in found.items() if now[key] not in values]


def _shape_of(path: str) -> Iterator[tuple[str, str]]:
    """What the name of a data or index file says about options that shape it."""
    *levels, name = path.split("/")
    data = _DATA_NAME.fullmatch(name)
    if data is not None:
        protocols = {extension: protocol for protocol, extension in EXTENSIONS.items()}
        yield "protocol", protocols.get(data["extension"], data["extension"])
        if data["number"].startswith("0") or len(data["number"]) == 6:  # a longer number is never cut
            yield "file-index-digit", str(len(data["number"]))
    elif _INDEX_NAME.fullmatch(name) and levels[-1:] == ["meta"]:
        levels.pop()
    else:
        return
    date = next((word for word, text in _DATES.items() if levels and re.fullmatch(text, levels[-1])), "none")
    yield "date-separator", date
    levels = levels[:-1] if date != "none" else levels
    yield "use-table-id-as-path", str(len(levels) == 2 and all(map(_NUMBER.fullmatch, levels))).lower()
    if len(levels) == 4:
        yield "enable-partition-separator", "true"


def _is_ticdc(path: str) -> bool:
    """Also what an interrupted write of TiCDC left: `schema_5_0123456789.json.tmp.<uuid>`."""
    whole = re.sub(r"\.tmp\.[^/]*$", "", path)
    return whole == METADATA or is_schema_path(whole) or next(_shape_of(whole), None) is not None


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
        return Line(
            "space", PROBLEM, "spool.type is memory, but there is no RAM-backed directory", "use spool.type=disk"
        )
    if limit < size:
        sentence = f"the spool has {_about(limit)} of RAM, half of what is free, not spool.max-bytes {show_size(size)}"
        return Line("space", WARNING, sentence, f"set spool.max-bytes to {limit >> 20 or 1}MiB, or use spool.type=disk")
    return Line("space", OK, f"{_about(limit)} of RAM for the spool")


def _about(size: int) -> str:
    """`_about(1610612736)` is "1.5 GiB"."""
    power = next(power for power in (3, 2, 1, 0) if size >= 1024**power or not power)
    return f"{size / 1024**power:.3g} {('B', 'KiB', 'MiB', 'GiB')[power]}"


def _hidden(text: str, settings: Settings) -> str:
    """The text without any secret that the sink URI gave, however the store's own message has spelled it."""
    for key, value in settings.access.keys:
        if value and redacted(f"?{key}=x") != f"?{key}=x":
            for spelled in (value, quote(value), quote(value, safe="")):
                text = text.replace(spelled, "***")
    return re.sub(r"(?i)((?:signature|sig)=)[^&\s\"']+", r"\1***", text)
