"""The Structured Streaming query and the life of a changefeed around it.

The query's callback ingests a micro-batch and returns at the wake; landings run from plain threads beside it. Spark's
own checkpoint directory is made anew for every start and decides nothing: where to resume comes from the journal. If
the query fails for a passing reason it is started again in the same process, as after a crash.
"""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from pyspark import TaskContext, cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tidegate import sources
from tidegate.clock import SystemClock
from tidegate.config.settings import Settings, load_settings
from tidegate.control.retries import pause_s
from tidegate.control.top import TableLine
from tidegate.driver.changefeed import Changefeed, Preflight, first_line, held_file, no_checks
from tidegate.errors import TidegateError
from tidegate.executor.ingest import IngestJob, check_schema, ingest, read_splits
from tidegate.executor.land import land
from tidegate.executor.rows import ITEMS, spark_ddl
from tidegate.executor.segments import gather
from tidegate.observe.metrics import Metrics
from tidegate.observe.status import Status
from tidegate.sources.datasource import SPLIT_COLUMN, load_stream
from tidegate.spark.session import check_session
from tidegate.storage.store import StoreOpener, open_store
from tidegate.tools.check import cheap_checks

log = logging.getLogger("tidegate")
T = TypeVar("T")

_POLL_S = 0.1
_RESTARTS = 5  # in a row, without a batch accepted in between
_BATCH_BYTES = 256 << 20  # what a source of ours hands out in one micro-batch at most


class QueryStopped(TidegateError):
    """The query ended although nobody asked the changefeed to stop: it is started again."""

    retry = True


@dataclass(frozen=True)
class Position:
    """Where a source is opened: everything after it is replayed. `offset` is the source's own JSON text."""

    checkpoint_ts: int
    offset: str | None


OpenSource = Callable[["Position | None"], DataFrame]


def write_stream(
    open_source: OpenSource,
    sink_uri: str,
    *,
    config: Mapping[str, Any] | None = None,
    metrics_addr: str | None = None,
    finite: bool = False,
    **options: Any,
) -> Handle:
    """Land a streaming DataFrame of the events schema in `sink_uri`; returns at once with a handle.

    `open_source(position)` is called with the position of the last wholly durable batch (None at first) and returns a
    streaming DataFrame that replays everything after it. `finite=True` reads what is there and ends (AvailableNow).
    Options are those of the command line in snake_case: `flush_interval="5s"`, `file_size="64MiB"`.
    """
    settings = load_settings(sink_uri, config, options)
    return start(open_source, settings, metrics_addr=metrics_addr, finite=finite)


def start_source(
    source_uri: str,
    settings: Settings,
    *,
    metrics_addr: str | None = None,
    store_opener: StoreOpener = open_store,
) -> Handle:
    """Land a source of ours (`workload://...`, `parquet:...`), which executors read in place."""
    spark = _active_session()
    source = sources.open_source(source_uri, ordering=settings.ordering, wake_mode=settings.wake_mode)

    def events(position: Position | None) -> DataFrame:
        return load_stream(
            spark,
            source_uri,
            position.offset if position is not None else None,
            read="splits",
            limitBytes=limit_bytes(settings),
            ordering=settings.ordering,
            wakeMode=settings.wake_mode,
            held=held_file(settings),
            **({"parallelism": settings.encoder_shards} if settings.encoder_shards else {}),
        )

    def backlog(end: str) -> int | None:
        return source.backlog_bytes(json.loads(end))

    return start(
        events,
        settings,
        metrics_addr=metrics_addr,
        finite=source.finite,
        store_opener=store_opener,
        backlog=backlog,
    )


def _active_session() -> SparkSession:
    spark = SparkSession.getActiveSession()
    if spark is None:
        raise TidegateError("no Spark session is active; make one with SparkSession.builder before write_stream")
    return spark


def start(
    events: OpenSource,
    settings: Settings,
    *,
    metrics_addr: str | None = None,
    finite: bool = False,
    store_opener: StoreOpener = open_store,
    backlog: Callable[[str], int | None] | None = None,
) -> Handle:
    """Like `write_stream`, from settings that were read already; fails at once if the session or sink does not suit."""
    spark = _active_session()
    slots, warnings = check_session(spark)
    for warning in warnings:
        log.warning("%s", warning)
    handle = Handle(spark, events, settings, slots, finite, store_opener, backlog)
    handle.begin(metrics_addr)
    return handle


