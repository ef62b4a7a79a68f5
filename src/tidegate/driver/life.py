"""The life of one changefeed: its lock, its first error, and whether it goes on.

All threads of a changefeed share one lock. A thread that changes what another may wait for calls `notify`.
Invariants:
1. The first error stays the cause; every waiter ends with it.
2. Every wait is short and repeated, so it also ends when the changefeed stops, closes or fails.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from tidegate.errors import TidegateError, error_named

_WAIT_S = 0.05

T = TypeVar("T")
Work = Callable[[], None]  # what a land thread does next


class Life:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._changed = threading.Condition(self.lock)
        self._stopping = threading.Event()
        self._closed = threading.Event()
        self.error: BaseException | None = None

    @property
    def stopping(self) -> bool:
        """No more is read; what was accepted still lands."""
        return self._stopping.is_set()

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    @property
    def goes_on(self) -> bool:
        return not self.closed and self.error is None

    def fail(self, error: BaseException) -> None:
        """The first error ends every waiter with its cause."""
        with self.lock:
            if self.error is None:
                self.error = error
            self.notify()

    def stop_reading(self) -> None:
        """No batch waits any longer for its wake; one that is accepted after this is landed with the rest."""
        self._stopping.set()
        with self.lock:
            self.notify()

    def close(self) -> None:
        """All threads end after what they are doing now."""
        self._stopping.set()
        with self.lock:
            self._closed.set()
            self.notify()

    def notify(self) -> None:
        """Something changed that another thread may wait for. The caller holds the lock."""
        self._changed.notify_all()

    def wait_until(self, found: Callable[[], T]) -> T | None:
        """Wait until `found` returns something true, and return it; None if the changefeed ends first.

        The caller holds the lock. `found` is called with it, at once and then after every change and every few
        milliseconds, because clocks and disks change without anybody calling `notify`. It is not called any more once
        the changefeed has ended: a land thread that woke up for the end would begin another round.
        """
        while self.goes_on:
            if answer := found():
                return answer
            self._changed.wait(_WAIT_S)
        return None

    def pause(self, seconds: float) -> None:
        """Sleep so long, unless the changefeed closes. The lock is not needed."""
        self._closed.wait(seconds)

    def raise_error(self) -> None:
        """Every waiter ends with the first error. Its type says whether a new start may help, and the exit code."""
        if (cause := self.error) is not None:
            kind = error_named(type(cause).__name__) if isinstance(cause, TidegateError) else None
            stopped = (kind or TidegateError)(f"the changefeed has stopped: {cause}")
            stopped.retry = not isinstance(cause, TidegateError) or cause.retry
            raise stopped from cause
