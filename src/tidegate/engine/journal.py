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
import json
import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.control.columns import Ints, pack
from tidegate.control.flush import Round
from tidegate.control.ledger import Ledger
from tidegate.engine.ingest import Floor
from tidegate.engine.land import put_index
from tidegate.engine.store import Store
from tidegate.errors import BadSetting, LandingError, StoreConflict, StoreRefused, StoreUnavailable, TidegateError
from tidegate.format import layout as paths
from tidegate.format.layout import RESERVED_PREFIX
from tidegate.format.tables import CHECK, LOOK

_FOLDER = f"{RESERVED_PREFIX}/journal"
_ENTRY, _SNAPSHOT = ".entry", ".snapshot"
_COMPACT_AFTER = 256
_ADOPT_AT_ONCE = 64
_NO_SIZE = -1
_ANY_SHAPE: Mapping[str, str] = {}

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
            seen = take()
            self._settle(seen.head)
            pending = pa.concat_tables([FILES.empty_table(), *self.open_rounds, *seen.planned])
            body = {**_head_json(seen.head), "pending": _bytes_of(pending).hex()}
            body["orphans"], body["dropped"] = _bytes_of(self.orphans).hex(), _bytes_of(seen.dropped).hex()
            body["takeovers"] = sorted(self.takeovers)
            data = _bytes_of(seen.tables.replace_schema_metadata({"tidegate": json.dumps(body)}))
            self._persist(lambda: before(self.number))
            self._persist(lambda: self.store.put(f"{_FOLDER}/{self.number:020d}{_SNAPSHOT}", data))
            self.snapshot_number = self.number
            self._delete_older()

    def _delete_older(self) -> None:
        """What the snapshot replaces, and what a crash left of earlier ones; what cannot be deleted now can wait."""
        try:
            for path in [path for path, _ in self.store.list(_FOLDER)]:
                number, is_entry = _number_of(path), path.endswith(_ENTRY)
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
                self.orphans = _still_orphans(self.orphans, landed, self.options)
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
        self._persist(lambda: self._create(f"{_FOLDER}/{self.number + 1:020d}{_ENTRY}", data))
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
    sizes = round_.bytes + header_bytes
    # These numbers may be taken, by another writer or by us before state was given up: what stands there is not this.
    unsure = (round_.schema == LOOK) | ((round_.schema == CHECK) & ledger.planner.foreign)
    if unsure.any():
        sizes = np.where(np.isin(round_.lane, round_.lane[unsure]), _NO_SIZE, sizes)
    columns = [
        round_.plan, ds.table_id[owners], ds.span[owners], ds.logical_id[owners],
        [queues.schema_names[n] for n in names], [queues.table_names[n] for n in names],
        round_.version, round_.directory, round_.date, round_.number, sizes,
        queues.items.last_ts[last], queues.items.last_seq[last],
        [schema for schema, _ in targets], [table for _, table in targets], dispatchers,
    ]  # fmt: skip
    return pa.Table.from_arrays(
        [pa.array(column, kind) for column, kind in zip(columns, FILES.types, strict=True)], schema=FILES
    )


