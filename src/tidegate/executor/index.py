"""The index of a directory: the object that names its last data file.

Promise: an index never goes back to an earlier file, however late a process writes it. It is replaced by a conditional
put, so a process that was paused cannot overwrite what another one wrote meanwhile. The condition is the tag that the
index has if nobody else wrote it. Only when the condition fails the index is read.
"""

from __future__ import annotations

from typing import NamedTuple

from tidegate.errors import StoreConflict, StoreRefused, StoreUnavailable
from tidegate.format.layout import DataKey, PathOptions, data_path, index_path, index_text, parse_index_text
from tidegate.storage.store import Beat, Store

_TRIES = 3


class Indexed(NamedTuple):
    """The requests it took, and the tag of the index; "" where the tag follows from the content."""

    requests: int
    tag: str


def put_index(
    store: Store, key: DataKey, number: int, options: PathOptions, before: int | None, beat: Beat, last_tag: str = ""
) -> Indexed:
    """Let the index name file `number`, unless it names a later one.

    `before` is the file that it should name now, 0 if there should be no index, None if that is unknown. `last_tag` is
    the tag it should have, "" if that is unknown. An index whose tag is unknown, or is another, is read first.
    """
    path, text = index_path(key, options), index_text(key, number, options).encode()
    tag: str | None = last_tag or None
    if before == 0:
        tag = ""
    elif before and tag is None:
        tag = store.tag_of(index_text(key, before, options).encode())
    requests = 0
    for _ in range(_TRIES):
        beat(0)
        if tag is None:
            requests += 1
            found = store.get_tagged(path)
            if found is not None and found[0] == text:
                return Indexed(requests, _kept(store, text, found[1]))
            if found is not None and (ahead := number_in(found[0], options.extension)) > number:
                raise StoreConflict(f"{path} names file {ahead} already: another writer uses this sink")
            tag = found[1] if found is not None else ""
            beat(0)
        requests += 1
        made = store.swap(path, text, tag)
        if made is not None:
            return Indexed(requests, _kept(store, text, made))
        tag = None
    raise StoreUnavailable(f"{path} was changed by somebody else each time it was to be written")


def _kept(store: Store, text: bytes, tag: str) -> str:
    """A tag that follows from the content is not worth keeping."""
    return "" if not tag or tag == store.tag_of(text) else tag


def last_number(store: Store, key: DataKey, options: PathOptions) -> tuple[int, int]:
    """The number that the index names, 0 without one; and the requests it took."""
    found = store.get(index_path(key, options))
    return number_in(found, options.extension) if found else 0, 1


def last_existing_number(store: Store, key: DataKey, options: PathOptions) -> tuple[int, int]:
    """The number of the last data file, also behind what the index names: another writer may have died before it."""
    number, requests = last_number(store, key, options)
    while True:
        requests += 1
        if store.size(data_path(key, number + 1, options)) is None:
            return number, requests
        number += 1


def number_in(index: bytes, extension: str) -> int:
    """The number that an index names; 0 for one that cannot be parsed, so that it is replaced."""
    try:
        return parse_index_text(index.decode(errors="replace"), extension)[1]
    except StoreRefused:
        return 0
