"""The command line: `tidegate run`, `check`, `verify`, `encode`, `bench`. Exit code: 2 usage, 1 failure, else 0.

What needs Spark or the benchmarks is imported by the verb that uses it: `check` would take twice as long otherwise.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate import __version__
from tidegate.clock import SystemClock, now_ms
from tidegate.config.settings import Settings, duration_s, effective, load_settings, read_config, redacted
from tidegate.errors import BadSetting, TidegateError, UsageError
from tidegate.storage.store import open_store
from tidegate.tools.check import OK, PROBLEM, WARNING, preflight
from tidegate.tools.encode.command import data_bytes, paths, read_document, schema_text

if TYPE_CHECKING:
    from tidegate.spark.handle import Handle

_EXAMPLES = """examples:
  tidegate run --source "workload://sysbench?tables=10&rows=1000000" --sink file:///tmp/out --duration 30s
  tidegate verify --source "workload://sysbench?tables=10&rows=1000000" --sink file:///tmp/out
  tidegate bench throughput --json throughput.json
"""
_RUN_EXAMPLES = """examples:
  tidegate run --source "workload://sysbench?tables=10&seed=1" --sink "file:///tmp/out?flush-interval=2s" --duration 1m
  tidegate run changefeed.toml --source parquet:/data/events --sink file:///tmp/out --report report.json
  tidegate run --source "workload://sysbench?tables=1000" --sink file:///tmp/out --metrics-addr 127.0.0.1:9100
  tidegate run --source parquet:/data/events --sink "s3://lake/cdc?region=eu-west-1"    (credentials: docs/storage.md)

Options of the changefeed stand in CONFIG.toml, in the sink URI (?file-size=16MiB&flush-interval=2s), or here as
--option KEY=VALUE; later ones win. SIGINT or SIGTERM stops reading, lands what is spooled and writes the checkpoint; a
second one leaves at once.
"""
_CHECK_EXAMPLES = """Looks at the sink, the options and the spool before a changefeed starts, and says what is wrong and
what to do about it. What it writes it removes again; a changefeed that runs on the sink is not disturbed.

examples:
  tidegate check file:///data/cdc
  tidegate check "file:///data/cdc?protocol=canal-json" changefeed.toml --spool-dir /data/spool

Exit code 1 if there is a problem, 0 if there are at most warnings.
"""
_ENCODE_EXAMPLES = """The table and its changes come as JSON from standard input, and the bytes go to standard output.

examples:

  echo '{"schema": "shop", "table": "orders", "columns": ["id int primary key", "note varchar(20)"],
         "rows": [{"kind": "insert", "commit_ts": 7, "after": {"id": 1, "note": "new"}}]}' \\
    | tidegate encode --protocol csv --option csv.include-commit-ts=true

  tidegate encode --protocol canal-json --config changefeed.toml --now 1663572946034 < rows.json
  tidegate encode --output schema < rows.json

