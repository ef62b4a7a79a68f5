"""What a table holds according to the files of a sink: a reader in few lines, which knows no more than the layout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from tidegate.config.settings import Settings
from tidegate.format.layout import data_path
from tidegate.reader.replay import Surveyed, survey
from tidegate.storage.store import Store, open_store

_OPERATION = ("op", "table", "schema")
_PIECE_BYTES = 32 << 20


def landed_rows(settings: Settings, name: str, columns: Sequence[str], key: str) -> pa.Table:
    """The rows of a table with one version after the last of their changes, in the order of a key of whole numbers."""
    store = open_store(settings.sink_uri, settings.access)
    pieces = list(read_lines(store, settings, survey(store, settings.paths), name, columns))
    if not pieces:
        return pa.table([pa.array([], pa.string())] * len(columns), list(columns))
    lines = pa.concat_tables(pieces)
    numbers = pc.cast(lines[key], pa.int64()).to_numpy()
    order = np.lexsort((np.arange(len(numbers)), numbers))
    last = order[np.append(numbers[order][1:] != numbers[order][:-1], True)]
    kept = lines.take(pa.array(last))
    return kept.filter(pc.not_equal(kept["op"], "D")).select(list(columns)).combine_chunks()


def read_lines(
    store: Store, settings: Settings, seen: Surveyed, name: str, columns: Sequence[str]
) -> Iterator[pa.Table]:
    """The lines of a table's CSV files, in order, file by file."""
    for key, lanes in seen.tables.items():
        if str(key) != name:
            continue
        for lane in lanes:
            for number in range(1, len(lane.sizes) + 1):
                yield read_csv(store.get(data_path(lane.key, number, settings.paths)) or b"", columns)


def read_csv(text: bytes, columns: Sequence[str]) -> pa.Table:
    names = [*_OPERATION, *columns]
    return csv.read_csv(
        pa.BufferReader(text),
        read_options=csv.ReadOptions(column_names=names, block_size=_PIECE_BYTES, use_threads=False),
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=["\\N"],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
