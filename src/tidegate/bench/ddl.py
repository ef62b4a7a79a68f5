"""`ddl`: 1,000 tables under load, a single-table DDL every 100 ms, a DDL over the whole database every 10 s.

The same workload runs without and with DDL, in one JVM, at a rate that it can just hold. Its rows come at that rate in
both, so what DDL costs shows in the time until all has landed, and in how long tables that no DDL touches go without a
landing. What landed is compared with a replay after each run, DDL included.

    drain_p50_ms, drain_p99_ms     from a DDL's arrival until all before it was durable
    throughput_ratio_to_no_ddl     bytes per second until everything is on the sink, with DDL against without
    other_tables_stalled_ms        longest pause between two landings of a table while no DDL touched it, less the same
                                   without DDL
    all_ddl_ms_1m                  the driver's time for one DDL over 1,000,000 known tables, 1,000 of which are active

With `--kinds trigger` the DDLs are those that the table trigger takes part in (truncate, rename, drop, create), every
few milliseconds, and after them a migration changes all of many tables at once while their rows go on:

    ddl_per_s                      DDLs that are over, by the time from the first arrival until the last is over
    ddl_all_tables_s               from the arrival of one ALTER TABLE of each table until all are over
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pyarrow as pa

from tidegate.bench.ddl_trigger import measured, migration, often, trigger_figures
from tidegate.bench.harness.feed import Ended, Feed, say, session
from tidegate.bench.harness.figures import Figures, percentile
from tidegate.bench.harness.parameters import byte_rate, byte_size, count, duration, number, one_of
from tidegate.control.barrier import Key
from tidegate.control.blocking import Ddl
from tidegate.control.ledger import Ledger
from tidegate.control.limits import Limits
from tidegate.control.markers import Block
from tidegate.errors import TidegateError
from tidegate.executor.jobs import LandJob
from tidegate.executor.rows import ITEMS, ROWS
from tidegate.format.ddl.events import DATABASE_CHARSET, DB, DdlEvent, Scope, TableAfter
from tidegate.sources.source import byte_count
from tidegate.spark.handle import Handle

_SCHEMA_ID = 100


@dataclass(frozen=True)
class Parameters:
    tables: int = count(1_000, "tables under load")
    seconds: float = number(30.0, "the rows are made for so many seconds at the rate")
    rate: str = byte_rate("32MiB", "bytes per second of all tables together")
    single: str = duration("100ms", "how often a DDL of one table comes")
    database: str = duration("10s", "how often a DDL of the whole database comes")
    flush_interval: str = duration("2s", "flush-interval of the changefeed")
    file_size: str = byte_size("4MiB", "file-size of the changefeed")
    kinds: str = one_of("alters", "DDLs of single tables, or those of the table trigger", ("alters", "trigger"))
    trigger: str = duration("4ms", "with --kinds trigger: how often a DDL comes")
    trigger_rate: str = byte_rate("4MiB", "with --kinds trigger: bytes per second of all tables together")
    migrated: int = count(10_000, "with --kinds trigger: tables that are changed at once")
    migrated_interval: str = duration("10s", "with --kinds trigger: flush-interval while they are changed")
    known: int = count(1_000_000, "tables that the ledger knows when one DDL over all is timed")
    active: int = count(1_000, "of these, tables with changes that have to land first")

    def workload(self, with_ddl: bool) -> str:
        row_bytes = 220
        events = int(byte_count(self.rate) * self.seconds / row_bytes)
        query: dict[str, Any] = {"tables": self.tables, "rows": 1_000, "events": events, "rate": self.rate, "seed": 1}
        query["batch"] = "16KiB"
        query["prepare"] = "false"
        if with_ddl:
            kinds = "add-column|drop-column|modify-column|add-index"
            query["ddl"] = f"every:{self.single},kinds={kinds};every:{self.database},kinds=alter-database"
        return f"workload://sysbench?{urlencode(query)}"


@dataclass
class Watch:
    """When each table landed, and when a DDL touched it; looks every 20 ms."""

    landed: dict[str, list[float]] = field(default_factory=dict)
    touched: dict[str, list[float]] = field(default_factory=dict)
    _spied: bool = False

    def look(self, handle: Handle) -> None:
        changefeed = handle.changefeed
        if not self._spied:
            self._spied, run_land = True, changefeed.jobs.run_files

            def spy(plans: pa.Table, job: LandJob) -> pa.Table:
                receipts = run_land(plans, job)
                now = time.monotonic()
                for table in plans["table_name"].to_pylist():
                    self.landed.setdefault(table, []).append(now)
                return receipts

            changefeed.jobs.run_files = spy
        blocks = list(changefeed.ledger.blocking.blocks.values())
        if any(block.wide is not None for block in blocks):
            self.touched.setdefault("", []).append(time.monotonic())
        for block in blocks:
            for table in block.event.tables:
                self.touched.setdefault(table.old_table or table.table, []).append(time.monotonic())
                self.touched.setdefault(table.table, []).append(time.monotonic())

    def enough(self) -> bool:
        return True

    def longest_pause_s(self) -> float:
        """The longest time between two landings of one table during which no DDL touched it."""
        longest = 0.0
        for table, moments in self.landed.items():
            marks = np.array(sorted([*self.touched.get(table, []), *self.touched.get("", [])]))
            for before, after in pairwise(moments):
                at = int(np.searchsorted(marks, before - 1.0))
                if after - before > longest and not (at < len(marks) and marks[at] < after):
                    longest = after - before
        return longest


def run(data_dir: Path, wanted: Parameters) -> Figures:
    return _run_trigger(data_dir, wanted) if wanted.kinds == "trigger" else _run_alters(data_dir, wanted)


def _run_trigger(data_dir: Path, wanted: Parameters) -> Figures:
    options = {"file-size": wanted.file_size, "flush-interval": wanted.flush_interval}
    slower = options | {"flush-interval": wanted.migrated_interval}
    one_by_one = often(wanted.tables, wanted.trigger_rate, wanted.seconds, wanted.trigger)
    in_one_go = migration(wanted.migrated, wanted.trigger_rate, wanted.seconds)
    with session():
        _warm_up(data_dir, wanted)
        fast = measured(data_dir, "trigger", one_by_one, options)
        all_tables = measured(data_dir, "migration", in_one_go, slower)
    return trigger_figures(fast, all_tables)


def _run_alters(data_dir: Path, wanted: Parameters) -> Figures:
    with session():
        _warm_up(data_dir, wanted)
        plain, plain_watch = _measured(data_dir, wanted, with_ddl=False)
        mixed, mixed_watch = _measured(data_dir, wanted, with_ddl=True)
    say(f"one DDL over {wanted.known} known tables")
    return {
        "drain_p50_ms": percentile([1000 * s for s in mixed.drains_s], 50),
        "drain_p99_ms": percentile([1000 * s for s in mixed.drains_s], 99),
        "ddls": len(mixed.drains_s),
        "landed_mib_s": mixed.landed_mib_s,
        "no_ddl_mib_s": plain.landed_mib_s,
        "throughput_ratio_to_no_ddl": mixed.landed_mib_s / plain.landed_mib_s,
        "other_tables_stalled_ms": 1000 * max(0.0, mixed_watch.longest_pause_s() - plain_watch.longest_pause_s()),
        "longest_pause_ms": 1000 * mixed_watch.longest_pause_s(),
        "no_ddl_longest_pause_ms": 1000 * plain_watch.longest_pause_s(),
        "all_ddl_ms_1m": 1000 * one_wide_ddl(wanted.known, wanted.active),
    }


def _warm_up(data_dir: Path, wanted: Parameters) -> None:
    say("warming up")
    feed = _feed(data_dir, wanted, "warm-up", with_ddl=False)
    feed.run(4.0)
    feed.remove()


def _measured(data_dir: Path, wanted: Parameters, with_ddl: bool) -> tuple[Ended, Watch]:
    name = "with DDL" if with_ddl else "without DDL"
    say(f"{name}: {wanted.seconds:g} s of changes")
    feed, watch = _feed(data_dir, wanted, "mixed" if with_ddl else "plain", with_ddl), Watch()
    ended = feed.run(watch=watch)
    say(f"{name}: {ended.landed_mib_s:.1f} MiB/s, {len(ended.drains_s)} DDLs; checking what landed")
    report = feed.check()
    if report.bytes != ended.landed_bytes:
        raise TidegateError(f"{ended.landed_bytes} bytes were counted as landed but {report.bytes} are on the sink")
    if with_ddl and not ended.drains_s:
        raise TidegateError("no DDL came through in this run: give it more seconds")
    feed.remove()
    return ended, watch


def _feed(data_dir: Path, wanted: Parameters, name: str, with_ddl: bool) -> Feed:
    options = {"file-size": wanted.file_size, "flush-interval": wanted.flush_interval}
    home = data_dir.resolve()
    return Feed(wanted.workload(with_ddl), home / f"ddl-{name}", home / "spool", options)


def one_wide_ddl(known: int, active: int) -> float:
    """Seconds that the ledger takes from a database's DDL to its end; landings answer at once, so only it counts."""
    ledger = Ledger(Limits())
    _ = ledger.blocking.trigger_number  # as a changefeed does at its start
    ids = np.arange(1, known + 1)
    numbers = ledger.queues.number(ids, np.zeros(known, np.int64), ids)
    ledger.queues.dispatchers.schema_id[numbers] = _SCHEMA_ID
    event = DdlEvent(
        DATABASE_CHARSET, "ALTER DATABASE `d`", _SCHEMA_ID, Scope(DB, schema_id=_SCHEMA_ID), tables=(TableAfter("d"),)
    )
    ledger.accept(0, _items(active), 0.0, "0", 10)
    started = time.perf_counter()
    ledger.accept(1, ITEMS.empty_table(), 0.0, "1", 100, [Ddl(Key(50, 0), 0, event)])
    over: list[Block] = []
    while not over:
        for write in ledger.schema_writes(0.0):
            over += ledger.schema_written(write)
        while (round_ := ledger.plan(0.0, 20260101)) is not None:
            ledger.receive(round_, np.ones(len(round_), np.bool_), 0.0, 0.1)
    seconds = time.perf_counter() - started
    if not ledger.idle:
        raise TidegateError("a DDL over the whole database ended before its tables had landed")
    return seconds


def _items(count: int) -> pa.Table:
    """One item for each of so many tables."""
    ids = np.arange(1, count + 1)
    columns: dict[str, Any] = {
        "kind": [ROWS] * count, "table_id": ids, "span": np.zeros(count), "logical_table_id": ids,
        "schema_id": np.full(count, _SCHEMA_ID), "schema_name": ["d"] * count, "table_name": [f"t{i}" for i in ids],
        "version": np.ones(count), "layout": np.ones(count), "first_ts": 10 + ids % 20, "first_seq": ids,
        "last_ts": 10 + ids % 20, "last_seq": ids, "rows": np.ones(count), "tier": np.zeros(count),
        "segment": ["s"] * count, "offset": 100 * (ids - 1), "length": np.full(count, 100), "checksum": np.zeros(count),
        "text": [None] * count, "moved": np.zeros(count),
    }  # fmt: skip
    return pa.Table.from_pydict({name: pa.array(columns[name], ITEMS.field(name).type) for name in ITEMS.names})
