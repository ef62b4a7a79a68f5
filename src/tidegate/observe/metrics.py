"""Every metric once, in one table, over an own Prometheus registry per changefeed.

A metric has TiCDC's name where the meaning is the same. All names begin with `ticdc_sink_cloud_storage_`. Every series
carries `namespace` and `changefeed`. Further labels are few and have few values (`LABELS`). No label names a table or a
dispatcher, because a million tables would then make a million series.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from urllib.parse import parse_qsl
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import numpy as np
import numpy.typing as npt
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from tidegate.errors import BadSetting, BrokenInvariant, StillStarting, TidegateError

Asked = Callable[[str, Mapping[str, str]], Any]

PREFIX = "ticdc_sink_cloud_storage_"
ALWAYS = ("namespace", "changefeed")
LABELS = ("reason", "executor", "op", "outcome")
COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"

_SECONDS = tuple(0.001 * 2**n for n in range(18))  # 1 ms .. 131 s
_BYTES = tuple(float(1024 << n) for n in range(20))  # 1 KiB .. 512 MiB, the limits of file-size
_ROWS = tuple(float(4**n) for n in range(13))  # 1 .. 16.8 million


@dataclass(frozen=True)
class Metric:
    """One line of the table; `name` is without the prefix, labels are those beyond `ALWAYS`."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


# By what they are about; docs/metrics.md has a section for each (`make docs` writes it).
GROUPS: dict[str, tuple[Metric, ...]] = {
    "Spool and wake": (
        Metric("spool_memory_bytes", GAUGE, "Bytes that the spool occupies in its memory tier"),
        Metric("spool_disk_bytes", GAUGE, "Bytes that the spool occupies in its disk tier"),
        Metric("spool_segment_count", GAUGE, "Spool segments that exist"),
        Metric(
            "spool_moved_bytes_total", COUNTER, "Bytes copied together so that segments they pinned could be deleted"
        ),
        Metric("spool_items", GAUGE, "Items that the spool holds"),
        Metric("rotate_total", COUNTER, "Spool segments closed because they were full"),
        Metric("wake_calls_total", COUNTER, "Wakes given: micro-batches that returned to the upstream"),
        Metric("wake_suppressed_total", COUNTER, "Wakes held back because the spool was above its high mark"),
        Metric("pending_post_enqueue", GAUGE, "Wakes held back now"),
        Metric(
            "wake_wait_duration_seconds",
            HISTOGRAM,
            "From a micro-batch being accepted to its wake: waiting for room in the spool",
            buckets=_SECONDS,
        ),
    ),
    "Flush and landing": (
        Metric("flush_total", COUNTER, "Files landed, by reason", ("reason",)),
        Metric(
            "flush_duration_seconds",
            HISTOGRAM,
            "A file's requests: its schema file, data and index. Not from its plan, and not from its changes on",
            ("reason",),
            _SECONDS,
        ),
        Metric(
            "round_duration_seconds",
            HISTOGRAM,
            "From a round's plan to its receipts: the journal, the job, and all of its files",
            buckets=_SECONDS,
        ),
        Metric(
            "journal_wait_duration_seconds",
            HISTOGRAM,
            "Of a round: from its plan until the journal has it",
            buckets=_SECONDS,
        ),
        Metric("flush_bytes", HISTOGRAM, "Size of landed files", ("reason",), _BYTES),
        Metric("active_tables", GAUGE, "Dispatchers with anything accepted and not yet durable"),
        Metric("writer_input_len", GAUGE, "Items accepted and not yet planned"),
        Metric(
            "to_be_flushed_len",
            GAUGE,
            "Items planned that no land job works on: the journal does not have them yet, or they wait for a retry",
        ),
        Metric("in_flight_len", GAUGE, "Items that land jobs are working on"),
        Metric(
            "land_tasks_running",
            GAUGE,
            "Land jobs that run, each with one task",
            ("executor",),
        ),
        Metric("data_write_duration_seconds", HISTOGRAM, "Putting one data file", buckets=_SECONDS),
        Metric("index_write_duration_seconds", HISTOGRAM, "Putting one index file", buckets=_SECONDS),
        Metric("schema_check_duration_seconds", HISTOGRAM, "Looking for one schema file", buckets=_SECONDS),
        Metric("schema_write_duration_seconds", HISTOGRAM, "Putting one schema file", buckets=_SECONDS),
        Metric("store_requests_total", COUNTER, "Requests to the store, by operation", ("op",)),
        Metric("expired_files_total", COUNTER, "Files deleted because they had expired"),
        Metric("store_retries_total", COUNTER, "Landings and requests retried"),
    ),
    "Progress": (
        Metric(
            "accepted_to_durable_seconds", HISTOGRAM, "From a file's oldest accepted item to durable", buckets=_SECONDS
        ),
        Metric("checkpoint_ts", GAUGE, "The checkpoint, its physical part in milliseconds"),
        Metric("checkpoint_lag_seconds", GAUGE, "Wall clock less the checkpoint"),
        Metric("resolved_ts", GAUGE, "The resolved mark, its physical part in milliseconds"),
        Metric("resolved_lag_seconds", GAUGE, "Wall clock less the resolved mark"),
        Metric("source_lag_seconds", GAUGE, "How far reading is behind the database that is followed"),
        Metric("source_lag_bytes", GAUGE, "Bytes of the database's log that are not read yet"),
        Metric("source_snapshot_tables", GAUGE, "Tables of the database whose snapshot is not complete"),
        Metric("source_snapshot_share", GAUGE, "How much of the snapshot is emitted, from 0 to 1, about"),
    ),
    "DDL": (
        Metric("ddl_drain_duration_seconds", HISTOGRAM, "From a DDL to all before it being durable", buckets=_SECONDS),
        Metric(
            "ddl_drain_wait_encode_seconds",
            HISTOGRAM,
            "Of the drain: until all before the DDL was accepted",
            buckets=_SECONDS,
        ),
        Metric(
            "ddl_drain_wait_remote_seconds", HISTOGRAM, "Of the drain: from then until it was durable", buckets=_SECONDS
        ),
        Metric("ddl_duration_seconds", HISTOGRAM, "From a DDL's arrival to its end", buckets=_SECONDS),
        Metric("ddl_affected_dispatchers", HISTOGRAM, "Dispatchers that a DDL drained", buckets=_ROWS),
        Metric("ddl_total", COUNTER, "DDLs, by what became of them: written, passed, filtered, skipped", ("outcome",)),
        Metric("ddl_unfinished", GAUGE, "DDLs that are not over"),
    ),
    "Source and micro-batches": (
        Metric(
            "source_backlog_bytes",
            GAUGE,
            "Encoded bytes that the source has and has not handed out, estimated; NaN if it does not end",
        ),
        Metric("read_duration_seconds", HISTOGRAM, "Of an ingest task: waiting for what it reads", buckets=_SECONDS),
        Metric(
            "encode_duration_seconds",
            HISTOGRAM,
            "Of an ingest task: filtering, splitting, sorting and encoding",
            buckets=_SECONDS,
        ),
        Metric("spool_write_duration_seconds", HISTOGRAM, "Of an ingest task: writing to the spool", buckets=_SECONDS),
        Metric("batch_rows", HISTOGRAM, "Rows of a micro-batch", buckets=_ROWS),
        Metric("batch_bytes", HISTOGRAM, "Encoded bytes of a micro-batch", buckets=_BYTES),
        Metric("batch_duration_seconds", HISTOGRAM, "From a micro-batch's start to its wake", buckets=_SECONDS),
        Metric("filtered_rows_total", COUNTER, "Rows that the filter left out"),
        Metric("set_aside_rows_total", COUNTER, "Rows set aside because they cannot be written"),
        Metric("duplicates_dropped_total", COUNTER, "Rows dropped because they were accepted or durable before"),
    ),
}
METRICS = tuple(metric for group in GROUPS.values() for metric in group)


