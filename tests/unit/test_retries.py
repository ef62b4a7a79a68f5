"""Waiting lines: what failed comes back after its pause, in order, and closing waits out no long one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.control.barrier import Key, Write
from tidegate.control.retries import WaitingLine
from tidegate.control.schema_writes import SchemaWrites


def write(ts: int) -> Write:
    return Write(Key(ts, 0), 1)


@given(st.lists(st.floats(0.0, 10.0)), st.floats(0.0, 10.0))
def test_a_line_gives_what_is_due_the_earliest_first_and_of_one_moment_in_order_of_arrival(
    moments: list[float], now: float
) -> None:
    line = WaitingLine[int]()
    for number, moment in enumerate(moments):
        line.add(number, moment)
    ordered = sorted(range(len(moments)), key=lambda number: (moments[number], number))
    due = [number for number in ordered if moments[number] <= now]
    assert line.first_due(now) == (due[0] if due else None)
    assert line.take_due(now) == due
    assert sorted(line) == sorted(number for number in ordered if number not in due)


def test_closing_shortens_long_pauses_and_leaves_short_ones() -> None:
    line = WaitingLine[str](closing_pause_s=1.0)
    line.add("late", 60.0)
    line.add("soon", 0.5)
    line.shorten_pauses(0.0)
    assert line.take_due(0.5) == ["soon"]
    assert line.take_due(0.999) == []
    assert line.take_due(1.0) == ["late"]


def test_schema_files_are_written_in_commit_ts_order_a_thousand_ddls_at_a_time() -> None:
    writes = SchemaWrites()
    writes.add([write(ts) for ts in range(2500, 0, -1)], 0.0)
    taken = [[one.key.ts for one in writes.take_due(0.0)] for _ in range(4)]
    assert taken == [list(range(1, 1001)), list(range(1001, 2001)), list(range(2001, 2501)), []]


def test_a_ddl_that_fails_pauses_longer_each_time_and_others_do_not_wait_for_it() -> None:
    writes, now = SchemaWrites(), 0.0
    writes.add([write(5)], now)
    for longest in (1, 2, 4, 8):
        assert writes.take_due(now) == [write(5)]
        writes.failed(write(5), now)
        writes.add([write(9)], now)
        assert writes.take_due(now) == [write(9)]
        assert writes.take_due(now + 0.75 * longest - 0.001) == []
        now += longest


@pytest.mark.parametrize("tries", [1, 5])
def test_a_ddl_that_failed_is_tried_again_soon_when_the_changefeed_closes(tries: int) -> None:
    writes = SchemaWrites()
    for _ in range(tries):
        writes.failed(write(5), 100.0)
        writes.shorten_pauses(100.0)
        assert writes.take_due(100.499) == []
        assert writes.take_due(100.5) == [write(5)]


def test_a_ddl_that_was_written_begins_with_a_short_pause_again() -> None:
    writes = SchemaWrites()
    for _ in range(5):
        writes.failed(write(5), 0.0)
    writes.take_due(100.0)
    writes.done(write(5))
    writes.failed(write(5), 100.0)
    assert writes.take_due(101.0) == [write(5)]
