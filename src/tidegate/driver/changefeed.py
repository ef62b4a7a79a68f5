"""The driver's shell around the ledger: facts from Spark and the store go in, its decisions are carried out.

Threads: the query's callback brings batches (`accept`); landers take rounds and run them as Spark jobs; one scribe
writes journal entries and `metadata`, at most every two seconds. The ledger is only touched under one lock, never while
waiting for the store. Row data passes nowhere here.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidegate.clock import Clock
from tidegate.config.settings import Settings, shape
from tidegate.control.barrier import Key, Write
from tidegate.control.compaction import Copy, Move
from tidegate.control.ledger import Durable, Ledger
from tidegate.control.limits import Limits
from tidegate.control.markers import Block
from tidegate.control.retries import pause_s
from tidegate.control.rounds import Round
from tidegate.control.schema_writes import SchemaWrites
from tidegate.control.spool import TIERS
from tidegate.control.top import TOP, TableLine, top_tables
from tidegate.control.versions import Found
from tidegate.driver.journal import (
    FencedOff,
    Head,
    Snapshot,
    data_key,
    has_journal,
)
from tidegate.driver.plans import PlanBook
from tidegate.driver.recovery import Recovered, floor_of, open_journal, restore
from tidegate.driver.retention import Retention
from tidegate.driver.schemas import read_ddls, refuse_unknown_layouts, schema_plans
from tidegate.errors import (
    BadEvents,
    BadSetting,
    BrokenInvariant,
    LandingError,
    SpoolError,
    SpoolLost,
    StoreRefused,
    StoreUnavailable,
    TidegateError,
)
from tidegate.events import LAYOUT, RESOLVED, physical_ms
from tidegate.executor.ingest import Floor, IngestJob
from tidegate.executor.land import LandJob, Plans, unanswered
from tidegate.executor.rows import CONFLICT, ELSEWHERE, ERROR, FILTERED, HUNG, LANDED, LOST, ROWS, STALE, UNKNOWN_LAYOUT
from tidegate.executor.segments import HELD, MEMORY_TIER, Places, SpoolDirectory, gather
from tidegate.format.ddl.events import DdlEvent
from tidegate.format.layout import (
    METADATA,
    RESERVED_PREFIX,
    PathOptions,
    data_path,
    is_schema_path,
    metadata_text,
    parse_index_path,
    parse_metadata,
)
from tidegate.format.tables import SETTLED
from tidegate.observe.metrics import Metrics
from tidegate.observe.status import NAMED, USD_PER_REQUEST, Rate, Status, Totals
from tidegate.storage.store import Store, StoreOpener

log = logging.getLogger("tidegate")

METADATA_EVERY_S = 2.0
_MEASURE_EVERY_S = 0.5
_MOVE_EVERY_S, _MOVE_PAUSE_S = 0.5, 10.0
_LOOKED_AT = 1000  # objects of a sink that is not ours
_WAIT_S = 0.05  # every wait is short, so that it also ends on stop and on any error

Gatherer = Callable[[list[tuple[str, int, int]], Places, str], list[tuple[str, int, int]]]
Preflight = Callable[[Settings, Store], None]
Lander = Callable[[Plans, LandJob], pa.Table]


def no_checks(settings: Settings, store: Store) -> None:
    """For a start that follows another in the same process."""


@dataclass
class Changefeed:
    settings: Settings
    store: Store
    open_store: StoreOpener
    clock: Clock
    metrics: Metrics
    run_land: Lander
    run_gather: Gatherer = gather
    slots: int = 2
    limits: Limits | None = None
    disk_reserve_bytes: int = 512 << 20  # with less free space under the spool no wake goes out
    preflight: Preflight = no_checks  # looks at the sink before it is taken over
    totals: Totals = field(default_factory=Totals)

    def __post_init__(self) -> None:
        s = self.settings
        self.paths = s.paths
        self.spool = SpoolDirectory.open(s.spool_dir, s.changefeed_id, s.spool_type, s.spool_max_bytes)
        try:
            self._recover()
        except BaseException:
            self.spool.close()
            raise

    def _recover(self) -> None:
        s = self.settings
        memory_only = s.spool_type == "memory"
        limits = self.limits or Limits(
            file_size_bytes=s.file_size_bytes,
            flush_interval_s=s.flush_interval_s,
            max_flush_delay_s=s.max_flush_delay_s,
            spool_max_bytes=min(s.spool_max_bytes, self.spool.memory_limit) if memory_only else s.spool_max_bytes,
            dispatcher_share=s.dispatcher_share,
            put_budget=s.put_budget,
            state_ttl_s=s.state_ttl_s,
        )
        # Looked at before anything is written: a refused sink stays as it is.
        metadata = self.store.get(METADATA)
        has_none = not has_journal(self.store)
        foreign = has_none and self._is_foreign(metadata is not None)
        # What `metadata` says, not the journal: a crash may lie between the two, or another writer.
        said = metadata.decode(errors="replace") if metadata is not None else metadata_text(0)
        self._written_checkpoint = parse_metadata(said) if foreign else _checkpoint_in(said)
        self.store.prepare()
        self.preflight(s, self.store)
        self._shape = shape(s)
        self.journal, found = open_journal(
            self.store, self.paths, self._shape, foreign, written_ts=self._written_checkpoint
        )
        self.retention = Retention(self.store, s, self.clock, self.metrics)
        if has_none and not foreign:
            self.retention.begin_empty()
        for files in (*found.tables, found.orphans):
            self._note_directories(files)
        if found.surpassed:
            log.warning("taken over from another writer at checkpoint-ts %d", found.checkpoint_ts)
        shared_lanes = not s.partition_separator and not s.table_id_as_path
        self.ledger = Ledger(limits, shared_lanes, self._agreed_spans(found))
        _ = self.ledger.blocking.trigger_number  # made now: among a million tables it would take a moment
        restore(self.ledger, found, self.clock.steady())
        if found.tables and bool(found.spans) != s.across_nodes:  # files are named otherwise now, and count from 1
            self.ledger.queues.lanes.number[:] = 0
        found.tables.clear()
        self.layouts = dict(found.layouts)
        self.book = PlanBook(s, self.ledger, self.layouts, self.open_store, found.foreign)
        self._writes = SchemaWrites()
        self._ddl_failures: dict[Key, str] = {}
        self._unrecorded: dict[int, Round] = {}  # planned, and maybe not in the journal yet
        self._lock = threading.Lock()
        self.compact()
        self.floor: Floor | None = floor_of(self.ledger)
        self._changed = threading.Condition(self._lock)
        self._stopping, self._stopped = threading.Event(), threading.Event()
        self._error: BaseException | None = None
        self._failures: dict[int, str] = {}
        self._waiting: str | None = None
        self._rate = Rate()
        self._metadata_fails = False
        self._moves, self._next_move = 0, 0.0
        self._ingesting = False
        self._landers = 0
        self._arrivals: list[tuple[float, int]] = []
        self._held_written: set[int] = set()
        self._held_lock = threading.Lock()
        self._threads = [
            *(threading.Thread(target=self._land_loop, daemon=True, name=f"land-{i}") for i in range(self.slots)),
            threading.Thread(target=self._scribe_loop, daemon=True, name="scribe"),
            threading.Thread(target=self._measure_loop, daemon=True, name="gauges"),
        ]

    def _agreed_spans(self, found: Recovered) -> int:
        """Dispatchers of a split table: their number changes only when none of them is ahead of the checkpoint."""
        wanted = self.settings.spans
        if not found.spans or not self.settings.across_nodes or found.spans == wanted:
            return wanted
        if all((pc.max(table["last_ts"]).as_py() or 0) <= found.checkpoint_ts for table in found.tables):
            return wanted
        log.warning("split-spans stays %d for this run: the last one ended in the middle of a table", found.spans)
        return found.spans

    def _is_foreign(self, has_metadata: bool) -> bool:
        """Whether somebody wrote here in TiCDC's layout; what has another layout is refused."""
        others = (path for path, _ in self.store.list("") if not path.startswith(f"{RESERVED_PREFIX}/"))
        found = list(islice(others, _LOOKED_AT))
        if found and not has_metadata and not any(_is_ticdc(path, self.paths) for path in found):
            raise StoreRefused(
                f"the sink {self.settings.sink_uri} is not empty ({found[0]}) and holds nothing of TiCDC's layout; "
                "give another prefix"
            )
        return bool(found)

    # -- life ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.journal.patience = self._wait_out
        for thread in self._threads:
            thread.start()

    def fail(self, error: BaseException) -> None:
        """The first error ends every waiter with its cause."""
        with self._changed:
            if self._error is None:
                self._error = error
            self._changed.notify_all()

    def stop_reading(self) -> None:
        """No batch waits any longer for its wake; one that is accepted after this is landed with the rest."""
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    @property
    def error(self) -> BaseException | None:
        return self._error

    def source_ended(self) -> None:
        """The source has no more: its end counts as resolved."""
        with self._lock:
            self.ledger.source_ended()

    def land_all(self, give_up: threading.Event) -> bool:
        """Land everything accepted (reason `close`); False when `give_up` or an error came first."""
        with self._changed:
            self.ledger.planner.closing = True
            self._changed.notify_all()
            while not self._at_rest() and self._error is None and not give_up.is_set():
                self._changed.wait(_WAIT_S)
            return self.ledger.idle

    def _at_rest(self) -> bool:
        """Nothing more can land: all has, or what is left stands behind a DDL that misses changes still to come."""
        if self.ledger.idle:
            return True
        self._collect_writes(self.clock.steady())
        return self.ledger.only_frozen

    def close(self) -> None:
        """End the threads, write the last checkpoint, and remove the spool. Repeats are harmless."""
        if self._closed:
            return
        self._stopping.set()
        self.retention.stop()
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._stopped.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout=5.0)
        # A thread that hangs in the store would be waited for without limit; the next start knows what it missed.
        if self._error is None and not any(thread.is_alive() for thread in self._threads):
            try:
                self.write_progress()
            except StoreUnavailable as exc:
                log.warning("cannot write the last checkpoint, the next start reads a little more again: %s", exc)
        self.spool.close()

    _closed = False

    # -- accepted ------------------------------------------------------------------------------------------------

    def ingest_job(self, tasks: int, allowance_bytes: int) -> IngestJob:
        s = self.settings
        with self._lock:
            self._ingesting = True
            places = self._places(tasks)
            layouts = dict(self.layouts)
            cuts = tuple(sorted(key.ts for key in self.ledger.blocking.blocks))
        return IngestJob(
            layouts=layouts,
            encoding=s.encoding,
            chunk_bytes=chunk_bytes(s.file_size_bytes),
            file_size_bytes=s.file_size_bytes,
            allowance_bytes=allowance_bytes,
            places=places,
            floor=self.floor,
            ordering=s.ordering,
            rules=s.rules,
            split_updates=not s.output_raw_change_event or s.across_nodes,
            spans=self.ledger.spans,
            cuts=cuts,
        )

    def _places(self, tasks: int) -> Places:
        spool, memory_only = self.spool, self.settings.spool_type == "memory"
        left = max(0, spool.memory_limit - self.ledger.spool.tier_bytes[MEMORY_TIER])
        return Places(
            memory_dir=str(spool.memory) if spool.memory is not None else None,
            memory_bytes=left if memory_only else left // max(1, tasks),
            disk_dir=None if memory_only else str(spool.disk),
        )

    def ingest_ended(self) -> None:
        with self._lock:
            self._ingesting = False

    def learn(self, items: pa.Table) -> bool:
        """Take in the layouts of a batch; True if rows met a layout that was unknown, so the batch must run again."""
        kinds = items["kind"]
        errors = items.filter(pc.equal(kinds, ERROR))
        if errors.num_rows:
            name, _, sentence = errors["text"][0].as_py().partition(": ")
            raise {"SpoolError": SpoolError, "SpoolLost": SpoolLost}.get(name, BadEvents)(sentence)
        layouts = items.filter(pc.equal(kinds, LAYOUT))
        with self._lock:
            self.layouts.update(zip(layouts["layout"].to_pylist(), layouts["text"].to_pylist(), strict=True))
            unknown = items.filter(pc.equal(kinds, UNKNOWN_LAYOUT))["layout"].to_pylist()
            never = [key for key in unknown if key not in self.layouts]
        if never:
            raise BadEvents(
                f"rows use layout {never[0]} but no layout row defines it; "
                "a source sends a layout row in the same or an earlier micro-batch than its first use"
            )
        return bool(unknown)

    def accept(self, batch: int, items: pa.Table, end: str | None) -> None:
        """The batch's bytes are in the spool: take its items into the ledger (stage one of the ack)."""
        rows = items.filter(pc.equal(items["kind"], ROWS))
        marks = items.filter(pc.equal(items["kind"], RESOLVED))["first_ts"]
        resolved = pc.max(marks).as_py() or 0
        stale, filtered = (pc.sum(items.filter(pc.equal(items["kind"], k))["rows"]).as_py() or 0 for k in _COUNTS)
        self.book.refuse_shared_targets(rows)
        ddls, left_out = read_ddls(items, self.settings)
        now = self.clock.steady()
        with self._changed:
            self._raise_error()
            refuse_unknown_layouts(ddls, self.layouts)
            self.book.refuse_unsplittable(ddls)
            skipped = self.ledger.blocking.skipped
            accepted = self.ledger.accept(batch, rows, now, end, resolved, ddls)
            skipped = self.ledger.blocking.skipped - skipped
            if resolved:
                self._arrivals.append((now, resolved))
            if self.floor is not None and resolved >= self.floor.last_ts:
                self.floor = None  # the replay has passed everything that was durable before
            self.totals.rows_accepted += accepted.rows
            self.totals.bytes_accepted += accepted.bytes
            self.totals.duplicates += accepted.duplicates + stale
            self._changed.notify_all()
        named = set(pc.unique(rows["segment"]).to_pylist())
        self._delete([*accepted.dropped_segments, *self._unnamed(batch, named)])
        self._write_held()
        self.metrics.observe("batch_rows", accepted.rows)
        self.metrics.observe("batch_bytes", accepted.bytes)
        self.metrics.inc("duplicates_dropped_total", accepted.duplicates + stale)
        self.metrics.inc("filtered_rows_total", filtered)
        self.metrics.inc("ddl_total", left_out, outcome="filtered")
        self.metrics.inc("ddl_total", skipped, outcome="skipped")
        self.metrics.inc("rotate_total", sum(not path.endswith("-0.seg") for path in named))
        self._measure()

    def discard(self, batch: int) -> None:
        """Delete all segments of a batch that is not accepted."""
        self._delete([str(path) for path in self.spool.of_batch(str(batch))])

    def _unnamed(self, batch: int, named: set[str]) -> list[str]:
        """Segments that a lost task attempt left behind: no item names them."""
        return [str(path) for path in self.spool.of_batch(str(batch)) if str(path) not in named]

    def await_wake(self, batch: int, started: float) -> None:
        """Return when the upstream may be woken (once per batch): the spool is under its marks, or reading stops."""
        held = False
        with self._changed:
            self._notice_disk()
            while not self._may_wake(batch) and not self._stopping.is_set():
                self._raise_error()
                if not held:
                    held = True
                    self.metrics.inc("wake_suppressed_total")
                    self.metrics.set("pending_post_enqueue", 1)
                self._changed.wait(_WAIT_S)
                self._notice_disk()
            self._raise_error()
        self.metrics.inc("wake_calls_total")
        self.metrics.set("pending_post_enqueue", 0)
        waited = self.clock.steady() - started
        self.totals.wakes_s.append(waited)
        self.metrics.observe("batch_duration_seconds", waited)

    def _may_wake(self, batch: int) -> bool:
        # What a DDL still misses must be able to arrive, whatever waits behind it.
        if self.settings.wake_mode == "flush":
            return self.ledger.progress.is_durable(batch) or self.ledger.misses_changes
        return self.ledger.spool.may_wake() or self.ledger.misses_changes

    def _notice_disk(self) -> None:
        """Free space counts only while the spool holds something: landing an empty one would free nothing."""
        if self.settings.spool_type == "disk":
            spool = self.ledger.spool
            spool.starved = spool.items > 0 and self.spool.free_bytes() < self.disk_reserve_bytes

    def _raise_error(self) -> None:
        """Whoever waits ends with the cause, and with its answer to whether a new start may help."""
        if (cause := self._error) is not None:
            stopped = TidegateError(f"the changefeed has stopped: {cause}")
            stopped.retry = not isinstance(cause, TidegateError) or cause.retry
            raise stopped from cause

    def _write_held(self) -> None:
        """Tell the source which tables are over their share of the spool."""
        with self._held_lock:
            with self._lock:
                held = set(self.ledger.held_tables)
            if held != self._held_written:
                path = held_file(self.settings)
                temp = f"{path}.new"
                with open(temp, "w", encoding="utf-8") as file:
                    file.write(json.dumps(sorted(held)))
                os.replace(temp, path)
                self._held_written = held

    # -- durable -------------------------------------------------------------------------------------------------

    def _land_loop(self) -> None:
        try:
            while not self._closed and self._error is None:
                with self._changed:
                    work = self._next_work()
                    if work is None:
                        self._changed.wait(_WAIT_S)
                if work is not None:
                    work()
        except BaseException as exc:
            self.fail(exc)

    def land_next(self) -> bool:
        """Land the next round here and now; False when none is due or the land tasks have all the slots they may."""
        with self._lock:
            work = self._next_work()
        if work is not None:
            work()
        return work is not None

    def pass_block_event(self, key: Key) -> None:
        """Return when all that stands before this DDL's markers is durable; nothing of it is written before.

        Raises the cause if the changefeed ends first.
        """
        with self._changed:
            while not self.ledger.has_drained(key):
                self._raise_error()
                if self._closed:
                    raise TidegateError(f"the changefeed was closed before the DDL of commit-ts {key.ts} had drained")
                self._changed.wait(_WAIT_S)
            self._raise_error()

    def _next_work(self) -> Callable[[], None] | None:
        """Schema files of DDLs first: what waits behind them waits for nothing else."""
        now = self.clock.steady()
        self._collect_writes(now)
        if self.ledger.planner.closing:
            self._writes.shorten_pauses(now)
        if writes := self._writes.take_due(now):
            return partial(self._write_schemas, writes)
        round_ = self._next_round()
        if round_ is not None:
            return partial(self._land, round_)
        if now < self._next_move:
            return None
        self._next_move = now + _MOVE_EVERY_S
        move = self.ledger.remains()
        return partial(self._move, move) if move is not None else None

    def _collect_writes(self, now: float) -> None:
        """The DDLs that have drained since the last look; who waits for a drain, or for work, goes on."""
        if fresh := self.ledger.schema_writes(now):
            self._writes.add(fresh, now)
            self._changed.notify_all()

    def _write_schemas(self, writes: list[Write]) -> None:
        """The schema files of these DDLs, in one land job; one that has none is over at once."""
        with self._lock:
            events = {write.key: self.ledger.blocking.blocks[write.key].event for write in writes}
            plans = schema_plans(writes, events, self.settings, self.book)
            job = self.book.job({}, {})
        with_files = [plan for plan in plans if plan["files"]]
        receipts = self._run_land(with_files, job).to_pylist() if with_files else []
        answers = {receipt["file"]: receipt for receipt in receipts}
        for plan, write in zip(plans, writes, strict=True):
            answer = answers.get(plan["file"])
            if answer is None or answer["outcome"] == LANDED:
                self._schema_written(write, bool(plan["files"]))
            else:
                self._schema_failed(write, events[write.key], answer)
        seconds = np.array([answer["schema_write_s"] for answer in receipts], float)
        self.metrics.observe_many("schema_write_duration_seconds", seconds)
        self._asked("land", sum(answer["requests"] for answer in receipts))

    def _schema_written(self, write: Write, has_files: bool) -> None:
        with self._changed:
            self._writes.done(write)
            self._ddl_failures.pop(write.key, None)
            over = self.ledger.schema_written(write)
            now = self.clock.steady()
            self._changed.notify_all()
        for block in over:
            log.debug("DDL of commit-ts %d is over: %s", block.ts, block.event.query)
            self.metrics.inc("ddl_total", outcome="written" if has_files else "passed")
            self.metrics.observe("ddl_drain_duration_seconds", block.drained - block.arrived)
            self.metrics.observe("ddl_drain_wait_encode_seconds", block.encoded - block.arrived)
            self.metrics.observe("ddl_drain_wait_remote_seconds", block.drained - block.encoded)
            self.metrics.observe("ddl_duration_seconds", now - block.arrived)
            self.metrics.observe("ddl_affected_dispatchers", block.affected)
            self.totals.drains_s.append(block.drained - block.arrived)

    def _schema_failed(self, write: Write, event: DdlEvent, answer: Mapping[str, Any]) -> None:
        with self._changed:
            if write.key not in self._ddl_failures:
                log.warning("cannot write the schema file of `%s`, will try again: %s", event.query, answer["error"])
            self._ddl_failures[write.key] = answer["error"] or "no answer"
            self._writes.failed(write, self.clock.steady())
        self.metrics.inc("store_retries_total")

    def _next_round(self) -> Round | None:
        most = max(1, self.slots // 2) if self._ingesting else self.slots
        round_ = self.ledger.plan(self.clock.steady(), self._date()) if self._landers < most else None
        if round_ is not None:
            self._landers += 1
            if round_.fresh:
                self._unrecorded[round_.id] = round_
        return round_

    def _date(self) -> int:
        if self.settings.date_separator == "none":
            return 0
        today = self.clock.wall()
        month = today.month if self.settings.date_separator != "year" else 0
        day = today.day if self.settings.date_separator == "day" else 0
        return today.year * 10_000 + month * 100 + day

    def _land(self, round_: Round) -> None:
        try:
            self._count_landers()
            started = self.clock.steady()
            with self._lock:
                plans, job = self.book.plans(round_)
                files, head = self.book.files(round_), self._head()
            if round_.fresh:
                # Before it is on record: a compaction that deletes the record has put the directories on theirs.
                self._note_directories(files.filter(_first_in_directory(round_)))
                self._intend(round_.id, files, head)
            else:
                self.metrics.inc("store_retries_total")
            receipts = self._run_land(plans, job)
            self._receive(round_, receipts, self.clock.steady() - started)
        finally:
            with self._changed:
                self._landers -= 1
                self._changed.notify_all()
            self._count_landers()

    def _run_land(self, plans: Plans, job: LandJob) -> pa.Table:
        try:
            return self.run_land(plans, job)
        except Exception as exc:  # its worker was killed too often, or Spark itself is in trouble
            return unanswered(plans, f"the landing was lost: {first_line(exc)}")

    def _move(self, move: Move) -> None:
        """Copy what cannot land together, so that the segments it pins can be deleted."""
        with self._lock:
            self._moves += 1
            at = zip(move.segments.tolist(), move.offsets.tolist(), move.lengths.tolist(), strict=True)
            slices = [(self.ledger.spool.path(segment), offset, length) for segment, offset, length in at]
            places, name = self._places(1), f"move{self._moves}-0-0"
        copied: list[tuple[str, int, int]] = []
        try:
            copied = self.run_gather(slices, places, name)
        except Exception as exc:
            log.warning("cannot copy the remains of the spool together, will try again: %s", first_line(exc))
            self._next_move = self.clock.steady() + _MOVE_PAUSE_S
            self._delete([str(path) for path in self.spool.of_batch(name.split("-")[0])])
        with self._changed:
            freed = self.ledger.moved(move, [Copy(*each) for each in copied])
            self._changed.notify_all()
        self._delete(freed)
        self.metrics.inc("spool_moved_bytes_total", sum(length for _, _, length in slices) if copied else 0)

    def _count_landers(self) -> None:
        self.metrics.set("land_tasks_running", self._landers, executor="driver")

    def _intend(self, round_id: int, files: pa.Table, head: Head) -> None:
        self.journal.intend(files, head)
        with self._lock:
            self._waiting = None
            del self._unrecorded[round_id]
        self._asked("journal", 1)

    def _receive(self, round_: Round, receipts: pa.Table, seconds: float) -> None:
        receipts = receipts.sort_by("file")
        landed = _is(receipts, LANDED)
        if len(landed) != len(round_):
            raise BrokenInvariant(f"round {round_.id} has {len(round_)} files but {len(landed)} receipts")
        with self._changed:
            elsewhere, hung = _elsewhere(round_, receipts), _is(receipts, HUNG)
            failed = ~landed & ~np.isin(round_.lane, list(elsewhere))
            self._note_failures(round_, receipts, failed)
            durable = self.ledger.receive(round_, landed, self.clock.steady(), seconds, elsewhere, hung)
            # In the same breath: a snapshot must not see the one without the other.
            self.journal.confirm(round_.plan[landed].tolist())
            self.journal.withdraw(durable.withdrawn)
            self._add_up(round_, landed, durable)
            self._changed.notify_all()
        for name in durable.dropped:
            log.warning("%s: rows are dropped, for a newer schema file with the same columns stands there", name)
        self._delete(durable.segments)
        self._write_held()
        self._count(round_, receipts, landed, durable, seconds)
        self._measure()
        self._start_again_if_needed(round_, receipts)

    def _note_failures(self, round_: Round, receipts: pa.Table, failed: NDArray[np.bool_]) -> None:
        """The status names a table from its first failure until it lands."""
        if self._failures:
            for owner in round_.dispatcher[~failed].tolist():
                self._failures.pop(owner, None)
        if not failed.any():
            return
        errors, fresh = receipts["error"].to_pylist(), dict[int, str]()
        for i in np.flatnonzero(failed).tolist():
            owner = int(round_.dispatcher[i])
            if errors[i] and owner not in self._failures:
                fresh[owner] = errors[i]
            self._failures[owner] = errors[i] or self._failures.get(owner, "waits for an earlier file")
        for owner, error in islice(fresh.items(), NAMED):
            log.warning("landing %s failed, will try again: %s", self.ledger.queues.name(owner), error)
        if len(fresh) > NAMED:
            log.warning("landing %d tables more failed, will try again", len(fresh) - NAMED)

    def _start_again_if_needed(self, round_: Round, receipts: pa.Table) -> None:
        """A spool that is gone is replayed; a file that an old writer made after all is adopted: a start does both."""
        if (lost := pc.index(receipts["outcome"], LOST).as_py()) >= 0:
            raise SpoolLost(receipts["error"][lost].as_py())
        for i in np.flatnonzero(_is(receipts, CONFLICT)).tolist():
            ds, owner = self.ledger.queues.dispatchers, int(round_.dispatcher[i])
            if self.journal.has_orphan(int(ds.table_id[owner]), int(ds.span[owner])):
                raise StoreUnavailable(f"a process of an earlier run still wrote: {receipts['error'][i]}")

    def _add_up(self, round_: Round, landed: Any, durable: Durable) -> None:
        totals = self.totals
        totals.rows_landed += durable.rows
        totals.bytes_landed += durable.bytes
        totals.reasons.update(round_.reason[landed].tolist())
        totals.file_sizes.extend(round_.bytes[landed].tolist())
        totals.size_flushed.extend(round_.bytes[landed & (round_.reason == "size")].tolist())

    def _count(self, round_: Round, receipts: pa.Table, landed: Any, durable: Durable, seconds: float) -> None:
        metrics = self.metrics
        for reason, count in Counter(round_.reason[landed].tolist()).items():
            sizes = round_.bytes[landed & (round_.reason == reason)]
            metrics.inc("flush_total", count, reason=reason)
            metrics.observe_many("flush_bytes", sizes.astype(float), reason=reason)
            metrics.observe_many("flush_duration_seconds", np.full(count, seconds), reason=reason)
        if len(durable.ages_s):
            first = np.append(0, np.cumsum(np.diff(round_.bounds)[landed]))[:-1]
            metrics.observe_many("accepted_to_durable_seconds", np.maximum.reduceat(durable.ages_s, first))
        for name, column in _DURATIONS.items():
            values = receipts[column].to_numpy()
            metrics.observe_many(name, values[values > 0])
        self._asked("land", pc.sum(receipts["requests"]).as_py() or 0)

    def _asked(self, op: str, requests: int) -> None:
        self.metrics.inc("store_requests_total", requests, op=op)
        with self._lock:
            self._rate.add(self.clock.steady(), requests)

    def _delete(self, segments: list[str]) -> None:
        for path in segments:
            try:
                os.unlink(path)
            except FileNotFoundError:
                log.warning("spool segment %s was already gone", path)

    # -- checkpoint ----------------------------------------------------------------------------------------------

    def _head(self) -> Head:
        """With the layouts that are not on record yet."""
        progress = self.ledger.progress
        layouts = self.journal.fresh_layouts(self.layouts)
        noted = self.journal.noted()
        spans = self.ledger.spans if self.settings.across_nodes else 0
        head = Head(progress.checkpoint_ts, progress.position, layouts, *noted, spans=spans, shape=self._shape)
        return replace(head, foreign=self.book.foreign)

    def compact(self) -> None:
        """Replace the journal's entries by a snapshot of the ledger."""
        self.journal.snapshot(self._snapshot, self.retention.flush)

    def _wait_out(self, tries: int, error: StoreUnavailable) -> None:
        """The journal cannot be written: wait, as long as the changefeed runs."""
        if not tries:
            log.warning("cannot write the journal, will try again: %s", error)
        self.metrics.inc("store_retries_total")
        until = self.clock.steady() + pause_s(tries, self.journal.number)
        with self._changed:
            self._waiting = f"the journal: {error}"
            while self.clock.steady() < until:
                if self._closed or self._error is not None:
                    raise error
                self._changed.wait(_WAIT_S)

    def _snapshot(self) -> Snapshot:
        with self._lock:
            planned = [self.book.files(round_) for round_ in self._unrecorded.values()]
            head = replace(self._head(), layouts={str(key): text for key, text in self.layouts.items()})
            tables, dropped = self.ledger.export()
            return Snapshot(tables, planned, head, dropped)

    def _measure_loop(self) -> None:
        """Gauges go on while the scribe waits for the store: the lag is what an outage is seen by."""
        while not self._closed and self._error is None:
            self._measure()
            self._stopped.wait(_MEASURE_EVERY_S)

    def _scribe_loop(self) -> None:
        try:
            last = self.clock.steady()
            while not self._closed and self._error is None:
                with self._changed:
                    self._changed.wait(_WAIT_S)
                if self.retention.due(self.clock.wall()):
                    threading.Thread(target=self._clean, daemon=True, name="retention").start()
                if self.clock.steady() - last >= METADATA_EVERY_S:
                    self.write_progress()
                    last = self.clock.steady()
        except BaseException as exc:
            self.fail(exc)

    def _clean(self) -> None:
        """Delete what has expired; what fails is tried again at the next moment of the cron."""
        try:
            deleted = self.retention.clean(self._written_checkpoint, walk=True)
            log.info("deleted %d files that had expired", deleted)
        except TidegateError as exc:
            log.warning("cannot delete all that has expired, the rest goes next time: %s", exc)

    def _note_directories(self, files: pa.Table) -> None:
        """These get files, so retention must know them."""
        if self.retention.active and "plan" in files.column_names:  # a snapshot's tables were noted before
            keys = ((file["date"], data_key(file, self.paths)) for file in files.to_pylist())
            self.retention.note((date, data_path(key, 1, self.paths).rpartition("/")[0]) for date, key in keys)

    def write_progress(self) -> None:
        """Journal first, then `metadata`: a reader's checkpoint is never ahead of what a restart knows."""
        with self._lock:
            checkpoint = self.ledger.checkpoint()
            self.ledger.expire(self.clock.steady())
            head = self._head()
            self._arrivals = [(at, ts) for at, ts in self._arrivals if ts > checkpoint]
        if checkpoint <= self._written_checkpoint and not head.confirmed and not head.withdrawn:
            return
        self.journal.record(head)
        self._waiting = None
        self._asked("journal", 1)
        if self.journal.wants_snapshot():
            self.compact()
        if checkpoint > self._written_checkpoint:
            self._write_metadata(checkpoint)

    def _write_metadata(self, checkpoint: int) -> None:
        self._asked("metadata", 2)
        try:
            found = self.store.get_tagged(METADATA)
            if found is not None and (other := _checkpoint_in(found[0].decode(errors="replace"))) > checkpoint:
                raise FencedOff(
                    f"`{METADATA}` says checkpoint-ts {other}, which is past ours: this sink has another writer now, "
                    "so this one stops; run only one changefeed per sink"
                )
            if self.store.swap(METADATA, metadata_text(checkpoint).encode(), found[1] if found is not None else ""):
                self._written_checkpoint, self._metadata_fails = checkpoint, False
        except LandingError as exc:  # it only says less than is true: the next time is soon enough
            self.metrics.inc("store_retries_total")
            if not self._metadata_fails:
                log.warning("cannot write the checkpoint, will try again: %s", exc)
            self._metadata_fails = True

    # -- status --------------------------------------------------------------------------------------------------

    def status(self) -> Status:
        with self._lock:
            ledger, totals = self.ledger, self.totals
            spool, progress = ledger.spool, ledger.progress
            return Status(
                state=self._state(),
                rows_accepted=totals.rows_accepted,
                bytes_accepted=totals.bytes_accepted,
                rows_landed=totals.rows_landed,
                bytes_landed=totals.bytes_landed,
                files=sum(totals.reasons.values()),
                reasons=dict(totals.reasons),
                spool_bytes=spool.occupied_bytes,
                spool_high_mark=spool.high_mark,
                spool_low_mark=spool.low_mark,
                spool_max_bytes=spool.max_bytes,
                wake_held=not spool.may_wake(),
                checkpoint_ts=ledger.checkpoint(),
                resolved_ts=progress.resolved_ts,
                lag_s=self._lag(),
                active_tables=ledger.queues.active,
                queued_items=ledger.queues.queued,
                in_flight_items=ledger.accounts.in_flight,
                duplicates=totals.duplicates,
                retrying={ledger.queues.name(owner): error for owner, error in islice(self._failures.items(), NAMED)},
                retrying_tables=len(self._failures),
                waiting=self._waiting,
                requests_per_s=(rate := self._rate.per_s(self.clock.steady())),
                requests_usd_per_day=rate * 86_400 * USD_PER_REQUEST,
                put_budget_late_s=ledger.planner.budget.late_s,
                ddls={block.event.query: self._waits_for(block) for block in ledger.blocking.blocks.values()},
                error=str(self._error) if self._error is not None else None,
            )

    def tables(self, by: str = "lag", k: int = 10) -> list[TableLine]:
        """The first k tables by lag, by small files, or by bytes landed in this run."""
        if by not in TOP:
            raise BadSetting(f"tables are listed by one of {', '.join(TOP)}, not by {by!r}")
        with self._lock:
            return top_tables(self.ledger.queues, by, k, self.clock.steady())

    def _waits_for(self, block: Block) -> str:
        if block.key in self._ddl_failures:
            return self._ddl_failures[block.key]
        if before := [key for key in block.waits_for if key in self.ledger.blocking.blocks]:
            return f"the DDL of commit-ts {min(before).ts}"
        if block.left is None:
            return "changes before it"
        return f"{len(block.left)} tables to land" if len(block.left) else block.stage

    def _state(self) -> str:
        if self._error is not None:
            return "failed"
        if self._closed:
            return "stopped"
        return "closing" if self._stopping.is_set() else "running"

    def _lag(self) -> float:
        """Seconds since the oldest resolved mark that the checkpoint has not reached was accepted."""
        late = [at for at, ts in self._arrivals if ts > self.ledger.progress.checkpoint_ts]
        return self.clock.steady() - late[0] if late else 0.0

    def _measure(self) -> None:
        with self._lock:
            ledger = self.ledger
            waiting = ledger.planner.retries.waiting_items
            gauges: dict[str, float] = {
                **{f"spool_{tier}_bytes": ledger.spool.tier_bytes[i] for i, tier in enumerate(TIERS)},
                "spool_segment_count": ledger.spool.segment_count,
                "spool_items": ledger.spool.items,
                "active_tables": ledger.queues.active,
                "writer_input_len": ledger.queues.queued,
                "in_flight_len": ledger.accounts.in_flight - waiting,
                "to_be_flushed_len": waiting,
                "ddl_unfinished": len(ledger.blocking.blocks),
            }
            checkpoint, resolved = ledger.checkpoint(), ledger.progress.resolved_ts
        wall_ms = self.clock.wall().timestamp() * 1000
        for name, ts in (("checkpoint", checkpoint), ("resolved", resolved)):
            gauges[f"{name}_ts"] = physical_ms(ts)
            if ts:
                gauges[f"{name}_lag_seconds"] = max(0.0, (wall_ms - physical_ms(ts)) / 1000)
        for name, value in gauges.items():
            self.metrics.set(name, value)


_COUNTS = (STALE, FILTERED)
_DURATIONS = {
    "data_write_duration_seconds": "data_s",
    "index_write_duration_seconds": "index_s",
    "schema_check_duration_seconds": "schema_check_s",
    "schema_write_duration_seconds": "schema_write_s",
}


def _is(receipts: pa.Table, outcome: str) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = pc.equal(receipts["outcome"], outcome).to_numpy(zero_copy_only=False)
    return found


def _checkpoint_in(metadata: str) -> int:
    """What a `metadata` file says; one that nobody can read is put right."""
    try:
        return parse_metadata(metadata)
    except StoreRefused:
        return 0


def _is_ticdc(path: str, options: PathOptions) -> bool:
    return is_schema_path(path) or parse_index_path(path, options) is not None


def first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _first_in_directory(round_: Round) -> NDArray[np.bool_]:
    """Which files may be the first in their directory."""
    found: NDArray[np.bool_] = (round_.number == 1) | (round_.schema != SETTLED) | (round_.attempt > 0)
    return found


def _elsewhere(round_: Round, receipts: pa.Table) -> dict[int, Found]:
    """By lane, the other version whose schema file has the same columns, and its last data file."""
    found = _is(receipts, ELSEWHERE)
    versions, numbers = receipts["found_version"].to_pylist(), receipts["found_number"].to_pylist()
    return {int(round_.lane[i]): Found(versions[i], numbers[i]) for i in np.flatnonzero(found).tolist()}


def held_file(settings: Settings) -> str:
    """The file that tells a source which tables not to hand out for now."""
    return os.path.join(settings.spool_dir, settings.changefeed_id, HELD)


def chunk_bytes(file_size_bytes: int) -> int:
    """A 64th of a file, so that whole chunks come within 1 % of `file-size`; not so small that items outweigh rows."""
    return max(file_size_bytes // 64, min(file_size_bytes // 2, 16 << 10))
