"""Executor side of durability: assemble files from the spool, put data, then index; return receipts.

Promises: schema file before the first data file of a version, data before index, the index once per lane and last; one
lane's files in order, different lanes at once. An index never goes back, whoever writes it and however late. No lane
sleeps for a retry: what makes no progress for `stall_s` plus its bytes at 10 MiB/s is given up, returned as hung, and
starts nothing more afterwards; when nothing else has ended meanwhile, what was not begun is returned untried. So one
hanging file delays no receipt of another for long.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from tidegate.errors import SpoolLost, StoreConflict, StoreRefused, StoreUnavailable, TidegateError
from tidegate.executor.rows import CONFLICT, ELSEWHERE, HUNG, LANDED, LOST, RECEIPTS, REFUSED, UNFINISHED
from tidegate.format import layout, tables
from tidegate.format.encode import protocol
from tidegate.storage.access import Access
from tidegate.storage.store import Beat, Store, StoreOpener

_BYTES_PER_S = 10 << 20
_POLL_S = 0.1
_BUSY = 0.6  # lanes that want less than this share of a processor wait for the store: one more may run beside them
_BYTES_IN_FLIGHT = 128 << 20
LANES_PER_WORKER = 8  # small puts mostly wait for the store; large ones are bounded by the bytes in flight
_INDEX_TRIES = 3


@dataclass(frozen=True)
class LandJob:
    segments: dict[int, str]
    layouts: dict[int, str]
    paths: layout.PathOptions
    encoding: protocol.Encoding
    sink_uri: str
    access: Access
    open_store: StoreOpener
    worker_count: int = 16
    output_column_id: bool = False
    stall_s: float = 2.0
    foreign: bool = False  # another writer's files stand on this sink: look before a directory is used first


class _GivenUp(Exception):
    pass


class _Elsewhere(Exception):
    """The schema file of these columns stands under this version, with so many files: the driver decides what next."""

    def __init__(self, version: int, number: int) -> None:
        super().__init__()
        self.version, self.number = version, number


@dataclass(slots=True)
class _Watch:
    """One lane's progress: each operation announces itself; a lane given up stops at its next announcement."""

    stall_s: float
    until: float = 0.0
    given_up: bool = False

    def beat(self, size: int) -> None:
        if self.given_up:
            raise _GivenUp
        self.until = time.monotonic() + self.stall_s + size / _BYTES_PER_S


@dataclass(slots=True)
class _Receipt:
    file: int
    outcome: str = UNFINISHED
    path: str = ""
    bytes: int = 0
    data_s: float = 0.0
    index_s: float = 0.0
    schema_check_s: float = 0.0
    schema_write_s: float = 0.0
    requests: int = 0
    found_version: int = 0
    found_number: int = 0
    error: str | None = None


@dataclass(slots=True)
class _Lane:
    """The files of one lane in this round, and what became of them."""

    plans: list[dict[str, Any]]
    receipts: list[_Receipt]
    watch: _Watch
    bytes: int
    began: float = 0.0
    ended: bool = False


@dataclass
class _Crew:
    """Daemon threads that take lanes one by one; bounded by bytes in flight. A stuck thread is replaced."""

    work: Callable[[_Lane], None]
    lanes: deque[_Lane]
    changed: threading.Condition = field(default_factory=threading.Condition)
    in_flight: int = 0
    waiting: int = 0  # threads whose lane is too large for now
    left: int = 0  # lanes neither ended nor given up
    last_end: float = 0.0

    def start(self, count: int) -> None:
        for _ in range(count):
            threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        lane = None
        while (lane := self._next(lane)) is not None:
            lane.began = time.monotonic()
            self.work(lane)

    def _next(self, done: _Lane | None) -> _Lane | None:
        """Note the end of one and take another."""
        with self.changed:
            if done is not None:
                if done.watch.given_up:  # another thread has taken this one's place
                    return None
                done.ended, self.last_end = True, time.monotonic()
                self._leave(done)
            if not self.lanes:
                return None
            lane = self.lanes.popleft()
            while self.in_flight and self.in_flight + lane.bytes > _BYTES_IN_FLIGHT:
                self.waiting += 1
                self.changed.wait()
                self.waiting -= 1
            self.in_flight += lane.bytes
            return lane

    def give_up(self, lane: _Lane) -> bool:
        """Count it as hung, unless it has ended since; its thread wants a successor then."""
        with self.changed:
            if lane.ended:
                return False
            lane.watch.given_up = True
            self._leave(lane)
            return True

    def abandon(self) -> None:
        """Begin no lane more."""
        with self.changed:
            for lane in self.lanes:
                for receipt in lane.receipts:
                    receipt.error = "not tried: the store does not answer"
            self.left -= len(self.lanes)
            self.lanes.clear()
            self.changed.notify_all()

    def _leave(self, lane: _Lane) -> None:
        self.in_flight -= lane.bytes
        self.left -= 1
        if self.waiting or not self.left:  # to wake who waits for the last lane after each would cost more than a lane
            self.changed.notify_all()


