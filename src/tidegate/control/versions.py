"""TiCDC's rule for a table whose schema file stands under another version, and names that come with a version."""

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
from tidegate.control.planner import Planner
from tidegate.control.queues import Queues
from tidegate.control.rounds import Numbering, Round
from tidegate.format.tables import SETTLED, WRITE


class Found(NamedTuple):
    """Under which version a schema file with the same columns stands, and the number of the last data file there."""

    version: int
    last_number: int


NOWHERE: Mapping[int, Found] = {}


def redirect(
    planner: Planner, round_: Round, elsewhere: Mapping[int, Found], now: float
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Plan the files of these lanes again where they belong; returns which those are, and which are dropped."""
    destinations, dropped = _destinations(planner.queues, round_, elsewhere)
    if destinations:
        planner.retries.add(_renumbered(planner.queues, round_, destinations, planner.numbering), now)
    return np.isin(round_.lane, list(destinations)), np.isin(round_.lane, dropped)


def _destinations(
    queues: Queues, round_: Round, elsewhere: Mapping[int, Found]
) -> tuple[dict[int, Destination], list[int]]:
    """TiCDC's rule for a table whose schema file stands under another version: where lanes go on, which are dropped.

    Under an older version: the files go to its directory. Under a newer one: all this was delivered before that one
    was written, so it is dropped. But what this changefeed wrote for a namesake says nothing of the kind. Under its
    own version: another writer has put files there, or we did before its state was given up, and ours go behind.
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
        if version > own and not ours:
            dropped.append(lane)
            queues.lanes.number[lane] = round_.number[first] - 1
        elif version < own and not shared:
            destinations[lane] = Destination(version, number, SETTLED)
        else:
            destinations[lane] = Destination(int(round_.directory[first]), int(round_.number[first]) - 1, WRITE)
    return destinations, dropped


def _written_for_namesakes(queues: Queues, dispatcher: int, others: Numbers, version: int) -> tuple[bool, bool]:
    """Whether this version stands there for a namesake, and whether files would mix with that one's."""
    ds, lanes = queues.dispatchers, queues.lanes
    others = others[ds.lane[others] != ds.lane[dispatcher]]
    lane = ds.lane[others]
    known = (lanes.directory[lane] == version) | (lanes.schema_version[lane] == version)
    whole = ds.table_id[others] == ds.logical_id[others]
    return bool(known.any()), bool((known & whole).any())


def _renumbered(queues: Queues, round_: Round, destinations: Mapping[int, Destination], numbering: Numbering) -> Round:
    """Nothing of these lanes' files exists yet: the same files again, each behind what stands at its place."""
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


def rename(batch: Batch, queues: Queues) -> None:
    """A version that is new to its table brings the name under which it lands."""
    ds = queues.dispatchers
    changed = np.flatnonzero(batch.version != ds.version[batch.dispatcher])
    if not len(changed):
        return
    at, owners, version = batch.at[changed], batch.dispatcher[changed], batch.version[changed]
    schemas, tables = (batch.items[name].combine_chunks().take(pa.array(at)) for name in ("schema_name", "table_name"))
    queues.names.rename_from(version, owners, schemas, tables, batch.ints("logical_table_id")[changed])
    ds.version[owners] = version