def limit_bytes(settings: Settings) -> int:
    """Read limit of a micro-batch: it must fit between the high mark and the spool's size."""
    return max(1 << 20, min(_BATCH_BYTES, settings.spool_max_bytes // 5))


@dataclass
class Handle:
    """A running changefeed."""

    spark: SparkSession
    events: OpenSource
    settings: Settings
    slots: int
    finite: bool
    store_opener: StoreOpener
    backlog: Callable[[str], int | None] | None = None
    metrics: Metrics = field(init=False)
    restarts: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _leave: threading.Event = field(default_factory=threading.Event)
    _done: threading.Event = field(default_factory=threading.Event)
    _error: BaseException | None = None
    _server: Any = None

    def begin(self, metrics_addr: str | None) -> None:
        self.metrics = Metrics(self.settings.changefeed_id)
        if metrics_addr is not None:
            self._server = self.metrics.serve(metrics_addr, self._asked)
        try:
            run = self._start_run(cheap_checks)
        except BaseException:
            self._close_server()
            raise
        self._run = run
        # A plain thread: one that inherited the query's job group would be cancelled with it.
        threading.Thread(target=self._supervise, name="tidegate", daemon=True).start()

    def _asked(self, path: str, query: Mapping[str, str]) -> Any:
        """What is served beside the metrics: `/status`, `/tables?by=lag&k=10`."""
        if path == "/status":
            return asdict(self.status())
        if path == "/tables" and query.get("k", "10").isdecimal():
            lines = self.tables(query.get("by", "lag"), int(query.get("k", "10")))
            return [line._asdict() for line in lines]
        return None

    @property
    def metrics_port(self) -> int | None:
        return self._server.port if self._server is not None else None

    @property
    def changefeed(self) -> Changefeed:
        return self._run.changefeed

    @property
    def done(self) -> bool:
        return self._done.is_set()

    def status(self) -> Status:
        return self._run.changefeed.status()

    def tables(self, by: str = "lag", k: int = 10) -> list[TableLine]:
        """The first k tables by `lag`, `small-files` or `bytes`: asked for, instead of a metric for each table."""
        return self._run.changefeed.tables(by, k)

    def stop(self) -> None:
        """Stop reading, land what is spooled, write the checkpoint; `await_termination` tells when that is done."""
        self._stop.set()

    def leave(self) -> None:
        """Stop without landing what is spooled: the next start replays it."""
        self._leave.set()
        self._stop.set()

    def await_termination(self, timeout: float | None = None) -> bool:
        """True when the changefeed has ended; raises what made it fail."""
        ended = self._done.wait(timeout)
        if ended and self._error is not None:
            raise self._error
        return ended

    def _start_run(self, preflight: Preflight = no_checks) -> _Run:
        store = self.store_opener(self.settings.sink_uri, self.settings.access)
        run_land, run_gather = _on_executor(self.spark, land), _on_executor(self.spark, gather)
        changefeed = Changefeed(
            self.settings,
            store,
            self.store_opener,
            SystemClock(),
            self.metrics,
            lambda plans, job: pa.Table.from_batches([run_land(plans, job)]),
            run_gather,
            self.slots,
            preflight=preflight,
        )
        try:
            run = _Run(self.spark, changefeed, self.slots, self.finite, self.events, self.backlog)
            changefeed.start()
            run.start()
        except BaseException:
            changefeed.close()
            raise
        return run

    def _supervise(self) -> None:
        try:
            while True:
                error = self._run.wait(self._stop)
                if error is None or self._stop.is_set():
                    self._finish(error)
                    return
                self._restart_or_raise(error)
        except BaseException as exc:
            self._error = exc
        finally:
            self._run.end_query()
            self._run.changefeed.close()
            self._close_server()
            self._done.set()

    def _finish(self, error: BaseException | None) -> None:
        run = self._run
        run.changefeed.stop_reading()
        run.end_query()
        if error is not None:
            raise error
        if not self._stop.is_set() and self.backlog is None:  # sources of ours send their last resolved mark themselves
            run.changefeed.source_ended()
        if not self._leave.is_set():
            run.changefeed.land_all(self._leave)
        if (failure := run.changefeed.error) is not None:
            raise failure

    def _restart_or_raise(self, error: BaseException) -> None:
        """A passing fault ends the query but not the changefeed: start again from the journal."""
        ours = isinstance(error, TidegateError)
        self.restarts = self.restarts + 1 if not self._run.accepted_any else 1
        # What is known to pass is waited for without limit; what nobody understands is not.
        if not may_pass(error) or (not ours and self.restarts > _RESTARTS):
            raise error
        log.warning("the query failed and is started again (try %d): %s", self.restarts, first_line(error))
        self._run.changefeed.stop_reading()
        self._run.end_query()
        self._run.changefeed.fail(error)
        self._run.changefeed.close()
        for tries in count(self.restarts):
            if self._stop.wait(pause_s(tries, 0)):
                raise error
            try:
                self._run = self._start_run()
                return
            except TidegateError as exc:
                if not exc.retry:
                    raise
                log.warning("cannot start again yet (try %d): %s", tries, exc)

    def _close_server(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None


@dataclass
class _Run:
    """One query over one changefeed, from its start to its end."""

    spark: SparkSession
    changefeed: Changefeed
    slots: int
    finite: bool
    events: OpenSource
    backlog: Callable[[str], int | None] | None
    accepted_any: bool = False
    _end: str | None = None
    _query: StreamingQuery | None = None
    _error: BaseException | None = None

    def start(self) -> None:
        progress = self.changefeed.ledger.progress
        resume = progress.position is not None or progress.checkpoint_ts > 0
        position = Position(progress.checkpoint_ts, progress.position) if resume else None
        events = self.events(position)
        if events.columns != [SPLIT_COLUMN]:
            check_schema(events.columns, [field.dataType.simpleString() for field in events.schema.fields])
        self._state = tempfile.mkdtemp(prefix="tidegate-query-")
        writer = events.writeStream.foreachBatch(self._on_batch).option("checkpointLocation", self._state)
        self._query = (writer.trigger(availableNow=True) if self.finite else writer).start()

    def wait(self, stop: threading.Event) -> BaseException | None:
        """Until the query ends, an error comes, or `stop`; returns the error."""
        query = self._query
        assert query is not None
        while not stop.is_set() and self.error is None and query.isActive:
            stop.wait(_POLL_S)
        if self.error is None and not stop.is_set() and not query.isActive:
            failure: BaseException | None = query.exception()
            return failure or self._ended_early()
        return self.error

    def _ended_early(self) -> BaseException | None:
        """A query that ends by itself has read all there is; one that was stopped from outside has not."""
        if self.finite and (self.backlog is None or self._end is None or not self.backlog(self._end)):
            return None
        return QueryStopped("the query was stopped from outside although its source goes on")

    @property
    def error(self) -> BaseException | None:
        return self._error or self.changefeed.error

    def end_query(self) -> None:
        if self._query is not None and self._query.isActive:
            self._query.stop()
        shutil.rmtree(self._state, ignore_errors=True)

    def _on_batch(self, events: DataFrame, batch: int) -> None:
        """One micro-batch. Nothing is raised into Spark: what fails is kept here and ends the query from outside."""
        if self.error is not None or self.changefeed.stopping:
            return
        started = self.changefeed.clock.steady()
        try:
            try:
                items = self._ingest(events, batch)
            finally:
                self.changefeed.ingest_ended()
            end = self._end_offset(batch)
            self.changefeed.accept(batch, items, end)
            self.accepted_any, self._end = True, end
            if self.backlog is not None and end is not None:
                self.changefeed.metrics.set("source_backlog_bytes", self.backlog(end) or 0)
            self.changefeed.await_wake(batch, started)
        except Exception as exc:
            if not self.changefeed.stopping:
                self._error = exc

    def _ingest(self, events: DataFrame, batch: int) -> pa.Table:
        job = self._job()
        items = _run_ingest(events, job, batch, self._shards)
        if self.changefeed.learn(items):  # rows came before their layout: once more with what was learned
            self.changefeed.discard(batch)
            items = _run_ingest(events, self._job(), batch, self._shards)
            self.changefeed.learn(items)
        return items

    def _job(self) -> IngestJob:
        limits = self.changefeed.ledger.limits
        allowance = max(limits.spool_max_bytes // 5, 2 * limit_bytes(self.changefeed.settings))
        return self.changefeed.ingest_job(self._shards, allowance)

    @property
    def _shards(self) -> int:
        """How many tasks ingest a micro-batch."""
        return self.changefeed.settings.encoder_shards or self.slots

    def _end_offset(self, batch: int) -> str | None:
        """The batch's end offset as Spark wrote it before the batch ran: the last line, for one source."""
        lines = (Path(self._state) / "offsets" / str(batch)).read_text().splitlines()
        return lines[-1] if lines and lines[-1] != "-" else None


def _run_ingest(events: DataFrame, job: IngestJob, batch: int, shards: int) -> pa.Table:
    if events.columns != [SPLIT_COLUMN]:
        events = _in_order(events, job.ordering, shards)
    splits = events.columns == [SPLIT_COLUMN]

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        name = f"{batch}-{context.partitionId()}-{context.taskAttemptId()}"
        return ingest(read_splits(batches) if splits else batches, job, name)

    return events.mapInArrow(task, spark_ddl(ITEMS)).toArrow()


def _in_order(events: DataFrame, ordering: str, shards: int) -> DataFrame:
    """A DataFrame of unknown order: by table (or over the sequence), each partition sorted."""
    if ordering == "global":
        events = events.repartitionByRange(shards, "commit_ts")  # a transaction stays whole
    else:
        events = events.repartition(shards, "table_id")
    return events.sortWithinPartitions("table_id", "commit_ts", "seq")


def _on_executor(spark: SparkSession, act: Callable[..., T]) -> Callable[..., T]:
    """`act` as a job of one task, with arguments that travel as bytes of their own and not as part of a closure."""
    sc = spark.sparkContext

    def run(*arguments: Any) -> T:
        def task(parts: Iterator[bytes]) -> Iterator[T]:
            for part in parts:
                yield act(*cloudpickle.loads(part))

        found: T = sc.parallelize([cloudpickle.dumps(arguments)], 1).mapPartitions(task).collect()[0]
        return found

    return run


def may_pass(error: BaseException) -> bool:
    return not isinstance(error, TidegateError) or error.retry
