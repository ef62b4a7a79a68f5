"""DDLs that the table trigger takes part in, as fast as they come, and a migration of all tables in one go."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa

from tidegate.bench.harness.feed import Feed, say
from tidegate.bench.harness.figures import Figures
from tidegate.errors import TidegateError
from tidegate.executor.jobs import LandOptions
from tidegate.executor.rows import SchemaPlan
from tidegate.sources.source import byte_count
from tidegate.spark.handle import Handle

_KINDS = "truncate|rename|drop-create|create-table|drop-table"
_ROW_BYTES = 220


@dataclass(frozen=True)
class Load:
    """Rows of so many tables for so many seconds, with DDLs among them."""

    tables: int
    rate: str
    seconds: float
    batch: str
    ddl: str

    @property
    def source(self) -> str:
        events = int(byte_count(self.rate) * self.seconds / _ROW_BYTES)
        query: dict[str, Any] = {"tables": self.tables, "rows": 1_000, "events": events, "rate": self.rate, "seed": 1}
        query |= {"batch": self.batch, "txn-rows": 1, "prepare": "false", "ddl": self.ddl}
        return f"workload://sysbench?{urlencode(query)}"


def often(tables: int, rate: str, seconds: float, every: str) -> Load:
    """A DDL of the table trigger every few milliseconds. DDLs come between steps, so a step takes about 100 ms."""
    step_bytes = max(1, byte_count(rate) // (10 * tables))
    return Load(tables, rate, seconds, f"{step_bytes}B", f"every:{every},kinds={_KINDS}")


def migration(tables: int, rate: str, seconds: float) -> Load:
    """One ALTER TABLE of each table, all at once, after half of the time. A row is a step, so every table has some."""
    return Load(tables, rate, seconds, "1B", f"every:{int(600 * seconds)}ms,count={tables},kinds=add-column")


@dataclass
class Watch:
    """When the first DDL came, and when the land job of the last one answered: a DDL is over with that.

    Arrivals are looked for every 20 ms.
    """

    came: float = 0.0
    last_over: float = 0.0
    over: int = 0
    _spied: bool = False

    def look(self, handle: Handle) -> None:
        changefeed = handle.changefeed
        if not self._spied:
            self._spied, run_schemas = True, changefeed.jobs.run_schemas

            def spy(plans: list[SchemaPlan], options: LandOptions) -> pa.Table:
                self.came = self.came or time.monotonic()
                receipts = run_schemas(plans, options)
                self.last_over = time.monotonic()
                return receipts

            changefeed.jobs.run_schemas = spy
        if not self.came and changefeed.ledger.blocking.blocks:
            self.came = time.monotonic()

    def enough(self) -> bool:
        return True

    @property
    def seconds(self) -> float:
        return self.last_over - self.came


def measured(data_dir: Path, name: str, load: Load, options: dict[str, str]) -> Watch:
    """The load through a changefeed; what landed is compared with a replay, DDL included."""
    home, watch = data_dir.resolve(), Watch()
    feed = Feed(load.source, home / f"ddl-{name}", home / "spool", options)
    say(f"{name}: {load.seconds:g} s of changes")
    ended = feed.run(watch=watch)
    watch.over = len(ended.drains_s)
    if not watch.over:
        raise TidegateError("no DDL came through in this run: give it more seconds")
    say(f"{name}: {watch.over} DDLs in {watch.seconds:.1f} s; checking what landed")
    report = feed.check()
    if report.bytes != ended.landed_bytes:
        raise TidegateError(f"{ended.landed_bytes} bytes were counted as landed but {report.bytes} are on the sink")
    feed.remove()
    return watch


def trigger_figures(fast: Watch, all_tables: Watch) -> Figures:
    return {
        "ddls": fast.over,
        "ddl_per_s": fast.over / fast.seconds,
        "migrated_tables": all_tables.over,
        "ddl_all_tables_s": all_tables.seconds,
    }
