"""Which files have expired: TiCDC's rule of `file-expiration-days`, on dates alone.

A data or index file has expired when the date in its path lies before the date of (the checkpoint less that many times
24 hours) in the local zone. Schema files, `metadata` and everything under `_tidegate/` have no date and never expire.

TiCDC takes the first date anywhere in a path, so a table called `t_2020-01-01` would lose its newest files and its
schema. Here only a whole level counts, the last one that is a date; every path that TiCDC itself dates reads the same.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo

from tidegate.events import physical_time
from tidegate.format.layout import RESERVED_PREFIX

_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)


def dated_directory(path: str) -> tuple[int, str] | None:
    """(20260131, "shop/orders/437/2026-01-31") of a data or index file below it; None of any other object."""
    *levels, name = path.split("/")
    at = next((at for at in reversed(range(len(levels))) if _DAY.fullmatch(levels[at])), None)
    if at is None or levels[0] == RESERVED_PREFIX or not is_change_file(name):
        return None
    return int(levels[at].replace("-", "")), "/".join(levels[: at + 1])


def is_change_file(path: str) -> bool:
    """Data files, index files and what an interrupted write left of them all begin with `CDC`; schema files do not."""
    return path.rpartition("/")[2].startswith("CDC")


def is_index_file(path: str) -> bool:
    return path.endswith(".index")


def first_kept_date(checkpoint_ts: int, days: int, now: datetime, zone: tzinfo | None) -> int:
    """20260131: files of earlier dates have expired; 0, which is before every date, while there is no checkpoint.

    `zone` None is the process' own. A checkpoint ahead of the wall clock expires nothing before its time.
    """
    if checkpoint_ts <= 0 or days <= 0:
        return 0
    moment = min(physical_time(checkpoint_ts), now.astimezone(UTC))
    try:
        kept = (moment - timedelta(days=days)).astimezone(zone)  # in UTC: 24 hours, also where a clock was changed
    except OverflowError:
        return 0
    return kept.year * 10_000 + kept.month * 100 + kept.day
