"""Jobs on executors as the driver calls them: a land job that is lost as a whole becomes receipts to be retried.

An error of ours that no retry can mend, such as a bad setting, ends the changefeed instead. What the store refuses is
retried all the same: only the tables of the round wait for it (decision 0011).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from tidegate.driver.causes import cause_of, sentence_of
from tidegate.errors import LandingError, TidegateError
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
            return unanswered(plans["file"].to_pylist(), _passing(exc))

    def land_schemas(self, plans: list[SchemaPlan], options: LandOptions) -> pa.Table:
        try:
            return self.run_schemas(plans, options)
        except Exception as exc:  # as above
            return unanswered([plan.file for plan in plans], _passing(exc))


def _passing(error: Exception) -> str:
    """The sentence of an error that may pass; any other is raised as what it is."""
    cause = cause_of(error)
    if isinstance(cause, TidegateError) and not cause.retry and not isinstance(cause, LandingError):
        raise cause from error
    return f"the landing was lost: {sentence_of(error)}"
