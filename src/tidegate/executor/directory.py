"""Segments as local files, as the driver sees them: a directory for each tier, locked while the changefeed runs.

Promises beyond those of `spool`: only `<spool.dir>/<changefeed id>` is made, locked and emptied, never `spool.dir`
itself; of what exists there only files with the names of a spool are deleted. The directory of the memory tier has a
lock of its own. What a dead process left in the spool of another id, or in RAM, is removed by the next start
(`locked.py`).
"""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tidegate.errors import SpoolError, SpoolFull, SpoolTooSmall
from tidegate.executor.locked import LockedDirectory, clear, is_locked, sweep
from tidegate.executor.segments import FileRoom, FileSegments
from tidegate.executor.spool import MEMORY_TIER

MEMORY_TIER_BYTES = 256 << 20
RESERVE_BYTES = 512 << 20
LEAST_RAM_BYTES = 4 << 20  # free; with less a spool in memory would have room for some Arrow batches at most
_RAM_ROOT, _RAM_NAME = Path("/dev/shm"), "tidegate-"
DEMAND, QUERY, PRIVATE, RELAY = "demand.json", "query", "source.private", "relay"
_OR_DISK = "or use spool.type=disk"
_OWN = ("*.seg", "layouts-*.arrow", f"{DEMAND}*", QUERY, f"{PRIVATE}*", RELAY)  # what `wipe` deletes


@dataclass
class SpoolDirectory:
    """A changefeed's own directories: empty at the start, gone after `close`. The one on disk also has the lock."""

    disk: Path
    memory: Path | None
    memory_limit: int
    memory_only: bool
    spool_max_bytes: int
    reserve_bytes: int = RESERVE_BYTES  # with less free space on the disk there is no room left
    _locked: list[LockedDirectory] = field(default_factory=list)

    @classmethod
    def open(cls, spool_dir: str, changefeed_id: str, spool_type: str, max_bytes: int) -> SpoolDirectory:
        """Refuses a RAM-backed directory that is too small for a spool of its own."""
        locked = [LockedDirectory.take(Path(spool_dir) / changefeed_id)]
        disk = locked[0].path
        try:
            sweep(Path(spool_dir), "*", _OWN)
            sweep(_RAM_ROOT, f"{_RAM_NAME}*", _OWN)
            memory, limit = _memory_tier(disk, spool_type, max_bytes)
            if memory is not None:
                locked.append(LockedDirectory.take(memory))
            opened = cls(disk, memory, limit, spool_type == "memory", max_bytes, _locked=locked)
            opened.wipe()
        except BaseException:
            for each in locked:
                each.release()
            raise
        return opened

    def wipe(self) -> None:
        """Delete what an earlier run left, its word to the source included: it would go on holding tables back."""
        for folder in self._folders:
            clear(folder, _OWN)

    @property
    def query(self) -> Path:
        """Where the query keeps its own checkpoint, which is of no use after it."""
        return self.disk / QUERY

    @property
    def max_bytes(self) -> int:
        return min(self.spool_max_bytes, self.memory_limit) if self.memory_only else self.spool_max_bytes

    @property
    def remedy(self) -> str:
        return (
            "raise spool.max-bytes" if self.max_bytes == self.spool_max_bytes else f"make {_ram()} larger, {_OR_DISK}"
        )

    def is_full(self, sentence: str) -> SpoolError:
        """A disk may get space again, a RAM-backed directory keeps its size."""
        if not self.memory_only:
            return SpoolFull(sentence)
        return SpoolTooSmall(f"{sentence}, although nothing can leave the spool; make {_ram()} larger, {_OR_DISK}")

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
        return self.shortage() is None

    def shortage(self) -> str | None:
        place = self.memory if self.memory_only and self.memory is not None else self.disk
        reserve = min(self.reserve_bytes, self.memory_limit // 2) if self.memory_only else self.reserve_bytes
        try:
            free = shutil.disk_usage(place).free
        except OSError:  # the directory is gone: the next append says so
            return None
        if free >= reserve:
            return None
        other = _OR_DISK if self.memory_only else "or give another directory with spool.dir"
        return (
            f"fewer than {-(-reserve >> 20)} MiB are free under {place}, so files land early and small, and "
            f"the source waits; free some space, {other}"
        )

    def close(self) -> None:
        if not self._locked:
            return
        self.wipe()
        for locked in reversed(self._locked):
            locked.release()
        self._locked = []

    @property
    def _folders(self) -> list[Path]:
        return [folder for folder in (self.disk, self.memory) if folder is not None]

    def _find(self, pattern: str) -> list[Path]:
        return [path for folder in self._folders for path in folder.glob(pattern)]


def is_in_use(spool_dir: str, changefeed_id: str) -> bool:
    """Whether a changefeed of this id runs on this machine; changes nothing."""
    return is_locked(Path(spool_dir, changefeed_id))


def memory_tier_bytes(spool_type: str, max_bytes: int) -> int:
    """How much of the RAM-backed directory may be used; 0 if there is none, or too little is free."""
    if not _RAM_ROOT.is_dir():
        return 0
    free = shutil.disk_usage(_RAM_ROOT).free
    if spool_type == "memory":
        return min(max_bytes, free // 2) if free >= LEAST_RAM_BYTES else 0
    return MEMORY_TIER_BYTES if free >= 2 * MEMORY_TIER_BYTES else 0


def no_ram() -> str:
    """Why there can be no spool in memory, and the remedy."""
    if not _RAM_ROOT.is_dir():
        return f"spool.type=memory needs a RAM-backed directory at {_RAM_ROOT}; use spool.type=disk"
    free = shutil.disk_usage(_RAM_ROOT).free
    return (
        f"spool.type=memory needs {LEAST_RAM_BYTES >> 20} MiB free under {_RAM_ROOT}, and {free >> 10} KiB are; "
        f"make {_ram()} larger, {_OR_DISK}"
    )


def _ram() -> str:
    """The RAM-backed directory with its size."""
    total = shutil.disk_usage(_RAM_ROOT).total if _RAM_ROOT.is_dir() else 0
    return f"{_RAM_ROOT} ({total >> 20} MiB; the spool gets half of what is free at a start)"


def _memory_tier(disk: Path, spool_type: str, max_bytes: int) -> tuple[Path | None, int]:
    """The RAM-backed directory and how much of it may be used; None if there is too little."""
    limit = memory_tier_bytes(spool_type, max_bytes)
    if not limit and spool_type == "memory":
        raise SpoolError(no_ram())
    if not limit:
        return None, 0
    # Changefeeds of one id in different spool.dirs must not share it.
    return _RAM_ROOT / f"{_RAM_NAME}{disk.name}-{zlib.crc32(str(disk).encode()):08x}", limit
