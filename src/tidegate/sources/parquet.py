"""`parquet:DIR`: change events from Parquet files of the EVENTS schema, replayed in order.

Files are read in name order, and their row groups in order. The offset `{"at": 7}` is the number of row groups that
were read. Micro-batches and splits end where no transaction goes on (`row_groups`), so row groups may end anywhere. A
split is a sequence of row groups. It begins with the layouts that its rows use, so a start in the middle has them too.
The end counts as resolved: the last split has a resolved row with the greatest commit-ts of all files. Tables are not
separate here, so no table can be held.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.errors import BadEvents, BadSetting
from tidegate.events import EVENTS, LAYOUT, ROW_KINDS
from tidegate.format.layout_columns import LayoutColumns, distinct_layouts
from tidegate.format.layout_texts import NO_KEYS, LayoutTexts
from tidegate.format.pieces import Numbers
from tidegate.format.rules.changes import key_changes
from tidegate.sources.row_groups import RowGroups
from tidegate.sources.source import BATCH_BYTES, Offset, Split, layout_rows, resolved_row

_LINE_BYTES = 30  # operation, names and separators of one encoded line
_IMAGES = ("after", "before")
# Columns with mostly distinct values: a dictionary would only cost time. Compression, too: `snappy` made reading three
# times slower.
_DISTINCT = (*_IMAGES, "start_ts", "commit_ts", "seq")


@dataclass(frozen=True)
class Group:
    """One row group: its file and number, and an estimate of its encoded bytes."""

    file: str
    number: int
    size_bytes: int


class _Places(NamedTuple):
    """For each layout, by fingerprint, the row group that defines it first."""

    fingerprint: Numbers
    group: Numbers

    def of(self, wanted: Numbers) -> list[int]:
        """The row groups that define the wanted layouts."""
        found: list[int] = np.unique(self.group[np.isin(self.fingerprint, wanted)]).tolist()
        return found


class ParquetSource:
    finite = True

    def __init__(self, uri: str) -> None:
        text = uri.removeprefix("parquet:").removeprefix("//")
        self._directory = Path(text)
        self._footers: dict[str, pq.FileMetaData] = {}
        self._known_layouts: dict[tuple[str, int], Numbers] = {}  # which layouts a row group defines
        if not text:
            raise BadSetting(f"source {uri!r} names no directory; write parquet:DIR")
        if not self._directory.is_dir():
            raise BadSetting(
                f"source {uri!r}: there is no directory {str(self._directory)!r}; name one with .parquet files"
            )

    def initial(self) -> Offset:
        return {"at": 0}

    def latest(self, start: Offset, limit_bytes: int, held: frozenset[int]) -> Offset:
        at = self._at(start)
        if at == len(self._groups):
            return start
        fitting = int(np.searchsorted(self._ends, self._bytes_before(at) + limit_bytes, side="right"))
        return {"at": self._whole.end(at, max(at + 1, fitting))}

    def splits(self, start: Offset, end: Offset, parallelism: int) -> list[Split]:
        first, last = self._at(start), self._at(end)
        if first == last:
            return []
        bounds = self._bounds(first, last, max(1, parallelism))
        places = self._layout_places(last)
        splits: list[Split] = [
            {"groups": self._named(range(low, high)), "layouts": self._named(places.of(self._used(range(low, high))))}
            for low, high in pairwise(bounds)
        ]
        if last == len(self._groups):
            splits[-1]["resolved"] = self._greatest_ts
        return splits

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        if split["layouts"]:
            used = np.unique(np.concatenate([self._used_in(file, number) for file, number in split["groups"]]))
            found = self._layouts(split["layouts"]).find(used)
            yield layout_rows(dict(zip(found.fingerprint.tolist(), found.text.to_pylist(), strict=True)), 0)
        for file, number in split["groups"]:
            yield from self._rows(file, number)
        if "resolved" in split:
            yield resolved_row(split["resolved"])

    def backlog_bytes(self, offset: Offset) -> int:
        return int(self._ends[-1]) - self._bytes_before(self._at(offset))

    def newest_ts(self) -> int:
        return self._greatest_ts

    def _at(self, offset: Offset) -> int:
        at = offset.get("at")
        if not isinstance(at, int) or not 0 <= at <= len(self._groups):
            raise BadSetting(
                f"position {offset!r} does not fit the {len(self._groups)} row groups in {str(self._directory)!r}; "
                "were the files changed?"
            )
        return at

    def _bounds(self, first: int, last: int, pieces: int) -> list[int]:
        """Divides the row groups into sequences of about equal bytes."""
        before = self._bytes_before(first)
        goals = before + (self._bytes_before(last) - before) * np.arange(1, pieces) / pieces
        wanted = np.searchsorted(self._ends[first:last], goals, side="left") + first + 1
        whole = np.append(self._whole.ends(first, last - 1), last)
        cuts = whole[np.searchsorted(whole, np.minimum(wanted, last))]
        return sorted({first, last, *cuts.tolist()})

    @cached_property
    def _files(self) -> list[str]:
        files = sorted(path.name for path in self._directory.glob("*.parquet"))
        if not files:
            raise BadSetting(f"directory {str(self._directory)!r} has no .parquet files; put some there")
        return files

    @cached_property
    def _groups(self) -> list[Group]:
        groups: list[Group] = []
        for file in self._files:
            metadata = self._footer(file)
            groups += [Group(file, n, _encoded_bytes(metadata.row_group(n))) for n in range(metadata.num_row_groups)]
        if not groups:
            raise BadSetting(f"the .parquet files in {str(self._directory)!r} hold no rows; put events there")
        return groups

    @cached_property
    def _whole(self) -> RowGroups:
        bounds = np.array([self._group_bounds(group.file, group.number) for group in self._groups], np.int64)
        return RowGroups(bounds[:, 0], bounds[:, 1], self._places, self._key_updates)

    def _places(self, at: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Table id and commit-ts of the row changes of a row group."""
        rows = self._changes(at, ["table_id", "commit_ts"])
        return rows["table_id"].to_numpy(), rows["commit_ts"].to_numpy()

    def _key_updates(self, at: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The same of the updates that change a key. Reads the whole row group."""
        rows = self._changes(at, [*EVENTS.names]).cast(EVENTS).combine_chunks()
        known = self._layouts(self._named(self._layout_places(at + 1).of(self._used([at]))))
        found = []
        for batch in rows.to_batches():
            used = known.find(distinct_layouts(batch))
            batch = batch.filter(pc.is_in(batch.column("layout"), pa.array(used.fingerprint)))
            changed = key_changes(batch, LayoutColumns.parse(used.fingerprint, used.text).of_rows(batch))
            if changed is not None:
                found.append(batch.filter(pa.array(changed)))
        updates = pa.Table.from_batches(found, EVENTS)
        return updates["table_id"].to_numpy(), updates["commit_ts"].to_numpy()

    def _changes(self, at: int, names: list[str]) -> pa.Table:
        """These columns of the row changes of a row group that name their table."""
        group = self._groups[at]
        rows = self._columns(group.file, group.number, list(dict.fromkeys([*names, "kind", "table_id"])))
        is_change = pc.is_in(rows["kind"], value_set=pa.array(ROW_KINDS))
        return rows.filter(pc.and_(is_change, rows["table_id"].is_valid())).select(names)

    @cached_property
    def _ends(self) -> npt.NDArray[np.int64]:
        return np.cumsum([group.size_bytes for group in self._groups], dtype=np.int64)

    def _bytes_before(self, at: int) -> int:
        return int(self._ends[at - 1]) if at else 0

    @cached_property
    def _greatest_ts(self) -> int:
        return int(self._whole.high_ts.max())

    def _layout_places(self, last: int) -> _Places:
        """Where the layouts of the row groups before `last` are defined for the first time."""
        found = [self._defined(group.file, group.number) for group in self._groups[:last]]
        fingerprints, first = np.unique(np.concatenate(found), return_index=True)
        return _Places(fingerprints, np.repeat(np.arange(last), [len(each) for each in found])[first])

    def _used(self, groups: Iterable[int]) -> Numbers:
        """The layouts that the rows of these row groups use."""
        chosen = [self._groups[at] for at in groups]
        return np.unique(np.concatenate([self._used_in(group.file, group.number) for group in chosen]))

    def _used_in(self, file: str, number: int) -> Numbers:
        rows = self._columns(file, number, ["kind", "layout"])
        layouts = rows.filter(pc.is_in(rows["kind"], value_set=pa.array(ROW_KINDS)))["layout"]
        found: Numbers = pc.unique(layouts).drop_null().to_numpy()
        return found

    def _named(self, groups: Iterable[int]) -> list[list[Any]]:
        """Row groups as a split names them."""
        return [[self._groups[at].file, self._groups[at].number] for at in groups]

    def _footer(self, file: str) -> pq.FileMetaData:
        """The footer of a file. It is read and checked once, and used for all splits of the file."""
        if file not in self._footers:
            self._footers[file] = _checked_footer(str(self._directory / file))
        return self._footers[file]

    def _columns(self, file: str, number: int, names: list[str]) -> pa.Table:
        with pq.ParquetFile(self._directory / file, metadata=self._footer(file)) as opened:
            return opened.read_row_group(number, columns=names, use_threads=False).select(names)

    def _rows(self, file: str, number: int) -> Iterator[pa.RecordBatch]:
        table = self._columns(file, number, EVENTS.names).cast(EVENTS)
        size_bytes = _encoded_bytes(self._footer(file).row_group(number))
        rows = max(1, table.num_rows * BATCH_BYTES // max(size_bytes, BATCH_BYTES))
        yield from table.combine_chunks().to_batches(max_chunksize=rows)

    def _defined(self, file: str, number: int) -> Numbers:
        """The layouts that a row group defines. Does not read the columns with values."""
        if (file, number) not in self._known_layouts:
            chosen = pc.equal(self._columns(file, number, ["kind"])["kind"], LAYOUT)
            rows = self._columns(file, number, ["layout"]).filter(chosen) if pc.any(chosen).as_py() else None
            self._known_layouts[file, number] = NO_KEYS if rows is None else rows["layout"].to_numpy()
        return self._known_layouts[file, number]

    def _layouts(self, groups: Iterable[list[Any]]) -> LayoutTexts:
        """The layouts that these row groups define."""
        parts = []
        for file, number in groups:
            rows = self._columns(file, number, ["kind", "layout", "ddl"])
            rows = rows.filter(pc.equal(rows["kind"], LAYOUT))
            parts.append(LayoutTexts.of(rows["layout"].to_numpy(), rows["ddl"].combine_chunks()))
        return LayoutTexts.all_of(parts)

    def _group_bounds(self, file: str, number: int) -> tuple[int, int]:
        """The least and greatest commit-ts, from the statistics of the file or, if it has none, from the rows."""
        statistics = _column(self._footer(file).row_group(number), "commit_ts").statistics
        if statistics is not None and statistics.has_min_max:
            return int(statistics.min), int(statistics.max)
        found = pc.min_max(self._columns(file, number, ["commit_ts"]).column("commit_ts")).as_py()
        return found["min"] or 0, found["max"] or 0


def write_events(directory: str | Path, batches: Iterable[pa.RecordBatch], rows_per_file: int) -> list[Path]:
    """Writes batches of EVENTS as `events-000000.parquet`, ...: a row group per batch, `rows_per_file` rows a file."""
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    files: list[Path] = []
    writer: pq.ParquetWriter | None = None
    rows = 0
    try:
        for batch in batches:
            if writer is None or rows >= rows_per_file:
                if writer is not None:
                    writer.close()
                files.append(folder / f"events-{len(files):06d}.parquet")
                writer, rows = _writer(files[-1]), 0
            writer.write_batch(batch, row_group_size=max(1, batch.num_rows))
            rows += batch.num_rows
    finally:
        if writer is not None:
            writer.close()
    return files


def _writer(path: Path) -> pq.ParquetWriter:
    coded = [name for name in EVENTS.names if name not in _DISTINCT]
    return pq.ParquetWriter(path, EVENTS, compression="none", use_dictionary=coded)


def _checked_footer(path: str) -> pq.FileMetaData:
    try:
        metadata = pq.read_metadata(path)
    except (pa.ArrowInvalid, OSError) as exc:
        raise BadEvents(f"{path!r} cannot be read as a Parquet file; replace or remove it: {exc}") from exc
    found = metadata.schema.to_arrow_schema()
    for wanted in EVENTS:
        if wanted.name not in found.names:
            raise BadEvents(f"{path!r} has no column {wanted.name!r}; add it ({wanted.type}): events need all columns")
        type_ = found.field(wanted.name).type
        if not _same_type(type_, wanted.type):
            raise BadEvents(f"{path!r}: column {wanted.name!r} is {type_}, not {wanted.type}; cast it when preparing")
    return metadata


def _same_type(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Equal, except for the name and nullability of a list's element, which differ between writers."""
    if pa.types.is_list(found) and pa.types.is_list(wanted):
        return bool(found.value_type == wanted.value_type)
    return bool(found == wanted)


def _column(group: pq.RowGroupMetaData, name: str) -> pq.ColumnChunkMetaData:
    """The column chunk of this name; for a list, the chunk whose path begins with the name."""
    chunks = (group.column(index) for index in range(group.num_columns))
    return next(chunk for chunk in chunks if chunk.path_in_schema.partition(".")[0] == name)


def _encoded_bytes(group: pq.RowGroupMetaData) -> int:
    """An estimate. A delete encodes `before`, other changes `after`; the larger of the two is close for any mix."""
    payload_bytes = max(int(_column(group, name).total_uncompressed_size) for name in _IMAGES)
    return payload_bytes + int(group.num_rows) * _LINE_BYTES
