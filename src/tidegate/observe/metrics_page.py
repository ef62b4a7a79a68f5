"""docs/metrics.md, made from the table of metrics.

`python -m tidegate.observe.metrics_page` prints the page. `make docs` writes it, and `make check` fails if the page in
the repository is another one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from tidegate.observe.metrics import ALWAYS, GROUPS, PREFIX, Metric

_HEAD = f"""# Metrics

`tidegate run --metrics-addr 127.0.0.1:9100` serves them at `/metrics`. Every name begins with
`{PREFIX}`; every series carries {" and ".join(f"`{label}`" for label in ALWAYS)}, and no series is kept per table.

[bottlenecks.md](bottlenecks.md) says which of them to look at, and what the design documents and TiCDC call them. The
tables below are made from `src/tidegate/observe/metrics.py` by `make docs`.
"""
_FOOT = """## Single tables

Which tables lag, which have small files, which land most: ask `handle.tables(by="lag", k=10)` (or `small-files`,
`bytes`), or the address of the metrics: `/tables?by=lag&k=10` and `/status` answer with JSON. A label per table would
make a million series. Both answer 503 while the changefeed starts, and 400 with a sentence if the question is wrong.
"""


def page() -> str:
    """The whole page, as it is in the repository."""
    return "\n".join([_HEAD, *(_section(title, group) for title, group in GROUPS.items()), _FOOT])


def _section(title: str, group: tuple[Metric, ...]) -> str:
    return "\n".join([f"## {title}", "", *_table(group), ""])


def _table(group: tuple[Metric, ...]) -> Iterator[str]:
    yield "| name | kind | labels | meaning |"
    yield "|---|---|---|---|"
    for metric in group:
        labels = ", ".join(f"`{label}`" for label in metric.labels) or "–"
        yield f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |"


if __name__ == "__main__":
    sys.stdout.write(page())
