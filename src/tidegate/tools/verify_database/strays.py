"""Tables that the sink has and the database does not: each must have ended by DROP, by RENAME, or with its database."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tidegate.errors import VerifyError
from tidegate.format.ddl import events as ddl
from tidegate.sources.mysql.inspection import Follows
from tidegate.tools.verify_database.lineage import Name, SchemaFile
from tidegate.tools.verify_database.sink import Sink

_VIEWS = frozenset((ddl.CREATE_VIEW, ddl.DROP_VIEW))


@dataclass
class EndedNames:
    """The names that tables had before a RENAME, and when it took them away last."""

    ended_ts: dict[Name, int] = field(default_factory=dict)

    def note(self, files: Iterable[SchemaFile]) -> None:
        """`files` are all schema files of some name."""
        for file in files:
            if (before := file.renamed_from) is not None:
                self.ended_ts[before] = max(file.version, self.ended_ts.get(before, 0))


def refuse_strays(sink: Sink, known: Iterable[Name], ended: EndedNames, follows: Follows) -> None:
    """`known` are the tables of the database, under its names."""
    targets = {sink.target_of(*name) for name in known}
    strays = sorted(name for name in sink.names() - targets if name[1] and follows(*name))
    for name in strays:
        ended.note(sink.schema_files(name))
    for name in strays:
        if _is_there(sink, name, ended):
            raise VerifyError(
                f"{'.'.join(name)} is on the sink at commit-ts {sink.ts}, and the database has no such table"
            )


def _is_there(sink: Sink, name: Name, ended: EndedNames) -> bool:
    parts = sink.history_of(name)
    if not parts:
        return False
    last = parts[-1].files[-1]
    if last.action in _VIEWS or ended.ended_ts.get(name, 0) >= last.version:
        return False
    of_database = (file for file in sink.schema_files((name[0], "")) if file.version <= sink.ts)
    return not any(file.action == ddl.DROP_DATABASE and file.version > last.version for file in of_database)
