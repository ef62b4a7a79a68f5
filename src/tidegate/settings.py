"""Sink URI + TOML -> frozen Settings; the only reader of option text.

Defaults < config file < sink URI < options (command line, Python). Every text is read once, here, in every layer, also
where a later layer wins. What is unknown or out of range is refused with a sentence that names the key, where it came
from and what is allowed. TiCDC's own keys alone keep TiCDC's rules: some are clamped, and `Settings.notes` says so.

An option has one key. The sink URI and the options use the key (`file-size`, `spool.type`; Python also `file_size`,
`spool_type`), the config file uses its place (`[sink.cloud-storage-config] file-size`, `[spool] type`).
"""

from __future__ import annotations

import difflib
import hashlib
import os
import posixpath
import re
import tempfile
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote

from tidegate.errors import BadSetting
from tidegate.format.csv import CsvOptions
from tidegate.format.layout import PathOptions

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SCHEMES = ("file", "noop")
_REMOTE_SCHEMES = ("s3", "gs", "gcs", "azblob", "azure")
_CONFIG, _URI, _OPTIONS = "the config file", "the sink URI", "the options"


@dataclass(frozen=True)
class Settings:
    """All that can be chosen for one changefeed; `sink_uri` is without options, as in `file:///data/out`."""

    sink_uri: str
    scheme: str
    changefeed_id: str
    spool_dir: str
    protocol: str = "csv"
    file_size_bytes: int = 64 * MIB
    flush_interval_s: float = 5.0
    max_flush_delay_s: float | None = None
    worker_count: int = 16
    date_separator: str = "day"
    index_digits: int = 20
    partition_separator: bool = True
    table_id_as_path: bool = False
    terminator: str = "\r\n"
    csv: CsvOptions = field(default_factory=CsvOptions)
    spool_type: str = "disk"
    spool_max_bytes: int = 10 * GIB
    wake_mode: str = "enqueue"
    encoder_ordering: str = "per-table"
    dispatcher_share: float = 1 / 8
    notes: tuple[str, ...] = ()

    @property
    def paths(self) -> PathOptions:
        """How paths are built and read back."""
        return PathOptions(
            date_separator=self.date_separator,
            index_digits=self.index_digits,
            partition_separator=self.partition_separator,
            table_id_as_path=self.table_id_as_path,
        )


# Readers: one option's value, as text or as TOML and Python give it, to what Settings hold. A refusal is the rest of a
# sentence that begins with the key: "must be greater than 0, not -1".


@dataclass(frozen=True)
class Adjusted:
    """A value that TiCDC's rules changed, and why: `Adjusted(512, "is clamped to 512")`."""

    value: Any
    why: str


Reader = Callable[[object], Any]

_DURATION_NS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_DURATION_PART = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_DURATION = re.compile(rf"([+-]?)((?:{_DURATION_PART.pattern})+|0)")
_SIZE = re.compile(r"(-?[0-9]+(?:\.[0-9]+)?) ?(B|[KMGT]i?B)?", re.IGNORECASE)
_SIZE_BYTES = {"": 1, "b": 1} | {
    unit + ending: base**power
    for power, unit in enumerate("kmgt", start=1)
    for ending, base in (("ib", 1024), ("b", 1000))
}
_BOOLS = {"true": True, "1": True, "t": True, "false": False, "0": False, "f": False}


def duration_s(value: object) -> float:
    """`duration_s("1m30s")` is 90.0. A number without a unit is refused, but for "0"."""
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise BadSetting(f"must be a duration such as 5s, 200ms or 1m30s, not {value!r}")
    total_ns = sum(Decimal(number) * _DURATION_NS[unit] for number, unit in _DURATION_PART.findall(match[2]))
    return float(total_ns / 10**9) * (-1 if match[1] == "-" else 1)