class BulkHistogram(Histogram):
    """A histogram that also takes a whole array; the library keeps each bucket's own count and adds up when asked."""

    def observe_many(self, values: npt.NDArray[np.number]) -> None:
        """The same as `observe` for each value, at the cost of one call per bucket."""
        bounds = np.asarray(self._upper_bounds)
        # The first bound that is not below the value, as `observe` has it; past the last (infinity) is only NaN.
        counts = np.bincount(np.searchsorted(bounds, values, side="left"), minlength=len(bounds))[: len(bounds)]
        for bucket in np.flatnonzero(counts):
            self._buckets[bucket].inc(int(counts[bucket]))
        self._sum.inc(float(np.sum(values, dtype=np.float64)))


class Metrics:
    """The metrics of one changefeed: `metrics.inc("flush_total", reason="size")`. Safe from any thread."""

    def __init__(self, changefeed: str, namespace: str = "default") -> None:
        self.registry = CollectorRegistry()
        self._always = (namespace, changefeed)
        self._table = {metric.name: metric for metric in METRICS}
        self._families = {metric.name: _family(metric, self.registry) for metric in METRICS}
        for metric in METRICS:
            if not metric.labels:
                self._child(metric.name, metric.kind, {})  # so that 0 can be told from a series that does not exist

    def inc(self, name: str, value: float = 1, **labels: str) -> None:
        self._child(name, COUNTER, labels).inc(value)

    def set(self, name: str, value: float, **labels: str) -> None:
        self._child(name, GAUGE, labels).set(value)

    def observe(self, name: str, value: float, **labels: str) -> None:
        self._child(name, HISTOGRAM, labels).observe(value)

    def observe_many(self, name: str, values: npt.NDArray[np.number], **labels: str) -> None:
        """All values of an array at once, without a Python call per value."""
        self._child(name, HISTOGRAM, labels).observe_many(values)

    def value(self, name: str, **labels: str) -> float:
        """What a counter or gauge says now, or how many values a histogram has seen; 0 before the first."""
        metric = self._metric(name)
        sample = PREFIX + name + ("_count" if metric.kind == HISTOGRAM else "")
        found = self.registry.get_sample_value(sample, dict(zip(ALWAYS, self._always, strict=True)) | labels)
        return 0.0 if found is None else found

    def text(self) -> str:
        """All metrics as Prometheus reads them."""
        return generate_latest(self.registry).decode()

    def serve(self, addr: str, asked: Asked | None = None) -> MetricsServer:
        """Answers on `127.0.0.1:9100`, `:9100` or `9100` (all three loopback only); port 0 takes a free one.

        `asked` gets path and query of what is not about metrics, and returns what is sent as JSON, or None. Its errors
        are answers, too.
        """
        host, port = listen_address(addr)
        try:
            server = make_server(host, port, self._app(asked), ThreadingWSGIServer, _Silent)
        except OSError as exc:
            raise BadSetting(f"metrics address {addr!r} cannot be opened ({exc.strerror}): choose another one") from exc
        thread = threading.Thread(target=server.serve_forever, daemon=True, name="metrics")
        thread.start()
        return MetricsServer(server, thread)

    def _app(self, asked: Asked | None) -> Any:
        metrics = make_wsgi_app(self.registry)

        def app(environ: dict[str, Any], start_response: Any) -> Any:
            path, query = environ["PATH_INFO"], dict(parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True))
            if asked is None or path in ("", "/", "/metrics"):
                return metrics(environ, start_response)
            code, found = _answer(asked, path, query)
            start_response(code, [("Content-Type", "application/json")])
            return [json.dumps(found, indent=2).encode() + b"\n"]

        return app

    def _child(self, name: str, kind: str, labels: Mapping[str, str]) -> Any:
        metric = self._metric(name)
        if metric.kind != kind or set(labels) != set(metric.labels):
            raise BrokenInvariant(
                f"metric {name!r} is a {metric.kind} with labels {metric.labels}, not a {kind} with {labels}"
            )
        return self._families[name].labels(*self._always, *(labels[label] for label in metric.labels))

    def _metric(self, name: str) -> Metric:
        if name not in self._table:
            raise BrokenInvariant(f"metric {name!r} is not in the table of metrics.py")
        return self._table[name]


