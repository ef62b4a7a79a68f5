"""The test kit, shipped for tests of Tidegate and of what is built on it: a clock that is moved by hand, stores that
fail on command, a changefeed driven without Spark. Nothing is patched: each part is a value handed to what is tested.

    store = MemoryStore(script=["ok", "lost"])      the second write is done, but its answer gets lost
    faults = FaultyFileStore("/tmp/faults")          for worker processes: steered through files in a directory
    faults.begin("hang", "shop/orders/")             from now on every call on such a path blocks ...
    faults.end("hang", "shop/orders/")               ... until here

What a store can be told to do with a call:

    ok           do it
    refuse       do nothing, raise StoreRefused
    unavailable  do nothing, raise StoreUnavailable
    lost         do it, then raise StoreUnavailable: the answer was lost
    hang         wait until the fault ends, then do it
    late         do it, then wait until the fault ends before answering
    slow         wait some seconds, then do it                                       (FaultyFileStore only)
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, unquote, urlsplit

import pyarrow as pa

from tidegate.clock import Clock
from tidegate.config.settings import Settings
from tidegate.driver.changefeed import Changefeed
from tidegate.driver.jobs import FileLander, Jobs, SchemaLander
from tidegate.errors import BadSetting, StoreConflict, StoreRefused, StoreUnavailable
from tidegate.events import EVENTS, INSERT, LAYOUT, RESOLVED, tso
from tidegate.executor.ingest import ingest
from tidegate.executor.jobs import LandJob, LandOptions
from tidegate.executor.land import land_files, land_schemas
from tidegate.executor.rows import ITEMS, SchemaPlan
from tidegate.format.decode.csv import Line, decode
from tidegate.format.encode.csv import CsvOptions
from tidegate.format.layout import (
    DataKey,
    PathOptions,
    data_path,
    index_path,
    parse_index_path,
    parse_index_text,
    schema_versions,
)
from tidegate.format.tables import Column, Layout
from tidegate.observe.metrics import Metrics
from tidegate.spark.wiring import changefeed_options
from tidegate.storage.access import NO_ACCESS, Access
from tidegate.storage.files import FileStore
from tidegate.storage.store import Beat, Slices, Store, content_tag

OK, REFUSE, UNAVAILABLE, LOST, HANG, LATE, SLOW = "ok", "refuse", "unavailable", "lost", "hang", "late", "slow"
WORDS = (OK, REFUSE, UNAVAILABLE, LOST)  # what a script may say
FAULTS = (REFUSE, UNAVAILABLE, LOST, HANG, LATE, SLOW)  # what a path may have
_POLL_S = 0.02

T = TypeVar("T")


class FakeClock:
    """Both clocks stop until `advance`: `FakeClock().advance(2.0)`."""

    def __init__(self, wall: datetime = datetime(2026, 1, 31, 12, tzinfo=UTC)) -> None:
        self._steady, self._wall = 1_000.0, wall

    def steady(self) -> float:
        return self._steady

    def wall(self) -> datetime:
        return self._wall

    def advance(self, seconds: float) -> None:
        if seconds < 0:
            raise BadSetting(f"a clock cannot be advanced by {seconds} s")
        self._steady += seconds
        self._wall += timedelta(seconds=seconds)


def until(condition: Callable[[], bool], seconds: float = 240.0) -> None:
    """Wait for a state of what runs in other threads or processes; a test's own time-out, not a measurement."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            raise AssertionError(f"it did not happen within {seconds:g} s")
        time.sleep(0.05)


# -- stores ----------------------------------------------------------------------------------------------------------


