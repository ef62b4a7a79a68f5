"""The law of names that several table ids share, by generated lives of a changefeed.

Batches, landings, kills at any write (also with the answer lost), restarts, tables whose state is given up, new
versions and renames come in any order. In the end every row is on the sink exactly once, the rows of an id are in
order, each file has rows of one id, and TiCDC's consumer drops nothing: neither one that read all along, nor one that
begins in the end.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tidegate.driver.changefeed import Changefeed
from tidegate.errors import StoreUnavailable, TidegateError
from tidegate.format.decode.csv import decode
from tidegate.format.encode.csv import CsvOptions
from tidegate.format.layout import PathOptions, parse_data_path
from tidegate.reader.replay import survey
from tidegate.testing import (
    SHAPE,
    START_TS,
    Consumer,
    FakeClock,
    MemoryStore,
    change,
    feed,
    layout_row,
    open_changefeed,
    resolved_row,
)

CSV = CsvOptions(include_commit_ts=True)
TTL_S = 100.0
LOGICAL = {1: 1, 2: 2, 3: 3, 51: 50}  # three tables and a partition of a fourth, all under one name
Rows = list[dict[str, Any]]


class OneTargetMachine(RuleBasedStateMachine):
    @initialize(versions=st.lists(st.integers(0, 2), min_size=len(LOGICAL), max_size=len(LOGICAL)))
    def start(self, versions: list[int]) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.clock, self.objects = FakeClock(), dict[str, bytes]()
        self.batches: list[tuple[Rows, int]] = []  # all that the source has, with the resolved mark behind it
        self.versions = dict(zip(LOGICAL, versions, strict=True))
        self.names = dict.fromkeys(LOGICAL, "orders")
        self.last_ts = dict.fromkeys(LOGICAL, 0)
        self.resolved = self.seq = 0
        self.consumer = Consumer()
        self.begin(MemoryStore(objects=self.objects))

    # -- lives ---------------------------------------------------------------------------------------------------------

    def begin(self, store: MemoryStore) -> None:
        """A start, which reads all that the source has behind the position on record."""
        self.store: MemoryStore = store
        self.changefeed: Changefeed | None = None
        self.fed = 0
        try:
            spool = Path(self.folder.name, "spool")
            self.changefeed = open_changefeed(store, spool, self.clock, csv=CSV, state_ttl_s=TTL_S)
            self.fed = int(self.changefeed.ledger.progress.position or 0)
            self.read_on()
        except StoreUnavailable:
            self.recover()

    def read_on(self) -> None:
        assert self.changefeed is not None
        for number, (rows, resolved) in enumerate(self.batches[self.fed :], self.fed + 1):
            feed(self.changefeed, number, [layout_row(), *rows, resolved_row(START_TS + resolved)], str(number))
        self.fed = len(self.batches)

    def recover(self) -> None:
        """The process was killed by a fault: the next one has a store that works."""
        self.end()
        self.begin(MemoryStore(objects=self.objects))

    def end(self) -> None:
        if self.changefeed is not None:
            self.changefeed.life.fail(TidegateError("killed"))
            self.changefeed.close()

    # -- what may happen -----------------------------------------------------------------------------------------------

    @rule(data=st.data())
    def changes(self, data: st.DataObject) -> None:
        """A batch with rows of some tables, in order for each table, and beyond the resolved mark."""
        rows: Rows = []
        for table in data.draw(st.lists(st.sampled_from(sorted(LOGICAL)), min_size=1, max_size=4)):
            self.last_ts[table] = max(self.resolved, self.last_ts[table]) + data.draw(st.integers(1, 4))
            self.seq += 1
            rows.append(self._row(table))
        if data.draw(st.booleans()):
            self.resolved = max(self.resolved, max(self.last_ts.values()) - data.draw(st.sampled_from([0, 0, 2])))
        self.batches.append((rows, self.resolved))
        self.read_on()

    def _row(self, table: int) -> dict[str, Any]:
        columns: dict[str, Any] = {"table_name": self.names[table], "logical_table_id": LOGICAL[table]}
        values = str(self.seq).encode(), str(table).encode()
        version = START_TS + self.versions[table]
        return change(table, START_TS + self.last_ts[table], self.seq, *values, table_version=version, **columns)

    @rule(table=st.sampled_from(sorted(LOGICAL)), step=st.integers(1, 2))
    def a_new_version(self, table: int, step: int) -> None:
        self.versions[table] += step

    @rule(table=st.sampled_from(sorted(LOGICAL)), name=st.sampled_from(["orders", "orders", "carts"]))
    def a_rename(self, table: int, name: str) -> None:
        if name != self.names[table]:
            self.names[table], self.versions[table] = name, max(self.versions.values()) + 1

    @rule(rounds=st.integers(1, 8), seconds=st.sampled_from([0.5, 6.0, 6.0]))
    def some_rounds_land(self, rounds: int, seconds: float) -> None:
        assert self.changefeed is not None
        self.clock.advance(seconds)
        try:
            for _ in range(rounds):
                self.changefeed.landing.land_next()
        except StoreUnavailable:
            self.recover()

    @rule()
    def progress_is_written(self) -> None:
        assert self.changefeed is not None
        try:
            self.changefeed.scribe.write_progress()
        except StoreUnavailable:
            self.recover()

    @rule()
    def tables_are_forgotten(self) -> None:
        self.clock.advance(3 * TTL_S)
        self.progress_is_written()

    @rule()
    def the_journal_is_compacted(self) -> None:
        assert self.changefeed is not None
        try:
            self.changefeed.scribe.compact()
        except StoreUnavailable:
            self.recover()

    @rule(days=st.integers(1, 2))
    def days_pass(self, days: int) -> None:
        self.clock.advance(days * 86_400.0)

    @rule(writes=st.integers(0, 30), word=st.sampled_from(["unavailable", "lost"]))
    def a_restart_that_will_be_killed(self, writes: int, word: str) -> None:
        """After so many writes all that the new process asks fails; the first time perhaps only the answer is lost."""
        self.end()
        self.begin(MemoryStore(["ok"] * writes + [word], "unavailable", self.objects))

    @rule()
    def a_restart(self) -> None:
        self.recover()

    @precondition(lambda self: hasattr(self, "consumer"))
    @rule()
    def a_consumer_reads(self) -> None:
        self.consumer.round(MemoryStore(objects=self.objects))
        assert self.consumer.dropped == []

    # -- what must hold in the end -------------------------------------------------------------------------------------

    def teardown(self) -> None:
        if not hasattr(self, "changefeed"):
            return
        self.recover()
        assert self.changefeed is not None
        for _ in range(40):
            if self.changefeed.ledger.idle:
                break
            self.clock.advance(61.0)
            while self.changefeed.landing.land_next():
                pass
        assert self.changefeed.ledger.idle
        self.end()
        self.folder.cleanup()
        self._check()

    def _check(self) -> None:
        store, fresh = MemoryStore(objects=self.objects), Consumer()
        self.consumer.round(store)
        fresh.round(store)
        sent = [row for rows, _ in self.batches for row in rows]
        for consumer in (self.consumer, fresh):
            assert consumer.dropped == []
            for table in LOGICAL:
                found = [line.values[0] for line in consumer.taken if line.values[1] == str(table).encode()]
                assert found == [row["after"][0] for row in sent if row["table_id"] == table], f"table {table}"
        for path, data in self.objects.items():
            if parse_data_path(path, PathOptions()) is not None:
                assert len({line.values[1] for line in decode(data, SHAPE, CSV)}) == 1, f"{path} has rows of one id"
        assert survey(store, PathOptions()).faults == []


TestOneTarget = OneTargetMachine.TestCase
TestOneTarget.settings = settings(
    deadline=None,
    print_blob=True,
    max_examples=2 * settings().max_examples,
    stateful_step_count=30,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
