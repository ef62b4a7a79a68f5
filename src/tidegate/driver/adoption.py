"""Files that were planned and never confirmed: at a start, those that exist with the planned size are adopted.

To adopt a file is to let its index name it: its content is known from its plan. Adoption goes up to the first missing
file of each lane. From there on the replay writes anew. A missing file stays on record as an orphan, because a process
of the old writer that was paused may still create it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pyarrow as pa

from tidegate.driver.entries import PlannedFile, table_of_files
from tidegate.errors import StoreConflict, StoreRefused
from tidegate.executor.index import put_index
from tidegate.format.layout import PathOptions, data_path
from tidegate.storage.store import Store

_AT_ONCE = 64


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
        size = store.size(data_path(key, number, options))
        # All plans of a number begin at the same change, so one of the same size is the same file. Where partitions
        # share a lane they need not begin there; then the last plan is it, because nobody else was alive. If none has
        # the size, another file is in the way: the lane meets it when it lands, and its table is named then.
        alike = (file for file in files if file.number == number and file.bytes == size)
        match = max(alike, key=lambda file: file.plan, default=None)
        if match is None:
            blocked = size is not None
            break
        adopted.append(match)
    last = adopted[-1].number if adopted else 0
    if adopted:
        with contextlib.suppress(StoreConflict):  # an index that is further shows the file already
            put_index(store, key, last, options, None, beat=lambda size: None)
    return _Lane(adopted, [file for file in files if file.number > last], blocked)
