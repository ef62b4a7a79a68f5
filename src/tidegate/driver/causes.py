"""What really went wrong inside an exception of Spark, which carries errors of other processes as text only.

An error that is raised in a task, or in the process in which Spark asks a source for offsets, reaches the driver as the
text of a traceback inside a long message. Its first line says that some job failed; the last line of the traceback has
the type and the sentence:

    An exception was thrown from the Python worker:
    Traceback (most recent call last):
      ...
    tidegate.errors.BadEvents: shop.orders, commit-ts 7, column 'id': the value is not a whole number
     SQLSTATE: 38000

An error of our own tree becomes that error again, so that its type decides what happens next, as on the driver. It
counts also if another error follows it in the same text: Spark's own cleaning up may fail after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tidegate.errors import TidegateError, error_named

_TRACEBACK = "Traceback (most recent call last):"
_RAISED = re.compile(r"(?P<name>[A-Za-z_][\w.<>]*)(?:: (?P<message>.*))?")
_OURS = "tidegate."
# What Spark's process for a source ends with when the source's reader could not be made; the cause is the one before.
_CLEANING_UP = "UnboundLocalError: cannot access local variable 'reader'"
_MOST = 1000  # characters of a sentence that is not ours
# What may follow the message of an error: a chained one, Java's stack, Spark's description of the query.
_AFTER = re.compile(
    r"\s*$|\t\s*at |\s*SQLSTATE: |During handling of the above |The above exception was the direct "
    r"|=== Streaming Query |Caused by: |Driver stacktrace:|JVM stacktrace:|Traceback \(most recent call last\):"
)


def cause_of(error: BaseException) -> BaseException:
    """The error of ours that this one carries, in its text or as its cause; the error itself if there is none."""
    if isinstance(error, TidegateError):
        return error
    if isinstance(error.__cause__, TidegateError):
        return error.__cause__
    found = [ours for name, message in _raised(str(error)) if (ours := _ours(name, message)) is not None]
    return found[-1] if found else error


def sentence_of(error: BaseException) -> str:
    """What to tell a user, on one line: `ZeroDivisionError: division by zero`."""
    cause = cause_of(error)
    if isinstance(cause, TidegateError):
        return str(cause)
    text = str(cause).strip()
    raised = [f"{name}: {message}" if message else name for name, message in _raised(text)]
    if len(raised) > 1 and raised[-1].startswith(_CLEANING_UP):
        raised.pop()
    return (raised[-1] if raised else _java_cause(text) or type(cause).__name__)[:_MOST]


def _raised(text: str) -> Iterator[tuple[str, str]]:
    """The type and the message of the error that ends each traceback, in the order of the text."""
    lines = text.splitlines()
    for start in (at for at, line in enumerate(lines) if line.rstrip().endswith(_TRACEBACK)):
        ends = (at for at in range(start + 1, len(lines)) if lines[at][:1].strip())
        at = next(ends, None)
        if at is not None and (found := _RAISED.fullmatch(lines[at].rstrip())) is not None:
            yield found["name"], " ".join([found["message"] or "", *_more_lines(lines, at + 1)]).strip()


def _more_lines(lines: list[str], start: int) -> Iterator[str]:
    """The other lines of a message, up to what cannot belong to it."""
    for line in lines[start:]:
        if _AFTER.match(line):
            return
        yield line.strip()


def _ours(name: str, message: str) -> TidegateError | None:
    kind = error_named(name.rpartition(".")[2]) if name.startswith(_OURS) else None
    return kind(message) if kind is not None else None


def _java_cause(text: str) -> str:
    """Without a traceback: the innermost cause that Java names, else the first line that says something."""
    causes = re.findall(r"^Caused by: (.+)$", text, re.MULTILINE)
    said = re.findall(r"^: (.+)$", text, re.MULTILINE)  # after py4j's `An error occurred while calling o42.load.`
    return str([*text.splitlines()[:1], *said[:1], *causes[-1:]][-1]) if text else ""
