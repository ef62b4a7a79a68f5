"""A file system of a benchmark's own: a sparse image with ext4 that is mounted, and deleted whole in a moment.

Blocks have 1 KiB, for files and directories of a few hundred bytes: with 4 KiB a million tables take 36 GiB instead of
9, no longer fit the page cache, and the second sweep measures how fast the disk reads directories. With such blocks a
directory needs `large_dir` for more than about 400,000 names.

Without a journal ext4 does not use an inode again for a minute or more after its file was deleted, and each new file
looks past all such inodes. So nothing is deleted in it: what is not wanted any more stays until the image goes.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tidegate.errors import BadSetting, TidegateError


@contextlib.contextmanager
def mounted_image(place: Path, size_bytes: int, inodes: int) -> Iterator[None]:
    """`place` is a new ext4 file system without journal meanwhile; needs root."""
    if os.geteuid() != 0:
        raise BadSetting("--image true mounts a file system, which needs root; without it the data directory is used")
    image = place.with_suffix(".img")
    if place.is_mount():
        raise BadSetting(f"{place} is still mounted, from a run that was killed; `umount {place}` and start again")
    place.mkdir(parents=True, exist_ok=True)
    with open(image, "wb") as file:
        file.truncate(size_bytes)
    try:
        _do("mkfs.ext4", "-q", "-F", "-b", "1024", "-O", "^has_journal,large_dir", "-N", str(inodes), str(image))
        _do("mount", "-o", "loop", str(image), str(place))
        try:
            yield
        finally:
            _do("umount", str(place))
    finally:
        image.unlink()
        place.rmdir()


def _do(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TidegateError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")
