"""`parquet:DIR`: change events from Parquet files of the EVENTS schema, replayed in order.

Files are read in name order, and their row groups in order. The offset `{"at": 7}` is the number of row groups that
were read; tables that were held back are named in it (`held_groups`). Micro-batches and splits end where no transaction
goes on (`row_groups`), so row groups may end anywhere. A split is a sequence of row groups, of which some tables may be
left out, or only some are read. It begins with the layouts that its rows use, so a start in the middle has them too.
The end counts as resolved: the last split has a resolved row with the greatest commit-ts of all files. While tables are
behind, a resolved mark is at most one less than their next commit-ts.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import BadSetting
from tidegate.events import RESOLVED, ROW_KINDS
from tidegate.sources.event_files import EventFiles, LayoutPlaces, write_events
from tidegate.sources.held_groups import Cursor, HeldGroups, parts_between
from tidegate.sources.row_groups import Ints, RowGroups
from tidegate.sources.source import BATCH_BYTES, Offset, Split, layout_rows, resolved_row

__all__ = ["ParquetSource", "write_events"]


class ParquetSource:
    finite = True

    def __init__(self, uri: str) -> None:
        text = uri.removeprefix("parquet:").removeprefix("//")
        if not text:
            raise BadSetting(f"source {uri!r} names no directory; write parquet:DIR")
        if not Path(text).is_dir():
            raise BadSetting(f"source {uri!r}: there is no directory {text!r}; name one with .parquet files")
        self._files = EventFiles(Path(text))

    def check(self) -> None:
        """Reads the footers of all files: that there are events, and that each file has the right columns."""
        _ = self._files.groups

    def initial(self) -> Offset:
        return Cursor().offset()

    def latest(self, start: Offset, limit_bytes: int, held: frozenset[int]) -> Offset:
        cursor = self._cursor(start)
        if held or cursor.behind:
            end = self._held.advance(cursor, limit_bytes, held)
        elif cursor.at < len(self._ends):
            fitting = int(np.searchsorted(self._ends, self._bytes_before(cursor.at) + limit_bytes, side="right"))
            end = Cursor(self._whole.end(cursor.at, max(cursor.at + 1, fitting)))
        else:
            end = cursor
        return start if end == cursor else end.offset()

    def splits(self, start: Offset, end: Offset, parallelism: int) -> list[Split]:
        before, after = self._cursor(start), self._cursor(end)
        if before == after:
            return []
        places = self._files.layout_places(after.at)
        splits: list[Split] = [
            {**self._named(part.first, part.last, places), "only": part.tables} for part in parts_between(before, after)
        ]
        lags = bool(before.behind or after.behind)
        without = {"without": sorted(after.behind)} if lags else {}
        for low, high in pairwise(self._bounds(before.at, after.at, max(1, parallelism))):
            splits.append({**self._named(low, high, places), **without})
        if lags or after.at == len(self._ends):
            splits[-1]["resolved"] = self._resolved(after)
        return splits

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        if split["layouts"]:
            used = self._files.used(split["groups"])
            found = self._files.layouts(split["layouts"]).find(used)
            yield layout_rows(dict(zip(found.fingerprint.tolist(), found.text.to_pylist(), strict=True)), 0)
        for file, number in split["groups"]:
            table, size_bytes = self._files.rows(file, number)
            rows = max(1, table.num_rows * BATCH_BYTES // max(size_bytes, BATCH_BYTES))
            yield from _chosen(table, split).combine_chunks().to_batches(max_chunksize=rows)
        if split.get("resolved"):
            yield resolved_row(split["resolved"])

    def size_bytes(self, start: Offset, end: Offset) -> int:
        before, after = self._cursor(start), self._cursor(end)
        if before.behind or after.behind:
            return self._held.size_between(before, after)
        return self._bytes_before(after.at) - self._bytes_before(before.at)

    def backlog_bytes(self, offset: Offset) -> int:
        """At most: row groups that are read once more, for a table that is behind, count as a whole."""
        cursor = self._cursor(offset)
        first = min([cursor.at, *(place.at for place in cursor.behind.values())])
        return int(self._ends[-1]) - self._bytes_before(first)

    def newest_ts(self) -> int:
        return int(self._whole.high_ts.max())

    def _cursor(self, offset: Offset) -> Cursor:
        return Cursor.of(offset, len(self._ends))

    def _named(self, first: int, last: int, places: LayoutPlaces) -> Split:
        """A split of these row groups, and the row groups that define the layouts of their rows."""
        groups = self._files.named(range(first, last))
        return {"groups": groups, "layouts": self._files.named(places.of(self._files.used(groups)))}

    def _bounds(self, first: int, last: int, pieces: int) -> list[int]:
        """Divides the row groups into sequences of about equal bytes."""
        if first == last:
            return []
        before = self._bytes_before(first)
        goals = before + (self._bytes_before(last) - before) * np.arange(1, pieces) / pieces
        wanted = np.searchsorted(self._ends[first:last], goals, side="left") + first + 1
        whole = np.append(self._whole.ends(first, last - 1), last)
        cuts = whole[np.searchsorted(whole, np.minimum(wanted, last))]
        return sorted({first, last, *cuts.tolist()})

    def _resolved(self, cursor: Cursor) -> int:
        """The last resolved mark before the cursor, or all of it at the end, but below the rows of tables behind."""
        ends = cursor.at == len(self._ends)
        mark = self.newest_ts() if ends else next(filter(None, map(self._files.mark, reversed(range(cursor.at)))), 0)
        return min([mark, *(place.ts - 1 for place in cursor.behind.values())])

    @cached_property
    def _whole(self) -> RowGroups:
        return RowGroups(*self._files.bounds, self._files.places, self._files.key_updates)

    @cached_property
    def _held(self) -> HeldGroups:
        return HeldGroups(self._whole, np.diff(self._ends, prepend=0), self._files.tables)

    @cached_property
    def _ends(self) -> Ints:
        return np.cumsum([group.size_bytes for group in self._files.groups], dtype=np.int64)

    def _bytes_before(self, at: int) -> int:
        return int(self._ends[at - 1]) if at else 0


def _chosen(rows: pa.Table, split: Split) -> pa.Table:
    """The rows of only some tables, or all rows without those of some tables; then the split has the resolved mark."""
    if "only" not in split and "without" not in split:
        return rows
    is_change = pc.is_in(rows["kind"], value_set=pa.array(ROW_KINDS))
    named = pa.array(split.get("only", split.get("without")), pa.int64())
    is_named = pc.and_(is_change, pc.is_in(rows["table_id"], value_set=named))
    if "only" in split:
        return rows.filter(is_named)
    return rows.filter(pc.invert(pc.or_(is_named, pc.equal(rows["kind"], RESOLVED))))
