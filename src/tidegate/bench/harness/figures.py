"""The figures that a benchmark gives, and the arithmetic that the benchmarks share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Figures = dict[str, float | int | str]

MIB = 1 << 20


def mib_s(size_bytes: float, seconds: float) -> float:
    """`mib_s(104857600, 2.0)` is 50.0; no time at all counts as no speed."""
    return size_bytes / MIB / seconds if seconds > 0 else 0.0


def percentile(values: Sequence[float], percent: float) -> float:
    """`percentile([1, 2, 3], 50)` is 2.0; of nothing it is 0.0."""
    return float(np.percentile(values, percent)) if len(values) else 0.0
