"""The changefeed's own log on the sink: what is about to land, what has landed, where a restart reads on.

Entries are numbered objects under `_tidegate/journal/`, made with create-only puts. An entry written *before* a round
names its files (lane, number, range, bytes); a later one confirms them by plan number, or withdraws what will never
land under that number, and carries checkpoint, position and new layouts. Who cannot create the next number has been
fenced off by another writer and stops. From time to time a snapshot of the ledger's tables replaces the entries before
it, so that starting needs no request per table. Only the entry with which a writer took over stays for good: it is the
number that the writer before it would create next, however late that one wakes up.

On restart an unconfirmed file that exists with the size planned is adopted and its index put again; from the first one
of a lane that does not exist the replay writes anew. Such a missing file is kept as an orphan until its lane has landed
its number, or something else before it: a process of the old writer that was paused may still create it, and then it is
adopted all the same.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.control.columns import Ints
from tidegate.control.ledger import Ledger
from tidegate.control.records import file_columns
from tidegate.control.rounds import Round
from tidegate.errors import LandingError, StoreUnavailable, TidegateError
from tidegate.format import layout as paths
from tidegate.format.layout import RESERVED_PREFIX
from tidegate.storage.store import Store

FOLDER = f"{RESERVED_PREFIX}/journal"
ENTRY, SNAPSHOT = ".entry", ".snapshot"
_COMPACT_AFTER = 256
_NO_SIZE = -1

log = logging.getLogger("tidegate")

Patience = Callable[[int, StoreUnavailable], None]  # called after each failed try; raises when waiting is over

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
    ]
)


class FencedOff(TidegateError):
    """Another writer has taken over this sink."""


@dataclass(frozen=True)
class Head:
    """What an entry says besides its files; what checkpoint and position count as durable is among `confirmed`."""

    checkpoint_ts: int
    position: str | None
    layouts: dict[str, str]
    confirmed: list[int] = field(default_factory=list)
    withdrawn: list[int] = field(default_factory=list)
    takeover: bool = False
    spans: int = 0  # dispatchers of a split table; 0 where file names carry no dispatcher
    shape: dict[str, str] = field(default_factory=dict)  # options that shape paths and bytes
    foreign: bool = False  # files of another writer stand on this sink
    surpassed: bool = False  # another writer has been here since the entries before


@dataclass(frozen=True)
class Snapshot:
    """The ledger at one moment; `planned` are the files of rounds that may not be on record yet."""

    tables: pa.Table
    planned: list[pa.Table]
    head: Head
    dropped: pa.Table = field(default_factory=lambda: pa.table({"key": np.zeros(0, np.int64)}))  # state was given up


def _impatient(tries: int, error: StoreUnavailable) -> None:
    raise error


@dataclass
class Journal:
    store: Store
    options: paths.PathOptions
    number: int = 0
    patience: Patience = _impatient
    writer: str = field(default_factory=lambda: uuid.uuid4().hex)  # tells our own entry from another writer's
    open_rounds: list[pa.Table] = field(default_factory=list)
    orphans: pa.Table = field(default_factory=FILES.empty_table)  # missing files that an old writer may still create
    snapshot_number: int = 0
    takeovers: set[int] = field(default_factory=set)
    _known_layouts: set[int] = field(default_factory=set)
    _confirmed: list[int] = field(default_factory=list)
    _withdrawn: list[int] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)  # held while the store is asked
    _noting: threading.Lock = field(default_factory=threading.Lock)  # held for an instant

    def intend(self, files: pa.Table, head: Head) -> None:
        """Put on record what a round is about to land, before it does."""
        with self._lock:
            self.open_rounds.append(files)
            self._write(files, head)

    def confirm(self, plans: Iterable[int]) -> None:
        """Remember what has landed; it goes out with the next head. Never waits for the store."""
        with self._noting:
            self._confirmed.extend(plans)

    def withdraw(self, plans: Iterable[int]) -> None:
        """Remember what will never land under its plan number; it goes out with the next head."""
        with self._noting:
            self._withdrawn.extend(plans)

    def noted(self) -> tuple[list[int], list[int]]:
        """What has landed, and what was withdrawn, and stands in no entry yet."""
        with self._noting:
            return list(self._confirmed), list(self._withdrawn)

    def fresh_layouts(self, layouts: Mapping[int, str]) -> dict[str, str]:
        """Those that are not on record yet; `layouts` only ever grows, so in most rounds nothing is looked at."""
        if len(layouts) == len(self._known_layouts):
            return {}
        return {str(key): text for key, text in layouts.items() if key not in self._known_layouts}

    def record(self, head: Head) -> None:
        """Put on record how far the changefeed is."""
        with self._lock:
            self._write(FILES.empty_table(), head)

    def has_orphan(self, table_id: int, span: int) -> bool:
        of_table = self.orphans.filter(pc.equal(self.orphans["table_id"], table_id))
        return span in of_table["span"].to_pylist()

    def wants_snapshot(self) -> bool:
        return self.number - self.snapshot_number >= _COMPACT_AFTER

    def snapshot(self, take: Callable[[], Snapshot], before: Callable[[int], None] = lambda number: None) -> None:
        """Replace all entries so far by one object, then delete them.

        `take` and `before` are called while no entry can be written, so that what the entries say stands in the
        snapshot's tables, or wherever `before` puts it.
        """
        with self._lock:
            self._write_snapshot(take(), before)
            self._delete_older()
        _give_back_memory()

    def _write_snapshot(self, seen: Snapshot, before: Callable[[int], None]) -> None:
        self._settle(seen.head)
        pending = pa.concat_tables([FILES.empty_table(), *self.open_rounds, *seen.planned])
        body = {**_head_json(seen.head), "pending": _bytes_of(pending).hex()}
        body["orphans"], body["dropped"] = _bytes_of(self.orphans).hex(), _bytes_of(seen.dropped).hex()
        body["takeovers"] = sorted(self.takeovers)
        data = _bytes_of(seen.tables.replace_schema_metadata({"tidegate": json.dumps(body)}))
        self._persist(lambda: before(self.number))
        self._persist(lambda: self.store.put(f"{FOLDER}/{self.number:020d}{SNAPSHOT}", data))
        self.snapshot_number = self.number
        self._known_layouts.update(int(key) for key in seen.head.layouts)

    def _delete_older(self) -> None:
        """What the snapshot replaces, and what a crash left of earlier ones; what cannot be deleted now can wait."""
        try:
            for path in [path for path, _ in self.store.list(FOLDER)]:
                number, is_entry = number_of(path), path.endswith(ENTRY)
                if (number <= self.number and number not in self.takeovers) if is_entry else number < self.number:
                    self.store.delete(path)
        except LandingError as exc:
            log.warning("old journal entries are deleted later: %s", exc)

    def _settle(self, head: Head) -> None:
        """Forget the files that are confirmed or withdrawn from the open rounds, and the orphans before them."""
        if settled := head.confirmed + head.withdrawn:
            if self.orphans.num_rows:
                confirmed = np.array(head.confirmed, np.int64)
                landed = [table.filter(np.isin(table["plan"].to_numpy(), confirmed)) for table in self.open_rounds]
                self.orphans = still_orphans(self.orphans, landed, self.options)
            done = np.array(settled)
            kept = [table.filter(~np.isin(table["plan"].to_numpy(), done)) for table in self.open_rounds]
            self.open_rounds = [table for table in kept if table.num_rows]

    def _persist(self, act: Callable[[], None]) -> None:
        """Try until it is done; between the tries `patience` decides how long to wait."""
        tries = 0
        while True:
            try:
                return act()
            except StoreUnavailable as exc:
                self.patience(tries, exc)
                tries += 1

    def _create(self, path: str, data: bytes) -> None:
        # An entry that stands and says what we say, our own name included, is ours: only its answer was lost.
        if not self.store.create_bytes(path, data) and self.store.get(path) != data:
            raise FencedOff(
                f"journal entry {self.number + 1} was written by another process: this sink has another writer now, "
                "so this one stops; run only one changefeed per sink"
            )

    def _write(self, files: pa.Table, head: Head) -> None:
        fresh = {key: text for key, text in head.layouts.items() if int(key) not in self._known_layouts}
        body = {**_head_json(replace(head, layouts=fresh)), "writer": self.writer}
        data = _bytes_of(files.replace_schema_metadata({"tidegate": json.dumps(body)}))
        self._persist(lambda: self._create(f"{FOLDER}/{self.number + 1:020d}{ENTRY}", data))
        self.number += 1
        if head.takeover:
            self.takeovers.add(self.number)
        self._known_layouts.update(int(key) for key in fresh)
        self._settle(head)
        with self._noting:
            told = {*head.confirmed, *head.withdrawn}
            self._confirmed = [plan for plan in self._confirmed if plan not in told]
            self._withdrawn = [plan for plan in self._withdrawn if plan not in told]


def file_rows(
    round_: Round,
    ledger: Ledger,
    names: Sequence[tuple[str, str]],
    targets: Sequence[tuple[str, str]],
    dispatchers: Sequence[str],
    header_bytes: Ints,
) -> pa.Table:
    """The round's files as the journal records them: the names they land under, the size of their headers."""
    known = file_columns(ledger.queues, round_)
    sizes = np.where(known.sure, round_.bytes + header_bytes, _NO_SIZE)
    columns = [
        round_.plan, known.table_id, known.span, known.logical_table_id,
        [schema for schema, _ in names], [table for _, table in names],
        round_.version, round_.directory, round_.date, round_.number, sizes, known.last_ts, known.last_seq,
        [schema for schema, _ in targets], [table for _, table in targets], dispatchers,
    ]  # fmt: skip
    return pa.Table.from_arrays(
        [pa.array(column, kind) for column, kind in zip(columns, FILES.types, strict=True)], schema=FILES
    )


