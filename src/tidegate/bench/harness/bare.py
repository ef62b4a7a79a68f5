"""The bare loop: what one process takes to make the directories and files of many tables, and nothing else."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tidegate.format.tables import schema_file_text
from tidegate.sources.workload.sysbench import LAYOUT, SCHEMA_NAME

_BARE_S = 120.0  # the longest that it takes, about


def make_bare(root: Path, tables: int, file_bytes: int, seconds: float = _BARE_S) -> int:
    """The same directories and files that a changefeed makes, with as many bytes; how many tables it came to.

    A disk that is slow gets no more tables after half of the seconds, so that the measurement ends.
    """
    version, rows = 10**18, b"x" * file_bytes
    schema = schema_file_text(SCHEMA_NAME, f"sbtest{tables}", version, LAYOUT).encode()
    folders, until = [], time.monotonic() + seconds / 2
    for number in range(1, tables + 1):
        folder = f"{root}/{SCHEMA_NAME}/sbtest{number}"
        day = f"{folder}/{version}/2026-01-31"
        os.makedirs(f"{folder}/meta")
        os.makedirs(f"{day}/meta")
        _write(f"{folder}/meta/schema_{version}_0123456789.json", schema)
        _write(f"{day}/CDC{1:020d}.csv", rows)
        _write(f"{day}/meta/CDC.index", b"CDC%020d.csv\n" % 1)
        folders.append(day)
        if time.monotonic() > until:
            break
    for day in folders:
        _write(f"{day}/CDC{2:020d}.csv", rows)
        _write(f"{day}/meta/CDC.index", b"CDC%020d.csv\n" % 2)
    return len(folders)


def _write(path: str, data: bytes) -> None:
    with open(path, "wb", buffering=0) as file:
        file.write(data)
