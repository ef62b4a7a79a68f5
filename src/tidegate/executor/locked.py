"""Directories that belong to a living process, and what dead ones left.

A directory of ours has a file `lock` that its process holds locked (flock). The kernel lets go of the lock when the
process ends, however it ends. So a lock that can be taken says that the owner is dead, and the next start removes what
it left. A process id says nothing of the kind: it is given to other processes later, and means nothing in a container.

Only directories whose lock names this program and this machine are swept. Another program may have a file `lock`, too,
and on a file system that several machines share a lock may count on its own machine only.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegate.errors import SpoolError

LOCK = "lock"
_OWNED, _SWEPT = (f"tidegate {word} on {platform.node()}\n".encode() for word in ("runs", "sweeps"))
# A sweep is short, but a busy machine may not let it end soon, or say soon that it is one.
_TRIES, _UNSAID, _TRY_AGAIN_S = 1_000, 50, 0.02


@dataclass
class LockedDirectory:
    """A directory that nobody else uses until `release`."""

    path: Path
    _lock: int

    @classmethod
    def take(cls, path: Path) -> LockedDirectory:
        """The directory made and its lock held. Waits while another start removes what a dead process left in it."""
        unsaid = 0  # times in a row that it did not say that it sweeps
        for _ in range(_TRIES):
            lock = _open(path)
            if lock is None:
                continue
            if _try_lock(lock):
                if _still_there(path / LOCK, lock):
                    _write(lock, _OWNED)
                    return cls(path, lock)
                os.close(lock)  # its owner removed it between our open and our lock: another may hold a new one
                continue
            swept = os.pread(lock, len(_SWEPT), 0) == _SWEPT
            os.close(lock)
            unsaid = 0 if swept else unsaid + 1
            if unsaid > _UNSAID:  # it may have been locked only a moment ago, and not say yet what for
                break
            time.sleep(_TRY_AGAIN_S)
        raise SpoolError(
            f"the spool {path} is in use by another process: stop it, or give this one its own --changefeed-id"
        )

    def release(self) -> None:
        """Remove the lock, and the directory if it is empty. Repeats are harmless."""
        if self._lock < 0:
            return
        if _still_there(self.path / LOCK, self._lock):
            (self.path / LOCK).unlink(missing_ok=True)  # from here on the directory may have another owner
            _remove_empty(self.path)
        os.close(self._lock)
        self._lock = -1


def is_locked(path: Path) -> bool:
    """Whether a living process holds this directory; changes nothing."""
    try:
        lock = os.open(path / LOCK, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # closing the file unlocks it
    except OSError:
        return True
    finally:
        os.close(lock)
    return False


def clear(folder: Path, own: Sequence[str]) -> None:
    """Delete what matches these patterns, files and directories; what is not ours stays."""
    for path in [path for pattern in own for path in folder.glob(pattern)]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def sweep(root: Path, names: str, own: Sequence[str]) -> list[Path]:
    """Remove what dead processes left in directories of these names; returns the directories.

    A directory without a lock of ours is left alone: nobody could say whose it is.
    """
    found = []
    for folder in sorted(path for path in root.glob(names) if path.is_dir() and not path.is_symlink()):
        with contextlib.suppress(OSError):  # rights, or another start was faster
            if _sweep(folder, own):
                found.append(folder)
    return found


def _sweep(folder: Path, own: Sequence[str]) -> bool:
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW)
    try:
        if not _try_lock(lock) or not _still_there(folder / LOCK, lock):
            return False
        if os.pread(lock, 256, 0) not in (_OWNED, _SWEPT):
            return False
        _write(lock, _SWEPT)
        clear(folder, own)
        (folder / LOCK).unlink()
        _remove_empty(folder)
        return True
    finally:
        os.close(lock)


def _open(path: Path) -> int | None:
    """The lock file opened; None if its owner removed the directory after we made it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        return os.open(path / LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    except (FileNotFoundError, FileExistsError):  # mkdir reports the second if the directory goes while it looks
        return None
    except OSError as exc:
        raise SpoolError(
            f"cannot use the spool directory {path}: {exc.strerror}; give another with --spool-dir"
        ) from exc


def _try_lock(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _write(lock: int, text: bytes) -> None:
    os.ftruncate(lock, 0)
    os.pwrite(lock, text, 0)


def _still_there(path: Path, opened: int) -> bool:
    """Whether the open file still has this name."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(opened))
    except FileNotFoundError:
        return False


def _remove_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):  # what is not ours, or belongs to the next owner, stays
        folder.rmdir()
