"""What a benchmark costs: memory and processor time of this process and of all processes below it.

Memory is PSS: a page that n processes share counts 1/n in each. A sum of RSS would count shared pages several times.
The spool's RAM tier belongs to no process and is added. A process that ends while it is looked at counts as nothing.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import psutil

RAM_TIERS = "/dev/shm/tidegate-*"
_EVERY_S = 0.5
_gone = contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied)


def process_tree(root: int) -> list[psutil.Process]:
    """The process `root` and all processes below it."""
    with _gone:
        process = psutil.Process(root)
        return [process, *process.children(recursive=True)]
    return []


def cpu_seconds(root: int) -> float:
    """Processor time that the tree has used so far, including that of processes that have ended within it."""
    seconds = 0.0
    for process in process_tree(root):
        with _gone:
            used = process.cpu_times()
            seconds += used.user + used.system + used.children_user + used.children_system
    return seconds


def tree_bytes(root: int) -> int:
    """Sum of the PSS of the tree."""
    return sum(bytes_by_command(root).values())


def bytes_by_command(root: int) -> dict[str, int]:
    """`{"java": 1_500_000_000, "python": 700_000_000}`: the PSS of the tree by what its processes run."""
    found: dict[str, int] = {}
    for process in process_tree(root):
        with _gone:
            command, size = process.name(), process.memory_full_info().pss
            found[command] = found.get(command, 0) + size
    return found


def pss_bytes(pid: int) -> int:
    """Of this process alone."""
    with _gone:
        size: int = psutil.Process(pid).memory_full_info().pss
        return size
    return 0


def ram_tier_bytes(pattern: str = RAM_TIERS) -> int:
    """The size of the files in the RAM-backed spool directories."""
    anchor, _, rest = pattern.rpartition("/")
    return sum(_file_bytes(path) for place in Path(anchor).glob(rest) for path in place.glob("*"))


class MemorySampler:
    """Looks every half second while it is open; `peak_bytes` is the most it saw, `seen` is all, by seconds.

    `seen_jvm` is the part of the JVM, whose heap grows up to its bound whether it is needed or not.

    with MemorySampler() as memory: ...
    """

    def __init__(self, root: int | None = None, ram_tiers: str = RAM_TIERS, every_s: float = _EVERY_S) -> None:
        self.peak_bytes = 0
        self.samples = 0
        self.seen: list[tuple[float, int]] = []
        self.seen_jvm: list[tuple[float, int]] = []
        self._root = root or os.getpid()
        self._ram_tiers = ram_tiers
        self._every_s = every_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            parts, now = bytes_by_command(self._root), time.monotonic()
            found = sum(parts.values()) + ram_tier_bytes(self._ram_tiers)
            self.peak_bytes = max(self.peak_bytes, found)
            self.samples += 1
            self.seen.append((now, found))
            self.seen_jvm.append((now, parts.get("java", 0)))
            if self._ended.wait(self._every_s):
                return


class CpuMeter:
    """Processor time of this process and all below it since the meter was made, without that of the trees `aside`.

    Those must live as long as the meter is asked: what has ended counts for its parent.
    """

    def __init__(self, aside: Sequence[int] = ()) -> None:
        self._root, self._aside = os.getpid(), tuple(aside)
        self._before = self._used()

    def seconds(self) -> float:
        return self._used() - self._before

    def _used(self) -> float:
        return cpu_seconds(self._root) - sum(map(cpu_seconds, self._aside))


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def _file_bytes(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_size
    return 0
