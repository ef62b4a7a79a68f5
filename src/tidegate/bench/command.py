"""`tidegate bench NAME`: each benchmark is a subcommand, with its parameters as options.

Every benchmark also takes `--json FILE` and `--data-dir DIR`.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path

from tidegate.bench import BENCHMARKS
from tidegate.bench.harness.parameters import add_parameters, given_parameters


def add_benchmarks(parser: argparse.ArgumentParser) -> None:
    """A subcommand for each benchmark; `arguments.name` says which one was chosen."""
    names = parser.add_subparsers(title="benchmarks", metavar="NAME", required=True)
    for name, benchmark in BENCHMARKS.items():
        one = names.add_parser(
            name,
            help=benchmark.help,
            description=benchmark.about,
            formatter_class=partial(argparse.RawDescriptionHelpFormatter, max_help_position=28),
            allow_abbrev=False,  # `--table 4` must not be taken for `--tables 4`
        )
        add_parameters(one, benchmark.parameters)
        one.add_argument("--json", metavar="FILE", help="write name and figures as JSON")
        one.add_argument(
            "--data-dir",
            metavar="DIR",
            default="bench-data",
            help="where prepared input and output go (default: %(default)s)",
        )
        one.set_defaults(name=name, parser=one)


def run_benchmark(arguments: argparse.Namespace) -> int:
    benchmark = BENCHMARKS[arguments.name]
    figures = benchmark.run(Path(arguments.data_dir), given_parameters(benchmark.parameters, arguments))
    for key, value in figures.items():
        print(f"  {key:<28} {value:.4g}" if isinstance(value, float) else f"  {key:<28} {value}")
    if arguments.json:
        body = {"name": arguments.name, "figures": figures}
        Path(arguments.json).write_text(json.dumps(body, indent=2) + "\n", encoding="utf-8")
    return 0
