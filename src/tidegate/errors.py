"""The one error tree. The type says what to do next; the message names the object and the remedy.

TidegateError
├── UsageError            fix the command, an option, a URI or the input's shape      (exit code 2)
│   ├── BadSetting        an option or URI is unknown or out of range
│   └── BadEvents         the events break their contract: wrong schema, NULL name, wrong value (exit code 1)
├── LandingError          something could not be put on storage
│   ├── StoreUnavailable  may pass: the driver plans it again (retry = True)
│   └── StoreRefused      will not pass by itself: rights, names; somebody must change something
│       └── StoreConflict an object with other content stands where one was to be created
├── SpoolError            the spool's directory is held by another changefeed or cannot be made
│   └── SpoolLost         the spool is full or gone: a new start replays what it held (retry = True)
├── VerifyError           what stands on storage is not what the source says
└── BrokenInvariant       a bug in Tidegate: stop rather than guess
"""


class TidegateError(Exception):
    """Root of all errors raised on purpose; its text is one sentence for the user."""

    retry = False
    exit_code = 1


class UsageError(TidegateError):
    exit_code = 2


class BadSetting(UsageError):
    pass


class BadEvents(UsageError):
    exit_code = 1


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


class VerifyError(TidegateError):
    pass


class BrokenInvariant(TidegateError):
    pass
