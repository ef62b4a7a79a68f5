"""The values of a column as the texts of change events (docs/events.md), all values of the column at once.

int, year, bit     digits, with a minus in front if negative
float, double      the shortest digits that read back as the same 32- or 64-bit number: `0.1`, `1e+20`, `-0`
decimal            all digits of the scale, one zero at least before the point: `0.50`
date and time      with the column's digits of a second; a TIMESTAMP in UTC, and 0 as `0000-00-00 00:00:00`
enum, set          the number, the bit mask
binary             with the zeros at the end that the log leaves out
vector             `[1,0.5]`

What a NULL is turned into means nothing: it is left out when the rows are put together.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import BadLog
from tidegate.format.bad_values import BadValue
from tidegate.format.encode.floats import plain_float_texts
from tidegate.sources.mysql.log import table_map as t
from tidegate.sources.mysql.log.charsets import to_utf8
from tidegate.sources.mysql.log.digits import (
    Texts,
    datetime_texts,
    decimal_texts,
    moments,
    put_day,
    put_fraction,
    time_texts,
    whole_texts,
)
from tidegate.sources.mysql.log.images import Bytes, Numbers, Values, unsigned, unsigned_be
from tidegate.sources.mysql.log.json_binary import json_texts
from tidegate.sources.mysql.log.table_map import Stored


def column_texts(log: Bytes, column: Stored, values: Values) -> Texts:
    """The texts of a column; a column whose texts stand in the log as they are is read by `texts_in_place`."""
    return _READERS[column.kind](log, column, values)


def is_in_place(column: Stored) -> bool:
    """Whether the bytes in the log are the text."""
    if column.kind == t.STRING and column.charset == "binary":
        return False
    return column.kind in t.TEXTS and column.charset in ("utf8mb3", "utf8mb4", "ascii", "binary")


def texts_in_place(log: Bytes, columns: list[Values]) -> pa.Array:
    """The texts of all columns that need no change, in the order of the log, without a copy.

    Between two texts is a piece that is not used, so text k of image i is piece `2 * (i * len(columns) + k)`.
    """
    offsets = np.empty((len(columns[0].place), 2 * len(columns)), np.int32)
    for k, (place, size, _) in enumerate(columns):
        assert size is not None, "only columns with a length have texts in the log"
        offsets[:, 2 * k] = place
        offsets[:, 2 * k + 1] = place + size
    flat = np.append(offsets.reshape(-1), offsets[-1, -1])
    return pa.Array.from_buffers(pa.binary(), len(flat) - 1, [None, pa.py_buffer(flat), pa.py_buffer(log)])


# Numbers --------------------------------------------------------------------------------------------------------------


def _shown(numbers: npt.NDArray[np.generic]) -> Texts:
    return Texts(pa.array(numbers).cast(pa.string()).cast(pa.binary()))


def _integer(log: Bytes, column: Stored, values: Values) -> Texts:
    found = unsigned(log, values.place, column.width)
    if column.unsigned:
        return _shown(found)
    lift = 64 - 8 * column.width
    return _shown(found.view(np.int64) << lift >> lift)


def _unsigned(log: Bytes, column: Stored, values: Values) -> Texts:
    return _shown(unsigned(log, values.place, column.width))


def _bit(log: Bytes, column: Stored, values: Values) -> Texts:
    return _shown(unsigned_be(log, values.place, column.width))


def _year(log: Bytes, column: Stored, values: Values) -> Texts:
    found = log[values.place].astype(np.int64)
    return _shown(np.where(found == 0, 0, found + 1900))


def _float(log: Bytes, column: Stored, values: Values) -> Texts:
    return _shown(unsigned(log, values.place, 4).astype(np.uint32).view(np.float32))


def _double(log: Bytes, column: Stored, values: Values) -> Texts:
    return _shown(unsigned(log, values.place, 8).view(np.float64))


def _decimal(log: Bytes, column: Stored, values: Values) -> Texts:
    return decimal_texts(log, values.place, column.size, column.scale)


# Dates and times ------------------------------------------------------------------------------------------------------


def _date(log: Bytes, column: Stored, values: Values) -> Texts:
    found = unsigned(log, values.place, 3).astype(np.int64)
    text = np.full((len(found), 10), ord("-"), np.uint8)
    put_day(text, found >> 9, found >> 5 & 15, found & 31)
    return whole_texts(text)


def _datetime(log: Bytes, column: Stored, values: Values) -> Texts:
    digits = column.size
    return datetime_texts(
        unsigned_be(log, values.place, 5).astype(np.int64) - (1 << 39), _fraction(log, values.place + 5, digits), digits
    )


def _fraction(log: Bytes, place: Numbers, digits: int) -> Numbers:
    width = (digits + 1) // 2
    return unsigned_be(log, place, width).astype(np.int64) if width else np.zeros(len(place), np.int64)


def _timestamp(log: Bytes, column: Stored, values: Values) -> Texts:
    seconds = unsigned_be(log, values.place, 4).astype(np.int64)
    days, rest = np.divmod(seconds, 86_400)
    dates = days.astype("datetime64[D]")
    months, years = dates.astype("datetime64[M]"), dates.astype("datetime64[Y]")
    year, month = years.astype(np.int64) + 1970, (months - years.astype("datetime64[M]")).astype(np.int64) + 1
    day = (dates - months.astype("datetime64[D]")).astype(np.int64) + 1
    some = seconds != 0  # 0 is the zero date, and not the beginning of 1970
    text = moments(column.size, year * some, month * some, day * some, rest // 3600, rest // 60 % 60, rest % 60)
    put_fraction(text, 19, column.size, _fraction(log, values.place + 4, column.size))
    return whole_texts(text)


def _time(log: Bytes, column: Stored, values: Values) -> Texts:
    fraction_bytes = (column.size + 1) // 2
    found = unsigned_be(log, values.place, 3 + fraction_bytes).astype(np.int64) - (1 << 23 + 8 * fraction_bytes)
    size = np.abs(found)
    return time_texts(found < 0, size >> 8 * fraction_bytes, size & (1 << 8 * fraction_bytes) - 1, column.size)


# Texts ----------------------------------------------------------------------------------------------------------------


def _raw(log: Bytes, values: Values) -> pa.Array:
    return texts_in_place(log, [values]).take(pa.array(np.arange(0, 2 * len(values.place), 2)))


def _text(log: Bytes, column: Stored, values: Values) -> Texts:
    found = _raw(log, values)
    return Texts(to_utf8(found, column.charset)) if column.charset != "binary" else Texts(_padded(found, column.size))


def _padded(found: pa.Array, size: int) -> pa.Array:
    """BINARY(n): the log leaves out zeros at the end."""
    missing = size - pc.binary_length(found).to_numpy()
    if (missing < 0).any():
        raise BadValue("the value is longer than its column", int(np.argmax(missing < 0)))
    ends = np.concatenate([[0], np.cumsum(missing)]).astype(np.int32)
    zeros = pa.py_buffer(bytes(int(ends[-1])))
    tails = pa.Array.from_buffers(pa.binary(), len(found), [None, pa.py_buffer(ends), zeros])
    return pc.binary_join_element_wise(found, tails, b"")


def _json(log: Bytes, column: Stored, values: Values) -> Texts:
    assert values.size is not None
    return Texts(json_texts(log, values.place, values.size))


def _vector(log: Bytes, column: Stored, values: Values) -> Texts:
    found = _raw(log, values)
    sizes = pc.binary_length(found).to_numpy()
    if (sizes % 4).any():
        raise BadValue("the vector is broken", int(np.flatnonzero(sizes % 4)[0]))
    ends = np.concatenate([[0], np.cumsum(sizes // 4)]).astype(np.int32)
    numbers = np.frombuffer(found.buffers()[2] or b"", np.float32, int(ends[-1]))
    shown = plain_float_texts(pa.array(numbers).cast(pa.string()).cast(pa.binary()), 32)
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(ends), shown), b",")
    return Texts(pc.binary_join_element_wise(b"[", joined, b"]", b""))


def _refused(log: Bytes, column: Stored, values: Values) -> Texts:
    raise BadLog("the values of this type are not read")


_READERS: dict[int, Callable[[Bytes, Stored, Values], Texts]] = {
    **dict.fromkeys(t.INTEGERS, _integer),
    **dict.fromkeys((t.ENUM, t.SET), _unsigned),
    **dict.fromkeys(t.TEXTS, _text),
    t.BIT: _bit,
    t.YEAR: _year,
    t.FLOAT: _float,
    t.DOUBLE: _double,
    t.DECIMAL: _decimal,
    t.DATE: _date,
    t.DATETIME: _datetime,
    t.TIMESTAMP: _timestamp,
    t.TIME: _time,
    t.JSON: _json,
    t.VECTOR: _vector,
    t.GEOMETRY: _refused,
}