@dataclass
class MemoryStore:
    """A store in a dict. The n-th writing call does what the n-th word of `script` says, later ones what `after` says.

    A process killed before its third write is `MemoryStore(["ok", "ok"], after="unavailable", objects=shared)`. A fault
    given to `begin` stands for all calls, reading ones too, on paths that contain its part. `calls` lists what was
    asked, in order, done or not.
    """

    script: Sequence[str] = ()
    after: str = OK
    objects: dict[str, bytes] = field(default_factory=dict)
    concurrency: int | None = None
    calls: list[tuple[str, str]] = field(default_factory=list)
    writes: int = 0
    _faults: dict[tuple[str, str], threading.Event] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        for word in (*self.script, self.after):
            _check_word(word, WORDS)

    def begin(self, fault: str, part: str = "") -> None:
        _check_word(fault, FAULTS[:-1])
        self._faults[fault, part] = threading.Event()

    def end(self, fault: str, part: str = "") -> None:
        self._faults.pop((fault, part)).set()

    def prepare(self) -> None:
        pass

    def create(self, path: str, head: bytes, slices: Slices, beat: Beat) -> None:
        def act() -> None:
            beat(slices.size)
            data = head + _read(slices)
            beat(0)
            with self._lock:
                found = self.objects.setdefault(path, data)
            if len(found) != len(data):
                raise StoreConflict(f"{path} exists with {len(found)} bytes where {len(data)} were to be written")
            if found != data:
                raise StoreConflict(f"{path} exists with other content than the {len(data)} bytes to be written")

        self._write("create", path, act)

    def create_bytes(self, path: str, data: bytes) -> bool:
        def act() -> bool:
            with self._lock:
                return path not in self.objects and self.objects.setdefault(path, data) is data

        return self._write("create_bytes", path, act)

    def put(self, path: str, data: bytes) -> None:
        self._write("put", path, lambda: self.objects.__setitem__(path, data))

    def swap(self, path: str, data: bytes, tag: str) -> str | None:
        def act() -> str | None:
            with self._lock:
                found = self.objects.get(path)
                if (content_tag(found) if found is not None else "") != tag:
                    return None
                self.objects[path] = data
                return content_tag(data)

        return self._write("swap", path, act)

    def get(self, path: str) -> bytes | None:
        return self._read("get", path, lambda: self.objects.get(path))

    def tag_of(self, data: bytes) -> str | None:
        """As an object store, whose tags are its own."""
        return None

    def get_tagged(self, path: str) -> tuple[bytes, str] | None:
        found = self.get(path)
        return (found, content_tag(found)) if found is not None else None

    def modified(self, path: str) -> float | None:
        return self._read("modified", path, lambda: time.time() if path in self.objects else None)

    def get_range(self, path: str, offset: int, length: int) -> bytes | None:
        data = self.get(path)
        return data[offset : offset + length] if data is not None else None

    def size(self, path: str) -> int | None:
        return self._read("size", path, lambda: len(self.objects[path]) if path in self.objects else None)

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        below = f"{prefix}/" if prefix else ""
        with self._lock:
            found = sorted((path, len(data)) for path, data in self.objects.items() if path.startswith(below))
        return self._read("list", prefix, lambda: iter(found))

    def delete(self, path: str) -> None:
        self._write("delete", path, lambda: self.objects.pop(path, None))

    def _write(self, op: str, path: str, act: Callable[[], T]) -> T:
        with self._lock:
            word = self.script[self.writes] if self.writes < len(self.script) else self.after
            self.writes += 1
        return self._read(op, path, lambda: _do(word, path, act))

    def _read(self, op: str, path: str, act: Callable[[], T]) -> T:
        with self._lock:
            self.calls.append((op, path))
            standing = [(fault, ended) for (fault, part), ended in self._faults.items() if part in path]
        for fault, ended in standing:
            act = _faulty(fault, path, act, ended.wait)
        return act()


