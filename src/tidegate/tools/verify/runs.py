"""What the data files should hold: the rows of the source, cut into runs of one table and version, as text.

Rows are filtered, selected, split and encoded as the changefeed does it. Runs come in the order in which a reader meets
them in the files of a table: by version, then by time. So it does not matter when a name belongs to which table id:
rows of a new id follow those of the old one, and tables that swap their names do not mix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.config.settings import Settings
from tidegate.errors import BadEvents
from tidegate.format.bad_rows import RowKey, unwritable
from tidegate.format.ddl.events import DB, NORMAL, DdlEvent
from tidegate.format.encode import protocol
from tidegate.format.encode.spans import spans_of
from tidegate.format.layout_columns import LayoutColumns, RowLayouts, distinct_layouts
from tidegate.format.rules.changes import Latest, Rows, Splitter, TableRules, key_changes, latest_of, numbers
from tidegate.format.tables import Layout
from tidegate.reader.replay import TableFiles, TableKey

Ints = npt.NDArray[np.int64]

STAMP_MS = 10**12  # in place of the moment of writing, which every line of canal-json has
_HEAD = ("schema_name", "table_name", "table_id", "table_version", "logical_table_id")


@dataclass(eq=False)
class Table:
    """How far one table is compared: `rows` of it, `rows_before` of them in front of the current file."""

    key: TableKey
    name: str
    files: TableFiles
    number: int = 0  # sorts tables
    met: tuple[int, int] | None = None  # id and version of the rows that came last
    directory: int = -1  # the version in the path of those rows
    described: bool = False  # whether the schema file of that directory exists and is right
    rows: int = 0
    rows_before: int = 0
    header: bytes = b""  # of its current files


@dataclass(frozen=True)
class Run:
    """Consecutive rows of one table and version as they should be written: row i is `data[ends[i]:ends[i + 1]]`."""

    table: Table
    table_id: int
    directory: int
    described: bool
    ts: Ints
    data: pa.Buffer
    ends: Ints
    header: bytes

    def rows(self, first: int, last: int) -> bytes:
        """Rows `first` up to `last`, as one text."""
        text: bytes = self.data.slice(int(self.ends[first]), int(self.ends[last] - self.ends[first])).to_pybytes()
        return text


Place = tuple[int, int, int, int, int]  # number of the table, version, commit-ts, seq, table id


class _Due(NamedTuple):
    """A run before it is encoded: the numbers of its rows, in order; `place` sorts runs."""

    place: Place
    table: Table
    directory: int
    described: bool
    rows: Ints


class Head(NamedTuple):
    """What the first row of a run says about all of them, under the source's names."""

    schema: str
    table: str
    table_id: int
    version: int
    is_partition: bool
    layout: Layout
    span: int
    ts: int


# The table of a run, whose `directory` and `described` are set for it; None if all its files are compared.
Meet = Callable[[Head], Table | None]


