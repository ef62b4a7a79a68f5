"""Draws what `tables` measured at several sizes: memory, seconds and both ack delays against the number of tables.

python -m tidegate.bench.harness.plot docs/tables.png tables-10k.json tables-100k.json tables-1m.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tidegate.errors import UsageError

PANELS = {
    "peak_rss_mib": "memory of all processes, MiB",
    "seconds": "seconds for two sweeps",
    "wake_p99_ms": "wake, 99th percentile, ms",
    "durable_p99_s": "accepted to durable, 99th percentile, s",
}


def read_runs(paths: Sequence[str]) -> list[dict[str, float]]:
    """The figures of runs of `tables`, by size."""
    runs = []
    for path in paths:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
        if found.get("name") != "tables":
            raise UsageError(f"{path} holds no figures of `tidegate bench tables`")
        runs.append(found["figures"])
    return sorted(runs, key=lambda figures: float(figures["tables"]))


def draw(target: str, runs: Sequence[dict[str, float]]) -> None:
    import matplotlib  # only who plots needs it

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(PANELS), figsize=(16, 3.6))
    for axis, (key, title) in zip(axes, PANELS.items(), strict=True):
        _panel(axis, [run["tables"] for run in runs], [run[key] for run in runs], title)
    figure.tight_layout()
    figure.savefig(target, dpi=110)


def _panel(axis: Any, tables: list[float], values: list[float], title: str) -> None:
    axis.plot(tables, values, marker="o")
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_title(title, fontsize=10)
    axis.set_xlabel("tables")
    axis.grid(True, which="both", alpha=0.3)
    axis.margins(0.15)
    for at, value in zip(tables, values, strict=True):
        axis.annotate(
            f"{value:,.0f}" if value >= 100 else f"{value:.3g}",
            (at, value),
            textcoords="offset points",
            xytext=(4, 6),
            fontsize=8,
        )


def main(words: Sequence[str]) -> int:
    if len(words) < 2:
        raise UsageError("usage: python -m tidegate.bench.harness.plot PICTURE.png RUN.json ...")
    draw(words[0], read_runs(words[1:]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
