"""The changes of a log, and the rows of a table, as Python values, to compare them with what others say."""

from __future__ import annotations

from contextlib import suppress

from tidegate.bench.harness.databases import Database, asked
from tidegate.errors import BadLog
from tidegate.format.tables import Layout
from tidegate.sources.mysql.log.control_events import Query, read_query
from tidegate.sources.mysql.log.framing import CHECKSUM_BYTES, HEADER_BYTES, QUERY, TABLE_MAP, check_sums, frame
from tidegate.sources.mysql.log.layouts import layout_of
from tidegate.sources.mysql.log.rows import KINDS, TableMaps, decode_rows
from tidegate.sources.mysql.log.table_map import TableMap, read_table_map
from tidegate.sources.mysql.snapshot.answers import value_lists
from tidegate.sources.mysql.snapshot.protocol import Answer
from tidegate.sources.mysql.snapshot.select import SESSION, select_rows

Values = list[bytes | None]
Change = tuple[str, Values | None, Values | None]  # kind, before, after


def changes_in(log: bytes) -> list[tuple[str, Change]]:
    """All changes of a log, in its order, with the names of their tables: `[("orders", ("insert", None, [b"1"]))]`."""
    events, _ = frame(log, CHECKSUM_BYTES)
    check_sums(log, events)
    found: list[tuple[tuple[int, int], str, Change]] = []
    for rows in decode_rows(log, events, TableMaps()):
        numbers = (rows.event.tolist(), rows.table.tolist(), rows.kind.tolist())
        columns = zip(*numbers, rows.before.to_pylist(), rows.after.to_pylist(), strict=True)
        for i, (event, table, kind, before, after) in enumerate(columns):
            found.append(((event, i), rows.tables[table].table, (KINDS[kind], before, after)))
    return [(table, change) for _, table, change in sorted(found, key=lambda each: each[0])]


def statements_in(log: bytes) -> list[Query | TableMap]:
    """The statements of a log, and the tables before row changes that can be read, in its order."""
    events, _ = frame(log, CHECKSUM_BYTES)
    found: list[Query | TableMap] = []
    for start, end, kind in zip(events.start.tolist(), events.end.tolist(), events.kind.tolist(), strict=True):
        body = log[start + HEADER_BYTES : end]
        if kind == QUERY:
            found.append(read_query(body))
        elif kind == TABLE_MAP:
            with suppress(BadLog):
                found.append(read_table_map(body))
    return found


def layouts_in(log: bytes) -> dict[str, Layout]:
    """The columns of the tables of a log, by name."""
    return {found.table: layout_of(found) for found in statements_in(log) if isinstance(found, TableMap)}


def rows_of(database: Database, schema: str, table: str, layout: Layout, order: str = "1") -> list[Values]:
    """The rows of a table as a snapshot reads them, ordered by this SQL."""
    with database.connect() as connection:
        asked(connection, *SESSION)
        statement = f"{select_rows(schema, table, layout.stored)} ORDER BY {order}"
        lists = list(value_lists(Answer(connection, statement), layout.stored))
        return [row for each in lists for row in each.to_pylist()]
