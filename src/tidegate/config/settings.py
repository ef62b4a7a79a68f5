"""Sink URI and TOML become frozen Settings. Option text is read here once and nowhere else.

Later places win: defaults < config file < sink URI < options (command line, Python). Every text of every place is
read, even if a later place wins. A key or value that is unknown or out of range is refused; the sentence names the
key, where it came from and what is allowed. Only TiCDC's own keys follow TiCDC's rules: some values are clamped, and
`Settings.notes` says so. Keys of TiCDC that do not apply to a storage sink are listed in one note.

An option has one key. The sink URI and the options use the key (`file-size`, `spool.type`; Python also `file_size`,
`spool_type`). The config file uses its place (`[sink.cloud-storage-config] file-size`, `[spool] type`).
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from tidegate.config.layers import config_layer, merged, override_layer, uri_layer
from tidegate.config.options import OPTIONS
from tidegate.config.sink_uri import SCHEMES, changefeed_id, split_sink_uri
from tidegate.config.store_keys import STORE_KEYS, read_access, shown_access
from tidegate.config.text import duration_s, show_duration, show_size, size_bytes
from tidegate.errors import BadSetting
from tidegate.format.encode.canal_json import CanalOptions
from tidegate.format.encode.csv import CsvOptions
from tidegate.format.encode.protocol import EXTENSIONS
from tidegate.format.layout import PathOptions
from tidegate.format.rules.rules import ColumnSelectors, EventFilters, Routes, Rules, TableFilter
from tidegate.storage.access import NO_ACCESS, Access
from tidegate.wording import redacted

__all__ = [
    "OPTIONS",
    "SCHEMES",
    "Settings",
    "changefeed_id",
    "duration_s",
    "effective",
    "load_settings",
    "read_config",
    "shape",
    "show_duration",
    "show_size",
    "size_bytes",
    "split_sink_uri",
]

MIB, GIB = 1 << 20, 1 << 30


@dataclass(frozen=True)
class Settings:
    """Everything a user can choose for one changefeed; `sink_uri` has no options left, as in `file:///data/out`."""

    sink_uri: str
    scheme: str
    changefeed_id: str
    spool_dir: str
    protocol: str = "csv"
    file_size_bytes: int = 64 * MIB
    flush_interval_s: float = 5.0
    max_flush_delay_s: float | None = None
    put_budget: int | None = None  # requests per second over all tables
    state_ttl_s: float = 3600.0
    worker_count: int = 16  # concurrent puts
    flush_concurrency: int = 1  # parts of one file
    encoder_shards: int | None = None  # ingest partitions; None is one for every task slot
    date_separator: str = "day"
    index_digits: int = 20
    partition_separator: bool = True
    table_id_as_path: bool = False
    across_nodes: bool = False  # split tables: file names carry the dispatcher
    split_spans: int = 4  # dispatchers of a split table
    splittable_check: bool = False
    output_column_id: bool = False
    output_raw_change_event: bool = False
    transaction_atomicity: str = "none"
    file_expiration_days: int = 0
    file_cleanup_cron: str = "0 0 2 * * *"
    terminator: str = "\r\n"
    csv: CsvOptions = field(default_factory=CsvOptions)
    canal: CanalOptions = field(default_factory=CanalOptions)
    case_sensitive: bool = False
    force_replicate: bool = False
    rules: Rules = field(default_factory=Rules)
    spool_type: str = "disk"
    spool_max_bytes: int = 10 * GIB
    wake_mode: str = "enqueue"
    encoder_ordering: str = "per-table"
    on_bad_row: str = "stop"  # what happens to a row that cannot be written
    dispatcher_share: float = 1 / 8
    access: Access = NO_ACCESS
    notes: tuple[str, ...] = ()

    @property
    def encoding(self) -> CsvOptions | CanalOptions:
        """How rows are written, for `format.encode.protocol`."""
        return self.csv if self.protocol == "csv" else self.canal

    @property
    def ordering(self) -> str:
        """Split tables always use `global` ordering, so that one of them is encoded on all cores."""
        return "global" if self.across_nodes else self.encoder_ordering

    @property
    def spans(self) -> int:
        """The number of dispatchers of a table that can be split."""
        return self.split_spans if self.across_nodes else 1

    @property
    def paths(self) -> PathOptions:
        """How paths are built and parsed."""
        return PathOptions(
            date_separator=self.date_separator,
            index_digits=self.index_digits,
            extension=EXTENSIONS[self.protocol],
            partition_separator=self.partition_separator,
            table_id_as_path=self.table_id_as_path,
            across_nodes=self.across_nodes,
        )


def read_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The TOML file as nested dicts, for `load_settings`."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))  # some editors begin with a byte-order mark
    except OSError as exc:
        raise BadSetting(f"config file {os.fspath(path)!r} cannot be read: {exc.strerror or exc}") from exc
    except UnicodeDecodeError as exc:
        raise BadSetting(f"config file {os.fspath(path)!r} is not UTF-8 text: {exc.reason}") from exc
    except tomllib.TOMLDecodeError as exc:
        raise BadSetting(f"config file {os.fspath(path)!r} is not valid TOML: {exc}") from exc
    except RecursionError:
        raise BadSetting(f"config file {os.fspath(path)!r} is nested too deeply: no option is") from None


_NOTHING: Mapping[str, Any] = {}


def load_settings(
    sink_uri: str, config: Mapping[str, Any] | None = None, overrides: Mapping[str, Any] = _NOTHING
) -> Settings:
    """Settings of one changefeed; an override that is None counts as not given.

    `load_settings("file:///data/out?file-size=16MiB").file_size_bytes` is 16777216.
    """
    scheme, plain_uri, query = split_sink_uri(sink_uri)
    access, query, access_notes = read_access(scheme, query)
    layers = (config_layer(config or {}), uri_layer(query, STORE_KEYS.get(scheme, ())), override_layer(overrides))
    chosen, notes = merged(layers)
    own_id = changefeed_id(plain_uri, access)
    base = Settings(plain_uri, scheme, own_id, default_spool_dir())
    settings = replace(base, **{name: value for name, value in chosen.items() if "." not in name})
    settings = replace(
        settings,
        csv=CsvOptions(**_part(chosen, "csv."), terminator=settings.terminator),
        canal=CanalOptions(**_part(chosen, "canal."), terminator=settings.terminator),
        rules=_rules(_part(chosen, "rules."), settings.case_sensitive),
        access=replace(access, parts_at_once=settings.flush_concurrency),
    )
    _check(settings)
    idle = list(dict.fromkeys(name for layer in layers for name in layer.idle))
    unused = [f"these do not apply to a storage sink and change nothing: {', '.join(idle)}"] if idle else []
    return replace(settings, notes=(*unused, *access_notes, *notes, *_remarks(settings)))


def default_spool_dir() -> str:
    """`~/.local/state/tidegate/spool`, or below `$XDG_STATE_HOME`: a data directory of the user.

    Not the system's temporary directory: that is often RAM, or small, and others clean it up.
    """
    state = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):  # the specification of that variable says so
        state = os.path.expanduser("~/.local/state")
    return os.path.join(state if os.path.isabs(state) else "/var/lib", "tidegate", "spool")


def _part(chosen: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in chosen.items() if name.startswith(prefix)}


def _rules(chosen: Mapping[str, Any], case_sensitive: bool) -> Rules:
    routes = tuple(route for route in chosen.get("routes", ()) if route.target_schema or route.target_table)
    return Rules(
        TableFilter(chosen.get("filter", ()) or ("*.*",), case_sensitive),
        EventFilters(chosen.get("event_filters", ()), case_sensitive),
        frozenset(chosen.get("ignored_start_ts", ())),
        ColumnSelectors(chosen.get("selectors", ()), case_sensitive),
        Routes(routes, case_sensitive),
    )


# Rules between options. `CsvOptions` checks those of CSV itself, for every protocol, as TiCDC does.


def _check(settings: Settings) -> None:
    delay_s = settings.max_flush_delay_s
    if delay_s is not None and delay_s > settings.flush_interval_s:
        raise BadSetting(
            f"max-flush-delay {show_duration(delay_s)} is longer than flush-interval "
            f"{show_duration(settings.flush_interval_s)} and would never act: make it shorter, or off"
        )
    has_ts = settings.csv.include_commit_ts if settings.protocol == "csv" else settings.canal.tidb_extension
    if settings.across_nodes and not has_ts:
        key = "csv.include-commit-ts" if settings.protocol == "csv" else "enable-tidb-extension"
        raise BadSetting(
            f"enable-table-across-nodes needs {key} = true: without the commit-ts in its rows no reader could bring "
            "the files of a table's dispatchers into order"
        )
    if settings.canal.delete_only_handle_key:
        if settings.protocol == "csv":
            raise BadSetting(
                "delete-only-output-handle-key-columns does not go with csv, where a delete has all columns"
            )
        if settings.force_replicate:
            raise BadSetting(
                "delete-only-output-handle-key-columns does not go with force-replicate: a table may have no key"
            )


def _remarks(settings: Settings) -> Iterator[str]:
    """Notes about values and combinations that are allowed and may surprise."""
    if not settings.terminator:
        yield "terminator is empty: nothing divides the rows of a file, so no reader can tell them apart"
    if re.search(r"\\[nrt0]", settings.terminator):
        yield (
            f"terminator is {len(settings.terminator)} plain characters, {settings.terminator}, and no control "
            'character: write %0D%0A in the sink URI, "\\r\\n" in TOML'
        )
    if settings.rules.filter.takes_nothing:
        yield "filter.rules take no table, because each of them takes out: put one that takes in before them, as *.*"
    if settings.protocol == "csv":
        for key, option in OPTIONS.items():
            if option.only == "canal-json" and getattr(settings.canal, option.field.removeprefix("canal.")):
                yield f"{key} has no effect with protocol csv"
        if settings.output_raw_change_event and not settings.csv.output_old_value:
            yield "output-raw-change-event without csv.output-old-value: an update of a key does not show the old key"
    if settings.file_expiration_days and settings.date_separator != "day":
        yield "file-expiration-days has no effect unless date-separator is day"
    if settings.across_nodes and settings.output_raw_change_event:
        yield "output-raw-change-event: updates of a key are still split, because their rows are in two spans"
    if settings.transaction_atomicity == "table":
        yield "transaction-atomicity table: a transaction larger than file-size may still be split over files"


def effective(settings: Settings) -> list[tuple[str, str]]:
    """Every option in force with its value, in the order of OPTIONS, for the start-up print; secrets are hidden."""
    shown = [
        (key, option.show(_value(settings, option.field)))
        for key, option in OPTIONS.items()
        if not option.alias and option.only in ("", settings.protocol)
    ]
    return [("sink", redacted(settings.sink_uri)), *shown_access(settings.scheme, settings.access), *shown]


_SHAPING = (
    "protocol", "date-separator", "file-index-digit", "enable-partition-separator", "use-table-id-as-path",
    "output-column-id", "terminator",
)  # fmt: skip


def shape(settings: Settings) -> dict[str, str]:
    """The options that shape paths and bytes. They never change within one prefix, because its readers rely on them."""
    return {
        key: value for key, value in effective(settings) if key in _SHAPING or (key in OPTIONS and OPTIONS[key].only)
    }


def _value(settings: Settings, name: str) -> Any:
    group, _, rest = name.rpartition(".")
    if group != "rules":
        return getattr(getattr(settings, group) if group else settings, rest)
    rule = getattr(settings.rules, rest)
    # A rule keeps its texts in its first field; ignored transactions are plain numbers.
    return sorted(rule) if isinstance(rule, frozenset) else getattr(rule, fields(rule)[0].name)
