"""How a run ends: with the store away, after a time limit, and when somebody stops Spark under it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tidegate.bench.harness.object_server import s3_server

WORKLOAD = "workload://sysbench?tables=3&rows=5000&seed=3&batch=128KiB&rate=1MiB"


class Run:
    """`tidegate run` as a process, and what it has said so far."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "tidegate.cli", "run", "--source", WORKLOAD, *arguments]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        self.said = ""
        self.listener = threading.Thread(target=self._listen, daemon=True)
        self.listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said += line

    def until(self, sign: str, seconds: float = 240.0) -> None:
        deadline = time.monotonic() + seconds
        while not re.search(sign, self.said):
            assert time.monotonic() < deadline, self.said
            assert self.process.poll() is None or re.search(sign, self.said), self.said
            time.sleep(0.1)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    started: list[Run] = []

    def start(sink: str, *arguments: str) -> Run:
        ends = ["--sink", sink, "--spool-dir", str(tmp_path / "spool")]
        started.append(Run(*ends, "--option", "flush-interval=1s", *arguments))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            os.killpg(each.process.pid, signal.SIGKILL)
        each.process.wait()


def test_with_the_store_away_a_stop_says_how_to_leave_and_close_timeout_bounds_it(
    tmp_path: Path, run: Callable[..., Run]
) -> None:
    with s3_server() as server:
        feed = run(server.uri("cdc"), "--close-timeout", "3s")
        feed.until(r"files=[1-9]")
    feed.until(
        r"(; retrying \d+ tables|; waits for the journal: .*the connection to http://.* was refused.*), next try in"
    )
    os.killpg(feed.process.pid, signal.SIGTERM)
    feed.until("stopping: what is spooled lands; a second signal leaves at once")
    assert feed.process.wait(timeout=240) == 1
    feed.listener.join()
    assert "left after --close-timeout 3s: what has not landed will be read again" in feed.said


PROGRAM = """
import sys, tempfile, time
import tidegate
from tidegate.errors import SessionStopped
from tidegate.spark.session import local_session
from tidegate.spark.handle import start_source
from tidegate.config.settings import load_settings
spark = local_session(2, "1g")
place = sys.argv[1]
settings = load_settings(f"file://{place}/out", None, {"spool_dir": place})
handle = start_source("workload://sysbench?tables=2&rate=1MiB", settings)
while not handle.status().files:
    time.sleep(0.1)
spark.stop()
try:
    handle.await_termination(120)
    print("no error", handle.done)
except SessionStopped as exc:
    print("ended:", exc, handle.status().state)
"""


def test_a_session_that_is_stopped_under_a_changefeed_ends_it_with_the_cause(tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, timeout=300, check=False
    )
    assert "ended: the Spark session was stopped under the changefeed" in answer.stdout, answer.stdout + answer.stderr
