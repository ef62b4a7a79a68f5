"""One Structured Streaming query over one changefeed, from its start to its end.

The query's callback ingests a micro-batch and returns at the wake; landings run from plain threads beside it. Spark's
own checkpoint directory is in the spool's, is made anew for every start and decides nothing: where to resume comes from
the journal.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from tidegate.control.reading import read_limit_bytes
from tidegate.driver.causes import cause_of
from tidegate.driver.changefeed import Changefeed
from tidegate.errors import TidegateError
from tidegate.executor.ingest import check_schema
from tidegate.executor.jobs import IngestJob
from tidegate.sources.datasource import SPLIT_COLUMN
from tidegate.spark.given import check_events
from tidegate.spark.jobs import run_ingest

_POLL_S = 0.1
_LEAST_ALLOWANCE = 2 << 20


class QueryStopped(TidegateError):
    """The query ended although nobody asked the changefeed to stop: it is started again."""

    retry = True


@dataclass(frozen=True)
class Position:
    """Where a source is opened: everything after it is replayed. `offset` is the source's own JSON text."""

    checkpoint_ts: int
    offset: str | None


OpenSource = Callable[["Position | None"], DataFrame]


@dataclass
class Query:
    """One query over one changefeed, from its start to its end."""

    changefeed: Changefeed
    events: OpenSource
    finite: bool
    backlog: Callable[[str | None], int | None] | None  # bytes that a source of ours has after this offset
    size: Callable[[str | None, str], int] | None  # estimated bytes between two offsets of a source of ours
    shards: int  # tasks that ingest a micro-batch
    accepted_any: bool = False
    _end: str | None = None
    _query: StreamingQuery | None = None
    _error: BaseException | None = None

    def start(self) -> None:
        progress = self.changefeed.ledger.progress
        resume = progress.position is not None or progress.checkpoint_ts > 0
        position = Position(progress.checkpoint_ts, progress.position) if resume else None
        self._end = progress.position
        if self.backlog is not None:
            self.changefeed.observer.backlog(self.backlog(self._end))
        events = self.events(position)
        check_events(events)
        if events.columns != [SPLIT_COLUMN]:
            check_schema(events.columns, [field.dataType.simpleString() for field in events.schema.fields])
        state = str(self.changefeed.spool.query)
        writer = events.writeStream.foreachBatch(self._on_batch).option("checkpointLocation", state)
        self._query = (writer.trigger(availableNow=True) if self.finite else writer).start()

    def wait(self, stop: threading.Event) -> BaseException | None:
        """Until the query ends, an error comes, or `stop`; returns the error."""
        query = self._query
        assert query is not None
        while not stop.is_set() and self.error is None and query.isActive:
            stop.wait(_POLL_S)
        if self.error is None and not stop.is_set() and not query.isActive:
            failure: BaseException | None = query.exception()
            return cause_of(failure) if failure is not None else self._ended_early()
        return self.error

    def _ended_early(self) -> BaseException | None:
        """A query that ends by itself has read all there is; one that was stopped from outside has not."""
        if self.finite and (self.backlog is None or self._end is None or not self.backlog(self._end)):
            return None
        return QueryStopped("the query was stopped from outside although its source goes on")

    @property
    def error(self) -> BaseException | None:
        return self._error or self.changefeed.life.error

    def end_query(self) -> None:
        """Its directory is removed with the spool, when the changefeed closes."""
        if self._query is not None and self._query.isActive:
            self._query.stop()

    def _on_batch(self, events: DataFrame, batch: int) -> None:
        """One micro-batch. Nothing is raised into Spark: what fails is kept here and ends the query from outside."""
        if self.error is not None or self.changefeed.life.stopping:
            return
        started = self.changefeed.clock.steady()
        try:
            items = self.changefeed.intake.ingest(batch, lambda: run_ingest(events, self._job(), batch, self.shards))
            end = self._end_offset(batch)
            estimated = self.size(self._end, end) if self.size is not None and end is not None else 0
            self.changefeed.intake.accept(batch, items, end, estimated)
            self.accepted_any, self._end = True, end
            if self.backlog is not None and end is not None:
                self.changefeed.observer.backlog(self.backlog(end))
            self.changefeed.intake.await_wake(batch, started)
        except Exception as exc:
            if not self.changefeed.life.stopping:
                self._error = cause_of(exc)

    def _job(self) -> IngestJob:
        feed = self.changefeed
        size = feed.spool.max_bytes
        allowance = max(_LEAST_ALLOWANCE, size // 5, 2 * read_limit_bytes(size))
        return feed.intake.ingest_job(self.shards, allowance)

    def _end_offset(self, batch: int) -> str | None:
        """The batch's end offset as Spark wrote it before the batch ran: the last line, for one source."""
        lines = (self.changefeed.spool.query / "offsets" / str(batch)).read_text().splitlines()
        return lines[-1] if lines and lines[-1] != "-" else None
