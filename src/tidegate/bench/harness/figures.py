"""What the benchmarks share about numbers: the figures they give, and the parameters they take.

A benchmark's parameters are a frozen dataclass; `--set tables=4` fills the field `tables`, `--set file-size=2MiB` the
field `file_size`. What is unknown or cannot be read is refused with a sentence that says what is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np

from tidegate.errors import BadSetting

Figures = dict[str, float | int | str]
P = TypeVar("P")

MIB = 1 << 20


def mib_s(size_bytes: float, seconds: float) -> float:
    """`mib_s(104857600, 2.0)` is 50.0; no time at all counts as no speed."""
    return size_bytes / MIB / seconds if seconds > 0 else 0.0


def percentile(values: Sequence[float], percent: float) -> float:
    """`percentile([1, 2, 3], 50)` is 2.0; of nothing it is 0.0."""
    return float(np.percentile(values, percent)) if len(values) else 0.0


def read_parameters(kind: type[P], given: Mapping[str, str]) -> P:
    """An instance of the dataclass `kind`: its defaults, and what `given` says instead."""
    known = {field.name.replace("_", "-"): field for field in fields(kind)}  # type: ignore[arg-type]
    if unknown := given.keys() - known.keys():
        raise BadSetting(f"unknown parameter {min(unknown)!r} of this benchmark; known: {', '.join(known)}")
    return kind(**{known[key].name: _read(key, type(known[key].default), text) for key, text in given.items()})


def _read(key: str, kind: type[Any], text: str) -> Any:
    try:
        value = kind(text)
    except ValueError:
        raise BadSetting(f"--set {key}={text}: {text!r} is not a number") from None
    if kind is not str and not value > 0:
        raise BadSetting(f"--set {key}={text} must be greater than 0")
    return value
