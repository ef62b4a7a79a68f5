"""Checksums of data files, put together from those of their parts.

A data file is its header and some chunks, one after the other. Ingest has the bytes of a chunk in memory and takes
their CRC-32 then. Which chunks make a file is known later, on the driver, which never sees the bytes. CRC-32 is linear:
the checksum of a file is the XOR of the checksums of its parts, each moved by the bytes that follow it. To move by n
bytes is to multiply by x^8n modulo the polynomial, with coefficients of one bit.
"""

from __future__ import annotations

import zlib
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

_POLYNOMIAL = 0xEDB88320  # of zlib's CRC-32, the highest power in the lowest bit
_ONE = 1 << 31


def checksum(data: bytes | memoryview, before: int = 0) -> int:
    """3421780262 for `b"123456789"`; `before` is the checksum of the bytes that come before these."""
    return zlib.crc32(data, before)


def joined(checksums: Ints, lengths: Ints, starts: Ints) -> Ints:
    """The checksums of texts that are made of parts; `starts` are the positions of the first part of each."""
    if not len(starts):
        return np.zeros(0, np.int64)
    ends = np.cumsum(lengths)
    counts = np.diff(np.append(starts, len(lengths)))
    behind = np.repeat(ends[np.append(starts[1:], len(lengths)) - 1], counts) - ends
    result: Ints = np.bitwise_xor.reduceat(_moved(checksums, behind), starts)
    return result


def _moved(checksums: Ints, lengths: Ints) -> Ints:
    """Each checksum as if so many bytes of zero followed. Most files have one part, which nothing follows."""
    moved = checksums.copy()
    for bit in range(int(lengths.max(initial=0)).bit_length()):
        at = np.flatnonzero(lengths >> bit & 1)
        moved[at] = _times(moved[at], _power(bit))
    return moved


@lru_cache(maxsize=64)
def _power(bit: int) -> int:
    """x^(8 * 2^bit): moves a checksum by 2^bit bytes."""
    if not bit:
        return _ONE >> 8
    half = _power(bit - 1)
    return int(_times(np.array([half], np.int64), half)[0])


def _times(many: Ints, one: int) -> Ints:
    """Each of many polynomials times one, modulo the polynomial of CRC-32."""
    product = np.zeros_like(many)
    for power in range(32):  # `one` is x^power times the given one here
        product ^= np.where(many & (_ONE >> power), one, 0)
        one = one >> 1 ^ (_POLYNOMIAL if one & 1 else 0)
    return product
