"""The command line: `tidegate run`, `check`, `verify`, `encode`, `bench`. Exit code: 2 usage, 1 failure, else 0.

What needs Spark or the benchmarks is imported by the verb that uses it: `check` would take twice as long otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate import __version__
from tidegate.arguments import make_parser
from tidegate.clock import SystemClock, now_ms
from tidegate.config.settings import Settings, duration_s, effective, load_settings, read_config
from tidegate.errors import BadSetting, OnlyRepeats, TidegateError, UsageError
from tidegate.format.bad_rows import FOLDER as BAD_ROWS
from tidegate.storage.store import open_store
from tidegate.tools.check import OK, PROBLEM, WARNING, Line, preflight
from tidegate.tools.encode.command import data_bytes, paths, read_document, schema_text
from tidegate.tools.logs import set_up
from tidegate.wording import escaped, redacted, shell_word

if TYPE_CHECKING:
    from tidegate.sources.mysql.address import Address
    from tidegate.spark.handle import Handle
    from tidegate.tools.display import Display


def main(argv: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    arguments, unknown = make_parser(_VERBS, words).parse_known_args(words)
    if unknown:
        arguments.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    arguments.log = set_up(getattr(arguments, "log_level", "warning"), getattr(arguments, "log_format", "text"))
    try:
        result: int = arguments.run(arguments)
    except TidegateError as exc:
        _say(exc, arguments)
        return exc.exit_code
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:  # before the changefeed runs; from then on signals only set a flag
        return 130
    return result


def _say(error: TidegateError, arguments: argparse.Namespace) -> None:
    """The last line on stderr: for a reader of the log as all others, else plain."""
    if getattr(arguments, "log_format", "") == "json":
        logging.getLogger("tidegate").error("%s", error)
    else:
        print(f"tidegate: {escaped(str(error))}", file=sys.stderr)


def _settings(arguments: argparse.Namespace) -> Settings:
    config = read_config(arguments.config) if arguments.config else None
    given = _pairs("--option", arguments.option)
    given |= {"changefeed-id": arguments.changefeed_id, "spool.dir": arguments.spool_dir}
    return load_settings(arguments.sink, config, {key: value for key, value in given.items() if value is not None})


def _pairs(flag: str, texts: Sequence[str]) -> dict[str, Any]:
    bad = next((text for text in texts if "=" not in text), None)
    if bad is not None:
        raise BadSetting(f"{flag} {bad!r} is not of the form KEY=VALUE")
    return dict(text.split("=", 1) for text in texts)


def _run(arguments: argparse.Namespace) -> int:
    from tidegate.spark.handle import start_source
    from tidegate.spark.session import local_session

    settings = _settings(arguments)
    duration = _duration("--duration", arguments.duration)
    _duration("--close-timeout", arguments.close_timeout)
    _check_source(arguments, settings)  # before Java starts
    _check_report(arguments.report)
    _print_options(settings, arguments.source)
    spark = local_session(arguments.slots)
    try:
        handle = start_source(
            arguments.source, settings, metrics_addr=arguments.metrics_addr, password_file=arguments.password_file
        )
        return _attend(handle, duration, arguments)
    finally:
        _stop_spark(spark)


def _check(arguments: argparse.Namespace) -> int:
    if arguments.sink is None and arguments.source is None:
        raise UsageError("check needs a sink, a source with --source, or both")
    arguments.sink = arguments.sink or "noop://"
    settings = _settings(arguments)
    print(f"tidegate check {redacted(arguments.sink)}")
    for note in settings.notes:
        print(f"  note: {note}")
    found = {OK: 0, WARNING: 0, PROBLEM: 0}
    for line in _check_lines(arguments, settings):
        found[line.verdict] += 1
        print(f"  {line.verdict:<8} {line.name:<12} {line.sentence}", flush=True)
        if line.verdict != OK:
            print(f"  {'':<21} -> {line.remedy}", flush=True)
    counts = [f"{found[verdict]} {verdict}{'s' * (found[verdict] != 1)}" for verdict in (PROBLEM, WARNING)]
    print(", ".join(counts))
    return 1 if found[PROBLEM] else 0


def _check_lines(arguments: argparse.Namespace, settings: Settings) -> Iterator[Line]:
    store, clock = open_store(settings.sink_uri, settings.access), SystemClock()
    if _is_database(arguments.source):
        from tidegate.tools.check_database import database_lines

        yield from database_lines(*_database(arguments), settings, store, clock)
        yield from preflight(settings, store, clock)
        return
    check_source = partial(_check_source, arguments, settings) if arguments.source is not None else None
    yield from preflight(settings, store, clock, check_source)


def _is_database(source: str | None) -> bool:
    return source is not None and source.startswith("mysql:")


def _database(arguments: argparse.Namespace) -> tuple[Address, str]:
    """The address of the database, and the password that somebody gave."""
    from tidegate.sources.mysql.address import parse_address
    from tidegate.sources.mysql.private import password_of

    address = parse_address(arguments.source)
    return address, password_of(address.password, arguments.password_file, os.environ)


def _check_source(arguments: argparse.Namespace, settings: Settings) -> None:
    from tidegate.sources import open_source
    from tidegate.sources.mysql.private import private_source

    uri, private = private_source(arguments.source, arguments.password_file, os.environ)
    open_source(uri, ordering=settings.ordering, wake_mode=settings.wake_mode, private=private).check()


def _duration(flag: str, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return duration_s(text)
    except BadSetting as exc:
        raise UsageError(f"{flag} {exc}") from exc


def _check_report(path: str | None) -> None:
    """A report that cannot be written is said before the run, not after it."""
    if path is not None and not os.access(Path(path).resolve().parent, os.W_OK):
        raise UsageError(f"--report {path}: its directory does not exist or is not writable")


def _print_options(settings: Settings, source: str) -> None:
    print(f"tidegate {__version__}")
    rows = [("source", redacted(source)), *effective(settings)]
    width = max(len(key) for key, _ in rows)
    for key, value in rows:
        print(f"  {key:<{width}} {value}")
    for note in settings.notes:
        print(f"  note: {note}")
    print("starting Spark ...", flush=True)


class _Signals:
    """The first SIGINT or SIGTERM asks for an orderly stop, the second leaves at once. Handlers only set flags."""

    def __init__(self) -> None:
        self.asked = 0
        # Installed after the SparkContext, whose own SIGINT handler would cancel the landings too.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._note)

    def _note(self, number: int, frame: object) -> None:
        self.asked += 1


@dataclass
class _Closing:
    """An orderly stop: reading ends, what is spooled lands. That may take as long as the store is away."""

    handle: Handle
    display: Display
    timeout: str | None
    gave_up: bool = False
    _since: float | None = None

    def begin(self) -> None:
        if self._since is None:
            self._since = time.monotonic()
            self.handle.stop()
            self.display.say("stopping: what is spooled lands; a second signal leaves at once")

    def look(self) -> None:
        limit = _duration("--close-timeout", self.timeout)
        late = self._since is not None and limit is not None and time.monotonic() - self._since >= limit
        if late and not self.gave_up and not self.handle.done:
            self.gave_up = True
            self.handle.leave()
            self.display.say(f"left after --close-timeout {self.timeout}: what has not landed will be read again")


def _attend(handle: Handle, duration: float | None, arguments: argparse.Namespace) -> int:
    """Poll, show, and stop when time is up or a signal comes."""
    from tidegate.tools.display import Display
    from tidegate.tools.summary import summary

    signals, display, started = _Signals(), Display(sys.stdout, SystemClock()), time.monotonic()
    arguments.log.write = display.write_above if display.is_live and sys.stderr.isatty() else None
    closing = _Closing(handle, display, arguments.close_timeout)
    if handle.metrics_port is not None:
        print(f"metrics on port {handle.metrics_port}", flush=True)
    try:
        while not handle.done:
            with contextlib.suppress(OnlyRepeats):  # raised again below, after the report that says so
                handle.await_termination(0.1)
            if signals.asked or (duration is not None and time.monotonic() - started >= duration):
                closing.begin()
            if signals.asked > 1:
                _leave(display)
            closing.look()
            if display.is_due:
                display.show(handle.status())
    finally:
        display.close(handle.status())
        arguments.log.write = None
    report = summary(handle.status(), handle.changefeed, time.monotonic() - started)
    print(report.text(_program(), _repeated(arguments)))
    if arguments.report:
        Path(arguments.report).write_text(json.dumps(report.figures, indent=2) + "\n", encoding="utf-8")
    handle.await_termination()
    return 1 if closing.gave_up else 0


def _leave(display: Display) -> None:
    """At once: nothing is asked that may have to wait."""
    display.leave()
    print("left at once: what was spooled and not landed will be read again", flush=True)
    os._exit(130)


def _program() -> str:
    """How the user called us, so that the next commands can be copied."""
    return sys.argv[0] if os.path.basename(sys.argv[0]) == "tidegate" else "tidegate"


def _repeated(arguments: argparse.Namespace) -> str:
    """The words that the next command needs as well, as a shell takes them; secrets are `***`."""
    words = [arguments.config] if arguments.config else []
    words += ["--source", redacted(arguments.source), "--sink", redacted(arguments.sink)]
    for flag, value in (("--changefeed-id", arguments.changefeed_id), ("--spool-dir", arguments.spool_dir)):
        words += [flag, value] if value is not None else []
    for text in arguments.option:
        words += ["--option", text]
    return " ".join(map(shell_word, words))


def _stop_spark(spark: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    spark.stop()


def _verify(arguments: argparse.Namespace) -> int:
    from tidegate.tools.verify import verify

    settings = _settings(arguments)
    if _is_database(arguments.source):
        return _verify_database(arguments, settings)
    report = verify(
        arguments.source,
        settings,
        open_store(settings.sink_uri, settings.access),
        progress=lambda text: print(text, flush=True),
    )
    figures = asdict(report)
    unfinished, set_aside = figures.pop("unfinished"), figures.pop("set_aside")
    for key, value in figures.items():
        print(f"  {key:<22} {value:.1f}" if isinstance(value, float) else f"  {key:<22} {value}")
    if unfinished:
        print(f"note: {unfinished}")
    if set_aside:
        print(f"note: {set_aside} rows cannot be written; they are set aside in {BAD_ROWS} and in no data file")
    print("verified: every change up to the checkpoint is there exactly once, in order")
    return 0


def _verify_database(arguments: argparse.Namespace, settings: Settings) -> int:
    from tidegate.tools.verify_database import Patience, task_of, verify_database

    task = task_of(*_database(arguments), settings, open_store(settings.sink_uri, settings.access))
    patience = Patience(_duration("--timeout", arguments.timeout) or Patience.timeout_s)
    wanted = replace(
        task,
        patience=patience,
        show_values=arguments.show_values,
        progress=lambda text: print(text, flush=True),
    )
    report = verify_database(wanted)
    figures = asdict(report)
    for note in figures.pop("not_compared"):
        print(f"note: not compared: {note}")
    for key, value in figures.items():
        print(f"  {key:<22} {value:.1f}" if isinstance(value, float) else f"  {key:<22} {value}")
    if not report.tables:
        print("nothing is verified: no table could be compared")
        return 1
    if report.rows_changed_by_ddl:
        print(f"note: {report.rows_changed_by_ddl} rows have values that a DDL changed without events")
    print(f"verified: {report.tables} tables have the rows of the database at {report.position}")
    return 0


def _encode(arguments: argparse.Namespace) -> int:
    config = read_config(arguments.config) if arguments.config else None
    given = _pairs("--option", arguments.option) | ({"protocol": arguments.protocol} if arguments.protocol else {})
    settings = load_settings(arguments.sink, config, given)
    document = read_document(sys.stdin.buffer.read().decode("utf-8", "surrogateescape"))
    moment_ms = now_ms() if arguments.now is None else arguments.now
    if arguments.output == "data":
        data = data_bytes(document, settings, moment_ms)
    elif arguments.output == "schema":
        data = schema_text(document, settings).encode()
    else:
        moment = datetime.fromtimestamp(moment_ms / 1000).astimezone()
        data = "".join(f"{what:<6} {path}\n" for what, path in paths(document, settings, moment)).encode()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
    return 0


def _bench(arguments: argparse.Namespace) -> int:
    from tidegate.bench.command import run_benchmark

    return run_benchmark(arguments)


_VERBS = {"run": _run, "check": _check, "verify": _verify, "encode": _encode, "bench": _bench}


if __name__ == "__main__":
    sys.exit(main())
