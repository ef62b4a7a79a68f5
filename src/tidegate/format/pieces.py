"""What the text encoders share: a batch is written as numbered *pieces* of text, put together by one Arrow `take`.

All pieces that occur in a batch (values, and what stands between them) go into one pool; a matrix of piece numbers, a
row per line, is worked out in NumPy; `gather` then writes the text of the whole batch. Order, NULL and the choice
between old and new row are only numbers in that matrix, so there is no Python step per row or value.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import BadEvents

Numbers = npt.NDArray[np.int64]
Pieces = npt.NDArray[np.int32]

_SCAN_BYTES = 1 << 18  # a scan's temporary stays in the cache
_MOST_BYTES = 2**31 - 1


class Pool:
    """All pieces that occur in a batch, numbered in the order they were added."""

    def __init__(self) -> None:
        self.parts: list[pa.Array] = []
        self.size = 0

    def add(self, pieces: pa.Array) -> int:
        """The number of the first of them."""
        start = self.size
        self.parts.append(pieces)
        self.size += len(pieces)
        return start

    def array(self) -> pa.Array:
        return self.parts[0] if len(self.parts) == 1 else pa.concat_arrays(self.parts)


def codes(rows: pa.RecordBatch, name: str) -> tuple[npt.NDArray[np.int32], pa.Array]:
    """A number for every row's value in a text column, and the different values that the numbers stand for."""
    column = rows.column(name)
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py()
        raise BadEvents(f"the event at {at(rows, row)} has no {name}; every row change needs one")
    encoded = column.dictionary_encode()
    return encoded.indices.to_numpy(), encoded.dictionary


def at(rows: pa.RecordBatch, row: int) -> str:
    schema, table, ts = (rows.column(name)[row].as_py() for name in ("schema_name", "table_name", "commit_ts"))
    return f"{schema}.{table}, commit-ts {ts}"


def value_starts(rows: pa.RecordBatch, side: str, row: Numbers, wanted: int, pool: Pool) -> Numbers:
    """The piece number of the first of the `wanted` values of each of these rows; `side` is `after` or `before`."""
    lists = rows.column(side)
    offsets = lists.offsets.to_numpy().astype(np.int64)  # of a slice these still count from its parent's start
    _check_counts(rows, side, row, np.diff(offsets)[row], wanted)
    part = lists.values.slice(offsets[0], offsets[-1] - offsets[0])
    first: Numbers = offsets[row] + (pool.add(part.cast(pa.binary())) - offsets[0])
    return first


def _check_counts(rows: pa.RecordBatch, side: str, row: Numbers, found: Numbers, wanted: int) -> None:
    lists = rows.column(side)
    absent = lists.is_null().to_numpy(zero_copy_only=False)[row] if lists.null_count else np.False_
    bad = (found != wanted) | absent
    if not bad.any():
        return
    first = int(np.argmax(bad))
    count = "no" if np.broadcast_to(absent, bad.shape)[first] else str(found[first])
    kind = rows.column("kind")[row[first]].as_py()
    raise BadEvents(
        f"{at(rows, row[first])}: the {kind} has {count} values in `{side}` and its layout wants {wanted}; "
        "the source must send the layout that fits its rows"
    )


def gather(pieces: Pieces, first: Numbers, pool: Pool) -> pa.Array:
    text = pc.take(pool.array(), pa.array(pieces.reshape(-1)), boundscheck=False)
    _, offsets, data = text.buffers()
    starts = np.frombuffer(offsets, np.int32)[first * pieces.shape[1]]
    return pa.Array.from_buffers(pa.binary(), len(first) - 1, [None, pa.py_buffer(starts), data])


def texts(*texts: str) -> pa.Array:
    return pa.array([text.encode() for text in texts], pa.binary())


def bytes_of(values: pa.Array) -> tuple[Numbers, npt.NDArray[np.uint8]]:
    """Where each value starts and ends, counted from the first byte of the first one, and all their bytes."""
    _, offsets, data = values.buffers()
    ends = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    held = np.frombuffer(data if data is not None else b"", np.uint8)[ends[0] : ends[-1]]
    return ends - ends[0], held


def holds(values: pa.Array, special: bytes) -> bool:
    """Whether one of these bytes stands anywhere in the values."""
    _, held = bytes_of(values)
    blocks = (held[i : i + _SCAN_BYTES] for i in range(0, len(held), _SCAN_BYTES))
    return any((block == byte).any() for block in blocks for byte in special)


def with_text(values: pa.Array, ends: Numbers, text: bytes | npt.NDArray[np.uint8]) -> pa.Array:
    if ends[-1] > _MOST_BYTES:
        raise BadEvents("the binary values of one batch exceed 2 GiB as text; hand over smaller batches")
    valid = values.is_valid().buffers()[1] if values.null_count else None
    return pa.Array.from_buffers(
        pa.binary(), len(values), [valid, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(text)]
    )
