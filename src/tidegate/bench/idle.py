"""`idle`: the same active tables beside ever more tables that are known and idle.

The known tables come from a journal that is written as a changefeed would have written it. They have nothing else on
the sink. Then a changefeed starts on it and reads a paced workload of the active tables, which are the first ones of
the known. The sizes run one after the other in one JVM, the smallest first. With `--layouts 1000000` every table has a
list of columns of its own.

    batch_ms_ratio_1m_to_10k    median time from a micro-batch's start to its wake, the most known against the fewest
    bytes_per_idle_table        growth of the driver's memory (PSS) from the fewest to the most, by table
    snapshot_mib_1m             the snapshot of the journal that knows the most
    journal_mib_1m              all objects of that journal
    start_s_1m                  from the start to the first wake, with the most known
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pyarrow as pa

from tidegate.bench.harness.feed import Feed, journal_sizes, say, session
from tidegate.bench.harness.figures import MIB, Figures, percentile
from tidegate.bench.harness.memory import pss_bytes
from tidegate.bench.harness.parameters import byte_rate, count, duration, number, text
from tidegate.config.settings import Settings, shape
from tidegate.control.ledger import Ledger
from tidegate.control.limits import Limits
from tidegate.driver.entries import Head
from tidegate.driver.journal import Journal, Snapshot
from tidegate.errors import BadSetting
from tidegate.events import tso
from tidegate.format.layout_texts import LayoutTexts
from tidegate.sources.workload.layouts import Layouts, fingerprint
from tidegate.sources.workload.params import Workload
from tidegate.sources.workload.sysbench import FIRST_TABLE_ID, LAYOUT, SCHEMA_ID, SCHEMA_NAME, table_names
from tidegate.spark.handle import Handle
from tidegate.storage.store import open_store

_WARM_BATCHES = 3
_SEED = 1
_AT_ONCE = 50_000  # layouts whose texts are made together
_MEMORY_EVERY_S = 1.0


@dataclass(frozen=True)
class Parameters:
    active: int = count(1_000, "tables that get changes; the others are idle")
    known: str = text("10000,100000,1000000", "numbers of known tables, the smallest first")
    seconds: float = number(30.0, "seconds that each number of known tables is read for")
    layouts: int = count(1, "different lists of columns that the known tables have")
    rate: str = byte_rate("4MiB", "bytes per second of the active tables together")
    flush_interval: str = duration("5s", "flush-interval of the changefeed")

    @property
    def sizes(self) -> list[int]:
        found = [int(size) for size in self.known.split(",") if size.isdecimal()]
        if len(found) < 2 or found != sorted(found) or self.active > found[0]:
            raise BadSetting("--known lists at least two sizes such as 10000,1000000, none smaller than --active")
        return found

    def workload(self) -> str:
        query = {"tables": self.active, "rows": 1_000, "batch": "1KiB", "prepare": "false", "rate": self.rate}
        query |= {"layouts": min(self.layouts, self.active), "seed": _SEED}
        return f"workload://sysbench?{urlencode(query)}"


@dataclass
class Watch:
    """When the first wake came, and what the driver took last."""

    started: float = field(default_factory=time.monotonic)
    start_s: float = 0.0
    driver_bytes: int = 0
    batches: int = 0
    _looked: float = 0.0

    def look(self, handle: Handle) -> None:
        now, self.batches = time.monotonic(), len(handle.changefeed.totals.wakes_s)
        if not self.start_s and self.batches:
            self.start_s = now - self.started
        if self.batches and now - self._looked > _MEMORY_EVERY_S:
            gc.collect()
            self._looked, self.driver_bytes = now, pss_bytes(os.getpid())

    def enough(self) -> bool:
        return self.batches > 2 * _WARM_BATCHES


@dataclass(frozen=True)
class Size:
    """What one number of known tables costs."""

    known: int
    batch_ms: float
    driver_bytes: int
    start_s: float
    snapshot_bytes: int = 0
    journal_bytes: int = 0


def run(data_dir: Path, wanted: Parameters) -> Figures:
    sizes = wanted.sizes
    with session():
        say("warming up")
        _measured(data_dir, wanted, sizes[0])
        return figures([_measured(data_dir, wanted, known) for known in sizes])


def figures(sizes: list[Size]) -> Figures:
    few, many = sizes[0], sizes[-1]
    grown = max(0, many.driver_bytes - few.driver_bytes)
    found: Figures = {
        f"batch_ms_ratio_{short(many.known)}_to_{short(few.known)}": many.batch_ms / few.batch_ms,
        "bytes_per_idle_table": grown / (many.known - few.known),
        f"start_s_{short(many.known)}": many.start_s,
    }
    for size in sizes:
        found[f"batch_ms_{short(size.known)}"] = size.batch_ms
        found[f"driver_mib_{short(size.known)}"] = size.driver_bytes / MIB
        found[f"snapshot_mib_{short(size.known)}"] = size.snapshot_bytes / MIB
        found[f"journal_mib_{short(size.known)}"] = size.journal_bytes / MIB
    return found | {f"start_s_{short(few.known)}": few.start_s}


def short(tables: int) -> str:
    """`10k`, `1m`, and `1500` as it is."""
    for unit, letter in ((1_000_000, "m"), (1_000, "k")):
        if tables and tables % unit == 0:
            return f"{tables // unit}{letter}"
    return str(tables)


def _measured(data_dir: Path, wanted: Parameters, known: int) -> Size:
    home = data_dir.resolve()
    sink = home / f"idle-{known}"
    feed, watch = Feed(wanted.workload(), sink, home / "spool", {"flush-interval": wanted.flush_interval}), Watch()
    feed.clear()
    sink.mkdir(parents=True)
    words = json.dumps([str(sink), str(home / "spool"), known, wanted.layouts])
    # In a process of its own, because its memory must not count as the changefeed's.
    subprocess.run([sys.executable, "-c", f"from {__name__} import main; main()", words], check=True)
    sizes = journal_sizes(feed)
    watch.started = time.monotonic()
    ended = feed.go_on(wanted.seconds, watch)
    feed.remove()
    batch_ms = 1000 * percentile(ended.wakes_s[_WARM_BATCHES:], 50)
    say(
        f"{known} known: {batch_ms:.0f} ms a micro-batch, driver {watch.driver_bytes / MIB:.0f} MiB, "
        f"first wake after {watch.start_s:.1f} s"
    )
    return Size(known, batch_ms, watch.driver_bytes, watch.start_s, *sizes)


def main() -> None:
    sink, spool, known, layouts = json.loads(sys.argv[1])
    write_known(Feed("", Path(sink), Path(spool)).settings, known, layouts)


def write_known(settings: Settings, known: int, layouts: int = 1) -> None:
    """A journal that knows so many tables, each with one file of an earlier day, and so many layouts."""
    epoch_ms = int(Workload().epoch.timestamp() * 1000)
    version, durable_ts = tso(epoch_ms - 1000), tso(epoch_ms - 500)
    ledger = known_tables(known, version, durable_ts)
    store = open_store(settings.sink_uri, settings.access)
    store.prepare()
    journal = Journal(store, settings.paths)
    texts = LayoutTexts.of_dict(dict(layout_texts(min(layouts, known))))
    head = Head(durable_ts, None, texts, takeover=True, shape=shape(settings))
    journal.record(head)
    journal.snapshot(lambda: Snapshot(ledger.export().tables, [], head))


def layout_texts(count: int) -> Iterator[tuple[int, str]]:
    """The layouts of a workload with so many, by fingerprint."""
    if count == 1:
        yield LAYOUT.fingerprint, LAYOUT.to_json()
        return
    layouts = Layouts(count, _SEED)
    for first in range(0, count, _AT_ONCE):
        numbers = np.arange(first, min(first + _AT_ONCE, count))
        texts = layouts.texts(numbers, np.zeros_like(numbers)).to_pylist()
        yield from ((fingerprint(text.encode()), text) for text in texts)


def known_tables(known: int, version: int, durable_ts: int) -> Ledger:
    """The ledger of a changefeed for which each of these tables has landed one file."""
    ledger = Ledger(Limits())
    ids: Any = np.arange(FIRST_TABLE_ID, FIRST_TABLE_ID + known)
    numbers = ledger.queues.number(ids, np.zeros(known, np.int64), ids)
    schemas = pa.array([SCHEMA_NAME]).take(pa.array(np.zeros(known, np.int64)))
    ledger.queues.names.rename_many(numbers, schemas, table_names(np.arange(1, known + 1)), ids)
    ds, lanes = ledger.queues.dispatchers, ledger.queues.lanes
    ds.schema_id[numbers], ds.version[numbers] = SCHEMA_ID, version
    ds.durable_ts[numbers] = ds.accepted_ts[numbers] = durable_ts
    lane = ds.lane[numbers]
    lanes.version[lane] = lanes.directory[lane] = lanes.schema_version[lane] = version
    lanes.date[lane], lanes.number[lane] = 20260101, 1
    return ledger
