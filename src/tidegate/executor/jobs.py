"""What the driver sends with a job: the options, which are the same for all jobs of a changefeed, and the rest.

All of it is frozen and can be pickled.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidegate.executor.floor import Floor
from tidegate.executor.layouts import LayoutReader
from tidegate.executor.spool import Room, SegmentReader
from tidegate.format.encode.protocol import Encoding
from tidegate.format.layout import PathOptions
from tidegate.format.rules.rules import Rules
from tidegate.storage.access import Access
from tidegate.storage.store import StoreOpener


@dataclass(frozen=True)
class IngestOptions:
    encoding: Encoding
    chunk_bytes: int
    file_size_bytes: int
    ordering: str = "per-table"
    rules: Rules = field(default_factory=Rules)
    split_updates: bool = True  # an update that changes a key becomes a delete and an insert
    aside: LandOptions | None = None  # where rows go that cannot be written; None: they end the changefeed


@dataclass(frozen=True)
class IngestJob:
    options: IngestOptions
    layouts: LayoutReader  # where tasks find those that are known
    room: Room
    allowance_bytes: int  # what one task may append
    floor: Floor | None = None
    spans: int = 1
    remedy: str = "raise spool.max-bytes"  # what makes the spool larger
    cuts: tuple[int, ...] = ()  # commit-ts of DDLs that are not over: no chunk has rows from both sides of one


@dataclass(frozen=True)
class LandOptions:
    paths: PathOptions
    encoding: Encoding
    sink_uri: str
    access: Access
    open_store: StoreOpener
    worker_count: int = 16
    output_column_id: bool = False
    stall_s: float = 2.0  # without progress for so long, plus the time for its bytes, a lane is given up


@dataclass(frozen=True)
class LandJob:
    options: LandOptions
    segments: dict[int, str]  # names by the numbers that plans use
    layouts: dict[int, str]  # those of plans that need one, by fingerprint
    reader: SegmentReader
    foreign: bool = False  # files of another writer exist on this sink: check a directory before its first use
    lane_share: float = 1.0  # of the lanes that may run at once; less on a store that has too much to do
