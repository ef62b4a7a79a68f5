"""Segments as local files, as tasks see them: appending to two tiers, and reading slices.

Promises beyond those of `spool`: a segment is one file. The memory tier is a directory on a RAM-backed file system; its
files are written, never mapped, so a full tier is an error and not a killed process. Where it has no space left, the
rest goes to disk.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tidegate.errors import SpoolError, SpoolFull, SpoolLost
from tidegate.executor.spool import DISK_TIER, MEMORY_TIER, Appended, Slice
from tidegate.storage.store import Beat

SEGMENT_BYTES = 64 << 20
_STEP_BYTES = 8 << 20
_SMALL_BYTES = 16 << 10
_FULL = (errno.ENOSPC, errno.EDQUOT)
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
_NO_RANGE_COPY = {errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}


# -- reading ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FileSlices:
    """`FileSlices([("/spool/feed/7-1-42-0.seg", 0, 4096)])`."""

    pieces: Sequence[Slice]

    @property
    def size(self) -> int:
        return sum(length for _, _, length in self.pieces)

    def copy_to(self, file: int, beat: Beat) -> None:
        """Without the bytes passing through this process, where the file systems can do that."""
        source, opened = -1, ""
        try:
            for segment, offset, length in self.pieces:
                if segment != opened:
                    if source >= 0:
                        os.close(source)
                        source = -1
                    source, opened = _open(segment), segment
                _copy(source, file, offset, length, beat)
        finally:
            if source >= 0:
                os.close(source)

    def open(self) -> FileStream:
        return FileStream(iter(self.pieces))


@dataclass(slots=True)
class FileStream:
    _pieces: Iterator[Slice]
    _segment: str = ""
    _file: int = -1
    _offset: int = 0
    _left: int = 0  # bytes of the slice that is being read

    def fill(self, room: memoryview) -> None:
        done = 0
        while done < len(room):
            if not self._left:
                self._next()
                continue
            wanted = min(self._left, len(room) - done)
            read = os.preadv(self._file, [room[done : done + wanted]], self._offset)
            if not read:
                raise _ends_early(self._left)
            done, self._offset, self._left = done + read, self._offset + read, self._left - read

    def _next(self) -> None:
        segment, self._offset, self._left = next(self._pieces, ("", 0, 0))
        if not segment:
            raise SpoolLost("the slices of a file are shorter than the file; what they held is replayed")
        if segment != self._segment:
            self.close()
            self._file, self._segment = _open(segment), segment

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file, self._segment = -1, ""


class FileSegments:
    """Reads local files; it needs nothing but their names."""

    def slices(self, pieces: Sequence[Slice]) -> FileSlices:
        return FileSlices(pieces)


def _open(segment: str) -> int:
    try:
        return os.open(segment, os.O_RDONLY)
    except OSError as exc:
        raise SpoolLost(f"cannot read the spool segment {segment}: {exc.strerror}; what it held is replayed") from exc


def _copy(source: int, target: int, offset: int, length: int, beat: Beat) -> None:
    while length:
        step = min(length, _STEP_BYTES)
        beat(step)
        done = _copy_step(source, target, offset, step)
        if not done:
            raise _ends_early(length)
        offset, length = offset + done, length - done


def _copy_step(source: int, target: int, offset: int, length: int) -> int:
    if length <= _SMALL_BYTES:
        data = os.pread(source, length, offset)
        _write(target, memoryview(data))
        return len(data)
    try:
        return os.copy_file_range(source, target, length, offset_src=offset)
    except OSError as exc:
        if exc.errno not in _NO_RANGE_COPY:
            raise
        return os.sendfile(target, source, offset, length)  # the spool and the sink are different kinds of file system


def _ends_early(missing: int) -> SpoolLost:
    return SpoolLost(f"a spool segment ends {missing} bytes too early; what it held is replayed")


# -- appending -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FileRoom(FileSegments):
    """Up to `memory_bytes` in the memory tier, the rest on disk; without `disk_dir` all of it in memory."""

    memory_dir: str | None
    memory_bytes: int
    disk_dir: str | None

    def writer(self, name: str) -> FileWriter:
        return FileWriter(self, name)

    def layouts_path(self, name: str) -> str:
        return f"{self.disk_dir or self.memory_dir}/{name}-layouts.seg"


@dataclass
class FileWriter:
    room: FileRoom
    name: str  # "<batch>-<partition>-<attempt>"
    _fd: int = -1
    _path: str = ""
    _tier: int = DISK_TIER
    _size: int = 0
    _count: int = 0
    _memory_left: int = field(init=False)

    def __post_init__(self) -> None:
        self._memory_left = self.room.memory_bytes if self.room.memory_dir else 0

    def append(self, data: memoryview) -> Appended:
        try:
            offset = self._append(data)
        except OSError as exc:
            if exc.errno not in _FULL or self._tier == DISK_TIER or self.room.disk_dir is None:
                raise _error_of(exc)(f"cannot write to the spool at {self._path}: {exc.strerror}") from exc
            self._leave_memory()
            return self.append(data)
        if self._tier == MEMORY_TIER:
            self._memory_left -= len(data)
        return Appended(self._path, self._tier, offset)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _append(self, data: memoryview) -> int:
        if self._fd < 0 or self._size + len(data) > SEGMENT_BYTES or self._must_leave_memory(len(data)):
            self._next(len(data))
        offset = self._size
        _write(self._fd, data)
        self._size += len(data)
        return offset

    def _must_leave_memory(self, size: int) -> bool:
        return self._tier == MEMORY_TIER and size > self._memory_left and self.room.disk_dir is not None

    def _leave_memory(self) -> None:
        """The memory tier is full: cut off what the failed write left behind the last item, and go on on disk."""
        self._memory_left = 0
        if self._fd >= 0:
            os.truncate(self._fd, self._size)
            self.close()

    def _next(self, size: int) -> None:
        self.close()
        in_memory = self.room.memory_dir and (size <= self._memory_left or self.room.disk_dir is None)
        self._tier = MEMORY_TIER if in_memory else DISK_TIER
        directory = self.room.memory_dir if in_memory else self.room.disk_dir
        self._path = f"{directory}/{self.name}-{self._count}.seg"
        self._count += 1
        self._size = 0
        self._fd = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)


def _error_of(exc: OSError) -> type[SpoolError]:
    if exc.errno in _DENIED:
        return SpoolError
    return SpoolFull if exc.errno in _FULL else SpoolLost


def _write(file: int, data: memoryview) -> None:
    done = 0
    while done < len(data):
        done += os.write(file, data[done:])
