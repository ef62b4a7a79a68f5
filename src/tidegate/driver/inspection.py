"""One look at a sink before anything is written: whose it is, what its journal and its `metadata` say.

`run` refuses or takes over by what is found here, and `tidegate check` tells the same to people. The requests are
bounded, whatever the prefix holds. A sink is one of:

* `EMPTY`: nothing but what is under our reserved prefix, and no journal there.
* `OURS`: it has a journal.
* `TICDC`: no journal, but files of TiCDC's layout or a `metadata` file. A start takes it over.
* `STRANGER`: no journal, and only files of another layout. A start is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa

from tidegate.driver.entries import FOLDER, UNREADABLE, NewerFormat, damaged, head_of
from tidegate.errors import BadSetting, StoreRefused, StoreUnavailable
from tidegate.events import physical_ms, shown_time
from tidegate.format.encode.protocol import EXTENSIONS
from tidegate.format.layout import (
    METADATA,
    RESERVED_PREFIX,
    PathOptions,
    is_schema_path,
    parse_data_path,
    parse_index_path,
    parse_metadata,
)
from tidegate.storage.store import Store

EMPTY, OURS, TICDC, STRANGER = "empty", "ours", "ticdc", "stranger"
SAMPLE = 1000  # objects that are looked at
_HEAD_BYTES = 1 << 20
_AHEAD_S = 600.0  # clocks differ by less
SET_BACK = f"set the clock, or put the true checkpoint-ts into `{METADATA}`"
_DATA_NAME = re.compile(r"CDC(?:_.+_)?(?P<number>[0-9]{6,20})(?P<extension>\.[a-z0-9]+)", re.ASCII)
_INDEX_NAME = re.compile(r"CDC(?:_.+)?\.index")
_DATES = {"day": r"[0-9]{4}-[0-9]{2}-[0-9]{2}", "month": r"[0-9]{4}-[0-9]{2}", "year": r"[0-9]{4}"}
_NUMBER = re.compile(r"[0-9]{1,20}", re.ASCII)


class UnreadableMetadata(StoreRefused):
    """Nobody knows how far the writer before was."""

    remedy = (
        f'write the checkpoint of the writer before into `{METADATA}`, as {{"checkpoint-ts":463267587686400007}}; or '
        "delete it, and the next start reads the source from its beginning"
    )


class Change(NamedTuple):
    """An option that the prefix was written with in another way."""

    key: str
    now: str
    before: str


@dataclass(frozen=True)
class Inspection:
    owner: str
    head: Mapping[str, Any] | None = None  # what the newest journal object says besides its tables
    journal_path: str = ""  # of that object
    metadata: bytes | None = None
    sample: tuple[str, ...] = ()  # some of the paths outside our reserved prefix; empty where the sink is ours
    is_whole: bool = True  # the sample is all there is

    @property
    def stranger(self) -> str:
        """The first of the sample that is not of TiCDC's layout."""
        return next((path for path in self.sample if not is_ticdc(path)), "")

    @property
    def written_ts(self) -> int:
        """The checkpoint that readers see. An unreadable one is refused, unless our journal knows better."""
        if self.metadata is None:
            return 0
        if self.owner == OURS:
            return checkpoint_in(self.metadata)
        try:
            return parse_metadata(_text(self.metadata))
        except StoreRefused as exc:
            raise UnreadableMetadata(f"{exc}; {UnreadableMetadata.remedy}") from exc

    @property
    def is_metadata_broken(self) -> bool:
        """Whether nobody can read what is in `metadata`."""
        return self.metadata is not None and not _is_metadata(self.metadata)

    @property
    def journal_ts(self) -> int:
        """The checkpoint that our journal knows."""
        return self.head.get("checkpoint-ts", 0) if self.head is not None else 0

    @property
    def checkpoint_ts(self) -> int:
        """Where a start goes on."""
        return max(self.written_ts, self.journal_ts)

    def changes(self, shape: Mapping[str, str], options: PathOptions) -> list[Change]:
        """The options that shape the prefix and are not what it was written with.

        Our journal says what they were. Of another writer's prefix only the names of files tell.
        """
        if self.head is not None:
            before = self.head.get("shape", {})
            return [Change(key, shape[key], value) for key, value in before.items() if shape.get(key, value) != value]
        return _changes_by_name(self.sample, shape, options)


def inspect(store: Store) -> Inspection:
    head, journal_path = _last_entry(store)
    metadata = store.get(METADATA)
    if head is not None:
        return Inspection(OURS, head, journal_path, metadata)
    found = tuple(sample(store))
    if metadata is not None or any(is_ticdc(path) for path in found):
        return Inspection(TICDC, metadata=metadata, sample=found, is_whole=len(found) < SAMPLE)
    return Inspection(STRANGER if found else EMPTY, sample=found)


def refuse_newer_journal(store: Store) -> None:
    """A journal of a later release cannot be understood. One that is damaged, or none, is not refused here."""
    try:
        _last_entry(store)
    except NewerFormat:
        raise
    except (StoreRefused, StoreUnavailable):
        return


def refuse_stranger(found: Inspection, sink_uri: str) -> None:
    """Files of another layout under the same prefix would be read as ours, or ours as theirs."""
    if found.owner == STRANGER:
        raise StoreRefused(
            f"the sink {sink_uri} is not empty ({found.stranger}) and holds nothing of TiCDC's layout; "
            "give another prefix"
        )


