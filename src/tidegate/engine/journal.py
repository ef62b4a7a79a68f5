"""The changefeed's own log on the sink: what is about to land, what has landed, where a restart reads on.

Entries are numbered objects under `_tidegate/journal/`, made with create-only puts. An entry written *before* a round
names its files (lane, number, range, bytes); a later one confirms them by plan number, or withdraws what will never
land under that number, and carries checkpoint, position and new layouts. Who cannot create the next number has been
fenced off by another writer and stops. From time to time a snapshot of the ledger's tables replaces the entries before
it, so that starting needs no request per table. Only the entry with which a writer took over stays for good: it is the
number that the writer before it would create next, however late that one wakes up.

On restart an unconfirmed file that exists with the size planned is adopted and its index put again; from the first one
of a lane that does not exist the replay writes anew.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.control.columns import Ints
from tidegate.control.flush import Round
from tidegate.control.ledger import Ledger
from tidegate.engine.ingest import Floor
from tidegate.engine.store import Store
from tidegate.errors import StoreRefused, StoreUnavailable, TidegateError
from tidegate.format import layout as paths
from tidegate.format.layout import RESERVED_PREFIX

_FOLDER = f"{RESERVED_PREFIX}/journal"
_ENTRY, _SNAPSHOT = ".entry", ".snapshot"
_COMPACT_AFTER = 256

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

# A snapshot row per dispatcher: its names, lane state and how far it is durable.
TABLES = pa.schema(
    [
        ("table_id", pa.int64()),
        ("span", pa.int32()),
        ("logical_table_id", pa.int64()),
        ("schema_name", pa.string()),
        ("table_name", pa.string()),
        ("version", pa.int64()),
        ("directory", pa.int64()),
        ("date", pa.int64()),
        ("number", pa.int64()),
        ("schema_version", pa.int64()),
        ("last_ts", pa.int64()),
        ("last_seq", pa.int64()),
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


@dataclass(frozen=True)
class Snapshot:
    """The ledger at one moment; `planned` are the files of rounds that may not be on record yet."""

    tables: pa.Table
    planned: list[pa.Table]
    head: Head


@dataclass
class Journal:
    store: Store
    number: int = 0
    open_rounds: list[pa.Table] = field(default_factory=list)
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

    def record(self, head: Head) -> None:
        """Put on record how far the changefeed is."""
        with self._lock:
            self._write(FILES.empty_table(), head)

    def wants_snapshot(self) -> bool:
        return self.number - self.snapshot_number >= _COMPACT_AFTER

    def snapshot(self, take: Callable[[], Snapshot]) -> None:
        """Replace all entries so far by one object, then delete them.

        `take` is called while no entry can be written, so that what the entries confirm stands in its tables.
        """
        with self._lock:
            seen = take()
            self._settle(seen.head)
            pending = pa.concat_tables([FILES.empty_table(), *self.open_rounds, *seen.planned])
            body = {**_head_json(seen.head), "pending": _bytes_of(pending).hex()}
            tables = seen.tables.replace_schema_metadata({"tidegate": json.dumps(body)})
            self.store.put(f"{_FOLDER}/{self.number:020d}{_SNAPSHOT}", _bytes_of(tables))
            before, self.snapshot_number = self.snapshot_number, self.number
            for number in range(before, self.number + 1):
                if number not in self.takeovers:
                    self.store.delete(f"{_FOLDER}/{number:020d}{_ENTRY}")
                if number < self.number:
                    self.store.delete(f"{_FOLDER}/{number:020d}{_SNAPSHOT}")

    def _settle(self, head: Head) -> None:
        """Forget the files that are confirmed or withdrawn from the rounds that are open."""
        if settled := head.confirmed + head.withdrawn:
            done = np.array(settled)
            kept = [table.filter(~np.isin(table["plan"].to_numpy(), done)) for table in self.open_rounds]
            self.open_rounds = [table for table in kept if table.num_rows]

    def _write(self, files: pa.Table, head: Head) -> None:
        fresh = {key: text for key, text in head.layouts.items() if int(key) not in self._known_layouts}
        body = _head_json(replace(head, layouts=fresh))
        text = files.replace_schema_metadata({"tidegate": json.dumps(body)})
        if not self.store.create_bytes(f"{_FOLDER}/{self.number + 1:020d}{_ENTRY}", _bytes_of(text)):
            raise FencedOff(
                f"journal entry {self.number + 1} was written by another process: this sink has another writer now, "
                "so this one stops; run only one changefeed per sink"
            )
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
    round_: Round, ledger: Ledger, targets: Sequence[tuple[str, str]], dispatchers: Sequence[str], header_bytes: Ints
) -> pa.Table:
    """The round's files as the journal records them: the names they land under, the size of their headers."""
    queues = ledger.queues
    ds, owners = queues.dispatchers, round_.dispatcher
    last = round_.slots[round_.bounds[1:] - 1]
    names = owners.tolist()
    columns = [
        round_.plan, ds.table_id[owners], ds.span[owners], ds.logical_id[owners],
        [queues.schema_names[n] for n in names], [queues.table_names[n] for n in names],
        round_.version, round_.directory, round_.date, round_.number, round_.bytes + header_bytes,
        queues.items.last_ts[last], queues.items.last_seq[last],
        [schema for schema, _ in targets], [table for _, table in targets], dispatchers,
    ]  # fmt: skip
    return pa.Table.from_arrays(
        [pa.array(column, kind) for column, kind in zip(columns, FILES.types, strict=True)], schema=FILES
    )


