"""The words of the command line: every verb, its options and their help texts.

`make_parser` only describes. What a verb does is given to it as a function, so that this module imports nothing heavy.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from tidegate import __version__
from tidegate.tools.logs import FORMATS, LEVELS

Verb = Callable[[argparse.Namespace], int]

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

Options of the changefeed are given in CONFIG.toml, in the sink URI (?file-size=16MiB&flush-interval=2s), or here as
--option KEY=VALUE; later ones win. SIGINT or SIGTERM stops reading, lands what is spooled and writes the checkpoint; a
second one leaves at once.
"""
_CHECK_EXAMPLES = """Looks at the sink, the options and the spool before a changefeed starts, and says what is wrong and
what to do about it. What it writes it removes again; a changefeed that runs on the sink is not disturbed.

examples:
  tidegate check file:///data/cdc
  tidegate check "file:///data/cdc?protocol=canal-json" changefeed.toml --spool-dir /data/spool
  tidegate check file:///data/cdc --source parquet:/data/events
  tidegate check --source "mysql://repl@db:3306/?tables=shop.*"    (grants, variables and tables: docs/mysql.md)

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
_VERIFY_EXAMPLES = """A source that can be replayed is compared byte for byte. Of a database each table is read at one
moment and compared by its rows, also while a changefeed runs (docs/mysql.md).

examples:
  tidegate verify --source "workload://sysbench?tables=10&seed=1" --sink file:///tmp/out
  tidegate verify --source "mysql://repl@db:3306/?tables=shop.*" --sink s3://lake/cdc
"""
_BENCH_EXAMPLES = """`tidegate bench NAME --help` lists the parameters of one benchmark.

example:
  tidegate bench throughput --protocol canal-json --json throughput.json
"""


def make_parser(verbs: Mapping[str, Verb], words: Sequence[str]) -> argparse.ArgumentParser:
    """What the words mean. `arguments.run` is the verb's function, `arguments.parser` its own parser.

    Benchmarks are imported only if the words ask for one: `tidegate check` would take twice as long otherwise.
    """
    parser = argparse.ArgumentParser(
        prog="tidegate",
        description="Lands database changes in cloud storage in TiCDC's layout, through PySpark Structured Streaming.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"tidegate {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def verb(name: str, meaning: str, examples: str) -> argparse.ArgumentParser:
        raw = partial(argparse.RawDescriptionHelpFormatter, max_help_position=28)
        added: argparse.ArgumentParser = commands.add_parser(name, help=meaning, epilog=examples, formatter_class=raw)
        added.set_defaults(run=verbs[name], parser=added)
        return added

    _add_run(verb("run", "run a changefeed", _RUN_EXAMPLES))
    _add_check(verb("check", "check whether a changefeed can start on a sink", _CHECK_EXAMPLES))
    _add_verify(verb("verify", "compare what the source says with what the sink holds", _VERIFY_EXAMPLES))
    _add_encode(verb("encode", "encode rows given as JSON: the exact bytes of a data file", _ENCODE_EXAMPLES))
    bench = verb("bench", "measure, and check what was measured", _BENCH_EXAMPLES)
    if "bench" in words:
        from tidegate.bench.command import add_benchmarks

        add_benchmarks(bench)
    return parser


def _add_run(run: argparse.ArgumentParser) -> None:
    run.add_argument("config", nargs="?", metavar="CONFIG.toml", help="options of the changefeed, with TiCDC's keys")
    _add_ends(run)
    run.add_argument("--duration", metavar="30s", help="stop reading after this time (default: until the source ends)")
    run.add_argument("--report", metavar="FILE.json", help="write the summary as JSON")
    run.add_argument("--metrics-addr", metavar="HOST:PORT", help="serve Prometheus metrics (loopback by default)")
    run.add_argument("--slots", type=int, metavar="N", help="Spark task slots (default: the cores, at least 2)")
    _add_logs(run)


def _add_logs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--log-level", choices=LEVELS, default="info", help="what is logged to stderr (default: %(default)s)"
    )
    parser.add_argument(
        "--log-format", choices=FORMATS, default="text", help="lines of text or of JSON (default: %(default)s)"
    )


def _add_check(check: argparse.ArgumentParser) -> None:
    check.add_argument("sink", nargs="?", metavar="SINK", help="the sink URI, with options as ?key=value")
    check.add_argument("config", nargs="?", metavar="CONFIG.toml", help="options of the changefeed, with TiCDC's keys")
    check.add_argument(
        "--source", metavar="URI", help="look at this source, too: mysql://..., workload://sysbench?... or parquet:DIR"
    )
    _add_password_file(check)
    _add_changefeed(check)
    _add_logs(check)


def _add_verify(verify: argparse.ArgumentParser) -> None:
    verify.add_argument("config", nargs="?", metavar="CONFIG.toml", help="the options that the changefeed ran with")
    _add_ends(verify)
    verify.add_argument(
        "--timeout", metavar="10m", help="how long a changefeed of a database may take to come to the comparison"
    )
    verify.add_argument(
        "--show-values", action="store_true", help="name the first row that differs by the values of its key"
    )
    _add_logs(verify)


def _add_encode(encode: argparse.ArgumentParser) -> None:
    encode.add_argument("--config", metavar="FILE.toml", help="options of the changefeed, with TiCDC's keys")
    encode.add_argument("--protocol", metavar="NAME", help="csv or canal-json (default: csv, or what the config says)")
    encode.add_argument("--sink", metavar="URI", default="noop://", help="a sink URI whose options count too")
    _add_option(encode)
    encode.add_argument(
        "--output",
        choices=("data", "schema", "paths"),
        default="data",
        help="the data file, the schema file, or their paths (default: %(default)s)",
    )
    encode.add_argument(
        "--now", type=_moment, metavar="MS", help="the moment of writing in milliseconds since 1970 (default: now)"
    )


def _add_password_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--password-file", metavar="FILE", help="the database's password (default: from the URI, or MYSQL_PWD)"
    )


def _add_ends(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--source",
        required=True,
        metavar="URI",
        help="mysql://user@host/?tables=..., workload://sysbench?... or parquet:DIR",
    )
    _add_password_file(parser)
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


def _moment(text: str) -> int:
    if not text.isdecimal() or len(text) > 13:
        raise argparse.ArgumentTypeError(f"{text!r} is no moment in milliseconds since 1970, such as 1767225600000")
    return int(text)
