"""A changefeed of a live database that is killed again and again, while clients write and change tables.

The database has a shop (`harness/shop`). Clients change its rows, one more changes its tables. Beside them a changefeed
runs in a process of its own, is killed with SIGKILL and started again: during the snapshot, while it follows the log,
and around the schema file of a DDL. At the end the clients stop, and `tidegate verify` compares every table with the
database, while the last run goes on.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import count as numbers
from pathlib import Path
from urllib.parse import quote

from tidegate.bench.harness.clients import Client, Task, running_clients
from tidegate.bench.harness.crash import Run
from tidegate.bench.harness.feed import say
from tidegate.bench.harness.figures import Figures, percentile
from tidegate.bench.harness.points import POINTS
from tidegate.bench.harness.rehearsal import quick_start
from tidegate.bench.harness.shop import ddl
from tidegate.bench.harness.shop.tables import RULES, make_shop
from tidegate.bench.harness.victim import TooLong, Victim
from tidegate.bench.mysql.parameters import Parameters, Place
from tidegate.errors import TidegateError
from tidegate.format.layout import RESERVED_PREFIX
from tidegate.storage.store import Store, open_store

SNAPSHOT, LOG = "snapshot", "log"
_MOMENTS = (SNAPSHOT, LOG, "before-schema-file", LOG, "after-schema-file", "data-before-index", SNAPSHOT)
_OPTIONS = {"flush-interval": "1s", "file-size": "1MiB", "csv.include-commit-ts": "true"}
_CHUNKS = f"{RESERVED_PREFIX}/source/chunks"
_START_S, _POINT_S, _STOP_S, _VERIFY_S = 300.0, 20.0, 300.0, 300.0
_REHEARSE_FROM = 8


class Harness:
    """Starts and kills; keeps what it saw."""

    def __init__(self, place: Place, wanted: Parameters) -> None:
        self.place, self.wanted = place, wanted
        self.source = place.source(tables=RULES, snapshot="initial")
        self._chance, self._java_options = random.Random(wanted.seed), ""
        self.sink_uri = f"file://{quote(str(place.home / 'sink'))}"
        self.first_landings_s: list[float] = []
        self.missed = 0
        settings = self._run("").settings
        self._store: Store = open_store(settings.sink_uri, settings.access)

    def _run(self, point: str) -> Run:
        runs = self.place.home / "runs"
        control = next(runs / f"{n:03d}" for n in numbers() if not (runs / f"{n:03d}").exists())
        number = self._chance.randint(POINTS[point].first, POINTS[point].last) if point in POINTS else 1
        return Run(self.source, self.sink_uri, str(self.place.home / "spool"), str(control), _OPTIONS, point, number)

    def rehearse(self) -> None:
        """Makes the JVMs of many runs start faster."""
        home = self.place.home
        aside = Run("workload://sysbench?tables=1&rows=100&rate=100KiB", f"file://{quote(str(home / 'first'))}",
                    str(home / "first-spool"), str(home / "runs" / "first"), _OPTIONS)  # fmt: skip
        self._java_options = quick_start(aside, home / "classes.jsa")

    def kill(self, number: int, moment: str) -> None:
        with Victim(self._run(moment), self._java_options) as process:
            if moment in POINTS:
                self._to_the_point(process)
            elif moment == SNAPSHOT:
                self._await_chunk(process)
            else:
                process.wait(lambda: process.landed > 0, _START_S, "land anything")
                time.sleep(self._chance.uniform(0.0, 3.0))
            said = process.fired or f"with {process.landed} rows landed"
            process.kill()
            self._note(process)
            say(f"kill {number} of {self.wanted.kills}: {moment}, {said}, after {process.age():.1f} s")

    def _to_the_point(self, process: Victim) -> None:
        process.wait(lambda: process.fired is not None or process.accepted > 0, _START_S, "accept anything")
        try:
            process.wait(lambda: process.fired is not None, _POINT_S)
            process.wait(lambda: not process.alive, _START_S, "die")
        except TooLong:
            self.missed += 1

    def _await_chunk(self, process: Victim) -> None:
        """Until a new chunk of a table is staged, and a moment longer; at most until rows land for a while."""
        before, most = self._chunks(), [float("inf")]

        def staged() -> bool:
            if process.accepted:
                most[0] = min(most[0], time.monotonic() + _POINT_S)
            return self._chunks() > before or time.monotonic() > most[0]

        process.wait(staged, _START_S, "read a chunk of a table")
        self.missed += self._chunks() <= before
        time.sleep(self._chance.uniform(0.0, 1.0))

    def _chunks(self) -> set[str]:
        with contextlib.suppress(TidegateError):
            return {path for path, _ in self._store.list(_CHUNKS)}
        return set()

    def finish(self, clients: Sequence[Client]) -> tuple[str, dict[str, int]]:
        """The last run, which is not killed; what is wrong, and what the clients say they did."""
        with Victim(self._run(""), self._java_options) as process:
            process.wait(lambda: process.landed > 0, _START_S, "land anything")
            for client in clients:
                client.stop()
            did: dict[str, int] = {}
            for said in (client.done() for client in clients):
                did = {key: did.get(key, 0) + said.get(key, 0) for key in did.keys() | said.keys()}
            say(f"the clients did {did}; comparing with the database")
            wrong = self.verify()
            process.stop(_STOP_S)
            self._note(process)
        return wrong or self.verify(), did

    def verify(self) -> str:
        """What `tidegate verify` says if something is wrong."""
        options = [word for key, value in _OPTIONS.items() for word in ("--option", f"{key}={value}")]
        words = ["verify", "--source", self.source, "--sink", self.sink_uri, *options]
        done = subprocess.run(
            [sys.executable, "-m", "tidegate.cli", *words], capture_output=True, text=True, timeout=_VERIFY_S
        )
        for line in done.stdout.splitlines():
            say(f"  {line}")
        return "" if done.returncode == 0 else done.stderr.strip() or f"verify ended with code {done.returncode}"

    def _note(self, process: Victim) -> None:
        if (seconds := process.first_landing_s()) is not None:
            self.first_landings_s.append(seconds)


def run(place: Place, wanted: Parameters) -> Figures:
    for name in ("sink", "spool", "runs", "first", "first-spool"):
        shutil.rmtree(place.home / name, ignore_errors=True)
    make_shop(place.database, wanted.stock)
    harness = Harness(place, wanted)
    if wanted.kills >= _REHEARSE_FROM:
        harness.rehearse()
    with running_clients(_tasks(place, wanted)) as clients:
        for client in clients:
            client.go()
        for number in range(wanted.kills):
            harness.kill(number + 1, _MOMENTS[number % len(_MOMENTS)])
        wrong, did = harness.finish(clients)
    if wrong:
        say(f"{wrong}\nthe sink, the runs and the server's data are kept in {place.home}")
    else:
        _remove(place.home)
    return {
        "kills": wanted.kills,
        "wrong": int(bool(wrong)),
        "moments_missed": harness.missed,
        "client_transactions": did.get("transactions", 0),
        "client_ddls": did.get("ddls", 0),
        "restart_p50_s": percentile(harness.first_landings_s, 50),
    }


def _tasks(place: Place, wanted: Parameters) -> list[Task]:
    values = {"seed": wanted.seed, "rate": wanted.client_rate, "every_s": wanted.ddl_every}
    shoppers = [Task(ddl.__name__, "shopper", place.database.port, n, values) for n in range(1, wanted.clients + 1)]
    return [*shoppers, Task(ddl.__name__, "builder", place.database.port, 0, values)]


def _remove(home: Path) -> None:
    for name in ("sink", "spool", "runs", "first", "first-spool"):
        shutil.rmtree(home / name, ignore_errors=True)
