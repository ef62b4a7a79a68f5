"""Executor side of the wake: encode a micro-batch's events and append them to the spool.

Promises: (commit_ts, seq) order within a dispatcher; no Python call per row or value; chunks of about `chunk_bytes`
end at transaction boundaries and never mix dispatchers or table versions; one write per Arrow batch, items are slices
of it; every segment is closed before its items leave. What is wrong with the input comes back as an item.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidegate.engine.rows import ERROR, ITEMS, ROWS, STALE, UNKNOWN_LAYOUT
from tidegate.engine.segments import Places, SegmentWriter
from tidegate.errors import BadEvents, SpoolError
from tidegate.events import EVENTS, KINDS, LAYOUT, ROW_KINDS
from tidegate.format import csv
from tidegate.format.layout import RESERVED_PREFIX
from tidegate.format.tables import Layout
from tidegate.sources import open_source

Ints = NDArray[np.int64]

ALWAYS_NEEDED = ("kind", "commit_ts", "seq")
NEEDED = ("schema_name", "table_name", "table_id", "table_version", "layout")
_NO_NAME = r"^\.{0,2}$|[/\x00]"  # would not be a directory of its own on storage


@dataclass(frozen=True)
class Floor:
    """Changes that are durable already, by table id: rows at or below (ts, seq) are dropped. Sorted by table id."""

    table_id: Ints
    ts: Ints
    seq: Ints

    def passes(self, table_id: Ints, ts: Ints, seq: Ints) -> NDArray[np.bool_]:
        at = np.minimum(np.searchsorted(self.table_id, table_id), len(self.table_id) - 1)
        known = self.table_id[at] == table_id
        above = (ts > self.ts[at]) | ((ts == self.ts[at]) & (seq > self.seq[at]))
        passing: NDArray[np.bool_] = ~known | above
        return passing


@dataclass(frozen=True)
class IngestJob:
    """All that a task needs to know; sent with the job."""

    layouts: dict[int, str]
    csv: csv.CsvOptions
    chunk_bytes: int
    file_size_bytes: int
    allowance_bytes: int
    places: Places
    floor: Floor | None = None
    ordering: str = "per-table"


@dataclass
class _Task:
    job: IngestJob
    writer: SegmentWriter
    layouts: dict[int, Layout] = field(default_factory=dict)
    items: list[pa.RecordBatch] = field(default_factory=list)
    appended: int = 0
    stale: int = 0

    def layout(self, fingerprint: int) -> Layout | None:
        if fingerprint not in self.layouts and fingerprint in self.job.layouts:
            self.layouts[fingerprint] = Layout.from_json(self.job.layouts[fingerprint])
        return self.layouts.get(fingerprint)


def ingest(batches: Iterable[pa.RecordBatch], job: IngestJob, name: str) -> Iterator[pa.RecordBatch]:
    """Items of one task; `name` is the segments' name, `<batch>-<partition>-<attempt>`."""
    task = _Task(job, SegmentWriter(job.places, name))
    try:
        for events in batches:
            _take(task, events)
        if task.stale:
            task.items.append(_control(STALE, rows=task.stale))
    except (BadEvents, SpoolError) as exc:
        task.items = [_control(ERROR, text=f"{type(exc).__name__}: {exc}")]
    finally:
        task.writer.close()
    yield from task.items


