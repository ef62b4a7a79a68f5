"""Digits of decimals, dates and times, written into a matrix of bytes: one line for each value, all values at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tidegate.errors import BadLog
from tidegate.sources.mysql.log.images import Bytes, Flags, Numbers, unsigned_be
from tidegate.sources.mysql.log.table_map import DIGIT_BYTES

MOST_BYTES = 2**31 - 1
_ZERO, _POINT, _MINUS, _COLON, _SPACE = b"0.-: "
_PAIRS = np.frombuffer(b"".join(b"%02d" % i for i in range(100)), np.uint16)


class Texts(NamedTuple):
    """Texts of a column; text i is piece `step * i`. Pieces between them are what was cut away."""

    pieces: pa.Array
    step: int = 1


def decimal_texts(log: Bytes, place: Numbers, precision: int, scale: int) -> Texts:
    """Groups of nine digits are four bytes, highest first. The first bit is the sign; a negative one is inverted."""
    whole = precision - scale
    negative = log[place] < 0x80
    at, text = 1 + (whole == 0), np.full((len(place), 1 + (whole or 1) + (1 + scale if scale else 0)), _ZERO, np.uint8)
    first = True
    for digits in _groups(whole, scale):
        if at == 1 + (whole or 1):
            text[:, at] = _POINT
            at += 1
        width = DIGIT_BYTES[digits]
        number = unsigned_be(log, place, width).astype(np.int64)
        number ^= np.where(negative, (1 << 8 * width) - 1, 0)
        if first:
            number &= (1 << 8 * width - 1) - 1
            first = False
        _put_digits(text, at, digits, number)
        at, place = at + digits, place + width
    return _trimmed(text, whole or 1, negative)


def _groups(whole: int, scale: int) -> list[int]:
    """The digits of each group: those that fill no group are at both ends."""
    left, right = whole % 9, scale % 9
    return [*[left] * (left > 0), *[9] * (whole // 9), *[9] * (scale // 9), *[right] * (right > 0)]


def _trimmed(text: Bytes, whole: int, negative: Flags) -> Texts:
    """Leave out the zeros at the front, but the last of `whole` digits, and put the sign before what is left."""
    start = np.argmax(text[:, 1:whole] != _ZERO, axis=1) if whole > 1 else np.zeros(len(text), np.int64)
    if whole > 1:
        none = (text[np.arange(len(text)), 1 + start] == _ZERO) & (start == 0)
        start = np.where(none, whole - 1, start)
    start = 1 + start - negative
    at = np.flatnonzero(negative)
    text[at, start[at]] = _MINUS
    return _cut(text, start)


def _cut(text: Bytes, start: Numbers) -> Texts:
    """Each line of the matrix from `start` on."""
    count, width = _extent(text)
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[:-1:2] = np.arange(count) * width
    offsets[1::2] = offsets[:-1:2] + start
    offsets[-1] = count * width
    pieces = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(text)])
    return Texts(pieces[1:], 2)


def _extent(text: Bytes) -> tuple[int, int]:
    """Lines and their width. Places in a text have 32 bits, and NumPy would wrap larger ones without a word."""
    if text.size > MOST_BYTES:
        raise BadLog("the values of one column exceed 2 GiB as text; decode smaller parts of the log")
    return len(text), text.shape[1]


def _put_digits(text: Bytes, at: int, digits: int, number: Numbers) -> None:
    """Write the number into columns `at` to `at + digits` of the text, with zeros in front."""
    end = at + digits
    while digits >= 2:
        number, low = np.divmod(number, 100)
        pair = _PAIRS[low]
        text[:, end - 2], text[:, end - 1] = pair & 0xFF, pair >> 8
        end, digits = end - 2, digits - 2
    if digits:
        text[:, end - 1] = _ZERO + number % 10


# Dates and times ------------------------------------------------------------------------------------------------------


def whole_texts(text: Bytes) -> Texts:
    count, width = _extent(text)
    offsets = np.arange(count + 1, dtype=np.int32) * width
    return Texts(pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(text)]))


def put_day(text: Bytes, year: Numbers, month: Numbers, day: Numbers) -> None:
    _put_digits(text, 0, 4, year)
    _put_digits(text, 5, 2, month)
    _put_digits(text, 8, 2, day)


def _put_time(text: Bytes, at: int, hour_digits: int, hour: Numbers, minute: Numbers, second: Numbers) -> int:
    """Returns where the fraction goes."""
    _put_digits(text, at, hour_digits, hour)
    at += hour_digits
    for part in (minute, second):
        text[:, at] = _COLON
        _put_digits(text, at + 1, 2, part)
        at += 3
    return at


def put_fraction(text: Bytes, at: int, digits: int, fraction: Numbers) -> None:
    """The log has an even number of digits; for an odd one the last is zero."""
    if digits:
        text[:, at] = _POINT
        _put_digits(text, at + 1, digits, fraction // 10 if digits & 1 else fraction)


def datetime_texts(packed: Numbers, fraction: Numbers, digits: int) -> Texts:
    """`packed` has 17 bits of time, 5 of the day, and above them 13 * year + month."""
    year, month = np.divmod(packed >> 22, 13)
    text = moments(digits, year, month, packed >> 17 & 31, packed >> 12 & 31, packed >> 6 & 63, packed & 63)
    put_fraction(text, 19, digits, fraction)
    return whole_texts(text)


def moments(
    digits: int, year: Numbers, month: Numbers, day: Numbers, hour: Numbers, minute: Numbers, second: Numbers
) -> Bytes:
    text = np.full((len(year), 19 + (1 + digits if digits else 0)), ord("-"), np.uint8)
    text[:, 10] = _SPACE
    put_day(text, year, month, day)
    _put_time(text, 11, 2, hour, minute, second)
    return text


def time_texts(negative: Flags, packed: Numbers, fraction: Numbers, digits: int) -> Texts:
    """Hours have two digits, or three if they need them."""
    hour = packed >> 12 & 1023
    text = np.full((len(packed), 10 + (1 + digits if digits else 0)), _MINUS, np.uint8)
    at = _put_time(text, 1, 3, hour, packed >> 6 & 63, packed & 63)
    put_fraction(text, at, digits, fraction)
    start = np.where(hour < 100, 2, 1) - negative
    rows = np.flatnonzero(negative)
    text[rows, start[rows]] = _MINUS
    return _cut(text, start)
