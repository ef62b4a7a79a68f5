"""The driver's dealings with the spool's segments: where tasks may append, and what is deleted."""

from __future__ import annotations

import logging
import os

from tidegate.control.ledger import Ledger
from tidegate.executor.segments import MEMORY_TIER, Places, SpoolDirectory

log = logging.getLogger("tidegate")


def places(spool: SpoolDirectory, ledger: Ledger, spool_type: str, tasks: int) -> Places:
    memory_only = spool_type == "memory"
    left = max(0, spool.memory_limit - ledger.spool.tier_bytes[MEMORY_TIER])
    return Places(
        memory_dir=str(spool.memory) if spool.memory is not None else None,
        memory_bytes=left if memory_only else left // max(1, tasks),
        disk_dir=None if memory_only else str(spool.disk),
    )


def delete_segments(segments: list[str]) -> None:
    for path in segments:
        try:
            os.unlink(path)
        except FileNotFoundError:
            log.warning("spool segment %s was already gone", path)
