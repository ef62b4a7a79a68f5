"""Executor side of durability: assemble files from the spool, put data, then index; return receipts.

Promises: schema file before the first data file of a version, data before index, the index once per lane and last; one
lane's files in order, different lanes at once. No lane sleeps for a retry: what makes no progress for `stall_s` plus
its bytes at 10 MiB/s is given up and returned as unfinished, and starts nothing more afterwards, so one hanging file
delays no receipt of another for long.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from tidegate.engine.rows import ELSEWHERE, LANDED, RECEIPTS, REFUSED, UNFINISHED
from tidegate.engine.store import Store, StoreOpener
from tidegate.errors import StoreRefused, TidegateError
from tidegate.format import layout, protocol, tables
from tidegate.sink_uri import Access

_BYTES_PER_S = 10 << 20
_POLL_S = 0.1
_BYTES_IN_FLIGHT = 128 << 20


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


class _GivenUp(Exception):
    pass


class _Elsewhere(Exception):
    """The schema file of these columns stands under another version: the driver decides where the files go."""

    def __init__(self, version: int, number: int) -> None:
        super().__init__()
        self.version, self.number = version, number


@dataclass
class _Watch:
    """One lane's progress: each operation announces itself; a lane given up stops at its next announcement."""

    stall_s: float
    until: float = 0.0
    given_up: bool = False

    def beat(self, size: int) -> None:
        if self.given_up:
            raise _GivenUp
        self.until = time.monotonic() + self.stall_s + size / _BYTES_PER_S


@dataclass
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


@dataclass
class _Lane:
    """The files of one lane in this round, and what became of them."""

    plans: list[dict[str, Any]]
    receipts: list[_Receipt]
    watch: _Watch
    started: bool = False
    ended: bool = False

    @property
    def bytes(self) -> int:
        return sum(int(plan.get("bytes", 0)) for plan in self.plans)


@dataclass
class _Crew:
    """Daemon threads that take lanes from a queue; bounded by bytes in flight. A stuck thread is replaced."""

    work: Callable[[_Lane], None]
    lanes: queue.SimpleQueue[_Lane] = field(default_factory=queue.SimpleQueue)
    changed: threading.Condition = field(default_factory=threading.Condition)
    in_flight: int = 0
    left: int = 0  # lanes neither ended nor given up

    def start(self, count: int) -> None:
        for _ in range(count):
            threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                lane = self.lanes.get_nowait()
            except queue.Empty:
                return
            with self.changed:
                while self.in_flight and self.in_flight + lane.bytes > _BYTES_IN_FLIGHT:
                    self.changed.wait()
                self.in_flight += lane.bytes
            lane.started = True
            self.work(lane)
            with self.changed:
                if lane.watch.given_up:  # another thread has taken this one's place
                    return
                lane.ended = True
                self._leave(lane)

    def give_up(self, lane: _Lane) -> None:
        with self.changed:
            if lane.ended:
                return
            lane.watch.given_up = True
            self._leave(lane)
        self.start(1)

    def _leave(self, lane: _Lane) -> None:
        self.in_flight -= lane.bytes
        self.left -= 1
        self.changed.notify_all()


def land(plans: Sequence[dict[str, Any]], job: LandJob) -> pa.RecordBatch:
    """Land the files of one round; one receipt for each."""
    store = job.open_store(job.sink_uri, job.access)
    lanes = _lanes(plans, job)
    crew = _Crew(lambda lane: _land_lane(lane, store, job))
    crew.left = len(lanes)
    for lane in lanes:
        crew.lanes.put(lane)
    crew.start(min(len(lanes), store.concurrency or job.worker_count))
    _wait(crew, lanes)
    # A lane given up may still write into its receipts: what is returned was read before.
    return _receipts([receipt for lane in lanes for receipt in lane.receipts])


