"""Option text to values and back. Readers accept what a URI, TOML or Python gives; printers print what readers accept.

When a reader refuses a value, its message is the end of a sentence that begins with the option's key: "must be greater
than 0, not -1". A value that TiCDC's rules change is returned as `Adjusted`, with the reason.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from pathlib import Path
from typing import Any

from tidegate.errors import BadSetting
from tidegate.wording import hint


@dataclass(frozen=True)
class Adjusted:
    """A value that TiCDC's rules changed, and why: `Adjusted(512, "is clamped to 512")`."""

    value: Any
    why: str


Reader = Callable[[object], Any]

_DURATION_NS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9}
_DURATION_NS |= {"m": 60 * 10**9, "h": 3600 * 10**9}
_DURATION_PART = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_DURATION = re.compile(rf"([+-]?)((?:{_DURATION_PART.pattern})+|0)")
_SIZE = re.compile(r"(-?[0-9]+(?:\.[0-9]+)?) ?(B|[KMGT]i?B)?", re.IGNORECASE)
_SIZE_BYTES = {"": 1, "b": 1} | {
    unit + ending: base**power
    for power, unit in enumerate("kmgt", start=1)
    for ending, base in (("ib", 1024), ("b", 1000))
}
_BOOLS = {"true": True, "1": True, "t": True, "false": False, "0": False, "f": False}


def duration_s(value: object) -> float:
    """`duration_s("1m30s")` is 90.0. A number without a unit is refused, except "0"."""
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise BadSetting(f"must be a duration such as 5s, 200ms or 1m30s, not {value!r}")
    total_ns = sum(Decimal(number) * _DURATION_NS[unit] for number, unit in _DURATION_PART.findall(match[2]))
    return float(total_ns / 10**9) * (-1 if match[1] == "-" else 1)


