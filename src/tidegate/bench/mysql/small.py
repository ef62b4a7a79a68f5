"""Transactions of one row, as fast as a few connections make them: what Tidegate takes beside server and clients.

Everything runs at the same time on the same cores. Counted is from the first transaction until the last one has
landed, after a quarter as many to warm up.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

from tidegate.bench.harness.clients import Client, Task, running_clients
from tidegate.bench.harness.feed import Feed, say, session
from tidegate.bench.harness.figures import Figures
from tidegate.bench.harness.memory import CpuMeter, cpu_seconds
from tidegate.bench.mysql import loads
from tidegate.bench.mysql.parameters import Parameters, Place
from tidegate.bench.mysql.tables import check_content, make_tables, table_names
from tidegate.errors import TidegateError
from tidegate.spark.handle import Handle

_PATIENCE_S = 180.0
_POLL_S = 0.05


def run(place: Place, wanted: Parameters) -> Figures:
    names = table_names(wanted.clients)
    make_tables(place.database, names)
    options = {"flush-interval": wanted.flush_interval}
    feed = Feed(place.source(snapshot="never"), place.home / "sink", place.home / "spool", options)
    each = max(2, wanted.transactions // wanted.clients // 2 * 2)
    warm = max(2, each // 8 * 2)
    with session(), feed.running() as handle:
        say(f"warming up: {warm * wanted.clients} transactions of one row")
        with _clients(place, wanted.clients, 0, warm) as clients:
            _work(handle, clients, warm * wanted.clients)
        say(f"{each * wanted.clients} transactions of one row by {wanted.clients} clients")
        with _clients(place, wanted.clients, warm, each) as clients:
            figures = _measured(place, handle, clients, (warm + each) * wanted.clients, each * wanted.clients)
    say("comparing what landed with the database")
    check_content(place.database, feed, names)
    feed.remove()
    return figures


def _clients(
    place: Place, clients: int, first: int, transactions: int
) -> contextlib.AbstractContextManager[list[Client]]:
    values = {"first": first, "transactions": transactions}
    port = place.database.port
    return running_clients(
        [Task(loads.__name__, "single_rows", port, number, values) for number in range(1, clients + 1)]
    )


def _measured(place: Place, handle: Handle, clients: Sequence[Client], landed: int, rows: int) -> Figures:
    for client in clients:
        client.await_ready()
    server_before, clients_before = cpu_seconds(place.database.pid), sum(client.cpu_s for client in clients)
    meter, started = CpuMeter([place.database.pid, *(client.pid for client in clients)]), time.monotonic()
    wrote_s = _work(handle, clients, landed)
    ours = meter.seconds()
    server = cpu_seconds(place.database.pid) - server_before
    theirs = sum(client.cpu_s for client in clients) - clients_before
    return {
        "small_transactions_s": rows / wrote_s,
        "small_landed_s": time.monotonic() - started,
        "cpu_us_per_row": 1e6 * ours / rows,
        "server_cpu_us_per_row": 1e6 * server / rows,
        "clients_cpu_us_per_row": 1e6 * theirs / rows,
        "cpu_over_server": ours / server,
        "cpu_over_server_and_clients": ours / (server + theirs),
    }


def _work(handle: Handle, clients: Sequence[Client], landed: int) -> float:
    """Let the clients do their work, and wait until so many rows have landed; seconds that the clients took."""
    started = time.monotonic()
    for client in clients:
        client.go()
    for client in clients:
        client.done()
    wrote_s, until = time.monotonic() - started, time.monotonic() + _PATIENCE_S
    while handle.changefeed.totals.rows_landed < landed:
        if handle.await_termination(_POLL_S) or time.monotonic() > until:
            raise TidegateError(f"{handle.changefeed.totals.rows_landed} rows landed of {landed}: {handle.status()}")
    return wrote_s
