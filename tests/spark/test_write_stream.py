"""What a caller of `write_stream` may get wrong is said in one sentence, before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import tidegate
from tidegate.errors import BadSetting


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda spark: {"open_source": lambda position: None}, "but it returned None"),
        (lambda spark: {"open_source": lambda position: "events"}, "but it returned a str"),
        (lambda spark: {"open_source": lambda position: spark.range(3)}, "use spark.readStream instead of spark.read"),
        (lambda spark: {"open_source": spark.range(3)}, "must be a function .* not a DataFrame"),
        (lambda spark: {"open_source": None}, "must be a function .* not None"),
        (lambda spark: {"sink_uri": Path("/data/out")}, "must be a text such as 'file:///data/cdc', not a PosixPath"),
        (lambda spark: {"config": ["file-size=1"]}, "config must be the path of a TOML file, or its content as a dict"),
        (lambda spark: {"config": {1: 2}}, "unknown option '1' in the config file"),
        (lambda spark: {"config": "no-such.toml"}, "config file 'no-such.toml' cannot be read"),
        (lambda spark: {"metrics_addr": 9100}, "metrics address 9100 must be HOST:PORT"),
        (lambda spark: {"file_sise": 1}, "did you mean 'file-size'"),
    ],
)
def test_an_argument_of_the_wrong_type_is_one_sentence(
    spark: SparkSession, tmp_path: Path, wrong: Callable[[SparkSession], dict[str, Any]], sentence: str
) -> None:
    right: dict[str, Any] = {"open_source": lambda position: None, "spool_dir": str(tmp_path)}
    right["sink_uri"] = f"file://{tmp_path}/out"
    with pytest.raises(BadSetting, match=sentence):
        tidegate.write_stream(**(right | wrong(spark)))
    assert not (tmp_path / "out" / "metadata").exists()


def test_a_config_may_be_a_path(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "changefeed.toml").write_text('[sink]\nprotocol = "avro"\n')
    for path in (tmp_path / "changefeed.toml", str(tmp_path / "changefeed.toml")):
        with pytest.raises(BadSetting, match="protocol must be csv or canal-json"):
            tidegate.write_stream(lambda position: spark.range(1), f"file://{tmp_path}/out", config=path)
