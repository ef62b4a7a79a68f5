"""Values of enum and set columns: numbers in events, names in CSV.

    enum_names         2 -> b            0 is not an element and is refused
    set_names          5 -> a,c          0 is the empty text

All functions work on whole Arrow arrays and keep NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import BadEvents
from tidegate.format.bad_values import BadValue, mismatches
from tidegate.format.encode.floats import Flags, short, valid_flags
from tidegate.format.pieces import bytes_of

_SURE_DIGITS = 19  # so many digits always fit
_MOST_DIGITS = 21  # so many are too large already; of a longer text Python would refuse to read them all


def _element_texts(elems: Sequence[str]) -> pa.Array:
    return pa.array([elem.encode("utf-8", "surrogateescape") for elem in elems], pa.binary())


def enum_names(values: pa.Array, elems: Sequence[str]) -> pa.DictionaryArray:
    """`b` for `2`. Refuses 0, which is MySQL's invalid value, and numbers above the count of elements."""
    number, valid = unsigned_numbers(values)
    if (bad := valid & (number - np.uint64(1) >= len(elems))).any():  # unsigned: 0 - 1 is the largest number
        wrong = np.flatnonzero(bad).tolist()
        raise BadValue(f"the value is not the number of an element; they are 1 to {len(elems)}", *wrong)
    place = pa.array(number.astype(np.int64) - 1, mask=~valid)
    return pa.DictionaryArray.from_arrays(place, _element_texts(elems))


def enum_numbers(names: pa.Array, elems: Sequence[str]) -> pa.Array:
    """`2` for `b`: the inverse of `enum_names`."""
    place = pc.index_in(names, _element_texts(elems))
    bad = pc.and_(place.is_null(), names.is_valid())
    if (position := pc.index(bad, True).as_py()) >= 0:
        raise BadValue(f"{short(names[position].as_py())} is not an element of the enum", position)
    return pc.add(place, 1).cast(pa.string()).cast(pa.binary())


def set_names(values: pa.Array, elems: Sequence[str]) -> pa.DictionaryArray:
    """`a,c` for `5`. Each distinct mask is converted once."""
    mask, valid = unsigned_numbers(values)
    if len(elems) < 64 and (bad := valid & (mask >> np.uint64(len(elems)) != 0)).any():
        raise BadValue(f"the mask has a bit beyond the {len(elems)} elements", *np.flatnonzero(bad).tolist())
    encoded = pa.array(mask, mask=~valid).dictionary_encode()
    names = _element_texts(elems).to_pylist()
    spelled = pa.array([_joined_names(one, names) for one in encoded.dictionary.to_pylist()], pa.binary())
    return pa.DictionaryArray.from_arrays(encoded.indices, spelled)


def _joined_names(mask: int, names: Sequence[bytes]) -> bytes:
    return b",".join(name for bit, name in enumerate(names) if mask >> bit & 1)


def set_numbers(names: pa.Array, elems: Sequence[str]) -> pa.Array:
    """`5` for `a,c`: the inverse of `set_names`. Refuses elements that would make a text ambiguous."""
    if any(not elem or "," in elem for elem in elems):
        raise BadEvents("a set with an empty element, or one that holds a comma, cannot be read back from its names")
    encoded = names.dictionary_encode()
    bits = {name: 1 << bit for bit, name in enumerate(_element_texts(elems).to_pylist())}
    masks = [_mask(text, bits) for text in encoded.dictionary.to_pylist()]
    if -1 in masks:
        position = pc.index(encoded.indices, masks.index(-1)).as_py()
        raise BadValue(f"{short(names[position].as_py())} is not a list of elements of the set", position)
    return pa.array([b"%d" % mask for mask in masks], pa.binary()).take(encoded.indices)


def _mask(text: bytes, bits: dict[bytes, int]) -> int:
    """-1 for a text that `set_names` does not write: an unknown name, or names not in the order of the elements."""
    found = [bits.get(name, 0) for name in text.split(b",")] if text else []
    rising = all(one < other for one, other in pairwise([0, *found]))
    return sum(found) if rising else -1


def unsigned_numbers(values: pa.Array) -> tuple[npt.NDArray[np.uint64], Flags]:
    """The numbers (0 for NULL), and which are not NULL."""
    _, held = bytes_of(values)
    if (held - np.uint8(ord("0")) > 9).any():  # Arrow would also accept `0x1f`
        _check_unsigned(values)
    try:
        found = pc.fill_null(values.cast(pa.uint64()), 0).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        _check_unsigned(values)
        raise
    return found, valid_flags(values)


def _check_unsigned(values: pa.Array) -> None:
    if wrong := mismatches(values, "[0-9]+"):
        raise BadValue("the value is not an unsigned 64-bit number", *wrong)
    long = np.flatnonzero(pc.greater(pc.binary_length(values), _SURE_DIGITS).fill_null(False).to_numpy(False)).tolist()
    if wrong := [i for i in long if int(values[i].as_py().lstrip(b"0")[:_MOST_DIGITS] or b"0") >= 1 << 64]:
        raise BadValue("the value is not an unsigned 64-bit number", *wrong)
