"""How far behind the server reading is: a small file that the planner's process writes and the driver reads.

<relay>/status.json  {"lag_s": 0.4, "lag_bytes": 1204, "waits": "", "position": "bin.000007:1204", ...}
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tidegate.sources.source import SnapshotState, SourceState

_FILE = "status.json"


def write_state(folder: Path, values: dict[str, Any]) -> None:
    """Replaces the file in one step. That it cannot be written is no reason to stop: it only informs."""
    temp = folder / f"{_FILE}.new"
    try:
        temp.write_text(json.dumps(values), encoding="utf-8")
        os.replace(temp, folder / _FILE)
    except OSError:
        return


def read_values(folder: str) -> dict[str, Any]:
    """All that was written last; empty if nothing was."""
    try:
        found = json.loads(Path(folder, _FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def read_state(folder: str) -> SourceState | None:
    found = read_values(folder)
    if "lag_s" not in found:
        return None
    snapshot = found.get("snapshot")
    known = SnapshotState(**snapshot) if snapshot else None
    return SourceState(float(found["lag_s"]), int(found["lag_bytes"]), str(found["waits"]), known)
