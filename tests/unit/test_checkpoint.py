"""The checkpoint is never early and never goes back; the position stands only after wholly durable batches in order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.control.checkpoint import NOTHING_PENDING, Progress
from tidegate.control.columns import Ints
from tidegate.errors import BrokenInvariant


def ints(*values: int) -> Ints:
    return np.array(values, np.int64)


def test_the_checkpoint_is_one_less_than_the_first_change_that_is_not_durable() -> None:
    progress = Progress()
    progress.accepted(1, 2, "end", resolved_ts=100)
    assert progress.advance(first_pending_ts=40) == 39


def test_the_checkpoint_stops_at_the_resolved_mark() -> None:
    progress = Progress()
    progress.accepted(1, 2, "end", resolved_ts=30)
    assert progress.advance(first_pending_ts=40) == 30


def test_an_idle_feed_moves_with_its_resolved_marks() -> None:
    progress = Progress()
    for ts in (10, 20, 30):
        progress.accepted(ts, 0, f"end-{ts}", resolved_ts=ts)
        assert progress.advance(NOTHING_PENDING) == ts
        assert progress.position == f"end-{ts}"


def test_the_checkpoint_never_goes_back() -> None:
    progress = Progress()
    progress.accepted(1, 1, "end", resolved_ts=50)
    assert progress.advance(NOTHING_PENDING) == 50
    progress.accepted(2, 1, "end", resolved_ts=20)
    assert progress.advance(first_pending_ts=10) == 50


def test_the_position_waits_for_every_item_of_a_batch() -> None:
    progress = Progress()
    progress.accepted(1, 2, "end", 0)
    progress.durable(ints(1))
    assert progress.position is None
    assert not progress.is_durable(1)
    progress.durable(ints(1))
    assert progress.position == "end"
    assert progress.is_durable(1)


def test_a_later_batch_that_is_durable_first_does_not_move_the_position() -> None:
    progress = Progress()
    progress.accepted(1, 1, "one", 0)
    progress.accepted(2, 1, "two", 0)
    progress.durable(ints(2))
    assert progress.position is None
    progress.durable(ints(1))
    assert progress.position == "two"


def test_a_batch_without_end_keeps_the_position_of_the_one_before() -> None:
    progress = Progress(position="restored")
    progress.accepted(1, 0, None, 0)
    assert progress.position == "restored"


def test_an_item_acknowledged_twice_is_an_error() -> None:
    progress = Progress()
    progress.accepted(1, 1, "end", 0)
    progress.durable(ints(1))
    with pytest.raises(BrokenInvariant, match="batch 1 was acknowledged durable twice"):
        progress.durable(ints(1))


def test_a_batch_accepted_twice_is_an_error() -> None:
    progress = Progress()
    progress.accepted(1, 1, "end", 0)
    with pytest.raises(BrokenInvariant, match="batch 1 was accepted twice"):
        progress.accepted(1, 1, "end", 0)


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), st.data())
def test_the_position_is_the_end_of_the_last_batch_before_which_all_is_durable(
    counts: list[int], data: st.DataObject
) -> None:
    progress, left = Progress(), dict(enumerate(counts))
    for batch, count in left.items():
        progress.accepted(batch, count, f"end-{batch}", 0)
    acks = data.draw(st.permutations([batch for batch, count in left.items() for _ in range(count)]))
    while acks:
        some, acks = acks[: (n := data.draw(st.integers(1, len(acks))))], acks[n:]
        progress.durable(ints(*some))
        for batch in some:
            left[batch] -= 1
        whole = next((batch for batch, count in left.items() if count), len(left))
        assert progress.position == (f"end-{whole - 1}" if whole else None)
        assert [progress.is_durable(batch) for batch in left] == [count == 0 for count in left.values()]
