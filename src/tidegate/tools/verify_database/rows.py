"""Rows of a table by columns, from wherever they come, and their spill to disk by a hash of the key.

A row is put or removed. On a table with a key the last of these decides whether a row is there; on one without, they
are counted. So states that come from SQL, from data files and from the log are compared in one form. Memory holds the
rows of one bucket: rows of one key are in one bucket.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.format.encode.spans import hashed

Ints = npt.NDArray[np.int64]
PUT, REMOVED = 1, -1
BUCKET_BYTES = 64 << 20
_MOST_BUCKETS = 256


class Shape(NamedTuple):
    """The columns that are compared: their names, their types, and which of them identify a row."""

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    key: tuple[int, ...]


class Changes(NamedTuple):
    """Rows that are put or removed, in order. `key` identifies a row; `era` and `ts` say when the sink got it.

    `columns` are texts of change events (docs/events.md), one array for each column of the table.
    """

    key: pa.Array
    op: npt.NDArray[np.int8]
    columns: list[pa.Array]
    era: Ints
    ts: Ints

    def take(self, at: Ints) -> Changes:
        where = pa.array(at)
        columns = [column.take(where) for column in self.columns]
        return Changes(self.key.take(where), self.op[at], columns, self.era[at], self.ts[at])


def changes(
    op: npt.NDArray[np.int8], columns: list[pa.Array], key: Sequence[int], era: int = 0, ts: Ints | None = None
) -> Changes:
    """`key` are the positions of the columns that identify a row; all of them if there is no key."""
    count = len(op)
    places = key or range(len(columns))
    stamps = np.zeros(count, np.int64) if ts is None else ts
    return Changes(
        joined([columns[i].cast(pa.binary()) for i in places]), op, columns, np.full(count, era, np.int64), stamps
    )


def joined(columns: Sequence[pa.Array]) -> pa.Array:
    """One text for each row, different for different rows: `2:ab1:cN` for `ab`, `c` and NULL."""
    pieces: list[pa.Array] = []
    for column in columns:
        length = pc.binary_length(column).cast(pa.string()).cast(pa.binary())
        lead = pc.binary_join_element_wise(length, pa.scalar(b":"), pa.scalar(b""))
        pieces += [pc.fill_null(lead, b"N"), pc.fill_null(column, b"")]
    return pc.binary_join_element_wise(*pieces, pa.scalar(b""))


def bucket_count(size_bytes: int) -> int:
    return min(max(1, -(-size_bytes // BUCKET_BYTES)), _MOST_BUCKETS)


class Spill:
    """Changes on disk in buckets. What is added keeps its order within a bucket."""

    def __init__(self, directory: Path, columns: int, buckets: int) -> None:
        names = [f"c{i}" for i in range(columns)]
        kinds = [pa.binary(), pa.int8(), pa.int64(), pa.int64(), *[pa.large_binary()] * columns]
        self._schema = pa.schema(zip(["key", "op", "era", "ts", *names], kinds, strict=True))
        self._directory, self._buckets = directory, buckets
        self._writers: dict[int, pa.RecordBatchStreamWriter] = {}

    def add(self, rows: Changes) -> None:
        if not len(rows.op):
            return
        if self._buckets == 1:
            self._write(0, rows)
            return
        bucket = (hashed(rows.key) % np.uint64(self._buckets)).astype(np.int64)
        order = np.argsort(bucket, kind="stable")
        ends = np.cumsum(np.bincount(bucket, minlength=self._buckets))
        for i, at in enumerate(np.split(order, ends[:-1])):
            if len(at):
                self._write(i, rows.take(at))

    def _write(self, bucket: int, rows: Changes) -> None:
        if bucket not in self._writers:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._writers[bucket] = pa.ipc.new_stream(str(self._path(bucket)), self._schema)
        arrays = [rows.key, pa.array(rows.op), pa.array(rows.era), pa.array(rows.ts), *rows.columns]
        cast = [array.cast(kind) for array, kind in zip(arrays, self._schema.types, strict=True)]
        self._writers[bucket].write_batch(pa.RecordBatch.from_arrays(cast, schema=self._schema))

    def _path(self, bucket: int) -> Path:
        return self._directory / f"{bucket}.arrow"

    def close(self) -> None:
        """Nothing is added any more. Open files are few, so a spill that waits has none."""
        for writer in self._writers.values():
            writer.close()

    def buckets(self) -> Iterator[Changes]:
        """The rows of each bucket in turn."""
        self.close()
        for bucket in range(self._buckets):
            if bucket not in self._writers:
                yield _changes_of(self._schema.empty_table())
                continue
            with pa.OSFile(str(self._path(bucket)), "rb") as file:
                table = pa.ipc.open_stream(file).read_all()
            self._path(bucket).unlink()
            yield _changes_of(table)


def _changes_of(table: pa.Table) -> Changes:
    key, op, era, ts, *columns = (column.combine_chunks() for column in table.columns)
    numbers = [each.to_numpy(zero_copy_only=False) for each in (op, era, ts)]
    return Changes(key, numbers[0], columns, numbers[1], numbers[2])
