"""The log of the command line: a time, a level and one sentence on each line, as text or as JSON, on stderr.

Control characters are escaped, so that a name of the source can neither begin a new line nor steer a terminal.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from datetime import UTC, datetime

from tidegate.wording import escaped

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")


class LogLines(logging.Handler):
    """Writes to stderr as it is now, or to `write` while something else has the terminal."""

    write: Callable[[str], None] | None = None

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
            if self.write is not None:
                self.write(line)
            else:
                sys.stderr.write(line + "\n")
                sys.stderr.flush()
        except Exception:
            self.handleError(record)


def set_up(level: str, kind: str) -> LogLines:
    """From now on all that is logged at this level or above goes to stderr; libraries only from warnings on."""
    handler = LogLines()
    handler.setFormatter(_Json() if kind == "json" else _Text())
    chosen = logging.getLevelNamesMapping()[level.upper()]
    root = logging.getLogger()
    for before in [each for each in root.handlers if isinstance(each, LogLines)]:
        root.removeHandler(before)
    root.addHandler(handler)
    root.setLevel(max(chosen, logging.WARNING))
    logging.getLogger("tidegate").setLevel(chosen)
    return handler


class _Text(logging.Formatter):
    """`2026-01-31T12:00:00.123Z INFO the wake is held back: ...`"""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_time(record)} {record.levelname:<7} {escaped(record.getMessage())}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _Json(logging.Formatter):
    """`{"time": "2026-01-31T12:00:00.123Z", "level": "info", "logger": "tidegate", "message": "..."}`"""

    def format(self, record: logging.LogRecord) -> str:
        line = {"time": _time(record), "level": record.levelname.lower(), "logger": record.name}
        line["message"] = escaped(record.getMessage())
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"
