"""Ingest, in a task: the events of a micro-batch are encoded and appended to the spool; items come back.

Promises: rows of a dispatcher are in (commit_ts, seq) order, and the inserts of split updates are at the end of their
transaction. Items leave only after every segment is closed and every row that is set aside is durable, because the
checkpoint follows the items. Items name tables as the source does, the bytes name them as the routes do. Anything wrong
with the input comes back as one error item. No Python code runs for each row or value.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import BadEvents, TidegateError
from tidegate.events import EVENTS, KINDS, LAST_TS, LAYOUT, ROW_KINDS, TABLE_IDS
from tidegate.executor.append import Appender
from tidegate.executor.aside import Aside
from tidegate.executor.jobs import IngestJob
from tidegate.executor.layouts import TaskLayouts, write_layouts
from tidegate.executor.rows import ERROR, FILTERED, ITEMS, STALE, TIMES, UNKNOWN_LAYOUT, with_all_columns
from tidegate.format.layout_columns import distinct_layouts
from tidegate.format.layout_texts import defined
from tidegate.format.rules.changes import Splitter, TableRules
from tidegate.sources import open_source
from tidegate.sources.mysql.private import read_private

ALWAYS_NEEDED = ("kind", "commit_ts", "seq")
_NAMED = 50  # tables with rows that were left out
NEEDED = ("schema_name", "table_name", "table_id", "table_version", "layout")
_NUMBERS = (
    ("commit_ts", LAST_TS, "a commit-ts is a TSO, milliseconds << 18 | logical, in 0..2^63 - 2"),
    ("table_id", TABLE_IDS, "the id of a table is in 0..2^50 - 1"),
    ("logical_table_id", TABLE_IDS, "the id of a table is in 0..2^50 - 1"),
)


@dataclass
class _Task:
    appender: Appender
    tables: TableRules
    splitter: Splitter
    layouts: TaskLayouts
    filtered: int = 0
    filtered_ts: int = 0  # the greatest commit-ts of a part with rows that were filtered
    unknown: set[int] = field(default_factory=set)  # layouts that no row of this task or of an earlier batch defines

    @property
    def items(self) -> list[pa.RecordBatch]:
        return self.appender.items


def ingest(batches: Iterable[pa.RecordBatch], job: IngestJob, name: str) -> Iterator[pa.RecordBatch]:
    """Items of one task; `name` begins the names of its segments: `<batch>-<partition>-<attempt>`."""
    try:
        items = _ingest(batches, job, name)
    except TidegateError as exc:  # as an item, because Spark would run the task again and then pass on only a text
        items = [_control(ERROR, text=f"{type(exc).__name__}: {exc}")]
    yield from items


def _ingest(batches: Iterable[pa.RecordBatch], job: IngestJob, name: str) -> list[pa.RecordBatch]:
    tables = TableRules(job.options.rules)
    with closing(job.room.writer(name)) as writer:
        layouts = TaskLayouts(job.layouts)
        aside = Aside(job.options.aside) if job.options.aside is not None else None
        appender = Appender(job, writer, tables, layouts, aside)
        refused = appender.refuse_updates if aside is not None else None
        task = _Task(appender, tables, Splitter(job.options.split_updates, refused), layouts)
        clock = _Clock()
        for events in clock.reading(batches):
            _take(task, events)
        if (rest := task.splitter.rest()) is not None and not task.unknown:
            appender.append(rest)
    times = clock.times(appender.spool_s)
    task.items.extend(_layout_items(task, job.room.layouts_path(name)))
    if appender.stale:
        task.items.append(_control(STALE, ts=appender.stale_ts, rows=appender.stale))
    if task.filtered:
        some = json.dumps(tables.left_out(_NAMED))
        task.items.append(_control(FILTERED, some, task.filtered_ts, rows=task.filtered))
    return [*task.items, *(aside.items() if aside is not None else ()), _control(TIMES, json.dumps(times))]


class _Clock:
    """How long a task waits for what it reads, and how long it works on it."""

    def __init__(self) -> None:
        self._started, self._read_s = time.monotonic(), 0.0

    def reading(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        since = time.monotonic()
        for batch in batches:
            self._read_s += time.monotonic() - since
            yield batch
            since = time.monotonic()
        self._read_s += time.monotonic() - since

    def times(self, spool_s: float) -> tuple[float, float, float]:
        """Seconds to read, to encode and to spool."""
        return self._read_s, time.monotonic() - self._started - self._read_s - spool_s, spool_s


def read_splits(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Events of the splits that a source of ours handed out, read here in the task."""
    for batch in rows:
        for text in batch.column(0).to_pylist():
            row = json.loads(text)
            private = read_private(row["private"]) if row.get("private") else None
            yield from open_source(row["uri"], ordering=row["ordering"], private=private).read(row["split"])


