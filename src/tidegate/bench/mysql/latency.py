"""How long a row takes from a client's commit until a reader sees it, by the client's clock.

Clients write one row at a time, each with the client's clock just before the statement. A reader that follows the index
looks at the sink again and again. A row counts as durable when the data file that holds it is named by an index.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.bench.harness.clients import Task, running_clients
from tidegate.bench.harness.databases import Database, asked
from tidegate.bench.harness.feed import Feed, say, session
from tidegate.bench.harness.figures import Figures, percentile
from tidegate.bench.harness.landed_rows import read_csv
from tidegate.bench.mysql import loads
from tidegate.bench.mysql.parameters import Parameters, Place
from tidegate.bench.mysql.tables import SCHEMA, make_tables
from tidegate.config.settings import Settings, duration_s
from tidegate.errors import TidegateError
from tidegate.format.layout import data_path
from tidegate.reader.replay import survey
from tidegate.storage.store import open_store

_TABLES = 4
_COLUMNS = ("id", "at_us", "note")
_LOOK_S = 0.05
_WARM_SHARE = 0.25
_PATIENCE_S = 60.0


class Reader:
    """Looks at the sink in a thread of its own; `seen` are the ids, their clocks, and when they were visible."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._store = settings, open_store(settings.sink_uri, settings.access)
        self._read: dict[object, int] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="reader", daemon=True)
        self.seen: list[tuple[pa.Table, float]] = []
        self.rows = 0

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_LOOK_S):
            self.look()

    def look(self) -> None:
        found, now = survey(self._store, self._settings.paths), time.time()
        for lane in (lane for lanes in found.tables.values() for lane in lanes):
            for number in range(self._read.get(lane.key, 0) + 1, len(lane.sizes) + 1):
                text = self._store.get(data_path(lane.key, number, self._settings.paths)) or b""
                rows = read_csv(text, _COLUMNS)
                self.seen.append((rows, now))
                self.rows += rows.num_rows
                self._read[lane.key] = number

    def table(self) -> pa.Table:
        return pa.concat_tables([rows for rows, _ in self.seen])

    def delays_s(self) -> npt.NDArray[np.float64]:
        """In the order of the clients' clocks."""
        clocks = [pc.cast(rows["at_us"], pa.int64()).to_numpy() / 1e6 for rows, _ in self.seen]
        delays = np.concatenate([now - clock for clock, (_, now) in zip(clocks, self.seen, strict=True)])
        ordered: npt.NDArray[np.float64] = delays[np.argsort(np.concatenate(clocks), kind="stable")]
        return ordered


def run(place: Place, wanted: Parameters) -> Figures:
    names = [f"{SCHEMA}.timed{number}" for number in range(1, _TABLES + 1)]
    make_tables(place.database, names, loads.TIMED)
    options = {"flush-interval": wanted.flush_interval}
    feed = Feed(place.source(snapshot="never"), place.home / "sink", place.home / "spool", options)
    values = {"every_s": wanted.clients / wanted.rate, "seconds": wanted.seconds, "tables": _TABLES}
    port = place.database.port
    tasks = [Task(loads.__name__, "timed_rows", port, number, values) for number in range(1, wanted.clients + 1)]
    with session(), feed.running(), Reader(feed.settings) as reader, running_clients(tasks) as clients:
        say(f"{wanted.rate:g} rows a second by {wanted.clients} clients for {wanted.seconds:g} s")
        for client in clients:
            client.await_ready()
        for client in clients:
            client.go()
        rows = sum(client.done()["rows"] for client in clients)
        _await_rows(reader, rows)
    _check(place.database, reader, names)
    feed.remove()
    return _figures(reader, duration_s(wanted.flush_interval))


def _await_rows(reader: Reader, rows: int) -> None:
    until = time.monotonic() + _PATIENCE_S
    while reader.rows < rows:
        if time.monotonic() > until:
            raise TidegateError(f"a reader sees {reader.rows} rows of {rows}")
        time.sleep(_LOOK_S)


def _figures(reader: Reader, interval_s: float) -> Figures:
    delays = reader.delays_s()
    warm = delays[int(len(delays) * _WARM_SHARE) :]  # the JVM's first micro-batches are slow
    return {
        "commit_to_durable_p50_s": percentile(warm.tolist(), 50),
        "commit_to_durable_p99_s": percentile(warm.tolist(), 99),
        "commit_to_durable_max_s": float(delays.max()),
        "commit_to_durable_p99_over_interval": percentile(warm.tolist(), 99) / interval_s,
    }


def _check(database: Database, reader: Reader, names: Sequence[str]) -> None:
    """Every row of the database was seen exactly once, as it is."""
    found = reader.table().select(list(_COLUMNS)).sort_by("id").combine_chunks()
    with database.connect(conv={}) as connection:
        rows = [row for name in names for row in asked(connection, f"SELECT * FROM {name}")]
    wanted = pa.table([pa.array(column, pa.string()) for column in zip(*rows, strict=True)], list(_COLUMNS))
    if not found.equals(wanted.sort_by("id").combine_chunks()):
        raise TidegateError(f"a reader of the sink saw {found.num_rows} rows which are not those of the database")
