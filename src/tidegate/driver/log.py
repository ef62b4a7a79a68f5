"""The log of a changefeed, for all modules of the driver. State changes with ids and counts, never values of rows.

Names, DDLs and reasons come from others. Their control characters are escaped here, whoever writes the log.
"""

from __future__ import annotations

import logging

from tidegate.wording import escaped

log = logging.getLogger("tidegate")


def _escape(record: logging.LogRecord) -> bool:
    if isinstance(record.args, tuple):
        record.args = tuple(_shown(value) for value in record.args)
    return True


def _shown(value: object) -> object:
    """Numbers stay numbers, for formats such as %d."""
    return value if isinstance(value, int | float) else escaped(str(value))


log.addFilter(_escape)