docs/encode.md describes the input.
"""


def main(argv: Sequence[str] | None = None) -> int:
    parser = _parser(sys.argv[1:] if argv is None else argv)
    arguments, rest = parser.parse_known_args(argv)
    if rest and arguments.run is not _bench:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    arguments.rest = rest
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    logging.getLogger("tidegate").setLevel(logging.INFO)
    try:
        result: int = arguments.run(arguments)
    except TidegateError as exc:
        print(f"tidegate: {exc}", file=sys.stderr)
        return exc.exit_code
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:  # before the changefeed runs; from then on signals only set a flag
        return 130
    return result


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="tidegate",
        description="Lands database changes in cloud storage in TiCDC's layout, through PySpark Structured Streaming.",
        epilog=_EXAMPLES,
        formatter_class=formatter,
    )
    parser.add_argument("--version", action="version", version=f"tidegate {__version__}")
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    run = verbs.add_parser("run", help="run a changefeed", epilog=_RUN_EXAMPLES, formatter_class=formatter)
    run.add_argument("config", nargs="?", metavar="CONFIG.toml", help="options of the changefeed, with TiCDC's keys")
    _add_ends(run)
    run.add_argument("--duration", metavar="30s", help="stop reading after this time (default: until the source ends)")
    run.add_argument("--report", metavar="FILE.json", help="write the summary as JSON")
    run.add_argument("--metrics-addr", metavar="HOST:PORT", help="serve Prometheus metrics (loopback by default)")
    run.add_argument("--slots", type=int, metavar="N", help="Spark task slots (default: the cores, at least 2)")
    run.set_defaults(run=_run)

    look = verbs.add_parser(
        "check",
        help="look whether a changefeed can start on a sink",
        epilog=_CHECK_EXAMPLES,
        formatter_class=formatter,
    )
    look.add_argument("sink", metavar="SINK", help="the sink URI, with options as ?key=value")
    look.add_argument("config", nargs="?", metavar="CONFIG.toml", help="options of the changefeed, with TiCDC's keys")
    _add_changefeed(look)
    look.set_defaults(run=_check)

    check = verbs.add_parser(
        "verify",
        help="replay a deterministic source and check what stands on the sink",
        epilog='example:\n  tidegate verify --source "workload://sysbench?tables=10&seed=1" --sink file:///tmp/out\n',
        formatter_class=formatter,
    )
    check.add_argument("config", nargs="?", metavar="CONFIG.toml", help="the options that the changefeed ran with")
    _add_ends(check)
    check.set_defaults(run=_verify)

    encode = verbs.add_parser(
        "encode",
        help="encode rows given as JSON: the exact bytes of a data file",
        epilog=_ENCODE_EXAMPLES,
        formatter_class=formatter,
    )
    encode.add_argument("--config", metavar="FILE.toml", help="options of the changefeed, with TiCDC's keys")
    encode.add_argument("--protocol", metavar="NAME", help="csv or canal-json (default: csv, or what the config says)")
    encode.add_argument("--sink", metavar="URI", default="noop://", help="a sink URI whose options count too")
    _add_option(encode)
    encode.add_argument(
        "--output",
        choices=("data", "schema", "paths"),
        default="data",
        help="the data file, the schema file, or where they stand (default: %(default)s)",
    )
    encode.add_argument(
        "--now", type=_moment, metavar="MS", help="the moment of writing in milliseconds since 1970 (default: now)"
    )
    encode.set_defaults(run=_encode)

    names, listed = _benchmarks() if "bench" in words else ("", "")
    bench = verbs.add_parser(
        "bench",
        help="measure, and check what was measured",
        epilog=f"benchmarks:\n{listed}"
        "\nA benchmark has parameters of its own, given as --NAME VALUE; an unknown one is answered with the known.\n"
        "\nexample:\n  tidegate bench throughput --protocol canal-json --json throughput.json\n",
        formatter_class=formatter,
    )
    bench.add_argument("name", metavar="NAME", help=f"which benchmark: {names}")
    bench.add_argument("--json", metavar="FILE", help="write name and figures as JSON")
    bench.add_argument(
        "--data-dir",
        metavar="DIR",
        default="bench-data",
        help="where prepared input and output go (default: %(default)s)",
    )
    bench.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a parameter of the benchmark, e.g. --set tables=4; --tables 4 is the same",
    )
    bench.set_defaults(run=_bench)
    return parser


def _benchmarks() -> tuple[str, str]:
    """Their names in a row, and a line of help for each."""
    from tidegate.bench import BENCHMARKS

    return ", ".join(BENCHMARKS), "".join(f"  {name:<12} {entry.help}\n" for name, entry in BENCHMARKS.items())


def _add_ends(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--source", required=True, metavar="URI", help="workload://sysbench?... or parquet:DIR")
    parser.add_argument(
        "--sink",
        required=True,
        metavar="URI",
        help="file:///absolute/path, s3://bucket/prefix, gs://bucket/prefix or azblob://container/prefix, "
        "with options as ?key=value",
    )
    _add_changefeed(parser)


def _add_changefeed(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--changefeed-id", metavar="ID", help="name of the changefeed (default: from the sink URI)")
    parser.add_argument(
        "--spool-dir", metavar="DIR", help="directory of the spool (default: under the system's temporary directory)"
    )
    _add_option(parser)


def _add_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an option of the changefeed, e.g. file-size=16MiB",
    )


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


def _flags(words: Sequence[str]) -> dict[str, str]:
    """`--tables 4 --kind=x` as {"tables": "4", "kind": "x"}."""
    found: dict[str, str] = {}
    left = list(words)
    while left:
        name, equals, value = left.pop(0).partition("=")
        if not name.startswith("--") or not (equals or left):
            raise UsageError(f"{name!r} is not of the form --NAME VALUE")
        found[name[2:]] = value if equals else left.pop(0)
    return found


def _run(arguments: argparse.Namespace) -> int:
    from tidegate.sources import open_source
    from tidegate.spark.handle import start_source
    from tidegate.spark.session import local_session

    settings = _settings(arguments)
    duration = _duration(arguments.duration)
    open_source(arguments.source, ordering=settings.ordering, wake_mode=settings.wake_mode)  # refuse early
    _check_report(arguments.report)
    _print_options(settings, arguments.source)
    spark = local_session(arguments.slots)
    try:
        handle = start_source(arguments.source, settings, metrics_addr=arguments.metrics_addr)
        return _attend(handle, settings, duration, arguments)
    finally:
        _stop_spark(spark)


def _check(arguments: argparse.Namespace) -> int:
    settings = _settings(arguments)
    print(f"tidegate check {redacted(arguments.sink)}")
    for note in settings.notes:
        print(f"  note: {note}")
    found = {OK: 0, WARNING: 0, PROBLEM: 0}
    for line in preflight(settings, open_store(settings.sink_uri, settings.access), SystemClock()):
        found[line.verdict] += 1
        print(f"  {line.verdict:<8} {line.name:<12} {line.sentence}", flush=True)
        if line.verdict != OK:
            print(f"  {'':<21} -> {line.remedy}", flush=True)
    counts = [f"{found[verdict]} {verdict}{'s' * (found[verdict] != 1)}" for verdict in (PROBLEM, WARNING)]
    print(", ".join(counts))
    return 1 if found[PROBLEM] else 0


def _duration(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return duration_s(text)
    except BadSetting as exc:
        raise UsageError(f"--duration {exc}") from exc


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


def _attend(handle: Handle, settings: Settings, duration: float | None, arguments: argparse.Namespace) -> int:
    """Poll, show, and stop when time is up or a signal comes."""
    from tidegate.tools.display import Display, summary

    signals, display, started = _Signals(), Display(sys.stdout, settings), time.monotonic()
    if handle.metrics_port is not None:
        print(f"metrics on port {handle.metrics_port}", flush=True)
    while not handle.done:
        handle.await_termination(0.1)
        if signals.asked or (duration is not None and time.monotonic() - started >= duration):
            handle.stop()
        if signals.asked > 1:
            print("\nleft at once: what was spooled and not landed will be read again", flush=True)
            os._exit(130)
        display.show(handle.status())
    display.close(handle.status())
    report = summary(handle.status(), handle.changefeed, time.monotonic() - started)
    print(report.text(_program(), redacted(arguments.source), redacted(arguments.sink)))
    if arguments.report:
        Path(arguments.report).write_text(json.dumps(report.figures, indent=2) + "\n", encoding="utf-8")
    handle.await_termination()
    return 0


def _program() -> str:
    """How the user called us, so that the next commands can be copied."""
    return sys.argv[0] if os.path.basename(sys.argv[0]) == "tidegate" else "tidegate"


def _stop_spark(spark: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    spark.stop()


def _verify(arguments: argparse.Namespace) -> int:
    from tidegate.tools.verify import verify

    settings = _settings(arguments)
    report = verify(
        arguments.source,
        settings,
        open_store(settings.sink_uri, settings.access),
        progress=lambda text: print(text, flush=True),
    )
    for key, value in asdict(report).items():
        print(f"  {key:<22} {value:.1f}" if isinstance(value, float) else f"  {key:<22} {value}")
    print("verified: every change up to the checkpoint is there exactly once, in order")
    return 0


def _moment(text: str) -> int:
    if not text.isdecimal() or len(text) > 13:
        raise argparse.ArgumentTypeError(f"{text!r} is no moment in milliseconds since 1970, such as 1767225600000")
    return int(text)


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
    from tidegate.bench import BENCHMARKS, run_bench

    if arguments.name not in BENCHMARKS:
        raise UsageError(f"unknown benchmark {arguments.name!r}; known: {', '.join(BENCHMARKS)}")
    parameters = _pairs("--set", arguments.set) | _flags(arguments.rest)
    figures = run_bench(arguments.name, Path(arguments.data_dir), parameters)
    for key, value in figures.items():
        print(f"  {key:<28} {value:.4g}" if isinstance(value, float) else f"  {key:<28} {value}")
    if arguments.json:
        body = {"name": arguments.name, "figures": figures}
        Path(arguments.json).write_text(json.dumps(body, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
