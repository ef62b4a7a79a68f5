"""Segments as local files, as the driver sees them: a directory for each tier, locked while the changefeed runs.

Promises beyond those of `spool`: only `<spool.dir>/<changefeed id>` is made, locked and emptied, never `spool.dir`
itself; of what exists there only files with the names of a spool are deleted. The directory of the memory tier belongs
to that directory alone, so one lock covers both.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import zlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegate.errors import SpoolError
from tidegate.executor.segments import FileRoom, FileSegments
from tidegate.executor.spool import MEMORY_TIER

MEMORY_TIER_BYTES = 256 << 20
RESERVE_BYTES = 512 << 20
_RAM_ROOT = Path("/dev/shm")
_LOCK, HELD = "lock", "held.json"
_OWN = ("*.seg", f"{HELD}*")  # what `wipe` deletes


@dataclass
class SpoolDirectory:
    """A changefeed's own directories: empty at the start, gone after `close`. The one on disk also has the lock."""

    disk: Path
    memory: Path | None
    memory_limit: int
    memory_only: bool
    spool_max_bytes: int
    reserve_bytes: int = RESERVE_BYTES  # with less free space on the disk there is no room left
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
            opened = cls(disk, memory, limit, spool_type == "memory", max_bytes, _lock=lock)
            opened.wipe()
        except BaseException:
            os.close(lock)
            raise
        return opened

    def wipe(self) -> None:
        """Delete what an earlier run left, its list of held tables included: a source would go on holding them."""
        for path in [path for pattern in _OWN for path in self._find(pattern)]:
            path.unlink(missing_ok=True)

    @property
    def max_bytes(self) -> int:
        return min(self.spool_max_bytes, self.memory_limit) if self.memory_only else self.spool_max_bytes

    @property
    def reader(self) -> FileSegments:
        return FileSegments()

    def room(self, tasks: int, tier_bytes: Sequence[int]) -> FileRoom:
        left = max(0, self.memory_limit - tier_bytes[MEMORY_TIER])
        return FileRoom(
            memory_dir=str(self.memory) if self.memory is not None else None,
            memory_bytes=left if self.memory_only else left // max(1, tasks),
            disk_dir=None if self.memory_only else str(self.disk),
        )

    def delete(self, segments: Iterable[str]) -> list[str]:
        gone = []
        for path in segments:
            try:
                os.unlink(path)
            except FileNotFoundError:
                gone.append(path)
        return gone

    def delete_batch(self, batch: str) -> list[str]:
        return self.delete_unnamed(batch, ())

    def delete_unnamed(self, batch: str, named: Collection[str]) -> list[str]:
        return self.delete([path for path in map(str, self.of_batch(batch)) if path not in named])

    def of_batch(self, batch: str) -> list[Path]:
        return self._find(f"{batch}-*.seg")

    def has_room_left(self) -> bool:
        return self.memory_only or shutil.disk_usage(self.disk).free >= self.reserve_bytes

    def close(self) -> None:
        if self._lock < 0:
            return
        self.wipe()
        if self.memory is not None:
            _remove_empty(self.memory)
        (self.disk / _LOCK).unlink(missing_ok=True)  # from here on the directory may have another owner
        _remove_empty(self.disk)
        os.close(self._lock)
        self._lock = -1

    def _find(self, pattern: str) -> list[Path]:
        return [path for folder in (self.disk, self.memory) if folder is not None for path in folder.glob(pattern)]


def _remove_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):  # what is not ours, or belongs to the next owner, stays
        folder.rmdir()


def _locked(disk: Path) -> int:
    """The directory made and its lock held."""
    while True:
        try:
            disk.mkdir(parents=True, exist_ok=True)
            lock = os.open(disk / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        except FileNotFoundError:  # its owner removed it after we made it
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
        if _still_there(disk / _LOCK, lock):
            return lock
        os.close(lock)  # its owner removed it between our open and our lock, so another process may hold a new one


def _still_there(path: Path, opened: int) -> bool:
    """Whether the open file still has this name."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(opened))
    except FileNotFoundError:
        return False


def is_in_use(spool_dir: str, changefeed_id: str) -> bool:
    """Whether a changefeed of this id runs on this machine; changes nothing."""
    try:
        lock = os.open(Path(spool_dir, changefeed_id, _LOCK), os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # closing the file unlocks it
    except OSError:
        return True
    finally:
        os.close(lock)
    return False


def memory_tier_bytes(spool_type: str, max_bytes: int) -> int:
    """How much of the RAM-backed directory may be used; 0 if there is none, or too little is free."""
    if not _RAM_ROOT.is_dir():
        return 0
    free = shutil.disk_usage(_RAM_ROOT).free
    if spool_type == "memory":
        return min(max_bytes, free // 2)
    return MEMORY_TIER_BYTES if free >= 2 * MEMORY_TIER_BYTES else 0


def _memory_tier(disk: Path, spool_type: str, max_bytes: int) -> tuple[Path | None, int]:
    """The RAM-backed directory and how much of it may be used; None if there is too little."""
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