def _answer(asked: Asked, path: str, query: Mapping[str, str]) -> tuple[str, Any]:
    """The HTTP status and what is sent as JSON: an error is its sentence."""
    try:
        found = asked(path, query)
    except StillStarting as exc:
        return "503 Service Unavailable", {"error": str(exc)}
    except TidegateError as exc:
        return "400 Bad Request", {"error": str(exc)}
    if found is None:
        return "404 Not Found", {"error": f"there is no {path}; ask for /metrics, /status or /tables"}
    return "200 OK", found


class _Silent(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """One line for each scrape would be too many."""


def _family(metric: Metric, registry: CollectorRegistry) -> Counter | Gauge | BulkHistogram:
    name, labels = PREFIX + metric.name, (*ALWAYS, *metric.labels)
    if metric.kind == HISTOGRAM:
        return BulkHistogram(name, metric.help, labels, buckets=metric.buckets, registry=registry)
    return (Counter if metric.kind == COUNTER else Gauge)(name, metric.help, labels, registry=registry)


@dataclass(frozen=True)
class MetricsServer:
    """The endpoint while it is open; also a context manager that closes it."""

    server: WSGIServer
    thread: threading.Thread

    @property
    def port(self) -> int:
        return self.server.server_port

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def __enter__(self) -> MetricsServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def listen_address(addr: str) -> tuple[str, int]:
    """`listen_address(":9100")` is ("127.0.0.1", 9100): open to other machines only if an address says so."""
    host, _, port = str(addr).rpartition(":")
    if not isinstance(addr, str) or not (port.isascii() and port.isdigit() and int(port) <= 65535):
        raise BadSetting(f"metrics address {addr!r} must be HOST:PORT, such as 127.0.0.1:9100")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)
