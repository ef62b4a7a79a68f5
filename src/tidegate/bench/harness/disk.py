"""Where very many tables land: on file systems of the benchmark's own if they can be made here, else in directories.

An own file system is a sparse image with ext4 that is mounted, and deleted whole in a moment. Blocks have 1 KiB, for
files and directories of a few hundred bytes: with 4 KiB a million tables take 36 GiB instead of 9, no longer fit the
page cache, and the second sweep measures how fast the disk reads directories. With such blocks a directory needs
`large_dir` for more than about 400,000 names. It has no journal: there is nothing to recover.

Without a journal ext4 does not use an inode again for a minute or more after its file was deleted, and each new file
looks past all such inodes. So nothing is deleted before the last measurement, neither in an image nor in a directory.
Directories are removed at the end, in bounded time; what is left then is named in a sentence.

Everything is below one directory, and a lock keeps a second benchmark out of it. So whatever is found there at a start
was left by one that was killed, and is removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from tidegate.bench.harness.feed import say
from tidegate.errors import BadSetting, TidegateError

AUTO, IMAGE, DIRECTORY = "auto", "true", "false"
_FEATURES = "^has_journal,large_dir,inline_data"
_PROBE_BYTES, _PROBE_INODES = 4 << 20, 64
_REMOVE_S = 120.0
_LEFT = ".left-"


class Disk(Protocol):
    """Gives places: new, empty directories. What is written there stays until the place, or the disk, is left."""

    def place(self, name: str, size_bytes: int, inodes: int) -> contextlib.AbstractContextManager[Path]: ...


@contextlib.contextmanager
def disk_at(home: Path, wanted: str) -> Iterator[Disk]:
    """A disk below `home`, which is gone afterwards. `auto` says why if it cannot be images."""
    home.mkdir(parents=True, exist_ok=True)
    with _alone(home):
        remove_leftovers(home)
        images = _Images(home)
        obstacle = "" if wanted == DIRECTORY else images.obstacle()
        if wanted == IMAGE and obstacle:
            raise BadSetting(f"--image true: {obstacle}")
        if obstacle:
            say(f"no file system of its own ({obstacle}): tables land in {home}")
        try:
            yield images if wanted != DIRECTORY and not obstacle else _Directories(home)
        finally:
            remove_leftovers(home)
            (home / "lock").unlink()
            with contextlib.suppress(OSError):  # what could not be removed in time is still there
                home.rmdir()


@contextlib.contextmanager
def _alone(home: Path) -> Iterator[None]:
    with open(home / "lock", "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BadSetting(f"another benchmark works in {home}: wait for it, or give another --data-dir") from None
        yield


def remove_leftovers(home: Path, seconds: float = _REMOVE_S) -> None:
    """Unmount and remove everything below `home` but its lock; say what could not be removed in so much time."""
    for place in _mounted_below(home):
        _unmount(place)
    for left in sorted(home.iterdir()):
        if left.name == "lock":
            continue
        aside = left if _LEFT in left.name else left.rename(left.with_name(f"{left.name}{_LEFT}{os.getpid()}"))
        if not _remove(aside, seconds) and aside.exists():
            say(f"{aside} is not removed yet after {seconds:g} s; go on with: rm -rf '{aside}'")


def _remove(path: Path, seconds: float) -> bool:
    """By `rm`, which can be ended in the middle."""
    try:
        return subprocess.run(["rm", "-rf", str(path)], timeout=seconds, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def _mounted_below(home: Path) -> list[Path]:
    mounts = Path("/proc/mounts")
    lines = mounts.read_text(encoding="utf-8").splitlines() if mounts.exists() else []
    places = (Path(line.split()[1].replace("\\040", " ")) for line in lines)
    return [place for place in places if place.is_relative_to(home)]


def _unmount(place: Path) -> None:
    """One that is still in use is detached: it goes when nobody uses it any more."""
    try:
        _do("umount", str(place))
    except TidegateError:
        _do("umount", "-l", str(place))


class _Images:
    """A new file system for each place."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def obstacle(self) -> str:
        """Why no image can be made and mounted here; "" if one can."""
        if os.geteuid() != 0:
            return "mounting an image needs root"
        try:
            with self.place("probe", _PROBE_BYTES, _PROBE_INODES) as place:
                (place / "probe").write_bytes(b"x")
        except (TidegateError, OSError) as exc:
            return str(exc)
        return ""

    @contextlib.contextmanager
    def place(self, name: str, size_bytes: int, inodes: int) -> Iterator[Path]:
        place, image = self._home / name, self._home / f"{name}.img"
        if shutil.disk_usage(self._home).free < size_bytes:
            raise TidegateError(f"{self._home} has less than the {size_bytes >> 30} GiB free that an image may grow to")
        place.mkdir()
        with open(image, "wb") as file:
            file.truncate(size_bytes)
        try:
            _do(
                "mkfs.ext4",
                "-q",
                "-F",
                "-b",
                "1024",
                "-O",
                "^has_journal,large_dir,inline_data",
                "-N",
                str(inodes),
                str(image),
            )
            _do("mount", "-o", "loop", str(image), str(place))
            try:
                yield place
            finally:
                _unmount(place)
        finally:
            image.unlink()
            place.rmdir()


class _Directories:
    """A directory for each place; none is removed before the disk is left."""

    def __init__(self, home: Path) -> None:
        self._home = home

    @contextlib.contextmanager
    def place(self, name: str, size_bytes: int, inodes: int) -> Iterator[Path]:
        place = self._home / name
        place.mkdir()
        yield place


def _do(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise TidegateError(f"there is no `{command[0]}` here") from None
    if done.returncode:
        raise TidegateError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")
