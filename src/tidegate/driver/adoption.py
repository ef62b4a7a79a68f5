"""Files that were planned and never confirmed: at a start, those that exist as they were planned are adopted.

To adopt a file is to let its index name it, and to count its changes as durable. So its bytes must be the planned ones:
size and checksum are compared, which means that the file is read. Adoption goes up to the first missing file of each
lane. From there on the replay writes anew. A missing file stays on record as an orphan, because a process
of the old writer that was paused may still create it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import NamedTuple

import pyarrow as pa

from tidegate.driver.entries import PlannedFile, table_of_files
from tidegate.errors import StoreConflict, StoreRefused
from tidegate.executor.index import put_index
from tidegate.format.checksums import checksum
from tidegate.format.layout import PathOptions, data_path
from tidegate.storage.store import Store

_AT_ONCE = 64
_PIECE_BYTES = 1 << 20


class _Lane(NamedTuple):
    """The outcome of a lane's planned files; if `blocked`, another file exists where the first missing one goes."""

    adopted: list[PlannedFile]
    missing: list[PlannedFile]
    blocked: bool


def adopt(store: Store, options: PathOptions, planned: Sequence[PlannedFile]) -> tuple[list[PlannedFile], pa.Table]:
    """Adopt what exists. Returns the files that count as landed from now on, and the orphans.

    Of a lane with missing files the one before them is among the landed ones with `last_ts` 0: it only says where the
    lane goes on.
    """
    lanes: dict[str, list[PlannedFile]] = {}
    for file in planned:
        lanes.setdefault(file.lane(options), []).append(file)
    with ThreadPoolExecutor(_AT_ONCE, "adopt") as pool:
        answers = list(pool.map(lambda files: _adopt_lane(store, options, files), lanes.values()))
    adopted = [file for answer in answers for file in answer.adopted]
    orphans = [file for answer in answers if not answer.blocked for file in answer.missing]
    next_files = [min(answer.missing, key=lambda file: file.number) for answer in answers if answer.missing]
    before = [file._replace(number=file.number - 1, last_ts=0, last_seq=0) for file in next_files]
    return [*adopted, *before], table_of_files(orphans)


def _adopt_lane(store: Store, options: PathOptions, files: list[PlannedFile]) -> _Lane:
    """Adopt what exists of one lane. If the store refuses, the replay comes to the same files and names the table.

    If the replay would write other files, it meets the ones that exist, and a new start looks for them again.
    """
    try:
        return _find(store, options, files)
    except StoreRefused:
        return _Lane([], files, blocked=False)


def _find(store: Store, options: PathOptions, files: list[PlannedFile]) -> _Lane:
    """Look for the files of one lane; a number may have been planned by several writers, one after the other."""
    options, key = files[0].naming(options), files[0].key(options)
    adopted: list[PlannedFile] = []
    blocked = False
    for number in sorted({file.number for file in files}):
        path = data_path(key, number, options)
        size = store.size(path)
        # The size alone proves nothing: tables whose rows have a fixed width make files of one size. If two plans have
        # the same bytes, it does not matter which of them the file counts for. If none has these bytes, another file is
        # in the way: the lane meets it when it lands, and its table is named then.
        match = planned_content(store, path, size, [file for file in files if file.number == number])
        if match is None:
            blocked = size is not None
            break
        adopted.append(match)
    last = adopted[-1].number if adopted else 0
    if adopted:
        with contextlib.suppress(StoreConflict):  # an index that is further shows the file already
            put_index(store, key, last, options, None, beat=lambda size: None)
    return _Lane(adopted, [file for file in files if file.number > last], blocked)


def planned_content(store: Store, path: str, size: int | None, plans: Sequence[PlannedFile]) -> PlannedFile | None:
    """The plan whose bytes this file has, None if it has other bytes or does not exist."""
    alike = [plan for plan in plans if plan.bytes == size]
    if size is None or not alike:
        return None
    found = cache(partial(_checksum_of, store, path, size))
    return max((plan for plan in alike if plan.is_content(size, found)), key=lambda plan: plan.plan, default=None)


def _checksum_of(store: Store, path: str, size: int) -> int:
    """Of a file's bytes, read in pieces: many files are read at once."""
    total = 0
    for offset in range(0, size, _PIECE_BYTES):
        total = checksum(store.get_range(path, offset, min(_PIECE_BYTES, size - offset)) or b"", total)
    return total
