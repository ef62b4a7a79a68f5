"""What a source keeps beside the journal: where it began, and the windows in which commit-ts are settled.

    _tidegate/source/start.json                   the server, and where its log was read first
    _tidegate/source/windows/000000000012.json    a window (`windows`)

All are created and never replaced: what is there wins. A process that nobody has stopped cannot change what a newer one
relies on; it finds out that the next number is taken, and ends.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from tidegate.errors import BadSetting, SourceUnavailable
from tidegate.format.layout import RESERVED_PREFIX
from tidegate.sources.mysql.windows import Place, Window
from tidegate.storage.store import Store

FOLDER = f"{RESERVED_PREFIX}/source"
_START = f"{FOLDER}/start.json"
_WINDOWS = f"{FOLDER}/windows"
_DELETED_AT_ONCE = 100


@dataclass(frozen=True)
class Start:
    """`server` is the identity of the one that is followed; `ts` the commit-ts before the first change."""

    server: str
    file: str
    at: int
    ts: int


@dataclass
class Records:
    store: Store
    number: int = 0  # of the last window
    ends: dict[int, Place] = field(default_factory=dict)  # by number of a window, where it ends

    def begin(self, start: Start) -> Start:
        """The first start puts itself on record; all later ones get that one."""
        self.store.create_bytes(_START, json.dumps(asdict(start)).encode())
        return self.start() or start

    def start(self) -> Start | None:
        """Where the source began; None if it never did."""
        found = self.store.get(_START)
        if found is None:
            return None
        try:
            return Start(**json.loads(found))
        except (ValueError, TypeError) as exc:
            raise BadSetting(f"{_START} is broken: {exc}; bring it back, or use an empty prefix") from exc

    def load(self, first: int) -> list[Window]:
        """The windows from this number on, in order."""
        numbers = sorted(n for n in map(_number, self._paths()) if n is not None and n >= first)
        windows = []
        for number in numbers:
            text = self.store.get(_path(number))
            if text is not None:
                windows.append(Window.from_json(text))
                self.ends[number] = windows[-1].end
        self.number = max([first, *numbers])
        return windows

    def add(self, window: Window) -> None:
        """Puts the next window on record; returns when it is there."""
        path, text = _path(self.number + 1), window.to_json().encode()
        if not self.store.create_bytes(path, text) and self.store.get(path) != text:
            raise SourceUnavailable(f"{path} was written by another process, so this one goes on from the journal")
        self.number += 1
        self.ends[self.number] = window.end

    def number_of(self, place: Place) -> int:
        """The window in which a place lies."""
        return next((number for number, end in sorted(self.ends.items()) if end >= place), self.number)

    def forget(self, durable: int) -> None:
        """Windows below this one are not needed any more: what is in them is durable."""
        gone = [number for number in sorted(self.ends) if number < min(durable, self.number)][:_DELETED_AT_ONCE]
        for number in gone:
            self.store.delete(_path(number))
            del self.ends[number]

    def _paths(self) -> list[str]:
        return [path for path, _ in self.store.list(_WINDOWS)]


def _path(number: int) -> str:
    return f"{_WINDOWS}/{number:012d}.json"


def _number(path: str) -> int | None:
    name = path.rpartition("/")[2].removesuffix(".json")
    return int(name) if name.isdigit() else None