def read_splits(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Events of the splits that a source of ours handed out, read right here."""
    for batch in rows:
        for text in batch.column(0).to_pylist():
            row = json.loads(text)
            yield from open_source(row["uri"], ordering=row["ordering"]).read(row["split"])


def _take(task: _Task, events: pa.RecordBatch) -> None:
    _refuse_nulls(events, ALWAYS_NEEDED)
    kinds = events.column("kind").dictionary_encode()
    names = kinds.dictionary.to_pylist()
    unknown = set(names) - set(KINDS)
    if unknown:
        raise BadEvents(
            f"unknown kind of event {min(map(str, unknown))!r}; known: {', '.join(ROW_KINDS)}, ddl, resolved, layout"
        )
    if any(name not in ROW_KINDS for name in names):
        row_codes = pa.array([i for i, name in enumerate(names) if name in ROW_KINDS], kinds.indices.type)
        is_row = pc.is_in(kinds.indices, value_set=row_codes)
        _take_control(task, events.filter(pc.invert(is_row)))
        events = events.filter(is_row)
    if events.num_rows:
        _take_rows(task, events)


def _take_control(task: _Task, events: pa.RecordBatch) -> None:
    for event in events.select(["kind", "commit_ts", "seq", "table_id", "layout", "ddl"]).to_pylist():
        if event["kind"] == LAYOUT:
            layout = Layout.from_json(event["ddl"] or "")
            if layout.fingerprint != event["layout"]:
                raise BadEvents(
                    f"the layout row at commit-ts {event['commit_ts']} says fingerprint {event['layout']} but its "
                    f"columns have {layout.fingerprint}; compute it with Layout.fingerprint"
                )
            task.layouts[event["layout"]] = layout
        task.items.append(
            _control(event["kind"], event["ddl"], event["commit_ts"], event["seq"], event["table_id"], event["layout"])
        )


def _control(
    kind: str,
    text: str | None = None,
    ts: int = 0,
    seq: int = 0,
    table_id: int | None = None,
    layout: int | None = None,
    rows: int = 0,
) -> pa.RecordBatch:
    row = {"kind": kind, "text": text, "first_ts": ts, "first_seq": seq, "table_id": table_id, "layout": layout}
    return pa.RecordBatch.from_pylist([row | {"rows": rows}], schema=ITEMS)


def _refuse_nulls(events: pa.RecordBatch, needed: tuple[str, ...]) -> None:
    for name in needed:
        if events.column(name).null_count:
            at = int(np.flatnonzero(events.column(name).is_null().to_numpy(zero_copy_only=False))[0])
            raise BadEvents(
                f"a row has NULL in {name} (commit-ts {events.column('commit_ts')[at]}, "
                f"seq {events.column('seq')[at]}); every change needs it: filter such rows out or fill it in the source"
            )


def _take_rows(task: _Task, events: pa.RecordBatch) -> None:
    _refuse_nulls(events, NEEDED)
    table_id, ts, seq = (_ints(events, name) for name in ("table_id", "commit_ts", "seq"))
    if task.job.floor is not None:
        keep = task.job.floor.passes(table_id, ts, seq)
        if not keep.all():
            task.stale += len(keep) - int(keep.sum())
            events = events.filter(pa.array(keep))
            if not events.num_rows:
                return
    layouts = np.unique(_ints(events, "layout"))
    for fingerprint in layouts.tolist():
        layout = task.layout(fingerprint)
        if layout is None:
            task.items.append(_control(UNKNOWN_LAYOUT, layout=fingerprint))
            continue
        same = events if len(layouts) == 1 else events.filter(pc.equal(events.column("layout"), fingerprint))
        _append(task, same, fingerprint, layout)


def _append(task: _Task, events: pa.RecordBatch, fingerprint: int, layout: Layout) -> None:
    """Encode rows of one layout in dispatcher order, write them once, and cut them into items."""
    order = _order(*(_ints(events, name) for name in ("table_id", "commit_ts", "seq")))
    encoded = csv.encode(events, order, layout, task.job.csv)
    ends = np.frombuffer(encoded.buffers()[1], np.int32)[encoded.offset : encoded.offset + len(encoded) + 1].astype(
        np.int64
    )
    data = memoryview(encoded.buffers()[2] or b"")[int(ends[0]) : int(ends[-1])]
    task.appended += len(data)
    if task.appended > task.job.allowance_bytes:
        raise BadEvents(
            f"one task of a micro-batch holds more than {task.job.allowance_bytes} encoded bytes; lower the source's "
            "limit per micro-batch (maxOffsetsPerTrigger or maxBytesPerTrigger) or raise spool.max-bytes"
        )
    segment, tier, base = task.writer.append(data)
    task.items.append(_items(task.job, events, fingerprint, order, ends - ends[0], segment, tier, base))


def _order(table_id: Ints, ts: Ints, seq: Ints) -> Ints:
    """Row numbers by dispatcher, then (commit_ts, seq); the rows as they are when they stand so already."""
    same = table_id[1:] == table_id[:-1]
    rising = (ts[1:] > ts[:-1]) | ((ts[1:] == ts[:-1]) & (seq[1:] > seq[:-1]))
    runs = len(table_id) - int(same.sum())
    if (rising | ~same).all() and runs == len(np.unique(table_id)):
        return np.arange(len(table_id), dtype=np.int64)
    return np.lexsort((seq, ts, table_id))


def _items(
    job: IngestJob,
    events: pa.RecordBatch,
    fingerprint: int,
    order: Ints,
    ends: Ints,
    segment: str,
    tier: int,
    base: int,
) -> pa.RecordBatch:
    table_id, version, ts, seq = (
        _ints(events, name)[order] for name in ("table_id", "table_version", "commit_ts", "seq")
    )
    first = _chunk_starts(table_id, version, ts, ends, job.chunk_bytes, job.file_size_bytes)
    last = np.append(first[1:], len(order)) - 1
    rows_at = pa.array(order[first])
    logical = pc.coalesce(events.column("logical_table_id"), events.column("table_id"))
    schemas, tables = (events.column(name).take(rows_at) for name in ("schema_name", "table_name"))
    _refuse_names(schemas, tables)
    count = len(first)
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(ROWS, count),
            pa.array(table_id[first]),
            pa.repeat(pa.scalar(0, pa.int32()), count),
            logical.take(rows_at),
            schemas,
            tables,
            pa.array(version[first]),
            pa.repeat(pa.scalar(fingerprint, pa.int64()), count),
            pa.array(ts[first]),
            pa.array(seq[first]),
            pa.array(ts[last]),
            pa.array(seq[last]),
            pa.array(last - first + 1),
            pa.repeat(pa.scalar(tier, pa.int32()), count),
            pa.repeat(segment, count),
            pa.array(base + ends[first]),
            pa.array(ends[last + 1] - ends[first]),
            pa.nulls(count, pa.string()),
        ],
        schema=ITEMS,
    )


def _refuse_names(schemas: pa.Array, tables: pa.Array) -> None:
    """A name that cannot be a path must not be accepted: it could never land, and would stand in the journal."""
    bad = pc.or_(pc.match_substring_regex(schemas, _NO_NAME), pc.match_substring_regex(tables, _NO_NAME))
    bad = pc.or_(bad, pc.equal(schemas, RESERVED_PREFIX))
    if pc.any(bad).as_py():
        at = pc.index(bad, True).as_py()
        raise BadEvents(
            f"`{schemas[at]}`.`{tables[at]}` cannot be a path on storage; "
            "rename it, route it to another name or filter it"
        )


def _chunk_starts(table_id: Ints, version: Ints, ts: Ints, ends: Ints, chunk_bytes: int, file_size_bytes: int) -> Ints:
    """Row numbers where a chunk begins: at a new table or version, else at a transaction about every `chunk_bytes`.

    A transaction larger than a file is cut inside, so that its file need not exceed `file-size` by much.
    """
    count = len(table_id)
    run = _starts((table_id[1:] != table_id[:-1]) | (version[1:] != version[:-1]))
    transaction = _starts((ts[1:] != ts[:-1]) | (table_id[1:] != table_id[:-1]) | (version[1:] != version[:-1]))
    run_of = np.cumsum(np.bincount(run, minlength=count)) - 1
    bucket = (ends[transaction] - ends[run][run_of[transaction]]) // chunk_bytes
    moved = np.append(True, (bucket[1:] != bucket[:-1]) | (run_of[transaction][1:] != run_of[transaction][:-1]))
    starts = transaction[moved]
    sizes = np.diff(np.append(ends[transaction], ends[count]))
    if (sizes > file_size_bytes).any():
        starts = np.union1d(starts, _inside(transaction, sizes, ends, chunk_bytes, file_size_bytes))
    return np.asarray(starts)


def _inside(transaction: Ints, sizes: Ints, ends: Ints, chunk_bytes: int, file_size_bytes: int) -> Ints:
    """Row numbers about every `chunk_bytes` inside the transactions that are larger than a file."""
    cuts = []
    lasts = np.append(transaction[1:], len(ends) - 1)
    for at in np.flatnonzero(sizes > file_size_bytes):
        rows = np.arange(transaction[at], lasts[at])
        bucket = (ends[rows] - ends[rows[0]]) // chunk_bytes
        cuts.append(rows[np.append(True, bucket[1:] != bucket[:-1])])
    return np.concatenate(cuts)


def _starts(changes: NDArray[np.bool_]) -> Ints:
    return np.flatnonzero(np.append(True, changes))


def _ints(events: pa.RecordBatch, name: str) -> Ints:
    array: Ints = events.column(name).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return array


def check_schema(names: list[str], types: list[str]) -> None:
    """Refuse a DataFrame that is not an events DataFrame, naming the column and what it should be."""
    wanted = {field.name: _simple_type(field.type) for field in EVENTS}
    found = dict(zip(names, types, strict=True))
    for name, kind in wanted.items():
        if name not in found:
            raise BadEvents(
                f"the DataFrame has no column {name!r} ({kind}); an events DataFrame has: {', '.join(wanted)}"
            )
        if found[name] != kind:
            raise BadEvents(f"column {name!r} is {found[name]} but must be {kind}; cast it before write_stream")
    extra = [name for name in names if name not in wanted]
    if extra:
        raise BadEvents(f"column {extra[0]!r} is not part of the events schema; drop it before write_stream")


def _simple_type(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"array<{_simple_type(kind.value_type)}>"
    return {pa.string(): "string", pa.int64(): "bigint", pa.binary(): "binary"}[kind]
