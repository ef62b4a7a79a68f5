"""The columns of many layouts as arrays, so that rows of many layouts are worked on together.

With as many layouts as tables, a Python step per layout costs more than all the rows. So the JSON of all layouts of a
batch is read by one call of Arrow's reader. What a column's type means is asked once for each distinct *definition*: a
column without its name, `Column("", "varchar", flen=64)`. A thousand tables have some dozens of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from tidegate.format.pieces import Flags, Numbers
from tidegate.format.tables import Column, Layout, Selected, shortest_key

LayoutOf = Callable[[int], Layout]  # by fingerprint

_TYPE_FIELDS = {
    "flen": pa.int64(), "decimals": pa.int64(), "unsigned": pa.bool_(), "zerofill": pa.bool_(), "binary": pa.bool_(),
    "elems": pa.list_(pa.binary()),
}  # fmt: skip
_OTHER_FIELDS = dict.fromkeys(("pk", "nullable", "virtual"), pa.bool_())
_COLUMN = pa.struct([("name", pa.binary()), ("type", pa.string()), *_TYPE_FIELDS.items(), *_OTHER_FIELDS.items()])
_LAYOUT = pa.schema([("columns", pa.list_(_COLUMN)), ("unique_keys", pa.list_(pa.list_(pa.binary())))])


@dataclass(frozen=True)
class LayoutColumns:
    """Entries, each a layout and the columns of it that are written. Arrays by column have the stored columns only.

    Entry i has the columns `first[i]` to `first[i + 1]`, and its keys are at the positions `key_position` of
    `key_first[i]` to `key_first[i + 1]`. Before columns are selected, entries are sorted by fingerprint.
    """

    fingerprint: Numbers
    first: Numbers
    definition: npt.NDArray[np.int32]  # of each column, its number in `definitions`
    definitions: tuple[Column, ...]
    name: pa.Array  # of each column, as bytes
    shown: Flags  # whether the column is written
    handle: Flags  # whether it is one of those that identify a row
    key_first: Numbers
    key_position: Numbers
    primary: pa.ListArray  # by entry, the names of the columns of the primary key
    splitable: Flags  # by entry: it has a primary key and no other unique key

    @staticmethod
    def parse(fingerprints: Numbers, texts: pa.Array) -> LayoutColumns:
        """The layouts with these fingerprints, which are sorted, from the texts of `Layout.to_json`."""
        return _columns(fingerprints, _read(texts).combine_chunks())

    @staticmethod
    def of(layouts: Iterable[Layout]) -> LayoutColumns:
        known = {layout.fingerprint: layout.to_json() for layout in layouts}
        keys = sorted(known)
        return LayoutColumns.parse(np.array(keys, np.int64), pa.array([known[key] for key in keys], pa.string()))

    @property
    def width(self) -> Numbers:
        """By entry, how many values a row of it has."""
        return np.diff(self.first)

    def of_rows(self, events: pa.RecordBatch) -> RowLayouts:
        """The entry of each of these rows, whose layouts are all here."""
        if len(self.fingerprint) == 1:
            return RowLayouts(self, np.zeros(events.num_rows, np.int64))
        return RowLayouts(self, np.searchsorted(self.fingerprint, events.column("layout").to_numpy()))

    def positions(self, entry: int) -> Selected:
        """The positions of the columns of an entry that are written; None for all."""
        shown = self.shown[self.first[entry] : self.first[entry + 1]]
        return None if shown.all() else tuple(np.flatnonzero(shown).tolist())

    def selected(self, entries: Sequence[tuple[int, Selected]]) -> LayoutColumns:
        """Entries like these ones, of which only the selected columns are written."""
        chosen = self._take(np.array([entry for entry, _ in entries], np.int64))
        shown = chosen.shown.copy()
        for at, (_, positions) in enumerate(entries):
            if positions is not None:
                low, high = chosen.first[at : at + 2]
                shown[low:high] = np.isin(np.arange(high - low), positions)
        return replace(chosen, shown=shown)

    def with_handles(self) -> LayoutColumns:
        """These entries, and then each of them again with only its handle key written."""
        count = len(self.fingerprint)
        twice = self._take(np.tile(np.arange(count), 2))
        shown = twice.shown & (twice.handle | (np.arange(len(twice.shown)) < len(self.shown)))
        return replace(twice, shown=shown)

    def _take(self, entries: Numbers) -> LayoutColumns:
        first, columns = _ranges(self.first, entries)
        key_first, keys = _ranges(self.key_first, entries)
        return replace(
            self, fingerprint=self.fingerprint[entries], first=first, definition=self.definition[columns],
            name=self.name.take(pa.array(columns)), shown=self.shown[columns], handle=self.handle[columns],
            key_first=key_first, key_position=self.key_position[keys], primary=self.primary.take(pa.array(entries)),
            splitable=self.splitable[entries],
        )  # fmt: skip


class RowLayouts(NamedTuple):
    """The layout of each row of a batch."""

    layouts: LayoutColumns
    entry: Numbers

    @property
    def width(self) -> Numbers:
        """How many values each row has."""
        return self.layouts.width[self.entry]

    def take(self, rows: Flags | Numbers) -> RowLayouts:
        return RowLayouts(self.layouts, self.entry[rows])

    def keys(self, rows: Numbers) -> Iterator[tuple[Numbers, Numbers]]:
        """The positions of the key columns of these rows, in steps: which of `rows`, and the position in each.

        The first step has the first key column of every row that has a key, the next the second, and so on.
        """
        if len(self.layouts.fingerprint) == 1:  # the hot path: one position for all rows
            for position in self.layouts.key_position:
                yield np.arange(len(rows)), np.array([position])
            return
        entry = self.entry[rows]
        first, count = self.layouts.key_first[entry], np.diff(self.layouts.key_first)[entry]
        for step in range(int(count.max(initial=0))):
            which = np.flatnonzero(count > step)
            yield which, self.layouts.key_position[first[which] + step]


def distinct_layouts(events: pa.RecordBatch) -> Numbers:
    """The fingerprints of these rows, sorted, each once."""
    found: Numbers = np.sort(pc.unique(events.column("layout")).to_numpy(zero_copy_only=False).astype(np.int64))
    return found


def alike(layout: Layout, events: pa.RecordBatch) -> RowLayouts:
    """All of these rows have this layout."""
    return RowLayouts(LayoutColumns.of([layout]), np.zeros(events.num_rows, np.int64))


def _ranges(first: Numbers, entries: Numbers) -> tuple[Numbers, Numbers]:
    """The ranges that begin at `first` of these entries, one behind the other: where each begins, and all positions."""
    counts = np.diff(first)[entries]
    starts = np.append(0, np.cumsum(counts))
    return starts, np.arange(starts[-1]) + np.repeat(first[:-1][entries] - starts[:-1], counts)


# Reading ------------------------------------------------------------------------------------------------------------


def _read(texts: pa.Array) -> pa.Table:
    """A row of `_LAYOUT` for each text. What Arrow cannot read, such as a name that is not UTF-8, is read by Python."""
    if not len(texts):
        return _LAYOUT.empty_table()
    data = b"\n".join(texts.cast(pa.binary()).to_pylist())
    options = pa_json.ParseOptions(explicit_schema=_LAYOUT, unexpected_field_behavior="ignore")
    try:
        found = pa_json.read_json(pa.BufferReader(data), pa_json.ReadOptions(False, len(data) + 1), options)
        if found.num_rows == len(texts) and not found["columns"].null_count:
            return found
    except pa.ArrowInvalid:
        pass
    if len(texts) == 1:
        return pa.Table.from_pylist([_layout_row(Layout.from_json(texts[0].as_py()))], _LAYOUT)
    half = len(texts) // 2
    return pa.concat_tables([_read(texts.slice(0, half)), _read(texts.slice(half))])


def _layout_row(layout: Layout) -> dict[str, Any]:
    columns = [
        {name: getattr(column, name) for name in _COLUMN.names}
        | {"name": _encoded(column.name), "elems": [_encoded(elem) for elem in column.elems] or None}
        for column in layout.columns
    ]
    return {"columns": columns, "unique_keys": [[_encoded(name) for name in key] for key in layout.unique_keys] or None}


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _columns(fingerprints: Numbers, table: pa.Table) -> LayoutColumns:
    count, columns, owner = _flattened(table["columns"])
    name, pk = columns.field("name"), _flags(columns, "pk", False)
    key_count, key_names, key_owner = _unique_names(table["unique_keys"])
    in_unique = _among(name, owner, key_names, key_owner)
    stored = np.flatnonzero(~_flags(columns, "virtual", False))
    definition, definitions = _definitions(columns.take(pa.array(stored)))
    at, first = owner[stored], _bounds(owner[stored], count)
    keys = np.flatnonzero((pk | in_unique)[stored])
    primary = np.flatnonzero(pk)
    primary_first = _bounds(owner[primary], count)
    keyless = np.flatnonzero((np.diff(primary_first) == 0) & (key_count > 0))
    return LayoutColumns(
        fingerprint=fingerprints,
        first=first,
        definition=definition,
        definitions=definitions,
        name=name.take(pa.array(stored)),
        shown=np.ones(len(stored), np.bool_),
        handle=(pk | _unique_handles(table, columns, owner, keyless))[stored],
        key_first=_bounds(at[keys], count),
        key_position=keys - first[at[keys]],
        primary=pa.ListArray.from_arrays(pa.array(primary_first, pa.int32()), name.take(pa.array(primary))),
        splitable=(np.diff(primary_first) > 0) & (key_count == 0),
    )


def _flattened(lists: pa.ChunkedArray) -> tuple[int, pa.Array, Numbers]:
    """How many lists there are, their values, and for each value the number of its list."""
    values = lists.combine_chunks()
    sizes = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
    return len(values), values.flatten(), np.repeat(np.arange(len(values)), sizes)


def _bounds(owner: Numbers, count: int) -> Numbers:
    """Where the values of each owner begin, and where those of the last one end; `owner` is sorted."""
    return np.searchsorted(owner, np.arange(count + 1))


def _flags(columns: pa.Array, name: str, unset: bool) -> Flags:
    flags: Flags = pc.fill_null(columns.field(name), unset).to_numpy(zero_copy_only=False)
    return flags


def _unique_names(lists: pa.ChunkedArray) -> tuple[Numbers, pa.Array, Numbers]:
    """By layout the number of its unique keys; the names of their columns, and the layout of each name."""
    count, keys, owner = _flattened(lists)
    _, names, key = _flattened(pa.chunked_array([keys]))
    return np.bincount(owner, minlength=count), names, owner[key]


def _among(names: pa.Array, owner: Numbers, others: pa.Array, other_owner: Numbers) -> Flags:
    """Which of the names are also among the others, of the same owner."""
    if not len(others):
        return np.zeros(len(names), np.bool_)
    one, two = (
        pc.binary_join_element_wise(pa.array(number).cast(pa.string()).cast(pa.binary()), text, b":")
        for number, text in ((owner, names), (other_owner, others))
    )
    found: Flags = pc.is_in(one, two).to_numpy(zero_copy_only=False)
    return found


def _unique_handles(table: pa.Table, columns: pa.Array, owner: Numbers, entries: Numbers) -> Flags:
    """The columns of the handle key of these layouts, which have no primary key. Few tables are like that."""
    found = np.zeros(len(columns), np.bool_)
    bounds = _bounds(owner, table.num_rows)
    for entry, keys in zip(entries.tolist(), table["unique_keys"].take(pa.array(entries)).to_pylist(), strict=True):
        mine = columns.slice(bounds[entry], bounds[entry + 1] - bounds[entry]).to_pylist()
        nullable = {column["name"] for column in mine if column["nullable"] is not False}
        handle = shortest_key(keys, nullable)
        found[bounds[entry] : bounds[entry + 1]] = [column["name"] in handle for column in mine]
    return found


def _definitions(columns: pa.Array) -> tuple[npt.NDArray[np.int32], tuple[Column, ...]]:
    """A number for each column, equal where all but the names is equal, and what stands behind each number."""
    code = np.zeros(len(columns), np.int64)
    for field in ("type", *_TYPE_FIELDS):
        values = columns.field(field)
        if field == "elems":
            values = _spelled(values)
        if values.null_count < len(values):
            encoded = values.dictionary_encode(null_encoding="encode")
            code = code * len(encoded.dictionary) + encoded.indices.to_numpy()
            code = pa.array(code).dictionary_encode().indices.to_numpy().astype(np.int64)
    _, examples, number = np.unique(code, return_index=True, return_inverse=True)
    found = columns.take(pa.array(examples)).to_pylist()
    return number.astype(np.int32), tuple(_definition(values) for values in found)


def _spelled(elems: pa.Array) -> pa.Array:
    """Lists of elements as one text each: `3:red5:green`, so that no other list has the same text."""
    if elems.null_count == len(elems):
        return pa.nulls(len(elems), pa.binary())
    names = elems.flatten()
    sizes = pc.binary_length(names).cast(pa.string()).cast(pa.binary())
    spelled = pc.binary_join_element_wise(sizes, names, b":")
    ends = np.append(0, np.cumsum(pc.fill_null(pc.list_value_length(elems), 0).to_numpy(zero_copy_only=False)))
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(ends, pa.int32()), spelled), b"")


def _definition(values: dict[str, Any]) -> Column:
    kept = {name: values[name] for name in _TYPE_FIELDS if values[name] is not None}
    elems = tuple(elem.decode("utf-8", "surrogateescape") for elem in kept.pop("elems", ()))
    return Column("", values["type"], **kept, elems=elems)