def size_bytes(value: object) -> int:
    """`size_bytes("64MiB")` is 67108864, `size_bytes("64MB")` is 64000000; whole numbers are bytes."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    total = Decimal(match[1]) * _SIZE_BYTES[(match[2] or "").lower()] if match else Decimal("0.5")
    if total != int(total):
        raise BadSetting(f"must be a size such as 67108864, 64MiB or 64MB, not {value!r}")
    return int(total)


def whole(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]+", value):
        return int(value)
    raise BadSetting(f"must be a whole number, not {value!r}")


def boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _BOOLS:
        return _BOOLS[value.lower()]
    raise BadSetting(f"must be true or false, not {value!r}")


def text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise BadSetting(f"must be text, not {value!r}")


def one_of(*allowed: str, refused: Mapping[str, str] | None = None) -> Reader:
    """Takes one of the words as they are; `refused` gives the reason for words that a user may well expect to work."""

    def read(value: object) -> str:
        if isinstance(value, str) and value in allowed:
            return value
        reason = (refused or {}).get(str(value), "")
        raise BadSetting(f"must be {' or '.join(allowed)}, not {value!r}" + (f": {reason}" if reason else ""))

    return read


def clamped(read: Reader, low: Any, high: Any, show: Callable[[Any], str]) -> Reader:
    def read_clamped(value: object) -> Any:
        found = read(value)
        kept = min(max(found, low), high)
        return found if kept == found else Adjusted(kept, f"is clamped to {show(kept)}")

    return read_clamped


def positive(read: Reader) -> Reader:
    def read_positive(value: object) -> Any:
        found = read(value)
        if found <= 0:
            raise BadSetting(f"must be greater than 0, not {value!r}")
        return found

    return read_positive


def _date_separator(value: object) -> Any:
    words = ("none", "year", "month", "day")
    if isinstance(value, str) and value not in words and value.lower() in words:
        return Adjusted("none", "is not in lower case, which TiCDC treats as none")
    return one_of(*words)(value)


def _index_digits(value: object) -> Any:
    found = whole(value)
    return found if 6 <= found <= 20 else Adjusted(20, "is outside 6..20 and becomes 20")


def _flush_delay_s(value: object) -> float | None:
    if value == "off":
        return None
    found = duration_s(value)
    if found < 0.001:
        raise BadSetting(f"must be at least 1ms, or off, not {value!r}")
    return found


def _absolute_dir(value: object) -> str:
    if not os.path.isabs(text(value)):
        raise BadSetting(f"must be absolute, such as {Path(text(value)).absolute()}, not {value!r}")
    return text(value)


def _changefeed_id(value: object) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", text(value)):
        raise BadSetting(
            f"must be 1 to 128 letters, digits, '.', '_' or '-', the first a letter or digit, not {value!r}"
        )
    return text(value)


# Printers: what the start-up print shows; readers take it back.


def show_size(size: int) -> str:
    """`show_size(67108864)` is "64MiB", `show_size(1485761)` is "1485761B"."""
    power = max(p for p in range(5) if size % 1024**p == 0) if size else 0
    return f"{size // 1024**power}{('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"


def show_duration(seconds: float | None) -> str:
    """`show_duration(62.0)` is "1m2s", `show_duration(0.2)` is "200ms", none at all is "off"."""
    if seconds is None:
        return "off"
    rest, shown = round(seconds * 10**9), ""
    for unit in ("h", "m", "s", "ms", "us", "ns"):
        count, rest = divmod(rest, _DURATION_NS[unit])
        shown += f"{count}{unit}" if count else ""
    return shown or "0s"


def _show_bool(value: bool) -> str:
    return str(value).lower()


def _show_text(value: str) -> str:
    return repr(value)


@dataclass(frozen=True)
class Option:
    """One key: its place in the config file, the field it fills, how it is read and shown."""

    place: str
    field: str
    read: Reader
    show: Callable[[Any], str] = str
    yields: tuple[str, ...] = ()  # TiCDC's merge: these texts in the sink URI leave a config file's value as it is
    alias: bool = False


_STORAGE = "sink.cloud-storage-config."
_size_rule = clamped(size_bytes, KIB, 512 * MIB, show_size)
_interval_rule = clamped(duration_s, 0.1, 600.0, show_duration)
_workers_rule = clamped(positive(whole), 1, 512, str)
_protocol = one_of("csv", refused={"canal-json": "canal-json is not yet in this version"})
_ordering = one_of("per-table", "global", refused={"legacy": "there is no reorder buffer"})

OPTIONS: dict[str, Option] = {
    "changefeed-id": Option("changefeed-id", "changefeed_id", _changefeed_id),
    "protocol": Option("sink.protocol", "protocol", _protocol),
    "file-size": Option(_STORAGE + "file-size", "file_size_bytes", _size_rule, show_size, yields=("0",)),
    "flush-interval": Option(_STORAGE + "flush-interval", "flush_interval_s", _interval_rule, show_duration, ("",)),
    "max-flush-delay": Option("max-flush-delay", "max_flush_delay_s", _flush_delay_s, show_duration),
    "worker-count": Option(_STORAGE + "worker-count", "worker_count", _workers_rule, yields=("0",)),
    "date-separator": Option("sink.date-separator", "date_separator", _date_separator),
    "file-index-digit": Option("sink.file-index-digit", "index_digits", _index_digits),
    "enable-partition-separator": Option("sink.enable-partition-separator", "partition_separator", boolean, _show_bool),
    "use-table-id-as-path": Option(
        _STORAGE + "use-table-id-as-path", "table_id_as_path", boolean, _show_bool, ("false", "0")
    ),
    "terminator": Option("sink.terminator", "terminator", text, _show_text),
    "csv.delimiter": Option("sink.csv.delimiter", "csv.delimiter", text, _show_text),
    "csv.quote": Option("sink.csv.quote", "csv.quote", text, _show_text),
    "csv.null": Option("sink.csv.null", "csv.null", text, _show_text),
    "csv.include-commit-ts": Option("sink.csv.include-commit-ts", "csv.include_commit_ts", boolean, _show_bool),
    "csv.binary-encoding-method": Option(
        "sink.csv.binary-encoding-method", "csv.binary_encoding", one_of("hex", "base64")
    ),
    "csv.output-old-value": Option("sink.csv.output-old-value", "csv.output_old_value", boolean, _show_bool),
    "csv.output-field-header": Option("sink.csv.output-field-header", "csv.output_field_header", boolean, _show_bool),
    "spool.type": Option("spool.type", "spool_type", one_of("disk", "memory")),
    "spool.max-bytes": Option("spool.max-bytes", "spool_max_bytes", positive(size_bytes), show_size),
    "spool-disk-quota": Option(
        _STORAGE + "spool-disk-quota", "spool_max_bytes", positive(size_bytes), yields=("0",), alias=True
    ),
    "spool.dir": Option("spool.dir", "spool_dir", _absolute_dir),
    "spool-base-dir": Option(_STORAGE + "spool-base-dir", "spool_dir", _absolute_dir, yields=("",), alias=True),
    "dml-wake-mode": Option("dml-wake-mode", "wake_mode", one_of("enqueue", "flush")),
    "encoder-ordering": Option("encoder-ordering", "encoder_ordering", _ordering),
}

# TiCDC's keys that Tidegate does not have yet: a user who brings a TiCDC config is told so instead of "unknown".
_LATER = {
    *(_STORAGE + key for key in ("flush-concurrency", "output-column-id", "file-expiration-days")),
    *(_STORAGE + key for key in ("file-cleanup-cron-spec", "output-raw-change-event")),
    *(
        f"sink.{key}"
        for key in ("column-selectors", "dispatchers", "only-output-updated-columns", "content-compatible")
    ),
    *(f"sink.{key}" for key in ("delete-only-output-handle-key-columns", "transaction-atomicity")),
    *("sink.csv.output-handle-key", "enable-tidb-extension", "output-row-key"),
    *("scheduler.enable-table-across-nodes", "scheduler.enable-splittable-check"),
}


def read_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The TOML file as nested dicts, for `load_settings`."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as exc:
        raise BadSetting(f"config file {os.fspath(path)!r} cannot be read: {exc.strerror or exc}") from exc
    except UnicodeDecodeError as exc:
        raise BadSetting(f"config file {os.fspath(path)!r} is not UTF-8 text: {exc.reason}") from exc
    except tomllib.TOMLDecodeError as exc:
        raise BadSetting(f"config file {os.fspath(path)!r} is not valid TOML: {exc}") from exc


_NOTHING: Mapping[str, Any] = {}


def load_settings(
    sink_uri: str, config: Mapping[str, Any] | None = None, overrides: Mapping[str, Any] = _NOTHING
) -> Settings:
    """Settings of one changefeed; an override that is None counts as not given.

    `load_settings("file:///data/out?file-size=16MiB").file_size_bytes` is 16777216.
    """
    scheme, plain_uri, query = split_sink_uri(sink_uri)
    chosen, notes = _merge(_config_layer(config or {}), _named_layer(query, _URI), _override_layer(overrides))
    csv = CsvOptions(**{name[4:]: value for name, value in chosen.items() if name.startswith("csv.")})
    base = Settings(
        plain_uri, scheme, changefeed_id(plain_uri), os.path.join(tempfile.gettempdir(), "tidegate-spool"), notes=notes
    )
    settings = replace(base, **{name: value for name, value in chosen.items() if "." not in name})
    return _checked(replace(settings, csv=replace(csv, terminator=settings.terminator)))


def _checked(settings: Settings) -> Settings:
    """Rules between options; those of CSV are kept by `CsvOptions` itself."""
    delay_s = settings.max_flush_delay_s
    if delay_s is not None and delay_s > settings.flush_interval_s:
        raise BadSetting(
            f"max-flush-delay {show_duration(delay_s)} is longer than flush-interval "
            f"{show_duration(settings.flush_interval_s)} and would never act: make it shorter, or off"
        )
    return settings


# A layer: (key as the user wrote it, key in OPTIONS, value) for everything that one place says.
Layer = list[tuple[str, str, object]]


def _merge(config: Layer, query: Layer, overrides: Layer) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Field values of all layers, the later one winning, and the notes of the winners."""
    chosen: dict[str, Any] = {}
    notes: dict[str, str] = {}
    for origin, layer in ((_CONFIG, config), (_URI, query), (_OPTIONS, overrides)):
        written: dict[str, str] = {}
        for name, key, value in layer:
            option = OPTIONS[key]
            if option.field in written:
                raise BadSetting(f"{written[option.field]} and {name} in {origin} are the same option: keep one")
            written[option.field] = name
            if origin == _URI and value in option.yields and (value == "" or chosen.get(option.field)):
                notes[option.field] = f"{name}={value} in {origin} changes nothing (TiCDC's rule)"
                continue
            notes.pop(option.field, None)
            found = _read(name, option, value, origin)
            if isinstance(found, Adjusted):
                notes[option.field] = f"{name} {value!r} in {origin} {found.why}"
                found = found.value
            chosen[option.field] = found
    return chosen, tuple(notes.values())