def _take(task: _Task, events: pa.RecordBatch) -> None:
    _refuse_nulls(events, ALWAYS_NEEDED)
    kinds = events.column("kind").dictionary_encode()
    names = kinds.dictionary.to_pylist()
    unknown = set(names) - set(KINDS)
    if unknown:
        raise BadEvents(
            f"unknown kind of event {min(map(str, unknown))!r}; known: {', '.join(ROW_KINDS)}, ddl, resolved, layout"
        )
    _refuse_numbers(events)
    if any(name not in ROW_KINDS for name in names):
        row_codes = pa.array([i for i, name in enumerate(names) if name in ROW_KINDS], kinds.indices.type)
        is_row = pc.is_in(kinds.indices, value_set=row_codes)
        _take_control(task, events.filter(pc.invert(is_row)))
        events = events.filter(is_row)
    if events.num_rows:
        _take_rows(task, events)


def _take_control(task: _Task, events: pa.RecordBatch) -> None:
    is_layout = pc.equal(events.column("kind"), LAYOUT)
    layouts = events.filter(is_layout)
    if layouts.num_rows:
        task.layouts.define(defined(layouts))
        events = events.filter(pc.invert(is_layout))
    for event in events.select(["kind", "commit_ts", "seq", "table_id", "ddl"]).to_pylist():
        task.items.append(_control(event["kind"], event["ddl"], event["commit_ts"], event["seq"], event["table_id"]))


def _layout_items(task: _Task, path: str) -> Iterator[pa.RecordBatch]:
    """One item that names the file with the new layouts, which is written here, and one for each unknown layout."""
    new = task.layouts.new()
    if len(new):
        write_layouts(path, new)
        yield with_all_columns({"kind": pa.array([LAYOUT]), "segment": pa.array([path])}, 1)
    if task.unknown:
        count = len(task.unknown)
        yield with_all_columns(
            {"kind": pa.repeat(UNKNOWN_LAYOUT, count), "layout": pa.array(sorted(task.unknown))}, count
        )


def _control(
    kind: str,
    text: str | None = None,
    ts: int = 0,
    seq: int = 0,
    table_id: int | None = None,
    rows: int = 0,
) -> pa.RecordBatch:
    """An item without bytes."""
    row = {"kind": kind, "text": text, "first_ts": ts, "first_seq": seq, "table_id": table_id}
    return pa.RecordBatch.from_pylist([row | {"rows": rows}], schema=ITEMS)


def _refuse_nulls(events: pa.RecordBatch, needed: tuple[str, ...]) -> None:
    for name in needed:
        if events.column(name).null_count:
            at = int(np.flatnonzero(events.column(name).is_null().to_numpy(zero_copy_only=False))[0])
            raise BadEvents(
                f"a row has NULL in {name} (commit-ts {events.column('commit_ts')[at]}, "
                f"seq {events.column('seq')[at]}); every change needs it: filter such rows out or fill it in the source"
            )


def _refuse_numbers(events: pa.RecordBatch) -> None:
    """A negative commit-ts is below every checkpoint, the greatest one above every resolved mark; ids are packed."""
    for name, most, meaning in _NUMBERS:
        values = events.column(name).fill_null(0).to_numpy()
        if len(values) and (values.min() < 0 or values.max() >= most):
            bad = ((values < 0) | (values >= most)) & pc.not_equal(events.column("kind"), LAYOUT).to_numpy(False)
            for at in np.flatnonzero(bad)[:1].tolist():
                place = f"commit-ts {events.column('commit_ts')[at]}, seq {events.column('seq')[at]}"
                raise BadEvents(
                    f"{_named(events, at)} has {name} {values[at]} ({place}); {meaning}: correct it in the source"
                )


def _refuse_versions(events: pa.RecordBatch) -> None:
    """A version below 1 would have no schema file: 0 stands for none everywhere, in the journal too."""
    versions = events.column("table_version").to_numpy()
    for at in np.flatnonzero(versions < 1)[:1].tolist():
        raise BadEvents(
            f"{_named(events, at)} has table_version {versions[at]} (commit-ts {events.column('commit_ts')[at]}); it "
            "is the commit-ts of the last DDL of the table, 1 or more: correct it in the source"
        )


def _named(events: pa.RecordBatch, at: int) -> str:
    """`table shop.orders`, or `a resolved row`, for messages."""
    kind, *names = (events.column(name)[at].as_py() for name in ("kind", "schema_name", "table_name"))
    return f"table {'.'.join(map(str, names))}" if kind in ROW_KINDS else f"a {kind} row"


def _take_rows(task: _Task, events: pa.RecordBatch) -> None:
    _refuse_nulls(events, NEEDED)
    _refuse_versions(events)
    kept = task.tables.kept(events)
    if kept.num_rows < events.num_rows:
        task.filtered += events.num_rows - kept.num_rows
        task.filtered_ts = max(task.filtered_ts, pc.max(events.column("commit_ts")).as_py())
    columns, unknown = task.layouts.columns(distinct_layouts(kept))
    task.unknown.update(unknown.tolist())
    if columns is None or task.unknown:  # the batch runs again, so nothing of it is encoded now
        return
    task.appender.append(task.splitter.take(kept, columns.of_rows(kept)))


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
