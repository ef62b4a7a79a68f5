"""A transaction has one commit-ts for ever, whatever is handed out, killed and read again."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import BadSetting, BrokenInvariant
from tidegate.events import tso
from tidegate.sources.mysql.log.transactions import Position
from tidegate.sources.mysql.windows import AHEAD_MS, Place, Settler, Virtual, Window

START = Place(1, 4, tso(1_000))
Transaction = tuple[str, int]


def names(transactions: list[Transaction]) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], list[str]]:
    return np.array([time for _, time in transactions], np.int64), [name for name, _ in transactions]


def test_a_transaction_gets_its_time_or_one_more_than_the_last() -> None:
    settler = Settler(START, [])
    found = settler.settle(np.array([2_000, 2_000, 1_500, 3_000]), str, 5_000)
    assert found.tolist() == [tso(2_000), tso(2_000) + 1, tso(2_000) + 2, tso(3_000)]


def test_a_time_ahead_of_the_servers_clock_counts_as_one_more_than_the_last() -> None:
    settler = Settler(START, [])
    found = settler.settle(np.array([2_000, 90_000, 2_500]), lambda i: f"0-1-{i}", 3_000)
    assert found.tolist() == [tso(2_000), tso(2_000) + 1, tso(2_500)]
    window = settler.window(Place(1, 300, settler.last))
    assert window.exceptions == {"0-1-1": tso(2_000) + 1}
    again = Settler(START, [Window.from_json(window.to_json())])
    assert again.settle(np.array([2_000, 90_000, 2_500]), lambda i: f"0-1-{i}", None).tolist() == found.tolist()


def test_a_tick_comes_back_at_its_place() -> None:
    settler = Settler(START, [])
    first = settler.settle(np.array([2_000]), str, 9_000)
    tick = settler.tick(Position(1, 100), 7_500)
    second = settler.settle(np.array([7_000]), str, 9_000)
    assert (tick, second.tolist()) == (Virtual(Place(1, 100, tso(7_500))), [tso(7_500) + 1])
    again = Settler(START, [settler.window(Place(1, 200, settler.last))])
    assert again.settle(np.array([2_000]), str, None).tolist() == first.tolist()
    assert again.stop == Position(1, 100)
    assert again.arrive(Position(1, 100)) == [tick]
    assert again.settle(np.array([7_000]), str, None).tolist() == second.tolist()


def test_the_clock_never_goes_back_by_a_tick() -> None:
    settler = Settler(START, [])
    assert settler.tick(START.position, 900) is None
    assert settler.tick(START.position, 1_001) is not None


def test_a_missing_window_is_noticed() -> None:
    with pytest.raises(BadSetting, match="missing"):
        Settler(START, [Window(Place(1, 50, tso(1_500)), Place(1, 90, tso(1_700)))])


def test_what_is_on_record_is_not_changed() -> None:
    settler = Settler(START, [Window(START, Place(1, 90, tso(1_700)))])
    with pytest.raises(BrokenInvariant, match="on record"):
        settler.chunk(Position(1, 4), "7-0-0")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"start":[1],"end":[1,2,3],"exceptions":{},"ticks":[],"chunks":[]}'])
def test_a_broken_record_is_refused(text: str) -> None:
    with pytest.raises(BadSetting, match="broken"):
        Window.from_json(text)


# -- the law -----------------------------------------------------------------------------------------------------------


@dataclass
class Log:
    """A log that grows, and what was ever handed out of it."""

    entries: list[Transaction] = field(default_factory=list)  # transaction i ends at position 100 * (i + 1)
    windows: dict[int, str] = field(default_factory=dict)
    handed: dict[str, int] = field(default_factory=dict)  # by GTID or chunk
    offsets: list[tuple[Place, int]] = field(default_factory=lambda: [(START, 0)])  # and the record it is in

    def write(self, time_ms: int) -> None:
        self.entries.append((f"0-1-{len(self.entries)}", time_ms))


class Process:
    """Reads the log from an offset; may be killed and replaced at any moment."""

    def __init__(self, log: Log, back: int) -> None:
        self.log = log
        self.start, record = log.offsets[-1 - min(back, len(log.offsets) - 1)]
        kept = {number: text for number, text in log.windows.items() if number >= record}
        self.settler = Settler(self.start, [Window.from_json(text) for _, text in sorted(kept.items())])
        self.number = max(log.windows, default=0)
        self.items: list[tuple[str, Place]] = []
        self.at = (self.start.at - 4) // 100
        self._arrive()

    @property
    def position(self) -> Position:
        return Position(1, 100 * self.at + 4)

    def read(self, count: int, clock_ms: int) -> None:
        while count and self.at < len(self.log.entries):
            stop = self.settler.stop
            room = count if stop is None else min(count, max(0, (stop.at - self.position.at) // 100))
            part = self.log.entries[self.at : self.at + room]
            if part:
                times, names_ = names(part)
                for i, ts in enumerate(self.settler.settle(times, names_.__getitem__, clock_ms).tolist()):
                    self.items.append((names_[i], Place(1, 100 * (self.at + i + 1) + 4, ts)))
            self.at, count = self.at + len(part), count - len(part)
            self._arrive()

    def _arrive(self) -> None:
        self._came(self.settler.arrive(self.position))

    def _came(self, found: list[Virtual]) -> None:
        self.items += [(each.chunk or f"tick {each.place.ts}", each.place) for each in found]

    def idle(self, clock_ms: int, chunk: bool) -> None:
        if self.settler.is_live:
            made = self.settler.chunk(self.position, f"c{len(self.log.handed)}-{self.settler.last}") if chunk else None
            made = made or self.settler.tick(self.position, clock_ms)
            self._came([made] if made is not None else [])

    def hand_out(self, count: int) -> bool:
        """Puts all on record and hands out some; False if another process was faster, and this one must end."""
        end = Place(*self.position, self.settler.last)
        if self.settler.is_live and end > self.settler.recorded_to:
            text = self.settler.window(end).to_json()
            if self.log.windows.setdefault(self.number + 1, text) != text:
                return False
            self.number += 1
        for name, place in self.items[:count]:
            assert self.log.handed.setdefault(name, place.ts) == place.ts, f"{name} has another commit-ts now"
            self.log.offsets.append((place, self._record_of(place)))
        self.items = self.items[count:]
        return True

    def _record_of(self, place: Place) -> int:
        ends = [(number, Window.from_json(text).end) for number, text in sorted(self.log.windows.items())]
        return next((number for number, end in ends if end >= place), 0)


ACTIONS = st.sampled_from(["write", "write", "read", "read", "tick", "chunk", "hand out", "hand out", "kill", "jump"])


@given(data=st.data())
def test_every_transaction_has_one_commit_ts_for_ever(data: st.DataObject) -> None:
    log, clock_ms = Log(), 10_000
    processes = [Process(log, 0), Process(log, 0)]  # the second may be one that nobody has stopped
    for _ in range(data.draw(st.integers(5, 60))):
        which = data.draw(st.integers(0, 1))
        process = processes[which]
        action = data.draw(ACTIONS)
        clock_ms += data.draw(st.integers(0, 400))
        if action == "write":
            log.write(clock_ms + data.draw(st.sampled_from([0, 0, -3_000, AHEAD_MS + 50, 60_000])))
        elif action == "read":
            process.read(data.draw(st.integers(1, 5)), clock_ms)
        elif action == "jump":
            clock_ms = max(0, clock_ms + data.draw(st.integers(-5_000, 5_000)))
        elif action in ("tick", "chunk"):
            process.idle(clock_ms, action == "chunk")
        elif action == "kill" or not process.hand_out(data.draw(st.integers(1, 6))):
            processes[which] = Process(log, data.draw(st.integers(0, 5)))
    last = Process(log, len(log.offsets))
    last.read(len(log.entries), clock_ms)
    assert last.hand_out(len(last.items))
    settled = [log.handed[name] for name, _ in log.entries if name in log.handed]
    assert settled == sorted(set(settled)), "and they rise along the log"