def still_orphans(orphans: pa.Table, landed: list[pa.Table], options: paths.PathOptions) -> pa.Table:
    """Those that the old writer may still create after this has landed.

    It goes on behind files of ours that are the same as its own, and stops at the first that is another. A table that
    lands in another directory is past all of them.
    """
    if not orphans.num_rows:
        return orphans
    theirs = [(lane_path(row, options), row) for row in orphans.to_pylist()]
    ends = {(lane, row["number"], row["last_ts"], row["last_seq"]) for lane, row in theirs}
    last: dict[str, int] = {}
    stopped: set[str] = set()
    directories: dict[tuple[int, int], set[str]] = {}
    for row in (row for table in landed for row in table.to_pylist()):
        lane = lane_path(row, options)
        last[lane] = max(last.get(lane, 0), row["number"])
        directories.setdefault((row["table_id"], row["span"]), set()).add(lane)
        if (lane, row["number"], row["last_ts"], row["last_seq"]) not in ends:
            stopped.add(lane)
    kept = [
        lane not in stopped
        and row["number"] > last.get(lane, 0)
        and directories.get((row["table_id"], row["span"]), {lane}) == {lane}
        for lane, row in theirs
    ]
    return orphans.filter(pa.array(kept, pa.bool_()))


def lane_path(file: dict[str, Any], options: paths.PathOptions) -> str:
    return paths.index_path(data_key(file, options), naming(file, options))


