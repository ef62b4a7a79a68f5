"""Lanes: a lane is one index path, and the files behind it are numbered one after the other.

Usually a dispatcher has a lane of its own. Partitions whose path has no partition in it share the lane of their table.
Tables of one target have different paths (`places.py`), so no two lanes ever write to one path.
Invariants:
1. A lane has at most one landing under way. The next number is only known when the last one has landed or failed.
2. Neither its date nor its version ever goes back, whatever the clock says. A new date or version is a new directory,
   whose numbers start at 1; a directory that came back would get its numbers twice.
3. A file that failed keeps its number. A number may be given to another file only before any of them was put.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidegate.control.columns import Columns, Ints, Numbers, group_positions, group_sizes, group_starts
from tidegate.control.tags import Tags
from tidegate.format.tables import CHECK, LOOK, SETTLED, WRITE


class Destination(NamedTuple):
    """Where the files of a lane go instead: a version's directory, behind its last file.

    `schema` says what the land task does about the schema file first.
    """

    directory: int
    last_number: int
    schema: int


class Numbered(NamedTuple):
    """By file: its number, the version in its path, its date, and what the land task does about the schema file."""

    number: Ints
    directory: Ints
    date: Ints
    schema: NDArray[np.int8]


class Lanes(Columns):
    """A row for each lane. `date` is a number like 20260131, or 0 without date.

    `schema_version` is the version whose schema file is settled: it is known to exist, and no file needs to look for
    it. `directory` is the version in the lane's path. It is older than `version` where a schema file with the same
    columns existed already, for TiCDC then goes on in that one's directory.
    """

    _dtypes = {  # noqa: RUF012
        "number": np.int64, "date": np.int64, "version": np.int64, "directory": np.int64, "schema_version": np.int64,
        "members": np.int32, "busy": np.bool_, "owed": np.bool_, "look": np.bool_, "own": np.bool_,
        "new_here": np.bool_,
    }  # fmt: skip
    number: Ints
    date: Ints
    version: Ints
    directory: Ints
    schema_version: Ints
    members: Ints  # dispatchers, where lanes are shared
    busy: NDArray[np.bool_]  # a landing is under way, or waits for its retry
    look: NDArray[np.bool_]  # its state was given up: the next landing looks first which files exist
    new_here: NDArray[np.bool_]  # it has no file under its name yet: older versions there are of other tables
    own: NDArray[np.bool_]  # its path has the table id in it, as that of a partition: the plain path is another's
    owed: NDArray[np.bool_]  # an old writer may still create its next files: the lane keeps its date until it cannot

    def __init__(self) -> None:
        super().__init__()
        self.newest_date = 0  # no lane gets an older one, also if the clock is set back
        self.foreign = False  # another writer's files are on the sink: each new directory is looked at first
        self.tags = Tags()  # of the index files of active lanes
        # By lane and number, the last (commit_ts, seq) of the files that an old writer may still create.
        self._owed: dict[int, dict[int, set[tuple[int, int]]]] = {}

    def begin(self, lane: Numbers, version: Ints, date: int) -> Numbered:
        """Number the files that are about to land; those of one lane are next to each other.

        Only the first file of a lane deals with the schema file: the others land after it.
        """
        starts = group_starts(lane)
        heads, counts = lane[starts], group_sizes(starts, len(lane))
        self._begin_directories(heads, version[starts], date)
        within = group_positions(counts)
        number = self.number[lane] + 1 + within
        self.number[heads] += counts
        self.busy[heads] = True
        first = within == 0
        # Readers expect equal columns in one directory, but only for the files of one table.
        put = np.where((self.own[lane] | self.new_here[lane]) & (not self.foreign), WRITE, CHECK)
        schema = np.where((self.schema_version[lane] != version) & first, put, SETTLED).astype(np.int8)
        schema[self.look[lane] & first] = LOOK
        return Numbered(number, self.directory[lane], self.date[lane], schema)

    def _begin_directories(self, lane: Numbers, version: Ints, date: int) -> None:
        """Lanes with a new date or version start in a new directory, at number 1.

        On a foreign sink that directory may have files of the other writer, so its schema file is not settled.
        """
        self.newest_date = max(self.newest_date, date, int(self.date[lane].max(initial=0)))
        dates = np.where(self.owed[lane], self.date[lane], self.newest_date)
        new = version != self.version[lane]
        fresh = (dates != self.date[lane]) | new
        self.number[lane[fresh]] = 0
        self.tags.forget(lane[fresh])
        if self.foreign:
            self.schema_version[lane[fresh]] = 0
        self.directory[lane[new]] = version[new]
        self.date[lane], self.version[lane] = dates, version

    def redirect(self, lane: Numbers, version: Ints, destinations: list[Destination], counts: Ints) -> Numbered:
        """The files of these lanes, so many of each, go elsewhere: number them behind the files that exist there."""
        directory, last, schema = np.array(destinations, np.int64).T
        self.tags.forget(lane)
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

    def reset(self, rows: Numbers) -> None:
        super().reset(rows)
        self.tags.forget(rows)

    def settle(self, lane: Numbers, version: Ints) -> None:
        """These lanes have landed a file of this version, so its schema file exists."""
        self.schema_version[lane], self.new_here[lane] = version, False

    def release(self, lane: Numbers) -> None:
        """All files of these lanes landed, so the lanes are free for the next landing."""
        self.busy[lane] = self.owed[lane] = False
        if self._owed:
            self.owed[np.intersect1d(lane, list(self._owed))] = True

    def owe(self, lane: int, number: int, end: tuple[int, int]) -> None:
        """An old writer may still create this file, whose last change is `end`.

        A process that was paused before a restart may wake up and go on with its next number, if that is still free.
        Under a new date we would leave all its numbers free, and it would add files with changes that we land too. So
        the lane keeps its date until our own files have taken these numbers.
        """
        self._owed.setdefault(lane, {}).setdefault(number, set()).add(end)
        self.owed[lane] = True

    def owing(self, lane: Numbers) -> NDArray[np.bool_]:
        """In which of these lanes an old writer may still create files."""
        return np.isin(lane, list(self._owed))

    def landed(self, lane: int, number: int, end: tuple[int, int]) -> None:
        """We landed this file. Where it is the same as the old writer's, that one may go on to its next number.

        At the first file that is another than its own it stops, and behind its last number it has nothing to write.
        """
        theirs = self._owed.get(lane, {})
        if theirs and (end not in theirs.get(number, ()) or max(theirs) <= number):
            del self._owed[lane]
