"""The answer to a SELECT becomes lists of texts, as `after` of change events has them: the bytes that the log gives.

Most values come as their text and are taken from the buffer where they stand. The others are turned by the functions
that read the log: numbers with a fraction, texts in other character sets than UTF-8, JSON, vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import BadEvents
from tidegate.format.bad_values import BadValue
from tidegate.format.tables import Column
from tidegate.sources.mysql.log import table_map as t
from tidegate.sources.mysql.log.charsets import charset_of
from tidegate.sources.mysql.log.digits import Texts
from tidegate.sources.mysql.log.images import Bytes, Values
from tidegate.sources.mysql.log.json_pieces import slices
from tidegate.sources.mysql.log.json_text import json_as_tidb
from tidegate.sources.mysql.log.rows import ValuePool
from tidegate.sources.mysql.log.table_map import Stored
from tidegate.sources.mysql.log.texts import column_texts, is_in_place, texts_in_place
from tidegate.sources.mysql.snapshot.protocol import Answer, Described, Part
from tidegate.sources.mysql.snapshot.select import Border, literal

_TEXTS = frozenset(("char", "varchar", "var_string", "tinytext", "text", "mediumtext", "longtext"))
_TURNED = {"float": Stored(t.FLOAT), "double": Stored(t.DOUBLE), "json": Stored(t.JSON), "vector": Stored(t.VECTOR)}
_FLOATS = {"float": pa.float32(), "double": pa.float64()}


class Reader:
    """Turns the parts of an answer. `columns` are those that were asked for, in this order."""

    def __init__(self, answer: Answer, columns: Sequence[Column]) -> None:
        self._columns = columns
        self._charsets = [_charset(column, shown) for column, shown in zip(columns, answer.columns, strict=True)]
        self._plans = [_plan(column, charset) for column, charset in zip(columns, self._charsets, strict=True)]

    def lists(self, part: Part) -> pa.ListArray:
        """The rows of a part, each as a list of texts."""
        return _lists(part, self._columns, self._plans)

    def last(self, part: Part, positions: Sequence[int]) -> Border:
        """The values of these columns in the last row of a part, as SQL has them."""
        texts = []
        for at in positions:
            place, size, _ = part.columns[at]
            assert size is not None, "all values of an answer have a length"
            start = int(place[-1])
            texts.append(part.buffer[start : start + int(size[-1])].tobytes())
        chosen = ((self._columns[at], self._charsets[at]) for at in positions)
        return tuple(literal(column, charset, text) for (column, charset), text in zip(chosen, texts, strict=True))


def value_lists(answer: Answer, columns: Sequence[Column]) -> Iterator[pa.ListArray]:
    """The rows of an answer in parts of some MiB."""
    reader = Reader(answer, columns)
    return (reader.lists(part) for part in answer.parts())


def _charset(column: Column, shown: Described) -> str:
    """The character set of a column of texts; `binary` for a BLOB, "" for other types."""
    return charset_of(shown.collation) if column.type in _TEXTS else ""


def _plan(column: Column, charset: str) -> Stored | None:
    """How the log would store the column if the texts must be turned; None if they are taken as they are."""
    if charset:
        stored = Stored(t.VARCHAR, charset=charset)
        return None if is_in_place(stored) else stored
    return _TURNED.get(column.type)


def _lists(part: Part, columns: Sequence[Column], plans: Sequence[Stored | None]) -> pa.ListArray:
    pool = ValuePool()
    plain = [i for i, plan in enumerate(plans) if plan is None]
    first = pool.add(texts_in_place(part.buffer, [part.columns[i] for i in plain])) if plain else 0
    for i, (column, plan) in enumerate(zip(columns, plans, strict=True)):
        values = part.columns[i]
        if plan is None:
            pool.place(first + 2 * plain.index(i), 2 * len(plain), values.null)
            continue
        try:
            pieces, step = _turned(part.buffer, column, plan, values)
        except (BadValue, pa.ArrowInvalid) as exc:
            raise BadEvents(f"column {column.name!r} holds a value that is no {column.type}: {exc}") from exc
        pool.place(pool.add(pieces), step, values.null)
    return pool.lists(np.arange(part.rows))


def _turned(buffer: Bytes, column: Column, plan: Stored, values: Values) -> Texts:
    if plan.kind not in (t.FLOAT, t.DOUBLE, t.JSON):
        return column_texts(buffer, plan, values)
    place, size, null = values
    assert size is not None, "all values of an answer have a length"
    shown = slices(buffer, place, size)
    if null is not None:  # a NULL has no text, so it gets one that every reader takes
        shown = pc.if_else(pa.array(null), pa.scalar(b"0", pa.binary()), shown)
    if plan.kind == t.JSON:
        return Texts(json_as_tidb(shown))
    # The text is that of a double. A FLOAT is printed with the digits that a number of 32 bits needs.
    numbers = shown.cast(pa.string()).cast(pa.float64())
    return Texts(numbers.cast(_FLOATS[column.type], safe=False).cast(pa.string()).cast(pa.binary()))
