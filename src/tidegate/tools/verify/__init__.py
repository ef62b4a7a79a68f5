"""`tidegate verify`: replay the source and compare it, byte for byte, with the sink.

Promises: it passes only if, up to the checkpoint, every change is in its table's data files exactly once and in
order, under the schema version it was written with; changes beyond the checkpoint continue them without a gap; every
DDL up to the checkpoint has its schema files; every index and schema file is right and nothing else lies around. At
the first difference it raises `VerifyError`, whose sentence names the table and the position. A run that was killed in
the middle of a landing leaves data files that the next start adopts (`unfinished`). They are compared like the others,
and the report names them. So are rows that cannot be written and were set aside (`on-bad-row`): the report counts them.

How: changes come from the source batch by batch and are encoded as the changefeed encodes them (`runs`); each table
has a place in its files, and the bytes of a whole run of rows are compared at once (`check`). Single rows are looked at
only to explain a difference (`explain`). Which schema files should exist follows from the DDLs that the rules leave
(`format/ddl/filter.py`) and from the rows (`schemas`). Memory holds one batch and one place for each table.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import count
from urllib.parse import urlsplit

from tidegate.config.settings import Settings
from tidegate.driver.inspection import refuse_newer_journal
from tidegate.errors import StoreRefused, VerifyError
from tidegate.format.bad_rows import FOLDER as BAD_ROWS
from tidegate.format.bad_rows import RowKey, parse_bad_row_path
from tidegate.format.layout import METADATA, parse_metadata
from tidegate.reader.replay import survey
from tidegate.sources import Source, open_source
from tidegate.sources.workload.workload import WorkloadSource, parse_workload
from tidegate.storage.store import Store
from tidegate.tools.verify.check import Check, Progress
from tidegate.tools.verify.unfinished import planned_files, sentence

__all__ = ["Report", "open_for_replay", "verify"]


@dataclass(frozen=True)
class Report:
    """What was found right: tables with data, their files, rows and bytes.

    `unfinished` is a sentence if the last run ended in the middle of a landing, and "" otherwise. `set_aside` counts
    rows of the source that cannot be written and were set aside, so that they are in no data file.
    """

    tables: int
    files: int
    rows: int
    bytes: int
    checkpoint_ts: int
    rows_beyond_checkpoint: int
    seconds: float
    unfinished: str = ""
    set_aside: int = 0


def _silent(text: str) -> None:
    pass


def verify(source_uri: str, settings: Settings, store: Store, progress: Progress = _silent) -> Report:
    """Raises VerifyError at the first difference between the source and the sink."""
    started = time.monotonic()
    source = open_for_replay(source_uri)
    refuse_newer_journal(store)
    checkpoint_ts = _checkpoint(store)  # before the survey, which then finds all that the checkpoint promises
    progress("listing the sink")
    standing = survey(store, settings.paths)
    if standing.faults:  # only then the journal matters, which may be long
        standing = survey(store, settings.paths, planned_files(store, settings.paths, checkpoint_ts))
    if standing.faults:
        raise VerifyError(standing.faults[0].text)
    check = Check(standing, settings, store, checkpoint_ts, progress, _set_aside(store))
    check.run(source)
    return Report(
        tables=len({key[:3] for key in standing.tables}),
        files=standing.files,
        rows=check.rows,
        bytes=standing.bytes,
        checkpoint_ts=checkpoint_ts,
        rows_beyond_checkpoint=check.rows_beyond,
        seconds=time.monotonic() - started,
        unfinished=sentence(standing.unfinished),
        set_aside=check.set_aside,
    )


def _set_aside(store: Store) -> frozenset[RowKey]:
    """The rows that the changefeed could not write, by the names of their objects."""
    keys = (parse_bad_row_path(path) for path, _ in store.list(BAD_ROWS))
    return frozenset(key for key in keys if key is not None)


def open_for_replay(uri: str) -> Source:
    """The source, but a workload with a rate is read as fast as possible: its rows do not depend on the clock."""
    source = open_source(uri)
    if isinstance(source, WorkloadSource):
        return WorkloadSource(parse_workload(urlsplit(uri).query), clock=count(0, 10**9).__next__)
    return source


def _checkpoint(store: Store) -> int:
    text = store.get(METADATA)
    if text is None:
        raise VerifyError(f"the sink has no `{METADATA}` file, so no checkpoint says what should be there")
    try:
        return parse_metadata(text.decode(errors="replace"))
    except StoreRefused as exc:
        raise VerifyError(str(exc)) from exc