class Runs:
    """Makes runs of rows; `layouts` may grow meanwhile."""

    def __init__(
        self,
        settings: Settings,
        rules: TableRules,
        layouts: dict[int, Layout],
        meet: Meet,
        aside: frozenset[RowKey] = frozenset(),
    ) -> None:
        self.set_aside = 0  # rows that were left out
        self._aside, self._aside_ts = aside, np.array([key.commit_ts for key in aside], np.int64)
        self._encoding, self._rules, self._layouts, self._meet = settings.encoding, rules, layouts, meet
        self._spans = settings.spans
        # A row whose key changes moves to another span, so such updates are split there in any case.
        self._splitter = Splitter(not settings.output_raw_change_event or settings.across_nodes)

    def of(self, rows: pa.RecordBatch, ddls: Iterable[tuple[int, DdlEvent]]) -> Iterator[Run]:
        """The runs of a batch, whose DDLs (by commit-ts) say which transactions have certainly ended."""
        ddls = list(ddls)
        ready = [self._ready(self._rules.kept(rows), ddls)]
        if any(event.dropped is not None and event.dropped.kind == DB for _, event in ddls):
            ready += self._waiting()
        yield from self._in_order(ready)

    def rest(self) -> Iterator[Run]:
        """The rows that waited for the end of their transaction, once no more of it can follow."""
        yield from self._in_order(self._waiting())

    def _waiting(self) -> list[Rows]:
        rest = self._splitter.rest()
        return [rest] if rest is not None else []

    def _ready(self, rows: pa.RecordBatch, ddls: list[tuple[int, DdlEvent]]) -> Rows:
        """Key-changing updates are split; inserts that may not be the last of their transaction wait."""
        latest, rows = _latest(rows, ddls), self._without_set_aside(rows)
        return self._splitter.take(rows, self._layouts_of(rows), latest)

    def _layouts_of(self, rows: pa.RecordBatch) -> RowLayouts:
        wanted = distinct_layouts(rows).tolist()
        if unknown := [fingerprint for fingerprint in wanted if fingerprint not in self._layouts]:
            raise BadEvents(f"rows of the source have the layout {unknown[0]}, which no layout row defines")
        return LayoutColumns.of(self._layouts[fingerprint] for fingerprint in wanted).of_rows(rows)

    def _without_set_aside(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows without those that cannot be written and were set aside. If one can be written, it has landed."""
        at = np.flatnonzero(np.isin(numbers(rows, "commit_ts"), self._aside_ts)) if self._aside else ()
        found = rows.take(pa.array(at, pa.int64()))
        keys = zip(*(numbers(found, name).tolist() for name in RowKey._fields), strict=True)
        is_aside = np.array([key in self._aside for key in keys], np.bool_)
        if not is_aside.any():
            return rows
        layouts, layout = self._layouts_of(found), self._layouts.__getitem__
        changed = key_changes(found, layouts) if self._splitter.enabled else None
        chosen = self._rules.selections(found, layouts, layout)
        is_aside &= unwritable(found, chosen, layout, self._encoding, changed)
        self.set_aside += int(is_aside.sum())
        keep = np.ones(rows.num_rows, np.bool_)
        keep[np.asarray(at)[is_aside]] = False
        return rows.filter(pa.array(keep))

    def _in_order(self, ready: Iterable[Rows]) -> Iterator[Run]:
        """The runs of these rows by table, version and time."""
        runs: list[tuple[Place, Run]] = []
        for rows in ready:
            if due := self._due(rows):
                runs += zip((one.place for one in due), self._encode(rows, due), strict=True)
        for _, run in sorted(runs, key=lambda one: one[0]):
            yield run

    def _due(self, rows: Rows) -> list[_Due]:
        """The runs that must be compared; a stream without files left has none."""
        span = spans_of(rows.events, self._layouts_of(rows.events), self._spans)
        order, (table_id, ts, seq) = rows.order(span if self._spans > 1 else None), rows.place()
        version, layout = (numbers(rows.events, name) for name in ("table_version", "layout"))
        changed = [np.diff(key[order]) != 0 for key in (table_id, span, version, layout)]
        bounds = np.concatenate([[0], np.flatnonzero(np.logical_or.reduce(changed)) + 1, [len(order)]])
        heads = rows.events.select(_HEAD).take(pa.array(order[bounds[:-1]])).to_pylist() if len(order) else []
        due = []
        for head, at in zip(heads, np.split(order, bounds[1:-1]), strict=True) if heads else ():
            first = int(at[0])
            table = self._meet(_head(head, self._layouts[int(layout[first])], int(span[first]), int(ts[first])))
            if table is not None:
                time = (int(ts[first]), int(seq[first]), int(table_id[first]))
                place = (table.number, head["table_version"], *time)
                due.append(_Due(place, table, table.directory, table.described, at))
        return due

    def _encode(self, rows: Rows, due: list[_Due]) -> Iterator[Run]:
        order, events = np.concatenate([one.rows for one in due]), rows.events
        if 2 * len(order) < events.num_rows:  # most rows are of tables that have no files left
            events, order = events.take(pa.array(order)), np.arange(len(order))
        layout = self._layouts.__getitem__
        chosen = self._rules.selections(events, self._layouts_of(events), layout)
        encoded = protocol.encode_mixed(self._rules.routed(events), order, chosen, layout, self._encoding, STAMP_MS)
        _, offsets, data = encoded.buffers()
        ends = np.frombuffer(offsets, np.int32)[encoded.offset : encoded.offset + len(order) + 1].astype(np.int64)
        bounds = np.concatenate([[0], np.cumsum([len(one.rows) for one in due])]).tolist()
        ts, headers = numbers(events, "commit_ts")[order], self._headers(chosen, order[bounds[:-1]])
        for one, low, high, header in zip(due, bounds[:-1], bounds[1:], headers, strict=True):
            text = data.slice(int(ends[low]), int(ends[high] - ends[low]))
            mine = ends[low : high + 1] - ends[low]
            yield Run(one.table, one.place[-1], one.directory, one.described, ts[low:high], text, mine, header)

    def _headers(self, chosen: RowLayouts, rows: Ints) -> Iterator[bytes]:
        """The headers of the files that these rows are in."""
        known = chosen.layouts
        for entry in chosen.entry[rows].tolist():
            layout = self._layouts[int(known.fingerprint[entry])]
            yield protocol.header(layout, self._encoding, known.positions(entry))


def _head(head: dict[str, Any], layout: Layout, span: int, ts: int) -> Head:
    schema, table, table_id, version, logical_id = (head[column] for column in _HEAD)
    return Head(schema, table, table_id, version, logical_id not in (None, table_id), layout, span, ts)


def _latest(rows: pa.RecordBatch, ddls: list[tuple[int, DdlEvent]]) -> Latest | None:
    """How far the tables have come, by rows or by a DDL that they wait for: nothing older can follow."""
    waiting = [(table_id, ts) for ts, event in ddls for table_id in _blocked(event)]
    ids, times = np.array(waiting, np.int64).reshape(-1, 2).T
    table_id, ts = np.append(numbers(rows, "table_id"), ids), np.append(numbers(rows, "commit_ts"), times)
    return latest_of(table_id, ts) if len(table_id) else None


def _blocked(event: DdlEvent) -> tuple[int, ...]:
    return event.blocked.table_ids if event.blocked is not None and event.blocked.kind == NORMAL else ()
