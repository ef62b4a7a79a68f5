"""What the clients of `latency` and `small` do: transactions of one row."""

from __future__ import annotations

import time
from typing import Any

from tidegate.bench.harness.clients import Load, Work
from tidegate.bench.mysql.tables import SCHEMA, sysbench_row

TIMED = "id bigint PRIMARY KEY, at_us bigint NOT NULL, note varchar(80) NOT NULL"
_CLIENT_IDS = 1 << 40  # ids of client n begin at n times this


def timed_rows(work: Work) -> dict[str, Any]:
    """One row every `every_s`, with this client's clock in it just before the statement goes out."""
    every_s, tables = float(work.values["every_s"]), int(work.values["tables"])
    until, row = time.monotonic() + float(work.values["seconds"]), 0
    due = time.monotonic() + work.chance.uniform(0, every_s)
    with work.connect() as connection, connection.cursor() as cursor:
        while (now := time.monotonic()) < until and work.goes_on():
            if now < due:
                time.sleep(min(due - now, 0.05))
                continue
            due += every_s
            id_ = work.task.number * _CLIENT_IDS + row
            values = f"({id_},{time.time_ns() // 1000},'a row of client {work.task.number}')"
            cursor.execute(f"INSERT INTO {SCHEMA}.timed{row % tables + 1} VALUES {values}")
            row += 1
    return {"rows": row}


def single_rows(work: Work) -> dict[str, Any]:
    """So many transactions of one row as fast as the server takes them: an insert, or an update of a row before it."""
    table, wanted = f"{SCHEMA}.sbtest{work.task.number}", int(work.values["transactions"])
    first = int(work.values["first"])
    with work.connect() as connection, connection.cursor() as cursor:
        for i in range(first, first + wanted):
            if i % 2:
                cursor.execute(f"UPDATE {table} SET k = k + 1 WHERE id = {i - 1}")
            else:
                cursor.execute(f"INSERT INTO {table} VALUES {sysbench_row(i)}")
    return {"rows": wanted}


LOADS: dict[str, Load] = {"timed_rows": timed_rows, "single_rows": single_rows}
