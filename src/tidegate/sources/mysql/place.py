"""A position of the log that can be compared with others."""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """The end of an event. Files are ordered by the number at the end of their names: `bin.999999`, `bin.1000000`."""

    file: str
    position: int

    @property
    def order(self) -> tuple[int, int]:
        number = self.file.rpartition(".")[2]
        return int(number) if number.isdecimal() else 0, self.position
