"""Executor side of the wake: encode a micro-batch's events and append them to the spool.

Promises: (commit_ts, seq) order within a dispatcher, where inserts of split updates stand at the end of their
transaction; no Python call per row or value; chunks of about `chunk_bytes` end at transaction boundaries and never mix
dispatchers or table versions; one write per Arrow batch, items are slices of it; every segment is closed before its
items leave. Items name tables as the source does, the bytes as the routes do. What is wrong with the input comes back
as an item.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidegate.clock import now_ms
from tidegate.errors import BadEvents, SpoolError
from tidegate.events import EVENTS, KINDS, LAYOUT, ROW_KINDS
from tidegate.executor.rows import ERROR, FILTERED, ITEMS, ROWS, STALE, UNKNOWN_LAYOUT
from tidegate.executor.segments import Places, SegmentWriter
from tidegate.format.encode import protocol
from tidegate.format.encode.spans import spans_of
from tidegate.format.rules.changes import Rows, Selected, Splitter, TableRules, numbers
from tidegate.format.rules.rules import Rules
from tidegate.format.tables import Layout
from tidegate.sources import open_source

Ints = NDArray[np.int64]

ALWAYS_NEEDED = ("kind", "commit_ts", "seq")
NEEDED = ("schema_name", "table_name", "table_id", "table_version", "layout")
_SURE_NAME_BYTES = 64  # shorter names can always be a level of a path, however they are encoded


@dataclass(frozen=True)
class Floor:
    """Changes that are durable already, by dispatcher: rows at or below (ts, seq) are dropped.

    Sorted by `owner`, which is the table id, or where tables are split `table id * spans + span`.
    """

    owner: Ints
    ts: Ints
    seq: Ints
    checkpoint_ts: int = 0  # whatever is at or below it is durable, of any dispatcher

    @property
    def last_ts(self) -> int:
        """From here on nothing is dropped."""
        return max(self.checkpoint_ts, int(self.ts.max(initial=0)))

    def passes(self, owner: Ints, ts: Ints, seq: Ints) -> NDArray[np.bool_]:
        if not len(self.owner):
            return np.asarray(ts > self.checkpoint_ts)
        at = np.minimum(np.searchsorted(self.owner, owner), len(self.owner) - 1)
        known = self.owner[at] == owner
        above = (ts > self.ts[at]) | ((ts == self.ts[at]) & (seq > self.seq[at]))
        passing: NDArray[np.bool_] = (~known | above) & (ts > self.checkpoint_ts)
        return passing


@dataclass(frozen=True)
class IngestJob:
    """All that a task needs to know; sent with the job."""

    layouts: dict[int, str]
    encoding: protocol.Encoding
    chunk_bytes: int
    file_size_bytes: int
    allowance_bytes: int
    places: Places
    floor: Floor | None = None
    ordering: str = "per-table"
    rules: Rules = field(default_factory=Rules)
    split_updates: bool = True
    spans: int = 1
    cuts: tuple[int, ...] = ()  # commit-ts of DDLs that are not over: no chunk stands on both sides of one


@dataclass(frozen=True)
class _Kind:
    """What is encoded together: rows of one layout of which the same columns are written."""

    fingerprint: int
    layout: Layout = field(compare=False)
    selected: Selected


@dataclass
class _Task:
    job: IngestJob
    writer: SegmentWriter
    tables: TableRules
    splitter: Splitter
    layouts: dict[int, Layout] = field(default_factory=dict)
    items: list[pa.RecordBatch] = field(default_factory=list)
    appended: int = 0
    stale: int = 0
    filtered: int = 0

    def layout(self, fingerprint: int) -> Layout | None:
        if fingerprint not in self.layouts and fingerprint in self.job.layouts:
            self.layouts[fingerprint] = Layout.from_json(self.job.layouts[fingerprint])
        return self.layouts.get(fingerprint)


def ingest(batches: Iterable[pa.RecordBatch], job: IngestJob, name: str) -> Iterator[pa.RecordBatch]:
    """Items of one task; `name` is the segments' name, `<batch>-<partition>-<attempt>`."""
    task = _Task(job, SegmentWriter(job.places, name), TableRules(job.rules), Splitter(job.split_updates))
    try:
        for events in batches:
            _take(task, events)
        for kind, rows in task.splitter.rest():
            _append(task, rows, cast(_Kind, kind))
        for count, word in ((task.stale, STALE), (task.filtered, FILTERED)):
            if count:
                task.items.append(_control(word, rows=count))
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
    kept = task.tables.kept(events)
    task.filtered += events.num_rows - kept.num_rows
    layouts = np.unique(numbers(kept, "layout"))
    for fingerprint in layouts.tolist():
        layout = task.layout(fingerprint)
        if layout is None:
            task.items.append(_control(UNKNOWN_LAYOUT, layout=fingerprint))
            continue
        same = kept if len(layouts) == 1 else kept.filter(pc.equal(kept.column("layout"), fingerprint))
        for selected, rows in task.tables.selections(same, layout):
            kind = _Kind(fingerprint, layout, selected)
            _append(task, task.splitter.take(kind, layout, rows), kind)