def table_rows(ledger: Ledger) -> pa.Table:
    """All dispatchers whose state is here, with their lanes, for a snapshot."""
    queues, ds = ledger.queues, ledger.queues.dispatchers
    n, lanes = queues.known(), ledger.queues.lanes
    n = n[~lanes.look[ds.lane[n]]]
    lane, numbers = ds.lane[n], n.tolist()
    columns = [
        ds.table_id[n], ds.span[n], ds.logical_id[n], [queues.schema_names[i] for i in numbers],
        [queues.table_names[i] for i in numbers], lanes.version[lane], lanes.directory[lane], lanes.date[lane],
        lanes.number[lane], lanes.schema_version[lane], ds.durable_ts[n], ds.durable_seq[n],
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
    foreign: bool = False
    surpassed: bool = False  # another writer has brought the checkpoint further than the journal knows
    tables: list[pa.Table] = field(default_factory=list)  # a snapshot, then files in order, all durable
    orphans: pa.Table = field(default_factory=FILES.empty_table)
    dropped: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # tables whose state was given up
    next_plan: int = 0
    adopted: int = 0


def open_journal(
    store: Store,
    options: paths.PathOptions,
    shape: Mapping[str, str] = _ANY_SHAPE,
    foreign: bool = False,
    written_ts: int = 0,
) -> tuple[Journal, Recovered]:
    """Read what is there, adopt what landed unconfirmed, and take over by creating the next entry.

    `shape` are the options that shape paths and bytes, which one prefix has for good. `foreign` says that somebody
    else's files stand there, `written_ts` is the checkpoint in `metadata`. We never write one that the journal does not
    know, so a greater one says that another writer was here after us.
    """
    journal, found, pending = _read_all(store, options)
    _refuse_other_shape(found.shape, shape)
    found.shape = dict(shape)
    found.surpassed |= written_ts > found.checkpoint_ts
    found.checkpoint_ts = max(found.checkpoint_ts, written_ts)
    found.foreign |= foreign or found.surpassed
    head = Head(found.checkpoint_ts, found.position, {}, takeover=True, spans=found.spans, shape=found.shape)
    # Whoever wrote before is fenced off from here on.
    journal.record(replace(head, foreign=found.foreign, surpassed=found.surpassed))
    if found.surpassed:
        _forget_plans(found, pending)
    _adopt(store, options, found, pa.concat_tables([found.orphans, *pending.values()]))
    journal.orphans = found.orphans
    return journal, found


def _forget_plans(found: Recovered, pending: dict[int, pa.Table]) -> None:
    """Another writer has used the numbers since: what stands under them may be its own, of whatever size."""
    found.next_plan = max([found.next_plan, *(plan + 1 for plan in pending)])
    pending.clear()
    found.orphans = FILES.empty_table()


def _refuse_other_shape(before: Mapping[str, str], now: Mapping[str, str]) -> None:
    changed = [f"{key} = {now[key]} (was {value})" for key, value in before.items() if now.get(key, value) != value]
    if changed:
        raise BadSetting(
            f"this sink was written with other options: {', '.join(changed)}; readers of one prefix cannot follow such "
            "a change, so set them back or give another prefix"
        )


def read_journal(store: Store) -> Recovered | None:
    """What the journal says, without taking over; None if there is none."""
    return _read_all(store, paths.PathOptions())[1] if has_journal(store) else None


def _read_all(store: Store, options: paths.PathOptions) -> tuple[Journal, Recovered, dict[int, pa.Table]]:
    names = sorted(path for path, _ in store.list(_FOLDER))
    entries = [path for path in names if path.endswith(_ENTRY)]
    snapshots = [path for path in names if path.endswith(_SNAPSHOT)]
    journal, found = Journal(store, options), Recovered()
    pending: dict[int, pa.Table] = {}
    if snapshots:
        journal.number = journal.snapshot_number = _number_of(snapshots[-1])
        journal.takeovers.update(_read_snapshot(store, snapshots[-1], found, pending))
    for path in entries:
        if _number_of(path) > journal.number:
            journal.number = _number_of(path)
            if _read_entry(store, path, found, pending, options):
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


def dropped_keys(ledger: Ledger) -> pa.Table:
    """The tables whose state was given up, or is not known again yet, for a snapshot."""
    queues, ds = ledger.queues, ledger.queues.dispatchers
    known = queues.known()
    looked = known[queues.lanes.look[ds.lane[known]]]
    keys = np.union1d(queues.dropped, pack(ds.table_id[looked], ds.span[looked]))
    return pa.table({"key": keys})


def restore(ledger: Ledger, found: Recovered) -> None:
    """Bring dispatchers and lanes back to where the journal saw them."""
    ledger.queues.dropped = found.dropped
    for table in found.tables:
        _restore_table(ledger, table)
    ledger.progress.checkpoint_ts = found.checkpoint_ts
    ledger.progress.resolved_ts = found.checkpoint_ts
    ledger.progress.position = found.position
    ledger.planner.continue_plans(found.next_plan)
    ledger.planner.foreign = found.foreign
    queues = ledger.queues
    ledger.planner.newest_date = int(queues.lanes.date[: queues.lanes.size].max(initial=0))
    if found.orphans.num_rows:
        ids = (found.orphans[name].to_numpy().astype(np.int64) for name in ("table_id", "span"))
        owners = queues.find(*ids)  # where dispatchers share a lane, only the first of them may be known by now
        for owner, file in zip(owners.tolist(), found.orphans.to_pylist(), strict=True):
            if owner >= 0:
                end = (file["last_ts"], file["last_seq"])
                ledger.planner.owe(int(queues.dispatchers.lane[owner]), file["number"], end)
    if found.surpassed:  # its files go behind what the other writer left
        queues.lanes.schema_version[:] = 0


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
    lanes.look[lane[durable]] = False
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


def _adopt(store: Store, options: paths.PathOptions, found: Recovered, planned: pa.Table) -> None:
    """Files that were planned and never confirmed: adopt those that exist, up to the first missing one of a lane."""
    lanes: dict[str, list[dict[str, Any]]] = {}
    for file in planned.to_pylist():
        lanes.setdefault(_lane_path(file, options), []).append(file)
        found.next_plan = max(found.next_plan, file["plan"] + 1)
    with ThreadPoolExecutor(_ADOPT_AT_ONCE, "adopt") as pool:
        answers = list(pool.map(lambda files: _adopt_lane(store, options, files), lanes.values()))
    adopted = [file for answer in answers for file in answer.adopted]
    orphans = [file for answer in answers if not answer.blocked for file in answer.missing]
    next_files = [min(answer.missing, key=lambda file: int(file["number"])) for answer in answers if answer.missing]
    before = [{**file, "number": file["number"] - 1, "last_ts": 0, "last_seq": 0} for file in next_files]
    found.adopted, found.orphans = len(adopted), pa.Table.from_pylist(orphans, schema=FILES)
    if planned.num_rows:
        found.tables.append(pa.Table.from_pylist([*adopted, *before], schema=FILES))


@dataclass(frozen=True)
class _Lane:
    """What became of a lane's planned files; if `blocked`, something else stands where the first missing one goes."""

    adopted: list[dict[str, Any]]
    missing: list[dict[str, Any]]
    blocked: bool


def _adopt_lane(store: Store, options: paths.PathOptions, files: list[dict[str, Any]]) -> _Lane:
    """Adopt what stands of one lane. Where that is refused the replay comes to the same files, and the table is named.

    If it would write others, it meets the ones that stand, and a new start looks for them again.
    """
    try:
        return _look_for(store, options, files)
    except StoreRefused:
        return _Lane([], files, blocked=False)


def _look_for(store: Store, options: paths.PathOptions, files: list[dict[str, Any]]) -> _Lane:
    """The files of one lane; a number may have been planned by several writers, one after the other."""
    options, key = _named(files[0], options), data_key(files[0], options)
    adopted: list[dict[str, Any]] = []
    blocked = False
    for number in sorted({file["number"] for file in files}):
        size = store.size(paths.data_path(key, number, options))
        # All plans of a number begin at the same change, so one of the same size is the same file. If none has it,
        # something else is in the way: the lane runs into it when it lands, and its table is named then.
        match = next((file for file in files if file["number"] == number and file["bytes"] == size), None)
        if match is None:
            blocked = size is not None
            break
        adopted.append(match)
    last = adopted[-1]["number"] if adopted else 0
    if adopted:
        with contextlib.suppress(StoreConflict):  # an index that is further shows it already
            put_index(store, key, last, options, made=False, beat=lambda size: None)
    return _Lane(adopted, [file for file in files if file["number"] > last], blocked)


def _still_orphans(orphans: pa.Table, landed: list[pa.Table], options: paths.PathOptions) -> pa.Table:
    """Those that the old writer may still create after this has landed.

    It goes on behind files of ours that are the same as its own, and stops at the first that is another. A table that
    lands in another directory is past all of them.
    """
    if not orphans.num_rows:
        return orphans
    theirs = [(_lane_path(row, options), row) for row in orphans.to_pylist()]
    ends = {(lane, row["number"], row["last_ts"], row["last_seq"]) for lane, row in theirs}
    last: dict[str, int] = {}
    stopped: set[str] = set()
    directories: dict[tuple[int, int], set[str]] = {}
    for row in (row for table in landed for row in table.to_pylist()):
        lane = _lane_path(row, options)
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


def _lane_path(file: dict[str, Any], options: paths.PathOptions) -> str:
    return paths.index_path(data_key(file, options), _named(file, options))


def _named(file: dict[str, Any], options: paths.PathOptions) -> paths.PathOptions:
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
        "foreign": head.foreign,
        "surpassed": head.surpassed,
    }


