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
from tidegate.format.layout import data_path
from tidegate.storage.store import Beat, Store

LANES_PER_WORKER = 8  # small puts mostly wait for the store; large ones are bounded by the bytes in flight


def land_files(plans: pa.Table, job: LandJob) -> pa.Table:
    """Land the data files of one round, a table of PLANS; returns a table of RECEIPTS."""
    grouped: dict[int, list[FilePlan]] = {}
    for plan in file_plans(plans):
        grouped.setdefault(plan.lane, []).append(plan)
    lanes = [_lane(files, job.options, sum(plan.bytes for plan in files)) for files in grouped.values()]
    return _run(lanes, partial(_land_lane, job=job), job.options, job.lane_share)


def land_schemas(plans: Sequence[SchemaPlan], options: LandOptions) -> pa.Table:
    """Put the schema files of some DDLs; returns a table of RECEIPTS, one for each DDL."""
    return _run([_lane([plan], options, 0) for plan in plans], _land_ddl, options)


def _lane(plans: list[P], options: LandOptions, size: int) -> Lane[P]:
    return Lane(plans, [Receipt(plan.file) for plan in plans], Watch(options.stall_s), size)


def _run(
    lanes: list[Lane[P]], work: Callable[[Lane[P], Store], None], options: LandOptions, share: float = 1.0
) -> pa.Table:
    store = options.open_store(options.sink_uri, options.access)
    at_once = max(1, int(share * LANES_PER_WORKER * options.worker_count))
    return run_lanes(lanes, lambda lane: work(lane, store), store.concurrency, at_once)


def _land_lane(lane: Lane[FilePlan], store: Store, job: LandJob) -> None:
    receipts, done = lane.receipts, 0  # those of a lane that is given up are replaced by copies, out of our reach
    try:
        for plan, receipt in zip(lane.plans, receipts, strict=True):
            _land_file(plan, receipt, store, job, lane.watch.beat)
            done += 1
    except Elsewhere as found:
        receipts[done].outcome = ELSEWHERE
        receipts[done].found_version, receipts[done].found_number = found.version, found.number
    except Exception as exc:
        note_failure(receipts[done], exc)
    if done:
        try:
            _put_index(lane.plans[done - 1], receipts[:done], store, job, lane.watch)
        except Exception as exc:
            note_failure(receipts[done - 1], exc)


def _land_file(plan: FilePlan, receipt: Receipt, store: Store, job: LandJob, beat: Beat) -> None:
    if plan.schema != tables.SETTLED:
        put_schema(plan, receipt, store, job, beat)
    head, encoding = b"", job.options.encoding
    if protocol.has_header(encoding):
        selected = tuple(plan.selected) if plan.selected is not None else None
        head = protocol.header(parsed_layout(job.layouts[plan.layout]), encoding, selected)
    slices = [
        (job.segments[segment], offset, length)
        for segment, offset, length in zip(plan.segments, plan.offsets, plan.lengths, strict=True)
    ]
    receipt.path = data_path(plan.key, plan.number, job.options.paths)
    started = time.monotonic()
    beat(0)
    store.create(receipt.path, head, job.reader.slices(slices), beat)
    receipt.requests += 1
    receipt.data_s = time.monotonic() - started
    receipt.bytes = plan.bytes


def _put_index(plan: FilePlan, receipts: list[Receipt], store: Store, job: LandJob, watch: Watch) -> None:
    """Let the index name this file, the last one; with that the files of all these receipts have landed."""
    started = time.monotonic()
    before, last = plan.number - len(receipts), receipts[-1]
    put = put_index(store, plan.key, plan.number, job.options.paths, before, watch.beat, plan.tag)
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
