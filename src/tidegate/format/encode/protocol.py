"""One entry for both protocols: ingest, landing, verify and the command line call this module to encode rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import BadEvents
from tidegate.format.bad_values import BadRows
from tidegate.format.encode import canal_json, csv, mixed_canal_json, mixed_csv
from tidegate.format.encode.canal_json import CanalOptions
from tidegate.format.encode.csv import CsvOptions
from tidegate.format.layout_columns import LayoutOf, RowLayouts
from tidegate.format.pieces import Numbers
from tidegate.format.tables import Layout

Encoding = CsvOptions | CanalOptions
Refuse = Callable[[BadRows, int], None]  # rows that cannot be written, and the fingerprint of their layout
_MANY_ROWS = 1024  # from here on a layout alone costs less (decision 0028)
EXTENSIONS = {"csv": ".csv", "canal-json": ".json"}


def encode(
    rows: pa.RecordBatch,
    order: Numbers,
    layout: Layout,
    options: Encoding,
    selected: tuple[int, ...] | None = None,
    now_ms: int = 0,
) -> pa.Array:
    """The text of row `order[0]`, of row `order[1]`, and so on: a binary array with one entry per number of `order`.

    `now_ms` is the moment of writing, which canal-json puts into every line.
    """
    if isinstance(options, CsvOptions):
        return csv.encode(rows, order, layout, options, selected)
    return canal_json.encode(rows, order, layout, options, selected, now_ms)


def encode_mixed(
    rows: pa.RecordBatch, order: Numbers, layouts: RowLayouts, layout: LayoutOf, options: Encoding, now_ms: int = 0
) -> pa.Array:
    """The same for rows of many layouts; `layout` gives one by its fingerprint."""
    return encode_good(rows, order, layouts, layout, options, _raise, now_ms)[0]


def _raise(bad: BadRows, layout: int) -> None:
    raise bad


def encode_good(
    rows: pa.RecordBatch,
    order: Numbers,
    layouts: RowLayouts,
    layout: LayoutOf,
    options: Encoding,
    refuse: Refuse,
    now_ms: int = 0,
) -> tuple[pa.Array, Numbers]:
    """The text of all rows that can be written, and the order without the others, of which `refuse` is told.

    Layouts with many rows are encoded alone, which costs less for each row. All others are encoded together, which
    costs nothing for each layout.
    """
    if not len(order):
        return pa.array([], pa.binary()), order
    work = _Work(rows, order, layouts, layout, options, refuse, now_ms)
    entry = layouts.entry[order]
    rows_of = np.bincount(entry)[entry]
    found = [work.alone(np.flatnonzero(entry == one)) for one in np.unique(entry[rows_of >= _MANY_ROWS]).tolist()]
    if (rows_of < _MANY_ROWS).any():
        found += work.together(np.flatnonzero(rows_of < _MANY_ROWS))
    if len(found) == 1:
        return found[0][0], order[found[0][1]]
    at = np.concatenate([places for _, places in found])
    place = np.argsort(at)
    return pc.take(_concatenated([text for text, _ in found]), pa.array(place)), order[at[place]]


def _concatenated(texts: list[pa.Array]) -> pa.Array:
    try:
        return pa.concat_arrays(texts)
    except pa.ArrowInvalid as exc:
        raise BadEvents(f"the lines of one batch exceed 2 GiB; hand over smaller batches: {exc}") from exc


class _Work(NamedTuple):
    """Rows of many layouts. Its methods take places in `order`, and also return those whose rows can be written."""

    rows: pa.RecordBatch
    order: Numbers
    layouts: RowLayouts
    layout: LayoutOf
    options: Encoding
    refuse: Refuse
    now_ms: int

    def together(self, at: Numbers) -> list[tuple[pa.Array, Numbers]]:
        """If any row is wrong, each half of the layouts is tried, down to the one that is to blame.

        So a wrong row costs the others some more passes of all of them, but never a pass for each layout.
        """
        entry = self.layouts.entry[self.order[at]]
        if entry.min() == entry.max():
            return [self.alone(at)]
        rows, order = self._few(self.order[at])
        layouts = self.layouts if rows is self.rows else RowLayouts(self.layouts.layouts, entry)
        try:
            return [(encode_together(rows, order, layouts, self.options, self.now_ms), at)]
        except BadEvents:
            known = np.unique(entry)
            low = entry < known[len(known) // 2]
            return [*self.together(at[low]), *self.together(at[~low])]

    def alone(self, at: Numbers) -> tuple[pa.Array, Numbers]:
        """Of rows that have one layout. Each reason for which rows are refused costs a pass."""
        entry, known = int(self.layouts.entry[self.order[at[0]]]), self.layouts.layouts
        fingerprint, selected = int(known.fingerprint[entry]), known.positions(entry)
        while len(at):
            rows, order = self._few(self.order[at])
            try:
                return encode(rows, order, self.layout(fingerprint), self.options, selected, self.now_ms), at
            except BadRows as bad:
                is_bad = np.isin(order, bad.rows)
                self.refuse(BadRows(str(bad), bad.reason, self.order[at[is_bad]].tolist()), fingerprint)
                at = at[~is_bad]
        return pa.array([], pa.binary()), at

    def _few(self, row: Numbers) -> tuple[pa.RecordBatch, Numbers]:
        """These rows, without the others if they are many: an encoder looks at all rows that it is given."""
        if 2 * len(row) < self.rows.num_rows:
            return self.rows.take(pa.array(row)), np.arange(len(row))
        return self.rows, row


def encode_together(
    rows: pa.RecordBatch, order: Numbers, layouts: RowLayouts, options: Encoding, now_ms: int
) -> pa.Array:
    if isinstance(options, CsvOptions):
        return mixed_csv.encode(rows, order, layouts, options)
    return mixed_canal_json.encode(rows, order, layouts, options, now_ms)


def has_header(options: Encoding) -> bool:
    return isinstance(options, CsvOptions) and options.output_field_header


def header(layout: Layout, options: Encoding, selected: tuple[int, ...] | None = None) -> bytes:
    """The bytes at the beginning of every data file; none for canal-json."""
    return csv.header(layout, options, selected) if isinstance(options, CsvOptions) else b""
