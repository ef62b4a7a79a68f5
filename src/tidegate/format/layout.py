"""The layout on storage: builds and parses every path and every small text (index, metadata).

    metadata                                                    {"checkpoint-ts":450253245512155140}
    <schema>/meta/schema_<version>_<checksum>.json              a database
    <schema>/<table>/meta/schema_<version>_<checksum>.json      a table or view
    <schema>/<table>/<version>[/<partition>][/<date>]/CDC[_<dispatcher>_]<number><extension>
    <the data file's directory>/meta/CDC[_<dispatcher>].index   the name of the last data file and a newline
    <table id>/meta/..., <table id>/<version>[/<date>]/...      the same when table ids replace names

Parsing is the exact inverse of building, except for what a path does not contain: the table id if the path has only
names, the names if it has only the id. A path that this module would never build parses to None, so a caller may ask
about any object.

Names are used in paths unchanged. A name that cannot be used (`..`, one with a slash, a database called `metadata`) is
percent-encoded after a mark: `_tidegate%a%2Fb` for `a/b`. A name that begins with the mark is encoded too, which makes
the encoding reversible. No name can lead out of the sink's root.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from tidegate.errors import BadEvents, BadSetting, BrokenInvariant, StoreRefused

METADATA = "metadata"
RESERVED_PREFIX = "_tidegate"
HALF_WRITTEN = ".tmp.tidegate"  # suffix of the temporary file that replaces an object on a file system

_DATE_FORMATS = {"none": "", "year": "%Y", "month": "%Y-%m", "day": "%Y-%m-%d"}
_DATE_SHAPES = {
    "none": re.compile(r""),
    "year": re.compile(r"[0-9]{4}"),
    "month": re.compile(r"[0-9]{4}-[0-9]{2}"),
    "day": re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}"),
}
_NUMBER = re.compile(r"0|[1-9][0-9]{0,19}")
_DIGITS = re.compile(r"[0-9]{1,20}")
_SCHEMA_FILE = re.compile(r"schema_(0|[1-9][0-9]{0,19})_([0-9]{1,10})\.json")
_INDEX_FILE = re.compile(r"CDC(?:_(.+))?\.index", re.DOTALL)
_CHECKSUM_DIGITS = 10
_FEWEST_DIGITS, _MOST_DIGITS = 6, 20
_MARK = f"{RESERVED_PREFIX}%"
_ENCODED = re.compile(r"%([0-9A-F]{2})")
_MOST_NAMES_BYTES = 700  # of schema and table: object stores take paths of 1024 bytes, file systems levels of 255


@dataclass(frozen=True)
class PathOptions:
    date_separator: str = "day"
    index_digits: int = 20
    extension: str = ".csv"
    partition_separator: bool = True
    table_id_as_path: bool = False
    across_nodes: bool = False

    def __post_init__(self) -> None:
        if self.date_separator not in _DATE_FORMATS:
            raise BadSetting(f"date-separator is {self.date_separator!r}; known: {', '.join(_DATE_FORMATS)}")
        if not _FEWEST_DIGITS <= self.index_digits <= _MOST_DIGITS:
            raise BadSetting(f"file-index-digit is {self.index_digits}; it must be from 6 to 20")

    @property
    def by_name(self) -> bool:
        """Paths have names and no ids, neither for a directory nor in file names: tables of one name meet there."""
        return not self.table_id_as_path and not self.across_nodes


class DataKey(NamedTuple):
    """Everything that decides the directory and name of a data file except its number. `table_id` is physical."""

    schema: str
    table: str
    version: int
    table_id: int = 0
    is_partition: bool = False
    date: str = ""
    dispatcher: str = ""


class SchemaKey(NamedTuple):
    """What a schema file's path says. A database has table "". If ids replace names, `schema` is the id as text."""

    schema: str
    table: str
    version: int
    checksum: int
    table_id: int = 0


@lru_cache(maxsize=1024)
def data_dir(key: DataKey, options: PathOptions) -> str:
    """`shop/orders/437/2026-01-31`, with `/55` before the date for partition 55."""
    if not _DATE_SHAPES[options.date_separator].fullmatch(key.date):
        raise BrokenInvariant(f"date {key.date!r} of {key.schema}.{key.table} is not a {options.date_separator} date")
    levels = [_table_dir(key.schema, key.table, key.table_id, options), str(key.version)]
    if key.is_partition and options.partition_separator and not options.table_id_as_path:
        levels.append(str(key.table_id))
    if key.date:
        levels.append(key.date)
    return "/".join(levels)


