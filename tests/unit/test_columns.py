"""Growable columns, dense numbers for keys, and the queues that are made of them, against plain Python."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import groupby
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.control.columns import Columns, Ints, Keys, Texts, after_or_equal, group_lasts, group_starts
from tidegate.control.items import Items
from tidegate.control.queues import Queues
from tidegate.errors import BrokenInvariant

KEYS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 3)), max_size=30)
SMALL = st.integers(0, 3)


def ints(values: Iterable[int]) -> Ints:
    return np.array(list(values), np.int64)


class Pair(Columns):
    _dtypes = {"left": np.int64, "right": np.float64}  # noqa: RUF012
    left: Ints


def test_columns_keep_their_values_when_they_grow() -> None:
    pair = Pair()
    for value in range(1_000):
        number = pair.extend(1)
        pair.left[number] = value
    assert pair.left[: pair.size].tolist() == list(range(1_000))


def test_new_rows_are_zero_and_numbered_on_from_the_last() -> None:
    pair = Pair()
    assert pair.extend(3).tolist() == [0, 1, 2]
    assert pair.extend(200).tolist() == list(range(3, 203))
    assert not pair.left[:203].any()


@settings(deadline=None)
@given(st.lists(KEYS, max_size=8))
def test_a_key_keeps_the_number_it_was_given_first_in_order_of_arrival(batches: list[list[tuple[int, int]]]) -> None:
    keys, model = Keys(), dict[tuple[int, int], int]()
    for batch in batches:
        known = set(model)
        numbers, first_at = keys.numbers(ints(t for t, _ in batch), ints(s for _, s in batch))
        for key in batch:
            model.setdefault(key, len(model))
        assert numbers.tolist() == [model[key] for key in batch]
        assert [batch[at] for at in first_at] == [key for key in dict.fromkeys(batch) if key not in known]
    assert len(keys) == len(model)


@settings(deadline=None)
@given(KEYS, KEYS)
def test_find_gives_minus_one_for_a_key_never_seen(seen: list[tuple[int, int]], asked: list[tuple[int, int]]) -> None:
    keys, model = Keys(), {key: number for number, key in enumerate(dict.fromkeys(seen))}
    keys.numbers(ints(t for t, _ in seen), ints(s for _, s in seen))
    found = keys.find(ints(t for t, _ in asked), ints(s for _, s in asked))
    assert found.tolist() == [model.get(key, -1) for key in asked]


@pytest.mark.parametrize(("table_id", "span"), [(-1, 0), (1 << 50, 0), (1, -1), (1, 1 << 12)])
def test_a_key_that_would_fall_onto_another_one_is_refused(table_id: int, span: int) -> None:
    with pytest.raises(BrokenInvariant, match="table id"):
        Keys().numbers(ints([table_id]), ints([span]))


TEXTS = st.lists(st.tuples(st.integers(0, 30), st.sampled_from(["", "a", "orders", "größe"])), max_size=12)


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), TEXTS), max_size=12), st.integers(0, 5))
def test_a_number_has_the_text_that_it_was_given_last(
    steps: list[tuple[bool, list[tuple[int, str]]]], few: int
) -> None:
    texts, model = Texts(few), dict[int, str]()
    for at_once, pairs in steps:
        if at_once:
            texts.put(ints(n for n, _ in pairs), pa.array([text for _, text in pairs], pa.string()))
        else:
            for number, text in pairs:
                texts[number] = text
        model.update(pairs)
        expected = [model.get(number, "") for number in range(40)]
        assert [texts[number] for number in range(40)] == expected
        assert texts.take(ints([3, *range(40), 3])).to_pylist() == [expected[3], *expected, expected[3]]
        assert texts.take(ints([7])).to_pylist() == [expected[7]]
    found = np.flatnonzero(texts.among(["a", "größe"])).tolist()
    assert found == sorted(number for number, text in model.items() if text in ("a", "größe"))


def test_namesakes_are_the_others_of_the_same_schema_and_table() -> None:
    queues = Queues()
    names = [("s", "a"), ("s", "b"), ("t", "a"), ("s", "a"), ("t", "b"), ("s", "a")]
    numbers = queues.number(ints(range(1, 7)), ints([0] * 6), ints(range(1, 7)))
    for number, name in zip(numbers.tolist(), names, strict=True):
        queues.names.rename(number, *name, number)
    found = queues.names.namesakes(ints([0, 3, 4]))
    assert {number: others.tolist() for number, others in found.items()} == {0: [3, 5], 3: [0, 5], 4: []}


@settings(deadline=None)
@given(st.lists(SMALL))
def test_groups_begin_and_end_where_the_value_changes(values: list[int]) -> None:
    values.sort()
    groups = [len(list(group)) for _, group in groupby(values)]
    starts = group_starts(ints(values))
    assert starts.tolist() == [sum(groups[:i]) for i in range(len(groups))]
    assert group_lasts(starts, len(values)).tolist() == [sum(groups[: i + 1]) - 1 for i in range(len(groups))]


@settings(deadline=None)
@given(st.lists(st.tuples(SMALL, SMALL, SMALL, SMALL)))
def test_positions_compare_like_tuples(pairs: list[tuple[int, int, int, int]]) -> None:
    reached = after_or_equal(*(ints(pair[i] for pair in pairs) for i in range(4)))
    assert reached.tolist() == [(ts, seq) >= (mark_ts, mark_seq) for ts, seq, mark_ts, mark_seq in pairs]


@settings(deadline=None)
@given(st.lists(st.integers(1, 9), max_size=40), st.randoms(use_true_random=False))
def test_a_slot_is_never_given_out_twice_at_a_time(counts: list[int], random: Random) -> None:
    items, taken = Items(), list[int]()
    for count in counts:
        slots = items.allocate(count).tolist()
        assert len(set(slots)) == count
        assert not set(slots) & set(taken)
        taken += slots
        random.shuffle(taken)
        back, taken = taken[: count // 2], taken[count // 2 :]
        items.free(ints(back))
    assert items.size <= sum(counts)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.tuples(SMALL, st.integers(0, 50)), min_size=1, max_size=12)),
        st.tuples(st.just("take"), st.lists(st.tuples(SMALL, st.integers(1, 5)), min_size=1, unique_by=lambda t: t[0])),
    ),
    max_size=20,
)


@settings(deadline=None)
@given(STEPS)
def test_queues_keep_order_and_bytes_through_any_appends_and_takes(
    steps: list[tuple[str, list[tuple[int, int]]]],
) -> None:
    queues, model = Queues(), defaultdict[int, list[int]](list)
    queues.number(ints(range(4)), ints([0] * 4), ints(range(4)))
    for step, pairs in steps:
        if step == "append":
            append(queues, model, sorted(pairs, key=lambda pair: pair[0]))
        else:
            take(queues, model, pairs)
        slots, owner_at = queues.walk(ints(range(4)))
        assert {n: slots[owner_at == n].tolist() for n in range(4)} == {n: model[n] for n in range(4)}
        lengths, queued_bytes = queues.items.length, queues.dispatchers.queued_bytes
        assert queued_bytes[:4].tolist() == [sum(lengths[slot] for slot in model[n]) for n in range(4)]
        assert queues.queued == sum(map(len, model.values()))
        assert queues.active == sum(map(bool, model.values()))


def append(queues: Queues, model: dict[int, list[int]], pairs: list[tuple[int, int]]) -> None:
    slots = queues.items.allocate(len(pairs))
    queues.items.length[slots] = [length for _, length in pairs]
    empty = {n for n, _ in pairs if not model[n]}
    assert set(queues.append(slots, ints(n for n, _ in pairs)).tolist()) == empty
    for slot, (n, _) in zip(slots.tolist(), pairs, strict=True):
        model[n].append(slot)


def take(queues: Queues, model: dict[int, list[int]], counts: list[tuple[int, int]]) -> None:
    fronts = [(n, model[n][:count]) for n, count in counts if model[n]]
    if fronts:
        owners = [n for n, front in fronts for _ in front]
        slots = [slot for _, front in fronts for slot in front]
        queues.remove_front(ints(slots), ints(owners))
    for n, front in fronts:
        del model[n][: len(front)]


def test_nothing_queued_is_nothing_changed() -> None:
    queues = Queues()
    assert queues.append(ints([]), ints([])).tolist() == []
    assert (queues.queued, queues.active) == (0, 0)


def test_partitions_share_a_lane_only_without_a_separator() -> None:
    apart, shared = Queues(), Queues(shared_lanes=True)
    for queues in (apart, shared):
        queues.number(ints([11, 12, 20]), ints([0, 0, 0]), ints([10, 10, 20]))
    assert len(set(apart.dispatchers.lane[:3].tolist())) == 3
    lanes = shared.dispatchers.lane[:3].tolist()
    assert lanes[0] == lanes[1] != lanes[2]
