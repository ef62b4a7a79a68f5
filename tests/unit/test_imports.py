"""Watches who may import whom.

cli, bench, tools, testing -> spark, driver, reader, config, observe -> executor, storage, sources -> control -> format
-> events, errors, clock. No two rooms import each other, also not by a detour over a third.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "tidegate"
MODULES = sorted(path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py"))

PURE = ("format/", "control/", "sources/mysql/log/")
WORDS = ("events", "errors", "clock", "wording")
# Each room and the rooms it may import from besides itself and the shared words.
ROOMS: dict[str, tuple[str, ...]] = {
    "format": (),
    "control": ("format",),
    "storage": ("format",),
    "sources": ("format",),
    "executor": ("format", "storage", "sources"),
    "config": ("format", "storage"),
    "observe": (),
    "driver": ("format", "control", "storage", "executor", "sources", "observe"),
    "spark": ("format", "control", "storage", "executor", "observe", "driver", "sources", "config"),
    "reader": ("format", "storage"),
    "tools": ("format", "storage", "executor", "sources", "config", "observe", "driver", "reader"),
    "bench": (
        *("format", "control", "storage", "sources", "executor", "config", "observe", "driver", "spark", "reader"),
        "tools",
    ),
}
MAY_LOG = ("driver/", "spark/", "cli.py", "bench/", "tools/logs.py")
# Metrics are touched by the observer alone; the others make them, serve them or hand them on.
MAY_TOUCH_METRICS = ("observe/", "driver/observer.py", "driver/changefeed.py", "spark/handle.py", "testing.py")
# Imported inside a function: object stores only where they are used, and by the command line what its verb needs.
MAY_IMPORT_LATE = ("storage/store.py", "cli.py", "arguments.py", "bench/", "sources/__init__.py")
MAY_USE_SPARK = ("spark/", "sources/datasource.py", "reader/", "cli.py", "bench/")
# Clock, log, file, thread, process, network and chance, and what of the allowed libraries touches files.
IMPURE = {
    *("time", "logging", "os", "pathlib", "shutil", "tempfile", "glob", "mmap", "fcntl", "random", "secrets"),
    *("threading", "multiprocessing", "concurrent", "asyncio", "queue", "subprocess", "signal", "socket", "http"),
    *("urllib", "pyspark", "py4j", "obstore", "prometheus_client", "pyarrow.fs", "pyarrow.parquet", "pyarrow.dataset"),
    "tidegate.clock",
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
    """What in the text of `module` ("format/layout.py") breaks the rules."""
    tree = ast.parse(text)
    names = set(imported(tree))
    room = module.partition("/")[0]
    found = []
    if module.startswith(PURE):
        found += [name for name in names if within(name, IMPURE)] + list(impure_calls(tree))
    if room in ROOMS:
        allowed = tuple(f"tidegate.{other}" for other in (*WORDS, room, *ROOMS[room]))
        ours = (name for name in names if within(name, ("tidegate",)) and name != "tidegate")
        found += [name for name in ours if not within(name, allowed)]
    if not module.startswith(MAY_USE_SPARK):
        found += [name for name in names if within(name, ("pyspark", "py4j"))]
    if not module.startswith(MAY_LOG):
        found += [name for name in names if within(name, ("logging",))]
    if not module.startswith(MAY_TOUCH_METRICS):
        found += [name for name in names if within(name, ("tidegate.observe.metrics", "prometheus_client"))]
    if not module.startswith(MAY_IMPORT_LATE):
        functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
        found += [name for function in functions for name in imported(function)]
    return sorted(set(found))


def sub_room(module: str) -> str:
    """The room of a module, rooms within `format` and `tools` included: "format/encode/csv.py" is "format.encode"."""
    *folders, _ = module.split("/")
    return ".".join(folders) or module.removesuffix(".py")


def room_graph() -> dict[str, set[str]]:
    """By room the rooms it imports; modules that stand directly in `format`, `tools` or `bench` count one by one."""
    by_name = {module.removesuffix(".py").removesuffix("/__init__").replace("/", "."): module for module in MODULES}
    parents = {sub_room(module).rpartition(".")[0] for module in MODULES}

    def node(name: str) -> str:
        room = sub_room(by_name[name])
        return name if room in parents else room

    graph: dict[str, set[str]] = {}
    for name, module in by_name.items():
        used = imported(ast.parse((SOURCE / module).read_text(encoding="utf-8")))
        known = {other.removeprefix("tidegate.") for other in used if other.startswith("tidegate.")} & by_name.keys()
        graph.setdefault(node(name), set()).update(node(other) for other in known if node(other) != node(name))
    return graph


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_what_its_room_allows(module: str) -> None:
    assert offences(module, (SOURCE / module).read_text(encoding="utf-8")) == []


def test_no_two_rooms_import_each_other() -> None:
    try:
        TopologicalSorter(room_graph()).prepare()
    except CycleError as exc:
        pytest.fail(f"rooms import each other: {' -> '.join(exc.args[1])}")


@pytest.mark.parametrize(
    ("module", "text", "offence"),
    [
        ("format/encode/csv.py", "import time", "time"),
        ("format/encode/csv.py", "def f():\n    from os import path", "os"),
        ("format/encode/csv.py", "from pyarrow import fs", "pyarrow.fs"),
        ("format/layout.py", "from datetime import datetime\nDAY = datetime.now()", "now"),
        ("format/layout.py", "from tidegate.clock import now_ms", "tidegate.clock"),
        ("control/spool.py", "TEXT = open('x').read()", "open"),
        ("control/spool.py", "import pyspark.sql", "pyspark.sql"),
        ("control/planner.py", "from tidegate.config.settings import Settings", "tidegate.config.settings"),
        ("format/tables.py", "from tidegate.control import spool", "tidegate.control"),
        ("executor/land.py", "from tidegate.driver import changefeed", "tidegate.driver.changefeed"),
        ("executor/land.py", "from tidegate.control.rounds import Round", "tidegate.control.rounds"),
        ("storage/store.py", "from pyspark.sql import SparkSession", "pyspark.sql"),
        ("storage/files.py", "import logging", "logging"),
        ("driver/scribe.py", "from tidegate.observe.metrics import Metrics", "tidegate.observe.metrics"),
        ("driver/scribe.py", "def f():\n    from tidegate.driver import life", "tidegate.driver.life"),
        ("sources/workload/workload.py", "import pyspark", "pyspark"),
        ("sources/mysql/log/rows.py", "import socket", "socket"),
        ("sources/workload/workload.py", "from tidegate import cli", "tidegate.cli"),
    ],
)
def test_the_watch_sees_an_offence(module: str, text: str, offence: str) -> None:
    assert offence in offences(module, text)


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("format/encode/csv.py", "import numpy as np\nimport pyarrow.compute as pc\nfrom tidegate.errors import A"),
        ("control/planner.py", "from datetime import datetime\nfrom tidegate.format.layout import DataKey"),
        ("spark/query.py", "from pyspark.sql import SparkSession"),
        ("sources/datasource.py", "from pyspark.sql.datasource import DataSource"),
    ],
)
def test_the_watch_lets_the_allowed_pass(module: str, text: str) -> None:
    assert offences(module, text) == []
