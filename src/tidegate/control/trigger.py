"""The table trigger: the dispatcher without a table, which takes part in DDLs of a whole database or of all.

Such a DDL is compared with the dispatchers that exist when it drains. An earlier DDL that begins, ends or moves tables
must be over by then, or the comparison would miss its tables. So the trigger counts the answers that the maintainer
owes it, and while there are any, the DDL waits here.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.control.barrier import Key
from tidegate.errors import BrokenInvariant


@dataclass
class Trigger:
    """At most one DDL waits: those behind it wait for it anyway."""

    pending_acks: int = 0  # DDLs about which the maintainer still has to answer
    waiting: Key | None = None

    def submit(self) -> None:
        """A DDL goes to the maintainer, who will answer when it is over."""
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
        """This DDL need not wait any longer."""
        if self.waiting == key:
            self.waiting = None
