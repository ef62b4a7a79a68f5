"""Who names transactions. A name (GTID) is an origin and a number: `0-1-` and 42, `3e11fa47-...:` and 42.

Origins are few, so a transaction keeps the number of its origin. Anonymous transactions have no name.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

import numpy as np

from tidegate.sources.mysql.log.images import Bytes, Numbers, unsigned

ANONYMOUS = ""
Text = Callable[[int, int], str]


class Origins:
    def __init__(self) -> None:
        self.texts: list[str] = []
        self._numbers: dict[str, int] = {}
        self._known: dict[tuple[int, int], int] = {}

    def name(self, origin: int, number: int) -> str:
        """`0-1-42`, `3e11fa47-71ca-11e1-9e33-c80aa9429562:42`; "" if the transaction is anonymous."""
        text = self.texts[origin]
        return f"{text}{number}" if text else ""

    def number_of(self, text: str) -> int:
        if text not in self._numbers:
            self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return self._numbers[text]

    def of_mariadb(self, domain: Numbers, server: Numbers) -> Numbers:
        return self._found(domain, server, lambda a, b: f"{a}-{b}-")

    def of_mysql(self, log: Bytes, place: Numbers) -> Numbers:
        """The UUIDs at these places."""
        high, low = (unsigned(log, place + shift, 8).view(np.int64) for shift in (0, 8))
        return self._found(high, low, _uuid_text)

    def _found(self, first: Numbers, second: Numbers, text: Text) -> Numbers:
        if len(first) and (first == first[0]).all() and (second == second[0]).all():  # nearly always
            return np.full(len(first), self._one(int(first[0]), int(second[0]), text), np.int64)
        pairs, of = np.unique(np.stack([first, second], axis=1), axis=0, return_inverse=True)
        numbers = [self._one(a, b, text) for a, b in pairs.tolist()]
        return np.array(numbers, np.int64)[of.reshape(-1)]

    def _one(self, first: int, second: int, text: Text) -> int:
        key = (first, second)
        if key not in self._known:
            self._known[key] = self.number_of(text(first, second))
        return self._known[key]


def _uuid_text(first: int, second: int) -> str:
    raw = b"".join((part & (1 << 64) - 1).to_bytes(8, "little") for part in (first, second))
    return f"{uuid.UUID(bytes=raw)}:"
