"""Faults of real parts on a real Spark session: killed workers, a lost spool, a server that stops answering."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tidegate.config.settings import Settings
from tidegate.spark.handle import Handle, start_source
from tidegate.storage.store import open_store
from tidegate.testing import until
from tidegate.tools.verify import verify

ENDLESS = "workload://sysbench?tables=4&rows=2000&txn-rows=7&batch=64KiB&rate=2MiB"


def has_landed(handle: Handle, files: int) -> bool:
    """Whether the run has landed more than so many files."""
    return handle.status().files > files


def finished(handle: Handle, settings: Settings) -> None:
    """Stop in order, and compare what stands on the sink with a replay."""
    handle.stop()
    assert handle.await_termination(180)
    assert verify(ENDLESS, settings, open_store(settings.sink_uri, settings.access)).rows > 0


def processes(*words: str) -> dict[int, int]:
    """Ids of the processes whose command line has these words, with the id of each one's parent."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().decode(errors="replace")
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            continue
        if all(word in command for word in words):
            found[int(folder.name)] = parent
    return found


def family(pid: int, of: int) -> bool:
    while pid > 1 and pid != of:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return False
    return pid == of


def test_killed_python_workers_are_replaced_and_nothing_is_lost(
    spark: SparkSession, place: Callable[..., Settings]
) -> None:
    settings = place()
    handle = start_source(ENDLESS, settings)
    until(lambda: handle.status().files > 4)
    killed = 0
    for _ in range(3):
        daemons = processes("pyspark.daemon")  # a worker is a fork of its daemon, with the same command line
        workers = [pid for pid, parent in daemons.items() if parent in daemons and family(pid, os.getpid())]
        for worker in workers:
            os.kill(worker, signal.SIGKILL)
            killed += 1
        until(partial(has_landed, handle, handle.status().files + 4))
    assert killed > 0
    finished(handle, settings)


def test_a_spool_that_goes_away_is_read_again(spark: SparkSession, place: Callable[..., Settings]) -> None:
    settings = place(flush_interval="10m", file_size="64MiB")  # nothing lands before the spool is lost
    handle = start_source(ENDLESS, settings)
    until(lambda: handle.status().bytes_accepted > 1 << 20)
    first = handle.changefeed
    first.spool.wipe()
    first.landing.land_all(first.life._stopping)  # whoever wants to land it now finds nothing
    until(lambda: handle.changefeed is not first and handle.status().bytes_accepted > 1 << 20)
    finished(handle, settings)


def test_a_server_that_does_not_answer_is_waited_for_without_a_restart(
    spark: SparkSession, place: Callable[..., Settings], s3_server: Any
) -> None:
    settings = place(s3_server.uri("faults"))
    [server] = processes("moto.server", str(s3_server.port))
    handle = start_source(ENDLESS, settings)
    changefeed = handle.changefeed
    until(lambda: handle.status().files > 4)
    os.kill(server, signal.SIGSTOP)
    try:
        until(lambda: bool(handle.status().waiting or handle.status().retrying))
    finally:
        os.kill(server, signal.SIGCONT)
    files = handle.status().files
    until(lambda: handle.status().files > files + 4 and handle.status().waiting is None)
    assert handle.changefeed is changefeed
    finished(handle, settings)