@dataclass(frozen=True)
class FaultyFileStore:
    """Opens `file://` stores whose faults are files in the directory `control`, so that they work in any process.

    A fault is the file `<control>/<fault>/<part of a path, quoted>` and lasts as long as that file. Pass the opener
    where a store opener is asked for; it can be pickled. Calls of all processes are noted in `<control>/calls`.
    A `slow` call waits with `sleep`.
    """

    control: str
    sleep: Callable[[float], object] = time.sleep

    def __call__(self, sink_uri: str, access: Access = NO_ACCESS) -> Store:
        return _SteeredStore(Path(unquote(urlsplit(sink_uri).path)), Path(self.control), self.sleep)

    def begin(self, fault: str, part: str = "", seconds: float = 0.0) -> None:
        """`begin("slow", "shop/", seconds=0.5)`; without a part the fault stands for every path."""
        path = self._file(fault, part)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(seconds))

    def end(self, fault: str, part: str = "") -> None:
        self._file(fault, part).unlink()

    def calls(self) -> list[tuple[str, str]]:
        """(operation, path) of every call so far, in the order they came in."""
        noted = Path(self.control, "calls")
        lines = noted.read_text().splitlines() if noted.exists() else []
        return [(op, unquote(path)) for op, path in (line.split(" ", 1) for line in lines)]

    def _file(self, fault: str, part: str) -> Path:
        _check_word(fault, FAULTS)
        return Path(self.control, fault, f"part-{quote(part, safe='')}")


class _SteeredStore(FileStore):
    def __init__(self, root: Path, control: Path, sleep: Callable[[float], object]) -> None:
        super().__init__(root)
        self._control, self._sleep = control, sleep

    def create(self, path: str, head: bytes, slices: Slices, beat: Beat) -> None:
        self._steer("create", path, lambda: FileStore.create(self, path, head, slices, beat))

    def create_bytes(self, path: str, data: bytes) -> bool:
        return self._steer("create_bytes", path, lambda: FileStore.create_bytes(self, path, data))

    def put(self, path: str, data: bytes) -> None:
        self._steer("put", path, lambda: FileStore.put(self, path, data))

    def swap(self, path: str, data: bytes, tag: str) -> str | None:
        return self._steer("swap", path, lambda: FileStore.swap(self, path, data, tag))

    def get(self, path: str) -> bytes | None:
        return self._steer("get", path, lambda: FileStore.get(self, path))

    def size(self, path: str) -> int | None:
        return self._steer("size", path, lambda: FileStore.size(self, path))

    def delete(self, path: str) -> None:
        self._steer("delete", path, lambda: FileStore.delete(self, path))

    def _steer(self, op: str, path: str, act: Callable[[], T]) -> T:
        self._note(f"{op} {quote(path)}\n")
        for fault in FAULTS:
            for file in _parts_in(self._control / fault, path):
                act = _faulty(fault, path, act, partial(_while_exists, file), partial(self._be_slow, file))
        return act()

    def _be_slow(self, file: Path) -> None:
        self._sleep(float(_text(file) or 0.0))

    def _note(self, line: str) -> None:
        self._control.mkdir(parents=True, exist_ok=True)
        with open(self._control / "calls", "ab", buffering=0) as file:
            file.write(line.encode())


def _check_word(word: str, known: Iterable[str]) -> None:
    if word not in known:
        raise BadSetting(f"unknown fault {word!r}; known: {', '.join(known)}")


def _do(word: str, path: str, act: Callable[[], T]) -> T:
    if word == REFUSE:
        raise StoreRefused(f"{path}: refused on command")
    if word == UNAVAILABLE:
        raise StoreUnavailable(f"{path}: unavailable on command")
    done = act()
    if word == LOST:
        raise StoreUnavailable(f"{path}: the answer was lost on command")
    return done


def _faulty(
    fault: str, path: str, act: Callable[[], T], wait: Callable[[], object], be_slow: Callable[[], None] | None = None
) -> Callable[[], T]:
    """`act` with one fault around it."""

    def faulty() -> T:
        if fault == HANG:
            wait()
        if fault == SLOW and be_slow is not None:
            be_slow()
        done = _do(fault, path, act)
        if fault == LATE:
            wait()
        return done

    return faulty


def _parts_in(folder: Path, path: str) -> list[Path]:
    names = os.listdir(folder) if folder.is_dir() else []
    return [folder / name for name in names if unquote(name.removeprefix("part-")) in path]


