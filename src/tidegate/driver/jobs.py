"""Land jobs as the driver calls them: a job that is lost as a whole becomes receipts that may be retried."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from tidegate.executor.land import LandJob, Plans, unanswered
from tidegate.executor.segments import Places, gather

Gatherer = Callable[[list[tuple[str, int, int]], Places, str], list[tuple[str, int, int]]]
Lander = Callable[[Plans, LandJob], pa.Table]


@dataclass
class Jobs:
    """What runs on executors; in tests it runs in the calling thread."""

    run_land: Lander
    run_gather: Gatherer = gather

    def land(self, plans: Plans, job: LandJob) -> pa.Table:
        try:
            return self.run_land(plans, job)
        except Exception as exc:  # its worker was killed too often, or Spark itself is in trouble
            return unanswered(plans, f"the landing was lost: {first_line(exc)}")


def first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
