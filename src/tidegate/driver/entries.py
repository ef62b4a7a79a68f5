"""What the journal's objects say, and how: Arrow tables of planned files, with a head as JSON beside them.

An entry is a table of `FILES`, a snapshot one of the ledger's own rows. The head is in the schema's metadata, which is
at the front of the object, so that it can be read without the rest. A second table may follow: in an entry the layouts
that it puts on record, in a snapshot the entry that has each layout.

Every head has the number of the format that it is written in. A start goes on from the formats that it knows, and
refuses a newer one: what it does not understand in there may be what keeps rows from being lost.

    1   release 0.2.0, whose heads have no number
    2   a planned file also has its first change and its checksum
    3   files and tables say whether they have a directory of their own, and which columns they have; a snapshot has the
        targets whose tables have left; layouts are a table of their own, before they were all in every snapshot's head
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tidegate.control.columns import Ints
from tidegate.control.ledger import Ledger
from tidegate.control.records import SINCE_FORMAT_2, file_columns, with_columns
from tidegate.control.rounds import Round
from tidegate.errors import StoreRefused
from tidegate.format.checksums import joined
from tidegate.format.layout import RESERVED_PREFIX, DataKey, PathOptions, index_path
from tidegate.format.layout_texts import NO_LAYOUTS, LayoutTexts

FOLDER = f"{RESERVED_PREFIX}/journal"
ENTRY, SNAPSHOT = ".entry", ".snapshot"
FORMAT = 3
_NO_SIZE = -1
_NO_CHECKSUM = -1

FILES = pa.schema(
    [
        ("plan", pa.int64()),
        ("table_id", pa.int64()),
        ("span", pa.int32()),
        ("logical_table_id", pa.int64()),
        ("schema_name", pa.string()),
        ("table_name", pa.string()),
        ("version", pa.int64()),
        ("directory", pa.int64()),
        ("date", pa.int64()),
        ("number", pa.int64()),
        ("bytes", pa.int64()),
        ("last_ts", pa.int64()),
        ("last_seq", pa.int64()),
        ("target_schema", pa.string()),
        ("target_table", pa.string()),
        ("dispatcher", pa.string()),
        ("first_ts", pa.int64()),
        ("first_seq", pa.int64()),
        ("checksum", pa.int64()),
        ("own_directory", pa.bool_()),
        ("layout", pa.int64()),
    ]
)
# What stands for the columns that an older format does not have.
_ZERO = pa.scalar(0, pa.int64())
_SINCE_FORMAT_1 = {"first_ts": _ZERO, "first_seq": _ZERO, "checksum": pa.scalar(_NO_CHECKSUM, pa.int64())}


UNREADABLE = (pa.ArrowInvalid, OSError, ValueError, KeyError, TypeError)  # what a damaged object raises
_END = b"\xff\xff\xff\xff\0\0\0\0"  # of a table in Arrow's stream format


class NewerFormat(StoreRefused):
    """A later release wrote this journal."""

    remedy = "use the release that wrote it or a later one, or give another prefix"


class DamagedJournal(StoreRefused):
    """An object of the journal is missing or cannot be read."""

    remedy = (
        "bring the object back from a copy; or remove all of _tidegate/journal, and the next start takes the sink over "
        "at the checkpoint in `metadata` and writes again what is beyond it"
    )


class PlannedFile(NamedTuple):
    """A row of `FILES`."""

    plan: int
    table_id: int
    span: int
    logical_table_id: int
    schema_name: str
    table_name: str
    version: int
    directory: int  # the version in the path
    date: int  # 20260131, or 0 without a date
    number: int
    bytes: int  # _NO_SIZE where another file may already exist under this number
    last_ts: int
    last_seq: int
    target_schema: str
    target_table: str
    dispatcher: str
    first_ts: int
    first_seq: int
    checksum: int  # of the whole file; _NO_CHECKSUM if an older release planned it
    own_directory: bool  # the table id is in its path, although it is no partition
    layout: int

    @property
    def is_sure(self) -> bool:
        """Whether it may have been put. Otherwise the task that had it only looked which files exist."""
        return self.bytes != _NO_SIZE

    def is_content(self, size: int, checksum: Callable[[], int]) -> bool:
        """Whether a file of this size and checksum is the planned one."""
        return self.bytes == size and self.checksum in (_NO_CHECKSUM, checksum())

    def key(self, options: PathOptions) -> DataKey:
        return DataKey(
            schema=self.target_schema,
            table=self.target_table,
            version=self.directory,
            table_id=self.table_id,
            is_partition=self.own_directory or self.table_id != self.logical_table_id,
            date=date_of(self.date, options.date_separator),
            dispatcher=self.dispatcher,
        )

    def naming(self, options: PathOptions) -> PathOptions:
        """How this file is named, whatever the option says by now."""
        return replace(options, across_nodes=bool(self.dispatcher))

    def lane(self, options: PathOptions) -> str:
        """The path of its index file."""
        return index_path(self.key(options), self.naming(options))


def planned_files(files: pa.Table) -> list[PlannedFile]:
    return [PlannedFile(*row) for row in zip(*(column.to_pylist() for column in files.columns), strict=True)]


def in_this_format(files: pa.Table) -> pa.Table:
    """Planned files that an older release may have put on record, with all columns of `FILES`."""
    return with_columns(files, {**_SINCE_FORMAT_1, **SINCE_FORMAT_2}).select(FILES.names)


def table_of_files(files: Iterable[PlannedFile]) -> pa.Table:
    columns = list(zip(*files, strict=True)) or [()] * len(FILES)
    return pa.Table.from_arrays([pa.array(c, kind) for c, kind in zip(columns, FILES.types, strict=True)], schema=FILES)


@dataclass(frozen=True)
class Head:
    """What an entry says besides its files; what checkpoint and position count as durable is among `confirmed`."""

    checkpoint_ts: int
    position: str | None
    layouts: LayoutTexts = NO_LAYOUTS  # those that go on record with it
    confirmed: list[int] = field(default_factory=list)
    withdrawn: list[int] = field(default_factory=list)
    takeover: bool = False
    spans: int = 0  # dispatchers of a split table; 0 where file names carry no dispatcher
    shape: dict[str, str] = field(default_factory=dict)  # options that shape paths and bytes
    foreign: bool = False  # files of another writer exist on this sink
    surpassed: bool = False  # another writer has been here since the entries before

    def json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "checkpoint-ts": self.checkpoint_ts,
            "position": self.position,
            "confirmed": self.confirmed,
            "withdrawn": self.withdrawn,
            "takeover": self.takeover,
            "spans": self.spans,
            "shape": self.shape,
            "foreign": self.foreign,
            "surpassed": self.surpassed,
        }


class Headers(NamedTuple):
    """The headers of a round's files."""

    bytes: Ints
    checksum: Ints

    def before(self, checksum: Ints, size_bytes: Ints) -> Ints:
        """The checksums of files whose rows have these."""
        both = np.column_stack((self.checksum, checksum)), np.column_stack((self.bytes, size_bytes))
        return joined(both[0].ravel(), both[1].ravel(), np.arange(0, 2 * len(checksum), 2))


