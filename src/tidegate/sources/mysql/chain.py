"""What of the log is at hand, in its order: an index by columns over the relay. Pure.

An *item* is a transaction, or a tick or a chunk between two (`windows`). Items and row events have running numbers that
never change. Only row events of followed tables are in the index, so the cost of all others ends with the pump. What
was accepted is released from the front. Row events behind the last item belong to a transaction that has not ended.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tidegate.errors import BrokenInvariant
from tidegate.sources.mysql.log.framing import UPDATE_1, UPDATE_2
from tidegate.sources.mysql.log.images import Numbers
from tidegate.sources.mysql.windows import Place

_ITEM_COLUMNS = ("ts", "file", "at", "origin", "number", "rows_end", "bytes_end", "updates")
_ROW_COLUMNS = ("segment", "start", "size", "kind", "table", "ordinal", "table_id", "bytes_end")


class Growing:
    """Columns of numbers that grow at the end and are released at the front. Numbers of rows never change."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._held = np.zeros((len(names), 1024), np.int64)
        self.first = 0
        self.end = 0

    def __len__(self) -> int:
        return self.end - self.first

    @property
    def held_bytes(self) -> int:
        return len(self) * 8 * len(self._names)

    def append(self, *columns: Any) -> None:
        """One array for each column, all of one length; a number stands for as many of it."""
        count = next(len(column) for column in columns if isinstance(column, np.ndarray))
        if not count:
            return
        self._make_room(count)
        at = len(self)
        for held, column in zip(self._held, columns, strict=True):
            held[at : at + count] = column
        self.end += count

    def __getitem__(self, name: str) -> Numbers:
        """A column, from row `first` on."""
        found: Numbers = self._held[self._names.index(name), : len(self)]
        return found

    def part(self, name: str, first: int, last: int) -> Numbers:
        """A column of rows `first` to `last` - 1."""
        return self[name][first - self.first : last - self.first]

    def one(self, name: str, number: int) -> int:
        return int(self._held[self._names.index(name), number - self.first])

    def release(self, number: int) -> None:
        """Rows below this number are not needed any more."""
        gone = min(number, self.end) - self.first
        if gone > 0:
            left = len(self) - gone
            self._held[:, :left] = self._held[:, gone : gone + left].copy()
            self.first += gone

    def cut(self, number: int) -> None:
        """Forget rows from this number on."""
        self.end = max(self.first, min(self.end, number))

    def _make_room(self, count: int) -> None:
        needed = len(self) + count
        if needed > self._held.shape[1]:
            grown = np.zeros((len(self._names), max(needed, 2 * self._held.shape[1])), np.int64)
            grown[:, : len(self)] = self._held[:, : len(self)]
            self._held = grown


class Spot(NamedTuple):
    """Where reading is: `item` is the next one, of which rows before row event `row` were handed out."""

    item: int
    row: int


@dataclass(frozen=True)
class Extra:
    """What an item has besides row events: rows of kind `ddl` with their layouts, or a part of a chunk of a table."""

    ddl: tuple[Any, ...] = ()
    chunk: str = ""
    table_id: int = -1
    size_bytes: int = 0