def refuse_future(found: Inspection, now: datetime, newest_ts: Callable[[], int | None]) -> None:
    """A checkpoint says what is written already: with one that is too great, every change would be dropped.

    `newest_ts` says how far the source goes, None if nobody knows. What our own journal knows may be ahead of the
    clock: then the source is, and the changes up to there were written.
    """
    if sentence := ahead_of_clock(found, now):
        raise StoreRefused(f"{sentence}; {SET_BACK}")
    newest = newest_ts() if found.checkpoint_ts else None
    if newest is not None and found.checkpoint_ts > newest:
        raise StoreRefused(
            f"the checkpoint-ts of this sink is {shown_time(found.checkpoint_ts)}, but the source ends at "
            f"{shown_time(newest)}, so every change would count as written already; give the source that this sink is "
            "of, or another prefix"
        )


def ahead_of_clock(found: Inspection, now: datetime) -> str:
    """What is wrong with the checkpoint in `metadata`, as a sentence; "" if nothing is."""
    ahead_s = physical_ms(found.written_ts) / 1000 - now.timestamp()
    if found.written_ts <= found.journal_ts or ahead_s <= _AHEAD_S:
        return ""
    return (
        f"`{METADATA}` says checkpoint-ts {shown_time(found.written_ts)}, which is {ahead_s:.0f} s ahead of this "
        "machine's clock, so every change would count as written already"
    )


def refuse_changes(seen: Inspection, shape: Mapping[str, str], options: PathOptions) -> None:
    """Readers of one prefix cannot follow a change of the options that shape its paths and bytes.

    A sample that is not all there is only shows the first tables by name, so it is no proof.
    """
    if (changed := seen.changes(shape, options)) and seen.is_whole:
        said = ", ".join(f"{change.key} = {change.now} (was {change.before})" for change in changed)
        raise BadSetting(
            f"this sink was written with other options: {said}; readers of one prefix cannot follow such a change, "
            "so set them back or give another prefix"
        )


def sample(store: Store) -> list[str]:
    """The first paths that are not under our reserved prefix."""
    paths = (path for path, _ in islice(store.list(""), 4 * SAMPLE))
    return list(islice((path for path in paths if not path.startswith(f"{RESERVED_PREFIX}/")), SAMPLE))


def checkpoint_in(metadata: bytes) -> int:
    """What a `metadata` file says; 0 for one that nobody can read, so that it is put right."""
    try:
        return parse_metadata(_text(metadata))
    except StoreRefused:
        return 0


def _is_metadata(metadata: bytes) -> bool:
    try:
        parse_metadata(_text(metadata))
    except StoreRefused:
        return False
    return True


def _text(metadata: bytes) -> str:
    return metadata.decode(errors="replace")


def is_ticdc(path: str) -> bool:
    """Also true for what an interrupted write of TiCDC leaves: `schema_5_0123456789.json.tmp.<uuid>`."""
    whole = re.sub(r"\.tmp\.[^/]*$", "", path)
    return whole == METADATA or is_schema_path(whole) or next(_shape_of(whole), None) is not None


def _shape_of(path: str) -> Iterator[tuple[str, str]]:
    """What the name of a data or index file says about options that shape it."""
    *levels, name = path.split("/")
    data = _DATA_NAME.fullmatch(name)
    if data is not None:
        protocols = {extension: protocol for protocol, extension in EXTENSIONS.items()}
        yield "protocol", protocols.get(data["extension"], data["extension"])
        if data["number"].startswith("0") or len(data["number"]) == 6:  # a longer number is never cut
            yield "file-index-digit", str(len(data["number"]))
    elif _INDEX_NAME.fullmatch(name) and levels[-1:] == ["meta"]:
        levels.pop()
    else:
        return
    date = next((word for word, text in _DATES.items() if levels and re.fullmatch(text, levels[-1])), "none")
    yield "date-separator", date
    levels = levels[:-1] if date != "none" else levels
    yield "use-table-id-as-path", str(len(levels) == 2 and all(map(_NUMBER.fullmatch, levels))).lower()
    if len(levels) == 4:
        yield "enable-partition-separator", "true"


def _changes_by_name(sample: Iterable[str], shape: Mapping[str, str], options: PathOptions) -> list[Change]:
    """Where some files suit the options, older ones may be otherwise."""
    found: dict[str, set[str]] = {}
    for path in sample:
        suits = parse_data_path(path, options) or parse_index_path(path, options)
        for key, value in _shape_of(path):
            found.setdefault(key, set()).add(shape[key] if suits else value)
    return [
        Change(key, shape[key], " and ".join(sorted(values)))
        for key, values in found.items()
        if shape[key] not in values
    ]


def _last_entry(store: Store) -> tuple[dict[str, Any] | None, str]:
    """The head of the newest journal object, and its path; (None, "") if there is no journal."""
    for _ in range(3):  # the changefeed that writes the journal may replace the object that was just listed
        last = max((path for path, _ in store.list(FOLDER)), default="")
        if not last:
            return None, ""
        head = _head_of(store, last)
        if head is not None:
            return head, last
    raise StoreUnavailable(f"{FOLDER} changes while it is read: another changefeed is writing to this sink")


def _head_of(store: Store, path: str) -> dict[str, Any] | None:
    """The head is at the front of the object, so a snapshot of a million tables is not fetched for it."""
    data = store.get_range(path, 0, _HEAD_BYTES)
    try:
        return head_of(pa.ipc.open_stream(data).schema) if data is not None else None
    except UNREADABLE:
        data = store.get(path)
    try:
        return head_of(pa.ipc.open_stream(data).schema) if data is not None else None
    except UNREADABLE as exc:
        raise damaged(path, len(data or b"")) from exc
