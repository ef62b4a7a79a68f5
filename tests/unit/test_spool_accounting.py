"""Laws of the spool's accounting: exact, never clamped, segments freed exactly once, marks with hysteresis."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.control.columns import Ints
from tidegate.control.spool import ITEM_BYTES, Spool
from tidegate.errors import BrokenInvariant


def ints(*values: int) -> Ints:
    return np.array(values, np.int64)


def filled(size: int, max_bytes: int = 1_000_000) -> tuple[Spool, Ints]:
    """A spool that holds `size` bytes in one segment with one item."""
    spool = Spool(max_bytes)
    numbers = spool.open_segments(["a"], [size - ITEM_BYTES], [1])
    spool.add_items(numbers, ints(size - ITEM_BYTES))
    return spool, numbers


def test_held_is_segment_bytes_plus_a_charge_for_each_item() -> None:
    spool = Spool(1_000)
    a, b = spool.open_segments(["a", "b"], [70, 50], [0, 1]).tolist()
    spool.add_items(ints(a, a, b), ints(30, 30, 50))
    assert spool.occupied_bytes == 120 + 3 * ITEM_BYTES
    assert spool.tier_bytes == [70, 50]


def test_a_segment_counts_in_full_until_its_last_item_is_released() -> None:
    spool = Spool(1_000)
    [a] = spool.open_segments(["a"], [100], [1]).tolist()
    spool.add_items(ints(a, a), ints(99, 1))
    assert spool.release_items(ints(a), ints(99)) == []
    assert spool.occupied_bytes == 100 + ITEM_BYTES
    assert spool.release_items(ints(a), ints(1)) == ["a"]
    assert (spool.occupied_bytes, spool.segment_count, spool.items) == (0, 0, 0)


def test_releasing_more_items_than_are_held_is_an_error() -> None:
    spool, numbers = filled(1_000)
    with pytest.raises(BrokenInvariant, match="released 2 items of 1 in the spool"):
        spool.release_items(ints(*numbers, *numbers), ints(1, 1))


def test_an_item_released_twice_is_an_error_although_others_are_held() -> None:
    spool = Spool(1_000)
    a, b = spool.open_segments(["a", "b"], [10, 10], [1, 1]).tolist()
    spool.add_items(ints(a, b), ints(10, 10))
    spool.release_items(ints(a), ints(10))
    with pytest.raises(BrokenInvariant, match="more often"):
        spool.release_items(ints(a), ints(10))


@pytest.mark.parametrize("wrong", [11, 9])
def test_releasing_other_bytes_than_were_added_is_an_error(wrong: int) -> None:
    spool = Spool(1_000)
    numbers = spool.open_segments(["a"], [20], [1])
    spool.add_items(numbers, ints(10))
    with pytest.raises(BrokenInvariant):
        spool.release_items(numbers, ints(wrong))


def test_a_segment_accepted_twice_is_an_error() -> None:
    spool, _ = filled(1_000)
    with pytest.raises(BrokenInvariant, match="segment a was accepted twice"):
        spool.open_segments(["a"], [10], [1])


def test_a_name_may_come_back_after_its_segment_was_freed() -> None:
    spool, numbers = filled(1_000)
    spool.release_items(numbers, ints(1_000 - ITEM_BYTES))
    again = spool.open_segments(["a"], [7], [0])
    spool.add_items(again, ints(7))
    assert (spool.occupied_bytes, spool.tier_bytes) == (7 + ITEM_BYTES, [7, 0])


SEGMENTS = st.lists(
    st.tuples(st.integers(0, 1), st.lists(st.integers(0, 100), min_size=1, max_size=5), st.integers(0, 40)),
    min_size=1,
    max_size=8,
)


@settings(deadline=None)
@given(st.lists(SEGMENTS, max_size=4), st.data())
def test_accounting_is_exact_and_segments_are_freed_exactly_once(
    batches: list[list[tuple[int, list[int], int]]], data: st.DataObject
) -> None:
    spool, held, freed = Spool(10_000), list[tuple[str, int, int]](), list[str]()
    sizes = dict[str, tuple[int, int]]()
    for at, batch in enumerate(batches):
        paths = [f"{at}-{i}" for i in range(len(batch))]
        sizes.update(
            {path: (tier, sum(items) + waste) for path, (tier, items, waste) in zip(paths, batch, strict=True)}
        )
        numbers = spool.open_segments(paths, [sizes[p][1] for p in paths], [sizes[p][0] for p in paths]).tolist()
        fresh = [(p, n, size) for p, n, b in zip(paths, numbers, batch, strict=True) for size in b[1]]
        spool.add_items(ints(*(n for _, n, _ in fresh)), ints(*(size for *_, size in fresh)))
        held = data.draw(st.permutations(held + fresh))
        count = data.draw(st.integers(0, len(held)))
        gone, held = held[:count], held[count:]
        freed += spool.release_items(ints(*(n for _, n, _ in gone)), ints(*(size for *_, size in gone)))
        left = {path for path, *_ in held}
        assert sorted(freed) == sorted(path for path in sizes if path not in left)
        assert spool.tier_bytes == [sum(s for p, (t, s) in sizes.items() if p in left and t == tier) for tier in (0, 1)]
        assert spool.occupied_bytes == sum(spool.tier_bytes) + ITEM_BYTES * len(held)


# -- marks -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("held", "woken"), [(600_000, True), (800_000, True), (800_001, False)])
def test_a_wake_is_held_only_above_the_high_mark(held: int, woken: bool) -> None:
    assert filled(held)[0].may_wake() is woken


def test_a_held_wake_goes_out_at_the_low_mark_and_not_before() -> None:
    spool, _ = filled(600_001)
    extra = spool.open_segments(["b"], [300_000], [1])
    spool.add_items(extra, ints(300_000))
    assert not spool.may_wake()
    spool.release_items(extra, ints(300_000))
    assert not spool.may_wake(), "one byte above the low mark"
    spool.tier_bytes[1] -= 1
    assert spool.may_wake()


@settings(deadline=None)
@given(st.lists(st.integers(ITEM_BYTES, 1_000_000), max_size=30))
def test_a_wake_follows_the_last_mark_that_was_crossed(levels: list[int]) -> None:
    spool, over = Spool(1_000_000), False
    for level in levels:
        spool.tier_bytes[1] = level
        over = level > 800_000 or (over and level > 600_000)
        assert [spool.may_wake(), spool.may_wake()] == [not over] * 2, "asking twice changes nothing"


def test_a_starved_disk_holds_the_wake_and_presses_for_all_that_is_held() -> None:
    spool, _ = filled(1_000)
    spool.starved = True
    assert not spool.may_wake()
    assert spool.under_pressure()
    assert spool.excess() == spool.occupied_bytes
    spool.starved = False
    assert spool.may_wake()


def test_pressure_begins_at_the_low_mark() -> None:
    assert not filled(599_999)[0].under_pressure()
    assert filled(600_000)[0].under_pressure()


# -- what pins a segment -----------------------------------------------------------------------------------------------


def test_the_emptiest_segments_come_first_until_enough_would_be_freed() -> None:
    spool = Spool(10_000)
    full, half, scrap = spool.open_segments(["full", "half", "scrap"], [100, 100, 100], [1, 1, 1]).tolist()
    spool.add_items(ints(full, half, scrap), ints(100, 50, 1))
    assert spool.emptiest(100).tolist() == [scrap]
    assert spool.emptiest(101).tolist() == [scrap, half]
    assert spool.emptiest(10_000).tolist() == [scrap, half, full]
    assert spool.pinned_share() == pytest.approx(151 / 300)


def test_an_empty_spool_wastes_nothing() -> None:
    spool = Spool(1_000)
    assert spool.pinned_share() == 1.0
    assert spool.emptiest(100).tolist() == []
