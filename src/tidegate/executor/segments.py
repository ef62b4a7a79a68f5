"""Spool files. A segment is an append-only file of encoded bytes, made by one task attempt.

Promises: a segment is closed before its items are returned and never appended to again; its name tells batch,
partition and attempt, so files that no item names can be found and deleted; only `<spool.dir>/<changefeed id>` is
created, locked and wiped, never `spool.dir` itself, and of what stands there only files that carry a spool's names. The
memory tier is a RAM-backed directory, written to and never mapped; where it has no space left the rest goes to disk.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tidegate.errors import SpoolError, SpoolLost

SEGMENT_BYTES = 64 << 20
MEMORY_TIER, DISK_TIER = 0, 1
MEMORY_TIER_BYTES = 256 << 20
_RAM_ROOT = Path("/dev/shm")
_FULL = (errno.ENOSPC, errno.EDQUOT)
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
_LOCK, HELD = "lock", "held.json"
_OWN = ("*.seg", f"{HELD}*")  # what `wipe` removes


@dataclass(frozen=True)
class Places:
    """Where a task may append: up to `memory_bytes` in the memory tier, the rest on disk (None: memory only)."""

    memory_dir: str | None
    memory_bytes: int
    disk_dir: str | None


@dataclass
class SegmentWriter:
    places: Places
    name: str  # "<batch>-<partition>-<attempt>"
    _fd: int = -1
    _path: str = ""
    _tier: int = DISK_TIER
    _size: int = 0
    _count: int = 0
    _memory_left: int = field(init=False)

    def __post_init__(self) -> None:
        self._memory_left = self.places.memory_bytes if self.places.memory_dir else 0

    def append(self, data: memoryview) -> tuple[str, int, int]:
        """Write `data` into one segment; returns (path, tier, offset)."""
        try:
            offset = self._append(data)
        except OSError as exc:
            if exc.errno not in _FULL or self._tier == DISK_TIER or self.places.disk_dir is None:
                kind = SpoolError if exc.errno in _DENIED else SpoolLost
                raise kind(f"cannot write to the spool at {self._path}: {exc.strerror}") from exc
            self._leave_memory()
            return self.append(data)
        if self._tier == MEMORY_TIER:
            self._memory_left -= len(data)
        return self._path, self._tier, offset

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _append(self, data: memoryview) -> int:
        if self._fd < 0 or self._size + len(data) > SEGMENT_BYTES or self._crowded(len(data)):
            self._next(len(data))
        offset = self._size
        self._write(data)
        return offset

    def _leave_memory(self) -> None:
        """Give back what the last write left behind the items there are, and go on on disk."""
        self._memory_left = 0
        if self._fd >= 0:
            os.truncate(self._fd, self._size)
            self.close()

    def _crowded(self, size: int) -> bool:
        return self._tier == MEMORY_TIER and size > self._memory_left and self.places.disk_dir is not None

    def _next(self, size: int) -> None:
        self.close()
        in_memory = self.places.memory_dir and (size <= self._memory_left or self.places.disk_dir is None)
        self._tier = MEMORY_TIER if in_memory else DISK_TIER
        directory = self.places.memory_dir if in_memory else self.places.disk_dir
        self._path = f"{directory}/{self.name}-{self._count}.seg"
        self._count += 1
        self._size = 0
        self._fd = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)

    def _write(self, data: memoryview) -> None:
        done = 0
        while done < len(data):
            done += os.write(self._fd, data[done:])
        self._size += len(data)


@dataclass
class SpoolDirectory:
    """A changefeed's own directories, locked while it runs, empty at start and gone at close."""

    disk: Path
    memory: Path | None
    memory_limit: int
    _lock: int = -1

    @classmethod
    def open(cls, spool_dir: str, changefeed_id: str, spool_type: str, max_bytes: int) -> SpoolDirectory:
        disk = Path(spool_dir) / changefeed_id
        lock = _locked(disk)
        try:
            memory, limit = _memory_tier(disk, spool_type, max_bytes)
            if spool_type == "memory" and memory is None:
                raise SpoolError(
                    f"spool.type = memory needs a RAM-backed directory at {_RAM_ROOT}; use spool.type = disk"
                )
            opened = cls(disk, memory, limit, lock)
            opened.wipe()
        except BaseException:
            os.close(lock)
            raise
        return opened

    def wipe(self) -> None:
        """Remove what an earlier run left: also its list of held tables, or a source would go on holding them."""
        for place in (self.disk, self.memory):
            for path in [found for name in _OWN for found in place.glob(name)] if place is not None else ():
                path.unlink(missing_ok=True)

    def _segments(self) -> list[Path]:
        return [path for place in (self.disk, self.memory) if place is not None for path in place.glob("*.seg")]

    def of_batch(self, batch: str) -> list[Path]:
        return [path for path in self._segments() if path.name.startswith(f"{batch}-")]

    def free_bytes(self) -> int:
        return shutil.disk_usage(self.disk).free

    def close(self) -> None:
        """Repeats are harmless."""
        if self._lock < 0:
            return
        self.wipe()
        if self.memory is not None:
            _remove_empty(self.memory)
        (self.disk / _LOCK).unlink(missing_ok=True)  # from here on the directory may have another owner
        _remove_empty(self.disk)
        os.close(self._lock)
        self._lock = -1


