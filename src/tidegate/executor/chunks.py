"""Cutting encoded rows into chunks: each becomes one item, a slice of a segment.

Promises: a chunk has about `chunk_bytes` and ends where a transaction ends; only a transaction that is larger than a
file is cut inside. A chunk has rows of one dispatcher, one table version and one layout, and none from both sides of a
DDL that is not over. No Python code runs for each row.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidegate.executor.floor import Ints
from tidegate.executor.jobs import IngestJob
from tidegate.executor.rows import ROWS, with_all_columns
from tidegate.executor.spool import Appended
from tidegate.format.checksums import checksum
from tidegate.format.rules.changes import numbers


def chunk_bytes(file_size_bytes: int) -> int:
    """A 64th of a file, so that whole chunks come within 1 % of `file-size`; not so small that items outweigh rows."""
    return max(file_size_bytes // 64, min(file_size_bytes // 2, 16 << 10))


class Encoded(NamedTuple):
    """Rows that were encoded and appended together."""

    events: pa.RecordBatch
    owner: Ints  # the dispatcher of each row of `events`
    seq: Ints
    moved: NDArray[np.bool_] | None  # which rows are inserts of split updates; None for none
    order: Ints  # in which the rows were encoded
    ends: Ints  # where each row begins in the text, in that order, and where the last one ends


def items_of(encoded: Encoded, text: memoryview, at: Appended, job: IngestJob) -> pa.RecordBatch:
    """One item for each chunk of these rows, whose text begins at `at`."""
    events, order, ends = encoded.events, encoded.order, encoded.ends
    table_id, version, ts = (numbers(events, name)[order] for name in ("table_id", "table_version", "commit_ts"))
    owner, seq, layout = encoded.owner[order], encoded.seq[order], numbers(events, "layout")[order]
    first = _chunk_starts(owner, _sides(version, layout, ts, job.cuts), ts, seq, ends, job)
    last = np.append(first[1:], len(order)) - 1
    rows_at = pa.array(order[first])
    logical = pc.coalesce(events.column("logical_table_id"), events.column("table_id"))
    count = len(first)
    columns: dict[str, pa.Array] = {
        "kind": pa.repeat(ROWS, count),
        "table_id": pa.array(table_id[first]),
        "span": pa.array((owner - table_id * job.spans)[first] if job.spans > 1 else np.zeros(count), pa.int32()),
        "logical_table_id": logical.take(rows_at),
        "schema_id": pc.fill_null(events.column("schema_id"), 0).take(rows_at),
        "schema_name": events.column("schema_name").take(rows_at),
        "table_name": events.column("table_name").take(rows_at),
        "version": pa.array(version[first]),
        "layout": pa.array(layout[first]),
        "first_ts": pa.array(ts[first]),
        "first_seq": pa.array(seq[first]),
        "last_ts": pa.array(ts[last]),
        "last_seq": pa.array(seq[last]),
        "rows": pa.array(last - first + 1),
        "segment": pa.repeat(at.segment, count),
        "tier": pa.repeat(pa.scalar(at.tier, pa.int32()), count),
        "offset": pa.array(ends[first] + at.offset),
        "length": pa.array(ends[last + 1] - ends[first]),
        "checksum": _checksums(text, ends[np.append(first, len(order))]),
        "moved": pa.array(_moved_bits(encoded, ts, first, last), pa.int32()),
    }
    return with_all_columns(columns, count)


def _checksums(text: memoryview, bounds: Ints) -> pa.Array:
    """By chunk. One call for each, because it costs less than a hundredth of encoding the same bytes."""
    at = bounds.tolist()
    return pa.array([checksum(text[low:high]) for low, high in pairwise(at)], pa.int64())


def _moved_bits(encoded: Encoded, ts: Ints, first: Ints, last: Ints) -> Ints:
    """1 if the transaction of a chunk's first row has a moved insert in the chunk, 2 if that of its last row has."""
    bits = np.zeros(len(first), np.int64)
    if encoded.moved is not None:
        moved = np.flatnonzero(encoded.moved[encoded.order])
        chunk = np.searchsorted(first, moved, side="right") - 1
        np.bitwise_or.at(bits, chunk, (ts[moved] == ts[first[chunk]]) + 2 * (ts[moved] == ts[last[chunk]]))
    return bits


def _sides(version: Ints, layout: Ints, ts: Ints, cuts: tuple[int, ...]) -> Ints:
    """Numbers that differ where version or layout do, or where a DDL that is not over lies between.

    All of these begin a chunk.
    """
    changes = layout[1:] != layout[:-1]
    if not cuts and not changes.any():  # nearly always
        return version
    changes |= version[1:] != version[:-1]
    if cuts:
        changes |= np.diff(np.searchsorted(cuts, ts, side="right")) != 0
    return np.append(0, np.cumsum(changes))


def _chunk_starts(owner: Ints, side: Ints, ts: Ints, seq: Ints, ends: Ints, job: IngestJob) -> Ints:
    """Row numbers where a chunk begins: at a new dispatcher or side, else at a transaction about every `chunk_bytes`.

    A transaction larger than a file is cut inside, so that its file need not exceed `file-size` by much. Rows with the
    same seq stay together: they are the last row of a transaction and the inserts that were moved behind it.
    """
    chunk_bytes, file_size_bytes = job.options.chunk_bytes, job.options.file_size_bytes
    count = len(owner)
    run = _starts((owner[1:] != owner[:-1]) | (side[1:] != side[:-1]))
    transaction = _starts((ts[1:] != ts[:-1]) | (owner[1:] != owner[:-1]) | (side[1:] != side[:-1]))
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
