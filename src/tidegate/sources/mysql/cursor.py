"""Offsets of the log, and how far to read from one: a pure computation over the index.

    {"file": "bin.000007", "pos": 1204, "gtid": "0-1-42", "ts": 463..., "bytes": 88120, "record": 12}

Everything up to `pos` was handed out, and `ts` is the last commit-ts there; ticks and chunks at one position differ in
it. `event` is there if the next transaction was cut: so many of its events are over. `bytes` counts what was handed
out, so that the difference of two offsets is their size. `behind` has the tables that are held back, with a place of
their own (number of the file, position, last commit-ts before, event): `{"103": [7, 900, 463..., 2]}`. `record` is the
number of the window (`windows`) in which the offset lies, `snap` says how far the snapshot is.

Transactions stay whole. One that is larger than the limit is cut at events, unless it has updates: an update of a key
must come with all of its transaction (decision 0023).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from tidegate.errors import BadSetting
from tidegate.events import MOST_HELD
from tidegate.sources.mysql.chain import Chain, Spot
from tidegate.sources.mysql.log.images import Flags, Numbers
from tidegate.sources.mysql.log.transactions import file_number
from tidegate.sources.mysql.windows import Place
from tidegate.sources.source import Offset

MOST_BEHIND = MOST_HELD


class Behind(NamedTuple):
    """Where a table is that is held back: the transaction behind this place, from this event on."""

    file: int
    at: int
    ts: int
    event: int = 0


@dataclass(frozen=True)
class Cursor:
    """An offset as a value. Without a file it is the place at which the changefeed began."""

    file: str = ""
    at: int = 0
    gtid: str = ""
    ts: int = 0
    size_bytes: int = 0
    event: int = 0
    record: int = 0
    behind: Mapping[int, Behind] = field(default_factory=dict)
    snap: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_first(self) -> bool:
        return not self.file

    def offset(self) -> Offset:
        shown: Offset = {"file": self.file, "pos": self.at, "gtid": self.gtid, "ts": self.ts, "bytes": self.size_bytes}
        shown |= {"record": self.record}
        if self.event:
            shown["event"] = self.event
        if self.behind:
            shown["behind"] = {str(table): [*place] for table, place in sorted(self.behind.items())}
        if self.snap:
            shown["snap"] = self.snap
        return shown

    @staticmethod
    def of(offset: Offset) -> Cursor:
        try:
            behind = {int(table): Behind(*map(int, place)) for table, place in offset.get("behind", {}).items()}
            numbers = (int(offset[name]) for name in ("pos", "ts", "bytes", "record"))
            at, ts, size, record = numbers
            event, snap = int(offset.get("event", 0)), dict(offset.get("snap", {}))
            return Cursor(str(offset["file"]), at, str(offset["gtid"]), ts, size, event, record, behind, snap)
        except (KeyError, TypeError, ValueError, AttributeError) as exc:
            raise BadSetting(f"position {offset!r} is not one in the log of a database") from exc

    @property
    def first_place(self) -> Place:
        """The least place of the log that is still needed."""
        main = Place(file_number(self.file), self.at, self.ts)
        return min([main, *(Place(place.file, place.at, place.ts) for place in self.behind.values())])


@dataclass(frozen=True)
class Stand:
    """A cursor in the index: the spot of all tables, and by table that is behind its next row event."""

    spot: Spot
    behind: Mapping[int, int] = field(default_factory=dict)


def stand_of(chain: Chain, cursor: Cursor) -> Stand:
    spot = chain.spot(cursor.ts, cursor.event)
    return Stand(spot, {table: _next_row(chain, table, place) for table, place in cursor.behind.items()})


def _next_row(chain: Chain, table: int, place: Behind) -> int:
    row = chain.spot(place.ts, place.event).row
    found = np.flatnonzero(chain.rows.part("table_id", row, chain.rows.end) == table)
    return row + int(found[0]) if len(found) else row


def cursor_of(chain: Chain, stand: Stand, before: Cursor, names: Names, handed_bytes: int) -> Cursor:
    """The record that it lies in is not known here."""
    item = stand.spot.item - 1
    first = chain.of(item, "rows_end")
    event = 0
    if stand.spot.row > first:
        event = chain.rows.one("ordinal", stand.spot.row - 1) + 1
    behind = {table: _behind(chain, row) for table, row in stand.behind.items()}
    return replace(
        before,
        file=names.file(chain.of(item, "file")),
        at=chain.of(item, "at"),
        gtid=names.gtid(chain.of(item, "origin"), chain.of(item, "number")) or before.gtid,
        ts=chain.of(item, "ts"),
        size_bytes=before.size_bytes + handed_bytes,
        event=event,
        behind=behind,
    )


def _behind(chain: Chain, row: int) -> Behind:
    item = int(chain.item_of(np.array([row]))[0]) - 1
    event = chain.rows.one("ordinal", row)
    return Behind(chain.of(item, "file"), chain.of(item, "at"), chain.of(item, "ts"), event)


class Names(NamedTuple):
    """How files and transactions are called: `bin.` and the texts of `Origins`."""

    base: str
    origins: tuple[str, ...]

    def file(self, number: int) -> str:
        return f"{self.base}{number:06d}"

    def gtid(self, origin: int, number: int) -> str:
        text = self.origins[origin] if origin >= 0 else ""
        return f"{text}{number}" if text else ""


# -- how far to read -------------------------------------------------------------------------------------------------


def advance(chain: Chain, start: Stand, limit_bytes: int, held: frozenset[int]) -> Stand:
    """The stand after one micro-batch without the held tables; `start` if there is nothing for it.

    Tables that catch up get half of the limit, the others the rest.
    """
    released = {table: row for table, row in start.behind.items() if table not in held}
    has_more = start.spot.item < chain.items.end
    caught_up = _catch_up(chain, start, limit_bytes // 2 if has_more else limit_bytes, released) if released else start
    used = handed_bytes(chain, start, caught_up)
    return _go_on(chain, caught_up, limit_bytes - used, held, must=caught_up == start)


def _catch_up(chain: Chain, start: Stand, budget: int, released: Mapping[int, int]) -> Stand:
    """Moves the released tables on, at most to where all others are."""
    first, last = min(released.values()), start.spot.row
    ids = chain.rows.part("table_id", first, last)
    numbers = np.arange(first, last)
    due = np.zeros(len(ids), np.bool_)
    for table, row in released.items():
        due |= (ids == table) & (numbers >= row)
    used = np.cumsum(np.where(due, chain.rows.part("size", first, last), 0))
    fitting = first + int(np.searchsorted(used, budget, side="right"))
    end = min(_whole(chain, first, fitting), last)
    behind = dict(start.behind)
    for table, row in released.items():
        left = np.flatnonzero((ids == table) & (numbers >= max(row, end)))
        if len(left):
            behind[table] = first + int(left[0])
        else:
            del behind[table]
    return Stand(start.spot, behind)


def _whole(chain: Chain, first: int, wanted: int) -> int:
    """The last row event up to `wanted` behind which transactions may be cut, or the first one later on."""
    ends = chain.items["rows_end"]
    at = int(np.searchsorted(ends, wanted, side="right")) - 1
    if at >= 0 and int(ends[at]) > first:
        return int(ends[at])
    item = int(chain.item_of(np.array([first]))[0])
    if chain.of(item, "updates"):
        return chain.of(item, "rows_end")
    return max(wanted, first + 1)


def _go_on(chain: Chain, start: Stand, budget: int, held: frozenset[int], must: bool) -> Stand:
    """Moves the spot of all other tables on. With `must` by one unit at least."""
    item, row = start.spot
    end = min(_first_barred(chain, item, {*held, *start.behind}), _behind_chunks(chain, item))
    if item >= end:
        return start
    last = chain.of(end - 1, "rows_end")
    ids = chain.rows.part("table_id", row, last)
    outside = np.isin(ids, [*held, *start.behind])
    used = np.concatenate([[0], np.cumsum(np.where(outside, 0, chain.rows.part("size", row, last)))])
    cost = used[chain.items.part("rows_end", item, end) - row] + _extra_bytes(chain, item, end)
    reached = item + int(np.searchsorted(cost, budget, side="right"))
    spot = Spot(reached, chain.of(reached - 1, "rows_end"))
    if reached == item:
        if not must:
            return start
        spot = _first_unit(chain, start.spot, used, budget)
    return _leave_behind(chain, start, spot, ids, held)


def _first_barred(chain: Chain, item: int, absent: set[int]) -> int:
    """The next chunk of a table that is not handed out now: its changes come before it, so all wait there."""
    barred = [number for number, extra in chain.extras.items() if number >= item and extra.table_id in absent]
    return min([chain.items.end, *barred])


def _behind_chunks(chain: Chain, item: int) -> int:
    """The end of the next chunks that have no changes between them.

    Other tasks than those of the log emit chunks. So a micro-batch has no changes behind its chunks: what a task makes
    of the changes of a table would lie on both sides of the table's chunk.
    """
    chunks = sorted(number for number, extra in chain.extras.items() if number >= item and extra.chunk)
    if not chunks:
        return chain.items.end
    end = chunks[0] + 1
    while end < chain.items.end and chain.of(end, "rows_end") == chain.of(end - 1, "rows_end"):
        end += 1
    return end


def _extra_bytes(chain: Chain, first: int, last: int) -> Numbers:
    sizes = np.zeros(last - first, np.int64)
    for number, extra in chain.extras.items():
        if first <= number < last:
            sizes[number - first] = extra.size_bytes
    return np.cumsum(sizes)


def _first_unit(chain: Chain, spot: Spot, used: Numbers, budget: int) -> Spot:
    """The next transaction, which does not fit: a part of it, or all of it if it must stay whole."""
    last = chain.of(spot.item, "rows_end")
    whole = Spot(spot.item + 1, last)
    if chain.of(spot.item, "updates") or last == spot.row:
        return whole
    inside = used[: last - spot.row + 1]
    fitting = int(np.searchsorted(inside, max(budget, 0), side="right")) - 1
    fitting = max(fitting, int(np.searchsorted(inside, 0, side="right")))  # at least one event is handed out
    return whole if fitting >= last - spot.row else Spot(spot.item, spot.row + fitting)


def _leave_behind(chain: Chain, start: Stand, spot: Spot, ids: Numbers, held: frozenset[int]) -> Stand:
    """The held tables with rows up to the spot stay behind. If there would be too many, the spot is before them."""
    row = start.spot.row
    present, first = np.unique(ids[: spot.row - row], return_index=True)
    new = sorted(
        (row + int(at), int(table))
        for table, at in zip(present.tolist(), first.tolist(), strict=True)
        if table in held and table not in start.behind
    )
    room = MOST_BEHIND - len(start.behind)
    if len(new) > room:
        item = int(chain.item_of(np.array([new[room][0]]))[0])
        if item <= start.spot.item:
            return start
        spot, new = Spot(item, chain.of(item - 1, "rows_end")), [each for each in new if each[0] < new[room][0]]
        new = [each for each in new if each[0] < spot.row]
    return Stand(spot, {**start.behind, **{table: at for at, table in new}})


# -- what lies between -------------------------------------------------------------------------------------------------


def chosen_rows(chain: Chain, start: Stand, end: Stand) -> Numbers:
    """The row events between two stands: of tables that catch up, and of all others."""
    first = min([start.spot.row, *start.behind.values()])
    ids = chain.rows.part("table_id", first, end.spot.row)
    numbers = np.arange(first, end.spot.row)
    return numbers[_is_chosen(ids, numbers, start, end)]


def _is_chosen(ids: Numbers, numbers: Numbers, start: Stand, end: Stand) -> Flags:
    main = numbers >= start.spot.row
    if not start.behind and not end.behind:
        return main
    chosen: Flags = main & ~np.isin(ids, list(end.behind))
    for table, row in start.behind.items():
        until = min(end.behind.get(table, start.spot.row), start.spot.row)
        chosen |= (ids == table) & (numbers >= row) & (numbers < until)
    return chosen


def begun_items(chain: Chain, start: Stand, end: Stand) -> range:
    """The items that begin between two stands: their DDLs and chunks are handed out with their first row."""
    first = start.spot.item + (start.spot.row > chain.of(start.spot.item - 1, "rows_end"))
    last = end.spot.item + (end.spot.row > chain.of(end.spot.item - 1, "rows_end"))
    return range(first, last)


def handed_bytes(chain: Chain, start: Stand, end: Stand) -> int:
    if start == end:
        return 0
    rows = chosen_rows(chain, start, end)
    items = begun_items(chain, start, end)
    extra = sum(chain.extras[item].size_bytes for item in chain.extras if item in items)
    return int(chain.rows["size"][rows - chain.rows.first].sum()) + extra


def resolved_ts(chain: Chain, end: Stand) -> int:
    """No row at or below it follows."""
    marks = [chain.of(end.spot.item - 1, "ts")]
    marks += [chain.of(int(chain.item_of(np.array([row]))[0]), "ts") - 1 for row in end.behind.values()]
    return min(marks)
