"""Which files have expired: TiCDC's rule for `file-expiration-days`, which uses only the dates in paths.

A data or index file has expired when the date in its path is before the date of (checkpoint - days x 24 hours) in the
local time zone. Schema files, `metadata` and everything under `_tidegate/` have no date and never expire.

TiCDC takes the first date anywhere in a path, so a table called `t_2020-01-01` would lose its newest files and its
schema. Here a date must be a whole level of the path, and the last such level counts. For every date that TiCDC itself
writes into a path, the result is the same.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo

from tidegate.events import physical_time
from tidegate.format.layout import RESERVED_PREFIX

_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)


def dated_directory(path: str) -> tuple[int, str] | None:
    """(20260131, "shop/orders/437/2026-01-31") for a data or index file below it; None for any other object."""
    *levels, name = path.split("/")
    at = next((at for at in reversed(range(len(levels))) if _DAY.fullmatch(levels[at])), None)
    if at is None or levels[0] == RESERVED_PREFIX or not is_change_file(name):
        return None
    return int(levels[at].replace("-", "")), "/".join(levels[: at + 1])


def is_change_file(path: str) -> bool:
    """Data files, index files and their half-written remains all begin with `CDC`; schema files do not."""
    return path.rpartition("/")[2].startswith("CDC")


def is_index_file(path: str) -> bool:
    return path.endswith(".index")


def first_kept_date(checkpoint_ts: int, days: int, now: datetime, zone: tzinfo | None) -> int:
    """20260131: files of earlier dates have expired. 0, which is before every date, if there is no checkpoint yet.

    `zone` None means the time zone of the process. A checkpoint ahead of the wall clock counts as the wall clock.
    """
    if checkpoint_ts <= 0 or days <= 0:
        return 0
    moment = min(physical_time(checkpoint_ts), now.astimezone(UTC))
    try:
        # Subtracted in UTC, so that a day has 24 hours even when summer time begins or ends.
        kept = (moment - timedelta(days=days)).astimezone(zone)
    except OverflowError:
        return 0
    return kept.year * 10_000 + kept.month * 100 + kept.day
