"""What a dead process left of its spool is removed by the next start; what a living one holds is never touched."""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidegate.errors import SpoolError
from tidegate.executor.directory import SpoolDirectory
from tidegate.executor.locked import LockedDirectory, sweep

_HOLD = """
import sys
from pathlib import Path
from tidegate.executor.directory import SpoolDirectory
spool = SpoolDirectory.open(sys.argv[1], sys.argv[2], sys.argv[3], 1 << 20)
for folder in spool._folders:
    (folder / "0-0-0-0.seg").write_text("old")
spool.query.mkdir()
(spool.query / "offsets").write_text("of the query")
(spool.disk / "demand.json").write_text("{}")
print(spool.memory or "", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def process(root: Path, name: str, spool_type: str = "disk") -> Iterator[tuple[subprocess.Popen[str], list[Path]]]:
    """A process that holds a spool, and the directories that it has."""
    command = [sys.executable, "-c", _HOLD, str(root), name, spool_type]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as found:
        assert found.stdout is not None
        memory = found.stdout.readline().strip()
        try:
            yield found, [root / name, *([Path(memory)] if memory else [])]
        finally:
            found.kill()


def killed(root: Path, name: str, spool_type: str = "disk") -> list[Path]:
    with process(root, name, spool_type) as (_, folders):
        pass
    assert all((folder / "0-0-0-0.seg").exists() for folder in folders)
    return folders


def opened(root: Path, name: str = "other") -> SpoolDirectory:
    return SpoolDirectory.open(str(root), name, "disk", 1 << 20)


@pytest.mark.parametrize("spool_type", ["disk", "memory"])
def test_the_next_start_of_any_changefeed_removes_what_a_killed_one_left(tmp_path: Path, spool_type: str) -> None:
    folders = killed(tmp_path, "dead", spool_type)
    spool = opened(tmp_path)
    assert not [folder for folder in folders if folder.exists()]
    spool.close()
    assert list(tmp_path.iterdir()) == []


def test_also_one_with_another_spool_dir_removes_what_is_in_ram(tmp_path: Path) -> None:
    folders = killed(tmp_path / "one", "dead", "memory")
    opened(tmp_path / "two").close()
    assert [folder.exists() for folder in folders] == [True, False], "its spool.dir is not ours to look at"


def test_what_a_living_process_holds_stays_whatever_else_is_removed(tmp_path: Path) -> None:
    with process(tmp_path, "alive", "memory") as (_, folders):
        killed(tmp_path, "dead")
        opened(tmp_path).close()
        assert all((folder / "0-0-0-0.seg").read_text() == "old" for folder in folders)
        assert (tmp_path / "alive" / "query" / "offsets").exists()
        assert not (tmp_path / "dead").exists()


def test_a_file_of_somebody_else_survives_in_a_directory_that_is_swept(tmp_path: Path) -> None:
    killed(tmp_path, "dead")
    (tmp_path / "dead" / "thesis.txt").write_text("keep")
    opened(tmp_path).close()
    assert [path.name for path in (tmp_path / "dead").iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("text", ["", "4711\n", "tidegate runs on another-machine\n"])
def test_a_lock_that_is_not_of_this_program_and_machine_is_left_alone(tmp_path: Path, text: str) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "lock").write_text(text)
    (tmp_path / "theirs" / "0-0-0-0.seg").write_text("keep")
    opened(tmp_path).close()
    assert sorted(path.name for path in (tmp_path / "theirs").iterdir()) == ["0-0-0-0.seg", "lock"]


def test_a_start_waits_while_another_removes_what_is_left_of_its_spool(tmp_path: Path) -> None:
    folder = LockedDirectory.take(tmp_path / "feed")
    os.close(folder._lock)  # its process was killed
    sweeper = os.open(tmp_path / "feed" / "lock", os.O_RDWR)
    fcntl.flock(sweeper, fcntl.LOCK_EX)
    os.ftruncate(sweeper, 0)
    os.pwrite(sweeper, f"tidegate sweeps on {platform.node()}\n".encode(), 0)
    threading.Timer(0.2, os.close, [sweeper]).start()
    LockedDirectory.take(tmp_path / "feed").release()


def test_a_start_waits_for_a_sweep_that_a_busy_machine_stops_before_it_says_what_it_is(tmp_path: Path) -> None:
    folder = LockedDirectory.take(tmp_path / "feed")
    os.close(folder._lock)  # its process was killed
    sweeper = os.open(tmp_path / "feed" / "lock", os.O_RDWR)
    fcntl.flock(sweeper, fcntl.LOCK_EX)
    threading.Timer(0.3, os.close, [sweeper]).start()
    LockedDirectory.take(tmp_path / "feed").release()


def test_never_two_have_a_directory_while_others_sweep(tmp_path: Path) -> None:
    inside: list[int] = []
    meetings: list[int] = []
    refused: list[SpoolError] = []
    until = time.monotonic() + 0.5

    def come_and_go(number: int) -> None:
        while time.monotonic() < until:
            try:
                spool = LockedDirectory.take(tmp_path / f"feed-{number}")
            except SpoolError as exc:
                refused.append(exc)
                continue
            inside.append(number)
            meetings.extend([number] if inside.count(number) > 1 else [])
            (spool.path / "0-0-0-0.seg").touch()
            inside.remove(number)
            os.close(spool._lock)  # killed

    def come_and_sweep() -> None:
        while time.monotonic() < until:
            sweep(tmp_path, "*", ["*.seg"])

    threads = [threading.Thread(target=come_and_go, args=(n,)) for n in (1, 2)]
    threads += [threading.Thread(target=come_and_sweep) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert meetings == []
    assert refused == [], "a sweep is not taken for an owner"
