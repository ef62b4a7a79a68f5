"""Another filter takes effect at a position of the log: tables that it adds begin there, and need a snapshot.

The tables of a database that the old filter never kept are not known, so what the server shows is read once more, with
its position. The old filter counts up to there. Tables that the new filter leaves out are not read any more; nothing is
said about them downstream, because the database still has them.
"""

from __future__ import annotations

from dataclasses import replace

from tidegate.sources.mysql.catalogue import Applied, Catalogue, Change
from tidegate.sources.mysql.ddl.effects import Effects, Refuse, nothing_refused


def refiltered(catalogue: Catalogue, shown: Catalogue, commit_ts: int, refuse: Refuse = nothing_refused) -> Applied:
    """`catalogue` is the one at the position by the old filter, `shown` what the server shows there for the new one."""
    after = replace(catalogue, filter=shown.filter)
    effects = Effects(after, commit_ts, refuse)
    for name, database in shown.databases.items():
        if name not in catalogue.databases:
            effects.begin_database(database.name, database.charset, f"CREATE DATABASE `{database.name}`")
    for entry in shown.entries():
        known = effects.find(entry.names)
        if known is None:
            effects.begin_filled(entry.names, entry.definition)
        elif entry.followed and not known.followed:
            effects.begin_filled(known.names, known.definition)
        elif known.followed and not entry.followed:
            effects.stop_following(known)
    applied = effects.applied()
    change = Change(
        applied.change.tables,
        applied.change.databases,
        applied.change.next_table_id,
        applied.change.next_schema_id,
        shown.filter,
    )
    return Applied(catalogue.changed(change), change, applied.rows, applied.touched)
