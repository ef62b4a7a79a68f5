"""A wrong checkpoint as a user meets it: refused before Spark reads, or told at the end with an exit code."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from tidegate.events import tso
from tidegate.format.layout import metadata_text

FINITE = "workload://sysbench?tables=3&rows=2000&txn-rows=9&batch=64KiB&events=9000"


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tidegate.cli", *arguments]


def tidegate(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=300)


def ends(tmp_path: Path, source: str) -> list[str]:
    return ["--source", source, "--sink", f"file://{tmp_path}/out", "--spool-dir", str(tmp_path / "spool")]


def put_checkpoint(tmp_path: Path, ts: int) -> Path:
    (tmp_path / "out").mkdir()
    path = tmp_path / "out" / "metadata"
    path.write_text(metadata_text(ts))
    return path


def test_a_checkpoint_in_the_future_is_refused_by_run_and_by_check(tmp_path: Path) -> None:
    put_checkpoint(tmp_path, tso(round((time.time() + 3600) * 1000)))
    run = tidegate("run", *ends(tmp_path, "workload://sysbench?tables=3&rows=2000"), "--duration", "5s")
    assert (run.returncode, "ahead of this machine's clock" in run.stderr) == (1, True), run.stderr
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["metadata"]
    check = tidegate("check", f"file://{tmp_path}/out")
    assert check.returncode == 1
    assert "problem  prefix" in check.stdout


def test_a_checkpoint_beyond_the_end_of_the_source_is_refused(tmp_path: Path) -> None:
    put_checkpoint(tmp_path, tso(round(time.time() * 1000)))
    run = tidegate("run", *ends(tmp_path, FINITE))
    assert (run.returncode, "but the source ends at" in run.stderr) == (1, True), run.stderr


def test_a_run_that_drops_all_it_reads_does_not_exit_0_and_one_with_nothing_new_does(tmp_path: Path) -> None:
    first, again = (tidegate("run", *ends(tmp_path, FINITE)) for _ in range(2))
    assert (first.returncode, again.returncode) == (0, 0), first.stderr + again.stderr
    other = tmp_path / "other"
    other.mkdir()
    put_checkpoint(other, tso(round(time.time() * 1000)))
    slow = "workload://sysbench?tables=3&rows=2000&txn-rows=9&batch=64KiB&rate=1MiB"
    arguments = ["run", *ends(other, slow), "--report", str(tmp_path / "report.json")]
    run = subprocess.Popen(command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert run.stdout is not None
    assert any("nothing is written: all changes" in line for line in run.stdout), "the display says it"
    run.send_signal(signal.SIGTERM)
    said = run.stdout.read()
    assert run.wait() == 1, said
    assert "tidegate: nothing is written: all changes" in said
    assert "at which this run began" in json.loads((tmp_path / "report.json").read_text())["only_repeats"]
