"""Layouts for tasks: the driver keeps definitions in files of the spool, and a task reads those that its rows need.

A job would otherwise carry all layouts that were ever seen: 375 MiB for a million tables of ten columns. A file has the
definitions sorted by fingerprint. It is mapped, so a task touches only the pages with what it looks for. The other way,
a task leaves new definitions in a file, and its item has only the name.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
import pyarrow as pa

from tidegate.errors import SpoolLost
from tidegate.format.layout_columns import LayoutColumns
from tidegate.format.layout_texts import NO_LAYOUTS, LayoutTexts
from tidegate.format.pieces import Numbers
from tidegate.format.tables import Layout


class LayoutReader(Protocol):
    """Travels with a job."""

    def find(self, wanted: Numbers) -> LayoutTexts:
        """The definitions of the wanted layouts, which are sorted, as far as they are known."""


@dataclass(frozen=True)
class LayoutFiles:
    """Names of files, none of which ever changes."""

    paths: tuple[str, ...] = ()

    def find(self, wanted: Numbers) -> LayoutTexts:
        parts = []
        for path in self.paths:
            if not len(wanted):
                break
            parts.append(read_layouts(path).find(wanted))
            wanted = np.setdiff1d(wanted, parts[-1].fingerprint, assume_unique=True)
        return LayoutTexts.all_of(parts)


def read_layouts(path: str) -> LayoutTexts:
    """All of one file; nothing is read yet, but mapped."""
    try:
        with pa.memory_map(path) as mapped:
            batch = pa.ipc.open_file(mapped).get_batch(0)
    except (OSError, pa.ArrowInvalid) as exc:
        raise SpoolLost(f"cannot read the layouts in {path}: {exc}; they are read again from the journal") from exc
    return LayoutTexts(batch.column("fingerprint").to_numpy(), batch.column("text"))


def write_layouts(path: str, texts: LayoutTexts) -> None:
    table = texts.table().combine_chunks()
    try:
        with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    except OSError as exc:
        raise SpoolLost(f"cannot write layouts to {path}: {exc}") from exc


@dataclass
class TaskLayouts:
    """What one task knows of layouts: those that its job can read, and those that its own rows define."""

    job: LayoutReader
    _own: LayoutTexts = NO_LAYOUTS
    _columns: LayoutColumns | None = None
    _texts: LayoutTexts = NO_LAYOUTS  # of `_columns`

    def define(self, texts: LayoutTexts) -> None:
        """Layout rows came."""
        self._own = LayoutTexts.all_of([self._own, texts])

    def new(self) -> LayoutTexts:
        """Those that were defined here and that the driver does not know."""
        known = self.job.find(self._own.fingerprint).fingerprint
        return self._own.take(~np.isin(self._own.fingerprint, known))

    def columns(self, wanted: Numbers) -> tuple[LayoutColumns | None, Numbers]:
        """The columns of the wanted layouts, which are sorted; None if some are unknown, and which these are."""
        if self._columns is None or not np.array_equal(self._columns.fingerprint, wanted):
            texts = self._own.find(wanted)
            if len(texts) < len(wanted):
                missing = np.setdiff1d(wanted, texts.fingerprint, assume_unique=True)
                texts = LayoutTexts.all_of([texts, self.job.find(missing)])
            if len(texts) < len(wanted):
                return None, np.setdiff1d(wanted, texts.fingerprint, assume_unique=True)
            self._texts, self._columns = texts, LayoutColumns.parse(texts.fingerprint, texts.text)
        return self._columns, wanted[:0]

    def layout(self, fingerprint: int) -> Layout:
        """One of those that were wanted last."""
        return _parsed(self._texts.text[int(np.searchsorted(self._texts.fingerprint, fingerprint))].as_py())


@lru_cache(maxsize=256)
def _parsed(text: str) -> Layout:
    """For layouts with many rows: a million tables of one shape share one."""
    return Layout.from_json(text)
