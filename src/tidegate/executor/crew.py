"""Threads that land lanes side by side, and give up those that hang.

Promises:
* One thread works on a lane, so its files land in order. Different lanes land at once.
* No thread sleeps for a retry: what failed comes back as a receipt, and the driver retries it.
* A lane without progress for `stall_s`, plus the time for its bytes at 10 MiB/s, is given up. Its receipts say `hung`,
  its thread starts nothing more, and another thread takes its place.
* If no other lane has ended while a given-up one ran, the store does not answer at all. The lanes that were not begun
  are then returned untried: they would hang as long, one after the other.
So a file that hangs delays no receipt of another for long.
"""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

import pyarrow as pa

from tidegate.executor.chunks import chunk_bytes
from tidegate.executor.rows import HUNG, LANDED, Receipt, receipt_table

_BYTES_PER_S = 10 << 20
_POLL_S = 0.1
BYTES_IN_FLIGHT = 128 << 20
_LINUX = os.path.isdir("/proc/self/task")
_BUSY = 0.6  # lanes that want less than this share of a processor wait for the store: one more thread may help


def one_put_bytes(file_size_bytes: int) -> int:
    """Files up to this size are one put: those that are as large as asked, but none that takes all memory in flight."""
    return min(BYTES_IN_FLIGHT, file_size_bytes + chunk_bytes(file_size_bytes))


class Plan(Protocol):
    """What is landed: its receipt carries the same `file`."""

    @property
    def file(self) -> int: ...


P = TypeVar("P", bound=Plan)


class GivenUp(Exception):
    """Raised in the thread of a lane that was given up, at its next operation."""


@dataclass(slots=True)
class Watch:
    """One lane's progress: every operation announces itself here before it begins."""

    stall_s: float
    until: float = 0.0
    given_up: bool = False

    def beat(self, size: int) -> None:
        if self.given_up:
            raise GivenUp
        self.until = time.monotonic() + self.stall_s + size / _BYTES_PER_S


@dataclass(slots=True)
class Lane(Generic[P]):
    """What is to be landed in order, and what became of it: one receipt for each plan."""

    plans: list[P]
    receipts: list[Receipt]
    watch: Watch
    bytes: int = 0
    began: float = 0.0
    ended: bool = False

    def mark_hung(self) -> None:
        """On copies of the receipts: the thread that hangs may still write into its own."""
        self.receipts = [replace(receipt) for receipt in self.receipts]
        for receipt in self.receipts:
            if receipt.outcome != LANDED:
                receipt.outcome = HUNG
                receipt.error = receipt.error or f"no answer from the store within {self.watch.stall_s:g} s"

    def mark_untried(self) -> None:
        for receipt in self.receipts:
            receipt.error = "not tried: the store does not answer"


def run_lanes(lanes: list[Lane[P]], work: Callable[[Lane[P]], None], bound: int | None, workers: int) -> pa.Table:
    """The receipts, when every lane has ended, was given up, or is left untried.

    `bound` is the store's own bound of lanes at once, None for as many as `workers`. A store with a bound is near: its
    lanes use the processor more than they wait, and several threads would only hinder each other. So it begins with one
    thread, and gets another one whenever the threads wait after all.
    """
    crew = _Crew(work, deque(lanes), left=len(lanes))
    most = min(len(lanes), bound or workers)
    threads = most if bound is None else 1
    load = _Load(crew.threads) if threads < most else None
    with _without_collections():
        crew.start(threads)
        while not crew.wait(_POLL_S):
            crew.give_up_hanging(lanes)
            if load is not None and threads < most and load.since_last_look() < _BUSY:
                crew.start(1)
                threads += 1
        return receipt_table([receipt for lane in lanes for receipt in lane.receipts])


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """Lanes make many objects and no cycles of them, so Python would look for garbage again and again and find none."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@dataclass
class _Crew(Generic[P]):
    """Daemon threads that take one lane after the other, as far as the bytes in flight allow."""

    work: Callable[[Lane[P]], None]
    lanes: deque[Lane[P]]
    changed: threading.Condition = field(default_factory=threading.Condition)
    in_flight: int = 0
    waiting: int = 0  # threads whose lane is too large for now
    left: int = 0  # lanes neither ended nor given up
    last_end: float = 0.0
    threads: list[int] = field(default_factory=list)  # ids that the system knows them by

    def start(self, count: int) -> None:
        for _ in range(count):
            threading.Thread(target=self._run, daemon=True).start()

    def wait(self, seconds: float) -> bool:
        """True when no lane is left."""
        with self.changed:
            return self.changed.wait_for(lambda: self.left == 0, seconds)

    def give_up_hanging(self, lanes: list[Lane[P]]) -> None:
        now = time.monotonic()
        hanging = [
            lane
            for lane in lanes
            if lane.began and not lane.ended and not lane.watch.given_up and now > lane.watch.until > 0
        ]
        given_up = [lane for lane in hanging if self._give_up(lane)]
        for lane in given_up:
            lane.mark_hung()
        if any(lane.began > self.last_end for lane in given_up):
            self._abandon()
        self.start(len(given_up))

    def _run(self) -> None:
        self.threads.append(threading.get_native_id())
        lane = None
        while (lane := self._next(lane)) is not None:
            lane.began = time.monotonic()
            self.work(lane)

    def _next(self, done: Lane[P] | None) -> Lane[P] | None:
        """Note the end of one lane and take another."""
        with self.changed:
            if done is not None:
                if done.watch.given_up:  # another thread has taken this one's place
                    return None
                done.ended, self.last_end = True, time.monotonic()
                self._leave(done)
            if not self.lanes:
                return None
            lane = self.lanes.popleft()
            while self.in_flight and self.in_flight + lane.bytes > BYTES_IN_FLIGHT:
                self.waiting += 1
                self.changed.wait()
                self.waiting -= 1
            self.in_flight += lane.bytes
            return lane

    def _give_up(self, lane: Lane[P]) -> bool:
        """False if it has ended meanwhile."""
        with self.changed:
            if lane.ended:
                return False
            lane.watch.given_up = True
            self._leave(lane)
            return True

    def _abandon(self) -> None:
        """Begin no other lane."""
        with self.changed:
            for lane in self.lanes:
                lane.mark_untried()
            self.left -= len(self.lanes)
            self.lanes.clear()
            self.changed.notify_all()

    def _leave(self, lane: Lane[P]) -> None:
        self.in_flight -= lane.bytes
        self.left -= 1
        if self.waiting or not self.left:  # a notification after every lane would cost more than a small lane
            self.changed.notify_all()


class _Load:
    """How much of a processor these threads want; more may come."""

    def __init__(self, threads: Sequence[int]) -> None:
        self._threads = threads
        self._at, self._wanted = time.monotonic(), self._wanted_s()

    def since_last_look(self) -> float:
        at, wanted = self._at, self._wanted
        self._at, self._wanted = time.monotonic(), self._wanted_s()
        return (self._wanted - wanted) / max(self._at - at, 1e-9)

    def _wanted_s(self) -> float:
        return sum(map(_wanted_s, list(self._threads))) if _LINUX else time.process_time()


def _wanted_s(thread: int) -> float:
    """Seconds in which this thread ran, or waited for a processor. One that has ended wanted nothing."""
    try:
        file = os.open(f"/proc/self/task/{thread}/schedstat", os.O_RDONLY)
    except OSError:
        return 0.0
    try:
        ran, waited, _ = os.read(file, 128).split()
        return (int(ran) + int(waited)) / 1e9
    except OSError:
        return 0.0
    finally:
        os.close(file)
