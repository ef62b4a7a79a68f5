"""Cron text as TiCDC takes it for `file-cleanup-cron-spec`, checked and brought into one form of six fields.

second, minute, hour, day of month, month, day of week; the last may be left out. A field is a list of `*`, `?`, `7`,
`1-5`, `mon-fri`, each with an optional step, as in `*/10`. Names such as `@daily` stand for six fields.
"""

from __future__ import annotations

import re

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


def six_fields(text: str) -> str:
    """`six_fields("@daily")` is "0 0 0 * * *"; what is no cron text is refused with the field that is wrong."""
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