def _read(name: str, option: Option, value: object, origin: str) -> Any:
    try:
        return option.read(value)
    except BadSetting as exc:
        raise BadSetting(f"{name} {exc} (in {origin})") from None


def _config_layer(config: Mapping[str, Any]) -> Layer:
    places = {option.place: key for key, option in OPTIONS.items()}
    layer: Layer = []
    for place, value in _leaves(config):
        if place not in places:
            if any(known.startswith(place + ".") for known in places):
                raise BadSetting(f"{place} in {_CONFIG} must be a table, written [{place}], not {value!r}")
            raise _unknown(place, places, _CONFIG)
        layer.append((place, places[place], value))
    return layer


def _leaves(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _named_layer(values: Mapping[str, object], origin: str) -> Layer:
    for name in values:
        if name not in OPTIONS:
            raise _unknown(name, OPTIONS, origin)
    return [(name, name, value) for name, value in values.items()]


def _override_layer(overrides: Mapping[str, Any]) -> Layer:
    """Python names are the keys with '_' for '-' and '.': `spool_max_bytes` is `spool.max-bytes`."""
    spelled = {key.replace(".", "-"): key for key in OPTIONS}
    layer: Layer = []
    for name, value in overrides.items():
        key = spelled.get(name.replace(".", "-").replace("_", "-"))
        if key is None:
            raise _unknown(name, OPTIONS, _OPTIONS)
        if value is not None:
            layer.append((name, key, value))
    return layer


def _unknown(name: str, known: Collection[str], origin: str) -> BadSetting:
    ending = name.rpartition(".")[2].replace("_", "-")
    if any(ending == later.rpartition(".")[2] for later in _LATER):
        return BadSetting(f"option {name!r} in {origin} is one of TiCDC's that is not yet in this version: remove it")
    namesakes = [key for key in known if key.rpartition(".")[2] == ending]
    near = namesakes or difflib.get_close_matches(name.replace("_", "-"), known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return BadSetting(f"unknown option {name!r} in {origin}; {hint}known: {', '.join(sorted(known))}")


def split_sink_uri(sink_uri: str) -> tuple[str, str, dict[str, str]]:
    """`file:///data/out/?file-size=1024` is ("file", "file:///data/out", {"file-size": "1024"})."""
    plain, _, query = sink_uri.partition("?")
    scheme = _known_scheme(plain)
    if "#" in sink_uri:
        raise BadSetting("the sink URI has a '#', which would cut it off there: write it as %23")
    rest = plain[len(scheme) + 1 :]
    if scheme == "file":
        return scheme, "file://" + _absolute_path(rest), _query_options(query)
    return scheme, f"{scheme}://{rest.strip('/')}", _query_options(query)


def _known_scheme(plain: str) -> str:
    match = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):", plain)
    if match is None:
        raise BadSetting(f"sink {plain!r} has no scheme: for a directory write file://{quote(os.path.abspath(plain))}")
    scheme = match[1].lower()
    if scheme in _REMOTE_SCHEMES:
        raise BadSetting(f"sink scheme {scheme}:// is not yet in this version; known: {', '.join(SCHEMES)}")
    if scheme not in SCHEMES:
        near = difflib.get_close_matches(scheme, SCHEMES, n=1)
        hint = f"did you mean {near[0]}://? " if near else ""
        raise BadSetting(f"unknown sink scheme {scheme}://; {hint}known: {', '.join(SCHEMES)}")
    return scheme


def _absolute_path(rest: str) -> str:
    """The path after `file:` in one spelling, so that equal directories give equal changefeed ids."""
    path = rest.removeprefix("//")
    path = path.removeprefix("localhost") if path.startswith("localhost/") else path
    if not path.strip("/"):
        raise BadSetting("the sink URI names no directory: write file:///absolute/path")
    if not path.startswith("/"):
        raise BadSetting(
            f"sink path {unquote(path)!r} is not absolute: write file://{quote(os.path.abspath(unquote(path)))}"
        )
    return quote(posixpath.normpath("/" + unquote(path).lstrip("/")))


def _query_options(query: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for piece in filter(None, query.split("&")):
        name, equals, _ = piece.partition("=")
        if not equals:
            raise BadSetting(f"{unquote(name)!r} in {_URI} must be written {unquote(name)}=VALUE")
        [(name, value)] = parse_qsl(piece, keep_blank_values=True)
        if name in found:
            raise BadSetting(f"option {name!r} stands twice in {_URI}: keep one")
        found[name] = value
    return found


def changefeed_id(sink_uri: str) -> str:
    """Readable, and different for different sinks: `changefeed_id("file:///data/out")` is "file-data-out-42a75c73"."""
    readable = re.sub(r"[^A-Za-z0-9]+", "-", unquote(sink_uri)).strip("-")[-40:].strip("-")
    return f"{readable}-{hashlib.blake2b(sink_uri.encode(), digest_size=4).hexdigest()}"


def redacted(uri: str) -> str:
    """The URI for people: a password and all option values that may be secret are `***`."""
    hidden = re.sub(r"(://[^/@:?]*):[^/@?]*@", r"\1:***@", uri)
    return re.sub(r"(?i)([?&][^=&]*(?:key|secret|token|password|sas)[^=&]*=)[^&]*", r"\1***", hidden)


def effective(settings: Settings) -> list[tuple[str, str]]:
    """Every option with the value in force, in the order of OPTIONS, for the start-up print; secrets are hidden."""
    values = {item.name: getattr(settings, item.name) for item in fields(settings)}
    values |= {f"csv.{item.name}": getattr(settings.csv, item.name) for item in fields(settings.csv)}
    shown = [(key, option.show(values[option.field])) for key, option in OPTIONS.items() if not option.alias]
    return [("sink", redacted(settings.sink_uri)), *shown]
