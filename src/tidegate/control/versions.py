"""Versions of a table: where its files go when its schema file exists under another version, and its name per version.

TiCDC compares columns, not versions. Before the first file of a version it looks for a schema file with the same
columns under any version of that table name, and goes on in that version's directory. A reader of the sink relies on
it: equal columns are one directory. Here the land task looks, puts nothing, and reports what it found; then the ledger
decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidegate.control.admission import Batch
from tidegate.control.columns import Numbers, group_sizes, group_starts
from tidegate.control.lanes import Destination
from tidegate.control.places import hashes
from tidegate.control.planner import Planner
from tidegate.control.queues import Queues
from tidegate.control.rounds import Numbering, Round
from tidegate.errors import BadEvents
from tidegate.format.tables import CHECK, LOOK, SETTLED, WRITE


class Found(NamedTuple):
    """A schema file with the same columns exists under this version; the last data file there has this number."""

    version: int
    last_number: int


class SharedVersion(NamedTuple):
    """Two tables land under one name and version, with different layouts."""

    table_ids: tuple[int, int]
    target: str  # `shop.orders`
    version: int
    layouts: tuple[int, int]


NOWHERE: Mapping[int, Found] = {}


def redirect(
    planner: Planner, round_: Round, elsewhere: Mapping[int, Found], now: float
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Plan the files of these lanes again where they belong. Returns which files those are, and which are dropped."""
    destinations, dropped = _destinations(planner.queues, round_, elsewhere)
    if destinations:
        planner.retries.add(_renumbered(planner.queues, round_, destinations, planner.numbering), now)
    return np.isin(round_.lane, list(destinations)), np.isin(round_.lane, dropped)


def _destinations(
    queues: Queues, round_: Round, elsewhere: Mapping[int, Found]
) -> tuple[dict[int, Destination], list[int]]:
    """By lane where its files go, and the lanes whose files are dropped.

    * Found under the own version: another writer has put files there, or we did before the table's state was given up.
      Our files go behind them.
    * Found under an older version: the files go to that version's directory, as TiCDC does it.
    * Found under a newer version: on a sink that another writer began, that one wrote it after all these changes were
      delivered. They are dropped. Elsewhere we wrote it, for another table: who had to look, because somebody was on
      the plain path before, gets a directory of its own, for a reader comes to that table's changes last.
    * But a schema file that we wrote for another table of the same name, such as a partition, proves neither. Then the
      files stay where they are, and the own schema file is written.
    """
    destinations: dict[int, Destination] = {}
    dropped: list[int] = []
    starts = group_starts(round_.lane)
    firsts = starts[np.isin(round_.lane[starts], list(elsewhere))]
    others = [first for first in firsts.tolist() if elsewhere[int(round_.lane[first])].version != round_.version[first]]
    namesakes = queues.names.namesakes(round_.dispatcher[others]) if others else {}
    for lane, first in zip(round_.lane[firsts].tolist(), firsts.tolist(), strict=True):
        (version, number), own = elsewhere[lane], int(round_.version[first])
        if version == own:
            destinations[lane] = Destination(own, number, SETTLED)
            continue
        owner = int(round_.dispatcher[first])
        ours, shared = _written_for_namesakes(queues, owner, namesakes[owner], version)
        before = int(round_.number[first]) - 1
        if version > own and not ours and queues.lanes.foreign and round_.schema[first] == CHECK:
            dropped.append(lane)
            queues.lanes.number[lane] = before
        elif version < own and not shared and (queues.lanes.foreign or not queues.lanes.new_here[lane]):
            destinations[lane] = Destination(version, number, SETTLED)
        else:
            if version > own and round_.schema[first] == LOOK:
                _refuse_older(queues, owner, own, version)
                before = _leave_plain_path(queues, owner, before)
            destinations[lane] = Destination(int(round_.directory[first]), before, WRITE)
    return destinations, dropped


def _refuse_older(queues: Queues, dispatcher: int, own: int, newer: int) -> None:
    """Where there is only the plain path, nobody lands before the files of a newer version: a reader would drop those.

    They are of another table, which was forgotten. The versions of one table never go back.
    """
    if queues.shared_lanes and queues.by_name:
        target = queues.names.targets(np.array([dispatcher]))[0].as_py().replace("\0", ".")
        raise BadEvents(
            f"table {queues.key(dispatcher)[0]} lands under {target} with version {own}, but another table has files "
            f"of version {newer} there, and with enable-partition-separator = false there is no directory for the "
            "second; leave it true on a new prefix, or give each a target"
        )