def _while_exists(file: Path) -> None:
    while file.exists():
        time.sleep(_POLL_S)


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except FileNotFoundError:
        return ""


def _read(slices: Slices) -> bytes:
    data = bytearray(slices.size)
    with closing(slices.open()) as stream:
        stream.fill(memoryview(data))
    return bytes(data)


# -- changes ---------------------------------------------------------------------------------------------------------

SHAPE = Layout((Column("id", "int", pk=True, nullable=False), Column("v", "varchar", flen=64)))
START_TS = tso(1_767_225_600_000)  # 2026-01-01


def change(
    table_id: int, ts: int, seq: int, *values: bytes | None, kind: str = INSERT, **columns: Any
) -> dict[str, Any]:
    """One row of the events schema: `change(7, ts, 1, b"1", b"x")` is an insert into `shop.t7`."""
    shown = list(values) or [str(seq).encode(), f"v{seq}".encode()]
    sides = {"after": shown if kind != "delete" else None, "before": shown if kind != INSERT else None}
    row = {"kind": kind, "schema_name": "shop", "table_name": f"t{table_id}", "table_id": table_id}
    row |= {"logical_table_id": table_id, "table_version": START_TS, "commit_ts": ts, "start_ts": ts - 1, "seq": seq}
    return row | {"layout": SHAPE.fingerprint} | sides | columns


def layout_row(layout: Layout = SHAPE) -> dict[str, Any]:
    return {"kind": LAYOUT, "commit_ts": 0, "seq": 0, "layout": layout.fingerprint, "ddl": layout.to_json()}


def resolved_row(ts: int) -> dict[str, Any]:
    return {"kind": RESOLVED, "commit_ts": ts, "seq": 0}