def _read_snapshot(store: Store, path: str, found: Recovered, pending: dict[int, pa.Table]) -> list[int]:
    """Apply a snapshot; returns the entries with which writers took over, which stay whatever it replaces."""
    tables = _read(store, path)
    body = json.loads(tables.schema.metadata[b"tidegate"])
    _apply_head(body, found)
    found.tables.append(tables.replace_schema_metadata(None))
    rows = _table_of(bytes.fromhex(body["pending"]))
    for plan, table in zip(rows["plan"].to_pylist(), _each(rows), strict=True):
        pending[plan] = table
    found.orphans = _table_of(bytes.fromhex(body["orphans"]))
    found.dropped = _table_of(bytes.fromhex(body["dropped"]))["key"].to_numpy().copy()
    takeovers: list[int] = body["takeovers"]
    return takeovers


def _read_entry(
    store: Store, path: str, found: Recovered, pending: dict[int, pa.Table], options: paths.PathOptions
) -> bool:
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
        found.orphans = _still_orphans(found.orphans, done, options)
    for plan, row in zip(table["plan"].to_pylist(), _each(table), strict=True):
        pending[plan] = row
    if head["surpassed"]:
        found.surpassed = True
        _forget_plans(found, pending)
    return bool(head["takeover"])


def _read(store: Store, path: str) -> pa.Table:
    data = store.get(path)
    if data is None:
        raise StoreUnavailable(f"{path} went away while it was read: another changefeed is writing to this sink")
    return _table_of(data)


def _apply_head(head: dict[str, Any], found: Recovered) -> None:
    found.checkpoint_ts = max(found.checkpoint_ts, head["checkpoint-ts"])
    found.position = head["position"] if head["position"] is not None else found.position
    found.spans, found.shape, found.foreign = head["spans"], head["shape"], head["foreign"]
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
