"""The tables of the log as tasks must know them: what a TABLE_MAP says, and what the catalogue says of its name.

A TABLE_MAP stands before the row events of every statement. It is parsed once for each log file, and its columns are
compared with the catalogue's: a difference means that a DDL was not understood, and ends the changefeed before a row is
written wrongly. After a DDL the tables that it touched are looked up anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from tidegate.sources.mysql.catalogue import TableEntry
from tidegate.sources.mysql.log.rows import TableMaps
from tidegate.sources.mysql.log.table_map import TableMap, read_table_map

NOT_FOLLOWED = -1


class Known(Protocol):
    """What is asked of the catalogue."""

    def followed(self, database: str, table: str) -> TableEntry | None: ...


@dataclass(frozen=True)
class Followed:
    """A followed table in a part of the log. `body` is its TABLE_MAP."""

    body: bytes
    schema: str
    table: str
    table_id: int
    schema_id: int
    version: int
    fingerprint: int
    layout: str  # its JSON
    stored: tuple[int, ...]  # which columns of the log's rows have a place in the events
    needs_snapshot: bool = False

    @property
    def name(self) -> str:
        return f"{self.schema}.{self.table}"

    @property
    def log_id(self) -> bytes:
        """How this part of the log calls the table."""
        return self.body[:6]


@dataclass
class Tables:
    """Numbers for the tables of the log.

    `agree` says which columns of the log's rows are stored, and raises if a TABLE_MAP does not fit the catalogue.
    """

    agree: Callable[[TableMap, TableEntry], tuple[int, ...]]
    by_number: dict[int, Followed] = field(default_factory=dict)
    _known: dict[int, int] = field(default_factory=dict)  # by the log's own id of a table
    _layouts: dict[int, str] = field(default_factory=dict)
    _next: int = 0

    def number(self, table_id: int, body: Callable[[], bytes], catalogue: Known) -> int:
        """The number of the table that the log calls by this id; NOT_FOLLOWED for one that nobody wants."""
        found = self._known.get(table_id)
        if found is None:
            found = self._known[table_id] = self._learn(body(), catalogue)
        return found

    def __len__(self) -> int:
        """How many tables the log may use again."""
        return len(self._known)

    def known(self, table_id: int) -> int | None:
        return self._known.get(table_id)

    def forget(self) -> None:
        """The log's own ids mean nothing any more: another file begins, or a DDL has changed something."""
        self._known.clear()

    def keep(self, used: Iterable[int]) -> None:
        """Only these are still in the index, besides those that the log may use again."""
        needed = {*used, *self._known.values()}
        self.by_number = {number: table for number, table in self.by_number.items() if number in needed}
        kept = {table.fingerprint for table in self.by_number.values()}
        self._layouts = {key: text for key, text in self._layouts.items() if key in kept}

    def _learn(self, body: bytes, catalogue: Known) -> int:
        schema, name = _names(body)
        entry = catalogue.followed(schema, name)
        if entry is None:
            return NOT_FOLLOWED
        table = read_table_map(body)
        stored = self.agree(table, entry)
        layout = entry.layout
        text = self._layouts.setdefault(layout.fingerprint, layout.to_json())
        self._next += 1
        self.by_number[self._next] = Followed(
            body, entry.database, entry.name, entry.table_id, entry.schema_id, entry.version, layout.fingerprint, text,
            stored, entry.needs_snapshot,
        )  # fmt: skip
        return self._next


def _names(body: bytes) -> tuple[str, str]:
    """Database and table, without reading the columns: most tables of a server may not be followed."""
    end = 9 + body[8]
    return body[9:end].decode(), body[end + 2 : end + 2 + body[end + 1]].decode()


def learn(maps: TableMaps, tables: Iterable[Followed]) -> dict[int, Followed]:
    """Tells the decoder the TABLE_MAPs of these tables; returns them by the log's own ids."""
    return {maps.learn(table.body).table_id: table for table in tables}
