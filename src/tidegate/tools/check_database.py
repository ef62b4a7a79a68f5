"""Preflight of a database: what `tidegate check --source mysql://...` says about the server and its tables.

Promises: the database is only read; a finding has the statement that mends it; no line shows the password. A thousand
tables with one fault give a few lines and a count.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from tidegate.clock import Clock
from tidegate.config.settings import Settings
from tidegate.driver.inspection import inspect
from tidegate.errors import StoreRefused, StoreUnavailable, TidegateError
from tidegate.events import physical_ms
from tidegate.sources.mysql.address import Address
from tidegate.sources.mysql.connect import connect
from tidegate.sources.mysql.facts import Facts
from tidegate.sources.mysql.inspection import Follows, inspect_server
from tidegate.sources.mysql.refusals import Finding, findings, retention_findings
from tidegate.storage.store import Store
from tidegate.tools.check import OK, PROBLEM, WARNING, Line

_MOST = 10  # lines of one kind
_ANSWER_S = 600  # information_schema of a million tables takes its time
_FINE = {
    "log": "the log holds whole rows with the names of their columns",
    "grants": "this user may read the log and the tables",
    "xa": "no XA transaction is prepared",
    "tables": "every table to follow is one whose changes are all in the log",
    "retention": "the log is kept for longer than the changefeed needs it",
}
_GROUPS = {"grants": "grants", "xa": "xa", "engine": "tables", "versioning": "tables", "type": "tables"}
_GROUPS |= {"foreign key": "tables", "tables": "tables", "retention": "retention"}


def followed_by(address: Address, settings: Settings) -> Follows:
    """Whether both the address and the filter of the changefeed keep a table."""

    def follows(schema: str, table: str) -> bool:
        return address.filter.matches(schema, table) and settings.rules.filter.matches(schema, table)

    return follows


def facts_of(address: Address, password: str, settings: Settings) -> Facts:
    """What the server says, for `check` and for a start."""
    return inspect_server(lambda: connect(address, password, read_timeout=_ANSWER_S), followed_by(address, settings))


def database_lines(
    address: Address, password: str, settings: Settings, store: Store | None, clock: Clock
) -> Iterator[Line]:
    """The lines about the source. `store` is the sink, whose journal says how far a changefeed has come."""
    try:
        facts = facts_of(address, password, settings)
    except TidegateError as exc:
        yield Line("source", PROBLEM, str(exc), "correct it, or name another source")
        return
    tables = f"{facts.followed:,} table{'s' * (facts.followed != 1)}"
    yield Line("source", OK, f"{facts.server.name} at {address.endpoint} answers; {tables} of it would be followed")
    position, checkpoint_ts = _progress(store)
    lag_s = clock.wall().timestamp() - physical_ms(checkpoint_ts) / 1000 if checkpoint_ts else None
    yield from _grouped([*findings(facts), *retention_findings(facts.server, lag_s, position.get("file"))])


def _grouped(found: Sequence[Finding]) -> Iterator[Line]:
    """By group: what is wrong in it, or one line that says that nothing is."""
    for group, fine in _FINE.items():
        mine = [finding for finding in found if _GROUPS.get(finding.what, "log") == group]
        yield from _lines(group, mine) if mine else [Line(group, OK, fine)]


def _lines(group: str, found: Iterable[Finding]) -> Iterator[Line]:
    rest = iter(found)
    for finding in islice(rest, _MOST):
        yield Line(group, PROBLEM if finding.is_problem else WARNING, finding.sentence, finding.remedy)
    if more := list(rest):
        verdict = PROBLEM if any(finding.is_problem for finding in more) else WARNING
        yield Line(group, verdict, f"and {len(more):,} more like these", "mend these and check again")


def _progress(store: Store | None) -> tuple[dict[str, Any], int]:
    """The position and checkpoint of the journal on the sink; nothing where there is none that can be read."""
    try:
        sink = inspect(store) if store is not None else None
        position = json.loads(sink.head.get("position") or "{}") if sink is not None and sink.head else {}
    except (StoreRefused, StoreUnavailable, ValueError):  # the lines about the sink say so
        return {}, 0
    return (position if isinstance(position, dict) else {}), sink.journal_ts if sink is not None else 0
