"""Jobs on executors as the driver calls them: a land job that is lost as a whole becomes receipts to be retried."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from tidegate.executor.jobs import LandJob, LandOptions
from tidegate.executor.rows import SchemaPlan, unanswered
from tidegate.executor.spool import Appended, Room, Slice, gather

FileLander = Callable[[pa.Table, LandJob], pa.Table]
SchemaLander = Callable[[list[SchemaPlan], LandOptions], pa.Table]
Gatherer = Callable[[list[Slice], Room, str], list[Appended]]


@dataclass
class Jobs:
    """What runs on executors; in tests it runs in the calling thread."""

    run_files: FileLander
    run_schemas: SchemaLander
    run_gather: Gatherer = gather

    def land_files(self, plans: pa.Table, job: LandJob) -> pa.Table:
        try:
            return self.run_files(plans, job)
        except Exception as exc:  # its worker was killed too often, or Spark itself is in trouble
            return unanswered(plans["file"].to_pylist(), _lost(exc))

    def land_schemas(self, plans: list[SchemaPlan], options: LandOptions) -> pa.Table:
        try:
            return self.run_schemas(plans, options)
        except Exception as exc:  # as above
            return unanswered([plan.file for plan in plans], _lost(exc))


def _lost(error: Exception) -> str:
    return f"the landing was lost: {first_line(error)}"


def first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
