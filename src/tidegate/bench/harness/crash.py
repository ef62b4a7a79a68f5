"""A changefeed that is killed at a chosen point: the points, a store that kills there, and the process that runs it.

A point is a call on the store: the n-th one of its operations on a path that matches, before or after it is done. The
stores of all processes count these calls together, in files of a `control` directory. The process that reaches the
number kills the driver, and then itself so that it does nothing more. If the point is about a worker, it kills itself
alone. The points in which a worker ingests are no calls on the store: there the opening of a spool file kills.

The process (`command`) runs one changefeed until it is killed, or until the file `<control>/stop` exists. What it
notices it writes to `<control>/said`, one JSON line each.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import quote, unquote, urlsplit

from tidegate.config.settings import Settings, load_settings
from tidegate.driver import journal
from tidegate.executor.jobs import IngestJob
from tidegate.executor.segments import FileRoom
from tidegate.spark.handle import Handle, start_source
from tidegate.spark.session import local_session
from tidegate.storage.access import NO_ACCESS, Access
from tidegate.storage.files import FileStore
from tidegate.storage.store import Beat, Slices, Store

BEFORE, AFTER = "before", "after"
DRIVER, WORKER = "driver", "worker"
_POLL_S = 0.02
_COMPACT_AFTER = 8  # journal entries, so that a run of seconds compacts
_HELD_BYTES = 512 << 10  # accepted while no data file can land, then the driver dies
_MID_WRITE_S = 0.002  # from the opening of a spool file to the death of the worker that writes it

_DATA, _INDEX, _SCHEMA = r"/CDC\w*\.csv$", r"/meta/CDC\w*\.index$", r"/meta/schema_\w+\.json$"
_ENTRY, _SNAPSHOT = r"^_tidegate/journal/\d+\.entry$", r"^_tidegate/journal/\d+\.snapshot$"
_PUTS = ("put", "swap", "create_bytes")

T = TypeVar("T")


@dataclass(frozen=True)
class Point:
    """Where a process dies: `Point("takeover", ("create_bytes",), _ENTRY, AFTER, DRIVER)` with the first entry."""

    name: str
    operations: tuple[str, ...] = ()
    path: str = ""
    moment: str = AFTER
    where: str = ""  # calls of the driver, of workers, or (empty) of both count
    first: int = 1  # the call that kills is one of first ... last, by chance
    last: int = 1
    victim: str = DRIVER

    def matches(self, operation: str, path: str, moment: str, where: str) -> bool:
        same = operation in self.operations and moment == self.moment and self.where in ("", where)
        return same and re.search(self.path, path) is not None


POINTS = {
    point.name: point
    for point in (
        Point("data-before-index", ("create",), _DATA, AFTER, WORKER, 1, 8),
        Point("takeover", ("create_bytes",), _ENTRY, AFTER, DRIVER),
        Point("index-before-confirm", _PUTS, _INDEX, AFTER, WORKER, 1, 8),
        Point("adoption", _PUTS, _INDEX, AFTER, DRIVER),
        Point("intent-before-data", ("create_bytes",), _ENTRY, AFTER, DRIVER, 2, 6),
        Point("before-confirming", ("create_bytes",), _ENTRY, BEFORE, DRIVER, 2, 8),
        Point("before-snapshot", _PUTS, _SNAPSHOT, BEFORE, DRIVER, 1, 2),
        Point("after-snapshot", _PUTS, _SNAPSHOT, AFTER, DRIVER, 1, 2),
        Point("amid-deletes", ("delete",), _ENTRY, AFTER, DRIVER, 2, 14),
        Point("before-schema-file", ("create_bytes",), _SCHEMA, BEFORE, WORKER, 1, 3),
        Point("after-schema-file", ("create_bytes",), _SCHEMA, AFTER, WORKER, 1, 3),
        Point("accepted-not-landed", ("create",), _DATA, BEFORE, WORKER),
        Point("land-worker", ("create",), _DATA, AFTER, WORKER, 1, 8, victim=WORKER),
        Point("ingest-worker", victim=WORKER),
    )
}
HOLDING, INGESTING = "accepted-not-landed", "ingest-worker"  # the two that are more than a call on the store


@dataclass(frozen=True)
class Run:
    """One life of the changefeed; `number` says which call at the point kills."""

    source: str
    sink: str
    spool: str
    control: str
    options: dict[str, str] = field(default_factory=dict)
    point: str = ""
    number: int = 1

    @property
    def settings(self) -> Settings:
        return load_settings(f"file://{quote(self.sink)}", None, {"spool.dir": self.spool, **self.options})


@dataclass(frozen=True)
class DeadlyStores:
    """Opens stores that kill at a point; a value that goes to the workers. `driver` is the pid to kill."""

    control: str
    driver: int
    point: Point
    number: int = 1

    def __call__(self, sink_uri: str, access: Access = NO_ACCESS) -> Store:
        return _DeadlyStore(Path(unquote(urlsplit(sink_uri).path)), self)

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


class _DeadlyStore(FileStore):
    def __init__(self, root: Path, stores: DeadlyStores) -> None:
        super().__init__(root)
        self._stores = stores

    def create(self, path: str, head: bytes, slices: Slices, beat: Beat) -> None:
        self._act("create", path, lambda: FileStore.create(self, path, head, slices, beat))

    def create_bytes(self, path: str, data: bytes) -> bool:
        return self._act("create_bytes", path, lambda: FileStore.create_bytes(self, path, data))

    def put(self, path: str, data: bytes) -> None:
        self._act("put", path, lambda: FileStore.put(self, path, data))

    def swap(self, path: str, data: bytes, tag: str) -> str | None:
        return self._act("swap", path, lambda: FileStore.swap(self, path, data, tag))

    def delete(self, path: str) -> None:
        self._act("delete", path, lambda: FileStore.delete(self, path))

    def _act(self, operation: str, path: str, act: Callable[[], T]) -> T:
        self._stores.meet(operation, path, BEFORE)
        done = act()
        self._stores.meet(operation, path, AFTER)
        return done


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
    stores = DeadlyStores(run.control, os.getpid(), point, run.number)
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
