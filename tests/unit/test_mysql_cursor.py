"""How far a source of a database reads: where micro-batches end in the log."""

from __future__ import annotations

import numpy as np

from tidegate.sources.mysql.chain import Chain, Extra, Spot
from tidegate.sources.mysql.cursor import Stand, advance
from tidegate.sources.mysql.log.framing import WRITE_2
from tidegate.sources.mysql.windows import Place


def change(chain: Chain) -> None:
    """A transaction with one row event of ten bytes of table 1."""
    one, ts = np.array([1]), chain.last("ts") + 1
    chain.add_rows(0, one, one * 10, one * WRITE_2, one, one, one)
    chain.add_items(np.array([ts]), 1, np.array([ts]), one * 0, one, np.array([chain.rows.end]))


def chunk(chain: Chain, name: str) -> None:
    ts = chain.last("ts") + 1
    chain.add_virtual(Place(1, chain.last("at"), ts), Extra(chunk=name, table_id=1, size_bytes=5))


def ends(chain: Chain) -> list[int]:
    """The items at which micro-batches of any size end."""
    stand, found = Stand(Spot(0, 0), {}), []
    while (after := advance(chain, stand, 1 << 30, frozenset())) != stand:
        stand = after
        found.append(stand.spot.item)
    return found


def test_a_micro_batch_has_no_changes_behind_its_chunks() -> None:
    """Also when it is handed out again with more of the log behind it than at the first time."""
    chain = Chain(0, 1, 4)
    change(chain)
    chunk(chain, "a")
    chunk(chain, "b")
    change(chain)
    change(chain)
    chunk(chain, "c")
    change(chain)
    assert ends(chain) == [3, 6, 7]


def test_a_micro_batch_without_chunks_ends_where_the_log_ends() -> None:
    chain = Chain(0, 1, 4)
    for _ in range(5):
        change(chain)
    assert ends(chain) == [5]
