"""The session that Tidegate makes for itself."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from tidegate.errors import BadSetting
from tidegate.spark.session import check_session


def test_workers_import_spark_from_where_the_driver_does_and_nothing_from_the_current_directory(
    spark: SparkSession,
) -> None:
    def look(_: int) -> tuple[str, str, list[str]]:
        return pyspark.__file__, sys.executable, os.environ["PYTHONPATH"].split(":")

    [(where, python, paths)] = spark.sparkContext.parallelize([0], 1).map(look).collect()
    assert (where, python) == (pyspark.__file__, sys.executable)
    assert paths == [path for path in paths if path and not path.endswith(".zip")] or paths == [""]


def test_a_session_of_our_own_needs_no_warning(spark: SparkSession) -> None:
    assert check_session(spark) == (2, [])


def test_workers_with_another_python_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    other = tmp_path / "python"
    other.touch(0o755)
    own, spark.sparkContext.pythonExec = spark.sparkContext.pythonExec, str(other)
    try:
        with pytest.raises(BadSetting, match=f"Spark's workers run {other} but the driver runs {sys.executable}"):
            check_session(spark)
    finally:
        spark.sparkContext.pythonExec = own
