"""The table trigger: it holds back DDLs over a database or over all."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.control.barrier import Key
from tidegate.errors import BrokenInvariant


@dataclass
class Trigger:
    """The table trigger: a DB or All event waits here while the maintainer still has to answer about an earlier one."""

    pending_acks: int = 0
    waiting: Key | None = None

    def submit(self) -> None:
        self.pending_acks += 1

    def acknowledge(self) -> None:
        if self.pending_acks == 0:
            raise BrokenInvariant("the table trigger was acknowledged more often than it asked")
        self.pending_acks -= 1

    def wait(self, key: Key) -> None:
        if self.waiting not in (None, key):
            raise BrokenInvariant(
                f"at the table trigger the event of {self.waiting} waits already, so not that of {key}"
            )
        self.waiting = key

    def go_on(self, key: Key) -> None:
        if self.waiting == key:
            self.waiting = None