def new_folders(key: DataKey, options: PathOptions) -> list[str]:
    """The directories of a new table, each after the one above it.

    `shop/orders`, then below it `meta`, `437`, `437/2026-01-31` and `437/2026-01-31/meta`.
    """
    at = _table_dir(key.schema, key.table, key.table_id, options)
    found = [at, f"{at}/meta"]
    for level in data_dir(key, options)[len(at) + 1 :].split("/"):
        at = f"{at}/{level}"
        found.append(at)
    return [*found, f"{at}/meta"]


def data_path(key: DataKey, number: int, options: PathOptions) -> str:
    """`shop/orders/437/2026-01-31/CDC00000000000000000007.csv`; `parse_data_path` undoes it."""
    return f"{data_dir(key, options)}/{_data_name(key, number, options)}"


def index_path(key: DataKey, options: PathOptions) -> str:
    """`shop/orders/437/2026-01-31/meta/CDC.index`; `parse_index_path` undoes it."""
    dispatcher = f"_{_dispatcher(key)}" if options.across_nodes else ""
    return f"{data_dir(key, options)}/meta/CDC{dispatcher}.index"


def index_text(key: DataKey, number: int, options: PathOptions) -> str:
    r"""`CDC00000000000000000007.csv\n`: the last data file a reader may read."""
    return _data_name(key, number, options) + "\n"


def schema_path(schema: str, table: str, version: int, checksum: int, options: PathOptions, table_id: int = 0) -> str:
    """`shop/orders/meta/schema_437_0752767265.json`; a database has table ""; `parse_schema_path` undoes it."""
    if options.table_id_as_path and not table:
        raise BrokenInvariant(f"database {schema} has no schema file when table ids replace names")
    folder = _table_dir(schema, table, table_id, options) if table else _joined(schema)
    return f"{folder}/meta/schema_{version}_{checksum:0{_CHECKSUM_DIGITS}d}.json"


def parse_data_path(path: str, options: PathOptions) -> tuple[DataKey, int] | None:
    """The key and number of a data file; None if `path` is not a data file under these options."""
    folder, _, name = path.rpartition("/")
    named = _parse_data_name(name, options.extension)
    if named is None or name != _numbered(*named, options):
        return None
    key = _parse_data_dir(folder, named[0], options)
    return (key, named[1]) if key else None


def parse_index_path(path: str, options: PathOptions) -> DataKey | None:
    """The key of an index file; None if `path` is not an index file under these options."""
    folder, _, name = path.rpartition("/")
    match = _INDEX_FILE.fullmatch(name)
    if match is None or not folder.endswith("/meta"):
        return None
    return _parse_data_dir(folder.removesuffix("/meta"), match[1] or "", options)


def parse_index_text(text: str, extension: str) -> tuple[str, int]:
    r"""`("", 7)` for `CDC000007.csv\n`; the first value is the dispatcher if the name has one."""
    named = _parse_data_name(text.removesuffix("\n"), extension)
    if named is None:
        raise StoreRefused(f"an index file says {text[:80]!r}, which is not the name of a {extension} data file")
    return named


def is_schema_path(path: str) -> bool:
    """Whether `path` is the complete name of a schema file, with a checksum of ten digits."""
    match = _SCHEMA_FILE.fullmatch(path.rpartition("/")[2])
    return match is not None and len(match[2]) == _CHECKSUM_DIGITS and parse_schema_path(path) is not None


def parse_schema_path(path: str, options: PathOptions | None = None) -> SchemaKey | None:
    """`SchemaKey("shop", "orders", 437, 752767265)`; None for other paths. Also accepts a shorter checksum."""
    *levels, meta, name = path.split("/") if "/" in path else ("", path)
    match = _SCHEMA_FILE.fullmatch(name)
    names = _names(levels)
    if match is None or meta != "meta" or len(levels) not in (1, 2) or names is None:
        return None
    version, checksum = int(match[1]), int(match[2])
    if options is None or not options.table_id_as_path:
        return SchemaKey(names[0], "".join(names[1:]), version, checksum)
    is_id = len(names) == 1 and _NUMBER.fullmatch(names[0])
    return SchemaKey(names[0], "", version, checksum, int(names[0])) if is_id else None


def schema_versions(paths: Iterable[str], checksum: int | None = None) -> set[int]:
    """The versions of the schema files among `paths`, of those with this checksum. Temporary files do not count."""
    parsed = (parse_schema_path(path) for path in paths if is_schema_path(path))
    return {key.version for key in parsed if key is not None and checksum in (None, key.checksum)}


def dispatcher_text(low: int, high: int) -> str:
    """`104857612345678901234` for the halves 1048576 and 12345678901234 of a dispatcher's 128-bit id."""
    return f"{low}{high}"


def date_text(moment: datetime, separator: str) -> str:
    """`2026-01-31` for `day`, `2026-01` for `month`, `2026` for `year`, nothing for `none`."""
    return moment.strftime(_DATE_FORMATS[PathOptions(date_separator=separator).date_separator])