def _lanes(plans: Sequence[dict[str, Any]], job: LandJob) -> list[_Lane]:
    grouped: dict[int, list[dict[str, Any]]] = {}
    for plan in plans:
        grouped.setdefault(plan["lane"], []).append(plan)
    return [_Lane(files, [_Receipt(f["file"]) for f in files], _Watch(job.stall_s)) for files in grouped.values()]


def _wait(crew: _Crew, lanes: list[_Lane]) -> None:
    """Until every lane has ended or was given up."""
    while True:
        with crew.changed:
            if crew.changed.wait_for(lambda: crew.left == 0, _POLL_S):
                return
        now = time.monotonic()
        for lane in lanes:
            if lane.started and not lane.ended and not lane.watch.given_up and now > lane.watch.until > 0:
                crew.give_up(lane)
                _mark_unanswered(lane)


def _mark_unanswered(lane: _Lane) -> None:
    """Copies of the receipts, since the stuck thread may still write into its own."""
    lane.receipts = [replace(receipt) for receipt in lane.receipts]
    for receipt in lane.receipts:
        if receipt.outcome != LANDED:
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
        raise StoreRefused(f"{path} exists and lists other columns; another writer uses this sink")
    store.put(path, text.encode())
    receipt.requests += 1


def _fail(receipt: _Receipt, exc: Exception) -> None:
    """An error becomes an outcome: one that left its thread would leave the lane without an answer."""
    if not isinstance(exc, _GivenUp):
        receipt.outcome = UNFINISHED if isinstance(exc, TidegateError) and exc.retry else REFUSED
        receipt.error = str(exc) if isinstance(exc, TidegateError) else f"{type(exc).__name__}: {exc}"


def _key(plan: dict[str, Any]) -> layout.DataKey:
    return layout.DataKey(
        schema=plan["schema_name"],
        table=plan["table_name"],
        version=plan["directory"],
        table_id=plan["table_id"],
        is_partition=plan["table_id"] != plan["logical_table_id"],
        date=plan["date"],
        dispatcher=plan["dispatcher"],
    )


def _land_file(plan: dict[str, Any], receipt: _Receipt, store: Store, job: LandJob, watch: _Watch) -> None:
    if plan["schema"] != tables.SETTLED:
        _put_schema(plan, receipt, store, job, watch)
    head = b""
    if protocol.has_header(job.encoding):
        head = protocol.header(tables.Layout.from_json(job.layouts[plan["layout"]]), job.encoding, plan["selected"])
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


def _put_schema(plan: dict[str, Any], receipt: _Receipt, store: Store, job: LandJob, watch: _Watch) -> None:
    columns = tables.Layout.from_json(job.layouts[plan["layout"]])
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
        return
    if plan["schema"] == tables.CHECK and (other := _same_columns(standing, version, path, text, store)) is not None:
        raise _Elsewhere(other, _last_number(plan, other, store, job))
    watch.beat(0)
    store.create_bytes(path, text.encode())
    receipt.schema_write_s = time.monotonic() - checked
    receipt.requests += 1


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


def _last_number(plan: dict[str, Any], version: int, store: Store, job: LandJob) -> int:
    """How far the data files go in the directory of this version."""
    key = replace(_key(plan), version=version)
    found = store.get(layout.index_path(key, job.paths))
    return layout.parse_index_text(found.decode(errors="replace"), job.paths.extension)[1] if found else 0


def _put_index(plan: dict[str, Any], receipts: list[_Receipt], store: Store, job: LandJob, watch: _Watch) -> None:
    key = _key(plan)
    started = time.monotonic()
    watch.beat(0)
    store.put(layout.index_path(key, job.paths), layout.index_text(key, plan["number"], job.paths).encode())
    receipts[-1].index_s = time.monotonic() - started
    receipts[-1].requests += 1
    if not watch.given_up:
        for receipt in receipts:
            receipt.outcome = LANDED


def _receipts(receipts: list[_Receipt]) -> pa.RecordBatch:
    columns = [
        pa.array([getattr(receipt, name) for receipt in receipts], kind)
        for name, kind in zip(RECEIPTS.names, RECEIPTS.types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECEIPTS)