def naming(file: dict[str, Any], options: paths.PathOptions) -> paths.PathOptions:
    """How this file is named, whatever the option says by now."""
    return replace(options, across_nodes=bool(file["dispatcher"]))


def data_key(file: dict[str, Any], options: paths.PathOptions) -> paths.DataKey:
    return paths.DataKey(
        schema=file["target_schema"],
        table=file["target_table"],
        version=file["directory"],
        table_id=file["table_id"],
        is_partition=file["table_id"] != file["logical_table_id"],
        date=date_of(file["date"], options.date_separator),
        dispatcher=file["dispatcher"],
    )


def date_of(number: int, separator: str) -> str:
    """`date_of(20260131, "day")` is 2026-01-31; 0 stands for no date."""
    text = f"{number:08d}"
    full = f"{text[:4]}-{text[4:6]}-{text[6:]}"
    return full[: {"none": 0, "year": 4, "month": 7, "day": 10}[separator]]


def number_of(path: str) -> int:
    return int(path.rsplit("/", 1)[1].split(".")[0])


def _head_json(head: Head) -> dict[str, Any]:
    return {
        "checkpoint-ts": head.checkpoint_ts,
        "position": head.position,
        "layouts": head.layouts,
        "confirmed": head.confirmed,
        "withdrawn": head.withdrawn,
        "takeover": head.takeover,
        "spans": head.spans,
        "shape": head.shape,
        "foreign": head.foreign,
        "surpassed": head.surpassed,
    }


def _give_back_memory() -> None:
    """A snapshot of a million tables takes 200 MiB for a moment, and the allocators would keep them."""
    pa.default_memory_pool().release_unused()
    with contextlib.suppress(OSError, AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)


def _bytes_of(table: pa.Table) -> bytes:
    """Compressed: a snapshot of a million tables is 8 MiB instead of 97, and written in less time."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def table_of(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()