def metadata_text(ts: int) -> str:
    """`{"checkpoint-ts":450253245512155140}`; `parse_metadata` undoes it."""
    return f'{{"checkpoint-ts":{ts}}}'


def parse_metadata(text: str) -> int:
    try:
        ts = json.loads(text)["checkpoint-ts"]
    except (ValueError, TypeError, KeyError) as exc:
        raise StoreRefused(f"`metadata` says {text[:80]!r}, which has no checkpoint-ts") from exc
    if type(ts) is not int or ts < 0:
        raise StoreRefused(f"`metadata` says {text[:80]!r}, whose checkpoint-ts is not a timestamp")
    return ts


def check_names(schema: str, table: str) -> None:
    """Refuses a table whose names cannot be a path on any storage, even if they are encoded.

    A name that only this sink does not take is no reason to refuse it: then the store refuses its files, and only
    this table waits.
    """
    _joined(schema, table)


def _table_dir(schema: str, table: str, table_id: int, options: PathOptions) -> str:
    return str(table_id) if options.table_id_as_path else _joined(schema, table)


@lru_cache(maxsize=1024)
def _joined(*names: str) -> str:
    levels = [_level(name, is_root=not at) for at, name in enumerate(names)]
    size = sum(len(level.encode("utf-8", "surrogateescape")) for level in levels)
    if not all(levels) or size > _MOST_NAMES_BYTES:
        raise BadEvents(
            f"`{'`.`'.join(names)}` cannot be a path on any storage, where a name is not empty and both names together "
            f"have {_MOST_NAMES_BYTES} bytes at most; rename it, route it to another name or filter it"
        )
    return "/".join(levels)


def _level(name: str, is_root: bool) -> str:
    """A name as one level of a path: `orders` stays `orders`, `a/b` becomes `_tidegate%a%2Fb`."""
    reserved = name in (".", "..") or (is_root and name in (METADATA, RESERVED_PREFIX))
    if not reserved and not name.startswith(_MARK) and "/" not in name and "\0" not in name:
        return name
    hidden = "." if name in (".", "..") else "/%\0"
    return _MARK + "".join(f"%{ord(char):02X}" if char in hidden else char for char in name)


def _names(levels: Sequence[str]) -> list[str] | None:
    """The names that these levels of a path encode; None if no name is ever written this way."""
    names = []
    for at, level in enumerate(levels):
        hidden = level.startswith(_MARK)
        name = _ENCODED.sub(lambda code: chr(int(code[1], 16)), level.removeprefix(_MARK)) if hidden else level
        if not name or _level(name, is_root=not at) != level:
            return None
        names.append(name)
    return names or None


def _data_name(key: DataKey, number: int, options: PathOptions) -> str:
    return _numbered(_dispatcher(key) if options.across_nodes else "", number, options)


def _numbered(dispatcher: str, number: int, options: PathOptions) -> str:
    return f"CDC{f'_{dispatcher}_' if dispatcher else ''}{number:0{options.index_digits}d}{options.extension}"


def _dispatcher(key: DataKey) -> str:
    if not key.dispatcher:
        raise BrokenInvariant(f"{key.schema}.{key.table} has no dispatcher id, which paths across nodes need")
    return key.dispatcher


def _parse_data_name(name: str, extension: str) -> tuple[str, int] | None:
    if not (name.startswith("CDC") and name.endswith(extension) and len(name) >= 3 + _FEWEST_DIGITS + len(extension)):
        return None
    middle = name[3 : len(name) - len(extension)]
    dispatcher, number = "", middle
    if middle.startswith("_"):
        dispatcher, _, number = middle[1:].rpartition("_")
        if not dispatcher:
            return None
    return (dispatcher, int(number)) if _DIGITS.fullmatch(number) else None


def _parse_data_dir(folder: str, dispatcher: str, options: PathOptions) -> DataKey | None:
    levels = folder.split("/")
    date = levels.pop() if options.date_separator != "none" else ""
    if not _DATE_SHAPES[options.date_separator].fullmatch(date):
        return None
    depth = 1 if options.table_id_as_path else 2
    names, numbers = _names(levels[:depth]), levels[depth:]
    most = 2 if options.partition_separator and not options.table_id_as_path else 1
    if names is None or not (1 <= len(numbers) <= most and all(map(_NUMBER.fullmatch, numbers))):
        return None
    if options.table_id_as_path:
        is_id = _NUMBER.fullmatch(names[0])
        return DataKey(names[0], "", int(numbers[0]), int(names[0]), False, date, dispatcher) if is_id else None
    partition = int(numbers[1]) if len(numbers) == 2 else 0
    return DataKey(names[0], names[1], int(numbers[0]), partition, len(numbers) == 2, date, dispatcher)
