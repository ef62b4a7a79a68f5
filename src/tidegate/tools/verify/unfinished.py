"""Data files that a landing wrote before its run ended, and whose index it could not write any more.

A landing writes the data file first and its index last. So a process that is killed in between leaves a data file that
no index names. Readers do not see it, and nothing is wrong: the journal has its plan, without a confirmation, and
the next start finds the file there and lets the index name it (`driver/adoption.py`). A data file that no such plan
names with its exact bytes is adopted by nobody, and `verify` reports it as a fault.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tidegate.driver.adoption import planned_content
from tidegate.driver.entries import DamagedJournal
from tidegate.driver.entries import planned_files as files_of
from tidegate.driver.recovery import read_journal
from tidegate.format.layout import PathOptions, data_path
from tidegate.reader.replay import Planned
from tidegate.storage.store import Store


def planned_files(store: Store, options: PathOptions, checkpoint_ts: int) -> Planned:
    """`{"shop/orders/437/2026-01-31/CDC000007.csv": {4096}}`: what the next start adopts, and its size.

    A checkpoint that the journal does not know was written by another program, which may have used the same file
    numbers. The next start adopts nothing then, and neither does this.
    """
    try:
        _, found = read_journal(store, options)
    except (
        DamagedJournal,
        ValueError,
        KeyError,
        TypeError,
    ):  # no journal of ours, or a damaged one: it explains no data file
        return {}
    if checkpoint_ts > found.checkpoint_ts:
        return {}
    planned: dict[str, set[int]] = {}
    for file in files_of(pa.concat_tables([found.orphans, found.pending])):
        path = data_path(file.key(options), file.number, file.naming(options))
        if planned_content(store, path, store.size(path), [file]):
            planned.setdefault(path, set()).add(file.bytes)
    return planned


def sentence(paths: Sequence[str]) -> str:
    """What a user is told about these data files; nothing if there are none."""
    if not paths:
        return ""
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return (
        "the last run ended in the middle of a landing; the next start completes it "
        f"(written, and not yet in an index: {paths[0]}{more})"
    )
