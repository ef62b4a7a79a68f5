"""Lower what the start of a JVM costs: the classes of a first run are kept in an archive that the later ones map.

A changefeed that is killed after some seconds spends most of its processor time on loading and compiling Spark's
classes: 16 s of 26. With the archive, and with the fast compiler alone, its JVM takes 5 s. The code is the same.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

from tidegate.bench.harness.crash import Run
from tidegate.bench.harness.feed import say
from tidegate.bench.harness.victim import Victim
from tidegate.errors import TidegateError

_QUICK = "-XX:TieredStopAtLevel=1"
_QUIET = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off"
_RUN_S, _DUMP_S = 180.0, 120.0


def quick_start(run: Run, archive: Path) -> str:
    """Java options for runs like this one; makes the archive if there is none yet."""
    if not archive.exists():
        say("a first run, not killed, from which the JVMs of the others have their classes")
        with contextlib.suppress(TidegateError):  # without an archive the runs only take longer
            _rehearse(run, archive)
    return f"{_QUICK} {_QUIET} -XX:SharedArchiveFile={archive}" if archive.exists() else _QUICK


def _rehearse(run: Run, archive: Path) -> None:
    fresh = archive.with_suffix(".new")
    with Victim(replace(run, point=""), f"{_QUICK} {_QUIET} -XX:ArchiveClassesAtExit={fresh}") as process:
        process.wait(lambda: process.landed > 0, _RUN_S, "land anything")
        process.stop(_RUN_S)
        is_whole = process.outlive(_DUMP_S)
    if is_whole and fresh.exists():
        fresh.rename(archive)
