"""All that one changefeed is told, as values: each part gets those that it uses."""

from __future__ import annotations

import os
from dataclasses import dataclass

from tidegate.control.limits import Limits
from tidegate.driver.retention import Expiry
from tidegate.driver.startup import Sink
from tidegate.executor.directory import DEMAND, PRIVATE, RELAY
from tidegate.executor.jobs import IngestOptions, LandOptions
from tidegate.format.rules.rules import Rules


@dataclass(frozen=True)
class SpoolOptions:
    """Where the spool is: `<directory>/<changefeed id>` on disk, or in memory."""

    directory: str
    changefeed_id: str
    kind: str = "disk"  # or "memory"
    max_bytes: int = 10 << 30

    @property
    def demand_file(self) -> str:
        """The file that tells a source what may come next."""
        return os.path.join(self.directory, self.changefeed_id, DEMAND)

    @property
    def private_file(self) -> str:
        """The file with what a source must know and nobody may see."""
        return os.path.join(self.directory, self.changefeed_id, PRIVATE)

    @property
    def relay_dir(self) -> str:
        """Where a source keeps what it has read of a database's log."""
        return os.path.join(self.directory, self.changefeed_id, RELAY)


@dataclass(frozen=True)
class Options:
    changefeed_id: str
    sink: Sink
    spool: SpoolOptions
    limits: Limits
    ingest: IngestOptions
    land: LandOptions
    rules: Rules
    expiry: Expiry
    wakes_when_durable: bool = False  # the old way, so that the difference can be measured: dml-wake-mode = flush
    splittable_check: bool = False
