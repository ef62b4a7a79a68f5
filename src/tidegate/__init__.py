"""Tidegate lands database changes in cloud storage in TiCDC's layout, as a PySpark Structured Streaming application."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"
__all__ = ["Handle", "Position", "__version__", "write_stream"]

if TYPE_CHECKING:
    from tidegate.spark.query import Handle, Position, write_stream


def __getattr__(name: str) -> Any:
    """The API is loaded on first use: tasks on executors import parts of this package and need no driver code."""
    if name in ("Handle", "Position", "write_stream"):
        from tidegate.spark import query as pipeline

        return getattr(pipeline, name)
    raise AttributeError(f"module 'tidegate' has no attribute {name!r}")
