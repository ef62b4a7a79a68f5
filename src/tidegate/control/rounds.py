"""Rounds: files that one job lands together.

A round is a value: it is planned once, and what did not land becomes another round with the same files. The reason of a
file says why it was landed now: `size`, `interval`, `delay`, `ddl`, `pressure` or `close`; `fanout` and `bytes_cap`
when a limit cut the round short, `oversized` when one file is larger than the whole spool, `error` when it failed
before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidegate.control.columns import Ints, Numbers, group_starts
from tidegate.control.cut import Cut
from tidegate.control.queues import Queues
from tidegate.errors import BrokenInvariant
from tidegate.format.tables import CHECK, NEW, SETTLED, WRITE

_BY_FILE = ("plan", "dispatcher", "lane", "number", "version", "directory", "date", "bytes", "reason", "schema")


@dataclass(frozen=True)
class Round:
    """Files to land together, as columns. File i has the items `slots[bounds[i]:bounds[i + 1]]`.

    Files of one lane are next to each other, in order, and have one version and one date.
    """

    id: int
    plan: Ints  # a number for each file, which it keeps when it is retried
    slots: Numbers
    bounds: Ints
    dispatcher: Numbers
    lane: Numbers
    number: Ints
    version: Ints
    directory: Ints  # the version in the path
    date: Ints
    bytes: Ints
    reason: NDArray[np.str_]
    schema: NDArray[np.int8]  # what the land task does about the schema file first: see `format/tables.py`
    attempt: int = 0
    fresh: bool = True  # the journal does not know its files yet
    suspect: bool = False  # its lanes hung before

    def __len__(self) -> int:
        return len(self.lane)

    def again(self, files: NDArray[np.bool_], round_id: int) -> Round:
        """These files under the same numbers, as the next attempt."""
        counts = np.diff(self.bounds)
        columns: dict[str, Any] = {name: getattr(self, name)[files] for name in _BY_FILE}
        columns["reason"] = np.full(int(files.sum()), "error")
        return replace(
            self,
            id=round_id,
            slots=self.items_of(files),
            bounds=np.concatenate(([0], np.cumsum(counts[files]))),
            attempt=self.attempt + 1,
            fresh=False,
            suspect=False,
            **columns,
        )

    def items_of(self, files: NDArray[np.bool_]) -> Numbers:
        """The slots of the items in these files."""
        return self.slots[np.repeat(files, np.diff(self.bounds))]

    def settles(self) -> NDArray[np.bool_]:
        """Which files, once landed, prove that the schema file of their lane exists."""
        return np.asarray(self.schema != SETTLED)

    def check_answer(self, landed: NDArray[np.bool_]) -> None:
        """Each file has a receipt, and a lane lands its files in order. Otherwise a reader would see a gap."""
        if len(landed) != len(self):
            raise BrokenInvariant(f"round {self.id} has {len(self)} files but {len(landed)} receipts")
        if (landed[1:] & ~landed[:-1] & (self.lane[1:] == self.lane[:-1])).any():
            raise BrokenInvariant(f"round {self.id}: a file landed before an earlier one of its lane")


def joined(rounds: list[Round], round_id: int) -> Round:
    """Rounds of different lanes as one."""
    names = ("slots", *_BY_FILE)
    columns: dict[str, Any] = {name: np.concatenate([getattr(round_, name) for round_ in rounds]) for name in names}
    counts = np.concatenate([np.diff(round_.bounds) for round_ in rounds])
    return replace(rounds[0], id=round_id, bounds=np.append(0, np.cumsum(counts)), **columns)


@dataclass
class Numbering:
    """The numbers of rounds and of planned files, each given once."""

    _rounds: int = 0
    _plans: int = 0

    def round_id(self) -> int:
        self._rounds += 1
        return self._rounds

    def plans(self, count: int) -> Ints:
        self._plans += count
        return np.arange(self._plans - count, self._plans)

    def continue_plans(self, number: int) -> None:
        """Give no plan number below this one: the journal still knows files of an earlier run by those."""
        self._plans = max(self._plans, number)


def number_files(queues: Queues, cut: Cut, reason: str, date: int, numbering: Numbering) -> Round:
    """A round of the files that were cut: each gets its number in its lane, and the lanes are busy from now on."""
    items, lanes = queues.items, queues.lanes
    starts = group_starts(cut.file_of)
    owners, version = cut.dispatcher[starts], items.version[cut.slots[starts]]
    lane = queues.dispatchers.lane[owners].astype(np.int64)
    if (back := version < lanes.version[lane]).any():
        name = queues.name(int(owners[back][0]))
        raise BrokenInvariant(f"{name}: version {version[back][0]} would land after a newer one")
    heads = group_starts(lane)
    queues.names.begin_versions(owners[heads], version[heads])
    queues.place_new(owners[heads], version[heads], items.first_ts[cut.slots[starts[heads]]])
    numbered = lanes.begin(lane, version, date)
    _spare_lists(queues, owners, numbered.schema)
    return Round(
        id=numbering.round_id(),
        plan=numbering.plans(len(lane)),
        slots=cut.slots,
        bounds=np.append(starts, len(cut.slots)),
        dispatcher=owners,
        lane=lane,
        version=version,
        bytes=np.add.reduceat(items.length[cut.slots], starts),
        reason=np.full(len(lane), reason),
        **numbered._asdict(),
    )


def _spare_lists(queues: Queues, owners: Numbers, schema: NDArray[np.int8]) -> None:
    """Under a name that comes for the first time no other schema file can exist: it is written without a look."""
    if not queues.unseen.was_empty:
        return
    checked = np.flatnonzero((schema == CHECK) | (schema == WRITE))
    first = queues.unseen.first(queues.names.pairs(owners[checked]))
    schema[checked[first]] = NEW
