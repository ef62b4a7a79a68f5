"""The public names: what users import, and nothing by accident."""

from __future__ import annotations

import subprocess
import sys

import tidegate


def test_the_public_names_are_these() -> None:
    assert tidegate.__all__ == [
        "EVENTS_DDL",
        "Column",
        "Handle",
        "Layout",
        "Position",
        "Status",
        "__version__",
        "write_stream",
    ]


def test_every_public_name_is_there() -> None:
    for name in tidegate.__all__:
        assert getattr(tidegate, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(tidegate, "write_batch")


def test_importing_the_package_loads_no_spark() -> None:
    """Tasks on executors import parts of it and need no driver code."""
    text = "import sys, tidegate; print([name for name in ('pyspark', 'tidegate.spark') if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert answer.stdout == "[]\n"
