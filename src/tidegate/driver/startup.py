"""A start: one look at the sink, the journal of an earlier run, and a ledger brought back to where it was.

In order: inspect the sink and refuse what cannot be ours; prepare and probe it; read the journal, take over by creating
its next entry, and adopt the files of the old writer that landed unconfirmed; restore the ledger. Nothing is written
before the inspection has passed, so a refused sink stays as it is.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

import pyarrow.compute as pc

from tidegate.control.ledger import Ledger
from tidegate.control.limits import Limits
from tidegate.control.names import Target
from tidegate.driver.inspection import EMPTY, TICDC, inspect, refuse_changes, refuse_future, refuse_stranger
from tidegate.driver.journal import Journal
from tidegate.driver.log import log
from tidegate.driver.recovery import Recovered, open_journal, restore
from tidegate.errors import StoreRefused, StoreUnavailable
from tidegate.executor.floor import Floor
from tidegate.format.layout import RESERVED_PREFIX, PathOptions
from tidegate.storage.store import Store

_PROBE = f"{RESERVED_PREFIX}/check/created"

Probe = Callable[[Store], None]


def no_probe(store: Store) -> None:
    """For a start that follows another in the same process."""


def nobody_knows() -> int | None:
    """The newest commit-ts of a source that cannot say it."""
    return None


@dataclass(frozen=True)
class Sink:
    """What a start must know about the sink: how its paths are made, and the options that shape it for good."""

    uri: str  # without options and secrets
    paths: PathOptions
    shape: Mapping[str, str]
    spans: int  # dispatchers of a split table

    @property
    def shares_lanes(self) -> bool:
        """Partitions without a directory of their own share the index file of their table."""
        return not self.paths.partition_separator and not self.paths.table_id_as_path


@dataclass(frozen=True)
class Started:
    journal: Journal
    found: Recovered
    written_checkpoint: int  # what `metadata` says
    was_empty: bool


def take_over(
    store: Store, sink: Sink, probe: Probe, now: datetime, newest_ts: Callable[[], int | None] = nobody_knows
) -> Started:
    """Look at the sink, then become its only writer. `newest_ts` says how far the source goes."""
    seen = inspect(store)
    written_ts = seen.written_ts
    refuse_stranger(seen, sink.uri)
    refuse_changes(seen, sink.shape, sink.paths)
    refuse_future(seen, now, newest_ts)
    store.prepare()
    probe(store)
    journal, found = open_journal(store, sink.paths, sink.shape, foreign=seen.owner == TICDC, written_ts=written_ts)
    if found.surpassed:
        log.warning("taken over from another writer at checkpoint-ts %d", found.checkpoint_ts)
    return Started(journal, found, written_ts, seen.owner == EMPTY)


def restored_ledger(sink: Sink, limits: Limits, found: Recovered, now: float, target: Target | None = None) -> Ledger:
    """The ledger as the journal saw it last. What was known counts as used now, so its state is kept for a while."""
    ledger = Ledger(limits, sink.shares_lanes, _agreed_spans(sink, found), sink.paths.by_name, target)
    _ = ledger.blocking.trigger_number  # made now: among a million tables it would take a moment
    restore(ledger, found, now)
    if found.tables and bool(found.spans) != sink.paths.across_nodes:
        ledger.number_files_anew()
    return ledger


def floor_of(ledger: Ledger) -> Floor | None:
    """What is durable already although the position may be before it: ingest drops it when it comes again."""
    columns = ledger.floor()
    return Floor(*columns) if columns is not None else None


def _agreed_spans(sink: Sink, found: Recovered) -> int:
    """Dispatchers of a split table: their number changes only when none of them is ahead of the checkpoint."""
    if not found.spans or not sink.paths.across_nodes or found.spans == sink.spans:
        return sink.spans
    if all((pc.max(table["last_ts"]).as_py() or 0) <= found.checkpoint_ts for table in found.tables):
        return sink.spans
    log.warning("split-spans stays %d for this run: the last one ended in the middle of a table", found.spans)
    return found.spans


def probe(store: Store, sink_uri: str, hidden: Callable[[str], str]) -> None:
    """Make sure that the sink answers and keeps create-only puts, which is what fences a second writer off.

    The object stays, so that all starts but the first need one request. `hidden` takes secrets out of a message.
    """
    try:
        is_kept = not (
            store.create_bytes(_PROBE, uuid.uuid4().bytes) and store.create_bytes(_PROBE, uuid.uuid4().bytes)
        )
    except StoreUnavailable as exc:
        raise StoreUnavailable(hidden(f"the sink {sink_uri} does not answer: {exc}; {REACH}")) from exc
    except StoreRefused as exc:
        raise StoreRefused(hidden(f"the sink {sink_uri} cannot be used: {exc}")) from exc
    if not is_kept:
        raise StoreRefused(f"the sink {sink_uri} ignores create-only puts, {NOT_KEPT}; {USE_ANOTHER}")


REACH = "check the sink's address, the network and the credentials, then try again"
NOT_KEPT = "so two changefeeds on one sink could overwrite each other's files"
USE_ANOTHER = "use a store that keeps these conditions (If-None-Match, If-Match), or turn them on where it has a switch"
