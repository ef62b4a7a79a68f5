"""The life of a changefeed around its queries: started, supervised, started again, stopped.

If the query fails for a passing reason it is started again in the same process, as after a crash: the journal says
where to go on.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
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
from tidegate.driver.view import no_state
from tidegate.errors import OnlyRepeats, SessionStopped, StillStarting, TidegateError
from tidegate.events import shown_time
from tidegate.executor.land import land_files, land_schemas
from tidegate.executor.spool import gather
from tidegate.observe.metrics import Metrics
from tidegate.observe.status import Status
from tidegate.sources.datasource import load_stream
from tidegate.sources.mysql.private import private_source
from tidegate.sources.source import Observed, SourceState
from tidegate.spark.answers import STARTING, answer
from tidegate.spark.given import Config, check_call, config_of
from tidegate.spark.jobs import on_executor
from tidegate.spark.query import OpenSource, Position, Query
from tidegate.spark.session import check_session, has_stopped
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
    password_file: str | None = None,
) -> Handle:
    """Land a source of ours (`mysql://...`, `workload://...`, `parquet:...`), which executors read in place.

    The password of a database is in `password_file`, in the URI or in MYSQL_PWD, and goes no further than the spool.
    """
    spark = _active_session()
    uri, private = private_source(source_uri, password_file, os.environ)
    spool = spool_options(settings)
    if private is not None:
        private = replace(private, sink_uri=settings.sink_uri, access=settings.access)
        private = replace(private, relay_dir=spool.relay_dir, path=spool.private_file)
    source = sources.open_source(uri, ordering=settings.ordering, wake_mode=settings.wake_mode, private=private)

    def events(position: Position | None) -> DataFrame:
        if private is not None:
            private.write()  # now the directory is ours
        return load_stream(
            spark,
            uri,
            position.offset if position is not None else None,
            read="splits",
            ordering=settings.ordering,
            wakeMode=settings.wake_mode,
            demand=spool.demand_file,
            private=spool.private_file if private is not None else "",
            **({"parallelism": settings.encoder_shards} if settings.encoder_shards else {}),
        )

    def backlog(end: str | None) -> int | None:
        return source.backlog_bytes(source.initial() if end is None else json.loads(end))

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
        source_state=source.state if isinstance(source, Observed) else no_state,
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
    backlog: Callable[[str | None], int | None] | None = None,
    size: Callable[[str | None, str], int] | None = None,
    newest_ts: Callable[[], int | None] = nobody_knows,
    source_state: Callable[[], SourceState | None] = no_state,
) -> Handle:
    """Like `write_stream`, from settings that were read already; fails at once if the session or sink does not suit."""
    spark = _active_session()
    slots, warnings = check_session(spark)
    for warning in warnings:
        log.warning("%s", warning)
    handle = Handle(spark, events, settings, slots, finite, store_opener, backlog, size, newest_ts, source_state)
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
    backlog: Callable[[str | None], int | None] | None = None
    size: Callable[[str | None, str], int] | None = None
    newest_ts: Callable[[], int | None] = nobody_knows  # how far the source goes
    source_state: Callable[[], SourceState | None] = no_state  # how far behind its upstream it is
    metrics: Metrics = field(init=False)
    restarts: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _leave: threading.Event = field(default_factory=threading.Event)
    _done: threading.Event = field(default_factory=threading.Event)
    _error: BaseException | None = None
    _server: Any = None
    _run: Query | None = None  # None until the first query has started

    def begin(self, metrics_addr: str | None) -> None:
        self.metrics = Metrics(self.settings.changefeed_id)
        if metrics_addr is not None:
            self._server = self.metrics.serve(metrics_addr, partial(answer, changefeed=self._started))
        try:
            run = self._start_run(self._probe)
        except BaseException:
            self._close_server()
            raise
        self._run = run
        # A plain thread: one that inherited the query's job group would be cancelled with it.
        threading.Thread(target=self._supervise, name="tidegate", daemon=True).start()

    def _started(self) -> Changefeed | None:
        return self._run.changefeed if self._run is not None else None

    @property
    def metrics_port(self) -> int | None:
        return self._server.port if self._server is not None else None

    @property
    def changefeed(self) -> Changefeed:
        return self._query.changefeed

    @property
    def _query(self) -> Query:
        if self._run is None:
            raise StillStarting(STARTING)
        return self._run

    @property
    def done(self) -> bool:
        return self._done.is_set()

    def status(self) -> Status:
        return self.changefeed.status()

    def tables(self, by: str = "lag", k: int = 10) -> list[TableLine]:
        """The first k tables by `lag`, `small-files` or `bytes`: asked for, instead of a metric for each table."""
        return self.changefeed.tables(by, k)

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
            options,
            store,
            SystemClock(),
            self.metrics,
            jobs,
            self.slots,
            probe,
            newest_ts=self.newest_ts,
            source_state=self.source_state,
        )
        try:
            shards = self.settings.encoder_shards or self.slots
            run = Query(changefeed, self.events, self.finite, self.backlog, self.size, shards)
            changefeed.start()
            ts, tables = changefeed.ledger.progress.checkpoint_ts, changefeed.ledger.queues.dispatchers.size - 1
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
                error = self._query.wait(self._stop)
                if has_stopped(self.spark):
                    raise SessionStopped(_SESSION_STOPPED) from error
                if error is None or self._stop.is_set():
                    self._finish(error)
                    return
                self._restart_or_raise(error)
        except (PySparkException, Py4JError, OSError) as exc:  # nobody understands it: its sentence is all there is
            stopped = has_stopped(self.spark)
            sentence = _SESSION_STOPPED if stopped else f"the query failed: {sentence_of(exc)}"
            self._error = (SessionStopped if stopped else TidegateError)(sentence)
            self._error.__cause__ = exc
        except BaseException as exc:
            self._error = exc
        finally:
            self._end()

    def _end(self) -> None:
        """Give everything back, whatever state Spark is in. Only then others may know that it is over."""
        try:
            with suppress(PySparkException, Py4JError, OSError):  # a session that was stopped has no query to end
                self._query.end_query()
            self.changefeed.close()
            self._close_server()
        except BaseException as exc:
            self._error = self._error or exc
        finally:
            self._done.set()

    def _finish(self, error: BaseException | None) -> None:
        run = self._query
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
        restarts = self.restarts + 1 if not self._query.accepted_any else 1
        # What is known to pass is waited for without limit; what nobody understands is not.
        if not may_pass(error) or (not ours and restarts > _RESTARTS):
            raise error
        self.restarts = restarts
        log.warning("the query failed and is started again (try %d): %s", self.restarts, sentence_of(error))
        self.changefeed.life.stop_reading()
        self._query.end_query()
        self.changefeed.life.fail(error)
        self.changefeed.close()
        for tries in count(self.restarts):
            if self._stop.wait(pause_s(tries, 0)):
                raise error
            try:
                self.changefeed.scribe.look()  # a start would take a sink that was emptied for a new one
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


_SESSION_STOPPED = (
    "the Spark session was stopped under the changefeed, so it has ended; what has not landed is read again "
    "at the next start; call handle.stop() and await_termination() before spark.stop()"
)


def _place(checkpoint_ts: int) -> str:
    return f"checkpoint-ts {shown_time(checkpoint_ts)}" if checkpoint_ts else "the beginning of the source"


def may_pass(error: BaseException) -> bool:
    return not isinstance(error, TidegateError) or error.retry
