"""Definitions of layouts: their JSON by fingerprint, in columns.

A text is what `Layout.to_json` writes, so its hash is the fingerprint. That is checked without reading the columns.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidegate.errors import BadEvents
from tidegate.format.pieces import Flags, Numbers
from tidegate.format.tables import Layout


@dataclass(frozen=True)
class LayoutTexts:
    """Sorted by fingerprint, each once."""

    fingerprint: Numbers
    text: pa.Array

    @staticmethod
    def of(fingerprints: Numbers, texts: pa.Array) -> LayoutTexts:
        """In any order; of a fingerprint that comes twice one text counts, for they are equal."""
        sorted_once, at = np.unique(fingerprints, return_index=True)
        return LayoutTexts(sorted_once, texts.take(pa.array(at)))

    @staticmethod
    def of_dict(known: Mapping[int, str]) -> LayoutTexts:
        return LayoutTexts.of(np.array([*known], np.int64), pa.array([*known.values()], pa.string()))

    @staticmethod
    def all_of(parts: Sequence[LayoutTexts]) -> LayoutTexts:
        if len(parts) == 1:
            return parts[0]
        keys = [NO_KEYS, *(part.fingerprint for part in parts)]
        return LayoutTexts.of(np.concatenate(keys), pa.concat_arrays([NO_TEXTS, *(part.text for part in parts)]))

    def __len__(self) -> int:
        return len(self.fingerprint)

    def find(self, wanted: Numbers) -> LayoutTexts:
        """Those of the wanted ones, which are sorted, that are here."""
        if not len(self) or not len(wanted):
            return NO_LAYOUTS
        at = np.minimum(np.searchsorted(self.fingerprint, wanted), len(self) - 1)
        at = at[self.fingerprint[at] == wanted]
        return LayoutTexts(self.fingerprint[at], self.text.take(pa.array(at)))

    def take(self, which: Flags) -> LayoutTexts:
        return LayoutTexts(self.fingerprint[which], self.text.filter(pa.array(which)))

    def table(self) -> pa.Table:
        return pa.table({"fingerprint": self.fingerprint, "text": self.text})

    @staticmethod
    def of_table(table: pa.Table) -> LayoutTexts:
        return LayoutTexts.of(table["fingerprint"].to_numpy(), table["text"].combine_chunks())

    def layout(self, fingerprint: int) -> Layout:
        """One that is here."""
        return Layout.from_json(self.text[int(np.searchsorted(self.fingerprint, fingerprint))].as_py())


NO_KEYS = np.zeros(0, np.int64)
NO_TEXTS = pa.array([], pa.string())
NO_LAYOUTS = LayoutTexts(NO_KEYS, NO_TEXTS)


def defined(rows: pa.RecordBatch) -> LayoutTexts:
    """The definitions in these layout rows, in the form of `Layout.to_json`. Refuses a wrong fingerprint."""
    texts = [text or "" for text in rows.column("ddl").to_pylist()]
    said = rows.column("layout").fill_null(0).to_numpy().copy()
    wrong = np.flatnonzero(np.array([_hashed(text) for text in texts], np.int64) != said)
    for at in wrong.tolist():
        texts[at] = _respelled(texts[at], int(said[at]), rows.column("commit_ts")[at].as_py())
    return LayoutTexts.of(said, pa.array(texts, pa.string()))


def _hashed(text: str) -> int:
    digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def _respelled(text: str, fingerprint: int, commit_ts: int) -> str:
    """Another text for the same layout is accepted."""
    layout = Layout.from_json(text)
    if layout.fingerprint != fingerprint:
        raise BadEvents(
            f"the layout row at commit-ts {commit_ts} says fingerprint {fingerprint} but its columns have "
            f"{layout.fingerprint}; compute it with Layout.fingerprint"
        )
    return layout.to_json()
