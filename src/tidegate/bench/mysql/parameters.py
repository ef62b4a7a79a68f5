"""What all parts of the benchmark take."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

from tidegate.bench.harness.databases import NAMES, Database
from tidegate.bench.harness.parameters import count, duration, number, one_of

ALL, KILLS = "all", "kills"
PARTS = ("decode", "log", "snapshot", "latency", "small", KILLS)


@dataclass(frozen=True)
class Parameters:
    part: str = one_of(ALL, "what to measure; `all` leaves out kills", (ALL, *PARTS))
    server: str = one_of("mariadb", "the server that writes the logs", NAMES)
    rows: int = count(40_000, "decode: rows of each log; of that with one row an event a quarter")
    repeats: int = count(3, "decode: runs of each side; the best one counts")
    tables: int = count(10, "log, snapshot: tables with rows like those of sysbench")
    events: int = count(2_000_000, "log: changes, half of them inserts and half updates")
    snapshot_rows: int = count(1_000_000, "snapshot: rows of all tables together")
    pairs: int = count(3, "log, snapshot: runs of each side, in turns; the medians count")
    clients: int = count(3, "latency, small, kills: connections that write, each in a process of its own")
    rate: float = number(300.0, "latency: rows per second of all clients together")
    flush_interval: str = duration("5s", "latency, small: flush-interval of the changefeed")
    seconds: float = number(40.0, "latency: seconds of writing")
    transactions: int = count(60_000, "small: transactions of one row, of all clients together")
    kills: int = count(20, "kills: processes of the changefeed that are killed")
    stock: int = count(60_000, "kills: rows of the largest table before the first start")
    client_rate: float = number(40.0, "kills: transactions per second of each client, at most")
    ddl_every: float = number(0.5, "kills: seconds between two DDLs")
    seed: int = count(1, "kills: what the clients do and when the changefeed is killed")


class Place(NamedTuple):
    """Where a part runs: the server, and a directory of its own."""

    database: Database
    home: Path

    def source(self, **options: str) -> str:
        """`mysql://root@127.0.0.1:3306/?tables=bench.*&ssl=off`"""
        query = {"tables": "bench.*", "ssl": "off", **options}
        return f"mysql://root@127.0.0.1:{self.database.port}/?{urlencode(query)}"
