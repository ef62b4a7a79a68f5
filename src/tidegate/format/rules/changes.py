"""What happens to row changes before encoding: filter, route, select columns, split updates of keys.

Rules depend only on table names, so they are asked once per distinct name and the answers are applied to all rows.
An update that changes a value of the primary key or of a unique key becomes a delete, which keeps its place, and an
insert, which *moves* to the end of its transaction. Otherwise a reader that applies rows one by one could insert a key
that another row of the same transaction still has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.events import DELETE, INSERT, UPDATE
from tidegate.format.layout import check_names
from tidegate.format.layout_columns import LayoutOf, RowLayouts
from tidegate.format.pieces import Flags, Numbers, codes
from tidegate.format.rules.rules import Rules, is_system_schema
from tidegate.format.tables import Layout, Selected


@dataclass
class TableRules:
    """The rules of a changefeed with a cache of their answers; each task has its own."""

    rules: Rules
    _ignored: dict[tuple[str, str], frozenset[str] | None] = field(default_factory=dict)
    _targets: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    _selected: dict[tuple[str, str, int], Selected] = field(default_factory=dict)

    def kept(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that the filter keeps."""
        if self.rules.filters_nothing and not self._holds_system_schemas(rows):
            return rows
        name, names = _names(rows)
        ignored = [self._ignored_kinds(*each) for each in names]
        keep = np.array([kinds is not None for kinds in ignored])[name]
        kind, kinds = codes(rows, "kind")
        for code, word in enumerate(kinds.to_pylist()):
            without = np.array([each is None or word not in each for each in ignored])
            keep &= without[name] | (kind != code)
        if self.rules.ignored_start_ts:
            keep &= ~np.isin(rows.column("start_ts").fill_null(0).to_numpy(), list(self.rules.ignored_start_ts))
        return rows if keep.all() else rows.filter(pa.array(keep))

    def left_out(self, most: int) -> list[tuple[str, str]]:
        """Tables of which rows were left out, as the source names them, at most so many."""
        return list(islice((name for name, kinds in self._ignored.items() if kinds is None or kinds), most))

    def _holds_system_schemas(self, rows: pa.RecordBatch) -> bool:
        names = rows.column("schema_name")
        if rows.num_rows and pc.all(pc.equal(names, names[0])).as_py():  # the usual case, and fast to check
            names = names.slice(0, 1)
        return any(is_system_schema(name) for name in pc.unique(names).to_pylist())

    def _ignored_kinds(self, schema: str, table: str) -> frozenset[str] | None:
        """The kinds of row changes that are left out for this table; None if the whole table is left out."""
        key = (schema, table)
        if key not in self._ignored:
            kept = self.rules.filter.matches(schema, table)
            self._ignored[key] = self.rules.event_filters.ignored_kinds(schema, table) if kept else None
        return self._ignored[key]

    def selections(self, rows: pa.RecordBatch, layouts: RowLayouts, layout: LayoutOf) -> RowLayouts:
        """The layouts of these rows, with the columns that are written; `layout` gives one by its fingerprint."""
        if self.rules.selects_everything:
            return layouts
        name, names = _names(rows)
        pairs = pa.array(layouts.entry * len(names) + name).dictionary_encode()
        entries, tables = np.divmod(pairs.dictionary.to_numpy(), max(1, len(names)))
        keys = layouts.layouts.fingerprint[entries].tolist()
        concerned = [self.rules.selectors.concern(schema, table) for schema, table in names]
        chosen = [
            self.selected(names[at][0], names[at][1], layout(key)) if concerned[at] else None
            for at, key in zip(tables.tolist(), keys, strict=True)
        ]
        both = list(zip(entries.tolist(), chosen, strict=True))
        numbers = {pair: number for number, pair in enumerate(dict.fromkeys(both))}
        number = np.array([numbers[pair] for pair in both], np.int64)
        return RowLayouts(layouts.layouts.selected(list(numbers)), number[pairs.indices.to_numpy()])

    def selected(self, schema: str, table: str, layout: Layout) -> Selected:
        """Positions among the stored columns that a column selector keeps for this table; None for all."""
        key = (schema, table, layout.fingerprint)
        if key not in self._selected:
            self._selected[key] = self.rules.selectors.selected(schema, table, layout)
        return self._selected[key]

    def routed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows under their target names."""
        if self.rules.routes_nothing:
            return rows
        name, names = _names(rows)
        targets = [self.target(*each) for each in names]
        at = pa.array(name)
        for column, texts in zip(("schema_name", "table_name"), zip(*targets, strict=True), strict=True):
            rows = rows.set_column(rows.schema.get_field_index(column), column, pa.array(texts, pa.string()).take(at))
        return rows

    def ddl_target(self, schema: str, table: str) -> tuple[str, str]:
        """Like `target`; a database has table ""."""
        return self.target(schema, table) if table else self.rules.routes.target(schema, "")

    def target(self, schema: str, table: str) -> tuple[str, str]:
        """The names under which this table lands. A name that cannot be a path is refused: it could never land."""
        key = (schema, table)
        if key not in self._targets:
            target = self.rules.routes.target(schema, table)
            check_names(*target)
            self._targets[key] = target
        return self._targets[key]


def _names(rows: pa.RecordBatch) -> tuple[npt.NDArray[np.int32], list[tuple[str, str]]]:
    """A number for each row's table, and the (schema, table) of each number."""
    table, tables = codes(rows, "table_name")
    schema, schemas = codes(rows, "schema_name")
    pairs = pa.array(schema.astype(np.int64) * len(tables) + table).dictionary_encode()
    schema_at, table_at = np.divmod(pairs.dictionary.to_numpy(), max(1, len(tables)))
    texts = schemas.take(pa.array(schema_at)).to_pylist(), tables.take(pa.array(table_at)).to_pylist()
    return pairs.indices.to_numpy(), list(zip(*texts, strict=True))