def size_bytes(value: object) -> int:
    """`size_bytes("64MiB")` is 67108864, `size_bytes("64MB")` is 64000000; whole numbers are bytes."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    total = Decimal(match[1]) * _SIZE_BYTES[(match[2] or "").lower()] if match else Decimal("0.5")
    if total != int(total):
        raise BadSetting(f"must be a size such as 67108864, 64MiB or 64MB, not {value!r}")
    return int(total)


def whole(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]+", value):
        return int(value)
    raise BadSetting(f"must be a whole number, not {value!r}")


def boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _BOOLS:
        return _BOOLS[value.lower()]
    raise BadSetting(f"must be true or false, not {value!r}")


def text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise BadSetting(f"must be text, not {value!r}")


def one_of(*allowed: str, refused: Mapping[str, str] | None = None) -> Reader:
    """Accepts exactly these words; `refused` gives the reason for other words that a user may expect to work."""

    def read(value: object) -> str:
        if isinstance(value, str) and value in allowed:
            return value
        reason = (refused or {}).get(str(value), "")
        raise BadSetting(f"must be {' or '.join(allowed)}, not {value!r}" + (f": {reason}" if reason else ""))

    return read


def any_case(read: Reader) -> Reader:
    return lambda value: read(value.lower() if isinstance(value, str) else value)


def or_word(word: str, read: Reader) -> Reader:
    """`or_word("off", duration_s)` reads "off" as None."""
    return lambda value: None if value == word else read(value)


def clamped(read: Reader, low: Any, high: Any, show: Callable[[Any], str]) -> Reader:
    def read_clamped(value: object) -> Any:
        found = read(value)
        kept = min(max(found, low), high)
        return found if kept == found else Adjusted(kept, f"is clamped to {show(kept)}")

    return read_clamped


def within(low: int, high: int, otherwise: int) -> Reader:
    """A whole number. Outside its range it becomes `otherwise`, which is how TiCDC treats some keys."""

    def read_within(value: object) -> Any:
        found = whole(value)
        return (
            found if low <= found <= high else Adjusted(otherwise, f"is outside {low}..{high} and becomes {otherwise}")
        )

    return read_within


def at_least(low: Any, read: Reader, shown: str) -> Reader:
    def read_at_least(value: object) -> Any:
        found = read(value)
        if found < low:
            raise BadSetting(f"must be {shown}, not {value!r}")
        return found

    return read_at_least


def positive(read: Reader) -> Reader:
    def read_positive(value: object) -> Any:
        found = read(value)
        if found <= 0:
            raise BadSetting(f"must be greater than 0, not {value!r}")
        return found

    return read_positive


def absolute_dir(value: object) -> str:
    if not os.path.isabs(text(value)):
        raise BadSetting(f"must be absolute, such as {Path(text(value)).absolute()}, not {value!r}")
    return text(value)


# Lists and arrays of tables. In the sink URI and on the command line they are JSON, as `tidegate run` prints them.


def listed(value: object, what: str) -> Sequence[Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise BadSetting(f"must be a list of {what}; as text, write it as JSON") from None
    if not isinstance(value, list | tuple):
        raise BadSetting(f"must be a list of {what}, not {value!r}")
    return value


def texts(value: object) -> tuple[str, ...]:
    return tuple(text(item) for item in listed(value, "texts"))


def numbers(value: object) -> tuple[int, ...]:
    return tuple(at_least(0, whole, "0 or more")(item) for item in listed(value, "numbers"))


@dataclass(frozen=True)
class Entries:
    """Reads an array of tables into values of `kind`. Its fields are the keys with '_' in place of '-'.

    Keys in `idle` do not apply and are ignored. Keys in `refused` raise an error with the reason given there.
    """

    kind: type[Any]
    idle: tuple[str, ...] = ()
    refused: Mapping[str, str] | None = None

    def __call__(self, value: object) -> tuple[Any, ...]:
        return tuple(self._entry(number, entry) for number, entry in enumerate(listed(value, "tables"), start=1))

    def _entry(self, number: int, entry: object) -> Any:
        if not isinstance(entry, Mapping):
            raise BadSetting(f"must be a list of tables, not {entry!r}")
        try:
            return self.kind(**{key.replace("-", "_"): self._value(key, value) for key, value in self._said(entry)})
        except BadSetting as exc:
            raise BadSetting(f"entry {number} {exc}") from None
        except TypeError:
            raise BadSetting(f"entry {number} must have {' and '.join(self._needed())}") from None

    def _said(self, entry: Mapping[str, object]) -> list[tuple[str, object]]:
        known = [item.name.replace("_", "-") for item in fields(self.kind)]
        for key, value in entry.items():
            if (reason := (self.refused or {}).get(key)) and value:
                raise BadSetting(f"has {key}, which is refused: {reason}")
            if key not in (*known, *self.idle, *(self.refused or ())):
                raise BadSetting(f"has the unknown key {key!r}; {hint(key, known, 'docs/options.md')}")
        return [(key, value) for key, value in entry.items() if key in known]

    def _value(self, key: str, value: object) -> Any:
        is_text = next(item for item in fields(self.kind) if item.name == key.replace("-", "_")).type == "str"
        try:
            return text(value) if is_text else texts(value)
        except BadSetting as exc:
            raise BadSetting(f"has a bad {key}: it {exc}") from None

    def _needed(self) -> list[str]:
        return [item.name for item in fields(self.kind) if item.name in ("matcher", "columns")]


# Printers.


def show_size(size: int) -> str:
    """`show_size(67108864)` is "64MiB", `show_size(1485761)` is "1485761B"."""
    power = max(p for p in range(5) if size % 1024**p == 0) if size else 0
    return f"{size // 1024**power}{('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"


def show_duration(seconds: float | None) -> str:
    """`show_duration(62.0)` is "1m2s", `show_duration(0.2)` is "200ms", None is "off"."""
    if seconds is None:
        return "off"
    rest, shown = round(seconds * 10**9), ""
    for unit in ("h", "m", "s", "ms", "us", "ns"):
        count, rest = divmod(rest, _DURATION_NS[unit])
        shown += f"{count}{unit}" if count else ""
    return shown or "0s"


def show_bool(value: bool) -> str:
    return str(value).lower()


def show_text(value: str) -> str:
    return repr(value)


def show_list(values: Collection[Any]) -> str:
    """`["shop.*"]`, and `[{"matcher": ["shop.*"], "columns": ["a"]}]` for values of a dataclass."""
    return json.dumps([_plain(value) for value in values], ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, str | int):
        return value
    said = {item.name.replace("_", "-"): getattr(value, item.name) for item in fields(value)}
    return {key: item for key, item in said.items() if item}
