"""Watches who may import whom: cli, bench -> engine, reader, sources -> control -> format -> events, errors."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "tidegate"
MODULES = sorted(path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py"))

PURE = ("format/", "control/")
WORDS = ("tidegate.events", "tidegate.errors")
MAY_IMPORT = {"format/": (*WORDS, "tidegate.format"), "control/": (*WORDS, "tidegate.format", "tidegate.control")}
MAY_USE_SPARK = ("engine/pipeline.py", "engine/session.py", "sources/datasource.py", "reader/", "cli.py", "bench/")
# Clock, log, file, thread, process, network and chance, and what of the allowed libraries touches files.
IMPURE = {
    *("time", "logging", "os", "pathlib", "shutil", "tempfile", "glob", "mmap", "fcntl", "random", "secrets"),
    *(
        "threading",
        "multiprocessing",
        "concurrent",
        "asyncio",
        "queue",
        "subprocess",
        "signal",
        "socket",
        "http",
        "urllib",
    ),
    *("pyspark", "py4j", "obstore", "prometheus_client", "pyarrow.fs", "pyarrow.parquet", "pyarrow.dataset"),
}
IMPURE_CALLS = {"open", "input", "print"}
CLOCK_CALLS = {"now", "utcnow", "today"}


def imported(tree: ast.AST) -> Iterator[str]:
    """Every dotted name that an import anywhere in the module may load, also inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def within(name: str, packages: tuple[str, ...] | set[str]) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def impure_calls(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in IMPURE_CALLS:
                yield name
            case ast.Call(func=ast.Attribute(attr=name)) if name in CLOCK_CALLS:
                yield name


def offences(module: str, text: str) -> list[str]:
    """What in the text of `module` ("format/csv.py") breaks the rules."""
    tree = ast.parse(text)
    names = set(imported(tree))
    found = []
    if module.startswith(PURE):
        found += [name for name in names if within(name, IMPURE)] + list(impure_calls(tree))
    for room, allowed in MAY_IMPORT.items():
        if module.startswith(room):
            found += [
                name
                for name in names
                if within(name, ("tidegate",)) and name != "tidegate" and not within(name, allowed)
            ]
    if not module.startswith(MAY_USE_SPARK):
        found += [name for name in names if within(name, ("pyspark", "py4j"))]
    if module not in ("cli.py", "__main__.py") and not module.startswith("bench/"):
        found += [name for name in names if within(name, ("tidegate.cli", "tidegate.bench"))]
    if module in ("engine/ingest.py", "engine/land.py"):
        found += [name for name in names if within(name, ("tidegate.engine.changefeed", "tidegate.control"))]
    return sorted(set(found))


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_what_its_room_allows(module: str) -> None:
    assert offences(module, (SOURCE / module).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("module", "text", "offence"),
    [
        ("format/csv.py", "import time", "time"),
        ("format/csv.py", "def f():\n    from os import path", "os"),
        ("format/csv.py", "from pyarrow import fs", "pyarrow.fs"),
        ("format/layout.py", "from datetime import datetime\nDAY = datetime.now()", "now"),
        ("control/spool.py", "TEXT = open('x').read()", "open"),
        ("control/spool.py", "import pyspark.sql", "pyspark.sql"),
        ("control/flush.py", "from tidegate.settings import Settings", "tidegate.settings"),
        ("format/tables.py", "from tidegate.control import spool", "tidegate.control"),
        ("engine/land.py", "from tidegate.engine import changefeed", "tidegate.engine.changefeed"),
        ("engine/store.py", "from pyspark.sql import SparkSession", "pyspark.sql"),
        ("sources/workload.py", "import pyspark", "pyspark"),
        ("sources/workload.py", "from tidegate import cli", "tidegate.cli"),
    ],
)
def test_the_watch_sees_an_offence(module: str, text: str, offence: str) -> None:
    assert offence in offences(module, text)


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("format/csv.py", "import numpy as np\nimport pyarrow.compute as pc\nfrom tidegate.errors import BadEvents"),
        ("control/flush.py", "from datetime import datetime\nfrom tidegate.format.layout import DataKey"),
        ("engine/pipeline.py", "from pyspark.sql import SparkSession"),
        ("sources/datasource.py", "from pyspark.sql.datasource import DataSource"),
    ],
)
def test_the_watch_lets_the_allowed_pass(module: str, text: str) -> None:
    assert offences(module, text) == []
