"""Settings become the values that a changefeed's parts are told. The only place that knows both."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tidegate.config.cron import next_after
from tidegate.config.settings import Settings, shape
from tidegate.control.limits import Limits
from tidegate.driver.options import Options, SpoolOptions
from tidegate.driver.retention import Expiry
from tidegate.driver.startup import Sink
from tidegate.executor.chunks import chunk_bytes
from tidegate.executor.crew import one_put_bytes
from tidegate.executor.jobs import IngestOptions, LandOptions
from tidegate.storage.store import StoreOpener


def changefeed_options(settings: Settings, open_store: StoreOpener) -> Options:
    s = settings
    land = LandOptions(
        paths=s.paths,
        encoding=s.encoding,
        sink_uri=s.sink_uri,
        access=replace(s.access, one_put_bytes=one_put_bytes(s.file_size_bytes)),
        open_store=open_store,
        worker_count=s.worker_count,
        output_column_id=s.output_column_id,
    )
    return Options(
        changefeed_id=s.changefeed_id,
        sink=Sink(s.sink_uri, s.paths, shape(s), s.spans),
        spool=spool_options(s),
        limits=Limits(
            file_size_bytes=s.file_size_bytes,
            flush_interval_s=s.flush_interval_s,
            max_flush_delay_s=s.max_flush_delay_s,
            spool_max_bytes=s.spool_max_bytes,
            dispatcher_share=s.dispatcher_share,
            put_budget=s.put_budget,
            state_ttl_s=s.state_ttl_s,
        ),
        ingest=IngestOptions(
            encoding=s.encoding,
            chunk_bytes=chunk_bytes(s.file_size_bytes),
            file_size_bytes=s.file_size_bytes,
            ordering=s.ordering,
            rules=s.rules,
            split_updates=not s.output_raw_change_event or s.across_nodes,
            aside=land if s.on_bad_row == "set-aside" else None,
        ),
        land=land,
        rules=s.rules,
        expiry=expiry(s),
        wakes_when_durable=s.wake_mode == "flush",
        splittable_check=s.splittable_check,
    )


def spool_options(settings: Settings) -> SpoolOptions:
    return SpoolOptions(settings.spool_dir, settings.changefeed_id, settings.spool_type, settings.spool_max_bytes)


def expiry(settings: Settings) -> Expiry:
    """Files expire only where their dates are days."""
    return Expiry(
        days=settings.file_expiration_days if settings.date_separator == "day" else 0,
        next_cleaning=partial(next_after, settings.file_cleanup_cron),
        table_depth=1 if settings.table_id_as_path else 2,
    )
