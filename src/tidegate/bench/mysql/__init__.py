"""`mysql`: a live database as the source, against what else could do the same work.

A server is started in the data directory and real clients write into it. Processor seconds are those of Tidegate's
whole process tree (this process, the JVM, its Python workers, the process that reads the log), without the server's.
Every part compares what it got with the database. `--part` chooses one; `all` are all but `kills`.

decode    decode_ratio_to_pure_python (at least 8 is wanted): four logs, many rows an event, one row an event, updates,
          and 13 columns of mixed types, read from the server and decoded; `mysql-replication`'s time by ours, the least
log       ratio_to_parquet (at least 0.75): the same rows through `parquet:`, processor seconds of that by ours
snapshot  snapshot_ratio_to_jdbc (at least 1.2): the same tables through Spark's JDBC reader and `write_stream`,
          processor seconds of that by ours
latency   commit_to_durable_p99_over_interval (at most 1.5): from a client's clock before its commit until a reader that
          follows the index sees the row, by flush-interval
small     cpu_over_server_and_clients (at most 1): transactions of one row; our processor time by theirs
kills     wrong (must be 0): clients write and change tables while the changefeed is killed `--kills` times, during the
          snapshot, the log and DDLs; then `verify` compares every table with the database
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tidegate.bench.harness.databases import running_database
from tidegate.bench.harness.feed import say
from tidegate.bench.harness.figures import Figures
from tidegate.bench.mysql import decode, kills, latency, log, small, snapshot
from tidegate.bench.mysql.parameters import ALL, KILLS, PARTS, Parameters, Place

__all__ = ["Parameters", "run"]

_RUNS: dict[str, Callable[[Place, Parameters], Figures]] = {
    "decode": decode.run,
    "log": log.run,
    "snapshot": snapshot.run,
    "latency": latency.run,
    "small": small.run,
    KILLS: kills.run,
}


def run(data_dir: Path, wanted: Parameters) -> Figures:
    chosen = [part for part in PARTS if part != KILLS] if wanted.part == ALL else [wanted.part]
    home = data_dir.resolve() / f"mysql-{wanted.server}"
    figures: Figures = {}
    for part in chosen:
        say(f"{part}: {wanted.server}")
        # A server of its own: what one part leaves in log and buffers must not slow the next.
        with running_database(wanted.server, home / part / "server", "--innodb-buffer-pool-size=512M") as database:
            figures |= _RUNS[part](Place(database, home / part), wanted)
    return figures
