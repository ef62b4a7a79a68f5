"""Every key that a TiCDC user may write, once: what it means here, or that it means nothing, or why it is refused.

OPTIONS      keys that fill a field of Settings, TiCDC's and our own
SWITCHES     TiCDC's keys that must stay off, with the reason, or that change nothing when on
IDLE         TiCDC's keys that do not concern a storage sink; sections of other sinks end with a dot
IDLE_IN_URI  the same in the sink URI
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidegate.config.cron import six_fields
from tidegate.config.text import (
    Adjusted,
    Entries,
    Reader,
    absolute_dir,
    any_case,
    at_least,
    boolean,
    clamped,
    duration_s,
    numbers,
    one_of,
    or_word,
    positive,
    show_bool,
    show_duration,
    show_list,
    show_size,
    show_text,
    size_bytes,
    text,
    texts,
    whole,
    within,
)
from tidegate.errors import BadSetting
from tidegate.format.rules.rules import ColumnSelector, EventFilter, Route, TableFilter

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Option:
    """One key: its place in the config file, the field it fills, how it is read and shown.

    `yields` are texts that do not replace a value of the config file when they come from the sink URI (TiCDC's merge
    rule). `loud` adds a note when the sink URI wins over the config file. `only` is the one protocol that uses it.
    """

    place: str
    field: str
    read: Reader
    show: Callable[[Any], str] = str
    yields: tuple[str, ...] = ()
    alias: bool = False
    loud: bool = False
    only: str = ""


@dataclass(frozen=True)
class Switch:
    """A key that is true or false and fills no field: true is refused with a reason, or noted."""

    place: str
    refused: str = ""
    noted: str = ""


def _date_separator(value: object) -> Any:
    words = ("none", "year", "month", "day")
    if value == "":
        return Adjusted("none", "is empty, which TiCDC treats as none")
    if isinstance(value, str) and value not in words and value.lower() in words:
        return Adjusted("none", "is not in lower case, which TiCDC treats as none")
    return one_of(*words)(value)


def _changefeed_id(value: object) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", text(value)):
        raise BadSetting(
            f"must be 1 to 128 letters, digits, '.', '_' or '-', the first a letter or digit, not {value!r}"
        )
    return text(value)


def _expiration_days(value: object) -> Any:
    found = whole(value)
    return found if found >= 0 else Adjusted(0, "is negative and keeps files forever, as 0 does")


def _cron(value: object) -> str:
    return six_fields(text(value))


def _spans(value: object) -> int:
    found = whole(value)
    if not 1 <= found <= 1024:
        raise BadSetting(f"must be from 1 to 1024, not {value!r}")
    return found


def _filter_rules(value: object) -> tuple[str, ...]:
    return TableFilter(texts(value)).rules


def _atomicity(value: object) -> str:
    return "none" if value == "" else str(one_of("none", "table")(value))


_NO_ENCODER = "only csv and canal-json have a storage encoder"
_PROTOCOLS = ("default", "canal", "avro", "flat-avro", "maxwell", "craft", "open-protocol", "debezium", "debezium-avro")
_protocol = one_of("csv", "canal-json", refused=dict.fromkeys((*_PROTOCOLS, "simple", "outbox-json"), _NO_ENCODER))
# Which encoder gets a row. Both keep the order of each table; files of different tables have no common order.
_ordering = one_of("per-table", "global", refused={"legacy": "there is no reorder buffer"})
_no_evaluator = "it needs TiDB's SQL evaluator; filter by event kind or by table instead"
_EXPRESSIONS = ("insert-value", "update-new-value", "update-old-value", "delete-value")
_event_filters = Entries(
    EventFilter,
    refused=dict.fromkeys((f"ignore-{key}-expr" for key in _EXPRESSIONS), _no_evaluator)
    | {"ignore-update-only-columns": "it needs values compared as TiDB compares them; it is not in this version"},
)
_routes = Entries(Route, idle=("dispatcher", "partition", "index", "columns", "topic"))
_false = ("false", "0")
_STORAGE = "sink.cloud-storage-config."
_CODEC = "sink.kafka-config.codec-config."  # TiCDC also reads the switches of its storage encoders from here


def _storage(key: str, *rest: Any, **more: Any) -> Option:
    return Option(_STORAGE + key, *rest, **more)


def _csv(key: str, field: str, read: Reader, show: Callable[[Any], str] = str) -> Option:
    return Option("sink.csv." + key, "csv." + field, read, show, only="csv")


def _canal(place: str, field: str, yields: tuple[str, ...] = ()) -> Option:
    return Option(place, "canal." + field, boolean, show_bool, yields, only="canal-json")


OPTIONS: dict[str, Option] = {
    "changefeed-id": Option("changefeed-id", "changefeed_id", _changefeed_id),
    "protocol": Option("sink.protocol", "protocol", any_case(_protocol), yields=("",), loud=True),
    "file-size": _storage(
        "file-size", "file_size_bytes", clamped(size_bytes, KIB, 512 * MIB, show_size), show_size, ("0",)
    ),
    "flush-interval": _storage(
        "flush-interval", "flush_interval_s", clamped(duration_s, 0.1, 600.0, show_duration), show_duration, ("",)
    ),
    "max-flush-delay": Option(
        "max-flush-delay",
        "max_flush_delay_s",
        or_word("off", at_least(0.001, duration_s, "at least 1ms, or off")),
        show_duration,
    ),
    "put-budget": Option(
        "put-budget", "put_budget", or_word("off", positive(whole)), lambda n: "off" if n is None else f"{n}/s"
    ),
    "state-ttl": Option("state-ttl", "state_ttl_s", at_least(1.0, duration_s, "at least 1s"), show_duration),
    "worker-count": _storage("worker-count", "worker_count", clamped(positive(whole), 1, 512, str), yields=("0",)),
    "flush-concurrency": _storage("flush-concurrency", "flush_concurrency", within(1, 512, otherwise=1)),
    "encoder-shards": Option(
        "encoder-shards",
        "encoder_shards",
        or_word("auto", positive(whole)),
        lambda shards: "auto" if shards is None else str(shards),
    ),
    "date-separator": Option("sink.date-separator", "date_separator", _date_separator),
    "file-index-digit": Option("sink.file-index-digit", "index_digits", within(6, 20, otherwise=20)),
    "enable-partition-separator": Option("sink.enable-partition-separator", "partition_separator", boolean, show_bool),
    "use-table-id-as-path": _storage("use-table-id-as-path", "table_id_as_path", boolean, show_bool, _false, loud=True),
    "enable-table-across-nodes": Option("scheduler.enable-table-across-nodes", "across_nodes", boolean, show_bool),
    "split-spans": Option("split-spans", "split_spans", _spans),
    "enable-splittable-check": Option("scheduler.enable-splittable-check", "splittable_check", boolean, show_bool),
    "output-column-id": _storage("output-column-id", "output_column_id", boolean, show_bool),
    "output-raw-change-event": _storage("output-raw-change-event", "output_raw_change_event", boolean, show_bool),
    "transaction-atomicity": Option(
        "sink.transaction-atomicity", "transaction_atomicity", _atomicity, yields=("",), loud=True
    ),
    "file-expiration-days": _storage("file-expiration-days", "file_expiration_days", _expiration_days),
    "file-cleanup-cron-spec": _storage("file-cleanup-cron-spec", "file_cleanup_cron", _cron, show_text),
    "terminator": Option("sink.terminator", "terminator", text, show_text),
    "csv.delimiter": _csv("delimiter", "delimiter", text, show_text),
    "csv.quote": _csv("quote", "quote", text, show_text),
    "csv.null": _csv("null", "null", text, show_text),
    "csv.include-commit-ts": _csv("include-commit-ts", "include_commit_ts", boolean, show_bool),
    "csv.binary-encoding-method": _csv("binary-encoding-method", "binary_encoding", one_of("hex", "base64")),
    "csv.output-old-value": _csv("output-old-value", "output_old_value", boolean, show_bool),
    "csv.output-field-header": _csv("output-field-header", "output_field_header", boolean, show_bool),
    "enable-tidb-extension": _canal(_CODEC + "enable-tidb-extension", "tidb_extension", yields=_false),
    "only-output-updated-columns": _canal("sink.only-output-updated-columns", "only_updated_columns", yields=_false),
    "content-compatible": _canal("sink.content-compatible", "content_compatible", yields=_false),
    "delete-only-output-handle-key-columns": _canal(
        "sink.delete-only-output-handle-key-columns", "delete_only_handle_key"
    ),
    "case-sensitive": Option("case-sensitive", "case_sensitive", boolean, show_bool),
    "force-replicate": Option("force-replicate", "force_replicate", boolean, show_bool),
    "filter.rules": Option("filter.rules", "rules.filter", _filter_rules, show_list),
    "filter.ignore-txn-start-ts": Option("filter.ignore-txn-start-ts", "rules.ignored_start_ts", numbers, show_list),
    "filter.event-filters": Option("filter.event-filters", "rules.event_filters", _event_filters, show_list),
    "column-selectors": Option("sink.column-selectors", "rules.selectors", Entries(ColumnSelector), show_list),
    "dispatchers": Option("sink.dispatchers", "rules.routes", _routes, show_list),
    "spool.type": Option("spool.type", "spool_type", one_of("disk", "memory")),
    "spool.max-bytes": Option("spool.max-bytes", "spool_max_bytes", positive(size_bytes), show_size),
    "spool-disk-quota": _storage(
        "spool-disk-quota", "spool_max_bytes", positive(size_bytes), yields=("0",), alias=True
    ),
    "spool.dir": Option("spool.dir", "spool_dir", absolute_dir),
    "spool-base-dir": _storage("spool-base-dir", "spool_dir", absolute_dir, yields=("",), alias=True),
    "dml-wake-mode": Option("dml-wake-mode", "wake_mode", one_of("enqueue", "flush")),
    "on-bad-row": Option("on-bad-row", "on_bad_row", one_of("stop", "set-aside")),
    "encoder-ordering": Option("encoder-ordering", "encoder_ordering", _ordering),
}

_NO_ROW_KEY = "change events carry no TiDB row key"
SWITCHES: dict[str, Switch] = {
    "enable-sync-point": Switch("enable-sync-point", refused="sync points need a TiDB or MySQL downstream"),
    "bdr-mode": Switch("bdr-mode", refused="change events do not say which cluster wrote them first"),
    "enable-active-active": Switch(
        "enable-active-active", refused="TiDB's soft-delete columns are not understood here"
    ),
    "output-row-key": Switch(_CODEC + "output-row-key", refused=_NO_ROW_KEY),
    "csv.output-handle-key": Switch("sink.csv.output-handle-key", noted="has no effect, as in TiCDC"),
}

_TOP = """memory-quota check-gc-safe-point ignore-ineligible-table sync-point-interval sync-point-retention sql-mode
    changefeed-error-stuck-duration performance-mode enable-table-monitor enable-old-value allow-same-cluster
    active-active-progress-interval active-active-sync-stats-interval
    event-collector-batch-count event-collector-batch-bytes
    mounter. consistent. synced-status. integrity.integrity-check-level integrity.corruption-handle-level"""
_SINK = """schema-registry encoder-concurrency enable-kafka-sink-v2 safe-mode advance-timeout-in-sec
    send-bootstrap-interval-in-sec send-bootstrap-in-msg-count send-bootstrap-to-all-partition
    send-all-bootstrap-at-start debezium-disable-schema case-sensitive force-replicate integrity.
    kafka-config. pulsar-config. mysql-config. iceberg-config. open. debezium. outbox."""
_SCHEDULER = """region-threshold region-per-span region-count-per-span region-count-refresh-interval write-key-threshold
    scheduling-task-count-per-node force-split balance-score-threshold
    min-traffic-percentage max-traffic-percentage"""
IDLE = (
    *_TOP.split(),
    *(f"sink.{key}" for key in _SINK.split()),
    *(f"scheduler.{key}" for key in _SCHEDULER.split()),
)
IDLE_IN_URI = (
    *("max-message-bytes", "max-batch-size", "schema-registry", "encoding-format", "debezium-disable-schema"),
    *("avro-decimal-handling-mode", "avro-bigint-unsigned-handling-mode", "avro-enable-watermark"),
)


def idle_name(place: str) -> str | None:
    """How a note names a key that does not apply: `[sink.kafka-config]`, `memory-quota`; None for other keys."""
    if place in IDLE:
        return place
    section = next((key for key in IDLE if key.endswith(".") and place.startswith(key)), None)
    return f"[{section[:-1]}]" if section else None
