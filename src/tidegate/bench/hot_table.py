"""`hot-table`: one table alone, with delete transactions of 20,000 rows, in both encoder orderings.

In `per-table` ordering one task encodes the whole table; in `global` ordering its rows are shared by all cores and
order is restored from the sequence. The share of the cores is processor time of the process tree over time and cores.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlencode

from tidegate.bench.harness.feed import Ended, Feed, say, session
from tidegate.bench.harness.figures import Figures
from tidegate.bench.harness.memory import cores
from tidegate.bench.harness.parameters import byte_size, count
from tidegate.errors import TidegateError


@dataclass(frozen=True)
class Parameters:
    txn_rows: int = count(20_000, "rows that one transaction deletes, about 4.4 MiB of CSV with 20,000")
    transactions: int = count(250, "transactions of each ordering")
    file_size: str = byte_size("64MiB", "file-size of the changefeed")
    warm_transactions: int = count(20, "transactions of the warm-up, in each ordering")

    @property
    def events(self) -> int:
        return self.txn_rows * self.transactions

    def workload(self) -> str:
        query = {"tables": 1, "txn-rows": self.txn_rows, "mix": "0:0:100", "prepare": "false", "events": self.events}
        return f"workload://sysbench?{urlencode(query, safe=':')}"


def run(data_dir: Path, wanted: Parameters) -> Figures:
    with session():
        say("warming up")
        few = replace(wanted, transactions=min(wanted.transactions, wanted.warm_transactions))
        for ordering in ("per-table", "global"):
            _measured(data_dir, few, ordering)
        per_table = _measured(data_dir, wanted, "per-table")
        globally = _measured(data_dir, wanted, "global")
    return figures(per_table, globally)


def figures(per_table: Ended, globally: Ended) -> Figures:
    return {
        "landed_mib_s": per_table.landed_mib_s,
        "landed_mib_s_per_table": per_table.landed_mib_s,
        "landed_mib_s_global": globally.landed_mib_s,
        "cores_used_per_table": cores_used(per_table),
        "cores_used_global": cores_used(globally),
    }


def cores_used(ended: Ended) -> float:
    """Share of all cores: 0.5 is one of two."""
    return ended.cpu_seconds / ended.seconds / cores()


def _measured(data_dir: Path, wanted: Parameters, ordering: str) -> Ended:
    say(f"{ordering}: {wanted.transactions} transactions of {wanted.txn_rows} deletes")
    home = data_dir.resolve()
    options = {"file-size": wanted.file_size, "encoder-ordering": ordering}
    feed = Feed(wanted.workload(), home / f"hot-table-{ordering}", home / "spool", options)
    ended = feed.run()
    check_deletes(feed.check().rows, wanted.events)
    feed.remove()
    say(f"{ordering}: {ended.landed_mib_s:.0f} MiB/s, {cores_used(ended):.0%} of the cores")
    return ended


def check_deletes(found: int, wanted: int) -> None:
    if found != wanted:
        raise TidegateError(f"{found} rows are on the sink after {wanted} deletes, so the speed means nothing")
