"""Where the journal has each layout: the number of the entry that put it on record.

Such an entry stays for good, so a layout is written once and never copied from snapshot to snapshot. Only small ones
are put together: a snapshot first writes an entry that repeats their layouts, and then they go.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tidegate.format.layout_texts import NO_KEYS
from tidegate.format.pieces import Flags, Numbers

SMALL = 4096  # layouts; an entry with fewer is put together with others


@dataclass(frozen=True)
class LayoutRecord:
    """Sorted by fingerprint. It is replaced and never changed, so any thread may look."""

    fingerprint: Numbers = field(default_factory=lambda: NO_KEYS)
    entry: Numbers = field(default_factory=lambda: NO_KEYS)

    def find(self, wanted: Numbers) -> Numbers:
        """The entries that have the wanted layouts; those that are not on record have none."""
        return self.entry[np.isin(self.fingerprint, wanted)]

    def has(self, wanted: Numbers) -> Flags:
        return np.isin(wanted, self.fingerprint)

    def noted(self, fingerprints: Numbers, entry: int) -> LayoutRecord:
        """Now this entry has these, which are sorted, and no older one needs to be kept for them."""
        kept = ~np.isin(self.fingerprint, fingerprints)
        keys, entries = self.fingerprint[kept], self.entry[kept]
        at = np.searchsorted(keys, fingerprints)
        return LayoutRecord(np.insert(keys, at, fingerprints), np.insert(entries, at, entry))

    def entries(self) -> set[int]:
        """Those that must stay."""
        return set(np.unique(self.entry).tolist())

    def small(self) -> list[int]:
        """The entries with few layouts."""
        numbers, counts = np.unique(self.entry, return_counts=True)
        found: list[int] = numbers[counts < SMALL].tolist()
        return found

    def table(self) -> pa.Table:
        return pa.table({"fingerprint": self.fingerprint, "entry": self.entry})

    @staticmethod
    def of_table(table: pa.Table) -> LayoutRecord:
        return LayoutRecord(table["fingerprint"].to_numpy(), table["entry"].to_numpy())
