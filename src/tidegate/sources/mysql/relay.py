"""The relay: row events of the log as files on the local disk, from which tasks read them.

Promises: a segment has events of one log file only, because ids of tables are valid there. Segments are deleted when
all that is in them was released. The relay is a cache: whoever finds a segment gone starts again from the journal.

    <relay>/<name of the run>/000007.log        row events back to back, with what stood between them in the log
    <relay>/<name of the run>/split-12-0.arrow  what a task must know to decode its part
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tidegate.errors import SourceUnavailable
from tidegate.sources.mysql.log.images import Bytes, Numbers

SEGMENT_BYTES = 64 << 20
_DENSE = 4  # a stretch of the log is written as it is if this share of it, or more, are wanted events


@dataclass
class Relay:
    folder: Path
    segment_bytes: int = SEGMENT_BYTES
    number: int = 0  # of the segment that grows
    sizes: dict[int, int] = field(default_factory=dict)
    _file: int = -1

    def __post_init__(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as exc:
            raise _lost(self.folder, exc) from exc

    @property
    def held_bytes(self) -> int:
        return sum(self.sizes.values())

    def path(self, number: int) -> str:
        return str(self.folder / f"{number:06d}.log")

    def begin_segment(self) -> None:
        """What comes next is in a file of its own."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        if self.sizes.get(self.number, 0):
            self.number += 1

    def append(self, log: Bytes, start: Numbers, end: Numbers) -> tuple[int, Numbers]:
        """Writes these events of a buffer; the number of the segment, and where each of them is in it."""
        if self.sizes.get(self.number, 0) >= self.segment_bytes:
            self.begin_segment()
        at = self.sizes.setdefault(self.number, 0)
        first, last = int(start[0]), int(end[-1])
        if int((end - start).sum()) * _DENSE >= last - first:
            pieces, places = [log.data[first:last]], at + start - first
        else:
            view = log.data
            pieces = [view[a:b] for a, b in zip(start.tolist(), end.tolist(), strict=True)]
            places = at + np.cumsum(end - start) - (end - start)
        self._write(pieces)
        return self.number, places

    def _write(self, pieces: list[memoryview]) -> None:
        try:
            if self._file < 0:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
                self._file = os.open(self.path(self.number), flags, 0o600)
            data = pieces[0] if len(pieces) == 1 else memoryview(b"".join(pieces))
            self.sizes[self.number] += len(data)
            while data:
                data = data[os.write(self._file, data) :]
        except OSError as exc:
            raise _lost(self.folder, exc) from exc

    def release(self, number: int) -> None:
        """Segments below this one are not needed any more."""
        for gone in [segment for segment in self.sizes if segment < min(number, self.number)]:
            Path(self.path(gone)).unlink(missing_ok=True)
            del self.sizes[gone]

    def is_gone(self) -> bool:
        """Whether somebody removed the directory: the changefeed has ended, and this process is left over."""
        return not self.folder.exists()

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        shutil.rmtree(self.folder, ignore_errors=True)


def _lost(folder: Path, error: OSError) -> SourceUnavailable:
    return SourceUnavailable(
        f"cannot write the log of the database to {folder}: {error.strerror}; free some space, or change spool.dir"
    )
