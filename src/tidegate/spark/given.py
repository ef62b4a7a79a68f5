"""What a caller of `write_stream` gave: a wrong type is one sentence that says what belongs there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame

from tidegate.config.settings import read_config
from tidegate.errors import BadSetting

Config = Mapping[str, Any] | str | os.PathLike[str]


def check_call(open_source: object, sink_uri: object) -> None:
    if isinstance(open_source, DataFrame) or not callable(open_source):
        raise BadSetting(
            f"open_source must be a function that takes a position and returns a streaming DataFrame, "
            f"not {_kind(open_source)}: write `lambda position: events`"
        )
    if not isinstance(sink_uri, str):
        raise BadSetting(f"sink_uri must be a text such as 'file:///data/cdc', not {_kind(sink_uri)}")


def config_of(config: object) -> Mapping[str, Any] | None:
    """The options of a TOML file, given as its path or as what `tomllib` made of it."""
    if isinstance(config, str | os.PathLike):
        return read_config(config)
    if config is not None and not isinstance(config, Mapping):
        raise BadSetting(f"config must be the path of a TOML file, or its content as a dict, not {_kind(config)}")
    return config


def check_events(events: object) -> None:
    """Whether `open_source` returned something that can be read."""
    if not isinstance(events, DataFrame):
        raise BadSetting(f"open_source must return a streaming DataFrame, but it returned {_kind(events)}")
    if not events.isStreaming:
        raise BadSetting(
            "open_source must return a streaming DataFrame, but it returned one that is read once: "
            "use spark.readStream instead of spark.read, and finite=True if it is to end"
        )


def _kind(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