def table_rows(ledger: Ledger) -> pa.Table:
    """All dispatchers with their lanes, for a snapshot."""
    queues, ds = ledger.queues, ledger.queues.dispatchers
    n, lanes = ds.size, ledger.queues.lanes
    lane = ds.lane[:n]
    columns = [
        ds.table_id[:n], ds.span[:n], ds.logical_id[:n], queues.schema_names, queues.table_names, lanes.version[lane],
        lanes.directory[lane], lanes.date[lane], lanes.number[lane], lanes.schema_version[lane], ds.durable_ts[:n],
        ds.durable_seq[:n],
    ]  # fmt: skip
    return pa.Table.from_arrays(
        [pa.array(column, kind) for column, kind in zip(columns, TABLES.types, strict=True)], schema=TABLES
    )


@dataclass
class Recovered:
    """What the journal of an earlier run says."""

    checkpoint_ts: int = 0
    position: str | None = None
    layouts: dict[int, str] = field(default_factory=dict)
    spans: int = 0
    shape: dict[str, str] = field(default_factory=dict)
    tables: list[pa.Table] = field(default_factory=list)  # a snapshot, then files in order, all durable
    adopted: int = 0


def open_journal(store: Store, options: paths.PathOptions) -> tuple[Journal, Recovered]:
    """Read what is there, adopt what landed unconfirmed, and take over by creating the next entry."""
    journal, found, pending = _read_all(store)
    # Whoever wrote before is fenced off from here on.
    journal.record(Head(found.checkpoint_ts, found.position, {}, takeover=True, spans=found.spans, shape=found.shape))
    _adopt(store, options, found, list(pending.values()))
    return journal, found


def read_journal(store: Store) -> Recovered | None:
    """What the journal says, without taking over; None if there is none."""
    return _read_all(store)[1] if has_journal(store) else None


def _read_all(store: Store) -> tuple[Journal, Recovered, dict[int, pa.Table]]:
    names = sorted(path for path, _ in store.list(_FOLDER))
    entries = [path for path in names if path.endswith(_ENTRY)]
    snapshots = [path for path in names if path.endswith(_SNAPSHOT)]
    journal, found = Journal(store), Recovered()
    pending: dict[int, pa.Table] = {}
    if snapshots:
        journal.number = journal.snapshot_number = _number_of(snapshots[-1])
        _read_snapshot(store, snapshots[-1], found, pending)
    for path in entries:
        if _number_of(path) > journal.number:
            journal.number = _number_of(path)
            if _read_entry(store, path, found, pending):
                journal.takeovers.add(journal.number)
    return journal, found, pending


def floor_of(ledger: Ledger) -> Floor | None:
    """What is durable already although the position may lie before it."""
    ds = ledger.queues.dispatchers
    durable = np.flatnonzero(ds.durable_ts[: ds.size] > 0)
    checkpoint_ts = ledger.progress.checkpoint_ts
    if not len(durable) and not checkpoint_ts:
        return None
    owner = ds.table_id[durable] * ledger.spans + ds.span[durable]
    by_owner = np.argsort(owner)
    durable = durable[by_owner]
    return Floor(owner[by_owner], ds.durable_ts[durable], ds.durable_seq[durable], checkpoint_ts)


def restore(ledger: Ledger, found: Recovered) -> None:
    """Bring dispatchers and lanes back to where the journal saw them."""
    for table in found.tables:
        _restore_table(ledger, table)
    ledger.progress.checkpoint_ts = found.checkpoint_ts
    ledger.progress.resolved_ts = found.checkpoint_ts
    ledger.progress.position = found.position


