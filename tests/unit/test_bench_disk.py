"""Where very many tables land: images of their own where that is possible, and nothing is left behind for long."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.bench.harness.disk import AUTO, DIRECTORY, IMAGE, disk_at, remove_leftovers
from tidegate.errors import BadSetting

ROOM = (8 << 20, 1000)
LEAVE = """
import os, sys
from pathlib import Path
from tidegate.bench.harness.disk import disk_at
with disk_at(Path(sys.argv[1]), "true") as disk, disk.place("tables", 8 << 20, 1000) as place:
    (place / "file").write_bytes(b"x")
    print("ready", flush=True)
    input()
"""


def can_mount(home: Path) -> bool:
    try:
        with disk_at(home, IMAGE):
            return True
    except BadSetting:
        return False


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "disk"


def mounts() -> str:
    return Path("/proc/mounts").read_text()


def test_without_an_image_places_are_directories_that_stay_until_the_end(home: Path) -> None:
    with disk_at(home, DIRECTORY) as disk:
        with disk.place("one", *ROOM) as one:
            (one / "file").write_bytes(b"x")
        assert (home / "one" / "file").exists(), "deleting would slow down what is measured next"
    assert not home.exists()


def test_what_a_killed_benchmark_left_in_directories_is_removed_at_the_next_start(home: Path) -> None:
    (home / "tables" / "sbtest").mkdir(parents=True)
    (home / "tables.img").write_bytes(b"x")
    with disk_at(home, DIRECTORY) as disk, disk.place("tables", *ROOM) as place:
        assert list(place.iterdir()) == []
        assert not (home / "tables.img").exists()
    assert not home.exists()


def test_what_cannot_be_removed_in_time_is_named_and_out_of_the_way(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "tables").mkdir(parents=True)
    for number in range(5_000):
        (home / "tables" / f"file{number}").touch()
    remove_leftovers(home, seconds=0.0)
    [left] = home.iterdir()
    assert left.name == f"tables.left-{os.getpid()}"
    assert f"{left} is not removed yet after 0 s; go on with: rm -rf '{left}'" in capsys.readouterr().out


def test_two_benchmarks_do_not_work_in_one_directory(home: Path) -> None:
    with disk_at(home, DIRECTORY), pytest.raises(BadSetting, match="another benchmark works in"), disk_at(home, AUTO):
        pass


def test_an_image_is_mounted_meanwhile_and_gone_afterwards(home: Path) -> None:
    if not can_mount(home):
        pytest.skip("no image can be mounted here")
    with disk_at(home, AUTO) as disk:
        with disk.place("tables", *ROOM) as place:
            assert place.is_mount()
            (place / "file").write_bytes(b"x")
        assert not place.exists()
    assert not home.exists()
    assert str(home) not in mounts()


def test_an_image_that_a_killed_benchmark_left_mounted_is_removed_at_the_next_start(home: Path) -> None:
    if not can_mount(home):
        pytest.skip("no image can be mounted here")
    with subprocess.Popen([sys.executable, "-c", LEAVE, str(home)], stdin=-1, stdout=-1, text=True) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == "ready\n"
        killed.kill()
    assert str(home) in mounts()
    with disk_at(home, IMAGE) as disk, disk.place("tables", *ROOM) as place:
        assert not (place / "file").exists()
    assert not home.exists()
    assert str(home) not in mounts()


def test_why_there_is_no_image_is_said_or_refused(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = """
import os, sys
from pathlib import Path
from tidegate.bench.harness.disk import disk_at
os.environ["PATH"] = "/nowhere"
with disk_at(Path(sys.argv[1]), sys.argv[2]): pass
"""
    runs = [
        subprocess.run([sys.executable, "-c", code, str(home), wanted], capture_output=True, text=True, check=False)
        for wanted in (AUTO, IMAGE)
    ]
    why = "there is no `mkfs.ext4` here" if os.geteuid() == 0 else "mounting an image needs root"
    assert runs[0].stdout == f"no file system of its own ({why}): tables land in {home}\n", runs[0].stderr
    assert f"--image true: {why}" in runs[1].stderr
