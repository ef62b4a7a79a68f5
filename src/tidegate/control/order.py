"""Which DDLs wait for which: those that touch each other keep their commit-ts order, all others go together.

Two DDLs touch each other if they share a dispatcher, or the name of a table before or after them, on the source or on
the sink. A DDL of a database touches every DDL of a table in it, and one over all tables touches every other. The table
trigger is no reason to wait: it takes part in each creation, drop, truncate and rename, and they would all go one after
the other. Names count because a name that is dropped and made again belongs to two ids. Small and capital letters are
taken for the same: to wait without need does no harm.

A DDL enters when no earlier one can come any more, so DDLs enter in commit-ts order. It then waits for the last one
before it at each thing that it claims; those before that one are over by then. So the cost of a DDL is what it claims,
not how many others there are. Invariants:
1. A DDL waits only for DDLs that entered before it, so nobody ever waits in a circle.
2. When a DDL waits for nobody, all earlier ones that touch it are over.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from tidegate.control.barrier import Key
from tidegate.format.ddl.events import ALL, CREATE_TABLE, DB, DdlEvent

Name = tuple[str, str]  # database and table, "" for the database itself
Database = int | str  # its id, or its name
_SOMEWHERE = 0  # the database of a table that has sent nothing yet: it may be any


class Claims(NamedTuple):
    """What a DDL touches."""

    alone: frozenset[int | Name]  # dispatchers and names of tables
    within: frozenset[Database]  # databases in which it touches tables
    whole: frozenset[Database]  # databases that it touches as a whole
    everything: bool


def claims_of(event: DdlEvent, dispatchers: Iterable[int], homes: Iterable[int], targets: Iterable[Name]) -> Claims:
    """`homes` are the databases in which its dispatchers are just before it, `targets` the names on the sink."""
    names = [(table.schema, table.table) for table in event.tables]
    names += [(table.old_schema, table.old_table) for table in event.tables if table.old_table]
    folded = {(schema.casefold(), table.casefold()) for schema, table in (*names, *targets)}
    scopes = [scope for scope in (event.blocked, event.dropped) if scope is not None]
    whole: set[Database] = {schema for schema, table in folded if not table}
    if whole:
        whole.add(event.schema_id)
    whole.update(scope.schema_id for scope in scopes if scope.kind == DB)
    moves = ((moved.old_schema_id, moved.new_schema_id) for moved in event.updated_schemas)
    within: set[Database] = {event.schema_id, *homes, *(table.schema_id for table in event.added)}
    within.update(schema_id for pair in moves for schema_id in pair)
    within.update(schema for schema, table in folded if table)
    whole.discard(_SOMEWHERE)
    if event.type != CREATE_TABLE:  # the names of all its tables tell; a creation does not name what it is LIKE
        within.discard(_SOMEWHERE)
    alone: set[int | Name] = {*dispatchers, *(name for name in folded if name[1])}
    everything = any(scope.kind == ALL for scope in scopes)
    return Claims(frozenset(alone), frozenset(within - whole), frozenset(whole), everything)


@dataclass
class Order:
    """The DDLs that have entered and are not over."""

    _claims: dict[Key, Claims] = field(default_factory=dict)
    _before: dict[Key, set[Key]] = field(default_factory=dict)  # whom each waits for
    _behind: dict[Key, list[Key]] = field(default_factory=dict)  # who waits for each
    # The last DDL at each thing; all before it are over when it is.
    _alone: dict[int | Name, Key] = field(default_factory=dict)
    _whole: dict[Database, Key] = field(default_factory=dict)
    _within: dict[Database, dict[Key, None]] = field(default_factory=dict)  # since the last one of the whole database
    _everything: Key | None = None
    _since: dict[Key, None] = field(default_factory=dict)  # all since the last one over everything, itself included

    @property
    def empty(self) -> bool:
        kept = (self._claims, self._before, self._behind, self._alone, self._whole, self._within, self._since)
        return not any(kept) and self._everything is None

    def enter(self, key: Key, claims: Claims) -> set[Key]:
        """Those that this DDL waits for. The set becomes empty as they end."""
        before = self._last_ones(claims)
        self._claims[key], self._before[key] = claims, before
        for other in before:
            self._behind.setdefault(other, []).append(key)
        self._claim(key, claims)
        return before

    def leave(self, key: Key) -> list[Key]:
        """This DDL is over; returns those that wait for nobody any more."""
        self._give_back(key, self._claims.pop(key))
        del self._before[key]
        free = []
        for other in self._behind.pop(key, ()):
            before = self._before[other]
            before.discard(key)
            if not before:
                free.append(other)
        return free

    def _last_ones(self, claims: Claims) -> set[Key]:
        if claims.everything:
            return set(self._since)
        found = {self._everything} | {self._alone.get(thing) for thing in claims.alone}
        found.update(self._whole.get(database) for database in claims.within | claims.whole)
        for database in (*claims.whole, _SOMEWHERE) if claims.whole else ():
            found.update(self._within.get(database, ()))
        if _SOMEWHERE in claims.within:
            found.update(self._whole.values())
        return {key for key in found if key is not None}

    def _claim(self, key: Key, claims: Claims) -> None:
        if claims.everything:
            self._everything, self._since = key, {}
            for last in (self._alone, self._whole, self._within):  # all of these are over when this one is
                last.clear()
        self._since[key] = None
        self._alone.update(dict.fromkeys(claims.alone, key))
        for database in claims.whole:
            self._whole[database] = key
            self._within.pop(database, None)
        for database in claims.within:
            self._within.setdefault(database, {})[key] = None

    def _give_back(self, key: Key, claims: Claims) -> None:
        self._since.pop(key, None)
        if self._everything == key:
            self._everything = None
        for thing in claims.alone:
            if self._alone.get(thing) == key:
                del self._alone[thing]
        for database in claims.whole:
            if self._whole.get(database) == key:
                del self._whole[database]
        for database in claims.within:
            inside = self._within.get(database, {})
            inside.pop(key, None)
            if not inside:
                self._within.pop(database, None)
