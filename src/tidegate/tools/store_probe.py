"""Whether the store of a sink keeps what Tidegate relies on: tried with one small object, of which nothing stays."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from urllib.parse import unquote

from tidegate.clock import Clock
from tidegate.config.settings import Settings
from tidegate.driver.startup import NOT_KEPT, USE_ANOTHER
from tidegate.errors import StoreUnavailable
from tidegate.executor.crew import BYTES_IN_FLIGHT, one_put_bytes
from tidegate.format.layout import RESERVED_PREFIX
from tidegate.storage.store import Store, WithDirectories, WithLargeFiles
from tidegate.tools.lines import OK, PROBLEM, WARNING, Line, attempt
from tidegate.wording import human_bytes

_SKEW_WARNING_S, _SKEW_PROBLEM_S = 5.0, 60.0
_FOLDER = f"{RESERVED_PREFIX}/check"


class StoreProbe:
    """Writes, reads and removes one small object, and says what came of it."""

    def __init__(self, settings: Settings, store: Store, clock: Clock, may_prepare: bool) -> None:
        self._store, self._clock = store, clock
        self._path = f"{_FOLDER}/{uuid.uuid4().hex}"
        self._one_put_bytes = one_put_bytes(settings.file_size_bytes)
        self._may_prepare = may_prepare and settings.scheme == "file"
        self._root = unquote(settings.sink_uri.removeprefix("file://"))
        self._made: list[str] = []  # directories that did not exist before, the innermost first
        self.now: float | None = None  # by the store's clock

    def lines(self) -> Iterator[Line]:
        try:
            written = attempt("put", "allow to write objects under the prefix", self._put)
            yield written
            if written.verdict == OK:
                yield attempt("get", "allow to read objects under the prefix", self._get)
                yield attempt("create-only", USE_ANOTHER, self._create_again)
                yield attempt("swap", USE_ANOTHER, self._swap)
                yield from self._large_files()
                yield attempt("clock", "see that its objects may be read", self._skew)
        finally:
            removed = attempt("delete", "allow to delete objects under the prefix", self._delete)
        if written.verdict == OK:
            yield removed

    def _put(self) -> Line:
        started = self._clock.wall().timestamp()
        self._create()
        self.now = self._store.modified(self._path)
        self._between = started, self._clock.wall().timestamp()
        self._store.put(self._path, b"put")
        return Line("put", OK, "objects can be written")

    def _create(self) -> None:
        try:
            self._store.create_bytes(self._path, b"created")
        except StoreUnavailable:
            if not self._may_prepare:
                raise
            self._made = _missing(os.path.join(self._root, RESERVED_PREFIX, "tmp"))
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
            yield attempt("large files", "see that objects may be copied", lambda: self._copy(store))

    def _copy(self, store: WithLargeFiles) -> Line:
        """A file that is too large for one put is created by a copy under a condition."""
        size = human_bytes(self._one_put_bytes)
        if store.copies_if_absent(f"{self._path}-copy"):
            sentence = f"files over {size} are created once only, too: uploaded aside, then copied if absent"
            return Line("large files", OK, sentence)
        sentence = f"files over {size} are uploaded without a condition: only the journal keeps two writers apart"
        remedy = f"keep file-size under {human_bytes(BYTES_IN_FLIGHT)} and transactions small, or see docs/storage.md"
        return Line("large files", WARNING, sentence, remedy)

    def _skew(self) -> Line:
        first, last = self._between
        if self.now is None:
            return Line(
                "clock", WARNING, "the store does not say when an object was written", "see that clocks are right"
            )
        skew = max(first - self.now, self.now - last, 0.0)
        if skew <= _SKEW_WARNING_S:
            return Line("clock", OK, "this machine's clock agrees with the store's")
        verdict = PROBLEM if skew > _SKEW_PROBLEM_S else WARNING
        way = "behind" if self.now > last else "ahead of"
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
        for folder in self._made:
            with contextlib.suppress(OSError):  # somebody else has put something there meanwhile
                os.rmdir(folder)
        if self._store.get(self._path) is not None:
            return Line("delete", PROBLEM, f"{self._path} is still there after it was deleted", "turn off object locks")
        return Line("delete", OK, "objects can be deleted")


def _missing(folder: str) -> list[str]:
    """The directory and those above it that do not exist, the innermost first."""
    found = []
    while folder != os.path.dirname(folder) and not os.path.exists(folder):
        found.append(folder)
        folder = os.path.dirname(folder)
    return found