def events_batch(rows: Iterable[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=EVENTS)


@dataclass(frozen=True)
class TinySource:
    """A deterministic finite source: batch n holds `rows` transactions, each with one insert into every table."""

    tables: int = 2
    batches: int = 3
    rows: int = 2

    def batch(self, n: int) -> list[dict[str, Any]]:
        return [layout_row(), *self.changes(n), resolved_row(self.resolved_ts(n))]

    def changes(self, n: int) -> list[dict[str, Any]]:
        steps = range(n * self.rows, (n + 1) * self.rows)
        return [change(t + 1, START_TS + 1 + s, s * self.tables + t) for s in steps for t in range(self.tables)]

    def resolved_ts(self, n: int) -> int:
        return START_TS + (n + 1) * self.rows

    def lines(self) -> dict[str, list[tuple[bytes | None, ...]]]:
        """The values that must be on the sink in the end, in order, by table."""
        found: dict[str, list[tuple[bytes | None, ...]]] = {}
        for row in (row for n in range(self.batches) for row in self.changes(n)):
            found.setdefault(f"shop.{row['table_name']}", []).append(tuple(row["after"]))
        return found


# -- a changefeed without Spark ----------------------------------------------------------------------------------------


def in_process_landers(stall_s: float = 2.0) -> tuple[FileLander, SchemaLander]:
    """Land files and schema files in the calling thread's process, where the pipeline would run Spark jobs."""

    def files(plans: pa.Table, job: LandJob) -> pa.Table:
        return land_files(plans, replace(job, options=replace(job.options, stall_s=stall_s)))

    def schemas(plans: list[SchemaPlan], options: LandOptions) -> pa.Table:
        return land_schemas(plans, replace(options, stall_s=stall_s))

    return files, schemas


def tiny_settings(spool_dir: str | Path, **settings: Any) -> Settings:
    """Settings of a changefeed "tiny" on a sink that is given as a store; `settings` are fields of `Settings`."""
    given = {"sink_uri": "file:///sink", "scheme": "file", "changefeed_id": "tiny", **settings}
    return Settings(**given, spool_dir=str(spool_dir))


def open_changefeed(
    store: Store, spool_dir: str | Path, clock: Clock | None = None, stall_s: float = 2.0, **settings: Any
) -> Changefeed:
    """A changefeed on `store`, not started: make its steps by hand (`landing.land_next`, `scribe.write_progress`).

    `open_changefeed(store, tmp_path, flush_interval_s=1.0)`; settings are fields of `Settings`.
    """
    options = changefeed_options(tiny_settings(spool_dir, **settings), lambda *_: store)
    metrics, jobs = Metrics(options.changefeed_id), Jobs(*in_process_landers(stall_s))
    return Changefeed(options, store, clock or FakeClock(), metrics, jobs)


def feed(changefeed: Changefeed, batch: int, rows: Iterable[dict[str, Any]], end: str | None = None) -> None:
    """What the query's callback does with one micro-batch, but for waiting for its wake."""
    intake, events = changefeed.intake, events_batch(rows)

    def ingested() -> pa.Table:
        job = intake.ingest_job(tasks=1, allowance_bytes=1 << 30)
        return pa.Table.from_batches(ingest([events], job, f"{batch}-0-0"), ITEMS)

    intake.accept(batch, intake.ingest(batch, ingested), end)


def landed_lines(
    store: Store, paths: PathOptions | None = None, csv: CsvOptions | None = None, layout: Layout = SHAPE
) -> dict[str, list[Line]]:
    """What a reader that follows the index files sees: the lines of every table, in the order of its files."""
    paths = paths or PathOptions()
    found: dict[str, list[Line]] = {}
    for path, _ in sorted(store.list("")):
        key = parse_index_path(path, paths)
        if key is None:
            continue
        _, last = parse_index_text((store.get(path) or b"").decode(), paths.extension)
        lines = found.setdefault(f"{key.schema}.{key.table}", [])
        for number in range(1, last + 1):
            data = store.get(data_path(key, number, paths))
            if data is None:
                raise StoreRefused(f"{path} says {last} but file {number} is not there")
            lines.extend(decode(data, layout, csv or CsvOptions()))
    return found


@dataclass
class Consumer:
    """Reads a sink as TiCDC's consumer does, a round at a time; `taken` are the lines in the order it applies them.

    In a round it reads the files that are new, by version, partition and date. It keeps one mark for each schema, table
    and partition: a line below it goes to `dropped`, unless the file's name has a dispatcher.
    """

    paths: PathOptions = field(default_factory=PathOptions)
    csv: CsvOptions = field(default_factory=lambda: CsvOptions(include_commit_ts=True))
    layout: Layout = SHAPE
    taken: list[Line] = field(default_factory=list)
    dropped: list[Line] = field(default_factory=list)
    _read: dict[DataKey, int] = field(default_factory=dict)  # the last number of each index
    _marks: dict[tuple[str, str, int], int] = field(default_factory=dict)

    def round(self, store: Store) -> None:
        found = [(key, path) for path, _ in store.list("") if (key := parse_index_path(path, self.paths)) is not None]
        for key, path in sorted(found, key=lambda one: (one[0].version, _partition(one[0]), one[0].date, one[0])):
            _, last = parse_index_text((store.get(path) or b"").decode(), self.paths.extension)
            self._refuse_without_schema(store, key)
            for number in range(self._read.get(key, 0) + 1, last + 1):
                self._take(key, decode(store.get(data_path(key, number, self.paths)) or b"", self.layout, self.csv))
            self._read[key] = last

    def _refuse_without_schema(self, store: Store, key: DataKey) -> None:
        folder = f"{index_path(key, self.paths).split(f'/{key.version}/')[0]}/meta"
        if key.version not in schema_versions(path for path, _ in store.list(folder)):
            raise StoreRefused(f"{folder} has no schema file of version {key.version}")

    def _take(self, key: DataKey, lines: Iterable[Line]) -> None:
        group = (key.schema, key.table, _partition(key))
        for line in lines:
            ts, mark = line.commit_ts or 0, self._marks.get(group, 0)
            (self.taken if ts >= mark or key.dispatcher else self.dropped).append(line)
            self._marks[group] = max(ts, mark)


def _partition(key: DataKey) -> int:
    return key.table_id if key.is_partition else 0
