"""Clients of a database as processes of their own, so that their work is theirs and not the benchmark's.

A client is told what to do in JSON (`Task`), says `ready`, waits for a line, works until it has done all or its input
ends, says what it did, and waits until its input ends. So it lives until its processor time has been read.
"""

from __future__ import annotations

import contextlib
import json
import random
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pymysql
from pymysql.connections import Connection

from tidegate.bench.harness.memory import cpu_seconds
from tidegate.errors import TidegateError

_PATIENCE_S = 300.0


@dataclass(frozen=True)
class Task:
    """`load` names a function of LOADS in the module `module`, which gets the other values."""

    module: str
    load: str
    port: int
    number: int
    values: dict[str, Any] = field(default_factory=dict)


class Work:
    """What a load sees: its connection, its chance, and whether it should go on."""

    def __init__(self, task: Task) -> None:
        self.task, self.values = task, task.values
        self.chance = random.Random(f"{task.values.get('seed', 1)}-{task.number}")
        self._next_look, self._goes_on = 0.0, True

    def connect(self) -> Connection:
        return pymysql.connect(
            host="127.0.0.1", port=self.task.port, user="root", charset="utf8mb4", autocommit=True, ssl_disabled=True
        )

    def goes_on(self) -> bool:
        """Looks at most every 50 ms whether somebody asked to stop."""
        now = time.monotonic()
        if now >= self._next_look and self._goes_on:
            self._next_look = now + 0.05
            self._goes_on = not select.select([sys.stdin], [], [], 0)[0]
        return self._goes_on


Load = Callable[[Work], dict[str, Any]]


class Client:
    """One such process."""

    def __init__(self, task: Task) -> None:
        code = f"from {__name__} import main; main()"
        self._child = subprocess.Popen(
            [sys.executable, "-c", code, json.dumps(asdict(task))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip
        self.pid, self._is_ready = self._child.pid, False

    def await_ready(self) -> None:
        if not self._is_ready:
            self._is_ready = bool(self._hear()["ready"])

    def go(self) -> None:
        self.await_ready()
        self._tell()

    def stop(self) -> None:
        """Ask it to end its work before it is done."""
        self._tell()

    def done(self) -> dict[str, Any]:
        """Wait for the end of its work; what it says it did."""
        return self._hear()

    @property
    def cpu_s(self) -> float:
        return cpu_seconds(self.pid)

    def end(self) -> None:
        assert self._child.stdin is not None
        with contextlib.suppress(OSError):
            self._child.stdin.close()
        try:
            self._child.wait(5)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def _tell(self) -> None:
        assert self._child.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # one that has ended is noticed by who waits for it
            self._child.stdin.write("\n")
            self._child.stdin.flush()

    def _hear(self) -> dict[str, Any]:
        assert self._child.stdout is not None
        if not select.select([self._child.stdout], [], [], _PATIENCE_S)[0]:
            raise TidegateError(f"a client has said nothing for {_PATIENCE_S:g} s")
        line = self._child.stdout.readline()
        if not line:
            raise TidegateError(f"a client has ended with code {self._child.wait()}; what it said is above")
        said: dict[str, Any] = json.loads(line)
        return said


@contextlib.contextmanager
def running_clients(tasks: Sequence[Task]) -> Iterator[list[Client]]:
    clients = [Client(task) for task in tasks]
    try:
        yield clients
    finally:
        for client in clients:
            client.end()


# The process ----------------------------------------------------------------------------------------------------------


def main() -> None:
    from importlib import import_module

    task = Task(**json.loads(sys.argv[1]))
    load: Load = import_module(task.module).LOADS[task.load]
    work = Work(task)
    _say({"ready": True})
    if not sys.stdin.readline():
        return
    _say(load(work))
    sys.stdin.read()


def _say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)
