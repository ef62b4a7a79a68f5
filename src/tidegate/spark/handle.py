"""The life of a changefeed around its queries: started, supervised, started again, stopped.

If the query fails for a passing reason it is started again in the same process, as after a crash: the journal says
where to go on.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import count
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidegate import sources
from tidegate.clock import SystemClock
from tidegate.config.settings import Settings, load_settings
from tidegate.control.retries import pause_s
from tidegate.control.top import TableLine
from tidegate.driver.causes import cause_of, sentence_of
from tidegate.driver.changefeed import Changefeed
from tidegate.driver.jobs import Jobs
from tidegate.driver.log import log
from tidegate.driver.startup import Probe, no_probe, nobody_knows, probe
from tidegate.errors import OnlyRepeats, TidegateError
from tidegate.events import shown_time
from tidegate.executor.land import land_files, land_schemas
from tidegate.executor.spool import gather
from tidegate.observe.metrics import Metrics
from tidegate.observe.status import Status
from tidegate.sources.datasource import load_stream
from tidegate.spark.given import Config, check_call, config_of
from tidegate.spark.jobs import on_executor
from tidegate.spark.query import OpenSource, Position, Query
from tidegate.spark.session import check_session
from tidegate.spark.wiring import changefeed_options, spool_options
from tidegate.storage.store import StoreOpener, open_store
from tidegate.wording import redacted

_RESTARTS = 5  # in a row, without a batch accepted in between


def write_stream(
    open_source: OpenSource,
    sink_uri: str,
    *,
    config: Config | None = None,
    metrics_addr: str | None = None,
    finite: bool = False,
    **options: Any,
) -> Handle:
    """Land a streaming DataFrame of the events schema in `sink_uri`; returns at once with a handle.

    `open_source(position)` is called with the position of the last wholly durable batch (None at first) and returns a
    streaming DataFrame that replays everything after it. `finite=True` reads what is there and ends (AvailableNow).
    `config` is the path of a `changefeed.toml`, or its content as a dict. Options are those of the command line in
    snake_case: `flush_interval="5s"`, `file_size="64MiB"`.
    """
    check_call(open_source, sink_uri)
    settings = load_settings(sink_uri, config_of(config), options)
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
            ordering=settings.ordering,
            wakeMode=settings.wake_mode,
            demand=spool_options(settings).demand_file,
            **({"parallelism": settings.encoder_shards} if settings.encoder_shards else {}),
        )

    def backlog(end: str) -> int | None:
        return source.backlog_bytes(json.loads(end))

    def size(start: str | None, end: str) -> int:
        return source.size_bytes(source.initial() if start is None else json.loads(start), json.loads(end))

    return start(
        events,
        settings,
        metrics_addr=metrics_addr,
        finite=source.finite,
        store_opener=store_opener,
        backlog=backlog,
        size=size,
        newest_ts=source.newest_ts,
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
    size: Callable[[str | None, str], int] | None = None,
    newest_ts: Callable[[], int | None] = nobody_knows,
) -> Handle:
    """Like `write_stream`, from settings that were read already; fails at once if the session or sink does not suit."""
    spark = _active_session()
    slots, warnings = check_session(spark)
    for warning in warnings:
        log.warning("%s", warning)
    handle = Handle(spark, events, settings, slots, finite, store_opener, backlog, size, newest_ts)
    handle.begin(metrics_addr)
    return handle


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
    size: Callable[[str | None, str], int] | None = None
    newest_ts: Callable[[], int | None] = nobody_knows  # how far the source goes
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
            run = self._start_run(self._probe)
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

    @property
    def _probe(self) -> Probe:
        """The first start makes sure that the sink can be used; `noop://` stores nothing."""
        s = self.settings
        if s.scheme == "noop":
            return no_probe
        return partial(probe, sink_uri=redacted(s.sink_uri), hidden=s.access.hide)

    def _start_run(self, probe: Probe = no_probe) -> Query:
        store = self.store_opener(self.settings.sink_uri, self.settings.access)
        jobs = Jobs(*(on_executor(self.spark, act) for act in (land_files, land_schemas, gather)))
        options = changefeed_options(self.settings, self.store_opener)
        changefeed = Changefeed(
            options, store, SystemClock(), self.metrics, jobs, self.slots, probe, newest_ts=self.newest_ts
        )
        try:
            shards = self.settings.encoder_shards or self.slots
            run = Query(changefeed, self.events, self.finite, self.backlog, self.size, shards)
            changefeed.start()
            ts, tables = changefeed.ledger.progress.checkpoint_ts, changefeed.ledger.queues.dispatchers.size
            log.info("changefeed %s begins at %s; it knows %d tables", options.changefeed_id, _place(ts), tables)
            run.start()
        except BaseException as exc:
            changefeed.close()
            if (cause := cause_of(exc)) is not exc:  # a source of ours is first opened in another process
                raise cause from exc
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
        except (PySparkException, Py4JError) as exc:  # nobody understands it: the sentence in it is all there is to say
            self._error = TidegateError(f"the query failed: {sentence_of(exc)}")
            self._error.__cause__ = exc
        except BaseException as exc:
            self._error = exc
        finally:
            self._run.end_query()
            self._run.changefeed.close()
            self._close_server()
            self._done.set()

    def _finish(self, error: BaseException | None) -> None:
        run = self._run
        run.changefeed.life.stop_reading()
        run.end_query()
        if error is not None:
            raise error
        if not self._stop.is_set() and self.backlog is None:  # sources of ours send their last resolved mark themselves
            run.changefeed.source_ended()
        if not self._leave.is_set():
            run.changefeed.landing.land_all(self._leave)
        run.changefeed.confirm_sink()
        checkpoint_ts = run.changefeed.status().checkpoint_ts
        log.info("changefeed %s has landed all up to %s", self.settings.changefeed_id, _place(checkpoint_ts))
        if (failure := run.changefeed.life.error) is not None:
            raise failure
        if (sentence := run.changefeed.status().only_repeats) is not None:
            raise OnlyRepeats(sentence)

    def _restart_or_raise(self, error: BaseException) -> None:
        """A passing fault ends the query but not the changefeed: start again from the journal."""
        ours = isinstance(error, TidegateError)
        restarts = self.restarts + 1 if not self._run.accepted_any else 1
        # What is known to pass is waited for without limit; what nobody understands is not.
        if not may_pass(error) or (not ours and restarts > _RESTARTS):
            raise error
        self.restarts = restarts
        log.warning("the query failed and is started again (try %d): %s", self.restarts, sentence_of(error))
        self._run.changefeed.life.stop_reading()
        self._run.end_query()
        self._run.changefeed.life.fail(error)
        self._run.changefeed.close()
        for tries in count(self.restarts):
            if self._stop.wait(pause_s(tries, 0)):
                raise error
            try:
                self._run.changefeed.scribe.look()  # a start would take a sink that was emptied for a new one
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


def _place(checkpoint_ts: int) -> str:
    return f"checkpoint-ts {shown_time(checkpoint_ts)}" if checkpoint_ts else "the beginning of the source"


def may_pass(error: BaseException) -> bool:
    return not isinstance(error, TidegateError) or error.retry