def _leave_plain_path(queues: Queues, dispatcher: int, before: int) -> int:
    """The last number in this dispatcher's directory, if it must not follow the files on the plain path."""
    places, number = queues.places, np.array([dispatcher])
    is_own = queues.lanes.own[queues.dispatchers.lane[dispatcher]]
    if is_own or not places.whole(number)[0]:
        return before
    places.give_up_plain(number)
    return 0


def _written_for_namesakes(queues: Queues, dispatcher: int, others: Numbers, version: int) -> tuple[bool, bool]:
    """Whether we wrote this version for a table of the same name, and whether its data files are in that directory.

    Partitions have data directories of their own, so only with a whole table would files mix.
    """
    ds, lanes = queues.dispatchers, queues.lanes
    others = others[ds.lane[others] != ds.lane[dispatcher]]
    lane = ds.lane[others]
    known = (lanes.directory[lane] == version) | (lanes.schema_version[lane] == version)
    whole = ds.table_id[others] == ds.logical_id[others]
    return bool(known.any()), bool((known & whole).any())


def _renumbered(queues: Queues, round_: Round, destinations: Mapping[int, Destination], numbering: Numbering) -> Round:
    """The files of these lanes again, under new numbers at their destinations.

    None of them was put yet. So the old plans are withdrawn, and these are new ones for the journal.
    """
    keep: NDArray[np.bool_] = np.isin(round_.lane, list(destinations))
    lane = round_.lane[keep]
    starts = group_starts(lane)
    heads, counts = lane[starts], group_sizes(starts, len(lane))
    numbered = queues.lanes.redirect(
        heads, round_.version[keep][starts], [destinations[n] for n in heads.tolist()], counts
    )
    again = round_.again(keep, numbering.round_id())
    plan, reason = numbering.plans(len(lane)), round_.reason[keep]
    return replace(again, plan=plan, reason=reason, fresh=True, **numbered._asdict())


def shared_versions(items: pa.Table, queues: Queues) -> list[SharedVersion]:
    """Tables of these items that share a version with another table of their name, in another layout.

    They are compared with each other and with the holder of the name. Only items that bring something new are looked
    at, which are few.
    """
    if not queues.by_name:
        return []
    ds = queues.dispatchers
    ids, span, version, layout = (items[name].to_numpy() for name in ("table_id", "span", "version", "layout"))
    known = queues.find(ids, span.astype(np.int64))
    new = np.flatnonzero((known < 0) | (ds.version[known] != version) | (ds.layout[known] != layout))
    if not len(new):
        return []
    new = new[np.unique(np.column_stack([ids[new], version[new], layout[new]]), axis=0, return_index=True)[1]]
    names = (items[name].combine_chunks().take(pa.array(new)) for name in ("schema_name", "table_name"))
    targets = queues.names.targets_of(*names)
    target = hashes(targets)
    order = np.lexsort((version[new], target))
    new, target, targets = new[order], target[order], targets.take(pa.array(order))
    begins = np.append(True, (np.diff(target) != 0) | (np.diff(version[new]) != 0))
    first = np.maximum.accumulate(np.where(begins, np.arange(len(new)), 0))
    holder = queues.places.holders.of(target)
    mates = [
        (ids[new[first]], layout[new[first]], ~begins),
        (ds.table_id[holder], ds.layout[holder], (holder >= 0) & (ds.version[holder] == version[new])),
    ]
    found = []
    for other_id, other_layout, together in mates:
        differs = together & (other_id != ids[new]) & (other_layout != layout[new]) & (other_layout != 0)
        for at in np.flatnonzero(differs).tolist():
            both = (int(other_id[at]), int(ids[new[at]])), (int(other_layout[at]), int(layout[new[at]]))
            name = targets[at].as_py().replace("\0", ".")
            found.append(SharedVersion(both[0], name, int(version[new[at]]), both[1]))
    return found


def rename(batch: Batch, queues: Queues) -> None:
    """Items with a new version bring the name under which that version lands."""
    ds = queues.dispatchers
    ds.layout[batch.dispatcher] = batch.layout
    known = (batch.version == ds.version[batch.dispatcher]) & (ds.target[batch.dispatcher] != 0)
    changed = np.flatnonzero(~known)
    if not len(changed):
        return
    at, owners, version = batch.at[changed], batch.dispatcher[changed], batch.version[changed]
    schemas, tables = (batch.items[name].combine_chunks().take(pa.array(at)) for name in ("schema_name", "table_name"))
    queues.names.rename_from(version, owners, schemas, tables, batch.ints("logical_table_id")[changed])
    ds.version[owners] = version
