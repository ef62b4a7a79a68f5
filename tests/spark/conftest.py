"""One Spark session for all tests with Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tidegate.config.settings import Settings, load_settings
from tidegate.spark.session import local_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = local_session(slots=2, driver_memory="1g")
    yield session
    session.stop()


@pytest.fixture
def place(tmp_path: Path) -> Callable[..., Settings]:
    """Settings of a changefeed with small files, into a directory unless a sink is given."""

    def settings(sink: str = "", **options: Any) -> Settings:
        options = {"spool_dir": str(tmp_path / "spool"), "flush_interval": "1s", "file_size": "64KiB", **options}
        return load_settings(sink or f"file://{tmp_path}/out", None, options)

    return settings
