"""Lanes: a lane is one index path, to which files go one after the other.

Invariants:
1. A lane has at most one landing under way.
2. Neither its date nor its version ever goes back; a new date or version starts its numbers at 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidegate.control.columns import Columns, Ints, Numbers, group_positions, group_sizes, group_starts
from tidegate.format.tables import CHECK, LOOK, SETTLED


class Destination(NamedTuple):
    """Where a lane's files go: a version's directory, behind its last file, after so much work on the schema file."""

    directory: int
    last_number: int
    schema: int


class Numbered(NamedTuple):
    """By file: its number, the version in its path, its date, and what is to be done about the schema file first."""

    number: Ints
    directory: Ints
    date: Ints
    schema: NDArray[np.int8]


class Lanes(Columns):
    """`date` is a number like 20260131 (0 without date), `schema_version` the version whose schema file is settled.

    `directory` is the version that stands in the lane's path: an older one than `version` where a schema file with the
    same columns was there already.
    """

    _dtypes = {  # noqa: RUF012
        "number": np.int64, "date": np.int64, "version": np.int64, "directory": np.int64, "schema_version": np.int64,
        "busy": np.bool_, "owed": np.bool_, "look": np.bool_,
    }  # fmt: skip
    number: Ints
    date: Ints
    version: Ints
    directory: Ints
    schema_version: Ints
    busy: NDArray[np.bool_]
    look: NDArray[np.bool_]  # its state was given up: before its next file somebody must look what stands there
    owed: NDArray[np.bool_]  # an old writer may still create its next files: it keeps its date until that is over

    def __init__(self) -> None:
        super().__init__()
        self.newest_date = 0  # no table lands under an older one, whatever the clock says
        self.foreign = False  # another writer's files stand on the sink: each new directory is looked at first
        # By lane and number: where files end, (commit_ts, seq), that an old writer may still create.
        self._owed: dict[int, dict[int, set[tuple[int, int]]]] = {}

    def begin(self, lane: Numbers, version: Ints, date: int) -> Numbered:
        """Files of these lanes, which stand together lane by lane, are about to land: number them."""
        starts = group_starts(lane)
        heads, counts = lane[starts], group_sizes(starts, len(lane))
        self._begin_directories(heads, version[starts], date)
        within = group_positions(counts)
        number = self.number[lane] + 1 + within
        self.number[heads] += counts
        self.busy[heads] = True
        first = within == 0
        schema = np.where((self.schema_version[lane] != version) & first, CHECK, SETTLED).astype(np.int8)
        schema[self.look[lane] & first] = LOOK
        return Numbered(number, self.directory[lane], self.date[lane], schema)

    def _begin_directories(self, lane: Numbers, version: Ints, date: int) -> None:
        """Where date or version is another than before, numbers start again."""
        self.newest_date = max(self.newest_date, date, int(self.date[lane].max(initial=0)))
        dates = np.where(self.owed[lane], self.date[lane], self.newest_date)
        new = version != self.version[lane]
        fresh = (dates != self.date[lane]) | new
        self.number[lane[fresh]] = 0
        if self.foreign:
            self.schema_version[lane[fresh]] = 0
        self.directory[lane[new]] = version[new]
        self.date[lane], self.version[lane] = dates, version

    def redirect(self, lane: Numbers, version: Ints, destinations: list[Destination], counts: Ints) -> Numbered:
        """The files of these lanes, so many of each, go elsewhere: number them behind what stands there."""
        directory, last, schema = np.array(destinations, np.int64).T
        self.directory[lane], self.number[lane], self.look[lane] = directory, last + counts, False
        settled = schema == SETTLED
        self.schema_version[lane[settled]] = version[settled]
        within = group_positions(counts)
        return Numbered(
            np.repeat(last, counts) + 1 + within,
            np.repeat(directory, counts),
            np.repeat(self.date[lane], counts),
            np.where(within == 0, np.repeat(schema, counts), SETTLED).astype(np.int8),
        )

    def settle(self, lane: Numbers, version: Ints) -> None:
        """The schema files of these versions stand where the lanes' files go."""
        self.schema_version[lane] = version

    def release(self, lane: Numbers) -> None:
        """All files of these lanes landed, so the lanes are free."""
        self.busy[lane] = self.owed[lane] = False
        if self._owed:
            self.owed[np.intersect1d(lane, list(self._owed))] = True

    def owe(self, lane: int, number: int, end: tuple[int, int]) -> None:
        """An old writer may still create this file: until that is over the lane keeps its date."""
        self._owed.setdefault(lane, {}).setdefault(number, set()).add(end)
        self.owed[lane] = True

    def owing(self, lane: Numbers) -> NDArray[np.bool_]:
        """In which of these an old writer may still create files."""
        return np.isin(lane, list(self._owed))

    def landed(self, lane: int, number: int, end: tuple[int, int]) -> None:
        """An old writer goes on behind files that are the same as its own, and stops at the first that is another."""
        theirs = self._owed.get(lane, {})
        if theirs and (end not in theirs.get(number, ()) or max(theirs) <= number):
            del self._owed[lane]
