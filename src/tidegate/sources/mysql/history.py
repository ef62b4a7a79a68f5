"""The catalogue and its DDL history on storage, beside the journal: create-only objects, numbered.

    _tidegate/source/catalogue/000000000000.full    the catalogue at the first start
    _tidegate/source/ddl/000000000001.json.gz       a group of statements: what they changed, and the rows that told it
    _tidegate/source/ddl/000000000002.json.gz       ...
    _tidegate/source/catalogue/000000000002.full    the catalogue after the second group; what is before it goes

What is there wins. A group is on record before its rows are handed out; it names the digest of the group before it, so
groups form one chain, and nobody can replace a part of it. A process that wants to record something finds either
nothing, or what it was about to write (its own put whose answer was lost, or another process that read the same log),
or something else: then it stops. All statements of one micro-batch are one group.

A restart takes the newest full catalogue at or below its position and the statements up to there. Those above are kept:
when the log is read again, what is on record counts, whatever this release would make of the text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tidegate.errors import SourceFenced, StoreRefused
from tidegate.format.layout import RESERVED_PREFIX
from tidegate.sources.mysql.catalogue import Applied, Catalogue
from tidegate.sources.mysql.place import Place
from tidegate.sources.mysql.record_form import (
    Full,
    Group,
    Statement,
    full_bytes,
    full_head,
    group_bytes,
    read_full,
    read_group,
)
from tidegate.storage.store import Store

FOLDER = f"{RESERVED_PREFIX}/source"
FULLS, GROUPS = f"{FOLDER}/catalogue", f"{FOLDER}/ddl"
_COMPACT_AFTER = 64  # groups


def full_path(number: int) -> str:
    return f"{FULLS}/{number:012d}.full"


def group_path(number: int) -> str:
    return f"{GROUPS}/{number:012d}.json.gz"


def _number_of(path: str) -> int:
    return int(path.rpartition("/")[2].partition(".")[0])


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


@dataclass
class History:
    """`catalogue` is the one at `place`, where this process began to read."""

    store: Store
    place: Place
    catalogue: Catalogue
    number: int  # of the last group on record
    digest: str
    ahead: dict[tuple[int, int], Statement] = field(default_factory=dict)  # on record, above `place`
    _full: Full | None = None  # the newest that this process knows to be on storage
    _since: list[tuple[int, str, Group]] = field(default_factory=list)  # groups above it: number, digest

    @staticmethod
    def begin(store: Store, catalogue: Catalogue, place: Place) -> History:
        """At the first start: put the catalogue on record. If one is there, this one is taken instead."""
        store.create_bytes(full_path(0), full_bytes(Full(catalogue, place, 0, "")))
        found = History.load(store, None)
        if found is None:
            raise StoreRefused(f"{full_path(0)} is gone right after it was written: does somebody empty the sink?")
        return found

    @staticmethod
    def load(store: Store, place: Place | None) -> History | None:
        """The history as a restart at `place` sees it; None if nothing is on record. Without a place: at its start."""
        fulls = sorted((path for path, _ in store.list(FULLS)), key=_number_of, reverse=True)
        if not fulls:
            return None
        full = next(filter(None, (_read_below(store, path, place) for path in fulls)), None)
        if full is None:
            raise StoreRefused(
                f"no catalogue is on record at or below {place}, where the changefeed goes on: the objects under "
                f"{FOLDER} belong to another changefeed, or were deleted; begin with a new sink"
            )
        history = History(store, place or full.place, full.catalogue, full.number, full.digest, _full=full)
        history._read_on(max((_number_of(path) for path, _ in store.list(GROUPS)), default=0))
        return history

    def _read_on(self, last: int) -> None:
        """Take in the groups above the full catalogue."""
        for number in range(self.number + 1, last + 1):
            data = self.store.get(group_path(number))
            if data is None:
                raise StoreRefused(f"{group_path(number)} is missing, but later ones exist: begin with a new sink")
            self._chain(number, data, read_group(data))

    def _chain(self, number: int, data: bytes, group: Group) -> None:
        if group.previous != self.digest:
            raise SourceFenced(
                f"{group_path(number)} does not continue what is on record before it: another process has written it; "
                "run only one changefeed per sink"
            )
        self.number, self.digest = number, _digest(data)
        self._since.append((number, self.digest, group))
        for statement in group.statements:
            if statement.place.order <= self.place.order:
                self.catalogue = self.catalogue.changed(statement.change)
            else:
                self.ahead[statement.place.order] = statement

    def recorded(self, place: Place, catalogue: Catalogue) -> Applied | None:
        """What is on record for the statement that ends here; None if nothing is."""
        found = self.ahead.get(place.order)
        if found is None:
            return None
        return Applied(catalogue.changed(found.change), found.change, found.rows, found.touched)

    def record(self, statements: Sequence[tuple[Place, Applied]]) -> None:
        """Put statements on record, in one object, before their rows are handed out.

        Those that are on record already, and those that change nothing, are left out. Raises SourceFenced if something
        else is there; StoreUnavailable if it is not known whether it was done: the same call may be repeated.
        """
        fresh = [
            Statement(place, applied.change, applied.rows, applied.touched)
            for place, applied in statements
            if not applied.ignored and place.order not in self.ahead
        ]
        while fresh:
            data = group_bytes(Group(self.digest, tuple(fresh)))
            number = self.number + 1
            if not self.store.create_bytes(group_path(number), data):
                data = self._there(number)
            group = read_group(data)
            if group.statements != tuple(fresh)[: len(group.statements)]:
                raise SourceFenced(
                    f"{group_path(number)} says something else about the DDLs of the log than this process: another "
                    "process has written it; run only one changefeed per sink"
                )
            self._chain(number, data, group)
            fresh = fresh[len(group.statements) :]

    def _there(self, number: int) -> bytes:
        data = self.store.get(group_path(number))
        if data is None:
            raise SourceFenced(f"{group_path(number)} exists and is gone again: does somebody empty the sink?")
        return data

    # Compaction -------------------------------------------------------------------------------------------------------

    def wants_compaction(self) -> bool:
        return len(self._since) >= _COMPACT_AFTER

    def compact(self, durable: Place) -> None:
        """Replace what is at or below the durable position by one full catalogue, then delete it.

        No restart will ask for anything older. A crash in between leaves objects that the next compaction deletes.
        """
        done = [each for each in self._since if each[2].statements[-1].place.order <= durable.order]
        if self._full is None or not done:
            return
        catalogue = self._full.catalogue
        for _, _, group in done:
            for statement in group.statements:
                catalogue = catalogue.changed(statement.change)
        number, digest, last = done[-1]
        full = Full(catalogue.folded(), last.statements[-1].place, number, digest)
        if not self.store.create_bytes(full_path(number), full_bytes(full)):
            self._check_same(number, digest)
        self._full, self._since = full, self._since[len(done) :]
        for statement in (each for _, _, group in done for each in group.statements):
            self.ahead.pop(statement.place.order, None)
        self._delete(GROUPS, lambda found: found <= number)
        self._delete(FULLS, lambda found: found < number)

    def _check_same(self, number: int, digest: str) -> None:
        data = self.store.get(full_path(number))
        if data is None or full_head(data)["digest"] != digest:
            raise SourceFenced(f"{full_path(number)} is of another chain: run only one changefeed per sink")

    def _delete(self, folder: str, is_old: Callable[[int], bool]) -> None:
        for path in [path for path, _ in self.store.list(folder)]:
            if is_old(_number_of(path)):
                self.store.delete(path)


def _read_below(store: Store, path: str, place: Place | None) -> Full | None:
    data = store.get(path)
    if data is None:
        return None
    if place is not None and Place(*full_head(data)["place"]).order > place.order:
        return None
    return read_full(data)
