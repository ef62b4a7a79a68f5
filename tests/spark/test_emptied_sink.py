"""A sink that is emptied while a query runs ends the changefeed for good."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tidegate.errors import SinkEmptied
from tidegate.spark.handle import start_source
from tidegate.testing import until

ENDLESS = "workload://sysbench?tables=4&rows=2000&txn-rows=7&batch=64KiB&rate=1MiB"


def test_an_emptied_sink_ends_the_changefeed_without_a_new_start(
    spark: SparkSession, place: Callable[..., Any]
) -> None:
    settings = place()
    sink = Path(settings.sink_uri.removeprefix("file://"))
    handle = start_source(ENDLESS, settings)
    until(lambda: (sink / "metadata").exists())
    for path in list(sink.iterdir()):
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    with pytest.raises(SinkEmptied, match="is gone: somebody has emptied this sink"):
        handle.await_termination(240)