def key_changes(rows: pa.RecordBatch, layouts: RowLayouts) -> Flags | None:
    """Which rows are updates that change a value of a key; None if no row is."""
    update = pc.equal(rows.column("kind"), UPDATE).to_numpy(zero_copy_only=False)
    if not update.any():
        return None
    width = layouts.width
    at = np.flatnonzero(update & _whole(rows, "before", width) & _whole(rows, "after", width))
    changed = np.zeros(rows.num_rows, np.bool_)
    for which, position in layouts.keys(at):
        old, new = (_values(rows, side, at[which], position) for side in ("before", "after"))
        equal = pc.or_(pc.fill_null(pc.equal(old, new), False), pc.and_(pc.is_null(old), pc.is_null(new)))
        changed[at[which]] |= ~equal.to_numpy(zero_copy_only=False)
    return changed if changed.any() else None


def _whole(rows: pa.RecordBatch, side: str, width: Numbers) -> Flags:
    """Rows with a value for every column. The encoder reports what is wrong with the others."""
    lists = rows.column(side)
    whole: Flags = np.diff(lists.offsets.to_numpy()) == width
    return whole & lists.is_valid().to_numpy(zero_copy_only=False) if lists.null_count else whole


def _values(rows: pa.RecordBatch, side: str, at: Numbers, position: Numbers) -> pa.Array:
    lists = rows.column(side)
    return lists.values.take(pa.array(lists.offsets.to_numpy()[at].astype(np.int64) + position))


def split_updates(rows: pa.RecordBatch, changed: Flags) -> tuple[pa.RecordBatch, Flags]:
    """Turn these updates into deletes, in place, and inserts, after all rows. The flags mark these inserts."""
    kind = rows.schema.get_field_index("kind")
    deletes = pc.if_else(pa.array(changed), DELETE, rows.column(kind))
    inserts = rows.filter(pa.array(changed))
    inserts = inserts.set_column(kind, rows.schema.field(kind), pa.repeat(INSERT, inserts.num_rows))
    both = pa.concat_batches([rows.set_column(kind, rows.schema.field(kind), deletes), inserts])
    return both, np.arange(both.num_rows) >= rows.num_rows


@dataclass(frozen=True)
class Rows:
    """Rows for the encoder. `moved` marks inserts that go to the end of their transaction; None if there are none."""

    events: pa.RecordBatch
    moved: Flags | None = None

    def take(self, keep: Flags) -> Rows:
        return Rows(self.events.filter(pa.array(keep)), None if self.moved is None else self.moved[keep])

    def place(self) -> tuple[Numbers, Numbers, Numbers]:
        """Table id, commit-ts and seq of each row. A moved insert has the seq of its transaction's last row."""
        table_id, ts, seq = (numbers(self.events, name) for name in ("table_id", "commit_ts", "seq"))
        if self.moved is not None and self.moved.any():
            seq = _transaction_ends(table_id, ts, seq, self.moved)
        return table_id, ts, seq

    def order(self, span: Numbers | None = None) -> Numbers:
        """Row numbers sorted by dispatcher, commit-ts and seq; 0, 1, 2, ... if the rows are already in this order.

        `span` is the span of each row if tables are split.
        """
        table_id, ts, seq = (numbers(self.events, name) for name in ("table_id", "commit_ts", "seq"))
        if self.moved is not None or span is not None:
            moved = np.zeros(len(seq), np.bool_) if self.moved is None else self.moved
            return np.lexsort((seq, moved, ts, np.zeros(len(seq), np.int64) if span is None else span, table_id))
        same = table_id[1:] == table_id[:-1]
        rising = (ts[1:] > ts[:-1]) | ((ts[1:] == ts[:-1]) & (seq[1:] > seq[:-1]))
        runs = len(table_id) - int(same.sum())
        if (rising | ~same).all() and runs == len(np.unique(table_id)):
            return np.arange(len(table_id), dtype=np.int64)
        return np.lexsort((seq, ts, table_id))


