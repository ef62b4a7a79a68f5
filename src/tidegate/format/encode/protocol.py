"""One entry for both protocols: ingest, landing, verify and the command line call this module to encode rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import BadEvents
from tidegate.format.encode import canal_json, csv, mixed_canal_json, mixed_csv
from tidegate.format.encode.canal_json import CanalOptions
from tidegate.format.encode.csv import CsvOptions
from tidegate.format.layout_columns import LayoutOf, RowLayouts
from tidegate.format.pieces import Numbers
from tidegate.format.tables import Layout

Encoding = CsvOptions | CanalOptions
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
    """The same for rows of many layouts; `layout` gives one by its fingerprint.

    Layouts with many rows are encoded alone, which costs less for each row. All others are encoded together, which
    costs nothing for each layout. If a row is wrong, each layout is encoded alone: that says which row it is.
    """
    if len(layouts.layouts.fingerprint) == 1:
        return _alone(rows, order, layouts, layout, options, now_ms)
    entry = layouts.entry[order]
    rows_of = np.bincount(entry, minlength=len(layouts.layouts.fingerprint))
    alone = np.flatnonzero(rows_of >= _MANY_ROWS)
    together = np.flatnonzero(rows_of[entry] < _MANY_ROWS)
    parts = [np.flatnonzero(entry == one) for one in alone.tolist()]
    found = [_alone(rows, order[part], layouts, layout, options, now_ms) for part in parts]
    if len(together):
        try:
            found.append(encode_together(rows, order[together], layouts, options, now_ms))
            parts.append(together)
        except BadEvents:
            parts += (split := np.split(together[np.argsort(entry[together], kind="stable")], _bounds(entry[together])))
            found += [_alone(rows, order[part], layouts, layout, options, now_ms) for part in split]
    if len(parts) == 1:
        return found[0]
    place = np.empty(len(order), np.int64)
    place[np.concatenate(parts)] = np.arange(len(order))
    return pc.take(pa.concat_arrays(found), pa.array(place))


def _bounds(entry: Numbers) -> Numbers:
    """Where the next entry begins, when these are sorted."""
    return np.flatnonzero(np.diff(np.sort(entry))) + 1


def encode_together(
    rows: pa.RecordBatch, order: Numbers, layouts: RowLayouts, options: Encoding, now_ms: int
) -> pa.Array:
    if isinstance(options, CsvOptions):
        return mixed_csv.encode(rows, order, layouts, options)
    return mixed_canal_json.encode(rows, order, layouts, options, now_ms)


def _alone(
    rows: pa.RecordBatch, order: Numbers, layouts: RowLayouts, layout: LayoutOf, options: Encoding, now_ms: int
) -> pa.Array:
    """Rows that have one layout."""
    entry, known = int(layouts.entry[order[0]]), layouts.layouts
    if 2 * len(order) < rows.num_rows:  # an encoder looks at all rows that it is given
        rows, order = rows.take(pa.array(order)), np.arange(len(order))
    return encode(rows, order, layout(int(known.fingerprint[entry])), options, known.positions(entry), now_ms)


def has_header(options: Encoding) -> bool:
    return isinstance(options, CsvOptions) and options.output_field_header


def header(layout: Layout, options: Encoding, selected: tuple[int, ...] | None = None) -> bytes:
    """The bytes at the beginning of every data file; none for canal-json."""
    return csv.header(layout, options, selected) if isinstance(options, CsvOptions) else b""
