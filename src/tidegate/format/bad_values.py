"""What an encoder refuses: a value that its column cannot hold, and the rows with such values.

No sentence of an encoder shows a value: sentences go to logs, and rows are secret.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import BadEvents


class BadValue(BadEvents):
    """Values that their column cannot hold; `positions` are their indices in the array, in order."""

    def __init__(self, message: str, *positions: int) -> None:
        super().__init__(message)
        self.positions = positions

    @property
    def position(self) -> int:
        return self.positions[0]


def mismatches(values: pa.Array, form: str) -> list[int]:
    """The indices of the values that do not have this form, a regular expression for the whole text; NULL has any."""
    fits = pc.match_substring_regex(values, rf"\A(?:{form})\z").fill_null(True)
    found: list[int] = np.flatnonzero(~fits.to_numpy(zero_copy_only=False)).tolist()
    return found


class BadRows(BadEvents):
    """Row changes that cannot be written. The sentence says where the first one is, and what is wrong with it.

    `rows` are the numbers of all rows of the batch that cannot be written for this `reason`.
    """

    def __init__(self, sentence: str, reason: str, rows: Sequence[int]) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.rows = rows
