"""The process of a changefeed that is to be killed, seen from outside: started, watched, killed, and surely gone.

Its JVM has a session of its own and lives a moment longer, and so do its workers. All have a token in their
environment, by which they are found. Those that do not end by themselves are ended by their ids.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from tidegate.bench.harness.crash import Run, command
from tidegate.errors import TidegateError

_TOKEN = "TIDEGATE_BENCH_RUN"
_JAVA_OPTIONS = "JDK_JAVA_OPTIONS"  # read by every JVM that is started
_POLL_S = 0.02
_LEAVE_S = 5.0  # workers and JVM end by themselves within this


class TooLong(Exception):
    """What was waited for has not come."""


class Victim:
    """A run of the changefeed, its JVM and its workers; when it is left none of them is alive."""

    def __init__(self, run: Run, java_options: str = "") -> None:
        self._run, self._control, self._token = run, Path(run.control), uuid.uuid4().hex
        self._environment = {**os.environ, _TOKEN: self._token}
        if java_options:
            self._environment[_JAVA_OPTIONS] = f"{os.environ.get(_JAVA_OPTIONS, '')} {java_options}".strip()
        self._read, self._said = 0, list[dict[str, Any]]()

    def __enter__(self) -> Victim:
        self._control.mkdir(parents=True)
        self._started = time.monotonic()
        with open(self._control / "log", "wb") as log:
            # In a session of its own: Ctrl-C is for the benchmark, which then kills it.
            self._child = subprocess.Popen(
                command(self._run), stdout=log, stderr=log, env=self._environment, start_new_session=True
            )
        return self

    def __exit__(self, *_: object) -> None:
        """The JVM and the workers end by themselves when the driver is gone; who does not is ended by its id."""
        if self.said("ended") is None:
            self._child.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(_LEAVE_S)
        self._child.kill()
        self._child.wait()
        until = time.monotonic() + _LEAVE_S
        while left := _processes(self._token):
            if time.monotonic() > until:
                for pid in left:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            time.sleep(_POLL_S)

    @property
    def alive(self) -> bool:
        return self._child.poll() is None

    @property
    def fired(self) -> str | None:
        """Where the point killed; None as long as it has not."""
        try:
            return (self._control / "fired").read_text() or None
        except FileNotFoundError:
            return None

    @property
    def accepted(self) -> int:
        return int((self.said("totals") or {"accepted": 0})["accepted"])

    @property
    def landed(self) -> int:
        return int((self.said("totals") or {"landed": 0})["landed"])

    def said(self, what: str) -> dict[str, Any] | None:
        """The last thing of this kind that it said."""
        with contextlib.suppress(FileNotFoundError), open(self._control / "said", "rb") as file:
            file.seek(self._read)
            for line in file:
                if line.endswith(b"\n"):
                    self._said.append(json.loads(line))
                    self._read += len(line)
        return next((said for said in reversed(self._said) if said["what"] == what), None)

    def age(self) -> float:
        return time.monotonic() - self._started

    def first_landing_s(self) -> float | None:
        self.said("")
        found = (said["at"] - self._started for said in self._said if said.get("landed"))
        return next(found, None)

    def kill(self) -> None:
        self._child.kill()

    def stop(self, seconds: float) -> None:
        """End in order, with all that was accepted landed."""
        Path(self._control, "stop").touch()
        self.wait(lambda: self.said("ended") is not None, seconds, "stop in order")

    def outlive(self, seconds: float) -> bool:
        """Wait until its JVM and its workers have ended by themselves; False if they did not."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if not self.alive and not _processes(self._token):
                return True
            time.sleep(_POLL_S)
        return False

    def wait(self, until: Callable[[], bool], seconds: float, for_what: str = "") -> None:
        """Until it is so. A process that ends by itself, or takes too long, has failed to do `for_what`."""
        patience = time.monotonic() + seconds
        while not until():
            code = self._child.poll()
            if code is not None and code != -signal.SIGKILL and self.said("ended") is None:
                raise TidegateError(f"the changefeed ended by itself with code {code}: {self._last_words()}")
            if time.monotonic() > patience:
                if not for_what:
                    raise TooLong
                raise TidegateError(f"the changefeed did not {for_what} within {seconds:g} s: {self._last_words()}")
            time.sleep(_POLL_S)

    def _last_words(self) -> str:
        lines = (self._control / "log").read_text(errors="replace").strip().splitlines()
        return "\n".join(["", *lines[-15:]]) if lines else "it said nothing"


def _processes(token: str) -> list[int]:
    """The processes that have this token in their environment: a run's driver, its JVM and all workers."""
    living = psutil.process_iter(["pid", "environ"])
    return [process.pid for process in living if (process.info["environ"] or {}).get(_TOKEN) == token]
