"""Applies a statement of the log to the catalogue."""

from __future__ import annotations

from tidegate.sources.mysql.catalogue import Applied, Catalogue
from tidegate.sources.mysql.log.control_events import Query


def apply(catalogue: Catalogue, query: Query, commit_ts: int) -> Applied:
    """What the statement does. BadDdl, with the statement, if that is not certain or cannot be followed."""
    raise NotImplementedError