# The files of a round as a table of PLANS, or the schema files of DDLs.
Plans: TypeAlias = "pa.Table | Sequence[dict[str, Any]]"


def land(plans: Plans, job: LandJob) -> pa.RecordBatch:
    """Land the files of one round; one receipt for each."""
    store = job.open_store(job.sink_uri, job.access)
    lanes = _lanes(plans.to_pylist() if isinstance(plans, pa.Table) else plans, job)
    crew = _Crew(lambda lane: _land_lane(lane, store, job), deque(lanes), left=len(lanes))
    _wait(crew, lanes, store.concurrency, LANES_PER_WORKER * job.worker_count)
    # A lane given up may still write into its receipts: what is returned was read before.
    return _receipts([receipt for lane in lanes for receipt in lane.receipts])


def _lanes(plans: Sequence[dict[str, Any]], job: LandJob) -> list[_Lane]:
    grouped: dict[int, list[dict[str, Any]]] = {}
    for plan in plans:
        grouped.setdefault(plan["lane"], []).append(plan)
    return [
        _Lane(files, [_Receipt(f["file"]) for f in files], _Watch(job.stall_s), sum(f.get("bytes", 0) for f in files))
        for files in grouped.values()
    ]


def _wait(crew: _Crew, lanes: list[_Lane], bound: int | None, workers: int) -> None:
    """Until every lane has ended, was given up, or is not begun because the store does not answer.

    Where the store sets a bound it is near: lanes cost the processor more than waiting, and threads in each other's way
    cost half as much again. So it begins with one, and another comes when they wait after all.
    """
    most = min(len(lanes), bound or workers)
    threads = most if bound is None else 1
    crew.start(threads)
    now = time.monotonic()
    wanted = _wanted_s() if threads < most else 0.0
    while True:
        with crew.changed:
            if crew.changed.wait_for(lambda: crew.left == 0, _POLL_S):
                return
        before, now = now, time.monotonic()
        stuck = [
            lane
            for lane in lanes
            if lane.began and not lane.ended and not lane.watch.given_up and now > lane.watch.until > 0
        ]
        given_up = [lane for lane in stuck if crew.give_up(lane)]
        for lane in given_up:
            _mark_unanswered(lane)
        if any(lane.began > crew.last_end for lane in given_up):  # whoever takes their places would hang as long again
            crew.abandon()
        crew.start(len(given_up))
        if threads < most:
            wanted_before, wanted = wanted, _wanted_s()
            if wanted - wanted_before < _BUSY * (now - before):
                crew.start(1)
                threads += 1


def _wanted_s() -> float:
    """Seconds in which threads of this process ran, or would have if other processes had not."""
    try:
        stats = [Path(f"/proc/self/task/{thread}/schedstat").read_text() for thread in os.listdir("/proc/self/task")]
    except (FileNotFoundError, ProcessLookupError):  # one has just ended, or this is no Linux
        return time.process_time()
    return sum(int(nanoseconds) for line in stats for nanoseconds in line.split()[:2]) / 1e9


def _mark_unanswered(lane: _Lane) -> None:
    """Copies of the receipts, since the stuck thread may still write into its own."""
    lane.receipts = [replace(receipt) for receipt in lane.receipts]
    for receipt in lane.receipts:
        if receipt.outcome != LANDED:
            receipt.outcome = HUNG
            receipt.error = receipt.error or f"no answer from the store within {lane.watch.stall_s:g} s"


def _land_lane(lane: _Lane, store: Store, job: LandJob) -> None:
    receipts = lane.receipts
    if "files" in lane.plans[0]:
        _land_schemas(lane, store)
        return
    done = 0
    try:
        for plan, receipt in zip(lane.plans, receipts, strict=True):
            _land_file(plan, receipt, store, job, lane.watch)
            done += 1
    except _Elsewhere as found:
        receipts[done].outcome = ELSEWHERE
        receipts[done].found_version, receipts[done].found_number = found.version, found.number
    except Exception as exc:
        _fail(receipts[done], exc)
    if done:
        try:
            _put_index(lane.plans[done - 1], receipts[:done], store, job, lane.watch)
        except Exception as exc:
            _fail(receipts[done - 1], exc)


