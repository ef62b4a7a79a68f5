"""Tidegate lands database changes in cloud storage in TiCDC's layout, as a PySpark Structured Streaming application."""

__version__ = "0.1.0"
