"""What a run displays: nothing is wider than the terminal, figures are for people, an outage is named with its end."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.driver.changefeed import Changefeed
from tidegate.observe.status import BadRowsLine, DdlLine, SnapshotLine, Status
from tidegate.testing import START_TS, FakeClock, MemoryStore, TinySource, feed
from tidegate.tools.display import Display
from tidegate.tools.rates import Window
from tidegate.wording import human_bytes, human_seconds

MIB = 1 << 20
SOURCE = TinySource(tables=3, batches=3, rows=2)
REASON = (
    "sbtest/t/1/CDC1.csv: the connection to http://127.0.0.1:9000 was refused (s3://lake/a-long-prefix/of-a-bucket)"
)
QUIET = Status(
    state="running", rows_accepted=0, bytes_accepted=0, rows_filtered=0, rows_landed=0, bytes_landed=0, files=0,
    reasons={}, spool_bytes=0, spool_high_mark=8 * MIB, spool_low_mark=6 * MIB, spool_max_bytes=10 * MIB,
    wake_held=False, checkpoint_ts=START_TS, resolved_ts=START_TS, lag_s=0.0, active_tables=0, queued_items=0,
    in_flight_items=0, duplicates=0, retrying={}, retrying_tables=0, set_aside={}, set_aside_rows=0, waiting=None,
    retry_in_s=None, source_left_bytes=None, source_begun_bytes=None, shortage=None, requests_per_s=0.0,
    requests_usd_per_day=0.0, put_budget_late_s=0.0, ddls={}, only_repeats=None, error=None,
    source_lag_s=None, source_lag_bytes=None, source_waits="", snapshot=None,
)  # fmt: skip
BAD = replace(
    QUIET,
    spool_bytes=9 * MIB,
    wake_held=True,
    lag_s=83.0,
    retrying={f"sbtest.sbtest{n}": REASON for n in range(20)},
    retrying_tables=1234,
    waiting=f"the journal: {REASON}",
    retry_in_s=12.4,
    source_lag_s=83.0,
    source_lag_bytes=9 * MIB,
    snapshot=SnapshotLine(0.42, 3, 1_000_000, 83.0, "shop.orders"),
    source_waits="the server db:3306 does not answer since 80 s",
    ddls={
        f"{START_TS}/{n}": DdlLine("ALTER TABLE t\n" + "x" * 500, "shop.t", "9 tables to land", 5, 5) for n in range(9)
    },
    set_aside={"shop.\x1b[2Jevil\n": BadRowsLine(3, "column 'id': the value is not a whole number", "_tidegate/bad")},
    set_aside_rows=3,
    shortage="fewer than 512 MiB are free under /a/very/long/directory/name: free some space, " * 3,
)


@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_line_of_the_block_is_wider_than_the_terminal(shown: Callable[..., str], width: int) -> None:
    text = shown(BAD, width=width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert text.count("\n") <= 30


def test_a_table_s_name_cannot_steer_the_terminal(shown: Callable[..., str]) -> None:
    for is_terminal in (True, False):
        text = shown(BAD, is_terminal=is_terminal)
        assert "\x1b" not in text
    assert r"shop.\x1b[2Jevil\n" in shown(BAD)


def test_an_outage_names_its_reason_once_and_the_next_try(shown: Callable[..., str]) -> None:
    text = shown(BAD, width=120)
    assert text.count("retrying   sbtest.sbtest0: ") == 1
    assert "sbtest.sbtest1:" not in text
    assert "1,234 tables in all; next try in 12 s" in text
    assert "waits      for the journal, next try in 12 s: sbtest/t/1/CDC1.csv: the connection to" in text
    assert "the upstream waits" in text
    assert "lag 1m 23s" in text
    assert "42%  1,000,000 rows, 3 tables left  about 1m 23s left" in text
    assert "1m 23s behind, 9 MiB of the log" in text
    assert "waits: the server db:3306 does not answer" in text


def test_the_line_without_a_terminal_names_reason_and_next_try(shown: Callable[..., str]) -> None:
    [line] = shown(BAD, is_terminal=False).splitlines()
    assert f"; retrying 1234 tables, next try in 12 s, sbtest.sbtest0: {REASON}" in line
    assert f"; waits for the journal: {REASON}, next try in 12 s" in line
    assert "checkpoint=2026-01-01T00:00:00Z lag=83.0s" in line


def test_a_source_that_ends_shows_how_far_it_is_and_the_time_left(shown: Callable[..., str]) -> None:
    begun = replace(QUIET, source_begun_bytes=100 * MIB, source_left_bytes=100 * MIB)
    later = replace(begun, source_left_bytes=80 * MIB)
    assert "20 %  80 MiB to read  40 s left" in shown(begun, later)
    assert "source=80MiB to read, 40 s left" in shown(begun, later, is_terminal=False)
    assert "to read" not in shown(QUIET)


def test_rates_are_those_of_the_last_seconds_and_survive_a_new_start() -> None:
    window = Window()
    for second in range(30):
        rates = window.rates(float(second), replace(QUIET, rows_accepted=1000 + max(0, second - 15) * 70))
    assert rates.rows == 70.0
    assert window.rates(30.0, QUIET).rows == 0.0


class Screen(io.StringIO):
    """A terminal of 80 columns: what is on it after all that was written."""

    def isatty(self) -> bool:
        return True

    def lines(self) -> list[str]:
        rows, row, column = [""], 0, 0
        for code, text in re.findall(r"(\x1b\[[0-9;?]*[A-Za-z])|([^\x1b])", self.getvalue(), re.DOTALL):
            if code.endswith("A"):
                row -= int(code[2:-1] or 1)
                assert row >= 0, "above the first line"
            elif code.endswith("K"):
                rows[row] = ""
            elif text == "\n" or (text not in ("\r", "") and column == 80):
                row, column = row + 1, 0
                rows += [""] * (row + 1 - len(rows))
            column = 0 if text == "\r" else column
            if text and text not in "\r\n":
                rows[row] = rows[row][:column].ljust(column) + text + rows[row][column + 1 :]
                column += 1
        return [line.rstrip() for line in rows]


def test_log_lines_stand_above_the_block_and_nothing_is_left_of_a_larger_one() -> None:
    screen = Screen()
    display = Display(screen, clock := FakeClock(), 80)
    for status in (BAD, QUIET, BAD, QUIET):
        clock.advance(1.0)
        display.show(status)
        display.write_above(f"a line of the log about {status.retrying_tables} tables " + "x" * 100)
    display.close(QUIET)
    lines = screen.lines()
    assert [line.split(" ")[6] for line in lines if "log" in line] == ["1234", "0", "1234", "0"]
    first = lines.index(next(line for line in lines if line.startswith("running")))
    assert first == 8, "four lines of the log, each two lines long"
    assert [line.split(" ")[0] for line in lines[first:] if line] == [
        *("running", "accepted", "landed", "spool", "tables", "requests"),
    ]


def test_lines_of_many_threads_leave_no_debris() -> None:
    screen = Screen()
    display = Display(screen, clock := FakeClock(), 80)
    clock.advance(1.0)
    display.show(BAD)

    def write() -> None:
        for _ in range(50):
            display.write_above("a line of the log")

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for n in range(100):
        clock.advance(1.0)
        display.show(QUIET if n % 2 else BAD)
    for thread in threads:
        thread.join()
    display.close(QUIET)
    lines = [line for line in screen.lines() if line]
    assert lines[:200] == ["a line of the log"] * 200
    assert [line.split(" ")[0] for line in lines[200:]] == [
        *("running", "accepted", "landed", "spool", "tables", "requests"),
    ]


def test_the_lag_grows_while_the_store_is_away_and_the_next_try_is_known(
    opened: Callable[..., Changefeed], store: MemoryStore
) -> None:
    changefeed = opened()
    feed(changefeed, 0, SOURCE.batch(0), "0")
    store.begin("unavailable", "/CDC")
    changefeed.ledger.planner.closing = True
    changefeed.landing.land_next()
    assert 0.7 <= (changefeed.status().retry_in_s or 0) <= 1.0
    changefeed.clock.advance(70.0)  # type: ignore[attr-defined]
    assert changefeed.status().lag_s == 70.0
    store.end("unavailable", "/CDC")
    while changefeed.landing.land_next():
        pass
    assert changefeed.status().lag_s == 70.0, "readers of the sink see no new checkpoint yet"
    changefeed.scribe.write_progress()
    assert changefeed.status().lag_s == 0.0
    assert changefeed.status().retry_in_s is None


@given(st.floats(0, 2**62))
def test_a_size_for_people_has_three_digits_at_most(size: float) -> None:
    assert re.fullmatch(r"\d{1,3}(\.\d)? ([KMGTP]i)?B|\d+ PiB", human_bytes(size))
    assert len(re.sub(r"\D", "", human_bytes(size))) <= 4


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.44, "0.4 s"), (9.96, "10 s"), (59.6, "1m 00s"), (185, "3m 05s"), (7620, "2h 07m"), (273_600, "3d 04h")],
)
def test_a_time_for_people(seconds: float, shown: str) -> None:
    assert human_seconds(seconds) == shown
