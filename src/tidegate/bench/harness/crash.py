"""A changefeed that is killed at a chosen point: a store that kills there, and the process that runs it.

The stores of all processes count the calls at a point (`points`) together, in files of a `control` directory. The
process that reaches the number kills the driver, and then itself so that it does nothing more. If the point is about a
worker, it kills itself alone.

The process (`command`) runs one changefeed until it is killed, or until the file `<control>/stop` exists. What it
notices it writes to `<control>/said`, one JSON line each.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar, cast

from tidegate.bench.harness.points import AFTER, BEFORE, COPY, DRIVER, HOLDING, INGESTING, POINTS, WORKER, Point
from tidegate.config.settings import Settings, load_settings
from tidegate.driver import journal
from tidegate.executor.jobs import IngestJob
from tidegate.executor.segments import FileRoom
from tidegate.spark.handle import Handle, start_source
from tidegate.spark.session import local_session
from tidegate.storage.access import NO_ACCESS, Access
from tidegate.storage.objects import ObjectStore
from tidegate.storage.store import Store, open_store

_POLL_S = 0.02
_COMPACT_AFTER = 8  # journal entries, so that a run of seconds compacts
_HELD_BYTES = 512 << 10  # accepted while no data file can land, then the driver dies
_MID_WRITE_S = 0.002  # from the opening of a spool file to the death of the worker that writes it

T = TypeVar("T")


@dataclass(frozen=True)
class Run:
    """One life of the changefeed; `number` says which call at the point kills.

    On an object store, files of more than `one_put_bytes` are uploaded aside and copied; None leaves the limit alone.
    """

    source: str
    sink_uri: str
    spool: str
    control: str
    options: dict[str, str] = field(default_factory=dict)
    point: str = ""
    number: int = 1
    one_put_bytes: int | None = None

    @property
    def settings(self) -> Settings:
        return load_settings(self.sink_uri, None, {"spool.dir": self.spool, **self.options})


@dataclass(frozen=True)
class DeadlyStores:
    """Opens stores that kill at a point; a value that goes to the workers. `driver` is the pid to kill."""

    control: str
    driver: int
    point: Point
    number: int = 1
    one_put_bytes: int | None = None

    def __call__(self, sink_uri: str, access: Access = NO_ACCESS) -> Store:
        return _deadly(self, sink_uri, access)

    def act(self, operation: str, path: str, act: Callable[[], T]) -> T:
        self.meet(operation, path, BEFORE)
        done = act()
        self.meet(operation, path, AFTER)
        return done

    def meet(self, operation: str, path: str, moment: str) -> None:
        """A call comes by: it may be the last one of this process."""
        where = DRIVER if os.getpid() == self.driver else WORKER
        if not self.point.matches(operation, path, moment, where):
            return
        if self.point.name == HOLDING:
            time.sleep(3600)
        elif self._count() >= self.number:
            self.kill(f"{moment} {operation} {path}")

    def kill(self, told: str) -> None:
        """The first process to come here kills; a worker that is not to die alone takes the driver with it."""
        if not claim(self.control, told):
            return
        if self.point.victim == DRIVER:
            os.kill(self.driver, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    def _count(self) -> int:
        """How many such calls there have been in all processes, this one among them."""
        counted = os.open(Path(self.control, "count"), os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        with contextlib.closing(os.fdopen(counted, "ab", buffering=0)) as file:
            file.write(b".")
            return file.tell()


def claim(control: str, told: str) -> bool:
    """True for the one process that may kill; `told` says where it did."""
    try:
        mark = os.open(Path(control, "fired"), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        return False
    os.write(mark, told.encode())
    os.close(mark)
    return True


@functools.lru_cache(maxsize=16)
def _deadly(stores: DeadlyStores, sink_uri: str, access: Access) -> Store:
    """One for each process and sink, as object stores are."""
    if stores.one_put_bytes is not None:
        access = replace(access, one_put_bytes=stores.one_put_bytes)
    store = open_store(sink_uri, access)
    if isinstance(store, ObjectStore):
        _make_copies_deadly(store, stores)
    return cast(Store, _DeadlyStore(store, stores))


def _make_copies_deadly(store: ObjectStore, stores: DeadlyStores) -> None:
    large, copy = store._large, store._large._copy

    def deadly(source: str, path: str) -> bool:
        return stores.act(COPY, path, lambda: copy(source, path))

    large._copy = deadly  # type: ignore[method-assign]


class _DeadlyStore:
    """Asks a plain store, and may kill before or after."""

    def __init__(self, plain: Store, stores: DeadlyStores) -> None:
        self._plain, self._stores = plain, stores

    def __getattr__(self, name: str) -> Any:
        asked = getattr(self._plain, name)
        if name not in _WRITES:
            return asked
        return lambda path, *rest: self._stores.act(name, path, lambda: asked(path, *rest))


_WRITES = ("create", "create_bytes", "put", "swap", "delete")


class DeadlyDirectory(str):
    """A spool directory; soon after a task has asked for the path of a file in it, its worker dies in mid-write."""

    control: str

    def __new__(cls, path: str, control: str) -> DeadlyDirectory:
        made = super().__new__(cls, path)
        made.control = control
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return DeadlyDirectory, (str(self), self.control)

    def __format__(self, spec: str) -> str:
        if claim(self.control, f"amid writing a spool file in {self!s}"):
            threading.Timer(_MID_WRITE_S, os.kill, (os.getpid(), signal.SIGKILL)).start()
        return format(str(self), spec)


# -- the process -------------------------------------------------------------------------------------------------------


def command(run: Run) -> list[str]:
    """Starts the process; not with -m, since what goes to the workers must be found there under its own module."""
    return [sys.executable, "-c", f"from {__name__} import main; main()", json.dumps(asdict(run))]


def main() -> None:
    run = Run(**json.loads(sys.argv[1]))
    journal._COMPACT_AFTER = _COMPACT_AFTER
    point, settings, parent = POINTS.get(run.point, Point("none")), run.settings, os.getppid()
    local_session()
    say(run, "session")
    stores = DeadlyStores(run.control, os.getpid(), point, run.number, run.one_put_bytes)
    handle = start_source(run.source, settings, store_opener=stores)
    say(run, "started")
    if point.name == INGESTING:
        _make_ingest_deadly(handle, run.control)
    told: dict[str, int] = {}
    while not handle.await_termination(_POLL_S):
        told = _tell(run, handle, told)
        if Path(run.control, "stop").exists():
            handle.stop()
        if os.getppid() != parent:
            os._exit(1)  # nobody would look at what comes
        if point.name == HOLDING and handle.changefeed.totals.bytes_accepted >= _HELD_BYTES:
            stores.kill(f"with {handle.changefeed.totals.bytes_accepted} bytes accepted and none landed")
    say(run, "ended")


def _tell(run: Run, handle: Handle, told: dict[str, int]) -> dict[str, int]:
    """The totals, if they have changed since the last time."""
    totals = handle.changefeed.totals
    now = {"accepted": totals.rows_accepted, "landed": totals.rows_landed, "restarts": handle.restarts}
    if now != told:
        say(run, "totals", **now)
    return now


def say(run: Run, what: str, **more: Any) -> None:
    line = json.dumps({"what": what, "at": time.monotonic(), **more}) + "\n"
    with open(Path(run.control, "said"), "ab", buffering=0) as file:
        file.write(line.encode())


def _make_ingest_deadly(handle: Handle, control: str) -> None:
    changefeed, ingest_job = handle.changefeed, handle.changefeed.intake.ingest_job

    def deadly(tasks: int, allowance_bytes: int) -> IngestJob:
        job = ingest_job(tasks, allowance_bytes)
        room = cast(FileRoom, job.room)
        memory, disk = (DeadlyDirectory(d, control) if d else d for d in (room.memory_dir, room.disk_dir))
        return replace(job, room=replace(room, memory_dir=memory, disk_dir=disk))

    changefeed.intake.ingest_job = deadly  # type: ignore[method-assign]
