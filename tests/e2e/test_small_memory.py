"""`spool.type=memory` where the RAM-backed directory is small, as in a container: it works, or says why it cannot."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SMALL = "workload://sysbench?tables=5&rows=2000&txn-rows=9&batch=256KiB&events={events}"
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run_with(tmp_path: Path) -> Run:
    """Runs `tidegate` in a process whose /dev/shm has this size; nobody else sees it."""

    def run(size: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        inside = f'mount -t tmpfs -o size={size} tmpfs /dev/shm && exec "$@"'
        command = ["unshare", "--mount", "sh", "-c", inside, "sh"]
        try:
            tried = subprocess.run([*command, "true"], capture_output=True, text=True)
        except FileNotFoundError as exc:
            pytest.skip(f"a small /dev/shm cannot be made here: {exc}")
        if tried.returncode:
            pytest.skip(f"a small /dev/shm cannot be made here: {tried.stderr.strip()}")
        ours = [sys.executable, "-m", "tidegate.cli", *arguments, "--sink", f"file://{tmp_path}/out"]
        return subprocess.run([*command, *ours], capture_output=True, text=True, timeout=600)

    return run


def options(tmp_path: Path, source: str, *more: str) -> list[str]:
    given = ["spool.type=memory", "flush-interval=1s", "file-size=256KiB", *more]
    return ["--source", source, "--spool-dir", str(tmp_path / "spool"), *(f"--option={each}" for each in given)]


@pytest.mark.parametrize(("protocol", "events"), [("csv", 30_000), ("canal-json", 15_000)])
def test_a_directory_smaller_than_one_usual_micro_batch_suffices(
    run_with: Run, tmp_path: Path, protocol: str, events: int
) -> None:
    """More than 6 MB of changes pass through a directory of 5 MiB, without a restart."""
    given = options(tmp_path, SMALL.format(events=events), f"protocol={protocol}")
    ran = run_with("5m", "run", *given)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "started again" not in ran.stdout + ran.stderr
    checked = run_with("5m", "verify", *given)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_directory_that_is_too_small_is_refused_with_its_size_and_the_remedy(run_with: Run, tmp_path: Path) -> None:
    ran = run_with("2m", "run", *options(tmp_path, SMALL.format(events=1_000)))
    assert ran.returncode == 1
    said = ran.stdout + ran.stderr
    assert "needs 4 MiB free under /dev/shm, and 2048 KiB are; make /dev/shm (2 MiB; " in said
    assert "or use spool.type=disk" in said


def test_a_unit_that_does_not_fit_ends_the_changefeed_once_with_the_remedy(run_with: Run, tmp_path: Path) -> None:
    """The least that this workload can hand out is a step of 6 MiB."""
    source = "workload://sysbench?tables=1&rows=50000&batch=6MiB&events=50000"
    ran = run_with("8m", "run", *options(tmp_path, source))
    assert ran.returncode == 1
    said = ran.stdout + ran.stderr
    assert "make /dev/shm (8 MiB; the spool gets half of what is free at a start) larger" in said
    assert "started again" not in said
