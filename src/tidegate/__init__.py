"""Tidegate lands database changes in cloud storage in TiCDC's layout, as a PySpark Structured Streaming application."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"
__all__ = [
    "EVENTS_DDL",
    "Column",
    "Handle",
    "Layout",
    "Position",
    "Status",
    "__version__",
    "write_stream",
]

if TYPE_CHECKING:
    from tidegate.events import EVENTS_DDL
    from tidegate.format.tables import Column, Layout
    from tidegate.observe.status import Status
    from tidegate.spark.handle import Handle, write_stream
    from tidegate.spark.query import Position

_MODULES = {
    "EVENTS_DDL": "tidegate.events",
    "Column": "tidegate.format.tables",
    "Layout": "tidegate.format.tables",
    "Status": "tidegate.observe.status",
    "Handle": "tidegate.spark.handle",
    "write_stream": "tidegate.spark.handle",
    "Position": "tidegate.spark.query",
}


def __getattr__(name: str) -> Any:
    """The API is loaded on first use: tasks on executors import parts of this package and need no driver code."""
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'tidegate' has no attribute {name!r}")
