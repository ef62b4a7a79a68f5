"""DDLs in a DataFrame of the user's own, where nobody ends a micro-batch at a DDL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import tidegate
from tidegate.events import DDL, EVENTS_DDL
from tidegate.format.ddl.scope import alter_database_charset
from tidegate.sources.parquet import write_events
from tidegate.storage.files import FileStore
from tidegate.testing import SHAPE, START_TS, change, events_batch, landed_lines, layout_row, resolved_row

SHOP = 100


def insert(ts: int, number: int) -> dict[str, Any]:
    return change(number, START_TS + ts, ts, schema_id=SHOP)


def test_a_database_ddl_in_the_middle_of_a_micro_batch_lands_in_its_place(spark: SparkSession, tmp_path: Path) -> None:
    event = alter_database_charset(SHOP, "shop", "ALTER DATABASE `shop` CHARSET utf8mb4")
    ddl = {"kind": DDL, "commit_ts": START_TS + 50, "seq": 0, "table_id": 0, "ddl": event.to_json()}
    rows = [insert(ts, number) for ts in range(1, 100) for number in (1, 2)]
    write_events(
        tmp_path / "events", [events_batch([layout_row(SHAPE), *rows, ddl, resolved_row(START_TS + 99)])], 10**6
    )
    handle = tidegate.write_stream(
        lambda _: spark.readStream.schema(EVENTS_DDL).parquet(str(tmp_path / "events")),
        f"file://{tmp_path}/out",
        spool_dir=str(tmp_path / "spool"),
        finite=True,
    )
    assert handle.await_termination(240)
    assert handle.restarts == 0
    assert handle.status().checkpoint_ts == START_TS + 99
    store = FileStore(tmp_path / "out")
    paths = [path for path, _ in store.list("")]
    assert [path for path in paths if path.startswith(f"shop/meta/schema_{START_TS + 50}_")]
    data = sorted(path for path in paths if path.startswith("shop/t1/") and path.endswith(".csv"))
    assert [len((store.get(path) or b"").splitlines()) for path in data] == [49, 50], "cut at the DDL"
    assert [len(lines) for lines in landed_lines(store).values()] == [99, 99]
