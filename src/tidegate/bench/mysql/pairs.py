"""Two ways to land the same rows, measured in turns."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.bench.harness.feed import Ended, Feed, Until, say
from tidegate.errors import TidegateError


@dataclass(frozen=True)
class Pair:
    """One run of each side."""

    ours: Ended
    theirs: Ended


def in_turns(ours: Feed, theirs: Feed, name: str, rows: int, pairs: int) -> list[Pair]:
    """Each side `pairs` times after one run that does not count. Both must land all rows, and the same bytes."""
    say(f"warming up: {rows} rows from the database, then {name}")
    _pair(ours, theirs, rows)
    found = []
    for number in range(pairs):
        found.append(_pair(ours, theirs, rows))
        one = found[-1]
        say(
            f"pair {number + 1} of {pairs}: the database {one.ours.seconds:.1f} s (processors "
            f"{one.ours.cpu_seconds:.1f} s), {name} {one.theirs.seconds:.1f} s ({one.theirs.cpu_seconds:.1f} s)"
        )
    return found


def _pair(ours: Feed, theirs: Feed, rows: int) -> Pair:
    pair = Pair(ours.run(watch=Until(rows)), theirs.run(watch=Until(rows)))
    for side in (pair.ours, pair.theirs):
        if side.landed_rows != rows:
            raise TidegateError(f"{side.landed_rows} rows landed of {rows}, so the time means nothing")
    if pair.ours.landed_bytes != pair.theirs.landed_bytes:
        raise TidegateError(
            f"the database gave {pair.ours.landed_bytes} bytes and the other side {pair.theirs.landed_bytes}: "
            "the two did not land the same rows"
        )
    return pair


def median_cpu_s(sides: Sequence[Ended]) -> float:
    return statistics.median(side.cpu_seconds for side in sides)