def gather(slices: Sequence[tuple[str, int, int]], places: Places, name: str) -> list[tuple[str, int, int]]:
    """Copy slices of segments together into new ones; returns (path, tier, offset) of each."""
    writer = SegmentWriter(places, name)
    try:
        return [writer.append(memoryview(_read(*piece))) for piece in slices]
    finally:
        writer.close()


def _read(path: str, offset: int, length: int) -> bytes:
    with open(path, "rb", buffering=0) as file:
        data = os.pread(file.fileno(), length, offset)
    if len(data) != length:
        raise SpoolLost(f"the spool segment {path} ends too early")
    return data


def _remove_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):  # what is not ours, or of the next owner, stays
        folder.rmdir()


def _locked(disk: Path) -> int:
    """The directory made and its lock held."""
    while True:
        try:
            disk.mkdir(parents=True, exist_ok=True)
            lock = os.open(disk / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        except FileNotFoundError:  # its owner removed it since we made it
            continue
        except OSError as exc:
            raise SpoolError(
                f"cannot use the spool directory {disk}: {exc.strerror}; give another with --spool-dir"
            ) from exc
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            os.close(lock)
            raise SpoolError(
                f"the spool {disk} is in use by another process: stop it, or give this one its own --changefeed-id"
            ) from exc
        if _stands(disk / _LOCK, lock):
            return lock
        os.close(lock)  # its owner removed it between our open and our lock: another may hold a new one


def _stands(path: Path, opened: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(opened))
    except FileNotFoundError:
        return False


def is_in_use(spool_dir: str, changefeed_id: str) -> bool:
    """Whether a changefeed of this id runs on this machine; leaves everything as it is."""
    try:
        lock = os.open(Path(spool_dir, changefeed_id, _LOCK), os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # let go again at once
    except OSError:
        return True
    finally:
        os.close(lock)
    return False


def memory_tier_bytes(spool_type: str, max_bytes: int) -> int:
    """How much of the RAM-backed directory may be used, 0 where there is none or too little is free."""
    if not _RAM_ROOT.is_dir():
        return 0
    free = shutil.disk_usage(_RAM_ROOT).free
    if spool_type == "memory":
        return min(max_bytes, free // 2)
    return MEMORY_TIER_BYTES if free >= 2 * MEMORY_TIER_BYTES else 0


def _memory_tier(disk: Path, spool_type: str, max_bytes: int) -> tuple[Path | None, int]:
    """The RAM-backed directory and how much of it may be used; None where there is too little."""
    limit = memory_tier_bytes(spool_type, max_bytes)
    if not limit:
        return None, 0
    # The lock is on the disk directory, so the name must belong to that directory alone.
    memory = _RAM_ROOT / f"tidegate-{disk.name}-{zlib.crc32(str(disk).encode()):08x}"
    try:
        memory.mkdir(exist_ok=True)
    except OSError as exc:
        raise SpoolError(f"cannot use {memory} as the spool's memory tier: {exc.strerror}") from exc
    return memory, limit
