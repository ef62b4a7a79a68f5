"""The one error tree. The type says what to do next; the message names the object and the remedy.

TidegateError
├── UsageError            fix the command, an option, a URI or the input's shape      (exit code 2)
│   ├── BadSetting        an option or URI is unknown or out of range
│   └── BadEvents         the events break their contract: wrong schema, NULL name, wrong value (exit code 1)
│       └── BadLog        the log of a database is broken, or holds what cannot be followed
│           └── BadDdl    a statement in the log whose effect is not known, or cannot be followed
├── SourceUnavailable     a database does not answer, or the connection is lost (retry = True)
├── SourceFenced          another process has put other things on record for this source: stop
├── LandingError          an object could not be written to storage
│   ├── StoreUnavailable  temporary: the driver retries it (retry = True)
│   └── StoreRefused      permanent until somebody changes something, such as rights or names
│       └── StoreConflict an object with other content exists under the name of the one to create
├── SpoolError            the spool's directory is used by another changefeed or cannot be created
│   ├── SpoolTooSmall     what must be read does not fit: make the spool larger; a restart would end the same way
│   └── SpoolLost         the spool is full or gone: a restart reads its changes again (retry = True)
│       └── SpoolFull     no space is left where it is
├── StillStarting         a question came before there is an answer: ask again (retry = True)
├── SessionStopped        the Spark session was stopped under a changefeed
├── SinkEmptied           the journal of a running changefeed is gone, so what it landed may be, too
├── OnlyRepeats           every change that was read counts as written already: the checkpoint may be wrong
├── VerifyError           storage does not hold what the source says
└── BrokenInvariant       a bug in Tidegate: stop rather than guess
"""


class TidegateError(Exception):
    """The root of all errors that Tidegate raises; the text is one sentence for the user."""

    retry = False
    exit_code = 1


class UsageError(TidegateError):
    exit_code = 2


class BadSetting(UsageError):
    pass


class BadEvents(UsageError):
    exit_code = 1


class BadLog(BadEvents):
    pass


class BadDdl(BadLog):
    pass


class SourceUnavailable(TidegateError):
    retry = True


class SourceFenced(TidegateError):
    pass


class LandingError(TidegateError):
    pass


class StoreUnavailable(LandingError):
    retry = True


class StoreRefused(LandingError):
    pass


class StoreConflict(StoreRefused):
    pass


class SpoolError(TidegateError):
    pass


class SpoolLost(SpoolError):
    retry = True


class SpoolFull(SpoolLost):
    pass


class SpoolTooSmall(SpoolError):
    pass


class StillStarting(TidegateError):
    retry = True


class SessionStopped(TidegateError):
    pass


class SinkEmptied(TidegateError):
    pass


class OnlyRepeats(TidegateError):
    pass


class VerifyError(TidegateError):
    pass


class BrokenInvariant(TidegateError):
    pass


def error_named(name: str) -> type[TidegateError] | None:
    """The error of this tree that a class of this name is: `BadEvents` for `BadEvents`, and for its subclasses.

    Errors of other processes arrive as text. Subclasses have arguments of their own, so the class of the tree is used.
    """
    found = next((kind for kind in _descendants(TidegateError) if kind.__name__ == name), None)
    while found is not None and found.__module__ != __name__:
        found = found.__base__
    return found


def _descendants(kind: type[TidegateError]) -> list[type[TidegateError]]:
    return [kind, *(below for child in kind.__subclasses__() for below in _descendants(child))]
