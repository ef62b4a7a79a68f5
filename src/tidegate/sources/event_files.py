"""Parquet files of the EVENTS schema in one directory: their row groups in order, and what is known of each.

Files are in name order. A footer is read and checked once. What a row group contains is found out from statistics where
they suffice, or else from the few columns that say it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.errors import BadEvents, BadSetting
from tidegate.events import EVENTS, LAYOUT, RESOLVED, ROW_KINDS
from tidegate.format.layout_columns import LayoutColumns, distinct_layouts
from tidegate.format.layout_texts import NO_KEYS, LayoutTexts
from tidegate.format.pieces import Numbers
from tidegate.format.rules.changes import key_changes
from tidegate.sources.row_groups import Ints, Places, Tables, tables_in

Named = list[Any]  # the file and the number of a row group, as in a split
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


class LayoutPlaces(NamedTuple):
    """For each layout, by fingerprint, the row group that defines it first."""

    fingerprint: Numbers
    group: Numbers

    def of(self, wanted: Numbers) -> list[int]:
        """The row groups that define the wanted layouts."""
        found: list[int] = np.unique(self.group[np.isin(self.fingerprint, wanted)]).tolist()
        return found


class EventFiles:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._footers: dict[str, pq.FileMetaData] = {}
        self._layouts: dict[tuple[str, int], Numbers] = {}  # which ones a row group defines
        self._marks: dict[int, int] = {}

    @cached_property
    def groups(self) -> list[Group]:
        groups: list[Group] = []
        for file in self._names():
            footer = self._footer(file)
            groups += [Group(file, n, _encoded_bytes(footer.row_group(n))) for n in range(footer.num_row_groups)]
        if not any(footer.num_rows for footer in self._footers.values()):
            raise BadSetting(f"the .parquet files in {str(self._directory)!r} hold no rows; put events there")
        return groups

    def _names(self) -> list[str]:
        try:
            names = sorted(name for name in os.listdir(self._directory) if fnmatch(name, "*.parquet"))
        except OSError as exc:
            raise BadSetting(f"directory {str(self._directory)!r} cannot be read: {exc.strerror}; allow it") from exc
        if not names:
            raise BadSetting(
                f"directory {str(self._directory)!r} has no .parquet files; name one with files of the events schema"
            )
        return names

    @cached_property
    def bounds(self) -> tuple[Ints, Ints]:
        """The least and the greatest commit-ts of each row group."""
        found = np.array([self._group_bounds(group) for group in self.groups], np.int64)
        return found[:, 0], found[:, 1]

    # -- one row group by its file and number ------------------------------------------------------------------------

    def rows(self, file: str, number: int) -> tuple[pa.Table, int]:
        """All rows of a row group, and an estimate of their encoded bytes."""
        table = self._columns(file, number, EVENTS.names).cast(EVENTS)
        return table, _encoded_bytes(self._footer(file).row_group(number))

    def layouts(self, named: Iterable[Named]) -> LayoutTexts:
        """The layouts that these row groups define."""
        parts = []
        for file, number in named:
            rows = self._columns(file, number, ["kind", "layout", "ddl"])
            rows = rows.filter(pc.equal(rows["kind"], LAYOUT))
            parts.append(LayoutTexts.of(rows["layout"].to_numpy(), rows["ddl"].combine_chunks()))
        return LayoutTexts.all_of(parts)

    def used(self, named: Iterable[Named]) -> Numbers:
        """The layouts that the rows of these row groups use."""
        return np.unique(np.concatenate([NO_KEYS, *(self._used_in(file, number) for file, number in named)]))

    def _used_in(self, file: str, number: int) -> Numbers:
        rows = self._columns(file, number, ["kind", "layout"])
        layouts = rows.filter(pc.is_in(rows["kind"], value_set=pa.array(ROW_KINDS)))["layout"]
        found: Numbers = pc.unique(layouts).drop_null().to_numpy()
        return found

    def _defined(self, file: str, number: int) -> Numbers:
        """The layouts that a row group defines. Does not read the columns with values."""
        if (file, number) not in self._layouts:
            chosen = pc.equal(self._columns(file, number, ["kind"])["kind"], LAYOUT)
            rows = self._columns(file, number, ["layout"]).filter(chosen) if pc.any(chosen).as_py() else None
            self._layouts[file, number] = NO_KEYS if rows is None else rows["layout"].to_numpy()
        return self._layouts[file, number]

    # -- one row group by its place in the order ---------------------------------------------------------------------

    def named(self, groups: Iterable[int]) -> list[Named]:
        """Row groups as a split names them."""
        return [[self.groups[at].file, self.groups[at].number] for at in groups]

    def layout_places(self, last: int) -> LayoutPlaces:
        """Where the layouts of the row groups before `last` are defined for the first time."""
        found = [self._defined(group.file, group.number) for group in self.groups[:last]]
        fingerprints, first = np.unique(np.concatenate([NO_KEYS, *found]), return_index=True)
        counts = np.array([len(each) for each in found], np.int64)
        return LayoutPlaces(fingerprints, np.repeat(np.arange(last), counts)[first])

    def mark(self, at: int) -> int:
        """The greatest resolved mark in a row group, 0 if it has none."""
        if at not in self._marks:
            group = self.groups[at]
            rows = self._columns(group.file, group.number, ["kind", "commit_ts"])
            self._marks[at] = pc.max(rows.filter(pc.equal(rows["kind"], RESOLVED))["commit_ts"]).as_py() or 0
        return self._marks[at]

    def tables(self, at: int) -> Tables:
        return tables_in(*self.places(at))

    def places(self, at: int) -> Places:
        """Table id and commit-ts of the row changes of a row group."""
        rows = self._changes(at, ["table_id", "commit_ts"])
        return rows["table_id"].to_numpy(), rows["commit_ts"].to_numpy()

    def key_updates(self, at: int) -> Places:
        """The same of the updates that change a key. Reads the whole row group."""
        rows = self._changes(at, [*EVENTS.names]).cast(EVENTS).combine_chunks()
        used = self.used(self.named([at]))
        known = self.layouts(self.named(self.layout_places(at + 1).of(used)))
        found = []
        for batch in rows.to_batches():
            texts = known.find(distinct_layouts(batch))
            batch = batch.filter(pc.is_in(batch.column("layout"), pa.array(texts.fingerprint)))
            changed = key_changes(batch, LayoutColumns.parse(texts.fingerprint, texts.text).of_rows(batch))
            if changed is not None:
                found.append(batch.filter(pa.array(changed)))
        updates = pa.Table.from_batches(found, EVENTS)
        return updates["table_id"].to_numpy(), updates["commit_ts"].to_numpy()

    def _changes(self, at: int, names: list[str]) -> pa.Table:
        """These columns of the row changes of a row group that name their table."""
        group = self.groups[at]
        rows = self._columns(group.file, group.number, list(dict.fromkeys([*names, "kind", "table_id"])))
        is_change = pc.is_in(rows["kind"], value_set=pa.array(ROW_KINDS))
        return rows.filter(pc.and_(is_change, rows["table_id"].is_valid())).select(names)

    # -- files -------------------------------------------------------------------------------------------------------

    def _footer(self, file: str) -> pq.FileMetaData:
        if file not in self._footers:
            self._footers[file] = _checked_footer(str(self._directory / file))
        return self._footers[file]

    def _columns(self, file: str, number: int, names: list[str]) -> pa.Table:
        path = str(self._directory / file)
        with _refusing_damage(path), pq.ParquetFile(path, metadata=self._footer(file)) as opened:
            return opened.read_row_group(number, columns=names, use_threads=False).select(names)

    def _group_bounds(self, group: Group) -> tuple[int, int]:
        """From the statistics of the file or, if it has none, from the rows."""
        statistics = _column(self._footer(group.file).row_group(group.number), "commit_ts").statistics
        if statistics is not None and statistics.has_min_max:
            return int(statistics.min), int(statistics.max)
        found = pc.min_max(self._columns(group.file, group.number, ["commit_ts"]).column("commit_ts")).as_py()
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


@contextmanager
def _refusing_damage(path: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowInvalid, OSError) as exc:
        raise BadEvents(f"{path!r} cannot be read as a Parquet file; replace or remove it: {exc}") from exc


def _checked_footer(path: str) -> pq.FileMetaData:
    with _refusing_damage(path):
        metadata = pq.read_metadata(path)
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