@dataclass
class Chain:
    """`begin_ts` is the last commit-ts before the first item."""

    begin_ts: int
    begin_file: int
    begin_at: int
    items: Growing = field(default_factory=lambda: Growing(_ITEM_COLUMNS))
    rows: Growing = field(default_factory=lambda: Growing(_ROW_COLUMNS))
    extras: dict[int, Extra] = field(default_factory=dict)
    _before: dict[str, int] = field(default_factory=dict)  # the columns of the last item that was released

    def __post_init__(self) -> None:
        zeros = dict.fromkeys(_ITEM_COLUMNS, 0)
        self._before = zeros | {"ts": self.begin_ts, "file": self.begin_file, "at": self.begin_at, "origin": -1}

    @property
    def held_bytes(self) -> int:
        return self.items.held_bytes + self.rows.held_bytes

    # -- growing -----------------------------------------------------------------------------------------------------

    def add_rows(
        self, segment: int, start: Numbers, size: Numbers, kind: Numbers, table: Numbers, ordinal: Numbers, ids: Numbers
    ) -> None:
        """Row events of followed tables, of this transaction or the next ones."""
        before = self.rows.one("bytes_end", self.rows.end - 1) if len(self.rows) else self._before["bytes_end"]
        self.rows.append(segment, start, size, kind, table, ordinal, ids, before + np.cumsum(size))

    def add_items(
        self, ts: Numbers, file: int, at: Numbers, origin: Numbers, number: Numbers, rows_end: Numbers
    ) -> None:
        """Transactions that have ended; `rows_end` is the number behind the last row event of each."""
        first = self.last("rows_end")
        if len(ts) and (int(ts[0]) <= self.last("ts") or (np.diff(ts) <= 0).any()):
            raise BrokenInvariant(f"commit-ts {ts.min()} follows {self.last('ts')}")
        kinds = self.rows.part("kind", first, int(rows_end[-1])) if len(ts) else np.zeros(0, np.int64)
        updates = np.concatenate([[0], np.cumsum((kinds == UPDATE_1) | (kinds == UPDATE_2))])
        bounds = np.concatenate([[first], rows_end])
        count = np.diff(updates[bounds - first])
        self.items.append(ts, file, at, origin, number, rows_end, self._bytes_at(rows_end), count)

    def add_extra(self, item: int, extra: Extra) -> None:
        self.extras[item] = extra

    def add_virtual(self, place: Place, chunk: Extra | None = None) -> None:
        """A tick or a chunk at the end."""
        if chunk is not None:
            self.extras[self.items.end] = chunk
        origin, number, rows_end = (np.array([self.last(name)]) for name in ("origin", "number", "rows_end"))
        where = (np.array([place.ts]), place.file, place.at)
        self.items.append(*where, origin, number, rows_end, self._bytes_at(rows_end), 0)

    def forget_open(self) -> None:
        """The transaction that has not ended is read again."""
        self.rows.cut(self.last("rows_end"))

    def _bytes_at(self, row: Numbers) -> Numbers:
        """The bytes of all row events before these."""
        ends = np.concatenate([[self._bytes_before_first], self.rows["bytes_end"]])
        return ends[row - self.rows.first]

    @property
    def _bytes_before_first(self) -> int:
        if not len(self.rows):
            return self._before["bytes_end"]
        return self.rows.one("bytes_end", self.rows.first) - self.rows.one("size", self.rows.first)

    # -- looking -----------------------------------------------------------------------------------------------------

    def last(self, name: str) -> int:
        """A column of the last item."""
        return self.of(self.items.end - 1, name)

    def of(self, item: int, name: str) -> int:
        """A column of this item, which may be the one before the first."""
        return self._before[name] if item < self.items.first else self.items.one(name, item)

    def item_after(self, ts: int) -> int:
        """The number of the first item with a greater commit-ts."""
        return self.items.first + int(np.searchsorted(self.items["ts"], ts, side="right"))

    def item_behind(self, file: int, at: int) -> int:
        """The number of the first item that ends behind this place of the log."""
        behind = (self.items["file"] > file) | (self.items["file"] == file) & (self.items["at"] > at)
        return self.items.first + (int(np.argmax(behind)) if behind.any() else len(self.items))

    def rows_of(self, item: int) -> tuple[int, int]:
        return self.of(item - 1, "rows_end"), self.of(item, "rows_end")

    def item_of(self, rows: Numbers) -> Numbers:
        """The items of these row events."""
        return self.items.first + np.searchsorted(self.items["rows_end"], rows, side="right")

    def spot(self, ts: int, event: int) -> Spot:
        """The spot behind commit-ts `ts`, and behind the events with a smaller ordinal of the item there."""
        item = self.item_after(ts)
        first = self.of(item - 1, "rows_end")
        if not event or item >= self.items.end:
            return Spot(item, first)
        ordinals = self.rows.part("ordinal", first, self.of(item, "rows_end"))
        return Spot(item, first + int(np.searchsorted(ordinals, event)))

    # -- releasing ---------------------------------------------------------------------------------------------------

    def release(self, item: int) -> None:
        """Items below this one are not needed any more, and their row events neither."""
        item = min(item, self.items.end)
        if item <= self.items.first:
            return
        self._before = {name: self.items.one(name, item - 1) for name in _ITEM_COLUMNS}
        for number in [number for number in self.extras if number < item]:
            del self.extras[number]
        self.items.release(item)
        self.rows.release(self._before["rows_end"])
