"""The snapshot of a database through Tidegate, against Spark's JDBC reader, change events and `write_stream`.

Both read the same tables with as many tasks at once, and land the same lines in the same kind of sink. The other side
is what a user can write without `mysql://`: every table by JDBC, cut by its key into as many partitions as there are
slots, its columns as the texts of change events.
"""

from __future__ import annotations

from tidegate.bench.harness.feed import Feed, say, session
from tidegate.bench.harness.figures import Figures
from tidegate.bench.harness.jdbc import jdbc_events, missing_driver
from tidegate.bench.mysql.pairs import in_turns, median_cpu_s
from tidegate.bench.mysql.parameters import Parameters, Place
from tidegate.bench.mysql.tables import check_content, fill_tables, make_tables, table_names

_OPTIONS = {"file-size": "64MiB", "flush-interval": "30s"}


def run(place: Place, wanted: Parameters) -> Figures:
    if reason := missing_driver():
        say(reason)
        return {"snapshot_skipped": reason}
    names, rows = table_names(wanted.tables), max(1, wanted.snapshot_rows // wanted.tables)
    make_tables(place.database, names)
    say(f"writing {rows * len(names)} rows into {len(names)} tables")
    fill_tables(place.database, names, rows)
    home, aside = place.home, (place.database.pid,)
    with session() as spark:
        jdbc = jdbc_events(spark, place.database, names, rows, home / "ticks")
        theirs = Feed(jdbc, home / "theirs", home / "spool", _OPTIONS, aside=aside)
        ours = Feed(place.source(snapshot="only"), home / "ours", home / "spool", _OPTIONS, aside=aside)
        pairs = in_turns(ours, theirs, "JDBC", rows * len(names), wanted.pairs)
        say("comparing what landed with the database")
        for feed in (ours, theirs):
            check_content(place.database, feed, names)
            feed.remove()
    ours_s, theirs_s = median_cpu_s([pair.ours for pair in pairs]), median_cpu_s([pair.theirs for pair in pairs])
    return {
        "snapshot_cpu_s": ours_s,
        "jdbc_cpu_s": theirs_s,
        "snapshot_rows_per_cpu_s": rows * len(names) / ours_s,
        "snapshot_ratio_to_jdbc": theirs_s / ours_s,
    }