def file_rows(
    round_: Round,
    ledger: Ledger,
    names: Sequence[tuple[str, str]],
    targets: Sequence[tuple[str, str]],
    dispatchers: Sequence[str],
    headers: Headers,
) -> pa.Table:
    """The round's files as the journal records them: the names they land under, and their headers."""
    known = file_columns(ledger.queues, round_)
    sizes = np.where(known.sure, round_.bytes + headers.bytes, _NO_SIZE)
    columns = [
        round_.plan, known.table_id, known.span, known.logical_table_id,
        [schema for schema, _ in names], [table for _, table in names],
        round_.version, round_.directory, round_.date, round_.number, sizes, known.last_ts, known.last_seq,
        [schema for schema, _ in targets], [table for _, table in targets], dispatchers,
        known.first_ts, known.first_seq, headers.before(known.checksum, round_.bytes),
        known.own_directory, known.layout,
    ]  # fmt: skip
    return pa.Table.from_arrays(
        [pa.array(column, kind) for column, kind in zip(columns, FILES.types, strict=True)], schema=FILES
    )


def date_of(number: int, separator: str) -> str:
    """`date_of(20260131, "day")` is 2026-01-31; 0 stands for no date."""
    text = f"{number:08d}"
    full = f"{text[:4]}-{text[4:6]}-{text[6:]}"
    return full[: {"none": 0, "year": 4, "month": 7, "day": 10}[separator]]


def entry_path(number: int) -> str:
    return f"{FOLDER}/{number:020d}{ENTRY}"


def snapshot_path(number: int) -> str:
    return f"{FOLDER}/{number:020d}{SNAPSHOT}"


def number_of(path: str) -> int:
    return int(path.rsplit("/", 1)[1].split(".")[0])


def object_bytes(table: pa.Table, body: dict[str, Any], layouts: pa.Table | None = None) -> bytes:
    """One object of the journal: this table, with `body` as its head, and maybe a table about layouts."""
    first = table_bytes(table.replace_schema_metadata({"tidegate": json.dumps(body)}))
    return first if layouts is None else first + table_bytes(layouts)


def head_of(schema: pa.Schema) -> dict[str, Any]:
    """The head of an object, of which the schema is enough. Raises NewerFormat."""
    head = dict(json.loads(schema.metadata[b"tidegate"]))
    if (found := head.get("format", 1)) > FORMAT:
        raise NewerFormat(
            f"the journal of this sink has format {found}, but this release of Tidegate knows only up to {FORMAT}; "
            f"{NewerFormat.remedy}"
        )
    return head


def table_bytes(table: pa.Table) -> bytes:
    """Compressed: a snapshot of a million tables is 8 MiB instead of 97, and written in less time."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def table_of(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()


def object_of(path: str, data: bytes) -> tuple[pa.Table, pa.Table | None]:
    """The table of an object of the journal, and its table about layouts, if it has one. Raises DamagedJournal."""
    try:
        reader = pa.BufferReader(data)
        first = _whole_table(reader, data)
        return first, _whole_table(reader, data) if reader.tell() < len(data) else None
    except UNREADABLE as exc:
        raise damaged(path, len(data)) from exc


def _whole_table(reader: pa.BufferReader, data: bytes) -> pa.Table:
    """Arrow also reads a table that ends early, between two of its parts; so its end must be there."""
    table = pa.ipc.open_stream(reader).read_all()
    if data[reader.tell() - len(_END) : reader.tell()] != _END:
        raise ValueError("its end is missing")
    return table


def damaged(path: str, size: int) -> DamagedJournal:
    return DamagedJournal(
        f"{path} is damaged: nobody can read the {size} bytes that are left of it; {DamagedJournal.remedy}"
    )
