"""Where changes come from: `workload://sysbench?...` and `parquet:DIR`, each behind the `Source` protocol."""

from __future__ import annotations

from urllib.parse import urlsplit

from tidegate.errors import BadSetting
from tidegate.sources.parquet import ParquetSource
from tidegate.sources.source import ORDERINGS, WAKE_MODES, Offset, Source, Split
from tidegate.sources.workload.workload import WorkloadSource, parse_workload
from tidegate.wording import redacted

__all__ = ["Offset", "Source", "Split", "open_source"]

_EXAMPLES = "workload://sysbench?tables=10, parquet:DIR"


def open_source(uri: str, *, ordering: str = "per-table", wake_mode: str = "enqueue") -> Source:
    """Opens `workload://sysbench?tables=10` or `parquet:DIR`. Only checks the text, and that DIR exists."""
    _one_of("encoder-ordering", ordering, ORDERINGS)
    _one_of("dml-wake-mode", wake_mode, WAKE_MODES)
    shown = redacted(uri)
    scheme = uri.partition(":")[0] if ":" in uri else ""
    if scheme == "parquet":
        return ParquetSource(uri)
    if scheme == "workload":
        parts = urlsplit(uri)
        if parts.netloc != "sysbench" or parts.path.strip("/"):
            raise BadSetting(f"source {shown!r}: there is one workload only; write workload://sysbench?tables=10")
        return WorkloadSource(parse_workload(parts.query), ordering=ordering, wake_mode=wake_mode)
    raise BadSetting(f"source {shown!r}: unknown kind {scheme!r}; known: {_EXAMPLES}")


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise BadSetting(f"{name}={value!r} is unknown; known: {', '.join(known)}")
