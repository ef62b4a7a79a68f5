"""The changes of a log as Python values, to compare them with what others say."""

from __future__ import annotations

from tidegate.sources.mysql.log.framing import CHECKSUM_BYTES, check_sums, frame
from tidegate.sources.mysql.log.rows import KINDS, TableMaps, decode_rows

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