def _restore_table(ledger: Ledger, table: pa.Table) -> None:
    queues = ledger.queues
    ds, lanes = queues.dispatchers, queues.lanes
    ints = {name: table[name].to_numpy().astype(np.int64) for name in table.column_names if name not in _TEXTS}
    numbers = queues.number(ints["table_id"], ints["span"], ints["logical_table_id"])
    texts = (table[name].to_pylist() for name in ("schema_name", "table_name"))
    for number, schema, name, owner in zip(numbers.tolist(), *texts, ints["logical_table_id"].tolist(), strict=True):
        queues.rename(number, schema, name, owner)
    lane = ds.lane[numbers]
    lanes.version[lane], lanes.directory[lane] = ints["version"], ints["directory"]
    lanes.date[lane], lanes.number[lane] = ints["date"], ints["number"]
    durable = ints["last_ts"] > 0
    lanes.schema_version[lane] = ints.get("schema_version", np.where(durable, ints["version"], 0))
    ds.durable_ts[numbers[durable]], ds.durable_seq[numbers[durable]] = (
        ints["last_ts"][durable],
        ints["last_seq"][durable],
    )
    ds.accepted_ts[numbers[durable]], ds.accepted_seq[numbers[durable]] = (
        ints["last_ts"][durable],
        ints["last_seq"][durable],
    )
    ds.version[numbers] = ints["version"]


_TEXTS = ("schema_name", "table_name", "target_schema", "target_table", "dispatcher")


def _adopt(store: Store, options: paths.PathOptions, found: Recovered, pending: list[pa.Table]) -> None:
    """Files that were planned and never confirmed: adopt those that exist, up to the first missing one of a lane."""
    adopted: list[dict[str, Any]] = []
    missing: dict[str, dict[str, Any]] = {}
    indexed: dict[str, str] = {}
    for file in sorted((row for table in pending for row in table.to_pylist()), key=lambda row: row["plan"]):
        key, number = data_key(file, options), file["number"]
        options = replace(options, across_nodes=bool(file["dispatcher"]))
        lane, path = paths.index_path(key, options), paths.data_path(key, number, options)
        if lane in missing:
            continue
        size = store.size(path)
        if size is None:
            missing[lane] = {**file, "number": number - 1, "last_ts": 0, "last_seq": 0}
        elif size == file["bytes"]:
            adopted.append(file)
            indexed[lane] = paths.index_text(key, number, options)
        else:
            raise StoreRefused(f"{path} has {size} bytes but the journal planned {file['bytes']}")
    for lane, text in indexed.items():
        store.put(lane, text.encode())
    found.adopted = len(adopted)
    if adopted or missing:
        found.tables.append(pa.Table.from_pylist([*adopted, *missing.values()], schema=FILES))


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


def has_journal(store: Store) -> bool:
    return next(iter(store.list(_FOLDER)), None) is not None


def _number_of(path: str) -> int:
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
    }


def _read_snapshot(store: Store, path: str, found: Recovered, pending: dict[int, pa.Table]) -> None:
    tables = _read(store, path)
    body = json.loads(tables.schema.metadata[b"tidegate"])
    _apply_head(body, found)
    found.tables.append(tables.replace_schema_metadata(None))
    rows = _table_of(bytes.fromhex(body["pending"]))
    for plan, table in zip(rows["plan"].to_pylist(), _each(rows), strict=True):
        pending[plan] = table


def _read_entry(store: Store, path: str, found: Recovered, pending: dict[int, pa.Table]) -> bool:
    """Apply one entry; returns whether a writer took over with it."""
    table = _read(store, path)
    head = json.loads(table.schema.metadata[b"tidegate"])
    table = table.replace_schema_metadata(None)
    _apply_head(head, found)
    for plan in head["withdrawn"]:
        pending.pop(plan, None)
    done = [pending.pop(plan) for plan in head["confirmed"] if plan in pending]
    if done:
        found.tables.append(pa.concat_tables(done))
    for plan, row in zip(table["plan"].to_pylist(), _each(table), strict=True):
        pending[plan] = row
    return bool(head["takeover"])


def _read(store: Store, path: str) -> pa.Table:
    data = store.get(path)
    if data is None:
        raise StoreUnavailable(f"{path} went away while it was read: another changefeed is writing to this sink")
    return _table_of(data)


def _apply_head(head: dict[str, Any], found: Recovered) -> None:
    found.checkpoint_ts = max(found.checkpoint_ts, head["checkpoint-ts"])
    found.position = head["position"] if head["position"] is not None else found.position
    found.spans, found.shape = head["spans"], head["shape"]
    found.layouts.update({int(key): text for key, text in head["layouts"].items()})


def _each(table: pa.Table) -> list[pa.Table]:
    return [table.slice(i, 1) for i in range(table.num_rows)]


def _bytes_of(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _table_of(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()
