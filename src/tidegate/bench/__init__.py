"""Benchmarks: each measures, checks its own output, and gives figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Figures = dict[str, float | int | str]


@dataclass(frozen=True)
class Benchmark:
    help: str
    run: Callable[[Path, Mapping[str, str]], Figures]


BENCHMARKS: dict[str, Benchmark] = {}


def run_bench(name: str, data_dir: Path, parameters: Mapping[str, str]) -> dict[str, Any]:
    return BENCHMARKS[name].run(data_dir, parameters)