def _land_schemas(lane: _Lane, store: Store) -> None:
    """The schema files of one DDL, in order."""
    receipt = lane.receipts[0]
    try:
        for path, text in lane.plans[0]["files"]:
            started = time.monotonic()
            lane.watch.beat(0)
            _put_ddl_schema(path, text, receipt, store)
            receipt.schema_write_s += time.monotonic() - started
        if not lane.watch.given_up:
            receipt.outcome = LANDED
    except Exception as exc:
        _fail(receipt, exc)


def _put_ddl_schema(path: str, text: str, receipt: _Receipt, store: Store) -> None:
    """A file that stands says the same, from an earlier try or run; or only the query, which it gets now."""
    receipt.path = path
    receipt.requests += 1
    if store.create_bytes(path, text.encode()):
        return
    found = (store.get(path) or b"").decode(errors="replace")
    receipt.requests += 1
    if found == text:
        return
    if tables.columns_text(found) != tables.columns_text(text):
        raise StoreConflict(f"{path} exists and lists other columns; another writer uses this sink")
    store.put(path, text.encode())
    receipt.requests += 1


def _fail(receipt: _Receipt, exc: Exception) -> None:
    """An error becomes an outcome: one that left its thread would leave the lane without an answer."""
    if not isinstance(exc, _GivenUp):
        receipt.outcome = _outcome(exc)
        receipt.error = str(exc) if isinstance(exc, TidegateError) else f"{type(exc).__name__}: {exc}"


def _outcome(exc: Exception) -> str:
    if isinstance(exc, SpoolLost):
        return LOST
    if isinstance(exc, StoreConflict):
        return CONFLICT
    return UNFINISHED if isinstance(exc, TidegateError) and exc.retry else REFUSED


def _key(plan: dict[str, Any]) -> layout.DataKey:
    is_partition = plan["table_id"] != plan["logical_table_id"]
    names = plan["schema_name"], plan["table_name"]
    return layout.DataKey(*names, plan["directory"], plan["table_id"], is_partition, plan["date"], plan["dispatcher"])


def _land_file(plan: dict[str, Any], receipt: _Receipt, store: Store, job: LandJob, watch: _Watch) -> None:
    if plan["schema"] != tables.SETTLED:
        _put_schema(plan, receipt, store, job, watch)
    head = b""
    if protocol.has_header(job.encoding):
        head = protocol.header(_layout(job.layouts[plan["layout"]]), job.encoding, plan["selected"])
    slices = [
        (job.segments[segment], offset, length)
        for segment, offset, length in zip(plan["segments"], plan["offsets"], plan["lengths"], strict=True)
    ]
    receipt.path = layout.data_path(_key(plan), plan["number"], job.paths)
    started = time.monotonic()
    watch.beat(0)
    store.create(receipt.path, head, slices, watch.beat)
    receipt.requests += 1
    receipt.data_s = time.monotonic() - started
    receipt.bytes = plan["bytes"]


@lru_cache(maxsize=256)
def _layout(text: str) -> tables.Layout:
    """A million tables of one shape share one."""
    return tables.Layout.from_json(text)


def _put_schema(plan: dict[str, Any], receipt: _Receipt, store: Store, job: LandJob, watch: _Watch) -> None:
    columns = _layout(job.layouts[plan["layout"]])
    schema, table, version = plan["schema_name"], plan["table_name"], plan["version"]
    checksum = tables.schema_checksum(schema, table, columns, job.output_column_id)
    text = tables.schema_file_text(schema, table, version, columns, output_column_id=job.output_column_id)
    path = layout.schema_path(schema, table, version, checksum, job.paths, plan["table_id"])
    folder = path.rpartition("/")[0]
    started = time.monotonic()
    watch.beat(0)
    standing = layout.schema_versions((name for name, _ in store.list(folder)), checksum)
    checked = time.monotonic()
    receipt.schema_check_s = checked - started
    receipt.requests += 1
    if version in standing:
        _tell_last_file(plan, receipt, store, job)
        return
    other = _same_columns(standing, version, path, text, store) if standing and plan["schema"] != tables.WRITE else None
    if other is not None:
        raise _Elsewhere(other, _last_number(plan, other, receipt, store, job))
    watch.beat(0)
    store.create_bytes(path, text.encode())
    receipt.schema_write_s = time.monotonic() - checked
    receipt.requests += 1
    _tell_last_file(plan, receipt, store, job)


