"""What an encoder refuses: a value that its column cannot hold, and the rows with such values.

No sentence of an encoder shows a value: sentences go to logs, and rows are secret.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.errors import BadEvents


class BadValue(BadEvents):
    """Values that their column cannot hold; `positions` are their indices in the array, in order."""

    def __init__(self, message: str, *positions: int) -> None:
        super().__init__(message)
        self.positions = positions

    @property
    def position(self) -> int:
        return self.positions[0]


class BadRows(BadEvents):
    """Row changes that cannot be written. The sentence says where the first one is, and what is wrong with it.

    `rows` are the numbers of all rows of the batch that cannot be written for this `reason`.
    """

    def __init__(self, sentence: str, reason: str, rows: Sequence[int]) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.rows = rows
