"""One Spark session for all tests with Spark."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tidegate.settings import Settings, load_settings


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # Workers would start with another Python than the one that has the package.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2,4]")
        .appName("tidegate-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.scheduler.mode", "FAIR")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "1g")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def place(tmp_path: Path) -> Callable[..., Settings]:
    """Settings of a changefeed with small files, into a directory unless a sink is given."""

    def settings(sink: str = "", **options: Any) -> Settings:
        options = {"spool_dir": str(tmp_path / "spool"), "flush_interval": "1s", "file_size": "64KiB", **options}
        return load_settings(sink or f"file://{tmp_path}/out", None, options)

    return settings
