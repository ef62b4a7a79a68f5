"""Counts requests to a store by what they are for, in all processes together.

Each process notes one letter per request in a file of its own. A request is a call on the store: a list with several
pages, or a file that is too large for one put, is one call and more requests.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from tidegate.format.layout import METADATA, RESERVED_PREFIX
from tidegate.storage.access import NO_ACCESS, Access
from tidegate.storage.store import Store, StoreOpener, open_store

PUT_DATA, PUT_INDEX, PUT_SCHEMA, LIST, GET, HEAD, OWN = KINDS = (
    *("put_data", "put_index", "put_schema", "list", "get", "head"),
    "own",  # journal, `metadata` and what a start looks at: not for a table
)
_LETTERS = dict(zip(KINDS, "disLGHo", strict=True))
_READS = {"list": LIST, "get": GET, "get_tagged": GET, "get_range": GET, "size": HEAD, "modified": HEAD}
_WRITES = ("create", "create_bytes", "put", "swap", "delete")


def kind_of(operation: str, path: str) -> str:
    """`kind_of("swap", "shop/orders/437/2026-01-31/meta/CDC.index")` is `put_index`."""
    if not path or path.startswith(RESERVED_PREFIX) or path == METADATA:  # "" is the listing of the sink at a start
        return OWN
    if operation in _READS:
        return _READS[operation]
    if path.endswith(".index"):
        return PUT_INDEX
    return PUT_SCHEMA if path.endswith(".json") and "/meta/schema_" in path else PUT_DATA


@dataclass(frozen=True)
class CountingStores:
    """Opens stores that count; a value that goes to the workers. `place` is an existing directory."""

    place: str
    opener: StoreOpener = open_store

    def __call__(self, sink_uri: str, access: Access = NO_ACCESS) -> Store:
        return cast(Store, _CountingStore(self.opener(sink_uri, access), self.place))

    def counts(self) -> Counter[str]:
        """How many requests of each kind there have been so far."""
        letters = "".join(file.read_text() for file in Path(self.place).iterdir())
        return Counter({kind: letters.count(letter) for kind, letter in _LETTERS.items()})


class _CountingStore:
    def __init__(self, plain: Store, place: str) -> None:
        self._plain, self._place = plain, place

    def __getattr__(self, name: str) -> Any:
        asked = getattr(self._plain, name)
        if name not in _READS and name not in _WRITES:
            return asked

        def counted(path: str, *rest: Any) -> Any:
            os.write(_file(self._place, os.getpid()), _LETTERS[kind_of(name, path)].encode())
            return asked(path, *rest)

        return counted


@lru_cache(maxsize=16)
def _file(place: str, process: int) -> int:
    return os.open(f"{place}/{process}", os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