def _append(task: _Task, rows: Rows, kind: _Kind) -> None:
    """Encode rows in dispatcher order, write them once, and cut them into items."""
    (table_id, ts, seq), spans = rows.place(), task.job.spans
    span = spans_of(rows.events, kind.layout, spans) if spans > 1 else None
    owner = table_id if span is None else table_id * spans + span
    if task.job.floor is not None:
        keep = task.job.floor.passes(owner, ts, seq)
        if not keep.all():
            task.stale += len(keep) - int(keep.sum())
            rows, owner, seq = rows.take(keep), owner[keep], seq[keep]
            span = None if span is None else span[keep]
    events = rows.events
    if not events.num_rows:
        return
    order = rows.order(span)
    targets = task.tables.routed(events)
    encoded = protocol.encode(targets, order, kind.layout, task.job.encoding, kind.selected, now_ms())
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
    items = _items(task, events, owner, seq, kind, order, ends - ends[0])
    task.items.append(_placed(items, segment, tier, base))


def _items(
    task: _Task, events: pa.RecordBatch, owner: Ints, seq: Ints, kind: _Kind, order: Ints, ends: Ints
) -> pa.RecordBatch:
    """One item a chunk; `ends` says where each row ends in the text, counted from its beginning."""
    job = task.job
    table_id, version, ts = (numbers(events, name)[order] for name in ("table_id", "table_version", "commit_ts"))
    owner, seq = owner[order], seq[order]
    # A DDL that is not over cuts as a new version does.
    part = version
    if job.cuts:
        ranks = np.unique(version, return_inverse=True)[1]
        part = ranks * (len(job.cuts) + 1) + np.searchsorted(job.cuts, ts, side="right")
    first = _chunk_starts(owner, part, ts, seq, ends, job.chunk_bytes, job.file_size_bytes)
    last = np.append(first[1:], len(order)) - 1
    rows_at = pa.array(order[first])
    logical = pc.coalesce(events.column("logical_table_id"), events.column("table_id"))
    schemas, tables = (events.column(name).take(rows_at) for name in ("schema_name", "table_name"))
    _refuse_names(task.tables, schemas, tables)
    columns: dict[str, pa.Array] = {
        "kind": pa.repeat(ROWS, len(first)),
        "table_id": pa.array(table_id[first]),
        "span": pa.array((owner - table_id * job.spans)[first] if job.spans > 1 else np.zeros(len(first)), pa.int32()),
        "logical_table_id": logical.take(rows_at),
        "schema_id": pc.fill_null(events.column("schema_id"), 0).take(rows_at),
        "schema_name": schemas,
        "table_name": tables,
        "version": pa.array(version[first]),
        "layout": pa.repeat(pa.scalar(kind.fingerprint, pa.int64()), len(first)),
        "first_ts": pa.array(ts[first]),
        "first_seq": pa.array(seq[first]),
        "last_ts": pa.array(ts[last]),
        "last_seq": pa.array(seq[last]),
        "rows": pa.array(last - first + 1),
        "offset": pa.array(ends[first]),
        "length": pa.array(ends[last + 1] - ends[first]),
    }
    nothing = {field.name: pa.nulls(len(first), field.type) for field in ITEMS if field.name not in columns}
    return pa.RecordBatch.from_pydict(columns | nothing, schema=ITEMS)


def _placed(items: pa.RecordBatch, segment: str, tier: int, base: int) -> pa.RecordBatch:
    """The items with the place of their bytes in the spool."""
    values = {
        "segment": pa.repeat(segment, len(items)),
        "tier": pa.repeat(pa.scalar(tier, pa.int32()), len(items)),
        "offset": pc.add(items.column("offset"), base),
    }
    return pa.RecordBatch.from_pydict({**dict(zip(ITEMS.names, items.columns, strict=True)), **values}, schema=ITEMS)


def _refuse_names(known: TableRules, schemas: pa.Array, tables: pa.Array) -> None:
    """A name that cannot be a path must not be accepted: it could never land, and would stand in the journal."""
    sizes = [pc.binary_length(names) for names in (schemas, tables)]
    sure = [pc.and_(pc.greater(size, 0), pc.less_equal(size, _SURE_NAME_BYTES)) for size in sizes]
    for at in np.flatnonzero(~pc.and_(*sure).to_numpy(zero_copy_only=False)).tolist():
        known.target(schemas[at].as_py(), tables[at].as_py())


def _chunk_starts(
    owner: Ints, version: Ints, ts: Ints, seq: Ints, ends: Ints, chunk_bytes: int, file_size_bytes: int
) -> Ints:
    """Row numbers where a chunk begins: at a new dispatcher or version, else at a transaction every `chunk_bytes`.

    A transaction larger than a file is cut inside, so that its file need not exceed `file-size` by much; but not among
    rows of one place, which are its last row and the inserts that moved behind it.
    """
    count = len(owner)
    run = _starts((owner[1:] != owner[:-1]) | (version[1:] != version[:-1]))
    transaction = _starts((ts[1:] != ts[:-1]) | (owner[1:] != owner[:-1]) | (version[1:] != version[:-1]))
    run_of = np.cumsum(np.bincount(run, minlength=count)) - 1
    bucket = (ends[transaction] - ends[run][run_of[transaction]]) // chunk_bytes
    moved = np.append(True, (bucket[1:] != bucket[:-1]) | (run_of[transaction][1:] != run_of[transaction][:-1]))
    starts = transaction[moved]
    sizes = np.diff(np.append(ends[transaction], ends[count]))
    if (sizes > file_size_bytes).any():
        inside = _inside(transaction, sizes, ends, chunk_bytes, file_size_bytes)
        starts = np.union1d(starts, inside[np.append(True, seq[1:] != seq[:-1])[inside] | np.isin(inside, transaction)])
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