def _tell_last_file(plan: dict[str, Any], receipt: _Receipt, store: Store, job: LandJob) -> None:
    """Where files may stand that the driver knows nothing of, none lands before it has put a free number on record.

    Otherwise a start after a crash could take a file of the same size for its own.
    """
    if plan["schema"] == tables.LOOK or (plan["schema"] == tables.CHECK and job.foreign):
        raise _Elsewhere(plan["version"], _last_number(plan, plan["version"], receipt, store, job))


def _same_columns(standing: set[int], version: int, path: str, text: str, store: Store) -> int | None:
    """The version whose directory TiCDC would use for these columns, or a newer one for which it would drop them.

    The checksum does not see the order of the columns, which rows depend on: a file that has another one is no match.
    """
    newer = max((other for other in standing if other > version), default=None)
    older = max((other for other in standing if other < version), default=None)
    for other in (newer, older):
        if other is not None:
            found = store.get(path.replace(f"/schema_{version}_", f"/schema_{other}_"))
            if found is not None and tables.columns_text(found.decode(errors="replace")) == tables.columns_text(text):
                return other
    return None


def _last_number(plan: dict[str, Any], version: int, receipt: _Receipt, store: Store, job: LandJob) -> int:
    """How far the data files go in the directory of this version, also past an index that was left behind."""
    key = _key(plan)._replace(version=version)
    found = store.get(layout.index_path(key, job.paths))
    number = _number_in(found, job.paths.extension) if found else 0
    receipt.requests += 1
    while job.foreign:
        receipt.requests += 1
        if store.size(layout.data_path(key, number + 1, job.paths)) is None:
            break
        number += 1
    return number


def _number_in(index: bytes, extension: str) -> int:
    """The number an index names; 0 for one that nobody can read, so it is put right."""
    try:
        return layout.parse_index_text(index.decode(errors="replace"), extension)[1]
    except StoreRefused:
        return 0


def _put_index(plan: dict[str, Any], receipts: list[_Receipt], store: Store, job: LandJob, watch: _Watch) -> None:
    started = time.monotonic()
    number = plan["number"]
    receipts[-1].requests += put_index(store, _key(plan), number, job.paths, number - len(receipts), watch.beat)
    receipts[-1].index_s = time.monotonic() - started
    if not watch.given_up:
        for receipt in receipts:
            receipt.outcome = LANDED


def put_index(
    store: Store, key: layout.DataKey, number: int, options: layout.PathOptions, before: int | None, beat: Beat
) -> int:
    """Let the index name file `number`, unless it names a later one; returns the requests it took.

    It should name file `before` now; 0 means that there should be none. Where that is not known, not so, or not enough
    for the store, the one that stands is read first. It is replaced only if nobody has changed it since, so a process
    that was paused in between cannot set it back.
    """
    path, text = layout.index_path(key, options), layout.index_text(key, number, options).encode()
    tag = store.tag_of(layout.index_text(key, before, options).encode()) if before else None
    tag, requests = "" if before == 0 else tag, 0
    for _ in range(_INDEX_TRIES):
        beat(0)
        if tag is None:
            requests += 1
            found = store.get_tagged(path)
            if found is not None and found[0] == text:
                return requests
            if found is not None and (ahead := _number_in(found[0], options.extension)) > number:
                raise StoreConflict(f"{path} names file {ahead} already: another writer uses this sink")
            tag = found[1] if found is not None else ""
            beat(0)
        requests += 1
        if store.swap(path, text, tag):
            return requests
        tag = None
    raise StoreUnavailable(f"{path} was changed by somebody else each time it was to be written")


def unanswered(plans: Plans, error: str) -> pa.Table:
    """Receipts of a round whose task was lost: nobody knows what became of its files."""
    files = plans["file"].to_pylist() if isinstance(plans, pa.Table) else [plan["file"] for plan in plans]
    return pa.Table.from_batches([_receipts([_Receipt(file, error=error) for file in files])])


def _receipts(receipts: list[_Receipt]) -> pa.RecordBatch:
    columns = [
        pa.array([getattr(receipt, name) for receipt in receipts], kind)
        for name, kind in zip(RECEIPTS.names, RECEIPTS.types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECEIPTS)
