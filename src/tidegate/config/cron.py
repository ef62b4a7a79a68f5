"""Cron text as TiCDC accepts it for `file-cleanup-cron-spec`: check it, write it as six fields, find the next moment.

The fields are second, minute, hour, day of month, month, day of week. The last one is optional. A field is a list of
`*`, `?`, `7`, `1-5`, `mon-fri`, each with an optional step, as in `*/10`; `5/15` means `5-59/15`. Names such as
`@daily` are short for six fields. If both days are given, a moment must match only one of them, as in every cron. A
field `*` or `?` does not count as given.
"""

from __future__ import annotations

import re
from datetime import datetime, time, timedelta

from tidegate.errors import BadSetting

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS = (
    ("second", 0, 59, ()),
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of week", 0, 6, _DAYS),
)
_NAMED = {"@hourly": "0 0 * * * *", "@daily": "0 0 0 * * *", "@midnight": "0 0 0 * * *", "@weekly": "0 0 0 * * 0"}
_NAMED |= {"@monthly": "0 0 0 1 * *", "@yearly": "0 0 0 1 1 *", "@annually": "0 0 0 1 1 *"}
_PART = re.compile(r"(?:[*?]|(?P<low>\w+)(?:-(?P<high>\w+))?)(?:/(?P<step>[1-9][0-9]*))?", re.ASCII)
_MOST_DAYS = 366 * 9  # 29 February may be eight years away; a date not found within nine years does not exist


def six_fields(text: str) -> str:
    """`six_fields("@daily")` is "0 0 0 * * *". A text that is not a cron spec is refused, naming the wrong field."""
    found = _NAMED.get(text.strip().lower(), text).split()
    found += ["*"] * (len(found) == 5)
    if len(found) != 6:
        raise BadSetting(f"must have six fields (second minute hour day month weekday), as '0 0 2 * * *', not {text!r}")
    for field, (name, low, high, words) in zip(found, _FIELDS, strict=True):
        if not all(_fits(part, low, high, words) for part in field.split(",")):
            raise BadSetting(
                f"has {field!r} as its {name}, which must be {low} to {high}, '*' or a list or range of these"
            )
    return " ".join(found)


def _fits(part: str, low: int, high: int, words: tuple[str, ...]) -> bool:
    match = _PART.fullmatch(part.lower())
    if match is None:
        return False
    ends = [_number(end, low, words) for end in (match["low"], match["high"]) if end is not None]
    return all(low <= end <= high for end in ends) and ends == sorted(ends)


def _number(end: str, low: int, words: tuple[str, ...]) -> int:
    if end in words:
        return words.index(end) + low
    return int(end) if end.isdecimal() else -1


def next_after(spec: str, moment: datetime) -> datetime | None:
    """The first matching moment after `moment`, in the same time zone; None if there is none, as on 30 February.

    `next_after("0 0 2 * * *", datetime(2026, 1, 31, 2))` is 2026-02-01 02:00:00.
    """
    seconds, minutes, hours, days, months, weekdays = (
        _numbers(field, low, high, words)
        for field, (_, low, high, words) in zip(six_fields(spec).split(), _FIELDS, strict=True)
    )
    days_given, weekdays_given = (not _is_any(field) for field in six_fields(spec).split()[3::2])
    start = moment.replace(microsecond=0) + timedelta(seconds=1)
    for _ in range(_MOST_DAYS):
        on_day, on_weekday = start.day in days, start.isoweekday() % 7 in weekdays
        fits = on_day or on_weekday if days_given and weekdays_given else on_day and on_weekday
        found = _first_time(hours, minutes, seconds, start.time()) if fits and start.month in months else None
        if found is not None:
            return datetime.combine(start.date(), found, start.tzinfo)
        start = datetime.combine(start.date() + timedelta(days=1), time(), start.tzinfo)
    return None


def _first_time(hours: list[int], minutes: list[int], seconds: list[int], start: time) -> time | None:
    times = (time(h, m, s) for h in hours if h >= start.hour for m in minutes for s in seconds)
    return next((found for found in times if found >= start), None)


def _numbers(field: str, low: int, high: int, words: tuple[str, ...]) -> list[int]:
    """`_numbers("1-5/2,20", 0, 59, ())` is [1, 3, 5, 20]."""
    found: set[int] = set()
    for part in field.lower().split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise BadSetting(f"has {field!r} as one of its fields")
        first = low if match["low"] is None else _number(match["low"], low, words)
        last = first if match["low"] and not match["step"] else high
        last = last if match["high"] is None else _number(match["high"], low, words)
        found.update(range(first, last + 1, int(match["step"] or 1)))
    return sorted(found)


def _is_any(field: str) -> bool:
    """Whether one part of the field is `*` or `?` without a step; `*/2` restricts, so it does not count."""
    return any(part in ("*", "?", "*/1", "?/1") for part in field.split(","))
