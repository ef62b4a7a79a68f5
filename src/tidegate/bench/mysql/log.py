"""The log of a database through Tidegate, against the same rows through `parquet:`.

A client fills the tables and then updates every row. Tidegate follows the server's log from before the first row on.
The other side lands the same change events from Parquet files, which were made from the same log before. What both have
landed is compared with the database.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from tidegate.bench.harness.feed import Feed, say, session
from tidegate.bench.harness.figures import Figures
from tidegate.bench.mysql.pairs import in_turns, median_cpu_s
from tidegate.bench.mysql.parameters import Parameters, Place
from tidegate.bench.mysql.tables import check_content, fill_tables, make_tables, table_names, update_tables
from tidegate.bench.throughput import row_groups
from tidegate.sources.mysql.source import MysqlSource
from tidegate.sources.parquet import write_events

_OPTIONS = {"file-size": "64MiB", "flush-interval": "30s"}  # files are cut by size, as in `throughput`
_FILES = 16


def run(place: Place, wanted: Parameters) -> Figures:
    names, rows = table_names(wanted.tables), max(1, wanted.events // 2 // wanted.tables)
    make_tables(place.database, names)
    file = place.database.begin_log()
    say(f"writing {2 * rows * len(names)} changes into {len(names)} tables")
    fill_tables(place.database, names, rows)
    update_tables(place.database, names, rows)
    source = place.source(snapshot="never", **{"from": f"{file}:4"})
    with session():
        return _figures(place, wanted, names, rows, source)


def _figures(place: Place, wanted: Parameters, names: list[str], rows: int, source: str) -> Figures:
    changes, home = 2 * rows * len(names), place.home
    say("making the same change events as Parquet")
    events = prepare(source, home / "events", changes)
    aside = (place.database.pid,)
    ours = Feed(source, home / "ours", home / "spool", _OPTIONS, aside=aside)
    theirs = Feed(f"parquet:{events}", home / "theirs", home / "spool", _OPTIONS, aside=aside)
    pairs = in_turns(ours, theirs, "parquet", changes, wanted.pairs)
    say("comparing what landed with the database")
    for feed in (ours, theirs):
        check_content(place.database, feed, names)
        feed.remove()
    shutil.rmtree(events)
    ours_s, theirs_s = median_cpu_s([pair.ours for pair in pairs]), median_cpu_s([pair.theirs for pair in pairs])
    return {
        "log_cpu_s": ours_s,
        "parquet_cpu_s": theirs_s,
        "log_rows_per_cpu_s": changes / ours_s,
        "ratio_to_parquet": theirs_s / ours_s,
    }


def prepare(source: str, directory: Path, changes: int) -> Path:
    """The change events of a source's first `changes` rows as Parquet."""
    shutil.rmtree(directory, ignore_errors=True)
    with contextlib.closing(MysqlSource(source)) as opened:
        write_events(directory, row_groups(opened), max(1, changes // _FILES))
    return directory