@dataclass
class Splitter:
    """Splits updates that change a key, in batches that may end in the middle of a transaction.

    The moved inserts of each table's last transaction are kept for the next batch, which may continue the transaction.
    The last row of the transaction is kept with them: they share its seq, so they must be written together with it.
    `refused` is asked, before updates are split, which rows to leave out: of an update with a value that cannot be
    written, one half could be in a file before the other half is looked at.
    """

    enabled: bool = True
    refused: Callable[[pa.RecordBatch, RowLayouts, Flags], Flags] | None = None
    held: Rows | None = None  # the rows that are kept for the next batch

    def take(self, events: pa.RecordBatch, layouts: RowLayouts, latest: Latest | None = None) -> Rows:
        """These rows and those kept from earlier batches, without the rows that must wait again.

        `latest` is the last commit-ts of each table, if more is known than these rows say.
        """
        changed = key_changes(events, layouts) if self.enabled else None
        if changed is not None and self.refused is not None:
            kept = ~self.refused(events, layouts, changed)
            events, changed = events.filter(pa.array(kept)), changed[kept]
        if changed is None and self.held is None:
            return Rows(events)
        nothing = np.zeros(events.num_rows, np.bool_)
        events, moved = (events, nothing) if changed is None else split_updates(events, changed)
        if (held := self.held) is not None and held.moved is not None:
            events, moved = pa.concat_batches([held.events, events]), np.concatenate([held.moved, moved])
        rows = Rows(events, moved)
        wait = _unfinished(rows, moved, latest)
        self.held = rows.take(wait) if wait.any() else None
        return rows.take(~wait)

    def rest(self) -> Rows | None:
        """The rows that are still kept, when no batch follows."""
        rest, self.held = self.held, None
        return rest


def numbers(events: pa.RecordBatch, name: str) -> Numbers:
    array: Numbers = events.column(name).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return array


def _transaction_ends(table_id: Numbers, ts: Numbers, seq: Numbers, moved: Flags) -> Numbers:
    """The seq of each row; for a moved insert the greatest seq of its transaction."""
    order = np.lexsort((np.where(moved, np.iinfo(np.int64).min, seq), ts, table_id))
    starts = np.flatnonzero(np.append(True, (np.diff(table_id[order]) != 0) | (np.diff(ts[order]) != 0)))
    last = np.append(starts[1:], len(order)) - 1
    ends = np.empty_like(seq)
    ends[order] = np.repeat(seq[order[last]], np.diff(np.append(starts, len(order))))
    return np.where(moved, ends, seq)


def _unfinished(rows: Rows, moved: Flags, latest: Latest | None) -> Flags:
    table_id, ts, seq = rows.place()
    last = latest_of(table_id, ts)
    is_open = ts == last.of(table_id)
    if latest is not None:
        is_open &= latest.of(table_id) <= ts
    place = np.full(len(last.table_id), -1)
    table_at = np.searchsorted(last.table_id, table_id)
    place[table_at[is_open & moved]] = seq[is_open & moved]
    waits: Flags = is_open & (seq == place[table_at])
    return waits


@dataclass(frozen=True)
class Latest:
    """The last commit-ts of each table, sorted by table id."""

    table_id: Numbers
    ts: Numbers

    def of(self, table_id: Numbers) -> Numbers:
        """The last commit-ts of each of these tables; the smallest integer for an unknown table."""
        at = np.minimum(np.searchsorted(self.table_id, table_id), len(self.table_id) - 1)
        return np.where(self.table_id[at] == table_id, self.ts[at], np.iinfo(np.int64).min)


def latest_of(table_id: Numbers, ts: Numbers) -> Latest:
    tables, table_at = np.unique(table_id, return_inverse=True)
    last = np.full(len(tables), np.iinfo(np.int64).min)
    np.maximum.at(last, table_at, ts)
    return Latest(tables, last)
