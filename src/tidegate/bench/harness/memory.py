"""What a benchmark costs: memory and processor time of this process and all below it, from /proc.

Memory is PSS (a page shared by n processes counts 1/n in each), because a sum of RSS counts shared pages several times;
the spool's RAM tier belongs to no process and is added. Processes that end while they are being read count as nothing.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

RAM_TIERS = "/dev/shm/tidegate-*"
_EVERY_S = 0.5
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def process_tree(root: int) -> list[int]:
    """`root` and all processes below it."""
    children: dict[int, list[int]] = {}
    for pid in _pids():
        if (stat := _stat(pid)) is not None:
            children.setdefault(int(stat[1]), []).append(pid)
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def cpu_seconds(root: int) -> float:
    """Processor time that the tree has used so far, including that of processes that have ended within it."""
    ticks = 0
    for pid in process_tree(root):
        if (stat := _stat(pid)) is not None:
            ticks += sum(int(field) for field in stat[11:15])  # utime, stime, and both of children waited for
    return ticks / _TICKS_PER_S


def tree_bytes(root: int) -> int:
    """Sum of the PSS of the tree."""
    return sum(bytes_by_command(root).values())


def bytes_by_command(root: int) -> dict[str, int]:
    """`{"java": 1_500_000_000, "python": 700_000_000}`: the PSS of the tree by what its processes run."""
    found: dict[str, int] = {}
    for pid in process_tree(root):
        command = _text(f"/proc/{pid}/comm").strip()
        found[command] = found.get(command, 0) + pss_bytes(pid)
    return found


def ram_tier_bytes(pattern: str = RAM_TIERS) -> int:
    """What stands in the RAM-backed spool directories."""
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
    """Processor time of this process and all below it since the meter was made."""

    def __init__(self) -> None:
        self._root = os.getpid()
        self._before = cpu_seconds(self._root)

    def seconds(self) -> float:
        return cpu_seconds(self._root) - self._before


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the state on; the name before them may hold spaces and brackets."""
    text = _text(f"/proc/{pid}/stat")
    return text.rpartition(")")[2].split() if text else None


def pss_bytes(pid: int) -> int:
    """Of this process alone."""
    for line in _text(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) << 10
    return 0


def _text(path: str) -> str:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    return ""


def _file_bytes(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_size
    return 0
