"""Landing, in a task: data files are assembled from the spool and put, then the index; one receipt for each file.

Promises: the schema file exists before the first data file of a version, the data file before the index names it. A
lane puts its index once, after its last file. Every plan gets a receipt, whatever goes wrong: an error that left its
thread would leave the driver without an answer. What threads promise, and what happens when one hangs, is in `crew`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import pyarrow as pa

from tidegate.errors import SpoolLost, StoreConflict, TidegateError
from tidegate.executor.crew import GivenUp, Lane, P, Watch, run_lanes
from tidegate.executor.index import put_index
from tidegate.executor.jobs import LandJob, LandOptions
from tidegate.executor.rows import (
    CONFLICT,
    ELSEWHERE,
    LANDED,
    LOST,
    REFUSED,
    UNFINISHED,
    FilePlan,
    Receipt,
    SchemaPlan,
    file_plans,
)
from tidegate.executor.schema_files import Elsewhere, parsed_layout, put_ddl_schema, put_schema
from tidegate.format import tables
from tidegate.format.encode import protocol
from tidegate.format.layout import data_path, new_folders
from tidegate.storage.store import Beat, Store, WithDirectories

LANES_PER_WORKER = 8  # small puts mostly wait for the store; large ones are bounded by the bytes in flight


def land_files(plans: pa.Table, job: LandJob) -> pa.Table:
    """Land the data files of one round, a table of PLANS; returns a table of RECEIPTS."""
    grouped: dict[int, list[FilePlan]] = {}
    for plan in file_plans(plans):
        grouped.setdefault(plan.lane, []).append(plan)
    lanes = [_lane(files, job.options, sum(plan.bytes for plan in files)) for files in grouped.values()]
    return _run(lanes, lambda store: _Lander(store, job).land, job.options, job.lane_share)


def land_schemas(plans: Sequence[SchemaPlan], options: LandOptions) -> pa.Table:
    """Put the schema files of some DDLs; returns a table of RECEIPTS, one for each DDL."""
    return _run([_lane([plan], options, 0) for plan in plans], lambda store: partial(_land_ddl, store=store), options)


def _lane(plans: list[P], options: LandOptions, size: int) -> Lane[P]:
    return Lane(plans, [Receipt(plan.file) for plan in plans], Watch(options.stall_s), size)


def _run(
    lanes: list[Lane[P]], worker: Callable[[Store], Callable[[Lane[P]], None]], options: LandOptions, share: float = 1.0
) -> pa.Table:
    store = options.open_store(options.sink_uri, options.access)
    at_once = max(1, int(share * LANES_PER_WORKER * options.worker_count))
    return run_lanes(lanes, worker(store), store.concurrency, at_once)


class _Lander:
    """Lands lanes on one store."""

    def __init__(self, store: Store, job: LandJob) -> None:
        self._store, self._job = store, job
        self._folders = store if isinstance(store, WithDirectories) else None

    def land(self, lane: Lane[FilePlan]) -> None:
        receipts, done = lane.receipts, 0  # those of a lane that is given up are replaced by copies, out of our reach
        try:
            for plan, receipt in zip(lane.plans, receipts, strict=True):
                self._land_file(plan, receipt, lane.watch.beat)
                done += 1
        except Elsewhere as found:
            receipts[done].outcome = ELSEWHERE
            receipts[done].found_version, receipts[done].found_number = found.version, found.number
        except Exception as exc:
            note_failure(receipts[done], exc)
        if done:
            try:
                self._put_index(lane.plans[done - 1], receipts[:done], lane.watch)
            except Exception as exc:
                note_failure(receipts[done - 1], exc)

    def _land_file(self, plan: FilePlan, receipt: Receipt, beat: Beat) -> None:
        job, paths = self._job, self._job.options.paths
        if plan.schema != tables.SETTLED:
            if plan.schema == tables.NEW and self._folders is not None:
                beat(0)
                self._folders.make_folders(new_folders(plan.key, paths))
            put_schema(plan, receipt, self._store, job, beat)
        slices = [
            (job.segments[segment], offset, length)
            for segment, offset, length in zip(plan.segments, plan.offsets, plan.lengths, strict=True)
        ]
        receipt.path = data_path(plan.key, plan.number, paths)
        started = time.monotonic()
        beat(0)
        self._store.create(receipt.path, self._header(plan), job.reader.slices(slices), beat)
        receipt.requests += 1
        receipt.data_s = time.monotonic() - started
        receipt.bytes = plan.bytes

    def _header(self, plan: FilePlan) -> bytes:
        encoding = self._job.options.encoding
        if not protocol.has_header(encoding):
            return b""
        selected = tuple(plan.selected) if plan.selected is not None else None
        return protocol.header(parsed_layout(self._job.layouts[plan.layout]), encoding, selected)

    def _put_index(self, plan: FilePlan, receipts: list[Receipt], watch: Watch) -> None:
        """Let the index name this file, the last one; with that the files of all these receipts have landed."""
        started = time.monotonic()
        before, last = plan.number - len(receipts), receipts[-1]
        paths = self._job.options.paths
        put = put_index(self._store, plan.key, plan.number, paths, before, watch.beat, plan.tag)
        last.requests, last.tag = last.requests + put.requests, put.tag
        last.index_s = time.monotonic() - started
        if not watch.given_up:
            for receipt in receipts:
                receipt.outcome = LANDED


def _land_ddl(lane: Lane[SchemaPlan], store: Store) -> None:
    (plan,), (receipt,) = lane.plans, lane.receipts
    try:
        for file in plan.files:
            started = time.monotonic()
            lane.watch.beat(0)
            put_ddl_schema(file, receipt, store)
            receipt.schema_write_s += time.monotonic() - started
        if not lane.watch.given_up:
            receipt.outcome = LANDED
    except Exception as exc:
        note_failure(receipt, exc)


def note_failure(receipt: Receipt, exc: Exception) -> None:
    """An error becomes an outcome."""
    if not isinstance(exc, GivenUp):
        receipt.outcome = _outcome(exc)
        receipt.error = str(exc) if isinstance(exc, TidegateError) else f"{type(exc).__name__}: {exc}"


def _outcome(exc: Exception) -> str:
    if isinstance(exc, SpoolLost):
        return LOST
    if isinstance(exc, StoreConflict):
        return CONFLICT
    return UNFINISHED if isinstance(exc, TidegateError) and exc.retry else REFUSED
