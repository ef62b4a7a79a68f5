"""One bucket of a table on both sides: which rows are missing, too many, or different.

The side of the database is what SQL read, brought to the moment of the comparison by the changes of the log in between
(`Window`): forward, the last change of a key decides what is there; backward, the first one says what was there before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.tools.verify_database.rows import PUT, REMOVED, Changes, Ints, Shape
from tidegate.tools.verify_database.state import counted, first_of, last_of, numbered, present
from tidegate.tools.verify_database.values import mean_the_same

Flags = npt.NDArray[np.bool_]
_SHOWN = 5  # rows of a table that are named


@dataclass(frozen=True)
class Era:
    """Rows that the sink got under one version of the table. `same` are the columns that no later DDL has changed.

    `loses` says that a later DDL may have removed such rows without an event, `gains` that one may have brought some.
    """

    version: int
    same: tuple[bool, ...]
    loses: bool = False
    gains: bool = False


class Named(NamedTuple):
    """A row that differs: the values of its key, and what is wrong with it."""

    key: tuple[bytes | None, ...]
    what: str
    ts: int


@dataclass
class Verdict:
    """What was found so far in a table."""

    rows: int = 0
    missing: int = 0
    extra: int = 0
    different: int = 0
    by_ddl: int = 0
    named: list[Named] = field(default_factory=list)

    @property
    def is_right(self) -> bool:
        return not (self.missing or self.extra or self.different)

    def name(self, row: Named) -> None:
        if len(self.named) < _SHOWN:
            self.named.append(row)


class Sides(NamedTuple):
    """One bucket: what the sink has, what SQL read, and the changes of the log in between."""

    sink: Changes
    read: Changes
    window: Changes


def compare(sides: Sides, shape: Shape, eras: Sequence[Era], forward: bool, verdict: Verdict) -> None:
    """Adds what this bucket shows to the verdict."""
    if shape.key:
        _by_key(sides, shape, eras, forward, verdict)
    else:
        _by_count(sides, shape, eras, forward, verdict)


def _by_key(sides: Sides, shape: Shape, eras: Sequence[Era], forward: bool, verdict: Verdict) -> None:
    keys = numbered(*sides)
    sink, read, window = (rows.op for rows in sides)
    landed = present(sink, last_of(keys.of[0], keys.different))
    there = present(read, last_of(keys.of[1], keys.different))
    touched = (last_of if forward else first_of)(keys.of[2], keys.different)
    put = PUT if forward else REMOVED  # a row that is removed first was there before
    brought = np.where(window[touched] == put, touched + len(read), -1) if len(window) else touched
    there = np.where(touched >= 0, brought, there)
    truth = _together(sides.read, sides.window)
    _missing(truth, there[(landed < 0) & (there >= 0)], shape, eras, verdict)
    _extra(sides.sink, landed[(landed >= 0) & (there < 0)], shape, eras, verdict)
    both = (landed >= 0) & (there >= 0)
    _values(sides.sink.take(landed[both]), truth.take(there[both]), shape, eras, verdict)


def _together(first: Changes, second: Changes) -> Changes:
    return Changes(
        pa.concat_arrays([first.key, second.key]),
        np.concatenate([first.op, second.op]),
        [pa.concat_arrays(pair) for pair in zip(first.columns, second.columns, strict=True)],
        np.concatenate([first.era, second.era]),
        np.concatenate([first.ts, second.ts]),
    )


def _by_count(sides: Sides, shape: Shape, eras: Sequence[Era], forward: bool, verdict: Verdict) -> None:
    keys = numbered(*sides)
    landed, read, window = (counted(of, rows.op, keys.different) for of, rows in zip(keys.of, sides, strict=True))
    there = read + window if forward else read - window
    verdict.rows += int(np.minimum(landed, there).clip(0).sum())
    every = _together(_together(sides.sink, sides.read), sides.window)
    place = first_of(np.concatenate(keys.of), keys.different)
    _missing(every, np.repeat(place, np.maximum(there - landed, 0)), shape, eras, verdict)
    _extra(every, np.repeat(place, np.maximum(landed - there, 0)), shape, eras, verdict)


def _missing(rows: Changes, at: Ints, shape: Shape, eras: Sequence[Era], verdict: Verdict) -> None:
    if any(era.gains for era in eras):
        verdict.by_ddl += len(at)
        return
    verdict.missing += len(at)
    for row in at[:_SHOWN].tolist():
        verdict.name(Named(_key_of(rows, row, shape), "is in the database and not on the sink", 0))


def _extra(rows: Changes, at: Ints, shape: Shape, eras: Sequence[Era], verdict: Verdict) -> None:
    lost = np.array([era.loses for era in eras] or [False])[rows.era[at]]
    verdict.by_ddl += int(lost.sum())
    at = at[~lost]
    verdict.extra += len(at)
    for row in at[:_SHOWN].tolist():
        verdict.name(Named(_key_of(rows, row, shape), "is on the sink and not in the database", int(rows.ts[row])))


def _key_of(rows: Changes, row: int, shape: Shape) -> tuple[bytes | None, ...]:
    return tuple(rows.columns[i][row].as_py() for i in shape.key or range(len(shape.names)))


def _values(sink: Changes, truth: Changes, shape: Shape, eras: Sequence[Era], verdict: Verdict) -> None:
    """Rows of equal keys, side by side."""
    count = len(sink.op)
    wrong, excused = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    first: dict[int, str] = {}
    for i, (name, kind) in enumerate(zip(shape.names, shape.kinds, strict=True)):
        differs = _differs(sink.columns[i], truth.columns[i], kind)
        same = np.array([era.same[i] for era in eras] or [True])[sink.era]
        excused |= differs & ~same
        differs &= same
        for row in np.flatnonzero(differs & ~wrong)[:_SHOWN].tolist():
            first[row] = name
        wrong |= differs
    verdict.rows += int((~wrong).sum())
    verdict.by_ddl += int((excused & ~wrong).sum())
    verdict.different += int(wrong.sum())
    for row in sorted(first)[:_SHOWN]:
        what = f"has another value in column {first[row]!r}"
        verdict.name(Named(_key_of(sink, row, shape), what, int(sink.ts[row])))


def _differs(sink: pa.Array, truth: pa.Array, kind: str) -> Flags:
    """Where the values of a column mean different things."""
    equal = pc.fill_null(pc.equal(sink, truth), False).to_numpy(zero_copy_only=False)
    neither = pc.and_(pc.is_null(sink), pc.is_null(truth)).to_numpy(zero_copy_only=False)
    differs: Flags = ~(equal | neither)
    for row in np.flatnonzero(differs).tolist() if kind in ("json", "vector") else ():
        differs[row] = not mean_the_same(sink[row].as_py(), truth[row].as_py(), kind)
    return differs
